//! Lines over time.

use homenode_core::ksm::files::File;
use homenode_core::ksm::pace::{Pace, Reading};
use homenode_core::ksm::plan::{Unmerging, text_of};
use homenode_core::units::count;
use homenode_live::registered::{Registered, Scan};
use homenode_merge::ksm::{Restored, Seen};
use serde_json::{Value, json};
use std::io::{ErrorKind, Write};

/// Processes in a table at most; JSON has all.
const MOST_PROCESSES: usize = 10;
/// Lines between two headings.
const LINES: u32 = 20;

/// Prints what is seen.
pub(super) struct Shower {
    out: Box<dyn Write>,
    json: bool,
    lines: u32,
    /// Whether somebody still reads.
    open: bool,
    last: Option<Seen>,
    most_saved: u64,
}

/// Bytes as MiB with one decimal, also below zero.
pub(super) fn mib(bytes: i64) -> String {
    let text = format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    if text == "-0.0" { "0.0".to_owned() } else { text }
}

pub(super) fn switching(across: bool, cost: &Unmerging) -> String {
    format!(
        "switching merge_across_nodes to {} unmerges everything: {} MiB come back, of {} MiB available (reserve {} MiB), and have to be merged again",
        u8::from(across),
        mib(cost.back_bytes as i64),
        mib(cost.available_bytes as i64),
        mib(cost.reserve_bytes as i64)
    )
}

impl Shower {
    pub(super) fn new(out: Box<dyn Write>, json: bool) -> Self {
        Self { out, json, lines: 0, open: true, last: None, most_saved: 0 }
    }

    /// A reader that has gone is no error; a full disk ends the lines, not the work.
    fn print(&mut self, line: &str) {
        if !self.open {
            return;
        }
        if let Err(e) = writeln!(self.out, "{line}").and_then(|()| self.out.flush()) {
            self.open = false;
            if e.kind() != ErrorKind::BrokenPipe {
                eprintln!("homenode: no more lines: {e}");
            }
        }
    }

    /// A sentence.
    pub(super) fn note(&mut self, text: &str) {
        if self.json {
            self.print(&json!({ "note": text }).to_string());
        } else {
            self.print(&format!("homenode: {text}"));
        }
    }

    /// A line; whether somebody still reads.
    pub(super) fn seen(&mut self, seen: &Seen, pace: Option<&Pace>) -> bool {
        self.most_saved = self.most_saved.max(seen.reading.saved_bytes());
        if self.json {
            self.print(&line_json(seen, pace).to_string());
        } else {
            if self.lines % LINES == 0 {
                self.print(
                    "  time [s] run   shared  sharing unshared volatile     zero saved [MiB] profit [MiB]  visits/s ksmd [%] MiB/CPU s pages_to_scan",
                );
            }
            self.lines += 1;
            self.print(&line_text(seen));
        }
        self.last = Some(seen.clone());
        self.open
    }

    /// Processes under a table.
    pub(super) fn end(&mut self, scan: &Scan) {
        if self.json {
            return;
        }
        let mut by_merged: Vec<&Registered> = scan.processes.iter().collect();
        by_merged.sort_by_key(|p| (std::cmp::Reverse(p.stat.merging_pages), p.pid));
        if by_merged.is_empty() {
            self.print("no process is registered for merging");
        } else {
            self.print("\n       PID  user  merging     zero    items profit [MiB] name");
        }
        for p in by_merged.iter().take(MOST_PROCESSES) {
            let Registered { pid, uid, name, stat, .. } = p;
            let zero = stat.zero_pages.map_or_else(|| "-".to_owned(), |n| n.to_string());
            let profit = stat.profit.map_or_else(|| "-".to_owned(), mib);
            self.print(&format!(
                "{pid:>10} {uid:>5} {:>8} {zero:>8} {:>8} {profit:>12} {name}",
                stat.merging_pages, stat.rmap_items
            ));
        }
        if by_merged.len() > MOST_PROCESSES {
            self.print(&format!("and {} more (--json has all)", by_merged.len() - MOST_PROCESSES));
        }
        if scan.unseen > 0 {
            let unseen = count(scan.unseen as u64, "process", "processes");
            self.print(&format!("{unseen} can't be asked without root"));
        }
    }

    /// What all of it came to.
    pub(super) fn sum_up(&mut self) {
        let Some(last) = self.last.clone() else { return };
        let most = mib(self.most_saved as i64);
        let cpu = last.whole.cpu_ns as f64 / 1e9;
        let permille = last.whole.cpu_permille();
        self.note(&format!(
            "{:.1} s: {most} MiB saved at most, for {cpu:.2} s of ksmd's CPU time ({}.{} % of one CPU), {} visited",
            last.whole.wall_ns as f64 / 1e9,
            permille / 10,
            permille % 10,
            count(last.whole.visits, "page", "pages")
        ));
    }

    /// How knobs were put back.
    pub(super) fn restored(&mut self, done: &Restored, text: &str) {
        if self.json {
            let value = crate::restore::to_json(done);
            return self.print(&json!({ "end": value }).to_string());
        }
        self.note(&format!("put back: {text}"));
        for line in done.sentences() {
            self.note(&line);
        }
    }
}

fn line_text(seen: &Seen) -> String {
    let (r, i) = (&seen.reading, &seen.interval);
    let first = i.wall_ns == 0;
    let dash = || "-".to_owned();
    let rate = |known: bool, text: String| if first || !known { dash() } else { text };
    let permille = i.cpu_permille();
    let run = seen.shown.get(&File::Run).copied().unwrap_or(0);
    let pages = match seen.shown.get(&File::AdvisorMode) {
        Some(1) => "by advisor".to_owned(),
        _ => seen.shown.get(&File::PagesToScan).copied().unwrap_or(0).to_string(),
    };
    let order = seen.order.as_ref().map_or_else(String::new, |(order, done)| {
        let word = if *done { "->" } else { "not set to" };
        format!(
            " {word} {} ({})",
            text_of(order.file, order.value),
            order.why.name().replace('_', " ")
        )
    });
    let Reading { pages_shared, pages_sharing, pages_unshared, pages_volatile, .. } = *r;
    let visits = rate(true, i.visits_per_second().to_string());
    let cpu = rate(seen.cpu_known, format!("{}.{}", permille / 10, permille % 10));
    let benefit = i.benefit().map_or_else(dash, mib);
    format!(
        "{:>10.1} {run:>3} {pages_shared:>8} {pages_sharing:>8} {pages_unshared:>8} {pages_volatile:>8} {:>8} {:>11} {:>12} {visits:>9} {cpu:>8} {benefit:>9} {pages:>13}{order}",
        r.at_ns as f64 / 1e9,
        r.ksm_zero_pages,
        mib(r.saved_bytes() as i64),
        mib(r.profit()),
    )
}

fn line_json(seen: &Seen, pace: Option<&Pace>) -> Value {
    let (r, i) = (&seen.reading, &seen.interval);
    let knob = |f| seen.shown.get(&f).copied();
    let known = |v: Value| if seen.cpu_known { v } else { Value::Null };
    json!({
        "seconds": r.at_ns as f64 / 1e9,
        "run": knob(File::Run),
        "merge_across_nodes": knob(File::MergeAcrossNodes),
        "pages_to_scan": knob(File::PagesToScan),
        "sleep_millisecs": knob(File::SleepMillisecs),
        "advisor_mode": knob(File::AdvisorMode).map(|v| text_of(File::AdvisorMode, v)),
        "pages_shared": r.pages_shared,
        "pages_sharing": r.pages_sharing,
        "pages_unshared": r.pages_unshared,
        "pages_volatile": r.pages_volatile,
        "ksm_zero_pages": knob(File::KsmZeroPages),
        "full_scans": r.full_scans,
        "saved_bytes": r.saved_bytes(),
        "general_profit": r.profit(),
        "general_profit_computed": r.general_profit.is_none(),
        "visits_per_second": i.visits_per_second(),
        "ksmd_cpu_seconds": known(json!(r.ksmd_cpu_ns as f64 / 1e9)),
        "ksmd_cpu_percent": known(json!(i.cpu_permille() as f64 / 10.0)),
        "newly_saved_bytes_per_cpu_second": known(json!(i.benefit())),
        "visit_cpu_ns": pace.map(|p| p.cost().0),
        "order": seen.order.as_ref().map(|(order, done)| json!({
            "knob": order.file.name(), "value": order.value, "why": order.why.name(), "done": done
        })),
        "processes": seen.scan.processes.iter().map(process_json).collect::<Vec<_>>(),
        "processes_unseen": seen.scan.unseen,
    })
}

pub(super) fn process_json(p: &Registered) -> Value {
    json!({
        "pid": p.pid,
        "user": p.uid,
        "name": p.name,
        "ksm_merging_pages": p.stat.merging_pages,
        "ksm_zero_pages": p.stat.zero_pages,
        "ksm_rmap_items": p.stat.rmap_items,
        "ksm_process_profit": p.stat.profit,
        "ksm_merge_any": p.stat.merge_any,
        "ksm_mergeable": p.stat.mergeable,
    })
}
