//! `homenode ledger`: every move that was written down, by whomever it was made.

use crate::output;
use anyhow::Result;
use homenode_live::ledger;
use homenode_live::place::Place;
use homenode_report::{LedgerEntry, LedgerTable};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Show what was moved: by homenode, and by the kernel meanwhile.
///
/// `homenode act` writes each of its moves down: when, which process, from which node to
/// which, bytes tried and moved, what failed and why. What the kernel moved at the same time
/// is there too, as its counters tell it: by the pair of nodes where they tell it, and
/// without a process. Together it is what `pgmigrate_success` of /proc/vmstat grew by while
/// it was acted. The lines are in /var/lib/homenode, or in $XDG_STATE_HOME/homenode of who
/// is not root, and of the last 144 MiB.
///
/// Exit codes: 0 done, also where nothing was written yet; 2 bad usage; 3 the ledger can't
/// be read.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode ledger
  homenode ledger --since 1h --pid 4711
  homenode ledger --json | tail -n 20")]
pub(crate) struct Args {
    /// Only rows of this process
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Only rows that are no older
    #[arg(long, value_name = "TIME", value_parser = crate::act::span)]
    since: Option<homenode_core::units::Picos>,
    /// Print the rows themselves, a JSON object a line
    #[arg(long)]
    json: bool,
    /// A folder in place of / (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    root: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<u8> {
    let place = args.root.as_deref().map_or_else(Place::here, Place::at);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let now = u64::try_from(now).unwrap_or(u64::MAX);
    let oldest = args.since.map_or(0, |t| now.saturating_sub(t.as_ms()));
    let (mut table, mut broken, mut trouble) = (LedgerTable::default(), 0u64, None);
    let any = ledger::read(&place, &mut |line| {
        let Some(entry) = LedgerEntry::from_json(line) else {
            broken += 1;
            return;
        };
        if entry.unix_ms < oldest || args.pid.is_some_and(|pid| entry.pid != Some(pid)) {
            return;
        }
        match args.json {
            true if trouble.is_none() => trouble = output::print(line).err(),
            true => {}
            false => table.add(&entry),
        }
    })?;
    if broken > 0 {
        eprintln!(
            "homenode: {} could not be read, as after a crash or a full disk",
            homenode_core::units::count(broken, "line", "lines")
        );
    }
    if let Some(e) = trouble {
        return Err(e);
    }
    if !args.json {
        let text = match (any, table.is_empty()) {
            (false, _) => format!(
                "nothing was moved yet: there is no ledger in {}\n",
                place.state_folder().display()
            ),
            (true, true) => "no row is as was asked for\n".to_owned(),
            (true, false) => table.to_text(),
        };
        output::print(&text)?;
    }
    Ok(0)
}
