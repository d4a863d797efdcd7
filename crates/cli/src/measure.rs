//! `homenode measure`: this machine's constants.

use crate::output;
use crate::progress::Progress;
use anyhow::Result;
use homenode_core::costs::{Constant, Cost, Shown, Unit};
use homenode_core::curve::Point;
use homenode_core::topology::Hardware;
use homenode_core::units::Bytes;
use homenode_measure::constants::{self, Options};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Measure this machine's constants and write them as a machine TOML.
///
/// Reads the topology from sysfs and measures latencies and bandwidths of every node,
/// caches, TLB, memory parallelism, page faults, copying, scanning and moving pages, and what
/// an access takes by footprint, in less than a minute. Every constant has its unit, method and spread, and is one of
/// measured, quoted and assumed. Needs no privilege; root also gets the time that
/// moving a page takes on a machine of one node. The machine should be idle meanwhile.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode measure -o this.toml")]
pub(crate) struct Args {
    /// Where the machine TOML goes; replaced only when everything is measured
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Print the constants as one JSON object
    #[arg(long)]
    json: bool,
    /// Small buffers, two rounds, two seconds: tries the machinery, gives no usable figures
    #[arg(long, hide = true)]
    tiny: bool,
}

pub(crate) fn run(args: &Args) -> Result<u8> {
    output::check_output(&args.output)?;
    let options = if args.tiny { Options::tiny() } else { Options::default() };
    let machine = {
        let progress = Progress::new(1000);
        constants::measure(&options, &mut |p| {
            progress.at(u64::from(p.done_permille));
            progress.murmur(p.what);
        })?
    };
    homenode_config::write_machine_file(&args.output, &machine)?;
    output::print(&if args.json {
        to_json(args, &machine)
    } else {
        format!("{}\nwritten to {}\n", to_text(&machine), args.output.display())
    })?;
    Ok(0)
}

/// All constants with their names and units.
fn lines(m: &Hardware) -> Vec<(String, Unit, &Constant)> {
    let mut out = Vec::new();
    for l in &m.links {
        let way = format!("node {} to node {}", l.from, l.to);
        for (what, unit, constant) in [
            ("read latency", Unit::Nanoseconds, &l.read_latency),
            ("write latency", Unit::Nanoseconds, &l.write_latency),
            ("read bandwidth", Unit::MBps, &l.read_bandwidth),
            ("write bandwidth", Unit::MBps, &l.write_bandwidth),
        ] {
            out.push((format!("{what}, {way}"), unit, constant));
        }
    }
    for c in &m.caches {
        let name = format!("L{} latency, {}", c.level, crate::nodes::size(c.size));
        out.push((name, Unit::Nanoseconds, &c.latency));
    }
    for &cost in Cost::ALL {
        if let Some(constant) = m.costs.0.get(&cost) {
            out.push((cost.name().to_owned(), cost.unit(), constant));
        }
    }
    out
}

fn to_text(m: &Hardware) -> String {
    let lines = lines(m);
    let width = lines.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    let mut out = format!("{}: {}\n\n", m.name, m.about);
    for (name, unit, c) in lines {
        let spread = c.spread.map_or(String::new(), |s| format!("± {}", Shown(s, unit)));
        out.push_str(&format!(
            "{name:<width$}  {:>10} {spread:<12} {:<6} {}\n",
            Shown(c.value, unit).to_string(),
            unit.name(),
            c.origin.name()
        ));
    }
    out.push_str(&curves_text(m));
    out
}

/// What an access takes by footprint: the median, and the tenth to the ninetieth percentile.
fn curves_text(m: &Hardware) -> String {
    if m.curves.is_empty() {
        return String::new();
    }
    let mut out = "\nns an access, by footprint (10 to 90 % of the rounds)\n           ".to_owned();
    for c in &m.curves {
        out.push_str(&format!("  {:<26}", c.walk.name()));
    }
    let sizes: BTreeSet<Bytes> = m.curves.iter().flat_map(|c| &c.points).map(|p| p.size).collect();
    for size in sizes {
        out.truncate(out.trim_end().len());
        out.push_str(&format!("\n{:>11}", crate::nodes::size(size)));
        for c in &m.curves {
            let point = c.points.iter().find(|p| p.size == size);
            let told = point.map_or(String::new(), |p| {
                let [low, time, high] =
                    [p.low, p.time, p.high].map(|t| Shown(t, Unit::Nanoseconds));
                format!("{time} ({low} to {high})")
            });
            out.push_str(&format!("  {told:<26}"));
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn to_json(args: &Args, m: &Hardware) -> String {
    let number = |v: u64, unit: Unit| v as f64 / unit.scale() as f64;
    let constants: Vec<_> = lines(m)
        .into_iter()
        .map(|(name, unit, c)| {
            json!({
                "name": name,
                "value": number(c.value, unit),
                "spread": c.spread.map(|s| number(s, unit)),
                "unit": unit.name(),
                "origin": c.origin.name(),
                "method": c.method,
            })
        })
        .collect();
    let ns = |ps: u64| number(ps, Unit::Nanoseconds);
    let curves: Vec<_> = m
        .curves
        .iter()
        .map(|c| {
            let point = |p: &Point| {
                json!({ "bytes": p.size.0, "low": ns(p.low), "time": ns(p.time), "high": ns(p.high) })
            };
            json!({
                "walk": c.walk.name(),
                "unit": Unit::Nanoseconds.name(),
                "method": c.method,
                "points": c.points.iter().map(point).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "output": args.output,
        "machine": m.name,
        "about": m.about,
        "constants": constants,
        "curves": curves,
    })
    .to_string()
}
