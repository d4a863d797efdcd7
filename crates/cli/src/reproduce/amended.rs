//! Conclusions whose criterion, or what it is asked of, was changed after a first run.
//!
//! A bound that is set once figures are known holds for other reasons than one that was written down
//! before. So such a conclusion says *as amended* where others say *holds*. What was changed stands in
//! the plan, by the words that the rows quote.

use homenode_report::{Conclusion, Reproduction};

/// A changed criterion.
struct Amended {
    /// As `homenode reproduce` calls the experiment.
    name: &'static str,
    /// The number that the conclusion begins with.
    number: u32,
    /// Words of scenarios/reproduce/NAME.toml that tell of it.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test holds them against the plan"))]
    words: &'static str,
    /// What was changed.
    what: &'static str,
}

const AMENDED: &[Amended] = &[
    Amended {
        name: "tiering",
        number: 1,
        words: "conclusion 1 is then judged on that limit",
        what: "it was judged at 1:64 at first, and the gain isn't converged there",
    },
    Amended {
        name: "tiering",
        number: 3,
        words: "Tried first with 20 ms instead of a second",
        what: "the neighbour allocated every 20 ms at first, and its p99 didn't show what stalled",
    },
    Amended {
        name: "tiering",
        number: 4,
        words: "Tried first with 20 ms instead of a second",
        what: "it asks for what 3 asks",
    },
    Amended {
        name: "ksm",
        number: 1,
        words: "Judged first at every share of the sweep",
        what: "it was judged at every share at first, and failed at 1 %",
    },
    Amended {
        name: "ksm",
        number: 2,
        words: "Set after the first run, which failed by 0.005 points",
        what: "0.005 points were growth at first, and it failed",
    },
    Amended {
        name: "ksm",
        number: 5,
        words: "Set after the first run",
        what: "it asks for 1 and 2",
    },
    Amended {
        name: "schedstats",
        number: 5,
        words: "hackbench had one seed at first",
        what: "one run of hackbench counted at first, also where it is not significant, and it failed",
    },
];

/// The number at the beginning of a conclusion.
fn number(c: &Conclusion) -> Option<u32> {
    c.text.split_once('.')?.0.parse().ok()
}

/// Marks the conclusions whose criteria were changed, and says what was changed.
pub(super) fn mark(result: &mut Reproduction) {
    for row in AMENDED.iter().filter(|row| row.name == result.name) {
        for c in result.conclusions.iter_mut().filter(|c| number(c) == Some(row.number)) {
            c.amended = true;
        }
        let note = format!("{} as amended after a first run: {}", row.number, row.what);
        result.caption.notes.push(note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str) -> String {
        let path = format!("{}/../../scenarios/reproduce/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).expect("each experiment has a plan");
        let comments = text.lines().filter_map(|line| line.strip_prefix('#'));
        comments.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_change_is_told_by_its_plan() {
        for row in AMENDED {
            assert!(plan(row.name).contains(row.words), "{} {}", row.name, row.number);
        }
    }

    #[test]
    fn those_conclusions_are_marked_and_no_others() {
        let say = |text: &str, holds| Conclusion { text: text.into(), holds, amended: false };
        let conclusions = vec![
            say("0. So.", true),
            say("1. It is.", true),
            say("2. As it was.", false),
            say("12. Not this.", true),
        ];
        let mut r = Reproduction { name: "ksm".into(), conclusions, ..Reproduction::default() };
        mark(&mut r);
        let marked: Vec<bool> = r.conclusions.iter().map(|c| c.amended).collect();
        assert_eq!(marked, [false, true, true, false]);
        assert_eq!(r.caption.notes.len(), 3);
        let text = r.to_text(100);
        assert!(text.contains("\nas amended  1. It is.\nFAILS       2. As it was.\n"), "{text}");
        let mut other = Reproduction { name: "slow-start".into(), ..r.clone() };
        other.conclusions.iter_mut().for_each(|c| c.amended = false);
        mark(&mut other);
        assert!(other.conclusions.iter().all(|c| !c.amended));
        assert!(other.to_text(100).contains("\nholds  1. It is.\n"));
    }
}
