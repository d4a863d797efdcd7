//! Real, simulated and estimated side by side.

use super::look::Look;
use super::side::AfterPass;
use homenode_core::kernel::KernelVersion;
use homenode_core::units;
use serde_json::{Value, json};
use std::fmt::Write;

/// What came out of a case.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    pub(super) name: String,
    pub(super) about: String,
    /// A row per pass, both as many.
    pub(super) real: Vec<AfterPass>,
    pub(super) simulated: Vec<AfterPass>,
    pub(super) estimate: Option<Look>,
}

/// A counter that differs: behind which pass, its name, real, simulated.
type Difference = (usize, String, Option<i64>, Option<i64>);

impl Comparison {
    /// All that differs. A counter that only one of the two has does so too, but for
    /// those of `/proc` and `/sys` that this kernel has not or the simulated one has not.
    fn differences(&self) -> Vec<Difference> {
        let mut found = Vec::new();
        let passes = self.real.len().max(self.simulated.len());
        let none = AfterPass::default();
        for pass in 0..passes {
            let real = self.real.get(pass).unwrap_or(&none);
            let simulated = self.simulated.get(pass).unwrap_or(&none);
            for c in &real.counters {
                let other = simulated.get(&c.name);
                if other != Some(c.value) && (other.is_some() || !self.is_beyond(&c.name, true)) {
                    found.push((pass + 1, c.name.clone(), Some(c.value), other));
                }
            }
            for c in &simulated.counters {
                if real.get(&c.name).is_none() && !self.is_beyond(&c.name, false) {
                    found.push((pass + 1, c.name.clone(), None, Some(c.value)));
                }
            }
            for (i, (what, answer)) in real.writes.iter().enumerate() {
                if simulated.writes.get(i).is_none_or(|(_, other)| other != answer) {
                    found.push((pass + 1, what.clone(), None, None));
                }
            }
        }
        found
    }

    /// Whether one of the two kernels never has such a counter: no difference in merging.
    fn is_beyond(&self, name: &str, real: bool) -> bool {
        let key = name.rsplit(' ').next().unwrap_or(name);
        let others = if real { &self.simulated } else { &self.real };
        !others.iter().flat_map(|r| &r.counters).any(|c| c.name.rsplit(' ').next() == Some(key))
    }

    /// How many counters are compared, of all passes.
    fn compared(&self) -> usize {
        let common = |(real, simulated): (&AfterPass, &AfterPass)| {
            real.counters.iter().filter(|c| simulated.get(&c.name).is_some()).count()
        };
        self.real.iter().zip(&self.simulated).map(common).sum()
    }

    /// The estimate beside what ksmd reached: by how many percent it is off at most.
    fn off(&self) -> Option<f64> {
        let (look, last) = (self.estimate.as_ref()?, self.real.last()?);
        let off = |ours: u64, name: &str| {
            let theirs = last.get(name).unwrap_or(0).max(0) as u64;
            match (ours, theirs) {
                (0, 0) => 0.0,
                (_, 0) => f64::INFINITY,
                _ => ours.abs_diff(theirs) as f64 * 100.0 / theirs as f64,
            }
        };
        let shared = off(look.pages_shared, "pages_shared");
        Some(shared.max(off(look.pages_sharing, "pages_sharing")))
    }
}

fn or_dash(value: Option<i64>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| v.to_string())
}

/// All cases.
pub(super) struct MergeCheck {
    /// The release that runs here.
    pub(super) kernel: String,
    pub(super) rules: KernelVersion,
    pub(super) registered: String,
    pub(super) bound_percent: u32,
    pub(super) cases: Vec<Comparison>,
}

/// Counters that the table shows even where nothing differs.
const SHOWN: [&str; 11] = [
    "pages_shared",
    "pages_sharing",
    "pages_unshared",
    "pages_volatile",
    "pages_scanned",
    "pages_skipped",
    "stable_node_chains",
    "stable_node_dups",
    "ksm_zero_pages",
    "cow_ksm",
    "general_profit",
];

impl MergeCheck {
    fn meets(&self, o: &Comparison) -> bool {
        o.off().is_none_or(|off| off <= f64::from(self.bound_percent))
    }
    fn pass_of(&self, o: &Comparison) -> bool {
        o.compared() > 0 && o.differences().is_empty() && self.meets(o)
    }
    /// Whether everything is as it must be, and there is something.
    pub(super) fn pass(&self) -> bool {
        !self.cases.is_empty() && self.cases.iter().all(|o| self.pass_of(o))
    }

    pub(super) fn to_text(&self, passes: bool) -> String {
        let mut out = String::new();
        for o in &self.cases {
            self.case(&mut out, o, passes);
        }
        let count = |f: &dyn Fn(&Comparison) -> bool| self.cases.iter().filter(|o| f(o)).count();
        let counters: usize = self.cases.iter().map(Comparison::compared).sum();
        let cases = units::count(self.cases.len() as u64, "case", "cases");
        let equal = count(&|o| o.compared() > 0 && o.differences().is_empty());
        let looked = count(&|o| o.estimate.is_some());
        let met = count(&|o| o.estimate.is_some() && self.meets(o));
        let _ = writeln!(
            out,
            "simulated ksmd equal to the kernel's in {equal} of {cases} ({counters} counters over all passes); estimate within {} % of it in {met} of {looked}",
            self.bound_percent,
        );
        let _ = writeln!(
            out,
            "kernel {}, simulated by the rules of {}; cases registered {} in truth/merge.toml; nobody else had memory registered for merging",
            self.kernel, self.rules, self.registered
        );
        out
    }

    fn case(&self, out: &mut String, o: &Comparison, passes: bool) {
        let differences = o.differences();
        let _ = writeln!(out, "{}: {}", o.name, o.about);
        let columns: Vec<usize> = match passes {
            true => (0..o.real.len()).collect(),
            false => o.real.len().checked_sub(1).into_iter().collect(),
        };
        for &pass in &columns {
            let after = format!("after pass {}", pass + 1);
            let _ =
                writeln!(out, "  {after:<22} {:>9} {:>9} {:>9}", "real", "simulated", "estimate");
            let (real, simulated) = (&o.real[pass], o.simulated.get(pass));
            let look = o.estimate.as_ref().filter(|_| pass + 1 == o.real.len());
            let names = real.counters.iter().map(|c| c.name.as_str());
            let differs = |n: &str| differences.iter().any(|d| d.0 == pass + 1 && d.1 == n);
            for name in names.filter(|n| passes || SHOWN.contains(n) || differs(n)) {
                let value = |row: Option<&AfterPass>| or_dash(row.and_then(|r| r.get(name)));
                let estimate = look.and_then(|l| match name {
                    "pages_shared" => Some(l.pages_shared),
                    "pages_sharing" => Some(l.pages_sharing),
                    "ksm_zero_pages" => Some(l.zero).filter(|_| real.get(name) != Some(0)),
                    _ => None,
                });
                let line = format!(
                    "  {name:<22} {:>9} {:>9} {:>9}{}",
                    value(Some(real)),
                    value(simulated),
                    estimate.map_or(String::new(), |v| v.to_string()),
                    if differs(name) { "  DIFFERS" } else { "" }
                );
                out.push_str(line.trim_end());
                out.push('\n');
            }
        }
        for (pass, name, real, simulated) in &differences {
            if !columns.contains(&(pass - 1)) || real.is_none() {
                let (real, simulated) = (or_dash(*real), or_dash(*simulated));
                let _ = writeln!(
                    out,
                    "  after pass {pass} {name} differs: {real} real, {simulated} simulated"
                );
            }
        }
        for (pass, row) in o.real.iter().enumerate() {
            for (what, answer) in &row.writes {
                let _ = writeln!(out, "  before pass {}: {what}: {answer}", pass + 1);
            }
        }
        let ksmd = match differences.len() {
            0 => format!(
                "equal in all {} counters of {}",
                o.compared(),
                units::count(o.real.len() as u64, "pass", "passes")
            ),
            n => format!("{n} of {} counters DIFFER", o.compared()),
        };
        let estimate = o.off().map(|off| match self.meets(o) {
            true => format!("; estimate off by {off:.2} %"),
            false => format!("; estimate off by {off:.2} %: MISSED"),
        });
        let _ = writeln!(out, "  {ksmd}{}\n", estimate.unwrap_or_default());
    }

    pub(super) fn to_json(&self) -> String {
        let cases: Vec<Value> = self.cases.iter().map(|o| self.case_json(o)).collect();
        json!({
            "name": "merge",
            "kernel": self.kernel,
            "rules": self.rules.name(),
            "registered": self.registered,
            "bound_percent": self.bound_percent,
            "cases": cases,
            "pass": self.pass(),
        })
        .to_string()
    }

    fn case_json(&self, o: &Comparison) -> Value {
        let counters = |r: &AfterPass| -> Value {
            let all = r.counters.iter().map(|c| (c.name.clone(), json!(c.value)));
            Value::Object(all.collect())
        };
        let rows = |rows: &[AfterPass]| rows.iter().map(counters).collect::<Vec<Value>>();
        let mut writes = Vec::new();
        for (i, row) in o.real.iter().enumerate() {
            for (what, answer) in &row.writes {
                writes.push(json!({"pass": i + 1, "write": what, "answer": answer}));
            }
        }
        let difference = |(pass, name, real, simulated): Difference| json!({"pass": pass, "counter": name, "real": real, "simulated": simulated});
        let differences: Vec<Value> = o.differences().into_iter().map(difference).collect();
        json!({
            "name": o.name,
            "about": o.about,
            "real": rows(&o.real),
            "simulated": rows(&o.simulated),
            "writes": writes,
            "compared": o.compared(),
            "differences": differences,
            "estimate": o.estimate.as_ref().map(|l| json!({
                "pages_shared": l.pages_shared,
                "pages_sharing": l.pages_sharing,
                "zero": l.zero,
                "volatile": l.volatile,
                "off_percent": o.off().filter(|off| off.is_finite()),
                "pass": self.meets(o),
            })),
            "pass": self.pass_of(o),
        })
    }
}
