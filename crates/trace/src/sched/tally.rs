//! Where each task's time went, counted from rows: of a recording, and of a simulated run that left
//! rows too.
//!
//! Source: specs/record-sched.md#tally.

use super::{Header, Kind, Row, Stop};
use homenode_core::sched::course::{Blocked, Wait};

/// What one task had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// When it was first there and when last, in nanoseconds.
    pub first_ns: Option<u64>,
    /// See `first_ns`.
    pub last_ns: u64,
    /// On a CPU.
    pub run_ns: u64,
    /// Ready, and another had its CPU.
    pub wait_ns: u64,
    /// In interruptible sleep.
    pub sleep_ns: u64,
    /// In uninterruptible sleep.
    pub block_ns: u64,
    /// Both, by what it waited for: a place in [`Blocked::ALL`].
    pub waited_ns: [u64; Blocked::ALL.len()],
    /// How often it was woken from sleep.
    pub wakeups: u64,
    /// How often it ran on another CPU than before.
    pub migrations: u64,
    /// How often it left a CPU to wait, and how often for another.
    pub voluntary: u64,
    /// See `voluntary`.
    pub involuntary: u64,
    /// From each wake-up until it ran, in nanoseconds, by size.
    pub latencies: Vec<u64>,
    /// The CPU that it ran on last.
    cpu: Option<u32>,
}

impl Counted {
    /// How long it was there.
    pub fn elapsed_ns(&self) -> u64 {
        self.last_ns - self.first_ns.unwrap_or(self.last_ns)
    }
    /// The latency that so many thousandths of its wake-ups do not exceed.
    pub fn latency_ns(&self, thousandths: usize) -> u64 {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get(last * thousandths / 1000).copied().unwrap_or(0)
    }
}

/// What all tasks had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// By task.
    pub tasks: Vec<Counted>,
    /// By CPU: nanoseconds in which a task ran that is told.
    pub busy_ns: Vec<u64>,
}

impl Tally {
    /// From when the first task was there to when the last one was.
    pub fn elapsed_ns(&self) -> u64 {
        let first = self.tasks.iter().filter_map(|t| t.first_ns).min().unwrap_or(0);
        self.tasks.iter().map(|t| t.last_ns).max().unwrap_or(0).saturating_sub(first)
    }
}

/// A stretch of a task's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Whose.
    pub task: u32,
    /// From when, in nanoseconds.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
    /// What it was at.
    pub at: Stage,
}

/// What a task is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It runs on that CPU.
    Runs(u32),
    /// It waits for a CPU; whether it was woken, or started, just before.
    Ready {
        /// It was.
        woken: bool,
    },
    /// It waits for something else.
    Waits(Wait),
}

#[derive(Clone, Copy, Default)]
enum At {
    #[default]
    Unknown,
    Is(Stage, u64),
    Gone,
}

/// Counts rows, which stand in the order of their times.
pub fn tally(header: &Header, rows: &[Row]) -> Tally {
    spans(header, rows, |_| {})
}

/// The same, and tells every stretch of every task's time when it is over.
pub fn spans(header: &Header, rows: &[Row], mut tell: impl FnMut(Span)) -> Tally {
    let mut all = Tally {
        tasks: vec![Counted::default(); header.tasks.len()],
        busy_ns: vec![0; header.cpus.iter().map(|&c| c as usize + 1).max().unwrap_or(0)],
    };
    let mut states = vec![At::default(); header.tasks.len()];
    for row in rows {
        let (me, now) = (row.task as usize, row.time_ns);
        if row.kind == Kind::Fork && (row.other as usize) < states.len() {
            let child = row.other as usize;
            if let At::Unknown = states[child] {
                states[child] = At::Is(Stage::Ready { woken: true }, now);
                all.tasks[child].first_ns = Some(now);
                all.tasks[child].last_ns = now;
            }
        }
        if me >= states.len() || matches!(states[me], At::Gone) {
            continue;
        }
        let next = match row.kind {
            Kind::Run => Some(Stage::Runs(row.cpu)),
            Kind::Stop => match Stop::from_arg(row.arg).unwrap_or(Stop::Preempted) {
                Stop::Preempted => Some(Stage::Ready { woken: false }),
                Stop::Waits(on) => Some(Stage::Waits(on)),
                Stop::Dead => None,
            },
            // Who has not slept yet goes on.
            Kind::Wake => match states[me] {
                At::Is(Stage::Waits(_), _) | At::Unknown => Some(Stage::Ready { woken: true }),
                At::Is(..) | At::Gone => continue,
            },
            Kind::Fork
            | Kind::Exec
            | Kind::Exit
            | Kind::Nice
            | Kind::Policy
            | Kind::Allow
            | Kind::Lost
            | Kind::Put
            | Kind::Get
            | Kind::Join => continue,
        };
        let it = &mut all.tasks[me];
        it.first_ns.get_or_insert(now);
        it.last_ns = now;
        if let At::Is(at, since) = states[me] {
            let span = Span { task: row.task, from_ns: since, to_ns: now.max(since), at };
            it.add(&span, &mut all.busy_ns);
            tell(span);
        }
        match next {
            Some(Stage::Runs(cpu)) => {
                it.migrations += u64::from(it.cpu.is_some_and(|before| before != cpu));
                it.cpu = Some(cpu);
            }
            Some(Stage::Ready { woken: true }) => it.wakeups += 1,
            Some(Stage::Ready { woken: false }) => it.involuntary += 1,
            Some(Stage::Waits(_)) => it.voluntary += 1,
            None => {}
        }
        states[me] = next.map_or(At::Gone, |stage| At::Is(stage, now));
    }
    for (task, (it, at)) in (0..).zip(all.tasks.iter_mut().zip(states)) {
        // Who runs or could run when recording ends does so until then.
        if let At::Is(at @ (Stage::Runs(_) | Stage::Ready { .. }), from_ns) = at {
            it.last_ns = header.span_ns.max(it.last_ns);
            let span = Span { task, from_ns, to_ns: it.last_ns, at };
            it.add(&span, &mut all.busy_ns);
            tell(span);
        }
        it.latencies.sort_unstable();
    }
    all
}

impl Counted {
    /// A stretch of its time.
    fn add(&mut self, span: &Span, busy: &mut [u64]) {
        let ns = span.to_ns - span.from_ns;
        match span.at {
            Stage::Runs(cpu) => {
                self.run_ns += ns;
                if let Some(busy) = busy.get_mut(cpu as usize) {
                    *busy += ns;
                }
            }
            Stage::Ready { woken } => {
                self.wait_ns += ns;
                if woken {
                    self.latencies.push(ns);
                }
            }
            Stage::Waits(on) => {
                self.waited_ns[on.what as usize] += ns;
                if on.uninterruptible { self.block_ns += ns } else { self.sleep_ns += ns }
            }
        }
    }
}
