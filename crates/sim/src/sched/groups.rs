//! The groups of a scenario, by their places: what they are called and what was written to their files. How
//! they share CPUs is the fair class's business.
//!
//! Source: specs/sched-groups.md.

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
    /// `cpuset.cpus` as a set of `Queues::sets`; `None`: it is empty.
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
