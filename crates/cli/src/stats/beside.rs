//! The kernel's own statistics beside homenode's: what `--kernel` adds to a look.
//!
//! ```text
//!  Beside::begin ─▶ switch on, read ─▶ the look begins ─▶ begun: read
//!  ending: read ─▶ the look ends ─▶ ended: read, switch as it was ─▶ Compared
//! ```
//!
//! Source: specs/schedstats.md#beside.

use anyhow::Result;
use homenode_core::sched::compared::{Compared, Reading, Readings};
use homenode_core::sched::look::{Doing, Look};
use homenode_live::place::Place;
use homenode_live::stats::kernel::{Counting, SWITCH, read, since_boot_ns, tasks_of};
use homenode_live::stats::{LookError, Targets};
use std::time::Duration;

/// The kernel counts, and was read so far.
pub(super) struct Beside {
    place: Place,
    counting: Counting,
    begun_ns: u64,
    before: Vec<Reading>,
    targets: Targets,
    notes: Vec<String>,
}

impl Beside {
    /// Turns the kernel's switch on, and reads.
    pub(super) fn begin(place: &Place, targets: &Targets) -> Result<Self, LookError> {
        let (counting, note) = Counting::begin(place)?;
        let mut own = Self {
            place: place.clone(),
            counting,
            begun_ns: since_boot_ns(),
            before: Vec::new(),
            targets: targets.clone(),
            notes: note.into_iter().collect(),
        };
        own.read_before()?;
        leave_the_cpu();
        Ok(own)
    }
    fn read_before(&mut self) -> Result<(), LookError> {
        let tasks = tasks_of(&self.place, &self.targets)?;
        self.before.push(read(&self.place, tasks)?);
        Ok(())
    }
    /// Reads again; the look has just begun.
    pub(super) fn begun(&mut self) -> Result<(), LookError> {
        self.read_before()
    }
    /// Reads those that were looked at, just before the look ends.
    pub(super) fn ending(&self, so_far: &Look) -> Result<Reading, LookError> {
        let reading = read(&self.place, tasks_in(so_far))?;
        leave_the_cpu();
        Ok(reading)
    }
    /// Reads once more, puts the switch back, and puts the two beside each other.
    ///
    /// * `reading` – what `ending` has read.
    /// * `look` – with what tasks were doing at its end not in the sums yet.
    ///
    /// Also gives what has to be said of it.
    pub(super) fn ended(self, reading: Reading, look: &Look) -> Result<(Compared, Vec<String>)> {
        let after = [reading, read(&self.place, tasks_in(look))?];
        let mut notes = self.notes;
        if let Some(now) = self.counting.theirs(&self.place) {
            notes.push(format!(
                "somebody has set {SWITCH} to {now} during the look, so the kernel has not counted \
                 all of it"
            ));
        }
        if self.counting.before != "1" {
            notes.push(format!("{SWITCH} was {} and was 1 during the look", self.counting.before));
        }
        notes.extend(self.counting.end().sentences());
        let everybody = self.targets == Targets::All;
        let Ok(before) = <[Reading; 2]>::try_from(self.before) else {
            anyhow::bail!("the kernel was not read twice before the look; please report it")
        };
        let readings = Readings { before, after, begun_ns: self.begun_ns };
        Ok((Compared::of(look, &readings, everybody), notes))
    }
}

/// Sleeps for a moment, between reading and the look's beginning or end. The kernel adds the time of a
/// run to its CPU's when the task leaves it: what reading took would be in the look otherwise.
fn leave_the_cpu() {
    std::thread::sleep(Duration::from_millis(1));
}

/// Tasks that can still be read: those that are there, and a program that nobody has waited for.
fn tasks_in(look: &Look) -> impl Iterator<Item = (u32, u32)> + '_ {
    let there = look.tasks.iter().filter(|t| t.doing != Doing::Ended || t.tasks == 1);
    there.map(|t| (t.tgid, t.pid))
}
