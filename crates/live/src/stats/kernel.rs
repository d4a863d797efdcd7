//! The kernel's own statistics, read beside homenode's: its files, and the switch that they need.
//!
//! ```text
//!  Counting::begin ─▶ switch on, if it was off (journal first)
//!  read ─▶ Reading: /proc/schedstat, /proc/PID/task/TID/sched of each task
//!  Counting::end ─▶ switch as it was
//! ```
//!
//! Source: specs/schedstats.md#beside.

use super::{LookError, Targets};
use crate::acting::{self, Actor, Purpose, PutBack, who};
use crate::journal::Kind;
use crate::machine::time_of;
use crate::people::find::{all, cgroup_folder, of_cgroup};
use crate::place::Place;
use homenode_core::sched::compared::Reading;
use homenode_core::sched::stats::{Schedstat, TaskSched};
use std::fs;
use std::io;
use std::path::Path;

/// Whether waits, sleeps and wake-ups are counted: 0 or 1.
pub const SWITCH: &str = "/proc/sys/kernel/sched_schedstats";
/// What is counted of CPUs; its first line tells the version of all.
const SCHEDSTAT: &str = "/proc/schedstat";

/// To have the kernel count.
pub static COUNTING: Purpose = Purpose {
    kind: Kind {
        name: "stats",
        version: "1",
        remedy: "and old values are not guessed. Nothing was changed. Look at \
                 /proc/sys/kernel/sched_schedstats, which is 0 after boot as a rule, set it by hand, \
                 and remove the journal",
        who,
        at_work: "has the kernel count already (one at a time can)",
        left: "had the kernel count and ended without putting the switch back",
    },
    knobs: &[SWITCH],
};

/// That the kernel counts, until it is dropped.
#[derive(Debug)]
pub struct Counting {
    actor: Actor,
    /// What the switch showed before.
    pub before: String,
}

impl Counting {
    /// Turns the switch on, if it is off. Returns a sentence if a journal was thrown away.
    ///
    /// # Errors
    /// The kernel has no such statistics, or of no version that is read; somebody else's journal;
    /// a switch that can't be written. It is as it was then.
    pub fn begin(place: &Place) -> Result<(Self, Option<String>), LookError> {
        let Some(before) = acting::shown(place, SWITCH) else {
            return Err(LookError::NoSchedstats);
        };
        // Before anything is changed: what can't be read need not be counted.
        schedstat(place)?;
        let (mut actor, note) = Actor::begin(&COUNTING, place)?;
        actor.set(SWITCH, "1")?;
        Ok((Self { actor, before }, note))
    }
    /// What it shows now, where somebody else has turned it off meanwhile.
    pub fn theirs(&self, place: &Place) -> Option<String> {
        acting::shown(place, SWITCH).filter(|now| now != "1")
    }
    /// Puts the switch back.
    pub fn end(self) -> PutBack {
        self.actor.end()
    }
}

fn odd(path: &Path) -> impl Fn(homenode_core::sched::stats::StatsError) -> LookError + '_ {
    move |source| LookError::Odd { path: path.to_owned(), source }
}

fn schedstat(place: &Place) -> Result<Schedstat, LookError> {
    let path = place.path(SCHEDSTAT);
    let text = fs::read_to_string(&path).map_err(|_| LookError::NoSchedstats)?;
    Schedstat::parse(&text).map_err(odd(&path))
}

/// Tasks that are there of those that are meant, as process and number. None of a program that
/// is still to be started.
///
/// # Errors
/// A cgroup that can't be read.
pub fn tasks_of(place: &Place, targets: &Targets) -> Result<Vec<(u32, u32)>, LookError> {
    let proc = place.path("/proc");
    let pids: Vec<u32> = match targets {
        Targets::All => {
            let found = all(&proc).map_err(|source| LookError::Read { path: proc.clone(), source });
            found?.into_iter().map(|(pid, _)| pid).collect()
        }
        Targets::Pids(pids) => pids.clone(),
        Targets::Cgroup(path) => match cgroup_folder(&place.path("/"), path) {
            Some(folder) => of_cgroup(&folder)
                .map_err(|(path, source)| LookError::Read { path, source })?
                .into_iter()
                .collect(),
            None => return Err(LookError::NoCgroup { path: path.clone() }),
        },
        Targets::Tree => Vec::new(),
    };
    let threads = |pid: u32| {
        // A process that has ended meanwhile has none.
        let found = all(&proc.join(format!("{pid}/task"))).unwrap_or_default();
        found.into_iter().map(move |(tid, _)| (pid, tid))
    };
    Ok(pids.into_iter().flat_map(threads).collect())
}

/// Reads the kernel's counters of all CPUs and of these tasks; those that are gone are left out.
///
/// # Errors
/// A text that is not as a kernel that is known prints it.
pub fn read(
    place: &Place,
    tasks: impl IntoIterator<Item = (u32, u32)>,
) -> Result<Reading, LookError> {
    let mut reading = Reading { cpus: schedstat(place)?, tasks: Default::default() };
    for (pid, tid) in tasks {
        let path = place.path(&format!("/proc/{pid}/task/{tid}/sched"));
        let text = match fs::read(&path) {
            // A name may have any bytes.
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if is_gone(&e) => continue,
            Err(source) => return Err(LookError::Read { path, source }),
        };
        // One that ends just then shows nothing.
        if !text.is_empty() {
            reading.tasks.insert(tid, TaskSched::parse(&text).map_err(odd(&path))?);
        }
    }
    Ok(reading)
}

/// The clock by which tasks' beginnings are told: since boot, with time suspended.
pub fn since_boot_ns() -> u64 {
    time_of(libc::CLOCK_BOOTTIME).as_nanos() as u64
}

fn is_gone(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_fixtures::Folder;

    /// A machine whose files are those of a real kernel.
    fn machine(switch: Option<&str>) -> (Folder, Place) {
        let at = Folder::new();
        let place = Place::at(&at);
        let real = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/schedstats");
        let file = |name: &str| fs::read_to_string(format!("{real}/{name}")).unwrap();
        let mut files = vec![
            ("/proc/sys/kernel/random/boot_id", "4c1f7a52\n".to_owned()),
            (SCHEDSTAT, file("6.12.schedstat.busy")),
            ("/proc/213/task/213/sched", file("6.12.sched.on")),
            ("/proc/214/task/214/sched", String::new()),
            ("/proc/meminfo", String::new()),
        ];
        files.extend(switch.map(|s| (SWITCH, format!("{s}\n"))));
        for (path, text) in files {
            let path = place.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        (at, place)
    }

    // specs/schedstats.md#beside
    #[test]
    fn the_switch_is_on_while_it_is_read_and_then_as_it_was() {
        let (_at, place) = machine(Some("0"));
        let (counting, note) = Counting::begin(&place).unwrap();
        assert_eq!((note, counting.before.as_str()), (None, "0"));
        assert_eq!(acting::shown(&place, SWITCH).as_deref(), Some("1"));
        let journal = COUNTING.kind.path(&place);
        let text = fs::read_to_string(&journal).unwrap();
        assert!(text.contains("knob /proc/sys/kernel/sched_schedstats 0 1\n"), "{text}");
        let second = Counting::begin(&place).unwrap_err().to_string();
        assert!(second.contains("has the kernel count already"), "{second}");
        assert_eq!(counting.end().set.len(), 1);
        assert_eq!(acting::shown(&place, SWITCH).as_deref(), Some("0"));
        assert!(!journal.exists());
        // One that is on is left on.
        let (_at, place) = machine(Some("1"));
        let (counting, _) = Counting::begin(&place).unwrap();
        assert!(counting.end().set.is_empty());
        assert_eq!(acting::shown(&place, SWITCH).as_deref(), Some("1"));
    }

    #[test]
    fn a_kernel_without_them_and_one_that_is_not_known_are_told() {
        let (_at, place) = machine(None);
        let lack = Counting::begin(&place).unwrap_err();
        assert!(lack.is_lack() && lack.to_string().contains("CONFIG_SCHEDSTATS"), "{lack}");
        let (_at, place) = machine(Some("0"));
        fs::write(place.path(SCHEDSTAT), "version 18\ntimestamp 1\n").unwrap();
        let odd = Counting::begin(&place).unwrap_err();
        assert!(odd.is_lack(), "{odd}");
        assert!(crate::sentence(&odd).contains("line 1: "), "{}", crate::sentence(&odd));
        assert_eq!(acting::shown(&place, SWITCH).as_deref(), Some("0"), "nothing was changed");
    }

    #[test]
    fn tasks_that_are_gone_are_left_out() {
        let (_at, place) = machine(Some("1"));
        let tasks = tasks_of(&place, &Targets::All).unwrap();
        assert_eq!(tasks, [(213, 213), (214, 214)]);
        let reading = read(&place, tasks.into_iter().chain([(215, 215)])).unwrap();
        assert_eq!(reading.tasks.keys().collect::<Vec<_>>(), [&213]);
        assert_eq!(tasks_of(&place, &Targets::Tree).unwrap(), []);
    }
}
