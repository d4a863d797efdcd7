//! What homenode's engine takes per observation, beside a bare loop that only counts them.
//!
//! The measuring program is `crates/core/examples/decideloop`; its first lines say what it does.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::hotloop::Figures;
use super::{Samples, Setting, Verdict};

const PAGES_PER_GIB: u64 = (1 << 30) / 4096;
const CHUNKS_PER_GIB: u64 = 512;
/// Most that an observation may take, in nanoseconds.
const MOST_NS: f64 = 80.0;
/// Most memory for each 2 MiB that nothing has split, in bytes.
const MOST_BYTES: f64 = 32.0;
/// Streams, and what they are.
const STREAMS: [(&str, &str); 3] = [
    ("uniform", "samples, all pages alike"),
    ("skewed", "samples, Zipf's law, hot pages scattered"),
    ("regions", "DAMON's regions, borders wander"),
];

pub(super) fn run(setting: &Setting<'_>) -> Result<Verdict> {
    let program = setting.example("homenode-core", "decideloop")?;
    let sizes: &[u64] = setting.pick(&[1, 64, 1024], &[1]);
    println!(
        "  10,000 observations a second, a fast node for a quarter; ns an observation, median (lowest to highest)"
    );
    println!(
        "  {:>10} {:<8} {:<24} {:>9} {:>9} {:>8} {:>11} {:>10} {:>12}",
        "watched",
        "stream",
        "ours",
        "bare loop",
        "deciding",
        "longest",
        "allocations",
        "stretches",
        "bytes/2 MiB"
    );
    let mut worst = (0f64, f64::NAN);
    let mut fattest = 0f64;
    for gib in sizes {
        for (stream, _) in STREAMS {
            let (mut ours, mut bare) = (Samples::default(), Samples::default());
            let mut last = None;
            for _ in 0..setting.pick(3, 1) {
                let figures = measured(&program, stream, *gib, setting.pick(30, 2))?;
                let each = 1e9 / figures.number("observations")?;
                ours.push(figures.number("seconds")? * each);
                bare.push(figures.number("peer_seconds")? * each);
                last = Some(figures);
            }
            // Each is run once at least.
            let Some(last) = last else { continue };
            let deciding = last.number("deciding_seconds")? / last.number("seconds")?;
            let bytes = last.number("bytes")? / (gib * CHUNKS_PER_GIB) as f64;
            println!(
                "  {:>10} {stream:<8} {:<24} {:>9.1} {:>7.0} % {:>5.1} ms {:>11.3} {:>10} {bytes:>12.1}",
                format!("{gib} GiB"),
                ours.shown(0),
                bare.median(),
                deciding * 100.0,
                last.number("longest_seconds")? * 1000.0,
                last.number("allocations")?,
                last.number("spans")?,
            );
            if ours.median() > worst.0 {
                worst = (ours.median(), bare.median());
            }
            // Where all pages are alike, nothing tells them apart, and nothing has to be split.
            if stream == "uniform" {
                fattest = fattest.max(bytes);
            }
        }
    }
    for (stream, about) in STREAMS {
        println!("  {stream}: {about}");
    }
    println!(
        "  deciding: the share of calls in which it decides anew; longest: the longest of them"
    );
    let (ours, peer) = worst;
    Ok(Verdict {
        ours,
        peer,
        unit: "ns/observation at the worst (peer: the bare loop)",
        ratio: ours / peer,
        goal: "80 ns an observation at each size, and 32 bytes per 2 MiB where all are alike",
        pass: ours <= MOST_NS && fattest <= MOST_BYTES,
    })
}

fn measured(program: &Path, stream: &str, gib: u64, seconds: u64) -> Result<Figures> {
    let (pages, seconds) = ((gib * PAGES_PER_GIB).to_string(), seconds.to_string());
    let args = ["--stream", stream, "--pages", &pages, "--seconds", &seconds];
    Figures::by(Command::new(program).args(args))
}
