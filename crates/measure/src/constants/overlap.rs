//! What overlaps on one core: updates of lines in no order, and how far apart in
//! instructions two loads may be.
//!
//! The window: two walks along chains, a step of one, so many instructions that wait for
//! nothing, a step of the other, as many again. While both steps are within the window
//! they wait together, and a turn takes one latency; beyond it they wait in turn, and it
//! takes two.
//!
//! ```text
//! window 8   load A ++++ load B ++++     both wait at once
//!            load A ++++++++++ load B    B is taken up when A is done
//! ```
//!
//! Three of four filling instructions need a register for their result, as in most
//! code: on some cores registers run out before the window is full.

use super::chase::Chain;
use super::region::Region;
use super::stats::{per_operation, timed};
use homenode_core::splitmix::SplitMix;
use std::hint::black_box;
use std::time::Duration;

/// Updates in one batch.
const UPDATES: u64 = 4096;

/// Time of an update (load, change, store) of a word in a random line of the first `len`
/// bytes, each independent of the others, in picoseconds.
pub(super) fn update_time(
    region: &Region,
    len: usize,
    random: &mut SplitMix,
    slot: Duration,
) -> Option<f64> {
    let mut x = random.next();
    let words = (len.min(region.len()) / 8) as u64;
    if words <= 1 << 22 {
        // What fits into a cache is there before the first batch counts.
        for _ in 0..words / UPDATES + 1 {
            x = updates(region, words, x);
        }
    }
    per_operation(slot, || Some(timed(UPDATES, || x = updates(region, words, x))))
}

#[inline(never)]
fn updates(region: &Region, words: u64, mut x: u64) -> u64 {
    assert!(words <= (region.len() / 8) as u64);
    let start = region.start().cast::<u64>();
    for _ in 0..UPDATES {
        // A hash of a count: no update waits for the number before its own.
        x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = x;
        z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let i = ((u128::from(z) * u128::from(words)) >> 64) as usize;
        // SAFETY: `i` is below the number of words of the region, which is writable and
        // in which nobody holds a reference.
        unsafe { *start.add(i) ^= x };
    }
    black_box(x)
}

/// How many filling instructions are tried between two loads.
pub(super) const DISTANCES: [u64; 14] =
    [32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 384, 448, 512, 640];

/// Turns in one batch.
const TURNS: u64 = 512;

/// Time in picoseconds of a turn: two steps with `distance` instructions after each, one
/// of [`DISTANCES`]. `None` on processors whose instructions we do not write down.
///
/// * `at` – places in the chain, such as [`Chain::opposite`]; the walks go on from there,
///   so that they do not come upon lines of the time before.
pub(super) fn turn_time(
    _chain: &Chain<'_>,
    at: &mut [usize; 2],
    distance: u64,
    slot: Duration,
) -> Option<f64> {
    let [a, b] = at;
    macro_rules! by_distance {
        ($($n:literal)*) => {
            match distance {
                $($n => per_operation(slot, || {
                    turn_known().then(|| timed(TURNS, || (*a, *b) = turns::<{ $n / 4 }>(*a, *b)))
                }),)*
                _ => None,
            }
        };
    }
    by_distance!(32 64 96 128 160 192 224 256 288 320 384 448 512 640)
}

/// Whether [`turns`] does what it should on this processor.
const fn turn_known() -> bool {
    cfg!(target_arch = "x86_64")
}

/// [`TURNS`] turns from two places of a chain; `FOURS` times four filling instructions.
#[inline(never)]
fn turns<const FOURS: usize>(mut a: usize, mut b: usize) -> (usize, usize) {
    let (mut x, mut y, mut z, one) = (0u64, 0u64, 0u64, black_box(1u64));
    for _ in 0..TURNS {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `a` and `b` are addresses in a chain, whose lines hold addresses of its
        // lines; the rest are additions between registers.
        unsafe {
            std::arch::asm!(
                "mov {a}, [{a}]",
                ".rept {fours}", "add {x}, {one}", "add {y}, {one}", "cmp {y}, {one}", "add {z}, {one}", ".endr",
                "mov {b}, [{b}]",
                ".rept {fours}", "add {x}, {one}", "add {y}, {one}", "cmp {y}, {one}", "add {z}, {one}", ".endr",
                a = inout(reg) a, b = inout(reg) b, x = inout(reg) x, y = inout(reg) y,
                z = inout(reg) z, one = in(reg) one, fours = const FOURS,
                options(readonly, nostack));
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            (x, y, z) = (x + one, y + one, z + FOURS as u64);
        }
    }
    black_box((x, y, z));
    black_box((a, b))
}

#[cfg(test)]
mod tests {
    use super::super::chase::Stride;
    use super::super::region::PageKind;
    use super::*;

    #[test]
    fn updates_stay_within_the_region_and_turns_within_the_chain() {
        let region = Region::map(2 << 20, PageKind::Base, None, false).unwrap();
        let chain = Chain::build(&region, Stride::Dense, 96, &mut SplitMix::new(1), &mut vec![]);
        for n in DISTANCES {
            let mut at = chain.opposite();
            let time = turn_time(&chain, &mut at, n, Duration::ZERO);
            assert_eq!(time.is_some(), turn_known(), "{n}");
        }
        assert!(turn_time(&chain, &mut chain.opposite(), 33, Duration::ZERO).is_none());
        let [a, b] = chain.opposite();
        assert_ne!(a, b);
        let (c, d) = turns::<8>(a, b);
        assert!(!turn_known() || (chain.holds(c) && chain.holds(d)));
        assert!(update_time(&region, usize::MAX, &mut SplitMix::new(1), Duration::ZERO).is_some());
    }
}
