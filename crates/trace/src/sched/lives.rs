//! What tasks did, made of rows: how long each ran, what it waited for, whom it woke.
//!
//! ```text
//!            wake                       W runs to here: Wake 7
//!  W  ───run───┊──────run───
//!  T  ──run─┐  ┊   ┌──run──             T runs to here: Await 7, runs on
//!        stop  ┊   run
//! ```
//!
//! A wake-up by a recorded task in its own context is causal: it happens when the waker has run so
//! far. What somebody else woke rests for as long as it did. A task that was woken before it
//! had left its CPU would have waited, had the waker been later: it awaits as well, where it was.
//!
//! Worked example: a switch takes 1 us and waking another CPU's task 2 us. W runs from 0 to 50 us and
//! wakes T, which sleeps since 10 us, at 30: W has `Run 29`, `Wake 0`, `Run 18`, and T has `Run 9`,
//! `Await 0`.
//!
//! Source: specs/record-sched.md#lives.

use super::calls::Ordered;
use super::{Context, Header, Kind, NOBODY, Row, Stop};
use homenode_core::sched::course::{Blocked, Course, Life, Step, Wait};
use homenode_core::sched::fair::SchedPolicy;
use homenode_core::units::CpuId;
use std::collections::{BTreeMap, BTreeSet};

/// What of a task's recorded run time the kernel used, in nanoseconds: it is taken off, and a simulated kernel
/// charges it where it arises there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// From one task to the next on a CPU.
    pub switch: u64,
    /// Of the way out of an idle state that lasted so long at least, the share that is booked as run
    /// time of the task.
    pub from_idle: u64,
    /// The same of one that lasted for longer than [`Charged::deep_after`].
    pub from_deep: u64,
    /// How long that is.
    pub deep_after: u64,
    /// Waking a task on the waker's own CPU, or on a busy one.
    pub wake: u64,
    /// Waking a task on another CPU that is idle.
    pub wake_idle: u64,
}

/// What was found beside the lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Wake-ups by tasks that are recorded, and of those the ones that came before their task slept.
    pub causal: u64,
    /// See `causal`.
    pub early: u64,
    /// Of the causal ones: those that bytes explain.
    pub by_bytes: u64,
    /// Wake-ups by interrupts and by who is not recorded.
    pub outside: u64,
    /// Tasks that ran again without a wake-up: rows are missing.
    pub unexplained: u64,
    /// Tasks with another policy than those of the fair class.
    pub other_class: u64,
}

/// Where a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// Nothing is known yet.
    #[default]
    Unknown,
    Runs {
        since: u64,
        cpu: u32,
    },
    Ready,
    Waits {
        since: u64,
        on: Wait,
    },
    Gone,
}

#[derive(Clone, Debug, Default)]
struct Track {
    at: At,
    /// Run time since the last step.
    run: u64,
    /// A wake-up came while it ran, and has its step already or needs none.
    early: bool,
    /// Its last wake-up: the waker, and the number of the waker's step.
    woken: Option<(u32, usize)>,
    /// Who has woken it.
    awaited: BTreeSet<u32>,
    /// By number of a step: what the kernel took from there on.
    charged: BTreeMap<usize, u64>,
    /// The steps that it had when it began to end.
    ends: Option<usize>,
    life: Life,
}

impl Track {
    /// It runs until now.
    fn runs_until(&mut self, now: u64) {
        if let At::Runs { since, cpu } = self.at {
            self.run += now.saturating_sub(since);
            self.at = At::Runs { since: now.max(since), cpu };
        }
    }
    /// Its next step comes: what it ran before is one.
    fn step(&mut self, step: Step) {
        let ran = std::mem::take(&mut self.run);
        if ran > 0 {
            self.life.steps.push(Step::Run(ran));
        }
        self.life.steps.push(step);
    }
    /// What the kernel takes from its next step on.
    fn charge(&mut self, step: usize, ns: u64) {
        if ns > 0 {
            *self.charged.entry(step).or_default() += ns;
        }
    }
    /// Whether nothing of it is known yet but how it is.
    fn is_new(&self) -> bool {
        self.life.steps.is_empty() && self.run == 0 && matches!(self.at, At::Unknown | At::Ready)
    }
    /// Takes what the kernel took off what it ran. What is left over is taken off the next run, up to where it waits.
    fn settle(&mut self) {
        let mut debt = 0;
        for (number, step) in self.life.steps.iter_mut().enumerate() {
            debt += self.charged.get(&number).copied().unwrap_or(0);
            match step {
                Step::Run(ns) => {
                    let taken = debt.min(*ns);
                    (*ns, debt) = (*ns - taken, debt - taken);
                }
                Step::Await { .. } | Step::Rest { .. } => debt = 0,
                Step::Wake { .. }
                | Step::Put { .. }
                | Step::Get { .. }
                | Step::Join(_)
                | Step::Fork(_)
                | Step::Exec
                | Step::Nice(_)
                | Step::Allow(_) => {}
            }
        }
        self.notify_last();
        self.life.steps.retain(|step| *step != Step::Run(0));
        self.life.steps.dedup_by(|next, before| match (before, next) {
            (Step::Run(all), Step::Run(more)) => {
                *all += *more;
                true
            }
            _ => false,
        });
    }
    /// Its child has its memory (vfork), and gives it back by this wake-up. The parent is in the same call from the fork
    /// to the wait, in which nobody else gets its CPU, so what it ran in between comes first.
    fn lends(&mut self, child: u32) {
        let steps = &mut self.life.steps;
        match steps[..] {
            [.., Step::Fork(of), Step::Run(_), Step::Await { .. }] if of == child => {}
            _ => return,
        }
        let run = steps.len() - 2;
        steps.swap(run - 1, run);
        if let Some(ns) = self.charged.remove(&run) {
            *self.charged.entry(run - 1).or_default() += ns;
        }
    }
    /// The last wake-up of a task that ends is its parent's, by `exit_notify`. From there on the kernel has no point at
    /// which another gets the CPU before the task is gone, so what is left of its run comes first.
    fn notify_last(&mut self) {
        let Some(ends) = self.ends.filter(|_| self.at == At::Gone) else { return };
        if let [.., Step::Wake { .. }, Step::Run(_)] = self.life.steps[ends..] {
            let last = self.life.steps.len() - 1;
            self.life.steps.swap(last - 1, last);
        }
    }
}

/// Makes lives of rows, which stand in the order of their times.
pub fn lives(header: &Header, rows: &[Row], charged: &Charged) -> (Course, Found) {
    let mut them: Vec<Track> = header
        .tasks
        .iter()
        .map(|t| {
            let (name, tid, tgid) = (t.name.clone(), t.tid, t.tgid);
            let life = Life { name, tid, tgid, ..Life::default() };
            Track { life, ..Track::default() }
        })
        .collect();
    let (mut wakes, mut found) = (0u32, Found::default());
    let ordered = Ordered::of(header, rows);
    for (number, row) in ordered.rows.iter().enumerate() {
        let now = row.time_ns;
        // `load` has looked at the numbers; rows made otherwise may be odd.
        let Some(task) = them.get(row.task as usize) else { continue };
        if task.at == At::Gone {
            continue;
        }
        let me = row.task as usize;
        match row.kind {
            Kind::Run => {
                let idle = row.arg;
                if let Some((waker, step)) = them[me].woken.take() {
                    let far = match them[waker as usize].at {
                        At::Runs { cpu, .. } => cpu != row.cpu,
                        _ => true,
                    };
                    let ns = if idle > 0 && far { charged.wake_idle } else { charged.wake };
                    them[waker as usize].charge(step, ns);
                }
                let it = &mut them[me];
                match it.at {
                    At::Waits { since, on } => {
                        // Who was woken before it had left its CPU has its step.
                        if !it.early {
                            found.unexplained += 1;
                            it.step(Step::Rest { ns: now - since, on });
                        }
                    }
                    At::Unknown if now > 0 => {
                        it.step(Step::Rest { ns: now, on: Wait::default() });
                    }
                    At::Runs { .. } => {
                        it.runs_until(now);
                        found.unexplained += 1;
                    }
                    At::Unknown | At::Ready | At::Gone => {}
                }
                it.early = false;
                it.at = At::Runs { since: now, cpu: row.cpu };
                let ns = match idle {
                    0 => charged.switch,
                    _ if idle > charged.deep_after => charged.from_deep,
                    _ => charged.from_idle,
                };
                let from = it.life.steps.len();
                it.charge(from, ns + header.own_ns[0]);
            }
            Kind::Stop => {
                let it = &mut them[me];
                match it.at {
                    At::Runs { .. } => it.runs_until(now),
                    // It ran when recording began.
                    At::Unknown => it.run += now,
                    At::Ready | At::Waits { .. } => found.unexplained += 1,
                    At::Gone => {}
                }
                match Stop::from_arg(row.arg).unwrap_or(Stop::Preempted) {
                    Stop::Preempted => it.at = At::Ready,
                    Stop::Waits(on) => it.at = At::Waits { since: now, on },
                    Stop::Dead => it.at = At::Gone,
                }
            }
            Kind::Wake => {
                let explained = ordered.explained.contains(&number);
                wake(&mut them, row, &mut wakes, &mut found, (header.contexts, explained));
                // Recording took its time of whoever ran there.
                let by = them.get_mut(row.other as usize);
                if let Some(by) = by.filter(|by| matches!(by.at, At::Runs { .. })) {
                    let step = by.life.steps.len();
                    by.charge(step, header.own_ns[1]);
                }
            }
            Kind::Put | Kind::Get => {
                let (object, bytes) = (row.other, row.arg as u32);
                them[me].runs_until(now);
                them[me].step(match row.kind {
                    Kind::Put => Step::Put { object, bytes },
                    _ => Step::Get { object, bytes, by: (row.arg >> 32) as u32 },
                });
                let step = them[me].life.steps.len();
                them[me].charge(step, header.own_ns[2]);
            }
            Kind::Join => {
                let child = row.other as usize;
                // Whoever woke it by its end is waited for by that.
                if child < them.len() && child != me && !them[me].awaited.contains(&row.other) {
                    them[me].runs_until(now);
                    them[me].step(Step::Join(row.other));
                }
            }
            Kind::Fork => {
                let it = &mut them[me];
                it.runs_until(now);
                let child = row.other as usize;
                let is_new = |it: &Track| it.is_new() && it.life.starter.is_none();
                if child != me && them.get(child).is_some_and(is_new) {
                    them[me].step(Step::Fork(row.other));
                    them[child].life.starter = Some(row.task);
                    them[child].at = At::Ready;
                }
            }
            Kind::Nice => {
                let nice = (row.arg as i64).clamp(-20, 19) as i8;
                let it = &mut them[me];
                if it.is_new() {
                    it.life.nice = nice;
                } else {
                    it.runs_until(now);
                    it.step(Step::Nice(nice));
                }
            }
            Kind::Policy => {
                let policy = match row.arg {
                    0 => Some(SchedPolicy::Normal),
                    3 => Some(SchedPolicy::Batch),
                    5 => Some(SchedPolicy::Idle),
                    _ => None,
                };
                found.other_class += u64::from(policy.is_none());
                them[me].life.policy = policy.unwrap_or_default();
            }
            Kind::Allow => {
                let bits = (0..super::ALLOW_CPUS).filter(|c| row.arg >> c & 1 != 0);
                let cpus: Vec<CpuId> = bits.map(CpuId).collect();
                let it = &mut them[me];
                if it.is_new() {
                    it.life.allowed = cpus;
                } else {
                    it.runs_until(now);
                    it.step(Step::Allow(cpus));
                }
            }
            Kind::Exec => {
                // A program that was held when its recording began is not seen to run before it does.
                if matches!(them[me].at, At::Runs { .. }) {
                    them[me].runs_until(now);
                    them[me].step(Step::Exec);
                }
            }
            Kind::Exit => them[me].ends = Some(them[me].life.steps.len()),
            Kind::Lost => {}
        }
    }
    for it in &mut them {
        it.runs_until(header.span_ns);
        let ran = std::mem::take(&mut it.run);
        if ran > 0 {
            it.life.steps.push(Step::Run(ran));
        }
        it.settle();
    }
    let lives = them.into_iter().map(|it| it.life).collect();
    (Course { lives, wakes, objects: ordered.objects }, found)
}

/// A task is woken.
///
/// * `contexts`, `explained` – whether rows say where the kernel was; bytes are why it wakes.
fn wake(
    them: &mut [Track],
    row: &Row,
    wakes: &mut u32,
    found: &mut Found,
    (contexts, explained): (bool, bool),
) {
    let (me, now) = (row.task as usize, row.time_ns);
    let on = match them[me].at {
        At::Waits { on, .. } => Some(on),
        At::Unknown | At::Runs { .. } | At::Ready | At::Gone => None,
    };
    // Over loopback the sender's own call runs the softirq that wakes.
    let over_loopback = on.is_some_and(|on| matches!(on.what, Blocked::Socket | Blocked::Poll));
    let own = !contexts
        || row.arg == Context::Task as u64
        || (row.arg == Context::Softirq as u64 && over_loopback);
    let by = (row.other != NOBODY && row.other != row.task && own).then_some(row.other as usize);
    let by = by.filter(|&by| by < them.len() && matches!(them[by].at, At::Runs { .. }));
    let Some(by) = by else {
        found.outside += 1;
        let it = &mut them[me];
        match it.at {
            At::Waits { since, on } => it.step(Step::Rest { ns: now.saturating_sub(since), on }),
            At::Unknown => it.step(Step::Rest { ns: now, on: Wait::default() }),
            // It had not slept yet, and goes on.
            At::Runs { .. } | At::Ready => {
                it.early = true;
                return;
            }
            At::Gone => return,
        }
        (it.at, it.early) = (At::Ready, false);
        return;
    };
    found.causal += 1;
    if explained {
        let after = them[by].life.steps.len();
        let it = &mut them[me];
        found.by_bytes += 1;
        match it.at {
            At::Runs { .. } | At::Ready => it.early = true,
            At::Waits { .. } | At::Unknown => {
                (it.at, it.early) = (At::Ready, false);
                it.woken = Some((row.other, after));
            }
            At::Gone => {}
        }
        return;
    }
    let wake = *wakes;
    *wakes += 1;
    them[me].awaited.insert(row.other);
    let sync = on.is_some_and(|on| on.what.is_sync());
    them[by].runs_until(now);
    them[by].step(Step::Wake { wake, sync });
    let after = them[by].life.steps.len();
    let waker = &them[by];
    let lent = on.is_some_and(|on| on.what == Blocked::Child)
        && waker.life.starter == Some(row.task)
        && waker.ends.is_none()
        && !waker.life.steps.contains(&Step::Exec);
    let it = &mut them[me];
    it.runs_until(now);
    it.step(Step::Await { wake, on: on.unwrap_or_default() });
    if lent {
        it.lends(row.other);
    }
    match it.at {
        At::Runs { .. } | At::Ready => {
            found.early += 1;
            it.early = true;
        }
        At::Waits { .. } | At::Unknown => {
            (it.at, it.early) = (At::Ready, false);
            it.woken = Some((row.other, after));
        }
        At::Gone => {}
    }
}
