//! Which constants a reproduced result hangs on: each moved by ±20 %.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::hotloop::Figures;
use super::{Setting, Verdict};

/// A result.
struct Subject {
    /// What `homenode reproduce` calls it.
    name: &'static str,
    /// Where the table is published.
    page: &'static str,
    /// The figure that is shown, and its key in homenode's JSON.
    figure: &'static str,
    key: &'static str,
    /// What makes it small.
    tiny: &'static [&'static str],
}

const SCALED: &[&str] = &["--quick", "--scale", "4096"];

pub(super) fn tiering(setting: &Setting<'_>) -> Result<Verdict> {
    let page = "docs/sensitivity-tiering.md";
    run(setting, &Subject { name: "tiering", page, figure: "gain", key: "gain", tiny: SCALED })
}

pub(super) fn ksm(setting: &Setting<'_>) -> Result<Verdict> {
    let page = "docs/sensitivity-ksm.md";
    let figure = "deviation across 2 nodes";
    run(setting, &Subject { name: "ksm", page, figure, key: "nominal", tiny: SCALED })
}

pub(super) fn schedstats(setting: &Setting<'_>) -> Result<Verdict> {
    let page = "docs/sensitivity-schedstats.md";
    let figure = "pipetest's gain";
    run(setting, &Subject { name: "schedstats", page, figure, key: "pipetest", tiny: &["--quick"] })
}

pub(super) fn slow_start(setting: &Setting<'_>) -> Result<Verdict> {
    let page = "docs/sensitivity-slow-start.md";
    let figure = "a build without slow start, above off,";
    run(setting, &Subject { name: "slow-start", page, figure, key: "without", tiny: &["--quick"] })
}

pub(super) fn recent_cpu(setting: &Setting<'_>) -> Result<Verdict> {
    let page = "docs/sensitivity-recent-cpu.md";
    let figure = "dbench's gain with one client";
    run(setting, &Subject { name: "recent-cpu", page, figure, key: "gain", tiny: &["--quick"] })
}

fn run(setting: &Setting<'_>, subject: &Subject) -> Result<Verdict> {
    let homenode = setting.ws.homenode(setting.profile)?;
    let mut command = Command::new(&homenode);
    command.args(["reproduce", subject.name, "--sensitivity", "--json"]);
    if setting.tiny {
        command.args(subject.tiny);
    }
    let found = Figures::by(&mut command)?;
    let (constants, hold) = (found.number("constants")?, found.number("hold")?);
    if constants < 1.0 {
        bail!("no constant was moved");
    }
    println!(
        "  {constants} constants, each moved by -20 % and +20 %: {} {:.2} % with none \
         moved, {:.2} to {:.2} % with one",
        subject.figure,
        found.number(subject.key)?,
        found.number("least")?,
        found.number("most")?
    );
    let top = found.texts("most_elastic");
    println!("  most elastic: {}", top.join(", "));
    if !setting.tiny {
        let page = found.text("page");
        if page.is_empty() {
            bail!("homenode told no `page`");
        }
        let path = setting.ws.root.join(subject.page);
        let beside = path.with_extension("md.new");
        fs::write(&beside, page).with_context(|| format!("can't write {}", beside.display()))?;
        fs::rename(&beside, &path).with_context(|| format!("can't write {}", path.display()))?;
        println!("  the table is in {}", subject.page);
        // What --quick moves has to be what matters most, in whatever order.
        let (mut moves, mut top) = (found.texts("quick_moves"), top);
        moves.sort_unstable();
        top.sort_unstable();
        if moves != top {
            println!(
                "  note: `homenode reproduce {} --quick` moves others: {}",
                subject.name,
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
