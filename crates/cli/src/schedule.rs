//! Rows of scheduling, recorded or simulated, as people see them: a table of tasks, a picture of the
//! CPUs, a trace for Perfetto.

use anyhow::{Context, Result};
use homenode_core::sched::course::Blocked;
use homenode_report::{Lane, SchedTrace, TraceStage, TraceTask, cpu_picture};
use homenode_trace::sched::{Counted, Header, Kind, NOBODY, Row, Stage, Tally, spans};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

/// Tasks that are told one by one, those that ran or waited most.
const ONE_BY_ONE: usize = 16;
/// Tasks that are drawn.
const DRAWN: usize = 12;
/// Stretches of time in the picture.
const CELLS: u64 = 96;

/// Milliseconds, for tables.
pub(crate) fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Tasks by what they had of CPUs and waited for them, the most first.
pub(crate) fn by_time(tally: &Tally) -> Vec<usize> {
    let mut all: Vec<usize> =
        (0..tally.tasks.len()).filter(|&t| tally.tasks[t].first_ns.is_some()).collect();
    all.sort_by_key(|&t| {
        let it = &tally.tasks[t];
        (std::cmp::Reverse(it.run_ns + it.wait_ns), t)
    });
    all
}

/// All tasks together.
pub(crate) fn together(tally: &Tally) -> Counted {
    let mut all = Counted::default();
    for t in &tally.tasks {
        all.run_ns += t.run_ns;
        all.wait_ns += t.wait_ns;
        all.sleep_ns += t.sleep_ns;
        all.block_ns += t.block_ns;
        all.wakeups += t.wakeups;
        all.migrations += t.migrations;
        all.voluntary += t.voluntary;
        all.involuntary += t.involuntary;
        all.latencies.extend(&t.latencies);
        all.waited_ns.iter_mut().zip(t.waited_ns).for_each(|(sum, ns)| *sum += ns);
    }
    all.latencies.sort_unstable();
    all
}

/// A row of the table of tasks.
fn line(out: &mut String, label: &str, it: &Counted) {
    let us = |ns: u64| ns as f64 / 1e3;
    let _ = writeln!(
        out,
        "{label:24} {:>10.3} {:>10.3} {:>10.3} {:>10.3} {:>8} {:>6} {:>8} {:>9.1} {:>9.1}",
        ms(it.run_ns),
        ms(it.wait_ns),
        ms(it.sleep_ns),
        ms(it.block_ns),
        it.wakeups,
        it.migrations,
        it.voluntary + it.involuntary,
        us(it.latency_ns(500)),
        us(it.latency_ns(990)),
    );
}

/// A name and a number, as tables have them.
pub(crate) fn label(header: &Header, task: usize) -> String {
    let t = &header.tasks[task];
    format!("{} {}", t.name, t.tid)
}

/// Where the tasks' time went, for people.
pub(crate) fn table(header: &Header, tally: &Tally) -> String {
    let order = by_time(tally);
    let mut out = format!(
        "{:24} {:>10} {:>10} {:>10} {:>10} {:>8} {:>6} {:>8} {:>9} {:>9}\n",
        "task",
        "run ms",
        "wait ms",
        "sleep ms",
        "block ms",
        "wake-ups",
        "migr.",
        "switches",
        "p50 us",
        "p99 us"
    );
    for &task in order.iter().take(ONE_BY_ONE) {
        line(&mut out, &label(header, task), &tally.tasks[task]);
    }
    let all = together(tally);
    if order.len() > ONE_BY_ONE {
        let _ = writeln!(out, "… and {} more", order.len() - ONE_BY_ONE);
    }
    if order.len() > 1 {
        line(&mut out, "all of them", &all);
    }
    let waited: Vec<String> = Blocked::ALL
        .iter()
        .zip(all.waited_ns)
        .filter(|(_, ns)| *ns > 0)
        .map(|(b, ns)| format!("{} {:.3} ms", b.name(), ms(ns)))
        .collect();
    if !waited.is_empty() {
        let _ = writeln!(out, "asleep for: {}", waited.join(", "));
    }
    out
}

/// A task's time as JSON, in nanoseconds.
pub(crate) fn counted_json(it: &Counted) -> Value {
    json!({
        "elapsed_ns": it.elapsed_ns(),
        "run_ns": it.run_ns,
        "wait_ns": it.wait_ns,
        "sleep_ns": it.sleep_ns,
        "block_ns": it.block_ns,
        "wakeups": it.wakeups,
        "migrations": it.migrations,
        "voluntary": it.voluntary,
        "involuntary": it.involuntary,
        "latency_p50_ns": it.latency_ns(500),
        "latency_p99_ns": it.latency_ns(990),
    })
}

/// All tasks as JSON.
pub(crate) fn tasks_json(header: &Header, tally: &Tally) -> Value {
    let one = |(t, it): (&homenode_trace::sched::Task, &Counted)| {
        let mut v = counted_json(it);
        v["tid"] = json!(t.tid);
        v["tgid"] = json!(t.tgid);
        v["name"] = json!(t.name);
        v
    };
    header.tasks.iter().zip(&tally.tasks).map(one).collect()
}

/// Where the tasks that had most ran over time.
pub(crate) fn picture(header: &Header, rows: &[Row], tally: &Tally, width: usize) -> String {
    let mut drawn: Vec<usize> = by_time(tally).into_iter().take(DRAWN).collect();
    drawn.sort_unstable();
    let from = tally.tasks.iter().filter_map(|t| t.first_ns).min().unwrap_or(0);
    let cell = (tally.elapsed_ns() / CELLS).max(1000).next_multiple_of(1000);
    let place = |task: u32| drawn.iter().position(|&d| d == task as usize);
    let lane = |&task: &usize| Lane { label: label(header, task), ..Lane::default() };
    let mut lanes: Vec<Lane> = drawn.iter().map(lane).collect();
    spans(header, rows, |span| {
        let (Some(at), Stage::Runs(cpu)) = (place(span.task), span.at) else { return };
        let lane = &mut lanes[at];
        let first = (span.from_ns.saturating_sub(from) / cell) as usize;
        let last = (span.to_ns.saturating_sub(from + 1) / cell) as usize;
        if lane.cells.len() <= last {
            lane.cells.resize(last + 1, None);
        }
        lane.cells[first.min(last)..=last].fill(Some(cpu));
    });
    cpu_picture(&lanes, cell, width)
}

/// Rows as a trace.
pub(crate) fn trace(header: &Header, rows: &[Row]) -> SchedTrace {
    let task = |t: &homenode_trace::sched::Task| TraceTask {
        tid: t.tid,
        tgid: t.tgid,
        name: t.name.clone(),
    };
    let mut out =
        SchedTrace { tasks: header.tasks.iter().map(task).collect(), ..SchedTrace::default() };
    spans(header, rows, |span| {
        let at = match span.at {
            Stage::Runs(cpu) => TraceStage::Runs(cpu),
            Stage::Ready { .. } => TraceStage::Ready,
            Stage::Waits(on) => TraceStage::Waits(on.what.name()),
        };
        out.spans.push((span.task, span.from_ns, span.to_ns, at));
    });
    let wakes = rows.iter().filter(|r| r.kind == Kind::Wake && r.other != NOBODY);
    out.wakes = wakes.map(|r| (r.other, r.task, r.time_ns)).collect();
    out
}

/// Writes rows as a trace that Perfetto opens.
pub(crate) fn write_perfetto(path: &Path, header: &Header, rows: &[Row]) -> Result<()> {
    let why = || format!("{} can't be written", path.display());
    let mut out = BufWriter::new(File::create(path).with_context(why)?);
    trace(header, rows).write_file(&mut out).and_then(|()| out.flush()).with_context(why)
}
