//! A recording's file as what the simulator replays, with the heat of its pages.

use crate::failure::Lacks;
use crate::record;
use anyhow::{Context, Result, anyhow, bail};
use homenode_core::units::{Picos, count};
use homenode_sim::replay::{After, Count, Op, Recording};
use homenode_trace::waits::{self, Found, Points, Spins};
use homenode_trace::{
    ARG_STREAM, ARG_WRITE, BY_SIGNAL, Batch, EXIT_OF_ALL, Ended, FIRST_WITH_WAITS, Header, Kind,
    Reader, Row, Task, Threads,
};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

// `mmap`'s numbers on x86-64, in which recordings are.
const PROT_READ: u64 = 1;
const PROT_WRITE: u64 = 2;
const PROT_EXEC: u64 = 4;
const MAP_SHARED: u64 = 1;
const MAP_ANONYMOUS: u64 = 0x20;

/// Stretches of address space in the picture: as many as a wide terminal shows.
const STRETCHES: usize = 96;

/// The share of the instructions of which it may be unknown what they take natively, where each
/// program of each task has a speed of its own.
const UNKNOWN: f64 = 0.01;

/// A recording, ready to be replayed.
pub(crate) struct Loaded {
    pub(crate) header: Header,
    pub(crate) recording: Arc<Recording>,
    /// How the waits of its tasks ended.
    pub(crate) waits: Found,
    /// Those of them in which a task spun.
    pub(crate) spins: u64,
    /// Ranges of virtual pages, by rising address, of equally many touched pages.
    pub(crate) ranges: Vec<(u64, u64)>,
    /// Lines that each range had fetched from memory in one round.
    pub(crate) heat: Vec<u64>,
}

impl Loaded {
    /// Why its figures come out wrong, where they do.
    pub(crate) fn wrong(&self) -> Option<String> {
        without_waits(&self.header).map(|t| wrong(&t))
    }
    /// What it lacks, in sentences.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let h = &self.header;
        let part = (!h.complete).then(|| {
            format!("the recording is not complete: the program {}", record::ended(h.ended))
        });
        part.into_iter().chain(record::warnings(h.lost_frames, h.unrecorded_execs)).collect()
    }
    /// How its tasks waited, if they did.
    pub(crate) fn waited(&self) -> Option<String> {
        let Found {
            waits,
            by_tasks,
            at_barriers,
            at_counts,
            taken,
            for_locks,
            locked,
            unknown,
            outside,
        } = self.waits;
        let (n, ns) = outside;
        let mut text = count(waits, "wait", "waits") + " in a round";
        if by_tasks > 0 {
            text += &format!(", {by_tasks} of them until another task came so far");
        }
        if for_locks > 0 {
            text += &format!(" ({for_locks} to a lock's end)");
        }
        if at_barriers > 0 {
            text += &format!(" ({at_barriers} at barriers, until all had come)");
        }
        if at_counts > 0 {
            text += &format!(" ({at_counts} at semaphores or condition variables)");
        }
        if self.spins > 0 {
            text += &format!(" ({} of a task that looks at a word in a loop)", self.spins);
        }
        if locked > 0 {
            let times = count(locked, "time", "times");
            text += &format!(", locks taken {times}");
        }
        if taken > 0 {
            let times = count(taken, "time", "times");
            text += &format!(", beside {times} that a task took what another had given");
        }
        if n > 0 {
            let took = ns as f64 / 1e9;
            text += &format!(
                ", {n} for what is outside, as long as natively where that is known ({took:.3} s)"
            );
        }
        if unknown > 0 {
            text += &format!(", {unknown} that nobody is known to have ended, which last no time");
        }
        (waits + taken + locked > 0).then_some(text)
    }
    /// Command and slice, for captions.
    pub(crate) fn workload(&self) -> String {
        let h = &self.header;
        let mut text = h.command.join(" ");
        if let Some(slice) = record::slice(&h.slice) {
            text.push_str(&format!(", slice: {slice}"));
        }
        text.push_str(&format!(
            "; {:.2} G instructions, {:.2} M lines from memory a round",
            self.recording.insns() as f64 / 1e9,
            self.recording.misses() as f64 / 1e6
        ));
        text
    }
    /// The share of each program of each task in the native CPU time of all. `None` where it is
    /// not known of all that count, or there is one task.
    pub(crate) fn shares(&self) -> Option<Vec<Vec<f64>>> {
        let tasks = &self.header.tasks;
        // What a task ran beyond what was recorded of it counts for its last program.
        let own = |(task, programs): (&Task, &[u64])| {
            let (n, mut own) = (programs.len(), task.native_ns.clone());
            let rest: u64 = own.iter().skip(n).sum();
            own.truncate(n);
            if let Some(last) = own.last_mut() {
                *last += rest;
            }
            own
        };
        let own: Vec<Vec<u64>> = tasks.iter().zip(self.recording.programs()).map(own).collect();
        let known = self.recording.programs().zip(&own);
        let unknown: u64 = known.flat_map(|(all, own)| all.iter().skip(own.len())).sum();
        let all = own.iter().flatten().sum::<u64>() as f64;
        let known = all > 0.0 && unknown as f64 <= self.recording.insns() as f64 * UNKNOWN;
        let share = |programs: Vec<u64>| programs.iter().map(|&ns| ns as f64 / all).collect();
        (known && tasks.len() > 1).then(|| own.into_iter().map(share).collect())
    }
    /// The share of the program's native run that the rows stand for, in instructions;
    /// `None` where nobody knows how many the whole program has.
    pub(crate) fn share(&self) -> Option<f64> {
        let whole =
            !matches!(self.header.ended, Ended::SliceFull | Ended::Interrupted | Ended::Unknown);
        let all = self.header.totals.insns;
        (whole && all > 0).then(|| self.recording.insns() as f64 / all as f64)
    }
}

/// Reads a recording.
///
/// # Errors
/// What the reader says, or that there is nothing in it to replay.
pub(crate) fn load(path: &Path, each: &mut dyn FnMut(u64, u64)) -> Result<Loaded> {
    let reader = Reader::open(path)?;
    let header = reader.header().clone();
    let mut recording = Recording::new(header.tasks.len());
    let mut points = Points::new(&header);
    let mut pages: HashMap<u64, u64> = HashMap::new();
    let mut batch = Batch::default();
    let mut batches = reader.batches();
    let mut rows = 0;
    while batches.next_into(&mut batch)? {
        for row in batch.iter() {
            if row.kind == Kind::Access {
                *pages.entry(row.page).or_default() += u64::from(row.reads) + u64::from(row.writes);
            }
            let point = points.row(row);
            let point = point.map_err(|what| anyhow!("{}: damaged: {what}", path.display()))?;
            let mut insns = row.insns;
            if let Some(number) = point {
                recording.push(row.task, std::mem::take(&mut insns), Op::Point { number });
            }
            if let Some(op) = op(row) {
                recording.push(row.task, insns, op);
            }
        }
        rows += batch.len() as u64;
        each(rows, reader.rows());
    }
    if pages.is_empty() {
        bail!("{}: the recording has no access to memory to replay", path.display());
    }
    if recording.insns() == 0 {
        bail!("{}: the recording has no instruction", path.display());
    }
    let (after, waits) = points.resolve();
    let picos = |ns: u64| Picos(ns.saturating_mul(1000));
    let after = after.into_iter().map(|after| match after {
        waits::After::Nothing => After::Nothing,
        waits::After::Point(p) => After::Point(p),
        waits::After::Time(ns) => After::Time(picos(ns)),
        waits::After::Until(p, ns) => After::Until(p, picos(ns)),
        waits::After::Turn(p) => After::Turn(p),
        waits::After::Lock(lock, until) => After::Lock(lock, until),
        waits::After::Meet(meeting) => After::Meet(meeting),
        waits::After::Post(count, more) => After::Post(count, more),
        waits::After::Broadcast(count, more) => After::Broadcast(count, more),
        waits::After::Take(count, less) => After::Take(count, less),
        waits::After::Due(base, ns) => After::Due(base, picos(ns)),
    });
    let counts =
        points.counts().iter().map(|&waits::Count { first, handed }| Count { first, handed });
    recording.counts(counts.collect());
    let Spins { waits: spins, left_out, busy } = points.spins().clone();
    recording.spins(&left_out, busy);
    recording.order(after.collect());
    let mut pages: Vec<(u64, u64)> = pages.into_iter().collect();
    pages.sort_unstable();
    let n = pages.len().min(STRETCHES);
    let parts = (0..n).map(|i| &pages[i * pages.len() / n..(i + 1) * pages.len() / n]);
    let (ranges, heat) = parts
        .filter_map(|part| {
            let (first, last) = (part.first()?.0, part.last()?.0);
            Some(((first, last + 1), part.iter().map(|p| p.1).sum::<u64>()))
        })
        .unzip();
    Ok(Loaded { header, recording: Arc::new(recording), waits, spins, ranges, heat })
}

/// A row as what the simulator replays; `None`: it is a point of the order and no more.
pub(crate) fn op(row: &Row) -> Option<Op> {
    let prot = |p: u64| [p & PROT_READ != 0, p & PROT_WRITE != 0, p & PROT_EXEC != 0];
    let (page, pages) = (row.page, row.pages);
    let child = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    Some(match row.kind {
        Kind::Access => Op::Access {
            page,
            reads: row.reads,
            writes: row.writes,
            write: row.arg & ARG_WRITE != 0,
            stream: row.arg & ARG_STREAM != 0,
        },
        Kind::Map => {
            let flags = row.arg >> 32;
            let file = flags & MAP_ANONYMOUS == 0;
            Op::Map { page, pages, prot: prot(row.arg), file, shared: flags & MAP_SHARED != 0 }
        }
        Kind::Unmap => Op::Unmap { page, pages },
        Kind::Protect => Op::Protect { page, pages, prot: prot(row.arg) },
        Kind::Remap => Op::Remap { page, pages, to: row.arg },
        Kind::Discard => Op::Discard { page, pages },
        Kind::Fork => Op::Fork { child: child(row.arg) },
        Kind::Thread => Op::Thread { child: child(row.arg) },
        Kind::Exec => Op::Exec,
        Kind::Exit if row.arg >= BY_SIGNAL => Op::Killed,
        Kind::Exit if row.reads == EXIT_OF_ALL => Op::ExitGroup,
        Kind::Exit => Op::Exit,
        Kind::Wait => Op::Wait { child: u32::try_from(row.arg).ok() },
        Kind::Release | Kind::Block => return None,
    })
}

/// The threads of a recording that does not say when they wait for one another.
fn without_waits(header: &Header) -> Option<Threads> {
    header.threads().filter(|_| header.version < FIRST_WITH_WAITS)
}

/// Opens a recording for its header, so that a bad file is told at once, and one whose
/// figures would be wrong.
///
/// # Errors
/// What the reader says; [`Lacks`] where threads ran, their waits are not known, and nobody
/// wants them by `force`.
pub(crate) fn check(path: &Path, force: bool) -> Result<()> {
    let reader = Reader::open(path).with_context(|| format!("can't replay {}", path.display()))?;
    let Some(threads) = without_waits(reader.header()) else { return Ok(()) };
    if !force {
        bail!(Lacks(format!(
            "can't replay {}: {}, so that all times would be wrong. Record the program anew, or \
             see the wrong figures with --force",
            path.display(),
            ran(&threads)
        )));
    }
    eprintln!("homenode: {}: WRONG: {}", path.display(), wrong(&threads));
    Ok(())
}

/// What a recording has of threads, and what it lacks.
fn ran(t: &Threads) -> String {
    format!(
        "{} ran {} threads, and the recording is of a version that does not say when threads \
         wait for one another",
        t.program, t.threads
    )
}

fn wrong(t: &Threads) -> String {
    format!("{}: they are replayed as if they never did, and all times are wrong", ran(t))
}
