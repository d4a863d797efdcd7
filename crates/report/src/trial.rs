//! A trial: windows with a change and without it in a random order, and what the exact
//! randomisation test says of the difference.
//!
//! ```text
//! order drawn     + - - + - + + -        of all orders with as many of each
//! values          9 6 7 9 6 8 9 7        one a window
//! difference      mean of + less mean of -
//! p               share of all orders under which it would be as large, or larger
//! ```
//!
//! Example: four with (9, 9, 8, 9) and four without (6, 7, 6, 7) differ by 2.25. Of the 70
//! orders only two show as much, the one drawn and its opposite: p = 2/70 = 0.029.
//!
//! The test assumes nothing of how values are distributed: the order was drawn, and that is
//! all it needs. The interval is the same test turned round: those shifts of the values with
//! the change that it would not reject.
//!
//! Source: specs/act.md#trial.

use crate::cell::Better;
use crate::stats::mean;
use serde::Serialize;
use std::fmt::Write as _;

/// Fewest windows with which a p-value below [`TrialReport::LEVEL`], and an interval of 95 %,
/// exist at all: of 70 orders one is 1.4 %.
pub const LEAST_WINDOWS: usize = 8;
/// Most: 184,756 orders are all looked at.
pub const MOST_WINDOWS: usize = 20;

/// What the exact test says of two samples of the same size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Exact {
    /// Mean with less mean without.
    pub effect: f64,
    /// Interval of 95 % for it.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Two-sided.
    pub p: f64,
    /// Orders that could have been drawn.
    pub orders: u64,
}

/// The exact randomisation test.
///
/// `None` unless both have the same number of finite values, within [`LEAST_WINDOWS`] and
/// [`MOST_WINDOWS`] together.
///
/// Source: specs/act.md#trial.
pub fn exact(with: &[f64], without: &[f64]) -> Option<Exact> {
    let n = with.len();
    let all: Vec<f64> = with.iter().chain(without).copied().collect();
    if n != without.len()
        || !(LEAST_WINDOWS..=MOST_WINDOWS).contains(&all.len())
        || all.iter().any(|v| !v.is_finite())
    {
        return None;
    }
    let half = n as f64;
    let (first, total) = (with.iter().sum::<f64>(), all.iter().sum::<f64>());
    let effect = (2.0 * first - total) / half;
    // Sums of the same numbers in another order differ in the last bits.
    let slack = all.iter().map(|v| v.abs()).fold(0.0, f64::max) * 1e-9;
    let (mut orders, mut as_large) = (0u64, 0u64);
    // Shifts from which on another order shows no less than the one drawn.
    let mut shifts = Vec::new();
    let last = 1u32 << all.len();
    let mut order: u32 = (1 << n) - 1;
    while order < last {
        let chosen = |i: &usize| order >> i & 1 == 1;
        let sum: f64 = (0..all.len()).filter(chosen).map(|i| all[i]).sum();
        let other = (2.0 * sum - total) / half;
        orders += 1;
        as_large += u64::from(other.abs() >= effect.abs() - slack);
        let changed = n - (0..n).filter(chosen).count();
        if changed > 0 {
            shifts.push((effect - other) * half / (2.0 * changed as f64));
        }
        // The next larger number with as many bits.
        let low = order & order.wrapping_neg();
        let up = order + low;
        order = (((order ^ up) >> 2) / low) | up;
    }
    shifts.sort_by(f64::total_cmp);
    // One-sided at 2.5 %: the order drawn is one of those that show no less.
    let beyond = (orders as f64 * 0.025).floor() as usize;
    let at = beyond.max(1) - 1;
    let (low, high) = (shifts[at], shifts[shifts.len() - 1 - at]);
    Some(Exact { effect, low, high, p: as_large as f64 / orders as f64, orders })
}

/// One window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TrialWindow {
    /// Whether with the change.
    pub with: bool,
    /// What was measured; `None` where it could not be.
    pub value: Option<f64>,
}

/// What a trial came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TrialVerdict {
    /// It helps.
    Pays,
    /// It harms.
    Harms,
    /// No difference was shown.
    Open,
    /// There is nothing to judge by.
    Unmeasurable,
}

/// A trial that is over, or broken off.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrialReport {
    /// What was measured, for people.
    pub metric: String,
    /// Which way it is better.
    pub better: Better,
    /// The windows, in their order.
    pub windows: Vec<TrialWindow>,
    /// How many there were to be.
    pub planned: usize,
}

impl TrialReport {
    /// From which p-value on nothing was shown.
    pub const LEVEL: f64 = 0.05;

    fn values(&self, with: bool) -> Vec<f64> {
        self.windows.iter().filter(|w| w.with == with).filter_map(|w| w.value).collect()
    }

    /// What the test says; `None` where a window is missing.
    pub fn exact(&self) -> Option<Exact> {
        let whole = self.windows.len() == self.planned;
        let (with, without) = (self.values(true), self.values(false));
        (whole && with.len() + without.len() == self.planned)
            .then(|| exact(&with, &without))
            .flatten()
    }

    /// The verdict.
    pub fn verdict(&self) -> TrialVerdict {
        let Some(exact) = self.exact() else { return TrialVerdict::Unmeasurable };
        if exact.p > Self::LEVEL || exact.effect == 0.0 {
            return TrialVerdict::Open;
        }
        match self.better {
            Better::Higher if exact.effect > 0.0 => TrialVerdict::Pays,
            Better::Lower if exact.effect < 0.0 => TrialVerdict::Pays,
            Better::Higher | Better::Lower => TrialVerdict::Harms,
            Better::Neither => TrialVerdict::Open,
        }
    }

    /// What it came to, in a sentence.
    pub fn sentence(&self) -> &'static str {
        match self.verdict() {
            TrialVerdict::Pays => "it pays",
            TrialVerdict::Harms => "it does not pay: it is worse with it",
            TrialVerdict::Open => "it was not shown to pay",
            TrialVerdict::Unmeasurable if self.windows.iter().all(|w| w.value.is_some()) => {
                "it was broken off: no verdict"
            }
            TrialVerdict::Unmeasurable => "benefit not measurable here: no verdict",
        }
    }

    /// One line of JSON.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Row<'a> {
            what: &'static str,
            #[serde(flatten)]
            trial: &'a TrialReport,
            with_mean: Option<f64>,
            without_mean: Option<f64>,
            test: Option<Exact>,
            verdict: TrialVerdict,
        }
        let mean = |with| Some(mean(&self.values(with))).filter(|m| m.is_finite());
        let row = Row {
            what: "trial",
            trial: self,
            with_mean: mean(true),
            without_mean: mean(false),
            test: self.exact(),
            verdict: self.verdict(),
        };
        serde_json::to_string(&row).expect("plain data with text keys") + "\n"
    }

    /// Some lines.
    pub fn to_text(&self) -> String {
        let mut out = format!("trial: {}\n", self.metric);
        for (name, with) in [("with", true), ("without", false)] {
            let list: Vec<String> = self.values(with).iter().map(|v| format!("{v:.4}")).collect();
            let mean = mean(&self.values(with));
            let _ = match mean.is_finite() {
                true => writeln!(out, "  {name:<8} mean {mean:<12.4} of {}", list.join(" ")),
                false => writeln!(out, "  {name:<8} no value"),
            };
        }
        match self.exact() {
            Some(e) => {
                let _ = writeln!(
                    out,
                    "  effect   {:+.4} (95 % from {:+.4} to {:+.4}), p = {:.4} over all {} orders",
                    e.effect, e.low, e.high, e.p, e.orders
                );
            }
            None => {
                let told = self.windows.iter().filter(|w| w.value.is_some()).count();
                let _ = writeln!(out, "  {told} of {} windows have a value", self.planned);
            }
        }
        let _ = writeln!(out, "  {}", self.sentence());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn report(better: Better, with: &[f64], without: &[f64]) -> TrialReport {
        let windows = |values: &[f64], with| -> Vec<TrialWindow> {
            values.iter().map(|v| TrialWindow { with, value: Some(*v) }).collect()
        };
        TrialReport {
            metric: "`rate`, higher is better".to_owned(),
            better,
            windows: [windows(with, true), windows(without, false)].concat(),
            planned: with.len() + without.len(),
        }
    }

    #[test]
    fn all_orders_are_counted() {
        let e = exact(&[9.0, 9.0, 8.0, 9.0], &[6.0, 7.0, 6.0, 7.0]).unwrap();
        assert_eq!((e.orders, e.effect), (70, 2.25));
        assert!((e.p - 2.0 / 70.0).abs() < 1e-12, "{e:?}");
        // All the same: every order shows as much.
        let e = exact(&[1.0; 4], &[1.0; 4]).unwrap();
        assert_eq!((e.p, e.effect, e.low, e.high), (1.0, 0.0, 0.0, 0.0));
        let e = exact(&[0.0; 10], &[1.0; 10]).unwrap();
        assert_eq!((e.orders, e.p), (184_756, 2.0 / 184_756.0));
    }

    #[test]
    fn what_is_no_sample_has_no_test() {
        assert_eq!(exact(&[1.0; 3], &[2.0; 3]), None, "too few");
        assert_eq!(exact(&[1.0; 11], &[2.0; 11]), None, "too many");
        assert_eq!(exact(&[1.0; 5], &[2.0; 4]), None, "not balanced");
        assert_eq!(exact(&[f64::NAN, 1.0, 1.0, 1.0], &[2.0; 4]), None);
    }

    /// What the interval says is what the test says of shifted values.
    #[test]
    fn the_interval_is_the_test_turned_round() {
        let mut random = homenode_core::splitmix::SplitMix::new(27);
        let mut value = |shift: f64| random.below(1000) as f64 / 10.0 + shift;
        for _ in 0..20 {
            let with: Vec<f64> = (0..5).map(|_| value(30.0)).collect();
            let without: Vec<f64> = (0..5).map(|_| value(0.0)).collect();
            let e = exact(&with, &without).unwrap();
            assert!(e.low <= e.effect && e.effect <= e.high, "{e:?}");
            // Share of orders that show no less, after taking a shift off.
            let above = |shift: f64| {
                let moved: Vec<f64> = with.iter().map(|v| v - shift).collect();
                let all: Vec<f64> = moved.iter().chain(&without).copied().collect();
                let own: f64 = moved.iter().sum();
                let orders = (0u32..1 << 10).filter(|o| o.count_ones() == 5);
                let sum = |o: u32| (0..10).filter(|i| o >> i & 1 == 1).map(|i| all[i]).sum::<f64>();
                orders.filter(|&o| sum(o) >= own - 1e-9).count() as f64 / 252.0
            };
            assert!(above(e.low - 1e-3) <= 0.025, "{e:?}: {}", above(e.low - 1e-3));
            assert!(above(e.low + 1e-3) > 0.025, "{e:?}: {}", above(e.low + 1e-3));
        }
    }

    /// Where nothing differs, chance finds something in at most one of twenty.
    #[test]
    fn it_is_wrong_as_seldom_as_it_says() {
        let mut random = homenode_core::splitmix::SplitMix::new(5);
        let (mut wrong, mut missed) = (0, 0);
        for _ in 0..1000 {
            let mut draw =
                || -> Vec<f64> { (0..4).map(|_| random.below(1 << 30) as f64).collect() };
            let e = exact(&draw(), &draw()).unwrap();
            wrong += u32::from(e.p <= TrialReport::LEVEL);
            missed += u32::from(e.low > 0.0 || e.high < 0.0);
        }
        // 2/70 and 2/70 of 1000 are 29 each, give or take five.
        assert!((10..=50).contains(&wrong), "{wrong}");
        assert!((10..=50).contains(&missed), "{missed}");
    }

    #[test]
    fn a_verdict_needs_every_window_and_a_direction() {
        let (high, low) = ([9.0, 9.0, 8.0, 9.0], [6.0, 7.0, 6.0, 7.0]);
        assert_eq!(report(Better::Higher, &high, &low).verdict(), TrialVerdict::Pays);
        assert_eq!(report(Better::Lower, &high, &low).verdict(), TrialVerdict::Harms);
        assert_eq!(report(Better::Lower, &low, &high).verdict(), TrialVerdict::Pays);
        assert_eq!(report(Better::Higher, &high, &high).verdict(), TrialVerdict::Open);
        let mut broken = report(Better::Higher, &high, &low);
        broken.windows[2].value = None;
        assert_eq!(broken.verdict(), TrialVerdict::Unmeasurable);
        assert_eq!(broken.sentence(), "benefit not measurable here: no verdict");
        broken.windows.truncate(2);
        assert_eq!(broken.verdict(), TrialVerdict::Unmeasurable);
        assert_eq!(broken.sentence(), "it was broken off: no verdict");
    }

    #[test]
    fn it_is_told_with_its_values() {
        let r = report(Better::Higher, &[9.0, 9.0, 8.0, 9.0], &[6.0, 7.0, 6.0, 7.0]);
        expect![[r#"
            trial: `rate`, higher is better
              with     mean 8.7500       of 9.0000 9.0000 8.0000 9.0000
              without  mean 6.5000       of 6.0000 7.0000 6.0000 7.0000
              effect   +2.2500 (95 % from +1.0000 to +3.0000), p = 0.0286 over all 70 orders
              it pays
        "#]]
        .assert_eq(&r.to_text());
        let json: serde_json::Value = serde_json::from_str(&r.to_json()).unwrap();
        assert_eq!((&json["what"], &json["verdict"]), (&"trial".into(), &"pays".into()));
        let mut none = r;
        none.windows.iter_mut().for_each(|w| w.value = None);
        expect![[r#"
            trial: `rate`, higher is better
              with     no value
              without  no value
              0 of 8 windows have a value
              benefit not measurable here: no verdict
        "#]]
        .assert_eq(&none.to_text());
    }
}
