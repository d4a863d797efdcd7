//! A recording runs again: on another machine, with other knobs, over and over.
//!
//! A recording holds, for each task, what reached memory page by page, with the
//! instructions between. Replay charges
//!
//! ```text
//! instructions · time of an instruction  +  misses · latency now / memory parallelism
//! ```
//!
//! Worked example: 1,000 instructions at 0.25 ns, then 8 reads that miss on a node
//! of 100 ns at a parallelism of 4: 250 ns + 8 · 100 / 4 = 450 ns.
//!
//! Where [`Charge::overlap`] is given, misses overlap as [`Overlap`] has it: by their
//! distance in instructions, and streams by what prefetchers bring.
//!
//! The first task starts again when it is through, in the memory that it has, as a
//! server does the same job again: a mapping that is made again where one still
//! stands keeps its pages. Children and threads run once for each time they are started,
//! and a round is over when the last of them has ended: a recording does not say that a
//! task waited for its threads, and without this the next round would start more of them
//! beside those of the rounds before. Between tasks, forks, thread starts and waits for a
//! child's end are kept, and what a recording's points say ([`Op::Point`]): a task that comes
//! to one goes on when what it waited for has happened in this round too, be it before
//! (specs/waits.md#replay). Locks, semaphores and condition variables go to who comes first here,
//! whoever that was when it was recorded. Who spun in front of one spins here too.

mod counts;
mod spins;

pub use counts::Count;

use crate::cpus::parts;
use crate::hot::{KINDS, OP_WRITE, is_event};
use crate::kernel::Mapping;
use crate::load::PAGE_LINES;
use crate::memory::MemoryError;
use crate::overlap::{Decides, Floor, Missed, Overlap};
use crate::page::{Word, YOUNG};
use crate::program::{Ahead, Program};
pub use crate::simulation::Waited;
use crate::simulation::{Passed, ScoredLines, ScoredRows, Simulation};
use crate::space::Kind;
use crate::tasks::{On, Run, Task, Why};
use crate::watch::By;
use homenode_core::costs::Cost;
use homenode_core::offcore::Offcore;
use homenode_core::scenario::Mempolicy;
use homenode_core::units::{CpuId, HUGE_PAGES, Picos};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Something that a recorded task did. Pages are virtual page numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Misses to one page; both numbers may be 0 where the caches answered.
    Access {
        /// The page.
        page: u64,
        /// Lines that loads fetched.
        reads: u32,
        /// Lines that stores fetched.
        writes: u32,
        /// Whether the task wrote to the page.
        write: bool,
        /// Whether most of the lines followed their neighbours.
        stream: bool,
    },
    /// A new mapping.
    Map {
        /// First page.
        page: u64,
        /// Its length.
        pages: u64,
        /// Readable, writable, executable.
        prot: [bool; 3],
        /// Backed by a file.
        file: bool,
        /// `MAP_SHARED`.
        shared: bool,
    },
    /// A range is unmapped.
    Unmap {
        /// First page.
        page: u64,
        /// Its length.
        pages: u64,
    },
    /// A range gets another protection.
    Protect {
        /// First page.
        page: u64,
        /// Its length.
        pages: u64,
        /// Readable, writable, executable.
        prot: [bool; 3],
    },
    /// A mapping moves with its contents.
    Remap {
        /// First page.
        page: u64,
        /// Its length.
        pages: u64,
        /// Where it is then.
        to: u64,
    },
    /// The contents of a range are given up.
    Discard {
        /// First page.
        page: u64,
        /// Its length.
        pages: u64,
    },
    /// A child process starts: a task of the recording.
    Fork {
        /// Its number.
        child: u32,
    },
    /// A thread starts: a task of the recording.
    Thread {
        /// Its number.
        child: u32,
    },
    /// Another program in the same task: an empty address space.
    Exec,
    /// The task ends.
    Exit,
    /// The task ends, and with it all others of its process, wherever they are.
    ExitGroup,
    /// A signal ends the task, wherever it is: one that is sent at the point that it waits for
    /// just before this, if it waits for one there.
    Killed,
    /// The task has waited for the end of another.
    Wait {
        /// Its number; `None`: one that the recording does not have.
        child: Option<u32>,
    },
    /// A point of the recording's order.
    Point {
        /// Its number, a place in what [`Recording::order`] was given.
        number: u32,
    },
}

impl Op {
    /// The number of a point.
    fn point(self) -> Option<u32> {
        if let Self::Point { number } = self { Some(number) } else { None }
    }
}

/// What a point of a recording's order waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum After {
    /// Nothing.
    #[default]
    Nothing,
    /// That point.
    Point(u32),
    /// So much time.
    Time(Picos),
    /// That point, but for so long at most.
    Until(u32, Picos),
    /// That point, where one of several got what they waited for: whose turn it is, is as
    /// recorded.
    Turn(u32),
    /// That a lock is free: its number. The task has it then until it comes to the second, a
    /// point of its own.
    Lock(u32, u32),
    /// That all tasks whose points wait for this meeting, by its number, have come to them.
    Meet(u32),
    /// Nothing, but it gives so much to a count, by its number ([`Recording::counts`]).
    Post(u32, u32),
    /// The same, and all who wait there run to look whether there is something for them, be it
    /// that nothing is given.
    Broadcast(u32, u32),
    /// That a count, by its number, has so much. The task takes it.
    Take(u32, u32),
    /// Nothing, but the task's next point has a deadline: so much time after the task passed that
    /// point, or after its beginning ([`START`]). Time that the next point waits for ends then;
    /// where it waits for another point without a time, the task wakes up at the deadline in
    /// vain, and waits again for as long.
    Due(u32, Picos),
}

/// In the place of a point: a task's beginning in this round.
pub const START: u32 = u32::MAX;

/// One row: 16 bytes. Accesses hold their page, the rest a place in `others`.
#[derive(Clone, Copy, Debug)]
struct Packed {
    /// Page or place, shifted by three; bit 0: write; bit 1: not an access; bit 2: stream.
    what: u64,
    insns: u32,
    reads: u16,
    writes: u16,
}

impl Packed {
    /// Page of an access, else place in `others`.
    #[inline]
    fn number(&self) -> u64 {
        self.what >> 3
    }
    /// Whether most of its lines followed their neighbours.
    #[inline]
    fn is_stream(&self) -> bool {
        self.what & 4 != 0
    }
    /// What its lines take together, each for itself, where a load and a store take so long.
    #[inline]
    fn latencies(&self, [load, store]: [u64; 2]) -> u64 {
        u64::from(self.reads) * load + u64::from(self.writes) * store
    }
    /// What its loads and its stores take as they overlap, and what decides that.
    ///
    /// * `latency`, `least` – of a load and a store: the latency, and the least time of a line.
    #[inline]
    fn takes(&self, o: &Overlap, latency: [u64; 2], least: [u64; 2]) -> [(u64, Decides); 2] {
        let lines = [self.reads, self.writes].map(u64::from);
        let insns = if self.is_stream() { 0 } else { u64::from(self.insns) };
        [0, 1].map(|k| o.time(lines[k], lines[0] + lines[1], insns, latency[k], least[k]))
    }
}

/// What one task did, in its order.
#[derive(Clone, Debug, Default)]
struct Track {
    rows: Vec<Packed>,
    others: Vec<Op>,
    /// Where the task's last program begins: there it starts again.
    begin: usize,
    /// Instructions of each of its programs.
    insns: Vec<u64>,
}

impl Track {
    /// What some of its rows are, but for accesses.
    fn ops(
        &self,
        rows: impl std::slice::SliceIndex<[Packed], Output = [Packed]>,
    ) -> impl DoubleEndedIterator<Item = Op> {
        let others = self.rows[rows].iter().filter(|r| r.what & 2 != 0);
        others.map(|r| self.others[r.number() as usize])
    }
}

/// A point of a recording's order.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    /// The task that comes to it, if one does.
    task: Option<u32>,
    after: After,
    /// Whether another waits for it.
    awaited: bool,
    /// The lock that is given back there.
    gives: Option<u32>,
    /// Whether it ends other tasks: those in [`Recording::kills`].
    kills: bool,
    /// Whether a deadline counts from it.
    base: bool,
    /// Whether its task computes for as long as it waits there, and then whether it gives its CPU
    /// to others meanwhile.
    spins: Option<bool>,
}

/// A recording in memory, 16 bytes a row.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    tracks: Vec<Track>,
    /// By number.
    points: Vec<Point>,
    /// By task: who starts it.
    starters: Vec<Option<u32>>,
    /// Points that are passed once, in the first round only.
    once: Vec<u32>,
    /// By point: the tasks that a signal which is sent there ends.
    kills: BTreeMap<u32, Vec<u32>>,
    /// By meeting: the points at which tasks come to it.
    meetings: BTreeMap<u32, Vec<u32>>,
    counts: counts::Counts,
    /// Points at which tasks spin.
    busy: BTreeMap<u32, bool>,
    /// By task: what it spun.
    spun: Vec<u64>,
    insns: u64,
    misses: u64,
    accesses: u64,
}

impl Recording {
    /// An empty one for so many tasks. Task 0 is the program itself.
    pub fn new(tasks: usize) -> Self {
        Self { tracks: vec![Track::default(); tasks.max(1)], ..Self::default() }
    }
    /// Adds what a task did after `insns` instructions since its last row.
    /// Tasks beyond the number given at the start are added.
    pub fn push(&mut self, task: u32, insns: u64, op: Op) {
        let i = task as usize;
        if i >= self.tracks.len() {
            self.tracks.resize_with(i + 1, Track::default);
        }
        self.insns += insns;
        let t = &mut self.tracks[i];
        match t.insns.last_mut() {
            Some(program) => *program += insns,
            None => t.insns.push(insns),
        }
        let mut left = insns;
        while left > u64::from(u32::MAX) {
            // A long stretch without misses: touches nothing, an empty "other".
            t.others.push(Op::Wait { child: None });
            let what = (t.others.len() as u64 - 1) << 3 | 2;
            t.rows.push(Packed { what, insns: u32::MAX, reads: 0, writes: 0 });
            left -= u64::from(u32::MAX);
        }
        let mut insns = left as u32;
        match op {
            Op::Access { page, mut reads, mut writes, write, stream } => {
                self.misses += u64::from(reads) + u64::from(writes);
                self.accesses += 1;
                let what = page << 3 | u64::from(stream) << 2 | u64::from(write);
                let most = u32::from(u16::MAX);
                loop {
                    let (r, w) = (reads.min(most), writes.min(most));
                    t.rows.push(Packed { what, insns, reads: r as u16, writes: w as u16 });
                    (reads, writes, insns) = (reads - r, writes - w, 0);
                    if reads == 0 && writes == 0 {
                        break;
                    }
                }
            }
            other => {
                t.others.push(other);
                let what = (t.others.len() as u64 - 1) << 3 | 2;
                t.rows.push(Packed { what, insns, reads: 0, writes: 0 });
                if other == Op::Exec {
                    t.begin = t.rows.len();
                    t.insns.push(0);
                }
            }
        }
    }
    /// Says what the points wait for, when all rows are in. Those that are not in it wait for
    /// nothing.
    pub fn order(&mut self, after: Vec<After>) {
        let point = |(n, &after): (u32, &After)| Point {
            after,
            spins: self.busy.get(&n).copied(),
            ..Point::default()
        };
        self.points = (0..).zip(&after).map(point).collect();
        self.starters = vec![None; self.tracks.len()];
        for (task, track) in (0..).zip(&self.tracks) {
            for op in track.ops(..) {
                match op {
                    Op::Point { number } => {
                        if let Some(point) = self.points.get_mut(number as usize) {
                            point.task = Some(task);
                        }
                    }
                    Op::Fork { child } | Op::Thread { child } => {
                        if let Some(starter) = self.starters.get_mut(child as usize) {
                            *starter = Some(task);
                        }
                    }
                    Op::Access { .. }
                    | Op::Map { .. }
                    | Op::Unmap { .. }
                    | Op::Protect { .. }
                    | Op::Remap { .. }
                    | Op::Discard { .. }
                    | Op::Exec
                    | Op::Exit
                    | Op::ExitGroup
                    | Op::Killed
                    | Op::Wait { .. } => {}
                }
            }
        }
        // Who ends whom by a signal.
        self.kills = BTreeMap::new();
        for (task, track) in (0..).zip(&self.tracks) {
            let mut ops = track.ops(..).rev();
            let (last, before) = (ops.next(), ops.next().and_then(Op::point));
            let end = before.filter(|_| last == Some(Op::Killed));
            if let Some(&After::Point(by)) = end.and_then(|end| after.get(end as usize)) {
                if let Some(point) = self.points.get_mut(by as usize) {
                    point.kills = true;
                    self.kills.entry(by).or_default().push(task);
                }
            }
        }
        self.meetings = BTreeMap::new();
        for (n, after) in (0..).zip(&after) {
            if let After::Meet(meeting) = *after {
                self.meetings.entry(meeting).or_default().push(n);
            }
        }
        for (point, after) in self.points.iter_mut().zip(&after) {
            // Whether it has been passed is asked for by who waits at the count.
            point.awaited |= matches!(after, After::Post(..) | After::Broadcast(..));
        }
        for &a in &after {
            let (After::Point(p)
            | After::Until(p, _)
            | After::Turn(p)
            | After::Lock(_, p)
            | After::Due(p, _)) = a
            else {
                continue;
            };
            let Some(point) = self.points.get_mut(p as usize) else { continue };
            match a {
                After::Point(_) | After::Until(..) | After::Turn(_) => point.awaited = true,
                After::Lock(lock, _) => point.gives = Some(lock),
                After::Due(..) => point.base = true,
                After::Nothing
                | After::Time(_)
                | After::Meet(_)
                | After::Post(..)
                | After::Broadcast(..)
                | After::Take(..) => {}
            }
        }
        // What a later round does not come to: the first task begins behind it.
        let begin = |t: usize| if t == 0 { self.tracks[0].begin } else { 0 };
        let mut again = vec![false; self.tracks.len()];
        let mut next = vec![0];
        while let Some(t) = next.pop() {
            if std::mem::replace(&mut again[t], true) {
                continue;
            }
            for op in self.tracks[t].ops(begin(t)..) {
                if let Op::Fork { child } | Op::Thread { child } = op {
                    next.extend(Some(child as usize).filter(|&c| c < again.len()));
                }
            }
        }
        let once = |(t, track): (usize, &Track)| {
            let end = if again[t] { begin(t) } else { track.rows.len() };
            track.ops(..end).filter_map(Op::point).collect::<Vec<u32>>()
        };
        self.once = self.tracks.iter().enumerate().flat_map(once).collect();
        self.counts.order(&after, self.points.iter().map(|p| p.task), &self.once);
    }
    /// The task that a point is of.
    pub fn task_of(&self, number: u32) -> Option<u32> {
        self.points.get(number as usize)?.task
    }
    fn point(&self, number: u32) -> Point {
        self.points.get(number as usize).copied().unwrap_or_default()
    }
    /// Instructions of all tasks.
    pub fn insns(&self) -> u64 {
        self.insns
    }
    /// Instructions of each program that each task ran.
    pub fn programs(&self) -> impl Iterator<Item = &[u64]> {
        self.tracks.iter().map(|t| &t.insns[..])
    }
    /// Lines fetched from memory by all tasks.
    pub fn misses(&self) -> u64 {
        self.misses
    }
    /// Rows of all tasks.
    pub fn rows(&self) -> u64 {
        self.tracks.iter().map(|t| t.rows.len() as u64).sum()
    }
    /// Pages that mappings and accesses name: an upper bound of the address space
    /// that a replay needs, for all its tasks together.
    pub(crate) fn room(&self) -> u64 {
        let mut steps = BTreeSet::new();
        let mut forks = 1u64;
        for t in &self.tracks {
            let accesses = t.rows.iter().filter(|r| r.what & 2 == 0);
            steps.extend(accesses.map(|row| row.number() / HUGE_PAGES));
            for op in &t.others {
                match *op {
                    Op::Map { page, pages, .. } | Op::Remap { pages, to: page, .. } => {
                        steps.extend(page / HUGE_PAGES..(page + pages).div_ceil(HUGE_PAGES));
                    }
                    Op::Fork { .. } => forks += 1,
                    _ => {}
                }
            }
        }
        // Anonymous and file pages of one step have blocks of their own; every
        // child may be alive with a copy of everything.
        (steps.len() as u64 + 8) * HUGE_PAGES * 2 * forks.min(64)
    }
}

/// What a task waits for that never comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// A point of the recording's order.
    Point(u32),
    /// The end of a task of the recording.
    End(u32),
    /// A lock that a task of the recording has.
    Lock(u32),
    /// A count, by its number.
    Count(u32),
}

/// How long a replay goes on. It ends at the end of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    /// After so many rounds.
    Count(u64),
    /// After the round in which virtual time reaches this (picoseconds).
    Until(u64),
}

/// How a recording is charged.
#[derive(Clone, Debug)]
pub struct Charge {
    /// Time of one instruction in attoseconds (10^-18 s), misses apart.
    pub as_per_insn: u64,
    /// Likewise in each program of each task, where they differ.
    pub own_as_per_insn: Arc<Vec<Vec<u64>>>,
    /// How long.
    pub rounds: Rounds,
    /// The policy of all tasks, as by `set_mempolicy`.
    pub policy: Mempolicy,
    /// How misses overlap; `None`: as many as the machine's `memory_parallelism`,
    /// whatever lies between them.
    pub overlap: Option<Overlap>,
    /// The CPUs that its tasks run on, as by `taskset`; empty: all.
    pub cpus: Vec<CpuId>,
}

/// Lines by kind, the grains that they lie in, those that are written in part, and what all took.
#[derive(Clone, Default)]
struct Lines {
    all: [u64; KINDS],
    grains: [u64; KINDS],
    parts: [u64; KINDS],
    missed: Missed,
    /// What the run is judged by, where it is.
    scored: ScoredRows,
    /// Loads among them.
    loads: Offcore,
}

/// A task that replays its track.
pub(crate) struct Player {
    recording: Arc<Recording>,
    track: usize,
    /// Tracks of the tasks above it, from the first one's on.
    above: Vec<usize>,
    /// The row that comes next.
    at: usize,
    /// Computing that is left before it, in parts of work; `u64::MAX`: not begun.
    work: u64,
    /// Both when it began to run ahead.
    began: (usize, u64),
    /// What it has run ahead.
    lines: Lines,
    /// The least times of a line, for a window of load and a CPU.
    floor: Option<((u64, usize), Floor)>,
    charge: Arc<Charge>,
    /// Which of its programs it runs, from 0, what an instruction of it takes, and the task's
    /// time on a CPU when it began.
    program: usize,
    attos: u64,
    ran: u64,
    pub(crate) done: u64,
    /// When it goes on although what it waits for has not come.
    gives_up: Option<u64>,
    /// The deadline of its next point, and what it was reckoned by.
    due: Option<(u64, u64)>,
    /// When it began in this round, and passed points that deadlines count from.
    began_at: u64,
    passed_at: BTreeMap<u32, u64>,
    /// Since when it stands in front of a point.
    since: Option<u64>,
    /// What it computes for as long as it has not come, and whether it gives its CPU to others
    /// meanwhile.
    spinning: Option<(On, bool)>,
    /// The first task that this round may have started: tasks are numbered as they begin.
    round_from: usize,
    /// Page → place: direct-mapped, valid for one state of the mappings.
    cache: Vec<(u64, u64, u32)>,
}

const CACHE: usize = 4096;
const NOT_BEGUN: u64 = u64::MAX;

impl Player {
    pub(crate) fn new(recording: Arc<Recording>, track: usize, charge: Arc<Charge>) -> Self {
        let cache = vec![(u64::MAX, u64::MAX, 0); CACHE];
        let mut new = Self {
            recording,
            track,
            above: Vec::new(),
            at: 0,
            work: NOT_BEGUN,
            began: (0, NOT_BEGUN),
            lines: Lines::default(),
            floor: None,
            charge,
            program: 0,
            attos: 0,
            ran: 0,
            done: 0,
            gives_up: None,
            due: None,
            began_at: 0,
            passed_at: BTreeMap::new(),
            since: None,
            spinning: None,
            round_from: 0,
            cache,
        };
        new.begin_program(0);
        new
    }
    fn begin_program(&mut self, program: usize) {
        let Charge { as_per_insn, own_as_per_insn, .. } = &*self.charge;
        let own = own_as_per_insn.get(self.track).and_then(|task| task.get(program));
        (self.program, self.attos) = (program, own.copied().unwrap_or(*as_per_insn));
    }
    /// Books what the task has run since its program began.
    fn book(&mut self, sim: &mut Simulation, id: usize) {
        let ran = sim.tasks[id].ran;
        let of = sim.ran_by_program.entry((self.track, self.program)).or_default();
        *of += ran - std::mem::replace(&mut self.ran, ran);
    }
}

impl Simulation {
    /// How long each program of each task of a recording has run so far, in picoseconds: by
    /// the task's number and the program's, from 0. Of tasks that run still, up to where they
    /// began their program.
    pub fn ran_by_program(&self) -> &BTreeMap<(usize, usize), u64> {
        &self.ran_by_program
    }
    /// When each task of a recording began and ended in the first round, in picoseconds, by its
    /// number. The first task's end is that of its last row, whoever runs on after it.
    pub fn spans(&self) -> &BTreeMap<usize, (u64, u64)> {
        &self.passed.spans
    }
    /// How long tasks of a recording have waited so far.
    pub fn waited(&self) -> Waited {
        self.passed.waited
    }
    /// Rounds that are over, and when the last ended.
    pub fn rounds(&self) -> (u64, u64) {
        (self.round_ends.len() as u64, self.round_ends.last().copied().unwrap_or(0))
    }
    /// When each round ended, in picoseconds.
    pub fn round_ends(&self) -> &[u64] {
        &self.round_ends
    }
    /// Whether a recording's tasks wait for one another for ever: then who waits for what, by
    /// rising task.
    pub fn stuck(&self) -> Vec<(u32, Stuck)> {
        let mut all = Vec::new();
        for (&task, &id) in &self.replayed {
            let of = |other: usize| self.replayed.iter().find(|r| *r.1 == other).map(|r| *r.0);
            let t = &self.tasks[id];
            // Who spins waits as others do.
            let run = match spins::waits_on(self, id) {
                Some(on) => Run::Blocked(on),
                None => t.run,
            };
            match run {
                Run::Ended => {}
                Run::Blocked(On::Point(p)) if !t.timer_wakes || self.passed.again.contains(&id) => {
                    all.push((task, Stuck::Point(p)));
                }
                Run::Blocked(On::Task(other)) => {
                    all.extend(of(other).map(|other| (task, Stuck::End(other))));
                }
                Run::Blocked(On::Lock(lock)) => {
                    let held = self.passed.locks.get(&lock).and_then(|l| l.held);
                    let Some(other) = held.and_then(|h| of(h.0)) else { return Vec::new() };
                    all.push((task, Stuck::Lock(other)));
                }
                Run::Blocked(On::Count(n)) if !t.timer_wakes || self.passed.again.contains(&id) => {
                    all.push((task, Stuck::Count(n)));
                }
                Run::Runnable
                | Run::Blocked(
                    On::Point(_)
                    | On::Sleep
                    | On::Children
                    | On::Child
                    | On::Barrier
                    | On::Count(_)
                    | On::Channel(_)
                    | On::Work
                    | On::Device { .. },
                ) => {
                    return Vec::new();
                }
            }
        }
        all
    }
}

impl Program for Player {
    fn ahead(&mut self, sim: &mut Simulation, id: usize, until: u64) -> Ahead {
        self.began = (self.at, self.work);
        if sim.passed.is_dying(id) {
            return Ahead { clock: sim.tasks[id].clock, act: true, far: false };
        }
        self.rows(sim, id, until)
    }
    fn back(&mut self, sim: &mut Simulation, id: usize, to: u64) -> u64 {
        (self.at, self.work) = self.began;
        self.lines = Lines::default();
        self.rows(sim, id, to).clock
    }
    fn settle(&mut self, sim: &mut Simulation, id: usize) {
        let lines = std::mem::take(&mut self.lines);
        sim.account_lines(id, &lines.all, &lines.grains, &lines.parts);
        sim.account_missed(id, &lines.missed);
        if sim.kernel.score.is_some() {
            sim.score_rows(id, &lines.scored);
        }
        sim.count_lines(id, &lines.loads);
        self.began = (self.at, self.work);
    }
    fn act(&mut self, sim: &mut Simulation, id: usize, _until: u64) {
        let recording = self.recording.clone();
        let track = &recording.tracks[self.track];
        if sim.passed.is_dying(id) {
            sim.passed.dying.remove(&id);
            self.die(sim, id);
        }
        if let Some(gives_way) = self.spins(sim, id) {
            if gives_way {
                sim.yield_now(id);
            }
            return;
        }
        let Some(row) = track.rows.get(self.at) else { return self.track_done(sim, id) };
        if self.work != 0 {
            return;
        }
        self.at += 1;
        self.work = NOT_BEGUN;
        if row.what & 2 != 0 {
            if sim.kernel.score.is_some() {
                let elsewhere = self.slowly(sim, id, row);
                sim.score_rows(id, &ScoredRows { elsewhere, ..ScoredRows::default() });
            }
            self.other(sim, id, track.others[row.number() as usize]);
        } else {
            self.access(sim, id, row);
        }
    }
}

impl Player {
    /// Computing before a row, in picoseconds at full speed.
    fn computing(&self, row: &Packed) -> u64 {
        (u128::from(row.insns) * u128::from(self.attos) / 1_000_000) as u64
    }
    /// The same at the speed that its CPU has.
    fn slowly(&self, sim: &Simulation, id: usize, row: &Packed) -> u64 {
        sim.cpus[sim.tasks[id].cpu].computing(self.computing(row))
    }
    /// Whether nobody waits at a row, nor for it.
    fn is_idle(&self, track: &Track, row: &Packed) -> bool {
        let number = track.others[row.number() as usize].point();
        number.is_some_and(|n| {
            let Point { after, awaited, gives, base, .. } = self.recording.point(n);
            after == After::Nothing && !awaited && gives.is_none() && !base
        })
    }
    /// Charges rows until `until`, and stops before one that others could notice.
    fn rows(&mut self, sim: &mut Simulation, id: usize, until: u64) -> Ahead {
        let recording = self.recording.clone();
        let track = &recording.tracks[self.track];
        let Task { mut clock, space, cpu, .. } = sim.tasks[id];
        // Samples are seen by others, and cost time at their place.
        let sampled = sim.pmu.as_ref().is_some_and(|p| p.watches(space));
        if let Some(gives_way) = self.spins(sim, id) {
            let call = sim.kernel.prices[Cost::Syscall].max(1);
            let far = clock.max(until);
            return match gives_way {
                true if clock + call <= far => Ahead { clock: clock + call, act: true, far: false },
                _ => Ahead { clock: far, act: false, far: false },
            };
        }
        while clock < until {
            let Some(row) = track.rows.get(self.at) else {
                return Ahead { clock, act: true, far: false };
            };
            if self.work == NOT_BEGUN {
                self.work = parts(self.computing(row));
            }
            let here = &sim.cpus[cpu];
            let compute = here.time(self.work);
            if compute > until - clock {
                self.work -= here.work(until - clock);
                clock = until;
                break;
            }
            self.work = 0;
            clock += compute;
            if row.what & 2 != 0 && self.is_idle(track, row) {
                if sim.kernel.score.is_some() {
                    self.lines.scored.elsewhere += self.slowly(sim, id, row);
                }
                self.at += 1;
                self.work = NOT_BEGUN;
                continue;
            }
            let write = row.what & 1 != 0;
            let page = if sampled || row.what & 2 != 0 {
                None
            } else {
                self.known(sim, space, row.number(), write)
            };
            let Some(page) = page else { return Ahead { clock, act: true, far: false } };
            let word = &mut sim.kernel.memory.words[page as usize];
            if is_event(if write { OP_WRITE } else { 0 }, *word) {
                return Ahead { clock, act: true, far: false };
            }
            *word |= YOUNG;
            let zone = Word(*word).zone();
            self.at += 1;
            self.work = NOT_BEGUN;
            clock += self.misses(sim, id, row, zone);
            self.score(sim, id, row, (page, zone));
        }
        Ahead { clock, act: false, far: false }
    }
    /// Does an access at its time, whatever it raises.
    fn access(&mut self, sim: &mut Simulation, id: usize, row: &Packed) {
        let write = row.what & 1 != 0;
        let Some(page) = self.find(sim, id, row.number(), write) else { return };
        let word = sim.kernel.memory.words[page as usize];
        let zone = if is_event(if write { OP_WRITE } else { 0 }, word) {
            let mut ctx = sim.ctx(id);
            let began = ctx.clock;
            let served = sim.serve(&mut ctx, sim.tasks[id].process, page, write);
            sim.charge(id, ctx.clock - began, Why::System);
            match served {
                Ok(zone) => zone,
                Err(why) => return sim.kill(id, why),
            }
        } else {
            sim.kernel.memory.words[page as usize] = word | YOUNG;
            Word(word).zone()
        };
        let time = self.misses(sim, id, row, zone);
        self.score(sim, id, row, (page, zone));
        sim.charge(id, time, Why::User);
        self.settle(sim, id);
        if let Some(pmu) = sim.pmu.as_deref_mut() {
            let Task { cpu, space, .. } = sim.tasks[id];
            let from = sim.machine.cpus[cpu].node;
            let lines = u64::from(row.reads) + u64::from(row.writes);
            let at = (row.number(), sim.kernel.answers(page, sim.cpus[cpu].node));
            let cost = pmu.accesses((cpu, from), space, at, lines);
            sim.charge(id, cost, Why::System);
        }
    }
    /// Counts the lines of an access; what they take.
    fn misses(&mut self, sim: &Simulation, id: usize, row: &Packed, zone: usize) -> u64 {
        let (read, write) = (zone * 2, zone * 2 + 1);
        let (r, w) = (u64::from(row.reads), u64::from(row.writes));
        self.lines.all[read] += r;
        self.lines.all[write] += w;
        // Lines of one page, close in time: where they are many, they share grains.
        let in_page = sim.kernel.loads.nodes[sim.kernel.memory.zones[zone].node].grains_in_page();
        let shared = |lines: u64| lines.min(lines.div_ceil(PAGE_LINES) * in_page);
        self.lines.grains[read] += shared(r);
        self.lines.grains[write] += shared(w);
        self.lines.parts[write] += if w > in_page { 0 } else { w };
        let cpu = sim.tasks[id].cpu;
        let latency = sim.latency_from(cpu);
        let Some(o) = self.charge.overlap else {
            let all = row.latencies([latency[read], latency[write]]) * 1000 / sim.parallelism;
            let took = [(all, Decides::Lines), (0, Decides::Latency)];
            self.lines.missed.row(zone, took, false, (0, false), 0);
            if sim.counts_loads() {
                self.lines.loads.add(r, Picos(r * latency[read]), Picos(all));
            }
            return all;
        };
        let stream = row.is_stream();
        let at = (sim.window(), cpu);
        let floor = match self.floor {
            Some((of, floor)) if of == at => floor,
            _ => self.floor.insert((at, sim.floor_from(cpu, &o))).1,
        };
        if r + w == 0 {
            return 0;
        }
        let least = floor[usize::from(stream)];
        let took = row.takes(&o, [latency[read], latency[write]], [least[read], least[write]]);
        let compute = self.slowly(sim, id, row);
        let attos = sim.cpus[cpu].computing(self.attos);
        let hidden = o.hidden(compute, attos, stream);
        let latencies = row.latencies([latency[read], latency[write]]);
        self.lines.missed.row(zone, took, stream, (hidden, hidden < compute), latencies);
        // Computing that goes on behind misses ends none of them.
        if sim.counts_loads() {
            self.lines.loads.add(r, Picos(r * latency[read]), Picos(took[0].0 + took[1].0));
        }
        (took[0].0 + took[1].0).saturating_sub(hidden)
    }

    /// Writes a row down where the run is judged.
    #[inline]
    fn score(&mut self, sim: &Simulation, id: usize, row: &Packed, (page, zone): (u32, usize)) {
        if sim.kernel.score.is_none() {
            return;
        }
        let compute = self.slowly(sim, id, row);
        let tiers = sim.tiers_from(sim.tasks[id].cpu).filter(|_| row.reads | row.writes != 0);
        let Some([fast, slow]) = tiers else {
            self.lines.scored.elsewhere += compute;
            return;
        };
        let [fast, slow] = [fast, slow].map(|tier| self.unloaded(sim, id, row, compute, tier));
        let (least, gain) = (compute + fast, slow.saturating_sub(fast));
        self.lines.scored.lines.push(ScoredLines { page, zone, least, gain });
    }
    /// What the lines of a row take beside the computing before it, in an unloaded tier in which a
    /// load and a store take so long.
    fn unloaded(
        &self,
        sim: &Simulation,
        id: usize,
        row: &Packed,
        compute: u64,
        latency: [u64; 2],
    ) -> u64 {
        let Some(o) = self.charge.overlap else {
            return row.latencies(latency) * 1000 / sim.parallelism;
        };
        let stream = row.is_stream();
        let least = [0, 1].map(|k| o.alone(latency[k], k == 1, stream));
        let [read, written] = row.takes(&o, latency, least);
        let attos = sim.cpus[sim.tasks[id].cpu].computing(self.attos);
        (read.0 + written.0).saturating_sub(o.hidden(compute, attos, stream))
    }

    /// The place of a virtual page that is mapped for this kind of access.
    fn known(&mut self, sim: &mut Simulation, space: usize, vpn: u64, write: bool) -> Option<u32> {
        let space = sim.kernel.space_mut(space);
        let key = vpn << 1 | u64::from(write);
        let slot = &mut self.cache[vpn as usize % CACHE];
        if (slot.0, slot.1) == (key, space.changes) {
            return Some(slot.2);
        }
        let kind = &space.vmas[space.find(vpn)?].kind;
        let (allowed, file) = (kind.readable && (kind.writable || !write), kind.file);
        let place = space.page(vpn, file).filter(|_| allowed)?;
        *slot = (key, space.changes, place);
        Some(place)
    }
    /// The same; maps its surroundings if nothing is mapped there, and lifts a protection
    /// that the recorded program must have lifted.
    fn find(&mut self, sim: &mut Simulation, id: usize, vpn: u64, write: bool) -> Option<u32> {
        let number = sim.tasks[id].space;
        let space = sim.kernel.space(number);
        if space.find(vpn).is_none() {
            let (lo, hi) = (vpn & !(HUGE_PAGES - 1), (vpn | (HUGE_PAGES - 1)) + 1);
            let vmas = &space.vmas;
            let start =
                vmas.iter().filter(|v| v.end <= vpn).map(|v| v.end).max().unwrap_or(0).max(lo);
            let end =
                vmas.iter().filter(|v| v.start > vpn).map(|v| v.start).min().unwrap_or(hi).min(hi);
            // How far it reached is not known: nothing says that a huge page fits.
            let kind = Kind { huge: Some(false), ..kind([true, true, false], false, false) };
            map(sim, id, start, end - start, kind);
        }
        let space = sim.kernel.space_mut(number);
        let at = space.find(vpn)?;
        let kind = &mut space.vmas[at].kind;
        kind.writable |= write;
        kind.readable = true;
        self.known(sim, number, vpn, write)
    }

    /// What is no access.
    fn other(&mut self, sim: &mut Simulation, id: usize, op: Op) {
        let space = sim.tasks[id].space;
        let mut ctx = sim.ctx(id);
        let began = ctx.clock;
        match op {
            // `map` and `remap` may not make the first pages of a space reappear later.
            Op::Access { .. } => {}
            Op::Map { page, pages, prot, file, shared } => {
                return map(sim, id, page, pages, kind(prot, file, shared));
            }
            Op::Unmap { page, pages } => sim.kernel.unmap(&mut ctx, space, page, page + pages),
            Op::Discard { page, pages } => sim.kernel.discard(&mut ctx, space, page, page + pages),
            Op::Protect { page, pages, prot: [r, w, x] } => {
                sim.kernel.protect(&mut ctx, space, page, page + pages, r, w, x);
            }
            Op::Remap { page, pages, to } => {
                let done = sim.kernel.remap(&mut ctx, space, page, pages, to);
                modelled(sim, id, done);
            }
            Op::Exec => {
                self.book(sim, id);
                self.begin_program(self.program + 1);
                sim.kernel.numa_exec(id);
                let done = sim.kernel.exec_space(&mut ctx, space);
                modelled(sim, id, done);
            }
            Op::Exit | Op::Killed => self.at = usize::MAX,
            Op::ExitGroup => {
                self.at = usize::MAX;
                for other in sim.tasks.living_in(space).to_vec() {
                    let track = sim.replayed.iter().find(|r| *r.1 == other).map(|r| *r.0);
                    if let Some(track) = track.filter(|_| other != id) {
                        end(sim, id, track);
                    }
                }
            }
            Op::Fork { child } | Op::Thread { child } => {
                // A task that starts itself, be it through others, would do so for ever.
                let (child_track, mut above) = (child as usize, self.above.clone());
                above.push(self.track);
                if child_track >= self.recording.tracks.len() || above.contains(&child_track) {
                    return;
                }
                let (recording, charge) = (self.recording.clone(), self.charge.clone());
                let mut player = Self::new(recording, child_track, charge);
                (player.above, player.began_at) = (above, ctx.clock);
                let program = Box::new(player);
                let born = if matches!(op, Op::Fork { .. }) {
                    sim.fork_task(&mut ctx, id, program)
                } else {
                    Some(sim.thread_task(id, program))
                };
                if let Some(born) = born {
                    sim.replayed.insert(child, born);
                    sim.enqueue(born);
                }
            }
            Op::Point { number } => return self.pass(sim, id, number),
            Op::Wait { child } => {
                let running = child
                    .and_then(|c| sim.replayed.get(&c).copied())
                    .filter(|&c| c != id && sim.tasks[c].run != Run::Ended)
                    // Who waits for this task, be it in the end, is not waited for.
                    .filter(|&c| !waits_for(sim, c, id));
                if let Some(other) = running {
                    sim.wait_for(id, other);
                    self.open_circle(sim, id);
                }
            }
        }
        sim.charge(id, ctx.clock - began, Why::System);
    }

    /// Passes a point, or waits in front of it.
    fn pass(&mut self, sim: &mut Simulation, id: usize, number: u32) {
        let Point { after, awaited, gives, kills, base, spins, .. } = self.recording.point(number);
        let clock = sim.tasks[id].clock;
        let since = self.since.take().unwrap_or(clock);
        let spun = self.spins_no_more(sim, id);
        match after {
            After::Point(p) | After::Turn(p) if !sim.passed.done.contains(&p) => {
                if let Some(yields) = spins {
                    return self.spin(sim, id, since, On::Point(p), yields);
                }
                let waiting = sim.passed.waiting.entry(p).or_default();
                if !waiting.contains(&id) {
                    waiting.push(id);
                }
                self.stand(sim, id, since, On::Point(p));
                self.wakes_in_vain(sim, id, clock);
                return self.open_circle(sim, id);
            }
            After::Until(p, time) if !sim.passed.done.contains(&p) => {
                let due = self.due.map_or(clock + time.0, |due| due.0);
                let end = *self.gives_up.get_or_insert(due);
                if clock < end {
                    sim.passed.waiting.entry(p).or_default().push(id);
                    self.stand(sim, id, since, On::Point(p));
                    return sim.wake_at(id, end, By::Timer);
                }
            }
            After::Meet(meeting) => {
                if let Some(missing) = self.come(sim, id, meeting, number) {
                    self.stand(sim, id, since, On::Point(missing));
                    return self.open_circle(sim, id);
                }
                sim.passed.waited.others += clock - since;
            }
            After::Lock(number, until) => {
                let without = sim.passed.without.remove(&id);
                let lock = sim.passed.locks.entry(number).or_default();
                if lock.held.is_some() && !without {
                    if let Some(yields) = spins {
                        return self.spin(sim, id, since, On::Lock(number), yields);
                    }
                    lock.waiting.push_back(id);
                    self.stand(sim, id, since, On::Lock(number));
                    return self.open_circle(sim, id);
                }
                lock.held.get_or_insert((id, until));
                sim.passed.waited.without += u64::from(without);
                sim.passed.waited.locks += clock - since;
            }
            After::Take(number, less) => {
                if !self.take(sim, id, number, less) {
                    self.stand(sim, id, since, On::Count(number));
                    self.wakes_in_vain(sim, id, clock);
                    return self.open_circle(sim, id);
                }
                sim.passed.waited.counts += clock - since;
            }
            After::Time(time) => {
                let due = self.due.map_or(clock + time.0, |due| due.0.max(clock));
                sim.sleep_until(id, due);
            }
            After::Turn(_) => sim.passed.waited.turns += clock - since,
            After::Point(_) | After::Until(..) => sim.passed.waited.others += clock - since,
            After::Nothing | After::Post(..) | After::Broadcast(..) | After::Due(..) => {}
        }
        if spun {
            sim.passed.waited.spun += clock - since;
        }
        self.gives_up = None;
        if base {
            self.passed_at.insert(number, clock);
        }
        self.due = if let After::Due(base, time) = after {
            let began = self.passed_at.get(&base).copied().unwrap_or(self.began_at);
            Some((began.saturating_add(time.0), time.0))
        } else {
            sim.passed.again.remove(&id);
            None
        };
        if awaited {
            let kills = kills && !sim.passed.done.contains(&number);
            happened(sim, id, number);
            let recording = self.recording.clone();
            for &track in recording.kills.get(&number).filter(|_| kills).into_iter().flatten() {
                end(sim, id, track);
            }
        }
        match after {
            After::Post(count, more) => self.post(sim, id, count, more),
            After::Broadcast(count, more) => self.broadcast(sim, id, count, more),
            After::Nothing
            | After::Point(_)
            | After::Time(_)
            | After::Until(..)
            | After::Turn(_)
            | After::Lock(..)
            | After::Meet(_)
            | After::Take(..)
            | After::Due(..) => {}
        }
        if let Some(of) = gives {
            give_back(sim, id, of, number);
        }
    }
    /// Comes to a meeting, at a point; another of its points, that its task has not come to. Who
    /// comes last wakes the others.
    fn come(&self, sim: &mut Simulation, id: usize, meeting: u32, number: u32) -> Option<u32> {
        let points = self.recording.meetings.get(&meeting)?;
        let come = sim.passed.met.entry(meeting).or_default();
        let is_new = come.insert(number, id).is_none();
        let missing = points.iter().find(|p| !come.contains_key(p)).copied();
        if missing.is_none() && is_new {
            for (point, other) in come.clone() {
                let is_here = self.recording.task_of(point).and_then(|t| sim.replayed.get(&t));
                let waits = matches!(sim.tasks[other].run, Run::Blocked(On::Point(_)));
                if other != id && waits && is_here == Some(&other) {
                    sim.wake(other, By::Task(id));
                }
            }
        }
        missing
    }
    /// Another has ended this task: its last act. What it did beyond this place when it was
    /// recorded counts as done, and so does what those did whom it did not come to start; nobody
    /// is to wait for it.
    fn die(&mut self, sim: &mut Simulation, id: usize) {
        let recording = self.recording.clone();
        self.spins_no_more(sim, id);
        if let Some((count, more)) = sim.passed.granted.remove(&id) {
            self.post(sim, id, count, more);
        }
        let mut left = vec![(self.track, self.at.min(recording.tracks[self.track].rows.len()))];
        let mut known: BTreeSet<usize> = self.above.iter().copied().collect();
        while let Some((track, from)) = left.pop() {
            if !known.insert(track) {
                continue;
            }
            for op in recording.tracks[track].ops(from..) {
                match op {
                    Op::Point { number } => {
                        let Point { awaited, gives, after, .. } = recording.point(number);
                        if let After::Meet(meeting) = after {
                            self.come(sim, id, meeting, number);
                        }
                        if awaited {
                            happened(sim, id, number);
                        }
                        match after {
                            After::Post(count, more) | After::Broadcast(count, more) => {
                                self.post(sim, id, count, more);
                            }
                            // It may have been woken for what it does not take any more.
                            After::Take(count, _) => self.post(sim, id, count, 0),
                            After::Nothing
                            | After::Point(_)
                            | After::Time(_)
                            | After::Until(..)
                            | After::Turn(_)
                            | After::Lock(..)
                            | After::Meet(_)
                            | After::Due(..) => {}
                        }
                        if let Some(of) = gives {
                            give_back(sim, id, of, number);
                        }
                    }
                    Op::Fork { child } | Op::Thread { child } => {
                        let child = child as usize;
                        left.extend(Some((child, 0)).filter(|_| child < recording.tracks.len()));
                    }
                    Op::Access { .. }
                    | Op::Map { .. }
                    | Op::Unmap { .. }
                    | Op::Protect { .. }
                    | Op::Remap { .. }
                    | Op::Discard { .. }
                    | Op::Exec
                    | Op::Exit
                    | Op::ExitGroup
                    | Op::Killed
                    | Op::Wait { .. } => {}
                }
            }
        }
        self.at = usize::MAX;
    }
    /// A task stands in front of a point that has a deadline: it wakes up then, and waits again.
    fn wakes_in_vain(&mut self, sim: &mut Simulation, id: usize, clock: u64) {
        let Some((end, span @ 1..)) = self.due else { return };
        // It has woken up in vain, or comes too late to have waited at all.
        let more = clock.checked_sub(end).map_or(0, |late| late / span + 1);
        sim.passed.waited.in_vain += u64::from(more > 0);
        let end = end.saturating_add(more.saturating_mul(span));
        self.due = Some((end, span));
        sim.passed.again.insert(id);
        sim.wake_at(id, end, By::Timer);
    }
    /// Waits in front of a point, to come to it again when that has come.
    fn stand(&mut self, sim: &mut Simulation, id: usize, since: u64, on: On) {
        (self.at, self.work, self.since) = (self.at - 1, 0, Some(since));
        sim.block(id, on);
    }
    /// A task of the recording, or who starts it where it has not begun in this round.
    fn alive(&self, sim: &Simulation, task: u32) -> Option<usize> {
        let mut of = Some(task);
        // A task that starts itself, be it through others, is a file's damage.
        for _ in 0..self.recording.starters.len() {
            let id = sim.replayed.get(&of?).copied();
            let alive = id.filter(|&id| sim.tasks[id].run != Run::Ended);
            if alive.is_some() {
                return alive;
            }
            of = *self.recording.starters.get(of? as usize)?;
        }
        None
    }

    /// The track is at its end: again when the whole round is, or over.
    fn track_done(&mut self, sim: &mut Simulation, id: usize) {
        self.book(sim, id);
        if sim.round_ends.is_empty() {
            let Task { started, clock, .. } = sim.tasks[id];
            sim.passed.spans.entry(self.track).or_insert((started, clock));
        }
        if self.track != 0 {
            sim.tasks[id].run = Run::Ended;
            return;
        }
        // Its turn comes again when that one has ended; then there may be another.
        if let Some(other) = self.unfinished(sim, id) {
            return sim.wait_for(id, other);
        }
        self.round_from = sim.tasks.len();
        let (done, waited) = (self.recording.once.iter().copied().collect(), sim.passed.waited);
        let spans = std::mem::take(&mut sim.passed.spans);
        sim.passed = Passed { done, waited, spans, ..Passed::default() };
        for &number in &self.recording.once {
            if let After::Meet(meeting) = self.recording.point(number).after {
                sim.passed.met.entry(meeting).or_default().insert(number, id);
            }
        }
        self.done += 1;
        let clock = sim.tasks[id].clock;
        sim.round_ends.push(clock);
        let over = match self.charge.rounds {
            Rounds::Count(n) => self.done >= n,
            Rounds::Until(t) => clock >= t,
        };
        let empty = self.recording.tracks[0].begin >= self.recording.tracks[0].rows.len();
        if over || empty {
            sim.tasks[id].run = Run::Ended;
        } else {
            self.at = self.recording.tracks[0].begin;
            self.began_at = clock;
            self.passed_at.clear();
        }
    }
    /// A task of this round that has not ended. One that waits for this task, perhaps
    /// through others, would be waited for without end.
    fn unfinished(&self, sim: &Simulation, id: usize) -> Option<usize> {
        let process = sim.tasks[id].process;
        (self.round_from..sim.tasks.len()).find(|&other| {
            let task = &sim.tasks[other];
            let lives = other != id && task.process == process && task.run != Run::Ended;
            lives && !waits_for(sim, other, id)
        })
    }
}

/// A point has been passed: who waits for it goes on.
fn happened(sim: &mut Simulation, id: usize, number: u32) {
    spins::comes(sim, id, On::Point(number));
    if sim.passed.done.insert(number) {
        for other in sim.passed.waiting.remove(&number).unwrap_or_default() {
            // Some have given up since.
            if sim.tasks[other].run == Run::Blocked(On::Point(number)) {
                sim.wake(other, By::Task(id));
            }
        }
    }
}

/// A task gives a lock back, at a point, if it has it.
fn give_back(sim: &mut Simulation, id: usize, of: u32, number: u32) {
    if sim.passed.locks.get(&of).is_none_or(|lock| lock.held != Some((id, number))) {
        return;
    }
    spins::comes(sim, id, On::Lock(of));
    let Some(lock) = sim.passed.locks.get_mut(&of) else { return };
    lock.held = None;
    // Who is woken comes to its row again, and takes it if nobody was faster. Some that waited
    // have been ended since.
    while let Some(next) = lock.waiting.pop_front() {
        if sim.tasks[next].run == Run::Blocked(On::Lock(of)) {
            return sim.wake(next, By::Task(id));
        }
    }
}

/// A task ends another of the recording, as a signal does: it dies when it runs next.
fn end(sim: &mut Simulation, by: usize, track: u32) {
    let Some(&id) = sim.replayed.get(&track).filter(|&&id| id != by) else { return };
    match sim.tasks[id].run {
        Run::Ended => return,
        Run::Blocked(_) => sim.wake(id, By::Task(by)),
        Run::Runnable => {}
    }
    sim.passed.dying.insert(id);
}

/// A recorded mapping: its program has asked for nothing that the recording knows.
fn kind([readable, writable, executable]: [bool; 3], file: bool, shared: bool) -> Kind {
    Kind {
        // A private file mapping that may be written is anonymous once it is: the
        // program's data. Those that can't be written share the file's pages.
        file: file && (shared || !writable),
        shared,
        readable,
        writable,
        executable,
        ..Kind::default()
    }
}

fn map(sim: &mut Simulation, id: usize, page: u64, pages: u64, kind: Kind) {
    let space = sim.tasks[id].space;
    // Made again in a later round where one still stands, it keeps its pages: see the top.
    if !sim.round_ends.is_empty() && sim.kernel.space(space).is_mapped(page, page + pages) {
        return;
    }
    let policy = sim.kernel.numa[id].policy.clone();
    let mut ctx = sim.ctx(id);
    let began = ctx.clock;
    let mapping = Mapping { start: page, pages, kind, name: String::new() };
    let made = sim.kernel.map(&mut ctx, space, mapping, &policy);
    sim.charge(id, ctx.clock - began, Why::System);
    modelled(sim, id, made);
}

/// Ends a task whose memory can't be modelled.
fn modelled(sim: &mut Simulation, id: usize, done: Result<(), MemoryError>) {
    if sim.modelled(done).is_none() {
        sim.tasks[id].run = Run::Ended;
    }
}

/// Whether a task waits for another's end, perhaps through others.
fn waits_for(sim: &Simulation, task: usize, other: usize) -> bool {
    let mut at = sim.tasks[task].waits_for();
    while let Some(t) = at.filter(|&t| t != other) {
        at = sim.tasks[t].waits_for();
    }
    at.is_some()
}
