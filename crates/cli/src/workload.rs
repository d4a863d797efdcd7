//! `homenode workload`: the programs of the truth check, to be run and recorded.

use crate::output;
use anyhow::{Context, Result};
use homenode_measure::workload::{self, Program};
use serde_json::json;

/// Run a program of the truth check and print what it found and took, as JSON.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// hash-join or breadth-first-search
    #[arg(value_parser = program)]
    program: Program,
    /// Rows or vertices, a power of two
    #[arg(long, value_name = "N")]
    rows: u64,
    /// Seed of its input
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// How often the measured phase runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,
}

fn program(name: &str) -> Result<Program, String> {
    Program::parse(name).ok_or_else(|| {
        let names: Vec<&str> = Program::ALL.iter().map(|p| p.name()).collect();
        format!("there are only {}", names.join(" and "))
    })
}

pub(crate) fn run(args: &Args) -> Result<u8> {
    let name = args.program.name();
    let done = workload::run(args.program, args.rows, args.seed, args.repeat)
        .with_context(|| format!("{name} --rows {}", args.rows))?;
    output::print(
        &json!({
            "program": name,
            "rows": args.rows,
            "seed": args.seed,
            "checksum": format!("{:016x}", done.checksum),
            "ns": done.ns,
        })
        .to_string(),
    )?;
    Ok(0)
}
