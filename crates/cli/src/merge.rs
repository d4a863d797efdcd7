//! `homenode merge`: merging equal pages near their users.

mod costs;

mod estimate;

mod drive;

use anyhow::Result;
use clap::Subcommand;

/// Merge equal pages near their users.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Estimate(estimate::Args),
    Drive(drive::Args),
}

pub(crate) fn run(args: &Args) -> Result<u8> {
    match &args.command {
        Command::Estimate(args) => estimate::run(args),
        Command::Drive(args) => drive::run(args),
    }
}
