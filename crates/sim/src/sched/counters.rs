//! schedstats of the simulated kernel: whose each counter is, and whether they are switched on.
//!
//! Counters are updated where the kernel does it; off is one test of a flag. What is always
//! live (run delay, time slices) is counted in any case.
//!
//! Source: specs/schedstats.md.

use super::paid::{L2, L3, L4, Lines, Paid};
use super::{Ns, Waiting};
use crate::table::{prefetch_at, prefetch_value};
use homenode_core::costs::{Cost, Prices};
use homenode_core::sched::balance::{self, Outcome};
use homenode_core::sched::domain::Domains;
use homenode_core::sched::fair::Fair;
use homenode_core::sched::stats::{
    CpuStats, DomainStats, IdleType, Migration, Refused, SchedInfo, Sleep, Switch, TaskStats,
    Wakeup,
};

/// What is kept of a task beside its counters, in one line of the host's cache.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct OfTask {
    info: SchedInfo,
    /// The run time that the counters have seen.
    seen_ns: u64,
    /// Who has the lines of its block.
    lines: Lines,
}

/// All counters of a machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) switch: Switch,
    /// `kernel.latencytop`.
    pub(crate) latencytop: i32,
    /// Tracepoints that need statistics and are enabled, as bits.
    pub(crate) tracepoints: u8,
    /// What the kernel has said of that, and when.
    pub(crate) said: Vec<(Ns, &'static str)>,
    pub(crate) tasks: Vec<TaskStats>,
    /// By task: what else is kept of it.
    of_tasks: Vec<OfTask>,
    pub(crate) cpus: Vec<CpuStats>,
    /// By the place that [`Domains::slot`] gives.
    pub(crate) domains: Vec<DomainStats>,
    /// What counting costs.
    paid: Paid,
}

impl Counters {
    pub(crate) fn new(cpus: usize, domains: &Domains, paid: Paid) -> Self {
        Self {
            cpus: vec![CpuStats::default(); cpus],
            domains: vec![DomainStats::default(); domains.slots()],
            paid,
            ..Self::default()
        }
    }
    /// Domains have been made anew: their counters begin at 0.
    pub(crate) fn rebuilt(&mut self, domains: &Domains) {
        self.domains.clear();
        self.domains.resize(domains.slots(), DomainStats::default());
    }
    /// Whoever counts from now on does so at these prices.
    #[inline]
    pub(crate) fn set_price(&mut self, prices: &Prices) {
        self.paid.set_count(prices[Cost::StatsCount]);
    }
    /// A task is born.
    pub(crate) fn born(&mut self) {
        self.tasks.push(TaskStats::default());
        self.of_tasks.push(OfTask::default());
    }
    /// What is always counted of a task.
    pub(crate) fn info(&self, task: usize) -> &SchedInfo {
        &self.of_tasks[task].info
    }
    /// Has what is counted of a task fetched.
    #[inline]
    pub(crate) fn fetch(&self, task: usize) {
        prefetch_at(&raw const self.of_tasks[task]);
        if self.on() {
            prefetch_value((&raw const self.tasks[task]).addr(), size_of::<TaskStats>());
        }
    }
    /// The same of one that runs, and is charged.
    #[inline]
    pub(crate) fn fetch_running(&self, task: usize) {
        if self.on() {
            prefetch_at(&raw const self.of_tasks[task]);
            prefetch_at(&raw const self.tasks[task]);
        }
    }
    /// Has the counters of a CPU fetched.
    #[inline]
    pub(crate) fn fetch_cpu(&self, cpu: usize) {
        if self.on() {
            prefetch_at(&raw const self.cpus[cpu]);
        }
    }
    /// Has those of a level fetched that change as its CPU runs out of tasks.
    #[inline]
    pub(crate) fn fetch_level(&self, slot: usize) {
        if self.on() {
            let newly_idle = &self.domains[slot].lb[IdleType::NewlyIdle as usize];
            prefetch_value(std::ptr::from_ref(newly_idle).addr(), size_of_val(newly_idle));
        }
    }
    /// A CPU begins to wake a task, or has done it.
    pub(crate) fn wakes(&mut self, waker: Option<usize>) {
        if self.on() {
            self.paid.wakes(waker);
        }
    }
    /// What the counting since the last time costs, in picoseconds: whoever asks pays.
    #[inline]
    pub(crate) fn owed(&mut self) -> u64 {
        self.owed_for_wake().0
    }
    /// The same for a wake-up, and how much of it the woken task's CPU waits for: the waker counts the wake-up itself
    /// when that CPU knows of it.
    #[inline]
    pub(crate) fn owed_for_wake(&mut self) -> (u64, u64) {
        if self.on() { self.paid.take() } else { (0, 0) }
    }
    /// Whether what the switch is about is counted.
    #[inline]
    pub(crate) fn on(&self) -> bool {
        !cfg!(feature = "without-schedstats") && self.switch.on()
    }
    /// A task is enqueued: a kernel whose tracepoints want statistics that are off says so once.
    #[inline]
    fn required(&mut self, now: Ns) {
        if self.tracepoints != 0 {
            self.said.extend(self.switch.tracepoints(true).map(|what| (now, what)));
        }
    }
    /// A task is put on a queue while another runs, or nobody.
    pub(crate) fn queued(&mut self, task: usize, now: Ns) {
        self.required(now);
        self.of_tasks[task].info.enqueue(now);
        if self.on() {
            self.paid.counts(2);
            self.tasks[task].wait_start(now);
        }
    }
    /// A task that slept is put on a CPU's queue.
    pub(crate) fn woken(&mut self, task: usize, cpu: usize, now: Ns, waited: Waiting) {
        self.required(now);
        self.of_tasks[task].info.enqueue(now);
        if self.on() {
            let (iowait, more) = match waited {
                Waiting::Sleep => (false, 0),
                Waiting::Block { iowait } => (iowait, 1 + if iowait { 2 } else { 0 }),
            };
            let by = self.paid.enqueuer(cpu);
            self.paid.changes(by, &mut self.of_tasks[task].lines, L2, 7 + more);
            let stats = &mut self.tasks[task];
            stats.wait_start(now);
            stats.wake_enqueue(now, iowait);
        }
    }
    /// A task that slept and had not left its queue yet: it wants to run from now on. Its wait in what the
    /// switch counts began before, and goes on.
    ///
    /// Source: specs/schedstats.md#delayed.
    pub(crate) fn woken_delayed(&mut self, task: usize, now: Ns) {
        self.of_tasks[task].info.enqueue(now);
    }
    /// A task that ran waits for its CPU again.
    pub(crate) fn waits(&mut self, task: usize, now: Ns) {
        if self.on() {
            self.paid.counts(1);
            self.tasks[task].wait_start(now);
        }
    }
    /// A task is taken off a CPU's queue and put back at once, running or not.
    pub(crate) fn requeued(&mut self, task: usize, cpu: usize, now: Ns, runs: bool) {
        if !self.on() {
            return;
        }
        self.paid.changes(cpu, &mut self.of_tasks[task].lines, L2, 7);
        let stats = &mut self.tasks[task];
        if runs {
            stats.wait_start(now);
            stats.wait_end(now);
        } else {
            stats.wait_end(now);
            stats.wait_start(now);
        }
    }
    /// A task leaves its queue for real: it sleeps, or has ended.
    pub(crate) fn leaves(&mut self, task: usize, cpu: usize, now: Ns, on: Waiting, ends: bool) {
        self.of_tasks[task].info.dequeue(now, &mut self.cpus[cpu]);
        if !self.on() {
            return;
        }
        self.paid.changes(cpu, &mut self.of_tasks[task].lines, L2, 2);
        let stats = &mut self.tasks[task];
        stats.wait_end(now);
        let state = match on {
            _ if ends => Sleep::Other,
            Waiting::Sleep => Sleep::Interruptible,
            Waiting::Block { .. } => Sleep::Uninterruptible,
        };
        stats.dequeue_sleep(now, state);
    }
    /// A task is taken off a queue, to be put on another.
    pub(crate) fn taken(&mut self, task: usize, cpu: usize, now: Ns) {
        self.of_tasks[task].info.dequeue(now, &mut self.cpus[cpu]);
        if self.on() {
            self.paid.counts(2);
            self.tasks[task].wait_migrate(now);
        }
    }
    /// A CPU looks for who runs next.
    pub(crate) fn schedules(&mut self, cpu: usize) {
        if self.on() {
            self.paid.counts(1);
            self.cpus[cpu].sched_count += 1;
        }
    }
    /// A CPU has found nobody.
    pub(crate) fn goes_idle(&mut self, cpu: usize) {
        if self.on() {
            self.cpus[cpu].sched_goidle += 1;
        }
    }
    pub(crate) fn yields(&mut self, cpu: usize) {
        if self.on() {
            self.cpus[cpu].yld_count += 1;
        }
    }
    /// A task begins to run.
    pub(crate) fn arrives(&mut self, task: usize, cpu: usize, now: Ns, fair: &Fair) {
        self.of_tasks[task].info.arrive(now, &mut self.cpus[cpu]);
        if self.on() {
            let light = fair.is_light(task as u32);
            let (lines, more) = if light { (L2 | L3, 1) } else { (L2, 0) };
            self.paid.changes(cpu, &mut self.of_tasks[task].lines, lines, 6 + more);
            let stats = &mut self.tasks[task];
            stats.wait_end(now);
            if light {
                stats.slice_max = stats.slice_max.max(fair.last_run_ns(task as u32));
            }
        }
    }
    /// A task does not run any more.
    pub(crate) fn departs(&mut self, task: usize, cpu: usize, now: Ns, runnable: bool) {
        self.of_tasks[task].info.depart(now, &mut self.cpus[cpu], runnable);
    }
    /// A task has run so long in all, as far as it has been charged, on its CPU's queue.
    #[inline]
    pub(crate) fn charged(&mut self, task: usize, ran: u64, fair: &Fair) {
        let before = std::mem::replace(&mut self.of_tasks[task].seen_ns, ran);
        // Most often its queue has changed at the moment at which it was charged last.
        if ran != before {
            let by = self.paid.enqueuer(fair.cpu_of(task as u32));
            self.paid.changes(by, &mut self.of_tasks[task].lines, L3, 2);
            self.tasks[task].exec(ran - before);
        }
    }
    /// A task has been woken by a CPU: `common` is the place of the lowest domain of the waker's
    /// CPU that holds the chosen one.
    pub(crate) fn wakeup(&mut self, task: usize, waker: usize, w: Wakeup, common: Option<usize>) {
        if self.on() {
            // Of the CPU and of the task; who wakes elsewhere looks for the domain that both are in.
            let since = self.paid.owed();
            let statements = if w.local { 4 } else { 6 };
            self.paid.changes(waker, &mut self.of_tasks[task].lines, L3, 0);
            let more = u64::from(w.sync) + u64::from(w.migrated);
            self.paid.changes(waker, &mut self.of_tasks[task].lines, L4, statements + more);
            self.paid.comes_after(since);
            let common = common.map(|slot| &mut self.domains[slot]);
            self.tasks[task].wakeup(w, &mut self.cpus[waker], common);
        }
    }
    /// `wake_affine` was asked by a waker's CPU, and the place of the domain where it chose that.
    pub(crate) fn affine(&mut self, task: usize, waker: usize, chosen: Option<usize>) {
        if self.on() {
            let statements = if chosen.is_some() { 3 } else { 1 };
            self.paid.changes(waker, &mut self.of_tasks[task].lines, L4, statements);
            self.tasks[task].affine_attempt();
            if let Some(slot) = chosen {
                self.tasks[task].affine(&mut self.domains[slot]);
            }
        }
    }
    pub(crate) fn refused(&mut self, task: usize, why: Refused) {
        if self.on() {
            self.paid.counts(1);
            self.tasks[task].failed_migration(why);
        }
    }
    pub(crate) fn forced(&mut self, task: usize) {
        if self.on() {
            self.paid.counts(1);
            self.tasks[task].nr_forced_migrations += 1;
        }
    }
    /// A CPU has balanced a domain.
    pub(crate) fn balanced(&mut self, slot: usize, idle: IdleType, o: &Outcome) {
        if !self.on() {
            return;
        }
        // Calls, and what came of them: a search that finds nobody ends after the second.
        self.paid.counts(if o.balanced { 2 } else { 4 });
        let lb = self.domains[slot].lb(idle);
        lb.lb_count += 1;
        lb.lb_balanced += u64::from(o.balanced);
        lb.lb_failed += u64::from(o.failed);
        lb.lb_nobusyg += u64::from(o.nobusyg);
        lb.lb_nobusyq += u64::from(o.nobusyq);
        lb.lb_gained += u64::from(o.gained);
        lb.lb_hot_gained += u64::from(o.hot_gained);
        for (kind, &amount) in Migration::ALL.into_iter().zip(&o.imbalance) {
            if amount > 0 {
                lb.imbalance(kind, amount);
            }
        }
    }
    /// A CPU's stopper has pushed the running task to a CPU that had asked, or could not.
    pub(crate) fn pushed(&mut self, domains: &Domains, pushed: &balance::Pushed) {
        let Some(level) = pushed.level.filter(|_| self.on()) else { return };
        let d = &mut self.domains[domains.slot(pushed.to, level)];
        d.alb_count += 1;
        d.alb_pushed += u64::from(pushed.task.is_some());
        d.lb(IdleType::Idle).lb_gained += u64::from(pushed.task.is_some());
        d.alb_failed += u64::from(pushed.task.is_none());
    }
    /// Statistics have been switched on: what was stamped before they were off says nothing.
    pub(crate) fn clear_stamps(&mut self) {
        self.tasks.iter_mut().for_each(TaskStats::clear_stamps);
    }
}
