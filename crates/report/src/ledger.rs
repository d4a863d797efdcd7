//! Rows of the ledger: what was moved, by whom, and what came of it.
//!
//! ```text
//! LedgerEntry ─▶ one JSON line ─▶ (kept by others) ─▶ LedgerEntry ─▶ table by mover and way
//! ```
//!
//! Source: specs/act.md#ledger.

use crate::advise::{plain, size};
use homenode_core::policy::order::Fails;
use homenode_core::units::{PAGE_SIZE, Pages, count};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Who moved pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LedgerMover {
    /// This program.
    Homenode,
    /// The kernel's NUMA balancing, promotion included.
    KernelBalancing,
    /// The kernel's reclaim, to a slower node.
    KernelDemotion,
    /// Compaction, other tools, parts of huge pages that came along.
    Other,
}

impl LedgerMover {
    const fn name(self) -> &'static str {
        match self {
            Self::Homenode => "homenode",
            Self::KernelBalancing => "kernel balancing",
            Self::KernelDemotion => "kernel demotion",
            Self::Other => "other",
        }
    }
}

/// A guest's threads by what they do for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestThreads {
    /// Those that run the guest's code.
    pub vcpu: u64,
    /// Those that carry its packets and blocks inside of the kernel.
    pub vhost: u64,
    /// All others.
    pub emulator: u64,
}

/// One row: an order of homenode's, or what the kernel's counters grew by in some time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// When it was told, on the wall clock.
    pub unix_ms: u64,
    /// Who moved.
    pub mover: LedgerMover,
    /// The process; `None` where the counters don't tell.
    pub pid: Option<u32>,
    /// When it began, in ticks after boot.
    pub start_ticks: Option<u64>,
    /// Its name.
    pub name: Option<String>,
    /// The node that the pages were on; `None` where the counters don't tell.
    pub from: Option<u16>,
    /// Where they went.
    pub to: Option<u16>,
    /// Bytes that were tried.
    pub tried_bytes: u64,
    /// Bytes that got there.
    pub moved_bytes: u64,
    /// The others by cause; none that is 0.
    pub failed_bytes: BTreeMap<String, u64>,
    /// Threads that were brought to the node `to`; `None` where it is about pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
    /// Of a guest whose threads were brought: what its threads are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestThreads>,
    /// Why they were moved.
    pub cause: String,
    /// Seconds that the process's accesses were expected to save within the horizon.
    pub expected_saves_s: Option<f64>,
    /// Seconds that moving took.
    pub took_s: Option<f64>,
    /// The PID of the homenode that wrote it.
    pub by: u32,
}

/// Bytes by cause, without those that are 0.
pub fn failed_bytes(fails: &Fails) -> BTreeMap<String, u64> {
    let Fails { no_room, busy, absent, forbidden, gone } = *fails;
    let all = [
        ("no_room", no_room),
        ("busy", busy),
        ("absent", absent),
        ("forbidden", forbidden),
        ("gone", gone),
    ];
    let some = all.into_iter().filter(|(_, pages)| *pages > Pages::ZERO);
    some.map(|(name, pages)| (name.to_owned(), pages.0.saturating_mul(PAGE_SIZE))).collect()
}

impl LedgerEntry {
    /// One line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data with text keys")
    }
    /// Reads such a line; `None` for what is none, as one that was cut.
    pub fn from_json(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

/// Moves of one mover and process, one way, for one cause.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sum {
    name: String,
    rows: u64,
    tried: u64,
    moved: u64,
    threads: Option<u64>,
    /// As last told.
    guest: Option<GuestThreads>,
    failed: BTreeMap<String, u64>,
}

/// Mover, process, from, to, cause.
type Key = (LedgerMover, Option<(u32, u64)>, Option<u16>, Option<u16>, String);

/// Rows of a ledger, added up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LedgerTable {
    sums: BTreeMap<Key, Sum>,
    /// First and last time.
    span: Option<(u64, u64)>,
}

impl LedgerTable {
    /// Adds a row.
    pub fn add(&mut self, e: &LedgerEntry) {
        let who = e.pid.map(|pid| (pid, e.start_ticks.unwrap_or(0)));
        let key = (e.mover, who, e.from, e.to, e.cause.clone());
        let sum = self.sums.entry(key).or_default();
        if let Some(name) = &e.name {
            sum.name.clone_from(name);
        }
        sum.rows += 1;
        sum.tried = sum.tried.saturating_add(e.tried_bytes);
        sum.moved = sum.moved.saturating_add(e.moved_bytes);
        if let Some(threads) = e.threads {
            sum.threads = Some(sum.threads.unwrap_or(0).saturating_add(threads));
        }
        sum.guest = e.guest.or(sum.guest);
        for (cause, bytes) in &e.failed_bytes {
            let failed = sum.failed.entry(cause.clone()).or_default();
            *failed = failed.saturating_add(*bytes);
        }
        let (first, last) = self.span.unwrap_or((e.unix_ms, e.unix_ms));
        self.span = Some((first.min(e.unix_ms), last.max(e.unix_ms)));
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Bytes moved by a mover.
    pub fn moved_bytes(&self, mover: LedgerMover) -> u64 {
        self.sums.iter().filter(|(key, _)| key.0 == mover).map(|(_, sum)| sum.moved).sum()
    }

    /// A table: a row per mover, process, way and cause; and how they add up to what the
    /// kernel counted.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let line = |out: &mut String, cells: [&str; 8]| {
            let [mover, pid, name, way, tried, moved, rows, cause] = cells;
            let text = format!(
                "{mover:<17}{pid:>8} {name:<16} {way:>7} {tried:>10} {moved:>10} {rows:>7}  {cause}"
            );
            let _ = writeln!(out, "{}", text.trim_end());
        };
        line(&mut out, ["MOVER", "PID", "NAME", "NODES", "TRIED", "MOVED", "ROWS", "CAUSE"]);
        let node = |n: Option<u16>| n.map_or("?".to_owned(), |n| n.to_string());
        for ((mover, who, from, to, cause), sum) in &self.sums {
            let pid = who.map_or("-".to_owned(), |(pid, _)| pid.to_string());
            let name: String = sum.name.chars().take(16).map(plain).collect();
            let way = format!("{}>{}", node(*from), node(*to));
            let mut cause = cause.replace('_', " ");
            for (why, bytes) in &sum.failed {
                let _ = write!(cause, "; {} {}", size(*bytes), why.replace('_', " "));
            }
            if let Some(GuestThreads { vcpu, vhost, emulator }) = sum.guest {
                let _ = write!(cause, "; a guest: {vcpu} vCPU, {vhost} vhost, {emulator} emulator");
            }
            let (tried, moved) = match sum.threads {
                Some(threads) => (String::new(), count(threads, "thread", "threads")),
                None => (size(sum.tried), size(sum.moved)),
            };
            let rows = sum.rows.to_string();
            line(&mut out, [mover.name(), &pid, &name, &way, &tried, &moved, &rows, &cause]);
        }
        let by = |mover| size(self.moved_bytes(mover));
        let all: u64 = self.sums.values().map(|sum| sum.moved).sum();
        let _ = writeln!(
            out,
            "\n{} moved: {} by homenode, {} by the kernel's balancing, {} by its demotion, {} by \
             others (pgmigrate_success has all of it)",
            size(all),
            by(LedgerMover::Homenode),
            by(LedgerMover::KernelBalancing),
            by(LedgerMover::KernelDemotion),
            by(LedgerMover::Other)
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn entry(
        mover: LedgerMover,
        pid: Option<u32>,
        way: [Option<u16>; 2],
        moved: u64,
    ) -> LedgerEntry {
        LedgerEntry {
            unix_ms: 1_700_000_000_000 + moved,
            mover,
            pid,
            start_ticks: pid.map(|_| 7),
            name: pid.map(|_| "redis-server".to_owned()),
            from: way[0],
            to: way[1],
            tried_bytes: moved,
            moved_bytes: moved,
            failed_bytes: BTreeMap::new(),
            threads: None,
            guest: None,
            cause: "hot".to_owned(),
            expected_saves_s: pid.map(|_| 0.25),
            took_s: pid.map(|_| 0.001),
            by: 99,
        }
    }

    #[test]
    fn a_line_is_read_as_it_was_written_and_a_cut_one_is_none() {
        let mut e = entry(LedgerMover::Homenode, Some(4711), [Some(2), Some(0)], 1 << 20);
        e.failed_bytes = failed_bytes(&Fails { busy: Pages(3), ..Fails::default() });
        let line = e.to_json();
        assert_eq!(LedgerEntry::from_json(&line), Some(e));
        for end in 0..line.len() {
            assert_eq!(LedgerEntry::from_json(&line[..end]), None);
        }
        expect![[r#"{"unix_ms":1700001048576,"mover":"homenode","pid":4711,"start_ticks":7,"name":"redis-server","from":2,"to":0,"tried_bytes":1048576,"moved_bytes":1048576,"failed_bytes":{"busy":12288},"cause":"hot","expected_saves_s":0.25,"took_s":0.001,"by":99}"#]]
        .assert_eq(&line);
    }

    #[test]
    fn rows_are_added_up_by_mover_and_way() {
        let mut table = LedgerTable::default();
        assert!(table.is_empty());
        let ours = [Some(2), Some(0)];
        table.add(&entry(LedgerMover::Homenode, Some(4711), ours, 3 << 20));
        let mut failed = entry(LedgerMover::Homenode, Some(4711), ours, 1 << 20);
        failed.tried_bytes = 2 << 20;
        failed.failed_bytes = failed_bytes(&Fails { no_room: Pages(256), ..Fails::default() });
        table.add(&failed);
        table.add(&entry(LedgerMover::KernelBalancing, None, [None, Some(0)], 8192));
        table.add(&entry(LedgerMover::Other, None, [None, None], 4096));
        let mut home = entry(LedgerMover::Homenode, Some(4711), [None, Some(1)], 0);
        (home.threads, home.cause) = (Some(3), "near_its_memory".to_owned());
        table.add(&home);
        let mut guest = home.clone();
        (guest.pid, guest.threads) = (Some(4712), Some(9));
        guest.guest = Some(GuestThreads { vcpu: 4, vhost: 1, emulator: 5 });
        table.add(&guest);
        expect![[r#"
            MOVER                 PID NAME               NODES      TRIED      MOVED    ROWS  CAUSE
            homenode             4711 redis-server         ?>1             3 threads       1  near its memory
            homenode             4711 redis-server         2>0    5.0 MiB    4.0 MiB       2  hot; 1.0 MiB no room
            homenode             4712 redis-server         ?>1             9 threads       1  near its memory; a guest: 4 vCPU, 1 vhost, 5 emulator
            kernel balancing        -                      ?>0    8.0 KiB    8.0 KiB       1  hot
            other                   -                      ?>?    4.0 KiB    4.0 KiB       1  hot

            4.0 MiB moved: 4.0 MiB by homenode, 8.0 KiB by the kernel's balancing, 0 B by its demotion, 4.0 KiB by others (pgmigrate_success has all of it)
        "#]]
        .assert_eq(&table.to_text());
    }
}
