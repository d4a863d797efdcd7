//! Statistics of the scheduler, counted in the kernel while somebody looks.
//!
//! ```text
//!  Wanted ─▶ Stats::open ─▶ begin ─▶ gather, now and then ─▶ end ─▶ Look
//!              │ loaded and attached   │ slots of tasks that are over are read and given back
//!              ▼                       ▼
//!           the kernel's: stats.bpf.c, its maps; all of it goes with this process
//! ```
//!
//! `layout` has the structures that the program and this file share, `error` why a look can't be.
//!
//! Source: specs/schedstats.md#live.

mod error;
mod layout;
#[cfg(test)]
mod tests;

pub use error::StatsError;

use crate::able::BTF;
use crate::{objects, words};
use homenode_core::sched::look::{CpuCounts, CpuLook, Doing, Histogram, Look, Reasons, TaskLook};
use layout::{Control, CpuPlace, CpuRow, Settings, Slot};
use libbpf_rs::ReferencesType as _;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{FuncProto, Ptr, Typedef};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// Processes and names of tasks that are over, at most; what comes above is told as one.
const ENDED_MAX: usize = 16_384;
/// What the rest is called.
const REST: &str = "(others)";

/// Whose tasks are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Everybody's.
    All,
    /// Those of these processes, by their numbers in the machine's own PID namespace.
    Processes(Vec<u32>),
    /// Those that [`Stats::mother`] makes, and what comes of them.
    Tree,
    /// Those of a cgroup and of all below it, by the number of its folder.
    Cgroup {
        /// Its number.
        id: u64,
        /// The controller of its hierarchy, such as `cpu`; `None` is the unified one.
        controller: Option<String>,
    },
}

/// Where a CPU is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub cpu: u32,
    /// The lowest CPU with which it shares its last-level cache.
    pub llc: u32,
    /// Its node.
    pub node: u32,
    /// The next CPU of its core, round and round; itself if it is alone.
    pub sibling: u32,
}

/// What is to be looked at.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Whose tasks.
    pub who: Who,
    /// Places for tasks at a time.
    pub slots: u32,
    /// Numbers that tasks can have: `kernel.pid_max`.
    pub pids: u32,
    /// Whether reasons of wake-ups are wanted.
    pub why: bool,
    /// CPUs that are online.
    pub cpus: Vec<Cpu>,
}

fn refused(step: &'static str) -> impl FnOnce(libbpf_rs::Error) -> StatsError {
    move |source| StatsError::Refused { step, log: words::taken(), source }
}

/// A look that is going on. When it is dropped, or its process ends, nothing is left of it.
pub struct Stats {
    links: Vec<Link>,
    silent: Link,
    object: Object,
    control: MapHandle,
    kept: MapHandle,
    slots: MapHandle,
    why: Option<MapHandle>,
    over: MapHandle,
    spare: MapHandle,
    cpus: MapHandle,
    places: MapHandle,
    wanted: Wanted,
    begin: u64,
    mother: u32,
    /// Tasks that are over, by process and name.
    ended: BTreeMap<(u32, String), TaskLook>,
}

impl Stats {
    /// Loads the programs and attaches them. Nothing is counted before [`Self::begin`].
    ///
    /// # Errors
    /// What this kernel lacks, or what it said.
    pub fn open(wanted: Wanted) -> Result<Self, StatsError> {
        words::listen();
        let path = Path::new(BTF);
        let btf = Btf::from_path(path)
            .map_err(|source| StatsError::NoBtf { path: path.into(), source })?;
        look_at_switch(&btf)?;
        let settings = settings(&wanted, &btf)?;
        drop(btf);
        let mut builder = ObjectBuilder::default();
        builder.name("stats").map_err(refused("opened"))?;
        let mut open = builder.open_memory(objects::STATS).map_err(refused("opened"))?;
        let cpus = all_cpus(&wanted);
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let entries = match name.as_str() {
                "by_pid" => wanted.pids,
                "slots" | "over" | "spare" => wanted.slots,
                "why" => {
                    if wanted.why {
                        wanted.slots
                    } else {
                        1
                    }
                }
                "places" => cpus.len() as u32,
                _ => {
                    if name.ends_with(".rodata") {
                        map.set_initial_value(&settings.bytes()).map_err(refused("told whom"))?;
                    }
                    continue;
                }
            };
            map.set_max_entries(entries.max(1)).map_err(refused("given its memory"))?;
        }
        let in_cgroup = matches!(wanted.who, Who::Cgroup { .. });
        for mut program in open.progs_mut() {
            if program.name() == "stats_moved" {
                program.set_autoload(in_cgroup);
            }
        }
        let object = open.load().map_err(refused("loaded"))?;
        let map = |name: &str| {
            let found =
                object.maps().find(|m| m.name().to_str().is_some_and(|n| n.ends_with(name)));
            let found = found.ok_or_else(|| absent(name))?;
            MapHandle::try_from(&found).map_err(refused("asked for its maps"))
        };
        let places = map("places")?;
        for (c, _) in &cpus {
            let place = CpuPlace { llc: c.llc, node: c.node, sibling: c.sibling, idle: 2 };
            let put = places.update(&c.cpu.to_ne_bytes(), &place.bytes(), MapFlags::ANY);
            put.map_err(refused("told where CPUs are"))?;
        }
        if let Who::Processes(pids) = &wanted.who {
            let processes = map("processes")?;
            for pid in pids {
                let put = processes.update(&pid.to_ne_bytes(), &1_u32.to_ne_bytes(), MapFlags::ANY);
                put.map_err(|_| StatsError::TooMany)?;
            }
        }
        let (mut links, mut silent) = (Vec::new(), None);
        for program in object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if name == "stats_moved" && !in_cgroup {
                continue;
            }
            let link = program.attach().map_err(refused("attached"))?;
            if name == "stats_silent" {
                silent = Some(link);
            } else {
                links.push(link);
            }
        }
        Ok(Self {
            links,
            silent: silent.ok_or_else(|| absent("stats_silent"))?,
            control: map(".control")?,
            kept: map(".bss")?,
            slots: map("slots")?,
            why: wanted.why.then(|| map("why")).transpose()?,
            over: map("over")?,
            spare: map("spare")?,
            cpus: map("cpus")?,
            places,
            object,
            wanted,
            begin: 0,
            mother: 0,
            ended: BTreeMap::new(),
        })
    }

    fn tell(&self, begin: u64) -> Result<(), StatsError> {
        let control = Control { begin, mother: self.mother };
        let put = self.control.update(&0_u32.to_ne_bytes(), &control.bytes(), MapFlags::ANY);
        put.map_err(refused("started or ended"))
    }

    /// Whose tasks are looked at.
    pub fn whose(&self) -> &Who {
        &self.wanted.who
    }

    /// Counts from now on.
    ///
    /// # Errors
    /// What libbpf said.
    pub fn begin(&mut self) -> Result<(), StatsError> {
        self.begin = now_ns();
        self.tell(self.begin)
    }

    /// Children of this process are looked at from now on, with [`Who::Tree`]; 0: of nobody.
    ///
    /// # Errors
    /// What libbpf said.
    pub fn mother(&mut self, tgid: u32) -> Result<(), StatsError> {
        self.mother = tgid;
        self.tell(self.begin)
    }

    /// Reads what is kept of tasks that are over, and gives their places back. To be called a few
    /// times a second: places are what is bounded.
    ///
    /// # Errors
    /// What libbpf said.
    pub fn gather(&mut self) -> Result<(), StatsError> {
        let failed = || refused("read");
        // No more than there are places, though tasks end meanwhile.
        for _ in 0..self.wanted.slots {
            let Some(at) = self.over.lookup_and_delete(&[]).map_err(failed())? else { break };
            let at: [u8; 4] = at.as_slice().try_into().map_err(|_| absent("over"))?;
            let (slot, why) = self.slot(at)?;
            // One that two CPUs made at once has nobody's counts.
            if slot.pid != 0 {
                self.keep(slot.look(now_ns(), why));
            }
            let put = self.slots.update(&at, &vec![0; Slot::BYTES], MapFlags::ANY);
            put.map_err(failed())?;
            if let Some(map) = &self.why {
                map.update(&at, &vec![0; layout::REASONS_BYTES], MapFlags::ANY).map_err(failed())?;
            }
            self.spare.update(&[], &at, MapFlags::ANY).map_err(failed())?;
        }
        Ok(())
    }

    fn slot(&self, at: [u8; 4]) -> Result<(Slot, Option<Reasons>), StatsError> {
        let bytes = self.slots.lookup(&at, MapFlags::ANY).map_err(refused("read"))?;
        let slot = bytes.as_deref().and_then(Slot::parse).ok_or_else(|| absent("slots"))?;
        let why = match &self.why {
            None => None,
            Some(map) => {
                let bytes = map.lookup(&at, MapFlags::ANY).map_err(refused("read"))?;
                bytes.as_deref().map(layout::reasons)
            }
        };
        Ok((slot, why))
    }

    fn keep(&mut self, mut look: TaskLook) {
        let mut key = (look.tgid, look.comm.clone());
        if self.ended.len() >= ENDED_MAX && !self.ended.contains_key(&key) {
            key = (0, REST.to_owned());
            (look.pid, look.tgid, look.parent, look.comm, look.cgroup) =
                (0, 0, 0, REST.to_owned(), 0);
        }
        match self.ended.get_mut(&key) {
            Some(all) => all.add(&look),
            None => {
                self.ended.insert(key, look);
            }
        }
    }

    /// What was counted so far, of tasks that are there and of those that are over.
    ///
    /// # Errors
    /// What libbpf said.
    pub fn look(&mut self) -> Result<Look, StatsError> {
        // Who ran or waited all along is told now.
        let mut told = Vec::new();
        let mut iter = Iter::new(&self.silent).map_err(refused("asked who runs"))?;
        iter.read_to_end(&mut told).map_err(|e| refused("asked who runs")(e.into()))?;
        let now = now_ns();
        self.gather()?;
        let taken =
            self.kept.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(refused("read"))?;
        let taken = taken.as_deref().and_then(layout::taken).ok_or_else(|| absent("taken"))?;
        let mut tasks: Vec<TaskLook> = self.ended.values().cloned().collect();
        for at in 0..taken.min(self.wanted.slots) {
            let (slot, why) = self.slot(at.to_ne_bytes())?;
            let look = slot.look(now, why);
            if look.doing != Doing::Ended {
                tasks.push(look);
            }
        }
        let rows = self.cpus.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let rows = rows.map_err(refused("read"))?.unwrap_or_default();
        let mut cpus = Vec::new();
        for (c, came) in all_cpus(&self.wanted) {
            let (counts, latency) = rows
                .get(c.cpu as usize)
                .and_then(|bytes| CpuRow::parse(bytes))
                .map_or((CpuCounts::default(), Histogram::default()), |r| (r.counts, r.latency));
            if came && counts.events() == 0 {
                continue;
            }
            let place = self.places.lookup(&c.cpu.to_ne_bytes(), MapFlags::ANY);
            let place = place.map_err(refused("read"))?.unwrap_or_default();
            let [moved_in, moved_in_llc, moved_in_node] = layout::moved(&place);
            cpus.push(CpuLook {
                cpu: c.cpu,
                llc: c.llc,
                node: c.node,
                came,
                moved_in,
                moved_in_llc,
                moved_in_node,
                counts,
                latency,
            });
        }
        let (ns, bytes) = (now.saturating_sub(self.begin), self.bytes());
        Ok(Look { ns, tasks, cpus, bytes, slots: self.wanted.slots })
    }

    /// Ends it: what was counted; nothing is left in the kernel.
    ///
    /// # Errors
    /// What libbpf said; it is ended all the same.
    pub fn end(mut self) -> Result<Look, StatsError> {
        let look = self.look()?;
        self.tell(0)?;
        self.links.clear();
        Ok(look)
    }

    /// Memory of the kernel's that the maps take, as it counts it itself.
    fn bytes(&self) -> u64 {
        let shown = |fd: i32| {
            let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
            let line = text.lines().find_map(|l| l.strip_prefix("memlock:"))?;
            line.trim().parse::<u64>().ok()
        };
        self.object.maps().filter_map(|m| shown(m.as_fd().as_raw_fd())).sum()
    }

    /// How often the programs ran and how long that took in ns, while the kernel counted it
    /// ([`count_time`]).
    pub fn spent(&self) -> (u64, u64) {
        let number = |text: &str, key: &str| -> u64 {
            let line = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'));
            line.and_then(|v| v.trim().parse().ok()).unwrap_or(0)
        };
        self.object.progs_mut().fold((0, 0), |(runs, ns), p| {
            let info = format!("/proc/self/fdinfo/{}", p.as_fd().as_raw_fd());
            let text = std::fs::read_to_string(info).unwrap_or_default();
            (runs + number(&text, "run_cnt"), ns + number(&text, "run_time_ns"))
        })
    }
}

/// Lets the kernel count how long BPF programs take, until what comes back is dropped.
///
/// # Errors
/// What libbpf said.
pub fn count_time() -> Result<std::os::fd::OwnedFd, StatsError> {
    use std::os::fd::FromRawFd as _;
    // SAFETY: a call with a number; what comes back is a descriptor of ours, or an error.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    if fd < 0 {
        return Err(refused("timed")(libbpf_rs::Error::from_raw_os_error(-fd)));
    }
    // SAFETY: as above.
    Ok(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) })
}

/// All CPUs that this machine can have, and whether each is none of those that are there: then
/// it may come, and is told as of a cache of its own, on the first one's node.
fn all_cpus(wanted: &Wanted) -> Vec<(Cpu, bool)> {
    let there = &wanted.cpus;
    let most = there.iter().map(|c| c.cpu as usize + 1).max().unwrap_or(1);
    let possible = libbpf_rs::num_possible_cpus().unwrap_or(0).max(most);
    let node = there.first().map_or(0, |c| c.node);
    let of = |cpu: u32| match there.iter().find(|c| c.cpu == cpu) {
        Some(c) => (*c, false),
        None => (Cpu { cpu, llc: cpu, node, sibling: cpu }, true),
    };
    (0..possible as u32).map(of).collect()
}

/// The clock that the programs read.
fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn absent(name: &str) -> StatsError {
    StatsError::Unknown { what: format!("homenode's own BPF object has no `{name}` as expected") }
}

/// The task's state came to the tracepoint of switches in Linux 5.18.
fn look_at_switch(btf: &Btf<'_>) -> Result<(), StatsError> {
    let found = btf.type_by_name::<Typedef<'_>>("btf_trace_sched_switch");
    let proto = found
        .and_then(|t| Ptr::try_from(t.referenced_type()).ok())
        .and_then(|p| FuncProto::try_from(p.referenced_type()).ok());
    match proto {
        // What it is registered with is the first one.
        Some(proto) if proto.len() == 5 => Ok(()),
        Some(_) | None => Err(StatsError::OldSwitch),
    }
}

fn settings(wanted: &Wanted, btf: &Btf<'_>) -> Result<Settings, StatsError> {
    let (who, cgroup, subsys) = match &wanted.who {
        Who::All => (0, 0, -1),
        Who::Processes(_) => (1, 0, -1),
        Who::Tree => (2, 0, -1),
        Who::Cgroup { id, controller: None } => (3, *id, -1),
        Who::Cgroup { id, controller: Some(name) } => {
            let found = layout::subsys(btf, name).ok_or_else(|| StatsError::Unknown {
                what: format!("this kernel's BTF has no number for the controller {name}"),
            })?;
            (3, *id, found)
        }
    };
    Ok(Settings { who, subsys, cgroup, slots: wanted.slots, why: u32::from(wanted.why) })
}
