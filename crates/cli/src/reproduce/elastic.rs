//! The constants on which the results hang most: what `--quick`, and a reproduction beside its table, moves.

use super::vary::What;
use homenode_core::topology::Hardware;

/// So many of each experiment's constants.
pub(super) const MOST: usize = 6;

/// By experiment the constants of the largest elasticity: the first rows of its page of sensitivity in `docs`,
/// which `cargo xtask bench` writes.
const MOST_ELASTIC: [(&str, [&str; MOST]); 5] = [
    (
        "tiering",
        [
            "cost: minor_fault",
            "link 0 to 0: write_latency",
            "link 0 to 2: read_latency",
            "cost: tlb_remote_flush",
            "cost: reclaim_page",
            "link 0 to 0: read_latency",
        ],
    ),
    (
        "ksm",
        [
            "links of one hop: read_latency",
            "local links: read_latency",
            "local links: read_bandwidth",
            "cost: ksm_displaced",
            "cost: memory_parallelism",
            "cost: minor_fault",
        ],
    ),
    (
        "schedstats",
        [
            "cost: stats_line",
            "cost: context_switch",
            "cost: stats_count",
            "cost: pipe_write",
            "cost: pipe_read",
            "cost: balance_cpu",
        ],
    ),
    (
        "recent-cpu",
        [
            "idle states: wake_latency",
            "cost: clock_min",
            "workload: what is computed",
            "cost: disk_write",
            "cost: tick",
            "cost: io_submit",
        ],
    ),
    (
        "slow-start",
        [
            "cost: hint_fault",
            "workload: compute",
            "local links: read_latency",
            "cost: pte_mark",
            "cost: pte_scan",
            "cost: context_switch",
        ],
    ),
];

/// The names of an experiment's, in the page's order.
pub(super) fn names(experiment: &str) -> &'static [&'static str] {
    MOST_ELASTIC.iter().find(|(name, _)| *name == experiment).map_or(&[], |(_, names)| names)
}

/// Those of the constants that are an experiment's most elastic ones.
pub(super) fn most(experiment: &str, mut all: Vec<What>, machine: &Hardware) -> Vec<What> {
    all.retain(|w| names(experiment).contains(&w.name(machine).as_str()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::EXPERIMENTS;

    /// The first column of the page's first table.
    fn page(experiment: &str) -> Vec<String> {
        let path = format!("{}/../../docs/sensitivity-{experiment}.md", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).expect("each experiment has its page");
        let rows = text.lines().skip_while(|line| !line.starts_with('|'));
        let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
        rows.filter_map(|row| Some(row.split('|').nth(1)?.trim().to_owned())).collect()
    }

    #[test]
    fn they_are_the_first_rows_of_the_published_page() {
        for experiment in EXPERIMENTS {
            let page = page(experiment.name);
            assert_eq!(page[..MOST], *names(experiment.name), "the page of {}", experiment.name);
        }
    }
}
