//! Whether it pays, tried: windows with and without in a drawn order, a number for each, and
//! what the exact test says of them.
//!
//! ```text
//! seed ─▶ order, printed ─▶ + - - + … ─▶ TrialReport ─▶ pays: it goes on for --for
//!                           │                           else: it ends and says so
//!                           └─ metric's number, the program's time, or the share of
//!                              accesses on fast nodes
//! ```
//!
//! Source: specs/act.md#trial.

use crate::failure::NotSo;
use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use homenode_core::splitmix::SplitMix;
use homenode_core::units::Picos;
use homenode_live::signals::kill_group;
use homenode_report::{Better, LEAST_WINDOWS, MOST_WINDOWS, TrialReport, TrialWindow};
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often it is looked whether the metric's command is over.
const SLICE: Duration = Duration::from_millis(5);
/// A metric's command that takes longer is ended.
const METRIC_MOST: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub(super) struct TrialArgs {
    /// Try whether it pays: windows with and without, in a drawn order, and an exact test. It
    /// ends afterwards; where it was a gain, it goes on for --for
    #[arg(long)]
    pub(super) trial: bool,
    /// What is better with it: a command for sh that prints one number, asked at each window's
    /// end. Without it the time of CMD, or the share of sampled accesses on fast nodes
    #[arg(long, value_name = "CMD", requires = "trial")]
    metric: Option<String>,
    /// Which way the metric is better
    #[arg(long, value_name = "WAY", default_value = "higher", requires = "metric")]
    better: BetterArg,
    /// The metric counts up: what it grew by a second is each window's number
    #[arg(long, requires = "metric")]
    counter: bool,
    /// How many windows, half of them with: an even number from 8 to 20
    #[arg(long, value_name = "N", default_value_t = 12, requires = "trial", value_parser = even)]
    windows: usize,
    /// How long each is; beside CMD each is one run of it
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = super::span,
          requires = "trial", conflicts_with = "command")]
    window: Picos,
    /// From which the order is drawn
    #[arg(long, value_name = "N", default_value_t = 1, requires = "trial")]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BetterArg {
    /// Throughput, shares
    Higher,
    /// Times, latencies
    Lower,
}

fn even(text: &str) -> Result<usize, String> {
    let n: Option<usize> = text.parse().ok();
    n.filter(|n| n % 2 == 0 && (LEAST_WINDOWS..=MOST_WINDOWS).contains(n)).ok_or_else(|| {
        format!("an even number of windows from {LEAST_WINDOWS} to {MOST_WINDOWS} is wanted")
    })
}

/// What each window is judged by.
enum Measure {
    /// A command's number.
    Command { command: String, counter: bool },
    /// The program's time.
    Time,
    /// The share of sampled accesses on fast nodes.
    Share,
}

/// A trial that was asked for.
pub(super) struct Trial {
    order: Vec<bool>,
    seed: u64,
    pub(super) window: Picos,
    measure: Measure,
    better: Better,
    /// Whether each window is a run of a program.
    runs: bool,
}

/// A window that has begun.
pub(super) struct Begun {
    at: Instant,
    count: f64,
}

/// How a window went.
pub(super) enum Window {
    /// It is over, with its number where there is one.
    Over(Option<f64>),
    /// It was broken off.
    Ended,
}

impl Trial {
    /// The trial that is asked for, if one is.
    ///
    /// * `runs` – whether a program is started for each window.
    ///
    /// # Errors
    /// A metric that gives no number, tried once.
    pub(super) fn of(args: &TrialArgs, runs: bool) -> Result<Option<Self>> {
        if !args.trial {
            return Ok(None);
        }
        let mut order = vec![false; args.windows];
        order[..args.windows / 2].fill(true);
        SplitMix::new(args.seed).shuffle(&mut order);
        let (measure, better) = match (&args.metric, runs) {
            (Some(command), _) => {
                let better = match args.better {
                    BetterArg::Higher => Better::Higher,
                    BetterArg::Lower => Better::Lower,
                };
                (Measure::Command { command: command.clone(), counter: args.counter }, better)
            }
            (None, true) => (Measure::Time, Better::Lower),
            (None, false) => (Measure::Share, Better::Higher),
        };
        let (seed, window) = (args.seed, args.window);
        let trial = Self { order, seed, window, measure, better, runs };
        // Beside a program the first run may be what makes it work.
        if !runs {
            trial.begin()?;
        }
        Ok(Some(trial))
    }

    /// Whether it is judged by sampled accesses.
    pub(super) fn is_by_share(&self) -> bool {
        matches!(self.measure, Measure::Share)
    }

    /// What is measured.
    fn metric(&self) -> String {
        let (what, unit) = match &self.measure {
            Measure::Command { command, counter: false } => (format!("`{command}`"), ""),
            Measure::Command { command, counter: true } => (format!("`{command}`"), " a second"),
            Measure::Time => ("the program's time".to_owned(), " in seconds"),
            Measure::Share => ("the share of sampled accesses on fast nodes".into(), " in %"),
        };
        let better = if self.better == Better::Lower { "lower" } else { "higher" };
        format!("{what}{unit}, {better} is better")
    }

    /// The plan, before the first window.
    pub(super) fn sentences(&self) -> Vec<String> {
        let n = self.order.len();
        let each = match self.runs {
            true => "each a run of the program".to_owned(),
            false => format!("of {} each", homenode_config::write_time(self.window)),
        };
        let order: Vec<&str> = self.order.iter().map(|w| if *w { "+" } else { "-" }).collect();
        let mut out = vec![
            format!(
                "trial: {n} windows {each}, {} with it (+) and as many without (-), in this order \
                 (seed {}): {}",
                n / 2,
                self.seed,
                order.join(" ")
            ),
            format!(
                "trial: judged by {}, by the exact randomisation test over all such orders, at {}",
                self.metric(),
                TrialReport::LEVEL
            ),
        ];
        if !self.runs {
            out.push(
                "trial: what was moved stays where it is, so each window shows what moving adds \
                 from then on; for what it does from the start try it with -- CMD"
                    .to_owned(),
            );
        }
        out
    }

    /// A window begins.
    ///
    /// # Errors
    /// A metric that gives no number.
    pub(super) fn begin(&self) -> Result<Begun> {
        let count = match &self.measure {
            // One that is not a counter is only tried: what is wrong with it shows early.
            Measure::Command { command, .. } if !self.runs => read(command)?,
            Measure::Command { command, counter: true } => read(command)?,
            Measure::Command { .. } | Measure::Time | Measure::Share => 0.0,
        };
        Ok(Begun { at: Instant::now(), count })
    }

    /// A window ends: its number.
    ///
    /// * `time` – what the program took; `share` – of accesses that is on fast nodes.
    ///
    /// # Errors
    /// A metric that gives no number.
    pub(super) fn end(
        &self,
        begun: &Begun,
        time: Option<Duration>,
        share: Option<f64>,
    ) -> Result<Option<f64>> {
        Ok(match &self.measure {
            Measure::Command { command, counter: false } => Some(read(command)?),
            Measure::Command { command, counter: true } => {
                let seconds = time.unwrap_or_else(|| begun.at.elapsed()).as_secs_f64();
                Some((read(command)? - begun.count) / seconds.max(1e-9))
            }
            Measure::Time => time.map(|t| t.as_secs_f64()),
            Measure::Share => share,
        })
    }

    /// Goes through the windows. One that has no number, or was broken off, is the last.
    ///
    /// * `one` – a window, told whether with it.
    ///
    /// Returns what it came to, and what was wrong.
    pub(super) fn run(
        &self,
        mut one: impl FnMut(bool) -> Result<Window>,
    ) -> (TrialReport, Option<anyhow::Error>) {
        let mut windows = Vec::new();
        let mut trouble = None;
        for (i, &with) in self.order.iter().enumerate() {
            match one(with) {
                Ok(Window::Over(value)) => {
                    windows.push(TrialWindow { with, value });
                    if value.is_none() {
                        break;
                    }
                }
                Ok(Window::Ended) => break,
                Err(e) => {
                    let n = self.order.len();
                    trouble = Some(e.context(format!(
                        "the trial broke off in window {} of {n}, and there is no verdict",
                        i + 1
                    )));
                    break;
                }
            }
        }
        let planned = self.order.len();
        (TrialReport { metric: self.metric(), better: self.better, windows, planned }, trouble)
    }
}

/// The number that a command prints.
fn read(command: &str) -> Result<f64> {
    let wrong = |what: String| anyhow!(NotSo(format!("the metric `{command}` {what}")));
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Ctrl-C on the terminal is for homenode, which ends the trial in order.
        .process_group(0)
        .spawn()
        .context("sh can't be started")?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > METRIC_MOST {
            kill_group(&child);
            child.wait()?;
            bail!(wrong(format!("was not over after {} s", METRIC_MOST.as_secs())));
        }
        std::thread::sleep(SLICE);
    };
    if !status.success() {
        bail!(wrong(format!("failed: {status}")));
    }
    // What it has started may still hold the pipe: what is there already is the answer.
    let mut bytes = [0u8; 256];
    let n = child.stdout.take().map_or(Ok(0), |mut out| out.read(&mut bytes))?;
    let text = String::from_utf8_lossy(&bytes[..n]);
    let number = text.split_whitespace().next().and_then(|w| w.parse::<f64>().ok());
    number.filter(|v| v.is_finite()).ok_or_else(|| {
        let shown: String = text.trim().chars().take(40).collect();
        wrong(format!("printed \"{shown}\", which does not begin with a number"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use homenode_report::TrialVerdict;

    fn trial(metric: Option<&str>, counter: bool, runs: bool) -> Trial {
        let args = TrialArgs {
            trial: true,
            metric: metric.map(str::to_owned),
            better: BetterArg::Higher,
            counter,
            windows: 8,
            window: Picos::from_secs(30),
            seed: 1,
        };
        Trial::of(&args, runs).expect("a metric that works").expect("one is asked for")
    }

    #[test]
    fn the_plan_is_told_before_the_first_window() {
        expect![[r#"
            trial: 8 windows of 30s each, 4 with it (+) and as many without (-), in this order (seed 1): + + - + + - - -
            trial: judged by `echo 1`, higher is better, by the exact randomisation test over all such orders, at 0.05
            trial: what was moved stays where it is, so each window shows what moving adds from then on; for what it does from the start try it with -- CMD"#]]
        .assert_eq(&trial(Some("echo 1"), false, false).sentences().join("\n"));
        expect![[r#"
            trial: 8 windows each a run of the program, 4 with it (+) and as many without (-), in this order (seed 1): + + - + + - - -
            trial: judged by the program's time in seconds, lower is better, by the exact randomisation test over all such orders, at 0.05"#]]
        .assert_eq(&trial(None, false, true).sentences().join("\n"));
    }

    /// Each order is drawn as often as any other.
    #[test]
    fn orders_are_drawn_evenly() {
        let mut drawn = std::collections::BTreeMap::<u32, u32>::new();
        for seed in 0..7000 {
            let mut order: Vec<u32> = (0..8).map(|i| u32::from(i < 4)).collect();
            SplitMix::new(seed).shuffle(&mut order);
            *drawn.entry(order.iter().fold(0, |a, b| a * 2 + b)).or_default() += 1;
        }
        assert_eq!(drawn.len(), 70);
        assert!(drawn.values().all(|n| (50..170).contains(n)), "{drawn:?}");
    }

    #[test]
    fn a_metric_is_one_number() {
        assert_eq!(read("echo 12.5 ms").expect("a number"), 12.5);
        for (command, why) in [
            ("echo fast", "printed \"fast\", which does not begin with a number"),
            ("true", "printed \"\", which does not begin with a number"),
            ("echo nan", "printed \"nan\", which does not begin with a number"),
            ("exit 3", "failed: exit status: 3"),
        ] {
            let told = read(command).expect_err("no number").to_string();
            assert_eq!(told, format!("the metric `{command}` {why}"));
        }
        // A child that goes on does not hold it up.
        let begun = Instant::now();
        assert_eq!(read("sleep 30 & echo 1").expect("a number"), 1.0);
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn windows_go_by_the_order_and_end_with_the_first_that_has_no_number() {
        let t = trial(None, false, false);
        let mut seen = String::new();
        let (report, trouble) = t.run(|with| {
            seen.push(if with { '+' } else { '-' });
            Ok(Window::Over(Some(if with { 90.0 } else { 50.0 })))
        });
        assert_eq!((seen.as_str(), report.verdict()), ("++-++---", TrialVerdict::Pays));
        assert!(trouble.is_none());
        let mut n = 0;
        let mut until = |window: fn() -> Result<Window>| {
            n = 0;
            t.run(|_| {
                n += 1;
                if n == 3 { window() } else { Ok(Window::Over(Some(1.0))) }
            })
        };
        let (report, trouble) = until(|| Ok(Window::Over(None)));
        assert_eq!((report.windows.len(), report.verdict()), (3, TrialVerdict::Unmeasurable));
        assert!(trouble.is_none());
        let (report, _) = until(|| Ok(Window::Ended));
        assert_eq!((report.windows.len(), report.verdict()), (2, TrialVerdict::Unmeasurable));
        let (_, trouble) = until(|| bail!("the metric broke"));
        let told = format!("{:#}", trouble.expect("what was wrong"));
        assert_eq!(
            told,
            "the trial broke off in window 3 of 8, and there is no verdict: the metric broke"
        );
    }

    #[test]
    fn a_counter_is_told_by_its_growth() {
        let at = homenode_fixtures::Folder::new();
        let file = at.join("count");
        std::fs::write(&file, "100\n").expect("a file");
        let t = trial(Some(&format!("cat {}", file.display())), true, false);
        let begun = t.begin().expect("a number");
        std::fs::write(&file, "160\n").expect("a file");
        let value = t.end(&begun, Some(Duration::from_secs(30)), None).expect("a number");
        assert_eq!(value, Some(2.0));
    }
}
