//! What this kernel and machine offer. Nothing is written or changed.
//!
//! ```text
//!  ROOT/proc, ROOT/sys, ROOT/boot ──┐
//!                                   ├──▶ Probe ──facts──▶ core::policy::choice
//!  calls: perf_event_open, … ───────┘
//! ```
//!
//! Files are taken below a root, `/` on a real machine, so that another machine's files
//! can be looked at; calls come through [`Calls`] for the same reason. What is not there
//! is `None` or [`Known::No`]; what may not be read is [`Known::Unseen`] and named in
//! [`Probe::unseen`]. No file that the kernel could write is too odd: it is then as if it
//! told nothing.
//!
//! Source: specs/sources.md#choice.

mod calls;
mod config;
mod damon;
mod event;
mod loads;
mod perf;
mod rights;
mod root;

pub use calls::{Calls, FilesOnly, ThisKernel};
pub use config::{Config, Symbols};
pub use damon::{Damon, Slot};
#[cfg(test)]
pub(crate) use event::SAMPLE;
pub use event::{Event, meaning};
pub(crate) use event::{LATENCY, On, open_group};
pub use loads::LoadEvents;
pub use perf::{Pmu, Tried};
pub use rights::{CAPABILITIES, Rights};

use crate::place::Place;
use crate::registered::{KsmStat, scan};
use crate::sched_ext::SchedExt;
use crate::sysfs::{Topology, parse_list, read_topology};
use homenode_core::policy::facts::{DamonFacts, Facts, HintFacts, Known};
use root::Root;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Tracepoints that tell of placement, below `events/` of tracefs.
pub const TRACEPOINTS: [&str; 5] = [
    "migrate/mm_migrate_pages",
    "sched/sched_move_numa",
    "sched/sched_skip_vma_numa",
    "vmscan/mm_vmscan_wakeup_kswapd",
    "damon/damon_aggregated",
];

/// NUMA hint faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// `CONFIG_NUMA_BALANCING`.
    pub built: Known,
    /// `kernel.numa_balancing`.
    pub mode: Option<u32>,
    /// `kernel.numa_balancing_promote_rate_limit_MBps`.
    pub promote_rate_limit_mbps: Option<u32>,
    /// The kernel's own BTF: its size in bytes, if it is there.
    pub btf_bytes: Option<u64>,
    /// `CONFIG_BPF_SYSCALL`.
    pub bpf: Known,
    /// Functions at which a hint fault can be watched, best first.
    pub functions: Vec<&'static str>,
    /// Where tracefs is mounted, if it is and may be read.
    pub tracefs: Option<String>,
    /// Those of [`TRACEPOINTS`] that are there; empty without tracefs.
    pub tracepoints: Vec<&'static str>,
}

/// Ways to look at pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// `PAGEMAP_SCAN`: answered, or an error number; `None` if it wasn't tried.
    pub pagemap_scan: Option<Result<(), i32>>,
    /// Whether the kernel keeps soft-dirty bits.
    pub soft_dirty: Known,
    /// `move_pages(2)` as a question: answered, or an error number.
    pub page_query: Option<Result<(), i32>>,
    /// `/proc/PID/numa_maps`.
    pub numa_maps: bool,
    /// `/proc/PID/clear_refs`.
    pub clear_refs: bool,
    /// `/sys/kernel/mm/page_idle/bitmap`.
    pub page_idle: bool,
    /// `/sys/kernel/mm/lru_gen/enabled`, if MGLRU is built.
    pub lru_gen: Option<String>,
}

/// Same-page merging.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ksm {
    /// `run`; `None` without KSM.
    pub run: Option<u32>,
    /// `merge_across_nodes`.
    pub merge_across_nodes: Option<u32>,
    /// `pages_sharing`.
    pub pages_sharing: Option<u64>,
    /// Registered processes: PID, name, what the kernel says.
    pub registered: Vec<(u32, String, KsmStat)>,
    /// Processes that could not be asked.
    pub unseen: usize,
}

/// Weighted interleaving.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interleave {
    /// Weight by node.
    pub weights: BTreeMap<u32, u32>,
    /// Whether the kernel makes the weights, where it can (Linux 6.16).
    pub auto: Option<bool>,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The kernel's release.
    pub kernel: Option<String>,
    /// Nodes and CPUs, or why they could not be read.
    pub topology: Result<Topology, String>,
    /// Memory tiers by number, the smallest the fastest, with their nodes; empty on kernels
    /// that have none in sysfs.
    pub tiers: BTreeMap<u32, Vec<u32>>,
    /// The kernel's configuration.
    pub config: Config,
    /// The kernel's functions.
    pub symbols: Symbols,
    /// DAMON.
    pub damon: Damon,
    /// Hint faults.
    pub hints: Hints,
    /// PMUs.
    pub pmu: Pmu,
    /// Ways to look at pages.
    pub pages: Pages,
    /// Same-page merging.
    pub ksm: Ksm,
    /// `demotion_enabled`; `None` on kernels without it.
    pub demotion_enabled: Option<bool>,
    /// Weighted interleaving; `None` on kernels without it (Linux 6.9 has it).
    pub interleave: Option<Interleave>,
    /// sched_ext.
    pub sched_ext: SchedExt,
    /// What this process may do.
    pub rights: Rights,
    /// Files that may not be read by us.
    pub unseen: Vec<String>,
}

/// Looks at the machine whose files are below `root`. Cannot fail: what can't be read is
/// missing in what comes back.
///
/// * `calls` – [`ThisKernel`] if `root` is `/`, else [`FilesOnly`] or a test's own.
pub fn look(root: &Path, calls: &dyn Calls) -> Probe {
    let files = Root::new(root);
    let kernel = files.text("proc/sys/kernel/osrelease").filter(|r| !r.is_empty());
    let config = config::read_config(&files, kernel.as_deref());
    let symbols = config::read_symbols(&files);
    Probe {
        topology: read_topology(root).map_err(|e| e.to_string()),
        tiers: read_tiers(&files),
        damon: damon::look(&files, &config, &symbols),
        hints: read_hints(&files, &config, &symbols),
        pmu: perf::look(&files, calls),
        pages: read_pages(&files, &config, calls),
        ksm: read_ksm(&files),
        demotion_enabled: files.text("sys/kernel/mm/numa/demotion_enabled").and_then(|t| flag(&t)),
        interleave: read_interleave(&files),
        sched_ext: SchedExt::of(root),
        rights: rights::look(&files, calls),
        unseen: files.unseen(),
        kernel,
        config,
        symbols,
    }
}

impl Probe {
    /// What matters for choosing a source of heat.
    ///
    /// A machine whose nodes can't be read counts as one node.
    pub fn facts(&self) -> Facts {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (memory, cpus) = match &self.topology {
            Ok(t) => (t.memory_nodes(), t.cpus.iter().map(|c| u32::from(c.node.0)).collect()),
            Err(_) => (BTreeSet::from([0]), BTreeSet::from([0])),
        };
        let top = self.tiers.values().next();
        // Kernels without tiers take memory that no CPU is near to for slow; 6.1 has tiers,
        // and such a node in the top one, unless a driver says otherwise.
        let lower = |n: &&u32| top.map_or(!cpus.contains(n), |top| !top.contains(n));
        let slow = |n: &&u32| lower(n) || !cpus.contains(n);
        Facts {
            slow_nodes: count(memory.iter().filter(slow).count()),
            lower_nodes: count(memory.iter().filter(lower).count()),
            memory_nodes: count(memory.len()),
            cpu_nodes: count(cpus.len()),
            damon: DamonFacts {
                sysfs: self.damon.sysfs,
                vaddr: self.damon.vaddr,
                may: self.rights.may_write_damon(),
                slots: count(self.damon.slots.len()),
                running: count(self.damon.running().saturating_sub(self.damon.modules.len())),
                module: !self.damon.modules.is_empty(),
            },
            hints: HintFacts {
                built: self.hints.built,
                mode: self.hints.mode,
                btf: self.btf(),
                bpf: self.hints.bpf,
                may: self.rights.may_bpf(),
                function: match self.symbols.readable {
                    false => Known::Unseen,
                    true => Known::from_bool(!self.hints.functions.is_empty()),
                },
            },
            pmu: self.pmu.sampling,
        }
    }
    /// Whether the kernel shows its own BTF, which everybody may read.
    fn btf(&self) -> Known {
        match self.hints.btf_bytes {
            Some(_) => Known::Yes,
            None => self.config.has("CONFIG_DEBUG_INFO_BTF"),
        }
    }
}

impl Topology {
    /// Numbers of the nodes that have memory.
    pub fn memory_nodes(&self) -> BTreeSet<u32> {
        self.nodes.iter().filter(|n| !n.zones.is_empty()).map(|n| u32::from(n.id.0)).collect()
    }
}

/// A switch as files of sysfs show it: `1`, `0`, `true`, `false`, `Y`, `N`.
fn flag(text: &str) -> Option<bool> {
    match text.trim() {
        "1" | "true" | "Y" => Some(true),
        "0" | "false" | "N" => Some(false),
        _ => None,
    }
}

/// Memory tiers by number, the smallest the fastest, with their nodes, as the kernel below
/// `root` shows them; empty where it tells none.
pub fn memory_tiers(root: &Path) -> BTreeMap<u32, Vec<u32>> {
    read_tiers(&Root::new(root))
}

fn read_tiers(files: &Root) -> BTreeMap<u32, Vec<u32>> {
    const FOLDER: &str = "sys/devices/virtual/memory_tiering";
    let tier = |n: u32| {
        let text = files.text(&format!("{FOLDER}/memory_tier{n}/nodelist"))?;
        Some((n, parse_list(&text).filter(|l| !l.is_empty())?))
    };
    files.numbered(FOLDER, "memory_tier").into_iter().filter_map(tier).collect()
}

fn read_hints(files: &Root, config: &Config, symbols: &Symbols) -> Hints {
    let mode: Option<u32> = files.number("proc/sys/kernel/numa_balancing");
    let built = match mode {
        Some(_) => Known::Yes,
        None if config.from.is_some() => config.has("CONFIG_NUMA_BALANCING"),
        None => symbols.has(config::HINT_FUNCTIONS[0]),
    };
    let tracefs = ["sys/kernel/tracing", "sys/kernel/debug/tracing"]
        .into_iter()
        .find(|t| files.has(&format!("{t}/events")));
    let bpf = match files.has("proc/sys/kernel/unprivileged_bpf_disabled") {
        true => Known::Yes,
        false => config.has("CONFIG_BPF_SYSCALL"),
    };
    Hints {
        built,
        mode,
        promote_rate_limit_mbps: files
            .number("proc/sys/kernel/numa_balancing_promote_rate_limit_MBps"),
        btf_bytes: files.size("sys/kernel/btf/vmlinux"),
        bpf,
        functions: symbols.hint_functions(),
        tracepoints: tracefs.map_or(vec![], |t| {
            TRACEPOINTS.into_iter().filter(|p| files.has(&format!("{t}/events/{p}"))).collect()
        }),
        tracefs: tracefs.map(|t| format!("/{t}")),
    }
}

fn read_pages(files: &Root, config: &Config, calls: &dyn Calls) -> Pages {
    Pages {
        pagemap_scan: calls.pagemap_scan(),
        soft_dirty: match calls.soft_dirty() {
            Some(is) => Known::from_bool(is),
            None => config.has("CONFIG_MEM_SOFT_DIRTY"),
        },
        page_query: calls.page_query(),
        numa_maps: files.has("proc/self/numa_maps"),
        clear_refs: files.has("proc/self/clear_refs"),
        page_idle: files.has("sys/kernel/mm/page_idle/bitmap"),
        lru_gen: files.text("sys/kernel/mm/lru_gen/enabled"),
    }
}

fn read_ksm(files: &Root) -> Ksm {
    let knob = |name: &str| format!("sys/kernel/mm/ksm/{name}");
    // A process that ends meanwhile is no error, and without /proc nobody is seen.
    let found = scan(&Place::at(files.path()), false).unwrap_or_default();
    Ksm {
        run: files.number(&knob("run")),
        merge_across_nodes: files.number(&knob("merge_across_nodes")),
        pages_sharing: files.number(&knob("pages_sharing")),
        registered: found.processes.into_iter().map(|p| (p.pid, p.name, p.stat)).collect(),
        unseen: found.unseen,
    }
}

fn read_interleave(files: &Root) -> Option<Interleave> {
    const FOLDER: &str = "sys/kernel/mm/mempolicy/weighted_interleave";
    files.names(FOLDER)?;
    let weight = |n: u32| Some((n, files.number(&format!("{FOLDER}/node{n}"))?));
    let weights = files.numbered(FOLDER, "node").into_iter().filter_map(weight).collect();
    // Linux 6.18 shows `auto` under the name that a macro of its own makes of it.
    let auto = ["auto", "__auto_type"]
        .into_iter()
        .find_map(|name| flag(&files.text(&format!("{FOLDER}/{name}"))?));
    Some(Interleave { weights, auto })
}
