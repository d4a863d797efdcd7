//! One run of a recording on one machine, looked at as it goes.

use super::load::Loaded;
use crate::contender::Contender;
use crate::figures::RunFigures;
use crate::homenode::Runner;
use crate::nodes::Shelf;
use crate::spread;
use anyhow::{Result, bail};
use homenode_core::costs::Cost;
use homenode_core::scenario::Mempolicy;
use homenode_core::topology::Hardware;
use homenode_core::units::{Pages, count};
use homenode_sim::replay::{Charge, Recording, Rounds, Stuck, Waited};
use homenode_sim::{MissTime, Overlap, Setup, Simulation, Stretch};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What a run left.
pub(crate) struct Played {
    pub(crate) figures: RunFigures,
    pub(crate) hash: u64,
    /// Where pages were when most of them were resident: in the first and the last round.
    pub(crate) first: Vec<Stretch>,
    pub(crate) last: Vec<Stretch>,
    /// Most pages in use at any time.
    pub(crate) peak: Pages,
    /// Processor time of all tasks, in picoseconds.
    pub(crate) ran: u64,
    /// Of it, by task and program of the recording.
    pub(crate) ran_by_program: BTreeMap<(usize, usize), u64>,
    pub(crate) waited: Waited,
    /// When each task began and ended in the first round, in picoseconds.
    pub(crate) spans: BTreeMap<usize, (u64, u64)>,
    /// What its misses took.
    missed: MissTime,
}

impl Played {
    /// The share of its tasks' waiting for one another that is for a turn which is as recorded
    /// and could have been another, in percent; `None` where there is none.
    pub(crate) fn turns_percent(&self) -> Option<f64> {
        self.percent(self.waited.turns)
    }
    /// Likewise the share that is for locks.
    pub(crate) fn locks_percent(&self) -> Option<f64> {
        self.percent(self.waited.locks)
    }
    /// Likewise the share that is at semaphores and condition variables.
    pub(crate) fn counts_percent(&self) -> Option<f64> {
        self.percent(self.waited.counts)
    }
    /// Likewise the share in which they compute meanwhile.
    pub(crate) fn spun_percent(&self) -> Option<f64> {
        self.percent(self.waited.spun)
    }
    fn percent(&self, part: u64) -> Option<f64> {
        let Waited { others, turns, locks, counts, without: _, in_vain: _, spun: _ } = self.waited;
        (part > 0).then(|| part as f64 / (others + turns + locks + counts) as f64 * 100.0)
    }
    /// A round of it, for its interval.
    pub(crate) fn run(&self, recording: &Recording, rates: &Rates) -> spread::Run {
        let rounds = self.rounds().len().max(1) as f64;
        let missed = self.missed.clone();
        spread::Run {
            ran: self.ran as f64 / rounds,
            computing: rates.computing(recording),
            missed,
            rounds,
        }
    }
    /// When each round ended, in picoseconds.
    pub(crate) fn rounds(&self) -> &[u64] {
        &self.figures.round_ends
    }
    /// Mean time of its rounds in seconds; 0 where none ended.
    pub(crate) fn round(&self) -> f64 {
        let rounds = self.rounds();
        rounds.last().map_or(0.0, |&end| end as f64 / 1e12 / rounds.len() as f64)
    }
}

/// How often a run is looked at where nobody knows how long a round is.
const LOOK: u64 = 10_000_000_000;
/// How many tasks that wait for ever are named.
const NAMED: usize = 8;

/// Runs a recording.
///
/// * `look` – virtual time between two looks, in picoseconds; 0 for [`LOOK`].
/// * `told` – is given rounds and virtual time now and then.
///
/// # Errors
/// Where the run can't be set up, a process is killed, or nothing goes on.
pub(crate) fn play(
    machine: &Hardware,
    setup: &Setup,
    loaded: &Loaded,
    charge: &Charge,
    shelves: &[Shelf],
    contender: &Contender,
    look: u64,
    told: &dyn Fn(u64, u64),
) -> Result<Played> {
    let name = loaded.header.command.first().map_or("program", String::as_str);
    let sim = Simulation::replay(machine, setup, &loaded.recording, name, charge)?;
    let mut runner = Runner::new(sim, contender, setup)?;
    let free = |sim: &Simulation| sim.free().iter().sum::<u64>();
    let at_boot = free(runner.sim());
    let look = if look == 0 { LOOK } else { look };
    let (mut peak, mut round) = (0, 0);
    let (mut first, mut last, mut most) = (Vec::new(), Vec::new(), 0);
    loop {
        runner.run_until(runner.sim().now() + look)?;
        let sim = runner.sim();
        peak = peak.max(at_boot.saturating_sub(free(sim)));
        let (rounds, _) = sim.rounds();
        // A task that has ended may have given its memory back: what was before it counts.
        if rounds > round && !sim.idle() {
            (round, most) = (rounds, 0);
        }
        let now = sim.residency_of(&loaded.ranges);
        let resident: u64 = now.iter().map(|s| s.resident).sum();
        if resident > 0 && resident >= most {
            // The first moment of the first round, the latest of the last.
            if round == 0 && resident > most {
                first.clone_from(&now);
            }
            most = resident;
            last = now;
        }
        told(rounds, sim.now());
        if sim.idle() {
            break;
        }
        if let Some(why) = stands_still(sim, loaded) {
            bail!("{why}");
        }
    }
    let sim = runner.sim();
    if let Some(e) = sim.error() {
        bail!("{e}");
    }
    let processes = sim.processes();
    if let Some(why) = processes.iter().find_map(|p| p.killed.as_ref()) {
        bail!(
            "the machine \"{}\" killed the program in round {}: {why}; a larger machine or --add-node with a size gives it room",
            machine.name,
            sim.rounds().0 + 1
        );
    }
    let (_, end) = sim.rounds();
    Ok(Played {
        figures: RunFigures::of(&runner, end, shelves),
        hash: runner.hash(),
        first,
        last,
        peak: Pages(peak),
        ran: processes.iter().map(|p| p.ran_ps).sum(),
        ran_by_program: sim.ran_by_program().clone(),
        waited: sim.waited(),
        spans: sim.spans().clone(),
        missed: sim.missed().clone(),
    })
}

/// Why nothing goes on in a replay that has not come to its end; `None` where something does.
pub(crate) fn stands_still(sim: &Simulation, loaded: &Loaded) -> Option<String> {
    let stuck = sim.stuck();
    if stuck.is_empty() {
        return None;
    }
    let each = stuck.iter().take(NAMED).map(|&(task, on)| {
        let on = match on {
            Stuck::End(other) => format!("the end of task {other}"),
            Stuck::Lock(other) => format!("a lock that task {other} has"),
            Stuck::Count(_) => {
                "what nobody gives at a semaphore or a condition variable".to_owned()
            }
            Stuck::Point(p) => match loaded.recording.task_of(p) {
                Some(other) => format!("what task {other} does at point {p}"),
                None => format!("point {p}, which nobody comes to"),
            },
        };
        format!("task {task} for {on}")
    });
    let each: Vec<String> = each.collect();
    Some(format!(
        "the replay stands still after {}: its tasks wait for one another, {}{}. So they \
         can't have run: the recording is damaged",
        count(sim.rounds().0, "round", "rounds"),
        each.join(", "),
        if stuck.len() > NAMED { ", and others" } else { "" }
    ))
}

/// Steps of the calibration, at most; two or three are usual. More are needed where
/// computing hides behind misses, and each step finds a part of what is left only.
const STEPS: u32 = 12;

/// How many of a program's misses are under way at once, which no recording shows: it has
/// addresses, and not which of them had to wait for a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mlp {
    /// As many as were measured for loads that don't wait for one another.
    #[default]
    Measured,
    /// So many at most; 1 is a chain of pointers.
    AtMost(u32),
}

impl Mlp {
    /// Most lines that may be named, as in scenarios.
    const MOST: u32 = 64;

    /// # Errors
    /// A sentence for people.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "measured" {
            return Ok(Self::Measured);
        }
        let n = text.parse().ok().filter(|n| (1..=Self::MOST).contains(n));
        n.map(Self::AtMost).ok_or_else(|| {
            format!(
                "{text:?} is no number of misses under way; 1 to {} or measured is allowed",
                Self::MOST
            )
        })
    }
    /// Whether a machine's file knows enough of its cores for that.
    pub(crate) fn is_known(self, machine: &Hardware) -> bool {
        self == Self::Measured || overlap(machine, self).is_some()
    }
    /// What is said of it in a caption; nothing where nobody has asked.
    pub(crate) fn note(self) -> Option<String> {
        match self {
            Self::Measured => None,
            Self::AtMost(1) => Some(
                "misses: each waits for the one before it, as along pointers, but for lines that \
                 follow one another (--mlp 1)"
                    .to_owned(),
            ),
            Self::AtMost(n) => Some(format!(
                "misses: {n} at most are under way at once, but for lines that follow one another \
                 (--mlp {n})"
            )),
        }
    }
}

impl fmt::Display for Mlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured => f.write_str("measured"),
            Self::AtMost(n) => write!(f, "{n}"),
        }
    }
}

/// How misses overlap on this machine, where its file knows a core's window; files of
/// before have one parallelism for all.
pub(crate) fn overlap(machine: &Hardware, mlp: Mlp) -> Option<Overlap> {
    let known = machine.costs.0.contains_key(&Cost::ReorderWindow);
    let measured = known.then(|| Overlap::of(machine))?;
    Some(match mlp {
        Mlp::Measured => measured,
        Mlp::AtMost(n) => measured.at_most(n),
    })
}

/// A task spins whose spun instructions are more than this part of all.
const SPINS: f64 = 0.01;

/// What one instruction takes, misses apart, in attoseconds (10^-18 s).
#[derive(Clone, Default, PartialEq)]
pub(crate) struct Rates {
    /// On average.
    pub(crate) all: u64,
    /// Of each program of each task, where that is known.
    pub(crate) own: Arc<Vec<Vec<u64>>>,
}

impl Rates {
    /// Computing of a round, in picoseconds.
    fn computing(&self, recording: &Recording) -> f64 {
        let own = |(task, programs): (usize, &[u64])| -> f64 {
            let rate = |program| self.own.get(task).and_then(|t| t.get(program)).copied();
            let each = programs.iter().enumerate();
            each.map(|(program, &insns)| {
                insns as f64 * rate(program).unwrap_or(self.all) as f64 / 1e6
            })
            .sum()
        };
        recording.programs().enumerate().map(own).sum()
    }
    /// With what a run has shown: rates that bring it nearer to the native time, and by how
    /// many picoseconds they change it.
    ///
    /// * `due` – native time in picoseconds.
    /// * `shares` – of each program of each task, where that is known.
    fn nearer(
        &self,
        recording: &Recording,
        run: &Played,
        due: f64,
        shares: Option<&Vec<Vec<f64>>>,
    ) -> (Self, f64) {
        let all = recording.insns() as f64;
        let next = |rate: u64, off: f64, insns: f64| {
            (rate as f64 + off * 1e6 / insns).max(0.0).round() as u64
        };
        let Some(shares) = shares else {
            let off = due - run.ran as f64;
            return (Self { all: next(self.all, off, all), own: Arc::default() }, off.abs());
        };
        let (mut computing, mut changed) = (0.0, 0.0);
        let mut own = Vec::new();
        // How long a task spins hangs on others: of its own instructions that says little. So tasks
        // that spin have one speed, which their sum decides.
        let spins = |task: usize, programs: &[u64]| {
            let spun = recording.spun().get(task).copied().unwrap_or(0);
            spun as f64 > SPINS * programs.iter().sum::<u64>() as f64
        };
        let ran = |task: usize, program: usize| {
            run.ran_by_program.get(&(task, program)).copied().unwrap_or(0) as f64
        };
        let (mut off, mut of) = (0.0, 0.0);
        for (task, (programs, shares)) in recording.programs().zip(shares).enumerate() {
            for (program, (&insns, share)) in programs.iter().zip(shares).enumerate() {
                if spins(task, programs) {
                    (off, of) = (off + due * share - ran(task, program), of + insns as f64);
                }
            }
        }
        for (task, (programs, shares)) in recording.programs().zip(shares).enumerate() {
            let together = spins(task, programs);
            let rate = |(program, (&insns, share)): (usize, (&u64, &f64))| {
                let before = self.own.get(task).and_then(|t| t.get(program)).copied().unwrap_or(0);
                let insns = insns as f64;
                let rate = match together {
                    true => next(before, off, of.max(1.0)),
                    false => next(before, due * share - ran(task, program), insns.max(1.0)),
                };
                computing += rate as f64 * insns;
                changed += (rate as f64 - before as f64).abs() * insns / 1e6;
                rate
            };
            own.push(programs.iter().zip(shares).enumerate().map(rate).collect());
        }
        (Self { all: (computing / all) as u64, own: Arc::new(own) }, changed)
    }
}

/// What a calibration has found.
pub(crate) struct Calibration {
    pub(crate) rates: Rates,
    /// Time of the first round on the unmodified machine, in picoseconds.
    pub(crate) first: u64,
    /// Time of a later one, which has its memory already.
    pub(crate) round: u64,
    /// A round on the unmodified machine, for intervals.
    pub(crate) run: spread::Run,
    /// How far the end of the native time's 80 % interval is, as a share; 0 where nobody knows.
    pub(crate) native_end: f64,
    /// Most pages in use.
    pub(crate) peak: Pages,
    pub(crate) notes: Vec<String>,
    pub(crate) warnings: Vec<String>,
    /// That the order of its tasks can't be right.
    pub(crate) far: Option<String>,
}

/// By how much of the program's time on the clock the first round on the unmodified machine
/// may differ from it before a warning says so, and before several tasks are not believed.
const NEAR: f64 = 0.10;
const FAR: f64 = 0.50;

/// How many tasks are told of in a caption.
const TOLD: usize = 4;

/// What comparing each task has found.
#[derive(Default)]
struct EachTask {
    /// Of those that differ most.
    told: Option<String>,
    /// What is to be warned of.
    warned: Option<String>,
    /// Why it can't be believed.
    far: Option<String>,
}

/// Compares each task's time from its beginning to its end, natively and in the first round, and
/// its processor time, each with the program's own. Of a single task all is in the program's.
///
/// * `ran` – processor time of one round by task and program, in picoseconds.
fn each_task(loaded: &Loaded, whole: &Played, ran: &BTreeMap<(usize, usize), u64>) -> EachTask {
    let tasks = &loaded.header.tasks;
    let native = loaded.header.native.as_ref();
    let all = native.map_or(0, |n| n.wall_ns) as f64 / 1e9;
    let all_ran = native.map_or(0, |n| n.user_ns + n.sys_ns) as f64 / 1e9;
    if tasks.len() < 2 || all <= 0.0 || !loaded.share().is_some_and(|share| share >= WHOLE) {
        return EachTask::default();
    }
    struct One {
        /// By how much of the program's time on the clock it lives longer or shorter, or of its
        /// processor time it runs so: whichever is more.
        off: f64,
        text: String,
    }
    let mut each: Vec<One> = Vec::new();
    for (number, task) in tasks.iter().enumerate() {
        let (Some((from, to)), Some(&(began, ended))) =
            (task.native_span_ns, whole.spans.get(&number))
        else {
            continue;
        };
        let native = to.saturating_sub(from) as f64 / 1e9;
        let here = ended.saturating_sub(began) as f64 / 1e12;
        let ran_native = task.native_ns.iter().sum::<u64>() as f64 / 1e9;
        let ran = ran.range((number, 0)..=(number, usize::MAX));
        let ran = ran.map(|(_, &ps)| ps).sum::<u64>() as f64 / 1e12;
        // Of which nobody knows what it ran natively, there is nothing to compare.
        let known = !task.native_ns.is_empty() && all_ran > 0.0;
        let ran_off = if known { (ran - ran_native).abs() / all_ran } else { 0.0 };
        let name = task.name.rsplit('/').next().unwrap_or_default();
        each.push(One {
            off: f64::max((here - native).abs() / all, ran_off),
            text: format!(
                "task {number} ({name}) {native:.3} s and {here:.3} s, of which it ran {ran_native:.3} s and {ran:.3} s"
            ),
        });
    }
    each.sort_by(|a, b| b.off.total_cmp(&a.off));
    let list = |some: &[One]| some.iter().map(|o| o.text.as_str()).collect::<Vec<_>>().join("; ");
    let (known, most) = (each.len(), each.len().min(TOLD));
    let told = (known > 0).then(|| {
        let rest = match known - most {
            0 => String::new(),
            n => format!("; {} nearer", count(n as u64, "other is", "others are")),
        };
        format!("each task natively and in the first round: {}{rest}", list(&each[..most]))
    });
    let beyond = |bound: f64| {
        let n = each.iter().take_while(|o| o.off > bound).count();
        (n > 0).then(|| {
            format!(
                "{} or runs longer or shorter in the replay than natively, by more than {:.0} % \
                 of the program's time: {}",
                count(n as u64, "task lives", "tasks, each of which lives"),
                bound * 100.0,
                list(&each[..n.min(TOLD)])
            )
        })
    };
    let far = beyond(FAR).map(|text| format!("can't replay it as it ran: {text}"));
    EachTask { told, warned: beyond(NEAR), far }
}

/// The program's time on the clock against a round on the unmodified machine, and by how much
/// of it that is more. `None` for a part of a program, and where nobody measured.
fn on_the_clock(loaded: &Loaded, round: u64) -> Option<(f64, String)> {
    let native = loaded.header.native.as_ref()?;
    // One task that had no CPU was held up by this machine's other work; of several it is not
    // known whom that held up.
    let delayed = if loaded.header.tasks.len() > 1 { 0 } else { native.delayed_ns };
    let native = native.wall_ns.saturating_sub(delayed) as f64 * 1000.0;
    loaded.share().filter(|share| *share >= WHOLE && native > 0.0)?;
    let more = round as f64 / native - 1.0;
    let text = format!(
        "the program took {:.3} s on the clock, and the first round on the unmodified machine \
         takes {:.3} s: {:+.1} %",
        native / 1e12,
        round as f64 / 1e12,
        more * 100.0
    );
    Some((more.abs(), text))
}

/// By how much of the native CPU time a replay's may differ before that is said.
const DUE: f64 = 0.02;

/// The share of a program's instructions from which on a recording has the whole of it.
const WHOLE: f64 = 0.9995;

/// Runs one round on the unmodified machine with free instructions, to see what is left
/// of the native time for them; then with them, until the native time comes out.
pub(crate) fn calibrate(
    machine: &Hardware,
    setup: &Setup,
    loaded: &Loaded,
    shelves: &[Shelf],
    mlp: Mlp,
) -> Result<Calibration> {
    let unmodified = Contender::kernel("unmodified", Vec::new());
    let run = |rates: &Rates, rounds| {
        let charge = Charge {
            as_per_insn: rates.all,
            own_as_per_insn: rates.own.clone(),
            rounds: Rounds::Count(rounds),
            policy: Mempolicy::Default,
            overlap: overlap(machine, mlp),
            cpus: Vec::new(),
        };
        play(machine, setup, loaded, &charge, shelves, &unmodified, 0, &|_, _| {})
    };
    let bare = run(&Rates::default(), 1)?;
    let insns = loaded.recording.insns();
    let (mut notes, mut warnings) = (Vec::new(), Vec::new());
    let seconds = |ps: f64| format!("{:.3} s", ps / 1e12);
    let native = loaded.header.native.as_ref().map(|n| (n.user_ns + n.sys_ns) as f64 * 1000.0);
    let bare_peak = bare.peak;
    let (rates, whole, once) = match (native, loaded.share()) {
        (Some(native), Some(share)) => {
            let due = native * share;
            if bare.ran as f64 >= due {
                warnings.push(format!(
                    "the modelled misses and faults alone take {}, more than the native {}: instructions are taken to cost nothing, and all times are too long",
                    seconds(bare.ran as f64),
                    seconds(due)
                ));
            }
            if share < WHOLE {
                notes.push(format!(
                    "the slice has {:.1} % of the program's instructions and is taken to have as much of its native time of {}",
                    share * 100.0,
                    seconds(native)
                ));
            }
            // With more time between them misses meet less load and take less: a few
            // steps settle what is left for the instructions.
            let shares = loaded.shares();
            let (mut rates, mut last) = (Rates::default(), None);
            for _ in 0..STEPS {
                let run_before = last.as_ref().unwrap_or(&bare);
                let (next, changed) =
                    rates.nearer(&loaded.recording, run_before, due, shares.as_ref());
                // Where steps find a part only: a thousandth is less than runs differ by.
                let part_only = overlap(machine, mlp).is_some() || shares.is_some();
                if next == rates || part_only && changed < due / 1e3 {
                    break;
                }
                last = Some(run(&next, 1)?);
                rates = next;
            }
            let ran = last.as_ref().unwrap_or(&bare).ran;
            let computing = rates.all as f64 * insns as f64 / 1e6;
            // Time that threads spent waiting is CPU time of nobody, and not in the recording.
            let right = match loaded.wrong() {
                None => {
                    ": the unmodified machine is right by construction, and what a slower node changes is the prediction"
                }
                Some(_) => "",
            };
            notes.push(format!(
                "native CPU time {}, of which modelled misses and faults take {}, and the rest is {:.3} ns an instruction{}{right}",
                seconds(due),
                seconds(ran as f64 - computing),
                rates.all as f64 / 1e9,
                if shares.is_some() { " on average, each task's by its own share" } else { "" },
            ));
            let more = ran as f64 / due - 1.0;
            if shares.is_some() && more.abs() > DUE {
                warnings.push(format!(
                    "its tasks run for {} in the replay, {:+.1} %: of some, the modelled misses \
                     and faults alone take more than they ran natively",
                    seconds(ran as f64),
                    more * 100.0
                ));
            }
            let whole = run(&rates, 2)?;
            (rates, whole, last.unwrap_or(bare).ran_by_program)
        }
        (native, _) => {
            let why = if native.is_none() {
                "the recording has no native time"
            } else {
                "the recording ends before the program does, so that nobody knows its share of the native time"
            };
            let ps = machine.costs.get(Cost::Instruction);
            warnings.push(format!(
                "{why}: an instruction is taken to cost the machine's {:.3} ns",
                ps as f64 / 1e3
            ));
            let rates = Rates { all: ps * 1_000_000, own: Arc::default() };
            let whole = run(&rates, 2)?;
            (rates, whole, BTreeMap::new())
        }
    };
    let first = whole.rounds().first().copied().unwrap_or(1);
    let second = whole.rounds().last().map_or(first, |&end| end - first);
    notes.push(format!(
        "on the unmodified machine the first round takes {} and the second, which has its memory already, {}",
        seconds(first as f64),
        seconds(second as f64)
    ));
    notes.extend(loaded.waited());
    if let Some(share) = whole.locks_percent() {
        notes.push(format!(
            "{share:.0} % of the time that tasks wait for one another is for locks, which go to \
             who comes first"
        ));
    }
    if let Some(share) = whole.counts_percent() {
        notes.push(format!(
            "{share:.0} % of the time that tasks wait for one another is at semaphores and \
             condition variables, where what is given goes to who comes first"
        ));
    }
    if let Some(share) = whole.spun_percent() {
        notes.push(format!(
            "{share:.0} % of the time that tasks wait for one another they spin, for as long as it \
             takes in the replay; instructions that they spun when it was recorded are left out"
        ));
    }
    if whole.waited.without > 0 {
        notes.push(format!(
            "{} a task went on without a lock or a semaphore, since all that could give it \
             waited for this task",
            count(whole.waited.without, "time", "times")
        ));
    }
    if let Some(share) = whole.turns_percent() {
        notes.push(format!(
            "{share:.0} % of the time that tasks wait for one another is for a turn, as after \
             a broadcast, which they get in the order in which they got it when it was recorded"
        ));
    }
    if whole.waited.in_vain > 0 {
        notes.push(format!(
            "{} a task was not yet released when its wait's time was over, as it was when it was \
             recorded: it waits again for as long",
            count(whole.waited.in_vain, "time", "times")
        ));
    }
    // Who is left behind when the program ends is not waited for natively.
    let ends = whole.spans.get(&0).map_or(first, |span| span.1);
    let EachTask { told, warned, far: task_far } = each_task(loaded, &whole, &once);
    notes.extend(told);
    warnings.extend(warned);
    let mut far = task_far;
    match on_the_clock(loaded, ends) {
        Some((more, text)) if more > NEAR => {
            let whole = (more > FAR).then(|| format!("can't replay it as it ran: {text}"));
            far = whole.or(far);
            warnings.push(format!(
                "{text}. The machine was busy then, or the program waits for what a recording \
                 does not have"
            ));
        }
        Some((_, text)) => notes.push(text),
        None => {}
    }
    let native_end = loaded
        .header
        .native
        .as_ref()
        .map_or(0.0, |n| spread::end((n.user_ns + n.sys_ns) as f64, n.spread_ns as f64));
    Ok(Calibration {
        run: whole.run(&loaded.recording, &rates),
        native_end,
        rates,
        first,
        round: second.max(1),
        peak: whole.peak.max(bare_peak),
        notes,
        warnings,
        far,
    })
}
