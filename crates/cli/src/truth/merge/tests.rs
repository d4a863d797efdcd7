use super::*;
use expect_test::expect;
use look::Look;
use side::{AfterPass, Counter};
use std::collections::BTreeMap;

/// What the kernel's own ksmd of Linux 6.18 counted: the `real` parts of `--json`.
const RECORDED: &str = include_str!("../../../../../truth/merge-6.18.txt");

/// Counters by case and pass.
fn recorded() -> BTreeMap<(String, usize), Vec<Counter>> {
    let lines = RECORDED.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
    lines
        .map(|l| {
            let mut words = l.split_ascii_whitespace();
            let case = words.next().unwrap().to_owned();
            let pass = words.next().unwrap().parse().unwrap();
            let counters = words.map(|w| {
                let (name, value) = w.split_once('=').unwrap();
                Counter { name: name.to_owned(), value: value.parse().unwrap() }
            });
            ((case, pass), counters.collect())
        })
        .collect()
}

// Where there is no KSM, or nobody is root, the simulated ksmd still is held to a real one.
#[test]
fn the_simulated_ksmd_counts_what_a_real_one_was_recorded_to() {
    let plan = plan(&[]).unwrap();
    let recorded = recorded();
    let (mut compared, mut passes) = (0, 0);
    for case in &plan.cases {
        let name = &case.scenario.name;
        let rows = simulated::run(case, KernelVersion::V6_12, true).unwrap();
        assert_eq!(rows.len(), case.passes as usize, "{name}");
        for (i, row) in rows.iter().enumerate() {
            let real = &recorded[&(name.clone(), i + 1)];
            for c in real {
                assert_eq!(row.get(&c.name), Some(c.value), "{name}, pass {}, {}", i + 1, c.name);
            }
            compared += real.len();
            passes += 1;
        }
    }
    assert_eq!(passes, recorded.len(), "cases that are no longer there are recorded");
    assert_eq!(compared, 13 * passes);
}

// A check that can't see another rule would be worth nothing.
#[test]
fn rules_of_other_releases_are_seen() {
    let recorded = recorded();
    let plan = plan(&["restored".to_owned(), "unmerge".to_owned()]).unwrap();
    let differs = |case: &MergeCase, version| {
        let rows = simulated::run(case, version, true).unwrap();
        rows.iter().enumerate().any(|(i, row)| {
            let real = &recorded[&(case.scenario.name.clone(), i + 1)];
            real.iter().any(|c| row.get(&c.name).is_some_and(|v| v != c.value))
        })
    };
    let seen: Vec<(bool, bool)> = plan
        .cases
        .iter()
        .map(|c| (differs(c, KernelVersion::V7_3), differs(c, KernelVersion::V6_1)))
        .collect();
    // Joining wipes in 7.3; pages of zeroes come after the stable tree in 6.1.
    assert_eq!(seen, [(true, true), (false, true)]);
}

#[test]
fn every_case_is_small_and_has_its_own_name() {
    let plan = plan(&[]).unwrap();
    assert_eq!(plan.bound_percent, 1);
    assert!(plan.cases.len() >= 20);
    for case in &plan.cases {
        let maps = case.scenario.processes.iter().flat_map(|p| &p.maps);
        let bytes: u64 = maps.map(|m| m.size.0).sum();
        assert!(bytes <= 16 << 20, "{}: {bytes}", case.scenario.name);
    }
    let unknown = super::plan(&["no-such".to_owned()]).unwrap_err().to_string();
    assert!(unknown.contains("no case \"no-such\"; it has copies, "), "{unknown}");
}

#[test]
fn the_nearest_release_is_not_after_this_one() {
    for (here, rules) in [
        ("6.18.44-x", KernelVersion::V6_12),
        ("6.12.0", KernelVersion::V6_12),
        ("6.8.0-31-generic", KernelVersion::V6_1),
        ("7.3.4", KernelVersion::V7_3),
        ("8.0", KernelVersion::V7_3),
        ("5.10.1", KernelVersion::V4_15),
        ("", KernelVersion::V6_12),
    ] {
        assert_eq!(live::version(Some(here)), rules, "{here}");
    }
}

fn row(counters: &[(&str, i64)]) -> AfterPass {
    let counter = |(name, value): &(&str, i64)| Counter { name: (*name).into(), value: *value };
    AfterPass { counters: counters.iter().map(counter).collect(), writes: Vec::new() }
}

fn made_up(simulated: i64, estimate: u64) -> MergeCheck {
    let first = || row(&[("pages_shared", 0), ("pages_volatile", 300)]);
    let last = |sharing| {
        row(&[
            ("pages_shared", 100),
            ("pages_sharing", sharing),
            ("a ksm_merging_pages", 300),
            ("ksm_zero_pages", 0),
        ])
    };
    let mut real = vec![first(), last(200)];
    // A line that only this kernel has.
    real[1].counters.push(Counter { name: "a ksm_mergeable".into(), value: 1 });
    real[1].writes.push(("run 2".into(), "done".into()));
    let mut other = vec![first(), last(simulated)];
    other[1].writes.push(("run 2".into(), "done".into()));
    let estimate = Some(Look { pages_shared: 100, pages_sharing: estimate, zero: 0, volatile: 0 });
    let case =
        Comparison { name: "one".into(), about: "a case".into(), real, simulated: other, estimate };
    MergeCheck {
        kernel: "6.18.0".into(),
        rules: KernelVersion::V6_12,
        registered: "2026-01-01".into(),
        bound_percent: 1,
        cases: vec![case],
    }
}

#[test]
fn equal_counters_and_a_near_estimate_pass() {
    let check = made_up(200, 198);
    assert!(check.pass());
    expect![[r#"
        one: a case
          after pass 2                real simulated  estimate
          pages_shared                 100       100       100
          pages_sharing                200       200       198
          ksm_zero_pages                 0         0
          before pass 2: run 2: done
          equal in all 6 counters of 2 passes; estimate off by 1.00 %

        simulated ksmd equal to the kernel's in 1 of 1 case (6 counters over all passes); estimate within 1 % of it in 1 of 1
        kernel 6.18.0, simulated by the rules of 6.12; cases registered 2026-01-01 in truth/merge.toml; nobody else had memory registered for merging
    "#]]
    .assert_eq(&check.to_text(false));
}

#[test]
fn one_counter_that_differs_fails_the_check() {
    let check = made_up(201, 190);
    assert!(!check.pass());
    let text = check.to_text(false);
    assert!(
        text.contains("pages_sharing                200       201       190  DIFFERS"),
        "{text}"
    );
    assert!(text.contains("1 of 6 counters DIFFER; estimate off by 5.00 %: MISSED"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&check.to_json()).unwrap();
    assert_eq!(json["pass"], false);
    assert_eq!(json["cases"][0]["differences"][0]["counter"], "pages_sharing");
    assert!(!made_up(200, 197).pass() && !made_up(199, 200).pass());
    // A write that was answered otherwise is a difference too.
    let mut check = made_up(200, 200);
    check.cases[0].simulated[1].writes[0].1 = "EBUSY".into();
    assert!(!check.pass());
    // Nothing compared is nothing met.
    check.cases.clear();
    assert!(!check.pass());
    let mut check = made_up(200, 200);
    check.cases[0].simulated.clear();
    assert!(!check.pass());
}
