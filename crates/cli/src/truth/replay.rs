//! `homenode truth replay`: programs with threads and processes, recorded, replayed on the
//! unmodified machine, and run natively.
//!
//! ```text
//! truth/replay.toml ─▶ program ─┬─▶ natively, on all CPUs and on one ──▶ medians ─┐
//!                               └─▶ recorded ──▶ replayed, likewise ──────────────┴─▶ error
//! ```

use super::table::median;
use super::{Scratch, load, this_machine};
use crate::contender::Contender;
use crate::failure::Lacks;
use crate::output;
use crate::progress::Progress;
use crate::replay::interval::Intervals;
use crate::replay::load as recording;
use crate::replay::play::Mlp;
use crate::replay::recorded::Recorded;
use crate::spread::Predicted;
use anyhow::{Context, Result, anyhow, bail};
use homenode_config::{ReplayPlan, ReplayProgram, parse_truth_replay};
use homenode_core::splitmix::SplitMix;
use homenode_core::topology::Hardware;
use homenode_core::units::CpuId;
use homenode_measure::record::{self, Options, RecordError};
use homenode_sim::replay::Rounds;
use homenode_trace::Native;
use serde_json::json;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The registered programs, part of the command so that nobody changes them before a run.
const REPLAY: &str = include_str!("../../../../truth/replay.toml");
const FILE: &str = "truth/replay.toml";
/// Lines of numbers.txt, and files of the project that `make` builds.
const LINES: u64 = 600_000;
const SOURCES: u32 = 12;

/// Replay programs with threads and processes, and compare with how long they take.
///
/// Each program is run natively, nine times on all CPUs and nine times on the first one, by turns.
/// It is recorded once, and replayed on the measured machine as it is: on all CPUs, then on that one.
/// The replay's processor time is the native one on all CPUs by construction, so what is judged
/// is how its tasks wait for one another; what they need natively on one CPU is told beside it.
/// How often they block and leave their CPU is compared too, and judged where it follows from the
/// program's source. Programs and bounds were registered beforehand (truth/replay.toml). A program
/// that this system lacks is left out with a note. The exit code is 1 where a bound is missed.
/// Takes some three minutes; the machine should be idle meanwhile. Needs qemu-x86_64, and a C
/// compiler for three of the programs.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode truth replay --machine this.toml --program xz --program barrier")]
pub(super) struct Args {
    /// The machine's file, measured on this machine; measured anew unless given
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Only this program; may be given several times
    #[arg(long = "program", value_name = "NAME")]
    programs: Vec<String>,
    /// Native runs of each, in place of nine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8> {
    let mut plan = parse_truth_replay(FILE, REPLAY)?;
    if let Some(unknown) =
        args.programs.iter().find(|n| plan.programs.iter().all(|p| p.name != **n))
    {
        let names: Vec<&str> = plan.programs.iter().map(|p| p.name.as_str()).collect();
        bail!("there is no program \"{unknown}\"; there are {}", names.join(", "));
    }
    plan.programs.retain(|p| args.programs.is_empty() || args.programs.contains(&p.name));
    plan.runs = args.runs.unwrap_or(plan.runs);
    let check = check(args, plan)?;
    output::print(&if args.json { check.to_json() } else { check.to_text() })?;
    Ok(u8::from(!check.pass()))
}

/// The folder of the programs' files.
struct Files(Scratch);

impl Files {
    fn new() -> Result<Self> {
        let folder = Scratch::new()?;
        let make = || -> std::io::Result<()> {
            let mut random = SplitMix::new(1);
            let line = |_| format!("{:019}\n", random.next() >> 1);
            fs::write(folder.0.join("numbers.txt"), (0..LINES).map(line).collect::<String>())?;
            project(&folder.0)
        };
        make().with_context(|| format!("can't make files in {}", folder.0.display()))?;
        Ok(Self(folder))
    }
    /// A program's command, compiled where that is needed; why it can't be run.
    fn command(&self, program: &ReplayProgram) -> Result<Vec<OsString>, String> {
        let folder = self.0.0.display().to_string();
        if let Some(source) = &program.source {
            let c = self.0.0.join(format!("{}.c", program.name));
            fs::write(&c, source).map_err(|e| format!("{}: {e}", c.display()))?;
            let mut cc = Command::new("cc");
            cc.args(["-O1", "-pthread", "-o"]).arg(self.0.0.join(&program.name)).arg(&c);
            let made = cc.output().map_err(|_| "there is no C compiler (cc)".to_owned())?;
            if !made.status.success() {
                return Err("the C compiler can't make it".to_owned());
            }
        }
        Ok(program.command.iter().map(|w| w.replace("{dir}", &folder).into()).collect())
    }
}

/// A project of small files, for `make`.
pub(super) fn project(folder: &Path) -> std::io::Result<()> {
    let project = folder.join("project");
    fs::create_dir_all(&project)?;
    let mut all = "all:".to_owned();
    for i in 0..SOURCES {
        let text = format!(
            "int f{i}(int x) {{ int s = 0; for (int i = 0; i < x; i++) s += i * {i}; return s; }}\n"
        );
        fs::write(project.join(format!("f{i}.c")), text)?;
        all += &format!(" f{i}.o");
    }
    fs::write(project.join("Makefile"), all + "\n%.o: %.c\n\tcc -O2 -c $< -o $@\n")
}

/// Natively and in the replay, in seconds.
#[derive(Debug, Default)]
struct Times {
    /// Processor time of the native runs, their median.
    processor: f64,
    /// On the clock.
    native: Vec<f64>,
    replayed: f64,
    /// Its 80 % interval, where the machine's file has spreads.
    interval: Option<Predicted>,
}

impl Times {
    /// Whether the native time lies in it.
    fn inside(&self) -> Option<bool> {
        self.interval.map(|p| (p.low..=p.high).contains(&median(&self.native)))
    }
    /// Replayed over native less one, in percent.
    fn error(&self) -> f64 {
        let native = median(&self.native);
        if native > 0.0 { (self.replayed / native - 1.0) * 100.0 } else { f64::INFINITY }
    }
}

/// How often tasks block and leave their CPU, on all CPUs.
#[derive(Debug, Default)]
struct Switches {
    native: Vec<f64>,
    replayed: u64,
    /// Whether it follows from the program's source.
    judged: bool,
}

impl Switches {
    /// Replayed over native less one, in percent; `None` where nothing is to be learned from it.
    fn error(&self) -> Option<f64> {
        let of = |native| (self.replayed as f64 / native - 1.0) * 100.0;
        self.judged
            .then(|| median(&self.native))
            .map(|n| if n > 0.0 { of(n) } else { f64::INFINITY })
    }
}

#[derive(Debug, Default)]
struct Compared {
    name: String,
    /// Whether the bounds are for it.
    bounded: bool,
    tasks: usize,
    waits: u64,
    all: Times,
    one: Times,
    switches: Switches,
}

struct Check {
    plan: ReplayPlan,
    machine: String,
    rows: Vec<Compared>,
    notes: Vec<String>,
}

fn check(args: &Args, plan: ReplayPlan) -> Result<Check> {
    let progress = Progress::new(1000);
    let machine = this_machine(args.machine.as_deref(), false, false, &progress)?;
    let files = Files::new()?;
    let about = format!("{}: {}", machine.name, machine.about);
    let mut check = Check { plan, machine: about, rows: Vec::new(), notes: Vec::new() };
    let busy = load();
    for (n, program) in check.plan.programs.iter().enumerate() {
        progress.say(&program.name);
        let row = files
            .command(program)
            .and_then(|command| one(&machine, &files.0.0, program, command, check.plan.runs));
        match row {
            Ok(row) => check.rows.push(row),
            Err(why) => check.notes.push(format!("{} is left out: {why}", program.name)),
        }
        progress.at(((n + 1) * 1000 / check.plan.programs.len()) as u64);
    }
    if check.rows.is_empty() {
        return Err(anyhow!(Lacks(check.notes.join("; "))));
    }
    if let Some(most) = [busy, load()].into_iter().flatten().reduce(f64::max).filter(|l| *l > 2.5) {
        check.notes.push(format!(
            "the machine may not have been idle (load {most:.1}): then native times are too long"
        ));
    }
    Ok(check)
}

/// Why a program of the set can't be run, and what brings it where this system lacks it.
fn lacks(program: &ReplayProgram, why: &RecordError) -> String {
    if !matches!(why, RecordError::NoProgram { .. }) {
        return why.to_string();
    }
    let name = program.command.first().map_or("", String::as_str);
    // Debian's packages; the others have their programs' names.
    let package = match name {
        "xz" => "xz-utils",
        "sort" => "coreutils",
        "sh" => "dash",
        "java" => "default-jre-headless",
        "node" => "nodejs",
        same => same,
    };
    format!("{why}; `apt install {package}` brings it")
}

/// Runs, records and replays one program; why not.
fn one(
    machine: &Hardware,
    folder: &Path,
    program: &ReplayProgram,
    command: Vec<OsString>,
    runs: u32,
) -> Result<Compared, String> {
    let text = |e: anyhow::Error| homenode_live::sentence(&*e);
    let first = machine.cpus.first().map_or(CpuId(0), |c| c.id);
    let bound = ["taskset", "-c"].map(OsString::from).into_iter();
    let bound: Vec<OsString> =
        bound.chain([first.to_string().into()]).chain(command.iter().cloned()).collect();
    // By turns: a virtual machine's CPUs are not equally fast at all times.
    let (mut all, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        for (command, into) in [(&command, &mut all), (&bound, &mut alone)] {
            into.push(record::natively(command).map_err(|e| lacks(program, &e))?);
        }
    }
    let seconds = |of: fn(&Native) -> u64, runs: &[Native]| -> Vec<f64> {
        runs.iter().map(|n| of(n) as f64 / 1e9).collect()
    };
    let wall = |runs: &[Native]| seconds(|n| n.wall_ns, runs);
    let processor = |runs: &[Native]| median(&seconds(|n| n.user_ns + n.sys_ns, runs));

    let file = folder.join("recording.parquet");
    let mut options = Options::new(command, file.clone(), machine.clone());
    // As often as where a user records, so that its tasks' times are as good; its own is not used.
    (options.native_runs, options.quiet) = (3, true);
    record::record(&options, &mut |_| {}).map_err(|e| e.to_string())?;
    let mut loaded = recording::load(&file, &mut |_, _| {}).map_err(text)?;
    loaded.header.native = Some(Native {
        runs,
        user_ns: (processor(&all) * 1e9) as u64,
        wall_ns: (median(&wall(&all)) * 1e9) as u64,
        spread_ns: record::spread_ns(&all),
        ..Native::default()
    });
    let (tasks, waits) = (loaded.header.tasks.len(), loaded.waits.waits);
    let mut recorded =
        Recorded::new(Arc::new(loaded), machine, None, None, &[], Mlp::Measured, true)
            .map_err(text)?;
    let replayed = recorded.calibrated.first;
    let off = Contender::kernel("off", Vec::new());
    let round = recorded.play(&off, &[], Rounds::Count(1), &|_, _| {}).map_err(text)?;
    let switches = Switches {
        native: all.iter().map(|n| n.voluntary_switches as f64).collect(),
        replayed: round.figures.voluntary_switches,
        judged: program.deterministic,
    };
    let interval = |recorded: &Recorded, round| {
        Intervals::new(recorded, &[round]).and_then(|all| Some(all.columns.first()?.clock))
    };
    let all_interval = interval(&recorded, round);
    recorded.restrict(&[first]).map_err(text)?;
    let alone_round = recorded.play(&off, &[], Rounds::Count(1), &|_, _| {}).map_err(text)?;
    let alone_replayed = alone_round.rounds().first().copied().unwrap_or(0);
    let alone_interval = interval(&recorded, alone_round);
    let times = |runs: &[Native], ps: u64, interval: Option<Predicted>| {
        let replayed = ps as f64 / 1e12;
        Times {
            processor: processor(runs),
            native: wall(runs),
            replayed,
            interval: interval.map(|p| p.scaled(replayed / p.time)),
        }
    };
    Ok(Compared {
        name: program.name.clone(),
        bounded: program.bounded,
        tasks,
        waits,
        all: times(&all, replayed, all_interval),
        one: times(&alone, alone_replayed, alone_interval),
        switches,
    })
}

impl Check {
    fn bounds(&self) -> [f64; 2] {
        [self.plan.bound_percent, self.plan.one_cpu_bound_percent].map(f64::from)
    }
    fn bounded(&self) -> impl Iterator<Item = &Compared> {
        self.rows.iter().filter(|r| r.bounded)
    }
    /// Rows within their bound: on all CPUs, and on one.
    fn met(&self) -> [usize; 2] {
        let [all, one] = self.bounds();
        let within = |of: fn(&Compared) -> &Times, bound: f64| {
            self.bounded().filter(|r| of(r).error().abs() <= bound).count()
        };
        [within(|r| &r.all, all), within(|r| &r.one, one)]
    }
    /// Rows whose switches are judged: those within the bound, and all of them.
    fn switches_met(&self) -> [usize; 2] {
        let bound = f64::from(self.plan.switches_percent);
        let errors: Vec<f64> = self.rows.iter().filter_map(|r| r.switches.error()).collect();
        [errors.iter().filter(|e| e.abs() <= bound).count(), errors.len()]
    }
    /// Of the times that have an interval, those whose native time lies in it, and all.
    fn inside(&self) -> (usize, usize) {
        let all: Vec<bool> =
            self.bounded().flat_map(|r| [r.all.inside(), r.one.inside()]).flatten().collect();
        (all.iter().filter(|inside| **inside).count(), all.len())
    }
    /// Half the width of the intervals in the median, in percent.
    fn width(&self) -> f64 {
        let times = self.bounded().flat_map(|r| [r.all.interval, r.one.interval]).flatten();
        let half = |p: Predicted| (p.high / p.low).sqrt().ln().exp_m1() * 100.0;
        median(&times.map(half).collect::<Vec<f64>>())
    }
    fn pass(&self) -> bool {
        let [met, judged] = self.switches_met();
        self.met() == [self.bounded().count(); 2] && met == judged
    }

    fn to_text(&self) -> String {
        let width = self.rows.iter().map(|r| r.name.len()).max().unwrap_or(0).max(8);
        let mut out = format!(
            "{:width$}{:>38}{:>37}{:>37}\n{:<width$} {:>5} {:>7} {:>9} {:>8} {:>8} {:>7}  {:>9} {:>8} {:>8} {:>7} {:>9} {:>8} {:>7}\n",
            "",
            "all CPUs, s",
            "one CPU, s",
            "voluntary switches",
            "program",
            "tasks",
            "waits",
            "processor",
            "native",
            "replay",
            "%",
            "processor",
            "native",
            "replay",
            "%",
            "native",
            "replay",
            "%"
        );
        for r in &self.rows {
            let Compared { name, tasks, waits, .. } = r;
            out += &format!("{name:<width$} {tasks:>5} {waits:>7}");
            for (times, space) in [(&r.all, 9), (&r.one, 10)] {
                let Times { processor, replayed, .. } = times;
                let (native, error) = (median(&times.native), times.error());
                out +=
                    &format!(" {processor:>space$.3} {native:>8.3} {replayed:>8.3} {error:>+7.1}");
            }
            let error = r.switches.error().map_or("-".to_owned(), |e| format!("{e:+.1}"));
            let (native, replayed) = (median(&r.switches.native), r.switches.replayed);
            out += &format!(" {native:>9.0} {replayed:>8} {error:>7}\n");
        }
        let ([all, one], n) = (self.met(), self.bounded().count());
        let [bound, bound_one] = self.bounds();
        let ([met, judged], percent) = (self.switches_met(), self.plan.switches_percent);
        out += &format!(
            "\non all CPUs within {bound} %: {all} of {n}; on one within {bound_one} %: {one} of {n}; switches within {percent} %: {met} of {judged}\n\nmachine: {}\nprograms and bounds registered {} in {FILE}; native is the median of {} runs; the replay's processor time is the native one on all CPUs by construction\n",
            self.machine, self.plan.registered, self.plan.runs
        );
        if let (inside, of @ 1..) = self.inside() {
            out += &format!(
                "80 % intervals hold {inside} of {of} native times, {:.0} %; they are {:.1} % wide to a side in the median, and have the native time's spread in them and what is off of memory, not what wake-ups take\n",
                inside as f64 / of as f64 * 100.0,
                self.width()
            );
        }
        let free: Vec<&str> =
            self.rows.iter().filter(|r| !r.bounded).map(|r| r.name.as_str()).collect();
        if !free.is_empty() {
            out += &format!(
                "without a bound, and not counted: {}, whose compilers go by time\n",
                free.join(", ")
            );
        }
        for note in &self.notes {
            out += &format!("note: {note}\n");
        }
        out
    }

    fn to_json(&self) -> String {
        let times = |t: &Times| {
            json!({
                "processor_s": t.processor, "native_s": t.native, "replayed_s": t.replayed,
                "replayed_low_s": t.interval.map(|p| p.low), "replayed_high_s": t.interval.map(|p| p.high),
                "inside": t.inside(), "error_percent": t.error(),
            })
        };
        let row = |r: &Compared| {
            json!({
                "row": r.name, "bounded": r.bounded, "tasks": r.tasks, "waits": r.waits, "processor_s": r.all.processor,
                "all_cpus": times(&r.all), "one_cpu": times(&r.one),
                "voluntary_switches": {
                    "native": r.switches.native, "replayed": r.switches.replayed,
                    "error_percent": r.switches.error(),
                },
            })
        };
        let [bound_percent, one_cpu_bound_percent] = self.bounds();
        json!({
            "name": "replay",
            "machine": self.machine,
            "registered": self.plan.registered,
            "bound_percent": bound_percent,
            "one_cpu_bound_percent": one_cpu_bound_percent,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "switches_percent": self.plan.switches_percent,
            "met": self.met(),
            "switches_met": self.switches_met(),
            "inside": self.inside(),
            "notes": self.notes,
            "pass": self.pass(),
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn check(rows: &[(&str, [f64; 2], [f64; 2])]) -> Check {
        let times = |[native, replayed]: [f64; 2]| Times {
            processor: 1.5,
            native: vec![native; 3],
            replayed,
            interval: None,
        };
        let row = |&(name, all, one): &(&str, _, _)| Compared {
            name: name.to_owned(),
            bounded: name != "java",
            tasks: 3,
            waits: 1000,
            all: times(all),
            one: times(one),
            switches: Switches {
                native: vec![1001.0; 3],
                replayed: if name == "barrier" { 700 } else { 40 },
                judged: name == "barrier",
            },
        };
        Check {
            plan: parse_truth_replay(FILE, REPLAY).expect("the registered programs"),
            machine: "a machine: of a test".into(),
            rows: rows.iter().map(row).collect(),
            notes: vec!["pigz is left out: it is not in PATH".into()],
        }
    }

    #[test]
    fn a_program_that_this_system_lacks_is_told_with_what_brings_it() {
        let program = |first: &str| ReplayProgram {
            name: "a program".into(),
            command: vec![first.into(), "-c".into()],
            source: None,
            deterministic: false,
            bounded: true,
        };
        let said = |first: &str| {
            let why = RecordError::NoProgram { program: first.into(), searched: true };
            lacks(&program(first), &why)
        };
        expect!["there is no program `pigz` in PATH; `apt install pigz` brings it"]
            .assert_eq(&said("pigz"));
        expect!["there is no program `xz` in PATH; `apt install xz-utils` brings it"]
            .assert_eq(&said("xz"));
        let other = lacks(&program("xz"), &RecordError::Interrupted);
        assert!(!other.contains("apt"), "{other}");
    }

    #[test]
    fn native_times_in_their_interval_are_counted() {
        let mut c = check(&[("xz", [1.0, 1.04], [2.0, 1.8]), ("java", [1.0, 2.0], [2.0, 3.0])]);
        assert!(!c.to_text().contains("interval"), "files without a spread have none");
        let around = |time: f64| Some(Predicted::of(time, &[(0.05, 0.05)]));
        for row in &mut c.rows {
            (row.all.interval, row.one.interval) = (around(1.04), around(1.8));
        }
        // 0.99 to 1.09 has 1 in it, 1.71 to 1.89 not 2; who has no bound does not count.
        assert_eq!((c.inside(), c.rows[0].one.inside()), ((1, 2), Some(false)));
        let text = c.to_text();
        assert!(
            text.contains("80 % intervals hold 1 of 2 native times, 50 %; they are 5.1 % wide"),
            "{text}"
        );
        let json: serde_json::Value = serde_json::from_str(&c.to_json()).expect("JSON");
        assert_eq!(
            (&json["inside"], &json["rows"][0]["all_cpus"]["inside"]),
            (&json!([1, 2]), &json!(true))
        );
    }

    #[test]
    fn the_table_says_which_bounds_are_met() {
        let c = check(&[
            ("xz", [1.0, 1.04], [2.0, 1.8]),
            ("barrier", [1.0, 0.9], [2.0, 3.0]),
            ("java", [1.0, 2.0], [2.0, 3.0]),
        ]);
        expect![[r#"
                                               all CPUs, s                           one CPU, s                   voluntary switches
            program  tasks   waits processor   native   replay       %  processor   native   replay       %    native   replay       %
            xz           3    1000     1.500    1.000    1.040    +4.0      1.500    2.000    1.800   -10.0      1001       40       -
            barrier      3    1000     1.500    1.000    0.900   -10.0      1.500    2.000    3.000   +50.0      1001      700   -30.1
            java         3    1000     1.500    1.000    2.000  +100.0      1.500    2.000    3.000   +50.0      1001       40       -

            on all CPUs within 5 %: 1 of 2; on one within 15 %: 1 of 2; switches within 25 %: 0 of 1

            machine: a machine: of a test
            programs and bounds registered 2026-11-22 in truth/replay.toml; native is the median of 9 runs; the replay's processor time is the native one on all CPUs by construction
            without a bound, and not counted: java, whose compilers go by time
            note: pigz is left out: it is not in PATH
        "#]].assert_eq(&c.to_text());
        let json: serde_json::Value = serde_json::from_str(&c.to_json()).expect("JSON");
        assert_eq!((&json["met"], &json["pass"]), (&json!([1, 1]), &json!(false)));
        assert_eq!(json["switches_met"], json!([0, 1]));
        assert!(check(&[("xz", [1.0, 1.04], [2.0, 1.8])]).pass());
        let java = ("java", [1.0, 2.0], [2.0, 3.0]);
        assert!(check(&[("xz", [1.0, 1.04], [2.0, 1.8]), java]).pass());
    }
}
