//! A program that is started and held before its first instruction, so that somebody can begin to look.
//!
//! It stops where it has just become the new program (`ptrace`), and goes on by itself when it is let
//! go, or when this process ends.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// Why no program is held.
#[derive(Debug, thiserror::Error)]
pub enum HeldError {
    /// It can't be run.
    #[error("{program} can't be run")]
    Start {
        /// Which.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel holds nobody.
    #[error("the kernel lets nobody hold a program (ptrace): allow it, or run it elsewhere")]
    Trace {
        /// What it said.
        source: io::Error,
    },
}

/// Has a command stop where its program begins.
pub fn traced(command: &mut Command) -> &mut Command {
    // SAFETY: the child makes one system call.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        })
    }
}

/// A program that is held.
#[derive(Debug)]
pub struct Held {
    /// `None` once it was let go.
    child: Option<Child>,
}

impl Held {
    /// Starts it.
    ///
    /// * `quiet` – what it prints goes nowhere, and it reads nothing.
    ///
    /// # Errors
    /// [`HeldError`]: it can't be run, or not be held.
    pub fn start(command: &[OsString], quiet: bool) -> Result<Self, HeldError> {
        let program = command.first().map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
        let mut starts = Command::new(command.first().map_or("".as_ref(), OsString::as_os_str));
        starts.args(command.get(1..).unwrap_or_default());
        if quiet {
            starts.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        }
        let child = traced(&mut starts).spawn().map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM) => HeldError::Trace { source },
            _ => HeldError::Start { program, source },
        })?;
        let mut status = 0;
        loop {
            // SAFETY: it is our own child, and `status` is ours.
            let r = unsafe { libc::waitpid(child.id() as i32, &raw mut status, 0) };
            match (r, io::Error::last_os_error()) {
                (-1, e) if e.kind() == io::ErrorKind::Interrupted => {}
                (-1, source) => return Err(HeldError::Trace { source }),
                _ if libc::WIFSTOPPED(status) => return Ok(Self { child: Some(child) }),
                _ => {
                    let source = io::Error::other("it ended before it began");
                    return Err(HeldError::Start { program: "the program".into(), source });
                }
            }
        }
    }
    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }
    /// Lets it go on.
    ///
    /// # Errors
    /// [`HeldError::Trace`], where it was killed meanwhile.
    pub fn go(mut self) -> Result<Child, HeldError> {
        let child = self.child.take().expect("it is let go once");
        // SAFETY: it is our own child, which has stopped.
        match unsafe { libc::ptrace(libc::PTRACE_DETACH, child.id() as i32, 0, 0) } {
            -1 => Err(HeldError::Trace { source: io::Error::last_os_error() }),
            _ => Ok(child),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Nobody lets it go any more.
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_when_it_is_let_go() {
        let words = ["true"].map(OsString::from);
        let held = Held::start(&words, true).expect("true is there");
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", held.pid())).unwrap();
        assert!(stat.contains("(true) t "), "it has become the program, and has stopped: {stat}");
        assert!(held.go().unwrap().wait().unwrap().success());
        let gone = Held::start(&words, true).unwrap();
        let pid = gone.pid();
        drop(gone);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "nothing is left");
        let none = Held::start(&["/nonexistent/program".into()], true).unwrap_err();
        assert!(none.to_string().contains("/nonexistent/program can't be run"));
    }
}
