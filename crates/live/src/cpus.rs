//! How many of each node's CPUs are idle.
//!
//! ```text
//! /proc/stat   cpuN user nice system idle iowait …  ── a second later ──▶ thousandths by node
//! ```
//!
//! The file counts in ticks (10 ms), and takes the longer the more interrupts a machine has: it
//! is read once in a second.
//!
//! Source: specs/live.md#cpus.

use crate::machine::Cpus;
use homenode_core::topology::Cpu;
use homenode_core::units::{NodeId, Picos};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Between two looks.
const EVERY: Picos = Picos::from_secs(1);
/// Thousandths.
const WHOLE: u64 = 1000;

/// Ticks of a CPU: idle, and all.
type Ticks = (u64, u64);

/// `/proc/stat` below a root.
#[derive(Debug)]
pub struct Stat {
    path: PathBuf,
    homes: BTreeMap<u32, NodeId>,
    before: Option<(Picos, BTreeMap<u32, Ticks>)>,
    idle: BTreeMap<NodeId, u32>,
}

impl Stat {
    /// * `cpus` – the machine's CPUs, with their nodes.
    pub fn new(root: &Path, cpus: &[Cpu]) -> Self {
        Self {
            path: root.join("proc/stat"),
            homes: cpus.iter().map(|c| (c.id.0, c.node)).collect(),
            before: None,
            idle: BTreeMap::new(),
        }
    }
}

impl Cpus for Stat {
    fn idle(&mut self, now: Picos) -> &BTreeMap<NodeId, u32> {
        if self.before.as_ref().is_some_and(|(at, _)| now.saturating_sub(*at) < EVERY) {
            return &self.idle;
        }
        let ticks = ticks_of(&fs::read_to_string(&self.path).unwrap_or_default());
        let before = self.before.replace((now, ticks));
        let now = self.before.iter().flat_map(|(_, ticks)| ticks);
        let mut sums: BTreeMap<NodeId, u64> = BTreeMap::new();
        for (cpu, &(idle, all)) in now {
            let was = before.as_ref().and_then(|(_, ticks)| ticks.get(cpu));
            let (Some(&(idle_was, all_was)), Some(&node)) = (was, self.homes.get(cpu)) else {
                continue;
            };
            let (idle, all) = (idle.saturating_sub(idle_was), all.saturating_sub(all_was));
            let share = (idle.saturating_mul(WHOLE)).checked_div(all).unwrap_or(WHOLE);
            *sums.entry(node).or_default() += share.min(WHOLE);
        }
        self.idle =
            sums.into_iter().map(|(n, sum)| (n, u32::try_from(sum).unwrap_or(u32::MAX))).collect();
        &self.idle
    }
}

/// Of a text as `/proc/stat` has it, by CPU. One that does not tick is idle (`nohz`).
fn ticks_of(text: &str) -> BTreeMap<u32, Ticks> {
    let one = |line: &str| -> Option<(u32, Ticks)> {
        let (cpu, rest) = line.strip_prefix("cpu")?.split_once(' ')?;
        // Guests' time is in user's already.
        let times: Vec<u64> =
            rest.split_ascii_whitespace().take(8).map_while(|w| w.parse().ok()).collect();
        let (idle, wait) = (times.get(3)?, times.get(4).unwrap_or(&0));
        let all = times.iter().fold(0u64, |sum, t| sum.saturating_add(*t));
        Some((cpu.parse().ok()?, (idle.saturating_add(*wait), all)))
    };
    text.lines().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::units::CpuId;
    use homenode_fixtures::Folder;

    #[test]
    fn idle_cpus_are_told_by_node_over_a_second() {
        let at = Folder::new();
        fs::create_dir(at.join("proc")).unwrap();
        let write = |text: &str| fs::write(at.join("proc/stat"), text).unwrap();
        let cpu = |id: u32, node| Cpu {
            id: CpuId(id),
            node: NodeId(node),
            core: id,
            llc: 0,
            capacity: 1024,
            mhz: None,
        };
        let mut stat = Stat::new(&at, &[cpu(0, 0), cpu(1, 0), cpu(2, 1)]);
        write(
            "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 100 0 0 900 0 0 0 0 0 0\ncpu1 0 0 0 50 50 0 0 0 7 0\n\
             cpu2 1 2 3 4 5 6 7 8 0 0\nintr 5\n",
        );
        assert!(stat.idle(Picos::from_secs(5)).is_empty(), "a first look tells nothing");
        write(
            "cpu0 175 0 0 925 0 0 0 0 0 0\ncpu1 0 0 0 100 100 0 0 0 7 0\n\
             cpu2 101 2 3 4 5 6 7 8 0 0\nintr 5\n",
        );
        assert!(stat.idle(Picos::from_ms(5999)).is_empty(), "not yet");
        let told = BTreeMap::from([(NodeId(0), 1250), (NodeId(1), 0)]);
        assert_eq!(*stat.idle(Picos::from_secs(6)), told);
        // What is no such file tells nothing.
        write("cpu\ncpux 1\ncpu3 a b c d\n");
        assert!(stat.idle(Picos::from_secs(8)).is_empty());
    }
}
