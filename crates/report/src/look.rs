//! What a look at the scheduler has counted, for people and as JSON: `homenode stats` live.
//!
//! ```text
//! Look ─▶ settle ─▶ tasks, cgroups, CPUs, caches, nodes; the histogram; reasons of wake-ups
//! ```
//!
//! `compared` has the kernel's own statistics beside it, where they were asked for.
//!
//! Source: specs/schedstats.md#live.

mod compared;

use crate::caption::wrap;
use crate::cell::{Grid, Line};
use homenode_core::sched::compared::Compared;
use homenode_core::sched::look::{
    BUCKETS, CpuCounts, CpuLook, Histogram, Kind, Look, Reason, Reasons, TaskCounts, TaskLook,
};
use homenode_core::units::count;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Columns of the histogram's longest bar.
const BAR: u64 = 40;

/// A look, and what belongs to it.
#[derive(Clone, Debug, Default)]
pub struct LookReport {
    /// What was counted.
    pub look: Look,
    /// Names of cgroups by their numbers.
    pub cgroups: BTreeMap<u64, String>,
    /// Of a process, pages of 4 KiB by node.
    pub memory: BTreeMap<u32, BTreeMap<u16, u64>>,
    /// Whether reasons of wake-ups were asked for.
    pub why: bool,
    /// Rows of tasks, at most.
    pub top: usize,
    /// The kernel's own statistics beside it.
    pub compared: Option<Compared>,
    /// What else has to be said.
    pub notes: Vec<String>,
}

impl LookReport {
    /// Tasks with what they were doing at the end in their sums, those that worked or waited
    /// longest first.
    pub fn tasks(&self) -> Vec<TaskLook> {
        let mut tasks = self.look.tasks.clone();
        tasks.iter_mut().for_each(TaskLook::settle);
        let key = |t: &TaskLook| std::cmp::Reverse(t.counts.run_ns + t.counts.wait_ns);
        tasks.sort_by_key(|t| (key(t), t.pid));
        tasks
    }

    /// The tables.
    ///
    /// * `width` – columns of the terminal; wider tables are cut into blocks.
    pub fn to_text(&self, width: usize) -> String {
        let tasks = self.tasks();
        let number: u64 = tasks.iter().map(|t| t.tasks).sum();
        let (cpu, latency) = self.look.all_cpus();
        let mut out = format!(
            "{:.3} s, {} with an event, {}\n\n",
            self.look.ns as f64 / 1e9,
            count(number, "task", "tasks"),
            count(self.look.cpus.len() as u64, "CPU", "CPUs"),
        );
        out += &tasks_text(&tasks, self.top, width);
        self.cgroups_text(&mut out, &tasks, width);
        out += "\n";
        out += &cpus_text(&self.look.cpus, width);
        histogram_text(&mut out, &latency, cpu.latency_ns_max);
        if self.why {
            self.why_text(&mut out, &tasks, width);
        }
        if let Some(compared) = &self.compared {
            compared::text(&mut out, compared, self.top, width);
        }
        out.push('\n');
        for note in self.all_notes(&cpu) {
            wrap(&mut out, 0, &format!("note: {note}"), width.min(100), |c| c);
        }
        let _ = writeln!(
            out,
            "{} events counted, {} lost; {:.1} MiB of the kernel's memory, places for {} tasks",
            cpu.events(),
            cpu.lost_events,
            self.look.bytes as f64 / f64::from(1 << 20),
            self.look.slots,
        );
        out
    }

    fn all_notes(&self, cpu: &CpuCounts) -> Vec<String> {
        let mut notes = self.notes.clone();
        notes.extend(self.compared.iter().flat_map(compared::notes));
        let came: Vec<u32> = self.look.cpus.iter().filter(|c| c.came).map(|c| c.cpu).collect();
        if !came.is_empty() {
            notes.push(format!(
                "{} {} came during the look: it is told as of a cache of its own",
                if came.len() == 1 { "CPU" } else { "CPUs" },
                homenode_core::list::in_order(&came),
            ));
        }
        if cpu.lost_tasks > 0 {
            notes.push(format!(
                "for {} there was no place, and {} of theirs went uncounted: the figures are too low. \
                 --tasks N makes more places",
                count(cpu.lost_tasks, "task", "tasks"),
                count(cpu.lost_events, "event", "events"),
            ));
        }
        notes
    }

    /// What a cgroup is called.
    pub fn cgroup_name(&self, id: u64) -> String {
        self.cgroups.get(&id).cloned().unwrap_or_else(|| format!("cgroup {id}"))
    }

    /// Tasks by their cgroups' names.
    pub fn by_cgroup(&self, tasks: &[TaskLook]) -> Vec<(String, TaskLook)> {
        let mut by: BTreeMap<u64, TaskLook> = BTreeMap::new();
        for t in tasks {
            by.entry(t.cgroup).and_modify(|all| all.add(t)).or_insert_with(|| t.clone());
        }
        by.into_iter().map(|(id, t)| (self.cgroup_name(id), t)).collect()
    }

    /// CPUs by what they have in common, each with its number.
    pub fn cpus_by(&self, of: fn(&CpuLook) -> u32) -> BTreeMap<u32, CpuLook> {
        groups(&self.look.cpus, of)
    }

    fn cgroups_text(&self, out: &mut String, tasks: &[TaskLook], width: usize) {
        let by = self.by_cgroup(tasks);
        if by.len() < 2 {
            return;
        }
        let rows = by.into_iter().map(|(name, t)| Line::Cells(name, task_cells(&t))).collect();
        *out += "\n";
        *out += &Grid { headers: task_headers(), rows }.draw(width);
    }

    fn why_text(&self, out: &mut String, tasks: &[TaskLook], width: usize) {
        let mut all = Reasons::default();
        tasks.iter().filter_map(|t| t.why.as_ref()).for_each(|w| all.add(w));
        let total = all.all();
        *out += "\nwake-ups by where the task was put\n";
        for reason in Reason::ALL {
            let n = all.by[reason as usize];
            if n > 0 {
                let _ = writeln!(out, "{}", shared(reason.name(), n, total));
            }
        }
        let far = [
            ("to another cache than its previous CPU's", all.from_last_llc),
            ("to another node than its previous CPU's", all.from_last_node),
            ("to another cache than its waker's", all.from_waker_llc),
            ("to another node than its waker's", all.from_waker_node),
        ];
        for (name, n) in far {
            let _ = writeln!(out, "{}", shared(name, n, total));
        }
        for line in self.memory_lines(tasks) {
            wrap(out, 0, &line, width.min(100), |c| c);
        }
    }

    /// Where processes are woken against where their memory is, those woken most first.
    fn memory_lines(&self, tasks: &[TaskLook]) -> Vec<String> {
        let mut by: BTreeMap<u32, (String, Reasons)> = BTreeMap::new();
        for t in tasks {
            let Some(why) = &t.why else { continue };
            let of = by.entry(t.tgid).or_insert_with(|| (t.comm.clone(), Reasons::default()));
            of.1.add(why);
        }
        let mut by: Vec<_> = by.into_iter().filter(|(_, (_, w))| w.all() > 0).collect();
        by.sort_by_key(|(_, (_, w))| std::cmp::Reverse(w.all()));
        let most = |values: &mut dyn Iterator<Item = (u64, u64)>| {
            let all: Vec<_> = values.collect();
            let sum: u64 = all.iter().map(|v| v.1).sum();
            let best = all.into_iter().max_by_key(|v| v.1).filter(|v| v.1 > 0)?;
            Some((best.0, best.1 as f64 * 100.0 / sum as f64))
        };
        let line = |(tgid, (comm, why)): (u32, (String, Reasons))| {
            let woken = most(&mut why.node.iter().enumerate().map(|(n, v)| (n as u64, *v)))?;
            let pages = self.memory.get(&tgid)?;
            let held = most(&mut pages.iter().map(|(n, v)| (u64::from(*n), *v)))?;
            Some(format!(
                "{} ({tgid}): {:.0} % of its wake-ups on node {}, {:.0} % of its memory on node {}",
                printable(&comm),
                woken.1,
                woken.0,
                held.1,
                held.0
            ))
        };
        by.into_iter().filter_map(line).take(self.top).collect()
    }

    /// One JSON object on one line. Times are nanoseconds; what a task was doing at the end is in
    /// the sum of that.
    pub fn to_json(&self) -> String {
        let tasks = self.tasks();
        let (cpu, latency) = self.look.all_cpus();
        let of_task = |t: &TaskLook| {
            let mut row = counts_json(TaskCounts::FIELDS, &t.counts.numbers());
            row.insert("pid".into(), json!(t.pid));
            row.insert("tgid".into(), json!(t.tgid));
            row.insert("parent".into(), json!(t.parent));
            row.insert("comm".into(), json!(t.comm));
            row.insert("tasks".into(), json!(t.tasks));
            row.insert("cgroup".into(), json!(self.cgroup_name(t.cgroup)));
            row.insert("wakeup_latency".into(), latency_json(&t.latency, t.counts.latency_ns_max));
            if let Some(why) = &t.why {
                row.insert("why".into(), why_json(why));
                row.insert("memory_pages_by_node".into(), json!(self.memory.get(&t.tgid)));
            }
            Value::from(row)
        };
        let cgroups = self.by_cgroup(&tasks).into_iter().map(|(name, t)| {
            let mut row = counts_json(TaskCounts::FIELDS, &t.counts.numbers());
            row.insert("cgroup".into(), json!(name));
            row.insert("tasks".into(), json!(t.tasks));
            row.insert("wakeup_latency".into(), latency_json(&t.latency, t.counts.latency_ns_max));
            Value::from(row)
        });
        let group = |of: fn(&CpuLook) -> u32, name: &str| -> Vec<Value> {
            self.cpus_by(of).iter().map(|(n, c)| cpu_json(name, *n, c)).collect()
        };
        let whole = json!({
            "look": "scheduler",
            "ns": self.look.ns,
            "tasks": null,
            "cgroups": cgroups.collect::<Vec<_>>(),
            "cpus": group(|c| c.cpu, "cpu"),
            "llcs": group(|c| c.llc, "first_cpu"),
            "nodes": group(|c| c.node, "node"),
            "wakeup_latency": latency_json(&latency, cpu.latency_ns_max),
            "events": cpu.events(),
            "lost_events": cpu.lost_events,
            "lost_tasks": cpu.lost_tasks,
            "kernel_bytes": self.look.bytes,
            "places": self.look.slots,
            "compared": self.compared.as_ref().map(compared::to_json),
            "notes": self.all_notes(&cpu),
        });
        // A task's row takes ten times its text while it is a tree, and there may be 100,000.
        let mut out = String::from("{");
        for (key, value) in whole.as_object().into_iter().flatten() {
            let comma = if out.len() > 1 { "," } else { "" };
            let _ = write!(out, "{comma}{}:", json!(key));
            if key != "tasks" {
                let _ = write!(out, "{value}");
                continue;
            }
            for (at, task) in tasks.iter().enumerate() {
                let _ = write!(out, "{}{}", if at == 0 { "[" } else { "," }, of_task(task));
            }
            out += if tasks.is_empty() { "[]" } else { "]" };
        }
        out + "}"
    }
}

// ── Cells ──────────────────────────────────────────────────────────────────────

fn ms(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}

fn us(ns: Option<u64>) -> String {
    ns.map_or("-".into(), |ns| format!("{:.1}", ns as f64 / 1e3))
}

fn printable(comm: &str) -> String {
    comm.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn shared(name: &str, n: u64, of: u64) -> String {
    let share = if of == 0 { 0.0 } else { n as f64 * 100.0 / of as f64 };
    format!("  {name:<42}{n:>12} ({share:5.1} %)")
}

fn headings<const N: usize>(all: [(&str, &str); N]) -> Vec<(String, String)> {
    all.iter().map(|(above, below)| ((*above).to_owned(), (*below).to_owned())).collect()
}

fn task_headers() -> Vec<(String, String)> {
    headings([
        ("run", "[ms]"),
        ("wait", "[ms]"),
        ("sleep", "[ms]"),
        ("block", "[ms]"),
        ("switches", "voluntary"),
        ("in-", "voluntary"),
        ("wake-", "ups"),
        ("migra-", "tions"),
        ("latency", "p50 [us]"),
        ("", "p99 [us]"),
        ("", "max [us]"),
    ])
}

fn task_cells(t: &TaskLook) -> Vec<String> {
    let c = &t.counts;
    let max = c.latency_ns_max;
    vec![
        ms(c.run_ns),
        ms(c.wait_ns),
        ms(c.sleep_ns),
        ms(c.block_ns),
        c.nr_voluntary.to_string(),
        c.nr_involuntary.to_string(),
        c.nr_wakeups.to_string(),
        c.nr_migrations.to_string(),
        us(t.latency.percentile(500, max)),
        us(t.latency.percentile(990, max)),
        us((c.latencies > 0).then_some(max)),
    ]
}

fn tasks_text(tasks: &[TaskLook], top: usize, width: usize) -> String {
    let name = |t: &TaskLook| match t.tasks {
        1 => format!("{} ({})", printable(&t.comm), t.pid),
        n => format!("{} ({} tasks of {})", printable(&t.comm), n, t.tgid),
    };
    let mut rows: Vec<Line> =
        tasks.iter().take(top).map(|t| Line::Cells(name(t), task_cells(t))).collect();
    let sum = |of: &[TaskLook]| {
        let mut all = of.first()?.clone();
        of[1..].iter().for_each(|t| all.add(t));
        Some(all)
    };
    if let Some(rest) = sum(&tasks[tasks.len().min(top)..]) {
        rows.push(Line::Cells(count(rest.tasks, "other", "others"), task_cells(&rest)));
    }
    if let Some(all) = sum(tasks) {
        rows.push(Line::Cells("all".into(), task_cells(&all)));
    }
    Grid { headers: task_headers(), rows }.draw(width)
}

/// CPUs by what they have in common, each with its number.
fn groups(cpus: &[CpuLook], of: fn(&CpuLook) -> u32) -> BTreeMap<u32, CpuLook> {
    let mut by: BTreeMap<u32, CpuLook> = BTreeMap::new();
    for c in cpus {
        by.entry(of(c))
            .and_modify(|all| {
                all.counts.add(&c.counts);
                all.latency.add(&c.latency);
                all.moved_in += c.moved_in;
                all.moved_in_llc += c.moved_in_llc;
                all.moved_in_node += c.moved_in_node;
            })
            .or_insert_with(|| c.clone());
    }
    by
}

fn cpus_text(cpus: &[CpuLook], width: usize) -> String {
    let cells = |c: &CpuLook| {
        let n = &c.counts;
        vec![
            ms(n.run_ns),
            ms(n.wait_ns),
            n.timeslices.to_string(),
            n.nr_switches.to_string(),
            n.nr_idle.to_string(),
            n.nr_wakeups_local.to_string(),
            n.nr_wakeups_llc.to_string(),
            n.nr_wakeups_node.to_string(),
            n.nr_wakeups_far.to_string(),
            c.moved_in.to_string(),
            us(c.latency.percentile(500, n.latency_ns_max)),
            us(c.latency.percentile(990, n.latency_ns_max)),
        ]
    };
    let headers = headings([
        ("run", "[ms]"),
        ("wait", "[ms]"),
        ("time-", "slices"),
        ("switches", "of all"),
        ("to", "idle"),
        ("woken", "here"),
        ("same", "cache"),
        ("same", "node"),
        ("other", "node"),
        ("moved", "here"),
        ("latency", "p50 [us]"),
        ("", "p99 [us]"),
    ]);
    let mut rows = Vec::new();
    let mut put = |name: &str, of: fn(&CpuLook) -> u32, always: bool| {
        let by = groups(cpus, of);
        if always || by.len() > 1 {
            rows.extend(by.iter().map(|(n, c)| Line::Cells(format!("{name}{n}"), cells(c))));
        }
    };
    put("cpu", |c| c.cpu, true);
    put("cache of cpu", |c| c.llc, false);
    put("node", |c| c.node, false);
    put("all", |_| 0, true);
    if let Some(Line::Cells(name, _)) = rows.last_mut() {
        "all".clone_into(name);
    }
    Grid { headers, rows }.draw(width)
}

/// A row for each doubling.
fn histogram_text(out: &mut String, h: &Histogram, max: u64) {
    let doublings: Vec<(u64, u64)> = std::iter::once((0, h.0[0]))
        .chain((1..BUCKETS).step_by(4).map(|b| (b, h.0[b..(b + 4).min(BUCKETS)].iter().sum())))
        .map(|(b, n)| (Histogram::least(b), n))
        .collect();
    let most = doublings.iter().map(|d| d.1).max().unwrap_or(0);
    let is_some = |d: &(u64, u64)| d.1 > 0;
    let (Some(first), Some(last)) =
        (doublings.iter().position(is_some), doublings.iter().rposition(is_some))
    else {
        return;
    };
    let at = |permille| us(h.percentile(permille, max));
    let _ = writeln!(
        out,
        "\nfrom wake-up to running [us]: p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
        at(500),
        at(900),
        at(990),
        at(999),
        us(Some(max))
    );
    for (least, n) in &doublings[first..=last] {
        let bar = "#".repeat((n * BAR).div_ceil(most) as usize);
        let from = format!("{:.1}", *least as f64 / 1e3);
        let _ = writeln!(out, "{}", format!("{from:>12} {n:>12} {bar}").trim_end());
    }
}

// ── JSON ───────────────────────────────────────────────────────────────────────

fn counts_json(fields: &[(&str, Kind)], numbers: &[u64]) -> Map<String, Value> {
    fields.iter().zip(numbers).map(|((name, _), n)| ((*name).to_owned(), json!(n))).collect()
}

fn latency_json(h: &Histogram, max: u64) -> Value {
    let at = |permille| h.percentile(permille, max);
    let buckets: Vec<_> = (0..BUCKETS)
        .filter(|b| h.0[*b] > 0)
        .map(|b| json!({"from_ns": Histogram::least(b), "n": h.0[b]}))
        .collect();
    json!({
        "p50_ns": at(500), "p90_ns": at(900), "p99_ns": at(990), "p999_ns": at(999),
        "buckets": buckets,
    })
}

fn why_json(why: &Reasons) -> Value {
    let by: Map<String, Value> =
        Reason::ALL.into_iter().map(|r| (r.name().to_owned(), json!(why.by[r as usize]))).collect();
    json!({
        "by_reason": by,
        "by_node": why.node,
        "from_last_llc": why.from_last_llc,
        "from_last_node": why.from_last_node,
        "from_waker_llc": why.from_waker_llc,
        "from_waker_node": why.from_waker_node,
    })
}

fn cpu_json(name: &str, number: u32, c: &CpuLook) -> Value {
    let mut row = counts_json(CpuCounts::FIELDS, &c.counts.numbers());
    row.insert(name.to_owned(), json!(number));
    row.insert("moved_in".into(), json!(c.moved_in));
    row.insert("moved_in_llc".into(), json!(c.moved_in_llc));
    row.insert("moved_in_node".into(), json!(c.moved_in_node));
    row.insert("wakeup_latency".into(), latency_json(&c.latency, c.counts.latency_ns_max));
    row.into()
}

#[cfg(test)]
mod tests;
