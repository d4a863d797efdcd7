//! What scenarios say of tasks: vCPUs, exec, statistics that are switched, and runs that would never end.

use expect_test::expect;
use homenode_config::parse_scenario;
use homenode_core::scenario::Scenario;
use homenode_core::sched::stats::TaskLine;
use homenode_core::topology::Hardware;
use homenode_core::units::Picos;
use homenode_fixtures::machine::{dram, machine};
use homenode_sim::check::Checker;
use homenode_sim::{ProcessFigures, Setup, Simulation};

/// A scenario of these tables, 4 CPUs.
fn read(text: &str) -> (Hardware, Scenario) {
    let machine = machine(&[dram(4096, 4)]);
    let text = format!("name = \"tasks\"\nabout = \"a test\"\nmachine = \"m\"\n{text}");
    let file = parse_scenario("run.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    file.check(&machine).unwrap_or_else(|e| panic!("{e}"));
    (machine, file.scenario)
}

fn simulation(text: &str) -> Simulation {
    let (machine, scenario) = read(text);
    Simulation::new(&machine, &scenario, &Setup::of(&scenario)).expect("a simulation")
}

/// Runs to the end of the scenario, with somebody who recounts all.
fn run(text: &str) -> Simulation {
    let (machine, scenario) = read(text);
    let mut sim =
        Simulation::new(&machine, &scenario, &Setup::of(&scenario)).expect("a simulation");
    let stop = scenario.duration.unwrap_or(Picos::from_ms(1000));
    let checker = Checker::watch(&mut sim);
    checker.run(&mut sim, stop.0, 500_000_000).unwrap_or_else(|e| panic!("{e}"));
    sim
}

const LOOP: &str = "[[process.step]]\ndo = \"repeat\"\nsteps = 1\nuntil = \"100s\"\n";

fn compute(time: &str) -> String {
    format!("[[process.step]]\ndo = \"compute\"\ntime = \"{time}\"\n")
}

/// Tasks with a slice of their own keep the CPU for it, from 6.12 on: at the end of each, two that share a CPU switch.
///
/// Specs: specs/sched-fair.md#slices, specs/workloads.md#tasks.
#[test]
fn tasks_may_have_a_slice_of_their_own() {
    let two = |kernel: &str, more: &str| {
        let sim = run(&format!(
            "kernel = \"{kernel}\"\nduration = \"400ms\"\n\
             [[process]]\nname = \"hogs\"\nthreads = 2\ncpus = \"0\"\n{more}\n{}{LOOP}",
            compute("1ms")
        ));
        format!("{kernel} {more}: {} switches\n", sim.processes()[0].tasks.involuntary)
    };
    let told = [
        two("6.12", ""),
        two("6.12", "sched_runtime = \"100us\""),
        two("6.12", "sched_runtime = \"10ms\""),
        two("6.12", "sched_runtime = \"100ms\""),
        two("6.1", ""),
        two("6.1", "sched_runtime = \"100ms\""),
    ]
    .concat();
    // Ticks of 4 ms end slices: 2.1 ms at the first, 10 ms at the third.
    expect![[r#"
        6.12 : 99 switches
        6.12 sched_runtime = "100us": 99 switches
        6.12 sched_runtime = "10ms": 33 switches
        6.12 sched_runtime = "100ms": 4 switches
        6.1 : 34 switches
        6.1 sched_runtime = "100ms": 34 switches
    "#]]
    .assert_eq(&told);
}

/// A short slice brings who wakes up to the CPU at once, beside one that computes for longer ones.
///
/// Specs: specs/sched-fair.md#preemption, #slices.
#[test]
fn a_short_slice_preempts() {
    let wait = |more: &str| {
        let sim = run(&format!(
            "duration = \"1s\"\n\
             [[process]]\nname = \"hog\"\nthreads = 1\ncpus = \"0\"\nsched_runtime = \"20ms\"\n{}{LOOP}\
             [[process]]\nname = \"short\"\nthreads = 1\ncpus = \"0\"\n{more}\n{}\
             [[process.step]]\ndo = \"sleep\"\ntime = \"9700us\"\n{}",
            compute("1ms"),
            compute("300us"),
            LOOP.replace("steps = 1", "steps = 2"),
        ));
        let short = &sim.processes()[1].tasks;
        short.wait_ns / 1000 / short.wakeups.max(1)
    };
    let (long, short) = (wait("sched_runtime = \"20ms\""), wait("sched_runtime = \"500us\""));
    assert!(
        short * 10 < long,
        "a wait of {short} µs for each wake-up, {long} µs with a long slice"
    );
}

/// Two that compute share a CPU by turns: of half a latency under CFS, of a slice under EEVDF.
///
/// Specs: specs/sched-cfs.md#versions, #slice, #knobs.
#[test]
fn a_scenario_names_its_kernel() {
    let two = |kernel: &str| {
        let sim = run(&format!(
            "kernel = \"{kernel}\"\nduration = \"120ms\"\n\
             [[process]]\nname = \"hogs\"\nthreads = 2\ncpus = \"0\"\n{}{LOOP}",
            compute("1ms")
        ));
        let switches = sim.processes()[0].tasks.involuntary;
        format!("{kernel}: {switches} switches, schedstat {}\n", sim.schedstat().version.name())
    };
    let told: String = ["4.5", "4.15", "6.1", "6.12", "7.3"].map(two).concat();
    // 4 CPUs: half of 18 ms is over at every third tick; a slice of 2.1 ms at each.
    expect![[r#"
        4.5: 10 switches, schedstat 15
        4.15: 10 switches, schedstat 15
        6.1: 10 switches, schedstat 15
        6.12: 29 switches, schedstat 16
        7.3: 29 switches, schedstat 17
    "#]]
    .assert_eq(&told);
}

/// Specs: specs/workloads.md#vcpus.
#[test]
fn vcpus_that_share_cpus_have_their_time_stolen() {
    let vm = |name: &str, more: &str| {
        format!("[[process]]\nname = \"{name}\"\n{more}\n{}{LOOP}", compute("1ms"))
    };
    let text = format!(
        "duration = \"1s\"\n\
         [[group]]\nname = \"slice\"\ncpuset.cpus = \"0-1\"\n\
         [[group]]\nname = \"paid\"\nparent = \"slice\"\ncpu.max = \"10000 100000\"\n{}{}{}",
        vm("big", "vcpus = 3\ngroup = \"slice\""),
        vm("twin", "vcpus = 1\ncopies = 2\ngroup = \"slice\""),
        vm("tiny", "vcpus = 1\ngroup = \"paid\""),
    );
    let sim = run(&text);
    let mut told = String::new();
    for v in sim.vcpus() {
        let name = &sim.processes()[v.process].name;
        let (ran, steal) = (v.ran_ps / 1_000_000_000, v.steal_ns / 1_000_000);
        // What it did not run it wanted to: nothing in it sleeps. A wait that lasts is not counted yet.
        assert!((900..=1000).contains(&(ran + steal)), "{name}: {ran} and {steal} of 1000 ms");
        told += &format!("{name} vCPU {}: ran {} %, stolen {} %\n", v.number, ran / 10, steal / 10);
    }
    for g in sim.group_figures() {
        told += &format!("{}: {} ms\n", g.path, g.usage_ps / 1_000_000_000);
    }
    expect![[r#"
        big vCPU 0: ran 20 %, stolen 79 %
        big vCPU 1: ran 22 %, stolen 76 %
        big vCPU 2: ran 20 %, stolen 78 %
        twin-0 vCPU 0: ran 60 %, stolen 40 %
        twin-1 vCPU 0: ran 67 %, stolen 32 %
        tiny vCPU 0: ran 10 %, stolen 82 %
        slice: 2000 ms
        slice/paid: 104 ms
        slice/big: 624 ms
        slice/twin-0: 600 ms
        slice/twin-1: 672 ms
        slice/paid/tiny: 104 ms
    "#]]
    .assert_eq(&told);
    // A sleeping vCPU is not robbed.
    let alone = run(&format!(
        "duration = \"1s\"\n[[process]]\nname = \"vm\"\nvcpus = 2\n{}\
         [[process.step]]\ndo = \"sleep\"\ntime = \"9ms\"\n\
         [[process.step]]\ndo = \"repeat\"\nsteps = 2\nuntil = \"100s\"\n",
        compute("1ms")
    ));
    assert!(alone.vcpus().iter().all(|v| v.steal_ns < 100_000), "{:?}", alone.vcpus());
}

/// Specs: specs/workloads.md#exec.
#[test]
fn exec_goes_where_there_is_room() {
    // All begin on CPU 0, since they may run nowhere else; then they may, and exec.
    let text = |exec: &str| {
        format!(
            "duration = \"50ms\"\n[[process]]\nname = \"p\"\nthreads = 1\ncopies = 4\ncpus = \"0\"\n\
             [[process.map]]\nname = \"heap\"\nsize = \"64 KiB\"\n\
             [[process.step]]\ndo = \"touch\"\nmap = \"heap\"\n{}\
             [[process.step]]\ndo = \"affinity\"\ncpus = \"0-3\"\n{exec}{}{LOOP}",
            compute("100us"),
            compute("100us"),
        )
    };
    let figures = |exec: &str| {
        let sim = run(&text(exec));
        let first: Vec<Vec<u16>> = sim.tracks().1.into_iter().map(|t| t.1.first).collect();
        let resident: u64 = sim.stretches(1)[0].resident;
        format!("{} pages; CPUs {first:?}", resident)
    };
    let with = figures("[[process.step]]\ndo = \"exec\"\n");
    assert_eq!(with, figures("[[process.step]]\ndo = \"exec\"\n"), "a second run");
    expect![[r#"
        with: 0 pages; CPUs [[0, 1], [0, 2], [0, 3], [0]]
        without: 64 pages; CPUs [[0, 2], [0, 3], [0, 1], [0]]
    "#]]
    .assert_eq(&format!("with: {with}\nwithout: {}\n", figures("")));
}

#[test]
fn exec_in_a_process_of_threads_is_refused() {
    let text = "name = \"n\"\nabout = \"a\"\nmachine = \"m\"\n[[process]]\nname = \"p\"\nthreads = 2\n\
                [[process.step]]\ndo = \"exec\"\n";
    let e = parse_scenario("run.toml", text).expect_err("it would end the other thread");
    expect!["run.toml:7:1: process[0].step[0]: exec ends all other threads of its process; it stands in one of one thread"].assert_eq(&e.to_string());
}

/// Three tasks on a CPU, and files that are written and read while they run.
fn switched(command_line: &str, at: &[(&str, &str, &str)]) -> Simulation {
    let mut text = format!("duration = \"1s\"\ncommand_line = \"{command_line}\"\n");
    for (time, path, value) in at {
        text += &match *value {
            "" => format!("[[at]]\ntime = \"{time}\"\nread = \"{path}\"\n"),
            value => {
                format!("[[at]]\ntime = \"{time}\"\nwrite = \"{path}\"\nvalue = \"{value}\"\n")
            }
        };
    }
    text += &format!(
        "[[process]]\nname = \"p\"\nthreads = 3\ncpus = \"0\"\n{}\
         [[process.step]]\ndo = \"sleep\"\ntime = \"1ms\"\n\
         [[process.step]]\ndo = \"repeat\"\nsteps = 2\nuntil = \"100s\"\n",
        compute("300us")
    );
    run(&text)
}

const SWITCH: &str = "/proc/sys/kernel/sched_schedstats";
const LATENCYTOP: &str = "/proc/sys/kernel/latencytop";

/// What the kernel said, what was read, and whether statistics are on at the end.
fn told(sim: &Simulation) -> String {
    let mut text = String::new();
    for (at, said) in sim.messages() {
        text += &format!("[{} ms] {said}\n", at / 1_000_000_000);
    }
    for o in sim.outcomes() {
        if let Some(Ok(read)) =
            o.result.as_ref().filter(|r| r.as_ref().is_ok_and(|t| !t.is_empty()))
        {
            text += &format!("{} at {} ms: {read}", o.path, o.action.at.0 / 1_000_000_000);
        }
        assert_eq!(o.missed(), None);
    }
    let shown = sim.task_sched_of("p").expect("it lives").to_text();
    let has = |line: &str| shown.lines().any(|l| l.starts_with(line));
    text + &format!("wait_sum is shown: {}\n", has("wait_sum"))
}

/// Specs: specs/schedstats.md#switch, specs/seeds.md#s2.
#[test]
fn statistics_are_switched_by_the_command_line_and_by_latencytop() {
    let trace = "/sys/kernel/tracing/events/sched/sched_stat_wait/enable";
    let mut text = String::new();
    for (what, sim) in [
        ("nothing", switched("", &[])),
        ("the command line", switched("schedstats=enable", &[("1ms", SWITCH, "")])),
        ("both ways", switched("schedstats=enable schedstats=disable", &[])),
        ("misspelt", switched("schedstats=1", &[])),
        (
            "latencytop, off again, and latencytop read",
            switched(
                "",
                &[
                    ("100ms", LATENCYTOP, "1"),
                    ("200ms", SWITCH, ""),
                    ("300ms", SWITCH, "0"),
                    ("400ms", LATENCYTOP, ""),
                    ("500ms", SWITCH, ""),
                ],
            ),
        ),
        (
            "a tracepoint, twice",
            switched(
                "",
                &[
                    ("100ms", trace, "1"),
                    ("200ms", SWITCH, ""),
                    ("300ms", trace, "0"),
                    ("400ms", trace, "1"),
                    ("500ms", trace, ""),
                ],
            ),
        ),
    ] {
        text += &format!("{what}:\n{}", told(&sim).replace("\n", "\n  ").trim_end_matches(' '));
    }
    expect![[r#"
        nothing:
        wait_sum is shown: false
        the command line:
        /proc/sys/kernel/sched_schedstats at 1 ms: 1
          wait_sum is shown: true
        both ways:
        wait_sum is shown: false
        misspelt:
        [0 ms] Unable to parse schedstats=
          wait_sum is shown: false
        latencytop, off again, and latencytop read:
        [100 ms] kernel profiling enabled schedstats, disable via kernel.sched_schedstats.
          [400 ms] kernel profiling enabled schedstats, disable via kernel.sched_schedstats.
          /proc/sys/kernel/sched_schedstats at 200 ms: 1
          /proc/sys/kernel/latencytop at 400 ms: 1
          /proc/sys/kernel/sched_schedstats at 500 ms: 1
          wait_sum is shown: true
        a tracepoint, twice:
        [100 ms] Scheduler tracepoints stat_sleep, stat_iowait, stat_blocked and stat_runtime require the kernel parameter schedstats=enable or kernel.sched_schedstats=1
          /proc/sys/kernel/sched_schedstats at 200 ms: 0
          /sys/kernel/tracing/events/sched/sched_stat_wait/enable at 500 ms: 1
          wait_sum is shown: false
    "#]].assert_eq(&text);
}

/// Specs: specs/schedstats.md#schedstat, specs/seeds.md#s2.
#[test]
fn off_nothing_moves_but_what_is_always_live() {
    for (options, on) in [("", false), ("schedstats=enable", true)] {
        let all = switched(options, &[]).schedstat();
        let cpu = all.cpus[0].stats;
        let switched = [cpu.sched_count, cpu.sched_goidle, cpu.ttwu_count, cpu.ttwu_local];
        assert!(switched.iter().all(|&n| (n > 0) == on), "{switched:?}");
        let domains = all.cpus.iter().flat_map(|c| &c.domains);
        let balanced: u64 = domains.flat_map(|d| d.stats.lb.map(|lb| lb.lb_count)).sum();
        assert_eq!(balanced > 0, on, "{balanced} balancings");
        assert!(cpu.rq_cpu_time > 0 && cpu.run_delay > 0 && cpu.pcount > 0, "{cpu:?}");
    }
}

/// Off in the middle of waits, and on again much later: no sample of that time.
///
/// Specs: specs/schedstats.md#switch, specs/exceptions/schedstats-stamps.md.
#[test]
fn a_stamp_from_before_gives_no_sample() {
    let sim = switched(
        "schedstats=enable",
        &[
            ("100ms", SWITCH, "0"),
            ("800ms", SWITCH, "1"),
            ("850ms", SWITCH, "0"),
            ("900ms", SWITCH, "1"),
        ],
    );
    let shown = sim.task_sched_of("p").expect("it lives").to_text();
    let ms = |line: &str| -> f64 {
        let found = shown.lines().find(|l| l.starts_with(line)).expect("it is shown");
        found.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a number")
    };
    // Three tasks of 0.3 ms, and a sleep of 1 ms: Linux would say 700 ms of one or the other.
    assert!(ms("wait_max") < 5.0 && ms("sleep_max") < 5.0, "{shown}");
    assert!(ms("wait_count") > 50.0, "{shown}");
}

/// A sleeper beside a hog: some of its sleeps begin while it is ahead, so that it stays on the queue, and end
/// there. A timeslice is one all the same, and its CPU's time is counted once.
///
/// Specs: specs/schedstats.md#delayed, #sched-info.
#[test]
fn who_is_woken_before_it_has_left_its_queue_has_a_timeslice() {
    let process = |name: &str, steps: &str| {
        format!("[[process]]\nname = \"{name}\"\nthreads = 1\ncpus = \"0\"\n{steps}")
    };
    let sim = run(&format!(
        "duration = \"1s\"\ncommand_line = \"schedstats=enable\"\n{}{}",
        process("hog", &format!("{}{LOOP}", compute("1ms"))),
        process(
            "sleeper",
            &format!(
                "{}[[process.step]]\ndo = \"sleep\"\ntime = \"100us\"\n\
                 [[process.step]]\ndo = \"repeat\"\nsteps = 2\nuntil = \"100s\"\n",
                compute("300us")
            ),
        ),
    ));
    let mut slices = 0;
    for (name, pid) in [("hog", 1001), ("sleeper", 1002)] {
        let text = sim.read_file(&format!("/proc/{pid}/schedstat")).expect("it lives");
        let of: Vec<u64> = text.split_whitespace().map(|n| n.parse().expect("a number")).collect();
        let shown = sim.task_sched_of(name).expect("it lives");
        let switches = shown.get(TaskLine::NrSwitches).expect("always") as u64;
        assert!((switches..=switches + 1).contains(&of[2]), "{name}: {switches} switches, {text}");
        let stats = shown.stats().expect("the switch is on");
        assert!(of[1] <= stats.wait_sum + 1_000_000, "{name}: {text}, {stats:?}");
        slices += of[2];
        if name == "sleeper" {
            let sleeps = shown.get(TaskLine::NrVoluntarySwitches).expect("always") as u64;
            let told =
                format!("{sleeps} sleeps of 0.1 ms, {} ns of them seen", stats.sum_sleep_runtime);
            assert!(stats.sum_sleep_runtime + 5_000_000 < sleeps * 100_000, "{told}");
        }
    }
    let cpu = sim.schedstat().cpus[0].stats;
    // The kernel's own daemons share it.
    assert!((slices..slices + 100).contains(&cpu.pcount), "{slices} of {}", cpu.pcount);
    let ran_ms = cpu.rq_cpu_time / 1_000_000;
    assert!((950..=1000).contains(&ran_ms), "{ran_ms} of 1000 ms");
}

/// Specs: specs/workloads.md#ends.
#[test]
fn tasks_that_wait_in_a_ring_are_named() {
    let lock = |name: &str| format!("[[process.step]]\ndo = \"lock\"\nchannel = \"{name}\"\n");
    let unlock = |name: &str| format!("[[process.step]]\ndo = \"unlock\"\nchannel = \"{name}\"\n");
    let process = |name: &str, one: &str, other: &str| {
        format!(
            "[[process]]\nname = \"{name}\"\nthreads = 1\n{}{}{}{}{}",
            lock(one),
            compute("1ms"),
            lock(other),
            unlock(other),
            unlock(one)
        )
    };
    let text = format!(
        "[[channel]]\nname = \"a\"\nkind = \"mutex\"\n[[channel]]\nname = \"b\"\nkind = \"mutex\"\n\
         [[channel]]\nname = \"c\"\nkind = \"mutex\"\n{}{}{}{}",
        process("first", "a", "b"),
        process("second", "b", "c"),
        process("third", "c", "a"),
        // Beside the ring, behind one of them.
        process("late", "a", "b"),
    );
    let mut sim = simulation(&text);
    sim.run();
    expect![[r#"
        all tasks wait for one another, and nobody can go on:
          in a ring: first (PID 1001) for second (PID 1002) for third (PID 1003) for first (PID 1001)
          first (PID 1001) waits for the mutex "b", which second (PID 1002) has
          second (PID 1002) waits for the mutex "c", which third (PID 1003) has
          third (PID 1003) waits for the mutex "a", which first (PID 1001) has
          late (PID 1004) waits for the mutex "a", which first (PID 1001) has"#]].assert_eq(sim.deadlock().expect("they wait for ever"));
}

/// Of a pipe, a socket and a futex nobody knows who has it, but of many there is only one who could.
///
/// Specs: specs/workloads.md#ends.
#[test]
fn tasks_that_wait_for_what_nobody_sends_are_named() {
    let channel =
        |name: &str, kind: &str| format!("[[channel]]\nname = \"{name}\"\nkind = \"{kind}\"\n");
    let process = |name: &str, threads: u32, steps: &[(&str, &str)]| {
        let mut text = format!("[[process]]\nname = \"{name}\"\nthreads = {threads}\n");
        for (what, channel) in steps {
            let bytes = match *what {
                "read" => "bytes = 4\n",
                "write" => "bytes = 65536\n",
                _ => "",
            };
            text += &format!("[[process.step]]\ndo = \"{what}\"\nchannel = \"{channel}\"\n{bytes}");
        }
        text
    };
    let waits = |text: String| {
        let mut sim = simulation(&text);
        sim.run();
        sim.deadlock().expect("they wait for ever").to_owned() + "\n\n"
    };
    let two = channel("there", "pipe") + &channel("back", "pipe");
    let mut told = String::new();
    // Each reads before it writes.
    told += &waits(
        two.clone()
            + &process("ping", 1, &[("read", "back"), ("write", "there")])
            + &process("pong", 1, &[("read", "there"), ("write", "back")]),
    );
    // Both pipes are full, and each writes once more before it reads.
    let full = [("write", "there"), ("write", "there"), ("read", "back")];
    let other = [("write", "back"), ("write", "back"), ("read", "there")];
    told += &waits(two.clone() + &process("ping", 1, &full) + &process("pong", 1, &other));
    // Alone with a full pipe.
    let own = [("write", "own"), ("write", "own"), ("read", "own")];
    told += &waits(channel("own", "pipe") + &process("talks to itself", 1, &own));
    // A futex that each would wake after its wait, and one that either of two could wake.
    told += &waits(
        channel("a", "futex")
            + &channel("b", "futex")
            + &process("one", 1, &[("futex_wait", "a"), ("futex_wake", "b")])
            + &process("two", 1, &[("futex_wait", "b"), ("futex_wake", "a")]),
    );
    told += &waits(
        channel("a", "futex") + &process("both", 2, &[("futex_wait", "a"), ("futex_wake", "a")]),
    );
    // Who waits for a lock that its owner never gives back, since it waits for a message from the first.
    told += &waits(
        channel("l", "mutex")
            + &channel("p", "pipe")
            + &process("has it", 1, &[("lock", "l"), ("read", "p"), ("unlock", "l")])
            + &process("wants it", 1, &[("lock", "l"), ("write", "p"), ("unlock", "l")]),
    );
    expect![[r#"
        all tasks wait for one another, and nobody can go on:
          in a ring: ping (PID 1001) for pong (PID 1002) for ping (PID 1001)
          ping (PID 1001) waits for the pipe "back", whose other end only pong (PID 1002) has
          pong (PID 1002) waits for the pipe "there", whose other end only ping (PID 1001) has

        all tasks wait for one another, and nobody can go on:
          in a ring: ping (PID 1001) for pong (PID 1002) for ping (PID 1001)
          ping (PID 1001) waits for the pipe "there", whose other end only pong (PID 1002) has
          pong (PID 1002) waits for the pipe "back", whose other end only ping (PID 1001) has

        all tasks wait for one another, and nobody can go on:
          in a ring: talks to itself (PID 1001) for talks to itself (PID 1001)
          talks to itself (PID 1001) waits for the pipe "own", which nobody else uses

        all tasks wait for one another, and nobody can go on:
          in a ring: one (PID 1001) for two (PID 1002) for one (PID 1001)
          one (PID 1001) waits for the futex "a", whose other end only two (PID 1002) has
          two (PID 1002) waits for the futex "b", whose other end only one (PID 1001) has

        all tasks wait for one another, and nobody can go on:
          both (PID 1001) waits for the futex "a"
          both (PID 1002) waits for the futex "a"

        all tasks wait for one another, and nobody can go on:
          in a ring: has it (PID 1001) for wants it (PID 1002) for has it (PID 1001)
          has it (PID 1001) waits for the pipe "p", whose other end only wants it (PID 1002) has
          wants it (PID 1002) waits for the mutex "l", which has it (PID 1001) has

    "#]]
    .assert_eq(&told);
}

/// Two that are polite for ever: they work all the time and come nowhere. Such a run ends when
/// its time is over, and costs no more turns than it has time.
///
/// Specs: specs/workloads.md#ends.
#[test]
fn a_livelock_ends_with_its_time() {
    let polite = |name: &str, one: &str, other: &str| {
        format!(
            "[[process]]\nname = \"{name}\"\nthreads = 1\ncpus = \"0\"\n\
             [[process.step]]\ndo = \"futex_wake\"\nchannel = \"{one}\"\n\
             [[process.step]]\ndo = \"yield\"\n\
             [[process.step]]\ndo = \"futex_wait\"\nchannel = \"{other}\"\n\
             [[process.step]]\ndo = \"repeat\"\nsteps = 3\nuntil = \"1000s\"\n"
        )
    };
    let text = String::from("duration = \"20ms\"\n")
        + "[[channel]]\nname = \"mine\"\nkind = \"futex\"\n"
        + "[[channel]]\nname = \"yours\"\nkind = \"futex\"\n"
        + &polite("after you", "mine", "yours")
        + &polite("no, after you", "yours", "mine");
    let (mut machine, scenario) = read(&text);
    for &cost in homenode_core::costs::Cost::ALL {
        let low = cost.bounds().0;
        let cheap = homenode_core::costs::Constant::assumed(low, "as cheap as can be");
        machine.costs.0.insert(cost, cheap);
    }
    let mut sim =
        Simulation::new(&machine, &scenario, &Setup::of(&scenario)).expect("a simulation");
    sim.run();
    assert_eq!((sim.deadlock(), sim.now()), (None, Picos::from_ms(20).0));
    // A round of each takes at least a µs, in which it yields once: at most 20,000 rounds of each.
    let (_, switches) = sim.wakeups_and_switches();
    assert!((1000..=2 * 20_000 + 10).contains(&switches), "{switches} switches");
    assert!(sim.turns() < 400_000, "{} turns", sim.turns());
}

/// Nothing costs anything, and all yield or wake each other all the time: time goes on by a µs a round.
///
/// Specs: specs/workloads.md#ends.
#[test]
fn loops_that_take_no_time_come_to_an_end() {
    let text = "[[channel]]\nname = \"ping\"\nkind = \"futex\"\n[[channel]]\nname = \"pong\"\nkind = \"futex\"\n\
         [[process]]\nname = \"yields\"\nthreads = 2\ncpus = \"0\"\n\
         [[process.step]]\ndo = \"yield\"\n\
         [[process.step]]\ndo = \"repeat\"\nsteps = 1\nuntil = \"1ms\"\n\
         [[process]]\nname = \"ping\"\nthreads = 1\ncpus = \"1\"\n\
         [[process.step]]\ndo = \"futex_wake\"\nchannel = \"ping\"\n\
         [[process.step]]\ndo = \"futex_wait\"\nchannel = \"pong\"\n\
         [[process.step]]\ndo = \"repeat\"\nsteps = 2\ntimes = 1000\n\
         [[process]]\nname = \"pong\"\nthreads = 1\ncpus = \"1\"\n\
         [[process.step]]\ndo = \"futex_wait\"\nchannel = \"ping\"\n\
         [[process.step]]\ndo = \"futex_wake\"\nchannel = \"pong\"\n\
         [[process.step]]\ndo = \"repeat\"\nsteps = 2\ntimes = 1000\n";
    let (mut machine, scenario) = read(text);
    for &cost in homenode_core::costs::Cost::ALL {
        let low = cost.bounds().0;
        let cheap = homenode_core::costs::Constant::assumed(low, "as cheap as can be");
        machine.costs.0.insert(cost, cheap);
    }
    let setup = Setup { duration: Some(Picos::from_ms(50).0), ..Setup::of(&scenario) };
    let mut sim = Simulation::new(&machine, &scenario, &setup).expect("a simulation");
    sim.run();
    assert_eq!(sim.deadlock(), None);
    let all = sim.processes();
    assert!(all.iter().all(|p| p.ended), "{all:?}");
    // Two that yield in turn have a µs each, two that wait for each other as well.
    let us: Vec<u64> = all.iter().map(|p| p.time_ps / 1_000_000).collect();
    expect!["[1000, 998, 998]"].assert_eq(&format!("{us:?}"));
    // They are named.
    assert!(all.iter().all(ProcessFigures::goes_nowhere), "{all:?}");
}
