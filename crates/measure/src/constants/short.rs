//! What short calls take at this moment, for who changes what the kernel does at them: taken before, and again after.
//!
//! The same calls as those of the constants, on one CPU. See specs/record-sched.md#own.

use super::calls::Call;
use super::cpus::{self, KeepAffinity};
use super::stats::Series;

/// The kernel's number of the calling thread.
#[must_use]
pub fn task() -> u32 {
    // SAFETY: only asks.
    unsafe { libc::gettid() }.unsigned_abs()
}

/// Nanoseconds that each takes of its CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Short {
    /// A system call that does nothing.
    pub plain: f64,
    /// Eight bytes into a pipe, or out of it: the mean of both.
    pub moves: f64,
    /// A futex call that wakes a task, which does not run yet.
    pub wakes: f64,
    /// A futex call that wakes the other of two tasks, one that waits, and the switch to that other.
    pub turn: f64,
}

impl Short {
    /// Takes each so many times in batches, and the median of these. The calling thread may run on one CPU only
    /// meanwhile; who else runs there is in the figures.
    ///
    /// # Errors
    /// What the kernel refused, in words, if not one batch of a call came to its end.
    pub fn take(rounds: u32) -> Result<Self, String> {
        let _keep = KeepAffinity::new();
        let cpu = *cpus::allowed().first().ok_or("no CPU is known that may be used")?;
        if !cpus::pin(cpu) {
            return Err(format!("this thread can't be bound to CPU {}", cpu.0));
        }
        let mut all: [Series; 5] = Default::default();
        let calls = [Call::Syscall, Call::PipeWrite, Call::PipeRead, Call::Wake, Call::HandOver];
        let mut refused = Ok(());
        for _ in 0..rounds.max(1) {
            for (series, call) in all.iter_mut().zip(calls) {
                // Where others have the CPU at the wrong moment a batch says that it is none.
                match call.batch() {
                    Ok((took, times)) => {
                        series.push(Some(took.as_nanos() as f64 / times as f64));
                    }
                    Err(why) => refused = Err(why),
                }
            }
        }
        if all.iter().any(Series::is_empty) {
            refused?;
        }
        let [plain, write, read, wakes, turn] = all.map(|s| s.median().unwrap_or(0.0));
        Ok(Self { plain, moves: (write + read) / 2.0, wakes, turn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_take_their_time_and_the_thread_may_run_where_it_might_before() {
        let before = cpus::allowed();
        let short = Short::take(2).expect("calls that every kernel has");
        assert!(short.plain > 0.0 && short.moves > 0.0, "{short:?}");
        // A turn has a wake-up in it, and both took part of a second at most.
        assert!(short.turn > 0.0 && short.turn < 1e9 && short.wakes < 1e9, "{short:?}");
        assert_eq!(cpus::allowed(), before);
    }
}
