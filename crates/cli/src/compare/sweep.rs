//! Mode 2 tuned: a sweep of its knobs, and the two columns that follow from its result.
//!
//! ```text
//! settings × workloads ──compare --sweep──▶ a file: speeds
//!                                            │ best over the training set ──▶ tuned
//!                                            └ best on the workload itself ──▶ hindsight
//! ```
//!
//! Knobs are those of the machine for which the simulated one stands, and shrink with it as the
//! kernel's own defaults do. Source: specs/compare.md#tuned.

use crate::contender::{Contender, Contenders};
use crate::knobs::Setting;
use anyhow::{Context as _, Result, anyhow, bail};
use homenode_core::scale::Scale;
use homenode_core::units::count;
use homenode_report::CompareTable;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// What is tried: knobs of mode 2 beside its defaults, the defaults first.
const SETTINGS: &[&[(&str, &str)]] = &[
    &[],
    &[("lru_gen", "n")],
    &[("hot_threshold_ms", "250")],
    &[("hot_threshold_ms", "4000")],
    &[("scan_size_mb", "64")],
    &[("scan_size_mb", "1024")],
    &[("scan_period_min_ms", "250")],
    &[("scan_period_min_ms", "4000")],
    &[("promote_rate_limit_MBps", "30")],
    &[("promote_rate_limit_MBps", "300")],
    &[("watermark_scale_factor", "100")],
    &[("hot_threshold_ms", "250"), ("promote_rate_limit_MBps", "300")],
    &[("lru_gen", "n"), ("promote_rate_limit_MBps", "300")],
];

/// The workloads by which one setting is chosen for all. Those while which homenode's engine was
/// mended, so that both were made for the same ones.
const TRAINING: &[&str] = &["gauss", "zipf", "hot-spot", "uniform", "phases", "two-programs"];

/// The result that comes with the command.
const SHIPPED: &str = include_str!("../../../../scenarios/compare/mode2-sweep.json");

/// A column that follows from the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swept {
    /// The setting that is best over the training set.
    Tuned,
    /// The one that is best on the workload.
    Hindsight,
}

impl Swept {
    pub(super) fn find(name: &str) -> Option<Self> {
        match name {
            "tuned" => Some(Self::Tuned),
            "hindsight" => Some(Self::Hindsight),
            _ => None,
        }
    }
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Tuned => "mode 2 tuned",
            Self::Hindsight => "in hindsight",
        }
    }
}

/// What a sweep found: accesses a second in millions, by workload and setting.
pub(super) struct Sweep {
    /// The settings, as text.
    settings: Vec<String>,
    speeds: BTreeMap<String, Vec<f64>>,
    /// Under which terms.
    terms: String,
}

fn written(knobs: &[(&str, &str)]) -> String {
    match knobs {
        [] => "defaults".to_owned(),
        some => some.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" "),
    }
}

fn best(of: &[f64]) -> usize {
    // Of two that are equal the one that comes first.
    (0..of.len()).rev().max_by(|&a, &b| of[a].total_cmp(&of[b])).unwrap_or(0)
}

impl Sweep {
    /// The one that comes with the command.
    pub(super) fn shipped() -> Result<Self> {
        Self::parse(SHIPPED).context("scenarios/compare/mode2-sweep.json")
    }
    fn parse(text: &str) -> Result<Self> {
        let all: Value = serde_json::from_str(text)?;
        let texts = |v: &Value| -> Option<Vec<String>> {
            v.as_array()?.iter().map(|s| Some(s.as_str()?.to_owned())).collect()
        };
        let settings = texts(&all["settings"]).ok_or_else(|| anyhow!("it has no settings"))?;
        let workloads = all["workloads"].as_object().ok_or_else(|| anyhow!("no workloads"))?;
        let mut speeds = BTreeMap::new();
        for (name, list) in workloads {
            let list: Option<Vec<f64>> =
                list.as_array().and_then(|l| l.iter().map(Value::as_f64).collect());
            let list = list.filter(|l| l.len() == settings.len());
            let list = list.ok_or_else(|| anyhow!("{name}: not a speed for each setting"))?;
            speeds.insert(name.clone(), list);
        }
        let known: Vec<String> = SETTINGS.iter().map(|s| written(s)).collect();
        if settings != known {
            bail!(
                "it is of other settings than this program's; homenode compare --sweep makes it anew"
            );
        }
        Ok(Self { settings, speeds, terms: all["terms"].as_str().unwrap_or_default().to_owned() })
    }
    /// What a finished table says.
    pub(super) fn of(table: &CompareTable, terms: String) -> Self {
        let speeds = table.workloads.iter().map(|w| {
            let of = |row: usize| w.mean_speed(row);
            (w.name.clone(), (0..w.rows.len()).map(of).collect())
        });
        let settings = SETTINGS.iter().map(|s| written(s)).collect();
        Self { settings, speeds: speeds.collect(), terms }
    }
    /// By setting: the geometric mean of its speed against the defaults over the training set.
    fn over_training(&self) -> Option<Vec<f64>> {
        let all: Option<Vec<&Vec<f64>>> = TRAINING.iter().map(|w| self.speeds.get(*w)).collect();
        let all = all?;
        let mean = |i: usize| {
            let logs = all.iter().map(|s| (s[i] / s[0]).ln()).sum::<f64>();
            (logs / all.len() as f64).exp()
        };
        Some((0..self.settings.len()).map(mean).collect())
    }
    /// Which setting a column has on a workload.
    fn chosen(&self, column: Swept, workload: &str) -> Option<usize> {
        match column {
            Swept::Tuned => self.over_training().map(|means| best(&means)),
            Swept::Hindsight => self.speeds.get(workload).map(|s| best(s)),
        }
    }
    /// A column's contender on a workload.
    pub(super) fn contender(
        &self,
        column: Swept,
        workload: &str,
        scale: Scale,
        known: &Contenders,
    ) -> Result<Contender> {
        let chosen = self.chosen(column, workload).ok_or_else(|| match column {
            Swept::Tuned => anyhow!("the sweep of mode 2 lacks a workload of the training set"),
            Swept::Hindsight => anyhow!(
                "nobody has swept mode 2's knobs over {workload}; leave hindsight out, or make scenarios/compare/mode2-sweep.json anew"
            ),
        })?;
        setting(chosen, scale, known)
    }
    /// Sentences for below the table: what the columns are set to.
    pub(super) fn note(&self, column: Swept, workloads: &[&str]) -> String {
        let of = |w: &str| self.chosen(column, w).map_or("-", |i| self.settings[i].as_str());
        match column {
            Swept::Tuned => format!(
                "mode 2 tuned: {}, the best of {} over {} ({})",
                workloads.first().map_or("-", |w| of(w)),
                count(self.settings.len() as u64, "setting", "settings"),
                TRAINING.join(", "),
                self.terms
            ),
            Swept::Hindsight => {
                let all: Vec<String> = workloads.iter().map(|w| format!("{w} {}", of(w))).collect();
                format!("in hindsight: the best setting on each workload: {}", all.join("; "))
            }
        }
    }
    /// The same as JSON.
    pub(super) fn to_json(&self) -> String {
        let chosen = |w: &String| self.chosen(Swept::Hindsight, w).map(|i| &self.settings[i]);
        let tuned = self.chosen(Swept::Tuned, "").map(|i| &self.settings[i]);
        let hindsight: BTreeMap<&String, _> = self.speeds.keys().map(|w| (w, chosen(w))).collect();
        json!({
            "terms": self.terms,
            "settings": self.settings,
            "workloads": self.speeds,
            "training": TRAINING,
            "tuned": tuned,
            "hindsight": hindsight,
        })
        .to_string()
    }
    /// Keeps it in a file.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        // A line for each workload, so that differences can be read.
        let line = |(name, speeds): (&String, &Vec<f64>)| {
            let rounded: Vec<f64> = speeds.iter().map(|s| (s * 1e4).round() / 1e4).collect();
            format!("    {}: {}", json!(name), json!(rounded))
        };
        let lines: Vec<String> = self.speeds.iter().map(line).collect();
        let settings: Vec<String> =
            self.settings.iter().map(|s| format!("    {}", json!(s))).collect();
        let text = format!(
            "{{\n  \"terms\": {},\n  \"settings\": [\n{}\n  ],\n  \"workloads\": {{\n{}\n  }}\n}}\n",
            json!(self.terms),
            settings.join(",\n"),
            lines.join(",\n")
        );
        std::fs::write(path, text).with_context(|| format!("{}: can't be written", path.display()))
    }
    /// Settings against the defaults, and what was chosen.
    pub(super) fn to_text(&self) -> String {
        let mut out = format!("speed of mode 2 against its defaults ({})\n", self.terms);
        let names: Vec<&String> = self.speeds.keys().collect();
        let width = names.iter().map(|n| n.len()).max().unwrap_or(0).max("training set".len());
        for (i, setting) in self.settings.iter().enumerate() {
            out += &format!("{:>3} {setting}\n", i + 1);
        }
        let row = |name: &str, ratios: &[f64]| {
            let cells: String = ratios
                .iter()
                .enumerate()
                .map(|(i, r)| format!(" {r:.3}{}", if i == best(ratios) { "*" } else { " " }))
                .collect();
            format!("{name:width$}{}\n", cells.trim_end())
        };
        let heads: String = (1..=self.settings.len()).map(|i| format!(" {i:>5} ")).collect();
        out += &format!("{:width$}{}\n", "", heads.trim_end());
        for (name, speeds) in &self.speeds {
            let ratios: Vec<f64> = speeds.iter().map(|s| s / speeds[0]).collect();
            out += &row(name, &ratios);
        }
        if let Some(means) = self.over_training() {
            out += &row("training set", &means);
            out += &format!("tuned: {}\n", self.settings[best(&means)]);
        } else {
            out += "no setting is chosen: a workload of the training set is missing\n";
        }
        out
    }
}

/// How many settings there are.
pub(super) fn settings() -> usize {
    SETTINGS.len()
}

/// What a setting is called in a table.
pub(super) fn title(at: usize) -> String {
    written(SETTINGS[at])
}

/// Mode 2 under that setting, on a machine of this scale.
pub(super) fn setting(at: usize, scale: Scale, known: &Contenders) -> Result<Contender> {
    let mut it = known.one("mode2")?;
    for (knob, value) in SETTINGS[at] {
        let (knob, value): Setting = ((*knob).to_owned(), scaled(knob, value, scale)?);
        it.name += &format!("+{knob}={value}");
        it.knobs.push((knob, value));
    }
    Ok(it)
}

/// A knob's value on a machine of this scale, by the rule of the kernel's defaults: times shrink,
/// the amount of a scan as its default does, rates and shares stay.
fn scaled(knob: &str, value: &str, scale: Scale) -> Result<String> {
    if scale.is_as_is() {
        return Ok(value.to_owned());
    }
    let number = || value.parse::<u64>().with_context(|| format!("{knob}={value}"));
    Ok(match knob {
        "hot_threshold_ms" | "scan_period_min_ms" => scale.part(number()?).to_string(),
        "scan_size_mb" => (number()? * 10 / 256).max(1).to_string(),
        "promote_rate_limit_MBps" | "watermark_scale_factor" | "lru_gen" => value.to_owned(),
        other => bail!("nobody said how {other} shrinks"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep() -> Sweep {
        let settings: Vec<String> = SETTINGS.iter().map(|s| written(s)).collect();
        // The second is best in the mean, the third on one workload.
        let speeds = |w: &&str| {
            let mut all = vec![10.0; settings.len()];
            all[1] = 11.0;
            all[2] = if *w == "zipf" { 12.0 } else { 9.0 };
            ((*w).to_owned(), all)
        };
        let speeds = TRAINING.iter().map(speeds).collect();
        Sweep { settings, speeds, terms: "1 s, seed 1".into() }
    }

    #[test]
    fn one_setting_is_chosen_for_all_and_one_for_each() {
        let s = sweep();
        let known = Contenders::with(&[]);
        let scale = Scale::new(11).expect("a scale");
        let of = |column, w| s.contender(column, w, scale, &known).expect("swept").knobs;
        let last = |knobs: Vec<Setting>| knobs.last().cloned().expect("some");
        for w in ["zipf", "gauss", "gups"] {
            assert_eq!(last(of(Swept::Tuned, w)), ("lru_gen".into(), "n".into()), "{w}");
        }
        // 250 ms of the large machine.
        assert_eq!(last(of(Swept::Hindsight, "zipf")), ("hot_threshold_ms".into(), "22".into()));
        assert_eq!(last(of(Swept::Hindsight, "gauss")), ("lru_gen".into(), "n".into()));
        let none = s.contender(Swept::Hindsight, "gups", scale, &known).map(|_| ());
        assert!(none.expect_err("not swept").to_string().contains("nobody has swept"));
    }

    #[test]
    fn a_kernel_takes_each_setting_at_each_scale() {
        let known = Contenders::with(&[]);
        for factor in [1, 11, 64] {
            let scale = Scale::new(factor).expect("a scale");
            for at in 0..settings() {
                let it = setting(at, scale, &known).expect("mode 2");
                crate::knobs::check_all(&it.knobs, homenode_core::kernel::KernelVersion::default())
                    .unwrap_or_else(|e| panic!("{}: {e:#}", title(at)));
            }
        }
    }

    #[test]
    fn what_was_found_comes_back_from_its_file() {
        let path = std::env::temp_dir().join(format!("homenode-sweep-{}.json", std::process::id()));
        sweep().write(&path).expect("written");
        let text = std::fs::read_to_string(&path).expect("read");
        std::fs::remove_file(&path).expect("removed");
        let back = Sweep::parse(&text).expect("parsed");
        assert_eq!((back.speeds, back.terms), (sweep().speeds, sweep().terms));
        assert!(Sweep::parse(&text.replace("lru_gen=n", "lru_gen=y")).is_err());
    }

    #[test]
    fn the_sweep_that_comes_with_the_command_is_of_its_settings_and_workloads() {
        let s = Sweep::shipped().expect("it can be read");
        for name in super::super::workloads::names() {
            assert!(s.chosen(Swept::Hindsight, name).is_some(), "{name}");
        }
        assert!(s.over_training().is_some());
    }
}
