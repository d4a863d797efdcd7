use super::*;
use expect_test::{Expect, expect};

fn published() -> Selection {
    Selection(PUBLISHED)
}

fn failing(change: impl FnOnce(&mut Selection), expected: Expect) {
    let mut s = published();
    change(&mut s);
    let failed = judge(&s).into_iter().filter(|c| !c.holds);
    expected.assert_eq(&failed.map(|c| format!("{}\n", c.text)).collect::<String>());
}

#[test]
fn the_published_figures_hold() {
    let text: Vec<String> = judge(&published()).into_iter().map(|c| c.text + "\n").collect();
    assert!(judge(&published()).iter().all(|c| c.holds), "{text:?}");
    expect![[r#"
        5. Hot page selection scores more than without and promotes less: score +12.8 %, promoted -25.0 %.
        6. A limit lets less be promoted and leaves the score within 5 %: score -1.7 %, promoted -69.6 %.
        7. A threshold that follows the limit scores more and promotes no more: score +4.7 %, promoted -17.1 %.
        8. These changes are the published ones within a factor of 2.
    "#]].assert_eq(&text.concat());
}

#[test]
fn each_direction_and_each_level_can_fail() {
    failing(
        |s| s.0[1].0 = 140e6,
        expect![[r#"
        5. Hot page selection scores more than without and promotes less: score -4.7 %, promoted -25.0 %: it scores no more.
        6. A limit lets less be promoted and leaves the score within 5 %: score +16.3 %, promoted -69.6 %: the score changes.
        8. These changes are the published ones within a factor of 2: score, hot selection after base -4.7 % for +12.8 %.
    "#]],
    );
    failing(
        |s| s.0[2].1 = 600.0,
        expect![[r#"
        6. A limit lets less be promoted and leaves the score within 5 %: score -1.7 %, promoted +10.3 %: it promotes no less.
        8. These changes are the published ones within a factor of 2: promoted, auto adjustment after rate limit -77.2 % for -17.1 %.
    "#]],
    );
    failing(
        |s| s.0[3] = (163e6, 165.3),
        expect![[r#"
        7. A threshold that follows the limit scores more and promotes no more: score +0.1 %, promoted +0.1 %: it promotes more.
        8. These changes are the published ones within a factor of 2: score, auto adjustment after rate limit +0.1 % for +4.7 %; promoted, auto adjustment after rate limit +0.1 % for -17.1 %.
    "#]],
    );
    failing(
        |s| s.0[0].1 = f64::NAN,
        expect![[r#"
        5. Hot page selection scores more than without and promotes less: score +12.8 %, promoted NaN %: it promotes no less.
        8. These changes are the published ones within a factor of 2: promoted, hot selection after base NaN % for -25.0 %.
    "#]],
    );
    failing(
        |s| s.0[1].0 = 190e6,
        expect![[r#"
        6. A limit lets less be promoted and leaves the score within 5 %: score -14.3 %, promoted -69.6 %: the score changes.
        8. These changes are the published ones within a factor of 2: score, hot selection after base +29.4 % for +12.8 %.
    "#]],
    );
}
