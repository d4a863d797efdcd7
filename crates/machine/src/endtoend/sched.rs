//! A serial script of scheduling: tasks that wake each other, sleep, change their CPUs and
//! fork, one step after the other, and what the kernel counted in each step.
//!
//! ```text
//!  Shape ──▶ script: tasks, steps ──▶ SchedStage ── begin, step, step, …
//!                                        │  a real kernel, in a guest
//!                                        └─ the simulated one
//!  where tasks are, /proc/PID/sched, /proc/schedstat after each step ──▶ Outcome ──▶ text
//! ```
//!
//! A step is told to nobody when it comes: every task knows the whole script beforehand and
//! sleeps until its next part of it, on a timer of its own or until another task wakes it.
//! So nothing wakes up but what the script says. Step *k* begins at a time that is fixed
//! beforehand, long enough after the one before for all CPUs to be idle again.
//!
//! ```text
//!  a step, "a wakes b by a pipe"            a ──timer──▶ writes a byte, sleeps
//!  ## 7 a wakes b by a pipe                              └──▶ b reads it, runs 1 ms, sleeps
//!  a cpu 3 nr_switches 2 nr_voluntary_switches 2 nr_wakeups 1 nr_wakeups_local 1
//!  b cpu 2 nr_switches 2 nr_voluntary_switches 2 nr_wakeups 1 nr_wakeups_sync 1 …
//! ```
//!
//! Source: specs/end-to-end.md#script

mod counts;
mod outcome;
mod scripts;
mod switch;

pub use counts::{CPU_FIELDS, TASK_FIELDS, cpu_counts, last_cpu, task_counts};
pub use outcome::{Outcome, Verdict, compare, sections, text};
pub use scripts::{Place, Shape, script};
pub use switch::{Switched, switching};

use super::Finding;
use homenode_core::units::Picos;
use std::collections::BTreeMap;

/// A task's name in its script.
pub type Name = &'static str;

/// What a task sleeps on until another one wakes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// It reads from a pipe of its own. Who writes wakes it with the hint that it is going to
    /// sleep soon (`WF_SYNC`), whether it does or not.
    Pipe,
    /// It waits on a futex of its own. Its wake-up has no such hint.
    Futex,
}

/// What a task does, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Computes until it has used so much more processor time.
    Run(Picos),
    /// Sleeps on a timer of its own for so long.
    Sleep(Picos),
    /// Wakes a task, or lets its next wait be over at once where it does not sleep yet.
    Wake(Name, By),
    /// Sleeps until it is woken so.
    Await(By),
    /// Allows a task these CPUs and no others (`sched_setaffinity`).
    Allow(Name, Vec<u32>),
    /// Makes a task, whose part of this step begins at once.
    Fork(Name),
    /// Gives its CPU to another (`sched_yield`).
    Yield,
    /// Writes a text to one of the kernel's files, with all rights.
    Write(&'static str, &'static str),
    /// Ends. Its counters can still be read: nobody waits for its end.
    Exit,
}

/// When a task's part of a step begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// On a timer of its own, so long after the step's begin.
    At(Picos),
    /// When it is woken so.
    Woken(By),
    /// When it is forked.
    Forked,
}

/// What one task does in one step. Then it sleeps until its next part begins, whatever
/// that waits for, or for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which task.
    pub who: Name,
    /// When it begins.
    pub start: Start,
    /// What it does.
    pub acts: Vec<Act>,
}

/// A step: some tasks' parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// One line for people.
    pub about: String,
    /// From its begin to that of the next. Its tasks sleep long before.
    pub lasts: Picos,
    /// Whether it only puts tasks where the next step wants them: what it counts hangs on
    /// where they were, and is not told.
    pub prepares: bool,
    /// Who takes part.
    pub parts: Vec<Part>,
}

/// A task that is there from the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its name.
    pub name: Name,
    /// CPUs that it is allowed at first.
    pub cpus: Vec<u32>,
}

/// Tasks and what they do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Who is there from the beginning.
    pub tasks: Vec<Task>,
    /// What happens.
    pub steps: Vec<Step>,
    /// Tasks of which nothing is told: they share their CPU with what is not in the script.
    pub untold: Vec<Name>,
}

impl Script {
    /// All tasks, those that are forked later too, in the order in which they come to be.
    pub fn names(&self) -> Vec<Name> {
        let first = self.tasks.iter().map(|task| task.name);
        let acts = self.steps.iter().flat_map(|step| &step.parts).flat_map(|part| &part.acts);
        let later = acts.filter_map(|act| match act {
            Act::Fork(name) => Some(*name),
            Act::Run(_)
            | Act::Sleep(_)
            | Act::Wake(..)
            | Act::Await(_)
            | Act::Allow(..)
            | Act::Yield
            | Act::Write(..)
            | Act::Exit => None,
        });
        first.chain(later).collect()
    }

    /// Whether every part can begin and every sleep can end.
    ///
    /// # Errors
    /// With the step and what is wrong in it: a task that nobody makes, that takes part twice
    /// in a step, that nobody wakes or that is woken more often than it waits.
    pub fn check(&self) -> Result<(), Finding> {
        let names = self.names();
        for (i, name) in names.iter().enumerate() {
            hold!(!names[..i].contains(name), "the task {name} is made twice");
        }
        let mut made: Vec<Name> = self.tasks.iter().map(|task| task.name).collect();
        for (k, step) in self.steps.iter().enumerate() {
            let at = || format!("step {k}, {}", step.about);
            let acts = || step.parts.iter().flat_map(|part| &part.acts);
            for (i, part) in step.parts.iter().enumerate() {
                let who = part.who;
                let twice = step.parts[..i].iter().any(|other| other.who == who);
                hold!(!twice, "{}: {who} takes part twice", at());
                let forks = acts().filter(|act| **act == Act::Fork(who)).count();
                if part.start == Start::Forked {
                    hold!(forks == 1, "{}: {who} is forked {forks} times", at());
                    made.push(who);
                }
                for by in [By::Pipe, By::Futex] {
                    let wakes = acts().filter(|act| **act == Act::Wake(who, by)).count();
                    let begins = usize::from(part.start == Start::Woken(by));
                    let waits = part.acts.iter().filter(|act| **act == Act::Await(by)).count();
                    let waits = begins + waits;
                    hold!(
                        wakes == waits,
                        "{}: {who} is woken {wakes} times by {by:?} and waits {waits} times",
                        at()
                    );
                }
            }
            for act in acts() {
                let whom = match act {
                    Act::Wake(whom, _) | Act::Allow(whom, _) | Act::Fork(whom) => *whom,
                    Act::Run(_)
                    | Act::Sleep(_)
                    | Act::Await(_)
                    | Act::Yield
                    | Act::Write(..)
                    | Act::Exit => continue,
                };
                hold!(made.contains(&whom), "{}: {whom} is not there yet", at());
                let takes_part = step.parts.iter().any(|part| part.who == whom);
                let needs = matches!(act, Act::Wake(..) | Act::Fork(_));
                hold!(takes_part || !needs, "{}: {whom} has no part in it", at());
            }
            for part in &step.parts {
                hold!(made.contains(&part.who), "{}: {} is not there yet", at(), part.who);
            }
        }
        Ok(())
    }
}

/// A kernel on which scripts run.
pub trait SchedStage {
    /// Starts the script's tasks on their CPUs. When it comes back they all sleep.
    ///
    /// # Errors
    /// Where a task can't be made.
    fn begin(&mut self, script: &Script) -> Result<(), Finding>;
    /// Lets the next step happen. When it comes back all of its tasks sleep, and CPUs have
    /// nothing more to do.
    ///
    /// # Errors
    /// Where a task is not through in time, or no step is left.
    fn step(&mut self) -> Result<(), Finding>;
    /// A task's PID; `None` before it was made.
    fn pid(&mut self, who: Name) -> Option<u32>;
    /// The number of the CPU on which a task runs or ran last.
    ///
    /// # Errors
    /// Where there is no such task.
    fn cpu(&mut self, who: Name) -> Result<u32, Finding>;
    /// A file's text, by the kernel's path.
    ///
    /// # Errors
    /// With the path and why it can't be read.
    fn read(&mut self, path: &str) -> Result<String, Finding>;
    /// Writes a text to a file, with all rights.
    ///
    /// # Errors
    /// With the path, the text and why it is refused, which begins with the error's name:
    /// `EINVAL: …`.
    fn write(&mut self, path: &str, text: &str) -> Result<(), Finding>;
    /// The same without `CAP_SYS_ADMIN`, but as the file's owner.
    ///
    /// # Errors
    /// As [`Self::write`].
    fn write_unprivileged(&mut self, path: &str, text: &str) -> Result<(), Finding>;
    /// Whether stamps of waits outlive that statistics are off, as on real kernels
    /// (specs/exceptions/schedstats-stamps.md).
    fn keeps_stamps(&self) -> bool {
        true
    }
    /// Ends all tasks.
    fn end(&mut self);
}

/// Longer than any task waits for its turn beside one other. Kernels give turns of some
/// milliseconds; the rest is what an emulated CPU needs.
const LONGEST_TURN: Picos = Picos::from_ms(100);

/// The switch of the statistics.
pub const SWITCH: &str = "/proc/sys/kernel/sched_schedstats";

/// What is read at a time: every task's counters and CPU, and those of the CPUs.
struct Snapshot {
    tasks: BTreeMap<Name, (u32, [u64; TASK_FIELDS.len()])>,
    cpus: Vec<[u64; CPU_FIELDS.len()]>,
}

fn snapshot<S: SchedStage>(stage: &mut S, names: &[Name]) -> Result<Snapshot, Finding> {
    // First that of the CPUs: reading the others is work too.
    let cpus = cpu_counts(&stage.read("/proc/schedstat")?)?;
    let mut tasks = BTreeMap::new();
    for &name in names {
        let Some(pid) = stage.pid(name) else { continue };
        let cpu = stage.cpu(name)?;
        let counts = task_counts(&stage.read(&format!("/proc/{pid}/sched"))?)?;
        tasks.insert(name, (cpu, counts));
    }
    Ok(Snapshot { tasks, cpus })
}

/// Runs a script with statistics on, and tells what was counted in each step.
///
/// # Errors
/// What the script, the stage or a file has wrong.
pub fn run<S: SchedStage>(stage: &mut S, script: &Script) -> Result<Vec<Outcome>, Finding> {
    script.check()?;
    let before = stage.read(SWITCH)?;
    stage.write(SWITCH, "1")?;
    let found = steps(stage, script);
    stage.end();
    stage.write(SWITCH, before.trim())?;
    found
}

fn steps<S: SchedStage>(stage: &mut S, script: &Script) -> Result<Vec<Outcome>, Finding> {
    let mut names = script.names();
    names.retain(|name| !script.untold.contains(name));
    stage.begin(script)?;
    let mut last = snapshot(stage, &names)?;
    let mut outcomes = Vec::new();
    for (k, step) in script.steps.iter().enumerate() {
        stage.step().map_err(|e| format!("step {k}, {}: {e}", step.about))?;
        let now = snapshot(stage, &names)?;
        if !step.prepares {
            outcomes.push(Outcome::between(outcomes.len(), &step.about, &names, &last, &now));
        }
        last = now;
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests;
