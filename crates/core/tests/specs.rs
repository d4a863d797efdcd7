//! Every `Source:` of the core points at a section that exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// All `specs/<file>.md` with an optional `#anchor` in `text`.
fn citations(text: &str) -> Vec<(String, Option<String>)> {
    text.match_indices("specs/")
        .filter_map(|(at, _)| {
            let word: String = text[at..]
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || "/-.#_".contains(*c))
                .collect();
            let end = word.find(".md")? + 3;
            let anchor = word[end..].strip_prefix('#').map(|a| a.trim_end_matches('.').to_owned());
            Some((word[..end].to_owned(), anchor))
        })
        .collect()
}

#[test]
fn citations_are_found() {
    let text = "see specs/numa.md#pte, specs/exceptions/x-1.md. and specs/ alone";
    let expected = [
        ("specs/numa.md".to_owned(), Some("pte".to_owned())),
        ("specs/exceptions/x-1.md".to_owned(), None),
    ];
    assert_eq!(citations(text), expected);
}

#[test]
fn every_source_exists() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.join("../..");
    let mut files = Vec::new();
    rust_files(&here.join("src"), &mut files);
    let mut missing = BTreeSet::new();
    let mut nr_found = 0;
    for file in files {
        for (spec, anchor) in citations(&fs::read_to_string(&file).unwrap()) {
            let text = fs::read_to_string(root.join(&spec)).unwrap_or_default();
            let there = match &anchor {
                Some(a) => text.contains(&format!("<a id=\"{a}\"></a>")),
                None => !text.is_empty(),
            };
            if there {
                nr_found += 1;
            } else {
                missing.insert(format!("{}: {spec} {anchor:?}", file.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(nr_found > 50, "only {nr_found} citations found");
}
