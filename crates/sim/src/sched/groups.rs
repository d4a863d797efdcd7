//! The groups of a scenario, by their places: what they are called and what was written to their files. How
//! they share CPUs is the fair class's business.
//!
//! Source: specs/sched-groups.md.

use super::queues::Queues;
use homenode_core::sched::fair::GroupId;
use homenode_core::sched::group::Max;

/// A group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Its folder below `/sys/fs/cgroup`.
    pub(crate) path: String,
    /// The number of the group that it is in.
    pub(crate) parent: u32,
    pub(crate) id: GroupId,
    pub(crate) max: Max,
    /// `cpuset.cpus` as a set of [`Queues::sets`]; `None`: it is empty.
    pub(crate) cpus: Option<u32>,
}

/// All of them. Their numbers begin with 1; 0 is the root.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    pub(crate) all: Vec<Group>,
}

impl Groups {
    /// The number of a group.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.all.iter().position(|g| g.name == name).map(|place| place as u32 + 1)
    }
    /// A group by its number as the fair class knows it.
    pub(crate) fn id(&self, number: u32) -> GroupId {
        match number {
            0 => GroupId::ROOT,
            n => self.all[n as usize - 1].id,
        }
    }
    /// Whether a group is another or in it.
    pub(crate) fn is_in(&self, mut group: u32, other: u32) -> bool {
        while group != other {
            if group == 0 {
                return false;
            }
            group = self.all[group as usize - 1].parent;
        }
        true
    }
}

impl Queues {
    /// A group below another; its number.
    pub(crate) fn add_group(&mut self, name: &str, parent: u32, weight: u32) -> u32 {
        let id = self.fair.add_group(self.groups.id(parent), weight);
        let above = parent.checked_sub(1).map(|p| self.groups.all[p as usize].path.as_str());
        let path = above.map_or_else(|| name.to_owned(), |above| format!("{above}/{name}"));
        let (name, max) = (name.to_owned(), Max::default());
        self.groups.all.push(super::groups::Group { name, path, parent, id, max, cpus: None });
        self.groups.all.len() as u32
    }
    /// Whether a task's group, or one above, has a quota, so that it may be throttled.
    #[inline]
    pub(crate) fn has_quota(&self, task: usize) -> bool {
        if self.groups.all.is_empty() {
            return false;
        }
        let mut group = self.tasks[task].terms.group;
        while group != 0 {
            let g = &self.groups.all[group as usize - 1];
            if g.max.quota().is_some() {
                return true;
            }
            group = g.parent;
        }
        false
    }
    /// Sets `cpu.max` of a group.
    pub(crate) fn set_max(&mut self, group: u32, max: Max) {
        let g = &mut self.groups.all[group as usize - 1];
        g.max = max;
        self.fair.set_quota(g.id, max.quota(), self.now);
    }
}
