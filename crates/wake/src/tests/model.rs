//! The rules once more, slowly: sets, one CPU after the other, each version's steps written
//! out. It reads the same specification as the header, and nothing of it.

use super::machine::{Level, Set, State, name};
use crate::{Flags, Reason, Recent, Task, Version};

/// What a wake-up is, as the model wants it.
#[derive(Clone, Debug)]
pub(super) struct Wake {
    pub(super) waker_cpu: u32,
    pub(super) prev: u32,
    pub(super) task_cpu: u32,
    pub(super) waker: usize,
    pub(super) wakee: usize,
    pub(super) allowed: Set,
    pub(super) sync: bool,
    pub(super) current_cpu: bool,
    pub(super) kthread: bool,
    pub(super) idle_policy: bool,
    pub(super) jiffies: u64,
    pub(super) waker_load: u64,
    pub(super) wakee_load: u64,
    pub(super) wakee_util: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Told {
    pub(super) cpu: u32,
    pub(super) reason: Option<Reason>,
    pub(super) target: u32,
    pub(super) level: Option<u8>,
    pub(super) affine: bool,
    pub(super) wide: bool,
    pub(super) scanned: u32,
    pub(super) cleared: bool,
    pub(super) timed: bool,
}

/// The members of a set from a CPU upward, then those below it.
fn cyclic(set: &Set, from: u32) -> Vec<u32> {
    set.range(from..).chain(set.range(..from)).copied().collect()
}

fn share_cache(s: &State, a: u32, b: u32) -> bool {
    a == b || s.machine.llc(a).is_some_and(|l| l.span.contains(&b))
}

/// The first CPU of the lowest cluster, else of the LLC, else itself.
fn share_id(s: &State, cpu: u32) -> u32 {
    let levels = &s.machine.levels[cpu as usize];
    let cluster = levels.iter().find(|l| l.flags.contains(Flags::CLUSTER));
    cluster.or(s.machine.llc(cpu)).map_or(cpu, |l| *l.span.first().unwrap())
}

fn any_level(s: &State, flag: Flags) -> bool {
    s.machine.levels.iter().flatten().any(|l| l.flags.contains(flag))
}

fn smt(s: &State) -> bool {
    s.machine.core.iter().any(|core| core.len() > 1)
}

fn idle(s: &State, w: &Wake, cpu: u32) -> bool {
    let only_idle_policy = s.sched_idle.contains(&cpu)
        && match s.rules.version {
            Version::V4_5 | Version::V4_15 | Version::V4_16 => false,
            Version::V6_12 => true,
            Version::V7_3 => !w.idle_policy,
        };
    s.idle.contains(&cpu) || only_idle_policy
}

fn others_idle(s: &State, cpu: u32) -> bool {
    s.machine.core[cpu as usize].iter().all(|c| *c == cpu || s.idle.contains(c))
}

fn core_idle(s: &State, cpu: u32) -> bool {
    s.machine.core[cpu as usize].is_subset(&s.idle)
}

fn core_flag(s: &State, cpu: u32) -> Option<(u32, usize)> {
    let asym = s.machine.asym(cpu).filter(|l| !l.flags.contains(Flags::NUMA));
    let newest = s.rules.version == Version::V7_3;
    asym.filter(|_| newest).or(s.machine.llc(cpu)).map(name)
}

pub(super) fn enter_idle(s: &mut State, cpu: u32) {
    if let Some(flag) = core_flag(s, cpu) {
        if smt(s) && others_idle(s, cpu) {
            s.has_idle_core.insert(flag);
        }
    }
}

fn fits_capacity(s: &State, w: &Wake, cpu: u32) -> bool {
    w.wakee_util * 1280 < u64::from(s.capacity[cpu as usize]) * 1024
}

fn fits(s: &State, w: &Wake, cpu: u32) -> bool {
    match s.rules.version {
        Version::V4_5 | Version::V4_15 | Version::V4_16 => true,
        _ if !any_level(s, Flags::ASYM_CPUCAPACITY_FULL) => true,
        Version::V6_12 => fits_capacity(s, w, cpu),
        Version::V7_3 => fits_capacity(s, w, cpu) && (!smt(s) || others_idle(s, cpu)),
    }
}

fn affine(s: &State, w: &Wake, pct: u16) -> bool {
    let (here, prev) = (w.waker_cpu, w.prev);
    let old = s.rules.version <= Version::V4_16;
    if s.rules.version == Version::V4_5 {
        let load = |cpu: u32| i128::from(s.load[cpu as usize]);
        let capacity = |cpu: u32| i128::from(s.capacity[cpu as usize]);
        let mine = load(here) - if w.sync { i128::from(w.waker_load) } else { 0 };
        let more = 100 + (i128::from(pct) - 100) / 2;
        if mine <= 0 {
            return 100 * capacity(prev) <= more * capacity(here);
        }
        let theirs = load(prev) * more * capacity(here);
        return (mine + i128::from(w.wakee_load)) * 100 * capacity(prev) <= theirs;
    }
    if s.idle.contains(&here) {
        if s.rules.version == Version::V4_15 {
            return true;
        }
        if share_cache(s, here, prev) {
            return !s.idle.contains(&prev);
        }
    }
    let at = here as usize;
    let running = s.nr_running[at] - if old { 0 } else { s.nr_delayed[at] };
    if w.sync && running == 1 {
        return true;
    }
    if !old && s.idle.contains(&prev) {
        return false;
    }
    let mut load_here = i128::from(s.load[at]);
    if w.sync {
        if i128::from(w.waker_load) > load_here {
            return true;
        }
        load_here -= i128::from(w.waker_load);
    }
    load_here = (load_here + i128::from(w.wakee_load)) * 100;
    load_here *= i128::from(s.capacity[prev as usize]);
    let mut load_prev = i128::from(s.load[prev as usize]) - i128::from(w.wakee_load);
    load_prev *= 100 + (i128::from(pct) - 100) / 2;
    load_prev *= i128::from(s.capacity[at]);
    if s.rules.version == Version::V4_15 {
        load_here <= load_prev
    } else {
        load_here < load_prev + i128::from(w.sync)
    }
}

pub(super) fn choose(s: &mut State, tasks: &mut [Task], w: &Wake) -> Told {
    let mut told = Told { target: w.prev, ..Told::default() };
    let chosen = if w.allowed.len() > 1 {
        fair(s, tasks, w, &mut told)
    } else {
        told.reason = Some(Reason::OnlyAllowed);
        w.allowed.first().copied()
    };
    if told.reason == Some(Reason::SlowPath) {
        told.cpu = w.prev;
        return told;
    }
    if let Some(cpu) = chosen.filter(|c| w.allowed.contains(c) && s.active.contains(c)) {
        told.cpu = cpu;
        return told;
    }
    let node = s.machine.node[w.task_cpu as usize];
    let on_node = |c: &u32| s.machine.node[*c as usize] == node;
    let may: Set = w.allowed.intersection(&s.active).copied().collect();
    let (cpu, reason) = if let Some(cpu) = may.iter().copied().find(on_node) {
        (cpu, Reason::FallbackNode)
    } else if let Some(cpu) = may.first() {
        (*cpu, Reason::Fallback)
    } else {
        (*s.active.first().unwrap(), Reason::AffinityBroken)
    };
    (told.cpu, told.reason) = (cpu, Some(reason));
    told
}

fn fair(s: &mut State, tasks: &mut [Task], w: &Wake, told: &mut Told) -> Option<u32> {
    let old = s.rules.version <= Version::V4_16;
    let here = w.waker_cpu;
    // The waker notes whom it wakes.
    let waker = &mut tasks[w.waker];
    if w.jiffies > waker.decay_jiffies + u64::from(s.rules.hz) {
        waker.flips /= 2;
        waker.decay_jiffies = w.jiffies;
    }
    if waker.last_wakee != w.wakee as u32 {
        waker.last_wakee = w.wakee as u32;
        waker.flips += 1;
    }
    if !old && w.current_cpu && w.allowed.contains(&here) {
        told.reason = Some(Reason::CurrentCpu);
        return Some(here);
    }
    let size = s.machine.llc(here).map_or(1, |l| l.span.len() as u32);
    let mut flips = [tasks[w.waker].flips, tasks[w.wakee].flips];
    flips.sort_unstable();
    told.wide = flips[0] >= size && flips[1] >= flips[0] * size;
    let too_small = old && s.rules.version != Version::V4_5 && {
        let least = s.capacity_orig[here as usize].min(s.capacity_orig[w.prev as usize]);
        let most = *s.capacity_orig.iter().max().unwrap();
        most - least >= most / 8 && u64::from(least) * 1024 < w.wakee_util * 1280
    };
    let want = !told.wide && w.allowed.contains(&here) && !too_small;
    let levels = s.machine.levels[here as usize].clone();
    let mut slow = None;
    for (at, level) in levels.iter().enumerate() {
        if want && level.flags.contains(Flags::WAKE_AFFINE) && level.span.contains(&w.prev) {
            slow = None;
            if here != w.prev {
                told.level = Some(at as u8);
                told.affine = affine(s, w, level.pct);
                if told.affine {
                    told.target = here;
                }
            }
            break;
        }
        if level.flags.contains(Flags::BALANCE_WAKE) {
            slow = Some(at as u8);
        } else if !want {
            break;
        }
    }
    if slow.is_some() {
        told.level = slow;
        told.reason = Some(Reason::SlowPath);
        return None;
    }
    let (cpu, reason) = siblings(s, tasks, w, told);
    told.reason = Some(reason);
    if s.rules.recent == Recent::Waker && want {
        tasks[w.waker].recent = here;
    }
    Some(cpu)
}

fn siblings(s: &mut State, tasks: &mut [Task], w: &Wake, told: &mut Told) -> (u32, Reason) {
    let (target, prev) = (told.target, w.prev);
    let old = s.rules.version <= Version::V4_16;
    let clusters = !old && any_level(s, Flags::CLUSTER);
    let near = |s: &State, c: u32| !clusters || share_id(s, c) == share_id(s, target);
    let (mut far_prev, mut far_recent) = (None, None);

    if idle(s, w, target) && fits(s, w, target) {
        return (target, Reason::TargetIdle);
    }
    if prev != target && share_cache(s, prev, target) && idle(s, w, prev) && fits(s, w, prev) {
        if near(s, prev) {
            return (prev, Reason::PrevIdle);
        }
        far_prev = Some(prev);
    }
    let alone = s.nr_running[w.waker_cpu as usize] <= 1;
    if !old && w.kthread && prev == w.waker_cpu && alone && fits(s, w, prev) {
        return (prev, Reason::Stacked);
    }
    if s.rules.recent != Recent::None {
        let recent = tasks[w.wakee].recent;
        if s.rules.recent == Recent::Wakee {
            tasks[w.wakee].recent = prev;
        }
        if recent != prev
            && recent != target
            && share_cache(s, recent, target)
            && idle(s, w, recent)
            && w.allowed.contains(&recent)
            && fits(s, w, recent)
        {
            if near(s, recent) {
                tasks[w.wakee].recent = prev;
                return (recent, Reason::Recent);
            }
            far_recent = Some(recent);
        }
    }
    if let Some(asym) = s.machine.asym(target).cloned().filter(|_| !old) {
        return by_capacity(s, w, target, &asym, told);
    }
    let Some(llc) = s.machine.llc(target).cloned() else { return (target, Reason::NoLlc) };
    let found = match s.rules.version {
        Version::V4_5 => by_groups(s, w, target, &llc),
        Version::V4_15 | Version::V4_16 => scan_old(s, w, target, &llc, told),
        Version::V6_12 | Version::V7_3 => scan(s, w, target, &llc, told),
    };
    found
        .or(far_prev.map(|c| (c, Reason::PrevOtherCluster)))
        .or(far_recent.map(|c| (c, Reason::RecentOtherCluster)))
        .unwrap_or((target, Reason::NothingIdle))
}

fn clear(s: &mut State, target: u32, told: &mut Told) {
    if let Some(flag) = core_flag(s, target) {
        s.has_idle_core.remove(&flag);
        told.cleared = true;
    }
}

fn by_capacity(
    s: &mut State,
    w: &Wake,
    target: u32,
    asym: &Level,
    told: &mut Told,
) -> (u32, Reason) {
    let newest = s.rules.version == Version::V7_3;
    let has_core = core_flag(s, target).is_some_and(|f| s.has_idle_core.contains(&f));
    let want_core = newest && smt(s) && has_core;
    let mut budget = u32::MAX;
    if newest && !asym.flags.contains(Flags::NUMA) {
        budget = *s.nr_idle_scan.get(&name(asym)).unwrap_or(&0);
        if budget == 0 {
            return (target, Reason::NothingIdle);
        }
    }
    let may: Set = asym.span.intersection(&w.allowed).copied().collect();
    // Rank and capacity of what doesn't fit at once.
    let mut best: Option<(u32, u32, u32)> = None;
    for cpu in cyclic(&may, target) {
        if !want_core && told.scanned == budget {
            break;
        }
        told.scanned += 1;
        if !idle(s, w, cpu) {
            continue;
        }
        let whole = others_idle(s, cpu);
        let fit = fits_capacity(s, w, cpu);
        if fit && (whole || !want_core) {
            return (cpu, Reason::CapacityFits);
        }
        let rank = match (want_core, whole, fit) {
            (true, true, _) => 2,
            (true, false, true) => 1,
            _ => 0,
        };
        let capacity = s.capacity[cpu as usize];
        if best.is_none_or(|(r, c, _)| (rank, capacity) > (r, c)) {
            best = Some((rank, capacity, cpu));
        }
    }
    if want_core && best.is_none_or(|(rank, ..)| rank < 2) {
        clear(s, target, told);
    }
    best.map_or((target, Reason::NothingIdle), |(_, _, cpu)| (cpu, Reason::CapacityBest))
}

fn scan(
    s: &mut State,
    w: &Wake,
    target: u32,
    llc: &Level,
    told: &mut Told,
) -> Option<(u32, Reason)> {
    let has_core = smt(s) && s.has_idle_core.contains(&name(llc));
    if smt(s) && !has_core && share_cache(s, w.prev, target) {
        for cpu in &s.machine.core[w.prev as usize] {
            let may = w.allowed.contains(cpu) && llc.span.contains(cpu);
            if *cpu != w.prev && may && idle(s, w, *cpu) {
                return Some((*cpu, Reason::SmtSibling));
            }
        }
    }
    let budget = *s.nr_idle_scan.get(&name(llc)).unwrap_or(&0);
    if budget == 0 {
        return None;
    }
    let may: Set = llc.span.intersection(&w.allowed).copied().collect();
    // CPUs of the target's cluster come first, if that is the level below.
    let levels = &s.machine.levels[target as usize];
    let at = levels.iter().position(|l| l == llc).unwrap();
    let cluster = at.checked_sub(1).map(|below| &levels[below]);
    let cluster = cluster.filter(|l| l.flags.contains(Flags::CLUSTER));
    let first: Set =
        cluster.map(|l| l.span.intersection(&may).copied().collect()).unwrap_or_default();
    let rest: Set = may.difference(&first).copied().collect();
    let order: Vec<u32> =
        cyclic(&first, target + 1).into_iter().chain(cyclic(&rest, target + 1)).collect();
    if !has_core {
        for cpu in order.into_iter().take(budget as usize) {
            told.scanned += 1;
            if idle(s, w, cpu) {
                return Some((cpu, Reason::IdleCpu));
            }
        }
        return None;
    }
    if s.rules.version == Version::V7_3 && order.is_empty() {
        return None;
    }
    let mut seen = None;
    for cpu in order {
        told.scanned += 1;
        if core_idle(s, cpu) {
            return Some((cpu, Reason::IdleCore));
        }
        let core = &s.machine.core[cpu as usize];
        seen = seen.or(core.iter().copied().find(|c| may.contains(c) && idle(s, w, *c)));
    }
    clear(s, target, told);
    seen.map(|cpu| (cpu, Reason::IdleSeen))
}

fn scan_old(
    s: &mut State,
    w: &Wake,
    target: u32,
    llc: &Level,
    told: &mut Told,
) -> Option<(u32, Reason)> {
    if smt(s) && s.has_idle_core.contains(&name(llc)) {
        let may: Set = llc.span.intersection(&w.allowed).copied().collect();
        for cpu in cyclic(&may, target) {
            told.scanned += 1;
            if core_idle(s, cpu) {
                return Some((cpu, Reason::IdleCore));
            }
        }
        clear(s, target, told);
    }
    if s.machine.llc(w.waker_cpu).is_some() {
        let at = w.waker_cpu as usize;
        let pays = llc.span.len() as u64 * (s.avg_idle[at] / 512);
        let cost = s.scan_cost[at] + 1;
        let looks = if pays > 4 * cost { pays / cost } else { 4 };
        let mut left = looks;
        let mut cut = false;
        for cpu in cyclic(&llc.span, target) {
            left -= 1;
            if left == 0 {
                cut = true;
                break;
            }
            told.scanned += 1;
            if w.allowed.contains(&cpu) && s.idle.contains(&cpu) {
                told.timed = true;
                return Some((cpu, Reason::IdleCpu));
            }
        }
        told.timed = !cut;
    }
    let core = &s.machine.core[target as usize];
    let found = core.iter().copied().find(|c| w.allowed.contains(c) && s.idle.contains(c));
    found.filter(|_| smt(s)).map(|cpu| (cpu, Reason::SmtSibling))
}

fn by_groups(s: &State, w: &Wake, target: u32, llc: &Level) -> Option<(u32, Reason)> {
    let core = |cpu: u32| -> Set {
        s.machine.core[cpu as usize].intersection(&llc.span).copied().collect()
    };
    let firsts: Set = llc.span.iter().filter_map(|c| core(*c).first().copied()).collect();
    let own = *core(target).first().expect("the target is in it");
    for first in cyclic(&firsts, own).into_iter().filter(|f| *f != own) {
        let allowed = core(first).into_iter().find(|c| w.allowed.contains(c));
        if let Some(cpu) = allowed.filter(|_| core_idle(s, first)) {
            return Some((cpu, if smt(s) { Reason::IdleCore } else { Reason::IdleCpu }));
        }
    }
    let may = |c: &u32| *c != target && s.idle.contains(c) && w.allowed.contains(c);
    cyclic(&core(target), target).into_iter().find(may).map(|c| (c, Reason::SmtSibling))
}
