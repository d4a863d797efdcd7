//! A process and all that it started.
//!
//! ```text
//! root ──▶ child ──▶ grandchild        by their parents,
//!            ╳ ended       │           as members of the look before,
//!                          ▼           or by the root's process group and session
//!                       adopted by another
//! ```
//!
//! When a process ends, those that it started get another parent. What was a member stays
//! one; what was started and orphaned between two looks is known by its process group or
//! session, unless it left these too (as daemons do): then it is not found.
//!
//! Source: specs/live.md#people.

use super::stat::Stat;
use homenode_core::policy::seen::Who;
use std::collections::{BTreeMap, BTreeSet};

/// The root, and who was found so far.
#[derive(Debug)]
pub(super) struct Tree {
    root: Who,
    members: BTreeSet<Who>,
    /// Whether the root's number may still be that of a group and a session of its own.
    groups: bool,
}

impl Tree {
    pub(super) fn of(root: Who) -> Self {
        Self { root, members: BTreeSet::from([root]), groups: true }
    }

    /// The numbers of all members among those that were found.
    pub(super) fn members(&mut self, found: &BTreeMap<u32, (u64, Stat)>) -> BTreeSet<u32> {
        // A number isn't given out again while there is a group or session of that number.
        let again = found.get(&self.root.pid).is_some_and(|(_, s)| s.start != self.root.start);
        self.groups &= !again;
        let who = |pid: u32, stat: &Stat| Who { pid, start: stat.start };
        let root = self.root;
        let mut members: BTreeSet<u32> = BTreeSet::new();
        let mut others: Vec<(u32, u32)> = Vec::new();
        for (&pid, (_, stat)) in found {
            let in_group = self.groups
                && stat.start >= root.start
                && (stat.group == root.pid || stat.session == root.pid);
            if in_group || self.members.contains(&who(pid, stat)) {
                members.insert(pid);
            } else {
                others.push((pid, stat.parent));
            }
        }
        // As often as generations came between two looks.
        loop {
            let before = others.len();
            others.retain(|&(pid, parent)| {
                // A parent may have ended since the child was read.
                let ended = || !found.contains_key(&parent) && self.had(parent);
                let member = members.contains(&parent) || ended();
                if member {
                    members.insert(pid);
                }
                !member
            });
            if others.len() == before {
                break;
            }
        }
        self.members = members.iter().map(|pid| who(*pid, &found[pid].1)).collect();
        members
    }

    /// Whether a member had that number at the look before.
    fn had(&self, pid: u32) -> bool {
        self.members.range(Who { pid, start: 0 }..).next().is_some_and(|who| who.pid == pid)
    }
}
