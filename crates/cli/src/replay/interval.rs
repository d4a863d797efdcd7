//! How far the times of a replay may be off, by the spread of what was measured.
//!
//! Source: docs/decisions/0031-caches-as-measured.md.

use super::play::{self, Played};
use super::recorded::Recorded;
use crate::spread::{self, Predicted, Rests};
use crate::told::{self, Told};
use homenode_core::costs::Cost;
use serde_json::{Value, json};

/// A column's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    /// Of a round, in seconds on the clock.
    pub(crate) clock: Predicted,
    /// Processor time of a round, in seconds.
    pub(crate) processor: Predicted,
    /// How much faster than the first column, in percent; of that one 0.
    pub(crate) gain: Predicted,
}

impl Interval {
    pub(crate) fn json(&self) -> Value {
        let of = |p: &Predicted| json!([p.low, p.high]);
        json!({
            "round_s": of(&self.clock),
            "processor_s": of(&self.processor),
            "gain_percent": of(&self.gain),
        })
    }
}

/// Those of all columns.
pub(crate) struct Intervals {
    pub(crate) columns: Vec<Interval>,
    /// What they are made of.
    made_of: Vec<&'static str>,
    /// Nodes whose latency has no spread: numbers.
    quoted: Vec<String>,
    /// Of stores whose address memory tells, where they are slower here.
    told: Option<String>,
}

impl Intervals {
    /// How far each run may be off; `None` where the machine's file has no spread.
    pub(crate) fn new(recorded: &Recorded, played: &[Played]) -> Option<Self> {
        let (machine, cal) = (&recorded.target.machine, &recorded.calibrated);
        let rests: Vec<Rests> =
            Rests::of(machine).into_iter().filter(|&it| recorded.rests_on(it)).collect();
        if rests.is_empty() {
            return None;
        }
        let recording = &recorded.loaded.recording;
        let told = Told::of(machine, play::overlap(machine, recorded.mlp));
        // What goes both ways, and what stores whose address memory tells may take more.
        let parts: Vec<(Vec<f64>, f64)> = played
            .iter()
            .map(|p| {
                let run = p.run(recording, &cal.rates);
                let both = spread::parts(machine, &rests, &run, &cal.run, cal.native_end);
                (both, told.as_ref().map_or(0.0, |t| t.part(&run, &cal.run)))
            })
            .collect();
        let of = |time: f64, parts: &[f64], told: f64| {
            let both = parts.iter().map(|part| (part.abs(), part.abs()));
            Predicted::of(time, &both.chain([told::one_way(told)]).collect::<Vec<_>>())
        };
        let first = played.first()?.round();
        let columns = played.iter().zip(&parts).map(|(p, (own, told))| {
            let time = p.round();
            // What moves both columns alike changes no gain.
            let apart: Vec<f64> = own.iter().zip(&parts[0].0).map(|(a, b)| a - b).collect();
            let faster = of(first / time.max(f64::MIN_POSITIVE), &apart, parts[0].1 - told);
            let percent = |quotient: f64| (quotient - 1.0) * 100.0;
            Interval {
                clock: of(time, own, *told),
                processor: of(p.ran as f64 / 1e12 / p.rounds().len().max(1) as f64, own, *told),
                gain: Predicted {
                    low: percent(faster.low),
                    time: percent(faster.time),
                    high: percent(faster.high),
                },
            }
        });
        let columns = columns.collect();
        let link = rests.iter().any(|it| matches!(it, Rests::Link(_)));
        let window = rests.contains(&Rests::Cost(Cost::ReorderWindow));
        let lines =
            rests.iter().any(|it| matches!(it, Rests::Cost(cost) if *cost != Cost::ReorderWindow));
        let parts = [
            (link, "latencies"),
            (lines, "lines under way"),
            (window, "the core's window"),
            (cal.native_end > 0.0, "the native time"),
        ];
        let silent = |l: &&homenode_core::topology::Link| {
            l.read_latency.spread.is_none() && l.write_latency.spread.is_none()
        };
        let mut quoted: Vec<String> =
            machine.links.iter().filter(silent).map(|l| l.to.to_string()).collect();
        quoted.sort();
        quoted.dedup();
        let made_of = parts.into_iter().filter(|p| p.0).map(|p| p.1).collect();
        let told = told.map(|t| t.note(machine));
        Some(Self { columns, made_of, quoted, told })
    }

    /// What is said where stores whose address memory tells are slower than predicted.
    pub(crate) fn told(&self) -> Option<&str> {
        self.told.as_deref()
    }

    /// What a caption says of them.
    ///
    /// * `names` – of the columns.
    pub(crate) fn note(&self, names: &[String]) -> String {
        let seconds = |p: &Predicted| format!("{:.4} s ({:.4} to {:.4})", p.time, p.low, p.high);
        let each = self.columns.iter().zip(names).enumerate().map(|(i, (column, name))| {
            let gain = if i == 0 {
                String::new()
            } else {
                let g = &column.gain;
                format!(", {:+.2} % ({:+.2} to {:+.2})", g.time, g.low, g.high)
            };
            let clock = seconds(&column.clock);
            format!("{name} {clock}, processor time {}{gain}", seconds(&column.processor))
        });
        let each: Vec<String> = each.collect();
        let quoted = match &self.quoted[..] {
            [] => String::new(),
            nodes => format!("latencies without a spread (of node {}), ", nodes.join(", ")),
        };
        format!(
            "80 % interval of a round's time, in which the clock is taken to be off as processor time is: {}. It \
             is made of the spread of {}, each alone, as far as it shows beside the native time; what is in no \
             interval: {quoted}dependences that no recording shows, what the caches hold, where pages come to \
             lie, and wake-ups",
            each.join("; "),
            self.made_of.join(", ")
        )
    }
}

impl Recorded {
    /// Whether a constant of its machine is one that its misses rest on.
    fn rests_on(&self, it: Rests) -> bool {
        let machine = &self.target.machine;
        let Rests::Cost(cost) = it else { return true };
        let mut raised = machine.clone();
        it.raise(&mut raised);
        match (play::overlap(machine, self.mlp), play::overlap(&raised, self.mlp)) {
            // Files of before have one parallelism for all misses.
            (None, _) | (_, None) => cost == Cost::MemoryParallelism,
            (Some(before), Some(after)) => before != after,
        }
    }
}
