//! What updates the counters of a task.

use super::cpu::{CpuStats, DomainStats, IdleType};
use super::line::TaskStats;

/// In which state a task leaves the queue to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// Interruptible: a sleep.
    Interruptible,
    /// Uninterruptible, killable and idle kernel threads among them: a block.
    Uninterruptible,
    /// Stopped, traced, dead: neither.
    Other,
}

/// What a wake-up ended; samples for the tracepoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slept {
    /// Time asleep interruptibly, if there was a stamp.
    pub sleep: Option<u64>,
    /// Time asleep uninterruptibly, if there was a stamp.
    pub block: Option<u64>,
}

/// What a wake-up came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// The chosen CPU is the one where the waker runs.
    pub local: bool,
    /// The waker said that it is about to sleep.
    pub sync: bool,
    /// The task's CPU changed.
    pub migrated: bool,
}

/// Why balancing left a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It may not run on the CPU that pulls.
    Affine,
    /// It is running.
    Running,
    /// It is cache-hot.
    Hot,
}

/// Rules of the switch: ask [`super::Switch::on`] before.
///
/// Source: specs/schedstats.md#task.
impl TaskStats {
    /// It is enqueued while another runs, or put back still queued. What it waited on the CPU that
    /// it was moved from counts: the wait begins that much earlier.
    #[inline]
    pub fn wait_start(&mut self, now: u64) {
        self.wait_start = if now > self.wait_start { now - self.wait_start } else { now };
    }

    /// The same for a group of tasks, which is never moved.
    #[inline]
    pub fn group_wait_start(&mut self, now: u64) {
        self.wait_start = now;
    }

    /// It is picked, or leaves the queue while it waits, but not to be moved. Returns the wait, for
    /// the tracepoint; `None`, and nothing is counted, where no stamp was set: it was enqueued while
    /// the switch was off.
    #[inline]
    pub fn wait_end(&mut self, now: u64) -> Option<u64> {
        if self.wait_start == 0 {
            return None;
        }
        // A stamp ahead of the clock wraps in the kernel, and would end every figure here.
        let delta = now.saturating_sub(self.wait_start);
        self.wait_max = self.wait_max.max(delta);
        self.wait_count += 1;
        self.wait_sum += delta;
        self.wait_start = 0;
        Some(delta)
    }

    /// It leaves the queue while it waits, to be put on another CPU's: no wait ends; what it waited
    /// is kept in place of the stamp, and [`TaskStats::wait_start`] takes it into account.
    #[inline]
    pub fn wait_migrate(&mut self, now: u64) {
        if self.wait_start != 0 {
            self.wait_start = now.saturating_sub(self.wait_start);
        }
    }

    /// It leaves the queue to sleep. Where that is delayed, at the end of the delay, and after
    /// [`TaskStats::wait_end`].
    #[inline]
    pub fn dequeue_sleep(&mut self, now: u64, state: Sleep) {
        match state {
            Sleep::Interruptible => self.sleep_start = now,
            Sleep::Uninterruptible => self.block_start = now,
            Sleep::Other => {}
        }
    }

    /// It is enqueued by a wake-up. A clock that went back gives 0.
    ///
    /// * `in_iowait` – it blocked for I/O.
    #[inline]
    pub fn wake_enqueue(&mut self, now: u64, in_iowait: bool) -> Slept {
        let mut slept = Slept::default();
        if self.sleep_start != 0 {
            let delta = now.saturating_sub(self.sleep_start);
            self.sleep_max = self.sleep_max.max(delta);
            self.sleep_start = 0;
            self.sum_sleep_runtime += delta;
            slept.sleep = Some(delta);
        }
        if self.block_start != 0 {
            let delta = now.saturating_sub(self.block_start);
            self.block_max = self.block_max.max(delta);
            self.block_start = 0;
            self.sum_sleep_runtime += delta;
            self.sum_block_runtime += delta;
            if in_iowait {
                self.iowait_sum += delta;
                self.iowait_count += 1;
            }
            slept.block = Some(delta);
        }
        slept
    }

    /// Runtime was accounted: `delta_exec` ns since it last was.
    #[inline]
    pub fn exec(&mut self, delta_exec: u64) {
        self.exec_max = self.exec_max.max(delta_exec);
    }

    /// It is picked.
    ///
    /// * `ran` – how long it ran when it was picked before.
    /// * `queue_weight` – weight of the CPU's fair queue, this one included; `weight` its own.
    #[inline]
    pub fn picked(&mut self, ran: u64, queue_weight: u64, weight: u64) {
        if queue_weight >= weight.saturating_mul(2) {
            self.slice_max = self.slice_max.max(ran);
        }
    }

    /// It was woken; also where it was still queued, or is the waker itself.
    ///
    /// * `waker` – the CPU where the waker runs.
    /// * `common` – that CPU's lowest domain which spans the chosen one; `None` if they are the
    ///   same, or no domain does.
    #[inline]
    pub fn wakeup(&mut self, w: Wakeup, waker: &mut CpuStats, common: Option<&mut DomainStats>) {
        if w.local {
            waker.ttwu_local += 1;
            self.nr_wakeups_local += 1;
        } else {
            self.nr_wakeups_remote += 1;
            if let Some(domain) = common {
                domain.ttwu_wake_remote += 1;
            }
        }
        self.nr_wakeups_migrate += u64::from(w.migrated);
        waker.ttwu_count += 1;
        self.nr_wakeups += 1;
        self.nr_wakeups_sync += u64::from(w.sync);
    }

    /// `wake_affine` was asked for it.
    #[inline]
    pub fn affine_attempt(&mut self) {
        self.nr_wakeups_affine_attempts += 1;
    }

    /// `wake_affine` chose the waker's CPU, in a domain of that CPU.
    #[inline]
    pub fn affine(&mut self, domain: &mut DomainStats) {
        domain.ttwu_move_affine += 1;
        self.nr_wakeups_affine += 1;
    }

    /// Balancing left it.
    #[inline]
    pub fn failed_migration(&mut self, why: Refused) {
        match why {
            Refused::Affine => self.nr_failed_migrations_affine += 1,
            Refused::Running => self.nr_failed_migrations_running += 1,
            Refused::Hot => self.nr_failed_migrations_hot += 1,
        }
    }

    /// Balancing took it though it is cache-hot.
    #[inline]
    pub fn forced_migration(&mut self, domain: &mut DomainStats, idle: IdleType) {
        domain.lb(idle).lb_hot_gained += 1;
        self.nr_forced_migrations += 1;
    }

    /// The switch went on: stamps from before are worth nothing.
    ///
    /// Source: specs/exceptions/schedstats-stamps.md.
    pub fn clear_stamps(&mut self) {
        (self.wait_start, self.sleep_start, self.block_start) = (0, 0, 0);
    }

    /// Somebody wrote to `/proc/PID/sched`: all of it is 0. What the switch doesn't have stays.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

/// What is always counted of a task.
///
/// Source: specs/schedstats.md#sched-info.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedInfo {
    /// How often it began to run.
    pub pcount: u64,
    /// Time that it waited to run.
    pub run_delay: u64,
    /// When it last began to run.
    pub last_arrival: u64,
    /// When it was queued; 0 while it runs or sleeps.
    pub last_queued: u64,
}

impl SchedInfo {
    /// It is enqueued: woken, moved, or woken while its dequeue is delayed. A stamp that is there
    /// stays.
    #[inline]
    pub fn enqueue(&mut self, now: u64) {
        if self.last_queued == 0 {
            self.last_queued = now;
        }
    }

    /// It is dequeued, to sleep or to be moved, on `cpu`. Where the dequeue is delayed, at its
    /// beginning: what follows is no wait.
    #[inline]
    pub fn dequeue(&mut self, now: u64, cpu: &mut CpuStats) {
        if self.last_queued != 0 {
            self.waited(now, cpu);
        }
    }

    /// A switch to it, on `cpu`.
    #[inline]
    pub fn arrive(&mut self, now: u64, cpu: &mut CpuStats) {
        if self.last_queued != 0 {
            self.waited(now, cpu);
            self.last_arrival = now;
            self.pcount += 1;
            cpu.pcount += 1;
        }
    }

    /// A switch away from it, on `cpu`.
    ///
    /// * `runnable` – it doesn't sleep, so it waits from now on.
    #[inline]
    pub fn depart(&mut self, now: u64, cpu: &mut CpuStats, runnable: bool) {
        cpu.rq_cpu_time += now.saturating_sub(self.last_arrival);
        if runnable {
            self.enqueue(now);
        }
    }

    #[inline]
    fn waited(&mut self, now: u64, cpu: &mut CpuStats) {
        let delta = now.saturating_sub(self.last_queued);
        self.last_queued = 0;
        self.run_delay += delta;
        cpu.run_delay += delta;
    }
}
