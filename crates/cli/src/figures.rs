//! Figures of runs: each is declared once, with its unit, which way is better, a sentence, and
//! how it is taken from what a run left. The tables of `sim`, `replay` and `advise`, their JSON,
//! `--figures` and `homenode list figures` all read these declarations.
//!
//! ```text
//! run ──RunFigures::of──▶ RunFigures ─┐
//!                                     ├──table──▶ ComparisonTable ──▶ text, JSON
//! Figure and how it is taken ─────────┘   ▲
//!          │                              │ --figures
//!          └── all ──▶ list figures    Choice
//! ```
//!
//! Counters are declared in `homenode_sim::vmstat`, merging's in `homenode_core::ksm::files`.
//! Source: docs/decisions/0013-figures.md.

mod defaults;
mod groups;
mod merging;
mod policy;
mod processes;
mod tasks;

use crate::contender::Contender;
use crate::homenode::{Own, Runner};
use crate::nodes::Shelf;
use anyhow::{Result, bail};
use homenode_core::kernel::KernelVersion;
use homenode_core::scenario::Scenario;
use homenode_core::units::PAGE_SIZE;
use homenode_report::Better::{Higher, Lower, Neither};
use homenode_report::{Compared, ComparisonTable, Figure, Section};
use homenode_sim::vmstat::{Item, VmStat};
use homenode_sim::{
    CpuFigures, GroupFigures, IdleFigures, MergeFigures, ProcessFigures, Track, Vcpu,
};

pub(crate) use defaults::defaults;
pub(crate) use groups::json_of as groups_json;
pub(crate) use merging::json as merging_json;

/// What a run left, whichever command ran it.
#[derive(Clone, Debug)]
pub(crate) struct RunFigures {
    /// Virtual time in picoseconds.
    pub(crate) time_ps: u64,
    /// Accesses by tier, fastest first.
    accesses: Vec<u64>,
    /// Pages that went from one node to another.
    moved: u64,
    /// Those that came to a faster tier, and those that went to a slower one.
    up_and_down: [u64; 2],
    vmstat: VmStat,
    pub(crate) processes: Vec<ProcessFigures>,
    /// What each CPU did, by place.
    pub(crate) cpus: Vec<CpuFigures>,
    /// CPU time that was idle beside a task that waited and could run there, in picoseconds.
    pub(crate) wasted_ps: u64,
    /// What each did without a task, and the names of the idle states.
    pub(crate) idle: Vec<IdleFigures>,
    pub(crate) idle_states: Vec<String>,
    /// What each group used, in the order in which they were made.
    pub(crate) groups: Vec<GroupFigures>,
    /// What each vCPU had.
    pub(crate) vcpus: Vec<Vcpu>,
    /// Where tasks ran that the scheduler places: see [`homenode_sim::Simulation::tracks`].
    pub(crate) tracks: (u64, Vec<(usize, Track)>),
    /// What merging reached, where the scenario may merge.
    pub(crate) merge: Option<MergeFigures>,
    /// What a policy did and used, where one drove.
    own: Option<Own>,
    /// When each round of a recording ended, in picoseconds; empty for scenarios.
    pub(crate) round_ends: Vec<u64>,
    /// How often a recording's tasks blocked and left their CPU.
    pub(crate) voluntary_switches: u64,
}

impl RunFigures {
    /// Of a run that took `time_ps`.
    pub(crate) fn of(runner: &Runner, time_ps: u64, shelves: &[Shelf]) -> Self {
        let sim = runner.sim();
        let processes = sim.processes();
        let accesses_of = |place: usize| -> u64 {
            processes.iter().filter_map(|p| p.accesses.get(place)).map(|a| a[0] + a[1]).sum()
        };
        let of_tier = |s: &Shelf| s.places.iter().map(|&p| accesses_of(p)).sum();
        Self {
            time_ps,
            accesses: shelves.iter().map(of_tier).collect(),
            moved: sim.moved().iter().flatten().sum(),
            up_and_down: sim.moved_between_tiers(),
            vmstat: sim.vmstat().clone(),
            processes,
            cpus: sim.cpu_figures(),
            wasted_ps: sim.wasted_ps(),
            groups: sim.group_figures(),
            vcpus: sim.vcpus(),
            idle: sim.idle_figures(),
            idle_states: sim.idle_states(),
            tracks: sim.tracks(),
            merge: sim.merging(),
            own: runner.own(),
            round_ends: sim.round_ends().to_vec(),
            voluntary_switches: sim.voluntary_switches(),
        }
    }
    fn time_ns(&self) -> f64 {
        (self.time_ps / 1000) as f64
    }
    fn all_accesses(&self) -> u64 {
        self.accesses.iter().sum()
    }
    /// Whether anybody has used memory.
    fn has_memory(&self) -> bool {
        self.all_accesses() > 0
    }
    fn moved_bytes(&self) -> f64 {
        (self.moved * PAGE_SIZE) as f64
    }
    /// Of `all`, what `part` is, in per cent.
    fn percent(part: u64, all: u64) -> f64 {
        part as f64 * 100.0 / all.max(1) as f64
    }
}

/// A figure, and how it is taken.
type Taken<R> = (Figure, fn(&R) -> f64);

const TIME: &[Taken<RunFigures>] =
    &[(Figure::new("time", "s", Lower, 4, "virtual time from the start to the end"), |r| {
        r.time_ns() / 1e9
    })];

/// What only a replay in rounds has.
const ROUNDS: &[Taken<RunFigures>] = &[
    (Figure::new("time of a round, mean", "s", Lower, 4, "replay: time by rounds"), |r| {
        r.time_ns() * 1e3 / r.round_ends.len() as f64 / 1e12
    }),
    (
        Figure::new(
            "time of the first round",
            "s",
            Lower,
            4,
            "replay: the first round, in which memory is touched first",
        ),
        |r| r.round_ends[0] as f64 / 1e12,
    ),
    (
        Figure::new(
            "time of the last round",
            "s",
            Lower,
            4,
            "replay: the last round, when memory is where the policy wants it",
        ),
        |r| {
            let mut ends = r.round_ends.iter().rev().chain(&[0]);
            (ends.next().unwrap_or(&0) - ends.next().unwrap_or(&0)) as f64 / 1e12
        },
    ),
];

const ACCESSES: &[Taken<RunFigures>] =
    &[(Figure::new("accesses", "M/s", Higher, 3, "accesses of all programs by time"), |r| {
        r.all_accesses() as f64 * 1e3 / r.time_ns().max(1.0)
    })];

/// Of the fastest tier, and of each other.
const IN_TIER: [Figure; 2] = [
    Figure::new("accesses in {}", "%", Higher, 2, "share of the accesses that went there"),
    Figure::new("accesses in {}", "%", Neither, 2, "share of the accesses that went there"),
];

const MOVES: &[Taken<RunFigures>] = &[
    (Figure::count("pages promoted", "pages of 4 KiB that came to a faster tier"), |r| {
        r.up_and_down[0] as f64
    }),
    (Figure::count("pages demoted", "pages of 4 KiB that went to a slower tier"), |r| {
        r.up_and_down[1] as f64
    }),
    (Figure::new("moved", "MB", Neither, 1, "memory that went from a node to another"), |r| {
        r.moved_bytes() / 1e6
    }),
    (Figure::new("spent on moving", "MB/s", Neither, 1, "the same by virtual time"), |r| {
        r.moved_bytes() * 1e3 / r.time_ns().max(1.0)
    }),
];

/// The figures alone, for lists.
fn declared<R>(all: &[Taken<R>]) -> impl Iterator<Item = Figure> {
    all.iter().map(|(figure, _)| *figure)
}

/// The figure that a counter is.
pub(crate) const fn counter(item: Item) -> Figure {
    Figure::count(item.name(), item.about())
}

homenode_core::named! {
    /// Where in a table a figure stands.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum Part {
        /// Time and place of all accesses, and what was moved.
        Run => "run",
        /// The same of each process; of many that are alike the mean.
        Processes => "processes",
        /// Where the time of tasks has gone that the scheduler places.
        Tasks => "tasks",
        /// What groups of tasks used.
        Groups => "groups",
        /// The same of the CPUs.
        Cpus => "CPUs",
        /// What a policy that drives did and used.
        Policy => "policy",
        /// What same-page merging reached, and what it took.
        Merge => "merge",
        /// The kernel's counters.
        Counters => "vmstat",
    }
}

/// A row of a table before it is known whether it is shown.
struct Candidate {
    part: Part,
    row: Compared,
    /// Whether it is shown where nobody chose.
    shown: bool,
}

/// Rows as they are made.
struct Rows<'a> {
    /// Runs by column.
    columns: &'a [Vec<&'a RunFigures>],
    /// The first column's kernel.
    version: KernelVersion,
    rows: Vec<Candidate>,
}

/// Which rows are shown where nobody chose.
#[derive(Clone, Copy)]
enum Shown {
    /// Where a run has such a figure.
    IfAny,
    /// Where it is not 0 in all runs.
    IfCounted,
    Never,
}

impl Rows<'_> {
    fn push(
        &mut self,
        part: Part,
        figure: &Figure,
        what: &str,
        shown: Shown,
        of: &dyn Fn(&RunFigures) -> Option<f64>,
    ) -> &mut Compared {
        let runs = |runs: &Vec<&RunFigures>| runs.iter().filter_map(|r| of(r)).collect();
        let row = figure.compared_of(what, self.columns.iter().map(runs).collect());
        let mut all = row.samples.iter().flatten();
        let shown = match shown {
            Shown::IfAny => all.next().is_some(),
            Shown::IfCounted => all.any(|x| *x != 0.0),
            Shown::Never => false,
        };
        let at = self.rows.len();
        self.rows.push(Candidate { part, row, shown });
        &mut self.rows[at].row
    }
    fn push_all<R>(&mut self, part: Part, all: &[Taken<R>], get: fn(&RunFigures) -> Option<&R>) {
        for (figure, of) in all {
            self.push(part, figure, "", Shown::IfAny, &|r| Some(of(get(r)?)));
        }
    }
}

/// The table of some columns, the baseline first.
///
/// * `contenders` – what the columns are, and `names` what stands above them.
/// * `scenario` – the programs, where processes are told apart.
pub(crate) fn table(
    contenders: &[&Contender],
    names: &[&str],
    runs: &[Vec<&RunFigures>],
    shelves: &[Shelf],
    version: KernelVersion,
    scenario: Option<&Scenario>,
    choice: &Choice,
) -> ComparisonTable {
    let mut rows = Rows { columns: runs, version, rows: Vec::new() };
    rows.push_all(Part::Run, TIME, |r| Some(r));
    rows.push_all(Part::Run, ROUNDS, |r| Some(r).filter(|r| !r.round_ends.is_empty()));
    // Programs that only compute have no accesses to tell of.
    rows.push_all(Part::Run, ACCESSES, |r| Some(r).filter(|r| r.has_memory()));
    for (i, shelf) in shelves.iter().enumerate() {
        rows.push(Part::Run, &IN_TIER[i.min(1)], &shelf.name, Shown::IfAny, &|r| {
            let here = r.has_memory().then(|| r.accesses.get(i).copied().unwrap_or(0))?;
            Some(RunFigures::percent(here, r.all_accesses()))
        });
    }
    rows.push_all(Part::Run, MOVES, |r| Some(r).filter(|r| r.has_memory()));
    if let Some(scenario) = scenario {
        processes::push(&mut rows, scenario, shelves);
        tasks::push(&mut rows, scenario);
        groups::push(&mut rows);
    }
    policy::push(&mut rows);
    merging::push(&mut rows);
    for item in Item::ALL {
        rows.push(Part::Counters, &counter(item), "", Shown::IfCounted, &|r| {
            Some(r.vmstat.get(item) as f64)
        });
    }
    let mut who: Vec<&str> = contenders.iter().filter_map(|c| Some(c.drives?.name)).collect();
    who.dedup();
    let groups = match &choice.0 {
        Some(chosen) => vec![Section { title: String::new(), figures: choice_of(chosen, &rows) }],
        None => Part::ALL
            .into_iter()
            .filter_map(|part| {
                let title = match part {
                    Part::Run => String::new(),
                    Part::Policy => who.join(", "),
                    part => part.name().to_owned(),
                };
                let here = rows.rows.iter().filter(|c| c.part == part && c.shown);
                let figures: Vec<_> = here.map(|c| c.row.clone()).collect();
                let kept = !figures.is_empty() || part == Part::Counters;
                kept.then_some(Section { title, figures })
            })
            .collect(),
    };
    ComparisonTable { columns: names.iter().map(|&name| name.to_owned()).collect(), groups }
}

fn choice_of(chosen: &[(Part, String)], rows: &Rows<'_>) -> Vec<Compared> {
    let of = |(part, word): &(Part, String)| {
        let this = move |c: &&Candidate| c.part == *part && self::word(c.row.figure.name) == *word;
        rows.rows.iter().filter(this).map(|c| c.row.clone()).collect::<Vec<_>>()
    };
    chosen.iter().flat_map(of).collect()
}

/// A figure of a list.
pub(crate) struct Told {
    pub(crate) part: Part,
    pub(crate) figure: Figure,
    /// What is counted, where it is a counter; else the figure's unit.
    pub(crate) unit: &'static str,
}

impl Told {
    /// Its sentence, without a capital and a full stop.
    pub(crate) fn about(&self) -> String {
        let text = self.figure.about.trim_end_matches('.');
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(first), Some(second)) if second.is_lowercase() => {
                first.to_lowercase().chain(text.chars().skip(1)).collect()
            }
            _ => text.to_owned(),
        }
    }
    /// What `--figures` calls it.
    pub(crate) fn word(&self) -> String {
        word(self.figure.name)
    }
}

/// All figures, in the order of tables.
pub(crate) fn all() -> Vec<Told> {
    let told = |part, figure: Figure| Told { part, figure, unit: figure.unit };
    let run = [TIME, ROUNDS, ACCESSES].into_iter().flat_map(declared);
    let run = run.chain([IN_TIER[0]]).chain(declared(MOVES));
    let mut out: Vec<Told> = run.map(|f| told(Part::Run, f)).collect();
    out.extend(processes::all().map(|f| told(Part::Processes, f)));
    out.extend(tasks::of_tasks().map(|f| told(Part::Tasks, f)));
    out.extend(tasks::of_vcpus().map(|f| told(Part::Tasks, f)));
    out.extend(groups::all().map(|f| told(Part::Groups, f)));
    out.extend(tasks::of_cpus().map(|f| told(Part::Cpus, f)));
    out.extend(policy::all().map(|f| told(Part::Policy, f)));
    out.extend(merging::all().map(|f| told(Part::Merge, f)));
    let counters = Item::ALL.into_iter();
    out.extend(counters.map(|i| Told { unit: i.unit(), ..told(Part::Counters, counter(i)) }));
    out
}

/// A figure's name as a word that needs no quotes: `time of a round, mean` is
/// `time-of-a-round-mean`, and `accesses in {}` is `accesses-in`.
fn word(name: &str) -> String {
    let name = name.replace('\'', "").to_lowercase();
    let parts = name.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|p| !p.is_empty());
    parts.collect::<Vec<_>>().join("-")
}

/// Which figures a table has: those that say something, or those that were asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice(Option<Vec<(Part, String)>>);

/// What every command says about `--figures`.
pub(crate) const HELP: &str = "Only these rows, in this order, such as \
time,accesses,pgpromote_success; homenode list figures has their names. PART/NAME where two have \
the same name: processes/time";

impl Choice {
    /// What a list of words asks for; without any, no choice is made.
    ///
    /// # Errors
    /// A word that no figure has.
    pub(crate) fn parse(words: &[String]) -> Result<Self> {
        if words.is_empty() {
            return Ok(Self(None));
        }
        let all = all();
        let one = |text: &String| {
            let (part, name) = match text.split_once('/') {
                Some((part, name)) => (Some(part), name),
                None => (None, text.as_str()),
            };
            let found = all
                .iter()
                .find(|t| t.word() == word(name) && part.is_none_or(|part| part == t.part.name()));
            let Some(found) = found else {
                let words: Vec<String> = all.iter().map(Told::word).collect();
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                bail!(
                    "--figures {text}: there is no such figure{}; homenode list figures has them all",
                    homenode_config::suggestion(&word(name), &words)
                );
            };
            Ok((found.part, found.word()))
        };
        Ok(Self(Some(words.iter().map(one).collect::<Result<_>>()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Words are what `--figures` and lists know figures by.
    #[test]
    fn a_word_and_its_part_mean_one_figure() {
        let mut seen = BTreeSet::new();
        for told in all() {
            assert!(seen.insert((told.part, told.word())), "{}", told.figure.name);
            assert!(!told.figure.about.is_empty(), "{} has no sentence", told.figure.name);
        }
    }

    #[test]
    fn figures_are_chosen_by_name_or_by_word() {
        let parsed = |text: &str| {
            let words: Vec<String> = text.split(';').map(str::to_owned).collect();
            match Choice::parse(&words) {
                Ok(Choice(chosen)) => format!("{:?}", chosen.expect("something was chosen")),
                Err(e) => e.to_string(),
            }
        };
        assert_eq!(
            parsed("time;pgpromote_success"),
            r#"[(Run, "time"), (Counters, "pgpromote_success")]"#
        );
        assert_eq!(parsed("processes/time"), r#"[(Processes, "time")]"#);
        assert_eq!(parsed("time of a round, mean"), r#"[(Run, "time-of-a-round-mean")]"#);
        assert_eq!(
            parsed("pgpromote_sucess"),
            "--figures pgpromote_sucess: there is no such figure; did you mean \"pgpromote_success\"?; \
             homenode list figures has them all"
        );
    }
}
