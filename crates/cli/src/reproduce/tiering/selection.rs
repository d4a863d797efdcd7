//! The page-selection series of 2022 by the same author: what of the slow node's pages is promoted.
//!
//! Mode 2 without it promotes each page that is used at all. With it only those that are used soon after
//! a scan (*hot selection*), not more of them a second than a limit (*rate limit*), with a threshold
//! that follows this limit (*auto adjustment*). Each is a column of its own, with all those before it.

use super::run::{Bench, Kernel, Point};
use super::{Get, RAMP, Runs, rate, times};
use crate::reproduce::experiment::conclusion;
use homenode_report::{
    Better, Compared, ComparisonTable, Conclusion, Figure, Reproduced, Section, stats,
};

/// By column: score in accesses a second and promoted MB/s, of two sockets.
pub(super) const PUBLISHED: [(f64, f64); 4] = [
    (146_887_704.1, 725.6),
    (165_695_601.2, 544.0),
    (162_814_569.8, 165.2),
    (170_495_294.0, 136.9),
];
/// The score under a limit stays that of hot selection within so many per cent.
const NEAR: f64 = 5.0;
/// A change is the published one within this factor.
const FACTOR: f64 = 2.0;

/// Score and promoted MB/s by column, on average over the seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Selection(pub(super) [(f64, f64); 4]);

/// A figure of a column.
type Of = fn(&(f64, f64)) -> f64;

const SCORE: Of = |c| c.0;
const PROMOTED: Of = |c| c.1;

/// What is compared: name, figure, from which column to which, and whether its level is judged.
const CHANGES: [(&str, Of, usize, bool); 6] = [
    ("score, hot selection after base [%]", SCORE, 1, true),
    ("promoted, hot selection after base [%]", PROMOTED, 1, true),
    ("score, rate limit after hot selection [%]", SCORE, 2, false),
    ("promoted, rate limit after hot selection [%]", PROMOTED, 2, false),
    ("score, auto adjustment after rate limit [%]", SCORE, 3, true),
    ("promoted, auto adjustment after rate limit [%]", PROMOTED, 3, true),
];

/// From the column before to this one, in per cent.
fn change(all: &[(f64, f64); 4], of: Of, to: usize) -> f64 {
    (of(&all[to]) / of(&all[to - 1]) - 1.0) * 100.0
}

impl Selection {
    fn change(&self, of: Of, to: usize) -> f64 {
        change(&self.0, of, to)
    }
}

/// Of one seed.
fn of_seed(runs: &Runs<'_, Bench>, at: Point, seed: u64) -> Selection {
    Selection(Kernel::SELECTION.map(|kernel| {
        let got = &runs.done[&Point { kernel, seed, ..at }];
        (got.score, got.rate)
    }))
}

/// On average over the seeds.
pub(super) fn found(runs: &Runs<'_, Bench>, at: Point, seeds: u64) -> Selection {
    let all: Vec<Selection> = (1..=seeds).map(|seed| of_seed(runs, at, seed)).collect();
    let mean = |of: Of, column: usize| {
        stats::mean(&all.iter().map(|s| of(&s.0[column])).collect::<Vec<_>>())
    };
    Selection([0, 1, 2, 3].map(|column| (mean(SCORE, column), mean(PROMOTED, column))))
}

/// The columns beside each other.
pub(super) fn table(runs: &Runs<'_, Bench>, at: Point, seeds: u64) -> ComparisonTable {
    let figures: [(Figure, Get); 4] = [
        (rate("score", "accesses a second after the first touch"), |o| o.score / 1e6),
        (Figure::new("promoted", "MB/s", Better::Neither, 1, "in the main part"), |o| o.rate),
        (Figure::new("in DRAM", "%", Better::Neither, 1, "share of the accesses"), |o| {
            o.fast * 100.0
        }),
        (RAMP, |o| o.ramp * 100.0),
    ];
    let row = |(figure, get): &(Figure, Get)| -> Compared {
        let of = |kernel| {
            let done = |seed| get(&runs.done[&Point { kernel, seed, ..at }]);
            (1..=seeds).map(done).collect()
        };
        figure.compared(Kernel::SELECTION.map(of).to_vec())
    };
    ComparisonTable {
        columns: Kernel::SELECTION.map(|k| runs.bench.column(k)).to_vec(),
        groups: vec![Section {
            title: format!("map {} of DRAM", times(at.percent)),
            figures: figures.iter().map(row).collect(),
        }],
    }
}

/// Changes beside the published ones.
pub(super) fn rows(runs: &Runs<'_, Bench>, at: Point, seeds: u64) -> Vec<Reproduced> {
    let row = |&(name, of, to, judged): &(&str, Of, usize, bool)| {
        let published = change(&PUBLISHED, of, to);
        let by_seed: Vec<f64> =
            (1..=seeds).map(|seed| of_seed(runs, at, seed).change(of, to)).collect();
        let (low, high) = band(published);
        let bound = |x: f64| judged.then_some(x);
        Reproduced::new(name, Some(published), &by_seed, bound(low), bound(high))
    };
    CHANGES.iter().map(row).collect()
}

/// Within a factor of a published change.
fn band(published: f64) -> (f64, f64) {
    let ends = (published / FACTOR, published * FACTOR);
    if published < 0.0 { (ends.1, ends.0) } else { ends }
}

/// Conclusions 5 to 8.
pub(super) fn judge(s: &Selection) -> Vec<Conclusion> {
    let shown = |to: usize| {
        format!("score {:+.1} %, promoted {:+.1} %", s.change(SCORE, to), s.change(PROMOTED, to))
    };
    // Each written so that what is no number is wrong.
    let wrong = |fine: bool, what: &str| -> Option<String> { (!fine).then(|| what.to_owned()) };
    let hot = [
        wrong(s.change(SCORE, 1) > 0.0, "it scores no more"),
        wrong(s.change(PROMOTED, 1) < 0.0, "it promotes no less"),
    ];
    let limit = [
        wrong(s.change(SCORE, 2).abs() <= NEAR, "the score changes"),
        wrong(s.change(PROMOTED, 2) < 0.0, "it promotes no less"),
    ];
    let adjusted = [
        wrong(s.change(SCORE, 3) > 0.0, "it scores no more"),
        wrong(s.change(PROMOTED, 3) <= 0.0, "it promotes more"),
    ];
    let level = CHANGES.iter().filter(|c| c.3).filter_map(|&(name, of, to, _)| {
        let (ours, published) = (s.change(of, to), change(&PUBLISHED, of, to));
        let (low, high) = band(published);
        let name = name.trim_end_matches(" [%]");
        (!(low..=high).contains(&ours))
            .then(|| format!("{name} {ours:+.1} % for {published:+.1} %"))
    });
    let say = |text: String, wrong: &[Option<String>]| {
        conclusion(&text, wrong.iter().flatten().cloned().collect())
    };
    vec![
        say(
            format!(
                "5. Hot page selection scores more than without and promotes less: {}",
                shown(1)
            ),
            &hot,
        ),
        say(
            format!(
                "6. A limit lets less be promoted and leaves the score within {NEAR:.0} %: {}",
                shown(2)
            ),
            &limit,
        ),
        say(
            format!(
                "7. A threshold that follows the limit scores more and promotes no more: {}",
                shown(3)
            ),
            &adjusted,
        ),
        conclusion(
            &format!("8. These changes are the published ones within a factor of {FACTOR}"),
            level.collect(),
        ),
    ]
}

#[cfg(test)]
mod tests;
