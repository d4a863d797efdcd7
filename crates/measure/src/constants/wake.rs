//! How long a wake-up takes whose task runs on an idle CPU.
//!
//! ```text
//! waker    spins for the gap ──▶ call ─────────┐
//! sleeper  waits, its CPU idle                 └──▶ idle state left, task chosen ──▶ runs
//!                                t0                                                  t1
//! ```
//!
//! What counts is t1 - t0, and how much of it the kernel books as the sleeper's processor
//! time: the clock that it begins at is not the clock at which it runs. And what the call takes of
//! the waker, which may have to send the other CPU an interrupt.

use super::cpus;
use super::stats::Series;
use homenode_core::units::CpuId;
use homenode_live::machine::time_of;
use std::hint;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long the sleeper's CPU has been idle when it is woken, in microseconds: the shortest is
/// longer than falling asleep takes.
pub(super) const GAPS: [u64; 7] = [20, 50, 100, 300, 1_000, 3_000, 10_000];
/// Wake-ups in a slot at least, and at most.
const HOPS: (u64, u64) = (5, 200);

/// What wake-ups after one gap took, in picoseconds: the median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hop {
    /// From the waker's call until the woken task runs.
    pub(super) took: f64,
    /// What of that is the woken task's processor time.
    pub(super) booked: f64,
    /// What the call takes of the waker more than one that wakes nobody.
    pub(super) call: f64,
}

/// Wakes a thread on `other` from one on `own`, over and over for a slot, each time after it
/// has slept for `gap`. Why not, where that can't be.
pub(super) fn hops(own: CpuId, other: CpuId, gap: Duration, slot: Duration) -> Result<Hop, String> {
    let each = gap + Duration::from_micros(50);
    let hops = (slot.as_nanos() / each.as_nanos()).clamp(HOPS.0.into(), HOPS.1.into()) as u32;
    // Hops that the sleeper has slept for, that are called, and that it is back from.
    let (asleep, word, awake) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    // When the sleeper was back, and its processor time then.
    let (back, after) = (AtomicU64::new(0), AtomicU64::new(0));
    // The clock of its processor time; 0: it may not run there.
    let clock = AtomicI32::new(0);
    let zero = Instant::now();
    let now = || zero.elapsed().as_nanos() as u64;
    let sleep = || {
        if cpus::pin(other) {
            clock.store(own_clock(), Ordering::Release);
        }
        for n in 0..hops {
            asleep.store(n + 1, Ordering::Release);
            while word.load(Ordering::Acquire) == n {
                futex(&word, libc::FUTEX_WAIT, n);
            }
            back.store(now(), Ordering::Relaxed);
            after.store(cpus::own_time().as_nanos() as u64, Ordering::Relaxed);
            awake.store(n + 1, Ordering::Release);
            // Not asleep before the waker has seen what this one took.
            spin_until(|| asleep.load(Ordering::Acquire) == 0);
        }
    };
    let (mut took, mut booked) = (Series::default(), Series::default());
    let (mut calls, mut nobody) = (Series::default(), Series::default());
    thread::scope(|scope| -> Result<(), String> {
        let builder = thread::Builder::new();
        builder.spawn_scoped(scope, sleep).map_err(|e| format!("a thread: {e}"))?;
        cpus::pin(own);
        for n in 0..hops {
            spin_until(|| asleep.load(Ordering::Acquire) == n + 1);
            let from = Instant::now();
            spin_until(|| from.elapsed() >= gap);
            // It sleeps: what falling asleep took is in here.
            let before = time_of(clock.load(Ordering::Acquire)).as_nanos() as u64;
            let called = now();
            word.store(n + 1, Ordering::Release);
            futex(&word, libc::FUTEX_WAKE, 1);
            let returned = now();
            spin_until(|| awake.load(Ordering::Acquire) == n + 1);
            let since = |of: &AtomicU64, from| of.load(Ordering::Relaxed).saturating_sub(from);
            let wall = since(&back, called);
            took.push(Some(wall as f64 * 1e3));
            booked.push(Some(since(&after, before).min(wall) as f64 * 1e3));
            // Nobody sleeps there now.
            let again = now();
            futex(&word, libc::FUTEX_WAKE, 1);
            nobody.push(Some((now() - again) as f64 * 1e3));
            calls.push(Some((returned - called) as f64 * 1e3));
            asleep.store(0, Ordering::Release);
        }
        Ok(())
    })?;
    if clock.load(Ordering::Acquire) == 0 {
        return Err(format!("this process may not run on CPU {other}"));
    }
    let median = |s: &Series| s.median().unwrap_or(0.0);
    let call = (median(&calls) - median(&nobody)).max(0.0);
    Ok(Hop { took: median(&took), booked: median(&booked), call })
}

/// The clock of this thread's processor time, which others may read too; 0: there is none.
fn own_clock() -> libc::clockid_t {
    let mut clock = 0;
    // SAFETY: fills a local; the thread is the calling one.
    match unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) } {
        0 => clock,
        _ => 0,
    }
}

/// Looks until it is so; gives the CPU to others where that takes long, as they may need it.
fn spin_until(is: impl Fn() -> bool) {
    let from = Instant::now();
    while !is() {
        if from.elapsed() > Duration::from_millis(20) {
            thread::yield_now();
        }
        hint::spin_loop();
    }
}

/// A wait or a wake of one word of this process.
fn futex(word: &AtomicU32, what: i32, value: u32) {
    let none = std::ptr::null::<libc::timespec>();
    let what = what | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word lives as long as the borrow; the kernel reads it only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), what, value, none) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_takes_its_time() {
        let _keep = cpus::KeepAffinity::new();
        let own = cpus::allowed();
        let &[first, .., last] = &own[..] else { return };
        let hop = hops(first, last, Duration::from_micros(20), Duration::from_millis(2)).unwrap();
        // How long depends on who else is there: less than a second, as a median.
        assert!(hop.took > 0.0 && hop.took < 1e12, "{hop:?}");
        assert!(hop.booked <= hop.took, "{hop:?}");
        assert!((0.0..1e12).contains(&hop.call), "{hop:?}");
        let nobody = CpuId(u32::MAX);
        let no = hops(first, nobody, Duration::ZERO, Duration::ZERO).unwrap_err();
        assert!(no.contains("may not run"), "{no}");
    }
}
