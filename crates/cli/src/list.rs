//! `homenode list`: what there is to choose from.

use crate::contender::{Contenders, written};
use crate::{figures, output};
use anyhow::Result;
use homenode_core::engine::{SETTINGS, SettingKind, SettingUnit, Settings};
use homenode_core::pattern::{Allowed, PATTERNS, Parameter};
use homenode_report::Better;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// List what there is to choose from: figures, columns, patterns, settings.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode list figures
  homenode sim scenarios/zipf.toml --columns off,mode2 --figures accesses,pgpromote_success")]
pub(crate) struct Args {
    #[arg(value_enum)]
    what: What,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// What tables show, for --figures: name, unit, which way is better
    Figures,
    /// What a column of a table can be, for --columns
    Columns,
    /// Patterns of accesses and their parameters, for scenarios
    Patterns,
    /// Settings of homenode's engine, for --columns
    Settings,
}

pub(crate) fn run(args: &Args, contenders: &Contenders) -> Result<u8> {
    output::print(&match (args.what, args.json) {
        (What::Figures, false) => figures_text(),
        (What::Figures, true) => json!({"figures": figures_json()}).to_string(),
        (What::Columns, false) => contenders.list(),
        (What::Columns, true) => json!({"columns": contenders.to_json()}).to_string(),
        (What::Patterns, false) => patterns_text(),
        (What::Patterns, true) => json!({"patterns": patterns_json()}).to_string(),
        (What::Settings, false) => settings_text(),
        (What::Settings, true) => json!({"settings": settings_json()}).to_string(),
    })?;
    Ok(0)
}

fn figures_text() -> String {
    let all = figures::all();
    let width = all.iter().map(|f| f.word().len()).max().unwrap_or(0);
    let mut out = String::new();
    for (i, told) in all.iter().enumerate() {
        let part = told.part;
        if i == 0 || all[i - 1].part != part {
            let gap = if i == 0 { "" } else { "\n" };
            let _ = writeln!(out, "{gap}{}: {}", part.name(), part.about());
        }
        let better = match told.figure.better {
            Better::Lower => "less",
            Better::Higher => "more",
            Better::Neither => "",
        };
        let (word, about) = (told.word(), told.about());
        let _ = writeln!(out, "  {word:width$}  {:<9}  {better:<4}  {about}", told.unit);
    }
    out.push_str("\nless, more: which is better, where one is\n");
    out
}

fn figures_json() -> Value {
    let one = |told: &figures::Told| {
        json!({
            "word": told.word(),
            "part": told.part.name(),
            "name": told.figure.name,
            "unit": told.unit,
            "better": told.figure.better,
            "about": told.about(),
        })
    };
    figures::all().iter().map(one).collect()
}

fn allowed(p: &Parameter) -> String {
    let mut text = match p.allowed {
        Allowed::Thousandths(low, high) => format!("{low} to {high} thousandths"),
        Allowed::Number(low, high) => format!("{low} to {high}"),
        Allowed::Time => "a time".to_owned(),
    };
    if let Some(default) = p.default {
        let _ = write!(text, ", else {default}");
    }
    text
}

fn patterns_text() -> String {
    let mut out = String::new();
    for kind in PATTERNS {
        let _ = writeln!(out, "{}: {}", kind.name, kind.about);
        for p in kind.parameters {
            let _ = writeln!(out, "  {:<10}  {:<24}  {}", p.key, allowed(p), p.about);
        }
    }
    out
}

fn patterns_json() -> Value {
    let parameter = |p: &Parameter| {
        let (unit, range) = match p.allowed {
            Allowed::Thousandths(low, high) => ("thousandths", Some([low, high])),
            Allowed::Number(low, high) => ("number", Some([low, high])),
            Allowed::Time => ("time", None),
        };
        json!({"key": p.key, "unit": unit, "range": range, "default": p.default, "about": p.about})
    };
    let one = |kind: &homenode_core::pattern::PatternKind| {
        let parameters: Vec<Value> = kind.parameters.iter().map(parameter).collect();
        json!({"name": kind.name, "about": kind.about, "parameters": parameters})
    };
    PATTERNS.iter().map(one).collect()
}

fn settings_text() -> String {
    let width = SETTINGS.iter().map(|s| s.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for kind in SETTINGS {
        let [least, most] = kind.range().map(|v| written(kind.unit, v));
        let default = written(kind.unit, kind.get(&Settings::default()));
        let about = kind.about.trim();
        let range = format!("{least} to {most}");
        let _ = writeln!(out, "  {:width$}  {default:>6}  {range:<14}  {about}", kind.name);
    }
    out.push_str("\nname, default, least and largest value; as in homenode:pmu+horizon=20s\n");
    out
}

fn settings_json() -> Value {
    let one = |kind: &SettingKind| {
        let unit = match kind.unit {
            SettingUnit::Time => "ps",
            SettingUnit::MBps => "MB/s",
            SettingUnit::Number => "number",
        };
        json!({
            "name": kind.name,
            "unit": unit,
            "default": kind.get(&Settings::default()),
            "range": kind.range(),
            "about": kind.about.trim(),
        })
    };
    SETTINGS.iter().map(one).collect()
}
