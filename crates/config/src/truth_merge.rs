//! Reading what the truth check of merging has to show: small scenarios, registered in
//! a file before anything runs.
//!
//! Time is counted in passes of ksmd: one second is one pass. At each whole second the
//! programs do what they do, then ksmd makes one pass. So a case is the same to real
//! processes beside the kernel's ksmd as in simulation.

use crate::ConfigError;
use crate::cpu::Named;
use crate::files::{action, ksm};
use crate::process::process;
use crate::tree::{Cur, Doc, Seg};
use homenode_core::scenario::{
    Action, Again, FileOp, Map, Pattern, Process, Rights, Scenario, Step, Until,
};
use homenode_core::units::{Pages, Picos};
use std::collections::BTreeSet;

/// The registered cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergePlan {
    /// When it was registered, as the file says.
    pub registered: String,
    /// By how many percent the estimate may be off in `pages_shared` and `pages_sharing`.
    pub bound_percent: u32,
    /// Cases.
    pub cases: Vec<MergeCase>,
}

/// A case: programs, and how many passes ksmd makes beside them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeCase {
    /// Passes of ksmd, 1 to 100.
    pub passes: u32,
    /// When the estimate looks; `None`: it says nothing of this case.
    pub estimate: Option<MergeLook>,
    /// Name, sentence, files of `/sys/kernel/mm/ksm`, programs, writes in between. Times
    /// are whole multiples of [`MergeCase::PASS`]; the machine and all else are left open.
    pub scenario: Scenario,
}

impl MergeCase {
    /// The time in a case's file that stands for one pass.
    pub const PASS: Picos = Picos::from_us(1_000_000);
    /// The folder to which a case writes.
    pub const FOLDER: &str = "/sys/kernel/mm/ksm/";

    /// How many passes a time stands for.
    pub const fn passes_in(time: Picos) -> u32 {
        (time.0 / Self::PASS.0) as u32
    }
}

/// When the estimate looks at the contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeLook {
    /// It looks once everything is done that is done before the pass after this one, at
    /// processes beside which no ksmd runs; after the last pass, at those that it merged.
    pub at: u32,
    /// It has looked one pass earlier too: what changed between is volatile.
    pub again: bool,
}

/// Reads the registered cases; `name` is the file's name in errors.
///
/// # Errors
/// The first thing that is wrong, with file, line and key.
pub fn parse_truth_merge(name: &str, text: &str) -> Result<MergePlan, ConfigError> {
    let doc = Doc::parse(name, text)?;
    let top = doc.root().table(&["registered", "bound_percent", "case"])?;
    let mut names = BTreeSet::new();
    let mut cases = Vec::new();
    for (i, c) in top.get("case")?.list()?.iter().enumerate() {
        let case = case(c)?;
        if !names.insert(case.scenario.name.clone()) {
            return Err(c.error(format!(
                "the case \"{}\" stands twice; names are unique",
                case.scenario.name
            )));
        }
        for (p, process) in case.scenario.processes.iter().enumerate() {
            fits(process, p, i, &case).map_err(|(path, what)| doc.error_at(&path, what))?;
        }
        cases.push(case);
    }
    Ok(MergePlan {
        registered: top.get("registered")?.text()?.to_owned(),
        bound_percent: top.get("bound_percent")?.int(0, 100)? as u32,
        cases,
    })
}

fn case(c: &Cur<'_>) -> Result<MergeCase, ConfigError> {
    let t = c.table(&["name", "about", "passes", "estimate", "ksm", "process", "at"])?;
    let passes = t.get("passes")?.int(1, 100)? as u32;
    let processes: Vec<Process> = t
        .get("process")?
        .list()?
        .iter()
        .map(|c| process(c, Named::default()))
        .collect::<Result<_, _>>()?;
    let at = t.opt("at").map_or(Ok(Vec::new()), |at| at.list())?;
    let actions = at.iter().map(|c| write(c, &processes)).collect::<Result<_, _>>()?;
    let look = |c: Cur<'_>| {
        let t = c.table(&["at", "again"])?;
        let again = t.opt("again").map_or(Ok(false), |c| c.bool())?;
        let last = u64::from(passes) - u64::from(again);
        let at = t.get("at")?.int(u64::from(again), last)? as u32;
        Ok(MergeLook { at, again })
    };
    Ok(MergeCase {
        passes,
        estimate: t.opt("estimate").map(look).transpose()?,
        scenario: Scenario {
            name: t.get("name")?.text()?.to_owned(),
            about: t.get("about")?.text()?.to_owned(),
            machine: String::new(),
            scale: homenode_core::scale::Scale::AS_IS,
            kernel: Default::default(),
            knobs: Vec::new(),
            ksm: t.opt("ksm").map_or(Ok(Vec::new()), |k| ksm(&k))?,
            model: Default::default(),
            duration: None,
            seed: 1,
            processes,
            channels: Vec::new(),
            groups: Vec::new(),
            command_line: String::new(),
            devices: Vec::new(),
            actions,
        },
    })
}

/// A write to a file of KSM, with all rights, between two passes.
fn write(c: &Cur<'_>, processes: &[Process]) -> Result<Action, ConfigError> {
    let action = action(c, processes)?;
    let is_write = matches!(action.what, FileOp::Write { .. });
    if !is_write || !action.what.path().starts_with(MergeCase::FOLDER) {
        return Err(c.error(format!("a case only writes, to files below {}", MergeCase::FOLDER)));
    }
    if action.who != Rights::Root {
        return Err(c.error("a case writes with all rights"));
    }
    if !is_whole(action.at) {
        return Err(c.error(WHOLE));
    }
    Ok(action)
}

const WHOLE: &str = "one pass is \"1s\", and between passes there is nothing";

fn is_whole(time: Picos) -> bool {
    time.0 % MergeCase::PASS.0 == 0
}

/// Whether real processes can do it too, between two passes.
fn fits(
    process: &Process,
    p: usize,
    case: usize,
    of: &MergeCase,
) -> Result<(), (Vec<Seg>, String)> {
    use Seg::{At, Key};
    let here = |rest: &[Seg]| [&[Key("case"), At(case), Key("process"), At(p)], rest].concat();
    let no = |rest: &[Seg], what: String| Err((here(rest), what));
    if process.thread_count() != 1 || process.copy_count() != 1 {
        return no(&[Key("cpus")], "a case's program has one thread".to_owned());
    }
    if !is_whole(process.start) || MergeCase::passes_in(process.start) >= of.passes {
        return no(&[Key("start")], format!("{WHOLE}; and there are {} of them", of.passes));
    }
    let is_default = |m: &Map| m.policy == Default::default() && !m.file;
    if process.policy != Default::default() || !process.maps.iter().all(is_default) {
        return no(&[], "a case has no files and no policies of memory".to_owned());
    }
    if process.maps.len() > 16 {
        return no(&[Key("map")], "a case's program has 16 maps at most".to_owned());
    }
    for (s, step) in process.steps.iter().enumerate() {
        let pages = |map: &str| {
            process.maps.iter().find(|m| m.name == map).map_or(0, |m| Pages::holding(m.size).0)
        };
        let wrong = match step {
            Step::Touch { .. }
            | Step::Fill { .. }
            | Step::Madvise { .. }
            | Step::Map { .. }
            | Step::Unmap { .. }
            | Step::Fork
            | Step::Wait
            | Step::Repeat { until: Again::Times(..=1000), .. } => continue,
            Step::Access { map, pattern: Pattern::Sequential, write: 1000, until, .. } => {
                match until {
                    Until::Accesses(n) if *n <= pages(map) => continue,
                    _ => "it ends after so many \"accesses\", at most one to each page",
                }
            }
            Step::Sleep(time) if is_whole(*time) => continue,
            Step::Sleep(_) => WHOLE,
            Step::Access { .. } => "accesses are \"sequential\" writes (1000) here",
            _ => "real processes don't do that in a case",
        };
        return no(&[Key("step"), At(s)], wrong.to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"
registered = "2026-01-01"
bound_percent = 1
[[case]]
name = "one"
about = "two pages"
passes = 3
estimate = { at = 1, again = true }
[case.ksm]
max_page_sharing = 2
[[case.process]]
name = "a"
cpus = "0"
start = "1s"
map = [{ name = "m", size = "8 KiB", content = "zero", mergeable = true }]
step = [{ do = "touch", map = "m" }, { do = "sleep", time = "2s" }]
[[case.at]]
time = "2s"
write = "/sys/kernel/mm/ksm/run"
value = 2
"#;

    #[test]
    fn a_case_is_read() {
        let plan = parse_truth_merge("p.toml", PLAN).unwrap();
        let case = &plan.cases[0];
        assert_eq!((plan.bound_percent, case.passes), (1, 3));
        assert_eq!(case.estimate, Some(MergeLook { at: 1, again: true }));
        assert_eq!(case.scenario.ksm, [("max_page_sharing".to_owned(), "2".to_owned())]);
        assert_eq!(MergeCase::passes_in(case.scenario.processes[0].start), 1);
        assert_eq!(MergeCase::passes_in(case.scenario.actions[0].at), 2);
    }

    #[test]
    fn what_real_processes_cannot_do_is_told_with_its_place() {
        for (old, new, told) in [
            (
                "time = \"2s\" }",
                "time = \"500ms\" }",
                "p.toml:16:38: case[0].process[0].step[1]: one pass is",
            ),
            ("start = \"1s\"", "start = \"3s\"", "and there are 3 of them"),
            ("cpus = \"0\"", "cpus = \"0-1\"", "one thread"),
            ("do = \"touch\", map = \"m\"", "do = \"barrier\"", "real processes don't do that"),
            ("max_page_sharing = 2", "pages_shared = 2", "nothing can be written to it"),
            ("ksm/run\"", "numa/x\"", "only writes, to files below /sys/kernel/mm/ksm/"),
            ("at = 1, again", "at = 0, again", "a whole number from 1 to 2"),
            ("at = 1, again = true", "at = 4", "a whole number from 0 to 3"),
            ("size = \"8 KiB\"", "size = \"8 KiB\", file = true", "no files and no policies"),
            ("[[case.at]]", "[[case]]\nname = \"one\"\n[[case.at]]", "passes"),
        ] {
            let text = PLAN.replace(old, new);
            assert_ne!(text, PLAN, "{old}");
            let error = parse_truth_merge("p.toml", &text).unwrap_err().to_string();
            assert!(error.contains(told), "{new}: {error}");
        }
    }

    #[test]
    fn names_are_unique() {
        let (head, case) = PLAN.split_at(PLAN.find("[[case]]").unwrap());
        let error = parse_truth_merge("p.toml", &format!("{head}{case}{case}")).unwrap_err();
        assert!(error.to_string().contains("\"one\" stands twice"), "{error}");
    }
}
