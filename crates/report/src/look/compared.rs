//! The kernel's own statistics beside homenode's, as tables and as JSON.

use super::{ms, printable};
use crate::cell::{Grid, Line};
use homenode_core::sched::compared::{
    Compared, CpuFigure, Pair, TaskCompared, TaskFigure, TaskPairs, Unit,
};
use serde_json::{Map, Value, json};

/// Which figures rows of tasks have; JSON has all.
const OF_TASK: [(TaskFigure, &str); 3] = [
    (TaskFigure::Run, "run [ms]"),
    (TaskFigure::Wait, "wait [ms]"),
    (TaskFigure::Wakeups, "wake-ups"),
];

const OF_CPU: [(CpuFigure, &str); 3] =
    [(CpuFigure::Run, "run [ms]"), (CpuFigure::Wait, "wait [ms]"), (CpuFigure::Wakeups, "woken")];

/// How a figure is called, with its unit.
const fn name(figure: TaskFigure) -> &'static str {
    match figure {
        TaskFigure::Run => "run [ms]",
        TaskFigure::Wait => "wait [ms]",
        TaskFigure::Waits => "waits",
        TaskFigure::Sleep => "sleep [ms]",
        TaskFigure::Block => "block [ms]",
        TaskFigure::Iowait => "  of it for I/O [ms]",
        TaskFigure::Wakeups => "wake-ups",
        TaskFigure::WakeupsLocal => "  on the waker's CPU",
        TaskFigure::WakeupsRemote => "  on another CPU",
        TaskFigure::WakeupsMigrate => "  changed its CPU",
        TaskFigure::Migrations => "migrations",
        TaskFigure::Voluntary => "voluntary switches",
        TaskFigure::Involuntary => "involuntary switches",
    }
}

fn number(unit: Unit, n: u64) -> String {
    match unit {
        Unit::Ns => ms(n),
        Unit::Count => n.to_string(),
    }
}

/// The kernel's, homenode's, and by how much homenode's is more.
fn cells(unit: Unit, pair: Option<&Pair>) -> [String; 3] {
    let Some(pair) = pair else { return ["-"; 3].map(str::to_owned) };
    let near = (pair.own as i64).wrapping_sub(pair.difference()) as u64;
    let by = match (unit, pair.difference()) {
        (_, 0) => "0".to_owned(),
        (Unit::Ns, ns) => format!("{:+.3}", ns as f64 / 1e6),
        (Unit::Count, n) => format!("{n:+}"),
    };
    [number(unit, near), number(unit, pair.own), by]
}

fn headers(columns: impl Iterator<Item = &'static str>) -> Vec<(String, String)> {
    let three = |name: &'static str| [(name, "kernel"), ("", "homenode"), ("", "more by")];
    let owned = |(above, below): (&str, &str)| (above.to_owned(), below.to_owned());
    columns.flat_map(three).map(owned).collect()
}

/// The tables.
pub(super) fn text(out: &mut String, compared: &Compared, top: usize, width: usize) {
    *out += &format!(
        "\nbeside what the kernel counted itself (version {}), {}\n",
        compared.version.name(),
        homenode_core::units::count(compared.tasks.len() as u64, "task", "tasks")
    );
    let all = compared.all_tasks();
    let row = |figure: TaskFigure| {
        let cells = cells(figure.unit(), all[figure as usize].as_ref());
        Line::Cells(name(figure).to_owned(), cells.into())
    };
    let grid = Grid {
        headers: headers(std::iter::once("")),
        rows: TaskFigure::ALL.into_iter().map(row).collect(),
    };
    *out += &grid.draw(width);
    if compared.tasks.len() > 1 {
        let mut tasks: Vec<&TaskCompared> = compared.tasks.iter().collect();
        let busy = |t: &TaskCompared| {
            let own = |f: TaskFigure| t.pairs[f as usize].map_or(0, |p| p.own);
            own(TaskFigure::Run) + own(TaskFigure::Wait)
        };
        tasks.sort_by_key(|t| (std::cmp::Reverse(busy(t)), t.pid));
        let row = |t: &TaskCompared| {
            let of = |(f, _): (TaskFigure, _)| cells(f.unit(), t.pairs[f as usize].as_ref());
            let cells = OF_TASK.into_iter().flat_map(of).collect();
            Line::Cells(format!("{} ({})", printable(&t.comm), t.pid), cells)
        };
        let rows = tasks.into_iter().take(top).map(row).collect();
        *out += "\n";
        *out += &Grid { headers: headers(OF_TASK.iter().map(|f| f.1)), rows }.draw(width);
    }
    if !compared.cpus.is_empty() {
        let line = |name: String, pairs: &[Option<Pair>]| {
            let of = |(f, _): (CpuFigure, _)| cells(f.unit(), pairs[f as usize].as_ref());
            Line::Cells(name, OF_CPU.into_iter().flat_map(of).collect())
        };
        let mut rows: Vec<Line> =
            compared.cpus.iter().map(|c| line(format!("cpu{}", c.cpu), &c.pairs)).collect();
        rows.push(line("all".to_owned(), &compared.all_cpus()));
        *out += "\n";
        *out += &Grid { headers: headers(OF_CPU.iter().map(|f| f.1)), rows }.draw(width);
    }
}

/// What has to be known of the difference.
pub(super) fn notes(compared: &Compared) -> Vec<String> {
    let mut notes = Vec::new();
    let count = homenode_core::units::count;
    if compared.over > 0 {
        notes.push(format!(
            "{} over: what the kernel counted of a task goes with it, so there is nothing to compare",
            count(compared.over, "task is", "tasks are")
        ));
    }
    if compared.late > 0 {
        notes.push(format!(
            "{} read from the kernel before, and not compared",
            count(compared.late, "task was not", "tasks were not")
        ));
    }
    let incomplete = compared.incomplete();
    if incomplete > 0 {
        notes.push(format!(
            "of {} some figures are left out: the kernel has in them what was before the look, or \
             they went back",
            count(incomplete, "task", "tasks")
        ));
    }
    let delayed: u64 = compared.tasks.iter().map(|t| t.delayed).sum();
    if delayed > 0 {
        let ns: u64 = compared.tasks.iter().map(|t| t.delayed_ns).sum();
        notes.push(format!(
            "{} of {} ms began with a delayed dequeue; the kernel has some of it as a wait",
            count(delayed, "sleep", "sleeps"),
            ms(ns)
        ));
    }
    notes
}

fn pair_json(pair: Option<&Pair>) -> Value {
    pair.map_or(
        Value::Null,
        |p| json!({"kernel": p.kernel, "homenode": p.own, "more_by": p.difference()}),
    )
}

fn task_json(pairs: &TaskPairs) -> Map<String, Value> {
    let of = |f: TaskFigure| (f.name().to_owned(), pair_json(pairs[f as usize].as_ref()));
    TaskFigure::ALL.into_iter().map(of).collect()
}

/// All of it.
pub(super) fn to_json(compared: &Compared) -> Value {
    let task = |t: &TaskCompared| {
        let mut row = task_json(&t.pairs);
        row.insert("pid".into(), json!(t.pid));
        row.insert("comm".into(), json!(t.comm));
        row.insert("delayed_ns".into(), json!(t.delayed_ns));
        row.insert("delayed".into(), json!(t.delayed));
        Value::from(row)
    };
    let cpu = |pairs: &[Option<Pair>]| -> Map<String, Value> {
        let of = |f: CpuFigure| (f.name().to_owned(), pair_json(pairs[f as usize].as_ref()));
        CpuFigure::ALL.into_iter().map(of).collect()
    };
    let cpus = compared.cpus.iter().map(|c| {
        let mut row = cpu(&c.pairs);
        row.insert("cpu".into(), json!(c.cpu));
        Value::from(row)
    });
    json!({
        "version": compared.version.name().parse::<u32>().ok(),
        "tasks": compared.tasks.iter().map(task).collect::<Vec<_>>(),
        "all_tasks": task_json(&compared.all_tasks()),
        "cpus": cpus.collect::<Vec<_>>(),
        "all_cpus": cpu(&compared.all_cpus()),
        "over": compared.over,
        "late": compared.late,
    })
}
