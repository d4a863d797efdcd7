//! What a choice looks at, and the choice.

use crate::choice::{Allowed, Choice, Reason, Wakeup};
use crate::layout::{Layout, LayoutError, SharedId};
use crate::raw::{self, Chosen, NO_CPU, NO_LEVEL, Shared, Task, View};

/// Kernels whose rules differ, oldest first.
///
/// Source: specs/wake.md#versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Version {
    /// Loads alone decide between two CPUs, and whole groups have to be idle.
    V4_5 = 0,
    /// Before the seed's series.
    V4_15 = 1,
    /// The seed's series applied; whether tasks have a recent CPU is [`Recent`]'s.
    V4_16 = 2,
    /// Today.
    V6_12 = 3,
    /// The newest.
    V7_3 = 4,
}

/// Who keeps a recently used CPU.
///
/// Source: specs/wake.md#recent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Recent {
    /// Nobody: before the seed, or a seed without its patch.
    None = 0,
    /// The seed's: a waker keeps the CPU it wakes from; a wakee, on a hit, the one it leaves.
    Waker = 1,
    /// Today's: a wakee keeps the one it leaves, hit or not.
    Wakee = 2,
}

/// By which rules is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Whose.
    pub version: Version,
    /// The recently used CPU may be another version's, to see what it does.
    pub recent: Recent,
    /// Jiffies a second.
    pub hz: u32,
}

impl Rules {
    /// A kernel's own, with 250 jiffies a second.
    #[must_use]
    pub fn of(version: Version) -> Self {
        let recent = match version {
            Version::V4_5 | Version::V4_15 => Recent::None,
            Version::V4_16 => Recent::Waker,
            Version::V6_12 | Version::V7_3 => Recent::Wakee,
        };
        Self { version, recent, hz: 250 }
    }
}

/// Why there is no choice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WakeError {
    /// A wake-up from, of or to a CPU that isn't there.
    #[error(
        "the wake-up names a CPU that isn't there: of {nr_cpus}, waker on {waker_cpu}, wakee on {prev}"
    )]
    NoCpu {
        /// How many there are.
        nr_cpus: usize,
        /// The waker's.
        waker_cpu: u32,
        /// The wakee's.
        prev: u32,
    },
    /// Fewer words than the layout's.
    #[error("the set of allowed CPUs has {words} words, the layout {nr_words}")]
    Allowed {
        /// Words it has.
        words: usize,
        /// Words it should have.
        nr_words: usize,
    },
    /// Not one CPU is active.
    #[error("no CPU is active")]
    NoneActive,
    /// A task that wakes itself, or that isn't in the slice.
    #[error("task {waker} wakes task {wakee}: both have to be there, and two")]
    Tasks {
        /// The waker's number.
        waker: u32,
        /// The wakee's.
        wakee: u32,
    },
}

/// The CPUs of a machine, as a choice looks at them.
///
/// Whoever runs the queues tells what changes, when it changes; each call takes a few
/// nanoseconds. In the beginning all CPUs are active and idle, of capacity 1024.
#[derive(Clone, Debug)]
pub struct Cpus {
    pub(crate) layout: Layout,
    pub(crate) rules: Rules,
    pub(crate) idle: Vec<u64>,
    pub(crate) idle_core: Vec<u64>,
    pub(crate) sched_idle: Vec<u64>,
    pub(crate) active: Vec<u64>,
    pub(crate) nr_running: Vec<u32>,
    pub(crate) nr_delayed: Vec<u32>,
    pub(crate) load: Vec<u64>,
    pub(crate) capacity: Vec<u32>,
    pub(crate) capacity_orig: Vec<u32>,
    pub(crate) capacity_orig_max: u32,
    pub(crate) avg_idle: Vec<u64>,
    pub(crate) scan_cost: Vec<u64>,
    pub(crate) shared: Vec<Shared>,
}

/// avg_idle of a CPU that has never been idle: twice the cost of a migration, 0.5 ms.
const AVG_IDLE_NS: u64 = 1_000_000;

fn put(set: &mut [u64], cpu: u32, on: bool) {
    let (word, bit) = ((cpu / 64) as usize, 1 << (cpu % 64));
    if on { set[word] |= bit } else { set[word] &= !bit }
}

fn holds(set: &[u64], cpu: u32) -> bool {
    set[(cpu / 64) as usize] >> (cpu % 64) & 1 == 1
}

impl Cpus {
    /// CPUs that are all active and idle.
    #[must_use]
    pub fn new(layout: Layout, rules: Rules) -> Self {
        let (n, words) = (layout.nr_cpus(), layout.nr_words());
        let mut every = vec![u64::MAX; words];
        if n % 64 != 0 {
            every[words - 1] = (1 << (n % 64)) - 1;
        }
        let shared = vec![Shared::default(); layout.nr_shared()];
        Self {
            layout,
            rules,
            idle: every.clone(),
            idle_core: every.clone(),
            sched_idle: vec![0; words],
            active: every,
            nr_running: vec![0; n],
            nr_delayed: vec![0; n],
            load: vec![0; n],
            capacity: vec![1024; n],
            capacity_orig: vec![1024; n],
            capacity_orig_max: 1024,
            avg_idle: vec![AVG_IDLE_NS; n],
            scan_cost: vec![0; n],
            shared,
        }
    }

    /// Another layout of the same CPUs, as after one has gone or come. Domains begin anew:
    /// `has_idle_core` is off, `nr_idle_scan` 0, scans cost nothing yet. What CPUs do stays.
    ///
    /// # Errors
    /// If it has another number of CPUs.
    ///
    /// Source: specs/wake.md#budget.
    pub fn rebuild(&mut self, layout: Layout) -> Result<(), LayoutError> {
        let (new, old) = (layout.nr_cpus(), self.layout.nr_cpus());
        if new != old {
            return Err(LayoutError::OtherSize { new, old });
        }
        self.shared = vec![Shared::default(); layout.nr_shared()];
        self.layout = layout;
        self.scan_cost.fill(0);
        for cpu in 0..old as u32 {
            let whole = self.layout.siblings(cpu).iter().all(|s| holds(&self.idle, (*s).into()));
            put(&mut self.idle_core, cpu, whole);
        }
        Ok(())
    }

    /// Where the CPUs are.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// By which rules is chosen.
    #[must_use]
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// Whether a CPU is available idle: it runs its idle task, its queue is empty, no task is
    /// on its way to it, and a host, if there is one, lets it run. The idle task of a CPU that
    /// is offline runs too.
    ///
    /// # Panics
    /// If there is no such CPU; so do all that tell or ask of one.
    ///
    /// Source: specs/wake.md#idle.
    pub fn set_idle(&mut self, cpu: u32, idle: bool) {
        put(&mut self.idle, cpu, idle);
        let siblings = self.layout.siblings(cpu);
        if siblings.len() == 1 {
            put(&mut self.idle_core, cpu, idle);
            return;
        }
        let whole = siblings.iter().all(|s| holds(&self.idle, (*s).into()));
        for sibling in siblings {
            put(&mut self.idle_core, (*sibling).into(), whole);
        }
    }

    /// A CPU turns to its idle task: its LLC has an idle core from now on, if the other CPUs
    /// of this core are idle already. [`Cpus::set_idle`] is told besides, before or after.
    ///
    /// Source: specs/wake.md#cores.
    pub fn enter_idle(&mut self, cpu: u32) {
        let view = self.view(std::ptr::null());
        // SAFETY: the view's pointers are to arrays of this `Cpus`, which nobody else touches
        // meanwhile, as long as the layout says and with indexes that were checked when the
        // layout was built; the header compares `cpu` with their length.
        unsafe { raw::hn_native_enter_idle(&raw const view, cpu) }
    }

    /// Whether a CPU has tasks, and only such of the policy SCHED_IDLE.
    pub fn set_sched_idle(&mut self, cpu: u32, only: bool) {
        put(&mut self.sched_idle, cpu, only);
    }

    /// Tasks of all classes on a CPU, those of the fair class whose dequeue is delayed among
    /// them, and how many the latter are.
    pub fn set_running(&mut self, cpu: u32, nr_running: u32, nr_delayed: u32) {
        self.nr_running[cpu as usize] = nr_running;
        self.nr_delayed[cpu as usize] = nr_delayed;
    }

    /// The load of a CPU's root fair queue: `load_avg`; up to 4.16 `runnable_load_avg`.
    pub fn set_load(&mut self, cpu: u32, load: u64) {
        self.load[cpu as usize] = load;
    }

    /// A CPU's capacity for the fair class, 1024 being a full one; 0 counts as 1.
    pub fn set_capacity(&mut self, cpu: u32, capacity: u32) {
        self.capacity[cpu as usize] = capacity.max(1);
    }

    /// A CPU's capacity before other classes and interrupts take their part. Up to 4.16 only.
    pub fn set_capacity_orig(&mut self, cpu: u32, capacity: u32) {
        self.capacity_orig[cpu as usize] = capacity;
        self.capacity_orig_max = self.capacity_orig.iter().copied().max().unwrap_or(0);
    }

    /// Whether tasks may be put on a CPU.
    pub fn set_active(&mut self, cpu: u32, active: bool) {
        put(&mut self.active, cpu, active);
    }

    /// Mean time in ns that a CPU is idle at a stretch. Up to 4.16 only.
    pub fn set_avg_idle(&mut self, cpu: u32, ns: u64) {
        self.avg_idle[cpu as usize] = ns;
    }

    /// A search of `cpu`, as the waker's CPU, has taken so long; told after a choice with
    /// [`Choice::scan_timed`].
    ///
    /// Source: specs/wake.md#cost-scan.
    pub fn note_scan_cost(&mut self, cpu: u32, ns: u64) {
        let cost = &mut self.scan_cost[cpu as usize];
        *cost = scan_cost(*cost, ns);
    }

    /// How many CPUs of an LLC a wake-up may look at: what balancing says ([`nr_idle_scan`]).
    pub fn set_nr_idle_scan(&mut self, shared: SharedId, n: u32) {
        self.shared[shared.index()].nr_idle_scan = n;
    }

    /// Whether an LLC has an idle core, where somebody else has kept count of that.
    pub fn set_has_idle_core(&mut self, shared: SharedId, has: bool) {
        self.shared[shared.index()].has_idle_core = has.into();
    }

    /// How many CPUs a wake-up may look at, asked.
    #[must_use]
    pub fn nr_idle_scan(&self, shared: SharedId) -> u32 {
        self.shared[shared.index()].nr_idle_scan
    }

    /// Whether there was an idle core when one was last looked for.
    #[must_use]
    pub fn has_idle_core(&self, shared: SharedId) -> bool {
        self.shared[shared.index()].has_idle_core != 0
    }

    /// Whether a CPU is available idle.
    #[must_use]
    pub fn is_idle(&self, cpu: u32) -> bool {
        holds(&self.idle, cpu)
    }

    /// Whether all CPUs of its core are.
    #[must_use]
    pub fn is_core_idle(&self, cpu: u32) -> bool {
        holds(&self.idle_core, cpu)
    }

    /// The available idle CPUs, a bit each.
    #[must_use]
    pub fn idle_words(&self) -> &[u64] {
        &self.idle
    }

    fn view(&mut self, allowed: *const u64) -> View {
        View {
            // At most MAX_CPUS.
            nr_cpus: self.layout.places.len() as u32,
            version: self.rules.version as u32,
            recent: self.rules.recent as u32,
            has: self.layout.has,
            hz: self.rules.hz,
            all: self.layout.all.into(),
            capacity_orig_max: self.capacity_orig_max,
            _pad: 0,
            place: self.layout.places.as_ptr(),
            domain: self.layout.domains.as_ptr(),
            masks: self.layout.masks.as_ptr(),
            idle: self.idle.as_ptr(),
            idle_core: self.idle_core.as_ptr(),
            sched_idle: self.sched_idle.as_ptr(),
            active: self.active.as_ptr(),
            nr_running: self.nr_running.as_ptr(),
            nr_delayed: self.nr_delayed.as_ptr(),
            load: self.load.as_ptr(),
            capacity: self.capacity.as_ptr(),
            capacity_orig: self.capacity_orig.as_ptr(),
            avg_idle: self.avg_idle.as_ptr(),
            scan_cost: self.scan_cost.as_ptr(),
            shared: self.shared.as_mut_ptr(),
            allowed,
        }
    }

    /// Chooses a CPU for a task that wakes up, and brings both tasks and `has_idle_core` up
    /// to date. It moves nothing and counts nothing: the choice says what is to be counted.
    ///
    /// Not to be asked where the kernel doesn't choose: the wakee is the waker itself, is
    /// still queued (a delayed dequeue is), or still switches out and goes on a wake list.
    ///
    /// # Errors
    /// If a CPU isn't there, the set of allowed ones is too short, or no CPU is active.
    ///
    /// Source: specs/wake.md#entry.
    pub fn choose(
        &mut self,
        waker: &mut Task,
        wakee: &mut Task,
        wakeup: &Wakeup<'_>,
    ) -> Result<Choice, WakeError> {
        let nr_words = self.layout.nr_words();
        let allowed = match wakeup.allowed {
            Allowed::All => std::ptr::null(),
            Allowed::Words(words) if words.len() >= nr_words => words.as_ptr(),
            Allowed::Words(words) => {
                return Err(WakeError::Allowed { words: words.len(), nr_words });
            }
        };
        let up = wakeup.up();
        let mut chosen = Chosen {
            cpu: NO_CPU,
            target: NO_CPU,
            scanned: 0,
            reason: 0,
            level: 0,
            did: 0,
            _pad: 0,
        };
        let view = self.view(allowed);
        // SAFETY: the view's pointers are to arrays of this `Cpus`, which is borrowed for
        // writing, with as many elements as the layout has CPUs, words, domains and masks;
        // all indexes in the layout were checked when it was built, the header compares
        // those of the wake-up and the wakee's recent CPU with the number of CPUs, and
        // `allowed` is null or has enough words. The tasks are two, as both are borrowed
        // for writing. The header keeps none of these pointers.
        unsafe {
            raw::hn_native_choose(&raw const view, &raw const up, waker, wakee, &raw mut chosen);
        }
        decode(&chosen).ok_or_else(|| {
            let nr_cpus = self.layout.nr_cpus();
            let (waker_cpu, prev) = (wakeup.waker_cpu, wakeup.prev);
            let there = [waker_cpu, prev, wakeup.task_cpu].iter().all(|c| (*c as usize) < nr_cpus);
            if there {
                WakeError::NoneActive
            } else {
                WakeError::NoCpu { nr_cpus, waker_cpu, prev }
            }
        })
    }

    /// The same for tasks that stand in one slice: `waker` and `wakeup.wakee` are places in it.
    ///
    /// # Errors
    /// If they are the same or not in it, and as [`Cpus::choose`].
    pub fn choose_in(
        &mut self,
        tasks: &mut [Task],
        waker: u32,
        wakeup: &Wakeup<'_>,
    ) -> Result<Choice, WakeError> {
        let wakee = wakeup.wakee;
        let (low, high) = (waker.min(wakee) as usize, waker.max(wakee) as usize);
        if low == high || high >= tasks.len() {
            return Err(WakeError::Tasks { waker, wakee });
        }
        let (left, right) = tasks.split_at_mut(high);
        let (low, high) = (&mut left[low], &mut right[0]);
        let (waker, wakee) = if waker < wakee { (low, high) } else { (high, low) };
        self.choose(waker, wakee, wakeup)
    }
}

/// In the face's words; nothing if the header could not choose.
pub(crate) fn decode(chosen: &Chosen) -> Option<Choice> {
    let did = |bit: u8| chosen.did & bit != 0;
    Some(Choice {
        cpu: chosen.cpu,
        reason: Reason::of(chosen.reason)?,
        target: chosen.target,
        level: (chosen.level != NO_LEVEL).then_some(chosen.level),
        affine: did(raw::DID_AFFINE),
        wide: did(raw::DID_WIDE),
        scanned: chosen.scanned,
        recent_changed: did(raw::DID_RECENT),
        waker_recent_changed: did(raw::DID_WAKER_RECENT),
        flips_changed: did(raw::DID_FLIPS),
        idle_core_cleared: did(raw::DID_CLEAR_CORE),
        scan_timed: did(raw::DID_TIME_SCAN),
    })
}

/// How many CPUs of an LLC a wake-up may look at, by how busy they are: all of 16 if they do
/// nothing, 10 at half their capacity, none from about 85 % on.
///
/// * `sum_util` – of the LLC's CPUs, 1024 for a whole one.
/// * `imbalance_pct` – of the domain whose CPUs are the LLC's.
///
/// Source: specs/wake.md#budget.
#[must_use]
pub fn nr_idle_scan(sum_util: u64, llc_size: u32, imbalance_pct: u32) -> u32 {
    raw::hn_native_nr_idle_scan(sum_util, llc_size, imbalance_pct)
}

/// The average cost of a scan after one more, in ns: an eighth of the way, cut toward the
/// old one. Up to 4.16.
///
/// Source: specs/wake.md#cost-scan.
#[must_use]
pub fn scan_cost(old: u64, took: u64) -> u64 {
    if took >= old { old + (took - old) / 8 } else { old - (old - took) / 8 }
}
