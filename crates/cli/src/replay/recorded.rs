//! A recording and the machine that it is replayed on: what `replay` and `advise` share.

use super::load::Loaded;
use super::play::{self, Calibration, Mlp, Played, Rates};
use super::target::{self, Dram, Target};
use crate::contender::Contender;
use crate::failure::NotSo;
use crate::figures::{self, Choice};
use crate::knobs::Setting;
use crate::nodes::{self, Shelf};
use anyhow::{Result, anyhow, bail};
use homenode_config::{AddNode, Size};
use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::Knobs;
use homenode_core::scenario::Mempolicy;
use homenode_core::topology::Hardware;
use homenode_core::units::CpuId;
use homenode_report::{Caption, Report};
use homenode_sim::Setup;
use homenode_sim::replay::{Charge, Rounds};
use std::sync::Arc;

/// A recording, what its instructions cost, and the machine that it is replayed on.
pub(crate) struct Recorded {
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) calibrated: Calibration,
    pub(crate) target: Target,
    pub(crate) version: KernelVersion,
    /// The CPUs that the program may use; none: all.
    pub(crate) cpus: Vec<CpuId>,
    /// Its machine with all of its DRAM.
    roomy: Hardware,
    shelves: Vec<Shelf>,
    pub(super) mlp: Mlp,
    /// Knobs that all columns have.
    set: Vec<Setting>,
}

impl Recorded {
    /// Calibrates a recording on a machine; then that machine is changed as asked.
    ///
    /// * `set` – knobs, by which the kernel keeps memory free.
    /// * `mlp` – how many of its misses are under way at once.
    /// * `force` – also where the unmodified machine takes another time than the program did.
    pub(crate) fn new(
        loaded: Arc<Loaded>,
        this: &Hardware,
        dram: Option<Dram>,
        add: Option<AddNode>,
        set: &[Setting],
        mlp: Mlp,
        force: bool,
    ) -> Result<Self> {
        let setup = setup(&[("numa_balancing".into(), "0".into())]);
        let version = setup.version;
        let calibrated =
            play::calibrate(this, &setup, &loaded, &nodes::shelves(this, version), mlp)?;
        if let Some(far) = calibrated.far.as_ref().filter(|_| !force) {
            bail!(NotSo(format!("{far}. See the figures all the same with --force")));
        }
        let half = add.is_some_and(|a| a.size == Size::Half);
        let dram = dram.unwrap_or(if half { Dram::Half } else { Dram::All });
        let mut knobs = Knobs::new(version);
        for (name, value) in set {
            knobs.set(name, value).map_err(|e| anyhow!("{e}"))?;
        }
        let target = target::build(this, calibrated.peak, dram, add, &knobs, setup.model.margin)?;
        let roomy =
            target::build(this, calibrated.peak, Dram::All, add, &knobs, setup.model.margin)?;
        let shelves = nodes::shelves(&target.machine, version);
        Ok(Self {
            loaded,
            calibrated,
            target,
            roomy: roomy.machine,
            version,
            cpus: Vec::new(),
            shelves,
            mlp,
            set: set.to_vec(),
        })
    }
    /// What the program is charged, for so much virtual time or so many rounds.
    pub(crate) fn charge(&self, rounds: Rounds, policy: Mempolicy) -> Charge {
        let overlap = play::overlap(&self.target.machine, self.mlp);
        let cpus = self.cpus.clone();
        let Rates { all: as_per_insn, own: own_as_per_insn } = self.calibrated.rates.clone();
        Charge { as_per_insn, own_as_per_insn, rounds, policy, overlap, cpus }
    }
    /// Its program's name.
    pub(crate) fn name(&self) -> &str {
        self.loaded.header.command.first().map_or("program", String::as_str)
    }
    /// The columns as they are on its machine.
    pub(crate) fn columns(&self, columns: Vec<Contender>) -> Result<Vec<Contender>> {
        columns.into_iter().map(|c| c.on(&self.target.machine)).collect()
    }

    /// Replays it in a column, with knobs that all columns have.
    ///
    /// * `told` – is given rounds and virtual time now and then.
    pub(crate) fn play(
        &self,
        column: &Contender,
        set: &[Setting],
        rounds: Rounds,
        told: &dyn Fn(u64, u64),
    ) -> Result<Played> {
        let setup = column.setup(&setup(&[]), set)?;
        let charge = self.charge(rounds, column.mempolicy.clone());
        let look = (self.calibrated.round / 16).max(1_000_000_000);
        let machine = if column.fits { &self.roomy } else { &self.target.machine };
        let loaded = &self.loaded;
        play::play(machine, &setup, loaded, &charge, &self.shelves, column, look, told)
            .map_err(|e| e.context(format!("column {}", column.name)))
    }

    /// Restricts the program to some CPUs of its machine.
    ///
    /// # Errors
    /// One that the machine does not have.
    pub(crate) fn restrict(&mut self, cpus: &[CpuId]) -> Result<()> {
        has(&self.target.machine, cpus)?;
        self.cpus = cpus.to_vec();
        Ok(())
    }

    /// The table of all columns and what is said of it, without a picture.
    ///
    /// * `notes` – all but the columns' own.
    /// * `warnings` – beside those of calibrating and of the machine.
    pub(crate) fn report(
        &self,
        columns: &[Contender],
        played: &[Played],
        choice: &Choice,
        notes: Vec<String>,
        warnings: Vec<String>,
    ) -> Report {
        let contenders: Vec<&Contender> = columns.iter().collect();
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        let runs: Vec<Vec<_>> = played.iter().map(|p| vec![&p.figures]).collect();
        let (machine, version) = (&self.target.machine, self.version);
        let table =
            figures::table(&contenders, &names, &runs, &self.shelves, version, None, choice);
        let all: Vec<Vec<Setting>> =
            columns.iter().map(|c| [&c.knobs[..], &self.set].concat()).collect();
        let whose = columns
            .iter()
            .zip(&all)
            .map(|(c, set)| (c.title(), c.version.unwrap_or(version), &set[..]));
        let known = self.calibrated.warnings.iter().chain(&self.target.warnings).cloned();
        let notes = figures::defaults(machine).into_iter().chain(notes).collect();
        let caption = Caption {
            wrong: self.loaded.wrong(),
            machine: format!("{}: {}", machine.name, machine.about),
            workload: self.loaded.workload(),
            kernel: format!("Linux {version}'s rules; {}", crate::sim::reclaim(whose)),
            scales: Vec::new(),
            loops: played.first().map_or(0, |p| p.rounds().len() as u64),
            seeds: vec![1],
            notes,
            warnings: known.chain(warnings).collect(),
        };
        Report { caption, table, picture: Vec::new(), conclusion: None }
    }
}

/// Whether a machine has all of these CPUs.
///
/// # Errors
/// One that it does not have.
pub(crate) fn has(machine: &Hardware, cpus: &[CpuId]) -> Result<()> {
    if let Some(c) = cpus.iter().find(|c| machine.cpus.iter().all(|own| own.id != **c)) {
        let own: Vec<u32> = machine.cpus.iter().map(|c| c.id.0).collect();
        let own = homenode_config::write_list(&own);
        bail!("--cpus: \"{}\" has no CPU {c}; it has {own}", machine.name);
    }
    Ok(())
}

/// One run with these knobs.
pub(crate) fn setup(knobs: &[Setting]) -> Setup {
    Setup { seed: 1, knobs: knobs.to_vec(), ..Setup::default() }
}
