//! The peer of the scale benchmark: what the hardware allows for one prefetched
//! update of 8 bytes a page, with the simulator's own ids, distance and host pages.

use crate::hot::OP_PAGE;
use crate::table::{Table, prefetch};

/// 8 bytes a page.
pub struct PageCounters(Table);

impl PageCounters {
    /// A column for `pages` pages.
    ///
    /// # Panics
    /// If the host has no memory for it.
    pub fn new(pages: usize) -> Self {
        let mut t = Table::new(pages * 2).expect("the host has memory");
        // Every page is there before the clock starts, as in the simulator's run.
        t.iter_mut().for_each(|w| *w = 1);
        Self(t)
    }
    /// Adds one to the pages that `ids` name, over and over, `n` times in all.
    pub fn update(&mut self, ids: &[u32], n: u64) -> u64 {
        let words: &mut [u32] = &mut self.0;
        let mut left = n as usize;
        let mut sum = 0u64;
        while left > 0 {
            let part = left.min(ids.len());
            for (i, &id) in ids[..part].iter().enumerate() {
                if let Some(&next) = ids.get(i + 24) {
                    prefetch(words, (next & OP_PAGE) as usize * 2);
                }
                let at = (id & OP_PAGE) as usize * 2;
                let pair: &mut [u32; 2] = (&mut words[at..at + 2]).try_into().expect("two words");
                let v = (u64::from(pair[1]) << 32 | u64::from(pair[0])) + 1;
                *pair = [v as u32, (v >> 32) as u32];
                sum = sum.wrapping_add(v);
            }
            left -= part;
        }
        sum
    }
}
