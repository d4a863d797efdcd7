//! Whether each citation in the tree leads somewhere.
//!
//! A comment says where a rule comes from as `<folder>/<file>.md#<anchor>`, so that a
//! reader can go and look. That holds only while the file, the anchor and the section
//! are there. Folders are `specs` and `docs`; a text below one of them may name its
//! neighbours without it.
//!
//! ```text
//! a comment in crates/core           a specification
//! Source: numa.md#pte, in specs ──▶  ## 7. Which entries are marked <a id="pte"></a>
//! ```
//!
//! Beside that: an anchor is there once and is cited, an exception says what and why and
//! is cited, and no text names a document that only its author has.

use crate::markdown::{Markdown, joined};
use std::collections::{BTreeMap, BTreeSet};

/// Where documents stand that are cited by their path from the root.
const FOLDERS: &[&str] = &["specs/", "docs/"];
/// Where we depart from Linux on purpose, one file each.
const EXCEPTIONS: &str = "specs/exceptions/";
/// The index of the specifications. It names all, so it doesn't count as a use.
const INDEX: &str = "specs/README.md";
/// What to do about a text that nothing leads to.
const CITE_IT: &str = "cite it where the code does so or a test holds it";

/// What is wrong, each with its place.
///
/// * `tracked` – every path of the tree.
/// * `texts` – those to look into, path and contents.
pub(crate) fn check(tracked: &BTreeSet<String>, texts: &BTreeMap<String, String>) -> Vec<String> {
    let mut found = Vec::new();
    let mut documents = BTreeMap::new();
    for (name, text) in texts.iter().filter(|(name, _)| name.ends_with(".md")) {
        let document = Markdown::read(text);
        let mut seen = BTreeSet::new();
        let twice = document.ids.iter().filter(|id| !seen.insert(*id));
        found.extend(twice.map(|id| format!("{name}: two anchors are named `{id}`")));
        documents.insert(name.as_str(), document);
    }
    let mut uses = Uses::default();
    for (name, text) in texts {
        let here = Here { name, tracked, documents: &documents };
        for (index, line) in text.lines().enumerate() {
            let wrong = here.line(line, &mut uses);
            found.extend(wrong.iter().map(|what| format!("{name}:{}: {what}", index + 1)));
        }
    }
    found.extend(check_exceptions(texts, &uses));
    if texts.contains_key(INDEX) {
        let listed = uses.files.iter().filter(|(from, _)| from == INDEX).map(|(_, to)| to);
        let listed: BTreeSet<&str> = listed.map(String::as_str).collect();
        let all = documents.keys().filter(|name| name.starts_with("specs/") && **name != INDEX);
        let missing = all.filter(|name| !name.starts_with(EXCEPTIONS) && !listed.contains(*name));
        found.extend(missing.map(|name| format!("{INDEX}: does not say what is in {name}")));
    }
    // A rule that nobody follows and nobody tests is either missing or not needed.
    for (name, document) in documents.iter().filter(|(name, _)| name.starts_with("specs/")) {
        let ids: BTreeSet<&String> = document.ids.iter().collect();
        let unread = ids.iter().map(|id| format!("{name}#{id}"));
        let unread = unread.filter(|anchor| !uses.anchors.contains(anchor));
        found.extend(unread.map(|anchor| format!("{anchor}: nothing cites it: {CITE_IT}")));
    }
    found
}

/// What is cited from where.
#[derive(Default)]
struct Uses {
    /// Citing file, cited file.
    files: BTreeSet<(String, String)>,
    /// `file#anchor`.
    anchors: BTreeSet<String>,
}

/// A text that cites, and what there is to be cited.
struct Here<'a> {
    name: &'a str,
    tracked: &'a BTreeSet<String>,
    documents: &'a BTreeMap<&'a str, Markdown>,
}

impl Here<'_> {
    /// What is wrong in a line; what it cites goes into `uses`.
    fn line(&self, line: &str, uses: &mut Uses) -> Vec<String> {
        let mut wrong: Vec<String> = foreign(line).into_iter().collect();
        // Words after which the sections are those of the file cited before.
        let mut taken = BTreeSet::new();
        for (at, word) in words(line) {
            let (path, anchor) =
                word.split_once('#').map_or((word, None), |(path, id)| (path, Some(id)));
            let file = match self.cited(path) {
                Cited::Nothing => continue,
                Cited::Missing => {
                    wrong.push(format!("`{path}` is not in the repository"));
                    continue;
                }
                Cited::Path(file) => file,
            };
            uses.files.insert((self.name.to_owned(), file.clone()));
            let Some(document) = self.documents.get(file.as_str()) else { continue };
            if let Some(id) = anchor {
                uses.anchors.insert(format!("{file}#{id}"));
                // Code cites a specification by anchors that stay when a heading changes.
                let by_name = document.ids.iter().any(|known| known == id);
                if !by_name && (file.starts_with("specs/") || !document.has(id)) {
                    wrong.push(format!("`{file}` has no anchor `{id}`"));
                }
            }
            let after = at + word.len();
            let rest = line[after..].trim_start_matches([')', ']', '`', '*']);
            if let Some(rest) = rest.strip_prefix(", ").filter(|rest| rest.starts_with("section")) {
                taken.insert(line.len() - rest.len());
                wrong.extend(cite_sections(&file, document, rest, uses));
            }
        }
        // A specification means its own sections where it names no other file.
        if let Some(own) = self.documents.get(self.name).filter(|_| self.name.starts_with("specs/"))
        {
            for (at, _) in line.match_indices("section").filter(|(at, _)| !taken.contains(at)) {
                wrong.extend(cite_sections(self.name, own, &line[at..], uses));
            }
        }
        wrong
    }

    /// What a word means as a path.
    fn cited(&self, word: &str) -> Cited {
        let document = word.strip_suffix(".md").is_some_and(|stem| !stem.is_empty());
        let folder = self.name.rsplit_once('/').map_or("", |(folder, _)| folder);
        let tries = if FOLDERS.iter().any(|folder| word.starts_with(folder)) {
            vec![word.to_owned()]
        } else if document && self.name.ends_with(".md") {
            vec![joined(folder, word), word.to_owned()]
        } else if document && is_shouted(word) {
            let file = word.rsplit('/').next().unwrap_or(word);
            vec![joined(folder, file), file.to_owned()]
        } else {
            return Cited::Nothing;
        };
        // A folder is there if something is in it.
        let there = |path: &String| {
            let inside = format!("{path}/");
            let next = self.tracked.range(inside.clone()..).next();
            self.tracked.contains(path) || next.is_some_and(|p| p.starts_with(&inside))
        };
        tries.into_iter().find(there).map_or(Cited::Missing, Cited::Path)
    }
}

enum Cited {
    /// Not a citation.
    Nothing,
    Missing,
    Path(String),
}

/// Words of which a path may consist, with where they begin. What follows `://` is
/// somebody else's.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let begin = rest.find(is_part_of_path)?;
        let end = rest[begin..].find(|c| !is_part_of_path(c)).map_or(rest.len(), |n| begin + n);
        let word = &rest[begin..end];
        let at = line.len() - rest.len() + begin;
        rest = &rest[end..];
        Some((at, word.trim_end_matches(['.', '/', '-', '#'])))
    })
    .filter(|(_, word)| !word.starts_with("//"))
}

fn is_part_of_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./#".contains(c)
}

/// Documents for everybody are named so: `README.md`.
fn is_shouted(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.strip_suffix(".md").unwrap_or(file);
    !stem.is_empty() && stem.chars().all(|c| c.is_ascii_uppercase() || "-_".contains(c))
}

/// Looks up `section 3`, `sections 4 and 5`, `sections 7 to 9`, with which `rest` begins.
fn cite_sections(file: &str, document: &Markdown, rest: &str, uses: &mut Uses) -> Vec<String> {
    let mut wrong = Vec::new();
    for number in section_numbers(rest) {
        match document.sections.get(&number) {
            Some(Some(id)) => {
                uses.anchors.insert(format!("{file}#{id}"));
            }
            Some(None) => {}
            None => wrong.push(format!("`{file}` has no section {number}")),
        }
    }
    wrong
}

fn section_numbers(rest: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = Vec::new();
    let Some(rest) = rest.strip_prefix("section") else { return numbers };
    let Some(mut rest) = rest.strip_prefix('s').unwrap_or(rest).strip_prefix(' ') else {
        return numbers;
    };
    let mut range = false;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let Ok(number) = rest[..end].parse() else { return numbers };
        let first = numbers.last().map_or(number, |last| last + 1);
        if range {
            numbers.extend(first..=number)
        } else {
            numbers.push(number)
        }
        rest = &rest[end..];
        range = rest.starts_with(" to ");
        let Some(next) = [" to ", " and ", ", "].iter().find_map(|by| rest.strip_prefix(by)) else {
            return numbers;
        };
        rest = next;
    }
}

/// Each exception says what and why, and something points at it.
fn check_exceptions(texts: &BTreeMap<String, String>, uses: &Uses) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in texts.iter().filter(|(name, _)| name.starts_with(EXCEPTIONS)) {
        for part in ["**What.**", "**Why.**"] {
            if !text.lines().any(|line| line.starts_with(part)) {
                found.push(format!("{name}: has no paragraph that begins with {part}"));
            }
        }
        let cited = uses.files.iter().any(|(from, to)| to == name && from != name && from != INDEX);
        if !cited {
            found.push(format!("{name}: nothing cites it: {CITE_IT}"));
        }
    }
    found
}

/// Names of documents that are not in the repository, with what to do. Those that end
/// in `.md` are found as missing files. They are cut in two so that this file passes.
const FOREIGN: &[&str] = &[concat!("SP", "EC"), concat!("DES", "IGN"), concat!("shar", "ed/")];

fn foreign(line: &str) -> Option<String> {
    for name in FOREIGN {
        for (at, _) in line.match_indices(name) {
            let before = line[..at].chars().next_back();
            let after = &line[at + name.len()..];
            let begins = !before.is_some_and(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
            let meant = match name.strip_suffix('/') {
                // Somebody's folder of documents, not `/sys/x/shared/y`.
                Some(_) => after.starts_with(|c: char| c.is_ascii_uppercase()),
                None => !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'),
            };
            if begins && meant {
                return Some(format!("`{name}` names a document that is not in the repository"));
            }
        }
    }
    // A section of such a document, as in the sign and `B.7`.
    for (at, sign) in line.match_indices('\u{a7}') {
        let rest = line[at + sign.len()..].trim_start();
        if rest.starts_with(|c: char| c.is_ascii_uppercase()) {
            return Some(format!("`{sign}` cites no document: name it and its anchor"));
        }
    }
    if line.contains(concat!("Source: is", "sue ")) {
        return Some("a ticket is not in the repository: cite a specification".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of files; `@` in names and texts stands for the folder of specifications,
    /// so that the examples are not taken for citations of this file.
    fn tree(files: &[(&str, &str)]) -> Vec<String> {
        let texts: BTreeMap<String, String> =
            files.iter().map(|(name, text)| (full(name), full(text))).collect();
        check(&texts.keys().cloned().collect(), &texts)
    }

    fn full(text: &str) -> String {
        text.replace('@', concat!("spe", "cs/"))
    }

    const NUMA: (&str, &str) =
        ("@numa.md", "# A\n\n## 1. One <a id=\"one\"></a>\n\n## 2. Two <a id=\"two\"></a>\n");

    const READER: (&str, &str) = ("z.rs", "// @numa.md, sections 1 and 2");

    /// What is found in a source file, and in a specification, of a tree in which
    /// @numa.md has sections 1 and 2.
    fn in_source(line: &str) -> Vec<String> {
        tree(&[NUMA, ("a/b.rs", line), READER])
    }
    fn in_spec(line: &str) -> Vec<String> {
        tree(&[NUMA, ("@c.md", line), READER])
    }

    #[test]
    fn what_is_there_is_cited_in_peace() {
        for line in [
            "// Source: @numa.md#one, @numa.md#two.",
            "/// As @numa.md, sections 1 and 2, has it (@numa.md#two; @numa.md).",
            "all of `@` and <https://example.org/@none.md#x>, @*.md, x/@none.md",
            "other.md in a source is no citation",
        ] {
            assert_eq!(in_source(line), [""; 0], "{line}");
        }
        for line in ["[numa.md](numa.md), section 2; numa.md#one", "as @numa.md#one says"] {
            assert_eq!(in_spec(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn what_is_missing_is_found_where_it_is_cited() {
        for (line, expected) in [
            ("// @none.md#one", "a/b.rs:1: `@none.md` is not in the repository"),
            ("\n// (@numa.md#three).", "a/b.rs:2: `@numa.md` has no anchor `three`"),
            ("\"@numa.md, section 3\"", "a/b.rs:1: `@numa.md` has no section 3"),
            ("// @exceptions/none.md", "a/b.rs:1: `@exceptions/none.md` is not in the repository"),
        ] {
            assert_eq!(in_source(line), [full(expected)], "{line}");
        }
        let decision = concat!("doc", "s/decisions/0000-none.md");
        let expected = format!("a/b.rs:1: `{decision}` is not in the repository");
        assert_eq!(in_source(&format!("// {decision}")), [expected]);
        for (line, expected) in [
            ("none.md#one", "@c.md:1: `none.md` is not in the repository"),
            ("numa.md#three", "@c.md:1: `@numa.md` has no anchor `three`"),
            ("numa.md, sections 1 to 3", "@c.md:1: `@numa.md` has no section 3"),
            ("see section 1", "@c.md:1: `@c.md` has no section 1"),
        ] {
            assert_eq!(in_spec(line), [full(expected)], "{line}");
        }
    }

    #[test]
    fn paths_go_from_the_citing_file() {
        let fine = tree(&[
            NUMA,
            ("@exceptions/x.md", "**What.** y.md, ../numa.md#one\n**Why.** z\n"),
            ("@exceptions/y.md", "**What.** x.md\n**Why.** z\n"),
            ("README.md", "@numa.md#two\n"),
        ]);
        assert_eq!(fine, [""; 0]);
    }

    #[test]
    fn documents_of_somebody_else_are_found() {
        let sign = '\u{a7}';
        let [spec, design, shared] = FOREIGN else { panic!("three names") };
        for line in [
            format!("// {spec} {sign}A.4"),
            format!("// {spec} A.5"),
            format!("see {spec}-RECLAIM"),
            format!("// {design}: never a guess"),
            format!("in {shared}X"),
            format!("// as {sign}B.7 says"),
            concat!("//! Source: is", "sue 3.").to_owned(),
        ] {
            assert_eq!(in_source(&line).len(), 1, "{line}: {:?}", in_source(&line));
        }
        let shouted = concat!("ROAD", "MAP", ".md");
        let expected = format!("a/b.rs:1: `{shouted}` is not in the repository");
        assert_eq!(in_source(&format!("// {shouted}")), [expected]);
        for line in [
            format!("NR_{spec}S, {spec}S and {design}ED"),
            format!("/sys/x/{shared}y and {shared}y"),
            format!("{sign}5 of a standard"),
        ] {
            assert_eq!(in_source(&line), [""; 0], "{line}");
        }
    }

    #[test]
    fn an_exception_is_cited_and_gives_its_reason() {
        let found = |exception, elsewhere| {
            let files = [("@exceptions/x.md", exception), ("a.rs", elsewhere)];
            tree(&files).iter().map(|line| line.replace("specs/", "@")).collect::<Vec<_>>()
        };
        let whole = "# X\n\n**What.** a\n\n**Why.** b\n";
        assert_eq!(found(whole, "// @exceptions/x.md"), [""; 0]);
        let expected = format!("@exceptions/x.md: nothing cites it: {CITE_IT}");
        assert_eq!(found(whole, ""), [expected]);
        assert_eq!(
            found("# X\n\n**What.** a\n", "// @exceptions/x.md"),
            ["@exceptions/x.md: has no paragraph that begins with **Why.**"]
        );
    }

    #[test]
    fn the_index_is_whole_and_no_use() {
        let files = [
            ("@README.md", "exceptions/x.md\n"),
            ("@exceptions/x.md", "**What.** a\n**Why.** b\n"),
            ("@a.md", "# A\n"),
        ];
        let expected = [
            format!("@exceptions/x.md: nothing cites it: {CITE_IT}"),
            "@README.md: does not say what is in @a.md".to_owned(),
        ];
        assert_eq!(tree(&files), expected.map(|line| full(&line)));
    }

    #[test]
    fn an_anchor_is_there_once_and_is_cited() {
        let twice = "## 1. A <a id=\"x\"></a>\n## 2. B <a id=\"x\"></a>\n";
        let expected = [
            "@a.md: two anchors are named `x`".to_owned(),
            format!("@a.md#x: nothing cites it: {CITE_IT}"),
            format!("@numa.md#one: nothing cites it: {CITE_IT}"),
        ];
        let found = tree(&[("@a.md", twice), NUMA, ("a.rs", "// @numa.md, section 2")]);
        assert_eq!(found, expected.map(|line| full(&line)));
    }

    #[test]
    fn sections_are_read_as_people_write_them() {
        for (text, numbers) in [
            ("section 3", vec![3]),
            ("section 16);", vec![16]),
            ("sections 4 and 5", vec![4, 5]),
            ("sections 7 to 9.", vec![7, 8, 9]),
            ("sections 1, 2 and 4 to 6", vec![1, 2, 4, 5, 6]),
            ("section 5, step 1", vec![5]),
            ("section of this", vec![]),
            ("sectioned 3", vec![]),
        ] {
            assert_eq!(section_numbers(text), numbers, "{text}");
        }
    }
}
