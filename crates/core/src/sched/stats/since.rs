//! What was counted between two readings.
//!
//! Counters of 32 bits begin at 0 again when they are full, and those of domains when domains are
//! rebuilt. A counter that is lower in the later reading can't tell which: its difference is not
//! guessed, it is said to have gone back.

use super::Version;
use super::counter::{Counters, Kind};
use super::cpu::{CpuStats, DomainStats};
use super::line::{TaskLine, TaskStats};
use super::schedstat::{Schedstat, SchedstatDomain, TaskSchedstat};
use super::task_sched::TaskSched;

/// What was counted: since ever, or between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change<T> {
    /// By how much each counter rose; of maxima and stamps the later value.
    pub by: T,
    /// By how much each went back; then `by` has 0.
    pub back: T,
}

impl<T: Counters> Change<T> {
    /// One reading: all that was counted so far.
    pub fn whole(stats: T) -> Self {
        Self { by: stats, back: T::default() }
    }

    /// What lies between two readings.
    pub fn between(earlier: &T, later: &T) -> Self {
        let pairs = T::counters().into_iter().zip(earlier.each()).zip(later.each());
        let (by, back): (Vec<u64>, Vec<u64>) = pairs
            .map(|((counter, old), new)| match counter.kind {
                Kind::Sum => (new.saturating_sub(old), old.saturating_sub(new)),
                Kind::Max if new < old => (0, old - new),
                Kind::Max | Kind::Now => (new, 0),
            })
            .unzip();
        let mut change = Self::default();
        change.by.set_each(&by);
        change.back.set_each(&back);
        change
    }

    /// A counter, or a sum of several; `None` if one of them went back.
    pub fn get(&self, of: impl Fn(&T) -> u64) -> Option<u64> {
        (of(&self.back) == 0).then(|| of(&self.by))
    }

    /// Names of those that went back.
    pub fn went_back(&self) -> Vec<&'static str> {
        let all = T::counters().into_iter().zip(self.back.each());
        all.filter(|(_, back)| *back > 0).map(|(counter, _)| counter.name).collect()
    }
}

/// What `/proc/schedstat` counted: since boot, or between two readings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedstatChange {
    /// Its version.
    pub version: Version,
    /// Ticks between the readings; `None` of one reading.
    pub ticks: Option<u64>,
    /// CPUs that are in both, in rising order.
    pub cpus: Vec<CpuChange>,
    /// What to keep in mind, in sentences: what went back, CPUs that are in one reading only,
    /// domains that were rebuilt.
    pub notes: Vec<String>,
}

/// What was counted of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuChange {
    /// Its number.
    pub cpu: u32,
    /// What was counted.
    pub stats: Change<CpuStats>,
    /// Its domains, the lowest first; none where they were rebuilt.
    pub domains: Vec<DomainChange>,
}

/// What was counted of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainChange {
    /// Its name; empty before version 17.
    pub name: String,
    /// Its CPUs.
    pub cpus: Vec<u32>,
    /// What was counted.
    pub stats: Change<DomainStats>,
}

impl DomainChange {
    fn of(domain: &SchedstatDomain, stats: Change<DomainStats>) -> Self {
        Self { name: domain.name.clone(), cpus: domain.cpus(), stats }
    }
}

impl Schedstat {
    /// All that was counted so far.
    pub fn whole(&self) -> SchedstatChange {
        let cpus = self.cpus.iter().map(|c| CpuChange {
            cpu: c.cpu,
            stats: Change::whole(c.stats),
            domains: c
                .domains
                .iter()
                .map(|d| DomainChange::of(d, Change::whole(d.stats)))
                .collect(),
        });
        SchedstatChange {
            version: self.version,
            ticks: None,
            cpus: cpus.collect(),
            notes: Vec::new(),
        }
    }

    /// What was counted since an earlier reading.
    ///
    /// # Errors
    /// A sentence, if the two can't be of one boot in this order: versions differ, or the
    /// timestamp went back.
    pub fn since(&self, earlier: &Self) -> Result<SchedstatChange, String> {
        if self.version != earlier.version {
            return Err(format!(
                "version {} can't be compared with version {}: these are two kernels",
                self.version.name(),
                earlier.version.name()
            ));
        }
        let Some(ticks) = self.timestamp.checked_sub(earlier.timestamp) else {
            return Err(format!(
                "its timestamp is {}, which is before the other's {}: the order is the earlier \
                 file first, and both are of one boot",
                self.timestamp, earlier.timestamp
            ));
        };
        let (mut cpus, mut notes) = (Vec::new(), Vec::new());
        let find = |file: &Self, cpu| file.cpus.binary_search_by_key(&cpu, |c| c.cpu).ok();
        for old in earlier.cpus.iter().filter(|c| find(self, c.cpu).is_none()) {
            notes.push(format!("cpu{} is in the first file only, and left out", old.cpu));
        }
        for new in &self.cpus {
            let cpu = new.cpu;
            let Some(old) = find(earlier, cpu).map(|i| &earlier.cpus[i]) else {
                notes.push(format!("cpu{cpu} is in the second file only, and left out"));
                continue;
            };
            let stats = Change::between(&old.stats, &new.stats);
            back(&mut notes, &format!("cpu{cpu}"), &stats.went_back());
            let same =
                |a: &SchedstatDomain, b: &SchedstatDomain| a.name == b.name && a.cpus() == b.cpus();
            let (before, after) = (&old.domains, &new.domains);
            let mut domains = Vec::new();
            if before.len() == after.len() && before.iter().zip(after).all(|(a, b)| same(a, b)) {
                for (level, (a, b)) in before.iter().zip(after).enumerate() {
                    let stats = Change::between(&a.stats, &b.stats);
                    back(&mut notes, &format!("domain{level} of cpu{cpu}"), &stats.went_back());
                    domains.push(DomainChange::of(b, stats));
                }
            } else {
                notes.push(format!(
                    "domains of cpu{cpu} were rebuilt in between, so they are left out"
                ));
            }
            cpus.push(CpuChange { cpu, stats, domains });
        }
        Ok(SchedstatChange { version: self.version, ticks: Some(ticks), cpus, notes })
    }
}

fn back(notes: &mut Vec<String>, of: &str, names: &[&str]) {
    if !names.is_empty() {
        notes
            .push(format!("{of}: went back, so its difference is not known: {}", names.join(", ")));
    }
}

/// What `/proc/PID/sched` says: at one reading, or between two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskChange {
    /// Its name, as the later reading has it.
    pub comm: String,
    /// Its PID.
    pub pid: u32,
    /// Tasks of its process.
    pub threads: u32,
    /// What the switch has counted; `None` where it was off in one of the readings.
    pub stats: Option<Change<TaskStats>>,
    /// What to keep in mind, in sentences.
    pub notes: Vec<String>,
    lines: Vec<(TaskLine, Result<i64, i64>)>,
}

impl TaskChange {
    /// A line: of a sum what came in between, else the later value. `None` if it isn't there or went
    /// back.
    pub fn get(&self, line: TaskLine) -> Option<i64> {
        self.lines.iter().find(|(l, _)| *l == line).and_then(|(_, v)| v.ok())
    }

    /// All lines that are there, with `None` for those that went back.
    pub fn lines(&self) -> impl Iterator<Item = (TaskLine, Option<i64>)> {
        self.lines.iter().map(|(line, value)| (*line, value.ok()))
    }
}

impl TaskSched {
    /// All that was counted so far.
    pub fn whole(&self) -> TaskChange {
        let lines = TaskLine::ALL.into_iter().filter_map(|l| Some((l, Ok(self.get(l)?))));
        TaskChange {
            comm: self.comm.clone(),
            pid: self.pid,
            threads: self.threads,
            stats: self.stats().map(Change::whole),
            notes: Vec::new(),
            lines: lines.collect(),
        }
    }

    /// What was counted since an earlier reading.
    ///
    /// # Errors
    /// A sentence, if it is another task.
    pub fn since(&self, earlier: &Self) -> Result<TaskChange, String> {
        if self.pid != earlier.pid {
            return Err(format!(
                "this is of PID {}, the other of PID {}: two tasks have no difference",
                self.pid, earlier.pid
            ));
        }
        let mut notes = Vec::new();
        let stats = match (earlier.stats(), self.stats()) {
            (Some(old), Some(new)) => Some(Change::between(&old, &new)),
            (None, Some(_)) => {
                notes.push("the switch was off in the first file".to_owned());
                None
            }
            (Some(_), None) => {
                notes.push("the switch was off in the second file".to_owned());
                None
            }
            (None, None) => None,
        };
        let mut lines = earlier.lines_since(self);
        if stats.is_none() {
            let of_switch = |l: TaskLine| l.group().is_of_switch();
            lines.retain(|(l, _)| !of_switch(*l));
        }
        let gone: Vec<&str> =
            lines.iter().filter(|(_, v)| v.is_err()).map(|(l, _)| l.name()).collect();
        back(&mut notes, &format!("task {}", self.pid), &gone);
        Ok(TaskChange {
            comm: self.comm.clone(),
            pid: self.pid,
            threads: self.threads,
            stats,
            notes,
            lines,
        })
    }
}

impl TaskSchedstat {
    /// What was counted since an earlier reading; `None` for what went back.
    pub fn since(&self, earlier: &Self) -> [Option<u64>; 3] {
        [
            self.run_ns.checked_sub(earlier.run_ns),
            self.wait_ns.checked_sub(earlier.wait_ns),
            self.slices.checked_sub(earlier.slices),
        ]
    }
}
