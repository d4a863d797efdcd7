//! What looking at the scheduler costs: `homenode stats`, beside `perf sched record`, of two
//! programs that do little but switch and wake.
//!
//! Each round runs the program alone, looked at, alone again, and under perf, and the next one
//! begins with another of these; `homenode stats --measure-cost` does that and makes the 95 %
//! intervals. Off there must be no difference: the interval of alone again holds 0.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Setting, Verdict};
use crate::workspace::text_of;

/// Of perf's cost, at most.
const SHARE_MAX: f64 = 1.0 / 3.0;

/// A program of `perf bench sched`, with its size in full and tiny. A run takes a second or two on a
/// virtual machine, where a wake-up of an idle CPU is dear, and all of them five minutes.
const PROGRAMS: [(&str, [&str; 2], [&str; 2]); 2] =
    [("pipe", ["-l", "50000"], ["-l", "2000"]), ("messaging", ["-l", "100"], ["-l", "5"])];

/// A difference in per cent and half the width of its interval.
struct Percent {
    mean: f64,
    half: f64,
}

impl Percent {
    fn of(found: &Value) -> Result<Self> {
        let number = |key: &str| found[key].as_f64().with_context(|| format!("no {key} is told"));
        Ok(Self { mean: number("mean")?, half: number("half_of_95_percent_interval")? })
    }
    fn shown(&self) -> String {
        format!("{:+.2} ± {:.2} %", self.mean, self.half)
    }
    fn holds_none(&self) -> bool {
        self.mean.abs() <= self.half
    }
}

pub(super) fn run(setting: &Setting<'_>) -> Result<Verdict> {
    let homenode = {
        setting.ws.build(setting.profile)?;
        setting.ws.built(setting.profile, "homenode")
    };
    let rounds = setting.pick("12", "2");
    let data = std::env::temp_dir().join(format!("homenode-stats-cost-{}", std::process::id()));
    let peer = format!("perf sched record -o {} --", data.display());
    let (mut ours, mut theirs, mut none) = (0.0, 0.0, true);
    for (name, full, tiny) in PROGRAMS {
        let mut command = Command::new(&homenode);
        command.args(["stats", "--json", "--measure-cost", "--rounds", rounds, "--peer", &peer]);
        command.args(["--", "perf", "bench", "sched", name]).args(setting.pick(full, tiny));
        let text = text_of(&mut command);
        // perf has left a file of each run's name.
        let _ = std::fs::remove_file(&data);
        let _ = std::fs::remove_file(data.with_extension("old"));
        let found: Value = serde_json::from_str(&text?).context("what homenode stats printed")?;
        let on = Percent::of(&found["on_percent"])?;
        let again = Percent::of(&found["off_again_percent"])?;
        let perf = Percent::of(&found["peer"]["percent"])?;
        println!("  {name}, {rounds} rounds, against alone, with 95 % intervals:");
        println!("    alone again        {}", again.shown());
        println!("    looked at          {}", on.shown());
        println!("    perf sched record  {}", perf.shown());
        println!(
            "    {:.0} ns per event, {} events, {} lost, {:.1} MiB of the kernel's memory",
            found["ns_per_event"].as_f64().unwrap_or(0.0),
            found["events"],
            found["lost_events"],
            found["kernel_bytes"].as_f64().unwrap_or(0.0) / f64::from(1 << 20),
        );
        ours += on.mean;
        theirs += perf.mean;
        none &= again.holds_none();
    }
    let ratio = ours / theirs;
    Ok(Verdict {
        ours,
        peer: theirs,
        unit: "% of both programs' time",
        ratio,
        goal: "off no difference; on at most 1/3 of perf sched record's cost (1/10 wanted)",
        pass: none && theirs > 0.0 && ratio <= SHARE_MAX,
    })
}
