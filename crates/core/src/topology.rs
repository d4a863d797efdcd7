//! A machine as data: nodes, CPUs, caches, distances, and what each pair of
//! nodes takes to reach one another.
//!
//! ```text
//!        node 0 (CPUs 0-1, DRAM)          node 2 (no CPU, CXL)
//!   ┌──────────────────────────────┐    ┌──────────────────────┐
//!   │ core 0   core 1   LLC  DRAM  │ ─▶ │ expander's DRAM      │
//!   └──────────────────────────────┘    └──────────────────────┘
//!      distance 10 to itself, 20 to node 2; link (0, 2) holds the
//!      latency and bandwidth that CPUs of node 0 see there
//! ```

use crate::costs::{Constant, Cost, Costs, Origin, Shown, Unit};
use crate::curve::{Curve, Walk, Wrong};
use crate::loaded::{Loaded, Path};
use crate::sched::idle::{IdleState, Table};
use crate::units::{Bytes, CpuId, NodeId, PAGE_SIZE, Pages, count};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Distance of a node to itself in the kernel's table.
pub const LOCAL_DISTANCE: u32 = 10;
/// Distance that the kernel takes where firmware says nothing.
pub const REMOTE_DISTANCE: u32 = 20;
/// Largest distance; the kernel takes 255 as unreachable.
pub const MAX_DISTANCE: u32 = 254;
/// Nodes that Debian's kernels can have.
pub const MAX_NODES: u16 = 1024;
/// CPUs that Debian's kernels can have.
pub const MAX_CPUS: u32 = 8192;
/// Largest size of a node or a mapping, in bytes.
pub const MAX_SIZE: u64 = 1 << 52;
/// Smallest and largest latency, in picoseconds: up to a millisecond.
pub const LATENCY_BOUNDS: (u64, u64) = (1, 1_000_000_000);
/// Smallest and largest bandwidth, in MB/s: up to a petabyte a second.
pub const BANDWIDTH_BOUNDS: (u64, u64) = (1, 1_000_000_000);
/// Smallest and largest time about an idle state, in picoseconds: up to a second.
pub const IDLE_BOUNDS: (u64, u64) = (0, 1_000_000_000_000);
/// Idle states that the kernel's tables have room for.
pub const MAX_IDLE_STATES: usize = 10;
/// Smallest and largest clock of a CPU, in MHz.
pub const MHZ_BOUNDS: (u32, u32) = (1, 100_000);

crate::named! {
    /// What a node's memory is made of. Decides the default abstract distance, as
    /// the kernel's drivers do (specs/tiering.md#tiers).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Medium {
        /// Ordinary memory, onlined by the firmware's map.
        Dram => "dram",
        /// An expander behind a link, onlined by dax/kmem.
        Cxl => "cxl",
        /// Persistent memory, onlined by dax/kmem.
        Pmem => "pmem",
    }
}

impl Medium {
    /// By whose curve its latency grows under load.
    pub const fn path(self) -> Path {
        match self {
            Self::Dram => Path::Dram,
            Self::Cxl => Path::Cxl,
            Self::Pmem => Path::Pmem,
        }
    }
}

crate::named! {
    /// A zone's kind, in the order in which the kernel stacks them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum ZoneKind {
        /// Below 16 MiB.
        Dma => "dma",
        /// Below 4 GiB.
        Dma32 => "dma32",
        /// All other memory.
        Normal => "normal",
        /// Memory that holds movable pages only.
        Movable => "movable",
    }
}

impl ZoneKind {
    /// What `/proc/zoneinfo` calls it.
    pub const fn in_kernel(self) -> &'static str {
        match self {
            Self::Dma => "DMA",
            Self::Dma32 => "DMA32",
            Self::Normal => "Normal",
            Self::Movable => "Movable",
        }
    }
    /// The kind that `/proc/zoneinfo` calls so; `None`: one that isn't modelled.
    pub fn of_kernel(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.in_kernel() == name)
    }
}

/// A zone of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its kind; one zone of each kind at most.
    pub kind: ZoneKind,
    /// Managed pages.
    pub managed: Pages,
}

/// A memory node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: NodeId,
    /// Its medium.
    pub medium: Medium,
    /// Its zones in rising order; the sum is the node's size. Empty nodes have none.
    pub zones: Vec<Zone>,
}

impl Node {
    /// Managed pages in all zones.
    pub fn managed(&self) -> Pages {
        self.zones.iter().map(|z| z.managed).sum()
    }
    /// The node's size.
    pub fn size(&self) -> Bytes {
        self.managed().bytes()
    }
}

/// The capacity of a CPU at full speed, as the kernel has it.
pub const SCHED_CAPACITY_SCALE: u32 = 1024;

/// A logical CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub id: CpuId,
    /// The node it belongs to.
    pub node: NodeId,
    /// Physical core: CPUs with the same number are SMT siblings.
    pub core: u32,
    /// Last-level cache: CPUs with the same number share it.
    pub llc: u32,
    /// How fast it computes, of [`SCHED_CAPACITY_SCALE`]: its `cpu_capacity`.
    pub capacity: u32,
    /// Its nominal clock in MHz; `None`: the file doesn't say.
    pub mhz: Option<u32>,
}

crate::named! {
    /// What wakes a CPU that is in an idle state.
    ///
    /// Source: specs/idle.md#wake.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum WokenBy {
        /// A store to the line that it watches: POLL, and states that are entered by MWAIT.
        Store => "store",
        /// An interrupt: HLT, states that are entered through an I/O port, guests.
        #[default]
        Interrupt => "interrupt",
    }
}

/// An idle state of a machine's CPUs, and what it costs. Times are in picoseconds.
///
/// Source: specs/idle.md#states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleCosts {
    /// As `cpuidle` names it.
    pub name: String,
    /// The CPU does not sleep: it looks for work all the time. The first state at most.
    pub polls: bool,
    /// What wakes a CPU from it.
    pub woken_by: WokenBy,
    /// The longest that leaving takes, as the governor believes: what drivers and firmware say.
    pub exit_latency: Constant,
    /// How long a stay has to be to pay, as the governor believes.
    pub target_residency: Constant,
    /// What leaving takes; `None`: the exit latency.
    pub wake_latency: Option<Constant>,
}

impl IdleCosts {
    /// The states of a CPU model, all but POLL woken by the same.
    ///
    /// Source: specs/idle.md#states.
    pub fn of_table(table: Table, woken_by: WokenBy) -> Vec<Self> {
        let time = |ns: u64| Constant {
            value: ns * 1000,
            spread: None,
            method: format!("the table of {}: drivers, or firmware", table.name()),
            origin: Origin::Quoted,
        };
        let costs = |s: IdleState| Self {
            woken_by: if s.polls { WokenBy::Store } else { woken_by },
            exit_latency: time(s.exit_latency_ns),
            target_residency: time(s.target_residency_ns),
            wake_latency: None,
            polls: s.polls,
            name: s.name,
        };
        table.states().into_iter().map(costs).collect()
    }
    /// The state as the governor sees it.
    pub fn state(&self) -> IdleState {
        IdleState {
            name: self.name.clone(),
            exit_latency_ns: self.exit_latency.value / 1000,
            target_residency_ns: self.target_residency.value / 1000,
            polls: self.polls,
        }
    }
    /// What leaving it takes, in picoseconds.
    pub fn leaving(&self) -> u64 {
        self.wake_latency.as_ref().unwrap_or(&self.exit_latency).value
    }
}

/// A data or unified cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u8,
    /// Size of one instance.
    pub size: Bytes,
    /// Associativity.
    pub ways: u32,
    /// Line size in bytes.
    pub line: u32,
    /// CPUs that share one instance.
    pub shared_by: u32,
    /// Load-to-use latency in picoseconds.
    pub latency: Constant,
}

/// What the CPUs of `from` see in the memory of `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The initiator's node; it has CPUs.
    pub from: NodeId,
    /// The target's node; it has memory.
    pub to: NodeId,
    /// Latency of a dependent random load, unloaded, in picoseconds.
    pub read_latency: Constant,
    /// Latency of a store that misses, unloaded, in picoseconds.
    pub write_latency: Constant,
    /// Read bandwidth in MB/s.
    pub read_bandwidth: Constant,
    /// Write bandwidth in MB/s.
    pub write_bandwidth: Constant,
}

/// A machine: what stands in a machine's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// A short name for captions.
    pub name: String,
    /// One sentence: CPU model, kernel, where the figures come from.
    pub about: String,
    /// Nodes in rising order of their numbers.
    pub nodes: Vec<Node>,
    /// CPUs in rising order of their numbers.
    pub cpus: Vec<Cpu>,
    /// Data caches in rising order of their levels.
    pub caches: Vec<Cache>,
    /// `distances[i][j]`: from `nodes[i]` to `nodes[j]`, the kernel's table.
    pub distances: Vec<Vec<u32>>,
    /// One for each pair of a node with CPUs and a node with memory.
    pub links: Vec<Link>,
    /// Idle states of its CPUs, the shallowest first. Without any, leaving idle takes `wake_idle`
    /// or `wake_deep` and no governor is asked (specs/idle.md#without).
    pub idle_states: Vec<IdleCosts>,
    /// What an access takes by footprint, one for each way of walking at most. None: caches are what
    /// their sizes and latencies say.
    pub curves: Vec<Curve>,
    /// How latencies grow with load, one for each path at most. What has none grows as published.
    pub loaded: Vec<Loaded>,
    /// Why costs and loaded latencies that the file leaves out are homenode's on purpose, one sentence.
    /// `None`: the file says nothing of them, and captions say so.
    pub defaults: Option<String>,
    /// Everything that belongs to no pair.
    pub costs: Costs,
}

/// What a machine's file leaves out, so that homenode's defaults count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Costs, in the order of their table.
    pub costs: Vec<Cost>,
    /// Paths whose latencies grow as published of their kind.
    pub loaded: Vec<Path>,
}

/// A list of a machine, for pointing into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// [`Hardware::nodes`].
    Nodes,
    /// [`Hardware::cpus`].
    Cpus,
    /// [`Hardware::caches`].
    Caches,
}

/// A constant of a machine, for pointing at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Of the cache at this index.
    Cache(usize),
    /// Of the link at this index: the key in the machine's file.
    Link(usize, &'static str),
    /// Of the idle state at this index: the key in the machine's file.
    Idle(usize, &'static str),
    /// Of the machine as a whole.
    Cost(Cost),
}

/// Why a machine is impossible: the first thing found, with the offender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// No node, or none with memory, or none with a CPU.
    Nothing(&'static str),
    /// The entry at this index of a list has a number that occurs twice, is out of
    /// order or out of range.
    Order(List, usize, String),
    /// A CPU names a node that is not there, or shares a core with another node's.
    Cpu(CpuId, String),
    /// The zones of a node are out of order or doubled.
    Zones(NodeId, usize, &'static str),
    /// The table of distances has not one row and one column per node; the row, or
    /// `None` where rows are missing.
    Shape(Option<usize>, String),
    /// A distance is not what the kernel accepts.
    Distance(NodeId, NodeId, u32, &'static str),
    /// The link from one node to another is missing, doubled, or names a node that
    /// cannot be its end.
    Link(NodeId, NodeId, &'static str),
    /// A size of a node's zone, in bytes, is 0 or beyond 2^52.
    Size(NodeId, usize, u64),
    /// A cache's property is impossible.
    Cache(usize, &'static str),
    /// An idle state's property, by its key, is impossible.
    Idle(usize, &'static str, String),
    /// A curve is impossible: which one.
    Curve(usize, Wrong),
    /// A loaded latency is impossible: which one.
    Loaded(usize, Wrong),
    /// A constant lies outside its bounds.
    Bounds(Place, String),
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing(what) => write!(f, "{what}"),
            Self::Order(_, _, what) => write!(f, "{what}"),
            Self::Cpu(cpu, what) => write!(f, "CPU {cpu} {what}"),
            Self::Zones(node, _, what) => write!(f, "node {node}: {what}"),
            Self::Shape(_, what) => write!(f, "{what}"),
            Self::Distance(from, to, d, what) => {
                write!(f, "distance {d} from node {from} to node {to}: {what}")
            }
            Self::Link(from, to, what) => write!(f, "link from node {from} to node {to}: {what}"),
            Self::Size(node, _, size) => write!(
                f,
                "a zone of node {node} has {size} bytes; a size lies between one page of \
                 {PAGE_SIZE} bytes and 2^52 bytes (leave the zone out where there is no memory)"
            ),
            Self::Cache(_, what) => write!(f, "{what}"),
            Self::Idle(_, _, what) => write!(f, "{what}"),
            Self::Curve(_, wrong) | Self::Loaded(_, wrong) => write!(f, "{wrong}"),
            Self::Bounds(_, what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for Impossible {}

impl Hardware {
    /// All zones of all nodes.
    pub fn zones(&self) -> Vec<Zone> {
        self.nodes.iter().flat_map(|n| n.zones.iter().copied()).collect()
    }
    /// The node's place in `nodes`, if it is there.
    pub fn position(&self, id: NodeId) -> Option<usize> {
        self.nodes.binary_search_by_key(&id, |n| n.id).ok()
    }
    /// Distance from node `a` to node `b`; `None` if either is not there.
    pub fn distance(&self, a: NodeId, b: NodeId) -> Option<u32> {
        Some(self.distances[self.position(a)?][self.position(b)?])
    }
    /// What CPUs of `from` see in the memory of `to`.
    pub fn link(&self, from: NodeId, to: NodeId) -> Option<&Link> {
        self.links.iter().find(|l| l.from == from && l.to == to)
    }
    /// A node's own read and write bandwidth, in MB/s: what its best initiators see.
    pub fn bandwidth(&self, of: NodeId) -> [u64; 2] {
        let best = |f: fn(&Link) -> &Constant| {
            self.links.iter().filter(|l| l.to == of).map(|l| f(l).value).max().unwrap_or(0)
        };
        [best(|l| &l.read_bandwidth), best(|l| &l.write_bandwidth)]
    }
    /// What an access takes by footprint, where that was measured.
    pub fn curve(&self, walk: Walk) -> Option<&Curve> {
        self.curves.iter().find(|c| c.walk == walk)
    }
    /// How latencies grow with load there: as the machine's file says, or as published.
    pub fn loaded(&self, path: Path) -> Loaded {
        let own = self.loaded.iter().find(|l| l.path == path);
        own.cloned().unwrap_or_else(|| Loaded::published(path))
    }
    /// Costs and loaded latencies that nobody has given for this machine, so that homenode's count: those
    /// that its file leaves out, of paths that it has. None where the file says that this is meant.
    pub fn left_out(&self) -> LeftOut {
        if self.defaults.is_some() {
            return LeftOut::default();
        }
        let costs = Cost::ALL.iter().copied().filter(|cost| !self.costs.0.contains_key(cost));
        let media = self.nodes.iter().filter(|n| !n.zones.is_empty()).map(|n| n.medium.path());
        let mut paths: Vec<Path> = media.collect();
        let sockets: BTreeSet<NodeId> = self.cpus.iter().map(|c| c.node).collect();
        if sockets.len() > 1 {
            paths.push(Path::Socket);
        }
        paths.sort_unstable();
        paths.dedup();
        paths.retain(|path| self.loaded.iter().all(|l| l.path != *path));
        LeftOut { costs: costs.collect(), loaded: paths }
    }
    /// CPUs of a node, in rising order.
    pub fn cpus_of(&self, node: NodeId) -> impl Iterator<Item = CpuId> + '_ {
        self.cpus.iter().filter(move |c| c.node == node).map(|c| c.id)
    }
    /// Whether the node has a CPU.
    pub fn has_cpu(&self, node: NodeId) -> bool {
        self.cpus.iter().any(|c| c.node == node)
    }

    /// Whether such a machine can exist.
    ///
    /// Legal, though rare: asymmetric distances, nodes without CPUs, nodes without
    /// memory, nodes with neither.
    ///
    /// # Errors
    /// The first thing that is impossible, in the order of a machine's file.
    pub fn check(&self) -> Result<(), Impossible> {
        self.check_nodes()?;
        self.check_cpus()?;
        self.check_caches()?;
        self.check_distances()?;
        self.check_links()?;
        self.check_idle_states()?;
        self.check_curves()?;
        self.check_loaded()?;
        for (&cost, constant) in &self.costs.0 {
            within(Place::Cost(cost), cost.unit(), cost.bounds(), constant)?;
        }
        Ok(())
    }

    fn check_nodes(&self) -> Result<(), Impossible> {
        let nothing = |fits, why| ensure(fits, || Impossible::Nothing(why));
        nothing(!self.nodes.is_empty(), "a machine has at least one node")?;
        for (i, node) in self.nodes.iter().enumerate() {
            let id = node.id;
            let size = |z, n: Pages| Impossible::Size(id, z, n.0.saturating_mul(PAGE_SIZE));
            ensure(id.0 < MAX_NODES, || {
                let most = MAX_NODES - 1;
                let what = format!("node {id}: a node's number lies between 0 and {most}");
                Impossible::Order(List::Nodes, i, what)
            })?;
            rising(List::Nodes, i, "node", self.nodes[..i].last().map(|n| n.id.0.into()), id.0)?;
            for (z, zone) in node.zones.iter().enumerate() {
                let fits = (1..=MAX_SIZE / PAGE_SIZE).contains(&zone.managed.0);
                ensure(fits, || size(z, zone.managed))?;
                let order = "a node has one zone of a kind at most, in the order dma, dma32, normal, movable";
                let rises = z == 0 || node.zones[z - 1].kind < zone.kind;
                ensure(rises, || Impossible::Zones(id, z, order))?;
            }
            ensure(node.managed().0 <= MAX_SIZE / PAGE_SIZE, || size(0, node.managed()))?;
        }
        let memory = self.nodes.iter().any(|n| !n.zones.is_empty());
        nothing(memory, "a machine has at least one node with memory")
    }

    fn check_cpus(&self) -> Result<(), Impossible> {
        ensure(!self.cpus.is_empty(), || Impossible::Nothing("a machine has at least one CPU"))?;
        let mut core_node = BTreeMap::new();
        for (i, cpu) in self.cpus.iter().enumerate() {
            let wrong = |what: String| Err(Impossible::Cpu(cpu.id, what));
            ensure(cpu.id.0 < MAX_CPUS, || {
                let (id, most) = (cpu.id, MAX_CPUS - 1);
                let what = format!("CPU {id}: a CPU's number lies between 0 and {most}");
                Impossible::Order(List::Cpus, i, what)
            })?;
            if !(1..=SCHED_CAPACITY_SCALE).contains(&cpu.capacity) {
                return wrong(format!(
                    "has a capacity of {}; it lies between 1 and {SCHED_CAPACITY_SCALE}, the fastest CPU's",
                    cpu.capacity
                ));
            }
            let (low, high) = MHZ_BOUNDS;
            if let Some(mhz) = cpu.mhz.filter(|mhz| !(low..=high).contains(mhz)) {
                return wrong(format!(
                    "has {mhz} MHz; its clock lies between {low} and {high} MHz"
                ));
            }
            if let Some(before) = self.cpus[..i].last() {
                if before.id == cpu.id && before.node != cpu.node {
                    let (one, other) = (before.node, cpu.node);
                    return wrong(format!("is in two nodes, {one} and {other}; it has one"));
                }
            }
            rising(List::Cpus, i, "CPU", self.cpus[..i].last().map(|c| c.id.0), cpu.id.0)?;
            if self.position(cpu.node).is_none() {
                return wrong(format!("is on node {}, which is not in the machine", cpu.node));
            }
            let node = *core_node.entry(cpu.core).or_insert(cpu.node);
            if node != cpu.node {
                return wrong(format!(
                    "is on node {}, but its core {} has CPUs of node {node}; a core is in one node",
                    cpu.node, cpu.core
                ));
            }
        }
        Ok(())
    }

    fn check_caches(&self) -> Result<(), Impossible> {
        for (i, c) in self.caches.iter().enumerate() {
            let level = u32::from(c.level);
            let fits = |fits, why| ensure(fits, || Impossible::Cache(i, why));
            fits(level > 0, "a cache's level is 1 or more")?;
            let before = self.caches[..i].last().map(|c| c.level.into());
            rising(List::Caches, i, "cache level", before, level)?;
            fits((1..=MAX_SIZE).contains(&c.size.0), "a cache's size is 1 to 2^52 bytes")?;
            fits(c.ways > 0 && c.shared_by > 0, "a cache has at least one way and one CPU")?;
            let line = c.line.is_power_of_two() && u64::from(c.line) <= PAGE_SIZE;
            fits(line, "a cache's line is a power of two, at most a page")?;
            within(Place::Cache(i), Unit::Nanoseconds, LATENCY_BOUNDS, &c.latency)?;
        }
        Ok(())
    }

    fn check_idle_states(&self) -> Result<(), Impossible> {
        for (i, s) in self.idle_states.iter().enumerate() {
            let fits = |fits, key, what: &str| {
                ensure(fits, || {
                    Impossible::Idle(i, key, format!("idle state \"{}\": {what}", s.name))
                })
            };
            let before = self.idle_states[..i].last();
            fits(i < MAX_IDLE_STATES, "name", "a CPU has 10 idle states at most")?;
            let named = !s.name.is_empty() && !s.name.contains(['\n', '/']);
            fits(named, "name", "its name is a word, such as C1")?;
            let new = self.idle_states[..i].iter().all(|other| other.name != s.name);
            fits(new, "name", "it stands twice; names are unique")?;
            fits(i == 0 || !s.polls, "polls", "only the first state may poll")?;
            let seen = !s.polls || s.woken_by == WokenBy::Store;
            fits(seen, "woken_by", "a CPU that polls sees a store; it needs no interrupt")?;
            let rises = before.is_none_or(|b| b.target_residency.value <= s.target_residency.value);
            fits(rises, "target_residency", "states come in the order of their residencies")?;
            for (key, constant) in [
                ("exit_latency", Some(&s.exit_latency)),
                ("target_residency", Some(&s.target_residency)),
                ("wake_latency", s.wake_latency.as_ref()),
            ] {
                let Some(constant) = constant else { continue };
                within(Place::Idle(i, key), Unit::Nanoseconds, IDLE_BOUNDS, constant)?;
            }
        }
        Ok(())
    }

    fn check_curves(&self) -> Result<(), Impossible> {
        for (i, c) in self.curves.iter().enumerate() {
            let new = self.curves[..i].iter().all(|other| other.walk != c.walk);
            ensure(new, || {
                let what = format!("the curve \"{}\" stands twice", c.walk.name());
                Impossible::Curve(i, Wrong { point: None, key: "walk", what })
            })?;
            c.check().map_err(|wrong| Impossible::Curve(i, wrong))?;
        }
        Ok(())
    }

    fn check_loaded(&self) -> Result<(), Impossible> {
        for (i, l) in self.loaded.iter().enumerate() {
            let new = self.loaded[..i].iter().all(|other| other.path != l.path);
            ensure(new, || {
                let what = format!("the loaded latency of \"{}\" stands twice", l.path.name());
                Impossible::Loaded(i, Wrong { point: None, key: "path", what })
            })?;
            l.check().map_err(|wrong| Impossible::Loaded(i, wrong))?;
        }
        Ok(())
    }

    fn check_distances(&self) -> Result<(), Impossible> {
        let n = self.nodes.len();
        if self.distances.len() != n {
            let what = format!(
                "{} of distances for {}; there is one row per node",
                count(self.distances.len() as u64, "row", "rows"),
                count(n as u64, "node", "nodes")
            );
            return Err(Impossible::Shape(None, what));
        }
        for (i, row) in self.distances.iter().enumerate() {
            if row.len() != n {
                let what = format!(
                    "{} from node {} for {}; there is one per node",
                    count(row.len() as u64, "distance", "distances"),
                    self.nodes[i].id,
                    count(n as u64, "node", "nodes")
                );
                return Err(Impossible::Shape(Some(i), what));
            }
            for (j, &d) in row.iter().enumerate() {
                let why = if i == j && d != LOCAL_DISTANCE {
                    "the distance of a node to itself is 10"
                } else if i != j && !(LOCAL_DISTANCE + 1..=MAX_DISTANCE).contains(&d) {
                    "the distance to another node lies between 11 and 254"
                } else {
                    continue;
                };
                return Err(Impossible::Distance(self.nodes[i].id, self.nodes[j].id, d, why));
            }
        }
        Ok(())
    }

    fn check_links(&self) -> Result<(), Impossible> {
        let with_cpu: BTreeSet<NodeId> = self.cpus.iter().map(|c| c.node).collect();
        let with_memory: BTreeSet<NodeId> =
            self.nodes.iter().filter(|n| !n.zones.is_empty()).map(|n| n.id).collect();
        let mut seen = BTreeSet::new();
        for (i, l) in self.links.iter().enumerate() {
            let fits = |fits, why| ensure(fits, || Impossible::Link(l.from, l.to, why));
            fits(with_cpu.contains(&l.from), "a link begins at a node with CPUs")?;
            fits(with_memory.contains(&l.to), "a link ends at a node with memory")?;
            fits(seen.insert((l.from, l.to)), "a link stands once only")?;
            for (key, unit, bounds, constant) in [
                ("read_latency", Unit::Nanoseconds, LATENCY_BOUNDS, &l.read_latency),
                ("write_latency", Unit::Nanoseconds, LATENCY_BOUNDS, &l.write_latency),
                ("read_bandwidth", Unit::MBps, BANDWIDTH_BOUNDS, &l.read_bandwidth),
                ("write_bandwidth", Unit::MBps, BANDWIDTH_BOUNDS, &l.write_bandwidth),
            ] {
                within(Place::Link(i, key), unit, bounds, constant)?;
            }
        }
        for &from in &with_cpu {
            for &to in &with_memory {
                let why =
                    "it is missing; there is one for each node with CPUs and each node with memory";
                ensure(seen.contains(&(from, to)), || Impossible::Link(from, to, why))?;
            }
        }
        Ok(())
    }
}

fn ensure(fits: bool, wrong: impl FnOnce() -> Impossible) -> Result<(), Impossible> {
    if fits { Ok(()) } else { Err(wrong()) }
}

fn rising(
    list: List,
    index: usize,
    what: &str,
    before: Option<u32>,
    number: impl Into<u32>,
) -> Result<(), Impossible> {
    let number = number.into();
    let why = match before {
        Some(b) if b == number => format!("{what} {number} occurs twice; numbers are unique"),
        Some(b) if b > number => {
            format!("{what} {number} comes after {b}; numbers rise from entry to entry")
        }
        _ => return Ok(()),
    };
    Err(Impossible::Order(list, index, why))
}

fn within(
    place: Place,
    unit: Unit,
    (low, high): (u64, u64),
    constant: &Constant,
) -> Result<(), Impossible> {
    if constant.spread.is_some_and(|s| s > high) {
        let what = format!("the spread is beyond {} {}", Shown(high, unit), unit.name());
        return Err(Impossible::Bounds(place, what));
    }
    if (low..=high).contains(&constant.value) {
        return Ok(());
    }
    let what = format!(
        "{} {u} is out of range; it lies between {} and {} {u}",
        Shown(constant.value, unit),
        Shown(low, unit),
        Shown(high, unit),
        u = unit.name()
    );
    Err(Impossible::Bounds(place, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{self, dram};

    /// Node 0 with CPUs 0 and 1 and 1 GiB; node 1 with 2 GiB and no CPU.
    fn machine() -> Hardware {
        let mut m = fixtures::machine(&[dram(1 << 18, 2), dram(1 << 19, 0)]);
        m.distances = vec![vec![10, 14], vec![17, 10]];
        m
    }

    fn refused(change: impl FnOnce(&mut Hardware)) -> String {
        let mut m = machine();
        change(&mut m);
        m.check().expect_err("it was impossible").to_string()
    }

    #[test]
    fn asymmetric_distances_empty_nodes_and_nodes_without_cpus_are_legal() {
        let mut m = machine();
        assert_eq!(m.check(), Ok(()));
        m.nodes.push(Node { id: NodeId(7), medium: Medium::Dram, zones: vec![] });
        m.distances = vec![vec![10, 14, 20], vec![17, 10, 30], vec![21, 11, 10]];
        assert_eq!(m.check(), Ok(()));
    }

    #[test]
    fn impossible_machines_are_refused_with_the_offender() {
        for (change, expected) in [
            (
                (|m| m.distances[1][1] = 11) as fn(&mut Hardware),
                "distance 11 from node 1 to node 1: the distance of a node to itself is 10",
            ),
            (
                |m| m.distances[0][1] = 10,
                "distance 10 from node 0 to node 1: the distance to another node lies between 11 and 254",
            ),
            (
                |m| m.distances.truncate(1),
                "1 row of distances for 2 nodes; there is one row per node",
            ),
            (
                |m| {
                    m.cpus.push(Cpu {
                        id: CpuId(1),
                        node: NodeId(1),
                        core: 1,
                        llc: 0,
                        capacity: 1024,
                        mhz: None,
                    })
                },
                "CPU 1 is in two nodes, 0 and 1; it has one",
            ),
            (|m| m.cpus[1].id = CpuId(0), "CPU 0 occurs twice; numbers are unique"),
            (|m| m.cpus[1].node = NodeId(4), "CPU 1 is on node 4, which is not in the machine"),
            (
                |m| m.cpus[1].capacity = 0,
                "CPU 1 has a capacity of 0; it lies between 1 and 1024, the fastest CPU's",
            ),
            (|m| m.cpus.clear(), "a machine has at least one CPU"),
            (|m| m.nodes[1].id = NodeId(0), "node 0 occurs twice; numbers are unique"),
            (
                |m| m.nodes[0].zones[0].managed = Pages(0),
                "a zone of node 0 has 0 bytes; a size lies between one page of 4096 bytes and 2^52 \
                 bytes (leave the zone out where there is no memory)",
            ),
            (
                |m| m.nodes[0].zones[0].managed = Pages((1 << 40) + 1),
                "a zone of node 0 has 4503599627374592 bytes; a size lies between one page of 4096 \
                 bytes and 2^52 bytes (leave the zone out where there is no memory)",
            ),
            (
                |m| m.links.truncate(1),
                "link from node 0 to node 1: it is missing; there is one for each node with CPUs and \
                 each node with memory",
            ),
            (
                |m| m.links[1].from = NodeId(1),
                "link from node 1 to node 1: a link begins at a node with CPUs",
            ),
            (
                |m| m.links[0].read_latency.value = 0,
                "0 ns is out of range; it lies between 0.001 and 1000000 ns",
            ),
        ] {
            assert_eq!(refused(change), expected);
        }
    }

    #[test]
    fn the_largest_legal_size_is_two_to_the_52() {
        let mut m = machine();
        m.nodes[0].zones[0].managed = Pages(1 << 40);
        assert_eq!(m.check(), Ok(()));
    }
}
