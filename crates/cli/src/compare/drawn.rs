//! Workloads that are drawn: `drawn:TEXT:7` is the seventh that follows from a text.
//!
//! Nobody has chosen them, and nobody can have fitted anything to them, if the text is one that
//! could not be known while a policy was made, such as the hash of the commit that it was
//! finished with.
//!
//! Source: specs/compare.md#drawn.

use anyhow::{Result, bail};
use homenode_core::splitmix::SplitMix;
use std::fmt::Write as _;
use twox_hash::XxHash3_64;

const FORM: &str = "write drawn:TEXT:NUMBER or drawn:TEXT:FROM-TO, such as drawn:1f6e2a:1-100";
/// The highest number.
const MOST: u32 = 10_000;
/// For how long a program accesses its memory.
const SECONDS: u64 = 10;

/// The names of the single workloads that a name stands for; itself where it draws nothing.
pub(super) fn expand(name: &str) -> Result<Vec<String>> {
    let Some((text, numbers)) = parts(name)? else { return Ok(vec![name.to_owned()]) };
    let (from, to) = numbers.split_once('-').unwrap_or((numbers, numbers));
    let number = |s: &str| s.parse().ok().filter(|n| (1..=MOST).contains(n));
    match (number(from), number(to)) {
        (Some(from), Some(to)) if from <= to => {
            Ok((from..=to).map(|n: u32| format!("drawn:{text}:{n}")).collect())
        }
        _ => bail!("{name}: {numbers} are no numbers from 1 to {MOST}, in order; {FORM}"),
    }
}

/// The text and the number of one that is drawn.
fn parts(name: &str) -> Result<Option<(&str, &str)>> {
    let Some(rest) = name.strip_prefix("drawn:") else { return Ok(None) };
    match rest.rsplit_once(':') {
        Some((text, numbers)) if !text.is_empty() => Ok(Some((text, numbers))),
        _ => bail!("{name}: {FORM}"),
    }
}

/// The scenario of such a name, as a file would have it.
pub(super) fn toml(name: &str) -> Result<Option<String>> {
    let Some((text, number)) = parts(name)? else { return Ok(None) };
    let Ok(number) = number.parse::<u64>() else { bail!("{name}: {FORM}") };
    let seed = XxHash3_64::oneshot(format!("{text}:{number}").as_bytes());
    Ok(Some(Draw(SplitMix::new(seed)).scenario(number)))
}

struct Draw(SplitMix);

impl Draw {
    /// One of `low` to `high`, both included.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.below(high - low + 1)
    }
    /// Whether something comes true that does so one time in `n`.
    fn one_in(&mut self, n: u64) -> bool {
        self.0.below(n) == 0
    }
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.0.below(all.len() as u64) as usize]
    }

    fn scenario(mut self, number: u64) -> String {
        let programs = if self.one_in(3) { 2 } else { 1 };
        let (mut about, mut rest, mut cpu) = (Vec::new(), String::new(), 0);
        for p in 1..=programs {
            let (told, text) = self.program(p, programs, &mut cpu);
            about.push(told);
            rest += &text;
        }
        format!(
            "name = \"drawn-{number}\"\nabout = \"{}\"\nmachine = \"../../machines/middle-cxl.toml\"\n\
             stands_for = \"1:11 of 22 GiB\"\nseed = 1\n{rest}",
            about.join(", beside ")
        )
    }

    /// What it is in words, and as a table of a scenario.
    fn program(&mut self, p: u64, of: u64, cpu: &mut u64) -> (String, String) {
        let threads = self.between(1, 3);
        let start = if p > 1 { self.between(0, 20) * 100 } else { 0 };
        let cpus = format!("{}-{}", *cpu, *cpu + threads - 1);
        *cpu += threads;
        // In all half as much as the DRAM has to more than twice as much, by steps of 64 MiB.
        let mib = self.between(16, 72) * 64 / of;
        let idle = if self.one_in(2) { self.between(4, 24) * 64 / of } else { 0 };
        let idle_first = self.one_in(2);
        let huge = self.one_in(4);
        let mut told = format!("{threads} on {mib} MiB");
        if huge {
            told += " (huge)";
        }
        if idle > 0 {
            let place = if idle_first { "after" } else { "before" };
            let _ = write!(told, " {place} {idle} idle");
        }
        let mut text =
            format!("\n[[process]]\nname = \"p{p}\"\ncpus = \"{cpus}\"\nstart = \"{start}ms\"\n");
        let map = |name: &str, mib: u64| {
            let small = if huge { "" } else { "huge = false\n" };
            format!("\n[[process.map]]\nname = \"{name}\"\nsize = \"{mib} MiB\"\n{small}")
        };
        let touch = |name: &str| format!("\n[[process.step]]\ndo = \"touch\"\nmap = \"{name}\"\n");
        text += &map("used", mib);
        if idle > 0 {
            text += &map("idle", idle);
        }
        match (idle > 0, idle_first) {
            (true, true) => text += &(touch("idle") + &touch("used")),
            (true, false) => text += &(touch("used") + &touch("idle")),
            (false, _) => text += &touch("used"),
        }
        let phases = self.between(1, 3);
        for phase in 1..=phases {
            let (name, step) = self.step(SECONDS * 1000 / phases);
            told += if phase == 1 { ": " } else { ", then " };
            told += &name;
            text += &step;
        }
        (told, text)
    }

    fn step(&mut self, ms: u64) -> (String, String) {
        let pattern = self.of(&[
            "uniform",
            "gauss",
            "zipf",
            "zipf-drift",
            "hot-spot",
            "pareto",
            "sequential",
        ]);
        let (told, keys) = match pattern {
            "gauss" => {
                let sd = self.between(30, 300);
                (format!(" {sd}"), format!("sd = {sd}\n"))
            }
            "zipf" => {
                let theta = self.between(600, 1300);
                (format!(" {theta}"), format!("theta = {theta}\n"))
            }
            "zipf-drift" => {
                let (theta, values) = (self.between(600, 1300), self.between(1, 16));
                let every = self.between(10, 120);
                (
                    format!(" {theta} in {every} s"),
                    format!("theta = {theta}\nvalues = {values}\nevery = \"{every}s\"\n"),
                )
            }
            "hot-spot" => {
                let (size, share) = (self.between(30, 400), self.between(500, 990));
                let every = self.between(2, 60);
                (
                    format!(" {share} in {size}, {every} s"),
                    format!("size = {size}\nshare = {share}\nevery = \"{every}s\"\n"),
                )
            }
            "pareto" => {
                let alpha = self.between(500, 1500);
                (format!(" {alpha}"), format!("alpha = {alpha}\n"))
            }
            _ => (String::new(), String::new()),
        };
        let compute = if self.one_in(2) { 0 } else { self.between(1, 50) * 10 };
        let mlp = if self.one_in(2) { 1 } else { self.of(&[2, 4, 8]) };
        let write = self.between(0, 500);
        let mut name = format!("{pattern}{told}");
        if compute > 0 {
            let _ = write!(name, " +{compute} ns");
        }
        if mlp > 1 {
            let _ = write!(name, " x{mlp}");
        }
        let text = format!(
            "\n[[process.step]]\ndo = \"access\"\nmap = \"used\"\npattern = \"{pattern}\"\n{keys}\
             compute = \"{compute}ns\"\nmlp = {mlp}\nwrite = {write}\ntime = \"{ms}ms\"\n"
        );
        (name, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::workloads::{Recordings, Workload};
    use std::collections::BTreeSet;

    #[test]
    fn what_is_drawn_is_a_workload_and_the_same_each_time() {
        let mut all = BTreeSet::new();
        for name in expand("drawn:some text:1-200").expect("numbers") {
            let text = toml(&name).expect("a number").expect("drawn");
            assert_eq!(Some(&text), toml(&name).expect("a number").as_ref());
            let w = Workload::read(&name, &Recordings::default())
                .unwrap_or_else(|e| panic!("{name}: {e:#}\n{text}"));
            assert!(w.has_two_tiers(w.setup().version));
            let mib = w.pages() >> 8;
            assert!((1024..=6144).contains(&mib), "{name}: {mib} MiB");
            all.insert(w.about);
        }
        assert!(all.len() > 195, "they differ: {}", all.len());
        assert_ne!(toml("drawn:a:1").expect("one"), toml("drawn:b:1").expect("one"));
    }

    #[test]
    fn a_name_that_draws_nothing_is_told_what_to_write() {
        for (name, why) in [
            ("drawn:", "drawn:: write drawn:TEXT:NUMBER"),
            ("drawn:1f6e2a", "drawn:1f6e2a: write drawn:TEXT:NUMBER"),
            ("drawn:1f6e2a:0", "0 are no numbers from 1 to 10000"),
            ("drawn:1f6e2a:9-3", "9-3 are no numbers"),
            ("drawn:1f6e2a:1-99999", "1-99999 are no numbers"),
            ("drawn:1f6e2a:x", "x are no numbers"),
        ] {
            let error = expand(name).expect_err(name).to_string();
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(expand("zipf").expect("no drawn one"), ["zipf"]);
    }
}
