//! Broadcasts of condition variables: all who wait are woken, and each looks whether what it waits
//! for is so. Who finds that it is not, waits again.
//!
//! ```text
//! task 0   ... +4, wakes 2 ─┬─┐
//! task 1   ... waits ───────┘ │ −2  has the lock first, finds something: goes on
//! task 2   ... waits ─────────┘     −2  finds nothing: waits again ...
//! ```
//!
//! What they look for is in no word of the condition variable. It may be for who comes first, as
//! an item of a queue; or for one alone, or for all. The recording tells: where of those who were woken
//! together some went on and others did not, and those who looked first went on, it is for who
//! comes first. There a broadcast gives as much as went on, and in a replay all who wait look, and who runs
//! first has it. Everywhere else it stays in recorded order: who waits for all to be done, or for
//! one thing of many, would go on too early by another's broadcast.
//!
//! Source: specs/waits.md#counts

use super::counts::{Counts, Kind, Matched, Shared};
use super::*;
use std::ops::Bound::{Excluded, Unbounded};

/// Most instructions between two waits of which the first was in vain: a look at what is waited
/// for, beside what the C library does.
const LOOK_INSNS: u64 = 1024;

/// What those have found whom broadcasts woke, where that is for who comes first.
#[derive(Default)]
pub(super) struct Looks {
    places: BTreeSet<Object>,
    /// Who found nothing, by where it has taken.
    in_vain: BTreeSet<u32>,
}

/// When those have looked whom a broadcast woke.
#[derive(Default)]
struct Broadcast {
    /// The last of those who went on, and the first of the others.
    went: Option<u64>,
    stayed: Option<u64>,
    /// The last of all.
    last: u64,
}

impl Looks {
    /// Whether what is given by broadcasts at a condition variable is for who comes first.
    pub(super) fn has(&self, place: Object) -> bool {
        self.places.contains(&place)
    }
}

impl Resolver<'_> {
    /// Finds condition variables where what broadcasts give is for who comes first.
    pub(super) fn looks(&self, shared: &[Shared], counts: &Counts) -> Looks {
        let mut looks = Looks::default();
        if shared.is_empty() {
            return looks;
        }
        let mut own: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (n, point) in (0..).zip(self.points) {
            own.entry(point.task).or_default().push(n);
        }
        let mut by: BTreeMap<(Object, u64), Broadcast> = BTreeMap::new();
        for one in shared {
            let (look, in_vain) = self.look(one, &own[&self.points[one.at as usize].task], counts);
            let of = by.entry((one.place, self.order(one.by))).or_default();
            of.last = of.last.max(look);
            if in_vain {
                looks.in_vain.insert(one.at);
                of.stayed = Some(of.stayed.map_or(look, |first| first.min(look)));
            } else {
                of.went = of.went.max(Some(look));
            }
        }
        // Who looks when there has been another may have found what that one gave.
        let next =
            |at: (Object, u64)| by.range((Excluded(at), Unbounded)).next().map(|next| *next.0);
        let is_alone = |at: (Object, u64), last: u64| {
            next(at).is_none_or(|(place, order)| place != at.0 || last < order)
        };
        // By condition variable: how often who looked first went on, and how often not.
        let mut first: BTreeMap<Object, (u64, u64)> = BTreeMap::new();
        for (&at @ (place, _), of) in &by {
            let alone = of.went.zip(of.stayed).filter(|_| is_alone(at, of.last));
            let Some((went, stayed)) = alone else { continue };
            let (so, otherwise) = first.entry(place).or_default();
            *so += u64::from(went < stayed);
            *otherwise += u64::from(went >= stayed);
        }
        let is_so = |&(_, &(so, otherwise)): &(&Object, &(u64, u64))| so > MOSTLY * otherwise;
        looks.places = first.iter().filter(is_so).map(|(&place, _)| place).collect();
        looks
    }

    /// When a task that was woken has looked, and whether it found nothing and waits again.
    ///
    /// * `own` – the task's points.
    fn look(&self, one: &Shared, own: &[u32], counts: &Counts) -> (u64, bool) {
        let began = self.points[one.at as usize].insns;
        let mut look = None;
        for &n in &own[own.partition_point(|&n| n <= one.at)..] {
            let Point { order, insns, what, .. } = self.points[n as usize];
            let is_here = what.word().map(|word| Kind::Condition.place(word) == one.place);
            let again = match what {
                _ if insns - began > LOOK_INSNS => Some(false),
                What::Release(Release::Word, _, arg) if is_here == Some(true) => {
                    Some(arg as u32 <= (arg >> 32) as u32)
                }
                What::Block(..) if is_here == Some(true) => Some(true),
                // It has the lock: once to look, and not a second time.
                What::Release(Release::Word, word, arg) if !counts.is_for_leaving(word) => {
                    let takes = arg >> 32 == 0 && arg as u32 != 0;
                    let second = takes && look.is_some();
                    look = look.or(takes.then_some(order));
                    second.then_some(false)
                }
                What::Release(Release::Word | Release::Futex | Release::Deadline, ..)
                | What::Block(Block::Futex, ..) => None,
                What::Release(..) | What::Block(..) | What::Exec | What::Exit => Some(false),
            };
            if let Some(again) = again {
                return (look.unwrap_or(self.order(one.at)), again);
            }
        }
        (look.unwrap_or(self.order(one.at)), false)
    }
}

impl Matched {
    /// What broadcasts gave is for who comes first, where that is known.
    pub(super) fn share(&mut self, looks: &Looks) {
        // By broadcast: how many went on.
        let mut gives: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for one in std::mem::take(&mut self.shared) {
            if !looks.has(one.place) {
                continue;
            }
            let (_, went) = gives.entry(one.by).or_insert((one.number, 0));
            let left = self.after.remove(&one.at).is_none();
            if looks.in_vain.contains(&one.at) {
                let waits = if left { vec![one.at] } else { one.own };
                self.waits.extend(waits.into_iter().map(|wait| (wait, (one.at, false))));
                continue;
            }
            if left {
                // It gives one more if it is that which has woken the task.
                self.left.insert(one.at, (one.number, one.by, false));
            } else {
                *went += 1;
                self.takes(one.at, (one.number, 1), Some(one.by), &one.own);
            }
        }
        let gives = gives.into_iter();
        self.after.extend(gives.map(|(by, (number, went))| (by, After::Broadcast(number, went))));
    }
}
