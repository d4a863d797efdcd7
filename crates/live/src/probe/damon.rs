//! DAMON: its sysfs interface, what it can watch, and who has it already.

use super::config::{Config, Symbols};
use super::root::Root;
use homenode_core::policy::facts::Known;
use std::collections::BTreeSet;

const FOLDER: &str = "sys/kernel/mm/damon/admin/kdamonds";
/// Kernel modules that take DAMON for themselves.
const MODULES: [&str; 3] = ["damon_reclaim", "damon_lru_sort", "damon_stat"];

/// A kdamond that somebody made in sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its number.
    pub index: u32,
    /// Whether it runs; `None` if that may not be read.
    pub on: Option<bool>,
    /// Its thread, while it runs.
    pub pid: Option<u32>,
    /// What its first context watches: `vaddr`, `fvaddr` or `paddr`.
    pub operations: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damon {
    /// Whether `/sys/kernel/mm/damon/admin` is there.
    pub sysfs: Known,
    /// Operations for virtual address spaces.
    pub vaddr: Known,
    /// Operations for physical memory.
    pub paddr: Known,
    /// Slots in sysfs.
    pub slots: Vec<Slot>,
    /// Threads named `kdamond.N`, whoever started them.
    pub threads: Vec<u32>,
    /// Modules that are switched on.
    pub modules: Vec<&'static str>,
}

impl Damon {
    /// How many kdamonds run, in a slot or not.
    pub fn running(&self) -> usize {
        let slots = self.slots.iter().filter(|s| s.on == Some(true)).count();
        slots.max(self.threads.len())
    }
}

pub(super) fn look(root: &Root, config: &Config, symbols: &Symbols) -> Damon {
    let there = root.has("sys/kernel/mm/damon/admin");
    // Without /sys/kernel/mm nothing is known; with it, what isn't there isn't built.
    let sysfs = match (there, root.has("sys/kernel/mm")) {
        (false, false) => config.has("CONFIG_DAMON_SYSFS"),
        (there, _) => Known::from_bool(there),
    };
    let slots: Vec<Slot> = root.numbered(FOLDER, "").into_iter().map(|i| slot(root, i)).collect();
    // The surest word is the kernel's own, which it gives below a context only.
    let offered: Option<BTreeSet<String>> = slots.iter().find_map(|s| {
        let text = root.text(&format!("{FOLDER}/{}/contexts/0/avail_operations", s.index))?;
        Some(text.split_ascii_whitespace().map(str::to_owned).collect())
    });
    let has = |word: &str, option: &str| match (&offered, config.has(option)) {
        (Some(words), _) => Known::from_bool(words.contains(word)),
        (None, _) if sysfs == Known::No && config.from.is_none() => Known::No,
        (None, known) => known,
    };
    let vaddr = match has("vaddr", "CONFIG_DAMON_VADDR") {
        Known::Unseen => symbols.vaddr(),
        known => known,
    };
    let paddr = has("paddr", "CONFIG_DAMON_PADDR");
    let name = |pid: &u32| root.text(&format!("proc/{pid}/comm"));
    let mut threads = root.numbered("proc", "");
    threads.retain(|pid| name(pid).is_some_and(|n| is_kdamond(&n)));
    let enabled = |m: &str| root.text(&format!("sys/module/{m}/parameters/enabled"));
    let modules = MODULES.into_iter().filter(|m| enabled(m).as_deref() == Some("Y")).collect();
    Damon { sysfs, vaddr, paddr, slots, threads, modules }
}

fn slot(root: &Root, index: u32) -> Slot {
    let text = |name: &str| root.text(&format!("{FOLDER}/{index}/{name}"));
    Slot {
        index,
        on: text("state").map(|s| s == "on"),
        // The kernel writes -1 for none.
        pid: text("pid").and_then(|p| p.parse().ok()),
        operations: text("contexts/0/operations"),
    }
}

fn is_kdamond(comm: &str) -> bool {
    comm.strip_prefix("kdamond.").is_some_and(|n| n.parse::<u32>().is_ok())
}
