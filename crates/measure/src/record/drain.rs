//! From frames to rows: who is who, and in which order.

use super::RecordError;
use super::outside::{Natively, Twin};
use homenode_trace::waits::{Block, EVERYBODY, ONE_THREAD, Release};
use homenode_trace::wire::{self, Head, WireRow};
use homenode_trace::{BY_SIGNAL, Kind, Row, Task, Totals, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A page set: 4,096 pages to a block of bits.
#[derive(Default)]
struct PageSet {
    blocks: BTreeMap<u64, Box<[u64; 64]>>,
    pages: u64,
}

impl PageSet {
    fn insert(&mut self, page: u64) {
        let bits = self.blocks.entry(page >> 12).or_insert_with(|| Box::new([0; 64]));
        let word = &mut bits[(page >> 6 & 63) as usize];
        let bit = 1 << (page & 63);
        self.pages += u64::from(*word & bit == 0);
        *word |= bit;
    }
}

#[derive(Default)]
struct Live {
    task: Task,
    /// Instructions that wait for the task's next row.
    owed: u64,
    /// Counts of program images that the task ran before.
    before: Totals,
    latest: Totals,
    sequence: u32,
    ended: bool,
    /// What it waited for natively.
    twin: Twin,
}

/// The tasks of a recording, as their frames come, and where their rows go.
pub(super) struct Drain {
    out: Writer,
    tasks: Vec<Live>,
    /// The living task of each thread number.
    by_tid: BTreeMap<u32, u32>,
    /// The last task of a process's first thread, living or not.
    by_pid: BTreeMap<u32, u32>,
    /// The task that ended last of each thread number.
    gone: BTreeMap<u32, u32>,
    /// Who has come before the row of the task that made it: that task, and the thread number.
    early: BTreeSet<(u32, u32)>,
    /// By process: the signal that it was sent last. Who ends unseen was ended by one, and where
    /// nobody asks for its status it is taken to be this.
    signalled: BTreeMap<u32, u64>,
    spaces: BTreeMap<u32, PageSet>,
    pages_gone: u64,
    last_pages: [(u32, u64); 4],
    pub(super) lost: u64,
    pub(super) unrecorded: u64,
    pub(super) slice_full: bool,
    rest: Vec<u8>,
    /// Where threads have what they have not sent.
    folder: Option<PathBuf>,
    natively: Natively,
}

impl Drain {
    pub(super) fn new(out: Writer) -> Self {
        Self {
            out,
            tasks: Vec::new(),
            by_tid: BTreeMap::new(),
            by_pid: BTreeMap::new(),
            gone: BTreeMap::new(),
            early: BTreeSet::new(),
            signalled: BTreeMap::new(),
            spaces: BTreeMap::new(),
            pages_gone: 0,
            last_pages: [(u32::MAX, 0); 4],
            lost: 0,
            unrecorded: 0,
            slice_full: false,
            rest: Vec::new(),
            folder: None,
            natively: Natively::default(),
        }
    }

    /// What tasks waited for in a native run.
    pub(super) fn knows(&mut self, natively: Natively) {
        self.natively = natively;
    }

    /// Where threads have what they have not sent, to be looked for when they end unseen.
    pub(super) fn look_in(&mut self, folder: &Path) {
        self.folder = Some(folder.to_owned());
    }

    /// Whether any frame has come.
    pub(super) fn begun(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Rows and bytes so far.
    pub(super) fn written(&self) -> (u64, u64) {
        (self.out.rows(), self.out.bytes_written())
    }

    /// Instructions of all tasks so far.
    pub(super) fn insns(&self) -> u64 {
        self.tasks.iter().map(|t| t.before.insns + t.latest.insns).sum()
    }

    /// Processes that have not ended.
    pub(super) fn living(&self) -> impl Iterator<Item = u32> + '_ {
        self.tasks.iter().filter(|t| !t.ended && !t.task.thread).map(|t| t.task.pid)
    }

    /// Takes bytes from the pipe; they may end within a frame.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        let mut data = std::mem::take(&mut self.rest);
        data.extend_from_slice(bytes);
        let mut at = 0;
        while data.len() - at >= wire::HEAD_BYTES {
            let head = Head::decode(&data[at..])
                .ok_or_else(|| RecordError::Wire("a frame without a head".to_owned()))?;
            let end = at + usize::from(head.len);
            if end > data.len() {
                break;
            }
            self.frame(&head, &data[at + wire::HEAD_BYTES..end])?;
            at = end;
        }
        data.drain(..at);
        self.rest = data;
        Ok(())
    }

    fn frame(&mut self, head: &Head, mut rows: &[u8]) -> Result<(), RecordError> {
        let id = self.task_of(head)?;
        let t = &mut self.tasks[id as usize];
        self.lost += u64::from(head.sequence.saturating_sub(t.sequence));
        t.sequence = head.sequence + 1;
        t.latest = head.totals;
        while !rows.is_empty() {
            let (row, n) =
                WireRow::decode(rows).ok_or_else(|| RecordError::Wire("half a row".to_owned()))?;
            rows = &rows[n..];
            self.tasks[id as usize].owed += u64::from(row.insns);
            match row.kind {
                wire::COMPUTE => self.tasks[id as usize].owed += row.arg,
                wire::HELLO => {
                    let len = usize::try_from(row.arg).unwrap_or(usize::MAX);
                    let padded = len.saturating_add(15) / 16 * 16;
                    if len > wire::HELLO_PATH_BYTES || padded > rows.len() {
                        return Err(RecordError::Wire("a path without an end".to_owned()));
                    }
                    let name = String::from_utf8_lossy(&rows[..len]).into_owned();
                    self.tasks[id as usize].task.name = name;
                    rows = &rows[padded..];
                }
                wire::SLICE_FULL => self.slice_full = true,
                wire::UNRECORDED => self.unrecorded += 1,
                kind => {
                    let kind = Kind::from_number(kind)
                        .ok_or_else(|| RecordError::Wire(format!("a row of kind {kind}")))?;
                    self.row(id, kind, &row)?;
                }
            }
        }
        Ok(())
    }

    fn row(&mut self, id: u32, kind: Kind, w: &WireRow) -> Result<(), RecordError> {
        let task = &mut self.tasks[id as usize];
        if task.ended {
            return Ok(());
        }
        let timed = if matches!(kind, Kind::Release | Kind::Block) {
            let Some(timed) = task.twin.row(kind, w) else { return Ok(()) };
            timed
        } else {
            *w
        };
        let w = &timed;
        match kind {
            Kind::Access => {
                let space = self.tasks[id as usize].task.pid;
                // Programs stay near: this keeps most rows out of the tree.
                if !self.last_pages.contains(&(space, w.page)) {
                    self.last_pages.rotate_right(1);
                    self.last_pages[0] = (space, w.page);
                    self.spaces.entry(space).or_default().insert(w.page);
                }
                self.push(id, kind, w, w.arg)
            }
            Kind::Fork | Kind::Thread => {
                let tid = w.arg as u32;
                // The child may have been faster, and may have ended: then its row stands already.
                if !self.early.remove(&(id, tid)) {
                    self.begin(tid, id, kind == Kind::Thread)?;
                }
                Ok(())
            }
            Kind::Exit => {
                self.push(id, kind, w, w.arg)?;
                self.end(id);
                Ok(())
            }
            // What stands in a row for a thread's number is a task.
            Kind::Release if w.reads == Release::ClearTid as u16 => {
                let thread = self.task_by(w.arg as u32);
                thread.map_or(Ok(()), |thread| self.push(id, kind, w, u64::from(thread)))
            }
            Kind::Block if w.reads == Block::Child as u16 => {
                let child = self.task_by(w.arg as u32);
                child.map_or(Ok(()), |child| self.push(id, kind, w, u64::from(child)))
            }
            Kind::Release if w.reads == Release::Signal as u16 && w.pages != EVERYBODY => {
                let to = self.task_by(w.pages as u32);
                to.map_or(Ok(()), |to| {
                    let process = self.tasks[to as usize].task.pid;
                    self.signalled.insert(process, w.arg & (ONE_THREAD - 1));
                    let row = WireRow { pages: u64::from(to), ..*w };
                    self.push(id, kind, &row, w.arg)
                })
            }
            Kind::Wait => {
                let Some(&child) = self.by_pid.get(&(w.arg as u32)) else {
                    return self.push(id, kind, w, u64::MAX);
                };
                // A stopped or continued child has not ended.
                let status = (w.arg >> 32) as i32;
                if w.pages == 1 && !libc::WIFEXITED(status) && !libc::WIFSIGNALED(status) {
                    return Ok(());
                }
                self.finish_process(child, (w.pages == 1).then_some(status))?;
                self.push(id, kind, w, u64::from(child))
            }
            Kind::Map
            | Kind::Unmap
            | Kind::Protect
            | Kind::Remap
            | Kind::Discard
            | Kind::Exec
            | Kind::Release
            | Kind::Block => self.push(id, kind, w, w.arg),
        }
    }

    /// The task that has a thread's number, or had it last.
    fn task_by(&self, tid: u32) -> Option<u32> {
        self.by_tid.get(&tid).or_else(|| self.gone.get(&tid)).copied()
    }

    fn push(&mut self, id: u32, kind: Kind, w: &WireRow, arg: u64) -> Result<(), RecordError> {
        let t = &mut self.tasks[id as usize];
        let insns = std::mem::take(&mut t.owed);
        let pages = match kind {
            Kind::Access
            | Kind::Map
            | Kind::Unmap
            | Kind::Protect
            | Kind::Remap
            | Kind::Discard
            | Kind::Release
            | Kind::Block => w.pages,
            Kind::Fork | Kind::Thread | Kind::Exec | Kind::Exit | Kind::Wait => 0,
        };
        let (reads, writes) = (u32::from(w.reads), u32::from(w.writes));
        self.out.push(Row { kind, task: id, insns, page: w.page, pages, reads, writes, arg })?;
        Ok(())
    }

    fn event(&mut self, id: u32, kind: Kind, arg: u64) -> Result<(), RecordError> {
        let w = WireRow { kind: kind as u8, insns: 0, reads: 0, writes: 0, page: 0, pages: 0, arg };
        self.push(id, kind, &w, arg)
    }

    /// A task that `parent` makes.
    fn begin(&mut self, tid: u32, parent: u32, thread: bool) -> Result<u32, RecordError> {
        if let Some(&old) = self.by_tid.get(&tid) {
            // The number is used again: whoever had it has ended unseen.
            self.finish_process(old, None)?;
        }
        let id = self.add(tid, Some(parent), thread);
        let kind = if thread { Kind::Thread } else { Kind::Fork };
        self.event(parent, kind, u64::from(id))?;
        Ok(id)
    }

    fn add(&mut self, tid: u32, parent: Option<u32>, thread: bool) -> u32 {
        let id = self.tasks.len() as u32;
        let (pid, name) = match parent {
            Some(p) => {
                let p = &self.tasks[p as usize].task;
                (if thread { p.pid } else { tid }, p.name.clone())
            }
            None => (tid, String::new()),
        };
        self.tasks.push(Live {
            task: Task { pid, tid, parent, thread, name, ..Task::default() },
            twin: self.natively.begins(parent),
            ..Live::default()
        });
        self.by_tid.insert(tid, id);
        if !thread {
            self.by_pid.insert(pid, id);
        }
        id
    }

    fn task_of(&mut self, head: &Head) -> Result<u32, RecordError> {
        let known = self.by_tid.get(&head.tid).copied();
        if head.flags & wire::FLAG_IMAGE != 0 && head.sequence == 0 {
            // A program image: of the first process, or in place of an earlier one.
            let Some(id) =
                self.by_pid.get(&head.pid).copied().filter(|&i| !self.tasks[i as usize].ended)
            else {
                return Ok(self.add(head.pid, None, false));
            };
            // Who computed until then has not sent all.
            for other in self.threads_of(head.pid, id) {
                self.unsent(other)?;
            }
            for other in self.threads_of(head.pid, id) {
                self.event(other, Kind::Exit, 0)?;
                self.end(other);
            }
            self.leave_space(head.pid);
            let t = &mut self.tasks[id as usize];
            let image = t.latest;
            t.before.add(&image);
            t.latest = Default::default();
            t.sequence = 0;
            self.event(id, Kind::Exec, 0)?;
            return Ok(id);
        }
        if head.flags & (wire::FLAG_CHILD | wire::FLAG_THREAD) != 0 && head.sequence == 0 {
            let thread = head.flags & wire::FLAG_THREAD != 0;
            // Known already where its parent's row came first.
            if let Some(id) = known.filter(|&i| {
                let t = &self.tasks[i as usize];
                t.sequence == 0 && t.task.thread == thread
            }) {
                return Ok(id);
            }
            let parent =
                self.by_tid.get(&head.parent_tid).or_else(|| self.by_pid.get(&head.pid)).copied();
            if let Some(parent) = parent.filter(|&p| !self.tasks[p as usize].ended) {
                self.early.insert((parent, head.tid));
                return self.begin(head.tid, parent, thread);
            }
        }
        // A task's last rows may not have fitted into the frame that tells its end.
        let rest =
            |&&id: &&u32| head.sequence > 0 && self.tasks[id as usize].sequence == head.sequence;
        Ok(match known.or_else(|| self.gone.get(&head.tid).filter(rest).copied()) {
            Some(id) => id,
            None => self.add(head.tid, None, head.tid != head.pid),
        })
    }

    fn threads_of(&self, pid: u32, but: u32) -> Vec<u32> {
        let all = self.by_tid.values().copied();
        all.filter(|&i| i != but && self.tasks[i as usize].task.pid == pid).collect()
    }

    /// Gives every living task of `id`'s process its exit row.
    fn finish_process(&mut self, id: u32, status: Option<i32>) -> Result<(), RecordError> {
        let pid = self.tasks[id as usize].task.pid;
        let arg = match (status, self.signalled.get(&pid)) {
            (Some(s), _) if libc::WIFSIGNALED(s) => BY_SIGNAL + libc::WTERMSIG(s) as u64,
            (Some(s), _) if libc::WIFEXITED(s) => libc::WEXITSTATUS(s) as u64,
            (None, Some(signal)) => BY_SIGNAL + signal,
            (Some(_), _) | (None, None) => 0,
        };
        let mut all = self.threads_of(pid, u32::MAX);
        all.sort_unstable_by_key(|&i| std::cmp::Reverse(i));
        // All of them first: a row may tell of another.
        for &i in &all {
            self.unsent(i)?;
        }
        for i in all {
            if !self.tasks[i as usize].ended {
                self.event(i, Kind::Exit, arg)?;
                self.end(i);
            }
        }
        self.signalled.remove(&pid);
        self.leave_space(pid);
        Ok(())
    }

    /// What those had not sent yet who have not ended, when nobody runs any more.
    pub(super) fn all_unsent(&mut self) -> Result<(), RecordError> {
        for id in 0..self.tasks.len() as u32 {
            if !self.tasks[id as usize].ended {
                self.unsent(id)?;
            }
        }
        Ok(())
    }
    /// What a task that has ended unseen had not sent yet.
    fn unsent(&mut self, id: u32) -> Result<(), RecordError> {
        let t = &self.tasks[id as usize];
        let (tid, sequence) = (t.task.tid, t.sequence);
        let Some(folder) = &self.folder else { return Ok(()) };
        let path = folder.join(format!("{}{tid}", wire::REST_NAME));
        let Ok(frame) = fs::read(&path) else { return Ok(()) };
        let Some(head) = Head::decode(&frame) else { return Ok(()) };
        let whole = frame.get(wire::HEAD_BYTES..usize::from(head.len));
        let is_next = head.tid == tid && head.sequence == sequence;
        let Some(rows) = whole.filter(|rows| is_next && !rows.is_empty()) else { return Ok(()) };
        let _ = fs::remove_file(path);
        // Its head was made before its rows.
        let (mut more, mut at) = (Totals::default(), rows);
        while let Some((row, n)) = WireRow::decode(at) {
            at = &at[n..];
            more.insns += u64::from(row.insns);
            if row.kind == Kind::Access as u8 {
                more.read_misses += u64::from(row.reads);
                more.write_misses += u64::from(row.writes);
            } else if row.kind == wire::COMPUTE {
                more.insns += row.arg;
            }
        }
        self.frame(&head, rows)?;
        self.tasks[id as usize].latest.add(&more);
        Ok(())
    }

    fn end(&mut self, id: u32) {
        let t = &mut self.tasks[id as usize];
        t.ended = true;
        let tid = t.task.tid;
        if self.by_tid.get(&tid) == Some(&id) {
            self.by_tid.remove(&tid);
            self.gone.insert(tid, id);
        }
    }

    fn leave_space(&mut self, pid: u32) {
        self.pages_gone += self.spaces.remove(&pid).map_or(0, |s| s.pages);
        self.last_pages = [(u32::MAX, 0); 4];
    }

    /// Ends all tasks; the first with `status`. Returns tasks, pages touched, and where the
    /// rows are.
    pub(super) fn finish(
        mut self,
        status: Option<i32>,
    ) -> Result<(Vec<Task>, u64, Writer), RecordError> {
        for id in (0..self.tasks.len() as u32).rev() {
            if !self.tasks[id as usize].ended && id > 0 {
                self.finish_process(
                    id,
                    status.filter(|_| self.tasks[id as usize].task.pid == self.tasks[0].task.pid),
                )?;
            }
        }
        if self.tasks.first().is_some_and(|t| !t.ended) {
            self.finish_process(0, status)?;
        }
        let pages = self.pages_gone + self.spaces.values().map(|s| s.pages).sum::<u64>();
        let tasks = self.tasks.into_iter().map(|mut t| {
            t.before.add(&t.latest);
            t.task.totals = t.before;
            t.task
        });
        Ok((tasks.collect(), pages, self.out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_trace::{Batch, Header, Reader};

    /// A frame of process and thread 7 or 8.
    fn frame(tid: u32, flags: u16, sequence: u32, insns: u64, rows: &[(u8, u32, u64)]) -> Vec<u8> {
        let mut body = Vec::new();
        for &(kind, insns, arg) in rows {
            let mut bytes = [0; wire::LONGEST_ROW_BYTES];
            let row = WireRow { kind, insns, reads: 0, writes: 0, page: 0, pages: 0, arg };
            let n = row.encode(&mut bytes);
            body.extend_from_slice(&bytes[..n]);
        }
        let len = (wire::HEAD_BYTES + body.len()) as u16;
        let totals = Totals { insns, ..Totals::default() };
        let mut head = [0; wire::HEAD_BYTES];
        Head { len, flags, pid: tid, tid, sequence, parent_tid: 7, totals }.encode(&mut head);
        [&head[..], &body].concat()
    }

    /// A task that a signal ends leaves what it has not sent in a file; it is taken once, and
    /// only where it is the frame that would have come next.
    #[test]
    fn what_a_killed_task_has_not_sent_is_found() {
        let release = Kind::Release as u8;
        let folder = homenode_fixtures::Folder::new();
        let out = Writer::create(folder.join("r.parquet")).expect("a file");
        let mut drain = Drain::new(out);
        drain.look_in(&folder);
        for f in [
            frame(7, wire::FLAG_IMAGE, 0, 10, &[(Kind::Fork as u8, 10, 8)]),
            frame(8, wire::FLAG_CHILD, 0, 20, &[(release, 20, 1)]),
        ] {
            drain.take(&f).expect("frames");
        }
        let rest = |sequence, insns| frame(8, 0, sequence, 20, &[(release, insns, 2)]);
        fs::write(folder.join("rest-8"), rest(1, 5)).expect("a file");
        // Of the first process what is there was sent already.
        fs::write(folder.join("rest-7"), frame(7, 0, 0, 10, &[(release, 5, 3)])).expect("a file");
        drain.take(&frame(7, 0, 1, 30, &[(Kind::Wait as u8, 20, 9 << 32 | 8)])).expect("frames");
        drain.all_unsent().expect("frames");
        assert_eq!((drain.lost, folder.join("rest-8").exists()), (0, false));
        let (tasks, _, out) = drain.finish(Some(0)).expect("an end");
        assert_eq!(tasks.iter().map(|t| t.totals.insns).collect::<Vec<u64>>(), [30, 25]);
        out.finish(&Header { tasks, ..Header::default() }).expect("a recording");
        let reader = Reader::open(folder.join("r.parquet")).expect("a recording");
        let (mut batch, mut batches, mut rows) = (Batch::default(), reader.batches(), Vec::new());
        while batches.next_into(&mut batch).expect("rows") {
            rows.extend(batch.iter().map(|r| (r.kind, r.task, r.insns, r.arg)));
        }
        let expected = [
            (Kind::Fork, 0, 10, 1),
            (Kind::Release, 1, 20, 1),
            (Kind::Release, 1, 5, 2),
            (Kind::Exit, 1, 0, 0),
            (Kind::Wait, 0, 20, 1),
            (Kind::Exit, 0, 0, 0),
        ];
        assert_eq!(rows, expected);
    }

    /// The recorder closes a task with its exit row and one for the instructions up to
    /// then. Where the exit row fills a frame, the other comes in a frame of its own,
    /// which once made a task that nobody had forked.
    #[test]
    fn what_comes_after_an_exit_row_belongs_to_the_task_that_ended() {
        let exit = Kind::Exit as u8;
        let frames = [
            frame(7, wire::FLAG_IMAGE, 0, 10, &[(Kind::Fork as u8, 10, 8)]),
            frame(8, wire::FLAG_CHILD, 0, 20, &[(exit, 20, 0)]),
            frame(8, 0, 1, 25, &[(wire::COMPUTE, 0, 5)]),
            frame(7, 0, 1, 30, &[(Kind::Wait as u8, 20, 8)]),
            // Another process with the number of the one that ended.
            frame(7, 0, 2, 35, &[(Kind::Fork as u8, 5, 8)]),
            frame(8, wire::FLAG_CHILD, 0, 3, &[(exit, 3, 0)]),
            frame(7, 0, 3, 40, &[(exit, 5, 0)]),
        ];
        let folder = homenode_fixtures::Folder::new();
        let path = folder.join("r.parquet");
        let mut drain = Drain::new(Writer::create(&path).expect("a file"));
        for f in frames {
            drain.take(&f).expect("frames");
        }
        assert_eq!(drain.lost, 0);
        let (tasks, _, out) = drain.finish(Some(0)).expect("an end");
        let insns: Vec<u64> = tasks.iter().map(|t| t.totals.insns).collect();
        assert_eq!(insns, [40, 25, 3]);
        out.finish(&Header { tasks, ..Header::default() }).expect("a recording");
        let reader = Reader::open(&path).expect("a recording");
        let (mut batch, mut batches, mut rows) = (Batch::default(), reader.batches(), Vec::new());
        while batches.next_into(&mut batch).expect("rows") {
            rows.extend(batch.iter().map(|r| (r.kind, r.task, r.arg)));
        }
        let expected = [
            (Kind::Fork, 0, 1),
            (Kind::Exit, 1, 0),
            (Kind::Wait, 0, 1),
            (Kind::Fork, 0, 2),
            (Kind::Exit, 2, 0),
            (Kind::Exit, 0, 0),
        ];
        assert_eq!(rows, expected);
    }
}
