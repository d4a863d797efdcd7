//! The simulated side: the same programs and the simulated kernel's ksmd.
//!
//! A case's second is made longer: in it the programs have time for what they do, one
//! after the other as the file has them, and ksmd for its pass behind them.

use super::side::{self, AfterPass, Side};
use anyhow::{Context, Result, anyhow, bail};
use homenode_config::{MergeCase, parse_machine};
use homenode_core::kernel::KernelVersion;
use homenode_core::scenario::{Process, Rights, Scenario, Step};
use homenode_core::units::{CpuId, Picos};
use homenode_merge::ksm::Sleep;
use homenode_sim::{Setup, Simulation};
use std::collections::{BTreeMap, BTreeSet};

/// One node, four CPUs, 256 MiB.
const MACHINE: &str = include_str!("../../../../../machines/small.toml");
/// From one pass to the next.
const SLOT: Picos = Picos::from_secs(20);
/// From one program to the next: longer than all that programs do in all slots.
const APART: Picos = Picos::from_ms(200);
/// When a slot's pass begins, and its programs are long done.
const DONE: Picos = Picos::from_secs(10);
/// How long ksmd gets between two looks.
const WAIT: Picos = Picos::from_ms(5);

/// A program without memory: a simulation ends with its last one, and ksmd has something
/// to do for those that have ended.
const BYSTANDER: &str = "bystander";

struct Simulated {
    simulation: Simulation,
    /// Names of the programs that were seen, by PID; children are numbered.
    names: BTreeMap<u32, String>,
    /// End of the slot that runs.
    until: u64,
}

/// Runs a case in simulation; a row per pass.
///
/// * `huge` – whether the kernel gives huge pages to those who ask.
pub(super) fn run(case: &MergeCase, version: KernelVersion, huge: bool) -> Result<Vec<AfterPass>> {
    let machine = parse_machine("machines/small.toml", MACHINE)?;
    let enabled = if huge { "madvise" } else { "never" };
    let processes = case.scenario.processes.iter().enumerate();
    let sleep = Step::Sleep(Picos(u64::from(case.passes + 1) * SLOT.0));
    let bystander = Process::new(BYSTANDER, vec![CpuId(1)], Vec::new(), vec![sleep]);
    let stretched = processes.map(|(i, p)| stretched(p, i as u64));
    let scenario = Scenario {
        processes: stretched.chain([bystander]).collect(),
        ksm: Vec::new(),
        actions: Vec::new(),
        knobs: vec![
            ("transparent_hugepage".to_owned(), enabled.to_owned()),
            // A slot is longer than a pass: khugepaged, which comes round once in 10 s, would
            // come round many times and make huge pages again of what merging has split.
            ("khugepaged_scan_sleep_millisecs".to_owned(), u32::MAX.to_string()),
        ],
        ..case.scenario.clone()
    };
    let setup = Setup { version, ..Setup::of(&scenario) };
    let simulation = Simulation::new(&machine, &scenario, &setup).map_err(|e| anyhow!("{e}"))?;
    side::run(&mut Simulated { simulation, names: BTreeMap::new(), until: 0 }, case)
}

/// A program with its passes as slots.
fn stretched(process: &Process, place: u64) -> Process {
    let slots = |time: Picos| u64::from(MergeCase::passes_in(time)) * SLOT.0;
    let mut new = process.clone();
    // Nothing happens at the very start: the knobs are written first.
    new.start = Picos(slots(process.start) + (place + 1) * APART.0);
    for step in &mut new.steps {
        if let Step::Sleep(time) = step {
            *time = Picos(slots(*time));
        }
    }
    new
}

impl Simulated {
    fn run_until(&mut self, time: u64) -> Result<()> {
        self.simulation.run_until(time);
        let processes = self.simulation.processes();
        match processes.iter().find_map(|p| Some((&p.name, p.killed.as_ref()?))) {
            Some((name, why)) => bail!("process \"{name}\" was killed: {why}"),
            None => Ok(()),
        }
    }
}

impl Side for Simulated {
    fn act(&mut self, slot: u32) -> Result<()> {
        self.until = (u64::from(slot) + 1) * SLOT.0;
        self.run_until(u64::from(slot) * SLOT.0 + DONE.0)
    }
    fn write(&mut self, file: &str, value: &str) -> Result<Option<String>> {
        let path = format!("{}{file}", MergeCase::FOLDER);
        let done = self.simulation.write_file(&path, value, Rights::Root);
        Ok(done.err().map(|e| e.errno.name().to_owned()))
    }
    fn read(&mut self, file: &str) -> Result<Option<String>> {
        let path = format!("{}{file}", MergeCase::FOLDER);
        Ok(self.simulation.read_file(&path).ok().map(|t| t.trim().to_owned()))
    }
    fn vmstat(&mut self) -> Result<String> {
        self.simulation.read_file("/proc/vmstat").context("the simulated kernel")
    }
    fn stats(&mut self) -> Result<Vec<(String, String)>> {
        let names = self.simulation.list("/proc").context("the simulated kernel")?;
        let pids: BTreeSet<u32> = names.iter().filter_map(|n| n.parse().ok()).collect();
        let mut all = Vec::new();
        for pid in pids {
            let read = |file: &str| self.simulation.read_file(&format!("/proc/{pid}/{file}"));
            let (Ok(status), Ok(stat)) = (read("status"), read("ksm_stat")) else { continue };
            let of = status.lines().find_map(|l| l.strip_prefix("Name:")).unwrap_or("").trim();
            // Kernel threads have nothing to tell.
            if of == BYSTANDER || stat.is_empty() {
                continue;
            }
            if !self.names.contains_key(&pid) {
                let is_kin = |n: &String| n == of || n.starts_with(&format!("{of}."));
                let name = match self.names.values().filter(|n| is_kin(n)).count() {
                    0 => of.to_owned(),
                    children => format!("{of}.{children}"),
                };
                self.names.insert(pid, name);
            }
            all.push((self.names[&pid].clone(), stat));
        }
        Ok(all)
    }
    fn wait(&mut self) -> Result<()> {
        let next = self.simulation.now() + WAIT.0;
        if next >= self.until {
            bail!(
                "ksmd did not end its pass in {} s of virtual time",
                (SLOT.0 - DONE.0) / 1_000_000_000_000
            );
        }
        self.run_until(next)
    }
    /// A look is longer than what keeps it from its CPU here.
    fn sleep(&mut self) -> Option<Sleep> {
        None
    }
}
