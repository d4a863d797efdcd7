//! `[[process]]`: where and when it runs, its maps and its steps.

use crate::ConfigError;
use crate::cpu::{Named, nice};
use crate::map::map;
use crate::policy::policy_of;
use crate::step::step;
use crate::tree::Cur;
use homenode_core::scenario::{CpuStep, Map, Process, SchedPolicy, Step};
use homenode_core::sched::fair::SLICE_NS;
use homenode_core::topology::MAX_CPUS;
use homenode_core::units::{CpuId, Picos};

/// Threads of a process and copies of it, at most: the kernel's default `pid_max`.
const MOST_TASKS: u64 = 32_768;

/// A process of a scenario that has these names.
pub(crate) fn process(c: &Cur<'_>, named: Named<'_>) -> Result<Process, ConfigError> {
    let t = c.table(&[
        "name",
        "cpus",
        "threads",
        "vcpus",
        "copies",
        "nice",
        "sched_policy",
        "sched_runtime",
        "group",
        "start",
        "exits",
        "policy",
        "memory_merge",
        "map",
        "step",
    ])?;
    let number = |key| t.opt(key).map_or(Ok(0), |n| n.int(1, MOST_TASKS));
    let (threads, vcpus, copies) = (number("threads")?, number("vcpus")?, number("copies")?);
    if let Some(c) = t.opt("vcpus").filter(|_| threads > 0) {
        return Err(c.error("vCPUs are the threads of a process; it has one of the two"));
    }
    let threads = threads.max(vcpus);
    let ids = match t.opt("cpus") {
        None if threads > 0 => Vec::new(),
        Some(c) => c.numbers(MAX_CPUS - 1)?,
        None => {
            return Err(t.error(
                "the key \"cpus\" or \"threads\" is missing: \"threads\" says how many run, on \
                 whatever CPU they get; \"cpus\" alone names the one of each",
            ));
        }
    };
    if threads.max(1) * copies.max(1) > MOST_TASKS {
        return Err(t.get("copies")?.error(format!(
            "{copies} copies of {threads} threads are more than {MOST_TASKS} tasks"
        )));
    }
    let spawned = t.opt("start").is_some_and(|c| c.text().is_ok_and(|word| word == "spawn"));
    if spawned && (threads != 1 || copies > 1 || !ids.is_empty()) {
        return Err(t.get("start")?.error(
            "who is run by others has one thread, no copies, and the CPUs of who runs it: threads = 1",
        ));
    }
    // One that only computes needs no memory.
    let listed = t.opt("map").map_or(Ok(vec![]), |m| m.list())?;
    let maps: Vec<Map> = listed.iter().map(map).collect::<Result<_, _>>()?;
    for (i, c) in listed.iter().enumerate() {
        if maps[..i].iter().any(|m| m.name == maps[i].name) {
            return Err(
                c.error(format!("the map \"{}\" stands twice; names are unique", maps[i].name))
            );
        }
    }
    let names: Vec<&str> = maps.iter().map(|m| m.name.as_str()).collect();
    let mut steps = Vec::new();
    for c in t.get("step")?.list()? {
        let next = step(&c, &names, named)?;
        if next == Step::Cpu(CpuStep::Exec) && threads.max(ids.len() as u64) > 1 {
            return Err(c.error(
                "exec ends all other threads of its process; it stands in one of one thread",
            ));
        }
        if let Step::Repeat { steps: n, .. } = next {
            let back = repeated(&c, n, steps.len())?;
            if steps[back..].contains(&Step::Fork) {
                return Err(c.error("a fork can't be repeated; put it before or after the loop"));
            }
        }
        steps.push(next);
    }
    Ok(Process {
        name: t.get("name")?.text()?.to_owned(),
        cpus: ids.into_iter().map(CpuId).collect(),
        threads: threads as u32,
        guest: vcpus > 0,
        copies: copies as u32,
        nice: t.opt("nice").map_or(Ok(0), |n| nice(&n))?,
        sched_policy: t.opt("sched_policy").map_or(Ok(SchedPolicy::Normal), |c| {
            c.word(&SchedPolicy::ALL.map(|p| (p.name(), p)))
        })?,
        sched_runtime: t.opt("sched_runtime").map(|c| slice(&c)).transpose()?,
        group: t.opt("group").map(|c| named.group(&c)).transpose()?,
        start: if spawned {
            Picos::ZERO
        } else {
            t.opt("start").map_or(Ok(Picos::ZERO), |s| s.time())?
        },
        spawned,
        exits: t.opt("exits").map_or(Ok(false), |c| c.bool())?,
        policy: policy_of(&t)?,
        memory_merge: t.opt("memory_merge").map_or(Ok(false), |c| c.bool())?,
        maps,
        steps,
    })
}

/// A slice of a task's own. The kernel takes any number of ns and cuts it without a word; who means what it writes
/// keeps within.
fn slice(c: &Cur<'_>) -> Result<Picos, ConfigError> {
    let time = c.positive_time()?;
    let ns = time.0 / 1000;
    if (SLICE_NS.0.into()..=SLICE_NS.1.into()).contains(&ns) && time.0 % 1000 == 0 {
        return Ok(time);
    }
    Err(c
        .error("a slice is a whole number of ns from 100 µs to 100 ms; kernels cut others to that"))
}

/// The place of the first of `n` steps before a repeating one at place `at`.
fn repeated(c: &Cur<'_>, n: u32, at: usize) -> Result<usize, ConfigError> {
    let what = match at {
        0 => "there is no step before it to repeat".to_owned(),
        1 => format!("{n} is out of range; 1 step stands before this one"),
        _ => format!("{n} is out of range; 1 to {at} steps stand before this one"),
    };
    let steps = c.any_table()?.get("steps")?;
    at.checked_sub(n as usize).ok_or_else(|| steps.error(what))
}
