//! Samples of memory accesses, by a PMU's events through `perf_event_open(2)`.
//!
//! ```text
//!  CPU 0: event ──every 10007th access──▶ ring ─┐
//!  CPU 1: event ────────────────────────▶ ring ─┼─take─▶ by time ──▶ only those of watched
//!   …                                           │                    processes ──▶ Seen::Sample
//!  half a ring full ──▶ wakes() ────────────────┘
//!  no room in a ring, throttled CPU ─────────────────────────────────────────────▶ Seen::Lost
//! ```
//!
//! One event per CPU for all of its processes: an event of a process would not follow the
//! threads that it has already, and those that follow later ones can't have a ring for all
//! CPUs. So it needs `CAP_PERFMON`, and what others do on the machine costs something here,
//! while anything is watched; without that the events are off.
//!
//! Worked example: ring of CPU 3, a sample of PID 812 at address 0x7f00_0000_2abc with period
//! 10007; CPU 3 is of node 1. That is `Sample { who: 812@…, vpn: 0x7f0000002, from: 1,
//! period: 10007 }`.
//!
//! Where the kernel tells how long a load took and from which frame memory answered it, nodes'
//! loads follow (`homenode_core::policy::answers`): their mean over what it takes unloaded by the
//! machine's file.
//!
//! ```text
//! 500 cycles, CPU of node 0, frame of node 1 ─▶ 200 ns at 2.5 GHz, of 275 ─▶ load of node 1
//! ```
//!
//! Left out: samples without an address or with one of the kernel's; those taken inside of
//! a guest, whose addresses are the guest's own; arm_spe's, which come in a form of its own.
//!
//! Source: specs/live.md#samples.

mod record;
mod rings;
#[cfg(test)]
mod tests;

use crate::machine::Heat;
use crate::people::stat::start_of;
use crate::place::Place;
use crate::places::frames::{Frames, Known};
use crate::probe::{Event, Pmu, meaning};
use crate::sysfs::{TopologyError, read_topology};
use homenode_core::policy::answers::Answers;
use homenode_core::policy::seen::{Seen, Source, Who};
use homenode_core::topology::Hardware;
use homenode_core::units::{NodeId, Picos};
use record::{Access, Answered, Told};
use rings::Rings;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

/// Bytes of a ring unless told otherwise: what every user may have for each CPU
/// (`kernel.perf_event_mlock_kb`, 516 with the page before the ring). 8,192 samples with latencies,
/// 13,107 without.
pub const RING_BYTES: usize = 512 << 10;

/// Why there are no samples.
#[derive(Debug, thiserror::Error)]
pub enum SamplesError {
    /// No event.
    #[error(
        "no event of this machine's PMUs samples addresses of memory accesses (`homenode doctor` \
         says what was tried); choose another source of heat"
    )]
    NoEvent,
    /// Its samples are in a form that is not read here.
    #[error(
        "{name} writes its samples in a form of its own, which homenode does not read; choose \
         another source of heat"
    )]
    OwnForm {
        /// The event.
        name: String,
    },
    /// Refused for want of privilege.
    #[error(
        "the kernel does not let us sample the processes of CPU {cpu} by {name}: run it as root or \
         with CAP_PERFMON, or set kernel.perf_event_paranoid to 0 or below"
    )]
    Refused {
        /// The event.
        name: String,
        /// The CPU.
        cpu: u32,
        /// What the system said.
        source: io::Error,
    },
    /// Another error.
    #[error("{name} does not open on CPU {cpu}: {}", meaning(source.raw_os_error().unwrap_or(0)))]
    Open {
        /// The event.
        name: String,
        /// The CPU.
        cpu: u32,
        /// What the system said.
        source: io::Error,
    },
    /// No memory for a ring.
    #[error(
        "no ring of {bytes} bytes for CPU {cpu}: see kernel.perf_event_mlock_kb and `ulimit -l`"
    )]
    Ring {
        /// Its size.
        bytes: usize,
        /// The CPU.
        cpu: u32,
        /// What the system said.
        source: io::Error,
    },
    /// The rings can't be waited for.
    #[error("the rings of samples can't be waited for")]
    Wait {
        /// What the system said.
        source: io::Error,
    },
    /// Nodes and CPUs can't be read.
    #[error("it can't be told of which node a CPU is: {0}")]
    Topology(#[from] TopologyError),
}

/// A kind of event: its name, and what is opened together, the leader first.
type Kind = (String, Vec<Event>);

/// Samples of memory accesses.
pub struct Samples {
    place: Place,
    /// Where the kernel lists the CPUs that are online, and what it said last.
    list: PathBuf,
    online: String,
    kinds: Vec<Kind>,
    rings: Rings,
    watched: BTreeMap<u32, Who>,
    /// How late nodes answer.
    late: Late,
    /// What broke for good.
    broken: Option<String>,
}

/// What is needed to take latencies for loads, and what they say.
#[derive(Default)]
struct Late {
    /// What an access takes unloaded, by the nodes of CPU and memory, in picoseconds.
    unloaded: BTreeMap<(NodeId, NodeId), u64>,
    /// Picoseconds of a cycle; `None`: no frequency is told.
    cycle: Option<u64>,
    /// Whose a frame is.
    frames: Known,
    answers: Answers,
}

impl Late {
    fn new(root: &Path, machine: &Hardware) -> Self {
        let links = machine.links.iter();
        let unloaded = links.map(|l| ((l.from, l.to), l.read_latency.value)).collect();
        Self { unloaded, cycle: cycle(root), ..Self::default() }
    }
    /// Loads of programs' CPUs that memory answered.
    fn take(&mut self, root: &Path, told: impl Iterator<Item = (NodeId, Answered)>) {
        let mut told = told.peekable();
        if told.peek().is_none() {
            return;
        }
        let mut known = std::mem::take(&mut self.frames);
        if let Some(frames) = known.now(root) {
            self.count(frames, told);
        }
        self.frames = known;
    }
    fn count(&mut self, frames: &Frames, told: impl Iterator<Item = (NodeId, Answered)>) {
        let Some(cycle) = self.cycle else { return };
        for (from, Answered { frame, cycles }) in told {
            let Some(on) = frames.node(frame) else { continue };
            let Some(&unloaded) = self.unloaded.get(&(from, on)) else { continue };
            self.answers.add(on, unloaded, cycles.saturating_mul(cycle));
        }
    }
}

/// Picoseconds of a cycle at the frequency that a CPU's maker promises, else at the one that it
/// shows now. What turbo adds is the same for all nodes.
///
/// Source: specs/live.md#latencies.
fn cycle(root: &Path) -> Option<u64> {
    let base = fs::read_to_string(root.join("sys/devices/system/cpu/cpu0/cpufreq/base_frequency"));
    let base = base.ok().and_then(|khz| khz.trim().parse::<u64>().ok());
    let khz = base.or_else(|| {
        let text = fs::read_to_string(root.join("proc/cpuinfo")).ok()?;
        let line = text.lines().find(|l| l.starts_with("cpu MHz"))?;
        let (mhz, part) = line.split_once(':')?.1.trim().split_once('.')?;
        let part = part.get(..3).and_then(|p| p.parse::<u64>().ok()).unwrap_or(0);
        Some(mhz.parse::<u64>().ok()?.checked_mul(1000)? + part)
    });
    khz.filter(|khz| (100_000..100_000_000).contains(khz)).map(|khz| 1_000_000_000 / khz)
}

impl Samples {
    /// Opens the events that the probe found, switched off, on all CPUs that are online. A
    /// CPU that has none of them (as where cores are of two kinds) is passed over.
    ///
    /// # Errors
    /// [`SamplesError`]: on no CPU there is one that can be used.
    ///
    /// * `machine` – what latencies are without load.
    pub fn open(pmu: &Pmu, machine: &Hardware) -> Result<Self, SamplesError> {
        let kinds = pmu.tried.iter().map(|t| (t.name.clone(), t.group.clone())).collect();
        let root = Path::new("/");
        let samples = Self::with(root, kinds, RING_BYTES)?;
        Ok(Self { late: Late::new(root, machine), ..samples })
    }

    /// The same with given events and rings of so many bytes.
    fn with(root: &Path, kinds: Vec<Kind>, bytes: usize) -> Result<Self, SamplesError> {
        let (other, kinds): (Vec<Kind>, Vec<Kind>) =
            kinds.into_iter().partition(|(_, group)| group.iter().any(|e| e.aux));
        if kinds.is_empty() {
            return Err(match other.into_iter().next() {
                Some((name, _)) => SamplesError::OwnForm { name },
                None => SamplesError::NoEvent,
            });
        }
        let rings = Rings::new(bytes).map_err(|source| SamplesError::Wait { source })?;
        let mut out = Self {
            place: Place::at(root),
            list: root.join("sys/devices/system/cpu/online"),
            online: String::new(),
            kinds,
            rings,
            watched: BTreeMap::new(),
            late: Late::default(),
            broken: None,
        };
        let failed = out.heed_cpus()?;
        match failed {
            Some(error) if out.rings.is_empty() => Err(error),
            _ => Ok(out),
        }
    }

    /// CPUs come and go: opens what is missing, closes what is gone. Comes back with the
    /// first that didn't open; it is tried again when CPUs come or go the next time.
    fn heed_cpus(&mut self) -> Result<Option<SamplesError>, SamplesError> {
        let online = fs::read_to_string(&self.list).unwrap_or_default();
        if online == self.online && !self.rings.is_empty() {
            return Ok(None);
        }
        let cpus: BTreeMap<u32, NodeId> =
            read_topology(&self.place.path("/"))?.cpus.iter().map(|c| (c.id.0, c.node)).collect();
        self.rings.keep(|cpu| cpus.contains_key(&cpu));
        let mut failed = None;
        for (cpu, node) in cpus {
            if !self.rings.has(cpu) {
                if let Err(error) = self.rings.open(cpu, node, &self.kinds) {
                    failed = failed.or(Some(error));
                }
            }
        }
        self.online = online;
        Ok(failed)
    }

    /// Whether a PID is still the process that is watched under it. It was when watching
    /// began; so if it is now, it was all the time.
    fn is_still(&self, who: Who) -> bool {
        start_of(&self.place, who.pid) == Some(who.start)
    }

    fn switch(&mut self, on: bool) {
        if let Err(e) = self.rings.switch(on) {
            let what = if on { "begun" } else { "ended" };
            self.broken = Some(format!("sampling can't be {what}: {e}; start homenode anew"));
        }
    }
}

/// What was in the rings.
#[derive(Default)]
struct Taken {
    accesses: Vec<(Access, NodeId)>,
    lost: u64,
}

impl Taken {
    /// A record of a CPU of that node.
    fn add(&mut self, node: NodeId, told: Told, watched: &BTreeMap<u32, Who>) {
        match told {
            Told::Access(a) if watched.contains_key(&a.pid) => self.accesses.push((a, node)),
            Told::Lost(events) => self.lost = self.lost.saturating_add(events),
            Told::Access(_) | Told::Nothing => {}
        }
    }
    /// What memory answered, with the node of the CPU.
    fn answered(&self) -> impl Iterator<Item = (NodeId, Answered)> + '_ {
        self.accesses.iter().filter_map(|(a, from)| Some((*from, a.answered?)))
    }
    /// Tells the accesses of those that are still who they were, oldest first.
    fn tell(
        mut self,
        watched: &BTreeMap<u32, Who>,
        is_still: impl Fn(Who) -> bool,
        out: &mut Vec<Seen>,
    ) {
        self.accesses.sort_by_key(|(a, _)| a.time);
        let mut asked: BTreeMap<u32, bool> = BTreeMap::new();
        for (Access { pid, vpn, period, .. }, from) in self.accesses {
            let Some(&who) = watched.get(&pid) else { continue };
            if *asked.entry(pid).or_insert_with(|| is_still(who)) {
                out.push(Seen::Sample { who, vpn, from, period });
            }
        }
        if self.lost > 0 {
            out.push(Seen::Lost { events: self.lost });
        }
    }
}

impl Heat for Samples {
    fn source(&self) -> Source {
        Source::Pmu
    }
    fn watch(&mut self, who: Who) {
        if self.is_still(who) {
            self.watched.insert(who.pid, who);
            self.switch(true);
        }
    }
    fn unwatch(&mut self, who: Who) {
        if self.watched.get(&who.pid) == Some(&who) {
            self.watched.remove(&who.pid);
        }
        if self.watched.is_empty() {
            self.switch(false);
        }
    }
    fn take(&mut self, _: Picos, out: &mut Vec<Seen>) -> Result<(), String> {
        let mut taken = Taken::default();
        let watched = &self.watched;
        self.rings.drain(|node, told| taken.add(node, told, watched));
        self.late.take(&self.place.path("/"), taken.answered());
        taken.tell(&self.watched, |who| self.is_still(who), out);
        if !self.watched.is_empty() {
            // What a new CPU does stays unseen if its event doesn't open; the others go on.
            let _ = self.heed_cpus();
            if self.rings.is_empty() {
                return Err("no CPU can be sampled any more; start homenode anew".to_owned());
            }
            self.switch(true);
        }
        match &self.broken {
            Some(what) => Err(what.clone()),
            None => Ok(()),
        }
    }
    fn load(&mut self, now: Picos, node: NodeId) -> Option<u32> {
        self.late.answers.load(now, node)
    }
    fn sample_every(&mut self, period: u64) {
        // Where it is refused, samples go on as they were and say what they stand for.
        let _ = self.rings.sample_every(period);
    }
    fn wakes(&self) -> Option<RawFd> {
        Some(self.rings.wakes())
    }
    fn close(&mut self) -> Result<(), String> {
        self.watched.clear();
        self.rings.keep(|_| false);
        Ok(())
    }
}
