//! Sets of CPUs, each stored once: as words from the first to the last that is not 0, and as a list.

use std::collections::BTreeMap;

/// A set of CPUs: a bitmap without its empty ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<'a> {
    first: usize,
    words: &'a [u64],
}

impl<'a> Span<'a> {
    /// The set of a whole bitmap.
    pub fn of(bitmap: &'a [u64]) -> Self {
        let end = bitmap.iter().rposition(|&w| w != 0).map_or(0, |last| last + 1);
        let first = bitmap.iter().position(|&w| w != 0).unwrap_or(0);
        Self { first, words: &bitmap[first..end.max(first)] }
    }
    /// Index of the first word of [`Self::words`] in a whole bitmap.
    #[inline]
    pub fn first_word(self) -> usize {
        self.first
    }
    /// The words that are not empty, and those between them.
    #[inline]
    pub fn words(self) -> &'a [u64] {
        self.words
    }
    /// Whether a CPU is in it.
    #[inline]
    pub fn contains(self, cpu: usize) -> bool {
        let word = (cpu / 64).wrapping_sub(self.first);
        self.words.get(word).is_some_and(|w| w >> (cpu % 64) & 1 != 0)
    }
    /// Its CPUs, rising.
    pub fn iter(self) -> impl Iterator<Item = usize> + 'a {
        self.words.iter().enumerate().flat_map(move |(i, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                left &= left.wrapping_sub(1);
                (bit < 64).then_some((self.first + i) * 64 + bit)
            })
        })
    }
    /// How many CPUs it has.
    pub fn weight(self) -> u32 {
        self.words.iter().map(|w| w.count_ones()).sum()
    }
    /// Whether a whole bitmap has a CPU of it.
    #[inline]
    pub fn intersects(self, bitmap: &[u64]) -> bool {
        let Some(rest) = bitmap.get(self.first..) else { return false };
        self.words.iter().zip(rest).any(|(a, b)| a & b != 0)
    }
    /// As a bitmap of `words` words, which are enough.
    pub fn to_bitmap(self, words: usize) -> Vec<u64> {
        let mut bitmap = vec![0; words];
        bitmap[self.first..self.first + self.words.len()].copy_from_slice(self.words);
        bitmap
    }
}

/// Number of a stored set: equal sets have equal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SpanId(u32);

#[derive(Clone, Copy, Debug)]
struct Entry {
    first: u32,
    words_at: u32,
    nr_words: u32,
    members_at: u32,
    nr_members: u32,
}

/// All stored sets.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans {
    entries: Vec<Entry>,
    words: Vec<u64>,
    members: Vec<u16>,
}

impl Spans {
    #[inline]
    pub(super) fn get(&self, id: SpanId) -> Span<'_> {
        let e = self.entries[id.0 as usize];
        Span {
            first: e.first as usize,
            words: &self.words[e.words_at as usize..][..e.nr_words as usize],
        }
    }
    #[inline]
    pub(super) fn members(&self, id: SpanId) -> &[u16] {
        let e = self.entries[id.0 as usize];
        &self.members[e.members_at as usize..][..e.nr_members as usize]
    }
    /// Where the list of a set stands: for [`Self::members_at`].
    pub(super) fn place(&self, id: SpanId) -> (u32, u32) {
        let e = self.entries[id.0 as usize];
        (e.members_at, e.members_at + e.nr_members)
    }
    #[inline]
    pub(super) fn members_at(&self, (from, to): (u32, u32)) -> &[u16] {
        &self.members[from as usize..to as usize]
    }
    pub(super) fn weight(&self, id: SpanId) -> u32 {
        self.entries[id.0 as usize].nr_members
    }
    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.words.capacity() * size_of::<u64>()
            + self.members.capacity() * size_of::<u16>()
    }
}

/// Collects sets.
#[derive(Debug, Default)]
pub(super) struct Interner {
    spans: Spans,
    known: BTreeMap<(usize, Vec<u64>), SpanId>,
}

impl Interner {
    pub(super) fn intern(&mut self, bitmap: &[u64]) -> SpanId {
        let span = Span::of(bitmap);
        let key = (span.first, span.words.to_vec());
        if let Some(&id) = self.known.get(&key) {
            return id;
        }
        let s = &mut self.spans;
        let (words_at, members_at) = (s.words.len(), s.members.len());
        s.words.extend_from_slice(span.words);
        s.members.extend(span.iter().map(|cpu| cpu as u16));
        s.entries.push(Entry {
            first: span.first as u32,
            words_at: words_at as u32,
            nr_words: span.words.len() as u32,
            members_at: members_at as u32,
            nr_members: (s.members.len() - members_at) as u32,
        });
        let id = SpanId(s.entries.len() as u32 - 1);
        self.known.insert(key, id);
        id
    }
    pub(super) fn spans(&self) -> &Spans {
        &self.spans
    }
    pub(super) fn finish(mut self) -> Spans {
        self.spans.entries.shrink_to_fit();
        self.spans.words.shrink_to_fit();
        self.spans.members.shrink_to_fit();
        self.spans
    }
}
