//! Rows of what `perf script` prints of `perf sched record`'s data.
//!
//! ```text
//!   sh  812 [001]  55.120033001:      sched:sched_waking: comm=make pid=811 prio=120 target_cpu=000
//!   sh  812 [001]  55.120041224:      sched:sched_switch: sh:812 [120] S ==> swapper/1:0 [120]
//! ```
//!
//! Events are told in the kernel's words or in those of perf's plugin; both are read, and a name may
//! have blanks and colons in it. Of other events there are no rows. Where the kernel was when it woke somebody
//! is not in it, nor what a task waits for.
//!
//! Source: specs/record-sched.md#perf.

use super::{Header, Kind, NOBODY, Row, Stop, Task, VERSION};
use crate::Ended;
use homenode_core::sched::course::{Blocked, Wait};
use std::collections::BTreeMap;

/// The fields that `perf script -F` has to print.
pub const FIELDS: &str = "comm,tid,cpu,time,event,trace";

/// A line that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of what perf script printed: {what}: {text:?}")]
pub struct PerfError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong.
    pub what: &'static str,
    /// Its beginning.
    pub text: String,
}

/// A line's parts.
struct Line<'t> {
    tid: u32,
    cpu: u32,
    time_ns: u64,
    event: &'t str,
    told: &'t str,
}

fn line(text: &str) -> Option<Line<'_>> {
    // A name may have brackets too: what counts is what stands around the CPU.
    let mut from = 0;
    while let Some(open) = text[from..].find('[').map(|at| from + at) {
        from = open + 1;
        let Some((cpu, rest)) = text[from..].split_once(']') else { break };
        let Some(tid) = text[..open].trim_end().rsplit(' ').next() else { continue };
        // What comes after a task's end has -1 for its number.
        let (Ok(cpu), Ok(tid)) = (cpu.parse(), tid.parse::<i64>()) else { continue };
        let tid = u32::try_from(tid).unwrap_or(0);
        let Some((time, rest)) = rest.split_once(':') else { continue };
        let Some(time_ns) = nanoseconds(time.trim()) else { continue };
        let rest = rest.trim_start();
        let (event, told) = match rest.strip_prefix("PERF_RECORD_LOST") {
            Some(told) => ("lost", told),
            None => rest.strip_prefix("sched:").unwrap_or(rest).split_once(':')?,
        };
        return Some(Line { tid, cpu, time_ns, event, told: told.trim() });
    }
    None
}

/// Seconds with a point, as a whole number of nanoseconds.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, rest) = text.split_once('.')?;
    if rest.is_empty() || rest.len() > 9 || !rest.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let rest: u64 = format!("{rest:0<9}").parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(rest)
}

/// `NAME:PID [PRIO] REST` as perf's plugin has it, or `NAME_comm=… NAME_pid=…` as the kernel has
/// it: name, PID and the rest.
fn who<'t>(told: &'t str, prefix: &str) -> Option<(&'t str, u32, &'t str)> {
    let (comm, pid) = (format!("{prefix}comm="), format!(" {prefix}pid="));
    if let Some(rest) = told.strip_prefix(comm.as_str()) {
        let at = rest.rfind(pid.as_str())?;
        let (number, rest) =
            rest[at + pid.len()..].split_once(' ').unwrap_or((&rest[at + pid.len()..], ""));
        let name = &told[comm.len()..comm.len() + at];
        return Some((name, number.parse().ok()?, rest));
    }
    // A name may have colons and brackets too: a number stands between them.
    let ends = told.match_indices(" [").map(|(at, _)| at).chain([told.len()]);
    ends.filter_map(|at| {
        let (name, number) = told[..at].rsplit_once(':')?;
        let rest = told[at..].split_once(']').map_or("", |(_, rest)| rest);
        Some((name, number.parse().ok()?, rest.trim_start()))
    })
    .next()
}

/// The number behind a key.
fn value(told: &str, key: &str) -> Option<u32> {
    let at = told.rfind(key)?;
    let digits = told[at + key.len()..].split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[derive(Default)]
struct Made {
    tasks: Vec<Task>,
    rows: Vec<Row>,
    /// By thread number: who has it now.
    now: BTreeMap<u32, u32>,
    cpus: BTreeMap<u32, Option<u64>>,
    began: Option<u64>,
    span: u64,
    lost: u64,
}

impl Made {
    fn task(&mut self, tid: u32, name: &str) -> u32 {
        if tid == 0 {
            return NOBODY;
        }
        let number = *self.now.entry(tid).or_insert_with(|| {
            self.tasks.push(Task { tid, tgid: tid, ..Task::default() });
            self.tasks.len() as u32 - 1
        });
        if !name.is_empty() {
            name.clone_into(&mut self.tasks[number as usize].name);
        }
        number
    }
    fn row(&mut self, kind: Kind, at: (u64, u32), task: u32, other: u32, arg: u64) {
        if task != NOBODY {
            self.rows.push(Row { kind, time_ns: at.0, cpu: at.1, task, other, arg });
        }
    }
    /// What a line says, which is none of a wake-up that is told twice.
    fn take(&mut self, l: &Line<'_>) -> Result<(), &'static str> {
        let began = *self.began.get_or_insert(l.time_ns);
        let now = l.time_ns.saturating_sub(began);
        self.span = self.span.max(now);
        let at = (now, l.cpu);
        self.cpus.entry(l.cpu).or_insert(None);
        match l.event {
            "sched_switch" => {
                let odd = "a switch from whom to whom is not told";
                let (from, to) = l.told.split_once("==>").ok_or(odd)?;
                let (name, pid, rest) = who(from.trim(), "prev_").ok_or(odd)?;
                let (next_name, next, _) = who(to.trim(), "next_").ok_or(odd)?;
                let state = rest.rsplit_once("prev_state=").map_or(rest, |(_, s)| s);
                let stop = stop(state.trim()).ok_or("a switch without the state of who leaves")?;
                let me = self.task(pid, name);
                self.row(Kind::Stop, at, me, NOBODY, stop.to_arg());
                if stop == Stop::Dead {
                    self.now.remove(&pid);
                }
                let to = self.task(next, next_name);
                let since = self.cpus.insert(l.cpu, (next == 0).then_some(now)).flatten();
                let idle = since.filter(|_| pid == 0).map_or(0, |since| now - since);
                self.row(Kind::Run, at, to, NOBODY, idle);
            }
            "sched_waking" | "sched_wakeup" => {
                let (name, pid, _) = who(l.told, "").ok_or("who is woken is not told")?;
                let me = self.task(pid, name);
                let by = self.task(l.tid, "");
                self.row(Kind::Wake, at, me, by, 0);
            }
            "sched_process_fork" => {
                let odd = "a fork without the child";
                let child = value(l.told, "child_pid=").ok_or(odd)?;
                let parent = value(l.told.split(" child_comm=").next().unwrap_or(""), " pid=");
                let me = self.task(parent.ok_or(odd)?, "");
                // Whoever had that number is gone.
                self.now.remove(&child);
                let name = self.tasks.get(me as usize).map(|t| t.name.clone()).unwrap_or_default();
                let child = self.task(child, &name);
                self.row(Kind::Fork, at, me, child, 0);
            }
            "sched_process_exec" | "sched_process_exit" => {
                let pid = value(l.told.split(" old_pid=").next().unwrap_or(""), " pid=");
                let me = self.task(pid.or(Some(l.tid)).unwrap_or(0), "");
                let exec = l.event == "sched_process_exec";
                self.row(if exec { Kind::Exec } else { Kind::Exit }, at, me, NOBODY, 0);
            }
            "lost" => {
                let lost =
                    u64::from(value(l.told, "lost ").ok_or("how many were lost is not told")?);
                self.lost += lost;
                self.rows.push(Row {
                    kind: Kind::Lost,
                    time_ns: now,
                    cpu: l.cpu,
                    task: NOBODY,
                    other: NOBODY,
                    arg: lost,
                });
            }
            // Statistics, migrations, whatever else was recorded: nothing that is needed.
            _ => {}
        }
        Ok(())
    }
}

/// The state of who leaves a CPU, by its letter.
fn stop(state: &str) -> Option<Stop> {
    let wait = |uninterruptible| {
        Stop::Waits(Wait { what: Blocked::Other, uninterruptible, iowait: false })
    };
    match state.chars().next()? {
        'R' => Some(Stop::Preempted),
        'S' | 'T' | 't' | 'P' => Some(wait(false)),
        'D' | 'I' | 'K' | 'W' => Some(wait(true)),
        'X' | 'x' | 'Z' => Some(Stop::Dead),
        _ => None,
    }
}

/// Makes rows of `perf script`'s text, printed with [`FIELDS`].
///
/// # Errors
/// The first line that is not understood, or that there are no switches.
pub fn parse_perf(text: &str) -> Result<(Header, Vec<Row>), PerfError> {
    let error = |number: usize, what, text: &str| PerfError {
        line: number + 1,
        what,
        text: text.chars().take(120).collect(),
    };
    // A kernel tells a wake-up where it is decided, and where it is done: the first counts, if it was recorded.
    let wakings = text.contains("sched_waking:");
    let mut made = Made::default();
    let mut last = 0;
    for (number, told) in text.lines().enumerate() {
        last = number;
        if told.trim().is_empty() || told.starts_with('#') {
            continue;
        }
        let odd = "it has no task, CPU, time and event";
        let l = line(told).ok_or_else(|| error(number, odd, told))?;
        if l.event == "sched_wakeup" && wakings {
            continue;
        }
        made.take(&l).map_err(|what| error(number, what, told))?;
    }
    if !made.rows.iter().any(|r| r.kind == Kind::Run) {
        return Err(error(last, "there is no switch of a task in all of it", ""));
    }
    let header = Header {
        version: VERSION,
        source: "perf script".into(),
        cpus: made.cpus.into_keys().collect(),
        span_ns: made.span,
        complete: true,
        ended: Ended::Unknown,
        lost: made.lost,
        tasks: made.tasks,
        ..Header::default()
    };
    let mut rows = made.rows;
    rows.sort_by_key(|r| r.time_ns);
    Ok((header, rows))
}
