//! The recorded programs: run small for the time of an instruction, recorded small and
//! large, predicted large.

use super::Scratch;
use super::predict::{self, Phase};
use super::table::median;
use crate::replay::load::op;
use crate::spread::Predicted;
use anyhow::{Context, Result, anyhow, bail};
use homenode_core::topology::Hardware;
use homenode_measure::record::{self, Options};
use homenode_measure::workload::Program;
use homenode_sim::replay::{Op, Recording};
use homenode_trace::{Batch, Kind, Reader};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// A program that runs at a small size, so that its time at a large one can be predicted.
pub(super) struct Extrapolation {
    pub(super) program: Program,
    pub(super) small: u64,
    pub(super) large: u64,
    pub(super) seed: u64,
}

/// Picoseconds that the large run is predicted to take, and a sentence about how.
///
/// * `between_runs` – see [`predict::program`].
pub(super) fn predict(
    machine: &Hardware,
    asked: &Extrapolation,
    samples: u32,
    between_runs: f64,
) -> Result<(Predicted, String)> {
    let scratch = Scratch::new()?;
    let file = &scratch.0.join("recording.parquet");
    let small = phase(machine, asked.program, asked.small, asked.seed, file)?;
    let mut times = Vec::new();
    for _ in 0..samples {
        // Small runs are short: the median of many repetitions, then of many runs.
        let ns = natively(asked.program, asked.small, asked.seed, 50)?;
        times.push(median(&ns.iter().map(|&n| n as f64).collect::<Vec<f64>>()));
    }
    let small_time = Predicted::of_samples(&times).scaled(1e3);
    let small_ps = small_time.time;
    let large = phase(machine, asked.program, asked.large, asked.seed, file)?;
    let (insns, lines) = (large.totals.insns, large.recording.misses());
    let predicted = predict::program(machine, large, &small.totals, &small_time, between_runs)?;
    let note = format!(
        "{}: {:.1} M instructions and {:.2} M lines from memory; {:.3} ns an instruction on {} in {:.1} µs",
        asked.program.name(),
        insns as f64 / 1e6,
        lines as f64 / 1e6,
        small_ps / 1e3 / small.totals.insns.max(1) as f64,
        crate::nodes::size(homenode_core::units::Bytes(asked.program.bytes(asked.small))),
        small_ps / 1e6,
    );
    Ok((predicted, note))
}

fn command(program: Program, size: u64, seed: u64, repeat: u32) -> Result<Vec<OsString>> {
    let own = std::env::current_exe().context("where this program is")?;
    let mut all = vec![own.into_os_string()];
    all.extend(["workload", program.name(), "--rows"].map(OsString::from));
    all.extend([size.to_string(), "--seed".into(), seed.to_string()].map(OsString::from));
    all.extend(["--repeat".into(), repeat.to_string()].map(OsString::from));
    Ok(all)
}

/// Runs it on this machine; nanoseconds of each repetition of its measured phase.
pub(super) fn natively(program: Program, size: u64, seed: u64, repeat: u32) -> Result<Vec<u64>> {
    let all = command(program, size, seed, repeat)?;
    let out = Command::new(&all[0]).args(&all[1..]).output().context("can't start the workload")?;
    if !out.status.success() {
        bail!("the workload failed: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    let said: serde_json::Value =
        serde_json::from_slice(&out.stdout).context("the workload printed no JSON")?;
    let ns: Option<Vec<u64>> =
        said["ns"].as_array().and_then(|a| a.iter().map(serde_json::Value::as_u64).collect());
    ns.filter(|n| !n.is_empty()).ok_or_else(|| anyhow!("the workload printed no times"))
}

/// Records it, and takes the measured phase out: the thread that runs most.
fn phase(machine: &Hardware, program: Program, size: u64, seed: u64, file: &Path) -> Result<Phase> {
    let mut options =
        Options::new(command(program, size, seed, 1)?, file.to_owned(), machine.clone());
    options.native_runs = 0;
    // What the program prints is not this command's answer.
    options.quiet = true;
    let summary = record::record(&options, &mut |_| {})?;
    if !summary.header.complete {
        bail!("the recording of {} is not complete", program.name());
    }
    let reader = Reader::open(file)?;
    let tasks = &reader.header().tasks;
    let threads = tasks.iter().enumerate().filter(|(_, t)| t.thread);
    let (task, totals) = threads
        .max_by_key(|(_, t)| t.totals.insns)
        .map(|(i, t)| (i as u32, t.totals))
        .context("the recording has no thread")?;
    let mut recording = Recording::new(1);
    let (mut batch, mut batches) = (Batch::default(), reader.batches());
    while batches.next_into(&mut batch)? {
        for row in batch.iter().filter(|r| r.task == task) {
            // The thread's own mappings, its stack, are not what is measured.
            let access = op(row).filter(|_| row.kind == Kind::Access);
            recording.push(0, row.insns, access.unwrap_or(Op::Wait { child: None }));
        }
    }
    Ok(Phase { recording, totals })
}
