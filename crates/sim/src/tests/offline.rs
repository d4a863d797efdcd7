//! Memory goes offline and comes back: specs/files.md#blocks,
//! specs/exceptions/memory-offline.md.

use super::bench::{Bench, kind};
use super::merge;
use super::support::{cxl, dram, knobs, machine, map, process, scenario, touch};
use crate::build::Setup;
use crate::check::Checker;
use crate::simulation::Simulation;
use crate::space::Kind;
use crate::vmstat::Item;
use crate::watch::Watch;
use homenode_core::knobs::Errno;
use homenode_core::scenario::*;
use homenode_core::topology::{Hardware, ZoneKind};
use homenode_core::units::{NodeId, Pages, Picos};
use std::sync::{Arc, Mutex};

const MEMORY: &str = "/sys/devices/system/memory";
const NO_THP: (&str, &str) = ("transparent_hugepage", "never");

/// Three nodes with CPUs of 4096 pages, so four blocks of 1024 each: 0–3, 4–7, 8–11.
fn three() -> Hardware {
    machine(&[dram(4096, 1), dram(4096, 1), dram(4096, 1)])
}
fn bound(node: u16) -> Mempolicy {
    Mempolicy::Bind { nodes: vec![NodeId(node)], balancing: false }
}
fn on_node(node: u16) -> Kind {
    Kind { policy: bound(node), ..kind() }
}

impl Bench {
    fn set(&mut self, block: usize, text: &str) -> Result<(), Errno> {
        let path = format!("{MEMORY}/memory{block}/state");
        self.sim.write_file(&path, text, Rights::Root).map_err(|e| e.errno)
    }
    fn state(&self, block: usize) -> String {
        let path = format!("{MEMORY}/memory{block}/state");
        self.sim.read_file(&path).expect("a block").trim().to_owned()
    }
    fn read(&self, path: &str) -> String {
        self.sim.read_file(path).expect(path).trim().to_owned()
    }
    /// Pages of a range on each node.
    fn on(&self, first: u32, n: u32) -> Vec<u64> {
        let m = &self.sim.kernel.memory;
        let mut on = vec![0; m.nodes.len()];
        for p in first..first + n {
            if self.word(p).resident() {
                on[m.node_of(m.word(m.item_of(p)).zone())] += 1;
            }
        }
        on
    }
    fn managed(&self, node: usize) -> u64 {
        let zones = self.sim.kernel.memory.zones.iter();
        zones.filter(|z| z.node == node).map(|z| z.managed).sum()
    }
}

#[test]
fn a_block_moves_what_it_holds_and_no_more() {
    let mut b = Bench::new(&three(), &[NO_THP]);
    let first = b.map(2000, on_node(1));
    b.fill(first, 2000);
    assert_eq!(b.read(&format!("{MEMORY}/block_size_bytes")), "400000");
    // Blocks 4 and 5 hold 1024 and 976 pages, 6 and 7 none.
    assert_eq!(b.set(6, "offline\n"), Ok(()));
    assert_eq!(b.on(first, 2000), [0, 2000, 0], "an empty block");
    assert_eq!(b.managed(1), 3072);
    assert_eq!(b.set(5, "offline"), Ok(()));
    // The nearest other node: nodes 0 and 2 are equally far, a lower number costs one.
    assert_eq!(b.on(first, 2000), [0, 1024, 976]);
    assert_eq!(b.sim.kernel.stat.get(Item::PgmigrateSuccess), 976);
    assert_eq!(b.sim.kernel.stat.of(2, Item::PgmigrateSuccess), 976);
    assert_eq!((b.state(5), b.state(4)), ("offline".into(), "online".into()));
    b.check();
    // Back again, empty: pages don't follow.
    assert_eq!(b.set(5, "online"), Ok(()));
    assert_eq!(b.managed(1), 3072);
    assert_eq!(b.sim.kernel.memory.free_of(1), 2048);
    assert_eq!(b.on(first, 2000), [0, 1024, 976]);
    b.check();
}

#[test]
fn the_kernels_errors() {
    let mut b = Bench::new(&three(), &[NO_THP]);
    assert_eq!(b.set(0, "offline"), Err(Errno::Ebusy), "the kernel is there");
    assert_eq!(b.set(7, "online"), Err(Errno::Einval), "it is");
    assert_eq!(b.set(7, "offline"), Ok(()));
    assert_eq!(b.set(7, "offline"), Err(Errno::Einval), "it is");
    assert_eq!(b.set(7, "away"), Err(Errno::Einval));
    assert_eq!(b.set(7, "online_movable"), Err(Errno::Einval));
    let path = format!("{MEMORY}/memory7/state");
    let nobody = b.sim.write_file(&path, "online", Rights::Nobody).unwrap_err();
    assert_eq!(nobody.errno, Errno::Eacces);
    let size = format!("{MEMORY}/block_size_bytes");
    assert_eq!(b.sim.write_file(&size, "1", Rights::Root).unwrap_err().errno, Errno::Eacces);
    let gone = format!("{MEMORY}/memory12/state");
    assert_eq!(b.sim.read_file(&gone).unwrap_err().errno, Errno::Enoent);
    // The file `online` answers no error to what is so already.
    let online = format!("{MEMORY}/memory7/online");
    for text in ["0", "off", "1", "yes", "on"] {
        assert_eq!(b.sim.write_file(&online, text, Rights::Root), Ok(()), "{text}");
    }
    assert_eq!(b.sim.write_file(&online, "x", Rights::Root).unwrap_err().errno, Errno::Einval);
    assert_eq!(b.state(7), "online");
    assert_eq!(b.read(&format!("{MEMORY}/memory7/valid_zones")), "Normal");
    b.check();
}

#[test]
fn views_and_marks_follow() {
    let mut b = Bench::new(&three(), &[NO_THP]);
    let before = b.sim.kernel.marks[1];
    for block in 4..7 {
        assert_eq!(b.set(block, "offline"), Ok(()));
    }
    assert!(b.sim.kernel.marks[1].high < before.high);
    let meminfo = b.read("/sys/devices/system/node/node1/meminfo");
    assert!(meminfo.contains("MemTotal:           4096 kB"), "{meminfo}");
    let zoneinfo = b.read("/proc/zoneinfo");
    assert!(zoneinfo.contains("managed  1024"), "{zoneinfo}");
    assert_eq!(b.read("/sys/devices/system/node/has_memory"), "0-2");
    assert_eq!(b.set(7, "offline"), Ok(()));
    assert_eq!(b.read("/sys/devices/system/node/has_memory"), "0,2");
    assert!(!b.read("/proc/zoneinfo").contains("Node 1"));
    // What is wanted of the node comes from the nearest, and counts as a hit there.
    let first = b.map(10, Kind { policy: Mempolicy::Preferred(NodeId(1)), ..kind() });
    let hits = b.sim.kernel.stat.of(2, Item::NumaHit);
    b.fill(first, 10);
    assert_eq!(b.on(first, 10), [0, 0, 10]);
    assert_eq!(b.sim.kernel.stat.of(2, Item::NumaHit), hits + 10);
    assert_eq!(b.set(4, "online"), Ok(()));
    assert_eq!(b.read("/sys/devices/system/node/has_memory"), "0-2");
    let zoneinfo = b.read("/proc/zoneinfo");
    assert!(zoneinfo.contains("Node 1"), "{zoneinfo}");
    b.check();
}

#[test]
fn huge_pages_and_frames_move_too() {
    let mut b = Bench::new(&three(), &[("transparent_hugepage", "always")]);
    let first = b.map(300, on_node(1));
    b.fill(first, 300);
    let huge = b.map(1024, Kind { huge: Some(true), ..on_node(1) });
    b.touch(huge, true).expect("room");
    b.touch(huge + 512, true).expect("room");
    let space = b.space;
    let mut ctx = b.ctx;
    b.sim.kernel.fork_space(&mut ctx, space).expect("room");
    assert_eq!(b.sim.kernel.memory.free_of(1), 4096 - 1324);
    for block in 4..8 {
        assert_eq!(b.set(block, "offline"), Ok(()), "block {block}");
        b.check();
    }
    assert_eq!(b.on(first, 300), [0, 0, 300]);
    assert_eq!(b.sim.kernel.memory.free_of(1), 0);
    assert_eq!(b.sim.kernel.memory.free_of(2), 4096 - 1324);
}

#[test]
fn a_huge_page_across_the_border_goes_whole() {
    let mut b = Bench::new(&three(), &[("transparent_hugepage", "always")]);
    let small = b.map(900, on_node(1));
    b.fill(small, 900);
    let huge = b.map(512, Kind { huge: Some(true), ..on_node(1) });
    b.touch(huge, true).expect("room");
    assert_eq!(b.sim.kernel.stat.get(Item::ThpFaultAlloc), 1);
    assert_eq!(b.set(5, "offline"), Ok(()));
    // 388 of its pages lay in block 5, the others became free in block 4.
    assert_eq!(b.on(huge, 1), [0, 0, 1]);
    assert_eq!(b.sim.kernel.memory.free_of(1), 3072 - 900);
    b.check();
}

/// What specs/files.md#blocks tells, in its order.
struct Told(Arc<Mutex<Vec<String>>>);
impl Watch for Told {
    fn block(&mut self, node: usize, block: usize, going: bool, gone: bool) {
        let what = match (going, gone) {
            (true, false) => "going offline",
            (true, true) => "offline",
            _ => "cancelled",
        };
        self.0.lock().expect("one thread").push(format!("node {node} block {block} {what}"));
    }
}

#[test]
fn what_cannot_move_stays_and_all_is_as_before() {
    for full in [false, true] {
        let setup = Setup {
            knobs: knobs(&[NO_THP]),
            fail_moves: if full { 0 } else { 1000 },
            ..Setup::default()
        };
        let mut b = Bench::with(&machine(&[dram(4096, 1), cxl(4096)]), setup);
        if full {
            let all = b.map(3900, on_node(0));
            b.fill(all, 3900);
        }
        let first = b.map(1500, on_node(1));
        b.fill(first, 1500);
        let told = Arc::new(Mutex::new(Vec::new()));
        let witness = b.sim.unwatch();
        b.sim.watch(Box::new(Told(told.clone())));
        let free = b.sim.kernel.memory.free_of(1);
        assert_eq!(b.set(4, "offline"), Err(Errno::Eintr), "full {full}");
        let said = told.lock().expect("one thread").clone();
        assert_eq!(said, ["node 1 block 4 going offline", "node 1 block 4 cancelled"]);
        assert_eq!(b.state(4), "online");
        assert!(b.sim.kernel.stat.get(Item::PgmigrateFail) > 0);
        let on = b.on(first, 1500);
        assert_eq!(on[0] + on[1], 1500);
        assert_eq!(b.sim.kernel.memory.free_of(1), free + on[0], "nothing stays isolated");
        assert_eq!(b.sim.kernel.memory.zones[1].isolated, 0);
        // An empty block needs no moves.
        b.sim.kernel.fail_moves = 1000;
        assert_eq!(b.set(6, "offline"), Ok(()));
        b.sim.unwatch();
        if let Some(w) = witness.filter(|_| !full) {
            b.sim.watch(w);
            b.check();
        }
    }
}

#[test]
fn reclaim_makes_room_elsewhere() {
    let setup = Setup {
        knobs: knobs(&[NO_THP]),
        model: Model { swap: Swap::Device(Pages(8192)), ..Model::default() },
        ..Setup::default()
    };
    let mut b = Bench::with(&machine(&[dram(4096, 1), cxl(4096)]), setup);
    let all = b.map(3900, on_node(0));
    b.fill(all, 3900);
    let first = b.map(1000, on_node(1));
    b.fill(first, 1000);
    assert_eq!(b.set(4, "offline"), Ok(()));
    assert_eq!(b.on(first, 1000), [1000, 0]);
    assert!(b.sim.kernel.stat.get(Item::Pswpout) > 0);
    b.check();
}

#[test]
fn the_last_node_with_memory_moves_within_itself() {
    let mut b = Bench::new(&machine(&[dram(4096, 1)]), &[NO_THP]);
    let first = b.map(1500, kind());
    b.fill(first, 1500);
    assert_eq!(b.set(1, "offline"), Ok(()));
    assert_eq!(b.on(first, 1500), [1500]);
    assert_eq!(b.sim.kernel.stat.get(Item::PgmigrateSuccess), 476);
    assert_eq!(b.managed(0), 3072);
    b.check();
    // Three blocks are left, of which all but one must stay free of 1500 pages.
    assert_eq!(b.set(2, "offline"), Ok(()));
    assert_eq!(b.set(3, "offline"), Err(Errno::Eintr), "1500 pages don't fit into one block");
    b.check();
}

/// The seed's tiers: fast node 0, slow node 1 and 2. Without node 1 cold pages go to 2.
#[test]
fn demotion_finds_another_target() {
    let m = machine(&[dram(4096, 1), cxl(4096), cxl(4096)]);
    let mut b = Bench::new(&m, &[NO_THP, ("demotion_enabled", "true")]);
    let tiers = |b: &Bench| b.sim.kernel.tiers.listing();
    let before = tiers(&b);
    for block in 4..8 {
        assert_eq!(b.set(block, "offline"), Ok(()));
    }
    assert!(tiers(&b).iter().all(|(_, nodes)| !nodes.contains('1')), "{:?}", tiers(&b));
    let first = b.map(5000, kind());
    let on = b.fill(first, 5000);
    assert_eq!(on[1], 0);
    for block in 4..8 {
        assert_eq!(b.set(block, "online"), Ok(()));
    }
    assert_eq!(tiers(&b), before, "the driver's abstract distance is kept");
    b.check();
}

// ── Programs ───────────────────────────────────────────────────────────────────

fn write_at(ms: u64, block: usize, text: &str) -> Action {
    Action {
        at: Picos::from_ms(ms),
        who: Rights::Root,
        what: FileOp::Write { path: format!("{MEMORY}/memory{block}/state"), text: text.into() },
        expect: None,
    }
}
fn run(m: &Hardware, s: &Scenario) -> Simulation {
    let mut sim = Simulation::new(m, s, &Setup::of(s)).expect("it starts");
    let mut checker = Checker::watch(&mut sim);
    checker.moves_by_hand = true;
    checker.run(&mut sim, Picos::from_ms(400).0, Picos::from_us(700).0).expect("all adds up");
    sim
}
fn sleeps(ms: u64) -> Step {
    Step::Sleep(Picos::from_ms(ms))
}

#[test]
fn the_writer_takes_time_and_programs_go_on() {
    let maps = vec![map("m", 3000)];
    let uniform = super::support::access("m", Pattern::Uniform, 500, super::support::for_ms(100));
    let mut p = process("p", &[0], maps, vec![touch("m"), uniform]);
    p.policy = Mempolicy::Preferred(NodeId(1));
    let mut s = scenario(vec![p]);
    s.knobs = knobs(&[NO_THP, ("numa_balancing", "0")]);
    s.actions = (4..8).map(|b| write_at(20, b, "offline")).collect();
    s.actions.push(Action {
        at: Picos::from_ms(22),
        who: Rights::Root,
        what: FileOp::Read { path: format!("{MEMORY}/memory4/state") },
        expect: None,
    });
    let sim = run(&three(), &s);
    let texts: Vec<_> = sim.outcomes().iter().map(|o| (o.result.clone(), o.missed())).collect();
    for (result, missed) in &texts {
        assert_eq!(missed, &None, "{result:?}");
    }
    // 1024 pages take more than two milliseconds at 2.7 µs each.
    assert_eq!(texts[4].0, Some(Ok("going-offline\n".into())));
    assert_eq!(sim.vmstat().get(Item::PgmigrateSuccess), 3000);
    assert_eq!(sim.kernel.memory.free_of(1), 0);
    // A second run is the same.
    assert_eq!(sim.hash(), run(&three(), &s).hash());
}

#[test]
fn a_bound_task_falls_to_the_next_node_a_bound_mapping_has_none() {
    // The task's policy is rebound when node 1 goes; the mapping's is not.
    let steps = || vec![touch("a"), sleeps(60), touch("b"), sleeps(100)];
    let mut task = process("task", &[0], vec![map("a", 100), map("b", 100)], steps());
    task.policy = bound(1);
    let mut later = map("b", 100);
    later.policy = bound(1);
    let mapping = process("mapping", &[2], vec![map("a", 100), later], steps());
    let mut s = scenario(vec![task, mapping]);
    s.knobs = knobs(&[NO_THP, ("numa_balancing", "0")]);
    s.actions = (4..8).map(|b| write_at(10, b, "offline")).collect();
    s.actions.push(Action {
        at: Picos::from_ms(90),
        who: Rights::Root,
        what: FileOp::Read { path: "/proc/{task}/numa_maps".into() },
        expect: None,
    });
    let sim = run(&three(), &s);
    let p = sim.processes();
    assert_eq!(p[0].killed, None);
    assert_eq!(p[1].killed.as_deref(), Some("out of memory"));
    let Some(Ok(maps)) = sim.outcomes()[4].result.clone() else { panic!("not read") };
    // Place 1 of nodes 0, 1, 2 is place 1 of nodes 0, 2.
    assert_eq!(maps.matches("bind:2").count(), 2, "{maps}");
    assert_eq!(maps.matches("N2=100").count(), 2, "{maps}");
}

#[test]
fn policies_of_an_empty_node_are_refused() {
    let mut b = Bench::new(&three(), &[NO_THP]);
    for block in 4..8 {
        assert_eq!(b.set(block, "offline"), Ok(()));
    }
    b.map(10, kind());
    let (start, end) = b.last();
    let (space, own) = (b.space, Mempolicy::Default);
    let mut ctx = b.ctx;
    let policy = |b: &Bench| b.sim.kernel.space(space).vmas[0].kind.policy.clone();
    b.sim.kernel.mbind(&mut ctx, space, start, end, &bound(1), &own);
    assert_eq!(policy(&b), Mempolicy::Default, "EINVAL");
    let both = Mempolicy::Bind { nodes: vec![NodeId(1), NodeId(2)], balancing: false };
    b.sim.kernel.mbind(&mut ctx, space, start, end, &both, &own);
    assert_eq!(policy(&b), bound(2));
}

#[test]
fn a_zone_gone_keeps_its_place() {
    let mut node = dram(4096, 1);
    node.zones = vec![(ZoneKind::Dma32, 2048), (ZoneKind::Normal, 2048)];
    let mut b = Bench::new(&machine(&[node, cxl(4096)]), &[NO_THP]);
    // Blocks 0 and 1 are DMA32, 2 and 3 Normal: the latter holds 1500 pages first.
    let first = b.map(1500, kind());
    b.fill(first, 1500);
    assert_eq!((b.set(2, "offline"), b.set(3, "offline")), (Ok(()), Ok(())));
    assert_eq!(b.on(first, 1500), [0, 1500], "another node, though this one has room");
    assert!(!b.read("/proc/zoneinfo").contains("Normal"));
    let more = b.map(200, kind());
    b.fill(more, 200);
    assert_eq!(b.on(more, 200), [200, 0], "DMA32 serves");
    assert_eq!(b.set(2, "online"), Ok(()));
    assert!(b.read("/proc/zoneinfo").contains("Normal"));
    b.check();
}

// ── Merging (specs/ksm.md#migration; specs/seeds.md#s4, problem 2) ─────────────

/// Nodes without a page, and nodes in another tree than their page's.
fn astray(b: &Bench) -> (usize, usize) {
    let k = &b.sim.kernel;
    (k.ksm().stale_nodes(k).len(), k.ksm().misplaced_nodes(k).len())
}

#[test]
fn pages_that_hot_remove_has_moved_end_in_the_right_tree() {
    // Node 0: blocks 0 to 3, node 1: blocks 4 to 7.
    let mut b = merge::bench(&[("merge_across_nodes", "0")]);
    let here = merge::guest_of(&mut b, 0, &[1, 1, 4]);
    let there = merge::guest_of(&mut b, 1, &[1, 1, 2, 2, 3, 5]);
    merge::pass(&mut b, 3);
    assert_eq!(merge::counts(&b), [3, 3, 3, 0, 0, 0]);
    // One merged page is written to, and by nobody else mapped: its node is stale.
    b.touch(there + 2, true).expect("room");
    b.touch(there + 3, true).expect("room");
    assert_eq!(astray(&b), (1, 0));
    for block in 4..8 {
        assert_eq!(b.set(block, "offline"), Ok(()));
        b.check();
    }
    assert_eq!(b.on(there, 6), [6, 0]);
    assert_eq!(astray(&b).0, 0, "who has no page went with the memory");
    assert_eq!(b.sim.kernel.ksm().read("run").as_deref(), Ok("1"));
    merge::pass(&mut b, 3);
    assert_eq!(astray(&b), (0, 0), "all are in the tree of node 0");
    let trees: Vec<_> = b.sim.kernel.ksm().nodes_seen().iter().map(|n| n.tree).collect();
    // The migrated node and the one that was there hang in one chain.
    assert_eq!(merge::counts(&b)[..2], [2, 2]);
    assert_eq!(trees.len(), 2);
    assert!(trees.iter().all(|t| *t == trees[0] && t.is_some()), "{trees:?}");
    b.check();
    // New pages find them: a third guest on node 0.
    merge::guest_of(&mut b, 0, &[1, 3]);
    merge::pass(&mut b, 3);
    assert_eq!(merge::counts(&b)[..2], [3, 4]);
    assert_eq!(b.on(here, 3), [3, 0]);
    // Back: node 1's tree serves what is written there from now on.
    for block in 4..8 {
        assert_eq!(b.set(block, "online"), Ok(()));
    }
    let again = merge::guest_of(&mut b, 1, &[1, 1]);
    merge::pass(&mut b, 3);
    assert_eq!(b.on(again, 2), [0, 2]);
    assert_eq!(merge::counts(&b)[..2], [4, 5]);
    assert_eq!(astray(&b), (0, 0));
}

#[test]
fn a_cancelled_offline_leaves_merging_as_it_was() {
    let mut b = merge::bench(&[("merge_across_nodes", "0")]);
    merge::guest_of(&mut b, 1, &[1, 1, 2, 2, 3]);
    merge::pass(&mut b, 3);
    let before = merge::counts(&b);
    b.sim.kernel.fail_moves = 1000;
    assert_eq!(b.set(4, "offline"), Err(Errno::Eintr));
    b.check();
    assert_eq!(merge::counts(&b), before);
    assert_eq!(b.sim.kernel.ksm().read("run").as_deref(), Ok("1"));
    b.sim.kernel.fail_moves = 0;
    merge::pass(&mut b, 2);
    assert_eq!(merge::counts(&b), before);
}

#[test]
fn ksmd_and_writers_wait_until_memory_is_offline() {
    let m = merge::two_nodes();
    let guests = vec![
        merge::kvm("a", 0, 600, 100, 50, 300),
        Process { policy: bound(1), ..merge::kvm("b", 1, 1600, 100, 50, 300) },
    ];
    let mut s = scenario(guests);
    s.knobs = knobs(&[NO_THP]);
    s.ksm = merge::ksm(&[("pages_to_scan", "1000"), ("sleep_millisecs", "0"), ("run", "1")]);
    let ksm = |ms: u64, what: &str, value: Option<&str>| {
        let path = format!("/sys/kernel/mm/ksm/{what}");
        let op = match value {
            Some(text) => FileOp::Write { path, text: text.into() },
            None => FileOp::Read { path },
        };
        Action { at: Picos::from_ms(ms), who: Rights::Root, what: op, expect: None }
    };
    s.actions = vec![
        write_at(20, 4, "offline"),
        ksm(21, "run", None),
        ksm(21, "full_scans", None),
        ksm(21, "max_page_sharing", Some("300")),
        ksm(21, "run", Some("0")),
        ksm(22, "run", None),
        ksm(22, "full_scans", None),
        ksm(100, "run", None),
    ];
    let sim = run(&m, &s);
    let said: Vec<String> = sim
        .outcomes()
        .iter()
        .map(|o| match &o.result {
            Some(Ok(text)) => text.trim().to_owned(),
            Some(Err(e)) if e.errno == Errno::Ebusy => "EBUSY".to_owned(),
            other => panic!("{other:?} {:?}", o.missed()),
        })
        .collect();
    assert_eq!((&said[1][..], &said[5][..], &said[7][..]), ("5", "5", "0"), "{said:?}");
    assert_eq!(said[2], said[6], "ksmd rests");
    assert_eq!(said[3], "EBUSY", "it waited, and then pages are shared still");
    assert_eq!(run(&m, &s).hash(), sim.hash());
}
