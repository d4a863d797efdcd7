//! Files below a root folder, read only; what could not be read is remembered.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// No file of /proc or /sys that is read whole is as large; a larger one is damaged.
const BYTES_MAX: u64 = 8 << 20;

/// A folder with `proc`, `sys` and `boot`: `/`, or a copy for tests.
pub(super) struct Root {
    path: PathBuf,
    unseen: RefCell<BTreeSet<String>>,
}

impl Root {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), unseen: RefCell::default() }
    }
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
    /// Remembers that something is there and may not be read. That it isn't there, or
    /// can't be answered (as by a process that has just ended), is no secret.
    fn note(&self, name: &str, error: &io::Error) {
        if error.kind() == ErrorKind::PermissionDenied {
            self.unseen.borrow_mut().insert(format!("/{name}"));
        }
    }
    /// What could not be read for want of privilege, by name.
    pub(super) fn unseen(&self) -> Vec<String> {
        self.unseen.borrow().iter().cloned().collect()
    }
    fn open(&self, name: &str) -> Option<File> {
        File::open(self.path.join(name)).map_err(|e| self.note(name, &e)).ok()
    }
    /// A file's bytes; `None` if it isn't there or may not be read.
    pub(super) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let file = self.open(name)?;
        file.take(BYTES_MAX).read_to_end(&mut out).map_err(|e| self.note(name, &e)).ok()?;
        Some(out)
    }
    /// A file's text without blanks at its ends; odd bytes become marks.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let bytes = self.bytes(name)?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }
    /// A file's decimal number.
    pub(super) fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.text(name)?.parse().ok()
    }
    /// Calls `each` for every line of a file. Whether the file could be read.
    pub(super) fn lines(&self, name: &str, each: impl FnMut(&[u8])) -> bool {
        self.pieces(name, b'\n', each)
    }
    /// Calls `each` for every piece between two bytes of a kind. Whether the file could be read.
    pub(super) fn pieces(&self, name: &str, end: u8, mut each: impl FnMut(&[u8])) -> bool {
        let Some(file) = self.open(name) else { return false };
        let mut file = BufReader::with_capacity(1 << 16, file.take(64 << 20));
        let mut line = Vec::new();
        loop {
            line.clear();
            match file.read_until(end, &mut line) {
                Ok(0) => return true,
                Ok(_) => each(line.strip_suffix(&[end]).unwrap_or(&line).trim_ascii()),
                Err(e) => {
                    self.note(name, &e);
                    return false;
                }
            }
        }
    }
    /// Names in a folder, in order; `None` if it isn't there or may not be read.
    pub(super) fn names(&self, name: &str) -> Option<Vec<String>> {
        let folder = fs::read_dir(self.path.join(name)).map_err(|e| self.note(name, &e)).ok()?;
        let mut out: Vec<String> =
            folder.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
        out.sort();
        Some(out)
    }
    /// Whether something of that name is there.
    pub(super) fn has(&self, name: &str) -> bool {
        fs::metadata(self.path.join(name)).map_err(|e| self.note(name, &e)).is_ok()
    }
    /// Its size, as the file system tells.
    pub(super) fn size(&self, name: &str) -> Option<u64> {
        fs::metadata(self.path.join(name)).map_err(|e| self.note(name, &e)).ok().map(|m| m.len())
    }
    /// Numbers `n` of entries `PREFIXn` of a folder, in rising order.
    pub(super) fn numbered(&self, name: &str, prefix: &str) -> Vec<u32> {
        let names = self.names(name).unwrap_or_default();
        let numbers = names.iter().filter_map(|n| n.strip_prefix(prefix)?.parse().ok());
        let mut out: Vec<u32> = numbers.collect();
        out.sort_unstable();
        out
    }
}
