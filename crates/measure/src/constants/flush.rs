//! What it takes to have another CPU forget translations: a remote flush of its TLB.
//!
//! ```text
//! own CPU     store · mprotect(PROT_NONE) ──────────────┐ waits    │ a rest, then again
//! other CPU   reads its pages, counts ──────────────────▶ interrupt, flush ── reads them anew
//! ```
//!
//! Two threads share an address space, so whoever takes a right away from an entry has to tell the other's CPU. What the
//! asker pays is the time of the call less its time while the other thread sleeps: a CPU that has nothing to do is not
//! asked. What the other pays is missing of its pace.

use super::cpus;
use super::kernel::because;
use super::region::{PageKind, Region};
use super::stats::Series;
use homenode_core::units::CpuId;
use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Flushes in a batch.
const FLUSHES: u32 = 25;
/// The time from one call to the next: long beside what one takes, so that what is read anew is in it.
const REST: Duration = Duration::from_micros(40);
/// Pages that the other thread reads over and over.
const READ: usize = 16;
/// Batches of a slot at least.
const BATCHES: u32 = 6;

/// What a remote flush takes, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Flush {
    /// Of who asks.
    pub(super) sent: f64,
    /// Of the CPU that is asked.
    pub(super) received: f64,
}

/// What a batch showed.
struct Batch {
    /// Picoseconds of a call, the median.
    call: f64,
    /// In nanoseconds.
    took: f64,
    /// Reads of the other thread meanwhile.
    reads: f64,
}

/// The other thread's part: it reads until the end.
#[derive(Default)]
#[repr(align(64))]
struct Reader {
    reads: AtomicU64,
    over: AtomicBool,
    refused: AtomicBool,
}

/// Has a thread on `other` read while one on `own` takes a page's rights away, for a slot; why not, where that can't be.
pub(super) fn flushes(own: CpuId, other: CpuId, slot: Duration) -> Result<Flush, String> {
    let map = |what| Region::map(1, PageKind::Base, None, false).map_err(because(what));
    let (page, read) = (map("a page to protect")?, map("pages to read")?);
    read.touch(READ);
    cpus::pin(own);
    let reader = Reader::default();
    // Nobody else is in this address space while these are taken, as far as it is known.
    let mut alone = Series::default();
    for _ in 0..BATCHES {
        alone.push(Some(batch(&page, true, &reader)?.call));
    }
    let told = &reader;
    let reads = move || {
        if !cpus::pin(other) {
            told.refused.store(true, Ordering::Release);
            return;
        }
        let mut n = 0;
        while !told.over.load(Ordering::Relaxed) {
            for i in 0..READ {
                // SAFETY: a page of the mapping, which is readable, and nobody stores to it.
                hint::black_box(unsafe { read.page(i).read_volatile() });
            }
            n += 1;
            told.reads.store(n, Ordering::Relaxed);
        }
    };
    let (mut calls, mut missing) = (Series::default(), Series::default());
    let went = thread::scope(|scope| -> Result<(), String> {
        let builder = thread::Builder::new();
        builder.spawn_scoped(scope, reads).map_err(|e| format!("a thread: {e}"))?;
        let went = (|| {
            let began = Instant::now();
            while reader.reads.load(Ordering::Relaxed) < 100 {
                if reader.refused.load(Ordering::Acquire) || began.elapsed().as_millis() > 200 {
                    return Err(format!("this process may not run on CPU {other}"));
                }
            }
            let mut n = 0;
            while n < BATCHES || began.elapsed() < slot {
                let calm = batch(&page, false, &reader)?;
                let asked = batch(&page, true, &reader)?;
                let pace = calm.reads / calm.took;
                calls.push(Some(asked.call));
                let lost = asked.took - asked.reads / pace;
                missing.push(Some(lost * 1e3 / f64::from(FLUSHES)));
                n += 1;
            }
            Ok(())
        })();
        reader.over.store(true, Ordering::Relaxed);
        went
    });
    went?;
    let left = |of: f64| of.max(0.0);
    match (calls.median(), alone.median(), missing.median()) {
        (Some(with), Some(alone), Some(lost)) => {
            Ok(Flush { sent: left(with - alone), received: left(lost) })
        }
        _ => Err("the thread on the other CPU got no time".to_owned()),
    }
}

/// Calls one after the other, each with a rest; or only the rests.
fn batch(page: &Region, flushes: bool, reader: &Reader) -> Result<Batch, String> {
    let mut calls = Series::default();
    let mut failed = Ok(());
    let before = reader.reads.load(Ordering::Relaxed);
    let began = Instant::now();
    for n in 1..=FLUSHES {
        if flushes {
            page.touch(1);
            let from = Instant::now();
            failed = failed.and(page.protect(libc::PROT_NONE));
            calls.push(Some(from.elapsed().as_nanos() as f64 * 1e3));
            failed = failed.and(page.protect(libc::PROT_READ | libc::PROT_WRITE));
        }
        while began.elapsed() < REST * n {
            hint::spin_loop();
        }
    }
    let took = began.elapsed().as_nanos() as f64;
    let reads = reader.reads.load(Ordering::Relaxed) - before;
    failed.map_err(because("mprotect"))?;
    Ok(Batch { call: calls.median().unwrap_or(0.0), took, reads: reads as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_cpu_is_asked_or_it_says_why_not() {
        let _keep = cpus::KeepAffinity::new();
        let own = cpus::allowed();
        let &[first, .., last] = &own[..] else { return };
        // How long depends on who else is there.
        match flushes(first, last, Duration::from_millis(5)) {
            Ok(Flush { sent, received }) => {
                assert!((0.0..1e9).contains(&sent) && (0.0..1e9).contains(&received));
            }
            Err(why) => assert!(why.contains("no time") || why.contains("may not run"), "{why}"),
        }
        let no = flushes(first, CpuId(u32::MAX), Duration::ZERO).unwrap_err();
        assert!(no.contains("CPU 4294967295"), "{no}");
    }
}
