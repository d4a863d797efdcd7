//! Bandwidth: threads that read or write their own part of a buffer, in order,
//! until a moment that all of them know.

use super::cpus;
use super::region::Region;
use homenode_core::units::CpuId;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes between two looks at the clock.
const CHUNK: usize = 256 << 10;

/// What the threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Load every byte.
    Read,
    /// Store every byte, by ordinary stores.
    Write,
}

/// A part of a buffer that one thread works on.
struct Part {
    start: *mut u8,
    chunks: usize,
}

// SAFETY: parts do not overlap, and the region outlives the scope in which the
// threads run.
unsafe impl Send for Part {}

/// Bandwidth in MB/s with one thread on each of `cpus`, and how many threads
/// there really were: a limit may refuse some.
pub(super) fn bandwidth(
    region: &Region,
    flow: Flow,
    cpus: &[CpuId],
    slot: Duration,
) -> Option<(f64, usize)> {
    let chunks_all = region.len() / CHUNK;
    let nr = cpus.len().min(chunks_all);
    let chunks = chunks_all.checked_div(nr)?;
    let go = AtomicBool::new(false);
    let rates: Vec<f64> = thread::scope(|scope| {
        let mut handles = Vec::new();
        for (i, &cpu) in cpus.iter().take(nr).enumerate() {
            let part = Part { start: region.at(i * chunks * CHUNK), chunks };
            let go = &go;
            let spawned = thread::Builder::new().spawn_scoped(scope, move || {
                cpus::pin(cpu);
                while !go.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                run(part, flow, slot)
            });
            match spawned {
                Ok(handle) => handles.push(handle),
                Err(_) => break,
            }
        }
        go.store(true, Ordering::Release);
        handles.into_iter().filter_map(|h| h.join().ok()).collect()
    });
    if rates.is_empty() {
        let part = Part { start: region.start(), chunks: chunks_all };
        return Some((run(part, flow, slot), 1));
    }
    Some((rates.iter().sum(), rates.len()))
}

/// MB/s of this thread alone over `len` bytes of a region from byte `from` on: whole chunks, at
/// least one.
pub(super) fn alone(
    region: &Region,
    (from, len): (usize, usize),
    flow: Flow,
    slot: Duration,
) -> f64 {
    let from = from.min(region.len() - CHUNK);
    let chunks = (len.min(region.len() - from) / CHUNK).max(1);
    run(Part { start: region.at(from), chunks }, flow, slot)
}

/// Goes round the part until `slot` has passed; MB/s.
fn run(part: Part, flow: Flow, slot: Duration) -> f64 {
    // CPU time: what else runs on this CPU meanwhile is not the memory's doing.
    let (began, on_clock) = (cpus::own_time(), Instant::now());
    let mut bytes = 0;
    'all: loop {
        for i in 0..part.chunks {
            // SAFETY: chunk `i` lies inside the part, which no other thread has.
            let chunk = unsafe { part.start.add(i * CHUNK) };
            match flow {
                Flow::Read => read(chunk),
                Flow::Write => write(chunk),
            }
            bytes += CHUNK;
            if on_clock.elapsed() >= slot {
                break 'all;
            }
        }
    }
    bytes as f64 * 1e3 / (cpus::own_time() - began).as_nanos().max(1) as f64
}

/// Loads a chunk.
#[inline(never)]
fn read(chunk: *const u8) {
    // SAFETY: `run` hands out whole chunks of mapped memory that nobody writes
    // meanwhile, aligned to CHUNK.
    let words = unsafe { std::slice::from_raw_parts(chunk.cast::<u64>(), CHUNK / 8) };
    // The plainest sum, which compilers make vectors of in any profile: eight sums in an array took 0.9 ns a
    // line where they did, and 3.9 where they did not.
    black_box(words.iter().fold(0u64, |sum, w| sum.wrapping_add(*w)));
}

/// Stores a chunk.
#[inline(never)]
fn write(chunk: *mut u8) {
    // SAFETY: as in `read`, and nobody else reads or writes the chunk.
    let words = unsafe { std::slice::from_raw_parts_mut(chunk.cast::<u64>(), CHUNK / 8) };
    // Bytes that differ: a fill with equal bytes would become a library call,
    // which may go around the cache.
    words.fill(black_box(0x0123_4567_89ab_cdef));
    black_box(words);
}

#[cfg(test)]
mod tests {
    use super::super::region::PageKind;
    use super::*;

    #[test]
    fn threads_share_the_buffer_and_end() {
        let region = Region::map(4 << 20, PageKind::Base, None, false).unwrap();
        let cpus = cpus::allowed();
        for flow in [Flow::Read, Flow::Write] {
            let (rate, threads) =
                bandwidth(&region, flow, &cpus, Duration::from_millis(5)).unwrap();
            assert!(rate > 0.0 && rate.is_finite());
            assert!((1..=cpus.len()).contains(&threads));
        }
        // However short the time, a thread finishes its first chunk.
        // SAFETY: the threads have ended.
        let last = unsafe { region.at(CHUNK - 1).read() };
        assert_eq!(last, 0x01, "the last byte of the first chunk was written");
    }

    #[test]
    fn one_thread_stays_within_its_bytes() {
        let region = Region::map(4 << 20, PageKind::Base, None, false).unwrap();
        for len in [1, 2 * CHUNK, usize::MAX] {
            let rate = alone(&region, (0, len), Flow::Write, Duration::from_millis(1));
            assert!(rate > 0.0 && rate.is_finite());
        }
        // SAFETY: nobody else uses the region.
        assert_eq!(unsafe { region.at(CHUNK - 1).read() }, 0x01);
        let other = Region::map(4 << 20, PageKind::Base, None, false).unwrap();
        for from in [2 * CHUNK, usize::MAX] {
            let rate = alone(&other, (from, CHUNK), Flow::Write, Duration::from_millis(1));
            assert!(rate > 0.0 && rate.is_finite());
        }
        // SAFETY: nobody else uses it either.
        let byte = |at| unsafe { other.at(at).read() };
        assert_eq!([CHUNK, 3 * CHUNK, other.len()].map(|end| byte(end - 1)), [0, 1, 1]);
    }

    #[test]
    fn no_cpu_gives_no_figure() {
        let region = Region::map(2 << 20, PageKind::Base, None, false).unwrap();
        assert!(bandwidth(&region, Flow::Read, &[], Duration::ZERO).is_none());
    }
}
