//! `[[process]]`: where and when it runs, its maps and its steps.

use crate::ConfigError;
use crate::map::map;
use crate::policy::policy_of;
use crate::step::step;
use crate::tree::Cur;
use homenode_core::scenario::{Map, Process, Step};
use homenode_core::topology::MAX_CPUS;
use homenode_core::units::{CpuId, Picos};

pub(crate) fn process(c: &Cur<'_>) -> Result<Process, ConfigError> {
    let t = c.table(&["name", "cpus", "start", "policy", "memory_merge", "map", "step"])?;
    let cpus = t.get("cpus")?;
    let ids = cpus.numbers(MAX_CPUS - 1)?;
    let maps: Vec<Map> = t.get("map")?.list()?.iter().map(map).collect::<Result<_, _>>()?;
    for (i, c) in t.get("map")?.list()?.iter().enumerate() {
        if maps[..i].iter().any(|m| m.name == maps[i].name) {
            return Err(
                c.error(format!("the map \"{}\" stands twice; names are unique", maps[i].name))
            );
        }
    }
    let names: Vec<&str> = maps.iter().map(|m| m.name.as_str()).collect();
    let mut steps = Vec::new();
    for c in t.get("step")?.list()? {
        let next = step(&c, &names)?;
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
        start: t.opt("start").map_or(Ok(Picos::ZERO), |s| s.time())?,
        policy: policy_of(&t)?,
        memory_merge: t.opt("memory_merge").map_or(Ok(false), |c| c.bool())?,
        maps,
        steps,
    })
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
