//! Which constants the tiering result hangs on: each moved by ±20 %.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Setting, Verdict};
use crate::workspace::text_of;

/// Where the table is published.
const PAGE: &str = "docs/sensitivity-tiering.md";

pub(super) fn run(setting: &Setting<'_>) -> Result<Verdict> {
    let homenode = setting.ws.homenode(setting.profile)?;
    let mut command = Command::new(&homenode);
    command.args(["reproduce", "tiering", "--sensitivity", "--json"]);
    if setting.tiny {
        command.args(["--quick", "--scale", "4096"]);
    }
    let text = text_of(&mut command)?;
    let found: Value = serde_json::from_str(&text).context("homenode printed no JSON")?;
    let number = |key: &str| {
        found[key].as_f64().with_context(|| format!("`{key}` is missing from homenode's JSON"))
    };
    let names = |key: &str| -> Vec<&str> {
        let all = found[key].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().filter_map(Value::as_str).collect()
    };
    let (constants, hold) = (number("constants")?, number("hold")?);
    if constants < 1.0 {
        bail!("no constant was moved");
    }
    println!(
        "  {constants} constants, each moved by -20 % and +20 %: gain {:.1} % with none moved, \
         {:.1} to {:.1} % with one",
        number("gain")?,
        number("least")?,
        number("most")?
    );
    let top = names("most_elastic");
    println!("  most elastic: {}", top.join(", "));
    if !setting.tiny {
        let page = found["page"].as_str().context("`page` is missing from homenode's JSON")?;
        let path = setting.ws.root.join(PAGE);
        let beside = path.with_extension("md.new");
        fs::write(&beside, page).with_context(|| format!("can't write {}", beside.display()))?;
        fs::rename(&beside, &path).with_context(|| format!("can't write {}", path.display()))?;
        println!("  the table is in {PAGE}");
        // What --quick moves has to be what matters most, in whatever order.
        let (mut moves, mut top) = (names("quick_moves"), top);
        moves.sort_unstable();
        top.sort_unstable();
        if moves != top {
            println!(
                "  note: `homenode reproduce tiering --quick` moves others: {}",
                moves.join(", ")
            );
        }
    }
    Ok(Verdict {
        ours: hold,
        peer: constants,
        unit: "constants with which signs and order hold (peer: all that are moved)",
        ratio: hold / constants,
        goal: "signs and order hold with every constant moved by 20 %",
        pass: hold == constants,
    })
}
