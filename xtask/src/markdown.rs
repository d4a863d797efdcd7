//! A Markdown text as those who check it need it: links, headings, blocks, code.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// How a line begins that opens or closes a block.
pub(crate) const FENCE: &str = "```";

/// Something of a text, and its line, from 1 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct At<T> {
    pub(crate) line: usize,
    pub(crate) what: T,
}

/// A fenced block.
#[derive(Clone, Debug)]
pub(crate) struct Fenced {
    /// What stands after the opening fence: `text`, `sh`, `toml`.
    pub(crate) kind: String,
    /// Its lines between the fences, from 0 on.
    pub(crate) body: Range<usize>,
    /// Whether a fence ends it.
    pub(crate) closed: bool,
    /// The HTML comment that ends on the line above, with the line on which it begins.
    pub(crate) comment: Option<At<String>>,
}

/// What is in a text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Markdown {
    /// Targets as they are written: `tiering.md#modes`.
    pub(crate) links: Vec<At<String>>,
    /// Code within a line.
    pub(crate) code: Vec<At<String>>,
    pub(crate) fenced: Vec<At<Fenced>>,
    /// HTML comments right above no block.
    pub(crate) comments: Vec<At<String>>,
    /// Each heading's name in links, as forges make it.
    pub(crate) headings: Vec<String>,
    /// Each `<a id="…">`.
    pub(crate) ids: Vec<String>,
    /// Sections with a number, `## 3. Bits`, and their id.
    pub(crate) sections: BTreeMap<u32, Option<String>>,
}

impl Markdown {
    pub(crate) fn read(text: &str) -> Self {
        let begins: Vec<usize> =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let line_of = |at: usize| begins.partition_point(|begin| *begin <= at);
        let mut found = Self::default();
        // A comment that may belong to the block below, and the line after it.
        let mut comment: Option<(At<String>, usize)> = None;
        let mut title: Option<String> = None;
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            let line = line_of(range.start);
            match event {
                Event::Start(Tag::Link { dest_url, .. }) => {
                    found.links.push(At { line, what: dest_url.into_string() });
                }
                Event::Start(Tag::Heading { .. }) => title = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    found.heading(&title.take().unwrap_or_default(), &text[range]);
                }
                Event::Start(Tag::HtmlBlock) if text[range.clone()].starts_with("<!--") => {
                    let what = text[range.clone()].trim_end().to_owned();
                    let below = line + what.lines().count();
                    found.comments.extend(comment.replace((At { line, what }, below)).map(|c| c.0));
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(kind))) => {
                    let (above, other) = match comment.take() {
                        Some((above, below)) if below == line => (Some(above), None),
                        other => (None, other),
                    };
                    found.comments.extend(other.map(|c| c.0));
                    let lines = text[range].trim_end().lines();
                    let closed = lines.clone().count() > 1
                        && lines.clone().last().is_some_and(|last| last.trim() == FENCE);
                    let body = line..line + lines.count() - 1 - usize::from(closed);
                    let kind = kind.into_string();
                    let what = Fenced { kind, body, closed, comment: above };
                    found.fenced.push(At { line, what });
                }
                Event::Code(code) => {
                    title.iter_mut().for_each(|title| title.push_str(&code));
                    found.code.push(At { line, what: code.into_string() });
                }
                Event::Text(words) => title.iter_mut().for_each(|title| title.push_str(&words)),
                Event::InlineHtml(html) | Event::Html(html) => {
                    let ids =
                        html.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next());
                    found.ids.extend(ids.map(str::to_owned));
                }
                // Nothing else is asked for.
                _ => {}
            }
        }
        found.comments.extend(comment.map(|c| c.0));
        found
    }

    /// `source` is the heading as it is written.
    fn heading(&mut self, title: &str, source: &str) {
        let title = title.trim();
        let number = title.split_once(". ").and_then(|(number, _)| number.parse().ok());
        if let Some(number) = number.filter(|_| source.starts_with("## ")) {
            self.sections.insert(
                number,
                source.contains("<a id").then(|| self.ids.last().cloned()).flatten(),
            );
        }
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let slug: String =
            kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
        let taken: BTreeSet<&String> = self.headings.iter().collect();
        let names = (1..).map(|n| format!("{slug}-{n}"));
        let name = std::iter::once(slug.clone()).chain(names).find(|name| !taken.contains(name));
        self.headings.extend(name);
    }

    /// Whether a link to `file#anchor` finds its place.
    pub(crate) fn has(&self, anchor: &str) -> bool {
        self.ids.iter().chain(&self.headings).any(|name| name == anchor)
    }
}

/// Where a link from a folder leads: `a/b` and `../c.md` make `a/c.md`.
pub(crate) fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_linked_as_forges_do() {
        let text = "# One\n## Mode 2: hot, `cold`\n```sh\n# no heading\n```\n## One\n## 3. Bits <a id=\"bits\"></a>\n";
        let read = Markdown::read(text);
        assert_eq!(read.headings, ["one", "mode-2-hot-cold", "one-1", "3-bits"]);
        assert_eq!(read.ids, ["bits"]);
        assert_eq!(read.sections, BTreeMap::from([(3, Some("bits".to_owned()))]));
    }

    #[test]
    fn a_comment_belongs_to_the_block_right_below_it() {
        let text = "<!-- a -->\n```text\nx\n```\n<!--\nb\n-->\n\n```sh\n```\n<!-- c -->\n";
        let read = Markdown::read(text);
        let of = |at: &At<String>| (at.line, at.what.clone());
        assert_eq!(
            read.comments.iter().map(of).collect::<Vec<_>>(),
            [(5, "<!--\nb\n-->".to_owned()), (11, "<!-- c -->".to_owned())]
        );
        let above: Vec<_> = read
            .fenced
            .iter()
            .map(|f| (f.line, f.what.body.clone(), f.what.comment.as_ref().map(of)))
            .collect();
        assert_eq!(above, [(2, 2..3, Some((1, "<!-- a -->".to_owned()))), (9, 9..9, None)]);
    }

    #[test]
    fn a_block_without_an_end_says_so() {
        let closed = |text: &str| Markdown::read(text).fenced[0].what.closed;
        assert!(closed("```sh\nls\n```") && closed("```\n```\nx"));
        assert!(!closed("```sh\nls\n") && !closed("```"));
    }
}
