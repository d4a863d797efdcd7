//! The script of scheduling on the simulated kernel, beside what real ones did in it: five to
//! nine boots of each on each machine (`tests/vm/sched/`).
//!
//! Source: specs/end-to-end.md#judged.

use expect_test::expect_file;
use homenode_core::kernel::KernelVersion;
use homenode_machine::endtoend::sched::{Place, Shape, compare, run, script, switching, text};
use homenode_sim::twin::ScriptTwin;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Machines: name, last-level caches, cores of each, threads of each.
const MACHINES: [(&str, u32, u32, u32); 4] = [
    ("script-flat", 1, 4, 1),
    ("script-smt", 1, 2, 2),
    ("script-nodes", 2, 2, 1),
    ("script-smt-nodes", 2, 2, 2),
];
/// Kernels that were recorded, and the version that is simulated beside each.
const KERNELS: [(&str, KernelVersion); 3] =
    [("6.1", KernelVersion::V6_1), ("6.12", KernelVersion::V6_12), ("newest", KernelVersion::V7_3)];
/// Of the steps that are the same in all boots so many in a hundred have to be the same here.
const SAME_MIN: usize = 80;

fn shape(llcs: u32, cores: u32, threads: u32) -> Shape {
    let place = |cpu: u32| Place { cpu, core: cpu / threads, llc: cpu / (cores * threads) };
    Shape::new((0..llcs * cores * threads).map(place).collect()).expect("a shape")
}

fn played(shape: &Shape, version: KernelVersion) -> String {
    let mut twin = ScriptTwin::boot(shape, version).expect("a machine");
    text(&run(&mut twin, &script(shape)).expect("a script that comes to its end"))
}

/// What is different is listed, so that whatever changes is seen; reasons are in
/// specs/exceptions/script-steps.md.
#[test]
fn the_simulated_kernel_does_what_real_ones_do() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vm/sched");
    let mut told = String::new();
    for (kernel, version) in KERNELS {
        for (name, llcs, cores, threads) in MACHINES {
            let Ok(expected) = fs::read_to_string(root.join(format!("{kernel}.{name}.txt"))) else {
                continue;
            };
            let shape = shape(llcs, cores, threads);
            let found = played(&shape, version);
            let verdict = compare(&expected, &found).expect("the script that was recorded");
            let same = verdict.judged - verdict.different.len();
            let _ = writeln!(
                told,
                "# {kernel}, {name}: {same} of {} steps, {} of {} lines of CPUs",
                verdict.judged, verdict.cpus_same, verdict.cpus
            );
            for line in &verdict.different {
                let _ = writeln!(told, "{line}");
            }
            let enough = same * 100 >= verdict.judged * SAME_MIN;
            assert!(enough || std::env::var_os("UPDATE_EXPECT").is_some(), "{told}");
        }
    }
    expect_file!["scripts.txt"].assert_eq(&told);
}

#[test]
fn a_script_is_played_twice_the_same() {
    let shape = shape(2, 2, 2);
    let once = played(&shape, KernelVersion::V6_12);
    assert_eq!(once, played(&shape, KernelVersion::V6_12));
}

/// What the switch has stands still while it is off, and what is always live goes on.
///
/// Specs: specs/schedstats.md#switch, specs/seeds.md#s2.
#[test]
fn statistics_are_switched_as_on_real_kernels() {
    for (kernel, version) in KERNELS {
        let mut twin = ScriptTwin::boot(&shape(1, 4, 1), version).expect("a machine");
        let seen = switching(&mut twin, 3).unwrap_or_else(|e| panic!("{kernel}: {e}"));
        println!("{kernel}: {seen:?}");
    }
}
