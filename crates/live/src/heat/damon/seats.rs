//! Who sits where among DAMON's targets.
//!
//! ```text
//! place     0      1    2    3    4
//! before    us     A    B    C    D         B and D end, E comes
//! after     us     A    E    C              B's place is E's, D's falls away
//! ```
//!
//! DAMON keeps a target's regions by its place: nobody who stays may change it. A place
//! that becomes free in the middle is held by homenode itself until somebody comes. Who
//! comes to such a place finds the regions of another for a while: until DAMON has fitted
//! them to the new mappings, and counted anew, they are not told.

use super::slot::UPDATE_US;
use homenode_core::policy::checks::aggregation;
use homenode_core::policy::seen::Who;
use homenode_core::units::Picos;
use std::collections::BTreeSet;

/// Aggregations after which a place has forgotten who sat there before: an update of the
/// regions, the aggregation in which it came, and one of slack.
fn forgets(every: Picos) -> u32 {
    UPDATE_US.div_ceil(aggregation(every).as_ns() / 1000) as u32 + 2
}

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    /// Who; `None` is homenode itself.
    pub(super) who: Option<Who>,
    /// Aggregations that are not to be told.
    pub(super) quiet: u32,
}

impl Seat {
    pub(super) const US: Self = Self { who: None, quiet: 0 };
}

/// Seats for `wanted` as near as can be to `now`; an empty `now` is a thread that is to
/// be started. The first is ours.
///
/// * `every` – time between two checks.
pub(super) fn plan(now: &[Seat], wanted: &BTreeSet<Who>, every: Picos) -> Vec<Seat> {
    let stays = |seat: &Seat| seat.who.is_some_and(|who| wanted.contains(&who));
    let next = now.iter().map(|seat| if stays(seat) { *seat } else { Seat::US });
    let mut next: Vec<Seat> = next.collect();
    if next.is_empty() {
        next.push(Seat::US);
    }
    let seated: BTreeSet<Who> = next.iter().filter_map(|s| s.who).collect();
    let mut free = (1..next.len()).filter(|&i| next[i].who.is_none()).collect::<Vec<_>>();
    free.reverse();
    for who in wanted.difference(&seated) {
        match free.pop() {
            Some(i) => next[i] = Seat { who: Some(*who), quiet: forgets(every) },
            None => next.push(Seat { who: Some(*who), quiet: 0 }),
        }
    }
    while next.len() > 1 && next.last().is_some_and(|s| s.who.is_none()) {
        next.pop();
    }
    next
}

/// Whether both have the same people at the same places.
pub(super) fn same(a: &[Seat], b: &[Seat]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.who == b.who)
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::policy::checks::{LONGEST, SHORTEST};
    use proptest::prelude::*;

    fn who(pid: u32) -> Who {
        Who { pid, start: 7 }
    }
    fn people(pids: &[u32]) -> BTreeSet<Who> {
        pids.iter().map(|&p| who(p)).collect()
    }
    fn shown(seats: &[Seat]) -> String {
        let one = |s: &Seat| match (s.who, s.quiet) {
            (None, _) => "us".to_owned(),
            (Some(w), 0) => w.pid.to_string(),
            (Some(w), _) => format!("{} quiet", w.pid),
        };
        seats.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_place_is_quiet_for_an_update_and_two_aggregations() {
        assert_eq!((forgets(SHORTEST), forgets(LONGEST)), (12, 4));
    }

    #[test]
    fn who_stays_keeps_his_place() {
        let first = plan(&[], &people(&[10, 11, 12, 13]), SHORTEST);
        assert_eq!(shown(&first), "us, 10, 11, 12, 13");
        let later = plan(&first, &people(&[10, 12, 20]), SHORTEST);
        assert_eq!(shown(&later), "us, 10, 20 quiet, 12");
        let hole = plan(&later, &people(&[12]), SHORTEST);
        assert_eq!(shown(&hole), "us, us, us, 12");
        assert_eq!(shown(&plan(&hole, &people(&[]), SHORTEST)), "us");
    }

    proptest! {
        #[test]
        fn everybody_sits_once_and_nobody_moves(
            rounds in proptest::collection::vec(
                proptest::collection::btree_set(1u32..12, 0..8), 1..8),
        ) {
            let mut seats = Vec::new();
            for pids in rounds {
                let wanted: BTreeSet<Who> = pids.into_iter().map(who).collect();
                let next = plan(&seats, &wanted, SHORTEST);
                prop_assert_eq!(next[0], Seat::US);
                let seated: Vec<Who> = next.iter().filter_map(|s| s.who).collect();
                prop_assert_eq!(seated.len(), wanted.len());
                prop_assert_eq!(seated.into_iter().collect::<BTreeSet<_>>(), wanted.clone());
                for (i, seat) in seats.iter().enumerate() {
                    let Seat { who: Some(w), .. } = seat else { continue };
                    prop_assert!(!wanted.contains(w) || next[i].who == Some(*w));
                }
                prop_assert!(same(&plan(&next, &wanted, SHORTEST), &next));
                seats = next;
            }
        }
    }
}
