//! `homenode advise` as its users meet it: here, with nobody to look at, on a simulated
//! machine; and its manual page.

#[path = "support/man.rs"]
mod man;
#[path = "support/recording.rs"]
mod recording;
#[path = "support/two_nodes.rs"]
mod two_nodes;

use homenode_fixtures::{Folder, Leashed};
use recording::recording;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use two_nodes::two_nodes;

fn run(at: &Path, line: &str) -> Output {
    let machines = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines");
    Command::new(env!("CARGO_BIN_EXE_homenode"))
        .arg("advise")
        .args(line.split_whitespace().map(|w| w.replace("MACHINES", machines)))
        .current_dir(at)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .expect("the command runs")
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// A program that lives until the test is done with it.
fn sleeper() -> Leashed {
    Leashed::start(Command::new("sleep").arg("100"))
}

#[test]
fn bad_input_is_told_before_any_work() {
    let at = Folder::new();
    let cases = [
        ("", 2, "name the processes to look at"),
        ("--pid 1 --all", 2, "cannot be used with"),
        ("--pid 0", 2, "invalid value"),
        ("--pid 4194304 --for 1s", 2, "4194304"),
        ("--cgroup no/such/group --for 1s", 2, "no/such/group"),
        ("--all --for 0", 2, "0"),
        ("--all --for 0s", 2, "no span of time"),
        ("--all --source guess", 2, "invalid value"),
        ("--recording r.parquet", 2, "--machine"),
        ("--recording r.parquet --machine nowhere.toml", 2, "nowhere.toml"),
        ("--recording r.parquet --machine MACHINES/small.toml", 2, "r.parquet"),
        ("--pid 1 --dram half", 2, "--recording"),
        ("--pid 1 --machine nowhere.toml", 2, "nowhere.toml"),
        ("-- no-such-program-of-ours", 2, "no-such-program-of-ours"),
        ("--seen nowhere.seen", 2, "nowhere.seen"),
        ("--seen a.seen --pid 1", 2, "cannot be used with"),
        ("--seen a.seen --source damon", 2, "cannot be used with"),
        ("--pid 1 --record no/such/folder.seen", 2, "no/such"),
        ("--pid 1 --orders no/such/folder.txt", 2, "no/such"),
    ];
    for (line, code, part) in cases {
        let out = run(&at, line);
        let text = text(&out);
        assert_eq!(out.status.code(), Some(code), "{line}: {text}");
        assert!(text.contains(part), "{line}: {text}");
        assert!(!text.contains("panicked"), "{line}: {text}");
    }
}

#[test]
fn a_machine_that_is_another_ones_is_refused() {
    let at = Folder::new();
    let s = sleeper();
    let file = "MACHINES/sapphire-rapids-cxl.toml";
    let out = run(&at, &format!("--pid {} --machine {file} --for 1s", s.id()));
    let text = text(&out);
    match out.status.code() {
        Some(0) => println!("skipped: this machine has the same nodes as {file}"),
        code => {
            assert_eq!(code, Some(2), "{text}");
            assert!(text.contains("another machine"), "{text}");
        }
    }
}

#[test]
fn here_it_says_what_there_is_to_say() {
    let at = Folder::new();
    let s = sleeper();
    let out = run(&at, &format!("--pid {} --for 1s", s.id()));
    let page = text(&out);
    assert_eq!(out.status.code(), Some(0), "{page}");
    assert!(page.contains("what homenode would move (it was not moved)"), "{page}");
    // It sleeps: with one node there is nowhere to go, with more nothing is known or in use.
    assert!(page.contains("nothing: "), "{page}");
    let out = run(&at, &format!("--pid {} --for 1s --json", s.id()));
    let v: serde_json::Value = serde_json::from_slice(&out.stdout).expect("one JSON object");
    assert_eq!(v["moves"].as_array().map(Vec::len), Some(0), "{v}");
    assert_eq!(v["sum"]["pages"], 0);
    assert!(v["constants"].is_array() && v["left"].is_array(), "{v}");
}

#[test]
fn a_machine_of_two_nodes_without_heat_gets_what_needs_no_heat() {
    let at = Folder::new();
    let s = sleeper();
    two_nodes(&at, s.id());
    let line = format!("--pid {} --root {} --for 1s", s.id(), at.display());
    let page = text(&run(&at, &line));
    for part in [
        "nothing: residency only: where pages are is known",
        "evidence that is missing: cpu, heat",
        "for heat damon: ",
        "kernel.numa_balancing = 1: what is accessed, and from where, is not known",
        "demotion_enabled = false: what is hot and what is cold is not known",
        "echo 7 > /sys/kernel/mm/mempolicy/weighted_interleave/node0",
        "echo 2 > /sys/kernel/mm/mempolicy/weighted_interleave/node1",
        "undo  echo 1 > /proc/sys/vm/zone_reclaim_mode",
        "node 0 to node 1: 250 ns, 30000 MB/s, quoted: firmware's figure (HMAT)",
    ] {
        // Folded lines as one.
        let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
        let part = part.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(&part), "{part} is not in {page}");
    }
    assert!(!page.contains("ASSUMED"), "{page}");
    // A source that is named and lacks something is an error, before anything is set up.
    let out = run(&at, &format!("{line} --source damon"));
    assert_eq!(out.status.code(), Some(3), "{}", text(&out));
}

#[test]
fn a_program_is_looked_at_until_it_ends_and_its_code_is_handed_on() {
    let at = Folder::new();
    fs::write(at.join("end"), "echo its own words; sleep 1; exit 7\n").expect("a script");
    let out = run(&at, "-- sh end");
    assert_eq!(out.status.code(), Some(7), "{}", text(&out));
    assert_eq!(String::from_utf8_lossy(&out.stdout), "its own words\n");
    assert!(String::from_utf8_lossy(&out.stderr).contains("what homenode would move"));
}

#[test]
fn a_recording_is_advised_on_its_machine_with_the_effect_beside() {
    let at = Folder::new();
    recording(&at.join("toy.parquet"), |h| h.command.truncate(1));
    let line = "--recording toy.parquet --machine MACHINES/small.toml --add-node cxl:half --for 8s";
    let out = run(&at, &format!("{line} --json"));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    let v: serde_json::Value = serde_json::from_slice(&out.stdout).expect("one JSON object");
    // A thousand pages are hot and lie where they were touched last: on the expander.
    let up: u64 = v["moves"]
        .as_array()
        .expect("moves")
        .iter()
        .filter(|m| m["why"] == "hot")
        .filter_map(|m| m["pages"].as_u64())
        .sum();
    assert!((900..2500).contains(&up), "{up} pages up: {v}");
    assert!(v["sum"]["net"].as_f64().expect("a number") > 0.0, "{v}");
    let knobs: Vec<&str> =
        v["knobs"].as_array().expect("knobs").iter().filter_map(|k| k["knob"].as_str()).collect();
    assert!(knobs.contains(&"kernel.numa_balancing"), "{knobs:?}");
    let columns: Vec<&str> = v["effects"][0]["table"]["columns"]
        .as_array()
        .expect("columns")
        .iter()
        .filter_map(|c| c.as_str())
        .collect();
    assert_eq!(columns.first(), Some(&"present-knobs"));
    assert_eq!(columns.get(1), Some(&"suggested-knobs"));
    assert_eq!(columns.last(), Some(&"homenode-damon"));
    // The same words for people; and again the same.
    let page = text(&run(&at, line));
    for part in ["in use on a slow node", "not if: ", "undo  echo 1 > /proc", "simulated effect"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert_eq!(page, text(&run(&at, line)), "it repeats");
    // Without heat nothing is said on a guess.
    let page = text(&run(&at, &format!("{line} --source residency")));
    assert!(page.contains("residency only") && page.contains("cpu, heat"), "{page}");
    assert!(!page.contains("kernel.numa_balancing: 1 ->"), "{page}");
}

/// Whether two outputs are the same, but for the sentences that a simulated machine adds.
fn alike(a: &Output, b: &Output) -> bool {
    let of = |out: &Output| {
        let v: serde_json::Value = serde_json::from_slice(&out.stdout).expect("one JSON object");
        ["moves", "sum", "rest", "knobs", "constants", "source", "looked_seconds"]
            .map(|key| v[key].to_string())
    };
    of(a) == of(b)
}

#[test]
fn what_was_seen_on_one_machine_is_advised_on_another_order_by_order() {
    let at = Folder::new();
    recording(&at.join("toy.parquet"), |h| h.command.truncate(1));
    let line = "--recording toy.parquet --machine MACHINES/small.toml --add-node cxl:half --for 8s";
    let then = run(&at, &format!("{line} --json --record toy.seen --orders then"));
    assert_eq!(then.status.code(), Some(0), "{}", text(&then));
    let orders = fs::read_to_string(at.join("then")).expect("orders");
    assert!(orders.lines().count() > 2, "{orders}");
    assert!(orders.lines().all(|l| l.contains(" move ") && l.contains(" saves ")), "{orders}");
    let now = run(&at, "--seen toy.seen --json --orders now");
    assert_eq!(now.status.code(), Some(0), "{}", text(&now));
    assert_eq!(orders, fs::read_to_string(at.join("now")).expect("orders"));
    assert!(alike(&then, &now), "{} and {}", text(&then), text(&now));
    assert!(!text(&now).contains("otherwise"), "{}", text(&now));

    // Other settings are another policy: it is said where it differs, and it goes on.
    fs::write(at.join("slow.toml"), "[budget]\nstart_delay = \"3s\"\n").expect("a file");
    let page = text(&run(&at, "--seen toy.seen --config slow.toml --orders slow"));
    assert!(page.contains("the policy now decides otherwise"), "{page}");
    let slow = fs::read_to_string(at.join("slow")).expect("orders");
    assert!(slow.lines().count() > 2 && slow != orders, "{slow}");

    // A machine with other nodes is another one.
    let other = run(&at, "--seen toy.seen --machine MACHINES/sapphire-rapids-cxl.toml");
    assert_eq!(other.status.code(), Some(2), "{}", text(&other));
    assert!(text(&other).contains("another machine"), "{}", text(&other));

    // Cut off in the middle.
    let bytes = fs::read(at.join("toy.seen")).expect("a recording");
    fs::write(at.join("cut.seen"), &bytes[..bytes.len() * 2 / 3]).expect("a part of it");
    let cut = run(&at, "--seen cut.seen --orders cut");
    assert_eq!(cut.status.code(), Some(0), "{}", text(&cut));
    let flat = text(&cut).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("cut.seen was cut off behind"), "{flat}");
    let part = fs::read_to_string(at.join("cut")).expect("orders");
    assert!(orders.starts_with(&part), "{part}");

    // Damaged, of another version, something else.
    // A block is one byte of its kind, three of its length, a checksum, contents; ten bytes stand
    // before the first one.
    let mut bytes = bytes;
    let first = u32::from_le_bytes([bytes[11], bytes[12], bytes[13], 0]) as usize;
    bytes[10 + 4 + first + 4 + 4 + 4] ^= 1;
    fs::write(at.join("bad.seen"), bytes).expect("a file");
    for (file, part) in [("bad.seen", "damaged"), ("toy.parquet", "it does not begin as")] {
        let out = run(&at, &format!("--seen {file}"));
        assert_eq!(out.status.code(), Some(2), "{}", text(&out));
        let text = text(&out);
        assert!(text.contains(part) && text.contains(file) && !text.contains("panicked"), "{text}");
    }
}

#[test]
fn what_was_seen_here_is_told_again() {
    let at = Folder::new();
    let s = sleeper();
    two_nodes(&at, s.id());
    let line = format!("--pid {} --root {} --for 1s", s.id(), at.display());
    let then = run(&at, &format!("{line} --record here.seen"));
    assert_eq!(then.status.code(), Some(0), "{}", text(&then));
    let now = run(&at, "--seen here.seen");
    assert_eq!(
        String::from_utf8_lossy(&then.stdout),
        String::from_utf8_lossy(&now.stdout),
        "all that it says"
    );
    assert_eq!(text(&run(&at, "--seen here.seen")), text(&now), "it repeats");
}

#[test]
fn the_manual_page_has_every_option() {
    let page = man::page("homenode-advise.1");
    let out = run(&Folder::new(), "--help");
    let help = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(help.contains("Example:\n  homenode advise"), "{help}");
    // Options begin a line of their own; the text speaks of others' options too.
    let begins: String = help
        .lines()
        .filter(|l| l.trim_start().starts_with('-'))
        .map(|l| format!(" {}\n", l.trim_start().trim_start_matches("-h, ")))
        .collect();
    let mut real = man::options(&begins, " --");
    real.remove("help");
    assert_eq!(real, man::options(&page, "Fl -"));
}
