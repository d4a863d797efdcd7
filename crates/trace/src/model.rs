//! Caches and TLB: set-associative, least recently used leaves first.
//!
//! Each set is a row of tags in order of use, the latest first, so that a hit
//! on the latest line, which most accesses are, is one comparison.
//!
//! ```text
//! L1 of 2 ways, lines a, b, c of one set:
//!   a miss  [a -]    b miss  [b a]    a hit  [a b]    c miss  [c a]   b left
//! ```
//!
//! A line that misses right after the line below it did, be it among misses of
//! others, is one that a prefetcher would have brought: it counts as streamed. A line
//! that is loaded and then stored to counts as a store's: it is written back later.

use crate::wire::EPOCH_INSNS;
use crate::{ARG_READ, ARG_STREAM, ARG_WRITE, Totals};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Bits of an address within a line. Lines of 64 bytes are all that x86 has.
pub const LINE_BITS: u32 = 6;
/// Bits of a line number within a page.
pub const PAGE_LINE_BITS: u32 = 12 - LINE_BITS;

/// Sizes of the modelled machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes and ways of the first level.
    pub l1: (u64, u32),
    /// Bytes and ways of the second level; 0 bytes where there is none.
    pub l2: (u64, u32),
    /// Bytes and ways of the last level.
    pub llc: (u64, u32),
    /// Entries of the TLB.
    pub tlb: u32,
}

/// Sets and how an address finds its own.
#[derive(Clone, Copy, Debug)]
struct Sets {
    count: u64,
    ways: usize,
}

impl Sets {
    fn new(entries: u64, ways: u32) -> Self {
        let ways = u64::from(ways).clamp(1, entries.max(1));
        Self { count: (entries / ways).max(1), ways: ways as usize }
    }
    /// The first entry of the set. Caches whose number of sets is no power of
    /// two hash their addresses over slices; so does this.
    #[inline]
    fn base(&self, key: u64) -> usize {
        let set = if self.count.is_power_of_two() {
            key & (self.count - 1)
        } else {
            (u64::from((key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32) * self.count) >> 32
        };
        set as usize * self.ways
    }
}

/// A line where it might lie in physical memory: at its place in its page, the page
/// anywhere. A cache whose ways are larger than a page has pages that share sets, more or
/// fewer by chance. In a virtual machine that is so in huge pages too.
#[inline]
fn coloured(line: u64) -> u64 {
    let page = (line >> PAGE_LINE_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let colour = page ^ (page >> 32);
    (colour.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 16 << PAGE_LINE_BITS)
        | (line & ((1 << PAGE_LINE_BITS) - 1))
}

/// 32 bits that tell lines of one set apart. Two lines meet only if their
/// addresses lie 2^38 bytes or more apart, and then once in 2^32. 0 is an empty way.
#[inline]
fn tag(line: u64) -> u32 {
    let t = (line as u32) ^ ((line >> 32) as u32).wrapping_mul(0x9e37_79b1);
    if t == 0 { 1 } else { t }
}

/// The last level, shared by the threads of a process.
pub struct Llc {
    sets: Sets,
    tags: Box<[AtomicU32]>,
}

impl Llc {
    /// An empty one.
    pub fn new(g: &Geometry) -> Self {
        let sets = Sets::new(g.llc.0 >> LINE_BITS, g.llc.1);
        let n = sets.count as usize * sets.ways;
        Self { sets, tags: (0..n).map(|_| AtomicU32::new(0)).collect() }
    }
    /// Looks a line up and makes it the latest of its set; whether it was there.
    #[inline]
    fn touch(&self, line: u64) -> bool {
        let base = self.sets.base(line);
        let set = &self.tags[base..base + self.sets.ways];
        let t = tag(line);
        let mut carried = t;
        for way in set {
            let old = way.load(Relaxed);
            way.store(carried, Relaxed);
            if old == t {
                return true;
            }
            carried = old;
        }
        false
    }
}

/// A set-associative table of a thread's own.
struct Table<T> {
    sets: Sets,
    tags: Box<[T]>,
}

impl<T: Copy + PartialEq> Table<T> {
    fn new(entries: u64, ways: u32, empty: T) -> Self {
        let sets = Sets::new(entries, ways);
        Self { sets, tags: vec![empty; sets.count as usize * sets.ways].into() }
    }
}

/// An empty entry of L1 and TLB: no line has this number.
const EMPTY: u64 = u64::MAX;
/// Bit of an entry of L1 and TLB: written since it came.
const DIRTY: u64 = 1;

/// Looks up `key` among entries `key << 1 | dirty` and makes it the latest.
/// Returns the entry as it was before; `EMPTY` for a miss.
#[inline]
fn touch_dirty(set: &mut [u64], key: u64, write: bool) -> u64 {
    let dirty = u64::from(write);
    for i in 0..set.len() {
        let old = set[i];
        if old >> 1 == key {
            set.copy_within(0..i, 1);
            set[0] = old | dirty;
            return old;
        }
    }
    let last = set.len() - 1;
    set.copy_within(0..last, 1);
    set[0] = key << 1 | dirty;
    EMPTY
}

/// Sets of L1. x86 finds a line in L1 by the address bits within a page, while it
/// translates the rest, so there are 64 sets whatever the size; where a machine
/// differs, its ways are taken as many as make up the size.
const L1_SETS: usize = 64;

/// How many pages have an open row. Programs often walk a few streams at once;
/// with one open row, each miss of two interleaved streams would be a row.
const WINDOW: usize = 4;
/// An open row ends after so many instructions: about 10 µs, the quantum within
/// which a simulation does not order the accesses of threads.
const WINDOW_INSNS: u64 = 32 * 1024;
/// An open row ends at so many misses.
const WINDOW_MISSES: u32 = 4096;
/// Entries of the table of pages that have a row in this epoch. Two pages that
/// share an entry cost rows, never lose any.
const NOTED: usize = 1 << 14;

/// Streams that are followed at once; processors follow 16 to 32.
const STREAMS: usize = 16;
/// Lines fetched by loads that are remembered, in case a store follows.
const FETCHED: usize = 8;

/// See [`Look::RoundOver`]: far less than an epoch.
const LOOK_UP: u32 = 1 << 16;

/// An access row in the making.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// Page number.
    pub page: u64,
    /// The task's instructions when it began.
    pub at: u64,
    /// Lines fetched by loads.
    pub reads: u32,
    /// Lines fetched by stores.
    pub writes: u32,
    /// [`ARG_READ`], [`ARG_WRITE`], [`ARG_STREAM`].
    pub arg: u64,
    /// Lines among them that followed their neighbour.
    pub streamed: u32,
}

impl Open {
    /// As it goes to its sink: with [`ARG_STREAM`] where most lines are of a stream.
    fn closed(mut self) -> Self {
        if self.streamed > (self.reads + self.writes) / 2 {
            self.arg |= ARG_STREAM;
        }
        self
    }
}

/// Takes rows that are complete, in the order in which they began.
pub trait Sink {
    /// One row, with the task's counts so far.
    fn row(&mut self, row: Open, totals: &Totals);
}

/// What an access needs beside being counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing: its line is the latest of its set, and written if this writes.
    Done,
    /// The model: [`Core::l1`].
    Further,
    /// [`Core::count_round`], then the model: once in 2^16 accesses, so that a loop
    /// over a few lines also comes to its next epoch.
    RoundOver,
}

/// One thread's view of the caches.
pub struct Core {
    /// The latest entry of each set of L1, the one before it, and below the others: so
    /// that the comparison which most accesses are needs one mask and one load.
    latest: [u64; L1_SETS],
    second: [u64; L1_SETS],
    l1_ways: usize,
    older: Box<[u64]>,
    l2: Option<Table<u32>>,
    tlb: Table<u64>,
    noted: Box<[u64]>,
    open: [Open; WINDOW],
    first: usize,
    used: usize,
    last_page: u64,
    /// The lines that would go on with a stream, and which one gives way next.
    streams: [u64; STREAMS],
    next_stream: usize,
    /// Lines that loads have fetched lately.
    fetched: [u64; FETCHED],
    next_fetched: usize,
    /// When the next epoch begins, in instructions of the task.
    epoch_end: u64,
    /// Accesses until the next look at the epoch, and what `totals` knows of it.
    left: u32,
    settled: u32,
    /// Counts; `insns` is kept by the caller, `accesses` by [`Core::settle`].
    pub totals: Totals,
}

impl Core {
    /// Empty caches.
    pub fn new(g: &Geometry) -> Self {
        // Second-level TLBs have 8 ways (AMD) or 12 (Intel's 1,536 and 2,048 entries).
        let tlb_ways = if g.tlb % 12 == 0 { 12 } else { 8 };
        let l1_ways = ((g.l1.0 >> LINE_BITS) as usize / L1_SETS).max(1);
        Self {
            latest: [EMPTY; L1_SETS],
            second: [EMPTY; L1_SETS],
            l1_ways,
            older: vec![EMPTY; L1_SETS * l1_ways.saturating_sub(2)].into(),
            l2: (g.l2.0 > 0).then(|| Table::new(g.l2.0 >> LINE_BITS, g.l2.1, 0)),
            tlb: Table::new(u64::from(g.tlb), tlb_ways, EMPTY),
            noted: vec![0; NOTED].into(),
            open: [Open::default(); WINDOW],
            first: 0,
            used: 0,
            last_page: EMPTY,
            streams: [EMPTY; STREAMS],
            next_stream: 0,
            fetched: [EMPTY; FETCHED],
            next_fetched: 0,
            epoch_end: EPOCH_INSNS,
            left: LOOK_UP,
            settled: LOOK_UP,
            totals: Totals::default(),
        }
    }

    /// Counts an access and says what is left to do for it.
    #[inline(always)]
    pub fn look(&mut self, line: u64, load: u8) -> Look {
        // Counted down: one instruction counts and tests.
        self.left -= 1;
        if self.left == 0 {
            return Look::RoundOver;
        }
        let latest = self.latest[line as usize % L1_SETS];
        if latest | u64::from(load) == line << 1 | DIRTY { Look::Done } else { Look::Further }
    }

    /// Of an access that has to go [`Look::Further`]: whether its line is the second of its
    /// set, and written if this writes. Then it is the latest now, and nothing is left to do.
    #[inline(always)]
    pub fn look_second(&mut self, line: u64, load: u8) -> bool {
        let set = line as usize % L1_SETS;
        let second = self.second[set];
        let is = second | u64::from(load) == line << 1 | DIRTY;
        if is {
            self.second[set] = std::mem::replace(&mut self.latest[set], second);
        }
        is
    }

    /// [`Core::look`] where speed is no matter: whether nothing is left to do.
    pub fn done(&mut self, line: u64, load: u8) -> bool {
        let look = self.look(line, load);
        if look == Look::RoundOver {
            self.count_round();
        }
        look == Look::Done
    }
    /// Counts an access that [`Core::look`] is not asked about.
    #[inline]
    pub fn count(&mut self) {
        self.left -= 1;
        if self.left == 0 {
            self.count_round();
        }
    }
    /// A round of 2^16 accesses is over; the next one has them all before it.
    #[cold]
    #[inline(never)]
    pub fn count_round(&mut self) {
        self.settle();
        self.left = LOOK_UP;
        self.settled = LOOK_UP;
    }
    /// Brings the count of accesses up to date.
    #[inline]
    pub fn settle(&mut self) {
        self.totals.accesses += u64::from(self.settled - self.left);
        self.settled = self.left;
    }

    /// Whether L1 answers, and neither page nor epoch needs a look. Otherwise
    /// [`Core::access`] goes on with what L1 held.
    #[inline]
    pub fn l1(&mut self, line: u64, write: bool) -> Result<(), u64> {
        let old = self.touch_l1(line, write);
        if old != EMPTY && (!write || old & DIRTY != 0) && self.left != LOOK_UP {
            return Ok(());
        }
        Err(old)
    }

    /// An access to `line` when the task has run `now` instructions; `old` is what
    /// [`Core::l1`] found.
    pub fn access(
        &mut self,
        llc: &Llc,
        line: u64,
        write: bool,
        old: u64,
        now: u64,
        sink: &mut impl Sink,
    ) {
        if now >= self.epoch_end {
            self.new_epoch(now);
        }
        if old != EMPTY {
            if write && old & DIRTY == 0 {
                self.translate(line >> PAGE_LINE_BITS, true, now, sink);
                self.store_after_load(line);
            }
            return;
        }
        self.totals.l1_misses += 1;
        let page = line >> PAGE_LINE_BITS;
        self.translate(page, write, now, sink);
        if let Some(l2) = &mut self.l2 {
            let base = l2.sets.base(coloured(line));
            let set = &mut l2.tags[base..base + l2.sets.ways];
            let t = tag(line);
            if let Some(i) = set.iter().position(|&x| x == t) {
                set.copy_within(0..i, 1);
                set[0] = t;
                return;
            }
            let last = set.len() - 1;
            set.copy_within(0..last, 1);
            set[0] = t;
        }
        self.totals.l2_misses += 1;
        let streamed = self.streams(line);
        if llc.touch(line) {
            return;
        }
        if write {
            self.totals.write_misses += 1;
        } else {
            self.totals.read_misses += 1;
            self.fetched[self.next_fetched] = line;
            self.next_fetched = (self.next_fetched + 1) % FETCHED;
        }
        let row = self.row(page, now, sink);
        if write {
            row.writes += 1;
        } else {
            row.reads += 1;
        }
        row.arg |= bit(write);
        row.streamed += u32::from(streamed);
        if row.reads + row.writes >= WINDOW_MISSES {
            self.close_all(sink);
        }
    }

    /// Whether a line that L2 lacks goes on with a stream; else it begins one.
    #[inline]
    fn streams(&mut self, line: u64) -> bool {
        if let Some(s) = self.streams.iter_mut().find(|s| **s == line) {
            *s = line + 1;
            return true;
        }
        self.streams[self.next_stream] = line + 1;
        self.next_stream = (self.next_stream + 1) % STREAMS;
        false
    }

    /// A store to a line that a load brought: what is fetched for a load so far is
    /// fetched for a store then.
    #[inline]
    fn store_after_load(&mut self, line: u64) {
        let Some(f) = self.fetched.iter_mut().find(|f| **f == line) else { return };
        *f = EMPTY;
        let page = line >> PAGE_LINE_BITS;
        let open = (0..self.used).map(|i| (self.first + i) % WINDOW);
        if let Some(at) = open.into_iter().find(|&at| self.open[at].page == page) {
            let row = &mut self.open[at];
            if row.reads > 0 {
                row.reads -= 1;
                row.writes += 1;
                self.totals.read_misses -= 1;
                self.totals.write_misses += 1;
            }
        }
    }

    /// As [`touch_dirty`], on the two parts of L1.
    #[inline]
    fn touch_l1(&mut self, line: u64, write: bool) -> u64 {
        let dirty = u64::from(write);
        let set = line as usize % L1_SETS;
        let latest = &mut self.latest[set];
        let old = *latest;
        if old >> 1 == line {
            *latest = old | dirty;
            return old;
        }
        if self.l1_ways == 1 {
            *latest = line << 1 | dirty;
            return EMPTY;
        }
        let mut carried = std::mem::replace(&mut self.second[set], old);
        if carried >> 1 == line {
            *latest = carried | dirty;
            return carried;
        }
        let n = self.l1_ways - 2;
        let older = &mut self.older[set * n..set * n + n];
        for way in older {
            let old = std::mem::replace(way, carried);
            if old >> 1 == line {
                *latest = old | dirty;
                return old;
            }
            carried = old;
        }
        *latest = line << 1 | dirty;
        EMPTY
    }

    /// Finds the page in the TLB; sees to it that the page has a row in this epoch.
    #[inline]
    fn translate(&mut self, page: u64, write: bool, now: u64, sink: &mut impl Sink) {
        let key = page << 1 | u64::from(write);
        if key == self.last_page {
            return;
        }
        self.last_page = key;
        let base = self.tlb.sets.base(page);
        let set = &mut self.tlb.tags[base..base + self.tlb.sets.ways];
        let old = touch_dirty(set, page, write);
        if old == EMPTY {
            self.totals.tlb_misses += 1;
        } else if !write || old & DIRTY != 0 {
            return;
        }
        // Page numbers are below 2^52, so that the flags fit above; 0 is an empty entry.
        let noted = &mut self.noted[page as usize & (NOTED - 1)];
        let had = if *noted << 2 >> 2 == page { *noted >> 62 } else { 0 };
        if had & bit(write) == 0 {
            *noted = page | (had | bit(write)) << 62;
            self.row(page, now, sink).arg |= bit(write);
        }
    }

    /// The open row of a page, opened if need be.
    #[inline]
    fn row(&mut self, page: u64, now: u64, sink: &mut impl Sink) -> &mut Open {
        if self.used > 0 && now.saturating_sub(self.open[self.first].at) > WINDOW_INSNS {
            self.close_all(sink);
        }
        for i in 0..self.used {
            let at = (self.first + i) % WINDOW;
            if self.open[at].page == page {
                return &mut self.open[at];
            }
        }
        if self.used == WINDOW {
            sink.row(self.open[self.first].closed(), &self.totals);
            self.first = (self.first + 1) % WINDOW;
            self.used -= 1;
        }
        let at = (self.first + self.used) % WINDOW;
        self.used += 1;
        self.open[at] = Open { page, at: now, ..Open::default() };
        &mut self.open[at]
    }

    /// Closes all open rows.
    pub fn close_all(&mut self, sink: &mut impl Sink) {
        for i in 0..self.used {
            sink.row(self.open[(self.first + i) % WINDOW].closed(), &self.totals);
        }
        self.first = 0;
        self.used = 0;
    }

    /// Forgets translations and what the first level holds, so that a page that
    /// is only ever found there still gets a row. At most 1 TLB refill per page and
    /// epoch is too much.
    fn new_epoch(&mut self, now: u64) {
        self.epoch_end = (now / EPOCH_INSNS + 1) * EPOCH_INSNS;
        self.forget();
    }

    /// A forked child begins with its parent's caches and counts of its own.
    pub fn restart(&mut self) {
        self.totals = Totals::default();
        self.epoch_end = EPOCH_INSNS;
        self.forget();
    }

    /// As at the beginning of an epoch; also after a fork and where the address space changes.
    pub fn forget(&mut self) {
        self.latest.fill(EMPTY);
        self.second.fill(EMPTY);
        self.older.fill(EMPTY);
        self.tlb.tags.fill(EMPTY);
        self.noted.fill(0);
        self.last_page = EMPTY;
    }
}

#[inline]
fn bit(write: bool) -> u64 {
    if write { ARG_WRITE } else { ARG_READ }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Rows(Vec<Open>);
    impl Sink for Rows {
        fn row(&mut self, row: Open, _: &Totals) {
            self.0.push(row);
        }
    }

    const SMALL: Geometry = Geometry { l1: (8192, 2), l2: (16384, 4), llc: (65536, 16), tlb: 64 };

    struct Run {
        core: Core,
        llc: Llc,
        rows: Rows,
        now: u64,
    }
    impl Run {
        fn new(g: &Geometry) -> Self {
            Self { core: Core::new(g), llc: Llc::new(g), rows: Rows::default(), now: 0 }
        }
        fn go(&mut self, line: u64, write: bool) {
            self.now += 1;
            let load = u8::from(!write);
            // A recorder asks for the second where there is one thread.
            let lone = self.now % 3 == 0;
            let done = match self.core.look(line, load) {
                Look::Done => true,
                Look::Further => lone && self.core.look_second(line, load),
                Look::RoundOver => {
                    self.core.count_round();
                    false
                }
            };
            if !done {
                if let Err(old) = self.core.l1(line, write) {
                    self.core.access(&self.llc, line, write, old, self.now, &mut self.rows);
                }
            }
        }
        fn end(mut self) -> (Vec<Open>, Totals) {
            self.core.close_all(&mut self.rows);
            (self.rows.0, self.core.totals)
        }
    }

    /// A slow model: a list per set, in order of use.
    struct Plain {
        sets: Vec<Vec<u64>>,
        ways: usize,
    }
    impl Plain {
        fn new(size: u64, ways: usize) -> Self {
            Self { sets: vec![Vec::new(); (size >> LINE_BITS) as usize / ways], ways }
        }
        fn touch(&mut self, line: u64) -> bool {
            let n = self.sets.len() as u64;
            let set = &mut self.sets[(line % n) as usize];
            let hit = set.iter().position(|&l| l == line).map(|i| set.remove(i)).is_some();
            set.insert(0, line);
            set.truncate(self.ways);
            hit
        }
    }

    #[test]
    fn misses_are_those_of_a_plain_model() {
        let mut run = Run::new(&SMALL);
        let (mut l1, mut l2, mut llc) =
            (Plain::new(8192, 2), Plain::new(16384, 4), Plain::new(65536, 16));
        let mut want = Totals::default();
        let mut x = 1u64;
        for _ in 0..200_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let line = 0x1_0000 + ((x >> 33) % 3000) * ((x >> 50) % 2) + (x >> 60);
            let write = (x >> 40) % 3 == 0;
            run.go(line, write);
            if !l1.touch(line) {
                want.l1_misses += 1;
                if !l2.touch(line) {
                    want.l2_misses += 1;
                    if !llc.touch(line) {
                        *(if write { &mut want.write_misses } else { &mut want.read_misses }) += 1;
                    }
                }
            }
        }
        let (rows, mut got) = run.end();
        (got.tlb_misses, got.accesses) = (0, 0);
        let (reads, writes) = (got.read_misses, got.write_misses);
        // Stores that follow a load of their line take over its miss.
        assert!(reads < want.read_misses && reads + writes == want.read_misses + want.write_misses);
        (got.read_misses, got.write_misses) = (want.read_misses, want.write_misses);
        assert_eq!(got, want);
        assert_eq!(rows.iter().map(|r| u64::from(r.reads)).sum::<u64>(), reads);
        assert_eq!(rows.iter().map(|r| u64::from(r.writes)).sum::<u64>(), writes);
        assert!(rows.windows(2).all(|w| w[0].at <= w[1].at));
    }

    #[test]
    fn streams_are_one_row_a_page_also_when_interleaved() {
        let mut run = Run::new(&SMALL);
        for i in 0..64 * 100 {
            run.go(0x10_0000 + i, false);
            run.go(0x20_0000 + i, true);
        }
        let (rows, totals) = run.end();
        assert_eq!((totals.read_misses, totals.write_misses), (6400, 6400));
        assert_eq!(rows.len(), 200);
        assert!(rows.iter().all(|r| (r.reads, r.writes, r.arg) == (64, 0, ARG_READ | ARG_STREAM)
            || (r.reads, r.writes, r.arg) == (0, 64, ARG_WRITE | ARG_STREAM)));
    }

    #[test]
    fn lines_in_no_order_are_no_stream() {
        let mut run = Run::new(&SMALL);
        for i in 0..4096u64 {
            // Every third line, and random neighbours of other pages in between.
            run.go(0x10_0000 + 3 * i, false);
            run.go(0x80_0000 + i.wrapping_mul(0x9e37_79b9) % 0x40_0000, false);
        }
        let (rows, _) = run.end();
        assert!(rows.iter().all(|r| r.arg & ARG_STREAM == 0));
    }

    #[test]
    fn a_line_that_is_loaded_and_stored_to_is_written() {
        let mut run = Run::new(&SMALL);
        run.go(0x10_0000, false);
        run.go(0x10_0000, true);
        run.go(0x20_0000, false);
        run.go(0x20_0000, true);
        run.go(0x20_0000, true);
        run.go(0x30_0000, false);
        let (rows, totals) = run.end();
        assert_eq!((totals.read_misses, totals.write_misses), (1, 2));
        let counts: Vec<_> = rows.iter().map(|r| (r.reads, r.writes)).collect();
        assert_eq!(counts, [(0, 1), (0, 1), (1, 0)]);
    }

    #[test]
    fn a_page_that_stays_in_the_caches_has_a_row_in_each_epoch() {
        let mut run = Run::new(&SMALL);
        for epoch in 0..4 {
            run.now = epoch * EPOCH_INSNS;
            for i in 0..u64::from(LOOK_UP) {
                run.go(0x500 + i % 3 * 7, false);
            }
            run.go(0x500, true);
            run.go(0x500, true);
        }
        let (rows, _) = run.end();
        for epoch in 0..4 {
            let here = rows.iter().filter(|r| r.at / EPOCH_INSNS == epoch);
            assert_eq!(here.fold(0, |a, r| a | r.arg), ARG_READ | ARG_WRITE, "{rows:?}");
        }
        assert!(rows.iter().all(|r| r.page == 0x500 >> PAGE_LINE_BITS));
        assert_eq!(rows.iter().map(|r| r.reads + r.writes).sum::<u32>(), 3);
    }

    #[test]
    fn a_last_level_of_odd_size_holds_what_it_should() {
        // 11 ways and 20,480 sets, as on some Xeons.
        let g = Geometry { llc: (20_480 * 11 * 64, 11), ..SMALL };
        let mut run = Run::new(&g);
        let lines = 20_480 * 11 * 6 / 10;
        for _ in 0..3 {
            for l in 0..lines {
                run.go(0x4_0000 + l, false);
            }
        }
        let misses = run.core.totals.read_misses;
        assert!((lines..lines + lines / 20).contains(&misses), "{misses} misses for {lines} lines");
    }
}
