//! A program that runs with its output thrown away: for its time, and for what its tasks did.
//!
//! Source: specs/schedstats.md#live.

use super::live::{TASKS, start};
use crate::program::Program;
use anyhow::{Result, bail};
use homenode_bpf::stats::Stats;
use homenode_core::sched::look::Look;
use homenode_live::place::Place;
use homenode_live::stats::{LookError, Targets, wanted};
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// How often a program that runs is looked after.
const SLICE: Duration = Duration::from_millis(5);

/// The program with its output thrown away, by a shell that becomes it.
pub(super) fn silent(command: &[OsString]) -> Vec<OsString> {
    let mut silent: Vec<OsString> =
        ["sh", "-c", "exec \"$@\" </dev/null >/dev/null 2>&1", "sh"].map(OsString::from).into();
    silent.extend(command.iter().cloned());
    silent
}

/// Waits for its end in the same steps whether or not it is looked at; seconds since it began.
pub(super) fn until_over(
    mut program: Program,
    name: &OsString,
    begun: Instant,
    mut meanwhile: impl FnMut() -> Result<(), LookError>,
) -> Result<f64> {
    while !program.is_over() {
        std::thread::sleep(SLICE);
        meanwhile()?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    match program.code() {
        Some(0) | None => Ok(seconds),
        Some(code) => bail!(
            "{}: exit code {code}; a program that fails can't be measured",
            name.to_string_lossy()
        ),
    }
}

/// What a command's tasks did, all of them; what it prints goes nowhere.
pub(crate) fn of_command(command: &[OsString]) -> Result<Look> {
    let mut stats = Stats::open(wanted(&Place::here(), &Targets::Tree, TASKS, false)?)
        .map_err(LookError::from)?;
    stats.begin().map_err(LookError::from)?;
    Ok(look_at(stats, command)?.1)
}

/// Seconds that it takes with what counts already, what was counted, and what the kernel timed.
pub(super) fn look_at(mut stats: Stats, command: &[OsString]) -> Result<(f64, Look, (u64, u64))> {
    let begun = Instant::now();
    let program = start(&mut stats, &silent(command))?;
    let seconds = until_over(program, &command[0], begun, || Ok(stats.gather()?))?;
    let spent = stats.spent();
    let look = stats.end().map_err(LookError::from)?;
    Ok((seconds, look, spent))
}
