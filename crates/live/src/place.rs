//! Where a machine's files are: this one's, or a copy of some below any folder.

use std::path::{Path, PathBuf};

/// Where /sys, /proc and /run are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    root: PathBuf,
}

impl Place {
    /// This machine.
    pub fn here() -> Self {
        Self::at(Path::new("/"))
    }
    /// A folder that holds `sys`, `proc` and `run`.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }
    /// A path below the root, by its usual name.
    pub fn path(&self, usual: &str) -> PathBuf {
        self.root.join(usual.trim_start_matches('/'))
    }
    /// Where the journal is: `/run/homenode`, or `$XDG_RUNTIME_DIR/homenode` where
    /// this is not root.
    pub fn run_folder(&self) -> PathBuf {
        // SAFETY: no arguments.
        let root = unsafe { libc::geteuid() } == 0;
        match std::env::var_os("XDG_RUNTIME_DIR").filter(|v| !v.is_empty()) {
            Some(own) if !root && self.root == Path::new("/") => {
                PathBuf::from(own).join("homenode")
            }
            _ => self.path("/run/homenode"),
        }
    }
}
