//! A page: its blocks of output, and who makes them.

use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Result, bail};

use super::keep::Keep;
use crate::markdown::{At, FENCE, Markdown};

/// Blocks that only show output: without a comment nobody knows where it is from.
const OUTPUT: &str = "text";

/// Where a block's lines come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Provenance {
    /// `run`: homenode with these arguments. Quick and the same everywhere, so the
    /// page is held to it.
    Run(Vec<String>),
    /// `on request`: the same, but long, or another on each machine.
    OnRequest(Vec<String>),
    /// `file`: a file of the repository. The page is held to it.
    File(PathBuf),
    /// `by hand`: somebody ran a command on a machine at a day, and copied.
    ByHand,
}

/// A block with a comment before it.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Where its comment begins, from 1 on.
    pub(super) line: usize,
    /// Its lines between the fences, from 0 on.
    pub(super) body: Range<usize>,
    marker: Marker,
}

impl Block {
    pub(super) fn source(&self) -> &Provenance {
        &self.marker.source
    }

    /// What has to be done before an `on request`, for its error.
    pub(super) fn needs(&self) -> Option<&str> {
        self.marker.needs.as_deref()
    }

    /// What is shown of a text.
    pub(super) fn shown(&self, text: &str) -> Result<String> {
        let lines = super::keep::apply(&self.marker.keep, text)?;
        if lines.is_empty() {
            bail!("nothing is left to show");
        }
        if let Some(fence) = lines.iter().find(|line| line.trim_start().starts_with(FENCE)) {
            bail!("the line `{fence}` would end the block that shows it");
        }
        let whole = lines.iter().map(|line| line.trim_end());
        Ok(match self.marker.wrap {
            None => whole.map(|line| format!("{line}\n")).collect(),
            Some(width) => whole.map(|line| super::keep::wrap(line, width)).collect(),
        })
    }
}

/// A page as it is read.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// Its path from the repository's root.
    pub(super) name: String,
    pub(super) text: String,
    pub(super) parts: Markdown,
    pub(super) blocks: Vec<Block>,
    /// What is wrong with it, each with file and line.
    pub(super) wrong: Vec<String>,
}

impl Page {
    pub(super) fn parse(name: &str, text: String) -> Self {
        let parts = Markdown::read(&text);
        let lines: Vec<&str> = text.lines().collect();
        let (mut blocks, mut wrong) = (Vec::new(), Vec::new());
        let mut blame = |line: usize, what: &str| wrong.push(format!("{name}:{line}: {what}"));
        for At { line, what: fenced } in &parts.fenced {
            if !fenced.closed {
                blame(*line, "this block is never closed");
            }
            if !lines[line - 1].starts_with(FENCE) {
                blame(*line, "a block begins at the line's first place, also below a list");
            }
            let body = fenced.body.clone();
            if let Some(inner) = body.clone().find(|at| lines[*at].starts_with(FENCE)) {
                blame(inner + 1, "a block begins inside of the one above, which has no end");
            }
            match &fenced.comment {
                Some(At { line, what }) => match Marker::parse(what) {
                    Ok(marker) => blocks.push(Block { line: *line, body, marker }),
                    Err(what) => blame(*line, &what),
                },
                None if fenced.kind == OUTPUT => blame(
                    *line,
                    "no comment above says where this output is from: run, on request, file or by hand",
                ),
                None => {}
            }
        }
        for comment in &parts.comments {
            blame(comment.line, "the comment has to stand right above a block, and to be closed");
        }
        Page { name: name.to_owned(), parts, blocks, wrong, text }
    }

    /// The name by which it is asked for.
    pub(super) fn called(&self) -> &str {
        let file = self.name.rsplit('/').next().unwrap_or_default();
        file.strip_suffix(".md").unwrap_or(file)
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.called().eq_ignore_ascii_case(name) || self.name == name
    }
}

/// What a comment says.
#[derive(Clone, Debug)]
struct Marker {
    source: Provenance,
    needs: Option<String>,
    keep: Vec<Keep>,
    /// Longer lines are broken.
    wrap: Option<usize>,
}

impl Marker {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim_start_matches("<!--").trim_end_matches("-->");
        let (mut source, mut needs, mut keep, mut wrap) = (None, None, Vec::new(), None);
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (key, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.trim();
            let found = match key {
                "run" => Some(Provenance::Run(command(value)?)),
                "on request" => Some(Provenance::OnRequest(command(value)?)),
                "file" => Some(Provenance::File(PathBuf::from(value))),
                "by hand" => Some(by_hand(value)?),
                "keep" => {
                    keep.push(Keep::parse(value)?);
                    None
                }
                "wrap" => {
                    wrap = Some(value.parse().map_err(|_| format!("wrap: `{value}` is no width"))?);
                    None
                }
                "needs" => {
                    needs = Some(value.to_owned());
                    None
                }
                other => {
                    return Err(format!(
                        "`{other}` means nothing here; write run, on request, file or by hand, then keep, wrap or needs"
                    ));
                }
            };
            if found.is_some() && std::mem::replace(&mut source, found).is_some() {
                return Err("two lines say where the block is from".to_owned());
            }
        }
        let source = source.ok_or("no command: write run, on request, file or by hand")?;
        Ok(Marker { source, needs, keep, wrap })
    }
}

/// The arguments of a command line. There is no shell: words end at blanks.
fn command(text: &str) -> Result<Vec<String>, String> {
    let mut words = text.split_whitespace().map(str::to_owned);
    match words.next().as_deref() {
        Some("homenode") => Ok(words.collect()),
        Some(other) => Err(format!("only homenode is run, not `{other}`: write by hand")),
        None => Err("no command: it begins with homenode".to_owned()),
    }
}

/// `COMMAND | MACHINE | 2026-11-21`
fn by_hand(text: &str) -> Result<Provenance, String> {
    let day = |text: &str| {
        let parts = text.split('-').map(|part| part.parse::<u32>().is_ok().then_some(part.len()));
        parts.eq([Some(4), Some(2), Some(2)])
    };
    match text.split(" | ").map(str::trim).collect::<Vec<_>>()[..] {
        [command, machine, date] if !command.is_empty() && !machine.is_empty() && day(date) => {
            Ok(Provenance::ByHand)
        }
        _ => Err("write by hand: COMMAND | MACHINE | YEAR-MONTH-DAY".to_owned()),
    }
}
