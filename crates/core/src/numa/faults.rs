//! What hint faults leave behind: who touched a page last, and how often a task
//! faulted where.
//!
//! Every page keeps 21 bits: 13 of the CPU and the low 8 of the PID that faulted
//! on it last ([`CpuPid`]). A fault by a task whose PID has the same low bits is
//! *private*; one in 256 strangers looks private too, by design.
//!
//! Every task counts its fault pages by node, shared or private, in two ways: by
//! the page's node (memory) and by its own (cpu). At each new scan sequence the
//! counts of the buffer enter an average that halves: 0, 100, 50, 25 …, where a
//! residue of 1 stays.

use super::scan::TaskScan;
use crate::kernel::{KernelVersion, msecs_to_jiffies};
use crate::tiering::mode::Mode;
use crate::units::{CpuId, HZ, NodeId};

/// Bits of the PID in a page's field.
pub const PID_BITS: u32 = 8;
/// Bits of the CPU in a page's field, in Debian's builds.
pub const CPU_BITS: u32 = 13;
/// All bits of the field.
pub const CPUPID_MASK: u32 = (1 << (PID_BITS + CPU_BITS)) - 1;

/// The last accessor of a page: a CPU and the low bits of a PID, or *unset*.
///
/// Source: specs/numa.md#cpupid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CpuPid(u32);

impl CpuPid {
    /// All ones: nobody yet.
    pub const UNSET: Self = Self(CPUPID_MASK);

    /// The field for this CPU and PID.
    #[inline]
    pub const fn new(cpu: CpuId, pid: u32) -> Self {
        Self(((cpu.0 << PID_BITS) | (pid & 0xff)) & CPUPID_MASK)
    }
    /// From stored bits; higher ones are dropped.
    #[inline]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & CPUPID_MASK)
    }
    /// The 21 bits.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }
    /// The recorded CPU; of no meaning where unset.
    #[inline]
    pub const fn cpu(self) -> CpuId {
        CpuId(self.0 >> PID_BITS)
    }
    /// The recorded low bits of the PID.
    #[inline]
    pub const fn pid_bits(self) -> u32 {
        self.0 & 0xff
    }
    /// Nobody yet: all bits are ones.
    #[inline]
    pub const fn is_unset(self) -> bool {
        self.0 == CPUPID_MASK
    }
    /// The page filter's looser test: the PID's bits are all ones, as they are
    /// for every PID that is 255 modulo 256.
    #[inline]
    pub const fn is_pid_unset(self) -> bool {
        self.pid_bits() == 0xff
    }
    /// Whether the PID's bits are those of `pid`.
    #[inline]
    pub const fn matches(self, pid: u32) -> bool {
        self.pid_bits() == pid & 0xff
    }
    /// Whether a fault by `pid` on a page with this field is private: unset or matching.
    #[inline]
    pub const fn is_private_to(self, pid: u32) -> bool {
        self.is_unset() || self.matches(pid)
    }
    /// Whether the recorded CPU can exist on a machine of `nr_cpus`.
    #[inline]
    pub const fn has_valid_cpu(self, nr_cpus: u32) -> bool {
        self.0 >> PID_BITS < nr_cpus
    }
}

/// Flags of a hint fault, numbered as the kernel's TNF flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultFlags(pub u8);

impl FaultFlags {
    /// The page was moved.
    pub const MIGRATED: u8 = 1;
    /// No group from this fault: the mapping is not writable.
    pub const NO_GROUP: u8 = 2;
    /// A shared mapping, mapped by several.
    pub const SHARED: u8 = 4;
    /// The page was on the CPU's node.
    pub const LOCAL: u8 = 8;
    /// A migration failed.
    pub const FAILED: u8 = 16;

    /// Whether any of `bits` is set.
    #[inline]
    pub const fn has(self, bits: u8) -> bool {
        self.0 & bits != 0
    }
}

/// A hint fault to be accounted, once with all pages of the folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountedFault {
    /// The page's node, after a migration the new one.
    pub mem_node: NodeId,
    /// The task's node.
    pub cpu_node: NodeId,
    /// Pages of the folio.
    pub nr_pages: u64,
    /// TNF flags.
    pub flags: FaultFlags,
    /// Whether it is private, after grouping has had its say.
    pub private: bool,
}

/// Whether a fault is accounted at all: balancing is on, there is an address space, and the
/// page is not on a slow node, unless tiering is off and the page's last access was
/// recorded. [5.18] only leaves failed promotions out.
///
/// * `recorded_cpu_valid` – the page names a CPU that can exist; a page that nobody has
///   faulted on yet does not.
///
/// Source: specs/numa.md#accounting.
#[inline]
pub fn is_accounted(
    mode: Mode,
    has_mm: bool,
    mem_node_top_tier: bool,
    recorded_cpu_valid: bool,
    failed_promotion: bool,
    version: KernelVersion,
) -> bool {
    if !mode.enabled() || !has_mm {
        return false;
    }
    if version < KernelVersion::V6_1 {
        return !(failed_promotion && mode.tiering());
    }
    mem_node_top_tier || (!mode.tiering() && recorded_cpu_valid)
}

/// Place of *shared* in pairs of counters.
pub const SHARED: usize = 0;
/// Place of *private* in pairs of counters.
pub const PRIVATE: usize = 1;

/// Counters of one node, pairs of shared and private.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFaults {
    /// Average of fault pages by the page's node.
    pub mem: [u64; 2],
    /// Weighted average by the task's node.
    pub cpu: [u64; 2],
    /// Fault pages since the last placement, by the page's node.
    pub mem_buf: [u64; 2],
    /// Fault pages since the last placement, by the task's node.
    pub cpu_buf: [u64; 2],
}

/// Run time and wall time between two placements, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// CPU time the task has had.
    pub run_ns: u64,
    /// Wall time.
    pub period_ns: u64,
}

impl Runtime {
    /// The kernel's figures before the first placement: the load average's sum
    /// (47742 for a task that always runs) over its maximum.
    pub const fn first(load_sum: u64) -> Self {
        Self { run_ns: load_sum, period_ns: 47742 }
    }
}

/// Fault statistics of one task. `nodes` are indexed by [`NodeId`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFaults {
    /// One entry per node; empty before the first accounted fault.
    pub nodes: Vec<NodeFaults>,
    /// Sum of the memory averages.
    pub total: u64,
    /// Fault pages since the last adaptation on other nodes.
    pub remote: u64,
    /// Fault pages since the last adaptation on the own node.
    pub local: u64,
    /// Fault pages of failed migrations since the last adaptation.
    pub failed: u64,
    /// Where the task would be at home.
    pub preferred: Option<NodeId>,
    /// Pages moved for it.
    pub nr_migrated: u64,
    /// Tick from which placement may be tried.
    pub migrate_retry_jiffies: u64,
}

/// What a placement found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Fault pages of the buffers, shared and private; input of adaptation.
    pub fault_types: [u64; 2],
    /// The node with most memory faults (of the group, where there is one),
    /// before it is replaced by the nearest with CPUs; `None`: all were 0.
    pub max_node: Option<NodeId>,
}

impl TaskFaults {
    /// Adds a fault to the buffers. To be called after [`TaskFaults::placement_due`]
    /// has been asked: placement runs before the present fault counts.
    ///
    /// A shared fault between two active nodes of a group counts as local.
    ///
    /// Source: specs/numa.md#accounting.
    #[inline]
    pub fn account(&mut self, f: AccountedFault, group: Option<&GroupFaults>, nr_nodes: usize) {
        if self.nodes.is_empty() {
            self.nodes.resize(nr_nodes, NodeFaults::default());
        }
        let both_active = || {
            group.is_some_and(|g| {
                g.active_nodes > 1 && g.is_active(f.cpu_node) && g.is_active(f.mem_node)
            })
        };
        let local = f.flags.has(FaultFlags::LOCAL) || (!f.private && both_active());
        let kind = if f.private { PRIVATE } else { SHARED };
        if let Some(n) = self.nodes.get_mut(f.mem_node.index()) {
            n.mem_buf[kind] += f.nr_pages;
        }
        if let Some(n) = self.nodes.get_mut(f.cpu_node.index()) {
            n.cpu_buf[kind] += f.nr_pages;
        }
        *(if local { &mut self.local } else { &mut self.remote }) += f.nr_pages;
        if f.flags.has(FaultFlags::MIGRATED) {
            self.nr_migrated += f.nr_pages;
        }
        if f.flags.has(FaultFlags::FAILED) {
            self.failed += f.nr_pages;
        }
    }

    /// Whether placement is to be tried now; if so, sets the next time.
    ///
    /// Source: specs/numa.md#placement.
    #[inline]
    pub fn placement_due(&mut self, now_jiffies: u64, period_ms: u32) -> bool {
        if now_jiffies <= self.migrate_retry_jiffies {
            return false;
        }
        self.migrate_retry_jiffies =
            now_jiffies + HZ.min(msecs_to_jiffies(u64::from(period_ms)) / 16);
        true
    }

    /// Moves the buffers into the averages, of the task and of its group, once
    /// per scan sequence; `None` if `task` has seen `mm_seq` already.
    ///
    /// Source: specs/numa.md#placement.
    pub fn place(
        &mut self,
        task: &mut TaskScan,
        mm_seq: i32,
        runtime: Runtime,
        mut group: Option<&mut GroupFaults>,
    ) -> Option<Placement> {
        if task.seq == mm_seq {
            return None;
        }
        task.seq = mm_seq;
        let total_faults = self.local + self.remote;
        let weight = (u128::from(runtime.run_ns) << 16) / (u128::from(runtime.period_ns) + 1);
        let mut fault_types = [0; 2];
        let (mut max, mut max_node) = (0, None);
        self.total = 0;
        for (i, n) in self.nodes.iter_mut().enumerate() {
            let mut faults = 0;
            for k in [SHARED, PRIVATE] {
                fault_types[k] += n.mem_buf[k];
                let (old_mem, old_cpu) = (n.mem[k], n.cpu[k]);
                let share = weight * u128::from(n.cpu_buf[k]) / (u128::from(total_faults) + 1);
                n.mem[k] = halved(old_mem) + n.mem_buf[k];
                n.cpu[k] = halved(old_cpu) + u64::try_from(share).unwrap_or(u64::MAX >> 1);
                n.mem_buf[k] = 0;
                n.cpu_buf[k] = 0;
                faults += n.mem[k];
                if let Some(g) = group.as_deref_mut() {
                    g.replace(i, k, [old_mem, n.mem[k]], [old_cpu, n.cpu[k]]);
                }
            }
            self.total += faults;
            let judged = group.as_deref().map_or(faults, |g| g.mem(NodeId(i as u16)));
            if judged > max {
                (max, max_node) = (judged, Some(NodeId(i as u16)));
            }
        }
        if let Some(g) = group {
            g.count_active();
        }
        Some(Placement { fault_types, max_node })
    }

    /// What `exec` drops: the averages. Buffers, locality counters and the
    /// preferred node stay.
    ///
    /// Source: specs/numa.md#fork.
    pub fn exec(&mut self) {
        for n in &mut self.nodes {
            n.mem = [0; 2];
            n.cpu = [0; 2];
        }
        self.total = 0;
    }
}

/// `avg - avg/2`: what a halving leaves; 1 stays 1.
#[inline]
const fn halved(avg: u64) -> u64 {
    avg - avg / 2
}

/// Sums over the members of a NUMA group. `id` is the founder's PID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFaults {
    /// PID of the task that founded it.
    pub id: u32,
    /// Members.
    pub refs: u32,
    /// Memory and cpu averages of all members by node; buffers are not used.
    pub nodes: Vec<NodeFaults>,
    /// Nodes on which the group is active, as of the last placement.
    pub active_nodes: u32,
    /// Largest sum of cpu faults over the nodes, as of the last placement.
    pub max_cpu: u64,
}

impl GroupFaults {
    /// The group that `pid` founds.
    pub fn found(pid: u32, t: &TaskFaults) -> Self {
        let mut g = Self { id: pid, refs: 0, nodes: Vec::new(), active_nodes: 1, max_cpu: 0 };
        g.add(t);
        g
    }
    /// A task joins with its averages.
    pub fn add(&mut self, t: &TaskFaults) {
        if self.nodes.len() < t.nodes.len() {
            self.nodes.resize(t.nodes.len(), NodeFaults::default());
        }
        for (g, n) in self.nodes.iter_mut().zip(&t.nodes) {
            for k in [SHARED, PRIVATE] {
                g.mem[k] += n.mem[k];
                g.cpu[k] += n.cpu[k];
            }
        }
        self.refs += 1;
    }
    /// A task leaves with its averages; at 0 members the group ends.
    pub fn remove(&mut self, t: &TaskFaults) {
        for (g, n) in self.nodes.iter_mut().zip(&t.nodes) {
            for k in [SHARED, PRIVATE] {
                g.mem[k] = g.mem[k].saturating_sub(n.mem[k]);
                g.cpu[k] = g.cpu[k].saturating_sub(n.cpu[k]);
            }
        }
        self.refs = self.refs.saturating_sub(1);
    }
    /// Memory faults on a node.
    #[inline]
    pub fn mem(&self, node: NodeId) -> u64 {
        self.nodes.get(node.index()).map_or(0, |n| n.mem[0] + n.mem[1])
    }
    /// CPU faults on a node.
    #[inline]
    pub fn cpu(&self, node: NodeId) -> u64 {
        self.nodes.get(node.index()).map_or(0, |n| n.cpu[0] + n.cpu[1])
    }
    /// A node is active if three times its cpu faults exceed the largest node's.
    ///
    /// Source: specs/numa.md#groups.
    #[inline]
    pub fn is_active(&self, node: NodeId) -> bool {
        self.cpu(node) * 3 > self.max_cpu
    }
    /// The sums that scale the members' periods.
    pub fn scale(&self) -> super::period::GroupScale {
        let sum = |k: usize| self.nodes.iter().map(|n| n.mem[k]).sum();
        super::period::GroupScale { refs: self.refs, shared: sum(SHARED), private: sum(PRIVATE) }
    }

    fn replace(&mut self, node: usize, kind: usize, mem: [u64; 2], cpu: [u64; 2]) {
        if self.nodes.len() <= node {
            self.nodes.resize(node + 1, NodeFaults::default());
        }
        let n = &mut self.nodes[node];
        n.mem[kind] = n.mem[kind].saturating_sub(mem[0]) + mem[1];
        n.cpu[kind] = n.cpu[kind].saturating_sub(cpu[0]) + cpu[1];
    }

    fn count_active(&mut self) {
        let all = (0..self.nodes.len()).map(|i| NodeId(i as u16));
        self.max_cpu = all.clone().map(|n| self.cpu(n)).max().unwrap_or(0);
        self.active_nodes = all.filter(|n| self.is_active(*n)).count() as u32;
    }
}

/// Facts about a fault on a page that another task touched last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinFacts {
    /// The mapping is writable and the fault is not private.
    pub may_group: bool,
    /// The recorded PID bits match the task now running on the recorded CPU.
    pub running_matches: bool,
    /// That task has a group, and not the same.
    pub other_group: bool,
    /// Members of the own group.
    pub own_refs: u32,
    /// Members of the other.
    pub other_refs: u32,
    /// The own group lies at the higher address; decides between equals.
    pub own_is_higher: bool,
    /// Both tasks have one address space.
    pub same_mm: bool,
    /// The fault has [`FaultFlags::SHARED`].
    pub shared_page: bool,
}

/// Whether a task joins the other's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// It leaves its own and joins.
    Join,
    /// It stays.
    Stay,
    /// It stays, and the fault counts as private.
    StayPrivate,
}

/// The rule of joining. A task without a group founds one first, if `may_group`.
///
/// Source: specs/numa.md#groups.
#[inline]
pub fn join_rule(f: JoinFacts) -> Join {
    if !f.may_group || !f.running_matches || !f.other_group {
        return Join::Stay;
    }
    if f.own_refs > f.other_refs || (f.own_refs == f.other_refs && f.own_is_higher) {
        return Join::Stay;
    }
    if f.same_mm || f.shared_page { Join::Join } else { Join::StayPrivate }
}

#[cfg(test)]
mod tests;
