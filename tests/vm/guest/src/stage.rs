//! A stage for the conformance bodies: this kernel, with programs that are processes.
//!
//! ```text
//! body ──▶ LiveMachine ──▶ kernel ◀── loads (processes of this program)
//!   └────▶ Stage: starts, ends, binds them; the truth by calls of its own
//! ```
//!
//! What `placed`, `ran`, `moved` and `zones` say is read here, not through
//! `homenode-live`: it is what the machine's word is held against.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use homenode_core::costs::Constant;
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::seen::{Span, Who, ZoneSeen};
use homenode_core::tiering::watermarks::ZoneMarks;
use homenode_core::topology::{Hardware, Link, ZoneKind};
use homenode_core::units::{NodeId, Pages, Picos};
use homenode_live::machine::{BootClock, Heat, LiveMachine, Pace, Parts, People, Person};
use homenode_live::memory::Zoneinfo;
use homenode_live::mover::MovePages;
use homenode_live::people::{Proc, Targets};
use homenode_live::places::ThisKernel;
use homenode_live::sysfs::read_topology;
use homenode_machine::conformance::{Load, Stage};
use homenode_machine::endtoend::{self, ZoneNow};

use crate::asked::Asked;
use crate::memory;
use crate::process::{pin, started};
use crate::skip;
use crate::told::{self, Spans};

/// Knobs while a stage stands, put back afterwards: no balancing by the kernel, which would
/// move pages on its own account; and short lists of CPUs, whose pages are free but don't
/// count as such (since Linux 6.7 they grow to an eighth of a zone).
const KNOBS: [(&str, &str); 2] =
    [("kernel/numa_balancing", "0"), ("vm/percpu_pagelist_high_fraction", "2000")];

/// A program that runs.
struct Running {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

pub(crate) struct LiveStage {
    machine: LiveMachine,
    fast: usize,
    slow: usize,
    /// CPUs on which programs run.
    cpus: Vec<u32>,
    running: BTreeMap<Who, Running>,
    /// Where they have their memory.
    spans: Spans,
    /// Knobs as they were.
    before: Vec<(String, String)>,
}

/// Programs of the stage, but not the stage itself.
struct Programs(Proc);

impl People for Programs {
    fn look(&mut self) -> io::Result<Vec<Person>> {
        let mut found = self.0.look()?;
        found.retain(|p| p.who.pid != std::process::id());
        Ok(found)
    }
    fn lives(&self, who: Who) -> bool {
        self.0.lives(who)
    }
}

/// The two nodes between which pages go. If one is without CPUs it is the slow one, and the
/// fast one the last that has some: node 0 has small zones beside its large one.
pub(crate) fn nodes(asked: &Asked) -> Result<(usize, usize)> {
    let slow = asked.nodes.iter().position(|node| node.cpus.is_empty());
    let fast = asked.nodes.iter().rposition(|node| !node.cpus.is_empty());
    match (fast, slow) {
        (Some(fast), Some(slow)) => Ok((fast, slow)),
        (Some(1..), None) => Ok((0, 1)),
        _ => Err(skip("one node: nowhere to move to")),
    }
}

/// Sets [`KNOBS`] that this kernel has; what they held before.
fn set_knobs() -> Result<Vec<(String, String)>> {
    let mut before = Vec::new();
    for (name, value) in KNOBS {
        let path = format!("/proc/sys/{name}");
        if let Ok(text) = fs::read_to_string(&path) {
            fs::write(&path, value).with_context(|| path.clone())?;
            before.push((path, text));
        }
    }
    Ok(before)
}

impl LiveStage {
    /// * `heat` – makes what the engine is to see of accesses.
    pub(crate) fn new(
        asked: &Asked,
        heat: impl FnOnce(&Spans) -> Result<Box<dyn Heat>>,
    ) -> Result<Self> {
        let (fast, slow) = nodes(asked)?;
        let before = set_knobs()?;
        let machine = machine(asked)?;
        let root = Path::new("/");
        let spans = Spans::default();
        let own = Targets::Tree(std::process::id());
        let parts = Parts {
            cpus: None,
            threads: None,
            people: Box::new(Programs(Proc::new(root, &own, &machine.cpus)?)),
            topology: machine,
            version: KernelVersion::default(),
            root: PathBuf::from("/"),
            clock: Box::new(BootClock::start()),
            memory: Box::new(Zoneinfo::new(root)),
            places: Box::new(ThisKernel::new("/")),
            heat: heat(&spans)?,
            loads: None,
            mover: Some(Box::new(MovePages::new("/", Duration::from_secs(1)))),
            census: false,
            pace: Pace::UNBOUND,
        };
        Ok(Self {
            machine: LiveMachine::new(parts),
            fast,
            slow,
            cpus: asked.nodes[fast].cpus.clone(),
            running: BTreeMap::new(),
            spans,
            before,
        })
    }

    fn try_start(&mut self, load: Load) -> Result<(Who, Span)> {
        let mut child = Command::new("/proc/self/exe")
            .arg("--load")
            .args(
                [load.pages, u64::from(load.on.0), load.busy.as_ns() / 1_000_000]
                    .map(|n| n.to_string()),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("a load can't be started")?;
        let pid = child.id();
        pin(pid, &self.cpus).context("a load's CPUs")?;
        let orders = child.stdin.take().context("no pipe")?;
        let mut answers = BufReader::new(child.stdout.take().context("no pipe")?);
        let mut line = String::new();
        answers.read_line(&mut line)?;
        let first: u64 = line.trim().parse().with_context(|| format!("a load told {line:?}"))?;
        let who = Who { pid, start: started(pid)? };
        self.running.insert(who, Running { child, orders, answers });
        let span = Span { start: first, end: first + load.pages };
        self.spans.borrow_mut().insert(who, span);
        Ok((who, span))
    }

    fn try_bind(&mut self, who: Who, span: Span, to: NodeId) -> Result<()> {
        let running = self.running.get_mut(&who).context("no such program")?;
        writeln!(running.orders, "bind {} {} {to}", span.start, span.pages().0)?;
        let mut line = String::new();
        running.answers.read_line(&mut line)?;
        if line.trim() == "done" { Ok(()) } else { bail!("it answered {line:?}") }
    }

    fn try_replace(&mut self, who: Who, load: Load) -> Result<(Who, Span)> {
        self.end(who);
        // Numbers rise: another process may take it before us. A start is told in ticks
        // of 10 ms.
        for _ in 0..50 {
            sleep(Duration::from_millis(30));
            fs::write("/proc/sys/kernel/ns_last_pid", (who.pid - 1).to_string())
                .context("ns_last_pid")?;
            let (new, span) = self.try_start(load)?;
            if new.pid == who.pid {
                return Ok((new, span));
            }
            self.end(new);
        }
        bail!("the number {} did not come again", who.pid)
    }
}

impl Drop for LiveStage {
    fn drop(&mut self) {
        let all: Vec<Who> = self.running.keys().copied().collect();
        all.into_iter().for_each(|who| self.end(who));
        for (path, value) in &self.before {
            let _ = fs::write(path, value.trim());
        }
    }
}

/// A test of its own ends with what is wrong, so what a body can't do ends it.
fn sure<T>(got: Result<T>) -> T {
    got.unwrap_or_else(|error| panic!("the stage: {error:#}"))
}

impl Stage for LiveStage {
    type Machine = LiveMachine;
    fn machine(&mut self) -> &mut LiveMachine {
        &mut self.machine
    }
    fn nodes(&self) -> (NodeId, NodeId) {
        (NodeId(self.fast as u16), NodeId(self.slow as u16))
    }
    fn start(&mut self, load: Load) -> (Who, Span) {
        sure(self.try_start(load))
    }
    fn end(&mut self, who: Who) {
        if let Some(mut running) = self.running.remove(&who) {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }
    fn replace(&mut self, who: Who, load: Load) -> (Who, Span) {
        sure(self.try_replace(who, load))
    }
    fn bind(&mut self, who: Who, span: Span, to: NodeId) {
        sure(self.try_bind(who, span, to));
    }
    fn placed(&mut self, who: Who, span: Span) -> BTreeMap<NodeId, Pages> {
        let mut found = BTreeMap::new();
        // One that has ended has no pages.
        for status in memory::nodes_of(who.pid, span.start..span.end).unwrap_or_default() {
            if let Ok(node) = u16::try_from(status) {
                *found.entry(NodeId(node)).or_default() += Pages(1);
            }
        }
        found
    }
    fn ran(&mut self, who: Who) -> Option<Picos> {
        told::ran(who)
    }
    fn moved(&mut self) -> Pages {
        Pages(sure(vmstat("pgmigrate_success")))
    }
    /// Emulated, and beside other guests.
    fn patience(&self) -> u64 {
        4
    }
    /// Page tables of what is started, the lists of CPUs, whatever else runs.
    fn noise(&self) -> Pages {
        Pages(200)
    }
    fn spare(&self) -> Pages {
        Pages(1000)
    }
    fn zones(&mut self, node: NodeId) -> Vec<ZoneSeen> {
        let text = sure(fs::read_to_string("/proc/zoneinfo").context("/proc/zoneinfo"));
        zones(&text, node)
    }
}

/// The machine with latencies that follow from its distances: nothing here measures any.
fn machine(asked: &Asked) -> Result<Hardware> {
    let seen = read_topology(Path::new("/"))?;
    let mut links = Vec::new();
    for (i, from) in seen.nodes.iter().enumerate() {
        if asked.nodes[i].cpus.is_empty() {
            continue;
        }
        for (j, to) in seen.nodes.iter().enumerate() {
            let told = |value| Constant::assumed(value, "a stage's, by distance");
            let latency = Picos::from_ns(u64::from(seen.distances[i][j]) * 10).0;
            links.push(Link {
                from: from.id,
                to: to.id,
                read_latency: told(latency),
                write_latency: told(latency),
                read_bandwidth: told(10_000),
                write_bandwidth: told(10_000),
            });
        }
    }
    Ok(Hardware {
        name: "guest".to_owned(),
        about: String::new(),
        nodes: seen.nodes,
        cpus: seen.cpus,
        caches: Vec::new(),
        distances: seen.distances,
        links,
        idle_states: Vec::new(),
        curves: Vec::new(),
        loaded: Vec::new(),
        defaults: None,
        costs: Default::default(),
    })
}

/// A counter of /proc/vmstat.
pub(crate) fn vmstat(name: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/vmstat").context("/proc/vmstat")?;
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).with_context(|| format!("no {name}"))
}

/// The zones of a node that have memory, in a text as /proc/zoneinfo has it.
fn zones(text: &str, node: NodeId) -> Vec<ZoneSeen> {
    let seen = |z: ZoneNow| {
        let marks = ZoneMarks {
            kind: ZoneKind::of_kernel(&z.name)?,
            managed: Pages(z.managed),
            min: Pages(z.min),
            low: Pages(z.low),
            high: Pages(z.high),
            promo: Pages(z.promo),
            reserve: Pages(z.reserve),
        };
        Some(ZoneSeen { free: Pages(z.free), marks })
    };
    let all = endtoend::zones(text).into_iter();
    all.filter(|z| z.node == node).filter_map(seen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_read_with_their_marks() {
        let text = "Node 0, zone      DMA\n  per-node stats\n      nr_free 3\n  pages free     3840\n        \
                    boost    0\n        min      30\n        low      37\n        high     44\n        \
                    promo    51\n        managed  3840\n        protection: (0, 900, 900, 900)\n\
                    Node 1, zone   Normal\n  pages free     7\n        min      1\n        managed  9\n        \
                    protection: (0, 0)\nNode 1, zone  Movable\n  pages free     0\n        managed  0\n";
        let [dma] = zones(text, NodeId(0))[..] else { panic!("{text}") };
        assert_eq!(
            (dma.free, dma.marks.high, dma.marks.reserve),
            (Pages(3840), Pages(44), Pages(900))
        );
        let [normal] = zones(text, NodeId(1))[..] else { panic!("{text}") };
        assert_eq!((normal.free, normal.marks.kind), (Pages(7), ZoneKind::Normal));
        assert!(zones(text, NodeId(2)).is_empty());
    }
}
