//! A recording that is written down, for tests of commands that replay one.

use homenode_trace::{Header, Kind, Native, Row, Task, Totals, Writer};
use std::path::Path;

pub(crate) const PAGES: u64 = 8 * 1024;

/// A program of 32 MiB that is touched once, and whose last eighth is hot.
pub(crate) fn recording(path: &Path, change: impl FnOnce(&mut Header)) {
    let mut w = Writer::create(path).expect("a recording");
    let row = Row {
        kind: Kind::Access,
        task: 0,
        insns: 1000,
        page: 0,
        pages: 1,
        reads: 0,
        writes: 0,
        arg: 3,
    };
    let start = 0x7_0000;
    // Readable and writable; private and anonymous.
    let map = Row { kind: Kind::Map, page: start, pages: PAGES, arg: 3 | 0x22 << 32, ..row };
    w.push(map).expect("a row");
    let mut insns = 1000;
    let mut lines = 0;
    for i in 0..PAGES {
        w.push(Row { page: start + i, writes: 8, ..row }).expect("a row");
        (insns, lines) = (insns + 1000, lines + 8);
    }
    for i in 0..PAGES * 16 {
        let page = start + PAGES * 7 / 8 + i * 7919 % (PAGES / 8);
        w.push(Row { page, reads: 40, insns: 5000, ..row }).expect("a row");
        (insns, lines) = (insns + 5000, lines + 40);
    }
    let totals = Totals { insns, read_misses: lines, ..Totals::default() };
    let mut header = Header {
        command: vec!["toy".into(), "--size=32MiB".into()],
        complete: true,
        ended: homenode_trace::Ended::Exit(0),
        native: Some(Native { runs: 3, user_ns: 400_000_000, ..Native::default() }),
        totals,
        pages_touched: PAGES,
        tasks: vec![Task { name: "toy".into(), totals, ..Task::default() }],
        ..Header::default()
    };
    change(&mut header);
    w.finish(&header).expect("a whole recording");
}
