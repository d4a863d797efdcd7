//! Reading what a truth check has to show: workloads, sizes and bounds, registered in a
//! file before anything runs.

use crate::ConfigError;
use crate::tree::{Cur, Doc};
use homenode_core::units::Bytes;

/// A registered check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruthPlan {
    /// When it was registered, as the file says.
    pub registered: String,
    /// Largest error in percent that meets the check.
    pub bound_percent: u32,
    /// Largest error in percent that is aimed at.
    pub goal_percent: u32,
    /// Of the measured times so many percent at least, and at most, lie in the 80 % interval.
    pub inside_percent: (u32, u32),
    /// Kernels by name with their sizes, rising.
    pub kernels: Vec<(String, Vec<Bytes>)>,
    /// Programs.
    pub programs: Vec<TruthProgram>,
}

/// A program of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruthProgram {
    /// Its name.
    pub name: String,
    /// Rows or vertices from which the time of an instruction is taken.
    pub small: u64,
    /// Rows or vertices of which the time is predicted.
    pub large: u64,
    /// The same where it has to be quick.
    pub large_quick: u64,
    /// Seed of its input.
    pub seed: u64,
}

/// Reads a registered check; `name` is the file's name in errors.
///
/// # Errors
/// The first thing that is wrong, with file, line and key.
pub fn parse_truth(name: &str, text: &str) -> Result<TruthPlan, ConfigError> {
    let doc = Doc::parse(name, text)?;
    let top = doc.root().table(&[
        "registered",
        "bound_percent",
        "goal_percent",
        "inside_percent",
        "kernel",
        "program",
    ])?;
    Ok(TruthPlan {
        registered: top.get("registered")?.text()?.to_owned(),
        bound_percent: top.get("bound_percent")?.int(1, 100)? as u32,
        goal_percent: top.get("goal_percent")?.int(1, 100)? as u32,
        inside_percent: inside(&top.get("inside_percent")?)?,
        kernels: top.get("kernel")?.list()?.iter().map(kernel).collect::<Result<_, _>>()?,
        programs: top.get("program")?.list()?.iter().map(program).collect::<Result<_, _>>()?,
    })
}

/// The least and the most of a share, in percent.
fn inside(c: &Cur<'_>) -> Result<(u32, u32), ConfigError> {
    let list = c.list()?;
    let [low, high] = &list[..] else {
        return Err(c.error("two numbers are expected, such as [80, 95]"));
    };
    let (low, high) = (low.int(1, 100)? as u32, high.int(1, 100)? as u32);
    if low > high {
        return Err(c.error(format!("{low} is more than {high}; the least comes first")));
    }
    Ok((low, high))
}

fn kernel(c: &Cur<'_>) -> Result<(String, Vec<Bytes>), ConfigError> {
    let t = c.table(&["name", "sizes"])?;
    let mut sizes: Vec<Bytes> = Vec::new();
    for c in t.get("sizes")?.list()? {
        let size = c.size()?;
        if sizes.last().is_some_and(|last| last.0 >= size.0) {
            return Err(c.error("sizes rise; this one does not"));
        }
        sizes.push(size);
    }
    Ok((t.get("name")?.text()?.to_owned(), sizes))
}

fn program(c: &Cur<'_>) -> Result<TruthProgram, ConfigError> {
    let t = c.table(&["name", "small", "large", "large_quick", "seed"])?;
    let size = |key: &'static str| -> Result<u64, ConfigError> {
        let c = t.get(key)?;
        let n = c.int(64, 1 << 28)?;
        if !n.is_power_of_two() {
            return Err(c.error(format!("{n} is no power of two")));
        }
        Ok(n)
    };
    Ok(TruthProgram {
        name: t.get("name")?.text()?.to_owned(),
        small: size("small")?,
        large: size("large")?,
        large_quick: size("large_quick")?,
        seed: t.get("seed")?.int(0, u32::MAX.into())?,
    })
}
