//! Work of several pieces on all of this machine's CPUs.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// As many as there are CPUs.
pub(crate) fn cpus() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Does each piece, `jobs` at once, begun in their order. The results are in that order too.
pub(crate) fn each<T: Sync, R: Send>(
    jobs: usize,
    pieces: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let at = next.fetch_add(1, Ordering::Relaxed);
        pieces.get(at).map(|piece| (at, work(piece)))
    };
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.min(pieces.len()))
            .map(|_| scope.spawn(|| std::iter::from_fn(take).collect::<Vec<_>>()))
            .collect();
        workers.into_iter().flat_map(|w| w.join().unwrap_or_else(|p| resume_unwind(p))).collect()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_pieces() {
        let pieces: Vec<u64> = (0..50).collect();
        for jobs in [1, 2, 7, 90] {
            let slow = |&n: &u64| {
                thread::sleep(std::time::Duration::from_micros(50 - n));
                n * n
            };
            let squares: Vec<u64> = pieces.iter().map(|n| n * n).collect();
            assert_eq!(each(jobs, &pieces, slow), squares);
        }
        assert!(each(4, &[] as &[u64], |&n| n).is_empty());
    }
}
