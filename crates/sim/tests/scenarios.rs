//! Every scenario that comes with the project: the same hash as last time, twice, on
//! one worker thread and on three, and nothing for the checker to find.
//!
//! After a change of the model that is meant to change runs:
//! `UPDATE_EXPECT=1 cargo test -p homenode-sim --test scenarios`.

use homenode_core::engine::{Engine, Settings};
use homenode_core::policy::Policy as _;
use homenode_core::policy::seen::{Shows, Source};
use homenode_core::scenario::Scenario;
use homenode_core::topology::Hardware;
use homenode_core::units::Picos;
use homenode_machine::{Machine as _, drive};
use homenode_sim::check::Checker;
use homenode_sim::machine::{SimMachine, knobs_for};
use homenode_sim::{Setup, Simulation};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Virtual time of a run here: the full ones are for `homenode sim`.
const SPAN: u64 = 1_500_000_000_000;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let entries = std::fs::read_dir(&folder).expect("scenarios/ is there");
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("readable").path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "toml"));
    files.sort();
    assert!(!files.is_empty(), "scenarios/ is empty");
    files
}

fn simulation(machine: &Hardware, scenario: &Scenario) -> Simulation {
    let mut setup = Setup::of(scenario);
    setup.duration = Some(setup.duration.unwrap_or(SPAN).min(SPAN));
    // One second of slow start would be most of such a run.
    setup.knobs.push(("scan_delay_ms".into(), "100".into()));
    Simulation::new(machine, scenario, &setup).unwrap_or_else(|e| panic!("{}: {e}", scenario.name))
}

/// Hashes in the order of the scenarios, made by so many threads.
fn hashes(all: &[(Scenario, Hardware)], workers: usize) -> Vec<u64> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(vec![0; all.len()]);
    std::thread::scope(|s| {
        for _ in 0..workers {
            s.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some((scenario, machine)) = all.get(i) else { break };
                    let mut sim = simulation(machine, scenario);
                    sim.run();
                    done.lock().expect("no worker panics with it")[i] = sim.hash();
                }
            });
        }
    });
    done.into_inner().expect("all workers are done")
}

#[test]
fn hashes_are_those_of_last_time() {
    let all: Vec<(Scenario, Hardware)> = files()
        .iter()
        .map(|f| homenode_config::read_scenario_and_machine(f).unwrap_or_else(|e| panic!("{e}")))
        .collect();
    let first = hashes(&all, 1);
    assert_eq!(first, hashes(&all, 3), "another number of workers");
    let lines: String =
        all.iter().zip(&first).map(|((s, _), hash)| format!("{hash:016x} {}\n", s.name)).collect();
    expect_test::expect_file!["hashes.txt"].assert_eq(&lines);
}

#[test]
fn the_checker_finds_nothing() {
    for file in files() {
        let read = homenode_config::read_scenario_and_machine(&file);
        let (scenario, machine) = read.unwrap_or_else(|e| panic!("{e}"));
        let mut sim = simulation(&machine, &scenario);
        let checker = Checker::watch(&mut sim);
        let run = checker.run(&mut sim, SPAN, 60_000_000_000);
        run.unwrap_or_else(|e| panic!("{}: {e}", scenario.name));
        // Some are about CPUs only.
        let memory = scenario.processes.iter().any(|p| !p.maps.is_empty());
        assert_eq!(sim.accesses() > 0, memory, "{}", scenario.name);
        assert!(sim.processes().iter().all(|p| p.ran_ps > 0), "{}", scenario.name);
    }
}

/// A scenario with homenode instead of the kernel's balancing: the same twice, nothing
/// for the checker to find, and the hash of last time with each source.
#[test]
fn homenode_s_hashes_are_those_of_last_time() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/tiering-gauss.toml");
    let read = homenode_config::read_scenario_and_machine(&file);
    let (scenario, machine) = read.unwrap_or_else(|e| panic!("{e}"));
    let run = |source: Source, checked: bool| {
        let mut setup = Setup::of(&scenario);
        setup.duration = Some(2 * SPAN);
        setup.knobs.extend(knobs_for(source));
        setup.knobs.push(("scan_delay_ms".into(), "100".into()));
        let mut sim = Simulation::new(&machine, &scenario, &setup).expect("a simulation");
        let checker = checked.then(|| {
            let mut c = Checker::watch(&mut sim);
            c.moves_by_hand = true;
            c
        });
        let mut m = SimMachine::new(sim, source).expect("a source");
        let settings = Settings {
            start_delay: Picos::from_ms(100),
            interval: Picos::from_ms(200),
            cpu_permille: 100,
            ..Settings::default()
        };
        let caps = m.caps().clone();
        let mut engine =
            Engine::new(settings, &machine, setup.version, source, &caps.lacks, caps.most_pages)
                .bringing_threads(caps.affinity);
        for step in 1..=50 {
            drive(&mut m, &mut engine, Picos(2 * SPAN / 50 * step)).expect("it goes on");
            if let Some(checker) = &checker {
                let found = checker.findings(m.simulation());
                assert!(found.is_empty(), "{}: {found:?}", source.name());
            }
        }
        let moved = engine.ledger().total().moved;
        match source.shows() {
            Shows::Regions | Shows::Samples => assert!(moved.0 > 0, "{}", source.name()),
            // The fast node is full of pages that hint faults never show.
            Shows::Faults => {}
            Shows::Nothing => assert_eq!(moved.0, 0),
        }
        (m.hash(), moved)
    };
    let mut lines = String::new();
    for source in Source::ALL {
        let (first, second) = (run(source, false), run(source, true));
        assert_eq!(first, second, "{}", source.name());
        lines += &format!(
            "{:016x} {} homenode by {}: {} pages moved\n",
            first.0,
            scenario.name,
            source.name(),
            first.1.0
        );
    }
    expect_test::expect_file!["hashes-homenode.txt"].assert_eq(&lines);
}
