//! Colloid, by Vuppalapati and Agarwal (SOSP'24), on HeMem's counts, by the paper's rule: not the
//! hottest pages belong in the fast tier but as many accesses as make both tiers answer equally fast.
//!
//! ```text
//! p  share of the accesses that the fast tier serves    L  latency under load, by tier
//! L fast < L slow: p is too small, low mark up to p     else: high mark down to p
//! wanted: p half way between the marks; pairs of pages move whose counts differ by no more
//! ```
//!
//! Worked example: marks 0 and 1, p 0.8, the fast tier answers after 250 ns and the slow one after
//! 150: the high mark falls to 0.8, and p should be 0.4. The hottest page of the fast tier that has
//! no more than 0.4 of all counts changes places with the coldest of the slow tier.
//!
//! Left out: HeMem's thresholds (the pairs make them needless, as in the paper). Latencies are told by
//! the machine, as the counters of its memory controllers would; shares are of samples, not of the
//! same counters. Sorting takes no time here, a core in the paper's runs; the thread that asks for
//! samples without pause runs where a column asks for it (`colloid+busy=y`).
//!
//! Source: specs/compare.md#colloid.

use super::chunks::{CHUNK, Chunks, Key};
use super::hemem::Counted;
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::order::Order;
use homenode_core::policy::seen::Seen;
use homenode_core::policy::{Ledger, Policy};
use homenode_core::topology::Hardware;
use homenode_core::units::{LINE_SIZE, PAGE_SIZE, Picos};
use homenode_machine::Caps;

/// Time between two decisions.
const QUANTUM: Picos = Picos::from_ms(10);
/// Weight of a quantum in averages.
const WEIGHT: f64 = 1.0 / 16.0;
/// Below this distance of the marks, one is in the way.
const EPSILON: f64 = 0.01;
/// Latencies that differ by less are equal.
const DELTA: f64 = 0.05;
/// Bytes moved in a quantum at most.
const MOST: u64 = 100 << 20;
/// Threads that never sleep: the one that asks the rings of samples. The one that decides sorts all
/// pages and sleeps for what is left of 10 ms.
///
/// Source: webglider/hemem, branch exp-icelake, `src/pebs.c` (`pebs_scan_thread`,
/// `pebs_policy_thread`).
const BUSY: u32 = 1;

struct Colloid {
    chunks: Chunks<Counted>,
    epoch: u32,
    /// Accesses in this quantum, by tier; and averages of a quantum.
    now: [f64; 2],
    mean: [f64; 2],
    latency: [f64; 2],
    low: f64,
    high: f64,
    began: Picos,
    next: Picos,
}

/// How the share of the fast tier is to change: up is positive.
fn wanted(p: f64, latency: [f64; 2], low: &mut f64, high: &mut f64) -> f64 {
    let [fast, slow] = latency;
    if (fast - slow).abs() < DELTA * fast {
        return 0.0;
    }
    let up = fast < slow;
    // A mark that p has crossed says nothing any more.
    if p < *low {
        *low = 0.0;
    }
    if p > *high {
        *high = 1.0;
    }
    if up {
        *low = p
    } else {
        *high = p
    };
    if *high - *low < EPSILON {
        if up {
            *high = 1.0
        } else {
            *low = 0.0
        };
    }
    (*low + *high) / 2.0 - p
}

impl Colloid {
    fn quantum(&mut self, took: Picos) {
        let share = |t: usize| f64::from(self.chunks.loads[t].unwrap_or(1000)) / 1000.0;
        for t in 0..2 {
            let latency = self.chunks.tiers.latency[t].0 as f64 * share(t);
            let blend = |mean: f64, now: f64| mean + (now - mean) * WEIGHT;
            let first = self.latency[t] == 0.0;
            self.latency[t] = if first { latency } else { blend(self.latency[t], latency) };
            self.mean[t] = blend(self.mean[t], std::mem::take(&mut self.now[t]));
        }
        let all = self.mean[0] + self.mean[1];
        if all <= 0.0 || self.chunks.moving() > 0 {
            return;
        }
        let p = self.mean[0] / all;
        let mut left = wanted(p, self.latency, &mut self.low, &mut self.high);
        // In a quantum no more may move than what it should bring of accesses.
        let bytes = left.abs() * all * LINE_SIZE as f64 * QUANTUM.0 as f64 / took.0.max(1) as f64;
        let chunk = (CHUNK * PAGE_SIZE) as f64;
        let mut moves = (bytes.min(MOST as f64) / chunk).floor().max(0.0) as u64;
        // Less than a page a quantum adds up to one: the rest is drawn out over quanta.
        if moves == 0 && left.abs() > EPSILON {
            moves = 1;
        }
        let total: u64 = self.chunks.all.values().map(|c| u64::from(c.own.now(self.epoch))).sum();
        let counts = |of_fast: bool| -> Vec<(u32, Key)> {
            let here =
                self.chunks.all.iter().filter(|(_, c)| c.fast() == Some(of_fast) && !c.on_its_way);
            let mut all: Vec<_> = here.map(|(k, c)| (c.own.now(self.epoch), *k)).collect();
            all.sort();
            all
        };
        let up = left > 0.0;
        // From where heat goes, the hottest first; to where it goes, the coldest first.
        let (mut from, to) = (counts(!up), counts(up));
        from.reverse();
        let mut to = to.into_iter();
        let mut free = self.chunks.free / CHUNK as i64;
        for (count, key) in from {
            if moves == 0 || count == 0 {
                break;
            }
            // The largest that is not too large.
            let mine = f64::from(count) / total.max(1) as f64;
            if mine > left.abs() {
                continue;
            }
            let room = !up || free > 0;
            let other = if room && up { None } else { to.next() };
            let (theirs, other) = match other {
                Some((c, k)) if c < count => (f64::from(c) / total.max(1) as f64, Some((c, k))),
                Some(_) => break,
                None if room => (0.0, None),
                None => break,
            };
            if up {
                if let Some((_, other)) = other {
                    self.chunks.shift(other, false);
                } else {
                    free -= 1;
                }
                self.chunks.shift(key, true);
            } else {
                self.chunks.shift(key, false);
                // What nobody counts stays where it is.
                if let Some((_, other)) = other.filter(|(c, _)| *c > 0) {
                    self.chunks.shift(other, true);
                }
            }
            left -= (mine - theirs) * left.signum();
            moves -= 1;
        }
    }
}

impl Policy for Colloid {
    fn handle(&mut self, now: Picos, seen: &[Seen]) {
        let (mut epoch, counted) = (self.epoch, &mut self.now);
        self.chunks.take(seen, |_, chunk, period| {
            epoch += u32::from(chunk.own.add(epoch));
            if let Some(fast) = chunk.fast() {
                counted[usize::from(!fast)] += period as f64;
            }
        });
        self.epoch = epoch;
        if now >= self.next {
            self.quantum(Picos(now.0 - self.began.0));
            (self.began, self.next) = (now, now + QUANTUM);
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
    fn needs_load(&self) -> bool {
        true
    }
}

pub(super) fn make(machine: &Hardware, _: KernelVersion, _: &Caps) -> Box<dyn Policy> {
    Box::new(Colloid {
        chunks: Chunks::new(machine),
        epoch: 0,
        now: [0.0; 2],
        mean: [0.0; 2],
        latency: [0.0; 2],
        low: 0.0,
        high: 1.0,
        began: Picos::ZERO,
        next: Picos::ZERO,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The module's example, and what follows it.
    #[test]
    fn marks_close_in_on_the_share_at_which_both_answer_alike() {
        let (mut low, mut high) = (0.0, 1.0);
        let d = wanted(0.8, [250.0, 150.0], &mut low, &mut high);
        assert!((d + 0.4).abs() < 1e-9 && high == 0.8, "{d}");
        let d = wanted(0.4, [100.0, 200.0], &mut low, &mut high);
        assert!((d - 0.2).abs() < 1e-9 && low == 0.4, "{d}");
        assert_eq!(wanted(0.6, [150.0, 155.0], &mut low, &mut high), 0.0, "near enough");
        // Marks that meet open up on the side that is asked for.
        (low, high) = (0.5, 0.505);
        let d = wanted(0.502, [100.0, 200.0], &mut low, &mut high);
        assert!(high == 1.0 && d > 0.2, "{d}");
    }
}
