//! Which page tables are worth reading: two Bloom filters, by turns.
//!
//! A walk reads the filter of the generation that is the newest, and writes that of the next
//! one. A table that no filter knows costs a walk nothing but the look at its entry; one that
//! it takes for known by chance is read in vain.

use super::Generations;

const SHIFT: u32 = 15;

/// One filter: 2^15 bits, two of them for each page table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bloom(Box<[u64]>);

impl Default for Bloom {
    fn default() -> Self {
        Self(vec![0; (1 << SHIFT) / 64].into())
    }
}

impl Bloom {
    /// The two bits of a table, by its number.
    fn bits(table: u64) -> [usize; 2] {
        // The kernel's hash of a pointer: the table's address, 4 KiB apart.
        let hash = (table << 12).wrapping_mul(0x61c8_8646_80b5_83eb) >> (64 - 2 * SHIFT);
        let mask = (1 << SHIFT) - 1;
        [(hash & mask) as usize, (hash >> SHIFT) as usize]
    }
    /// Whether a table may have been put in.
    pub fn knows(&self, table: u64) -> bool {
        Self::bits(table).iter().all(|&b| self.0[b / 64] >> (b % 64) & 1 != 0)
    }
    /// Puts a table in.
    pub fn add(&mut self, table: u64) {
        for b in Self::bits(table) {
            self.0[b / 64] |= 1 << (b % 64);
        }
    }
    /// Forgets all.
    fn wipe(&mut self) {
        self.0.fill(0);
    }
}

/// The two filters of a node. One that was never begun knows every table.
///
/// Source: specs/mglru.md#walks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters([Option<Bloom>; 2]);

impl Filters {
    fn at(seq: u64) -> usize {
        (seq % 2) as usize
    }
    /// A walk of this generation begins: the next one's filter is empty.
    pub fn begin(&mut self, g: &Generations) {
        self.0[Self::at(g.max + 1)].get_or_insert_default().wipe();
    }
    /// Whether a walk reads a table.
    pub fn reads(&self, g: &Generations, table: u64) -> bool {
        self.0[Self::at(g.max)].as_ref().is_none_or(|f| f.knows(table))
    }
    /// A walk found a table worth reading again.
    pub fn keep(&mut self, g: &Generations, table: u64) {
        if let Some(f) = &mut self.0[Self::at(g.max + 1)] {
            f.add(table);
        }
    }
    /// Eviction found one: for the next walk.
    pub fn report(&mut self, g: &Generations, table: u64) {
        if let Some(f) = &mut self.0[Self::at(g.max)] {
            f.add(table);
        }
    }
}
