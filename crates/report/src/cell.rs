//! What mmtests' cells share.

use serde::Serialize;
use std::ops::Range;

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Times, latencies.
    Lower,
    /// Throughputs, shares of fast accesses.
    Higher,
    /// Plain counts: no percentage is shown.
    Neither,
}

impl Better {
    /// Gain over the baseline in percent, positive is better; `None` where no way is
    /// better. From 0 every change is infinite, and none is 0.
    pub fn gain(self, base: f64, new: f64) -> Option<f64> {
        let worse_if_higher = match self {
            Self::Lower => true,
            Self::Higher => false,
            Self::Neither => return None,
        };
        let up = if new == base { 0.0 } else { (new - base) / base.abs() * 100.0 };
        // Not -up, which would print 0 as -0.
        Some(if worse_if_higher { 0.0 - up } else { up })
    }
}

/// Columns of a percentage with its brackets and the blank before it.
const GAIN: usize = 11;

/// ` (%7.2f%%)`, with stars for brackets where the difference is significant.
pub(crate) fn gain(percent: Option<f64>, significant: bool) -> String {
    let Some(p) = percent else { return " ".repeat(GAIN) };
    let (open, close) = if significant { ('*', '*') } else { ('(', ')') };
    let number = match p {
        p if p.is_nan() => "NaN".to_owned(),
        p if p.is_infinite() => if p > 0.0 { "Inf" } else { "-Inf" }.to_owned(),
        // What rounds to zero has no sign.
        p if p.abs() < 0.005 => "0.00".to_owned(),
        p => format!("{p:.2}"),
    };
    format!(" {open}{number:>7}%{close}")
}

/// A grid: labels to the left, right-aligned header and cells; no blanks at line ends.
pub(crate) struct Grid {
    /// Two header rows of one text per column.
    pub(crate) headers: Vec<(String, String)>,
    /// Labels and cells.
    pub(crate) rows: Vec<Line>,
}

pub(crate) enum Line {
    Cells(String, Vec<String>),
    Heading(String),
}

impl Grid {
    /// Draws it in blocks of as many columns as fit into `width`, at least one, each
    /// with the labels and with a blank line between.
    pub(crate) fn draw(&self, width: usize) -> String {
        let chars = |s: &str| s.chars().count();
        let cells = || {
            self.rows.iter().filter_map(|l| match l {
                Line::Cells(name, cells) => Some((name, cells)),
                Line::Heading(_) => None,
            })
        };
        let label_width = cells().map(|(name, _)| chars(name)).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.headers.len())
            .map(|i| {
                let head = &self.headers[i];
                let widest = cells().filter_map(|(_, c)| c.get(i)).map(|c| chars(c)).max();
                widest.unwrap_or(0).max(chars(&head.0)).max(chars(&head.1))
            })
            .collect();
        let mut blocks = Vec::new();
        let (mut from, mut used) = (0, label_width);
        for (i, w) in widths.iter().enumerate() {
            if i > from && used + 2 + w > width {
                blocks.push(from..i);
                (from, used) = (i, label_width);
            }
            used += 2 + w;
        }
        blocks.push(from..widths.len());
        let drawn: Vec<String> =
            blocks.into_iter().map(|b| self.block(b, &widths, label_width)).collect();
        drawn.join("\n")
    }

    fn block(&self, columns: Range<usize>, widths: &[usize], label_width: usize) -> String {
        let chars = |s: &str| s.chars().count();
        let mut out = String::new();
        let mut line = |label: String, cells: Vec<&str>| {
            let mut text = label;
            for (cell, width) in cells.iter().zip(widths).take(columns.end).skip(columns.start) {
                text.push_str("  ");
                text.extend(std::iter::repeat_n(' ', width - chars(cell)));
                text.push_str(cell);
            }
            out.push_str(text.trim_end());
            out.push('\n');
        };
        let blank = " ".repeat(label_width);
        line(blank.clone(), self.headers.iter().map(|h| h.0.as_str()).collect());
        if self.headers[columns.clone()].iter().any(|h| !h.1.is_empty()) {
            line(blank, self.headers.iter().map(|h| h.1.as_str()).collect());
        }
        for row in &self.rows {
            match row {
                Line::Heading(text) => line(text.clone(), vec![]),
                Line::Cells(name, cells) => {
                    let cells = cells.iter().map(String::as_str).collect();
                    line(format!("{name:<label_width$}"), cells);
                }
            }
        }
        out
    }
}

/// mmtests' two header rows: a name split at its first `-`.
pub(crate) fn header(name: &str) -> (String, String) {
    match name.split_once('-') {
        Some((a, b)) => (a.to_owned(), b.to_owned()),
        None => (name.to_owned(), String::new()),
    }
}
