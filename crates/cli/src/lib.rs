//! The `homenode` command.
//!
//! ```text
//! measure ─▶ machine.toml ─┬─▶ record mem ─▶ recording ─┐
//!                          └──────────────▶ replay ◀────┘   a table and a picture
//! CMD, perf.data ─▶ record sched ─▶ recording ─▶ replay sched   tasks, CPUs, a trace for Perfetto
//! scenario.toml ─▶ sim ─▶ a table        topo ─▶ nodes, CPUs, tiers
//! truth: predicted beside measured, on the measured machine
//! a seed's name ─▶ reproduce ─▶ its table with our figures, conclusions
//! processes ─▶ merge estimate ─▶ what same-page merging would save
//! /proc, /sys ─▶ doctor ─▶ what this kernel and machine offer
//! list ─▶ figures, columns, patterns: what there is to choose from
//! scenarios × contenders ─▶ compare ─▶ what each gains and costs, beside the optimum
//! processes ─▶ advise ─▶ what homenode would move and set; does neither
//! processes ─▶ act ─▶ what of that was moved, and what came of it; ledger ─▶ every move
//! processes ─▶ observe ─▶ where their memory is, how hot, over time
//! /proc/schedstat, /proc/PID/sched ─▶ stats ─▶ who waited, slept, was woken and pulled
//! tasks ─▶ sched ─▶ scheduled by the shared wake-up choice, counted by reason
//! ksmd ◀─▶ merge drive ─▶ its counters and speed over time; restore ─▶ its knobs back
//! ```
//!
//! Figures go to standard output, progress and errors to standard error. Exit
//! codes: 0 done; 1 a check that was asked for failed; 2 bad usage or input, with
//! the file, line and key; 3 the system lacks something.
#![forbid(unsafe_code)]

mod act;
mod advise;
mod compare;
mod contender;
mod doctor;
mod ledger;
mod list;
mod measure;
mod merge;
mod observe;
mod record;
mod replay;
mod reproduce;
mod restore;
mod sched;
mod sim;
mod stats;
mod topo;
mod truth;
mod workload;

mod drive;
mod failure;
mod figures;
mod here;
mod homenode;
mod knobs;
mod live;
mod nodes;
mod output;
mod parallel;
mod program;
mod progress;
mod schedule;
mod screen;
mod seen;
mod small;
mod spread;
mod tiers;
mod told;
mod watched;
mod whom;

use clap::{Parser, Subcommand};
use contender::Contenders;
use std::process::ExitCode;

pub use contender::{Candidate, Make, Placement};

/// Keeps tasks and memory at home on machines where not all memory is equally near.
///
/// Measure this machine, record what a program does to memory, and see what a slower
/// memory node beside less DRAM would do to it, under each of the kernel's balancing
/// modes.
///
/// Exit codes: 0 done; 1 a check failed; 2 bad usage or input;
/// 3 the system lacks something.
#[derive(Parser)]
#[command(name = "homenode", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "Example:
  homenode measure -o this.toml
  homenode record mem -o sort.parquet --machine this.toml -- sort --parallel=1 words.txt
  homenode replay sort.parquet --machine this.toml --add-node cxl:half --for 120s")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Act(act::Args),
    Advise(advise::Args),
    Compare(compare::Args),
    Doctor(doctor::Args),
    Ledger(ledger::Args),
    List(list::Args),
    Measure(measure::Args),
    Merge(merge::Args),
    Observe(observe::Args),
    Record(record::Args),
    Replay(replay::Args),
    Reproduce(reproduce::Args),
    Restore(restore::Args),
    Sched(sched::Args),
    Sim(sim::Args),
    Stats(stats::Args),
    Topo(topo::Args),
    Truth(truth::Args),
    /// Hold memory of known content and obey orders: a process of `truth merge`
    #[command(hide = true)]
    Hold,
    #[command(hide = true)]
    Workload(workload::Args),
}

/// Runs the command that this process was started with.
///
/// * `more` – contenders beside those that everybody has, for `--columns`.
pub fn run_with(more: &[Candidate]) -> ExitCode {
    let contenders = Contenders::with(more);
    let done = match Args::parse().command {
        Command::Act(args) => act::run(&args),
        Command::Advise(args) => advise::run(&args, &contenders),
        Command::Compare(args) => compare::run(&args, &contenders),
        Command::Doctor(args) => doctor::run(&args),
        Command::Ledger(args) => ledger::run(&args),
        Command::List(args) => list::run(&args, &contenders),
        Command::Measure(args) => measure::run(&args),
        Command::Merge(args) => merge::run(&args),
        Command::Observe(args) => observe::run(&args),
        Command::Record(args) => record::run(&args),
        Command::Replay(args) => replay::run(&args, &contenders),
        Command::Reproduce(args) => reproduce::run(&args, &contenders),
        Command::Restore(args) => restore::run(&args),
        Command::Sched(args) => sched::run(&args),
        Command::Sim(args) => sim::run(&args, &contenders),
        Command::Stats(args) => stats::run(&args),
        Command::Topo(args) => topo::run(&args),
        Command::Truth(args) => truth::run(&args),
        Command::Hold => homenode_measure::truth::merge::hold(),
        Command::Workload(args) => workload::run(&args),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("homenode: {}", homenode_live::sentence(&*error));
            ExitCode::from(failure::code(&error))
        }
    }
}
