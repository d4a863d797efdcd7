//! Worlds with merging: guests whose pages hold declared contents fork, end, write and
//! change their minds, while root writes to all files of merging at any time, legally and
//! not, takes memory offline and brings it back.

use super::kit::*;
use super::support::*;
use super::{draw_machine, draw_pattern, draw_policy};
use homenode_core::costs::{Constant, Cost};
use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::Errno;
use homenode_core::ksm::register::has_merge_any;
use homenode_core::scenario::*;
use homenode_core::topology::Hardware;
use homenode_core::units::{NodeId, Pages, Picos};
use homenode_sim::check::Checker;
use homenode_sim::random::Stream;
use homenode_sim::vmstat::Item;
use homenode_sim::{Setup, Simulation};

fn draw_content(d: &mut Draw) -> Content {
    match d.below(6) {
        0 => Content::Own,
        1 => Content::Zero,
        n => Content::Image {
            name: if n < 4 { "base" } else { "other" }.into(),
            distinct: d.of(&[None, Some(Pages(1)), Some(Pages(7)), Some(Pages(90))]),
        },
    }
}

fn draw_guest(d: &mut Draw, m: &Hardware, i: u64, share: u64) -> Process {
    let maps: Vec<Map> = (0..d.between(1, 3))
        .map(|n| {
            let mut x = map(&format!("m{n}"), d.between(1, share.clamp(2, 900)));
            x.content = draw_content(d);
            x.mergeable = !d.one_in(3);
            x.file = d.one_in(12);
            x.shared = d.one_in(12);
            x.huge = [Some(true), None, Some(false)][d.below(3) as usize];
            if d.one_in(3) {
                x.policy = draw_policy(d, m);
            }
            x
        })
        .collect();
    let with: Vec<NodeId> = m.nodes.iter().filter(|n| n.managed().0 > 0).map(|n| n.id).collect();
    let mut steps = vec![touch("m0")];
    let mut forks = 0;
    for _ in 0..d.between(3, 12) {
        let map = d.of(&maps).name;
        let step = match d.below(16) {
            0 | 1 => touch(&map),
            2..=4 => Step::Fill { map, content: draw_content(d) },
            5 | 6 => Step::Madvise { map, mergeable: !d.one_in(3) },
            7 if forks < 2 => {
                forks += 1;
                Step::Fork
            }
            8 => Step::Wait,
            9 | 10 => Step::Sleep(Picos::from_ms(d.between(1, 25))),
            11 => Step::MovePages { map, to: d.of(&with) },
            12 => {
                steps.push(Step::Unmap { map: map.clone() });
                Step::Map { map }
            }
            13 => Step::Mbind { map, policy: draw_policy(d, m) },
            _ => {
                let until = Until::Accesses(d.between(1, 4000));
                let write = d.of(&[0, 0, 30, 300]);
                access(&map, draw_pattern(d), write, until)
            }
        };
        steps.push(step);
    }
    if d.one_in(2) {
        // A guest that rests: ksmd gets through its memory.
        steps.push(Step::Sleep(Picos::from_ms(d.between(30, 90))));
    }
    let cpus: Vec<u32> = match d.below(4) {
        0 => m.cpus.iter().map(|c| c.id.0).collect(),
        _ => vec![d.of(&m.cpus).id.0],
    };
    let mut p = process(&format!("g{i}"), &cpus, maps, steps);
    p.start = Picos::from_ms(d.below(20));
    p.memory_merge = d.one_in(4);
    if d.one_in(3) {
        p.policy = draw_policy(d, m);
    }
    p
}

/// A write, or a read, of one of merging's files: sense and nonsense.
fn draw_file(d: &mut Draw) -> FileOp {
    const FOLDER: &str = "/sys/kernel/mm/ksm";
    let (name, texts): (&str, &[&str]) = match d.below(16) {
        0..=3 => ("run", &["0", "1", "1", "2", "2", "3", "", "x"]),
        4 | 5 => ("merge_across_nodes", &["0", "1", "2", "-1"]),
        6 => ("max_page_sharing", &["2", "3", "256", "1", "0", "many"]),
        7 => ("use_zero_pages", &["0", "1", "2", "true"]),
        8 => ("smart_scan", &["0", "1", "x"]),
        9 => ("pages_to_scan", &["1", "100", "5000", "0", "-1", "1e3"]),
        10 => ("sleep_millisecs", &["0", "1", "20", "99999999999"]),
        11 => ("stable_node_chains_prune_millisecs", &["0", "1", "2000"]),
        12 => ("advisor_mode", &["scan-time", "none", "[none]", ""]),
        13 => ("advisor_max_cpu", &["1", "70", "0", "101"]),
        14 => ("pages_shared", &["0"]),
        _ => ("general_profit", &[]),
    };
    let path = format!("{FOLDER}/{name}");
    match texts {
        [] => FileOp::Read { path },
        texts => FileOp::Write { path, text: (*d.of(texts)).to_owned() },
    }
}

fn draw_block(d: &mut Draw, blocks: u64) -> FileOp {
    let folder = format!("/sys/devices/system/memory/memory{}", d.below(blocks));
    let (name, text) = match d.below(8) {
        0..=3 => ("state", "offline"),
        4 | 5 => ("state", "online"),
        6 => ("online", d.of(&["0", "1", "x"])),
        _ => return FileOp::Read { path: format!("{folder}/state") },
    };
    FileOp::Write { path: format!("{folder}/{name}"), text: text.into() }
}

fn world(seed: u64) -> (Hardware, Scenario, Setup) {
    let mut d = Draw(Stream::new(seed, "merging"));
    let mut machine = draw_machine(&mut d);
    let all: u64 = machine.nodes.iter().map(|n| n.managed().0).sum();
    let n = d.between(1, 4);
    let share = all * d.of(&[1, 2, 5]) / (8 * n);
    let mut guests: Vec<Process> = (0..n).map(|i| draw_guest(&mut d, &machine, i, share)).collect();
    let pressed = d.one_in(6);
    if pressed {
        // One that nothing is merged of, and that is so large that guests which rest are
        // swapped out; then it goes, and they come back. It goes round its memory several
        // times: a page that many map is passed over at first.
        let mut hog = map("hog", all * d.of(&[10, 12, 14]) / 8);
        hog.huge = d.one_in(4).then_some(true);
        let again = access("hog", Pattern::Sequential, 300, for_ms(d.between(30, 60)));
        let cpu = d.of(&machine.cpus).id.0;
        let mut hog = process("hog", &[cpu], vec![hog], vec![touch("hog"), again]);
        hog.start = Picos::from_ms(d.between(30, 50));
        for g in &mut guests {
            g.start = Picos::from_ms(d.below(5));
            let first = &mut g.maps[0];
            (first.file, first.shared, first.mergeable) = (false, false, true);
            first.content = Content::Image { name: "base".into(), distinct: Some(Pages(200)) };
            first.size = Pages(d.between(300, 900)).bytes();
            let back = access("m0", Pattern::Sequential, 10, Until::Accesses(1500));
            let rest = [Step::Sleep(Picos::from_ms(d.between(80, 130))), back];
            g.steps.splice(1..1, rest);
        }
        guests.push(hog);
    }
    let mut s = scenario(guests);
    s.seed = seed;
    let (least, most) = if pressed { (180, 220) } else { (60, 200) };
    s.duration = Some(Picos::from_ms(d.between(least, most)));
    s.knobs = knobs(&[("scan_delay_ms", "8"), ("scan_period_min_ms", "8")]);
    s.knobs.push(("numa_balancing".into(), d.of(&["0", "0", "1", "2", "3"]).into()));
    s.knobs.push(("transparent_hugepage".into(), d.of(&["never", "always"]).into()));
    s.model.swap = d.of(&[Swap::None, Swap::Device(Pages(300)), Swap::Device(Pages(1 << 15))]);
    if pressed {
        s.model.swap = Swap::Device(Pages(1 << 16));
        // As compressed memory is: else the hog gets round once or not at all.
        for (cost, ns) in [(Cost::SwapOut, 500), (Cost::SwapIn, 1000)] {
            machine.costs.0.insert(cost, Constant::assumed(ns * 1000, "a fast device"));
        }
    }
    let mut version = d.of(&[
        KernelVersion::V6_12,
        KernelVersion::V6_12,
        KernelVersion::V6_1,
        KernelVersion::V7_3,
        KernelVersion::V5_18,
    ]);
    if d.one_in(8) {
        version = KernelVersion::V3_8;
        // Which has none of these.
        s.knobs.retain(|(k, _)| k == "transparent_hugepage");
    }
    if version >= KernelVersion::V6_1 {
        s.knobs.push(("demotion_enabled".into(), d.of(&["true", "false"]).into()));
    }
    if !has_merge_any(version) {
        s.processes.iter_mut().for_each(|p| p.memory_merge = false);
    }
    let pages = d.of(&["50", "1000", "100000"]);
    for (name, value) in [
        ("pages_to_scan", pages),
        ("sleep_millisecs", d.of(&["0", "1", "4"])),
        ("merge_across_nodes", d.of(&["0", "0", "1"])),
        ("run", d.of(&["1", "1", "1", "0"])),
    ] {
        s.ksm.push((name.into(), value.into()));
    }
    if version >= KernelVersion::V5_18 {
        s.ksm.push(("use_zero_pages".into(), d.of(&["0", "0", "1"]).into()));
    }
    // Some of the numbers are of no block.
    let blocks = machine.nodes.iter().filter(|n| n.managed().0 > 0).count() as u64 * 6;
    let span = s.duration.map_or(100, |t| t.0 / 1_000_000_000);
    s.actions = (0..d.between(2, 18))
        .map(|_| {
            let who = d.of(&[Rights::Root, Rights::Root, Rights::Root, Rights::Nobody]);
            let what = if d.one_in(2) { draw_file(&mut d) } else { draw_block(&mut d, blocks) };
            Action { at: Picos::from_us(d.below(span * 1000)), who, what, expect: None }
        })
        .collect();
    let mut setup = Setup::of(&s);
    setup.version = version;
    setup.fail_moves = d.of(&[0, 0, 0, 200, 1000]);
    (machine, s, setup)
}

/// What a world went through.
struct Reached {
    sharing: u64,
    zeroes: u64,
    cow: u64,
    swpin: u64,
    chains: u64,
    offlined: u64,
    stopped: u64,
    busy: u64,
    unmerged: u64,
    waited: u64,
}

/// What is gone again at the end.
#[derive(Default)]
struct Passing {
    waited: u64,
    sharing: u64,
    zeroes: u64,
}

fn simulate(
    machine: &Hardware,
    s: &Scenario,
    setup: &Setup,
) -> Result<(Simulation, Passing), String> {
    let mut sim = Simulation::new(machine, s, setup).map_err(|e| e.to_string())?;
    let mut checker = Checker::watch(&mut sim);
    checker.moves_by_hand = true;
    let end = setup.duration.unwrap_or(u64::MAX);
    let mut passing = Passing::default();
    let mut at = 0;
    while at < end && !sim.idle() {
        at = (at + 3_700_000_000).min(end);
        checker.run(&mut sim, at, u64::MAX)?;
        passing.waited += sim.outcomes().iter().filter(|o| o.waits).count() as u64;
        if let Some(m) = sim.merging() {
            passing.sharing = passing.sharing.max(m.counters.pages_sharing);
            passing.zeroes = passing.zeroes.max(m.counters.ksm_zero_pages.unsigned_abs());
        }
    }
    match sim.error() {
        Some(e) => Err(format!("memory: {e}")),
        None => Ok((sim, passing)),
    }
}

fn run(seed: u64) -> Result<Reached, String> {
    let (machine, s, setup) = world(seed);
    let (first, passing) = simulate(&machine, &s, &setup)?;
    let (second, _) = simulate(&machine, &s, &setup)?;
    if first.hash() != second.hash() {
        return Err(format!("hashes {:#x} and {:#x}", first.hash(), second.hash()));
    }
    let m = first.merging();
    let count = |path: &str, text: &str, errno: Option<Errno>| {
        let is = |a: &Action| match &a.what {
            FileOp::Write { path: p, text: t } => p.contains(path) && t == text,
            FileOp::Read { .. } => false,
        };
        let done = first.outcomes().iter().filter(|o| is(&o.action));
        done.filter(|o| o.result.is_some() && o.errno() == errno).count() as u64
    };
    Ok(Reached {
        sharing: passing.sharing,
        zeroes: passing.zeroes,
        cow: first.vmstat().get(Item::CowKsm),
        swpin: first.vmstat().get(Item::KsmSwpinCopy),
        chains: m.as_ref().map_or(0, |m| m.stable_node_chains),
        offlined: count("/memory/memory", "offline", None),
        stopped: count("/memory/memory", "offline", Some(Errno::Eintr)),
        busy: count("merge_across_nodes", "0", Some(Errno::Ebusy))
            + count("merge_across_nodes", "1", Some(Errno::Ebusy)),
        unmerged: count("ksm/run", "2", None),
        waited: passing.waited,
    })
}

#[test]
fn worlds_with_merging_keep_what_must_hold() {
    let seeds = seeds(0..900);
    let enough = seeds.end - seeds.start >= 300;
    let all = swarm("worlds with merging", seeds, run);
    if !enough {
        return;
    }
    // Silence means something only if the swarm gets everywhere.
    for (what, n) in [
        ("pages shared", all.iter().map(|r| r.sharing).sum::<u64>()),
        ("pages of zeroes", all.iter().map(|r| r.zeroes).sum()),
        ("copies of merged pages", all.iter().map(|r| r.cow).sum()),
        ("merged pages from the device", all.iter().map(|r| r.swpin).sum()),
        ("chains", all.iter().map(|r| r.chains).sum()),
        ("blocks offline", all.iter().map(|r| r.offlined).sum()),
        ("offlines given up", all.iter().map(|r| r.stopped).sum()),
        ("switches refused", all.iter().map(|r| r.busy).sum()),
        ("times that all was unmerged", all.iter().map(|r| r.unmerged).sum()),
        ("writers that waited", all.iter().map(|r| r.waited).sum()),
    ] {
        println!("{what}: {n}");
        assert!(n > 0, "no {what} in all worlds");
    }
}
