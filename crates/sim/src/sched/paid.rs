//! What scheduler statistics cost: their statements, and the cache lines that go from CPU to CPU for them.
//!
//! ```text
//!  task's block   L1 stamps, hot anyway │ L2 sleeps, sums │ L3 maxima, nr_wakeups │ L4 kinds of wake-ups
//!                                         └── who wrote it last ── another core ──▶ the line has to come
//! ```
//!
//! What an event costs is added up until somebody pays for the event: the waker for a wake-up, who runs next for a
//! switch, who runs for a tick.
//!
//! Source: specs/schedstats.md#cost.

use homenode_core::costs::{Cost, Prices};
use homenode_core::topology::Hardware;

/// Lines of a task's block, as bits.
pub(super) const L2: u8 = 1;
pub(super) const L3: u8 = 2;
pub(super) const L4: u8 = 4;

/// Who has the lines of a task's block: the core that changed each of them last, counted from 1; 0: nobody has, since it
/// is cleared where it is needed first.
pub(super) type Lines = [u32; 3];

/// Where a CPU is.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// CPUs of one core share the first caches.
    core: u32,
    llc: u32,
}

/// What updates cost, and who has which line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paid {
    /// Picoseconds that nobody has paid yet.
    owed: u64,
    /// What of it came after a woken task's CPU knew of it.
    after: u64,
    count: u64,
    near: u64,
    far: u64,
    places: Vec<Place>,
    /// By core: its last-level cache.
    llcs: Vec<u32>,
    /// The CPU that wakes somebody.
    waker: Option<usize>,
}

impl Paid {
    pub(super) fn new(machine: &Hardware, prices: &Prices) -> Self {
        // Cores by number, whatever the machine's file calls them.
        let mut cores: Vec<(u16, u32)> = machine.cpus.iter().map(|c| (c.node.0, c.core)).collect();
        cores.sort_unstable();
        cores.dedup();
        let mut llcs = vec![0; cores.len()];
        let place = |c: &homenode_core::topology::Cpu| {
            let core = cores.binary_search(&(c.node.0, c.core)).unwrap_or(0);
            llcs[core] = c.llc;
            Place { core: core as u32, llc: c.llc }
        };
        let places = machine.cpus.iter().map(place).collect();
        Self {
            count: prices[Cost::StatsCount],
            near: prices[Cost::StatsLine],
            far: prices[Cost::StatsLineFar],
            places,
            llcs,
            ..Self::default()
        }
    }
    /// A statement takes so long from now on.
    pub(super) fn set_count(&mut self, count: u64) {
        self.count = count;
    }
    /// A CPU begins to wake a task.
    pub(super) fn wakes(&mut self, waker: Option<usize>) {
        self.waker = waker;
    }
    /// Which CPU changes a queue: a waker that does it itself, or the queue's own.
    #[inline]
    pub(super) fn enqueuer(&self, cpu: usize) -> usize {
        self.waker.unwrap_or(cpu)
    }
    /// A CPU does so many statements.
    #[inline]
    pub(super) fn counts(&mut self, statements: u64) {
        self.owed += statements * self.count;
    }
    /// A CPU does so many statements in these lines of a task's block.
    #[inline]
    pub(super) fn changes(&mut self, cpu: usize, of: &mut Lines, lines: u8, statements: u64) {
        self.owed += statements * self.count;
        let Place { core, llc } = self.places[cpu];
        for (line, has) in of.iter_mut().enumerate() {
            if lines >> line & 1 == 0 {
                continue;
            }
            let had = std::mem::replace(has, core + 1);
            if had != core + 1 && had != 0 {
                let same = self.llcs[had as usize - 1] == llc;
                self.owed += if same { self.near } else { self.far };
            }
        }
    }
    /// All that is owed since a moment is work that nobody waits for who is woken.
    pub(super) fn comes_after(&mut self, since: u64) {
        self.after += self.owed - since;
    }
    pub(super) fn owed(&self) -> u64 {
        self.owed
    }
    /// What is owed, which is paid with this; and how much of it came before a woken task's CPU knew of it.
    #[inline]
    pub(super) fn take(&mut self) -> (u64, u64) {
        let owed = std::mem::take(&mut self.owed);
        (owed, owed - std::mem::take(&mut self.after))
    }
}
