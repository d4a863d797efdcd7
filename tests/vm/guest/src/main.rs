//! What runs inside of a test guest: the first program (`init`), and tests of
//! homenode on a real kernel with several nodes.
//!
//! ```text
//! homenode-guest --list          names of the tests, what they show
//! homenode-guest --test NAME     runs one, prints its result as one JSON line
//! ```
//!
//! What a test asks the kernel for goes through calls of its own (`memory`), not
//! through `homenode-live`: one of the two has to notice if the other is wrong.
//! Emulation says nothing about speed: no test looks at time.

mod asked;
mod commands;
mod endtoend;
mod init;
mod ksm;
mod load;
mod memory;
mod topology;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use asked::Asked;

/// How a test ended that found nothing wrong.
enum Outcome {
    /// With what it saw.
    Passed(Value),
    /// Why this guest can't show it.
    Skipped(String),
}

struct Test {
    name: &'static str,
    about: &'static str,
    /// It is ended after this time.
    limit: Duration,
    /// Whether it takes the guest with it.
    hangs: bool,
    run: fn(&Asked) -> Result<Outcome>,
}

const fn test(name: &'static str, about: &'static str, run: fn(&Asked) -> Result<Outcome>) -> Test {
    // Many times what they take, for hosts that are busy with other things.
    Test { name, about, limit: Duration::from_secs(240), hangs: false, run }
}

const TESTS: &[Test] = &[
    test(
        "topology",
        "what homenode reads from sysfs is the machine that was asked for",
        topology::as_asked,
    ),
    test("move-pages", "pages go from every node to every other, and stay there", memory::moves),
    test(
        "ksm-per-node",
        "merging per node, and after merged pages moved to other nodes",
        ksm::per_node,
    ),
    test(
        "ksm-switch",
        "when merge_across_nodes can be switched, and what it says else",
        ksm::switch,
    ),
    test(
        "merge-estimate",
        "homenode's estimate per node and across is what ksmd then reaches",
        commands::merge_estimate,
    ),
    test(
        "measure",
        "homenode measures every pair of nodes, and moves between them",
        commands::measure,
    ),
    test(
        "slow-start",
        "S0: bursts on a wrong node, on this kernel and on the simulated one",
        endtoend::slow_start,
    ),
    Test {
        // A dozen cases, each of which fills a node.
        limit: Duration::from_secs(600),
        ..test(
            "tiering",
            "S1: a hot set on the slow node, on this kernel and on the simulated one",
            endtoend::tiering,
        )
    },
    test("canary-fails", "has to fail, so that silence means something", canary),
    Test {
        limit: Duration::from_secs(5),
        hangs: true,
        ..test("canary-hangs", "has to hang, so that its guest is ended", canary)
    },
];

fn canary(_: &Asked) -> Result<Outcome> {
    bail!("a canary: this test always fails")
}

fn main() -> ExitCode {
    // SAFETY: it only asks.
    if unsafe { libc::getpid() } == 1 {
        init::run();
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--list"] => {
            for test in TESTS {
                println!("{}\t{}", test.name, test.about);
            }
            ExitCode::SUCCESS
        }
        ["--test", name] => match TESTS.iter().find(|test| test.name == name) {
            Some(test) => {
                println!("{}", result(test));
                ExitCode::SUCCESS
            }
            None => {
                eprintln!("there is no test `{name}`; --list shows them");
                ExitCode::from(2)
            }
        },
        // What end-to-end tests start.
        ["--load", ref words @ ..] => {
            if let Err(error) = load::run(words) {
                eprintln!("{error:#}");
            }
            ExitCode::FAILURE
        }
        _ => {
            eprintln!("usage: homenode-guest --list | --test NAME");
            ExitCode::from(2)
        }
    }
}

fn result(test: &Test) -> Value {
    match Asked::read().and_then(|asked| (test.run)(&asked)) {
        Ok(Outcome::Passed(facts)) => json!({"verdict": "passed", "facts": facts}),
        Ok(Outcome::Skipped(why)) => json!({"verdict": "skipped", "why": why}),
        Err(error) => json!({"verdict": "failed", "why": format!("{error:#}")}),
    }
}
