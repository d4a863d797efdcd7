//! Scheduler statistics for people and as JSON: what `homenode stats` prints.
//!
//! ```text
//! a file ─▶ whole ─┐
//!                  ├─▶ Change ─▶ tables; JSON with the kernel's names
//! two files ─▶ since ┘
//! ```
//!
//! A counter that went back is `-` in a table and `null` in JSON. Tables sum a domain over its
//! CPUs; JSON has each CPU's own.
//!
//! Source: specs/schedstats.md#views.

use crate::caption::wrap;
use crate::cell::{Grid, Line};
use homenode_core::list;
use homenode_core::sched::stats::{
    Change, Counter, CpuStats, DomainStats, IdleType, LbStats, SchedstatChange, TaskChange,
    TaskLine, TaskSchedstat, TaskStats, Version,
};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// What `homenode stats` says of one file, or of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatsReport {
    /// CPUs and domains.
    Schedstat(SchedstatChange),
    /// A task.
    Task(Box<TaskChange>),
    /// A task in three numbers: run, wait in ns, timeslices; `None` where one went back.
    Slices([Option<u64>; 3]),
}

impl From<TaskSchedstat> for StatsReport {
    fn from(t: TaskSchedstat) -> Self {
        Self::Slices([Some(t.run_ns), Some(t.wait_ns), Some(t.slices)])
    }
}

impl StatsReport {
    /// The tables.
    ///
    /// * `width` – columns of the terminal; wider tables are cut into blocks.
    pub fn to_text(&self, width: usize) -> String {
        match self {
            Self::Schedstat(change) => schedstat_text(change, width),
            Self::Task(change) => task_text(change, width),
            Self::Slices([run, wait, slices]) => {
                let mean = mean(*wait, *slices);
                let rows = [
                    ("run [ms]", ms(*run)),
                    ("wait [ms]", ms(*wait)),
                    ("timeslices", whole(*slices)),
                    ("wait by timeslice [us]", us(mean)),
                ];
                let line = |(name, cell): &(&str, String)| format!("{name:<24}{cell:>14}\n");
                rows.iter().map(line).collect()
            }
        }
    }

    /// One JSON object on one line. Times are nanoseconds.
    pub fn to_json(&self) -> String {
        match self {
            Self::Schedstat(change) => schedstat_json(change),
            Self::Task(change) => task_json(change),
            Self::Slices([run, wait, slices]) => json!({
                "file": "task_schedstat", "run_ns": run, "wait_ns": wait, "slices": slices,
            }),
        }
        .to_string()
    }
}

// ── Cells ──────────────────────────────────────────────────────────────────────

fn whole(v: Option<u64>) -> String {
    v.map_or("-".into(), |v| v.to_string())
}

fn ms(ns: Option<u64>) -> String {
    ns.map_or("-".into(), |v| format!("{:.3}", v as f64 / 1e6))
}

fn us(ns: Option<f64>) -> String {
    ns.map_or("-".into(), |v| format!("{:.1}", v / 1e3))
}

/// `None` of nothing.
fn mean(sum: Option<u64>, n: Option<u64>) -> Option<f64> {
    let (sum, n) = (sum?, n.filter(|n| *n > 0)?);
    Some(sum as f64 / n as f64)
}

/// A count and its share of another one: `12 ( 34.5 %)`.
fn share(v: Option<u64>, of: Option<u64>) -> String {
    match (v, mean(v, of)) {
        (Some(v), Some(share)) => format!("{v} ({:5.1} %)", share * 100.0),
        (v, _) => format!("{}          ", whole(v)),
    }
}

/// The sum over all, where all of them are known.
fn sum(all: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    all.into_iter().try_fold(0u64, |sum, v| Some(sum.saturating_add(v?)))
}

fn heading(above: &str, below: &str) -> (String, String) {
    (above.to_owned(), below.to_owned())
}

// ── CPUs and domains ───────────────────────────────────────────────────────────

type OfCpu = fn(&CpuStats) -> u64;
type OfDomain = fn(&DomainStats) -> u64;

fn schedstat_text(change: &SchedstatChange, width: usize) -> String {
    let mut out = format!("/proc/schedstat, version {}; ", change.version.name());
    let _ = match change.ticks {
        Some(ticks) => writeln!(out, "between two readings, {ticks} ticks apart"),
        None => writeln!(out, "since boot"),
    };
    let headers = vec![
        heading("schedule", "calls"),
        heading("switches", "to idle"),
        heading("woken", "here"),
        heading("woken", "elsewhere"),
        heading("run", "[ms]"),
        heading("wait", "[ms]"),
        heading("timeslices", ""),
        heading("wait by", "slice [us]"),
    ];
    let row = |name: String, get: &dyn Fn(OfCpu) -> Option<u64>| {
        let elsewhere = match (get(|s| s.ttwu_count), get(|s| s.ttwu_local)) {
            (Some(all), Some(here)) => all.checked_sub(here),
            (None, _) | (_, None) => None,
        };
        let (wait, slices) = (get(|s| s.run_delay), get(|s| s.pcount));
        let cells = vec![
            whole(get(|s| s.sched_count)),
            whole(get(|s| s.sched_goidle)),
            whole(get(|s| s.ttwu_local)),
            whole(elsewhere),
            ms(get(|s| s.rq_cpu_time)),
            ms(wait),
            whole(slices),
            us(mean(wait, slices)),
        ];
        Line::Cells(name, cells)
    };
    let mut rows: Vec<Line> =
        change.cpus.iter().map(|c| row(format!("cpu{}", c.cpu), &|of| c.stats.get(of))).collect();
    let all = |of: OfCpu| sum(change.cpus.iter().map(|c| c.stats.get(of)));
    rows.push(row("all".into(), &all));
    out.push('\n');
    out.push_str(&Grid { headers, rows }.draw(width));
    domains_text(&mut out, change, width);
    let mut notes = change.notes.clone();
    if all(|s| s.sched_count) == Some(0) && all(|s| s.pcount).is_some_and(|n| n > 0) {
        notes.push(
            "timeslices began without a call of schedule: the switch kernel.sched_schedstats was \
             off, and only run, wait and timeslices count"
                .into(),
        );
    }
    say_notes(&mut out, &notes, width);
    out
}

/// A domain and what its CPUs counted of it.
struct Domain<'a> {
    label: String,
    of: Vec<&'a Change<DomainStats>>,
}

impl Domain<'_> {
    fn get(&self, of: OfDomain) -> Option<u64> {
        sum(self.of.iter().map(|c| c.get(of)))
    }
    fn lb(&self, idle: IdleType, of: fn(&LbStats) -> u64) -> Option<u64> {
        sum(self.of.iter().map(|c| c.get(|d| of(&d.lb[idle as usize]))))
    }
}

/// Each domain once, by level and CPUs.
fn domains(change: &SchedstatChange) -> Vec<Domain<'_>> {
    let mut found: Vec<(usize, &[u32], Domain<'_>)> = Vec::new();
    for cpu in &change.cpus {
        for (level, d) in cpu.domains.iter().enumerate() {
            if let Some((.., of)) = found.iter_mut().find(|f| f.0 == level && f.1 == d.cpus) {
                of.of.push(&d.stats);
                continue;
            }
            let name = if d.name.is_empty() { String::new() } else { format!(" {}", d.name) };
            let label = format!("domain{level}{name} {}", list::in_order(&d.cpus));
            found.push((level, &d.cpus, Domain { label, of: vec![&d.stats] }));
        }
    }
    found.sort_by_key(|f| (f.0, f.1));
    found.into_iter().map(|f| f.2).collect()
}

fn domains_text(out: &mut String, change: &SchedstatChange, width: usize) {
    let domains = domains(change);
    if domains.is_empty() {
        return;
    }
    let mut rows = Vec::new();
    for d in &domains {
        for idle in IdleType::ALL {
            let tried = d.lb(idle, |l| l.lb_count);
            let cells = vec![
                whole(tried),
                share(d.lb(idle, |l| l.lb_balanced), tried),
                share(d.lb(idle, |l| l.lb_failed), tried),
                share(d.lb(idle, |l| l.lb_gained), tried),
                whole(d.lb(idle, |l| l.lb_hot_gained)),
            ];
            rows.push(Line::Cells(format!("{} {}", d.label, idle.name()), cells));
        }
    }
    let headers = vec![
        heading("pulls", "tried"),
        heading("balanced", ""),
        heading("failed", ""),
        heading("tasks", "gained"),
        heading("of them", "cache-hot"),
    ];
    out.push('\n');
    out.push_str(&Grid { headers, rows }.draw(width));
    let rows = domains.iter().map(|d| {
        let tried = d.get(|d| d.alb_count);
        let cells = vec![
            whole(tried),
            share(d.get(|d| d.alb_failed), tried),
            share(d.get(|d| d.alb_pushed), tried),
            whole(d.get(|d| d.ttwu_wake_remote)),
            whole(d.get(|d| d.ttwu_move_affine)),
        ];
        Line::Cells(d.label.clone(), cells)
    });
    let headers = vec![
        heading("active", "balances"),
        heading("failed", ""),
        heading("tasks", "pushed"),
        heading("woken", "remote"),
        heading("moved", "affine"),
    ];
    out.push('\n');
    out.push_str(&Grid { headers, rows: rows.collect() }.draw(width));
}

fn say_notes(out: &mut String, notes: &[String], width: usize) {
    if !notes.is_empty() {
        out.push('\n');
    }
    for note in notes {
        wrap(out, 0, &format!("note: {note}"), width.min(100), |c| c);
    }
}

/// Counters that a version prints, by name; `null` for those that went back.
fn counters_json(
    into: &mut Map<String, Value>,
    table: &[Counter],
    version: Version,
    by: &[u64],
    back: &[u64],
) {
    for ((counter, by), back) in table.iter().zip(by).zip(back) {
        if counter.printed_in(version) {
            let value = if *back > 0 { Value::Null } else { json!(by) };
            into.insert(counter.name.to_owned(), value);
        }
    }
}

fn schedstat_json(change: &SchedstatChange) -> Value {
    let version = change.version;
    let cpus = change.cpus.iter().map(|c| {
        let mut cpu = Map::new();
        cpu.insert("cpu".into(), json!(c.cpu));
        let (by, back) = (c.stats.by.values(), c.stats.back.values());
        counters_json(&mut cpu, CpuStats::COUNTERS, version, &by, &back);
        let domains = c.domains.iter().enumerate().map(|(level, d)| {
            let mut domain = Map::new();
            domain.insert("level".into(), json!(level));
            if version >= Version::V17 {
                domain.insert("name".into(), json!(d.name));
            }
            domain.insert("cpus".into(), json!(d.cpus));
            let Change { by, back } = &d.stats;
            for idle in IdleType::ALL {
                let mut lb = Map::new();
                let of = |d: &DomainStats| d.lb[idle as usize].values();
                counters_json(&mut lb, LbStats::COUNTERS, version, &of(by), &of(back));
                domain.insert(idle.name().replace(' ', "_"), lb.into());
            }
            let table = DomainStats::COUNTERS;
            counters_json(&mut domain, table, version, &by.values(), &back.values());
            Value::from(domain)
        });
        cpu.insert("domains".into(), domains.collect());
        Value::from(cpu)
    });
    json!({
        "file": "schedstat",
        "version": version.name().parse::<u32>().ok(),
        "ticks": change.ticks,
        "cpus": cpus.collect::<Vec<_>>(),
        "notes": change.notes,
    })
}

// ── A task ─────────────────────────────────────────────────────────────────────

type OfTask = fn(&TaskStats) -> u64;

fn task_text(t: &TaskChange, width: usize) -> String {
    let threads = homenode_core::units::count(t.threads.into(), "thread", "threads");
    let comm: String = t.comm.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let mut out = format!("{comm} ({}), {threads} in its process\n\n", t.pid);
    // Sums that went back show as such, not as what is printed of a number below 0.
    let line = |l: TaskLine| t.get(l).and_then(|v| u64::try_from(v).ok());
    let get = |of: OfTask| t.stats.as_ref().and_then(|s| s.get(of));
    let times = |name: &str, sum: Option<u64>, n: Option<u64>, max: Option<u64>| {
        let mean = mean(sum, n).map(|v| v as u64);
        Line::Cells(name.into(), vec![ms(sum), whole(n), ms(mean), ms(max)])
    };
    let asleep = match (get(|s| s.sum_sleep_runtime), get(|s| s.sum_block_runtime)) {
        (Some(all), Some(block)) => all.checked_sub(block),
        (None, _) | (_, None) => None,
    };
    let run = line(TaskLine::SumExecRuntime);
    let switches = line(TaskLine::NrSwitches);
    let mut rows = vec![times("run", run, switches, get(|s| s.exec_max))];
    if t.stats.is_some() {
        rows.extend([
            times("wait", get(|s| s.wait_sum), get(|s| s.wait_count), get(|s| s.wait_max)),
            times("sleep", asleep, None, get(|s| s.sleep_max)),
            times("block", get(|s| s.sum_block_runtime), None, get(|s| s.block_max)),
            times("of it iowait", get(|s| s.iowait_sum), get(|s| s.iowait_count), None),
        ]);
    }
    let headers = ["sum [ms]", "count", "mean [ms]", "max [ms]"].map(|h| heading(h, "")).to_vec();
    out.push_str(&Grid { headers, rows }.draw(width));
    let mut rows = vec![
        ("switches", whole(switches)),
        ("  voluntary", share(line(TaskLine::NrVoluntarySwitches), switches)),
        ("  involuntary", share(line(TaskLine::NrInvoluntarySwitches), switches)),
    ];
    let wakeups = get(|s| s.nr_wakeups);
    let attempts = get(|s| s.nr_wakeups_affine_attempts);
    if t.stats.is_some() {
        rows.extend([
            ("wake-ups", whole(wakeups)),
            ("  sync", share(get(|s| s.nr_wakeups_sync), wakeups)),
            ("  on the waker's CPU", share(get(|s| s.nr_wakeups_local), wakeups)),
            ("  on another CPU", share(get(|s| s.nr_wakeups_remote), wakeups)),
            ("  changed its CPU", share(get(|s| s.nr_wakeups_migrate), wakeups)),
            ("asked for wake_affine", whole(attempts)),
            ("  chose the waker's CPU", share(get(|s| s.nr_wakeups_affine), attempts)),
        ]);
    }
    rows.push(("migrations", whole(line(TaskLine::NrMigrations))));
    if t.stats.is_some() {
        rows.extend([
            ("  though cache-hot", whole(get(|s| s.nr_forced_migrations))),
            ("not pulled: not allowed", whole(get(|s| s.nr_failed_migrations_affine))),
            ("not pulled: running", whole(get(|s| s.nr_failed_migrations_running))),
            ("not pulled: cache-hot", whole(get(|s| s.nr_failed_migrations_hot))),
        ]);
    }
    out.push('\n');
    for (name, cell) in rows {
        // A share stands behind its count, so that the counts are one column.
        let (count, share) = cell.split_once(' ').unwrap_or((&cell, ""));
        let _ = writeln!(out, "{}", format!("{name:<24}{count:>12} {share}").trim_end());
    }
    let mut notes = t.notes.clone();
    if t.stats.is_none() && notes.is_empty() {
        notes.push(
            "the switch is off, so waits, sleeps and wake-ups are not counted; as root: sysctl \
             kernel.sched_schedstats=1"
                .into(),
        );
    }
    say_notes(&mut out, &notes, width);
    out
}

fn task_json(t: &TaskChange) -> Value {
    let lines: Map<String, Value> =
        t.lines().map(|(line, v)| (line.name().to_owned(), json!(v))).collect();
    json!({
        "file": "sched",
        "comm": t.comm,
        "pid": t.pid,
        "threads": t.threads,
        "switch_on": t.stats.is_some(),
        "lines": lines,
        "notes": t.notes,
    })
}
