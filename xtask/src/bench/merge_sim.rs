//! Same-page merging simulated: visits and tree searches a second, bytes, comparisons.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Samples, Setting, Verdict};
use crate::workspace::{must_run, text_of, typed};

/// Visits that end without a search: what the issue asks for, in millions a second.
const VISITS: f64 = 5.0;
/// Searches of a tree of 16 Mi nodes, likewise.
const SEARCHES: f64 = 0.2;

/// The program that measures: `crates/sim/examples/mergeloop`.
struct Mergeloop(PathBuf);

impl Mergeloop {
    fn build(setting: &Setting<'_>) -> Result<Self> {
        let (ws, profile) = (setting.ws, setting.profile.name());
        must_run(ws.cargo().args(["build", "--locked", "--quiet", "--profile", profile]).args([
            "--package",
            "homenode-sim",
            "--example",
            "mergeloop",
        ]))?;
        Ok(Self(ws.target.join(profile).join("examples/mergeloop")))
    }
    /// Runs a call; the object of its last line.
    fn call(&self, what: &str, options: &[(&str, u64)]) -> Result<Value> {
        let mut command = Command::new(&self.0);
        command.arg(what);
        for (name, value) in options {
            command.arg(format!("--{name}")).arg(value.to_string());
        }
        let text = text_of(&mut command)?;
        let line = text.lines().last().unwrap_or_default();
        serde_json::from_str(line)
            .with_context(|| format!("`{}` printed no JSON: {line}", typed(&command)))
    }
}

fn number(value: &Value, key: &str) -> Result<f64> {
    value[key].as_f64().with_context(|| format!("`{key}` is missing from mergeloop's JSON"))
}

/// Millions a second, by stretch.
fn rates(value: &Value, key: &str) -> Result<Samples> {
    let n = number(value, "n")?;
    let seconds = value[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let rates: Vec<f64> = seconds.iter().filter_map(Value::as_f64).map(|s| n / s / 1e6).collect();
    if rates.is_empty() || rates.iter().any(|r| !r.is_finite()) {
        bail!("mergeloop told no time under `{key}`: {value}");
    }
    Ok(Samples(rates))
}

pub(super) fn run(setting: &Setting<'_>) -> Result<Verdict> {
    let program = Mergeloop::build(setting)?;
    let (pages, n) = setting.pick((1 << 24, 1 << 18), (1 << 14, 1 << 12));
    let stretches = setting.pick(5, 1);
    let sizes = [("pages", pages), ("n", n), ("stretches", stretches)];
    println!("  {pages} pages, one core; M/s of CPU time, median (lowest to highest)");
    let changed = program.call("changed", &sizes)?;
    let merged = program.call("merged", &sizes)?;
    let visits = [rates(&changed, "seconds")?, rates(&merged, "seconds")?];
    println!("  visits, checksum changed        {}", visits[0].shown(2));
    println!("  visits, merged and in place     {}", visits[1].shown(2));
    let search = program.call("search", &sizes)?;
    let searches = rates(&search, "seconds")?;
    let limit = program.call("limit", &sizes)?;
    let (array, btree) = (rates(&limit, "array")?, rates(&limit, "btree")?);
    println!("  searches that end in the tree   {}", searches.shown(3));
    println!("  BTreeSet::insert                {}", btree.shown(3));
    println!("  look-up in a sorted array       {}", array.shown(3));
    let each = number(&search, "comparisons")? / (n * stretches) as f64;
    let exact = [&changed, &merged, &search]
        .iter()
        .all(|v| v["counted"].is_u64() && v["counted"] == v["compared"]);
    println!(
        "  {each:.2} comparisons a search; counted {} made in all three",
        if exact { "as many as were" } else { "NOT as many as were" }
    );
    let bytes = number(&changed, "bytes")? / number(&changed, "items")?;
    println!("  {bytes:.1} bytes an item");
    // The whole simulated kernel: items, contents, words, lists, for 1 TiB of guests.
    let guests = setting.pick(1u64 << 28, 1 << 14);
    let kernel = program.call("kernel", &[("pages", guests)])?;
    let through = rates(&kernel, "seconds")?;
    let touched = rates(&kernel, "touched")?;
    let peak = number(&kernel, "peak_kb")? * 1024.0;
    println!(
        "  {guests} pages of guests in the simulated kernel: touched at {}, visited at {}; {:.1} \
         GiB at the peak, {:.1} bytes a page",
        touched.shown(2),
        through.shown(2),
        peak / f64::from(1 << 30),
        peak / guests as f64
    );
    let slowest = visits.iter().map(Samples::median).fold(f64::INFINITY, f64::min);
    let (ours, peer) = (searches.median(), btree.median());
    Ok(Verdict {
        ours,
        peer,
        unit: "M searches/s of a tree of 16 Mi (peer: BTreeSet, which counts no comparisons)",
        ratio: ours / peer,
        goal: ">= 5 M visits/s, >= 0.2 M searches/s, comparisons exact, <= 32 bytes an item",
        pass: slowest >= VISITS && ours >= SEARCHES && exact && bytes <= 32.01,
    })
}
