//! The simulated kernel: it acts, the rules of the core decide.
//!
//! One [`Kernel`] holds memory, address spaces and what the mechanisms remember.
//! Its functions run in the context of a task ([`Ctx`]) and charge that task's
//! clock. They are called at events only: a fault, a tick, a system call, a step
//! of kswapd. Nothing here is called at an access that raises no event.

mod alloc;
pub(crate) mod damon;
mod fault;
pub(crate) mod flush;
mod generations;
mod hooks;
pub(crate) mod hotplug;
mod huge;
pub(crate) mod khugepaged;
pub(crate) mod merge;
mod migrate;
mod mm;
mod numa;
mod reclaim;

pub(crate) use migrate::Ordered;
pub(crate) use mm::Mapping;
pub use numa::HomingFigures;
pub(crate) use numa::TaskNuma;
pub(crate) use reclaim::KswapdState;

use crate::load::Loads;
use crate::memory::{FRAME_ITEM, Memory, MemoryError};
use crate::page::Word;
use crate::random::Stream;
use crate::ring::{Answered, Probe};
use crate::space::Space;
use crate::vmstat::{Item, VmStat};
use crate::watch::Watch;
use homenode_core::costs::{Cost, Prices};
use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::{Errno, Knob, KnobError, Knobs, WriteAs};
use homenode_core::numa::faults::GroupFaults;
use homenode_core::numa::weights::Distances;
use homenode_core::scenario::{Model, Swap};
use homenode_core::tiering::promote::PromoteNode;
use homenode_core::tiering::tiers::{Firmware, Tiers};
use homenode_core::tiering::watermarks::{MarkKnobs, ZoneMarks};
use homenode_core::topology::{Hardware, Link, Zone};
use homenode_core::units::{Bytes, MBps, NodeId, PAGE_SIZE, Pages, Picos};
use std::collections::BTreeMap;

/// In whose context the kernel runs, and that context's clock in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ctx {
    /// The task's number; `usize::MAX` for a daemon.
    pub(crate) task: usize,
    /// Place of the CPU's node.
    pub(crate) node: usize,
    /// The CPU's number.
    pub(crate) cpu: u32,
    pub(crate) clock: u64,
}

impl Ctx {
    /// Of nobody's task, at the first place.
    pub(crate) const fn nobody(clock: u64) -> Self {
        Self { task: usize::MAX, node: 0, cpu: 0, clock }
    }
}

/// Who reclaims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reclaimer {
    Kswapd,
    Direct,
    Khugepaged,
}

impl Reclaimer {
    /// Where the pages that it looks at, takes and demotes are counted.
    ///
    /// Source: specs/huge-pages.md#khugepaged.
    fn items(self, version: KernelVersion) -> [Item; 3] {
        match self {
            Self::Kswapd => [Item::PgscanKswapd, Item::PgstealKswapd, Item::PgdemoteKswapd],
            Self::Khugepaged if version >= KernelVersion::V6_12 => {
                [Item::PgscanKhugepaged, Item::PgstealKhugepaged, Item::PgdemoteKhugepaged]
            }
            Self::Khugepaged | Self::Direct => {
                [Item::PgscanDirect, Item::PgstealDirect, Item::PgdemoteDirect]
            }
        }
    }
}

/// Why an access can't be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fatal {
    /// Nothing is mapped there, or not for this kind of access.
    Segv,
    /// No memory, also not by reclaim.
    Oom,
}

pub(crate) struct Kernel {
    pub(crate) memory: Memory,
    pub(crate) spaces: Vec<Option<Space>>,
    /// By space, and in it by place of a node, a bit: a CPU has run it since aging on the node's behalf looked last. Each
    /// switch sets them, so they lie apart from all else that is known of a space.
    pub(crate) spaces_ran: Vec<u64>,
    pub(crate) knobs: Knobs,
    pub(crate) model: Model,
    /// What decides where a contender may decide otherwise.
    pub(crate) inside: hooks::Inside,
    pub(crate) tiers: Tiers,
    /// Per zone, in the order of [`Memory::zones`].
    pub(crate) marks: Vec<ZoneMarks>,
    /// Per place of a node: places of all nodes with memory, nearest first.
    pub(crate) fallback: Vec<Vec<usize>>,
    /// Above all numbers of nodes.
    node_ids: usize,
    /// Per place: whether the node is of the top tier.
    pub(crate) top: Vec<bool>,
    /// Per place: preferred targets of demotion, then all lower ones by distance.
    demote_to: Vec<Vec<usize>>,
    demote_any: Vec<Vec<usize>>,
    pub(crate) promote: Vec<PromoteNode>,
    pub(crate) stat: VmStat,
    pub(crate) loads: Loads,
    /// Per place: the least time that its bandwidth allows for copying a page.
    copy_bound: Vec<u64>,
    /// What its own work takes, among other things.
    pub(crate) prices: Prices,
    pub(crate) kswapd: Vec<KswapdState>,
    /// The address space that has to go since no generation of a node is old enough.
    pub(crate) doomed: Option<usize>,
    /// Nodes whose kswapd was woken and does not run yet.
    pub(crate) woken: Vec<usize>,
    pub(crate) swap_free: u64,
    /// Entries on the device beyond one per slot: fork copies an entry, not the slot.
    pub(crate) swap_shared: u64,
    /// NUMA state of tasks, by task number.
    pub(crate) numa: Vec<TaskNuma>,
    pub(crate) groups: BTreeMap<u32, GroupFaults>,
    distances: Distances,
    /// Tasks that were placed, and tasks that joined a group, of which the scheduler doesn't know yet.
    pub(crate) placed: Vec<usize>,
    pub(crate) regrouped: Vec<usize>,
    pub(crate) homing: HomingFigures,
    /// Per CPU number: the task that runs there, or ran last, and its PID.
    pub(crate) running: Vec<Option<(usize, u32)>>,
    /// Per CPU number: place of its node.
    pub(crate) cpu_node: Vec<Option<usize>>,
    /// Pages moved between places of nodes.
    pub(crate) moved: Vec<Vec<u64>>,
    /// Injected failures of migrations, in thousandths.
    pub(crate) fail_moves: u32,
    faults: Stream,
    pub(crate) hotplug: hotplug::Hotplug,
    pub(crate) watch: Option<Box<dyn Watch>>,
    /// What the run is judged by, where it is.
    pub(crate) score: Option<Box<crate::score::Score>>,
    /// Who looks on at hint faults.
    pub(crate) probe: Option<Box<Probe>>,
    /// 3.8's limit on migrations per node.
    seed_limit: Vec<homenode_core::numa::scan::SeedRateLimit>,
    /// Same-page merging.
    pub(crate) merging: merge::Merging,
    pub(crate) khugepaged: khugepaged::Khugepaged,
    pub(crate) flushes: flush::Flushes,
}

impl Kernel {
    /// Which node answers accesses to a page from CPUs of the node at a place, and how late in the
    /// mean, as samples show it; `None` where nothing is in memory.
    pub(crate) fn answers(&self, page: u32, from: usize) -> Option<Answered> {
        let w = Word(self.memory.words[page as usize]);
        if !w.resident() || self.memory.is_zero_page(w) {
            return None;
        }
        let item = if w.shared() { w.frame() | FRAME_ITEM } else { page };
        let by = self.memory.node_of(self.memory.word(item).zone());
        Some(Answered { by: u16::try_from(by).ok()?, took: self.loads.permille(from, by) })
    }
    /// A booted kernel on an idle machine.
    pub(crate) fn new(
        machine: &Hardware,
        knobs: Knobs,
        model: Model,
        pages: u64,
        seed: u64,
    ) -> Result<Self, MemoryError> {
        let memory = Memory::new(machine, pages)?;
        let n = machine.nodes.len();
        // An expander that firmware says nothing about comes by a driver; what is
        // measured or published here stands for the firmware's table.
        let tiers = Tiers::new(machine, Firmware::Hmat, knobs.version);
        let to = |p: usize| machine.links.iter().filter(move |l| l.to == machine.nodes[p].id);
        let copy_bound = |p: usize| {
            let near = to(p).min_by_key(|l| (l.read_latency.value, l.from));
            let slower = |l: &Link| l.read_bandwidth.value.min(l.write_bandwidth.value);
            near.map_or(0, |l| MBps(slower(l)).time_for(Bytes(PAGE_SIZE)).0)
        };
        let cpus = machine.cpus.last().map_or(0, |c| c.id.index() + 1);
        let mut cpu_node = vec![None; cpus];
        for c in &machine.cpus {
            cpu_node[c.id.index()] = machine.position(c.node);
        }
        let swap_free = match model.swap {
            Swap::None => 0,
            Swap::Device(pages) => pages.0,
        };
        let marks = marks(&memory, &knobs, &model);
        let hotplug = hotplug::Hotplug::new(machine, &memory, &tiers);
        let mut kernel = Self {
            memory,
            spaces: Vec::new(),
            spaces_ran: Vec::new(),
            tiers,
            marks,
            fallback: vec![Vec::new(); n],
            node_ids: machine.nodes.iter().map(|n| n.id.index() + 1).max().unwrap_or(1),
            top: vec![false; n],
            demote_to: vec![Vec::new(); n],
            demote_any: vec![Vec::new(); n],
            promote: vec![PromoteNode::default(); n],
            stat: VmStat::new(n),
            loads: Loads::new(machine),
            copy_bound: (0..n).map(copy_bound).collect(),
            prices: machine.costs.prices(),
            kswapd: vec![KswapdState::at_boot(Self::ms(0).into()); n],
            doomed: None,
            woken: Vec::new(),
            swap_free,
            swap_shared: 0,
            numa: Vec::new(),
            groups: BTreeMap::new(),
            distances: Distances::of(machine),
            placed: Vec::new(),
            regrouped: Vec::new(),
            homing: HomingFigures::default(),
            running: vec![None; cpus],
            cpu_node,
            moved: vec![vec![0; n]; n],
            fail_moves: 0,
            faults: Stream::new(seed, "faults"),
            hotplug,
            watch: None,
            score: None,
            probe: None,
            seed_limit: vec![Default::default(); n],
            merging: merge::Merging::new(machine, knobs.version),
            khugepaged: khugepaged::Khugepaged::default(),
            flushes: flush::Flushes::default(),
            knobs,
            inside: hooks::Inside::new(model.admission.hooks()),
            model,
        };
        kernel.order_nodes(machine);
        Ok(kernel)
    }

    /// The place of a node by its number.
    pub(crate) fn place_of(&self, id: NodeId) -> usize {
        self.memory.nodes.iter().position(|n| n.id == id.0).expect("a checked scenario")
    }
    pub(crate) fn space(&self, number: usize) -> &Space {
        self.spaces[number].as_ref().expect("a task's space lives")
    }
    pub(crate) fn space_mut(&mut self, number: usize) -> &mut Space {
        self.spaces[number].as_mut().expect("a task's space lives")
    }
    /// The kernel's tick counter at a moment.
    pub(crate) fn jiffies(clock: u64) -> u64 {
        // Boot is not at 0: "never" and "at boot" must differ (the kernel starts
        // its counter five minutes before it wraps, for the same reason).
        BOOT_JIFFIES + clock / TICK
    }
    /// The kernel's milliseconds at a moment.
    pub(crate) fn ms(clock: u64) -> u32 {
        (BOOT_JIFFIES * 4 + Picos(clock).as_ms()) as u32
    }

    /// Wakes a node's kswapd, unless it has nothing to do or has given up.
    pub(crate) fn wake_kswapd(&mut self, node: usize) {
        self.wake_kswapd_for(node, 1);
    }
    /// The same, on behalf of one who wants so many pages at once. That is kept also where it is not
    /// woken.
    ///
    /// Source: specs/tiering.md#kswapd.
    pub(crate) fn wake_kswapd_for(&mut self, node: usize, pages: u64) {
        self.kswapd[node].asks(pages);
        if self.memory.nodes[node].zones.is_empty()
            || !self.kswapd[node].state.heeds_wakeup(self.balanced_for(node, Pages(pages)))
            || self.woken.contains(&node)
        {
            return;
        }
        self.woken.push(node);
    }

    /// Writes a knob; what follows from it follows at once.
    pub(crate) fn set_knob(
        &mut self,
        name: &str,
        text: &str,
        who: WriteAs,
        now: u64,
    ) -> Result<(), KnobError> {
        let old = self.knobs.transparent_hugepage;
        let before = self.knobs.numa_balancing;
        let demoted = self.knobs.demotion_enabled;
        let generations = self.knobs.lru_gen;
        self.knobs.write(name, text, who)?;
        if generations.core() != self.knobs.lru_gen.core() {
            if let Err(e) = self.match_generations() {
                self.knobs.lru_gen = generations;
                let (knob, given) = (name.to_owned(), Some(text.to_owned()));
                let allowed = e.to_string();
                return Err(KnobError { knob, given, errno: Errno::Enomem, allowed });
            }
        }
        if before.effect_of(self.knobs.numa_balancing).reset_thresholds {
            for p in &mut self.promote {
                p.reset(Self::ms(now));
            }
        }
        if !demoted && self.knobs.demotion_enabled {
            for k in &mut self.kswapd {
                k.state.demotion_begins(self.knobs.version);
            }
        }
        self.marks = marks(&self.memory, &self.knobs, &self.model);
        self.khugepaged_told(old, Knob::find(name, self.knobs.version));
        Ok(())
    }

    pub(crate) fn count(&mut self, ctx: &Ctx, item: Item, n: u64) {
        self.stat.add(ctx.node, item, n);
    }
}

/// The marks of all zones, in the order in which [`Memory`] has them. A zone whose memory
/// is offline takes no part.
fn marks(memory: &Memory, knobs: &Knobs, model: &Model) -> Vec<ZoneMarks> {
    let zones: Vec<Zone> = memory
        .zones
        .iter()
        .map(|z| Zone { kind: z.kind, managed: homenode_core::units::Pages(z.managed) })
        .collect();
    let knobs = MarkKnobs::new(knobs, model.margin, &zones);
    (0..memory.nodes.len())
        .flat_map(|node| {
            let own = zones.iter().zip(&memory.zones).filter(|(_, s)| s.node == node);
            knobs.node(&own.map(|(z, _)| *z).collect::<Vec<_>>())
        })
        .collect()
}

/// Picoseconds of a tick.
pub(crate) const TICK: u64 = 1_000_000_000_000 / homenode_core::units::HZ;
const BOOT_JIFFIES: u64 = 75_000;
