//! Same-page merging measured on its own, for `cargo xtask bench merge-sim`. The last
//! line is one object of JSON.
//!
//! | call | does |
//! |---|---|
//! | `changed --pages P` | visits of which each ends at the checksum gate: P pages, all changed since the visit before |
//! | `merged --pages P` | visits of merged pages that are in their place |
//! | `search --pages P --n N` | N searches of an unstable tree that holds P pages and grows by N |
//! | `kernel --pages P` | P pages of 8 guests in the simulated kernel, a tenth of an image that all have, touched and then visited once by ksmd: time, and memory at its peak |
//! | `limit --pages P --n N` | the same N contents in the same order: looked up in a sorted array of P, and put into a `BTreeSet` of P |
//!
//! `--stretches S` measures S times as much, one after the other. Seconds are those
//! that the process was on a CPU, where the kernel tells, so that neighbours count less.
//!
//! The machine below the rules is two columns: what each page holds, and which frame
//! each address maps. A look-up of an address is one load, a comparison two.

use homenode_core::costs::{Constant, Costs};
use homenode_core::kernel::KernelVersion;
use homenode_core::ksm::memory::{BreakError, Memory, MmId, Next, Page, Refusal, StableId, Vpn};
use homenode_core::ksm::{Ksm, Now, Outcome, Step, Why};
use homenode_core::scenario::{
    Action, Content, FileOp, Map, Model, Policy, Process, Rights, Scenario, Step as ScenarioStep,
};
use homenode_core::topology::{Cpu, Link, Machine, Medium, Node, Zone, ZoneKind};
use homenode_core::units::{CpuId, NodeId, Pages, Picos};
use homenode_sim::{Setup, Simulation};
use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// No stable node.
const NONE: u32 = u32::MAX;

/// Pages as columns, by frame; one address space maps them.
struct Columns {
    /// The frame of each address.
    frame: Vec<u32>,
    content: Vec<u32>,
    stable: Vec<u32>,
    mapcount: Vec<u32>,
    /// Added to every checksum: a new one makes all pages changed.
    round: u32,
    /// Comparisons really made, to hold the rules' own count against.
    compared: Cell<u64>,
}

impl Columns {
    /// `distinct` contents over so many pages.
    fn new(pages: u64, distinct: u64) -> Self {
        Self {
            frame: (0..pages as u32).collect(),
            content: (0..pages).map(|p| mixed((p % distinct) as u32)).collect(),
            stable: vec![NONE; pages as usize],
            mapcount: vec![1; pages as usize],
            round: 0,
            compared: Cell::new(0),
        }
    }
}

/// A bijection of 32 bits, so that contents are in no order of addresses.
fn mixed(x: u32) -> u32 {
    let x = (x ^ x >> 16).wrapping_mul(0x7feb_352d);
    let x = (x ^ x >> 15).wrapping_mul(0x846c_a68b);
    x ^ x >> 16
}

impl Memory for Columns {
    fn next(&mut self, _: MmId, from: Vpn) -> Next {
        match self.frame.get(from.0 as usize) {
            Some(&f) => Next::Page { vpn: from, page: Page(f.into()) },
            None => Next::End { mergeable: true },
        }
    }
    fn lookup(&self, _: MmId, vpn: Vpn) -> Option<Page> {
        self.frame.get(vpn.0 as usize).map(|&f| Page(f.into()))
    }
    fn compare(&self, a: Page, b: Page) -> Ordering {
        self.compared.set(self.compared.get() + 1);
        self.content[a.0 as usize].cmp(&self.content[b.0 as usize])
    }
    fn checksum(&self, page: Page) -> u32 {
        self.content[page.0 as usize] ^ self.round
    }
    fn zero_checksum(&self) -> u32 {
        0
    }
    fn node(&self, _: Page) -> NodeId {
        NodeId(0)
    }
    fn stable(&self, page: Page) -> Option<StableId> {
        Some(self.stable[page.0 as usize]).filter(|&n| n != NONE).map(StableId)
    }
    fn keeps(&self, page: Page, node: StableId) -> bool {
        self.stable[page.0 as usize] == node.0
    }
    fn mapcount(&self, page: Page) -> u32 {
        self.mapcount[page.0 as usize]
    }
    fn freeze(&mut self, _: MmId, _: Vpn, page: Page) -> Result<Page, Refusal> {
        Ok(page)
    }
    fn set_stable(&mut self, page: Page, node: Option<StableId>) {
        self.stable[page.0 as usize] = node.map_or(NONE, |n| n.0);
    }
    fn replace(&mut self, _: MmId, vpn: Vpn, page: Page, with: Page) -> Result<(), Refusal> {
        // The look that the rules count as a verification.
        if self.compare(page, with) != Ordering::Equal {
            return Err(Refusal::Changed);
        }
        self.frame[vpn.0 as usize] = with.0 as u32;
        self.mapcount[page.0 as usize] -= 1;
        self.mapcount[with.0 as usize] += 1;
        Ok(())
    }
    fn map_zero(&mut self, _: MmId, _: Vpn, _: Page) -> Result<(), Refusal> {
        Err(Refusal::Gone)
    }
    fn break_cow(&mut self, _: MmId, _: Vpn) -> Result<(), BreakError> {
        Err(BreakError::NoMemory)
    }
}

/// Nanoseconds on a CPU so far; 0 where the kernel keeps no account.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// What `f` returns, and its seconds on a CPU. The account is brought up to date once a
/// tick, so what takes less than some of them is timed by the clock.
fn timed<T>(f: impl FnOnce() -> T) -> (T, f64) {
    let (start, before) = (Instant::now(), cpu_ns());
    let value = f();
    let (clock, cpu) = (start.elapsed().as_secs_f64(), (cpu_ns() - before) as f64 / 1e9);
    (value, if clock < 0.1 || cpu == 0.0 { clock } else { cpu })
}

const MM: MmId = MmId(0);

/// Merging on, one address space registered. Smart scan would leave out what is to be
/// measured; chains would be made of contents that hundreds share.
fn ksm(mem: &mut Columns) -> Ksm {
    let mut ksm = Ksm::new(KernelVersion::V6_12, 1);
    for (name, value) in [("smart_scan", "0"), ("max_page_sharing", "65536"), ("run", "1")] {
        ksm.write(mem, name, value).unwrap_or_else(|e| panic!("{name}: {e:?}"));
    }
    ksm.enter(MM);
    ksm
}

/// Visits `n` pages, or to the end of the pass; how many, and in which outcome all of
/// them ended, if it is one.
fn visit(ksm: &mut Ksm, mem: &mut Columns, n: u64, is: fn(&Outcome) -> bool) -> (u64, u64) {
    let now = Now::default();
    let (mut done, mut as_meant) = (0, 0);
    while done < n {
        match ksm.step(mem, &now) {
            Step::Page(visit) => {
                done += 1;
                as_meant += u64::from(is(&visit.outcome));
            }
            Step::PassEnded | Step::Idle => break,
        }
    }
    (done, as_meant)
}

/// To the end of the pass.
fn pass(ksm: &mut Ksm, mem: &mut Columns) {
    visit(ksm, mem, u64::MAX, |_| true);
}

fn list(seconds: &[f64]) -> String {
    let all: Vec<String> = seconds.iter().map(|s| format!("{s:.6}")).collect();
    format!("[{}]", all.join(","))
}

/// * `n` – what was done in each stretch; `made` – comparisons in all of them.
fn report(kind: &str, ksm: &Ksm, mem: &Columns, n: u64, seconds: &[f64], made: u64) {
    let e = ksm.effort();
    println!(
        "{{\"kind\":\"{kind}\",\"n\":{n},\"seconds\":{},\"comparisons\":{made},\
         \"counted\":{},\"compared\":{},\"items\":{},\"bytes\":{}}}",
        list(seconds),
        e.stable_comparisons + e.unstable_comparisons + e.verifications,
        mem.compared.get(),
        ksm.counters().rmap_items,
        ksm.bytes(),
    );
}

fn changed(pages: u64, stretches: u64) {
    let mut mem = Columns::new(pages, pages);
    let mut ksm = ksm(&mut mem);
    // Items are made in the first pass; in each of the next every checksum is another one.
    pass(&mut ksm, &mut mem);
    let changed = |o: &Outcome| *o == Outcome::Volatile(Why::Changed);
    let seconds: Vec<f64> = (0..stretches)
        .map(|_| {
            mem.round = mem.round.wrapping_add(0x5555_5555);
            let (visits, seconds) = timed(|| visit(&mut ksm, &mut mem, pages, changed));
            assert_eq!(visits, (pages, pages), "every visit ends at the gate");
            pass(&mut ksm, &mut mem);
            seconds
        })
        .collect();
    report("changed", &ksm, &mem, pages, &seconds, 0);
}

fn merged(pages: u64, stretches: u64) {
    // Few contents, so that making the merged pages takes no time; a visit of one
    // doesn't depend on how many there are.
    let mut mem = Columns::new(pages, (pages / 65_536).max(1));
    let mut ksm = ksm(&mut mem);
    for _ in 0..3 {
        pass(&mut ksm, &mut mem);
    }
    let seconds: Vec<f64> = (0..stretches)
        .map(|_| {
            let in_place = |o: &Outcome| *o == Outcome::InPlace;
            let (visits, seconds) = timed(|| visit(&mut ksm, &mut mem, pages, in_place));
            assert_eq!(visits, (pages, pages), "every visit finds a merged page in its place");
            pass(&mut ksm, &mut mem);
            seconds
        })
        .collect();
    report("merged", &ksm, &mem, pages, &seconds, 0);
}

fn search(pages: u64, n: u64, stretches: u64) {
    let all = pages + n * stretches;
    let mut mem = Columns::new(all, all);
    let mut ksm = ksm(&mut mem);
    pass(&mut ksm, &mut mem);
    // The tree is filled, then measured while it grows by the last pages.
    visit(&mut ksm, &mut mem, pages, |_| true);
    assert_eq!(ksm.counters().pages_unshared, pages, "all of them are in the tree");
    let before = ksm.effort().unstable_comparisons;
    let seconds: Vec<f64> = (0..stretches)
        .map(|_| {
            let inserted = |o: &Outcome| *o == Outcome::Inserted;
            let (visits, seconds) = timed(|| visit(&mut ksm, &mut mem, n, inserted));
            assert_eq!(visits, (n, n), "every search ends at a free place");
            seconds
        })
        .collect();
    let made = ksm.effort().unstable_comparisons - before;
    report("search", &ksm, &mem, n, &seconds, made);
}

fn limit(pages: u64, n: u64, stretches: u64) {
    let all = pages + n * stretches;
    let contents = Columns::new(all, all).content;
    let (held, asked) = contents.split_at(pages as usize);
    let mut sorted = held.to_vec();
    sorted.sort_unstable();
    // Filled in the order in which the pages come, as by ksmd.
    let mut set: BTreeSet<u32> = BTreeSet::new();
    set.extend(held.iter().copied());
    let (mut array, mut btree, mut check) = (Vec::new(), Vec::new(), 0);
    for asked in asked.chunks(n as usize) {
        let (places, seconds) =
            timed(|| asked.iter().map(|c| sorted.partition_point(|x| x < c)).sum::<usize>());
        array.push(seconds);
        check += places;
        let (new, seconds) = timed(|| asked.iter().filter(|&&c| set.insert(c)).count());
        assert_eq!(new, asked.len(), "all contents differ");
        btree.push(seconds);
    }
    println!(
        "{{\"n\":{n},\"array\":{},\"btree\":{},\"check\":{check}}}",
        list(&array),
        list(&btree)
    );
}

/// One node that holds everything, a CPU for each guest and one more.
fn machine(pages: u64) -> Machine {
    let c = |v| Constant::assumed(v, "the benchmark's machine: round figures of DRAM");
    Machine {
        name: "bench".into(),
        about: "one node".into(),
        nodes: vec![Node {
            id: NodeId(0),
            medium: Medium::Dram,
            zones: vec![Zone {
                kind: ZoneKind::Normal,
                managed: Pages(pages + pages / 16 + 65_536),
            }],
        }],
        cpus: (0..=GUESTS)
            .map(|i| Cpu { id: CpuId(i), node: NodeId(0), core: i, llc: 0 })
            .collect(),
        caches: Vec::new(),
        distances: vec![vec![10]],
        links: vec![Link {
            from: NodeId(0),
            to: NodeId(0),
            read_latency: c(100_000),
            write_latency: c(100_000),
            read_bandwidth: c(100_000),
            write_bandwidth: c(100_000),
        }],
        costs: Costs::default(),
    }
}

/// Guests of the simulated kernel.
const GUESTS: u32 = 8;

fn guest(i: u32, pages: u64) -> Process {
    let map = |name: &str, pages, content| Map {
        name: name.to_owned(),
        size: Pages(pages).bytes(),
        file: false,
        shared: false,
        read_only: false,
        huge: false,
        content,
        mergeable: true,
        policy: Policy::Default,
    };
    let image = Content::Image { name: "image".into(), distinct: None };
    let touch = |name: &str| ScenarioStep::Touch { map: name.to_owned() };
    let part = (pages / 10).max(1);
    Process {
        name: format!("guest{i}"),
        cpus: vec![CpuId(i)],
        start: Picos(0),
        policy: Policy::Default,
        memory_merge: false,
        maps: vec![map("image", part, image), map("own", pages - part, Content::Own)],
        steps: vec![touch("image"), touch("own"), ScenarioStep::Sleep(Picos(u64::MAX / 4))],
    }
}

/// Kilobytes that the process has held at most; 0 where the kernel doesn't tell.
fn peak_kb() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn kernel(pages: u64) {
    let each = (pages / u64::from(GUESTS)).max(2);
    let scenario = Scenario {
        name: "guests".into(),
        about: String::new(),
        machine: String::new(),
        knobs: Vec::new(),
        ksm: [("sleep_millisecs", "0"), ("pages_to_scan", "10000")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        model: Model::default(),
        duration: None,
        seed: 1,
        processes: (0..GUESTS).map(|i| guest(i, each)).collect(),
        // ksmd begins once everything is there.
        actions: vec![Action {
            at: Picos(each * 1_000_000),
            who: Rights::Root,
            what: FileOp::Write { path: "/sys/kernel/mm/ksm/run".into(), text: "1".into() },
            expect: None,
        }],
    };
    let machine = machine(pages);
    let mut sim =
        Simulation::new(&machine, &scenario, &Setup::of(&scenario)).expect("a simulation");
    let ((), touched) = timed(|| sim.run_until(each * 1_000_000));
    let pass = |sim: &Simulation| sim.merging().expect("contents are kept").counters;
    let ((), visited) = timed(|| {
        while pass(&sim).full_scans < 1 {
            let until = sim.now() + 10_000_000_000;
            sim.run_until(until);
        }
    });
    let counters = pass(&sim);
    assert_eq!(counters.rmap_items, each * u64::from(GUESTS), "every page has an item");
    println!(
        "{{\"n\":{},\"touched\":[{touched:.6}],\"seconds\":[{visited:.6}],\"peak_kb\":{}}}",
        counters.pages_scanned,
        peak_kb()
    );
}

fn main() {
    let mut words = std::env::args().skip(1);
    let what = words.next().unwrap_or_default();
    let mut numbers: BTreeMap<String, u64> = BTreeMap::new();
    while let Some(w) = words.next() {
        let value = words.next().unwrap_or_default();
        let number = value.parse().unwrap_or_else(|_| panic!("{w} takes a number, not {value:?}"));
        numbers.insert(w.trim_start_matches("--").to_owned(), number);
    }
    let number = |key: &str, default: u64| numbers.get(key).copied().unwrap_or(default).max(1);
    let pages = number("pages", 1 << 20);
    let n = number("n", pages / 16);
    let stretches = number("stretches", 1);
    match what.as_str() {
        "changed" => changed(pages, stretches),
        "merged" => merged(pages, stretches),
        "search" => search(pages, n, stretches),
        "kernel" => kernel(pages),
        "limit" => limit(pages, n, stretches),
        _ => {
            eprintln!("mergeloop: changed, merged, search, kernel or limit");
            std::process::exit(2);
        }
    }
}
