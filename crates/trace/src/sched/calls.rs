//! What system calls moved, put where it belongs among the other rows.
//!
//! ```text
//!  W   ──call──┊─write┊wake┊──────┊──        Put: where it woke somebody, else where the call began
//!  T   ──read──┊sleeps      ┊──────┊──       Get: where the call began; the wake-up is explained by both
//! ```
//!
//! Who reads what is there does not sleep, so no wake-up tells on whom it depends; bytes do. A wake-up that is
//! explained by bytes is left out: who comes late finds them, who comes early waits for them.
//!
//! Source: specs/record-sched.md#calls.

use super::{Header, Kind, NOBODY, Row};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A call of a task.
#[derive(Clone, Copy, Debug)]
struct Call {
    begins: u64,
    ends: u64,
    object: u32,
    puts: bool,
    /// Bytes that one who is recorded has given, and who had given the last of them.
    bytes: u32,
    by: u32,
}

/// Rows in the order in which lives are made of them, and the places among them of wake-ups that bytes
/// explain.
pub(super) struct Ordered {
    pub(super) rows: Vec<Row>,
    pub(super) explained: BTreeSet<usize>,
    /// How many pipes and sockets there are.
    pub(super) objects: u32,
}

const BYTES: u64 = u32::MAX as u64;

impl Ordered {
    /// Puts calls where they belong. Their rows have bytes as `arg` then, and above them who gave the last.
    pub(super) fn of(header: &Header, rows: &[Row]) -> Self {
        if !rows.iter().any(|r| matches!(r.kind, Kind::Put | Kind::Get | Kind::Join)) {
            return Self { rows: rows.to_vec(), explained: BTreeSet::new(), objects: 0 };
        }
        let mut calls: Vec<Vec<Call>> = vec![Vec::new(); header.tasks.len()];
        // A file may number them as it likes; here they follow one another.
        let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
        for r in rows.iter().filter(|r| matches!(r.kind, Kind::Put | Kind::Get)) {
            let Some(of) = calls.get_mut(r.task as usize) else { continue };
            let next = numbers.len() as u32;
            let object = *numbers.entry(r.other).or_insert(next);
            of.push(Call {
                begins: r.time_ns.saturating_sub(r.arg >> 32),
                ends: r.time_ns,
                object,
                puts: r.kind == Kind::Put,
                bytes: (r.arg & BYTES) as u32,
                by: r.task,
            });
        }
        cover(&mut calls);
        let call = |task: u32, at: u64| {
            let of = calls.get(task as usize)?;
            let next = of.partition_point(|c| c.ends < at);
            of.get(next).copied().filter(|c| c.begins <= at && c.bytes > 0)
        };
        // By task: when it woke somebody.
        let mut woke: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for r in rows.iter().filter(|r| r.kind == Kind::Wake && r.other != NOBODY) {
            woke.entry(r.other).or_default().push(r.time_ns);
        }
        let mut all: Vec<(u64, u8, Row, bool)> = Vec::with_capacity(rows.len());
        // Calls stand in the order of their rows.
        let mut seen = vec![0; calls.len()];
        for r in rows {
            let begins = r.time_ns.saturating_sub(r.arg >> 32);
            match r.kind {
                Kind::Put | Kind::Get => {
                    let Some(of) = calls.get(r.task as usize) else { continue };
                    let number = &mut seen[r.task as usize];
                    let c = of[*number];
                    *number += 1;
                    if c.bytes == 0 {
                        continue;
                    }
                    let first = |times: &Vec<u64>| {
                        times.get(times.partition_point(|t| *t < begins)).copied()
                    };
                    let wakes = woke.get(&r.task).and_then(first).filter(|t| *t <= r.time_ns);
                    let at = if c.puts { wakes.unwrap_or(begins) } else { begins };
                    let row = Row {
                        time_ns: at,
                        other: c.object,
                        arg: u64::from(c.bytes) | u64::from(c.by) << 32,
                        ..*r
                    };
                    all.push((at, 0, row, false));
                }
                Kind::Join => all.push((begins, 0, Row { time_ns: begins, ..*r }, false)),
                Kind::Wake => {
                    let given = call(r.other, r.time_ns).filter(|c| c.puts);
                    let taken = call(r.task, r.time_ns).filter(|c| !c.puts);
                    let same = given.zip(taken).is_some_and(|(a, b)| a.object == b.object);
                    all.push((r.time_ns, 1, *r, same));
                }
                Kind::Run
                | Kind::Stop
                | Kind::Fork
                | Kind::Exec
                | Kind::Exit
                | Kind::Nice
                | Kind::Policy
                | Kind::Allow
                | Kind::Lost => all.push((r.time_ns, 1, *r, false)),
            }
        }
        all.sort_by_key(|(time, class, ..)| (*time, *class));
        let explained = all.iter().enumerate().filter(|(_, r)| r.3).map(|(at, _)| at).collect();
        Self {
            rows: all.into_iter().map(|r| r.2).collect(),
            explained,
            objects: numbers.len() as u32,
        }
    }
}

/// Of what is taken only that counts which somebody who is recorded has begun to give before.
fn cover(calls: &mut [Vec<Call>]) {
    let mut all: Vec<(u64, bool, usize, usize)> = Vec::new();
    for (task, of) in calls.iter().enumerate() {
        for (number, c) in of.iter().enumerate() {
            all.push((if c.puts { c.begins } else { c.ends }, !c.puts, task, number));
        }
    }
    all.sort_unstable();
    let mut there: BTreeMap<u32, VecDeque<(u32, u32)>> = BTreeMap::new();
    for (_, takes, task, number) in all {
        let c = &mut calls[task][number];
        let there = there.entry(c.object).or_default();
        if !takes {
            there.push_back((c.by, c.bytes));
            continue;
        }
        let mut left = c.bytes;
        while let Some((by, bytes)) = there.front_mut().filter(|_| left > 0) {
            let taken = left.min(*bytes);
            (left, *bytes, c.by) = (left - taken, *bytes - taken, *by);
            if *bytes == 0 {
                there.pop_front();
            }
        }
        c.bytes -= left;
    }
}
