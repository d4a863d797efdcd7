//! The CPUs: who runs where, which CPUs are busy, and how far each has come. Who waits for them is
//! the scheduler's business.
//!
//! Only busy CPUs are in the heap of clocks and in the set that ticks go through. A CPU
//! without a task costs nothing.

use crate::table::{prefetch_at, prefetch_value};
use crate::timeline::KnockOut;
use homenode_core::costs::Cost;
use homenode_core::sched::speed::{Pace, UNSHARED};
use homenode_core::topology::{Hardware, SCHED_CAPACITY_SCALE};
use homenode_core::units::CpuId;
use std::collections::BTreeMap;

/// What a CPU did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuFigures {
    /// Picoseconds in which a task ran, or was on its way there.
    pub busy_ps: u64,
    /// How often one task was followed by another.
    pub switches: u64,
    /// How often it became idle.
    pub idles: u64,
    /// Clocks of its busy time, in picoseconds × MHz; 0 where the machine's file says nothing of
    /// its clock.
    pub clocks: u128,
}

impl CpuFigures {
    /// Its mean clock while it was busy, in MHz; `None`: it never was, or the file says nothing.
    pub fn mean_mhz(&self) -> Option<f64> {
        (self.clocks > 0 && self.busy_ps > 0).then(|| self.clocks as f64 / self.busy_ps as f64)
    }
}

/// A CPU. What each turn looks at comes first, in one line of the host's cache.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Cpu {
    /// How far it has come, with what its task has run ahead.
    clock: u64,
    /// The task that runs.
    current: Option<usize>,
    /// Whether its task has run ahead: what lies between the task's clock and this CPU's
    /// may still be cut.
    pub(crate) ran_ahead: bool,
    /// What it has run ahead are calls of its task.
    pub(crate) by_calls: bool,
    /// Whether it may have come further than whoever asked: it is cut before its clock is read.
    pub(crate) far: bool,
    /// Whether its task waits with an act, at this CPU's clock.
    pub(crate) before_act: bool,
    /// Its task has begun an act that is done at this CPU's clock: there is nothing to run ahead.
    pub(crate) in_act: bool,
    /// Its number.
    pub(crate) number: CpuId,
    /// When its task has begun a call that it began ahead of time, the last time that it did; 0: it has not.
    pub(crate) began: u64,
    /// Place of its node.
    pub(crate) node: usize,
    /// Since when it is busy, or idle.
    since: u64,
    /// How fast it computes now, of [`SCHED_CAPACITY_SCALE`], and what that is made of.
    speed: u32,
    /// Its last-level cache.
    pub(crate) llc: u32,
    pace: Pace,
    /// Its nominal clock in MHz, if the file says it.
    nominal: Option<u32>,
    /// What it did so far, up to the time since when it is busy.
    figures: CpuFigures,
}

impl Cpu {
    /// The task that runs.
    #[inline]
    pub(crate) fn current(&self) -> Option<usize> {
        self.current
    }
    /// How long it computes what a CPU at full speed computes in `work` parts of its time,
    /// [`SCHED_CAPACITY_SCALE`] parts a picosecond: then work in parts is never rounded,
    /// however often it is interrupted.
    #[inline]
    pub(crate) fn time(&self, work: u64) -> u64 {
        // A division by a constant is a shift: most CPUs are at full speed.
        match self.speed {
            SCHED_CAPACITY_SCALE => work.div_ceil(u64::from(SCHED_CAPACITY_SCALE)),
            speed => work.div_ceil(u64::from(speed)),
        }
    }
    /// The same for work in picoseconds at full speed.
    #[inline]
    pub(crate) fn computing(&self, full: u64) -> u64 {
        self.time(parts(full))
    }
    /// The work that it does in a time.
    #[inline]
    pub(crate) fn work(&self, time: u64) -> u64 {
        time.saturating_mul(u64::from(self.speed))
    }
    /// Since when it is busy, if it is: that may still come.
    pub(crate) fn busy_since(&self) -> u64 {
        self.since
    }
    /// How fast it computes alone, of [`SCHED_CAPACITY_SCALE`].
    pub(crate) fn capacity(&self) -> u32 {
        self.pace.capacity
    }
    /// Clocks of a busy time, in picoseconds × MHz; 0 where the file says nothing of its clock.
    fn clocks(&self, busy: u64) -> u128 {
        let known = self.nominal.is_some();
        if known { u128::from(busy) * u128::from(self.pace.mhz) } else { 0 }
    }
    /// Its clock now, in MHz.
    pub(crate) fn mhz(&self) -> u32 {
        self.pace.mhz
    }
    /// Its nominal clock, in MHz.
    pub(crate) fn nominal_mhz(&self) -> u32 {
        self.pace.nominal
    }
    /// How long it has been busy until a time.
    pub(crate) fn busy_until(&self, now: u64) -> u64 {
        self.figures.busy_ps + self.current.map_or(0, |_| now.saturating_sub(self.since))
    }
    #[inline]
    pub(crate) fn clock(&self) -> u64 {
        self.clock
    }
}

/// Where things lie that a CPU's next turn begins with. Where thousands are busy nothing
/// of a turn is in the host's caches any more when the next one comes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Near {
    /// The task.
    pub(crate) task: u32,
    /// The address of its next operations.
    pub(crate) ops: usize,
    /// The address of its program.
    pub(crate) program: usize,
}

/// Work of so many picoseconds at full speed, in parts.
#[inline]
pub(crate) fn parts(full: u64) -> u64 {
    full.saturating_mul(u64::from(SCHED_CAPACITY_SCALE))
}

/// It is no CPU's turn.
const NOBODY: usize = usize::MAX;

/// So many busy CPUs that what the next turn needs is in none of the host's near caches.
const MANY: usize = 128;

/// All CPUs of a machine, by place.
#[derive(Clone, Debug)]
pub(crate) struct Cpus {
    all: Vec<Cpu>,
    /// CPU number → place.
    places: BTreeMap<CpuId, usize>,
    /// A slot for each CPU; busy ones have their clock in it, but for the one that has its turn.
    clocks: KnockOut,
    /// Whose turn it is, `NOBODY` between two turns.
    turn: usize,
    /// The time of the latest turn, and the highest CPU that had one then.
    latest: (u64, usize),
    /// One bit for each CPU: whether it is busy; and how many are.
    busy: Vec<u64>,
    nr_busy: usize,
    near: Vec<Near>,
    /// By CPU: its siblings; none where they slow nobody.
    siblings: Vec<Box<[u32]>>,
    /// What a busy sibling leaves of a CPU, in thousandths.
    shared: u32,
}

impl Cpus {
    pub(crate) fn new(machine: &Hardware) -> Self {
        let pace = |c: &homenode_core::topology::Cpu| {
            let mhz = c.mhz.unwrap_or(1);
            Pace { capacity: c.capacity, mhz, nominal: mhz, ..Pace::default() }
        };
        let all: Vec<Cpu> = machine
            .cpus
            .iter()
            .map(|c| Cpu {
                node: machine.position(c.node).expect("a checked machine"),
                number: c.id,
                llc: c.llc,
                speed: pace(c).speed(),
                pace: pace(c),
                nominal: c.mhz,
                current: None,
                clock: 0,
                ran_ahead: false,
                far: false,
                by_calls: false,
                before_act: false,
                in_act: false,
                began: 0,
                figures: CpuFigures::default(),
                since: 0,
            })
            .collect();
        let clocks = KnockOut::new(all.len());
        let places = all.iter().enumerate().map(|(i, c)| (c.number, i)).collect();
        let busy = vec![0; all.len().div_ceil(64)];
        let near = vec![Near::default(); all.len()];
        let shared = machine.costs.get(Cost::SiblingSpeed) as u32;
        let mut cores: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        if shared != UNSHARED {
            for (place, c) in machine.cpus.iter().enumerate() {
                cores.entry(c.core).or_default().push(place as u32);
            }
        }
        let others = |(place, c): (usize, &homenode_core::topology::Cpu)| {
            let of = cores.get(&c.core).map_or(&[][..], Vec::as_slice);
            of.iter().copied().filter(|&s| s as usize != place).collect()
        };
        let siblings = machine.cpus.iter().enumerate().map(others).collect();
        Self {
            all,
            places,
            clocks,
            turn: NOBODY,
            latest: (u64::MAX, 0),
            busy,
            nr_busy: 0,
            near,
            siblings,
            shared,
        }
    }
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
    /// The place of a CPU by its number; the first where there is none of that number.
    pub(crate) fn place(&self, cpu: CpuId) -> usize {
        self.places.get(&cpu).copied().unwrap_or(0)
    }
    /// The place of a CPU by its number, if there is one.
    pub(crate) fn find(&self, cpu: CpuId) -> Option<usize> {
        self.places.get(&cpu).copied()
    }
    /// The busy CPU that is furthest behind: its clock and its place.
    #[inline]
    pub(crate) fn furthest_behind(&self) -> Option<(u64, usize)> {
        debug_assert_eq!(self.turn, NOBODY, "nobody's clock is left to be set");
        self.clocks.first().map(|(clock, slot)| (clock, slot as usize))
    }
    /// Whether a CPU's turn at a time, which is now, has been or is: those of CPUs of higher number come later.
    #[inline]
    pub(crate) fn had_turn(&self, time: u64, cpu: usize) -> bool {
        self.latest.0 == time && cpu <= self.latest.1
    }
    /// The time of the latest turn.
    pub(crate) fn latest(&self) -> u64 {
        self.latest.0
    }
    /// The CPU that has its turn does so at this time.
    #[inline]
    pub(crate) fn note_turn(&mut self, time: u64) {
        let same = self.latest.0 == time;
        self.latest = (time, if same { self.turn.max(self.latest.1) } else { self.turn });
    }
    /// It is this CPU's turn from now on.
    #[inline]
    pub(crate) fn begin_turn(&mut self, cpu: usize) {
        self.turn = cpu;
        self.clocks.clear(cpu as u32);
    }
    /// Its turn is over. Its clock, which may have been set several times meanwhile, is known to all now.
    #[inline]
    pub(crate) fn end_turn(&mut self) {
        let cpu = std::mem::replace(&mut self.turn, NOBODY);
        let here = &self.all[cpu];
        if here.current.is_some() {
            self.clocks.set(cpu as u32, here.clock);
        }
    }
    /// The clock of whichever is furthest behind of all others, and its place.
    #[inline]
    pub(crate) fn others_behind(&self, cpu: usize) -> Option<(u64, u32)> {
        debug_assert_eq!(cpu, self.turn, "it is known for the CPU that has its turn");
        self.clocks.first()
    }
    /// The clock of whichever is furthest behind of all others; `u64::MAX` where no other
    /// is busy.
    #[inline]
    pub(crate) fn others_clock(&self, cpu: usize) -> u64 {
        self.others_behind(cpu).map_or(u64::MAX, |(clock, _)| clock)
    }
    /// The CPU whose turn most likely comes after the next one; what says where its things lie, and those of the
    /// ones behind it, is fetched.
    #[inline]
    pub(crate) fn next_but_one(&self) -> Option<usize> {
        for cpu in self.clocks.last_round() {
            prefetch_at(self.near.as_ptr().wrapping_add(cpu as usize));
            self.clocks.fetch(cpu);
        }
        self.clocks.second().map(|cpu| cpu as usize)
    }
    /// Says where the things lie of a CPU's next turn.
    #[inline]
    pub(crate) fn set_near(&mut self, cpu: usize, near: Near) {
        self.near[cpu] = near;
    }
    /// Where the things lie of a CPU's next turn.
    #[inline]
    pub(crate) fn near(&self, cpu: usize) -> Near {
        self.near[cpu]
    }
    /// Has what a CPU's next turn needs of it fetched, and says where the rest lies.
    #[inline]
    pub(crate) fn fetch(&self, cpu: usize) -> Near {
        let here = &self.all[cpu];
        prefetch_value(std::ptr::from_ref(here).addr(), size_of::<Cpu>());
        self.near[cpu]
    }
    /// A CPU has come so far.
    #[inline]
    pub(crate) fn reach(&mut self, cpu: usize, clock: u64) {
        self.all[cpu].clock = clock;
        if cpu != self.turn {
            self.clocks.set(cpu as u32, clock);
        }
    }
    /// The busy CPUs, in rising order.
    pub(crate) fn busy(&self) -> impl Iterator<Item = usize> {
        std::iter::successors(self.busy_from(0), |cpu| self.busy_from(cpu + 1))
    }
    /// The busy CPUs from this place on, the first of them.
    pub(crate) fn busy_from(&self, from: usize) -> Option<usize> {
        let (mut word, mut mask) = (from / 64, u64::MAX << (from % 64));
        loop {
            let bits = self.busy.get(word)? & mask;
            if bits != 0 {
                return Some(word * 64 + bits.trailing_zeros() as usize);
            }
            (word, mask) = (word + 1, u64::MAX);
        }
    }
    /// A task runs on a CPU from a time on; the CPU has been on its way to it since `from`.
    pub(crate) fn run(&mut self, cpu: usize, task: usize, from: u64) {
        let here = &mut self.all[cpu];
        match here.current.replace(task) {
            None => {
                // Its last task may have had an act that lasted until later.
                here.since = from.max(here.since);
                self.nr_busy += 1;
            }
            Some(_) => here.figures.switches += 1,
        }
        (here.ran_ahead, here.before_act, here.in_act) = (false, false, false);
        self.busy[cpu / 64] |= 1 << (cpu % 64);
    }
    /// The sibling of a CPU of that number, from 0 on, if siblings slow each other.
    #[inline]
    pub(crate) fn sibling(&self, cpu: usize, number: usize) -> Option<usize> {
        // Most machines' don't: then nothing of a CPU is looked at.
        if self.shared == UNSHARED {
            return None;
        }
        self.siblings[cpu].get(number).map(|&s| s as usize)
    }
    /// What a CPU's speed would be made of now, if it is not what it computes at.
    pub(crate) fn other_pace(&self, cpu: usize) -> Option<Pace> {
        let busy = |s: &u32| self.all[*s as usize].current.is_some();
        let sibling = if self.siblings[cpu].iter().any(busy) { self.shared } else { UNSHARED };
        let here = &self.all[cpu];
        (here.pace.sibling != sibling).then_some(Pace { sibling, ..here.pace })
    }
    /// A CPU computes at another speed from now on. What it has run ahead has been settled.
    pub(crate) fn set_pace(&mut self, cpu: usize, pace: Pace) {
        let here = &mut self.all[cpu];
        (here.pace, here.speed) = (pace, pace.speed());
    }
    /// A CPU has another clock from a time on. What it has run ahead has been settled.
    pub(crate) fn set_mhz(&mut self, cpu: usize, mhz: u32, now: u64) {
        let here = &mut self.all[cpu];
        let before = here.clocks(here.current.map_or(0, |_| now.saturating_sub(here.since)));
        let pace = Pace { mhz, ..here.pace };
        (here.pace, here.speed) = (pace, pace.speed());
        let after = here.clocks(here.current.map_or(0, |_| now.saturating_sub(here.since)));
        // When it rests, all its time counts with the clock that it has then: what was before is put right here.
        here.figures.clocks = here.figures.clocks.wrapping_add(before).wrapping_sub(after);
    }
    /// Nobody runs on a CPU from now on.
    pub(crate) fn rest(&mut self, cpu: usize, now: u64) {
        let here = &mut self.all[cpu];
        here.current = None;
        let busy = now.saturating_sub(here.since);
        here.figures.busy_ps += busy;
        here.figures.clocks = here.figures.clocks.wrapping_add(here.clocks(busy));
        here.since = now;
        // Whoever comes next begins then at the earliest.
        here.clock = here.clock.max(now);
        here.figures.idles += 1;
        self.nr_busy -= 1;
        self.busy[cpu / 64] &= !(1 << (cpu % 64));
        if cpu != self.turn {
            self.clocks.clear(cpu as u32);
        }
    }
    /// Whether so many are busy that what each needs has to be fetched before its turn.
    #[inline]
    pub(crate) fn are_many(&self) -> bool {
        self.nr_busy > MANY
    }
    /// Whether there are CPUs enough that so many can be busy.
    #[inline]
    pub(crate) fn may_be_many(&self) -> bool {
        self.all.len() > MANY
    }
    /// One bit for each CPU: whether it is busy; and how many are idle.
    #[inline]
    pub(crate) fn busy_words(&self) -> (&[u64], u64) {
        (&self.busy, (self.all.len() - self.nr_busy) as u64)
    }
    /// What each CPU did until now.
    pub(crate) fn figures(&self, now: u64) -> Vec<CpuFigures> {
        let of = |c: &Cpu| {
            let open = c.current.map_or(0, |_| now.saturating_sub(c.since));
            let clocks = c.figures.clocks.wrapping_add(c.clocks(open));
            CpuFigures { busy_ps: c.figures.busy_ps + open, clocks, ..c.figures }
        };
        self.all.iter().map(of).collect()
    }
}

impl std::ops::Index<usize> for Cpus {
    type Output = Cpu;
    #[inline]
    fn index(&self, cpu: usize) -> &Cpu {
        &self.all[cpu]
    }
}

impl std::ops::IndexMut<usize> for Cpus {
    #[inline]
    fn index_mut(&mut self, cpu: usize) -> &mut Cpu {
        &mut self.all[cpu]
    }
}
