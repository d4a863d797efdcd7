//! Scheduling domains: which CPUs balance with which, level by level.
//!
//! Each CPU has a stack of *domains*, each spanning more CPUs than the one below. A domain is cut
//! into *groups*, the spans of the level below; balancing moves tasks between the groups of a domain.
//!
//! ```text
//!           CPU 0            two nodes, two cores a node, two threads a core
//!   NUMA  [0-7]              groups {0-3} {4-7}
//!   MC    [0-3]              groups {0,1} {2,3}
//!   SMT   [0-1]              groups {0} {1}
//! ```
//!
//! Levels that add nothing vanish: here CLS (as wide as SMT), PKG and NODE (as wide as MC). A ring
//! of groups is walked from the CPU's own one. CPUs of one span share the domain, its ring and the
//! bitmaps; what changes is kept elsewhere, by [`Domains::slot`].
//!
//! A CPU is a *place*: its index among the machine's CPUs, which rise by number.
//!
//! Source: specs/sched-balance.md#levels (Linux 6.12).

mod build;

mod span;

#[cfg(test)]
pub(super) mod shapes;

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::{BitAnd, BitOr};

use crate::topology::Hardware;

pub use span::Span;
use span::{SpanId, Spans};

/// What a domain or a group does and is; the kernel's `SD_` flags.
///
/// Source: specs/sched-balance.md#flags.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flags(u16);

/// Each flag with the name that debugfs prints, in its order.
const NAMES: [(Flags, &str); 13] = [
    (Flags::BALANCE_NEWIDLE, "SD_BALANCE_NEWIDLE"),
    (Flags::BALANCE_EXEC, "SD_BALANCE_EXEC"),
    (Flags::BALANCE_FORK, "SD_BALANCE_FORK"),
    (Flags::WAKE_AFFINE, "SD_WAKE_AFFINE"),
    (Flags::ASYM_CPUCAPACITY, "SD_ASYM_CPUCAPACITY"),
    (Flags::ASYM_CPUCAPACITY_FULL, "SD_ASYM_CPUCAPACITY_FULL"),
    (Flags::SHARE_CPUCAPACITY, "SD_SHARE_CPUCAPACITY"),
    (Flags::CLUSTER, "SD_CLUSTER"),
    (Flags::SHARE_LLC, "SD_SHARE_LLC"),
    (Flags::SERIALIZE, "SD_SERIALIZE"),
    (Flags::PREFER_SIBLING, "SD_PREFER_SIBLING"),
    (Flags::OVERLAP, "SD_OVERLAP"),
    (Flags::NUMA, "SD_NUMA"),
];

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    /// A CPU that goes idle balances here.
    pub const BALANCE_NEWIDLE: Self = Self(1);
    /// exec may move a task within it.
    pub const BALANCE_EXEC: Self = Self(1 << 1);
    /// fork may place a task anywhere in it.
    pub const BALANCE_FORK: Self = Self(1 << 2);
    /// A wakee may be drawn to its waker within it.
    pub const WAKE_AFFINE: Self = Self(1 << 3);
    /// It spans CPUs of several capacities.
    pub const ASYM_CPUCAPACITY: Self = Self(1 << 4);
    /// It spans CPUs of all capacities that are online.
    pub const ASYM_CPUCAPACITY_FULL: Self = Self(1 << 5);
    /// Its CPUs are threads of one core.
    pub const SHARE_CPUCAPACITY: Self = Self(1 << 6);
    /// Its CPUs share what lies between core and LLC.
    pub const CLUSTER: Self = Self(1 << 7);
    /// Its CPUs share the last-level cache.
    pub const SHARE_LLC: Self = Self(1 << 8);
    /// One CPU of the machine at a time balances here.
    pub const SERIALIZE: Self = Self(1 << 9);
    /// Tasks are spread over the groups of the domain above.
    pub const PREFER_SIBLING: Self = Self(1 << 10);
    /// Its groups may overlap.
    pub const OVERLAP: Self = Self(1 << 11);
    /// It spans several nodes.
    pub const NUMA: Self = Self(1 << 12);

    /// Those that mean something between several groups only.
    const NEED_GROUPS: Self = Self(((1 << 13) - 1) & !Self::WAKE_AFFINE.0);

    /// Whether any of `flags` is set.
    #[inline]
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }
    /// All but `flags`.
    #[inline]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }
    /// The names that debugfs prints, in its order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().filter(move |&(flag, _)| self.has(flag)).map(|(_, name)| name)
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Flags {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(" "))
    }
}

crate::named! {
    /// Which level of the topology a domain is; its name as the kernel prints it.
    ///
    /// Source: specs/sched-balance.md#levels.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Kind {
        /// Threads of a core.
        Smt => "SMT",
        /// Cores that share a level-2 cache.
        Cls => "CLS",
        /// CPUs that share the last-level cache.
        Mc => "MC",
        /// CPUs of a node.
        Pkg => "PKG",
        /// CPUs of nodes at local distance.
        Node => "NODE",
        /// CPUs of nodes within some distance.
        Numa => "NUMA",
    }
}

/// A CPU, as far as domains are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its node's place among the machine's nodes.
    pub node: u16,
    /// Its package; matters only where packages hold several nodes.
    pub package: u32,
    /// Its last-level cache. CPUs of two nodes never count as sharing one.
    pub llc: u32,
    /// Its cluster, where several cores share a level-2 cache.
    pub cluster: Option<u32>,
    /// Its core.
    pub core: u32,
    /// Its capacity at full speed, of 1024.
    pub capacity: u32,
}

/// What domains are built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// CPUs by place.
    pub cpus: Vec<Site>,
    /// `distances[i][j]`: from node place `i` to node place `j`; at least as wide as the highest node.
    pub distances: Vec<Vec<u32>>,
    /// Nodes farther apart than this are too far for fork, exec and affine wake-ups: 30, on AMD's
    /// Zen 32.
    pub reclaim_distance: u32,
}

impl Layout {
    /// That of a machine. It knows no clusters; nodes that share a last-level cache are taken for one
    /// package, each other node for one of its own.
    pub fn of(machine: &Hardware) -> Self {
        Self::of_cpus(&machine.cpus, &machine.nodes, &machine.distances)
    }

    /// The same of its parts: a CPU's place is that in `cpus`, a node's that in `nodes`.
    pub fn of_cpus(
        cpus: &[crate::topology::Cpu],
        nodes: &[crate::topology::Node],
        distances: &[Vec<u32>],
    ) -> Self {
        let node = |c: &crate::topology::Cpu| {
            nodes.iter().position(|n| n.id == c.node).unwrap_or(0) as u16
        };
        let mut first_node = std::collections::BTreeMap::new();
        for c in cpus {
            first_node.entry(c.llc).or_insert_with(|| node(c));
        }
        let site = |c: &crate::topology::Cpu| Site {
            node: node(c),
            package: u32::from(first_node[&c.llc]),
            llc: c.llc,
            cluster: None,
            core: c.core,
            capacity: c.capacity,
        };
        Self {
            cpus: cpus.iter().map(site).collect(),
            distances: distances.to_vec(),
            reclaim_distance: 30,
        }
    }

    /// Whether a package holds several nodes: then there is no PKG level.
    fn numa_in_package(&self) -> bool {
        let mut of: Vec<(u32, u16)> = self.cpus.iter().map(|c| (c.package, c.node)).collect();
        of.sort_unstable();
        of.dedup();
        of.windows(2).any(|w| w[0].0 == w[1].0)
    }
}

/// A domain, shared by the CPUs that it looks the same to.
///
/// Source: specs/sched-balance.md#flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its level's kind.
    pub kind: Kind,
    /// Its level among all that were built, as debugfs' `level`: those that vanished count.
    pub level: u8,
    /// What it does and is.
    pub flags: Flags,
    /// CPUs that it spans.
    pub weight: u32,
    /// By how much, in percent of a hundred, one group has to exceed another.
    pub imbalance_pct: u32,
    /// Failed balancings after which a cache-hot task goes.
    pub cache_nice_tries: u32,
    /// How many tasks one node may have more than another.
    pub imb_numa_nr: u32,
    span: SpanId,
    /// Where its ring stands in `Domains::rings`, and how long it is.
    ring: (u32, u32),
}

impl Domain {
    /// Milliseconds between balancings at first and at least, where the CPU is idle.
    #[inline]
    pub const fn min_interval(&self) -> u32 {
        self.weight
    }
    /// Where doubling stops, in ms.
    #[inline]
    pub const fn max_interval(&self) -> u32 {
        2 * self.weight
    }
    /// Groups in its ring.
    pub const fn nr_groups(&self) -> usize {
        self.ring.1 as usize
    }
}

/// How many times longer intervals are where the CPU is busy.
pub const BUSY_FACTOR: u32 = 16;

/// A group of a domain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// CPUs in it.
    pub weight: u32,
    /// Cores in it.
    pub cores: u32,
    /// Flags of the domain of the level below that it is; none for a single CPU.
    pub flags: Flags,
    /// Number of its capacity among all: equal groups share one.
    pub capacity: u32,
    span: SpanId,
    balance: SpanId,
    /// Where its CPUs stand among all members.
    members: (u32, u32),
}

/// The stacks of all CPUs. They never change: when a CPU comes or goes they are built anew.
#[derive(Clone, Debug)]
pub struct Domains {
    nr_online: u32,
    smt_active: bool,
    asym: bool,
    online: SpanId,
    spans: Spans,
    domains: Vec<Domain>,
    groups: Vec<Group>,
    rings: Vec<u32>,
    /// By slot: the domain, and the own group's index in its ring.
    stacks: Vec<(u32, u32)>,
    /// By CPU: its first slot; one more at the end.
    base: Vec<u32>,
    cpus: Vec<Cpu>,
    nr_capacities: u32,
    llcs: Vec<SpanId>,
}

/// What is looked up by CPU.
#[derive(Clone, Copy, Debug)]
struct Cpu {
    siblings: SpanId,
    node: u16,
    original: u32,
    /// First CPU of its cluster, or else of its LLC.
    share_id: u16,
    /// Number of the LLC that its `llc_level` spans.
    llc: u32,
    llc_level: u8,
    numa_level: u8,
    asym_level: u8,
}

/// No such level.
const NO_LEVEL: u8 = u8::MAX;

const fn level(l: u8) -> Option<usize> {
    if l == NO_LEVEL { None } else { Some(l as usize) }
}

impl Domains {
    /// Builds the stacks of the CPUs that are `online`, a bitmap by place. Places beyond the layout
    /// are left out; CPUs that are offline have no domain.
    ///
    /// Source: specs/sched-balance.md#levels, specs/sched-balance.md#groups.
    pub fn new(layout: &Layout, online: &[u64]) -> Self {
        build::build(layout, online)
    }

    /// CPUs, offline ones too.
    #[inline]
    pub fn nr_cpus(&self) -> usize {
        self.cpus.len()
    }
    /// CPUs that are online.
    #[inline]
    pub fn nr_online(&self) -> u32 {
        self.nr_online
    }
    /// Those that are online.
    #[inline]
    pub fn online(&self) -> Span<'_> {
        self.spans.get(self.online)
    }
    /// Whether a core has several threads online.
    #[inline]
    pub fn smt_active(&self) -> bool {
        self.smt_active
    }
    /// Whether CPUs differ in capacity, so that their domains say so.
    #[inline]
    pub fn asym(&self) -> bool {
        self.asym
    }
    /// How many levels a CPU's stack has; none for a CPU that is offline or alone.
    #[inline]
    pub fn levels(&self, cpu: usize) -> usize {
        (self.base[cpu + 1] - self.base[cpu]) as usize
    }
    /// The domain of a CPU at a level, counted from 0 at the bottom.
    #[inline]
    pub fn at(&self, cpu: usize, level: usize) -> &Domain {
        &self.domains[self.stacks[self.slot(cpu, level)].0 as usize]
    }
    /// Index of a CPU's level in arrays of [`Self::slots`] entries.
    #[inline]
    pub fn slot(&self, cpu: usize, level: usize) -> usize {
        debug_assert!(level < self.levels(cpu), "the CPU has fewer levels");
        self.base[cpu] as usize + level
    }
    /// The addresses of what is looked up of a CPU, and of its levels from a slot on, for who has it fetched before.
    #[inline]
    pub fn addresses(&self, cpu: usize, slot: usize) -> [usize; 2] {
        let (cpu, level) = (&raw const self.cpus[cpu], &raw const self.stacks[slot]);
        [cpu.addr(), level.addr()]
    }
    /// Levels of all CPUs.
    #[inline]
    pub fn slots(&self) -> usize {
        self.stacks.len()
    }
    /// Different capacities of groups.
    #[inline]
    pub fn nr_capacities(&self) -> usize {
        self.nr_capacities as usize
    }
    /// The CPUs that a domain spans.
    #[inline]
    pub fn span(&self, domain: &Domain) -> Span<'_> {
        self.spans.get(domain.span)
    }
    /// The groups of a CPU's domain, from its own one on, once round.
    #[inline]
    pub fn groups(&self, cpu: usize, level: usize) -> impl Iterator<Item = &Group> + '_ {
        let [from, before] = self.ring(cpu, level);
        from.iter().chain(before).map(|&g| self.group(g))
    }
    /// The same by number: those from its own one on, and those before it. Each of the two rises by first CPU.
    #[inline]
    pub(super) fn ring(&self, cpu: usize, level: usize) -> [&[u32]; 2] {
        let (domain, own) = self.stacks[self.slot(cpu, level)];
        let (at, len) = self.domains[domain as usize].ring;
        let ring = &self.rings[at as usize..(at + len) as usize];
        let (before, from) = ring.split_at(own as usize);
        [from, before]
    }
    /// The group of a number.
    #[inline]
    pub(super) fn group(&self, number: u32) -> &Group {
        &self.groups[number as usize]
    }
    /// A CPU's own group at a level.
    #[inline]
    pub fn local(&self, cpu: usize, level: usize) -> &Group {
        let (domain, own) = self.stacks[self.slot(cpu, level)];
        let (at, _) = self.domains[domain as usize].ring;
        &self.groups[self.rings[(at + own) as usize] as usize]
    }
    /// CPUs of a group, rising.
    #[inline]
    pub fn members(&self, group: &Group) -> &[u16] {
        self.spans.members_at(group.members)
    }
    /// CPUs of a group as a bitmap.
    #[inline]
    pub fn group_span(&self, group: &Group) -> Span<'_> {
        self.spans.get(group.span)
    }
    /// CPUs that may balance for a group, rising. Never empty.
    #[inline]
    pub fn balance_mask(&self, group: &Group) -> &[u16] {
        self.spans.members(group.balance)
    }
    /// Threads of a CPU's core that are online, itself included, rising; itself alone where it is offline.
    #[inline]
    pub fn siblings(&self, cpu: usize) -> &[u16] {
        self.spans.members(self.cpus[cpu].siblings)
    }
    /// Place of a CPU's node.
    #[inline]
    pub fn node(&self, cpu: usize) -> u16 {
        self.cpus[cpu].node
    }
    /// A CPU's capacity at full speed, of 1024.
    #[inline]
    pub fn original(&self, cpu: usize) -> u32 {
        self.cpus[cpu].original
    }
    /// The highest level of a CPU's stack within its last-level cache (`sd_llc`).
    #[inline]
    pub fn llc_level(&self, cpu: usize) -> Option<usize> {
        level(self.cpus[cpu].llc_level)
    }
    /// The number of a CPU's LLC, from 0 to [`Self::nr_llcs`]; `None` where it shares none.
    #[inline]
    pub fn llc(&self, cpu: usize) -> Option<usize> {
        self.llc_level(cpu).map(|_| self.cpus[cpu].llc as usize)
    }
    /// LLCs that several CPUs share.
    #[inline]
    pub fn nr_llcs(&self) -> usize {
        self.llcs.len()
    }
    /// CPUs of an LLC.
    #[inline]
    pub fn llc_span(&self, llc: usize) -> Span<'_> {
        self.spans.get(self.llcs[llc])
    }
    /// CPUs that share a CPU's LLC, itself included (`sd_llc_size`).
    #[inline]
    pub fn llc_size(&self, cpu: usize) -> u32 {
        self.llc_level(cpu).map_or(1, |l| self.at(cpu, l).weight)
    }
    /// First CPU of a CPU's LLC (`sd_llc_id`): equal for CPUs that share a cache.
    #[inline]
    pub fn llc_id(&self, cpu: usize) -> usize {
        self.llc(cpu).map_or(cpu, |l| usize::from(self.spans.members(self.llcs[l])[0]))
    }
    /// First CPU of a CPU's cluster, or else of its LLC (`sd_share_id`).
    #[inline]
    pub fn share_id(&self, cpu: usize) -> usize {
        usize::from(self.cpus[cpu].share_id)
    }
    /// The lowest level that spans several nodes (`sd_numa`).
    #[inline]
    pub fn numa_level(&self, cpu: usize) -> Option<usize> {
        level(self.cpus[cpu].numa_level)
    }
    /// The lowest level that spans all capacities (`sd_asym_cpucapacity`).
    #[inline]
    pub fn asym_level(&self, cpu: usize) -> Option<usize> {
        level(self.cpus[cpu].asym_level)
    }
    /// The lowest level of `cpu`'s stack that spans `other` as well.
    pub fn common(&self, cpu: usize, other: usize) -> Option<usize> {
        (0..self.levels(cpu)).find(|&l| self.span(self.at(cpu, l)).contains(other))
    }
    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.spans.bytes()
            + self.domains.capacity() * size_of::<Domain>()
            + self.groups.capacity() * size_of::<Group>()
            + self.rings.capacity() * size_of::<u32>()
            + self.stacks.capacity() * size_of::<(u32, u32)>()
            + self.base.capacity() * size_of::<u32>()
            + self.cpus.capacity() * size_of::<Cpu>()
            + self.llcs.capacity() * size_of::<SpanId>()
    }
}
