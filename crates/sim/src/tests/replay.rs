//! Replay of recordings made by hand, with charges computed by hand.
//!
//! One DRAM node of 100 ns with a parallelism of 4 and 0.25 ns an instruction: 8
//! misses take 200 ns, 1,000 instructions 250 ns. A first touch takes 500 ns.

use super::support::{cxl, dram, machine};
use crate::build::Setup;
use crate::check::Checker;
use crate::replay::{After, Charge, Count, Op, Recording, Rounds, START, Stuck, Waited};
use crate::ring::Pmu;
use crate::simulation::Simulation;
use crate::vmstat::Item;
use crate::{Overlap, Score, Slice};
use homenode_core::costs::{Constant, Cost};
use homenode_core::scenario::{CpuOrder, Mempolicy};
use homenode_core::topology::Hardware;
use homenode_core::units::{CpuId, Picos};
use proptest::prelude::*;
use std::sync::Arc;

const NS: u64 = 1000;
/// What a system call on mappings takes.
const CALL: u64 = 1000 * NS;
const FAULT: u64 = 500 * NS;
/// Looking at an entry.
const ENTRY: u64 = 10 * NS;
const PAGE: u64 = 0x10_0000;

pub(super) fn plain() -> Hardware {
    let mut m = machine(&[dram(8192, 2)]);
    // So fast a memory that load never shows in these few accesses.
    for l in &mut m.links {
        l.read_bandwidth.value = 1_000_000_000;
        l.write_bandwidth.value = 1_000_000_000;
    }
    m.costs.0.insert(Cost::MemoryParallelism, Constant::assumed(4000, "a round figure"));
    waking(&mut m, [0, 0, 0]);
    m
}

/// A wake-up on an idle CPU takes 5 µs, after 1 ms 50 µs; so much of that is the task's, in
/// thousandths. With plain machines it takes nothing.
fn waking(m: &mut Hardware, [idle, deep, charged]: [u64; 3]) {
    for (key, value) in [
        (Cost::WakeIdle, idle),
        (Cost::WakeDeep, deep),
        (Cost::DeepAfter, 1_000_000 * NS),
        (Cost::WakeCharged, charged),
    ] {
        m.costs.0.insert(key, Constant::assumed(value, "a round figure"));
    }
}

pub(super) fn recording(rows: &[(u32, u64, Op)]) -> Arc<Recording> {
    let tasks = rows.iter().map(|r| r.0 + 1).max().unwrap_or(1);
    let mut r = Recording::new(tasks as usize);
    for &(task, insns, op) in rows {
        r.push(task, insns, op);
    }
    Arc::new(r)
}

/// 0.25 ns an instruction; misses overlap as many as the machine has under way.
pub(super) fn charge(rounds: Rounds) -> Charge {
    Charge {
        as_per_insn: 250_000_000,
        own_as_per_insn: Arc::default(),
        rounds,
        policy: Mempolicy::Default,
        overlap: None,
        cpus: Vec::new(),
    }
}

fn run_on(m: &Hardware, rows: &[(u32, u64, Op)], rounds: Rounds) -> Simulation {
    run_recording(m, &recording(rows), rounds)
}
fn run_recording(m: &Hardware, recording: &Arc<Recording>, rounds: Rounds) -> Simulation {
    let (setup, charge) = (Setup::default(), charge(rounds));
    let mut s = Simulation::replay(m, &setup, recording, "job", &charge).expect("it fits");
    let checker = Checker::watch(&mut s);
    checker.run(&mut s, 3_600_000_000_000_000, 1_000_000_000).expect("nothing is wrong");
    assert!(s.idle(), "it ends");
    s
}
fn run(rows: &[(u32, u64, Op)], rounds: u64) -> Simulation {
    run_on(&plain(), rows, Rounds::Count(rounds))
}

fn map(page: u64, pages: u64) -> Op {
    Op::Map { page, pages, prot: [true, true, false], file: false, shared: false }
}
fn read(page: u64, reads: u32) -> Op {
    Op::Access { page, reads, writes: 0, write: false, stream: false }
}
fn write(page: u64, writes: u32) -> Op {
    Op::Access { page, reads: 0, writes, write: true, stream: false }
}

#[test]
fn compute_and_misses_are_charged() {
    let rows = [(0, 0, map(PAGE, 4)), (0, 1000, read(PAGE, 8)), (0, 400, read(PAGE, 4))];
    let s = run(&rows, 1);
    let want = CALL + 250 * NS + FAULT + 200 * NS + 100 * NS + 100 * NS;
    assert_eq!(s.round_ends(), [want]);
    assert_eq!(s.processes()[0].ran_ps, want);
    assert_eq!(s.processes()[0].accesses, [[12, 0]]);
    assert_eq!(s.traffic(), [[12 * 64, 0]]);
}

#[test]
fn a_slower_cpu_computes_longer_and_misses_as_ever() {
    let rows = [(0, 0, map(PAGE, 4)), (0, 1000, read(PAGE, 8)), (0, 400, read(PAGE, 4))];
    let end = |capacity, quantum: CpuOrder| {
        let mut m = plain();
        m.cpus[0].capacity = capacity;
        let mut setup = Setup::default();
        setup.model.order = quantum;
        let charge = charge(Rounds::Count(1));
        let mut s =
            Simulation::replay(&m, &setup, &recording(&rows), "job", &charge).expect("it fits");
        s.run();
        s.round_ends()[0]
    };
    let quick = CALL + FAULT + 300 * NS;
    // 350 ns at full speed; interrupted every 7 ns nothing is rounded in between.
    for (capacity, computing) in [(1024, 350_000), (512, 700_000), (333, 768_769 + 307_508)] {
        for order in [CpuOrder::Strict, CpuOrder::Quantum(Picos(7 * NS))] {
            assert_eq!(end(capacity, order), quick + computing, "{capacity} {order:?}");
        }
    }
}

/// 250 instructions in the window, 4 lines under way, 8 of a stream.
#[test]
fn misses_overlap_by_their_distance() {
    let overlap = Overlap { window: 250, random: [4000; 2], stream: [8000; 2] };
    let stream = |page, reads| Op::Access { page, reads, writes: 0, write: false, stream: true };
    let rows = [
        (0, 0, map(PAGE, 4)),
        // 125 instructions apart: half a latency each; a window's 62.5 ns hide behind them.
        (0, 1000, read(PAGE, 8)),
        // 10 apart: 4 at once; 20 ns of computing hide.
        (0, 80, read(PAGE, 8)),
        // Alone: a whole latency, less a window's computing.
        (0, 1000, read(PAGE, 1)),
        // A stream's lines take 100 ns, and so does computing, behind it.
        (0, 400, stream(PAGE, 8)),
    ];
    let end = |overlap| {
        let charge = Charge { overlap: Some(overlap), ..charge(Rounds::Count(1)) };
        let mut s =
            Simulation::replay(&plain(), &Setup::default(), &recording(&rows), "job", &charge)
                .expect("it fits");
        s.run();
        s.round_ends()[0]
    };
    let far = 250 * NS + 8 * 50 * NS - 62_500;
    let alone = 250 * NS + 100 * NS - 62_500;
    assert_eq!(end(overlap), CALL + FAULT + far + 200 * NS + alone + 100 * NS);
    // Each waits for the one before.
    let computing = (1000 + 80 + 1000 + 400) * NS / 4;
    assert_eq!(end(Overlap::chain()), CALL + FAULT + computing + 25 * 100 * NS);
}

#[test]
fn later_rounds_find_their_memory() {
    let rows = [(0, 0, map(PAGE, 4)), (0, 1000, write(PAGE, 8)), (0, 4000, Op::Exit)];
    let s = run(&rows, 3);
    let round = 250 * NS + 200 * NS + 1000 * NS;
    let first = CALL + FAULT + round;
    assert_eq!(s.round_ends(), [first, first + round, first + 2 * round]);
    assert_eq!(s.vmstat().get(Item::Pgfault), 1);
}

#[test]
fn until_ends_with_the_round_that_reaches_it() {
    let rows = [(0, 4000, Op::Wait { child: None })];
    let s = run_on(&plain(), &rows, Rounds::Until(4_500 * NS));
    assert_eq!(s.rounds(), (5, 5_000 * NS));
}

#[test]
fn what_nothing_maps_is_mapped_around() {
    let s = run(&[(0, 0, read(PAGE + 3, 4))], 1);
    assert_eq!(s.round_ends(), [CALL + FAULT + 100 * NS]);
    let killed = s.processes()[0].killed.clone();
    assert_eq!(killed, None);
}

#[test]
fn many_misses_of_one_row_are_all_charged() {
    let s = run(&[(0, 0, map(PAGE, 1)), (0, 0, write(PAGE, 200_000))], 1);
    assert_eq!(s.round_ends(), [CALL + FAULT + 200_000 * 100 * NS / 4]);
    assert_eq!(s.processes()[0].accesses, [[0, 200_000]]);
    // Written lines are read first.
    assert_eq!(s.traffic(), [[200_000 * 64, 200_000 * 64]]);
}

#[test]
fn long_computing_is_charged_whole() {
    let insns = 3 * (1 << 32) + 12_345;
    let s = run(&[(0, insns, read(PAGE, 0))], 1);
    // Nothing is truncated per part: 2^32 − 1 instructions at 0.25 ns are whole picoseconds.
    assert_eq!(s.round_ends(), [insns * 250 + CALL + FAULT]);
}

#[test]
fn remap_takes_the_pages_along() {
    let to = PAGE + 1024;
    let rows = [
        (0, 0, map(PAGE, 4)),
        (0, 0, write(PAGE, 4)),
        (0, 0, Op::Remap { page: PAGE, pages: 4, to }),
        (0, 0, read(to, 4)),
    ];
    let s = run(&rows, 1);
    assert_eq!(s.round_ends(), [CALL + FAULT + 100 * NS + CALL + 4 * ENTRY + 100 * NS]);
    assert_eq!(s.vmstat().get(Item::Pgfault), 1);
}

#[test]
fn discarded_pages_are_touched_anew() {
    let rows = [
        (0, 0, map(PAGE, 4)),
        (0, 0, write(PAGE, 4)),
        (0, 0, write(PAGE + 1, 4)),
        (0, 0, Op::Discard { page: PAGE, pages: 1 }),
        (0, 0, write(PAGE, 4)),
        (0, 0, write(PAGE + 1, 4)),
    ];
    let s = run(&rows, 1);
    assert_eq!(s.round_ends(), [CALL + 3 * FAULT + 4 * 100 * NS + CALL + ENTRY]);
}

#[test]
fn a_parent_waits_for_its_child() {
    let rows = [
        (0, 0, map(PAGE, 4)),
        (0, 0, write(PAGE, 4)),
        (0, 0, Op::Fork { child: 1 }),
        (0, 0, Op::Wait { child: Some(1) }),
        (0, 400, read(PAGE, 4)),
        (1, 4_000_000, read(PAGE, 4)),
        (1, 0, Op::Exit),
    ];
    let s = run(&rows, 1);
    // Fork looks at one entry; the child computes 1 ms and reads what it shares.
    let fork = CALL + FAULT + 100 * NS + ENTRY;
    let child = fork + 1_000_000 * NS + 100 * NS;
    // A child on another CPU begins with the quantum after the one of its fork.
    let end = s.round_ends()[0];
    let want = child + 200 * NS;
    assert!((want..want + 20_000 * NS).contains(&end), "{end}, without rounding {want}");
    assert_eq!(s.processes()[0].accesses, [[8, 4]]);
    assert_eq!(s.vmstat().get(Item::Pgfault), 1);
}

#[test]
fn a_write_after_fork_copies() {
    let rows = [
        (0, 0, map(PAGE, 4)),
        (0, 0, write(PAGE, 4)),
        (0, 0, Op::Fork { child: 1 }),
        (0, 0, Op::Wait { child: Some(1) }),
        (1, 0, write(PAGE, 4)),
    ];
    let s = run(&rows, 1);
    assert_eq!(s.vmstat().get(Item::Pgalloc), 2);
    assert_eq!(s.vmstat().get(Item::Pgfault), 2);
}

#[test]
fn a_thread_shares_the_memory() {
    let rows = [
        (0, 0, map(PAGE, 4)),
        (0, 0, write(PAGE, 4)),
        (0, 0, Op::Thread { child: 1 }),
        (0, 0, Op::Wait { child: Some(1) }),
        (0, 0, write(PAGE, 4)),
        (1, 4000, write(PAGE, 4)),
        (1, 0, write(PAGE + 1, 4)),
    ];
    let s = run(&rows, 2);
    assert_eq!(s.vmstat().get(Item::Pgfault), 2, "also in the second round");
    assert_eq!(s.processes()[0].accesses, [[0, 32]]);
    assert_eq!(s.rounds().0, 2);
}

/// Runs it with points of order: what each waits for, by its number.
fn run_in_order(rows: &[(u32, u64, Op)], after: &[After], rounds: u64) -> Simulation {
    let mut r = Arc::unwrap_or_clone(recording(rows));
    r.order(after.to_vec());
    run_recording(&plain(), &Arc::new(r), Rounds::Count(rounds))
}
/// When rounds end, in whole microseconds since the last one did.
pub(super) fn microseconds(s: &Simulation) -> Vec<u64> {
    let ends = s.round_ends();
    let before = [0].into_iter().chain(ends.iter().copied());
    ends.iter().zip(before).map(|(end, before)| (end - before) / NS / 1000).collect()
}
pub(super) const MS: u64 = 4_000_000;

#[test]
fn a_task_goes_on_when_what_it_waited_for_has_happened() {
    let point = |number| Op::Point { number };
    // Task 1 computes 3 ms and releases; task 0 waits, and then computes 2 ms.
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, MS, point(0)),
        (0, 2 * MS, Op::Exit),
        (1, 3 * MS, point(1)),
        (1, MS, Op::Exit),
    ];
    let s = run_in_order(&rows, &[After::Point(1), After::Nothing], 3);
    assert_eq!(microseconds(&s), [5000, 5000, 5000]);
    // It does not where nobody waits: then task 1 is the last.
    let s = run_in_order(&rows, &[], 1);
    assert_eq!(microseconds(&s), [4000]);
}

/// Microseconds that a round takes where wake-ups take time, and processor time in them.
fn with_wake_ups(rows: &[(u32, u64, Op)], after: &[After], charged: u64, cpus: &[u32]) -> [u64; 3] {
    let mut m = plain();
    waking(&mut m, [5_000 * NS, 50_000 * NS, charged]);
    let mut r = Arc::unwrap_or_clone(recording(rows));
    r.order(after.to_vec());
    let charge =
        Charge { cpus: cpus.iter().map(|&c| CpuId(c)).collect(), ..charge(Rounds::Count(1)) };
    let mut s =
        Simulation::replay(&m, &Setup::default(), &Arc::new(r), "job", &charge).expect("it fits");
    s.run();
    let ran: u64 = s.processes().iter().map(|p| p.ran_ps).sum();
    [microseconds(&s)[0], ran / NS / 1000, s.voluntary_switches()]
}

#[test]
fn an_idle_cpu_takes_its_time_to_wake() {
    let point = |number| Op::Point { number };
    // The second CPU is idle for 3 ms, and then the first one for half a millisecond.
    let rows = [
        (0, 3 * MS, Op::Thread { child: 1 }),
        (0, 0, point(0)),
        (0, MS, Op::Exit),
        (1, MS / 2, point(1)),
        (1, MS / 2, Op::Exit),
    ];
    let after = [After::Point(1), After::Nothing];
    let long = 3000 + 50 + 500 + 5 + 1000;
    assert_eq!(with_wake_ups(&rows, &after, 0, &[]), [long, 5000, 1]);
    // Whose time it is changes nothing on the clock.
    assert_eq!(with_wake_ups(&rows, &after, 1000, &[]), [long, 5055, 1]);
    // A timer has to wake a CPU too.
    let rows = [(0, MS, point(0)), (0, MS, Op::Exit)];
    let slept = [After::Time(Picos::from_ms(20))];
    assert_eq!(with_wake_ups(&rows, &slept, 200, &[]), [22_050, 2010, 1]);
}

#[test]
fn a_busy_cpu_has_no_idle_state_to_leave() {
    // The thread's end wakes the first task on the CPU that it leaves.
    let rows = [
        (0, MS / 10, Op::Thread { child: 1 }),
        (0, 0, Op::Wait { child: Some(1) }),
        (0, MS, Op::Exit),
        (1, MS, Op::Exit),
    ];
    assert_eq!(with_wake_ups(&rows, &[], 1000, &[0]), [2100, 2100, 1]);
    // It takes over the second thread from the first CPU when its own has nothing to do.
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, 0, Op::Thread { child: 2 }),
        (0, 10 * MS, Op::Exit),
        (1, MS, Op::Exit),
        (2, 10 * MS, Op::Exit),
    ];
    let [_, ran, _] = with_wake_ups(&rows, &[], 1000, &[]);
    // What is left is the first task, whose CPU was idle for 1 ms when its round ended.
    assert_eq!(ran, 21_000 + 5);
}

#[test]
fn who_comes_late_does_not_wait() {
    let point = |number| Op::Point { number };
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, 7 * MS, point(0)),
        (0, MS, Op::Exit),
        (1, 3 * MS, point(1)),
    ];
    let s = run_in_order(&rows, &[After::Point(1), After::Nothing], 2);
    assert_eq!(microseconds(&s), [8000, 8000], "and in the next round it is not forgotten");
}

#[test]
fn a_sleep_takes_its_time_and_no_processors() {
    let rows = [(0, MS, Op::Point { number: 0 }), (0, MS, Op::Exit)];
    let s = run_in_order(&rows, &[After::Time(Picos::from_ms(20))], 1);
    assert_eq!(microseconds(&s), [22_000]);
    let ran: u64 = s.processes().iter().map(|p| p.ran_ps).sum();
    assert_eq!(ran / NS / 1000, 2000);
}

#[test]
fn a_wait_of_limited_time_ends_by_what_comes_first() {
    let point = |number| Op::Point { number };
    // Task 1 releases after 3 ms; task 0 waits for that up to 2 ms, and again.
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, 0, point(0)),
        (0, 0, point(1)),
        (0, 0, point(2)),
        (0, 4 * MS, Op::Exit),
        (1, 3 * MS, point(3)),
    ];
    let ms = Picos::from_ms;
    let tries = |t| [After::Until(3, t), After::Until(3, t), After::Until(3, t), After::Nothing];
    assert_eq!(microseconds(&run_in_order(&rows, &tries(ms(2)), 2)), [7000, 7000]);
    assert_eq!(microseconds(&run_in_order(&rows, &tries(ms(1)), 2)), [7000, 7000]);
    let tries = [After::Until(3, ms(1)), After::Nothing, After::Nothing, After::Nothing];
    assert_eq!(microseconds(&run_in_order(&rows, &tries, 2)), [5000, 5000]);
}

#[test]
fn a_deadline_counts_from_a_point_that_the_task_has_passed() {
    let point = |number| Op::Point { number };
    let ms = Picos::from_ms;
    // Rounds of 10 ms, of which 4 ms are computed; the second is too long.
    let rows = [
        (0, MS, point(0)),
        (0, 4 * MS, point(1)),
        (0, 0, point(2)),
        (0, 12 * MS, point(3)),
        (0, 0, point(4)),
        (0, 4 * MS, point(5)),
        (0, 0, point(6)),
        (0, 0, Op::Exit),
    ];
    let due = |t| After::Due(0, ms(t));
    let sleep = After::Time(Picos(0));
    let after = [After::Nothing, due(10), sleep, due(20), sleep, due(30), sleep];
    let s = run_in_order(&rows, &after, 2);
    assert_eq!(microseconds(&s), [1000 + 10_000 + 12_000 + 9_000 - 1_000; 2]);
    // From the beginning of each round.
    let after = [After::Nothing, After::Due(START, ms(10)), sleep];
    assert_eq!(microseconds(&run_in_order(&rows[..3], &after, 3)), [10_000; 3]);
    // A time that is long over.
    let after = [After::Nothing, After::Due(0, ms(2)), After::Time(ms(100))];
    assert_eq!(microseconds(&run_in_order(&rows[..3], &after, 2)), [5000; 2]);
}

#[test]
fn who_is_not_released_by_its_deadline_wakes_up_and_waits_again() {
    let point = |number| Op::Point { number };
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, 0, point(0)),
        (0, 0, point(1)),
        (0, MS, Op::Exit),
        (1, 7 * MS, point(2)),
    ];
    let after = |span| [After::Due(0, span), After::Point(2), After::Nothing];
    let s = run_in_order(&rows, &after(Picos::from_ms(2)), 2);
    assert_eq!(microseconds(&s), [8000, 8000]);
    // At 2, 4 and 6 ms, in each round.
    assert_eq!(s.waited().in_vain, 6);
    let s = run_in_order(&rows, &after(Picos::from_ms(8)), 2);
    assert_eq!((microseconds(&s), s.waited().in_vain), (vec![8000, 8000], 0));
    // In vain for ever: the other never comes to it, and that is seen.
    let after = [After::Due(0, Picos::from_ms(2)), After::Point(2), After::Point(3)];
    let mut r = Arc::unwrap_or_clone(recording(&rows));
    r.order(after.to_vec());
    let charge = charge(Rounds::Count(1));
    let mut s = Simulation::replay(&plain(), &Setup::default(), &Arc::new(r), "job", &charge)
        .expect("it fits");
    s.run_until(Picos::from_ms(99).0);
    assert_eq!(s.stuck(), [(0, Stuck::Point(2)), (1, Stuck::Point(3))]);
}

/// Three tasks meet twice. Who comes last is another than when it was recorded: then task 1 came
/// last to the first meeting, and task 0 to the second.
#[test]
fn who_comes_last_to_a_meeting_lets_the_others_go_on() {
    let point = |number| Op::Point { number };
    let times = |each: [[u64; 2]; 3]| {
        let mut rows = vec![(0, 0, Op::Thread { child: 1 }), (0, 0, Op::Thread { child: 2 })];
        for (task, [one, two]) in (0..).zip(each) {
            rows.push((task, one * MS, point(2 * task)));
            rows.push((task, two * MS, point(2 * task + 1)));
            rows.push((task, 0, Op::Exit));
        }
        let after: Vec<After> = (0..6).map(|n| After::Meet(n % 2)).collect();
        let mut r = Arc::unwrap_or_clone(recording(&rows));
        r.order(after);
        // A CPU for each.
        let mut m = machine(&[dram(8192, 4)]);
        waking(&mut m, [0, 0, 0]);
        let s = run_recording(&m, &Arc::new(r), Rounds::Count(2));
        let ends: Vec<u64> = s.spans().values().map(|s| s.1 / NS / 1000 / 100).collect();
        (microseconds(&s).iter().map(|us| us / 100).collect::<Vec<_>>(), ends)
    };
    assert_eq!(times([[2, 5], [9, 1], [4, 4]]), (vec![140; 2], vec![140; 3]));
    assert_eq!(times([[9, 1], [2, 2], [2, 7]]), (vec![160; 2], vec![160; 3]));
}

/// One of those who meet is killed before it comes: nobody waits for it.
#[test]
fn who_is_killed_is_not_waited_for_at_a_meeting() {
    let point = |number| Op::Point { number };
    let rows = [
        (0, 0, Op::Fork { child: 1 }),
        (0, MS, point(0)),
        (0, MS, point(1)),
        (0, 0, Op::Exit),
        (1, 30 * MS, point(2)),
        (1, 0, point(3)),
        (1, 0, Op::Killed),
    ];
    let after = [After::Nothing, After::Meet(0), After::Meet(0), After::Point(0)];
    let s = run_in_order(&rows, &after, 2);
    assert!(microseconds(&s).iter().all(|us| (2000..7000).contains(us)), "{:?}", microseconds(&s));
}

#[test]
fn a_cpu_with_nothing_to_do_takes_over_who_waits() {
    // Of two CPUs the second is idle after 1 ms, and two tasks share the first.
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, 0, Op::Thread { child: 2 }),
        (0, 10 * MS, Op::Exit),
        (1, MS, Op::Exit),
        (2, 10 * MS, Op::Exit),
    ];
    let ends = microseconds(&run(&rows, 1));
    assert!((11_000..11_100).contains(&ends[0]), "{ends:?}");
}

/// Task 0 waits for its turn for 3 ms, and then until task 1 is through.
#[test]
fn waiting_for_a_turn_is_told_apart() {
    let point = |number| Op::Point { number };
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, 0, point(0)),
        (0, 0, point(1)),
        (0, 0, Op::Exit),
        (1, 3 * MS, point(2)),
        (1, 2 * MS, point(3)),
    ];
    let after = [After::Turn(2), After::Point(3), After::Nothing, After::Nothing];
    let s = run_in_order(&rows, &after, 2);
    assert_eq!(microseconds(&s), [5000, 5000]);
    let Waited { others, turns, locks, without, .. } = s.waited();
    assert_eq!((others / 1_000_000, turns / 1_000_000), (4000, 6000));
    assert_eq!((locks, without), (0, 0));
}

/// Task 0 has the lock from 1 to 4 ms, and task 1 wants it at 2 ms for 1 ms: whoever had it
/// first when it was recorded.
#[test]
fn a_lock_goes_to_who_comes_first() {
    let point = |number| Op::Point { number };
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, MS, point(0)),
        (0, 3 * MS, point(1)),
        (0, 0, Op::Exit),
        (1, 2 * MS, point(2)),
        (1, MS, point(3)),
    ];
    let after = [After::Lock(7, 1), After::Nothing, After::Lock(7, 3), After::Nothing];
    let s = run_in_order(&rows, &after, 2);
    assert_eq!(microseconds(&s), [5000, 5000]);
    let Waited { others, turns, locks, without, .. } = s.waited();
    assert_eq!((others, turns, locks / 1_000_000, without), (0, 0, 4000, 0));
    // Two locks hold nobody up.
    let after = [After::Lock(7, 1), After::Nothing, After::Lock(8, 3), After::Nothing];
    let s = run_in_order(&rows, &after, 2);
    assert_eq!((microseconds(&s), s.waited()), (vec![4000, 4000], Waited::default()));
}

/// Who has just given a lock back may take it again before who was woken has come.
/// What a call that wakes another takes depends on where that one is: on another CPU that is
/// idle, or behind who wakes it.
#[test]
fn who_wakes_another_pays_for_it() {
    let point = |number| Op::Point { number };
    let mut m = plain();
    for (key, us) in [(Cost::WakeCall, 9), (Cost::WakeUp, 2)] {
        m.costs.0.insert(key, Constant::assumed(us * 1000 * NS, "a round figure"));
    }
    // Task 1 releases task 0 after 1 ms, and again after 1 ms more.
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, 0, point(0)),
        (0, 0, point(1)),
        (0, 0, Op::Exit),
        (1, MS, point(2)),
        (1, MS, point(3)),
        (1, MS, Op::Exit),
    ];
    let mut r = Arc::unwrap_or_clone(recording(&rows));
    r.order(vec![After::Point(2), After::Point(3), After::Nothing, After::Nothing]);
    let r = Arc::new(r);
    let ran = |cpus: &[u32]| {
        let cpus = cpus.iter().map(|&c| CpuId(c)).collect();
        let charge = Arc::new(Charge { cpus, ..charge(Rounds::Count(1)) });
        let mut s = Simulation::replay(&m, &Setup::default(), &r, "job", &charge).expect("it fits");
        s.run_until(Picos::from_ms(50).0);
        assert!(s.idle());
        s.processes().iter().map(|p| p.ran_ps).sum::<u64>() / NS / 1000
    };
    assert_eq!((ran(&[]), ran(&[0])), (3018, 3004));
}

#[test]
fn who_runs_may_be_faster_than_who_is_woken() {
    let point = |number| Op::Point { number };
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, 0, point(0)),
        (0, 2 * MS, point(1)),
        (0, 0, point(2)),
        (0, 2 * MS, point(3)),
        (0, 0, Op::Exit),
        (1, MS, point(4)),
        (1, MS, point(5)),
    ];
    let [take, give] = [|until| After::Lock(0, until), |_| After::Nothing];
    let after = [take(1), give(1), take(3), give(3), take(5), give(5)];
    let mut machine = plain();
    waking(&mut machine, [100_000 * NS, 100_000 * NS, 0]);
    let mut r = Arc::unwrap_or_clone(recording(&rows));
    r.order(after.to_vec());
    let s = run_recording(&machine, &Arc::new(r), Rounds::Count(1));
    assert!((5000..5400).contains(&microseconds(&s)[0]), "{:?}", microseconds(&s));
}

/// Task 0 has the lock and waits for what task 1 does after it has had the lock.
pub(super) const CIRCLE: ([(u32, u64, Op); 7], [After; 6]) = (
    [
        (0, 0, Op::Thread { child: 1 }),
        (0, 0, Op::Point { number: 0 }),
        (0, MS, Op::Point { number: 1 }),
        (0, 0, Op::Point { number: 2 }),
        (1, MS / 2, Op::Point { number: 3 }),
        (1, MS, Op::Point { number: 4 }),
        (1, 0, Op::Point { number: 5 }),
    ],
    [
        After::Lock(0, 2),
        After::Point(4),
        After::Nothing,
        After::Lock(0, 5),
        After::Nothing,
        After::Nothing,
    ],
);

/// Locks go to others than when it was recorded, and so tasks can come to wait in a circle
/// that the program never was in.
#[test]
fn a_circle_through_a_lock_opens() {
    let point = |number| Op::Point { number };
    let (take, give) = (|until| After::Lock(0, until), After::Nothing);
    let s = run_in_order(&CIRCLE.0, &CIRCLE.1, 2);
    assert_eq!((microseconds(&s), s.waited().without), (vec![2000, 2000], 2));
    // Two locks, each wanted by who has the other.
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, 0, point(0)),
        (0, MS, point(1)),
        (0, 0, point(2)),
        (0, 0, point(3)),
        (1, 0, point(4)),
        (1, 2 * MS, point(5)),
        (1, MS, point(6)),
        (1, 0, point(7)),
    ];
    let other = |until| After::Lock(1, until);
    let after = [take(3), other(2), give, give, other(7), take(6), give, give];
    let s = run_in_order(&rows, &after, 2);
    assert_eq!((microseconds(&s), s.waited().without), (vec![3000, 3000], 2));
    // Task 0 waits for task 2, which task 1 starts after it has had the lock.
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, 0, point(0)),
        (0, MS, point(1)),
        (0, 0, point(2)),
        (1, MS / 2, point(3)),
        (1, 0, point(4)),
        (1, 0, Op::Thread { child: 2 }),
        (2, MS, point(5)),
    ];
    let after = [take(2), After::Point(5), give, take(4), give, After::Nothing];
    let s = run_in_order(&rows, &after, 2);
    assert_eq!((microseconds(&s), s.waited().without), (vec![2000, 2000], 2));
}

/// A recording of one semaphore or condition variable, replayed.
fn run_with_count(
    rows: &[(u32, u64, Op)],
    after: &[After],
    count: Count,
    rounds: u64,
) -> Simulation {
    let mut r = Arc::unwrap_or_clone(recording(rows));
    r.counts(vec![count]);
    r.order(after.to_vec());
    let mut m = machine(&[dram(8192, 4)]);
    waking(&mut m, [0, 0, 0]);
    run_recording(&m, &Arc::new(r), Rounds::Count(rounds))
}

const POST: After = After::Post(0, 1);
const TAKE: After = After::Take(0, 1);

/// Two consumers; when it was recorded the one took what the other takes here.
#[test]
fn what_is_posted_goes_to_who_comes_first() {
    let point = |number| Op::Point { number };
    let rows = |one: u64, two: u64| {
        [
            (0, 0, Op::Thread { child: 1 }),
            (0, 0, Op::Thread { child: 2 }),
            (0, 4 * MS, point(0)),
            (0, 2 * MS, point(1)),
            (0, 0, Op::Exit),
            (1, one * MS, point(2)),
            (1, 5 * MS, Op::Exit),
            (2, two * MS, point(3)),
            (2, MS, Op::Exit),
        ]
    };
    let empty = Count::default();
    let after = [POST, POST, TAKE, TAKE];
    let ends = |rows: &[(u32, u64, Op)], count| {
        let s = run_with_count(rows, &after, count, 2);
        let Waited { counts, others, turns, locks, without, .. } = s.waited();
        assert_eq!((others, turns, locks, without), (0, 0, 0, 0));
        (microseconds(&s), counts / 1_000_000_000 / 2)
    };
    // The first post at 4 ms, the other at 6 ms.
    assert_eq!(ends(&rows(1, 2), empty), (vec![9000; 2], 7));
    assert_eq!(ends(&rows(2, 1), empty), (vec![11_000; 2], 7));
    // What is there at first is there in each round, and a post that nobody waits for stays.
    let one = Count { first: 1, handed: false };
    assert_eq!(ends(&rows(1, 2), one), (vec![6000; 2], 2));
    assert_eq!(ends(&rows(7, 8), empty), (vec![12_000; 2], 0));
}

/// A post wakes task 1; task 0 wants what it posted itself, before that one has come.
#[test]
fn a_semaphore_goes_to_who_runs_and_a_signal_to_who_waits() {
    let point = |number| Op::Point { number };
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, MS, point(0)),
        (0, 0, point(1)),
        (0, MS, point(2)),
        (0, 0, Op::Exit),
        (1, 0, point(3)),
        (1, 3 * MS, point(4)),
        (1, 0, Op::Exit),
    ];
    let ends = |handed| {
        let mut m = plain();
        waking(&mut m, [100_000 * NS, 100_000 * NS, 0]);
        let mut r = Arc::unwrap_or_clone(recording(&rows));
        r.counts(vec![Count { first: 0, handed }]);
        r.order(vec![POST, TAKE, POST, TAKE, POST]);
        let s = run_recording(&m, &Arc::new(r), Rounds::Count(1));
        (microseconds(&s)[0], s.waited().without)
    };
    // Task 0 takes its own post, and task 1 gets the second, after 2 ms.
    let (semaphore, without) = ends(false);
    assert!((5000..5400).contains(&semaphore) && without == 0, "{semaphore} {without}");
    // Task 1 has it after 1 ms; task 0 waits for what task 1 gives 3 ms later, and computes 1 ms.
    let (condition, without) = ends(true);
    assert!((5000..5400).contains(&condition) && without == 0, "{condition} {without}");
}

/// Two wait for what another tells all of: the first takes it, and the other looks in vain.
#[test]
fn all_look_when_there_is_a_broadcast() {
    let point = |number| Op::Point { number };
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, 0, Op::Thread { child: 2 }),
        (0, 2 * MS, point(0)),
        (0, 3 * MS, point(1)),
        (0, MS, point(2)),
        (0, 4 * MS, Op::Exit),
        (1, MS / 2, point(3)),
        (1, 5 * MS, Op::Exit),
        (2, MS, point(4)),
        (2, 6 * MS, Op::Exit),
    ];
    let ends = |of: fn(u32, u32) -> After| {
        let after = [of(0, 1), of(0, 0), of(0, 1), TAKE, TAKE];
        let s = run_with_count(&rows, &after, Count { first: 0, handed: true }, 1);
        assert_eq!(s.waited().without, 0);
        (microseconds(&s), s.voluntary_switches())
    };
    // At 2 ms task 1 goes on, at 6 ms task 2; at 5 ms nobody does. Task 2 has looked twice in vain.
    let (time, once) = ends(After::Post);
    assert_eq!(time, [12_000]);
    assert_eq!(ends(After::Broadcast), (vec![12_000], once + 2));
    // Who comes when all is told finds it all the same, and who tells has nothing of it.
    let late: Vec<(u32, u64, Op)> = rows
        .iter()
        .map(|&(task, time, op)| (task, if op == point(4) { 4 * MS } else { time }, op))
        .collect();
    let after = [After::Broadcast(0, 2), After::Nothing, After::Nothing, TAKE, TAKE];
    let s = run_with_count(&late, &after, Count { first: 0, handed: true }, 2);
    assert_eq!((microseconds(&s), s.waited().without), (vec![10_000; 2], 0));
}

/// Two tasks take turns; each signals the other before that one has come to wait. What a task has
/// given is not for itself.
#[test]
fn who_signals_has_nothing_of_it() {
    let point = |number| Op::Point { number };
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, MS, point(0)),
        (0, 0, point(1)),
        (0, MS, point(2)),
        (0, 0, Op::Exit),
        (1, 4 * MS, point(3)),
        (1, MS, point(4)),
        (1, 0, point(5)),
        (1, MS, Op::Exit),
    ];
    let after = [POST, TAKE, POST, TAKE, POST, TAKE];
    let s = run_with_count(&rows, &after, Count { first: 0, handed: true }, 2);
    assert_eq!((microseconds(&s), s.waited().without), (vec![7000; 2], 0));
}

/// Posts and signals go to others than when it was recorded: so tasks can wait for one another
/// where the program never did.
#[test]
fn a_circle_through_a_semaphore_opens() {
    let point = |number| Op::Point { number };
    // Task 1 takes what is there, and waits for what task 0 does after it has taken it.
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, 2 * MS, point(0)),
        (0, MS, point(1)),
        (0, 0, point(2)),
        (0, 0, Op::Exit),
        (1, MS, point(3)),
        (1, 0, point(4)),
        (1, 0, point(5)),
    ];
    let after = [TAKE, After::Nothing, POST, TAKE, After::Point(1), POST];
    let one = Count { first: 1, handed: false };
    let s = run_with_count(&rows, &after, one, 2);
    assert_eq!((microseconds(&s), s.waited().without), (vec![3000, 3000], 2));
    // While another task may still post, nobody goes on without.
    let mut rows = rows.to_vec();
    rows.insert(0, (0, 0, Op::Thread { child: 2 }));
    rows.push((2, 6 * MS, point(6)));
    let after = [TAKE, After::Nothing, POST, TAKE, After::Point(1), POST, POST];
    let s = run_with_count(&rows, &after, one, 2);
    assert_eq!((microseconds(&s), s.waited().without), (vec![7000, 7000], 0));
}

/// Task 1 takes what task 0 gave, and 2 waits: what is left to give is its own, which it can't have.
#[test]
fn who_waits_for_nobody_any_more_goes_on() {
    let point = |number| Op::Point { number };
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, 0, Op::Thread { child: 2 }),
        (0, 2 * MS, point(0)),
        (0, 5 * MS, Op::Exit),
        (1, 0, point(1)),
        (1, MS, Op::Exit),
        (2, MS, point(2)),
        (2, 0, point(3)),
        (2, MS, Op::Exit),
    ];
    let after = [POST, TAKE, TAKE, POST];
    let s = run_with_count(&rows, &after, Count { first: 0, handed: true }, 2);
    assert_eq!((microseconds(&s), s.waited().without), (vec![7000; 2], 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whoever gets what is given, and wherever that leads, a round comes to its end.
    #[test]
    fn nobody_waits_for_ever_at_counts_and_locks(
        does in prop::collection::vec((0u32..4, 0u64..4, 0u32..5, 0u32..2), 0..40),
        handed in any::<[bool; 2]>(),
    ) {
        let mut rows: Vec<(u32, u64, Op)> =
            (1..4).map(|child| (0, 0, Op::Thread { child })).collect();
        let (mut after, mut there, mut first) = (Vec::new(), [0i64; 2], [0i64; 2]);
        // By task: the lock that it has, and where it took it.
        let mut holds = [None; 4];
        for (task, time, what, which) in does {
            let number = after.len() as u32;
            let (i, held) = (which as usize, &mut holds[task as usize]);
            let now = match (what, *held) {
                (0, _) => {
                    there[i] += 1;
                    After::Post(which, 1)
                }
                (4, _) => {
                    there[i] += i64::from(time as u32);
                    After::Broadcast(which, time as u32)
                }
                (1 | 2, _) => {
                    // When it was recorded there was something.
                    there[i] -= 1;
                    first[i] = first[i].max(-there[i]);
                    After::Take(which, 1)
                }
                (_, Some(at)) => {
                    *held = None;
                    after[at as usize] = After::Lock(which, number);
                    After::Nothing
                }
                (_, None) => {
                    *held = Some(number);
                    After::Nothing
                }
            };
            after.push(now);
            rows.push((task, time * MS / 4, Op::Point { number }));
        }
        let mut r = Arc::unwrap_or_clone(recording(&rows));
        let count = |i: usize| Count { first: first[i] as u64, handed: handed[i] };
        r.counts(vec![count(0), count(1)]);
        r.order(after);
        let s = run_recording(&plain(), &Arc::new(r), Rounds::Count(2));
        prop_assert_eq!(s.stuck(), []);
        prop_assert_eq!(s.rounds().0, 2);
    }
}

/// What was given before the program that repeats began is there in each round.
#[test]
fn a_count_of_the_first_round_goes_on_in_the_next() {
    let point = |number| Op::Point { number };
    let rows = [
        (0, 0, point(0)),
        (0, 0, point(1)),
        (0, 0, Op::Exec),
        (0, MS, point(2)),
        (0, MS, Op::Exit),
    ];
    let after = [After::Post(0, 2), TAKE, TAKE];
    let s = run_with_count(&rows, &after, Count::default(), 3);
    assert_eq!((s.rounds().0, s.waited()), (3, Waited::default()));
}

/// A task that waits at a semaphore for a time wakes up in vain when it is over.
#[test]
fn who_waits_at_a_count_has_a_deadline_too() {
    let point = |number| Op::Point { number };
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, 0, point(0)),
        (0, 0, point(1)),
        (0, MS, Op::Exit),
        (1, 7 * MS, point(2)),
    ];
    let after = [After::Due(START, Picos::from_ms(2)), TAKE, POST];
    let s = run_with_count(&rows, &after, Count { first: 0, handed: true }, 1);
    assert_eq!((microseconds(&s), s.waited().in_vain), (vec![8000], 3));
}

/// A waiter that is killed leaves what it was woken for to the next.
#[test]
fn who_is_killed_takes_nothing_of_a_count() {
    let point = |number| Op::Point { number };
    for handed in [false, true] {
        // Task 0 posts, and then kills task 1, which has been woken.
        let rows = [
            (0, 0, Op::Fork { child: 1 }),
            (0, 0, Op::Fork { child: 2 }),
            (0, 2 * MS, point(0)),
            (0, 0, point(1)),
            (0, 0, Op::Exit),
            (1, 0, point(2)),
            (1, 0, point(3)),
            (1, 0, Op::Killed),
            (2, MS, point(4)),
            (2, MS, Op::Exit),
        ];
        let after = [POST, After::Nothing, TAKE, After::Point(1), TAKE];
        let s = run_with_count(&rows, &after, Count { first: 0, handed }, 1);
        let end = microseconds(&s)[0];
        assert!((3000..7000).contains(&end) && s.waited().without == 0, "{end} {:?}", s.waited());
    }
}

/// Two programs of one task, and a thread: each with its own time of an instruction.
#[test]
fn programs_may_differ_in_what_an_instruction_takes() {
    let rows = [
        (0, 4 * MS, Op::Exec),
        (0, 0, Op::Thread { child: 1 }),
        (0, 4 * MS, Op::Wait { child: Some(1) }),
        (1, 8 * MS, Op::Exit),
    ];
    let recording = recording(&rows);
    let insns: Vec<&[u64]> = recording.programs().collect();
    assert_eq!(insns, [&[4 * MS, 4 * MS][..], &[8 * MS]]);
    let charge = Charge {
        own_as_per_insn: Arc::new(vec![vec![500_000_000, 125_000_000]]),
        ..charge(Rounds::Count(1))
    };
    let mut s = Simulation::replay(&plain(), &Setup::default(), &recording, "job", &charge)
        .expect("it fits");
    s.run();
    // An instruction takes 0.25 ns where nothing else is said: as for the thread.
    let ran: Vec<_> = s.ran_by_program().iter().map(|(of, ps)| (*of, ps / 1_000_000_000)).collect();
    assert_eq!(ran, [((0, 0), 8), ((0, 1), 2), ((1, 0), 8)]);
    let ends = microseconds(&s);
    assert!((16_000..16_100).contains(&ends[0]), "{ends:?}");
}

/// A thread that would go on for 20 ms, and who waits for what it does then: its process ends
/// after 4 ms. Then it has ended too, and nobody waits for it.
#[test]
fn who_ends_the_process_ends_its_threads() {
    let rows = |last| {
        [
            (0, 0, Op::Fork { child: 1 }),
            (1, 0, Op::Thread { child: 2 }),
            (1, 4 * MS, last),
            (2, 20 * MS, Op::Point { number: 0 }),
            (2, 0, Op::Exit),
            (0, MS, Op::Point { number: 1 }),
            (0, MS, Op::Exit),
        ]
    };
    let after = [After::Nothing, After::Point(0)];
    let ends = |last| microseconds(&run_in_order(&rows(last), &after, 2))[0];
    let whole = ends(Op::Exit);
    assert!((20_000..27_000).contains(&whole), "{whole}");
    let quick = ends(Op::ExitGroup);
    assert!((4_000..9_000).contains(&quick), "{quick}");
}

/// A child that sleeps ten times 10 ms, and is killed after 15: what it had done beyond that
/// when it was recorded counts as done, and so does what its own child did, which it has not
/// come to start.
#[test]
fn a_signal_ends_a_task_wherever_it_is() {
    let mut rows = vec![(0, 0, Op::Fork { child: 1 })];
    let mut after = vec![After::Nothing; 4];
    for number in 4..14 {
        rows.push((1, 0, Op::Point { number }));
        after.push(After::Time(Picos(10_000_000 * NS)));
    }
    rows.extend([
        (1, 0, Op::Point { number: 1 }),
        (1, 0, Op::Fork { child: 2 }),
        (2, 0, Op::Point { number: 2 }),
        (2, 0, Op::Exit),
        (1, 0, Op::Point { number: 3 }),
        (1, 0, Op::Killed),
        // Its parent sends the signal, waits for it, and depends on what both did.
        (0, 15 * MS, Op::Point { number: 0 }),
        (0, 0, Op::Wait { child: Some(1) }),
        (0, 0, Op::Point { number: 14 }),
        (0, 0, Op::Point { number: 15 }),
        (0, MS, Op::Exit),
    ]);
    after[3] = After::Point(0);
    after.extend([After::Point(1), After::Point(2)]);
    let s = run_in_order(&rows, &after, 3);
    let each = microseconds(&s);
    assert!((16_000..17_000).contains(&each[0]), "{each:?}");
    // The child lived until the signal; who came to wait for its own child never saw it.
    let ends: Vec<_> = s.spans().iter().map(|(&task, s)| (task, s.1 / NS / 1000)).collect();
    assert_eq!((ends.len(), ends[0].0, ends[1].0), (2, 0, 1), "{ends:?}");
    assert!((15_000..16_000).contains(&ends[1].1), "{ends:?}");
    assert!(each[2] < 3 * 17_000, "{each:?}");
}

#[test]
fn who_waits_in_a_circle_is_named() {
    let rows = [
        (0, 0, Op::Thread { child: 1 }),
        (0, 0, Op::Wait { child: Some(1) }),
        (0, 0, Op::Point { number: 0 }),
        (1, MS, Op::Point { number: 1 }),
    ];
    let mut r = Arc::unwrap_or_clone(recording(&rows));
    r.order(vec![After::Nothing, After::Point(0)]);
    assert_eq!((r.task_of(0), r.task_of(1), r.task_of(2)), (Some(0), Some(1), None));
    let charge = charge(Rounds::Count(1));
    let mut s = Simulation::replay(&plain(), &Setup::default(), &Arc::new(r), "job", &charge)
        .expect("it fits");
    s.run_until(Picos::from_us(500).0);
    assert_eq!(s.stuck(), [], "the thread still computes");
    s.run_until(Picos::from_ms(3).0);
    assert_eq!(s.stuck(), [(0, Stuck::End(1)), (1, Stuck::Point(0))]);
    assert!(!s.idle());
}

/// A program that has started another in its place: the wait stands behind it, and what it
/// waits for before it. Later rounds do not come to that any more.
#[test]
fn what_happens_once_has_happened_in_later_rounds() {
    let point = |number| Op::Point { number };
    let rows = [
        (0, 0, Op::Fork { child: 1 }),
        (0, MS, Op::Exec),
        (0, MS, point(0)),
        (0, MS, Op::Exit),
        (1, 5 * MS, point(1)),
    ];
    let s = run_in_order(&rows, &[After::Point(1), After::Nothing], 3);
    let ends = microseconds(&s);
    assert!((6000..6100).contains(&ends[0]), "{ends:?}");
    assert_eq!(ends[1..], [2000, 2000]);
}

/// The first task is through at once; the round is not, and the next one finds nobody of it.
#[test]
fn a_round_ends_with_the_last_of_its_tasks() {
    let ms = |n: u64| n * 1_000_000 * NS;
    for start in [|child| Op::Thread { child }, |child| Op::Fork { child }] {
        let rows = [
            (0, 0, map(PAGE, 4)),
            (0, 0, write(PAGE, 4)),
            (0, 0, start(1)),
            (0, 0, start(2)),
            (1, 4_000_000, read(PAGE, 4)),
            // It computes for 3 ms and starts one of its own at the end.
            (2, 12_000_000, start(3)),
            (3, 8_000_000, read(PAGE, 4)),
        ];
        let s = run(&rows, 3);
        let ends = s.round_ends();
        let lengths = [ends[0], ends[1] - ends[0], ends[2] - ends[1]];
        // What forks, faults and turns of 3 ms on one CPU add is far less than a millisecond.
        assert!(lengths.iter().all(|l| (ms(5)..ms(6)).contains(l)), "{lengths:?}");
        let ran: u64 = s.processes().iter().map(|p| p.ran_ps).sum();
        assert!((3 * ms(6)..3 * ms(6) + ms(1)).contains(&ran), "{ran}");
    }
}

#[test]
fn exec_begins_with_an_empty_space_and_is_where_rounds_begin() {
    let rows = [
        (0, 0, map(PAGE, 4)),
        (0, 0, write(PAGE, 4)),
        (0, 0, write(PAGE + 2, 4)),
        (0, 0, Op::Exec),
        (0, 0, map(PAGE, 4)),
        (0, 1000, write(PAGE, 4)),
    ];
    let s = run(&rows, 2);
    assert_eq!(s.vmstat().get(Item::Pgfault), 3);
    assert_eq!(s.rounds().0, 2);
    assert_eq!(s.round_ends()[1] - s.round_ends()[0], 250 * NS + 100 * NS);
    assert_eq!(s.vmstat().get(Item::Pgfree), 3, "two at exec, one at the end");
}

#[test]
fn mappings_side_by_side_are_freed_at_exit() {
    let mut rows = vec![];
    for i in 0..100 {
        rows.push((0, 0, map(PAGE + 7 * i, 7)));
        rows.push((0, 0, write(PAGE + 7 * i + i % 7, 1)));
    }
    rows.push((0, 0, Op::Unmap { page: PAGE + 10, pages: 300 }));
    let s = run(&rows, 1);
    assert_eq!(s.vmstat().get(Item::Pgalloc), 100);
    assert_eq!(s.vmstat().get(Item::Pgfree), 100);
    assert_eq!(s.free(), [8192]);
}

#[test]
fn a_slower_node_costs_its_latency() {
    let mut m = plain();
    let slow = machine(&[dram(8192, 2), cxl(8192)]);
    (m.nodes, m.links, m.distances) = (slow.nodes, slow.links, slow.distances);
    let rows = [(0, 0, map(PAGE, 4)), (0, 0, read(PAGE, 4))];
    let policy = Mempolicy::Preferred(homenode_core::units::NodeId(1));
    let charge = Charge { policy, ..charge(Rounds::Count(1)) };
    let setup = Setup::default();
    let mut s = Simulation::replay(&m, &setup, &recording(&rows), "job", &charge).expect("fits");
    s.run();
    assert_eq!(s.round_ends(), [CALL + FAULT + 250 * NS]);
}

/// A chain and a stream on a slow node of 250 ns, judged: lines under way are four of either.
///
/// Source: specs/compare.md#recorded.
#[test]
fn a_replay_is_judged_by_its_lines() {
    let mut m = plain();
    let slow = machine(&[dram(8192, 2), cxl(8192)]);
    (m.nodes, m.links, m.distances) = (slow.nodes, slow.links, slow.distances);
    for l in &mut m.links {
        l.read_bandwidth.value = 1_000_000_000;
        l.write_bandwidth.value = 1_000_000_000;
    }
    let number = 4000;
    let call = Op::Discard { page: PAGE + 3, pages: 1 };
    let rows = [
        (0, 0, map(PAGE, 4)),
        (0, 1000, read(PAGE, 8)),
        (0, 2000, read(PAGE + 1, 4)),
        (0, 0, read(PAGE + 2, 0)),
        (0, number, call),
    ];
    let run = |to: u16, overlap, judged: bool| {
        let policy = Mempolicy::Preferred(homenode_core::units::NodeId(to));
        let charge = Charge { policy, overlap, ..charge(Rounds::Count(3)) };
        let setup = Setup::default();
        let mut s =
            Simulation::replay(&m, &setup, &recording(&rows), "job", &charge).expect("fits");
        if judged {
            s.keep_score(Score::new(Picos::from_ms(1), 0, true));
        }
        s.run();
        s
    };
    let of = |s: &Simulation| {
        let slices = s.score().expect("kept").slices();
        let sum = |f: fn(&Slice) -> u64| slices.iter().map(f).sum::<u64>();
        (sum(|s| s.fast), sum(|s| s.slow), sum(|s| s.least_ps) / NS)
    };
    let gains =
        |s: &Simulation| -> Vec<u32> { s.courses().iter().map(|c| c.gains.iter().sum()).collect() };
    for overlap in [None, Some(Overlap::chain())] {
        let (fast, slow) = (run(0, overlap, true), run(1, overlap, true));
        // 4,000 and 3,000 instructions of 0.25 ns, and 12 lines of 100 ns, four or one at once.
        let least = 3 * (1000 + 750 + if overlap.is_none() { 300 } else { 1200 });
        assert_eq!(of(&fast), (3 * 12, 0, least), "{overlap:?}");
        assert_eq!(of(&slow), (0, 3 * 12, least), "the same wherever it is");
        // Each line saves 150 ns, or a fourth of it.
        let each = if overlap.is_none() { [900, 450] } else { [3600, 1800] };
        assert_eq!((gains(&fast), gains(&slow)), (each.to_vec(), each.to_vec()));
        let is_fast = |s: &Simulation| s.courses().iter().all(|c| c.fast);
        assert_eq!((is_fast(&fast), is_fast(&slow)), (true, false));
        // It is written down beside the run.
        assert_eq!(run(1, overlap, false).hash(), slow.hash());
        // What all took is what the fast tier would have taken, and what was lost by not being there.
        let user = slow.processes()[0].ran_ps - fast.processes()[0].ran_ps;
        assert_eq!(user / NS, gains(&slow).iter().map(|&g| u64::from(g)).sum());
    }
}

#[test]
fn odd_recordings_end() {
    for rows in [
        vec![],
        vec![(0, 0, Op::Thread { child: 1 }), (1, 0, Op::Fork { child: 1 })],
        vec![(0, 0, Op::Exit)],
        vec![(0, 0, Op::Exec)],
        vec![(0, 0, Op::Fork { child: 0 }), (0, 0, Op::Fork { child: 9 })],
        vec![(0, 0, Op::Unmap { page: 1, pages: 5 }), (0, 0, Op::Wait { child: Some(0) })],
        vec![(0, 0, Op::Remap { page: PAGE, pages: 5, to: PAGE + 3 }), (0, 5, read(PAGE + 4, 1))],
        vec![(0, 0, map(PAGE, 8)), (0, 0, Op::Remap { page: PAGE, pages: 8, to: PAGE + 4 })],
        vec![
            (0, 0, Op::Fork { child: 1 }),
            (0, 0, Op::Wait { child: Some(1) }),
            (1, 0, Op::Wait { child: Some(0) }),
        ],
        vec![
            (0, 0, Op::Protect { page: PAGE, pages: 5, prot: [false; 3] }),
            (0, 0, write(PAGE, 1)),
        ],
    ] {
        let s = run(&rows, 2);
        assert!(s.rounds().0 >= 1, "{rows:?}");
    }
}

#[test]
fn a_sample_of_a_replay_names_the_page_that_was_accessed() {
    let rows =
        [(0, 0, map(PAGE, 40)), (0, 10, read(PAGE + 7, 30_000)), (0, 10, write(PAGE + 9, 30_000))];
    let charge = charge(Rounds::Count(2));
    let m = plain();
    let mut s = Simulation::replay(&m, &Setup::default(), &recording(&rows), "job", &charge)
        .expect("it fits");
    let mut pmu = Pmu::new(m.cpus.len(), 0);
    pmu.watch(0, true);
    s.pmu = Some(Box::new(pmu));
    s.run();
    let (samples, lost) = s.pmu.as_mut().expect("still there").ring.drain();
    let pages: Vec<u64> = samples.iter().map(|x| x.vpn - PAGE).collect();
    assert_eq!((pages.len(), lost), (11, 0), "120,000 accesses, one in 10,007");
    assert!(pages.iter().all(|p| [7, 9].contains(p)), "{pages:?}");
}
