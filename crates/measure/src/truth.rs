//! The real runs of the truth check: three kernels over sizes, each a small program.
//!
//! | kernel | an operation |
//! |---|---|
//! | chase | a load of a line whose address the load before it brought |
//! | stream | reading a line (64 bytes) in order |
//! | update | a load and a store of a word at a random place, waiting for no other |
//!
//! A sample is what one operation takes over a whole slot of CPU time, as a program that
//! runs so long would see it; what others run on the same CPU meanwhile is not in it. Samples of all cases alternate, so that a neighbour disturbs all
//! alike. Buffers are in huge pages where the kernel has them, as in `measure`.

pub mod merge;
pub mod perf;

use crate::constants::chase::{Chain, Stride};
use crate::constants::region::{PageKind, Region};
use crate::constants::{self, cpus};
use homenode_core::splitmix::SplitMix;
use std::hint::black_box;
use std::io;
use std::time::Duration;

homenode_core::named! {
    /// What is done.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Kernel {
        /// Dependent loads of random lines.
        Chase => "chase",
        /// Reading in order.
        Stream => "stream",
        /// Independent updates of random words.
        Update => "update",
    }
}

impl Kernel {
    /// Instructions of an operation, as compiled for x86-64. Only [`Kernel::Update`] has
    /// more than a handful that matter: they bound how many are in a core's window.
    pub const fn insns(self) -> u64 {
        match self {
            Self::Chase => 1,
            Self::Stream => 8,
            Self::Update => 9,
        }
    }
}

/// A kernel over so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What is done.
    pub kernel: Kernel,
    /// Over how many bytes; rounded down to lines, 128 at least.
    pub bytes: u64,
}

/// Runs all cases, `rounds` times by turns; each sample takes about `slot`.
///
/// Returns for each case its samples: picoseconds an operation.
///
/// # Errors
/// Where the memory can't be had: all chains at once, and one buffer of the largest size.
pub fn run(
    cases: &[Case],
    rounds: u32,
    slot: Duration,
    progress: &mut dyn FnMut(usize),
) -> io::Result<Vec<Vec<f64>>> {
    let _affinity = cpus::KeepAffinity::new();
    if let Some(&cpu) = cpus::allowed().first() {
        cpus::pin(cpu);
    }
    let mut random = SplitMix::new(0x0074_7275_7468);
    let bytes = |c: &Case| (c.bytes as usize).max(128) / 64 * 64;
    let chases = |c: &Case| c.kernel == Kernel::Chase;
    let region = |c| chases(c).then(|| filled(bytes(c))).transpose();
    let regions: Vec<Option<Region>> = cases.iter().map(region).collect::<io::Result<_>>()?;
    let largest = cases.iter().filter(|c| !chases(c)).map(bytes).max();
    let shared = largest.map(filled).transpose()?;
    let mut order = Vec::new();
    let mut chains: Vec<Option<Chain<'_>>> = regions
        .iter()
        .zip(cases)
        .map(|(r, c)| {
            let region = r.as_ref()?;
            Some(Chain::build(region, Stride::Dense, bytes(c) / 64, &mut random, &mut order))
        })
        .collect();
    drop(order);
    let mut samples = vec![Vec::new(); cases.len()];
    for round in 0..rounds {
        for (i, c) in cases.iter().enumerate() {
            let took = match (c.kernel, &mut chains[i], &shared) {
                (Kernel::Chase, Some(chain), _) => chase(chain, slot),
                (Kernel::Stream, _, Some(region)) => stream(region, bytes(c), slot),
                (Kernel::Update, _, Some(region)) => update(region, bytes(c), &mut random, slot),
                _ => continue,
            };
            samples[i].push(took);
            progress(round as usize * cases.len() + i + 1);
        }
    }
    Ok(samples)
}

/// A buffer in huge pages, each page touched.
fn filled(bytes: usize) -> io::Result<Region> {
    if let Some(left) = constants::available_bytes() {
        if bytes as u64 > left / 2 {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                format!("{bytes} bytes are more than half of the {left} bytes that are left"),
            ));
        }
    }
    let region = Region::map(bytes, PageKind::Huge, None, false)?;
    region.touch(region.pages());
    Ok(region)
}

fn chase(chain: &mut Chain<'_>, slot: Duration) -> f64 {
    // Once round, so that what fits into the caches is there; where nothing does, the
    // first steps are as good as any.
    if chain.lines() <= 1 << 20 {
        chain.warm();
    }
    cpus::average(slot, 4096, || chain.walk(4096))
}

fn stream(region: &Region, bytes: usize, slot: Duration) -> f64 {
    // SAFETY: the region is mapped, longer than that, aligned, and nobody writes now.
    let words = unsafe { std::slice::from_raw_parts(region.start().cast::<u64>(), bytes / 8) };
    // So often that looking at the clock takes nothing of it.
    let lines = bytes as u64 / 64;
    let times = (16_384 / lines).max(1);
    cpus::average(slot, lines * times, || {
        for _ in 0..times {
            let sum = words.iter().fold(0u64, |sum, w| sum.wrapping_add(*w));
            black_box(sum);
        }
    })
}

/// Updates between two looks at the clock.
const UPDATES: u64 = 8192;

fn update(region: &Region, bytes: usize, random: &mut SplitMix, slot: Duration) -> f64 {
    let (words, start) = (bytes as u64 / 8, region.start().cast::<u64>());
    let mut x = random.next();
    // What fits into the caches is brought there first.
    if words <= 1 << 23 {
        for i in (0..words as usize).step_by(8) {
            // SAFETY: below the number of words of a mapped region that nobody else uses.
            unsafe { *start.add(i) ^= 1 };
        }
    }
    cpus::average(slot, UPDATES, move || {
        // In a register, whatever a compiler thinks of pointers: an update that waited for the last one's
        // generator to come back from memory would be another kernel.
        let mut own = x;
        for _ in 0..UPDATES {
            // Knuth's MMIX generator; its upper half is used.
            own =
                own.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let i = (((own >> 32) * words) >> 32) as usize;
            // SAFETY: `i` is below `words`, as above.
            unsafe { *start.add(i) ^= own };
        }
        x = own;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_its_samples_and_nothing_leaves_its_memory() {
        let cases: Vec<Case> = Kernel::ALL
            .into_iter()
            .flat_map(|kernel| [1, 4096 + 7, 3 << 20].map(|bytes| Case { kernel, bytes }))
            .collect();
        let mut seen = Vec::new();
        let samples = run(&cases, 2, Duration::from_micros(200), &mut |n| seen.push(n)).unwrap();
        assert_eq!(seen, (1..=2 * cases.len()).collect::<Vec<_>>());
        assert_eq!(samples.len(), cases.len());
        for s in samples {
            assert!(s.len() == 2 && s.iter().all(|t| *t > 0.0 && t.is_finite()), "{s:?}");
        }
    }

    #[test]
    fn too_much_memory_is_refused_before_it_is_taken() {
        let case = Case { kernel: Kernel::Stream, bytes: 1 << 46 };
        assert!(run(&[case], 1, Duration::ZERO, &mut |_| {}).is_err());
    }
}
