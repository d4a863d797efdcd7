//! Wake-ups by list: whether a waker puts a task on the target's queue itself, or on a list that the target
//! empties when it is called.
//!
//! ```text
//!  waker  ├─wake─┤ goes on                      pays for the call
//!              └──list, interrupt──┐
//!  target ── sleeps ───────────────┴─enqueue─┤  pays for the rest, and the task is on its queue from here on
//! ```
//!
//! Source: specs/wake.md#list.

use crate::kernel::KernelVersion;

/// The CPU that a woken task is to go to, as its waker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// It is the waker's own.
    pub own: bool,
    /// It shares its last-level cache with the waker's.
    pub shares_cache: bool,
    /// Tasks on its queue, those whose dequeue is delayed among them.
    pub nr_running: u32,
    /// It is active, and the task may run on it.
    pub allowed: bool,
    /// It is the task's CPU, which has taken it off its queue and is still switching to whoever comes next.
    pub on_cpu: bool,
}

/// Whether a task is woken by list (`ttwu_queue_cond`), with `TTWU_QUEUE` on.
///
/// Source: specs/wake.md#list.
#[must_use]
pub fn by_list(version: KernelVersion, to: Target) -> bool {
    use KernelVersion::{V3_8, V4_5, V4_15, V5_18, V6_1, V6_12, V7_3};
    let other_cache = !to.own && !to.shares_cache;
    match version {
        // Who still switches out is waited for first.
        V3_8 | V4_5 | V4_15 => other_cache && !to.on_cpu,
        V5_18 => {
            let alone = to.on_cpu && to.nr_running <= 1;
            to.allowed && (other_cache || (!to.own && alone))
        }
        V6_1 | V6_12 | V7_3 => to.allowed && (other_cache || (!to.own && to.nr_running == 0)),
    }
}

/// Whether the target takes the newest of its list first: the list was a stack up to 5.7.
///
/// Source: specs/wake.md#list.
#[must_use]
pub fn newest_first(version: KernelVersion) -> bool {
    version <= KernelVersion::V4_15
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Target =
        Target { own: false, shares_cache: true, nr_running: 0, allowed: true, on_cpu: false };

    /// The kernels by whose rules a task is woken by list.
    fn of(to: Target) -> Vec<&'static str> {
        let by = |v: &KernelVersion| by_list(*v, to);
        KernelVersion::ALL.into_iter().filter(by).map(KernelVersion::name).collect()
    }

    #[test]
    fn who_is_woken_by_list() {
        let busy = Target { nr_running: 1, ..IDLE };
        let all = ["3.8", "4.5", "4.15", "5.18", "6.1", "6.12", "7.3"];
        let new = ["6.1", "6.12", "7.3"];
        // The vectors of specs/wake.md#list.
        assert!(of(Target { own: true, ..IDLE }).is_empty(), "the own CPU");
        assert_eq!(of(IDLE), new, "an idle CPU of the same cache");
        assert!(of(busy).is_empty(), "a busy CPU of the same cache");
        let other = Target { shares_cache: false, ..busy };
        assert_eq!(of(other), all, "a busy CPU of another cache");
        assert_eq!(of(Target { nr_running: 0, ..other }), all, "an idle CPU of another cache");
        let gone = Target { allowed: false, ..other };
        assert_eq!(of(gone), all[..3], "one that is about to go offline");
        // The task still switches out there, to the idle task, to the only other one, to one of several.
        let out = Target { on_cpu: true, ..IDLE };
        assert_eq!(of(out), ["5.18", "6.1", "6.12", "7.3"]);
        assert_eq!(of(Target { nr_running: 1, ..out }), ["5.18"]);
        assert!(of(Target { nr_running: 2, ..out }).is_empty());
        assert_eq!(of(Target { nr_running: 2, shares_cache: false, ..out }), all[3..]);
    }

    #[test]
    fn lists_were_stacks() {
        assert!(newest_first(KernelVersion::V4_15) && !newest_first(KernelVersion::V5_18));
    }
}
