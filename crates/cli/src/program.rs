//! The program that is started to be looked at, and when looking ends.

use anyhow::{Context, Result};
use homenode_live::begins::Begins;
use homenode_live::signals::{Signals, forward, has_ended, wait_for_end};
use homenode_trace::Ended;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A program, and what became of it.
pub(crate) struct Program {
    child: Child,
    ended: Option<ExitStatus>,
    /// Waits for its end, whenever we look: what it took.
    timer: Option<JoinHandle<Duration>>,
}

impl Program {
    pub(crate) fn start(command: &[OsString]) -> Result<Self> {
        Self::begun(command, None)
    }
    /// * `begins` – where its memory goes first, if not where the kernel puts it.
    fn begun(command: &[OsString], begins: Option<&Begins>) -> Result<Self> {
        let mut starts = Command::new(&command[0]);
        starts.args(&command[1..]);
        if let Some(begins) = begins {
            begins.on(&mut starts);
        }
        let child = starts
            .spawn()
            .with_context(|| format!("{}: can't be started", command[0].to_string_lossy()))?;
        Ok(Self::of(child))
    }
    /// As [`Self::start`], and [`Self::took`] says how long it took.
    ///
    /// * `begins` – where its memory goes first, if not where the kernel puts it.
    pub(crate) fn timed(command: &[OsString], begins: Option<&Begins>) -> Result<Self> {
        let begun = Instant::now();
        let mut program = Self::begun(command, begins)?;
        let pid = program.pid();
        program.timer = Some(std::thread::spawn(move || {
            wait_for_end(pid);
            begun.elapsed()
        }));
        Ok(program)
    }
    /// One that was started otherwise.
    pub(crate) fn of(child: Child) -> Self {
        Self { child, ended: None, timer: None }
    }
    /// What it took, once it is over; of one that is timed.
    pub(crate) fn took(&mut self) -> Option<Duration> {
        self.ended?;
        self.timer.take()?.join().ok()
    }
    /// How it has ended, for a recording.
    pub(crate) fn ended(&self) -> Ended {
        let Some(status) = self.ended else { return Ended::Unknown };
        let by_signal = || status.signal().map(Ended::Signal);
        status.code().map(Ended::Exit).or_else(by_signal).unwrap_or_default()
    }
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
    /// Whether it is over. A status that can't be had is one too: it would never come.
    pub(crate) fn is_over(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = match self.child.try_wait() {
                Ok(status) => status,
                Err(_) => Some(ExitStatus::from_raw(0)),
            };
        }
        self.ended.is_some()
    }
    /// Whether it is over, without taking its status: until that is done, the kernel still
    /// shows what it knows of it.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some() || has_ended(&self.child)
    }
    /// Waits for its end.
    pub(crate) fn wait(&mut self) {
        while !self.is_over() {
            if let Ok(status) = self.child.wait() {
                self.ended = Some(status);
            }
        }
    }
    fn forward(&mut self, signal: i32) {
        if !self.is_over() {
            forward(&self.child, signal);
        }
    }
    /// Its code, or what a shell makes of a signal; `None` while it runs.
    pub(crate) fn code(&self) -> Option<u8> {
        self.ended.map(of_status)
    }
}

/// The code of a program that has ended, or what a shell makes of a signal.
pub(crate) fn of_status(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => of_exit(code),
        (None, Some(signal)) => of_signal(signal),
        (None, None) => u8::MAX,
    }
}

/// What to exit with after a program that was recorded: as after one that was observed;
/// 0 where it was us who ended it, as asked.
pub(crate) fn code_of(ended: Ended) -> u8 {
    match ended {
        Ended::Exit(code) => of_exit(code),
        Ended::Signal(signal) => of_signal(signal),
        Ended::SliceFull | Ended::Interrupted | Ended::Unknown => 0,
    }
}

fn of_exit(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// As shells have it.
pub(crate) fn of_signal(signal: i32) -> u8 {
    128u8.saturating_add(u8::try_from(signal).unwrap_or(0))
}

/// Who may want to stop: signals, and the program by ending.
pub(crate) struct Stop {
    signals: Signals,
    heard: u32,
    pub(crate) program: Option<Program>,
}

impl Stop {
    /// Whether somebody wanted it to stop.
    pub(crate) fn was_asked(&self) -> bool {
        self.heard > 0
    }
    /// Catches signals from now on.
    pub(crate) fn new() -> Self {
        Self { signals: Signals::catch(), heard: 0, program: None }
    }
    /// Whether it is to be stopped. A program gets the first signal, unless the terminal
    /// has sent it to both, and is observed until it ends; the second one ends observing.
    pub(crate) fn wanted(&mut self) -> bool {
        let over = self.program.as_mut().is_some_and(Program::is_over);
        let Some((signal, terminal)) = self.signals.arrived() else { return over };
        self.heard += 1;
        match &mut self.program {
            Some(program) if self.heard == 1 => {
                if !terminal {
                    program.forward(signal);
                }
                over
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_timed_to_its_end_and_not_to_when_one_looks() {
        let mut program =
            Program::timed(&["sleep", "0.2"].map(OsString::from), None).expect("sleep");
        assert_eq!(program.took(), None, "it runs");
        std::thread::sleep(Duration::from_millis(1500));
        program.wait();
        let took = program.took().expect("it is over");
        assert!((0.2..1.4).contains(&took.as_secs_f64()), "{took:?}");
    }

    #[test]
    fn a_recorded_program_ends_with_the_code_that_an_observed_one_has() {
        for (script, ended) in [
            ("exit 0", Ended::Exit(0)),
            ("exit 1", Ended::Exit(1)),
            ("exit 255", Ended::Exit(255)),
            ("kill -9 $$", Ended::Signal(9)),
            ("kill -15 $$", Ended::Signal(15)),
        ] {
            let mut program =
                Program::start(&["sh", "-c", script].map(OsString::from)).expect("a shell");
            program.wait();
            assert_eq!(program.code(), Some(code_of(ended)), "{script}");
        }
        assert_eq!(code_of(Ended::Signal(9)), 137);
        // We ended it, with a signal that says nothing about the program.
        assert_eq!([Ended::SliceFull, Ended::Interrupted].map(code_of), [0, 0]);
    }
}
