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
    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
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
    /// Where what is kept over boots is: `$STATE_DIRECTORY`, which systemd gives to a unit,
    /// `/var/lib/homenode`, or `$XDG_STATE_HOME/homenode` where this is not root.
    pub fn state_folder(&self) -> PathBuf {
        let given = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        // SAFETY: no arguments.
        let root = unsafe { libc::geteuid() } == 0;
        let own = || {
            let home = || given("HOME").map(|home| home.join(".local/state"));
            given("XDG_STATE_HOME").or_else(home).map(|state| state.join("homenode"))
        };
        let given = match (self.root == Path::new("/"), root) {
            (false, _) => None,
            (true, true) => given("STATE_DIRECTORY"),
            (true, false) => given("STATE_DIRECTORY").or_else(own),
        };
        given.unwrap_or_else(|| self.path("/var/lib/homenode"))
    }
}
