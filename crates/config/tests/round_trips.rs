//! What is written comes back; what is garbage is refused without a panic.

use homenode_config::{check, parse_add_node, parse_machine, parse_scenario, write_machine};
use homenode_core::costs::{Constant, Cost, Costs, Origin};
use homenode_core::curve::{Curve, Point, Walk};
use homenode_core::loaded::{self, Loaded, Path};
use homenode_core::topology::{
    BANDWIDTH_BOUNDS, Cache, Cpu, Hardware, IDLE_BOUNDS, IdleCosts, LATENCY_BOUNDS, Link, Medium,
    Node, WokenBy, Zone, ZoneKind,
};
use homenode_core::units::{Bytes, CpuId, NodeId, Pages};
use proptest::prelude::*;

fn constant((low, high): (u64, u64)) -> impl Strategy<Value = Constant> {
    let origin = prop_oneof![Just(Origin::Measured), Just(Origin::Quoted), Just(Origin::Assumed)];
    let method = prop_oneof![".*[a-z]", "[\\PC\"\\\\\n\t\u{7f}\u{0}]*x"];
    (low..=high, proptest::option::of(0..=high), method, origin)
        .prop_map(|(value, spread, method, origin)| Constant { value, spread, method, origin })
}

fn link(from: NodeId, to: NodeId) -> impl Strategy<Value = Link> {
    let ns = || constant(LATENCY_BOUNDS);
    let mbps = || constant(BANDWIDTH_BOUNDS);
    (ns(), ns(), mbps(), mbps()).prop_map(
        move |(read_latency, write_latency, read_bandwidth, write_bandwidth)| Link {
            from,
            to,
            read_latency,
            write_latency,
            read_bandwidth,
            write_bandwidth,
        },
    )
}

fn machine() -> impl Strategy<Value = Hardware> {
    let media = prop_oneof![Just(Medium::Dram), Just(Medium::Cxl), Just(Medium::Pmem)];
    let node = (media, proptest::bits::u8::masked(15), 1u64..1 << 38);
    (proptest::collection::vec((node, 1u16..9), 1..4), 1usize..20, any::<u32>(), any::<String>())
        .prop_flat_map(|(nodes, nr_cpus, salt, name)| {
            let mut id = 0;
            let nodes: Vec<Node> = nodes
                .into_iter()
                .enumerate()
                .map(|(i, ((medium, kinds, pages), gap))| {
                    let all = [ZoneKind::Dma, ZoneKind::Dma32, ZoneKind::Normal, ZoneKind::Movable];
                    // The first node has memory, so that the machine can exist.
                    let kinds = if i == 0 { kinds | 4 } else { kinds };
                    let zones = all
                        .into_iter()
                        .enumerate()
                        .filter(|(k, _)| kinds & (1 << k) != 0)
                        .map(|(k, kind)| Zone { kind, managed: Pages(pages + k as u64) })
                        .collect();
                    id += gap;
                    Node { id: NodeId(id), medium, zones }
                })
                .collect();
            let n = nodes.len() as u32;
            let cpus: Vec<Cpu> = (0..nr_cpus as u32)
                .map(|c| {
                    let at = (salt >> (c % 13)) % n;
                    let node = nodes[at as usize].id;
                    let id = CpuId(c * 3 + salt % 3);
                    Cpu {
                        id,
                        node,
                        core: at * 7 + (salt >> c) % 7,
                        llc: (salt >> c) % 3,
                        capacity: 1024,
                        mhz: (c % 3 == 0).then_some(2000 + salt % 7),
                    }
                })
                .collect();
            let distances: Vec<Vec<u32>> = (0..n)
                .map(|i| {
                    let far = |j: u32| 11 + (salt >> ((i * 5 + j) % 32)) % 244;
                    (0..n).map(|j| if i == j { 10 } else { far(j) }).collect()
                })
                .collect();
            let links: Vec<_> = nodes
                .iter()
                .filter(|f| cpus.iter().any(|c| c.node == f.id))
                .flat_map(|f| {
                    nodes.iter().filter(|t| !t.zones.is_empty()).map(|t| link(f.id, t.id))
                })
                .collect();
            let costs: Vec<_> =
                Cost::ALL.iter().map(|c| proptest::option::of(constant(c.bounds()))).collect();
            let cache = (1u64..=1 << 52, 1u32.., 0u32..=12, 1u32..=8192, constant(LATENCY_BOUNDS));
            let caches = proptest::collection::vec(cache, 0..4);
            let wake = proptest::option::of(constant(IDLE_BOUNDS));
            let state = (constant(IDLE_BOUNDS), constant(IDLE_BOUNDS), wake, any::<bool>());
            let states = proptest::collection::vec(state, 0..4);
            // Steps from point to point, so that the curve rises.
            let step = (1u64..1 << 40, 0u64..1000, 0u64..1000, 0u64..1000);
            let curve = proptest::collection::vec(step, 2..20);
            let curves = proptest::collection::vec((curve, ".*[a-z]"), 0..=3);
            let loaded = proptest::collection::vec((1u32..40, 0u32..4000), 2..20);
            let loaded = proptest::collection::vec((loaded, ".*[a-z]", any::<bool>()), 0..=4);
            let why = proptest::option::of("[a-z]( ?.*[a-z])?");
            let all = (links, costs, caches, states, curves, loaded, why);
            all.prop_map(move |(links, costs, caches, mut states, curves, loaded, defaults)| {
                Hardware {
                    name: name.clone(),
                    about: "about".into(),
                    nodes: nodes.clone(),
                    cpus: cpus.clone(),
                    caches: caches
                        .into_iter()
                        .enumerate()
                        .map(|(i, (size, ways, line, shared_by, latency))| Cache {
                            level: i as u8 + 1,
                            size: Bytes(size),
                            ways,
                            line: 1 << line,
                            shared_by,
                            latency,
                        })
                        .collect(),
                    distances: distances.clone(),
                    links,
                    idle_states: {
                        states.sort_by_key(|s| s.1.value);
                        let state = |(i, (exit_latency, target_residency, wake_latency, store))| {
                            let polls = i == 0 && store;
                            IdleCosts {
                                name: format!("C{i}"),
                                polls,
                                woken_by: if store { WokenBy::Store } else { WokenBy::Interrupt },
                                exit_latency,
                                target_residency,
                                wake_latency,
                            }
                        };
                        states.into_iter().enumerate().map(state).collect()
                    },
                    curves: curves
                        .into_iter()
                        .zip(Walk::ALL)
                        .map(|((steps, method), walk)| {
                            let mut p = Point { size: Bytes(64), low: 1, time: 1001, high: 2001 };
                            let point = |(size, low, time, high): (u64, u64, u64, u64)| {
                                p.size.0 += size;
                                // Each within its own thousand, so that none overtakes another.
                                p.low = p.low.max(1 + low);
                                p.time = p.time.max(1001 + time);
                                p.high = p.high.max(2001 + high);
                                p
                            };
                            Curve { walk, method, points: steps.into_iter().map(point).collect() }
                        })
                        .collect(),
                    loaded: loaded
                        .into_iter()
                        .zip(Path::ALL)
                        .map(|((steps, method, duplex), path)| {
                            let mut p = loaded::Point { share: 0, times: 1000 };
                            let point = |(share, times): (u32, u32)| {
                                p.share += share;
                                p.times += times;
                                p
                            };
                            let points = steps.into_iter().map(point).collect();
                            Loaded { path, duplex, method, origin: Origin::Measured, points }
                        })
                        .collect(),
                    defaults,
                    costs: Costs(
                        Cost::ALL
                            .iter()
                            .copied()
                            .zip(costs)
                            .filter_map(|(k, c)| Some((k, c?)))
                            .collect(),
                    ),
                }
            })
        })
}

const MACHINE: &str = include_str!("good-machine.toml");
const SCENARIO: &str = include_str!("good-scenario.toml");
const GUESTS: &str = include_str!("good-guests.toml");

/// The text with some bytes replaced, kept UTF-8.
fn damaged(text: &str, changes: &[(usize, u8)]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for (at, b) in changes {
        let at = at % bytes.len();
        bytes[at] = *b;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn machines_come_back(m in machine()) {
        prop_assert_eq!(m.check(), Ok(()));
        let text = write_machine(&m);
        match parse_machine("m", &text) {
            Ok(back) => prop_assert_eq!(back, m),
            Err(e) => prop_assert!(false, "{e}\n{text}"),
        }
    }

    #[test]
    fn garbage_is_refused(text in any::<String>(), lines in "([a-z\\[\\]{}=\", 0-9.\n-]*)") {
        prop_assert!(parse_machine("g", &text).is_err());
        prop_assert!(parse_scenario("g", &text).is_err());
        prop_assert!(parse_machine("g", &lines).is_err());
        prop_assert!(parse_scenario("g", &lines).is_err());
        let _ = parse_add_node(&text);
    }

    #[test]
    fn damaged_files_never_panic(changes in proptest::collection::vec((any::<usize>(), 32u8..127), 1..6)) {
        let machine = parse_machine("m", &damaged(MACHINE, &changes));
        if let Ok(m) = &machine {
            prop_assert_eq!(m.check(), Ok(()));
        }
        for text in [SCENARIO, GUESTS] {
            if let (Ok(s), Ok(m)) = (parse_scenario("s", &damaged(text, &changes)), &machine) {
                let by_value = check(&s.scenario, m).is_ok();
                prop_assert_eq!(by_value, s.check(m).is_ok());
            }
        }
    }

    #[test]
    fn a_guests_memory_is_divided_without_a_rest(
        pages in 1000u64..1 << 30,
        cuts in proptest::array::uniform3(0u64..=1000),
        count in 1u64..5,
    ) {
        let mut cuts = cuts;
        cuts.sort_unstable();
        let [zero, image, volatile] = [cuts[0], cuts[1] - cuts[0], cuts[2] - cuts[1]];
        let text = format!(
            "name = \"g\"\nabout = \"\"\nmachine = \"m\"\n[[guest]]\nname = \"g\"\ncount = {count}\n\
             cpus = \"0\"\nmemory = {}\nzero = {zero}\nimage = {{ name = \"i\", share = {image} }}\n\
             volatile = {{ share = {volatile}, every = \"1s\" }}\ndo = \"idle\"\ntime = \"1s\"\n",
            pages * 4096,
        );
        let file = parse_scenario("g", &text).expect("it is good");
        prop_assert_eq!(file.scenario.processes.len() as u64, count);
        for guest in &file.scenario.processes {
            let of = |name: &str| {
                guest.maps.iter().find(|m| m.name == name).map_or(0, |m| m.size.0 / 4096)
            };
            prop_assert_eq!(guest.maps.iter().map(|m| m.size.0).sum::<u64>(), pages * 4096);
            let own = 1000 - cuts[2];
            let parts =
                [("zero", zero), ("image-i", image), ("volatile", volatile), ("own", own)];
            for (name, share) in parts {
                // Within a page of the exact share, and nothing where nothing was asked for.
                prop_assert!((of(name) * 1000).abs_diff(pages * share) < 1000, "{name}");
                prop_assert_eq!(of(name) > 0, share > 0);
            }
        }
    }
}
