//! What the operator should do by the figures of a replay, in a sentence or two.

use super::interval::Intervals;
use super::play::Played;
use crate::contender::{Contender, Maker};
use crate::spread::Predicted;

/// What is gained at least, in percent, where something is to be switched on.
const LEAST: f64 = 1.0;
/// Within so many percent two are alike.
const ALIKE: f64 = 0.5;

/// A column's gain against the first one, in percent.
struct Gain<'a> {
    column: &'a Contender,
    by: Predicted,
    has_interval: bool,
}

impl Gain<'_> {
    fn pays(&self) -> bool {
        self.by.time >= LEAST && self.by.low > 0.0
    }
    fn shown(&self) -> String {
        let Predicted { low, time, high } = self.by;
        match self.has_interval {
            true => format!("{time:.1} % (80 % interval {low:.1} to {high:.1})"),
            false => format!("{time:.1} %"),
        }
    }
}

/// What is to be done; `None` where there is nothing to choose from.
pub(super) fn conclusion(
    columns: &[Contender],
    played: &[Played],
    intervals: Option<&Intervals>,
) -> Option<String> {
    let first = played.first()?.round();
    let gain = |i: usize| {
        let plain = (first / played[i].round().max(f64::MIN_POSITIVE) - 1.0) * 100.0;
        let known = intervals.and_then(|all| all.columns.get(i)).map(|own| own.gain);
        Gain {
            column: &columns[i],
            by: known.unwrap_or(Predicted { low: plain, time: plain, high: plain }),
            has_interval: known.is_some(),
        }
    };
    said(&columns[0].title(), &(1..columns.len()).map(gain).collect::<Vec<_>>())
}

fn said(base: &str, all: &[Gain<'_>]) -> Option<String> {
    let dram = all.iter().find(|g| g.column.fits);
    let mut ways: Vec<&Gain<'_>> = all.iter().filter(|g| !g.column.fits).collect();
    ways.sort_by(|a, b| b.by.time.total_cmp(&a.by.time));
    let best = *ways.first()?;
    let would = |g: &Gain<'_>| {
        format!("with DRAM for all of its memory it would be faster by {:.1} %", g.by.time.max(0.0))
    };
    if best.pays() {
        let mut text = format!(
            "{} pays: the program is faster than with {base} by {}",
            best.column.title(),
            best.shown()
        );
        if let Some(dram) = dram {
            text += &format!("; {}", would(dram));
        }
        let alike = |g: &&&Gain<'_>| best.by.time - g.by.time < ALIKE;
        let level: Vec<String> = ways[1..]
            .iter()
            .filter(alike)
            .map(|g| format!("{} ({:+.1} %)", g.column.title(), g.by.time))
            .collect();
        if !level.is_empty() {
            text += &format!("; about as good: {}", level.join(", "));
        }
        return Some(format!("{text}. {}", how(best.column)));
    }
    let none = format!("nothing here brings {LEAST:.0} % or more: leave it at {base}");
    Some(match dram {
        Some(dram) if dram.pays() => format!("{none}; {}", would(dram)),
        Some(dram) => format!("{none}; slow memory costs it little: {}", would(dram)),
        None => none,
    })
}

/// How a column is had on a real machine.
fn how(column: &Contender) -> String {
    match column.drives.as_ref().map(|d| d.make) {
        Some(Maker::Engine(_)) => {
            "On Linux: homenode act, which also tries out whether that is so (homenode act --help)"
                .to_owned()
        }
        Some(Maker::Policy(_)) => "That policy is simulated only".to_owned(),
        None if column.inside.is_some() => "Those rules are simulated only".to_owned(),
        None if column.interleaves => {
            "On Linux: start it with numactl --weighted-interleave=all".to_owned()
        }
        None => format!("On Linux: {}", column.settings()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::Contenders;

    fn told(gains: &[(&str, f64)], spread: f64) -> String {
        let columns: Vec<Contender> = gains
            .iter()
            .map(|(name, _)| match *name {
                "all-dram" => Contender::all_dram(),
                name => Contenders::with(&[]).one(name).expect("a column"),
            })
            .collect();
        let gain = |(column, (_, time)): (_, &(&str, f64))| Gain {
            column,
            by: Predicted { low: time - spread, time: *time, high: time + spread },
            has_interval: true,
        };
        said("off", &columns.iter().zip(gains).map(gain).collect::<Vec<_>>()).unwrap_or_default()
    }

    #[test]
    fn what_pays_is_said_with_how_to_get_it() {
        assert_eq!(
            told(&[("mode2", 4.0), ("homenode:pmu", 7.0), ("all-dram", 9.0)], 0.5),
            "homenode pmu pays: the program is faster than with off by 7.0 % (80 % interval 6.5 to \
             7.5); with DRAM for all of its memory it would be faster by 9.0 %. On Linux: homenode \
             act, which also tries out whether that is so (homenode act --help)"
        );
        assert_eq!(
            told(&[("mode2", 4.0), ("homenode:pmu", 3.8)], 0.5),
            "mode 2 pays: the program is faster than with off by 4.0 % (80 % interval 3.5 to 4.5); \
             about as good: homenode pmu (+3.8 %). On Linux: numa_balancing=2 demotion_enabled=true"
        );
    }

    #[test]
    fn what_does_not_pay_is_left_off() {
        assert_eq!(
            told(&[("mode2", -1.0), ("homenode:pmu", 0.7), ("all-dram", 9.0)], 0.5),
            "nothing here brings 1 % or more: leave it at off; with DRAM for all of its memory it \
             would be faster by 9.0 %"
        );
        assert_eq!(
            told(&[("mode2", 3.0), ("all-dram", 0.6)], 4.0),
            "nothing here brings 1 % or more: leave it at off; slow memory costs it little: with \
             DRAM for all of its memory it would be faster by 0.6 %",
            "a gain that may as well be a loss is none"
        );
        assert_eq!(told(&[("all-dram", 3.0)], 0.1), "", "there is nothing to choose");
    }
}
