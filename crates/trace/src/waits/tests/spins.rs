//! Tasks that look at words until others change them.

use super::*;

/// `arg` of a spin.
fn spun(insns: u64, ago: u64) -> u64 {
    Spin { insns, ago, yields: false }.arg()
}

#[test]
fn a_spin_is_ended_by_the_last_change_of_another_since_it_began() {
    let (one, none) = (spun(300, 5), spun(200, 2));
    check(
        &format!(
            "1 1 changes 64 1
             0 2 changes 64 {}
             1 4 changes 64 {}
             1 6 changes 64 {}
             0 7 spins 64 {one}
             0 8 changes 68 1
             0 9 changes 68 {}
             0 12 spins 64 {none}
             2 13 spins 64 {one}",
            2 | 1u64 << 32,
            3 | 2u64 << 32,
            4 | 3u64 << 32,
            2 | 1u64 << 32,
        ),
        expect![[r#"
            0 7 spins 64 5497558139180 <- 1 6 changes 64 12884901892
            Found { waits: 1, by_tasks: 1, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 0, locked: 0, unknown: 0, outside: (0, 0) }
            Spins { waits: 1, left_out: {4: 300}, busy: {4: false} }
        "#]],
    );
}

#[test]
fn who_takes_a_lock_after_spinning_waits_where_it_takes_it() {
    let spin = Spin { insns: 300, ago: 2, yields: true }.arg();
    let (taken, free) = (1, 1u64 << 32);
    check(
        &format!(
            "0 1 changes 64 {taken}
             0 4 changes 64 {free}
             1 5 spins 64 {spin}
             1 6 changes 64 {taken}
             1 7 changes 64 {free}
             0 8 changes 64 {taken}
             0 9 changes 64 {free}"
        ),
        expect![[r#"
            0 1 changes 64 1 <- lock 0, until 0 4 changes 64 4294967296
            1 6 changes 64 1 <- lock 0, until 1 7 changes 64 4294967296
            0 8 changes 64 1 <- lock 0, until 0 9 changes 64 4294967296
            Found { waits: 1, by_tasks: 1, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 1, locked: 3, unknown: 0, outside: (0, 0) }
            Spins { waits: 1, left_out: {2: 300}, busy: {0: true, 3: true, 5: true} }
        "#]],
    );
}

/// `pthread_spin_lock` lowers a word that is 1 when it is free, and the owner stores 1.
#[test]
fn a_lock_may_be_one_while_it_is_free() {
    let spin = spun(300, 2);
    let change = |before: i32, now: i32| u64::from(before as u32) << 32 | u64::from(now as u32);
    check(
        &format!(
            "0 1 changes 64 {}
             1 2 changes 64 {}
             0 4 changes 64 {}
             1 5 spins 64 {spin}
             1 6 changes 64 {}
             1 7 changes 64 {}",
            change(1, 0),
            change(0, -1),
            change(-1, 1),
            change(1, 0),
            change(0, 1),
        ),
        expect![[r#"
            0 1 changes 64 4294967296 <- lock 0, until 0 4 changes 64 18446744069414584321
            1 6 changes 64 4294967296 <- lock 0, until 1 7 changes 64 1
            Found { waits: 1, by_tasks: 1, at_barriers: 0, at_counts: 0, taken: 0, for_locks: 1, locked: 2, unknown: 0, outside: (0, 0) }
            Spins { waits: 1, left_out: {3: 300}, busy: {0: false, 4: false} }
        "#]],
    );
}

#[test]
fn a_spin_is_a_number_and_back() {
    for spin in [
        Spin::default(),
        Spin { insns: (1 << 40) - 1, ago: 5, yields: true },
        Spin { insns: 7, ago: (1 << 23) - 1, yields: false },
    ] {
        assert_eq!(Spin::from(spin.arg()), spin);
    }
    let much = Spin { insns: u64::MAX, ago: u64::MAX, yields: false };
    let most = Spin { insns: (1 << 40) - 1, ago: (1 << 23) - 1, yields: false };
    assert_eq!(Spin::from(much.arg()), most);
}

// ── Threads that spin, at random ───────────────────────────────────────────────

#[derive(Clone, Copy, Debug)]
enum Does {
    /// Counts a flag up.
    Raise(usize),
    /// Looks at a flag until it is another.
    LookAt(usize),
    Take(usize),
    Give(usize),
}

/// A lock that is 0 while it is free, and one that is 1.
const FREE: [i32; 2] = [0, 1];
const FLAG: u64 = 100;
const LOCK: u64 = 200;

#[derive(Clone, Copy)]
struct Spinning {
    does: Does,
    value: i32,
    order: u64,
    insns: u64,
}

/// A program of threads as it runs, and the rows that a recorder leaves.
struct Run {
    flags: [i32; 2],
    locks: [i32; 2],
    owner: [Option<u32>; 2],
    spinning: Vec<Option<Spinning>>,
    order: u64,
    rows: Vec<Row>,
    /// Of flags: by row of a spin, the change that ended it.
    ended: BTreeMap<u32, u32>,
    /// Rows of spins at locks.
    for_locks: Vec<u32>,
    /// By lock and task: where it took the lock and has not given it back.
    taken: BTreeMap<(usize, u32), u32>,
    /// Those that it has given back.
    given: Vec<u32>,
    changed: [Vec<u32>; 2],
}

impl Run {
    fn new(threads: usize) -> Self {
        Self {
            flags: [0; 2],
            locks: FREE,
            owner: [None; 2],
            spinning: vec![None; threads],
            order: 0,
            rows: Vec::new(),
            ended: BTreeMap::new(),
            for_locks: Vec::new(),
            taken: BTreeMap::new(),
            given: Vec::new(),
            changed: Default::default(),
        }
    }
    fn row(&mut self, task: u32, kind: Kind, of: u32, object: u64, arg: u64, insns: u64) -> u32 {
        self.order += 1;
        let row =
            Row { kind, task, insns, page: self.order, pages: object, reads: of, writes: 0, arg };
        self.rows.push(row);
        self.rows.len() as u32 - 1
    }
    fn change(&mut self, task: u32, object: u64, before: i32, now: i32) -> u32 {
        let arg = u64::from(before as u32) << 32 | u64::from(now as u32);
        self.row(task, Kind::Release, Release::Word as u32, object, arg, 1)
    }
    fn spun(&mut self, task: u32, object: u64, s: Spinning) -> u32 {
        let ago = self.order + 1 - s.order;
        let arg = Spin { insns: s.insns, ago, yields: false }.arg();
        self.row(task, Kind::Block, Block::Spin as u32, object, arg, s.insns + 2)
    }
    fn take(&mut self, task: u32, lock: usize) {
        let (at, before) = (LOCK + 4 * lock as u64, self.locks[lock]);
        let now = if FREE[lock] == 0 { 1 } else { before - 1 };
        self.locks[lock] = now;
        self.owner[lock] = Some(task);
        let n = self.change(task, at, before, now);
        self.taken.insert((lock, task), n);
    }
    fn step(&mut self, task: u32, does: Does) {
        if let Some(s) = self.spinning[task as usize].take() {
            let s = Spinning { insns: s.insns + 3, ..s };
            match s.does {
                Does::LookAt(flag) if self.flags[flag] != s.value => {
                    let by = self.changed[flag].last().copied();
                    let n = self.spun(task, FLAG + 4 * flag as u64, s);
                    self.ended.extend(by.map(|by| (n, by)));
                }
                Does::Take(lock) if self.locks[lock] == FREE[lock] => {
                    let n = self.spun(task, LOCK + 4 * lock as u64, s);
                    self.for_locks.push(n);
                    self.take(task, lock);
                }
                Does::LookAt(_) | Does::Take(_) => self.spinning[task as usize] = Some(s),
                Does::Raise(_) | Does::Give(_) => unreachable!("nobody spins for that"),
            }
            return;
        }
        let order = self.order + 1;
        match does {
            Does::Raise(flag) => {
                self.flags[flag] += 1;
                let (at, now) = (FLAG + 4 * flag as u64, self.flags[flag]);
                let n = self.change(task, at, now - 1, now);
                self.changed[flag].push(n);
            }
            Does::LookAt(flag) => {
                let value = self.flags[flag];
                self.spinning[task as usize] = Some(Spinning { does, value, order, insns: 0 });
            }
            Does::Take(lock) if self.owner[lock] == Some(task) => {}
            Does::Take(lock) if self.locks[lock] == FREE[lock] => self.take(task, lock),
            Does::Take(lock) => {
                // Who wants the second lock has lowered the word before it looks.
                if FREE[lock] == 1 {
                    let before = self.locks[lock];
                    self.locks[lock] = before - 1;
                    self.change(task, LOCK + 4 * lock as u64, before, before - 1);
                }
                let spinning = Spinning { does, value: 0, order, insns: 0 };
                self.spinning[task as usize] = Some(spinning);
            }
            Does::Give(lock) if self.owner[lock] == Some(task) => {
                self.owner[lock] = None;
                let before = std::mem::replace(&mut self.locks[lock], FREE[lock]);
                self.change(task, LOCK + 4 * lock as u64, before, FREE[lock]);
                self.given.extend(self.taken.remove(&(lock, task)));
            }
            Does::Give(_) => {}
        }
    }
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        2 => (0usize..2).prop_map(Does::Raise),
        1 => (0usize..2).prop_map(Does::LookAt),
        3 => (0usize..2).prop_map(Does::Take),
        3 => (0usize..2).prop_map(Does::Give),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Each spin ends by what ended it; what was spun is left out, no more and no less; and who takes
    /// a lock after it waits for the lock, whatever the lock's word is while it is free.
    #[test]
    fn threads_spin_until_others_have_come(
        steps in prop::collection::vec((0u32..4, does()), 0..300),
        threads in 2usize..5,
    ) {
        let mut run = Run::new(threads);
        for (task, does) in steps {
            run.step(task % threads as u32, does);
        }
        let mut points = points_of(threads, &run.rows);
        let (after, found) = points.resolve();
        let spins = points.spins();
        for (&n, &by) in &run.ended {
            prop_assert_eq!(after[n as usize], After::Point(by));
            prop_assert_eq!(spins.busy.get(&n), Some(&false));
        }
        for &n in &run.for_locks {
            let taken = n + 1;
            if run.given.contains(&taken) {
                prop_assert_eq!(after[n as usize], After::Nothing);
                prop_assert!(matches!(after[taken as usize], After::Lock(..)));
                prop_assert_eq!(spins.busy.get(&taken), Some(&false));
            }
        }
        for &n in run.ended.keys().chain(&run.for_locks) {
            let Row { arg, insns, .. } = run.rows[n as usize];
            prop_assert_eq!(spins.left_out.get(&n).copied(), Some(Spin::from(arg).insns));
            prop_assert_eq!(insns, Spin::from(arg).insns + 2);
        }
        let all = (run.ended.len() + run.for_locks.len()) as u64;
        prop_assert_eq!((spins.waits, found.waits, found.unknown), (all, all, 0));
    }
}

/// The programs above do spin for both.
#[test]
fn threads_spin_at_flags_and_locks() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut flags, mut locks) = (0, 0);
    for _ in 0..100 {
        let steps = prop::collection::vec((0u32..4, does()), 0..300);
        let steps = steps.new_tree(&mut runner).expect("a program").current();
        let mut run = Run::new(4);
        steps.into_iter().for_each(|(task, does)| run.step(task, does));
        flags += run.ended.len();
        locks += run.for_locks.len();
    }
    expect!["110 at flags, 79 at locks"].assert_eq(&format!("{flags} at flags, {locks} at locks"));
}
