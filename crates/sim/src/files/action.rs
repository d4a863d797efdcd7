//! Reads and writes at given times, and what came of them.
//!
//! Source: specs/files.md#actions.

use super::ksm::Wrote;
use super::{FileError, refused};
use crate::simulation::Simulation;
use homenode_core::knobs::Errno;
use homenode_core::scenario::{Action, FileOp, names_in};
use homenode_core::units::Picos;

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

impl Simulation {
    /// What came of the scenario's reads and writes so far, in its order.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.planned
    }

    /// The time of an action has come.
    pub(crate) fn act(&mut self, number: usize) {
        self.attempt(number);
        // It may have been the one that others waited for.
        self.act_again();
        // Where all CPUs are idle nobody else looks after what was written.
        self.heed_ksmd();
    }

    fn attempt(&mut self, number: usize) {
        let action = self.planned[number].action.clone();
        let path = self.with_pids(action.what.path());
        let (mut took, mut waits, mut begins) = (Picos::ZERO, false, None);
        let result = match (&path, &action.what) {
            (Err(e), _) => Err(e.clone()),
            (Ok(path), FileOp::Read { .. }) => self.read_file_as(path, action.who),
            (Ok(path), FileOp::Write { text, .. }) => {
                self.write_timed(path, text, action.who).map(|wrote| {
                    match wrote {
                        Wrote::Done(time) => took = time,
                        Wrote::Waits => waits = true,
                        Wrote::Begins(job) => begins = Some(job),
                    }
                    String::new()
                })
            }
        };
        let outcome = &mut self.planned[number];
        if let Ok(path) = path {
            outcome.path = path;
        }
        outcome.took = took;
        outcome.waits = waits;
        outcome.result = (!waits && begins.is_none()).then_some(result);
        if let Some(job) = begins {
            self.finish_later(job.of(number));
        }
    }

    /// Who waited for memory to be offline, or to stay, writes now, in the scenario's order.
    /// Nothing happens as long as some is on its way out.
    pub(crate) fn act_again(&mut self) {
        if self.kernel.ksm().is_offlining() {
            return;
        }
        for number in 0..self.planned.len() {
            if self.planned[number].waits {
                self.attempt(number);
            }
        }
    }

    /// A path with PIDs in the place of `{names}`.
    fn with_pids(&self, path: &str) -> Result<String, FileError> {
        let mut out = path.to_owned();
        for name in names_in(path) {
            let Some(pid) = self.pid_of(name) else {
                let why = format!("no process named \"{name}\" has started yet");
                return Err(refused(path, Errno::Enoent, &why));
            };
            out = out.replace(&format!("{{{name}}}"), &pid.to_string());
        }
        Ok(out)
    }
}
