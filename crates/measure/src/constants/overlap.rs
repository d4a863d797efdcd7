//! What overlaps on one core: updates of lines in no order, those whose address a load
//! tells, and how far apart in instructions two loads may be.
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
use super::cpus;
use super::region::Region;
use super::stats::{per_operation, timed};
use homenode_core::splitmix::SplitMix;
use std::hint::black_box;
use std::time::Duration;

/// Updates in one batch.
const UPDATES: u64 = 4096;

/// Mean CPU time of an update (load, change, store) of a word in a random line of `len` bytes from byte
/// `from` of the region on, each independent of the others, in picoseconds. What is stored is what
/// was there: a chain that lies there stays.
pub(super) fn mean_update_time(
    region: &Region,
    at: (usize, usize),
    random: &mut SplitMix,
    slot: Duration,
) -> f64 {
    mean_time(region, at, random, slot, updates)
}

/// The same where each word's value tells the address that is stored to. It is the word's own: the chain
/// stays, and the core can't know.
pub(super) fn mean_told_update_time(
    region: &Region,
    at: (usize, usize),
    random: &mut SplitMix,
    slot: Duration,
) -> f64 {
    let nothing = black_box(0);
    mean_time(region, at, random, slot, |region, from, words, x| {
        told_updates(region, from, words, x, nothing)
    })
}

/// * `pass` – [`UPDATES`] of so many words from a byte of the region on; the generator's state comes and goes.
fn mean_time(
    region: &Region,
    (from, len): (usize, usize),
    random: &mut SplitMix,
    slot: Duration,
    pass: impl Fn(&Region, usize, u64, u64) -> u64,
) -> f64 {
    let len = len.min(region.len() - from);
    if len <= 64 << 20 {
        // What fits into a cache is there before the first batch counts.
        for offset in (0..len).step_by(64) {
            // SAFETY: inside of the region, which is writable and in which nobody holds a reference.
            unsafe { *region.at(from + offset).cast::<u64>() ^= black_box(0) };
        }
    }
    let mut x = random.next();
    cpus::average(slot, UPDATES, || x = pass(region, from, (len / 8) as u64, x))
}

/// Knuth's MMIX generator; its upper half is used.
#[inline(always)]
fn next(x: u64) -> u64 {
    x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// Some place among so many, fewer than 2^32.
#[inline(always)]
fn place(x: u64, words: u64) -> usize {
    (((x >> 32) * words) >> 32) as usize
}

#[inline(never)]
fn updates(region: &Region, from: usize, words: u64, mut x: u64) -> u64 {
    assert!(words >> 32 == 0, "the product of two halves fits");
    assert!(from % 8 == 0 && from as u64 / 8 + words <= region.len() as u64 / 8);
    let (start, nothing) = (region.at(from).cast::<u64>(), black_box(0));
    for _ in 0..UPDATES {
        // As few instructions as it takes: how many updates fit into a core's window is what is timed.
        x = next(x);
        let i = place(x, words);
        // SAFETY: `i` is below the number of words from there on; the region is writable, and nobody
        // holds a reference into it.
        unsafe { *start.add(i) ^= nothing };
    }
    black_box(x)
}

/// Loads a word and stores its value so many words further as its bits of `mask` say.
#[inline(never)]
fn told_updates(region: &Region, from: usize, words: u64, mut x: u64, mask: u64) -> u64 {
    assert!(words >> 32 == 0 && mask >> 32 == 0, "the product of two halves fits, and a sum");
    assert!(from % 8 == 0 && from as u64 / 8 + words + mask <= region.len() as u64 / 8);
    let start = region.at(from).cast::<u64>();
    for _ in 0..UPDATES {
        x = next(x);
        let i = place(x, words);
        // SAFETY: `i` is below the number of words from there on, and `mask` more are in the region; it
        // is writable, and nobody holds a reference into it.
        unsafe {
            let loaded = *start.add(i);
            *start.add(i + (loaded & mask) as usize) = loaded;
        }
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
        for at in [(0, usize::MAX), (1 << 20, 1 << 20), (4096, 64)] {
            mean_update_time(&region, at, &mut SplitMix::new(1), Duration::ZERO);
            mean_told_update_time(&region, at, &mut SplitMix::new(1), Duration::ZERO);
        }
        // The chain is still one.
        assert!(chain.holds(a) && chain.holds(b));
    }

    #[test]
    fn a_told_update_stores_where_the_word_says_and_measuring_leaves_all_as_it_was() {
        let region = Region::map(2 << 20, PageKind::Base, None, false).unwrap();
        let all = || 0..region.len() / 8;
        for i in all() {
            // SAFETY: inside of the region, of which nobody holds a reference.
            unsafe { *region.at(8 * i).cast::<u64>() = 3 * i as u64 };
        }
        // SAFETY: likewise.
        let now =
            || all().map(|i| unsafe { *region.at(8 * i).cast::<u64>() }).collect::<Vec<u64>>();
        let before = now();
        for at in [(0, usize::MAX), (4096, 64)] {
            mean_told_update_time(&region, at, &mut SplitMix::new(1), Duration::ZERO);
        }
        assert!(now() == before, "what is stored is what was there");
        // Odd words tell the next word's address, even ones their own.
        told_updates(&region, 0, 64, 1, 1);
        let now = now();
        assert_eq!(now[..3], [0, 3, 3], "of 64 words some update met each");
        assert!(now[65..] == before[65..]);
    }

    /// Where loads pass such stores it takes as long as another update, else longer: never less.
    #[test]
    fn a_told_update_takes_at_least_as_long_as_another() {
        let region = Region::map(64 << 20, PageKind::Huge, None, false).unwrap();
        let (random, slot) = (&mut SplitMix::new(1), Duration::from_millis(5));
        // The fastest of some: other tests run beside.
        let mut least = [f64::INFINITY; 2];
        for _ in 0..5 {
            let all = (0, usize::MAX);
            least[0] = least[0].min(mean_update_time(&region, all, random, slot));
            least[1] = least[1].min(mean_told_update_time(&region, all, random, slot));
        }
        let [plain, told] = least;
        assert!(plain > 0.0 && told > plain * 0.7, "{plain} {told}");
    }
}
