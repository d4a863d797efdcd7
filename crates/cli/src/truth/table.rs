//! Predicted beside measured.

use homenode_config::TruthPlan;
use homenode_core::topology::Hardware;
use homenode_measure::constants;
use serde_json::json;

/// The middle; of an even number the mean of the two in the middle; 0 of none.
pub(super) fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

/// 0 of none.
pub(super) fn quantile(samples: &[f64], q: f64) -> f64 {
    constants::quantile(samples, q).unwrap_or(0.0)
}

/// A workload at one size.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Workload {
    name: String,
    size: String,
    unit: &'static str,
    predicted: f64,
    /// The 80 % interval; `None` where the machine's file has no curves.
    interval: Option<(f64, f64)>,
    samples: Vec<f64>,
}

impl Workload {
    pub(super) fn new(name: &str, size: String, unit: &'static str, predicted: f64) -> Self {
        let name = name.to_owned();
        Self { name, size, unit, predicted, interval: None, samples: Vec::new() }
    }
    pub(super) fn within(mut self, interval: Option<(f64, f64)>) -> Self {
        self.interval = interval;
        self
    }
    /// Whether what was measured lies in the interval; `None` where there is none.
    fn inside(&self) -> Option<bool> {
        let (low, high) = self.interval?;
        Some((low..=high).contains(&median(&self.samples)))
    }
    pub(super) fn measured(&mut self, samples: Vec<f64>) {
        self.samples = samples;
    }
    pub(super) fn prediction(&self) -> String {
        let interval = self
            .interval
            .map_or(String::new(), |(low, high)| format!(" ({} to {})", digits(low), digits(high)));
        format!("{} {} {}{interval} {}", self.name, self.size, digits(self.predicted), self.unit)
    }
    /// Predicted over measured less one, in percent.
    fn error(&self) -> f64 {
        let measured = median(&self.samples);
        if measured > 0.0 { (self.predicted / measured - 1.0) * 100.0 } else { f64::INFINITY }
    }
}

/// Four digits that mean something.
fn digits(x: f64) -> String {
    let places = match x.abs() {
        x if x >= 1000.0 => 0,
        x if x >= 100.0 => 1,
        x if x >= 10.0 => 2,
        _ => 3,
    };
    format!("{x:.places$}")
}

/// How often the measured time lay in its interval.
struct Coverage {
    inside: usize,
    of: usize,
    percent: f64,
    met: bool,
}

/// A whole check.
pub(super) struct MemCheck {
    machine: String,
    about: String,
    registered: String,
    bound: f64,
    goal: f64,
    inside: (f64, f64),
    pub(super) rows: Vec<Workload>,
    pub(super) notes: Vec<String>,
    pub(super) warnings: Vec<String>,
}

impl MemCheck {
    pub(super) fn new(plan: &TruthPlan, machine: &Hardware) -> Self {
        Self {
            machine: machine.name.clone(),
            about: machine.about.clone(),
            registered: plan.registered.clone(),
            bound: plan.bound_percent.into(),
            goal: plan.goal_percent.into(),
            inside: (plan.inside_percent.0.into(), plan.inside_percent.1.into()),
            rows: Vec::new(),
            notes: Vec::new(),
            warnings: Vec::new(),
        }
    }
    fn met(&self, row: &Workload, bound: f64) -> bool {
        row.error().abs() <= bound
    }
    /// Whether every row met its bound, there are rows, and as many as should are in their intervals.
    pub(super) fn pass(&self) -> bool {
        let met = !self.rows.is_empty() && self.rows.iter().all(|r| self.met(r, self.bound));
        met && self.coverage().is_none_or(|c| c.met)
    }
    /// How many of the rows that have an interval were measured inside; `None` where none has one.
    fn coverage(&self) -> Option<Coverage> {
        let known: Vec<bool> = self.rows.iter().filter_map(Workload::inside).collect();
        let (inside, of) = (known.iter().filter(|i| **i).count(), known.len());
        let percent = inside as f64 / of as f64 * 100.0;
        let (low, high) = self.inside;
        (of > 0).then_some(Coverage { inside, of, percent, met: (low..=high).contains(&percent) })
    }
    /// All predictions in one line.
    pub(super) fn predictions(&self) -> String {
        self.rows.iter().map(Workload::prediction).collect::<Vec<_>>().join(", ")
    }
    fn errors(&self) -> Vec<f64> {
        self.rows.iter().map(|r| r.error().abs()).collect()
    }

    pub(super) fn to_text(&self) -> String {
        let names = self.rows.iter().map(|r| r.name.len()).max().unwrap_or(0).max(8);
        let mut out = format!(
            "{:<names$}  {:>10}  {:>10} {:>18} {:>10} {:>9}     {:>8}  {}\n",
            "workload", "size", "predicted", "80 % interval", "measured", "±", "error %", "bound"
        );
        for r in &self.rows {
            let spread = (quantile(&r.samples, 0.75) - quantile(&r.samples, 0.25)) / 2.0;
            let [predicted, measured, spread] =
                [r.predicted, median(&r.samples), spread].map(digits);
            let verdict = match (self.met(r, self.bound), self.met(r, self.goal)) {
                (_, true) => "met, and the goal",
                (true, _) => "met",
                _ => "MISSED",
            };
            let (Workload { name, size, unit, .. }, error) = (r, r.error());
            let interval = r.interval.map_or("-".to_owned(), |(low, high)| {
                format!("{} to {}", digits(low), digits(high))
            });
            let verdict = match r.inside() {
                Some(false) => format!("{verdict}; outside"),
                Some(true) | None => verdict.to_owned(),
            };
            out.push_str(&format!(
                "{name:<names$}  {size:>10}  {predicted:>10} {interval:>18} {measured:>10} {spread:>9} {unit:<3} {error:>+8.1}  {verdict}\n"
            ));
        }
        let errors = self.errors();
        let (met, goal) = (self.count(self.bound), self.count(self.goal));
        out.push_str(&format!(
            "\nbound {} %: met by {met} of {}; goal {} %: met by {goal}; error, median {:.1} %, worst {:.1} %\n",
            self.bound,
            self.rows.len(),
            self.goal,
            median(&errors),
            errors.iter().copied().fold(0.0, f64::max)
        ));
        if let Some(c) = self.coverage() {
            let (low, high) = self.inside;
            out.push_str(&format!(
                "80 % interval: {} of {} were measured inside, {:.0} %; {low} to {high} % are asked: {}\n",
                c.inside,
                c.of,
                c.percent,
                if c.met { "met" } else { "MISSED" }
            ));
        }
        out.push_str(&format!("\nmachine: {}: {}\n", self.machine, self.about));
        out.push_str(&format!(
            "sizes and bounds registered {} in truth/mem.toml; all predictions were made before the first run; ns an operation (a load, a line of 64 bytes, an update), ms a run\n",
            self.registered
        ));
        for note in &self.notes {
            out.push_str(&format!("note: {note}\n"));
        }
        for warning in &self.warnings {
            out.push_str(&format!("warning: {warning}\n"));
        }
        out
    }
    fn count(&self, bound: f64) -> usize {
        self.rows.iter().filter(|r| self.met(r, bound)).count()
    }

    pub(super) fn to_json(&self) -> String {
        let errors = self.errors();
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|r| {
                json!({
                    "row": format!("{} {}", r.name, r.size),
                    "unit": r.unit,
                    "predicted": r.predicted,
                    "predicted_low": r.interval.map(|i| i.0),
                    "predicted_high": r.interval.map(|i| i.1),
                    "inside": r.inside(),
                    "measured": median(&r.samples),
                    "low": quantile(&r.samples, 0.0),
                    "high": quantile(&r.samples, 1.0),
                    "error_percent": r.error(),
                    "bound_percent": self.bound,
                    "goal_percent": self.goal,
                    "pass": self.met(r, self.bound),
                })
            })
            .collect();
        json!({
            "name": "mem",
            "machine": self.machine,
            "registered": self.registered,
            "rows": rows,
            "median_error_percent": median(&errors),
            "worst_error_percent": errors.iter().copied().fold(0.0, f64::max),
            "inside_percent": self.coverage().map(|c| c.percent),
            "notes": self.notes,
            "warnings": self.warnings,
            "pass": self.pass(),
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use homenode_config::{TruthPlan, parse_machine};

    fn check(rows: &[(&str, f64, &[f64])]) -> MemCheck {
        let plan = TruthPlan {
            registered: "2026-01-01".into(),
            bound_percent: 15,
            goal_percent: 5,
            inside_percent: (80, 95),
            kernels: vec![],
            programs: vec![],
        };
        let text = include_str!("../../../../machines/small.toml");
        let mut c = MemCheck::new(&plan, &parse_machine("small.toml", text).unwrap());
        for &(name, predicted, samples) in rows {
            let mut row = Workload::new(name, "3 MiB".into(), "ns", predicted);
            row.measured(samples.to_vec());
            c.rows.push(row);
        }
        c.notes.push("a note".into());
        c
    }

    #[test]
    fn a_missed_bound_fails_the_check() {
        assert!(check(&[("a", 104.0, &[100.0]), ("b", 86.0, &[100.0])]).pass());
        assert!(!check(&[("a", 104.0, &[100.0]), ("b", 84.0, &[100.0])]).pass());
        assert!(!check(&[("a", 116.0, &[100.0])]).pass());
        // Nothing measured is nothing met.
        assert!(!check(&[("a", 116.0, &[])]).pass());
        assert!(!check(&[]).pass());
    }

    #[test]
    fn intervals_are_judged_by_how_many_hold_what_was_measured() {
        let with = |inside: usize| {
            let row: (&str, f64, &[f64]) = ("a", 100.0, &[101.0]);
            let mut c = check(&[row; 10]);
            for (i, row) in c.rows.iter_mut().enumerate() {
                row.interval = Some(if i < inside { (95.0, 105.0) } else { (99.0, 100.5) });
            }
            c
        };
        assert!(with(9).pass() && with(8).pass());
        assert!(!with(7).pass(), "too narrow");
        assert!(!with(10).pass(), "wider than they need be");
        let text = with(7).to_text();
        assert!(text.contains("7 of 10 were measured inside, 70 %; 80 to 95 % are asked: MISSED"));
        assert_eq!(text.matches("; outside").count(), 3, "{text}");
        // Without curves there is nothing to judge.
        assert!(check(&[("a", 100.0, &[101.0])]).pass());
    }

    #[test]
    fn the_table_and_its_json() {
        let c = check(&[
            ("chase", 104.0, &[99.0, 100.0, 130.0]),
            ("update", 0.9, &[1.0, 1.0]),
            ("join", 1500.0, &[1000.0]),
        ]);
        expect![[r#"
            workload        size   predicted      80 % interval   measured         ±      error %  bound
            chase          3 MiB       104.0                  -      100.0     7.750 ns      +4.0  met, and the goal
            update         3 MiB       0.900                  -      1.000     0.000 ns     -10.0  met
            join           3 MiB        1500                  -       1000     0.000 ns     +50.0  MISSED

            bound 15 %: met by 2 of 3; goal 5 %: met by 1; error, median 10.0 %, worst 50.0 %

            machine: small: one node of 256 MiB and four CPUs; small enough for tests
            sizes and bounds registered 2026-01-01 in truth/mem.toml; all predictions were made before the first run; ns an operation (a load, a line of 64 bytes, an update), ms a run
            note: a note
        "#]]
        .assert_eq(&c.to_text());
        let json: serde_json::Value = serde_json::from_str(&c.to_json()).unwrap();
        assert_eq!(json["rows"][2]["pass"], false);
        assert_eq!(json["rows"][0]["high"], 130.0);
        assert_eq!((&json["pass"], &json["name"]), (&json!(false), &json!("mem")));
        assert_eq!(json["worst_error_percent"], 50.0);
    }
}
