//! Signals: who is sent one, which calls one has ended, and timers that send them.
//!
//! Who waits for a signal is told which may have come: of a call that one ended, those that
//! have a handler. QEMU takes the signals that are sent to it for the program, so a call ends
//! as it would natively: with `EINTR`, or to be made anew ([`AGAIN`]).
//!
//! A timer's end comes from no task. Whether one has ended is known by the clock: what it was
//! set to, and when.
//!
//! Source: specs/waits.md#signals

use super::*;
use homenode_trace::waits::{EVERYBODY, ONE_THREAD};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What QEMU tells of a call that a signal has interrupted and that is made anew.
pub(super) const AGAIN: i64 = -512;
/// A timer's signal comes so much after its end at most, in nanoseconds.
const LATE: u64 = 1_000_000;
/// The process's own timer, of `setitimer` and `alarm`.
const REAL: u64 = 0;
/// From here on a timer's number is a descriptor's.
const DESCRIPTORS: u64 = 1 << 32;
/// Bytes of what is read from a signal's descriptor.
const READ_BYTES: u64 = 128;
/// `si_code`'s place, and what it is where a timer sent the signal: one of `timer_create`, and
/// the kernel's own (`SI_TIMER`, `SI_KERNEL`).
const CODE_AT: u64 = 8;
const FROM_TIMER: [i32; 2] = [-2, 0x80];
/// How an event tells that it is over, where no signal does (`SIGEV_NONE`).
const NO_SIGNAL: i32 = 1;

/// Signals of this process that have a handler, the first as bit 0.
static HANDLED: AtomicU64 = AtomicU64::new(0);
/// By signal, the first as 0: where its handler begins.
static HANDLERS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
/// Signals that an instruction of the task itself brings about, as bits.
const OWN: u64 = 1 << (libc::SIGSEGV - 1)
    | 1 << (libc::SIGBUS - 1)
    | 1 << (libc::SIGFPE - 1)
    | 1 << (libc::SIGILL - 1)
    | 1 << (libc::SIGTRAP - 1);

/// A timer of this process.
#[derive(Clone, Copy, Default)]
struct Timer {
    /// The signal that it sends, as a bit.
    signal: u64,
    /// The clock of its absolute times.
    clock: i32,
    /// When it ends first, on our clock; 0: it is not set.
    first: u64,
    /// What it was set to, and its interval: 0 where it ends once.
    value: u64,
    interval: u64,
    /// Which of its ends was told last.
    told: u64,
}

/// Those of this process; hence `try_lock`, see [`WATCHED`].
static TIMERS: Mutex<BTreeMap<u64, Timer>> = Mutex::new(BTreeMap::new());

fn bit(signal: u64) -> u64 {
    if (1..=64).contains(&signal) { 1 << (signal - 1) } else { 0 }
}

/// A signal has another handler.
pub(crate) fn handles(a: [u64; 6]) {
    // SAFETY: the kernel has just read it.
    let Some(handler) = (unsafe { value::<usize>(a[1]) }) else { return };
    let none = handler == libc::SIG_DFL || handler == libc::SIG_IGN;
    if none {
        HANDLED.fetch_and(!bit(a[0]), Relaxed);
    } else {
        HANDLED.fetch_or(bit(a[0]), Relaxed);
    }
    if let Some(slot) = usize::try_from(a[0]).ok().and_then(|s| HANDLERS.get(s.wrapping_sub(1))) {
        slot.store(if none { 0 } else { handler as u64 }, Relaxed);
    }
}

/// The signals whose handler begins at an address, as bits.
#[cfg_attr(test, allow(dead_code, reason = "what QEMU calls is not there in tests"))]
pub(crate) fn handled_at(address: u64) -> u64 {
    let handled = HANDLED.load(Relaxed);
    if handled == 0 {
        return 0;
    }
    let here =
        |&(n, slot): &(u64, &AtomicU64)| handled >> n & 1 == 1 && slot.load(Relaxed) == address;
    (0..).zip(&HANDLERS).filter(here).fold(0, |all, (n, _)| all | 1 << n)
}

/// This is a new process: it has none of its parent's timers but descriptors.
pub(crate) fn forked() {
    if let Ok(mut timers) = TIMERS.try_lock() {
        timers.retain(|id, _| *id >= DESCRIPTORS);
    }
}

/// A timer has been made that is not set yet.
pub(crate) fn made_timer(a: [u64; 6]) {
    // SAFETY: the kernel has just read the event and written the number.
    let (event, id) = unsafe { (value::<[i32; 4]>(a[1]), value(a[2])) };
    let signal = match event {
        Some([_, _, _, NO_SIGNAL]) => 0,
        Some([_, _, signal, _]) => bit(signal as u64),
        None => bit(libc::SIGALRM as u64),
    };
    let (Some(id), Ok(mut timers)) = (id.map(own), TIMERS.try_lock()) else { return };
    timers.insert(id, Timer { signal, clock: a[0] as i32, ..Timer::default() });
}

/// The number of a timer that `timer_create` has made.
fn own(id: u32) -> u64 {
    u64::from(id) + 1
}
fn of_descriptor(fd: i32) -> u64 {
    DESCRIPTORS + u64::from(fd as u32)
}

/// The interval and the value that a timer is set to, in nanoseconds.
///
/// # Safety
/// As for [`value`].
unsafe fn spans(number: i64, a: [u64; 6]) -> Option<[u64; 2]> {
    // Two values of 16 bytes.
    let both = |at: u64| readable(at).filter(|at| readable(at + 16).is_some());
    // SAFETY: the caller's promise.
    unsafe {
        match number {
            libc::SYS_setitimer => {
                let [interval, then]: [libc::timeval; 2] = value(both(a[1])?)?;
                let exact = |t: libc::timeval| libc::timespec {
                    tv_sec: t.tv_sec,
                    tv_nsec: t.tv_usec.saturating_mul(1000),
                };
                Some([interval, then].map(exact).map(nanoseconds))
            }
            libc::SYS_alarm => Some([0, u64::from(a[0] as u32) * 1_000_000_000]),
            _ => value::<[libc::timespec; 2]>(both(a[2])?).map(|both| both.map(nanoseconds)),
        }
    }
}

/// The time from now that a timer is being set to.
///
/// # Safety
/// As for [`value`].
pub(super) unsafe fn timer_value(number: i64, a: [u64; 6]) -> Option<u64> {
    // SAFETY: the caller's promise.
    let [_, value] = unsafe { spans(number, a) }?;
    let clock = match number {
        libc::SYS_timer_settime => {
            let timers = TIMERS.try_lock().ok()?;
            timers.get(&own(a[0] as u32)).map_or(libc::CLOCK_REALTIME, |t| t.clock)
        }
        libc::SYS_timerfd_settime => {
            let info = Info::of(a[0] as i32);
            info.value("clockid:").and_then(|id| id.parse().ok()).unwrap_or(libc::CLOCK_REALTIME)
        }
        _ => return Some(value),
    };
    // The flag has one number for both calls.
    if a[1] as i32 & libc::TIMER_ABSTIME == 0 || value == 0 {
        return Some(value);
    }
    // SAFETY: the caller's promise: the value stands behind the interval.
    unsafe { moment(a[2] + 16) }.map(|then| until(clock, then))
}

/// A timer that has ended and was not told: its number, and how long it ran.
///
/// * `since` – when the call began during which it ended, or just before.
fn ended(is_meant: impl Fn(u64, &Timer) -> bool, since: u64) -> Option<(u64, u64)> {
    let now = clock();
    let mut timers = TIMERS.try_lock().ok()?;
    let (id, timer) = timers.iter_mut().find(|(id, t)| {
        is_meant(**id, t) && t.first != 0 && last_end(t, now).is_some_and(|end| end + LATE > since)
    })?;
    timer.told = last_end(timer, now)?;
    Some((*id, if timer.told == timer.first { timer.value } else { timer.interval }))
}

/// The last of a timer's ends so far that was not told.
fn last_end(t: &Timer, now: u64) -> Option<u64> {
    let over = now.checked_sub(t.first)?;
    let end = t.first + over.checked_div(t.interval).unwrap_or(0) * t.interval;
    (end > t.told).then_some(end)
}

impl Task {
    /// A signal has been sent.
    pub(super) fn sent(&mut self, number: i64, a: [u64; 6], order: u64) {
        let (to, signal, thread) = match number {
            libc::SYS_tkill => (a[0] as i32, a[1], true),
            libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo => (a[1] as i32, a[2], true),
            libc::SYS_pidfd_send_signal => {
                let info = Info::of(a[0] as i32);
                let process = info.value("Pid:").and_then(|pid| pid.parse().ok());
                (process.unwrap_or(0), a[1], false)
            }
            _ => (a[0] as i32, a[1], false),
        };
        if bit(signal) != 0 {
            // Who is in a group is not known here.
            let to = u64::try_from(to).ok().filter(|&to| to > 0).unwrap_or(EVERYBODY);
            let arg = signal | if thread { ONE_THREAD } else { 0 };
            self.release(Release::Signal, to, arg, order);
        }
    }

    /// A timer has been set, or stopped.
    pub(super) fn armed(&mut self, number: i64, a: [u64; 6], entered: Entered) {
        let id = match number {
            libc::SYS_setitimer if a[0] as i32 != libc::ITIMER_REAL => return,
            libc::SYS_setitimer | libc::SYS_alarm => REAL,
            libc::SYS_timer_settime => own(a[0] as u32),
            _ => of_descriptor(a[0] as i32),
        };
        // SAFETY: the kernel has just read it.
        let interval = unsafe { spans(number, a) }.map_or(0, |[interval, _]| interval);
        let value = entered.timeout.unwrap_or(0);
        if let Ok(mut timers) = TIMERS.try_lock() {
            let timer = timers.entry(id).or_default();
            if id == REAL {
                timer.signal = bit(libc::SIGALRM as u64);
            }
            let first = if value == 0 { 0 } else { entered.at + value };
            (timer.value, timer.interval, timer.first, timer.told) = (value, interval, first, 0);
        }
        self.release(Release::Timer, id, value, entered.order);
    }

    /// A handler of these signals begins: unless the call that one of them has ended is told
    /// already, it has come while the task computed.
    #[cfg_attr(test, allow(dead_code, reason = "what QEMU calls is not there in tests"))]
    pub(crate) fn handler_begins(&mut self, mask: u64) {
        let mask = mask & !OWN;
        if std::mem::take(&mut self.told_signal) || mask == 0 {
            return;
        }
        // Where a timer has sent it, it was no task.
        if ended(|_, t| t.signal & mask != 0, 0).is_none() {
            self.wait(Block::Handled, mask, 0);
        }
    }

    /// A signal has ended a call.
    pub(super) fn interrupted(&mut self, number: i64, result: i64, a: [u64; 6], entered: Entered) {
        self.told_signal = true;
        let handled = HANDLED.load(Relaxed);
        let mask = match number {
            // SAFETY: the kernel has just read it.
            libc::SYS_rt_sigsuspend => {
                unsafe { value::<u64>(a[0]) }.map_or(handled, |m| handled & !m)
            }
            _ => handled,
        };
        // A call that is made anew waits for what it waited for; the timer's end is by the way.
        if result != AGAIN || ended(|_, t| t.signal & mask != 0, entered.at).is_none() {
            self.signalled(mask, entered);
        }
    }

    /// `rt_sigtimedwait` returns: with a signal, or in vain.
    pub(super) fn took_signal(&mut self, result: i64, a: [u64; 6], entered: Entered) {
        match (u64::try_from(result), entered.timeout) {
            (Ok(signal), _) => {
                let at = if a[1] == 0 { 0 } else { a[1] + CODE_AT };
                // SAFETY: the kernel has just written it.
                let code = unsafe { value::<i32>(at) };
                self.came(signal, code, entered);
            }
            (Err(_), Some(ns @ 1..)) if result == -i64::from(libc::EAGAIN) => {
                self.wait(Block::ReadyTimeout, 0, ns);
            }
            (Err(_), _) => {}
        }
    }
    /// Signals have been read from a descriptor.
    pub(super) fn read_signals(&mut self, at: u64, bytes: u64, entered: Entered) {
        for at in (0..bytes / READ_BYTES).map(|i| at + i * READ_BYTES) {
            // SAFETY: the kernel has just written them.
            let (signal, code) = unsafe { (value::<u32>(at), value::<i32>(at + CODE_AT)) };
            self.came(u64::from(signal.unwrap_or(0)), code, entered);
        }
    }
    /// One signal has come, and it is known which.
    fn came(&mut self, signal: u64, code: Option<i32>, entered: Entered) {
        match code {
            Some(code) if !FROM_TIMER.contains(&code) => self.unless_timed(bit(signal), entered),
            // It may have waited to be taken.
            Some(_) => self.signalled_since(bit(signal), 0, entered),
            None => self.signalled(bit(signal), entered),
        }
    }

    /// One of these signals has come: from a timer, where one that sends it has ended.
    pub(super) fn signalled(&mut self, mask: u64, entered: Entered) {
        self.signalled_since(mask, entered.at, entered);
    }
    fn signalled_since(&mut self, mask: u64, since: u64, entered: Entered) {
        match ended(|_, t| t.signal & mask != 0, since) {
            Some((id, ns)) => self.wait(Block::Alarm, id, ns),
            None => self.unless_timed(mask, entered),
        }
    }
    fn unless_timed(&mut self, mask: u64, entered: Entered) {
        let us = if self.is_kept() { (clock() - entered.at) / 1000 } else { 0 };
        let order = self.number();
        let [us, ago] = [us, order - entered.order].map(|n| n.min(u64::from(u32::MAX)));
        self.point(Kind::Block, Block::Signal as u16, mask, us << 32 | ago, order);
    }
    /// A descriptor says that its timer has ended.
    pub(super) fn timed(&mut self, fd: i32) {
        if let Some((id, ns)) = ended(|id, _| id == of_descriptor(fd), 0) {
            self.wait(Block::Alarm, id, ns);
        }
    }
}
