//! Groups of a scenario: how processes share CPUs with others that are not in their group.
//!
//! Source: specs/sched-groups.md.

use crate::sched::group::{DEFAULT_WEIGHT, Max};
use crate::units::CpuId;

/// A group of processes (a cgroup of version 2 with the controllers `cpu` and `cpuset`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name, which is unique in the scenario.
    pub name: String,
    /// The name of the group that it is in; `None`: the root.
    pub parent: Option<String>,
    /// `cpu.weight`, 1..=10000.
    pub weight: u32,
    /// `cpu.max`.
    pub max: Max,
    /// `cpu.idle`.
    pub idle: bool,
    /// `cpuset.cpus`; none: those of the group that it is in.
    pub cpus: Vec<CpuId>,
}

impl Group {
    /// One below the root as the kernel makes it.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            parent: None,
            weight: DEFAULT_WEIGHT,
            max: Max::default(),
            idle: false,
            cpus: Vec::new(),
        }
    }
}
