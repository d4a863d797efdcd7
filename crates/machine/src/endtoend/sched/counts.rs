//! The counters that a script is judged by, from the kernel's texts.

use crate::conformance::Finding;

/// Rows of `/proc/PID/sched` that count what happened to a task, in the order in which they
/// are shown. Kernels print wake-ups by kind only while statistics are on.
pub const TASK_FIELDS: [&str; 13] = [
    "nr_switches",
    "nr_voluntary_switches",
    "nr_involuntary_switches",
    "se.nr_migrations",
    "nr_forced_migrations",
    "nr_wakeups",
    "nr_wakeups_sync",
    "nr_wakeups_migrate",
    "nr_wakeups_local",
    "nr_wakeups_remote",
    "nr_wakeups_affine",
    "nr_wakeups_affine_attempts",
    "wait_count",
];

/// Numbers of a CPU's line of `/proc/schedstat`, with their places behind its name: calls of
/// `schedule`, switches to idle, wake-ups done by this CPU, and those of them onto itself.
pub const CPU_FIELDS: [(&str, usize); 4] =
    [("sched_count", 2), ("sched_goidle", 3), ("ttwu_count", 4), ("ttwu_local", 5)];

/// The counters of `/proc/PID/sched`.
///
/// # Errors
/// Where a row is missing: statistics are off, or it is no such text.
pub fn task_counts(text: &str) -> Result<[u64; TASK_FIELDS.len()], Finding> {
    let mut counts = [0; TASK_FIELDS.len()];
    for (count, field) in counts.iter_mut().zip(TASK_FIELDS) {
        *count = row(text, field)?;
    }
    Ok(counts)
}

/// A row of `/proc/PID/sched` that holds a whole number.
fn row(text: &str, name: &str) -> Result<u64, Finding> {
    let found = text.lines().filter_map(|line| line.split_once(':'));
    let mut found = found.filter(|(left, _)| left.trim() == name);
    let value = found.next().ok_or_else(|| format!("/proc/PID/sched has no row {name}"))?.1;
    value.trim().parse().map_err(|_| format!("{name} of /proc/PID/sched is {:?}", value.trim()))
}

/// A row of `/proc/PID/sched` that holds milliseconds, in nanoseconds; `None` if it is not
/// there, as while statistics are off.
pub(super) fn millis(text: &str, name: &str) -> Option<u64> {
    let found = text.lines().filter_map(|line| line.split_once(':'));
    let value =
        found.filter(|(left, _)| left.trim() == name).map(|(_, right)| right.trim()).next()?;
    let (ms, ns) = value.split_once('.')?;
    let (ms, ns): (u64, u64) = (ms.parse().ok()?, ns.parse().ok()?);
    ms.checked_mul(1_000_000)?.checked_add(ns)
}

/// The counters of each CPU in `/proc/schedstat`, in the order of the lines. Any version.
///
/// # Errors
/// Where a line has too few numbers, or there is none.
pub fn cpu_counts(text: &str) -> Result<Vec<[u64; CPU_FIELDS.len()]>, Finding> {
    let mut all = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("cpu")) {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        let mut counts = [0; CPU_FIELDS.len()];
        for (count, (name, place)) in counts.iter_mut().zip(CPU_FIELDS) {
            let word = words.get(place).and_then(|word| word.parse().ok());
            *count = word.ok_or_else(|| format!("/proc/schedstat: no {name} in {line:?}"))?;
        }
        all.push(counts);
    }
    hold!(!all.is_empty(), "/proc/schedstat has no line of a CPU");
    Ok(all)
}

/// The CPU on which a task ran last: field 39 of `/proc/PID/stat`.
///
/// # Errors
/// Where it is no such text.
pub fn last_cpu(text: &str) -> Result<u32, Finding> {
    // Behind the name in brackets, which may hold anything, comes the third field.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let cpu = fields.split_whitespace().nth(36).and_then(|word| word.parse().ok());
    cpu.ok_or_else(|| format!("/proc/PID/stat holds {text:?}"))
}
