//! Bringing a process's threads to a node's CPUs.
//!
//! ```text
//! bring ─▶ journal ─▶ each thread: its CPUs ∩ the node's ─▶ 1 s ─▶ its CPUs as before ─▶ journal gone
//!                             └─ none: it stays, forbidden
//! ```
//!
//! What a thread may use is narrowed for a second, so that it runs there, or wakes up there, and
//! then is as it was: whoever has bound it somewhere keeps that, and so does its cpuset. The
//! journal is on disk before the first thread is touched; `homenode restore` widens what a crash
//! left narrow. Threads that were started meanwhile have inherited the narrow set and get the
//! wide one.
//!
//! A set that was all of the cpuset becomes all CPUs again, not those that the cpuset has now:
//! else the process would not follow when its cpuset grows.
//!
//! Source: specs/act.md#threads.

use crate::journal::{self, Head, JournalError, Kind, Wrong};
use crate::machine::{Brought, Threads};
use crate::people::find;
use crate::people::stat::start_of;
use crate::place::Place;
use homenode_core::policy::seen::Who;
use homenode_core::topology::Cpu;
use homenode_core::units::{NodeId, Picos};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

/// CPUs that a machine may have, as the kernel is built today at most.
const MOST: usize = 8192;
const WORDS: usize = MOST / 64;

/// A set of CPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Set(Vec<u64>);

impl Set {
    fn empty() -> Self {
        Self(vec![0; WORDS])
    }
    fn all() -> Self {
        Self(vec![u64::MAX; WORDS])
    }
    fn with(cpus: impl Iterator<Item = u32>) -> Self {
        let mut set = Self::empty();
        for cpu in cpus.map(|c| c as usize).filter(|c| *c < MOST) {
            set.0[cpu / 64] |= 1 << (cpu % 64);
        }
        set
    }
    fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }
    fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }
    /// Words in hexadecimal from the first CPUs on, without those that are 0 at the end.
    fn to_text(&self) -> String {
        let used = self.0.iter().rposition(|w| *w != 0).map_or(1, |at| at + 1);
        self.0[..used].iter().map(|w| format!("{w:x}")).collect::<Vec<_>>().join(",")
    }
    fn parse(text: &str) -> Option<Self> {
        let mut set = Self::empty();
        for (i, word) in text.split(',').enumerate() {
            *set.0.get_mut(i)? = u64::from_str_radix(word, 16).ok()?;
        }
        Some(set)
    }
}

/// What a thread may use now.
fn get(tid: u32) -> io::Result<Set> {
    let mut set = Set::empty();
    // SAFETY: the buffer has the size that is told.
    let r =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, WORDS * 8, set.0.as_mut_ptr()) };
    if r >= 0 { Ok(set) } else { Err(io::Error::last_os_error()) }
}

fn set(tid: u32, to: &Set) -> io::Result<()> {
    // SAFETY: the buffer has the size that is told.
    let r = unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, WORDS * 8, to.0.as_ptr()) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets a thread use what it might before.
fn widen(tid: u32, before: &Set) -> io::Result<()> {
    // All that its cpuset has: then it is not bound.
    set(tid, &Set::all())?;
    if get(tid)? == *before { Ok(()) } else { set(tid, before) }
}

static KIND: Kind = Kind {
    name: "threads",
    version: "1",
    remedy: "and which threads are kept on a node's CPUs can't be told. Nothing was changed. Look at \
             `taskset -acp PID` of the processes that homenode acted for, set by hand what is wrong, \
             and remove the journal",
    who: crate::acting::who,
    at_work: "brings threads to nodes already (one homenode at a time can)",
    left: "ended while threads were kept on a node's CPUs",
};

/// Threads of a process that are kept on a node's CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    who: Who,
    /// Before, and now.
    sets: (Set, Set),
}

fn to_text(head: &Head, kept: &[Kept]) -> String {
    let mut text = String::new();
    for k in kept {
        let (before, now) = (k.sets.0.to_text(), k.sets.1.to_text());
        let _ = writeln!(text, "threads {} {} {before} {now}", k.who.pid, k.who.start);
    }
    KIND.to_text(head, &text)
}

fn parse(text: &str) -> Result<(Head, Vec<Kept>), Wrong> {
    let (head, lines) = KIND.parse(text)?;
    let mut kept = Vec::new();
    for (at, line) in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let one = match words[..] {
            ["threads", pid, start, before, now] => pid
                .parse()
                .ok()
                .zip(start.parse().ok())
                .zip(Set::parse(before).zip(Set::parse(now))),
            _ => None,
        };
        let ((pid, start), sets) =
            one.ok_or_else(|| (at, "`threads PID START SET SET` is expected here".to_owned()))?;
        kept.push(Kept { who: Who { pid, start }, sets });
    }
    Ok((head, kept))
}

/// Threads of a process that are there.
fn threads_of(place: &Place, pid: u32) -> Vec<u32> {
    let all = find::all(&place.path(&format!("/proc/{pid}/task"))).unwrap_or_default();
    all.into_iter().map(|(tid, _)| tid).collect()
}

fn lives(place: &Place, who: Who) -> bool {
    start_of(place, who.pid) == Some(who.start)
}

/// Widens the threads of a process that may use exactly the narrow set.
fn release(place: &Place, kept: &Kept) {
    let (before, now) = &kept.sets;
    if !lives(place, kept.who) {
        return;
    }
    for tid in threads_of(place, kept.who.pid) {
        // One that has gone, or was bound by somebody else since, is left alone.
        if get(tid).is_ok_and(|set| set == *now) {
            let _ = widen(tid, before);
        }
    }
}

/// Brings threads to nodes on this machine.
#[derive(Debug)]
pub struct Affinity {
    place: Place,
    nodes: BTreeMap<NodeId, Set>,
    path: PathBuf,
    head: Head,
    /// Until when, by the machine's clock.
    kept: Vec<(Picos, Kept)>,
    _lock: journal::Lock,
}

impl Affinity {
    /// * `cpus` – the machine's CPUs.
    ///
    /// # Errors
    /// Somebody else brings threads, or has left some narrow.
    pub fn open(place: &Place, cpus: &[Cpu]) -> Result<Self, JournalError> {
        let lock = KIND.lock(place)?;
        let path = KIND.path(place);
        if let Some((head, _)) = KIND.load(&path, parse)? {
            KIND.check(place, &head)?;
            journal::remove(&path)?;
        }
        let mut nodes: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
        for cpu in cpus {
            nodes.entry(cpu.node).or_default().push(cpu.id.0);
        }
        let nodes = nodes.into_iter().map(|(n, cpus)| (n, Set::with(cpus.into_iter()))).collect();
        let me = std::process::id();
        let head = Head::new(place, (me, start_of(place, me).unwrap_or(0)))?;
        Ok(Self { place: place.clone(), nodes, path, head, kept: Vec::new(), _lock: lock })
    }

    /// Puts what is kept on disk, or removes the journal where nothing is.
    fn note(&self) -> Result<(), JournalError> {
        let kept: Vec<Kept> = self.kept.iter().map(|(_, k)| k.clone()).collect();
        match kept.is_empty() {
            true => journal::remove(&self.path),
            false => journal::save(&self.path, &to_text(&self.head, &kept)),
        }
    }

    fn try_bring(&mut self, who: Who, to: NodeId, until: Picos) -> Result<Brought, JournalError> {
        let Some(node) = self.nodes.get(&to) else { return Ok(Brought::default()) };
        let threads = threads_of(&self.place, who.pid);
        let mut groups: Vec<(Set, Set, Vec<u32>)> = Vec::new();
        let mut out = Brought::default();
        for tid in threads {
            let Ok(before) = get(tid) else { continue };
            out.threads += 1;
            let narrow = before.and(node);
            if narrow.is_empty() {
                out.forbidden += 1;
            } else if narrow != before {
                match groups.iter_mut().find(|(b, ..)| *b == before) {
                    Some((.., tids)) => tids.push(tid),
                    None => groups.push((before, narrow, vec![tid])),
                }
            }
        }
        if groups.is_empty() || !lives(&self.place, who) {
            return Ok(out);
        }
        for (before, narrow, _) in &groups {
            let sets = (before.clone(), narrow.clone());
            self.kept.push((until, Kept { who, sets }));
        }
        if let Err(e) = self.note() {
            // No journal, no change.
            self.kept.truncate(self.kept.len() - groups.len());
            return Err(e);
        }
        for (_, narrow, tids) in groups {
            for tid in tids {
                if set(tid, &narrow).is_err() {
                    out.forbidden += 1;
                }
            }
        }
        Ok(out)
    }
}

impl Threads for Affinity {
    fn bring(&mut self, who: Who, to: NodeId, until: Picos) -> Result<Brought, String> {
        if !lives(&self.place, who) || self.kept.iter().any(|(_, k)| k.who == who) {
            return Ok(Brought::default());
        }
        self.try_bring(who, to, until).map_err(|e| crate::sentence(&e))
    }
    fn release(&mut self, now: Picos) -> Result<(), String> {
        let due = |until: Picos| until <= now;
        if !self.kept.iter().any(|(until, _)| due(*until)) {
            return Ok(());
        }
        for (_, kept) in self.kept.iter().filter(|(until, _)| due(*until)) {
            release(&self.place, kept);
        }
        self.kept.retain(|(until, _)| !due(*until));
        self.note().map_err(|e| crate::sentence(&e))
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        for (_, kept) in &self.kept {
            release(&self.place, kept);
        }
        self.kept.clear();
        if let Err(e) = self.note() {
            eprintln!("{}", crate::sentence(&e));
        }
    }
}

/// What restoring found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// No journal: nothing to do.
    Nothing,
    /// A journal of an earlier boot; a sentence.
    Stale(String),
    /// Threads may run where they might before; a sentence.
    Done(String),
}

/// Widens threads that a homenode left narrow.
///
/// # Errors
/// [`JournalError`]: a damaged journal, or its owner lives.
pub fn restore(place: &Place) -> Result<Restored, JournalError> {
    let path = KIND.path(place);
    if !path.exists() {
        return Ok(Restored::Nothing);
    }
    let _lock = KIND.lock(place)?;
    let Some((head, kept)) = KIND.load(&path, parse)? else { return Ok(Restored::Nothing) };
    let restored = if KIND.is_stale(place, &head)? {
        let path = path.display();
        Restored::Stale(format!("{path}: this journal is of an earlier boot: thrown away"))
    } else {
        let there = kept.iter().filter(|k| lives(place, k.who)).count();
        kept.iter().for_each(|k| release(place, k));
        Restored::Done(format!(
            "threads of {there} processes may run again where they might before process {} kept \
             them on a node's CPUs",
            head.owner.0
        ))
    };
    journal::remove(&path)?;
    Ok(restored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::units::CpuId;
    use homenode_fixtures::Folder;
    use std::fs;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    /// A place whose run folder is a test's and whose processes are real.
    fn place(at: &Folder) -> Place {
        std::os::unix::fs::symlink("/proc", at.join("proc")).unwrap();
        Place::at(at)
    }

    fn cpus() -> (Vec<u32>, Vec<Cpu>) {
        let own = get(std::process::id()).unwrap();
        let all: Vec<u32> =
            (0..MOST as u32).filter(|c| own.0[*c as usize / 64] >> (c % 64) & 1 == 1).collect();
        // Every CPU is a node of its own.
        let cpu = |c: &u32| Cpu {
            id: CpuId(*c),
            node: NodeId(*c as u16),
            core: *c,
            llc: *c,
            capacity: 1024,
            mhz: None,
        };
        let list = all.iter().map(cpu).collect();
        (all, list)
    }

    /// A process that sleeps, and may use several CPUs.
    struct Scene {
        place: Place,
        all: Vec<u32>,
        cpus: Vec<Cpu>,
        child: Child,
        who: Who,
        before: Set,
    }

    /// `None`, and why is printed, where there is only one CPU.
    fn scene(at: &Folder) -> Option<Scene> {
        let place = place(at);
        let (all, cpus) = cpus();
        if all.len() < 2 {
            println!("skipped: this process may use one CPU only");
            return None;
        }
        let child = sleeper();
        let who = Who { pid: child.id(), start: start_of(&place, child.id()).unwrap() };
        let before = get(who.pid).unwrap();
        Some(Scene { place, all, cpus, child, who, before })
    }

    #[test]
    fn sets_are_read_as_they_were_written() {
        for set in [Set::empty(), Set::with([0].into_iter()), Set::with([3, 64, 8191].into_iter())]
        {
            assert_eq!(Set::parse(&set.to_text()), Some(set));
        }
        assert_eq!(Set::with([0, 65].into_iter()).to_text(), "1,2");
        assert_eq!(Set::parse(""), None);
        assert_eq!(Set::parse(&"1,".repeat(WORDS + 1)), None);
    }

    #[test]
    fn a_thread_is_kept_for_a_while_and_then_as_it_was() {
        let at = Folder::new();
        let Some(Scene { place, all, cpus, mut child, who, before }) = scene(&at) else { return };
        let mut affinity = Affinity::open(&place, &cpus).unwrap();
        let last = *all.last().unwrap();
        let got = affinity.bring(who, NodeId(last as u16), Picos::from_secs(1)).unwrap();
        assert_eq!((got.threads, got.forbidden), (1, 0));
        assert_eq!(get(who.pid).unwrap(), Set::with([last].into_iter()));
        assert!(KIND.path(&place).exists(), "it is on disk");
        assert!(Affinity::open(&place, &cpus).is_err(), "one at a time");
        // Not yet; then.
        affinity.release(Picos::from_ms(999)).unwrap();
        assert_ne!(get(who.pid).unwrap(), before);
        affinity.release(Picos::from_secs(1)).unwrap();
        assert_eq!(get(who.pid).unwrap(), before);
        assert!(!KIND.path(&place).exists());
        // Who is bound elsewhere stays there.
        set(who.pid, &Set::with([all[0]].into_iter())).unwrap();
        let got = affinity.bring(who, NodeId(last as u16), Picos::from_secs(2)).unwrap();
        assert_eq!((got.threads, got.forbidden), (1, 1));
        assert_eq!(get(who.pid).unwrap(), Set::with([all[0]].into_iter()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_a_crash_left_is_widened() {
        let at = Folder::new();
        let Some(Scene { place, all, cpus, mut child, who, before }) = scene(&at) else { return };
        let mut affinity = Affinity::open(&place, &cpus).unwrap();
        affinity.bring(who, NodeId(all[0] as u16), Picos::from_secs(1)).unwrap();
        // As if it had been killed: nothing is put back, the lock goes.
        let text = fs::read_to_string(KIND.path(&place)).unwrap();
        affinity.kept.clear();
        drop(affinity);
        let (mut head, kept) = parse(&text).unwrap();
        head.owner = (head.owner.0, head.owner.1 + 1);
        journal::save(&KIND.path(&place), &to_text(&head, &kept)).unwrap();
        assert!(matches!(Affinity::open(&place, &cpus), Err(JournalError::Unfinished { .. })));
        assert!(matches!(restore(&place), Ok(Restored::Done(_))));
        assert_eq!(get(who.pid).unwrap(), before);
        assert_eq!(restore(&place).unwrap(), Restored::Nothing);
        // Not in part.
        for end in 0..text.len() {
            assert!(parse(&text[..end]).is_err(), "{}", &text[..end]);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
