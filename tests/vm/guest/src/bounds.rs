//! Bounds that were written down before the first run: `NAME = NUMBER` in a file.

use anyhow::{Context, Result};

/// A bound of a file's text.
pub(crate) fn of(text: &str, name: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
    let number = line.and_then(|n| n.replace('_', "").parse().ok());
    number.with_context(|| format!("no bound {name}"))
}
