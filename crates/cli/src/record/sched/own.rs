//! What recording takes of those who are recorded, beyond what its own clock sees.
//!
//! ```text
//! short calls ──▶ the same, recorded ──▶ the same, unrecorded again
//!                    └──▶ the longer times, less the program's own clock ──▶ Beyond
//! ```
//!
//! The program in the kernel reads the clock when it is called and when it is done. What the kernel takes to
//! call it, and the slow path that each system call takes while its tracepoints are on, is outside of that.
//!
//! Source: specs/record-sched.md#own.

use homenode_bpf::record::{RecordError, Recorder, Whose};
use homenode_measure::constants::short::Short;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Rounds of each kind of call, each time.
const ROUNDS: u32 = 20;
/// How often the ring is emptied meanwhile.
const EMPTY: Duration = Duration::from_millis(2);

/// Nanoseconds that are not in the program's own times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Beyond {
    /// At a switch, at a wake-up, at a call that moves bytes.
    pub(super) each: [u64; 3],
    /// At any other call: nobody counts those.
    pub(super) plain: u64,
}

impl Beyond {
    /// Measures it, with a thread of this process that makes short calls. Takes some tenths of a second.
    ///
    /// # Errors
    /// Why it can't be known, in words.
    pub(super) fn measure() -> Result<Self, String> {
        let gone = |_| "a thread that makes short calls has ended".to_owned();
        let refused = |e: RecordError| homenode_live::sentence(&e);
        let (says, heard) = mpsc::channel();
        let (tell, told) = mpsc::channel::<()>();
        let calls = move || {
            let tid = homenode_measure::constants::short::task();
            loop {
                // Who does not listen any more has given up.
                let _ = says.send((tid, Short::take(ROUNDS)));
                if told.recv().is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("short-calls".into()).spawn(calls);
        let thread = thread.map_err(|e| format!("a thread: {e}"))?;
        let result = (|| {
            let (tid, before) = heard.recv().map_err(gone)?;
            let before = before?;
            let mut recorder = Recorder::attach(Whose::Tree(tid)).map_err(refused)?;
            let next = || tell.send(()).map_err(|_| "the thread has ended".to_owned());
            next()?;
            let recorded = loop {
                match heard.recv_timeout(EMPTY) {
                    Ok((_, short)) => break short?,
                    Err(RecvTimeoutError::Timeout) => {
                        recorder.take(Duration::ZERO).map_err(refused)?;
                    }
                    Err(RecvTimeoutError::Disconnected) => return Err(gone(mpsc::RecvError)),
                }
            };
            let own = recorder.own_ns().map_err(refused)?;
            drop(recorder);
            next()?;
            let after = heard.recv().map_err(gone)?.1?;
            Ok(Self::of([before, after], recorded, own))
        })();
        drop(tell);
        let _ = thread.join();
        result
    }

    /// What calls took longer while they were recorded, less the program's own times.
    fn of(unrecorded: [Short; 2], recorded: Short, own: [u64; 3]) -> Self {
        let [a, b] = unrecorded;
        let more = |of: fn(&Short) -> f64| of(&recorded) - f64::midpoint(of(&a), of(&b));
        let plain = more(|s| s.plain);
        let wakes = more(|s| s.wakes) - plain;
        let moves = more(|s| s.moves);
        // A turn is a call that wakes, one that waits, and a switch.
        let switch = more(|s| s.turn) - wakes - 2.0 * plain;
        let beyond = |more: f64, own: u64| (more - own as f64).round().max(0.0) as u64;
        Self {
            each: [beyond(switch, own[0]), beyond(wakes, own[1]), beyond(moves, own[2])],
            plain: beyond(plain, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_and_not_on_its_own_clock_is_beyond() {
        let short = |plain, moves, wakes, turn| Short { plain, moves, wakes, turn };
        let unrecorded = [short(100.0, 200.0, 500.0, 1500.0), short(110.0, 210.0, 510.0, 1520.0)];
        // A plain call takes 60 ns more, a pipe's 300, one that wakes 60 and 400, a turn that and 60 and 700.
        let recorded = short(165.0, 505.0, 965.0, 2730.0);
        let beyond = Beyond::of(unrecorded, recorded, [500, 250, 120]);
        assert_eq!(beyond, Beyond { each: [200, 150, 180], plain: 60 });
        // Noise makes nothing less than nothing.
        assert_eq!(Beyond::of(unrecorded, unrecorded[0], [500, 250, 120]), Beyond::default());
    }
}
