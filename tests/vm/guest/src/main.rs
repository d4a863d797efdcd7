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

mod act;
mod advise;
mod asked;
mod bounds;
mod commands;
mod conform;
mod cost;
mod crowd;
mod damon;
mod doctor;
mod endtoend;
mod flush;
mod hints;
mod init;
mod ksm;
mod load;
mod memory;
mod merge;
mod observe;
mod offline;
mod orders;
mod parity;
mod places;
mod process;
mod sched;
mod scx;
mod seen;
mod stage;
mod stats;
mod told;
mod topology;

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Error, Result, bail};
use serde_json::{Value, json};

use asked::Asked;

/// What a test saw that found nothing wrong; or what is wrong, or a [`Skip`].
type TestResult = Result<Value>;

/// Why this guest can't show what a test is about, as an error that ends the test.
#[derive(Debug)]
struct Skip(String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a test found to differ, with what was seen all the same.
#[derive(Debug)]
struct Differs {
    why: String,
    facts: Value,
}

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

fn skip(why: impl Into<String>) -> Error {
    Error::msg(Skip(why.into()))
}

/// Skips the test unless this guest has what it takes.
fn needs(there: bool, why: &str) -> Result<()> {
    if there { Ok(()) } else { Err(skip(why)) }
}

struct Test {
    name: &'static str,
    about: &'static str,
    /// It is ended after this time.
    limit: Duration,
    /// Whether it takes the guest with it.
    hangs: bool,
    run: fn(&Asked) -> TestResult,
}

const fn test(name: &'static str, about: &'static str, run: fn(&Asked) -> TestResult) -> Test {
    // Many times what they take, for hosts that are busy with other things.
    Test { name, about, limit: Duration::from_secs(240), hangs: false, run }
}

/// A test that waits for a minute for what homenode decides.
const fn long(test: Test) -> Test {
    Test { limit: Duration::from_secs(600), ..test }
}

const TESTS: &[Test] = &[
    test(
        "topology",
        "what homenode reads from sysfs is the machine that was asked for",
        topology::as_asked,
    ),
    // Before all that fills nodes: a kswapd that has failed 16 times in a row, as it does
    // where it must not demote, leaves its node alone from then on.
    test(
        "slow-start",
        "S0: bursts on a wrong node, on this kernel and on the simulated one",
        endtoend::slow_start,
    ),
    test(
        "home",
        "a task away from its memory comes home, on this kernel and on the simulated one",
        endtoend::home,
    ),
    test(
        "lists",
        "kswapd's active and inactive lists, on this kernel and on the simulated one",
        endtoend::lists_of,
    ),
    long(test(
        "pressure-loop",
        "a loop over 1.2 times the fast node, on this kernel and on the simulated one",
        endtoend::pressure_loop,
    )),
    long(test(
        "pressure-beside",
        "a hot set beside memory that is touched once, on this kernel and on the simulated one",
        endtoend::pressure_beside,
    )),
    // After it kswapd has given up.
    long(test(
        "pressure-fill",
        "a fill beyond all tiers, on this kernel and on the simulated one",
        endtoend::pressure_fill,
    )),
    test(
        "huge-pages",
        "who gets huge pages at a first touch, on this kernel and on the simulated one",
        endtoend::huge,
    ),
    test(
        "huge-collapse",
        "what khugepaged makes of base pages, on this kernel and on the simulated one",
        endtoend::huge_collapse,
    ),
    test(
        "huge-demotion",
        "huge pages on their way down, whole or split, on this kernel and on the simulated one",
        endtoend::huge_demotion,
    ),
    long(test(
        "tiering",
        "S1: a hot set on the slow node, on this kernel and on the simulated one",
        endtoend::tiering,
    )),
    test(
        "remote-flush",
        "how often moves of base pages and of huge ones interrupt another CPU of the process",
        flush::remote,
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
        "ksm-offline",
        "S4: a node's memory goes with a merged page on it, and comes back",
        ksm::offline,
    ),
    test(
        "merge-estimate",
        "homenode's estimate per node and across is what ksmd then reaches",
        commands::merge_estimate,
    ),
    test(
        "merge-drive",
        "S4: driven within nodes, with pages of others merged on all of them before and after",
        merge::drives,
    ),
    test(
        "measure",
        "homenode measures every pair of nodes, and moves between them",
        commands::measure,
    ),
    test(
        "doctor",
        "what homenode says a kernel offers is what happens if one tries",
        doctor::told_as_tried,
    ),
    test(
        "damon-heat",
        "DAMON tells which of two processes is hot, and leaves no slot",
        damon::heat,
    ),
    test(
        "conformance",
        "the bodies about orders hold on this kernel as they do on the simulated one",
        conform::machine,
    ),
    long(test(
        "conformance-engine",
        "the bodies about the engine, with heat that is the truth: what it orders is carried out",
        conform::engine,
    )),
    long(test("conformance-damon", "the same, with heat that DAMON tells", conform::by_damon)),
    test("places", "homenode finds pages on every node where they are", places::as_counted),
    test("places-sparse", "a mapping of 1 TiB costs what is in it", places::sparse),
    test(
        "places-refused",
        "another user's process is passed over and counted",
        places::unprivileged,
    ),
    test(
        "move-orders",
        "huge, shared and bound pages, and a full node: what moves, and why the rest does not",
        orders::orders,
    ),
    test("node-offline", "a node's memory goes while homenode looks", offline::offline),
    test(
        "hint-faults",
        "hint faults of who is watched are seen with page and nodes; overruns are counted",
        hints::faults,
    ),
    test("hint-ages", "under tiering, faults of slow pages tell how long ago", hints::ages),
    test(
        "observe",
        "homenode observe tells where a process has its memory, and what DAMON says of it",
        observe::observe,
    ),
    test(
        "observe-hints",
        "homenode observe by hint faults tells on which nodes memory was accessed",
        observe::by_hint_faults,
    ),
    test("advise", "what would be moved is said, and nothing is", advise::nothing_is_moved),
    long(test(
        "advise-seen",
        "what was told is told again: the same orders, byte for byte",
        seen::told_again,
    )),
    long(test(
        "act",
        "a hot set on the slow node comes to a fast one, a burst stays; all of it is in the ledger",
        act::hot_set_comes_up,
    )),
    test(
        "act-kernel",
        "the kernel's knobs are set, watched and put back, and after SIGKILL by restore",
        act::kernel,
    ),
    long(test(
        "act-killed",
        "homenode is killed while it moves pages: nothing is left behind but them",
        act::killed,
    )),
    long(test(
        "act-trial",
        "windows with moves and without: a program whose memory comes up only in the former",
        act::trial_pays,
    )),
    long(test(
        "act-trial-holds",
        "a process that goes on: in windows without nothing moves; without a metric no verdict",
        act::trial_holds,
    )),
    long(test(
        "act-begin",
        "memory of a program that is started goes first to slow nodes, to fast ones, to all in turns",
        act::begin,
    )),
    long(test(
        "act-limits",
        "who is excluded is neither advised nor moved; a cgroup's count by node is right",
        act::limits,
    )),
    long(test(
        "act-faults",
        "SIGTERM, SIGSTOP, a clock that jumps, a full disk, a cgroup that vanishes, 10,000 processes",
        act::faults,
    )),
    long(test(
        "act-rights",
        "with the capabilities of homenode.service alone another user's memory comes up",
        act::least,
    )),
    long(test(
        "act-service",
        "homenode.service under systemd: ready, moves, its watchdog, a crash, an end; all is put back",
        act::service,
    )),
    long(test(
        "act-full",
        "S1: hot sets come up to a full node, one after the other; nobody reclaims, hardly a page goes twice",
        act::full,
    )),
    long(test(
        "act-burst",
        "S0: a young burst is not even looked at, an older one's pages come home",
        act::burst,
    )),
    long(test(
        "act-threads",
        "S0: a thread whose memory is on another node, and too much to follow it, comes home",
        act::threads,
    )),
    long(test(
        "act-floor",
        "a cgroup's floor holds while somebody else wants its memory, and without it does not",
        act::floor,
    )),
    Test {
        limit: Duration::from_secs(1800),
        ..test("live-peers", "homenode beside mode 2 and DAMOS on the same hot sets", act::peers)
    },
    long(test(
        "move-throughput",
        "homenode's mover beside a bare loop of its calls: how many, of how many pages",
        act::throughput,
    )),
    long(test(
        "observe-heat",
        "what looking at 100 processes takes, by each source of heat",
        cost::observe,
    )),
    long(test(
        "act-story",
        "observe, advise, act, ledger, a crash, restore: what people see on a terminal",
        act::story,
    )),
    test("damon-targets", "DAMON's targets come, end and exec; the others stay", damon::targets),
    test("damon-restore", "a slot of DAMON is taken down after SIGKILL", damon::restores),
    test("damon-others", "a slot of DAMON that is somebody else's is left alone", damon::others),
    // Machines that run nothing else: their time is counted in instructions.
    long(test(
        "sched-script",
        "who is woken, moved and switched where, as boots before have recorded it",
        sched::scripted,
    )),
    long(test(
        "sched-switch",
        "statistics off, on, off, on: what is counted, and a stamp that was left behind",
        sched::switched,
    )),
    long(test(
        "sched-parity",
        "this kernel's own choices of CPUs, beside the header's for the same inputs",
        parity::parity,
    )),
    test(
        "stats-pattern",
        "a load of known pattern: wake-ups and times that homenode stats tells",
        stats::pattern,
    ),
    test(
        "stats-kernel",
        "homenode's statistics beside the kernel's own, and the switch put back",
        stats::kernel,
    ),
    test(
        "stats-faults",
        "many tasks, a number used again, a CPU that goes and comes, a kill",
        stats::faults,
    ),
    test(
        "record-replay",
        "a load is recorded, and does the same when it is replayed",
        stats::recorded,
    ),
    long(test(
        "scx-two-tasks",
        "S3: two tasks under homenode's scheduler, with the recently used CPU and without",
        scx::two_tasks,
    )),
    long(test("scx-loads", "loads of many tasks run to their end under it", scx::loads)),
    test("scx-cgroup", "it has the tasks of a cgroup, and gives them back", scx::cgroup),
    test("scx-watchdog", "one that runs no task is thrown out, and tasks go on", scx::watchdog),
    test("scx-ends", "another one, a kill, a program that fails: how it ends", scx::ends),
    test("canary-fails", "has to fail, so that silence means something", canary),
    Test {
        limit: Duration::from_secs(5),
        hangs: true,
        ..test("canary-hangs", "has to hang, so that its guest is ended", canary)
    },
];

fn canary(_: &Asked) -> TestResult {
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
        ["--beside", ref args @ ..] => child("a program beside homenode", act::beside(args)),
        ["--load", ref args @ ..] => child("a load", load::run(args)),
        ["--crowd", ref args @ ..] => child("a crowd", crowd::run(args)),
        ["--merged", ref args @ ..] => child("a merged program", merge::program(args)),
        ["--program", ref args @ ..] => child("a program", endtoend::program::run(args)),
        _ => {
            eprintln!("usage: homenode-guest --list | --test NAME");
            ExitCode::from(2)
        }
    }
}

/// How a process ends that a test started.
fn child(what: &str, done: Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{what}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn result(test: &Test) -> Value {
    match Asked::read().and_then(|asked| (test.run)(&asked)) {
        Ok(facts) => json!({"verdict": "passed", "facts": facts}),
        Err(error) => {
            if let Some(Skip(why)) = error.downcast_ref::<Skip>() {
                return json!({"verdict": "skipped", "why": why});
            }
            let facts = error.downcast_ref::<Differs>().map(|differs| &differs.facts);
            json!({"verdict": "failed", "why": format!("{error:#}"), "facts": facts})
        }
    }
}
