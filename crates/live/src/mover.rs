//! Moving pages by `move_pages`.
//!
//! ```text
//! spans ─▶ in memory, on `from`? ── no ─▶ absent
//!            │ yes
//!            ├─ MPOL_BIND or cpuset without `to` ─▶ forbidden     numa_maps, status
//!            ▼
//!          move_pages, 1 ms at once ─▶ look again: on `to`? ── yes ─▶ moved
//!            ▲                                      │ no
//!            └── the kernel gave up before it ──────┼─▶ its errno: forbidden, busy, no room
//! ```
//!
//! The kernel's answer is no proof: of pages that it could not move it often says nothing,
//! and of those behind them neither. What counts as moved was on `from` and is on `to`
//! afterwards. Parts of huge pages outside of the spans move with them and aren't counted.
//!
//! Whether there is room decides the call. It reclaims on the target before it gives up;
//! who doesn't want that leaves room above the marks, as the engine does.
//!
//! Source: specs/live.md#moving, specs/act.md#stall.

mod policies;
mod stall;
#[cfg(test)]
mod tests;

use crate::machine::{Carried, Mover};
use crate::places::call::{self, UNTOLD};
use crate::places::frames::{Frames, Known};
use crate::places::present::{self, Piece};
use crate::places::{Files, with_memory};
use homenode_core::policy::order::Fails;
use homenode_core::policy::seen::{Span, Who};
use homenode_core::units::{NodeId, Pages};
use policies::Policies;
use stall::Stall;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Addresses that are asked for at once.
const QUERIES: usize = 4096;
/// How often what the kernel did not come to is handed in again.
const ROUNDS: u32 = 8;
/// Pages with smaller gaps between them are looked at in one step.
const GAP: u64 = 32;

/// The calls that move pages and say where they are: this kernel's, or a test's.
trait Calls {
    /// As [`call::query`].
    fn query(&mut self, pid: u32, addresses: &[usize], status: &mut Vec<i32>) -> io::Result<()>;
    /// Which frames are whose: with them nobody is asked where pages are, which would take eight
    /// times as long. `None` where they may not be seen.
    fn frames(&mut self, root: &Path) -> Option<&Frames>;
    /// As [`call::send`].
    fn send(
        &mut self,
        pid: u32,
        addresses: &[usize],
        to: NodeId,
        status: &mut Vec<i32>,
    ) -> io::Result<u64>;
    /// What a call takes that moves nothing; `None`: it could not be made.
    fn empty(&mut self) -> Option<Duration>;
    /// Time, of which only differences count.
    fn now(&self) -> Duration;
}

/// This kernel.
struct Real {
    begun: Instant,
    frames: Known,
    /// A page of our own, which is moved to where it is.
    page: Vec<u8>,
}

impl Real {
    fn new() -> Self {
        Self { begun: Instant::now(), frames: Known::default(), page: vec![1; 2 << 12] }
    }
}

impl Calls for Real {
    fn query(&mut self, pid: u32, addresses: &[usize], status: &mut Vec<i32>) -> io::Result<()> {
        call::query(pid, addresses, status)
    }
    fn frames(&mut self, root: &Path) -> Option<&Frames> {
        self.frames.now(root)
    }
    fn send(
        &mut self,
        pid: u32,
        addresses: &[usize],
        to: NodeId,
        status: &mut Vec<i32>,
    ) -> io::Result<u64> {
        call::send(pid, addresses, to, status)
    }
    fn empty(&mut self) -> Option<Duration> {
        let own = std::process::id();
        let address = [(self.page.as_ptr().addr() + (1 << 12) - 1) & !((1 << 12) - 1)];
        let mut status = Vec::new();
        call::query(own, &address, &mut status).ok()?;
        let on = NodeId(u16::try_from(status[0]).ok()?);
        let begun = Instant::now();
        call::send(own, &address, on, &mut status).ok()?;
        Some(begun.elapsed())
    }
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}

/// Moves pages with `move_pages`.
pub struct MovePages {
    calls: Box<dyn Calls>,
    stall: Stall,
    files: Files,
    /// Whether the kernel knows PAGEMAP_SCAN, as far as was seen.
    scans: bool,
    policies: Policies,
}

/// Why the rest of an order is not even tried.
enum Stop {
    Gone,
    Forbidden,
    NoRoom,
    Busy,
}

impl From<io::Error> for Stop {
    fn from(e: io::Error) -> Self {
        match e.raw_os_error() {
            Some(libc::ESRCH | libc::ENOENT) => Self::Gone,
            Some(libc::EPERM | libc::EACCES) => Self::Forbidden,
            Some(libc::ENODEV | libc::ENOMEM) => Self::NoRoom,
            _ => Self::Busy,
        }
    }
}

impl MovePages {
    /// * `root` – the folder that holds `proc` and `sys`: `/`.
    /// * `stall` – longest time that the pages of one call take.
    pub fn new(root: impl Into<PathBuf>, stall: Duration) -> Self {
        let (calls, files) = (Box::new(Real::new()), Files { root: root.into() });
        let (stall, policies) = (Stall::new(stall), Policies::default());
        Self { calls, stall, files, scans: true, policies }
    }

    fn try_carry(
        &mut self,
        who: Who,
        spans: &[Span],
        from: NodeId,
        to: NodeId,
        out: &mut Carried,
    ) -> Result<(), Stop> {
        let mut there = self.look(who, spans)?;
        there.retain(|&(_, on)| on == i32::from(from.0));
        let named: Pages = spans.iter().map(|s| s.pages()).sum();
        let found: u64 = there.iter().map(|(piece, _)| piece.pages).sum();
        out.fails.absent += named - Pages(found);
        if there.is_empty() {
            return Ok(());
        }
        if !with_memory(&self.files.root).contains(&to.0) {
            return Err(Stop::NoRoom);
        }
        let policies = self.policies.of(&self.files, who)?;
        if !policies.cpuset_allows(to) {
            return Err(Stop::Forbidden);
        }
        let mut free = Vec::new();
        for (piece, _) in there {
            match policies.allow(piece.page, to) {
                true => free.push(piece),
                false => out.fails.forbidden += Pages(piece.pages),
            }
        }
        let mut rest = free.as_slice();
        while !rest.is_empty() {
            let (batch, behind) = rest.split_at(fitting(rest, self.stall.pages()));
            self.send(who, batch.to_vec(), from, to, out)?;
            rest = behind;
        }
        Ok(())
    }

    /// Moves some pages that are on `from` and may be moved, by rising number.
    fn send(
        &mut self,
        who: Who,
        mut left: Vec<Piece>,
        from: NodeId,
        to: NodeId,
        out: &mut Carried,
    ) -> Result<(), Stop> {
        let (mut status, mut full) = (Vec::new(), false);
        for _ in 0..ROUNDS {
            if left.is_empty() {
                return Ok(());
            }
            // The number alone would name whoever has it now.
            if !self.files.lives(who) {
                return Err(Stop::Gone);
            }
            if self.stall.asks() {
                self.stall.took_empty((0..2).filter_map(|_| self.calls.empty()));
            }
            let addresses: Vec<usize> = left.iter().map(|p| (p.page << 12) as usize).collect();
            let handed: u64 = left.iter().map(|p| p.pages).sum();
            let begun = self.calls.now();
            let got = self.calls.send(who.pid, &addresses, to, &mut status);
            let stuck = self.stall.took(handed, self.calls.now().saturating_sub(begun));
            full = matches!(&got, Err(e) if e.raw_os_error() == Some(libc::ENOMEM));
            let after = self.look(who, &together(&left))?;
            let mut after = after.as_slice();
            let (mut again, mut moved, mut told) = (Vec::new(), Pages::ZERO, false);
            for (piece, &status) in left.iter().zip(&status) {
                let (on, stayed) = sort_out(piece, &mut after, from, to);
                let stays: Pages = stayed.iter().map(|p| Pages(p.pages)).sum();
                moved += on;
                out.fails.absent += Pages(piece.pages).saturating_sub(on + stays);
                let fails = &mut out.fails;
                match status {
                    UNTOLD => {
                        again.extend(stayed);
                        continue;
                    }
                    s if s == -libc::EACCES || s == -libc::EPERM => fails.forbidden += stays,
                    s if s == -libc::ENOMEM => fails.no_room += stays,
                    _ => fails.busy += stays,
                }
                told = true;
            }
            out.moved += moved;
            left = again;
            match got {
                // It holds for all that is left of the order, which the caller counts.
                Err(e) if !full => return Err(e.into()),
                // A page of the next batch might find room, but each try is a reclaim.
                _ if full && moved.0 == 0 => return Err(Stop::NoRoom),
                // All of them were tried in one go, and none could be moved.
                _ if moved.0 == 0 && !told => break,
                _ if stuck => return Err(Stop::Busy),
                _ => {}
            }
        }
        let why = if full { Stop::NoRoom } else { Stop::Busy };
        why.count(left.iter().map(|p| Pages(p.pages)).sum(), &mut out.fails);
        Ok(())
    }

    /// Pages of spans that are in memory, by rising number, with their nodes or errnos.
    fn look(&mut self, who: Who, spans: &[Span]) -> io::Result<Vec<(Piece, i32)>> {
        let pagemap = self.files.open(who, "pagemap")?;
        let mut pieces = Vec::new();
        for &span in spans {
            if self.scans {
                match present::scan(&pagemap, span, |piece| pieces.push(piece)) {
                    Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => self.scans = false,
                    got => {
                        got?;
                        continue;
                    }
                }
            }
            present::read(&pagemap, span, |piece| pieces.push(piece))?;
        }
        let mut found: Vec<(Piece, i32)> = Vec::with_capacity(pieces.len());
        // Found without PAGEMAP_SCAN, the page of zeros would count by its frame.
        match self.calls.frames(&self.files.root).filter(|_| self.scans) {
            Some(frames) => present::frames(&pagemap, &pieces, |piece, frame| {
                let node = frame.map(|f| frames.node(f).map_or(UNTOLD, |n| i32::from(n.0)));
                found.push((piece, node.unwrap_or(-libc::ENOENT)));
            })?,
            None => found.extend(pieces.into_iter().map(|piece| (piece, UNTOLD))),
        }
        // Those that frames don't tell of.
        let asked: Vec<usize> = (0..found.len()).filter(|&i| found[i].1 == UNTOLD).collect();
        let mut status = Vec::new();
        for asked in asked.chunks(QUERIES) {
            let addresses = asked.iter().map(|&i| (found[i].0.page << 12) as usize);
            self.calls.query(who.pid, &addresses.collect::<Vec<_>>(), &mut status)?;
            asked.iter().zip(&status).for_each(|(&i, &told)| found[i].1 = told);
        }
        Ok(found)
    }
}

impl Stop {
    fn count(&self, pages: Pages, fails: &mut Fails) {
        *match self {
            Self::Gone => &mut fails.gone,
            Self::Forbidden => &mut fails.forbidden,
            Self::NoRoom => &mut fails.no_room,
            Self::Busy => &mut fails.busy,
        } += pages;
    }
}

/// How many of the first pieces have so many pages together; one at least.
fn fitting(pieces: &[Piece], most: u64) -> usize {
    let mut pages = 0;
    let fit = pieces.iter().take_while(|p| {
        pages += p.pages;
        pages <= most
    });
    fit.count().max(1)
}

/// Spans that hold all of the pieces and little else.
fn together(pieces: &[Piece]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for p in pieces {
        let end = p.page + p.pages;
        match spans.last_mut() {
            Some(last) if p.page <= last.end + GAP => last.end = end,
            _ => spans.push(Span { start: p.page, end }),
        }
    }
    spans
}

/// How many of a piece's pages are on `to` now, and which are still on `from`: a huge page
/// may have been split meanwhile. `after` begins with those that no earlier piece had.
fn sort_out(
    piece: &Piece,
    after: &mut &[(Piece, i32)],
    from: NodeId,
    to: NodeId,
) -> (Pages, Vec<Piece>) {
    let (mut on, mut stayed) = (Pages::ZERO, Vec::new());
    let end = piece.page + piece.pages;
    while let [(first, node), rest @ ..] = *after {
        let (lo, hi) = (first.page.max(piece.page), (first.page + first.pages).min(end));
        if lo < hi && *node == i32::from(to.0) {
            on += Pages(hi - lo);
        } else if lo < hi && *node == i32::from(from.0) {
            stayed.push(Piece { page: lo, pages: hi - lo });
        }
        if first.page + first.pages > end {
            break;
        }
        *after = rest;
    }
    (on, stayed)
}

impl Mover for MovePages {
    fn carry(&mut self, who: Who, spans: &[Span], from: NodeId, to: NodeId) -> Carried {
        let mut out = Carried::default();
        let named: Pages = spans.iter().map(|s| s.pages()).sum();
        if !self.files.lives(who) {
            out.fails.gone = named;
            return out;
        }
        if from == to {
            out.fails.absent = named;
            return out;
        }
        let got = self.try_carry(who, spans, from, to, &mut out);
        let rest = named.saturating_sub(out.moved + out.fails.all());
        match got {
            Err(why) => {
                let why = if self.files.lives(who) { why } else { Stop::Gone };
                why.count(rest, &mut out.fails);
            }
            Ok(()) => out.fails.busy += rest,
        }
        out
    }
}
