//! The table of contents: what has been seen, how often, in how many frames.
//!
//! ```text
//! slots   ┌────┬─────┬────┬─────┬────┐   4 bytes each, between 53 % and 80 % full
//!         │    │ t,2 │    │ t,0 │ .. │   t: bits of the hash that the number leaves room for
//!         └────┴──┬──┴────┴──┬──┴────┘
//! entries ┌───────▼──────────▼───────┐   24 bytes each, in chunks that never move
//!         │ key, mappings, frames    │
//!         └──────────────────────────┘
//! ```
//!
//! A page of a new content takes 24 bytes and 5 to 7.5 bytes of slots. Growing
//! drops the old slots before it makes new ones, since entries hold all that is
//! needed to fill them: the peak is 31.5 bytes a content.
//!
//! The lowest ten bits of a key are the node, so that a content on two nodes is
//! two entries, as it is two stable nodes in the kernel's trees per node; both
//! begin their search at the same slot, and a walk from there finds all of them.

/// Bits of a key that say the node.
const NODE_BITS: u32 = 10;
/// Where they are.
const NODE_MASK: u128 = (1 << NODE_BITS) - 1;

/// A content, by 118 bits of its hash, on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u128);

impl Key {
    /// The content of this hash on this node; nodes are below 1024.
    pub(super) fn new(hash: u128, node: u16) -> Self {
        Self(hash & !NODE_MASK | u128::from(node) & NODE_MASK)
    }
    /// The node.
    pub(super) fn node(self) -> u16 {
        (self.0 & NODE_MASK) as u16
    }
    /// The content, on whichever node.
    pub(super) fn content(self) -> u128 {
        self.0 & !NODE_MASK
    }
    fn high(self) -> u64 {
        (self.0 >> 64) as u64
    }
    /// 32 bits that neither the slot nor the node uses.
    fn tag(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// What is known about a content on a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    key: [u64; 2],
    /// Page-table entries that show it.
    pub(super) mappings: u32,
    /// Frames in the low 31 bits, then the flag.
    frames: u32,
}

/// One of the frames is a KSM page already.
const MERGED: u32 = 1 << 31;

impl Entry {
    /// The content and its node.
    pub(super) fn key(&self) -> Key {
        Key(u128::from(self.key[0]) << 64 | u128::from(self.key[1]))
    }
    /// Frames that hold it, never more than mappings.
    pub(super) fn frames(&self) -> u32 {
        (self.frames & !MERGED).min(self.mappings)
    }
    /// Whether one of them is a KSM page.
    pub(super) fn merged(&self) -> bool {
        self.frames & MERGED != 0
    }
    /// One more mapping.
    pub(super) fn count(&mut self, frame: Frame, merged: bool) {
        self.mappings = self.mappings.saturating_add(1);
        if frame == Frame::New && self.frames & !MERGED != !MERGED {
            self.frames += 1;
        }
        if merged {
            self.frames |= MERGED;
        }
    }
    /// One mapping less; `own` says that its frame was nobody else's.
    pub(super) fn uncount(&mut self, own: bool) {
        self.mappings = self.mappings.saturating_sub(1);
        if own && self.frames & !MERGED > 0 {
            self.frames -= 1;
        }
    }
}

/// What is known about the frame of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Not counted before.
    New,
    /// Counted already: another mapping of the same frame.
    Seen,
}

/// More contents than this are refused: 8 TiB without a repetition.
pub(super) const ENTRIES_MAX: usize = (1 << 31) - 16;
/// Entries that are made room for at once.
const CHUNK: usize = 4096;
const SLOTS_MIN: usize = 8192;

/// Contents seen so far; see the module's documentation.
pub(super) struct Table {
    chunks: Vec<Vec<Entry>>,
    len: usize,
    slots: Vec<u32>,
    /// Bits of a slot that hold the entry's number plus one.
    number_bits: u32,
    peak: usize,
}

impl Table {
    pub(super) fn new() -> Self {
        let mut table =
            Self { chunks: Vec::new(), len: 0, slots: Vec::new(), number_bits: 0, peak: 0 };
        table.set_slots(SLOTS_MIN);
        table
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Most bytes that it ever had at a time.
    pub(super) fn peak_bytes(&self) -> usize {
        self.peak
    }

    pub(super) fn entry(&self, id: u32) -> &Entry {
        &self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }

    pub(super) fn entry_mut(&mut self, id: u32) -> &mut Entry {
        &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }

    /// All entries, in the order in which they came.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.chunks.iter().flatten()
    }

    /// Asks for an entry.
    pub(super) fn prefetch(&self, id: u32) {
        prefetch(&raw const self.chunks[id as usize / CHUNK][id as usize % CHUNK]);
    }

    /// Asks for the cache lines that a search will begin with.
    pub(super) fn prefetch_slot(&self, key: Key) {
        prefetch(&raw const self.slots[self.first_slot(key)]);
    }

    /// Asks for the entry that a search will most likely end at.
    pub(super) fn prefetch_entry(&self, key: Key) {
        let slot = self.slots[self.first_slot(key)];
        if slot != 0 {
            self.prefetch((slot & self.number_mask()) - 1);
        }
    }

    /// The number of a content, which is new if need be. `None` beyond
    /// [`ENTRIES_MAX`].
    pub(super) fn find_or_insert(&mut self, key: Key) -> Option<u32> {
        let (found, at) = self.search(key);
        if found.is_some() || self.len >= ENTRIES_MAX {
            return found;
        }
        let id = self.len as u32;
        self.push(Entry { key: [(key.0 >> 64) as u64, key.0 as u64], mappings: 0, frames: 0 });
        self.slots[at] = self.tag_of(key) | (id + 1);
        // Four fifths: beyond, searches for what isn't there become long.
        if self.len * 5 > self.slots.len() * 4 {
            self.grow();
        }
        Some(id)
    }

    /// The number of a content that is there.
    pub(super) fn find(&self, key: Key) -> Option<u32> {
        self.search(key).0
    }

    /// The number of a content if it is there, and the slot where looking for it ended.
    fn search(&self, key: Key) -> (Option<u32>, usize) {
        let mut found = None;
        let at = self.probe(key, |id, there| {
            found = (there == key).then_some(id);
            found.is_some()
        });
        (found, at)
    }

    /// Numbers of a content's entries on all nodes.
    pub(super) fn on_all_nodes(&self, key: Key, mut each: impl FnMut(u32)) {
        self.probe(key, |id, there| {
            if there.content() == key.content() {
                each(id);
            }
            false
        });
    }

    /// Walks over entries with the key's tag, until `each` says that it is enough; the slot
    /// where that was, or the free one behind them.
    fn probe(&self, key: Key, mut each: impl FnMut(u32, Key) -> bool) -> usize {
        let mut at = self.first_slot(key);
        let mask = self.number_mask();
        let tag = self.tag_of(key);
        while self.slots[at] != 0 {
            let slot = self.slots[at];
            if slot & !mask == tag {
                let id = (slot & mask) - 1;
                if each(id, self.entry(id).key()) {
                    break;
                }
            }
            at = self.next(at);
        }
        at
    }

    fn first_slot(&self, key: Key) -> usize {
        ((u128::from(key.high()) * self.slots.len() as u128) >> 64) as usize
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    fn number_mask(&self) -> u32 {
        // Never all 32 bits: the number of entries is below 2^31.
        (1 << self.number_bits) - 1
    }

    fn tag_of(&self, key: Key) -> u32 {
        key.tag() & !self.number_mask()
    }

    fn push(&mut self, entry: Entry) {
        if self.len % CHUNK == 0 {
            self.chunks.push(Vec::with_capacity(CHUNK));
            self.note_peak();
        }
        if let Some(last) = self.chunks.last_mut() {
            last.push(entry);
        }
        self.len += 1;
    }

    fn grow(&mut self) {
        let larger = self.slots.len() + self.slots.len() / 2;
        // The old ones go first: both at once would be the peak.
        self.slots = Vec::new();
        self.set_slots(larger);
        // In groups, so that their cache lines are waited for together.
        const GROUP: usize = 32;
        for first in (0..self.len).step_by(GROUP) {
            let ids = first as u32..self.len.min(first + GROUP) as u32;
            let mut begins = [0; GROUP];
            for (id, begin) in ids.clone().zip(&mut begins) {
                *begin = self.first_slot(self.entry(id).key());
                prefetch(&raw const self.slots[*begin]);
            }
            for (id, mut at) in ids.zip(begins) {
                while self.slots[at] != 0 {
                    at = self.next(at);
                }
                self.slots[at] = self.tag_of(self.entry(id).key()) | (id + 1);
            }
        }
    }

    fn set_slots(&mut self, n: usize) {
        self.slots = vec![0; n];
        self.number_bits = usize::BITS - n.leading_zeros();
        self.number_bits = self.number_bits.min(31);
        self.note_peak();
    }

    fn note_peak(&mut self) {
        let now = self.chunks.len() * CHUNK * size_of::<Entry>()
            + self.chunks.capacity() * size_of::<Vec<Entry>>()
            + self.slots.capacity() * size_of::<u32>();
        self.peak = self.peak.max(now);
    }
}

/// Asks for a cache line; does nothing where there is no such instruction.
fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address has no effect that a program can see.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Which frames have been counted, a bit each.
///
/// 32 Ki frames (128 MiB) share a chunk of 4 KiB, made when the first of them is
/// met: at most 32 KiB a GiB of memory in use.
#[derive(Default)]
pub(super) struct Frames {
    chunks: Vec<Option<Box<[u64; 512]>>>,
}

/// Frame numbers from here on (2 PiB) are no memory's: each is taken as new.
const FRAME_MAX: u64 = 1 << 39;

impl Frames {
    /// Asks for the cache line that marking a frame will need.
    pub(super) fn prefetch(&self, frame: u64) {
        // Of a number beyond all memory any chunk will do: it is only asked for.
        let chunk = self.chunks.get((frame >> 15) as usize);
        if let Some(words) = chunk.and_then(|chunk| chunk.as_ref()) {
            prefetch(&raw const words[(frame & 0x7fff) as usize / 64]);
        }
    }

    /// Marks a frame.
    pub(super) fn mark(&mut self, frame: u64) -> Frame {
        if frame >= FRAME_MAX {
            return Frame::New;
        }
        let (chunk, bit) = ((frame >> 15) as usize, frame & 0x7fff);
        if chunk >= self.chunks.len() {
            self.chunks.resize(chunk + 1, None);
        }
        let words = self.chunks[chunk].get_or_insert_with(|| Box::new([0; 512]));
        let word = &mut words[(bit / 64) as usize];
        let seen = *word & 1 << (bit % 64) != 0;
        *word |= 1 << (bit % 64);
        if seen { Frame::Seen } else { Frame::New }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::splitmix::SplitMix;
    use std::collections::BTreeMap;

    /// A hash that is as good as random.
    fn hash(n: u64) -> u128 {
        let mut stream = SplitMix::new(n);
        u128::from(stream.next()) << 64 | u128::from(stream.next())
    }

    #[test]
    fn contents_are_found_again_and_counted_like_in_an_ordered_map() {
        let mut table = Table::new();
        let mut model: BTreeMap<Key, (u32, u32)> = BTreeMap::new();
        let mut frames = Frames::default();
        for i in 0..200_000u64 {
            // Contents repeat, nodes and frames too.
            let key = Key::new(hash(i * i % 50_021), (i % 3) as u16);
            let frame = frames.mark(i * 7919 % 150_000);
            let id = table.find_or_insert(key).unwrap();
            table.entry_mut(id).count(frame, false);
            let there = model.entry(key).or_default();
            there.0 += 1;
            there.1 += u32::from(frame == Frame::New);
        }
        assert_eq!(table.len(), model.len());
        for (key, (mappings, frames)) in &model {
            let id = table.find(*key).unwrap();
            let entry = table.entry(id);
            assert_eq!((entry.key(), entry.mappings, entry.frames()), (*key, *mappings, *frames));
            let mut nodes = Vec::new();
            table.on_all_nodes(*key, |id| nodes.push(table.entry(id).key().node()));
            nodes.sort_unstable();
            let expected: Vec<u16> =
                (0..3).filter(|n| model.contains_key(&Key::new(key.content(), *n))).collect();
            assert_eq!(nodes, expected);
        }
        assert_eq!(table.find(Key::new(hash(1 << 60), 0)), None);
    }

    #[test]
    fn at_most_forty_bytes_a_content_at_the_peak_of_every_growth() {
        let mut table = Table::new();
        for n in 1..=3_000_000u64 {
            table.find_or_insert(Key::new(hash(n), 0)).unwrap();
            // What is there from the start is shared by few in a small table.
            if n >= 10_000 {
                let peak = table.peak_bytes() as u64;
                assert!(peak <= 40 * n, "{peak} bytes for {n} contents");
            }
        }
        let per_content = table.peak_bytes() as f64 / 3e6;
        assert!(per_content < 32.0, "{per_content}");
    }

    #[test]
    fn frames_are_marked_once() {
        let mut frames = Frames::default();
        assert_eq!(frames.mark(5), Frame::New);
        assert_eq!(frames.mark(5 + (1 << 15)), Frame::New);
        assert_eq!(frames.mark(5), Frame::Seen);
        assert_eq!(frames.mark(u64::MAX), Frame::New);
    }

    #[test]
    fn frames_never_exceed_mappings() {
        let mut table = Table::new();
        let id = table.find_or_insert(Key::new(1, 0)).unwrap();
        let e = table.entry_mut(id);
        for frame in [Frame::New, Frame::Seen, Frame::New, Frame::Seen] {
            e.count(frame, false);
        }
        assert_eq!((e.mappings, e.frames(), e.merged()), (4, 2, false));
        e.count(Frame::New, true);
        assert_eq!((e.mappings, e.frames(), e.merged()), (5, 3, true));
        for _ in 0..4 {
            e.uncount(false);
        }
        assert_eq!((e.mappings, e.frames()), (1, 1));
        e.uncount(true);
        e.uncount(true);
        assert_eq!((e.mappings, e.frames()), (0, 0));
    }
}
