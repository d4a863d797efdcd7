//! The simulated scheduler's own measurements, for `cargo xtask bench`. The last line is one
//! object of JSON with what was read from counters and clocks. An event is a wake-up, or a task
//! that leaves its CPU for another or for none.
//!
//! | call | does |
//! |---|---|
//! | `hackbench --groups G --loops L` | G groups of 20 senders and 20 receivers on 2 x 32 CPUs of two threads a core, unpinned, by pipes |
//! | `pairs --tasks T --events E` | T/2 pairs on the same machine that wake each other by pipes, one message at a time |
//! | `sleepers --tasks T --events E [--depth D]` | T tasks that compute and sleep, on the same machine; in groups two in each, D deep |
//! | `bare --tasks T --cpus C --events E` | the bare loop: a heap of events and an ordered map for each CPU, as many wake-ups and switches |
//! | `scale --cpus C --permille P --events E [--boot 1]` | tasks that compute, sleep and fork, P thousandths runnable for each CPU; with `boot` only the machine is made |
//!
//! All but `bare` take `--stats 0`, which switches the scheduler's statistics off, and `--features NO_TTWU_QUEUE` or
//! other words of `/sys/kernel/debug/sched/features`.

use homenode_core::costs::{Constant, Costs};
use homenode_core::scenario::{
    Again, Channel, ChannelKind, CpuStep, Group, Model, Process, Scenario, Step, Which,
};
use homenode_core::sched::fair::Features;
use homenode_core::topology::{
    Cpu, Hardware, IdleCosts, Link, Medium, Node, WokenBy, Zone, ZoneKind,
};
use homenode_core::units::{Bytes, CpuId, NodeId, Pages, Picos};
use homenode_sim::random::Stream;
use homenode_sim::{Setup, Simulation};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Counts what is allocated: bytes that are held, and calls.
struct Counting;

static HELD: AtomicI64 = AtomicI64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size() as i64, Relaxed);
        CALLS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the rules of this call, which are those of that one.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A machine of so many CPUs, two threads a core, a last-level cache for each 32, and a node for as many;
/// 16 nodes at most.
fn machine(cpus: u32) -> Hardware {
    let c = |v| Constant::assumed(v, "the benchmark's machine: round figures of two sockets");
    let on_node = cpus.div_ceil(16).max(32);
    let nodes = cpus.div_ceil(on_node);
    let node = |id| Node {
        id: NodeId(id),
        medium: Medium::Dram,
        zones: vec![Zone { kind: ZoneKind::Normal, managed: Pages(1 << 16) }],
    };
    let link = |from: u16, to: u16| {
        let ns = if from == to { 90 } else { 150 };
        Link {
            from: NodeId(from),
            to: NodeId(to),
            read_latency: c(ns * 1000),
            write_latency: c(ns * 1000),
            read_bandwidth: c(50_000),
            write_bandwidth: c(50_000),
        }
    };
    let nodes = nodes as u16;
    let distance = |from, to| if from == to { 10 } else { 21 };
    Hardware {
        name: "bench".into(),
        about: "sockets of 32 CPUs".into(),
        nodes: (0..nodes).map(node).collect(),
        cpus: (0..cpus)
            .map(|i| Cpu {
                id: CpuId(i),
                node: NodeId((i / on_node) as u16),
                core: i / 2,
                llc: i / 32,
                capacity: 1024,
                mhz: None,
            })
            .collect(),
        caches: Vec::new(),
        distances: (0..nodes)
            .map(|from| (0..nodes).map(|to| distance(from, to)).collect())
            .collect(),
        links: (0..nodes).flat_map(|from| (0..nodes).map(move |to| link(from, to))).collect(),
        // As intel_idle has them for Sapphire Rapids.
        idle_states: [("POLL", 0, 0), ("C1", 1, 1), ("C1E", 2, 4), ("C6", 290, 800)]
            .map(|(name, exit, residency)| IdleCosts {
                name: name.into(),
                polls: name == "POLL",
                woken_by: WokenBy::Store,
                exit_latency: c(exit * 1_000_000),
                target_residency: c(residency * 1_000_000),
                wake_latency: None,
            })
            .to_vec(),
        curves: Vec::new(),
        loaded: Vec::new(),
        defaults: None,
        costs: Costs::default(),
    }
}

struct Args(BTreeMap<String, String>);
impl Args {
    fn num(&self, key: &str, default: u64) -> u64 {
        self.0.get(key).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("--{key}: {v}")))
    }
    fn features(&self) -> Features {
        let words = self.0.get("features").map_or("", String::as_str);
        Features::parse(words).unwrap_or_else(|e| panic!("--features: {e}"))
    }
}

fn scenario(processes: Vec<Process>, channels: Vec<Channel>, a: &Args) -> Scenario {
    // Without balancing of memory between nodes: what is measured is the scheduler.
    let statistics = if a.num("stats", 1) != 0 { "1" } else { "0" };
    let knobs = [("numa_balancing", "0"), ("sched_schedstats", statistics)];
    Scenario {
        name: "schedloop".into(),
        about: String::new(),
        machine: String::new(),
        scale: homenode_core::scale::Scale::AS_IS,
        kernel: Default::default(),
        knobs: knobs.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec(),
        command_line: String::new(),
        ksm: Vec::new(),
        model: Model { features: a.features(), ..Model::default() },
        duration: None,
        seed: 1,
        groups: Vec::new(),
        processes,
        channels,
        devices: Vec::new(),
        actions: Vec::new(),
    }
}

/// Copies of a program of one thread that the scheduler places.
fn copies(name: &str, copies: u64, steps: Vec<Step>) -> Process {
    let one = Process::new(name, Vec::new(), Vec::new(), steps);
    Process { threads: 1, copies: copies as u32, ..one }
}
fn repeat(steps: u32, times: u64) -> Step {
    Step::Repeat { steps, until: Again::Times(times) }
}
fn compute(time: Picos, jitter: u32) -> Step {
    Step::Cpu(CpuStep::Compute { time, times: Vec::new(), jitter, footprint: Bytes(0) })
}

/// Runs to so many events after some are made; prints what was counted.
fn measure(a: &Args, s: &mut Simulation, (warm, most): (u64, u64), more: &str) {
    let sum = |s: &Simulation| {
        let (wakes, switches) = s.wakeups_and_switches();
        wakes + switches
    };
    // Asking how many there are takes as long as some events, so it is done seldom.
    let mut part = Picos::from_us(20).0;
    while !s.idle() && sum(s) < a.num("warm", warm) {
        s.run_until(s.now() + part);
    }
    let most = a.num("events", most);
    let (before, at, turns) = (s.wakeups_and_switches(), s.now(), s.turns());
    let calls = CALLS.load(Relaxed);
    let mut seconds = 0.0;
    loop {
        let t = Instant::now();
        s.run_until(s.now() + part);
        seconds += t.elapsed().as_secs_f64();
        let done = sum(s) - before.0 - before.1;
        if s.idle() || done >= most {
            break;
        }
        part = if done * 4 < most { part * 2 } else { part };
    }
    let calls = CALLS.load(Relaxed) - calls;
    let after = s.wakeups_and_switches();
    let (wakes, switches) = (after.0 - before.0, after.1 - before.1);
    if let Some(why) = s.deadlock() {
        panic!("{why}");
    }
    let line = format!(
        "{{\"events\":{},\"wakeups\":{wakes},\"switches\":{switches},\"seconds\":{seconds:.6},\
         \"virtual_seconds\":{:.6},\"turns\":{},\"allocations\":{calls},\"all_events\":{},\
         \"hash\":\"{:016x}\"{more}}}",
        wakes + switches,
        (s.now() - at) as f64 / 1e12,
        s.turns() - turns,
        sum(s),
        s.hash()
    );
    println!("{line}");
    if let Some(out) = a.0.get("out") {
        std::fs::write(out, line).unwrap_or_else(|e| panic!("--out {out}: {e}"));
    }
}

fn hackbench(a: &Args) {
    let (groups, loops) = (a.num("groups", 10), a.num("loops", 1000));
    let pairs = a.num("pairs", 20);
    let tasks = groups * pairs;
    let channel = || "wire".to_owned();
    let wire = Channel {
        name: channel(),
        kind: ChannelKind::Pipe,
        count: tasks as u32,
        group: pairs as u32,
        nodelay: false,
    };
    let read = CpuStep::Read { channel: channel(), from: Which::Own, bytes: 100 };
    let write =
        CpuStep::Write { channel: channel(), to: Which::Group, bytes: 100, sizes: Vec::new() };
    let receiver = vec![Step::Cpu(read), repeat(1, pairs * loops)];
    let sender = vec![Step::Cpu(write), repeat(1, loops)];
    let processes = vec![copies("receiver", tasks, receiver), copies("sender", tasks, sender)];
    let scenario = scenario(processes, vec![wire], a);
    let m = machine(a.num("cpus", 64) as u32);
    let mut s = Simulation::new(&m, &scenario, &Setup::of(&scenario)).expect("a simulation");
    measure(a, &mut s, (20_000, u64::MAX), "");
}

/// Pairs that wake each other: a message there and one back.
fn pairs(a: &Args) {
    let n = a.num("tasks", 400) / 2;
    let channel = |name: &str| Channel {
        name: name.to_owned(),
        kind: ChannelKind::Pipe,
        count: n as u32,
        group: 1,
        nodelay: false,
    };
    let (there, back) = (|| "there".to_owned(), || "back".to_owned());
    let write = |channel| {
        Step::Cpu(CpuStep::Write { channel, to: Which::Own, bytes: 4, sizes: Vec::new() })
    };
    let read = |channel| Step::Cpu(CpuStep::Read { channel, from: Which::Own, bytes: 4 });
    let forever = repeat(2, u64::MAX / 2);
    let processes = vec![
        copies("ping", n, vec![write(there()), read(back()), forever.clone()]),
        copies("pong", n, vec![read(there()), write(back()), forever]),
    ];
    let channels = vec![channel("there"), channel("back")];
    let scenario = scenario(processes, channels, a);
    let m = machine(a.num("cpus", 64) as u32);
    let mut s = Simulation::new(&m, &scenario, &Setup::of(&scenario)).expect("a simulation");
    measure(a, &mut s, (100_000, 1_000_000), "");
}

/// Tasks that compute and sleep in turn, so that `permille` thousandths of a task are
/// runnable for each CPU; one in 16 of them forks children that do the same.
fn sleepers(cpus: u64, permille: u64, a: &Args) -> Scenario {
    let tasks = (cpus * permille * 2 / 1000).max(1);
    let round = |us| [compute(Picos::from_us(us), 500), Step::Sleep(Picos::from_us(us))];
    let forever = repeat(2, u64::MAX / 2);
    let plain: Vec<Step> = round(100).into_iter().chain([forever.clone()]).collect();
    let forks: Vec<Step> = [compute(Picos::from_us(50), 500), Step::Fork]
        .into_iter()
        .chain(round(100))
        .chain([forever])
        .collect();
    let parents = tasks / 16;
    let mut all = vec![copies("worker", tasks - 2 * parents, plain)];
    if parents > 0 {
        all.push(copies("parent", parents, forks));
    }
    scenario(all, Vec::new(), a)
}

fn scale(a: &Args) {
    let (cpus, permille) = (a.num("cpus", 8), a.num("permille", 500));
    let m = machine(cpus as u32);
    let scenario = sleepers(cpus, permille, a);
    let before = HELD.load(Relaxed);
    let setup = Setup::of(&scenario);
    let mut s = if a.num("boot", 0) != 0 {
        Simulation::boot(&m, &setup, 0).expect("a machine")
    } else {
        Simulation::new(&m, &scenario, &setup).expect("a simulation")
    };
    let booted = HELD.load(Relaxed) - before;
    if a.num("boot", 0) != 0 {
        println!("{{\"bytes\":{booted}}}");
        return;
    }
    measure(a, &mut s, (100_000, 1_000_000), &format!(",\"bytes\":{booted}"));
}

/// The same with its workers spread over the lowest of groups within groups, two in each.
fn grouped(mut scenario: Scenario, depth: u32) -> Scenario {
    let name = |level: u32, i: u32| format!("g{level}-{i}");
    for level in 1..=depth {
        for i in 0..1 << level {
            let parent = (level > 1).then(|| name(level - 1, i / 2));
            scenario.groups.push(Group { parent, ..Group::new(&name(level, i)) });
        }
    }
    if depth > 0 {
        let n = 1 << depth;
        let all = std::mem::take(&mut scenario.processes);
        for p in all {
            for i in 0..n {
                let copies = p.copies / n + u32::from(i < p.copies % n);
                let one = Process { copies, group: Some(name(depth, i)), ..p.clone() };
                if copies > 0 {
                    scenario.processes.push(Process { name: format!("{}-g{i}", p.name), ..one });
                }
            }
        }
    }
    scenario
}

fn threads(a: &Args) {
    let tasks = a.num("tasks", 1000);
    let cpus = a.num("cpus", 64);
    let m = machine(cpus as u32);
    let scenario = sleepers(cpus, tasks * 500 / cpus, a);
    let scenario = grouped(scenario, a.num("depth", 0) as u32);
    let mut s = Simulation::new(&m, &scenario, &Setup::of(&scenario)).expect("a simulation");
    measure(a, &mut s, (100_000, 1_000_000), "");
}

/// The bare loop: what an event queue and run queues cost without any rule. A task runs for
/// a while and sleeps for a while; who is woken goes on its CPU's queue in the order of a virtual
/// time, and the first of the queue runs.
fn bare(a: &Args) {
    let (tasks, cpus) = (a.num("tasks", 400) as usize, a.num("cpus", 64) as usize);
    let most = a.num("events", 10_000_000);
    let mut random = Stream::new(1, "bare");
    // Times are drawn before the clock starts.
    let times: Vec<u64> = (0..1 << 12).map(|_| 1000 + random.below(8000)).collect();
    let mut queues: Vec<BTreeMap<(u64, u32), u64>> = vec![BTreeMap::new(); cpus];
    let mut running: Vec<Option<u32>> = vec![None; cpus];
    let mut vruntime = vec![0u64; tasks];
    // At a time: a task is woken, or a CPU's task goes to sleep.
    let mut heap: BinaryHeap<Reverse<(u64, u32, bool)>> = BinaryHeap::new();
    (0..tasks as u32).for_each(|t| heap.push(Reverse((u64::from(t), t, true))));
    let (mut events, mut draw, mut sum) = (0, 0, 0u64);
    let t = Instant::now();
    while events < most {
        let Reverse((now, task, wakes)) = heap.pop().expect("all wake again");
        draw = (draw + 1) & (times.len() - 1);
        let cpu = task as usize % cpus;
        events += 1;
        sum = sum.wrapping_mul(31).wrapping_add(now);
        if wakes {
            queues[cpu].insert((vruntime[task as usize], task), now);
        } else {
            running[cpu] = None;
            vruntime[task as usize] += times[draw];
            heap.push(Reverse((now + times[draw], task, true)));
        }
        if running[cpu].is_none() {
            if let Some(((_, next), _)) = queues[cpu].pop_first() {
                running[cpu] = Some(next);
                heap.push(Reverse((now + times[draw ^ 1], next, false)));
            }
        }
    }
    let seconds = t.elapsed().as_secs_f64();
    println!("{{\"events\":{events},\"seconds\":{seconds:.6},\"check\":{}}}", black_box(sum) >> 12);
}

fn main() {
    let mut words = std::env::args().skip(1);
    let what = words.next().unwrap_or_default();
    let mut args = BTreeMap::new();
    while let Some(w) = words.next() {
        args.insert(w.trim_start_matches("--").to_owned(), words.next().unwrap_or_default());
    }
    let a = Args(args);
    match what.as_str() {
        "hackbench" => hackbench(&a),
        "pairs" => pairs(&a),
        "sleepers" => threads(&a),
        "bare" => bare(&a),
        "scale" => scale(&a),
        _ => {
            eprintln!("schedloop: hackbench, pairs, sleepers, bare or scale");
            std::process::exit(2);
        }
    }
}
