//! A machine of bytes, as small as the rules allow, and a language for it.
//!
//! One command a line, `#` begins a comment; a process is a letter, its pages
//! count from 0, a page's content is a letter (`0`: zeroes, `.`: not there).
//!
//! | command | what it does |
//! |---|---|
//! | `proc A xxy 1` | a registered process with these pages on node 1 |
//! | `knob NAME VALUE`, `show NAME` | a write (errors are printed), a read |
//! | `step`, `pass 2`, `batch 3`, `jiffies 500` | ksmd works; time goes on |
//! | `visits A 0 32` | in which of 32 passes the page is processed |
//! | `write A 3 z`, `pin`/`unpin`/`lock`/`unlock A 3` | to a page |
//! | `huge A 0 4` | pages 0 to 3 are one huge page |
//! | `move A 3 1` | its frame moves to node 1 |
//! | `fork A B`, `exec A B`, `exit A`, `unmap A 3`, `unmergeable A` | |
//! | `leaving 1`, `left 1`, `cancel` | node 1's memory goes offline, is, stays |
//! | `counts` | shared, sharing, unshared, volatile; chains, dups |
//! | `list` | address spaces in the order of a pass |
//! | `copies 3`, `signal 1`, `no-trees 1` | what runs out, after how many copies |
//! | `where A 3`, `nodes` | node and tree of a page; stable nodes as tree:items |
//! | `stale`, `cow` | how many nodes are stale, how many merged pages were copied |

use super::super::memory::{
    BreakError, Memory, MmId, Next, Page, PageFacts, Refusal, StableId, Vpn,
};
use super::super::{Fate, Ksm, Now, Rules, Step};
use crate::kernel::KernelVersion;
use crate::units::NodeId;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

pub(super) type Bytes = [u8; 16];

#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) bytes: Bytes,
    pub(super) node: u16,
    pub(super) mapcount: u32,
    pub(super) pinned: bool,
    pub(super) locked: bool,
    /// A merged page, perhaps without a stable node yet.
    pub(super) merged: Option<Option<StableId>>,
    pub(super) huge: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Frame(usize),
    /// The page of zeroes, mapped by merging.
    Zero,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Space {
    pub(super) entries: BTreeMap<u64, Entry>,
    pub(super) mergeable: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    pub(super) frames: Vec<Option<Frame>>,
    /// Freed frames; the last one is used again first, as stale nodes fear.
    free: Vec<usize>,
    pub(super) spaces: BTreeMap<MmId, Space>,
    pub(super) cow_ksm: u64,
    pub(super) drains: u64,
    /// How many copies there is memory for.
    pub(super) copies_left: Option<u64>,
    /// What is short then: memory, or time before a signal.
    pub(super) signal: bool,
    pub(super) no_trees: bool,
}

pub(super) fn content(letter: char) -> Bytes {
    if letter == '0' { [0; 16] } else { [letter as u8; 16] }
}

impl Host {
    pub(super) fn add(&mut self, bytes: Bytes, node: u16) -> usize {
        let frame = Frame {
            bytes,
            node,
            mapcount: 0,
            pinned: false,
            locked: false,
            merged: None,
            huge: None,
        };
        if let Some(f) = self.free.pop() {
            self.frames[f] = Some(frame);
            return f;
        }
        self.frames.push(Some(frame));
        self.frames.len() - 1
    }
    pub(super) fn frame(&self, f: usize) -> &Frame {
        self.frames[f].as_ref().unwrap()
    }
    pub(super) fn frame_mut(&mut self, f: usize) -> &mut Frame {
        self.frames[f].as_mut().unwrap()
    }
    fn of(&self, page: Page) -> &Frame {
        self.frame(page.0 as usize)
    }
    pub(super) fn entry(&self, mm: MmId, vpn: u64) -> Option<Entry> {
        self.spaces.get(&mm)?.entries.get(&vpn).copied()
    }
    pub(super) fn frame_at(&self, mm: MmId, vpn: u64) -> Option<usize> {
        match self.entry(mm, vpn)? {
            Entry::Frame(f) => Some(f),
            Entry::Zero => None,
        }
    }
    pub(super) fn map(&mut self, mm: MmId, vpn: u64, f: usize) {
        self.unmap(mm, vpn);
        self.frame_mut(f).mapcount += 1;
        self.spaces.entry(mm).or_default().entries.insert(vpn, Entry::Frame(f));
    }
    /// Returns whether it was the page of zeroes.
    pub(super) fn unmap(&mut self, mm: MmId, vpn: u64) -> bool {
        match self.spaces.get_mut(&mm).and_then(|s| s.entries.remove(&vpn)) {
            Some(Entry::Frame(f)) => {
                self.frame_mut(f).mapcount -= 1;
                if self.frame(f).mapcount == 0 {
                    self.frames[f] = None;
                    self.free.push(f);
                }
                false
            }
            Some(Entry::Zero) => true,
            None => false,
        }
    }
    /// A process writes; returns whether it had the page of zeroes.
    pub(super) fn write(&mut self, mm: MmId, vpn: u64, bytes: Bytes) -> bool {
        match self.entry(mm, vpn) {
            Some(Entry::Frame(f)) => {
                let (merged, node) = (self.frame(f).merged.is_some(), self.frame(f).node);
                if merged || self.frame(f).mapcount > 1 {
                    self.cow_ksm += u64::from(merged);
                    let new = self.add(bytes, node);
                    self.map(mm, vpn, new);
                } else {
                    self.frame_mut(f).bytes = bytes;
                }
                false
            }
            other => {
                let new = self.add(bytes, 0);
                self.map(mm, vpn, new);
                other.is_some()
            }
        }
    }
    /// Move a frame to another node, if nobody holds it.
    pub(super) fn migrate(&mut self, ksm: &mut Ksm, f: usize, node: u16) -> bool {
        let old = self.frame(f).clone();
        if old.pinned || old.locked {
            return false;
        }
        let new = self.add(old.bytes, node);
        *self.frame_mut(new) = Frame { node, huge: None, ..old };
        for space in self.spaces.values_mut() {
            for e in space.entries.values_mut().filter(|e| **e == Entry::Frame(f)) {
                *e = Entry::Frame(new);
            }
        }
        self.frames[f] = None;
        self.free.push(f);
        if let Some(Some(id)) = old.merged {
            ksm.page_moved(id, Page(new as u64));
        }
        true
    }
    fn checksum_of(bytes: &Bytes) -> u32 {
        // Any hash will do; `H` stands for a content whose checksum is 0.
        if bytes[0] == b'H' {
            return 0;
        }
        bytes
            .iter()
            .fold(0x9e37, |h: u32, b| h.rotate_left(5) ^ u32::from(*b).wrapping_mul(2654435761))
    }
    /// Extra copies that merging could save: pages of each content less one.
    pub(super) fn duplicates(&self, per_node: bool) -> u64 {
        let mut of: BTreeMap<(Bytes, u16), u64> = BTreeMap::new();
        for space in self.spaces.values().filter(|s| s.mergeable) {
            for e in space.entries.values() {
                if let Entry::Frame(f) = e {
                    let f = self.frame(*f);
                    *of.entry((f.bytes, if per_node { f.node } else { 0 })).or_default() += 1;
                }
            }
        }
        of.values().map(|n| n - 1).sum()
    }
}

impl PageFacts for Host {
    fn lookup(&self, mm: MmId, vpn: Vpn) -> Option<Page> {
        self.spaces.get(&mm).filter(|s| s.mergeable)?;
        self.frame_at(mm, vpn.0).map(|f| Page(f as u64))
    }
    fn order(&self, a: Page, b: Page) -> Ordering {
        self.of(a).bytes.cmp(&self.of(b).bytes)
    }
    fn node(&self, page: Page) -> NodeId {
        NodeId(self.of(page).node)
    }
    fn stable(&self, page: Page) -> Option<StableId> {
        self.of(page).merged.flatten()
    }
    fn keeps(&self, page: Page, node: StableId) -> bool {
        self.frames[page.0 as usize].as_ref().is_some_and(|f| f.merged == Some(Some(node)))
    }
    fn mapcount(&self, page: Page) -> u32 {
        self.of(page).mapcount
    }
    fn is_locked(&self, page: Page) -> bool {
        self.of(page).locked
    }
    fn huge(&self, page: Page) -> Option<u64> {
        self.of(page).huge
    }
}

impl Memory for Host {
    fn pages(&self) -> &dyn PageFacts {
        self
    }
    fn next(&mut self, mm: MmId, from: Vpn) -> Next {
        let space = self.spaces.get(&mm);
        let mergeable = space.is_some_and(|s| s.mergeable);
        let found = space.filter(|s| s.mergeable).and_then(|s| {
            s.entries.range(from.0..).find_map(|(vpn, e)| match e {
                Entry::Frame(f) => Some((*vpn, *f)),
                Entry::Zero => None,
            })
        });
        match found {
            Some((vpn, f)) => Next::Page { vpn: Vpn(vpn), page: Page(f as u64) },
            None => Next::End { mergeable },
        }
    }
    fn checksum(&self, page: Page) -> u32 {
        Self::checksum_of(&self.of(page).bytes)
    }
    fn zero_checksum(&self) -> u32 {
        Self::checksum_of(&[0; 16])
    }
    fn split(&mut self, page: Page) {
        let Some(huge) = self.of(page).huge else { return };
        let parts = || self.frames.iter().flatten().filter(|f| f.huge == Some(huge));
        if parts().any(|f| f.pinned) {
            return;
        }
        for f in self.frames.iter_mut().flatten().filter(|f| f.huge == Some(huge)) {
            f.huge = None;
        }
    }
    fn freeze(&mut self, mm: MmId, vpn: Vpn, page: Page) -> Result<Page, Refusal> {
        if self.lookup(mm, vpn) != Some(page) {
            return Err(Refusal::Gone);
        }
        self.split(page);
        if self.of(page).pinned || self.of(page).huge.is_some() {
            return Err(Refusal::Pinned);
        }
        self.frame_mut(page.0 as usize).merged = Some(None);
        Ok(page)
    }
    fn set_stable(&mut self, page: Page, node: Option<StableId>) {
        self.frame_mut(page.0 as usize).merged = Some(node);
    }
    fn replace(&mut self, mm: MmId, vpn: Vpn, page: Page, with: Page) -> Result<(), Refusal> {
        if self.lookup(mm, vpn) != Some(page) {
            return Err(Refusal::Gone);
        }
        self.split(page);
        if self.of(page).pinned || self.of(page).huge.is_some() {
            return Err(Refusal::Pinned);
        }
        if self.of(page).bytes != self.of(with).bytes {
            return Err(Refusal::Changed);
        }
        self.map(mm, vpn.0, with.0 as usize);
        Ok(())
    }
    fn map_zero(&mut self, mm: MmId, vpn: Vpn, page: Page) -> Result<(), Refusal> {
        if self.of(page).pinned {
            return Err(Refusal::Pinned);
        }
        if self.of(page).bytes != [0; 16] {
            return Err(Refusal::Changed);
        }
        self.unmap(mm, vpn.0);
        self.spaces.entry(mm).or_default().entries.insert(vpn.0, Entry::Zero);
        Ok(())
    }
    fn break_cow(&mut self, mm: MmId, vpn: Vpn) -> Result<(), BreakError> {
        if self.copies_left == Some(0) {
            return Err(if self.signal { BreakError::Signal } else { BreakError::NoMemory });
        }
        self.copies_left = self.copies_left.map(|n| n - 1);
        let bytes = self.frame_at(mm, vpn.0).map_or([0; 16], |f| self.frame(f).bytes);
        self.write(mm, vpn.0, bytes);
        Ok(())
    }
    fn next_zero(&mut self, mm: MmId, from: Vpn) -> Option<Vpn> {
        let entries = &self.spaces.get(&mm)?.entries;
        entries.range(from.0..).find(|(_, e)| **e == Entry::Zero).map(|(vpn, _)| Vpn(*vpn))
    }
    fn drain(&mut self) {
        self.drains += 1;
    }
    fn grant_trees(&mut self, _: usize) -> bool {
        !self.no_trees
    }
}

/// A host with its ksmd.
pub(super) struct World {
    pub(super) host: Host,
    pub(super) ksm: Ksm,
    pub(super) now: Now,
    /// What has come up so far: outcomes, refusals, states.
    pub(super) seen: BTreeSet<String>,
}

pub(super) fn mm_of(name: &str) -> MmId {
    MmId(u32::from(name.as_bytes()[0] - b'A'))
}

impl World {
    /// Smart scan off, running, no end to a batch but that of the pass.
    pub(super) fn new(rules: Rules, nr_nodes: usize) -> Self {
        let mut ksm = Ksm::new(rules.version, nr_nodes);
        let mut host = Host::default();
        ksm.write(&mut host, "pages_to_scan", "1000000").unwrap();
        if rules.smart {
            ksm.write(&mut host, "smart_scan", "0").unwrap();
        }
        ksm.write(&mut host, "run", "1").unwrap();
        Self { host, ksm, now: Now::default(), seen: BTreeSet::new() }
    }

    pub(super) fn pass(&mut self) {
        for _ in 0..100_000 {
            assert!(self.ksm.should_run());
            if self.step() == "PassEnded" {
                return;
            }
        }
        panic!("a pass without an end");
    }

    /// A step, and what came of it without the number of the node.
    pub(super) fn step(&mut self) -> String {
        let said = match self.ksm.step(&mut self.host, &self.now) {
            Step::Page(v) => match v.fate {
                Fate::Attached(_) => "Attached".to_owned(),
                Fate::Merged(_) => "Merged".to_owned(),
                Fate::Paired(_) => "Paired".to_owned(),
                o => format!("{o:?}"),
            },
            s => format!("{s:?}"),
        };
        self.seen.insert(said.clone());
        said
    }

    pub(super) fn proc(&mut self, mm: MmId, pages: &str, node: u16) {
        for (vpn, letter) in pages.chars().enumerate().filter(|(_, c)| *c != '.') {
            let f = self.host.add(content(letter), node);
            self.host.map(mm, vpn as u64, f);
        }
        self.host.spaces.entry(mm).or_default().mergeable = true;
        self.ksm.enter(mm);
    }

    pub(super) fn exit(&mut self, mm: MmId) {
        let zeroes = self.zeroes(mm);
        self.ksm.zero_pages_changed(mm, -(zeroes as i64));
        self.ksm.exit(mm);
        let vpns: Vec<u64> = self
            .host
            .spaces
            .get(&mm)
            .map(|s| s.entries.keys().copied().collect())
            .unwrap_or_default();
        for vpn in vpns {
            self.host.unmap(mm, vpn);
        }
        self.host.spaces.remove(&mm);
    }

    pub(super) fn write(&mut self, mm: MmId, vpn: u64, bytes: Bytes) {
        if self.host.write(mm, vpn, bytes) {
            self.ksm.zero_pages_changed(mm, -1);
        }
    }

    pub(super) fn fork(&mut self, parent: MmId, child: MmId) {
        let space = self.host.spaces[&parent].clone();
        for e in space.entries.values() {
            if let Entry::Frame(f) = e {
                self.host.frame_mut(*f).mapcount += 1;
                // Fork maps huge pages anew; here it splits them.
                self.host.split(Page(*f as u64));
            }
        }
        self.host.spaces.insert(child, space);
        let zeroes = self.zeroes(child);
        self.ksm.fork(parent, child, zeroes);
    }

    fn zeroes(&self, mm: MmId) -> u64 {
        self.host
            .spaces
            .get(&mm)
            .map_or(0, |s| s.entries.values().filter(|e| **e == Entry::Zero).count() as u64)
    }

    /// Take node `from` offline: what can move, moves to `to`; whether all did.
    pub(super) fn offline(&mut self, from: u16, to: u16) -> bool {
        self.ksm.going_offline();
        let there: Vec<usize> = (0..self.host.frames.len())
            .filter(|f| self.host.frames[*f].as_ref().is_some_and(|x| x.node == from))
            .collect();
        let mut all = true;
        for f in there {
            all &= self.host.migrate(&mut self.ksm, f, to);
        }
        all
    }

    /// A switch of `merge_across_nodes`; after one that succeeded, no node is
    /// left in any tree.
    pub(super) fn knob(&mut self, name: &str, text: &str) -> String {
        let before = self.ksm.settings().merge_across_nodes;
        let done = self.ksm.write(&mut self.host, name, text);
        if self.ksm.settings().merge_across_nodes != before {
            assert_eq!(self.ksm.nodes_seen(), [], "nodes have survived a switch");
            assert_eq!((self.ksm.stable_node_chains(), self.ksm.stable_node_dups()), (0, 0));
        }
        match done {
            Ok(written) => format!("{written:?}"),
            Err(e) => e.errno.name().to_owned(),
        }
    }

    pub(super) fn counts(&self) -> String {
        let c = self.ksm.counters();
        format!(
            "{},{},{},{};{},{}",
            c.pages_shared,
            c.pages_sharing,
            c.pages_unshared,
            self.ksm.pages_volatile(),
            self.ksm.stable_node_chains(),
            self.ksm.stable_node_dups()
        )
    }

    /// In which of the next `n` passes a page is processed.
    fn visits(&mut self, mm: MmId, vpn: u64, n: u64) -> String {
        let mut seen = Vec::new();
        for pass in 1..=n {
            loop {
                match self.ksm.step(&mut self.host, &self.now) {
                    Step::Page(v) if (v.mm, v.vpn.0) == (mm, vpn) => seen.push(pass.to_string()),
                    Step::Page(_) => {}
                    Step::Idle | Step::PassEnded => break,
                }
            }
        }
        seen.join(",")
    }

    fn place(&self, mm: MmId, vpn: u64) -> String {
        let Some(f) = self.host.frame_at(mm, vpn) else { return "zero or absent".to_owned() };
        let frame = self.host.frame(f);
        match frame.merged {
            None => format!("own page on node {}", frame.node),
            Some(None) => format!("orphan on node {}", frame.node),
            Some(Some(id)) => {
                let seen = self.ksm.nodes_seen();
                match seen.iter().find(|n| n.node == id).and_then(|n| n.tree) {
                    Some(t) => format!("merged on node {}, tree {t}", frame.node),
                    None => format!("merged on node {}, waits", frame.node),
                }
            }
        }
    }

    fn run(&mut self, line: &str) -> Option<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |i: usize| words[i].parse::<u64>().unwrap();
        let at = |i: usize| (mm_of(words[i]), number(i + 1));
        match words[0] {
            "proc" => {
                let node = words.get(3).map_or(0, |n| n.parse().unwrap());
                self.proc(mm_of(words[1]), words[2], node);
            }
            "knob" => {
                let said = self.knob(words[1], words.get(2).copied().unwrap_or(""));
                return (!said.starts_with("Done")).then_some(said);
            }
            "show" => return Some(self.ksm.read(words[1]).unwrap()),
            "pass" => (0..number(1)).for_each(|_| self.pass()),
            "batch" => {
                let n = (0..number(1))
                    .take_while(|_| !self.ksm.batch(&mut self.host, &self.now).pass_ended);
                return Some(format!("{} without an end", n.count()));
            }
            "step" => return Some(self.step()),
            "visits" => return Some(self.visits(mm_of(words[1]), number(2), number(3))),
            "jiffies" => self.now.jiffies += number(1),
            "write" => {
                let (mm, vpn) = at(1);
                self.write(mm, vpn, content(words[3].chars().next().unwrap()));
            }
            "pin" | "unpin" | "lock" | "unlock" => {
                let (mm, vpn) = at(1);
                let f = self.host.frame_at(mm, vpn).unwrap();
                match words[0] {
                    "pin" | "unpin" => self.host.frame_mut(f).pinned = words[0] == "pin",
                    _ => self.host.frame_mut(f).locked = words[0] == "lock",
                }
            }
            "huge" => {
                let (mm, first) = at(1);
                for vpn in first..first + number(3) {
                    let f = self.host.frame_at(mm, vpn).unwrap();
                    self.host.frame_mut(f).huge = Some(u64::from(mm.0) << 32 | first);
                }
            }
            "move" => {
                let (mm, vpn) = at(1);
                let f = self.host.frame_at(mm, vpn).unwrap();
                assert!(self.host.migrate(&mut self.ksm, f, number(3) as u16));
            }
            "fork" => self.fork(mm_of(words[1]), mm_of(words[2])),
            "exec" => {
                let merge_any = words[3] == "any";
                self.host.spaces.entry(mm_of(words[2])).or_default().mergeable = merge_any;
                self.ksm.exec(mm_of(words[1]), mm_of(words[2]), merge_any);
                self.exit(mm_of(words[1]));
            }
            "exit" => self.exit(mm_of(words[1])),
            "unmap" => {
                let (mm, vpn) = at(1);
                if self.host.unmap(mm, vpn) {
                    self.ksm.zero_pages_changed(mm, -1);
                }
            }
            "unmergeable" => {
                let mm = mm_of(words[1]);
                let done = self.ksm.unmerge(&mut self.host, mm, Vpn(0), Vpn(u64::MAX));
                if let Err(e) = done {
                    return Some(e.madvise_errno().name().to_owned());
                }
                self.host.spaces.get_mut(&mm).unwrap().mergeable = false;
            }
            "copies" => self.host.copies_left = words[1].parse().ok(),
            "signal" => self.host.signal = words[1] == "1",
            "cow" => return Some(self.host.cow_ksm.to_string()),
            "no-trees" => self.host.no_trees = words[1] == "1",
            "leaving" => {
                let all = self.offline(number(1) as u16, 1 - number(1) as u16);
                return Some(if all { "all moved" } else { "some stay" }.to_owned());
            }
            "left" => {
                let node = number(1) as u16;
                let frames = &self.host.frames;
                self.ksm.offlined(|p| frames[p.0 as usize].as_ref().is_none_or(|f| f.node == node));
            }
            "cancel" => self.ksm.offline_cancelled(),
            "counts" => return Some(self.counts()),
            "list" => {
                return Some(self.ksm.listed().map(|m| char::from(b'A' + m.0 as u8)).collect());
            }
            "where" => {
                let (mm, vpn) = at(1);
                return Some(self.place(mm, vpn));
            }
            "stale" => return Some(format!("{} stale", self.ksm.stale_nodes(&self.host).len())),
            "nodes" => {
                let nodes = self.ksm.nodes_seen();
                let text: Vec<String> = nodes
                    .iter()
                    .map(|n| match n.tree {
                        Some(t) => format!("{t}:{}", n.items),
                        None => format!("waits:{}", n.items),
                    })
                    .collect();
                return Some(text.join(" "));
            }
            other => panic!("no command {other:?}"),
        }
        None
    }
}

/// Run `script` and compare what it prints, a line of output below a line of
/// commands that print, with `expected`. `rules` and nodes as given.
pub(super) fn check_with(rules: Rules, nr_nodes: usize, script: &str, expected: &str) {
    let mut world = World::new(rules, nr_nodes);
    let mut out = String::new();
    for line in script.lines().flat_map(|l| l.split(';')) {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        if let Some(said) = world.run(line) {
            writeln!(out, "{said}").unwrap();
        }
        let faults = world.ksm.faults(&world.host);
        assert!(faults.is_empty(), "after {line:?}: {faults:#?}");
    }
    let lines = |t: &str| {
        t.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(&out), lines(expected), "in\n{script}");
}

/// [`check_with`] on 6.12 with two nodes.
pub(super) fn check(script: &str, expected: &str) {
    check_with(Rules::of(KernelVersion::V6_12), 2, script, expected);
}

/// [`check_with`] on every version.
pub(super) fn check_on_all(script: &str, expected: &str) {
    for version in KernelVersion::ALL {
        check_with(Rules::of(version), 2, script, expected);
    }
}
