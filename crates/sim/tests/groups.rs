//! Groups of tasks: what they get of the CPUs, what their files say and take.

use expect_test::{Expect, expect};
use homenode_core::scenario::Rights;
use homenode_core::units::Picos;
use homenode_fixtures::machine::{dram, machine};
use homenode_sim::check::Checker;
use homenode_sim::{Setup, Simulation};

/// A scenario that computes: groups as TOML, and of each process the group, how many threads, and what else
/// its table says.
fn scenario(groups: &str, processes: &[(&str, u32, &str)]) -> String {
    let mut text = format!("name = \"groups\"\nabout = \"a test\"\nmachine = \"m\"\n{groups}");
    for (i, (group, threads, more)) in processes.iter().enumerate() {
        let group = match *group {
            "" => String::new(),
            name => format!("group = \"{name}\"\n"),
        };
        text += &format!(
            "[[process]]\nname = \"p{i}\"\n{group}threads = {threads}\n{more}\n\
             [[process.step]]\ndo = \"compute\"\ntime = \"700us\"\n\
             [[process.step]]\ndo = \"repeat\"\nsteps = 1\nuntil = \"1000s\"\n"
        );
    }
    text
}

fn simulation(cpus: u32, text: &str) -> Simulation {
    let machine = machine(&[dram(4096, cpus)]);
    let file = homenode_config::parse_scenario("run.toml", text).unwrap_or_else(|e| panic!("{e}"));
    file.check(&machine).unwrap_or_else(|e| panic!("{e}"));
    Simulation::new(&machine, &file.scenario, &Setup::of(&file.scenario)).expect("a simulation")
}

/// Runs for so many ms, with somebody who recounts all.
fn run(sim: &mut Simulation, checker: &Checker, ms: u64) {
    let stop = sim.now() + Picos::from_ms(ms).0;
    checker.run(sim, stop, 50_000_000_000).unwrap_or_else(|e| panic!("{e}"));
}

/// What each group got of all CPUs in 2 s, in tenths of a per cent.
fn shares(cpus: u32, groups: &str, processes: &[(&str, u32, &str)], expected: Expect) {
    let text = scenario(groups, processes);
    let told = || {
        let mut sim = simulation(cpus, &text);
        let checker = Checker::watch(&mut sim);
        run(&mut sim, &checker, 2000);
        let all = u128::from(sim.now()) * u128::from(cpus);
        let mut told = String::new();
        for g in sim.group_figures() {
            let share = (u128::from(g.usage_ps) * 1000 + all / 2) / all;
            told += &format!("{} {}.{} %", g.path, share / 10, share % 10);
            if g.nr_periods > 0 {
                told += &format!(
                    ", throttled in {} of {} periods, {} ms",
                    g.nr_throttled,
                    g.nr_periods,
                    g.throttled_ns / 1_000_000
                );
            }
            told.push('\n');
        }
        (told, sim.hash())
    };
    let first = told();
    assert_eq!(first, told(), "a second run");
    expected.assert_eq(&first.0);
}

const A_B: &str = "[[group]]\nname = \"a\"\n[[group]]\nname = \"b\"\ncpu.weight = 300\n";

/// Specs: specs/sched-groups.md#weight.
#[test]
fn groups_share_by_weight_whatever_is_in_them() {
    shares(
        1,
        A_B,
        &[("a", 1, ""), ("b", 1, "")],
        expect![[r#"
        a 25.0 %
        b 75.0 %
    "#]],
    );
    shares(
        1,
        A_B,
        &[("a", 5, ""), ("b", 1, "")],
        expect![[r#"
        a 25.0 %
        b 75.0 %
    "#]],
    );
    // Beside tasks of the root a group of weight 100 is one of nice 0.
    shares(
        1,
        A_B,
        &[("a", 3, ""), ("", 1, "")],
        expect![[r#"
        a 50.0 %
        b 0.0 %
    "#]],
    );
    // On several CPUs, where each has as many tasks as there are CPUs.
    shares(
        4,
        A_B,
        &[("a", 4, ""), ("b", 4, "")],
        expect![[r#"
        a 25.0 %
        b 75.0 %
    "#]],
    );
}

/// Specs: specs/sched-groups.md#weight.
#[test]
fn groups_in_groups_share_what_those_get() {
    let groups = "[[group]]\nname = \"a1\"\nparent = \"a\"\n\
                  [[group]]\nname = \"a\"\n\
                  [[group]]\nname = \"a2\"\nparent = \"a\"\ncpu.weight = 300\n\
                  [[group]]\nname = \"b\"\n";
    shares(
        1,
        groups,
        &[("a1", 1, ""), ("a2", 2, ""), ("b", 1, "")],
        expect![[r#"
        a 50.0 %
        a/a2 37.4 %
        b 50.0 %
        a/a1 12.6 %
    "#]],
    );
}

/// Specs: specs/sched-groups.md#idle.
#[test]
fn an_idle_group_gets_what_is_left() {
    let groups = "[[group]]\nname = \"a\"\ncpu.idle = true\n[[group]]\nname = \"b\"\n";
    shares(
        1,
        groups,
        &[("a", 2, ""), ("b", 1, "")],
        expect![[r#"
        a 0.4 %
        b 99.6 %
    "#]],
    );
}

/// Specs: specs/sched-groups.md#max.
#[test]
fn a_quota_is_what_a_group_gets_at_most() {
    let half = "[[group]]\nname = \"a\"\ncpu.max = \"50000 100000\"\n";
    // Alone, beside others, on more CPUs than the quota is for.
    shares(
        1,
        half,
        &[("a", 1, "")],
        expect![[r#"
        a 50.2 %, throttled in 20 of 20 periods, 996 ms
    "#]],
    );
    shares(
        1,
        half,
        &[("a", 3, ""), ("", 1, "")],
        expect![[r#"
        a 49.4 %, throttled in 7 of 20 periods, 28 ms
    "#]],
    );
    shares(
        4,
        half,
        &[("a", 4, "")],
        expect![[r#"
        a 12.7 %, throttled in 20 of 20 periods, 6988 ms
    "#]],
    );
    let nested = "[[group]]\nname = \"a\"\ncpu.max = \"30000 100000\"\n\
                  [[group]]\nname = \"b\"\nparent = \"a\"\ncpu.max = \"50000 100000\"\n";
    shares(
        1,
        nested,
        &[("b", 2, "")],
        expect![[r#"
        a 30.2 %, throttled in 20 of 20 periods, 1396 ms
        a/b 30.2 %, throttled in 0 of 20 periods, 0 ms
    "#]],
    );
}

/// Specs: specs/sched-groups.md#cpuset.
#[test]
fn a_cpuset_restricts_who_is_in_it() {
    let groups = "[[group]]\nname = \"a\"\ncpuset.cpus = \"0-1\"\n\
                  [[group]]\nname = \"b\"\nparent = \"a\"\ncpuset.cpus = \"1-3\"\n";
    // b may use CPU 1 only; what asks for more gets what is there.
    shares(
        4,
        groups,
        &[("a", 4, ""), ("b", 2, "cpus = \"0-2\"")],
        expect![[r#"
        a 50.0 %
        a/b 12.5 %
    "#]],
    );
}

/// Specs: specs/sched-groups.md#files.
#[test]
fn files_say_and_take_what_the_kernel_s_do() {
    let mut sim = simulation(4, &scenario(A_B, &[("a", 4, ""), ("b", 4, "nice = 5")]));
    let checker = Checker::watch(&mut sim);
    run(&mut sim, &checker, 200);
    let b = "/sys/fs/cgroup/b";
    let mut told = String::new();
    let mut say = |sim: &Simulation, file: &str| {
        let text = sim.read_file(&format!("{b}/{file}")).unwrap_or_else(|e| format!("{e}\n"));
        let text = text.trim_end().replace('\n', ", ");
        told += format!("{file}: {text}").trim_end();
        told += "\n";
    };
    for file in sim.list(b).expect("a folder") {
        say(&sim, &file);
    }
    for (file, text) in [
        ("cpu.weight", "100\n"),
        ("cpu.weight", "0"),
        ("cpu.weight", "10001"),
        ("cpu.weight", "much"),
        ("cpu.weight.nice", "-5"),
        ("cpu.weight.nice", "20"),
        ("cpu.max", "20000"),
        ("cpu.max", "500 100000"),
        ("cpu.max", "20000 2000000"),
        ("cpu.max", "max 50000"),
        ("cpu.max.burst", "30000"),
        ("cpu.max", "20000"),
        ("cpu.max", "30000"),
        ("cpu.max.burst", "30001"),
        ("cpu.max.burst", "0"),
        ("cpu.max", "max"),
        ("cpuset.cpus", "2-3"),
        ("cpuset.cpus", "4"),
        ("cpuset.cpus", "3-2"),
        ("cpuset.cpus", ""),
        ("cpu.idle", "2"),
        ("cpu.idle", "1"),
        ("cpu.weight", "100"),
        ("cpu.stat", "0"),
    ] {
        match sim.write_file(&format!("{b}/{file}"), text, Rights::Root) {
            Ok(()) => told += &format!("{text:?} ▶ "),
            Err(e) => told += &format!("{text:?} ▶ {}: ", e.errno.name()),
        }
        let text = sim.read_file(&format!("{b}/{file}")).expect("it is there");
        let text = if file == "cpu.stat" { "…" } else { text.trim_end() };
        told += &format!("{file}:{}{text}\n", if text.is_empty() { "" } else { " " });
        run(&mut sim, &checker, 20);
    }
    let nobody = sim.write_file(&format!("{b}/cpu.max"), "max", Rights::Nobody).unwrap_err();
    told += &format!("{nobody}\n");
    let refused = sim.write_file(&format!("{b}/cpu.max"), "10", Rights::Root).unwrap_err();
    told += &format!("{refused}\n");
    let root = sim.list("/sys/fs/cgroup").expect("a folder");
    told += &format!("the root: {}\n", root.join(" "));
    expect![[r#"
        cpu.idle: 0
        cpu.max: max 100000
        cpu.max.burst: 0
        cpu.stat: usage_usec 592000, user_usec 592000, system_usec 0, nice_usec 592000, nr_periods 0, nr_throttled 0, throttled_usec 0, nr_bursts 0, burst_usec 0
        cpu.weight: 300
        cpu.weight.nice: -5
        cpuset.cpus:
        cpuset.cpus.effective: 0-3
        "100\n" ▶ cpu.weight: 100
        "0" ▶ ERANGE: cpu.weight: 100
        "10001" ▶ ERANGE: cpu.weight: 100
        "much" ▶ EINVAL: cpu.weight: 100
        "-5" ▶ cpu.weight.nice: -5
        "20" ▶ ERANGE: cpu.weight.nice: -5
        "20000" ▶ cpu.max: 20000 100000
        "500 100000" ▶ EINVAL: cpu.max: 20000 100000
        "20000 2000000" ▶ EINVAL: cpu.max: 20000 100000
        "max 50000" ▶ cpu.max: max 50000
        "30000" ▶ cpu.max.burst: 30000
        "20000" ▶ EINVAL: cpu.max: max 50000
        "30000" ▶ cpu.max: 30000 50000
        "30001" ▶ EINVAL: cpu.max.burst: 30000
        "0" ▶ cpu.max.burst: 0
        "max" ▶ cpu.max: max 50000
        "2-3" ▶ cpuset.cpus: 2-3
        "4" ▶ ERANGE: cpuset.cpus: 2-3
        "3-2" ▶ EINVAL: cpuset.cpus: 2-3
        "" ▶ cpuset.cpus:
        "2" ▶ EINVAL: cpu.idle: 0
        "1" ▶ cpu.idle: 1
        "100" ▶ EINVAL: cpu.weight: 0
        "0" ▶ EACCES: cpu.stat: …
        /sys/fs/cgroup/b/cpu.max: EACCES: its mode is 0644: only root may write to it
        /sys/fs/cgroup/b/cpu.max: EINVAL: "10" is refused; allowed are "max" or a quota from 1000 µs on, and a period from 1000 to 1000000 µs
        the root: a b cpu.stat cpuset.cpus.effective
    "#]].assert_eq(&told);
}

/// A group whose task is awake for 5 ms of each 100, and for 60 of each eleventh: its quota of 10 ms doesn't do for
/// that, and with what it had left it does.
///
/// Specs: specs/sched-groups.md#burst.
#[test]
fn a_burst_is_what_was_left_of_earlier_quotas() {
    let told = [0, 5_000, 10_000].map(|burst| {
        let step = |what: &str, time: &str| {
            format!("[[process.step]]\ndo = \"{what}\"\ntime = \"{time}\"\n")
        };
        let text = format!(
            "name = \"burst\"\nabout = \"a test\"\nmachine = \"m\"\nduration = \"4s\"\n\
             [[group]]\nname = \"a\"\ncpu.max = \"10000 100000\"\ncpu.\"max.burst\" = {burst}\n\
             [[process]]\nname = \"p\"\ngroup = \"a\"\nthreads = 1\n{}{}\
             [[process.step]]\ndo = \"repeat\"\nsteps = 2\ntimes = 10\n{}\
             [[process.step]]\ndo = \"repeat\"\nsteps = 4\nuntil = \"100s\"\n",
            step("compute", "5ms"),
            step("sleep", "95ms"),
            step("compute", "18ms"),
        );
        let mut sim = simulation(2, &text);
        let checker = Checker::watch(&mut sim);
        run(&mut sim, &checker, 4000);
        let stat = sim.read_file("/sys/fs/cgroup/a/cpu.stat").expect("it is there");
        let of = |row: &str| {
            let found = stat.lines().find_map(|line| line.strip_prefix(row));
            format!("{}{}", row, found.unwrap_or_default())
        };
        let rows = ["nr_throttled", "throttled_usec", "nr_bursts", "burst_usec"].map(of);
        format!("{burst} µs: {}\n", rows.join(", "))
    });
    expect![[r#"
        0 µs: nr_throttled 6, throttled_usec 352000, nr_bursts 0, burst_usec 0
        5000 µs: nr_throttled 3, throttled_usec 248000, nr_bursts 3, burst_usec 15000
        10000 µs: nr_throttled 3, throttled_usec 60000, nr_bursts 3, burst_usec 30000
    "#]]
    .assert_eq(&told.concat());
}

/// What a quota that is written during a run does from then on.
///
/// Specs: specs/sched-groups.md#max.
#[test]
fn a_quota_can_be_given_and_lifted() {
    let text = scenario("[[group]]\nname = \"a\"\n", &[("a", 2, "")]);
    let mut sim = simulation(2, &text);
    let checker = Checker::watch(&mut sim);
    let mut told = String::new();
    for max in ["max", "10000 100000", "150000 100000", "max"] {
        sim.write_file("/sys/fs/cgroup/a/cpu.max", max, Rights::Root).expect("it takes that");
        let before = sim.group_figures()[0].usage_ps;
        run(&mut sim, &checker, 1000);
        let used = sim.group_figures()[0].usage_ps - before;
        told += &format!("{max}: {} ms of 2000\n", (used + 500_000_000) / 1_000_000_000);
    }
    expect![[r#"
        max: 2000 ms of 2000
        10000 100000: 108 ms of 2000
        150000 100000: 1504 ms of 2000
        max: 2000 ms of 2000
    "#]]
    .assert_eq(&told);
}

/// A group may use two CPUs of one node and one of the other. Balancing between nodes looks at the load
/// of all CPUs of a node by their capacity, and doesn't ask who may run where: it leaves as many tasks
/// on the one CPU as on the two. Where all four CPUs are below one cache it looks at each alone, and leaves
/// 5, 4 and 3 tasks: a CPU with 3 has the average load of four CPUs, and pulls no more.
///
/// Specs: specs/sched-balance.md#busiest, specs/sched-groups.md#cpuset.
#[test]
fn a_part_of_a_node_gets_the_tasks_of_a_whole_one() {
    let text = scenario(
        "[[group]]\nname = \"three\"\ncpuset.cpus = \"0-2\"\n",
        &[("three", 1, "copies = 12")],
    );
    let mut told = String::new();
    for (name, nodes) in
        [("one node", vec![dram(4096, 4)]), ("two nodes", vec![dram(4096, 2), dram(4096, 2)])]
    {
        let machine = machine(&nodes);
        let file =
            homenode_config::parse_scenario("run.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        let mut sim = Simulation::new(&machine, &file.scenario, &Setup::of(&file.scenario))
            .expect("a simulation");
        let checker = Checker::watch(&mut sim);
        run(&mut sim, &checker, 500);
        let before = sim.processes();
        run(&mut sim, &checker, 500);
        let mut ms: Vec<u64> = sim
            .processes()
            .iter()
            .zip(&before)
            .map(|(p, b)| (p.ran_ps - b.ran_ps) / 1_000_000_000)
            .collect();
        ms.sort_unstable();
        told += &format!("{name}: {ms:?} ms\n");
    }
    expect![[r#"
        one node: [100, 100, 100, 100, 100, 124, 124, 124, 128, 164, 168, 168] ms
        two nodes: [80, 84, 84, 84, 84, 84, 164, 164, 168, 168, 168, 168] ms
    "#]]
    .assert_eq(&told);
}
