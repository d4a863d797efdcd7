//! `[[group]]`: groups of processes, with the kernel's names for what they may have.
//!
//! ```text
//! name = "batch"
//! parent = "guests"              the root, unless one is named
//! cpu.weight = 300
//! cpu.max = "50000 100000"
//! cpu."max.burst" = 20000
//! cpuset.cpus = "0-3"
//! ```
//!
//! Source: specs/sched-groups.md.

use crate::ConfigError;
use crate::cpu::{missing, unique};
use crate::tree::{Cur, Kind};
use homenode_core::scenario::Group;
use homenode_core::sched::group::{DEFAULT_WEIGHT, Max, WEIGHT};
use homenode_core::topology::MAX_CPUS;
use homenode_core::units::CpuId;

/// Groups in groups at most: the kernel walks up at every wake-up.
const DEEPEST: usize = 32;

/// All groups of a scenario.
pub(crate) fn groups(c: Option<Cur<'_>>) -> Result<Vec<Group>, ConfigError> {
    let listed = c.as_ref().map_or(Ok(vec![]), |l| l.list())?;
    let all = unique(c, "group", group, |g| &g.name)?;
    for (group, at) in all.iter().zip(&listed) {
        let mut above = group.parent.as_deref();
        let mut way = vec![group.name.as_str()];
        while let Some(name) = above {
            let c = at.any_table()?.get("parent")?;
            let Some(next) = all.iter().find(|g| g.name == name) else {
                let names: Vec<&str> = all.iter().map(|g| g.name.as_str()).collect();
                return Err(c.error(missing("group", name, &names)));
            };
            let again = way.contains(&name);
            way.push(name);
            if again {
                return Err(c.error(format!("the group is in itself: {}", way.join(" in "))));
            }
            if way.len() > DEEPEST {
                return Err(c.error(format!("groups are at most {DEEPEST} deep")));
            }
            above = next.parent.as_deref();
        }
    }
    Ok(all)
}

fn group(c: &Cur<'_>) -> Result<Group, ConfigError> {
    let t = c.table(&["name", "parent", "cpu", "cpuset"])?;
    let at = t.get("name")?;
    let name = at.text()?;
    let bad = |c: char| c == '/' || c.is_control();
    if name.is_empty() || name.starts_with('.') || name.contains(bad) || name.contains("cpu") {
        return Err(at.error(format!(
            "\"{name}\" is no name of a group: it is a folder in /sys/fs/cgroup, not empty, without \
             a slash, a dot at its beginning, or the letters \"cpu\", with which files begin"
        )));
    }
    let mut made = Group { weight: DEFAULT_WEIGHT, ..Group::new(name) };
    made.parent = t.opt("parent").map(|p| p.text().map(str::to_owned)).transpose()?;
    if let Some(cpu) = t.opt("cpu") {
        let cpu = cpu.table(&["weight", "max", "max.burst", "idle"])?;
        if let Some(w) = cpu.opt("weight") {
            made.weight = w.int(*WEIGHT.start(), *WEIGHT.end())? as u32;
        }
        made.max = cpu.opt("max").map_or(Ok(Max::default()), |c| max(&c))?;
        if let Some(c) = cpu.opt("max.burst") {
            made.max = burst(&c, made.max)?;
        }
        made.idle = match cpu.opt("idle") {
            None => false,
            Some(c) if matches!(c.val.kind, Kind::Bool(_)) => c.bool()?,
            Some(c) => c.int(0, 1)? == 1,
        };
        if let Some(c) = cpu.opt("weight").filter(|_| made.idle) {
            return Err(c.error("a group that is idle weighs 3, whatever is said here (EINVAL)"));
        }
    }
    if let Some(cpuset) = t.opt("cpuset") {
        let cpus = cpuset.table(&["cpus"])?.get("cpus")?.numbers(MAX_CPUS - 1)?;
        made.cpus = cpus.into_iter().map(CpuId).collect();
    }
    Ok(made)
}

fn max(c: &Cur<'_>) -> Result<Max, ConfigError> {
    let text = c.text()?;
    Max::default().write(text).map_err(|e| {
        c.error(format!(
            "\"{text}\" is refused ({}); write \"max\", or a quota and a period in µs such as \
             \"50000 100000\": the quota at least 1000, the period 1000 to 1000000",
            e.name()
        ))
    })
}

/// What a group may use beside its quota, of what it had left.
fn burst(c: &Cur<'_>, max: Max) -> Result<Max, ConfigError> {
    let us = c.int(0, u64::MAX / 1000)?;
    max.write_burst(&us.to_string()).map_err(|e| {
        c.error(format!(
            "{us} is refused ({}); it is µs, and at most the quota, of which \"{max}\" gives {}",
            e.name(),
            max.quota_us.unwrap_or(u64::MAX)
        ))
    })
}
