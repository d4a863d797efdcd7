//! What scheduler statistics take: the update code itself on a block of the same layout.
//!
//! ```text
//! waker's CPU    lock · queue, stamps · [sleep, wake-ups counted] · turn ──┐
//! target's CPU   lock · queue, stamps · [wait, run, sleep stamped] · turn ◀┘    and back
//! ```
//!
//! With the statements in brackets and without: the lines that are there in any case come from the other CPU
//! either way, and those of the statistics beside them. Whoever waits for its turn waits for all that was
//! stored before. Nothing here is a workload that is predicted: specs/workloads.md#measured.

use super::cpus;
use super::stats::{Series, timed};
use homenode_core::units::CpuId;
use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Statements of a wake-up, and of running until asleep.
pub(super) const STATEMENTS: (u64, u64) = (13, 13);
/// Lines that go to the waker's CPU and back in a cycle.
pub(super) const MOVES: u64 = 4;
/// Cycles in a batch.
const CYCLES: u64 = 400;
/// The longest that somebody waits for its turn: the other may have been killed, or has no CPU.
const PATIENCE: Duration = Duration::from_millis(200);

/// A line of eight words.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; 8]);

impl Line {
    fn get(&self, word: usize) -> u64 {
        self.0[word].load(Ordering::Relaxed)
    }
    fn set(&self, word: usize, value: u64) {
        self.0[word].store(value, Ordering::Relaxed);
    }
    fn add(&self, word: usize, value: u64) {
        self.set(word, self.get(word).wrapping_add(value));
    }
    fn most(&self, word: usize, value: u64) {
        if value > self.get(word) {
            self.set(word, value);
        }
    }
}

/// What is there of a task and of its queue: lines that are changed in any case, and the statistics' own.
#[derive(Default)]
struct Block {
    lock: Line,
    queue: Line,
    /// Virtual time, and the stamps of waiting.
    stamps: Line,
    sleeps: Line,
    maxima: Line,
    kinds: Line,
    turn: Line,
}

impl Block {
    /// What a wake-up changes without statistics.
    fn wakes(&self, now: u64) {
        self.lock.0[0].fetch_add(1, Ordering::AcqRel);
        self.queue.add(0, 1);
        self.stamps.set(0, now);
    }
    /// And with them. `kinds` stays with its waker.
    fn counts_wake(&self, now: u64) {
        let slept = self.sleeps.get(0);
        if slept != 0 {
            let slept = now.wrapping_sub(slept);
            self.sleeps.most(1, slept);
            self.sleeps.set(0, 0);
            self.sleeps.add(2, slept);
        }
        if self.sleeps.get(3) != 0 {
            self.sleeps.add(4, 1);
        }
        self.stamps.set(1, now);
        self.queue.add(1, 1);
        self.maxima.add(0, 1);
        self.kinds.add(0, 1);
        self.kinds.add(1, 1);
    }
    /// What running and falling asleep change without statistics.
    fn runs(&self, now: u64) {
        self.lock.0[0].fetch_add(1, Ordering::AcqRel);
        self.queue.add(0, 1);
        self.stamps.set(2, now);
    }
    fn counts_run(&self, now: u64) {
        let waited = now.wrapping_sub(self.stamps.get(1));
        self.stamps.most(3, waited);
        self.stamps.add(4, 1);
        self.sleeps.add(5, waited);
        self.stamps.set(1, 0);
        self.queue.add(2, 1);
        self.maxima.most(1, waited);
        self.queue.add(3, waited);
        self.sleeps.set(0, now | 1);
    }
}

/// One statement where the CPU has all lines: a batch.
pub(super) fn statements() -> (Duration, u64) {
    let block = hint::black_box(Box::<Block>::default());
    let cycle = |now| {
        block.counts_wake(now);
        block.counts_run(now);
    };
    (1..CYCLES).for_each(cycle);
    timed(CYCLES * (STATEMENTS.0 + STATEMENTS.1), || (1..=CYCLES).for_each(cycle))
}

/// What one of the lines that move takes more, in picoseconds: `own` and `other` share a block by turns for a
/// slot, with statistics and without.
pub(super) fn moves(own: CpuId, other: CpuId, slot: Duration) -> Result<f64, String> {
    let block = Box::<Block>::default();
    let (with, ends) = (AtomicBool::new(false), AtomicBool::new(false));
    let lost = AtomicBool::new(false);
    // Odd: the other one's turn.
    let wait = |turn: u64| {
        let from = Instant::now();
        while block.turn.0[0].load(Ordering::Acquire) != turn {
            if ends.load(Ordering::Relaxed) || from.elapsed() > PATIENCE {
                return false;
            }
            hint::spin_loop();
        }
        true
    };
    let give = |turn: u64| block.turn.0[0].swap(turn, Ordering::AcqRel);
    let answer = || {
        if !cpus::pin(other) {
            lost.store(true, Ordering::Release);
            return;
        }
        let mut turn = 1;
        while wait(turn) {
            block.runs(turn);
            if with.load(Ordering::Relaxed) {
                block.counts_run(turn);
            }
            give(turn + 1);
            turn += 2;
        }
    };
    let mut took = [Series::default(), Series::default()];
    thread::scope(|scope| -> Result<(), String> {
        let builder = thread::Builder::new();
        builder.spawn_scoped(scope, answer).map_err(|e| format!("a thread: {e}"))?;
        cpus::pin(own);
        let (began, mut turn, mut answered) = (Instant::now(), 0, true);
        // Pairs of batches, the first of which only warms up.
        let mut batch = 0;
        while answered && (batch < 8 || began.elapsed() < slot) {
            let counts = batch % 2 == 1;
            with.store(counts, Ordering::Relaxed);
            let from = Instant::now();
            for _ in 0..CYCLES {
                block.wakes(turn);
                if counts {
                    block.counts_wake(turn);
                }
                give(turn + 1);
                turn += 2;
                answered = wait(turn);
                if !answered {
                    break;
                }
            }
            let each = from.elapsed().as_nanos() as f64 * 1e3 / CYCLES as f64;
            if answered && batch >= 2 {
                took[usize::from(counts)].push(Some(each));
            }
            batch += 1;
        }
        ends.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    if lost.load(Ordering::Acquire) {
        return Err(format!("this process may not run on CPU {other}"));
    }
    let [without, with] = took.map(|t| t.median());
    let more = with.zip(without).map(|(with, without)| (with - without) / MOVES as f64);
    more.ok_or_else(|| "the two CPUs did not take turns".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_counts_what_it_says() {
        let block = Block::default();
        block.counts_run(100);
        block.counts_wake(150);
        block.counts_run(160);
        block.counts_wake(200);
        assert_eq!((block.sleeps.get(2), block.sleeps.get(1)), (49 + 39, 49), "time asleep");
        assert_eq!((block.maxima.get(0), block.kinds.get(0)), (2, 2), "wake-ups");
        assert_eq!((block.stamps.get(4), block.sleeps.get(5)), (2, 110), "waits");
        let (took, n) = statements();
        assert!(took < Duration::from_secs(1) && n == 26 * CYCLES, "{took:?}");
    }

    #[test]
    fn two_cpus_take_turns_or_say_why_not() {
        let _keep = cpus::KeepAffinity::new();
        let own = cpus::allowed();
        let &[first, .., last] = &own[..] else { return };
        // How long depends on who else is there.
        let line = moves(first, last, Duration::from_millis(2));
        assert!(line.is_ok_and(|ps| ps.abs() < 1e9) || cfg!(miri));
        let no = moves(first, CpuId(u32::MAX), Duration::ZERO).unwrap_err();
        assert!(no.contains("CPU 4294967295") || no.contains("turns"), "{no}");
    }
}
