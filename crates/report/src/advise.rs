//! What `homenode advise` says: moves that were not made, what stays and why, knobs, and
//! the constants behind the figures.
//!
//! ```text
//! warnings ─ what is assumed comes first
//! moves    ─ by net, best first, and their sum
//! the rest ─ by verdict
//! knobs    ─ now, then, why, when not, do, undo
//! effect   ─ a simulated table per recording
//! ```
//!
//! Source: specs/advise.md.

use crate::Report;
use crate::caption::wrap;
use homenode_core::policy::order::{Evidence, Reason};
use homenode_core::policy::{Verdict, Why};
use serde::Serialize;
use std::fmt::Write;

/// Processes and directions that the table shows; the rest is one line.
const MOST_MOVES: usize = 30;

/// Everything that is advised: one JSON object.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Advice {
    /// The machine.
    pub machine: String,
    /// The source of heat, `residency` for none.
    pub source: String,
    /// Why that one, and what it disturbs.
    pub source_notes: Vec<String>,
    /// For how long it was looked, in seconds.
    pub looked_seconds: f64,
    /// For how long memory is taken to stay as hot as it is, in seconds: savings and net
    /// are over this time.
    pub horizon_seconds: f64,
    /// What may mislead: assumed constants, events lost.
    pub warnings: Vec<String>,
    /// Moves, best net first.
    pub moves: Vec<AdviceMove>,
    /// Threads that would go to their memory, best net first.
    pub threads: Vec<AdviceThreads>,
    /// What is left where it is or can't be judged, largest first.
    pub rest: Vec<AdviceRest>,
    /// A sentence where nothing would move.
    pub nothing: Option<String>,
    /// Knobs to set otherwise.
    pub knobs: Vec<AdviceKnob>,
    /// Knobs to leave.
    pub left: Vec<AdviceLeft>,
    /// Simulated effect, one report per recording.
    pub effects: Vec<Report>,
    /// Constants that the savings and costs come from.
    pub constants: Vec<AdviceConstant>,
    /// Anything else.
    pub notes: Vec<String>,
}

/// Moves of one process in one direction for one reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AdviceMove {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Node that the pages are on.
    pub from: u16,
    /// Node that they would go to.
    pub to: u16,
    /// The reason's name.
    pub why: String,
    /// Orders.
    pub orders: u64,
    /// Pages, summed over the orders.
    pub pages: u64,
    /// The same in bytes.
    pub bytes: u64,
    /// Accesses a page and second, on average over the pages.
    pub heat: f64,
    /// Time saved within the horizon, in seconds.
    pub saves: f64,
    /// Processor time that moving takes, in seconds.
    pub costs: f64,
}

impl AdviceMove {
    /// What remains within the horizon, in seconds.
    pub fn net(&self) -> f64 {
        self.saves - self.costs
    }
}

/// Threads of one process that would go to a node, where their memory is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AdviceThreads {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// The node.
    pub to: u16,
    /// How often.
    pub orders: u64,
    /// Time that its accesses save within the horizon, in seconds.
    pub saves: f64,
    /// What filling caches anew takes, in seconds.
    pub costs: f64,
}

/// Memory with one verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AdviceRest {
    /// The verdict's name.
    pub verdict: String,
    /// Bytes, in a decision on average.
    pub bytes: u64,
    /// What it means.
    pub text: String,
}

/// A knob to set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AdviceKnob {
    /// Its name.
    pub knob: String,
    /// Its value.
    pub now: String,
    /// The value suggested.
    pub then: String,
    /// Reason.
    pub why: String,
    /// When to leave it.
    pub when_not: String,
    /// Shell lines that do it.
    pub to_do: Vec<String>,
    /// Shell lines that put it back.
    pub to_undo: Vec<String>,
}

/// A knob to leave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AdviceLeft {
    /// Its name.
    pub knob: String,
    /// Its value.
    pub now: String,
    /// Why.
    pub why: String,
}

/// A constant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AdviceConstant {
    /// Such as `latency, node 0 to node 1`.
    pub name: String,
    /// Such as `250 ns`.
    pub value: String,
    /// `measured`, `quoted` or `assumed`.
    pub origin: String,
    /// How it was found.
    pub method: String,
}

/// What a verdict other than a move means; `None` for a move.
pub fn verdict_text(verdict: Verdict) -> Option<(String, &'static str)> {
    let why = match verdict {
        Verdict::Move { .. } => return None,
        Verdict::Unknown { lacks } => {
            let text = match lacks {
                Evidence::Heat => "unknown: nothing told how often it is accessed",
                Evidence::Cpu => "unknown: nothing told which node's CPUs access it",
                Evidence::Place => "unknown so far: on which node it is was to be looked up",
                Evidence::Marks => "unknown: how much is free on the fast node was not told",
            };
            return Some((format!("unknown_{}", lacks.name()), text));
        }
        Verdict::Stay { why } => why,
    };
    let text = match why {
        Why::SlowStart => "its process has not run for longer than the start delay",
        Why::Home => "it is where it should be",
        Why::NotWorthIt => "moving would cost more than it saves",
        Why::NoRoom => "the fast node is full of memory that is no colder",
        Why::OverBudget => "others were worth more of the budget",
        Why::OnItsWay => "an order for it was on its way",
        Why::Backoff => "it was busy, and is tried again later",
        Why::GivenUp => "it was busy too often",
        Why::Forbidden => "it must not be moved",
        Why::Stale => "what was told of it is too old",
        Why::Unsettled => "its threads have not been on that node for long",
        Why::ThreadsCome => "its threads go to its memory instead",
        Why::Absent => "it is not in memory",
    };
    Some((why.name().to_owned(), text))
}

/// What a reason means.
fn reason_text(name: &str) -> &'static str {
    let all = [
        (Reason::Hot, "in use on a slow node"),
        (Reason::MakeRoom, "colder, makes room"),
        (Reason::SlowUnderLoad, "in use on a node that load makes slow"),
        (Reason::NearItsCpus, "used by that node's CPUs"),
    ];
    all.into_iter().find(|(r, _)| r.name() == name).map_or("", |(_, text)| text)
}

impl Advice {
    /// Sorts, best first.
    pub fn sort(&mut self) {
        let key = |m: &AdviceMove| (m.pid, m.from, m.to);
        self.moves.sort_by(|a, b| b.net().total_cmp(&a.net()).then(key(a).cmp(&key(b))));
        let net = |t: &AdviceThreads| t.saves - t.costs;
        self.threads.sort_by(|a, b| net(b).total_cmp(&net(a)).then(a.pid.cmp(&b.pid)));
        self.rest.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.verdict.cmp(&b.verdict)));
    }

    /// One JSON object on one line, with the sum of the moves.
    pub fn to_json(&self) -> String {
        let mut all = serde_json::to_value(self).expect("plain data with text keys");
        let sum = self.sum();
        all["sum"] = serde_json::json!({
            "orders": sum.orders, "pages": sum.pages, "bytes": sum.bytes,
            "saves": sum.saves, "costs": sum.costs, "net": sum.net(),
            "saves_a_second": self.a_second(sum.saves),
        });
        all.to_string()
    }

    fn sum(&self) -> AdviceMove {
        let mut sum = AdviceMove::default();
        for m in &self.moves {
            sum.orders += m.orders;
            sum.pages += m.pages;
            sum.bytes += m.bytes;
            sum.saves += m.saves;
            sum.costs += m.costs;
        }
        sum
    }
    fn a_second(&self, saves: f64) -> f64 {
        if self.horizon_seconds > 0.0 { saves / self.horizon_seconds } else { 0.0 }
    }

    /// The advice for people, in lines of at most `width` columns where that can be.
    pub fn to_text(&self, width: usize, glyphs: crate::Glyphs) -> String {
        let narrow = width.min(100);
        let mut out = String::new();
        fold(&mut out, 0, &format!("machine: {}", self.machine), narrow);
        let source = format!("looked for {:.0} s; heat from {}", self.looked_seconds, self.source);
        fold(&mut out, 0, &source, narrow);
        for note in &self.source_notes {
            fold(&mut out, 2, note, narrow);
        }
        for warning in &self.warnings {
            fold(&mut out, 0, &format!("WARNING: {warning}"), narrow);
        }
        self.moves_text(&mut out, narrow);
        self.threads_text(&mut out, narrow);
        self.rest_text(&mut out);
        self.knobs_text(&mut out, narrow);
        for effect in &self.effects {
            out.push_str("\nsimulated effect\n");
            out.push_str(&effect.to_text(width, glyphs));
        }
        if !self.constants.is_empty() {
            out.push_str("\nconstants\n");
            for c in &self.constants {
                let line = format!("{}: {}, {}: {}", c.name, c.value, c.origin, c.method);
                fold(&mut out, 2, &line, narrow);
            }
        }
        if !self.notes.is_empty() {
            out.push('\n');
        }
        for note in &self.notes {
            fold(&mut out, 0, &format!("note: {note}"), narrow);
        }
        out
    }

    fn moves_text(&self, out: &mut String, width: usize) {
        out.push_str("\nwhat homenode would move (it was not moved)\n");
        if let Some(nothing) = &self.nothing {
            fold(out, 2, &format!("nothing: {nothing}"), width);
        }
        if self.moves.is_empty() {
            return;
        }
        let horizon = format!("in {:.0} s", self.horizon_seconds);
        let _ = writeln!(
            out,
            "  {:>7} {:<16} {:>7} {:>10} {:>8} {:>9} {:>9} {:>9} {:>9}  why",
            "PID", "name", "nodes", "size", "heat/s", "saves/s", horizon, "costs", "net"
        );
        let row = |out: &mut String, head: String, m: &AdviceMove, heat: String, why: &str| {
            let _ = writeln!(
                out,
                "{head} {:>10} {heat:>8} {:>9} {:>9} {:>9} {:>9}  {why}",
                size(m.bytes),
                time(self.a_second(m.saves)),
                time(m.saves),
                time(m.costs),
                time(m.net()),
            );
        };
        for m in self.moves.iter().take(MOST_MOVES) {
            let name: String = m.name.chars().map(plain).take(16).collect();
            let nodes = format!("{}>{}", m.from, m.to);
            let head = format!("  {:>7} {name:<16} {nodes:>7}", m.pid);
            row(out, head, m, format!("{:.1}", m.heat), reason_text(&m.why));
        }
        if self.moves.len() > MOST_MOVES {
            let _ = writeln!(out, "  and {} more, in --json", self.moves.len() - MOST_MOVES);
        }
        let head = format!("  {:>7} {:<16} {:>7}", "", "sum", "");
        row(out, head, &self.sum(), String::new(), "all of it");
    }

    fn threads_text(&self, out: &mut String, width: usize) {
        if !self.threads.is_empty() {
            out.push_str("\nwhose threads homenode would bring to their memory (they were not)\n");
        }
        for t in self.threads.iter().take(MOST_MOVES) {
            let name: String = t.name.chars().map(plain).take(16).collect();
            let line = format!(
                "{} {name}: to node {}, saves {} in {:.0} s, costs {}",
                t.pid,
                t.to,
                time(t.saves),
                self.horizon_seconds,
                time(t.costs)
            );
            fold(out, 2, &line, width);
        }
        if self.threads.len() > MOST_MOVES {
            let _ = writeln!(out, "  and {} more, in --json", self.threads.len() - MOST_MOVES);
        }
    }

    fn rest_text(&self, out: &mut String) {
        if self.rest.is_empty() {
            return;
        }
        out.push_str("\nwhat it would leave where it is, in a decision on average\n");
        for r in &self.rest {
            let _ = writeln!(out, "  {:>10}  {:<14} {}", size(r.bytes), r.verdict, r.text);
        }
    }

    fn knobs_text(&self, out: &mut String, width: usize) {
        if !self.knobs.is_empty() {
            out.push_str(
                "\nknobs of the kernel that one would set otherwise (they were not set)\n",
            );
        }
        for k in &self.knobs {
            let _ = writeln!(out, "  {}: {} -> {}", k.knob, k.now, k.then);
            fold(out, 4, &format!("why: {}", k.why), width);
            fold(out, 4, &format!("not if: {}", k.when_not), width);
            for (label, lines) in [("do", &k.to_do), ("undo", &k.to_undo)] {
                for line in lines {
                    let _ = writeln!(out, "    {label:<5} {line}");
                }
            }
        }
        if !self.left.is_empty() {
            out.push_str("\nknobs of the kernel that are left\n");
        }
        for l in &self.left {
            fold(out, 2, &format!("{} = {}: {}", l.knob, l.now, l.why), width);
        }
    }
}

/// A paragraph, folded between words; what is folded stands two columns further in.
fn fold(out: &mut String, indent: usize, text: &str, width: usize) {
    wrap(out, indent, text, width, plain);
}

/// A name from outside that does nothing to a terminal.
pub(crate) fn plain(c: char) -> char {
    if c.is_control() { '?' } else { c }
}

/// A size in binary units.
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{value} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// A time of three digits or so; negative where something costs more than it saves.
pub(crate) fn time(seconds: f64) -> String {
    let positive = seconds.abs();
    if positive >= 1.0 {
        format!("{seconds:.2} s")
    } else if positive >= 1e-3 {
        format!("{:.1} ms", seconds * 1e3)
    } else if positive > 0.0 {
        format!("{:.1} us", seconds * 1e6)
    } else {
        "0".to_owned()
    }
}
