//! What the simulator predicts for this machine, beside what this machine takes.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::process::{Command, Stdio};

use super::{Samples, Setting, Verdict};
use crate::workspace::typed;

pub(super) fn run(setting: &Setting<'_>) -> Result<Verdict> {
    let mut command = Command::new(setting.ws.homenode(setting.profile)?);
    command.args(["truth", "mem", "--json"]).stderr(Stdio::null());
    if setting.tiny {
        command.arg("--tiny");
    }
    let out = command.output().with_context(|| format!("can't run `{}`", typed(&command)))?;
    // 1 says that a bound was missed, which is for us to tell.
    if !matches!(out.status.code(), Some(0 | 1)) {
        bail!("`{}` ended with {}", typed(&command), out.status);
    }
    let said: Value = serde_json::from_slice(&out.stdout).context("it printed no JSON")?;
    let rows = said["rows"].as_array().filter(|rows| !rows.is_empty()).context("it has no rows")?;

    println!("  predicted over measured; 1.00 is right");
    let (mut bound, mut missed, mut errors) = (0.0f64, 0, Samples::default());
    for row in rows {
        let number = |key: &str| row[key].as_f64().with_context(|| format!("a row has no {key}"));
        let (predicted, measured) = (number("predicted")?, number("measured")?);
        let unit = row["unit"].as_str().unwrap_or("");
        println!(
            "  {:<32} {predicted:>10.2} {measured:>10.2} {unit:<3} {:>6.2}{}",
            row["row"].as_str().unwrap_or("?"),
            predicted / measured,
            if row["pass"] == true { "" } else { "  missed" }
        );
        bound = bound.max(number("bound_percent")?);
        missed += usize::from(row["pass"] != true);
        errors.push(number("error_percent")?.abs());
    }
    println!("  error {} %, {missed} of {} bounds missed", errors.shown(1), rows.len());
    for warning in said["warnings"].as_array().into_iter().flatten() {
        println!("  warning: {}", warning.as_str().unwrap_or("?"));
    }
    let worst = errors.0.iter().copied().fold(0.0, f64::max);
    Ok(Verdict {
        ours: worst,
        peer: bound,
        unit: "% error, the worst row",
        ratio: if worst > 0.0 { bound / worst } else { f64::MAX },
        goal: "every error within the registered bound of 15 %",
        pass: missed == 0,
    })
}
