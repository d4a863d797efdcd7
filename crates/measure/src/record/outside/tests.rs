//! Rows go in, and come out with native times; the filter; a program that waits.

use super::*;
use crate::record::shares;
use homenode_trace::waits::SHARED;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

const US: u64 = 1000;

/// A native run of one task, whose calls are these: kind, object, microseconds, how far.
fn native(calls: &[(Of, u64, u64, u64)]) -> Outside {
    let (mut all, mut numbers) = (Outside::default(), Numbers::new());
    for &(of, object, us, by) in calls {
        all.call(&mut numbers, (of, object), us * US, by);
    }
    all
}

fn block(of: Block, object: u64, arg: u64) -> WireRow {
    WireRow { reads: of as u16, pages: object, arg, ..WireRow::default() }
}

/// The rows' arguments afterwards; of a stream, bytes and microseconds.
fn timed(twin: &mut Twin, rows: &[WireRow]) -> Vec<Option<(u64, u64)>> {
    let halves = |w: WireRow| (w.arg & u64::from(u32::MAX), w.arg >> 32);
    rows.iter().map(|w| twin.row(Kind::Block, w).map(halves)).collect()
}

#[test]
fn bytes_that_come_together_have_the_waits_of_all() {
    let ten = |us| (Of::Stream, 7, us, 10);
    let native = native(&[ten(900), ten(800), ten(3), ten(600), (Of::Stream, 7, 400, END)]);
    let s = SHARED | 99;
    let reads = |bytes: u64| block(Block::Bytes, s, bytes | 5 << 32);
    let looks = |us: u64| block(Block::Ready, s, us << 32);
    let ends = block(Block::End, s, 2 << 32);
    // Looking first takes the wait; then reading does not wait for the same again.
    let rows = [looks(5), reads(4), reads(6), reads(25), looks(0), reads(5), ends, reads(1)];
    assert_eq!(
        timed(&mut Twin::new(Some(native)), &rows),
        [
            Some((0, 900)),
            Some((4, 0)),
            Some((6, 0)),
            Some((25, 1400)),
            Some((0, 0)),
            Some((5, 0)),
            Some((0, 400)),
            // Natively nothing came after the end.
            Some((1, 5)),
        ]
    );
}

/// Natively it looked three times for 100 ms each before something came; under the emulator once,
/// and then not at all.
#[test]
fn what_was_waited_in_vain_is_waited_for_what_comes_next() {
    let (mut all, mut numbers) = (Outside::default(), Numbers::new());
    for by in [4, 5] {
        for us in [100_000, 100_000, 3, 100_000] {
            all.in_vain(us * US);
        }
        all.call(&mut numbers, (Of::Stream, 7), 20_000 * US, 0);
        all.call(&mut numbers, (Of::Stream, 7), 2 * US, by);
    }
    let s = SHARED | 99;
    let looks = block(Block::Ready, s, 5 << 32);
    let reads = |bytes: u64| block(Block::Bytes, s, bytes | 5 << 32);
    let in_vain = block(Block::ReadyTimeout, 0, 100_000 * US);
    let rows = [in_vain, looks, reads(4), looks, reads(5)];
    assert_eq!(
        timed(&mut Twin::new(Some(all)), &rows)[1..],
        [Some((0, 220_000)), Some((4, 0)), Some((0, 320_000)), Some((5, 0))]
    );
}

#[test]
fn what_is_not_known_natively_stays_as_it_was_recorded() {
    let rows = [
        block(Block::Bytes, SHARED | 1, 4 | 70 << 32),
        block(Block::Outside, SHARED | 2, 5_000_000),
        block(Block::Outside, SHARED | 2, 900_000),
        block(Block::Accept, SHARED | 3, 60),
        block(Block::Time, 0, 8),
    ];
    let as_it_was = [Some((4, 70)), Some((5_000_000, 0)), None, Some((60, 0)), Some((8, 0))];
    assert_eq!(timed(&mut Twin::new(None), &rows), as_it_was);
    // Another task's waits are none of this one's.
    let other = native(&[(Of::Disk, 0, 5000, 1)]);
    assert_eq!(timed(&mut Twin::new(Some(other)), &rows), as_it_was);
    // What ran before the slice takes no time, wherever it came from.
    let before = [block(Block::Bytes, SHARED | 1, 4), block(Block::Outside, SHARED | 2, 0)];
    let one = native(&[(Of::Stream, 1, 500, 4), (Of::Device, 2, 5000, 1)]);
    assert_eq!(timed(&mut Twin::new(Some(one)), &before), [Some((4, 0)), None]);
}

#[test]
fn devices_and_disks_are_waited_for_call_by_call() {
    let device = |n: u64| SHARED | n << 8;
    let native = native(&[
        (Of::Device, 1, 3000, 1),
        (Of::Device, 1, 10, 1),
        (Of::Device, 2, 9000, 0),
        (Of::Device, 2, 10, 1),
        (Of::Disk, 0, 20, 1),
        (Of::Disk, 0, 7000, 1),
        (Of::Network, 0, 20_000, 1),
        (Of::Network, 0, 30, 1),
    ]);
    let outside = |object, ns| block(Block::Outside, object, ns);
    let rows = [
        outside(device(1), 10),
        // Under the emulator it took long.
        outside(device(1), 50_000_000),
        outside(device(2) | LOOKED, 10),
        outside(device(2), 10),
        outside(DISK, 4_000_000),
        outside(DISK, 10),
        outside(NETWORK, 2_000_000),
        outside(NETWORK, 5_000_000),
    ];
    let ms = |n: u64| Some((n * 1_000_000, 0));
    let expected = [ms(3), None, ms(9), None, None, ms(7), ms(20), None];
    assert_eq!(timed(&mut Twin::new(Some(native)), &rows), expected);
}

#[test]
fn who_accepts_has_waited_at_the_socket_that_it_accepts_from() {
    let native = native(&[(Of::Stream, 1, 500, 1), (Of::Stream, 1, 300, 1)]);
    let mut twin = Twin::new(Some(native));
    for us in [500, 300] {
        let (new, listener) = (SHARED | us, SHARED | 5);
        let from = WireRow {
            reads: Release::Accepted as u16,
            pages: new,
            arg: listener,
            ..WireRow::default()
        };
        assert_eq!(twin.row(Kind::Release, &from), Some(from));
        assert_eq!(timed(&mut twin, &[block(Block::Accept, new, 20)]), [Some((us, 0))]);
    }
}

#[test]
fn tasks_are_known_by_their_parents_and_their_order() {
    let task = |parent, us| {
        let outside = native(&[(Of::Disk, 0, us, 1)]);
        (parent, outside)
    };
    let traced =
        vec![task(None, 2000), task(Some(0), 3000), task(Some(0), 4000), task(Some(2), 5000)];
    let mut natively = Natively::new(traced);
    let parents = [None, Some(0), Some(1), Some(0), Some(0), Some(3), None];
    let waits = parents.map(|parent| {
        let mut twin = natively.begins(parent);
        timed(&mut twin, &[block(Block::Outside, DISK, 0)]).len() as u64
            * twin.outside.map_or(0, |o| o.of[&Of::Disk][0].all[0].1 / US)
    });
    assert_eq!(waits, [2000, 3000, 0, 4000, 0, 5000, 0]);
}

#[test]
fn proc_says_which_descriptor_an_epoll_watches() {
    let info = "pos:\t0\nflags:\t02\ntfd:        5 events:       19 data:               1f  pos:0 \
                ino:11 sdev:f\ntfd:        8 events:       19 data: ffffffff00000008  pos:0\n";
    assert_eq!((watched(info, 0x1f), watched(info, 0xffff_ffff_0000_0008)), (Some(5), Some(8)));
    assert_eq!(
        (watched(info, 1), watched("tfd: x data: 1", 1), watched("", 0)),
        (None, None, None)
    );
}

/// The filter, by its own rules: what it answers to a call.
fn answer(filter: &[libc::sock_filter], architecture: u32, number: u32) -> u32 {
    let (mut at, mut loaded) = (0, 0);
    loop {
        let op = &filter[at];
        at += 1;
        match u32::from(op.code) & 7 {
            libc::BPF_LD => loaded = if op.k == NUMBER_AT { number } else { architecture },
            libc::BPF_JMP => at += usize::from(if loaded == op.k { op.jt } else { op.jf }),
            _ => return op.k,
        }
    }
}

#[test]
fn the_filter_stops_at_the_calls_of_interest_only() {
    let filter = filter();
    for number in 0..500 {
        let expected = if CALLS.iter().any(|c| c.0 == i64::from(number)) {
            libc::SECCOMP_RET_TRACE
        } else {
            libc::SECCOMP_RET_ALLOW
        };
        assert_eq!(answer(&filter, ARCHITECTURE, number), expected, "{number}");
        assert_eq!(answer(&filter, ARCHITECTURE ^ 1, number), libc::SECCOMP_RET_ALLOW);
    }
}

/// A shell's child reads what comes every 30 ms; the shell reads the last by itself.
#[test]
fn a_native_run_tells_how_long_each_byte_was_waited_for() {
    let (read, mut write) = UnixStream::pair().expect("a pair of sockets");
    let writer = thread::spawn(move || {
        for byte in b"abcd" {
            thread::sleep(Duration::from_millis(30));
            write.write_all(&[*byte]).expect("somebody reads");
        }
    });
    let make = move || {
        let mut sh = Command::new("sh");
        sh.args(["-c", "head -c 1; head -c 1; head -c 1; cat; true"]).stdin(OwnedFd::from(read));
        sh.stdout(Stdio::null()).process_group(0);
        Some(sh)
    };
    let Some(tasks) = shares::trace_waits(make) else {
        return eprintln!("skipped: this system does not let a program be traced");
    };
    writer.join().expect("the writer");
    // A task reads its program's libraries too; those are no streams.
    let streams = |(_, outside): &(Option<usize>, Outside)| {
        outside.of.get(&Of::Stream).cloned().unwrap_or_default()
    };
    let all: Vec<Vec<Waits>> = tasks.iter().map(streams).collect();
    assert!(all[0].is_empty() && all.len() == 5, "{all:?}");
    for (n, waits) in all[1..].iter().enumerate() {
        assert_eq!((waits.len(), waits[0].end), (1, 1 + u64::from(n == 3)), "{all:?}");
        assert_eq!(waits[0].all[0].0, 0);
        // Who is started has less to wait for.
        assert!(waits[0].all[0].1 > 2_000_000 || n > 0, "{all:?}");
    }
}
