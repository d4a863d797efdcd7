//! Progress on standard error: a bar on a terminal, else a line per step.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Duration;

/// A piece of work of so many units.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    last: Mutex<String>,
}

impl Progress {
    /// `length` units of work; 0 where nobody knows how much it is.
    pub(crate) fn new(length: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar =
                if length > 0 { ProgressBar::new(length) } else { ProgressBar::new_spinner() };
            let template = if length > 0 {
                "{elapsed:>4} [{bar:30}] {percent:>3}% {wide_msg}"
            } else {
                "{elapsed:>4} {spinner} {wide_msg}"
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self { bar, last: Mutex::default() }
    }
    /// What is being done now. Without a terminal, each new text is a line.
    pub(crate) fn say(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(what.to_owned()),
            None => {
                let mut last = self.last.lock().unwrap_or_else(|e| e.into_inner());
                if *last != what {
                    eprintln!("homenode: {what}");
                    what.clone_into(&mut last);
                }
            }
        }
    }
    /// What changes all the time: shown on terminals only.
    pub(crate) fn murmur(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
        }
    }
    /// So many units are done.
    pub(crate) fn at(&self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }
    /// So many more units are done.
    pub(crate) fn advance(&self, more: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(more);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
