//! Address spaces: mappings, and where their pages are in the columns.
//!
//! A space maps virtual page numbers to places in the columns in steps of 512
//! pages, as a page table does. Anonymous and file pages of one step live in
//! separate blocks, so that a block has one kind of list.

use crate::content::Content;
use crate::memory::{BLOCK, Memory, MemoryError};
use homenode_core::numa::scan::MmScan;
use homenode_core::numa::window::{ScannedVma, VmaFacts, VmaScan};
use homenode_core::scenario::Mempolicy;
use homenode_core::units::NodeId;
use std::collections::BTreeMap;

/// What a mapping is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) file: bool,
    pub(crate) shared: bool,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) executable: bool,
    /// `MADV_HUGEPAGE`, `MADV_NOHUGEPAGE`, or none.
    pub(crate) huge: Option<bool>,
    pub(crate) policy: Mempolicy,
    /// What its pages hold after a first touch.
    pub(crate) holds: Holds,
    /// Its pages may be merged with equal ones.
    pub(crate) mergeable: bool,
    /// Its place among the mappings of a scenario's process, by which steps find it.
    pub(crate) map: Option<usize>,
}

/// What the pages of a mapping hold after a first touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Each its own.
    #[default]
    Own,
    /// Zeroes.
    Zero,
    /// Page `base` holds the first page of an image with so many different ones.
    Image { image: u32, distinct: u64, base: u64 },
}

impl Holds {
    /// What the page at `vpn` holds.
    pub(crate) fn at(self, vpn: u64) -> Content {
        match self {
            Self::Own => Content::OWN,
            Self::Zero => Content::ZERO,
            Self::Image { image, distinct, base } => {
                Content::image(image, vpn.wrapping_sub(base) % distinct.max(1))
            }
        }
    }
    /// The same for a mapping that has moved by so many pages.
    pub(crate) fn moved(self, from: u64, to: u64) -> Self {
        match self {
            Self::Image { image, distinct, base } => {
                let base = base.wrapping_add(to).wrapping_sub(from);
                Self::Image { image, distinct, base }
            }
            same => same,
        }
    }
}

/// A mapping: virtual pages `start .. end`.
#[derive(Clone, Debug)]
pub(crate) struct Vma {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) kind: Kind,
    /// The name that a scenario or a recording gives it, for who reads files; empty if none.
    pub(crate) name: String,
    /// What the scan of NUMA balancing remembers of it.
    pub(crate) scan: Option<VmaScan>,
    /// Whether the scan may touch it: the kernel's answer for its policy and the task's.
    pub(crate) policy_migrates: bool,
    /// Where its first page was in the columns when it was made; the others follow, mostly.
    pub(crate) hint: u32,
}

impl Vma {
    pub(crate) fn pages(&self) -> u64 {
        self.end - self.start
    }
    /// Whether `next` goes on where this one ends, and is of its kind. Mappings of
    /// files don't join: nobody here knows whether their offsets do.
    fn joins(&self, next: &Self) -> bool {
        self.end == next.start
            && !self.kind.file
            && self.kind == next.kind
            && self.policy_migrates == next.policy_migrates
    }
}

impl ScannedVma for Vma {
    fn facts(&self) -> VmaFacts {
        VmaFacts {
            start_vpn: self.start,
            end_vpn: self.end,
            migratable: true,
            policy_migrates: self.policy_migrates,
            file: self.kind.file,
            read: self.kind.readable,
            write: self.kind.writable,
            exec: self.kind.executable,
        }
    }
    fn scan_state(&mut self) -> &mut Option<VmaScan> {
        &mut self.scan
    }
}

/// The node that a policy wants for a page, and whether others may serve.
pub(crate) fn wanted(policy: &Mempolicy, local: NodeId, turn: u64) -> (NodeId, Option<&[NodeId]>) {
    match policy {
        Mempolicy::Default | Mempolicy::Local => (local, None),
        Mempolicy::Preferred(n) => (*n, None),
        Mempolicy::Bind { nodes, .. } => {
            let first = if nodes.contains(&local) { local } else { nodes[0] };
            (first, Some(nodes))
        }
        Mempolicy::Interleave(nodes) => (nodes[(turn % nodes.len() as u64) as usize], None),
        Mempolicy::WeightedInterleave(weights) => {
            let sum: u64 = weights.iter().map(|w| u64::from(w.1)).sum();
            let mut at = turn % sum.max(1);
            for (node, weight) in weights {
                if at < u64::from(*weight) {
                    return (*node, None);
                }
                at -= u64::from(*weight);
            }
            (weights[0].0, None)
        }
    }
}

/// An address space.
#[derive(Debug)]
pub(crate) struct Space {
    /// Its number plus one marks its blocks.
    pub(crate) number: u32,
    /// By first page, never overlapping.
    pub(crate) vmas: Vec<Vma>,
    /// Step of 512 pages, twice, plus one for files → block.
    blocks: BTreeMap<u64, u32>,
    /// Recently used steps: direct-mapped by the step's low bits.
    recent: Vec<(u64, u32)>,
    /// Pages in memory.
    pub(crate) rss: u64,
    /// Running threads.
    pub(crate) users: u32,
    /// What the scan remembers of the space as a whole.
    pub(crate) scan: MmScan,
    /// Per place of a node, a bit: aging on the node's behalf has never looked.
    pub(crate) unseen: u64,
    /// Turns of the policies that interleave.
    pub(crate) turn: u64,
    /// Grows with every change of mappings, so that caches of them notice.
    pub(crate) changes: u64,
    /// Its number for merging, where contents are kept.
    pub(crate) mm: u32,
    /// `PR_SET_MEMORY_MERGE`: whatever it maps may be merged.
    pub(crate) merge_any: bool,
    /// khugepaged has it on its list.
    pub(crate) khugepaged: bool,
    /// Base pages of it were unmapped in a batch since the scan marked some last.
    pub(crate) unmapped_in_batch: bool,
    /// The scan holds its lock for reading until then.
    pub(crate) read_until: u64,
}

const RECENT: usize = 256;

impl Space {
    pub(crate) fn new(number: u32) -> Self {
        Self {
            number,
            vmas: Vec::new(),
            blocks: BTreeMap::new(),
            recent: vec![(u64::MAX, 0); RECENT],
            rss: 0,
            users: 0,
            scan: MmScan::new(),
            unseen: u64::MAX,
            turn: 0,
            changes: 0,
            mm: u32::MAX,
            merge_any: false,
            khugepaged: false,
            unmapped_in_batch: false,
            read_until: 0,
        }
    }
    /// The place in `vmas` of the mapping that holds a virtual page.
    #[inline]
    pub(crate) fn find(&self, vpn: u64) -> Option<usize> {
        let i = self.vmas.partition_point(|v| v.end <= vpn);
        self.vmas.get(i).is_some_and(|v| v.start <= vpn).then_some(i)
    }
    /// Whether every page of a range is mapped.
    pub(crate) fn is_mapped(&self, start: u64, end: u64) -> bool {
        let first = self.vmas.partition_point(|v| v.end <= start);
        let mut reached = start;
        for v in &self.vmas[first..] {
            if v.start > reached || reached >= end {
                break;
            }
            reached = v.end;
        }
        reached >= end
    }
    /// The mapping at that place among those of a scenario's process.
    pub(crate) fn mapping(&self, map: usize) -> Option<&Vma> {
        self.vmas.iter().find(|v| v.kind.map == Some(map))
    }
    /// A free stretch of virtual pages above everything mapped, on a 2 MiB boundary.
    pub(crate) fn above(&self) -> u64 {
        let top = self.vmas.last().map_or(0x10_0000, |v| v.end);
        // A hole between two mappings, as address randomisation leaves it.
        (top + u64::from(BLOCK)).next_multiple_of(u64::from(BLOCK))
    }
    /// Puts a mapping in; nothing may be mapped there. It joins neighbours of its
    /// kind, as the kernel's do: a heap that grows stays one mapping, which keeps
    /// what the scan remembers of its first part.
    pub(crate) fn insert(&mut self, vma: Vma) {
        let at = self.vmas.partition_point(|v| v.end <= vma.start);
        debug_assert!(self.vmas.get(at).is_none_or(|v| vma.end <= v.start));
        self.changes += 1;
        let hint = self.place(vma.start, vma.kind.file).unwrap_or(0);
        self.vmas.insert(at, Vma { hint, ..vma });
        if at + 1 < self.vmas.len() && self.vmas[at].joins(&self.vmas[at + 1]) {
            self.vmas[at].end = self.vmas[at + 1].end;
            self.vmas.remove(at + 1);
        }
        if at > 0 && self.vmas[at - 1].joins(&self.vmas[at]) {
            self.vmas[at - 1].end = self.vmas[at].end;
            self.vmas.remove(at);
        }
    }
    /// Makes mappings begin at `start` and at `end`, and returns the places of
    /// those between. A part begins anew with the scan (specs/numa.md#new-mappings).
    pub(crate) fn carve(&mut self, start: u64, end: u64) -> std::ops::Range<usize> {
        for vpn in [start, end] {
            if let Some(i) = self.find(vpn).filter(|&i| self.vmas[i].start < vpn) {
                let mut tail = self.vmas[i].clone();
                self.vmas[i].end = vpn;
                tail.start = vpn;
                tail.hint = tail.hint.wrapping_add((vpn - self.vmas[i].start) as u32);
                tail.scan = None;
                self.vmas.insert(i + 1, tail);
            }
        }
        self.changes += 1;
        let first = self.vmas.partition_point(|v| v.end <= start);
        let last = self.vmas.partition_point(|v| v.start < end);
        first..last.max(first)
    }
    /// The place of a virtual page in the columns, if its block exists.
    #[inline]
    pub(crate) fn page(&mut self, vpn: u64, file: bool) -> Option<u32> {
        let key = vpn / u64::from(BLOCK) * 2 + u64::from(file);
        let slot = &mut self.recent[key as usize % RECENT];
        if slot.0 != key {
            *slot = (key, *self.blocks.get(&key)?);
        }
        Some(slot.1 * BLOCK + (vpn % u64::from(BLOCK)) as u32)
    }
    /// The same without remembering the step.
    pub(crate) fn place(&self, vpn: u64, file: bool) -> Option<u32> {
        let key = vpn / u64::from(BLOCK) * 2 + u64::from(file);
        Some(self.blocks.get(&key)? * BLOCK + (vpn % u64::from(BLOCK)) as u32)
    }
    /// The same for a page of an anonymous mapping, at once where the mapping lies in a row.
    #[inline]
    pub(crate) fn place_in(&self, memory: &Memory, v: &Vma, vpn: u64) -> Option<u32> {
        let page = v.hint.wrapping_add((vpn - v.start) as u32);
        let block = memory.blocks.get((page / BLOCK) as usize);
        let same = |b: &crate::memory::Block| {
            b.space == self.number + 1 && b.step == vpn / u64::from(BLOCK) && !b.file
        };
        let right = block.is_some_and(same) && u64::from(page % BLOCK) == vpn % u64::from(BLOCK);
        if right { Some(page) } else { self.place(vpn, false) }
    }
    /// The steps from `first` to before `end` that have a block: first virtual page
    /// and its place in the columns.
    pub(crate) fn steps(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u32)> + '_ {
        let steps = self.blocks.range(first * 2..end * 2);
        steps.map(|(key, block)| (key / 2 * u64::from(BLOCK), block * BLOCK))
    }
    /// Makes the blocks that `start .. end` needs; the new ones lie side by side
    /// in the columns.
    pub(crate) fn reserve(
        &mut self,
        memory: &mut Memory,
        start: u64,
        end: u64,
        file: bool,
    ) -> Result<(), MemoryError> {
        let step = u64::from(BLOCK);
        let missing: Vec<u64> = (start / step..end.div_ceil(step))
            .filter(|s| !self.blocks.contains_key(&(s * 2 + u64::from(file))))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let first = memory.take_blocks(&missing, self.number, file)?;
        for (i, s) in missing.into_iter().enumerate() {
            self.blocks.insert(s * 2 + u64::from(file), first + i as u32);
        }
        Ok(())
    }
    /// Gives back the blocks in `start .. end` that no mapping reaches any more.
    /// Their words must be clear.
    pub(crate) fn release(&mut self, memory: &mut Memory, start: u64, end: u64, file: bool) {
        let step = u64::from(BLOCK);
        for s in start / step..end.div_ceil(step) {
            let first = self.vmas.partition_point(|v| v.end <= s * step);
            let reached = self.vmas[first..]
                .iter()
                .take_while(|v| v.start < (s + 1) * step)
                .any(|v| v.kind.file == file);
            if !reached {
                let key = s * 2 + u64::from(file);
                if let Some(block) = self.blocks.remove(&key) {
                    memory.give_block(block);
                }
                self.recent[key as usize % RECENT] = (u64::MAX, 0);
            }
        }
    }
}
