//! DAMON as a source of heat: a kdamond of our own over the watched processes.
//!
//! ```text
//!  watch ─▶ seats ─▶ sysfs: targets, on, commit ─▶ kdamond ─┐ each 0.1 to 0.8 s, per target and
//!                                                           │ region: damon_aggregated
//!  take ◀── regions by target ◀── blocks ◀── perf's ring ◀──┘
//! ```
//!
//! How often the kdamond checks follows from what it takes (`homenode_core::policy::checks`).
//!
//! Regions come by the tracepoint `damon_aggregated`, bound to the kdamond's thread, not
//! by `tried_regions`: it names the target, and costs no folder per region. Nothing of it
//! outlives this process. What does is the slot in sysfs, which is journaled before it is
//! made, carries a mark, and is taken down by [`Heat::close`], by dropping, or by
//! [`restore`]. Where anybody has a slot none is made.
//!
//! The tests play the kernel; guests have real ones.
//!
//! Source: specs/live.md#damon.

mod blocks;
mod error;
mod journal;
mod kernel;
mod record;
mod seats;
mod slot;
#[cfg(test)]
mod tests;
mod wake;

pub use error::DamonError;
pub use journal::Restored;

use crate::machine::Heat;
use crate::place::Place;
use crate::probe::{self, FilesOnly};
use blocks::{Block, Blocks};
use homenode_core::policy::checks::{CHECKS, CheckInterval, aggregation};
use homenode_core::policy::choice;
use homenode_core::policy::seen::{Seen, Source, Span, Who};
use homenode_core::units::{PAGE_SIZE, Picos};
use kernel::{Folder, Kernel, Real, Tap, Told};
use seats::Seat;
use slot::{Heard, UPDATE_US};
use std::collections::BTreeSet;
use std::os::fd::RawFd;

/// Aggregations of silence that are told.
const SILENCE: u64 = 10;
/// Aggregations that are not told where the interval changes: that in which it does counts
/// both, and of the next it is not known how long it took.
const MIXED: u32 = 2;
/// Nanoseconds between two changes of the targets: one update of the regions and some.
/// Each change begins the kernel's waiting for the update anew.
const BETWEEN: u64 = (UPDATE_US + UPDATE_US / 2) * 1000;
/// How often targets are told again where one ended meanwhile.
const TRIES: u32 = 8;

/// DAMON, with a slot of its own.
pub struct Damon {
    kernel: Box<dyn Kernel>,
    me: u32,
    /// While the slot is there.
    kept: Option<journal::Kept>,
    wake: Option<wake::Wake>,
    wanted: BTreeSet<Who>,
    /// As the kernel's thread has them; empty while there is none.
    seats: Vec<Seat>,
    tap: Option<Box<dyn Tap>>,
    blocks: Blocks,
    /// DAMON's thread, and its time when last looked.
    thread: Option<(u32, Picos)>,
    /// Time of the threads before.
    spent: Picos,
    /// From when on targets may be told again, `CLOCK_MONOTONIC` in nanoseconds.
    may_tell: u64,
    /// The last word, or the start if there was none.
    spoke: u64,
    /// Whether silence was told.
    silent: bool,
    /// How often it is to check.
    interval: CheckInterval,
    /// How often the thread was told to.
    every: Picos,
}

impl Damon {
    /// Makes a slot. Nobody is watched, and no thread runs, until [`Heat::watch`].
    ///
    /// # Errors
    /// [`DamonError`]; what is lacking is told before anything is changed.
    pub fn open(place: &Place) -> Result<Self, DamonError> {
        // First: a homenode's slot is not somebody else's.
        journal::look(place)?;
        let found = probe::look(&place.path("/"), &FilesOnly);
        let lacks = choice::lacks(Source::Damon, &found.facts());
        if !lacks.is_empty() {
            return Err(DamonError::Lacking { lacks });
        }
        Self::begin(place, Box::new(Real::find(place)?))
    }

    fn begin(place: &Place, kernel: Box<dyn Kernel>) -> Result<Self, DamonError> {
        let me = std::process::id();
        let kept = journal::Kept::begin(place, (me, kernel.start_of(me).unwrap_or(0)))?;
        let mut damon = Self {
            kernel,
            me,
            kept: None,
            wake: wake::Wake::new().ok(),
            wanted: BTreeSet::new(),
            seats: Vec::new(),
            tap: None,
            blocks: Blocks::default(),
            thread: None,
            spent: Picos::ZERO,
            may_tell: 0,
            spoke: 0,
            silent: false,
            interval: CheckInterval::new(),
            every: CheckInterval::new().every(),
        };
        damon.kept = Some(kept);
        match slot::make(&*damon.kernel, me) {
            Err(DamonError::Theirs) => {
                // Somebody was quicker: there is nothing of ours to be taken down.
                damon.kept.take().map_or(Ok(()), journal::Kept::end)?;
                Err(DamonError::Theirs)
            }
            // If it fails, dropping removes the journal.
            made => made.map(|()| damon),
        }
    }

    /// Processor time of DAMON's threads for us so far.
    fn all_spent(&self) -> Picos {
        let now = self.thread.map_or(Picos::ZERO, |(thread, seen)| {
            self.kernel.ran(thread).unwrap_or(Picos::ZERO).max(seen)
        });
        Picos(self.spent.0.saturating_add(now.0))
    }

    /// Those that live, each under its start.
    fn bury(&mut self) {
        let kernel = &self.kernel;
        self.wanted.retain(|who| kernel.start_of(who.pid) == Some(who.start));
    }

    fn ends(&mut self) {
        self.spent = self.all_spent();
        (self.thread, self.tap) = (None, None);
        self.seats.clear();
        self.blocks = Blocks::default();
    }

    /// Makes DAMON's targets those that are wanted.
    fn settle(&mut self) -> Result<(), DamonError> {
        for _ in 0..TRIES {
            if !slot::is_marked(&*self.kernel, self.me) {
                return Err(DamonError::Theirs);
            }
            let on = slot::is_on(&*self.kernel)?;
            if !on && !self.seats.is_empty() {
                self.ends();
            }
            if on && self.tap.is_none() && !self.seats.is_empty() {
                self.listen()?;
            }
            self.bury();
            if self.wanted.is_empty() {
                slot::stop(&*self.kernel)?;
                self.ends();
                return Ok(());
            }
            let every = self.interval.every();
            let mut next = seats::plan(&self.seats, &self.wanted, every);
            let paced = every == self.every;
            if on && paced && seats::same(&next, &self.seats) {
                return Ok(());
            }
            let now = self.kernel.now_ns();
            if on && now < self.may_tell {
                return Ok(());
            }
            let pids: Vec<u32> = next.iter().map(|s| s.who.map_or(self.me, |w| w.pid)).collect();
            slot::seat(&*self.kernel, &pids)?;
            if !paced {
                slot::set_interval(&*self.kernel, every)?;
                self.every = every;
                next.iter_mut().for_each(|s| s.quiet = s.quiet.max(MIXED));
            }
            let heard = if on { slot::commit(&*self.kernel)? } else { slot::start(&*self.kernel)? };
            if heard == Heard::Gone {
                continue;
            }
            self.seats = next;
            let now = self.kernel.now_ns();
            self.may_tell = now.saturating_add(BETWEEN);
            if !on {
                (self.spoke, self.silent) = (now, false);
                self.listen()?;
            }
            // A PID may have changed hands before it was told: then its seat is nobody's.
            let before = self.wanted.len();
            self.bury();
            if self.wanted.len() == before {
                return Ok(());
            }
        }
        Err(DamonError::Restless)
    }

    /// Listens to the thread that was started.
    fn listen(&mut self) -> Result<(), DamonError> {
        let Some(thread) = slot::thread(&*self.kernel) else { return Ok(()) };
        self.thread = Some((thread, Picos::ZERO));
        let tap = match self.kernel.tap(thread) {
            Ok(tap) => tap,
            // It has ended already: noticed the next time.
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
            Err(e) => return Err(DamonError::Perf(e)),
        };
        if let (Some(wake), Some(fd)) = (&self.wake, tap.fd()) {
            // Without it the ring is emptied at each look only.
            let _ = wake.also(fd);
        }
        self.tap = Some(tap);
        Ok(())
    }

    /// When there will be something to do.
    fn wake_up(&self) {
        let Some(wake) = &self.wake else { return };
        let next = seats::plan(&self.seats, &self.wanted, self.every);
        let open = !seats::same(&next, &self.seats) || self.every != self.interval.every();
        let idle = self.seats.is_empty() && self.wanted.is_empty();
        wake.at((open && !idle).then_some(if self.seats.is_empty() { 0 } else { self.may_tell }));
    }

    /// Takes what the thread has told.
    fn hear(&mut self, now: Picos, out: &mut Vec<Seen>) {
        let mut told = Vec::new();
        if let Some(tap) = &mut self.tap {
            tap.drain(&mut told);
        }
        let mut lost = 0u64;
        for one in told {
            match one {
                Told::Region(record) => self.blocks.push(record),
                Told::Lost(n) => {
                    self.blocks.gap();
                    lost = lost.saturating_add(n);
                }
            }
        }
        if lost > 0 {
            out.push(Seen::Lost { events: lost });
        }
        let now_ns = self.kernel.now_ns();
        let silence = SILENCE * aggregation(self.every).as_ns();
        for (target, block) in self.blocks.take() {
            let seat = usize::try_from(target).ok().and_then(|i| self.seats.get_mut(i));
            let Some(seat) = seat else { continue };
            let quiet = seat.quiet;
            seat.quiet = quiet.saturating_sub(block.of);
            // What was in a full ring for long is no news.
            let old = now_ns.saturating_sub(block.at) > silence;
            let Some(who) = seat.who else { continue };
            if !old {
                (self.spoke, self.silent) = (self.spoke.max(block.at), false);
            }
            if !old && quiet == 0 && self.wanted.contains(&who) {
                tell(who, &block, self.every, out);
            }
        }
        if let Some((thread, seen)) = &mut self.thread {
            *seen = self.kernel.ran(*thread).unwrap_or(*seen).max(*seen);
        }
        self.interval.judge(Picos::from_ns(now_ns), self.all_spent());
        let since = now_ns.saturating_sub(self.spoke);
        // Before the thread was started there is nothing to be silent.
        if !self.seats.is_empty() && since > silence && !self.silent {
            self.silent = true;
            out.push(Seen::Stale { since: now.saturating_sub(Picos::from_ns(since)) });
        }
    }

    fn take_down(&mut self) -> Result<(), DamonError> {
        self.ends();
        let Some(kept) = self.kept.take() else { return Ok(()) };
        match slot::count(&*self.kernel) {
            None | Some(0) => kept.end(),
            Some(_) if slot::is_marked(&*self.kernel, self.me) => {
                slot::remove(&*self.kernel)?;
                kept.end()
            }
            Some(_) => {
                kept.end()?;
                Err(DamonError::Theirs)
            }
        }
    }
}

/// A target's regions.
///
/// * `asked` – time between two checks as the thread was told.
fn tell(who: Who, block: &Block, asked: Picos, out: &mut Vec<Seen>) {
    // DAMON's thread sleeps for at least the interval: under load it takes longer.
    let took = block.took.map_or(asked, |t| Picos::from_ns(t / u64::from(CHECKS)));
    let every = took.max(asked).min(Picos(10 * asked.0));
    out.extend(block.regions.iter().map(|r| {
        let span = Span { start: r.start / PAGE_SIZE, end: r.end.div_ceil(PAGE_SIZE) };
        let accessed = u32::try_from(r.accesses).unwrap_or(u32::MAX).min(CHECKS);
        let age = Picos(r.age.saturating_mul(aggregation(asked).0));
        Seen::Region { who, span, accessed, checks: CHECKS, every, age }
    }));
}

impl Heat for Damon {
    fn source(&self) -> Source {
        Source::Damon
    }
    /// It begins with the next [`Heat::take`], for which [`Heat::wakes`] rings: so all
    /// that begin together are told to the kernel at once.
    fn watch(&mut self, who: Who) {
        self.wanted.insert(who);
        self.wake_up();
    }
    fn unwatch(&mut self, who: Who) {
        self.wanted.remove(&who);
        self.wake_up();
    }
    fn take(&mut self, now: Picos, out: &mut Vec<Seen>) -> Result<(), String> {
        self.hear(now, out);
        let settled = self.settle();
        self.wake_up();
        settled.map_err(|e| crate::sentence(&e))
    }
    fn closely(&mut self) {
        self.interval = CheckInterval::shortest();
    }
    fn moved(&mut self) {
        self.interval.moved(Picos::from_ns(self.kernel.now_ns()));
    }
    fn wakes(&self) -> Option<RawFd> {
        self.wake.as_ref().map(wake::Wake::fd)
    }
    fn spent(&self) -> Option<Picos> {
        Some(self.all_spent())
    }
    fn close(&mut self) -> Result<(), String> {
        self.take_down().map_err(|e| crate::sentence(&e))
    }
}

impl Drop for Damon {
    fn drop(&mut self) {
        if let Err(e) = self.take_down() {
            eprintln!("homenode: {}", crate::sentence(&e));
        }
    }
}

/// Takes down the slot of a homenode that ended without doing so. Doing it again does
/// nothing.
///
/// # Errors
/// [`DamonError`] while that homenode lives, if the journal is damaged, or if the slot
/// can't be taken down.
pub fn restore(place: &Place) -> Result<Restored, DamonError> {
    journal::restore(place, &Folder::at(place))
}
