//! What steps came to, as text: one section for each step, one line for each task that took
//! part, and one for each CPU that counted something.
//!
//! ```text
//! ## 7 a wakes b by a pipe
//! a cpu 3 nr_switches 2 nr_voluntary_switches 2 nr_wakeups 1 nr_wakeups_local 1
//! b cpu 2 nr_switches 2 …
//! - cpu3 sched_count 2 sched_goidle 1 ttwu_count 2 ttwu_local 1
//! ```
//!
//! A text of expected values is the same with two more kinds of lines, as several boots of
//! one kernel give them: where a step's tasks differed between boots, each line that some
//! boots had stands behind `?` with how many had it, and the step is not judged; a CPU's
//! line that was not the same in all boots is left out, and no CPU's line is judged but only
//! counted: kernel threads are in it too. What stands before the first section is for people.
//!
//! Source: specs/end-to-end.md#judged

use super::{CPU_FIELDS, Name, Snapshot, TASK_FIELDS};
use std::fmt::Write as _;

/// What one step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its number among those that are told, from 0 on.
    pub step: usize,
    /// What it is about.
    pub about: String,
    /// The CPU on which each task ran last and what was counted of it in this step, in the
    /// order of [`TASK_FIELDS`]: of those tasks of which something was.
    pub tasks: Vec<(Name, u32, [u64; TASK_FIELDS.len()])>,
    /// What each CPU counted, in the order of [`CPU_FIELDS`].
    pub cpus: Vec<[u64; CPU_FIELDS.len()]>,
}

impl Outcome {
    pub(super) fn between(
        step: usize,
        about: &str,
        names: &[Name],
        last: &Snapshot,
        now: &Snapshot,
    ) -> Self {
        let mut tasks = Vec::new();
        for &name in names {
            let Some((cpu, counts)) = now.tasks.get(name) else { continue };
            // A task that was just made has counted from 0 on.
            let before = last.tasks.get(name);
            let zero = [0; TASK_FIELDS.len()];
            let grown = since(counts, before.map_or(&zero, |(_, counts)| counts));
            let moved = before.map(|(cpu, _)| cpu) != Some(cpu);
            if moved || grown.iter().any(|n| *n > 0) {
                tasks.push((name, *cpu, grown));
            }
        }
        let pairs = now.cpus.iter().zip(&last.cpus);
        let cpus = pairs.map(|(now, last)| since(now, last)).collect();
        Self { step, about: about.to_owned(), tasks, cpus }
    }
}

fn since<const N: usize>(now: &[u64; N], last: &[u64; N]) -> [u64; N] {
    std::array::from_fn(|i| now[i].saturating_sub(last[i]))
}

/// All steps as text.
pub fn text(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    for Outcome { step, about, tasks, cpus } in outcomes {
        let _ = writeln!(out, "## {step} {about}");
        for (name, cpu, counts) in tasks {
            let _ = write!(out, "{name} cpu {cpu}");
            for (n, field) in counts.iter().zip(TASK_FIELDS).filter(|(n, _)| **n > 0) {
                let _ = write!(out, " {} {n}", field.trim_start_matches("se."));
            }
            out.push('\n');
        }
        for (cpu, counts) in cpus.iter().enumerate() {
            if counts.iter().any(|n| *n > 0) {
                let _ = write!(out, "- cpu{cpu}");
                for (n, (field, _)) in counts.iter().zip(CPU_FIELDS) {
                    let _ = write!(out, " {field} {n}");
                }
                out.push('\n');
            }
        }
    }
    out
}

/// The sections of a text: what stands behind `## `, and the lines that follow.
pub fn sections(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("## "), all.last_mut()) {
            (Some(head), _) => all.push((head, Vec::new())),
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => {}
        }
    }
    all
}

/// How a run compares with what is expected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Steps that are judged.
    pub judged: usize,
    /// Steps that are not, since boots of one kernel differ in them.
    pub open: usize,
    /// Of the judged ones those that differ: head, expected and found lines of tasks.
    pub different: Vec<String>,
    /// Lines of CPUs that were the same in all boots, in judged steps, and how many of them are
    /// the same in the run. Nobody is judged by them.
    pub cpus: usize,
    /// See `cpus`.
    pub cpus_same: usize,
}

/// Holds a run's text against an expected one.
///
/// Judged are the lines of tasks of all steps but those in which boots differed.
///
/// # Errors
/// Where the two don't have the same steps: the script has changed since it was recorded.
pub fn compare(expected: &str, found: &str) -> Result<Verdict, String> {
    let (expected, found) = (sections(expected), sections(found));
    let heads = |of: &[(&str, Vec<&str>)]| of.iter().map(|s| s.0.to_owned()).collect::<Vec<_>>();
    let (want, have) = (heads(&expected), heads(&found));
    if want != have {
        let first = want.iter().zip(&have).position(|(a, b)| a != b);
        let first = first.unwrap_or(want.len().min(have.len()));
        let head = |of: &[String]| of.get(first).cloned().unwrap_or("nothing".to_owned());
        return Err(format!(
            "the script has changed since it was recorded: step {first} was {:?} and is {:?}; \
             `cargo xtask vm record` records it anew",
            head(&want),
            head(&have)
        ));
    }
    let mut verdict = Verdict::default();
    let of_tasks = |lines: &[&str]| -> Vec<String> {
        let lines = lines.iter().filter(|line| !line.starts_with("- ") && !line.is_empty());
        lines.map(|line| (*line).to_owned()).collect()
    };
    for ((head, want), (_, have)) in expected.iter().zip(&found) {
        if want.iter().any(|line| line.starts_with('?')) {
            verdict.open += 1;
            continue;
        }
        verdict.judged += 1;
        let of_cpus = want.iter().filter(|line| line.starts_with("- "));
        verdict.cpus += of_cpus.clone().count();
        verdict.cpus_same += of_cpus.filter(|line| have.contains(line)).count();
        let (want, have) = (of_tasks(want), of_tasks(have));
        if want != have {
            let only = |a: &[String], b: &[String]| {
                let rest = a.iter().filter(|line| !b.contains(line));
                rest.cloned().collect::<Vec<_>>().join("; ")
            };
            verdict.different.push(format!(
                "step {head}: expected {}; found {}",
                only(&want, &have),
                only(&have, &want)
            ));
        }
    }
    Ok(verdict)
}
