//! Benchmarks: each beside its peer, in one run, several times by turns.
//!
//! The machines are shared and noisy, so ours and the peer alternate and the
//! medians are compared; the spread is printed beside them. Figures come from
//! counters and clocks of what ran, never from constants here.

mod decide_speed;
mod hotloop;
mod live_peers;
mod merge;
mod move_throughput;
mod observe_cost;
mod off_cost;
mod parallel;
mod peers;
mod quantum_error;
mod record_slowdown;
mod scale;
mod sched;
mod sensitivity;
mod sim_speed;
mod stats_cost;
mod tiering_quality;
mod tiering_settings;
mod truth_mem;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueEnum as _;
use clap::builder::{PossibleValue, PossibleValuesParser};
use serde_json::{Value, json};

use crate::Ending;
use crate::workspace::{Profile, Workspace, must_run};

/// What the command line asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct Options {
    /// Which; all unless named
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(Bench::names()))]
    names: Vec<String>,
    /// End each with {"name","ours","peer","unit","ratio","goal","pass"}
    #[arg(long)]
    json: bool,
    /// Seconds instead of minutes, to see that it runs; goals are not judged
    #[arg(long)]
    tiny: bool,
    /// tiering-quality: four workloads, five contenders, two seeds, 10 s
    #[arg(long)]
    quick: bool,
    /// tiering-quality: judge what `homenode compare --json` has printed into this file
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
}

impl Options {
    /// All of them, tiny.
    pub(crate) fn tiny() -> Self {
        Self { tiny: true, ..Self::default() }
    }
}

/// What can be measured, by name, and the words above its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Bench {
    /// exact simulation with tiering on, beside libCacheSim's LRU on the same ids
    SimSpeed,
    /// 1 GiB to 1 TiB simulated, beside a bare loop of prefetched 8-byte updates
    Scale,
    /// a sort and a Python program, recorded against native, beside valgrind's lackey
    RecordSlowdown,
    /// instructions per access with balancing off, beside the same loop without it
    OffCost,
    /// every reported figure with quanta of 10 µs, beside strict order
    QuantumError,
    /// 8 busy tasks on machines of 8, 256 and 4,096 CPUs
    CpuScale,
    /// 2, 64 and 4,096 tasks that access memory, meeting or not, beside one alone
    MemParallel,
    /// recordings of 2, 16 and 64 threads that wait for one another, beside one of one thread
    ReplayThreads,
    /// hackbench on 2 x 32 CPUs, wake-ups and switches a second, beside a bare loop and SimSo
    SchedSpeed,
    /// wake-ups and switches on machines of 8 to 4,096 CPUs, beside the smallest
    SchedScale,
    /// what homenode's engine takes per observation of 1 GiB to 1 TiB, beside a loop that counts them
    DecideSpeed,
    /// instructions per wake-up or switch with statistics off, beside code without them
    StatsOffCost,
    /// the goals of homenode's engine one by one, by `homenode compare`, beside the best baseline
    TieringQuality,
    /// the same mean with each setting of the engine by half and by half more, beside the limit
    TieringSettings,
    /// memory times that the simulator predicts for this machine, beside its own
    TruthMem,
    /// signs and order of the tiering result, with each constant moved by 20 %
    SensitivityTiering,
    /// signs and order of the merging result, with each constant moved by 20 %
    SensitivityKsm,
    /// signs of what scheduler statistics cost, with each constant moved by 20 %
    SensitivitySchedstats,
    /// order of the slow-start result, with each constant moved by 20 %
    SensitivitySlowStart,
    /// sign of the recently used CPU's result, with each constant moved by 20 %
    SensitivityRecentCpu,
    /// saving of same-page merging in 1 GiB, beside ksmd and the bare system call
    MergeEstimate,
    /// looking at 100 processes every 5 s, beside memtierd's looks at the same ones
    ObserveCost,
    /// perf bench sched pipe and messaging looked at by `homenode stats`, beside perf sched record
    StatsCost,
    /// hot sets brought to a full fast node in a guest, beside the kernel's mode 2 and DAMOS
    LivePeers,
    /// calls and pages of homenode's mover in a guest, beside a bare loop of `move_pages`
    MoveThroughput,
}

impl Bench {
    /// Their names, for the command line.
    fn names() -> impl Iterator<Item = PossibleValue> {
        let values = Self::value_variants().iter().filter_map(Self::to_possible_value);
        values.map(|value| value.help(None::<&str>))
    }

    /// All of them, with their names and what they are about.
    fn listed() -> impl Iterator<Item = (Self, String, String)> {
        Self::value_variants().iter().filter_map(|bench| {
            let value = bench.to_possible_value()?;
            Some((*bench, value.get_name().to_owned(), value.get_help()?.to_string()))
        })
    }

    /// Whether it takes minutes at any size: what runs in a guest, and what builds the simulator anew.
    fn is_long(self) -> bool {
        matches!(self, Self::LivePeers | Self::MoveThroughput | Self::StatsOffCost)
    }

    fn run(self, setting: &Setting<'_>) -> Result<Verdict> {
        match self {
            Self::SimSpeed => sim_speed::run(setting),
            Self::Scale => scale::run(setting),
            Self::RecordSlowdown => record_slowdown::run(setting),
            Self::OffCost => off_cost::run(setting),
            Self::QuantumError => quantum_error::run(setting),
            Self::CpuScale => parallel::cpu_scale(setting),
            Self::MemParallel => parallel::mem_parallel(setting),
            Self::ReplayThreads => parallel::replay_threads(setting),
            Self::SchedSpeed => sched::speed(setting),
            Self::SchedScale => sched::scale(setting),
            Self::DecideSpeed => decide_speed::run(setting),
            Self::StatsOffCost => sched::stats_off(setting),
            Self::TieringQuality => tiering_quality::run(setting),
            Self::TieringSettings => tiering_settings::run(setting),
            Self::TruthMem => truth_mem::run(setting),
            Self::SensitivityTiering => sensitivity::tiering(setting),
            Self::SensitivityKsm => sensitivity::ksm(setting),
            Self::SensitivitySchedstats => sensitivity::schedstats(setting),
            Self::SensitivitySlowStart => sensitivity::slow_start(setting),
            Self::SensitivityRecentCpu => sensitivity::recent_cpu(setting),
            Self::MergeEstimate => merge::estimate(setting),
            Self::ObserveCost => observe_cost::run(setting),
            Self::StatsCost => stats_cost::run(setting),
            Self::LivePeers => live_peers::run(setting),
            Self::MoveThroughput => move_throughput::run(setting),
        }
    }
}

/// What a benchmark runs in.
struct Setting<'a> {
    ws: &'a Workspace,
    tiny: bool,
    quick: bool,
    results: Option<&'a Path>,
    profile: Profile,
}

impl Setting<'_> {
    /// A package's measuring program, built.
    fn example(&self, package: &str, name: &str) -> Result<PathBuf> {
        let (ws, profile) = (self.ws, self.profile);
        match profile {
            Profile::Release => {
                let built = ["build", "--locked", "--quiet", "--profile", profile.name()];
                must_run(ws.cargo().args(built).args(["--package", package, "--example", name]))?;
            }
            Profile::Ci => ws.build(profile)?,
        }
        Ok(ws.built(profile, "examples").join(name))
    }

    /// One of two sizes.
    fn pick<T>(&self, full: T, tiny: T) -> T {
        if self.tiny { tiny } else { full }
    }
}

/// A benchmark's result, as its last line tells it.
struct Verdict {
    ours: f64,
    peer: f64,
    unit: &'static str,
    /// How much better than the peer ours is, in the sense of the goal.
    ratio: f64,
    goal: &'static str,
    pass: bool,
}

impl Verdict {
    /// The last line, with its keys in the promised order. Tiny runs judge
    /// nothing, so they neither pass nor fail their goal.
    fn line(&self, name: &str, tiny: bool) -> String {
        let pass = if tiny { Value::Null } else { Value::Bool(self.pass) };
        let pairs = [
            ("name", json!(name)),
            ("ours", json!(rounded(self.ours))),
            ("peer", json!(rounded(self.peer))),
            ("unit", json!(self.unit)),
            ("ratio", json!(rounded(self.ratio))),
            ("goal", json!(self.goal)),
            ("pass", pass),
        ];
        let pairs: Vec<String> =
            pairs.iter().map(|(key, value)| format!("{}: {value}", json!(key))).collect();
        format!("{{{}}}", pairs.join(", "))
    }
}

/// Six digits after the point say more than any of these measurements knows.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Runs them; one that can't run counts as failed, and the next one follows.
pub(crate) fn run(ws: &Workspace, options: &Options, profile: Profile) -> Result<Ending> {
    let mut failed = 0;
    let setting = Setting {
        ws,
        tiny: options.tiny,
        quick: options.quick,
        results: options.results.as_deref(),
        profile,
    };
    for (bench, name, about) in Bench::listed() {
        if !options.names.is_empty() && !options.names.contains(&name) {
            continue;
        }
        println!("\n{name}: {about}");
        if options.tiny && bench.is_long() {
            println!("  not at this size: it boots or builds for minutes");
            continue;
        }
        match bench.run(&setting) {
            Ok(verdict) => {
                println!("  goal: {}: {}", verdict.goal, judged(&verdict, options.tiny));
                if !options.tiny && !verdict.pass {
                    failed += 1;
                }
                if options.json {
                    println!("{}", verdict.line(&name, options.tiny));
                }
            }
            // Asked for one: its own words and exit code end the chore.
            Err(error) if options.names.len() == 1 => return Err(error),
            Err(error) => {
                failed += 1;
                eprintln!("  {name}: could not be measured: {error:#}");
            }
        }
    }
    Ok(if failed == 0 { Ending::Done } else { Ending::Failed })
}

fn judged(verdict: &Verdict, tiny: bool) -> &'static str {
    match (tiny, verdict.pass) {
        (true, _) => "not judged at this size",
        (false, true) => "met",
        (false, false) => "NOT MET",
    }
}

/// Samples of one figure.
#[derive(Clone, Debug, Default)]
struct Samples(Vec<f64>);

impl Samples {
    fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The middle one; of an even number the mean of the two in the middle. 0 of none.
    fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => 0.0,
            n if n % 2 == 1 => sorted[middle],
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        }
    }

    /// `101.2 (99.8 to 104.0)`
    fn shown(&self, digits: usize) -> String {
        let low = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!("{:.digits$} ({low:.digits$} to {high:.digits$})", self.median())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        Samples(values.to_vec())
    }

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        assert_eq!(samples(&[]).median(), 0.0);
        assert_eq!(samples(&[3.0, 1.0, 100.0]).median(), 3.0);
        assert_eq!(samples(&[4.0, 1.0, 2.0, 100.0]).median(), 3.0);
        assert_eq!(samples(&[3.0, 1.0, 100.0]).shown(1), "3.0 (1.0 to 100.0)");
    }

    #[test]
    fn the_last_line_has_the_promised_keys() {
        let verdict =
            Verdict { ours: 1.0, peer: 3.0, unit: "x", ratio: 1.0 / 3.0, goal: "g", pass: true };
        assert_eq!(
            verdict.line("scale", false),
            r#"{"name": "scale", "ours": 1.0, "peer": 3.0, "unit": "x", "ratio": 0.333333, "goal": "g", "pass": true}"#
        );
        assert!(verdict.line("scale", true).ends_with(r#""pass": null}"#));
    }
}
