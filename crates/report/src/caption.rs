//! What stands below a table, so that nobody has to ask.

use serde::Serialize;

/// What was run on what, and what to keep in mind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Caption {
    /// Why the figures are wrong, where that is known and they were asked for all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrong: Option<String>,
    /// The machine: its name and sentence.
    pub machine: String,
    /// What ran: a recording's program and slice, or a scenario.
    pub workload: String,
    /// Whose reclaim it is, such as `active and inactive lists as in Linux 6.12 with
    /// MGLRU off`.
    pub kernel: String,
    /// What was made smaller than in the original, and how much.
    pub scales: Vec<Scale>,
    /// How often a recording was looped; 1 is once through.
    pub loops: u64,
    /// Seeds of the runs.
    pub seeds: Vec<u64>,
    /// Anything else that is neither a warning nor a scale.
    pub notes: Vec<String>,
    /// What may mislead.
    pub warnings: Vec<String>,
}

/// A scale factor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Scale {
    /// What is scaled, such as `memory`.
    pub what: String,
    /// Original over ours, such as 64.
    pub factor: u64,
}

impl Caption {
    /// The caption in lines of at most `width` columns, longer words excepted.
    pub fn to_text(&self, width: usize) -> String {
        let mut out = String::new();
        let mut entry = |name: &str, text: &str| {
            if !text.is_empty() {
                wrap(&mut out, 0, &format!("{name}: {text}"), width, |c| c);
            }
        };
        entry("WRONG", self.wrong.as_deref().unwrap_or_default());
        entry("machine", &self.machine);
        entry("workload", &self.workload);
        entry("kernel", &self.kernel);
        let scales: Vec<String> =
            self.scales.iter().map(|s| format!("{} 1:{}", s.what, s.factor)).collect();
        entry("scaled down", &scales.join(", "));
        if self.loops > 1 {
            entry("looped", &format!("{} times", self.loops));
        }
        let seeds: Vec<String> = self.seeds.iter().map(u64::to_string).collect();
        entry(if seeds.len() == 1 { "seed" } else { "seeds" }, &seeds.join(", "));
        for note in &self.notes {
            entry("note", note);
        }
        for warning in &self.warnings {
            entry("warning", warning);
        }
        out
    }
}

pub(crate) fn wrap(
    out: &mut String,
    indent: usize,
    text: &str,
    width: usize,
    shown: fn(char) -> char,
) {
    let mut column = 0;
    for word in text.split_whitespace() {
        let chars = word.chars().count();
        if column == 0 {
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if column + 1 + chars > width {
            out.push('\n');
            out.push_str(&" ".repeat(indent + 2));
            column = indent + 2;
        } else {
            out.push(' ');
            column += 1;
        }
        out.extend(word.chars().map(shown));
        column += chars;
    }
    out.push('\n');
}
