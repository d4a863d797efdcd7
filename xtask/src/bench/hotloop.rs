//! The simulator's own measuring program: `crates/sim/examples/hotloop`.
//!
//! It is called as below and prints one JSON object as its last line. Times are
//! its own, around the loop alone, in seconds; counts are the simulator's
//! counters.
//!
//! | call | does | prints |
//! |---|---|---|
//! | `ids --out FILE --n N --pages P` | writes N Gauss page ids, one little-endian u32 each, a write flag in the top bit | `n` |
//! | `sim --ids FILE --pages P --fast-pages F --threads T --n N` | exact simulation of N accesses of these ids, tiering mode 2, F pages of fast memory, the rest slow | `accesses`, `seconds`, `numa_hint_faults`, `pgfault`, `pgpromote_success`, `pgdemote` |
//! | `scale --n N --pages P` | N accesses, one thread, to P simulated pages | `accesses`, `seconds`, `page_bytes` (state of one page) |
//! | `gather --n N --pages P` | the bare loop: prefetched 8-byte updates of P entries, same ids | `accesses`, `seconds` |
//! | `off --n N --pages P --balancing none\|off` | the access loop without balancing compiled in, or with it and off | `accesses` |
//! | `quantum --n N --pages P --threads T --order quantum\|strict --seed S` | two scenarios, DRAM with room and DRAM full, in quanta of 10 µs or strict order; and threads that meet | `figures`, `meeting`, `pressure`: objects with every reported figure of each |
//! | `parallel --n N --pages P --tasks T --cpus C --meet-us U` | N accesses of T tasks, spread over C CPUs, which meet every U µs (0: never) | `accesses`, `seconds` |
//! | `replay --n N --pages P --threads T --every E` | N rows in all of T threads that wait for one another every E rows, five rounds | `rows`, `seconds` |

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Samples, Setting};
use crate::workspace::{text_of, typed};

/// The program, built.
pub(super) struct Hotloop(PathBuf);

impl Hotloop {
    pub(super) fn build(setting: &Setting<'_>) -> Result<Self> {
        Ok(Self(setting.example("homenode-sim", "hotloop")?))
    }

    /// A call, to be run by us or under another program.
    pub(super) fn command(&self, what: &str, options: &[(&str, &dyn Display)]) -> Command {
        let mut command = Command::new(&self.0);
        command.arg(what);
        for (name, value) in options {
            command.arg(format!("--{name}")).arg(value.to_string());
        }
        command
    }

    /// Runs a call and returns what its last line says.
    pub(super) fn figures(&self, what: &str, options: &[(&str, &dyn Display)]) -> Result<Figures> {
        Figures::by(&mut self.command(what, options))
    }

    /// Makes the ids that ours and the peer read.
    pub(super) fn ids(&self, setting: &Setting<'_>, n: u64, pages: u64) -> Result<PathBuf> {
        let file = setting.ws.folder("bench")?.join(format!("gauss-{n}-{pages}.u32"));
        self.figures("ids", &[("out", &path_text(&file)?), ("n", &n), ("pages", &pages)])?;
        let bytes = std::fs::metadata(&file)
            .with_context(|| format!("`hotloop ids` left no {}", file.display()))?
            .len();
        if bytes != n * 4 {
            bail!("{} has {bytes} bytes, not {n} ids of 4", file.display());
        }
        Ok(file)
    }
}

pub(super) fn path_text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is no UTF-8", path.display()))
}

/// What a program printed as its last line.
#[derive(Debug)]
pub(super) struct Figures {
    program: String,
    value: Value,
}

impl Figures {
    /// Runs a program, and takes what it tells at the end.
    pub(super) fn by(command: &mut Command) -> Result<Self> {
        let text = text_of(command)?;
        Self::of(&typed(command), &text)
    }

    /// What a program has left in a file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("can't read {}", path.display()))?;
        Self::of(&path.display().to_string(), &text)
    }

    fn of(program: &str, text: &str) -> Result<Self> {
        let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let value: Value = serde_json::from_str(line)
            .with_context(|| format!("`{program}` ended with no line of JSON but `{line}`"))?;
        Ok(Self { program: program.to_owned(), value })
    }

    pub(super) fn number(&self, key: &str) -> Result<f64> {
        self.value[key]
            .as_f64()
            .with_context(|| format!("`{}` told no number `{key}`: {}", self.program, self.value))
    }

    /// Millions a second of what was counted.
    pub(super) fn rate(&self, counted: &str) -> Result<f64> {
        let seconds = self.number("seconds")?;
        if seconds <= 0.0 {
            bail!("`{}` told {seconds} seconds", self.program);
        }
        Ok(self.number(counted)? / seconds / 1e6)
    }

    /// A list of numbers; none where there is no such list.
    pub(super) fn samples(&self, key: &str) -> Samples {
        let all = self.value[key].as_array().into_iter().flatten();
        Samples(all.filter_map(Value::as_f64).collect())
    }

    /// A list of texts; none where there is no such list.
    pub(super) fn texts(&self, key: &str) -> Vec<&str> {
        self.value[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// A text; an empty one where there is none.
    pub(super) fn text(&self, key: &str) -> &str {
        self.value[key].as_str().unwrap_or_default()
    }

    /// All numbers of an object, by name.
    pub(super) fn all(&self, key: &str) -> Result<Vec<(String, f64)>> {
        let object = self.value[key].as_object().with_context(|| {
            format!("`{}` told no object `{key}`: {}", self.program, self.value)
        })?;
        object
            .iter()
            .map(|(name, value)| {
                let number = value.as_f64().with_context(|| {
                    format!("`{}`: `{name}` of `{key}` is no number: {value}", self.program)
                })?;
                Ok((name.clone(), number))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_the_last_line() {
        let figures =
            Figures::of("p", "warming up\n{\"accesses\": 4000000, \"seconds\": 2}\n\n").unwrap();
        assert_eq!(figures.rate("accesses").unwrap(), 2.0);
        let error = figures.number("faults").unwrap_err().to_string();
        assert!(error.contains("`p` told no number `faults`"), "{error}");
        assert!(Figures::of("p", "oh no").unwrap_err().to_string().contains("no line of JSON"));
    }

    #[test]
    fn a_clock_that_stands_still_is_an_error() {
        let figures = Figures::of("p", "{\"accesses\": 4, \"seconds\": 0}").unwrap();
        assert!(figures.rate("accesses").is_err());
    }
}
