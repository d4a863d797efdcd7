//! Swarm: a seed chooses machine, programs, knobs written on the way and faults;
//! the checker recounts all along, and each seed runs twice with the same end.
//!
//! `HOMENODE_SWARM_SEEDS=from..to cargo test -p homenode-sim --test swarm` runs others
//! and as many as wanted. A failure names the seed.

#[path = "support/kit.rs"]
mod kit;
#[path = "swarm/merging.rs"]
mod merging;
mod support;

use homenode_core::engine::{Engine, Settings};
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::Policy as _;
use homenode_core::policy::seen::Source;
use homenode_core::scenario::*;
use homenode_core::topology::{Hardware, ZoneKind};
use homenode_core::units::{MBps, NodeId, Pages, Picos};
use homenode_machine::{Around as _, FaultPlan, Faulty, Machine as _, ObserveError, drive};
use homenode_sim::check::Checker;
use homenode_sim::machine::{SimMachine, knobs_for};
use homenode_sim::random::Stream;
use homenode_sim::replay::{Charge, Op, Recording, Rounds};
use homenode_sim::vmstat::Item;
use homenode_sim::{MemoryError, Overlap, Setup, Simulation};
use kit::*;
use std::sync::Arc;
use support::*;

/// What a seed stands for.
struct World {
    machine: Hardware,
    scenario: Scenario,
    setup: Setup,
    /// Writes of knobs: when (picoseconds), which, what.
    writes: Vec<(u64, &'static str, String)>,
    moves_by_hand: bool,
}

fn draw_machine(d: &mut Draw) -> Hardware {
    let pages = |d: &mut Draw| d.between(2, 16) * 512;
    let mut specs = Vec::new();
    let first = pages(d);
    let mut node = dram(first, d.between(1, 3) as u32);
    if d.one_in(3) {
        // As node 0 of a real machine: several zones.
        node.zones =
            vec![(ZoneKind::Dma, 128), (ZoneKind::Dma32, first / 2), (ZoneKind::Normal, first / 2)];
    }
    specs.push(node);
    for _ in 0..d.below(4) {
        let n = pages(d);
        specs.push(match d.below(4) {
            0 => dram(n, d.between(0, 2) as u32),
            1 => pmem(2 * n),
            _ => cxl(2 * n),
        });
    }
    if specs.len() > 2 && d.one_in(8) {
        specs[1].zones.clear();
        specs[1].cpus = 1;
    }
    machine(&specs)
}

fn draw_policy(d: &mut Draw, m: &Hardware) -> Mempolicy {
    let with: Vec<NodeId> = m.nodes.iter().filter(|n| n.managed().0 > 0).map(|n| n.id).collect();
    let one = d.of(&with);
    match d.below(12) {
        0 => Mempolicy::Local,
        1 => Mempolicy::Preferred(one),
        2 => Mempolicy::Interleave(with),
        3 => Mempolicy::WeightedInterleave(
            with.iter().map(|&n| (n, d.between(1, 5) as u8)).collect(),
        ),
        4 => Mempolicy::Bind { nodes: vec![one], balancing: d.one_in(2) },
        5 => Mempolicy::Bind { nodes: with, balancing: true },
        _ => Mempolicy::Default,
    }
}

fn draw_pattern(d: &mut Draw) -> Pattern {
    match d.below(9) {
        5 => Pattern::NormalIh,
        6 => Pattern::Normal { deviation: d.between(1, 900) as u32 },
        7 => Pattern::Pareto { alpha: d.between(300, 2000) as u32 },
        8 => Pattern::Linear { stride: d.between(1, 9) as u32 },
        0 => Pattern::Uniform,
        1 => Pattern::Gauss { sd: d.between(20, 300) as u32 },
        2 => Pattern::Zipf { theta: d.between(300, 1500) as u32 },
        3 => Pattern::Sequential,
        _ => Pattern::HotSpot {
            size: d.between(10, 300) as u32,
            share: d.between(300, 990) as u32,
            every: Picos::from_ms(d.between(5, 80)),
        },
    }
}

fn draw_process(d: &mut Draw, m: &Hardware, i: u64, share: u64) -> Process {
    let maps: Vec<Map> = (0..d.between(1, 3))
        .map(|n| {
            let mut x = map(&format!("m{n}"), d.between(1, share.max(2)));
            x.file = d.one_in(4);
            x.shared = d.one_in(5);
            x.read_only = x.file && d.one_in(2);
            x.huge = [Some(true), None, None, Some(false)][d.below(4) as usize];
            if d.one_in(3) {
                x.policy = draw_policy(d, m);
            }
            x
        })
        .collect();
    let mut live: Vec<usize> = (0..maps.len()).collect();
    let mut steps = Vec::new();
    let mut forks = 0;
    for _ in 0..d.between(2, 9) {
        if live.is_empty() {
            break;
        }
        let which = d.of(&live);
        let name = &maps[which].name;
        match d.below(14) {
            0 | 1 if !maps[which].read_only => steps.push(touch(name)),
            2 if forks < 2 => {
                forks += 1;
                steps.push(Step::Fork);
            }
            3 => steps.push(Step::Wait),
            4 => steps.push(Step::Sleep(Picos::from_ms(d.between(1, 20)))),
            5 if d.one_in(3) => {
                live.retain(|&l| l != which);
                steps.push(Step::Unmap { map: name.clone() });
            }
            5 if d.one_in(3) => {
                // Gone and made again, which is new memory at another place.
                steps.push(Step::Unmap { map: name.clone() });
                steps.push(Step::Map { map: name.clone() });
            }
            5 => steps.push(Step::Barrier),
            6 if d.one_in(4) && !maps[which].read_only => {
                let order =
                    d.of(&[TouchOrder::Linear, TouchOrder::MiddleFirst, TouchOrder::Scattered]);
                steps.push(Step::Initialize { map: name.clone(), order });
            }
            6 => steps.push(Step::Mbind { map: name.clone(), policy: draw_policy(d, m) }),
            7 => {
                let with: Vec<NodeId> =
                    m.nodes.iter().filter(|n| n.managed().0 > 0).map(|n| n.id).collect();
                steps.push(Step::MovePages { map: name.clone(), to: d.of(&with) });
            }
            8 if d.one_in(4) => {
                let write = if maps[which].read_only { 0 } else { d.of(&[0, 500, 1000]) };
                let (rate, ms) = (d.of(&[1, 300, 5_000, 100_000]), d.between(1, 20));
                let time = Picos::from_ms(ms);
                steps.push(Step::Stream { map: name.clone(), rate, write, time });
            }
            _ => {
                let write = if maps[which].read_only { 0 } else { d.of(&[0, 100, 300, 1000]) };
                let until = if d.one_in(2) {
                    Until::Accesses(d.between(1, 60_000))
                } else {
                    for_ms(d.between(1, 60))
                };
                let mut step = access(name, draw_pattern(d), write, until);
                if let Step::Access { compute, mlp, .. } = &mut step {
                    *compute = Picos::from_ns(d.of(&[0, 0, 50, 2000]));
                    *mlp = d.of(&[1, 1, 4, 64]);
                }
                steps.push(step);
            }
        }
    }
    if forks == 0 && !steps.is_empty() && d.one_in(3) {
        let until = if d.one_in(2) {
            Again::Times(d.between(2, 4))
        } else {
            Again::Until(Picos::from_ms(d.between(1, 80)))
        };
        let n = d.between(1, steps.len() as u64) as u32;
        steps.push(Step::Repeat { steps: n, until });
    }
    let cpus: Vec<u32> = match d.below(3) {
        0 => m.cpus.iter().map(|c| c.id.0).collect(),
        _ => vec![d.of(&m.cpus).id.0],
    };
    let mut p = process(&format!("p{i}"), &cpus, maps, steps);
    p.start = Picos::from_ms(d.below(30));
    if d.one_in(3) {
        p.policy = draw_policy(d, m);
    }
    p
}

fn draw_knob(d: &mut Draw) -> (&'static str, String) {
    match d.below(9) {
        0..=2 => ("numa_balancing", d.below(4).to_string()),
        3 => ("demotion_enabled", d.of(&["true", "false"]).into()),
        4 => ("scan_size_mb", d.of(&["1", "4", "16", "256"]).into()),
        5 => ("watermark_scale_factor", d.of(&["10", "100", "500"]).into()),
        6 => ("hot_threshold_ms", d.of(&["1", "20", "1000"]).into()),
        7 => ("numa_balancing_promote_rate_limit_MBps", d.of(&["0", "1", "16", "65536"]).into()),
        _ => ("swappiness", d.of(&["0", "60", "200"]).into()),
    }
}

/// Reads and writes of the kernel's files, sense and nonsense, by root and others.
fn draw_action(d: &mut Draw, processes: u64) -> Action {
    let paths = [
        "/proc/sys/kernel/numa_balancing",
        "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps",
        "/proc/sys/vm/watermark_scale_factor",
        "/proc/sys/vm/swappiness",
        "/sys/kernel/mm/numa/demotion_enabled",
        "/sys/kernel/debug/sched/numa_balancing/scan_size_mb",
        "/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms",
        "/proc/zoneinfo",
    ];
    let what = if d.one_in(3) {
        let view = match d.below(4) {
            0 => "/proc/vmstat".to_owned(),
            1 => "/proc/zoneinfo".to_owned(),
            2 => "/sys/devices/system/node/node0/numastat".to_owned(),
            _ => format!("/proc/{{p{}}}/numa_maps", d.below(processes)),
        };
        FileOp::Read { path: view }
    } else {
        let text = d.of(&["0", "1", "2", "3", "4", "16", "-1", "1x", "", "true", "0x8", "1e9"]);
        FileOp::Write { path: d.of(&paths).into(), text: text.into() }
    };
    let who = d.of(&[Rights::Root, Rights::Root, Rights::RootWithoutCaps, Rights::Nobody]);
    Action { at: Picos::from_ms(d.below(200)), who, what, expect: None }
}

/// What a write that was refused must leave as it is.
fn knobs_of(sim: &Simulation) -> Vec<Option<String>> {
    let paths = ["/proc/sys/kernel", "/proc/sys/vm", "/sys/kernel/debug/sched/numa_balancing"];
    let all = paths.iter().flat_map(|p| {
        let names = sim.list(p).unwrap_or_default();
        names.into_iter().map(move |n| format!("{p}/{n}"))
    });
    all.map(|path| sim.read_file(&path).ok()).collect()
}

fn world(seed: u64) -> World {
    let mut d = Draw(Stream::new(seed, "swarm"));
    let machine = draw_machine(&mut d);
    let all: u64 = machine.nodes.iter().map(|n| n.managed().0).sum();
    let n = d.between(1, 3);
    // From an idle machine to one that is short of memory.
    let share = all * d.of(&[1, 3, 6, 9]) / (8 * n);
    let processes: Vec<Process> =
        (0..n).map(|i| draw_process(&mut d, &machine, i, share)).collect();
    let mut s = scenario(processes);
    s.seed = seed;
    s.duration = Some(Picos::from_ms(d.between(40, 250)));
    // Slow start would end after these short runs: sampling begins at once.
    s.knobs = knobs(&[("scan_delay_ms", d.of(&["0", "8"])), ("scan_period_min_ms", "8")]);
    s.knobs.push(("scan_period_max_ms".into(), d.of(&["40", "1000"]).into()));
    s.knobs.push(("numa_balancing".into(), d.of(&["0", "1", "2", "2", "3"]).into()));
    s.knobs.push(("demotion_enabled".into(), d.of(&["true", "true", "false"]).into()));
    s.knobs.push(("scan_size_mb".into(), d.of(&["4", "64"]).into()));
    if d.one_in(2) {
        s.knobs.push(("transparent_hugepage".into(), "never".into()));
    }
    s.model.swap = match d.below(3) {
        0 => Swap::None,
        1 => Swap::Device(Pages(d.between(1, 600))),
        _ => Swap::Device(Pages(1 << 16)),
    };
    s.model.admission = d.of(&[AdmissionChoice::B, AdmissionChoice::B, AdmissionChoice::A]);
    s.model.margin = d.of(&[Margin::Kernel, Margin::SeedQuarter, Margin::PostedQuarter]);
    s.model.slow_start = d.of(&[SlowStart::Today, SlowStart::Seed]);
    s.model.hot_page_selection = !d.one_in(4);
    if d.one_in(4) {
        s.model.order = CpuOrder::Quantum(Picos::from_us(d.between(1, 10)));
    }
    let mut setup = Setup::of(&s);
    setup.version = d.of(&[
        KernelVersion::V6_12,
        KernelVersion::V6_12,
        KernelVersion::V6_1,
        KernelVersion::V7_3,
        KernelVersion::V5_18,
    ]);
    setup.fail_moves = d.of(&[0, 0, 0, 100, 500]);
    let mut writes: Vec<(u64, &'static str, String)> = (0..d.below(4))
        .map(|_| {
            let (name, value) = draw_knob(&mut d);
            (Picos::from_ms(d.between(1, 200)).0, name, value)
        })
        .collect();
    s.actions = (0..d.below(6)).map(|_| draw_action(&mut d, n)).collect();
    let moves_by_hand =
        s.processes.iter().any(|p| p.steps.iter().any(|s| matches!(s, Step::MovePages { .. })));
    // Half of them begin with generations, and some go over to them or leave them on the way.
    if d.one_in(2) {
        setup.knobs.push(("lru_gen".into(), d.of(&["y", "y", "1", "3", "5"]).into()));
    }
    for _ in 0..d.below(3) {
        let at = Picos::from_ms(d.between(1, 200)).0;
        writes.push((at, "lru_gen", d.of(&["y", "n", "1", "7"]).into()));
    }
    if d.one_in(8) {
        setup.knobs.push(("lru_gen_min_ttl_ms".into(), d.of(&["1", "20", "1000"]).into()));
    }
    World { machine, scenario: s, setup, writes, moves_by_hand }
}

/// What two orders of the same accesses agree on: nothing that depends on who came first.
#[derive(Debug, PartialEq, Eq)]
struct Conserved {
    ended: Vec<String>,
    accesses: Vec<u64>,
    pages: u64,
}

fn simulate(w: &World, order: Option<CpuOrder>) -> Result<Simulation, String> {
    let mut setup = w.setup.clone();
    if let Some(order) = order {
        setup.model.order = order;
    }
    // A version may not have one of the knobs: it starts without it then.
    let mut refused = Vec::new();
    let mut sim = loop {
        match Simulation::new(&w.machine, &w.scenario, &setup) {
            Ok(sim) => break sim,
            Err(homenode_sim::SimError::Knob(e)) => {
                let before = setup.knobs.len();
                let text = e.to_string();
                setup.knobs.retain(|(name, _)| !text.contains(name.as_str()));
                if setup.knobs.len() == before {
                    return Err(text);
                }
                refused.push(text);
            }
            Err(e) => return Err(e.to_string()),
        }
    };
    let mut checker = Checker::watch(&mut sim);
    checker.moves_by_hand = w.moves_by_hand;
    let end = setup.duration.unwrap_or(u64::MAX);
    let mut writes = w.writes.clone();
    writes.sort();
    const STEP: u64 = 7_300_000_000;
    for (at, name, value) in writes.into_iter().filter(|w| w.0 < end) {
        checker.run(&mut sim, at, STEP)?;
        // What a version does not have is refused, and nothing changes.
        let before = knobs_of(&sim);
        if sim.set_knob(name, &value).is_err() && knobs_of(&sim) != before {
            return Err(format!("{name}={value} was refused, but changed something"));
        }
    }
    checker.run(&mut sim, end, STEP)?;
    if let Some(e) = sim.error() {
        return Err(format!("memory: {e}"));
    }
    Ok(sim)
}

/// What a world went through.
struct Reached {
    /// The counters at the end.
    counters: Vec<u64>,
    /// Pages that merging has reached: shared further, of zeroes, duplicates, skipped.
    merged: [u64; 4],
    /// Writes and reads of files: those that were answered and those that were refused.
    answered: usize,
    refused: usize,
}

/// Lets a third of the worlds merge pages: contents, who may merge, ksmd's knobs before
/// and in the middle of the run.
fn let_merge(w: &mut World, seed: u64) {
    let mut d = Draw(Stream::new(seed, "merge"));
    let d = &mut d;
    let today = w.setup.version >= KernelVersion::V6_12;
    let content = |d: &mut Draw| match d.below(4) {
        0 => Content::Own,
        1 => Content::Zero,
        _ => Content::Image {
            name: d.of(&["a", "b"]).into(),
            distinct: d.one_in(2).then(|| Pages(d.between(1, 64))),
        },
    };
    for p in &mut w.scenario.processes {
        p.memory_merge = today && d.one_in(4);
        for m in &mut p.maps {
            m.content = content(d);
            m.mergeable = !d.one_in(3);
        }
        for _ in 0..d.below(4) {
            let m = d.of(&p.maps);
            let step = match d.below(3) {
                0 => Step::Madvise { map: m.name.clone(), mergeable: d.one_in(2) },
                _ if m.read_only => continue,
                _ => Step::Fill { map: m.name.clone(), content: content(d) },
            };
            let at = d.below(p.steps.len() as u64 + 1) as usize;
            p.steps.insert(at, step);
        }
    }
    let knob = |d: &mut Draw| -> (&'static str, &'static str) {
        match d.below(9) {
            0 => ("run", d.of(&["0", "1", "1", "2"])),
            1 => ("merge_across_nodes", d.of(&["0", "1"])),
            2 => ("max_page_sharing", d.of(&["2", "5", "256"])),
            3 => ("use_zero_pages", d.of(&["0", "1"])),
            4 => ("sleep_millisecs", d.of(&["0", "4", "20"])),
            5 => ("stable_node_chains_prune_millisecs", d.of(&["0", "2000"])),
            6 if today => ("smart_scan", d.of(&["0", "1"])),
            7 if today && d.one_in(3) => ("advisor_mode", d.of(&["none", "scan-time"])),
            _ => ("pages_to_scan", d.of(&["0", "10", "300", "5000"])),
        }
    };
    let mut before: Vec<(&str, &str)> = vec![("pages_to_scan", "1000"), ("sleep_millisecs", "4")];
    // An advisor would refuse a later pages_to_scan.
    before.extend((0..d.below(5)).map(|_| knob(d)).filter(|k| k.0 != "advisor_mode"));
    if d.one_in(8) {
        // Two sleep on merged pages while a third one needs the memory.
        let all: u64 = w.machine.nodes.iter().map(|n| n.managed().0).sum();
        let image = Content::Image { name: "a".into(), distinct: None };
        let m = Map { content: image, mergeable: true, ..map("m", all / 16) };
        let rest = Step::Sleep(Picos::from_ms(1_500));
        let read = access("m", Pattern::Sequential, 0, Until::Accesses(all / 16));
        let cpu = w.machine.cpus[0].id.0;
        let sleeper = process("sleeper", &[cpu], vec![m], vec![touch("m"), rest, read]);
        let often = access("m", Pattern::Uniform, 300, Until::Accesses(100_000));
        let big = vec![map("m", all * 19 / 20)];
        let presses = vec![touch("m"), often.clone(), often];
        let presser = process("presser", &[cpu], big, presses);
        let late = Process { start: Picos::from_ms(100), ..presser };
        w.scenario.processes = vec![sleeper.clone(), sleeper, late];
        w.scenario.actions.clear();
        w.scenario.model.swap = Swap::Device(Pages(1 << 16));
        w.setup.model.swap = w.scenario.model.swap;
        w.setup.duration = Some(3_000_000_000_000);
        before.retain(|k| !["run", "pages_to_scan", "sleep_millisecs"].contains(&k.0));
        before.extend([("pages_to_scan", "5000"), ("sleep_millisecs", "4")]);
    }
    before.push(("run", "1"));
    w.setup.ksm = knobs(&before);
    for _ in 0..d.below(6) {
        let (name, text) = knob(d);
        w.scenario.actions.push(Action {
            at: Picos::from_ms(d.below(200)),
            who: Rights::Root,
            what: FileOp::Write { path: format!("/sys/kernel/mm/ksm/{name}"), text: text.into() },
            expect: None,
        });
    }
}

fn run_seed(seed: u64) -> Result<Reached, String> {
    let mut w = world(seed);
    if seed % 3 == 0 {
        let_merge(&mut w, seed);
    }
    let w = w;
    let first = simulate(&w, None)?;
    let second = simulate(&w, None)?;
    if first.hash() != second.hash() {
        return Err(format!("hashes {:#x} and {:#x}", first.hash(), second.hash()));
    }
    let outcomes = first.outcomes().iter().filter_map(|o| o.result.as_ref());
    let (answered, refused): (Vec<_>, Vec<_>) = outcomes.partition(|r| r.is_ok());
    Ok(Reached {
        counters: Item::ALL.iter().map(|&item| first.vmstat().get(item)).collect(),
        merged: first.merging().map_or([0; 4], |m| {
            let c = m.counters;
            [c.pages_sharing, c.ksm_zero_pages as u64, m.stable_node_dups, c.pages_skipped]
        }),
        answered: answered.len(),
        refused: refused.len(),
    })
}

#[test]
fn every_seed_keeps_what_must_hold() {
    let seeds = seeds(0..1000);
    let enough = seeds.end - seeds.start >= 240;
    let all = swarm("seeds", seeds, run_seed);
    // Silence means something only if the swarm gets everywhere.
    for (i, item) in Item::ALL.iter().enumerate() {
        let sum: u64 = all.iter().map(|r| r.counters[i]).sum();
        assert!(!enough || sum > 0, "no seed reaches {}", item.name());
    }
    for (i, what) in ["sharing", "zeroes", "duplicates", "skipped"].into_iter().enumerate() {
        let sum: u64 = all.iter().map(|r| r.merged[i]).sum();
        assert!(!enough || sum > 0, "no seed reaches {what}");
    }
    let files = all.iter().fold((0, 0), |f, r| (f.0 + r.answered, f.1 + r.refused));
    assert!(!enough || files.0 > 100 && files.1 > 100, "answered and refused: {files:?}");
}

/// Quanta and strict order share no schedule, so pages may lie elsewhere; but the
/// same accesses are made and the same pages are used.
#[test]
fn quanta_and_strict_order_agree_on_what_is_conserved() {
    for seed in seeds(1000..1012) {
        let mut w = world(seed);
        // Fixed numbers of accesses on memory that suffices, until all have ended.
        w.setup.duration = None;
        w.setup.fail_moves = 0;
        w.writes.clear();
        for p in &mut w.scenario.processes {
            p.policy = Mempolicy::Default;
            if p.cpus.len() > 1 {
                // Which thread takes a mapping from under the others depends on the order.
                p.steps.retain(|s| {
                    !matches!(s, Step::Unmap { .. } | Step::Map { .. } | Step::Repeat { .. })
                });
            }
            for m in &mut p.maps {
                m.policy = Mempolicy::Default;
                m.size.0 = (m.size.0 / 16).max(4096);
                m.huge = None;
            }
            for s in &mut p.steps {
                match s {
                    Step::Access { until, pattern, .. } => {
                        *until = Until::Accesses(2000);
                        // Where a hot spot lies depends on the time.
                        if matches!(pattern, Pattern::HotSpot { .. }) {
                            *pattern = Pattern::Uniform;
                        }
                    }
                    // How many lines it has depends on the load.
                    Step::Stream { map, write, .. } => {
                        *s = access(map, Pattern::Sequential, *write, Until::Accesses(2000));
                    }
                    Step::Mbind { policy, .. } => *policy = Mempolicy::Default,
                    Step::Repeat { until, .. } => *until = Again::Times(2),
                    _ => {}
                }
            }
        }
        let of = |order| {
            let mut s = simulate(&w, Some(order)).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            s.run();
            let p = s.processes();
            Conserved {
                ended: p.iter().map(|p| format!("{} {:?}", p.ended, p.killed)).collect(),
                accesses: p.iter().map(|p| p.accesses.iter().flatten().sum()).collect(),
                pages: s.vmstat().get(Item::Pgalloc) - s.vmstat().get(Item::Pgfree),
            }
        };
        let strict = of(CpuOrder::Strict);
        assert_eq!(of(CpuOrder::Quantum(Picos::from_us(10))), strict, "seed {seed}");
        assert_eq!(strict.pages, 0, "seed {seed}: everything has ended");
    }
}

/// The engine on a world, with a source and faults that the seed draws: what the kernel
/// holds stays right, and what the engine believes of its orders adds up.
fn drive_seed(seed: u64) -> Result<u64, String> {
    let mut w = world(seed);
    let mut d = Draw(Stream::new(seed, "engine"));
    let source = d.of(&[Source::Damon, Source::Damon, Source::Pmu, Source::HintFault]);
    w.setup.knobs.extend(knobs_for(source));
    w.setup.knobs.retain(|(k, _)| k != "transparent_hugepage" || seed % 2 == 0);
    // What the world writes on the way may be the source's own switch: then it goes blind.
    let mut often = || d.of(&[0, 0, 50, 300]);
    let plan = FaultPlan {
        seed,
        refuse: often(),
        lose: often(),
        delay: often(),
        partial: often(),
        vanish: often() / 10,
        silence: often() / 10,
    };
    // These worlds are over in a quarter of a second; so is everything that it waits for.
    let ms = Picos::from_ms;
    let settings = Settings {
        start_delay: ms(d.between(1, 20)),
        interval: ms(d.between(5, 40)),
        short: ms(20),
        long: ms(100),
        fresh: ms(100),
        look_again: ms(200),
        backoff: ms(20),
        cpu_permille: d.of(&[10, 200, 1000]),
        moved_mbps: MBps(d.of(&[100, 2000])),
        most_mbps: MBps(d.of(&[100, 1000, 4000])),
        ..Settings::default()
    };
    let once = || {
        let mut sim = match Simulation::new(&w.machine, &w.scenario, &w.setup) {
            Ok(sim) => sim,
            // A kernel that lacks one of the knobs is none of this test's.
            Err(homenode_sim::SimError::Knob(_)) => return Ok(None),
            Err(e) => return Err(e.to_string()),
        };
        let mut checker = Checker::watch(&mut sim);
        checker.moves_by_hand = true;
        let version = w.setup.version;
        let mut machine =
            Faulty::new(SimMachine::new(sim, source).map_err(|e| e.to_string())?, plan);
        let caps = machine.caps().clone();
        let topology = machine.topology().clone();
        let mut engine =
            Engine::new(settings, &topology, version, source, &caps.lacks, caps.most_pages)
                .bringing_threads(caps.affinity);
        for step in 1..=10 {
            let until = Picos(w.setup.duration.unwrap_or(1 << 38) * step / 10);
            match drive(&mut machine, &mut engine, until) {
                Ok(()) | Err(ObserveError::Ended) => {}
                Err(e) => return Err(e.to_string()),
            }
            let found = checker.findings(machine.inside().simulation());
            if !found.is_empty() {
                return Err(format!("at step {step}:\n  {}", found.join("\n  ")));
            }
        }
        let l = engine.ledger();
        let t = l.total();
        if t.tried != t.moved + t.fails.all() + l.unexplained || l.strays > 0 {
            return Err(format!("the ledger does not add up: {t:?}, strays {}", l.strays));
        }
        if t.moved > machine.inside().moved() {
            return Err(format!(
                "{:?} pages said to be moved, {:?} were",
                t.moved,
                machine.inside().moved()
            ));
        }
        Ok(Some((machine.inside().hash(), t.moved.0)))
    };
    let (first, second) = (once()?, once()?);
    if first != second {
        return Err(format!("not the same twice: {first:?}, {second:?}"));
    }
    Ok(first.map_or(0, |(_, moved)| moved))
}

#[test]
fn the_engine_keeps_what_must_hold_under_faults() {
    let seeds = seeds(0..500);
    let enough = seeds.end - seeds.start >= 200;
    let moved: u64 = swarm("worlds with the engine", seeds, drive_seed).into_iter().sum();
    assert!(!enough || moved > 1000, "the engine moved {moved} pages in all worlds");
}

/// A recording that makes no sense, but may be written in a file.
fn draw_recording(d: &mut Draw) -> Recording {
    let tasks = d.between(1, 4) as u32;
    let mut r = Recording::new(tasks as usize);
    let reach = d.of(&[40u64, 700, 3000]);
    for task in 0..tasks {
        for _ in 0..d.between(1, 400) {
            let page = 0x10_0000 + d.below(reach);
            let most = d.of(&[1, 20, 600]);
            let pages = d.between(1, most);
            let prot = [d.below(8) > 0, d.below(3) > 0, d.one_in(4)];
            let child = d.below(u64::from(tasks) + 1) as u32;
            let op = match d.below(40) {
                0..=2 => Op::Map { page, pages, prot, file: d.one_in(3), shared: d.one_in(4) },
                3 => Op::Unmap { page, pages },
                4 => Op::Protect { page, pages, prot },
                5 => Op::Remap { page, pages, to: 0x10_0000 + d.below(2 * reach) },
                6 => Op::Discard { page, pages },
                7 if d.one_in(3) => Op::Fork { child },
                8 if d.one_in(3) => Op::Thread { child },
                9 if d.one_in(6) => Op::Exec,
                10 if d.one_in(8) => Op::Exit,
                11 => Op::Wait { child: Some(child) },
                _ => {
                    let write = d.one_in(2);
                    let (a, b) = (d.below(9) as u32, d.below(9) as u32);
                    Op::Access {
                        page,
                        reads: a,
                        writes: if write { b } else { 0 },
                        write,
                        stream: d.one_in(4),
                    }
                }
            };
            r.push(task, d.below(20_000), op);
        }
    }
    r
}

/// Replays of such recordings: mappings are made, moved, protected and dropped in
/// ways that no scenario has.
#[test]
fn every_recording_keeps_what_must_hold() {
    swarm("recordings", seeds(0..1000), |seed| {
        let mut d = Draw(Stream::new(seed, "recordings"));
        let machine = draw_machine(&mut d);
        let recording = Arc::new(draw_recording(&mut d));
        let mut setup = Setup { seed, ..Setup::default() };
        setup.knobs = knobs(&[("scan_delay_ms", "0"), ("scan_period_min_ms", "4")]);
        setup.knobs.push(("numa_balancing".into(), d.below(4).to_string()));
        setup.model.swap = d.of(&[Swap::None, Swap::Device(Pages(500))]);
        setup.fail_moves = d.of(&[0, 300]);
        let charge = Charge {
            as_per_insn: 250_000_000,
            own_as_per_insn: Arc::default(),
            rounds: Rounds::Count(d.between(1, 6)),
            policy: draw_policy(&mut d, &machine),
            overlap: d.of(&[None, Some(Overlap::of(&machine)), Some(Overlap::chain())]),
            cpus: Vec::new(),
        };
        let once = || {
            let mut sim = Simulation::replay(&machine, &setup, &recording, "r", &charge)
                .map_err(|e| e.to_string())?;
            let checker = Checker::watch(&mut sim);
            checker.run(&mut sim, Picos::from_secs(20).0, Picos::from_us(900).0)?;
            match sim.error() {
                // Children of children may need more room than was foreseen.
                Some(MemoryError::Room(_)) => Ok(sim.hash()),
                Some(e) => Err(format!("memory: {e}")),
                None if sim.idle() => Ok(sim.hash()),
                None => Err("it doesn't end".to_owned()),
            }
        };
        let (first, second) = (once()?, once()?);
        if first == second { Ok(()) } else { Err("it isn't the same twice".into()) }
    });
}
