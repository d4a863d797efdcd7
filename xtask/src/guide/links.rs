//! Links between pages: the file is there, and so is the heading.

use std::fs;
use std::path::Path;

use super::page::Page;
use crate::markdown::{At, Markdown, joined};

/// Links of a page that stay in the repository.
pub(super) fn of(page: &Page) -> impl Iterator<Item = &At<String>> {
    let leaves = |to: &str| to.contains("://") || to.starts_with("mailto:");
    page.parts.links.iter().filter(move |link| !leaves(&link.what))
}

/// Every link that leads nowhere.
pub(super) fn check(root: &Path, pages: &[Page]) -> Vec<String> {
    let mut wrong = Vec::new();
    for page in pages {
        let folder = page.name.rsplit_once('/').map_or("", |(folder, _)| folder);
        for At { line, what: target } in of(page) {
            let (file, anchor) =
                target.split_once('#').map_or((&**target, None), |(f, a)| (f, Some(a)));
            let path = if file.is_empty() { page.name.clone() } else { joined(folder, file) };
            let at = format!("{}:{line}", page.name);
            if path != page.name && !root.join(&path).exists() {
                wrong.push(format!("{at}: the link `{target}` leads nowhere"));
                continue;
            }
            let Some(anchor) = anchor else { continue };
            let there = if path == page.name {
                page.parts.has(anchor)
            } else {
                let text = fs::read_to_string(root.join(&path)).unwrap_or_default();
                Markdown::read(&text).has(anchor)
            };
            if !there {
                wrong.push(format!("{at}: {path} has no heading `#{anchor}`"));
            }
        }
    }
    wrong
}
