//! Loaded latency: memory that nears its bandwidth answers later, and so does what is behind a link of
//! sockets that nears its own.
//!
//! Once per window the bytes that a node served, and those that each link carried, are held against what
//! they could have; the latency of the next window is the unloaded one times
//!
//! ```text
//! curve(u) · waiting       u: share of the bandwidth used, smoothed over four windows
//!
//! waiting' = waiting · (3 + now) / 4, at least 1       now: the share of this window alone
//! ```
//!
//! The curve is published, or the machine's own ([`homenode_core::loaded`]). More than its bandwidth
//! nobody gets: while more is asked for, the queue grows, until those who wait ask for no more.
//!
//! Source: specs/load.md#latency.

use homenode_core::costs::Cost;
use homenode_core::loaded::{Loaded, Path};
use homenode_core::topology::{Hardware, Medium};
use std::sync::Arc;

/// How long a window is, in picoseconds.
pub(crate) const WINDOW: u64 = 100_000_000;
/// Bytes of a line, the unit of what an access moves.
pub(crate) const LINE: u64 = homenode_core::units::LINE_SIZE;
/// Such lines in a page.
pub(crate) const PAGE_LINES: u64 = homenode_core::units::PAGE_SIZE / LINE;

const ONE: u64 = 1 << 16;
/// So much longer at most does anybody wait in a queue.
const MOST_WAITING: u64 = ONE << 10;
/// Steps of a curve.
const STEPS: usize = 128;
/// A share of the bandwidth to a step, as a power of two.
const STEP: u32 = ONE.trailing_zeros() - STEPS.trailing_zeros();

/// The share of a bandwidth that so many bytes in `span` picoseconds are, in 2^-16.
fn share(bytes: u64, mbps: u64, span: u64) -> u64 {
    // MB/s × ps = 10^-6 bytes: a node could have moved mbps × span / 10^6 bytes.
    let served = bytes.checked_mul(ONE * 1_000_000);
    match (served, mbps.checked_mul(span.max(1))) {
        // As it nearly always is; wide division costs ten times as much.
        (Some(served), Some(could)) => served / could,
        _ => {
            (u128::from(bytes) * u128::from(ONE) * 1_000_000
                / (u128::from(mbps) * u128::from(span.max(1)))) as u64
        }
    }
}

/// A curve, at each step.
type Growth = Arc<[u64; STEPS + 1]>;

fn growth(of: &Loaded) -> Growth {
    Arc::new(std::array::from_fn(|i| of.growth((i as u64) << STEP)))
}

/// By how much latencies grow at a use of `u`, in 2^-16 of themselves.
fn over(growth: &[u64; STEPS + 1], u: u64) -> u64 {
    let u = u.min(ONE);
    let at = (u >> STEP) as usize;
    let (low, high) = (growth[at], growth[(at + 1).min(STEPS)]);
    low + (((high - low) * (u & ((1 << STEP) - 1))) >> STEP)
}

/// Those who wait for something that has a bandwidth.
#[derive(Clone, Debug)]
struct Queue {
    growth: Growth,
    /// Smoothed use in 2^-16.
    used: u64,
    /// How much longer than the curve says one waits, in 2^-16: 1 at least.
    waiting: u64,
    /// What follows from both: by how much latencies grow.
    over: u64,
}

impl Queue {
    fn new(growth: Growth) -> Self {
        Self { growth, used: 0, waiting: ONE, over: 0 }
    }
    /// Ends a window in which `now` was used.
    fn close(&mut self, now: u64) {
        let now = now.min(4 * ONE);
        self.used = (3 * self.used + now) / 4;
        self.waiting = (self.waiting * (3 * ONE + now) / (4 * ONE)).clamp(ONE, MOST_WAITING);
        self.over = (ONE + over(&self.growth, self.used)) * self.waiting / ONE - ONE;
    }
}

/// Picoseconds of what takes `ps` unloaded, longer by a factor in 2^-16.
fn longer(ps: u64, factor: u64) -> u64 {
    match ps.checked_mul(factor) {
        Some(loaded) => loaded >> 16,
        None => ((u128::from(ps) * u128::from(factor)) >> 16) as u64,
    }
}

/// The load of one node.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// Bandwidth in MB/s.
    read_mbps: u64,
    write_mbps: u64,
    /// Whether reads and writes have a way each.
    duplex: bool,
    /// Bytes that the medium reads or writes at once.
    grain: u64,
    /// Bytes in this window.
    pub(crate) read: u64,
    pub(crate) written: u64,
    queue: Queue,
    /// Bytes over all time.
    pub(crate) read_total: u64,
    pub(crate) written_total: u64,
}

impl Load {
    /// * `grain` – bytes that the medium reads or writes at once.
    pub(crate) fn new(read_mbps: u64, write_mbps: u64, grain: u64, loaded: &Loaded) -> Self {
        Self {
            read_mbps: read_mbps.max(1),
            write_mbps: write_mbps.max(1),
            duplex: loaded.duplex,
            grain: grain.max(LINE),
            read: 0,
            written: 0,
            queue: Queue::new(growth(loaded)),
            read_total: 0,
            written_total: 0,
        }
    }
    /// Grains in a page: as many accesses to one page, close in time, reach all of it.
    pub(crate) fn grains_in_page(&self) -> u64 {
        (PAGE_LINES * LINE).div_ceil(self.grain)
    }
    /// Bytes that reads and writes of the cores read and write. What is written was read first,
    /// into a cache, and goes back later; where that is only a `part` of a grain, the
    /// medium reads once more what it puts the line into.
    ///
    /// Source: specs/load.md#granularity.
    fn bytes(grain: u64, reads: u64, writes: u64, part: u64) -> (u64, u64) {
        let again = if grain > LINE { part } else { 0 };
        ((reads + writes + again) * grain, writes * grain)
    }
    /// Grains that were read and written for the cores; see [`Load::bytes`].
    #[inline]
    pub(crate) fn access(&mut self, reads: u64, writes: u64, part: u64) {
        let (read, written) = Self::bytes(self.grain, reads, writes, part);
        self.read += read;
        self.written += written;
    }
    /// The share of the bandwidth that so many bytes in `span` picoseconds are.
    fn share(&self, read: u64, written: u64, span: u64) -> u64 {
        let (r, w) = (share(read, self.read_mbps, span), share(written, self.write_mbps, span));
        if self.duplex { r.max(w) } else { r + w }
    }
    /// Ends a window that was `span` picoseconds long.
    pub(crate) fn close(&mut self, span: u64) {
        let now = self.share(self.read, self.written, span);
        self.queue.close(now);
        self.read_total += self.read;
        self.written_total += self.written;
        self.read = 0;
        self.written = 0;
    }
    /// The factor that a task alone would put on latencies with one line each `ps`
    /// picoseconds, written back or only read; lines in no order move whole grains.
    pub(crate) fn alone(&self, ps: u64, write: bool, random: bool) -> u64 {
        let grain = if random { self.grain } else { LINE };
        let write = u64::from(write);
        let (read, written) = Self::bytes(grain, 1 - write, write, write);
        let used = self.share(read, written, ps);
        longer(ONE + over(&self.queue.growth, used), used.max(ONE))
    }
    /// The factor on the unloaded latency, in 2^-16.
    #[inline]
    pub(crate) fn factor(&self) -> u64 {
        ONE + self.queue.over
    }
    /// The same in thousandths.
    pub(crate) fn permille(&self) -> u32 {
        permille(self.factor())
    }
    /// Picoseconds under load of what takes `ps` unloaded.
    pub(crate) fn apply(&self, ps: u64) -> u64 {
        longer(ps, self.factor())
    }
}

fn permille(factor: u64) -> u32 {
    ((factor * 1000) >> 16) as u32
}

/// One direction of what joins two sockets: what reads there bring and writes from there carry.
#[derive(Clone, Debug)]
struct Direction {
    mbps: u64,
    /// Bytes in this window.
    carried: u64,
    queue: Queue,
}

/// The loads of all nodes, and of the links between their sockets.
#[derive(Clone, Debug)]
pub(crate) struct Loads {
    /// By place of the node.
    pub(crate) nodes: Vec<Load>,
    /// The place of the socket that a node belongs to: its own, or of the CPUs that are nearest.
    home: Vec<usize>,
    /// From one socket to another, by places; `None`: nothing joins them, or they are one.
    ways: Vec<Vec<Option<Direction>>>,
}

impl Loads {
    pub(crate) fn new(machine: &Hardware) -> Self {
        let n = machine.nodes.len();
        let place = |id| machine.position(id).unwrap_or(0);
        let to = |p: usize| machine.links.iter().filter(move |l| place(l.to) == p);
        let node = |p: usize| {
            let medium = machine.nodes[p].medium;
            let grain = match medium {
                Medium::Pmem => machine.costs.get(Cost::PmemLine),
                Medium::Dram | Medium::Cxl => LINE,
            };
            let [read, write] = machine.bandwidth(machine.nodes[p].id);
            Load::new(read, write, grain, &machine.loaded(medium.path()))
        };
        let nearest = |p: usize| {
            let near = to(p).min_by_key(|l| (l.read_latency.value, l.from));
            if machine.has_cpu(machine.nodes[p].id) { p } else { near.map_or(p, |l| place(l.from)) }
        };
        let home: Vec<usize> = (0..n).map(nearest).collect();
        let socket = growth(&machine.loaded(Path::Socket));
        // Bytes go from the memory to who reads, and from who writes to the memory.
        let widest = |from: usize, to: usize| {
            let carried = machine.links.iter().filter_map(|l| {
                let ends = (place(l.from), home[place(l.to)]);
                if ends == (to, from) {
                    Some(l.read_bandwidth.value)
                } else if ends == (from, to) {
                    Some(l.write_bandwidth.value)
                } else {
                    None
                }
            });
            carried.max().filter(|_| from != to)
        };
        let way = |from, to| {
            let mbps = widest(from, to)?.max(1);
            Some(Direction { mbps, carried: 0, queue: Queue::new(Arc::clone(&socket)) })
        };
        let ways = (0..n).map(|from| (0..n).map(|to| way(from, to)).collect()).collect();
        Self { nodes: (0..n).map(node).collect(), home, ways }
    }
    /// Lines that CPUs of `from` read and wrote in the memory of `node`, which are so many grains of
    /// its medium, and as many of those written in part only.
    #[inline]
    pub(crate) fn access(
        &mut self,
        (from, node): (usize, usize),
        lines: (u64, u64),
        (reads, writes, part): (u64, u64, u64),
    ) {
        self.nodes[node].access(reads, writes, part);
        let (read, written) = Load::bytes(LINE, lines.0, lines.1, 0);
        self.cross((from, node), read, written);
    }
    /// Bytes that go between CPUs and a memory of another socket.
    #[inline]
    fn cross(&mut self, (from, node): (usize, usize), read: u64, written: u64) {
        let home = self.home[node];
        if home != from {
            self.carry(home, from, read);
            self.carry(from, home, written);
        }
    }
    /// Lines that CPUs of `from` read and wrote in the memory of `node`: in order, so that no grain is read
    /// twice (specs/load.md#stream), or each far from the last.
    #[inline]
    pub(crate) fn lines(&mut self, ways: (usize, usize), reads: u64, writes: u64, in_order: bool) {
        if !in_order {
            return self.access(ways, (reads, writes), (reads, writes, writes));
        }
        let (read, written) = Load::bytes(LINE, reads, writes, 0);
        self.nodes[ways.1].read += read;
        self.nodes[ways.1].written += written;
        self.cross(ways, read, written);
    }
    /// Bytes that are copied from one node to another.
    pub(crate) fn copied(&mut self, from: usize, to: usize, bytes: u64) {
        self.nodes[from].read += bytes;
        self.nodes[to].written += bytes;
        self.carry(self.home[from], self.home[to], bytes);
    }
    fn carry(&mut self, from: usize, to: usize, bytes: u64) {
        if let Some(way) = &mut self.ways[from][to] {
            way.carried += bytes;
        }
    }
    /// Ends a window that was `span` picoseconds long.
    pub(crate) fn close(&mut self, span: u64) {
        self.nodes.iter_mut().for_each(|load| load.close(span));
        for way in self.ways.iter_mut().flatten().flatten() {
            way.queue.close(share(way.carried, way.mbps, span));
            way.carried = 0;
        }
    }
    /// The factor on latencies that CPUs of `from` see in the memory of `node`: they wait for the
    /// memory, and for what brings its line.
    fn factor(&self, from: usize, node: usize) -> u64 {
        let way = self.ways[self.home[node]][from].as_ref();
        self.nodes[node].factor() + way.map_or(0, |w| w.queue.over)
    }
    /// The same in thousandths.
    pub(crate) fn permille(&self, from: usize, node: usize) -> u32 {
        permille(self.factor(from, node))
    }
    /// Picoseconds under load of an access that takes `ps` unloaded.
    pub(crate) fn apply(&self, from: usize, node: usize, ps: u64) -> u64 {
        longer(ps, self.factor(from, node))
    }
    /// The time in which CPUs of `from` get each line of `node` that they ask for once in `ps` picoseconds:
    /// that time up to the bandwidth, and longer as soon as they wait longer than the curve says of all of it.
    ///
    /// Source: specs/load.md#stream.
    pub(crate) fn paced(&self, from: usize, node: usize, ps: u64) -> u64 {
        let way = self.ways[self.home[node]][from].as_ref();
        let most = |queue: &Queue| queue.growth[STEPS];
        let full = ONE + most(&self.nodes[node].queue) + way.map_or(0, |way| most(&way.queue));
        match self.factor(from, node) {
            now if now > full => (u128::from(ps) * u128::from(now) / u128::from(full)) as u64,
            _ => ps,
        }
    }
    /// Picoseconds under load of a copy that takes `ps` unloaded.
    pub(crate) fn apply_copy(&self, from: usize, to: usize, ps: u64) -> u64 {
        let both = self.nodes[from].apply(self.nodes[to].apply(ps));
        let way = self.ways[self.home[from]][self.home[to]].as_ref();
        longer(both, ONE + way.map_or(0, |w| w.queue.over))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::topology::Link;

    fn dram(mbps: u64, grain: u64) -> Load {
        Load::new(mbps, mbps, grain, &Loaded::published(Path::Dram))
    }

    #[test]
    fn a_line_costs_the_mediums_grain() {
        // The example of specs/load.md#granularity.
        for (grain, read, written) in [(64, 640, 128), (256, 3072, 512), (100, 1200, 200)] {
            let mut l = dram(1, grain);
            l.access(8, 2, 2);
            assert_eq!((l.read, l.written), (read, written), "{grain}");
        }
        // Whole grains need no second reading: a page of 16, streamed.
        let mut l = dram(1, 256);
        l.access(0, 16, 0);
        assert_eq!((l.read, l.written), (4096, 4096));
        let grains = |grain| dram(1, grain).grains_in_page();
        assert_eq!((grains(64), grains(256), grains(4096), grains(300)), (64, 16, 1, 14));
    }

    /// Latency of 100 ns after so many windows with so many bytes read and written in each.
    fn after(l: &mut Load, windows: usize, read: u64, written: u64) -> u64 {
        for _ in 0..windows {
            (l.read, l.written) = (read, written);
            l.close(WINDOW);
        }
        l.apply(100_000)
    }

    // specs/load.md#latency: half of 10 GB/s for 100 µs, and twice as much as there is.
    #[test]
    fn half_load_follows_the_curve_and_too_much_waits() {
        let mut l = dram(10_000, LINE);
        let half = after(&mut l, 64, 500_000, 0);
        assert!((123_000..=123_500).contains(&half), "{half}");
        // Who asks for twice as much without waiting is served later and later, within bounds.
        let (one, two) = (after(&mut l, 20, 2_000_000, 0), after(&mut l, 5, 2_000_000, 0));
        assert!(two > 2 * one && one > 500_000, "{one} {two}");
        assert!(after(&mut l, 1000, 2_000_000, 0) <= (100_000 * 100) << 10);
        assert_eq!(after(&mut l, 200, 0, 0), 100_000);
    }

    /// Reads and writes of DRAM share one way, those of an expander have one each.
    #[test]
    fn what_has_two_ways_carries_both_at_once() {
        let cxl = Loaded::published(Path::Cxl);
        let mut cxl = Load::new(10_000, 10_000, LINE, &cxl);
        let mut dram = dram(10_000, LINE);
        let quiet = after(&mut cxl, 64, 700_000, 700_000);
        assert!((106_000..=108_000).contains(&quiet), "{quiet}");
        assert!(after(&mut dram, 64, 700_000, 700_000) > 10 * quiet);
    }

    // specs/load.md#latency: two sockets with 10 GB/s each way, and an expander on the first.
    #[test]
    fn all_nodes_of_a_socket_share_the_way_there() {
        use homenode_fixtures::machine::{cxl, dram, machine};
        let mut m = machine(&[dram(1000, 1), dram(1000, 1), cxl(1000)]);
        let near = |l: &Link| l.from == l.to || (l.from.0, l.to.0) == (0, 2);
        for l in m.links.iter_mut().filter(|l| !near(l)) {
            (l.read_bandwidth.value, l.write_bandwidth.value) = (10_000, 10_000);
        }
        let mut loads = Loads::new(&m);
        // The second socket's CPUs read 5 GB/s from each of the first one's nodes.
        let lines = 5 * WINDOW / 1_000 / LINE;
        for _ in 0..64 {
            for node in [0, 2] {
                loads.access((1, node), (lines, 0), (lines, 0, 0));
            }
            loads.close(WINDOW);
        }
        let across = [(1, 0), (1, 2)].map(|(from, node)| loads.permille(from, node));
        assert!(across.iter().all(|f| (2_100..2_500).contains(f)), "{across:?}");
        let here = [(0, 0), (0, 2)].map(|(from, node)| loads.permille(from, node));
        assert!(here.iter().all(|f| (1_001..1_070).contains(f)), "{here:?}");
        // The other direction is free: what the first socket reads from there, and copies to it.
        assert_eq!(loads.permille(0, 1), 1000);
        let [there, back] = [(0, 1), (1, 0)].map(|(from, to)| loads.apply_copy(from, to, 1000));
        assert!(there > 2 * back, "{there} {back}");
        // Lines that go back use it.
        for _ in 0..64 {
            loads.access((1, 0), (0, lines), (0, lines, lines));
            loads.close(WINDOW);
        }
        assert!(loads.permille(0, 1) > 1050, "{}", loads.permille(0, 1));
    }

    /// Loops of loads that wait for one another ask for as much as they are served.
    #[test]
    fn many_chains_get_the_bandwidth_and_no_more() {
        for path in Path::ALL {
            for chains in [1, 8, 40, 400, 4000] {
                let mut l = Load::new(10_000, 10_000, LINE, &Loaded::published(path));
                let (mut latency, mut all) = (100_000, 0);
                for window in 0..1000 {
                    let bytes = chains * LINE * WINDOW / latency;
                    latency = after(&mut l, 1, bytes, 0);
                    all += if window < 500 { 0 } else { bytes };
                }
                let mbps = all / (500 * WINDOW / 1_000_000);
                // Without waiting one chain has 640 MB/s.
                let asked = 640 * chains;
                let name = path.name();
                assert!(
                    mbps <= asked && mbps <= 10_020,
                    "{name}: {chains} chains have {mbps} MB/s"
                );
                let least = if asked < 20_000 { asked * 4 / 10 } else { 9_000 };
                assert!(mbps >= least, "{name}: {chains} chains have {mbps} MB/s");
                let now = l.apply(100_000);
                let apart = now.abs_diff(latency);
                assert!(apart * 20 <= now, "{name}: {chains} chains: {latency}, then {now}");
            }
        }
    }
}
