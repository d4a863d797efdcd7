//! The groups of a scenario as the queues have them: how they come, and their quotas.
//!
//! Source: specs/sched-groups.md.

use super::groups::Group;
use super::queues::Queues;
use homenode_core::sched::group::Max;

impl Queues {
    /// A group below another; its number.
    pub(crate) fn add_group(&mut self, name: &str, parent: u32, weight: u32) -> u32 {
        let id = self.fair.add_group(self.groups.id(parent), weight);
        let above = parent.checked_sub(1).map(|p| self.groups.all[p as usize].path.as_str());
        let path = above.map_or_else(|| name.to_owned(), |above| format!("{above}/{name}"));
        let (name, max) = (name.to_owned(), Max::default());
        self.groups.all.push(Group { name, path, parent, id, max, cpus: None });
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
