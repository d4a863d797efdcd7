//! Which pages carry the time of their scan.
//!
//! Under tiering (bit 1 of `numa_balancing`) the kernel keeps it on pages of nodes below
//! the top tier, where it otherwise keeps who used the page last. The top tier reaches
//! down to the slowest one that has a CPU:
//!
//! ```text
//! memory_tier4   0-1   CPUs on 0      top
//! memory_tier22  2     CPUs on 2      top
//! memory_tier84  3     none           below: stamped
//! ```
//!
//! Source: specs/live.md#hint-fault.

use crate::probe::memory_tiers;
use crate::sysfs::parse_list;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const TIERS: &str = "sys/devices/virtual/memory_tiering";
const NODES: &str = "sys/devices/system/node";
const TIERING: u32 = 2;

/// Nodes below the top tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tiers {
    below: BTreeSet<u32>,
}

impl Tiers {
    /// As they are now; what can't be read is in the top tier.
    pub(super) fn read(root: &Path) -> Self {
        let text = |name: &str| fs::read_to_string(root.join(NODES).join(name)).ok();
        let node = |name: &str| text(name).and_then(|t| parse_list(&t)).unwrap_or_default();
        let cpus: BTreeSet<u32> = node("has_cpu").into_iter().collect();
        if !root.join(TIERS).is_dir() {
            // Kernels before tiers: nodes with memory and no CPU.
            let memory = node("has_memory").into_iter();
            return Self { below: memory.filter(|n| !cpus.contains(n)).collect() };
        }
        let tiers: Vec<Vec<u32>> = memory_tiers(root).into_values().collect();
        let top = tiers.iter().rposition(|nodes| nodes.iter().any(|n| cpus.contains(n)));
        Self { below: top.map_or(vec![], |top| tiers[top + 1..].concat()).into_iter().collect() }
    }

    /// Whether a page of that node carries a time.
    pub(super) fn stamped(&self, mode: u32, node: u32) -> bool {
        mode & TIERING != 0 && self.below.contains(&node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_fixtures::Folder;

    fn of(files: &[(&str, &str)]) -> Folder {
        files.iter().fold(Folder::new(), |root, (path, text)| root.with(path, text))
    }

    fn below(root: &Folder) -> Vec<u32> {
        Tiers::read(root).below.into_iter().collect()
    }

    const TIER: &str = "sys/devices/virtual/memory_tiering/memory_tier";

    #[test]
    fn the_top_tier_reaches_down_to_the_last_cpu() {
        let root = of(&[
            ("sys/devices/system/node/has_cpu", "0,2\n"),
            (&format!("{TIER}4/nodelist"), "0-1\n"),
            (&format!("{TIER}22/nodelist"), "2\n"),
            (&format!("{TIER}84/nodelist"), "3-4\n"),
            (&format!("{TIER}84x/nodelist"), "5\n"),
            (&format!("{TIER}90/nodelist"), "rubbish\n"),
        ]);
        assert_eq!(below(&root), [3, 4]);
        let tiers = Tiers::read(&root);
        let stamped = |mode, node| tiers.stamped(mode, node);
        assert_eq!([stamped(1, 3), stamped(2, 3), stamped(3, 4)], [false, true, true]);
        assert!(!stamped(3, 2));
    }

    #[test]
    fn before_tiers_a_node_without_cpus_is_below() {
        let nodes = "sys/devices/system/node";
        let root =
            of(&[(&format!("{nodes}/has_cpu"), "0\n"), (&format!("{nodes}/has_memory"), "0,2\n")]);
        assert_eq!(below(&root), [2]);
        assert!(below(&of(&[])).is_empty());
    }
}
