//! What a run leaves: counters, moves, residency, and one hash of it all.

use crate::cpus::CpuFigures;
use crate::memory::{BLOCK, FRAME_ITEM};
use crate::page::Word;
use crate::sched::{Track, ns};
use crate::simulation::Simulation;
use crate::vmstat::{Item, VmStat};
use homenode_core::ksm::{Counters, Effort};
use homenode_core::units::PAGE_SIZE;
use std::cmp::Ordering;
use std::hash::Hasher as _;
use twox_hash::XxHash3_64;

/// What merging has reached, and what it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeFigures {
    /// The counters of `/sys/kernel/mm/ksm`.
    pub counters: Counters,
    /// `pages_volatile`.
    pub pages_volatile: u64,
    /// `stable_node_chains`.
    pub stable_node_chains: u64,
    /// `stable_node_dups`.
    pub stable_node_dups: u64,
    /// `general_profit`, in bytes.
    pub general_profit: i64,
    /// Memory that merging saves now: further entries of merged pages, and those of the
    /// page of zeroes.
    pub saved_bytes: u64,
    /// Checksums, searches, comparisons.
    pub effort: Effort,
    /// Processor time of ksmd, in picoseconds.
    pub ksmd_ran_ps: u64,
    /// Bytes of pages that it has read.
    pub read_bytes: u64,
}

/// Pages of one stretch of address space, for the picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Pages in memory.
    pub resident: u64,
    /// Of these, on the top tier.
    pub fast: u64,
}

/// Where the time of a CPU without a task has gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleFigures {
    /// By idle state of the machine, in its order: picoseconds, with what leaving took. They and
    /// `busy_ps` are all time. Empty where the machine's file has no idle states.
    pub time_ps: Vec<u64>,
    /// By state: how often the CPU was in it; how often too short for it, and how often long
    /// enough for a deeper one.
    pub stays: Vec<[u64; 3]>,
}

impl Simulation {
    /// What each CPU did so far, by place.
    pub fn cpu_figures(&self) -> Vec<CpuFigures> {
        self.cpus.figures(self.now())
    }
    /// What came so far of tasks that ran away from their memory.
    pub const fn homing(&self) -> crate::HomingFigures {
        self.kernel.homing
    }
    /// CPU time so far, in picoseconds, that CPUs were idle while a task waited that may run there.
    pub fn wasted_ps(&self) -> u64 {
        self.sched.wasted.until(self.now())
    }
    /// The names of the machine's idle states, the shallowest first.
    pub fn idle_states(&self) -> Vec<String> {
        self.sched.idle.states().iter().map(|s| s.name.clone()).collect()
    }
    /// Where the time of each CPU without a task has gone so far, by place.
    pub fn idle_figures(&self) -> Vec<IdleFigures> {
        let (idle, now) = (&self.sched.idle, self.now());
        let of = |cpu| match idle.is_modelled() {
            false => IdleFigures::default(),
            true => IdleFigures {
                time_ps: idle.times(cpu, now),
                stays: idle.usage(cpu, now).iter().map(|u| [u.usage, u.above, u.below]).collect(),
            },
        };
        (0..self.cpus.len()).map(of).collect()
    }
    /// How often tasks were woken, and how often they left a CPU, all of them together.
    pub fn wakeups_and_switches(&self) -> (u64, u64) {
        self.sched.q.tasks.iter().map(|t| &t.figures).fold((0, 0), |(wakeups, switches), f| {
            (wakeups + f.wakeups, switches + f.voluntary + f.involuntary)
        })
    }
    /// How often a CPU had its turn: what the run took, however long the host took for it.
    pub fn turns(&self) -> u64 {
        self.turns
    }
    /// Where tasks of programs ran that the scheduler places, the first of them: the width of a
    /// cell in nanoseconds, and for each task the process that it belongs to and its track.
    pub fn tracks(&self) -> (u64, Vec<(usize, Track)>) {
        let (width, tracks) = self.sched.q.tracks.told(ns(self.now()));
        (width, tracks.into_iter().map(|t| (self.tasks[t.task].process, t)).collect())
    }
    /// All tasks that ever were, by number: PID and name. Helpers of the kernel have no name.
    pub fn who_ran(&self) -> Vec<(u32, String)> {
        let of = |id: usize| (self.kernel.numa[id].pid, self.name_of(id).to_owned());
        (0..self.tasks.len()).map(of).collect()
    }
    /// The counters.
    pub fn vmstat(&self) -> &VmStat {
        &self.kernel.stat
    }
    /// What merging has reached; `None` where no contents are kept.
    pub fn merging(&self) -> Option<MergeFigures> {
        self.kernel.memory.contents.as_ref()?;
        let ksm = self.kernel.ksm();
        let counters = *ksm.counters();
        let saved = counters.pages_sharing + counters.ksm_zero_pages.max(0) as u64;
        Some(MergeFigures {
            counters,
            pages_volatile: ksm.pages_volatile(),
            stable_node_chains: ksm.stable_node_chains(),
            stable_node_dups: ksm.stable_node_dups(),
            general_profit: ksm.general_profit(),
            saved_bytes: saved * PAGE_SIZE,
            effort: *ksm.effort(),
            ksmd_ran_ps: self.ksmd_ran(),
            read_bytes: self.kernel.merging.lines * crate::load::LINE,
        })
    }
    /// Pages moved, by place of the source and of the target.
    pub fn moved(&self) -> &[Vec<u64>] {
        &self.kernel.moved
    }
    /// Pages that came to a faster tier, and those that went to a slower one, by whoever moved them: a policy is
    /// told of the pages that it asked for, and a huge page takes the rest of itself along.
    pub fn moved_between_tiers(&self) -> [u64; 2] {
        let tiers = &self.kernel.tiers;
        let tier: Vec<_> = self.machine.nodes.iter().map(|n| tiers.tier(n.id)).collect();
        let mut all = [0, 0];
        for (from, row) in self.kernel.moved.iter().enumerate() {
            for (to, pages) in row.iter().enumerate() {
                match tier[to].cmp(&tier[from]) {
                    Ordering::Less => all[0] += pages,
                    Ordering::Greater => all[1] += pages,
                    Ordering::Equal => {}
                }
            }
        }
        all
    }
    /// Bytes that each node's medium (by place) has read and written.
    pub fn traffic(&self) -> Vec<[u64; 2]> {
        let loads = self.kernel.loads.nodes.iter();
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
            self.add_page(&mut all[(u64::from(page) * n as u64 / total) as usize], page, w);
        });
        all
    }
    fn add_page(&self, to: &mut Stretch, page: u32, w: Word) {
        let memory = &self.kernel.memory;
        if !w.resident() || memory.is_zero_page(w) {
            return;
        }
        let item = if w.shared() { w.frame() | FRAME_ITEM } else { page };
        to.resident += 1;
        to.fast += u64::from(self.kernel.top[memory.node_of(memory.word(item).zone())]);
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
                        self.add_page(s, page, memory.word(page));
                    }
                }
            }
        }
        all
    }
    /// One number for everything that a run did: time, counters, accesses, where
    /// every page is, what was read from the kernel's files. Equal for equal input, on every machine.
    pub fn hash(&self) -> u64 {
        let mut h = XxHash3_64::new();
        h.write(&self.now().to_le_bytes());
        // By name, and only what was counted: a counter that this run doesn't touch, wherever
        // it stands in the list, is no part of its hash.
        let mut items = Item::ALL;
        items.sort_unstable_by_key(|item| item.name());
        for item in items {
            for node in 0..self.kernel.memory.nodes.len() {
                let n = self.kernel.stat.of(node, item);
                if n > 0 {
                    h.write(item.name().as_bytes());
                    h.write(&[0]);
                    h.write(&(node as u64).to_le_bytes());
                    h.write(&n.to_le_bytes());
                }
            }
        }
        let mut put = |v: u64| h.write(&v.to_le_bytes());
        for p in self.processes() {
            put(p.time_ps);
            put(p.ran_ps);
            for a in p.accesses {
                put(a[0]);
                put(a[1]);
            }
        }
        if let Some(m) = self.merging() {
            let (c, e) = (m.counters, m.effort);
            for v in [c.pages_shared, c.pages_sharing, c.pages_unshared, c.rmap_items] {
                put(v);
            }
            for v in [c.pages_scanned, c.pages_skipped, c.full_scans, c.ksm_zero_pages as u64] {
                put(v);
            }
            put(e.checksums);
            put(e.stable_comparisons + e.unstable_comparisons + e.verifications);
            put(m.ksmd_ran_ps);
            put(m.read_bytes);
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
                None => h.write(b"-"),
                Some(Ok(text)) => h.write(text.as_bytes()),
                Some(Err(e)) => h.write(e.errno.name().as_bytes()),
            }
        }
        h.finish()
    }
}
