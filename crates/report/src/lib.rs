//! Result types and their stable formats: tables, pictures, captions, JSON.
//!
//! The simulator and the live machine fill these types; nothing here knows where
//! figures come from. Each type has a text form for people (`Display` or a
//! function that takes a width) and a JSON form with stable field names.
//!
//! Reading order: [`stats`], [`ComparisonTable`] (mmtests' layout; `homenode replay`),
//! [`heat_picture`], [`Caption`], [`Report`], [`Reproduction`] (`homenode reproduce`),
//! [`Advice`] (`homenode advise`), [`StatsReport`] (`homenode stats`), [`ActState`], [`TrialReport`] (`homenode act`),
//! [`LedgerTable`] (`homenode ledger`), [`CompareTable`] (`homenode compare`).
#![forbid(unsafe_code)]

pub mod stats;

mod act;
mod advise;
mod caption;
mod cell;
mod compare;
mod comparison;
mod cpu_times;
mod lanes;
mod ledger;
mod look;
mod merge;
mod observe;
mod openmetrics;
mod perfetto;
mod picture;
mod reproduction;
mod schedstats;
mod trial;

pub use act::{ActEnd, ActProcess, ActState};
pub use advise::{
    Advice, AdviceConstant, AdviceKnob, AdviceLeft, AdviceMove, AdviceRest, AdviceThreads,
    verdict_text,
};
pub use caption::{Caption, Scale};
pub use cell::Better;
pub use compare::{
    CompareCell, CompareLate, CompareOptimum, CompareRatio, CompareRow, CompareTable,
    CompareWorkload,
};
pub use comparison::{Compared, ComparisonTable, Figure, Section};
pub use cpu_times::{CpuTimes, cpu_times};
pub use lanes::{Lane, cpu_picture};
pub use ledger::{GuestThreads, LedgerEntry, LedgerMover, LedgerTable, failed_bytes};
pub use look::LookReport;
pub use merge::{MergeCosts, MergeEstimate, MergeLooks, MergePerNode};
pub use observe::{ObserveOrder, ObserveTable};
pub use openmetrics::{Labels, OpenMetrics};
pub use perfetto::{SchedTrace, TraceSpan, TraceStage, TraceTask};
pub use picture::{Column, Glyphs, Snapshot, heat_picture};
pub use reproduction::{Conclusion, Reproduced, Reproduction, Surface};
pub use schedstats::StatsReport;
pub use trial::{
    Exact, LEAST_WINDOWS, MOST_WINDOWS, TrialReport, TrialVerdict, TrialWindow, exact,
};

use serde::Serialize;

/// Everything that one command says about its runs: one JSON object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What was run on what.
    pub caption: Caption,
    /// Figures by configuration.
    pub table: ComparisonTable,
    /// Where the hot pages were, in the order of drawing.
    pub picture: Vec<Snapshot>,
    /// What the reader should do, where the figures say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conclusion: Option<String>,
}

/// Wider pictures and captions are hard to read.
const WIDEST_TEXT: usize = 100;

impl Report {
    /// The report as one JSON object on one line.
    ///
    /// Figures that are no number (the mean of nothing) become `null`.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data with text keys")
    }

    /// The report as text: table, picture, conclusion, caption.
    ///
    /// * `width` – columns of the terminal. The table is cut into blocks that fit, the
    ///   picture and the caption take 100 at most, since wider ones are hard to read.
    pub fn to_text(&self, width: usize, glyphs: Glyphs) -> String {
        let caption = self.caption.to_text(width.min(WIDEST_TEXT));
        format!("{}\n{caption}", self.to_brief(width, glyphs))
    }

    /// The same without the caption.
    pub fn to_brief(&self, width: usize, glyphs: Glyphs) -> String {
        let mut out = self.table.to_text(width);
        let width = width.min(WIDEST_TEXT);
        if !self.picture.is_empty() {
            out.push('\n');
            out.push_str(&heat_picture(&self.picture, width, glyphs));
        }
        if let Some(conclusion) = &self.conclusion {
            out.push('\n');
            caption::wrap(&mut out, 0, &format!("so: {conclusion}"), width, |c| c);
        }
        out
    }
}
