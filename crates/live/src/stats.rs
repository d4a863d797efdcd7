//! Looking at the scheduler of this machine: what `homenode_bpf::stats` has to be told of it.
//!
//! ```text
//!  Targets ───────▶ Who    (a cgroup by the number of its folder, and its hierarchy)
//!  sysfs ─────────▶ Cpu    (last-level cache, node, siblings)
//!  kernel.pid_max ▶ how many numbers tasks can have
//! ```
//!
//! `kernel` has the kernel's own statistics, where there are some, for a comparison.
//!
//! Source: specs/schedstats.md#live.

pub mod kernel;

use crate::acting::ActError;
use crate::people::find::cgroup_folder;
use crate::place::Place;
use crate::sysfs::{TopologyError, read_topology};
use homenode_bpf::able::{Lack, lack};
use homenode_bpf::stats::{Cpu, StatsError, Wanted, Who};
use homenode_core::sched::look::{Doing, Look};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why the scheduler can't be looked at.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// Rights, BTF, or the machine's own namespace.
    #[error(transparent)]
    Lack(#[from] Lack),
    /// There is no such cgroup.
    #[error("{}: no such cgroup (a folder with cgroup.procs, or a path below /sys/fs/cgroup)", path.display())]
    NoCgroup {
        /// What was named.
        path: PathBuf,
    },
    /// Its hierarchy has no controller by which the kernel could tell.
    #[error(
        "{}: the hierarchy of this cgroup has no controller, so that BPF can't tell who is in it; \
         name one of another hierarchy (such as cpu), or of the unified one",
        path.display()
    )]
    NamedHierarchy {
        /// What was named.
        path: PathBuf,
    },
    /// There is no such process.
    #[error("no process {pid}")]
    NoProcess {
        /// Its number.
        pid: u32,
    },
    /// The kernel has no statistics of its own.
    #[error(
        "this kernel keeps no scheduler statistics of its own: /proc/schedstat and {} are not \
         there. Boot one with CONFIG_SCHEDSTATS, as Debian's are; without --kernel homenode counts \
         by itself, on this one too",
        kernel::SWITCH
    )]
    NoSchedstats,
    /// They are not as they are known.
    #[error(
        "{}: not as Linux 6.1 to 7.3 print it, so it is not compared with; without --kernel homenode \
         counts by itself",
        path.display()
    )]
    Odd {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        source: homenode_core::sched::stats::StatsError,
    },
    /// A file or folder of the kernel's can't be read.
    #[error("{}: can't be read", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The switch of the kernel's statistics, or its journal.
    #[error(transparent)]
    Switch(#[from] ActError),
    /// The topology.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The kernel.
    #[error(transparent)]
    Stats(#[from] StatsError),
}

impl LookError {
    /// Whether the system lacks something; else the question was wrong.
    pub fn is_lack(&self) -> bool {
        match self {
            Self::Lack(_)
            | Self::NamedHierarchy { .. }
            | Self::NoSchedstats
            | Self::Odd { .. }
            | Self::Read { .. }
            | Self::Switch(_)
            | Self::Topology(_) => true,
            Self::NoCgroup { .. } | Self::NoProcess { .. } => false,
            Self::Stats(e) => e.is_lack(),
        }
    }
}

/// Whom one wants to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Everybody.
    All,
    /// These processes.
    Pids(Vec<u32>),
    /// A cgroup and all below it.
    Cgroup(PathBuf),
    /// A program that is started for it, and all that comes of it.
    Tree,
}

/// What has to be wanted of `homenode_bpf::stats` for that.
///
/// * `slots` – places for tasks at a time.
///
/// # Errors
/// What the system lacks, found before anything is loaded; whoever is not there.
pub fn wanted(
    place: &Place,
    targets: &Targets,
    slots: u32,
    why: bool,
) -> Result<Wanted, LookError> {
    if let Some(lack) = lack(&place.path("/")) {
        return Err(lack.into());
    }
    let who = match targets {
        Targets::All => Who::All,
        Targets::Tree => Who::Tree,
        Targets::Pids(pids) => {
            let missing = pids.iter().find(|p| !place.path(&format!("/proc/{p}")).exists());
            if let Some(pid) = missing {
                return Err(LookError::NoProcess { pid: *pid });
            }
            Who::Processes(pids.clone())
        }
        Targets::Cgroup(path) => cgroup(place, path)?,
    };
    Ok(Wanted { who, slots, pids: numbers(place), why, cpus: cpus(place)? })
}

/// How many numbers tasks can have: those that the kernel gives, and those that it gave before
/// `pid_max` was set lower.
fn numbers(place: &Place) -> u32 {
    let most = fs::read_to_string(place.path("/proc/sys/kernel/pid_max"));
    // The most that a kernel of 64 bits can have.
    let most = most.ok().and_then(|t| t.trim().parse().ok()).unwrap_or(4 << 20);
    let there = fs::read_dir(place.path("/proc")).into_iter().flatten().flatten();
    let numbers = there.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.map(|n| n.saturating_add(1)).fold(most, u32::max)
}

fn cgroup(place: &Place, path: &Path) -> Result<Who, LookError> {
    let folder = cgroup_folder(&place.path("/"), path)
        .ok_or_else(|| LookError::NoCgroup { path: path.to_owned() })?;
    let folder = folder.canonicalize().unwrap_or(folder);
    let id = fs::metadata(&folder).map(|m| m.ino());
    let id = id.map_err(|_| LookError::NoCgroup { path: path.to_owned() })?;
    let mounts = fs::read_to_string(place.path("/proc/self/mountinfo")).unwrap_or_default();
    let controller = match hierarchy(&mounts, &folder) {
        Some(Hierarchy::Unified) | None => None,
        Some(Hierarchy::Of(name)) => Some(name),
        Some(Hierarchy::Named) => {
            return Err(LookError::NamedHierarchy { path: path.to_owned() });
        }
    };
    Ok(Who::Cgroup { id, controller })
}

#[derive(Debug, PartialEq, Eq)]
enum Hierarchy {
    Unified,
    Of(String),
    Named,
}

/// Options of a hierarchy that are no controllers.
const NO_CONTROLLERS: [&str; 7] =
    ["rw", "ro", "xattr", "noprefix", "clone_children", "release_agent", "cpuset_v2_mode"];

/// The hierarchy of a folder, by `/proc/self/mountinfo`; of several mounts the deepest.
fn hierarchy(mounts: &str, folder: &Path) -> Option<Hierarchy> {
    let mut best: Option<(usize, Hierarchy)> = None;
    for line in mounts.lines() {
        let Some((mount, kind)) = line.split_once(" - ") else { continue };
        let Some(at) = mount.split(' ').nth(4).filter(|at| folder.starts_with(at)) else {
            continue;
        };
        let mut kind = kind.split(' ');
        let found = match kind.next() {
            Some("cgroup2") => Hierarchy::Unified,
            Some("cgroup") => {
                let mut options = kind.nth(1).unwrap_or_default().split(',');
                let is_one = |o: &&str| !NO_CONTROLLERS.contains(o) && !o.contains('=');
                options.find(is_one).map_or(Hierarchy::Named, |o| Hierarchy::Of(o.to_owned()))
            }
            Some(_) | None => continue,
        };
        if best.as_ref().is_none_or(|(depth, _)| at.len() >= *depth) {
            best = Some((at.len(), found));
        }
    }
    best.map(|(_, found)| found)
}

fn cpus(place: &Place) -> Result<Vec<Cpu>, TopologyError> {
    let topology = read_topology(&place.path("/"))?;
    let all = &topology.cpus;
    let first = |llc| all.iter().find(|c| c.llc == llc).map_or(0, |c| c.id.0);
    let next = |cpu: u32, core| {
        let mut same = all.iter().filter(|c| c.core == core).map(|c| c.id.0);
        let lowest = same.clone().next().unwrap_or(cpu);
        same.find(|c| *c > cpu).unwrap_or(lowest)
    };
    let cpu = |c: &homenode_core::topology::Cpu| Cpu {
        cpu: c.id.0,
        llc: first(c.llc),
        node: u32::from(c.node.0),
        sibling: next(c.id.0, c.core),
    };
    Ok(all.iter().map(cpu).collect())
}

/// Tasks that are there may have other names by now than when they were first seen.
pub fn rename(place: &Place, look: &mut Look) {
    for task in look.tasks.iter_mut().filter(|t| t.doing != Doing::Ended) {
        let file = place.path(&format!("/proc/{}/task/{}/comm", task.tgid, task.pid));
        if let Ok(name) = fs::read(file) {
            task.comm = String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
        }
    }
}

/// Names of a hierarchy's cgroups by the numbers of their folders.
///
/// * `controller` – whose hierarchy; `None` is the unified one.
pub fn cgroup_names(place: &Place, controller: Option<&str>) -> BTreeMap<u64, String> {
    let all = place.path("/sys/fs/cgroup");
    let own = all.join(controller.unwrap_or("unified"));
    let root = if own.is_dir() { own } else { all };
    let (mut names, mut folders) = (BTreeMap::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        let Ok(meta) = fs::metadata(&folder) else { continue };
        let name = folder.strip_prefix(&root).unwrap_or(&folder).display();
        names.insert(meta.ino(), format!("/{name}"));
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_may_have_a_number_above_those_that_are_given_now() {
        let root = homenode_fixtures::Folder::new();
        for pid in ["7", "40000", "self"] {
            fs::create_dir_all(root.join("proc").join(pid)).unwrap();
        }
        let place = Place::at(&root);
        assert_eq!(numbers(&place), 4 << 20, "nobody says");
        fs::create_dir_all(root.join("proc/sys/kernel")).unwrap();
        for (most, all) in [("32768\n", 40001), ("100000\n", 100_000)] {
            fs::write(root.join("proc/sys/kernel/pid_max"), most).unwrap();
            assert_eq!(numbers(&place), all);
        }
    }

    #[test]
    fn a_cgroup_is_of_the_hierarchy_that_is_mounted_there() {
        let mounts = "\
22 1 0:20 / /sys rw,nosuid - sysfs sysfs rw
25 22 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
26 25 0:23 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
27 25 0:24 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
28 25 0:25 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
        let of = |path: &str| hierarchy(mounts, Path::new(path));
        assert_eq!(of("/sys/fs/cgroup/cpu/a"), Some(Hierarchy::Of("cpu".into())));
        assert_eq!(of("/sys/fs/cgroup/systemd/a"), Some(Hierarchy::Named));
        assert_eq!(of("/sys/fs/cgroup/unified/a"), Some(Hierarchy::Unified));
        assert_eq!(of("/elsewhere"), None);
    }
}
