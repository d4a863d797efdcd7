//! Source: specs/merge-drive.md.

use super::*;
use crate::knobs::Errno;

/// What a kernel shows that has all files.
fn shown(changes: &[(File, u64)]) -> Shown {
    let ksm = Ksm::new(KernelVersion::V6_12, 1);
    let mut shown: Shown = File::ALL
        .into_iter()
        .map(|f| (f, value_of(f, &ksm.read(f.name()).unwrap()).unwrap()))
        .collect();
    shown.extend(changes.iter().copied());
    shown
}

#[test]
fn texts_are_numbers_and_back() {
    assert_eq!(value_of(File::AdvisorMode, "none [scan-time]\n"), Some(1));
    assert_eq!(value_of(File::AdvisorMode, "[none] scan-time"), Some(0));
    assert_eq!(value_of(File::AdvisorMode, "scan-time"), Some(1));
    assert_eq!(value_of(File::AdvisorMode, "none scan-time"), None);
    assert_eq!(value_of(File::Run, "2\n"), Some(2));
    assert_eq!(value_of(File::GeneralProfit, "-5"), Some(0));
    assert_eq!(value_of(File::Run, "two"), None);
    assert_eq!(text_of(File::AdvisorMode, 1), "scan-time");
    assert_eq!(text_of(File::PagesToScan, 7), "7");
}

#[test]
fn a_kernel_is_known_by_its_files() {
    let mut files = shown(&[]);
    assert_eq!(version_of(&files), KernelVersion::V6_12);
    files.retain(|f, _| f.exists(KernelVersion::V6_1));
    assert_eq!(version_of(&files), KernelVersion::V6_1);
    files.retain(|f, _| f.exists(KernelVersion::V3_8));
    assert_eq!(version_of(&files), KernelVersion::V3_8);
}

#[test]
fn refusals_are_known_before() {
    let errno = |s: &Shown, f, v| predict(s, f, v).map_err(|e| e.errno);
    let idle = shown(&[]);
    assert!(matches!(errno(&idle, File::Run, 1), Ok(Written::Done { .. })));
    assert_eq!(errno(&idle, File::Run, 3), Err(Errno::Einval));
    assert!(errno(&idle, File::MergeAcrossNodes, 0).is_ok());
    assert_eq!(errno(&idle, File::PagesToScan, 1 << 32), Err(Errno::Einval));
    assert_eq!(errno(&idle, File::PagesShared, 1), Err(Errno::Eacces));
    let sharing = shown(&[(File::PagesShared, 3)]);
    assert_eq!(errno(&sharing, File::MergeAcrossNodes, 0), Err(Errno::Ebusy));
    assert!(errno(&sharing, File::MergeAcrossNodes, 1).is_ok(), "the value that is there");
    assert_eq!(errno(&sharing, File::MaxPageSharing, 16), Err(Errno::Ebusy));
    let advised = shown(&[(File::AdvisorMode, 1)]);
    assert_eq!(errno(&advised, File::PagesToScan, 100), Err(Errno::Einval));
    assert!(errno(&advised, File::AdvisorMode, 0).is_ok());
    let offline = shown(&[(File::Run, 5)]);
    assert_eq!(errno(&offline, File::Run, 1), Ok(Written::Waits));
    let mut old = shown(&[]);
    old.remove(&File::SmartScan);
    let error = predict(&old, File::SmartScan, 1).unwrap_err();
    assert_eq!(
        (error.errno, error.allowed.as_str()),
        (Errno::Enoent, "this kernel does not have it")
    );
}

#[test]
fn a_switch_is_paid_for_in_memory() {
    let s = shown(&[(File::PagesSharing, 1000), (File::KsmZeroPages, 24)]);
    let cost = |available| Unmerging::of(&s, available, 4 << 30);
    let all = (4 << 20) + (256 << 20);
    assert_eq!(cost(0).back_bytes, 4 << 20);
    assert!(cost(all).fits() && !cost(all - 1).fits());
    // Nothing is merged: nothing is needed.
    assert!(Unmerging::of(&shown(&[]), 0, 4 << 30).fits());
    assert_eq!(Unmerging::of(&s, 0, 1 << 20).reserve_bytes, 64 << 20);
}

fn kept(file: File, old: u64, ours: &[u64]) -> Kept {
    Kept { file, old, ours: ours.iter().copied().collect() }
}

/// A plan as text: writes, then what stays.
fn check(kept: &[Kept], now: &[(File, u64)], room: bool, expected: &str) {
    let plan = undo(kept, &shown(now), room);
    let mut words: Vec<String> =
        plan.writes.iter().map(|(f, v)| format!("{}={}", f.name(), text_of(*f, *v))).collect();
    words.extend(plan.left.iter().map(|(f, why)| match why {
        Left::Theirs { now } => format!("{} theirs {now}", f.name()),
        other => format!("{} {other:?}", f.name()),
    }));
    assert_eq!(words.join(", "), expected);
}

#[test]
fn what_is_ours_goes_back_and_the_rest_stays() {
    use File::{PagesToScan, Run, SleepMillisecs};
    let k =
        [kept(Run, 0, &[1]), kept(PagesToScan, 100, &[526, 263]), kept(SleepMillisecs, 50, &[20])];
    let now = [(Run, 1), (PagesToScan, 263), (SleepMillisecs, 20)];
    check(&k, &now, true, "run=0, pages_to_scan=100, sleep_millisecs=50");
    let now = [(Run, 1), (PagesToScan, 777), (SleepMillisecs, 50)];
    check(&k, &now, true, "run=0, pages_to_scan theirs 777");
    // All done: once more does nothing.
    check(&k, &[(Run, 0), (PagesToScan, 100), (SleepMillisecs, 50)], true, "");
    // Somebody has stopped it or unmerged everything: so it stays.
    check(&[kept(Run, 1, &[1])], &[(Run, 2)], true, "run theirs 2");
    check(&[kept(Run, 2, &[1])], &[(Run, 1)], true, "run=2");
    check(&[kept(Run, 2, &[1])], &[(Run, 1)], false, "run=0, run NoRoom");
    // It ran before: stays so until the rest is set.
    let k = [kept(Run, 1, &[0, 1]), kept(SleepMillisecs, 50, &[20])];
    check(&k, &[(Run, 0), (SleepMillisecs, 20)], true, "sleep_millisecs=50, run=1");
}

#[test]
fn of_one_who_is_alone_everything_is_ours() {
    use File::{AdvisorMode, MaxPageSharing, PagesShared, PagesToScan, Run, SleepMillisecs};
    let any = |file, old| Kept { file, old, ours: Ours::Any };
    let k = [any(Run, 0), any(PagesToScan, 100), any(SleepMillisecs, 20), any(AdvisorMode, 0)];
    check(&k, &[(Run, 1), (PagesToScan, 4711)], true, "run=0, pages_to_scan=100");
    check(&k, &[], true, "");
    // An advisor that was switched on has moved pages_to_scan.
    let now = [(AdvisorMode, 1), (PagesToScan, 100), (SleepMillisecs, 0)];
    check(&k, &now, true, "advisor_mode=none, pages_to_scan=100, sleep_millisecs=20");
    // One that was on chooses it.
    let k = [any(PagesToScan, 812), any(AdvisorMode, 1), any(MaxPageSharing, 256), any(Run, 2)];
    let now = [(PagesToScan, 7), (MaxPageSharing, 2), (Run, 1), (PagesShared, 5)];
    check(&k, &now, true, "run=2, max_page_sharing=256, advisor_mode=scan-time");
    let left = "run=0, advisor_mode=scan-time, run NoRoom, max_page_sharing NoRoom";
    check(&k, &now, false, left);
}

#[test]
fn limits_need_everything_unmerged() {
    use File::{MaxPageSharing, MergeAcrossNodes, PagesShared, Run};
    let k = [kept(MergeAcrossNodes, 1, &[0]), kept(Run, 0, &[0, 1, 2])];
    let now = [(MergeAcrossNodes, 0), (Run, 1)];
    check(&k, &now, true, "run=0, merge_across_nodes=1");
    let sharing = [(MergeAcrossNodes, 0), (Run, 1), (PagesShared, 5)];
    check(&k, &sharing, true, "run=2, merge_across_nodes=1, run=0");
    check(&k, &sharing, false, "run=0, merge_across_nodes NoRoom");
    // ksmd ran before, for others.
    let k = [kept(MergeAcrossNodes, 1, &[0]), kept(MaxPageSharing, 256, &[16])];
    let now = [(MergeAcrossNodes, 0), (MaxPageSharing, 16), (Run, 1), (PagesShared, 5)];
    check(&k, &now, true, "run=2, merge_across_nodes=1, max_page_sharing=256, run=1");
    // Stopped as 2 with something left shared: 2 again would do nothing.
    let now = [(MergeAcrossNodes, 0), (Run, 2), (PagesShared, 5)];
    check(&k[..1], &now, true, "run=0, run=2, merge_across_nodes=1");
}

#[test]
fn the_advisor_and_its_pages_go_back_in_the_right_order() {
    use File::{AdvisorMaxCpu, AdvisorMode, PagesToScan};
    // Theirs was on, ours is off.
    let k = [kept(AdvisorMode, 1, &[0]), kept(PagesToScan, 812, &[526])];
    check(&k, &[(AdvisorMode, 0), (PagesToScan, 526)], true, "advisor_mode=scan-time");
    // Theirs was off, ours is on, and has moved pages_to_scan.
    let k =
        [kept(AdvisorMode, 0, &[1]), kept(AdvisorMaxCpu, 70, &[20]), kept(PagesToScan, 300, &[])];
    let now = [(AdvisorMode, 1), (AdvisorMaxCpu, 20), (PagesToScan, 4711)];
    check(&k, &now, true, "advisor_mode=none, pages_to_scan=300, advisor_max_cpu=70");
    // The same number by chance: switching sets 100, so it is written all the same.
    let now = [(AdvisorMode, 1), (AdvisorMaxCpu, 70), (PagesToScan, 300)];
    check(&k, &now, true, "advisor_mode=none, pages_to_scan=300");
    // Somebody has switched theirs on over our speed.
    let k = [kept(PagesToScan, 100, &[526])];
    let now = [(AdvisorMode, 1), (PagesToScan, 500)];
    check(&k, &now, true, "pages_to_scan TheirAdvisor");
}

#[test]
fn every_plan_is_one_that_the_rules_accept_and_is_done_after_one_try() {
    // All combinations of a few values: old, ours, now, sharing, room.
    let files = [File::Run, File::MergeAcrossNodes, File::PagesToScan, File::AdvisorMode];
    let values: [&[u64]; 4] = [&[0, 1, 2], &[0, 1], &[100, 526], &[0, 1]];
    let mut seed = 1u64;
    let mut draw = |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    for _ in 0..20_000 {
        let mut now = shown(&[(File::PagesShared, draw(2) as u64 * 5)]);
        let mut k = Vec::new();
        for (file, values) in files.iter().zip(values) {
            now.insert(*file, values[draw(values.len())]);
            if draw(3) > 0 {
                let ours = [values[draw(values.len())], values[draw(values.len())]];
                k.push(kept(*file, values[draw(values.len())], &ours));
                if draw(4) == 0 {
                    k.last_mut().unwrap().ours = Ours::Any;
                }
            }
        }
        let room = draw(2) == 0;
        let plan = undo(&k, &now, room);
        let mut after = now.clone();
        for (file, value) in &plan.writes {
            predict(&after, *file, *value)
                .unwrap_or_else(|e| panic!("{e}: {k:?} {now:?} {plan:?}"));
            if (*file, *value) == (File::Run, 2) && after[&File::Run] != 2 {
                assert!(room, "{plan:?}");
                after.insert(File::PagesShared, 0);
            }
            if *file == File::AdvisorMode && after[file] != *value {
                after.insert(File::PagesToScan, if *value == 0 { 100 } else { 500 });
            }
            after.insert(*file, *value);
        }
        for entry in &k {
            let left = plan.left.iter().find(|(f, _)| *f == entry.file);
            let advised = entry.file == File::PagesToScan && after[&File::AdvisorMode] == 1;
            if left.is_none() && !advised {
                assert_eq!(after[&entry.file], entry.old, "{k:?} {now:?} {plan:?}");
            }
            if let Some((_, Left::Theirs { now: theirs })) = left {
                assert_eq!(after[&entry.file], *theirs, "{k:?} {now:?} {plan:?}");
                assert!(!entry.ours.contains(*theirs));
            }
        }
    }
}

#[test]
fn one_user_meets_nobody() {
    let users = |list: &[u32]| list.iter().map(|u| (*u, vec![1])).collect::<Users>();
    assert!(crossing(&users(&[]), Some(0)).is_empty());
    assert!(crossing(&users(&[1000]), Some(1000)).is_empty());
    assert!(crossing(&users(&[64055]), None).is_empty());
    assert_eq!(crossing(&users(&[1000]), Some(0)).len(), 2);
    assert_eq!(crossing(&users(&[7, 1000]), None).len(), 2);
}
