//! HeMem, by Raybuck and others (SOSP'21), as its published code has it: samples are counted by 2
//! MiB page; from eight samples on a page is hot, at eighteen all counts are halved; every 10 ms
//! hot pages of the slow tier go up, each against the page that has been cold in the fast tier for
//! longest, as long as there is one.
//!
//! Left out: stores count as loads (samples here don't tell; the code has a threshold of 4 for them
//! and prefers written pages); copies by four threads or DMA (one thread moves here); memory below 1
//! GiB a mapping, which HeMem leaves in the fast tier. Its two busy threads run where a column asks for
//! them (`hemem+busy=y`).
//!
//! Source: specs/compare.md#hemem.

use super::chunks::{Chunk, Chunks, Key};
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::order::Order;
use homenode_core::policy::seen::Seen;
use homenode_core::policy::{Ledger, Policy};
use homenode_core::topology::Hardware;
use homenode_core::units::Picos;
use homenode_machine::Caps;
use std::collections::{BTreeSet, VecDeque};

/// Samples from which on a page is hot.
const HOT: u32 = 8;
/// Samples of one page at which all are halved.
const COOLING: u32 = 18;
/// Time between two passes.
const PASS: Picos = Picos::from_ms(10);
/// Threads that never sleep: one asks the rings of samples, one the lists of hot and cold pages.
///
/// Source: webglider/hemem, branch sosp-submission, `src/pebs.c` (`pebs_scan_thread`,
/// `pebs_policy_thread`). In the later branch sosp24ae the second one sleeps for what is left of 10 ms.
const BUSY: u32 = 2;

/// Counts of a page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    samples: u32,
    /// The cooling up to which they are right.
    epoch: u32,
}

impl Counted {
    /// Samples by now, after `epoch` coolings.
    pub(super) fn now(&self, epoch: u32) -> u32 {
        self.samples.checked_shr(epoch - self.epoch).unwrap_or(0)
    }
    /// One more sample; whether it calls for cooling.
    pub(super) fn add(&mut self, epoch: u32) -> bool {
        self.samples = self.now(epoch) + 1;
        self.epoch = epoch;
        self.samples >= COOLING
    }
}

struct HeMem {
    chunks: Chunks<Counted>,
    /// [`HOT`], but in a sweep.
    hot_from: u32,
    epoch: u32,
    /// Hot pages of the slow tier, and cold ones of the fast tier, in the order in which they
    /// became so.
    hot: VecDeque<Key>,
    cold: VecDeque<Key>,
    /// What is on those lists.
    listed: BTreeSet<(Key, bool)>,
    next: Picos,
}

impl HeMem {
    fn is_hot(&self, chunk: &Chunk<Counted>) -> bool {
        chunk.own.now(self.epoch) >= self.hot_from
    }
    /// Puts pages on the lists that they belong to and are not on.
    fn list(&mut self) {
        for (&key, chunk) in &self.chunks.all {
            let hot = self.is_hot(chunk);
            let belongs = match chunk.fast() {
                Some(true) => !hot,
                Some(false) => hot,
                None => false,
            };
            if belongs && !chunk.on_its_way && self.listed.insert((key, hot)) {
                if hot { &mut self.hot } else { &mut self.cold }.push_back(key);
            }
        }
    }
    /// The page at the head of a list that still belongs there.
    fn head(&mut self, hot: bool) -> Option<Key> {
        loop {
            let key = if hot { &mut self.hot } else { &mut self.cold }.pop_front()?;
            self.listed.remove(&(key, hot));
            let belongs = self.chunks.all.get(&key).is_some_and(|chunk| {
                self.is_hot(chunk) == hot && chunk.fast() == Some(!hot) && !chunk.on_its_way
            });
            if belongs {
                return Some(key);
            }
        }
    }
    fn pass(&mut self) {
        self.list();
        while let Some(up) = self.head(true) {
            let wanted = self.chunks.all[&up].pages[1] as i64;
            while self.chunks.free < wanted {
                let Some(down) = self.head(false) else {
                    // No cold page left: the hot one waits, in front.
                    self.listed.insert((up, true));
                    self.hot.push_front(up);
                    return;
                };
                self.chunks.shift(down, false);
            }
            self.chunks.shift(up, true);
        }
    }
}

impl Policy for HeMem {
    fn handle(&mut self, now: Picos, seen: &[Seen]) {
        let mut epoch = self.epoch;
        self.chunks.take(seen, |_, chunk, _| epoch += u32::from(chunk.own.add(epoch)));
        self.epoch = epoch;
        if now < self.next {
            return;
        }
        self.next = now + PASS;
        // A pass ends when its moves have.
        if self.chunks.moving() == 0 {
            self.pass();
        }
    }
    fn poll(&mut self) -> Option<Order> {
        self.chunks.poll()
    }
    fn timeout(&self) -> Option<Picos> {
        Some(self.next)
    }
    fn ledger(&self) -> &Ledger {
        self.chunks.ledger()
    }
    fn busy_threads(&self) -> u32 {
        BUSY
    }
}

pub(super) fn make(machine: &Hardware, _: KernelVersion, _: &Caps) -> Box<dyn Policy> {
    with(machine, HOT)
}

/// With another threshold.
pub(super) fn with(machine: &Hardware, hot_from: u32) -> Box<dyn Policy> {
    Box::new(HeMem {
        chunks: Chunks::new(machine),
        hot_from,
        epoch: 0,
        hot: VecDeque::new(),
        cold: VecDeque::new(),
        listed: BTreeSet::new(),
        next: Picos::ZERO,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_halved_by_missed_coolings_when_a_page_is_next_touched() {
        let mut page = Counted::default();
        let calls: Vec<bool> = (0..18).map(|_| page.add(0)).collect();
        assert_eq!(calls.iter().position(|&c| c), Some(17), "the eighteenth sample cools");
        assert_eq!((page.now(0), page.now(1), page.now(2), page.now(40)), (18, 9, 4, 0));
        assert!(!page.add(2));
        assert_eq!(page.now(2), 5);
    }
}
