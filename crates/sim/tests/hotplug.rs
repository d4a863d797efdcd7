//! CPUs that go offline and come back while tasks run.

use expect_test::expect;
use homenode_core::knobs::Errno;
use homenode_core::scenario::Rights;
use homenode_core::units::Picos;
use homenode_fixtures::machine::{dram, machine};
use homenode_sim::check::Checker;
use homenode_sim::{Setup, Simulation};

const CPUS: &str = "/sys/devices/system/cpu";

/// Two nodes of four CPUs, tasks of all kinds: placed, pinned, sleeping, waking one another, with a worker.
const SCENARIO: &str = r#"
name = "hotplug"
about = "a test"
machine = "m"
[[channel]]
name = "pair"
kind = "pipe"
[[group]]
name = "two"
cpuset.cpus = "1-2"
[[process]]
name = "placed"
threads = 10
[[process.step]]
do = "compute"
time = "900us"
[[process.step]]
do = "repeat"
steps = 1
until = "1000s"
[[process]]
name = "pinned"
threads = 1
cpus = "3"
[[process.step]]
do = "compute"
time = "300us"
[[process.step]]
do = "sleep"
time = "500us"
[[process.step]]
do = "work"
time = "50us"
wait = true
[[process.step]]
do = "repeat"
steps = 3
until = "1000s"
[[process]]
name = "caged"
group = "two"
threads = 2
[[process.step]]
do = "compute"
time = "200us"
[[process.step]]
do = "sleep"
time = "100us"
[[process.step]]
do = "repeat"
steps = 2
until = "1000s"
[[process]]
name = "writer"
threads = 1
[[process.step]]
do = "write"
channel = "pair"
[[process.step]]
do = "compute"
time = "100us"
[[process.step]]
do = "repeat"
steps = 2
until = "1000s"
[[process]]
name = "reader"
threads = 1
[[process.step]]
do = "read"
channel = "pair"
[[process.step]]
do = "repeat"
steps = 1
until = "1000s"
"#;

fn simulation(text: &str) -> Simulation {
    let machine = machine(&[dram(4096, 4), dram(4096, 4)]);
    let file = homenode_config::parse_scenario("run.toml", text).unwrap_or_else(|e| panic!("{e}"));
    file.check(&machine).unwrap_or_else(|e| panic!("{e}"));
    Simulation::new(&machine, &file.scenario, &Setup::of(&file.scenario)).expect("a simulation")
}

fn run(sim: &mut Simulation, checker: &Checker, us: u64) {
    let stop = sim.now() + Picos::from_us(us).0;
    checker.run(sim, stop, 500_000_000).unwrap_or_else(|e| panic!("{e}"));
}

fn put(sim: &mut Simulation, cpu: u32, online: &str) -> Result<(), Errno> {
    let path = format!("{CPUS}/cpu{cpu}/online");
    sim.write_file(&path, online, Rights::Root).map_err(|e| e.errno)
}

/// What the lists say, and what each CPU did in the next 20 ms, in per cent.
fn told(sim: &mut Simulation, checker: &Checker, what: &str) -> String {
    let list = |sim: &Simulation, name: &str| {
        sim.read_file(&format!("{CPUS}/{name}")).expect("it is there").trim_end().to_owned()
    };
    let mut text =
        format!("{what}: online {}, offline {}", list(sim, "online"), list(sim, "offline"));
    let before = sim.cpu_figures();
    run(sim, checker, 20_000);
    let busy: Vec<String> = sim
        .cpu_figures()
        .iter()
        .zip(&before)
        .map(|(now, was)| format!("{}", (now.busy_ps - was.busy_ps) / 200_000_000))
        .collect();
    text += &format!("; busy {}\n", busy.join(" "));
    text
}

/// Specs: specs/sched-groups.md#hotplug.
#[test]
fn tasks_leave_a_cpu_that_goes_and_come_back_to_it() {
    let all = || {
        let mut sim = simulation(SCENARIO);
        let checker = Checker::watch(&mut sim);
        let mut text = told(&mut sim, &checker, "all");
        for (what, cpu, online) in [
            ("2 goes: its cage has 1", 2, "0"),
            ("3 goes: the pinned one leaves it", 3, "0"),
            ("1 goes: the cage is empty", 1, "0"),
            ("3 is back, the pinned one is not", 3, "1"),
            ("2 is back, and so is its cage", 2, "1"),
            ("1 is back", 1, "1"),
        ] {
            put(&mut sim, cpu, online).expect("it takes that");
            text += &told(&mut sim, &checker, what);
            let cage = sim.read_file("/sys/fs/cgroup/two/cpuset.cpus.effective").expect("a file");
            text += &format!("  the cage: {cage}");
        }
        for (at, said) in sim.messages() {
            text += &format!("[{} us] {said}\n", at / 1_000_000);
        }
        (text, sim.hash())
    };
    let first = all();
    assert_eq!(first, all(), "a second run");
    expect![[r#"
        all: online 0-7, offline ; busy 100 100 100 100 100 100 100 100
        2 goes: its cage has 1: online 0-1,3-7, offline 2; busy 100 100 0 100 100 100 100 100
          the cage: 1
        3 goes: the pinned one leaves it: online 0-1,4-7, offline 2-3; busy 100 100 0 0 100 100 100 100
          the cage: 1
        1 goes: the cage is empty: online 0,4-7, offline 1-3; busy 100 0 0 0 100 100 100 100
          the cage: 0,4-7
        3 is back, the pinned one is not: online 0,3-7, offline 1-2; busy 100 0 0 80 100 100 100 100
          the cage: 0,3-7
        2 is back, and so is its cage: online 0,2-7, offline 1; busy 100 0 100 100 100 100 100 100
          the cage: 2
        1 is back: online 0-7, offline ; busy 100 80 100 100 100 100 100 100
          the cage: 1-2
        [20000 us] smpboot: CPU 2 is now offline
        [40000 us] smpboot: CPU 3 is now offline
        [40200 us] process 1012 (pinned) no longer affine to cpu3
        [60000 us] smpboot: CPU 1 is now offline
    "#]].assert_eq(&first.0);
}

/// Specs: specs/sched-groups.md#hotplug.
#[test]
fn what_can_t_go_says_so() {
    let mut sim = simulation(SCENARIO);
    let checker = Checker::watch(&mut sim);
    run(&mut sim, &checker, 1000);
    let mut text = String::new();
    for (cpu, online) in [(0, "0"), (8, "0"), (1, "2"), (1, ""), (1, "1"), (1, "off\n"), (1, "0")] {
        let came = put(&mut sim, cpu, online).map_or_else(Errno::name, |()| "done");
        text += &format!("cpu{cpu} {online:?}: {came}\n");
    }
    let nobody = sim.write_file(&format!("{CPUS}/cpu1/online"), "1", Rights::Nobody).unwrap_err();
    let listed = sim.write_file(&format!("{CPUS}/online"), "1", Rights::Root).unwrap_err();
    text += &format!("{nobody}\n{listed}\n");
    for name in ["online", "offline", "possible", "present", "cpu1/online", "cpu2/online"] {
        text += &format!("{name}: {}", sim.read_file(&format!("{CPUS}/{name}")).expect("a file"));
    }
    // Statistics are of CPUs that are online.
    let stat = sim.read_file("/proc/schedstat").expect("a file");
    let cpus: Vec<&str> =
        stat.lines().filter_map(|l| l.strip_prefix("cpu")?.split(' ').next()).collect();
    text += &format!("schedstat has CPUs {}\n", cpus.join(" "));
    expect![[r#"
        cpu0 "0": ENOENT
        cpu8 "0": ENOENT
        cpu1 "2": EINVAL
        cpu1 "": EINVAL
        cpu1 "1": done
        cpu1 "off\n": done
        cpu1 "0": done
        /sys/devices/system/cpu/cpu1/online: EACCES: its mode is 0644: only root may write to it
        /sys/devices/system/cpu/online: EACCES: this file is for reading only
        online: 0,2-7
        offline: 1
        possible: 0-7
        present: 0-7
        cpu1/online: 0
        cpu2/online: 1
        schedstat has CPUs 0 2 3 4 5 6 7
    "#]]
    .assert_eq(&text);
}

/// All CPUs but one of a node go one by one and come back, many times, in the middle of everything.
///
/// Specs: specs/sched-groups.md#hotplug.
#[test]
fn any_cpu_may_go_at_any_time() {
    for seed in 1..=6u64 {
        let mut sim = simulation(SCENARIO);
        let checker = Checker::watch(&mut sim);
        let mut x = seed;
        for _ in 0..60 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (cpu, us) = (1 + (x >> 33) % 7, (x >> 40) % 3000);
            let path = format!("{CPUS}/cpu{cpu}/online");
            let online = sim.read_file(&path).expect("a file") == "1\n";
            put(&mut sim, cpu as u32, if online { "0" } else { "1" }).expect("it takes that");
            run(&mut sim, &checker, us + 1);
        }
        let ran: u64 = sim.processes().iter().map(|p| p.ran_ps).sum();
        assert!(ran > 0, "seed {seed}");
    }
}

/// Specs: specs/sched-groups.md#cpuset.
#[test]
fn who_asks_for_cpus_that_are_gone_is_refused() {
    let text = r#"
name = "affinity"
about = "a test"
machine = "m"
duration = "20ms"
[[at]]
time = "1ms"
write = "/sys/devices/system/cpu/cpu2/online"
value = "0"
[[process]]
name = "asker"
threads = 1
[[process.step]]
do = "compute"
time = "3ms"
[[process.step]]
do = "affinity"
cpus = "2"
[[process.step]]
do = "compute"
time = "3ms"
"#;
    let mut sim = simulation(text);
    sim.run();
    let said: Vec<String> = sim.messages().into_iter().map(|(_, text)| text).collect();
    expect![[r#"
        smpboot: CPU 2 is now offline
        asker (PID 1002): sched_setaffinity: EINVAL: of CPUs 2 none is online and allowed
    "#]]
    .assert_eq(&(said.join("\n") + "\n"));
    // The call itself takes 100 ns.
    assert_eq!(sim.processes()[0].ran_ps, 6_000_100_000);
}
