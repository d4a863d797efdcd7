//! A script's tasks as processes. Each has the whole script and goes through its own parts;
//! a page that all share has their PIDs, their futexes and when the script begins.
//!
//! ```text
//!  begins + k × lasts + at ──▶ part of step k ──▶ wait for the next part's begin
//! ```

use std::fs;
use std::hint::{black_box, spin_loop};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};
use homenode_core::units::Picos;
use homenode_machine::endtoend::sched::{Act, By, Name, Part, Script, Start};

use crate::process::{cpu_time, end, fork, pin};

/// How long a task may still be awake where its step should be over.
const LATE: Picos = Picos::from_ms(60);
/// A step's outcome is looked at so long before the next begins, in hundredths of the step.
const LOOK: u64 = 50;

/// What all processes see.
struct Shared {
    begins: AtomicU64,
    go: AtomicU32,
    tasks: [Slot; TASKS_MAX],
}

/// A task's part of it.
struct Slot {
    pid: AtomicI32,
    ready: AtomicU32,
    /// Wake-ups by futex that were not waited for yet.
    woken: AtomicU32,
}

const TASKS_MAX: usize = 40;

/// Processes of a script; ended when dropped.
pub(super) struct Tasks {
    crew: Crew,
    /// The step that comes next, and when it begins.
    next: (usize, Picos),
}

/// What each process has.
struct Crew {
    script: Script,
    names: Vec<Name>,
    shared: &'static Shared,
    /// Reading and writing end of each task's pipe.
    pipes: Vec<[i32; 2]>,
}

/// Now, as tasks' timers count it.
pub(super) fn monotonic() -> Picos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one structure that outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Picos::from_ns(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Sleeps until then; not at all if it has passed.
pub(super) fn sleep_until(then: Picos) {
    let ns = then.as_ns();
    let time = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: one structure that outlives the call; nothing is left of a time that is absolute.
    while unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const time,
            ptr::null_mut(),
        )
    } == libc::EINTR
    {}
}

fn futex(word: &AtomicU32, operation: libc::c_int, value: u32) {
    // SAFETY: a word in a page that is mapped for good; no time limit.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, ptr::null::<u8>());
    }
}

/// Sleeps until somebody has woken it once more than it has waited.
fn take(word: &AtomicU32) {
    while word.load(Ordering::SeqCst) == 0 {
        futex(word, libc::FUTEX_WAIT, 0);
    }
    word.fetch_sub(1, Ordering::SeqCst);
}

fn give(word: &AtomicU32) {
    word.fetch_add(1, Ordering::SeqCst);
    futex(word, libc::FUTEX_WAKE, 1);
}

impl Crew {
    fn index(&self, who: Name) -> Result<usize> {
        self.names.iter().position(|name| *name == who).with_context(|| format!("no task {who}"))
    }

    fn slot(&self, who: Name) -> Result<&'static Slot> {
        Ok(&self.shared.tasks[self.index(who)?])
    }

    /// When each step begins, counted from the script's begin.
    fn offset(&self, step: usize) -> Picos {
        self.script.steps[..step].iter().fold(Picos::ZERO, |sum, step| sum + step.lasts)
    }

    fn begins(&self) -> Picos {
        Picos(self.shared.begins.load(Ordering::SeqCst))
    }

    /// A process from here on: the parts of its task from `step` on, then nothing.
    fn live(&self, who: Name, step: usize) -> Result<()> {
        let slot = self.slot(who)?;
        // SAFETY: no memory is involved: a parent that ends takes us along; timers are exact.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::prctl(libc::PR_SET_TIMERSLACK, 1);
            slot.pid.store(libc::getpid(), Ordering::SeqCst);
        }
        slot.ready.store(1, Ordering::SeqCst);
        if step == 0 {
            while self.shared.go.load(Ordering::SeqCst) == 0 {
                futex(&self.shared.go, libc::FUTEX_WAIT, 0);
            }
        }
        let mut offset = self.offset(step);
        for k in step..self.script.steps.len() {
            let now = &self.script.steps[k];
            if let Some(part) = now.parts.iter().find(|part| part.who == who) {
                self.part(part, k, offset)?;
            }
            offset += now.lasts;
        }
        loop {
            // SAFETY: it waits for a signal and involves no memory.
            unsafe { libc::pause() };
        }
    }

    fn part(&self, part: &Part, step: usize, offset: Picos) -> Result<()> {
        match part.start {
            Start::At(when) => sleep_until(self.begins() + offset + when),
            Start::Woken(by) => self.wait(part.who, by)?,
            Start::Forked => {}
        }
        for act in &part.acts {
            self.act(part.who, act, step)?;
        }
        Ok(())
    }

    fn wait(&self, who: Name, by: By) -> Result<()> {
        match by {
            By::Futex => take(&self.slot(who)?.woken),
            By::Pipe => {
                let mut byte = 0_u8;
                let from = self.pipes[self.index(who)?][0];
                // SAFETY: one byte that outlives the call.
                let n = unsafe { libc::read(from, (&raw mut byte).cast(), 1) };
                ensure!(n == 1, "{who}'s pipe: {}", io::Error::last_os_error());
            }
        }
        Ok(())
    }

    fn act(&self, who: Name, act: &Act, step: usize) -> Result<()> {
        match act {
            Act::Run(long) => compute(*long),
            Act::Sleep(long) => sleep_until(monotonic() + *long),
            Act::Wake(whom, By::Futex) => give(&self.slot(whom)?.woken),
            Act::Wake(whom, By::Pipe) => {
                let to = self.pipes[self.index(whom)?][1];
                // SAFETY: one byte that outlives the call.
                let n = unsafe { libc::write(to, [0_u8].as_ptr().cast(), 1) };
                ensure!(n == 1, "{whom}'s pipe: {}", io::Error::last_os_error());
            }
            Act::Await(by) => self.wait(who, *by)?,
            Act::Allow(whom, cpus) => {
                let own = *whom == who;
                let pid = if own { 0 } else { self.slot(whom)?.pid.load(Ordering::SeqCst) };
                pin(pid as u32, cpus).with_context(|| format!("sched_setaffinity of {whom}"))?;
            }
            Act::Fork(child) => {
                fork(|| {
                    if let Err(error) = self.live(child, step) {
                        eprintln!("{child}: {error:#}");
                    }
                })?;
            }
            Act::Yield => {
                // SAFETY: it involves no memory.
                unsafe { libc::sched_yield() };
            }
            Act::Write(path, text) => {
                fs::write(path, text).with_context(|| format!("{path} = {text}"))?;
            }
            // SAFETY: ends the process, without what a parent does at its end.
            Act::Exit => unsafe { libc::_exit(0) },
        }
        Ok(())
    }
}

/// Computes until this task has had so much more processor time.
///
/// The emulator gives its next CPU a turn where one says that it waits (`pause`), and else
/// only when the next timer of any is due, up to a tick later: so who computes says so all
/// the time. Without it a task that was woken on another CPU began after its waker's end.
fn compute(long: Picos) {
    // Some microseconds of work to a turn, and some turns to a look at the clock, which is
    // a system call.
    const WORK: u32 = 500;
    const TURNS: u32 = 10;
    let until = cpu_time() + long;
    while cpu_time() < until {
        for _ in 0..TURNS {
            (0..WORK).for_each(|i| {
                black_box(i);
            });
            spin_loop();
        }
    }
}

impl Tasks {
    /// Makes the tasks that are there from the beginning, on their CPUs.
    pub(super) fn start(script: &Script) -> Result<Self> {
        let names = script.names();
        ensure!(names.len() <= TASKS_MAX, "{} tasks, at most {TASKS_MAX}", names.len());
        // SAFETY: fresh memory, which nobody else knows of; it is never taken away.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size_of::<Shared>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        ensure!(at != libc::MAP_FAILED, "no memory: {}", io::Error::last_os_error());
        // SAFETY: memory of that size that holds zeros, which are atomic zeros.
        let shared: &'static Shared = unsafe { &*at.cast::<Shared>() };
        let mut pipes = Vec::new();
        for _ in &names {
            let mut ends = [0; 2];
            // SAFETY: an array of two, which outlives the call.
            let r = unsafe { libc::pipe(ends.as_mut_ptr()) };
            ensure!(r == 0, "pipe: {}", io::Error::last_os_error());
            pipes.push(ends);
        }
        let crew = Crew { script: script.clone(), names, shared, pipes };
        let tasks = Self { crew, next: (0, Picos::ZERO) };
        for task in &script.tasks {
            let name = task.name;
            let crew = &tasks.crew;
            fork(|| {
                let pinned = pin(0, &task.cpus).context("sched_setaffinity");
                if let Err(error) = pinned.and_then(|()| crew.live(name, 0)) {
                    eprintln!("{name}: {error:#}");
                }
            })?;
            // One after the other, so that each finds the machine as the one before did.
            let slot = tasks.crew.slot(name)?;
            let limit = monotonic() + Picos::from_secs(20);
            while slot.ready.load(Ordering::SeqCst) == 0 {
                ensure!(monotonic() < limit, "the task {name} does not come up");
                sleep_until(monotonic() + Picos::from_ms(5));
            }
        }
        Ok(tasks)
    }

    /// Tells all when the script begins.
    pub(super) fn begin(&self, when: Picos) {
        self.crew.shared.begins.store(when.0, Ordering::SeqCst);
        self.crew.shared.go.store(1, Ordering::SeqCst);
        futex(&self.crew.shared.go, libc::FUTEX_WAKE, i32::MAX as u32);
    }

    pub(super) fn begins(&self) -> Picos {
        self.crew.begins()
    }

    pub(super) fn pid(&self, who: Name) -> Option<u32> {
        let slot = self.crew.slot(who).ok()?;
        u32::try_from(slot.pid.load(Ordering::SeqCst)).ok().filter(|pid| *pid > 0)
    }

    /// Waits until the next step should be over and all tasks sleep.
    pub(super) fn step(&mut self) -> Result<()> {
        let (k, offset) = self.next;
        let step = self.crew.script.steps.get(k).context("the script is over")?;
        let begins = self.begins() + offset;
        let look = begins + Picos(step.lasts.0 / 100 * LOOK);
        ensure!(monotonic() < begins, "it began before one could look at it");
        self.next = (k + 1, offset + step.lasts);
        sleep_until(look);
        for &name in &self.crew.names {
            let Some(pid) = self.pid(name) else { continue };
            while awake(pid)? {
                if monotonic() > look + LATE {
                    bail!("{name} is still awake when the step should be over");
                }
                sleep_until(monotonic() + Picos::from_ms(10));
            }
        }
        Ok(())
    }
}

/// Whether a process neither sleeps nor has ended.
fn awake(pid: u32) -> Result<bool> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    Ok(!matches!(state, Some('S' | 'Z')))
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for &name in &self.crew.names {
            if let Some(pid) = self.pid(name) {
                end(pid as i32);
            }
        }
        for fd in self.crew.pipes.iter().flatten() {
            // SAFETY: descriptors that nobody else has.
            unsafe { libc::close(*fd) };
        }
    }
}
