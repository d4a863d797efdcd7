//! Reads and writes of the kernel's files that take place at times of their own: what is
//! asked for, what came of it, and what a write that takes time still has to do.
//!
//! ```text
//! scenario ──▶ Outcome: asked ─────────────────────────────────▶ answered
//!                         └─▶ Job ──▶ Writer's jobs ──▶ done ──────▲
//! ```
//!
//! `files` does it; here is only what the simulation keeps meanwhile.
//!
//! Source: specs/files.md#actions.

use homenode_core::knobs::{Errno, KnobError};
use homenode_core::scenario::Action;
use homenode_core::units::Picos;
use std::collections::VecDeque;

/// Why a file could not be opened, read or written; its `Display` is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {}: {why}", errno.name())]
pub struct FileError {
    /// The path as it was given.
    pub path: String,
    /// What the kernel answers.
    pub errno: Errno,
    /// Why, and what to do.
    pub why: String,
}

impl FileError {
    pub(crate) fn new(path: &str, errno: Errno, why: &str) -> Self {
        Self { path: path.to_owned(), errno, why: why.to_owned() }
    }
    pub(crate) fn of_knob(path: &str, e: KnobError) -> Self {
        let why = match &e.given {
            Some(text) => {
                format!("{:?} is refused; {}", text.trim_end_matches('\n'), e.allowed)
            }
            None => e.allowed,
        };
        Self { path: path.to_owned(), errno: e.errno, why }
    }
}

/// What came of one [`Action`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What was asked for.
    pub action: Action,
    /// The path that was opened: PIDs in the place of names.
    pub path: String,
    /// The text that was read (nothing for a write), or the error. `None` until the
    /// time has come and the kernel has answered, and for good if the run ends before.
    pub result: Option<Result<String, FileError>>,
    /// What it took the one who wrote: 2 to merging's `run` copies every merged page.
    /// The pages change at once, at the action's time.
    pub took: Picos,
    /// Whether the writer has begun and sleeps, since memory is going offline.
    pub waits: bool,
}

impl Outcome {
    pub(crate) fn planned(action: Action) -> Self {
        let path = action.what.path().to_owned();
        Self { path, action, result: None, took: Picos::ZERO, waits: false }
    }

    /// The error that came, if one did.
    pub fn errno(&self) -> Option<Errno> {
        self.result.as_ref().and_then(|r| r.as_ref().err()).map(|e| e.errno)
    }

    /// What went otherwise than expected, as a sentence for people; `None`: nothing.
    pub fn missed(&self) -> Option<String> {
        match (&self.result, self.action.expect) {
            (None, _) if self.waits => {
                Some("the run was over before memory was offline, for which it waited".to_owned())
            }
            (None, _) => Some("the run was over before it".to_owned()),
            (Some(Ok(_)), None) => None,
            (Some(Ok(_)), Some(expected)) => {
                Some(format!("{} was expected, but it succeeded", expected.name()))
            }
            (Some(Err(e)), None) => Some(format!("it failed: {}: {}", e.errno.name(), e.why)),
            (Some(Err(e)), Some(expected)) if e.errno == expected => None,
            (Some(Err(e)), Some(expected)) => {
                Some(format!("{} was expected, but {}: {}", expected.name(), e.errno.name(), e.why))
            }
        }
    }
}

/// A write that takes the kernel time.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) path: String,
    pub(crate) block: usize,
    /// What the block is to be.
    pub(crate) online: bool,
    /// To be what it is already is no error.
    pub(crate) lenient: bool,
    /// The action whose outcome it is.
    pub(crate) outcome: Option<usize>,
}

/// The task that writes, and what it has to write.
#[derive(Default)]
pub(crate) struct Writing {
    pub(crate) task: Option<usize>,
    pub(crate) jobs: VecDeque<Job>,
    /// The first job has begun.
    pub(crate) begun: bool,
}
