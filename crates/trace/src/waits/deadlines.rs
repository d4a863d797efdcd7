//! Deadlines: when a wait ends at the latest, counted from where its task looked at the clock.
//!
//! Under the emulator a task is some ten times as slow. So what is left until a moment that it has
//! reckoned from the clock says nothing: a loop that begins a round every 10 ms, of which it
//! computes for 5, is always late there and never sleeps.
//!
//! ```text
//! task 0  ... looks at the clock (t) ... computes ... Deadline t + 10 ms   sleeps, 0 ms are left
//!         └── last point before: the deadline is 10 ms and that stretch's native time after it
//! ```
//!
//! Source: specs/waits.md#deadlines

use super::*;

/// The deadlines of a recording.
pub(super) struct Deadlines {
    /// By wait: the point that tells its deadline, and how long after the clock was looked at.
    of: BTreeMap<u32, (u32, u64)>,
    /// By task with a deadline: its points, in its order.
    points: BTreeMap<u32, Vec<u32>>,
}

impl Deadlines {
    pub(super) fn new(points: &[Point]) -> Self {
        let deadline = |p: &&Point| matches!(p.what, What::Release(Release::Deadline, ..));
        let tasks = points.iter().filter(deadline).map(|p| (p.task, Vec::new()));
        let mut all = Self { of: BTreeMap::new(), points: tasks.collect() };
        // By task: what its last point says of the next.
        let mut last: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
        for (n, point) in (0..).zip(points) {
            let Some(own) = all.points.get_mut(&point.task) else { continue };
            own.push(n);
            let said = last.remove(&point.task);
            match point.what {
                What::Release(Release::Deadline, _, ns) => {
                    last.insert(point.task, (n, ns));
                }
                What::Block(..) => all.of.extend(said.map(|said| (n, said))),
                What::Release(..) | What::Exec | What::Exit => {}
            }
        }
        all
    }
    /// How long a wait is at most, by its deadline or by what its row says.
    pub(super) fn span(&self, wait: u32, arg: u64) -> u64 {
        self.of.get(&wait).map_or(arg, |&(_, ns)| ns)
    }
}

impl Resolver<'_> {
    /// Says from where each deadline counts, of waits that last or may.
    ///
    /// * `speed` – native processor time of all tasks in nanoseconds, and their instructions.
    pub(super) fn deadlines(&mut self, all: &Deadlines, speed: (u64, u64)) {
        for (&wait, &(n, ns)) in &all.of {
            let outside =
                matches!(self.points[wait as usize].what, What::Block(of, ..) if is_outside(of));
            match self.after[wait as usize] {
                // It has ended before its deadline.
                After::Time(_) if outside => continue,
                After::Point(_)
                | After::Turn(_)
                | After::Take(..)
                | After::Until(..)
                | After::Time(_) => {}
                After::Nothing
                | After::Lock(..)
                | After::Meet(_)
                | After::Post(..)
                | After::Broadcast(..)
                | After::Due(..) => continue,
            }
            let Point { task, insns, what, .. } = self.points[n as usize];
            let What::Release(_, (_, ago), _) = what else { continue };
            let looked = insns.saturating_sub(ago);
            let own = &all.points[&task];
            let insns = |n: u32| self.points[n as usize].insns;
            // Of points at one place the last before the deadline is said.
            let before = own.partition_point(|&p| insns(p) <= looked && p <= n);
            let (base, from) = match before.checked_sub(1) {
                Some(at) => (own[at], insns(own[at])),
                None => (START, 0),
            };
            let (time, instructions) = speed;
            let more = u128::from(looked.saturating_sub(from)) * u128::from(time)
                / u128::from(instructions.max(1));
            let more = u64::try_from(more).unwrap_or(u64::MAX);
            self.after[n as usize] = After::Due(base, ns.saturating_add(more));
        }
    }
}
