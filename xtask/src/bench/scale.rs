//! Simulated memory from 1 GiB to 1 TiB, beside a bare loop over as many entries.

use std::fmt::Display;

use anyhow::Result;

use super::hotloop::Hotloop;
use super::{Samples, Setting, Verdict};

const PAGES_PER_GIB: u64 = (1 << 30) / 4096;

pub(super) fn run(setting: &Setting<'_>) -> Result<Verdict> {
    let hotloop = Hotloop::build(setting)?;
    let sizes: &[u64] = setting.pick(&[1, 64, 256, 1024], &[1]);
    let n: u64 = setting.pick(50_000_000, 200_000);
    println!("  {n} accesses, one thread; M accesses/s, median (lowest to highest)");
    println!(
        "  {:>10}  {:<28} {:<28} {:>7} {:>12}",
        "simulated", "ours", "bare loop", "share", "bytes/page"
    );

    let mut worst: Option<(f64, f64)> = None;
    let mut last = 0.0;
    let mut fattest: f64 = 0.0;
    for gib in sizes {
        let options: [(_, &dyn Display); 2] = [("n", &n), ("pages", &(gib * PAGES_PER_GIB))];
        let (mut ours, mut bare) = (Samples::default(), Samples::default());
        let mut page_bytes = 0.0;
        for _ in 0..setting.pick(5, 1) {
            let figures = hotloop.figures("scale", &options)?;
            ours.push(figures.rate("accesses")?);
            page_bytes = figures.number("page_bytes")?;
            bare.push(hotloop.figures("gather", &options)?.rate("accesses")?);
        }
        let (o, b) = (ours.median(), bare.median());
        println!(
            "  {:>10}  {:<28} {:<28} {:>5.0} % {:>12.2}",
            format!("{gib} GiB"),
            ours.shown(1),
            bare.shown(1),
            o / b * 100.0,
            page_bytes
        );
        if worst.is_none_or(|(wo, wb)| o / b < wo / wb) {
            worst = Some((o, b));
        }
        last = o;
        fattest = fattest.max(page_bytes);
    }
    // There is at least one size in either list.
    let (ours, peer) = worst.unwrap_or((f64::NAN, f64::NAN));
    let ratio = ours / peer;
    Ok(Verdict {
        ours,
        peer,
        unit: "M accesses/s at the worst size",
        ratio,
        goal: "ratio >= 0.5 at each size, >= 30 M/s at 1 TiB, <= 8 bytes a page",
        pass: ratio >= 0.5 && last >= 30.0 && fattest <= 8.0,
    })
}
