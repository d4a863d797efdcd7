//! How long something took, many times over: a histogram that grows with the
//! logarithm of the longest.
//!
//! ```text
//! nanoseconds   0 … 255     256 … 511    512 … 1023    …
//! cell's width     1            2             4         a 128th of its octave
//! ```
//!
//! So a percentile is off by less than 0.8 %. Only octaves that have something take room: a kilobyte each, and a task's
//! latencies lie in a few of the 27 up to 10 s. Of thousands of tasks most have less than an octave has cells: the first
//! few times are kept as a list of their cells.

use crate::table::prefetch_value;

/// Cells of an octave, as a power of two.
const LOG: u32 = 7;

/// The cells of an octave; the first has two of them.
type Octave = [u64; 1 << LOG];

/// So many times are kept as a list.
const FEW: usize = 32;

/// A histogram of times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    count: u64,
    sum_ps: u64,
    max_ps: u64,
    /// Up to the last that has something; `None`: it has nothing. There is none as long as there are few times.
    octaves: Vec<Option<Box<Octave>>>,
    /// The cells of few times, rising; of more nothing is here.
    few: [u16; FEW],
}

impl Latencies {
    /// Adds one time, in picoseconds.
    #[inline]
    pub fn add(&mut self, ps: u64) {
        self.count_cell(cell_of(ps / 1000));
        self.sum_ps = self.sum_ps.saturating_add(ps);
        self.max_ps = self.max_ps.max(ps);
    }
    #[inline]
    fn count_cell(&mut self, cell: usize) {
        let few = self.count as usize;
        self.count += 1;
        if few >= FEW {
            if few == FEW {
                self.spread(FEW);
            }
            return self.octave(cell >> LOG)[cell % (1 << LOG)] += 1;
        }
        // From the back: the list rises.
        let mut at = few;
        while at > 0 && usize::from(self.few[at - 1]) > cell {
            self.few[at] = self.few[at - 1];
            at -= 1;
        }
        self.few[at] = cell as u16;
    }
    /// There will be more than few: so many that are listed go to their octaves.
    #[cold]
    #[inline(never)]
    fn spread(&mut self, listed: usize) {
        let few = std::mem::replace(&mut self.few, [0; FEW]);
        for cell in few[..listed].iter().copied().map(usize::from) {
            self.octave(cell >> LOG)[cell % (1 << LOG)] += 1;
        }
    }
    /// The few times that there are, as cells; none where there are more.
    fn few(&self) -> &[u16] {
        self.few.get(..self.count as usize).unwrap_or(&[])
    }
    /// Has fetched what one more time changes.
    #[inline]
    pub(crate) fn fetch(&self) {
        prefetch_value(std::ptr::from_ref(self).addr(), size_of::<Self>());
    }
    /// The cells of an octave, which has something from now on.
    #[inline]
    fn octave(&mut self, number: usize) -> &mut Octave {
        if number >= self.octaves.len() {
            self.octaves.resize(number + 1, None);
        }
        self.octaves[number].get_or_insert_with(|| Box::new([0; 1 << LOG]))
    }
    /// Adds all of another histogram.
    pub fn merge(&mut self, other: &Self) {
        other.few().iter().for_each(|&cell| self.count_cell(cell.into()));
        if other.few().is_empty() && other.count > 0 {
            self.spread(self.few().len());
            for (number, theirs) in other.octaves.iter().enumerate() {
                if let Some(theirs) = theirs {
                    self.octave(number).iter_mut().zip(theirs.iter()).for_each(|(a, b)| *a += b);
                }
            }
            self.count += other.count;
        }
        self.sum_ps = self.sum_ps.saturating_add(other.sum_ps);
        self.max_ps = self.max_ps.max(other.max_ps);
    }
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Their mean in picoseconds; 0 where there are none.
    pub fn mean_ps(&self) -> u64 {
        self.sum_ps / self.count.max(1)
    }
    /// The longest in picoseconds; 0 where there are none.
    pub fn max_ps(&self) -> u64 {
        self.max_ps
    }
    /// The time in picoseconds that so many thousandths of all do not exceed: the
    /// middle of its cell, at most the longest. 0 where there are none.
    pub fn percentile_ps(&self, thousandths: u32) -> u64 {
        let part = u128::from(self.count) * u128::from(thousandths.min(1000));
        let wanted = (part.div_ceil(1000) as u64).max(1);
        let middle = |cell| {
            let (low, width) = span(cell);
            (low * 1000 + width * 500).min(self.max_ps)
        };
        if let Some(&cell) = self.few().get(wanted as usize - 1) {
            return middle(cell.into());
        }
        let mut seen = 0;
        for (number, octave) in self.octaves.iter().enumerate() {
            for (place, n) in octave.iter().flat_map(|cells| cells.iter().enumerate()) {
                seen += n;
                if seen >= wanted {
                    return middle((number << LOG) + place);
                }
            }
        }
        0
    }
}

/// The cell of a time in nanoseconds.
fn cell_of(ns: u64) -> usize {
    let octave = (u64::BITS - ns.leading_zeros()).saturating_sub(LOG + 1);
    ((u64::from(octave) << LOG) + (ns >> octave)) as usize
}
/// A cell's first nanosecond and its width.
fn span(cell: usize) -> (u64, u64) {
    let octave = (cell >> LOG).saturating_sub(1);
    (((cell - (octave << LOG)) as u64) << octave, 1 << octave)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_follow_one_another_without_a_gap() {
        let mut expected = 0;
        for cell in 0..2000 {
            let (low, width) = span(cell);
            assert_eq!(low, expected, "{cell}");
            assert_eq!((cell_of(low), cell_of(low + width - 1)), (cell, cell));
            assert!(low < 256 || width * 128 <= low, "{cell}: {width} at {low}");
            expected = low + width;
        }
        assert!(cell_of(u64::MAX) < usize::from(u16::MAX));
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_list_within_a_cell() {
        let mut s = crate::random::Stream::new(2, "latencies");
        let mut l = Latencies::default();
        let mut all: Vec<u64> = (0..10_000)
            .map(|_| {
                let long = s.below(50) == 0;
                s.below(if long { 90_000_000 } else { 900_000 })
            })
            .collect();
        all.iter().for_each(|&ps| l.add(ps));
        all.sort_unstable();
        for t in [1u32, 500, 900, 990, 999, 1000] {
            let want = all[(10_000 * t as usize / 1000).max(1) - 1];
            let got = l.percentile_ps(t);
            assert!(got.abs_diff(want) <= 1000 + want / 128, "{t}: {got} {want}");
        }
        assert_eq!((l.count(), l.max_ps()), (10_000, all[9_999]));
        assert_eq!(l.mean_ps(), (all.iter().map(|&x| u128::from(x)).sum::<u128>() / 10_000) as u64);
    }

    /// However a histogram has come about, the same times are the same histogram.
    #[test]
    fn few_times_and_many_are_merged_alike() {
        for (a, b) in
            [(0, 5), (5, 0), (7, 9), (16, 16), (16, 17), (3, 40), (40, 3), (32, 32), (50, 60)]
        {
            let mut s = crate::random::Stream::new(a * 100 + b, "merged");
            let (mut one, mut other, mut all) = Default::default();
            let add =
                |l: &mut Latencies, all: &mut Latencies, n: u64, s: &mut crate::random::Stream| {
                    for _ in 0..n {
                        let most = 1 << (10 + s.below(30));
                        let ps = s.below(most);
                        l.add(ps);
                        all.add(ps);
                    }
                };
            add(&mut one, &mut all, a, &mut s);
            add(&mut other, &mut all, b, &mut s);
            let mut back = other.clone();
            one.merge(&other);
            assert_eq!(one, all, "{a} and {b}");
            // And times that come after that count as well.
            add(&mut one, &mut all, 20, &mut s);
            back.merge(&Latencies::default());
            assert_eq!((&one, &back), (&all, &other), "{a} and {b}");
        }
    }

    #[test]
    fn none_is_no_error() {
        let l = Latencies::default();
        assert_eq!((l.count(), l.mean_ps(), l.max_ps(), l.percentile_ps(990)), (0, 0, 0, 0));
    }
}
