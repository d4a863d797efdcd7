//! `homenode sched`: a scheduler of sched_ext whose wake-up choice is the shared header.
//!
//! Source: specs/wake.md#scx.

use crate::failure::Lacks;
use crate::output;
use crate::program::{Program, Stop};
use anyhow::{Context, Result, bail};
use homenode_bpf::able;
use homenode_bpf::scx::{Counts, End, Ender, Options, Scheduler, ScxError};
use homenode_core::sched::domain::Domains;
use homenode_live::people::find;
use homenode_live::probe::{ThisKernel, look};
use homenode_live::sched_ext::{self, SchedExt};
use homenode_live::sysfs;
use homenode_report::{Labels, OpenMetrics};
use homenode_wake::{Layout, Reason, Recent};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Schedule tasks with sched_ext, by the wake-up choice that the simulator has.
///
/// Where a woken task goes is decided by one text in C (crates/wake), which the simulated kernel
/// runs too: the waker's CPU or the previous one, then what is idle around it, the recently used
/// CPU, the last-level cache. A task that finds an idle CPU gets it at once; the others queue up
/// by node, first in, first out, with a turn of 20 ms by weight. Every choice is counted by its
/// reason, and told at the end and with --every.
///
/// With CMD or --cgroup only these tasks are scheduled by it, and the others by the kernel; else,
/// and with --system, all are. It ends with CMD, at a signal, or when the kernel ends it: for
/// an error, or because a task was kept waiting for longer than --timeout. Then, and also if this
/// command is killed, the kernel's own scheduler goes on with all tasks.
///
/// Exit codes: CMD's own, or 0 at a signal; 1 the kernel has ended it; 2 bad usage; 3 the system
/// lacks something (a kernel with sched_ext, the right to load it, or another one is loaded).
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode sched -- make -j4
  homenode sched --recent-cpu off --json -- hackbench
  homenode sched --every 1s                          the whole system, until Ctrl-C
  homenode sched --openmetrics /var/lib/node_exporter/homenode.prom")]
pub(crate) struct Args {
    /// Who keeps a recently used CPU: the waker, as in Linux 4.16; the wakee, as today; nobody
    #[arg(long, value_name = "WHICH", default_value = "today")]
    recent_cpu: RecentCpu,
    /// All tasks, also where CMD is given
    #[arg(long, conflicts_with = "cgroup")]
    system: bool,
    /// The tasks of a cgroup and of those below it
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    cgroup: Option<PathBuf>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
    long: Option<Duration>,
    /// Tell what was counted each time that this has passed
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    every: Option<Duration>,
    /// Keep a file of what was counted as OpenMetrics, written anew with --every (else every 5 s) and at the end
    #[arg(long, value_name = "FILE")]
    openmetrics: Option<PathBuf>,
    /// The kernel takes tasks back if one waits for longer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = timeout)]
    timeout: Duration,
    /// Run no task at all, to see the kernel's watchdog take them back
    #[arg(long)]
    drill: bool,
    /// Print JSON: an object a line with --every, and one at the end
    #[arg(long)]
    json: bool,
    /// The program to be scheduled, with its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum RecentCpu {
    Seed,
    Today,
    Off,
}

impl RecentCpu {
    fn of(self) -> Recent {
        match self {
            Self::Seed => Recent::Waker,
            Self::Today => Recent::Wakee,
            Self::Off => Recent::None,
        }
    }
    fn name(self) -> &'static str {
        match self {
            Self::Seed => "seed",
            Self::Today => "today",
            Self::Off => "off",
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(s) if (0.01..=1e6).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err("a time in seconds, such as 10s or 0.5s".to_owned()),
    }
}

/// The kernel takes none of more than 30 s.
fn timeout(text: &str) -> Result<Duration, String> {
    let time = seconds(text)?;
    if time > Duration::from_secs(30) {
        return Err("the kernel waits for 30 s at most".to_owned());
    }
    Ok(time)
}

/// How often signals, the program and the scheduler are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How often the file of metrics is written anew, unless told.
const METRICS: Duration = Duration::from_secs(5);
/// What a task of a cgroup that has come is given to be found.
const JOIN: Duration = Duration::from_millis(500);

pub(crate) fn run(args: &Args) -> Result<u8> {
    if let Some(path) = &args.openmetrics {
        output::check_output(path)?;
    }
    let (layout, online) = machine()?;
    let mut stop = Stop::new();
    let partial = !args.system && (args.cgroup.is_some() || !args.command.is_empty());
    let folder = match &args.cgroup {
        Some(path) => {
            let folder = find::cgroup_folder(Path::new("/"), path);
            Some(folder.with_context(|| format!("{}: there is no such cgroup", path.display()))?)
        }
        None => None,
    };
    let options =
        Options { recent: args.recent_cpu.of(), partial, timeout: args.timeout, drill: args.drill };
    let mut scheduler = Scheduler::start(&layout, &online, &options).map_err(lacking)?;
    let began = Instant::now();
    if !args.command.is_empty() {
        let started = if partial {
            sched_ext::under(|| Program::start(&args.command))
                .context("the policy SCHED_EXT is refused")?
        } else {
            Program::start(&args.command)
        };
        stop.program = Some(started?);
    }
    let course = Course { args, scheduler: &scheduler, began, partial };
    let mut joined = BTreeSet::new();
    let gone_on = course.go(&mut stop, folder.as_deref(), &mut joined);
    let early = scheduler.ended()?;
    let counts = scheduler.counts()?;
    let took = began.elapsed();
    joined.iter().for_each(|process| sched_ext::leave(*process));
    let verified = scheduler.verified();
    scheduler.stop();
    gone_on?;
    // The kernel tells the reason when all tasks are back, which takes a moment.
    let mut end = early.clone();
    while end.is_none() && began.elapsed() < took + Duration::from_secs(10) {
        end = scheduler.ended()?;
        std::thread::sleep(LOOK / 5);
    }
    let told = Told { recent: args.recent_cpu, partial, counts, end: end.as_ref(), took, verified };
    if let Some(path) = &args.openmetrics {
        output::replace(path, &told.metrics(false))?;
    }
    output::print(&if args.json { told.json() } else { told.text() })?;
    if early.is_some() {
        // CMD goes on, under the kernel's own scheduler.
        if let Some(program) = &mut stop.program {
            program.wait();
        }
        return Ok(1);
    }
    Ok(stop.program.as_ref().and_then(Program::code).unwrap_or(0))
}

/// Where the CPUs of this machine are, if all is there that a scheduler needs.
fn machine() -> Result<(Layout, Vec<u64>)> {
    let found = look(Path::new("/"), &ThisKernel);
    match &found.sched_ext {
        SchedExt::None => bail!(Lacks(format!(
            "this kernel ({}) has no sched_ext: boot Linux 6.13 or newer that is built with \
             CONFIG_SCHED_CLASS_EXT, such as Debian's from backports",
            found.kernel.as_deref().unwrap_or("unknown")
        ))),
        SchedExt::Taken(name) => bail!(Lacks(format!(
            "another scheduler is loaded ({name}), and the kernel takes one: end that first"
        ))),
        SchedExt::Free => {}
    }
    if let Some(lack) = able::lack(Path::new("/")) {
        bail!(Lacks(lack.to_string()));
    }
    let topology = sysfs::read_topology(Path::new("/"))?;
    let (layout, online) = topology.scheduling();
    Ok((Layout::of_domains(&Domains::new(&layout, &online)), online))
}

fn lacking(error: ScxError) -> anyhow::Error {
    match error {
        ScxError::Large { .. } | ScxError::Refused { .. } => {
            let text = homenode_live::sentence(&error);
            anyhow::Error::new(Lacks(text))
        }
        other => anyhow::Error::new(other),
    }
}

/// The scheduler while it works.
struct Course<'a> {
    args: &'a Args,
    scheduler: &'a Scheduler,
    began: Instant,
    partial: bool,
}

impl Course<'_> {
    /// Until somebody wants it to end, or the kernel has ended it.
    fn go(&self, stop: &mut Stop, cgroup: Option<&Path>, joined: &mut BTreeSet<u32>) -> Result<()> {
        let (mut told, mut asked, mut measured) = (self.began, None, None);
        let now = || -> Result<Told<'_>> {
            Ok(Told {
                recent: self.args.recent_cpu,
                partial: self.partial,
                counts: self.scheduler.counts()?,
                end: None,
                took: self.began.elapsed(),
                verified: self.scheduler.verified(),
            })
        };
        let often = self.args.every.unwrap_or(METRICS);
        loop {
            if stop.wanted() || self.scheduler.ended()?.is_some() {
                return Ok(());
            }
            if self.args.long.is_some_and(|long| self.began.elapsed() >= long) {
                return Ok(());
            }
            if let Some(folder) = cgroup {
                if asked.is_none_or(|at: Instant| at.elapsed() >= JOIN) {
                    asked = Some(Instant::now());
                    let all = find::of_cgroup(folder);
                    for process in all.map_err(|(p, e)| anyhow::anyhow!("{}: {e}", p.display()))? {
                        if !sched_ext::join(process).context("the policy SCHED_EXT")?.is_empty() {
                            joined.insert(process);
                        }
                    }
                }
            }
            if self.args.every.is_some_and(|every| told.elapsed() >= every) {
                told = Instant::now();
                let line = now()?;
                output::print(&if self.args.json { line.json() } else { line.text() })?;
            }
            if let Some(path) = &self.args.openmetrics {
                if measured.is_none_or(|at: Instant| at.elapsed() >= often) {
                    measured = Some(Instant::now());
                    output::replace(path, &now()?.metrics(true))?;
                }
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// What is told, once or often.
struct Told<'a> {
    recent: RecentCpu,
    partial: bool,
    counts: Counts,
    end: Option<&'a End>,
    took: Duration,
    verified: u32,
}

/// A reason's name in tables and JSON, and what it says.
fn named(reason: Reason) -> (&'static str, &'static str) {
    match reason {
        Reason::OnlyAllowed => ("only_allowed", "it may run nowhere else"),
        Reason::CurrentCpu => ("current_cpu", "the waker's CPU was asked for"),
        Reason::TargetIdle => ("target_idle", "the waker's or the previous CPU is idle"),
        Reason::PrevIdle => ("prev_idle", "the previous CPU is idle, beside the waker's"),
        Reason::Stacked => ("stacked", "behind a kernel thread that is about to sleep"),
        Reason::Recent => ("recent", "the recently used CPU is idle"),
        Reason::CapacityFits => ("capacity_fits", "an idle CPU that is large enough"),
        Reason::CapacityBest => ("capacity_best", "the largest idle CPU"),
        Reason::IdleCore => ("idle_core", "a whole core is idle"),
        Reason::IdleCpu => ("idle_cpu", "an idle CPU below the same cache"),
        Reason::IdleSeen => ("idle_seen", "an idle CPU, as no core was idle"),
        Reason::SmtSibling => ("smt_sibling", "an idle CPU of the previous core"),
        Reason::PrevOtherCluster => ("prev_other_cluster", "the previous CPU, in another cluster"),
        Reason::RecentOtherCluster => {
            ("recent_other_cluster", "the recent CPU, in another cluster")
        }
        Reason::NothingIdle => ("nothing_idle", "nothing is idle below this cache"),
        Reason::NoLlc => ("no_llc", "the CPU shares no cache"),
        Reason::SlowPath => ("slow_path", "a domain balances at wake-ups"),
        Reason::FallbackNode => ("fallback_node", "an allowed CPU of the node"),
        Reason::Fallback => ("fallback", "any allowed CPU"),
        Reason::AffinityBroken => ("affinity_broken", "no allowed CPU is active"),
    }
}

/// Who has ended it, in a word.
fn ender(end: &End) -> &'static str {
    match end.ender {
        Ender::Loader => "unregistered",
        Ender::Kernel => "kernel",
        Ender::Watchdog => "watchdog",
        Ender::Error => "error",
    }
}

impl Told<'_> {
    fn whom(&self) -> &'static str {
        if self.partial { "some" } else { "all" }
    }
    /// * `runs` – whether tasks are scheduled by it still.
    fn metrics(&self, runs: bool) -> String {
        let c = &self.counts;
        let mut all = OpenMetrics::default();
        let whom = [("recent_cpu", self.recent.name()), ("tasks", self.whom())];
        all.info("homenode_sched", "Whose tasks are scheduled, and how.", &whom);
        all.gauge(
            "homenode_sched_up",
            "1 while homenode schedules; 0: it has ended.",
            f64::from(u8::from(runs)),
        );
        let seconds = (self.took.as_secs_f64() * 1000.0).round() / 1000.0;
        all.gauge("homenode_sched_seconds", "For how long it has scheduled.", seconds);
        // All of them, so that none comes or goes from one reading to the next.
        let labels = Reason::ALL.map(|reason| [("reason", named(reason).0)]);
        let counted =
            |reason: Reason| c.reasons.iter().find(|(r, _)| *r == reason).map_or(0, |(_, n)| *n);
        let by_reason: Vec<(Labels<'_>, u64)> =
            labels.iter().zip(Reason::ALL).map(|(label, r)| (&label[..], counted(r))).collect();
        all.counter("homenode_sched_choices", "CPUs chosen, by the reason.", &by_reason);
        for (name, help, n) in [
            ("no_choice", "Choices that came to nothing: no CPU of the task's is active.", c.none),
            ("forks", "Choices for new tasks.", c.forks),
            ("moved", "Choices of another CPU than before.", c.moved),
            ("cross_cache", "Those below another last-level cache.", c.cross_cache),
            ("cross_node", "Those of another node.", c.cross_node),
            ("affine", "Choices drawn to the waker's CPU.", c.affine),
            ("wide", "Wakers and wakees with too many partners for that.", c.wide),
            ("claimed", "Chosen CPUs that were idle and got the task at once.", c.claimed),
            ("lost", "Those that another wake-up had claimed meanwhile.", c.lost),
            ("queued", "Tasks that went to the queue of a node.", c.queued),
            ("pinned", "Tasks queued on the only CPU that they may run on.", c.pinned),
            ("strangers", "Choices for tasks whose past was not kept.", c.strangers),
        ] {
            all.counter(&format!("homenode_sched_{name}"), help, &[(&[], n)]);
        }
        if let Some(end) = self.end {
            let labels = [("by", ender(end)), ("reason", &end.reason), ("message", &end.message)];
            all.info("homenode_sched_end", "Who has ended it, and why.", &labels);
        }
        all.end()
    }
    fn json(&self) -> String {
        let c = &self.counts;
        let reasons: Map<String, Value> =
            c.reasons.iter().map(|(r, n)| (named(*r).0.to_owned(), json!(n))).collect();
        let end = self.end.map(|end| {
            json!({"by": ender(end), "kind": end.kind, "reason": end.reason, "message": end.message})
        });
        let object = json!({
            "recent_cpu": self.recent.name(), "tasks": self.whom(),
            "seconds": (self.took.as_secs_f64() * 1000.0).round() / 1000.0,
            "verified_instructions": self.verified,
            "choices": c.choices(), "reasons": reasons, "no_choice": c.none, "forks": c.forks,
            "moved": c.moved, "cross_cache": c.cross_cache, "cross_node": c.cross_node,
            "affine": c.affine, "wide": c.wide,
            "claimed": c.claimed, "lost": c.lost, "queued": c.queued, "pinned": c.pinned,
            "strangers": c.strangers,
            "end": end,
        });
        format!("{object}\n")
    }
    fn text(&self) -> String {
        let c = &self.counts;
        let all = c.choices();
        let share = |n: u64| format!("{:5.1} %", 100.0 * n as f64 / all.max(1) as f64);
        let mut out = format!(
            "{} tasks, recently used CPU: {}; {:.1} s\n{} CPUs chosen, of them for new tasks {}\n",
            self.whom(),
            self.recent.name(),
            self.took.as_secs_f64(),
            all,
            c.forks
        );
        let mut rows: Vec<_> = c.reasons.clone();
        rows.sort_by_key(|(reason, n)| (std::cmp::Reverse(*n), *reason));
        for (reason, n) in rows {
            let (name, why) = named(reason);
            out += &format!("  {name:<20} {:>11} {}  {why}\n", n, share(n));
        }
        if c.none > 0 {
            out += &format!("  {:<20} {:>11} {}\n", "no choice", c.none, share(c.none));
        }
        let sums = [
            ("to another CPU", c.moved),
            ("  and cache", c.cross_cache),
            ("  and node", c.cross_node),
            ("to the waker's", c.affine),
            ("too many partners", c.wide),
            ("idle, ran at once", c.claimed),
            ("idle, but lost", c.lost),
        ];
        for (name, n) in sums {
            out += &format!("{name:<22} {:>11} {}\n", n, share(n));
        }
        let (queued, pinned) = (c.queued, c.pinned);
        out += &format!("queued by node {queued}, on their only CPU {pinned}\n");
        if c.strangers > 0 {
            let n = c.strangers;
            out += &format!("tasks whose past was not kept, as there are too many: {n} choices\n");
        }
        if let Some(end) = self.end {
            let who = match end.ender {
                Ender::Loader => "ended as asked",
                Ender::Kernel => "the kernel has ended it",
                Ender::Watchdog => "the kernel's watchdog has ended it",
                Ender::Error => "the kernel has ended it for an error",
            };
            let colon = if end.message.is_empty() { "" } else { ": " };
            out += &format!("{who} ({}{colon}{})\n", end.reason, end.message);
            if end.ender != Ender::Loader {
                out += "the kernel's own scheduler goes on with all tasks\n";
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use std::collections::BTreeMap;

    #[test]
    fn what_was_chosen_is_told_by_reason_and_why_it_ended() {
        let counts = Counts {
            reasons: vec![(Reason::TargetIdle, 30), (Reason::Recent, 60), (Reason::IdleCpu, 10)],
            forks: 2,
            moved: 70,
            claimed: 99,
            lost: 1,
            queued: 4,
            pinned: 5,
            ..Counts::default()
        };
        let end = End {
            ender: Ender::Watchdog,
            kind: 1026,
            reason: "runnable task stall".to_owned(),
            message: "sh[5] failed to run for 2.1s".to_owned(),
        };
        let told = Told {
            recent: RecentCpu::Seed,
            partial: true,
            counts,
            end: Some(&end),
            took: Duration::from_millis(1500),
            verified: 7,
        };
        expect![[r#"
            some tasks, recently used CPU: seed; 1.5 s
            100 CPUs chosen, of them for new tasks 2
              recent                        60  60.0 %  the recently used CPU is idle
              target_idle                   30  30.0 %  the waker's or the previous CPU is idle
              idle_cpu                      10  10.0 %  an idle CPU below the same cache
            to another CPU                  70  70.0 %
              and cache                      0   0.0 %
              and node                       0   0.0 %
            to the waker's                   0   0.0 %
            too many partners                0   0.0 %
            idle, ran at once               99  99.0 %
            idle, but lost                   1   1.0 %
            queued by node 4, on their only CPU 5
            the kernel's watchdog has ended it (runnable task stall: sh[5] failed to run for 2.1s)
            the kernel's own scheduler goes on with all tasks
        "#]]
        .assert_eq(&told.text());
        let value: Value = serde_json::from_str(&told.json()).unwrap();
        assert_eq!(value["reasons"]["recent"], 60);
        assert_eq!(value["end"]["by"], "watchdog");
        let text = told.metrics(false);
        let families = checked(&text);
        assert_eq!(families["homenode_sched_choices"].1, Reason::ALL.len());
        for line in [
            "homenode_sched_choices_total{reason=\"recent\"} 60",
            "homenode_sched_choices_total{reason=\"no_llc\"} 0",
            "homenode_sched_claimed_total 99",
            "homenode_sched_up 0",
            "homenode_sched_seconds 1.5",
            "homenode_sched_info{recent_cpu=\"seed\",tasks=\"some\"} 1",
            "homenode_sched_end_info{by=\"watchdog\",reason=\"runnable task stall\",\
             message=\"sh[5] failed to run for 2.1s\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
    }

    /// Holds a text to OpenMetrics 1.0 as far as we write it: kinds of families, and their samples.
    fn checked(text: &str) -> BTreeMap<String, (String, usize)> {
        let is_name = |name: &str| {
            let mut chars = name.chars();
            chars.next().is_some_and(|c| c.is_ascii_lowercase())
                && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        let body = text.strip_suffix("# EOF\n").expect("its end");
        let mut families: BTreeMap<String, (String, usize)> = BTreeMap::new();
        let (mut now, mut helped) = (String::new(), false);
        let mut seen = BTreeSet::new();
        for line in body.lines() {
            assert!(!line.is_empty() && line.trim() == line, "{line:?}");
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a kind");
                assert!(is_name(name) && ["counter", "gauge", "info"].contains(&kind), "{line}");
                let new = families.insert(name.to_owned(), (kind.to_owned(), 0)).is_none();
                assert!(new, "{name} comes once");
                (now, helped) = (name.to_owned(), false);
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("words");
                assert!(name == now && !helped && !help.is_empty(), "{line}");
                helped = true;
            } else {
                let (what, value) = line.rsplit_once(' ').expect("a value");
                let family = families.get_mut(&now).expect("a family before its samples");
                let end = match family.0.as_str() {
                    "counter" => "_total",
                    "info" => "_info",
                    _ => "",
                };
                let rest = what.strip_prefix(&format!("{now}{end}")).expect("the family's name");
                assert!(rest.is_empty() || rest.starts_with('{') && rest.ends_with('}'), "{line}");
                let number: f64 = value.parse().expect("a number");
                assert!(number >= 0.0 && (family.0 != "info" || number == 1.0), "{line}");
                assert!(seen.insert(what.to_owned()), "{what} comes once");
                family.1 += 1;
            }
        }
        assert!(families.values().all(|(_, samples)| *samples > 0), "{text}");
        families
    }

    #[test]
    fn times_are_told_in_seconds() {
        assert_eq!(seconds("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!(timeout("30"), Ok(Duration::from_secs(30)));
        assert!(timeout("31s").is_err() && seconds("-1s").is_err() && seconds("soon").is_err());
    }

    #[test]
    fn reasons_have_names_of_their_own() {
        let names: BTreeSet<_> = Reason::ALL.into_iter().map(|r| named(r).0).collect();
        assert_eq!(names.len(), Reason::ALL.len());
    }
}
