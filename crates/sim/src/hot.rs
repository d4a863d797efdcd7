//! The hot loop: accesses that raise no event.
//!
//! An operation is a page number with the direction in the top bit. The loop
//! loads the page's word, tests state, sharing and (for a write) the write bit in
//! one comparison, sets `young` where it is clear, and adds the cost of the
//! page's zone and direction from a table of 32 entries. Everything else is an
//! event and ends the batch: a first touch, a hint fault, a write to a read-only
//! page, a shared frame, the end of the quantum. Whoever runs the loop may serve the
//! event there and then, and the loop goes on behind it.

mod rows;

use crate::page::{PRESENT, SHARED, STATE, WRITE_SHIFT, YOUNG, ZONE, ZONE_SHIFT, ZONES_MAX};
use crate::table::prefetch;
use rows::{FEW, ROW, rows};

/// The direction in an operation: set for a write.
pub(crate) const OP_WRITE: u32 = 1 << 31;
/// The page number in an operation.
pub(crate) const OP_PAGE: u32 = OP_WRITE - 1;

/// Zone and direction: `zone * 2 + write`.
pub(crate) const KINDS: usize = ZONES_MAX * 2;

/// What an access of each kind costs a task at this moment, in picoseconds, with
/// the computing between two accesses.
pub(crate) type CostTable = [u64; KINDS];

/// Counts of accesses by kind.
#[derive(Clone, Default)]
pub(crate) struct Counts([u64; KINDS]);

impl Counts {
    /// Counts one access.
    #[inline]
    pub(crate) fn add(&mut self, kind: usize) {
        self.0[kind] += 1;
    }
    /// How many there are of a kind.
    #[inline]
    pub(crate) fn get(&self, kind: usize) -> u64 {
        self.0[kind]
    }
    /// Takes over what others have counted of the first so many kinds.
    #[inline]
    pub(crate) fn take_over(&mut self, others: &mut Self, kinds: usize) {
        for (sum, other) in self.0.iter_mut().zip(&mut others.0).take(kinds) {
            *sum += std::mem::take(other);
        }
    }
    /// Takes the reads and the writes of a zone out.
    #[inline]
    pub(crate) fn take(&mut self, zone: usize) -> (u64, u64) {
        let [read, write] = [zone * 2, zone * 2 + 1].map(|k| std::mem::take(&mut self.0[k]));
        (read, write)
    }
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Its operation is still to be made.
    Left,
    /// Its operation is made, and counted.
    Served,
    /// The same, and the loop ends there.
    Last,
}

/// The pages that a loop goes to, and who serves the accesses that raise an event.
pub(crate) trait Pages {
    fn words(&mut self) -> &mut [u32];
    /// The operation behind the first `done` ones raises an event. Serving it moves `clock`
    /// on and takes over what has been counted since the last one.
    fn event(&mut self, op: u32, done: usize, counts: &mut Counts, clock: &mut u64) -> Event;
}

/// Pages at which nobody serves an event.
impl Pages for &mut [u32] {
    #[inline]
    fn words(&mut self) -> &mut [u32] {
        self
    }
    #[inline]
    fn event(&mut self, _: u32, _: usize, _: &mut Counts, _: &mut u64) -> Event {
        Event::Left
    }
}

/// Counts of one burst. Memory is the wrong place for them: most accesses are of
/// one kind, and each increment would wait for the last one's store. So they are
/// lanes of a register while there are few kinds.
trait Tally: Default {
    /// Accesses after which a lane might be full.
    const MOST: usize;
    /// Kinds that it can tell apart.
    const KINDS: usize;
    fn add(&mut self, kind: u32);
    fn get(&self, kind: usize) -> u64;
}

/// Up to `64 >> LOG` kinds, `1 << LOG` bits each.
#[derive(Default)]
struct Lanes<const LOG: u32>(u64);

impl<const LOG: u32> Lanes<LOG> {
    /// One in each lane: a load is cheaper than a shift by a variable.
    const ONE: [u64; 8] = {
        let mut one = [0; 8];
        let mut kind = 0;
        while kind < 8 && kind << LOG < 64 {
            one[kind] = 1 << (kind << LOG);
            kind += 1;
        }
        one
    };
}

impl<const LOG: u32> Tally for Lanes<LOG> {
    const MOST: usize = (1 << (1 << LOG)) - 1;
    const KINDS: usize = 64 >> LOG;
    #[inline(always)]
    fn add(&mut self, kind: u32) {
        self.0 = self.0.wrapping_add(Self::ONE[kind as usize & 7]);
    }
    #[inline(always)]
    fn get(&self, kind: usize) -> u64 {
        self.0 >> (kind << LOG) & (Self::MOST as u64)
    }
}

/// Any number of kinds, in memory: four copies that take turns.
#[derive(Default)]
struct Array([[u32; KINDS]; 4], usize);

impl Tally for Array {
    const MOST: usize = u32::MAX as usize;
    const KINDS: usize = KINDS;
    #[inline(always)]
    fn add(&mut self, kind: u32) {
        self.1 += 1;
        self.0[self.1 & 3][kind as usize % KINDS] += 1;
    }
    #[inline(always)]
    fn get(&self, kind: usize) -> u64 {
        self.0.iter().map(|c| u64::from(c[kind])).sum()
    }
}

/// How far ahead of the access its word is fetched. Beyond 24 nothing is gained
/// from 1 GiB to 1 TiB; below 12 the largest tables lose.
const AHEAD: usize = 24;
/// Bursts shorter than this cost more than timing each operation.
const WORTHWHILE: usize = 20;

/// Fetches the words of the first operations: another CPU has run meanwhile, and what
/// the loop had fetched for these is gone.
pub(crate) fn fetch_first(ops: &[u32], words: &[u32]) {
    for op in &ops[..ops.len().min(AHEAD)] {
        prefetch(words, (op & OP_PAGE) as usize);
    }
}

/// Runs operations from `ops` until one raises an event that is left, or `*clock` reaches
/// `end`. Returns how many were done.
///
/// As many operations as can't reach `end`, were each the dearest, run in one burst
/// that only counts kinds; near the end each operation is timed. The sum is the same.
///
/// * `kinds` – kinds in use: entries of `cost` from there on are 0.
#[inline]
pub(crate) fn run(
    ops: &[u32],
    pages: &mut impl Pages,
    cost: &CostTable,
    kinds: usize,
    counts: &mut Counts,
    clock: &mut u64,
    end: u64,
) -> usize {
    match kinds {
        0..=4 => bursts::<Lanes<4>>(ops, pages, cost, counts, clock, end),
        5..=8 => bursts::<Lanes<3>>(ops, pages, cost, counts, clock, end),
        _ => bursts::<Array>(ops, pages, cost, counts, clock, end),
    }
}

#[inline]
fn bursts<T: Tally>(
    ops: &[u32],
    pages: &mut impl Pages,
    cost: &CostTable,
    counts: &mut Counts,
    clock: &mut u64,
    end: u64,
) -> usize {
    // Kinds that are not in use cost nothing and are not counted.
    let dearest = cost[..T::KINDS].iter().copied().max().unwrap_or(0).max(1);
    // One division for all bursts. One that is one operation too short is no harm.
    let inverse = u64::MAX / dearest;
    let mut done = 0;
    while *clock < end && done < ops.len() {
        let most = (ops.len() - done).min(T::MOST);
        let safe = (u128::from(end - *clock) * u128::from(inverse)) >> 64;
        let safe = (safe as u64).min(most as u64) as usize;
        let mut tally = T::default();
        let timed = safe < WORTHWHILE;
        let (mut n, mut left) = if timed { (most, end - *clock) } else { (safe, u64::MAX) };
        if safe < most && !timed {
            // What would be left of a row is timed with those behind it.
            n -= n % ROW;
        }
        let (ops, words) = (&ops[done..], pages.words());
        let mut made = 0;
        let mut first = [0; FEW];
        if T::KINDS == FEW {
            (made, first) = match timed {
                true => rows::<true>(ops, n, words, cost, left),
                false => rows::<false>(ops, n, words, cost, left),
            };
            left -= if timed { first.iter().zip(cost).map(|(n, each)| n * each).sum() } else { 0 };
        }
        if made < n {
            let (ops, n) = (&ops[made..], n - made);
            made += match timed {
                true => stretch::<T, true>(ops, n, words, &mut tally, cost, left),
                false => stretch::<T, false>(ops, n, words, &mut tally, cost, left),
            };
        }
        done += made;
        for (k, (sum, each)) in counts.0.iter_mut().zip(cost).enumerate().take(T::KINDS) {
            let c = tally.get(k) + first.get(k).copied().unwrap_or(0);
            *sum += c;
            *clock += c * each;
        }
        // Stopped before its number and before the end: at an event.
        if made < n && !(timed && *clock >= end) {
            match pages.event(ops[made], done, counts, clock) {
                Event::Left => break,
                Event::Served => done += 1,
                Event::Last => {
                    done += 1;
                    break;
                }
            }
        }
    }
    done
}

/// Runs up to `n` operations; how many went without an event. With `TIMED`, ends
/// as soon as they have cost `left`; the operation that crosses it is made.
///
/// A function of its own: inside the large one the loop's values would live in memory.
#[inline(never)]
fn stretch<T: Tally, const TIMED: bool>(
    ops: &[u32],
    n: usize,
    words: &mut [u32],
    tally: &mut T,
    cost: &CostTable,
    left: u64,
) -> usize {
    let mut spent = 0;
    let mut sum = T::default();
    std::mem::swap(&mut sum, tally);
    let ahead = n.min(ops.len().saturating_sub(AHEAD));
    let mut done = 0;
    let mut stopped = false;
    for (&op, &next) in ops[..ahead].iter().zip(&ops[ops.len().min(AHEAD)..]) {
        prefetch(words, (next & OP_PAGE) as usize);
        if !access::<T, TIMED>(op, words, &mut sum, cost, &mut spent) {
            stopped = true;
            break;
        }
        done += 1;
        if TIMED && spent >= left {
            stopped = true;
            break;
        }
    }
    if !stopped {
        for &op in &ops[ahead..n] {
            if !access::<T, TIMED>(op, words, &mut sum, cost, &mut spent) {
                break;
            }
            done += 1;
            if TIMED && spent >= left {
                break;
            }
        }
    }
    std::mem::swap(&mut sum, tally);
    done
}

/// Whether an access to a page with this word raises an event.
#[inline(always)]
pub(crate) fn is_event(op: u32, word: u32) -> bool {
    // Present, not shared, and for a write writable: all in one test.
    let must = (STATE | SHARED) | (op >> 31) << WRITE_SHIFT;
    (word ^ (PRESENT | 1 << WRITE_SHIFT)) & must != 0
}

/// One access; false if it is an event.
#[inline(always)]
fn access<T: Tally, const TIMED: bool>(
    op: u32,
    words: &mut [u32],
    tally: &mut T,
    cost: &CostTable,
    spent: &mut u64,
) -> bool {
    let write = op >> 31;
    let word = &mut words[(op & OP_PAGE) as usize];
    let w = *word;
    if is_event(op, w) {
        return false;
    }
    // Always stored: while reclaim clears these bits a branch guesses wrong often.
    *word = w | YOUNG;
    let kind = ((w & ZONE) >> (ZONE_SHIFT - 1)) | write;
    tally.add(kind);
    if TIMED {
        *spent += cost[kind as usize];
    }
    true
}
