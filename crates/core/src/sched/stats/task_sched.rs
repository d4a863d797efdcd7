//! `/proc/PID/sched` as text and back.

use super::counter::Unit;
use super::line::{Group, TaskLine, TaskStats};
use super::scan::{self, StatsError, shown};
use super::{Kind, Version};
use std::fmt::Write as _;

/// The second line.
const RULE: &str = "-------------------------------------------------------------------";
/// Lines in which the rule stands at the latest: a name has up to 15 bytes, and each may be a newline.
const MOST_HEAD: usize = 17;
/// Columns of a name.
const NAME: usize = 45;

/// Hint faults of a task and its group on one node, as shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumaFaultsShown {
    /// The node.
    pub node: u32,
    /// Faults of the task on private pages.
    pub task_private: u64,
    /// Faults of the task on shared pages.
    pub task_shared: u64,
    /// Faults of its group on private pages.
    pub group_private: u64,
    /// Faults of its group on shared pages.
    pub group_shared: u64,
}

/// The last lines of the file, in kernels that balance memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaShown {
    /// The node of its CPU.
    pub current_node: i32,
    /// Its group; 0 without one.
    pub numa_group_id: i32,
    /// By online node, in rising order.
    pub faults: Vec<NumaFaultsShown>,
}

/// What `/proc/PID/sched` shows of a task.
///
/// Source: specs/schedstats.md#sched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSched {
    /// Its name.
    pub comm: String,
    /// Its PID; 0 where the reader's PID namespace has none.
    pub pid: u32,
    /// Tasks of its process.
    pub threads: u32,
    /// Placement of its memory.
    pub numa: Option<NumaShown>,
    lines: [Option<i64>; TaskLine::ALL.len()],
}

impl TaskSched {
    /// A task of which no line is set yet. Those that are never set are not printed.
    pub fn new(comm: &str, pid: u32, threads: u32) -> Self {
        let lines = [None; TaskLine::ALL.len()];
        Self { comm: comm.to_owned(), pid, threads, numa: None, lines }
    }

    /// The number of a line; `None` if it is not there.
    pub const fn get(&self, line: TaskLine) -> Option<i64> {
        self.lines[line as usize]
    }

    /// Sets a line. The kernel prints all numbers as signed.
    pub const fn set(&mut self, line: TaskLine, value: i64) {
        self.lines[line as usize] = Some(value);
    }

    /// Sets the lines of the switch that `version` prints; only where it is on. Set runtime,
    /// switches and migrations before: `avg_atom` and `avg_per_cpu` come of them.
    pub fn set_stats(&mut self, version: Version, stats: &TaskStats) {
        for (line, value) in TaskStats::LINES.into_iter().zip(stats.values()) {
            if line.printed(version) {
                self.set(line, value as i64);
            }
        }
        let number = |line| self.get(line).unwrap_or_default() as u64;
        let run = number(TaskLine::SumExecRuntime);
        let by = |n: u64| run.checked_div(n).map_or(-1, |each| each as i64);
        let atom = by(number(TaskLine::NrSwitches));
        let per_cpu = by(number(TaskLine::NrMigrations));
        self.set(TaskLine::AvgAtom, atom);
        self.set(TaskLine::AvgPerCpu, per_cpu);
    }

    /// What the switch has counted; `None` where it is off.
    pub fn stats(&self) -> Option<TaskStats> {
        self.get(TaskLine::WaitSum)?;
        let mut stats = TaskStats::default();
        stats.set_values(TaskStats::LINES.map(|l| self.get(l).unwrap_or_default() as u64));
        Some(stats)
    }

    /// Whether a text has the rule that stands below the name.
    pub(super) fn has_rule(text: &str) -> bool {
        text.split('\n').take(MOST_HEAD).any(|line| line == RULE)
    }

    /// The file, as the kernel prints it.
    pub fn to_text(&self) -> String {
        let mut out = format!("{} ({}, #threads: {})\n{RULE}\n", self.comm, self.pid, self.threads);
        for line in TaskLine::ALL {
            if let Some(value) = self.get(line) {
                write_line(&mut out, line, value);
            }
        }
        if let Some(numa) = &self.numa {
            write_node(&mut out, numa);
            for f in &numa.faults {
                write_faults(&mut out, f);
            }
        }
        out
    }

    /// Reads the file. Takes exactly what a kernel prints: lines that are known, in their order,
    /// in their columns, those that belong together all there. What is taken is written out the
    /// same.
    ///
    /// # Errors
    /// [`StatsError`] with the line and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, StatsError> {
        let lines = scan::lines(text)?;
        // A name may have any characters, newlines among them.
        let rule = lines.iter().position(|(_, line)| *line == RULE);
        let rule = rule.filter(|r| *r > 0).ok_or_else(|| {
            StatsError::new(
                2.min(lines.len()),
                "there is no line of 67 dashes below the name, so this is no whole /proc/PID/sched",
            )
        })?;
        let head: Vec<&str> = lines[..rule].iter().map(|(_, line)| *line).collect();
        let mut task = head_of(&head.join("\n")).map_err(|what| StatsError::new(1, what))?;
        let mut rest = lines[rule + 1..].iter().peekable();
        let mut before: Option<TaskLine> = None;
        while let Some((n, line)) = rest.next_if(|(_, line)| is_named(line)) {
            let (which, value) = read_line(line).map_err(|what| StatsError::new(*n, what))?;
            if let Some(before) = before.filter(|b| *b >= which) {
                let what = format!("{} comes behind {}", which.name(), before.name());
                return Err(StatsError::new(*n, what));
            }
            before = Some(which);
            task.set(which, value);
        }
        let last = lines[lines.len() - 1].0;
        task.check_groups().map_err(|what| StatsError::new(last, what))?;
        if let Some((n, line)) = rest.next() {
            let mut numa = read_node(line).map_err(|what| StatsError::new(*n, what))?;
            for (n, line) in rest {
                let faults = read_faults(line).map_err(|what| StatsError::new(*n, what))?;
                if numa.faults.last().is_some_and(|f| f.node >= faults.node) {
                    let what = format!("node {} is not in rising order", faults.node);
                    return Err(StatsError::new(*n, what));
                }
                numa.faults.push(faults);
            }
            task.numa = Some(numa);
        }
        if task.numa.is_some() != task.get(TaskLine::TotalNumaFaults).is_some() {
            let what = "of the lines numa_pages_migrated to numa_group_id some are missing";
            return Err(StatsError::new(last, what));
        }
        if task.numa.as_ref().is_some_and(|n| n.faults.is_empty()) {
            return Err(StatsError::new(last, "the lines numa_faults are missing"));
        }
        Ok(task)
    }

    /// Lines that belong together are all there, or none of them.
    fn check_groups(&self) -> Result<(), String> {
        let of = |group: Group| TaskLine::ALL.into_iter().filter(move |l| l.group() == group);
        let has = |group: Group| of(group).any(|l| self.get(l).is_some());
        let lacks = |group: Group| of(group).find(|l| self.get(*l).is_none());
        let missing = |line: TaskLine| Err(format!("the line {} is missing", line.name()));
        if let Some(line) = lacks(Group::Must) {
            return missing(line);
        }
        let whole = [
            Group::Stats,
            Group::Unused,
            Group::Smp,
            Group::TwoEstimates,
            Group::OneEstimate,
            Group::Uclamp,
            Group::Deadline,
            Group::Numa,
        ];
        for group in whole {
            if let Some(line) = lacks(group).filter(|_| has(group)) {
                return missing(line);
            }
        }
        let needs = |group: Group, other: Group| has(group) && !has(other);
        for (group, other) in [
            (Group::Unused, Group::Stats),
            (Group::Core, Group::Stats),
            (Group::TwoEstimates, Group::Smp),
            (Group::OneEstimate, Group::Smp),
            (Group::Mm, Group::Numa),
        ] {
            if let Some(line) = lacks(other).filter(|_| needs(group, other)) {
                return missing(line);
            }
        }
        if has(Group::Smp) && has(Group::TwoEstimates) == has(Group::OneEstimate) {
            return Err(
                "one of se.avg.util_est and se.avg.util_est.ewma has to be there".to_owned()
            );
        }
        if has(Group::Deadline) && has(Group::Fair) {
            return Err("a task has either dl.runtime or se.slice".to_owned());
        }
        Ok(())
    }

    /// What lies between this and a later reading, line by line; see [`super::TaskChange`].
    pub(super) fn lines_since(&self, later: &Self) -> Vec<(TaskLine, Result<i64, i64>)> {
        let pairs = TaskLine::ALL.into_iter().filter_map(|l| Some((l, later.get(l)?)));
        pairs
            .map(|(line, new)| {
                let old = self.get(line);
                let value = match line.counter().kind {
                    Kind::Sum => match old {
                        Some(old) if old <= new => Ok(new - old),
                        Some(old) => Err(new.saturating_sub(old)),
                        None => Ok(new),
                    },
                    Kind::Max => match old {
                        Some(old) if old > new => Err(new.saturating_sub(old)),
                        Some(_) | None => Ok(new),
                    },
                    Kind::Now => Ok(new),
                };
                (line, value)
            })
            .collect()
    }
}

/// Name, PID and threads.
fn head_of(head: &str) -> Result<TaskSched, String> {
    let shape = || {
        format!("{} is not `NAME (PID, #threads: N)`", shown(head.lines().next().unwrap_or(head)))
    };
    let (comm, rest) = head.rsplit_once(" (").ok_or_else(shape)?;
    let inner = rest.strip_suffix(')').ok_or_else(shape)?;
    let (pid, threads) = inner.split_once(", #threads: ").ok_or_else(shape)?;
    let number = |word| scan::number(word, 31).map(|v| v as u32);
    Ok(TaskSched::new(comm, number(pid)?, number(threads)?))
}

/// The named lines end where the last ones about nodes begin.
fn is_named(line: &str) -> bool {
    !line.starts_with("current_node=")
}

fn write_line(out: &mut String, line: TaskLine, value: i64) {
    let _ = match line.counter().unit {
        Unit::Count | Unit::NsWhole => writeln!(out, "{:<NAME$}:{value:>21}", line.name()),
        // The kernel loses the sign above −1 ms, which shows in averages of nothing.
        Unit::Ns => writeln!(
            out,
            "{:<NAME$}:{:>14}.{:06}",
            line.name(),
            value / 1_000_000,
            value.unsigned_abs() % 1_000_000
        ),
    };
}

fn read_line(text: &str) -> Result<(TaskLine, i64), String> {
    let shape = || format!("{} is not `NAME :NUMBER` in the kernel's columns", shown(text));
    let name = text.get(..NAME).ok_or_else(shape)?.trim_end_matches(' ');
    let word = text.get(NAME..).and_then(|r| r.strip_prefix(':')).ok_or_else(shape)?;
    let word = word.trim_start_matches(' ');
    let line = TaskLine::ALL.into_iter().find(|l| l.name() == name).ok_or_else(|| {
        format!("no line {} is known; those of Linux 6.1, 6.12 and 7.3 are", shown(name))
    })?;
    let (negative, digits) = word.strip_prefix('-').map_or((false, word), |d| (true, d));
    let magnitude = match line.counter().unit {
        Unit::Count | Unit::NsWhole => i128::from(scan::number(digits, 64)?),
        Unit::Ns => {
            let (ms, ns) = digits
                .split_once('.')
                .filter(|(_, ns)| ns.len() == 6 && ns.bytes().all(|b| b.is_ascii_digit()))
                .ok_or_else(|| {
                    format!("{} is not a time in ms with six digits behind the point", shown(word))
                })?;
            let ns: i128 = ns.parse().unwrap_or_default();
            i128::from(scan::number(ms, 64)?) * 1_000_000 + ns
        }
    };
    let value = if negative { -magnitude } else { magnitude };
    let value = i64::try_from(value)
        .map_err(|_| format!("{} does not fit into the 64 bits of {name}", shown(word)))?;
    // The columns, and what no kernel prints, such as a minus before 0.
    let mut printed = String::new();
    write_line(&mut printed, line, value);
    if printed.strip_suffix('\n') != Some(text) {
        return Err(shape());
    }
    Ok((line, value))
}

fn write_node(out: &mut String, numa: &NumaShown) {
    let _ =
        writeln!(out, "current_node={}, numa_group_id={}", numa.current_node, numa.numa_group_id);
}

fn write_faults(out: &mut String, f: &NumaFaultsShown) {
    let _ = writeln!(
        out,
        "numa_faults node={} task_private={} task_shared={} group_private={} group_shared={}",
        f.node, f.task_private, f.task_shared, f.group_private, f.group_shared
    );
}

fn read_node(line: &str) -> Result<NumaShown, String> {
    let shape = || format!("{} is not `current_node=N, numa_group_id=N`", shown(line));
    let rest = line.strip_prefix("current_node=").ok_or_else(shape)?;
    let (node, group) = rest.split_once(", numa_group_id=").ok_or_else(shape)?;
    let number =
        |word: &str| word.parse::<i32>().ok().filter(|v| v.to_string() == word).ok_or_else(shape);
    Ok(NumaShown { current_node: number(node)?, numa_group_id: number(group)?, faults: Vec::new() })
}

fn read_faults(line: &str) -> Result<NumaFaultsShown, String> {
    let shape = || {
        format!(
            "{} is not `numa_faults node=N task_private=N task_shared=N group_private=N \
             group_shared=N`",
            shown(line)
        )
    };
    let mut words = line.split(' ');
    if words.next() != Some("numa_faults") {
        return Err(shape());
    }
    let mut next = |name: &str, bits| {
        let word =
            words.next().and_then(|w| w.strip_prefix(name)).and_then(|w| w.strip_prefix('='));
        scan::number(word.ok_or_else(shape)?, bits)
    };
    let faults = NumaFaultsShown {
        node: next("node", 31)? as u32,
        task_private: next("task_private", 64)?,
        task_shared: next("task_shared", 64)?,
        group_private: next("group_private", 64)?,
        group_shared: next("group_shared", 64)?,
    };
    if words.next().is_some() {
        return Err(shape());
    }
    Ok(faults)
}
