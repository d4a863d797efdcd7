//! Groups of a domain: sums, types, the busiest one, and how much is out of balance.

use super::super::domain::{Domain, Domains, Flags, Group};
use super::{BLOCK, Balance, Blocks, Facts, IdleType, Migration, Queues, Sum};

/// From so many CPUs on a level is summed up by blocks.
const MANY: u32 = 128;

crate::named! {
    /// How loaded a group is, from having room to having too much. The order is that of urgency.
    ///
    /// Source: specs/sched-balance.md#group-type.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum GroupType {
        /// Some of its CPUs' time is free.
        #[default]
        HasSpare => "has_spare",
        /// All its CPUs are used and nobody waits for long.
        FullyBusy => "fully_busy",
        /// A task would be better off on a CPU of more capacity.
        MisfitTask => "misfit_task",
        /// A core whose threads run several tasks, while the CPU that balances is idle.
        SmtBalance => "smt_balance",
        /// A level below could not balance since tasks are pinned.
        Imbalanced => "imbalanced",
        /// More tasks than it has time for.
        Overloaded => "overloaded",
    }
}

/// Sums over a group's CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Load for each 1024 of capacity; 0 where nothing asks for it.
    pub avg_load: u64,
    /// Load.
    pub load: u64,
    /// Capacity.
    pub capacity: u64,
    /// Utilisation.
    pub util: u64,
    /// Runnable averages.
    pub runnable: u64,
    /// Tasks of all classes.
    pub nr_running: u32,
    /// Tasks of the fair class.
    pub h_nr_queued: u32,
    /// Idle CPUs.
    pub idle_cpus: u32,
    /// CPUs.
    pub weight: u32,
    /// Its type.
    pub kind: GroupType,
    /// It is a core with several tasks, and the CPU that balances is idle.
    pub smt_balance: bool,
    /// Load that should be on a CPU of more capacity; 0: none.
    pub misfit: u64,
    /// Tasks with a preferred node.
    pub nr_numa: u32,
    /// Tasks on their preferred node.
    pub nr_preferred: u32,
}

/// Whether a CPU's capacity is clearly larger than another's: by more than 5 %.
#[inline]
pub const fn capacity_greater(a: u64, b: u64) -> bool {
    a * 1024 > b * 1078
}

/// Whether a task's utilisation fits a capacity: with a fifth to spare.
#[inline]
pub const fn fits_capacity(util: u64, capacity: u64) -> bool {
    util * 1280 < capacity * 1024
}

impl GroupStats {
    /// More tasks than CPUs, and more demand than time.
    ///
    /// * `pct` – the domain's `imbalance_pct`.
    #[inline]
    pub const fn is_overloaded(&self, pct: u64) -> bool {
        self.nr_running > self.weight
            && (self.capacity * 100 < self.util * pct || self.capacity * pct < self.runnable * 100)
    }
    /// Fewer tasks than CPUs, or clearly less demand than time.
    #[inline]
    pub const fn has_capacity(&self, pct: u64) -> bool {
        self.nr_running < self.weight
            || (self.capacity * pct >= self.runnable * 100 && self.capacity * 100 > self.util * pct)
    }
    /// Its type. `imbalanced`: the level below met pinned tasks.
    ///
    /// Source: specs/sched-balance.md#group-type.
    #[inline]
    pub const fn classify(&self, pct: u32, imbalanced: bool) -> GroupType {
        let pct = pct as u64;
        if self.is_overloaded(pct) {
            GroupType::Overloaded
        } else if imbalanced {
            GroupType::Imbalanced
        } else if self.smt_balance {
            GroupType::SmtBalance
        } else if self.misfit > 0 {
            GroupType::MisfitTask
        } else if !self.has_capacity(pct) {
            GroupType::FullyBusy
        } else {
            GroupType::HasSpare
        }
    }
    /// Load for each 1024 of capacity.
    #[inline]
    pub(super) const fn load_per_capacity(&self) -> u64 {
        self.load * 1024 / self.capacity
    }
}

crate::named! {
    /// Which queues of a group are looked at, by what NUMA balancing thinks of their tasks; a queue
    /// of a higher class than the group's is left out.
    ///
    /// Source: specs/sched-balance.md#busiest-queue.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum NumaClass {
        /// Tasks without a preferred node.
        Regular => "regular",
        /// Tasks away from their preferred node.
        Remote => "remote",
        /// All are at home.
        All => "all",
    }
}

impl NumaClass {
    /// That of so many tasks, of which `nr_numa` have a preferred node and `nr_preferred` are there.
    #[inline]
    pub const fn of(nr: u32, nr_numa: u32, nr_preferred: u32) -> Self {
        if nr > nr_numa {
            Self::Regular
        } else if nr > nr_preferred {
            Self::Remote
        } else {
            Self::All
        }
    }
}

/// One balancing of a level, as it goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Env<'d> {
    pub(super) d: &'d Domains,
    pub(super) domain: &'d Domain,
    pub(super) cpu: usize,
    pub(super) level: usize,
    pub(super) idle: IdleType,
    pub(super) now_j: u64,
    /// Where tasks go; another CPU of the own group where they are not allowed on `cpu`.
    pub(super) dst: usize,
    pub(super) imbalance: i64,
    pub(super) migration: Migration,
    pub(super) numa: NumaClass,
    /// The balancing has excluded CPUs.
    pub(super) masked: bool,
    pub(super) scanned: u32,
    /// See [`super::Outcome::idle_scan`].
    pub(super) idle_scan: Option<u32>,
}

impl<'d> Env<'d> {
    /// At its beginning.
    pub(super) fn new(
        d: &'d Domains,
        cpu: usize,
        level: usize,
        idle: IdleType,
        now_j: u64,
    ) -> Self {
        Self {
            d,
            domain: d.at(cpu, level),
            cpu,
            level,
            idle,
            now_j,
            dst: cpu,
            imbalance: 0,
            migration: Migration::Load,
            numa: NumaClass::All,
            masked: false,
            scanned: 0,
            idle_scan: None,
        }
    }
    /// Whether it is of so many CPUs that they are summed up by blocks.
    #[inline]
    pub(super) fn is_of_many(&self) -> bool {
        self.domain.weight >= MANY
    }
}

/// The domain's groups, summed up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums<'d> {
    pub(super) local: GroupStats,
    local_group: Option<&'d Group>,
    pub(super) busiest: GroupStats,
    busiest_group: Option<&'d Group>,
    load: u64,
    capacity: u64,
    /// The capacities of some groups are not in the sum.
    skipped: bool,
}

/// By how many tasks the busiest group exceeds the local one, for cores of each.
///
/// * `idle` – the CPU that balances is.
///
/// Source: specs/sched-balance.md#sibling-imbalance.
#[inline]
pub const fn sibling_imbalance(
    idle: bool,
    nr_busiest: u32,
    nr_local: u32,
    cores_busiest: u32,
    cores_local: u32,
) -> i64 {
    if !idle || nr_busiest == 0 {
        return 0;
    }
    if cores_busiest == cores_local {
        return nr_busiest.saturating_sub(nr_local) as i64;
    }
    let (theirs, ours) =
        (cores_local as i64 * nr_busiest as i64, cores_busiest as i64 * nr_local as i64);
    let more = if theirs > ours { theirs - ours } else { 0 };
    let cores = cores_local as i64 + cores_busiest as i64;
    let rounded = (2 * more + cores) / cores;
    if rounded <= 1 && nr_local == 0 && nr_busiest > 1 { 2 } else { rounded }
}

/// What is left of an imbalance between nodes, where a small one is allowed.
///
/// * `running` – tasks that the destination would have.
/// * `allowed` – the level's `imb_numa_nr`.
///
/// Source: specs/sched-balance.md#adjust.
#[inline]
pub const fn adjust_numa_imbalance(imbalance: i64, running: u32, allowed: u32) -> i64 {
    if running <= allowed && imbalance <= 2 { 0 } else { imbalance }
}

impl<'d> Env<'d> {
    #[inline]
    pub(super) fn considers(&self, mask: &[u64], cpu: usize) -> bool {
        !self.masked || mask[cpu / 64] >> (cpu % 64) & 1 != 0
    }

    /// Sums up a group into `s`. Whether a CPU of it has more than one task, or a misfit. Another group
    /// without a fair task is not classified: nothing can be pulled from it.
    ///
    /// * `blocks` – see [`Queues::blocks`].
    #[inline(always)]
    fn sum(
        &mut self,
        b: &Balance,
        (f, blocks): (&Facts<'_>, Option<&Blocks>),
        group: &'d Group,
        local: bool,
        s: &mut GroupStats,
    ) -> bool {
        let d = self.d;
        let mut overloaded = false;
        let asym = self.domain.flags.has(Flags::ASYM_CPUCAPACITY);
        let pct = u64::from(self.domain.imbalance_pct);
        let members = d.members(group);
        self.scanned += members.len() as u32;
        let may_be_reduced = !local && !asym && self.idle.idle() && b.nr_reduced > 0;
        let (mut all, mut misfit) = (Sum::default(), 0);
        let whole = members.len() >= BLOCK && !self.masked && !may_be_reduced && (local || !asym);
        if let Some(blocks) = blocks.filter(|_| whole) {
            blocks.sum_of_span(d.group_span(group), f, &mut all);
        } else {
            for &cpu in members {
                let cpu = usize::from(cpu);
                if !self.considers(&b.mask, cpu) {
                    continue;
                }
                all.add_cpu(f, cpu);
                let c = &f.figures[cpu];
                if c.nr_running == 0 {
                    continue;
                }
                if may_be_reduced {
                    if c.h_nr_queued == 1 && reduced(b, d, cpu, pct) {
                        // One task on a CPU that others take time from.
                        misfit = misfit.max(c.load);
                    }
                } else if asym && !local && misfit < f.misfit(cpu) {
                    misfit = f.misfit(cpu);
                    overloaded = true;
                }
            }
        }
        overloaded |= all.crowded > 0;
        let Sum { load, util, runnable, nr_running, h_nr_queued, idle_cpus, .. } = all;
        let Sum { nr_numa, nr_preferred, .. } = all;
        let state = &b.groups[group.capacity as usize];
        *s = GroupStats {
            avg_load: 0,
            load,
            capacity: state.capacity,
            util,
            runnable,
            nr_running,
            h_nr_queued,
            idle_cpus,
            weight: group.weight,
            kind: GroupType::HasSpare,
            smt_balance: !local
                && h_nr_queued > 1
                && self.idle.idle()
                && group.flags.has(Flags::SHARE_CPUCAPACITY),
            misfit,
            nr_numa,
            nr_preferred,
        };
        if local || h_nr_queued > 0 {
            s.kind = s.classify(self.domain.imbalance_pct, state.imbalance);
            if s.kind == GroupType::Overloaded {
                s.avg_load = s.load_per_capacity();
            }
        }
        overloaded
    }

    /// Whether a group is busier than the busiest so far.
    #[inline]
    fn busier(
        &self,
        b: &Balance,
        sums: &Sums<'d>,
        busiest: &GroupStats,
        group: &Group,
        s: &GroupStats,
        core_idle: bool,
    ) -> bool {
        if s.h_nr_queued == 0 {
            return false;
        }
        if self.domain.flags.has(Flags::ASYM_CPUCAPACITY) {
            let (here, there) =
                (u64::from(b.cpus[self.dst].capacity), &b.groups[group.capacity as usize]);
            let helps = || {
                core_idle
                    && capacity_greater(here, there.max)
                    && sums.local.kind == GroupType::HasSpare
            };
            if s.kind == GroupType::MisfitTask && !helps() {
                return false;
            }
            if s.kind <= GroupType::FullyBusy && capacity_greater(there.min, here) {
                return false;
            }
        }
        let Some(busiest_group) = sums.busiest_group else {
            return true;
        };
        if s.kind != busiest.kind {
            return s.kind > busiest.kind;
        }
        let smt = |g: &Group| g.flags.has(Flags::SHARE_CPUCAPACITY);
        match s.kind {
            GroupType::Overloaded => s.avg_load > busiest.avg_load,
            GroupType::Imbalanced => false,
            GroupType::MisfitTask => s.misfit > busiest.misfit,
            GroupType::SmtBalance if s.idle_cpus != 0 || busiest.idle_cpus != 0 => {
                self.more_tasks(s, busiest)
            }
            // Threads of a core want help more than whole cores do.
            GroupType::SmtBalance | GroupType::FullyBusy => !smt(busiest_group),
            GroupType::HasSpare if smt(busiest_group) != smt(group) => {
                !(smt(group) && s.h_nr_queued <= 1)
            }
            GroupType::HasSpare => self.more_tasks(s, busiest),
        }
    }

    /// Fewer idle CPUs, or as many and more tasks.
    fn more_tasks(&self, s: &GroupStats, than: &GroupStats) -> bool {
        s.idle_cpus < than.idle_cpus
            || s.idle_cpus == than.idle_cpus && s.nr_running > than.nr_running
    }

    /// Whether the next groups are a block of single CPUs without a fair task; its sum. None of them can be the
    /// busiest.
    #[inline]
    fn without_tasks<'b>(&self, groups: &[u32], blocks: &'b Blocks) -> Option<&'b Sum> {
        let d = self.d;
        let single = |at: usize| match d.members(d.group(*groups.get(at)?)) {
            &[cpu] => Some(usize::from(cpu)),
            _ => None,
        };
        let first = single(0).filter(|first| first % BLOCK == 0)?;
        let block = blocks.get(first / BLOCK).filter(|block| block.h_nr_queued == 0)?;
        // They rise: so many from the first to the last are all of them.
        (single(BLOCK - 1)? == first + BLOCK - 1).then_some(block)
    }

    /// Load for each 1024 of capacity of the whole domain. Few ask for it.
    fn average(&self, b: &Balance, sums: &Sums<'_>) -> u64 {
        let capacity = |g: &Group| b.groups[g.capacity as usize].capacity;
        let all = match sums.skipped {
            true => self.d.groups(self.cpu, self.level).map(capacity).sum(),
            false => sums.capacity,
        };
        sums.load * 1024 / all
    }

    /// Sums up all groups and finds the busiest.
    ///
    /// Source: specs/sched-balance.md#busiest.
    pub(super) fn sums(&mut self, b: &mut Balance, q: &mut impl Queues) -> Sums<'d> {
        let d = self.d;
        let many = self.is_of_many();
        if many {
            q.sum_up();
        }
        let q = &*q;
        let f = q.facts();
        let seen = (&f, if many { q.blocks() } else { None });
        let mut sums = Sums::default();
        let mut sum_util = 0;
        let mut overloaded = false;
        let overlap = self.domain.flags.has(Flags::OVERLAP);
        let core_idle = !d.asym() || !d.smt_active() || f.core_idle(d, self.dst);
        // The busiest group's sums, and those of the group that is compared with it.
        let mut others = [GroupStats::default(); 2];
        let mut busiest = 0;
        let may_skip =
            many && !overlap && !self.masked && !self.domain.flags.has(Flags::ASYM_CPUCAPACITY);
        let mut own = true;
        for ring in d.ring(self.cpu, self.level) {
            let mut at = 0;
            while at < ring.len() {
                let blocks = seen.1.filter(|_| may_skip && !own);
                if let Some(block) = blocks.and_then(|b| self.without_tasks(&ring[at..], b)) {
                    sums.load += block.load;
                    sum_util += block.util;
                    overloaded |= block.crowded > 0;
                    sums.skipped = true;
                    self.scanned += BLOCK as u32;
                    at += BLOCK;
                    continue;
                }
                let group = d.group(ring[at]);
                let local = if overlap { d.group_span(group).contains(self.dst) } else { own };
                let stats = if local {
                    sums.local_group = Some(group);
                    let stale = self.now_j >= b.groups[group.capacity as usize].next_update;
                    if self.idle != IdleType::NewlyIdle || stale {
                        b.update_capacity(d, q, self.cpu, self.level, self.now_j);
                    }
                    overloaded |= self.sum(b, seen, group, true, &mut sums.local);
                    &sums.local
                } else {
                    overloaded |= self.sum(b, seen, group, false, &mut others[1 - busiest]);
                    let (so_far, stats) = (&others[busiest], &others[1 - busiest]);
                    if self.busier(b, &sums, so_far, group, stats, core_idle) {
                        sums.busiest_group = Some(group);
                        busiest = 1 - busiest;
                        &others[busiest]
                    } else {
                        stats
                    }
                };
                sums.load += stats.load;
                sums.capacity += stats.capacity;
                sum_util += stats.util;
                (at, own) = (at + 1, false);
            }
        }
        if sums.busiest_group.is_some() {
            sums.busiest = others[busiest];
        }
        if self.domain.flags.has(Flags::NUMA) {
            let s = &sums.busiest;
            self.numa = NumaClass::of(s.h_nr_queued, s.nr_numa, s.nr_preferred);
        }
        if self.level + 1 == d.levels(self.cpu) {
            b.overloaded = overloaded;
        }
        if b.knobs.sis_util
            && self.idle != IdleType::NewlyIdle
            && self.domain.weight == d.llc_size(self.dst)
        {
            if let Some(llc) = d.llc(self.dst) {
                let llc = &mut b.llcs[llc];
                llc.utilised(sum_util, self.domain.weight, self.domain.imbalance_pct);
                self.idle_scan = Some(llc.nr_idle_scan);
            }
        }
        sums
    }

    /// The group to pull from, if something is to be pulled; how much goes to `imbalance`.
    ///
    /// Source: specs/sched-balance.md#balanced.
    pub(super) fn find_src_group(
        &mut self,
        b: &mut Balance,
        q: &mut impl Queues,
    ) -> Option<&'d Group> {
        let sums = self.sums(b, q);
        self.imbalance = 0;
        let busiest_group = sums.busiest_group?;
        if !self.forced(&sums) && self.is_balanced(b, &sums) {
            return None;
        }
        let (migration, imbalance) = self.calculate_imbalance(b, &sums);
        self.imbalance = imbalance;
        if let Some(migration) = migration {
            self.migration = migration;
        }
        (self.imbalance != 0).then_some(busiest_group)
    }

    /// Whether tasks are to be moved whatever the averages say.
    fn forced(&self, sums: &Sums<'d>) -> bool {
        matches!(sums.busiest.kind, GroupType::MisfitTask | GroupType::Imbalanced)
    }

    fn siblings(&self, sums: &Sums<'d>) -> i64 {
        let cores = |g: Option<&Group>| g.map_or(0, |g| g.cores);
        sibling_imbalance(
            self.idle.idle(),
            sums.busiest.nr_running,
            sums.local.nr_running,
            cores(sums.busiest_group),
            cores(sums.local_group),
        )
    }

    fn is_balanced(&self, b: &Balance, sums: &Sums<'d>) -> bool {
        let (local, busiest) = (&sums.local, &sums.busiest);
        if local.kind > busiest.kind {
            return true;
        }
        if local.kind == GroupType::Overloaded {
            let average = self.average(b, sums);
            let pct = u64::from(self.domain.imbalance_pct);
            if local.avg_load >= busiest.avg_load
                || local.avg_load >= average
                || 100 * busiest.avg_load <= pct * local.avg_load
            {
                return true;
            }
        }
        let flags = |g: Option<&Group>| g.map_or(Flags::NONE, |g| g.flags);
        let (ours, theirs) = (flags(sums.local_group), flags(sums.busiest_group));
        let spare = local.kind == GroupType::HasSpare;
        if theirs.has(Flags::PREFER_SIBLING) && spare && self.siblings(sums) > 1 {
            return false;
        }
        if busiest.kind == GroupType::Overloaded {
            return false;
        }
        if !self.idle.idle() {
            // An idle CPU of the group will do it.
            return true;
        }
        let smt = Flags::SHARE_CPUCAPACITY;
        if busiest.kind == GroupType::SmtBalance && ours.has(smt) != theirs.has(smt) {
            return false;
        }
        busiest.weight > 1 && local.idle_cpus <= busiest.idle_cpus + 1 || busiest.h_nr_queued == 1
    }

    /// How much is to be moved, and counted in what. Without a unit nothing is to be moved, and the unit of
    /// before stays.
    ///
    /// Source: specs/sched-balance.md#imbalance.
    fn calculate_imbalance(&self, b: &Balance, sums: &Sums<'d>) -> (Option<Migration>, i64) {
        let (local, busiest) = (&sums.local, &sums.busiest);
        let one_task = (Some(Migration::Task), 1);
        match busiest.kind {
            GroupType::MisfitTask if self.domain.flags.has(Flags::ASYM_CPUCAPACITY) => {
                return (Some(Migration::Misfit), 1);
            }
            GroupType::MisfitTask => return (Some(Migration::Load), busiest.misfit as i64),
            GroupType::SmtBalance | GroupType::Imbalanced => return one_task,
            GroupType::HasSpare | GroupType::FullyBusy | GroupType::Overloaded => {}
        }
        if local.kind == GroupType::HasSpare {
            if busiest.kind > GroupType::FullyBusy && !self.domain.flags.has(Flags::SHARE_LLC) {
                let free = local.capacity.saturating_sub(local.util) as i64;
                if self.idle.idle() && free == 0 {
                    return one_task;
                }
                return (Some(Migration::Util), free);
            }
            let prefer = sums.busiest_group.is_some_and(|g| g.flags.has(Flags::PREFER_SIBLING));
            let mut tasks = if busiest.weight == 1 || prefer {
                self.siblings(sums)
            } else {
                (i64::from(local.idle_cpus) - i64::from(busiest.idle_cpus)).max(0)
            };
            if self.domain.flags.has(Flags::NUMA) {
                let allowed = self.domain.imb_numa_nr;
                tasks = adjust_numa_imbalance(tasks, local.nr_running + 1, allowed);
            }
            return (Some(Migration::Task), tasks >> 1);
        }
        let average = || self.average(b, sums);
        let (ours, average) = if local.kind < GroupType::Overloaded {
            // It is about to be overloaded.
            let ours = local.load_per_capacity();
            if ours >= busiest.avg_load {
                return (None, 0);
            }
            let average = average();
            if ours >= average {
                return (None, 0);
            }
            (ours, average)
        } else {
            (local.avg_load, average())
        };
        // Where other groups weigh more than the busiest one, the first term is to lose: below zero it is
        // taken for something huge.
        let above = busiest.avg_load.wrapping_sub(average).wrapping_mul(busiest.capacity);
        let below = average.wrapping_sub(ours).wrapping_mul(local.capacity);
        let load = above.min(below) / 1024;
        (Some(Migration::Load), load as i64)
    }
}

/// Whether a CPU has clearly less capacity left than it could have.
#[inline]
pub(super) fn reduced(b: &Balance, d: &Domains, cpu: usize, pct: u64) -> bool {
    u64::from(b.cpus[cpu].capacity) * pct < u64::from(d.original(cpu)) * 100
}

/// The busiest group's sums, for tests.
#[cfg(test)]
pub(super) fn tests_sums(
    d: &Domains,
    b: &mut Balance,
    q: &mut impl Queues,
    cpu: usize,
    level: usize,
    idle: IdleType,
) -> Option<GroupStats> {
    let mut e = Env::new(d, cpu, level, idle, 0);
    let sums = e.sums(b, q);
    sums.busiest_group.map(|_| sums.busiest)
}

/// All that is seen of a domain, as text, for tests.
#[cfg(test)]
pub(super) fn tests_seen(
    d: &Domains,
    b: &mut Balance,
    q: &mut impl Queues,
    cpu: usize,
    level: usize,
    idle: IdleType,
) -> String {
    let mut e = Env::new(d, cpu, level, idle, 0);
    let sums = e.sums(b, q);
    let busiest = sums.busiest_group.map(|g| d.members(g));
    format!(
        "{:?} {busiest:?} {:?} load {} of {}, scanned {}, overloaded {}",
        sums.local,
        sums.busiest,
        sums.load,
        e.average(b, &sums),
        e.scanned,
        b.overloaded
    )
}
