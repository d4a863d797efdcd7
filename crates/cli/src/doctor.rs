//! `homenode doctor`: what this kernel and machine offer. Changes nothing.

mod json;
mod text;

use crate::output;
use anyhow::Result;
use homenode_core::policy::choice::{Choice, choose, lacks};
use homenode_core::policy::facts::{Facts, Lack};
use homenode_core::policy::seen::Source;
use homenode_live::probe::{FilesOnly, Probe, ThisKernel, look};
use std::path::PathBuf;

/// What this kernel and machine offer for finding hot memory and placing it.
///
/// Nodes and tiers, each source of heat (DAMON, hint faults, samples of a PMU) with what it
/// could decide here, what it lacks and how to get that, what it disturbs while it is in use,
/// and which one homenode would use; ways to look at pages, same-page merging, demotion,
/// weighted interleaving, and what this process may do. Where there is no source of heat it
/// says 'residency only'. Nothing is written, loaded or switched: events are opened
/// switched off and closed again. Works for every user; what could not be seen is listed.
///
/// Exit codes: 0 it could look; 2 bad usage.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode doctor
  homenode doctor --json | jq .choice")]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// A folder with another machine's proc and sys, in place of /; calls are then not made
    #[arg(long, value_name = "DIR", hide = true)]
    root: Option<PathBuf>,
}

/// What was found, and what follows from it.
struct Findings {
    probe: Probe,
    facts: Facts,
    choice: Choice,
}

impl Findings {
    fn of(probe: Probe) -> Self {
        let facts = probe.facts();
        Self { choice: choose(&facts), facts, probe }
    }
    /// What is missing for each source of heat.
    fn lacks(&self, source: Source) -> Vec<Lack> {
        lacks(source, &self.facts)
    }
    /// What looking at the scheduler lacks here, with what to do; nothing where all is there or
    /// was not to be seen.
    fn stats_lack(&self) -> Vec<(&'static str, &'static str)> {
        use homenode_core::policy::facts::Known;
        let h = &self.facts.hints;
        let needs = [
            (h.btf, "the kernel's own BTF", "boot a kernel with CONFIG_DEBUG_INFO_BTF=y"),
            (h.bpf, "BPF", "boot a kernel with CONFIG_BPF_SYSCALL=y"),
            (
                h.may,
                "the right to load BPF programs",
                "run it as root, or with CAP_BPF and CAP_PERFMON",
            ),
            (
                Known::from_bool(self.probe.rights.sees_kthreads),
                "the machine's own PID namespace",
                "run it on the host",
            ),
        ];
        needs.into_iter().filter(|n| n.0 == Known::No).map(|(_, what, how)| (what, how)).collect()
    }
    /// What else people should know: a sentence, and what to do.
    fn advice(&self) -> Vec<(String, &'static str)> {
        use homenode_core::policy::facts::Known;
        let p = &self.probe;
        let mut out = Vec::new();
        if let Err(why) = &p.topology {
            out.push((
                format!("nodes and CPUs can't be read ({why}), so this counts as one node"),
                "mount /proc and /sys as the kernel shows them",
            ));
        }
        let mut say = |is_so: bool, what: &str, how| {
            out.extend(is_so.then(|| (what.to_owned(), how)));
        };
        say(
            p.rights.may_look_into_others() != Known::Yes,
            "processes of other users can't be looked into",
            "run it as root or with CAP_SYS_PTRACE",
        );
        say(
            !p.rights.sees_kthreads,
            "kernel threads are not seen: this is a PID namespace of its own, so other \
             processes may be hidden",
            "run it on the host, or the container with the host's PID namespace (--pid=host)",
        );
        say(
            p.hints.built == Known::Yes && p.hints.tracefs.is_none(),
            "tracefs is not to be seen: tracepoints of migration can't be listed",
            "as root: mount -t tracefs tracefs /sys/kernel/tracing",
        );
        say(
            p.config.from.is_none(),
            "the kernel's configuration is not to be found",
            "install it as /boot/config-RELEASE, or build the kernel with CONFIG_IKCONFIG_PROC",
        );
        say(
            p.pages.pagemap_scan.is_some_and(|r| r.is_err()),
            "PAGEMAP_SCAN is not answered: residency is found through numa_maps and \
             move_pages, which takes longer",
            "boot Linux 6.7 or newer",
        );
        say(
            p.facts().slow_nodes > 0 && p.demotion_enabled == Some(false),
            "there is a slow node, and the kernel doesn't demote to it",
            "echo 1 > /sys/kernel/mm/numa/demotion_enabled",
        );
        say(
            p.ksm.run.is_none(),
            "there is no same-page merging",
            "boot a kernel with CONFIG_KSM=y",
        );
        out
    }
}

pub(crate) fn run(args: &Args) -> Result<u8> {
    let probe = match &args.root {
        Some(root) => look(root, &FilesOnly),
        None => look(std::path::Path::new("/"), &ThisKernel),
    };
    let found = Findings::of(probe);
    output::print(&if args.json { json::json(&found) } else { text::text(&found) })?;
    Ok(0)
}
