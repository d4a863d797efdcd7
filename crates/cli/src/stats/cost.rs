//! What looking costs: a program by turns without and with being looked at.
//!
//! ```text
//! round: off, on, off again, peer ─▶ the same beginning with another one, … ─▶ paired differences
//! ```
//!
//! *off* and *off again* have nothing attached, before and after somebody looked: between them
//! there must be no difference. One more round lets the kernel time the programs, which gives
//! ns per event; that timing costs something itself, so it is no part of the others.
//!
//! Source: specs/schedstats.md#live.

use super::live::Live;
use super::silent::{look_at, silent, until_over};
use crate::output;
use crate::program::Program;
use anyhow::{Result, bail};
use homenode_bpf::stats::count_time;
use homenode_core::sched::look::Look;
use homenode_live::place::Place;
use homenode_live::signals::Signals;
use homenode_live::stats::{LookError, Targets};
use homenode_report::stats::{mean, paired_interval};
use serde_json::json;
use std::ffi::OsString;
use std::time::Instant;

/// Which runs there are, in the order of a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    Off,
    On,
    OffAgain,
    Peer,
}

/// Seconds of all runs of each kind.
#[derive(Default)]
struct Seconds {
    off: Vec<f64>,
    on: Vec<f64>,
    off_again: Vec<f64>,
    peer: Vec<f64>,
    /// Of the last one that was looked at.
    look: Option<Look>,
}

pub(super) fn run(args: &Live, json: bool) -> Result<u8> {
    let place = Place::here();
    let signals = Signals::catch();
    let peer: Option<Vec<OsString>> = args.peer.as_ref().map(|words| {
        words.split_whitespace().map(OsString::from).chain(args.command.iter().cloned()).collect()
    });
    let mut runs = vec![Run::Off, Run::On, Run::OffAgain];
    runs.extend(peer.as_ref().map(|_| Run::Peer));
    let mut all = Seconds::default();
    // Once before, so that files are in memory and nobody pays for being first.
    alone(&args.command)?;
    for round in 0..args.rounds as usize {
        // Each begins a round as often as the others, and still follows the same one.
        for at in 0..runs.len() {
            match runs[(round + at) % runs.len()] {
                Run::Off => all.off.push(alone(&args.command)?),
                Run::OffAgain => all.off_again.push(alone(&args.command)?),
                Run::Peer => all.peer.push(alone(peer.as_deref().unwrap_or_default())?),
                Run::On => {
                    let (seconds, look, _) = looked_at(args, &place)?;
                    all.on.push(seconds);
                    all.look = Some(look);
                }
            }
            if homenode_live::signals::any() {
                bail!("interrupted; nothing is left attached");
            }
        }
    }
    let timing = count_time().map_err(LookError::from)?;
    let (_, timed, (times, ns)) = looked_at(args, &place)?;
    drop((timing, signals));
    let of = |with: &[f64]| {
        let (difference, half) = paired_interval(&all.off, with);
        let base = mean(&all.off) / 100.0;
        (difference / base, half / base)
    };
    let look = all.look.unwrap_or(timed);
    let (cpu, _) = look.all_cpus();
    let per_event = if times == 0 { 0.0 } else { ns as f64 / times as f64 };
    let (on, again) = (of(&all.on), of(&all.off_again));
    let beside = args.peer.as_ref().map(|words| (words, of(&all.peer)));
    let text = if json {
        json!({
            "rounds": args.rounds,
            "seconds_off": all.off, "seconds_on": all.on,
            "seconds_off_again": all.off_again, "seconds_peer": all.peer,
            "on_percent": {"mean": on.0, "half_of_95_percent_interval": on.1},
            "off_again_percent": {"mean": again.0, "half_of_95_percent_interval": again.1},
            "peer": beside.map(|(words, (mean, half))| json!({
                "words": words, "percent": {"mean": mean, "half_of_95_percent_interval": half},
            })),
            "ns_per_event": per_event,
            "events": cpu.events(),
            "lost_events": cpu.lost_events,
            "kernel_bytes": look.bytes,
        })
        .to_string()
    } else {
        let row = |name: &str, seconds: &[f64], (by, half): (f64, f64)| {
            format!("{name:<12}{:>10.4} {by:>+9.2} ± {half:.2}\n", mean(seconds))
        };
        let mut text =
            format!("{} rounds\n               time [s]  against off [%], 95 %\n", args.rounds);
        text += &format!("{:<12}{:>10.4}\n", "off", mean(&all.off));
        text += &row("off again", &all.off_again, again);
        text += &row("looked at", &all.on, on);
        if let Some((_, difference)) = beside {
            text += &row("the peer", &all.peer, difference);
        }
        text += &format!(
            "{per_event:.0} ns per event, as the kernel times it; {} events a run, {} lost; \
             {:.1} MiB of the kernel's memory\n",
            cpu.events(),
            cpu.lost_events,
            look.bytes as f64 / f64::from(1 << 20)
        );
        text
    };
    output::print(&text)?;
    Ok(0)
}

/// Seconds that it takes.
fn alone(command: &[OsString]) -> Result<f64> {
    let begun = Instant::now();
    until_over(Program::start(&silent(command))?, &command[0], begun, || Ok(()))
}

/// Seconds that it takes while it is looked at, what was counted, and what the kernel timed.
fn looked_at(args: &Live, place: &Place) -> Result<(f64, Look, (u64, u64))> {
    look_at(args.open(place, &Targets::Tree)?, &args.command)
}
