//! ARCHITECTURE.md shows the matrix that the core has.

use homenode_core::policy::choice::at_best;
use homenode_core::policy::matrix::Decision;
use homenode_core::policy::seen::Source;

const PAGE: &str = include_str!("../../../ARCHITECTURE.md");

#[test]
fn architecture_shows_the_matrix() {
    let plain = |line: &str| line.replace('`', "");
    let at = PAGE.lines().position(|l| l.starts_with("| decision |")).expect("the matrix");
    let shown: Vec<String> =
        PAGE.lines().skip(at).take_while(|l| l.starts_with('|')).map(plain).collect();
    let names = Source::ALL.map(Source::name).join(" | ");
    let mut expected = vec![format!("| decision | {names} |"), "|---|---|---|---|---|".to_owned()];
    expected.extend(Decision::ALL.iter().map(|&d| {
        let row = Source::ALL.map(|s| at_best(d, s).to_string());
        format!("| {} | {} |", d.title(), row.join(" | "))
    }));
    assert_eq!(shown, expected);
}

#[test]
fn fields_stand_in_the_order_of_the_decisions() {
    // A sheet's fields are indexed by the number of a decision.
    assert!(Decision::ALL.iter().enumerate().all(|(i, d)| *d as usize == i));
}
