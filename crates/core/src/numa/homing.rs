//! A task follows its memory: the choice of a CPU on its preferred node, or of a task there to swap with.
//!
//! A hint fault asks for it now and then ([`super::faults::TaskFaults::placement_due`]) while the task runs on
//! another node than the preferred one. The two nodes' queues are summed up and classed
//! ([`NodeStats`]), then each CPU of the other node is looked at:
//!
//! ```text
//!  preferred node has spare room, and would not hold too many: its idle CPU, at once
//!  a CPU idles, and load gets no more out of balance:          there
//!  a task runs there whose own memory is elsewhere:            the two swap, if both together gain
//!  none of it:                                                 other nodes, then it stays
//! ```
//!
//! What is gained is counted in thousandths of faults ([`super::weights`]).
//!
//! Worked example: a task has 900 of 1000 faults on node 1, 50 on node 0 where it runs: gain 850. On node 1's
//! only CPU runs a task with 700 of 1000 faults on node 0 and 200 on node 1, preferred node 0: 500. The swap is
//! worth 1350, and an eighth more since the other comes home: 1518.

use super::faults::{GroupFaults, TaskFaults};
use super::weights::{Distances, Shape};
use crate::kernel::KernelVersion;
use crate::sched::balance::group::adjust_numa_imbalance;
use crate::units::NodeId;

/// Gains below this are noise: a swap has to gain so much.
pub const SMALL_GAIN: i64 = 30;

/// What is seen of a CPU's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuFigures {
    /// Load average, of sleepers too; up to 4.15 of those who are queued.
    pub load: u64,
    /// Runnable average.
    pub runnable: u64,
    /// Utilisation.
    pub util: u64,
    /// Tasks that are queued, those whose sleep is delayed included.
    pub nr_queued: u32,
    /// Those of them whose sleep is delayed.
    pub nr_delayed: u32,
    /// Capacity left to the fair class, of 1024.
    pub capacity: u32,
}

/// What runs on a CPU, as a partner for a swap.
#[derive(Clone, Copy, Debug)]
pub struct Partner<'a> {
    /// Its number.
    pub task: u32,
    /// It may run on the CPU that the other would leave.
    pub may_come: bool,
    /// It is a program's, not the kernel's.
    pub of_program: bool,
    /// Its faults.
    pub faults: &'a TaskFaults,
    /// Its group.
    pub group: Option<&'a GroupFaults>,
    /// Its share of its CPU's load.
    pub h_load: u64,
}

/// The machine as the choice looks at it.
pub trait Seen {
    /// Places of the CPUs of a node that are online, rising.
    fn cpus(&self, node: NodeId) -> &[u16];
    /// A CPU's queue.
    fn figures(&self, cpu: u16) -> CpuFigures;
    /// A CPU's idle task runs and nothing is queued there.
    fn is_idle(&self, cpu: u16) -> bool;
    /// The machine has cores of several threads, and all others of this CPU's core are idle.
    fn is_core_idle(&self, cpu: u16) -> bool;
    /// Somebody else is about to move a task there.
    fn is_claimed(&self, cpu: u16) -> bool;
    /// The task that looks may run there.
    fn may_run(&self, cpu: u16) -> bool;
    /// What runs on a CPU; `None` where it is idle, or what runs there ends.
    fn current(&self, cpu: u16) -> Option<Partner<'_>>;
    /// Before 4.20: an idle CPU near this one, as wake-ups would find it for the task; itself if there is none.
    fn idle_near(&self, cpu: u16) -> u16;
}

/// The task that looks for a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Mover<'a> {
    /// Its number.
    pub task: u32,
    /// The place of its CPU.
    pub cpu: u16,
    /// That CPU's node.
    pub node: NodeId,
    /// Its faults.
    pub faults: &'a TaskFaults,
    /// Its group.
    pub group: Option<&'a GroupFaults>,
    /// Its share of its CPU's load.
    pub h_load: u64,
    /// `imbalance_pct` and `imb_numa_nr` of the lowest level of its CPU that spans nodes; `None`: there is none.
    pub level: Option<(u32, u32)>,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It stays where it is (`sched_stick_numa`).
    Stay,
    /// It goes to a CPU (`sched_move_numa`).
    Move {
        /// The place of the CPU.
        cpu: u16,
    },
    /// It changes places with what runs on a CPU (`sched_swap_numa`).
    Swap {
        /// The place of the CPU.
        cpu: u16,
        /// The task that runs there.
        with: u32,
    },
}

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Homing {
    /// What becomes of the task.
    pub way: Way,
    /// Its preferred node from now on; `None`: as before.
    pub preferred: Option<NodeId>,
    /// Its period starts anew, whatever happens to the task's move.
    pub period: Restart,
}

/// What of the period begins anew by the choice itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Nothing: a move between nodes sees to that ([`super::period::restarts_after_move`]).
    No,
    /// It is the shortest one.
    Shortest,
    /// It is the one that sampling starts with.
    Start,
}

/// Whether tasks follow their memory: since 3.13.
///
/// Source: specs/numa.md#homing.
#[inline]
pub fn tasks_follow(version: KernelVersion) -> bool {
    version > KernelVersion::V3_8
}

/// Whether any move between nodes may start a period anew: since 4.20. Before, only a move by the fault does.
///
/// Source: specs/numa.md#homing.
#[inline]
pub fn moves_restart(version: KernelVersion) -> bool {
    version > KernelVersion::V4_15
}

crate::named! {
    /// How full a node is.
    ///
    /// Source: specs/numa.md#node-class.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum NodeClass {
        /// More tasks would find room.
        #[default]
        Spare => "spare",
        /// All its CPUs are busy, nobody competes.
        Busy => "busy",
        /// Tasks compete.
        Overloaded => "overloaded",
    }
}

/// Sums over the CPUs of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Of loads.
    pub load: u64,
    /// Of runnable averages.
    pub runnable: u64,
    /// Of utilisations.
    pub util: u64,
    /// Of capacities.
    pub capacity: u64,
    /// Of tasks.
    pub nr_running: u32,
    /// Its CPUs.
    pub weight: u32,
}

impl NodeStats {
    /// The class, where `pct` is the percentage above which load counts.
    ///
    /// Source: specs/numa.md#node-class.
    pub const fn class(&self, pct: u32) -> NodeClass {
        let (pct, cap) = (pct as u64, self.capacity);
        let (nr, weight) = (self.nr_running, self.weight);
        if nr > weight && (cap * 100 < self.util * pct || cap * pct < self.runnable * 100) {
            NodeClass::Overloaded
        } else if nr < weight || (cap * 100 > self.util * pct && cap * pct > self.runnable * 100) {
            NodeClass::Spare
        } else {
            NodeClass::Busy
        }
    }
    /// Before 4.20: tasks that it has cores for.
    ///
    /// Source: specs/numa.md#homing-before.
    pub fn cores(&self) -> u32 {
        if self.capacity == 0 {
            return 0;
        }
        let smt = (1024 * u64::from(self.weight)).div_ceil(self.capacity);
        (u64::from(self.weight) / smt).min((self.capacity + 512) / 1024) as u32
    }
    fn has_room(&self) -> bool {
        self.nr_running < self.cores()
    }
}

/// Whether moving `load` from one node to the other puts them further out of balance than they are, load being weighed by
/// capacity.
///
/// Source: specs/numa.md#homing.
pub fn worse_balanced(src: &NodeStats, dst: &NodeStats, load: i64) -> bool {
    let weigh = |s: i64, d: i64| (d * src.capacity as i64 - s * dst.capacity as i64).abs();
    let (s, d) = (src.load as i64, dst.load as i64);
    weigh(s - load, d + load) > weigh(s, d)
}

/// The same before 4.20, where what is within `pct` doesn't matter.
///
/// Source: specs/numa.md#homing-before.
pub fn worse_balanced_before(src: &NodeStats, dst: &NodeStats, load: i64, pct: u32) -> bool {
    // The larger one is held against the smaller, each with the same capacity as before.
    let over = |s: i64, d: i64| {
        let (most, least) = (s.max(d), s.min(d));
        most * src.capacity as i64 * 100 - least * dst.capacity as i64 * i64::from(pct)
    };
    let (s, d) = (src.load as i64, dst.load as i64);
    let after = over(s - load, d + load);
    after > 0 && after > over(s, d)
}

/// The best that was found so far.
#[derive(Clone, Copy, Debug, Default)]
struct Best {
    cpu: Option<u16>,
    with: Option<(u32, Option<NodeId>)>,
    gain: i64,
}

struct Search<'a, S> {
    d: &'a Distances,
    seen: &'a S,
    m: &'a Mover<'a>,
    version: KernelVersion,
    pct: u32,
    imb_numa_nr: u32,
    /// The distance by which weights are reckoned.
    limit: u32,
    src: NodeStats,
    dst_node: NodeId,
    dst: NodeStats,
    /// An idle CPU of the other node, of an idle core if there is one.
    idle_cpu: Option<u16>,
    best: Best,
}

/// Where a task goes that runs away from its preferred node.
///
/// Source: specs/numa.md#homing.
pub fn choose(d: &Distances, seen: &impl Seen, m: &Mover<'_>, version: KernelVersion) -> Homing {
    let Some(preferred) = m.faults.preferred else {
        return Homing { way: Way::Stay, preferred: None, period: Restart::No };
    };
    let Some(level) = m.level else {
        return Homing { way: Way::Stay, preferred: Some(m.node), period: Restart::No };
    };
    let modern = version > KernelVersion::V4_15;
    let mut s = Search::new(d, seen, m, version, level, preferred);
    let limit = s.limit;
    let weights =
        |limit| (d.task_weight(m.faults, m.node, limit), d.group_weight(m.group, m.node, limit));
    let gains = |node, limit, (task, group): (i64, i64)| {
        let (t, g) = (d.task_weight(m.faults, node, limit), d.group_weight(m.group, node, limit));
        (t - task, g - group)
    };
    let mut here = weights(limit);
    s.look_at(preferred);
    s.find(gains(preferred, limit, here));
    if s.best.cpu.is_none() || m.group.is_some_and(|g| g.active_nodes > 1) {
        for &node in d.with_cpus() {
            if node == m.node || node == preferred {
                continue;
            }
            // The distance to the node that was looked at before this one: so does the kernel.
            let limit = d.between(m.node, s.dst_node);
            if d.shape() == Shape::Backplane && limit != s.limit {
                here = weights(limit);
            }
            let (task, group) = gains(node, limit, here);
            if task < 0 && group < 0 {
                continue;
            }
            s.limit = limit;
            s.look_at(node);
            s.find((task, group));
        }
    }
    let found = s.best.cpu;
    let next = match m.group {
        None => None,
        Some(_) if modern => Some(found.map_or(m.node, |cpu| s.node_of(cpu))),
        Some(g) if version == KernelVersion::V4_5 => {
            let judged = if found.is_some() { s.dst_node } else { m.node };
            g.is_active(judged).then_some(s.dst_node)
        }
        Some(g) => (g.active_nodes > 1 && g.is_active(s.dst_node)).then_some(s.dst_node),
    };
    let way = match (found, s.best.with) {
        (None, _) => Way::Stay,
        (Some(cpu), None) => Way::Move { cpu },
        (Some(cpu), Some((with, _))) => Way::Swap { cpu, with },
    };
    let period = match (modern || found.is_none(), version) {
        (true, _) => Restart::No,
        (false, KernelVersion::V3_8 | KernelVersion::V4_5) => Restart::Shortest,
        (false, _) => Restart::Start,
    };
    Homing { way, preferred: next.filter(|&n| n != preferred), period }
}

impl<'a, S: Seen> Search<'a, S> {
    fn new(
        d: &'a Distances,
        seen: &'a S,
        m: &'a Mover<'a>,
        version: KernelVersion,
        (pct, imb_numa_nr): (u32, u32),
        preferred: NodeId,
    ) -> Self {
        let mut s = Self {
            d,
            seen,
            m,
            version,
            pct: 100 + pct.saturating_sub(100) / 2,
            imb_numa_nr,
            limit: d.between(m.node, preferred),
            src: NodeStats::default(),
            dst_node: preferred,
            dst: NodeStats::default(),
            idle_cpu: None,
            best: Best::default(),
        };
        s.src = s.sum(m.node);
        s
    }
    fn modern(&self) -> bool {
        self.version > KernelVersion::V4_15
    }
    fn sum(&self, node: NodeId) -> NodeStats {
        let mut sum = NodeStats::default();
        for &cpu in self.seen.cpus(node) {
            let f = self.seen.figures(cpu);
            sum.load += f.load;
            sum.runnable += f.runnable;
            sum.util += f.util;
            sum.capacity += u64::from(f.capacity);
            let delayed = if self.version >= KernelVersion::V7_3 { f.nr_delayed } else { 0 };
            sum.nr_running += f.nr_queued - delayed.min(f.nr_queued);
            sum.weight += 1;
        }
        sum
    }
    /// The node that is tried from now on.
    fn look_at(&mut self, node: NodeId) {
        (self.dst_node, self.dst) = (node, self.sum(node));
        self.idle_cpu = None;
        if !self.modern() {
            return;
        }
        let fit =
            |cpu: &u16| self.seen.is_idle(*cpu) && !self.is_taken(*cpu) && self.seen.may_run(*cpu);
        let idle = || self.seen.cpus(node).iter().copied().filter(fit);
        self.idle_cpu = idle().find(|&cpu| self.seen.is_core_idle(cpu)).or_else(|| idle().next());
    }
    /// A CPU that a move is under way to: somebody's, or the one of this search.
    fn is_taken(&self, cpu: u16) -> bool {
        self.best.cpu == Some(cpu) || self.seen.is_claimed(cpu)
    }
    fn node_of(&self, cpu: u16) -> NodeId {
        let has = |n: &&NodeId| self.seen.cpus(**n).contains(&cpu);
        self.d.with_cpus().iter().find(has).copied().unwrap_or(self.dst_node)
    }

    /// Looks for a CPU of the node that is tried.
    fn find(&mut self, gains: (i64, i64)) {
        if !self.modern() {
            return self.find_before(gains);
        }
        let may_move = if self.dst.class(self.pct) == NodeClass::Spare {
            let src = i64::from(self.src.nr_running) - 1;
            let dst = self.dst.nr_running + 1;
            let imbalance = (i64::from(dst) - src).max(0);
            let fine = adjust_numa_imbalance(imbalance, dst, self.imb_numa_nr) == 0;
            if let Some(idle) = self.idle_cpu.filter(|_| fine) {
                return self.assign(idle, None, 0);
            }
            fine
        } else {
            !worse_balanced(&self.src, &self.dst, self.m.h_load as i64)
        };
        for i in 0..self.seen.cpus(self.dst_node).len() {
            let cpu = self.seen.cpus(self.dst_node)[i];
            if self.seen.may_run(cpu) && self.compare(cpu, gains, may_move) {
                break;
            }
        }
    }
    /// Whether the search is over after this CPU.
    fn compare(&mut self, cpu: u16, (task_gain, group_gain): (i64, i64), may_move: bool) -> bool {
        if self.is_taken(cpu) {
            return false;
        }
        let m = self.m;
        let alone = if m.group.is_some() { group_gain } else { task_gain };
        let of_program = |c: &Partner<'_>| self.version < KernelVersion::V7_3 || c.of_program;
        let Some(c) = self.seen.current(cpu).filter(of_program) else {
            return may_move && alone >= self.best.gain && self.assign_move(cpu, alone, may_move);
        };
        if c.task == m.task {
            return true;
        }
        let home = c.faults.preferred;
        let best_goes_home = self.best.with.is_some_and(|(_, preferred)| preferred == Some(m.node));
        let goes_home = home == Some(m.node);
        if !c.may_come || best_goes_home && !goes_home {
            return false;
        }
        let mut gain = if same_group(m.group, c.group) {
            if self.dst.class(self.pct) == NodeClass::Spare {
                return false;
            }
            let both = task_gain + self.task_back(&c);
            if c.group.is_some() { both - both / 16 } else { both }
        } else if c.group.is_some() && m.group.is_some() {
            alone + self.group_back(&c)
        } else {
            alone + self.task_back(&c)
        };
        if home == Some(self.dst_node) {
            gain -= gain / 16;
        }
        if goes_home {
            gain += gain / 8;
        }
        if may_move && alone > gain && alone > self.best.gain {
            return self.assign_move(cpu, alone, may_move);
        }
        let instead = self.best.with.is_some() && goes_home && !best_goes_home;
        if !instead {
            if gain < SMALL_GAIN || gain <= self.best.gain + SMALL_GAIN / 2 {
                return false;
            }
            let load = m.h_load as i64 - c.h_load as i64;
            if load != 0 && worse_balanced(&self.src, &self.dst, load) {
                return false;
            }
        }
        self.assign(cpu, Some((c.task, home)), gain);
        !may_move && self.best.with.is_some_and(|(_, preferred)| preferred == Some(m.node))
    }
    /// What a partner gains by coming to the node that the task leaves.
    fn task_back(&self, c: &Partner<'_>) -> i64 {
        self.d.task_weight(c.faults, self.m.node, self.limit)
            - self.d.task_weight(c.faults, self.dst_node, self.limit)
    }
    fn group_back(&self, c: &Partner<'_>) -> i64 {
        self.d.group_weight(c.group, self.m.node, self.limit)
            - self.d.group_weight(c.group, self.dst_node, self.limit)
    }
    /// A move without a swap goes to the node's idle CPU, if there is one.
    fn assign_move(&mut self, cpu: u16, gain: i64, may_move: bool) -> bool {
        let cpu = self.idle_cpu.unwrap_or(cpu);
        let kept = self.best.cpu.filter(|&b| !self.seen.is_idle(cpu) && self.seen.is_idle(b));
        self.assign(kept.unwrap_or(cpu), None, gain);
        may_move && self.best.cpu.is_some_and(|b| self.seen.is_idle(b))
    }
    fn assign(&mut self, cpu: u16, with: Option<(u32, Option<NodeId>)>, gain: i64) {
        let mut cpu = cpu;
        if self.best.cpu != Some(cpu) && self.seen.is_claimed(cpu) {
            // The next idle one of the node, in a ring.
            let all = self.seen.cpus(self.dst_node);
            let at = all.partition_point(|&c| c <= cpu);
            let mut ring = all[at..].iter().chain(&all[..at]).copied();
            let free = |&c: &u16| {
                self.best.cpu != Some(c)
                    && self.seen.is_idle(c)
                    && self.seen.may_run(c)
                    && !self.seen.is_claimed(c)
            };
            let Some(other) = ring.find(free) else { return };
            cpu = other;
        }
        self.best = Best { cpu: Some(cpu), with, gain };
    }

    // ── Before 4.20 ────────────────────────────────────────────────────────────

    fn find_before(&mut self, gains: (i64, i64)) {
        let (src, dst) = (&self.src, &self.dst);
        let full = src.has_room() && !dst.has_room();
        let busier = src.load * dst.capacity * u64::from(self.pct) > dst.load * src.capacity * 100;
        if full || !busier {
            return;
        }
        for i in 0..self.seen.cpus(self.dst_node).len() {
            let cpu = self.seen.cpus(self.dst_node)[i];
            if self.seen.may_run(cpu) {
                self.compare_before(cpu, gains);
            }
        }
    }
    fn compare_before(&mut self, cpu: u16, (task_gain, group_gain): (i64, i64)) {
        let m = self.m;
        let alone = if m.group.is_some() { group_gain } else { task_gain };
        let best = self.best.gain;
        let partner = self.seen.current(cpu);
        let gain = match &partner {
            None => alone,
            Some(c) if c.task == m.task || !c.may_come => return,
            Some(c) if same_group(m.group, c.group) => {
                let both = task_gain + self.task_back(c);
                if c.group.is_some() { both - both / 16 } else { both }
            }
            Some(c) if c.group.is_some() => alone + self.group_back(c),
            Some(c) => alone + self.task_back(c),
        };
        if gain <= best && alone <= best {
            return;
        }
        match &partner {
            None if self.src.nr_running <= self.src.cores() && !self.dst.has_room() => return,
            None => {}
            Some(c) => {
                let single = |cpu| self.seen.figures(cpu).nr_queued == 1;
                if gain > best && single(m.cpu) && single(cpu) {
                    return self.assign_before(cpu, Some((c.task, c.faults.preferred)), gain);
                }
            }
        }
        let worse = |load| worse_balanced_before(&self.src, &self.dst, load, self.pct);
        let load = m.h_load as i64;
        if alone > gain && alone > best && !worse(load) {
            // One less, so that a CPU that idles wins.
            return self.assign_before(cpu, None, alone - 1);
        }
        if gain <= best {
            return;
        }
        match partner {
            Some(c) if !worse(load - c.h_load as i64) => {
                self.assign_before(cpu, Some((c.task, c.faults.preferred)), gain);
            }
            None if !worse(load) => self.assign_before(self.seen.idle_near(cpu), None, gain),
            Some(_) | None => {}
        }
    }
    const fn assign_before(&mut self, cpu: u16, with: Option<(u32, Option<NodeId>)>, gain: i64) {
        self.best = Best { cpu: Some(cpu), with, gain };
    }
}

/// Both in one group, or neither in any.
fn same_group(a: Option<&GroupFaults>, b: Option<&GroupFaults>) -> bool {
    a.map(|g| g.id) == b.map(|g| g.id)
}

#[cfg(test)]
mod tests;
