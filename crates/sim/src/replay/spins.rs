//! Tasks of a replay that compute for as long as they wait: they spin.
//!
//! ```text
//! CPU 0   ├─computes──────────┤releases
//! CPU 1   ├─comes─┤spins──────┤goes on        cut, where it has run ahead
//! ```
//!
//! Such a task stays runnable in front of its point, so it has its turns as any other, and pays
//! processor time. What it waits for it has in `Passed::spinning`, so that a circle of tasks
//! that wait for one another is found.
//!
//! Source: specs/waits.md#spinning

use super::{Op, Player, Recording, Track};
use crate::simulation::Simulation;
use crate::tasks::{On, Run};
use std::collections::BTreeMap;

impl Recording {
    /// Says what of the points is spinning. To be said when all rows are in, before
    /// [`Recording::order`].
    ///
    /// * `left_out` – by point: the last of the instructions before it, which are left out.
    /// * `busy` – points in front of which a task computes for as long as it waits, and whether it
    ///   gives its CPU to others meanwhile.
    pub fn spins(&mut self, left_out: &BTreeMap<u32, u64>, busy: BTreeMap<u32, bool>) {
        self.busy = busy;
        self.spun = self.tracks.iter_mut().map(|track| track.leave_out(left_out)).collect();
    }
    /// Instructions that each task has spun when it was recorded, and that are left out. They are
    /// in [`Recording::insns`] and in [`Recording::programs`].
    pub fn spun(&self) -> &[u64] {
        &self.spun
    }
}

impl Track {
    /// Leaves instructions out before points; how many.
    fn leave_out(&mut self, spun: &BTreeMap<u32, u64>) -> u64 {
        let mut all = 0;
        for i in 0..self.rows.len() {
            let row = self.rows[i];
            let is_other = row.what & 2 != 0;
            let op = is_other.then(|| self.others[row.number() as usize]);
            let Some(&insns) = op.and_then(Op::point).and_then(|n| spun.get(&n)) else { continue };
            let mut left = insns;
            // A long stretch is in several rows.
            for j in (0..=i).rev() {
                let row = &mut self.rows[j];
                let part = left.min(u64::from(row.insns));
                row.insns -= part as u32;
                left -= part;
                let before = j.checked_sub(1).map(|j| self.rows[j]);
                let goes_on = before.is_some_and(|r| {
                    r.what & 2 != 0
                        && r.insns == u32::MAX
                        && self.others[r.number() as usize] == Op::Wait { child: None }
                });
                if left == 0 || !goes_on {
                    break;
                }
            }
            all += insns - left;
        }
        all
    }
}

impl Player {
    /// Spins in front of a point, to come to it again when that has come.
    pub(super) fn spin(
        &mut self,
        sim: &mut Simulation,
        id: usize,
        since: u64,
        on: On,
        yields: bool,
    ) {
        (self.at, self.work, self.since) = (self.at - 1, 0, Some(since));
        self.spinning = Some((on, yields));
        sim.passed.spinning.insert(id, on);
        self.open_circle(sim, id);
    }
    /// It spins no more, if it did.
    pub(super) fn spins_no_more(&mut self, sim: &mut Simulation, id: usize) -> bool {
        sim.passed.spinning.remove(&id);
        self.spinning.take().is_some()
    }
    /// Whether it spins still, and whether it would give its CPU away to somebody.
    pub(super) fn spins(&self, sim: &Simulation, id: usize) -> Option<bool> {
        let (on, yields) = self.spinning?;
        let others = || sim.sched.q.fair.nr_running(sim.tasks[id].cpu) > 1;
        (!has_come(sim, id, on)).then(|| yields && others())
    }
}

/// Whether what a task spins for has come. It may not know yet, where it has no CPU.
fn has_come(sim: &Simulation, id: usize, on: On) -> bool {
    match on {
        On::Point(p) => sim.passed.done.contains(&p),
        On::Lock(lock) => {
            let held = sim.passed.locks.get(&lock).is_some_and(|l| l.held.is_some());
            !held || sim.passed.without.contains(&id)
        }
        On::Sleep
        | On::Children
        | On::Child
        | On::Task(_)
        | On::Count(_)
        | On::Barrier
        | On::Channel(_)
        | On::Work
        | On::Device { .. } => true,
    }
}

/// What a task waits for, be it asleep or spinning.
pub(super) fn waits_on(sim: &Simulation, id: usize) -> Option<On> {
    match sim.tasks[id].run {
        Run::Blocked(on) => Some(on),
        Run::Runnable => sim.passed.spinning.get(&id).copied().filter(|&on| !has_come(sim, id, on)),
        Run::Ended => None,
    }
}

/// What some tasks spin for is about to come, by another's doing: they have run ahead as if it
/// did not.
pub(super) fn comes(sim: &mut Simulation, by: usize, on: On) {
    if sim.passed.spinning.is_empty() {
        return;
    }
    let all = sim.passed.spinning.iter().filter(|s| *s.1 == on).map(|s| *s.0);
    for id in all.collect::<Vec<usize>>() {
        look_again(sim, by, id);
    }
}

/// A task that spins looks again where the other is now.
pub(super) fn look_again(sim: &mut Simulation, by: usize, id: usize) {
    let cpu = sim.tasks[id].cpu;
    if id != by && sim.cpus[cpu].current() == Some(id) {
        let at = sim.now().max(sim.tasks[by].clock);
        sim.cut(cpu, at);
    }
}
