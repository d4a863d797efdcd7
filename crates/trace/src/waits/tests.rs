//! Rows go in as lines, and what each wait waited for comes out.

mod counts;
mod spins;

use super::*;
use crate::{Native, Task, Totals};
use expect_test::{Expect, expect};
use proptest::prelude::*;
use std::fmt::Write as _;

/// Tasks 0 to 3: 0 and 1 are threads of one process, 2 and 3 processes of their own; 3 is 2's
/// child. An instruction takes 2 ns natively.
fn header() -> Header {
    let task = |pid| Task { pid, ..Task::default() };
    let child = Task { parent: Some(2), ..task(30) };
    let totals = Totals { insns: 1000, ..Totals::default() };
    let native = Some(Native { user_ns: 1500, sys_ns: 500, ..Native::default() });
    Header { tasks: vec![task(10), task(10), task(20), child], totals, native, ..Header::default() }
}

/// `TASK ORDER WHAT OBJECT ARG INSNS`; an object with `s` before it is known to all.
fn row(line: &str) -> Row {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let number = |i: usize| words.get(i).map_or(0, |w| w.parse().expect("a number"));
    let (kind, of) = match words[2] {
        "exit" => (Kind::Exit, 0),
        "exec" => (Kind::Exec, 0),
        "wakes" => (Kind::Release, Release::Futex as u32),
        "moves" => (Kind::Release, Release::Requeue as u32),
        "writes" => (Kind::Release, Release::Bytes as u32),
        "closes" => (Kind::Release, Release::Close as u32),
        "pairs" => (Kind::Release, Release::Pair as u32),
        "clears" => (Kind::Release, Release::ClearTid as u32),
        "waits" => (Kind::Block, Block::Futex as u32),
        "reads" => (Kind::Block, Block::Bytes as u32),
        "ends" => (Kind::Block, Block::End as u32),
        "ready" => (Kind::Block, Block::Ready as u32),
        "empties" => (Kind::Block, Block::All as u32),
        "room" => (Kind::Block, Block::Room as u32),
        "sleeps" => (Kind::Block, Block::Time as u32),
        "tries" => (Kind::Block, Block::FutexTimeout as u32),
        "polls" => (Kind::Block, Block::ReadyTimeout as u32),
        "child" => (Kind::Block, Block::Child as u32),
        "outside" => (Kind::Block, Block::Outside as u32),
        "changes" => (Kind::Release, Release::Word as u32),
        "sees" => (Kind::Block, Block::Cleared as u32),
        "signals" => (Kind::Release, Release::Signal as u32),
        "sets" => (Kind::Release, Release::Timer as u32),
        "catches" => (Kind::Block, Block::Signal as u32),
        "alarm" => (Kind::Block, Block::Alarm as u32),
        "handles" => (Kind::Block, Block::Handled as u32),
        "unlocks" => (Kind::Release, Release::Unlock as u32),
        "locks" => (Kind::Block, Block::Lock as u32),
        "refused" => (Kind::Block, Block::Refused as u32),
        "connects" => (Kind::Release, Release::Connect as u32),
        "names" => (Kind::Release, Release::Named as u32),
        "from" => (Kind::Release, Release::Accepted as u32),
        "deadline" => (Kind::Release, Release::Deadline as u32),
        "accepts" => (Kind::Block, Block::Accept as u32),
        "carries" => (Kind::Release, Release::Moved as u32),
        "bits" => (Kind::Release, Release::Bits as u32),
        "listens" => (Kind::Release, Release::Listen as u32),
        "writable" => (Kind::Block, Block::Writable as u32),
        "queues" => (Kind::Block, Block::Queue as u32),
        "spins" => (Kind::Block, Block::Spin as u32),
        other => panic!("no such row: {other}"),
    };
    let object = words.get(3).map_or(0, |w| match w.strip_prefix('s') {
        Some(n) => n.parse::<u64>().expect("an object") | SHARED,
        None => w.parse().expect("an object"),
    });
    Row {
        kind,
        task: number(0) as u32,
        insns: number(5),
        page: number(1),
        pages: object,
        reads: of,
        writes: 0,
        arg: number(4),
    }
}

/// The points of a process with so many threads.
fn points_of(threads: usize, rows: &[Row]) -> Points {
    let task = Task { pid: 10, ..Task::default() };
    let header = Header { tasks: vec![task; threads], ..Header::default() };
    let mut points = Points::new(&header);
    for row in rows {
        points.row(row).expect("a possible row");
    }
    points
}

fn check(lines: &str, expected: Expect) {
    let mut points = Points::new(&header());
    let lines: Vec<&str> = lines.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    for line in &lines {
        points.row(&row(line)).expect("a possible row");
    }
    let (after, found) = points.resolve();
    let mut text = String::new();
    for (line, after) in lines.iter().zip(after) {
        match after {
            After::Nothing => {}
            After::Point(p) => writeln!(text, "{line} <- {}", lines[p as usize]).expect("a text"),
            After::Time(ns) => writeln!(text, "{line} <- {ns} ns").expect("a text"),
            After::Turn(p) => {
                writeln!(text, "{line} <- {}, in turn", lines[p as usize]).expect("a text")
            }
            After::Lock(lock, p) => {
                let until = lines[p as usize];
                writeln!(text, "{line} <- lock {lock}, until {until}").expect("a text")
            }
            After::Until(p, ns) => {
                writeln!(text, "{line} <- {}, or {ns} ns", lines[p as usize]).expect("a text")
            }
            After::Meet(n) => writeln!(text, "{line} <- meeting {n}").expect("a text"),
            After::Post(n, more) => writeln!(text, "{line} <- count {n}, +{more}").expect("a text"),
            After::Broadcast(n, more) => {
                writeln!(text, "{line} <- count {n}, +{more}, for all to look").expect("a text")
            }
            After::Take(n, less) => writeln!(text, "{line} <- count {n}, -{less}").expect("a text"),
            After::Due(START, ns) => {
                writeln!(text, "{line} <- {ns} ns after its beginning").expect("a text")
            }
            After::Due(p, ns) => {
                writeln!(text, "{line} <- {ns} ns after {}", lines[p as usize]).expect("a text")
            }
        }
    }
    for (n, count) in points.counts().iter().enumerate() {
        writeln!(text, "count {n}: {} at first, handed over: {}", count.first, count.handed)
            .expect("a text");
    }
    writeln!(text, "{found:?}").expect("a text");
    if *points.spins() != Spins::default() {
        writeln!(text, "{:?}", points.spins()).expect("a text");
    }
    expected.assert_eq(&text);
}

#[test]
fn wakes_reach_waits_in_the_order_in_which_those_began() {
    check(
        "0 1 wakes 64 1
         1 9 waits 64 7
         2 10 waits 64 3
         0 8 wakes 64 1
         0 12 wakes 64 2
         1 15 waits 64 11",
        expect![[r#"
            1 9 waits 64 7 <- 0 1 wakes 64 1
            1 15 waits 64 11 <- 0 8 wakes 64 1
            Found { waits: 3, by_tasks: 2, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 1, outside: (0, 0) }
        "#]],
    );
}

/// Times are in microseconds, in the high 32 bits.
#[test]
fn what_comes_from_outside_lasts_as_long_as_its_row_says() {
    let us = |n: u64| n << 32;
    check(
        &format!(
            "0 1 ready s5 {}
             0 2 reads s5 {}
             0 3 ready s5 {}
             0 4 ends s5 {}
             1 5 ready s6 {}
             1 6 ready s6 0
             2 7 closes s7 {READS_ONLY}
             2 8 ends s7 {}
             3 9 closes s7 0
             3 10 ends s7 {}
             1 11 accepts s9 60
             1 12 from s9 6
             0 13 deadline 0 5000
             0 14 ready s8 {}
             0 15 reads s8 3
             2 16 ready s7 {}
             3 17 ready s10 {}
             3 18 from s11 10
             3 19 accepts s11 5
             0 20 ready s12 {}
             1 21 closes s12 0
             0 22 ready s12 {}
             0 23 ends s12 {}",
            us(50),
            us(20) + 4,
            us(70),
            us(30),
            us(80),
            us(90),
            us(95),
            us(40),
            us(25),
            us(35),
            us(45),
            us(55),
            us(65),
        ),
        expect![[r#"
            0 1 ready s5 214748364800 <- 50000 ns
            0 2 reads s5 85899345924 <- 20000 ns
            0 3 ready s5 300647710720 <- 70000 ns
            0 4 ends s5 128849018880 <- 30000 ns
            1 5 ready s6 343597383680 <- 80000 ns
            2 8 ends s7 386547056640 <- 90000 ns
            1 11 accepts s9 60 <- 60000 ns
            0 14 ready s8 171798691840 <- 40000 ns
            0 15 reads s8 3 <- 0 ns
            3 17 ready s10 150323855360 <- 35000 ns
            3 19 accepts s11 5 <- 5000 ns
            0 20 ready s12 193273528320 <- 45000 ns
            0 23 ends s12 279172874240 <- 1 21 closes s12 0
            Found { waits: 17, by_tasks: 1, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 3, outside: (12, 525000) }
        "#]],
    );
}

#[test]
fn what_address_spaces_share_is_one_word() {
    check(
        "2 1 wakes 64 1
         2 5 wakes s64 1
         0 9 waits 64 3
         1 10 waits s64 4",
        expect![[r#"
            1 10 waits s64 4 <- 2 5 wakes s64 1
            Found { waits: 2, by_tasks: 1, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 1, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn a_wake_reaches_waits_with_which_it_shares_a_bit() {
    // 1 began first, with bit 2. The first wake names bit 1 and reaches 2; the second names all, as
    // it says nothing of bits.
    check(
        "1 12 bits s64 2
         1 13 waits s64 1
         2 9 bits s64 5
         2 10 waits s64 2
         0 8 bits s64 1
         0 8 wakes s64 1
         0 11 wakes s64 1",
        expect![[r#"
            1 13 waits s64 1 <- 0 11 wakes s64 1
            2 10 waits s64 2 <- 0 8 wakes s64 1
            Found { waits: 2, by_tasks: 2, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
    // Bits of another word, or of another row, are none of its; a deadline may stand between.
    check(
        "1 11 bits s64 2
         1 12 deadline 0 500
         1 13 waits s64 1
         2 9 bits s80 1
         2 10 waits s64 2
         0 6 bits s64 1
         0 6 wakes s80 0
         0 8 wakes s64 1",
        expect![[r#"
            1 12 deadline 0 500 <- 500 ns after 1 12 deadline 0 500
            1 13 waits s64 1 <- 0 8 wakes s64 1, in turn
            Found { waits: 2, by_tasks: 1, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 1, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn who_is_moved_to_another_word_is_woken_there() {
    check(
        &format!(
            "0 5 moves 64 {}
             1 9 waits 64 3
             0 7 wakes 128 1",
            1u64 << ADDRESS_BITS | 128
        ),
        expect![[r#"
            1 9 waits 64 3 <- 0 7 wakes 128 1
            Found { waits: 1, by_tasks: 1, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn a_threads_end_wakes_who_joins_it() {
    check(
        "0 1 clears 64 1
         1 5 exit
         0 7 waits 64 3",
        expect![[r#"
            0 7 waits 64 3 <- 1 5 exit
            Found { waits: 1, by_tasks: 1, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn who_sees_that_a_thread_has_ended_comes_after_its_end() {
    check(
        "0 1 clears 64 1
         1 5 exit
         0 7 sees 64",
        expect![[r#"
            0 7 sees 64 <- 1 5 exit
            Found { waits: 0, by_tasks: 0, at_barriers: 0, at_counts: 0, taken: 1, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn a_lock_is_had_until_it_is_given_back() {
    // Task 1 finds it free; then it marks that it waits, is woken, and takes it.
    check(
        "0 1 changes 64 1
         0 2 changes 64 0
         1 3 changes 64 1
         1 4 changes 64 0
         0 5 changes 64 1
         1 7 changes 64 2
         0 8 changes 64 0
         0 9 wakes 64 1
         1 11 waits 64 7
         1 12 changes 64 2
         1 13 changes 64 0",
        expect![[r#"
            0 1 changes 64 1 <- lock 0, until 0 2 changes 64 0
            1 3 changes 64 1 <- lock 0, until 1 4 changes 64 0
            0 5 changes 64 1 <- lock 0, until 0 8 changes 64 0
            1 12 changes 64 2 <- lock 0, until 1 13 changes 64 0
            Found { waits: 1, by_tasks: 1, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 1, locked: 4, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn a_lock_that_is_not_given_back_holds_nobody_up() {
    // Two changes have their numbers the wrong way round: task 1 took it after 0 gave it back.
    // And task 0 has it at the end.
    check(
        "0 1 changes 64 1
         0 2 changes 64 0
         0 3 changes 64 1
         1 4 changes 64 1
         0 5 changes 64 0
         1 6 changes 64 0
         0 7 changes 64 1",
        expect![[r#"
            0 1 changes 64 1 <- lock 0, until 0 2 changes 64 0
            0 3 changes 64 1 <- lock 0, until 0 5 changes 64 0
            Found { waits: 0, by_tasks: 0, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 2, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn a_wait_at_a_lock_that_is_not_taken_after_it_is_a_wait() {
    check(
        "0 1 changes 64 1
         0 2 changes 64 0
         0 3 changes 64 1
         0 4 changes 64 0
         0 5 wakes 64 1
         1 6 waits 64 3",
        expect![[r#"
            0 1 changes 64 1 <- lock 0, until 0 2 changes 64 0
            0 3 changes 64 1 <- lock 0, until 0 4 changes 64 0
            1 6 waits 64 3 <- 0 5 wakes 64 1
            Found { waits: 1, by_tasks: 1, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 2, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn one_of_several_is_woken_in_its_turn() {
    check(
        "1 6 waits s64 1
         2 8 waits s64 2
         0 5 wakes s64 1
         0 7 wakes s64 1",
        expect![[r#"
            1 6 waits s64 1 <- 0 5 wakes s64 1, in turn
            2 8 waits s64 2 <- 0 7 wakes s64 1
            Found { waits: 2, by_tasks: 2, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn who_begins_to_wait_after_a_wake_had_no_turn_in_it() {
    check(
        "1 9 waits s64 1
         0 8 wakes s64 1
         2 12 waits s64 10
         0 11 wakes s64 1",
        expect![[r#"
            1 9 waits s64 1 <- 0 8 wakes s64 1
            2 12 waits s64 10 <- 0 11 wakes s64 1
            Found { waits: 2, by_tasks: 2, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn who_lowers_a_semaphore_comes_after_who_raised_it() {
    // It is 1 at first: who lowers it then takes what nobody here gave.
    let first = 2u64 | 1 << 32;
    check(
        &format!(
            "0 1 changes s64 {first}
             1 2 changes s64 1
             2 3 changes s64 0
             0 4 changes s64 1
             2 5 changes s64 0"
        ),
        expect![[r#"
            2 3 changes s64 0 <- 0 1 changes s64 4294967298, in turn
            2 5 changes s64 0 <- 0 4 changes s64 1, in turn
            Found { waits: 0, by_tasks: 0, at_barriers: 0, at_counts: 0, taken: 2, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn a_read_waits_for_the_write_that_brings_its_last_byte() {
    check(
        "2 1 writes s7 10
         2 2 writes s7 10
         2 6 writes s7 5
         3 4 reads s7 15
         3 5 reads s7 5
         3 8 ready s7
         3 9 reads s7 5
         2 10 closes s7
         3 12 ends s7",
        expect![[r#"
            3 4 reads s7 15 <- 2 2 writes s7 10
            3 5 reads s7 5 <- 2 2 writes s7 10
            3 8 ready s7 <- 2 6 writes s7 5
            3 9 reads s7 5 <- 2 6 writes s7 5
            3 12 ends s7 <- 2 10 closes s7
            Found { waits: 5, by_tasks: 5, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn a_full_pipe_holds_its_writer_until_there_is_room() {
    check(
        "2 1 writes s7 60
         2 2 writes s7 60
         3 5 reads s7 30
         3 7 reads s7 30
         2 9 room s7 64",
        expect![[r#"
            3 5 reads s7 30 <- 2 1 writes s7 60
            3 7 reads s7 30 <- 2 1 writes s7 60
            2 9 room s7 64 <- 3 7 reads s7 30
            Found { waits: 3, by_tasks: 3, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

/// Room in a socket is the kernel's to reckon: who read meanwhile made it, be it that the writer
/// stood in its write or looked for room afterwards.
#[test]
fn a_full_socket_holds_its_writer_until_another_has_read() {
    check(
        &format!(
            "2 1 pairs s7 {}
             2 2 writes s7 60
             3 4 reads s8 30
             2 5 writes s7 60
             3 7 reads s8 30
             3 9 reads s8 30
             2 10 writable s7 5
             2 13 writable s7 2
             3 14 reads s8 30
             3 15 writes s8 3
             2 17 reads s7 3
             2 18 writable s7 8",
            8 | SHARED
        ),
        expect![[r#"
            3 4 reads s8 30 <- 2 2 writes s7 60
            3 7 reads s8 30 <- 2 2 writes s7 60
            3 9 reads s8 30 <- 2 5 writes s7 60
            2 10 writable s7 5 <- 3 9 reads s8 30
            3 14 reads s8 30 <- 2 5 writes s7 60
            2 17 reads s7 3 <- 3 15 writes s8 3
            2 18 writable s7 8 <- 3 14 reads s8 30
            Found { waits: 8, by_tasks: 7, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

/// Task 2 moves what task 0 writes to 7 on to 8, and copies what it writes to 9 to 10; who reads
/// there has smaller numbers than task 2, which is slow to return.
#[test]
fn what_is_moved_is_there_when_it_has_come() {
    let moved = |bytes: u64, ago: u64| bytes | ago << 32;
    check(
        &format!(
            "0 2 writes s7 10
             3 3 reads s8 10
             2 4 reads s7 10
             2 5 carries s8 {}
             0 7 writes s9 10
             3 9 reads s10 10
             2 10 ready s9 0
             2 11 carries s10 {}
             2 12 reads s9 10
             2 14 reads s11 5
             2 15 carries s8 {}
             3 17 reads s8 5",
            moved(10, 4),
            moved(10, 3),
            moved(5, 2),
        ),
        expect![[r#"
            3 3 reads s8 10 <- 2 5 carries s8 17179869194
            2 4 reads s7 10 <- 0 2 writes s7 10
            3 9 reads s10 10 <- 2 11 carries s10 12884901898
            2 10 ready s9 0 <- 0 7 writes s9 10
            2 12 reads s9 10 <- 0 7 writes s9 10
            2 14 reads s11 5 <- 0 ns
            3 17 reads s8 5 <- 2 15 carries s8 8589934597
            Found { waits: 7, by_tasks: 6, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (1, 0) }
        "#]],
    );
}

/// Through a chain of two: the second moves what the first has moved.
#[test]
fn what_is_moved_twice_comes_behind_both() {
    let moved = |bytes: u64, ago: u64| bytes | ago << 32;
    check(
        &format!(
            "1 4 writes s7 10
             3 5 reads s9 10
             2 6 reads s8 10
             2 7 carries s9 {}
             0 8 reads s7 10
             0 9 carries s8 {}",
            moved(10, 6),
            moved(10, 6),
        ),
        expect![[r#"
            3 5 reads s9 10 <- 2 7 carries s9 25769803786
            2 6 reads s8 10 <- 0 9 carries s8 25769803786
            0 8 reads s7 10 <- 1 4 writes s7 10
            Found { waits: 3, by_tasks: 3, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

/// One may wait to be accepted, and one more: the third to connect finds room when the first has
/// been accepted.
#[test]
fn who_connects_to_a_full_queue_waits_until_another_is_accepted() {
    check(
        "2 1 listens 1 1
         3 2 connects s11 5
         3 3 queues s11 0
         3 4 connects s12 5
         3 5 queues s12 0
         3 6 connects s13 5
         2 8 names s21 5
         2 9 from s21 1
         2 10 accepts s21 0
         3 11 queues s13 0
         2 12 names s22 5
         2 13 from s22 1
         2 14 accepts s22 0
         2 15 names s23 5
         2 16 from s23 1
         2 17 accepts s23 0",
        expect![[r#"
            2 10 accepts s21 0 <- 3 2 connects s11 5
            3 11 queues s13 0 <- 2 10 accepts s21 0
            2 14 accepts s22 0 <- 3 4 connects s12 5
            2 17 accepts s23 0 <- 3 6 connects s13 5
            Found { waits: 6, by_tasks: 4, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn what_one_socket_of_a_pair_is_given_comes_out_of_the_other() {
    check(
        &format!(
            "2 1 pairs s7 {}
             2 2 writes s7 10
             3 4 reads s8 10
             3 5 writes s8 1
             2 7 reads s7 1",
            8 | SHARED
        ),
        expect![[r#"
            3 4 reads s8 10 <- 2 2 writes s7 10
            2 7 reads s7 1 <- 3 5 writes s8 1
            Found { waits: 2, by_tasks: 2, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn who_accepts_waits_for_who_connects() {
    // Socket 1 is listened at. 7 and 8 connect by one name, 9 by another; 8's peer is known.
    // Bytes go through before the other end is accepted.
    let listens = 1 | SHARED;
    check(
        &format!(
            "2 1 connects s7 50
             2 2 writes s7 10
             3 3 connects s8 50
             1 4 connects s9 60
             0 5 ready s1
             0 6 pairs s18 {}
             0 7 from s18 {listens}
             0 8 accepts s18 5
             0 9 ready s1
             0 10 names s17 50
             0 11 from s17 {listens}
             0 12 accepts s17 5
             0 13 reads s17 10
             0 14 writes s17 3
             2 16 reads s7 3
             0 17 names s20 70
             0 18 from s20 {listens}
             0 19 accepts s20 5
             0 20 closes s17
             2 22 ends s7",
            8 | SHARED
        ),
        expect![[r#"
            0 5 ready s1 <- 3 3 connects s8 50
            0 8 accepts s18 5 <- 3 3 connects s8 50
            0 9 ready s1 <- 2 1 connects s7 50
            0 12 accepts s17 5 <- 2 1 connects s7 50
            0 13 reads s17 10 <- 2 2 writes s7 10
            2 16 reads s7 3 <- 0 14 writes s17 3
            0 19 accepts s20 5 <- 5000 ns
            2 22 ends s7 <- 0 20 closes s17
            Found { waits: 8, by_tasks: 7, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (1, 5000) }
        "#]],
    );
}

#[test]
fn bytes_that_nobody_here_wrote_come_from_outside() {
    check(
        &format!("2 4 reads s7 {}", 10 | 250u64 << 32),
        expect![[r#"
            2 4 reads s7 1073741824010 <- 250000 ns
            Found { waits: 1, by_tasks: 0, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (1, 250000) }
        "#]],
    );
}

#[test]
fn counters_sleeps_children_and_ends() {
    check(
        "2 1 writes s7 1
         2 2 writes s7 1
         0 4 empties s7
         0 5 sleeps 0 1000
         2 6 writes s7 1
         0 8 empties s7
         3 9 exec
         3 11 exit
         0 12 child 0 3
         1 13 writes s9 4
         1 14 exit
         2 16 reads s9 4
         2 17 ends s9",
        expect![[r#"
            0 4 empties s7 <- 2 1 writes s7 1
            0 5 sleeps 0 1000 <- 1000 ns
            0 8 empties s7 <- 2 6 writes s7 1
            0 12 child 0 3 <- 3 9 exec
            2 16 reads s9 4 <- 1 13 writes s9 4
            2 17 ends s9 <- 1 14 exit
            Found { waits: 6, by_tasks: 5, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn a_wait_in_vain_may_not_be_so_at_another_speed() {
    check(
        "1 2 tries 64 300
         1 4 tries 64 300
         1 5 polls s7 50
         0 6 wakes 64 1
         1 9 waits 64 5
         1 11 tries 64 300",
        expect![[r#"
            1 2 tries 64 300 <- 0 6 wakes 64 1, or 300 ns
            1 4 tries 64 300 <- 0 6 wakes 64 1, or 300 ns
            1 5 polls s7 50 <- 50 ns
            1 9 waits 64 5 <- 0 6 wakes 64 1
            1 11 tries 64 300 <- 300 ns
            Found { waits: 5, by_tasks: 1, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn who_looks_again_and_again_in_vain_goes_by_what_others_do() {
    // Three times as long; then twice, which is a sleep. What was before such a wait began does
    // not end it.
    check(
        "1 1 writes s7 1
         2 2 writes s7 1
         0 4 polls s5 50
         2 5 changes s9 1
         2 6 changes s9 0
         0 8 polls s5 50
         0 9 polls s5 50
         0 10 changes s9 1
         0 11 changes s9 0
         2 12 changes s9 1
         2 13 changes s9 0
         0 14 polls s5 60
         2 15 changes s9 1
         2 16 changes s9 0
         0 17 polls s5 60
         0 18 changes s9 1
         0 19 changes s9 0",
        expect![[r#"
            0 4 polls s5 50 <- 50 ns
            2 5 changes s9 1 <- lock 0, until 2 6 changes s9 0
            0 8 polls s5 50 <- 50 ns
            0 9 polls s5 50 <- 50 ns
            0 10 changes s9 1 <- lock 0, until 0 11 changes s9 0
            2 12 changes s9 1 <- lock 0, until 2 13 changes s9 0
            0 14 polls s5 60 <- 60 ns
            2 15 changes s9 1 <- lock 0, until 2 16 changes s9 0
            0 17 polls s5 60 <- 60 ns
            0 18 changes s9 1 <- lock 0, until 0 19 changes s9 0
            Found { waits: 5, by_tasks: 0, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 5, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn a_signal_ends_the_wait_during_which_it_was_sent() {
    // Signals 1 and 2; the first wait is for the second only. Then one was held back, and one
    // is for another thread.
    let one = ONE_THREAD | 1;
    check(
        &format!(
            "2 1 signals 3 1
             2 3 signals 3 2
             3 5 catches 2 3
             2 6 signals 3 1
             3 8 catches 3 1
             3 9 catches 3 1
             2 10 signals 0 {one}
             1 12 catches 1 5
             0 13 catches 1 5
             2 14 signals s9223372036854775807 1
             1 15 catches 1 1"
        ),
        expect![[r#"
            3 5 catches 2 3 <- 2 3 signals 3 2
            3 8 catches 3 1 <- 2 6 signals 3 1
            3 9 catches 3 1 <- 2 6 signals 3 1
            1 12 catches 1 5 <- 0 ns
            0 13 catches 1 5 <- 2 10 signals 0 257
            1 15 catches 1 1 <- 2 14 signals s9223372036854775807 1
            Found { waits: 6, by_tasks: 5, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (1, 0) }
        "#]],
    );
}

#[test]
fn a_childs_end_is_a_signal() {
    check(
        "3 5 exit
         2 7 catches 65536 3
         0 9 catches 65536 3",
        expect![[r#"
            2 7 catches 65536 3 <- 3 5 exit
            0 9 catches 65536 3 <- 0 ns
            Found { waits: 2, by_tasks: 1, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (1, 0) }
        "#]],
    );
}

#[test]
fn a_handler_runs_after_its_signal_and_once_for_it() {
    // The second has nobody who sent it; signal 10 is bit 9.
    check(
        "2 4 signals 0 10
         0 6 handles 512
         0 7 handles 512
         2 9 signals 0 10
         0 11 handles 512",
        expect![[r#"
            0 6 handles 512 <- 2 4 signals 0 10
            0 11 handles 512 <- 2 9 signals 0 10
            Found { waits: 0, by_tasks: 0, at_barriers: 0, at_counts: 0, taken: 2, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn who_is_killed_ends_after_that() {
    // The end has no number; who reads to its end comes after it.
    check(
        "3 4 writes s7 5
         2 5 reads s7 5
         2 8 signals 3 9
         3 0 exit 0 265
         2 11 ends s7
         2 0 exit 0 265",
        expect![[r#"
            2 5 reads s7 5 <- 3 4 writes s7 5
            3 0 exit 0 265 <- 2 8 signals 3 9
            2 11 ends s7 <- 3 0 exit 0 265
            Found { waits: 2, by_tasks: 2, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn a_timer_runs_while_its_task_computes_and_sleeps() {
    // 100 instructions are 200 ns. The timer ends twice; another task waits for it as a whole.
    check(
        "0 1 sets 0 5000 50
         0 2 sleeps 0 1000 50
         0 3 alarm 0 5000 50
         0 4 alarm 0 3000 100
         1 5 alarm 0 3000 100
         2 6 alarm 0 700 100
         3 7 sets 0 900
         3 0 exit 0 270 100",
        expect![[r#"
            0 2 sleeps 0 1000 50 <- 1000 ns
            0 3 alarm 0 5000 50 <- 3800 ns
            0 4 alarm 0 3000 100 <- 2800 ns
            1 5 alarm 0 3000 100 <- 3000 ns
            2 6 alarm 0 700 100 <- 700 ns
            3 0 exit 0 270 100 <- 700 ns
            Found { waits: 5, by_tasks: 0, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

fn lock(exclusive: bool, of_open_file: bool, from: u64, to: u64) -> u64 {
    FileLock { exclusive, of_open_file, from, to }.pack()
}

#[test]
fn who_locks_a_file_comes_after_who_unlocked_it() {
    // Bytes 0 to 9 alone, then those from 5 on; some share the first, and one is alone after them. What
    // another program's threads do among themselves is no wait.
    let [first, rest] = [lock(true, false, 0, 10), lock(true, false, 5, u64::MAX)];
    let [far, shared] = [lock(true, false, 20, 21), lock(false, false, 0, 5)];
    check(
        &format!(
            "2 1 locks s7 {first}
             3 2 locks s7 {far}
             2 3 unlocks s7 {first}
             3 5 locks s7 {rest}
             0 6 locks s7 {shared}
             3 7 unlocks s7 {rest}
             1 8 locks s7 {rest}
             0 9 unlocks s7 {rest}
             2 11 locks s7 {shared}
             3 12 locks s7 {shared}
             2 13 unlocks s7 {shared}
             3 14 unlocks s7 {shared}
             1 16 locks s7 {first}"
        ),
        expect![[r#"
            3 5 locks s7 18446744065119617045 <- 2 3 unlocks s7 85899345921, in turn
            0 6 locks s7 42949672960 <- 2 3 unlocks s7 85899345921, in turn
            1 8 locks s7 18446744065119617045 <- 3 7 unlocks s7 18446744065119617045, in turn
            3 12 locks s7 42949672960 <- 2 3 unlocks s7 85899345921, in turn
            1 16 locks s7 85899345921 <- 3 14 unlocks s7 42949672960, in turn
            Found { waits: 0, by_tasks: 0, at_barriers: 0, at_counts: 0, taken: 5, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn sleeps_between_tries_at_a_lock_end_when_it_is_free() {
    // The sleep before the first try is one, and so is what follows another wait; then a part
    // of the same lock is refused.
    let [all, part] = [lock(true, false, 0, 10), lock(true, false, 5, 6)];
    // What is had during such tries nobody waits for.
    let far = lock(true, false, 20, 21);
    check(
        &format!(
            "2 1 locks s7 {all}
             3 2 sleeps 0 100
             3 3 refused s7 {all}
             3 4 sleeps 0 200
             3 5 locks s7 {far}
             3 5 unlocks s7 {far}
             2 5 locks s7 {far}
             3 5 refused s7 {part}
             3 6 sleeps 0 300
             3 7 sleeps 0 400
             2 8 unlocks s7 {all}
             3 10 locks s7 {all}
             3 11 sleeps 0 500"
        ),
        expect![[r#"
            3 2 sleeps 0 100 <- 100 ns
            3 4 sleeps 0 200 <- 2 8 unlocks s7 85899345921, or 200 ns
            3 6 sleeps 0 300 <- 2 8 unlocks s7 85899345921, or 300 ns
            3 7 sleeps 0 400 <- 400 ns
            3 10 locks s7 85899345921 <- 2 8 unlocks s7 85899345921, in turn
            3 11 sleeps 0 500 <- 500 ns
            Found { waits: 5, by_tasks: 0, at_barriers: 0, at_counts: 0, taken: 1, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn a_lock_that_nobody_gives_back_ends_with_a_descriptor_or_a_task() {
    // A process's own, closed and then ended with it.
    let own = lock(true, false, 0, 1);
    check(
        &format!(
            "2 1 locks s7 {own}
             3 2 closes s7
             2 3 closes s7
             3 5 locks s7 {own}
             3 6 exit
             2 8 locks s7 {own}"
        ),
        expect![[r#"
            3 5 locks s7 8589934593 <- 2 3 closes s7, in turn
            2 8 locks s7 8589934593 <- 3 6 exit, in turn
            Found { waits: 0, by_tasks: 0, at_barriers: 0, at_counts: 0, taken: 2, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
    // An open file's: its locker has ended, and its parent has it still; 0 is no relation.
    let open = lock(true, true, 0, u64::MAX);
    check(
        &format!(
            "3 1 locks s7 {open}
             3 2 exit
             0 3 closes s7
             2 4 closes s7
             0 6 locks s7 {open}
             0 7 unlocks s7 {open}
             2 9 locks s7 {open}"
        ),
        expect![[r#"
            0 6 locks s7 18446744065119617027 <- 2 4 closes s7, in turn
            2 9 locks s7 18446744065119617027 <- 0 7 unlocks s7 18446744065119617027, in turn
            Found { waits: 0, by_tasks: 0, at_barriers: 0, at_counts: 0, taken: 2, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn who_waits_in_vain_longer_than_the_program_runs_has_not_waited() {
    let mut header = header();
    header.native = Some(Native { wall_ns: 1000, ..Native::default() });
    let mut points = Points::new(&header);
    for line in ["1 2 tries 64 999", "1 4 polls s7 50", "1 6 tries 64 1000"] {
        points.row(&row(line)).expect("a possible row");
    }
    let (after, found) = points.resolve();
    assert_eq!(after, [After::Time(999), After::Time(50), After::Nothing]);
    assert_eq!(found.unknown, 1);
}

#[test]
fn who_meets_at_a_barrier_waits_for_all() {
    let rise = |before: u64, now: u64| before << 32 | now;
    let word = "s1";
    // Three meet three times, and another comes last each time; in the last one task 3 comes
    // when it is over.
    check(
        &format!(
            "2 9 waits {word} 1
             3 10 waits {word} 2
             0 4 changes {word} {}
             0 5 wakes {word} 2
             0 19 waits {word} 11
             3 20 waits {word} 12
             2 14 changes {word} {}
             2 15 wakes {word} 2
             0 29 waits {word} 21
             2 24 changes {word} {}
             2 25 wakes {word} 1",
            rise(0, 3),
            rise(3, 6),
            rise(6, 9),
        ),
        expect![[r#"
            2 9 waits s1 1 <- meeting 0
            3 10 waits s1 2 <- meeting 0
            0 5 wakes s1 2 <- meeting 0
            0 19 waits s1 11 <- meeting 1
            3 20 waits s1 12 <- meeting 1
            2 15 wakes s1 2 <- meeting 1
            0 29 waits s1 21 <- 2 25 wakes s1 1
            Found { waits: 5, by_tasks: 5, at_barriers: 4, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
    // Turns: the word is raised by one for each, or lowered again.
    check(
        &format!(
            "2 9 waits s1 1
             0 4 changes s1 {}
             0 5 wakes s1 1
             2 19 waits s2 11
             0 14 changes s2 {}
             0 15 wakes s2 1
             2 20 changes s2 {}",
            rise(0, 1),
            rise(0, 2),
            rise(2, 1),
        ),
        expect![[r#"
            2 9 waits s1 1 <- 0 5 wakes s1 1
            2 19 waits s2 11 <- 0 15 wakes s2 1
            2 20 changes s2 8589934593 <- 0 14 changes s2 2, in turn
            Found { waits: 2, by_tasks: 2, at_barriers: 0, at_counts: 0, taken: 1, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
    // A damaged file: task 2's point before its wait is later than the wake.
    check(
        &format!(
            "2 6 writes s7 1
             2 9 waits s1 1
             0 4 changes s1 {}
             0 5 wakes s1 1",
            rise(0, 2),
        ),
        expect![[r#"
            2 9 waits s1 1 <- 0 5 wakes s1 1
            Found { waits: 1, by_tasks: 1, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn a_deadline_counts_from_where_the_task_looked_at_the_clock() {
    // 100 instructions are 200 ns. Task 1 looks at the clock once, 50 instructions after its
    // beginning, and sleeps until 1,000 and 2,000 ns after that; the emulator is late by then.
    // Task 0 looks each time anew, in vain at first; then it is woken. Task 2 has a deadline
    // for what is over at once, and one before another program.
    check(
        "1 1 deadline 100 1000 150
         1 2 sleeps 0 30
         1 3 deadline 200 2000 100
         1 4 sleeps 0 0
         0 5 sleeps 0 10 10
         0 6 deadline 20 500 30
         0 7 tries 64 180
         0 8 deadline 0 600
         1 9 wakes 64 1
         0 10 waits 64 8
         2 11 deadline 0 50
         2 12 waits 128 11
         2 13 deadline 0 50
         2 14 exec",
        expect![[r#"
            1 1 deadline 100 1000 150 <- 1100 ns after its beginning
            1 2 sleeps 0 30 <- 30 ns
            1 3 deadline 200 2000 100 <- 2100 ns after its beginning
            1 4 sleeps 0 0 <- 0 ns
            0 5 sleeps 0 10 10 <- 10 ns
            0 6 deadline 20 500 30 <- 520 ns after 0 5 sleeps 0 10 10
            0 7 tries 64 180 <- 1 9 wakes 64 1, or 500 ns
            0 8 deadline 0 600 <- 600 ns after 0 8 deadline 0 600
            0 10 waits 64 8 <- 1 9 wakes 64 1
            Found { waits: 6, by_tasks: 1, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 1, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn who_looks_again_until_a_moment_looks_as_long_each_time() {
    // What is left until a moment differs, since it takes time to ask for it; the moments are
    // reckoned alike.
    check(
        "0 1 deadline 0 500
         0 2 tries 64 480
         2 3 changes s9 1
         2 4 changes s9 0
         0 5 deadline 0 500
         0 6 tries 64 470
         0 7 deadline 0 500
         0 8 tries 64 460
         2 9 writes s7 1
         0 10 reads s7 1",
        expect![[r#"
            0 1 deadline 0 500 <- 500 ns after 0 1 deadline 0 500
            0 2 tries 64 480 <- 2 9 writes s7 1, or 500 ns
            2 3 changes s9 1 <- lock 0, until 2 4 changes s9 0
            0 5 deadline 0 500 <- 500 ns after 0 5 deadline 0 500
            0 6 tries 64 470 <- 2 9 writes s7 1, or 500 ns
            0 7 deadline 0 500 <- 500 ns after 0 7 deadline 0 500
            0 8 tries 64 460 <- 2 9 writes s7 1, or 500 ns
            0 10 reads s7 1 <- 2 9 writes s7 1
            Found { waits: 4, by_tasks: 1, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 1, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn an_order_that_goes_back_is_no_order() {
    let mut points = Points::new(&header());
    points.row(&row("0 5 wakes 64 1")).expect("a row");
    let refused = points.row(&row("0 4 wakes 64 1"));
    assert_eq!(refused, Err("task 0's order goes back from 5 to 4".to_owned()));
}

proptest! {
    /// Whatever a file says, a wait waits for something earlier: so nobody waits in a circle.
    #[test]
    fn what_a_wait_waits_for_is_earlier(rows in prop::collection::vec(
        (0u32..4, 0u32..9, 0u32..60, 0u64..4, any::<u64>(), 1u64..3), 0..200)) {
        let mut points = Points::new(&header());
        let mut order = 0;
        let mut all = Vec::new();
        let mut killed = [false; 4];
        for (task, kind, of, object, arg, step) in rows {
            order += step;
            if killed[task as usize] {
                continue;
            }
            let (kind, of) = match kind {
                0..4 => (Kind::Release, of % Release::ALL.len() as u32),
                4..8 => (Kind::Block, of % Block::ALL.len() as u32),
                _ => (Kind::Exit, 0),
            };
            // Small amounts as well as any; some end by a signal, and nobody saw it.
            killed[task as usize] = kind == Kind::Exit;
            let arg = match kind {
                Kind::Exit => 257 + arg % 4,
                _ if arg % 2 == 0 => arg >> 1 & 7,
                _ => arg,
            };
            let page = if kind == Kind::Exit { 0 } else { order };
            let row = Row { kind, task, insns: arg & 7, page, pages: object, reads: of, writes: 0, arg };
            points.row(&row).expect("a row");
            all.push((task, kind));
        }
        let (after, found) = points.resolve();
        prop_assert_eq!(after.len(), all.len());
        let by = |n: usize| match after[n] {
            After::Point(p) | After::Turn(p) => Some(p as usize),
            // Who has the lock is for the replay to say: it opens circles.
            After::Lock(..)
            | After::Nothing
            | After::Time(_)
            | After::Until(..)
            | After::Meet(_)
            | After::Post(..)
            | After::Broadcast(..)
            | After::Take(..)
            | After::Due(..) => None,
        };
        let takes = |n: usize| matches!(after[n], After::Take(..));
        let waits = (0..all.len()).filter(|&n| all[n].1 != Kind::Exit && by(n).is_some());
        let taken = (0..all.len()).filter(|&n| takes(n) && all[n].1 == Kind::Release).count();
        let others = found.by_tasks - found.for_locks - found.at_barriers - found.at_counts;
        prop_assert_eq!(others + found.taken, (waits.count() + taken) as u64);
        // Every task goes on as far as it comes, until none does.
        let mut passed = vec![false; all.len()];
        let mut next = [0; 4];
        loop {
            let before = next;
            for (task, next) in (0..).zip(&mut next) {
                let meets = |n: usize| match after[n] {
                    After::Meet(m) => (0..all.len())
                        .filter(|&o| after[o] == After::Meet(m))
                        .all(|o| before[all[o].0 as usize] >= o || all[o].0 == task),
                    After::Nothing
                    | After::Point(_)
                    | After::Time(_)
                    | After::Until(..)
                    | After::Turn(_)
                    | After::Lock(..)
                    | After::Post(..)
                    | After::Broadcast(..)
                    | After::Take(..)
                    | After::Due(..) => true,
                };
                while *next < all.len()
                    && (all[*next].0 != task
                        || by(*next).is_none_or(|p| passed[p]) && meets(*next))
                {
                    passed[*next] |= all[*next].0 == task;
                    *next += 1;
                }
            }
            if next == before {
                break;
            }
        }
        prop_assert!(next.iter().all(|&n| n == all.len()), "{next:?}");
        for n in 0..all.len() {
            prop_assert!(by(n).is_none_or(|p| all[p].0 != all[n].0));
        }
        let mut locked = 0;
        for (n, after) in after.iter().enumerate() {
            // A deadline counts from what the task itself was at before.
            if let After::Due(base, _) = *after {
                let own = base == START || all[base as usize].0 == all[n].0;
                prop_assert!(own && (base == START || base as usize <= n));
            }
            // A lock is given back by who took it, and later.
            if let After::Lock(_, back) = *after {
                prop_assert!(all[back as usize].0 == all[n].0 && back as usize > n);
                locked += 1;
            }
        }
        prop_assert_eq!(found.locked, locked);
    }
}
