//! Every machine and scenario of the repository can be read, and fits.

use homenode_config::{
    Part, Size, add_node, parse_add_node, parse_machine, parse_scenario, read_machine,
    read_scenario_and_machine, shrink_dram, write_machine,
};
use homenode_core::costs::Origin;
use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::{Errno, Knobs};
use homenode_core::scale::Scale;
use homenode_core::scenario::{
    Action, AdmissionChoice, CpuOrder, FileOp, Map, Margin, Mempolicy, Model, Pattern, Process,
    Rights, Scenario, SlowStart, Step, Swap, UnmergeTarget, Until,
};
use homenode_core::sched::idle::{IdleState, Table};
use homenode_core::tiering::watermarks::MarkKnobs;
use homenode_core::topology::{Hardware, IdleCosts, LeftOut, Medium};
use homenode_core::units::{Bytes, CpuId, NodeId, Pages, Picos};
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn files(name: &str) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::fs::read_dir(folder(name))
        .expect("the folder is in the repository")
        .map(|e| e.expect("its entries can be read").path())
        .filter(|p| p.extension().is_some_and(|e| e == "toml"))
        .collect();
    all.sort();
    assert!(!all.is_empty());
    all
}

fn machine(name: &str) -> Hardware {
    read_machine(&folder("machines").join(name)).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn machines_are_read_and_come_back_from_their_own_text() {
    for path in files("machines") {
        let m = read_machine(&path).unwrap_or_else(|e| panic!("{e}"));
        let again = parse_machine("again", &write_machine(&m)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(m, again, "{}", path.display());
    }
}

/// Of a machine of the repository nobody has to be told below each table.
#[test]
fn machines_say_why_costs_are_left_out_or_leave_none_out() {
    for path in files("machines") {
        let m = read_machine(&path).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(m.left_out(), LeftOut::default(), "{}", path.display());
        let silent = Hardware { defaults: None, ..m };
        assert_ne!(silent.left_out(), LeftOut::default(), "{}", path.display());
    }
}

#[test]
fn published_machines_claim_no_measurement() {
    for path in files("machines") {
        let m = read_machine(&path).unwrap_or_else(|e| panic!("{e}"));
        let links = m.links.iter().flat_map(|l| {
            [&l.read_latency, &l.write_latency, &l.read_bandwidth, &l.write_bandwidth]
        });
        for c in links.chain(m.caches.iter().map(|c| &c.latency)).chain(m.costs.0.values()) {
            assert_ne!(c.origin, Origin::Measured, "{}: {}", path.display(), c.method);
        }
    }
}

#[test]
fn scenarios_are_read_and_fit_their_machines() {
    for path in files("scenarios") {
        let (s, m) = read_scenario_and_machine(&path).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(path.file_stem().and_then(|n| n.to_str()), Some(s.name.as_str()));
        let memory: u64 = m.nodes.iter().map(|n| n.size().0).sum();
        let wanted: u64 = s.processes.iter().flat_map(|p| &p.maps).map(|m| m.size.0).sum();
        assert!(wanted <= 2 * memory, "{}: small enough to run in seconds", path.display());
    }
}

/// What a scenario is about should not be eaten by what the kernel sets aside: on a real machine that
/// is a few thousandths.
#[test]
fn scenarios_say_what_they_stand_for_and_lose_a_hundredth_to_watermarks_at_most() {
    let all = ["scenarios", "scenarios/compare"].map(files).concat();
    for path in all {
        let (s, m) = read_scenario_and_machine(&path).unwrap_or_else(|e| panic!("{e}"));
        let text = std::fs::read_to_string(&path).expect("just read");
        assert!(text.contains("\nstands_for = "), "{}: what it stands for", path.display());
        let mut knobs = Knobs::new(s.kernel).scaled(s.scale);
        for (name, value) in &s.knobs {
            knobs.set(name, value).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        let marks = MarkKnobs::new(&knobs, s.model.margin, &m.zones());
        for node in &m.nodes {
            let (kept, has) = (marks.kept(&node.zones), node.managed());
            let at = format!("{}: node {}: {kept:?} of {has:?}", path.display(), node.id);
            assert!(kept.0 * 100 <= has.0, "{at}");
        }
    }
}

#[test]
fn a_scenario_means_what_it_says() {
    let file = parse_scenario("run.toml", include_str!("good-scenario.toml"))
        .unwrap_or_else(|e| panic!("{e}"));
    let map = |name, size, policy| Map { policy, ..Map::anonymous(name, Bytes(size)) };
    let dealt = Mempolicy::WeightedInterleave(vec![(NodeId(0), 3), (NodeId(1), 1)]);
    let heap = || "heap".to_owned();
    let expected = Scenario {
        name: "run".into(),
        about: "for tests of errors".into(),
        machine: "box.toml".into(),
        scale: Scale::AS_IS,
        kernel: KernelVersion::default(),
        knobs: vec![
            ("numa_balancing".into(), "2".into()),
            ("demotion_enabled".into(), "true".into()),
        ],
        ksm: Vec::new(),
        model: Model {
            admission: AdmissionChoice::B,
            margin: Margin::SeedQuarter,
            slow_start: SlowStart::Seed,
            unmerge_target: UnmergeTarget::Caller,
            hot_page_selection: false,
            swap: Swap::Device(Pages(16_384)),
            order: CpuOrder::Quantum(Picos::from_us(10)),
            ..Model::default()
        },
        duration: Some(Picos::from_secs(10)),
        seed: 7,
        processes: vec![Process {
            name: "a".into(),
            cpus: vec![CpuId(0), CpuId(1)],
            start: Picos::from_ms(5),
            policy: Mempolicy::Bind { nodes: vec![NodeId(0), NodeId(1)], balancing: true },
            memory_merge: false,
            maps: vec![
                map("heap", 64 << 20, Mempolicy::Preferred(NodeId(0))),
                map("dealt", 1 << 20, dealt),
            ],
            steps: vec![
                Step::Touch { map: heap() },
                Step::Access {
                    map: heap(),
                    pattern: Pattern::Gauss { sd: 125 },
                    write: 300,
                    compute: Picos::from_ns(20),
                    mlp: 1,
                    until: Until::Time(Picos::from_secs(2)),
                },
                Step::Sleep(Picos::from_ms(1)),
                Step::MovePages { map: "dealt".into(), to: NodeId(1) },
                Step::Mbind { map: heap(), policy: Mempolicy::Local },
            ],
            ..Process::default()
        }],
        channels: Vec::new(),
        groups: Vec::new(),
        command_line: String::new(),
        devices: Vec::new(),
        actions: vec![
            Action {
                at: Picos::from_secs(1),
                who: Rights::Nobody,
                what: FileOp::Write {
                    path: "/proc/sys/kernel/numa_balancing".into(),
                    text: "4".into(),
                },
                expect: Some(Errno::Eacces),
            },
            Action {
                at: Picos::from_ms(1500),
                who: Rights::Root,
                what: FileOp::Read { path: "/proc/{a}/numa_maps".into() },
                expect: None,
            },
        ],
    };
    assert_eq!(file.scenario, expected);
}

/// What its text says of its streams, held against what they ask for.
#[test]
fn rising_load_asks_for_so_many_times_the_bandwidth() {
    let path = folder("scenarios/rising-load.toml");
    let (scenario, machine) = read_scenario_and_machine(&path).unwrap_or_else(|e| panic!("{e}"));
    let steps = scenario.processes.iter().flat_map(|p| &p.steps);
    let asked = steps.filter_map(|s| match s {
        Step::Stream { rate, .. } => Some(*rate),
        _ => None,
    });
    let [read, _] = machine.bandwidth(NodeId(0));
    assert!(read.abs_diff(41_000) < 100, "{read}");
    assert_eq!(asked.collect::<Vec<_>>(), [20_500, 41_000, 82_000, 123_000]);
    assert!(scenario.about.contains("20.5, 41, 82 and 123 GB/s in a DRAM of 41"));
}

/// At one end of what may be asked for a task sleeps, at the other it asks for ten times the widest node.
#[test]
fn a_stream_may_ask_for_nothing_and_for_ten_times() {
    let good = include_str!("good-scenario.toml");
    let access = &good[good.find("do = \"access\"").expect("an access")..];
    let access = &access[..access.find("time = ").expect("its end")];
    let with = |rate: &str| {
        let step = format!("do = \"stream\"\nmap = \"heap\"\nrate = \"{rate}\"\nwrite = 250\n");
        let file = parse_scenario("run.toml", &good.replacen(access, &step, 1))
            .unwrap_or_else(|e| panic!("{e}"));
        file.check(&parse_machine("box.toml", include_str!("good-machine.toml")).expect("good"))
            .unwrap_or_else(|e| panic!("{e}"));
        file.scenario.processes[0].steps[1].clone()
    };
    let time = Picos::from_secs(2);
    assert_eq!(with("0 GB/s"), Step::Sleep(time));
    let most = Step::Stream { map: "heap".into(), rate: 200_000, write: 250, time };
    assert_eq!(with("200 GB/s"), most);
}

/// A process in few words.
fn told(p: &Process) -> String {
    let cpus: Vec<u32> = p.cpus.iter().map(|c| c.0).collect();
    let mut out = format!(
        "{} on {cpus:?} from {} merge_any={} {:?}\n",
        p.name,
        p.start.0 / 1_000_000_000,
        p.memory_merge,
        p.policy
    );
    for m in &p.maps {
        out += &format!(
            "  map {} {} huge={} mergeable={} {:?} {:?}\n",
            m.name,
            m.size.0 / 4096,
            m.huge.unwrap_or_default(),
            m.mergeable,
            m.content,
            m.policy
        );
    }
    for s in &p.steps {
        out += &format!("  {s:?}\n");
    }
    out
}

#[test]
fn a_guest_means_what_it_says() {
    let file = parse_scenario("run.toml", include_str!("good-guests.toml"))
        .unwrap_or_else(|e| panic!("{e}"));
    let s = &file.scenario;
    assert!(s.may_merge());
    assert_eq!(s.ksm, [("run".into(), "1".into()), ("merge_across_nodes".into(), "0".into())]);
    let processes: Vec<String> = s.processes[1..].iter().map(told).collect();
    expect_test::expect![[r#"
        vm-0 on [0, 1] from 1000 merge_any=false Default
          map zero 102 huge=false mergeable=true Zero Bind { nodes: [NodeId(0)], balancing: false }
          map image-debian 341 huge=false mergeable=true Image { name: "debian", distinct: Some(Pages(64)) } Bind { nodes: [NodeId(0)], balancing: false }
          map own 376 huge=false mergeable=true Own Bind { nodes: [NodeId(0)], balancing: false }
          map volatile 205 huge=false mergeable=true Own Bind { nodes: [NodeId(0)], balancing: false }
          Touch { map: "zero" }
          Touch { map: "image-debian" }
          Touch { map: "own" }
          Touch { map: "volatile" }
          Sleep(Picos(300000000000))
          Touch { map: "volatile" }
          Repeat { steps: 2, until: Times(33) }
          Sleep(Picos(100000000000))
        vm-1 on [2] from 1500 merge_any=false Default
          map zero 102 huge=false mergeable=true Zero Bind { nodes: [NodeId(1)], balancing: false }
          map image-debian 341 huge=false mergeable=true Image { name: "debian", distinct: Some(Pages(64)) } Bind { nodes: [NodeId(1)], balancing: false }
          map own 376 huge=false mergeable=true Own Bind { nodes: [NodeId(1)], balancing: false }
          map volatile 205 huge=false mergeable=true Own Bind { nodes: [NodeId(1)], balancing: false }
          Touch { map: "zero" }
          Touch { map: "image-debian" }
          Touch { map: "own" }
          Touch { map: "volatile" }
          Sleep(Picos(300000000000))
          Touch { map: "volatile" }
          Repeat { steps: 2, until: Times(33) }
          Sleep(Picos(100000000000))
        vm-2 on [0, 1] from 2000 merge_any=false Default
          map zero 102 huge=false mergeable=true Zero Bind { nodes: [NodeId(0)], balancing: false }
          map image-debian 341 huge=false mergeable=true Image { name: "debian", distinct: Some(Pages(64)) } Bind { nodes: [NodeId(0)], balancing: false }
          map own 376 huge=false mergeable=true Own Bind { nodes: [NodeId(0)], balancing: false }
          map volatile 205 huge=false mergeable=true Own Bind { nodes: [NodeId(0)], balancing: false }
          Touch { map: "zero" }
          Touch { map: "image-debian" }
          Touch { map: "own" }
          Touch { map: "volatile" }
          Sleep(Picos(300000000000))
          Touch { map: "volatile" }
          Repeat { steps: 2, until: Times(33) }
          Sleep(Picos(100000000000))
        measured on [3] from 0 merge_any=true Preferred(NodeId(1))
          map image-debian 5 huge=true mergeable=false Image { name: "debian", distinct: None } Default
          map image-data 5 huge=true mergeable=false Image { name: "data", distinct: None } Default
          Touch { map: "image-debian" }
          Touch { map: "image-data" }
          Sleep(Picos(5000000000000))
          Barrier
          Access { map: "image-debian", pattern: Sequential, write: 5, compute: Picos(0), mlp: 1, until: Accesses(5) }
          Access { map: "image-data", pattern: Sequential, write: 5, compute: Picos(0), mlp: 1, until: Accesses(5) }
          Sleep(Picos(10000000000))
          Repeat { steps: 4, until: Times(20) }
          Sleep(Picos(1000000000000))
    "#]].assert_eq(&processes.concat());
}

#[test]
fn an_expander_is_added_as_published() {
    let m = add_node(&machine("cascade-lake-pmem.toml"), Part::Cxl, Bytes(16 << 30))
        .unwrap_or_else(|e| panic!("{e}"));
    let new = m.nodes.last().expect("it was added");
    assert_eq!((new.id, new.medium, new.size()), (NodeId(4), Medium::Cxl, Bytes(16 << 30)));
    let near = m.link(NodeId(0), NodeId(4)).expect("from its socket");
    assert_eq!((near.read_latency.value, near.read_bandwidth.value), (275_000, 24_000));
    // 275 + (141.6 - 80.8)
    let far = m.link(NodeId(1), NodeId(4)).expect("from the other socket");
    assert_eq!(far.read_latency.value, 335_800);
    assert_eq!(m.distances[4], [14, 25, 21, 32, 10]);
    assert_eq!(m.distance(NodeId(1), NodeId(4)), Some(25));
}

#[test]
fn a_slow_machines_expander_is_slower_still() {
    let mut slow = machine("small.toml");
    slow.links[0].read_latency.value = 260_000;
    let m = add_node(&slow, Part::Cxl, Bytes(1)).unwrap_or_else(|e| panic!("{e}"));
    let link = m.link(NodeId(0), NodeId(1)).expect("it was added");
    assert_eq!(link.read_latency.value, 330_000);
    assert_eq!(link.read_latency.origin, Origin::Assumed);
    // 24 GB/s by itself; this machine's CPUs reach 20.
    assert_eq!(link.read_bandwidth.value, 20_000);
    assert_eq!(m.nodes[1].size(), Bytes(4096));
}

#[test]
fn specs_say_part_and_size() {
    let a = parse_add_node("cxl:half").expect("as in the help");
    assert_eq!((a.part, a.size), (Part::Cxl, Size::Half));
    let a = parse_add_node("pmem:64GiB").expect("as in the help");
    assert_eq!((a.part, a.size), (Part::Pmem, Size::Bytes(Bytes(64 << 30))));
    for (spec, says) in [
        ("cxl", "the size is missing"),
        ("hbm:half", "no part is named \"hbm\""),
        ("cxl:0", "a size of 0"),
        ("cxl:99999999TiB", "beyond 2^52"),
        ("cxl:lots", "is no size"),
        ("", "the size is missing"),
    ] {
        let e = parse_add_node(spec).expect_err("it was wrong").to_string();
        assert!(e.contains(says) && e.contains("write PART:SIZE"), "{e}");
    }
}

#[test]
fn idle_states_are_those_of_the_drivers_tables() {
    let states = |name: &str| -> Vec<IdleState> {
        machine(name).idle_states.iter().map(IdleCosts::state).collect()
    };
    assert_eq!(states("sapphire-rapids-cxl.toml"), Table::SapphireRapids.states());
    // A test machine has those of a server without one of them.
    let mut haswell = Table::HaswellEp.states();
    haswell.retain(|s| s.name != "C3");
    assert_eq!(states("small-smt.toml"), haswell);
    assert_eq!(states("haswell-ep-2.toml"), Table::HaswellEp.states());
    assert_eq!(states("ivy-bridge-desktop.toml"), Table::IvyBridge.states());
    // Those of a desktop processor are without its deepest two.
    let mut skylake = Table::SkylakeClient.states();
    skylake.truncate(7);
    assert_eq!(states("skylake-uma.toml"), skylake);
}

#[test]
fn dram_shrinks_exactly_and_from_the_top() {
    let m = machine("cascade-lake-pmem.toml");
    for pages in [2u64, 3, 1001, 1 << 20, 48 << 18, 192 << 18] {
        let small = shrink_dram(&m, Bytes(pages * 4096)).unwrap_or_else(|e| panic!("{e}"));
        let dram: u64 =
            small.nodes.iter().filter(|n| n.medium == Medium::Dram).map(|n| n.managed().0).sum();
        assert_eq!(dram, pages);
        assert_eq!(small.nodes[2], m.nodes[2]);
    }
    let small = shrink_dram(&m, Bytes(2 << 30)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(small.nodes[0].zones.len(), 1, "1 GiB lies in DMA32 alone");
    for bad in [0, 4096, (192 << 30) + 1] {
        assert!(shrink_dram(&m, Bytes(bad)).is_err());
    }
}

#[test]
fn unmerging_allocates_for_whom_the_scenario_says() {
    let text = include_str!("good-scenario.toml");
    let of = |word: &str| {
        let text = text.replace("[model]\n", &format!("[model]\nunmerge_target = \"{word}\"\n"));
        parse_scenario("run.toml", &text).map(|file| file.scenario.model.unmerge_target)
    };
    assert_eq!(of("home").expect("it is read"), UnmergeTarget::Home);
    assert_eq!(of("caller").expect("it is read"), UnmergeTarget::Caller);
    let refused = of("nobody").expect_err("no such word").to_string();
    assert!(refused.contains("run.toml:12:18: model.unmerge_target"), "{refused}");
    assert!(refused.contains("caller") && refused.contains("home"), "{refused}");
}

#[test]
fn a_threshold_that_stays_is_a_choice_of_the_model() {
    let text = include_str!("good-scenario.toml");
    let of = |value: &str| {
        let text = text.replace("[model]\n", &format!("[model]\nadjust_hot_threshold = {value}\n"));
        parse_scenario("run.toml", &text).map(|file| file.scenario.model.adjust_hot_threshold)
    };
    assert!(of("true").expect("it is read") && !of("false").expect("it is read"));
    assert!(Model::default().adjust_hot_threshold, "as Linux has it");
    let refused = of("\"no\"").expect_err("no truth value").to_string();
    assert!(refused.contains("run.toml:12:24: model.adjust_hot_threshold"), "{refused}");
}
