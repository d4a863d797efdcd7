//! The simulator's own measurements, for `cargo xtask bench`. The last line is one
//! object of JSON with what was read from counters and clocks.
//!
//! | call | does |
//! |---|---|
//! | `ids --out FILE --n N --pages P [--seed S]` | writes N Gauss page ids (deviation 1/12), 80:20, u32, a write flag in the top bit |
//! | `sim --ids FILE --pages P --fast-pages F --threads T [--n N] [--mode M] [--lru-gen B]` | N accesses (default 100 M) of these ids, tiering on, F pages of DRAM, the rest on an expander; B as `lru_gen/enabled` has it, 0: lists |
//! | `scale --n N --pages P [--mode M]` | N accesses, one thread, all P pages resident; knobs as booted (mode 1), or tiering in mode M |
//! | `gather --n N --pages P` | the bare loop on as many entries of 8 bytes, same ids |
//! | `off --n N --pages P --balancing none\|off` | balancing off, or its hook in the tick left out |
//! | `parallel --n N --pages P --tasks T --cpus C --meet-us U` | N accesses of T tasks, spread over C CPUs, which meet at a barrier every U µs (0: never); balancing off |
//! | `replay --n N --pages P --threads T --every E` | a made-up recording of N rows in all of T threads, each of which waits for the next one every E rows (0: never), five rounds on T CPUs |
//! | `quantum --n N --pages P --threads T --order quantum\|strict [--seed S]` | two scenarios in quanta or in strict order; and one whose threads meet every 50 µs |

use homenode_core::costs::{Constant, Costs};
use homenode_core::scenario::{
    Again, CpuOrder, Map, Mempolicy, Model, Pattern, Process, Scenario, Step, Until,
};
use homenode_core::topology::{Cpu, Hardware, Link, Medium, Node, Zone, ZoneKind};
use homenode_core::units::{CpuId, NodeId, Pages, Picos};
use homenode_sim::random::{Gauss, Stream};
use homenode_sim::replay::{After, Charge, Op, Recording, Rounds};
use homenode_sim::vmstat::{Item, VmStat};
use homenode_sim::{Setup, Simulation};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// DRAM of `fast` pages with all CPUs, and an expander of `slow` pages.
fn machine(cpus: u32, fast: u64, slow: u64) -> Hardware {
    let c =
        |v| Constant::assumed(v, "the benchmark's machine: round figures of DRAM and an expander");
    let node = |id, medium, pages| Node {
        id: NodeId(id),
        medium,
        zones: vec![Zone { kind: ZoneKind::Normal, managed: Pages(pages) }],
    };
    let link = |to, ns: u64, mbps| Link {
        from: NodeId(0),
        to: NodeId(to),
        read_latency: c(ns * 1000),
        write_latency: c(ns * 1000),
        read_bandwidth: c(mbps),
        write_bandwidth: c(mbps),
    };
    Hardware {
        name: "bench".into(),
        about: "DRAM and an expander".into(),
        nodes: vec![node(0, Medium::Dram, fast), node(1, Medium::Cxl, slow)],
        cpus: (0..cpus)
            .map(|i| Cpu {
                id: CpuId(i),
                node: NodeId(0),
                core: i,
                llc: 0,
                capacity: 1024,
                mhz: None,
            })
            .collect(),
        caches: Vec::new(),
        distances: vec![vec![10, 20], vec![20, 10]],
        links: vec![link(0, 100, 100_000), link(1, 250, 30_000)],
        idle_states: Vec::new(),
        curves: Vec::new(),
        loaded: Vec::new(),
        defaults: None,
        costs: Costs::default(),
    }
}

fn gauss_ids(n: u64, pages: u64, seed: u64) -> Vec<u32> {
    let g = Gauss::new(pages, 83);
    let mut s = Stream::new(seed, "ids");
    (0..n)
        .map(|_| {
            let page = g.draw(&mut s) as u32;
            page | if s.bits() & 0xffff < 13_107 { 1 << 31 } else { 0 }
        })
        .collect()
}
fn read_ids(path: &str) -> Vec<u32> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

struct Args(BTreeMap<String, String>);
impl Args {
    fn num(&self, key: &str, default: u64) -> u64 {
        self.0.get(key).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("--{key}: {v}")))
    }
    fn text(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }
}

fn tiering(mode: u64, extra: &[(&str, u64)]) -> Vec<(String, String)> {
    knobs(&[&[("numa_balancing", mode), ("demotion_enabled", 1)], extra].concat())
}
fn knobs(numbers: &[(&str, u64)]) -> Vec<(String, String)> {
    let numbers = numbers.iter().map(|(k, v)| ((*k).to_owned(), v.to_string()));
    // What is timed is work on base pages: nobody asks for huge ones.
    numbers.chain([("transparent_hugepage".to_owned(), "madvise".to_owned())]).collect()
}

/// Runs until so many accesses have been made in all, `step` of virtual time by `step`.
fn run_to(s: &mut Simulation, accesses: u64, step: Picos) {
    while s.accesses() < accesses {
        s.run_until(s.now() + step.0);
    }
}
/// Runs until `n` more accesses are made; seconds, and how many there were.
fn timed(s: &mut Simulation, n: u64) -> (f64, u64) {
    let before = s.accesses();
    let t = Instant::now();
    run_to(s, before + n, Picos::from_ms(10));
    (t.elapsed().as_secs_f64(), s.accesses() - before)
}
/// The figures of a measured stretch, as the inside of a JSON object.
fn stretch(s: &Simulation, since: &VmStat, at: u64, seconds: f64, done: u64, pages: u64) -> String {
    let d = s.vmstat().since(since);
    let (columns, other) = s.host_bytes();
    format!(
        "\"accesses\":{done},\"seconds\":{seconds:.6},\"numa_hint_faults\":{},\"pgfault\":{},\
         \"pgpromote_success\":{},\"pgdemote\":{},\"numa_pte_updates\":{},\"pgscan\":{},\
         \"virtual_seconds\":{:.3},\"page_bytes\":{:.3},\"other_bytes\":{:.3}",
        d.get(Item::NumaHintFaults),
        d.get(Item::Pgfault),
        d.get(Item::PgpromoteSuccess),
        d.get(Item::PgdemoteKswapd) + d.get(Item::PgdemoteDirect),
        d.get(Item::NumaPteUpdates),
        d.get(Item::PgscanKswapd) + d.get(Item::Pgrefill),
        (s.now() - at) as f64 / 1e12,
        columns as f64 / pages as f64,
        other as f64 / pages as f64,
    )
}

fn sim(a: &Args) {
    let ids = read_ids(a.text("ids"));
    let pages = a.num("pages", 1 << 20);
    let threads = a.num("threads", 1);
    let n = a.num("n", 100_000_000);
    // One CPU more than threads: kswapd runs beside them, as on most machines.
    let m = machine(threads as u32 + 1, a.num("fast-pages", pages / 4), pages);
    // One process scans for all its threads: as often as the kernel allows where
    // there are many, so that there is something to do for each of them.
    let period = (1000 / threads).max(100);
    let extra = [("scan_period_min_ms", period), ("lru_gen", a.num("lru-gen", 7))];
    let knobs = tiering(a.num("mode", 2), &extra);
    let setup = Setup { knobs, ..Setup::default() };
    let cpus: Vec<CpuId> = (0..threads as u32).map(CpuId).collect();
    let part = ids.len() / threads as usize;
    let ids: Vec<Arc<[u32]>> =
        (0..threads as usize).map(|t| ids[t * part..(t + 1) * part].into()).collect();
    let mut s = Simulation::with_ids(&m, &setup, pages, &cpus, &ids).expect("a simulation");
    // First touch and the delay of sampling (2 s for a new program) are over then.
    s.run_until(Picos::from_secs(4).0);
    let (before, at) = (s.vmstat().clone(), s.now());
    let (seconds, done) = timed(&mut s, n);
    println!("{{{}}}", stretch(&s, &before, at, seconds, done, pages));
}

fn scale(a: &Args) {
    let pages = a.num("pages", 1 << 18);
    let n = a.num("n", 100_000_000);
    let ids = gauss_ids(1 << 24, pages, 1);
    // The whole footprint is resident before the clock starts: touched in order.
    let touch: Vec<u32> = (0..pages as u32).map(|p| p | 1 << 31).collect();
    // The second node is below what a zone may have with generations (1008 GiB) at 1 TiB too.
    let m = machine(2, pages / 4, pages / 8 * 7);
    let lru_gen = ("lru_gen", a.num("lru-gen", 7));
    // As a kernel with two nodes boots: balancing in mode 1, no demotion.
    let knobs = match a.num("mode", 1) {
        1 => knobs(&[("numa_balancing", 1), lru_gen]),
        mode => tiering(mode, &[lru_gen]),
    };
    let setup = Setup { knobs, ..Setup::default() };
    let mut s = Simulation::with_ids(&m, &setup, pages, &[CpuId(0)], &[touch.into()])
        .expect("a simulation");
    run_to(&mut s, pages, Picos::from_ms(10));
    s.replace_ids(0, ids.into());
    timed(&mut s, n / 4);
    let (before, at) = (s.vmstat().clone(), s.now());
    let (seconds, done) = timed(&mut s, n);
    println!("{{{}}}", stretch(&s, &before, at, seconds, done, pages));
}

/// The peer of `scale`: 8 bytes a page, one prefetched update per access.
fn gather(a: &Args) {
    let pages = a.num("pages", 1 << 18);
    let n = a.num("n", 100_000_000);
    let ids = gauss_ids(1 << 24, pages, 1);
    let mut column = homenode_sim::bench::PageCounters::new(pages as usize);
    column.update(&ids, n / 4);
    let t = Instant::now();
    let sum = column.update(&ids, n);
    let seconds = t.elapsed().as_secs_f64();
    println!("{{\"accesses\":{n},\"seconds\":{seconds:.6},\"check\":{sum}}}");
}

fn off(a: &Args) {
    let pages = a.num("pages", 1 << 16);
    let n = a.num("n", 10_000_000);
    let ids = gauss_ids(1 << 20, pages, 1);
    let m = machine(1, pages * 2, pages);
    let without_balancing = a.text("balancing") == "none";
    let setup = Setup { knobs: tiering(0, &[]), without_balancing, ..Setup::default() };
    let mut s =
        Simulation::with_ids(&m, &setup, pages, &[CpuId(0)], &[ids.into()]).expect("a simulation");
    run_to(&mut s, n, Picos::from_ms(1));
    println!("{{\"accesses\":{}}}", s.accesses());
}

/// Threads of one process on one mapping, each on a CPU of its own.
fn threads(pages: u64, cpus: Vec<CpuId>, policy: Mempolicy, steps: Vec<Step>) -> Process {
    let heap = Map { policy, ..Map::anonymous(HEAP, Pages(pages).bytes()) };
    Process::new("threads", cpus, vec![heap], steps)
}
fn scenario(process: Process, mode: u64, order: CpuOrder, seed: u64) -> Scenario {
    Scenario {
        name: "threads".into(),
        about: String::new(),
        machine: String::new(),
        scale: homenode_core::scale::Scale::AS_IS,
        kernel: Default::default(),
        knobs: tiering(mode, &[]),
        ksm: Vec::new(),
        model: Model { order, ..Model::default() },
        duration: None,
        seed,
        processes: vec![process],
        channels: Vec::new(),
        groups: Vec::new(),
        command_line: String::new(),
        devices: Vec::new(),
        actions: Vec::new(),
    }
}
const HEAP: &str = "heap";
fn access(pattern: Pattern, until: Until) -> Step {
    Step::Access { map: HEAP.to_owned(), pattern, write: 200, compute: Picos(0), mlp: 1, until }
}
/// Accesses in rounds of so long, after each of which all threads meet.
fn meeting(every: Picos, rounds: u64) -> Vec<Step> {
    let part = access(Pattern::Uniform, Until::Time(every));
    vec![part, Step::Barrier, Step::Repeat { steps: 2, until: Again::Times(rounds) }]
}

fn parallel(a: &Args) {
    let (pages, n) = (a.num("pages", 1 << 18), a.num("n", 50_000_000));
    let (tasks, cpus) = (a.num("tasks", 8), a.num("cpus", 8));
    // A machine with so many CPUs has the bandwidth for them: 2 GB/s each.
    let mut m = machine(cpus as u32, pages * 2, pages);
    for link in &mut m.links {
        link.read_bandwidth.value = link.read_bandwidth.value.max(2000 * cpus);
        link.write_bandwidth.value = link.write_bandwidth.value.max(2000 * cpus);
    }
    let on = (0..tasks).map(|i| CpuId((i * cpus / tasks) as u32)).collect();
    let mut steps = vec![Step::Touch { map: HEAP.to_owned() }, Step::Barrier];
    match Picos::from_us(a.num("meet-us", 0)) {
        Picos::ZERO => steps.push(access(Pattern::Uniform, Until::Accesses(u64::MAX / 2))),
        every => steps.extend(meeting(every, u64::MAX)),
    }
    let process = threads(pages, on, Mempolicy::Default, steps);
    let scenario = scenario(process, 0, CpuOrder::Quantum(Picos::from_us(10)), 1);
    let mut s = Simulation::new(&m, &scenario, &Setup::of(&scenario)).expect("a simulation");
    // Everything is there, and the caches of the host are warm, before the clock starts.
    let step = Picos::from_us(100);
    run_to(&mut s, pages + n / 4, step);
    let (before, began) = (s.accesses(), Instant::now());
    run_to(&mut s, before + n, step);
    let (seconds, done) = (began.elapsed().as_secs_f64(), s.accesses() - before);
    println!("{{\"accesses\":{done},\"seconds\":{seconds:.6}}}");
}

/// Threads of a process, each in its part of the pages. Their points form a ring: a thread
/// passes its next one when the thread after it has passed its last.
fn recording(n: u64, pages: u64, threads: u64, every: u64) -> Recording {
    const FIRST: u64 = 0x10_0000;
    let mut r = Recording::new(threads as usize);
    let prot = [true, true, false];
    r.push(0, 0, Op::Map { page: FIRST, pages, prot, file: false, shared: false });
    (1..threads as u32).for_each(|child| r.push(0, 0, Op::Thread { child }));
    let part = pages / threads;
    let (gauss, mut random) = (Gauss::new(part, 83), Stream::new(1, "rows"));
    for thread in 0..threads {
        let mut met = 0;
        for row in 1..=n / threads {
            let page = FIRST + thread * part + gauss.draw(&mut random);
            let write = random.bits() & 3 == 0;
            let (reads, writes) = if write { (2, 1) } else { (3, 0) };
            r.push(thread as u32, 400, Op::Access { page, reads, writes, write, stream: false });
            if every > 0 && row % every == 0 {
                r.push(thread as u32, 0, Op::Point { number: (met * threads + thread) as u32 });
                met += 1;
            }
        }
    }
    (1..threads as u32).for_each(|child| r.push(0, 0, Op::Wait { child: Some(child) }));
    (0..threads as u32).for_each(|task| r.push(task, 0, Op::Exit));
    let points = (n / threads).checked_div(every).unwrap_or(0) * threads;
    let after = |number| match number {
        number if number < threads || threads == 1 => After::Nothing,
        number => {
            let (met, thread) = (number / threads, number % threads);
            After::Point(((met - 1) * threads + (thread + 1) % threads) as u32)
        }
    };
    r.order((0..points).map(after).collect());
    r
}

fn replay(a: &Args) {
    const ROUNDS: u64 = 5;
    let (pages, n) = (a.num("pages", 1 << 18), a.num("n", 4_000_000));
    let threads = a.num("threads", 1);
    let recording = Arc::new(recording(n, pages, threads, a.num("every", 1000)));
    let mut m = machine(threads as u32, pages * 2, pages);
    for link in &mut m.links {
        link.read_bandwidth.value = link.read_bandwidth.value.max(2000 * threads);
        link.write_bandwidth.value = link.write_bandwidth.value.max(2000 * threads);
    }
    let charge = Charge {
        as_per_insn: 250_000_000,
        own_as_per_insn: Default::default(),
        rounds: Rounds::Count(ROUNDS),
        policy: Mempolicy::Default,
        overlap: None,
        cpus: Vec::new(),
    };
    let setup = Setup { knobs: tiering(0, &[]), ..Setup::default() };
    let mut s = Simulation::replay(&m, &setup, &recording, "r", &charge).expect("a simulation");
    let began = Instant::now();
    s.run();
    let (seconds, rows) = (began.elapsed().as_secs_f64(), n / threads * threads * ROUNDS);
    assert!(s.idle() && s.error().is_none(), "the replay is not through: {:?}", s.error());
    println!("{{\"rows\":{rows},\"seconds\":{seconds:.6}}}");
}

fn quantum(a: &Args) {
    let pages = a.num("pages", 1 << 18);
    let tasks = a.num("threads", 8);
    let each = a.num("n", 160_000_000) / tasks;
    let order = match a.text("order") {
        "strict" => CpuOrder::Strict,
        _ => CpuOrder::Quantum(Picos::from_us(10)),
    };
    // With `room`, all pages begin on the expander and DRAM takes what is used; without,
    // DRAM holds a quarter and reclaim decides.
    let run = |room: bool, meets: bool| {
        let fast = if room { pages * 2 + (1 << 19) } else { pages / 4 };
        let m = machine(tasks as u32 + 1, fast, pages);
        let heap = || HEAP.to_owned();
        let mut steps = vec![
            Step::Touch { map: heap() },
            Step::Mbind { map: heap(), policy: Mempolicy::Default },
        ];
        if meets {
            steps.extend(meeting(Picos::from_us(50), each / 250));
        } else {
            steps.push(access(Pattern::Gauss { sd: 83 }, Until::Accesses(each)));
        }
        let first = if room { Mempolicy::Preferred(NodeId(1)) } else { Mempolicy::Default };
        let process = threads(pages, (0..tasks as u32).map(CpuId).collect(), first, steps);
        let scenario = scenario(process, 2, order, a.num("seed", 1));
        let mut s = Simulation::new(&m, &scenario, &Setup::of(&scenario)).expect("a simulation");
        s.run();
        let p = s.processes().swap_remove(0);
        let total: u64 = p.accesses.iter().flatten().sum();
        let fast: u64 = p.accesses[0].iter().sum();
        let traffic = s.traffic();
        let stat = |i| s.vmstat().get(i) as f64;
        let steady = vec![
            ("time_s", p.time_ps as f64 / 1e12),
            ("cpu_s", p.ran_ps as f64 / 1e12),
            ("fast_share", fast as f64 / total as f64),
            ("read_bytes", traffic.iter().map(|t| t[0]).sum::<u64>() as f64),
            ("written_bytes", traffic.iter().map(|t| t[1]).sum::<u64>() as f64),
            ("numa_hint_faults", stat(Item::NumaHintFaults)),
            ("numa_pte_updates", stat(Item::NumaPteUpdates)),
            ("pgfault", stat(Item::Pgfault)),
        ];
        let moves = vec![
            ("pgpromote_success", stat(Item::PgpromoteSuccess)),
            ("pgdemote_kswapd", stat(Item::PgdemoteKswapd)),
            ("pgmigrate_success", stat(Item::PgmigrateSuccess)),
        ];
        (steady, moves)
    };
    let figures = |room: bool, meets: bool| {
        let (mut all, moves) = run(room, meets);
        all.extend(moves.into_iter().filter(|(_, v)| *v > 0.0));
        let all: Vec<String> = all.iter().map(|(n, v)| format!("\"{n}\":{v}")).collect();
        all.join(",")
    };
    println!(
        "{{\"figures\":{{{}}},\"meeting\":{{{}}},\"pressure\":{{{}}}}}",
        figures(true, false),
        figures(true, true),
        figures(false, false)
    );
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
        "ids" => {
            let n = a.num("n", 20_000_000);
            let ids = gauss_ids(n, a.num("pages", 1 << 20), a.num("seed", 1));
            let bytes: Vec<u8> = ids.iter().flat_map(|i| i.to_le_bytes()).collect();
            let out = a.text("out");
            std::fs::write(out, bytes).unwrap_or_else(|e| panic!("--out {out}: {e}"));
            println!("{{\"n\":{n}}}");
        }
        "sim" => sim(&a),
        "scale" => scale(&a),
        "gather" => gather(&a),
        "off" => off(&a),
        "parallel" => parallel(&a),
        "replay" => replay(&a),
        "quantum" => quantum(&a),
        _ => {
            eprintln!("hotloop: ids, sim, scale, gather, off, parallel, replay or quantum");
            std::process::exit(2);
        }
    }
}
