//! CPUs without a task: idle states, what leaving them costs, what is told of them.

use super::support::*;
use crate::build::Setup;
use crate::simulation::Simulation;
use expect_test::expect;
use homenode_core::costs::{Constant, Cost};
use homenode_core::knobs::Errno;
use homenode_core::scenario::*;
use homenode_core::sched::fair::Features;
use homenode_core::sched::idle::Table;
use homenode_core::topology::{Cache, Hardware, IdleCosts, WokenBy};
use homenode_core::units::{Bytes, CpuId, NodeId, Picos};

const US: u64 = 1_000_000;
const MS: u64 = 1000 * US;

fn c(value: u64) -> Constant {
    Constant::assumed(value, "a test's")
}
/// A state without a governor's choice: the only one.
fn only(exit: u64, woken_by: WokenBy) -> Vec<IdleCosts> {
    vec![IdleCosts {
        name: "C6".into(),
        polls: false,
        woken_by,
        exit_latency: c(exit),
        target_residency: c(exit),
        wake_latency: None,
    }]
}
/// The states of a model, which a store wakes a CPU from.
fn table(table: Table) -> Vec<IdleCosts> {
    IdleCosts::of_table(table, WokenBy::Store)
}
fn pipe(name: &str) -> Channel {
    Channel { name: name.into(), kind: ChannelKind::Pipe, count: 1, group: 1, nodelay: false }
}
fn compute(time: u64) -> Step {
    Step::Cpu(CpuStep::Compute {
        time: Picos(time),
        times: Vec::new(),
        jitter: 0,
        footprint: Bytes(0),
    })
}
fn write(channel: &str) -> Step {
    Step::Cpu(CpuStep::Write {
        channel: channel.into(),
        to: Which::Own,
        bytes: 1,
        sizes: Vec::new(),
    })
}
fn read(channel: &str) -> Step {
    Step::Cpu(CpuStep::Read { channel: channel.into(), from: Which::Own, bytes: 1 })
}
fn again(steps: u32, times: u64) -> Step {
    Step::Repeat { steps, until: Again::Times(times) }
}
/// Two tasks that hand a byte to and fro, each on its CPU; each computes for so long first.
fn ping_pong(work: u64, rounds: u64) -> Scenario {
    let a = vec![compute(work), write("to"), read("fro"), again(3, rounds)];
    let b = vec![read("to"), compute(work), write("fro"), again(3, rounds)];
    let mut s = scenario(vec![process("a", &[0], vec![], a), process("b", &[1], vec![], b)]);
    s.channels = vec![pipe("to"), pipe("fro")];
    s
}
/// Two CPUs on which nothing but computing takes time.
fn two_cpus(idle_states: Vec<IdleCosts>) -> Hardware {
    let mut m = machine(&[dram(4096, 2)]);
    m.idle_states = idle_states;
    for cost in [Cost::PipeWrite, Cost::PipeRead, Cost::Syscall] {
        m.costs.0.insert(cost, c(0));
    }
    m
}
fn run(m: &Hardware, s: &Scenario) -> Simulation {
    let mut sim = Simulation::new(m, s, &Setup::of(s)).expect("it fits");
    sim.run();
    assert_eq!((sim.deadlock(), sim.error().is_none()), (None, true));
    sim
}
/// The mean and the longest time from a wake-up until a task runs, in µs.
fn latency(sim: &Simulation) -> Vec<(u64, u64)> {
    let of = |p: &crate::ProcessFigures| {
        let l = &p.tasks.latency;
        (l.mean_ps() / US, l.max_ps() / US)
    };
    sim.processes().iter().map(of).collect()
}

#[test]
fn a_pair_on_two_cpus_waits_for_their_idle_states() {
    // Six rounds end before the first tick, which would wake an idle CPU to balance.
    let s = ping_pong(200 * US, 6);
    // Free of costs: who is woken runs at once, and a round takes what both compute.
    let free = run(&two_cpus(vec![]), &s);
    assert_eq!(latency(&free), [(0, 0), (0, 0)]);
    assert_eq!(free.now(), 6 * 2 * 200 * US);
    // With one state of 100 µs each wake-up takes so long, and the round two of them more.
    let sim = run(&two_cpus(only(100 * US, WokenBy::Store)), &s);
    assert_eq!(latency(&sim), [(100, 100), (100, 100)]);
    assert_eq!(sim.now(), 6 * 2 * (200 + 100) * US);
}

#[test]
fn a_governor_finds_the_state_that_waits_of_one_length_pay_for() {
    // specs/idle.md#select: waits of 150 µs are C3's, which takes 33 µs to leave. What the CPU
    // needs itself makes each wait longer by as much.
    let sim = run(&two_cpus(table(Table::HaswellEp)), &ping_pong(150 * US, 400));
    let [(a, _), (b, _)] = latency(&sim)[..] else { panic!("two") };
    assert!((30..=36).contains(&a) && (30..=36).contains(&b), "{a} {b}");
    // Waits of 10 µs are C1's: 2 µs.
    let sim = run(&two_cpus(table(Table::HaswellEp)), &ping_pong(10 * US, 4000));
    let [(a, _), (b, _)] = latency(&sim)[..] else { panic!("two") };
    assert!(a <= 4 && b <= 4, "{a} {b}");
}

#[test]
fn a_cpu_is_busy_or_in_a_state_at_any_time() {
    let mut s = ping_pong(70 * US, 300);
    let nap = Step::Sleep(Picos(7 * MS));
    let naps = vec![compute(90 * US), nap, again(2, 9)];
    s.processes.push(process("naps", &[1], vec![], naps));
    s.devices = vec![Device {
        name: "disk".into(),
        time: DeviceTime::Fixed(Picos(3 * MS)),
        gathers: false,
        interrupts: Some(CpuId(0)),
    }];
    let io = Step::Cpu(CpuStep::Io {
        device: "disk".into(),
        completion: Completion::Worker { time: Picos(15 * US), high: false },
        iowait: true,
    });
    s.processes.push(process("reads", &[1], vec![], vec![io, again(1, 12)]));
    let m = two_cpus(table(Table::HaswellEp));
    for stop in [0, 1, 999, 20 * MS + 7, 61 * MS] {
        let mut sim = Simulation::new(&m, &s, &Setup::of(&s)).expect("it fits");
        sim.run_until(stop);
        let (busy, idle) = (sim.cpu_figures(), sim.idle_figures());
        for cpu in 0..2 {
            let all = busy[cpu].busy_ps + idle[cpu].time_ps.iter().sum::<u64>();
            // A CPU on its way out of a state, or in a call that lasts beyond this moment, is
            // counted to its end.
            let most = sim.now() + 140 * US;
            assert!((sim.now()..=most).contains(&all), "CPU {cpu} at {stop}: {all}");
        }
    }
    let sim = run(&m, &s);
    for (cpu, idle) in sim.cpu_figures().iter().zip(sim.idle_figures()) {
        assert_eq!(cpu.busy_ps + idle.time_ps.iter().sum::<u64>(), sim.now());
        assert!(idle.stays.iter().map(|s| s[0]).sum::<u64>() > 20, "{idle:?}");
    }
    assert_eq!(run(&m, &s).hash(), sim.hash(), "twice the same");
}

#[test]
fn a_device_interrupt_waits_for_its_idle_cpu() {
    let io = |completion| {
        let step = CpuStep::Io { device: "disk".into(), completion, iowait: true };
        let steps = vec![Step::Cpu(step), again(1, 10)];
        let mut s = scenario(vec![process("reads", &[1], vec![], steps)]);
        s.devices = vec![Device {
            name: "disk".into(),
            time: DeviceTime::Fixed(Picos(MS)),
            gathers: false,
            interrupts: Some(CpuId(0)),
        }];
        s
    };
    let mut m = two_cpus(vec![]);
    for cost in [Cost::IoSubmit, Cost::Interrupt] {
        m.costs.0.insert(cost, c(0));
    }
    assert_eq!(run(&m, &io(Completion::Interrupt)).now(), 10 * MS);
    m.idle_states = only(100 * US, WokenBy::Store);
    // CPU 0 leaves its state, and then CPU 1, which it wakes.
    assert_eq!(run(&m, &io(Completion::Interrupt)).now(), 10 * (MS + 200 * US));
    // With a queue for each CPU the interrupt comes to CPU 1, which is awake when it wakes the task.
    let mut own = io(Completion::Interrupt);
    own.devices[0].interrupts = None;
    assert_eq!(run(&m, &own).now(), 10 * (MS + 100 * US));
    // The worker runs on CPU 0, which is awake by then.
    let worker = Completion::Worker { time: Picos(10 * US), high: false };
    assert_eq!(run(&m, &io(worker)).now(), 10 * (MS + 210 * US));
}

#[test]
fn a_sleeper_wakes_late_by_what_its_cpu_takes_and_the_tick_is_not_kept_for_it() {
    let nap = Step::Sleep(Picos(9 * MS));
    let s = scenario(vec![process("naps", &[0], vec![], vec![nap, again(1, 20)])]);
    // A timer that is known, and no history that says otherwise: the deepest state.
    let sim = run(&two_cpus(table(Table::HaswellEp)), &s);
    assert_eq!(latency(&sim), [(133, 133)]);
    assert_eq!(sim.now(), 20 * (9 * MS + 133 * US));
    assert_eq!(sim.idle_figures()[0].stays[4], [20, 0, 0], "one stay for each nap");
}

#[test]
fn forks_go_to_the_shallowest_idle_cpu() {
    // CPU 0 has a node of its own and forks; the other node's CPUs are idle: CPU 2 in a shallow
    // state, since its waits are short, the others in the deepest since the start.
    let mut m = machine(&[dram(4096, 1), dram(4096, 4)]);
    m.idle_states = table(Table::HaswellEp);
    let all = CpuStep::Affinity { cpus: (0..5).map(CpuId).collect() };
    let steps = |at| vec![compute(at), Step::Cpu(all.clone()), Step::Fork, compute(MS), Step::Wait];
    let short = vec![compute(5 * US), Step::Sleep(Picos(5 * US)), again(2, 300)];
    let mut seen = (0, 0);
    for shift in 0..12 {
        let s = scenario(vec![
            process("forks", &[0], vec![], steps(MS + shift * US)),
            process("short", &[2], vec![], short.clone()),
        ]);
        let mut sim = Simulation::new(&m, &s, &Setup::of(&s)).expect("it fits");
        // Until the child is there.
        let tasks = sim.tasks.len() + 2;
        let mut before = Vec::new();
        while sim.tasks.len() <= tasks {
            before = sim.sched.idle.exits().to_vec();
            let next = sim.now() + 100_000;
            sim.run_until(next);
        }
        let on = sim.tasks[tasks].cpu;
        assert_eq!((before[1], before[3], before[4]), (133_000, 133_000, 133_000));
        match before[2] {
            // It is busy at that moment.
            u32::MAX => {
                assert_ne!(on, 2);
                seen.1 += 1;
            }
            latency => {
                assert!(latency <= 2000, "{latency}");
                assert_eq!(on, 2, "shift {shift}");
                seen.0 += 1;
            }
        }
    }
    assert!(seen.0 > 0 && seen.1 > 0, "{seen:?}");
}

/// CPUs 0 and 1 share a core on which both do 1.25 times what one does alone.
fn a_core() -> Hardware {
    let mut m = two_cpus(vec![]);
    m.cpus[1].core = m.cpus[0].core;
    m.costs.0.insert(Cost::SiblingSpeed, c(625));
    m
}

#[test]
fn siblings_that_compute_take_longer_by_the_factor() {
    let both = |m: &Hardware, a: u64, b: u64| {
        let s = scenario(vec![
            process("a", &[0], vec![], vec![compute(a)]),
            process("b", &[1], vec![], vec![compute(b)]),
        ]);
        let sim = run(m, &s);
        sim.processes().iter().map(|p| p.time_ps).collect::<Vec<u64>>()
    };
    // 10 ms at 0.625 of the speed.
    assert_eq!(both(&a_core(), 10 * MS, 10 * MS), [16 * MS, 16 * MS]);
    // Alone on its core, or on a machine whose file says nothing: as without.
    assert_eq!(both(&two_cpus(vec![]), 10 * MS, 10 * MS), [10 * MS, 10 * MS]);
    // b is done after 4 ms of slow computing, which are 2.5 ms of work; a's other 7.5 ms of
    // work are done at full speed.
    assert_eq!(both(&a_core(), 10 * MS, 2_500 * US), [11_500 * US, 4 * MS]);
    // Its clock is the same: the core is shared, not throttled.
    let mut m = a_core();
    m.cpus[0].mhz = Some(2300);
    let s = scenario(vec![process("a", &[0], vec![], vec![compute(MS)])]);
    let of = run(&m, &s).cpu_figures();
    assert_eq!((of[0].mean_mhz(), of[1].mean_mhz()), (Some(2300.0), None));
}

#[test]
fn a_sibling_that_comes_and_goes_loses_no_work() {
    // b's rests and its computing cut a's work into hundreds of pieces, of both speeds.
    let (rounds, work, nap) = (300, 13 * US, 29 * US);
    let s = |order| {
        let rests = vec![compute(work), Step::Sleep(Picos(nap)), again(2, rounds)];
        let mut s = scenario(vec![
            process("a", &[0], vec![], vec![compute(100 * MS)]),
            process("b", &[1], vec![], rests),
        ]);
        s.model.order = order;
        s
    };
    let slow = work * 1000 / 625;
    for quantum in [317_000, 10 * US] {
        let order = CpuOrder::Quantum(Picos(quantum));
        let sim = run(&a_core(), &s(order));
        let [a, b] = &sim.processes()[..] else { panic!("two") };
        assert_eq!(b.time_ps, rounds * (slow + nap), "{order:?}");
        // While b computes, a does 0.625 of what it would.
        assert_eq!(a.time_ps, 100 * MS + rounds * slow * 375 / 1000, "{order:?}");
    }
}

/// Four CPUs: 0 and 1 are one core, 2 shares their last level, 3 is on another node. A line takes
/// 20 ns from the last level and 100 or 160 from memory, one after the other.
fn four_cpus() -> Hardware {
    let mut m = machine(&[dram(4096, 3), dram(4096, 1)]);
    m.cpus[1].core = 0;
    let cache = |level, size, ns: u64| Cache {
        level,
        size: Bytes(size),
        ways: 8,
        line: 64,
        shared_by: 1,
        latency: c(ns * 1000),
    };
    m.caches = vec![cache(1, 1 << 15, 1), cache(2, 1 << 20, 5), cache(3, 1 << 23, 20)];
    m.costs.0.insert(Cost::MemoryParallelism, c(1000));
    m.costs.0.insert(Cost::Syscall, c(0));
    m
}

#[test]
fn a_moved_task_fills_its_caches_once() {
    let m = four_cpus();
    let far = m.link(NodeId(1), NodeId(0)).expect("it is there").read_latency.value;
    let near = m.link(NodeId(0), NodeId(0)).expect("it is there").read_latency.value;
    assert!(far > near);
    let to = |cpu: u32| Step::Cpu(CpuStep::Affinity { cpus: vec![CpuId(cpu)] });
    let uses = |bytes: u64| {
        let footprint = Bytes(bytes);
        Step::Cpu(CpuStep::Compute { time: Picos(MS), times: Vec::new(), jitter: 0, footprint })
    };
    let took = |path: &[u32], bytes: u64| {
        let mut steps = vec![uses(bytes), uses(bytes)];
        for &cpu in path {
            steps.extend([to(cpu), uses(bytes), uses(bytes)]);
        }
        let s = scenario(vec![Process { threads: 1, ..process("p", &[0], vec![], steps) }]);
        let sim = run(&m, &s);
        let all = sim.processes()[0].time_ps;
        all - 2 * MS * (1 + path.len() as u64)
    };
    let lines = |bytes: u64| bytes / 64;
    // To the sibling: nothing. Within the last level: what the second level held, from there.
    assert_eq!(took(&[1], 1 << 19), 0);
    assert_eq!(took(&[2], 1 << 19), lines(1 << 19) * 20_000);
    assert_eq!(took(&[2], 1 << 24), lines(1 << 20) * 20_000);
    // To the other node: what the last level held, from the memory of the first node; and back.
    assert_eq!(took(&[3], 1 << 22), lines(1 << 22) * far);
    assert_eq!(took(&[3], 1 << 30), lines(1 << 23) * far);
    assert_eq!(took(&[3, 0], 1 << 22), lines(1 << 22) * (far + near));
    // Whoever uses little, or doesn't say, pays nothing.
    assert_eq!(took(&[3, 2, 0], 0), 0);
    // Independent lines overlap.
    let mut m = four_cpus();
    m.costs.0.insert(Cost::MemoryParallelism, c(4000));
    let steps = vec![uses(1 << 22), to(3), uses(1 << 22)];
    let s = scenario(vec![Process { threads: 1, ..process("p", &[0], vec![], steps) }]);
    assert_eq!(run(&m, &s).processes()[0].time_ps, 2 * MS + lines(1 << 22) * far / 4);
}

#[test]
fn what_a_task_fills_again_is_its_own_time() {
    let m = four_cpus();
    let footprint = Bytes(1 << 20);
    let uses = Step::Cpu(CpuStep::Compute {
        time: Picos(30 * MS),
        times: Vec::new(),
        jitter: 0,
        footprint,
    });
    let alone = vec![uses];
    // Three tasks begin on two CPUs of two cores: balancing moves them.
    let of = |name: &str| Process { threads: 1, ..process(name, &[0, 2], vec![], alone.clone()) };
    let s = scenario(vec![of("a"), of("b"), of("c")]);
    let sim = run(&m, &s);
    let once = (1u64 << 20) / 64 * 20_000;
    let mut moves = 0;
    for p in sim.processes() {
        let filled = p.ran_ps - 30 * MS;
        assert_eq!(filled % once, 0, "{}", p.name);
        assert!(filled / once <= p.tasks.migrations, "once for each move at most");
        moves += filled / once;
        assert_eq!(p.system_ps, 0, "{}", p.name);
    }
    assert!(moves > 0);
}

#[test]
fn an_idle_cpu_that_watches_no_line_is_sent_an_interrupt() {
    let s = ping_pong(200 * US, 6);
    for (woken_by, ipi) in [(WokenBy::Store, 0), (WokenBy::Interrupt, 3 * US)] {
        let mut m = two_cpus(only(100 * US, woken_by));
        m.costs.0.insert(Cost::Ipi, c(3 * US));
        let sim = run(&m, &s);
        assert_eq!(sim.now(), 6 * 2 * (300 * US + ipi), "{woken_by:?}");
        assert_eq!(latency(&sim)[0].0, 100 + ipi / US);
    }
    // A timer's interrupt is the CPU's own, and so is a wake-up on the waker's CPU.
    let nap = vec![Step::Sleep(Picos(9 * MS)), again(1, 20)];
    let mut m = two_cpus(only(100 * US, WokenBy::Interrupt));
    m.costs.0.insert(Cost::Ipi, c(3 * US));
    let sim = run(&m, &scenario(vec![process("naps", &[0], vec![], nap)]));
    assert_eq!(sim.now(), 20 * (9 * MS + 100 * US));
}

#[test]
fn whoever_runs_on_a_cpu_that_is_marked_pays_for_the_interrupt() {
    // a wakes b on CPU 1, where c computes; b has slept for long and runs before c.
    let a = vec![Step::Sleep(Picos(20 * MS)), write("to"), again(2, 5)];
    let b = vec![read("to"), compute(10 * US), again(2, 5)];
    let c_ = vec![compute(150 * MS)];
    let mut s = scenario(vec![
        process("a", &[0], vec![], a),
        process("b", &[1], vec![], b),
        process("c", &[1], vec![], c_),
    ]);
    s.channels = vec![pipe("to")];
    let system = |ipi| {
        let mut m = two_cpus(vec![]);
        m.costs.0.insert(Cost::Ipi, c(ipi));
        let sim = run(&m, &s);
        let latest = sim.processes()[1].tasks.latency.max_ps();
        (sim.processes()[2].system_ps, latest)
    };
    assert_eq!(system(0), (0, 0));
    assert_eq!(system(2 * US), (5 * 2 * US, 2 * US), "b waits for the interrupt as well");
}

#[test]
fn files_tell_the_states_and_how_they_were_used() {
    let m = two_cpus(table(Table::HaswellEp));
    let mut sim = run(&m, &ping_pong(500 * US, 40));
    let at = |cpu: u32, state: u32, file: &str| {
        format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/{file}")
    };
    let names: Vec<String> =
        (0..5).map(|state| sim.read_file(&at(0, state, "name")).expect("it is there")).collect();
    assert_eq!(names, ["POLL\n", "C1\n", "C1E\n", "C3\n", "C6\n"]);
    let read = |sim: &Simulation, file: &str| sim.read_file(&at(1, 4, file)).expect("there");
    assert_eq!((read(&sim, "latency"), read(&sim, "residency")), ("133\n".into(), "400\n".into()));
    let usage: u64 = read(&sim, "usage").trim().parse().expect("a number");
    let time: u64 = read(&sim, "time").trim().parse().expect("a number");
    assert!(usage > 20 && time > usage * 500, "{usage} stays, {time} us");
    // Off for this CPU only.
    sim.write_file(&at(1, 4, "disable"), "1\n", Rights::Root).expect("root may");
    assert_eq!(read(&sim, "disable"), "1\n");
    assert_eq!(sim.read_file(&at(0, 4, "disable")).expect("there"), "0\n");
    let refused = |sim: &mut Simulation, file: &str, text: &str, who| {
        sim.write_file(&at(1, 4, file), text, who).expect_err("it is refused").errno
    };
    assert_eq!(refused(&mut sim, "disable", "no", Rights::Root), Errno::Einval);
    assert_eq!(refused(&mut sim, "disable", "1", Rights::RootWithoutCaps), Errno::Eperm);
    assert_eq!(refused(&mut sim, "disable", "1", Rights::Nobody), Errno::Eacces);
    assert_eq!(refused(&mut sim, "usage", "0", Rights::Root), Errno::Eacces);
    assert_eq!(sim.read_file(&at(0, 5, "name")).expect_err("five states").errno, Errno::Enoent);
    // A machine whose file says nothing of them has no such folder.
    let sim = run(&two_cpus(vec![]), &ping_pong(US, 1));
    assert_eq!(sim.read_file(&at(0, 0, "name")).expect_err("none").errno, Errno::Enoent);
}

/// Without a governor a CPU that goes idle has its tick once more; with one it says whether it needs it.
///
/// Specs: specs/sched-balance.md#idle-tick.
#[test]
fn a_cpu_without_a_governor_stops_its_tick_in_the_next_one() {
    let steps = vec![compute(9 * MS + 500 * US), Step::Sleep(Picos(20 * MS)), compute(MS)];
    let s = scenario(vec![process("a", &[0], vec![], steps)]);
    let mut told = String::new();
    let one = only(10_000, WokenBy::Interrupt);
    let cases =
        [("no states", vec![]), ("one state", one), ("a governor", table(Table::HaswellEp))];
    for (name, states) in cases {
        let mut sim = Simulation::new(&two_cpus(states), &s, &Setup::of(&s)).expect("it fits");
        told += &format!("{name:10}");
        for ms in 0..15 {
            sim.run_until(ms * MS + 900 * US);
            let stopped = sim.sched.balance.nohz.idle_cpus()[0] & 1 != 0;
            let idle = sim.sched.q.is_idle(0);
            told += match (idle, stopped) {
                (false, false) => " busy",
                // Its first tick with a task is still to come.
                (false, true) => " new",
                (true, false) => " ticks",
                (true, true) => " idle",
            };
        }
        told += "\n";
    }
    expect![[r#"
        no states  new new new new busy busy busy busy busy ticks ticks ticks idle idle idle
        one state  new new new new busy busy busy busy busy ticks ticks ticks idle idle idle
        a governor new new new new busy busy busy busy busy idle idle idle idle idle idle
    "#]]
    .assert_eq(&told);
}

/// Two CPUs whose clocks go from 1000 to 2000 MHz, the nominal one; one is all that they have, or each has its own.
fn with_clocks(shared: u64) -> Hardware {
    let mut m = two_cpus(vec![]);
    m.cpus.iter_mut().for_each(|cpu| cpu.mhz = Some(2000));
    m.costs.0.insert(Cost::ClockMin, c(1000));
    m.costs.0.insert(Cost::ClockShared, c(shared));
    m.costs.0.insert(Cost::Tick, c(0));
    m
}

#[test]
fn clocks_follow_the_load_and_no_work_is_lost() {
    let work = 100 * MS;
    let mut s = scenario(vec![
        process("a", &[0], vec![], vec![compute(work)]),
        process("b", &[1], vec![], vec![Step::Sleep(Picos(60 * MS)), compute(MS)]),
    ]);
    let nominal = run(&with_clocks(1), &s);
    assert_eq!(nominal.processes()[0].time_ps, work, "the file alone changes nothing");
    for (governor, shared) in [
        (Governor::HwpProportional, 0),
        (Governor::HwpProportional, 1),
        (Governor::HwpThreshold, 1),
        (Governor::Pstate, 0),
        (Governor::Schedutil, 0),
        (Governor::Performance, 0),
    ] {
        s.model.clocks = governor;
        let sim = run(&with_clocks(shared), &s);
        let [a, b] = &sim.processes()[..] else { panic!("two") };
        let of = sim.cpu_figures();
        // Clocks that were had are those that the work takes.
        for (cpu, work) in of.iter().zip([work, MS]) {
            let had = cpu.mean_mhz().expect("it was busy") * cpu.busy_ps as f64;
            let takes = 2000.0 * work as f64;
            assert!((had / takes - 1.0).abs() < 1e-3, "{governor:?}: {had} beside {takes}");
        }
        // Seven windows of 5 ms, each seen at the tick after it.
        let late = a.time_ps - work;
        assert!((MS..30 * MS).contains(&late) || governor == Governor::Performance, "{late}");
        // b runs at once as fast as a if they have one clock.
        let b_takes = b.time_ps - 60 * MS;
        let fast = shared == 1 || governor == Governor::Performance;
        assert_eq!(b_takes < 1_100 * US, fast, "{governor:?} {b_takes}");
        assert_eq!(run(&with_clocks(shared), &s).hash(), sim.hash(), "twice the same");
    }
}

#[test]
fn schedutil_hears_of_tasks_that_wait_for_io_where_their_own_cpu_enqueues_them() {
    let mhz_of = |interrupts, iowait, governor, features: &str| {
        let (device, completion) = ("disk".into(), Completion::Interrupt);
        let io = Step::Cpu(CpuStep::Io { device, completion, iowait });
        let mut s =
            scenario(vec![process("a", &[1], vec![], vec![compute(50 * US), io, again(2, 1000)])]);
        let time = DeviceTime::Fixed(Picos(500 * US));
        s.devices = vec![Device { name: "disk".into(), time, gathers: false, interrupts }];
        s.model.clocks = governor;
        s.model.features = Features::parse(features).expect("words");
        run(&with_clocks(0), &s).cpu_figures()[1].mean_mhz().expect("it was busy") as u32
    };
    let mhz = |interrupts, iowait, governor| mhz_of(interrupts, iowait, governor, "");
    // A tenth of the time asks for the lowest clock, a boost in the end for the highest.
    assert!(mhz(None, false, Governor::Schedutil) < 1100);
    let boosted = mhz(None, true, Governor::Schedutil);
    assert!(boosted > 1850, "{boosted}");
    let other = |features| mhz_of(Some(CpuId(0)), true, Governor::Schedutil, features);
    assert!(other("NO_TTWU_QUEUE") < 1100, "the other CPU enqueues it");
    assert!(other("") > 1850, "it is woken by list, and its own CPU enqueues it");
    assert!(mhz(None, true, Governor::HwpProportional) < 1100);
}

#[test]
fn the_kernels_work_takes_twice_as_long_at_half_of_the_clock_and_waiting_does_not() {
    // Two tasks of one CPU that hand each other a byte, a disk's interrupt, and statistics that are counted.
    let took = |rounds, min: u64, turbo: u64, governor, stats: &str| {
        let mut m = with_clocks(0);
        m.costs.0.insert(Cost::ClockMin, c(min));
        m.costs.0.insert(Cost::ClockTurbo1, c(turbo));
        // Of all that these tasks cause only leaving the idle state is no instruction.
        for cost in [Cost::PipeWrite, Cost::PipeRead, Cost::WakeUp, Cost::ContextSwitch] {
            m.costs.0.insert(cost, c(US));
        }
        for cost in [Cost::IoSubmit, Cost::Interrupt, Cost::StatsCount] {
            m.costs.0.insert(cost, c(US / 10));
        }
        for cost in [Cost::WakeIdle, Cost::WakeDeep, Cost::StatsLine, Cost::BalanceCpu] {
            m.costs.0.insert(cost, c(0));
        }
        let (device, completion) = ("disk".into(), Completion::Interrupt);
        let io = Step::Cpu(CpuStep::Io { device, completion, iowait: false });
        let ping = vec![write("there"), read("back"), again(2, rounds), io];
        let pong = vec![read("there"), write("back"), again(2, rounds)];
        let mut s =
            scenario(vec![process("a", &[0], vec![], ping), process("b", &[0], vec![], pong)]);
        s.channels = vec![pipe("there"), pipe("back")];
        let time = DeviceTime::Fixed(Picos(10 * MS));
        s.devices = vec![Device { name: "disk".into(), time, gathers: false, interrupts: None }];
        s.model.clocks = governor;
        let mut setup = Setup::of(&s);
        setup.knobs = knobs(&[("sched_schedstats", stats)]);
        let mut sim = Simulation::new(&m, &s, &setup).expect("starts");
        sim.run();
        sim.processes().iter().map(|p| p.time_ps).max().expect("two") - 10 * MS
    };
    for stats in ["0", "1"] {
        // What the second hundred of rounds takes: how it begins and ends cancels out. Who preempts whom
        // hangs on times that no clock changes, so a switch more or less is left over.
        let of = |min, turbo, governor| {
            let [once, twice] = [100, 200].map(|n| took(n, min, turbo, governor, stats));
            twice - once
        };
        let file = of(1000, 2000, Governor::Nominal);
        assert!(file > 600 * US);
        assert_eq!(of(2000, 2000, Governor::Performance), file, "at the nominal clock");
        let half = of(1000, 1000, Governor::Performance);
        assert!(half.abs_diff(2 * file) < file / 100, "{half} beside {file}");
        let twice = of(1000, 4000, Governor::Performance);
        assert!((2 * twice).abs_diff(file) < file / 100, "{twice} beside {file}");
    }
    let [off, on] = ["0", "1"].map(|stats| took(100, 1000, 1000, Governor::Performance, stats));
    assert!(on > off + 200 * 100 * 1000, "statements are paid for: {on} beside {off}");
}

#[test]
fn clocks_that_the_file_lacks_are_an_error() {
    let mut s = scenario(vec![process("a", &[0], vec![], vec![compute(MS)])]);
    s.model.clocks = Governor::Pstate;
    let Err(e) = Simulation::new(&two_cpus(vec![]), &s, &Setup::of(&s)) else { panic!("it runs") };
    expect![[r#"the model's clocks are "intel_pstate", but the machine's file lacks them: it takes clock_min and the mhz of each CPU"#]].assert_eq(&e.to_string());
}

#[test]
fn a_device_that_gathers_takes_on_together_what_came_meanwhile() {
    let run_with = |gathers| {
        let step = || {
            let (device, completion) = ("disk".into(), Completion::Interrupt);
            Step::Cpu(CpuStep::Io { device, completion, iowait: true })
        };
        let mut s = scenario(vec![
            process("a", &[0], vec![], vec![step(), again(1, 10)]),
            process("b", &[1], vec![], vec![compute(100 * US), step(), again(1, 10)]),
            process("c", &[1], vec![], vec![compute(100 * US), step(), again(1, 10)]),
        ]);
        s.devices = vec![Device {
            name: "disk".into(),
            time: DeviceTime::Commands(vec![Command::Flush, Command::Write, Command::Flush]),
            gathers,
            interrupts: Some(CpuId(0)),
        }];
        let mut m = two_cpus(vec![]);
        for cost in
            [Cost::IoSubmit, Cost::Interrupt, Cost::ContextSwitch, Cost::WakeIdle, Cost::WakeUp]
        {
            m.costs.0.insert(cost, c(0));
        }
        m.costs.0.insert(Cost::WakeCall, c(0));
        m.costs.0.insert(Cost::DiskWrite, c(500 * US));
        m.costs.0.insert(Cost::DiskFlush, c(250 * US));
        run(&m, &s).processes().iter().map(|p| p.time_ps / MS).collect::<Vec<u64>>()
    };
    assert_eq!(run_with(false), [10, 10, 10]);
    // a's are under way while the others' two wait, which are one then, and the other way round.
    assert_eq!(run_with(true), [19, 20, 20]);
}

#[test]
fn a_list_of_times_is_gone_through_again_and_again() {
    let times: Vec<Picos> = [1, 2, 3].map(|ms| Picos(ms * MS)).to_vec();
    let time = times[0];
    let step = CpuStep::Compute { time, times, jitter: 0, footprint: Bytes(0) };
    let s = scenario(vec![process("a", &[0], vec![], vec![Step::Cpu(step), again(1, 5)])]);
    assert_eq!(run(&two_cpus(vec![]), &s).now(), 9 * MS);
}
