//! Medians and quartiles of repeated measurements, and the clock around them.

use homenode_core::costs::{Constant, Origin};
use homenode_core::splitmix::SplitMix;
use std::time::{Duration, Instant};

/// Samples of one quantity, one for each round.
#[derive(Clone, Debug, Default)]
pub(super) struct Series(Vec<f64>);

impl Series {
    /// No sample.
    pub(super) const fn none() -> Self {
        Self(Vec::new())
    }
    /// Adds a sample; what is not a finite number is no sample.
    pub(super) fn push(&mut self, sample: Option<f64>) {
        self.0.extend(sample.filter(|s| s.is_finite()));
    }
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
    /// The samples in the order of the rounds.
    pub(super) fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        self.0.iter().copied()
    }
    /// Samples of the same rounds side by side.
    pub(super) fn pairs<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (f64, f64)> + 'a {
        self.iter().zip(other.iter())
    }
    /// The quantile `q` of 0 to 1, between neighbours where it falls between.
    pub(super) fn quantile(&self, q: f64) -> Option<f64> {
        quantile(&self.0, q)
    }
    pub(super) fn median(&self) -> Option<f64> {
        self.quantile(0.5)
    }
    /// Half the distance between the quartiles; needs two samples.
    pub(super) fn spread(&self) -> Option<f64> {
        if self.0.len() < 2 {
            return None;
        }
        Some((self.quantile(0.75)? - self.quantile(0.25)?) / 2.0)
    }
    /// A measured constant of at least 1; `None` without a sample.
    pub(super) fn measured(&self, method: String) -> Option<Constant> {
        Some(measured(self.median()?, self.spread(), method))
    }
}

impl FromIterator<f64> for Series {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Self(samples.into_iter().filter(|s| s.is_finite()).collect())
    }
}

/// A measured constant of at least 1.
pub(super) fn measured(value: f64, spread: Option<f64>, method: String) -> Constant {
    let (value, spread) = (whole(value).max(1), spread.map(whole));
    Constant { value, spread, method, origin: Origin::Measured }
}

/// A figure as a stored integer; negative ones, which only noise makes, are 0.
pub(super) fn whole(x: f64) -> u64 {
    x.round().max(0.0) as u64
}

/// `c` with value and spread within `bounds`, as a machine's file may have them; says
/// so where that changed one. A clock that stands still over a batch, as an emulated
/// one may, gives rates without end.
pub(super) fn within(bounds: (u64, u64), mut c: Constant) -> Constant {
    let (low, high) = bounds;
    let value = c.value.clamp(low, high);
    if value != c.value {
        c.method = format!("{}; {} was outside the bounds", c.method, c.value);
        c.value = value;
    }
    if let Some(spread) = c.spread.filter(|&spread| spread > high) {
        c.method = format!("{}; its spread of {spread} was outside the bounds", c.method);
        c.spread = Some(high);
    }
    c
}

/// Batches in a slot at least, so that the median outvotes two disturbed ones: a
/// time slice of another task is longer than some slots.
const BATCHES_MIN: usize = 5;

/// Repeats `batch` until `slot` has passed (once only if that is 0, else
/// [`BATCHES_MIN`] times at least) and returns the median time of one operation
/// in picoseconds. A batch says how long it took and how many operations it
/// did; `None` ends the slot without a figure.
///
/// The median over short batches leaves out those that an interrupt, or another
/// virtual machine, fell into.
pub(super) fn per_operation(
    slot: Duration,
    mut batch: impl FnMut() -> Option<(Duration, u64)>,
) -> Option<f64> {
    let began = Instant::now();
    let mut times = Series::default();
    loop {
        let (took, operations) = batch()?;
        if operations == 0 {
            return None;
        }
        times.push(Some(took.as_nanos() as f64 * 1_000.0 / operations as f64));
        let enough = slot.is_zero() || times.len() >= BATCHES_MIN;
        if enough && began.elapsed() >= slot {
            return times.median();
        }
    }
}

/// Times `work`, which does `operations`.
pub(super) fn timed(operations: u64, work: impl FnOnce()) -> (Duration, u64) {
    let began = Instant::now();
    work();
    (began.elapsed(), operations)
}

/// The quantile `q` of 0 to 1, between neighbours where it falls between; `None` of none.
pub fn quantile(samples: &[f64], q: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = q * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

/// `0..n` in random order, into `out`.
pub(super) fn shuffled(n: usize, random: &mut SplitMix, out: &mut Vec<u32>) {
    out.clear();
    out.extend(0..n as u32);
    random.shuffle(out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::costs::Cost;

    #[test]
    fn quartiles_of_known_samples() {
        let s: Series = [5.0, 1.0, 3.0, 2.0, 4.0].into_iter().collect();
        assert_eq!(s.median(), Some(3.0));
        assert_eq!(s.spread(), Some(1.0));
        let even: Series = [1.0, 2.0].into_iter().collect();
        assert_eq!(even.median(), Some(1.5));
        assert_eq!(even.spread(), Some(0.25));
        assert_eq!(Series::default().median(), None);
        assert_eq!([7.0].into_iter().collect::<Series>().spread(), None);
    }

    #[test]
    fn what_is_not_a_number_is_no_sample() {
        let mut s: Series = [f64::NAN, 2.0, f64::INFINITY].into_iter().collect();
        s.push(None);
        s.push(Some(f64::NAN));
        assert_eq!(s.len(), 1);
        assert_eq!(s.measured("m".into()).map(|c| c.value), Some(2));
    }

    #[test]
    fn values_beyond_the_bounds_are_said_to_be() {
        let c = Constant::assumed(0, "nothing");
        let c = within(Cost::MinorFault.bounds(), c);
        assert_eq!(c.value, 1);
        assert!(c.method.contains("outside"));
        let odd: Series = [10.0, 20.0, 30.0, 1e12].into_iter().collect();
        let c = within((1, 1_000), odd.measured("odd".into()).unwrap());
        assert_eq!((c.value, c.spread), (25, Some(1_000)));
        assert!(c.method.contains("its spread of 125"), "{}", c.method);
    }

    #[test]
    fn a_shuffle_is_a_permutation() {
        let mut out = vec![];
        shuffled(1000, &mut SplitMix::new(1), &mut out);
        assert_ne!(out, (0..1000).collect::<Vec<u32>>());
        out.sort_unstable();
        assert_eq!(out, (0..1000).collect::<Vec<u32>>());
    }

    #[test]
    fn a_batch_that_gives_up_gives_no_figure() {
        assert_eq!(per_operation(Duration::from_millis(1), || None), None);
        let two = per_operation(Duration::ZERO, || Some((Duration::from_nanos(10), 5)));
        assert_eq!(two, Some(2_000.0));
        // A slot that the first batch outlasts is not left to that batch.
        let mut nr = 0;
        let median = per_operation(Duration::from_nanos(1), || {
            nr += 1;
            Some((Duration::from_nanos(if nr < 3 { 9_000 } else { 10 }), 1))
        });
        assert_eq!((median, nr), (Some(10_000.0), BATCHES_MIN));
    }
}
