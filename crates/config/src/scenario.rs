//! Reading a scenario's file.

use crate::ConfigError;
use crate::guest::{self, Guest};
use crate::machine::node_id;
use crate::tree::{Cur, Doc, Fields, Kind, Seg};
use homenode_core::knobs::Errno;
use homenode_core::ksm::files::{FOLDER, File};
use homenode_core::scenario::{
    Action, AdmissionChoice, Again, Content, FileOp, Map, Margin, Model, Order, Pattern, Policy,
    Process, Rights, Scenario, SlowStart, Step, Swap, TouchOrder, UnmergeTarget, Until, names_in,
};
use homenode_core::topology::{MAX_CPUS, MAX_NODES, Machine};
use homenode_core::units::{CpuId, NodeId, Pages, Picos};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// A scenario with the file that it was read from, for errors that need its machine.
#[derive(Clone, Debug)]
pub struct ScenarioFile {
    /// What the file says, guests written out as processes behind the other ones.
    pub scenario: Scenario,
    doc: Doc,
    guests: Vec<Guest>,
}

impl ScenarioFile {
    /// [`check`] with the place in the file.
    ///
    /// # Errors
    /// The first CPU or node of the scenario that the machine hasn't.
    pub fn check(&self, machine: &Machine) -> Result<(), ConfigError> {
        check(&self.scenario, machine).map_err(|e| self.doc.error_at(self.place(&e.path), e.what))
    }

    /// Where in the file the thing at a path of the scenario stands.
    fn place<'a>(&'a self, path: &'a [Seg]) -> &'a [Seg] {
        let written = self.scenario.processes.len() - self.guests.len();
        let [Seg::Key("process"), Seg::At(p), Seg::Key(key), ..] = path else { return path };
        match (p.checked_sub(written).and_then(|g| self.guests.get(g)), *key) {
            (Some(guest), "cpus") => &guest.cpus,
            (Some(guest), _) => &guest.policy,
            (None, _) => path,
        }
    }

    /// The machine's file: relative to the scenario's own, unless absolute.
    pub fn machine_path(&self) -> PathBuf {
        let folder = Path::new(&self.doc.file).parent().unwrap_or(Path::new(""));
        folder.join(&self.scenario.machine)
    }
}

/// Reads a scenario's file.
///
/// # Errors
/// The first thing that is wrong with it, with file, line and key.
pub fn read_scenario(path: &Path) -> Result<ScenarioFile, ConfigError> {
    from_doc(Doc::read(path)?)
}

/// Reads a scenario from a text; `name` is the file's name in errors.
///
/// # Errors
/// As [`read_scenario`].
pub fn parse_scenario(name: &str, text: &str) -> Result<ScenarioFile, ConfigError> {
    from_doc(Doc::parse(name, text)?)
}

/// Reads a scenario and the machine that it names, and checks that they fit.
///
/// # Errors
/// The first thing that is wrong with either.
pub fn read_scenario_and_machine(path: &Path) -> Result<(Scenario, Machine), ConfigError> {
    let file = read_scenario(path)?;
    let machine = crate::read_machine(&file.machine_path())?;
    file.check(&machine)?;
    Ok((file.scenario, machine))
}

fn from_doc(doc: Doc) -> Result<ScenarioFile, ConfigError> {
    let t = doc.root().table(&[
        "name", "about", "machine", "duration", "seed", "knobs", "ksm", "model", "process",
        "guest", "at",
    ])?;
    let duration = t.opt("duration").map(|d| positive(&d)).transpose()?;
    let mut processes: Vec<Process> = match t.opt("process") {
        None if t.opt("guest").is_some() => Vec::new(),
        _ => t.get("process")?.list()?.iter().map(process).collect::<Result<_, _>>()?,
    };
    let mut guests: Vec<Guest> = Vec::new();
    for (at, c) in t.opt("guest").map_or(Ok(vec![]), |g| g.list())?.iter().enumerate() {
        for guest in guest::guests(c, at, duration)? {
            let name = &guest.process.name;
            if processes.iter().any(|p| p.name == *name) {
                return Err(c.any_table()?.get("name")?.error(format!(
                    "a process or guest is named \"{name}\" already; names of guests are unique"
                )));
            }
            processes.push(guest.process.clone());
            guests.push(guest);
        }
    }
    if processes.is_empty() {
        return Err(t.get("process")?.error("a scenario has at least one process or guest"));
    }
    let actions = match t.opt("at") {
        None => Vec::new(),
        Some(at) => at.list()?.iter().map(|a| action(a, &processes)).collect::<Result<_, _>>()?,
    };
    let scenario = Scenario {
        name: t.get("name")?.text()?.to_owned(),
        about: t.get("about")?.text()?.to_owned(),
        machine: t.get("machine")?.text()?.to_owned(),
        knobs: t.opt("knobs").map_or(Ok(vec![]), |k| knobs(&k))?,
        ksm: t.opt("ksm").map_or(Ok(vec![]), |k| ksm(&k))?,
        model: t.opt("model").map_or(Ok(Model::default()), |m| model(&m))?,
        duration,
        seed: t.opt("seed").map_or(Ok(1), |s| s.int(0, i64::MAX as u64))?,
        processes,
        actions,
    };
    Ok(ScenarioFile { scenario, doc, guests })
}

pub(crate) fn positive(c: &Cur<'_>) -> Result<Picos, ConfigError> {
    match c.time()? {
        Picos(0) => Err(c.error("0 is no span of time; write one such as \"1s\"")),
        t => Ok(t),
    }
}

fn knobs(c: &Cur<'_>) -> Result<Vec<(String, String)>, ConfigError> {
    let t = c.any_table()?;
    t.entries.iter().map(|e| Ok((e.key.clone(), value(&t.cur(e))?))).collect()
}

/// What is written to the files of `/sys/kernel/mm/ksm` before the run. Which of them a
/// kernel has, and what it takes, is known once a kernel is chosen.
///
/// Source: specs/ksm.md#files.
pub(crate) fn ksm(c: &Cur<'_>) -> Result<Vec<(String, String)>, ConfigError> {
    let t = c.any_table()?;
    let mut all = Vec::new();
    for e in t.entries {
        let at = t.cur(e);
        let Some(file) = File::ALL.iter().find(|f| f.name() == e.key) else {
            let names: Vec<&str> =
                File::ALL.iter().filter(|f| !f.is_counter()).map(|f| f.name()).collect();
            return Err(at.key_error(
                e,
                format!("{FOLDER} has no such file{}", crate::tree::suggestion(&e.key, &names)),
            ));
        };
        if file.is_counter() {
            return Err(at.key_error(
                e,
                "the kernel counts there; nothing can be written to it (read it with [[at]])",
            ));
        }
        all.push((e.key.clone(), value(&at)?));
    }
    Ok(all)
}

/// What is written to a knob.
fn value(c: &Cur<'_>) -> Result<String, ConfigError> {
    match &c.val.kind {
        Kind::Text(s) | Kind::Number(s) => Ok(s.clone()),
        Kind::Bool(b) => Ok(b.to_string()),
        _ => Err(c.error("a knob's value is a number, a text or true or false")),
    }
}

/// Source: specs/files.md#actions.
pub(crate) fn action(c: &Cur<'_>, processes: &[Process]) -> Result<Action, ConfigError> {
    let t = c.table(&["time", "read", "write", "value", "as", "expect"])?;
    let path = |c: &Cur<'_>| file_path(c, processes);
    let what = match (t.opt("read"), t.opt("write")) {
        (Some(read), None) => {
            if let Some(value) = t.opt("value") {
                return Err(value.error("a read has no value; \"write\" has one"));
            }
            FileOp::Read { path: path(&read)? }
        }
        (None, Some(write)) => {
            FileOp::Write { path: path(&write)?, text: value(&t.get("value")?)? }
        }
        (Some(_), Some(write)) => {
            return Err(write.error("one entry is a \"read\" or a \"write\", not both"));
        }
        (None, None) => {
            return Err(
                t.error("an entry says what happens then: \"read\" or \"write\" is missing")
            );
        }
    };
    let who = t.opt("as").map_or(Ok(Rights::Root), |c| {
        c.word(&[
            ("root", Rights::Root),
            ("root-without-caps", Rights::RootWithoutCaps),
            ("nobody", Rights::Nobody),
        ])
    })?;
    let errors = Errno::ALL.map(|e| (e.name(), e));
    let expect = t.opt("expect").map(|c| c.word(&errors)).transpose()?;
    Ok(Action { at: t.get("time")?.time()?, who, what, expect })
}

/// A path of the simulated kernel, in which `{name}` stands for a process.
fn file_path(c: &Cur<'_>, processes: &[Process]) -> Result<String, ConfigError> {
    let path = c.text()?;
    if !path.starts_with('/') {
        return Err(c.error(format!(
            "\"{path}\" is no path of the kernel's; write one such as \"/proc/vmstat\""
        )));
    }
    for name in names_in(path) {
        match processes.iter().filter(|p| p.name == name).count() {
            1 => {}
            0 => {
                let names: Vec<&str> = processes.iter().map(|p| p.name.as_str()).collect();
                return Err(c.error(format!(
                    "no process is named \"{name}\"{}",
                    crate::tree::suggestion(name, &names)
                )));
            }
            n => {
                return Err(c.error(format!("{n} processes are named \"{name}\"; which is meant?")));
            }
        }
    }
    Ok(path.to_owned())
}

fn model(c: &Cur<'_>) -> Result<Model, ConfigError> {
    let t = c.table(&[
        "admission",
        "margin",
        "slow_start",
        "hot_page_selection",
        "swap",
        "order",
        "unmerge_target",
    ])?;
    let mut m = Model::default();
    if let Some(c) = t.opt("admission") {
        m.admission = c.word(&[("a", AdmissionChoice::A), ("b", AdmissionChoice::B)])?;
    }
    if let Some(c) = t.opt("margin") {
        m.margin = c.word(&[
            ("seed-quarter", Margin::SeedQuarter),
            ("posted-quarter", Margin::PostedQuarter),
            ("kernel", Margin::Kernel),
        ])?;
    }
    if let Some(c) = t.opt("unmerge_target") {
        m.unmerge_target =
            c.word(&[("caller", UnmergeTarget::Caller), ("home", UnmergeTarget::Home)])?;
    }
    if let Some(c) = t.opt("slow_start") {
        m.slow_start = c.word(&[("seed", SlowStart::Seed), ("today", SlowStart::Today)])?;
    }
    if let Some(c) = t.opt("hot_page_selection") {
        m.hot_page_selection = c.bool()?;
    }
    if let Some(c) = t.opt("swap") {
        m.swap = match &c.val.kind {
            Kind::Text(s) if s == "none" => Swap::None,
            _ => Swap::Device(Pages::holding(c.size()?)),
        };
    }
    if let Some(c) = t.opt("order") {
        m.order = match c.text()? {
            "strict" => Order::Strict,
            _ => match c.time()? {
                q if q > Picos::from_us(10) || q == Picos::ZERO => {
                    return Err(c.error(format!(
                        "{} is out of range; allowed are \"strict\" or a quantum above 0s, \
                         up to \"10us\"",
                        crate::write_time(q)
                    )));
                }
                q => Order::Quantum(q),
            },
        };
    }
    Ok(m)
}

pub(crate) fn process(c: &Cur<'_>) -> Result<Process, ConfigError> {
    let t = c.table(&["name", "cpus", "start", "policy", "memory_merge", "map", "step"])?;
    let cpus = t.get("cpus")?;
    let ids = cpus.numbers(MAX_CPUS - 1)?;
    let maps: Vec<Map> = t.get("map")?.list()?.iter().map(map).collect::<Result<_, _>>()?;
    for (i, c) in t.get("map")?.list()?.iter().enumerate() {
        if maps[..i].iter().any(|m| m.name == maps[i].name) {
            return Err(
                c.error(format!("the map \"{}\" stands twice; names are unique", maps[i].name))
            );
        }
    }
    let names: Vec<&str> = maps.iter().map(|m| m.name.as_str()).collect();
    let mut steps = Vec::new();
    for c in t.get("step")?.list()? {
        let next = step(&c, &names)?;
        if let Step::Repeat { steps: n, .. } = next {
            let back = repeated(&c, n, steps.len())?;
            if steps[back..].contains(&Step::Fork) {
                return Err(c.error("a fork can't be repeated; put it before or after the loop"));
            }
        }
        steps.push(next);
    }
    Ok(Process {
        name: t.get("name")?.text()?.to_owned(),
        cpus: ids.into_iter().map(CpuId).collect(),
        start: t.opt("start").map_or(Ok(Picos::ZERO), |s| s.time())?,
        policy: policy_of(&t)?,
        memory_merge: t.opt("memory_merge").map_or(Ok(false), |c| c.bool())?,
        maps,
        steps,
    })
}

/// The place of the first of `n` steps before a repeating one at place `at`.
fn repeated(c: &Cur<'_>, n: u32, at: usize) -> Result<usize, ConfigError> {
    let what = match at {
        0 => "there is no step before it to repeat".to_owned(),
        _ => format!("{n} is out of range; 1 to {at} steps stand before this one"),
    };
    let steps = c.any_table()?.get("steps")?;
    at.checked_sub(n as usize).ok_or_else(|| steps.error(what))
}

fn map(c: &Cur<'_>) -> Result<Map, ConfigError> {
    let t = c.table(&[
        "name",
        "size",
        "file",
        "shared",
        "read_only",
        "huge",
        "content",
        "mergeable",
        "policy",
    ])?;
    let flag = |key| t.opt(key).map_or(Ok(false), |c| c.bool());
    Ok(Map {
        name: t.get("name")?.text()?.to_owned(),
        size: t.get("size")?.size()?,
        file: flag("file")?,
        shared: flag("shared")?,
        read_only: flag("read_only")?,
        huge: flag("huge")?,
        content: t.opt("content").map_or(Ok(Content::Own), |c| content(&c))?,
        mergeable: flag("mergeable")?,
        policy: policy_of(&t)?,
    })
}

/// `"own"`, `"zero"`, or a table that names an image.
fn content(c: &Cur<'_>) -> Result<Content, ConfigError> {
    if let Kind::Text(_) = c.val.kind {
        let zero = c.word(&[("own", false), ("zero", true)])?;
        return Ok(if zero { Content::Zero } else { Content::Own });
    }
    let t = c.table(&["image", "distinct"])?;
    Ok(Content::Image { name: t.get("image")?.text()?.to_owned(), distinct: distinct(&t)? })
}

/// How many different pages an image has.
pub(crate) fn distinct(t: &Fields<'_>) -> Result<Option<Pages>, ConfigError> {
    t.opt("distinct").map(|d| d.int(1, u32::MAX.into()).map(Pages)).transpose()
}

pub(crate) fn policy_of(t: &Fields<'_>) -> Result<Policy, ConfigError> {
    t.opt("policy").map_or(Ok(Policy::Default), |c| policy(&c))
}

fn policy(c: &Cur<'_>) -> Result<Policy, ConfigError> {
    if let Kind::Text(_) = c.val.kind {
        return c.word(&[("default", 0), ("local", 1)]).map(|w| match w {
            0 => Policy::Default,
            _ => Policy::Local,
        });
    }
    let mode = c.any_table()?.get("mode")?.word(&[
        ("bind", 0),
        ("preferred", 1),
        ("interleave", 2),
        ("weighted-interleave", 3),
    ])?;
    Ok(match mode {
        0 => {
            let t = c.table(&["mode", "nodes", "balancing"])?;
            let balancing = t.opt("balancing").map_or(Ok(false), |b| b.bool())?;
            Policy::Bind { nodes: nodes(&t.get("nodes")?)?, balancing }
        }
        1 => Policy::Preferred(node_id(&c.table(&["mode", "node"])?.get("node")?)?),
        2 => Policy::Interleave(nodes(&c.table(&["mode", "nodes"])?.get("nodes")?)?),
        _ => {
            let weights = c.table(&["mode", "weights"])?.get("weights")?;
            let mut out: Vec<(NodeId, u8)> = Vec::new();
            for pair in weights.list()? {
                let [node, weight] = &pair.list()?[..] else {
                    return Err(pair.error("a weight is a pair: [node, weight from 1 to 255]"));
                };
                let node = node_id(node)?;
                if out.iter().any(|(n, _)| *n == node) {
                    return Err(pair.error(format!("node {node} has two weights; it has one")));
                }
                out.push((node, weight.int(1, 255)? as u8));
            }
            if out.is_empty() {
                return Err(weights.error("empty; a policy names at least one node"));
            }
            Policy::WeightedInterleave(out)
        }
    })
}

fn nodes(c: &Cur<'_>) -> Result<Vec<NodeId>, ConfigError> {
    let list = c.numbers(u32::from(MAX_NODES) - 1)?;
    let unique: BTreeSet<u32> = list.iter().copied().collect();
    if unique.len() != list.len() {
        return Err(c.error("a node stands twice; a policy names each once"));
    }
    Ok(list.into_iter().map(|n| NodeId(n as u16)).collect())
}

fn step(c: &Cur<'_>, maps: &[&str]) -> Result<Step, ConfigError> {
    let what = c.any_table()?.get("do")?.word(&[
        ("touch", 0),
        ("access", 1),
        ("sleep", 2),
        ("fork", 3),
        ("wait", 4),
        ("unmap", 5),
        ("mbind", 6),
        ("move_pages", 7),
        ("initialize", 8),
        ("barrier", 9),
        ("map", 10),
        ("repeat", 11),
        ("fill", 12),
        ("madvise", 13),
    ])?;
    let map = |t: &Fields<'_>| {
        let c = t.get("map")?;
        let name = c.text()?;
        if maps.contains(&name) {
            return Ok(name.to_owned());
        }
        Err(c.error(format!(
            "the process has no map \"{name}\"{}",
            crate::tree::suggestion(name, maps)
        )))
    };
    Ok(match what {
        0 => Step::Touch { map: map(&c.table(&["do", "map"])?)? },
        1 => access(c, map)?,
        2 => Step::Sleep(positive(&c.table(&["do", "time"])?.get("time")?)?),
        3 => {
            c.table(&["do"])?;
            Step::Fork
        }
        4 => {
            c.table(&["do"])?;
            Step::Wait
        }
        8 => {
            let t = c.table(&["do", "map", "order"])?;
            let order = t.opt("order").map_or(Ok(TouchOrder::Linear), |c| {
                c.word(&[
                    ("linear", TouchOrder::Linear),
                    ("middle-first", TouchOrder::MiddleFirst),
                    ("scattered", TouchOrder::Scattered),
                ])
            })?;
            Step::Initialize { map: map(&t)?, order }
        }
        9 => {
            c.table(&["do"])?;
            Step::Barrier
        }
        10 => Step::Map { map: map(&c.table(&["do", "map"])?)? },
        11 => {
            let t = c.table(&["do", "steps", "times", "until"])?;
            let until = match (t.opt("times"), t.opt("until")) {
                (Some(n), None) => Again::Times(n.int(1, i64::MAX as u64)?),
                (None, Some(time)) => Again::Until(positive(&time)?),
                (Some(_), Some(c)) => {
                    return Err(c.error(
                        "steps are repeated so many \"times\" or \"until\" a time, not both",
                    ));
                }
                (None, None) => {
                    return Err(t.error(
                        "a repeating step says how long: \"times\" or \"until\" (since the \
                         process's start) is missing",
                    ));
                }
            };
            Step::Repeat { steps: t.get("steps")?.int(1, u32::MAX.into())? as u32, until }
        }
        12 => {
            let t = c.table(&["do", "map", "content"])?;
            Step::Fill { map: map(&t)?, content: content(&t.get("content")?)? }
        }
        13 => {
            let t = c.table(&["do", "map", "advice"])?;
            let advice = t.get("advice")?.word(&[("mergeable", true), ("unmergeable", false)])?;
            Step::Madvise { map: map(&t)?, mergeable: advice }
        }
        5 => Step::Unmap { map: map(&c.table(&["do", "map"])?)? },
        6 => {
            let t = c.table(&["do", "map", "policy"])?;
            Step::Mbind { map: map(&t)?, policy: policy(&t.get("policy")?)? }
        }
        _ => {
            let t = c.table(&["do", "map", "to"])?;
            Step::MovePages { map: map(&t)?, to: node_id(&t.get("to")?)? }
        }
    })
}

fn access<'a>(
    c: &Cur<'a>,
    map: impl Fn(&Fields<'a>) -> Result<String, ConfigError>,
) -> Result<Step, ConfigError> {
    const ALL: &[&str] = &[
        "do",
        "map",
        "pattern",
        "write",
        "compute",
        "accesses",
        "time",
        "sd",
        "theta",
        "size",
        "share",
        "every",
        "deviation",
        "alpha",
        "stride",
    ];
    let t = c.table(ALL)?;
    let kind = t.get("pattern")?.word(&[
        ("uniform", 0),
        ("gauss", 1),
        ("zipf", 2),
        ("sequential", 3),
        ("hot-spot", 4),
        ("normal", 5),
        ("normal_ih", 6),
        ("pareto", 7),
        ("linear", 8),
    ])?;
    // pmbench's shape is 1 where it isn't given, in the unit of the pattern.
    let shape = |key, unit: u64, high: u64| t.opt(key).map_or(Ok(unit), |c| c.int(1, high));
    let (pattern, own): (Pattern, &[&str]) = match kind {
        0 => (Pattern::Uniform, &[]),
        1 => (Pattern::Gauss { sd: t.get("sd")?.thousandths(1, 1000)? }, &["sd"]),
        2 => (Pattern::Zipf { theta: t.get("theta")?.thousandths(1, 2000)? }, &["theta"]),
        3 => (Pattern::Sequential, &[]),
        5 => {
            let deviation = shape("deviation", 1, 1 << 31)? as u32;
            (Pattern::Normal { deviation }, &["deviation"])
        }
        6 => (Pattern::NormalIh, &[]),
        7 => (Pattern::Pareto { alpha: shape("alpha", 1000, 10_000)? as u32 }, &["alpha"]),
        8 => (Pattern::Linear { stride: shape("stride", 1, 1 << 31)? as u32 }, &["stride"]),
        _ => (
            Pattern::HotSpot {
                size: t.get("size")?.thousandths(1, 1000)?,
                share: t.get("share")?.thousandths(0, 1000)?,
                every: positive(&t.get("every")?)?,
            },
            &["size", "share", "every"],
        ),
    };
    for key in ["sd", "theta", "size", "share", "every", "deviation", "alpha", "stride"] {
        if let Some(c) = t.opt(key).filter(|_| !own.contains(&key)) {
            return Err(c.error("this pattern has no such key"));
        }
    }
    let until = match (t.opt("accesses"), t.opt("time")) {
        (Some(n), None) => Until::Accesses(n.int(1, i64::MAX as u64)?),
        (None, Some(time)) => Until::Time(positive(&time)?),
        (Some(_), Some(c)) => {
            return Err(
                c.error("an access step ends after \"accesses\" or after \"time\", not both")
            );
        }
        (None, None) => {
            return Err(
                t.error("an access step says when it ends: \"accesses\" or \"time\" is missing")
            );
        }
    };
    Ok(Step::Access {
        map: map(&t)?,
        pattern,
        write: t.opt("write").map_or(Ok(0), |w| w.thousandths(0, 1000))?,
        compute: t.opt("compute").map_or(Ok(Picos::ZERO), |c| c.time())?,
        until,
    })
}

/// What of a scenario a machine hasn't got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    path: Vec<Seg>,
    what: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Misfit {}

/// Whether a scenario's CPUs, nodes and maps are there.
///
/// A policy names nodes with memory only.
///
/// # Errors
/// The first that is not. [`ScenarioFile::check`] adds the place in the file.
pub fn check(scenario: &Scenario, machine: &Machine) -> Result<(), Misfit> {
    use Seg::{At, Key};
    let cpus: BTreeSet<CpuId> = machine.cpus.iter().map(|c| c.id).collect();
    let with_memory: BTreeSet<NodeId> =
        machine.nodes.iter().filter(|n| !n.zones.is_empty()).map(|n| n.id).collect();
    let sets = |kind: &str, all: &[u32]| {
        format!("; the machine \"{}\" has {kind} {}", machine.name, crate::write_list(all))
    };
    let cpu_list: Vec<u32> = cpus.iter().map(|c| c.0).collect();
    let node_list: Vec<u32> = with_memory.iter().map(|n| n.0.into()).collect();
    let nodes_fit = |policy: &Policy, path: &[Seg]| {
        let named: Vec<NodeId> = match policy {
            Policy::Default | Policy::Local => return Ok(()),
            Policy::Bind { nodes, .. } | Policy::Interleave(nodes) => nodes.clone(),
            Policy::Preferred(n) => vec![*n],
            Policy::WeightedInterleave(w) => w.iter().map(|(n, _)| *n).collect(),
        };
        match named.iter().find(|n| !with_memory.contains(n)) {
            None => Ok(()),
            Some(n) => Err(Misfit {
                path: path.to_vec(),
                what: format!(
                    "node {n} is not in the machine or has no memory{}",
                    sets("memory on nodes", &node_list)
                ),
            }),
        }
    };
    for (p, process) in scenario.processes.iter().enumerate() {
        let path = |rest: &[Seg]| [&[Key("process"), At(p)], rest].concat();
        if let Some(c) = process.cpus.iter().find(|c| !cpus.contains(c)) {
            return Err(Misfit {
                path: path(&[Key("cpus")]),
                what: format!("CPU {c} is not in the machine{}", sets("CPUs", &cpu_list)),
            });
        }
        nodes_fit(&process.policy, &path(&[Key("policy")]))?;
        for (m, map) in process.maps.iter().enumerate() {
            nodes_fit(&map.policy, &path(&[Key("map"), At(m), Key("policy")]))?;
        }
        for (s, step) in process.steps.iter().enumerate() {
            let named = match step {
                Step::Touch { map }
                | Step::Initialize { map, .. }
                | Step::Map { map }
                | Step::Access { map, .. }
                | Step::Fill { map, .. }
                | Step::Madvise { map, .. }
                | Step::Unmap { map }
                | Step::Mbind { map, .. }
                | Step::MovePages { map, .. } => Some(map),
                Step::Sleep(_) | Step::Fork | Step::Wait | Step::Barrier | Step::Repeat { .. } => {
                    None
                }
            };
            if let Some(map) = named.filter(|n| process.maps.iter().all(|m| m.name != **n)) {
                return Err(Misfit {
                    path: path(&[Key("step"), At(s), Key("map")]),
                    what: format!("the process has no map \"{map}\""),
                });
            }
            match step {
                Step::Mbind { policy, .. } => {
                    nodes_fit(policy, &path(&[Key("step"), At(s), Key("policy")]))?;
                }
                Step::MovePages { to, .. } => {
                    nodes_fit(&Policy::Preferred(*to), &path(&[Key("step"), At(s), Key("to")]))?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}
