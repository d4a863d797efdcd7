//! Tasks that look again and again: waits in vain, one after the other, each as long.
//!
//! A server that looks every half a second whether it shall end waits in vain for as long as
//! the others work. Under the emulator they take some ten times as long, so it does that too
//! often. What ends it is a plain store that no recording has. So each such wait lasts until
//! that has come which another did meanwhile and which the task depends on next.
//!
//! ```text
//! task 0   ... poll, in vain, order 5   poll, in vain, order 9   takes a lock ◀── task 1, order 8
//! ```
//!
//! Source: specs/waits.md#who-ends-what

use super::*;

/// So many in a row, at least: fewer may be meant as a sleep.
const IN_A_ROW: usize = 3;

/// Waits in vain of a task, each as long.
#[derive(Default)]
struct InARow {
    ns: u64,
    /// Which, and the order after which each began.
    waits: Vec<(u32, u64)>,
}

/// Waits in vain that are one of several in a row, each with the order after which it began.
pub(super) fn polls(points: &[Point], due: &deadlines::Deadlines) -> BTreeMap<u32, u64> {
    let mut found = BTreeMap::new();
    // By task, of futexes and of other things.
    let mut rows: BTreeMap<(u32, bool), InARow> = BTreeMap::new();
    let mut latest: BTreeMap<u32, u64> = BTreeMap::new();
    let mut over = |row: InARow| {
        if row.waits.len() >= IN_A_ROW {
            found.extend(row.waits);
        }
    };
    for (n, point) in (0..).zip(points) {
        let began = latest.insert(point.task, point.order).unwrap_or(0);
        let What::Block(of, _, arg) = point.what else { continue };
        let Some(of_futex) = in_vain_of_futex(of) else { continue };
        let row = rows.entry((point.task, of_futex)).or_default();
        let in_vain = matches!(of, Block::FutexTimeout | Block::ReadyTimeout);
        let arg = due.span(n, arg);
        if !in_vain || row.ns != arg {
            over(std::mem::take(row));
        }
        if in_vain {
            row.ns = arg;
            row.waits.push((n, began));
        }
    }
    rows.into_values().for_each(over);
    found
}
