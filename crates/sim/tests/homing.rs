//! Tasks that follow their memory, and memory that follows tasks: who moves, and that nobody gets lost.
//!
//! Specs: specs/numa.md#homing.

use expect_test::{Expect, expect};
use homenode_core::kernel::KernelVersion;
use homenode_core::sched::stats::TaskLine;
use homenode_core::units::Picos;
use homenode_fixtures::machine::{dram, machine};
use homenode_sim::check::Checker;
use homenode_sim::{Setup, Simulation};
use std::fmt::Write as _;

const MIB: u64 = 256;
const TIED: [&str; 2] = [
    "{ mode = \"bind\", nodes = \"0\", balancing = true }",
    "{ mode = \"bind\", nodes = \"1\", balancing = true }",
];

/// A program that touches its heap on one CPU, which puts it where the policy says, and may run anywhere from then on.
struct Task {
    name: &'static str,
    cpu: u32,
    policy: &'static str,
    /// The policy ends when the heap is there.
    freed: bool,
    /// Where it may run afterwards.
    cpus: &'static str,
}

fn tied(name: &'static str, cpu: u32, node: usize) -> Task {
    Task { name, cpu, policy: TIED[node], freed: false, cpus: "0-3" }
}

fn file(version: KernelVersion, tasks: &[Task], more: &str) -> String {
    let mut text = format!(
        "name = \"homing\"\nabout = \"a test\"\nmachine = \"m\"\nkernel = \"{version}\"\n[knobs]\n\
         numa_balancing = 1\nscan_delay_ms = 100\nscan_period_min_ms = 100\n\
         transparent_hugepage = \"madvise\"\n{more}"
    );
    for t in tasks {
        let freed = if t.freed {
            "[[process.step]]\ndo = \"mbind\"\nmap = \"heap\"\npolicy = \"default\"\n"
        } else {
            ""
        };
        write!(
            text,
            "[[process]]\nname = \"{}\"\nthreads = 1\n[[process.map]]\nname = \"heap\"\nsize = \"4 MiB\"\n\
             policy = {}\n[[process.step]]\ndo = \"affinity\"\ncpus = \"{}\"\n[[process.step]]\ndo = \"touch\"\n\
             map = \"heap\"\n{freed}[[process.step]]\ndo = \"access\"\nmap = \"heap\"\npattern = \"uniform\"\n\
             time = \"20ms\"\n[[process.step]]\ndo = \"affinity\"\ncpus = \"{}\"\n[[process.step]]\ndo = \"access\"\n\
             map = \"heap\"\npattern = \"uniform\"\ntime = \"100s\"\n",
            t.name, t.policy, t.cpu, t.cpus
        )
        .expect("a String takes all");
    }
    text
}

/// Two CPUs compute, pinned.
const BUSY: &str = "[[process]]\nname = \"busy\"\ncpus = \"1,3\"\n[[process.step]]\ndo = \"compute\"\ntime = \"100s\"\n";

fn simulation(cpus: u32, text: &str) -> Simulation {
    let machine = machine(&[dram(64 * MIB, cpus), dram(64 * MIB, cpus)]);
    let file = homenode_config::parse_scenario("run.toml", text).unwrap_or_else(|e| panic!("{e}"));
    file.check(&machine).unwrap_or_else(|e| panic!("{e}"));
    let setup = Setup { duration: Some(Picos::from_ms(900).0), ..Setup::of(&file.scenario) };
    Simulation::new(&machine, &file.scenario, &setup).expect("a simulation")
}

/// Where each task and its memory are after 0.9 s, and what was moved; twice the same, with somebody who recounts all.
fn told(text: &str) -> String {
    let run = || {
        let mut sim = simulation(2, text);
        let checker = Checker::watch(&mut sim);
        checker
            .run(&mut sim, Picos::from_ms(900).0, 5_000_000_000)
            .unwrap_or_else(|e| panic!("{e}"));
        (tell(&sim), sim.hash())
    };
    let first = run();
    assert_eq!(first, run(), "a second run");
    first.0
}

fn tell(sim: &Simulation) -> String {
    let mut told = String::new();
    for p in sim.processes() {
        let Ok(sched) = sim.task_sched_of(&p.name) else { continue };
        let numa = sched.numa.as_ref().expect("a kernel that balances");
        if numa.faults.iter().all(|f| f.task_private + f.task_shared == 0)
            && sched.get(TaskLine::NumaPagesMigrated) == Some(0)
        {
            continue;
        }
        let moved = sched.get(TaskLine::NumaPagesMigrated).unwrap_or(0);
        let moved = if moved > 0 { "pages came" } else { "no page came" };
        let home = sched.get(TaskLine::NumaPreferredNid).unwrap_or(-1);
        let group = if numa.numa_group_id == 0 { "alone" } else { "in a group" };
        writeln!(told, "{} on node {}, home {home}, {moved}, {group}", p.name, numa.current_node)
            .expect("a String takes all");
    }
    let h = sim.homing();
    write!(told, "{} moves, {} swaps", h.moves, h.swaps).expect("a String takes all");
    told
}

const MODERN: [KernelVersion; 6] = [
    KernelVersion::V4_5,
    KernelVersion::V4_15,
    KernelVersion::V5_18,
    KernelVersion::V6_1,
    KernelVersion::V6_12,
    KernelVersion::V7_3,
];

fn on_all(tasks: &[Task], more: &str, expected: Expect) {
    let told: Vec<String> = MODERN.map(|v| told(&file(v, tasks, more))).to_vec();
    for (version, other) in MODERN.iter().zip(&told) {
        assert_eq!(*other, told[0], "{version} and {}", MODERN[0]);
    }
    expected.assert_eq(&told[0]);
}

/// Its pages may not move, its home node's CPUs idle: it goes there, once, on every kernel.
#[test]
fn a_task_comes_home() {
    on_all(
        &[tied("away", 0, 1)],
        "",
        expect![[r#"
        away on node 1, home 1, no page came, alone
        1 moves, 0 swaps"#]],
    );
}

/// The first faults of a young task bring its pages: nothing is left to follow.
#[test]
fn pages_come_to_a_task() {
    let t = Task { freed: true, ..tied("fetches", 0, 1) };
    on_all(
        &[t],
        "",
        expect![[r#"
        fetches on node 0, home -1, pages came, alone
        0 moves, 0 swaps"#]],
    );
}

/// All CPUs are busy, and each of two tasks runs where the other's memory is: one swap, and both are at home.
#[test]
fn two_tasks_swap() {
    on_all(
        &[tied("left", 0, 1), tied("right", 2, 0)],
        BUSY,
        expect![[r#"
        left on node 1, home 1, no page came, alone
        right on node 0, home 0, no page came, alone
        0 moves, 1 swaps"#]],
    );
}

/// A task that may not go home stays, and so does a partner that may not come.
#[test]
fn pinned_tasks_never_move() {
    let pinned = |name, cpu, node, cpus| Task { cpus, ..tied(name, cpu, node) };
    on_all(
        &[pinned("left", 0, 1, "0"), tied("right", 2, 0)],
        BUSY,
        expect![[r#"
        left on node 0, home 1, no page came, alone
        right on node 1, home 0, no page came, alone
        0 moves, 0 swaps"#]],
    );
    on_all(
        &[pinned("left", 0, 1, "0-1"), pinned("right", 2, 0, "2")],
        "",
        expect![[r#"
        left on node 0, home 1, no page came, alone
        right on node 1, home 0, no page came, alone
        0 moves, 0 swaps"#]],
    );
}

/// 3.8 moves pages only.
#[test]
fn in_3_8_nobody_follows() {
    let told = told(&file(KernelVersion::V3_8, &[tied("away", 0, 1)], ""));
    assert!(told.ends_with("0 moves, 0 swaps"), "{told}");
}

/// Threads on one heap: they form a group.
fn gang(cpus: u32, threads: u32, policy: &str) -> String {
    let text = format!(
        "[[process]]\nname = \"gang\"\nthreads = {threads}\n[[process.map]]\nname = \"heap\"\nsize = \"4 MiB\"\n\
         policy = {policy}\n[[process.step]]\ndo = \"touch\"\nmap = \"heap\"\n[[process.step]]\ndo = \"access\"\n\
         map = \"heap\"\npattern = \"uniform\"\nwrite = 300\ntime = \"100s\"\n"
    );
    let mut sim = simulation(cpus, &file(KernelVersion::V6_12, &[], &text));
    sim.run_until(Picos::from_ms(900).0);
    tell(&sim)
}

/// Its memory is on the other node, which may hold two more than this one: all of it goes there.
#[test]
fn a_group_gathers() {
    expect![[r#"
        gang on node 1, home 1, no page came, in a group
        2 moves, 0 swaps"#]]
    .assert_eq(&gang(16, 2, TIED[1]));
}

/// With two CPUs a node, a second task would be one too many beside an empty node: the kernel leaves the two apart, and
/// who stays takes its own node for its home.
#[test]
fn a_small_node_takes_no_group() {
    expect![[r#"
        gang on node 0, home 0, no page came, in a group
        0 moves, 0 swaps"#]]
    .assert_eq(&gang(2, 2, TIED[1]));
}

/// A group whose threads need both nodes' CPUs, and whose memory is on both, is not torn to and fro.
#[test]
fn a_group_on_two_nodes_is_left_alone() {
    expect![[r#"
        gang on node 0, home 0, pages came, in a group
        0 moves, 0 swaps"#]]
    .assert_eq(&gang(2, 4, "{ mode = \"bind\", nodes = \"0-1\", balancing = true }"));
    expect![[r#"
        gang on node 0, home 0, pages came, alone
        0 moves, 0 swaps"#]]
    .assert_eq(&gang(2, 4, "\"default\""));
}

/// Seeds choose nodes, CPUs, kernels, and tasks that are tied, free or pinned; some write, some share a heap. Whatever
/// moves, nobody gets lost (the checker recounts all), who is pinned stays, and a second run is the same.
#[test]
fn a_swarm_of_homes() {
    let run = |seed: u64| {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut below = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        let (nodes, cpus) = (2 + below(3), 1 + below(3));
        let last = nodes * cpus - 1;
        let version = MODERN[below(6) as usize];
        let mut text = file(version, &[], "");
        let mut pinned = Vec::new();
        for i in 0..1 + below(nodes * cpus) {
            let policy = match below(3) {
                0 => "\"default\"".to_owned(),
                _ => {
                    format!("{{ mode = \"bind\", nodes = \"{}\", balancing = true }}", below(nodes))
                }
            };
            let (first, threads, write) = (below(last + 1), 1 + below(2), 300 * below(2));
            let later = if below(4) == 0 { format!("{first}") } else { format!("0-{last}") };
            if later.len() == 1 {
                pinned.push((format!("p{i}"), first));
            }
            write!(
                text,
                "[[process]]\nname = \"p{i}\"\nthreads = {threads}\n[[process.map]]\nname = \"heap\"\n\
                 size = \"1 MiB\"\npolicy = {policy}\n[[process.step]]\ndo = \"affinity\"\n\
                 cpus = \"{first}\"\n[[process.step]]\ndo = \"touch\"\nmap = \"heap\"\n[[process.step]]\n\
                 do = \"affinity\"\ncpus = \"{later}\"\n[[process.step]]\ndo = \"access\"\nmap = \"heap\"\n\
                 pattern = \"uniform\"\nwrite = {write}\ntime = \"{}ms\"\n[[process.step]]\ndo = \"repeat\"\n\
                 steps = 1\nuntil = \"100s\"\n",
                1 + below(40)
            )
            .expect("a String takes all");
        }
        let specs: Vec<_> = (0..nodes).map(|_| dram(64 * MIB, cpus as u32)).collect();
        let machine = machine(&specs);
        let once = || {
            let file = homenode_config::parse_scenario("run.toml", &text)
                .unwrap_or_else(|e| panic!("{e}\n{text}"));
            let setup =
                Setup { duration: Some(Picos::from_ms(700).0), ..Setup::of(&file.scenario) };
            let mut sim = Simulation::new(&machine, &file.scenario, &setup).expect("a simulation");
            let checker = Checker::watch(&mut sim);
            let done = checker.run(&mut sim, Picos::from_ms(700).0, 20_000_000_000);
            done.unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
            for (name, cpu) in &pinned {
                let sched = sim.task_sched_of(name).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                let node = sched.numa.expect("a kernel that balances").current_node;
                assert_eq!(node as u64, cpu / cpus, "seed {seed}: {name} is pinned to CPU {cpu}");
            }
            (sim.homing(), sim.hash())
        };
        let first = once();
        assert_eq!(first, once(), "seed {seed}: a second run");
        first.0
    };
    let all: Vec<_> = (1..=24).map(run).collect();
    let (moves, swaps): (u64, u64) =
        all.iter().fold((0, 0), |(m, s), h| (m + h.moves, s + h.swaps));
    // Silence means something only if tasks move.
    assert!(moves >= 5 && swaps >= 10, "{moves} moves, {swaps} swaps");
}
