//! What driving would set, and why; nothing is changed.

use super::{Args, show};
use anyhow::Result;
use homenode_core::ksm::files::File;
use homenode_core::ksm::pace::{ADVISOR_CPU_LEAST, Expected, Goal, Pace, expect};
use homenode_core::ksm::plan::{Unmerging, crossing, text_of};
use homenode_core::units::count;
use homenode_live::ksm::{Place, Seen, Watch, look, memory};
use homenode_live::merge::{self, Estimate, Options, Targets};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// Pages up to which reading them for an estimate is cheap: 1 GiB, about a second.
const CHEAP_PAGES: u64 = 1 << 18;

/// All that the advice is made of.
struct Facts {
    seen: Seen,
    goal: Goal,
    orders: Vec<(File, Option<u64>, u64)>,
    cost_ns: u64,
    measured: bool,
    users: BTreeSet<u32>,
    /// What reading the memory of the named processes gave.
    estimate: Option<Result<Estimate, String>>,
    expected: Option<Expected>,
    unmerging: Unmerging,
    across: bool,
    nodes: usize,
}

pub(super) fn run(args: &Args, place: &Place, goal: Goal) -> Result<u8> {
    let mut watch = Watch::new(place, args.pid.clone())?;
    let mut last = None;
    let length = args.length.unwrap_or(args.interval);
    look(place, &mut watch, args.interval, Some(length), &mut |seen| {
        last = Some(seen.clone());
        true
    })?;
    let Some(seen) = last else { return Ok(0) };
    let facts = facts(args, place, goal, seen)?;
    let mut out = super::sink(args)?;
    let text = if args.json { facts.to_json().to_string() } else { facts.to_text() };
    match writeln!(out, "{}", text.trim_end()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => return Err(e.into()),
        _ => {}
    }
    Ok(0)
}

fn facts(args: &Args, place: &Place, goal: Goal, seen: Seen) -> Result<Facts> {
    let mut pace = Pace::new(goal, &seen.reading);
    let orders = pace
        .start(&seen.reading)
        .into_iter()
        .map(|o| (o.file, seen.shown.get(&o.file).copied(), o.value))
        .collect();
    let (cost_ns, measured) = pace.cost();
    let pages = seen.scan.anon_pages();
    let estimate = (!args.pid.is_empty()).then(|| {
        if pages > CHEAP_PAGES {
            let words: Vec<_> = args.pid.iter().map(|p| format!("--pid {p}")).collect();
            return Err(format!(
                "{} MiB are too much to be read by the way: homenode merge estimate {}",
                pages >> 8,
                words.join(" ")
            ));
        }
        let targets = Targets::Pids(args.pid.clone());
        merge::estimate(&targets, &Options::default(), &mut |_| {}).map_err(|e| e.to_string())
    });
    let expected = estimate
        .as_ref()
        .and_then(|e| e.as_ref().ok())
        .map(|e| expect(e.pages_scanned, e.across.saved_bytes, cost_ns, &goal));
    let (available, total) = memory(place)?;
    let now = seen.shown.get(&File::MergeAcrossNodes).copied().unwrap_or(1) == 1;
    Ok(Facts {
        users: crossing(&seen.scan.users(), None),
        unmerging: Unmerging::of(&seen.shown, available, total),
        across: args.across_nodes.map_or(!now, |v| v == 1),
        nodes: homenode_live::sysfs::read_topology(Path::new("/")).map_or(1, |t| t.nodes.len()),
        seen,
        goal,
        orders,
        cost_ns,
        measured,
        estimate,
        expected,
    })
}

impl Facts {
    /// CPU time and time to merge everything anew after a switch.
    fn again(&self) -> Expected {
        expect(self.seen.reading.items(), self.unmerging.back_bytes, self.cost_ns, &self.goal)
    }

    /// One sentence.
    fn verdict(&self) -> String {
        let (r, mib) = (&self.seen.reading, |b: u64| show::mib(b as i64));
        if !self.users.is_empty() {
            return "Don't: processes of different users would meet, and each could find out by timing which pages the others have.".to_owned();
        }
        if let Some(e) = &self.expected {
            let text = format!(
                "{} MiB saved by second of ksmd's CPU time, for {:.1} s of it, {:.0} s at {} % of a CPU",
                mib(e.benefit),
                e.cpu_ns as f64 / 1e9,
                e.wall_ns as f64 / 1e9,
                self.goal.cpu_percent
            );
            let registered = self.seen.scan.processes.iter().all(|p| p.stat.is_registered());
            let how = match registered {
                true => " They are registered already: --act --registered.",
                false => " They would have to be launched by --act, or register themselves.",
            };
            return if e.pays {
                format!("It pays: {text}.{how}")
            } else {
                format!(
                    "It does not pay: {text}; {} are asked for (--worth).",
                    mib(self.goal.least_benefit)
                )
            };
        }
        if r.items() == 0 && self.seen.scan.processes.is_empty() {
            return "Nothing is registered, so there is nothing to merge: launch a program by --act, or look for what would be saved by `homenode merge estimate --all`.".to_owned();
        }
        if r.items() == 0 {
            return "Processes are registered, and ksmd has not looked at them yet: --act --registered would find out.".to_owned();
        }
        if r.full_scans < 3 && r.saved_bytes() == 0 {
            return "Not known yet: equal pages merge in ksmd's second pass, and it has not been through that.".to_owned();
        }
        let kept = r.items() * 64;
        if r.profit() < 0 {
            return format!(
                "It does not pay: {} MiB are saved, and the kernel keeps {} MiB to know which pages are equal.",
                mib(r.saved_bytes()),
                mib(kept)
            );
        }
        match self.seen.interval.benefit() {
            Some(b) if b >= self.goal.least_benefit as i64 => {
                "It pays, and there is more to be had: ksmd may have its budget.".to_owned()
            }
            Some(_) => "It holds what it has saved; nothing new came of the last CPU time, so ksmd can go slower.".to_owned(),
            None => format!(
                "{} MiB are saved, of {} MiB that are known; ksmd uses no CPU time now.",
                mib(r.saved_bytes()),
                mib(r.items() * 4096)
            ),
        }
    }

    fn switch_text(&self) -> String {
        let (u, again) = (&self.unmerging, self.again());
        let mib = |b: u64| show::mib(b as i64);
        let mut text = format!(
            "to {}: {} MiB come back, {} MiB are available, {} MiB of them reserve: {}",
            u8::from(self.across),
            mib(u.back_bytes),
            mib(u.available_bytes),
            mib(u.reserve_bytes),
            if u.fits() { "possible" } else { "refused" }
        );
        if u.back_bytes > 0 {
            let _ = write!(
                text,
                "; merging again takes {:.1} s of CPU time, {:.0} s at the budget",
                again.cpu_ns as f64 / 1e9,
                again.wall_ns as f64 / 1e9
            );
        }
        if self.nodes < 2 {
            text += "; with one node it makes no difference";
        } else if let Some(Ok(e)) = &self.estimate {
            let _ = write!(
                text,
                "; across nodes these processes save {} MiB, per node {} MiB",
                mib(e.across.saved_bytes),
                mib(e.per_node.saved_bytes)
            );
        }
        text
    }

    fn to_text(&self) -> String {
        let mut out = String::new();
        let r = &self.seen.reading;
        let mib = |b: u64| show::mib(b as i64);
        let scan = &self.seen.scan;
        let users: Vec<String> = scan.users().keys().map(u32::to_string).collect();
        let mut line = |name: &str, text: String| {
            let _ = writeln!(out, "{name:<20}{text}");
        };
        let whose =
            if users.is_empty() { String::new() } else { format!(" of user {}", users.join(", ")) };
        let unseen = if scan.unseen > 0 {
            format!("; {} more can't be asked without root", scan.unseen)
        } else {
            String::new()
        };
        line(
            "processes",
            format!("{}{whose}, {} MiB{unseen}", scan.processes.len(), scan.anon_pages() >> 8),
        );
        line(
            "merged now",
            format!(
                "{} MiB saved by {}, profit {} MiB; known are {} MiB",
                mib(r.saved_bytes()),
                count(r.pages_shared, "page", "pages"),
                show::mib(r.profit()),
                mib(r.items() * 4096)
            ),
        );
        let how = if self.measured { "measured since boot" } else { "taken until it is measured" };
        line(
            "a visit costs",
            format!("{:.2} us of ksmd's CPU time ({how})", self.cost_ns as f64 / 1e3),
        );
        match &self.estimate {
            Some(Ok(e)) => line(
                "to be had",
                format!(
                    "{} MiB of {} MiB (read now)",
                    mib(e.across.saved_bytes),
                    mib(e.pages_scanned * 4096)
                ),
            ),
            Some(Err(why)) => line("to be had", format!("not known: {why}")),
            None => {}
        }
        for (file, now, value) in &self.orders {
            let text = text_of(*file, *value);
            match now {
                None => line("would set", format!("{}: this kernel does not have it", file.name())),
                Some(now) if now == value => {
                    line("would leave", format!("{} at {text}", file.name()))
                }
                Some(now) => line(
                    "would set",
                    format!(
                        "{} from {} to {text}{}",
                        file.name(),
                        text_of(*file, *now),
                        self.because(*file)
                    ),
                ),
            }
        }
        if self.goal.advisor && self.goal.cpu_percent < ADVISOR_CPU_LEAST {
            line(
                "refused",
                format!("the advisor lets ksmd use {ADVISOR_CPU_LEAST} % of a CPU at least"),
            );
        }
        line("merge_across_nodes", self.switch_text());
        let _ = write!(out, "\n{}", self.verdict());
        out
    }

    fn because(&self, file: File) -> String {
        match file {
            File::PagesToScan => format!(
                ": {} % of a CPU at this cost, a sixteenth of it once nothing new comes",
                self.goal.cpu_percent
            ),
            File::Run => ": ksmd works".to_owned(),
            File::AdvisorTargetScanTime => {
                ": seconds of a pass, doubled when nothing new comes".to_owned()
            }
            _ => String::new(),
        }
    }

    fn to_json(&self) -> Value {
        let (r, u) = (&self.seen.reading, &self.unmerging);
        let expected = |e: &Expected| {
            json!({
                "cpu_seconds": e.cpu_ns as f64 / 1e9,
                "seconds": e.wall_ns as f64 / 1e9,
                "saved_bytes_per_cpu_second": e.benefit,
                "pays": e.pays,
            })
        };
        json!({
            "advice": self.verdict(),
            "would_set": self.orders.iter().filter(|(_, now, v)| *now != Some(*v)).map(|(f, now, v)| json!({
                "knob": f.name(), "now": now.map(|n| text_of(*f, n)), "value": text_of(*f, *v)
            })).collect::<Vec<_>>(),
            "visit_cpu_ns": self.cost_ns,
            "visit_cpu_measured": self.measured,
            "saved_bytes": r.saved_bytes(),
            "general_profit": r.profit(),
            "known_bytes": r.items() * 4096,
            "registered_bytes": self.seen.scan.anon_pages() * 4096,
            "processes": self.seen.scan.processes.iter().map(show::process_json).collect::<Vec<_>>(),
            "processes_unseen": self.seen.scan.unseen,
            "users_that_would_meet": self.users,
            "estimate": match &self.estimate {
                Some(Ok(e)) => json!({
                    "pages_scanned": e.pages_scanned,
                    "saved_bytes": e.across.saved_bytes,
                    "per_node_saved_bytes": e.per_node.saved_bytes,
                }),
                Some(Err(why)) => json!({ "not_known": why }),
                None => Value::Null,
            },
            "expected": self.expected.as_ref().map(expected),
            "switching_merge_across_nodes": {
                "to": u8::from(self.across),
                "back_bytes": u.back_bytes,
                "available_bytes": u.available_bytes,
                "reserve_bytes": u.reserve_bytes,
                "possible": u.fits(),
                "merging_again": expected(&self.again()),
            },
        })
    }
}
