//! Which lines of an output a page shows.
//!
//! ```text
//! first 2                     the first two lines
//! rows accesses; pages        every line that begins with these words, behind spaces too
//! rows pgfree after at 9s     the same, below the first line that begins with `at 9s`
//! entry note: native          the first line that begins so, and the indented ones below
//! from note: up to hash       from the first line that begins so up to the next that does
//! from at 3s                  up to the next empty line, or the end
//! ```
//!
//! Several `keep` add up; without one everything is shown. Lines stay in their order,
//! and each `keep` has to find something, so that a renamed row is noticed. Where what is
//! shown was not together, an empty line of the output between them stays, one at most.

use anyhow::{Result, anyhow, bail};

/// One `keep` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    First(usize),
    /// Lines that begin so, and below which line, if not everywhere.
    Rows(Vec<String>, Option<String>),
    Entry(String),
    /// Up to a line that begins so, or to an empty one.
    From(String, Option<String>),
}

impl Keep {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        match kind {
            "first" => match rest.parse() {
                Ok(n) if n > 0 => Ok(Keep::First(n)),
                _ => Err(format!("keep: first: `{rest}` is no number of lines")),
            },
            "rows" if !rest.is_empty() => {
                let (rows, after) = match rest.split_once(" after ") {
                    Some((rows, after)) => (rows, Some(after.trim().to_owned())),
                    None => (rest, None),
                };
                Ok(Keep::Rows(rows.split(';').map(|row| row.trim().to_owned()).collect(), after))
            }
            "entry" if !rest.is_empty() => Ok(Keep::Entry(rest.to_owned())),
            "from" if !rest.is_empty() => Ok(match rest.split_once(" up to ") {
                Some((from, to)) => Keep::From(from.trim().to_owned(), Some(to.trim().to_owned())),
                None => Keep::From(rest.to_owned(), None),
            }),
            "rows" | "entry" | "from" => Err(format!("keep: {kind}: which lines?")),
            other => {
                Err(format!("keep: `{other}` is no filter; there are first, rows, entry and from"))
            }
        }
    }

    /// Adds the numbers of its lines.
    fn choose(&self, lines: &[&str], chosen: &mut [bool]) -> Result<()> {
        let n = lines.len();
        let first = |with: &str| match lines.iter().position(|line| begins(line, with)) {
            Some(at) => Ok(at),
            None => Err(anyhow!("keep: no line begins with `{with}`")),
        };
        match self {
            Keep::First(k) => chosen[..n.min(*k)].fill(true),
            Keep::Rows(rows, after) => {
                let below = match after {
                    None => 0,
                    Some(after) => first(after)?,
                };
                for row in rows {
                    let found: Vec<usize> = (below..n).filter(|&i| begins(lines[i], row)).collect();
                    if found.is_empty() {
                        bail!("keep: no line begins with `{row}`");
                    }
                    for i in found {
                        chosen[i] = true;
                    }
                }
            }
            Keep::Entry(name) => {
                let start = first(name)?;
                let more = lines[start + 1..].iter().take_while(|line| line.starts_with(' '));
                chosen[start..=start + more.count()].fill(true);
            }
            Keep::From(from, to) => {
                let start = first(from)?;
                let after = &lines[start + 1..];
                let end = match to {
                    None => after.iter().position(|l| l.trim().is_empty()).map(|i| start + 1 + i),
                    Some(to) => match after.iter().position(|line| begins(line, to)) {
                        Some(i) => Some(start + 2 + i),
                        None => bail!("keep: after `{from}` no line begins with `{to}`"),
                    },
                };
                chosen[start..end.unwrap_or(n)].fill(true);
            }
        }
        Ok(())
    }
}

/// Whether a line has these words at its begin: `pgfree` is not that of `pgfree_all`.
fn begins(line: &str, with: &str) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    line.trim_start()
        .strip_prefix(with)
        .is_some_and(|rest| !(with.ends_with(in_word) && rest.starts_with(in_word)))
}

/// The lines that are shown.
pub(super) fn apply<'a>(keep: &[Keep], text: &'a str) -> Result<Vec<&'a str>> {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let mut chosen = vec![keep.is_empty(); lines.len()];
    for one in keep {
        one.choose(&lines, &mut chosen)?;
    }
    let mut out: Vec<&str> = Vec::new();
    let mut gap = false;
    for (line, chosen) in lines.iter().zip(&chosen) {
        if *chosen {
            // Parts that the output itself sets apart stay apart.
            if gap && !out.is_empty() && !line.trim().is_empty() {
                out.push("");
            }
            gap = false;
            out.push(line);
        } else if line.trim().is_empty() {
            gap = true;
        }
    }
    Ok(out)
}

/// A line with its end, broken at blanks where it is wider; what follows is indented.
pub(super) fn wrap(line: &str, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in line.split(' ') {
        let long = word.chars().count();
        if column > 0 && column + 1 + long > width {
            out.truncate(out.trim_end().len());
            out.push_str("\n  ");
            column = 2;
        } else if !out.is_empty() {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += long;
    }
    out + "\n"
}
