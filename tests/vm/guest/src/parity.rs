//! A kernel's own choices of CPUs for woken tasks, beside the header's for the same inputs.
//!
//! ```text
//!  crowd ──▶ this kernel ──watched──▶ records ─▶ both looks alike? ─▶ header ─▶ same CPU?
//! ```
//!
//! Bounds: tests/vm/parity.toml. Source: specs/wake.md#parity.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use homenode_bpf::choices::{CPUS, Look, Record, SeenTask, Watched};
use homenode_core::sched::domain::Domains;
use homenode_live::sysfs;
use homenode_wake::{Allowed, Cpus, Layout, Reason, Rules, Task, Version, Wakeup};
use serde_json::json;

use crate::asked::Asked;
use crate::bounds;
use crate::crowd::{LOADS, WALKS};
use crate::{TestResult, needs, skip};

const BOUNDS: &str = include_str!("../../parity.toml");

/// The kernel's numbers.
const WF_SYNC: u32 = 0x10;
const WF_CURRENT_CPU: u32 = 0x40;
const PF_EXITING: u32 = 0x4;
const PF_KTHREAD: u32 = 0x20_0000;
const SCHED_IDLE: u32 = 5;

/// A bound of the file.
fn bound(name: &str) -> Result<u64> {
    bounds::of(BOUNDS, name)
}

/// What a kind came to.
#[derive(Default)]
struct Kind {
    cases: u64,
    equal: u64,
    /// What 'always the previous CPU' would have.
    prev: u64,
    /// A few that differ, for who looks for the reason.
    different: Vec<String>,
}

pub(crate) fn parity(_: &Asked) -> TestResult {
    needs(Path::new("/sys/kernel/btf/vmlinux").exists(), "this kernel shows no BTF")?;
    let topology = sysfs::read_topology(Path::new("/"))?;
    let (sites, online) = topology.scheduling();
    if sites.cpus.len() > CPUS {
        return Err(skip(format!("more than {CPUS} CPUs")));
    }
    // All tasks are in the root group, whose loads are simple.
    let _ = fs::write("/proc/sys/kernel/sched_autogroup_enabled", "0");
    let layout = Layout::of_domains(&Domains::new(&sites, &online));
    let release = topology.kernel.unwrap_or_default();
    let version = if release.starts_with("6.") { Version::V6_12 } else { Version::V7_3 };
    let mut cpus = Cpus::new(layout, Rules::of(version));

    let nr_cpus = sites.cpus.len() as u32;
    let mut watched = Watched::start(nr_cpus)?;
    let mut kinds: BTreeMap<Reason, Kind> = BTreeMap::new();
    let (mut all, mut changed) = (0_u64, 0_u64);
    for (load, n) in LOADS.into_iter().chain(WALKS) {
        let mut child = Command::new("/bin/homenode-guest");
        let mut child = child.args(["--crowd", load, n]).stdout(Stdio::null()).spawn()?;
        let mut over = false;
        while !over {
            std::thread::sleep(Duration::from_millis(100));
            over = child.try_wait()?.is_some();
            for record in watched.take()? {
                all += 1;
                if !alike(&record, nr_cpus as usize) {
                    changed += 1;
                    continue;
                }
                let (cpu, reason) = replay(&mut cpus, &record)?;
                let kind = kinds.entry(reason).or_default();
                kind.cases += 1;
                kind.prev += u64::from(record.prev == record.chosen);
                if cpu == record.chosen {
                    kind.equal += 1;
                } else if kind.different.len() < 3 {
                    kind.different.push(format!("{cpu} for {}", brief(&record, nr_cpus as usize)));
                }
            }
        }
    }
    let lost = watched.lost()?;
    let mut wrong = Vec::new();
    let percent = |n: u64, of: u64| (n * 1000 / of.max(1)) as f64 / 10.0;
    if changed * 100 > all * bound("changed_max")? {
        wrong.push(format!("{changed} of {all} changed meanwhile"));
    }
    let (least, goal, few) = (bound("equal_min")?, bound("equal_goal")?, bound("cases_min")?);
    let mut missed = 0;
    let mut table = serde_json::Map::new();
    for (reason, kind) in &kinds {
        let judged = kind.cases >= few;
        if judged && kind.equal * 100 < kind.cases * least {
            let (equal, cases) = (kind.equal, kind.cases);
            let examples = kind.different.join("\n      ");
            wrong.push(format!("{reason:?}: {equal} of {cases} are equal\n      {examples}"));
        }
        missed += u64::from(judged && kind.equal * 100 < kind.cases * goal);
        let row =
            json!([kind.cases, percent(kind.equal, kind.cases), percent(kind.prev, kind.cases)]);
        table.insert(format!("{reason:?}"), row);
    }
    ensure!(wrong.is_empty(), "{}; of all: {table:?}", wrong.join("\n    "));
    ensure!(all > 2000, "only {all} wake-ups were seen");
    Ok(json!({
        "wakeups": all, "changed_percent": percent(changed, all), "lost": lost,
        "kinds_below_goal": missed, "cases_equal_prev": table,
    }))
}

/// Whether all that a choice hangs on was the same before and after it, but for what it writes.
fn alike(record: &Record, nr_cpus: usize) -> bool {
    let (before, after) = (&record.before, &record.after);
    let idle = |look: &Look| -> Vec<(bool, bool, u32)> {
        let cpus = look.cpus.iter().take(nr_cpus);
        cpus.map(|c| (c.idle, c.sched_idle, c.nr_idle_scan)).collect()
    };
    let queue = |look: &Look, cpu: u32| {
        let c = look.cpus[cpu as usize % CPUS];
        (c.load, c.nr_running, c.nr_delayed, c.capacity)
    };
    let queues = |look: &Look| (queue(look, record.here), queue(look, record.prev));
    idle(before) == idle(after) && queues(before) == queues(after)
}

fn task(of: &SeenTask) -> Task {
    let mut task = Task::born(of.recent, of.decay_jiffies);
    task.flips = of.flips;
    task.last_wakee = of.last_wakee;
    task
}

/// The header's choice for the same.
fn replay(cpus: &mut Cpus, record: &Record) -> Result<(u32, Reason)> {
    let look = &record.before;
    let nr_cpus = cpus.layout().nr_cpus();
    for (cpu, seen) in (0..).zip(&look.cpus[..nr_cpus]) {
        cpus.set_idle(cpu, seen.idle);
        cpus.set_sched_idle(cpu, seen.sched_idle);
        cpus.set_running(cpu, seen.nr_running, seen.nr_delayed);
        cpus.set_load(cpu, seen.load);
        cpus.set_capacity(cpu, seen.capacity);
        if let Some(shared) = cpus.layout().llc(cpu) {
            cpus.set_nr_idle_scan(shared, seen.nr_idle_scan);
            cpus.set_has_idle_core(shared, seen.has_idle_core);
        }
    }
    let (mut waker, mut wakee) = (task(&look.waker), task(&look.wakee));
    let flags = look.waker.flags;
    let wakeup = Wakeup {
        waker_cpu: record.here,
        prev: record.prev,
        task_cpu: record.prev,
        wakee: record.wakee_number,
        allowed: Allowed::Words(&[record.allowed]),
        nr_allowed: record.nr_allowed,
        sync: record.wake_flags & WF_SYNC != 0 && flags & PF_EXITING == 0,
        current_cpu: record.wake_flags & WF_CURRENT_CPU != 0,
        // The idle task is a kernel thread of one CPU, and has no say in it.
        waker_per_cpu_kthread: flags & PF_KTHREAD != 0
            && record.waker_nr_allowed == 1
            && !look.cpus[record.here as usize % CPUS].idle,
        wakee_idle_policy: record.wakee_policy == SCHED_IDLE,
        jiffies: record.jiffies,
        waker_load: look.waker.load,
        wakee_load: look.wakee.load,
        wakee_util: 0,
    };
    let choice = cpus.choose(&mut waker, &mut wakee, &wakeup)?;
    Ok((choice.cpu, choice.reason))
}

fn brief(record: &Record, nr_cpus: usize) -> String {
    let look = &record.before;
    let cpus: Vec<String> = look.cpus[..nr_cpus]
        .iter()
        .map(|c| format!("{}{}/{}", if c.idle { "i" } else { "" }, c.nr_running, c.load))
        .collect();
    format!(
        "{}, from {} prev {} flags {:#x} allowed {:#x} recent {} flips {} {} loads {} {} scan {} \
         core {} [{}]",
        record.chosen,
        record.here,
        record.prev,
        record.wake_flags,
        record.allowed,
        look.wakee.recent,
        look.waker.flips,
        look.wakee.flips,
        look.waker.load,
        look.wakee.load,
        look.cpus[record.prev as usize % CPUS].nr_idle_scan,
        look.cpus[record.prev as usize % CPUS].has_idle_core,
        cpus.join(" ")
    )
}
