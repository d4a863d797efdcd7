//! What each setting of homenode's engine decides: all by half and by half more, one at a time.
//!
//! Source: specs/compare.md#judged.

use anyhow::{Context, Result};
use serde_json::Value;

use super::tiering_quality::compared;
use super::{Setting, Verdict};
use crate::workspace::text_of;

/// Contenders beside which the engine has a rank.
const OTHERS: &[&str] = &["off", "mode2", "colloid", "arms"];
const OURS: &str = "homenode:pmu";
/// What a setting may change the mean by, as a share.
const LIMIT: f64 = 0.03;

/// A setting at another value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Moved {
    name: String,
    default: String,
    value: String,
}

pub(super) fn run(setting: &Setting<'_>) -> Result<Verdict> {
    let mut command = std::process::Command::new(setting.ws.homenode(setting.profile)?);
    let all: Value = serde_json::from_str(&text_of(command.args(["list", "settings", "--json"]))?)
        .context("no JSON of list settings")?;
    let mut moved = moved(&all)?;
    if setting.tiny {
        moved.retain(|m| m.name == "horizon");
    }
    let of = |m: &Moved| format!("{OURS}+{}={}", m.name, m.value);
    let columns: Vec<String> =
        OTHERS.iter().chain([&OURS]).map(|&c| c.to_owned()).chain(moved.iter().map(of)).collect();
    let columns = columns.join(",");
    let workloads: &[&str] =
        if setting.tiny { &["gauss", "--seeds", "1", "--time", "3s"] } else { &["--quick"] };
    let table = compared(setting, &[workloads, &["--columns", &columns]].concat())?;
    let field = Field::parse(&table)?;
    let (others, engines) = field.rows.split_at(OTHERS.len());
    let (default, changed) = engines.split_first().context("no column of homenode's")?;
    let rank = |of: &Row| 1 + others.iter().filter(|o| o.mean > of.mean).count();
    println!(
        "  as it is {:.3}, rank {} of {}; mean over {} workloads, and the largest change on one",
        default.mean,
        rank(default),
        others.len() + 1,
        default.each.len()
    );
    println!("  {:<12} {:>8} {:>8}  {:>7}  rank  on one", "setting", "default", "tried", "mean %");
    let (mut worst, mut ranks): (f64, usize) = (0.0, 0);
    for (m, row) in moved.iter().zip(changed) {
        let change = row.mean / default.mean - 1.0;
        let one = row.each.iter().zip(&default.each).map(|((_, a), (name, b))| (a / b - 1.0, name));
        let most = one.max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
        let (most, on) = most.context("no workload")?;
        worst = worst.max(change.abs());
        ranks += usize::from(rank(row) != rank(default));
        let mark = if change.abs() > LIMIT || rank(row) != rank(default) { "  MISSED" } else { "" };
        println!(
            "  {:<12} {:>8} {:>8}  {:>+7.2}  {:>4}  {on} {:+.1} %{mark}",
            m.name,
            m.default,
            m.value,
            change * 100.0,
            rank(row),
            most * 100.0
        );
    }
    println!("  ranks that change: {ranks}");
    Ok(Verdict {
        ours: worst * 100.0,
        peer: LIMIT * 100.0,
        unit: "per cent by which a setting moved by half changes the mean (peer: the limit)",
        ratio: LIMIT / worst.max(1e-9),
        goal: "each setting by half and by half more: no rank changes, and the mean by <= 3 %",
        pass: worst <= LIMIT && ranks == 0,
    })
}

/// All settings by half and by half more, as far as they may be so.
fn moved(all: &Value) -> Result<Vec<Moved>> {
    let mut out = Vec::new();
    for s in all["settings"].as_array().context("no settings")? {
        let number = |v: &Value| v.as_u64().context("a setting without a number");
        let default = number(&s["default"])?;
        let (least, most) = (number(&s["range"][0])?, number(&s["range"][1])?);
        let shown = |v: u64| if s["unit"] == "ps" { time(v) } else { v.to_string() };
        for value in [default / 2, default + default / 2] {
            if value != default && (least..=most).contains(&value) {
                let name = s["name"].as_str().context("a setting without a name")?.to_owned();
                out.push(Moved { name, default: shown(default), value: shown(value) });
            }
        }
    }
    Ok(out)
}

/// Picoseconds in the largest whole unit.
fn time(ps: u64) -> String {
    const UNITS: [(&str, u64); 4] =
        [("s", 1_000_000_000_000), ("ms", 1_000_000_000), ("us", 1_000_000), ("ns", 1_000)];
    let whole = UNITS.iter().find(|(_, scale)| ps > 0 && ps % *scale == 0);
    whole.map_or(format!("{ps}ps"), |(unit, scale)| format!("{}{unit}", ps / scale))
}

/// Means and speeds against the first column.
struct Row {
    mean: f64,
    each: Vec<(String, f64)>,
}

struct Field {
    rows: Vec<Row>,
}

impl Field {
    fn parse(all: &Value) -> Result<Self> {
        let list = |v: &Value, key: &str| -> Result<Vec<Value>> {
            Ok(v[key].as_array().with_context(|| format!("no {key}"))?.clone())
        };
        let ratio = |v: &Value| v["against_first"]["ratio"].as_f64().context("no ratio");
        let workloads = list(all, "workloads")?;
        let mut rows = Vec::new();
        for (i, mean) in list(all, "geometric_mean")?.iter().enumerate() {
            let of = |w: &Value| -> Result<(String, f64)> {
                let name = w["name"].as_str().context("no name")?.to_owned();
                Ok((name, ratio(&w["contenders"][i])?))
            };
            let each = workloads.iter().map(of).collect::<Result<_>>()?;
            rows.push(Row { mean: ratio(mean)?, each });
        }
        Ok(Self { rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_are_moved_by_half_where_they_may_be() {
        let all = json!({"settings": [
            {"name": "horizon", "unit": "ps", "default": 10_000_000_000_000_u64, "range": [1, u64::MAX]},
            {"name": "retries", "unit": "number", "default": 3, "range": [2, 16]},
            {"name": "off", "unit": "number", "default": 0, "range": [0, 1]},
        ]});
        let moved: Vec<(String, String)> =
            moved(&all).expect("settings").into_iter().map(|m| (m.name, m.value)).collect();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(
            moved,
            [pair("horizon", "5s"), pair("horizon", "15s"), pair("retries", "4")],
            "one by half is below its range, and nothing has no half"
        );
        assert_eq!(time(1_500_000_000), "1500us");
    }
}
