//! Where it is shown what is done: a table redrawn in place, or JSON lines.

use crate::screen::Screen;
use anyhow::Result;
use console::Term;
use homenode_report::{ActEnd, ActState, TrialReport};
use std::io::IsTerminal;

/// Columns where the terminal is not asked.
const WIDTH: usize = 120;
/// Processes of a table that is not redrawn.
const MOST: usize = 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// One table, redrawn.
    Live,
    /// A table at the end: a program's own output is on the same terminal.
    Last,
    /// A JSON object a line.
    Json,
}

/// Shows it.
pub(super) struct Shower {
    form: Form,
    screen: Screen,
}

impl Shower {
    /// * `json` – whether that was asked for; `beside` – whether a program has standard
    ///   output to itself.
    pub(super) fn new(json: bool, beside: bool) -> Self {
        let (term, terminal) = match beside {
            true => (Term::stderr(), std::io::stderr().is_terminal()),
            false => (Term::stdout(), std::io::stdout().is_terminal()),
        };
        let form = match (json || !terminal, beside) {
            (true, _) => Form::Json,
            (false, true) => Form::Last,
            (false, false) => Form::Live,
        };
        Self { form, screen: Screen::new(term) }
    }
    /// Whether anybody still takes what is written.
    pub(super) fn is_read(&self) -> bool {
        self.screen.is_read()
    }
    /// Whether each step is shown, and not only what has changed.
    pub(super) fn is_live(&self) -> bool {
        self.form == Form::Live
    }
    /// A line that is no row.
    pub(super) fn say(&mut self, text: &str) -> Result<()> {
        match self.form {
            Form::Json => {
                eprintln!("homenode: {text}");
                Ok(())
            }
            Form::Live | Form::Last => self.screen.write(&format!("{text}\n")),
        }
    }
    /// How it is now.
    pub(super) fn state(&mut self, state: &ActState) -> Result<()> {
        match self.form {
            Form::Json => self.screen.write(&state.to_json()),
            Form::Live => {
                let (height, width) = self.screen.size();
                let most = height.saturating_sub(4).max(1);
                self.screen.redraw(&state.to_text(width - 1, most))
            }
            Form::Last => Ok(()),
        }
    }
    /// What a trial came to.
    pub(super) fn trial(&mut self, trial: &TrialReport) -> Result<()> {
        match self.form {
            Form::Json => self.screen.write(&trial.to_json()),
            Form::Live | Form::Last => self.screen.write(&trial.to_text()),
        }
    }
    /// How it ended.
    pub(super) fn end(&mut self, state: &ActState, end: &ActEnd) -> Result<()> {
        match self.form {
            Form::Json => self.screen.write(&end.to_json()),
            Form::Live => self.screen.write(&end.to_text()),
            Form::Last => {
                self.screen.write(&state.to_text(WIDTH, MOST))?;
                self.screen.write(&end.to_text())
            }
        }
    }
}
