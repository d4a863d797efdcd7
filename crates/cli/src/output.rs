//! Where figures go, and how wide they may be.

use anyhow::{Context, Result, bail};
use homenode_report::Glyphs;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;

/// Columns where standard output is no terminal: wide enough for five configurations.
const WIDTH_OF_FILES: usize = 168;

/// Columns for a table.
pub(crate) fn width() -> usize {
    let out = console::Term::stdout();
    match out.size_checked() {
        Some((_, columns)) if std::io::stdout().is_terminal() => usize::from(columns).max(40),
        _ => WIDTH_OF_FILES,
    }
}

/// Block elements, unless the locale says that only ASCII is safe.
pub(crate) fn glyphs() -> Glyphs {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|value| !value.is_empty());
    match locale.map(|l| l.to_ascii_lowercase()) {
        Some(l) if !l.contains("utf") => Glyphs::Ascii,
        _ => Glyphs::Blocks,
    }
}

/// Prints to standard output. A reader that has seen enough (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{newline}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e).context("can't print"),
        _ => Ok(()),
    }
}

/// Puts a text in a file's place: who reads it sees the old one or the new one, whole.
pub(crate) fn replace(path: &Path, text: &str) -> Result<()> {
    let mut beside = path.to_owned().into_os_string();
    beside.push(".partial");
    let put = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    if put.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    put.with_context(|| format!("{} can't be written", path.display()))
}

/// Whether a file can be put there, told before a minute's work instead of after it.
pub(crate) fn check_output(path: &Path) -> Result<()> {
    let shown = path.display();
    if path.is_dir() || path.file_name().is_none() {
        bail!("{shown}: this is a folder; -o names the file to write");
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let found = std::fs::metadata(folder)
        .with_context(|| format!("{shown}: its folder {} can't be used", folder.display()))?;
    if !found.is_dir() {
        bail!("{shown}: {} is no folder", folder.display());
    }
    Ok(())
}
