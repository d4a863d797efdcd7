//! Looking at memory: units of work, the workers that do them, and what they keep.
//!
//! A unit is what a process has mapped within one window of 64 MiB. A first look
//! reads its pages and counts them. A second look compares them: what is the same
//! stays counted, the rest is taken out of the count.
//!
//! ```text
//! first look    pages   1 2 3 4 . 6        . not in memory
//!               keeps   a b a c   d        numbers of contents
//! second look   pages   1 2 3 . 5 6
//!               found   a x a   e d
//!               counts  2: volatile, 4: gone, 5: volatile (or counted, if its
//!                       content was somewhere at the first look)
//! ```

use super::again::{Changed, Tell};
use super::kcore::Kcore;
use super::maps::Mapping;
use super::nodes::NodeSource;
use super::pages::{self, Found, Sight};
use super::read::{BATCH, Hasher, Reader, Room, may_read};
use super::table::{Frame, Frames, Key, Table};
use super::who::Owner;
use homenode_core::ksm::saving::Ended;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

/// Pages of a window.
pub(super) const WINDOW: u64 = 1 << 14;
/// Pages whose entries are read at once: they are read soon after, so that few of
/// them are swapped out between.
const ENTRIES: u64 = 2048;

/// What all looks share.
pub(super) struct Common<'a> {
    pub(super) counts: Mutex<Counts>,
    pub(super) sight: Sight,
    pub(super) nodes: &'a dyn NodeSource,
    pub(super) hasher: Hasher,
    /// The content of a page of zeros.
    pub(super) zero: u128,
    /// Who tells a second look what was written; nobody: all is read again.
    pub(super) tell: Option<Tell>,
    /// Shows pages that several map; without it each frame counts as a content of its
    /// own.
    pub(super) kcore: Option<Kcore>,
    /// Numbers of contents are kept, for a second look or for shares.
    pub(super) keep: bool,
    pub(super) budget: Budget,
    /// Buffers of workers that are done: a second look is short, and new memory
    /// would be a good part of it.
    pub(super) spare: Mutex<Vec<Vec<Room>>>,
}

/// What is counted.
pub(super) struct Counts {
    pub(super) table: Table,
    pub(super) frames: Frames,
    /// Contents at the end of the first look.
    pub(super) known: u32,
    /// More contents than the table can take.
    pub(super) full: bool,
}

impl Common<'_> {
    pub(super) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(|e| e.into_inner())
    }
    fn spare(&self) -> MutexGuard<'_, Vec<Vec<Room>>> {
        self.spare.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// A share of the processors' time.
pub(super) struct Budget {
    began: Instant,
    cpu_before: Duration,
    /// Percent of one CPU; `None`: as many as there are threads.
    percent: Option<u32>,
}

impl Budget {
    pub(super) fn new(percent: Option<u32>) -> Self {
        Self { began: Instant::now(), cpu_before: cpu_time(), percent }
    }

    /// Sleeps until what was used is within the budget.
    fn keep(&self) {
        let Some(percent) = self.percent else { return };
        let used = cpu_time().saturating_sub(self.cpu_before);
        let due = used * 100 / percent.max(1);
        let over = due.saturating_sub(self.began.elapsed());
        if over > Duration::from_millis(1) {
            std::thread::sleep(over.min(Duration::from_secs(1)));
        }
    }
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    homenode_live::machine::time_of(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// What to look at in one go.
pub(super) struct Unit {
    /// Index of the process.
    pub(super) process: usize,
    pub(super) pid: u32,
    /// Writes of the whole process are noted.
    pub(super) noted: bool,
    /// Mapped parts of the window, by rising address.
    pub(super) pieces: Vec<Mapping>,
    /// What the first look kept.
    pub(super) kept: Option<Kept>,
}

/// Numbers of contents by page.
#[derive(Default)]
pub(super) struct Kept {
    extents: Vec<Extent>,
    /// Number of the content in the low 31 bits; [`OWN`].
    pub(super) ids: Vec<u32>,
    /// Page ranges in which writes were noted since.
    noted: Vec<(u64, u64)>,
    /// Numbers for pages that the second look found new and counted.
    pub(super) more: Vec<u32>,
}

/// Pages one after the other: ids from `at` on, up to the next one's.
#[derive(Clone, Copy)]
struct Extent {
    page: u64,
    at: u32,
}

/// In a kept number: nobody else mapped the frame.
const OWN: u32 = 1 << 31;
/// In place of a kept number: not counted (any longer).
const NOT_COUNTED: u32 = OWN - 1;

/// The content of a kept number.
pub(super) fn content_of(kept: u32) -> Option<u32> {
    Some(kept & !OWN).filter(|id| *id != NOT_COUNTED)
}

impl Kept {
    fn push(&mut self, page: u64, id: u32, own: bool) {
        let at = self.ids.len() as u32;
        let follows = self.extents.last().is_some_and(|r| r.page + u64::from(at - r.at) == page);
        if !follows {
            self.extents.push(Extent { page, at });
        }
        self.ids.push(id | if own { OWN } else { 0 });
    }
    /// Pages that were kept.
    pub(super) fn first_window(&self) -> Option<u64> {
        self.extents.first().map(|r| r.page / WINDOW)
    }
    fn is_noted(&self, piece: Mapping) -> bool {
        self.noted.iter().any(|&(first, end)| first <= piece.first && piece.end <= end)
    }
    pub(super) fn bytes(&self) -> usize {
        self.extents.capacity() * size_of::<Extent>()
            + (self.ids.capacity() + self.more.capacity()) * size_of::<u32>()
    }
}

/// Goes over kept pages by rising page.
struct Cursor {
    extent: usize,
    offset: u32,
}

impl Cursor {
    /// The first kept page that is not before `page`, the index of its number, and
    /// how many follow without a gap, itself among them; all kept pages before it
    /// that were not asked for go to `passed`.
    fn seek(&mut self, kept: &Kept, page: u64, passed: &mut Vec<u32>) -> Option<(u64, u32, u32)> {
        while let Some(extent) = kept.extents.get(self.extent) {
            let end = kept.extents.get(self.extent + 1).map_or(kept.ids.len() as u32, |r| r.at);
            let len = end - extent.at;
            let skip = page.saturating_sub(extent.page).min(u64::from(len)) as u32;
            if skip > self.offset {
                passed.extend(extent.at + self.offset..extent.at + skip);
                self.offset = skip;
            }
            if self.offset < len {
                let here = extent.page + u64::from(self.offset);
                return Some((here, extent.at + self.offset, len - self.offset));
            }
            self.extent += 1;
            self.offset = 0;
        }
        None
    }

    /// The index of a page's kept number; all kept pages before it that were not
    /// asked for go to `passed`.
    fn find(&mut self, kept: &Kept, page: u64, passed: &mut Vec<u32>) -> Option<usize> {
        let (here, at, _) = self.seek(kept, page, passed)?;
        if here != page {
            return None;
        }
        self.offset += 1;
        Some(at as usize)
    }

    /// Goes over pages that are as they were: returns how many of them were counted.
    /// The others go to `unknown`, with the index of what was kept.
    fn clean(
        &mut self,
        kept: &Kept,
        pages: Range<u64>,
        passed: &mut Vec<u32>,
        unknown: &mut Vec<(u64, Option<usize>)>,
    ) -> u64 {
        let mut spared = 0;
        let mut page = pages.start;
        while page < pages.end {
            let there = self.seek(kept, page, passed);
            let gap = there.map_or(pages.end, |(here, ..)| here.min(pages.end));
            unknown.extend((page..gap).map(|page| (page, None)));
            page = gap;
            let Some((_, at, len)) = there.filter(|(here, ..)| *here == page) else { continue };
            let n = (pages.end - page).min(u64::from(len)) as u32;
            let ids = &kept.ids[at as usize..(at + n) as usize];
            let uncounted = ids.iter().filter(|id| content_of(**id).is_none()).count();
            spared += u64::from(n) - uncounted as u64;
            if uncounted > 0 {
                let pages = (page..).zip(at as usize..).zip(ids);
                let new = pages.filter(|(_, id)| content_of(**id).is_none());
                unknown.extend(new.map(|((page, at), _)| (page, Some(at))));
            }
            self.offset += n;
            page += u64::from(n);
        }
        spared
    }
}

/// What came out of a unit.
#[derive(Default)]
pub(super) struct Done {
    pub(super) process: usize,
    /// Pages in memory that may be merged. May fall at a second look.
    pub(super) scanned: i64,
    /// Pages whose content changed, new ones among them.
    pub(super) volatile: u64,
    /// Pages read.
    pub(super) read: u64,
    /// Pages whose frame stood for their content.
    pub(super) by_frame: u64,
    /// Pages left out: several map them, and frames are hidden.
    pub(super) unread: u64,
    /// Pages not read, since the kernel says that they did not change.
    pub(super) spared: u64,
    pub(super) stop: Option<Ended>,
    pub(super) kept: Option<Kept>,
}

/// Cuts a process' mappings into units, each within a window.
pub(super) fn units(process: usize, who: &Owner, mappings: &[Mapping], noted: bool) -> Vec<Unit> {
    // A reservation can be thousands of times what is in memory: then the kernel
    // is asked first where there is something.
    let mapped: u64 = mappings.iter().map(|m| m.end - m.first).sum();
    let sparse = mapped > 4 * who.pages + WINDOW;
    let pagemap = if sparse { pages::open(who.pid).ok() } else { None };
    let unit = |piece| Unit { process, pid: who.pid, noted, pieces: vec![piece], kept: None };
    let mut units: Vec<Unit> = Vec::new();
    let mut last_window = None;
    for &mapping in mappings {
        let parts = match &pagemap {
            Some(pagemap) => pages::populated(pagemap, mapping),
            None => vec![mapping],
        };
        for part in parts {
            let mut first = part.first;
            while first < part.end {
                let window = first / WINDOW;
                let end = part.end.min((window + 1) * WINDOW);
                let piece = Mapping { first, end, ..part };
                match units.last_mut().filter(|_| last_window == Some(window)) {
                    Some(unit) => unit.pieces.push(piece),
                    None => units.push(unit(piece)),
                }
                last_window = Some(window);
                first = end;
            }
        }
    }
    units
}

/// One worker's room.
struct Worker<'a> {
    common: &'a Common<'a>,
    reader: Reader<'a>,
    entries: Vec<u8>,
    found: Vec<Found>,
    pages: Vec<u64>,
    hashes: Vec<Option<u128>>,
    nodes: Vec<u16>,
    by_frame: u64,
    /// Of the process of the last unit, by its index.
    pagemap: Option<(usize, Arc<File>)>,
    progress: &'a AtomicU64,
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.common.spare().push(self.reader.take_buffer());
    }
}

impl<'a> Worker<'a> {
    fn new(common: &'a Common<'a>, progress: &'a AtomicU64) -> Self {
        let buffer = common.spare().pop().unwrap_or_else(Room::batch);
        Self {
            common,
            reader: Reader::new(&common.hasher, buffer),
            entries: Vec::new(),
            found: Vec::new(),
            pages: Vec::with_capacity(BATCH),
            hashes: Vec::with_capacity(BATCH),
            nodes: Vec::with_capacity(BATCH),
            by_frame: 0,
            pagemap: None,
            progress,
        }
    }

    /// A process' pagemap, opened once for all of its units that follow each other.
    fn pagemap(&mut self, unit: &Unit) -> Result<Arc<File>, Ended> {
        match &self.pagemap {
            Some((process, open)) if *process == unit.process => {
                // It would go on to show the pages of a process that has gone: none.
                may_read(unit.pid)?;
                Ok(open.clone())
            }
            _ => {
                let open = Arc::new(pages::open(unit.pid).map_err(|e| ended(&e))?);
                self.pagemap = Some((unit.process, open.clone()));
                Ok(open)
            }
        }
    }

    fn unit(&mut self, unit: &mut Unit) -> Done {
        let mut done = Done { process: unit.process, ..Done::default() };
        match unit.kept.take() {
            None => self.first(unit, &mut done),
            Some(kept) => self.second(unit, kept, &mut done),
        }
        done.by_frame = std::mem::take(&mut self.by_frame);
        done
    }

    /// Entries of pagemap of a part of a piece. A process that has gone has none.
    fn find(&mut self, pagemap: &File, part: Mapping, done: &mut Done) -> Result<(), Ended> {
        self.found.clear();
        let sight = &self.common.sight;
        done.unread += pages::find(pagemap, sight, part, &mut self.entries, &mut self.found)
            .map_err(|e| ended(&e))?;
        Ok(())
    }

    /// Looks at a batch: contents, and nodes.
    fn read(&mut self, pid: u32, batch: &[Found], pagemap: &File) -> Result<(), Ended> {
        self.pages.clear();
        self.pages.extend(batch.iter().filter(|f| f.own).map(|f| f.page));
        self.reader.hashes(pid, &self.pages, &mut self.hashes)?;
        if self.pages.len() < batch.len() {
            // The others come between.
            let mut read = std::mem::take(&mut self.hashes);
            let mut next = read.drain(..);
            for found in batch.iter() {
                let hash =
                    if found.own { next.next().flatten() } else { self.shared(found, pagemap) };
                self.hashes.push(hash);
            }
            self.pages.clear();
            self.pages.extend(batch.iter().map(|f| f.page));
        }
        self.common.nodes.nodes(pid, &self.pages, &mut self.nodes);
        self.common.budget.keep();
        Ok(())
    }

    /// The content of a page that several map, in the kernel's own view; without it
    /// the frame stands for the content.
    fn shared(&mut self, found: &Found, pagemap: &File) -> Option<u128> {
        let frame = found.frame?;
        let Some(kcore) = &self.common.kcore else {
            self.by_frame += 1;
            return Some(self.common.hasher.hash(&frame.to_ne_bytes()));
        };
        let page = self.reader.room();
        if !kcore.read(frame, page) {
            return None;
        }
        let hash = self.common.hasher.hash(page);
        // The frame may have become another's before it was read.
        let still = pages::frame_now(pagemap, found.page) == Some(frame);
        let zeros = Key::new(hash, 0).content() == self.common.zero;
        (still && !(zeros && self.common.sight.is_zero_page(frame))).then_some(hash)
    }

    fn first(&mut self, unit: &Unit, done: &mut Done) {
        let common = self.common;
        let mut kept = Kept::default();
        let mut work = || -> Result<(), Ended> {
            let pagemap = self.pagemap(unit)?;
            for &piece in &unit.pieces {
                if unit.noted && piece.plain {
                    kept.noted.push((piece.first, piece.end));
                }
                let mut first = piece.first;
                while first < piece.end {
                    let end = piece.end.min(first + ENTRIES);
                    self.find(&pagemap, Mapping { first, end, ..piece }, done)?;
                    first = end;
                    let found = std::mem::take(&mut self.found);
                    for batch in found.chunks(BATCH) {
                        self.read(unit.pid, batch, &pagemap)?;
                        self.count(batch, &mut kept, done);
                        self.progress.fetch_add(batch.len() as u64, Ordering::Relaxed);
                    }
                    self.found = found;
                }
            }
            Ok(())
        };
        done.stop = work().err();
        if common.keep {
            kept.ids.shrink_to_fit();
            kept.extents.shrink_to_fit();
            done.kept = Some(kept);
        }
    }

    /// Counts a batch that was read.
    fn count(&self, batch: &[Found], kept: &mut Kept, done: &mut Done) {
        let keys = || {
            let hashes = self.hashes.iter().zip(&self.nodes);
            hashes.map(|(hash, node)| hash.map(|h| Key::new(h, *node)))
        };
        let mut counts = self.common.counts();
        let counts = &mut *counts;
        // Two rounds of asking for cache lines, so that the third waits for none.
        keys().flatten().for_each(|key| counts.table.prefetch_slot(key));
        let frames = batch.iter().filter_map(|found| found.frame);
        frames.for_each(|frame| counts.frames.prefetch(frame));
        keys().flatten().for_each(|key| counts.table.prefetch_entry(key));
        for (found, key) in batch.iter().zip(keys()) {
            let Some(key) = key else { continue };
            let Some(id) = counts.table.find_or_insert(key) else {
                counts.full = true;
                continue;
            };
            let frame = frame_of(&mut counts.frames, found);
            counts.table.entry_mut(id).count(frame, found.merged);
            done.scanned += 1;
            if self.common.keep {
                kept.push(found.page, id, found.own);
            }
        }
        done.read += batch.len() as u64;
    }

    fn second(&mut self, unit: &Unit, mut kept: Kept, done: &mut Done) {
        let before = kept.ids.iter().filter(|id| content_of(**id).is_some()).count();
        done.stop = self.compare(unit, &mut kept, done).err();
        if done.stop.is_some() {
            // What can't be seen any longer isn't there to be merged.
            let ids: Vec<u32> = (0..kept.ids.len() as u32).collect();
            self.take_out(&ids, &mut kept, done);
            let mut counts = self.common.counts();
            for id in kept.more.drain(..) {
                counts.table.entry_mut(id).uncount(false);
            }
            done.scanned = -(before as i64);
            done.volatile = 0;
        }
        done.kept = Some(kept);
    }

    fn compare(&mut self, unit: &Unit, kept: &mut Kept, done: &mut Done) -> Result<(), Ended> {
        let pagemap = self.pagemap(unit)?;
        let mut cursor = Cursor { extent: 0, offset: 0 };
        let mut passed = Vec::new();
        // Pages to be read, with the index of what was kept of them.
        let mut due: Vec<(Found, Option<usize>)> = Vec::new();
        let mut unknown = Vec::new();
        for &piece in &unit.pieces {
            let tell = self.common.tell.filter(|_| piece.plain && kept.is_noted(piece));
            // Without the kernel's help everything may have been written.
            let changed = tell.and_then(|tell| tell(&pagemap, piece)).unwrap_or_else(|| {
                vec![Changed { first: piece.first, end: piece.end, here: true }]
            });
            let mut clean = piece.first;
            for run in changed {
                done.spared += cursor.clean(kept, clean..run.first, &mut passed, &mut unknown);
                clean = run.end;
                if !run.here {
                    continue;
                }
                for first in (run.first..run.end).step_by(ENTRIES as usize) {
                    let part = Mapping { first, end: run.end.min(first + ENTRIES), ..piece };
                    self.find(&pagemap, part, done)?;
                    for found in &self.found {
                        due.push((*found, cursor.find(kept, found.page, &mut passed)));
                    }
                    if due.len() >= BATCH {
                        self.compare_due(unit.pid, &pagemap, &mut due, kept, done)?;
                    }
                }
            }
            done.spared += cursor.clean(kept, clean..piece.end, &mut passed, &mut unknown);
            // In memory and not written, but not seen before: swapped in.
            for (page, at) in unknown.drain(..) {
                self.find(&pagemap, Mapping { first: page, end: page + 1, ..piece }, done)?;
                due.extend(self.found.iter().map(|f| (*f, at)));
                if due.len() >= BATCH {
                    self.compare_due(unit.pid, &pagemap, &mut due, kept, done)?;
                }
            }
        }
        self.compare_due(unit.pid, &pagemap, &mut due, kept, done)?;
        let end = cursor.find(kept, u64::MAX, &mut passed);
        debug_assert_eq!(end, None);
        self.take_out(&passed, kept, done);
        self.progress.fetch_add(done.spared + done.read, Ordering::Relaxed);
        Ok(())
    }

    fn compare_due(
        &mut self,
        pid: u32,
        pagemap: &File,
        due: &mut Vec<(Found, Option<usize>)>,
        kept: &mut Kept,
        done: &mut Done,
    ) -> Result<(), Ended> {
        let mut found = Vec::with_capacity(BATCH);
        for batch in due.chunks(BATCH) {
            found.clear();
            found.extend(batch.iter().map(|(f, _)| *f));
            self.read(pid, &found, pagemap)?;
            done.read += batch.len() as u64;
            let mut counts = self.common.counts();
            let counts = &mut *counts;
            let old = |at: &Option<usize>| at.and_then(|at| content_of(kept.ids[at]));
            batch.iter().filter_map(|(_, at)| old(at)).for_each(|id| counts.table.prefetch(id));
            for (i, (found, (_, at))) in found.iter().zip(batch).enumerate() {
                let key = self.hashes[i].map(|h| Key::new(h, self.nodes[i]));
                let old = at.and_then(|at| content_of(kept.ids[at]).map(|id| (at, id)));
                match (old, key) {
                    (Some((_, id)), Some(key))
                        if counts.table.entry(id).key().content() == key.content() => {}
                    (Some((at, id)), key) => {
                        counts.table.entry_mut(id).uncount(kept.ids[at] & OWN != 0);
                        kept.ids[at] = NOT_COUNTED;
                        match key {
                            Some(_) => done.volatile += 1,
                            None => done.scanned -= 1,
                        }
                    }
                    (None, Some(key)) => {
                        done.scanned += 1;
                        // A new page is one that changed, unless its content was
                        // there at the first look: a fork, or another copy of an
                        // image. Zeros are what every new page begins with.
                        let known = counts
                            .table
                            .find(key)
                            .filter(|id| *id < counts.known && key.content() != self.common.zero);
                        match known {
                            Some(id) => {
                                let frame = frame_of(&mut counts.frames, found);
                                counts.table.entry_mut(id).count(frame, found.merged);
                                kept.more.push(id);
                            }
                            None => done.volatile += 1,
                        }
                    }
                    (None, None) => {}
                }
            }
        }
        due.clear();
        Ok(())
    }

    /// Pages that are in memory no longer.
    fn take_out(&self, indices: &[u32], kept: &mut Kept, done: &mut Done) {
        let mut counts = self.common.counts();
        for &at in indices {
            let kept_id = &mut kept.ids[at as usize];
            if let Some(id) = content_of(*kept_id) {
                counts.table.entry_mut(id).uncount(*kept_id & OWN != 0);
                *kept_id = NOT_COUNTED;
                done.scanned -= 1;
            }
        }
    }
}

fn frame_of(frames: &mut Frames, found: &Found) -> Frame {
    // Where frames are hidden, only what is a process' own is found.
    found.frame.map_or(Frame::New, |frame| frames.mark(frame))
}

pub(super) fn ended(error: &io::Error) -> Ended {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Ended::Refused,
        _ => Ended::Exited,
    }
}

/// Does all units on so many threads; calls `progress` with pages done about ten
/// times a second. What came out is in the order of the units, whoever did them.
pub(super) fn run(
    common: &Common<'_>,
    units: Vec<Unit>,
    threads: usize,
    progress: &mut dyn FnMut(u64),
) -> Vec<Done> {
    let pages = AtomicU64::new(0);
    let next = AtomicUsize::new(0);
    let units: Vec<Mutex<Unit>> = units.into_iter().map(Mutex::new).collect();
    let done = Mutex::new(Vec::with_capacity(units.len()));
    let (ended, all_ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, units.len().max(1)) {
            let ended = ended.clone();
            let (units, next, pages, done) = (&units, &next, &pages, &done);
            scope.spawn(move || {
                let mut worker = Worker::new(common, pages);
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(unit) = units.get(at) else { break };
                    let mut unit = unit.lock().unwrap_or_else(|e| e.into_inner());
                    let one = worker.unit(&mut unit);
                    done.lock().unwrap_or_else(|e| e.into_inner()).push((at, one));
                }
                drop(ended);
            });
        }
        drop(ended);
        // Ends when the last worker has dropped its end of the channel.
        while let Err(mpsc::RecvTimeoutError::Timeout) =
            all_ended.recv_timeout(Duration::from_millis(100))
        {
            progress(pages.load(Ordering::Relaxed));
        }
    });
    progress(pages.load(Ordering::Relaxed));
    let mut done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, one)| one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The same as asking for each page by itself.
        #[test]
        fn clean_stretches_are_gone_over_as_page_by_page(
            pages in proptest::collection::btree_map(0u64..60, any::<bool>(), 0..50),
            cuts in proptest::collection::btree_map(0u64..70, 0u8..3, 1..12),
        ) {
            let mut kept = Kept::default();
            for (&page, &counted) in &pages {
                kept.push(page, if counted { page as u32 } else { NOT_COUNTED }, false);
            }
            let cuts: Vec<(u64, u8)> = cuts.into_iter().collect();
            // Stretches are clean, asked for page by page, or left out.
            let run = |clean: bool| {
                let mut cursor = Cursor { extent: 0, offset: 0 };
                let (mut passed, mut unknown, mut spared) = (Vec::new(), Vec::new(), 0);
                for pair in cuts.windows(2) {
                    let stretch = pair[0].0..pair[1].0;
                    match pair[0].1 {
                        0 if clean => {
                            spared += cursor.clean(&kept, stretch, &mut passed, &mut unknown);
                        }
                        2 => {}
                        how => for page in stretch {
                            match cursor.find(&kept, page, &mut passed) {
                                Some(at) if how == 0 && content_of(kept.ids[at]).is_some() => {
                                    spared += 1;
                                }
                                at if how == 0 => unknown.push((page, at)),
                                _ => {}
                            }
                        }
                    }
                }
                assert_eq!(cursor.find(&kept, u64::MAX, &mut passed), None);
                unknown.sort_unstable();
                (passed, unknown, spared)
            };
            prop_assert_eq!(run(true), run(false));
        }
    }
}
