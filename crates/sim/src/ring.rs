//! Rings between those who see an event and homenode that reads it: bounded, with
//! a count of what did not fit.

use crate::hot::OP_PAGE;
use crate::memory::{BLOCK, Block};
use homenode_core::offcore::Offcore;
use homenode_core::units::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// Records that a ring holds: 1 MiB of 64 bytes each, an ordinary size for one.
pub(crate) const RING: usize = 16_384;

/// A bounded ring.
#[derive(Clone, Debug)]
pub(crate) struct Ring<T> {
    full: usize,
    records: Vec<T>,
    /// Records that did not fit since the last reading.
    lost: u64,
}

impl<T> Ring<T> {
    pub(crate) fn new(full: usize) -> Self {
        Self { full, records: Vec::new(), lost: 0 }
    }
    fn put(&mut self, record: T) {
        if self.records.len() < self.full {
            self.records.push(record);
        } else {
            self.lost += 1;
        }
    }
    pub(crate) fn is_half_full(&self) -> bool {
        self.records.len() >= self.full / 2
    }
    /// Everything that is in it, oldest first, and how many were lost.
    pub(crate) fn drain(&mut self) -> (Vec<T>, u64) {
        (std::mem::take(&mut self.records), std::mem::take(&mut self.lost))
    }
}

/// A hint fault as an observer in the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FaultSeen {
    pub(crate) space: usize,
    pub(crate) vpn: u64,
    /// Node of the CPU.
    pub(crate) from: NodeId,
    /// Node of the page.
    pub(crate) on: NodeId,
    /// Milliseconds since the scan, where the page carries its time.
    pub(crate) after_ms: Option<u32>,
}

/// An observer of hint faults.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    /// Address spaces that are watched; the others' faults are passed over.
    pub(crate) watched: BTreeSet<usize>,
    pub(crate) ring: Ring<FaultSeen>,
    /// What a fault costs more, in picoseconds.
    each: u64,
    /// What all of them have cost the programs.
    pub(crate) spent: u64,
}

impl Probe {
    pub(crate) fn new(each: u64) -> Self {
        Self { watched: BTreeSet::new(), ring: Ring::new(RING), each, spent: 0 }
    }
    /// A fault; what looking on costs the faulting task.
    pub(crate) fn fault(&mut self, seen: FaultSeen) -> u64 {
        if self.watched.contains(&seen.space) {
            self.ring.put(seen);
        }
        self.spent += self.each;
        self.each
    }
}

/// An access that the performance-monitoring unit has sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampleSeen {
    pub(crate) space: usize,
    pub(crate) vpn: u64,
    /// Node of the CPU.
    pub(crate) from: NodeId,
    /// For how many accesses it stands.
    pub(crate) period: u64,
    /// Who answered it; `None`: memory that is gone by now.
    pub(crate) answered: Option<Answered>,
}

/// Which node answered an access, and how late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    /// The place of the node.
    pub(crate) by: u16,
    /// Of the unloaded latency, in thousandths.
    pub(crate) took: u32,
}

/// One in so many accesses of a CPU. A prime, so that no loop of the usual lengths
/// shows the same pages again and again. Where no policy asks for another.
pub(crate) const PERIOD: u64 = 10_007;

/// The performance-monitoring unit: on each CPU a counter of accesses that the
/// watched programs make, and where somebody asks for them, counters of their loads.
///
/// It counts accesses, not time, so that slow ones are not seen more often than
/// fast ones.
#[derive(Clone, Debug)]
pub(crate) struct Pmu {
    /// Address spaces that are watched, each with what was counted of its loads since the last
    /// reading.
    watched: BTreeMap<usize, Offcore>,
    /// Whether loads are counted.
    pub(crate) counts_loads: bool,
    pub(crate) ring: Ring<SampleSeen>,
    /// One in so many accesses; at least 1.
    period: u64,
    /// Per place of a CPU: accesses until the next sample; at least 1.
    left: Vec<u64>,
    each: u64,
    pub(crate) spent: u64,
    /// What single accesses wait differs: the state of what says by how much.
    waits: u64,
    /// Samples of all programs since the last tick, if rules inside the kernel want them.
    for_kernel: Option<Vec<SampleSeen>>,
}

impl Pmu {
    pub(crate) fn new(cpus: usize, each: u64) -> Self {
        let ring = Ring::new(RING);
        let left = vec![PERIOD; cpus];
        Self {
            watched: BTreeMap::new(),
            counts_loads: false,
            ring,
            period: PERIOD,
            left,
            each,
            spent: 0,
            waits: 1,
            for_kernel: None,
        }
    }
    /// Begins to look at an address space, or looks at it no more and keeps nothing of it.
    pub(crate) fn watch(&mut self, space: usize, on: bool) {
        if on {
            self.watched.entry(space).or_default();
        } else {
            self.watched.remove(&space);
        }
    }
    pub(crate) fn watches(&self, space: usize) -> bool {
        self.watched.contains_key(&space)
    }
    /// Loads of a task in an address space.
    pub(crate) fn count_loads(&mut self, space: usize, loads: &Offcore) {
        if let Some(counted) = self.watched.get_mut(&space).filter(|_| self.counts_loads) {
            counted.take_over(loads);
        }
    }
    /// What was counted of an address space since the last reading; `None` where nothing is.
    pub(crate) fn read_loads(&mut self, space: usize) -> Option<Offcore> {
        self.watched.get_mut(&space).filter(|_| self.counts_loads).map(std::mem::take)
    }
    /// Of rules inside the kernel, for which all programs are sampled.
    pub(crate) fn of_kernel(cpus: usize, each: u64) -> Self {
        Self { for_kernel: Some(Vec::new()), ..Self::new(cpus, each) }
    }
    /// Samples one in so many from now on.
    pub(crate) fn sample_every(&mut self, period: u64) {
        let period = period.max(1);
        if period != self.period {
            self.period = period;
            self.left.iter_mut().for_each(|left| *left = (*left).min(period));
        }
    }
    /// What rules inside the kernel have not been told yet.
    pub(crate) fn take_for_kernel(&mut self) -> Vec<SampleSeen> {
        self.for_kernel.as_mut().map(std::mem::take).unwrap_or_default()
    }
    /// A burst of operations that a task has done on a CPU, after the fact: their
    /// number is known, so that the loop which makes them counts nothing. What the
    /// samples among them cost the task.
    ///
    /// * `answers` – by whom a page's accesses are answered, and how late in the mean.
    pub(crate) fn burst(
        &mut self,
        at: (usize, NodeId),
        space: usize,
        ops: &[u32],
        blocks: &[Block],
        answers: impl Fn(u32) -> Option<Answered>,
    ) -> u64 {
        self.sample(at, space, ops.len() as u64, |nth| {
            let page = ops[nth as usize] & OP_PAGE;
            let step = blocks[(page / BLOCK) as usize].step;
            (step * u64::from(BLOCK) + u64::from(page % BLOCK), answers(page))
        })
    }
    /// `n` accesses to one page.
    pub(crate) fn accesses(
        &mut self,
        at: (usize, NodeId),
        space: usize,
        (vpn, answered): (u64, Option<Answered>),
        n: u64,
    ) -> u64 {
        self.sample(at, space, n, |_| (vpn, answered))
    }
    /// What one access takes of which all take `mean`: what load adds is anything up to twice of
    /// what it adds in the mean.
    fn one_of(&mut self, mean: Answered) -> Answered {
        // Knuth's generator of 64 bits (MMIX); its upper bits are good enough for this.
        self.waits = self.waits.wrapping_mul(6_364_136_223_846_793_005);
        self.waits = self.waits.wrapping_add(1_442_695_040_888_963_407);
        let added = u64::from(mean.took.saturating_sub(1000)) * 2;
        let part = ((u128::from(self.waits) * u128::from(added + 1)) >> 64) as u64;
        Answered { took: u32::try_from(1000 + part).unwrap_or(u32::MAX), ..mean }
    }
    /// Samples among the next `n` accesses of a CPU; `access` says where the nth of them,
    /// from 0, went, and who answered.
    fn sample(
        &mut self,
        (cpu, from): (usize, NodeId),
        space: usize,
        n: u64,
        access: impl Fn(u64) -> (u64, Option<Answered>),
    ) -> u64 {
        let watched = self.watches(space);
        if !watched && self.for_kernel.is_none() {
            return 0;
        }
        let mut at = self.left[cpu];
        let mut cost = 0;
        while at <= n {
            let (vpn, answered) = access(at - 1);
            let answered = answered.map(|mean| self.one_of(mean));
            let seen = SampleSeen { space, vpn, from, period: self.period, answered };
            if watched {
                self.ring.put(seen);
            }
            if let Some(samples) = &mut self.for_kernel {
                samples.push(seen);
            }
            cost += self.each;
            at += self.period;
        }
        self.left[cpu] = at - n;
        self.spent += cost;
        cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_period_th_access_is_a_sample_however_the_bursts_lie() {
        let blocks = [Block { space: 1, step: 7, file: false, huge: false, table: false }; 1];
        let ops: Vec<u32> = (0..PERIOD as u32 * 3).map(|i| i % 512).collect();
        let cut = |sizes: &[usize]| {
            let mut p = Pmu::new(2, 5);
            p.watch(0, true);
            let (mut at, mut cost) = (0, 0);
            for &n in sizes.iter().cycle() {
                let end = (at + n).min(ops.len());
                cost += p.burst((1, NodeId(0)), 0, &ops[at..end], &blocks, |_| None);
                at = end;
                if at == ops.len() {
                    break;
                }
            }
            assert_eq!((p.spent, cost), (15, 15));
            p.ring.drain().0.iter().map(|s| s.vpn).collect::<Vec<u64>>()
        };
        let nth = |k: u64| 7 * 512 + (k * PERIOD - 1) % 512;
        assert_eq!(cut(&[ops.len()]), [nth(1), nth(2), nth(3)]);
        assert_eq!(cut(&[1, 7, 1024]), cut(&[ops.len()]));
        // One access after the other is the same as a row of them to one page.
        let mut p = Pmu::new(1, 0);
        p.watch(3, true);
        p.accesses((0, NodeId(0)), 3, (9, None), PERIOD - 1);
        assert_eq!(p.ring.drain().0, []);
        p.accesses((0, NodeId(0)), 3, (9, None), 1 + PERIOD);
        assert_eq!(p.ring.drain().0.len(), 2);
        p.accesses((0, NodeId(0)), 4, (9, None), 5 * PERIOD);
        assert_eq!(p.ring.drain().0, [], "nobody watches this one");
        // A shorter period counts at once, and each sample says what it stands for.
        p.sample_every(100);
        p.accesses((0, NodeId(0)), 3, (9, None), 1000);
        let seen = p.ring.drain().0;
        assert_eq!((seen.len(), seen[0].period), (10, 100));
    }

    #[test]
    fn what_load_adds_differs_from_access_to_access_and_is_right_in_the_mean() {
        let mut p = Pmu::new(1, 0);
        p.watch(3, true);
        p.sample_every(1);
        for (mean, least, most) in [(1000, 1000, 1000), (3000, 1000, 5000)] {
            let answered = Some(Answered { by: 1, took: mean });
            p.accesses((0, NodeId(0)), 3, (9, answered), 4000);
            let samples = p.ring.drain().0;
            let took: Vec<u32> = samples.iter().flat_map(|s| s.answered).map(|a| a.took).collect();
            assert!(took.iter().all(|t| (least..=most).contains(t)));
            let sum: u64 = took.iter().map(|t| u64::from(*t)).sum();
            assert!((sum / 4000).abs_diff(u64::from(mean)) <= u64::from(mean) / 20, "{sum}");
            assert!(mean == 1000 || took.iter().any(|t| *t < 1500 || *t > 4500), "it differs");
        }
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let mut r = Ring::new(2);
        for i in 0..5 {
            r.put(i);
        }
        assert_eq!(r.drain(), (vec![0, 1], 3));
        r.put(9);
        assert_eq!(r.drain(), (vec![9], 0));
    }
}
