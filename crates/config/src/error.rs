//! The one kind of error: where, what, and what is allowed.

use std::fmt;

/// What is wrong with a file, and where.
///
/// Displays as one sentence: `FILE:LINE:COLUMN: KEY: WHAT`. A file that could
/// not be read or written has no line; its cause is the error's source.
#[derive(Debug)]
pub struct ConfigError {
    /// The file's name as it was given.
    pub file: String,
    /// Line and column, both from 1; the column counts characters.
    pub at: Option<(usize, usize)>,
    /// The key's path, such as `link[0].read_latency`; empty for the file as a whole.
    pub key: String,
    /// What is wrong and what is allowed.
    pub what: String,
    /// The cause, where another library or the system gave one.
    pub source: Option<Box<std::io::Error>>,
}

impl ConfigError {
    pub(crate) fn file(file: &str, what: &str, source: std::io::Error) -> Self {
        Self { source: Some(Box::new(source)), ..Self::new(file, None, what) }
    }

    /// A place of a file, or all of it, is not as it should be.
    pub(crate) fn new(file: &str, at: Option<(usize, usize)>, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), at, key: String::new(), what: what.into(), source: None }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some((line, column)) = self.at {
            write!(f, ":{line}:{column}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}
