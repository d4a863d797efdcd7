//! How near the simulated kernel is to a real one, by medians of several boots.
//!
//! ```text
//! boot 1 ─▶ case ─▶ figure ─▶ [real, simulated] ┐
//! boot 2 ─▶ …                                   ├─▶ median of each ─▶ ratio
//! …                                             ┘
//! ```
//!
//! One boot of a kernel may differ from the next by as much as two kernels do; a median of some
//! boots says on which side a difference lies. A test that fails tells its figures as well, so
//! they count. The guests run one after the other, with nothing of ours beside them.
//!
//! Source: specs/end-to-end.md#pressure

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::guest::Verdict;
use super::topology::Topology;
use super::{All, GuestRun, base, boot_guest, busybox, guest_program, kernels, rows, tests_of};
use super::{tests_on, unknown};
use crate::Ending;
use crate::workspace::Workspace;

/// The larger median may be so many tenths of the smaller one …
const TENTHS: u64 = 13;
/// … or, for huge pages, so many times: the same order of size.
const HUGE_TIMES: u64 = 10;
/// Pages that programs have which no simulated machine has. What differs by no more says nothing.
const FEW: u64 = 256;

#[derive(Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Options {
    /// Tests that hold a real kernel against the simulated one, such as `pressure-loop`
    #[arg(value_name = "TEST", required = true)]
    tests: Vec<String>,
    /// How often each guest is booted
    #[arg(long, value_name = "N", default_value = "5")]
    boots: NonZeroUsize,
    /// Another kernel than the one that everything runs on
    #[arg(long)]
    kernel: Option<String>,
    /// The machine, where a test has none of its own
    #[arg(long, default_value = "small-fast-node")]
    topology: String,
}

/// Of a case and a figure: what each boot counted, real and simulated.
type Boots = BTreeMap<(String, String), Vec<[u64; 2]>>;

pub(super) fn run(ws: &Workspace, all: &All, options: &Options) -> Result<Ending> {
    let known: Vec<String> =
        tests_of(&guest_program(ws)?)?.into_iter().map(|(name, _)| name).collect();
    if let Some(name) = options.tests.iter().find(|name| !known.contains(name)) {
        return Err(unknown("test", name, &known.join(", ")));
    }
    let kernel = options.kernel.as_ref();
    let kernel = kernel.map_or_else(|| all.main_kernel(), |name| all.kernel(name))?;
    let image = kernels::have(&all.cache, kernel)?.image;
    let (base, folder) = (base(ws, &busybox()?)?, ws.folder("vm")?);
    let mut beyond = 0;
    for (topology, tests) in machines(all, options)? {
        let mut boots: BTreeMap<String, Boots> = BTreeMap::new();
        let mut release = None;
        for boot in 0..options.boots.get() {
            let plan = GuestRun {
                kernel,
                image: image.clone(),
                topology,
                tests: tests.clone(),
                expected: None,
                boot,
            };
            let left = boot_guest(&plan, &base, &folder)?;
            release = left.release.clone().or(release);
            for told in rows(&plan, &left) {
                if let Verdict::Skipped(why) = &told.verdict {
                    bail!("{} on {}: {why}", told.test, topology.name);
                }
                if let Verdict::Failed(why) = &told.verdict {
                    // Behind it come the figures, which are shown below.
                    let why = why.split("; figures, ").next().unwrap_or_default();
                    eprintln!("boot {}: {}: {why}", boot + 1, told.test);
                }
                add(boots.entry(told.test.clone()).or_default(), &told.facts);
            }
            eprintln!("{}: boot {} of {}", topology.name, boot + 1, options.boots);
        }
        println!(
            "{} ({}), {}: medians of {} boots",
            kernel.name,
            release.context("no guest came up")?,
            topology.name,
            options.boots
        );
        for (test, figures) in &boots {
            println!("{test}");
            let rows: Vec<Row> = figures.iter().map(Row::of).collect();
            beyond += rows.iter().filter(|row| !row.near()).count();
            rows.iter().for_each(|row| println!("{}", row.line()));
        }
    }
    println!("{beyond} figures are farther apart");
    Ok(Ending::Done)
}

/// Machines, and which of the tests run there.
fn machines<'a>(all: &'a All, options: &Options) -> Result<Vec<(&'a Topology, Vec<String>)>> {
    let asked = all.topology(&options.topology)?;
    let own = |test: &String| all.topologies.iter().find(|t| t.tests.contains(test));
    let mut out: Vec<(&Topology, Vec<String>)> = Vec::new();
    for test in &options.tests {
        let topology = own(test).unwrap_or(asked);
        if tests_on(&all.topologies, topology, std::slice::from_ref(test)).is_empty() {
            bail!("{test} does not run on {}", topology.name);
        }
        match out.iter_mut().find(|(t, _)| t.name == topology.name) {
            Some((_, tests)) => tests.push(test.clone()),
            None => out.push((topology, vec![test.clone()])),
        }
    }
    Ok(out)
}

/// Adds what a boot told, if it did.
fn add(boots: &mut Boots, facts: &Value) {
    for (case, figures) in facts["real_and_simulated"].as_object().into_iter().flatten() {
        for (figure, both) in figures.as_object().into_iter().flatten() {
            let of = |i: usize| both[i].as_u64();
            let (Some(real), Some(simulated)) = (of(0), of(1)) else { continue };
            boots.entry((case.clone(), figure.clone())).or_default().push([real, simulated]);
        }
    }
}

/// A figure of a case.
struct Row<'a> {
    case: &'a str,
    figure: &'a str,
    boots: &'a [[u64; 2]],
}

impl<'a> Row<'a> {
    fn of(((case, figure), boots): (&'a (String, String), &'a Vec<[u64; 2]>)) -> Self {
        Self { case, figure, boots }
    }
    /// The middle of what the boots counted; of two in the middle the smaller.
    fn median(&self, which: usize) -> u64 {
        let mut all: Vec<u64> = self.boots.iter().map(|both| both[which]).collect();
        all.sort_unstable();
        all.get(all.len().saturating_sub(1) / 2).copied().unwrap_or(0)
    }
    /// Whether the medians are as near as they are to be.
    fn near(&self) -> bool {
        let (a, b) = (self.median(0), self.median(1));
        let (less, more) = (a.min(b), a.max(b));
        if self.figure.starts_with("thp_") {
            return more <= less.saturating_mul(HUGE_TIMES);
        }
        more * 10 <= less.saturating_mul(TENTHS) || more - less <= FEW
    }
    fn line(&self) -> String {
        let (real, simulated) = (self.median(0), self.median(1));
        let ratio = match (real, simulated) {
            (0, 0) => "1.00".to_owned(),
            (0, _) | (_, 0) => "-".to_owned(),
            (a, b) => format!("{:.2}", a.max(b) as f64 / a.min(b) as f64),
        };
        let mark = if self.near() { "" } else { " *" };
        let reals: Vec<String> = self.boots.iter().map(|both| both[0].to_string()).collect();
        format!(
            "  {:<22} {:<22} {real:>9} {simulated:>9} {ratio:>6}{mark:<2}  of {}",
            self.case,
            self.figure,
            reals.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row_of(figure: &str, boots: &[[u64; 2]]) -> (u64, u64, bool) {
        let row = Row { case: "a case", figure, boots };
        (row.median(0), row.median(1), row.near())
    }

    #[test]
    fn one_boot_that_went_another_way_does_not_decide() {
        let boots = [[1000, 1200], [1000, 1250], [9000, 1200], [1010, 1300], [990, 1200]];
        assert_eq!(row_of("pgscan", &boots), (1000, 1200, true));
        assert_eq!(row_of("pgscan", &[[1000, 1400]; 5]), (1000, 1400, false));
        assert_eq!(row_of("pgscan", &[[10_000, 13_001]; 5]), (10_000, 13_001, false));
        // Few pages more are other programs'.
        assert_eq!(row_of("pgactivate", &[[104, 0]; 5]), (104, 0, true));
        assert_eq!(row_of("pgactivate", &[[1040, 0]; 5]), (1040, 0, false));
        // Huge pages are to be of one order of size.
        assert_eq!(row_of("thp_split_page", &[[20, 150]; 5]), (20, 150, true));
        assert_eq!(row_of("thp_split_page", &[[20, 250]; 5]), (20, 250, false));
        assert_eq!(row_of("thp_split_page", &[[20, 0]; 5]), (20, 0, false));
    }

    #[test]
    fn figures_of_a_test_that_failed_count_as_well() {
        let mut boots = Boots::new();
        let facts =
            json!({"real_and_simulated": {"a": {"pgscan": [7, 9]}, "b": {"pgscan": [1, 2]}}});
        for told in [&facts, &facts, &Value::Null] {
            add(&mut boots, told);
        }
        assert_eq!(boots[&("a".to_owned(), "pgscan".to_owned())], [[7, 9], [7, 9]]);
        let line = Row::of(boots.iter().next().unwrap()).line();
        assert!(line.contains("1.29") && line.ends_with("of 7, 7"), "{line}");
    }
}
