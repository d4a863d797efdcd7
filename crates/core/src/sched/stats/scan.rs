//! What parsers of the three files share: numbers as the kernel prints them, and errors.

use std::fmt;

/// Why a text is none of the kernel's files; its `Display` is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsError {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong with it, in a sentence.
    pub what: String,
}

impl StatsError {
    pub(super) fn new(line: usize, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }
}

impl fmt::Display for StatsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for StatsError {}

/// A number as the kernel prints one without sign: digits, no leading zero.
pub(super) fn number(word: &str, bits: u32) -> Result<u64, String> {
    let shown = shown(word);
    if word.is_empty() || !word.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("{shown} is not a number"));
    }
    if word.len() > 1 && word.starts_with('0') {
        return Err(format!("{shown} begins with 0, which the kernel prints of no number"));
    }
    let value = word.parse::<u64>().ok().filter(|v| bits >= 64 || v >> bits == 0);
    value.ok_or_else(|| format!("{shown} does not fit into the {bits} bits of this counter"))
}

/// A word in quotes, cut where it is long: what was found, for errors.
pub(super) fn shown(word: &str) -> String {
    const MOST: usize = 80;
    if word.chars().count() <= MOST {
        return format!("{word:?}");
    }
    let cut: String = word.chars().take(MOST).collect();
    format!("{cut:?}…")
}

/// The lines of a text, numbered from 1 on.
///
/// # Errors
/// If there is none, or the last one has no newline: then nobody knows whether its last number is
/// whole.
pub(super) fn lines(text: &str) -> Result<Vec<(usize, &str)>, StatsError> {
    numbered(text).map(Iterator::collect)
}

/// As [`lines`], one after another: a text may have more lines than one would keep.
pub(super) fn numbered(text: &str) -> Result<impl Iterator<Item = (usize, &str)>, StatsError> {
    if text.is_empty() {
        return Err(StatsError::new(1, "the text is empty"));
    }
    let Some(text) = text.strip_suffix('\n') else {
        let n = text.split('\n').count();
        return Err(StatsError::new(n, "the text ends without a newline, so it is cut off here"));
    };
    Ok(text.split('\n').enumerate().map(|(i, line)| (i + 1, line)))
}

/// The first line that ends as on Windows, from 1 on.
pub(super) fn carriage_return(text: &str) -> Option<usize> {
    text.split_inclusive('\n').position(|line| line.ends_with("\r\n")).map(|i| i + 1)
}
