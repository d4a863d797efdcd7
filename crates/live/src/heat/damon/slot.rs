//! A kdamond's slot in sysfs: made, named targets, switched, taken down.
//!
//! ```text
//! kdamonds/nr_kdamonds         1       written only while it is 0, and 0 at the end
//! kdamonds/0/state             on, off, commit
//! kdamonds/0/pid               DAMON's thread; -1 for none
//! kdamonds/0/contexts/0/operations                   vaddr
//! kdamonds/0/contexts/0/monitoring_attrs/…           intervals, numbers of regions
//! kdamonds/0/contexts/0/targets/0/pid_target         homenode itself: the slot's mark
//! kdamonds/0/contexts/0/targets/1/pid_target …       who is watched
//! ```
//!
//! Writing `nr_kdamonds` or `nr_targets` throws away what was below. No scheme is set up:
//! regions come by the tracepoint.
//!
//! Source: specs/live.md#damon.

use super::error::DamonError;
use super::kernel::{FOLDER, Files};
use homenode_core::policy::checks::{INTERVALS, SHORTEST, aggregation};
use homenode_core::units::Picos;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Microseconds after which regions are fitted to the mappings.
pub(super) const UPDATE_US: u64 = 1_000_000;
/// Fewest and most regions.
const REGIONS: (u64, u64) = (10, 1000);

/// What says how often the thread checks.
fn intervals(every: Picos) -> [(&'static str, String); 2] {
    let us = |time: Picos| (time.as_ns() / 1000).to_string();
    [
        ("monitoring_attrs/intervals/sample_us", us(every)),
        ("monitoring_attrs/intervals/aggr_us", us(aggregation(every))),
    ]
}

/// What is the same in every slot of ours.
fn settings() -> [(&'static str, String); 4] {
    [
        ("operations", "vaddr".to_owned()),
        ("monitoring_attrs/intervals/update_us", UPDATE_US.to_string()),
        ("monitoring_attrs/nr_regions/min", REGIONS.0.to_string()),
        ("monitoring_attrs/nr_regions/max", REGIONS.1.to_string()),
    ]
}

const CONTEXT: &str = "0/contexts/0";
const STATE: &str = "0/state";

/// `state`, `pid` and `nr_kdamonds` have one lock, which is only tried, also for reading:
/// the kernel answers EBUSY for a moment while its own thread looks for what it is told, or
/// somebody at its files; and for good where a module has DAMON.
const BUSY_TRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(20);

fn patiently<T>(mut f: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..BUSY_TRIES {
        match f() {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => thread::sleep(BUSY_PAUSE),
            done => return done,
        }
    }
    f()
}

fn write(files: &(impl Files + ?Sized), name: &str, value: &str) -> Result<(), DamonError> {
    patiently(|| files.write(name, value)).map_err(|source| refused(name, value, source))
}

fn refused(name: &str, value: &str, source: io::Error) -> DamonError {
    DamonError::Write { name: name.to_owned(), value: value.to_owned(), source }
}

fn number(files: &(impl Files + ?Sized), name: &str) -> Option<u64> {
    files.read(name).ok()?.parse().ok()
}

/// Slots that there are.
pub(super) fn count(files: &(impl Files + ?Sized)) -> Option<u64> {
    number(files, "nr_kdamonds")
}

/// Makes the slot, off, with `me` as its only target. If a write is refused nothing is
/// left.
pub(super) fn make(files: &(impl Files + ?Sized), me: u32) -> Result<(), DamonError> {
    const NR: &str = "nr_kdamonds";
    // Each time anew: writing throws away what somebody has made meanwhile.
    let made = patiently(|| match count(files) {
        Some(0) => files.write(NR, "1"),
        _ => Err(io::Error::from_raw_os_error(libc::EEXIST)),
    });
    match made {
        Err(e) if e.raw_os_error() == Some(libc::EEXIST) => return Err(DamonError::Theirs),
        made => made.map_err(|source| refused(NR, "1", source))?,
    }
    let made = set_up(files, me);
    // Nobody had the time to do anything with it.
    if made.is_err() && count(files) == Some(1) && matches!(is_on(files), Ok(false)) {
        write(files, "nr_kdamonds", "0")?;
    }
    made
}

fn set_up(files: &(impl Files + ?Sized), me: u32) -> Result<(), DamonError> {
    write(files, "0/contexts/nr_contexts", "1")?;
    // The mark first: what is not marked is nobody's.
    seat(files, &[me])?;
    set_interval(files, SHORTEST)?;
    for (name, value) in settings() {
        write(files, &format!("{CONTEXT}/{name}"), &value)?;
    }
    Ok(())
}

/// How often the thread checks, from the next [`start`] or [`commit`] on.
pub(super) fn set_interval(files: &(impl Files + ?Sized), every: Picos) -> Result<(), DamonError> {
    for (name, value) in intervals(every) {
        write(files, &format!("{CONTEXT}/{name}"), &value)?;
    }
    Ok(())
}

/// Whether it is the slot that process `me` has made: one slot, with our mark and our
/// settings.
pub(super) fn is_of(files: &(impl Files + ?Sized), me: u32) -> bool {
    let is = |(name, value): &(&str, String)| {
        files.read(&format!("{CONTEXT}/{name}")).is_ok_and(|now| now == *value)
    };
    // Killed between the two of an interval, it has one of each.
    let interval = |i: usize| INTERVALS.iter().any(|&every| is(&intervals(every)[i]));
    is_marked(files, me) && settings().iter().all(is) && interval(0) && interval(1)
}

/// The same without the settings, as it is while it is being made.
pub(super) fn is_marked(files: &(impl Files + ?Sized), me: u32) -> bool {
    count(files) == Some(1)
        && number(files, "0/contexts/nr_contexts") == Some(1)
        && number(files, &format!("{CONTEXT}/targets/0/pid_target")) == Some(me.into())
}

/// Names the targets. DAMON's thread hears of it with [`start`] or [`commit`].
pub(super) fn seat(files: &(impl Files + ?Sized), pids: &[u32]) -> Result<(), DamonError> {
    let nr = format!("{CONTEXT}/targets/nr_targets");
    if number(files, &nr) != Some(pids.len() as u64) {
        write(files, &nr, &pids.len().to_string())?;
    }
    for (i, pid) in pids.iter().enumerate() {
        write(files, &format!("{CONTEXT}/targets/{i}/pid_target"), &pid.to_string())?;
    }
    Ok(())
}

/// Whether DAMON's thread runs. A lock that stays taken is no answer.
pub(super) fn is_on(files: &(impl Files + ?Sized)) -> Result<bool, DamonError> {
    match patiently(|| files.read(STATE)) {
        Ok(text) => Ok(text == "on"),
        Err(source) if source.raw_os_error() == Some(libc::EBUSY) => {
            Err(DamonError::Read { path: Path::new(FOLDER).join(STATE), source })
        }
        // There is no slot any more.
        Err(_) => Ok(false),
    }
}

/// DAMON's thread, if there is one.
pub(super) fn thread(files: &(impl Files + ?Sized)) -> Option<u32> {
    patiently(|| files.read("0/pid")).ok()?.parse().ok()
}

/// What became of telling DAMON about its targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It watches them.
    Yes,
    /// One of them is gone; 6.12 ends the thread then, later ones refuse.
    Gone,
}

fn tell(files: &(impl Files + ?Sized), word: &str) -> Result<Heard, DamonError> {
    match write(files, STATE, word) {
        Ok(()) => Ok(if is_on(files)? { Heard::Yes } else { Heard::Gone }),
        Err(DamonError::Write { source, .. })
            if matches!(source.raw_os_error(), Some(libc::EINVAL | libc::ESRCH)) =>
        {
            Ok(Heard::Gone)
        }
        Err(e) => Err(e),
    }
}

/// Starts the thread.
pub(super) fn start(files: &(impl Files + ?Sized)) -> Result<Heard, DamonError> {
    tell(files, "on")
}

/// Tells the running thread its targets, those at the same place as before with the
/// regions that they have.
pub(super) fn commit(files: &(impl Files + ?Sized)) -> Result<Heard, DamonError> {
    tell(files, "commit")
}

/// Ends the thread, if it runs.
pub(super) fn stop(files: &(impl Files + ?Sized)) -> Result<(), DamonError> {
    if !is_on(files)? {
        return Ok(());
    }
    match write(files, STATE, "off") {
        // It may end by itself meanwhile.
        Err(e) if is_on(files)? => Err(e),
        _ => Ok(()),
    }
}

/// Takes the slot down. Only for one that is ours. While the thread is ending the kernel is
/// busy.
pub(super) fn remove(files: &(impl Files + ?Sized)) -> Result<(), DamonError> {
    stop(files)?;
    write(files, "nr_kdamonds", "0")
}
