//! Fast memory goes to who accesses most, or to who waits longest: a scan with eight loads under way
//! at once, and a store that waits for each, on the simulated machine.

mod support;

use homenode_core::engine::{Engine, Settings};
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::seen::{Source, Who};
use homenode_core::scenario::{Mempolicy, Pattern, Step};
use homenode_core::units::{NodeId, Picos};
use homenode_machine::{Machine as _, drive};
use homenode_sim::machine::{SimMachine, knobs_for};
use homenode_sim::{Setup, Simulation};
use support::*;

/// Pages of the scan, which fill the fast node, and of the store.
const SCAN: u64 = 9000;
const STORE: u64 = 3000;

/// Pages of the store on the fast node, and what each program has accessed, after so many seconds.
fn told(source: Source, most_at_once: u32, seconds: u64) -> (u64, [u64; 2]) {
    let m = machine(&[dram(8192, 4), Spec { cpus: 0, ns: 275, ..dram(16_384, 0) }]);
    let setup = Setup { knobs: knobs_for(source), seed: 5, room: 1 << 19, ..Setup::default() };
    let sim = Simulation::boot(&m, &setup, 0).expect("a machine");
    let mut m = SimMachine::new(sim, source).expect("a source");
    let mut scan = access("table", Pattern::Sequential, 0, for_ms(1_000_000));
    if let Step::Access { mlp, .. } = &mut scan {
        *mlp = 8;
    }
    m.spawn(process("scan", &[1], vec![map("table", SCAN)], vec![touch("table"), scan]), None);
    let mut values = map("values", STORE);
    values.policy = Mempolicy::Preferred(NodeId(1));
    let steps = vec![
        touch("values"),
        Step::Mbind { map: "values".into(), policy: Mempolicy::Default },
        access("values", Pattern::Uniform, 0, for_ms(1_000_000)),
    ];
    let (who, spans): (Who, _) = m.spawn(process("store", &[2, 3], vec![values], steps), None);
    let settings = Settings { most_at_once, ..Settings::default() };
    let caps = m.caps();
    let (lacks, most) = (caps.lacks.clone(), caps.most_pages);
    let version = KernelVersion::default();
    let mut e = Engine::new(settings, m.topology(), version, source, &lacks, most);
    drive(&mut m, &mut e, Picos::from_secs(seconds)).expect("it runs");
    let fast = m.placed(who, spans[0]).get(&NodeId(0)).map_or(0, |p| p.0);
    let all = m.simulation().processes();
    (fast, [0, 1].map(|i| all[i].accesses.iter().flatten().sum()))
}

// specs/engine.md#waited: per page the scan has twice as many accesses, and waits a quarter as long.
#[test]
fn who_waits_has_fast_memory_where_that_is_wanted() {
    let (fast, [scan, store]) = told(Source::Pmu, 1, 12);
    assert!(fast < STORE / 10, "{fast} pages of the store came up");
    let (waits, [scans, stores]) = told(Source::Pmu, 64, 12);
    assert!(waits > STORE * 9 / 10, "{waits} pages of the store came up");
    // The store accesses twice as much and more, and the scan loses less than half.
    assert!(
        stores > store * 2 && scans * 2 > scan && scans < scan,
        "{scan} {store}, {scans} {stores}"
    );
    // All in all that is no more than before: the scan made most of the accesses.
    assert!(scans + stores < scan + store + (scan + store) / 20);
}

// specs/engine.md#waited: where nothing tells it, nothing is divided.
#[test]
fn regions_and_faults_say_nothing_of_loads() {
    for source in [Source::Damon, Source::HintFault] {
        assert_eq!(told(source, 64, 5), told(source, 1, 5), "{}", source.name());
    }
}
