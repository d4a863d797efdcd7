//! Writes from outside of virtual time, and reads and writes at given times of it: who
//! makes them, how long they take, and what came of them.
//!
//! ```text
//! write_file ──▶ done at once ◀───────────────────┐
//! act ─────────▶ done at once, or                 │
//!                waits until memory is offline ───┤ act_again
//!                a job for the writer's task ─────┘
//! ```
//!
//! In a scenario a task of its own makes a write that takes the kernel time: an ordinary
//! one, on the CPU that has the fewest when it begins, which pays for moving the pages as a
//! shell's `echo` does. Several wait for each other, as the kernel's lock has it.
//!
//! Source: specs/files.md#actions, specs/files.md#blocks.

use super::ksm::{Wrote, would_wait};
use crate::kernel::Ctx;
use crate::program::Writer;
use crate::simulation::{FileError, Job, Outcome, Simulation};
use crate::switch::LATENCYTOP;
use crate::tasks::Kind;
use crate::watch::By;
use homenode_core::knobs::Errno;
use homenode_core::scenario::{FileOp, Rights, names_in};
use homenode_core::units::Picos;

impl Simulation {
    /// Writes a text to a file from its start, in one piece.
    ///
    /// What takes the kernel time (memory that goes offline) is done at once, at the
    /// present moment of virtual time; an [`homenode_core::scenario::Action`] takes its
    /// time.
    ///
    /// # Errors
    /// [`FileError`]; nothing is then changed. EACCES at open, EPERM, EINVAL and
    /// ERANGE from the knob, EACCES, EIO or EINVAL for what can't be written; EBUSY and
    /// ENOMEM from merging, and EAGAIN where the writer would have to wait for memory that
    /// is going offline; EINVAL, EBUSY and EINTR for memory that does not go offline (pages
    /// that had left it by then stay where they are).
    ///
    /// Source: specs/files.md#rights, specs/knobs.md#sysctl, specs/files.md#ksm,
    /// specs/files.md#blocks.
    pub fn write_file(&mut self, path: &str, text: &str, who: Rights) -> Result<(), FileError> {
        match self.write_timed(path, text, who)? {
            Wrote::Done(_) => {
                // Nobody else may look before time goes on.
                self.heed(self.now());
                Ok(())
            }
            Wrote::Waits => Err(would_wait(path)),
            Wrote::Begins(job) => self.finish_now(job),
        }
    }

    /// What came of the scenario's reads and writes so far, in its order.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.planned
    }

    /// The time of an action has come.
    pub(crate) fn act_on_file(&mut self, number: usize) {
        self.attempt(number);
        // It may have been the one that others waited for.
        self.act_again();
    }

    fn attempt(&mut self, number: usize) {
        let action = self.planned[number].action.clone();
        let path = self.with_pids(action.what.path());
        let (mut took, mut waits, mut begins) = (Picos::ZERO, false, None);
        let result = match (&path, &action.what) {
            (Err(e), _) => Err(e.clone()),
            (Ok(path), FileOp::Read { .. }) => {
                if path == LATENCYTOP {
                    self.latencytop();
                }
                self.read_file_as(path, action.who)
            }
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
            self.finish_later(Job { outcome: Some(number), ..job });
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

    /// A write of a scenario: the writer's task is woken for it.
    fn finish_later(&mut self, job: Job) {
        self.writing.jobs.push_back(job);
        let id = match self.writing.task {
            Some(id) => id,
            None => {
                let id = self.start_daemon(Kind::Writer, Box::new(Writer));
                self.writing.task = Some(id);
                id
            }
        };
        self.wake(id, By::Kernel);
    }
    /// A write from outside of virtual time: those that wait come first, all at once.
    fn finish_now(&mut self, job: Job) -> Result<(), FileError> {
        self.writing.jobs.push_back(job);
        let mut ctx = self.outside();
        loop {
            let done = self.go_on_writing(&mut ctx, u64::MAX).unwrap_or(Ok(()));
            if self.writing.jobs.is_empty() {
                return done;
            }
        }
    }

    /// The writer's turn, until `end`; true once nothing is left to write.
    pub(crate) fn write_on(&mut self, ctx: &mut Ctx, end: u64) -> bool {
        while ctx.clock < end && !self.writing.jobs.is_empty() {
            self.go_on_writing(ctx, end);
        }
        self.writing.jobs.is_empty()
    }
    /// The first job, and then those that waited for it.
    fn go_on_writing(&mut self, ctx: &mut Ctx, end: u64) -> Option<Result<(), FileError>> {
        let done = self.work_on(ctx, end)?;
        self.act_again();
        Some(done)
    }

    /// A path with PIDs in the place of `{names}`.
    fn with_pids(&self, path: &str) -> Result<String, FileError> {
        let mut out = path.to_owned();
        for name in names_in(path) {
            let Some(pid) = self.pid_of(name) else {
                let why = format!("no process named \"{name}\" has started yet");
                return Err(FileError::new(path, Errno::Enoent, &why));
            };
            out = out.replace(&format!("{{{name}}}"), &pid.to_string());
        }
        Ok(out)
    }
}
