//! NUMA hint faults, seen by a BPF program.
//!
//! Where the kernel balances, it makes pages inaccessible now and then, and the fault of
//! the next access tells it who uses them. A program at the function that decides about
//! the page looks on:
//!
//! ```text
//!  process ── hint fault ──▶ mpol_misplaced ──▶ hints.bpf.c ──▶ ring ──▶ Hints::take
//!                                                 ▲ watched?   └──▶ lost       │
//!  watch, unwatch ── tgid, start ─────────────────┘                            ▼
//!                                    Seen::Fault { page, node of CPU, node of page, after }
//! ```
//!
//! It looks only: what is marked, and how often, is the kernel's own affair, and the
//! kernel moves pages by it too. So this source is for observing and advising.
//!
//! `layout` finds where this kernel keeps what is told, `load` has the program and its
//! maps, `record` is one fault, `tiers` says which pages carry the time of their scan.
//!
//! Source: specs/live.md#hint-fault.

mod error;
mod layout;
mod load;
mod record;
#[cfg(test)]
mod tests;
mod tiers;
mod wake;

pub use error::HintsError;

use crate::machine::Heat;
use crate::sysfs::parse_list;
use crate::text::capabilities;
use homenode_bpf::able::{BTF, FIRST_PID_NAMESPACE, may_load};
use homenode_core::policy::seen::{Seen, Source, Who};
use homenode_core::units::{NodeId, Picos};
use layout::{Facts, Layout};
use libbpf_rs::btf::Btf;
use load::Loaded;
use record::Record;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tiers::Tiers;

const KNOB: &str = "proc/sys/kernel/numa_balancing";
const POSSIBLE: &str = "sys/devices/system/node/possible";
/// Tiers are read anew after this time: nodes come and go rarely.
const TIERS_EVERY: Picos = Picos::from_secs(5);

/// The machine's own namespaces have these numbers (`proc(5)`, `include/linux/proc_ns.h`).
const FIRST: [(&str, &str, &str, u64); 2] =
    [("pid", "PID", "PIDs", FIRST_PID_NAMESPACE), ("time", "time", "times since boot", 0xeffffffa)];

/// Hint faults of the processes that are watched.
///
/// When it is dropped, or its process ends, nothing of it is left in the kernel.
pub struct Hints {
    root: PathBuf,
    /// None once it was closed.
    loaded: Option<Loaded>,
    tick: Picos,
    watched: BTreeMap<u32, Who>,
    /// Nodes that this machine can have.
    nodes: BTreeSet<u32>,
    tiers: Tiers,
    tiers_at: Picos,
    /// When balancing was on last.
    on: Picos,
    /// Whether it was off at the last look, and that was told.
    told_off: bool,
}

impl Hints {
    /// Loads the program into this kernel. Needs no process to be watched yet.
    ///
    /// # Errors
    /// Everything that is known to be missing is found before anything is loaded.
    pub fn open() -> Result<Self, HintsError> {
        let root = Path::new("/");
        if !cfg!(target_arch = "x86_64") {
            return Err(HintsError::Architecture);
        }
        if mode(root)? == 0 {
            return Err(HintsError::Off);
        }
        look_at_namespaces(root)?;
        look_at_rights(root)?;
        let layout = this_layout(root)?;
        let nodes = possible(root)?;
        Ok(Self::of(root, Loaded::load(&layout)?, layout.tick_ms(), nodes))
    }

    fn of(root: &Path, loaded: Loaded, tick_ms: u64, nodes: BTreeSet<u32>) -> Self {
        Self {
            root: root.to_owned(),
            loaded: Some(loaded),
            tick: Picos::from_ms(tick_ms),
            watched: BTreeMap::new(),
            nodes,
            tiers: Tiers::read(root),
            tiers_at: Picos::ZERO,
            on: Picos::ZERO,
            told_off: false,
        }
    }

    /// What a record says, if it is of a process that is still watched.
    fn seen(&self, record: &Record, mode: u32) -> Option<Seen> {
        // An entry of the map is newer than a record may be.
        let who = *self.watched.get(&record.tgid)?;
        if record.start != who.start as u32 {
            return None;
        }
        let ms = u64::try_from(record.age_ms).ok();
        let after = ms.filter(|_| self.tiers.stamped(mode, u32::from(record.on)));
        Some(Seen::Fault {
            who,
            vpn: record.page,
            from: NodeId(record.from),
            on: NodeId(record.on),
            after: after.map(|ms| Picos::from_ms(ms) + self.tick),
        })
    }
}

impl Heat for Hints {
    fn source(&self) -> Source {
        Source::HintFault
    }

    fn watch(&mut self, who: Who) {
        let Some(loaded) = &mut self.loaded else { return };
        if loaded.watch(who.pid, who.start) {
            self.watched.insert(who.pid, who);
        }
    }

    fn unwatch(&mut self, who: Who) {
        // The PID may be another's by now, who is watched.
        if self.watched.get(&who.pid) == Some(&who) {
            self.watched.remove(&who.pid);
            if let Some(loaded) = &mut self.loaded {
                loaded.unwatch(who.pid);
            }
        }
    }

    fn take(&mut self, now: Picos, out: &mut Vec<Seen>) -> Result<(), String> {
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        let taken = loaded.take().map_err(|e| crate::sentence(&e))?;
        let lost = taken.odd + loaded.lost().map_err(|e| crate::sentence(&e))?;
        let mode = mode(&self.root).map_err(|e| crate::sentence(&e))?;
        if now >= self.tiers_at {
            self.tiers = Tiers::read(&self.root);
            self.tiers_at = now + TIERS_EVERY;
        }
        for record in &taken.records {
            if !self.nodes.contains(&u32::from(record.on)) {
                return Err(format!(
                    "a page is said to be on node {}, which this machine can't have: the kernel's \
                     page flags are not laid out as its BTF tells. Use another source, and please \
                     report it",
                    record.on
                ));
            }
            out.extend(self.seen(record, mode));
        }
        if lost > 0 {
            out.push(Seen::Lost { events: lost });
        }
        // Somebody switched balancing off: nothing will come.
        match (mode, self.told_off) {
            (0, false) => out.push(Seen::Stale { since: self.on }),
            (0, true) => {}
            _ => self.on = now,
        }
        self.told_off = mode == 0;
        Ok(())
    }

    fn wakes(&self) -> Option<RawFd> {
        self.loaded.as_ref().map(Loaded::wakes)
    }

    /// Processor time that the program has taken so far, of all processes' faults; `None`
    /// unless the kernel counts it (`sysctl kernel.bpf_stats_enabled=1`).
    fn spent(&self) -> Option<Picos> {
        let knob = self.root.join("proc/sys/kernel/bpf_stats_enabled");
        let counts = fs::read_to_string(knob).is_ok_and(|t| t.trim() != "0");
        let ns = self.loaded.as_ref()?.shown("run_time_ns")?;
        counts.then_some(Picos(ns.saturating_mul(1000)))
    }
    fn close(&mut self) -> Result<(), String> {
        self.loaded = None;
        self.watched.clear();
        Ok(())
    }
}

/// `numa_balancing`: bits, 1 is ordinary balancing, 2 tiering.
fn mode(root: &Path) -> Result<u32, HintsError> {
    let knob = root.join(KNOB);
    let text = fs::read_to_string(&knob);
    let text = text.map_err(|_| HintsError::NoBalancing { knob: knob.clone() })?;
    let what = "whether the kernel balances";
    text.trim().parse().map_err(|_| HintsError::File { path: knob, what })
}

fn look_at_namespaces(root: &Path) -> Result<(), HintsError> {
    for (file, what, differs, first) in FIRST {
        // A kernel without such namespaces has one for all.
        let found = fs::metadata(root.join("proc/self/ns").join(file));
        if found.is_ok_and(|f| f.ino() != first) {
            return Err(HintsError::Namespace { what, differs });
        }
    }
    Ok(())
}

fn look_at_rights(root: &Path) -> Result<(), HintsError> {
    let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let Some(held) = capabilities(&status) else {
        return Ok(()); // The kernel will say.
    };
    if may_load(held) { Ok(()) } else { Err(HintsError::Denied) }
}

fn possible(root: &Path) -> Result<BTreeSet<u32>, HintsError> {
    let path = root.join(POSSIBLE);
    let nodes = fs::read_to_string(&path).ok().and_then(|t| parse_list(&t));
    let nodes = nodes.ok_or(HintsError::File { path, what: "which nodes there can be" })?;
    Ok(nodes.into_iter().collect())
}

fn this_layout(root: &Path) -> Result<Layout, HintsError> {
    homenode_bpf::words::listen();
    let path = Path::new(BTF);
    let btf =
        Btf::from_path(path).map_err(|source| HintsError::NoBtf { path: path.into(), source })?;
    let most = fs::read_to_string(root.join("sys/devices/system/cpu/kernel_max"));
    let most: Option<u32> = most.ok().and_then(|t| t.trim().parse().ok());
    Layout::of(Facts::read(&btf)?, most.and_then(|n| n.checked_add(1)), ticks())
}

/// Ticks in a second: the coarse clocks go by them.
fn ticks() -> Option<u32> {
    let mut step = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which is ours.
    let r = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut step) };
    let ns = u64::try_from(step.tv_nsec).ok().filter(|ns| r == 0 && step.tv_sec == 0 && *ns > 0)?;
    u32::try_from((1_000_000_000 + ns / 2) / ns).ok()
}
