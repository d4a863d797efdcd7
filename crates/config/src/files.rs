//! What is written to the kernel's files and read from them.
//!
//! ```text
//! [knobs]   before the run
//! [ksm]     before the run, in /sys/kernel/mm/ksm
//! [[at]]    during the run, at a time and as somebody
//! ```

use crate::ConfigError;
use crate::tree::{Cur, Kind};
use homenode_core::knobs::Errno;
use homenode_core::ksm::files::{FOLDER, File};
use homenode_core::scenario::{Action, FileOp, Process, Rights, names_in};

pub(crate) fn knobs(c: &Cur<'_>) -> Result<Vec<(String, String)>, ConfigError> {
    let t = c.any_table()?;
    t.entries.iter().map(|e| Ok((e.key.clone(), value(&t.cur(e))?))).collect()
}

/// What is written to the files of `/sys/kernel/mm/ksm` before the run. Which of them a
/// kernel has, and what it takes, is known once a kernel is chosen.
///
/// Source: specs/ksm.md#files.
pub(crate) fn ksm(c: &Cur<'_>) -> Result<Vec<(String, String)>, ConfigError> {
    let t = c.any_table()?;
    let mut all = Vec::new();
    for e in t.entries {
        let at = t.cur(e);
        let Some(file) = File::ALL.iter().find(|f| f.name() == e.key) else {
            let names: Vec<&str> =
                File::ALL.iter().filter(|f| !f.is_counter()).map(|f| f.name()).collect();
            return Err(at.key_error(
                e,
                format!("{FOLDER} has no such file{}", crate::tree::suggestion(&e.key, &names)),
            ));
        };
        if file.is_counter() {
            return Err(at.key_error(
                e,
                "the kernel counts there; nothing can be written to it (read it with [[at]])",
            ));
        }
        all.push((e.key.clone(), value(&at)?));
    }
    Ok(all)
}

/// What is written to a knob.
fn value(c: &Cur<'_>) -> Result<String, ConfigError> {
    match &c.val.kind {
        Kind::Text(s) | Kind::Number(s) => Ok(s.clone()),
        Kind::Bool(b) => Ok(b.to_string()),
        _ => Err(c.error("a knob's value is a number, a text or true or false")),
    }
}

/// Source: specs/files.md#actions.
pub(crate) fn action(c: &Cur<'_>, processes: &[Process]) -> Result<Action, ConfigError> {
    let t = c.table(&["time", "read", "write", "value", "as", "expect"])?;
    let path = |c: &Cur<'_>| file_path(c, processes);
    let what = match (t.opt("read"), t.opt("write")) {
        (Some(read), None) => {
            if let Some(value) = t.opt("value") {
                return Err(value.error("a read has no value; \"write\" has one"));
            }
            FileOp::Read { path: path(&read)? }
        }
        (None, Some(write)) => {
            FileOp::Write { path: path(&write)?, text: value(&t.get("value")?)? }
        }
        (Some(_), Some(write)) => {
            return Err(write.error("one entry is a \"read\" or a \"write\", not both"));
        }
        (None, None) => {
            return Err(
                t.error("an entry says what happens then: \"read\" or \"write\" is missing")
            );
        }
    };
    let rights = Rights::ALL.map(|r| (r.name(), r));
    let who = t.opt("as").map_or(Ok(Rights::Root), |c| c.word(&rights))?;
    let errors = Errno::ALL.map(|e| (e.name(), e));
    let expect = t.opt("expect").map(|c| c.word(&errors)).transpose()?;
    Ok(Action { at: t.get("time")?.time()?, who, what, expect })
}

/// A path of the simulated kernel, in which `{name}` stands for a process.
fn file_path(c: &Cur<'_>, processes: &[Process]) -> Result<String, ConfigError> {
    let path = c.text()?;
    if !path.starts_with('/') {
        return Err(c.error(format!(
            "\"{path}\" is no path of the kernel's; write one such as \"/proc/vmstat\""
        )));
    }
    for name in names_in(path) {
        match processes.iter().filter(|p| p.name == name).count() {
            1 => {}
            0 => {
                let names: Vec<&str> = processes.iter().map(|p| p.name.as_str()).collect();
                return Err(c.error(format!(
                    "no process is named \"{name}\"{}",
                    crate::tree::suggestion(name, &names)
                )));
            }
            n => {
                return Err(c.error(format!("{n} processes are named \"{name}\"; which is meant?")));
            }
        }
    }
    Ok(path.to_owned())
}
