//! One run of recorded lives on a simulated machine.

use super::Recording;
use crate::watched::{self, Watcher};
use anyhow::{Result, anyhow};
use homenode_core::costs::Cost;
use homenode_core::sched::course::Course;
use homenode_core::topology::Hardware;
use homenode_sim::Setup;
use homenode_sim::play::{Acting, Play};
use homenode_trace::sched::{Charged, Header, Kind, NOBODY, Row, Tally, tally};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Virtual time at most: so often the recorded time, and a minute.
const LIMIT: u64 = 100;
const MINUTE_PS: u64 = 60_000_000_000_000;

/// What a run left.
pub(crate) struct Replayed {
    /// As the recording's, of the tasks that were replayed.
    pub(crate) header: Header,
    pub(crate) rows: Vec<Row>,
    pub(crate) tally: Tally,
    /// How often a task went on without what it waited for.
    pub(crate) opened: usize,
}

/// What the kernel of a machine takes of its tasks' run times.
pub(crate) fn charged(machine: &Hardware) -> Charged {
    let prices = machine.costs.prices();
    let ns = |cost| prices[cost] / 1000;
    let booked = |cost| prices[cost] * prices[Cost::WakeCharged] / 1_000_000;
    let (from_idle, from_deep) = if machine.idle_states.is_empty() {
        (booked(Cost::WakeIdle), booked(Cost::WakeDeep))
    } else {
        (ns(Cost::ContextSwitch), ns(Cost::ContextSwitch))
    };
    Charged {
        switch: ns(Cost::ContextSwitch),
        from_idle,
        from_deep,
        deep_after: ns(Cost::DeepAfter),
        wake: ns(Cost::WakeUp),
        wake_idle: ns(Cost::WakeCall),
    }
}

/// Puts lives on a machine and runs them to their ends.
pub(crate) fn play(
    machine: &Hardware,
    setup: &Setup,
    recorded: &Recording,
    course: &Arc<Course>,
    acting: &Acting,
) -> Result<Replayed> {
    let mut play = Play::new(machine, setup, course, acting)?;
    let watcher = Watcher::on(play.simulation_mut(), machine);
    let limit = recorded.header.span_ns.saturating_mul(1000).saturating_mul(LIMIT);
    play.run(limit.saturating_add(MINUTE_PS), &mut |_| {}).map_err(|e| {
        anyhow!("the replay comes to no end: {e}. The recording may be damaged: record it again")
    })?;
    let mut places: BTreeMap<u32, u32> = BTreeMap::new();
    for life in 0..course.lives.len() {
        if let Some(task) = play.task(life) {
            places.insert(task as u32, life as u32);
        }
    }
    let mut born = vec![false; course.lives.len()];
    let mut rows = Vec::new();
    for row in watcher.rows() {
        // Daemons and hogs are nobody's lives.
        let Some(&task) = places.get(&row.task) else { continue };
        let other = places.get(&row.other).copied().unwrap_or(NOBODY);
        let mut row = Row { task, other, ..row };
        if row.kind == Kind::Wake && !std::mem::replace(&mut born[task as usize], true) {
            if let Some(by) = course.lives[task as usize].starter {
                row = Row { kind: Kind::Fork, task: by, other: task, arg: 0, ..row };
            }
        }
        rows.push(row);
    }
    let header = Header {
        span_ns: rows.last().map_or(0, |r| r.time_ns),
        cpus: machine.cpus.iter().map(|c| c.id.0).collect(),
        lost: 0,
        ..watched::header(play.simulation(), machine)
    };
    let header = Header { tasks: recorded.header.tasks.clone(), ..header };
    let opened = play.opened();
    Ok(Replayed { tally: tally(&header, &rows), header, rows, opened })
}
