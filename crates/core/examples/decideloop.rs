//! What deciding costs per observation, for `cargo xtask bench decide-speed`.
//!
//! ```text
//! decideloop --stream uniform|skewed|regions --pages P --rate R --seconds S
//! ```
//!
//! The engine through [`Policy`], with its default settings, beside a small machine that obeys: one process
//! of P pages, a fast node for a quarter of them, R observations a second in batches of a tenth, for S
//! seconds after 30 that are not counted, in which a census is answered and averages fill. All time within
//! `handle` and `poll` counts, also that of zones, processes and answers; no time of the machine does.
//! The peer takes in the same observations: it adds each to a flat array of chunks of 2 MiB and does no more.
//!
//! The last line is one object of JSON. `hash` is of all orders: the same stream gives the same orders.

#![allow(clippy::print_stdout, reason = "it prints what it measures")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use homenode_core::costs::{Constant, Cost, Costs};
use homenode_core::engine::{Engine, Settings};
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::Policy;
use homenode_core::policy::extents::{BLOCK_PAGES, Extents};
use homenode_core::policy::order::{Act, Fails, Order};
use homenode_core::policy::seen::{Seen, Source, Span, Who, ZoneSeen};
use homenode_core::splitmix::SplitMix;
use homenode_core::tiering::watermarks::ZoneMarks;
use homenode_core::topology::{Cpu, Hardware, Link, Medium, Node, Zone, ZoneKind};
use homenode_core::units::{CpuId, NodeId, Pages, Picos};

/// Counts what is allocated: bytes that are held, and calls.
struct Counting;

static HELD: AtomicI64 = AtomicI64::new(0);
static MOST: AtomicI64 = AtomicI64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size() as i64;
        let held = HELD.fetch_add(size, Relaxed) + size;
        if held > MOST.load(Relaxed) {
            MOST.store(held, Relaxed);
        }
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

const FAST: NodeId = NodeId(0);
const SLOW: NodeId = NodeId(1);
const WHO: Who = Who { pid: 7, start: 100 };
const CHUNK_PAGES: u64 = 512;
/// Seconds before anything is counted.
const WARM: u64 = 30;
/// Accesses that a sample stands for, as homenode samples by default.
const PERIOD: u64 = 10_007;
/// As homenode has DAMON: 20 checks in 100 ms.
const CHECKS: u32 = 20;
const EVERY: Picos = Picos::from_ms(5);
const BATCH: Picos = Picos::from_ms(100);
const BATCHES_A_SECOND: u64 = 10;

/// One socket with DRAM and an expander, of so many pages.
fn hardware(pages: u64) -> Hardware {
    let c = |v| Constant::assumed(v, "the benchmark's machine: round figures of DRAM and CXL");
    let node = |id, medium, pages| Node {
        id,
        medium,
        zones: vec![Zone { kind: ZoneKind::Normal, managed: Pages(pages) }],
    };
    let link = |from, to| {
        let (ns, mbps) = if to == FAST { (90, 20_000) } else { (275, 10_000) };
        Link {
            from,
            to,
            read_latency: c(ns * 1000),
            write_latency: c(ns * 1000),
            read_bandwidth: c(mbps),
            write_bandwidth: c(mbps),
        }
    };
    Hardware {
        name: "bench".into(),
        about: "DRAM for a quarter of what a process has, and an expander".into(),
        nodes: vec![node(FAST, Medium::Dram, pages / 4), node(SLOW, Medium::Cxl, pages * 2)],
        cpus: vec![Cpu { id: CpuId(0), node: FAST, core: 0, llc: 0, capacity: 1024, mhz: None }],
        caches: Vec::new(),
        distances: vec![vec![10, 14], vec![14, 10]],
        links: vec![link(FAST, FAST), link(FAST, SLOW), link(SLOW, FAST), link(SLOW, SLOW)],
        idle_states: Vec::new(),
        curves: Vec::new(),
        loaded: Vec::new(),
        defaults: None,
        costs: Costs::default(),
    }
}

/// Where pages are: a bit for each, set on the fast node.
struct Machine {
    fast: Vec<u64>,
    in_fast: u64,
    pages: u64,
    per_page: u64,
    hash: DefaultHasher,
    moved: u64,
}

impl Machine {
    fn new(hardware: &Hardware, pages: u64) -> Self {
        // The fast node is filled to what is kept free of it, from the first page on.
        let in_fast = (pages / 4 - pages / 4 / 20) / BLOCK_PAGES * BLOCK_PAGES;
        let mut fast = vec![0; (pages / BLOCK_PAGES) as usize];
        fast[..(in_fast / BLOCK_PAGES) as usize].fill(u64::MAX);
        let per_page = hardware.costs.get(Cost::MigratePage) + hardware.costs.get(Cost::PageCopy);
        Self { fast, in_fast, pages, per_page, hash: DefaultHasher::new(), moved: 0 }
    }

    /// What is seen of nodes and the process ten times a second.
    fn around(&self, now: Picos, out: &mut Vec<Seen>) {
        let node = |node, managed: u64, used: u64| {
            let marks = ZoneMarks {
                kind: ZoneKind::Normal,
                managed: Pages(managed),
                min: Pages(managed / 100),
                low: Pages(managed / 50),
                high: Pages(managed * 3 / 100),
                promo: Pages(managed / 25),
                reserve: Pages(0),
            };
            let zones = vec![ZoneSeen { free: Pages(managed - used), marks }];
            Seen::Node { node, zones, load: None, idle: None }
        };
        out.push(node(FAST, self.pages / 4, self.in_fast));
        out.push(node(SLOW, self.pages * 2, self.pages - self.in_fast));
        let (ran, resident) = (Picos(now.0 * 2), Pages(self.pages));
        out.push(Seen::Task { who: WHO, ran, node: Some(FAST), resident });
    }

    /// The part of a word that a span covers.
    fn mask(span: Span, word: u64) -> u64 {
        let (from, to) = (word * BLOCK_PAGES, (word + 1) * BLOCK_PAGES);
        let low = u64::MAX << (span.start.max(from) - from);
        let high = u64::MAX >> (to - span.end.min(to));
        low & high
    }
    fn words(span: Span) -> impl Iterator<Item = u64> {
        span.start / BLOCK_PAGES..span.end.div_ceil(BLOCK_PAGES)
    }
    /// Those of its spans that the process has.
    fn there(&self, span: Span) -> Span {
        Span { start: span.start.min(self.pages), end: span.end.min(self.pages) }
    }

    fn resident(span: Span, on: NodeId, pages: u64) -> Seen {
        Seen::Resident { who: WHO, span, on, pages: Pages(pages) }
    }

    fn look(&self, named: Span, out: &mut Vec<Seen>) -> u64 {
        let span = self.there(named);
        let fast: u64 = Self::words(span)
            .map(|w| u64::from((self.fast[w as usize] & Self::mask(span, w)).count_ones()))
            .sum();
        let slow = span.pages().0 - fast;
        let on = [(FAST, fast), (SLOW, slow)];
        out.extend(on.iter().filter(|o| o.1 > 0).map(|o| Self::resident(named, o.0, o.1)));
        if fast + slow == 0 {
            out.push(Self::resident(named, SLOW, 0));
        }
        named.pages().0
    }

    fn census(&self, out: &mut Vec<Seen>) -> u64 {
        let mut extents = Extents::default();
        for (i, &word) in self.fast.iter().enumerate() {
            let at = i as u64 * BLOCK_PAGES;
            match word {
                0 => extents.add(at, BLOCK_PAGES, SLOW),
                u64::MAX => extents.add(at, BLOCK_PAGES, FAST),
                _ => (0..BLOCK_PAGES).for_each(|b| {
                    extents.add(at + b, 1, if word >> b & 1 == 1 { FAST } else { SLOW });
                }),
            }
        }
        for (span, on) in extents.done() {
            out.extend(on.iter().map(|(node, pages)| Self::resident(span, *node, pages.0)));
        }
        self.pages
    }

    /// Carries an order out and answers it.
    fn obey(&mut self, order: &Order, out: &mut Vec<Seen>) {
        order.to_string().hash(&mut self.hash);
        let settings = Settings::default();
        let (tried, moved, each) = match &order.act {
            Act::Census { .. } => (self.census(out), 0, settings.count_page.0),
            Act::Look { spans, .. } => {
                (spans.iter().map(|s| self.look(*s, out)).sum(), 0, settings.look_page.0)
            }
            Act::Move { spans, to, .. } => {
                let n = spans.iter().map(|s| self.shift(*s, *to)).sum();
                (n, n, self.per_page)
            }
            Act::Watch { .. }
            | Act::Unwatch { .. }
            | Act::Split { .. }
            | Act::Affine { .. }
            | Act::SetKnob { .. } => (0, 0, 0),
        };
        self.moved += moved;
        out.push(Seen::Done {
            order: order.id,
            tried: Pages(tried),
            moved: Pages(moved),
            fails: Fails::default(),
            took: Picos(each * tried),
        });
    }

    /// Pages of a span that were on the other node and come to this one.
    fn shift(&mut self, span: Span, to: NodeId) -> u64 {
        let span = self.there(span);
        let mut n = 0;
        for w in Self::words(span) {
            let (word, mask) = (&mut self.fast[w as usize], Self::mask(span, w));
            let flips = if to == FAST { !*word & mask } else { *word & mask };
            *word ^= flips;
            n += u64::from(flips.count_ones());
        }
        self.in_fast = if to == FAST { self.in_fast + n } else { self.in_fast - n };
        n
    }
}

/// What is observed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    /// Samples, all pages alike.
    Uniform,
    /// Samples, by Zipf's law with exponent 1, hot pages scattered over all.
    Skewed,
    /// DAMON's regions: hot ones among cold, whose borders wander.
    Regions,
}

struct Observed {
    stream: Stream,
    pages: u64,
    /// Samples, or regions, of a batch.
    batch: u64,
    chance: SplitMix,
    /// Where regions end, rising, and how many of the checks find each accessed.
    regions: Vec<(u64, u64, u32)>,
}

impl Observed {
    fn new(stream: Stream, pages: u64, batch: u64) -> Self {
        let mut chance = SplitMix::new(1);
        let each = pages / batch;
        let regions = (0..batch).map(|i| {
            let end = if i + 1 == batch { pages } else { (i + 1) * each };
            // One of eight is hot.
            let hot = if chance.below(8) == 0 { 10 + chance.below(10) } else { chance.below(3) };
            (end, hot, 0)
        });
        let regions = regions.collect();
        Self { stream, pages, batch, chance, regions }
    }

    fn next(&mut self, out: &mut Vec<Seen>) {
        let pages = self.pages;
        if self.stream == Stream::Regions {
            return self.next_regions(out);
        }
        for _ in 0..self.batch {
            let vpn = match self.stream {
                Stream::Skewed => {
                    // As many accesses to the pages of each power of two of ranks.
                    let octave = 1 << self.chance.below(u64::from(pages.ilog2()));
                    let rank = octave + self.chance.below(octave);
                    // The number of pages is a power of two: an odd factor permutes them.
                    rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) & (pages - 1)
                }
                Stream::Uniform | Stream::Regions => self.chance.below(pages),
            };
            out.push(Seen::Sample { who: WHO, vpn, from: FAST, period: PERIOD });
        }
    }

    fn next_regions(&mut self, out: &mut Vec<Seen>) {
        let mut start = 0;
        let n = self.regions.len();
        for i in 0..n {
            let next = self.regions.get(i + 1).map(|r| r.0);
            let (end, hot, age) = &mut self.regions[i];
            // A border in ten moves, by up to a quarter of what is beside it, as splits and merges do.
            if let Some(next) = next.filter(|_| self.chance.below(10) == 0) {
                let (low, high) = (*end - (*end - start) / 4, *end + (next - *end) / 4);
                *end = low + self.chance.below(high - low + 1);
                *age = 0;
            }
            let noise = self.chance.below(3);
            let accessed = (*hot + noise).saturating_sub(1).min(u64::from(CHECKS)) as u32;
            out.push(Seen::Region {
                who: WHO,
                span: Span { start, end: *end },
                accessed,
                checks: CHECKS,
                every: EVERY,
                age: Picos(u64::from(*age) * BATCH.0),
            });
            *age += 1;
            start = *end;
        }
    }
}

/// The peer: counts the same observations.
fn count(chunks: &mut [u64], seen: &[Seen]) {
    for s in seen {
        match *s {
            Seen::Sample { vpn, period, .. } => chunks[(vpn / CHUNK_PAGES) as usize] += period,
            Seen::Region { span, accessed, .. } => {
                let (from, to) = (span.start / CHUNK_PAGES, span.end.div_ceil(CHUNK_PAGES));
                for c in &mut chunks[from as usize..to as usize] {
                    *c += u64::from(accessed);
                }
            }
            _ => {}
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let args: BTreeMap<&str, &str> = words
        .chunks(2)
        .filter_map(|w| Some((w[0].strip_prefix("--")?, w.get(1)?.as_str())))
        .collect();
    let num = |key: &str, default: u64| {
        args.get(key).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("--{key}: {v}")))
    };
    let name = args.get("stream").copied().unwrap_or("uniform");
    let stream = match name {
        "uniform" => Stream::Uniform,
        "skewed" => Stream::Skewed,
        "regions" => Stream::Regions,
        other => panic!("--stream: {other}: uniform, skewed or regions"),
    };
    let pages = num("pages", 1 << 18);
    assert!(pages.is_power_of_two() && pages >= 1 << 16, "--pages: a power of two, 65536 at least");
    let batch = num("rate", 10_000) / BATCHES_A_SECOND;
    assert!((1..=pages / 64).contains(&batch), "--rate: up to a sixth of the pages");
    let seconds = num("seconds", 30);

    let hardware = hardware(pages);
    let mut machine = Machine::new(&hardware, pages);
    let source = if stream == Stream::Regions { Source::Damon } else { Source::Pmu };
    let mut observed = Observed::new(stream, pages, batch);
    let mut chunks = vec![0u64; (pages / CHUNK_PAGES) as usize];
    let mut seen: Vec<Seen> = Vec::new();
    let mut answers: Vec<Seen> = Vec::new();
    let before = HELD.load(Relaxed);
    let settings = Settings::default();
    let mut engine = Engine::new(settings, &hardware, KernelVersion::V6_12, source, &[], 1 << 16);
    let own = HELD.load(Relaxed) - before;

    let (mut took, mut deciding, mut peer) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let (mut observations, mut others, mut calls, mut longest) = (0, 0, 0, Duration::ZERO);
    let (mut held, mut most, mut decided) = (0, 0, 0);
    for i in 0..(WARM + seconds) * BATCHES_A_SECOND {
        let counts = i >= WARM * BATCHES_A_SECOND;
        let now = Picos((i + 1) * BATCH.0);
        seen.clear();
        observed.next(&mut seen);
        let of_heat = seen.len() as u64;
        let begun = Instant::now();
        count(&mut chunks, &seen);
        let peer_took = begun.elapsed();
        machine.around(now, &mut seen);
        seen.append(&mut answers);

        let (decisions, allocated) = (engine.ledger().decisions, CALLS.load(Relaxed));
        let start = HELD.load(Relaxed);
        MOST.store(start, Relaxed);
        let begun = Instant::now();
        engine.handle(now, &seen);
        let mut spent = begun.elapsed();
        let (mut grown, peak) = (HELD.load(Relaxed) - start, MOST.load(Relaxed) - start);
        let allocated = CALLS.load(Relaxed) - allocated;
        loop {
            let begun = Instant::now();
            let order = engine.poll();
            spent += begun.elapsed();
            let Some(order) = order else { break };
            machine.obey(&order, &mut answers);
            // What it holds was the engine's.
            let before = HELD.load(Relaxed);
            drop(order);
            grown += HELD.load(Relaxed) - before;
        }
        most = most.max(held + peak);
        held += grown;
        if counts {
            took += spent;
            peer += peer_took;
            observations += of_heat;
            others += seen.len() as u64 - of_heat;
            calls += allocated;
            if engine.ledger().decisions > decisions {
                decided += 1;
                deciding += spent;
                longest = longest.max(spent);
            }
        }
    }
    black_box(&chunks);
    let (all, n) = (engine.ledger(), observations as f64);
    println!(
        "{{\"stream\":\"{name}\",\"pages\":{pages},\"observations\":{observations},\"others\":{others},\
         \"seconds\":{:.9},\"deciding_seconds\":{:.9},\"decisions\":{decided},\"longest_seconds\":{:.9},\
         \"peer_seconds\":{:.9},\"spans\":{},\"bytes\":{},\"most_bytes\":{},\"allocations\":{:.3},\
         \"debited_seconds\":{:.6},\"moved\":{},\"hash\":\"{:016x}\"}}",
        took.as_secs_f64(),
        deciding.as_secs_f64(),
        longest.as_secs_f64(),
        peer.as_secs_f64(),
        engine.stretches(WHO).count(),
        held + own,
        most + own,
        calls as f64 / n,
        (all.observing.0 + all.deciding.0) as f64 / 1e12,
        machine.moved,
        machine.hash.finish(),
    );
}
