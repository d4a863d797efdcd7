//! Tasks of a replay that compute for as long as they wait.

use super::replay::{CIRCLE, MS, charge, microseconds, plain, recording};
use super::support::{dram, machine};
use crate::build::Setup;
use crate::replay::{After, Charge, Op, Rounds, Stuck, Waited};
use crate::simulation::Simulation;
use homenode_core::topology::Hardware;
use homenode_core::units::CpuId;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const fn point(number: u32) -> Op {
    Op::Point { number }
}

/// A recording of which tasks spin in front of some points, and what is left out before them.
struct Spinning<'a> {
    rows: &'a [(u32, u64, Op)],
    after: &'a [After],
    busy: &'a [(u32, bool)],
    left_out: &'a [(u32, u64)],
}

impl Spinning<'_> {
    fn begin(&self, m: &Hardware, cpus: &[u32]) -> Simulation {
        let mut r = Arc::unwrap_or_clone(recording(self.rows));
        let left_out: BTreeMap<u32, u64> = self.left_out.iter().copied().collect();
        r.spins(&left_out, self.busy.iter().copied().collect());
        r.order(self.after.to_vec());
        let cpus = cpus.iter().map(|&c| CpuId(c)).collect();
        let charge = Charge { cpus, ..charge(Rounds::Count(1)) };
        Simulation::replay(m, &Setup::default(), &Arc::new(r), "job", &charge).expect("it fits")
    }
    /// When the round ends, what all tasks have run, in whole microseconds, and how they waited.
    fn run(&self, cpus: &[u32]) -> (u64, u64, Waited) {
        let mut s = self.begin(&plain(), cpus);
        s.run();
        let ran: u64 = s.processes().iter().map(|p| p.ran_ps).sum();
        (microseconds(&s)[0], ran / 1_000_000, s.waited())
    }
}

/// Task 1 raises a flag after 3 ms, for which task 0 has looked since 1 ms. When it was recorded
/// it did so for 9 ms.
const FLAG: Spinning<'_> = Spinning {
    rows: &[
        (0, 0, Op::Thread { child: 1 }),
        (0, 10 * MS, point(0)),
        (0, MS, Op::Exit),
        (1, 3 * MS, point(1)),
        (1, 0, Op::Exit),
    ],
    after: &[After::Point(1), After::Nothing],
    busy: &[(0, false)],
    left_out: &[(0, 9 * MS)],
};

#[test]
fn who_spins_computes_until_the_other_has_come() {
    let (end, ran, waited) = FLAG.run(&[]);
    assert_eq!((end, ran), (4000, 3000 + 4000));
    assert_eq!((waited.others, waited.spun), (2_000_000_000, 2_000_000_000));
    // A flag that is there already is waited for by nobody.
    let rows = [FLAG.rows[0], (0, 14 * MS, point(0)), FLAG.rows[2], FLAG.rows[3], FLAG.rows[4]];
    let (end, ran, waited) = Spinning { rows: &rows, ..FLAG }.run(&[]);
    assert_eq!((end, ran, waited), (6000, 6000 + 3000, Waited::default()));
}

/// On one CPU who spins has it until its slice is over; so it is with Linux.
#[test]
fn on_one_cpu_who_spins_is_in_the_way() {
    let (end, ran, waited) = FLAG.run(&[0]);
    assert_eq!(ran, end, "the CPU is never idle");
    assert!((7000..16_000).contains(&end) && waited.spun > 3_000_000_000, "{end} {waited:?}");
    // Who gives the CPU away is not.
    let gives = Spinning { busy: &[(0, true)], ..FLAG };
    let (end, ran, waited) = gives.run(&[0]);
    assert_eq!(ran, end);
    assert!((5000..5100).contains(&end) && waited.spun <= 3_100_000_000, "{end} {waited:?}");
}

/// Task 0 has the lock from 1 to 4 ms, and task 1 wants it at 2 ms for 1 ms.
const LOCK: Spinning<'_> = Spinning {
    rows: &[
        (0, 0, Op::Thread { child: 1 }),
        (0, MS, point(0)),
        (0, 3 * MS, point(1)),
        (0, 0, Op::Exit),
        (1, 2 * MS, point(2)),
        (1, MS, point(3)),
        (1, 0, Op::Exit),
    ],
    after: &[After::Lock(7, 1), After::Nothing, After::Lock(7, 3), After::Nothing],
    busy: &[(0, false), (2, false)],
    left_out: &[],
};

#[test]
fn a_lock_that_is_spun_for_goes_to_who_comes_first() {
    let (end, ran, waited) = LOCK.run(&[]);
    assert_eq!((end, ran), (5000, 4000 + 5000));
    assert_eq!((waited.locks, waited.spun), (2_000_000_000, 2_000_000_000));
}

/// Task 0 has the lock and looks for what task 1 does after it has had the lock.
#[test]
fn a_circle_through_a_lock_that_is_spun_for_opens() {
    let lock = Spinning {
        rows: &CIRCLE.0,
        after: &CIRCLE.1,
        busy: &[(0, false), (1, false), (3, false)],
        left_out: &[],
    };
    let (end, _, waited) = lock.run(&[]);
    assert_eq!((end, waited.without), (2000, 1));
}

#[test]
fn who_spins_for_what_never_comes_is_named() {
    // Task 1 has ended without coming to point 1.
    let rows = [FLAG.rows[0], FLAG.rows[1], FLAG.rows[2], FLAG.rows[4]];
    let mut s = Spinning { rows: &rows, ..FLAG }.begin(&plain(), &[]);
    s.run_until(50_000_000_000);
    assert_eq!(s.stuck(), [(0, Stuck::Point(1))]);
}

#[test]
fn what_is_left_out_may_be_more_than_a_row_holds() {
    let much = 3u64 << 32;
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, 5 * MS, Op::Wait { child: None }),
        (0, much + MS, point(0)),
        (1, 3 * MS, point(1)),
    ];
    let mut s = Spinning { rows: &rows, left_out: &[(0, much)], ..FLAG };
    assert_eq!(s.run(&[]).0, 6000);
    // No more is left out than there is before the point.
    s.left_out = &[(0, u64::MAX)];
    assert_eq!(s.run(&[]).0, 5000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Threads that raise flags and look for those of others come to their ends, spinning or
    /// asleep, on one CPU and on four; whoever spins pays for it and for nothing else, and on as many CPUs as
    /// there are threads all go on at the same times in either way.
    #[test]
    fn threads_that_spin_go_on_when_those_that_sleep_do(
        steps in prop::collection::vec((0u32..4, 1u64..400, any::<bool>(), 0usize..64), 1..60),
        yields in any::<bool>(),
    ) {
        let mut rows: Vec<(u32, u64, Op)> =
            (1..4).map(|child| (0, 0, Op::Thread { child })).collect();
        let (mut after, mut busy, mut all) = (Vec::new(), Vec::new(), 0);
        for (n, (task, us, waits, by)) in (0..).zip(steps) {
            all += us;
            rows.push((task, us * MS / 1000, point(n)));
            let by = (n > 0).then(|| by as u32 % n);
            match by.filter(|_| waits) {
                Some(by) => {
                    after.push(After::Point(by));
                    busy.push((n, yields));
                }
                None => after.push(After::Nothing),
            }
        }
        let mut m = machine(&[dram(8192, 4)]);
        m.costs = plain().costs;
        let run = |busy: &[(u32, bool)], cpus: &[u32]| {
            let mut s = Spinning { rows: &rows, after: &after, busy, left_out: &[] }.begin(&m, cpus);
            // At no moment do they stand still.
            while !s.idle() {
                s.run_until(s.now() + 50_000_000);
                assert!(s.idle() || s.stuck().is_empty(), "{:?}", s.stuck());
            }
            let ran: u64 = s.processes().iter().map(|p| p.ran_ps).sum();
            (s.round_ends()[0] / 1_000_000, ran / 1_000_000, s.waited().spun / 1_000_000)
        };
        let (asleep, ran, _) = run(&[], &[]);
        prop_assert_eq!(ran, all);
        let (spinning, ran, spun) = run(&busy, &[]);
        prop_assert!(spinning.abs_diff(asleep) <= 1, "{} us, {} us", spinning, asleep);
        prop_assert!(ran.abs_diff(all + spun) <= 1, "{} us, {} + {} us", ran, all, spun);
        let (end, ran, _) = run(&busy, &[0]);
        prop_assert!(end >= all && ran == end, "{} us, {} us", end, ran);
    }
}
