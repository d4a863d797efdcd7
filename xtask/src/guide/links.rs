//! Links between pages: the file is there, and so is the heading.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::page::Page;

/// A link to somewhere in the repository.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// From 1 on.
    pub(super) line: usize,
    /// As it is written: `tiering.md#modes`.
    pub(super) target: String,
}

/// Links of a page that stay in the repository.
pub(super) fn of(page: &Page) -> Vec<Link> {
    let mut links = Vec::new();
    for (at, line) in prose(page) {
        let mut rest = line;
        while let Some(start) = rest.find("](") {
            rest = &rest[start + 2..];
            let Some(end) = rest.find(')') else { break };
            let target = &rest[..end];
            if !target.contains("://") && !target.starts_with("mailto:") {
                links.push(Link { line: at + 1, target: target.to_owned() });
            }
        }
    }
    links
}

/// Lines outside of fenced blocks, from 0 on.
fn prose(page: &Page) -> impl Iterator<Item = (usize, &str)> {
    let inside = |at: usize| page.fenced.iter().any(|f| f.body.contains(&at));
    page.text.lines().enumerate().filter(move |(at, _)| !inside(*at))
}

/// Every link that leads nowhere.
pub(super) fn check(root: &Path, pages: &[Page]) -> Vec<String> {
    let mut wrong = Vec::new();
    for page in pages {
        let folder = Path::new(&page.name).parent().unwrap_or(Path::new(""));
        for link in of(page) {
            let (file, anchor) = match link.target.split_once('#') {
                Some((file, anchor)) => (file, Some(anchor)),
                None => (link.target.as_str(), None),
            };
            let path = match file {
                "" => PathBuf::from(&page.name),
                file => plain(&folder.join(file)),
            };
            let at = format!("{}:{}", page.name, link.line);
            let page = pages.iter().find(|page| Path::new(&page.name) == path);
            if page.is_none() && !root.join(&path).exists() {
                wrong.push(format!("{at}: the link `{}` leads nowhere", link.target));
                continue;
            }
            let Some(anchor) = anchor else { continue };
            let text = match page {
                Some(page) => page.text.clone(),
                None => fs::read_to_string(root.join(&path)).unwrap_or_default(),
            };
            if !anchors(&text).iter().any(|name| name == anchor) {
                wrong.push(format!("{at}: {} has no heading `#{anchor}`", path.display()));
            }
        }
    }
    wrong
}

/// Without `..`, so that an error names the file as everybody calls it.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => out.push(part),
        }
    }
    out
}

/// What a file can be linked at: its headings, as forges make anchors of them, and
/// its `id`s.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for part in line.split("<a id=\"").skip(1) {
            out.extend(part.split('"').next().map(str::to_owned));
        }
        let heading = line.trim_start_matches('#');
        if line.starts_with('#') && heading.starts_with(' ') {
            let plain = heading.split("<a id").next().unwrap_or_default();
            let slug = slug(plain.trim());
            let before = out.iter().filter(|name| **name == slug).count();
            out.push(if before == 0 { slug } else { format!("{slug}-{before}") });
        }
    }
    out
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}
