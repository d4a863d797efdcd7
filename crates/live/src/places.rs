//! Where pages are.
//!
//! ```text
//! census   one node with memory ── /proc/PID/status ─────────────────▶ pages
//!          several              ── /proc/PID/numa_maps, line by line ─▶ pages by node
//! within   pages in memory      ── PAGEMAP_SCAN (6.7), else pagemap
//!            └▶ their nodes     ── frames of pagemap, where they may be seen,
//!                                  else move_pages without a target ─▶ pages by node
//! extents  from Linux 6.7 on    ── PAGEMAP_SCAN and frames of pagemap ▶ what lies together
//!          before, or without frames: mappings, by maps and numa_maps ▶ pages by node
//! ```
//!
//! Counted is what is mapped and in memory: neither what is swapped out nor the page of
//! zeros. A huge page is asked for once. Holes cost nothing: before Linux 6.7 a large
//! mapping is counted by numa_maps, and only what the span cuts is read page by page.
//!
//! A process that is gone, or may not be asked, is `None`; the latter are counted
//! ([`ThisKernel::refused`]).
//!
//! Source: specs/live.md#places.

pub mod call;
mod extents;
pub(crate) mod frames;
pub(crate) mod numa_maps;
pub(crate) mod present;
#[cfg(test)]
mod tests;

use crate::machine::Places;
use crate::sysfs;
use crate::text::number;
use frames::Frames;
use homenode_core::policy::extents::Extent;
use homenode_core::policy::seen::{Span, Who};
use homenode_core::units::{NodeId, Pages};
use present::Piece;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages by node.
type ByNode = BTreeMap<NodeId, Pages>;

/// Addresses that are asked for at once. The kernel takes its lock anew every 16.
const BATCH: usize = 4096;
/// Before Linux 6.7: mapped pages of a span up to which all of them are read one by one,
/// 4 GiB and about 5 ms. Beyond, numa_maps is read as well, which walks the whole process.
const READ_MAX: u64 = 1 << 20;

/// Nodes with memory, as `sys/devices/system/node/has_memory` below a root lists them;
/// node 0 where it lists none.
pub fn with_memory(root: &Path) -> Vec<u16> {
    std::fs::read_to_string(root.join("sys/devices/system/node/has_memory"))
        .ok()
        .and_then(|text| sysfs::parse_list(&text))
        .map(|list| list.into_iter().filter_map(|n| u16::try_from(n).ok()).collect::<Vec<_>>())
        .filter(|list| !list.is_empty())
        .unwrap_or_else(|| vec![0])
}

/// Whether `pagemap` shows us frames, as it does with CAP_SYS_ADMIN: then a look takes some
/// 40 ns a page instead of 320.
pub fn sees_frames(root: &Path) -> bool {
    // What stands here is in memory.
    let here = 0u8;
    let page = std::ptr::from_ref(&here) as u64 >> 12;
    let Ok(pagemap) = File::open(root.join("proc/self/pagemap")) else { return false };
    let mut frame = None;
    let read = present::frames(&pagemap, &[Piece { page, pages: 1 }], |_, f| frame = f);
    read.is_ok() && frame.is_some_and(|f| f != 0)
}

/// The files of processes, below a root.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) root: PathBuf,
}

impl Files {
    /// Opens a file of a process. It stays that of the process, and of its present address
    /// space, whoever gets the number later: where [`Self::lives`] holds afterwards, it is
    /// the file of whom we mean.
    pub(crate) fn open(&self, who: Who, name: &str) -> io::Result<File> {
        File::open(self.root.join(format!("proc/{}/{name}", who.pid)))
    }
    /// Whether the number still is that process'.
    pub(crate) fn lives(&self, who: Who) -> bool {
        let path = self.root.join(format!("proc/{}/stat", who.pid));
        std::fs::read(path).is_ok_and(|stat| start(&stat) == Some(who.start))
    }
}

/// Field 22 of /proc/PID/stat; the second one may hold blanks, brackets and any byte.
fn start(stat: &[u8]) -> Option<u64> {
    let behind = stat.iter().rposition(|b| *b == b')')? + 1;
    let rest = std::str::from_utf8(&stat[behind..]).ok()?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The kernel that we run on.
#[derive(Debug)]
pub struct ThisKernel {
    files: Files,
    /// Whether it knows PAGEMAP_SCAN, as far as was seen.
    scans: bool,
    frames: frames::Known,
    refused: Arc<AtomicU64>,
}

impl ThisKernel {
    /// * `root` – the folder that holds `proc` and `sys`: `/`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let files = Files { root: root.into() };
        Self { files, scans: true, frames: frames::Known::default(), refused: Arc::default() }
    }
    /// How often a process could not be asked, since it is another user's: a counter that
    /// goes on counting when this has been handed over.
    pub fn refused(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.refused)
    }

    /// What was found, if it was that process that was asked.
    fn told<T>(&self, who: Who, found: io::Result<T>) -> Option<T> {
        match found {
            Ok(found) => self.files.lives(who).then_some(found),
            Err(e) => {
                if e.kind() == io::ErrorKind::PermissionDenied {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                }
                None
            }
        }
    }

    fn try_census(&self, who: Who) -> io::Result<ByNode> {
        let mut found = ByNode::new();
        if let Some(only) = self.only() {
            let status = io::read_to_string(self.files.open(who, "status")?)?;
            add(&mut found, only, resident(&status));
            return Ok(found);
        }
        numa_maps::each(BufReader::new(self.files.open(who, "numa_maps")?), |line| {
            line.nodes.iter().for_each(|&(node, pages)| add(&mut found, node, pages));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    fn try_extents(&mut self, who: Who) -> io::Result<Vec<Extent>> {
        let only = self.only();
        let frames = match only {
            Some(_) => None,
            None => self.frames.now(&self.files.root),
        };
        let by = only.map(extents::Nodes::Only).or(frames.map(extents::Nodes::Frames));
        if let Some(by) = by.filter(|_| self.scans) {
            match extents::read(&self.files.open(who, "pagemap")?, by) {
                Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => self.scans = false,
                got => return got,
            }
        }
        self.try_mappings(who)
    }

    /// The node with memory, where there is one only.
    fn only(&self) -> Option<NodeId> {
        if let [only] = with_memory(&self.files.root)[..] { Some(NodeId(only)) } else { None }
    }

    fn try_mappings(&self, who: Who) -> io::Result<Vec<Extent>> {
        let all = Span { start: 0, end: u64::MAX };
        let maps = present::mappings(self.files.open(who, "maps")?, all)?;
        let mut found = Totals::default();
        numa_maps::each(BufReader::new(self.files.open(who, "numa_maps")?), |line| {
            found.note(&maps, &line);
            ControlFlow::Continue(())
        })?;
        let mut of = |m: &Span| found.0.remove(&m.start).filter(|pages| !pages.is_empty());
        Ok(maps.into_iter().filter_map(|m| Some((m, of(&m)?))).collect())
    }

    fn try_within(&mut self, who: Who, spans: &[Span]) -> io::Result<Vec<ByNode>> {
        let only = self.only();
        let pagemap = self.files.open(who, "pagemap")?;
        let frames = match only {
            Some(_) => None,
            None => self.frames.now(&self.files.root),
        };
        let frames = frames.map(|f| (f, &pagemap));
        let mut found = Vec::with_capacity(spans.len());
        for &span in spans.iter().take_while(|_| self.scans) {
            let mut asked = Asked::new(who.pid, only, frames);
            match present::scan(&pagemap, span, |piece| asked.add(piece)) {
                Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => break,
                got => found.push(got.and_then(|()| asked.done())?),
            }
        }
        let rest = &spans[found.len()..];
        let (Some(first), Some(last)) = (rest.first(), rest.last()) else { return Ok(found) };
        // The kernel doesn't know the call.
        self.scans = false;
        let all = Span { start: first.start, end: last.end };
        let maps = present::mappings(self.files.open(who, "maps")?, all)?;
        for &span in rest {
            found.push(self.read_span(who, &pagemap, &maps, span)?);
        }
        Ok(found)
    }

    /// Before Linux 6.7.
    ///
    /// * `maps` – the process's mappings, as far as they reach into any of the spans.
    fn read_span(&self, who: Who, pagemap: &File, maps: &[Span], span: Span) -> io::Result<ByNode> {
        // By its frame the page of zeros would count.
        let (mut asked, mut beyond) =
            (Asked::new(who.pid, None, None), Asked::new(who.pid, None, None));
        let (mapped, mut found) = self.mapped(who, maps, span)?;
        for (part, take) in mapped {
            let asked = match take {
                Take::Add => &mut asked,
                Take::Less => &mut beyond,
            };
            present::read(pagemap, part, |piece| asked.add(piece))?;
        }
        for (node, pages) in beyond.done()? {
            let left = found.entry(node).or_default();
            *left = left.saturating_sub(pages);
        }
        asked.done()?.into_iter().for_each(|(node, pages)| add(&mut found, node, pages));
        found.retain(|_, pages| pages.0 > 0);
        Ok(found)
    }

    /// Before Linux 6.7: what of a span is to be read page by page, and the pages of
    /// mappings of which the kernel has told them as a whole.
    fn mapped(
        &self,
        who: Who,
        maps: &[Span],
        span: Span,
    ) -> io::Result<(Vec<(Span, Take)>, ByNode)> {
        // Both in rising order.
        let behind = maps.partition_point(|m| m.start < span.end);
        let all = &maps[maps.partition_point(|m| m.end <= span.start).min(behind)..behind];
        let part = |m: &Span| Span { start: m.start.max(span.start), end: m.end.min(span.end) };
        let mut found = ByNode::new();
        let mut totals = Totals::default();
        if all.iter().map(|m| part(m).pages()).sum::<Pages>().0 > READ_MAX {
            let file = BufReader::new(self.files.open(who, "numa_maps")?);
            let note = |line: numa_maps::Line| {
                totals.note(all, &line);
                let more = line.start < span.end;
                if more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            // A kernel without nodes has no such file: then it takes as long as it takes.
            numa_maps::each(file, note).or_else(|e| match e.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(e),
            })?;
        }
        let mut parts = Vec::new();
        for mapping in all {
            let inside = part(mapping);
            let outside = [
                Span { start: mapping.start, end: inside.start },
                Span { start: inside.end, end: mapping.end },
            ];
            match totals.0.get(&mapping.start) {
                Some(nodes) if nodes.is_empty() => {}
                Some(nodes) if mapping.pages().0 - inside.pages().0 <= inside.pages().0 => {
                    nodes.iter().for_each(|(&node, &pages)| add(&mut found, node, pages));
                    let outside = outside.into_iter().filter(|s| s.start < s.end);
                    parts.extend(outside.map(|s| (s, Take::Less)));
                }
                _ => parts.push((inside, Take::Add)),
            }
        }
        Ok((parts, found))
    }
}

/// Pages of mappings, by their first page, as numa_maps tells them.
///
/// The kernel writes `maps` and `numa_maps` at two moments. What was one mapping may be
/// several by then, since a neighbour that it was joined with went away and another came: all
/// that begin in it are its pages. One in which none begins has no row here.
#[derive(Debug, Default)]
struct Totals(BTreeMap<u64, ByNode>);

impl Totals {
    /// * `maps` – mappings in rising order.
    fn note(&mut self, maps: &[Span], line: &numa_maps::Line) {
        let at = maps.partition_point(|m| m.end <= line.start);
        // One that has come since has no end yet.
        let Some(mapping) = maps.get(at).filter(|m| m.start <= line.start) else { return };
        let pages = self.0.entry(mapping.start).or_default();
        line.nodes.iter().for_each(|&(node, n)| add(pages, node, n));
    }
}

/// What pages that are read one by one are for.
#[derive(Clone, Copy)]
enum Take {
    /// They are of the span.
    Add,
    /// They are of a mapping that was counted as a whole, and not of the span.
    Less,
}

fn add(to: &mut ByNode, node: NodeId, pages: Pages) {
    if pages.0 > 0 {
        *to.entry(node).or_default() += pages;
    }
}

/// `VmRSS` and `HugetlbPages` of a text as /proc/PID/status has it; neither is there
/// where there is no address space. VmRSS is up to some dozens of pages a CPU late.
fn resident(status: &str) -> Pages {
    let kib = |key| number(status, key).unwrap_or(0);
    Pages(kib("VmRSS:").saturating_add(kib("HugetlbPages:")) / 4)
}

/// Asks for the nodes of pages, in batches.
#[derive(Default)]
struct Asked<'f> {
    pid: u32,
    /// Nodes of frames, and the file that tells frames.
    frames: Option<(&'f Frames, &'f File)>,
    /// Pages whose frames are to be read.
    pieces: Vec<Piece>,
    /// The one node that there is: nothing is asked.
    only: Option<NodeId>,
    addresses: Vec<usize>,
    /// How many pages each of them stands for.
    pages: Vec<u64>,
    status: Vec<i32>,
    found: ByNode,
    failed: Option<io::Error>,
}

impl<'f> Asked<'f> {
    fn new(pid: u32, only: Option<NodeId>, frames: Option<(&'f Frames, &'f File)>) -> Self {
        Self { pid, only, frames, ..Self::default() }
    }
    fn add(&mut self, piece: Piece) {
        if let Some(only) = self.only {
            return add(&mut self.found, only, Pages(piece.pages));
        }
        if self.frames.is_some() {
            self.pieces.push(piece);
            if self.pieces.len() >= BATCH {
                self.look_up();
            }
            return;
        }
        self.query(piece);
    }
    /// Whose node frames don't tell is asked for.
    fn query(&mut self, piece: Piece) {
        self.addresses.push((piece.page << 12) as usize);
        self.pages.push(piece.pages);
        if self.addresses.len() >= BATCH {
            self.ask();
        }
    }
    fn look_up(&mut self) {
        let pieces = std::mem::take(&mut self.pieces);
        let Some((frames, pagemap)) = self.frames else { return };
        let read = present::frames(pagemap, &pieces, |piece, frame| match frame {
            // It went away between.
            None => {}
            Some(frame) => match frames.node(frame) {
                Some(node) => add(&mut self.found, node, Pages(piece.pages)),
                None => {
                    self.addresses.push((piece.page << 12) as usize);
                    self.pages.push(piece.pages);
                }
            },
        });
        if let Err(e) = read {
            self.failed.get_or_insert(e);
        }
        if self.addresses.len() >= BATCH {
            self.ask();
        }
    }
    fn ask(&mut self) {
        if self.failed.is_none() {
            self.failed = call::query(self.pid, &self.addresses, &mut self.status).err();
            for (&status, &pages) in self.status.iter().zip(&self.pages) {
                // Those that went away between, and the page of zeros, have no node.
                if let Ok(node) = u16::try_from(status) {
                    add(&mut self.found, NodeId(node), Pages(pages));
                }
            }
        }
        self.addresses.clear();
        self.pages.clear();
    }
    fn done(mut self) -> io::Result<ByNode> {
        if !self.pieces.is_empty() {
            self.look_up();
        }
        if !self.addresses.is_empty() {
            self.ask();
        }
        self.failed.map_or(Ok(self.found), Err)
    }
}

impl Places for ThisKernel {
    fn census(&mut self, who: Who) -> Option<ByNode> {
        let found = self.try_census(who);
        self.told(who, found)
    }
    fn extents(&mut self, who: Who) -> Option<Vec<Extent>> {
        let found = self.try_extents(who);
        self.told(who, found)
    }
    fn within_each(&mut self, who: Who, spans: &[Span]) -> Option<Vec<ByNode>> {
        let found = self.try_within(who, spans);
        self.told(who, found)
    }
}
