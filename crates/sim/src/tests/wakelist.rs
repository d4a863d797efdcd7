//! Wake-ups by list: when a task is on its queue, who pays for that, and what comes between.
//!
//! Source: specs/wake.md#list.

use super::support::*;
use crate::build::Setup;
use crate::check::Checker;
use crate::simulation::Simulation;
use homenode_core::costs::{Constant, Cost};
use homenode_core::kernel::KernelVersion;
use homenode_core::scenario::*;
use homenode_core::sched::fair::Features;
use homenode_core::topology::{Hardware, IdleCosts, WokenBy};
use homenode_core::units::{Bytes, Picos};

const US: u64 = 1_000_000;
/// What leaving the only idle state takes.
const EXIT: u64 = 100 * US;

fn c(value: u64) -> Constant {
    Constant::assumed(value, "a test's")
}
fn compute(time: u64) -> Step {
    let (times, jitter, footprint) = (Vec::new(), 0, Bytes(0));
    Step::Cpu(CpuStep::Compute { time: Picos(time), times, jitter, footprint })
}
fn write(channel: &str) -> Step {
    let (channel, to, sizes) = (channel.into(), Which::Own, Vec::new());
    Step::Cpu(CpuStep::Write { channel, to, bytes: 1, sizes })
}
fn read(channel: &str) -> Step {
    Step::Cpu(CpuStep::Read { channel: channel.into(), from: Which::Own, bytes: 1 })
}
fn again(steps: u32, times: u64) -> Step {
    Step::Repeat { steps, until: Again::Times(times) }
}
fn of(processes: Vec<Process>, channels: &[&str]) -> Scenario {
    let pipe = |name: &&str| Channel {
        name: (*name).into(),
        kind: ChannelKind::Pipe,
        count: 1,
        group: 1,
        nodelay: false,
    };
    let mut s = scenario(processes);
    s.channels = channels.iter().map(pipe).collect();
    s
}
/// CPUs 0 and 1, of one last-level cache or of two, which only computing and what a test names keep busy.
fn two_cpus(one_cache: bool, costs: &[(Cost, u64)]) -> Hardware {
    let mut m = match one_cache {
        true => machine(&[dram(4096, 2)]),
        false => machine(&[dram(4096, 1), dram(4096, 1)]),
    };
    for cost in [Cost::PipeWrite, Cost::PipeRead, Cost::Syscall, Cost::Tick] {
        m.costs.0.insert(cost, c(0));
    }
    for &(cost, value) in costs {
        m.costs.0.insert(cost, c(value));
    }
    m
}
/// The same with one idle state.
fn with_a_state(one_cache: bool) -> Hardware {
    let mut m = two_cpus(one_cache, &[]);
    m.idle_states = vec![IdleCosts {
        name: "C6".into(),
        polls: false,
        woken_by: WokenBy::Store,
        exit_latency: c(EXIT),
        target_residency: c(EXIT),
        wake_latency: None,
    }];
    m
}
fn begun(m: &Hardware, s: &Scenario) -> Simulation {
    Simulation::new(m, s, &Setup::of(s)).expect("it fits")
}
/// Runs until a task is on a list; `None`: it ended without that.
fn until_listed(sim: &mut Simulation, task: usize) -> Option<()> {
    loop {
        if sim.sched.q.tasks.get(task).is_some_and(|t| t.listed) {
            return Some(());
        }
        if sim.tasks.len() > task && !sim.tasks[task].lives() {
            return None;
        }
        let next = sim.now() + 100_000;
        sim.run_until(next);
    }
}
/// The number of the task of that name.
fn task(sim: &Simulation, name: &str) -> usize {
    (0..sim.tasks.len())
        .find(|&id| sim.tasks[id].space != usize::MAX && sim.name_of(id) == name)
        .expect("it has started")
}

#[test]
fn a_task_waits_on_its_queue_from_when_its_cpu_is_awake() {
    // b sleeps on CPU 1 and is woken by a on CPU 0, six times.
    let waits = |kernel, one_cache, features: &str| {
        let a = vec![compute(200 * US), write("to"), again(2, 6)];
        let b = vec![read("to"), compute(US), again(2, 6)];
        let mut s = of(vec![process("a", &[0], vec![], a), process("b", &[1], vec![], b)], &["to"]);
        s.kernel = kernel;
        s.model.features = Features::parse(features).expect("words");
        let mut sim = begun(&with_a_state(one_cache), &s);
        sim.run();
        let b = &sim.processes()[1].tasks;
        assert_eq!((b.latency.mean_ps(), b.wakeups), (EXIT, 6), "it runs when its CPU is there");
        let id = task(&sim, "b");
        let run_delay = sim.sched.q.counters.info(id).run_delay;
        assert_eq!(run_delay, b.wait_ns, "what is always counted says the same");
        b.wait_ns * 1000 / EXIT
    };
    use KernelVersion::*;
    assert_eq!(waits(V6_12, true, ""), 0, "its CPU puts it on its queue when it is awake");
    assert_eq!(waits(V6_12, false, ""), 0);
    assert_eq!(
        waits(V4_15, true, ""),
        6,
        "within a cache the waker does it, and it waits for its CPU"
    );
    assert_eq!(waits(V4_15, false, ""), 0);
    assert_eq!(waits(V6_12, false, "NO_TTWU_QUEUE"), 6);
}

#[test]
fn who_puts_it_on_the_queue_pays_for_that() {
    // CPU 1 is busy with a hog when a wakes b there, five times. What both were charged as system time, in µs.
    let paid = |one_cache, features: &str| {
        let costs = [(Cost::WakeUp, 10), (Cost::WakeCall, 3), (Cost::Ipi, 1)];
        let m = two_cpus(one_cache, &costs.map(|(cost, us)| (cost, us * US)));
        let a = vec![compute(300 * US), write("to"), again(2, 5)];
        let b = vec![read("to"), again(1, 5)];
        let mut s = of(
            vec![
                process("a", &[0], vec![], a),
                process("b", &[1], vec![], b),
                process("hog", &[1], vec![], vec![compute(5000 * US)]),
            ],
            &["to"],
        );
        // Whoever else wakes up preempts it.
        s.processes[2].sched_policy = SchedPolicy::Idle;
        s.model.features = Features::parse(features).expect("words");
        let mut sim = begun(&m, &s);
        let checker = Checker::watch(&mut sim);
        sim.run();
        assert_eq!(checker.findings(&sim), Vec::<String>::new());
        ["a", "hog"].map(|name| sim.tasks[task(&sim, name)].system / US)
    };
    // Each time CPU 1 is marked, since b slept, so its hog is held up for the interrupt in any case.
    assert_eq!(paid(true, ""), [50, 5], "one cache: the waker does all");
    assert_eq!(paid(false, "NO_TTWU_QUEUE"), [50, 5]);
    assert_eq!(paid(false, ""), [15, 55], "the waker pays for its call, CPU 1 for the rest");
}

#[test]
fn a_list_keeps_its_order_and_was_a_stack() {
    let order = |kernel| {
        let waits = |name: &str| process(name, &[1], vec![], vec![read(name)]);
        let a = vec![compute(500 * US), write("b"), write("c")];
        let mut s = of(vec![process("a", &[0], vec![], a), waits("b"), waits("c")], &["b", "c"]);
        s.kernel = kernel;
        let mut sim = begun(&with_a_state(false), &s);
        sim.run_until(US);
        let (b, c) = (task(&sim, "b"), task(&sim, "c"));
        until_listed(&mut sim, c).expect("it is woken by list");
        assert_eq!(sim.sched.q.lists.of(1), [b as u32, c as u32]);
        assert!(!sim.sched.q.is_idle(1), "who is called is not idle for others");
        // Whether who came first is taken first.
        sim.sched.take_list(1)[0] == b as u32
    };
    assert!(order(KernelVersion::V6_12));
    assert!(!order(KernelVersion::V4_15));
}

#[test]
fn a_task_on_a_list_is_moved_and_ended_as_any_other() {
    let woken = || {
        let a = vec![compute(500 * US), write("to"), compute(500 * US)];
        let b = vec![read("to"), compute(US)];
        let s = of(vec![process("a", &[0], vec![], a), process("b", &[1], vec![], b)], &["to"]);
        let mut sim = begun(&with_a_state(true), &s);
        let checker = Checker::watch(&mut sim);
        sim.run_until(US);
        let (a, b) = (task(&sim, "a"), task(&sim, "b"));
        until_listed(&mut sim, b).expect("it is woken by list");
        assert_eq!(checker.findings(&sim), Vec::<String>::new());
        (sim, checker, a, b)
    };
    // Its CPUs are others now: it is on its queue at once, and goes.
    let (mut sim, checker, a, b) = woken();
    sim.set_affinity(a, b, &[0]);
    assert_eq!((sim.tasks[b].cpu, sim.tasks[b].on_queue), (0, true));
    assert_eq!(checker.findings(&sim), Vec::<String>::new());
    sim.run();
    assert_eq!(checker.findings(&sim), Vec::<String>::new());
    assert_eq!(sim.processes()[1].tasks.migrations, 1);
    // CPU 1 comes out of its state, finds nobody, and is idle again.
    assert_eq!(sim.cpu_figures()[1].switches, 0);
    // Its process ends.
    let (mut sim, checker, _, b) = woken();
    sim.end_space(sim.tasks[b].space, None);
    assert!(!sim.tasks[b].lives());
    sim.run();
    assert_eq!(checker.findings(&sim), Vec::<String>::new());
}

#[test]
fn who_still_switches_out_goes_on_its_own_cpus_list() {
    // b goes to sleep on CPU 1, which takes 50 µs to switch to a hog; a wakes it from another cache at some time.
    let listed = |kernel, at: u64| {
        let m = two_cpus(false, &[(Cost::ContextSwitch, 50 * US)]);
        let a = vec![compute(at), write("to"), compute(10 * US)];
        let b = vec![compute(500 * US), read("to"), compute(US)];
        let hog = vec![Step::Sleep(Picos(300 * US)), compute(2000 * US)];
        let mut s = of(
            vec![
                process("a", &[0], vec![], a),
                process("b", &[1], vec![], b),
                process("hog", &[1], vec![], hog),
            ],
            &["to"],
        );
        s.kernel = kernel;
        // Else it stays on its queue, since it has run longer than the hog.
        s.model.features = Features::parse("NO_DELAY_DEQUEUE").expect("a word");
        let mut sim = begun(&m, &s);
        sim.run_until(US);
        let b = task(&sim, "b");
        let listed = until_listed(&mut sim, b).is_some();
        if listed {
            assert!(sim.tasks[b].off_cpu > sim.now(), "its CPU still switches");
            sim.run_until(sim.tasks[b].off_cpu);
            assert!(sim.tasks[b].on_queue, "as soon as its CPU has switched");
        }
        sim.run();
        assert!(sim.error().is_none());
        listed
    };
    let during = |kernel| (400..700).step_by(10).filter(|at| listed(kernel, at * US)).count();
    // Four of these times lie within the 50 µs. Without an interrupt's time a list is taken at once otherwise.
    assert_eq!(during(KernelVersion::V6_12), 4);
    assert_eq!(during(KernelVersion::V4_15), 0);
}
