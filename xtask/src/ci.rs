//! What CI runs: every step, whatever the earlier ones found, then one line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::workspace::{Profile, Workspace, must_run, not_run, typed};
use crate::{Ending, bench, guide, scenarios, tidy};

/// Everything is built with one profile, so nothing is built twice.
const PROFILE: Profile = Profile::Ci;

/// The steps in their order: what is quick and what everything waits for first.
/// To add one, add a row.
const STEPS: &[Step] = &[
    Step { name: "rustfmt", run: rustfmt },
    Step { name: "tidy", run: tidy_step },
    Step { name: "clippy", run: clippy },
    Step { name: "build", run: build },
    Step { name: "tests", run: cargo_test },
    Step { name: "docs", run: docs },
    Step { name: "benchmarks, tiny", run: benchmarks },
    Step { name: "scenarios", run: scenarios_step },
    Step { name: "guide", run: guide_step },
];

struct Step {
    name: &'static str,
    run: fn(&Workspace) -> Result<StepEnd>,
}

/// How a step ended that didn't fail.
enum StepEnd {
    Passed,
    /// Why there was nothing to run.
    Skipped(String),
    /// A step that is made of tests.
    Tests(Tested),
}

/// What came of tests: their sums, and what those that failed have printed.
#[derive(Debug, Default)]
struct Tested {
    counts: Counts,
    failures: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
}

pub(crate) fn run(ws: &Workspace) -> Result<Ending> {
    let begun = Instant::now();
    let mut counts = Counts::default();
    let mut lines = Vec::new();
    let mut failures = Vec::new();
    for step in STEPS {
        println!("\n== {}", step.name);
        let step_begun = Instant::now();
        let ending = match (step.run)(ws) {
            Ok(StepEnd::Passed) => {
                counts.passed += 1;
                "passed".to_owned()
            }
            Ok(StepEnd::Skipped(why)) => format!("skipped: {why}"),
            Ok(StepEnd::Tests(Tested { counts: Counts { passed, failed }, failures: said })) => {
                counts.passed += passed;
                counts.failed += failed;
                failures.extend(said);
                format!("{passed} passed, {failed} failed")
            }
            Err(error) => {
                counts.failed += 1;
                format!("FAILED: {error:#}")
            }
        };
        println!("{ending}");
        lines.push(summary_line(step.name, step_begun.elapsed(), &ending));
    }
    println!("\n== summary");
    for line in &lines {
        println!("{line}");
    }
    println!("{}", summary_line("all", begun.elapsed(), ""));
    // Once more at the end: above, it stands among thousands of lines.
    for line in &failures {
        println!("{line}");
    }
    println!("{} passed, {} failed", counts.passed, counts.failed);
    Ok(if counts.failed == 0 { Ending::Done } else { Ending::Failed })
}

/// One line of the summary; of a long ending only its first line.
fn summary_line(name: &str, took: Duration, ending: &str) -> String {
    let first = ending.lines().next().unwrap_or_default();
    format!("{name:<18}{:>7.1} s  {first}", took.as_secs_f64()).trim_end().to_owned()
}

fn rustfmt(ws: &Workspace) -> Result<StepEnd> {
    if !offered(ws, "fmt") {
        return Ok(StepEnd::Skipped(no_tool("rustfmt")));
    }
    shown(ws.cargo().args(["fmt", "--all", "--check"]))
}

fn clippy(ws: &Workspace) -> Result<StepEnd> {
    if !offered(ws, "clippy") {
        return Ok(StepEnd::Skipped(no_tool("clippy")));
    }
    shown(
        ws.cargo().args(["clippy", "--locked", "--profile", PROFILE.name(), "--workspace"]).args([
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]),
    )
}

/// Whether cargo has this tool beside it.
fn offered(ws: &Workspace, tool: &str) -> bool {
    let mut command = ws.cargo();
    command.args([tool, "--version"]).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn no_tool(name: &str) -> String {
    format!("this Rust comes without {name}: `rustup component add {name}` or apt adds it")
}

fn tidy_step(ws: &Workspace) -> Result<StepEnd> {
    passed(tidy::run(ws)?, "the tree isn't tidy")
}

/// Before the tests, since some run the command and load the recorder's library. The tests too:
/// both cores have something to compile then, up to the last program.
fn build(ws: &Workspace) -> Result<StepEnd> {
    shown(
        ws.cargo()
            .args(["build", "--locked", "--profile", PROFILE.name(), "--workspace"])
            .arg("--all-targets"),
    )
}

/// Unit, vector, property, snapshot and documentation tests. Their output is
/// passed on line by line, and their sums are taken from it.
fn cargo_test(ws: &Workspace) -> Result<StepEnd> {
    let mut command = ws.cargo();
    command
        .args(["test", "--locked", "--profile", PROFILE.name(), "--workspace", "--no-fail-fast"])
        // Built above: a test that had it built by itself would choose other features.
        .env("HOMENODE_RECORDER", ws.built(PROFILE, "libhomenode_recorder.so"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    println!("$ {}", typed(&command));
    let mut child = command.spawn().map_err(|e| not_run(&command, e))?;
    let output = child.stdout.take().context("cargo's output is piped")?;
    let mut tested = Tested::default();
    let mut out = std::io::stdout().lock();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("can't read what `cargo test` prints")?;
        let text = String::from_utf8_lossy(&line);
        writeln!(out, "{text}")?;
        tested.take(&text);
    }
    let status = child.wait().context("can't wait for `cargo test`")?;
    // A test that doesn't compile, or a crash, has no line of its own.
    if !status.success() && tested.counts.failed == 0 {
        tested.counts.failed = 1;
    }
    if tested.counts == Counts::default() {
        bail!("`cargo test` ran no test at all");
    }
    Ok(StepEnd::Tests(tested))
}

impl Tested {
    /// Takes a line of what `cargo test` prints. What failed is told between the first line
    /// `failures:` of a program's and its result.
    fn take(&mut self, line: &str) {
        let open = self.failures.last().is_some_and(|l| !l.starts_with("test result: "));
        if open || line == "failures:" {
            self.failures.push(line.to_owned());
        }
        if let Some(sum) = test_result(line) {
            self.counts.passed += sum.passed;
            self.counts.failed += sum.failed;
        }
    }
}

/// `test result: ok. 5 passed; 0 failed; ...`
fn test_result(line: &str) -> Option<Counts> {
    let rest = line.trim().strip_prefix("test result: ")?;
    let number = |what: &str| {
        rest.split(['.', ';'])
            .find_map(|part| part.trim().strip_suffix(what))
            .and_then(|number| number.trim().parse().ok())
    };
    Some(Counts { passed: number("passed")?, failed: number("failed")? })
}

fn docs(ws: &Workspace) -> Result<StepEnd> {
    shown(
        ws.cargo()
            .args(["doc", "--locked", "--profile", PROFILE.name(), "--workspace", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

fn benchmarks(ws: &Workspace) -> Result<StepEnd> {
    passed(bench::run(ws, &bench::Options::tiny(), PROFILE)?, "a benchmark did not run to its end")
}

fn scenarios_step(ws: &Workspace) -> Result<StepEnd> {
    let n = scenarios::check(ws, PROFILE)?;
    println!("{n} scenarios, each the same with one worker and with two");
    Ok(StepEnd::Passed)
}

fn guide_step(ws: &Workspace) -> Result<StepEnd> {
    passed(guide::run(ws, &guide::Options::check())?, "the README or the guide says what is not so")
}

/// What a chore's ending is to a step, and `why` where it failed.
fn passed(ending: Ending, why: &'static str) -> Result<StepEnd> {
    match ending {
        Ending::Done => Ok(StepEnd::Passed),
        Ending::Failed => bail!(why),
    }
}

fn shown(command: &mut Command) -> Result<StepEnd> {
    println!("$ {}", typed(command));
    must_run(command).map(|()| StepEnd::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_read_from_cargo_tests_lines() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.00s";
        assert_eq!(test_result(line), Some(Counts { passed: 12, failed: 3 }));
        assert_eq!(test_result("test units::adds ... ok"), None);
        assert_eq!(test_result("test result: odd"), None);
    }

    #[test]
    fn what_failed_is_kept() {
        let said = "\
test a ... FAILED
failures:
---- a stdout ----
it is not so
failures:
    a
test result: FAILED. 1 passed; 1 failed; 0 ignored; finished in 0.00s
test b ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; finished in 0.00s";
        let mut tested = Tested::default();
        said.lines().for_each(|line| tested.take(line));
        assert_eq!(tested.counts, Counts { passed: 2, failed: 1 });
        let kept: Vec<&str> = said.lines().skip(1).take(6).collect();
        assert_eq!(tested.failures, kept);
    }

    #[test]
    fn a_long_ending_takes_one_line_of_the_summary() {
        let line = summary_line("build", Duration::from_millis(1500), "FAILED: one\ntwo");
        assert_eq!(line, "build                 1.5 s  FAILED: one");
    }
}
