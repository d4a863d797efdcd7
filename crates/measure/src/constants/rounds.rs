//! The rounds: what is measured when, on which memory, for how long.

use super::calls::{self, Call};
use super::chase::{Chain, LINE, Stride, WIDTHS};
use super::curves::{self, Sizes};
use super::flush::{self, Flush};
use super::kernel::{self, Batch, Compactor, Scanner};
use super::overlap::{DISTANCES, mean_told_update_time, mean_update_time, turn_time};
use super::region::{PageKind, Region};
use super::stats::{Series, per_operation, shuffled, timed};
use super::stream::{self, Flow, bandwidth};
use super::wake::{self, Hop};
use super::{MeasureError, Options, Progress, cpus, lines, looks};
use homenode_core::splitmix::SplitMix;
use homenode_core::topology::Node;
use homenode_core::units::{CpuId, NodeId};
use homenode_live::sysfs::{CacheShape, Topology};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ptr;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// Smallest buffer that still tells something about a cache.
const BUFFER_MIN: usize = 4 * MIB;
/// Buffers that are wanted even where caches look small: a virtual machine's
/// sysfs may show less cache than there is.
const BUFFER_WANTED: usize = 256 * MIB;
/// Largest buffer that curves end with.
const WIDEST: usize = 768 * MIB;
/// Pages that one batch of faults touches: 16 MiB, too much for the caches
/// nearest to the core, so that zeroing costs what it costs in real programs.
const FAULT_BYTES: usize = 16 * MIB;
/// Memory that is fragmented for compaction: its work on our pages must
/// outweigh its look at all others.
const COMPACT_BYTES: usize = 256 * MIB;
/// Pages that one batch moves between nodes.
const MIGRATE_PAGES: usize = 2048;
/// Longest that one compaction may take.
const COMPACT_LIMIT: Duration = Duration::from_secs(2);

/// Slots in milliseconds at the default budget; a round holds one of each.
mod slot {
    pub(super) const WALK: u64 = 200;
    pub(super) const STORE: u64 = 150;
    pub(super) const STREAM: u64 = 200;
    pub(super) const STREAM_ONE: u64 = 75;
    pub(super) const LINK: u64 = 2 * WALK + STORE + 2 * STREAM + 2 * STREAM_ONE;
    pub(super) const SWEEP_POINT: u64 = 10;
    pub(super) const TLB_POINT: u64 = 6;
    pub(super) const WIDTH: u64 = 30;
    /// For updates, and for those whose address is loaded.
    pub(super) const UPDATE: u64 = 60;
    pub(super) const TURN: u64 = 12;
    /// For each footprint of streams and of updates.
    pub(super) const FOOTPRINT: u64 = 8;
    pub(super) const NEAR: u64 = 20;
    pub(super) const COPY: u64 = 80;
    pub(super) const FAULT: u64 = 80;
    pub(super) const ENTRY: u64 = 40;
    pub(super) const MIGRATE: u64 = 250;
    pub(super) const CLOCK: u64 = 30;
    /// For each gap; the longest takes some more.
    pub(super) const WAKE: u64 = 15;
    /// For each kind of call.
    pub(super) const CALL: u64 = 5;
    pub(super) const TICK: u64 = 60;
    pub(super) const LINES: u64 = 20;
    /// For each kind of look.
    pub(super) const LOOK: u64 = 10;
    /// All that only the home node's rounds hold, roughly.
    pub(super) const HOME: u64 = 3_010;
}

/// A node whose CPUs we may use.
struct Initiator {
    node: NodeId,
    cpus: Vec<CpuId>,
}

/// Samples of one link. Latencies in picoseconds, bandwidths in MB/s.
#[derive(Default)]
pub(super) struct LinkSeries {
    pub(super) load_huge: Series,
    pub(super) load_base: Series,
    pub(super) store: Series,
    pub(super) read: Series,
    pub(super) write: Series,
    pub(super) read_one: Series,
    pub(super) write_one: Series,
    pub(super) threads: usize,
    pub(super) cpu: Option<CpuId>,
    /// Bytes that the walks went over, and that the streams went over.
    pub(super) walked: usize,
    pub(super) streamed: usize,
    /// Whether the walk in huge pages really was in huge pages.
    pub(super) huge: bool,
}

/// What a kernel operation took, or why it took nothing.
#[derive(Default)]
pub(super) struct Kernel {
    pub(super) series: Series,
    pub(super) refusal: Option<String>,
}

impl Kernel {
    /// Nothing was tried.
    pub(super) const fn none() -> Self {
        Self { series: Series::none(), refusal: None }
    }
    /// Takes one batch, whatever became of those before.
    fn attempt(&mut self, batch: impl FnOnce() -> Batch) {
        match batch() {
            Ok(done) => {
                let mut done = Some(done);
                self.series.push(per_operation(Duration::ZERO, || done.take()));
            }
            Err(why) => self.refusal = Some(why),
        }
    }

    /// Repeats `batch` for a slot. After a refusal it is not tried again.
    fn round(&mut self, slot: Duration, mut batch: impl FnMut() -> Batch) {
        if self.refusal.is_some() {
            return;
        }
        let mut refusal = None;
        let sample = per_operation(slot, || batch().map_err(|e| refusal = Some(e)).ok());
        self.series.push(sample);
        if self.series.is_empty() {
            self.refusal = refusal;
        }
    }
}

/// How pages were moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Migration {
    Between(NodeId, NodeId),
    Compaction(&'static str),
}

/// Wake-ups after one gap, in picoseconds.
#[derive(Default)]
pub(super) struct Wakes {
    pub(super) took: Series,
    /// What of that is the woken task's processor time, in thousandths.
    pub(super) booked: Series,
    /// What the call takes of the waker.
    pub(super) call: Series,
}

impl Wakes {
    fn push(&mut self, Hop { took, booked, call }: Hop) {
        self.took.push(Some(took));
        self.call.push(Some(call));
        self.booked.push(Some(booked * 1000.0 / took));
    }
}

/// All samples of a run.
#[derive(Default)]
pub(super) struct Samples {
    pub(super) took: Duration,
    pub(super) rounds: usize,
    pub(super) links: BTreeMap<(NodeId, NodeId), LinkSeries>,
    /// The link on which everything that belongs to no pair was taken.
    pub(super) home: Option<(NodeId, NodeId)>,
    /// Walks over sizes in bytes.
    pub(super) sweep: Sizes,
    /// What a line of a stream and an update take over sizes in bytes.
    pub(super) streams: Sizes,
    pub(super) updates: Sizes,
    /// Walks over pages: the walk in 4 KiB pages less the one in huge pages.
    pub(super) tlb: BTreeMap<usize, Series>,
    /// Load and owning load of a line in the first cache.
    pub(super) near_load: Series,
    pub(super) near_store: Series,
    /// Time of a load among `n` walks, less than one latency.
    pub(super) widths: BTreeMap<usize, Series>,
    /// Time of an independent update.
    pub(super) update: Series,
    /// The same where the address that is stored to was loaded.
    pub(super) told: Series,
    /// Time of a turn over instructions between its loads.
    pub(super) turns: BTreeMap<u64, Series>,
    pub(super) copy: Series,
    pub(super) first_touch: Kernel,
    pub(super) protect_fault: Kernel,
    pub(super) scan: Kernel,
    pub(super) scan_method: &'static str,
    pub(super) mark: Kernel,
    pub(super) age: Kernel,
    pub(super) migrate: Kernel,
    pub(super) migration: Option<Migration>,
    pub(super) add: Series,
    /// Wake-ups on another CPU, by how long that was idle in microseconds; why there are none.
    pub(super) wakes: BTreeMap<u64, Wakes>,
    pub(super) wake_refusal: Option<String>,
    pub(super) calls: BTreeMap<Call, Kernel>,
    /// Looks at others, and a page's checksum.
    pub(super) queries: Kernel,
    pub(super) process: Kernel,
    pub(super) zones: Kernel,
    pub(super) checksums: Kernel,
    pub(super) fork: Kernel,
    pub(super) fork_and_end: Kernel,
    pub(super) fork_and_exec: Kernel,
    pub(super) fork_of_maps: Kernel,
    pub(super) fork_and_end_of_maps: Kernel,
    pub(super) tick: Series,
    /// A statement of statistics, and what a line of them takes that moves; why it was not taken.
    pub(super) statement: Series,
    pub(super) line: Series,
    pub(super) line_refusal: Option<String>,
    /// What a remote flush takes of who asks and of who is asked; why it was not taken.
    pub(super) flush: [Series; 2],
    pub(super) flush_refusal: Option<String>,
    /// What sending and receiving take longer between two CPUs; why it was not taken.
    pub(super) far: [Series; 2],
    pub(super) far_refusal: Option<String>,
    pub(super) notes: Vec<String>,
}

/// Where in the sweep a cache's latency is read: well inside it, and well
/// outside the one before. Half of the cache nearest to the core; a quarter of
/// the others: pages that fall into the same sets push one another out of a
/// fuller one, and of the last level a virtual machine may own a part only.
pub(super) fn sweep_point(caches: &[CacheShape], level: u8) -> Option<usize> {
    let i = caches.iter().position(|c| c.level == level)?;
    let size = caches[i].size.0 as usize;
    let inner = i.checked_sub(1).map_or(0, |j| caches[j].size.0 as usize);
    let point = if i > 0 { (size / 4).max((4 * inner).min(size / 2)) } else { size / 2 };
    Some((point / LINE * LINE).max(2 * LINE))
}

/// Sizes of the sweep: three an octave from 8 KiB to twice the last level, and
/// the points at which latencies are read.
fn sweep_sizes(caches: &[CacheShape], largest: usize, coarse: bool) -> BTreeSet<usize> {
    let last = caches.iter().map(|c| c.size.0 as usize).max().unwrap_or(16 * MIB);
    let end = (2 * last).min(largest);
    let mut sizes: BTreeSet<usize> =
        caches.iter().filter_map(|c| sweep_point(caches, c.level)).collect();
    let mut octave = 8 << 10;
    while octave <= end {
        let steps: &[usize] = if coarse { &[8] } else { &[8, 10, 13] };
        sizes.extend(steps.iter().map(|s| octave / 8 * s));
        octave *= 2;
    }
    sizes.retain(|&s| s <= end);
    if !coarse {
        sizes.extend(curves::beyond(caches).iter().filter(|&&s| s <= largest));
    }
    sizes
}

/// Numbers of pages at which the TLB's reach is tried. Beyond half of what the
/// second cache holds lines, misses there would look like misses of the TLB.
fn tlb_pages(caches: &[CacheShape], coarse: bool) -> Vec<usize> {
    let second = caches.iter().find(|c| c.level == 2).map_or(MIB, |c| c.size.0 as usize);
    let end = (second / LINE / 2).clamp(6_144, 16_384);
    let all = [
        128, 256, 384, 512, 768, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096, 5120, 6144,
        8192, 12_288, 16_384,
    ];
    let step = if coarse { 4 } else { 1 };
    all.into_iter().filter(|&n| n <= end).rev().step_by(step).collect()
}

/// Nodes whose CPUs we may use. Where the system does not tell what is allowed,
/// everything counts as allowed.
fn initiators(topology: &Topology) -> Vec<Initiator> {
    let allowed = cpus::allowed();
    let may = |c: CpuId| allowed.is_empty() || allowed.binary_search(&c).is_ok();
    let of = |n: &Node| {
        let own = topology.cpus.iter().filter(|c| c.node == n.id && may(c.id));
        Initiator { node: n.id, cpus: own.map(|c| c.id).collect() }
    };
    topology.nodes.iter().map(of).filter(|i| !i.cpus.is_empty()).collect()
}

/// Sizes of the buffers for walks and for streams.
fn buffer_sizes(options: &Options, topology: &Topology) -> (usize, usize) {
    let llc = topology.caches.iter().map(|c| c.size.0 as usize).max().unwrap_or(32 * MIB);
    let per_node = topology.nodes.iter().map(|n| {
        let own = topology.cpus.iter().filter(|c| c.node == n.id);
        own.map(|c| c.llc).collect::<BTreeSet<_>>().len()
    });
    let llcs = per_node.max().unwrap_or(1).max(1);
    let max = (options.buffer_max.0 as usize).max(BUFFER_MIN);
    // Three large buffers at once, and never more than a quarter of what is left.
    let left = kernel::available_bytes().map_or(usize::MAX, |b| b as usize / 12);
    let fit = |wanted: usize| wanted.max(BUFFER_WANTED).min(max).min(left).max(BUFFER_MIN);
    (fit(4 * llc), fit(2 * llc * llcs))
}

/// Size of the buffer with which curves end, less than the 1 GiB that the truth check registers; `None`
/// where the others are as large.
fn widest(options: &Options, others: usize) -> Option<usize> {
    let left = kernel::available_bytes().map_or(usize::MAX, |b| b as usize / 12);
    let wide = (3 * others).min(WIDEST).min(options.buffer_max.0 as usize).min(left);
    (wide >= 2 * others).then_some(wide / (2 * MIB) * (2 * MIB))
}

/// Sizes in bytes over which [`super::measure`] reads, walks or writes on such a machine: what
/// a check of its figures must not use again.
pub fn sizes_used(options: &Options, topology: &Topology) -> BTreeSet<u64> {
    let (walked, streamed) = buffer_sizes(options, topology);
    let coarse = options.buffer_max.0 < BUFFER_WANTED as u64;
    let mut all = sweep_sizes(&topology.caches, streamed, coarse);
    let widest = widest(options, walked.max(streamed));
    all.extend(widest);
    all.extend(curves::footprints(&topology.caches, streamed, coarse));
    all.extend([walked, streamed, FAULT_BYTES, COMPACT_BYTES, 128 * LINE]);
    all.extend(tlb_pages(&topology.caches, coarse).into_iter().flat_map(|n| [n * 4096, n * LINE]));
    all.into_iter().map(|s| s as u64).collect()
}

/// Maps and fills a buffer, halving its size until the system gives it.
fn buffer(mut len: usize, kind: PageKind, node: Option<NodeId>) -> io::Result<Region> {
    loop {
        match Region::map(len, kind, node, false) {
            Ok(region) => {
                region.touch(region.pages());
                return Ok(region);
            }
            Err(e) if len <= BUFFER_MIN => return Err(e),
            Err(_) => len /= 2,
        }
    }
}

/// Reports how far the run is, by the weight of what is done.
struct Meter<'a> {
    report: &'a mut dyn FnMut(Progress),
    done: u64,
    total: u64,
}

impl Meter<'_> {
    fn step(&mut self, what: &'static str, weight: u64) {
        let done_permille = (self.done * 1000 / self.total.max(1)).min(999) as u16;
        (self.report)(Progress { done_permille, what });
        self.done += weight;
    }
}

/// Takes all samples.
pub(super) fn run(
    options: &Options,
    topology: &Topology,
    progress: &mut dyn FnMut(Progress),
) -> Result<Samples, MeasureError> {
    let began = Instant::now();
    let initiators = initiators(topology);
    let first = initiators.first().ok_or(MeasureError::NoCpu)?;
    let home_from = first.node;
    let mut targets: Vec<NodeId> =
        topology.nodes.iter().filter(|n| !n.zones.is_empty()).map(|n| n.id).collect();
    // The nearest memory first: what belongs to no pair is measured there.
    let place = |id: NodeId| topology.nodes.iter().position(|n: &Node| n.id == id).unwrap_or(0);
    targets.sort_by_key(|&t| (topology.distances[place(home_from)][place(t)], t));
    let bound = targets.len() > 1;

    let rounds = options.rounds.max(1) as usize;
    let weight = slot::HOME + slot::LINK * (initiators.len() * targets.len()) as u64;
    let total = weight * rounds as u64;
    // A share of the time goes to filling buffers and building chains.
    let scale = options.budget.as_secs_f64() * 0.9 / (total as f64 / 1000.0);
    let clock = Clock { scale: scale.min(4.0), stop: began + options.budget.mul_f64(1.5) };
    let home = targets.first().map(|&t| (home_from, t));
    let mut course = Course {
        clock,
        meter: Meter { report: progress, done: 0, total },
        random: SplitMix::new(0x686f_6d65_6e6f_6465),
        samples: Samples { rounds, home, ..Samples::default() },
    };
    let (walked, streamed) = buffer_sizes(options, topology);
    let coarse = options.buffer_max.0 < BUFFER_WANTED as u64;

    // Before there are buffers: a fork copies their entries.
    course.meter.step("forks", 0);
    cpus::pin(first.cpus[0]);
    for _ in 0..rounds {
        let s = &mut course.samples;
        s.fork.round(Duration::ZERO, calls::fork);
        s.fork_and_end.round(Duration::ZERO, calls::fork_and_end);
        s.fork_and_exec.round(Duration::ZERO, calls::fork_and_exec);
        s.fork_of_maps.round(Duration::ZERO, calls::fork_of_maps);
        s.fork_and_end_of_maps.round(Duration::ZERO, calls::fork_and_end_of_maps);
    }

    for (i, &to) in targets.iter().enumerate() {
        let is_home = i == 0;
        course.meter.step("filling buffers", 0);
        cpus::pin(first.cpus[0]);
        let node = bound.then_some(to);
        let map = || -> io::Result<[Region; 3]> {
            Ok([
                buffer(walked, PageKind::Huge, node)?,
                buffer(walked, PageKind::Base, node)?,
                buffer(streamed, PageKind::Huge, node)?,
            ])
        };
        let regions = match map() {
            Ok(regions) => regions,
            Err(source) if is_home && !bound => {
                return Err(MeasureError::Memory { bytes: BUFFER_MIN, source });
            }
            Err(e) => {
                course.samples.notes.push(format!("no memory could be bound to node {to}: {e}"));
                continue;
            }
        };
        if bound && regions.iter().any(|r| misplaced(r, to)) {
            course.samples.notes.push(format!("pages bound to node {to} did not go there"));
            continue;
        }
        let [huge, base, stream] = &regions;
        let mut order = Vec::new();
        let mut link = LinkSet {
            huge: Chain::build(huge, Stride::Dense, usize::MAX, &mut course.random, &mut order),
            base: Chain::build(base, Stride::Dense, usize::MAX, &mut course.random, &mut order),
            stream,
            is_huge: huge.huge_bytes().is_some_and(|b| b >= huge.len() as u64 / 10 * 9),
            walked: huge.len().min(base.len()),
            to,
        };
        let mut bench = None;
        let mut wide = None;
        let wide_region = match widest(options, walked.max(streamed)) {
            Some(len) if is_home => buffer(len, PageKind::Huge, node).ok(),
            _ => None,
        };
        if let Some(region) = &wide_region {
            let (random, dense) = (&mut course.random, Stride::Dense);
            let chain = Chain::build(region, dense, usize::MAX, random, &mut order);
            wide = Some(Wide { region, chain });
        }
        if is_home {
            let samples = &mut course.samples;
            // On the same node, if there is another CPU there.
            let other = initiators.iter().flat_map(|i| &i.cpus).copied().nth(1);
            let mut home = Home::new(topology, node, &targets, stream, coarse, samples)?;
            home.wakes = other.map(|other| (first.cpus[0], other));
            bench = Some(home);
        }
        for round in 0..rounds {
            if round > 0 && Instant::now() > course.clock.stop {
                break;
            }
            for from in &initiators {
                cpus::pin(from.cpus[0]);
                link.round(from, &mut course);
            }
            if let Some(bench) = &mut bench {
                cpus::pin(first.cpus[0]);
                bench.round(&mut link.huge, wide.as_mut(), &mut course);
            }
        }
    }
    course.samples.took = began.elapsed();
    Ok(course.samples)
}

/// The buffer with which curves end, and the walk over all of it.
struct Wide<'a> {
    region: &'a Region,
    chain: Chain<'a>,
}

/// A run: how long things may take, how far it is, and what was taken.
struct Course<'a> {
    clock: Clock,
    meter: Meter<'a>,
    random: SplitMix,
    samples: Samples,
}

/// Whether pages are known not to lie on `node`.
fn misplaced(region: &Region, node: NodeId) -> bool {
    region.placed_on(node).is_some_and(|(on, asked)| on * 10 < asked * 9)
}

/// Turns weights into slots.
struct Clock {
    scale: f64,
    stop: Instant,
}

impl Clock {
    fn slot(&self, milliseconds: u64) -> Duration {
        Duration::from_secs_f64(milliseconds as f64 * self.scale / 1000.0)
    }
}

/// Buffers on one target, for the links that lead there.
struct LinkSet<'a> {
    huge: Chain<'a>,
    base: Chain<'a>,
    stream: &'a Region,
    is_huge: bool,
    walked: usize,
    to: NodeId,
}

impl LinkSet<'_> {
    fn round(&mut self, from: &Initiator, course: &mut Course<'_>) {
        let Course { clock, meter, samples, .. } = course;
        let s = samples.links.entry((from.node, self.to)).or_default();
        s.cpu = Some(from.cpus[0]);
        s.huge = self.is_huge;
        s.walked = self.walked;
        s.streamed = self.stream.len();
        meter.step("memory latency", 2 * slot::WALK);
        s.load_huge.push(self.huge.load_time(clock.slot(slot::WALK)));
        s.load_base.push(self.base.load_time(clock.slot(slot::WALK)));
        meter.step("latency of stores", slot::STORE);
        s.store.push(self.huge.store_time(clock.slot(slot::STORE)));
        meter.step("memory bandwidth", 2 * (slot::STREAM + slot::STREAM_ONE));
        let (all, one) = (&from.cpus[..], &from.cpus[..1]);
        for (series, flow, cpus, ms) in [
            (&mut s.read, Flow::Read, all, slot::STREAM),
            (&mut s.write, Flow::Write, all, slot::STREAM),
            (&mut s.read_one, Flow::Read, one, slot::STREAM_ONE),
            (&mut s.write_one, Flow::Write, one, slot::STREAM_ONE),
        ] {
            let found = bandwidth(self.stream, flow, cpus, clock.slot(ms));
            s.threads = s.threads.max(found.map_or(0, |(_, threads)| threads));
            series.push(found.map(|(rate, _)| rate));
        }
    }
}

/// What belongs to no pair of nodes, measured on the home node.
struct Home<'a> {
    stream: &'a Region,
    paged: Region,
    faults: Region,
    inherited: Region,
    scanner: Result<Scanner, String>,
    mover: Option<Mover>,
    sizes: BTreeSet<usize>,
    /// Over which bytes streams and updates go.
    footprints: BTreeSet<usize>,
    /// Beyond this walks need no warming.
    cached: usize,
    /// Where two walks of the far chain have come to.
    turning: Option<[usize; 2]>,
    pages: Vec<usize>,
    order: Vec<u32>,
    /// Between which CPUs wake-ups are timed; `None`: there is one only.
    wakes: Option<(CpuId, CpuId)>,
}

/// Memory that pushes other pages out of the CPU's own list when it is freed; none
/// where that would take too much of what is `left`.
fn filler(left: usize) -> Option<Region> {
    let len = kernel::kept_by_cpu() as usize + FAULT_BYTES;
    if len > left {
        return None;
    }
    Region::map(len, PageKind::Base, None, false).ok()
}

/// What moves pages on this machine.
enum Mover {
    Between { region: Region, here: NodeId, there: NodeId, at_home: bool },
    Compaction { region: Region, filler: Option<Region>, by: Compactor },
}

impl Mover {
    fn migration(&self) -> Migration {
        match self {
            Self::Between { here, there, .. } => Migration::Between(*here, *there),
            Self::Compaction { by, .. } => Migration::Compaction(by.path),
        }
    }
}

impl<'a> Home<'a> {
    fn new(
        topology: &Topology,
        node: Option<NodeId>,
        targets: &[NodeId],
        stream: &'a Region,
        coarse: bool,
        samples: &mut Samples,
    ) -> Result<Self, MeasureError> {
        let memory = |source| MeasureError::Memory { bytes: BUFFER_MIN, source };
        let pages = tlb_pages(&topology.caches, coarse);
        let most = pages.iter().max().copied().unwrap_or(0);
        let paged = buffer(most * 4096, PageKind::Base, node).map_err(memory)?;
        let faults = buffer(FAULT_BYTES, PageKind::Base, node).map_err(memory)?;
        // No policy: a fork copies it, which would be in the figure.
        let inherited = Region::map(FAULT_BYTES, PageKind::Base, None, true).map_err(memory)?;
        inherited.touch(inherited.pages());
        let scanner = Scanner::open(&paged);
        samples.scan_method = scanner.as_ref().map_or("", Scanner::method);

        let mover =
            match *targets {
                // Not bound: a policy would have to follow each move.
                [here, there, ..] => {
                    let region =
                        Region::map(MIGRATE_PAGES * 4096, PageKind::Base, None, false).ok();
                    region
                        .inspect(|region| region.touch(region.pages()))
                        .map(|region| Mover::Between { region, here, there, at_home: true })
                }
                _ => {
                    let len = if coarse { 32 * MIB } else { COMPACT_BYTES };
                    let left = kernel::available_bytes().map_or(len, |b| (b / 4) as usize);
                    let region = Region::map(len.min(left), PageKind::Base, None, false);
                    let made = Compactor::open().and_then(|by| {
                        let region = region.map_err(|e| format!("mmap: {e}"))?;
                        Ok(Mover::Compaction { region, filler: filler(left), by })
                    });
                    made.map_err(|why| samples.migrate.refusal = Some(why)).ok()
                }
            };
        samples.migration = mover.as_ref().map(Mover::migration);
        let sizes = sweep_sizes(&topology.caches, stream.len(), coarse);
        let order = Vec::new();
        let last = topology.caches.iter().map(|c| c.size.0 as usize).max().unwrap_or(16 * MIB);
        Ok(Self {
            turning: None,
            footprints: curves::footprints(&topology.caches, stream.len(), coarse),
            cached: 2 * last,
            stream,
            paged,
            faults,
            inherited,
            scanner,
            mover,
            sizes,
            pages,
            order,
            wakes: None,
        })
    }

    fn round(&mut self, far: &mut Chain<'_>, wide: Option<&mut Wide<'_>>, course: &mut Course<'_>) {
        let Course { clock, meter, random, samples } = course;
        meter.step("instruction time", slot::CLOCK);
        samples.add.push(cpus::dependent_add(clock.slot(slot::CLOCK)));

        meter.step("wake-ups", slot::HOME / 16);
        self.wake_ups(clock, samples);
        meter.step(
            "calls",
            slot::TICK + 3 * slot::LINES + slot::CALL * (1 + Call::ALL.len() as u64),
        );
        for call in Call::ALL {
            let all = samples.calls.entry(call).or_default();
            all.round(clock.slot(slot::CALL), || call.batch());
        }
        samples.tick.push(calls::tick(clock.slot(slot::TICK)));
        samples.statement.push(per_operation(clock.slot(slot::CALL), || Some(lines::statements())));
        self.between_cpus(clock.slot(slot::LINES), samples);
        meter.step("cache sizes and latencies", slot::HOME / 4);
        self.near(clock, random, samples);
        for &size in &self.sizes {
            let lines = size / LINE;
            let from = somewhere(self.stream, size, random);
            let (stride, order) = (Stride::Dense, &mut self.order);
            let mut chain = Chain::build_at(self.stream, from, stride, lines, random, order);
            if size <= self.cached {
                chain.warm();
            }
            let time = chain.mean_time(clock.slot(slot::SWEEP_POINT));
            samples.sweep.entry(size).or_default().push(Some(time));
        }
        meter.step("streams and updates by footprint", slot::HOME / 8);
        let slot = clock.slot(slot::FOOTPRINT);
        for &size in &self.footprints {
            let at = (somewhere(self.stream, size, random), size);
            footprint(self.stream, at, random, slot, samples);
        }
        let chain_time = |chain: &mut Chain<'_>, samples: &mut Samples| {
            let time = chain.mean_time(clock.slot(4 * slot::SWEEP_POINT));
            samples.sweep.entry(chain.lines() * LINE).or_default().push(Some(time));
        };
        chain_time(far, samples);
        if let Some(Wide { region, chain }) = wide {
            chain_time(chain, samples);
            footprint(region, (0, region.len()), random, 4 * slot, samples);
        }
        meter.step("reach of the TLB", slot::HOME / 8);
        for &pages in &self.pages {
            let mut time = |region| {
                let mut c = Chain::build(region, Stride::Page, pages, random, &mut self.order);
                c.warm();
                c.load_time(clock.slot(slot::TLB_POINT))
            };
            let (small, large) = (time(&self.paged), time(self.stream));
            let more = small.zip(large).map(|(s, l)| s - l);
            samples.tlb.entry(pages).or_default().push(more);
        }
        meter.step("memory parallelism", slot::HOME / 6);
        for n in WIDTHS {
            let time = far.parallel_load_time(n, random, clock.slot(slot::WIDTH));
            samples.widths.entry(n).or_default().push(time);
        }
        meter.step("what a core overlaps", slot::HOME / 8);
        let (all, slot) = ((0, usize::MAX), clock.slot(slot::UPDATE));
        samples.update.push(Some(mean_update_time(self.stream, all, random, slot)));
        samples.told.push(Some(mean_told_update_time(self.stream, all, random, slot)));
        for n in DISTANCES {
            let at = self.turning.get_or_insert_with(|| far.opposite());
            let time = turn_time(far, at, n, clock.slot(slot::TURN));
            samples.turns.entry(n).or_default().push(time);
        }
        meter.step("page copies", slot::COPY);
        samples.copy.push(self.copies(clock.slot(slot::COPY), random));

        meter.step("page faults", 2 * slot::FAULT);
        let slot = clock.slot(slot::FAULT);
        samples.first_touch.round(slot, || kernel::first_touch(&self.faults));
        samples.protect_fault.round(slot, || kernel::write_protect_fault(&self.inherited));

        meter.step("page-table scans", 3 * slot::ENTRY);
        self.paged.touch(self.paged.pages());
        let scan = || match &self.scanner {
            Ok(s) => s.scan(&self.paged),
            Err(why) => Err(why.clone()),
        };
        samples.scan.round(clock.slot(slot::ENTRY), scan);
        samples.mark.round(clock.slot(slot::ENTRY), || kernel::mark(&self.paged));
        samples.age.round(clock.slot(slot::ENTRY), || kernel::age(&self.paged));

        meter.step("looks at others", 4 * slot::LOOK);
        let slot = clock.slot(slot::LOOK);
        samples.queries.round(slot, || looks::queries(&self.paged));
        samples.process.round(slot, looks::process);
        samples.zones.round(slot, looks::zones);
        samples.checksums.round(slot, || looks::checksums(&self.paged));

        meter.step("page migration", slot::MIGRATE);
        // One batch a round: it is large.
        match &mut self.mover {
            Some(Mover::Between { region, here, there, at_home }) => {
                let to = if *at_home { *there } else { *here };
                let batch = || kernel::migrate(region, MIGRATE_PAGES, to);
                samples.migrate.round(Duration::ZERO, batch);
                *at_home = !*at_home;
            }
            Some(Mover::Compaction { region, filler, by }) => {
                // Whether much is moved depends on what else lies in memory: a
                // large folio without a place to go ends the compaction.
                samples.migrate.attempt(|| by.compact(region, filler.as_ref(), COMPACT_LIMIT));
            }
            None => {}
        }
    }

    /// What takes two CPUs, each for a slot.
    fn between_cpus(&self, slot: Duration, samples: &mut Samples) {
        let why_not = || Some("this process may use one CPU only".to_owned());
        let Some((own, other)) = self.wakes else {
            samples.line_refusal = why_not();
            samples.far_refusal = why_not();
            samples.flush_refusal = why_not();
            return;
        };
        if samples.line_refusal.is_none() {
            match lines::moves(own, other, slot) {
                Ok(line) => samples.line.push(Some(line)),
                Err(why) => samples.line_refusal = Some(why),
            }
        }
        if samples.far_refusal.is_none() {
            match calls::socket_far(other, slot) {
                Ok(far) => push_each(&mut samples.far, far),
                Err(why) => samples.far_refusal = Some(why),
            }
        }
        if samples.flush_refusal.is_none() {
            match flush::flushes(own, other, slot) {
                Ok(Flush { sent, received }) => push_each(&mut samples.flush, [sent, received]),
                Err(why) => samples.flush_refusal = Some(why),
            }
        }
    }
    /// Wake-ups of a thread on another CPU.
    fn wake_ups(&self, clock: &Clock, samples: &mut Samples) {
        let Some((own, other)) = self.wakes else {
            samples.wake_refusal = Some("this process may use one CPU only".to_owned());
            return;
        };
        for gap in wake::GAPS {
            let slot = clock.slot(slot::WAKE);
            if samples.wake_refusal.is_none() {
                match wake::hops(own, other, Duration::from_micros(gap), slot) {
                    Ok(hop) => samples.wakes.entry(gap).or_default().push(hop),
                    Err(why) => samples.wake_refusal = Some(why),
                }
            }
        }
    }

    /// Loads and owning loads in the first cache: what a store's walk takes
    /// more is not the memory's doing.
    fn near(&mut self, clock: &Clock, random: &mut SplitMix, samples: &mut Samples) {
        let mut chain = Chain::build(self.stream, Stride::Dense, 128, random, &mut self.order);
        chain.warm();
        samples.near_load.push(chain.load_time(clock.slot(slot::NEAR)));
        samples.near_store.push(chain.store_time(clock.slot(slot::NEAR)));
    }

    /// Copies random pages of the buffer's first half to its second half.
    fn copies(&mut self, slot: Duration, random: &mut SplitMix) -> Option<f64> {
        let half = self.stream.pages() / 2;
        shuffled(half, random, &mut self.order);
        let mut next = (0, half / 2);
        per_operation(slot, || {
            Some(timed(64, || {
                for _ in 0..64 {
                    let (from, to) = (self.order[next.0] as usize, self.order[next.1] as usize);
                    copy_page(self.stream, from, half + to);
                    next = ((next.0 + 1) % half, (next.1 + 1) % half);
                }
            }))
        })
    }
}

/// Where in the region so many bytes lie this time: at a huge page, anywhere.
fn somewhere(region: &Region, size: usize, random: &mut SplitMix) -> usize {
    let huge = 2 * MIB;
    let room = region.len().saturating_sub(size) / huge;
    random.below(room as u64 + 1) as usize * huge
}

/// A sample of a stream and one of updates over so many bytes from a place on.
fn footprint(
    region: &Region,
    at: (usize, usize),
    random: &mut SplitMix,
    slot: Duration,
    samples: &mut Samples,
) {
    if at.1 <= 64 * MIB {
        // Once round, so that what fits into the caches is there.
        stream::alone(region, at, Flow::Read, slot / 4);
    }
    // 64 bytes at MB/s, in picoseconds.
    let line = 64.0 * 1e6 / stream::alone(region, at, Flow::Read, slot).max(1e-3);
    samples.streams.entry(at.1).or_default().push(Some(line));
    if at.1 <= 64 * MIB {
        // A cache that nearly holds them needs some rounds until it holds what it will.
        mean_update_time(region, at, random, slot);
    }
    let update = mean_update_time(region, at, random, slot);
    samples.updates.entry(at.1).or_default().push(Some(update));
}

fn push_each(series: &mut [Series; 2], samples: [f64; 2]) {
    for (series, sample) in series.iter_mut().zip(samples) {
        series.push(Some(sample));
    }
}

/// Copies page `from` to page `to`, another one.
fn copy_page(region: &Region, from: usize, to: usize) {
    assert_ne!(from, to);
    // SAFETY: `page` checks that both lie in the region; they are different
    // pages, and no other thread uses the region now.
    unsafe { ptr::copy_nonoverlapping(region.page(from), region.page(to), 4096) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::units::Bytes;

    fn shape(level: u8, kib: u64) -> CacheShape {
        CacheShape { level, size: Bytes(kib << 10), ways: 8, line: 64, shared_by: 1 }
    }

    #[test]
    fn latencies_are_read_inside_each_level() {
        let caches = [shape(1, 32), shape(2, 1024), shape(3, 32 << 10)];
        assert_eq!(sweep_point(&caches, 1), Some(16 << 10));
        assert_eq!(sweep_point(&caches, 2), Some(256 << 10));
        assert_eq!(sweep_point(&caches, 3), Some(8 << 20));
        assert_eq!(sweep_point(&caches, 4), None);
        // A last level that is only twice the one before.
        assert_eq!(sweep_point(&[shape(1, 32), shape(2, 64)], 2), Some(32 << 10));
        assert_eq!(sweep_point(&[shape(1, 32)], 1), Some(16 << 10));
        let sizes = sweep_sizes(&caches, 1 << 30, false);
        assert!(caches.iter().all(|c| sizes.contains(&sweep_point(&caches, c.level).unwrap())));
        assert_eq!(sizes.last(), Some(&(128 << 20)));
    }

    #[test]
    fn sizes_stay_within_the_buffer() {
        let caches = [shape(1, 32), shape(2, 1024), shape(3, 512 << 10)];
        assert!(sweep_sizes(&caches, 16 << 20, true).iter().all(|&s| s <= 16 << 20));
        assert!(!sweep_sizes(&[], 16 << 20, true).is_empty());
        assert_eq!(tlb_pages(&caches, false).first(), Some(&8192));
        assert_eq!(tlb_pages(&[], true).first(), Some(&8192));
    }

    #[test]
    fn a_refused_operation_keeps_its_reason_and_is_not_repeated() {
        let mut k = Kernel::default();
        let mut calls = 0;
        for _ in 0..3 {
            k.round(Duration::ZERO, || {
                calls += 1;
                Err("no".to_owned())
            });
        }
        assert_eq!((calls, k.refusal.as_deref()), (1, Some("no")));
        let mut k = Kernel::default();
        k.round(Duration::ZERO, || Ok((Duration::from_nanos(6), 3)));
        k.round(Duration::ZERO, || Err("later".to_owned()));
        assert_eq!((k.series.len(), k.refusal), (1, None));
    }

    /// Node 999 is not there: binding to it and moving pages to it fail.
    #[test]
    fn memory_that_cannot_be_bound_is_said_and_the_rest_measured() {
        let mut t = homenode_live::sysfs::read_topology(std::path::Path::new("/")).unwrap();
        if t.nodes.len() != 1 || Region::map(1, PageKind::Base, Some(NodeId(0)), false).is_err() {
            return;
        }
        t.nodes.push(Node { id: NodeId(999), ..t.nodes[0].clone() });
        t.distances = vec![vec![10, 25], vec![25, 10]];
        let options = Options {
            budget: Duration::from_millis(200),
            rounds: 2,
            buffer_max: Bytes(BUFFER_MIN as u64),
        };
        let s = run(&options, &t, &mut |_| ()).unwrap();
        assert_eq!(s.notes.len(), 1, "{:?}", s.notes);
        assert!(s.notes[0].contains("node 999"));
        assert_eq!(s.links.len(), 1);
        assert_eq!(s.migration, Some(Migration::Between(NodeId(0), NodeId(999))));
        assert!(s.migrate.series.is_empty());
        assert!(s.migrate.refusal.as_deref().unwrap().contains("move_pages"));
        let m = super::super::result::machine(&t, &s);
        let far = m.link(NodeId(0), NodeId(999)).unwrap();
        let near = m.link(NodeId(0), NodeId(0)).unwrap();
        assert_eq!(far.read_latency.value, near.read_latency.value * 25 / 10);
        assert_eq!(far.read_latency.origin, homenode_core::costs::Origin::Assumed);
    }
}
