//! Instructions per access with balancing off, beside the loop without it.

use std::fmt::Display;

use anyhow::{Result, bail};

use super::hotloop::Hotloop;
use super::{Setting, Verdict, peers};

pub(super) fn run(setting: &Setting<'_>) -> Result<Verdict> {
    let hotloop = Hotloop::build(setting)?;
    let folder = setting.ws.folder("bench")?;
    let pages: u64 = 1 << 14;
    let n: u64 = setting.pick(4_000_000, 100_000);

    // Start-up and first touch happen once in a short run and once in a long one,
    // so the difference of the two is accesses alone.
    let per_access = |balancing: &str| -> Result<f64> {
        let mut totals = [0; 2];
        for (total, accesses) in totals.iter_mut().zip([n, 2 * n]) {
            let options: [(_, &dyn Display); 3] =
                [("n", &accesses), ("pages", &pages), ("balancing", &balancing)];
            let command = hotloop.command("off", &options);
            *total = peers::instructions(&command, &folder)?;
        }
        let [short, long] = totals;
        if long <= short {
            bail!("twice as many accesses took {long} instructions instead of {short}");
        }
        Ok((long - short) as f64 / n as f64)
    };
    // Instruction counts repeat to within start-up noise: one run each is enough.
    let without = per_access("none")?;
    let off = per_access("off")?;
    let ratio = off / without;
    println!("  instructions per access, by callgrind over {n} accesses to {pages} pages");
    println!("  without balancing   {without:.3}");
    println!("  balancing off       {off:.3}  ({:+.2} %)", (ratio - 1.0) * 100.0);
    Ok(Verdict {
        ours: off,
        peer: without,
        unit: "instructions/access",
        ratio,
        goal: "ratio < 1.01",
        pass: ratio < 1.01,
    })
}
