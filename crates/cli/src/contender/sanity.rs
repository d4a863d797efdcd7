//! Published orderings that contenders have to reproduce before their columns count.
//!
//! Source: specs/compare.md.

use super::{Contender, Contenders, Drives, hemem};
use crate::homenode::Runner;
use homenode_core::policy::seen::Source;
use homenode_core::topology::Hardware;
use homenode_core::units::Picos;
use homenode_sim::{Score, Setup, Simulation};

/// Updates of which nine of ten go to a sixth of a table; idle memory came first, so that it begins
/// below.
fn gups(cpus: &str, mlp: u32) -> String {
    format!(
        r#"
name = "gups"
about = "updates, most of them in a hot set that begins below"
machine = "none"
seed = 1

[[process]]
name = "table"
cpus = "{cpus}"
map = [{{ name = "idle", size = "240 MiB" }}, {{ name = "table", size = "384 MiB" }}]
step = [
    {{ do = "touch", map = "idle" }},
    {{ do = "touch", map = "table" }},
    {{ do = "access", map = "table", pattern = "hot-spot", size = 160, share = 900, every = "1000s", write = 500, mlp = {mlp}, time = "8s" }},
]
"#
    )
}

/// `small-cxl`, whose fast node has so much bandwidth in MB/s.
fn machine(bandwidth: u64) -> Hardware {
    let text = include_str!("../../../../machines/small-cxl.toml");
    let text = text.replacen("value = 20000", &format!("value = {bandwidth}"), 1);
    homenode_config::parse_machine("small-cxl.toml", &text).expect("a machine")
}

/// Million accesses a second in the last quarter, and pages moved.
fn run(text: &str, machine: &Hardware, column: &Contender) -> (f64, u64) {
    let scenario = homenode_config::parse_scenario("gups.toml", text).expect("a scenario").scenario;
    let setup = column.setup(&Setup::of(&scenario), &[]).expect("a setting");
    let mut sim = Simulation::new(machine, &scenario, &setup).expect("a simulation");
    sim.keep_score(Score::new(Picos::from_ms(250), 3, false));
    let mut runner = Runner::new(sim, column, setup.version).expect("it drives");
    runner.run().expect("it runs");
    let sim = runner.sim();
    let slices = sim.score().expect("kept").slices();
    let last = &slices[slices.len() * 3 / 4 - 1..slices.len() - 1];
    let accesses: u64 = last.iter().map(|s| s.fast + s.slow).sum();
    let seconds = last.len() as f64 * 0.25;
    (accesses as f64 / seconds / 1e6, sim.moved().iter().flatten().sum())
}

fn column(text: &str) -> Contender {
    Contenders::with(&[]).one(text).expect("a column")
}

/// Source: specs/compare.md#hemem.
#[test]
fn hemem_brings_a_hot_set_up_that_fits() {
    let (machine, text) = (machine(20_000), gups("0", 4));
    let (off, _) = run(&text, &machine, &column("off"));
    let (hemem, moved) = run(&text, &machine, &column("hemem"));
    assert!(hemem > 1.3 * off, "{hemem} after {off}");
    // Not much more than the hot set, and as much down.
    assert!((10_000..60_000).contains(&moved), "{moved}");
}

/// Source: specs/compare.md#colloid.
#[test]
fn colloid_is_ahead_of_hemem_where_the_fast_node_is_saturated_and_only_there() {
    let ratio = |bandwidth, cpus, mlp| {
        let (machine, text) = (machine(bandwidth), gups(cpus, mlp));
        let (hemem, _) = run(&text, &machine, &column("hemem"));
        let (colloid, _) = run(&text, &machine, &column("colloid"));
        colloid / hemem
    };
    let idle = ratio(20_000, "0", 1);
    assert!((0.9..1.1).contains(&idle), "{idle}");
    // Three threads ask for more than the fast node has; the slow one has plenty.
    let saturated = ratio(4_000, "0-2", 16);
    assert!(saturated > 1.05, "{saturated}");
}

/// Source: specs/compare.md#arms.
#[test]
fn arms_untuned_is_about_as_good_as_the_best_of_a_sweep_of_hemem() {
    let (machine, text) = (machine(20_000), gups("0", 4));
    let swept = |make| {
        let drives = Some(Drives { name: "hemem", source: Source::Pmu, make });
        run(&text, &machine, &Contender { drives, ..column("hemem") }).0
    };
    let best = [
        swept(|machine, _, _| hemem::with(machine, 2)),
        swept(|machine, _, _| hemem::with(machine, 4)),
        swept(|machine, _, _| hemem::with(machine, 8)),
        swept(|machine, _, _| hemem::with(machine, 14)),
    ];
    let best = best.into_iter().fold(0.0, f64::max);
    let (arms, _) = run(&text, &machine, &column("arms"));
    assert!(arms > 0.95 * best, "{arms} after {best}");
}
