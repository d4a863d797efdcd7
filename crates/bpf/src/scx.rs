//! The scheduler of sched_ext in the kernel: loaded, attached, read.
//!
//! ```text
//!  Layout ──image──▶ .bss.machine ┐
//!  Options ────────▶ .rodata, ops ┼─load, attach─▶ the kernel asks it for each task
//!                                 │
//!  counts ◀── by reason ──────────┤
//!  end ◀── why it ended ──────────┘   (unregistered, an error, the watchdog)
//! ```
//!
//! It hangs on a descriptor of this process: when that is closed, by whatever end the process
//! takes, the kernel gives all tasks back to the fair class.
//!
//! Source: specs/wake.md#scx.

use crate::{objects, words};
use homenode_wake::{Layout, Reason, Recent};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder};
use std::time::Duration;

/// As bpf/scx.bpf.c has them.
const MAX_CPUS: usize = 1024;
const MAX_DOMAINS: usize = 4096;
const MAX_MASKS: usize = 16384;
const PLACE: usize = 64;
const DOMAIN: usize = 16;
const SHARED: usize = 8;
const REASONS: usize = 32;
/// Where the parts of `struct machine` begin.
const DOMAINS_AT: usize = MAX_CPUS * PLACE;
const SHARED_AT: usize = DOMAINS_AT + MAX_DOMAINS * DOMAIN;
const MASKS_AT: usize = SHARED_AT + MAX_DOMAINS * SHARED;
const ACTIVE_AT: usize = MASKS_AT + MAX_MASKS * 8;
const MACHINE_BYTES: usize = ACTIVE_AT + MAX_CPUS / 8;

/// Jiffies a second of the kernels that are known; halves of flips hang on it, nothing else.
const HZ: u32 = 250;
/// `SCX_OPS_SWITCH_PARTIAL`.
const SWITCH_PARTIAL: u64 = 1 << 3;
/// The program that chooses.
const CHOOSES: &str = "hn_select_cpu";

/// Why there is no scheduler.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScxError {
    /// More than the program has room for.
    #[error("the machine has {has} {what}; homenode's scheduler has room for {room}")]
    Large {
        /// Of what.
        what: &'static str,
        /// How many it has.
        has: usize,
        /// How many fit.
        room: usize,
    },
    /// The kernel has said no.
    #[error("the scheduler can't be {step}{}", words::why(source, log))]
    Refused {
        /// What was tried.
        step: &'static str,
        /// What libbpf and the verifier said.
        log: Vec<String>,
        #[source]
        /// The error.
        source: libbpf_rs::Error,
    },
    /// The object isn't what this file believes.
    #[error("homenode's own BPF object has no `{0}`")]
    Absent(&'static str),
}

/// What is to be scheduled, and how.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Who keeps a recently used CPU.
    pub recent: Recent,
    /// Only tasks of the policy SCHED_EXT.
    pub partial: bool,
    /// After which a task that can run and doesn't makes the kernel end the scheduler.
    pub timeout: Duration,
    /// No task is run at all, so that the watchdog has to end it.
    pub drill: bool,
}

/// What was counted since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Choices by reason, those that were made.
    pub reasons: Vec<(Reason, u64)>,
    /// Choices that came to nothing: no CPU of the task's is active.
    pub none: u64,
    /// Of the choices, those for new tasks.
    pub forks: u64,
    /// Another CPU than before.
    pub moved: u64,
    /// Of those, one below another last-level cache.
    pub cross_cache: u64,
    /// Of those, one of another node.
    pub cross_node: u64,
    /// `wake_affine` chose the waker's CPU.
    pub affine: u64,
    /// Waker and wakee had too many partners to be drawn together.
    pub wide: u64,
    /// The CPU was idle and got the task at once.
    pub claimed: u64,
    /// It was idle, but another wake-up claimed it meanwhile.
    pub lost: u64,
    /// Tasks that went to the queue of a node.
    pub queued: u64,
    /// Tasks that may run on one CPU only, queued there.
    pub pinned: u64,
    /// Of the choices, those for or by a task beyond the 131,072 whose past is kept.
    pub strangers: u64,
}

impl Counts {
    /// All choices.
    #[must_use]
    pub fn choices(&self) -> u64 {
        self.reasons.iter().map(|(_, n)| n).sum::<u64>() + self.none
    }

    fn of(words: &[u64]) -> Self {
        let at = |i: usize| words.get(i).copied().unwrap_or(0);
        let reasons = Reason::ALL.iter().enumerate().map(|(i, reason)| (*reason, at(i)));
        Self {
            reasons: reasons.filter(|(_, n)| *n > 0).collect(),
            none: at(Reason::ALL.len()),
            forks: at(REASONS),
            moved: at(REASONS + 1),
            cross_cache: at(REASONS + 2),
            cross_node: at(REASONS + 3),
            affine: at(REASONS + 4),
            wide: at(REASONS + 5),
            claimed: at(REASONS + 6),
            lost: at(REASONS + 7),
            queued: at(REASONS + 8),
            pinned: at(REASONS + 9),
            strangers: at(REASONS + 10),
        }
    }
}

/// Who ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ender {
    /// Whoever had loaded it.
    Loader,
    /// The kernel or an operator: SysRq-S, a CPU that came or went.
    Kernel,
    /// The kernel's watchdog: a task could run and didn't.
    Watchdog,
    /// The kernel, for an error of the program.
    Error,
}

/// Why it ended, in the kernel's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Who.
    pub ender: Ender,
    /// `enum scx_exit_kind`.
    pub kind: u32,
    /// The kernel's short text.
    pub reason: String,
    /// Its long one, which may be empty.
    pub message: String,
}

impl End {
    /// Of `struct end`; nothing as long as it runs.
    fn of(bytes: &[u8]) -> Option<Self> {
        let kind = u32::from_ne_bytes(*bytes.get(8..)?.first_chunk()?);
        let text = |at: usize, len: usize| {
            let bytes = bytes.get(at..at + len).unwrap_or_default();
            let bytes = bytes.split(|b| *b == 0).next().unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        let ender = match kind {
            0 => return None,
            1 | 64 | 65 => Ender::Loader,
            66..=1023 => Ender::Kernel,
            1026 => Ender::Watchdog,
            _ => Ender::Error,
        };
        Some(Self { ender, kind, reason: text(12, 128), message: text(140, 892) })
    }
}

fn refused(step: &'static str) -> impl FnOnce(libbpf_rs::Error) -> ScxError {
    move |source| ScxError::Refused { step, log: words::taken(), source }
}

/// The scheduler at work. Fields are dropped from the first to the last.
pub struct Scheduler {
    link: Option<Link>,
    counts: MapHandle,
    end: MapHandle,
    verified: u32,
    _object: Object,
}

impl Scheduler {
    /// Loads it and puts it to work.
    ///
    /// * `active` – CPUs that may get tasks, a bit each.
    ///
    /// # Errors
    /// With what the kernel said; nothing is changed then.
    pub fn start(layout: &Layout, active: &[u64], options: &Options) -> Result<Self, ScxError> {
        let machine = machine(layout, active)?;
        words::listen();
        let mut builder = ObjectBuilder::default();
        builder.name("homenode").map_err(refused("opened"))?;
        let mut open = builder.open_memory(objects::SCX).map_err(refused("opened"))?;
        let settings = settings(layout, options);
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if map.map_type() == MapType::StructOps {
                let ops = map.initial_value_mut().ok_or(ScxError::Absent("ops"))?;
                let flags = if options.partial { SWITCH_PARTIAL } else { 0 };
                let timeout = u32::try_from(options.timeout.as_millis()).unwrap_or(u32::MAX);
                ops[..8].copy_from_slice(&flags.to_ne_bytes());
                ops[8..12].copy_from_slice(&timeout.to_ne_bytes());
            } else if name.ends_with(".rodata") {
                map.set_initial_value(&settings).map_err(refused("told its settings"))?;
            } else if name.ends_with(".bss.machine") {
                map.set_initial_value(&machine).map_err(refused("told where CPUs are"))?;
            }
        }
        let mut object = open.load().map_err(refused("loaded"))?;
        let handle = |end: &str, absent| {
            let found = object.maps().find(|m| m.name().to_string_lossy().ends_with(end));
            let found = found.ok_or(ScxError::Absent(absent))?;
            MapHandle::try_from(&found).map_err(refused("asked for its maps"))
        };
        let (counts, end) = (handle("counts", "counts")?, handle(".bss.end", "end")?);
        let verified = ProgInfoIter::default().find(|p| p.name.to_string_lossy() == CHOOSES);
        let verified = verified.map_or(0, |p| p.verified_insns);
        let mut maps = object.maps_mut();
        let ops = maps.find(|m| m.map_type() == MapType::StructOps);
        let link = ops.ok_or(ScxError::Absent("ops"))?.attach_struct_ops();
        let link = link.map_err(refused("put to work"))?;
        drop(maps);
        Ok(Self { link: Some(link), counts, end, verified, _object: object })
    }

    /// Instructions that the verifier went through for the choice.
    #[must_use]
    pub fn verified(&self) -> u32 {
        self.verified
    }

    /// What was counted.
    ///
    /// # Errors
    /// What libbpf said.
    pub fn counts(&self) -> Result<Counts, ScxError> {
        let each = self.counts.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let each = each.map_err(refused("asked for its counts"))?.unwrap_or_default();
        let mut sum: Vec<u64> = Vec::new();
        for bytes in &each {
            let words = bytes.chunks_exact(8).filter_map(|b| b.first_chunk().copied());
            for (i, word) in words.map(u64::from_ne_bytes).enumerate() {
                if sum.len() <= i {
                    sum.push(0);
                }
                sum[i] += word;
            }
        }
        Ok(Counts::of(&sum))
    }

    /// Why it has ended, if it has.
    ///
    /// # Errors
    /// What libbpf said.
    pub fn ended(&self) -> Result<Option<End>, ScxError> {
        let bytes = self.end.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        Ok(bytes.map_err(refused("asked why it ended"))?.as_deref().and_then(End::of))
    }

    /// Takes it out of the kernel; [`Scheduler::ended`] says then how that went.
    pub fn stop(&mut self) {
        self.link = None;
    }
}

fn machine(layout: &Layout, active: &[u64]) -> Result<Vec<u8>, ScxError> {
    let image = layout.image();
    let fits = |what, has: usize, room: usize| {
        if has <= room { Ok(()) } else { Err(ScxError::Large { what, has, room }) }
    };
    fits("CPUs", image.place.len() / PLACE, MAX_CPUS)?;
    fits("scheduling domains", image.domain.len() / DOMAIN, MAX_DOMAINS)?;
    fits("words of scheduling domains", image.masks.len() / 8, MAX_MASKS)?;
    let mut bytes = vec![0; MACHINE_BYTES];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(0, &image.place);
    put(DOMAINS_AT, &image.domain);
    put(MASKS_AT, &image.masks);
    for (i, word) in active.iter().take(MAX_CPUS / 64).enumerate() {
        put(ACTIVE_AT + 8 * i, &word.to_ne_bytes());
    }
    // A search asks a word of 64 CPUs, nobody is asked by himself: each may see all of them.
    for i in 0..image.nr_shared {
        put(SHARED_AT + SHARED * i, &(MAX_CPUS as u32).to_ne_bytes());
    }
    Ok(bytes)
}

fn settings(layout: &Layout, options: &Options) -> Vec<u8> {
    let image = layout.image();
    // At most MAX_CPUS by now.
    let nr_cpus = layout.nr_cpus() as u32;
    let drill = options.drill.into();
    let words = [nr_cpus, options.recent as u32, image.has, HZ, image.all, drill];
    words.into_iter().flat_map(u32::to_ne_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_in_the_programs_order() {
        let words: Vec<u64> = (0..43).collect();
        let counts = Counts::of(&words);
        // The first reason was counted 0 times.
        assert_eq!(counts.reasons.len(), Reason::ALL.len() - 1);
        assert_eq!(counts.reasons[0], (Reason::CurrentCpu, 1));
        assert_eq!((counts.none, counts.forks, counts.strangers), (20, 32, 42));
        assert_eq!(counts.choices(), (0..=20).sum());
        assert_eq!(Counts::of(&[]), Counts::default());
    }

    #[test]
    fn an_end_is_told_in_the_kernels_words() {
        let mut bytes = vec![0_u8; 1032];
        assert_eq!(End::of(&bytes), None);
        bytes[8..12].copy_from_slice(&1026_u32.to_ne_bytes());
        bytes[12..25].copy_from_slice(b"runnable task");
        let end = End::of(&bytes).unwrap();
        assert_eq!((end.ender, end.reason.as_str()), (Ender::Watchdog, "runnable task"));
        for (kind, ender) in [(64, Ender::Loader), (67, Ender::Kernel), (1024, Ender::Error)] {
            bytes[8..12].copy_from_slice(&u32::to_ne_bytes(kind));
            assert_eq!(End::of(&bytes).unwrap().ender, ender);
        }
        assert_eq!(End::of(&[]), None);
    }

    #[test]
    fn a_machine_that_is_too_large_is_told_so() {
        let layout = Layout::builder(2048).build().unwrap();
        let error = machine(&layout, &[]).unwrap_err().to_string();
        assert_eq!(error, "the machine has 2048 CPUs; homenode's scheduler has room for 1024");
        assert!(machine(&Layout::builder(1024).build().unwrap(), &[0; 16]).is_ok());
    }

    /// Offsets of bpf/scx.bpf.c, as its own description tells them.
    #[test]
    fn the_object_has_the_shapes_that_are_believed() {
        let mut builder = ObjectBuilder::default();
        builder.name("homenode").unwrap();
        let open = builder.open_memory(objects::SCX).unwrap();
        let size = |end: &str| {
            let map = open.maps().find(|m| m.name().to_string_lossy().ends_with(end));
            map.unwrap().value_size() as usize
        };
        assert_eq!(size(".bss.machine"), MACHINE_BYTES);
        assert_eq!(size("counts"), (REASONS + 11) * 8);
        assert_eq!(size(".bss.end"), 1032);
    }
}
