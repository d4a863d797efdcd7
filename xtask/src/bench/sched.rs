//! The simulated scheduler: how many wake-ups and switches a second, what a machine of
//! thousands of CPUs costs, and what its statistics cost where they are off.
//!
//! The measuring program is `crates/sim/examples/schedloop`; its first lines say what each
//! call does and prints.

use std::fmt::Display;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::hotloop::{Figures, path_text};
use super::{Samples, Setting, Verdict, peers};
use crate::workspace::must_run;

const EXAMPLE: &str = "schedloop";

/// The measuring program, built.
struct Schedloop(PathBuf);

impl Schedloop {
    fn build(setting: &Setting<'_>) -> Result<Self> {
        Ok(Self(setting.example("homenode-sim", EXAMPLE)?))
    }
    /// The same with the counters compiled out, in a file of its own.
    fn without_statistics(setting: &Setting<'_>) -> Result<Self> {
        let (ws, profile) = (setting.ws, setting.profile);
        let built = ["build", "--locked", "--quiet", "--profile", profile.name()];
        let what = ["--package", "homenode-sim", "--example", EXAMPLE];
        let feature = ["--features", "without-schedstats"];
        must_run(ws.cargo().args(built).args(what).args(feature))?;
        let copy = ws.folder("bench")?.join("schedloop-without-schedstats");
        let from = ws.built(profile, "examples").join(EXAMPLE);
        // Both are built under one name.
        fs::copy(&from, &copy).with_context(|| format!("can't copy {}", from.display()))?;
        Ok(Self(copy))
    }
    fn command(&self, what: &str, options: &[(&str, &dyn Display)]) -> Command {
        let mut command = Command::new(&self.0);
        command.arg(what);
        for (name, value) in options {
            command.arg(format!("--{name}")).arg(value.to_string());
        }
        command
    }
    fn figures(&self, what: &str, options: &[(&str, &dyn Display)]) -> Result<Figures> {
        Figures::by(&mut self.command(what, options))
    }
}

/// Wake-ups and switches a second.
pub(super) fn speed(setting: &Setting<'_>) -> Result<Verdict> {
    let schedloop = Schedloop::build(setting)?;
    let loops: u64 = setting.pick(2000, 400);
    let warm: u64 = setting.pick(20_000, 1_000);
    let events: u64 = setting.pick(2_000_000, 20_000);
    let pairs: u64 = setting.pick(20, 8);
    type Options<'a> = Vec<(&'a str, &'a dyn Display)>;
    let hackbench: Options<'_> = vec![("loops", &loops), ("pairs", &pairs), ("warm", &warm)];
    let of_events: Options<'_> = vec![("events", &events)];
    let nested: Options<'_> = vec![("events", &events), ("depth", &3)];
    let direct: (&str, &dyn Display) = ("features", &"NO_TTWU_QUEUE");
    let hackbench_direct = [&hackbench[..], &[direct]].concat();
    let pairs_direct = [&of_events[..], &[direct]].concat();
    let calls: [(&str, &str, &Options<'_>); 7] = [
        ("hackbench", "hackbench of 10 groups", &hackbench),
        ("hackbench", "the same, nobody woken by list", &hackbench_direct),
        ("pairs", "200 pairs that wake each other", &of_events),
        ("pairs", "the same, nobody woken by list", &pairs_direct),
        ("sleepers", "1,000 threads that compute and sleep", &of_events),
        ("sleepers", "the same in groups, three deep", &nested),
        ("bare", "bare loop: heap and ordered maps", &of_events),
    ];
    println!("  2 x 32 CPUs of two threads a core; an event is a wake-up or a switch");
    println!("  M events/s, median (lowest to highest)");
    let mut rates: [Samples; 7] = Default::default();
    let mut last = Vec::new();
    for _ in 0..setting.pick(5, 1) {
        last.clear();
        for ((what, _, options), rate) in calls.iter().zip(&mut rates) {
            let figures = schedloop.figures(what, options)?;
            rate.push(figures.rate("events")?);
            last.push(figures);
        }
    }
    let [ours, bare] = [&rates[0], &rates[6]].map(Samples::median);
    for (((what, about, options), rate), figures) in calls.iter().zip(&rates).zip(&last) {
        let percent = rate.median() / bare * 100.0;
        println!("  {about:<40} {:<24} {percent:>5.0} % of the bare loop", rate.shown(2));
        if *what != "bare" {
            let events = figures.number("events")?;
            let instructions = instructions_per_event(setting, &schedloop, what, options)?;
            println!(
                "  {:<40} {instructions:.0} instructions/event, {:.1} turns/event, {:.2} M turns/s, {:.4} allocations/event",
                "",
                figures.number("turns")? / events,
                figures.rate("turns")?,
                figures.number("allocations")? / events,
            );
        }
    }
    println!("  published of scxsim: 0.9 to 1.85 M events/s");
    match peers::SimSo::install(setting.ws) {
        Ok(simso) => {
            let mut rate = Samples::default();
            for _ in 0..setting.pick(3, 1) {
                rate.push(simso.edf(400, 64, setting.pick(20, 2))?);
            }
            println!("  {:<40} {}", "SimSo, EDF, 400 periodic tasks", rate.shown(4));
        }
        Err(error) => println!("  SimSo was not measured: {error:#}"),
    }
    let ratio = ours / bare;
    Ok(Verdict {
        ours,
        peer: bare,
        unit: "M events/s (peer: the bare loop)",
        ratio,
        goal: "10 M events/s (at least 5) and 25 % of the bare loop",
        pass: ours >= 5.0 && ratio >= 0.25,
    })
}

/// Instructions of an event: of a short run taken off a longer one.
fn instructions_per_event(
    setting: &Setting<'_>,
    schedloop: &Schedloop,
    what: &str,
    options: &[(&str, &dyn Display)],
) -> Result<f64> {
    let folder = setting.ws.folder("bench")?;
    let sizes: [u64; 2] = setting.pick([60_000, 120_000], [2_000, 4_000]);
    let mut counted = Vec::new();
    for size in sizes {
        let warm = size / 4;
        let mut all: Vec<(&str, &dyn Display)> = options
            .iter()
            .filter(|(name, _)| !matches!(*name, "events" | "warm"))
            .copied()
            .collect();
        all.extend([("events", &size as &dyn Display), ("warm", &warm as &dyn Display)]);
        let out = folder.join("schedloop.json");
        let text = path_text(&out)?;
        all.push(("out", &text));
        let instructions = peers::instructions(&schedloop.command(what, &all), &folder)?;
        counted.push((instructions, Figures::read(&out)?.number("all_events")?));
    }
    let [(short, few), (long, many)] = counted[..] else { bail!("there are two sizes") };
    if many <= few {
        bail!("the longer run of {what} made {many} events, the shorter one {few}");
    }
    Ok(long.saturating_sub(short) as f64 / (many - few))
}

/// Ever more CPUs, half used and with two tasks each.
pub(super) fn scale(setting: &Setting<'_>) -> Result<Verdict> {
    let schedloop = Schedloop::build(setting)?;
    let sizes: &[u64] = setting.pick(&[8, 64, 512, 4096], &[8, 64]);
    let events: u64 = setting.pick(1_000_000, 10_000);
    println!("  tasks that compute and sleep, some fork; ns an event, median (lowest to highest)");
    let loads = [(500, "0.5 runnable tasks a CPU"), (2000, "2 runnable tasks a CPU")];
    let mut worst = 0f64;
    let mut ours = (0.0, 0.0);
    for (permille, load) in loads {
        let mut times = vec![Samples::default(); sizes.len()];
        for _ in 0..setting.pick(3, 1) {
            for (cpus, time) in sizes.iter().zip(&mut times) {
                let figures = schedloop.figures(
                    "scale",
                    &[("cpus", cpus), ("permille", &permille), ("events", &events)],
                )?;
                time.push(1000.0 / figures.rate("events")?);
            }
        }
        let first = times[0].median();
        for (cpus, time) in sizes.iter().zip(&times) {
            let ratio = time.median() / first;
            println!("  {load}, {cpus:>4} CPUs {:<28} {ratio:>5.2} times", time.shown(0));
            if ratio > worst {
                (worst, ours) = (ratio, (time.median(), first));
            }
        }
    }
    // What the nodes' tables take is no part of a CPU: a machine of as many nodes has it too.
    let mut bytes = 0f64;
    for cpus in sizes {
        let all = schedloop.figures("scale", &[("cpus", cpus), ("boot", &1)])?.number("bytes")?;
        let each = all / *cpus as f64;
        println!("  {cpus:>4} CPUs without tasks: {:.2} KiB allocated for each", each / 1024.0);
        bytes = bytes.max(each);
    }
    Ok(Verdict {
        ours: ours.0,
        peer: ours.1,
        unit: "ns/event at the worst (peer: 8 CPUs)",
        ratio: worst,
        goal: "time ratio <= 3, and 16 KiB a CPU",
        pass: worst <= 3.0 && bytes <= 16384.0,
    })
}

/// Statistics that are off, beside code that has none.
pub(super) fn stats_off(setting: &Setting<'_>) -> Result<Verdict> {
    let without = Schedloop::without_statistics(setting)?;
    let with = Schedloop::build(setting)?;
    let pairs: u64 = setting.pick(20, 2);
    let options: [(&str, &dyn Display); 2] = [("stats", &0), ("pairs", &pairs)];
    let mut worst = (0.0, 0.0);
    let mut ratio = 0f64;
    println!("  instructions per event, by callgrind");
    for what in ["pairs", "sleepers"] {
        let off = instructions_per_event(setting, &with, what, &options)?;
        let none = instructions_per_event(setting, &without, what, &options)?;
        let percent = (off / none - 1.0) * 100.0;
        println!("  {what:<10} without {none:>8.1}   off {off:>8.1}  ({percent:+.2} %)");
        if off / none > ratio {
            (ratio, worst) = (off / none, (off, none));
        }
    }
    Ok(Verdict {
        ours: worst.0,
        peer: worst.1,
        unit: "instructions/event",
        ratio,
        goal: "ratio < 1.01",
        pass: ratio < 1.01,
    })
}
