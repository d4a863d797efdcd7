//! Who runs when: wake-ups at their time, work that is cut, timers, idle CPUs.

use super::support::*;
use crate::build::Setup;
use crate::simulation::Simulation;
use crate::vmstat::Item;
use crate::watch::{By, Watch};
use homenode_core::scenario::*;
use homenode_core::topology::Hardware;
use homenode_core::units::{Bytes, CpuId, Pages, Picos};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

const US: u64 = 1_000_000;
const MS: u64 = 1000 * US;
const QUANTUM: CpuOrder = CpuOrder::Quantum(Picos(10 * US));

/// A wake-up: by whom, when, and from when on the task may run.
type Woken = (By, u64, u64);

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Woken>>>);

impl Watch for Log {
    fn woken(&mut self, _pid: u32, by: By, now: u64, begins: u64) {
        self.0.lock().expect("nobody panics with it").push((by, now, begins));
    }
}

fn run(m: &Hardware, s: &Scenario, order: CpuOrder) -> (Simulation, Vec<Woken>) {
    let mut setup = Setup::of(s);
    setup.model.order = order;
    let mut sim = Simulation::new(m, s, &setup).expect("it fits");
    let log = Log::default();
    sim.watch(Box::new(log.clone()));
    sim.run();
    let all = log.0.lock().expect("nobody panics with it").clone();
    (sim, all)
}

/// Threads that compute for different times and then meet, over and over.
fn meeting(threads: u32, compute_ns: u64, rounds: u64) -> Process {
    let cpus: Vec<u32> = (0..threads).collect();
    let part = Step::Access {
        map: "m".into(),
        pattern: Pattern::Gauss { sd: 83 },
        write: 300,
        compute: Picos(compute_ns * 1000),
        mlp: 1,
        until: Until::Accesses(150),
    };
    let again = Step::Repeat { steps: 2, until: Again::Times(rounds) };
    process("meeting", &cpus, vec![map("m", 2000)], vec![touch("m"), part, Step::Barrier, again])
}

#[test]
fn who_meets_goes_on_when_the_last_one_comes() {
    let m = machine(&[dram(4096, 4)]);
    let s = scenario(vec![meeting(4, 7, 50)]);
    let (_, woken) = run(&m, &s, QUANTUM);
    let by_others: Vec<&Woken> = woken.iter().filter(|w| matches!(w.0, By::Task(_))).collect();
    assert_eq!(by_others.len(), 3 * 50);
    // In quanta of 10 µs one on a lower CPU than the last one's was up to 10 µs late.
    assert!(by_others.iter().all(|(_, now, begins)| begins == now), "{by_others:?}");
    let times: Vec<u64> = by_others.iter().map(|w| w.1).collect();
    assert!(times.is_sorted(), "no wake-up lies before an earlier one");
}

#[test]
fn a_daemon_that_wakes_where_all_are_busy_cuts_what_ran_ahead() {
    // Both CPUs are busy, DRAM is too small, and kswapd has to run somewhere.
    let m = machine(&[dram(4096, 2), cxl(8192)]);
    let all = |ms| access("m", Pattern::Gauss { sd: 200 }, 300, for_ms(ms));
    let busy = process("busy", &[0, 1], vec![map("m", 6000)], vec![touch("m"), all(60)]);
    let mut s = scenario(vec![busy]);
    s.knobs = knobs(&[
        ("numa_balancing", "2"),
        ("demotion_enabled", "1"),
        ("scan_delay_ms", "1"),
        ("scan_period_min_ms", "5"),
        ("min_free_kbytes", "512"),
    ]);
    let (sim, woken) = run(&m, &s, QUANTUM);
    assert!(sim.vmstat().get(Item::PgdemoteKswapd) > 0, "kswapd had something to do");
    let daemon: Vec<&Woken> =
        woken.iter().filter(|w| matches!(w.0, By::Kernel | By::Timer)).collect();
    assert!(daemon.len() > 3, "{daemon:?}");
    // It begins at the end of the access or of the fault during which it was woken; a scan
    // of address space at a tick is one act as well, and may take longer.
    let mut late: Vec<u64> = daemon.iter().map(|(_, now, begins)| begins - now).collect();
    late.sort_unstable();
    assert!(late[late.len() / 2] < US, "{late:?}");
    assert!(late[late.len() * 3 / 4] < 5 * US, "{late:?}");
}

#[test]
fn threads_that_meet_are_the_same_in_quanta_and_in_strict_order() {
    let m = machine(&[dram(8192, 8)]);
    for threads in [2, 5, 8] {
        let s = scenario(vec![meeting(threads, 40, 80)]);
        let (quanta, strict) = (run(&m, &s, QUANTUM), run(&m, &s, CpuOrder::Strict));
        assert_eq!(quanta.0.hash(), strict.0.hash(), "{threads} threads");
        assert_eq!(quanta.1, strict.1, "{threads} threads");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Where nothing is moved, cutting at any time changes nothing: the same accesses,
    /// the same times, whoever shares a CPU with whom.
    #[test]
    fn a_quantum_of_any_length_gives_the_run_of_strict_order(
        quantum in 1u64..10 * US,
        cpus in prop::collection::vec(prop::collection::vec(0u32..3, 1..4), 1..4),
        computes in prop::collection::vec(0u64..400, 4),
        rests in prop::collection::vec(1u64..3000, 4),
        capacities in prop::collection::vec(prop_oneof![Just(1024u32), 1u32..1024], 3),
        seed in 0u64..1000,
    ) {
        let mut m = machine(&[dram(8192, 3)]);
        for (cpu, capacity) in m.cpus.iter_mut().zip(capacities) {
            cpu.capacity = capacity;
        }
        let programs = cpus.iter().enumerate().map(|(i, on)| {
            let part = Step::Access {
                map: "m".into(),
                pattern: Pattern::Uniform,
                write: 500,
                compute: Picos(computes[i] * 1000), mlp: 1,
                until: Until::Accesses(400),
            };
            let rest = Step::Sleep(Picos(rests[i] * 1000));
            let again = Step::Repeat { steps: 3, until: Again::Times(20) };
            let steps = vec![touch("m"), part, rest, Step::Barrier, again];
            process(&format!("p{i}"), on, vec![map("m", 700)], steps)
        });
        let mut s = scenario(programs.collect());
        s.seed = seed;
        let (a, b) = (run(&m, &s, CpuOrder::Quantum(Picos(quantum))), run(&m, &s, CpuOrder::Strict));
        prop_assert_eq!(a.0.hash(), b.0.hash());
        prop_assert_eq!(a.1, b.1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whether the acts of a task whose time is its own are done as it comes to them, or
    /// each in a turn: faults, scans, moves between nodes, daemons that are called, memory
    /// that runs out, and others who come to the same CPU.
    #[test]
    fn acts_in_ones_own_time_are_those_of_turns(
        cpus in prop::collection::vec(prop::collection::vec(0u32..3, 1..3), 1..4),
        pages in 200u64..2500,
        compute in 0u64..400,
        rest in 1u64..300,
        mode in 0u64..4,
        swap in any::<bool>(),
        strict in any::<bool>(),
        flush_us in prop::collection::vec(0u64..10, 2),
        seed in 0u64..1000,
    ) {
        use homenode_core::costs::{Constant, Cost};
        let mut m = machine(&[dram(2048, 3), cxl(2048)]);
        for (cost, us) in
            [Cost::TlbRemoteFlush, Cost::TlbRemoteFlushReceived].into_iter().zip(flush_us)
        {
            m.costs.0.insert(cost, Constant::assumed(us * US, "drawn"));
        }
        let programs = cpus.iter().enumerate().map(|(i, on)| {
            let part = Step::Access {
                map: "m".into(),
                pattern: Pattern::Gauss { sd: 150 },
                write: 300,
                compute: Picos(compute * 1000), mlp: 1,
                until: for_ms(7),
            };
            let few = access("m", Pattern::Uniform, 500, Until::Accesses(50));
            let nap = Step::Sleep(Picos(rest * US));
            let again = Step::Repeat { steps: 4, until: Again::Times(8) };
            let steps = vec![touch("m"), part, few, nap, Step::Barrier, again];
            process(&format!("p{i}"), on, vec![map("m", pages)], steps)
        });
        let mut s = scenario(programs.collect());
        s.seed = seed;
        s.knobs = knobs(&[
            ("numa_balancing", &mode.to_string()),
            ("demotion_enabled", "1"),
            ("scan_delay_ms", "1"),
            ("scan_period_min_ms", "4"),
            ("scan_size_mb", "2"),
            ("min_free_kbytes", "256"),
        ]);
        s.model.swap = if swap { Swap::Device(Pages(8192)) } else { Swap::None };
        s.model.order = if strict { CpuOrder::Strict } else { QUANTUM };
        let run = |one_act_a_turn| {
            let mut sim = Simulation::new(&m, &s, &Setup::of(&s)).expect("it fits");
            sim.one_act_a_turn = one_act_a_turn;
            sim.run();
            (sim.hash(), sim.processes(), sim.vmstat().clone())
        };
        prop_assert_eq!(run(false), run(true));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whether calls of pipes are done ahead of time, or each in a turn: pipes that run full and empty, one reader
    /// or several, messages of two sizes, tasks that compute between, and CPUs that several share.
    #[test]
    fn calls_ahead_of_time_are_those_of_turns(
        cpus in 1u32..9,
        pipes in 1u32..6,
        senders in 1u32..7,
        readers in 1u32..4,
        rounds in 1u64..120,
        bytes in prop_oneof![Just(1u32), Just(100), Just(1000), Just(4096), Just(5000)],
        parts in prop_oneof![Just(1u32), Just(1), Just(2), Just(4)],
        other in prop_oneof![Just(0u32), Just(0), Just(2), Just(5)],
        pause_us in prop_oneof![Just(0u64), Just(0), 1u64..40],
        costs_ns in prop::collection::vec(0u64..1500, 6),
        strict in any::<bool>(),
        seed in 0u64..1000,
    ) {
        use homenode_core::costs::{Constant, Cost};
        let mut m = machine(&[dram(4096, cpus)]);
        let paid = [
            Cost::PipeWrite, Cost::PipeRead, Cost::ContextSwitch, Cost::WakeUp, Cost::Ipi, Cost::Tick,
        ];
        for (cost, ns) in paid.into_iter().zip(&costs_ns) {
            m.costs.0.insert(cost, Constant::assumed(ns * 1000, "drawn"));
        }
        let of = |name: &str, copies: u32, steps: Vec<Step>| {
            Process { threads: 1, copies, ..process(name, &[], vec![], steps) }
        };
        let channel = || "wire".to_owned();
        let write = |bytes| CpuStep::Write { channel: channel(), to: Which::Group, bytes, sizes: Vec::new() };
        // What is written in one piece is read in parts of one size, none of which lies in two messages.
        let (bytes, parts) = if bytes % parts == 0 { (bytes, parts) } else { (bytes, 1) };
        let read = CpuStep::Read { channel: channel(), from: Which::Own, bytes: bytes / parts };
        let again = |steps, n| Step::Repeat { steps, until: Again::Times(n) };
        let pause = || compute_us(pause_us);
        // Each of a pipe's readers takes as much as the others.
        let rounds = rounds.next_multiple_of(u64::from(readers));
        let total = rounds * u64::from(senders * parts) / u64::from(readers);
        let total = total * u64::from(1 + other);
        let mut sender = vec![Step::Cpu(write(bytes))];
        let mut reader = vec![Step::Cpu(read)];
        if pause_us > 0 {
            sender.push(pause());
        }
        if other > 0 {
            // Several times as large, or so many of the same.
            sender.push(Step::Cpu(write(bytes * other)));
        }
        let (s1, r1) = (sender.len() as u32, reader.len() as u32);
        sender.push(again(s1, rounds));
        reader.push(again(r1, total));
        let mut s = scenario(vec![of("sender", senders, sender), of("reader", pipes * readers, reader)]);
        let (count, group) = (pipes, pipes);
        s.channels = vec![Channel { name: channel(), kind: ChannelKind::Pipe, count, group, nodelay: false }];
        s.seed = seed;
        s.knobs = knobs(&[("sched_schedstats", "1")]);
        s.model.order = if strict { CpuOrder::Strict } else { QUANTUM };
        let run = |one_act_a_turn| {
            let mut sim = Simulation::new(&m, &s, &Setup::of(&s)).expect("it fits");
            sim.one_act_a_turn = one_act_a_turn;
            // In parts, so that it is looked at in the middle of things.
            let mut seen = Vec::new();
            for part in 1..40 {
                sim.run_until(part * 37 * US);
                let ran: Vec<(u64, u64)> = sim.tasks.iter().map(|t| (t.ran, t.system)).collect();
                seen.push((sim.wakeups_and_switches(), ran));
            }
            sim.run_until(10_000 * MS);
            let counters = sim.sched.q.counters.cpus.clone();
            let turns = sim.turns();
            (sim.hash(), sim.processes(), seen, sim.deadlock().map(str::to_owned), counters, turns)
        };
        let (ahead, in_turn) = (run(false), run(true));
        prop_assert!(ahead.0 == in_turn.0 && ahead.1 == in_turn.1 && ahead.2 == in_turn.2);
        prop_assert_eq!((ahead.3, ahead.4), (in_turn.3, in_turn.4));
        prop_assert!(ahead.5 <= in_turn.5, "{} turns ahead, {} in turn", ahead.5, in_turn.5);
    }
}

#[test]
fn most_calls_of_a_pipe_need_no_turn_of_their_own() {
    let wire = || "wire".to_owned();
    let write = CpuStep::Write { channel: wire(), to: Which::Group, bytes: 100, sizes: Vec::new() };
    let read = CpuStep::Read { channel: wire(), from: Which::Own, bytes: 100 };
    let of = |name: &str, step, times| {
        let again = Step::Repeat { steps: 1, until: Again::Times(times) };
        let steps = vec![Step::Cpu(step), again];
        Process { threads: 1, copies: 10, ..process(name, &[], vec![], steps) }
    };
    let mut s = scenario(vec![of("sender", write, 100), of("receiver", read, 1000)]);
    s.channels = vec![Channel {
        name: wire(),
        kind: ChannelKind::Pipe,
        count: 10,
        group: 10,
        nodelay: false,
    }];
    let m = machine(&[dram(4096, 4)]);
    let run = |one_act_a_turn| {
        let mut sim = Simulation::new(&m, &s, &Setup::of(&s)).expect("it fits");
        sim.one_act_a_turn = one_act_a_turn;
        sim.run();
        (sim.hash(), sim.turns())
    };
    let (ahead, in_turn) = (run(false), run(true));
    assert_eq!(ahead.0, in_turn.0);
    // Of 20,000 calls, nearly all.
    assert!(in_turn.1 > 19_000, "{} turns", in_turn.1);
    assert!(ahead.1 * 2 < in_turn.1, "{} turns, and {} one by one", ahead.1, in_turn.1);
}

fn compute_us(us: u64) -> Step {
    Step::Cpu(CpuStep::Compute {
        time: Picos(us * US),
        times: Vec::new(),
        jitter: 500,
        footprint: Bytes(0),
    })
}

#[test]
fn an_early_end_of_a_sleep_does_not_end_the_next_one() {
    let m = machine(&[dram(4096, 1)]);
    let rest = || Step::Sleep(Picos(10 * MS));
    let s = scenario(vec![process("sleeper", &[0], Vec::new(), vec![rest(), rest()])]);
    let mut sim = Simulation::new(&m, &s, &Setup::of(&s)).expect("it fits");
    sim.run_until(3 * MS);
    // The first task after the node's kswapd.
    assert!(sim.tasks[1].sleeps());
    sim.wake(1, By::Outside);
    sim.run();
    // 3 ms and 10 ms; with the first timer it would be 10 ms.
    assert_eq!(sim.now(), 13 * MS);
}

#[test]
fn a_task_that_shares_its_cpu_gets_it_when_a_tick_finds_the_slice_over() {
    let m = machine(&[dram(4096, 1)]);
    let part = |ms| access("m", Pattern::Sequential, 0, for_ms(ms));
    let of = |name, ms| process(name, &[0], vec![map("m", 8)], vec![touch("m"), part(ms)]);
    let s = scenario(vec![of("a", 30), of("b", 30)]);
    for order in [QUANTUM, CpuOrder::Strict] {
        let (sim, _) = run(&m, &s, order);
        let [a, b] = &sim.processes()[..] else { panic!("two programs") };
        // Until::Time counts the time that the other one runs; each has the CPU for a tick of
        // 4 ms by turns, and 30 ms are seven and a half of them.
        let share = a.ran_ps * 100 / (a.ran_ps + b.ran_ps);
        assert!((40..=60).contains(&share), "{order:?}: {share} %");
        assert!(sim.now() < 39 * MS, "{}", sim.now());
    }
}

#[test]
fn user_and_system_time_are_all_the_time() {
    let m = machine(&[dram(4096, 2), cxl(8192)]);
    let part = access("m", Pattern::Gauss { sd: 200 }, 300, for_ms(40));
    let busy = process("busy", &[0, 1], vec![map("m", 6000)], vec![touch("m"), part]);
    let mut s = scenario(vec![busy]);
    s.knobs = knobs(&[("numa_balancing", "2"), ("demotion_enabled", "1")]);
    let (sim, _) = run(&m, &s, QUANTUM);
    let p = &sim.processes()[0];
    assert!(p.system_ps > 0 && p.system_ps < p.ran_ps, "{p:?}");
    // Nobody else runs on their CPUs but kswapd: the rest of the time is theirs.
    let faults = sim.vmstat().get(Item::Pgfault);
    assert!(p.system_ps >= faults * 100_000, "each fault is system time");
}

#[test]
fn a_cpu_of_half_the_capacity_computes_for_twice_as_long() {
    let part = Step::Access {
        map: "m".into(),
        pattern: Pattern::Uniform,
        write: 300,
        compute: Picos(700 * 1000),
        mlp: 1,
        until: Until::Accesses(5000),
    };
    let s = scenario(vec![process("p", &[0], vec![map("m", 64)], vec![touch("m"), part])]);
    let user = |capacity| {
        let mut m = machine(&[dram(4096, 1)]);
        m.cpus[0].capacity = capacity;
        // So fast a memory that its load never shows.
        m.links[0].read_bandwidth.value = 1_000_000_000;
        m.links[0].write_bandwidth.value = 1_000_000_000;
        let p = run(&m, &s, QUANTUM).0.processes()[0].clone();
        p.ran_ps - p.system_ps
    };
    // Memory is no slower: 700 ns are 1,400 at a half.
    let computing = 5000 * 700 * 1000;
    assert_eq!(user(512), user(1024) + computing);
    let third = (700_000u64 * 1024).div_ceil(341);
    assert_eq!(user(341), user(1024) - computing + 5000 * third);
}

/// How long a row of accesses takes of a task that computes `ns` before each.
fn row(m: &Hardware, mlp: u32, ns: u64, accesses: u64) -> u64 {
    let part = Step::Access {
        map: "m".into(),
        pattern: Pattern::Uniform,
        write: 0,
        compute: Picos::from_ns(ns),
        mlp,
        until: Until::Accesses(accesses),
    };
    let s = scenario(vec![process("p", &[0], vec![map("m", 64)], vec![touch("m"), part])]);
    let p = run(m, &s, QUANTUM).0.processes()[0].clone();
    p.ran_ps - p.system_ps
}

#[test]
fn accesses_under_way_at_once_take_less_each_up_to_what_a_core_bears() {
    use homenode_core::costs::{Constant, Cost};
    let mut m = machine(&[dram(4096, 1)]);
    m.costs.0.insert(Cost::MemoryParallelism, Constant::assumed(10_000, "ten lines"));
    // So fast a memory that its load never shows.
    m.links[0].read_bandwidth.value = 1_000_000_000;
    m.links[0].write_bandwidth.value = 1_000_000_000;
    let latency = m.links[0].read_latency.value;
    let (few, all) = (row(&m, 1, 0, 1), row(&m, 1, 0, 1001));
    assert_eq!(all - few, 1000 * latency, "a chain waits for each line");
    for (mlp, ns, each) in [
        (4, 0, latency / 4),
        (10, 0, latency / 10),
        (64, 0, latency / 10),
        (4, 20, (latency + 20_000) / 4),
        // Computing is done one after the other.
        (4, 1000, 1_000_000),
    ] {
        let (few, all) = (row(&m, mlp, ns, 1), row(&m, mlp, ns, 1001));
        assert_eq!(all - few, 1000 * each, "{mlp} at once, {ns} ns between them");
    }
}

#[test]
fn who_overlaps_reaches_the_bandwidth_of_a_node_and_no_more() {
    let mut m = machine(&[dram(4096, 1)]);
    // A line in 6.4 ns.
    m.links[0].read_bandwidth.value = 10_000;
    let each = |mlp| (row(&m, mlp, 0, 200_001) - row(&m, mlp, 0, 1)) / 200_000;
    let latency = m.links[0].read_latency.value;
    assert!((latency..latency * 11 / 10).contains(&each(1)), "{}", each(1));
    assert!((6_400..latency / 4).contains(&each(64)), "{}", each(64));
}

#[test]
fn idle_cpus_change_nothing() {
    let of = |cpus: u32| {
        let m = machine(&[dram(8192, cpus)]);
        assert_eq!(m.cpus.last().map(|c| c.id), Some(CpuId(cpus - 1)));
        run(&m, &scenario(vec![meeting(6, 40, 30)]), QUANTUM).0.hash()
    };
    assert_eq!(of(8), of(4096));
}

fn compute(ms: u64) -> Step {
    Step::Cpu(CpuStep::Compute {
        time: Picos::from_ms(ms),
        times: Vec::new(),
        jitter: 0,
        footprint: Bytes(0),
    })
}

/// Runs under the checkers; how long each process's tasks ran, and the busy time of the CPUs, in µs.
fn checked(m: &Hardware, s: &Scenario) -> (Vec<u64>, Vec<u64>) {
    let mut sim = Simulation::new(m, s, &Setup::of(s)).expect("it fits");
    let checker = crate::check::Checker::watch(&mut sim);
    checker.run(&mut sim, 1000 * MS, MS).unwrap_or_else(|e| panic!("{e}"));
    let ran = sim.processes().iter().map(|p| p.ran_ps / US).collect();
    (ran, sim.cpu_figures().iter().map(|c| c.busy_ps / US).collect())
}

#[test]
fn a_task_that_may_run_elsewhere_only_goes_there_at_once() {
    let m = machine(&[dram(4096, 2)]);
    let away = Step::Cpu(CpuStep::Affinity { cpus: vec![CpuId(1)] });
    let s = scenario(vec![
        process("stays", &[0], vec![], vec![compute(10)]),
        process("goes", &[0], vec![], vec![compute(1), away, compute(20)]),
    ]);
    let (ran, busy) = checked(&m, &s);
    assert_eq!((ran, busy), (vec![10_000, 21_000], vec![11_000, 20_000]));
}

#[test]
fn who_computes_under_strict_order_is_not_asked_each_picosecond() {
    let m = machine(&[dram(4096, 4)]);
    let mut s = scenario(vec![process("all", &[0, 1, 2, 3], vec![], vec![compute(5)])]);
    s.model.order = CpuOrder::Strict;
    let (ran, busy) = checked(&m, &s);
    assert_eq!((ran, busy), (vec![20_000], vec![5000; 4]));
}

#[test]
fn the_wake_up_by_a_task_that_ends_is_no_time_of_a_cpu_that_it_has_left() {
    use homenode_core::costs::{Constant, Cost};
    let mut m = machine(&[dram(4096, 1)]);
    m.costs.0.insert(Cost::WakeUp, Constant::assumed(2 * US, "a test's round figure"));
    let steps = vec![Step::Fork, compute(3), Step::Wait];
    let s = scenario(vec![process("parent", &[0], vec![], steps)]);
    let (ran, busy) = checked(&m, &s);
    assert_eq!(ran, busy);
}
