//! Counters in the text form that Prometheus and others read: OpenMetrics 1.0.
//!
//! ```text
//! # TYPE homenode_sched_choices counter
//! # HELP homenode_sched_choices CPUs chosen, by reason.
//! homenode_sched_choices_total{reason="recent"} 60
//! # EOF
//! ```

use std::fmt::Write as _;

/// Labels of a sample, name and value.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// Families of metrics, one after the other.
#[derive(Clone, Debug, Default)]
pub struct OpenMetrics(String);

impl OpenMetrics {
    /// A counter, which only grows while the same program runs: a sample for each set of labels.
    ///
    /// * `name` – without `_total`, which samples have.
    pub fn counter(&mut self, name: &str, help: &str, samples: &[(Labels<'_>, u64)]) {
        self.family(name, "counter", help);
        for (labels, n) in samples {
            self.sample(&format!("{name}_total"), labels, &n.to_string());
        }
    }
    /// A number that is what it is now.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "gauge", help);
        self.sample(name, &[], &value.to_string());
    }
    /// What is said in words, as labels.
    pub fn info(&mut self, name: &str, help: &str, labels: Labels<'_>) {
        self.family(name, "info", help);
        self.sample(&format!("{name}_info"), labels, "1");
    }
    /// The whole text.
    pub fn end(mut self) -> String {
        self.0 += "# EOF\n";
        self.0
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# TYPE {name} {kind}\n# HELP {name} {}\n", escaped(help));
    }
    fn sample(&mut self, name: &str, labels: Labels<'_>, value: &str) {
        self.0 += name;
        for (at, (label, text)) in labels.iter().enumerate() {
            let comma = if at == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{comma}{label}=\"{}\"", escaped(text));
        }
        self.0 += if labels.is_empty() { " " } else { "} " };
        self.0 += value;
        self.0.push('\n');
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn families_have_their_kind_help_and_samples() {
        let mut all = OpenMetrics::default();
        all.counter(
            "a_b",
            "What \"was\".",
            &[(&[], 3), (&[("x", "a\\\"\n"), ("y", "")], u64::MAX)],
        );
        all.gauge("seconds", "For how long.", 1.5);
        all.info("end", "How.", &[("by", "kernel")]);
        expect![[r#"
            # TYPE a_b counter
            # HELP a_b What \"was\".
            a_b_total 3
            a_b_total{x="a\\\"\n",y=""} 18446744073709551615
            # TYPE seconds gauge
            # HELP seconds For how long.
            seconds 1.5
            # TYPE end info
            # HELP end How.
            end_info{by="kernel"} 1
            # EOF
        "#]]
        .assert_eq(&all.end());
    }
}
