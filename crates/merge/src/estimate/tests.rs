//! Looks at pages of our own: known contents in, figures out.

use super::maps::Mapping;
use super::nodes::OneNode;
use super::pages::Own;
use super::*;

/// Every second page is on node 1.
struct Odd;

impl NodeSource for Odd {
    fn nodes(&self, _: u32, pages: &[u64], out: &mut Vec<u16>) {
        out.clear();
        out.extend(pages.iter().map(|p| (p % 2) as u16));
    }
}

fn us() -> Owner {
    Owner { pid: std::process::id(), start: 1, name: "us".to_owned(), pages: 64 }
}

fn options(again: bool) -> Options {
    Options {
        again: again.then_some(Duration::ZERO),
        changes: Changes::Read,
        max_page_sharing: Some(256),
        use_zero_pages: Some(false),
        ..Options::default()
    }
}

/// Units of the pages of ours, as of the only process.
fn units(own: &Own, pages: std::ops::Range<usize>) -> Vec<Unit> {
    let mapping = Mapping { first: own.page(pages.start), end: own.page(pages.end), plain: true };
    look::units(0, &us(), &[mapping], false)
}

fn figures(run: Estimation<'_>, again: bool) -> Estimate {
    run.finish(Duration::ZERO, again.then_some((Duration::ZERO, Duration::ZERO)), vec![0]).unwrap()
}

#[test]
fn contents_are_grouped_by_the_nodes_that_a_source_tells() {
    let own = Own::map(16).unwrap();
    let even = (own.page(0) % 2) as usize;
    // On the even node a a b 0, on the odd one a c c 0.
    for (i, v) in [(0, 1), (2, 1), (4, 2), (1, 1), (3, 3), (5, 3)] {
        own.write(i, v);
    }
    own.write(6, 0);
    own.write(7, 0);
    let mut run = Estimation::new(vec![us()], &options(false), &Odd).unwrap();
    run.look(units(&own, 0..16), &mut |_| {});
    let e = figures(run, false);
    assert_eq!((e.pages_scanned, e.distinct, e.zero, e.volatile), (8, 4, 2, 0));
    let sharing = |s: Saving| (s.pages_shared, s.pages_sharing, s.saved_bytes);
    assert_eq!(sharing(e.across), (3, 4, 4 * 4096));
    assert_eq!(sharing(e.per_node), (2, 2, 2 * 4096));
    let nodes: Vec<(usize, u64, u64)> = e
        .nodes
        .iter()
        .map(|n| (usize::from(n.node) ^ even, n.pages_scanned, n.saving.pages_sharing))
        .collect();
    let mut sorted = nodes.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [(0, 4, 1), (1, 4, 1)]);
    // Three of content a: 2·1/3 each way; two of zeros: 1/2 each way.
    assert_eq!(e.flows.iter().map(|f| f.pages).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(e.processes[0].saved_bytes, e.across.saved_bytes);
    assert_eq!((e.processes[0].mergeable, e.processes[0].zero), (7, 2));
}

/// What a second look found: scanned, volatile, shared, sharing, spared.
type Seen = (u64, u64, u64, u64, u64);

/// Pages 0 to 9 hold five pairs, 10 to 19 are untouched. Then one of the first
/// pair changes and one is written with what it held, pages of the third pair go,
/// and of the new ones one is as page 6 and one is like none.
fn two_looks(own: &Own, tell: Option<again::Tell>) -> Seen {
    for i in 0..10 {
        own.write(i, 1 + i as u8 / 2);
    }
    let mut run = Estimation::new(vec![us()], &options(true), &OneNode(0)).unwrap();
    run.common.tell = tell;
    let mut first = units(own, 0..20);
    first[0].noted = tell.is_some();
    run.look(first, &mut |_| {});
    let mut counts = run.common.counts();
    counts.known = counts.table.len() as u32;
    drop(counts);
    own.write(0, 77);
    own.write(2, 2);
    for i in [4, 5] {
        // SAFETY: pages of our own mapping.
        unsafe {
            libc::madvise((own.page(i) * 4096) as *mut libc::c_void, 4096, libc::MADV_DONTNEED)
        };
    }
    own.write(12, 4);
    own.write(13, 99);
    let mut again = units(own, 0..20);
    let mut kept = run.kept.drain(..).map(|(_, kept)| (kept.first_window(), kept));
    let first = kept.next().unwrap();
    assert!(kept.next().is_none());
    drop(kept);
    assert_eq!(again.len(), 1, "the pages lie within a window");
    again[0].kept = Some(first.1);
    run.look(again, &mut |_| {});
    let e = figures(run, true);
    (
        e.pages_scanned,
        e.volatile,
        e.across.pages_shared,
        e.across.pages_sharing,
        e.looks.pages_spared,
    )
}

/// Twenty pages that no boundary of a window parts.
fn within_a_window() -> Own {
    loop {
        let own = Own::map(20).unwrap();
        if own.page(0) / look::WINDOW == own.page(19) / look::WINDOW {
            return own;
        }
        // Leaves its address taken, so that the next one is elsewhere.
        std::mem::forget(own);
    }
}

#[test]
fn a_second_look_reads_all_again_where_the_kernel_cannot_tell() {
    // 10 less 2 that went and 2 that came; page 0 and page 13 are volatile; pairs
    // (2,3) and (8,9) are left, and 6, 7, 12 are three of a kind.
    assert_eq!(two_looks(&within_a_window(), None), (10, 2, 3, 4, 0));
}

#[test]
fn a_second_look_reads_what_the_kernel_says_was_written() {
    // What a kernel would say of these pages.
    let tell: again::Tell = |_, mapping| {
        let runs = [(0, 1, true), (2, 3, true), (4, 6, false), (10, 12, false), (12, 14, true)];
        let changed = |(first, end, here)| again::Changed {
            first: mapping.first + first,
            end: mapping.first + end,
            here,
        };
        Some(runs.into_iter().chain([(14, 20, false)]).map(changed).collect())
    };
    // Of the 8 that are still there two were written: six are spared.
    assert_eq!(two_looks(&within_a_window(), Some(tell)), (10, 2, 3, 4, 6));
}

#[test]
fn a_process_that_is_gone_at_the_second_look_counts_no_longer() {
    let own = within_a_window();
    for i in 0..6 {
        own.write(i, 1);
    }
    let mut run = Estimation::new(vec![us()], &options(true), &OneNode(0)).unwrap();
    run.look(units(&own, 0..20), &mut |_| {});
    run.second(Vec::new(), &mut |_| {});
    let e = figures(run, true);
    assert_eq!((e.pages_scanned, e.distinct, e.across), (0, 0, Saving::default()));
}

#[test]
fn nothing_is_missed_by_several_threads() {
    let own = Own::map(50_000).unwrap();
    for i in 0..50_000 {
        own.write(i, (i % 200) as u8 + 1);
    }
    let look = |threads| {
        let mut run = Estimation::new(vec![us()], &options(false), &OneNode(0)).unwrap();
        run.threads = threads;
        run.look(units(&own, 0..50_000), &mut |_| {});
        let e = figures(run, false);
        (e.pages_scanned, e.distinct, e.across)
    };
    let one = look(1);
    assert_eq!((one.0, one.1), (50_000, 200));
    assert_eq!(look(4), one);
}

#[test]
fn so_many_threads_read() {
    // jobs, percent of a CPU, CPUs: threads.
    for (jobs, percent, available, expected) in [
        (None, None, 1, 1),
        (None, None, 2, 2),
        (None, None, 64, 2),
        (None, Some(10), 64, 1),
        (None, Some(101), 64, 2),
        (None, Some(400), 64, 4),
        (None, Some(400), 2, 2),
        (Some(1), None, 64, 1),
        (Some(8), Some(100), 2, 8),
    ] {
        assert_eq!(threads(jobs, percent, available), expected, "{jobs:?} {percent:?} {available}");
    }
}
