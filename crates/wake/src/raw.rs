//! What the header has, field by field, and its three calls. The sizes are held below; the
//! header holds the same ones.

use std::mem::{align_of, size_of};

/// No CPU, no domain, no level, as the header writes them.
pub(crate) const NO_CPU: u32 = u32::MAX;
pub(crate) const NO_DOMAIN: u16 = u16::MAX;
pub(crate) const NO_LEVEL: u8 = u8::MAX;

pub(crate) const HAS_SMT: u32 = 1;
pub(crate) const HAS_CLUSTERS: u32 = 2;
pub(crate) const HAS_ASYM: u32 = 4;

pub(crate) const SYNC: u32 = 1;
pub(crate) const CURRENT_CPU: u32 = 2;
pub(crate) const KTHREAD: u32 = 4;
pub(crate) const IDLE_POLICY: u32 = 8;

pub(crate) const DID_AFFINE: u8 = 0x01;
pub(crate) const DID_RECENT: u8 = 0x02;
pub(crate) const DID_WAKER_RECENT: u8 = 0x04;
pub(crate) const DID_FLIPS: u8 = 0x08;
pub(crate) const DID_CLEAR_CORE: u8 = 0x10;
pub(crate) const DID_TIME_SCAN: u8 = 0x20;
pub(crate) const DID_WIDE: u8 = 0x40;

pub(crate) const MAX_SMT: usize = 8;
pub(crate) const MAX_LEVELS: usize = 16;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Domain {
    pub(crate) masks: u32,
    pub(crate) first_word: u16,
    pub(crate) nr_words: u16,
    pub(crate) weight: u16,
    pub(crate) imbalance_pct: u16,
    pub(crate) shared: u16,
    pub(crate) flags: u8,
    pub(crate) _pad: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) llc_id: u16,
    pub(crate) share_id: u16,
    pub(crate) node: u16,
    pub(crate) llc: u16,
    pub(crate) cluster: u16,
    pub(crate) asym: u16,
    pub(crate) nr_smt: u8,
    pub(crate) nr_levels: u8,
    pub(crate) smt: [u16; MAX_SMT],
    pub(crate) level: [u16; MAX_LEVELS],
    pub(crate) _pad: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shared {
    pub(crate) nr_idle_scan: u32,
    pub(crate) has_idle_core: u32,
}

/// What wake-ups leave in a task. The idle task of a CPU has one too: it is the waker in an
/// interrupt that comes while the CPU is idle.
///
/// Source: specs/wake.md#entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// When its flips were halved last, in jiffies.
    pub decay_jiffies: u64,
    /// How often it woke another task than the one before, halved at most once a second.
    pub flips: u32,
    /// The number of the task that it woke last; [`Task::NO_WAKEE`] before the first.
    pub last_wakee: u32,
    /// A CPU that it used recently.
    pub recent: u32,
    _pad: u32,
}

impl Task {
    /// `last_wakee` of a task that has woken nobody.
    pub const NO_WAKEE: u32 = u32::MAX;

    /// A task without a parent: the first one, and the idle task of a CPU.
    ///
    /// * `cpu` – where it is.
    /// * `jiffies` – now.
    #[must_use]
    pub fn born(cpu: u32, jiffies: u64) -> Self {
        Self { decay_jiffies: jiffies, flips: 0, last_wakee: Self::NO_WAKEE, recent: cpu, _pad: 0 }
    }

    /// A task that this one forks: it begins with its parent's partners.
    ///
    /// * `cpu` – where the parent is, before the fork is balanced.
    ///
    /// Source: specs/wake.md#fork.
    #[must_use]
    pub fn fork(&self, cpu: u32) -> Self {
        Self { recent: cpu, ..*self }
    }
}

#[repr(C)]
pub(crate) struct View {
    pub(crate) nr_cpus: u32,
    pub(crate) version: u32,
    pub(crate) recent: u32,
    pub(crate) has: u32,
    pub(crate) hz: u32,
    pub(crate) all: u32,
    pub(crate) capacity_orig_max: u32,
    pub(crate) _pad: u32,
    pub(crate) place: *const Place,
    pub(crate) domain: *const Domain,
    pub(crate) masks: *const u64,
    pub(crate) idle: *const u64,
    pub(crate) idle_core: *const u64,
    pub(crate) sched_idle: *const u64,
    pub(crate) active: *const u64,
    pub(crate) nr_running: *const u32,
    pub(crate) nr_delayed: *const u32,
    pub(crate) load: *const u64,
    pub(crate) capacity: *const u32,
    pub(crate) capacity_orig: *const u32,
    pub(crate) avg_idle: *const u64,
    pub(crate) scan_cost: *const u64,
    pub(crate) shared: *mut Shared,
    pub(crate) allowed: *const u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Up {
    pub(crate) waker_cpu: u32,
    pub(crate) prev: u32,
    pub(crate) task_cpu: u32,
    pub(crate) wakee: u32,
    pub(crate) nr_allowed: u32,
    pub(crate) flags: u32,
    pub(crate) jiffies: u64,
    pub(crate) waker_load: u64,
    pub(crate) wakee_load: u64,
    pub(crate) wakee_util: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen {
    pub(crate) cpu: u32,
    pub(crate) target: u32,
    pub(crate) scanned: u32,
    pub(crate) reason: u8,
    pub(crate) level: u8,
    pub(crate) did: u8,
    pub(crate) _pad: u8,
}

const _: () = assert!(size_of::<Domain>() == 16);
const _: () = assert!(size_of::<Place>() == 64);
const _: () = assert!(size_of::<Shared>() == 8);
const _: () = assert!(size_of::<Task>() == 24);
const _: () = assert!(size_of::<Chosen>() == 16);
const _: () = assert!(size_of::<View>() == 32 + 16 * size_of::<usize>());
const _: () = assert!(size_of::<Up>() == 56);
const _: () = assert!(align_of::<View>() == 8 && align_of::<Task>() == 8);

unsafe extern "C" {
    pub(crate) fn hn_native_choose(
        view: *const View,
        up: *const Up,
        waker: *mut Task,
        wakee: *mut Task,
        choice: *mut Chosen,
    );
    pub(crate) fn hn_native_enter_idle(view: *const View, cpu: u32);
    pub(crate) safe fn hn_native_nr_idle_scan(sum_util: u64, llc_size: u32, pct: u32) -> u32;
}
