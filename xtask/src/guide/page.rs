//! A page: its blocks of output, and who makes them.

use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Result, bail};

use super::keep::Keep;

/// How a line begins that opens or closes a block.
const FENCE: &str = "```";

/// Blocks that only show output: without a comment nobody knows where it is from.
const OUTPUT: &str = "text";

/// Where a block's lines come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
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
    pub(super) source: Source,
    /// What has to be done before an `on request`, for its error.
    pub(super) needs: Option<String>,
    keep: Vec<Keep>,
    /// Longer lines are broken.
    wrap: Option<usize>,
    /// Its lines between the fences, from 0 on.
    pub(super) body: Range<usize>,
}

impl Block {
    /// What is shown of a text.
    pub(super) fn shown(&self, text: &str) -> Result<String> {
        let lines = super::keep::apply(&self.keep, text)?;
        if lines.is_empty() {
            bail!("nothing is left to show");
        }
        if let Some(fence) = lines.iter().find(|line| line.trim_start().starts_with(FENCE)) {
            bail!("the line `{fence}` would end the block that shows it");
        }
        let whole = lines.iter().map(|line| line.trim_end());
        Ok(match self.wrap {
            None => whole.map(|line| format!("{line}\n")).collect(),
            Some(width) => whole.map(|line| super::keep::wrap(line, width)).collect(),
        })
    }
}

/// A fenced block of any kind, for who looks at what pages say.
#[derive(Clone, Debug)]
pub(super) struct Fenced {
    /// What stands after the opening fence: `text`, `sh`, `toml`.
    pub(super) kind: String,
    /// Its lines between the fences, from 0 on.
    pub(super) body: Range<usize>,
}

/// A page as it is read.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// Its path from the repository's root.
    pub(super) name: String,
    pub(super) text: String,
    pub(super) blocks: Vec<Block>,
    pub(super) fenced: Vec<Fenced>,
    /// What is wrong with it, each with file and line.
    pub(super) wrong: Vec<String>,
}

impl Page {
    pub(super) fn parse(name: &str, text: String) -> Self {
        let mut page = Page {
            name: name.to_owned(),
            text,
            blocks: Vec::new(),
            fenced: Vec::new(),
            wrong: Vec::new(),
        };
        let text = page.text.clone();
        page.read(&text.lines().collect::<Vec<_>>());
        page
    }

    /// The name by which it is asked for.
    pub(super) fn called(&self) -> &str {
        let file = self.name.rsplit('/').next().unwrap_or_default();
        file.strip_suffix(".md").unwrap_or(file)
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.called().eq_ignore_ascii_case(name) || self.name == name
    }

    pub(super) fn body(&self, block: &Block) -> Vec<&str> {
        self.text.lines().skip(block.body.start).take(block.body.len()).collect()
    }

    fn blame(&mut self, line: usize, what: &str) {
        self.wrong.push(format!("{}:{}: {what}", self.name, line + 1));
    }

    fn read(&mut self, lines: &[&str]) {
        let mut at = 0;
        // A comment that waits for its block: where it begins, and what it says.
        let mut marker: Option<(usize, Marker)> = None;
        while at < lines.len() {
            let line = lines[at];
            if let Some(kind) = line.strip_prefix(FENCE) {
                let start = at + 1;
                let Some(length) = lines[start..].iter().position(|l| l.starts_with(FENCE)) else {
                    self.blame(at, "this block is never closed");
                    return;
                };
                let end = start + length;
                if lines[end] != FENCE {
                    self.blame(end, "a block begins inside of the one above, which has no end");
                }
                self.fence(at, kind.trim(), start..end, marker.take());
                at = end + 1;
                continue;
            }
            if let Some((from, _)) = marker.take() {
                self.blame(from, "the comment is to stand right above its block");
            }
            let indent = line.len() - line.trim_start().len();
            if (1..4).contains(&indent) && line.trim_start().starts_with(FENCE) {
                self.blame(at, "a block begins at the line's first place, also below a list");
            }
            if line.starts_with("<!--") {
                let Some(length) = lines[at..].iter().position(|l| l.trim_end().ends_with("-->"))
                else {
                    self.blame(at, "this comment is never closed");
                    return;
                };
                let text = lines[at..=at + length].join("\n");
                let text = text.trim().trim_start_matches("<!--").trim_end_matches("-->");
                match Marker::parse(text) {
                    Ok(found) => marker = Some((at, found)),
                    Err(what) => self.blame(at, &what),
                }
                at += length;
            }
            at += 1;
        }
        if let Some((from, _)) = marker {
            self.blame(from, "no block follows this comment");
        }
    }

    fn fence(
        &mut self,
        at: usize,
        kind: &str,
        body: Range<usize>,
        marker: Option<(usize, Marker)>,
    ) {
        match marker {
            Some((line, Marker { source, needs, keep, wrap })) => {
                let body = body.clone();
                self.blocks.push(Block { line: line + 1, source, needs, keep, wrap, body });
            }
            // After a comment that makes no sense this would be the second complaint.
            None if kind == OUTPUT && self.wrong.is_empty() => {
                self.blame(at, "no comment above says where this output is from: run, on request, file or by hand");
            }
            None => {}
        }
        self.fenced.push(Fenced { kind: kind.to_owned(), body });
    }
}

/// What a comment says.
struct Marker {
    source: Source,
    needs: Option<String>,
    keep: Vec<Keep>,
    wrap: Option<usize>,
}

impl Marker {
    fn parse(text: &str) -> Result<Self, String> {
        let mut source = None;
        let mut needs = None;
        let mut keep = Vec::new();
        let mut wrap = None;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (key, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.trim();
            let found = match key {
                "run" => Source::Run(command(value)?),
                "on request" => Source::OnRequest(command(value)?),
                "file" if value.is_empty() => return Err("`file:` names none".to_owned()),
                "file" => Source::File(PathBuf::from(value)),
                "by hand" => by_hand(value)?,
                "keep" => {
                    keep.push(Keep::parse(value)?);
                    continue;
                }
                "wrap" => {
                    let width =
                        value.parse().map_err(|_| format!("wrap: `{value}` is no width"))?;
                    wrap = Some(width);
                    continue;
                }
                "needs" => {
                    needs = Some(value.to_owned());
                    continue;
                }
                other => {
                    return Err(format!(
                        "`{other}` means nothing here; write run, on request, file or by hand, then keep, wrap or needs"
                    ));
                }
            };
            if source.replace(found).is_some() {
                return Err("two lines say where the block is from".to_owned());
            }
        }
        let source = source.ok_or("no command: write run, on request, file or by hand")?;
        if source == Source::ByHand && !keep.is_empty() {
            return Err("what is by hand is not filtered: `keep` has no place here".to_owned());
        }
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
fn by_hand(text: &str) -> Result<Source, String> {
    let parts: Vec<&str> = text.split(" | ").map(str::trim).collect();
    let day = |text: &str| {
        let digits =
            |part: &str, n: usize| part.len() == n && part.bytes().all(|b| b.is_ascii_digit());
        matches!(text.split('-').collect::<Vec<_>>()[..], [y, m, d] if digits(y, 4) && digits(m, 2) && digits(d, 2))
    };
    match parts[..] {
        [command, machine, date] if !command.is_empty() && !machine.is_empty() && day(date) => {
            Ok(Source::ByHand)
        }
        _ => Err("write by hand: COMMAND | MACHINE | YEAR-MONTH-DAY".to_owned()),
    }
}
