//! Stores to where memory tells, and what a program of them takes longer than predicted.
//!
//! `queue[tail[i]] = i` stores to an address that a load has to bring. A core that lets later loads pass a store whose
//! address it doesn't know yet (speculative store bypass) has as many lines under way there as in any code. One that
//! doesn't begins no load before the address has come, and each such line takes a whole latency.
//!
//! A recording does not say which stores' addresses memory tells. So a prediction has nothing of it, and its interval
//! reaches to where all misses in no order wait so.
//!
//! Worked example: of 10 s, misses in no order take 4, since they overlap; with a latency each they would take 32.
//! One line is under way where a store's address was loaded: with all of them so, the program takes 32 / 1 − 4 = 28 s
//! more. Upwards the interval has a part of ln (38 / 10) = 1.33, downwards none.
//!
//! Source: specs/load.md#told, docs/decisions/0031-caches-as-measured.md.

use crate::spread::Run;
use homenode_core::costs::{Cost, Origin};
use homenode_core::topology::Hardware;
use homenode_sim::{MissTime, Overlap};

/// What such stores take on a machine where loads wait for them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    /// Lines under way there, in thousandths.
    told: u64,
    /// The same with other updates.
    other: u64,
}

impl Told {
    /// `None` where it is not known, where such stores are hardly slower than others, and where each miss waits for
    /// the one before in any case.
    ///
    /// * `overlap` – as the program is replayed.
    pub(crate) fn of(machine: &Hardware, overlap: Option<Overlap>) -> Option<Self> {
        let known = |cost| machine.costs.0.get(&cost).filter(|c| c.origin != Origin::Assumed);
        let told = known(Cost::ToldStoreParallelism)?.value;
        let other = known(Cost::UpdateParallelism)?.value;
        // Less is not told apart from what the instructions more take.
        if told * 2 >= other {
            return None;
        }
        overlap?.random.iter().any(|lines| *lines > told).then_some(Self { told, other })
    }

    /// Picoseconds that a run would take longer if all its stores were such.
    pub(crate) fn more(&self, missed: &MissTime) -> f64 {
        (missed.alone as f64 * 1e3 / self.told as f64 - missed.overlapped as f64).max(0.0)
    }

    /// What of it shows in a replay, as a logarithm: what instructions were charged less for it on the unmodified
    /// machine is off. No more than the native time leaves: had all stores been such, and the program taken longer
    /// than it did, then not all are.
    ///
    /// * `before` – a round on the unmodified machine.
    pub(crate) fn part(&self, run: &Run, before: &Run) -> f64 {
        let [own, native] = [run, before].map(|r| self.more(&r.missed) / r.rounds.max(1.0));
        let most = if native > 0.0 { (before.seen() / native).min(1.0) } else { 1.0 };
        run.part((own - native * run.share(before)) * most)
    }

    /// What is said under a table.
    pub(crate) fn note(&self, machine: &Hardware) -> String {
        // Measured at home, the nearest memory.
        let nearest = machine.links.iter().map(|l| l.write_latency.value).min().unwrap_or(0);
        let [told, other] = [self.told, self.other].map(|n| nearest as f64 / n.max(1) as f64);
        format!(
            "on this machine loads wait for earlier stores whose address memory still has to tell ({other:.1} ns an \
             update, {told:.0} ns where the address was loaded): programs that store where memory tells are slower \
             than predicted, up to the interval's end"
        )
    }
}

/// A part of an interval that goes one way only, as logarithms downwards and upwards.
pub(crate) fn one_way(part: f64) -> (f64, f64) {
    ((-part).max(0.0), part.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::Predicted;
    use homenode_config::parse_machine;
    use homenode_core::costs::Constant;

    /// Eight lines under way of loads and of updates; so many thousandths of updates whose address is loaded.
    fn machine(told: u64) -> Hardware {
        let text = include_str!("../../../machines/small.toml");
        let mut m = parse_machine("small.toml", text).expect("it is shipped");
        for (cost, value) in [
            (Cost::MemoryParallelism, 8_000),
            (Cost::UpdateParallelism, 8_000),
            (Cost::ToldStoreParallelism, told),
        ] {
            let c = Constant { origin: Origin::Measured, ..Constant::assumed(value, "a test") };
            m.costs.0.insert(cost, c);
        }
        m.links.iter_mut().for_each(|l| l.write_latency.value = 112_000);
        m
    }
    fn told(machine: &Hardware) -> Option<Told> {
        Told::of(machine, Some(Overlap::of(machine)))
    }
    /// A round that takes so many seconds, of which some are instructions; misses in no order take others, and would
    /// take more, each for itself.
    fn run(ran: f64, computing: f64, overlapped: u64, alone: u64) -> Run {
        let (overlapped, alone) = (2 * overlapped, 2 * alone);
        let missed = MissTime { overlapped, alone, ..MissTime::default() };
        Run { ran, computing, missed, rounds: 2.0 }
    }

    #[test]
    fn the_worked_example_goes_upwards_only() {
        let missed = MissTime { overlapped: 4, alone: 32, ..MissTime::default() };
        let more = told(&machine(1_000)).expect("loads wait").more(&missed);
        assert_eq!(more, 28.0);
        let p = Predicted::of(10.0, &[one_way((more / 10.0f64).ln_1p())]);
        assert!((p.high - 38.0).abs() < 1e-9 && p.low == 10.0 && p.time == 10.0, "{p:?}");
        // With two lines under way half of it; where the window leaves no more than two anyway, nothing.
        let two = told(&machine(2_000)).expect("loads wait");
        assert_eq!(two.more(&missed), 12.0);
        assert_eq!(two.more(&MissTime { overlapped: 20, ..missed }), 0.0);
    }

    #[test]
    fn a_replay_has_what_its_calibration_leaves() {
        let told = told(&machine(1_000)).expect("loads wait");
        // Native 50 s: 4 for misses, the rest instructions. All told, 28 of these are misses too.
        let before = run(50.0, 46.0, 4, 32);
        assert_eq!(
            told.part(&before, &before),
            0.0,
            "the unmodified machine takes its native time"
        );
        // Memory that takes twice as long: 4 more as predicted, and 28 on top if all stores are told.
        let slow = run(54.0, 46.0, 8, 64);
        let part = told.part(&slow, &before);
        assert!((part - (82.0f64 / 54.0).ln()).abs() < 1e-9, "{part}");
        assert_eq!(one_way(part).0, 0.0);
        // Of a native time that leaves 7 s for instructions, a quarter of the stores at most is told.
        let fast = run(11.0, 7.0, 4, 32);
        let part = told.part(&run(15.0, 7.0, 8, 64), &fast);
        assert!((part - (22.0f64 / 15.0).ln()).abs() < 1e-9, "{part}");
        // Memory that takes half as long: of 28 s that were instructions 14 go with it.
        let part = told.part(&run(48.0, 46.0, 2, 16), &before);
        assert!((part - (34.0f64 / 48.0).ln()).abs() < 1e-9, "{part}");
        assert_eq!(one_way(part).1, 0.0);
    }

    #[test]
    fn nothing_is_added_where_loads_pass_such_stores_or_wait_anyway() {
        assert!(told(&machine(1_000)).is_some() && told(&machine(3_900)).is_some());
        // About as many lines as with other updates.
        assert_eq!(told(&machine(8_000)), None);
        assert_eq!(told(&machine(4_000)), None);
        // As along pointers (--mlp 1); where three are under way, those wait.
        let here = machine(1_000);
        let at_most = |lines| Told::of(&here, Some(Overlap::of(&here).at_most(lines)));
        assert_eq!(at_most(1), None);
        assert_eq!(at_most(3), told(&here));
        // Of files of before nobody knows.
        assert_eq!(Told::of(&here, None), None);
        let mut silent = machine(1_000);
        silent.costs.0.remove(&Cost::ToldStoreParallelism);
        assert_eq!(told(&silent), None);
        let assumed = Constant::assumed(1_000, "a test");
        silent.costs.0.insert(Cost::ToldStoreParallelism, assumed);
        assert_eq!(told(&silent), None);
    }

    #[test]
    fn a_note_has_both_times() {
        let here = machine(1_000);
        let note = told(&here).expect("loads wait").note(&here);
        assert!(note.contains("14.0 ns an update, 112 ns where the address was loaded"), "{note}");
    }
}
