//! Loads of processes that are under way, counted by perf events: how long each, and for how long
//! at least one was.
//!
//! ```text
//! watch ─▶ /proc/PID/task ─▶ of up to 64 threads a group of four events ─┐
//!          threads that they begin later inherit it                      │
//! take  ─▶ each group is read: what came since, scaled ──▶ sum ──▶ Seen::Loads
//! ```
//!
//! Worked example: since the last look a thread ran for 2 ms, in half of which its events had
//! counters: 3,000,000 cycles, 800,000 loads under way cycle by cycle, 100,000 cycles in which one
//! was, 2000 loads. A cycle is 1 ms / 3,000,000 = 333 ps. Twice as much is told: under way 533 µs,
//! busy 67 µs, 4000 loads; 8 at once.
//!
//! Which events there are is [`crate::probe::LoadEvents`].
//!
//! Source: specs/live.md#loads.

use crate::machine::Loads;
use crate::people::find;
use crate::people::stat::start_of;
use crate::place::Place;
use crate::probe::{Event, LoadEvents, On, Pmu, open_group};
use homenode_core::offcore::Offcore;
use homenode_core::policy::seen::Who;
use homenode_core::units::Picos;
use perf_event::{Counter, SampleFlag};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Threads of a process that are opened at most. How many loads are under way at once is a ratio,
/// which a part of the threads tells.
const THREADS: usize = 64;

/// What was counted so far by a thread and those that it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Nanoseconds for which the threads ran, and in which the events had counters.
    enabled: u64,
    running: u64,
    cycles: u64,
    under_way: u64,
    busy: u64,
    loads: u64,
}

impl Counts {
    fn since(&self, earlier: &Self) -> Self {
        let since = |now: u64, then: u64| now.saturating_sub(then);
        Self {
            enabled: since(self.enabled, earlier.enabled),
            running: since(self.running, earlier.running),
            cycles: since(self.cycles, earlier.cycles),
            under_way: since(self.under_way, earlier.under_way),
            busy: since(self.busy, earlier.busy),
            loads: since(self.loads, earlier.loads),
        }
    }
    /// As if the events had had counters all the time, cycles made picoseconds; nothing where they
    /// never had.
    fn scaled(&self) -> Offcore {
        let part = |of: u64, times: u64, by: u64| {
            let all = u128::from(of) * u128::from(times);
            u64::try_from(all.checked_div(by.into()).unwrap_or(0)).unwrap_or(u64::MAX)
        };
        // times enabled / running, times running / cycles
        let time = |cycles| Picos(part(cycles, self.enabled.saturating_mul(1000), self.cycles));
        Offcore {
            reads: part(self.loads, self.enabled, self.running),
            busy: time(self.busy),
            under_way: time(self.under_way),
        }
    }
}

/// The events of a thread, as one group; closed when dropped.
struct Group {
    /// The one that leads it and reads all, then the others.
    counters: Vec<Counter>,
    told: Counts,
}

impl Group {
    /// Opens the events of a thread and lets them count.
    fn open(events: &[Event], tid: u32) -> io::Result<Self> {
        // A thread that was begun when only a part of them was open has inherited that part, and
        // nothing can be read ever after.
        for _ in 0..3 {
            let counters = open_group(events, SampleFlag::empty(), On::Thread(tid), 0)?;
            let mut group = Self { counters, told: Counts::default() };
            if let Some(leader) = group.counters.first_mut() {
                leader.enable_group()?;
            }
            if group.read().is_some() {
                return Ok(group);
            }
        }
        Err(io::ErrorKind::Interrupted.into())
    }
    /// `None` where it can't be told now, as while a thread ends.
    fn read(&mut self) -> Option<Counts> {
        let data = self.counters.first_mut()?.read_group().ok()?;
        let ns = |time: Option<std::time::Duration>| u64::try_from(time?.as_nanos()).ok();
        let value = |at: usize| Some(data.get(self.counters.get(at)?)?.value());
        Some(Counts {
            enabled: ns(data.time_enabled())?,
            running: ns(data.time_running())?,
            cycles: value(0)?,
            under_way: value(1)?,
            busy: value(2)?,
            loads: value(3)?,
        })
    }
    /// What came since it was told last.
    fn take(&mut self) -> Offcore {
        let Some(now) = self.read() else { return Offcore::default() };
        let then = std::mem::replace(&mut self.told, now);
        now.since(&then).scaled()
    }
}

/// How many more groups a process may have: of what is left of half of all descriptors, half.
///
/// * `most` – descriptors that this process may have.
/// * `open` – that it has.
/// * `each` – that a group takes.
fn allowed(most: u64, open: u64, each: u64) -> usize {
    let left = (most / 2).saturating_sub(open);
    let groups = (left / 2).checked_div(each).unwrap_or(0);
    usize::try_from(groups).unwrap_or(THREADS).min(THREADS)
}

/// Descriptors that this process may have.
fn most_descriptors() -> u64 {
    // SAFETY: all zeros is a valid `rlimit`, which the call then fills.
    let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local of the right type.
    let r = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    if r == 0 { limit.rlim_cur } else { 0 }
}

/// Counts loads of processes of this machine.
pub struct PerfLoads {
    place: Place,
    events: Vec<Event>,
    most: u64,
    watched: BTreeMap<Who, Vec<Group>>,
}

impl PerfLoads {
    /// With the events that the probe found; `None` where none opens.
    pub fn open(pmu: &Pmu) -> Option<Self> {
        match &pmu.loads {
            LoadEvents::Opens(events) => Some(Self::of(events, most_descriptors())),
            LoadEvents::NoPmu
            | LoadEvents::Unknown
            | LoadEvents::Untried(_)
            | LoadEvents::Failed(_) => None,
        }
    }
    /// With these four in the place of cycles, loads under way, cycles in which one was, and loads.
    ///
    /// * `most` – descriptors that this process may have.
    pub fn of(events: &[Event], most: u64) -> Self {
        let (place, events) = (Place::here(), events.to_vec());
        Self { place, events, most, watched: BTreeMap::new() }
    }

    fn lives(&self, who: Who) -> bool {
        start_of(&self.place, who.pid) == Some(who.start)
    }
    fn list(&self, folder: &str) -> Vec<u32> {
        let all = find::all(&self.place.path(folder)).unwrap_or_default();
        all.into_iter().map(|(number, _)| number).collect()
    }
    /// Opens its threads.
    fn groups(&self, who: Who) -> Vec<Group> {
        let open = self.list("/proc/self/fd").len() as u64;
        let most = allowed(self.most, open, self.events.len() as u64);
        let (mut asked, mut groups) = (BTreeSet::new(), Vec::new());
        // Once more for those that were begun meanwhile by one that wasn't open yet. One that did
        // inherit counts twice, which a ratio of what all counted hardly shows.
        for _ in 0..2 {
            for tid in self.list(&format!("/proc/{}/task", who.pid)) {
                if groups.len() >= most {
                    return groups;
                }
                if !asked.insert(tid) {
                    continue;
                }
                match Group::open(&self.events, tid) {
                    Ok(group) => groups.push(group),
                    // It has ended.
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                    // No more are to be had, and others need descriptors too. Those that are there
                    // tell enough.
                    Err(_) => {
                        groups.pop();
                        return groups;
                    }
                }
            }
        }
        groups
    }
}

impl Loads for PerfLoads {
    fn watch(&mut self, who: Who) {
        if self.watched.contains_key(&who) {
            return;
        }
        let groups = self.groups(who);
        // If it lives now it did all the time, and these are its threads.
        if self.lives(who) {
            self.watched.insert(who, groups);
        }
    }
    fn unwatch(&mut self, who: Who) {
        self.watched.remove(&who);
    }
    fn take(&mut self, who: Who) -> Option<Offcore> {
        let mut all = Offcore::default();
        for group in self.watched.get_mut(&who)? {
            all.take_over(&group.take());
        }
        (all != Offcore::default()).then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: Counts =
        Counts { enabled: 10, running: 10, cycles: 30, under_way: 40, busy: 20, loads: 5 };

    // The example above.
    #[test]
    fn counts_are_scaled_to_all_of_the_time_and_cycles_become_time() {
        let now = Counts {
            enabled: 2_000_010,
            running: 1_000_010,
            cycles: 3_000_030,
            under_way: 800_040,
            busy: 100_020,
            loads: 2005,
        };
        let counted = now.since(&THEN).scaled();
        let (busy, under_way) = (Picos(66_666_666), Picos(533_333_333));
        assert_eq!(counted, Offcore { reads: 4000, busy, under_way });
        assert_eq!(counted.at_once(), Some(8000));
        // All of the time on counters of 2 GHz: a cycle is 500 ps.
        let all = Counts { enabled: 500, running: 500, cycles: 1000, ..THEN };
        let (busy, under_way) = (Picos(10_000), Picos(20_000));
        assert_eq!(all.scaled(), Offcore { reads: 5, busy, under_way });
    }

    #[test]
    fn nothing_is_told_of_events_that_never_had_counters() {
        let now = Counts { enabled: 2_000_010, ..THEN };
        assert_eq!(now.since(&THEN).scaled(), Offcore::default());
        // Counts never go back; if they did, it would be nothing too.
        assert_eq!(Counts::default().since(&THEN).scaled(), Offcore::default());
        let most = Counts { enabled: u64::MAX, running: 1, cycles: 1, ..THEN };
        assert_eq!(most.scaled().under_way, Picos(u64::MAX), "and nothing overflows");
    }

    #[test]
    fn half_of_all_descriptors_are_left_to_others() {
        // The usual limit: the first process has half of what is left of 512, then the next.
        assert_eq!(allowed(1024, 40, 4), 59);
        assert_eq!(allowed(1024, 40 + 4 * 59, 4), 29);
        assert_eq!(allowed(1024, 512, 4), 0);
        assert_eq!(allowed(1024, 4000, 4), 0);
        assert_eq!(allowed(u64::MAX, 40, 4), THREADS);
        assert_eq!(allowed(1024, 40, 0), 0);
    }
}
