//! `[[process.step]]`: what a process does, one thing after another.
//!
//! ```text
//! do = "access"     says which other keys there are
//! map = "heap"      one of the process's maps
//! pattern = "zipf"  says which shape it has: here "theta"
//! theta = 990
//! time = "2s"       or "accesses"
//! ```

use crate::ConfigError;
use crate::cpu::{self, Named};
use crate::machine::node_id;
use crate::map::content;
use crate::policy::policy;
use crate::tree::{Cur, Fields};
use homenode_core::pattern::{Allowed, PATTERNS, Parameter, Pattern};
use homenode_core::scenario::{Again, MLP_MAX, Step, TouchOrder, Until};
use homenode_core::units::Picos;

const STEPS: [&str; 16] = [
    "touch",
    "access",
    "stream",
    "sleep",
    "fork",
    "wait",
    "unmap",
    "mbind",
    "move_pages",
    "initialize",
    "barrier",
    "map",
    "repeat",
    "fill",
    "madvise",
    "spawn",
];

/// A step of a process that has these maps, in a scenario that has these names.
pub(crate) fn step(c: &Cur<'_>, maps: &[&str], named: Named<'_>) -> Result<Step, ConfigError> {
    let map = |t: &Fields<'_>| {
        let c = t.get("map")?;
        let name = c.text()?;
        if maps.contains(&name) {
            return Ok(name.to_owned());
        }
        Err(c.error(format!(
            "the process has no map \"{name}\"{}",
            crate::tree::suggestion(name, maps)
        )))
    };
    let alone = |step| c.table(&["do"]).map(|_| step);
    let words: Vec<_> = STEPS.iter().chain(&cpu::STEPS).map(|s| (*s, *s)).collect();
    let word = c.any_table()?.get("do")?.word(&words)?;
    if let Some(step) = cpu::step(c, word, named)? {
        return Ok(Step::Cpu(step));
    }
    Ok(match word {
        "touch" => Step::Touch { map: map(&c.table(&["do", "map"])?)? },
        "access" => access(c, map)?,
        "stream" => {
            let t = c.table(&["do", "map", "rate", "write", "time"])?;
            let (map, time) = (map(&t)?, t.get("time")?.positive_time()?);
            let write = t.opt("write").map_or(Ok(0), |w| w.thousandths(0, 1000))?;
            match t.get("rate")?.rate()? {
                // Nothing is asked for, as at one end of a row of rates.
                0 => Step::Sleep(time),
                rate => Step::Stream { map, rate, write, time },
            }
        }
        "sleep" => Step::Sleep(c.table(&["do", "time"])?.get("time")?.positive_time()?),
        "fork" => alone(Step::Fork)?,
        "wait" => alone(Step::Wait)?,
        "initialize" => {
            let t = c.table(&["do", "map", "order"])?;
            let order = t.opt("order").map_or(Ok(TouchOrder::Linear), |c| {
                c.word(&[
                    ("linear", TouchOrder::Linear),
                    ("middle-first", TouchOrder::MiddleFirst),
                    ("scattered", TouchOrder::Scattered),
                ])
            })?;
            Step::Initialize { map: map(&t)?, order }
        }
        "barrier" => alone(Step::Barrier)?,
        "spawn" => {
            let t = c.table(&["do", "programs", "at_most"])?;
            let names = t.get("programs")?;
            let programs: Vec<String> = names
                .list()?
                .iter()
                .map(|c| c.text().map(str::to_owned))
                .collect::<Result<_, _>>()?;
            if programs.is_empty() {
                return Err(names.error("it runs one of these; name at least one"));
            }
            Step::Spawn { programs, at_most: t.get("at_most")?.int(1, 32_768)? as u32 }
        }
        "map" => Step::Map { map: map(&c.table(&["do", "map"])?)? },
        "repeat" => {
            let t = c.table(&["do", "steps", "times", "until"])?;
            let until = match (t.opt("times"), t.opt("until")) {
                (Some(n), None) => Again::Times(n.int(1, i64::MAX as u64)?),
                (None, Some(time)) => Again::Until(time.positive_time()?),
                (Some(_), Some(c)) => {
                    return Err(c.error(
                        "steps are repeated so many \"times\" or \"until\" a time, not both",
                    ));
                }
                (None, None) => {
                    return Err(t.error(
                        "a repeating step says how long: \"times\" or \"until\" (since the \
                         process's start) is missing",
                    ));
                }
            };
            Step::Repeat { steps: t.get("steps")?.int(1, u32::MAX.into())? as u32, until }
        }
        "fill" => {
            let t = c.table(&["do", "map", "content"])?;
            Step::Fill { map: map(&t)?, content: content(&t.get("content")?)? }
        }
        "madvise" => {
            let t = c.table(&["do", "map", "advice"])?;
            let advice = t.get("advice")?.word(&[("mergeable", true), ("unmergeable", false)])?;
            Step::Madvise { map: map(&t)?, mergeable: advice }
        }
        "unmap" => Step::Unmap { map: map(&c.table(&["do", "map"])?)? },
        "mbind" => {
            let t = c.table(&["do", "map", "policy"])?;
            Step::Mbind { map: map(&t)?, policy: policy(&t.get("policy")?)? }
        }
        _ => {
            let t = c.table(&["do", "map", "to"])?;
            Step::MovePages { map: map(&t)?, to: node_id(&t.get("to")?)? }
        }
    })
}

fn access<'a>(
    c: &Cur<'a>,
    map: impl Fn(&Fields<'a>) -> Result<String, ConfigError>,
) -> Result<Step, ConfigError> {
    const COMMON: [&str; 8] =
        ["do", "map", "pattern", "write", "compute", "mlp", "accesses", "time"];
    let parameters = || PATTERNS.iter().flat_map(|kind| kind.parameters).map(|p| p.key);
    let t = c.table(&COMMON.into_iter().chain(parameters()).collect::<Vec<_>>())?;
    let kinds: Vec<_> = PATTERNS.iter().map(|kind| (kind.name, kind)).collect();
    let kind = t.get("pattern")?.word(&kinds)?;
    let value = |p: &Parameter| match (t.opt(p.key), p.default) {
        (None, Some(default)) => Ok(default),
        (None, None) => t.get(p.key).map(|_| 0),
        (Some(c), _) => match p.allowed {
            Allowed::Thousandths(low, high) => c.thousandths(low, high).map(u64::from),
            Allowed::Number(low, high) => c.int(low, high),
            Allowed::Time => c.positive_time().map(|time| time.0),
        },
    };
    let values: Vec<u64> = kind.parameters.iter().map(value).collect::<Result<_, _>>()?;
    for key in parameters().filter(|key| kind.parameters.iter().all(|p| p.key != *key)) {
        if let Some(c) = t.opt(key) {
            return Err(c.error("this pattern has no such key"));
        }
    }
    let pattern = kind.with(&values);
    if let (Pattern::BreadthFirst { .. }, Some(c)) = (pattern, t.opt("write")) {
        return Err(c.error("a search writes what it finds; leave write out"));
    }
    let until = match (t.opt("accesses"), t.opt("time")) {
        (Some(n), None) => Until::Accesses(n.int(1, i64::MAX as u64)?),
        (None, Some(time)) => Until::Time(time.positive_time()?),
        (Some(_), Some(c)) => {
            return Err(
                c.error("an access step ends after \"accesses\" or after \"time\", not both")
            );
        }
        (None, None) => {
            return Err(
                t.error("an access step says when it ends: \"accesses\" or \"time\" is missing")
            );
        }
    };
    Ok(Step::Access {
        map: map(&t)?,
        pattern,
        write: t.opt("write").map_or(Ok(0), |w| w.thousandths(0, 1000))?,
        compute: t.opt("compute").map_or(Ok(Picos::ZERO), |c| c.time())?,
        mlp: t.opt("mlp").map_or(Ok(1), |c| c.int(1, MLP_MAX.into()))? as u32,
        until,
    })
}
