//! Where the time of CPUs has gone, by idle state: CPUs under one another.
//!
//! ```text
//! CPU   busy   POLL     C1     C6    MHz
//! all   2.96   0.16   0.03  96.86   2300
//! 0     3.01   0.11   0.02  96.86   2300
//! ```

use std::fmt::Write as _;

/// One CPU, or several that are alike, and what they did.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuTimes {
    /// What they are called: `all`, `0-3`.
    pub label: String,
    /// Share of the time in which tasks ran, in per cent.
    pub busy: f64,
    /// By idle state: share of the time, in per cent. Empty where there are none.
    pub idle: Vec<f64>,
    /// Mean clock while they were busy, in MHz; `None`: it isn't known, or they never were.
    pub mean_mhz: Option<f64>,
}

/// The table of some CPUs and the names of their idle states. Nothing where there are no states
/// and no clocks.
pub fn cpu_times(rows: &[CpuTimes], states: &[String]) -> String {
    let clocks = rows.iter().any(|r| r.mean_mhz.is_some());
    if states.is_empty() && !clocks {
        return String::new();
    }
    let first = rows.iter().map(|r| r.label.chars().count()).chain([3]).max().unwrap_or(3);
    let widths: Vec<usize> = states.iter().map(|s| s.chars().count().max(6)).collect();
    let mut out = format!("{:first$}   busy", "CPU");
    for (state, width) in states.iter().zip(&widths) {
        let _ = write!(out, " {state:>width$}");
    }
    out.push_str(if clocks { "    MHz\n" } else { "\n" });
    for row in rows {
        let _ = write!(out, "{:first$} {:6.2}", row.label, row.busy);
        for (share, width) in row.idle.iter().zip(&widths) {
            let _ = write!(out, " {share:width$.2}");
        }
        match row.mean_mhz {
            Some(mhz) => {
                let _ = write!(out, " {mhz:6.0}");
            }
            None if clocks => out.push_str("      -"),
            None => {}
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn cpus_stand_under_one_another() {
        let row = |label: &str, busy, idle: &[f64], mean_mhz| CpuTimes {
            label: label.into(),
            busy,
            idle: idle.to_vec(),
            mean_mhz,
        };
        let states = ["POLL", "C1", "C6-long"].map(String::from);
        let rows = [
            row("all", 2.96, &[0.16, 0.03, 96.86], Some(2300.0)),
            row("0-31", 100.0, &[0.0, 0.0, 0.0], Some(2299.6)),
            row("32-63", 0.0, &[0.0, 0.0, 100.0], None),
        ];
        expect![[r#"
            CPU     busy   POLL     C1 C6-long    MHz
            all     2.96   0.16   0.03   96.86   2300
            0-31  100.00   0.00   0.00    0.00   2300
            32-63   0.00   0.00   0.00  100.00      -
        "#]]
        .assert_eq(&cpu_times(&rows, &states));
        // Only clocks, only states, neither.
        let clocks = cpu_times(&[row("all", 50.0, &[], Some(2300.0))], &[]);
        assert_eq!(clocks, "CPU   busy    MHz\nall  50.00   2300\n");
        let idle = cpu_times(&[row("all", 50.0, &[50.0], None)], &["C1".into()]);
        assert_eq!(idle, "CPU   busy     C1\nall  50.00  50.00\n");
        assert_eq!(cpu_times(&[row("all", 50.0, &[], None)], &[]), "");
    }
}
