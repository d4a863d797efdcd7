//! The topology of this machine, as sysfs and procfs tell it.
//!
//! Every path is taken below a root, `/` on a real machine, so that a test can
//! lay out a tree of its own:
//!
//! ```text
//! ROOT/sys/devices/system/node/online            "0-1"
//! ROOT/sys/devices/system/node/node0/cpulist     "0-3"
//! ROOT/sys/devices/system/node/node0/distance    "10 21"
//! ROOT/sys/devices/system/cpu/online             "0-3"
//! ROOT/sys/devices/system/cpu/cpu0/cache/index0/size   "32K"
//! ROOT/proc/zoneinfo, ROOT/proc/meminfo, ROOT/proc/cpuinfo
//! ```
//!
//! What is missing is filled in by the kernel's own defaults where it has some
//! (one node, distances 10 and 20), and said in [`Topology::notes`]. What
//! contradicts itself is an error.

use crate::memory;
use homenode_core::costs::Constant;
use homenode_core::list::ranges;
use homenode_core::sched::domain;
use homenode_core::topology::{
    Cache, Cpu, LOCAL_DISTANCE, Medium, Node, REMOTE_DISTANCE, SCHED_CAPACITY_SCALE, Zone, ZoneKind,
};
use homenode_core::units::{Bytes, CpuId, NodeId, PAGE_SIZE, Pages, count};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Highest number of a CPU or node that is believed; beyond it a list is damaged.
const NUMBER_MAX: u32 = 65_535;

/// What sysfs says about a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Online nodes in rising order; a node without memory has no zones.
    pub nodes: Vec<Node>,
    /// Online CPUs in rising order. `core` and `llc` are numbered from 0.
    pub cpus: Vec<Cpu>,
    /// Data and unified caches of levels 1 to 3 of the first CPU, in rising order.
    pub caches: Vec<CacheShape>,
    /// `distances[i][j]`: from `nodes[i]` to `nodes[j]`.
    pub distances: Vec<Vec<u32>>,
    /// The CPU's model, if `/proc/cpuinfo` names it.
    pub model: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// Whether the CPU says that a hypervisor runs it.
    pub virtual_machine: bool,
    /// Sentences about what was missing or corrected.
    pub notes: Vec<String>,
}

impl Topology {
    /// What the kernel builds scheduling domains from, and its CPUs that are online, a bit each.
    /// Places are the CPUs' numbers; one that is offline stands alone.
    pub fn scheduling(&self) -> (domain::Layout, Vec<u64>) {
        let places = self.cpus.last().map_or(0, |c| c.id.0 as usize + 1);
        let mut online = vec![0_u64; places.div_ceil(64)];
        let node = self.nodes.first().map_or(NodeId(0), |n| n.id);
        let alone = |id: u32| Cpu {
            id: CpuId(id),
            node,
            // Beyond all numbers of those that are online.
            core: u32::MAX - id,
            llc: u32::MAX - id,
            capacity: SCHED_CAPACITY_SCALE,
            mhz: None,
        };
        let mut cpus: Vec<Cpu> = (0..places as u32).map(alone).collect();
        for cpu in &self.cpus {
            let at = cpu.id.0 as usize;
            cpus[at] = *cpu;
            online[at / 64] |= 1 << (at % 64);
        }
        (domain::Layout::of_cpus(&cpus, &self.nodes, &self.distances), online)
    }
}

/// A cache's shape, as sysfs has it; its latency must be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// 1 is nearest to the core.
    pub level: u8,
    /// Size of one instance.
    pub size: Bytes,
    /// Associativity, at least 1.
    pub ways: u32,
    /// Line size in bytes.
    pub line: u32,
    /// Online CPUs that share one instance.
    pub shared_by: u32,
}

impl CacheShape {
    /// The cache of a machine with this shape, which answers after `latency`.
    pub fn with_latency(&self, latency: Constant) -> Cache {
        let Self { level, size, ways, line, shared_by } = *self;
        Cache { level, size, ways, line, shared_by, latency }
    }
}

/// Why the topology could not be read. The command answers with exit code 3:
/// the system lacks something, the user did nothing wrong.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// A file that must be there cannot be read.
    #[error("cannot read {path}; is {tree} mounted and readable?", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The file system it belongs to.
        tree: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A file holds something else than the kernel writes.
    #[error("{path}: expected {want}, found {text:?}", path = path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What was expected.
        want: &'static str,
        /// What stood there, shortened.
        text: String,
    },
    /// Files contradict one another.
    #[error("{path}: {what}", path = path.display())]
    Contradiction {
        /// The file that disagrees.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

/// Reads the topology below `root` (`/` for this machine).
///
/// Zones come from `/proc/zoneinfo`; where it cannot be read, each node has one
/// Normal zone of its `MemTotal`. Offline CPUs are left out. Where the kernel
/// has no nodes in sysfs (built without NUMA), all CPUs and all memory are in
/// node 0.
///
/// # Errors
///
/// [`TopologyError`] if a needed file is unreadable or not what the kernel
/// writes, if a CPU is in two nodes or in none, or if no node has memory.
pub fn read_topology(root: &Path) -> Result<Topology, TopologyError> {
    let mut tree = Tree { root, nodes: vec![], flat: false };
    let mut notes = Vec::new();

    match tree.optional("sys/devices/system/node/online") {
        Some(f) => tree.nodes = f.list()?,
        None => notes.push("sysfs shows no nodes: everything is put in node 0".to_owned()),
    }
    if tree.nodes.is_empty() {
        (tree.nodes, tree.flat) = (vec![0], true);
    }

    let online = tree.optional("sys/devices/system/cpu/online").map(|f| f.list()).transpose()?;
    let homes = cpu_homes(&tree, online.as_deref())?;
    let cpu_ids: Vec<u32> = homes.keys().copied().collect();

    let nodes = read_nodes(&tree, &mut notes)?;
    let distances = read_distances(&tree, &mut notes)?;
    let caches_of: BTreeMap<u32, Vec<CacheView>> = cpu_ids
        .iter()
        .map(|&c| Ok((c, read_caches(&tree, c, &cpu_ids)?)))
        .collect::<Result<_, TopologyError>>()?;
    let cores = dense(cpu_ids.iter().map(|&c| (c, core_key(&tree, c))));
    let llcs = dense(cpu_ids.iter().map(|&c| {
        let last = caches_of[&c].iter().max_by_key(|v| v.level);
        // Without cache data a node is the nearest thing to a shared cache.
        (c, last.map_or_else(|| (1, vec![homes[&c]]), |v| (0, v.shared.clone())))
    }));
    let cpus = homes
        .iter()
        .map(|(&c, &n)| Cpu {
            id: CpuId(c),
            node: NodeId(n as u16),
            core: cores[&c],
            llc: llcs[&c],
            capacity: capacity(&tree, c),
            mhz: None,
        })
        .collect();

    let caches = shapes(&caches_of, &mut notes);
    let cpuinfo = tree.optional("proc/cpuinfo").map(|f| f.text).unwrap_or_default();
    Ok(Topology {
        nodes,
        cpus,
        caches,
        distances,
        model: cpuinfo_field(&cpuinfo, "model name"),
        kernel: tree.optional("proc/sys/kernel/osrelease").map(|f| f.text.trim().to_owned()),
        virtual_machine: cpuinfo_field(&cpuinfo, "flags")
            .is_some_and(|f| f.split_ascii_whitespace().any(|w| w == "hypervisor")),
        notes,
    })
}

/// A list as the kernel prints it, such as `0-3,8,10-11`; blank means empty.
///
/// Returns numbers in rising order without repeats; `None` if it is malformed.
pub fn parse_list(text: &str) -> Option<Vec<u32>> {
    let ranges = match text.trim() {
        "" => Vec::new(),
        text => ranges(text)?,
    };
    if ranges.iter().any(|(_, last)| *last > NUMBER_MAX) {
        return None;
    }
    let numbers: BTreeSet<u32> =
        ranges.into_iter().flat_map(|(first, last)| first..=last).collect();
    Some(numbers.into_iter().collect())
}

/// A plain decimal number: no sign, no blanks.
fn digits(s: &str) -> Option<u32> {
    if s.is_empty() || !s.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    s.parse().ok()
}

/// A cache size such as `32K`, `1M` or `512`.
fn parse_size(text: &str) -> Option<u64> {
    let t = text.trim();
    let (number, factor) = match t.as_bytes().last()? {
        b'K' => (&t[..t.len() - 1], 1 << 10),
        b'M' => (&t[..t.len() - 1], 1 << 20),
        b'G' => (&t[..t.len() - 1], 1 << 30),
        _ => (t, 1),
    };
    u64::from(digits(number)?).checked_mul(factor).filter(|&s| s > 0)
}

/// Files below the root, and which nodes they show.
struct Tree<'a> {
    root: &'a Path,
    nodes: Vec<u32>,
    /// Whether they show none, so that everything is in node 0.
    flat: bool,
}

/// A file's text, with its path for errors.
struct File {
    path: PathBuf,
    text: String,
}

impl Tree<'_> {
    fn optional(&self, rel: &str) -> Option<File> {
        let path = self.root.join(rel);
        fs::read_to_string(&path).ok().map(|text| File { path, text })
    }
    fn required(&self, rel: &str) -> Result<File, TopologyError> {
        let path = self.root.join(rel);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(File { path, text }),
            Err(source) => {
                let tree = if rel.starts_with("proc") { "/proc" } else { "/sys" };
                Err(TopologyError::Read { path, tree, source })
            }
        }
    }
}

impl File {
    fn bad(&self, want: &'static str) -> TopologyError {
        let text = self.text.trim().chars().take(60).collect();
        TopologyError::Parse { path: self.path.clone(), want, text }
    }
    fn list(&self) -> Result<Vec<u32>, TopologyError> {
        parse_list(&self.text).ok_or_else(|| self.bad("a list such as 0-3,8"))
    }
    fn number(&self) -> Result<u32, TopologyError> {
        digits(self.text.trim()).ok_or_else(|| self.bad("a number"))
    }
}

/// The node of each online CPU.
fn cpu_homes(tree: &Tree<'_>, online: Option<&[u32]>) -> Result<BTreeMap<u32, u32>, TopologyError> {
    let online_path = || tree.root.join("sys/devices/system/cpu/online");
    if tree.flat {
        let file = tree.required("sys/devices/system/cpu/online")?;
        let cpus = file.list()?;
        if cpus.is_empty() {
            return Err(file.bad("at least one CPU"));
        }
        return Ok(cpus.into_iter().map(|c| (c, 0)).collect());
    }
    let mut homes = BTreeMap::new();
    for &n in &tree.nodes {
        let file = tree.required(&format!("sys/devices/system/node/node{n}/cpulist"))?;
        for c in file.list()? {
            if online.is_some_and(|o| o.binary_search(&c).is_err()) {
                continue;
            }
            if let Some(other) = homes.insert(c, n) {
                let what = format!("CPU {c} is in node {n} and in node {other}");
                return Err(TopologyError::Contradiction { path: file.path, what });
            }
        }
    }
    if let Some(&c) = online.unwrap_or(&[]).iter().find(|c| !homes.contains_key(c)) {
        let what = format!("CPU {c} is online but in no node's cpulist");
        return Err(TopologyError::Contradiction { path: online_path(), what });
    }
    if homes.is_empty() {
        let what = "no node has an online CPU".to_owned();
        return Err(TopologyError::Contradiction { path: online_path(), what });
    }
    Ok(homes)
}

/// `MemTotal` of a meminfo file, in pages.
fn mem_total(text: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.contains("MemTotal:"))?;
    let kib: u64 = line.split_once("MemTotal:")?.1.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib.checked_mul(1024)? / PAGE_SIZE)
}

fn read_nodes(tree: &Tree<'_>, notes: &mut Vec<String>) -> Result<Vec<Node>, TopologyError> {
    let media = dax_media(tree);
    let medium = |n: &u32| media.get(n).copied().unwrap_or(Medium::Dram);
    let node = |n: &u32| Node { id: NodeId(*n as u16), medium: medium(n), zones: vec![] };
    let mut nodes: Vec<Node> = tree.nodes.iter().map(node).collect();
    let total = tree.optional("proc/meminfo").and_then(|f| mem_total(&f.text));

    if let Some(file) = tree.optional("proc/zoneinfo") {
        let views = memory::parse(&file.text).ok_or_else(|| file.bad("zones of nodes"))?;
        let mut room = BTreeMap::new();
        // Device memory is not for allocation.
        for (v, kind) in views.iter().filter_map(|v| Some((v, v.kind?))) {
            let Some(node) = nodes.iter_mut().find(|n| n.id == v.node) else {
                let what = format!("node {} has zones but is not online", v.node);
                return Err(TopologyError::Contradiction { path: file.path, what });
            };
            if v.managed == 0 {
                continue;
            }
            match node.zones.iter_mut().find(|z| z.kind == kind) {
                Some(z) => z.managed += Pages(v.managed),
                None => node.zones.push(Zone { kind, managed: Pages(v.managed) }),
            }
            node.zones.sort_by_key(|z| z.kind);
            *room.entry((v.node, kind)).or_insert(0) += v.present;
        }
        if let Some(total) = total {
            grow_lazy_zone(&mut nodes, &room, total, notes);
        }
    } else {
        notes.push("/proc/zoneinfo is unreadable: one Normal zone a node".to_owned());
        for node in &mut nodes {
            let pages = if tree.flat {
                total
            } else {
                let file =
                    tree.required(&format!("sys/devices/system/node/node{}/meminfo", node.id))?;
                Some(mem_total(&file.text).ok_or_else(|| file.bad("a line with MemTotal"))?)
            };
            if let Some(pages) = pages.filter(|&p| p > 0) {
                node.zones.push(Zone { kind: ZoneKind::Normal, managed: Pages(pages) });
            }
        }
    }
    if nodes.iter().all(|n| n.zones.is_empty()) {
        let path = tree.root.join("proc/zoneinfo");
        let what = "no node has memory".to_owned();
        return Err(TopologyError::Contradiction { path, what });
    }
    Ok(nodes)
}

/// Some virtual machines hand memory to a zone only when it is first needed:
/// `managed` grows while `MemTotal` already counts everything. Where one node
/// holds all memory, the difference can only be that zone's.
fn grow_lazy_zone(
    nodes: &mut [Node],
    room: &BTreeMap<(NodeId, ZoneKind), u64>,
    total: u64,
    notes: &mut Vec<String>,
) {
    let sum: u64 = nodes.iter().map(|n| n.managed().0).sum();
    let missing = total.saturating_sub(sum);
    if missing <= total / 100 {
        return;
    }
    let mut with_memory = nodes.iter_mut().filter(|n| !n.zones.is_empty());
    let (Some(node), None) = (with_memory.next(), with_memory.next()) else {
        notes.push(format!(
            "zones add up to {sum} pages but MemTotal is {total}: nodes are taken as zoneinfo has them"
        ));
        return;
    };
    let id = node.id;
    let spare = |z: &Zone| {
        let present = room.get(&(id, z.kind)).copied().unwrap_or(0);
        present.saturating_sub(z.managed.0)
    };
    if let Some(zone) = node.zones.iter_mut().max_by_key(|z| spare(z)) {
        let add = missing.min(spare(zone));
        zone.managed += Pages(add);
        notes.push(format!(
            "node {id} hands out memory lazily: its largest zone is taken {} larger than managed, as MemTotal has it",
            count(add, "page", "pages")
        ));
    }
}

/// Media of nodes that device drivers brought online: dax devices name their
/// target node, and their place in the device tree tells the bus.
fn dax_media(tree: &Tree<'_>) -> BTreeMap<u32, Medium> {
    let mut media = BTreeMap::new();
    let entries = fs::read_dir(tree.root.join("sys/bus/dax/devices")).into_iter().flatten();
    for entry in entries.flatten() {
        let path = entry.path();
        let text = fs::read_to_string(path.join("target_node")).unwrap_or_default();
        let Some(node) = digits(text.trim()) else { continue };
        let real = fs::canonicalize(&path).unwrap_or(path);
        let on_nvdimm = real.to_string_lossy().contains("/ndbus");
        media.insert(node, if on_nvdimm { Medium::Pmem } else { Medium::Cxl });
    }
    media
}

fn read_distances(
    tree: &Tree<'_>,
    notes: &mut Vec<String>,
) -> Result<Vec<Vec<u32>>, TopologyError> {
    let mut rows = Vec::new();
    for (i, &n) in tree.nodes.iter().enumerate() {
        let file = tree.optional(&format!("sys/devices/system/node/node{n}/distance"));
        let Some(file) = file.filter(|_| !tree.flat) else {
            if !tree.flat {
                notes.push(format!("node {n} has no distances: 10 to itself, 20 to others"));
            }
            let to = |j| if i == j { LOCAL_DISTANCE } else { REMOTE_DISTANCE };
            rows.push((0..tree.nodes.len()).map(to).collect());
            continue;
        };
        let bad = || file.bad("distances, one for each online node");
        let row = file.text.split_ascii_whitespace().map(|w| digits(w).ok_or_else(bad));
        let row: Vec<u32> = row.collect::<Result<_, _>>()?;
        if row.len() != tree.nodes.len() {
            let what = format!(
                "{} for {}",
                count(row.len() as u64, "distance", "distances"),
                count(tree.nodes.len() as u64, "online node", "online nodes")
            );
            return Err(TopologyError::Contradiction { path: file.path, what });
        }
        for (j, &d) in row.iter().enumerate() {
            if (i == j && d != LOCAL_DISTANCE) || (i != j && d <= LOCAL_DISTANCE) {
                let what = format!(
                    "distance {d} from node {n} to node {}: the kernel has {LOCAL_DISTANCE} to itself and more to others",
                    tree.nodes[j]
                );
                return Err(TopologyError::Contradiction { path: file.path, what });
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Equal for SMT siblings, different for all others.
fn core_key(tree: &Tree<'_>, cpu: u32) -> Vec<u32> {
    let dir = format!("sys/devices/system/cpu/cpu{cpu}/topology");
    let list = |name| parse_list(&tree.optional(&format!("{dir}/{name}"))?.text);
    let mut lists = ["core_cpus_list", "thread_siblings_list"].into_iter().filter_map(list);
    lists.find(|list| list.contains(&cpu)).unwrap_or_else(|| vec![cpu])
}

/// A CPU's capacity; where the kernel says none, all are alike.
fn capacity(tree: &Tree<'_>, cpu: u32) -> u32 {
    let said = tree.optional(&format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity"));
    let capacity = said.and_then(|f| f.text.trim().parse().ok());
    capacity.filter(|c| (1..=SCHED_CAPACITY_SCALE).contains(c)).unwrap_or(SCHED_CAPACITY_SCALE)
}

/// Numbers equal keys alike, from 0, in order of first appearance.
fn dense<K: Ord>(keys: impl Iterator<Item = (u32, K)>) -> BTreeMap<u32, u32> {
    let mut seen = BTreeMap::new();
    keys.map(|(cpu, key)| {
        let next = seen.len() as u32;
        (cpu, *seen.entry(key).or_insert(next))
    })
    .collect()
}

/// One cache of one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CacheView {
    level: u8,
    size: u64,
    ways: Option<u32>,
    line: Option<u32>,
    shared: Vec<u32>,
}

fn read_caches(tree: &Tree<'_>, cpu: u32, online: &[u32]) -> Result<Vec<CacheView>, TopologyError> {
    let mut out: Vec<CacheView> = Vec::new();
    // Index directories are numbered without gaps; sixteen is twice what exists.
    for index in 0..16 {
        let dir = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
        let get = |name: &str| tree.optional(&format!("{dir}/{name}"));
        let (Some(level), Some(kind)) = (get("level"), get("type")) else { continue };
        let level = level.number()?;
        if !(1..=3).contains(&level) || !matches!(kind.text.trim(), "Data" | "Unified") {
            continue;
        }
        // Some hypervisors list a cache without a size: then it is not known.
        let Some(size) = get("size") else { continue };
        let bytes = parse_size(&size.text).ok_or_else(|| size.bad("a size such as 32K"))?;
        let positive = |name: &str| get(name).and_then(|f| f.number().ok()).filter(|&n| n > 0);
        let line = positive("coherency_line_size");
        let ways = positive("ways_of_associativity").or_else(|| {
            let sets = u64::from(positive("number_of_sets")?) * u64::from(line?);
            u32::try_from(bytes / sets).ok().filter(|&w| w > 0)
        });
        let mut shared = get("shared_cpu_list").map_or(Ok(vec![]), |f| f.list())?;
        shared.retain(|c| online.binary_search(c).is_ok());
        if !shared.contains(&cpu) {
            shared = vec![cpu];
        }
        if out.iter().all(|v| v.level != level as u8) {
            out.push(CacheView { level: level as u8, size: bytes, ways, line, shared });
        }
    }
    out.sort_by_key(|v| v.level);
    Ok(out)
}

/// The caches of the first CPU that has any, as the machine's.
fn shapes(of: &BTreeMap<u32, Vec<CacheView>>, notes: &mut Vec<String>) -> Vec<CacheShape> {
    let Some((first, views)) = of.iter().find(|(_, v)| !v.is_empty()) else {
        notes.push("sysfs shows no caches".to_owned());
        return vec![];
    };
    let sizes = |v: &[CacheView]| v.iter().map(|c| (c.level, c.size)).collect::<Vec<_>>();
    if of.values().any(|v| sizes(v) != sizes(views)) {
        notes.push(format!("CPUs have different caches: those of CPU {first} are taken"));
    }
    views
        .iter()
        .map(|v| {
            if v.ways.is_none() || v.line.is_none() {
                notes.push(format!(
                    "sysfs shows no ways or line size for the level {} cache: 8 ways, 64 bytes taken where missing",
                    v.level
                ));
            }
            CacheShape {
                level: v.level,
                size: Bytes(v.size),
                ways: v.ways.unwrap_or(8),
                line: v.line.unwrap_or(64),
                shared_by: v.shared.len() as u32,
            }
        })
        .collect()
}

fn cpuinfo_field(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|l| {
        let (k, v) = l.split_once(':')?;
        (k.trim() == key && !v.trim().is_empty()).then(|| v.trim().to_owned())
    })
}
