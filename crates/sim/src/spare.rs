//! A machine that has no more CPUs than its programs use, and some to spare.
//!
//! ```text
//! CPUs of the machine   0 1 2 3 4 5 6 7
//! programs may use      0 1
//! spare = 0             0 1                 whoever else runs takes turns with the programs
//! spare = 2             0 1 2 3
//! ```
//!
//! The others are not there from the beginning: the kernel has no queue for them and counts them
//! nowhere.
//!
//! Source: specs/compare.md#busy.

use homenode_core::scenario::{CpuStep, Scenario, Step};
use homenode_core::topology::{Cpu, Hardware};
use homenode_core::units::{CpuId, count};
use std::collections::BTreeSet;

/// All CPUs of a machine.
pub(crate) fn every(machine: &Hardware) -> BTreeSet<CpuId> {
    machine.cpus.iter().map(|c| c.id).collect()
}

/// The CPUs that some program of a scenario may use; all of the machine's, where one is bound to none.
pub(crate) fn used(machine: &Hardware, scenario: &Scenario) -> BTreeSet<CpuId> {
    let mut used = BTreeSet::new();
    for p in &scenario.processes {
        if p.cpus.is_empty() {
            return every(machine);
        }
        used.extend(&p.cpus);
        for step in &p.steps {
            if let Step::Cpu(CpuStep::Affinity { cpus }) = step {
                used.extend(cpus);
            }
        }
    }
    used
}

/// A machine with the CPUs that are used and, of the others, the first `spare`.
///
/// # Errors
/// Why not, in a sentence: there are not so many others; a node would have no CPU left, which would
/// make it another tier.
pub(crate) fn with_spare(
    machine: &Hardware,
    used: &BTreeSet<CpuId>,
    spare: u32,
) -> Result<Hardware, String> {
    let (all, others): (Vec<&Cpu>, Vec<&Cpu>) =
        machine.cpus.iter().partition(|c| used.contains(&c.id));
    if (others.len() as u64) < u64::from(spare) {
        return Err(format!(
            "spare={spare}: programs may use {} of the {} of the machine \"{}\", so {} to spare; ask \
             for no more, bind the programs to fewer CPUs (cpus), or take a machine with more",
            all.len(),
            count(machine.cpus.len() as u64, "CPU", "CPUs"),
            machine.name,
            count(others.len() as u64, "is there", "are there"),
        ));
    }
    let left: BTreeSet<CpuId> =
        all.into_iter().chain(others.into_iter().take(spare as usize)).map(|c| c.id).collect();
    let mut machine = machine.clone();
    let before: BTreeSet<_> = machine.cpus.iter().map(|c| c.node).collect();
    machine.cpus.retain(|c| left.contains(&c.id));
    if let Some(node) = before.into_iter().find(|&node| !machine.has_cpu(node)) {
        return Err(format!(
            "spare={spare}: node {node} would have no CPU left, and be another tier; ask for more of \
             them, or let a program use a CPU there"
        ));
    }
    Ok(machine)
}
