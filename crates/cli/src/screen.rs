//! A terminal, or what stands in its place: text that is added, or redrawn in place.

use anyhow::Result;
use console::Term;
use std::io::{ErrorKind, Write};

/// Where text goes.
pub(crate) struct Screen {
    term: Term,
    /// Lines that were drawn last, and how wide the terminal was.
    drawn: usize,
    width: usize,
    /// Nobody reads any more (`| head`).
    unread: bool,
}

impl Screen {
    pub(crate) const fn new(term: Term) -> Self {
        Self { term, drawn: 0, width: 0, unread: false }
    }
    /// Whether anybody still takes what is written.
    pub(crate) const fn is_read(&self) -> bool {
        !self.unread
    }
    /// Lines and columns.
    pub(crate) fn size(&self) -> (usize, usize) {
        let (height, width) = self.term.size();
        (usize::from(height), usize::from(width).max(20))
    }
    /// Draws text in place of what was drawn last. Its lines have to fit.
    ///
    /// # Errors
    /// A terminal that can't be written.
    pub(crate) fn redraw(&mut self, text: &str) -> Result<()> {
        let width = self.size().1;
        // Lines that were wider than the terminal is now have become several.
        if self.drawn > 0 && width == self.width {
            self.term.clear_last_lines(self.drawn)?;
        }
        self.drawn = text.lines().count();
        self.width = width;
        self.write(text)
    }
    /// Adds text. A reader that has seen enough is no error.
    ///
    /// # Errors
    /// A terminal, pipe or file that can't be written.
    pub(crate) fn write(&mut self, text: &str) -> Result<()> {
        match self.term.write_all(text.as_bytes()).and_then(|()| self.term.flush()) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {
                self.unread = true;
                Ok(())
            }
            Err(e) => Err(anyhow::Error::new(e).context("can't print")),
            Ok(()) => Ok(()),
        }
    }
}
