//! Figures of groups of tasks: what they used of the CPUs, and how their quotas held them back.

use super::{Part, Rows, Shown};
use homenode_report::Better::{Lower, Neither};
use homenode_report::Figure;
use homenode_sim::GroupFigures;
use serde_json::{Value, json};

/// A figure of a group, and how it is taken: of what it did, and of what all CPUs did, in picoseconds.
type OfGroup = (Figure, fn(&GroupFigures, u64) -> f64, Shown);

const GROUPS: [OfGroup; 4] = [
    (
        Figure::new("usage", "ms", Neither, 3, "processor time of all tasks of a group"),
        |g, _| g.usage_ps as f64 / 1e9,
        Shown::IfAny,
    ),
    (
        Figure::new("share", "%", Neither, 2, "of the time in which CPUs were busy"),
        |g, busy| g.usage_ps as f64 * 100.0 / busy.max(1) as f64,
        Shown::IfAny,
    ),
    (
        Figure::new("throttled", "ms", Lower, 3, "time of queues that had used up the quota"),
        |g, _| g.throttled_ns as f64 / 1e6,
        Shown::IfCounted,
    ),
    (
        Figure::new("throttled periods", "%", Lower, 2, "share of a quota's periods"),
        |g, _| g.nr_throttled as f64 * 100.0 / g.nr_periods.max(1) as f64,
        Shown::IfCounted,
    ),
];

pub(super) fn all() -> impl Iterator<Item = Figure> {
    GROUPS.into_iter().map(|(figure, _, _)| figure)
}

/// What each group used.
pub(super) fn push(rows: &mut Rows<'_>) {
    let first = rows.columns.first().and_then(|runs| runs.first());
    let names: Vec<String> =
        first.map_or(vec![], |r| r.groups.iter().map(|g| g.path.clone()).collect());
    for (place, name) in names.iter().enumerate() {
        for (figure, get, shown) in &GROUPS {
            let row = rows.push(Part::Groups, figure, "", *shown, &|r| {
                let busy = r.cpus.iter().map(|c| c.busy_ps).sum();
                Some(get(r.groups.get(place)?, busy))
            });
            row.name = format!("{name}: {}", row.name);
        }
    }
}

/// The same of one run, for JSON.
pub(crate) fn json_of(groups: &[GroupFigures]) -> Value {
    let one = |g: &GroupFigures| {
        json!({
            "path": g.path,
            "usage_ps": g.usage_ps,
            "system_ps": g.system_ps,
            "nice_ps": g.nice_ps,
            "nr_periods": g.nr_periods,
            "nr_throttled": g.nr_throttled,
            "throttled_ns": g.throttled_ns,
        })
    };
    groups.iter().map(one).collect()
}
