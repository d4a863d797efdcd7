//! The goals of homenode's engine, judged by what `homenode compare` says.
//!
//! Which figure decides which goal was written down before anything was run: specs/compare.md#judged.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::{Setting, Verdict};
use crate::workspace::{text_of, typed};

/// Columns whose sanity check fails: shown, and no baseline (specs/compare.md#hybridtier).
const FAILED: &[&str] = &["hybridtier pmu"];
const HINDSIGHT: &str = "in hindsight";
const OFF: &str = "off";
const COLLOID: &str = "colloid pmu";
/// The kernel's, the tuned one first.
const MODE2: &[&str] = &["mode 2 tuned", "mode 2"];
/// Workloads that never change.
const STEADY: &[&str] = &["gauss", "zipf", "gups", "uniform", "huge-skew"];
/// Seconds of a run after which a policy is at rest.
const REST: f64 = 55.0;
/// *uniform* stands for this many GiB: 4 at 1:11.
const UNIFORM_GIB: f64 = 44.0;
const SATURATED: &[&str] = &["antagonist-1", "antagonist-2", "antagonist-3"];

/// What `homenode compare --json` says with these arguments.
pub(super) fn compared(setting: &Setting<'_>, arguments: &[&str]) -> Result<Value> {
    let mut command = Command::new(setting.ws.homenode(setting.profile)?);
    command.args(["compare", "--json", "--out"]);
    command.arg(setting.ws.folder("bench")?.join("compare.jsonl")).args(arguments);
    println!("  {}", typed(&command));
    parsed(&text_of(&mut command)?)
}

fn parsed(text: &str) -> Result<Value> {
    let line = text.lines().rfind(|l| l.starts_with('{')).context("no JSON object")?;
    serde_json::from_str(line).context("no JSON of compare")
}

pub(super) fn run(setting: &Setting<'_>) -> Result<Verdict> {
    let all = match setting.results {
        Some(path) => parsed(
            &std::fs::read_to_string(path)
                .with_context(|| format!("{}: what compare --json has printed", path.display()))?,
        )?,
        None if setting.tiny => {
            let columns = ["gauss", "uniform", "--columns", "off,mode2,homenode:pmu"];
            compared(setting, &[&columns[..], &["--seeds", "1", "--time", "3s"]].concat())?
        }
        None => compared(setting, if setting.quick { &["--quick"] } else { &[] })?,
    };
    let field = Field::parse(&all)?;
    let goals = field.judge();
    for g in &goals {
        println!("  {:<10} {}: {}", g.verdict(), g.what, g.figure);
    }
    let judged = goals.iter().filter(|g| g.met.is_some()).count();
    let met = goals.iter().filter(|g| g.met == Some(true)).count();
    println!(
        "  {met} of {judged} goals that can be judged here are met, of {} in all",
        goals.len()
    );
    let (lead, over) = field.least_lead(|_| true);
    println!("  over all workloads {:.3} of {over}, the next one", lead.exp());
    Ok(Verdict {
        ours: met as f64,
        peer: judged as f64,
        unit: "goals met (peer: goals that could be judged)",
        ratio: lead.exp(),
        goal: "all goals of specs/compare.md#judged",
        pass: met == goals.len(),
    })
}

/// What a contender did on a workload.
#[derive(Clone, Debug, Default)]
struct Row {
    column: String,
    /// Logarithms of accesses a second, by seed.
    speeds: Vec<f64>,
    of_optimum: Option<f64>,
    late_of_optimum: Option<f64>,
    there: Option<f64>,
    moved: f64,
    vain: Option<f64>,
    beside: f64,
    late_beside: f64,
}

#[derive(Clone, Debug, Default)]
struct Workload {
    name: String,
    /// Judged seconds.
    seconds: f64,
    rows: Vec<Row>,
}

struct Field {
    workloads: Vec<Workload>,
    ours: String,
    baselines: Vec<String>,
}

/// A goal, its figure, and whether it is met; none where that can't be said.
struct Goal {
    what: &'static str,
    figure: String,
    met: Option<bool>,
}

impl Goal {
    fn verdict(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not judged",
        }
    }
}

fn mean(x: impl IntoIterator<Item = f64>) -> f64 {
    let all: Vec<f64> = x.into_iter().collect();
    all.iter().sum::<f64>() / all.len() as f64
}

/// What lies below this with `level` under Student's distribution of so many degrees.
fn student(level: f64, freedom: usize) -> f64 {
    let of = StudentsT::new(0.0, 1.0, freedom as f64);
    of.map_or(f64::INFINITY, |d| d.inverse_cdf(level))
}

/// The lead of one over another: its mean, and its lower bound of that level, if there are two seeds.
fn lead(ours: &Row, theirs: &Row, level: f64) -> (f64, Option<f64>) {
    let all: Vec<f64> = ours.speeds.iter().zip(&theirs.speeds).map(|(a, b)| a - b).collect();
    let middle = mean(all.iter().copied());
    if all.len() < 2 {
        return (middle, None);
    }
    let n = all.len() as f64;
    let deviation =
        (all.iter().map(|x| (x - middle) * (x - middle)).sum::<f64>() / (n - 1.0)).sqrt();
    (middle, Some(middle - student(level, all.len() - 1) * deviation / n.sqrt()))
}

impl Workload {
    fn row(&self, column: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.column == column)
    }
}

impl Field {
    fn parse(all: &Value) -> Result<Self> {
        let list = |v: &Value, key: &str| -> Result<Vec<Value>> {
            Ok(v[key].as_array().with_context(|| format!("no {key}"))?.clone())
        };
        let mut workloads = Vec::new();
        for w in list(all, "workloads")? {
            let mut rows = Vec::new();
            for c in list(&w, "contenders")? {
                let speeds: Option<Vec<f64>> =
                    list(&c, "speeds")?.iter().map(|s| Some(s.as_f64()?.ln())).collect();
                rows.push(Row {
                    column: c["column"].as_str().unwrap_or_default().to_owned(),
                    speeds: speeds.context("a speed that is no number")?,
                    of_optimum: c["of_optimum_percent"].as_f64(),
                    late_of_optimum: c["late_of_optimum_percent"].as_f64(),
                    there: c["there_after_s"].as_f64(),
                    moved: c["moved"].as_f64().unwrap_or(0.0),
                    vain: c["vain_percent"].as_f64(),
                    beside: c["beside_percent"].as_f64().unwrap_or(f64::NAN),
                    late_beside: c["late_beside_percent"].as_f64().unwrap_or(f64::NAN),
                });
            }
            let name = w["name"].as_str().unwrap_or_default().to_owned();
            workloads.push(Workload { name, seconds: w["seconds"].as_f64().unwrap_or(0.0), rows });
        }
        let columns: Vec<String> = workloads
            .first()
            .map_or(Vec::new(), |w| w.rows.iter().map(|r| r.column.clone()).collect());
        let is_ours = |c: &&String| c.starts_with("homenode");
        let ours = columns.iter().find(|c| *c == "homenode pmu");
        let Some(ours) = ours.or_else(|| columns.iter().find(is_ours)) else {
            bail!("there is no column of homenode's");
        };
        let no_baseline =
            |c: &&String| is_ours(c) || *c == HINDSIGHT || FAILED.contains(&c.as_str());
        let baselines: Vec<String> = columns.iter().filter(|c| !no_baseline(c)).cloned().collect();
        if baselines.is_empty() {
            bail!("there is no baseline");
        }
        Ok(Self { workloads, ours: ours.clone(), baselines })
    }
    fn mine<'a>(&self, w: &'a Workload) -> Option<&'a Row> {
        w.row(&self.ours)
    }
    fn rivals<'a>(&'a self, w: &'a Workload) -> impl Iterator<Item = &'a Row> {
        self.baselines.iter().filter_map(|b| w.row(b))
    }
    /// Whether the optimum exceeds the best baseline by a twentieth; none without an optimum.
    fn has_room(&self, w: &Workload) -> Option<bool> {
        let shares: Option<Vec<f64>> = self.rivals(w).map(|r| r.of_optimum).collect();
        Some(shares?.into_iter().fold(0.0, f64::max) <= 100.0 / 1.05)
    }
    /// Over these workloads the least mean lead over a baseline, and over which.
    fn least_lead(&self, of: impl Fn(&Workload) -> bool) -> (f64, String) {
        let over = |b: &String| {
            let leads = self
                .workloads
                .iter()
                .filter(|w| of(w))
                .filter_map(|w| Some(lead(self.mine(w)?, w.row(b)?, 0.95).0));
            (mean(leads), b.clone())
        };
        let all = self.baselines.iter().map(over).filter(|(l, _)| !l.is_nan());
        all.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::NAN, "nobody".into()))
    }
    /// The level of a bound, corrected for the number of workloads.
    fn level(&self) -> f64 {
        1.0 - 0.05 / self.workloads.len() as f64
    }
    /// On each workload the lead over the row that is chosen there, held against a limit.
    fn each(
        &self,
        limit: f64,
        theirs: impl Fn(&Workload) -> Option<Row>,
    ) -> (String, Option<bool>) {
        let mut worst: Vec<(f64, Option<f64>, String)> = Vec::new();
        for w in &self.workloads {
            if let (Some(mine), Some(theirs)) = (self.mine(w), theirs(w)) {
                let (middle, low) = lead(mine, &theirs, self.level());
                worst.push((
                    middle.exp(),
                    low.map(f64::exp),
                    format!("{} ({})", w.name, theirs.column),
                ));
            }
        }
        if worst.is_empty() {
            return ("there is no such column".into(), None);
        }
        worst.sort_by(|a, b| a.0.total_cmp(&b.0));
        let below = |x: &(f64, Option<f64>, String)| x.1.is_some_and(|low| low < limit);
        let few = worst.iter().filter(|x| x.0 < limit);
        let mut text =
            format!("the mean is below {limit} on {} of {}", few.clone().count(), worst.len());
        let shown: Vec<String> = worst
            .iter()
            .filter(|x| x.0 < limit || below(x))
            .map(|(m, low, of)| match low {
                Some(low) => format!("{of} {m:.3}, at least {low:.3}"),
                None => format!("{of} {m:.3}"),
            })
            .collect();
        if !shown.is_empty() {
            text += &format!(": {}", shown.join("; "));
        }
        if worst.iter().any(|x| x.1.is_none()) {
            // What is missed by the mean is missed by any bound below it.
            let missed = few.count() > 0;
            text += "; one seed, so there is no bound";
            return (text, missed.then_some(false));
        }
        let met = !worst.iter().any(below);
        (text, Some(met))
    }
    fn judge(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        let mut say = |what, figure, met| goals.push(Goal { what, figure, met });
        let rooms: Vec<Option<bool>> = self.workloads.iter().map(|w| self.has_room(w)).collect();
        let known = rooms.iter().all(Option::is_some);
        for (what, limit, wanted) in [
            ("mean speed where the optimum is 5 % ahead: >= 1.05 of the best baseline", 1.05, true),
            ("mean speed elsewhere: >= 0.99 of the best baseline", 0.99, false),
        ] {
            let n = rooms.iter().filter(|r| **r == Some(wanted)).count();
            if !known || n == 0 {
                let why = if known { "there is no such workload" } else { "there is no optimum" };
                say(what, why.to_owned(), None);
                continue;
            }
            let (least, over) = self.least_lead(|w| self.has_room(w) == Some(wanted));
            let least = least.exp();
            let figure = format!("{least:.3} of {over}, over {n} workloads");
            say(what, figure, Some(least >= limit));
        }
        let best = |w: &Workload| {
            let speed = |r: &&Row| mean(r.speeds.iter().copied());
            self.rivals(w).max_by(|a, b| speed(a).total_cmp(&speed(b))).cloned()
        };
        let (figure, met) = self.each(0.97, best);
        say("each workload: at most 3 % below the best baseline there", figure, met);
        let (figure, met) = self.each(0.95, |w| w.row(HINDSIGHT).cloned());
        say("each workload: at most 5 % below mode 2 tuned in hindsight", figure, met);
        let steady = self.workloads.iter().filter(|w| STEADY.contains(&w.name.as_str()));
        let rest: Vec<(String, f64, bool)> = steady
            .filter_map(|w| {
                let share = self.mine(w)?.late_of_optimum?;
                Some((format!("{} {share:.1}", w.name), share, w.seconds >= REST))
            })
            .collect();
        let all: Vec<&str> = rest.iter().map(|r| r.0.as_str()).collect();
        let is_long = !rest.is_empty() && rest.iter().all(|r| r.2);
        let short = if is_long { "" } else { "; runs of less than a minute are not at rest" };
        say(
            "at rest, steady patterns: >= 99 % of the best that stays",
            format!("{}{short}", all.join(", ")),
            is_long.then(|| rest.iter().all(|r| r.1 >= 99.0)),
        );
        say_rest(self, &mut goals);
        goals
    }
}

/// The goals that need one or two columns.
fn say_rest(field: &Field, goals: &mut Vec<Goal>) {
    let mut say = |what, figure, met| goals.push(Goal { what, figure, met });
    let kernel = MODE2.iter().find(|m| field.baselines.iter().any(|b| b == *m));
    let pairs = |column: &str| -> Vec<(&Workload, &Row, &Row)> {
        let both = |w| Some((w, field.mine(w)?, Workload::row(w, column)?));
        field.workloads.iter().filter_map(both).collect()
    };
    let what = "time to 90 % of the final share: <= half of tuned mode 2's";
    let there: Vec<(String, f64)> = kernel
        .map(|m| pairs(m))
        .unwrap_or_default()
        .iter()
        .filter_map(|(w, a, b)| Some((w.name.clone(), a.there? / b.there?)))
        .collect();
    if there.is_empty() {
        say(what, "nowhere do both come up".into(), None);
    } else {
        let middle = mean(there.iter().map(|t| t.1.ln())).exp();
        let few = there.iter().filter(|t| t.1 <= 0.5).count();
        let all: Vec<String> = there.iter().map(|(w, t)| format!("{w} {t:.2}")).collect();
        let of = kernel.unwrap_or(&"mode 2");
        let figure = format!(
            "{middle:.2} of {of}'s in the mean, at most half on {few} of {}: {}",
            there.len(),
            all.join(", ")
        );
        say(what, figure, Some(middle <= 0.5));
    }

    let mine: Vec<(&Workload, &Row)> =
        field.workloads.iter().filter_map(|w| Some((w, field.mine(w)?))).collect();
    let moved: f64 = mine.iter().map(|(_, r)| r.moved).sum();
    let vain = |r: &Row| r.moved * r.vain.unwrap_or(0.0);
    let share = mine.iter().map(|(_, r)| vain(r)).sum::<f64>() / moved.max(1.0);
    let many: Vec<String> = mine
        .iter()
        .filter(|(_, r)| r.vain.is_some_and(|v| v >= 5.0))
        .map(|(w, r)| format!("{} {:.1} of {:.0} pages", w.name, r.vain.unwrap_or(0.0), r.moved))
        .collect();
    let more = if many.is_empty() { String::new() } else { format!(" ({})", many.join("; ")) };
    say("wasted moves: < 5 %", format!("{share:.1} %{more}"), (moved > 0.0).then_some(share < 5.0));

    let what = "CPU time beside the programs: <= mode 2's";
    let beside = pairs("mode 2");
    if beside.is_empty() {
        say(what, "there is no mode 2".into(), None);
    } else {
        let ours = mean(beside.iter().map(|(_, a, _)| a.beside));
        let theirs = mean(beside.iter().map(|(_, _, b)| b.beside));
        let few = beside.iter().filter(|(_, a, b)| a.beside <= b.beside).count();
        let figure = format!(
            "{ours:.1} % of a CPU in the mean, mode 2 {theirs:.1}; less on {few} of {}",
            beside.len()
        );
        say(what, figure, Some(ours <= theirs));
    }
    let what = "CPU time at rest: <= 1 % of a CPU per 64 GiB";
    let uniform = pairs(OFF).into_iter().find(|(w, _, _)| w.name == "uniform");
    match uniform {
        None => say(what, "uniform was not run".into(), None),
        Some((_, ours, off)) => {
            let taken = ours.late_beside - off.late_beside;
            let each = taken * 64.0 / UNIFORM_GIB;
            let figure =
                format!("uniform: {taken:.2} % of a CPU for {UNIFORM_GIB} GiB, {each:.2} per 64");
            say(what, figure, Some(each <= 1.0));
        }
    }

    let loud = |(w, _, _): &(&Workload, &Row, &Row)| SATURATED.contains(&w.name.as_str());
    for (what, column, limit, bounded) in [
        ("fast node saturated: never slower than off", OFF, 1.0, true),
        ("fast node saturated: within 5 % of Colloid or better", COLLOID, 0.95, false),
    ] {
        let leads: Vec<(String, f64, Option<f64>)> = pairs(column)
            .into_iter()
            .filter(loud)
            .map(|(w, a, b)| {
                let (middle, low) = lead(a, b, field.level());
                (w.name.clone(), middle.exp(), low.map(f64::exp))
            })
            .collect();
        let told = |(name, middle, low): &(String, f64, Option<f64>)| match low {
            Some(low) if bounded => format!("{name} {middle:.3}, at least {low:.3}"),
            _ => format!("{name} {middle:.3}"),
        };
        let all: Vec<String> = leads.iter().map(told).collect();
        if leads.is_empty() {
            say(what, "no antagonist was run".into(), None);
        } else if bounded && leads.iter().any(|l| l.2.is_none()) {
            // What the mean misses any bound below it misses.
            let missed = leads.iter().any(|l| l.1 < limit);
            let figure = format!("{}; one seed, so there is no bound", all.join("; "));
            say(what, figure, missed.then_some(false));
        } else {
            let of = |l: &(String, f64, Option<f64>)| if bounded { l.2 } else { Some(l.1) };
            let met = leads.iter().all(|l| of(l).is_some_and(|x| x >= limit));
            say(what, all.join("; "), Some(met));
        }
    }
    let elsewhere = |what: &str| format!("by `cargo xtask bench {what}`");
    say("an observation: <= 80 ns, <= 32 bytes per 2 MiB", elsewhere("decide-speed"), None);
    say(
        "100 drawn workloads",
        "by --results of `homenode compare drawn:COMMIT:1-100 --json`".into(),
        None,
    );
    say("settings off by 50 %: no other rank, <= 3 %", elsewhere("tiering-settings"), None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn students_quantiles_are_those_of_tables() {
        for (level, freedom, t) in
            [(0.975, 1, 12.706), (0.975, 9, 2.262), (0.95, 1, 6.314), (0.99, 4, 3.747)]
        {
            assert!((student(level, freedom) - t).abs() < 2e-3 * t, "{level} {freedom}");
        }
    }

    /// A contender: speeds by seed, share of the optimum, seconds until it is there, moves in vain.
    fn row(column: &str, speeds: &[f64], share: f64, there: f64, vain: f64) -> Value {
        json!({
            "column": column, "speeds": speeds, "of_optimum_percent": share,
            "late_of_optimum_percent": share, "there_after_s": there, "moved": 1000.0,
            "vain_percent": vain, "beside_percent": 10.0, "late_beside_percent": 0.5,
        })
    }

    fn field(ours: &[f64]) -> Field {
        let of = |name: &str, share: f64| {
            json!({"name": name, "seconds": 60.0, "contenders": [
                row("off", &[10.0, 10.1, 9.9], 60.0, 0.0, 0.0),
                row("mode 2", &[11.0, 11.1, 10.9], share, 6.0, 10.0),
                row("hybridtier pmu", &[99.0, 99.0, 99.0], 99.0, 1.0, 0.0),
                row("homenode pmu", ours, 99.5, 2.0, 2.0),
            ]})
        };
        let all = json!({"workloads": [of("gauss", 80.0), of("antagonist-1", 99.0)]});
        Field::parse(&all).expect("parsed")
    }

    fn verdict(field: &Field, what: &str) -> (Option<bool>, String) {
        let goals = field.judge();
        let goal = goals.iter().find(|g| g.what.starts_with(what)).expect("a goal of that name");
        (goal.met, goal.figure.clone())
    }

    #[test]
    fn goals_are_met_by_who_is_ahead_and_missed_by_who_is_not() {
        let ahead = field(&[12.1, 12.2, 12.0]);
        assert_eq!(ahead.baselines, ["off", "mode 2"], "who fails its check is none");
        for (what, met) in [
            ("mean speed where", Some(true)),
            ("mean speed elsewhere", Some(true)),
            ("each workload: at most 3 %", Some(true)),
            ("each workload: at most 5 %", None),
            ("at rest", Some(true)),
            ("time to", Some(true)),
            ("wasted", Some(true)),
            ("CPU time beside", Some(true)),
            ("CPU time at rest", None),
            ("fast node saturated: never", Some(true)),
            ("fast node saturated: within", None),
            ("100 drawn", None),
        ] {
            let (got, figure) = verdict(&ahead, what);
            assert_eq!(got, met, "{what}: {figure}");
        }
        let behind = field(&[10.5, 10.6, 9.0]);
        for what in ["mean speed where", "mean speed elsewhere", "each workload: at most 3 %"] {
            let (got, figure) = verdict(&behind, what);
            assert_eq!(got, Some(false), "{what}: {figure}");
        }
        assert!(verdict(&behind, "fast node saturated: never").0 == Some(false));
    }

    #[test]
    fn one_seed_proves_no_bound_but_can_miss_one() {
        let even = field(&[11.2]);
        assert_eq!(verdict(&even, "each workload: at most 3 %").0, None);
        let behind = field(&[10.0]);
        assert_eq!(verdict(&behind, "each workload: at most 3 %").0, Some(false));
        assert!(verdict(&behind, "each workload: at most 3 %").1.contains("gauss (mode 2) 0.909"));
    }
}
