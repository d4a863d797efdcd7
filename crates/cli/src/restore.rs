//! `homenode restore`: what a homenode that ended without putting it back has changed:
//! KSM's knobs, DAMON's slot, the kernel's balancing and demotion, the switch of its statistics.

use crate::output;
use anyhow::Result;
use homenode_core::ksm::plan::text_of;
use homenode_live::acting::{self, ACTING, Purpose};
use homenode_live::heat::damon;
use homenode_live::place::Place;
use homenode_live::stats::kernel::COUNTING;
use homenode_live::threads;
use homenode_merge::ksm::{Folder, Restore, Restored, restore};
use serde_json::json;
use std::path::PathBuf;

/// Put back the kernel's knobs after a crash.
///
/// `homenode merge drive --act` and `homenode truth merge` note what a knob was before
/// they change it, and so do `homenode act` with the kernel as its engine and `homenode stats` where it has the
/// kernel count as well; `homenode act` notes whose threads it keeps on a node's CPUs for a second; they put everything back at their end. Where they could not, as after SIGKILL, this does. A knob that somebody else has set since a driver stays as it is;
/// a check, which has KSM to itself, can't tell, so all of its knobs come back. Knobs come back, pages don't: what
/// is merged stays merged, what was moved stays where it is. Doing it again does nothing; while a driver lives it is
/// refused. A slot of DAMON that a homenode left is taken down, if it still is as that one
/// made it. Needs root.
///
/// Exit codes: 0 done, or nothing to do; 2 bad usage; 3 something could not be put back.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode restore")]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// A folder in place of / (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    root: Option<PathBuf>,
}

/// What was put back, as JSON.
pub(crate) fn to_json(done: &Restored) -> serde_json::Value {
    json!({
        "restored": done.set.iter().map(|(f, v)| json!({"knob": f.name(), "value": text_of(*f, *v)})).collect::<Vec<_>>(),
        "left": done.left.iter().map(|(f, _)| f.name()).collect::<Vec<_>>(),
        "failed": done.failed.iter().map(|f| f.file.name()).collect::<Vec<_>>(),
        "notes": done.sentences(),
    })
}

/// Knobs and values on one line.
pub(crate) fn to_text(done: &Restored) -> String {
    let words: Vec<_> =
        done.set.iter().map(|(f, v)| format!("{} {}", f.name(), text_of(*f, *v))).collect();
    if words.is_empty() { "no knob had to be".to_owned() } else { words.join(", ") }
}

/// What knobs of the kernel's are changed for, beside merging.
static PURPOSES: [&Purpose; 2] = [&ACTING, &COUNTING];

pub(crate) fn run(args: &Args) -> Result<u8> {
    let place = args.root.as_deref().map_or_else(Place::here, Place::at);
    // Each is tried, whatever becomes of the others.
    let slot = damon::restore(&place);
    let threads = threads::restore(&place);
    let others = PURPOSES.map(|purpose| (purpose.name(), acting::restore(purpose, &place)));
    let knobs = restore(&place, &Folder::of(&place));
    let nothing = || {
        matches!(slot, Ok(damon::Restored::Nothing))
            && matches!(threads, Ok(threads::Restored::Nothing))
            && others.iter().all(|(_, done)| matches!(done, Ok(acting::Restored::Nothing)))
    };
    let (mut json, mut text, mut code) = match knobs {
        Ok(Restore::Nothing) => (
            json!({"restored": [], "left": [], "failed": [], "notes": []}),
            match nothing() {
                true => format!(
                    "nothing to restore: there is no journal in {}\n",
                    place.run_folder().display()
                ),
                false => String::new(),
            },
            0,
        ),
        Ok(Restore::Stale(why)) => (
            json!({"restored": [], "left": [], "failed": [], "notes": [why]}),
            format!("nothing to restore: {why}\n"),
            0,
        ),
        Ok(Restore::Done(done)) => {
            let mut text = format!("put back: {}\n", to_text(&done));
            for line in done.sentences() {
                text += &format!("{line}\n");
            }
            (to_json(&done), text, if done.journal.is_some() { 3 } else { 0 })
        }
        Err(e) => {
            // What became of the others is told all the same.
            match slot {
                Ok(done) => say(&done).iter().for_each(|(_, note)| eprintln!("{note}")),
                Err(other) => eprintln!("{}", homenode_live::sentence(&other)),
            }
            match threads {
                Ok(done) => say_threads(&done).iter().for_each(|note| eprintln!("{note}")),
                Err(other) => eprintln!("{}", homenode_live::sentence(&other)),
            }
            for (_, done) in others {
                match done {
                    Ok(done) => eprint!("{}", say_knobs(&done).1),
                    Err(other) => eprintln!("{}", homenode_live::sentence(&other)),
                }
            }
            return Err(e.into());
        }
    };
    let told = slot.as_ref().ok().and_then(say);
    if let Some((_, note)) = &told {
        text += &format!("{note}\n");
    }
    json["damon"] = told.map_or(json!(null), |(slot, note)| json!({"slot": slot, "note": note}));
    let told = threads.as_ref().ok().and_then(say_threads);
    if let Some(note) = &told {
        text += &format!("{note}\n");
    }
    json["threads"] = told.map_or(json!(null), |note| json!({"note": note}));
    for (name, done) in &others {
        let Ok(done) = done else { continue };
        let (object, lines) = say_knobs(done);
        json[*name] = object;
        text += &lines;
        if matches!(done, acting::Restored::Done(done) if done.journal.is_some()) {
            code = 3;
        }
    }
    output::print(&if args.json { json.to_string() } else { text })?;
    slot?;
    threads?;
    for (_, done) in others {
        done?;
    }
    Ok(code)
}

/// What became of threads that were kept on a node's CPUs.
fn say_threads(done: &threads::Restored) -> Option<String> {
    match done {
        threads::Restored::Nothing => None,
        threads::Restored::Stale(note) | threads::Restored::Done(note) => Some(note.clone()),
    }
}

/// What became of knobs of the kernel's, as JSON and as lines.
fn say_knobs(done: &acting::Restored) -> (serde_json::Value, String) {
    match done {
        acting::Restored::Nothing => (json!(null), String::new()),
        acting::Restored::Stale(note) => {
            let object = json!({"restored": [], "left": [], "failed": [], "notes": [note]});
            (object, format!("nothing to restore: {note}\n"))
        }
        acting::Restored::Done(done) => {
            let set = done.set.iter().map(|k| json!({"knob": k.path, "value": k.old}));
            let paths = |all: &mut dyn Iterator<Item = &acting::Changed>| {
                all.map(|k| k.path.clone()).collect::<Vec<_>>()
            };
            let object = json!({
                "restored": set.collect::<Vec<_>>(),
                "left": paths(&mut done.left.iter().map(|(k, _)| k)),
                "failed": paths(&mut done.failed.iter().map(|(k, _)| k)),
                "notes": done.sentences(),
            });
            let words: Vec<_> = done.set.iter().map(|k| format!("{} {}", k.path, k.old)).collect();
            let words =
                if words.is_empty() { "no knob had to be".to_owned() } else { words.join(", ") };
            let mut text = format!("put back: {words}\n");
            for line in done.sentences() {
                text += &format!("{line}\n");
            }
            (object, text)
        }
    }
}

/// What became of DAMON's slot: a word, and a sentence; `None` if there was no journal.
fn say(done: &damon::Restored) -> Option<(&'static str, &str)> {
    match done {
        damon::Restored::Nothing => None,
        damon::Restored::Stale(note) => Some(("gone", note)),
        damon::Restored::Done(note) => Some(("taken_down", note)),
        damon::Restored::Left(note) => Some(("left", note)),
    }
}
