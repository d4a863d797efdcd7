//! Files of one crate that need each other in a circle: neither can then be understood first.
//!
//! What a file needs is read off its paths (`crate::a::b`, `super::c`), in `use` and elsewhere;
//! tests and comments don't count. The root of a crate, which hands names on, is no room.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// By module: the modules of the same crate that its file names.
type Needs = BTreeMap<String, BTreeSet<String>>;

/// One line for each circle among the files of a crate.
pub(crate) fn check(texts: &BTreeMap<String, String>) -> Vec<String> {
    let mut crates: BTreeMap<&str, BTreeMap<String, &str>> = BTreeMap::new();
    for (name, text) in texts {
        let Some((folder, file)) = name.split_once("/src/") else { continue };
        let Some(module) = file.strip_suffix(".rs") else { continue };
        let is_test = module.split('/').any(|part| part == "tests");
        if !is_test && module != "lib" && module != "main" {
            crates.entry(folder).or_default().insert(module.replace('/', "::"), text);
        }
    }
    let mut found = Vec::new();
    for (folder, files) in &crates {
        let of = |(module, text): (&String, &&str)| (module.clone(), needs(module, text, files));
        for circle in circles(&files.iter().map(of).collect()) {
            let circle = circle.join(" -> ");
            found.push(format!("{folder}/src: files that need each other in a circle: {circle}"));
        }
    }
    found
}

/// The modules that a file names.
fn needs(module: &str, text: &str, files: &BTreeMap<String, &str>) -> BTreeSet<String> {
    let is_comment = |line: &&str| line.trim_start().starts_with("//");
    let code: Vec<&str> = text.lines().filter(|line| !is_comment(line)).collect();
    let code = code.join("\n");
    // Tests within a file come last.
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let above: Vec<&str> = module.split("::").collect();
    let mut found = BTreeSet::new();
    for (root, base) in [("crate::", &above[..0]), ("super::", &above[..above.len() - 1])] {
        for (at, _) in code.match_indices(root) {
            if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            for path in paths(&code[at + root.len()..]) {
                let all: Vec<&str> = base.iter().copied().chain(path).collect();
                let known = (1..=all.len()).rev().map(|n| all[..n].join("::"));
                found.extend(known.into_iter().find(|m| files.contains_key(m)));
            }
        }
    }
    found.remove(module);
    found
}

/// The paths that follow `crate::`: one, or those of a list in braces, each as far as it is names.
fn paths(rest: &str) -> Vec<Vec<&str>> {
    let Some(list) = rest.strip_prefix('{') else { return vec![path(rest)] };
    let (mut depth, mut begins) = (0, 0);
    let mut found = Vec::new();
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                found.push(path(list[begins..at].trim_start()));
                begins = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

fn path(text: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        found.push(&rest[..end]);
        match rest[end..].strip_prefix("::") {
            Some(more) => rest = more,
            None => return found,
        }
    }
}

/// Each circle once, as short as it is found, from its first module back to it.
fn circles(needs: &Needs) -> Vec<Vec<&str>> {
    let mut told: BTreeSet<&str> = BTreeSet::new();
    let mut found = Vec::new();
    for from in needs.keys() {
        if told.contains(from.as_str()) {
            continue;
        }
        if let Some(circle) = way_back(needs, from) {
            told.extend(&circle);
            found.push(circle);
        }
    }
    found
}

fn way_back<'a>(needs: &'a Needs, from: &'a str) -> Option<Vec<&'a str>> {
    let mut came: BTreeMap<&str, &str> = BTreeMap::new();
    let mut next = VecDeque::from([from]);
    while let Some(at) = next.pop_front() {
        for to in needs.get(at).into_iter().flatten().map(String::as_str) {
            if to == from {
                let mut back = vec![from, at];
                while let Some(before) = came.get(back[back.len() - 1]) {
                    back.push(before);
                }
                back.reverse();
                return Some(back);
            }
            if !came.contains_key(to) {
                came.insert(to, at);
                next.push_back(to);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(files: &[(&str, &str)]) -> Vec<String> {
        check(&files.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect())
    }

    #[test]
    fn a_circle_is_told_with_its_way() {
        let files = [
            ("crates/x/src/a.rs", "use crate::b::c::D;\n"),
            ("crates/x/src/b.rs", "mod c;\n"),
            ("crates/x/src/b/c.rs", "use crate::{e, b::F};\n"),
            ("crates/x/src/e.rs", "fn f() { super::a::g() }\n"),
        ];
        let expected = "crates/x/src: files that need each other in a circle: \
                        a -> b::c -> e -> a";
        assert_eq!(told(&files), [expected]);
    }

    #[test]
    fn what_is_no_circle_is_not_told() {
        // A comment, a test, a root that hands on, another crate of the same names.
        let files = [
            ("crates/x/src/lib.rs", "mod a;\nmod b;\npub use a::A;\nuse crate::a::B;\n"),
            ("crates/x/src/a.rs", "/// See [`crate::b`].\nuse crate::A;\nuse crate::c::{D, E};\n"),
            (
                "crates/x/src/b.rs",
                "use crate::a;\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}\n",
            ),
            ("crates/x/src/c.rs", "#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n"),
            ("crates/x/src/c/tests.rs", "use crate::a;\n"),
            ("crates/y/src/a.rs", "use homenode_x::b;\n"),
        ];
        assert_eq!(told(&files), [""; 0]);
    }
}
