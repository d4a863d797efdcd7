//! Simulated memory from 1 GiB to 1 TiB, with active and inactive lists and with generations,
//! beside a bare loop over as many entries.

use std::fmt::Display;

use anyhow::Result;

use super::hotloop::Hotloop;
use super::{Samples, Setting, Verdict};

const PAGES_PER_GIB: u64 = (1 << 30) / 4096;
/// Names and `lru_gen`.
const RECLAIM: [(&str, u64); 2] = [("lists", 0), ("generations", 7)];

pub(super) fn run(setting: &Setting<'_>) -> Result<Verdict> {
    let hotloop = Hotloop::build(setting)?;
    let sizes: &[u64] = setting.pick(&[1, 64, 256, 1024], &[1]);
    let n: u64 = setting.pick(50_000_000, 200_000);
    println!("  {n} accesses, one thread; M accesses/s, median (lowest to highest)");
    println!(
        "  {:>10}  {:<13} {:<28} {:<28} {:>7} {:>12}",
        "simulated", "", "ours", "bare loop", "share", "bytes/page"
    );

    let mut worst: Option<(f64, f64)> = None;
    let mut slowest_last = f64::INFINITY;
    let mut fattest: f64 = 0.0;
    for gib in sizes {
        let pages = gib * PAGES_PER_GIB;
        let mut ours = RECLAIM.map(|_| Samples::default());
        let (mut bare, mut page_bytes) = (Samples::default(), [0.0; RECLAIM.len()]);
        for _ in 0..setting.pick(5, 1) {
            for (i, (_, lru_gen)) in RECLAIM.iter().enumerate() {
                let options: [(_, &dyn Display); 3] =
                    [("n", &n), ("pages", &pages), ("lru-gen", lru_gen)];
                let figures = hotloop.figures("scale", &options)?;
                ours[i].push(figures.rate("accesses")?);
                page_bytes[i] = figures.number("page_bytes")?;
            }
            let options: [(_, &dyn Display); 2] = [("n", &n), ("pages", &pages)];
            bare.push(hotloop.figures("gather", &options)?.rate("accesses")?);
        }
        let b = bare.median();
        slowest_last = f64::INFINITY;
        for (i, (name, _)) in RECLAIM.iter().enumerate() {
            let o = ours[i].median();
            println!(
                "  {:>10}  {:<13} {:<28} {:<28} {:>5.0} % {:>12.2}",
                format!("{gib} GiB"),
                name,
                ours[i].shown(1),
                bare.shown(1),
                o / b * 100.0,
                page_bytes[i]
            );
            if worst.is_none_or(|(wo, wb)| o / b < wo / wb) {
                worst = Some((o, b));
            }
            slowest_last = slowest_last.min(o);
            fattest = fattest.max(page_bytes[i]);
        }
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
        pass: ratio >= 0.5 && slowest_last >= 30.0 && fattest <= 8.0,
    })
}
