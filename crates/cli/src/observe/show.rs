//! Where rows go: a table on a terminal, redrawn in place; tables one below the other;
//! JSON lines; Parquet.

use super::course::Turn;
use crate::screen::Screen;
use anyhow::Result;
use console::Term;
use homenode_core::units::{Picos, count};
use homenode_core::view::{Totals, Usage};
use homenode_report::ObserveTable;
use homenode_trace::observation::{At, Writer};
use std::io::IsTerminal;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Processes in a table that isn't on a terminal.
const PLAIN_ROWS: usize = 20;
/// Columns of such a table.
const PLAIN_WIDTH: usize = 120;
/// A file is brought up to date after this time at the earliest, and after a thousand times
/// what that took the last time.
const KEEP_EVERY: Duration = Duration::from_secs(60);

/// How rows are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One table, redrawn.
    Live,
    /// A table a period.
    Plain,
    /// A JSON object a row.
    Json,
}

/// Shows rows.
pub(super) struct Shower {
    form: Form,
    table: ObserveTable,
    source: &'static str,
    /// Most processes in a table, if the user said.
    most: Option<usize>,
    screen: Screen,
    file: Option<Writer>,
    kept: Instant,
    keep_after: Duration,
    period: u64,
}

/// What stands above a table.
pub(super) struct About {
    /// Time since observing began.
    pub(super) since: Picos,
    pub(super) totals: Totals,
    /// Processes that live and are watched.
    pub(super) len: (usize, usize),
    /// For how long the source has been silent.
    pub(super) silent: Option<Picos>,
    /// Whether it is the last period, which was cut short.
    pub(super) last: bool,
}

impl Shower {
    /// * `term` – where text goes: standard output, or error beside a program's own output.
    pub(super) fn new(
        form: Form,
        term: Term,
        table: ObserveTable,
        source: &'static str,
        most: Option<usize>,
        file: Option<Writer>,
    ) -> Self {
        Self {
            form,
            table,
            source,
            most,
            screen: Screen::new(term),
            file,
            kept: Instant::now(),
            keep_after: KEEP_EVERY,
            period: 0,
        }
    }

    /// A line that is no row. Beside JSON it goes to standard error.
    pub(super) fn say(&mut self, text: &str) -> Result<()> {
        match self.form {
            Form::Json => {
                eprintln!("homenode: {text}");
                Ok(())
            }
            Form::Live | Form::Plain => self.screen.write(&format!("{text}\n")),
        }
    }

    /// Whether anybody still takes what is written.
    pub(super) const fn is_read(&self) -> bool {
        self.screen.is_read() || self.file.is_some()
    }

    /// Periods that were shown.
    pub(super) const fn periods(&self) -> u64 {
        self.period
    }

    /// The rows of a period.
    ///
    /// # Errors
    /// A terminal, pipe or file that can't be written.
    pub(super) fn rows(&mut self, rows: &[Usage], about: &About) -> Result<()> {
        // The end was noticed only after the period in which everybody went.
        if about.last && rows.is_empty() && self.period > 0 {
            return Ok(());
        }
        self.period += 1;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        let (period, since_ms) = (self.period, about.since.as_ms());
        match self.form {
            Form::Json => {
                let mut text = String::new();
                for row in rows {
                    text += &self.table.to_json(row, period, since_ms, unix_ms, self.source);
                    text.push('\n');
                }
                self.screen.write(&text)?;
            }
            Form::Plain => {
                let table = self.table.to_text(rows, PLAIN_WIDTH, self.most.unwrap_or(PLAIN_ROWS));
                self.screen.write(&format!("\n{}\n{table}", self.title(about)))?;
            }
            Form::Live => self.redraw(rows, about)?,
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        for row in rows {
            file.push(At { period, since: about.since, unix_ms }, row)?;
        }
        // The first rows at once: so the file is seen to be there.
        if period == 1 || self.kept.elapsed() >= self.keep_after {
            let begun = Instant::now();
            file.keep()?;
            self.kept = Instant::now();
            self.keep_after = KEEP_EVERY.max(begun.elapsed().saturating_mul(1000));
        }
        Ok(())
    }

    /// Ends the file. Its size in bytes and its rows, if there is one.
    pub(super) fn finish(&mut self) -> Result<Option<(u64, u64)>> {
        let Some(file) = self.file.take() else { return Ok(None) };
        let rows = file.rows();
        Ok(Some((file.finish()?, rows)))
    }

    fn title(&self, about: &About) -> String {
        let t = about.totals;
        let (alive, watched) = about.len;
        let mut out = format!(
            "{} s, period {}: {}",
            about.since.as_ms() / 1000,
            self.period,
            count(alive as u64, "process", "processes")
        );
        if watched > 0 && watched < alive {
            out += &format!(", {watched} of them sampled");
        }
        if t.ended > 0 {
            out += &format!(", {} ended", t.ended);
        }
        if t.lost > 0 {
            out += &format!(", {} lost", count(t.lost, "event", "events"));
        }
        if let Some(since) = about.silent {
            out += &format!(", {} silent for {} s", self.source, since.as_ms() / 1000);
        }
        out
    }

    fn redraw(&mut self, rows: &[Usage], about: &About) -> Result<()> {
        let (height, width) = self.screen.size();
        // Title, heading, the line of the others, and the cursor's own.
        let room = height.saturating_sub(4).max(1);
        let most = self.most.unwrap_or(room).min(room);
        let title: String = self.title(about).chars().take(width - 1).collect();
        let table = self.table.to_text(rows, width - 1, most);
        self.screen.redraw(&format!("{title}\n{table}"))
    }
}

/// Where text goes beside a program's output, and in which form.
pub(super) fn form(json: bool, beside: bool) -> (Form, Term) {
    let term = if beside { Term::stderr() } else { Term::stdout() };
    let form = match json {
        true => Form::Json,
        // A program's own output in between would be wiped away.
        false if beside || !std::io::stdout().is_terminal() => Form::Plain,
        false => Form::Live,
    };
    (form, term)
}

/// Why it ended, where nobody asked for it; a sentence.
pub(super) fn ending(turn: &Turn) -> Option<&'static str> {
    match turn {
        Turn::Empty => Some("all of these processes have ended"),
        Turn::Over | Turn::Stopped | Turn::Broken(_) => None,
    }
}
