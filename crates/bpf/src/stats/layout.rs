//! What the program and its reader share, in the byte order of the machine. The same shapes as in
//! `crates/bpf/bpf/stats.bpf.c`.

use homenode_core::sched::look::{
    BUCKETS, CpuCounts, Doing, Histogram, NODES, Reason, Reasons, TaskCounts, TaskLook,
};
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Enum;

/// `struct settings`.
pub(super) struct Settings {
    pub(super) who: u32,
    pub(super) subsys: i32,
    pub(super) cgroup: u64,
    pub(super) slots: u32,
    pub(super) why: u32,
}

impl Settings {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let Self { who, subsys, cgroup, slots, why } = self;
        [
            &who.to_ne_bytes()[..],
            &subsys.to_ne_bytes(),
            &cgroup.to_ne_bytes(),
            &slots.to_ne_bytes(),
            &why.to_ne_bytes(),
        ]
        .concat()
    }
}

/// `struct control`.
pub(super) struct Control {
    pub(super) begin: u64,
    pub(super) mother: u32,
}

impl Control {
    pub(super) fn bytes(&self) -> Vec<u8> {
        [&self.begin.to_ne_bytes()[..], &self.mother.to_ne_bytes(), &[0; 4]].concat()
    }
}

/// `struct cpu_place`, without what is counted in it.
pub(super) struct CpuPlace {
    pub(super) llc: u32,
    pub(super) node: u32,
    pub(super) sibling: u32,
    pub(super) idle: u32,
}

impl CpuPlace {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let Self { llc, node, sibling, idle } = self;
        let mut bytes: Vec<u8> =
            [llc, node, sibling, idle].into_iter().flat_map(|n| n.to_ne_bytes()).collect();
        bytes.resize(40, 0);
        bytes
    }
}

/// Reads numbers one after the other.
struct Numbers<'b>(&'b [u8]);

impl Numbers<'_> {
    fn u32(&mut self) -> u32 {
        let Some((n, rest)) = self.0.split_first_chunk() else { return 0 };
        self.0 = rest;
        u32::from_ne_bytes(*n)
    }
    fn u64(&mut self) -> u64 {
        let Some((n, rest)) = self.0.split_first_chunk() else { return 0 };
        self.0 = rest;
        u64::from_ne_bytes(*n)
    }
    fn u64s(&mut self, n: usize) -> Vec<u64> {
        (0..n).map(|_| self.u64()).collect()
    }
}

/// What is counted in a `struct cpu_place`.
pub(super) fn moved(bytes: &[u8]) -> [u64; 3] {
    let mut numbers = Numbers(bytes.get(16..).unwrap_or_default());
    [numbers.u64(), numbers.u64(), numbers.u64()]
}

/// `struct slot`.
pub(super) struct Slot {
    since: u64,
    state: u32,
    counts: TaskCounts,
    pub(super) pid: u32,
    tgid: u32,
    parent: u32,
    start: u64,
    cgroup: u64,
    comm: String,
    latency: Histogram,
}

impl Slot {
    pub(super) const BYTES: usize =
        3 * 8 + 8 * 4 + TaskCounts::FIELDS.len() * 8 + 4 * 4 + 2 * 8 + 16 + BUCKETS * 4;

    /// `None` if it has another length.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != Self::BYTES {
            return None;
        }
        let mut n = Numbers(bytes);
        let (_task, since, _woken) = (n.u64(), n.u64(), n.u64());
        let state = n.u32();
        for _ in 0..7 {
            n.u32();
        }
        let counts = n.u64s(TaskCounts::FIELDS.len());
        let (pid, tgid, parent, _unused) = (n.u32(), n.u32(), n.u32(), n.u32());
        let (start, cgroup) = (n.u64(), n.u64());
        let (comm, rest) = n.0.split_at_checked(16)?;
        let comm = comm.split(|b| *b == 0).next().unwrap_or_default();
        n.0 = rest;
        let mut latency = Histogram::default();
        latency.0.iter_mut().for_each(|b| *b = u64::from(n.u32()));
        Some(Self {
            since,
            state,
            counts: TaskCounts::from_numbers(counts.into_iter()),
            pid,
            tgid,
            parent,
            start,
            cgroup,
            comm: String::from_utf8_lossy(comm).into_owned(),
            latency,
        })
    }

    pub(super) fn look(self, now: u64, why: Option<Reasons>) -> TaskLook {
        let doing = match self.state {
            1 => Doing::Runs,
            2 => Doing::Waits,
            3 => Doing::Sleeps,
            4 => Doing::Blocks,
            5 => Doing::Otherwise,
            _ => Doing::Ended,
        };
        TaskLook {
            pid: self.pid,
            tgid: self.tgid,
            parent: self.parent,
            start_ns: self.start,
            comm: self.comm,
            cgroup: self.cgroup,
            tasks: 1,
            doing,
            doing_ns: if doing == Doing::Ended { 0 } else { now.saturating_sub(self.since) },
            counts: self.counts,
            latency: self.latency,
            why,
        }
    }
}

/// `struct cpu_counts`.
pub(super) struct CpuRow {
    pub(super) counts: CpuCounts,
    pub(super) latency: Histogram,
}

impl CpuRow {
    /// `None` if it has another length.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != (CpuCounts::FIELDS.len() + BUCKETS) * 8 {
            return None;
        }
        let mut n = Numbers(bytes);
        let counts = CpuCounts::from_numbers(n.u64s(CpuCounts::FIELDS.len()).into_iter());
        let mut latency = Histogram::default();
        latency.0.iter_mut().for_each(|b| *b = n.u64());
        Some(Self { counts, latency })
    }
}

/// Bytes of a `struct reasons`.
pub(super) const REASONS_BYTES: usize = (Reason::ALL.len() + NODES + 4) * 8;

/// `struct reasons`.
pub(super) fn reasons(bytes: &[u8]) -> Reasons {
    let mut n = Numbers(bytes);
    Reasons {
        by: std::array::from_fn(|_| n.u64()),
        node: std::array::from_fn(|_| n.u64()),
        from_last_llc: n.u64(),
        from_last_node: n.u64(),
        from_waker_llc: n.u64(),
        from_waker_node: n.u64(),
    }
}

/// How many slots were ever taken, of what the program keeps.
pub(super) fn taken(bss: &[u8]) -> Option<u32> {
    // changed, generation, taken
    bss.get(12..16).map(|_| Numbers(&bss[12..]).u32())
}

/// The kernel's number of a controller, such as `cpu`.
pub(super) fn subsys(btf: &Btf<'_>, name: &str) -> Option<i32> {
    let wanted = format!("{name}_cgrp_id");
    let numbers = btf.type_by_name::<Enum<'_>>("cgroup_subsys_id")?;
    let found = numbers.iter().find(|m| m.name.is_some_and(|n| n.to_str() == Some(&*wanted)))?;
    i32::try_from(found.value).ok()
}
