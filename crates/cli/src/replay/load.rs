//! A recording's file as what the simulator replays, with the heat of its pages.

use crate::failure::Lacks;
use crate::record;
use anyhow::{Context, Result, bail};
use homenode_sim::replay::{Op, Recording};
use homenode_trace::{ARG_STREAM, ARG_WRITE, Batch, Ended, Header, Kind, Reader, Row, Threads};
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

/// A recording, ready to be replayed.
pub(crate) struct Loaded {
    pub(crate) header: Header,
    pub(crate) recording: Arc<Recording>,
    /// Ranges of virtual pages, by rising address, of equally many touched pages.
    pub(crate) ranges: Vec<(u64, u64)>,
    /// Lines that each range had fetched from memory in one round.
    pub(crate) heat: Vec<u64>,
}

impl Loaded {
    /// Why its figures come out wrong, where they do.
    pub(crate) fn wrong(&self) -> Option<String> {
        self.header.threads().map(|t| wrong(&t))
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
    let mut pages: HashMap<u64, u64> = HashMap::new();
    let mut batch = Batch::default();
    let mut batches = reader.batches();
    let mut rows = 0;
    while batches.next_into(&mut batch)? {
        for row in batch.iter() {
            if row.kind == Kind::Access {
                *pages.entry(row.page).or_default() += u64::from(row.reads) + u64::from(row.writes);
            }
            recording.push(row.task, row.insns, op(row));
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
    Ok(Loaded { header, recording: Arc::new(recording), ranges, heat })
}

/// A row as what the simulator replays.
pub(crate) fn op(row: &Row) -> Op {
    let prot = |p: u64| [p & PROT_READ != 0, p & PROT_WRITE != 0, p & PROT_EXEC != 0];
    let (page, pages) = (row.page, row.pages);
    let child = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    match row.kind {
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
        Kind::Exit => Op::Exit,
        Kind::Wait => Op::Wait { child: u32::try_from(row.arg).ok() },
    }
}

/// Opens a recording for its header, so that a bad file is told at once, and one whose
/// figures would be wrong.
///
/// # Errors
/// What the reader says; [`Lacks`] where threads ran and nobody wants them `anyway`.
pub(crate) fn check(path: &Path, anyway: bool) -> Result<()> {
    let reader = Reader::open(path).with_context(|| format!("can't replay {}", path.display()))?;
    let Some(threads) = reader.header().threads() else { return Ok(()) };
    if !anyway {
        bail!(Lacks(format!(
            "can't replay {}: {}, so that all times would be wrong. {}, or see the wrong figures \
             with --threads-anyway",
            path.display(),
            ran(&threads),
            REMEDY
        )));
    }
    eprintln!("homenode: {}: WRONG: {}", path.display(), wrong(&threads));
    Ok(())
}

/// What can be done about threads.
const REMEDY: &str = "Record the program with one thread (an option such as -T1, -j1 or \
                      --parallel=1, or OMP_NUM_THREADS=1 in its environment)";

/// What a recording has of threads, and what it lacks.
fn ran(t: &Threads) -> String {
    format!(
        "{} ran {} threads, and when threads wait for one another is not recorded",
        t.program, t.threads
    )
}

fn wrong(t: &Threads) -> String {
    format!("{}: they are replayed as if they never did, and all times are wrong", ran(t))
}

/// What is said when such a recording has been made.
pub(crate) fn note(t: &Threads) -> String {
    format!("{}: homenode replay will refuse this recording. {REMEDY}", ran(t))
}
