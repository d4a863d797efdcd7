//! The simulator's own measurements, for `cargo xtask bench`. Each prints one
//! line of JSON with what it read from its counters and clocks.
//!
//! ```text
//! hotloop ids --out FILE --n N --pages P [--seed S]   Gauss ids, 80:20, u32, write in the top bit
//! hotloop speed --ids FILE --pages P --threads T [--mode M] [--accesses N] [--scan-size MB]
//! hotloop gather --pages P [--accesses N]             the bare loop of prefetched updates
//! hotloop scale --pages P [--accesses N]              the simulator on the same footprint
//! hotloop off --pages P --accesses N [--without]      balancing off, or its hooks left out
//! hotloop quantum --threads T [--pages P]             quanta against strict order
//! ```

use homenode_core::costs::{Constant, Costs};
use homenode_core::scenario::{Model, Order};
use homenode_core::topology::{Cpu, Link, Machine, Medium, Node, Zone, ZoneKind};
use homenode_core::units::{CpuId, NodeId, Pages, Picos};
use homenode_sim::random::{Gauss, Stream};
use homenode_sim::vmstat::Item;
use homenode_sim::{Setup, Simulation};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// DRAM of `fast` pages with all CPUs, and an expander of `slow` pages.
fn machine(cpus: u32, fast: u64, slow: u64) -> Machine {
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
    Machine {
        name: "bench".into(),
        about: "DRAM and an expander".into(),
        nodes: vec![node(0, Medium::Dram, fast), node(1, Medium::Cxl, slow)],
        cpus: (0..cpus).map(|i| Cpu { id: CpuId(i), node: NodeId(0), core: i, llc: 0 }).collect(),
        caches: Vec::new(),
        distances: vec![vec![10, 20], vec![20, 10]],
        links: vec![link(0, 100, 100_000), link(1, 250, 30_000)],
        costs: Costs::default(),
    }
}

fn gauss_ids(n: u64, pages: u64, seed: u64) -> Vec<u32> {
    let g = Gauss::new(pages, 83);
    let mut s = Stream::new(seed, "ids");
    (0..n)
        .map(|_| {
            let page = g.draw(&mut s) as u32;
            page | if s.next() & 0xffff < 13_107 { 1 << 31 } else { 0 }
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
}

fn tiering(mode: u64, extra: &[(&str, String)]) -> Vec<(String, String)> {
    let mut k = vec![
        ("numa_balancing".to_owned(), mode.to_string()),
        ("demotion_enabled".to_owned(), "true".to_owned()),
    ];
    k.extend(extra.iter().map(|(a, b)| ((*a).to_owned(), b.clone())));
    k
}

/// Runs until `n` more accesses are made; seconds, and how many there were.
fn timed(s: &mut Simulation, n: u64) -> (f64, u64) {
    let before = s.accesses();
    let t = Instant::now();
    while s.accesses() - before < n {
        let until = s.now() + 10_000_000_000;
        s.run_until(until);
    }
    (t.elapsed().as_secs_f64(), s.accesses() - before)
}

fn speed(a: &Args, ids: &[u32]) {
    let pages = a.num("pages", 1 << 20);
    let threads = a.num("threads", 1);
    let n = a.num("accesses", 200_000_000);
    let m = machine(threads as u32 + 1, pages / 4, pages);
    let mut extra = Vec::new();
    if let Some(mb) = a.0.get("scan-size") {
        extra.push(("scan_size_mb", mb.clone()));
    }
    let setup = Setup { knobs: tiering(a.num("mode", 2), &extra), ..Setup::default() };
    let cpus: Vec<CpuId> = (0..threads as u32).map(CpuId).collect();
    let part = ids.len() / threads as usize;
    let ids: Vec<Arc<[u32]>> =
        (0..threads as usize).map(|t| ids[t * part..(t + 1) * part].into()).collect();
    let mut s = Simulation::with_ids(&m, &setup, pages, &cpus, &ids).expect("a simulation");
    // First touch and the delay of sampling are over after a few virtual seconds.
    s.run_until(Picos::from_secs(4).0);
    let before = s.vmstat().clone();
    let at = s.now();
    let (seconds, done) = timed(&mut s, n);
    let d = s.vmstat().since(&before);
    let (columns, other) = s.host_bytes();
    println!(
        "{{\"what\":\"speed\",\"pages\":{pages},\"threads\":{threads},\"accesses\":{done},\
         \"seconds\":{seconds:.4},\"per_second\":{:.0},\"fault_share\":{:.5},\"hint_faults\":{},\
         \"promoted\":{},\"demoted\":{},\"pte_updates\":{},\"virtual_seconds\":{:.2},\"sweeps\":{},\
         \"bytes_per_page\":{:.3},\"other_bytes_per_page\":{:.3},\"hash\":\"{:016x}\"}}",
        done as f64 / seconds,
        d.get(Item::Pgfault) as f64 / done as f64,
        d.get(Item::NumaHintFaults),
        d.get(Item::PgpromoteSuccess),
        d.get(Item::PgdemoteKswapd) + d.get(Item::PgdemoteDirect),
        d.get(Item::NumaPteUpdates),
        (s.now() - at) as f64 / 1e12,
        s.sweeps(),
        columns as f64 / pages as f64,
        other as f64 / pages as f64,
        s.hash(),
    );
}

fn scale(a: &Args) {
    let pages = a.num("pages", 1 << 18);
    let n = a.num("accesses", 100_000_000);
    let ids = gauss_ids(a.num("ids", 1 << 24), pages, 1);
    // The whole footprint is resident before the clock starts: touched in order.
    let touch: Vec<u32> = (0..pages as u32).map(|p| p | 1 << 31).collect();
    let m = machine(2, pages / 4, pages);
    let setup = Setup { knobs: tiering(2, &[]), ..Setup::default() };
    let mut s = Simulation::with_ids(&m, &setup, pages, &[CpuId(0)], &[touch.into()])
        .expect("a simulation");
    while s.accesses() < pages {
        let until = s.now() + 10_000_000_000;
        s.run_until(until);
    }
    s.replace_ids(0, ids.into());
    timed(&mut s, n / 4);
    let before = s.vmstat().clone();
    let (seconds, done) = timed(&mut s, n);
    let d = s.vmstat().since(&before);
    let (columns, other) = s.host_bytes();
    println!(
        "{{\"what\":\"scale\",\"pages\":{pages},\"accesses\":{done},\"seconds\":{seconds:.4},\
         \"per_second\":{:.0},\"fault_share\":{:.5},\"promoted\":{},\"demoted\":{},\
         \"bytes_per_page\":{:.3},\"other_bytes_per_page\":{:.3}}}",
        done as f64 / seconds,
        d.get(Item::Pgfault) as f64 / done as f64,
        d.get(Item::PgpromoteSuccess),
        d.get(Item::PgdemoteKswapd) + d.get(Item::PgdemoteDirect),
        columns as f64 / pages as f64,
        other as f64 / pages as f64,
    );
}

/// The peer of `scale`: 8 bytes a page, one prefetched update per access.
fn gather(a: &Args) {
    let pages = a.num("pages", 1 << 18);
    let n = a.num("accesses", 100_000_000);
    let ids = gauss_ids(a.num("ids", 1 << 24), pages, 1);
    let mut column = homenode_sim::bench::Column::new(pages as usize);
    column.update(&ids, n / 4);
    let t = Instant::now();
    let sum = column.update(&ids, n);
    let seconds = t.elapsed().as_secs_f64();
    println!(
        "{{\"what\":\"gather\",\"pages\":{pages},\"accesses\":{n},\"seconds\":{seconds:.4},\
         \"per_second\":{:.0},\"check\":{sum}}}",
        n as f64 / seconds
    );
}

fn off(a: &Args) {
    let pages = a.num("pages", 1 << 16);
    let n = a.num("accesses", 10_000_000);
    let ids = gauss_ids(a.num("ids", 1 << 20), pages, 1);
    let m = machine(1, pages * 2, pages);
    let setup = Setup {
        knobs: tiering(0, &[]),
        without_balancing: a.0.contains_key("without"),
        ..Setup::default()
    };
    let mut s =
        Simulation::with_ids(&m, &setup, pages, &[CpuId(0)], &[ids.into()]).expect("a simulation");
    while s.accesses() < n {
        let until = s.now() + 1_000_000_000;
        s.run_until(until);
    }
    println!("{{\"what\":\"off\",\"pages\":{pages},\"accesses\":{}}}", s.accesses());
}

fn quantum(a: &Args) {
    let pages = a.num("pages", 1 << 16);
    let threads = a.num("threads", 4);
    let virtual_ms = a.num("ms", 8000);
    let run = |order: Order| {
        let ids: Vec<Arc<[u32]>> =
            (0..threads).map(|t| gauss_ids(1 << 20, pages, t + 1).into()).collect();
        let m = machine(threads as u32 + 1, pages / 4, pages);
        let model = Model { order, ..Model::default() };
        let knobs = tiering(2, &[("min_free_kbytes", a.num("min-free", 1024).to_string()), ("watermark_scale_factor", "1".into()), ("numa_balancing_promote_rate_limit_MBps", a.num("rate", 65536).to_string())]);
        let setup = Setup { knobs, model, ..Setup::default() };
        let cpus: Vec<CpuId> = (0..threads as u32).map(CpuId).collect();
        let mut s = Simulation::with_ids(&m, &setup, pages, &cpus, &ids).expect("a simulation");
        s.run_until(Picos::from_ms(virtual_ms).0);
        s
    };
    let strict = run(Order::Strict);
    let quanta = run(Order::Quantum(Picos::from_ns(a.num("quantum-ns", 10_000))));
    let figures = |s: &Simulation| {
        let p = &s.processes()[0];
        let total: u64 = p.accesses.iter().flatten().sum();
        let fast: u64 = p.accesses[0].iter().sum();
        let mut all = vec![("accesses", total as f64), ("fast share", fast as f64 / total as f64)];
        for i in [
            Item::NumaHintFaults,
            Item::NumaPteUpdates,
            Item::PgpromoteSuccess,
            Item::PgdemoteKswapd,
            Item::PgmigrateSuccess,
            Item::Pgfault,
        ] {
            all.push((i.name(), s.vmstat().get(i) as f64));
        }
        all
    };
    let mut worst = 0f64;
    let mut parts = Vec::new();
    for ((name, a), (_, b)) in figures(&quanta).iter().zip(figures(&strict)) {
        let diff = if b == 0.0 { f64::from(*a != 0.0) } else { (a - b).abs() / b };
        worst = worst.max(diff);
        parts
            .push(format!("\"{name}\":{{\"quanta\":{a},\"strict\":{b},\"difference\":{diff:.6}}}"));
    }
    println!(
        "{{\"what\":\"quantum\",\"threads\":{threads},\"worst\":{worst:.6},{}}}",
        parts.join(",")
    );
}

fn main() {
    let mut words = std::env::args().skip(1);
    let what = words.next().unwrap_or_default();
    let mut args = BTreeMap::new();
    while let Some(w) = words.next() {
        let key = w.trim_start_matches("--").to_owned();
        let value = if key == "without" { String::new() } else { words.next().unwrap_or_default() };
        args.insert(key, value);
    }
    let a = Args(args);
    match what.as_str() {
        "ids" => {
            let ids = gauss_ids(a.num("n", 20_000_000), a.num("pages", 1 << 20), a.num("seed", 1));
            let bytes: Vec<u8> = ids.iter().flat_map(|i| i.to_le_bytes()).collect();
            let out = a.0.get("out").expect("--out FILE");
            std::fs::write(out, bytes).unwrap_or_else(|e| panic!("{out}: {e}"));
        }
        "speed" => {
            let ids = match a.0.get("ids") {
                Some(f) => read_ids(f),
                None => gauss_ids(20_000_000, a.num("pages", 1 << 20), 1),
            };
            speed(&a, &ids);
        }
        "scale" => scale(&a),
        "gather" => gather(&a),
        "off" => off(&a),
        "quantum" => quantum(&a),
        _ => {
            eprintln!("hotloop: ids, speed, gather, scale, off or quantum");
            std::process::exit(2);
        }
    }
}
