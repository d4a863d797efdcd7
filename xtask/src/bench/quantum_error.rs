//! What quanta of 10 µs change in the reported figures, beside strict order.

use anyhow::{Result, bail};

use super::hotloop::Hotloop;
use super::{Setting, Verdict};

/// The goal, in per cent of strict order's figure.
const ERROR_MAX: f64 = 0.1;

pub(super) fn run(setting: &Setting<'_>) -> Result<Verdict> {
    let hotloop = Hotloop::build(setting)?;
    let n: u64 = setting.pick(20_000_000, 200_000);
    let pages: u64 = setting.pick(1 << 18, 1 << 12);
    let figures = |order: &str| {
        let (n, pages) = (n.to_string(), pages.to_string());
        hotloop
            .figures(
                "quantum",
                &[("n", &n), ("pages", &pages), ("threads", "8"), ("order", order)],
            )?
            .all("figures")
    };
    // Both are deterministic: more runs would give the same figures.
    let strict = figures("strict")?;
    let quantum = figures("quantum")?;
    let rows = compare(&quantum, &strict)?;
    println!("  8 threads, {n} accesses to {pages} pages");
    println!(
        "  {:<28}{:>18}{:>18}{:>12}",
        "figure", "quanta of 10 µs", "strict order", "difference"
    );
    for row in &rows {
        println!("  {:<28}{:>18}{:>18}{:>10.3} %", row.name, row.quantum, row.strict, row.error);
    }
    let worst = rows.iter().map(|row| row.error).fold(0.0, f64::max);
    Ok(Verdict {
        ours: worst,
        // Strict order differs from itself by nothing, which no ratio can be
        // taken to; so the peer is the bound.
        peer: ERROR_MAX,
        unit: "% difference of the worst figure (peer: the bound)",
        ratio: worst / ERROR_MAX,
        goal: "<= 0.1 %",
        pass: worst <= ERROR_MAX,
    })
}

#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    quantum: f64,
    strict: f64,
    /// Per cent of strict's; 100 where only one of them is 0.
    error: f64,
}

fn compare(quantum: &[(String, f64)], strict: &[(String, f64)]) -> Result<Vec<Row>> {
    if strict.is_empty() {
        bail!("`hotloop quantum` reported no figure");
    }
    if !quantum.iter().map(|(name, _)| name).eq(strict.iter().map(|(name, _)| name)) {
        bail!("`hotloop quantum` reported other figures for quanta than for strict order");
    }
    Ok(quantum
        .iter()
        .zip(strict)
        .map(|((name, q), (_, s))| {
            let error = match (*q, *s) {
                (q, s) if q == s => 0.0,
                (_, 0.0) => 100.0,
                (q, s) => ((q - s) / s).abs() * 100.0,
            };
            Row { name: name.clone(), quantum: *q, strict: *s, error }
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(list: &[(&str, f64)]) -> Vec<(String, f64)> {
        list.iter().map(|(name, value)| (name.to_string(), *value)).collect()
    }

    #[test]
    fn differences_are_relative_to_strict_order() {
        let quantum = figures(&[("a", 1001.0), ("b", 0.0), ("c", 3.0), ("d", 0.0)]);
        let strict = figures(&[("a", 1000.0), ("b", 0.0), ("c", 0.0), ("d", 5.0)]);
        let errors: Vec<f64> =
            compare(&quantum, &strict).unwrap().iter().map(|row| row.error).collect();
        assert_eq!(errors, [0.1, 0.0, 100.0, 100.0]);
    }

    #[test]
    fn a_figure_that_only_one_reports_is_an_error() {
        assert!(compare(&figures(&[("a", 1.0)]), &figures(&[("b", 1.0)])).is_err());
        assert!(compare(&[], &[]).is_err());
    }
}
