//! A reproduction as text and as JSON.

use expect_test::expect;
use homenode_report::{
    Better, Caption, ComparisonTable, Conclusion, Figure, Reproduced, Reproduction, Section,
    Surface,
};

fn reproduction() -> Reproduction {
    let table = ComparisonTable {
        columns: vec!["off-5.18".into(), "mode 2/b-5.18".into()],
        groups: vec![Section {
            title: "score".into(),
            figures: vec![
                Figure::new("{}", "M/s", Better::Higher, 2, "pmbench's score")
                    .compared_of("1.25 x", vec![vec![50.0, 51.0], vec![99.0, 100.0]]),
            ],
        }],
    };
    let surface = Surface {
        title: "gain by width".into(),
        rows: vec!["1/24".into(), "1/12".into(), "1/6".into()],
        columns: vec!["linear".into(), "scattered".into()],
        cells: vec![vec![120.0, 95.9], vec![90.0, 80.0], vec![10.0, 99.0]],
        seed: Some(95.9),
        digits: 1,
    };
    Reproduction {
        name: "tiering".into(),
        machine: "m".into(),
        tables: vec![("pmbench".into(), table)],
        surfaces: vec![surface],
        rows: vec![
            Reproduced::new("gain [%]", Some(95.9), &[97.0, 98.0], Some(50.0), Some(150.0)),
            Reproduced::new("stalls", None, &[3.0], None, Some(2.0)),
            Reproduced::new("plain", None, &[1.0], None, None),
            Reproduced::new("nothing", None, &[], Some(0.0), None),
        ],
        conclusions: vec![
            Conclusion { text: "1. It gains.".into(), holds: true, amended: false },
            Conclusion { text: "2. It is quiet.".into(), holds: false, amended: false },
        ],
        caption: Caption { machine: "m: a machine".into(), ..Caption::default() },
        digits: 2,
    }
}

#[test]
fn the_seeds_figures_stand_beside_ours() {
    expect![[r#"
        pmbench
                                                 off                 mode 2/b
                                                5.18                     5.18
        score
        1.25 x [M/s]                50.50 (   0.00%)         99.50 *  97.03%*
          Stddev over seeds          0.71                     0.71
          Welch-p                       -                   0.0002

        gain by width
                 linear  scattered
        1/24     120.0*      95.9*
        1/12      90.0       80.0
        1/6       10.0       99.0*
        * 95.9 and above. It lies between 1/24 and 1/12 (linear), between 1/24 and 1/12 (scattered), between 1/12 and 1/6 (scattered).

                   seed   ours  Stddev   from      to
        gain [%]  95.90  97.50    0.71  50.00  150.00  holds
        stalls        -   3.00    0.00      -    2.00  FAILS
        plain         -   1.00    0.00      -       -
        nothing       -    NaN    0.00   0.00       -  FAILS

        holds  1. It gains.
        FAILS  2. It is quiet.

        machine: m: a machine
    "#]].assert_eq(&reproduction().to_text(100));
}

#[test]
fn json_has_the_promised_keys_and_no_others() {
    expect![[r#"{"name":"tiering","machine":"m","rows":[{"row":"gain [%]","seed":95.9,"ours":97.5,"sd":0.7071067811865476,"low":50.0,"high":150.0,"pass":true},{"row":"stalls","seed":null,"ours":3.0,"sd":0.0,"low":null,"high":2.0,"pass":false},{"row":"plain","seed":null,"ours":1.0,"sd":0.0,"low":null,"high":null,"pass":null},{"row":"nothing","seed":null,"ours":null,"sd":0.0,"low":0.0,"high":null,"pass":false}],"conclusions":[{"text":"1. It gains.","holds":true,"amended":false},{"text":"2. It is quiet.","holds":false,"amended":false}],"pass":false}"#]].assert_eq(&reproduction().to_json());
}

#[test]
fn it_passes_where_all_conclusions_hold_and_all_figures_lie_in_their_bands() {
    let mut r = reproduction();
    assert!(!r.pass());
    r.conclusions.pop();
    assert!(!r.pass());
    r.rows.retain(|row| row.pass != Some(false));
    assert!(r.pass());
    assert_eq!(r.rows.len(), 2);
}

#[test]
fn a_criterion_that_was_changed_is_told_as_such_where_it_holds() {
    let mut r = reproduction();
    r.conclusions.iter_mut().for_each(|c| c.amended = true);
    let text = r.to_text(100);
    let from = text.find("as amended").expect("it is told");
    expect![[r#"
        as amended  1. It gains.
        FAILS       2. It is quiet.

        machine: m: a machine
    "#]]
    .assert_eq(&text[from..]);
    assert!(r.to_json().contains(r#"{"text":"1. It gains.","holds":true,"amended":true}"#));
}

#[test]
fn a_surface_without_a_seeds_figure_marks_nothing() {
    let mut s = reproduction().surfaces.remove(0);
    assert_eq!(s.crossings(), [(0, 1), (1, 1), (1, 2)]);
    s.seed = None;
    assert!(s.crossings().is_empty());
    assert!(!s.to_text(80).contains('*'));
}
