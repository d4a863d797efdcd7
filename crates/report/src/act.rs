//! What `homenode act` shows: per process what moved, what it was expected to save, and what
//! came of it.
//!
//! Source: specs/act.md#shown.

use crate::advise::{plain, size, time};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What was done for one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ActProcess {
    /// Its PID.
    pub pid: u32,
    /// When it began, in ticks after boot.
    pub start_ticks: u64,
    /// Its name.
    pub name: String,
    /// Whether it has ended.
    pub gone: bool,
    /// Orders that have reported.
    pub orders: u64,
    /// Bytes tried.
    pub tried_bytes: u64,
    /// Bytes moved, by node `from>to`.
    pub moved_bytes: BTreeMap<String, u64>,
    /// Threads that were brought to a node, by that.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub threads_brought: BTreeMap<String, u64>,
    /// Bytes that stayed, by cause.
    pub failed_bytes: BTreeMap<String, u64>,
    /// Seconds that its accesses were expected to save within the horizon of each order.
    pub expected_saves_s: f64,
    /// Seconds that moving took.
    pub took_s: f64,
    /// Of its accesses that the source told, the percentage on fast nodes: before the first
    /// move, and now. `None` where none of them can be told.
    pub fast_before_percent: Option<f64>,
    /// The same now.
    pub fast_now_percent: Option<f64>,
}

impl ActProcess {
    /// Bytes moved, all ways.
    pub fn moved(&self) -> u64 {
        self.moved_bytes.values().sum()
    }
    fn failed(&self) -> u64 {
        self.failed_bytes.values().sum()
    }
}

/// All of it at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ActState {
    /// Since acting began.
    pub since_s: f64,
    /// Processes for which something was ordered, most moved first.
    pub processes: Vec<ActProcess>,
    /// Processes that are looked at.
    pub watched: u64,
}

/// How it ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ActEnd {
    /// Seconds of acting.
    pub acted_s: f64,
    /// Why it ended.
    pub why: String,
    /// Bytes moved by homenode.
    pub moved_bytes: u64,
    /// Bytes moved by the kernel meanwhile, by whom.
    pub kernel_bytes: BTreeMap<String, u64>,
    /// Seconds of own processor time.
    pub own_s: f64,
    /// Percentage of one CPU.
    pub own_percent: f64,
    /// Sentences: what came of it, what was put back.
    pub notes: Vec<String>,
}

impl ActState {
    /// A JSON object a process, each on one line.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Row<'a> {
            what: &'static str,
            since_s: f64,
            #[serde(flatten)]
            process: &'a ActProcess,
        }
        let mut out = String::new();
        for process in &self.processes {
            let row = Row { what: "process", since_s: self.since_s, process };
            out += &serde_json::to_string(&row).expect("plain data with text keys");
            out.push('\n');
        }
        out
    }

    /// A table.
    ///
    /// * `width` – columns of the terminal; `most` – processes shown, the others are one
    ///   line.
    pub fn to_text(&self, width: usize, most: usize) -> String {
        let mut out = String::new();
        let line = |out: &mut String, text: &str| {
            let text: String = text.trim_end().chars().take(width).collect();
            out.push_str(&text);
            out.push('\n');
        };
        let moved: u64 = self.processes.iter().map(ActProcess::moved).sum();
        let title = format!(
            "{:.0} s: {} looked at, {} moved",
            self.since_s,
            homenode_core::units::count(self.watched, "process", "processes"),
            size(moved)
        );
        line(&mut out, &title);
        line(
            &mut out,
            &format!(
                "{:>8} {:<16} {:>10} {:>10} {:>9} {:>9}  {:<14} {}",
                "PID", "NAME", "MOVED", "STAYED", "EXPECTED", "TOOK", "FAST%", "WAYS"
            ),
        );
        let percent = |p: Option<f64>| p.map_or("?".to_owned(), |p| format!("{p:.1}"));
        for p in self.processes.iter().take(most) {
            let fast = match (p.fast_before_percent, p.fast_now_percent) {
                (None, None) => "not measurable".to_owned(),
                (before, now) => format!("{} > {}", percent(before), percent(now)),
            };
            let moved = p.moved_bytes.iter().map(|(way, bytes)| format!("{way} {}", size(*bytes)));
            let brought = p.threads_brought.iter().map(|(to, n)| {
                let threads = homenode_core::units::count(*n, "thread", "threads");
                format!("{threads} to {to}")
            });
            let ways: Vec<String> = moved.chain(brought).collect();
            let name: String = p.name.chars().take(16).map(plain).collect();
            let text = format!(
                "{:>8} {:<16} {:>10} {:>10} {:>9} {:>9}  {:<14} {}",
                p.pid,
                name,
                size(p.moved()),
                size(p.failed()),
                time(p.expected_saves_s),
                time(p.took_s),
                fast,
                ways.join(", ")
            );
            line(&mut out, &text);
        }
        if self.processes.len() > most {
            let more = self.processes.len() - most;
            line(&mut out, &format!("and {more} more"));
        }
        out
    }
}

impl ActEnd {
    /// One line of JSON.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Row<'a> {
            what: &'static str,
            #[serde(flatten)]
            end: &'a ActEnd,
        }
        let row = Row { what: "end", end: self };
        serde_json::to_string(&row).expect("plain data with text keys") + "\n"
    }

    /// Some lines.
    pub fn to_text(&self) -> String {
        let mut out = format!(
            "acted for {:.1} s, {}: {} moved; it cost {:.2} % of one CPU ({:.3} s)\n",
            self.acted_s,
            self.why,
            size(self.moved_bytes),
            self.own_percent,
            self.own_s
        );
        for (mover, bytes) in self.kernel_bytes.iter().filter(|(_, bytes)| **bytes > 0) {
            let _ = writeln!(out, "meanwhile {} moved by {mover}", size(*bytes));
        }
        for note in &self.notes {
            let _ = writeln!(out, "{note}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn state() -> ActState {
        let one = ActProcess {
            pid: 157,
            start_ticks: 9,
            name: "redis-server".to_owned(),
            orders: 3,
            tried_bytes: 70 << 20,
            moved_bytes: [("2>0".to_owned(), 64 << 20), ("0>2".to_owned(), 8192)].into(),
            failed_bytes: [("busy".to_owned(), 1 << 20)].into(),
            expected_saves_s: 3.9,
            took_s: 0.0442,
            fast_before_percent: Some(5.1),
            fast_now_percent: Some(99.2),
            ..ActProcess::default()
        };
        let threads_brought = [("1".to_owned(), 2)].into();
        let other =
            ActProcess { pid: 7, name: "sh".to_owned(), threads_brought, ..ActProcess::default() };
        ActState { since_s: 12.0, processes: vec![one, other], watched: 2 }
    }

    #[test]
    fn a_process_is_a_row_and_a_line() {
        expect![[r#"
            12 s: 2 processes looked at, 64.0 MiB moved
                 PID NAME                  MOVED     STAYED  EXPECTED      TOOK  FAST%          WAYS
                 157 redis-server       64.0 MiB    1.0 MiB    3.90 s   44.2 ms  5.1 > 99.2     0>2 8.0 KiB, 2>0 64.0 MiB
                   7 sh                      0 B        0 B         0         0  not measurable 2 threads to 1
        "#]]
        .assert_eq(&state().to_text(120, 10));
        assert!(state().to_text(60, 1).lines().all(|l| l.chars().count() <= 60));
        assert!(state().to_text(60, 1).ends_with("and 1 more\n"));
        let json = state().to_json();
        let first: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
        assert_eq!(
            (&first["what"], &first["moved_bytes"]["2>0"]),
            (&"process".into(), &(64 << 20).into())
        );
    }

    #[test]
    fn the_end_says_what_it_cost() {
        let end = ActEnd {
            acted_s: 60.0,
            why: "its time was over".to_owned(),
            moved_bytes: 64 << 20,
            kernel_bytes: [("kernel demotion".to_owned(), 4096), ("other".to_owned(), 0)].into(),
            own_s: 0.3,
            own_percent: 0.5,
            notes: vec!["benefit not measurable here".to_owned()],
        };
        expect![[r#"
            acted for 60.0 s, its time was over: 64.0 MiB moved; it cost 0.50 % of one CPU (0.300 s)
            meanwhile 4.0 KiB moved by kernel demotion
            benefit not measurable here
        "#]]
        .assert_eq(&end.to_text());
        assert!(end.to_json().starts_with(r#"{"what":"end","acted_s":60.0"#));
    }
}
