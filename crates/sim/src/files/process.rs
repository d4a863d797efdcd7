//! What the kernel says of a process: `/proc/PID/numa_maps` and `/proc/PID/status`.
//!
//! A process is an address space with living tasks; its PID is that of its first
//! task. Every node's kswapd is one too, without memory of its own.
//!
//! Source: specs/files.md#processes.

use crate::memory::BLOCK;
use crate::page::{State, Word};
use crate::simulation::Simulation;
use crate::space::{Space, Vma};
use crate::tasks::{Kind, Run};
use homenode_core::kernel::KernelVersion;
use homenode_core::scenario::Mempolicy;
use homenode_core::tiering::tiers::list_format;
use homenode_core::units::{NodeId, PAGE_SIZE};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// Which process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Id {
    /// The daemon of the node at that place, which is the task of the same number.
    Kswapd(usize),
    /// Another thread of the kernel's, or homenode: a task without memory of its own.
    Helper(usize),
    /// The programs in that address space.
    Space(usize),
}

/// Pages of a mapping, counted as `numa_maps` does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    pages: u64,
    anon: u64,
    dirty: u64,
    active: u64,
    swapped: u64,
    /// Entries that map the page that most map.
    mapmax: u32,
    /// By place of a node.
    nodes: Vec<u64>,
}

/// Characters of a task's name that the kernel keeps.
const COMM: usize = 15;

impl Simulation {
    /// PIDs of the living processes.
    pub(super) fn pids(&self) -> BTreeMap<u32, Id> {
        // By process: the PID of its first task, and whether any of its tasks lives.
        let mut all: BTreeMap<Id, (u32, bool)> = BTreeMap::new();
        for (number, task) in self.tasks.iter().enumerate() {
            let id = match task.kind {
                Kind::Kswapd(node) => Id::Kswapd(node),
                // Whoever writes to files stands for a shell, which is not simulated.
                Kind::Writer => continue,
                Kind::Ksmd
                | Kind::Khugepaged
                | Kind::Kdamond
                | Kind::Homenode
                | Kind::Busy
                | Kind::Worker => Id::Helper(number),
                Kind::Thread | Kind::Replayed => Id::Space(task.space),
            };
            let pid = self.kernel.numa[number].pid;
            all.entry(id).or_insert((pid, false)).1 |= task.lives();
        }
        all.into_iter().filter(|(_, p)| p.1).map(|(id, p)| (p.0, id)).collect()
    }

    /// The PID of the first task of the process of that name, once it has started.
    pub(super) fn pid_of(&self, name: &str) -> Option<u32> {
        let process = self.names.iter().position(|n| n == name)?;
        let task = self.tasks.iter().position(|t| t.process == process)?;
        Some(self.kernel.numa[task].pid)
    }

    /// The name of a task behind a file, as the kernel keeps it: its first 15 characters.
    pub(super) fn comm(&self, id: Id, first: usize) -> String {
        let task = &self.tasks[first];
        let name = match id {
            Id::Kswapd(node) => format!("kswapd{}", self.kernel.memory.node_id(node)),
            Id::Helper(_) => match task.kind {
                Kind::Ksmd => "ksmd".to_owned(),
                Kind::Khugepaged => "khugepaged".to_owned(),
                Kind::Kdamond => "kdamond.0".to_owned(),
                // The kernel tells the CPU and which of its workers it is; H: of high priority.
                Kind::Worker => {
                    let sched = &self.sched.q.tasks[first];
                    let high = if sched.terms.nice < 0 { "H" } else { "" };
                    format!("kworker/{}:0{high}", self.cpus[task.cpu].number)
                }
                Kind::Homenode
                | Kind::Busy
                | Kind::Writer
                | Kind::Kswapd(_)
                | Kind::Thread
                | Kind::Replayed => "homenode".to_owned(),
            },
            Id::Space(_) => self.names.get(task.process).cloned().unwrap_or_default(),
        };
        name.chars().take(COMM).collect()
    }

    /// The living tasks of a space, and its first task, by number.
    fn tasks_of(&self, space: usize) -> (Option<usize>, Vec<usize>) {
        let first = self.tasks.iter().position(|t| t.space == space);
        (first, self.tasks.living_in(space).to_vec())
    }

    /// Source: specs/files.md#numa_maps.
    pub(super) fn numa_maps_text(&self, id: Id) -> Result<String, fmt::Error> {
        let mut out = String::new();
        let Id::Space(number) = id else { return Ok(out) };
        let Some(space) = self.kernel.spaces[number].as_ref() else { return Ok(out) };
        let (first, living) = self.tasks_of(number);
        let task = living.first().copied().or(first);
        let own = task.map(|t| &self.kernel.numa[t].policy);
        for vma in &space.vmas {
            // A mapping without a policy follows the task's.
            let policy = match (&vma.kind.policy, own) {
                (Mempolicy::Default, Some(task)) => task,
                (policy, _) => policy,
            };
            let counts = self.count(space, vma);
            self.push_map(&mut out, vma, policy, &counts)?;
        }
        Ok(out)
    }

    fn push_map(&self, out: &mut String, vma: &Vma, policy: &Mempolicy, c: &Counts) -> fmt::Result {
        let policy = policy_text(policy, self.kernel.knobs.version);
        write!(out, "{:08x} {policy}", vma.start * PAGE_SIZE)?;
        if vma.kind.file {
            write!(out, " file={}", escaped(&vma.name))?;
        } else if vma.kind.shared {
            // Shared memory without a file has one that nobody can open any more.
            write!(out, " file={}", escaped("/dev/zero (deleted)"))?;
        }
        if c.pages == 0 {
            return writeln!(out);
        }
        for (name, value) in [("anon", c.anon), ("dirty", c.dirty)] {
            if value > 0 {
                write!(out, " {name}={value}")?;
            }
        }
        if c.pages != c.anon && c.pages != c.dirty {
            write!(out, " mapped={}", c.pages)?;
        }
        if c.mapmax > 1 {
            write!(out, " mapmax={}", c.mapmax)?;
        }
        if c.active < c.pages {
            write!(out, " active={}", c.active)?;
        }
        for (place, &pages) in c.nodes.iter().enumerate().filter(|(_, n)| **n > 0) {
            write!(out, " N{}={pages}", self.kernel.memory.node_id(place))?;
        }
        // The page size of the mapping, not of what transparently backs it.
        writeln!(out, " kernelpagesize_kB={}", PAGE_SIZE / 1024)
    }

    /// Counts the pages behind a mapping.
    fn count(&self, space: &Space, vma: &Vma) -> Counts {
        let memory = &self.kernel.memory;
        let step = u64::from(BLOCK);
        // Linux has a private anonymous page only where somebody wrote; it stays dirty,
        // also where an entry may not be written to for a while.
        let anon = !vma.kind.file && !vma.kind.shared;
        let mut c = Counts { nodes: vec![0; memory.nodes.len()], ..Counts::default() };
        for s in vma.start / step..vma.end.div_ceil(step) {
            let Some(first) = space.place(s * step, vma.kind.file) else { continue };
            let all = &memory.words[first as usize..(first + BLOCK) as usize];
            let from = vma.start.max(s * step) - s * step;
            let to = vma.end.min((s + 1) * step) - s * step;
            for i in from..to {
                let (w, page) = (Word(all[i as usize]), first + i as u32);
                if !w.resident() {
                    c.swapped += u64::from(w.state() == State::Swapped);
                    continue;
                }
                if memory.is_zero_page(w) {
                    continue;
                }
                let item = memory.item_of(page);
                let of = memory.word(item);
                c.pages += 1;
                c.anon += u64::from(anon);
                c.dirty += u64::from(anon || memory.is_dirty(item));
                c.active += u64::from(self.kernel.memory.is_on_active(of));
                c.mapmax = c.mapmax.max(memory.nr_mappers(item));
                c.nodes[memory.node_of(of.zone())] += 1;
            }
        }
        c
    }

    /// Source: specs/files.md#status.
    pub(super) fn status_text(&self, id: Id) -> Result<String, fmt::Error> {
        let mut out = String::new();
        let (first, living, space) = match id {
            Id::Kswapd(task) | Id::Helper(task) => (Some(task), vec![task], None),
            Id::Space(number) => {
                let (first, living) = self.tasks_of(number);
                (first, living, self.kernel.spaces[number].as_ref())
            }
        };
        let Some(first) = first else { return Ok(out) };
        let speaker = living.first().copied().unwrap_or(first);
        let task = &self.tasks[speaker];
        let pid = self.kernel.numa[first].pid;
        let name = self.comm(id, first);
        let parent = match id {
            Id::Kswapd(_) | Id::Helper(_) => 2,
            Id::Space(_) => self.living_parent(first),
        };
        writeln!(out, "Name:\t{name}")?;
        let state = if task.run == Run::Runnable { "R (running)" } else { "S (sleeping)" };
        writeln!(out, "State:\t{state}\nTgid:\t{pid}")?;
        writeln!(out, "Ngid:\t{}", self.kernel.numa[speaker].group.unwrap_or(0))?;
        writeln!(out, "Pid:\t{pid}\nPPid:\t{parent}")?;
        if let Some(space) = space {
            let mut rss = [0; 3];
            let (mut size, mut swapped) = (0, 0);
            for vma in &space.vmas {
                let c = self.count(space, vma);
                size += vma.pages();
                swapped += c.swapped;
                let kind = match (vma.kind.file, vma.kind.shared) {
                    (false, false) => 0,
                    (true, _) => 1,
                    (false, true) => 2,
                };
                rss[kind] += c.pages;
            }
            let mut line = |name: &str, pages: u64| {
                writeln!(out, "{name}:\t{:>8} kB", pages * PAGE_SIZE / 1024)
            };
            line("VmSize", size)?;
            line("VmRSS", space.rss)?;
            line("RssAnon", rss[0])?;
            line("RssFile", rss[1])?;
            line("RssShmem", rss[2])?;
            line("VmSwap", swapped)?;
        }
        writeln!(out, "Threads:\t{}", living.len().max(1))?;
        Ok(out)
    }

    /// The PID of a task's parent process; 1 where it has ended or never was.
    fn living_parent(&self, task: usize) -> u32 {
        let space = self.tasks[task].parent.map(|p| self.tasks[p].space);
        let Some((Some(first), living)) = space.map(|s| self.tasks_of(s)) else { return 1 };
        if living.is_empty() { 1 } else { self.kernel.numa[first].pid }
    }
}

/// A policy as the kernel writes it.
///
/// Source: specs/files.md#policy.
fn policy_text(policy: &Mempolicy, version: KernelVersion) -> String {
    let (mode, nodes) = match policy {
        Mempolicy::Default => return "default".to_owned(),
        Mempolicy::Local => return "local".to_owned(),
        Mempolicy::Preferred(node) => ("prefer", vec![*node]),
        Mempolicy::Bind { nodes, balancing: false } => ("bind", nodes.clone()),
        // 5.18 knows the flag, but has no name for it.
        Mempolicy::Bind { nodes, .. } if version <= KernelVersion::V5_18 => {
            ("bind=", nodes.clone())
        }
        Mempolicy::Bind { nodes, .. } => ("bind=balancing", nodes.clone()),
        Mempolicy::Interleave(nodes) => ("interleave", nodes.clone()),
        Mempolicy::WeightedInterleave(weights) => {
            let nodes: Vec<NodeId> = weights.iter().map(|w| w.0).collect();
            ("weighted interleave", nodes)
        }
    };
    format!("{mode}:{}", list_format(&nodes))
}

/// A file's name with what would break the line in octal.
fn escaped(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        match c {
            '\n' | '\t' | ' ' | '=' | '\\' => {
                let _ = write!(out, "\\{:03o}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}
