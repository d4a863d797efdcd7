//! Where fork and exec put a task: the idlest group of each level, then its idlest CPU.

use super::super::domain::{Domain, Domains, Flags, Group};
use super::group::{GroupStats, GroupType, adjust_numa_imbalance, fits_capacity};
use super::{Balance, Blocks, Facts, Sum};

/// What the CPU of a task that execs would look like without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Without {
    /// The CPU.
    pub cpu: usize,
    /// Its load less the task's.
    pub load: u64,
    /// Its utilisation less the task's.
    pub util: u32,
    /// Its runnable average less the task's.
    pub runnable: u32,
    /// The idle task would run: no other task runs there, and no wake-up is pending.
    pub idle: bool,
}

/// A task that looks for a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// [`Flags::BALANCE_FORK`] or [`Flags::BALANCE_EXEC`].
    pub flag: Flags,
    /// The CPU that this happens on.
    pub cpu: usize,
    /// The task's CPU.
    pub prev: usize,
    /// A bitmap of CPUs that it may run on.
    pub allowed: &'a [u64],
    /// Place of its preferred node.
    pub preferred: Option<u16>,
    /// Its estimated utilisation.
    pub util: u64,
    /// Its CPU without it; `None` for a new task, which weighs nothing yet.
    pub without: Option<Without>,
}

/// What is seen of CPUs beside [`Facts`].
#[derive(Clone, Copy, Debug)]
pub struct IdleFacts<'a> {
    /// By CPU place: the exit latency of the idle state that it is in, of any unit; `u32::MAX`: it is in
    /// none. May be empty: none is.
    pub exit_latency: &'a [u32],
    /// A bitmap: CPUs that run tasks of the policy IDLE only. May be empty: none does.
    pub sched_idle: &'a [u64],
    /// The sums of blocks of CPUs, up to date; `None`: nobody keeps them, and each CPU is looked at.
    pub blocks: Option<&'a Blocks>,
}

#[inline]
fn bit(bitmap: &[u64], cpu: usize) -> bool {
    bitmap.get(cpu / 64).is_some_and(|w| w >> (cpu % 64) & 1 != 0)
}

impl Balance {
    /// The CPU for a task that forks or execs: from the highest level that is asked, down. Its `prev` where no
    /// level is asked.
    ///
    /// Source: specs/sched-balance.md#fork.
    pub fn find_dst_cpu(
        &self,
        d: &Domains,
        f: &Facts<'_>,
        i: &IdleFacts<'_>,
        p: &Placed<'_>,
    ) -> usize {
        let asked = |&l: &usize| d.at(p.cpu, l).flags.has(p.flag);
        let nr = (0..d.levels(p.cpu)).take_while(asked).count();
        let Some(mut level) = nr.checked_sub(1) else { return p.prev };
        let mut cpu = p.cpu;
        if !d.span(d.at(cpu, level)).intersects(p.allowed) {
            return p.prev;
        }
        let mut chosen = cpu;
        loop {
            // Within the level of a CPU that was chosen, all lower ones are asked as the top one is.
            let found = if d.at(cpu, level).flags.has(p.flag) {
                self.find_dst_group(d, (f, i.blocks), p, cpu, level)
                    .map(|group| self.idlest_cpu(d, f, i, p, group, cpu))
            } else {
                None
            };
            let below = match found {
                Some(found) => {
                    chosen = found;
                    if found == cpu {
                        level.checked_sub(1)
                    } else {
                        let weight = d.at(cpu, level).weight;
                        cpu = found;
                        let narrower = |&l: &usize| d.at(cpu, l).weight < weight;
                        (0..d.levels(cpu))
                            .take_while(narrower)
                            .filter(|&l| d.at(cpu, l).flags.has(p.flag))
                            .last()
                    }
                }
                None => level.checked_sub(1),
            };
            match below {
                Some(l) => level = l,
                None => return chosen,
            }
        }
    }

    fn sum_without(
        &self,
        d: &Domains,
        (f, blocks): (&Facts<'_>, Option<&Blocks>),
        p: &Placed<'_>,
        domain: &Domain,
        group: &Group,
    ) -> GroupStats {
        let asym = domain.flags.has(Flags::ASYM_CPUCAPACITY);
        let mut all = Sum::default();
        let mut misfit = asym;
        if let Some(blocks) = blocks.filter(|_| !asym) {
            let span = d.group_span(group);
            let allowed = p.allowed.get(span.first_word()..).unwrap_or(&[]);
            let words = span.words().iter().zip(allowed).map(|(all, may)| all & may);
            blocks.sum_of_words(span.first_word(), words, f, &mut all);
        } else {
            for &cpu in d.members(group) {
                let cpu = usize::from(cpu);
                if !bit(p.allowed, cpu) {
                    continue;
                }
                all.add_cpu(f, cpu);
                misfit &= !fits_capacity(p.util, self.cpus[cpu].capacity.into());
            }
        }
        let mut s = all.group_stats();
        s.misfit = u64::from(misfit);
        let without = p.without.as_ref();
        let without =
            without.filter(|w| d.group_span(group).contains(w.cpu) && bit(p.allowed, w.cpu));
        if let Some(w) = without {
            let c = &f.figures[w.cpu];
            s.load = s.load - c.load + w.load;
            s.util = s.util - u64::from(c.util) + u64::from(w.util);
            s.runnable = s.runnable - u64::from(c.runnable) + u64::from(w.runnable);
            s.nr_running -= u32::from(c.nr_running > 0);
            s.h_nr_queued -= u32::from(c.h_nr_queued > 0);
            s.idle_cpus -= u32::from(c.nr_running == 0 && f.idle(w.cpu));
            s.idle_cpus += u32::from(c.nr_running <= 1 && w.idle);
        }
        let state = &self.groups[group.capacity as usize];
        s.capacity = state.capacity;
        s.weight = group.weight;
        s.kind = s.classify(domain.imbalance_pct, state.imbalance);
        if matches!(s.kind, GroupType::FullyBusy | GroupType::Overloaded) {
            s.avg_load = s.load_per_capacity();
        }
        s
    }

    /// Whether a group is idler than the idlest so far.
    fn idler(&self, idlest: Option<(&Group, &GroupStats)>, group: &Group, s: &GroupStats) -> bool {
        // Anything beats an overloaded group of endless load, but for another overloaded one of as much.
        let Some((than_group, than)) = idlest else {
            return s.kind < GroupType::Overloaded || s.avg_load < u64::from(u32::MAX);
        };
        if s.kind != than.kind {
            return s.kind < than.kind;
        }
        let max = |g: &Group| self.groups[g.capacity as usize].max;
        match s.kind {
            GroupType::Overloaded | GroupType::FullyBusy => s.avg_load < than.avg_load,
            GroupType::Imbalanced | GroupType::SmtBalance => false,
            GroupType::MisfitTask => max(group) > max(than_group),
            GroupType::HasSpare => {
                s.idle_cpus > than.idle_cpus || s.idle_cpus == than.idle_cpus && s.util < than.util
            }
        }
    }

    /// The group of a CPU's level that the task goes to; `None`: the CPU's own one.
    fn find_dst_group<'d>(
        &self,
        d: &'d Domains,
        seen: (&Facts<'_>, Option<&Blocks>),
        p: &Placed<'_>,
        cpu: usize,
        level: usize,
    ) -> Option<&'d Group> {
        let domain = d.at(cpu, level);
        let mut local: Option<(&Group, GroupStats)> = None;
        let mut idlest: Option<(&Group, GroupStats)> = None;
        for group in d.groups(cpu, level) {
            if !d.group_span(group).intersects(p.allowed) {
                continue;
            }
            let s = self.sum_without(d, seen, p, domain, group);
            if d.group_span(group).contains(cpu) {
                local = Some((group, s));
            } else if self.idler(idlest.as_ref().map(|(g, s)| (*g, s)), group, &s) {
                idlest = Some((group, s));
            }
        }
        let (group, best) = idlest?;
        // No CPU of its own group is allowed.
        let Some((own, here)) = local else { return Some(group) };
        let go = match here.kind.cmp(&best.kind) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => self.goes(d, p, domain, cpu, (own, &here), (group, &best)),
        };
        go.then_some(group)
    }

    /// Whether a task leaves its group for one of the same type.
    fn goes(
        &self,
        d: &Domains,
        p: &Placed<'_>,
        domain: &Domain,
        cpu: usize,
        (own, here): (&Group, &GroupStats),
        (group, best): (&Group, &GroupStats),
    ) -> bool {
        let numa = domain.flags.has(Flags::NUMA);
        match here.kind {
            GroupType::Overloaded | GroupType::FullyBusy => {
                let pct = u64::from(domain.imbalance_pct);
                let margin = 1024 * (pct - 100) / 100;
                let stay = numa && best.avg_load + margin >= here.avg_load
                    || best.avg_load >= here.avg_load + margin
                    || 100 * here.avg_load <= pct * best.avg_load;
                !stay
            }
            GroupType::Imbalanced | GroupType::SmtBalance => false,
            GroupType::MisfitTask => {
                let max = |g: &Group| self.groups[g.capacity as usize].max;
                max(own) < max(group)
            }
            GroupType::HasSpare => {
                if numa {
                    if p.preferred == Some(d.node(cpu)) {
                        return false;
                    }
                    let first = usize::from(d.members(group)[0]);
                    if p.preferred == Some(d.node(first)) {
                        return true;
                    }
                    let may = d.members(own).iter().filter(|&&c| bit(p.allowed, c.into())).count();
                    let allowed = domain.imb_numa_nr.min(may as u32);
                    let difference = i64::from(here.idle_cpus.abs_diff(best.idle_cpus));
                    if adjust_numa_imbalance(difference, here.nr_running + 1, allowed) == 0 {
                        return false;
                    }
                }
                here.idle_cpus < best.idle_cpus
            }
        }
    }

    /// The CPU of a group that the task goes to.
    fn idlest_cpu(
        &self,
        d: &Domains,
        f: &Facts<'_>,
        i: &IdleFacts<'_>,
        p: &Placed<'_>,
        group: &Group,
        cpu: usize,
    ) -> usize {
        let members = d.members(group);
        if let [only] = members {
            return usize::from(*only);
        }
        let (mut least_latency, mut latest, mut shallowest) = (u32::MAX, 0, None);
        let (mut least_load, mut least_loaded) = (u64::MAX, cpu);
        for &c in members {
            let c = usize::from(c);
            if !bit(p.allowed, c) {
                continue;
            }
            if bit(i.sched_idle, c) {
                return c;
            }
            if f.idle(c) {
                let latency = i.exit_latency.get(c).copied().unwrap_or(u32::MAX);
                let stamp = self.cpus[c].idle_stamp;
                if latency < least_latency {
                    (least_latency, latest, shallowest) = (latency, stamp, Some(c));
                } else if (latency == u32::MAX || latency == least_latency) && stamp > latest {
                    // The one that has just gone idle may have a warmer cache.
                    (latest, shallowest) = (stamp, Some(c));
                }
            } else if shallowest.is_none() {
                let load = f.figures[c].load;
                if load < least_load {
                    (least_load, least_loaded) = (load, c);
                }
            }
        }
        shallowest.unwrap_or(least_loaded)
    }
}
