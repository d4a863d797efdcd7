//! What other CPUs must forget: who asks for it, whom it reaches, what it takes.
//!
//! Source: specs/remote-flush.md.

use super::bench::{Bench, LISTS, kind};
use super::support::*;
use crate::build::Setup;
use crate::kernel::flush::Flush;
use crate::page::{PROTNONE, STATE};
use crate::simulation::Simulation;
use crate::space::Kind;
use crate::vmstat::Item;
use homenode_core::costs::{Constant, Cost};
use homenode_core::kernel::KernelVersion;
use homenode_core::scenario::{Pattern, Process, Step};
use homenode_core::units::NodeId;

const US: u64 = 1_000_000;
const NO_THP: (&str, &str) = ("transparent_hugepage", "never");

fn bench(version: KernelVersion, knobs_: &[(&str, &str)]) -> Bench {
    let m = machine(&[dram(4096, 1), cxl(8192)]);
    Bench::with(&m, Setup { version, knobs: knobs(knobs_), ..Setup::default() })
}
fn flushes(b: &mut Bench) -> usize {
    b.sim.kernel.take_flushes().len()
}
/// Moves pages one by one, as `move_pages` does; the flushes.
fn moved(b: &mut Bench, pages: std::ops::Range<u32>, to: usize) -> usize {
    let mut ctx = b.ctx;
    for page in pages {
        assert!(b.sim.kernel.move_page_to(&mut ctx, page, to));
    }
    flushes(b)
}

#[test]
fn base_pages_that_are_ordered_away_are_flushed_by_batches() {
    for (version, expected) in [(KernelVersion::V6_12, 3), (KernelVersion::V6_1, 1100)] {
        let mut b = bench(version, &[NO_THP]);
        b.by_hand();
        let first = b.map(1100, kind());
        b.fill(first, 1100);
        assert_eq!(flushes(&mut b), 0, "first touches");
        assert_eq!(moved(&mut b, first..first + 1100, 1), expected, "512, 512, 76 on {version}");
        // No CPU may use what the scan has marked.
        for word in &mut b.sim.kernel.memory.words[first as usize..first as usize + 1100] {
            *word = *word & !STATE | PROTNONE;
        }
        assert_eq!(moved(&mut b, first..first + 1100, 0), 0, "{version}");
        b.check();
    }
}

#[test]
fn a_huge_page_is_flushed_each_time_also_one_that_is_marked() {
    let mut b = bench(KernelVersion::V6_12, &[]);
    b.by_hand();
    let first = b.map(1024, Kind { huge: Some(true), ..kind() });
    b.fill(first, 1024);
    assert_eq!(moved(&mut b, first..first + 1, 1), 1);
    for word in &mut b.sim.kernel.memory.words[first as usize..first as usize + 512] {
        *word = *word & !STATE | PROTNONE;
    }
    assert_eq!(moved(&mut b, first..first + 1, 0), 1);
    b.check();
}

#[test]
fn pages_that_go_down_are_flushed_by_batches_of_reclaim() {
    for lists in [true, false] {
        let generations = if lists { LISTS } else { ("lru_gen", "y") };
        let mut b = bench(KernelVersion::V6_12, &[NO_THP, ("demotion_enabled", "1"), generations]);
        let first = b.map(4050, kind());
        b.fill(first, 4050);
        // Nobody has used them since, so each batch goes down whole.
        for page in first..first + 4050 {
            b.sim.kernel.memory.test_and_clear_young(page);
        }
        assert_eq!(flushes(&mut b), 0);
        b.sim.kernel.wake_kswapd(0);
        b.kswapd(0);
        let down = b.stat(Item::PgdemoteKswapd) as usize;
        let batch = if lists { 32 } else { 64 };
        assert!(down > batch, "{down}");
        let all = b.sim.kernel.take_flushes();
        // The first passes look at few pages, so batches of lists are smaller than they may be.
        let n = all.len();
        let few = if lists { down.div_ceil(batch)..=down / 8 } else { 1..=down.div_ceil(batch) };
        assert!(few.contains(&n), "{n} for {down} pages, lists: {lists}");
        let space = b.space as u32;
        assert!(all.iter().all(|f| *f == Flush::Spaces(vec![space])));
        b.check();
    }
}

#[test]
fn a_batch_of_two_processes_is_one_flush_for_both() {
    let mut b = bench(KernelVersion::V6_12, &[NO_THP]);
    b.by_hand();
    let file = Kind { file: true, shared: true, ..kind() };
    let first = b.map(10, file);
    b.fill(first, 10);
    let child = b.fork() as u32;
    flushes(&mut b);
    let parent = b.space as u32;
    let mut ctx = b.ctx;
    for page in first..first + 10 {
        assert!(b.sim.kernel.move_page_to(&mut ctx, page, 1));
    }
    assert_eq!(b.sim.kernel.take_flushes(), [Flush::Spaces(vec![parent, child])]);
}

#[test]
fn pages_that_are_written_out_are_flushed_each_and_clean_ones_by_batches() {
    use homenode_core::scenario::{Model, Swap};
    use homenode_core::units::Pages;
    for (file, each) in [(false, 1), (true, 32)] {
        let m = machine(&[dram(4096, 1)]);
        let model = Model { swap: Swap::Device(Pages(8192)), ..Model::default() };
        let knobs = knobs(&[NO_THP, LISTS]);
        let mut b = Bench::with(&m, Setup { knobs, model, ..Setup::default() });
        let first = b.map(5000, Kind { file, ..kind() });
        let mut page = first;
        while !b.sim.kernel.woken.contains(&0) {
            b.touch(page, !file).expect("there is room below");
            page += 1;
        }
        for page in first..page {
            b.sim.kernel.memory.test_and_clear_young(page);
        }
        b.kswapd(0);
        let (gone, flushes) = (b.stat(Item::PgstealKswapd) as usize, flushes(&mut b));
        assert!(gone > 32, "{gone}");
        // The first passes look at few pages, so batches are smaller than they may be.
        let few = gone.div_ceil(each)..=gone.div_ceil(each / 8 + 1);
        assert!(few.contains(&flushes), "{flushes} for {gone} pages, file: {file}");
    }
}

/// A process with two threads whose memory is moved to and fro beside one with one thread, on three CPUs.
fn beside(moves: bool, costs: [u64; 2]) -> Simulation {
    let mut m = machine(&[dram(8192, 3), dram(8192, 0)]);
    for (cost, us) in [Cost::TlbRemoteFlush, Cost::TlbRemoteFlushReceived].into_iter().zip(costs) {
        m.costs.0.insert(cost, Constant::assumed(us * US, "a test's"));
    }
    let to = |node| Step::MovePages { map: "m".into(), to: NodeId(node) };
    let part = access("m", Pattern::Uniform, 500, for_ms(2));
    let mut steps = vec![touch("m"), part.clone()];
    if moves {
        steps.extend([to(1), part.clone(), to(0), part.clone()]);
    }
    let of = |name: &str, cpus: &[u32], steps| process(name, cpus, vec![map("m", 1200)], steps);
    let other = vec![touch("m"), access("m", Pattern::Uniform, 500, for_ms(40))];
    let all: Vec<Process> = vec![of("two", &[0, 1], steps), of("one", &[2], other)];
    let s = scenario(all);
    let mut sim = Simulation::new(&m, &s, &Setup::of(&s)).expect("it fits");
    sim.run();
    sim
}

#[test]
fn who_asks_and_who_is_asked_pay_and_nobody_else() {
    let count = |sim: &Simulation| {
        let stat = sim.vmstat();
        (stat.get(Item::NrTlbRemoteFlush), stat.get(Item::NrTlbRemoteFlushReceived))
    };
    let system = |sim: &Simulation| {
        let [two, one] = &sim.processes()[..] else { panic!("two processes") };
        (two.system_ps, one.system_ps)
    };
    let free = beside(true, [0, 0]);
    let (sent, received) = count(&free);
    // Each thread orders all pages there and back; whoever comes second finds them there.
    assert_eq!((sent, received), (2 * 3, 2 * 3), "512, 512, 176 pages, twice");
    assert_eq!(count(&beside(false, [0, 0])), (0, 0));
    let asks = beside(true, [7, 0]);
    assert_eq!(count(&asks), (sent, received));
    assert_eq!(system(&asks), (system(&free).0 + 7 * US * sent, system(&free).1));
    let asked = beside(true, [0, 3]);
    assert_eq!(count(&asked), (sent, received));
    assert_eq!(system(&asked), (system(&free).0 + 3 * US * received, system(&free).1));
    assert_eq!(beside(true, [7, 3]).hash(), beside(true, [7, 3]).hash());
}

/// Threads of one process that use memory on two nodes, under NUMA balancing: flushes, and entries marked.
fn balanced(cpus: &[u32]) -> (u64, u64) {
    let m = machine(&[dram(16_384, 2), dram(16_384, 2)]);
    let use_it = access("m", Pattern::Uniform, 500, for_ms(1000));
    let one = process("p", cpus, vec![map("m", 2000)], vec![touch("m"), use_it]);
    let mut s = scenario(vec![one]);
    s.knobs = knobs(&[
        ("numa_balancing", "1"),
        ("scan_delay_ms", "10"),
        ("scan_period_min_ms", "50"),
        NO_THP,
    ]);
    let mut sim = Simulation::new(&m, &s, &Setup::of(&s)).expect("it fits");
    sim.run();
    let stat = sim.vmstat();
    (stat.get(Item::NrTlbRemoteFlush), stat.get(Item::NumaPteUpdates))
}

#[test]
fn marking_is_one_flush_a_stretch_and_none_where_nobody_else_runs() {
    let (flushes, marked) = balanced(&[0, 2]);
    // A scan goes over all 2,000 pages: one stretch.
    assert!(
        flushes >= 3 && marked <= flushes * 2000 && marked > flushes * 200,
        "{flushes} {marked}"
    );
    let (alone, marked) = balanced(&[0]);
    assert_eq!(alone, 0, "{marked}");
}

#[test]
fn who_changes_mappings_waits_until_a_scan_is_done() {
    let m = machine(&[dram(4096, 1), dram(4096, 1)]);
    let mut b = Bench::new(&m, &[("numa_balancing", "1"), ("scan_delay_ms", "1"), NO_THP]);
    let first = b.map(2000, kind());
    b.fill(first, 2000);
    b.map(20, kind());
    let (start, _) = b.last();
    let (task, space) = (b.ctx.task, b.space);
    // With one thread, pages of its own node would be passed over.
    b.sim.kernel.space_mut(space).users = 2;
    let mut began = 0;
    for _ in 0..1000 {
        if b.stat(Item::NumaPteUpdates) > 0 {
            break;
        }
        b.ctx.clock += crate::kernel::TICK;
        b.sim.kernel.numa[task].ran_ns += 4_000_000;
        began = b.ctx.clock;
        let mut ctx = b.ctx;
        b.sim.kernel.numa_tick(&mut ctx, task);
        b.ctx = ctx;
    }
    let done = b.ctx.clock;
    assert!(done > began, "it takes time to mark 2,000 pages");
    // Another thread, from the moment at which the scan began, and once it is over.
    for (from, clock) in [(began, done), (done + US, done + US)] {
        let mut alone = b.ctx;
        alone.clock = from;
        b.sim.kernel.unmap(&mut alone, space, start, start + 1);
        let took = alone.clock - clock;
        assert!((1..100 * US).contains(&took), "from {from}: until {}, {done}", alone.clock);
    }
}
