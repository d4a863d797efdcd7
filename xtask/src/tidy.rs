//! What no compiler checks: stray paths, unfinished places, big files, citations
//! that lead nowhere, arrows between rooms, files in circles, licences, and a core that touches nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::Ending;
use crate::circles;
use crate::citations;
use crate::workspace::{Workspace, text_of};

/// Pages made up for tests, which link to others that are not there.
const MADE_UP: &str = "xtask/src/guide/tests.rs";
/// A larger file is data that belongs in a download or is made by a command.
const FILE_BYTES_MAX: u64 = 1_000_000;

/// The oldest Rust that all crates have to build with, as in `Cargo.toml`.
const RUST_OLDEST: (u64, u64) = (1, 85);

/// Which rooms a room may depend on; `ARCHITECTURE.md` says why. A new arrow
/// needs a design note first, a new room a row here. `None`: on any.
const ARROWS: &[(&str, Option<&[&str]>)] = &[
    ("homenode-core", Some(&[])),
    ("homenode-wake", Some(&["homenode-core"])),
    ("homenode-bpf", Some(&["homenode-core", "homenode-wake"])),
    ("homenode-trace", Some(&["homenode-core"])),
    ("homenode-config", Some(&["homenode-core"])),
    ("homenode-report", Some(&["homenode-core"])),
    ("homenode-live", Some(&["homenode-bpf", "homenode-core", "homenode-machine"])),
    ("homenode-merge", Some(&["homenode-core", "homenode-live"])),
    (
        "homenode-measure",
        Some(&["homenode-core", "homenode-live", "homenode-merge", "homenode-trace"]),
    ),
    ("homenode-recorder", Some(&["homenode-core", "homenode-trace"])),
    ("homenode-machine", Some(&["homenode-core"])),
    (
        "homenode-sim",
        Some(&["homenode-core", "homenode-machine", "homenode-trace", "homenode-wake"]),
    ),
    ("homenode-cli", None),
    ("homenode-fixtures", Some(&["homenode-core", "homenode-live", "homenode-merge"])),
    (
        "homenode-guest",
        Some(&[
            "homenode-bpf",
            "homenode-core",
            "homenode-live",
            "homenode-machine",
            "homenode-sim",
            "homenode-wake",
        ]),
    ),
    ("own-policy", Some(&["homenode-cli", "homenode-core", "homenode-machine"])),
    ("xtask", Some(&[])),
];

/// Licences under which a dependency can go into MIT OR Apache-2.0 programs.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// Words that no tracked text file holds, and why. They are cut in two here so
/// that this file passes.
const STRAYS: &[(&str, &str)] = &[
    (concat!("/ho", "me/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/Us", "ers/"), "a path of one machine"),
];

/// The same for Rust sources.
const STUBS: &[(&str, &str)] = &[
    (concat!("to", "do!("), "an unfinished place"),
    (concat!("unimple", "mented!("), "an unfinished place"),
    (concat!("#[ig", "nore"), "a test that is switched off"),
    (concat!("FIX", "ME"), "an unfinished place"),
    (concat!("&& l", "et "), "a chain, which came with Rust 1.88"),
];

/// What the pure core never names: it is told, and it answers.
const IMPURE: &[&str] = &[
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "std::thread",
    "std::time",
    "unsafe {",
];

pub(crate) fn run(ws: &Workspace) -> Result<Ending> {
    let mut found = check_tree(ws)?;
    found.extend(check_arrows(ws.members()));
    found.extend(check_dependencies(ws.packages()));
    for line in &found {
        println!("{line}");
    }
    if found.is_empty() {
        println!("tidy: nothing found");
        Ok(Ending::Done)
    } else {
        println!("tidy: {} found", found.len());
        Ok(Ending::Failed)
    }
}

fn check_tree(ws: &Workspace) -> Result<Vec<String>> {
    // CI may check out as one user and build as another, which git refuses unless told.
    let git = ["-c", "safe.directory=*", "ls-files", "-z"];
    let names = text_of(Command::new("git").current_dir(&ws.root).args(git))
        .context("the list of tracked files comes from git")?;
    let mut found = Vec::new();
    let (mut tracked, mut texts) = (BTreeSet::new(), BTreeMap::new());
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        let path = ws.root.join(name);
        // A file that is deleted but not yet committed so isn't there to check.
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if !meta.is_file() {
            continue;
        }
        tracked.insert(name.to_owned());
        if meta.len() > FILE_BYTES_MAX {
            found.push(format!("{name}: {} bytes, more than {FILE_BYTES_MAX}", meta.len()));
            continue;
        }
        let bytes = fs::read(&path).with_context(|| format!("can't read {name}"))?;
        // Recordings and pictures are not text.
        if let Ok(text) = String::from_utf8(bytes) {
            found.extend(check_text(name, &text));
            if !is_printed(name) && !name.ends_with(".lock") && name != MADE_UP {
                texts.insert(name.to_owned(), text);
            }
        }
    }
    found.extend(citations::check(&tracked, &texts));
    found.extend(circles::check(&texts));
    Ok(found)
}

/// What a program or a kernel printed is kept as it was printed.
fn is_printed(name: &str) -> bool {
    [".txt", ".snap", ".golden"].iter().any(|end| name.ends_with(end))
        || name.contains("/fixtures/")
}

fn check_text(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    if name.ends_with(".lock") {
        return found;
    }
    let rust = name.ends_with(".rs");
    let printed = is_printed(name);
    for (index, line) in text.split('\n').enumerate() {
        let at = index + 1;
        if !printed && line.ends_with([' ', '\t', '\r']) {
            found.push(format!("{name}:{at}: trailing blank"));
        }
        let stubs = if rust { STUBS } else { &[] };
        for (word, why) in STRAYS.iter().chain(stubs) {
            if stands_in(line, word) {
                found.push(format!("{name}:{at}: `{word}`: {why}"));
            }
        }
        if name.starts_with("crates/core/src/") {
            let code = line.split("//").next().unwrap_or_default();
            for word in IMPURE.iter().filter(|word| code.contains(*word)) {
                found.push(format!(
                    "{name}:{at}: `{word}`: core is told what happened, it doesn't look"
                ));
            }
        }
    }
    if rust {
        let at = |byte: usize| text[..byte].matches('\n').count() + 1;
        let chains = chains(text).into_iter();
        found.extend(chains.map(|byte| {
            format!("{name}:{}: a condition beside a `let`: chains came with Rust 1.88", at(byte))
        }));
    }
    if !text.is_empty() && !text.ends_with('\n') {
        found.push(format!("{name}: no newline at the end"));
    }
    found
}

/// Where an `if let` or `while let` has a condition behind what it takes apart, on the same line or on the next ones.
fn chains(text: &str) -> Vec<usize> {
    let begins = ["if ", "while "].map(|word| format!("{word}let "));
    let all = begins.iter().flat_map(|word| text.match_indices(word.as_str()));
    let chain = |&(at, _): &(usize, &str)| {
        // In a string or a comment it is no code.
        let line = text[..at].rsplit('\n').next().unwrap_or_default();
        if line.contains("//") || line.contains('"') {
            return false;
        }
        let Some((pattern, _)) = text[at..].split_once(" = ") else { return false };
        let (mut depth, mut last) = (0, ' ');
        for c in text[at + pattern.len()..].chars() {
            match c {
                '(' | '[' => depth += 1,
                ')' | ']' => depth -= 1,
                '{' if depth == 0 => return false,
                '&' if depth == 0 && last == '&' => return true,
                _ => {}
            }
            last = c;
        }
        false
    };
    all.filter(chain).map(|(at, _)| at).collect()
}

/// Whether the word is there and, if it begins as a path does, begins a path:
/// `/sys/x/home/y` is somebody else's folder.
fn stands_in(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !word.starts_with('/')
            || !before.is_some_and(|c| c.is_alphanumeric() || "_.-}*".contains(c))
    })
}

/// Arrows that a build uses; tests may reach further.
fn check_arrows<'a>(members: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let mut found = Vec::new();
    for member in members {
        let name = text(member, "name");
        let Some((_, allowed)) = ARROWS.iter().find(|(room, _)| *room == name) else {
            found.push(format!("{name}: a new room needs its row in xtask/src/tidy.rs, ARROWS"));
            continue;
        };
        for dependency in list(member, "dependencies").filter(|d| d["kind"] != "dev") {
            let to = text(dependency, "name");
            // A dependency by path is one of our rooms.
            let ours = !dependency["path"].is_null();
            if ours && allowed.is_some_and(|rooms| !rooms.contains(&to)) {
                found.push(format!(
                    "{name} -> {to}: this arrow is not in xtask/src/tidy.rs, ARROWS"
                ));
            } else if name == "homenode-core" {
                found.push(format!("{name} -> {to}: core depends on nothing"));
            }
        }
    }
    found
}

fn check_dependencies<'a>(packages: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let mut found = Vec::new();
    for package in packages {
        let named = format!("{} {}", text(package, "name"), text(package, "version"));
        match package["license"].as_str() {
            None => found.push(format!("{named}: names no licence")),
            Some(licence) if !licence_fits(licence) => {
                found.push(format!(
                    "{named}: its licence is {licence}, see xtask/src/tidy.rs, LICENCES"
                ));
            }
            Some(_) => {}
        }
        if let Some(needs) = package["rust_version"].as_str() {
            let mut parts = needs.split('.').map_while(|part| part.parse::<u64>().ok());
            let needed = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
            if needed > RUST_OLDEST {
                found.push(format!(
                    "{named}: needs Rust {needs}, but we promise {}.{}",
                    RUST_OLDEST.0, RUST_OLDEST.1
                ));
            }
        }
    }
    found
}

/// Whether an SPDX expression can be met by [`LICENCES`]. `/` is the old way of
/// writing OR. What stands in brackets is judged first, the innermost one before the others.
fn licence_fits(expression: &str) -> bool {
    if let Some((before, rest)) = expression.rsplit_once('(') {
        let Some((inner, after)) = rest.split_once(')') else { return false };
        let met = if licence_fits(inner) { LICENCES[0] } else { "" };
        return licence_fits(&format!("{before}{met}{after}"));
    }
    let any = expression.replace('/', " OR ");
    any.split(" OR ").any(|all| all.split(" AND ").all(|one| LICENCES.contains(&one.trim())))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_stray_is_found_where_it_stands() {
        let text = format!("fine\nin {}me/jo/x \n{}!()\nlast", "/ho", concat!("to", "do"));
        let found = check_text("crates/sim/src/lib.rs", &text).join("\n");
        for expected in [":2: trailing blank", ":2: `/ho", ":3: `to", "no newline at the end"] {
            assert!(found.contains(expected), "{expected} in {found}");
        }
        let shown = check_text("crates/live/tests/fixtures/proc/7.3/status", "Groups:\t \n");
        assert!(shown.is_empty(), "{shown:?}");
    }

    #[test]
    fn conditions_beside_a_let_are_found() {
        let bad = "fn f() {\n    if let Some(a) = b(c)\n        && d\n    {\n    }\n    while let X { y } = z && w {}\n}\n";
        let found = check_text("crates/sim/src/lib.rs", bad);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains(":2: ") && found[1].contains(":6: "), "{found:?}");
        let good = "fn f() {\n    if let Some(a) = b(c && d).filter(|x| *x && y) {\n        e && g;\n    }\n}\n";
        assert_eq!(check_text("crates/sim/src/lib.rs", good), Vec::<String>::new());
    }

    #[test]
    fn a_folder_of_the_same_name_elsewhere_is_no_stray() {
        assert!(check_text("a.md", "https://example.org/some/home/page\n").is_empty());
        assert!(check_text("Cargo.lock", concat!("/ro", "ot/x")).is_empty());
    }

    #[test]
    fn the_core_looks_at_nothing() {
        let bad = "use std::time::Instant;\n// std::fs in a comment is fine\n";
        let found = check_text("crates/core/src/numa.rs", bad);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(check_text("crates/live/src/numa.rs", bad).is_empty());
    }

    fn member(name: &str, dependencies: Value) -> Value {
        json!({ "name": name, "dependencies": dependencies })
    }

    #[test]
    fn arrows_outside_the_table_are_found() {
        let inward = json!([{ "name": "homenode-core", "path": "x", "kind": null }]);
        let outward = json!([{ "name": "homenode-live", "path": "x", "kind": null }]);
        let foreign = json!([{ "name": "serde", "kind": null }]);
        let tests_only = json!([{ "name": "proptest", "kind": "dev" }]);
        let check = |value: Value| check_arrows([&value].into_iter()).len();
        assert_eq!(check(member("homenode-trace", inward)), 0);
        assert_eq!(check(member("homenode-sim", outward.clone())), 1);
        assert_eq!(check(member("homenode-cli", outward)), 0);
        assert_eq!(check(member("homenode-core", foreign.clone())), 1);
        assert_eq!(check(member("homenode-sim", foreign)), 0);
        assert_eq!(check(member("homenode-core", tests_only)), 0);
        assert_eq!(check(member("homenode-attic", json!([]))), 1);
    }

    #[test]
    fn licences_are_read_as_expressions() {
        for fits in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
        ] {
            assert!(licence_fits(fits), "{fits}");
        }
        for unfit in [
            "GPL-2.0",
            "MIT AND GPL-3.0",
            "(MIT OR GPL-2.0) AND LGPL-2.1",
            "Apache-2.0 WITH Odd-exception",
            "(MIT",
            "",
        ] {
            assert!(!licence_fits(unfit), "{unfit}");
        }
    }

    #[test]
    fn dependencies_need_a_licence_and_an_old_enough_rust() {
        let check = |value: Value| check_dependencies([&value].into_iter()).len();
        assert_eq!(check(json!({ "name": "a", "license": "MIT", "rust_version": "1.85.1" })), 0);
        assert_eq!(check(json!({ "name": "a", "license": "MIT", "rust_version": "1.86" })), 1);
        assert_eq!(check(json!({ "name": "a" })), 1);
    }
}
