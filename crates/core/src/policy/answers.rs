//! How late nodes answer, by samples of accesses that say how long they took.
//!
//! ```text
//! accesses to a node: took 400, 700, 300, … ─▶ 64 of them ─▶ mean took / mean unloaded ─▶ smoothed
//! for a second no 64 of them                                                           ─▶ not known
//! ```
//!
//! Worked example: node 0 takes 100 ns without load. 64 accesses to it took 16 µs together, 250 ns
//! each: its load is 2,500 thousandths. The next 64 took 150 ns each: 1,500, and it is told
//! (3 · 2,500 + 1,500) / 4 = 2,250.
//!
//! Under load the time that a single access waits differs about as much as it is long. So 64 of them
//! tell it to about an eighth, and with those before it to a twentieth: less than what the engine
//! takes for alike.
//!
//! Source: specs/engine.md#under-load.

use crate::units::{NodeId, Picos};
use std::collections::BTreeMap;

/// So many accesses tell a mean.
const ENOUGH: u64 = 64;
/// And they have to be made in this time.
const WITHIN: Picos = Picos::from_secs(1);
/// A single access that took a thousand times as long was held up by something else.
const MOST: u64 = 1000;

/// What was told of one node.
#[derive(Clone, Copy, Debug, Default)]
struct Answer {
    /// Since it was told last, or began anew.
    since: Picos,
    nr: u64,
    took: u64,
    unloaded: u64,
    /// In thousandths of the unloaded latency, and when that was.
    load: Option<(u64, Picos)>,
}

/// What was told of all nodes.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    nodes: BTreeMap<NodeId, Answer>,
}

impl Answers {
    /// An access to `on`, which takes `unloaded` where nobody else is, took `took`, in the same unit.
    pub fn add(&mut self, on: NodeId, unloaded: u64, took: u64) {
        if unloaded == 0 || took == 0 {
            return;
        }
        let a = self.nodes.entry(on).or_default();
        a.nr += 1;
        a.unloaded = a.unloaded.saturating_add(unloaded);
        a.took = a.took.saturating_add(took.min(unloaded.saturating_mul(MOST)));
    }

    /// Latency of a node under load over the unloaded one, in thousandths; `None` where too few
    /// accesses told it lately.
    pub fn load(&mut self, now: Picos, on: NodeId) -> Option<u32> {
        let a = self.nodes.get_mut(&on)?;
        let over = |since: Picos| now.saturating_sub(since) > WITHIN;
        a.load = a.load.filter(|(_, at)| !over(*at));
        if a.nr >= ENOUGH {
            let mean = u128::from(a.took) * 1000 / u128::from(a.unloaded.max(1));
            let mean = u64::try_from(mean).unwrap_or(u64::MAX).min(1000 * MOST);
            let load = a.load.map_or(mean, |(before, _)| (3 * before + mean) / 4);
            *a = Answer { since: now, load: Some((load, now)), ..Answer::default() };
        } else if over(a.since) {
            *a = Answer { since: now, load: a.load, ..Answer::default() };
        }
        a.load.map(|(load, _)| u32::try_from(load).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(0);

    fn add(a: &mut Answers, nr: u64, took: u64) {
        (0..nr).for_each(|_| a.add(NODE, 100, took));
    }

    // The module's example.
    #[test]
    fn as_many_accesses_as_tell_a_mean_are_smoothed() {
        let (mut a, at) = (Answers::default(), Picos::from_ms);
        assert_eq!(a.load(at(0), NODE), None);
        add(&mut a, 63, 250);
        assert_eq!(a.load(at(10), NODE), None, "one too few");
        add(&mut a, 1, 250);
        assert_eq!(a.load(at(20), NODE), Some(2500));
        add(&mut a, 10, 150);
        assert_eq!(a.load(at(30), NODE), Some(2500), "it stands until there are enough");
        add(&mut a, 54, 150);
        assert_eq!(a.load(at(40), NODE), Some(2250));
        assert_eq!(a.load(at(40), NodeId(1)), None, "nothing is said of others");
    }

    #[test]
    fn what_is_old_or_odd_says_nothing() {
        let (mut a, at) = (Answers::default(), Picos::from_ms);
        add(&mut a, 64, 300);
        assert_eq!(a.load(at(0), NODE), Some(3000));
        assert_eq!(a.load(at(1000), NODE), Some(3000));
        assert_eq!(a.load(at(1001), NODE), None, "nothing new for more than a second");
        // Few a second are never enough, however long it goes on.
        for second in 2..20 {
            add(&mut a, 40, 300);
            assert_eq!(a.load(at(second * 1500), NODE), None);
        }
        // One that was held up for long does not make the node slow by itself.
        let mut a = Answers::default();
        add(&mut a, 63, 100);
        a.add(NODE, 100, u64::MAX);
        assert!(a.load(at(0), NODE).is_some_and(|load| load < 20_000));
        a.add(NODE, 0, 100);
        a.add(NODE, 100, 0);
        assert!(a.load(at(0), NODE).is_some());
    }
}
