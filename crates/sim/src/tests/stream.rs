//! Streams of a given rate, and who waits beside them.
//!
//! Source: specs/load.md#stream.

use super::support::*;
use crate::build::Setup;
use crate::check::Checker;
use crate::simulation::Simulation;
use homenode_core::costs::{Constant, Cost};
use homenode_core::scenario::*;
use homenode_core::topology::Hardware;
use homenode_core::units::{NodeId, Picos};

const MS: u64 = 1_000_000_000;
/// Both nodes: so many MB/s.
const WIDE: u64 = 10_000;

/// 100 ns of DRAM and 250 of another memory, 10 GB/s each.
fn narrow(other: Spec) -> Hardware {
    let mut m = machine(&[dram(8192, 8), other]);
    for l in &mut m.links {
        (l.read_bandwidth.value, l.write_bandwidth.value) = (WIDE, WIDE);
    }
    m
}

fn on(node: u16) -> Map {
    Map { policy: Mempolicy::Bind { nodes: vec![NodeId(node)], balancing: false }, ..map("a", 512) }
}

/// A stream over memory of a node, by threads on some CPUs.
fn stream(node: u16, cpus: &[u32], rate: u64, write: u32) -> Process {
    let step = Step::Stream { map: "a".into(), rate, write, time: Picos(40 * MS) };
    process("stream", cpus, vec![on(node)], vec![touch("a"), Step::Barrier, step])
}

fn begin(m: &Hardware, processes: Vec<Process>) -> Simulation {
    let s = scenario(processes);
    Simulation::new(m, &s, &Setup::of(&s)).expect("it fits")
}

/// MB/s that a process had in its last step.
fn had(sim: &Simulation, place: usize) -> u64 {
    let p = &sim.processes()[place];
    let last = p.phases.last().expect("it streams");
    let span = last.span_ps.1 - last.span_ps.0;
    (u128::from(last.count()) * 64 * 1_000_000 / u128::from(span)) as u64
}

#[test]
fn a_stream_has_what_it_asks_for_up_to_the_bandwidth_and_no_more() {
    let m = narrow(cxl(4096));
    for (rate, cpus) in [
        (1, 1),
        (500, 1),
        (5_000, 1),
        (5_000, 4),
        (9_800, 2),
        (20_000, 1),
        (30_000, 3),
        (100_000, 1),
    ] {
        let cpus: Vec<u32> = (0..cpus).collect();
        let mut sim = begin(&m, vec![stream(0, &cpus, rate, 0)]);
        Checker::watch(&mut sim).run(&mut sim, 100 * MS, MS).expect("nothing is wrong");
        let had = had(&sim, 0);
        // Until the queue has grown, some windows serve what is asked for.
        let (least, most) = match rate / WIDE {
            0 => (rate * 99 / 100, rate),
            1..=3 => (9_600, 10_200),
            _ => (9_600, 10_600),
        };
        assert!((least..=most).contains(&had), "{cpus:?}: {had} of {rate} MB/s");
    }
}

// The example of specs/load.md#stream: half of DRAM's bandwidth is a load of one half.
#[test]
fn who_accesses_beside_a_stream_waits_as_long_as_its_load_says() {
    let m = narrow(cxl(4096));
    let wait = |rate: u64| {
        let chain = vec![
            touch("a"),
            Step::Sleep(Picos(5 * MS)),
            access("a", Pattern::Uniform, 0, for_ms(20)),
        ];
        let chain = process("chain", &[7], vec![on(0)], chain);
        let mut all = vec![chain];
        if rate > 0 {
            all.push(stream(0, &[0], rate, 0));
        }
        let mut sim = begin(&m, all);
        sim.run();
        let p = &sim.processes()[0];
        let last = p.phases.last().expect("it accesses");
        last.time_ps / last.count()
    };
    let [alone, half, one, three] = [0, WIDE / 2, WIDE, 3 * WIDE].map(wait);
    // A chain of 100 ns is a load of 0.064 itself.
    assert!((100_000..107_000).contains(&alone), "{alone}");
    assert!((122_000..129_000).contains(&half), "{half}");
    assert!((256_000..300_000).contains(&one), "{one}");
    // Three times as many lines wait as the node serves without a queue.
    assert!((700_000..850_000).contains(&three), "{three}");
}

/// A stream of three times the bandwidth presses as three do that ask for all of it.
#[test]
fn streams_add_up() {
    let m = narrow(cxl(4096));
    let wait = |streams: Vec<Process>| {
        let chain = vec![touch("a"), access("a", Pattern::Uniform, 0, for_ms(30))];
        let chain = process("chain", &[7], vec![on(0)], chain);
        let mut sim = begin(&m, [vec![chain], streams].concat());
        sim.run_until(20 * MS);
        let p = &sim.processes()[0];
        let last = p.phases.last().expect("it accesses");
        last.time_ps / last.count()
    };
    let one = wait(vec![stream(0, &[0], 3 * WIDE, 0)]);
    let three = wait((0..3).map(|cpu| stream(0, &[cpu], WIDE, 0)).collect());
    assert!(one.abs_diff(three) * 50 < one, "{one} beside one, {three} beside three");
}

#[test]
fn written_lines_go_back_beyond_the_rate() {
    let m = narrow(cxl(4096));
    let load = |write| {
        let mut sim = begin(&m, vec![stream(0, &[0], 4_000, write)]);
        sim.run_until(30 * MS);
        sim.kernel.loads.permille(0, 0)
    };
    // 0.4 of the bandwidth, and twice that.
    let curve = homenode_core::loaded::Loaded::published(homenode_core::loaded::Path::Dram);
    for (write, share) in [(0, 4), (1000, 8)] {
        let says = 1000 + ((curve.growth((1 << 16) * share / 10) * 1000) >> 16);
        let is = u64::from(load(write));
        assert!(is.abs_diff(says) <= 8, "{write}: {is}, and the curve says {says}");
    }
}

/// Lines in no order cost persistent memory four times their bytes, those in order none.
#[test]
fn a_stream_reads_whole_grains() {
    let mut m = narrow(pmem(4096));
    m.costs.0.insert(Cost::MemoryParallelism, Constant::assumed(64_000, "many lines"));
    let mut sim = begin(&m, vec![stream(1, &[0], 8_000, 0)]);
    sim.run();
    assert!((7_900..=8_000).contains(&had(&sim, 0)), "{}", had(&sim, 0));
    let any = Step::Access {
        map: "a".into(),
        pattern: Pattern::Uniform,
        write: 0,
        compute: Picos::ZERO,
        mlp: MLP_MAX,
        until: for_ms(40),
    };
    let mut sim = begin(&m, vec![process("any", &[0], vec![on(1)], vec![touch("a"), any])]);
    sim.run();
    assert!(had(&sim, 0) < 2_600, "{}", had(&sim, 0));
}

/// What joins two sockets has a bandwidth of its own, which bounds a stream too.
#[test]
fn a_stream_across_sockets_has_what_the_link_carries() {
    let mut m = machine(&[dram(4096, 1), dram(4096, 1)]);
    for l in &mut m.links {
        let mbps = if l.from == l.to { 4 * WIDE } else { WIDE };
        (l.read_bandwidth.value, l.write_bandwidth.value) = (mbps, mbps);
    }
    let mut sim = begin(&m, vec![stream(1, &[0], 3 * WIDE, 0)]);
    sim.run();
    assert!((9_600..=10_200).contains(&had(&sim, 0)), "{}", had(&sim, 0));
}

/// More threads than pages: each has a page all the same.
#[test]
fn no_thread_streams_over_nothing() {
    let m = narrow(cxl(4096));
    let mut p = stream(0, &[0, 1, 2], 3_000, 0);
    p.maps[0].size.0 = 4096;
    let mut sim = begin(&m, vec![p]);
    sim.run();
    assert!((2_900..=3_000).contains(&had(&sim, 0)), "{}", had(&sim, 0));
}
