//! What a run is judged by changes nothing of it, and agrees with what the run says of itself.

use homenode_core::units::Picos;
use homenode_sim::{Score, Setup, Simulation};
use std::path::Path;

fn simulation(mode: &str) -> Simulation {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/tiering-gauss.toml");
    let read = homenode_config::read_scenario_and_machine(&file);
    let (scenario, machine) = read.unwrap_or_else(|e| panic!("{e}"));
    let mut setup = Setup::of(&scenario);
    setup.duration = Some(Picos::from_secs(3).0);
    setup.knobs.push(("numa_balancing".into(), mode.into()));
    Simulation::new(&machine, &scenario, &setup).expect("a simulation")
}

/// Source: specs/compare.md#score.
#[test]
fn a_run_is_the_same_with_and_without_it() {
    for mode in ["0", "2"] {
        let mut plain = simulation(mode);
        plain.run();
        let mut judged = simulation(mode);
        judged.keep_score(Score::new(Picos::from_ms(100), 0, true));
        judged.run();
        assert_eq!(plain.hash(), judged.hash(), "mode {mode}");

        let score = judged.score().expect("kept");
        // What was under way when the time was over may have ended in a further slice.
        assert!((30..=31).contains(&score.slices().len()));
        let fast: u64 = score.slices().iter().map(|s| s.fast).sum();
        let slow: u64 = score.slices().iter().map(|s| s.slow).sum();
        assert_eq!(fast + slow, judged.accesses());
        // All pages are followed: their moves are all moves.
        let moved: u64 = judged.moved().iter().flatten().sum();
        let (moves, vain) = score.moves();
        assert_eq!(moves, moved);
        assert!(vain <= moves && (mode == "2") == (moves > 0));
        // CPUs were busy for three seconds at most each, and programs less than that.
        let used = score.used().last().expect("a slice");
        assert!(used.user_ps > 0 && used.user_ps <= used.busy_ps);
        assert!(used.busy_ps <= 4 * Picos::from_secs(3).0);
    }
}

/// Source: specs/compare.md#score.
#[test]
fn courses_say_what_each_page_would_gain_and_where_it_is() {
    let mut sim = simulation("0");
    sim.keep_score(Score::new(Picos::from_ms(100), 0, true));
    sim.run();
    let courses = sim.courses();
    assert_eq!(courses.len(), 384 * 256, "each page of the heap");
    assert!(courses.iter().all(|c| (30..=31).contains(&c.gains.len())));
    // 185 ns an access; the programs only access memory in this scenario.
    let gained: u64 = courses.iter().flat_map(|c| &c.gains).map(|&g| u64::from(g)).sum();
    assert_eq!(gained, 185 * sim.accesses());
    // Where nothing moves, the first pages that were touched have the fast tier.
    let fast = courses.iter().filter(|c| c.fast).count();
    assert!(courses[..fast].iter().all(|c| c.fast), "{fast}");
    assert!((50_000..=65_536).contains(&fast), "{fast}");
    let [up, down] = sim.move_costs();
    assert!(up.0 >= 2_700_000 && down.0 >= 2_700_000);
}
