//! Lines of real kernels, the same damaged, and lines that were made up.

use super::*;
use crate::people::corpus::{corpus, damaged};
use procfs::FromRead;
use proptest::prelude::*;

static LINES: [&[u8]; 15] = {
    let (a, b, c) = (corpus!("stat"), corpus!("stat.leader-ended"), corpus!("stat.thread"));
    let (d, e) = (corpus!("stat.zombie"), corpus!("stat.kernel"));
    [a[0], a[1], a[2], b[0], b[1], b[2], c[0], c[1], c[2], d[0], d[1], d[2], e[0], e[1], e[2]]
};

#[test]
fn every_kernel_writes_what_we_read() {
    for line in corpus!("stat") {
        let stat = Stat::parse(line).unwrap();
        assert_eq!(stat.comm, b"a b) (c\n");
        assert_eq!((stat.state, stat.parent, stat.threads), (b'S', 1, 4));
        // A TiB is mapped, some MiB are there.
        assert!(stat.vsize > 1 << 40 && stat.rss > 1000 && stat.rss < 2000, "{stat:?}");
        assert!(stat.has_memory() && !stat.is_kernel() && !stat.is_over());
        assert!(stat.ticks > 0 && stat.cpu < 3);
    }
    for line in corpus!("stat.kernel") {
        let stat = Stat::parse(line).unwrap();
        assert!(stat.is_kernel() && !stat.has_memory() && stat.comm == b"kthreadd");
    }
    for line in corpus!("stat.zombie") {
        let stat = Stat::parse(line).unwrap();
        assert!(stat.is_over() && !stat.has_memory() && stat.threads == 1);
    }
    // The leader shows no memory, which its thread has.
    for (leader, thread) in corpus!("stat.leader-ended").into_iter().zip(corpus!("stat.thread")) {
        let (leader, thread) = (Stat::parse(leader).unwrap(), Stat::parse(thread).unwrap());
        assert!(leader.is_over() && !leader.has_memory() && leader.threads == 2);
        assert!(!thread.is_over() && thread.has_memory() && thread.rss > 0);
    }
}

#[test]
fn the_crate_for_proc_reads_the_same() {
    let ours = std::fs::read("/proc/self/stat").unwrap();
    for line in LINES.into_iter().chain([ours.as_slice()]) {
        let ours = Stat::parse(line).unwrap();
        let theirs = procfs::process::Stat::from_read(line).unwrap();
        assert_eq!(String::from_utf8_lossy(&ours.comm), theirs.comm);
        assert_eq!(char::from(ours.state), theirs.state);
        assert_eq!(i64::from(ours.parent), i64::from(theirs.ppid));
        assert_eq!(i64::from(ours.group), i64::from(theirs.pgrp));
        assert_eq!(i64::from(ours.session), i64::from(theirs.session));
        assert_eq!(ours.flags, u64::from(theirs.flags));
        assert_eq!(ours.ticks, theirs.utime + theirs.stime);
        assert_eq!(ours.threads, theirs.num_threads.unsigned_abs());
        assert_eq!((ours.start, ours.vsize), (theirs.starttime, theirs.vsize));
        assert_eq!(ours.rss, theirs.rss);
        assert_eq!(Some(i64::from(ours.cpu)), theirs.processor.map(i64::from));
    }
}

#[test]
fn what_is_no_line_is_none() {
    for text in ["", "1", "1 (x", "1 x) S 1 1", "1 )x( S 1 1 1", "1 (x) S", "1 () \u{e9} 1 1 1"] {
        assert_eq!(Stat::parse(text.as_bytes()), None, "{text}");
    }
    let whole = corpus!("stat")[0];
    let cut = whole.iter().rposition(|b| *b == b' ').unwrap();
    assert!(Stat::parse(&whole[..cut]).is_some(), "later kernels may have more fields or fewer");
    assert_eq!(Stat::parse(&whole[..cut / 2]), None);
}

#[test]
fn sums_of_the_kernel_may_be_below_nothing() {
    let line = String::from_utf8_lossy(corpus!("stat.init")[2]).replace(" 1 ", " -1 ");
    assert!(Stat::parse(line.as_bytes()).is_none(), "no number of threads is negative");
    let mut fields: Vec<&str> = "2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 -24 25 \
                                 26 27 28 29 30 31 32 33 34 35 36 37 38 39"
        .split(' ')
        .collect();
    fields[0] = "1 (x)";
    fields[1] = "S";
    let stat = Stat::parse(fields.join(" ").as_bytes()).unwrap();
    assert_eq!((stat.parent, stat.ticks, stat.start, stat.rss), (4, 29, 22, 0));
    assert_eq!((stat.threads, stat.vsize, stat.cpu), (20, 23, 39));
}

proptest! {
    #[test]
    fn damaged_lines_never_panic(line in damaged(&LINES)) {
        let _ = Stat::parse(&line);
    }
    #[test]
    fn any_bytes_never_panic(line in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Stat::parse(&line);
    }
    #[test]
    fn what_is_written_is_read_back(
        comm in prop::collection::vec(any::<u8>(), 0..16),
        state in prop::sample::select(b"RSDZTtXI".as_slice()),
        ids in any::<[i32; 3]>(),
        flags in any::<u32>(),
        (user, system) in any::<(u64, u64)>(),
        [threads, start, vsize] in any::<[u64; 3]>(),
        rss in any::<i64>(),
        cpu in any::<u32>(),
    ) {
        let [parent, group, session] = ids;
        let mut line = b"1 (".to_vec();
        line.extend(&comm);
        line.extend(format!(
            ") {} {parent} {group} {session} 0 -1 {flags} 1 2 3 4 {user} {system} -1 -2 20 0 \
             {threads} 0 {start} {vsize} {rss} 0 0 0 0 0 0 0 0 0 0 0 0 0 17 {cpu} 0 0\n",
            char::from(state)
        ).bytes());
        let id = |n: i32| u32::try_from(n).unwrap_or(0);
        prop_assert_eq!(Stat::parse(&line), Some(Stat {
            comm,
            state,
            parent: id(parent),
            group: id(group),
            session: id(session),
            flags: flags.into(),
            ticks: user.saturating_add(system),
            threads,
            start,
            vsize,
            rss: rss.max(0).unsigned_abs(),
            cpu,
        }));
    }
}
