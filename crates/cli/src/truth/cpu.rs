//! `homenode truth cpu`: benchmarks of scheduling, simulated on the measured machine, then run.
//!
//! ```text
//! truth/cpu.toml ─▶ case ─┬─▶ scenario ──▶ simulated, nobody pinned ──▶ time, switches, migrations ─┐
//!                         └─▶ perf bench, under perf stat ────────────▶ medians of the same ────────┴─▶ errors
//! ```

use super::table::median;
use super::{Scratch, this_machine};
use crate::progress::Progress;
use crate::reproduce::processes;
use crate::{live, output};
use anyhow::{Context, Result, bail};
use homenode_config::{CpuBench, CpuCase, CpuPlan, parse_truth_cpu};
use homenode_core::kernel::KernelVersion;
use homenode_core::topology::Hardware;
use homenode_measure::truth::perf::{self, Forked, Run};
use homenode_sim::{Setup, Simulation};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// The registered benchmarks, part of the command so that nobody changes them before a run.
const CPU: &str = include_str!("../../../../truth/cpu.toml");
const FILE: &str = "truth/cpu.toml";
/// Share of all CPU time from which on what others took makes the comparison worthless.
const OTHERS_MOST: f64 = 0.05;
/// Migrations are compared where there are so many of a thousand switches.
const MIGRATIONS_LEAST: f64 = 10.0;

/// Predict times of scheduling on the measured machine, then run for real and compare.
///
/// Measures this machine (or takes --machine), simulates what `perf bench sched pipe` and
/// `perf bench sched messaging` do, prints the predictions, and only then runs the benchmarks, nine
/// times by turns. Compared are times, context switches and migrations. Cases and bounds were
/// registered beforehand (truth/cpu.toml). The exit code is 1 where a bound is missed. Where others
/// take more than 5 % of the CPUs meanwhile there is no verdict, and the exit code is 3. Takes about a
/// minute. Needs `perf`.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode truth cpu --machine this.toml --case pipe")]
pub(super) struct Args {
    /// The machine's file, measured on this machine; measured anew unless given
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Only this case; may be given several times
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// Native runs of each, in place of nine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8> {
    let mut plan = parse_truth_cpu(FILE, CPU)?;
    if let Some(unknown) = args.cases.iter().find(|n| plan.cases.iter().all(|c| c.name != **n)) {
        let names: Vec<&str> = plan.cases.iter().map(|c| c.name.as_str()).collect();
        bail!("there is no case \"{unknown}\"; there are {}", names.join(", "));
    }
    plan.cases.retain(|c| args.cases.is_empty() || args.cases.contains(&c.name));
    plan.runs = args.runs.unwrap_or(plan.runs);
    let progress = Progress::new(1000);
    let folder = Scratch::new()?;
    // Where there is no perf, that is said before a machine is measured.
    perf::bench(&["sched", "pipe", "-l", "100"].map(String::from), &folder.0)?;
    let machine = this_machine(args.machine.as_deref(), false, false, &progress)?;
    let check = check(plan, &machine, &folder, &progress)?;
    output::print(&if args.json { check.to_json() } else { check.to_text() })?;
    Ok(match check.passes() {
        Some(passes) => u8::from(!passes),
        None => 3,
    })
}

/// What a benchmark takes: predicted, or one native run.
#[derive(Clone, Copy, Debug, Default)]
struct Took {
    /// In seconds.
    time: f64,
    switches: f64,
    migrations: f64,
}

impl From<Run> for Took {
    fn from(run: Run) -> Self {
        let (switches, migrations) = (run.switches as f64, run.migrations as f64);
        Self { time: run.seconds, switches, migrations }
    }
}

/// The case as a scenario. As in perf, the receivers' channels have the order of the receivers.
fn scenario(
    case: &CpuCase,
    machine: &Hardware,
    forked: Forked,
) -> Result<homenode_core::scenario::Scenario> {
    let step = |text: &str| format!("[[process.step]]\n{text}\n");
    // So often in all; nothing more where once is enough.
    let again = |steps: u32, times: u64| match times {
        1 => String::new(),
        _ => step(&format!("do = \"repeat\"\nsteps = {steps}\ntimes = {times}")),
    };
    let mut text = "name = \"truth\"\nabout = \"a benchmark\"\nmachine = \"this\"\n".to_owned();
    let loops = u64::from(case.loops);
    match case.bench {
        CpuBench::Pipe => {
            let call = |what, channel| {
                step(&format!("do = \"{what}\"\nchannel = \"{channel}\"\nbytes = 4"))
            };
            for name in ["there", "back"] {
                text += &format!("[[channel]]\nname = \"{name}\"\nkind = \"pipe\"\n");
            }
            let ping = [call("write", "there"), call("read", "back")];
            let pong = [call("read", "there"), call("write", "back")];
            for (name, calls) in [("ping", ping), ("pong", pong)] {
                text += &format!("[[process]]\nname = \"{name}\"\nthreads = 1\n");
                text += &(calls.concat() + &again(2, loops));
            }
        }
        CpuBench::Messaging { groups } => {
            let many = groups * EACH;
            text += &format!(
                "[[channel]]\nname = \"wire\"\nkind = \"socket\"\ncount = {many}\ngroup = {EACH}\n"
            );
            // The clock runs on until the last process has ended.
            let (tasks, end) = match case.threads {
                true => (format!("threads = {many}\n"), String::new()),
                false => {
                    let mut tasks = format!("copies = {many}\nthreads = 1\nexits = true\n");
                    let mut map = |name: &str, pages: u64| {
                        tasks += &format!(
                            "[[process.map]]\nname = \"{name}\"\nsize = \"{} KiB\"\n",
                            pages * 4
                        );
                    };
                    map("image", forked.faults.max(1));
                    (1..forked.maps).for_each(|n| map(&format!("library {n}"), 1));
                    let faults = forked.faults > 0;
                    (
                        tasks,
                        if faults {
                            step("do = \"touch\"\nmap = \"image\"")
                        } else {
                            String::new()
                        },
                    )
                }
            };
            let receive = "do = \"read\"\nchannel = \"wire\"\nbytes = 100";
            let send = "do = \"write\"\nchannel = \"wire\"\nto = \"group\"\nbytes = 100";
            let messages = loops * u64::from(EACH);
            for (name, call, times) in [("receiver", receive, messages), ("sender", send, loops)] {
                text += &format!("[[process]]\nname = \"{name}\"\n{tasks}");
                text += &(step(call) + &again(1, times) + &end);
            }
        }
    }
    let file = homenode_config::parse_scenario("a benchmark", &text)?;
    file.check(machine)?;
    Ok(file.scenario)
}

/// Senders, and receivers, of a group.
const EACH: u32 = 20;

fn predict(
    case: &CpuCase,
    machine: &Hardware,
    version: KernelVersion,
    forked: Forked,
) -> Result<Took> {
    let scenario = scenario(case, machine, forked)?;
    let setup = Setup { version, ..Setup::of(&scenario) };
    let mut sim = Simulation::new(machine, &scenario, &setup)?;
    sim.run();
    let mut took = Took::default();
    for p in processes(&sim)? {
        took.time = took.time.max(p.time_ps as f64 / 1e12);
        took.switches += (p.tasks.voluntary + p.tasks.involuntary) as f64;
        took.migrations += p.tasks.migrations as f64;
    }
    Ok(took)
}

/// The case as arguments of `perf bench`.
fn arguments(case: &CpuCase) -> Vec<String> {
    let mut words = vec!["sched".to_owned()];
    match case.bench {
        CpuBench::Pipe => {
            words.push("pipe".into());
            if case.threads {
                words.push("-T".into());
            }
        }
        CpuBench::Messaging { groups } => {
            words.extend(["messaging".into(), "-g".into(), groups.to_string()]);
            if case.threads {
                words.push("-t".into());
            }
        }
    }
    words.extend(["-l".into(), case.loops.to_string()]);
    words
}

#[derive(Debug)]
struct Compared {
    case: CpuCase,
    predicted: Took,
    native: Vec<Took>,
}

impl Compared {
    fn native(&self, of: fn(&Took) -> f64) -> f64 {
        median(&self.native.iter().map(of).collect::<Vec<_>>())
    }
    /// Predicted over native less one, in percent.
    fn error(&self, of: fn(&Took) -> f64) -> f64 {
        let native = self.native(of);
        if native > 0.0 { (of(&self.predicted) / native - 1.0) * 100.0 } else { f64::INFINITY }
    }
    fn time(&self) -> f64 {
        self.error(|t| t.time)
    }
    fn switches(&self) -> f64 {
        self.error(|t| t.switches)
    }
    /// `None` where there are hardly any on either side.
    fn migrations(&self) -> Option<f64> {
        let few =
            |migrations: f64, switches: f64| migrations * 1000.0 < switches * MIGRATIONS_LEAST;
        let p = &self.predicted;
        let native = few(self.native(|t| t.migrations), self.native(|t| t.switches));
        let few = native && few(p.migrations, p.switches);
        (!few).then(|| self.error(|t| t.migrations))
    }
}

struct Check {
    plan: CpuPlan,
    machine: String,
    version: KernelVersion,
    forked: Forked,
    rows: Vec<Compared>,
    /// Share of all CPU time that others took during the native runs.
    others: f64,
}

fn check(
    plan: CpuPlan,
    machine: &Hardware,
    folder: &Scratch,
    progress: &Progress,
) -> Result<Check> {
    let here = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version = live::version(Some(here.trim()));
    let mut rows = Vec::new();
    let forked = perf::forked(&folder.0)?;
    // Everything is predicted before anything runs.
    for case in &plan.cases {
        progress.say(&format!("predicting {}", case.name));
        let predicted =
            predict(case, machine, version, forked).with_context(|| case.name.clone())?;
        rows.push(Compared { case: case.clone(), predicted, native: Vec::new() });
    }
    for row in &rows {
        progress.murmur(&format!("predicted: {} {:.3} s", row.case.name, row.predicted.time));
    }
    let all = plan.runs as usize * rows.len();
    let (mut others, mut there) = (Duration::ZERO, Duration::ZERO);
    for n in 0..all {
        let row_number = n % rows.len();
        let row = &mut rows[row_number];
        progress.say(&row.case.name);
        let run = perf::bench(&arguments(&row.case), &folder.0)?;
        row.native.push(run.into());
        others += run.others[0];
        there += run.others[1];
        progress.at(((n + 1) * 1000 / all) as u64);
    }
    let others = others.as_secs_f64() / there.as_secs_f64().max(f64::MIN_POSITIVE);
    let machine = format!("{}: {}", machine.name, machine.about);
    Ok(Check { plan, machine, version, forked, rows, others })
}

impl Check {
    fn bounds(&self) -> [f64; 2] {
        [self.plan.switches_percent, self.plan.migrations_percent].map(f64::from)
    }
    /// Rows within their bounds: times, switches, migrations.
    fn met(&self) -> [usize; 3] {
        let [switches, migrations] = self.bounds();
        let count = |met: &dyn Fn(&Compared) -> bool| self.rows.iter().filter(|r| met(r)).count();
        [
            count(&|r| r.time().abs() <= f64::from(r.case.bound_percent)),
            count(&|r| r.switches().abs() <= switches),
            count(&|r| r.migrations().is_none_or(|e| e.abs() <= migrations)),
        ]
    }
    /// `None`: others took too much of the CPUs.
    fn passes(&self) -> Option<bool> {
        let all = self.rows.len();
        (self.others <= OTHERS_MOST).then(|| all > 0 && self.met() == [all; 3])
    }

    fn to_text(&self) -> String {
        let width = self.rows.iter().map(|r| r.case.name.len()).max().unwrap_or(0).max(4);
        let heads = format!(
            "{:width$} {:^35} {:^28} {:^28}",
            "", "time, ms", "context switches", "migrations"
        );
        let mut out = format!("{}\n", heads.trim_end());
        let [a, b, c] = ["native", "predicted", "%"];
        out += &format!(
            "{:width$} {a:>9} {b:>9} {c:>7} {:>7} {a:>9} {b:>9} {c:>8} {a:>9} {b:>9} {c:>8}\n",
            "case", "bound"
        );
        for r in &self.rows {
            let (p, name) = (&r.predicted, &r.case.name);
            let migrations = r.migrations().map_or("-".to_owned(), |e| format!("{e:+.1}"));
            out += &format!(
                "{name:width$} {:>9.1} {:>9.1} {:>+7.1} {:>7} {:>9.0} {:>9.0} {:>+8.1} {:>9.0} {:>9.0} {migrations:>8}\n",
                r.native(|t| t.time) * 1e3,
                p.time * 1e3,
                r.time(),
                r.case.bound_percent,
                r.native(|t| t.switches),
                p.switches,
                r.switches(),
                r.native(|t| t.migrations),
                p.migrations,
            );
        }
        let ([time, switches, migrations], n) = (self.met(), self.rows.len());
        let [switches_bound, migrations_bound] = self.bounds();
        out += &format!(
            "\ntimes within their bounds: {time} of {n}; switches within {switches_bound} %: {switches} of {n}; migrations within {migrations_bound} %: {migrations} of {n}\n"
        );
        if self.passes().is_none() {
            out += &format!(
                "no verdict: others took {:.0} % of the CPUs during the runs, and up to {:.0} % disturb little; run it again when the machine is idle\n",
                self.others * 100.0,
                OTHERS_MOST * 100.0
            );
        }
        out += &format!(
            "\nmachine: {}\nkernel: rules of Linux {}\ncases and bounds registered {} in {FILE}; native is the median of {} runs by turns; all predictions were made before the first; a process of perf's has {} mappings and takes {} faults from fork to end, as counted beforehand; - stands where less than one switch in a hundred goes to another CPU\n",
            self.machine,
            self.version.name(),
            self.plan.registered,
            self.plan.runs,
            self.forked.maps,
            self.forked.faults,
        );
        out
    }

    fn to_json(&self) -> String {
        let took = |t: &Took| json!({"time_s": t.time, "context_switches": t.switches, "migrations": t.migrations});
        let row = |r: &Compared| {
            json!({
                "row": r.case.name,
                "predicted": took(&r.predicted),
                "native": r.native.iter().map(took).collect::<Vec<_>>(),
                "time_error_percent": r.time(),
                "bound_percent": r.case.bound_percent,
                "switches_error_percent": r.switches(),
                "migrations_error_percent": r.migrations(),
            })
        };
        let [switches_percent, migrations_percent] = self.bounds();
        json!({
            "name": "cpu",
            "machine": self.machine,
            "kernel": self.version.name(),
            "registered": self.plan.registered,
            "forked": {"maps": self.forked.maps, "faults": self.forked.faults},
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "switches_percent": switches_percent,
            "migrations_percent": migrations_percent,
            "met": self.met(),
            "others_percent": self.others * 100.0,
            "pass": self.passes(),
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn plan() -> CpuPlan {
        parse_truth_cpu(FILE, CPU).expect("the registered cases")
    }

    const FORKED: Forked = Forked { maps: 150, faults: 157 };

    fn took(time: f64, switches: f64, migrations: f64) -> Took {
        Took { time, switches, migrations }
    }

    fn check(rows: &[(usize, Took, Took)], others: f64) -> Check {
        let plan = plan();
        let row = |&(case, predicted, native): &(usize, Took, Took)| Compared {
            case: plan.cases[case].clone(),
            predicted,
            native: vec![native; 3],
        };
        let rows = rows.iter().map(row).collect();
        let machine = "a machine: of a test".into();
        Check { plan, machine, version: KernelVersion::V6_12, forked: FORKED, rows, others }
    }

    #[test]
    fn the_cases_are_what_perf_runs() {
        let all: Vec<String> = plan().cases.iter().map(|c| arguments(c).join(" ")).collect();
        expect![[r#"
            sched pipe -l 100000
            sched pipe -T -l 100000
            sched messaging -g 1 -l 100
            sched messaging -g 5 -l 100
            sched messaging -g 10 -l 100
            sched messaging -g 1 -t -l 100
            sched messaging -g 5 -t -l 100
            sched messaging -g 10 -t -l 100"#]]
        .assert_eq(&all.join("\n"));
    }

    #[test]
    fn every_case_is_simulated_to_its_end() {
        let text = include_str!("../../../../machines/small-two-sockets.toml");
        let machine = homenode_config::parse_machine("small-two-sockets.toml", text).unwrap();
        for mut case in plan().cases {
            case.loops = 3;
            let took = predict(&case, &machine, KernelVersion::V6_12, FORKED).unwrap();
            // In a ping-pong each call that waits is a switch; of a group each receiver waits once.
            let least = match case.bench {
                CpuBench::Pipe => 3.0,
                CpuBench::Messaging { groups } => f64::from(groups * EACH),
            };
            assert!(took.time > 0.0 && took.switches >= least, "{}: {took:?}", case.name);
            case.loops = 1;
            assert!(
                predict(&case, &machine, KernelVersion::V6_12, FORKED).is_ok(),
                "{}",
                case.name
            );
        }
    }

    #[test]
    fn the_table_says_which_bounds_are_met() {
        let rows = [
            (0, took(0.52, 200_000.0, 3.0), took(0.5, 201_000.0, 20.0)),
            (4, took(0.8, 60_000.0, 9_000.0), took(1.0, 50_000.0, 10_000.0)),
        ];
        let c = check(&rows, 0.01);
        expect![[r#"
                                      time, ms                     context switches                migrations
            case            native predicted       %   bound    native predicted        %    native predicted        %
            pipe             500.0     520.0    +4.0      10    201000    200000     -0.5        20         3        -
            messaging-10    1000.0     800.0   -20.0      15     50000     60000    +20.0     10000      9000    -10.0

            times within their bounds: 1 of 2; switches within 10 %: 1 of 2; migrations within 25 %: 2 of 2

            machine: a machine: of a test
            kernel: rules of Linux 6.12
            cases and bounds registered 2026-11-23 in truth/cpu.toml; native is the median of 9 runs by turns; all predictions were made before the first; a process of perf's has 150 mappings and takes 157 faults from fork to end, as counted beforehand; - stands where less than one switch in a hundred goes to another CPU
        "#]]
        .assert_eq(&c.to_text());
        assert_eq!((c.met(), c.passes()), ([1, 1, 2], Some(false)));
        assert_eq!(check(&rows[..1], 0.01).passes(), Some(true));
        let busy = check(&rows[..1], 0.4);
        assert!(busy.passes().is_none() && busy.to_text().contains("no verdict: others took 40 %"));
        let json: serde_json::Value = serde_json::from_str(&busy.to_json()).unwrap();
        assert_eq!((&json["pass"], &json["met"]), (&json!(null), &json!([1, 1, 1])));
        assert_eq!(check(&[], 0.0).passes(), Some(false), "nothing run is nothing met");
    }
}
