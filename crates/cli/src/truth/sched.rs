//! `homenode truth sched`: recorded programs, predicted under other conditions, then run so.
//!
//! ```text
//! truth/sched.toml ─▶ program ─▶ recorded on CPUs 0 and 1 ─▶ replayed: one CPU, nice, half ─┐
//!                        └─▶ run so: on the clock, and with its waits counted ─────────────┴─▶ errors
//! ```
//!
//! Source: specs/record-sched.md#truth.

use super::replay::project;
use super::table::median;
use super::{Scratch, this_machine};
use crate::contender::Contender;
use crate::failure::Lacks;
use crate::progress::Progress;
use crate::record::sched::{online, record};
use crate::replay::sched::{Recording, groups, play};
use crate::stats::of_command;
use crate::{live, output};
use anyhow::{Context, Result, bail};
use homenode_config::{SchedCase, SchedPlan, SchedProgram, parse_truth_sched};
use homenode_core::sched::course::{Course, Step};
use homenode_core::sched::look::{Look, TaskLook};
use homenode_core::topology::Hardware;
use homenode_core::units::CpuId;
use homenode_measure::truth::perf::Beside;
use homenode_sim::play::Acting;
use homenode_trace::sched::Tally;
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The registered programs, part of the command so that nobody changes them before a run.
const SCHED: &str = include_str!("../../../../truth/sched.toml");
const FILE: &str = "truth/sched.toml";
/// Share of all CPU time from which on what others took makes the comparison worthless.
const OTHERS_MOST: f64 = 0.05;
/// The nice value of the case of that name.
const NICE: i8 = 10;

/// Record programs on two CPUs, predict them elsewhere, then run for real and compare.
///
/// Records `perf bench sched pipe`, messaging and `make -j2` of a small project on CPUs 0 and 1. From that
/// alone it predicts them on one CPU, at nice 10 beside a program that computes, and with half of the groups, prints
/// the predictions, and only then runs these: five times on the clock, three times with what each task waits counted.
/// Programs and bounds were registered beforehand (truth/sched.toml). The exit code is 1 where a bound is
/// missed. Where others take more than 5 % of the CPUs meanwhile there is no verdict, and the exit code is 3. Takes
/// about two minutes. Needs `perf`, `make`, a C compiler, `taskset`, two CPUs, and what `homenode record sched` needs.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode truth sched --machine this.toml --program pipe")]
pub(super) struct Args {
    /// The machine's file, measured on this machine; measured anew unless given
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Only this program; may be given several times
    #[arg(long = "program", value_name = "NAME")]
    programs: Vec<String>,
    /// Native runs of each case, in place of five
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8> {
    let mut plan = parse_truth_sched(FILE, SCHED)?;
    if let Some(unknown) =
        args.programs.iter().find(|n| plan.programs.iter().all(|p| p.name != **n))
    {
        let names: Vec<&str> = plan.programs.iter().map(|p| p.name.as_str()).collect();
        bail!("there is no program \"{unknown}\"; there are {}", names.join(", "));
    }
    plan.programs.retain(|p| args.programs.is_empty() || args.programs.contains(&p.name));
    plan.runs = args.runs.unwrap_or(plan.runs);
    for tool in ["taskset", "perf", "make", "cc"] {
        let mut there = Command::new(tool);
        if there.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            bail!(Lacks(format!("there is no `{tool}` in PATH, which this check needs")));
        }
    }
    if [0, 1].iter().any(|cpu| !online().contains(cpu)) {
        bail!(Lacks("CPUs 0 and 1 are needed, and are not both online".to_owned()));
    }
    let progress = Progress::new(1000);
    let machine = this_machine(args.machine.as_deref(), false, false, &progress)?;
    let folder = Scratch::new()?;
    project(&folder.0).with_context(|| folder.0.display().to_string())?;
    let check = check(plan, &machine, &folder.0, &progress)?;
    output::print(&if args.json { check.to_json() } else { check.to_text() })?;
    Ok(match check.passes() {
        Some(passes) => u8::from(!passes),
        None => 3,
    })
}

/// Which task of a program it is: of those that nobody has started the how many-th, of those that this one has
/// started the how many-th, and so on. In two runs of one program it is the same task, in whatever order tasks of
/// several parents were started.
type Place = Vec<u32>;

/// What each task waited, in milliseconds.
type Waits = BTreeMap<Place, f64>;

/// Places of tasks.
///
/// * `started` – in the order of their starts: the number of each, and of who has started it.
fn places(started: &[(u32, Option<u32>)]) -> BTreeMap<u32, Place> {
    let mut places: BTreeMap<u32, Place> = BTreeMap::new();
    let mut children: BTreeMap<Option<u32>, u32> = BTreeMap::new();
    for &(task, by) in started {
        // Whoever is not there itself has started it as nobody has.
        let by = by.filter(|by| places.contains_key(by));
        let nth = children.entry(by).or_default();
        let mut place = by.map_or_else(Place::new, |by| places[&by].clone());
        place.push(*nth);
        *nth += 1;
        places.insert(task, place);
    }
    places
}

/// What a case takes: the time from start to end in seconds, and what each task waited.
#[derive(Clone, Debug, Default, PartialEq)]
struct Took {
    elapsed: f64,
    waits: Waits,
}

impl Took {
    fn of(tally: &Tally, course: &Course) -> Self {
        let ran = |task: u32| tally.tasks.get(task as usize).is_some_and(|t| t.first_ns.is_some());
        let started = order(course);
        let started: Vec<_> = started.into_iter().filter(|(task, _)| ran(*task)).collect();
        let waits = places(&started).into_iter();
        Self {
            elapsed: tally.elapsed_ns() as f64 / 1e9,
            waits: waits
                .map(|(task, place)| (place, tally.tasks[task as usize].wait_ns as f64 / 1e6))
                .collect(),
        }
    }
}

/// Tasks of a course, each behind who has started it and in the order in which that one did.
fn order(course: &Course) -> Vec<(u32, Option<u32>)> {
    let lives = &course.lives;
    let first = (0..).zip(lives).filter(|(_, life)| life.starter.is_none());
    let mut all: Vec<(u32, Option<u32>)> = first.map(|(task, _)| (task, None)).collect();
    let mut at = 0;
    while let Some(&(task, _)) = all.get(at) {
        let steps = lives.get(task as usize).map_or(&[][..], |life| &life.steps);
        all.extend(steps.iter().filter_map(|step| match step {
            Step::Fork(child) => Some((*child, Some(task))),
            _ => None,
        }));
        at += 1;
    }
    all
}

/// A case with what came of it.
#[derive(Debug)]
struct Compared {
    name: String,
    case: SchedCase,
    predicted: Took,
    /// On the clock, in seconds.
    native: Vec<f64>,
    /// What each task waited in the runs in which that was counted.
    counted: Vec<Waits>,
}

impl Compared {
    /// The elapsed time's error in percent.
    fn elapsed(&self) -> f64 {
        let native = median(&self.native);
        if native > 0.0 { (self.predicted.elapsed / native - 1.0) * 100.0 } else { f64::INFINITY }
    }
    /// Each task's wait, predicted and run, in milliseconds: of those that waited so long at least.
    fn waits(&self, least: f64) -> Vec<[f64; 2]> {
        let of = |(place, predicted): (&Place, &f64)| {
            let run: Option<Vec<f64>> =
                self.counted.iter().map(|waits| waits.get(place).copied()).collect();
            let run = run.filter(|run| !run.is_empty())?;
            Some([*predicted, median(&run)])
        };
        let all = self.predicted.waits.iter().filter_map(of);
        all.filter(|[a, b]| a.max(*b) >= least).collect()
    }
    /// The median of the tasks' errors without their signs, in percent; `None`: nobody waited.
    fn wait(&self, least: f64) -> Option<f64> {
        let error = |[now, then]: [f64; 2]| (now - then).abs() * 100.0 / then.max(1e-9);
        let errors: Vec<f64> = self.waits(least).into_iter().map(error).collect();
        (!errors.is_empty()).then(|| median(&errors))
    }
}

struct Check {
    plan: SchedPlan,
    machine: String,
    version: String,
    rows: Vec<Compared>,
    /// Share of all CPU time that others took during the runs.
    others: f64,
}

/// A program that computes all the time, on CPUs 0 and 1; it is gone when this is dropped.
struct Hog(Child);

impl Hog {
    fn start() -> Result<Self> {
        let hog = Command::new("taskset")
            .args(["-c", "0,1", "sh", "-c", "while :; do :; done"])
            .spawn()
            .context("a program that computes")?;
        Ok(Self(hog))
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // It runs until it is killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command on some CPUs, at another nice value if that is asked for.
fn command(program: &SchedProgram, case: Option<SchedCase>, folder: &Path) -> Vec<OsString> {
    let words = match case {
        Some(SchedCase::Half) => &program.half,
        Some(SchedCase::OneCpu | SchedCase::Nice) | None => &program.command,
    };
    let mut all: Vec<String> = Vec::new();
    if case == Some(SchedCase::Nice) {
        all.extend(["nice".to_owned(), "-n".into(), NICE.to_string()]);
    }
    let cpus = if case == Some(SchedCase::OneCpu) { "0" } else { "0,1" };
    all.extend(["taskset".to_owned(), "-c".into(), cpus.into()]);
    let folder = folder.display().to_string();
    all.extend(words.iter().map(|w| w.replace("{dir}", &folder)));
    all.into_iter().map(OsString::from).collect()
}

/// What each task waited.
fn waits(mut look: Look) -> Waits {
    // A process's first thread comes before the others, of which it counts as the one that has started them.
    look.tasks.sort_by_key(|t| (t.start_ns, t.pid != t.tgid, t.pid));
    let started: Vec<_> = look.tasks.iter().map(|t| (t.pid, Some(t.parent))).collect();
    let places = places(&started);
    let wait = |mut t: TaskLook| {
        t.settle();
        Some((places.get(&t.pid)?.clone(), t.counts.wait_ns as f64 / 1e6))
    };
    look.tasks.into_iter().filter_map(wait).collect()
}

/// What a program does in a case, by its recording.
fn predict(machine: &Hardware, recorded: &Recording, case: SchedCase) -> Result<Took> {
    let here = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut setup = crate::replay::recorded::setup(&[("numa_balancing".into(), "0".into())]);
    setup.version = live::version(Some(here.trim()));
    let setup = Contender::kernel("scenario", Vec::new()).setup(&setup, &[])?;
    let two = vec![CpuId(0), CpuId(1)];
    let (course, acting): (Arc<Course>, Acting) = match case {
        SchedCase::OneCpu => {
            let acting = Acting { cpus: vec![CpuId(0)], ..Acting::default() };
            (recorded.course.clone(), acting)
        }
        SchedCase::Nice => {
            (recorded.course.clone(), Acting { cpus: two, nice: Some(NICE), hogs: 1 })
        }
        SchedCase::Half => {
            let (half, _) = groups::keep(&recorded.course, (1, 2))?;
            (Arc::new(half), Acting { cpus: two, ..Acting::default() })
        }
    };
    let played = play(machine, &setup, recorded, &course, &acting)?;
    Ok(Took::of(&played.tally, &course))
}

fn check(plan: SchedPlan, machine: &Hardware, folder: &Path, progress: &Progress) -> Result<Check> {
    let mut rows: Vec<(usize, Compared)> = Vec::new();
    let file = folder.join("recorded.parquet");
    let quiet = |words: &[OsString]| -> Result<()> {
        let code = record(words, &file, true)?;
        if code != 0 {
            bail!(
                "{} ended with {code}",
                words.iter().map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
            );
        }
        Ok(())
    };
    // Everything is predicted before anything is run that is compared.
    for (number, program) in plan.programs.iter().enumerate() {
        progress.say(&format!("recording {}", program.name));
        quiet(&command(program, None, folder))?;
        let recorded = Recording::read(&file, machine)?;
        for &case in &program.cases {
            let predicted = predict(machine, &recorded, case)
                .with_context(|| format!("{}, {}", program.name, case.name()))?;
            let name = program.name.clone();
            rows.push((
                number,
                Compared { name, case, predicted, native: Vec::new(), counted: Vec::new() },
            ));
        }
    }
    for (_, row) in &rows {
        let (name, case) = (&row.name, row.case.name());
        progress.murmur(&format!("predicted: {name}, {case}: {:.3} s", row.predicted.elapsed));
    }
    let cases = rows.len();
    let all = (plan.runs + plan.counted_runs) as usize * cases;
    let on_the_clock = plan.runs as usize * cases;
    let (mut others, mut there) = (Duration::ZERO, Duration::ZERO);
    for n in 0..all {
        let place = n % cases;
        let (number, row) = &mut rows[place];
        let words = command(&plan.programs[*number], Some(row.case), folder);
        progress.say(&format!("{}, {}", row.name, row.case.name()));
        let beside = Beside::begin();
        let hog = (row.case == SchedCase::Nice).then(Hog::start).transpose()?;
        if n < on_the_clock {
            let began = Instant::now();
            let mut run = Command::new(&words[0]);
            run.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let status = run.status().with_context(|| row.name.clone())?;
            row.native.push(began.elapsed().as_secs_f64());
            if !status.success() {
                bail!("{}: it fails: {status}", row.name);
            }
        } else {
            row.counted.push(waits(of_command(&words)?));
        }
        drop(hog);
        let [busy, of] = beside.end();
        (others, there) = (others + busy, there + of);
        progress.at(((n + 1) * 1000 / all) as u64);
    }
    let others = others.as_secs_f64() / there.as_secs_f64().max(f64::MIN_POSITIVE);
    let here = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(Check {
        machine: format!("{}: {}", machine.name, machine.about),
        version: live::version(Some(here.trim())).name().to_owned(),
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        plan,
        others,
    })
}

impl Check {
    fn least(&self) -> f64 {
        f64::from(self.plan.least_wait_ms)
    }
    /// Cases within their bounds: elapsed times, waits.
    fn met(&self) -> [usize; 2] {
        let elapsed = f64::from(self.plan.elapsed_percent);
        let wait = f64::from(self.plan.wait_percent);
        let least = self.least();
        [
            self.rows.iter().filter(|r| r.elapsed().abs() <= elapsed).count(),
            self.rows.iter().filter(|r| r.wait(least).is_none_or(|e| e <= wait)).count(),
        ]
    }
    /// `None`: others took too much of the CPUs.
    fn passes(&self) -> Option<bool> {
        let all = self.rows.len();
        (self.others <= OTHERS_MOST).then(|| all > 0 && self.met() == [all; 2])
    }
    fn to_text(&self) -> String {
        let mut out = format!(
            "{:20} {:>10} {:>10} {:>7}  {:>6} {:>12} {:>12} {:>8}\n",
            "program, case",
            "native ms",
            "predicted",
            "%",
            "tasks",
            "waited ms",
            "predicted",
            "median %"
        );
        for r in &self.rows {
            let waits = r.waits(self.least());
            let sum = |which: usize| waits.iter().map(|w| w[which]).sum::<f64>();
            let error = r.wait(self.least()).map_or("-".to_owned(), |e| format!("{e:.1}"));
            out += &format!(
                "{:20} {:>10.1} {:>10.1} {:>+7.1}  {:>6} {:>12.3} {:>12.3} {error:>8}\n",
                format!("{}, {}", r.name, r.case.name()),
                median(&r.native) * 1e3,
                r.predicted.elapsed * 1e3,
                r.elapsed(),
                waits.len(),
                sum(1),
                sum(0),
            );
        }
        let ([elapsed, waits], n) = (self.met(), self.rows.len());
        out += &format!(
            "\nelapsed within {} %: {elapsed} of {n}; waits within {} % in the median: {waits} of {n}\n",
            self.plan.elapsed_percent, self.plan.wait_percent
        );
        if self.passes().is_none() {
            out += &format!(
                "no verdict: others took {:.0} % of the CPUs during the runs, and up to {:.0} % disturb little; run it again when the machine is idle\n",
                self.others * 100.0,
                OTHERS_MOST * 100.0
            );
        }
        out += &format!(
            "\nmachine: {}\nkernel: rules of Linux {}\nprograms and bounds registered {} in {FILE}; native is the median of {} runs by turns, waits that of {} in which they were counted, of tasks that waited {} ms at least; all predictions were made before\n",
            self.machine,
            self.version,
            self.plan.registered,
            self.plan.runs,
            self.plan.counted_runs,
            self.plan.least_wait_ms
        );
        if let Some(amended) = &self.plan.amended {
            out += &format!("as amended: {amended}\n");
        }
        out
    }
    fn to_json(&self) -> String {
        let row = |r: &Compared| {
            json!({
                "program": r.name,
                "case": r.case.name(),
                "predicted_s": r.predicted.elapsed,
                "native_s": r.native,
                "elapsed_percent": r.elapsed(),
                "waits_ms": r.waits(self.least()),
                "wait_percent": r.wait(self.least()),
            })
        };
        json!({
            "machine": self.machine,
            "kernel": self.version,
            "registered": self.plan.registered,
            "amended": self.plan.amended,
            "cases": self.rows.iter().map(row).collect::<Vec<_>>(),
            "met": self.met(),
            "others": self.others,
            "pass": self.passes(),
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::sched::course::Life;
    use homenode_core::sched::look::{Doing, Histogram, TaskCounts};

    fn plan() -> SchedPlan {
        parse_truth_sched(FILE, SCHED).expect("the registered plan")
    }

    #[test]
    fn what_is_registered_can_be_run() {
        let plan = plan();
        let names: Vec<&str> = plan.programs.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["pipe", "messaging", "make"]);
        let words = |case| {
            let all = command(&plan.programs[1], case, Path::new("/there"));
            all.iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        let bench = "perf bench sched messaging";
        assert_eq!(words(None), format!("taskset -c 0,1 {bench} -g 4 -l 200"));
        assert_eq!(words(Some(SchedCase::OneCpu)), format!("taskset -c 0 {bench} -g 4 -l 200"));
        assert_eq!(
            words(Some(SchedCase::Nice)),
            format!("nice -n 10 taskset -c 0,1 {bench} -g 4 -l 200")
        );
        assert_eq!(words(Some(SchedCase::Half)), format!("taskset -c 0,1 {bench} -g 2 -l 200"));
        let make = command(&plan.programs[2], None, Path::new("/there"));
        assert_eq!(make.last().unwrap(), "/there/project");
    }

    #[test]
    fn a_task_is_told_by_who_has_started_it_and_not_by_when() {
        // A program starts two, each of which starts two more, in another order each time.
        let one = places(&[
            (10, None),
            (11, Some(10)),
            (12, Some(10)),
            (13, Some(11)),
            (14, Some(12)),
            (15, Some(12)),
            (16, Some(11)),
        ]);
        let other = places(&[
            (20, Some(1)),
            (21, Some(20)),
            (22, Some(21)),
            (23, Some(21)),
            (24, Some(20)),
            (25, Some(24)),
            (26, Some(24)),
        ]);
        assert_eq!((&one[&13], &one[&16]), (&vec![0, 0, 0], &vec![0, 0, 1]));
        assert_eq!((&one[&14], &other[&25]), (&vec![0, 1, 0], &vec![0, 1, 0]));
        assert_eq!((&one[&16], &other[&23]), (&vec![0, 0, 1], &vec![0, 0, 1]));
        // A recorded course has the same places, whatever the numbers of its tasks.
        let life = |starter, forks: &[u32]| Life {
            starter,
            steps: forks.iter().map(|n| Step::Fork(*n)).collect(),
            ..Life::default()
        };
        let lives =
            vec![life(None, &[3, 1]), life(Some(0), &[]), life(Some(3), &[]), life(Some(0), &[2])];
        let course = Course { lives, ..Course::default() };
        let found = places(&order(&course));
        assert_eq!(
            [&found[&3], &found[&1], &found[&2]],
            [&vec![0, 0], &vec![0, 1], &vec![0, 0, 0]]
        );
        // And a look, in which a task that somebody else has started is a first one.
        let task = |pid, parent, ms: u64| TaskLook { pid, tgid: pid, parent, ..waited(pid, ms) };
        let look =
            Look { tasks: vec![task(7, 5, 3), task(5, 1, 9), task(6, 5, 4)], ..Look::default() };
        let all: Vec<(Place, f64)> = waits(look).into_iter().collect();
        assert_eq!(all, [(vec![0], 9.0), (vec![0, 0], 4.0), (vec![0, 1], 3.0)]);
    }

    fn waited(pid: u32, ms: u64) -> TaskLook {
        let counts = TaskCounts { wait_ns: ms * 1_000_000, ..TaskCounts::default() };
        TaskLook {
            pid,
            tgid: pid,
            parent: 0,
            start_ns: pid.into(),
            comm: String::new(),
            cgroup: 0,
            tasks: 1,
            doing: Doing::Ended,
            doing_ns: 0,
            counts,
            latency: Histogram::default(),
            why: None,
        }
    }

    #[test]
    fn a_case_is_judged_by_its_time_and_by_the_median_task() {
        let took = |elapsed, waits: &[f64]| Took {
            elapsed,
            waits: (0..).map(|n| vec![n]).zip(waits.iter().copied()).collect(),
        };
        let row = |predicted: Took, counted: Took| Compared {
            name: "p".into(),
            case: SchedCase::OneCpu,
            native: vec![1.0, 1.1, 0.9],
            predicted,
            counted: vec![counted.waits],
        };
        let check = |rows, others| Check {
            plan: plan(),
            machine: "m".into(),
            version: "6.12".into(),
            rows,
            others,
        };
        // Of four tasks one waited too little to count, and one is far off.
        let fine = || row(took(1.1, &[12.0, 0.2, 40.0, 11.0]), took(0.0, &[10.0, 0.9, 20.0, 10.0]));
        assert_eq!(fine().waits(1.0).len(), 3);
        let error = fine().wait(1.0).unwrap();
        assert!((error - 20.0).abs() < 1e-6, "{error}");
        assert_eq!(check(vec![fine()], 0.01).passes(), Some(true));
        assert_eq!(check(vec![fine()], 0.2).passes(), None);
        assert!(check(vec![fine()], 0.2).to_text().contains("no verdict: others took 20 %"));
        let late = row(took(1.2, &[0.1]), took(0.0, &[0.1]));
        assert_eq!((late.wait(1.0), check(vec![late], 0.0).met()), (None, [0, 1]));
        let starved = row(took(1.0, &[2.0]), took(0.0, &[4.0]));
        assert_eq!(check(vec![starved], 0.0).met(), [1, 0]);
        let json: serde_json::Value =
            serde_json::from_str(&check(vec![fine()], 0.0).to_json()).unwrap();
        assert_eq!((&json["pass"], &json["met"]), (&json!(true), &json!([1, 1])));
        assert_eq!(check(Vec::new(), 0.0).passes(), Some(false), "nothing run is nothing met");
    }
}
