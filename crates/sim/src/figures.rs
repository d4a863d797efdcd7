//! What a run leaves: counters, moves, residency, and one hash of it all.

use crate::engine::Simulation;
use crate::memory::{BLOCK, FRAME_ITEM};
use crate::vmstat::{Item, VmStat};
use xxhash_rust::xxh3::Xxh3;

/// Pages of one stretch of address space, for the picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Pages in memory.
    pub resident: u64,
    /// Of these, on the top tier.
    pub fast: u64,
}

impl Simulation {
    /// The counters.
    pub fn vmstat(&self) -> &VmStat {
        &self.kernel.stat
    }
    /// Pages moved, by place of the source and of the target.
    pub fn moved(&self) -> &[Vec<u64>] {
        &self.kernel.moved
    }
    /// Bytes that each node's medium (by place) has read and written.
    pub fn traffic(&self) -> Vec<[u64; 2]> {
        let loads = self.kernel.loads.iter();
        loads.map(|l| [l.read_total + l.read, l.written_total + l.written]).collect()
    }
    /// Places of nodes that are of the top tier.
    pub fn top_tier(&self) -> &[bool] {
        &self.kernel.top
    }
    /// Free pages of each node, by place.
    pub fn free(&self) -> Vec<u64> {
        (0..self.kernel.memory.nodes.len()).map(|n| self.kernel.memory.free_of(n)).collect()
    }
    /// Bytes of the host: the columns of the pages in use, and everything beside.
    pub fn host_bytes(&self) -> (u64, u64) {
        self.kernel.memory.bytes()
    }
    /// Sweeps over the columns so far.
    pub fn sweeps(&self) -> u64 {
        self.kernel.memory.sweeps
    }
    /// Whether the run stopped because memory could not be modelled.
    pub fn error(&self) -> Option<&crate::memory::MemoryError> {
        self.memory_error.as_ref()
    }
    /// Resident pages of all address spaces in `n` equal stretches of the columns.
    pub fn stretches(&self, n: usize) -> Vec<Stretch> {
        let mut all = vec![Stretch::default(); n.max(1)];
        let total = self.kernel.memory.blocks.len() as u64 * 512;
        self.kernel.memory.each_entry(|page, w, _| {
            if !w.resident() || self.kernel.memory.is_zero_page(w) {
                return;
            }
            let item = if w.shared() { w.frame() | FRAME_ITEM } else { page };
            let node = self.kernel.memory.node_of(self.kernel.memory.word(item).zone());
            let s = &mut all[(u64::from(page) * n as u64 / total) as usize];
            s.resident += 1;
            s.fast += u64::from(self.kernel.top[node]);
        });
        all
    }
    /// Resident pages of all address spaces in ranges of virtual pages `[start, end)`,
    /// in the order of the ranges; a page that two spaces have counts twice.
    pub fn residency_of(&self, ranges: &[(u64, u64)]) -> Vec<Stretch> {
        let memory = &self.kernel.memory;
        let step = u64::from(BLOCK);
        let mut all = vec![Stretch::default(); ranges.len()];
        for space in self.kernel.spaces.iter().flatten() {
            for (s, &(start, end)) in all.iter_mut().zip(ranges) {
                for (first_vpn, first_page) in space.steps(start / step, end.div_ceil(step)) {
                    for i in start.max(first_vpn)..end.min(first_vpn + step) {
                        let page = first_page + (i - first_vpn) as u32;
                        let w = memory.word(page);
                        if !w.resident() || memory.is_zero_page(w) {
                            continue;
                        }
                        let item = if w.shared() { w.frame() | FRAME_ITEM } else { page };
                        let node = memory.node_of(memory.word(item).zone());
                        s.resident += 1;
                        s.fast += u64::from(self.kernel.top[node]);
                    }
                }
            }
        }
        all
    }
    /// One number for everything that a run did: time, counters, accesses, where
    /// every page is, what was read from the kernel's files. Equal for equal input, on every machine.
    pub fn hash(&self) -> u64 {
        let mut h = Xxh3::new();
        let mut put = |v: u64| h.update(&v.to_le_bytes());
        put(self.now);
        for item in Item::ALL {
            for node in 0..self.kernel.memory.nodes.len() {
                put(self.kernel.stat.of(node, *item));
            }
        }
        for p in self.processes() {
            put(p.time_ps);
            put(p.ran_ps);
            for a in p.accesses {
                put(a[0]);
                put(a[1]);
            }
        }
        self.kernel.memory.each_entry(|page, w, _| {
            put(u64::from(page));
            put(u64::from(w.0));
        });
        self.kernel.memory.each_frame(|frame, w, mappers| {
            put(u64::from(frame));
            put(u64::from(w.0));
            put(mappers as u64);
        });
        for o in &self.planned {
            match &o.result {
                None => h.update(b"-"),
                Some(Ok(text)) => h.update(text.as_bytes()),
                Some(Err(e)) => h.update(e.errno.name().as_bytes()),
            }
        }
        h.digest()
    }
}
