//! What homenode's mover takes in a guest to move pages, beside a bare loop of the calls that it
//! makes: how many calls, of how many pages.
//!
//! ```text
//! vm::seen("move-throughput") ──▶ by size of an order: calls, pages, seconds ──▶ table, ratio
//! ```
//!
//! Emulation says nothing about speed; both are emulated alike, so that the ratio of their times
//! is worth a look, and is not judged.
//!
//! Source: specs/act.md#throughput.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Setting, Verdict};
use crate::vm;

pub(super) fn run(setting: &Setting<'_>) -> Result<Verdict> {
    let told = vm::seen(setting.ws, "move-throughput", "acting-full", &[])?;
    println!("  pages an order  whose      calls  pages handed  asked where   moved     time");
    let (mut calls, mut bare_calls, mut equal) = (0.0, 0.0, true);
    for row in told.as_array().context("rows of the guest")? {
        let of = |who: &str, name: &str| -> f64 { row[who][name].as_f64().unwrap_or(0.0) };
        for who in ["ours", "bare"] {
            println!(
                "  {:>14}  {:<8} {:>7} {:>13} {:>12} {:>7} {:>6.2} s",
                row["pages"].as_u64().unwrap_or(0),
                if who == "ours" { "homenode" } else { "bare" },
                of(who, "calls"),
                of(who, "handed"),
                row[who]["asked"].as_u64().map_or_else(|| "-".to_owned(), |n| n.to_string()),
                of(who, "moved"),
                of(who, "seconds"),
            );
        }
        let time = of("bare", "seconds") / of("ours", "seconds").max(f64::MIN_POSITIVE);
        println!("  the bare loop's time / ours {time:.2} (emulated)");
        equal &=
            row["ours"]["moved"] == row["bare"]["moved"] && row["ours"]["moved"] != Value::Null;
        calls += of("ours", "calls");
        bare_calls += of("bare", "calls");
    }
    let ratio = bare_calls / f64::max(calls, 1.0);
    Ok(Verdict {
        ours: calls,
        peer: bare_calls,
        unit: "calls",
        ratio,
        goal: ">= 0.9 of the bare loop's throughput, by calls, and all pages moved",
        pass: ratio >= 0.9 && equal,
    })
}
