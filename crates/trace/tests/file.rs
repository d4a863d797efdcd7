//! Recordings as files: what goes in comes out, and damage is an error.

use homenode_fixtures::Folder;
use homenode_trace::{
    Batch, CacheModel, Header, Kind, Native, ROW_GROUP_ROWS, Reader, Row, Task, TraceError, Writer,
};
use proptest::prelude::*;
use std::fs;
use std::path::Path;

fn header(tasks: usize) -> Header {
    Header {
        command: vec!["sort".to_owned(), "a file".to_owned()],
        complete: true,
        native: Some(Native {
            runs: 3,
            user_ns: 7,
            sys_ns: 5,
            wall_ns: 13,
            max_rss_bytes: 1 << 20,
            voluntary_switches: 11,
            delayed_ns: 12,
            spread_ns: 3,
        }),
        machine: "a test".to_owned(),
        caches: vec![CacheModel { level: 1, size: 32768, ways: 8, line: 64 }],
        tasks: (0..tasks).map(|i| Task { name: format!("t{i}"), ..Task::default() }).collect(),
        ..Header::default()
    }
}

fn write(path: &Path, rows: impl IntoIterator<Item = Row>, header: &Header) {
    let mut w = Writer::create(path).expect("a new file");
    for r in rows {
        w.push(r).expect("a written row");
    }
    let bytes = w.finish(header).expect("a whole file");
    assert_eq!(bytes, fs::metadata(path).expect("the file").len());
}

fn read(path: &Path) -> Result<Vec<Row>, TraceError> {
    let r = Reader::open(path)?;
    let mut batches = r.batches();
    let mut batch = Batch::default();
    let mut rows = Vec::new();
    while batches.next_into(&mut batch)? {
        assert!(!batch.is_empty() && batch.len() <= homenode_trace::BATCH_ROWS);
        rows.extend(batch.iter());
    }
    assert_eq!(rows.len() as u64, r.rows());
    Ok(rows)
}

/// Rows like a program's: a few hot pages, a stream, odd kinds in between.
fn plausible(n: u64) -> impl Iterator<Item = Row> {
    (0..n).map(|i| {
        let x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        Row {
            kind: if i % 97 == 0 { Kind::Map } else { Kind::Access },
            task: (i % 3) as u32,
            insns: x % 5000,
            page: if i % 2 == 0 { 0x7f00_0000 + i } else { 0x5_5555 + x % 64 },
            pages: 1,
            reads: (x % 65) as u32,
            writes: (x % 3) as u32,
            arg: i % 4,
        }
    })
}

fn any_row() -> impl Strategy<Value = Row> {
    (
        0u8..11,
        0u32..5,
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        any::<u32>(),
        any::<u32>(),
        any::<u64>(),
    )
        .prop_map(|(k, task, insns, page, pages, reads, writes, arg)| Row {
            kind: Kind::from_number(k).expect("a kind"),
            task,
            insns,
            page,
            pages,
            reads,
            writes,
            arg,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_rows_come_back(rows in prop::collection::vec(any_row(), 0..200)) {
        let folder = Folder::new();
        let path = folder.join("r.parquet");
        let header = header(5);
        write(&path, rows.iter().copied(), &header);
        prop_assert_eq!(read(&path).expect("a recording"), rows);
        let reader = Reader::open(&path).expect("a recording");
        prop_assert_eq!(reader.header(), &header);
    }
}

#[test]
fn several_row_groups_and_several_passes() {
    let folder = Folder::new();
    let path = folder.join("r.parquet");
    let n = ROW_GROUP_ROWS as u64 * 2 + 77;
    write(&path, plausible(n), &header(3));
    let reader = Reader::open(&path).expect("a recording");
    assert_eq!(reader.rows(), n);
    for _ in 0..2 {
        let mut batches = reader.batches();
        let mut batch = Batch::default();
        let mut want = plausible(n);
        while batches.next_into(&mut batch).expect("rows") {
            for r in batch.iter().copied() {
                assert_eq!(Some(r), want.next());
            }
        }
        assert_eq!(want.next(), None);
    }
}

#[test]
fn the_same_rows_give_the_same_bytes() {
    let folder = Folder::new();
    let (a, b) = (folder.join("a"), folder.join("b"));
    write(&a, plausible(3000), &header(3));
    write(&b, plausible(3000), &header(3));
    assert_eq!(fs::read(a).expect("a file"), fs::read(b).expect("a file"));
}

#[test]
fn a_truncated_file_is_an_error() {
    let folder = Folder::new();
    let path = folder.join("r.parquet");
    write(&path, plausible(9000), &header(3));
    let whole = fs::read(&path).expect("a file");
    let cuts = (0..whole.len()).step_by(1000).chain(whole.len() - 20..whole.len());
    for at in cuts {
        fs::write(&path, &whole[..at]).expect("a file");
        let e = read(&path).expect_err("a truncated file");
        let text = e.to_string();
        assert!(
            text.contains("r.parquet") && text.contains("not a whole recording"),
            "{at}: {text}"
        );
    }
}

#[test]
fn a_flipped_bit_is_an_error_or_changes_nothing() {
    let folder = Folder::new();
    let path = folder.join("r.parquet");
    write(&path, plausible(9000), &header(3));
    let whole = fs::read(&path).expect("a file");
    let rows: Vec<Row> = plausible(9000).collect();
    let mut errors = 0;
    let mut silent = 0;
    // All of the footer's last part, a sample of the rest.
    let places = (0..whole.len()).step_by(whole.len() / 400).chain(whole.len() - 1200..whole.len());
    let results: Vec<_> = places
        .map(|at| {
            let mut bad = whole.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&path, &bad).expect("a file");
            (at, std::panic::catch_unwind(|| read(&path)))
        })
        .collect();
    for (at, result) in results {
        match result.unwrap_or_else(|_| panic!("a panic at byte {at}")) {
            Ok(got) => {
                assert_eq!(got, rows, "byte {at} changed rows silently");
                silent += 1;
            }
            Err(e) => {
                assert!(e.to_string().contains("r.parquet"));
                errors += 1;
            }
        }
    }
    assert!(errors > 300, "{errors} errors, {silent} without effect");
}

#[test]
fn what_is_no_recording_is_told_apart() {
    let folder = Folder::new();
    let path = folder.join("r.parquet");
    assert!(matches!(read(&path), Err(TraceError::Open { .. })));
    assert!(matches!(read(&folder), Err(TraceError::Open { .. })));
    fs::write(&path, "").expect("a file");
    assert!(matches!(read(&path), Err(TraceError::NotARecording { .. })));
    let later = Header { version: 99, ..header(1) };
    write(&path, [], &later);
    assert!(matches!(read(&path), Err(TraceError::Version { found: 99, .. })));
    // A row of a task that the header does not know.
    write(&path, plausible(3), &header(1));
    let e = read(&path).expect_err("a task too many");
    assert!(e.to_string().contains("row group 0 (of 1)"), "{e}");
}

#[test]
fn an_unfinished_writer_leaves_what_was_there() {
    let folder = Folder::new();
    let path = folder.join("r.parquet");
    write(&path, plausible(10), &header(3));
    let mut w = Writer::create(&path).expect("a new file");
    w.push(plausible(1).next().expect("a row")).expect("a written row");
    drop(w);
    assert_eq!(read(&path).expect("the first recording").len(), 10);
    assert_eq!(fs::read_dir(&folder).expect("the folder").count(), 1);
}

#[test]
fn a_place_that_cannot_be_written_is_told_at_once() {
    let folder = Folder::new();
    let e = Writer::create(folder.join("no/such/folder")).err().expect("an error");
    assert!(matches!(e, TraceError::Create { .. }), "{e}");
    assert!(matches!(Writer::create(&folder), Err(TraceError::Create { .. })));
}

#[test]
fn a_full_disk_is_an_error() {
    if !Path::new("/dev/full").exists() {
        println!("skipped: no /dev/full here");
        return;
    }
    let folder = Folder::new();
    let path = folder.join("r.parquet");
    std::os::unix::fs::symlink("/dev/full", folder.join("r.parquet.partial")).expect("a link");
    let mut w = Writer::create(&path).expect("a device");
    let failed = plausible(ROW_GROUP_ROWS as u64 + 1)
        .try_for_each(|r| w.push(r))
        .and_then(|()| w.finish(&header(3)).map(|_| ()));
    let e = failed.expect_err("a full disk");
    assert!(e.to_string().contains("No space left"), "{e}");
    assert!(!path.exists());
}
