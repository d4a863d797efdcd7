//! Cells that were finished, in a file: a line of JSON each. A run that was cut off has left whole
//! lines, and at most one that is not; that one is passed over.

use anyhow::{Context, Result, anyhow};
use homenode_report::CompareCell;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use twox_hash::XxHash3_64;

/// A file of cells.
pub(super) struct Kept {
    cells: BTreeMap<String, CompareCell>,
    file: Mutex<File>,
    path: PathBuf,
    program: u64,
}

/// Where cells are kept unless somebody says where.
pub(super) fn default_path() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|h| h.join(".cache")));
    let cache = cache.ok_or_else(|| {
        anyhow!("neither XDG_CACHE_HOME nor HOME is set; say by --out where runs are kept")
    })?;
    let folder = cache.join("homenode");
    std::fs::create_dir_all(&folder).with_context(|| {
        format!("{}: can't be made; --out names another file", folder.display())
    })?;
    Ok(folder.join("compare.jsonl"))
}

impl Kept {
    /// Opens a file, or makes it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = match std::fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(e).with_context(|| format!("{shown}: can't be read")),
        };
        let file = OpenOptions::new().create(true).append(true).open(path);
        let mut file = file.with_context(|| format!("{shown}: can't be written"))?;
        // Behind a line that was cut off, the next one begins anew.
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").with_context(|| format!("{shown}: can't be written"))?;
        }
        let program = std::env::current_exe().and_then(std::fs::read);
        let program = program.context("this program's own file can't be read")?;
        Ok(Self {
            cells: text.lines().filter_map(parsed).collect(),
            file: Mutex::new(file),
            path: path.to_owned(),
            program: XxHash3_64::oneshot(&program),
        })
    }
    /// What tells this program from others.
    pub(super) fn program(&self) -> u64 {
        self.program
    }
    pub(super) fn find(&self, key: &str) -> Option<CompareCell> {
        self.cells.get(key).cloned()
    }
    /// Keeps a cell, at once; the cell as the file has it, so that it is the same when it is read
    /// again.
    pub(super) fn put(
        &self,
        key: &str,
        (workload, contender): (&str, &str),
        cell: &CompareCell,
    ) -> Result<CompareCell> {
        let line = json!({
            "key": key,
            "workload": workload,
            "contender": contender,
            "seed": cell.seed,
            "cell": cell,
        })
        .to_string();
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(format!("{line}\n").as_bytes())
            .with_context(|| format!("{}: can't be written", self.path.display()))?;
        let (_, cell) =
            parsed(&line).ok_or_else(|| anyhow!("a run has a figure that is no number"))?;
        Ok(cell)
    }
}

/// A line's key and cell, if it is whole.
fn parsed(line: &str) -> Option<(String, CompareCell)> {
    let mut all: Value = serde_json::from_str(line).ok()?;
    let key = all.get("key")?.as_str()?.to_owned();
    Some((key, serde_json::from_value(all.get_mut("cell")?.take()).ok()?))
}
