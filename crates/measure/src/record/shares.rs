//! The program by itself once more, with its tasks told apart: how its processor time is
//! shared out among them.
//!
//! ```text
//! traced run                                         recording
//! sh ─┬─ fork 1 ─ exec xz ─┬─ thread 1               task 0 ─┬─ task 1 ─ exec ─┬─ task 2
//!     │                    └─ thread 2                       │                 └─ task 3
//!     └─ fork 2 ─ exec sort                                  └─ task 4 ─ exec
//! ```
//!
//! A task is known by its parent and by which of its parent's children it is, since numbers of
//! processes differ from run to run. It stops only where it starts a task, runs a program or
//! ends; how long it has run is then read from `/proc/TID/schedstat`, whose first figure is
//! the time on a CPU in nanoseconds (Documentation/scheduler/sched-stats.rst).
//!
//! Source: specs/waits.md#processor-time

use super::outside::{self, Calls, Outside};
use homenode_live::signals;
use homenode_trace::Task;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Marks the stop of a call (`PTRACE_O_TRACESYSGOOD`).
const SYSTEM_CALL: i32 = 0x80;

/// A task of the traced run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Traced {
    pub(super) parent: Option<usize>,
    /// Time on a CPU when it ran another program, and at its end, in nanoseconds.
    at: Vec<u64>,
    /// When it began and ended on the clock, in nanoseconds since the program did.
    span: (u64, u64),
    /// What it waited for, where calls were looked at.
    outside: Outside,
}

/// Runs the command to its end, and tells what each of its tasks took. `None` where this
/// system does not let it be traced, or does not say how long tasks run.
///
/// What the command leaves behind is ended with it.
pub(super) fn trace(make: impl FnOnce() -> Option<Command> + Send) -> Option<Vec<Traced>> {
    let tasks = run(make, None)?;
    tasks.iter().any(|t| t.at.iter().any(|&ns| ns > 0)).then_some(tasks)
}

/// The same, but tells who began each task and what it waited for outside of the program. To look
/// at that takes time, so this run does not tell how long they run.
pub(super) fn trace_waits(
    make: impl FnOnce() -> Option<Command> + Send,
) -> Option<Vec<(Option<usize>, Outside)>> {
    let tasks = run(make, Some(Calls::default()))?;
    Some(tasks.into_iter().map(|task| (task.parent, task.outside)).collect())
}

fn run(make: impl FnOnce() -> Option<Command> + Send, calls: Option<Calls>) -> Option<Vec<Traced>> {
    let root = AtomicI32::new(0);
    // Whoever traces waits for its own children only: so it is a thread of its own.
    std::thread::scope(|scope| {
        let tracer = scope.spawn(|| Tracer { calls, ..Tracer::default() }.run(make()?, &root).ok());
        while !tracer.is_finished() {
            if signals::any() && root.load(Relaxed) > 0 {
                // SAFETY: a signal to a process group that we started.
                unsafe { libc::kill(-root.load(Relaxed), libc::SIGKILL) };
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        tracer.join().ok()?
    })
}

#[derive(Default)]
struct Tracer {
    /// When the program had been loaded.
    began: Option<Instant>,
    tasks: Vec<Traced>,
    /// The task of each thread number.
    by_tid: BTreeMap<i32, usize>,
    /// Who has stopped for the first time, before its parent told of it.
    early: BTreeSet<i32>,
    /// Who has been told of and has not stopped for the first time.
    awaited: BTreeSet<i32>,
    /// Calls that may wait, if these are looked at.
    calls: Option<Calls>,
}

impl Tracer {
    fn run(mut self, mut command: Command, root: &AtomicI32) -> io::Result<Vec<Traced>> {
        let filter = self.calls.is_some().then(outside::filter);
        // SAFETY: system calls only, between fork and exec.
        let command = unsafe {
            command.pre_exec(move || match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                0 => filter.as_deref().map_or(Ok(()), outside::set),
                _ => Err(io::Error::last_os_error()),
            })
        };
        let child = command.spawn()?.id() as i32;
        root.store(child, Relaxed);
        self.begin(child, None);
        // Its first stop: the program has been loaded.
        wait(child)?;
        let options = libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEEXEC
            | libc::PTRACE_O_TRACEEXIT
            | libc::PTRACE_O_TRACESECCOMP
            | libc::PTRACE_O_TRACESYSGOOD
            | libc::PTRACE_O_EXITKILL;
        self.began = Some(Instant::now());
        // SAFETY: the child is a tracee that has stopped.
        if unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, child, 0, options) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.go_on(child, 0);
        while let Some((tid, status)) = wait(-1)? {
            if libc::WIFSTOPPED(status) {
                self.stopped(tid, status);
            } else if tid == child {
                break;
            }
        }
        Ok(self.tasks)
    }

    fn begin(&mut self, tid: i32, parent: Option<usize>) {
        self.by_tid.insert(tid, self.tasks.len());
        self.forget_call(tid);
        let now = self.now();
        self.tasks.push(Traced { parent, span: (now, now), ..Traced::default() });
    }
    fn forget_call(&mut self, tid: i32) {
        if let Some(calls) = &mut self.calls {
            calls.forget(tid);
        }
    }
    /// Lets a tracee go on, with a signal that it is given: to the end of its call, where that is
    /// one to look at.
    fn go_on(&self, tid: i32, signal: i32) {
        let is_in_call = self.calls.as_ref().is_some_and(|calls| calls.is_in(tid));
        let request = if is_in_call { libc::PTRACE_SYSCALL } else { libc::PTRACE_CONT };
        // SAFETY: a tracee of this thread; one that has gone meanwhile is an error and no more.
        unsafe { libc::ptrace(request, tid, 0, signal) };
    }
    fn now(&self) -> u64 {
        let began = self.began.map_or(0, |began| began.elapsed().as_nanos());
        u64::try_from(began).unwrap_or(u64::MAX)
    }
    /// How long a task has run by now.
    fn note(&mut self, tid: i32) {
        let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).unwrap_or_default();
        let ns = text.split_ascii_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
        if let Some(&task) = self.by_tid.get(&tid) {
            self.tasks[task].at.push(ns);
            self.tasks[task].span.1 = self.now();
        }
    }

    fn stopped(&mut self, tid: i32, status: i32) {
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                let born = message(tid) as i32;
                let parent = self.by_tid.get(&tid).copied();
                self.begin(born, parent);
                if self.early.remove(&born) {
                    self.go_on(born, 0);
                } else {
                    self.awaited.insert(born);
                }
                self.go_on(tid, 0);
            }
            libc::PTRACE_EVENT_EXEC => {
                // A thread that runs a program takes over the number of its process.
                let former = message(tid) as i32;
                if let Some(task) = self.by_tid.remove(&former) {
                    self.by_tid.insert(tid, task);
                }
                self.forget_call(former);
                self.forget_call(tid);
                self.note(tid);
                self.go_on(tid, 0);
            }
            libc::PTRACE_EVENT_EXIT => {
                self.forget_call(tid);
                self.note(tid);
                self.go_on(tid, 0);
            }
            libc::PTRACE_EVENT_SECCOMP => {
                if let Some(calls) = &mut self.calls {
                    calls.entered(tid);
                }
                self.go_on(tid, 0);
            }
            // Such a call returns.
            _ if signal == libc::SIGTRAP | SYSTEM_CALL => {
                let Self { calls, by_tid, tasks, .. } = self;
                if let (Some(calls), Some(&task)) = (calls, by_tid.get(&tid)) {
                    calls.left(tid, task, &mut tasks[task].outside);
                }
                self.forget_call(tid);
                self.go_on(tid, 0);
            }
            // A new task begins with a stop that is no signal of the program's.
            _ if signal == libc::SIGSTOP && !self.by_tid.contains_key(&tid) => {
                self.early.insert(tid);
            }
            _ if signal == libc::SIGSTOP && self.awaited.remove(&tid) => {
                self.go_on(tid, 0);
            }
            _ => self.go_on(tid, signal),
        }
    }
}

/// A stop or an end of a tracee or child of this thread. `None`: there is none any more.
fn wait(tid: i32) -> io::Result<Option<(i32, i32)>> {
    loop {
        let mut status = 0;
        // SAFETY: a local for the status.
        let got = unsafe { libc::waitpid(tid, &mut status, libc::__WALL | libc::__WNOTHREAD) };
        if got > 0 {
            return Ok(Some((got, status)));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Ok(None),
            _ => return Err(error),
        }
    }
}

/// What a tracee's event is about.
fn message(tid: i32) -> u64 {
    let mut all = 0u64;
    // SAFETY: a tracee that has stopped at an event, and a local for the answer.
    unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut all) };
    all
}

/// What the tasks of several runs took: of each time the median, since whatever else this
/// machine does hits one run here and another there. Runs whose tasks are not those of the
/// first, as where a program starts threads as it needs them, are left out.
pub(super) fn median(runs: &[Vec<Traced>]) -> Option<Vec<Traced>> {
    let shape = |run: &[Traced]| -> Vec<(Option<usize>, usize)> {
        run.iter().map(|t| (t.parent, t.at.len())).collect()
    };
    let mut median = runs.first()?.clone();
    let own = shape(&median);
    let alike: Vec<_> = runs.iter().filter(|run| shape(run) == own).collect();
    for (n, task) in median.iter_mut().enumerate() {
        // Of each program, not of the sums: those of several runs need not rise.
        let mut until = 0;
        for program in 0..task.at.len() {
            let before = |at: &[u64]| program.checked_sub(1).map_or(0, |before| at[before]);
            let took = |run: &Vec<Traced>| run[n].at[program].saturating_sub(before(&run[n].at));
            let mut all: Vec<u64> = alike.iter().map(|run| took(run)).collect();
            all.sort_unstable();
            until += all[all.len() / 2];
            task.at[program] = until;
        }
        let middle = |of: fn(&Traced) -> u64| {
            let mut all: Vec<u64> = alike.iter().map(|run| of(&run[n])).collect();
            all.sort_unstable();
            all[all.len() / 2]
        };
        task.span = (middle(|t| t.span.0), middle(|t| t.span.1));
    }
    Some(median)
}

/// Gives each recorded task what its programs took in the traced run, where it is there too.
pub(super) fn share_out(recorded: &mut [Task], traced: &[Traced]) {
    let children = |parents: Vec<Option<usize>>| {
        let mut all: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (task, parent) in parents.into_iter().enumerate() {
            all.entry(parent.unwrap_or(usize::MAX)).or_default().push(task);
        }
        all
    };
    let own = children(recorded.iter().map(|t| t.parent.map(|p| p as usize)).collect());
    let other = children(traced.iter().map(|t| t.parent).collect());
    // Who has no parent is the program itself.
    let mut pairs = vec![(usize::MAX, usize::MAX)];
    while let Some((parent, twin)) = pairs.pop() {
        let (Some(own), Some(other)) = (own.get(&parent), other.get(&twin)) else { continue };
        for (&task, &twin) in own.iter().zip(other) {
            let at = [0].iter().chain(&traced[twin].at);
            let spans = at.zip(&traced[twin].at).map(|(from, to)| to.saturating_sub(*from));
            recorded[task].native_ns = spans.collect();
            recorded[task].native_span_ns = Some(traced[twin].span);
            pairs.push((task, twin));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(parent: Option<u32>) -> Task {
        Task { parent, ..Task::default() }
    }

    #[test]
    fn tasks_are_known_by_their_parents_and_their_order() {
        let mut recorded = [task(None), task(Some(0)), task(Some(1)), task(Some(0))];
        let traced = |parent, at: &[u64]| Traced {
            parent,
            at: at.to_vec(),
            span: (3, 9),
            ..Traced::default()
        };
        share_out(
            &mut recorded,
            &[
                traced(None, &[5, 30]),
                traced(Some(0), &[1, 2, 9]),
                traced(Some(0), &[4]),
                traced(Some(1), &[7]),
            ],
        );
        let spans: Vec<&[u64]> = recorded.iter().map(|t| &t.native_ns[..]).collect();
        assert_eq!(spans, [&[5, 25][..], &[1, 1, 7], &[7], &[4]]);
        assert!(recorded.iter().all(|t| t.native_span_ns == Some((3, 9))));
    }

    #[test]
    fn of_several_runs_each_program_has_its_median() {
        let run = |one: &[u64], two: &[u64]| {
            vec![
                Traced { parent: None, at: one.to_vec(), span: (0, one[1]), ..Traced::default() },
                Traced {
                    parent: Some(0),
                    at: two.to_vec(),
                    span: (1, two[0]),
                    ..Traced::default()
                },
            ]
        };
        let runs = [run(&[10, 20], &[30]), run(&[12, 21], &[50]), run(&[11, 40], &[31])];
        assert_eq!(median(&runs), Some(run(&[11, 21], &[31])));
        // One whose tasks are others is left out.
        let other = [runs[0].clone(), vec![runs[0][0].clone()], runs[1].clone(), runs[2].clone()];
        assert_eq!(median(&other), median(&runs));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn who_is_not_in_both_has_no_share() {
        let mut recorded = [task(None), task(Some(0)), task(Some(0))];
        let one = Traced { at: vec![3], ..Traced::default() };
        let two = Traced { parent: Some(0), at: vec![2], ..Traced::default() };
        share_out(&mut recorded, &[one, two]);
        assert_eq!(recorded[1].native_ns, [2]);
        assert!(recorded[2].native_ns.is_empty());
    }

    #[test]
    fn a_shell_with_two_children_has_three_tasks() {
        let make = || {
            let mut sh = Command::new("sh");
            sh.args(["-c", "true; /bin/true; /bin/true & wait"]).process_group(0);
            Some(sh)
        };
        let Some(tasks) = trace(make) else {
            return eprintln!("skipped: this system does not let a program be traced");
        };
        let shape: Vec<(Option<usize>, usize)> =
            tasks.iter().map(|t| (t.parent, t.at.len())).collect();
        // The children run a program each, and end.
        assert_eq!(shape, [(None, 1), (Some(0), 2), (Some(0), 2)]);
        assert!(tasks.iter().all(|t| t.at.is_sorted() && t.span.0 < t.span.1));
        // The second child of the shell begins when the first has ended.
        assert!(tasks[1].span.1 <= tasks[2].span.0 && tasks[2].span.1 <= tasks[0].span.1);
    }
}
