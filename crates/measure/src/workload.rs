//! Two programs where memory dominates, to be run natively and recorded: a hash join
//! and a breadth-first search.
//!
//! Both are written as careful code is: what is looked up does not depend on what the
//! look-up before found, and no branch depends on data from memory but for rare cases,
//! so that a core can have many misses under way. Input is made from a seed; a checksum
//! sees to it that nothing is left out. The measured phase runs in a thread of its own,
//! over and over on the same memory, so that a recording tells it from the input's making.
//!
//! ```text
//! hash join   build: row -> bucket of 64 bytes (7 rows)     probe: key -> bucket, 7 compares
//! search      256 vertices of the queue -> their edges, 8 each -> for each the target's
//!             state; new ones go to the queue's end
//! ```
//!
//! Buffers are anonymous memory in huge pages where the kernel has them (`MADV_HUGEPAGE`).

use crate::constants::cpus;
use crate::constants::region::{PageKind, Region};
use homenode_core::splitmix::SplitMix;
use std::io;
use std::thread;

homenode_core::named! {
    /// Which program.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Program {
        /// Two relations of equally many rows, joined over a key that each has once.
        HashJoin => "hash-join",
        /// All vertices that a vertex of a random graph of out-degree 8 reaches.
        BreadthFirst => "breadth-first-search",
    }
}

impl Program {
    /// The program of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }
    /// Bytes that it works on with so many rows or vertices, 64 to 2^28, a power of two.
    pub const fn bytes(self, size: u64) -> u64 {
        match self {
            // Two relations of 16 bytes a row, and half as many buckets of 64.
            Self::HashJoin => size * 2 * 16 + size / 2 * 64,
            // Edges, state, queue.
            Self::BreadthFirst => size * (DEGREE as u64 * 4 + 8 + 4),
        }
    }
}

/// What a run found and took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timings {
    /// The same for the same program, size and seed, on every machine.
    pub checksum: u64,
    /// CPU time of each repetition of the measured phase, in nanoseconds: what others
    /// run on the same CPU meanwhile is not in it.
    pub ns: Vec<u64>,
}

/// Smallest and largest size: rows or vertices.
pub const SIZES: std::ops::RangeInclusive<u64> = 64..=1 << 28;

/// Runs a program of `size` rows or vertices; its measured phase `repeat` times, at least once.
///
/// # Errors
/// `InvalidInput` where `size` is no power of two in [`SIZES`]; what the system says
/// where memory or a thread can't be had.
pub fn run(program: Program, size: u64, seed: u64, repeat: u32) -> io::Result<Timings> {
    if !SIZES.contains(&size) || !size.is_power_of_two() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "{size} is no size; write a power of two from {} to {}",
                SIZES.start(),
                SIZES.end()
            ),
        ));
    }
    match program {
        Program::HashJoin => {
            let mut join = HashJoin::new(size as usize, seed)?;
            measured(repeat, move || join.once())
        }
        Program::BreadthFirst => {
            let mut search = Search::new(size as usize, seed)?;
            measured(repeat, move || search.once())
        }
    }
}

fn measured(repeat: u32, mut phase: impl FnMut() -> u64 + Send) -> io::Result<Timings> {
    let work = move || {
        let mut timings = Timings { checksum: 0, ns: Vec::new() };
        for _ in 0..repeat.max(1) {
            let began = cpus::own_time();
            timings.checksum = phase();
            timings.ns.push((cpus::own_time() - began).as_nanos() as u64);
        }
        timings
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, work)?;
        thread.join().map_err(|_| io::Error::other("the measured phase panicked"))
    })
}

/// A slice in memory of its own, in huge pages.
struct Buffer<T> {
    region: Region,
    len: usize,
    of: std::marker::PhantomData<T>,
}

/// Types of which all bytes 0 are a value.
trait Plain: Copy {}
impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for Tuple {}
impl Plain for Bucket {}

impl<T: Plain> Buffer<T> {
    fn new(len: usize) -> io::Result<Self> {
        let region = Region::map(len * size_of::<T>(), PageKind::Huge, None, false)?;
        Ok(Self { region, len, of: std::marker::PhantomData })
    }
    fn get(&self) -> &[T] {
        // SAFETY: the region has `len` times the size, aligned to 2 MiB, and was mapped
        // full of zeros, which are a value of `T`; `self` owns it.
        unsafe { std::slice::from_raw_parts(self.region.start().cast(), self.len) }
    }
    fn get_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `get`, and `self` is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.region.start().cast(), self.len) }
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Tuple {
    key: u64,
    value: u64,
}

/// Rows that a bucket holds; it is one line.
const SLOTS: usize = 7;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    keys: [u32; SLOTS],
    used: u32,
    values: [u32; SLOTS],
    pad: u32,
}

struct HashJoin {
    build: Buffer<Tuple>,
    probe: Buffer<Tuple>,
    table: Buffer<Bucket>,
}

/// Where a key belongs among `1 << bits` buckets.
#[inline(always)]
fn home(key: u64, bits: u32) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize
}

impl HashJoin {
    fn new(rows: usize, seed: u64) -> io::Result<Self> {
        let mut random = SplitMix::new(seed);
        let mut relation = |salt: u64| -> io::Result<Buffer<Tuple>> {
            let mut b = Buffer::new(rows)?;
            // A permutation of 1..=rows: an odd factor and an offset, modulo a power of two.
            let (odd, off) = ((random.next() ^ salt) | 1, random.next());
            for (i, row) in b.get_mut().iter_mut().enumerate() {
                let key = (mix(i as u64, rows as u64, odd).wrapping_add(off)) & (rows as u64 - 1);
                *row = Tuple { key: key + 1, value: (i as u64 & 0xffff) + 1 };
            }
            Ok(b)
        };
        Ok(Self { build: relation(1)?, probe: relation(2)?, table: Buffer::new(rows / 2)? })
    }

    /// Empties the table, builds it from one relation and probes it with the other.
    #[inline(never)]
    fn once(&mut self) -> u64 {
        let bits = self.table.len.ilog2();
        let table = self.table.get_mut();
        for b in &mut *table {
            *b = Bucket { keys: [0; SLOTS], used: 0, values: [0; SLOTS], pad: 0 };
        }
        let last = table.len() - 1;
        for row in self.build.get() {
            let mut at = home(row.key, bits);
            // Two rows a bucket on average: one in a thousand is full.
            while table[at].used as usize >= SLOTS {
                at = (at + 1) & last;
            }
            let b = &mut table[at];
            let i = b.used as usize % SLOTS;
            b.keys[i] = row.key as u32;
            b.values[i] = row.value as u32;
            b.used = b.used.wrapping_add(1);
        }
        let mut sum = 0u64;
        for row in self.probe.get() {
            let mut at = home(row.key, bits);
            loop {
                let b = &table[at];
                let mut found = 0u32;
                for (key, value) in b.keys.iter().zip(&b.values) {
                    // A mask: no branch, whatever checks a build has.
                    let same = u32::from(*key == row.key as u32);
                    found |= *value & 0u32.wrapping_sub(same);
                }
                sum = sum.wrapping_add(u64::from(found).wrapping_mul(row.value));
                // Only behind a full bucket may there be more of its rows.
                if (b.used as usize) < SLOTS {
                    break;
                }
                at = (at + 1) & last;
            }
        }
        sum
    }
}

/// A bijection of `0..n`, `n` a power of two, without order.
fn mix(i: u64, n: u64, odd: u64) -> u64 {
    let (mask, half) = (n - 1, n.ilog2().div_ceil(2));
    let mut x = i.wrapping_mul(odd) & mask;
    x ^= x >> half;
    x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
    x ^= x >> half;
    x
}

/// Edges of each vertex.
const DEGREE: usize = 8;

struct Search {
    edges: Buffer<u32>,
    /// 0: not seen; else the parent's place in the queue, and one more than the distance.
    state: Buffer<u64>,
    queue: Buffer<u32>,
}

impl Search {
    fn new(vertices: usize, seed: u64) -> io::Result<Self> {
        let mut random = SplitMix::new(seed);
        let mut edges = Buffer::new(vertices * DEGREE)?;
        for e in edges.get_mut() {
            *e = random.below(vertices as u64) as u32;
        }
        // One place more: the end is written to before it is known to be wanted.
        Ok(Self { edges, state: Buffer::new(vertices)?, queue: Buffer::new(vertices + 1)? })
    }

    /// Forgets what was seen, and goes from vertex 0.
    #[inline(never)]
    fn once(&mut self) -> u64 {
        let (state, queue) = (self.state.get_mut(), self.queue.get_mut());
        let edges = self.edges.get();
        for s in &mut *state {
            *s = 0;
        }
        state[0] = 1;
        queue[0] = 0;
        let (mut head, mut tail, mut sum, mut distance) = (0, 1, 0u64, 1u64);
        let mut targets = [0u32; GATHERED * DEGREE];
        while head < tail {
            // All of one distance; in parts, each of whose edges are gathered first: the
            // targets of one vertex would else wait for its edges before the next one's.
            let level = tail;
            sum = sum.wrapping_add(distance * (level - head) as u64);
            distance += 1;
            while head < level {
                let n = (level - head).min(GATHERED);
                for (from, into) in queue[head..head + n].iter().zip(targets.chunks_mut(DEGREE)) {
                    into.copy_from_slice(&edges[*from as usize * DEGREE..][..DEGREE]);
                }
                for (i, &to) in targets[..n * DEGREE].iter().enumerate() {
                    let next = ((head + i / DEGREE) as u64) << 32 | distance;
                    let s = &mut state[to as usize];
                    let new = *s == 0;
                    *s = if new { next } else { *s };
                    queue[tail] = to;
                    tail += usize::from(new);
                }
                head += n;
            }
        }
        sum.wrapping_mul(31).wrapping_add(tail as u64)
    }
}

/// Vertices whose edges are gathered before their targets are looked at.
const GATHERED: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::collections::btree_map::{BTreeMap, Entry};

    #[test]
    fn the_join_is_that_of_a_map() {
        for rows in [64, 4096] {
            let mut join = HashJoin::new(rows, 7).unwrap();
            let map: BTreeMap<u64, u64> =
                join.build.get().iter().map(|r| (r.key, r.value)).collect();
            assert_eq!(map.len(), rows, "each key once");
            let want = join
                .probe
                .get()
                .iter()
                .fold(0u64, |sum, r| sum.wrapping_add(map[&r.key].wrapping_mul(r.value)));
            assert_eq!(join.once(), want);
            assert_eq!(join.once(), want, "and again");
        }
    }

    #[test]
    fn the_search_is_that_of_a_queue() {
        let mut search = Search::new(1024, 3).unwrap();
        let edges = search.edges.get().to_vec();
        let mut seen = BTreeMap::from([(0usize, 1u64)]);
        let mut queue = VecDeque::from([0usize]);
        let mut sum = 0;
        while let Some(v) = queue.pop_front() {
            sum += seen[&v];
            for &to in &edges[v * DEGREE..][..DEGREE] {
                let next = seen[&v] + 1;
                if let Entry::Vacant(unseen) = seen.entry(to as usize) {
                    unseen.insert(next);
                    queue.push_back(to as usize);
                }
            }
        }
        let want = sum * 31 + seen.len() as u64;
        assert_eq!((search.once(), search.once()), (want, want));
    }

    #[test]
    fn sizes_are_checked_and_checksums_repeat() {
        for size in [0, 63, 65, 1 << 29] {
            assert!(run(Program::HashJoin, size, 1, 1).is_err(), "{size}");
        }
        for p in Program::ALL {
            assert_eq!(Program::parse(p.name()), Some(p));
            let (a, b) = (run(p, 256, 1, 2).unwrap(), run(p, 256, 1, 1).unwrap());
            assert_eq!((a.checksum, a.ns.len(), b.ns.len()), (b.checksum, 2, 1));
            assert_ne!(a.checksum, run(p, 256, 2, 1).unwrap().checksum);
        }
    }
}
