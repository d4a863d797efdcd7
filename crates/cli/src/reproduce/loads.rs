//! What loads of several reproductions have in common: how much of each is run.

use homenode_core::scenario::{Again, CpuStep, Process, Scenario, Step};
use homenode_core::units::Picos;

/// How long what has no end of its own runs: netperf, tbench.
pub(super) const fn length(small: bool) -> Picos {
    Picos(if small { 5_000_000_000 } else { 20_000_000_000 })
}
/// hackbench of so many groups, each task as often as fits them, to its end.
pub(super) fn hackbench(s: &mut Scenario, groups: u32, small: bool) {
    s.duration = None;
    let pairs = s.channels[0].group;
    s.channels[0].count = groups * pairs;
    for process in &mut s.processes {
        process.copies = groups * pairs;
        let each = if reads(process) { u64::from(pairs) } else { 1 };
        repeat(process, each * loops(groups, small));
    }
}
/// What a process repeats it does so many times.
pub(super) fn repeat(process: &mut Process, times: u64) {
    for step in &mut process.steps {
        if let Step::Repeat { until, .. } = step {
            *until = Again::Times(times);
        }
    }
}
fn loops(groups: u32, small: bool) -> u64 {
    let groups = u64::from(groups.max(1));
    if small { (300 / groups).clamp(2, 20) } else { (2400 / groups).clamp(12, 100) }
}
fn reads(process: &Process) -> bool {
    process.steps.iter().any(|s| matches!(s, Step::Cpu(CpuStep::Read { .. })))
}
