//! The balancing of one level.

use super::super::domain::{Domains, Flags};
use super::group::{Env, reduced};
use super::pull::{Pull, verdict};
use super::{Balance, Facts, IdleType, Migration, Outcome, Queues, Refusal};

/// So many tasks are looked at before the queue is let go once.
const NR_MIGRATE_BREAK: u32 = 32;
/// Intervals double up to here where all tasks are pinned, in ms.
const MAX_PINNED_INTERVAL: u32 = 512;

/// Whether a CPU balances a level for its group: the first one that is idle on an idle core, else the first
/// idle one, else the group's first. At the level of a core's threads the first idle one will do.
///
/// * `considered` – leaves CPUs out.
///
/// Source: specs/sched-balance.md#elected.
pub fn elected(
    d: &Domains,
    f: &Facts<'_>,
    cpu: usize,
    level: usize,
    dst: usize,
    considered: impl Fn(usize) -> bool,
) -> bool {
    let threads = d.at(cpu, level).flags.has(Flags::SHARE_CPUCAPACITY);
    let mask = d.balance_mask(d.local(cpu, level));
    let mut idle_thread = None;
    for &c in mask {
        let c = usize::from(c);
        if !f.idle(c) || !considered(c) {
            continue;
        }
        if !threads && !f.core_idle(d, c) {
            idle_thread = idle_thread.or(Some(c));
            continue;
        }
        return c == dst;
    }
    match idle_thread {
        Some(c) => c == dst,
        None => usize::from(mask[0]) == dst,
    }
}

/// What a stopper's push did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// The CPU that had asked, and whose domain counts.
    pub to: usize,
    /// The lowest level of its stack that spans both; `None`: nothing is counted, since the CPU has
    /// no task left or they share no level. `alb_count` rises by one.
    pub level: Option<usize>,
    /// The task: `alb_pushed` and, in the idle column, `lb_gained`. Otherwise `alb_failed`.
    pub task: Option<u32>,
}

/// Why a balancing ended.
enum End {
    /// Nothing to do.
    Balanced,
    /// All tasks are pinned.
    AllPinned,
    /// The running task may not come here.
    OnePinned,
    /// Something moved, or should have.
    Unbalanced,
}

/// What a balancing remembers of tasks that may not run everywhere.
#[derive(Default)]
struct Pins {
    /// No task looked at may run on the CPU that pulls.
    all: bool,
    some: bool,
    /// Another CPU of the own group where one may run.
    elsewhere: Option<usize>,
}

impl Balance {
    /// Balances a level of a CPU's stack, whether it is due or not. What it changes of the level are
    /// interval and failures; when it was done is for the caller to note.
    ///
    /// Source: specs/sched-balance.md#level.
    pub fn balance(
        &mut self,
        d: &Domains,
        q: &mut impl Queues,
        cpu: usize,
        level: usize,
        idle: IdleType,
        now_j: u64,
    ) -> Outcome {
        let slot = d.slot(cpu, level);
        let parent = (level + 1 < d.levels(cpu)).then(|| d.local(cpu, level + 1).capacity as usize);
        let mut e = Env::new(d, cpu, level, idle, now_j);
        let mut o = Outcome::default();
        let mut pins = Pins::default();
        let end = self.attempt(&mut e, q, &mut o, &mut pins, parent);
        (o.scanned, o.idle_scan) = (e.scanned, e.idle_scan);
        let state = &mut self.levels[slot];
        match end {
            End::Unbalanced => return o,
            End::Balanced => {
                if let Some(parent) = parent.filter(|_| !pins.all) {
                    self.groups[parent].imbalance = false;
                }
                o.balanced = true;
                state.nr_balance_failed = 0;
            }
            End::AllPinned => {
                o.balanced = true;
                state.nr_balance_failed = 0;
            }
            End::OnePinned => {}
        }
        o.moved = 0;
        if idle != IdleType::NewlyIdle && e.migration != Migration::Misfit {
            let ms = state.balance_interval;
            if pins.all && ms < MAX_PINNED_INTERVAL || ms < e.domain.max_interval() {
                state.balance_interval *= 2;
            }
        }
        o
    }

    fn attempt(
        &mut self,
        e: &mut Env<'_>,
        q: &mut impl Queues,
        o: &mut Outcome,
        pins: &mut Pins,
        parent: Option<usize>,
    ) -> End {
        let slot = e.d.slot(e.cpu, e.level);
        let src = loop {
            if !self.may_balance(e, q) {
                o.stop = true;
                return End::Balanced;
            }
            let Some(group) = e.find_src_group(self, q) else {
                o.nobusyg = true;
                return End::Balanced;
            };
            let f = q.facts();
            let blocks = if e.is_of_many() { q.blocks() } else { None };
            let Some(src) = e.find_src_queue(self, (&f, blocks), group) else {
                o.nobusyq = true;
                return End::Balanced;
            };
            o.imbalance[e.migration as usize] += e.imbalance as u64;
            pins.all = true;
            if f.figures[src].nr_running <= 1 {
                break src;
            }
            self.pull(e, q, src, o, pins);
            if let Some(parent) = parent.filter(|_| pins.some && e.imbalance > 0) {
                self.groups[parent].imbalance = true;
            }
            if !pins.all {
                break src;
            }
            self.exclude(e, src);
            let local = e.d.balance_mask(e.d.local(e.cpu, e.level));
            let others = |&c: &usize| e.considers(&self.mask, c) && !local.contains(&(c as u16));
            if e.d.span(e.domain).iter().find(others).is_none() {
                return End::AllPinned;
            }
        };
        if o.moved > 0 {
            self.levels[slot].nr_balance_failed = 0;
        } else {
            o.failed = true;
            if e.idle != IdleType::NewlyIdle && e.migration != Migration::Misfit {
                self.levels[slot].nr_balance_failed += 1;
            }
            if self.needs_active(e, &q.facts(), src) {
                if !q.current_allowed(src, e.cpu) {
                    return End::OnePinned;
                }
                pins.all = false;
                if self.cpus[src].push_to.is_none() {
                    self.cpus[src].push_to = Some(e.cpu as u16);
                    o.active = Some(src);
                    q.push(src, e.cpu);
                }
            }
        }
        if o.active.is_none() || self.needs_active(e, &q.facts(), src) {
            self.levels[slot].balance_interval = e.domain.min_interval();
        }
        End::Unbalanced
    }

    fn may_balance(&self, e: &Env<'_>, q: &impl Queues) -> bool {
        let f = q.facts();
        if !e.considers(&self.mask, e.dst) {
            return false;
        }
        if e.idle == IdleType::NewlyIdle {
            return f.figures[e.dst].nr_running == 0 && !q.pending(e.dst);
        }
        elected(e.d, &f, e.cpu, e.level, e.dst, |c| e.considers(&self.mask, c))
    }

    /// Leaves a CPU out from here on.
    fn exclude(&mut self, e: &mut Env<'_>, cpu: usize) {
        if !e.masked {
            e.masked = true;
            self.mask.fill(0);
            let span = e.d.span(e.domain);
            let first = span.first_word();
            self.mask[first..first + span.words().len()].copy_from_slice(span.words());
        }
        self.mask[cpu / 64] &= !(1 << (cpu % 64));
    }

    /// Pulls tasks from `src`, and where some may not come to this CPU but to another of its group, to that.
    fn pull(
        &mut self,
        e: &mut Env<'_>,
        q: &mut impl Queues,
        src: usize,
        o: &mut Outcome,
        pins: &mut Pins,
    ) {
        let most = self.knobs.nr_migrate.min(q.facts().figures[src].nr_running);
        let (mut looked, mut pause) = (0, NR_MIGRATE_BREAK);
        loop {
            q.update(src);
            let again = self.detach(e, q, src, o, pins, (&mut looked, &mut pause, most));
            // The last one taken is the first one put down.
            let detached = std::mem::take(&mut self.detached);
            for &task in detached.iter().rev() {
                q.attach(task, e.dst);
            }
            o.moved += detached.len() as u32;
            self.detached = detached;
            self.detached.clear();
            if again {
                continue;
            }
            match pins.elsewhere.filter(|_| e.imbalance > 0) {
                Some(other) => {
                    self.exclude(e, e.dst);
                    e.dst = other;
                    pins.elsewhere = None;
                    (looked, pause) = (0, NR_MIGRATE_BREAK);
                }
                None => return,
            }
        }
    }

    /// Takes tasks off `src`. Whether it only paused.
    fn detach(
        &mut self,
        e: &mut Env<'_>,
        q: &mut impl Queues,
        src: usize,
        o: &mut Outcome,
        pins: &mut Pins,
        (looked, pause, most): (&mut u32, &mut u32, u32),
    ) -> bool {
        if q.facts().figures[src].nr_running <= 1 {
            pins.all = false;
            return false;
        }
        if e.imbalance <= 0 {
            return false;
        }
        let failed = self.levels[e.d.slot(e.cpu, e.level)].nr_balance_failed;
        while let Some(task) = q.coldest(src) {
            let f = q.facts();
            if e.idle.idle() && f.figures[src].nr_running <= 1 {
                break;
            }
            *looked += 1;
            if *looked > most {
                break;
            }
            if *looked > *pause {
                *pause += NR_MIGRATE_BREAK;
                return true;
            }
            let pull = Pull {
                migration: e.migration,
                imbalance: e.imbalance,
                failed,
                cache_nice_tries: e.domain.cache_nice_tries,
                share_cpucapacity: e.domain.flags.has(Flags::SHARE_CPUCAPACITY),
                dst_has_tasks: f.figures[e.dst].nr_running > 0,
            };
            let c = q.candidate(task, src, e.dst, e.domain.flags.has(Flags::NUMA));
            let verdict = if c.throttled {
                Err(Refusal::Throttled)
            } else if c.per_cpu_kthread {
                Err(Refusal::PerCpuKthread)
            } else if !c.allowed {
                pins.some = true;
                if e.idle != IdleType::NewlyIdle && pins.elsewhere.is_none() {
                    let mask = e.d.balance_mask(e.d.local(e.cpu, e.level));
                    let may =
                        |&&c: &&u16| e.considers(&self.mask, c.into()) && q.allowed(task, c.into());
                    pins.elsewhere = mask.iter().find(may).map(|&c| usize::from(c));
                }
                Err(Refusal::Affine)
            } else {
                pins.all = false;
                if c.running { Err(Refusal::Running) } else { verdict(&c, &pull, &self.knobs) }
            };
            match verdict {
                Err(why) => {
                    q.refused(task, why);
                    q.to_hot_end(src, task);
                }
                Ok(take) => {
                    if take.forced {
                        o.hot_gained += 1;
                        q.forced(task);
                    }
                    q.detach(task, src, e.dst);
                    self.detached.push(task);
                    o.gained += 1;
                    e.imbalance = take.left;
                    if self.knobs.preemption && e.idle == IdleType::NewlyIdle || e.imbalance <= 0 {
                        break;
                    }
                }
            }
        }
        false
    }

    /// Whether the running task of `src` is to be pushed here.
    ///
    /// Source: specs/sched-balance.md#active.
    fn needs_active(&self, e: &Env<'_>, f: &Facts<'_>, src: usize) -> bool {
        let level = &self.levels[e.d.slot(e.cpu, e.level)];
        let tries = e.domain.cache_nice_tries + 2;
        if e.migration == Migration::Task && level.nr_balance_failed > tries {
            return true;
        }
        let pct = u64::from(e.domain.imbalance_pct);
        let (there, here) =
            (u64::from(self.cpus[src].capacity), u64::from(self.cpus[e.dst].capacity));
        e.idle.idle()
            && f.figures[src].h_nr_queued == 1
            && reduced(self, e.d, src, pct)
            && there * pct < here * 100
            || e.migration == Migration::Misfit
    }

    /// The stopper of `from` at work: it has the CPU, so what it preempted no longer runs. Pushes one task to
    /// the CPU that had asked; `None`: nobody had.
    ///
    /// Source: specs/sched-balance.md#active.
    pub fn active_push(&mut self, d: &Domains, q: &mut impl Queues, from: usize) -> Option<Pushed> {
        let to = usize::from(self.cpus[from].push_to.take()?);
        let mut pushed = Pushed { to, level: None, task: None };
        if q.facts().figures[from].nr_running == 0 {
            return Some(pushed);
        }
        let Some(level) = d.common(to, from) else { return Some(pushed) };
        pushed.level = Some(level);
        q.update(from);
        let numa = d.at(to, level).flags.has(Flags::NUMA);
        let mut next = q.coldest(from);
        while let Some(task) = next {
            let c = q.candidate(task, from, to, numa);
            let refusal = match c {
                _ if c.throttled => Some(Refusal::Throttled),
                _ if c.per_cpu_kthread => Some(Refusal::PerCpuKthread),
                _ if !c.allowed => Some(Refusal::Affine),
                _ if c.running => Some(Refusal::Running),
                _ => None,
            };
            let Some(why) = refusal else {
                q.detach(task, from, to);
                q.attach(task, to);
                self.levels[d.slot(to, level)].nr_balance_failed = 0;
                pushed.task = Some(task);
                break;
            };
            q.refused(task, why);
            next = q.warmer(from, task);
        }
        Some(pushed)
    }
}
