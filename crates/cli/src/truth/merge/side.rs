//! One of the two sides: programs, and a ksmd behind its files.
//!
//! A pass at a time: the batch is larger than all pages, and the end of a pass ends its
//! batch; the sleep behind it lasts a day. So `run` = 1 makes exactly one pass, if ksmd
//! waits for it. It may still be in the sleep of the pass before: a change of
//! `sleep_millisecs` wakes it, and with `run` = 0 it then goes to wait. A write of `run`
//! waits for a pass that is under way. Hence: wake it; `run` = 1; wait until it has been
//! awake and sleeps again (on a busy machine it gets a CPU late, ksmd being nicer than
//! others), or where that can't be seen for a while; `run` = 0; if there was no pass, again.
//!
//! Source: specs/ksm.md#pass.

use anyhow::{Result, bail};
use homenode_config::MergeCase;
use homenode_core::scenario::{Action, FileOp};
use homenode_live::text;
use homenode_merge::ksm::Sleep;

/// Programs and a ksmd.
pub(super) trait Side {
    /// The programs do what they do before the pass of that number, from 0.
    fn act(&mut self, slot: u32) -> Result<()>;
    /// Writes a file of `/sys/kernel/mm/ksm`; the name of the error that the kernel gave.
    fn write(&mut self, file: &str, value: &str) -> Result<Option<String>>;
    /// The text of a file there, without its end; `None` if there is none.
    fn read(&mut self, file: &str) -> Result<Option<String>>;
    /// `/proc/vmstat`.
    fn vmstat(&mut self) -> Result<String>;
    /// `/proc/PID/ksm_stat` of the programs that live, with their names.
    fn stats(&mut self) -> Result<Vec<(String, String)>>;
    /// Waits a little, less than what a pass takes.
    fn wait(&mut self) -> Result<()>;
    /// Whether ksmd sleeps; `None` where that can't be seen.
    fn sleep(&mut self) -> Option<Sleep>;
}

/// A number of this side, before which pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counter {
    /// Its name; of one process with the process' name.
    pub(super) name: String,
    pub(super) value: i64,
}

/// What there is after a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AfterPass {
    pub(super) counters: Vec<Counter>,
    /// What the writes before the pass came to: the file and value, and the error's name
    /// or `done`.
    pub(super) writes: Vec<(String, String)>,
}

impl AfterPass {
    pub(super) fn get(&self, name: &str) -> Option<i64> {
        self.counters.iter().find(|c| c.name == name).map(|c| c.value)
    }
}

/// Counters of a state.
const STATES: [&str; 6] = [
    "pages_shared",
    "pages_sharing",
    "pages_unshared",
    "pages_volatile",
    "stable_node_chains",
    "stable_node_dups",
];
/// Counters of events: what has come since the case's start is compared.
const EVENTS: [&str; 3] = ["pages_scanned", "pages_skipped", "ksm_zero_pages"];
/// The same of `/proc/vmstat`.
const VMSTAT: [&str; 2] = ["cow_ksm", "ksm_swpin_copy"];

/// Knobs that all cases begin with, before their own. Pruning and sleeping hang on the
/// clock, so they are never due; smart scan would look at a page now and then only.
const KNOBS: [(&str, &str); 7] = [
    ("merge_across_nodes", "1"),
    ("max_page_sharing", "256"),
    ("use_zero_pages", "0"),
    ("smart_scan", "0"),
    ("stable_node_chains_prune_millisecs", "86400000"),
    ("pages_to_scan", "1000000"),
    ("sleep_millisecs", SLEEPS[0]),
];
/// A day, and another one.
const SLEEPS: [&str; 2] = ["86400000", "86400001"];
/// How often ksmd is woken for a pass before it is sure that it has nothing to do.
const WAKES: u32 = 5;
/// How often a pass is looked for after each, where ksmd can't be seen.
const LOOKS: u32 = 40;
/// How often where it can be, until it sleeps: half a minute at least.
const PATIENCE: u32 = 30_000;

/// Runs a case; a row per pass.
pub(super) fn run(side: &mut dyn Side, case: &MergeCase) -> Result<Vec<AfterPass>> {
    for (file, value) in KNOBS {
        // Older kernels have fewer files.
        if side.read(file)?.is_some() {
            set(side, file, value)?;
        }
    }
    for (file, value) in &case.scenario.ksm {
        set(side, file, value)?;
    }
    let before = events(side)?;
    let mut sleep = 0;
    let mut rows = Vec::new();
    for slot in 0..case.passes {
        let mut row = AfterPass::default();
        for action in &case.scenario.actions {
            if MergeCase::passes_in(action.at) == slot {
                row.writes.push(write(side, action)?);
            }
        }
        side.act(slot)?;
        let passes = pass(side, &mut sleep)?;
        row.counters.push(Counter { name: "full_scans".to_owned(), value: passes });
        for name in STATES {
            add(&mut row, name, number(side, name)?);
        }
        for ((name, now), was) in events(side)?.into_iter().zip(&before) {
            add(&mut row, name, now.zip(was.1).map(|(now, was)| now - was));
        }
        add(&mut row, "general_profit", number(side, "general_profit")?);
        for (process, text) in side.stats()? {
            for line in text.lines() {
                let (key, value) = line.split_once(' ').unwrap_or((line, ""));
                let value = match value {
                    "yes" => Some(1),
                    "no" => Some(0),
                    number => number.trim().parse().ok(),
                };
                add(&mut row, &format!("{process} {}", key.trim_end_matches(':')), value);
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

fn add(row: &mut AfterPass, name: &str, value: Option<i64>) {
    row.counters.extend(value.map(|value| Counter { name: name.to_owned(), value }));
}

fn set(side: &mut dyn Side, file: &str, value: &str) -> Result<()> {
    match side.write(file, value)? {
        None => Ok(()),
        Some(e) => bail!("{file}: {value} was refused: {e}"),
    }
}

fn number(side: &mut dyn Side, file: &str) -> Result<Option<i64>> {
    Ok(side.read(file)?.and_then(|text| text.parse().ok()))
}

type Events = Vec<(&'static str, Option<i64>)>;

fn events(side: &mut dyn Side) -> Result<Events> {
    let mut all = Vec::new();
    for name in EVENTS {
        all.push((name, number(side, name)?));
    }
    let text = side.vmstat()?;
    let counter = |name| text::number(&text, &format!("{name} ")).map(|n| n as i64);
    all.extend(VMSTAT.map(|name| (name, counter(name))));
    Ok(all)
}

/// A write of the case: what it was, and what came of it.
fn write(side: &mut dyn Side, action: &Action) -> Result<(String, String)> {
    let FileOp::Write { path, text } = &action.what else { bail!("a case only writes") };
    let file = path.strip_prefix(MergeCase::FOLDER).unwrap_or(path);
    let answer = side.write(file, text)?;
    let expected = action.expect.map(|e| e.name().to_owned());
    if answer != expected {
        let say = |a: &Option<String>| a.clone().unwrap_or_else(|| "no error".to_owned());
        bail!("{file}: {text} gave {} where the case expects {}", say(&answer), say(&expected));
    }
    Ok((format!("{file} {text}"), answer.unwrap_or_else(|| "done".to_owned())))
}

/// One pass of ksmd, or none where nothing is registered: how many `full_scans` shows.
fn pass(side: &mut dyn Side, sleep: &mut usize) -> Result<i64> {
    let scans = |side: &mut dyn Side| number(side, "full_scans");
    let before = scans(side)?;
    for _ in 0..WAKES {
        *sleep = 1 - *sleep;
        set(side, "sleep_millisecs", SLEEPS[*sleep])?;
        side.wait()?;
        let asleep = side.sleep();
        set(side, "run", "1")?;
        let mut looks = 0;
        while scans(side)? == before && !has_slept(side, asleep, looks)? {
            side.wait()?;
            looks += 1;
        }
        set(side, "run", "0")?;
        let done = scans(side)?.unwrap_or(0) - before.unwrap_or(0);
        if done == 1 {
            return Ok(1);
        }
        if done != 0 {
            bail!("ksmd made {done} passes where one was asked for: somebody else drives it");
        }
    }
    Ok(0)
}

/// Whether ksmd has done what it was woken for, as far as can be told after so many looks.
fn has_slept(side: &mut dyn Side, before: Option<Sleep>, looks: u32) -> Result<bool> {
    let Some((before, now)) = before.zip(side.sleep()) else { return Ok(looks >= LOOKS) };
    if looks >= PATIENCE {
        bail!("ksmd has not come to its work for half a minute: others leave it no CPU");
    }
    Ok(now.now && now.times > before.times)
}
