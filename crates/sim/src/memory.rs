//! Memory as it is: columns of pages, shared frames, zones with free pages, lists.
//!
//! This room knows no policy, no time and no process beyond a number. It keeps
//! one promise: what the columns say, the counts say too (a checker recounts).

use crate::content::{Content, Contents, Merged};
use crate::lists::{FLAGS, GEN_PAGES_MAX, List, ListAt, Listed, Lru, Place, Ranks};
use crate::page::{
    FRAMES_MAX, LIST, LIST_ACTIVE, LIST_INACTIVE, OnList, SHARED, State, Word, YOUNG, ZONE,
    ZONE_SHIFT, ZONES_MAX,
};
use crate::sweep::Members;
use crate::table::{Table, prefetch};
use homenode_core::tiering::mglru::{Flags, MAX_GENS, Sizes};
use homenode_core::topology::{Hardware, ZoneKind};
use homenode_core::units::{HUGE_PAGES, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// Base pages in a block: the reach of one page-table page, a huge page's size.
pub(crate) const BLOCK: u32 = HUGE_PAGES as u32;
/// An item with this bit is a shared frame, without it a private page.
pub(crate) const FRAME_ITEM: u32 = 1 << 31;
/// Most pages of address space.
pub(crate) const PAGES_MAX: u64 = 1 << 31;
/// The frame that stands for the kernel's page of zeroes, where contents are kept. It is
/// part of the kernel's image, so of no zone's managed pages, and knows no mappers.
pub(crate) const ZERO_FRAME: u32 = 0;
/// Members that a sweep looks for, at least: their slots are fewer bytes than the sweep reads.
const WINDOW: u64 = 4096;
/// Words that a walk looks at together.
const ROW: usize = 8;

/// How a walk lifts what it finds used.
pub(crate) struct Lifts {
    /// The place of the generation.
    pub(crate) to: usize,
    /// Zones that it looks at, as bits.
    pub(crate) zones: u32,
    /// Who is on no list keeps its accessed bit.
    pub(crate) listed_only: bool,
    /// Of a page with these flags: whether it is lifted, and its flags then.
    pub(crate) used: [(bool, u32); 4],
}

/// What a walk has found in a stretch.
#[derive(Default)]
pub(crate) struct Lifted {
    /// Some entry was used.
    pub(crate) any: bool,
    /// Private pages that were.
    pub(crate) young: u64,
    /// Used entries of shared frames, which it has left alone.
    pub(crate) others: Vec<u32>,
    /// Of the private ones those on no list.
    pub(crate) unlisted: Vec<u32>,
}

/// Why the simulated memory cannot be made or grown.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// More zones than a page's word can name.
    #[error(
        "the machine has {0} zones with memory; {ZONES_MAX} can be simulated: \
         join the zones of a node into one"
    )]
    Zones(usize),
    /// More address space than page numbers reach.
    #[error("the programs map {0} pages of 4 KiB; 2^31 (8 TiB) can be simulated")]
    Pages(u64),
    /// More address space than was reserved for the run: its mappings leave holes, or
    /// it has more children than were foreseen.
    #[error(
        "the programs map {0} pages of 4 KiB with the holes between them, more than \
         was reserved: fork fewer children at once, or reserve more (Setup::room)"
    )]
    Room(u64),
    /// More shared frames than a page's word can name.
    #[error("more than 2^27 pages (512 GiB) are shared between processes")]
    Frames,
    /// More address spaces than merging can name.
    #[error(
        "more than 2^20 (1 Mi) processes are there at once, or gone and not yet cleaned \
         up by ksmd"
    )]
    Spaces,
    /// A zone is larger than a list of generations can number.
    #[error(
        "a zone has {0} pages; with MGLRU {GEN_PAGES_MAX} can be simulated: \
         write 0 to /sys/kernel/mm/lru_gen/enabled (--set lru_gen=0)"
    )]
    Generations(u64),
    /// The host gave no memory for the columns.
    #[error("the host gave no memory for the page columns")]
    Host(#[source] std::io::Error),
}

/// A zone: a count of free pages and the marks it is held against.
#[derive(Clone, Debug)]
pub(crate) struct ZoneState {
    /// Place of its node.
    pub(crate) node: usize,
    pub(crate) kind: ZoneKind,
    /// Pages online.
    pub(crate) managed: u64,
    pub(crate) free: u64,
    /// Managed pages that are neither used nor free: they are going offline.
    pub(crate) isolated: u64,
    /// Pages handed out since boot.
    pub(crate) allocated: u64,
}

/// A node: its zones and its lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeState {
    pub(crate) id: u16,
    /// Places of its zones with memory, highest kind first: the order of allocation.
    pub(crate) zones: Vec<usize>,
    lists: [List; 4],
}

impl NodeState {
    /// Pages on a list.
    pub(crate) fn on(&self, lru: Lru) -> u64 {
        self.lists[lru as usize].pages
    }
    /// Members of a list: a huge page is one.
    pub(crate) fn members_on(&self, lru: Lru) -> u64 {
        self.lists[lru as usize].members
    }
}

/// The generations of a zone.
#[derive(Clone, Debug)]
struct ZoneGens {
    lists: [[List; 2]; MAX_GENS],
    /// Pages by the generation that they belong to, which may be newer than their list's.
    sizes: Sizes,
}

impl ZoneGens {
    fn new(zone: usize) -> Self {
        let list = |index, file| List::starting(Ranks::of(ListAt::Gen(zone, index, file)));
        let lists = std::array::from_fn(|i| [false, true].map(|file| list(i, file)));
        Self { lists, sizes: Sizes::default() }
    }
}

/// What the pages of a block have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    /// The address space that it belongs to, plus one; 0: free.
    pub(crate) space: u32,
    /// Its place there: virtual page number / 512.
    pub(crate) step: u64,
    /// Pages of files (else anonymous).
    pub(crate) file: bool,
    /// Mapped by one huge page now.
    pub(crate) huge: bool,
    /// It has a page table, and so no first touch makes a huge page of it.
    pub(crate) table: bool,
}

#[derive(Default)]
struct Frames {
    words: Vec<u32>,
    orders: Vec<u32>,
    file: Vec<bool>,
    maps: Vec<Vec<u32>>,
    free: Vec<u32>,
}

/// All of it.
pub(crate) struct Memory {
    pub(crate) words: Table,
    orders: Table,
    pub(crate) blocks: Vec<Block>,
    /// Blocks given back: first → how many, never adjacent.
    holes: BTreeMap<u32, u32>,
    blocks_max: u32,
    frames: Frames,
    pub(crate) zones: Vec<ZoneState>,
    pub(crate) nodes: Vec<NodeState>,
    /// Per zone: generations, where they stand in the place of active and inactive lists.
    gens: Option<Vec<ZoneGens>>,
    /// Items whose accessed bit DAMON has cleared and kept beside, for reclaim to find:
    /// the kernel's flag "young" of a folio. Empty unless DAMON runs.
    pub(crate) kept_young: BTreeSet<u32>,
    /// Sweeps made, for the benchmark's account.
    pub(crate) sweeps: u64,
    /// What pages hold; `None` where nobody asks.
    pub(crate) contents: Option<Box<Contents>>,
}

impl Memory {
    /// The machine's memory, all free, with room for `pages` of address space.
    pub(crate) fn new(machine: &Hardware, pages: u64) -> Result<Self, MemoryError> {
        let mut zones = Vec::new();
        let mut nodes = Vec::new();
        for (place, n) in machine.nodes.iter().enumerate() {
            let mut mine = Vec::new();
            for z in n.zones.iter().filter(|z| z.managed.0 > 0) {
                mine.push(zones.len());
                let managed = z.managed.0;
                zones.push(ZoneState {
                    node: place,
                    kind: z.kind,
                    managed,
                    free: managed,
                    isolated: 0,
                    allocated: 0,
                });
            }
            mine.reverse();
            nodes.push(NodeState { id: n.id.0, zones: mine, lists: Default::default() });
        }
        if zones.len() > ZONES_MAX {
            return Err(MemoryError::Zones(zones.len()));
        }
        if pages > PAGES_MAX {
            return Err(MemoryError::Pages(pages));
        }
        let len = (pages as usize).next_multiple_of(BLOCK as usize);
        Ok(Self {
            words: Table::new(len).map_err(MemoryError::Host)?,
            orders: Table::new(len).map_err(MemoryError::Host)?,
            blocks: Vec::new(),
            holes: BTreeMap::new(),
            blocks_max: (len / BLOCK as usize) as u32,
            frames: Frames::default(),
            zones,
            nodes,
            gens: None,
            kept_young: BTreeSet::new(),
            sweeps: 0,
            contents: None,
        })
    }

    // ── Contents ───────────────────────────────────────────────────────────────

    /// Keeps what pages hold, from the start. The page of zeroes lies where the kernel's
    /// image does: in the lowest zone of the first node that has memory.
    pub(crate) fn keep_contents(&mut self) -> Result<(), MemoryError> {
        debug_assert!(self.blocks.is_empty() && self.frames.words.is_empty());
        let column = Contents::new(self.words.len()).map_err(MemoryError::Host)?;
        self.contents = Some(Box::new(column));
        let frame = self.new_frame()?;
        debug_assert_eq!(frame, ZERO_FRAME);
        self.frames.words[frame as usize] = Word::mapped(0, false).0;
        if let Some(c) = &mut self.contents {
            c.set_frame(frame, Content::ZERO);
        }
        Ok(())
    }
    /// Whether an entry's frame is the page of zeroes.
    #[inline]
    pub(crate) fn is_zero_page(&self, w: Word) -> bool {
        w.shared() && w.resident() && w.frame() == ZERO_FRAME && self.contents.is_some()
    }
    /// Whether a frame is a merged page.
    #[inline]
    pub(crate) fn is_merged(&self, frame: u32) -> bool {
        self.contents.as_ref().is_some_and(|c| c.merged(frame) != Merged::No)
    }
    /// What an item holds.
    #[inline]
    pub(crate) fn content(&self, item: u32) -> Content {
        match &self.contents {
            None => Content::OWN,
            Some(c) if item & FRAME_ITEM == 0 => c.of_page(item),
            Some(c) => c.of_frame(item ^ FRAME_ITEM),
        }
    }
    /// A private page holds this from now on. Unless that is the process's own, a page
    /// that can be written is armed.
    pub(crate) fn set_content(&mut self, page: u32, content: Content) {
        let Some(c) = &mut self.contents else { return };
        let w = Word(self.words[page as usize]);
        debug_assert!(w.resident() && !w.shared());
        let arm = content != Content::OWN && (w.writable() || c.is_armed(page));
        c.set(page, content, arm);
        if arm {
            self.words[page as usize] = w.with_write(false).0;
        }
    }
    /// Somebody looks at a private page: from now on the next write is seen.
    pub(crate) fn look_at(&mut self, page: u32) {
        let Some(c) = &mut self.contents else { return };
        if c.known(page) == Content::OWN {
            let fresh = c.fresh();
            let w = Word(self.words[page as usize]);
            c.set(page, fresh, w.writable());
            self.words[page as usize] = w.with_write(false).0;
        }
    }
    /// A write to a page that may not be written: if it is only armed, it can be written
    /// from now on, and holds something of its own.
    #[inline]
    pub(crate) fn disarm_for_write(&mut self, page: u32) -> bool {
        let Some(c) = &mut self.contents else { return false };
        let w = Word(self.words[page as usize]);
        if w.shared() || !c.is_armed(page) {
            return false;
        }
        c.set(page, Content::OWN, false);
        self.words[page as usize] = w.with_write(true).0;
        true
    }
    /// A private page, not armed, was written.
    pub(crate) fn written(&mut self, page: u32) {
        if let Some(c) = &mut self.contents {
            c.set(page, Content::OWN, false);
        }
    }
    /// The entry of a private page may no longer be written, whoever looks at it.
    pub(crate) fn forbid_write(&mut self, page: u32) {
        let w = Word(self.words[page as usize]);
        self.words[page as usize] = w.with_write(false).0;
        if let Some(c) = &mut self.contents {
            if !w.shared() {
                c.disarm(page);
            }
        }
    }
    /// One entry maps the page of zeroes; it maps nothing before.
    pub(crate) fn map_zero(&mut self, page: u32) {
        debug_assert_eq!(self.words[page as usize], 0);
        self.words[page as usize] = Word::sharing(ZERO_FRAME, crate::page::PRESENT, false, true).0;
    }
    /// A frame of which nothing is known yet.
    fn new_frame(&mut self) -> Result<u32, MemoryError> {
        if let Some(f) = self.frames.free.pop() {
            return Ok(f);
        }
        let f = self.frames.words.len() as u32;
        if f >= FRAMES_MAX {
            return Err(MemoryError::Frames);
        }
        self.frames.words.push(0);
        self.frames.orders.push(0);
        self.frames.file.push(false);
        self.frames.maps.push(Vec::new());
        if let Some(c) = &mut self.contents {
            c.add_frame();
        }
        Ok(f)
    }
    /// Frames that there have been at once.
    pub(crate) fn nr_frames(&self) -> usize {
        self.frames.words.len()
    }

    /// The node's place of a zone.
    #[inline]
    pub(crate) fn node_of(&self, zone: usize) -> usize {
        self.zones[zone].node
    }
    /// The number of a node by its place.
    pub(crate) fn node_id(&self, place: usize) -> NodeId {
        NodeId(self.nodes[place].id)
    }
    /// Free pages of a node.
    pub(crate) fn free_of(&self, node: usize) -> u64 {
        self.nodes[node].zones.iter().map(|&z| self.zones[z].free).sum()
    }

    // ── Blocks of address space ────────────────────────────────────────────────

    /// Takes `steps.len()` adjacent blocks for those steps of a space; the first
    /// one's number.
    pub(crate) fn take_blocks(
        &mut self,
        steps: &[u64],
        space: u32,
        file: bool,
    ) -> Result<u32, MemoryError> {
        let n = steps.len() as u32;
        let fit = self.holes.iter().find(|&(_, &len)| len >= n).map(|(&at, &len)| (at, len));
        let first = match fit {
            Some((at, len)) => {
                self.holes.remove(&at);
                if len > n {
                    self.holes.insert(at + n, len - n);
                }
                at
            }
            None => {
                let at = self.blocks.len() as u32;
                if at.checked_add(n).is_none_or(|end| end > self.blocks_max) {
                    return Err(MemoryError::Room((u64::from(at) + u64::from(n)) * HUGE_PAGES));
                }
                self.blocks.resize((at + n) as usize, Block::default());
                at
            }
        };
        for (b, &step) in self.blocks[first as usize..].iter_mut().zip(steps) {
            *b = Block { space: space + 1, step, file, ..Block::default() };
        }
        Ok(first)
    }
    /// Gives one block back. Its words must be clear.
    pub(crate) fn give_block(&mut self, block: u32) {
        debug_assert!(self.block_words(block).iter().all(|&w| w == 0));
        self.blocks[block as usize] = Block::default();
        let (mut at, mut n) = (block, 1);
        if let Some((&before, &len)) = self.holes.range(..block).next_back() {
            if before + len == block {
                self.holes.remove(&before);
                at = before;
                n += len;
            }
        }
        if let Some(len) = self.holes.remove(&(block + 1)) {
            n += len;
        }
        self.holes.insert(at, n);
    }
    fn block_words(&self, block: u32) -> &[u32] {
        let at = (block * BLOCK) as usize;
        &self.words[at..at + BLOCK as usize]
    }

    // ── Pages and frames as items ──────────────────────────────────────────────

    /// The item behind an entry: the page itself, its huge page's first page, or
    /// the frame that it maps.
    #[inline]
    pub(crate) fn item_of(&self, page: u32) -> u32 {
        let w = Word(self.words[page as usize]);
        if w.shared() {
            w.frame() | FRAME_ITEM
        } else if self.blocks[(page / BLOCK) as usize].huge {
            page & !(BLOCK - 1)
        } else {
            page
        }
    }
    /// Base pages that an item has.
    #[inline]
    pub(crate) fn pages_of(&self, item: u32) -> u64 {
        if item & FRAME_ITEM == 0 && self.blocks[(item / BLOCK) as usize].huge {
            HUGE_PAGES
        } else {
            1
        }
    }
    #[inline]
    pub(crate) fn word(&self, item: u32) -> Word {
        if item & FRAME_ITEM == 0 {
            Word(self.words[item as usize])
        } else {
            Word(self.frames.words[(item ^ FRAME_ITEM) as usize])
        }
    }
    #[inline]
    pub(crate) fn set_word(&mut self, item: u32, w: Word) {
        if item & FRAME_ITEM == 0 {
            self.words[item as usize] = w.0;
        } else {
            self.frames.words[(item ^ FRAME_ITEM) as usize] = w.0;
        }
    }
    #[inline]
    fn order(&self, item: u32) -> u32 {
        if item & FRAME_ITEM == 0 {
            self.orders[item as usize]
        } else {
            self.frames.orders[(item ^ FRAME_ITEM) as usize]
        }
    }
    #[inline]
    fn set_order(&mut self, item: u32, order: u32) {
        if item & FRAME_ITEM == 0 {
            self.orders[item as usize] = order;
        } else {
            self.frames.orders[(item ^ FRAME_ITEM) as usize] = order;
        }
    }
    /// Whether an item belongs to a file.
    #[inline]
    pub(crate) fn is_file(&self, item: u32) -> bool {
        if item & FRAME_ITEM == 0 {
            self.blocks[(item / BLOCK) as usize].file
        } else {
            self.frames.file[(item ^ FRAME_ITEM) as usize]
        }
    }
    /// Entries that map a frame.
    pub(crate) fn mappers(&self, frame: u32) -> &[u32] {
        &self.frames.maps[frame as usize]
    }
    /// How many entries map an item: one a private page.
    pub(crate) fn nr_mappers(&self, item: u32) -> u32 {
        if item & FRAME_ITEM == 0 { 1 } else { self.mappers(item ^ FRAME_ITEM).len() as u32 }
    }
    /// The first entry that maps an item: of a private page its own.
    pub(crate) fn first_mapper(&self, item: u32) -> Option<u32> {
        let frame = item ^ FRAME_ITEM;
        if item & FRAME_ITEM == 0 { Some(item) } else { self.mappers(frame).first().copied() }
    }
    /// Where an entry stands among the mappers of its frame.
    pub(crate) fn mapper_at(&self, page: u32) -> usize {
        self.orders[page as usize] as usize
    }
    /// Whether some entry of a base page has written to it.
    pub(crate) fn is_dirty(&self, item: u32) -> bool {
        if item & FRAME_ITEM == 0 {
            self.word(item).writable() || self.contents.as_ref().is_some_and(|c| c.is_armed(item))
        } else {
            let maps = &self.frames.maps[(item ^ FRAME_ITEM) as usize];
            maps.iter().any(|&p| Word(self.words[p as usize]).writable())
        }
    }
    /// The entries that stand and fall with one: all parts of a huge page, else itself alone.
    pub(crate) fn entries(&self, page: u32) -> std::ops::Range<usize> {
        let first = page & !(BLOCK - 1);
        match self.blocks[(page / BLOCK) as usize].huge {
            true => first as usize..(first + BLOCK) as usize,
            false => page as usize..page as usize + 1,
        }
    }
    /// Whether one of some entries has been accessed; it is forgotten.
    fn clear_young(&mut self, entries: std::ops::Range<usize>) -> bool {
        let mut any = false;
        for w in &mut self.words[entries] {
            any |= Word(*w).young();
            *w = Word(*w).with_young(false).0;
        }
        any
    }
    /// Accessed bits of the item's mappings, counted and cleared.
    pub(crate) fn test_and_clear_young(&mut self, item: u32) -> u32 {
        let mut young = 0;
        if item & FRAME_ITEM != 0 {
            let frame = (item ^ FRAME_ITEM) as usize;
            for &p in &self.frames.maps[frame] {
                let w = Word(self.words[p as usize]);
                young += u32::from(w.young());
                self.words[p as usize] = w.with_young(false).0;
            }
        } else {
            // One entry maps a huge page: it counts once.
            young = u32::from(self.clear_young(self.entries(item)));
        }
        if !self.kept_young.is_empty() && self.kept_young.remove(&item) {
            young = young.max(1);
        }
        young
    }
    /// Clears the accessed bit of one entry (of a huge page: of all its parts); whether it was set.
    pub(crate) fn clear_entry_young(&mut self, page: u32) -> bool {
        self.clear_young(self.entries(page))
    }
    /// Clears the accessed bit of one entry (of a huge page: of all its parts), and
    /// keeps what it said for reclaim.
    pub(crate) fn make_old(&mut self, page: u32) {
        let item = self.item_of(page);
        let any = self.clear_young(self.entries(page));
        if any && !(self.contents.is_some() && item == ZERO_FRAME | FRAME_ITEM) {
            self.kept_young.insert(item);
        }
    }
    /// Whether an entry (of a huge page: one of its parts) has been accessed.
    pub(crate) fn is_young(&self, page: u32) -> bool {
        self.words[self.entries(page)].iter().any(|&w| Word(w).young())
    }
    /// Whether somebody has cleared an item's accessed bit and kept for reclaim that it was set.
    pub(crate) fn was_young(&self, item: u32) -> bool {
        !self.kept_young.is_empty() && self.kept_young.contains(&item)
    }
    /// A new page has no past.
    pub(crate) fn forget_young(&mut self, item: u32) {
        if !self.kept_young.is_empty() {
            self.kept_young.remove(&item);
        }
    }

    /// Turns a private page into a frame that `page` maps; the frame's number.
    /// The frame takes over the page's place in its list.
    pub(crate) fn share(&mut self, page: u32) -> Result<u32, MemoryError> {
        let w = Word(self.words[page as usize]);
        debug_assert!(w.resident() && !w.shared() && self.pages_of(page) == 1);
        let frame = self.new_frame()?;
        let i = frame as usize;
        let listed = self.leave_list(page);
        self.frames.words[i] = w.0;
        self.frames.orders[i] = 0;
        self.frames.file[i] = self.is_file(page);
        self.frames.maps[i] = vec![page];
        self.words[page as usize] =
            Word::sharing(frame, w.0 & crate::page::STATE, w.writable(), w.young()).0;
        self.orders[page as usize] = 0;
        if let Some(c) = &mut self.contents {
            // What files hold is nobody's question here.
            let content = if self.frames.file[i] { Content::OWN } else { c.pin_down(page) };
            c.set_frame(frame, content);
        }
        if !self.kept_young.is_empty() && self.kept_young.remove(&page) {
            self.kept_young.insert(frame | FRAME_ITEM);
        }
        // The frame enters its list anew: the kernel's page would stay where it
        // is, which an item that changes its number can't. Forks of a page that
        // is about to be reclaimed thus get one more round.
        if let Some(at) = listed {
            let node = self.node_of(w.zone());
            self.enter_list(frame | FRAME_ITEM, node, at);
        }
        Ok(frame)
    }
    /// One more entry maps the frame.
    pub(crate) fn map_frame(&mut self, frame: u32, page: u32, state: u32, write: bool) {
        self.words[page as usize] = Word::sharing(frame, state, write, false).0;
        // An entry is on no list: where it stands among the mappers takes its number's place,
        // so that one of very many is found at once.
        let maps = &mut self.frames.maps[frame as usize];
        self.orders[page as usize] = maps.len() as u32;
        maps.push(page);
    }
    /// Another entry maps the frame in the place of `from`.
    pub(crate) fn remap_frame(&mut self, frame: u32, from: u32, to: u32) {
        let at = self.orders[from as usize];
        debug_assert_eq!(self.frames.maps[frame as usize][at as usize], from);
        self.frames.maps[frame as usize][at as usize] = to;
        self.orders[from as usize] = 0;
        self.orders[to as usize] = at;
    }
    /// One entry less; true if it was the last, and the frame with its page is free.
    pub(crate) fn unmap_frame(&mut self, frame: u32, page: u32) -> bool {
        debug_assert!(!(self.contents.is_some() && frame == ZERO_FRAME));
        let maps = &mut self.frames.maps[frame as usize];
        let at = self.orders[page as usize];
        debug_assert_eq!(maps[at as usize], page, "an entry maps its frame");
        maps.swap_remove(at as usize);
        if let Some(&moved) = maps.get(at as usize) {
            self.orders[moved as usize] = at;
        }
        self.words[page as usize] = 0;
        self.orders[page as usize] = 0;
        if !self.frames.maps[frame as usize].is_empty() {
            return false;
        }
        let item = frame | FRAME_ITEM;
        self.leave_list(item);
        let zone = self.word(item).zone();
        self.zones[zone].free += 1;
        self.drop_frame(frame);
        true
    }
    /// The frame with one mapper becomes that entry's private page again. As in
    /// [`Memory::share`], it enters its list anew.
    pub(crate) fn unshare(&mut self, frame: u32) -> u32 {
        let i = frame as usize;
        debug_assert_eq!(self.frames.maps[i].len(), 1);
        let page = self.frames.maps[i][0];
        let entry = Word(self.words[page as usize]);
        let item = frame | FRAME_ITEM;
        let listed = self.leave_list(item);
        let w = self.word(item);
        self.words[page as usize] = w
            .with_state(entry.0 & crate::page::STATE)
            .with_write(entry.writable())
            .with_young(entry.young())
            .0;
        self.orders[page as usize] = 0;
        if self.kept_young.contains(&item) {
            self.kept_young.insert(page);
        }
        if let Some(c) = &mut self.contents {
            debug_assert!(c.merged(frame) == Merged::No);
            let content = c.of_frame(frame);
            c.set(page, content, false);
        }
        self.drop_frame(frame);
        if let Some(at) = listed {
            let node = self.node_of(w.zone());
            self.enter_list(page, node, at);
        }
        page
    }
    fn drop_frame(&mut self, frame: u32) {
        let i = frame as usize;
        self.frames.words[i] = 0;
        self.frames.maps[i].clear();
        self.frames.free.push(frame);
        if let Some(c) = &mut self.contents {
            c.set_frame(frame, Content::OWN);
        }
        self.forget_young(frame | FRAME_ITEM);
    }

    // ── Lists ──────────────────────────────────────────────────────────────────

    /// Whether generations stand in the place of active and inactive lists.
    #[inline]
    pub(crate) fn has_generations(&self) -> bool {
        self.gens.is_some()
    }
    /// Whether a page's word says that it is on an active list. Where there are generations
    /// none is: the kernel's flag is on pages off the lists only.
    #[inline]
    pub(crate) fn is_on_active(&self, w: Word) -> bool {
        self.gens.is_none() && w.on_list() == OnList::Active
    }
    fn gens(&self) -> &[ZoneGens] {
        self.gens.as_deref().expect("there are generations")
    }
    fn gens_mut(&mut self) -> &mut [ZoneGens] {
        self.gens.as_deref_mut().expect("there are generations")
    }
    fn list(&self, at: ListAt) -> &List {
        match at {
            ListAt::Lru(node, lru) => &self.nodes[node].lists[lru as usize],
            ListAt::Gen(zone, index, file) => &self.gens()[zone].lists[index][usize::from(file)],
        }
    }
    fn list_mut(&mut self, at: ListAt) -> &mut List {
        match at {
            ListAt::Lru(node, lru) => &mut self.nodes[node].lists[lru as usize],
            ListAt::Gen(zone, index, file) => {
                &mut self.gens_mut()[zone].lists[index][usize::from(file)]
            }
        }
    }
    /// Pages of a node by the generation that they belong to.
    pub(crate) fn sizes(&self, node: usize) -> Sizes {
        let mut all = Sizes::default();
        for &zone in &self.nodes[node].zones {
            for (sum, of) in all.iter_mut().zip(&self.gens()[zone].sizes) {
                sum[0] += of[0];
                sum[1] += of[1];
            }
        }
        all
    }
    /// Pages of a zone's generation at that place, and members of its list.
    pub(crate) fn of_generation(&self, zone: usize, index: usize, file: bool) -> (u64, u64) {
        let of = &self.gens()[zone];
        let list = &of.lists[index][usize::from(file)];
        (of.sizes[index][usize::from(file)], list.members)
    }
    /// Whether a node has nobody on the lists of the generation at that place.
    pub(crate) fn generation_is_empty(&self, node: usize, index: usize, file: bool) -> bool {
        let zones = &self.nodes[node].zones;
        zones.iter().all(|&z| self.of_generation(z, index, file).1 == 0)
    }
    /// The place of the generation on whose list an item is, whichever it belongs to.
    pub(crate) fn gen_list_of(&self, item: u32) -> usize {
        Ranks::gen_list(self.order(item))
    }

    /// The list that an item is on, of generations the one that it belongs to, and its flags.
    pub(crate) fn listed(&self, item: u32) -> Option<Listed> {
        let (w, order) = (self.word(item), self.order(item));
        let (file, referenced) = (self.is_file(item), Ranks::referenced(order));
        if self.gens.is_some() {
            let workingset = Ranks::workingset(order);
            let place = Place::Gen(w.gen_index(), file);
            return (order != 0).then_some(Listed { place, referenced, workingset });
        }
        let on = w.on_list();
        let lru = Lru::of(file, on == OnList::Active);
        (on != OnList::Isolated).then(|| Listed::with(lru, referenced))
    }
    /// Puts an isolated item at the head of a list of its node.
    pub(crate) fn enter_list(&mut self, item: u32, node: usize, at: Listed) {
        self.enter(item, node, at, false);
    }
    /// Puts an isolated item at the tail of a generation's list.
    pub(crate) fn enter_tail(&mut self, item: u32, at: Listed) {
        let node = self.node_of(self.word(item).zone());
        self.enter(item, node, at, true);
    }
    fn enter(&mut self, item: u32, node: usize, listed: Listed, tail: bool) {
        let (w, pages) = (self.word(item), self.pages_of(item));
        let (at, w) = match listed.place {
            Place::Lru(lru) => {
                let on = if lru.active() { OnList::Active } else { OnList::Inactive };
                (ListAt::Lru(node, lru), w.with_list(on))
            }
            Place::Gen(index, file) => {
                self.gens_mut()[w.zone()].sizes[index][usize::from(file)] += pages;
                (ListAt::Gen(w.zone(), index, file), w.with_gen(index))
            }
        };
        let ranks = Ranks::of(at);
        if self.list(at).exhausted(ranks) {
            self.renumber(at);
        }
        let list = self.list_mut(at);
        let number = if tail { list.enter_tail(item, pages, ranks) } else { list.enter(pages) };
        self.set_order(item, ranks.order(number, listed.referenced, listed.workingset));
        self.set_word(item, w);
    }
    /// Counts an access for the lists: the first sets the referenced flag, a further one of
    /// an inactive item makes it active. Whether it did that. Generations only note both.
    pub(crate) fn mark_accessed(&mut self, item: u32) -> bool {
        let Some(at) = self.listed(item) else { return false };
        match at.place {
            Place::Lru(lru) if at.referenced && !lru.active() => {
                self.leave_list(item);
                let node = self.node_of(self.word(item).zone());
                self.enter_list(item, node, Listed::with(Lru::of(lru.file(), true), false));
                true
            }
            Place::Lru(_) => {
                self.set_order(item, self.order(item) | 1);
                false
            }
            Place::Gen(..) => {
                let workingset = at.workingset || at.referenced;
                self.set_flags(item, Flags { referenced: true, workingset });
                false
            }
        }
    }
    /// Takes an item off its list, if it is on one; where it stood.
    pub(crate) fn leave_list(&mut self, item: u32) -> Option<Listed> {
        let listed = self.listed(item)?;
        let w = self.word(item);
        let pages = self.pages_of(item);
        match listed.place {
            Place::Lru(lru) => {
                let at = ListAt::Lru(self.node_of(w.zone()), lru);
                self.list_mut(at).leave(pages);
                self.set_word(item, w.with_list(OnList::Isolated));
            }
            Place::Gen(..) => {
                let at = ListAt::Gen(w.zone(), self.gen_list_of(item), self.is_file(item));
                self.take_off(item, at, pages);
            }
        }
        Some(listed)
    }
    /// Takes a member off a list of generations.
    fn take_off(&mut self, item: u32, at: ListAt, pages: u64) {
        let (w, file) = (self.word(item), self.is_file(item));
        self.list_mut(at).leave(pages);
        self.gens_mut()[w.zone()].sizes[w.gen_index()][usize::from(file)] -= pages;
        self.set_order(item, 0);
        self.set_word(item, w.with_list(OnList::Isolated));
    }
    /// Takes the oldest member off an active or inactive list; whether it carried the
    /// referenced flag.
    pub(crate) fn pop_tail(&mut self, node: usize, lru: Lru) -> Option<(u32, bool)> {
        let (item, listed) = self.pop(ListAt::Lru(node, lru))?;
        Some((item, listed.referenced))
    }
    /// Takes the oldest member off a list; where it stood.
    pub(crate) fn pop(&mut self, at: ListAt) -> Option<(u32, Listed)> {
        let ranks = Ranks::of(at);
        loop {
            let list = self.list_mut(at);
            if list.members == 0 {
                return None;
            }
            let (item, number) = match list.next_of_tail(ranks) {
                Some((item, number)) => (item, Some(number)),
                None => match self.next_ripe(at) {
                    Some(item) => (item, None),
                    None => {
                        self.harvest(at);
                        continue;
                    }
                },
            };
            // Still this list's, with the number that it ripened with? An item may
            // have become an entry of a frame, a part of a huge page, or free.
            let (w, order) = (self.word(item), self.order(item));
            let private = item & FRAME_ITEM == 0;
            if private && (w.shared() || !w.resident()) || !self.stands_on(item, at) {
                continue;
            }
            let mine = ranks.number(order);
            if number.map_or_else(|| !self.list(at).is_ripe(mine), |n| n != mine) {
                continue;
            }
            let listed = self.listed(item).expect("it stands on a list");
            let pages = self.pages_of(item);
            match at {
                ListAt::Lru(..) => {
                    self.list_mut(at).leave(pages);
                    self.set_word(item, w.with_list(OnList::Isolated));
                }
                ListAt::Gen(..) => self.take_off(item, at, pages),
            }
            return Some((item, listed));
        }
    }
    /// Whether an item in memory is on that list.
    fn stands_on(&self, item: u32, at: ListAt) -> bool {
        let w = self.word(item);
        match at {
            ListAt::Lru(node, lru) => {
                let on = w.on_list();
                on != OnList::Isolated
                    && (on == OnList::Active) == lru.active()
                    && self.node_of(w.zone()) == node
                    && self.is_file(item) == lru.file()
            }
            ListAt::Gen(zone, index, file) => {
                let order = self.order(item);
                order != 0
                    && Ranks::gen_list(order) == index
                    && w.zone() == zone
                    && self.is_file(item) == file
            }
        }
    }
    fn next_ripe(&mut self, at: ListAt) -> Option<u32> {
        let (words, orders) = (&self.words[..], &self.orders[..]);
        let fetch = |later: u32| {
            if later & FRAME_ITEM == 0 {
                prefetch(words, later as usize);
                prefetch(orders, later as usize);
            }
        };
        // As in `list_mut`, with the columns beside it.
        let list = match at {
            ListAt::Lru(node, lru) => &mut self.nodes[node].lists[lru as usize],
            ListAt::Gen(zone, index, file) => {
                let gens = self.gens.as_deref_mut().expect("there are generations");
                &mut gens[zone].lists[index][usize::from(file)]
            }
        };
        list.next_ripe(fetch)
    }

    /// Finds the members of the list's next window: one sweep over the columns.
    fn harvest(&mut self, at: ListAt) {
        let ranks = Ranks::of(at);
        let wish = (self.list(at).members / 4).clamp(WINDOW, 1 << 22);
        let mut list = std::mem::take(self.list_mut(at));
        let (from, slots) = list.open(wish);
        let window = slots.len() as u32;
        let mut found = false;
        self.sweep(at, from, window, |order, item| {
            slots[(ranks.number(order) - from) as usize] = item;
            found = true;
        });
        if !found {
            // Everybody there has left: go on where the next member is.
            let mut next = None;
            self.sweep(at, from, ranks.numbers - from, |order, _| {
                let number = ranks.number(order);
                next = Some(next.map_or(number, |n: u32| n.min(number)));
            });
            list.go_on_at(next.expect("a list with members has a member above its base"));
        }
        *self.list_mut(at) = list;
    }
    /// Calls `take` with order and item of every member whose number lies in
    /// `base … base + window`.
    fn sweep(&mut self, at: ListAt, base: u32, window: u32, mut take: impl FnMut(u32, u32)) {
        self.sweeps += 1;
        let (base, window) = Ranks::of(at).range(base, window);
        let (mask, list, file) = match at {
            ListAt::Lru(_, lru) => {
                let list = if lru.active() { LIST_ACTIVE } else { LIST_INACTIVE };
                (LIST | ZONE | SHARED, list, lru.file())
            }
            // The order says which list it is, and that it is on one.
            ListAt::Gen(_, _, file) => (ZONE | SHARED, 0, file),
        };
        let zones = match at {
            ListAt::Lru(node, _) => &self.nodes[node].zones[..],
            ListAt::Gen(ref zone, ..) => std::slice::from_ref(zone),
        };
        for &zone in zones {
            let pattern = list | (zone as u32) << ZONE_SHIFT;
            let mut members = Members::new(mask, pattern, base, window);
            let (words, orders) = (&self.words[..], &self.orders[..]);
            for (b, block) in self.blocks.iter().enumerate() {
                if block.space == 0 || block.file != file {
                    continue;
                }
                let at = b * BLOCK as usize;
                let end = at + BLOCK as usize;
                members.find(&words[at..end], &orders[at..end]);
                for &i in members.found() {
                    let i = at + usize::from(i);
                    take(orders[i], i as u32);
                }
            }
            for (f, &w) in self.frames.words.iter().enumerate() {
                let order = self.frames.orders[f];
                let mine = self.frames.file[f] == file && !self.frames.maps[f].is_empty();
                if mine && w & mask == pattern && order.wrapping_sub(base) < window {
                    take(order, f as u32 | FRAME_ITEM);
                }
            }
        }
    }
    /// All members of a list in their order, the oldest first, each with what the column holds.
    fn members(&mut self, at: ListAt) -> Vec<(u32, u32)> {
        let mut all = Vec::new();
        // Where a list has a tail, number 0 is nobody's: all 0 is who is on no list.
        let ranks = Ranks::of(at);
        let base = ranks.first.min(1);
        self.sweep(at, base, ranks.numbers - base, |order, item| {
            all.push(u64::from(order) << 32 | u64::from(item));
        });
        all.sort_unstable();
        all.into_iter().map(|m| (m as u32, (m >> 32) as u32)).collect()
    }
    /// Gives the members of a list the first numbers, in their order.
    fn renumber(&mut self, at: ListAt) {
        let ranks = Ranks::of(at);
        let all = self.members(at);
        for (i, &(item, order)) in all.iter().enumerate() {
            let number = ranks.first + i as u32;
            let (referenced, workingset) = (Ranks::referenced(order), Ranks::workingset(order));
            self.set_order(item, ranks.order(number, referenced, workingset));
        }
        self.list_mut(at).renumbered(ranks.first, all.len() as u32);
    }

    // ── Generations ────────────────────────────────────────────────────────────

    /// Flags of an item on a list of generations.
    pub(crate) fn flags(&self, item: u32) -> Flags {
        let order = self.order(item);
        Flags { referenced: Ranks::referenced(order), workingset: Ranks::workingset(order) }
    }
    /// The same, set.
    pub(crate) fn set_flags(&mut self, item: u32, flags: Flags) {
        let order = self.order(item);
        debug_assert!(order != 0);
        let ranks = Ranks::of(ListAt::Gen(0, Ranks::gen_list(order), false));
        self.set_order(item, ranks.with(order, flags.referenced, flags.workingset));
    }
    /// An item on a list belongs to another generation from now on; it stays where it is.
    pub(crate) fn lift(&mut self, item: u32, index: usize, flags: Flags) {
        let (w, n) = (self.word(item), self.pages_of(item));
        let file = usize::from(self.is_file(item));
        if w.gen_index() != index {
            let sizes = &mut self.gens_mut()[w.zone()].sizes;
            sizes[w.gen_index()][file] -= n;
            sizes[index][file] += n;
            self.set_word(item, w.with_gen(index));
        }
        self.set_flags(item, flags);
    }
    /// Fetches the words around a private page, as many as a look around it reads at most.
    pub(crate) fn fetch_around(&self, item: u32) {
        const AROUND: u32 = 64;
        const LINE: u32 = 16;
        if item & FRAME_ITEM == 0 {
            let first = item & !(AROUND - 1);
            for line in (0..AROUND).step_by(LINE as usize) {
                prefetch(&self.words, (first + line) as usize);
            }
        }
    }
    /// What a walk makes of the used private pages of an anonymous stretch: their accessed bits
    /// are cleared, and who is on a list is lifted to a generation's place or noted. As
    /// [`Memory::lift`] and [`Memory::set_flags`] page by page, in one go over the columns.
    pub(crate) fn lift_stretch(&mut self, pages: std::ops::Range<u32>, by: &Lifts) -> Lifted {
        const GENS: usize = 4;
        let pages = pages.start as usize..pages.end as usize;
        let first = pages.start as u32;
        let (words, orders) = (&mut self.words[pages.clone()], &mut self.orders[pages]);
        let mut done = Lifted::default();
        let mut moved = [0u64; ZONES_MAX * GENS];
        let rows = words.chunks_mut(ROW).zip(orders.chunks_mut(ROW));
        for (row, (words, orders)) in rows.enumerate() {
            let mut used = 0u32;
            for (i, w) in words.iter().enumerate() {
                used |= u32::from(w & YOUNG != 0) << i;
            }
            done.any |= used != 0;
            while used != 0 {
                let i = used.trailing_zeros() as usize;
                used &= used - 1;
                let w = Word(words[i]);
                if !w.resident() {
                    continue;
                }
                let page = first + (row * ROW + i) as u32;
                if w.shared() {
                    done.others.push(page);
                    continue;
                }
                let order = orders[i];
                if by.zones >> w.zone() & 1 == 0 || by.listed_only && order == 0 {
                    continue;
                }
                done.young += 1;
                let mut now = w.with_young(false);
                if order == 0 {
                    done.unlisted.push(page);
                } else {
                    let (lifts, flags) = by.used[(order & FLAGS) as usize];
                    if lifts {
                        moved[w.zone() * GENS + w.gen_index()] += 1;
                        now = now.with_gen(by.to);
                    }
                    orders[i] = order & !FLAGS | flags;
                }
                words[i] = now.0;
            }
        }
        for (at, n) in moved.into_iter().enumerate().filter(|&(_, n)| n > 0) {
            let sizes = &mut self.gens_mut()[at / GENS].sizes;
            sizes[at % GENS][0] -= n;
            sizes[by.to][0] += n;
        }
        done
    }
    /// Generations from now on. Everybody who was on a list is on none, and has to be put on
    /// one: node, list, flag, the oldest of each list first.
    pub(crate) fn begin_generations(
        &mut self,
    ) -> Result<Vec<(usize, Lru, u32, bool)>, MemoryError> {
        if let Some(z) = self.zones.iter().find(|z| z.managed > GEN_PAGES_MAX) {
            return Err(MemoryError::Generations(z.managed));
        }
        let mut all = Vec::new();
        for node in 0..self.nodes.len() {
            for lru in Lru::ALL {
                let members = self.members(ListAt::Lru(node, lru));
                all.extend(members.into_iter().map(|(i, o)| (node, lru, i, Ranks::referenced(o))));
                self.nodes[node].lists[lru as usize] = List::default();
            }
        }
        // Who is on no list has no number: that is how the lists of generations know it.
        for page in 0..self.blocks.len() * BLOCK as usize {
            let w = Word(self.words[page]);
            if !w.resident() || !w.shared() {
                self.orders[page] = 0;
            }
        }
        self.frames.orders.fill(0);
        self.gens = Some((0..self.zones.len()).map(ZoneGens::new).collect());
        Ok(all)
    }
    /// Active and inactive lists from now on. Everybody who was in a generation is on no list,
    /// and has to be put on one: node, place of the list, the oldest of each list first.
    pub(crate) fn end_generations(&mut self) -> Vec<(usize, Listed, u32)> {
        let mut all = Vec::new();
        for node in 0..self.nodes.len() {
            let zones = self.nodes[node].zones.clone();
            for index in 0..MAX_GENS {
                for file in [false, true] {
                    // Lowest first, as the kernel counts them.
                    for &zone in zones.iter().rev() {
                        let members = self.members(ListAt::Gen(zone, index, file));
                        let listed = |item| self.listed(item).expect("a member");
                        all.extend(members.into_iter().map(|(i, _)| (node, listed(i), i)));
                    }
                }
            }
        }
        for &(_, _, item) in &all {
            self.set_word(item, self.word(item).with_list(OnList::Isolated));
        }
        self.gens = None;
        all
    }
    /// Lets a test begin near the end of a list's numbers.
    #[cfg(test)]
    pub(crate) fn skip_numbers(&mut self, node: usize, lru: Lru, to: u32) {
        let list = &mut self.nodes[node].lists[lru as usize];
        assert_eq!(list.members, 0);
        list.head = to;
        list.base = to;
    }

    /// Bytes of the host that hold per-page state in use, and all other bytes.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let each = if self.contents.is_some() { 16 } else { 8 };
        let columns = self.blocks.len() as u64 * u64::from(BLOCK) * each;
        let frames = self.frames.words.capacity() * (4 + 4 + 1 + 24)
            + self.contents.as_ref().map_or(0, |c| c.frame_bytes())
            + self.frames.maps.iter().map(|m| m.capacity() * 4).sum::<usize>();
        let gens = self.gens.iter().flatten().flat_map(|z| z.lists.as_flattened());
        let lists = self.nodes.iter().flat_map(|n| &n.lists).chain(gens);
        let ripe: usize = lists.map(List::bytes).sum();
        let other = frames + ripe + self.blocks.capacity() * size_of::<Block>();
        (columns, other as u64)
    }

    /// The items in a zone that reach into `skip .. skip + pages` of its used pages,
    /// counted in the order of the columns, frames last.
    pub(crate) fn items_in(&self, zone: usize, skip: u64, pages: u64) -> Vec<u32> {
        let mut found = Vec::new();
        let mut at = 0;
        let mut see = |item: u32, n: u64| {
            if at + n > skip && at < skip + pages {
                found.push(item);
            }
            at += n;
            at < skip + pages
        };
        for (b, block) in self.blocks.iter().enumerate().filter(|(_, b)| b.space != 0) {
            let first = b as u32 * BLOCK;
            for (i, &w) in self.block_words(b as u32).iter().enumerate() {
                let w = Word(w);
                if !w.resident() || w.shared() || w.zone() != zone {
                    continue;
                }
                let n = if block.huge { HUGE_PAGES } else { 1 };
                if !see(first + i as u32, n) {
                    return found;
                }
                if block.huge {
                    break;
                }
            }
        }
        for (f, maps) in self.frames.maps.iter().enumerate().filter(|(_, m)| !m.is_empty()) {
            let here = Word(self.frames.words[f]).zone() == zone;
            if here && !maps.is_empty() && !see(f as u32 | FRAME_ITEM, 1) {
                return found;
            }
        }
        found
    }
    /// Whether an item that was in a zone is there still, and may be moved.
    pub(crate) fn is_in(&self, item: u32, zone: usize) -> bool {
        let there = if item & FRAME_ITEM != 0 {
            self.frames.maps.get((item ^ FRAME_ITEM) as usize).is_some_and(|m| !m.is_empty())
        } else {
            self.item_of(item) == item && Word(self.words[item as usize]).resident()
        };
        there && self.word(item).zone() == zone
    }

    /// Calls `see` for every entry in use, with its block.
    pub(crate) fn each_entry(&self, mut see: impl FnMut(u32, Word, Block)) {
        for (b, block) in self.blocks.iter().enumerate().filter(|(_, b)| b.space != 0) {
            let at = b as u32 * BLOCK;
            for (i, &w) in self.block_words(b as u32).iter().enumerate() {
                if Word(w).state() != State::None {
                    see(at + i as u32, Word(w), *block);
                }
            }
        }
    }
    /// Calls `see` for every shared frame in use, with the number of its mappers.
    pub(crate) fn each_frame(&self, mut see: impl FnMut(u32, Word, usize)) {
        for (f, maps) in self.frames.maps.iter().enumerate().filter(|(_, m)| !m.is_empty()) {
            see(f as u32, Word(self.frames.words[f]), maps.len());
        }
    }
}
