//! Steps that make threads meet, repeat others or map anew, and what a run says of them.

use super::support::*;
use crate::build::Setup;
use crate::check::Checker;
use crate::simulation::{ProcessFigures, Simulation};
use crate::vmstat::Item;
use homenode_core::costs::{Constant, Cost};
use homenode_core::scenario::*;
use homenode_core::topology::Hardware;
use homenode_core::units::{Bytes, NodeId, Picos};

const MS: u64 = 1_000_000_000;
const NO_THP: (&str, &str) = ("transparent_hugepage", "never");

fn run(m: &Hardware, processes: Vec<Process>, knobs_: &[(&str, &str)]) -> Simulation {
    let s = Scenario { knobs: knobs(&[&[NO_THP], knobs_].concat()), ..scenario(processes) };
    let mut sim = Simulation::new(m, &s, &Setup::of(&s)).expect("it fits");
    let checker = Checker::watch(&mut sim);
    checker.run(&mut sim, 60_000 * MS, 100 * MS).expect("nothing is wrong");
    assert!(sim.idle(), "all have ended");
    sim
}
fn unmap(map: &str) -> Step {
    Step::Unmap { map: map.into() }
}
fn again(map: &str) -> Step {
    Step::Map { map: map.into() }
}
fn bound(pages: u64) -> Map {
    Map { policy: Mempolicy::Bind { nodes: vec![NodeId(0)], balancing: false }, ..map("a", pages) }
}
/// Unmaps, maps, touches and rests, over and over.
fn neighbour(pages: u64, until: Again) -> Process {
    let rest = Step::Sleep(Picos::from_ms(1));
    let steps = vec![touch("a"), rest, unmap("a"), again("a"), Step::Repeat { steps: 4, until }];
    process("neighbour", &[1], vec![bound(pages)], steps)
}
fn ns(ps: u64) -> u64 {
    ps / 1000
}

// specs/pmbench.md#run: one thread touches, all warm up, all meet, all run.
#[test]
fn pmbenchs_phases_follow_one_another() {
    let m = machine(&[dram(4096, 2), cxl(4096)]);
    let steps = vec![
        Step::Initialize { map: "m".into(), order: TouchOrder::Linear },
        access("m", Pattern::NormalIh, 200, Until::Accesses(1_000)),
        Step::Barrier,
        access("m", Pattern::NormalIh, 200, for_ms(3)),
    ];
    let sim = run(&m, vec![process("p", &[0, 1], vec![map("m", 1000)], steps)], &[]);
    let p = &sim.processes()[0];
    let [first, warm, main] = &p.phases[..] else { panic!("{:?}", p.phases) };
    assert_eq!((first.step, first.first_touch, first.threads), (0, true, 1));
    assert_eq!((first.count(), p.allocations.count()), (1000, 1000));
    assert_eq!((warm.step, warm.first_touch, warm.threads, warm.count()), (1, false, 2, 2_000));
    assert!(warm.span_ps.0 >= first.span_ps.1, "nobody runs while one thread touches");
    assert_eq!((main.step, main.threads), (3, 2));
    // Both begin the main part when the slower one has come.
    assert_eq!(main.span_ps.0, warm.span_ps.1);
    assert!((6 * MS..6 * MS + MS / 10).contains(&main.time_ps), "{}", main.time_ps);
    // All of it is on node 0, at 100 ns, hardly loaded: 10 M a second for each thread.
    assert!((19_500_000..=20_000_100).contains(&main.per_second()), "{}", main.per_second());
    let all: u64 = p.accesses.iter().flatten().sum();
    assert_eq!(all, first.count() + warm.count() + main.count());
    let writes = main.accesses[0][1] * 1000 / main.count();
    assert!((190..=210).contains(&writes), "{writes}");
}

#[test]
fn what_is_unmapped_and_mapped_again_is_allocated_again() {
    let m = machine(&[dram(4096, 2), cxl(4096)]);
    let sim = run(&m, vec![neighbour(300, Again::Times(7))], &[]);
    assert_eq!(sim.vmstat().get(Item::Pgfault), 2_100);
    assert_eq!(sim.vmstat().get(Item::Pgalloc), sim.vmstat().get(Item::Pgfree));
    let p = &sim.processes()[0];
    assert_eq!((p.allocations.count(), p.phases.len()), (2_100, 1));
    assert_eq!((p.phases[0].count(), p.phases[0].threads), (2_100, 1));
    // Nothing is short: each fault takes what the machine says.
    let fault = sim.kernel.prices[Cost::MinorFault];
    let a = &p.allocations;
    assert_eq!((a.max_ps(), a.mean_ps()), (fault, fault));
    assert!(ns(a.percentile_ps(990)).abs_diff(ns(fault)) <= ns(fault) / 128 + 1);
}

#[test]
fn a_loop_until_a_time_ends_with_the_round_that_passes_it() {
    let m = machine(&[dram(4096, 2)]);
    let until = Again::Until(Picos::from_ms(20));
    let mut p = neighbour(10, until);
    p.start = Picos::from_ms(5);
    let sim = run(&m, vec![p], &[]);
    let p = &sim.processes()[0];
    assert!((20 * MS..22 * MS).contains(&p.time_ps), "{}", p.time_ps);
    let rounds = p.allocations.count() / 10;
    assert!((15..=20).contains(&rounds), "{rounds}");
}

#[test]
fn loops_within_loops_begin_anew_and_empty_ones_end() {
    let m = machine(&[dram(4096, 2)]);
    let times = |steps, n| Step::Repeat { steps, until: Again::Times(n) };
    // Three rounds of (two rounds of touch and unmap): a page each.
    let steps = vec![again("a"), touch("a"), unmap("a"), times(3, 2), times(4, 3)];
    let sim = run(&m, vec![process("p", &[0], vec![bound(1)], steps)], &[]);
    assert_eq!(sim.processes()[0].allocations.count(), 6);
    let until = Step::Repeat { steps: 1, until: Again::Until(Picos::from_ms(2)) };
    let sim = run(&m, vec![process("p", &[0], vec![bound(1)], vec![Step::Wait, until])], &[]);
    assert!((2 * MS..3 * MS).contains(&sim.processes()[0].time_ps));
}

#[test]
fn a_repeated_pattern_draws_anew() {
    let m = machine(&[dram(4096, 2)]);
    let one = || access("m", Pattern::Uniform, 0, Until::Accesses(200));
    let of = |times| {
        let again = Step::Repeat { steps: 1, until: Again::Times(times) };
        let sim = run(&m, vec![process("p", &[0], vec![map("m", 2000)], vec![one(), again])], &[]);
        sim.processes()[0].allocations.count()
    };
    // 200 draws of 2,000 hit about 190 pages; the same ones again would stay at that.
    let (once, twice) = (of(1), of(2));
    assert!(once > 180 && twice > once + 150, "{once} {twice}");
}

#[test]
fn steps_that_cannot_be_repeated_are_refused() {
    let m = machine(&[dram(4096, 2)]);
    let times = |steps| Step::Repeat { steps, until: Again::Times(2) };
    for (steps, what) in [
        (vec![times(1)], "step 0 repeats 1 step; 0 steps are before it"),
        (vec![Step::Wait, times(0)], "step 1 repeats 0 steps; 1 step is before it"),
        (vec![Step::Fork, Step::Wait, times(2)], "step 2 repeats a fork"),
    ] {
        let s = scenario(vec![process("p", &[0], vec![map("m", 1)], steps)]);
        let e = Simulation::new(&m, &s, &Setup::of(&s)).err().expect("refused").to_string();
        assert!(e.ends_with(what), "{e}");
    }
}

/// A neighbour bound to a fast node of 4,096 pages beside a heap that fills it.
fn beside(heap: u64) -> (ProcessFigures, u64) {
    let m = machine(&[dram(4096, 2), cxl(16384)]);
    let steps = vec![touch("m"), access("m", Pattern::Uniform, 200, for_ms(100))];
    let hog = process("hog", &[0], vec![map("m", heap)], steps);
    let mut n = neighbour(400, Again::Until(Picos::from_ms(60)));
    n.start = Picos::from_ms(20);
    let sim = run(&m, vec![hog, n], &[("demotion_enabled", "true")]);
    (sim.processes()[1].clone(), sim.vmstat().get(Item::Allocstall))
}

#[test]
fn direct_reclaim_is_seen_in_the_latency_of_allocations() {
    let (alone, stalls) = beside(16);
    assert_eq!(stalls, 0);
    let fault = alone.allocations.max_ps();
    let (pressed, stalls) = beside(6000);
    assert!(stalls > 0);
    assert!(pressed.killed.is_none());
    let a = &pressed.allocations;
    assert!(a.max_ps() > 10 * fault, "{} {fault}", a.max_ps());
    assert!(a.percentile_ps(1000) > a.percentile_ps(500));
    assert!(a.mean_ps() > fault);
}

// specs/load.md#granularity
#[test]
fn a_random_access_to_persistent_memory_moves_four_lines() {
    use homenode_core::costs::{Constant, Cost};
    let run_with = |grain: u64, write| {
        let mut m = machine(&[dram(4096, 1), pmem(4096)]);
        let line = Constant::assumed(grain, "a test's");
        m.costs.0.insert(Cost::PmemLine, line);
        let steps = vec![touch("m"), access("m", Pattern::Uniform, write, Until::Accesses(10_000))];
        let map = Map { policy: Mempolicy::Preferred(NodeId(1)), ..map("m", 1000) };
        let sim = run(&m, vec![process("p", &[0], vec![map], steps)], &[("numa_balancing", "0")]);
        let [r, w] = sim.processes()[0].accesses[1];
        assert_eq!(r + w, 11_000);
        (sim.traffic()[1], sim.now(), r, w)
    };
    for grain in [64, 256] {
        let (traffic, _, r, w) = run_with(grain, 200);
        let again = if grain > 64 { w } else { 0 };
        assert_eq!(traffic, [(r + w + again) * grain, w * grain]);
    }
    // The node is slow enough (10 GB/s) for one core to feel it, by the rise of a loaded latency.
    let (_, narrow, ..) = run_with(64, 1000);
    let (_, wide, ..) = run_with(256, 1000);
    assert!(wide > narrow * 102 / 100, "{wide} {narrow}");
    // DRAM knows no such grain.
    let mut m = machine(&[dram(4096, 1), pmem(4096)]);
    m.costs.0.insert(Cost::PmemLine, Constant::assumed(4096, "a test's"));
    let sim = run(&m, vec![process("p", &[0], vec![map("m", 100)], vec![touch("m")])], &[]);
    assert_eq!(sim.traffic()[0], [6_400, 6_400]);
}

// ── Programs that others run: specs/workloads.md#spawn ─────────────────────────

fn spawn(programs: &[&str], at_most: u32) -> Step {
    Step::Spawn { programs: programs.iter().map(|p| (*p).to_owned()).collect(), at_most }
}
fn times(steps: u32, n: u64) -> Step {
    Step::Repeat { steps, until: Again::Times(n) }
}
fn runs(ms: u64) -> Step {
    Step::Cpu(CpuStep::Compute {
        time: Picos::from_ms(ms),
        times: Vec::new(),
        jitter: 0,
        footprint: Bytes(0),
    })
}
fn starter(steps: Vec<Step>) -> Process {
    Process { threads: 1, ..process("make", &[], vec![], steps) }
}
fn spawned(name: &str, maps: Vec<Map>, steps: Vec<Step>) -> Process {
    Process { threads: 1, spawned: true, ..process(name, &[], maps, steps) }
}

#[test]
fn each_round_runs_all_programs_once_and_no_more_at_once_than_it_may() {
    let m = machine(&[dram(4096, 4)]);
    let of = |at_most| {
        let make = starter(vec![spawn(&["a", "b"], at_most), times(1, 6), Step::Wait]);
        let a = spawned("a", vec![map("m", 100)], vec![touch("m"), runs(10)]);
        let b = spawned("b", vec![map("m", 50)], vec![touch("m"), runs(5)]);
        let sim = run(&m, vec![make, a, b], &[]);
        assert_eq!(sim.free(), [4096], "what they had is free again");
        let all = sim.processes();
        assert_eq!((all[1].allocations.count(), all[2].allocations.count()), (300, 150));
        all
    };
    // One after the other: 3 × 10 and 3 × 5 ms; three at once take a third of that, and a bit.
    let one = of(1)[0].time_ps;
    assert!((45 * MS..55 * MS).contains(&one), "{one}");
    let three = of(3)[0].time_ps;
    assert!((15 * MS..32 * MS).contains(&three), "{three}");
}

#[test]
fn programs_run_programs_and_wait_for_them() {
    let m = machine(&[dram(4096, 2)]);
    let make = starter(vec![spawn(&["sh"], 2), times(1, 4), Step::Wait]);
    let sh = spawned("sh", vec![map("m", 8)], vec![touch("m"), spawn(&["cc"], 1), Step::Wait]);
    let cc = spawned("cc", vec![map("m", 40)], vec![touch("m"), runs(2)]);
    let sim = run(&m, vec![make, sh, cc], &[]);
    let counts: Vec<u64> = sim.processes().iter().map(|p| p.allocations.count()).collect();
    assert_eq!(counts, [0, 32, 160]);
    assert!(sim.processes().iter().all(|p| p.ended));
}

#[test]
fn an_end_takes_what_the_machine_says_and_what_its_pages_take() {
    let of = |exit: u64, pages| {
        let mut m = machine(&[dram(4096, 1)]);
        for (cost, value) in [(Cost::Exit, exit), (Cost::PteScan, 10_000)] {
            m.costs.0.insert(cost, Constant::assumed(value, "test"));
        }
        let make = starter(vec![spawn(&["a"], 1), Step::Wait]);
        let sim = run(&m, vec![make, spawned("a", vec![map("m", pages)], vec![touch("m")])], &[]);
        sim.processes()[1].system_ps
    };
    let free = of(0, 1);
    assert_eq!(of(70_000_000, 1) - free, 70_000_000);
    // A thousand pages more: their faults, and 10 ns each to be freed.
    let more = of(0, 1001) - free;
    let m = machine(&[dram(4096, 1)]);
    let fault = m.costs.get(Cost::MinorFault);
    assert_eq!(more % 1_000_000, (1000 * fault + 1000 * 10_000) % 1_000_000, "{more}");
    assert!(more >= 1000 * (fault + 10_000), "{more}");
}

/// Who starts by itself ends for nothing, unless it says that it pays.
#[test]
fn each_mapping_that_is_left_takes_time_at_the_end() {
    let of = |exits: bool, maps: usize| {
        let mut m = machine(&[dram(4096, 1)]);
        for (cost, value) in
            [(Cost::Exit, 70_000_000), (Cost::ExitMap, 500_000), (Cost::PteScan, 1)]
        {
            m.costs.0.insert(cost, Constant::assumed(value, "test"));
        }
        let names: Vec<String> = (0..maps).map(|n| format!("m{n}")).collect();
        let maps = names.iter().map(|name| map(name, 1)).collect();
        let p = Process { threads: 1, exits, ..process("a", &[], maps, vec![runs(1)]) };
        let all = run(&m, vec![p], &[]).processes();
        (all[0].system_ps, all[0].time_ps)
    };
    let end = |maps| {
        let ((free, ended), (pays, later)) = (of(false, maps), of(true, maps));
        assert_eq!((free, pays), (0, later - ended), "its time is the kernel's");
        pays
    };
    assert!(end(3) >= 71_500_000);
    assert_eq!(end(300) - end(3), 297 * 500_000);
}

/// Each message that another CPU has sent takes longer to receive, and each that is sent after another CPU has received one.
#[test]
fn messages_between_two_cpus_take_longer() {
    const FAR: [(Cost, u64); 2] =
        [(Cost::SocketSendFar, 1_000), (Cost::SocketReceiveFar, 1_000_000)];
    let of = |cpus: [u32; 2], kind: ChannelKind| {
        let system = |far: u64| {
            let mut m = machine(&[dram(4096, 2)]);
            for (cost, value) in FAR {
                m.costs.0.insert(cost, Constant::assumed(value * far, "test"));
            }
            let call = |write: bool, name: &str| {
                let channel = name.to_owned();
                Step::Cpu(match write {
                    true => {
                        CpuStep::Write { channel, to: Which::Own, bytes: 100, sizes: Vec::new() }
                    }
                    false => CpuStep::Read { channel, from: Which::Own, bytes: 100 },
                })
            };
            // By turns, so that it is known who has received before who sends.
            let ping = vec![call(true, "there"), call(false, "back"), times(2, 10)];
            let pong = vec![call(false, "there"), call(true, "back"), times(2, 10)];
            let one = |name: &str, cpu, steps| process(name, &[cpu], vec![], steps);
            let mut s = scenario(vec![one("ping", cpus[0], ping), one("pong", cpus[1], pong)]);
            s.channels = ["there", "back"]
                .map(|name| Channel { name: name.into(), kind, count: 1, group: 1, nodelay: false })
                .into();
            let mut sim = Simulation::new(&m, &s, &Setup::of(&s)).expect("it fits");
            sim.run();
            assert!(sim.deadlock().is_none());
            sim.processes().iter().map(|p| p.system_ps).sum::<u64>()
        };
        system(1) - system(0)
    };
    // Of the ten messages each way the first is sent before anybody has received one.
    assert_eq!(of([0, 1], ChannelKind::Socket), 20 * 1_000_000 + 18 * 1_000);
    assert_eq!(of([1, 1], ChannelKind::Socket), 0);
    assert_eq!(of([0, 1], ChannelKind::Pipe), 0);
}

#[test]
fn programs_that_nobody_can_run_are_refused() {
    let m = machine(&[dram(64, 1)]);
    let wrong = |all: Vec<Process>| {
        let s = scenario(all);
        Simulation::new(&m, &s, &Setup::of(&s)).err().expect("refused").to_string()
    };
    let make = |what: &str| starter(vec![spawn(&[what], 1)]);
    let a = || spawned("a", vec![], vec![runs(1)]);
    let loop_ = spawned("a", vec![], vec![spawn(&["a"], 1)]);
    let by_itself = Process { threads: 1, ..process("a", &[], vec![], vec![runs(1)]) };
    for (all, what) in [
        (vec![make("b"), a()], "there is no process \"b\" to run"),
        (vec![make("a"), by_itself], "\"a\" starts by itself; give it start = \"spawn\""),
        (vec![make("a"), loop_], "\"a\" stands before it; a program runs only later ones"),
        (vec![starter(vec![runs(1)]), a()], "no step runs \"a\", which doesn't start by itself"),
    ] {
        let e = wrong(all);
        assert!(e.ends_with(what), "{e}");
    }
}
