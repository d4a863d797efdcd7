//! The kernel's counters of pages that it moved, whoever asked for it.
//!
//! Source: specs/act.md#counters.

use homenode_core::units::NodeId;
use std::collections::BTreeMap;
use std::path::Path;

/// Counters, in pages since boot. One that this kernel doesn't have is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pages moved by anybody and for any reason: `pgmigrate_success`.
    pub migrated: u64,
    /// Pages that could not be moved: `pgmigrate_fail`.
    pub failed: u64,
    /// Pages that the kernel's balancing moved: `numa_pages_migrated`.
    pub balanced: u64,
    /// Of those, pages that came up to a node from a slower one: `pgpromote_success`.
    pub promoted: BTreeMap<NodeId, u64>,
    /// Pages that reclaim sent down from a node: all of `pgdemote_*`.
    pub demoted: BTreeMap<NodeId, u64>,
}

impl Counters {
    /// Reads them.
    ///
    /// * `root` – the folder that holds `proc` and `sys`.
    /// * `nodes` – nodes with memory.
    pub fn read(root: &Path, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
        let all = text("proc/vmstat");
        let mut out = Self {
            migrated: sum(&all, |n| n == "pgmigrate_success"),
            failed: sum(&all, |n| n == "pgmigrate_fail"),
            balanced: sum(&all, |n| n == "numa_pages_migrated"),
            ..Self::default()
        };
        for node in nodes {
            let of = text(&format!("sys/devices/system/node/node{node}/vmstat"));
            out.promoted.insert(node, sum(&of, |n| n == "pgpromote_success"));
            out.demoted.insert(node, sum(&of, |n| n.starts_with("pgdemote_")));
        }
        out
    }

    /// What came since another reading. A counter that fell, as that of a node that went
    /// offline, counts as one that stood still.
    pub fn since(&self, before: &Self) -> Self {
        let each = |now: &BTreeMap<NodeId, u64>, before: &BTreeMap<NodeId, u64>| {
            let old = |n| before.get(n).copied();
            now.iter().map(|(n, v)| (*n, v.saturating_sub(old(n).unwrap_or(*v)))).collect()
        };
        Self {
            migrated: self.migrated.saturating_sub(before.migrated),
            failed: self.failed.saturating_sub(before.failed),
            balanced: self.balanced.saturating_sub(before.balanced),
            promoted: each(&self.promoted, &before.promoted),
            demoted: each(&self.demoted, &before.demoted),
        }
    }
}

fn sum(text: &str, wanted: impl Fn(&str) -> bool) -> u64 {
    let rows = text.lines().filter_map(|line| line.split_once(' '));
    let values = rows.filter(|(name, _)| wanted(name)).filter_map(|(_, v)| v.trim().parse().ok());
    values.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_fixtures::Folder;
    use std::fs;

    #[test]
    fn counters_are_read_by_node_and_only_grow() {
        let at = Folder::new();
        fs::create_dir_all(at.join("proc")).unwrap();
        let vmstat = |n: u64| {
            format!("pgmigrate_success {n}\npgmigrate_fail 2\nnuma_pages_migrated 7\nnr_free 9\n")
        };
        let of_node =
            |n: u64| format!("pgpromote_success 5\npgdemote_kswapd {n}\npgdemote_direct 3\n");
        let put = |node: u16, n: u64| {
            let folder = at.join(format!("sys/devices/system/node/node{node}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("vmstat"), of_node(n)).unwrap();
        };
        let nodes = [NodeId(0), NodeId(1)];
        fs::write(at.join("proc/vmstat"), vmstat(40)).unwrap();
        put(0, 10);
        put(1, 100);
        let before = Counters::read(&at, nodes);
        assert_eq!((before.migrated, before.failed, before.balanced), (40, 2, 7));
        assert_eq!(before.demoted, [(NodeId(0), 13), (NodeId(1), 103)].into());
        fs::write(at.join("proc/vmstat"), vmstat(55)).unwrap();
        put(0, 14);
        put(1, 0);
        let since = Counters::read(&at, nodes).since(&before);
        assert_eq!((since.migrated, since.failed), (15, 0));
        assert_eq!(since.demoted, [(NodeId(0), 4), (NodeId(1), 0)].into());
        assert_eq!(Counters::read("/no/such/place".as_ref(), []), Counters::default());
    }
}
