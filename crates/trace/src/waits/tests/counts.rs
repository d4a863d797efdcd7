//! Semaphores, condition variables and barriers: lines in, and programs of threads that are
//! recorded here as the recorder would.

use super::*;

/// A change of a word, as its row's argument has it.
fn change(before: u64, now: u64) -> u64 {
    before << 32 | now
}

#[test]
fn a_semaphore_goes_to_who_comes_first() {
    // It is 1 at first. Task 1 waits, is woken when 2 has taken what was there, and waits again.
    let (up, down, same) = (change(0, 1), change(1, 0), change(0, 0));
    check(
        &format!(
            "0 1 changes s1 {down}
             1 8 waits s1 2
             2 5 changes s1 {same}
             0 6 changes s1 {up}
             0 7 wakes s1 1
             2 9 changes s1 {down}
             1 14 waits s1 10
             0 12 changes s1 {up}
             0 13 wakes s1 1
             1 15 changes s1 {down}
             0 16 changes s1 {up}
             2 17 changes s1 {down}"
        ),
        expect![[r#"
            0 1 changes s1 4294967296 <- count 0, -1
            0 6 changes s1 1 <- count 0, +1
            2 9 changes s1 4294967296 <- count 0, -1
            1 14 waits s1 10 <- count 0, -1
            0 12 changes s1 1 <- count 0, +1
            0 16 changes s1 1 <- count 0, +1
            2 17 changes s1 4294967296 <- count 0, -1
            count 0: 1 at first, handed over: false
            Found { waits: 2, by_tasks: 2, at_barriers: 0, at_counts: 2, taken: 3, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
    // Posts from 1 to 2 while somebody wakes: odd and even mean nothing at a semaphore.
    check(
        &format!(
            "0 2 changes 40 {up}
             0 3 wakes 40 1
             0 4 changes 40 {}
             0 5 wakes 40 1
             1 6 waits 40 1
             1 7 changes 40 {}
             1 8 changes 40 {down}",
            change(1, 2),
            change(2, 1),
        ),
        expect![[r#"
            0 2 changes 40 1 <- count 0, +1
            0 4 changes 40 4294967298 <- count 0, +1
            1 6 waits 40 1 <- count 0, -1
            1 8 changes 40 4294967296 <- count 0, -1
            count 0: 0 at first, handed over: false
            Found { waits: 1, by_tasks: 1, at_barriers: 0, at_counts: 1, taken: 1, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
    // A lock wakes when it is back at 0: it is none.
    check(
        &format!(
            "0 1 changes s1 {up}
             1 8 waits s1 2
             0 6 changes s1 {down}
             0 7 wakes s1 1
             1 9 changes s1 {}",
            change(0, 2),
        ),
        expect![[r#"
            0 1 changes s1 1 <- lock 0, until 0 6 changes s1 4294967296
            1 8 waits s1 2 <- 0 7 wakes s1 1
            Found { waits: 1, by_tasks: 1, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 1, unknown: 0, outside: (0, 0) }
        "#]],
    );
    // Changes that have their numbers the wrong way round: what is taken too early is free, and
    // what is given for it then gives nothing.
    check(
        &format!(
            "1 4 waits 64 1
             0 2 changes 64 {up}
             0 3 wakes 64 1
             1 5 changes 64 {down}
             1 6 changes 64 {down}
             0 7 changes 64 {up}
             0 8 changes 64 {up}
             1 9 changes 64 {down}"
        ),
        expect![[r#"
            1 4 waits 64 1 <- count 0, -1
            0 2 changes 64 1 <- count 0, +1
            0 8 changes 64 1 <- count 0, +1
            1 9 changes 64 4294967296 <- count 0, -1
            count 0: 0 at first, handed over: false
            Found { waits: 1, by_tasks: 1, at_barriers: 0, at_counts: 1, taken: 1, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

#[test]
fn a_signal_is_for_who_waits_at_the_condition_variable() {
    // Words 40 and 44 are one condition variable's, one for each group. The first is over when
    // the second has its turn, and begins anew at 0, which nobody sees.
    let (signal, taken) = (change(0, 2), change(2, 0));
    check(
        &format!(
            "1 3 changes 40 {signal}
             1 4 wakes 40 1
             0 5 waits 40 2
             0 6 changes 40 {taken}
             1 7 changes 40 {}
             1 9 changes 44 {signal}
             1 10 wakes 44 1
             0 11 waits 44 8
             0 12 changes 44 {taken}
             1 13 changes 40 {}
             1 14 wakes 40 1
             0 15 changes 40 {taken}",
            change(0, 1),
            change(1, 2),
        ),
        expect![[r#"
            1 3 changes 40 2 <- count 0, +1
            0 5 waits 40 2 <- count 0, -1
            1 9 changes 44 2 <- count 0, +1
            0 11 waits 44 8 <- count 0, -1
            1 13 changes 40 4294967298 <- count 0, +1
            0 15 changes 40 8589934592 <- count 0, -1
            count 0: 0 at first, handed over: true
            Found { waits: 2, by_tasks: 2, at_barriers: 0, at_counts: 2, taken: 1, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
    // Who ends a group waits until those have left who were woken there. In a replay others may
    // have been woken, and the one who has not left may wait for a lock that this task has.
    check(
        &format!(
            "1 3 changes 40 {signal}
             1 4 wakes 40 1
             0 5 waits 40 2
             0 6 changes 40 {taken}
             0 7 changes 16 {}
             0 8 wakes 16 1
             1 9 waits 16 4",
            change(3, 1),
        ),
        expect![[r#"
            1 3 changes 40 2 <- count 0, +1
            0 5 waits 40 2 <- count 0, -1
            count 0: 0 at first, handed over: true
            Found { waits: 2, by_tasks: 1, at_barriers: 0, at_counts: 1, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
    // Who was woken says that it has left the group before it looks: it has taken one, not two, and
    // nothing of who has come to the group.
    check(
        &format!(
            "1 2 changes 16 {signal}
             1 3 changes 40 {signal}
             1 4 wakes 40 1
             0 5 waits 40 2
             0 6 changes 16 {taken}
             0 7 changes 40 {taken}
             1 9 changes 40 {signal}
             1 10 wakes 40 1
             0 11 waits 40 8
             0 12 changes 16 {taken}
             0 13 changes 40 {taken}"
        ),
        expect![[r#"
            1 3 changes 40 2 <- count 0, +1
            0 5 waits 40 2 <- count 0, -1
            1 9 changes 40 2 <- count 0, +1
            0 11 waits 40 8 <- count 0, -1
            count 0: 0 at first, handed over: true
            Found { waits: 2, by_tasks: 2, at_barriers: 0, at_counts: 2, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
    // Groups that end before those who were woken there look, more of them than signals taken:
    // who was woken leaves, and does something else.
    let (over, begins, up) = (change(2, 3), change(3, 2), change(0, 1));
    check(
        &format!(
            "1 3 changes 40 {signal}
             1 4 wakes 40 1
             1 5 changes 40 {over}
             0 6 waits 40 2
             0 6 changes 52 {up}
             1 7 changes 40 {begins}
             1 8 wakes 40 1
             1 9 changes 40 {over}
             0 10 waits 40 7
             0 10 changes 52 {up}
             1 11 changes 40 {begins}
             1 12 wakes 40 1
             0 13 waits 40 11
             0 14 changes 40 {taken}",
        ),
        expect![[r#"
            1 3 changes 40 2 <- count 0, +1
            0 6 waits 40 2 <- count 0, -1
            1 7 changes 40 12884901890 <- count 0, +1
            0 10 waits 40 7 <- count 0, -1
            1 11 changes 40 12884901890 <- count 0, +1
            0 13 waits 40 11 <- count 0, -1
            count 0: 0 at first, handed over: true
            Found { waits: 3, by_tasks: 3, at_barriers: 0, at_counts: 3, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
    // What a broadcast gives stays as recorded.
    check(
        &format!(
            "1 3 changes 40 {signal}
             1 4 wakes 40 1
             0 5 waits 40 2
             0 6 changes 40 {taken}
             1 8 changes 40 {}
             1 9 wakes 40 2
             0 10 waits 40 7
             0 11 changes 40 {}",
            change(0, 4),
            change(4, 2),
        ),
        expect![[r#"
            1 3 changes 40 2 <- count 0, +1
            0 5 waits 40 2 <- count 0, -1
            0 10 waits 40 7 <- 1 9 wakes 40 2
            0 11 changes 40 17179869186 <- 1 8 changes 40 4, in turn
            count 0: 0 at first, handed over: true
            Found { waits: 2, by_tasks: 2, at_barriers: 0, at_counts: 1, taken: 1, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
    // Where all whom broadcasts wake go on, there is no first: it stays as recorded too.
    let (two, one) = (change(0, 4), change(4, 2));
    check(
        &format!(
            "0 3 changes s40 {two}
             0 4 wakes s40 2
             1 5 waits s40 1
             1 6 changes s40 {one}
             2 7 waits s40 2
             2 8 changes s40 {taken}
             0 11 changes s40 {two}
             0 12 wakes s40 2
             1 13 waits s40 9
             1 14 changes s40 {one} 5000
             2 15 waits s40 10
             2 16 changes s40 {taken}"
        ),
        expect![[r#"
            1 5 waits s40 1 <- 0 4 wakes s40 2
            1 6 changes s40 17179869186 <- 0 3 changes s40 4, in turn
            2 7 waits s40 2 <- 0 4 wakes s40 2
            2 8 changes s40 8589934592 <- 0 3 changes s40 4, in turn
            1 13 waits s40 9 <- 0 12 wakes s40 2
            1 14 changes s40 17179869186 5000 <- 0 11 changes s40 4, in turn
            2 15 waits s40 10 <- 0 12 wakes s40 2
            2 16 changes s40 8589934592 <- 0 11 changes s40 4, in turn
            Found { waits: 4, by_tasks: 4, at_barriers: 0, at_counts: 0, taken: 4, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
    // Where those who wait signal too, they take turns: it stays as recorded.
    check(
        &format!(
            "1 3 changes 40 {signal}
             1 4 wakes 40 1
             0 5 waits 40 2
             0 6 changes 40 {taken}
             0 8 changes 40 {signal}
             0 9 wakes 40 1
             1 10 waits 40 7
             1 11 changes 40 {taken}"
        ),
        expect![[r#"
            0 5 waits 40 2 <- 1 4 wakes 40 1
            0 6 changes 40 8589934592 <- 1 3 changes 40 2, in turn
            1 10 waits 40 7 <- 0 9 wakes 40 1
            1 11 changes 40 8589934592 <- 0 8 changes 40 2, in turn
            Found { waits: 2, by_tasks: 2, at_barriers: 0, at_counts: 0, taken: 2, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
    // A wait of a time that was in vain is over when the next signal comes, or its time is.
    check(
        &format!(
            "1 3 changes 40 {signal}
             1 4 wakes 40 1
             0 5 waits 40 2
             0 6 changes 40 {taken}
             0 7 tries 40 500
             1 8 changes 40 {signal}
             1 9 wakes 40 1
             0 10 deadline 0 500
             0 11 waits 40 7
             0 12 changes 40 {taken}"
        ),
        expect![[r#"
            1 3 changes 40 2 <- count 0, +1
            0 5 waits 40 2 <- count 0, -1
            0 7 tries 40 500 <- 1 8 changes 40 2, or 500 ns
            1 8 changes 40 2 <- count 0, +1
            0 10 deadline 0 500 <- 500 ns after 0 10 deadline 0 500
            0 11 waits 40 7 <- count 0, -1
            count 0: 0 at first, handed over: true
            Found { waits: 3, by_tasks: 2, at_barriers: 0, at_counts: 2, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

/// Threads 1 and 2 wait for items of a queue, each of which thread 0 tells all of. Lock 80 is theirs.
#[test]
fn a_broadcast_may_be_for_who_comes_first() {
    let (all, first, second) = (change(0, 4), change(4, 2), change(2, 0));
    let (locks, unlocks) = (change(0, 1), change(1, 0));
    let check = |lines: &[String], expected: Expect| {
        let rows: Vec<Row> = lines.iter().map(|l| row(l)).collect();
        let mut points = points_of(3, &rows);
        let (after, found) = points.resolve();
        let mut text = String::new();
        for (line, after) in lines.iter().zip(after).filter(|(_, after)| *after != After::Nothing) {
            writeln!(text, "{line}: {after:?}").expect("a text");
        }
        writeln!(text, "{:?} {found:?}", points.counts()).expect("a text");
        expected.assert_eq(&text);
    };
    // The first of two that looks goes on, and looks for the next when it has done its work; the
    // other waits again.
    let round = |t: u64, went: u64, stayed: u64| {
        [
            format!("0 {} changes 40 {all}", t + 1),
            format!("0 {} wakes 40 2", t + 2),
            format!("{went} {} waits 40 {t}", t + 3),
            format!("{went} {} changes 40 {first} 1", t + 4),
            format!("{went} {} changes 80 {locks} 1", t + 5),
            format!("{went} {} changes 80 {unlocks} 1", t + 6),
            format!("{stayed} {} waits 40 {t}", t + 7),
            format!("{stayed} {} changes 40 {second} 1", t + 8),
            format!("{stayed} {} changes 80 {locks} 1", t + 9),
            format!("{stayed} {} changes 80 {unlocks} 1", t + 10),
            // What it has found takes its time.
            format!("{went} {} changes 80 {locks} 5000", t + 11),
            format!("{went} {} changes 80 {unlocks} 1", t + 12),
        ]
    };
    let three = [round(0, 1, 2), round(20, 2, 1), round(40, 2, 1)].concat();
    check(
        &three,
        expect![[r#"
            0 1 changes 40 4: Broadcast(0, 1)
            1 3 waits 40 0: Take(0, 1)
            1 5 changes 80 1 1: Lock(0, 5)
            2 9 changes 80 1 1: Lock(0, 9)
            1 11 changes 80 1 5000: Lock(0, 11)
            0 21 changes 40 4: Broadcast(0, 1)
            2 23 waits 40 20: Take(0, 1)
            2 25 changes 80 1 1: Lock(0, 17)
            1 29 changes 80 1 1: Lock(0, 21)
            2 31 changes 80 1 5000: Lock(0, 23)
            0 41 changes 40 4: Broadcast(0, 2)
            2 43 waits 40 40: Take(0, 1)
            2 45 changes 80 1 1: Lock(0, 29)
            1 47 waits 40 40: Take(0, 1)
            1 49 changes 80 1 1: Lock(0, 33)
            2 51 changes 80 1 5000: Lock(0, 35)
            [Count { first: 0, handed: true }] Found { waits: 6, by_tasks: 6, at_barriers: 0, at_counts: 6, taken: 0, for_locks: 0, locked: 9, unknown: 0, outside: (0, 0) }
        "#]],
    );
    // Where as often the other goes on, it was for one alone.
    let late = |t: u64, went: u64, stayed: u64| {
        let mut lines = round(t, stayed, went).to_vec();
        lines[10] = format!("{went} {} changes 80 {locks} 5000", t + 11);
        lines[11] = format!("{went} {} changes 80 {unlocks} 1", t + 12);
        lines
    };
    let three = [round(0, 1, 2).to_vec(), late(20, 2, 1), late(40, 1, 2), round(60, 1, 2).to_vec()]
        .concat();
    check(
        &three,
        expect![[r#"
            1 3 waits 40 0: Point(1)
            1 4 changes 40 17179869186 1: Turn(0)
            1 5 changes 80 1 1: Lock(0, 5)
            2 7 waits 40 0: Point(1)
            2 8 changes 40 8589934592 1: Turn(0)
            2 9 changes 80 1 1: Lock(0, 9)
            1 11 changes 80 1 5000: Lock(0, 11)
            1 23 waits 40 20: Point(13)
            1 24 changes 40 17179869186 1: Turn(12)
            1 25 changes 80 1 1: Lock(0, 17)
            2 27 waits 40 20: Point(13)
            2 28 changes 40 8589934592 1: Turn(12)
            2 29 changes 80 1 1: Lock(0, 21)
            2 31 changes 80 1 5000: Lock(0, 23)
            2 43 waits 40 40: Point(25)
            2 44 changes 40 17179869186 1: Turn(24)
            2 45 changes 80 1 1: Lock(0, 29)
            1 47 waits 40 40: Point(25)
            1 48 changes 40 8589934592 1: Turn(24)
            1 49 changes 80 1 1: Lock(0, 33)
            1 51 changes 80 1 5000: Lock(0, 35)
            1 63 waits 40 60: Point(37)
            1 64 changes 40 17179869186 1: Turn(36)
            1 65 changes 80 1 1: Lock(0, 41)
            2 67 waits 40 60: Point(37)
            2 68 changes 40 8589934592 1: Turn(36)
            2 69 changes 80 1 1: Lock(0, 45)
            1 71 changes 80 1 5000: Lock(0, 47)
            [] Found { waits: 8, by_tasks: 8, at_barriers: 0, at_counts: 0, taken: 8, for_locks: 0, locked: 12, unknown: 0, outside: (0, 0) }
        "#]],
    );
}

/// What a thread of a small program does next.
#[derive(Clone, Copy, Debug)]
enum Does {
    Post(usize),
    Wait(usize),
    Signal(usize),
    Broadcast(usize),
    WaitsForSignal(usize),
    Meets,
}

/// Where a thread stands in a wait: its word, and the number of order when that began.
#[derive(Clone, Copy)]
struct Stands {
    at: usize,
    began: u64,
    woken: bool,
}

/// Threads as they run, and the rows that the recorder makes of them.
struct Run {
    rows: Vec<Row>,
    order: u64,
    /// By word: what it is, what the recorder knows of it, if it has been named by a futex call,
    /// and who waits there.
    words: [(u32, Option<u32>, VecDeque<u32>); 5],
    /// By thread.
    stands: Vec<Option<Stands>>,
    came: usize,
    /// By condition variable: what those look for who wait there.
    items: [u32; 2],
    /// By thread: whether it has something to do with what it found.
    works: Vec<bool>,
    /// Whether some threads only give.
    parts: bool,
    /// By meeting that is over: how many of those whom it woke have returned.
    met: Vec<usize>,
}

/// The words: two semaphores, two condition variables, a barrier.
const BARRIER: usize = 4;

impl Run {
    fn new(threads: usize, parts: bool) -> Self {
        Self {
            rows: Vec::new(),
            order: 0,
            // One semaphore has something at first.
            words: [1, 0, 0, 0, 0].map(|n| (n, None, VecDeque::new())),
            stands: vec![None; threads],
            came: 0,
            items: [0; 2],
            works: vec![false; threads],
            parts,
            met: Vec::new(),
        }
    }
    fn row(&mut self, task: u32, order: u64, of: (Kind, u32), word: usize, arg: u64) {
        let pages = 64 + 16 * word as u64;
        let insns = if std::mem::take(&mut self.works[task as usize]) { 5000 } else { 1 };
        let row = Row { kind: of.0, task, insns, page: order, pages, reads: of.1, writes: 0, arg };
        self.rows.push(row);
    }
    fn number(&mut self) -> u64 {
        self.order += 1;
        self.order
    }
    fn change(&mut self, task: u32, word: usize, more: i32) {
        let (value, known, _) = &mut self.words[word];
        *value = value.wrapping_add_signed(more);
        if let Some(known) = known {
            let arg = change(u64::from(std::mem::replace(known, *value)), u64::from(*value));
            let order = self.number();
            self.row(task, order, (Kind::Release, Release::Word as u32), word, arg);
        }
    }
    fn wake(&mut self, task: u32, word: usize, most: usize) {
        let order = self.number();
        let woken: Vec<u32> = {
            let waiting = &mut self.words[word].2;
            waiting.drain(..most.min(waiting.len())).collect()
        };
        for &other in &woken {
            if let Some(stands) = &mut self.stands[other as usize] {
                stands.woken = true;
            }
        }
        if !woken.is_empty() {
            let of = (Kind::Release, Release::Futex as u32);
            self.row(task, order, of, word, woken.len() as u64);
        }
    }
    fn stand(&mut self, task: u32, word: usize) {
        let began = self.number();
        let (value, known, waiting) = &mut self.words[word];
        known.get_or_insert(*value);
        waiting.push_back(task);
        self.stands[task as usize] = Some(Stands { at: word, began, woken: false });
    }
    /// A thread runs on: what it is at, or what it does next.
    fn step(&mut self, task: u32, does: Does) {
        if let Some(Stands { at, began, woken }) = self.stands[task as usize] {
            if !woken {
                return;
            }
            self.stands[task as usize] = None;
            let order = self.number();
            self.row(task, order, (Kind::Block, Block::Futex as u32), at, began);
            match at {
                0 | 1 => self.take(task, at),
                2 | 3 => {
                    self.change(task, at, -2);
                    self.look(task, at);
                }
                _ => *self.met.last_mut().expect("a meeting") += 1,
            }
            return;
        }
        // Where all others wait, who may give does not wait as well.
        let runs = |s: &Option<Stands>| s.is_none_or(|s| s.woken);
        let is_last = self.stands.iter().filter(|s| runs(s)).count() == 1;
        let does = match does {
            Does::Wait(semaphore) if is_last && !self.parts => Does::Post(semaphore),
            Does::WaitsForSignal(condition) if is_last && !self.parts => Does::Signal(condition),
            other => other,
        };
        match does {
            Does::Post(semaphore) => {
                self.change(task, semaphore, 1);
                if !self.words[semaphore].2.is_empty() {
                    self.wake(task, semaphore, 1);
                }
            }
            Does::Wait(semaphore) => self.take(task, semaphore),
            Does::Signal(condition) | Does::Broadcast(condition)
                if self.words[condition].2.is_empty() =>
            {
                self.items[condition - 2] += 1;
                // Its group is over; it begins anew at 0, which nobody sees.
                if self.words[condition].0 == 0 {
                    self.change(task, condition, 1);
                    self.words[condition].0 = 0;
                }
            }
            Does::Signal(condition) => {
                self.items[condition - 2] += 1;
                self.change(task, condition, 2);
                self.wake(task, condition, 1);
            }
            Does::Broadcast(condition) => {
                self.items[condition - 2] += 1;
                let waiting = self.words[condition].2.len();
                self.change(task, condition, 2 * waiting as i32);
                self.wake(task, condition, waiting);
            }
            Does::WaitsForSignal(condition) => self.look(task, condition),
            // Who has been woken has to go before there is another round.
            Does::Meets if self.stands.iter().flatten().any(|s| s.at == BARRIER && s.woken) => {}
            Does::Meets if self.came + 1 < self.stands.len() => {
                self.came += 1;
                self.stand(task, BARRIER);
            }
            Does::Meets => {
                self.came = 0;
                self.met.push(0);
                self.change(task, BARRIER, self.stands.len() as i32);
                self.wake(task, BARRIER, usize::MAX);
            }
        }
    }
    /// Takes what it looks for, or waits.
    fn look(&mut self, task: u32, condition: usize) {
        match &mut self.items[condition - 2] {
            0 => self.stand(task, condition),
            items => {
                *items -= 1;
                self.works[task as usize] = true;
            }
        }
    }
    fn take(&mut self, task: u32, semaphore: usize) {
        if self.words[semaphore].0 > 0 {
            self.change(task, semaphore, -1);
        } else {
            self.stand(task, semaphore);
        }
    }
}

/// Runs what was recorded, each thread when it is its turn; how many times one went on at a count
/// that had nothing, where all stood still.
fn replay(
    rows: &[Row],
    after: &[After],
    counts: &[Count],
    turns: impl Iterator<Item = u32>,
) -> u64 {
    let threads = rows.iter().map(|r| r.task + 1).max().unwrap_or(0);
    let own = |t: u32| (0..rows.len()).filter(move |&n| rows[n].task == t).collect::<Vec<_>>();
    let own: Vec<Vec<usize>> = (0..threads).map(own).collect();
    let mut next = vec![0; threads as usize];
    let mut passed = vec![false; rows.len()];
    // By count: what is there, each with who gave it.
    let mut there: Vec<Vec<Option<u32>>> =
        counts.iter().map(|c| vec![None; c.first as usize]).collect();
    let mut owed = vec![0; counts.len()];
    let mut without = 0;
    // After the turns that are named all have theirs in a row.
    for turn in turns.chain((0..).map(|n| n % threads.max(1))) {
        let mut go = |task: u32, owes: bool, next: &mut Vec<usize>| {
            let Some(&n) = own[task as usize].get(next[task as usize]) else { return false };
            let free = match after[n] {
                After::Point(p) | After::Turn(p) => passed[p as usize],
                After::Take(count, less) => {
                    assert_eq!(less, 1, "these programs take one at a time");
                    let own = Some(task).filter(|_| counts[count as usize].handed);
                    let there = &mut there[count as usize];
                    let at = there.iter().position(|by| own.is_none() || *by != own);
                    match at {
                        Some(at) => drop(there.remove(at)),
                        None => owed[count as usize] += u32::from(owes),
                    }
                    at.is_some() || owes
                }
                After::Post(count, more) | After::Broadcast(count, more) => {
                    let owed = &mut owed[count as usize];
                    let paid = more.min(*owed);
                    *owed -= paid;
                    let more = (more - paid) as usize;
                    there[count as usize].extend(std::iter::repeat_n(Some(task), more));
                    true
                }
                After::Meet(meeting) => {
                    (0..rows.len()).filter(|&o| after[o] == After::Meet(meeting)).all(|o| {
                        let of = rows[o].task as usize;
                        passed[o] || own[of].get(next[of]) == Some(&o)
                    })
                }
                After::Nothing
                | After::Time(_)
                | After::Until(..)
                | After::Lock(..)
                | After::Due(..) => true,
            };
            passed[n] |= free;
            next[task as usize] += usize::from(free);
            free
        };
        if turn < threads && go(turn, false, &mut next) {
            continue;
        }
        if (0..threads).any(|t| go(t, false, &mut next)) {
            continue;
        }
        let waits = |&t: &u32| {
            let n = own[t as usize].get(next[t as usize]);
            n.is_some_and(|&n| matches!(after[n], After::Take(..)))
        };
        let Some(owes) = (0..threads).find(waits) else { break };
        without += 1;
        go(owes, true, &mut next);
    }
    assert!(passed.iter().all(|&p| p), "it stands still: {next:?}");
    without
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        3 => (0usize..2).prop_map(Does::Post),
        2 => (0usize..2).prop_map(Does::Wait),
        2 => (2usize..4).prop_map(Does::Signal),
        2 => (2usize..4).prop_map(Does::Broadcast),
        2 => (2usize..4).prop_map(Does::WaitsForSignal),
        1 => Just(Does::Meets),
    ]
}

/// A program of threads: who has a turn, and what it does then. Where each has its part, one gives
/// and the others take, and nobody meets.
fn program() -> impl Strategy<Value = (usize, bool, Vec<(u32, Does)>)> {
    let steps = prop::collection::vec((0u32..4, does()), 0..300);
    (2usize..5, any::<bool>(), steps).prop_map(|(threads, parts, mut steps)| {
        for (task, does) in &mut steps {
            *task %= threads as u32;
            let gives = *task < 1;
            *does = match *does {
                Does::Post(s) | Does::Wait(s) if parts && gives => Does::Post(s),
                Does::Post(s) | Does::Wait(s) if parts => Does::Wait(s),
                Does::Meets if parts && gives => Does::Broadcast(2),
                Does::Meets if parts => Does::WaitsForSignal(2),
                Does::WaitsForSignal(c) if parts && gives => Does::Signal(c),
                Does::Signal(c) | Does::Broadcast(c) if parts && !gives => Does::WaitsForSignal(c),
                other => other,
            };
        }
        (threads, parts, steps)
    })
}

/// A program as it ran, and what its points wait for.
fn resolved(
    (threads, parts, steps): &(usize, bool, Vec<(u32, Does)>),
) -> (Run, Vec<After>, Vec<Count>, Found) {
    let (threads, parts) = (*threads, *parts);
    let mut run = Run::new(threads, parts);
    for &(task, does) in steps {
        run.step(task, does);
    }
    let mut points = points_of(threads, &run.rows);
    let (after, found) = points.resolve();
    let counts = points.counts().to_vec();
    (run, after, counts, found)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Nobody takes what has not been given, in whatever order the threads run; in the order in
    /// which they ran when they were recorded nobody waits for what does not come, and neither
    /// where some only give and the others only take.
    #[test]
    fn threads_go_on_in_any_order(
        program in program(),
        turns in prop::collection::vec(0u32..4, 0..300),
    ) {
        let (run, after, counts, found) = resolved(&program);
        let (threads, parts, _) = program;
        let mut by_order: Vec<usize> = (0..run.rows.len()).collect();
        by_order.sort_by_key(|&n| run.rows[n].page);
        let recorded = by_order.iter().map(|&n| run.rows[n].task);
        prop_assert_eq!(replay(&run.rows, &after, &counts, recorded), 0);
        let without = replay(&run.rows, &after, &counts, turns.into_iter());
        prop_assert!(!parts || without == 0, "{} without", without);
        // What is taken has been given once.
        let mut sums: Vec<i64> = counts.iter().map(|c| c.first as i64).collect();
        for after in &after {
            if let After::Post(count, more) | After::Broadcast(count, more) = *after {
                sums[count as usize] += i64::from(more);
            }
            if let After::Take(count, less) = *after {
                sums[count as usize] -= i64::from(less);
            }
        }
        prop_assert!(sums.iter().all(|&s| s >= 0), "{:?}", sums);
        // All meet who have come and gone.
        let whole = run.met.iter().filter(|&&gone| gone + 1 == threads).count();
        prop_assert_eq!(found.at_barriers as usize, whole * (threads - 1));
        prop_assert_eq!(found.unknown, 0);
    }
}

/// The programs above do come to meetings and to counts.
#[test]
fn threads_meet_and_take() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut met, mut at_counts, mut waits, mut broadcasts) = (0, 0, 0, 0);
    for _ in 0..100 {
        let program = program().new_tree(&mut runner).expect("a program").current();
        let (_, after, _, found) = resolved(&program);
        broadcasts += after.iter().filter(|a| matches!(a, After::Broadcast(..))).count();
        met += found.at_barriers;
        at_counts += found.at_counts;
        waits += found.waits;
    }
    expect!["524 waits, 136 at barriers, 333 at counts, 16 broadcasts"].assert_eq(&format!(
        "{waits} waits, {met} at barriers, {at_counts} at counts, {broadcasts} broadcasts"
    ));
}
