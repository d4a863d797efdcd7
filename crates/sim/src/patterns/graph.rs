//! Breadth-first search of a Kronecker graph: the memory that it goes to, found by searching.
//!
//! ```text
//! the mapping: │ offsets │ neighbours, list by list │ parents, frontiers of thread 0 │ of thread 1 │ …
//! ```
//!
//! The graph is never stored. A vertex's degree and its i-th neighbour follow from hashes, so a
//! search keeps a bit per vertex and no more. Source: specs/workloads.md#search.

use crate::hot::OP_WRITE;
use crate::load::LINE;
use crate::random::Stream;
use homenode_core::splitmix::{SplitMix, mix};
use homenode_core::units::PAGE_SIZE;
use std::cell::RefCell;
use std::sync::Arc;

/// Bytes of an offset, of a neighbour, of a parent.
const ENTRY: u64 = 8;
/// How many lines a task's cache holds.
const LINES: u64 = 4096;
/// Vertices of which the lists' beginning is kept.
const BLOCK: u64 = 8;
/// Vertices whose bits fill a word.
const WORD: u64 = 64;

/// A Kronecker graph of `1 << bits` vertices.
#[derive(Debug)]
struct Graph {
    bits: u32,
    /// Neighbours of all vertices.
    edges: u64,
    /// By ones in a vertex's unshuffled number: its mean degree in 2^-16.
    degrees: Vec<u64>,
    /// Where the lists of each block of vertices begin.
    begins: Vec<u64>,
}

impl Graph {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

    fn new(bits: u32, degree: u32) -> Self {
        let mean = |ones: u32| {
            let zeros = (0..bits - ones).fold(f64::from(degree), |m, _| m * 2.0 * 0.76);
            (0..ones).fold(zeros, |m, _| m * 2.0 * 0.24)
        };
        let degrees = (0..=bits).map(|ones| (mean(ones) * f64::from(1u32 << 16)) as u64).collect();
        let mut it = Self { bits, edges: 0, degrees, begins: Vec::new() };
        let vertices = 1u64 << bits;
        let blocks = vertices.div_ceil(BLOCK) as usize;
        let mut begins = Vec::with_capacity(blocks);
        for vertex in 0..vertices {
            if vertex % BLOCK == 0 {
                begins.push(it.edges);
            }
            it.edges += it.degree(vertex);
        }
        it.begins = begins;
        it
    }
    fn mask(&self) -> u64 {
        (1 << self.bits) - 1
    }
    /// A vertex's number once vertices are shuffled, so that neighbouring numbers say nothing.
    fn shuffled(&self, raw: u64) -> u64 {
        let half = self.bits.div_ceil(2);
        let odd = |x: u64| x.wrapping_mul(Self::ODD) & self.mask();
        let x = odd(raw);
        odd(x ^ (x >> half))
    }
    /// What [`Graph::shuffled`] made of it, undone.
    fn raw(&self, vertex: u64) -> u64 {
        // Newton's steps double the bits that are right; an odd number is right in three.
        const INVERSE: u64 = {
            let (mut x, mut step) = (Graph::ODD, 0);
            while step < 5 {
                x = x.wrapping_mul(2u64.wrapping_sub(Graph::ODD.wrapping_mul(x)));
                step += 1;
            }
            x
        };
        let half = self.bits.div_ceil(2);
        let odd = |x: u64| x.wrapping_mul(INVERSE) & self.mask();
        let x = odd(vertex);
        odd(x ^ (x >> half))
    }
    fn degree(&self, vertex: u64) -> u64 {
        let ones = self.raw(vertex).count_ones() as usize;
        (self.degrees[ones] + (mix(vertex) & 0xffff)) >> 16
    }
    /// The place of its first neighbour among all lists.
    fn begin(&self, vertex: u64) -> u64 {
        let block = vertex / BLOCK;
        let before: u64 = (block * BLOCK..vertex).map(|v| self.degree(v)).sum();
        self.begins[block as usize] + before
    }
    /// Each bit is 1 in a quarter of draws where the vertex's is 0, and in a fifth where it is 1.
    fn neighbour(&self, raw: u64, i: u64) -> u64 {
        let mut random = SplitMix::new(mix(raw << 32 | (i & 0xffff_ffff)));
        let [a, b, c] = [random.next(), random.next(), random.next()];
        let quarter = a & (a >> 32);
        let most = b | (b >> 32) | (c & (c >> 32));
        self.shuffled(quarter & (!raw | most) & self.mask())
    }
}

/// A graph, and what it was made of.
type Last = RefCell<Option<((u32, u32), Arc<Graph>)>>;

/// The graph of that size; a thread that simulates keeps the last one for its tasks.
fn graph(bits: u32, degree: u32) -> Arc<Graph> {
    thread_local!(static LAST: Last = const { RefCell::new(None) });
    LAST.with(|last| {
        let mut last = last.borrow_mut();
        match &*last {
            Some((of, graph)) if *of == (bits, degree) => graph.clone(),
            _ => {
                let new = Arc::new(Graph::new(bits, degree));
                *last = Some(((bits, degree), new.clone()));
                new
            }
        }
    })
}

/// Bits of vertices, a word for 64.
type Set = Vec<u64>;

/// A task's searches, one after the other, from roots that it draws.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    graph: Arc<Graph>,
    pages: u64,
    /// Neighbours for which there is room.
    room: u64,
    /// Where its parents and its two frontiers are, in bytes of the mapping.
    parents: u64,
    frontiers: [u64; 2],
    /// Who has a parent, whose neighbours are looked at, who comes after them.
    found: Set,
    now: Set,
    next: Set,
    doing: Doing,
    /// Which line each place of the cache holds.
    cache: Vec<u32>,
    /// Operations that are made and not yet given out.
    made: Vec<u32>,
    given: usize,
}

/// Where a search stands.
#[derive(Clone, Copy, Debug)]
enum Doing {
    /// Taking back the parents of the last search, from this vertex on.
    Clear(u64),
    /// Looking for the next vertex in this word of the frontier.
    Frontier(u64),
    /// At so many-th neighbour of a vertex: its number, where its list begins, its degree.
    List { vertex: u64, raw: u64, begin: u64, degree: u64, at: u64 },
}

impl Search {
    /// In a mapping of so many pages, as the `thread`-th of so many.
    pub(crate) fn new(pages: u64, degree: u32, (thread, threads): (u64, u64)) -> Self {
        let own = |bits: u32| (ENTRY << bits) + 2 * (1u64 << bits).div_ceil(8);
        let needs =
            |bits: u32| (ENTRY << bits) * (1 + u64::from(degree)) + threads.max(1) * own(bits);
        // Hashes hold 31 bits of a vertex.
        let fits = |bits: &u32| needs(*bits) <= pages * PAGE_SIZE;
        let bits = (1..=31).rev().find(fits).unwrap_or(1);
        let graph = graph(bits, degree);
        let parents = (ENTRY << bits) * (1 + u64::from(degree)) + thread * own(bits);
        let first = parents + (ENTRY << bits);
        let words = (1u64 << bits).div_ceil(WORD) as usize;
        Self {
            graph,
            pages,
            room: u64::from(degree.max(1)) << bits,
            parents,
            frontiers: [first, first + (1u64 << bits).div_ceil(8)],
            found: vec![0; words],
            now: vec![0; words],
            next: vec![0; words],
            doing: Doing::Clear(0),
            cache: vec![u32::MAX; LINES as usize],
            made: Vec::new(),
            given: 0,
        }
    }
    /// The next page, and whether it is written, as an operation on a mapping that begins at 0.
    #[inline]
    pub(crate) fn next(&mut self, random: &mut Stream) -> u32 {
        while self.given == self.made.len() {
            self.made.clear();
            self.given = 0;
            self.step(random);
        }
        self.given += 1;
        self.made[self.given - 1]
    }
    /// An access to a byte. What the cache holds is asked of no memory.
    fn access(&mut self, byte: u64, writes: bool) {
        let line = byte / LINE;
        // 32 bits of its number are enough: mappings have at most 2^31 pages of 64 lines each, and
        // the low 12 bits say where it is kept.
        let held = &mut self.cache[(line % LINES) as usize];
        let tag = (line / LINES) as u32;
        if *held != tag {
            *held = tag;
            // A small mapping holds less than a graph of two vertices needs.
            let page = (byte / PAGE_SIZE).min(self.pages - 1) as u32;
            self.made.push(page | if writes { OP_WRITE } else { 0 });
        }
    }
    /// A vertex gets a parent, and is looked at in the next round.
    fn find(&mut self, vertex: u64) {
        let (word, bit) = ((vertex / WORD) as usize, 1 << (vertex % WORD));
        let is_new = self.found[word] & bit == 0;
        self.access(self.parents + vertex * ENTRY, is_new);
        if is_new {
            self.found[word] |= bit;
            self.next[word] |= bit;
            self.access(self.frontiers[1] + vertex / 8, true);
        }
    }
    fn step(&mut self, random: &mut Stream) {
        let vertices = 1u64 << self.graph.bits;
        self.doing = match self.doing {
            Doing::Clear(from) => {
                // A graph that fits into the cache would be searched for ever without an access.
                if from == 0 {
                    self.cache.fill(u32::MAX);
                }
                let to = (from + LINE / ENTRY).min(vertices);
                self.access(self.parents + from * ENTRY, true);
                if to < vertices {
                    Doing::Clear(to)
                } else {
                    self.found.fill(0);
                    self.next.fill(0);
                    let roots = std::iter::repeat_with(|| random.below(vertices));
                    let root = roots.take(1 << 16).find(|&v| self.graph.degree(v) > 0);
                    self.find(root.unwrap_or(0));
                    self.round()
                }
            }
            Doing::Frontier(word) if word as usize == self.now.len() => {
                if self.next.iter().any(|&w| w != 0) { self.round() } else { Doing::Clear(0) }
            }
            Doing::Frontier(word) => {
                self.access(self.frontiers[0] + word * WORD / 8, false);
                let left = &mut self.now[word as usize];
                if *left == 0 {
                    Doing::Frontier(word + 1)
                } else {
                    let vertex = word * WORD + u64::from(left.trailing_zeros());
                    *left &= *left - 1;
                    self.access(vertex * ENTRY, false);
                    let graph = &self.graph;
                    let (raw, degree) = (graph.raw(vertex), graph.degree(vertex));
                    Doing::List { vertex, raw, begin: graph.begin(vertex), degree, at: 0 }
                }
            }
            Doing::List { vertex, at, degree, .. } if at == degree => {
                Doing::Frontier(vertex / WORD)
            }
            Doing::List { vertex, raw, begin, degree, at } => {
                // Degrees are rounded by hash; the last lists may be a few entries too many.
                let place = (begin + at) % self.room;
                self.access((ENTRY << self.graph.bits) + place * ENTRY, false);
                self.find(self.graph.neighbour(raw, at));
                Doing::List { vertex, raw, begin, degree, at: at + 1 }
            }
        };
    }
    /// The next round looks at those that this one has found.
    fn round(&mut self) -> Doing {
        std::mem::swap(&mut self.now, &mut self.next);
        self.frontiers.swap(0, 1);
        self.next.fill(0);
        Doing::Frontier(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn vertices_are_shuffled_and_come_back() {
        for bits in [1, 2, 5, 12] {
            let graph = Graph::new(bits, 4);
            let mut all: Vec<u64> = (0..1 << bits).map(|raw| graph.shuffled(raw)).collect();
            assert!((0..1 << bits).all(|raw| graph.raw(all[raw as usize]) == raw));
            all.sort_unstable();
            assert!(all.into_iter().eq(0..1 << bits), "{bits} bits");
        }
    }

    #[test]
    fn degrees_have_their_mean_and_a_few_vertices_have_most() {
        let graph = Graph::new(14, 32);
        let mut degrees: Vec<u64> = (0..1 << 14).map(|v| graph.degree(v)).collect();
        let mean = graph.edges as f64 / f64::from(1 << 14);
        assert!((31.0..33.0).contains(&mean), "{mean}");
        assert_eq!(graph.begin(1000), degrees[..1000].iter().sum::<u64>());
        degrees.sort_unstable();
        let most: u64 = degrees[degrees.len() * 9 / 10..].iter().sum();
        assert!(most * 2 > graph.edges, "a tenth has {most} of {}", graph.edges);
        // Who has many neighbours is a neighbour of many: both follow from ones in its number.
        let mut times = BTreeMap::new();
        for vertex in 0..1 << 14 {
            let raw = graph.raw(vertex);
            for i in 0..graph.degree(vertex) {
                *times.entry(graph.neighbour(raw, i)).or_insert(0u64) += 1;
            }
        }
        let hub = graph.shuffled(0);
        let (own, of_it) = (graph.degree(hub), times[&hub]);
        assert!(of_it * 10 > own * 8 && of_it * 10 < own * 12, "{own} to it, {of_it} from it");
    }

    #[test]
    fn the_smallest_mapping_and_a_graph_that_fits_into_the_cache_are_searched_too() {
        for (pages, degree, threads) in [(1, 1, 1), (1, 1024, 7), (3, 32, 2), (20, 4, 1)] {
            let mut random = Stream::new(2, "small");
            for thread in 0..threads {
                let mut search = Search::new(pages, degree, (thread, threads));
                for _ in 0..10_000 {
                    assert!(u64::from(search.next(&mut random) & !OP_WRITE) < pages);
                }
            }
        }
    }

    #[test]
    fn a_search_reads_each_list_that_it_reaches_once_and_finds_nearly_all_with_edges() {
        let (pages, degree) = (1 << 10, 32);
        let mut search = Search::new(pages, degree, (1, 2));
        let bits = search.graph.bits;
        assert_eq!(bits, 13, "8 + 256 + 2 · 8.25 bytes for a vertex in 4 MiB");
        let mut random = Stream::new(1, "search");
        let mut began = false;
        let mut reached = None;
        let (mut writes, mut lists) = (0u64, 0u64);
        let from = (ENTRY << bits) / PAGE_SIZE;
        let to = from + (ENTRY << bits) * 32 / PAGE_SIZE;
        for _ in 0..10_000_000u64 {
            let op = search.next(&mut random);
            let page = u64::from(op & !OP_WRITE);
            assert!(page < pages);
            lists += u64::from((from..to).contains(&page));
            writes += u64::from(op & OP_WRITE != 0);
            // The first thread's parents are not the second's.
            assert!(page <= to || page * PAGE_SIZE + PAGE_SIZE > search.parents, "page {page}");
            match search.doing {
                Doing::Clear(_) if began => {
                    reached = Some(search.found.iter().map(|w| u64::from(w.count_ones())).sum());
                    break;
                }
                Doing::Clear(_) => {}
                Doing::Frontier(_) | Doing::List { .. } => began = true,
            }
        }
        let reached: u64 = reached.expect("a search comes to its end");
        let with = (0..1 << bits).filter(|&v| search.graph.degree(v) > 0).count() as u64;
        assert!(reached * 10 > with * 7, "{reached} reached of {with} with edges");
        // Eight neighbours lie in a line; a line is read again where other lines drove it out.
        let least = search.graph.edges / 8;
        assert!((least / 2..least * 2).contains(&lists), "{lists} reads of {least} lines");
        // Taking parents back writes each of their lines; so small a graph's stay in the cache then.
        let cleared = (ENTRY << bits) / LINE;
        assert!((cleared..cleared * 2).contains(&writes), "{writes} writes, {cleared} lines");
    }
}
