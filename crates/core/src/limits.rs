//! What an operator lets homenode do, and to whom: who is left alone, what a group keeps of
//! fast memory, and who gives way to whom.
//!
//! ```text
//! /db   floor 8 GiB, priority 10      has 9 GiB on fast nodes
//! /web  priority 0                    has 2 GiB on fast nodes
//!
//! 1 MiB of /web down    yes
//! 1 MiB of /db down     no: /web has some, and it gives way first
//! ... /web has none     yes: 9 GiB - 1 MiB is above the floor
//! ... /db has 8 GiB     no: its floor
//! ```
//!
//! Facts come in, a verdict with its reason comes out. Who a process belongs to and what a
//! group has is told by who asks; nothing here decides what is worth moving.
//!
//! Source: specs/act.md#limits.

use crate::units::Pages;
use std::fmt;

/// Fast memory of a group that is too little to send others' first: some pages of each
/// process never move (64 MiB).
pub const LEAST: Pages = Pages(16_384);

/// Whose a process is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whose {
    /// Its command, as the kernel has it: 15 bytes at most.
    pub command: String,
    /// Its cgroup, from the root of the hierarchy.
    pub cgroup: String,
    /// The number of its user.
    pub user: u32,
}

/// Who is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Excluded {
    /// Processes of that command; one that ends with `*` is a beginning.
    Command(String),
    /// Processes of a cgroup and of those below it.
    Cgroup(String),
    /// Processes of a user.
    User(u32),
}

/// A cgroup that an operator has an opinion on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// From the root of the hierarchy, with a slash before and none behind.
    pub path: String,
    /// So much fast memory it keeps, as far as it is up to homenode.
    pub floor: Pages,
    /// Lower ones give way first; 0 where nobody says.
    pub priority: i64,
}

/// All limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Who is left alone.
    pub excluded: Vec<Excluded>,
    /// Groups with a floor or a priority.
    pub groups: Vec<Group>,
}

/// Why something is not to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The process is left alone.
    Excluded(Excluded),
    /// Its group would have less than its floor.
    Floor(String),
    /// Another group gives way first.
    Priority(String),
    /// What its group has is not known.
    Unknown(String),
}

impl fmt::Display for Excluded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(name) => write!(f, "command {name}"),
            Self::Cgroup(path) => write!(f, "cgroup {path}"),
            Self::User(user) => write!(f, "user {user}"),
        }
    }
}

impl Excluded {
    fn holds(&self, whose: &Whose) -> bool {
        match self {
            Self::Command(name) => {
                // The kernel cuts names; so is what is looked for.
                let cut = |text: &str| text.as_bytes()[..text.len().min(15)].to_vec();
                let own = whose.command.as_bytes();
                match name.strip_suffix('*') {
                    Some(beginning) => own.starts_with(&cut(beginning)),
                    None => own == cut(name),
                }
            }
            Self::Cgroup(path) => is_within(&whose.cgroup, path),
            Self::User(user) => whose.user == *user,
        }
    }
}

/// Whether a cgroup is that one, or below it.
pub fn is_within(cgroup: &str, group: &str) -> bool {
    let rest = cgroup.strip_prefix(group.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Limits {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.excluded.is_empty() && self.groups.is_empty()
    }

    /// Why a process is left alone, if it is.
    ///
    /// Source: specs/act.md#limits.
    pub fn excludes(&self, whose: &Whose) -> Option<&Excluded> {
        self.excluded.iter().find(|e| e.holds(whose))
    }

    /// The priority of a process: that of the innermost group that is named.
    fn priority(&self, whose: &Whose) -> i64 {
        let around = self.groups.iter().filter(|g| is_within(&whose.cgroup, &g.path));
        around.max_by_key(|g| g.path.len()).map_or(0, |g| g.priority)
    }

    /// Whether pages of a process may go down from a fast node to a slow one.
    ///
    /// * `fast` – pages that a group has on fast nodes; `None` where nobody knows.
    ///
    /// # Errors
    /// Why not.
    ///
    /// Source: specs/act.md#limits.
    pub fn may_go_down(
        &self,
        whose: &Whose,
        pages: Pages,
        fast: &mut dyn FnMut(&str) -> Option<Pages>,
    ) -> Result<(), Refused> {
        for g in self.groups.iter().filter(|g| g.floor.0 > 0 && is_within(&whose.cgroup, &g.path)) {
            let Some(has) = fast(&g.path) else { return Err(Refused::Unknown(g.path.clone())) };
            if has.0 < g.floor.0.saturating_add(pages.0) {
                return Err(Refused::Floor(g.path.clone()));
            }
        }
        let own = self.priority(whose);
        for g in self.groups.iter().filter(|g| g.priority < own) {
            if is_within(&whose.cgroup, &g.path) {
                continue;
            }
            // One that is gone, or can't be asked, has nothing to give.
            let has = fast(&g.path).unwrap_or_default();
            if has.0 >= g.floor.0.saturating_add(LEAST.0) {
                return Err(Refused::Priority(g.path.clone()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whose(command: &str, cgroup: &str, user: u32) -> Whose {
        Whose { command: command.to_owned(), cgroup: cgroup.to_owned(), user }
    }

    #[test]
    fn who_is_left_alone() {
        let limits = Limits {
            excluded: vec![
                Excluded::Command("sshd".to_owned()),
                Excluded::Command("qemu-system-x86_64".to_owned()),
                Excluded::Command("post*".to_owned()),
                Excluded::Cgroup("/system.slice/ssh.service".to_owned()),
                Excluded::User(1000),
            ],
            groups: Vec::new(),
        };
        let told = |command, cgroup, user| {
            limits.excludes(&whose(command, cgroup, user)).map(ToString::to_string)
        };
        for (who, why) in [
            (("sshd", "/", 0), Some("command sshd")),
            (("sshd2", "/", 0), None),
            // As /proc/PID/comm has it.
            (("qemu-system-x86", "/", 0), Some("command qemu-system-x86_64")),
            (("postgres", "/", 0), Some("command post*")),
            (("pos", "/", 0), None),
            (("a", "/system.slice/ssh.service", 0), Some("cgroup /system.slice/ssh.service")),
            (("a", "/system.slice/ssh.service/x", 0), Some("cgroup /system.slice/ssh.service")),
            (("a", "/system.slice/ssh.service2", 0), None),
            (("a", "/system.slice", 1000), Some("user 1000")),
            (("a", "/system.slice", 1001), None),
        ] {
            assert_eq!(told(who.0, who.1, who.2).as_deref(), why, "{who:?}");
        }
        assert_eq!(Limits::default().excludes(&whose("sshd", "/", 0)), None);
        assert!(is_within("/a/b", "/") && is_within("/", "/") && !is_within("/ab", "/a"));
    }

    #[test]
    fn a_floor_holds_and_lower_priorities_give_way_first() {
        let group = |path: &str, floor, priority| Group {
            path: path.to_owned(),
            floor: Pages(floor),
            priority,
        };
        let limits = Limits {
            excluded: Vec::new(),
            groups: vec![group("/db", 100_000, 10), group("/web", 0, 0), group("/db/log", 0, -1)],
        };
        // What each group has on fast nodes; /db has what is below it too.
        let may = |cgroup: &str, pages, db: Option<u64>, web: u64, log: u64| {
            limits.may_go_down(&whose("x", cgroup, 0), Pages(pages), &mut |path| match path {
                "/db" => db.map(Pages),
                "/web" => Some(Pages(web)),
                "/db/log" => Some(Pages(log)),
                other => panic!("{other} has no opinion"),
            })
        };
        let floor = |path: &str| Err(Refused::Floor(path.to_owned()));
        let priority = |path: &str| Err(Refused::Priority(path.to_owned()));
        assert_eq!(may("/db", 100, Some(100_100), 0, 0), Ok(()));
        assert_eq!(may("/db", 101, Some(100_100), 0, 0), floor("/db"));
        assert_eq!(may("/db/other", 101, Some(100_100), 0, 0), floor("/db"));
        assert_eq!(may("/db", 1, Some(200_000), LEAST.0, 0), priority("/web"));
        assert_eq!(may("/db", 1, Some(200_000), LEAST.0 - 1, 0), Ok(()));
        assert_eq!(may("/db", 1, Some(200_000), 0, LEAST.0), priority("/db/log"));
        // The innermost group's priority, and every floor around it.
        assert_eq!(may("/db/log", 1, Some(200_000), LEAST.0, 50_000), Ok(()));
        assert_eq!(may("/db/log", 1, Some(100_000), 0, 50_000), floor("/db"));
        assert_eq!(may("/web", 1, Some(0), 50_000, 0), Ok(()));
        // Who is in no group has priority 0: the one below that goes first.
        assert_eq!(may("/", 1, Some(0), 50_000, 50_000), priority("/db/log"));
        // A group that can't be asked: nothing is sent away from it on a guess.
        assert_eq!(may("/db", 1, None, 0, 0), Err(Refused::Unknown("/db".to_owned())));
    }
}
