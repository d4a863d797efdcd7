//! Over a kernel that is played (`fake`); guests have real ones.

mod fake;

use super::journal::{Kept, restore};
use super::kernel::Files;
use super::*;
use expect_test::{Expect, expect};
use fake::{Commit, Fake};
use homenode_fixtures::Folder;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;

/// A folder with `run` and as much of `proc` as journals need.
struct Played(Folder);

impl Played {
    fn new() -> Self {
        Self(Folder::new().with("proc/sys/kernel/random/boot_id", "this boot\n"))
    }
    fn put(&self, name: &str, text: &str) {
        self.0.write(name, text);
    }
    /// A process, with 7 as its start.
    fn process(&self, pid: u32) {
        self.put(
            &format!("proc/{pid}/stat"),
            &format!("{pid} (x) S{} 7{}\n", " 0".repeat(18), " 0".repeat(30)),
        );
    }
    fn place(&self) -> Place {
        Place::at(&self.0)
    }
    fn has_journal(&self) -> bool {
        self.0.join("run/homenode/damon.journal").exists()
    }
}

fn open(folder: &Played, fake: &Fake) -> Damon {
    Damon::begin(&folder.place(), Box::new(fake.clone())).unwrap()
}

fn take(damon: &mut Damon) -> Vec<Seen> {
    let mut out = Vec::new();
    damon.take(Picos::from_secs(100), &mut out).unwrap();
    out
}

/// One line per process: whether its first region is hot.
fn check(seen: &[Seen], want: Expect) {
    let mut heat = BTreeMap::new();
    for one in seen {
        let line = match one {
            Seen::Region { who, span, accessed, checks, every, age } => {
                assert!(span.start >> 8 == u64::from(who.pid), "another's memory: {one:?}");
                let (ms, age) = (every.0 / 10_000_000, age.as_ms());
                (
                    who.pid,
                    format!("{accessed}/{checks} each {}.{:02} ms, {age} ms", ms / 100, ms % 100),
                )
            }
            Seen::Lost { events } => (0, format!("lost {events}")),
            Seen::Stale { since } => (0, format!("stale since {} ms", since.as_ms())),
            other => panic!("{other:?}"),
        };
        heat.entry(line.0).or_insert(line.1);
    }
    let lines: String = heat.iter().map(|(pid, line)| format!("{pid}: {line}\n")).collect();
    want.assert_eq(&lines);
}

#[test]
fn a_slot_is_made_used_and_taken_down() {
    let (folder, fake) = (Played::new(), Fake::new(Commit::Refuses));
    let mut damon = open(&folder, &fake);
    assert!(folder.has_journal());
    damon.watch(fake.born(20, true));
    damon.watch(fake.born(10, false));
    check(&take(&mut damon), expect![""]);
    fake.aggregates(2);
    check(
        &take(&mut damon),
        expect![[r#"
            10: 0/20 each 5.50 ms, 300 ms
            20: 20/20 each 5.50 ms, 300 ms
        "#]],
    );
    check(&take(&mut damon), expect![""]);
    assert_eq!(Heat::spent(&damon), Some(Picos::from_ms(3)));
    damon.close().unwrap();
    assert!(!folder.has_journal());
    expect![[r#"
        nr_kdamonds = 1
        0/contexts/nr_contexts = 1
        0/contexts/0/targets/nr_targets = 1
        0/contexts/0/targets/0/pid_target = ME
        0/contexts/0/monitoring_attrs/intervals/sample_us = 5000
        0/contexts/0/monitoring_attrs/intervals/aggr_us = 100000
        0/contexts/0/operations = vaddr
        0/contexts/0/monitoring_attrs/intervals/update_us = 1000000
        0/contexts/0/monitoring_attrs/nr_regions/min = 10
        0/contexts/0/monitoring_attrs/nr_regions/max = 1000
        0/contexts/0/targets/nr_targets = 3
        0/contexts/0/targets/0/pid_target = ME
        0/contexts/0/targets/1/pid_target = 10
        0/contexts/0/targets/2/pid_target = 20
        0/state = on
        0/state = off
        nr_kdamonds = 0
    "#]]
    .assert_eq(&fake.log());
    // Nothing more at the end.
    drop(damon);
    assert_eq!(fake.log(), "");
}

#[test]
fn who_comes_later_is_told_to_the_running_thread() {
    let (folder, fake) = (Played::new(), Fake::new(Commit::Refuses));
    let mut damon = open(&folder, &fake);
    for pid in [10, 20] {
        damon.watch(fake.born(pid, pid == 20));
    }
    take(&mut damon);
    fake.log();
    let late = fake.born(30, true);
    damon.watch(late);
    // Not at once: the thread was told something a moment ago.
    take(&mut damon);
    assert_eq!(fake.log(), "");
    fake.passes(1600);
    take(&mut damon);
    expect![[r#"
        0/contexts/0/targets/nr_targets = 4
        0/contexts/0/targets/0/pid_target = ME
        0/contexts/0/targets/1/pid_target = 10
        0/contexts/0/targets/2/pid_target = 20
        0/contexts/0/targets/3/pid_target = 30
        0/state = commit
    "#]]
    .assert_eq(&fake.log());
    fake.aggregates(12);
    check(
        &take(&mut damon),
        expect![[r#"
            10: 0/20 each 5.50 ms, 300 ms
            20: 20/20 each 5.50 ms, 300 ms
            30: 20/20 each 5.50 ms, 300 ms
        "#]],
    );
    // Who takes another's place is not told before its regions are his.
    damon.unwatch(Who { pid: 10, start: 7 });
    damon.watch(fake.born(40, true));
    fake.passes(1600);
    take(&mut damon);
    fake.aggregates(5);
    check(
        &take(&mut damon),
        expect![[r#"
            20: 20/20 each 5.50 ms, 300 ms
            30: 20/20 each 5.50 ms, 300 ms
        "#]],
    );
    fake.aggregates(7);
    take(&mut damon);
    fake.aggregates(1);
    check(
        &take(&mut damon),
        expect![[r#"
            20: 20/20 each 5.50 ms, 300 ms
            30: 20/20 each 5.50 ms, 300 ms
            40: 20/20 each 5.50 ms, 300 ms
        "#]],
    );
    // With nobody left the thread ends, and begins again with the next one.
    for pid in [20, 30, 40] {
        damon.unwatch(Who { pid, start: 7 });
    }
    take(&mut damon);
    assert_eq!(fake.log().lines().last(), Some("0/state = off"));
    damon.watch(late);
    take(&mut damon);
    assert_eq!(fake.log().lines().last(), Some("0/state = on"));
}

// specs/sources.md#interval
#[test]
fn a_thread_that_takes_much_checks_less_often_until_something_moves() {
    let (folder, fake) = (Played::new(), Fake::new(Commit::Refuses));
    let mut damon = open(&folder, &fake);
    damon.watch(fake.born(10, true));
    take(&mut damon);
    fake.aggregates(1);
    take(&mut damon);
    fake.log();
    // 3 % of a CPU over two seconds.
    fake.aggregates(19);
    fake.0.borrow_mut().ran = Picos::from_ms(66);
    take(&mut damon);
    expect![[r#"
        0/contexts/0/targets/1/pid_target = 10
        0/contexts/0/monitoring_attrs/intervals/sample_us = 20000
        0/contexts/0/monitoring_attrs/intervals/aggr_us = 400000
        0/state = commit
    "#]]
    .assert_eq(&fake.log().replace("0/contexts/0/targets/0/pid_target = ME\n", ""));
    // What is of both intervals is not told, and then the times are the new ones.
    fake.aggregates(2);
    check(&take(&mut damon), expect![""]);
    fake.aggregates(1);
    check(
        &take(&mut damon),
        expect![[r#"
            10: 20/20 each 22.00 ms, 1200 ms
        "#]],
    );
    // 0.8 %: no more often. Silence is ten aggregations.
    fake.0.borrow_mut().ran = Picos::from_ms(106);
    fake.passes(3900);
    check(&take(&mut damon), expect![""]);
    fake.passes(200);
    assert_eq!(take(&mut damon).len(), 1);
    // A move brings the close look back.
    fake.log();
    Heat::moved(&mut damon);
    take(&mut damon);
    assert!(fake.log().contains("sample_us = 5000\n"));
    fake.aggregates(2);
    check(&take(&mut damon), expect![""]);
    fake.aggregates(1);
    check(
        &take(&mut damon),
        expect![[r#"
            10: 20/20 each 5.50 ms, 300 ms
        "#]],
    );
}

#[test]
fn one_that_ends_does_not_break_the_others() {
    for commit in [Commit::Ends, Commit::Refuses] {
        let (folder, fake) = (Played::new(), Fake::new(commit));
        let mut damon = open(&folder, &fake);
        for pid in [10, 20, 30] {
            damon.watch(fake.born(pid, true));
        }
        // Gone before anything was told, and under another start.
        fake.dies(10);
        fake.0.borrow_mut().living.insert(30, 8);
        take(&mut damon);
        fake.aggregates(1);
        check(
            &take(&mut damon),
            expect![[r#"
                20: 20/20 each 5.00 ms, 300 ms
            "#]],
        );
        damon.watch(fake.born(40, true));
        fake.dies(20);
        fake.passes(1600);
        take(&mut damon);
        fake.aggregates(13);
        take(&mut damon);
        fake.aggregates(1);
        check(
            &take(&mut damon),
            expect![[r#"
                40: 20/20 each 5.50 ms, 300 ms
            "#]],
        );
    }
}

#[test]
fn a_slot_of_somebody_else_is_not_touched() {
    let (folder, fake) = (Played::new(), Fake::new(Commit::Refuses));
    fake.write("nr_kdamonds", "1").unwrap();
    fake.log();
    let refused = Damon::begin(&folder.place(), Box::new(fake.clone())).err();
    assert!(matches!(refused, Some(DamonError::Theirs)), "{refused:?}");
    assert!(!folder.has_journal());
    assert_eq!(fake.log(), "");
    fake.write("nr_kdamonds", "0").unwrap();
    // Somebody is quicker, and the kernel busy with that: it is not asked again.
    fake.log();
    fake.0.borrow_mut().quicker = true;
    let refused = Damon::begin(&folder.place(), Box::new(fake.clone())).err();
    assert!(matches!(refused, Some(DamonError::Theirs)), "{refused:?}");
    assert_eq!((fake.log().as_str(), folder.has_journal()), ("", false));
    fake.write("nr_kdamonds", "0").unwrap();
    // Somebody makes one over ours while that is off.
    let mut damon = open(&folder, &fake);
    fake.write("nr_kdamonds", "2").unwrap();
    fake.log();
    damon.watch(fake.born(10, true));
    let told = damon.take(Picos::ZERO, &mut Vec::new()).unwrap_err();
    assert!(told.starts_with("DAMON's slot 0 is not as homenode left it"), "{told}");
    assert!(damon.close().unwrap_err().contains("not touched"));
    assert!(!folder.has_journal());
    assert_eq!(fake.log(), "");
    assert_eq!(fake.read("nr_kdamonds").unwrap(), "2");
}

#[test]
fn what_can_t_be_made_leaves_nothing() {
    for file in ["operations", "nr_targets", "nr_regions/max", "nr_kdamonds"] {
        let (folder, fake) = (Played::new(), Fake::new(Commit::Refuses));
        fake.0.borrow_mut().refuses = Some((file, libc::EPERM));
        let refused = Damon::begin(&folder.place(), Box::new(fake.clone())).err().unwrap();
        assert!(crate::sentence(&refused).starts_with("can't write"), "{refused}");
        assert!(!folder.has_journal(), "{file}");
        assert_eq!(fake.read("nr_kdamonds").unwrap(), "0", "{file}");
    }
}

#[test]
fn silence_is_told_once_and_a_thread_that_was_switched_off_begins_again() {
    let (folder, fake) = (Played::new(), Fake::new(Commit::Refuses));
    let mut damon = open(&folder, &fake);
    damon.watch(fake.born(10, true));
    take(&mut damon);
    fake.passes(900);
    check(&take(&mut damon), expect![""]);
    fake.passes(200);
    check(
        &take(&mut damon),
        expect![[r#"
            0: stale since 98900 ms
        "#]],
    );
    fake.passes(2000);
    check(&take(&mut damon), expect![""]);
    fake.write("0/state", "off").unwrap();
    fake.log();
    take(&mut damon);
    assert_eq!(fake.log().lines().last(), Some("0/state = on"));
    fake.aggregates(1);
    check(
        &take(&mut damon),
        expect![[r#"
            10: 20/20 each 5.00 ms, 300 ms
        "#]],
    );
    assert_eq!(Heat::spent(&damon), Some(Picos::from_ms(6)), "of both threads");
    // A module takes DAMON while ours is off.
    fake.write("0/state", "off").unwrap();
    fake.0.borrow_mut().refuses = Some(("state", libc::EBUSY));
    let told = damon.take(Picos::ZERO, &mut Vec::new()).unwrap_err();
    assert!(told.contains("perhaps a kernel module"), "{told}");
    fake.0.borrow_mut().refuses = None;
}

// The lock of `state` and `pid` is only tried by the kernel, also where they are read: EBUSY
// says neither that the thread is off nor that DAMON is somebody else's.
#[test]
fn a_lock_that_is_taken_for_a_moment_says_nothing() {
    let (folder, fake) = (Played::new(), Fake::new(Commit::Ends));
    let mut damon = open(&folder, &fake);
    fake.0.borrow_mut().busy = 3;
    damon.watch(fake.born(10, true));
    take(&mut damon);
    damon.watch(fake.born(20, true));
    fake.passes(1600);
    take(&mut damon);
    fake.aggregates(13);
    check(
        &take(&mut damon),
        expect![[r#"
            10: 20/20 each 5.50 ms, 300 ms
            20: 20/20 each 5.50 ms, 300 ms
        "#]],
    );
    damon.close().unwrap();
    let log = fake.log();
    let states: Vec<&str> = log.lines().filter(|l| l.contains("state")).collect();
    assert_eq!(states, ["0/state = on", "0/state = commit", "0/state = off"]);
    assert!(log.ends_with("nr_kdamonds = 0\n") && !folder.has_journal());
}

// For good, it is an error, which names the file.
#[test]
fn a_lock_that_stays_taken_is_told() {
    let (folder, fake) = (Played::new(), Fake::new(Commit::Ends));
    let mut damon = open(&folder, &fake);
    damon.watch(fake.born(10, true));
    fake.0.borrow_mut().busy = u32::MAX;
    let told = damon.take(Picos::ZERO, &mut Vec::new()).unwrap_err();
    assert!(told.starts_with("can't read /sys/kernel/mm/damon/admin/kdamonds/0/state"), "{told}");
    fake.0.borrow_mut().busy = 0;
    damon.close().unwrap();
    assert!(!folder.has_journal());
}

#[test]
fn what_was_lost_is_told_and_nothing_made_up_for_it() {
    let (folder, fake) = (Played::new(), Fake::new(Commit::Refuses));
    let mut damon = open(&folder, &fake);
    damon.watch(fake.born(10, true));
    take(&mut damon);
    fake.aggregates(3);
    fake.loses(40);
    fake.aggregates(1);
    fake.loses(2);
    check(
        &take(&mut damon),
        expect![[r#"
            0: lost 42
            10: 20/20 each 5.00 ms, 300 ms
        "#]],
    );
    // A ring that was full for long holds no news.
    fake.aggregates(1);
    fake.passes(5000);
    check(
        &take(&mut damon),
        expect![[r#"
            0: stale since 94890 ms
        "#]],
    );
}

/// The journal and the slot of a homenode that was killed.
fn crashed(folder: &Played, fake: &Fake, pid: u32) {
    // Dropped without its end, as by SIGKILL.
    drop(Kept::begin(&folder.place(), (pid, 7)).unwrap());
    slot::make(fake, pid).unwrap();
}

#[test]
fn a_crash_is_restored_once() {
    let (folder, fake) = (Played::new(), Fake::new(Commit::Refuses));
    assert_eq!(restore(&folder.place(), &fake).unwrap(), Restored::Nothing);
    crashed(&folder, &fake, 4711);
    fake.born(4711, false);
    slot::start(&fake).unwrap();
    // A new one says what to do, and changes nothing.
    fake.log();
    let refused = Damon::begin(&folder.place(), Box::new(fake.clone())).err();
    let said = refused.expect("a journal is there").to_string();
    assert!(said.contains("process 4711 used DAMON and ended without taking its slot"), "{said}");
    assert_eq!(fake.log(), "");
    // While it lives nothing is restored.
    folder.process(4711);
    let refused = restore(&folder.place(), &fake).unwrap_err();
    let said = refused.to_string();
    assert!(said.starts_with("homenode, process 4711, uses DAMON already"), "{said}");
    fs::remove_file(folder.0.join("proc/4711/stat")).unwrap();
    let done = restore(&folder.place(), &fake).unwrap();
    assert!(matches!(done, Restored::Done(_)), "{done:?}");
    assert_eq!(fake.log(), "0/state = off\nnr_kdamonds = 0\n");
    assert_eq!(restore(&folder.place(), &fake).unwrap(), Restored::Nothing);
    // Killed while it changed the interval.
    crashed(&folder, &fake, 4711);
    fake.write("0/contexts/0/monitoring_attrs/intervals/sample_us", "40000").unwrap();
    let done = restore(&folder.place(), &fake).unwrap();
    assert!(matches!(done, Restored::Done(_)), "{done:?}");
}

#[test]
fn only_a_slot_that_is_as_it_was_left_is_taken_down() {
    for (file, value) in [
        ("nr_kdamonds", "2"),
        ("0/contexts/0/targets/0/pid_target", "4712"),
        ("0/contexts/0/monitoring_attrs/intervals/sample_us", "1000"),
    ] {
        let (folder, fake) = (Played::new(), Fake::new(Commit::Refuses));
        crashed(&folder, &fake, 4711);
        fake.write(file, value).unwrap();
        for pid in [4711, 4712] {
            fake.born(pid, false);
        }
        if file != "nr_kdamonds" {
            slot::start(&fake).unwrap();
        }
        fake.log();
        let done = restore(&folder.place(), &fake).unwrap();
        assert!(matches!(done, Restored::Left(_)), "{file}: {done:?}");
        assert_eq!(fake.log(), "", "{file}");
        assert!(!folder.has_journal());
    }
}

#[test]
fn a_journal_without_a_slot_or_of_an_earlier_boot_is_thrown_away() {
    let (folder, fake) = (Played::new(), Fake::new(Commit::Refuses));
    drop(Kept::begin(&folder.place(), (4711, 7)).unwrap());
    let done = restore(&folder.place(), &fake).unwrap();
    assert!(matches!(done, Restored::Stale(_)), "{done:?}");
    crashed(&folder, &fake, 4711);
    folder.put("proc/sys/kernel/random/boot_id", "another\n");
    fake.log();
    let done = restore(&folder.place(), &fake).unwrap();
    assert!(matches!(done, Restored::Stale(_)), "{done:?}");
    assert_eq!(fake.log(), "");
    folder.put("run/homenode/damon.journal", "homenode damon 1\n");
    let damaged = restore(&folder.place(), &fake).unwrap_err();
    assert_eq!(
        crate::sentence(&damaged),
        format!(
            "{}:1: it ends too early: this journal is damaged, and whose slot there is can't be \
             told. Nothing was changed. Look at `grep -r . /sys/kernel/mm/damon/admin`; if nobody \
             uses DAMON, write off into kdamonds/0/state and 0 into kdamonds/nr_kdamonds, and \
             remove the journal",
            folder.place().run_folder().join("damon.journal").display()
        )
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// Whoever comes and goes: nobody is told another's memory (`check` looks), nobody
    /// who isn't watched is told, and at the end all who live are.
    #[test]
    fn everybody_is_told_his_own(
        ends in any::<bool>(),
        steps in proptest::collection::vec((0u8..5, 10u32..18), 1..40),
    ) {
        let commit = if ends { Commit::Ends } else { Commit::Refuses };
        let (folder, fake) = (Played::new(), Fake::new(commit));
        let mut damon = open(&folder, &fake);
        // Whoever has the PID: who comes after a dead one is another.
        let mut watched = BTreeMap::new();
        let look = |damon: &mut Damon, watched: &BTreeMap<u32, Who>| -> BTreeSet<u32> {
            let mut told = BTreeSet::new();
            for one in take(damon) {
                let Seen::Region { who, span, .. } = one else { continue };
                assert_eq!(span.start >> 8, u64::from(who.pid), "another's memory");
                assert_eq!(watched.get(&who.pid), Some(&who), "who is not watched");
                told.insert(who.pid);
            }
            told
        };
        for (what, pid) in steps {
            match what {
                0 => {
                    let who = fake.born(pid, pid % 2 == 0);
                    damon.watch(who);
                    if let Some(dead) = watched.insert(pid, who).filter(|was| *was != who) {
                        damon.unwatch(dead);
                    }
                }
                1 | 2 => {
                    if what == 2 {
                        fake.dies(pid);
                    }
                    if let Some(who) = watched.remove(&pid) {
                        damon.unwatch(who);
                    }
                }
                3 => fake.aggregates(pid - 9),
                _ => fake.dies(pid),
            }
            if pid % 3 == 0 {
                look(&mut damon, &watched);
            }
        }
        // All that live are told once things have settled.
        let living: BTreeSet<u32> = watched
            .values()
            .filter(|who| fake.0.borrow().living.get(&who.pid) == Some(&who.start))
            .map(|who| who.pid)
            .collect();
        for _ in 0..20 {
            fake.aggregates(3);
            look(&mut damon, &watched);
        }
        fake.aggregates(3);
        let told = look(&mut damon, &watched);
        prop_assert!(living.is_subset(&told), "{living:?} but {told:?}");
    }
}
