use super::*;
use homenode_core::scenario::Margin;
use homenode_fixtures::Folder;

fn curve(gains: [f64; 3]) -> Curve {
    Curve([64, 32, 16].into_iter().zip(gains).collect())
}

#[test]
fn the_limit_is_taken_as_the_plan_says() {
    // Level: the mean.
    assert_eq!(curve([100.0, 103.0, 99.0]).limit(), Some((100.0 + 103.0 + 99.0) / 3.0));
    // Steps of 20 and 10: the rest comes to 10 more.
    assert_eq!(curve([100.0, 120.0, 130.0]).limit(), Some(140.0));
    assert_eq!(curve([130.0, 110.0, 100.0]).limit(), Some(90.0));
    // It grows on, or turns: there is none to be seen.
    assert_eq!(curve([100.0, 110.0, 120.0]).limit(), None);
    assert_eq!(curve([100.0, 110.0, 130.0]).limit(), None);
    assert_eq!(curve([100.0, 120.0, 110.0]).limit(), None);
    assert_eq!(curve([100.0, f64::NAN, 110.0]).limit(), None);
    assert_eq!(Curve(vec![(64, 100.0), (32, 100.0)]).limit(), None);
}

#[test]
fn a_gain_is_held_against_the_curve_where_it_has_that_scale() {
    let curve = curve([100.0, 120.0, 130.0]);
    assert!(curve.agrees(64, 114.0) && !curve.agrees(64, 116.0) && !curve.agrees(64, f64::NAN));
    assert!(curve.agrees(4096, 9.0));
    assert_eq!(curve.told(), "+100.0 % at 1:64, +120.0 % at 1:32, +130.0 % at 1:16");
}

#[test]
fn what_a_file_has_is_not_run_again() {
    let folder = Folder::new();
    let bench = Bench::new(None, Margin::Kernel, &[]).expect("the registered experiment");
    let run = |scale, kernel, seed, score: f64| Run {
        scale,
        kernel: bench.column(kernel),
        seed,
        score,
        late: score,
        fast: 10.0,
        ramp: 0.0,
        promoted: 0.5,
        seconds: 1.0,
    };
    let all = [
        run(1024, Kernel::Off, 1, 50.0),
        run(1024, Kernel::B, 1, 75.0),
        // Its other half was cut off.
        run(1024, Kernel::Off, 2, 50.0),
    ];
    let text: String = all.iter().map(|r| format!("{}\n", r.to_json())).collect();
    assert_eq!(parse(&text).expect("they were written so"), all);
    assert_eq!(steps(&bench, &all)[0].gains, [50.0]);
    let asked = Asked {
        quick: false,
        seeds: Some(1),
        scale: Some(1024),
        machine: None,
        jobs: 1,
        margin: Margin::Kernel,
        columns: Vec::new(),
    };
    let path = folder.write("runs.jsonl", &text);
    let page = page(&asked, &path).expect("nothing is left to run");
    assert!(page.contains("| 1:1024 | 96 MiB | 1 | 50.0 |"), "{page}");
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), text, "nothing was run");

    let spoiled = folder.write("spoiled.jsonl", format!("{text}half a li"));
    let error = super::page(&asked, &spoiled).expect_err("it is no run");
    assert!(format!("{error:#}").contains("line 4: this is no finished run"), "{error:#}");
}

#[test]
fn the_page_shows_the_kept_runs_and_what_follows_from_them() {
    let bench = Bench::new(None, Margin::Kernel, &[]).expect("the registered experiment");
    let runs = parse(KEPT).expect("finished runs");
    let shown = include_str!("../../../../../../docs/tiering-by-scale.md");
    let made = table(&bench, &steps(&bench, &runs));
    let rows: Vec<&str> = made.lines().filter(|line| line.starts_with('|')).collect();
    assert!(shown.contains(&rows.join("\n")), "docs/tiering-by-scale.md isn't of these: {made}");
    let limit = Curve::kept(&bench).expect("a curve").limit();
    assert_eq!(shown.contains("no limit is to be seen"), limit.is_none(), "{limit:?}");
}
