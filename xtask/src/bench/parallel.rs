//! Many CPUs and many tasks: what idle CPUs cost, and what tasks cost that run side by side,
//! in scenarios and in recordings.

use anyhow::Result;

use super::hotloop::Hotloop;
use super::{Samples, Setting, Verdict};

/// CPUs of the largest machine.
const CPUS: u64 = 4096;

/// M accesses a second of so many tasks on so many CPUs, several times by turns.
struct Cell {
    tasks: u64,
    cpus: u64,
    /// They meet at a barrier every so many µs; 0: never.
    meet_us: u64,
    rate: Samples,
}

impl Cell {
    fn new(tasks: u64, cpus: u64, meet_us: u64) -> Self {
        Self { tasks, cpus, meet_us, rate: Samples::default() }
    }
    fn shown(&self, what: &str, beside: f64) {
        let rate = self.rate.median();
        println!("  {what:<34} {:<28} {:>5.0} %", self.rate.shown(1), rate / beside * 100.0);
    }
}

/// Runs all of them by turns, so that a busy minute of the host hits each alike.
fn measure(setting: &Setting<'_>, cells: &mut [Cell]) -> Result<()> {
    let hotloop = Hotloop::build(setting)?;
    let n: u64 = setting.pick(60_000_000, 200_000);
    let pages: u64 = setting.pick(1 << 20, 1 << 14);
    println!(
        "  {n} accesses to {pages} pages, balancing off; M accesses/s, median (lowest to highest)"
    );
    for _ in 0..setting.pick(5, 1) {
        for cell in &mut *cells {
            let figures = hotloop.figures(
                "parallel",
                &[
                    ("n", &n),
                    ("pages", &pages),
                    ("tasks", &cell.tasks),
                    ("cpus", &cell.cpus),
                    ("meet-us", &cell.meet_us),
                ],
            )?;
            cell.rate.push(figures.rate("accesses")?);
        }
    }
    Ok(())
}

/// Eight busy tasks on machines with ever more idle CPUs.
pub(super) fn cpu_scale(setting: &Setting<'_>) -> Result<Verdict> {
    let mut cells = [8, 256, CPUS].map(|cpus| Cell::new(8, cpus, 0));
    measure(setting, &mut cells)?;
    let first = cells[0].rate.median();
    for cell in &cells {
        cell.shown(&format!("8 tasks on {} CPUs", cell.cpus), first);
    }
    let last = cells[2].rate.median();
    let ratio = first / last;
    Ok(Verdict {
        ours: last,
        peer: first,
        unit: "M accesses/s (peer: the machine with 8 CPUs)",
        ratio,
        goal: "time ratio <= 1.1",
        pass: ratio <= 1.1,
    })
}

/// Ever more tasks, each on a CPU of its own, that meet or don't.
pub(super) fn mem_parallel(setting: &Setting<'_>) -> Result<Verdict> {
    let tasks: &[u64] = setting.pick(&[1, 2, 64, CPUS], &[1, 64]);
    let of = |meet| tasks.iter().map(move |&tasks| Cell::new(tasks, CPUS, meet));
    let mut cells: Vec<Cell> = [0, 50].into_iter().flat_map(of).collect();
    measure(setting, &mut cells)?;
    let one = cells[0].rate.median();
    let mut worst = f64::INFINITY;
    for cell in &cells {
        let meets = if cell.meet_us > 0 { ", meeting every 50 µs" } else { "" };
        cell.shown(&format!("{} tasks{meets}", cell.tasks), one);
        if cell.tasks > 1 {
            worst = worst.min(cell.rate.median());
        }
    }
    let ratio = worst / one;
    Ok(Verdict {
        ours: worst,
        peer: one,
        unit: "M accesses/s at the worst (peer: one task alone)",
        ratio,
        goal: "ratio >= 0.7",
        pass: ratio >= 0.7,
    })
}

/// Recordings of ever more threads that wait for one another.
pub(super) fn replay_threads(setting: &Setting<'_>) -> Result<Verdict> {
    let hotloop = Hotloop::build(setting)?;
    let n: u64 = setting.pick(4_000_000, 128_000);
    let pages: u64 = setting.pick(1 << 18, 1 << 14);
    println!(
        "  {n} rows in all, five rounds, a wait every 1000 rows; M rows/s, median (lowest to highest)"
    );
    let mut rates = [1u64, 2, 16, 64].map(|threads| (threads, Samples::default()));
    for _ in 0..setting.pick(5, 1) {
        for (threads, rate) in &mut rates {
            let options: [(&str, &dyn std::fmt::Display); 4] =
                [("n", &n), ("pages", &pages), ("threads", threads), ("every", &1000)];
            rate.push(hotloop.figures("replay", &options)?.rate("rows")?);
        }
    }
    let one = rates[0].1.median();
    let mut worst = f64::INFINITY;
    for (threads, rate) in &rates {
        let percent = rate.median() / one * 100.0;
        println!("  {:<34} {:<28} {percent:>5.0} %", format!("{threads} threads"), rate.shown(1));
        worst = worst.min(rate.median());
    }
    let ratio = worst / one;
    Ok(Verdict {
        ours: worst,
        peer: one,
        unit: "M rows/s at the worst (peer: one thread)",
        ratio,
        goal: "ratio >= 0.5",
        pass: ratio >= 0.5,
    })
}
