//! The estimate over real processes of known content, and against this machine's
//! ksmd.
//!
//! Tests that let ksmd run hold a lock that is one for the machine, restore every
//! knob, and say 'skipped: no KSM' where there is none or no root.

use homenode_fixtures::held::{self, Held};
use homenode_fixtures::ksm::{Ksm, Turn, knobs};
use homenode_merge::estimate::{
    Changes, Ended, Estimate, MergeError, Options, Progress, Targets, estimate,
};
use std::process::Command;
use std::time::Duration;

/// Not a test of its own: what the processes below run as.
#[test]
fn hold() {
    held::hold_if_asked();
}

fn start(plan: &str) -> Held {
    let mut command = Command::new(std::env::current_exe().expect("our own path"));
    command.args(["--exact", "hold", "--nocapture", "--test-threads=1"]);
    Held::start(command, plan)
}

fn pids(held: &[&Held]) -> Targets {
    Targets::Pids(held.iter().flat_map(|h| h.pids.iter().copied()).collect())
}

fn look(held: &[&Held], options: &Options) -> Estimate {
    estimate(&pids(held), options, &mut |_| {}).expect("our own processes can be read")
}

/// As fast and as large as ksmd's rules say, whatever this machine is set to.
fn options() -> Options {
    Options { max_page_sharing: Some(256), use_zero_pages: Some(false), ..Options::default() }
}

fn assert_near(what: &str, ours: u64, theirs: u64, percent: u64) {
    let far = ours.abs_diff(theirs) * 100 > theirs.max(ours) * percent;
    assert!(!far, "{what}: estimated {ours}, found {theirs}");
}

/// A figure of /proc/PID/status, in KiB.
fn status(pid: u32, key: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it is there");
    let line = text.lines().find(|l| l.starts_with(key)).unwrap_or_default();
    line.split_ascii_whitespace().nth(1).and_then(|v| v.parse().ok()).unwrap_or(0)
}

// ── Known contents ─────────────────────────────────────────────────────────────

#[test]
fn two_processes_of_known_content() {
    let plan = "own=3000 copies=2000/100 zero=500 absent=5000 read=300";
    let (a, b) = (start(plan), start(plan));
    let e = look(&[&a, &b], &options());
    // Beside the plan each has its program's own few hundred pages.
    let known = 2 * 5500;
    assert!((known..known + 2000).contains(&e.pages_scanned), "{e:?}");
    assert_near("distinct", e.distinct, 6101 + (e.pages_scanned - known) * 3 / 4, 8);
    assert!((1000..1200).contains(&e.zero), "{}", e.zero);
    assert!((4900..5700).contains(&e.across.pages_sharing), "{e:?}");
    assert_eq!(e.across.saved_bytes, e.across.pages_sharing * 4096);
    let parts: u64 = e.processes.iter().map(|p| p.saved_bytes).sum();
    assert_eq!(parts, e.across.saved_bytes);
    assert_near("parts", e.processes[0].saved_bytes, e.processes[1].saved_bytes, 2);
    assert_eq!(e.looks.pages_read, e.pages_scanned, "nothing but what counts was read");
    assert_eq!(e.volatile, 0);
    if e.memory_nodes.len() == 1 {
        assert_eq!(e.across, e.per_node);
    }
}

#[test]
fn what_is_looked_at_does_not_grow() {
    let held = start("own=2000 absent=20000 read=4000 huge=1024");
    let pid = held.pids[0];
    let before = ["VmRSS:", "RssAnon:", "VmSwap:"].map(|key| status(pid, key));
    for changes in [Changes::Read, Changes::Auto] {
        let again = Some(Duration::from_millis(10));
        let e = look(&[&held], &Options { changes, again, ..options() });
        assert!((3024..4200).contains(&e.pages_scanned), "{e:?}");
    }
    let after = ["VmRSS:", "RssAnon:", "VmSwap:"].map(|key| status(pid, key));
    // Its own stack may grow by a page or two; what we must not touch is 80 MB.
    for (after, before) in after.iter().zip(before) {
        assert!(*after <= before + 64, "{after} KiB after {before}");
    }
}

/// Memory of processes, each frame once, in KiB.
fn proportional(pids: &[u32]) -> u64 {
    let of = |pid: &u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("there");
        let line = text.lines().find(|l| l.starts_with("Pss_Anon:")).unwrap_or_default();
        line.split_ascii_whitespace().nth(1).and_then(|v| v.parse::<u64>().ok()).unwrap_or(0)
    };
    pids.iter().map(of).sum()
}

#[test]
fn forked_pages_stay_shared() {
    let held = start("own=3000 copies=1000/500 fork");
    assert_eq!(held.pids.len(), 2);
    let before = proportional(&held.pids);
    let e = look(&[&held], &options());
    let after = proportional(&held.pids);
    assert!(after <= before + 64, "{after} KiB after {before}");
    if e.notes.iter().any(|n| n.contains("frames are hidden")) {
        return println!("skipped: frame numbers are hidden");
    }
    assert!(e.pages_scanned >= 8000, "{e:?}");
    let saved = e.across.saved_bytes / 4096;
    if e.notes.iter().any(|n| n.contains("by their frames")) {
        // What frames hold isn't known: only the rest of the program is merged.
        assert!(saved < 100, "{saved}");
    } else {
        assert_near("saved", saved, 500, 5);
    }
}

#[test]
fn tables_take_at_most_forty_bytes_a_content() {
    // Own pages and pairs; two processes, so that the numbers of pages are kept too.
    let plan = "own=30000 copies=15000/15000";
    let (a, b) = (start(plan), start(plan));
    let e = look(&[&a, &b], &options());
    let limit = 40 * e.distinct + (1 << 17);
    assert!(e.looks.peak_bytes <= limit, "{} of {limit}", e.looks.peak_bytes);
}

// ── Two looks ──────────────────────────────────────────────────────────────────

fn look_again(
    held: &mut Held,
    changes: Changes,
    mut between: impl FnMut(&mut Held),
) -> Result<Estimate, MergeError> {
    let targets = pids(&[held]);
    let options = Options { again: Some(Duration::from_millis(300)), changes, ..options() };
    let mut once = true;
    estimate(&targets, &options, &mut |progress| {
        if matches!(progress, Progress::Waiting { .. }) && std::mem::take(&mut once) {
            between(held);
        }
    })
}

#[test]
fn what_changed_between_is_volatile() {
    let mut held = start("own=4000 volatile=300");
    for changes in [Changes::Read, Changes::Auto] {
        let e = look_again(&mut held, changes, |h| {
            h.tell("write 200");
            h.tell("map 100");
        })
        .expect("it is there");
        // Its stack and the like change too.
        assert!((600..700).contains(&e.volatile), "{changes:?}: {e:?}");
        let second = e.looks.second.expect("there were two looks");
        assert!(second.0 >= Duration::from_millis(300));
        if changes == Changes::Auto && !e.notes.iter().any(|n| n.contains("does not tell")) {
            assert!(e.looks.pages_spared >= 3800, "{:?}", e.looks);
        }
    }
}

#[test]
fn processes_that_end_or_become_another_program_are_no_error() {
    let mut held = start("own=2000");
    let e = look_again(&mut held, Changes::Auto, |h| h.tell("exec")).expect("no error");
    // What it had is gone; what `sleep` has is new.
    assert!(e.pages_scanned < 500, "{e:?}");
    held.end();
    let mut held = start("own=2000");
    let e = look_again(&mut held, Changes::Auto, Held::end).expect("no error");
    assert_eq!((e.pages_scanned, e.distinct), (0, 0));
    assert_eq!(e.processes[0].ended, Some(Ended::Exited));
    let gone = pids(&[&held]);
    let error = estimate(&gone, &options(), &mut |_| {}).expect_err("it is gone");
    assert!(matches!(error, MergeError::NoProcess { .. }), "{error}");
}

#[test]
fn the_budget_is_kept() {
    let held = start("own=20000");
    let full = look(&[&held], &options());
    let slow = look(&[&held], &Options { cpu_percent: Some(10), ..options() });
    // A tenth of a CPU takes longer than a whole one, on however noisy a machine.
    assert!(slow.looks.first > full.looks.first, "{:?} {:?}", slow.looks, full.looks);
    assert_eq!(slow.across, full.across);
}

// ── Several threads ────────────────────────────────────────────────────────────

/// All that is told, but for how long it took.
fn timeless(mut e: Estimate) -> Estimate {
    e.looks.first = Duration::ZERO;
    e.looks.second = e.looks.second.map(|_| (Duration::ZERO, Duration::ZERO));
    e
}

#[test]
fn two_jobs_tell_what_one_tells() {
    let plan = "own=20000 copies=20000/700 zero=3000";
    let (a, b, c) = (start(plan), start(plan), start("own=3000 copies=9000/700 fork"));
    for again in [None, Some(Duration::from_millis(10))] {
        let told = [1, 2, 5].map(|jobs| {
            let options = Options { jobs: Some(jobs), again, ..options() };
            timeless(look(&[&a, &b, &c], &options))
        });
        assert!(told[0].across.pages_sharing > 40_000, "{:?}", told[0]);
        assert_eq!(told[1], told[0]);
        assert_eq!(told[2], told[0]);
    }
}

#[test]
fn a_process_that_ends_between_the_looks_leaves_the_same_with_two_jobs() {
    let plan = "own=9000 copies=20000/700";
    let (a, b) = (start(plan), start(plan));
    let told = [1, 2].map(|jobs| {
        let mut ends = start(plan);
        let targets = pids(&[&a, &b, &ends]);
        let again = Some(Duration::from_millis(50));
        let options = Options { jobs: Some(jobs), again, ..options() };
        let e = estimate(&targets, &options, &mut |progress| {
            if matches!(progress, Progress::Waiting { .. }) {
                ends.end();
            }
        });
        let mut e = timeless(e.expect("who ends is no error"));
        // Another process each time: its number, and what was read of it.
        (e.looks.pages_read, e.looks.peak_bytes) = (0, 0);
        let gone = e.processes.iter_mut().find(|p| p.pid == ends.pids[0]).expect("it is told");
        assert_eq!((gone.ended, gone.pages_scanned), (Some(Ended::Exited), 0));
        gone.pid = 0;
        e.processes.sort_by_key(|p| p.pid);
        e
    });
    assert_eq!(told[0], told[1]);
}

#[test]
fn a_process_that_ends_while_two_jobs_read_counts_as_far_as_it_was_read() {
    let stays = start("own=5000 copies=5000/700");
    let alone = look(&[&stays], &options());
    let mut ends = start("own=40000 copies=20000/700");
    let targets = pids(&[&ends, &stays]);
    // So slow that progress is told in the middle. By then more was read than the other
    // process has.
    let options = Options { jobs: Some(2), cpu_percent: Some(10), ..options() };
    let e = estimate(&targets, &options, &mut |progress| {
        if matches!(progress, Progress::Reading { done: 12_000.., .. }) {
            ends.end();
        }
    })
    .expect("who ends is no error");
    let of = |pid: u32| e.processes.iter().find(|p| p.pid == pid).expect("it is told");
    assert_eq!(of(ends.pids[0]).ended, Some(Ended::Exited), "{e:?}");
    assert!((1..60_000).contains(&of(ends.pids[0]).pages_scanned), "{e:?}");
    assert_eq!(of(stays.pids[0]).pages_scanned, alone.pages_scanned);
    // Every page that was read is in a content's count, and none twice.
    assert_eq!(e.nodes.iter().map(|n| n.pages_scanned).sum::<u64>(), e.pages_scanned);
}

// ── Against ksmd ───────────────────────────────────────────────────────────────

/// Estimates, lets ksmd settle, and holds the one against the other; then
/// estimates what is merged already.
fn against_ksmd(ksm: &Ksm, held: &[&Held], options: &Options) -> Estimate {
    let ours = look(held, options);
    ksm.settle();
    let found = (ksm.counter("pages_shared"), ksm.counter("pages_sharing"));
    println!(
        "pages_shared {} against {}, pages_sharing {} against {}",
        ours.across.pages_shared, found.0, ours.across.pages_sharing, found.1
    );
    assert_near("pages_shared", ours.across.pages_shared, found.0, 1);
    assert_near("pages_sharing", ours.across.pages_sharing, found.1, 1);
    ksm.stop();
    ours
}

#[test]
fn only_what_is_registered_counts_where_that_is_asked() {
    // ksmd must not meet this in another test.
    let _turn = match Turn::take() {
        Ok(turn) => turn,
        Err(why) => return println!("skipped: {why}"),
    };
    let (a, b) = (start("merge copies=3000/100"), start("copies=3000/100"));
    let all = look(&[&a, &b], &options());
    let of = |held: &Held| look(&[held], &Options { registered: true, ..options() });
    let (first, second) = (of(&a), of(&b));
    assert!(first.pages_scanned >= 3000 && all.pages_scanned >= 6000, "{first:?} {all:?}");
    assert_eq!((second.pages_scanned, second.across.pages_sharing), (0, 0));
    assert!(second.notes.iter().any(|n| n.starts_with("none of these")), "{second:?}");
    let both = look(&[&a, &b], &Options { registered: true, ..options() });
    assert_eq!(both.processes.iter().filter(|p| p.pages_scanned > 0).count(), 1, "{both:?}");
    assert!(both.notes.iter().any(|n| n.ends_with("1 of 2 processes have some")), "{both:?}");
    assert!((2900..all.across.pages_sharing).contains(&both.across.pages_sharing), "{both:?}");
}

#[test]
fn ksmd_reaches_what_was_estimated() {
    let ksm = match Ksm::take() {
        Ok(ksm) => ksm,
        Err(why) => return println!("skipped: {why}"),
    };
    ksm.full_speed();
    ksm.set("max_page_sharing", 256);
    let plan = "merge own=2000 copies=6000/1500 zero=1000";
    let (a, b) = (start(plan), start(plan));
    let before = against_ksmd(&ksm, &[&a, &b], &options());
    // What is merged already counts as it is, nothing is left to be saved, and it
    // stays merged.
    let merged = ksm.counter("pages_sharing");
    let after = look(&[&a, &b], &options());
    assert_near("shared", after.across.pages_shared, before.across.pages_shared, 1);
    assert_near("sharing", after.across.pages_sharing, before.across.pages_sharing, 1);
    assert!(after.across.saved_bytes * 50 < before.across.saved_bytes, "{after:?}");
    ksm.set("run", 1);
    ksm.settle();
    assert_near("still merged", ksm.counter("pages_sharing"), merged, 1);
}

#[test]
fn ksmd_merges_zeros_as_was_estimated() {
    let ksm = match Ksm::take() {
        Ok(ksm) => ksm,
        Err(why) => return println!("skipped: {why}"),
    };
    ksm.full_speed();
    ksm.set("max_page_sharing", 256);
    if std::fs::metadata("/sys/kernel/mm/ksm/ksm_zero_pages").is_err() {
        return println!("skipped: this kernel does not count merged zeros");
    }
    ksm.set("use_zero_pages", 1);
    let held = start("merge own=1000 copies=2000/500 zero=3000");
    let options = Options { use_zero_pages: None, ..options() };
    let ours = against_ksmd(&ksm, &[&held], &options);
    assert!(ours.use_zero_pages);
    assert_near("zeros", ours.zero, ksm.counter("ksm_zero_pages"), 1);
    let saved = ours.across.pages_sharing + ours.zero;
    assert_eq!(ours.across.saved_bytes, saved * 4096);
}

#[test]
fn ksmd_shares_a_page_no_more_often_than_was_estimated() {
    let ksm = match Ksm::take() {
        Ok(ksm) => ksm,
        Err(why) => return println!("skipped: {why}"),
    };
    ksm.full_speed();
    ksm.set("max_page_sharing", 16);
    // A hundred of each: six full pages and one of four.
    let held = start("merge own=500 copies=6000/60");
    let ours = against_ksmd(&ksm, &[&held], &Options { max_page_sharing: None, ..options() });
    assert_eq!(ours.max_page_sharing, 16);
    assert!(ours.across.pages_shared >= 420, "{ours:?}");
}

#[test]
fn ksmd_leaves_volatile_pages_alone_as_was_estimated() {
    let ksm = match Ksm::take() {
        Ok(ksm) => ksm,
        Err(why) => return println!("skipped: {why}"),
    };
    ksm.full_speed();
    ksm.set("max_page_sharing", 256);
    let held = start("merge own=1000 copies=4000/1000 volatile=800");
    let again = Some(Duration::from_millis(100));
    let ours = against_ksmd(&ksm, &[&held], &Options { again, ..options() });
    assert!((800..900).contains(&ours.volatile), "{ours:?}");
}

#[test]
fn ksmd_merges_forked_children_as_was_estimated() {
    let ksm = match Ksm::take() {
        Ok(ksm) => ksm,
        Err(why) => return println!("skipped: {why}"),
    };
    ksm.full_speed();
    ksm.set("max_page_sharing", 256);
    // Forked pages that are like no others: nothing comes of them, before as after.
    let held = start("merge own=4000 fork");
    let ours = look(&[&held], &options());
    ksm.settle();
    let found = ksm.counter("pages_sharing");
    // The program's own few hundred pages are shared too, and equal some.
    assert!(
        ours.across.pages_sharing.abs_diff(found) < 40,
        "{} {found}",
        ours.across.pages_sharing
    );
    ksm.stop();
    drop(held);
    ksm.set("run", 2);
    // Copies among them: what is in shared frames must be seen.
    let held = start("merge own=2000 copies=4000/1000 fork");
    let ours = look(&[&held], &options());
    if ours.notes.iter().any(|n| n.contains("by their frames")) {
        return println!("skipped: what is in shared frames isn't known without /proc/kcore");
    }
    let ours = against_ksmd(&ksm, &[&held], &options());
    assert_near("saved", ours.across.saved_bytes / 4096, 4000 - 1000, 5);
}

#[test]
fn knobs_are_restored_when_a_holder_panics() {
    let ksm = match Ksm::take() {
        Ok(ksm) => ksm,
        Err(why) => return println!("skipped: {why}"),
    };
    // Looked at while they are ours: another test may have its turn in between.
    let shown = || knobs().into_iter().filter(|(name, _)| name != "run").collect::<Vec<_>>();
    let before = shown();
    drop(ksm);
    let result = std::panic::catch_unwind(|| {
        let ksm = Ksm::take().expect("it was there a moment ago");
        ksm.full_speed();
        ksm.set("max_page_sharing", 3);
        ksm.set("run", 1);
        panic!("as a test would");
    });
    assert!(result.is_err());
    let _ksm = Ksm::take().expect("it was there a moment ago");
    assert_eq!(shown(), before);
}
