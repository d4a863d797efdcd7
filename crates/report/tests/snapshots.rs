//! What people see: tables, pictures, captions and JSON, as text.

use expect_test::expect;
use homenode_report::{
    Better, Caption, Column, ComparisonTable, Figure, Glyphs, Report, Scale, Section, Snapshot,
    heat_picture,
};

/// A run of so much time, a share of a million accesses on the fast tier, and pages moved up.
#[derive(Clone, Copy)]
struct Repetition(f64, f64, f64);

impl Repetition {
    fn moved_mb(&self) -> f64 {
        (self.2 + self.2 / 2.0) * 4096.0 / 1e6
    }
}

type Runs = (&'static str, Vec<Repetition>);

fn runs() -> Vec<Runs> {
    vec![
        ("off", vec![Repetition(120.0, 500_000.0, 0.0), Repetition(121.0, 501_000.0, 0.0)]),
        ("mode 1", vec![Repetition(122.0, 500_500.0, 0.0), Repetition(120.5, 501_500.0, 0.0)]),
        (
            "mode 2",
            vec![Repetition(100.0, 900_000.0, 70_000.0), Repetition(100.2, 905_000.0, 71_000.0)],
        ),
        (
            "weighted interleave-3:1",
            vec![Repetition(125.0, 250_000.0, 0.0), Repetition(125.1, 251_000.0, 0.0)],
        ),
    ]
}

/// A table of these runs, of figures that only this test knows.
fn table(runs: &[Runs]) -> ComparisonTable {
    let row = |figure: Figure, of: fn(&Repetition) -> f64| {
        figure.compared(runs.iter().map(|(_, all)| all.iter().map(of).collect()).collect())
    };
    let (lower, higher, neither) = (Better::Lower, Better::Higher, Better::Neither);
    let main = vec![
        row(Figure::new("time", "s", lower, 4, ""), |r| r.0),
        row(Figure::new("accesses", "M/s", higher, 3, ""), |r| 1.0 / r.0),
        row(Figure::new("accesses in DRAM", "%", higher, 2, ""), |r| r.1 / 1e4),
        row(Figure::new("accesses in CXL", "%", neither, 2, ""), |r| (1e6 - r.1) / 1e4),
        row(Figure::count("pages promoted", ""), |r| r.2),
        row(Figure::count("pages demoted", ""), |r| r.2 / 2.0),
        row(Figure::new("moved", "MB", neither, 1, ""), Repetition::moved_mb),
        row(Figure::new("spent on moving", "MB/s", neither, 1, ""), |r| r.moved_mb() / r.0),
    ];
    let mut counters = Vec::new();
    if runs.iter().flat_map(|(_, all)| all).any(|r| r.2 > 0.0) {
        counters = vec![
            row(Figure::count("numa_hint_faults", ""), |r| r.2 * 3.0),
            row(Figure::count("pgpromote_success", ""), |r| r.2),
            row(Figure::count("pgdemote_kswapd", ""), |r| r.2 / 2.0),
        ];
    }
    ComparisonTable {
        columns: runs.iter().map(|(name, _)| (*name).to_owned()).collect(),
        groups: vec![
            Section { title: String::new(), figures: main },
            Section { title: "vmstat".into(), figures: counters },
        ],
    }
}

#[test]
fn replays_compared() {
    expect![[r#"
                                                    off                   mode 1                   mode 2      weighted interleave
                                                                                                                               3:1
        time [s]                    120.5000 (   0.00%)      121.2500 (  -0.62%)      100.1000 *  16.93%*      125.0500 *  -3.78%*
          Stddev over seeds           0.7071                   1.0607                   0.1414                   0.0707
          Welch-p                          -                   0.5038                   0.0121                   0.0673
        accesses [M/s]                 0.008 (   0.00%)         0.008 (  -0.62%)         0.010 *  20.38%*         0.008 *  -3.64%*
          Stddev over seeds            0.000                    0.000                    0.000                    0.000
          Welch-p                          -                   0.5036                   0.0074                   0.0701
        accesses in DRAM [%]           50.05 (   0.00%)         50.10 (   0.10%)         90.25 *  80.32%*         25.05 * -49.95%*
          Stddev over seeds             0.07                     0.07                     0.35                     0.07
          Welch-p                          -                   0.5528                   0.0027                   0.0000
        accesses in CXL [%]            49.95                    49.90                     9.75                    74.95
        pages promoted                     0                        0                    70500                        0
        pages demoted                      0                        0                    35250                        0
        moved [MB]                       0.0                      0.0                    433.2                      0.0
        spent on moving [MB/s]           0.0                      0.0                      4.3                      0.0
        vmstat
        numa_hint_faults                   0                        0                   211500                        0
        pgpromote_success                  0                        0                    70500                        0
        pgdemote_kswapd                    0                        0                    35250                        0
    "#]].assert_eq(&table(&runs()).to_text(usize::MAX));
}

#[test]
fn wide_tables_are_cut_into_blocks() {
    let runs: Vec<_> = runs().into_iter().map(|(name, r)| (name, r[..1].to_vec())).collect();
    let text = table(&runs).to_text(80);
    assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    expect![[r#"
                                                    off                   mode 1
        time [s]                    120.0000 (   0.00%)      122.0000 (  -1.67%)
        accesses [M/s]                 0.008 (   0.00%)         0.008 (  -1.64%)
        accesses in DRAM [%]           50.00 (   0.00%)         50.05 (   0.10%)
        accesses in CXL [%]            50.00                    49.95
        pages promoted                     0                        0
        pages demoted                      0                        0
        moved [MB]                       0.0                      0.0
        spent on moving [MB/s]           0.0                      0.0
        vmstat
        numa_hint_faults                   0                        0
        pgpromote_success                  0                        0
        pgdemote_kswapd                    0                        0

                                                 mode 2      weighted interleave
                                                                             3:1
        time [s]                    100.0000 (  16.67%)      125.0000 (  -4.17%)
        accesses [M/s]                 0.010 (  20.00%)         0.008 (  -4.00%)
        accesses in DRAM [%]           90.00 (  80.00%)         25.00 ( -50.00%)
        accesses in CXL [%]            10.00                    75.00
        pages promoted                 70000                        0
        pages demoted                  35000                        0
        moved [MB]                     430.1                      0.0
        spent on moving [MB/s]           4.3                      0.0
        vmstat
        numa_hint_faults              210000                        0
        pgpromote_success              70000                        0
        pgdemote_kswapd                35000                        0
    "#]]
    .assert_eq(&text);
}

#[test]
fn figures_that_do_not_apply_and_baselines_of_zero() {
    let figure = |name, better, samples: &[&[f64]]| {
        let samples = samples.iter().map(|s| s.to_vec()).collect();
        Figure::new(name, "", better, 1, "").compared(samples)
    };
    let table = ComparisonTable {
        columns: vec!["a".into(), "b".into(), "c".into()],
        groups: vec![Section {
            title: "odd".into(),
            figures: vec![
                figure("from nothing", Better::Higher, &[&[0.0], &[1.0], &[0.0]]),
                figure("to nothing", Better::Lower, &[&[1.0], &[0.0], &[f64::NAN]]),
                figure("not here", Better::Lower, &[&[1.0], &[], &[2.0]]),
                figure("wider than twelve", Better::Neither, &[&[1e15], &[1.0], &[-1.0]]),
            ],
        }],
    };
    expect![[r#"
                                                       a                        b                        c
        odd
        from nothing                      0.0 (   0.00%)           1.0 (    Inf%)           0.0 (   0.00%)
        to nothing                        1.0 (   0.00%)           0.0 ( 100.00%)           NaN (    NaN%)
        not here                          1.0 (   0.00%)             -                      2.0 (-100.00%)
        wider than twelve  1000000000000000.0                      1.0                     -1.0
    "#]].assert_eq(&table.to_text(usize::MAX));
}

/// A hump in the middle; fast where `fast` says so.
fn snapshot(label: &str, n: u64, fast: impl Fn(u64) -> u64) -> Snapshot {
    let columns = (0..n)
        .map(|i| {
            let from_middle = (2 * i + 1).abs_diff(n) * 20 / n;
            let accesses = (1u64 << 20) >> from_middle.min(20);
            let resident = if i + 1 == n { 0 } else { 512 };
            Column { accesses: if i == 0 { 0 } else { accesses }, resident, fast: fast(i) }
        })
        .collect();
    Snapshot { label: label.into(), columns }
}

fn pictures() -> Vec<Snapshot> {
    vec![
        snapshot("start", 256, |i| if i < 128 { 512 } else { 0 }),
        snapshot("off, end", 256, |i| if i < 128 { 512 } else { 0 }),
        snapshot("mode 2, end", 256, |i| 512 - (2 * i + 1).abs_diff(256) * 2),
    ]
}

#[test]
fn pictures_of_heat() {
    expect![[r#"
        start       heat │▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▂▃▃▄▅▅▆▇▇███▇▇▆▆▅▄▃▃▂▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁│
                    fast │██████████████████████████████▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁│
        off, end    heat │▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▂▃▃▄▅▅▆▇▇███▇▇▆▆▅▄▃▃▂▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁│
                    fast │██████████████████████████████▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁│
        mode 2, end heat │▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▂▃▃▄▅▅▆▇▇███▇▇▆▆▅▄▃▃▂▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁│
                    fast │▂▂▂▂▂▂▂▃▃▃▃▄▄▄▄▅▅▅▅▅▆▆▆▆▇▇▇▇▇▇▇▇▇▇▇▇▇▆▆▆▆▅▅▅▅▅▄▄▄▄▃▃▃▃▃▂▂▂▂▂▂│
        heat: accesses to equal ranges, █ most, half at each step to ▁, blank none
        fast: share of a range in the fast tier, ▁ none to █ all, · not resident
    "#]]
    .assert_eq(&heat_picture(&pictures(), 80, Glyphs::Blocks));
    expect![[r#"
        start       heat |....................:--=++*##@@@##**+=--:....................|
                    fast |7777777777777777777777777777774000000000000000000000000000000|
        off, end    heat |....................:--=++*##@@@##**+=--:....................|
                    fast |7777777777777777777777777777774000000000000000000000000000000|
        mode 2, end heat |....................:--=++*##@@@##**+=--:....................|
                    fast |1111111222233334444455556666666666666555544444333322222111111|
        heat: accesses to equal ranges, @ most, half at each step to ., blank none
        fast: share of a range in the fast tier, 0 none to 7 all, blank not resident
    "#]]
    .assert_eq(&heat_picture(&pictures(), 80, Glyphs::Ascii));
}

#[test]
fn pictures_keep_to_the_width() {
    for width in [0, 30, 31, 79, 80, 200] {
        for n in [0, 1, 5, 71, 72, 73, 1000] {
            let all = [snapshot("a label that is far too long for any terminal", n, |_| 7)];
            for glyphs in [Glyphs::Blocks, Glyphs::Ascii] {
                let text = heat_picture(&all, width, glyphs);
                for line in text.lines().take(2) {
                    assert!(line.chars().count() <= width.max(30), "{width} {n}: {line}");
                }
                assert!(glyphs == Glyphs::Blocks || text.is_ascii());
            }
        }
    }
    let legend = heat_picture(&[], 80, Glyphs::Blocks);
    assert!(legend.lines().all(|l| l.chars().count() <= 80), "{legend}");
}

fn caption() -> Caption {
    Caption {
        wrong: None,
        machine: "this+cxl: 2 CPUs, DRAM 1 GiB, CXL expander 1 GiB (constants of published ones)"
            .into(),
        workload: "sqlite3 building an index, 20 s of it from the 5th second".into(),
        kernel: "active and inactive lists as in Linux 6.12 with MGLRU off".into(),
        scales: vec![Scale { what: "memory".into(), factor: 64 }],
        loops: 6,
        seeds: vec![1, 2],
        notes: vec!["the unmodified machine is right by construction".into()],
        warnings: vec!["the modelled misses alone take longer than the native time".into()],
    }
}

#[test]
fn captions() {
    expect![[r#"
        machine: this+cxl: 2 CPUs, DRAM 1 GiB, CXL expander 1 GiB (constants of
          published ones)
        workload: sqlite3 building an index, 20 s of it from the 5th second
        kernel: active and inactive lists as in Linux 6.12 with MGLRU off
        scaled down: memory 1:64
        looped: 6 times
        seeds: 1, 2
        note: the unmodified machine is right by construction
        warning: the modelled misses alone take longer than the native time
    "#]]
    .assert_eq(&caption().to_text(80));
    assert_eq!(Caption::default().to_text(80), "");
}

#[test]
fn json_is_one_object_with_stable_names() {
    let report = Report {
        caption: caption(),
        table: table(&runs()[..1]),
        picture: vec![snapshot("start", 2, |_| 1)],
        conclusion: None,
    };
    expect![[r#"{"caption":{"machine":"this+cxl: 2 CPUs, DRAM 1 GiB, CXL expander 1 GiB (constants of published ones)","workload":"sqlite3 building an index, 20 s of it from the 5th second","kernel":"active and inactive lists as in Linux 6.12 with MGLRU off","scales":[{"what":"memory","factor":64}],"loops":6,"seeds":[1,2],"notes":["the unmodified machine is right by construction"],"warnings":["the modelled misses alone take longer than the native time"]},"table":{"columns":["off"],"groups":[{"title":"","figures":[{"name":"time","unit":"s","better":"lower","samples":[[120.0,121.0]],"mean":[120.5],"stddev":[0.7071067811865476],"gain_percent":[0.0],"significant":[false],"welch_p":[null]},{"name":"accesses","unit":"M/s","better":"higher","samples":[[0.008333333333333333,0.008264462809917356]],"mean":[0.008298898071625344],"stddev":[0.00004869881413130468],"gain_percent":[0.0],"significant":[false],"welch_p":[null]},{"name":"accesses in DRAM","unit":"%","better":"higher","samples":[[50.0,50.1]],"mean":[50.05],"stddev":[0.07071067811865576],"gain_percent":[0.0],"significant":[false],"welch_p":[null]},{"name":"accesses in CXL","unit":"%","better":"neither","samples":[[50.0,49.9]],"mean":[49.95],"stddev":[0.07071067811865576],"gain_percent":[null],"significant":[false],"welch_p":[null]},{"name":"pages promoted","unit":"","better":"neither","samples":[[0.0,0.0]],"mean":[0.0],"stddev":[0.0],"gain_percent":[null],"significant":[false],"welch_p":[null]},{"name":"pages demoted","unit":"","better":"neither","samples":[[0.0,0.0]],"mean":[0.0],"stddev":[0.0],"gain_percent":[null],"significant":[false],"welch_p":[null]},{"name":"moved","unit":"MB","better":"neither","samples":[[0.0,0.0]],"mean":[0.0],"stddev":[0.0],"gain_percent":[null],"significant":[false],"welch_p":[null]},{"name":"spent on moving","unit":"MB/s","better":"neither","samples":[[0.0,0.0]],"mean":[0.0],"stddev":[0.0],"gain_percent":[null],"significant":[false],"welch_p":[null]}]},{"title":"vmstat","figures":[]}]},"picture":[{"label":"start","columns":[{"accesses":0,"resident":512,"fast":1},{"accesses":1024,"resident":0,"fast":1}]}]}"#]].assert_eq(&report.to_json());
    assert_eq!(report.to_json().lines().count(), 1);
}

#[test]
fn a_report_is_table_picture_and_caption() {
    let conclusion = Some("mode 2 pays".to_owned());
    let report =
        Report { caption: caption(), table: table(&runs()), picture: pictures(), conclusion };
    let text = report.to_text(80, Glyphs::Blocks);
    let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is in it"));
    assert!(place("pgpromote_success") < place("mode 2, end"));
    assert!(place("mode 2, end") < place("so: mode 2 pays"));
    assert!(place("so: mode 2 pays") < place("MGLRU off"));
    assert!(text.lines().all(|l| l == l.trim_end()), "no blanks at line ends");
}
