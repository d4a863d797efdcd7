//! The kernel's own mechanisms, end to end: the bodies of `homenode-machine` on this
//! kernel, and on a simulated one with the same nodes, zones and version.
//!
//! ```text
//!  zoneinfo, topology.json ──▶ twin ──▶ figures ─┐
//!                                                ├─▶ compare ──▶ differences
//!  programs, /proc, /sys ──▶ this kernel ──▶ figures
//! ```
//!
//! Source: specs/end-to-end.md

pub(crate) mod program;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use homenode_core::costs::{Constant, Costs};
use homenode_core::kernel::KernelVersion;
use homenode_core::scenario::Model;
use homenode_core::topology::{Cpu, Hardware, Link, Medium, Node, Zone, ZoneKind};
use homenode_core::units::{CpuId, NodeId, Pages, Picos};
use homenode_machine::endtoend::collapse::{self, collapses};
use homenode_machine::endtoend::home;
use homenode_machine::endtoend::huge;
use homenode_machine::endtoend::lists::{self, lists};
use homenode_machine::endtoend::pressure::{self, What, pressed};
use homenode_machine::endtoend::slow_start::{self, s0};
use homenode_machine::endtoend::split::{self, goes_down};
use homenode_machine::endtoend::tiering::{self, s1};
use homenode_machine::endtoend::{
    Figures, Finding, KernelStage, Program, Runs, Started, compare, zones,
};
use homenode_sim::twin::Twin;
use serde_json::{Map, Value, json};

use crate::asked::Asked;
use crate::memory::task_policy_local;
use crate::topology::release;
use crate::{Differs, TestResult, needs, skip};
use program::Load;

/// How often a running program is looked at. A guess: looking costs processor time.
const LOOK: Duration = Duration::from_millis(20);

/// What the simulated kernel doesn't have is switched off here meanwhile: files and what
/// is written to them, where there are such files.
const QUIET: &[(&str, &str)] = &[
    // The lists are the active and inactive ones.
    ("/sys/kernel/mm/lru_gen/enabled", "n"),
    // Free pages that CPUs keep for themselves, thousands of them: as few as can be.
    ("/proc/sys/vm/percpu_pagelist_high_fraction", "1000"),
    // Marks that rise for a while after memory was fragmented, compaction ahead of need.
    ("/proc/sys/vm/watermark_boost_factor", "0"),
    ("/proc/sys/vm/compaction_proactiveness", "0"),
    // A fault that finds no huge page takes a small one and reclaims nothing.
    ("/sys/kernel/mm/transparent_hugepage/defrag", "never"),
];

/// This kernel.
struct Real<'a> {
    asked: &'a Asked,
    version: KernelVersion,
    loads: Vec<Load>,
    before: Vec<(&'static str, String)>,
}

/// The simulated kernel's version that stands beside this one.
pub(crate) fn rules() -> Result<KernelVersion> {
    Ok(match release()? {
        (6, 0..=5) => KernelVersion::V6_1,
        (6, _) => KernelVersion::V6_12,
        _ => KernelVersion::V7_3,
    })
}

impl<'a> Real<'a> {
    fn new(asked: &'a Asked) -> Result<Self> {
        // This process waits and simulates; whatever it uses, nobody samples it.
        task_policy_local().context("set_mempolicy")?;
        let version = rules()?;
        let mut real = Self { asked, version, loads: Vec::new(), before: Vec::new() };
        for &(path, text) in QUIET {
            let Ok(old) = fs::read_to_string(path) else { continue };
            fs::write(path, text).with_context(|| format!("{path} = {text}"))?;
            // Words to choose from have the chosen one in brackets.
            let chosen = old.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
            let old = chosen.map_or(old.trim(), |(word, _)| word).to_owned();
            real.before.push((path, old));
        }
        Ok(real)
    }

    /// The kernel's caches are empty, and what is free lies together.
    fn tidy(&self) -> Result<()> {
        for (path, text) in
            [("/proc/sys/vm/drop_caches", "3"), ("/proc/sys/vm/compact_memory", "1")]
        {
            fs::write(path, text).with_context(|| format!("{path} = {text}"))?;
        }
        Ok(())
    }

    fn cpus_of(&self, node: NodeId) -> &[u32] {
        self.asked.nodes.get(node.index()).map_or(&[], |node| &node.cpus)
    }

    fn load(&self, who: &Started) -> Result<&Load, Finding> {
        let found = self.loads.iter().find(|load| load.pid() == who.pid);
        found.ok_or_else(|| format!("process {} was not started here", who.pid))
    }
}

impl Drop for Real<'_> {
    fn drop(&mut self) {
        for (path, old) in self.before.iter().rev() {
            if let Err(error) = fs::write(path, old) {
                eprintln!("{path} could not be put back to {old:?}: {error}");
            }
        }
    }
}

impl KernelStage for Real<'_> {
    fn version(&self) -> KernelVersion {
        self.version
    }
    fn read(&mut self, path: &str) -> Result<String, Finding> {
        if ["/proc/vmstat", "/proc/zoneinfo"].contains(&path) {
            // What CPUs have counted for themselves joins the sums: reading this does it. A
            // kernel that refuses does so by itself within a second.
            let _ = fs::read_to_string("/proc/sys/vm/stat_refresh");
        }
        fs::read_to_string(path).map_err(|e| format!("{path} can't be read: {e}"))
    }
    fn write(&mut self, path: &str, text: &str) -> Result<(), Finding> {
        fs::write(path, text).map_err(|e| format!("{path} = {text} is refused: {e}"))
    }
    fn list(&mut self, folder: &str) -> Result<Vec<String>, Finding> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(format!("{folder} can't be listed: {e}")),
        };
        Ok(entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
    }
    fn start(&mut self, program: &Program) -> Result<Started, Finding> {
        let all: Vec<u32> = self.asked.nodes.iter().flat_map(|n| n.cpus.clone()).collect();
        let (node, free) = match program.runs {
            Runs::Pinned(node) => (node, false),
            Runs::From(node) => (node, true),
        };
        let first = self.cpus_of(node).get(..1).ok_or(format!("node {node} has no CPU"))?;
        let later = if free { &all[..] } else { first };
        let load = Load::start(program, first, later).map_err(|e| format!("{e:#}"))?;
        let started = Started { pid: load.pid(), hot: load.hot, cold: load.cold };
        self.loads.push(load);
        Ok(started)
    }
    fn walk(&mut self, who: &Started) -> Result<(), Finding> {
        let found = self.loads.iter_mut().find(|load| load.pid() == who.pid);
        let load = found.ok_or_else(|| format!("process {} was not started here", who.pid))?;
        load.walk().map_err(|e| format!("{e:#}"))
    }
    fn ran(&mut self, who: &Started) -> Result<Picos, Finding> {
        self.load(who)?;
        let path = format!("/proc/{}/schedstat", who.pid);
        let text = self.read(&path)?;
        let ns = text.split(' ').next().and_then(|n| n.parse().ok());
        ns.map(Picos::from_ns).ok_or_else(|| format!("{path} holds {text:?}"))
    }
    fn cpu_node(&mut self, who: &Started) -> Result<NodeId, Finding> {
        self.load(who)?;
        let path = format!("/proc/{}/stat", who.pid);
        let text = self.read(&path)?;
        // Behind the name in brackets, which may hold anything, comes the third field;
        // the CPU is the 39th.
        let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        let cpu: Option<u32> = fields.split_whitespace().nth(36).and_then(|n| n.parse().ok());
        let node = |cpu| self.asked.nodes.iter().position(|node| node.cpus.contains(&cpu));
        let node = cpu.and_then(node).ok_or_else(|| format!("{path} holds {text:?}"))?;
        Ok(NodeId(node as u16))
    }
    fn pass(&mut self) -> Result<(), Finding> {
        thread::sleep(LOOK);
        Ok(())
    }
    fn end_all(&mut self) {
        self.loads.clear();
    }
}

/// The simulated kernel on this machine as it is now: what is in use is in use there too.
fn twin(real: &mut Real<'_>) -> Result<Twin> {
    let text = real.read("/proc/zoneinfo").map_err(anyhow::Error::msg)?;
    twin_of(real, &text)
}

/// The same for a machine as it was when `zoneinfo` was read.
fn twin_of(real: &Real<'_>, zoneinfo: &str) -> Result<Twin> {
    let mut by_node: BTreeMap<NodeId, Vec<Zone>> = BTreeMap::new();
    let mut used = Vec::new();
    for zone in zones(zoneinfo) {
        let kind = ZoneKind::of_kernel(&zone.name);
        let kind = kind.with_context(|| format!("zone {}: homenode doesn't know it", zone.name))?;
        by_node.entry(zone.node).or_default().push(Zone { kind, managed: Pages(zone.managed) });
        used.push((zone.node, kind, Pages(zone.managed.saturating_sub(zone.free))));
    }
    let machine = machine(real.asked, by_node);
    machine.check().map_err(|e| anyhow::anyhow!("this machine is impossible: {e}"))?;
    let twin = Twin::boot(&machine, real.version, Model::default(), &used);
    let mut twin = twin.context("a simulated kernel")?;
    for &(path, text) in QUIET {
        if twin.read(path).is_ok() {
            twin.write(path, text).map_err(anyhow::Error::msg)?;
        }
    }
    Ok(twin)
}

/// The machine that was asked for, with the zones that the kernel made of it.
fn machine(asked: &Asked, mut zones: BTreeMap<NodeId, Vec<Zone>>) -> Hardware {
    let constant = |n: u32| Constant::assumed(n.into(), "as the guest's firmware tells it");
    let ids = 0..asked.nodes.len();
    let node = |i| NodeId(i as u16);
    let mut cpus: Vec<Cpu> = Vec::new();
    let mut links = Vec::new();
    let with_cpus = asked.nodes.iter().enumerate().filter(|(_, n)| !n.cpus.is_empty());
    for (row, (from, asked_node)) in with_cpus.enumerate() {
        let cpu = |&id: &u32| Cpu {
            id: CpuId(id),
            node: node(from),
            core: id,
            llc: from as u32,
            capacity: 1024,
            mhz: None,
        };
        cpus.extend(asked_node.cpus.iter().map(cpu));
        for to in ids.clone() {
            // Without HMAT all memory is alike but for the way to it.
            let far = if from == to { 80 } else { 140 };
            let of = |table: &[Vec<u32>]| table.get(row).and_then(|row| row.get(to)).copied();
            let ns = of(&asked.latency_ns).unwrap_or(far);
            let mbps = of(&asked.bandwidth_mbps).unwrap_or(100_000);
            links.push(Link {
                from: node(from),
                to: node(to),
                read_latency: constant(ns * 1000),
                write_latency: constant(ns * 1000),
                read_bandwidth: constant(mbps),
                write_bandwidth: constant(mbps),
            });
        }
    }
    Hardware {
        name: "guest".to_owned(),
        about: "the guest in which this runs".to_owned(),
        nodes: ids
            .map(|i| Node {
                id: node(i),
                medium: Medium::Dram,
                zones: zones.remove(&node(i)).unwrap_or_default(),
            })
            .collect(),
        cpus,
        caches: Vec::new(),
        distances: asked.distances.clone(),
        links,
        idle_states: Vec::new(),
        curves: Vec::new(),
        loaded: Vec::new(),
        defaults: None,
        costs: Costs::default(),
    }
}

/// Collects what the cases found.
#[derive(Default)]
struct Report {
    facts: Map<String, Value>,
    wrong: Vec<String>,
}

impl Report {
    /// A case with what both kernels did; figures that it leaves open are only shown.
    fn case(
        &mut self,
        name: &str,
        open: &[&str],
        real: Result<Figures, Finding>,
        twin: Result<Figures, Finding>,
    ) {
        for (which, found) in [("real", &real), ("simulated", &twin)] {
            if let Err(finding) = found {
                self.wrong.push(format!("{name}: the {which} kernel: {finding}"));
            }
        }
        if let (Ok(real), Ok(twin)) = (&real, &twin) {
            let differences = compare(real, twin, open).into_iter();
            self.wrong.extend(differences.map(|d| format!("{name}: {d}")));
        }
        // What is 0 on both says nothing that the name doesn't.
        let (real, twin) = (real.unwrap_or_default(), twin.unwrap_or_default());
        let both = real.iter().map(|(figure, n)| (figure, (n, twin.get(figure).unwrap_or(&0))));
        let shown = both.filter(|(_, (a, b))| **a > 0 || **b > 0);
        let facts: Map<String, Value> =
            shown.map(|(figure, (a, b))| ((*figure).to_owned(), json!([a, b]))).collect();
        self.facts.insert(name.to_owned(), Value::Object(facts));
    }

    fn outcome(self) -> TestResult {
        if self.wrong.is_empty() {
            return Ok(json!({"real_and_simulated": self.facts}));
        }
        let facts = json!({"real_and_simulated": self.facts});
        let why = format!("{}; figures, real and simulated: {}", self.wrong.join("; "), facts);
        Err(anyhow::Error::msg(Differs { why, facts }))
    }
}

/// S0: bursts on a wrong node.
pub(crate) fn slow_start(asked: &Asked) -> TestResult {
    let mut nodes = (0..asked.nodes.len()).filter(|&n| !asked.nodes[n].cpus.is_empty());
    let (Some(memory), Some(cpu)) = (nodes.next(), nodes.next()) else {
        return Err(skip("one node with CPUs: none is the wrong one"));
    };
    let (memory, cpu) = (NodeId(memory as u16), NodeId(cpu as u16));
    let mut real = Real::new(asked)?;
    let mut report = Report::default();
    for (ms, free) in [(500, false), (3000, false), (3000, true)] {
        let case = slow_start::Case { burst: Picos::from_ms(ms), memory, cpu, free };
        let mut twin = twin(&mut real)?;
        let found = s0(&mut real, &case);
        report.case(&case.name(), case.open(), found, s0(&mut twin, &case));
    }
    report.outcome()
}

/// A task that runs away from its memory comes home.
pub(crate) fn home(asked: &Asked) -> TestResult {
    let mut nodes = (0..asked.nodes.len()).filter(|&n| !asked.nodes[n].cpus.is_empty());
    let (Some(one), Some(other)) = (nodes.next(), nodes.next()) else {
        return Err(skip("one node with CPUs: nobody is away from home"));
    };
    let (one, other) = (NodeId(one as u16), NodeId(other as u16));
    let mut real = Real::new(asked)?;
    let mut report = Report::default();
    for (memory, cpu) in [(other, one), (one, other)] {
        let case = home::Case { memory, cpu };
        let mut twin = twin(&mut real)?;
        let found = home::comes_home(&mut real, &case);
        let name = format!("memory on node {memory}");
        report.case(&name, home::OPEN, found, home::comes_home(&mut twin, &case));
    }
    report.outcome()
}

/// A node with CPUs and one of a slower tier.
fn fast_and_slow(asked: &Asked) -> Result<(NodeId, NodeId)> {
    let fast = asked.nodes.iter().position(|node| !node.cpus.is_empty());
    let slow = asked.nodes.iter().position(|node| node.cpus.is_empty());
    let both = fast.zip(slow).ok_or_else(|| skip("no node is without CPUs: none is slow"))?;
    needs(asked.tiers.len() >= 2, "no slow tier was asked for")?;
    Ok((NodeId(both.0 as u16), NodeId(both.1 as u16)))
}

/// How often a run of kswapd's lists is begun anew whose first turn ended early.
const TRIES: u32 = 6;

/// kswapd on the active and inactive lists.
pub(crate) fn lists_of(asked: &Asked) -> TestResult {
    let (fast, slow) = fast_and_slow(asked)?;
    let with_cpus = asked.nodes.iter().filter(|node| !node.cpus.is_empty()).count();
    needs(with_cpus < 2, "two nodes have CPUs: memory that the first has no room for is not slow")?;
    let mut report = Report::default();
    let mut tiered = false;
    for generations in [false, true] {
        let case = lists::Case { fast, slow, generations };
        tiered |= lists_case(asked, &case, &mut report)?;
    }
    needs(tiered, "this kernel takes no node for slower")?;
    report.outcome()
}

/// One case of kswapd's lists; whether a tier is slower.
fn lists_case(asked: &Asked, case: &lists::Case, report: &mut Report) -> Result<bool> {
    let run = || -> Result<_> {
        let mut real = Real::new(asked)?;
        real.tidy()?;
        // A simulated kernel's own memory would lie on the lists of the real one, untouched:
        // it comes to be when the real one is through.
        let before = real.read("/proc/zoneinfo").map_err(anyhow::Error::msg)?;
        let found = lists(&mut real, case);
        Ok((before, found))
    };
    let (mut before, mut found) = run()?;
    let mut tries = 1;
    let early = |f: &Figures| !case.generations && lists::ended_early(f);
    while tries < TRIES && matches!(&found, Ok(Some(f)) if early(f)) {
        eprintln!("lists: kswapd ended its first turn early: begun anew");
        (before, found) = run()?;
        tries += 1;
    }
    let simulated = lists(&mut twin_of(&Real::new(asked)?, &before)?, case);
    let tiered = !matches!((&found, &simulated), (Ok(None), Ok(None)));
    let some = |found: Result<Option<Figures>, Finding>| found.map(Option::unwrap_or_default);
    report.case(case.name(), case.open(), some(found), some(simulated));
    Ok(tiered)
}

/// Huge pages as knob and program say.
pub(crate) fn huge(asked: &Asked) -> TestResult {
    let node = (0..asked.nodes.len()).find(|&n| !asked.nodes[n].cpus.is_empty());
    let node = NodeId(node.ok_or_else(|| skip("no node has CPUs"))? as u16);
    let mut real = Real::new(asked)?;
    let mut report = Report::default();
    for case in huge::Case::all(node) {
        real.tidy()?;
        let mut twin = twin(&mut real)?;
        let found = huge::touched(&mut real, &case);
        report.case(&case.name(), &[], found, huge::touched(&mut twin, &case));
    }
    report.outcome()
}

/// What khugepaged makes of base pages.
pub(crate) fn huge_collapse(asked: &Asked) -> TestResult {
    use collapse::What;
    let (fast, slow) = fast_and_slow(asked)?;
    let mut real = Real::new(asked)?;
    let mut report = Report::default();
    // A node that is filled is the slow one: nobody needs its kswapd, which only fails.
    for (what, node) in [(What::Whole, fast), (What::Partly, fast), (What::NoRoom, slow)] {
        let case = collapse::Case { what, node, cpu: fast };
        real.tidy()?;
        let mut twin = twin(&mut real)?;
        let found = collapses(&mut real, &case);
        report.case(case.name(), &[], found, collapses(&mut twin, &case));
    }
    report.outcome()
}

/// Huge pages on their way down.
pub(crate) fn huge_demotion(asked: &Asked) -> TestResult {
    let (fast, slow) = fast_and_slow(asked)?;
    let mut report = Report::default();
    let mut tiered = false;
    for case in split::Case::all(fast, slow) {
        let (before, found) = {
            let mut real = Real::new(asked)?;
            if !case.room && case.generations {
                split::revive(&mut real, (fast, slow)).map_err(anyhow::Error::msg)?;
            }
            real.tidy()?;
            let before = real.read("/proc/zoneinfo").map_err(anyhow::Error::msg)?;
            (before, goes_down(&mut real, &case))
        };
        // As for the lists: the twin's own memory would lie on them.
        let simulated = goes_down(&mut twin_of(&Real::new(asked)?, &before)?, &case);
        tiered |= !matches!((&found, &simulated), (Ok(None), Ok(None)));
        let some = |found: Result<Option<Figures>, Finding>| found.map(Option::unwrap_or_default);
        let real = some(found);
        let open = real.as_ref().map_or(&[][..], |figures| case.open(figures));
        report.case(&case.name(), open, real, some(simulated));
    }
    needs(tiered, "this kernel takes no node for slower")?;
    report.outcome()
}

/// A loop over more than the fast node.
pub(crate) fn pressure_loop(asked: &Asked) -> TestResult {
    under_pressure(asked, What::Loop)
}

/// A hot set beside memory that is touched once.
pub(crate) fn pressure_beside(asked: &Asked) -> TestResult {
    under_pressure(asked, What::Beside)
}

/// A fill beyond all tiers.
pub(crate) fn pressure_fill(asked: &Asked) -> TestResult {
    under_pressure(asked, What::Fill)
}

fn under_pressure(asked: &Asked, what: What) -> TestResult {
    let (fast, slow) = fast_and_slow(asked)?;
    let mut report = Report::default();
    let mut tiered = false;
    for (n, case) in pressure::Case::all(what, fast, slow).into_iter().enumerate() {
        let (before, found) = {
            let mut real = Real::new(asked)?;
            // The case before has left kswapd with nothing that it could do.
            if what == What::Fill && n > 0 {
                split::revive(&mut real, (fast, slow)).map_err(anyhow::Error::msg)?;
            }
            real.tidy()?;
            let before = real.read("/proc/zoneinfo").map_err(anyhow::Error::msg)?;
            (before, pressed(&mut real, &case))
        };
        // As for the lists: the twin's own memory would lie on them.
        let simulated = pressed(&mut twin_of(&Real::new(asked)?, &before)?, &case);
        tiered |= !matches!((&found, &simulated), (Ok(None), Ok(None)));
        let some = |found: Result<Option<Figures>, Finding>| found.map(Option::unwrap_or_default);
        let real = some(found);
        let open = real.as_ref().map_or(&[][..], |figures| case.open(figures));
        report.case(&case.name(), open, real, some(simulated));
    }
    needs(tiered, "this kernel takes no node for slower")?;
    report.outcome()
}

/// S1: a hot set on the slow node.
pub(crate) fn tiering(asked: &Asked) -> TestResult {
    let (fast, slow) = fast_and_slow(asked)?;
    let mut real = Real::new(asked)?;
    let mut report = Report::default();
    // Without demotion kswapd fails, 16 times and for good: those cases come last.
    for demotion in [true, false] {
        for huge in [false, true] {
            for mode in [0, 1, 2] {
                let case = tiering::Case { mode, demotion, huge, fast, slow };
                real.tidy()?;
                let mut twin = twin(&mut real)?;
                let found = s1(&mut real, &case);
                report.case(&case.name(), case.open(), found, s1(&mut twin, &case));
            }
        }
    }
    report.outcome()
}
