//! From observing to restoring, as the guide tells it: what people see on a terminal.
//!
//! Source: specs/act.md#shown.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{Scene, TIMES, setter, until};
use crate::TestResult;
use crate::advise::knobs;
use crate::asked::Asked;
use crate::observe::Busy;

/// A command on a terminal of its own, of 100 columns: its code, and what is to be read at
/// its end.
fn shown(line: &[&str]) -> Result<(Option<i32>, String)> {
    let (mut main, mut side) = (0, 0);
    let size = libc::winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    let none = std::ptr::null_mut::<libc::c_char>();
    // SAFETY: two numbers and a size of our own; no name is asked for.
    let r = unsafe {
        libc::openpty(&raw mut main, &raw mut side, none, std::ptr::null(), &raw const size)
    };
    ensure!(r == 0, "a terminal: {}", io::Error::last_os_error());
    // SAFETY: both were opened just now, and nobody else has them.
    let (main, side) = unsafe { (OwnedFd::from_raw_fd(main), OwnedFd::from_raw_fd(side)) };
    let mut command = Command::new("/bin/homenode");
    command.args(line).env("LC_ALL", "C").env("TERM", "linux").stdin(Stdio::null());
    command.stdout(side.try_clone()?).stderr(side);
    let mut child = command.spawn().context("homenode")?;
    // With it our own ends of the terminal's other side go.
    drop(command);
    let reader = std::thread::spawn(move || {
        let (mut file, mut bytes) = (fs::File::from(main), Vec::new());
        // EIO is the end of a terminal.
        let _ = file.read_to_end(&mut bytes);
        bytes
    });
    let code = child.wait()?.code();
    let bytes = reader.join().ok().context("what was shown")?;
    Ok((code, screen(&String::from_utf8_lossy(&bytes))))
}

/// What is left on a screen of lines that were cleared and written again.
fn screen(text: &str) -> String {
    let (mut lines, mut at) = (vec![String::new()], 0usize);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\r' => {}
            '\n' => at += 1,
            '\u{1b}' => {
                let end =
                    rest.find(|c: char| c.is_ascii_alphabetic()).map_or(rest.len(), |e| e + 1);
                let (code, more) = rest.split_at(end);
                rest = more;
                let n = code.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(1);
                match code.chars().last() {
                    Some('A') => at = at.saturating_sub(n),
                    Some('B') => at += n,
                    Some('K') => lines[at].clear(),
                    _ => {}
                }
            }
            c => lines[at].push(c),
        }
        while lines.len() <= at {
            lines.push(String::new());
        }
    }
    lines.join("\n")
}

pub(crate) fn story(asked: &Asked) -> TestResult {
    let scene = Scene::set(asked)?;
    let busy = Busy::on(scene.slow)?;
    let pid = busy.pid().to_string();
    let there = || scene.there(busy.pid());
    let hot = there()?;
    let mut told = serde_json::Map::new();
    let mut tell = |what: &str, line: &[&str]| -> Result<String> {
        let (code, text) = shown(line)?;
        ensure!(code == Some(0), "{what}: {code:?}: {text}");
        told.insert(what.to_owned(), Value::from(text.clone()));
        Ok(text)
    };
    let seen = tell("observe", &["observe", "--pid", &pid, "--period", "4s", "--for", "8s"])?;
    ensure!(seen.contains(&pid), "{seen}");
    let advice = tell("advise", &["advise", "--pid", &pid, "--for", "15s"])?;
    ensure!(there()? + 8 >= hot, "advising has moved pages: {advice}");
    let mut acted = String::new();
    for _ in 0..TIMES {
        acted = tell("act", &["act", "--pid", &pid, "--for", "20s"])?;
        if there()? < hot / 4 {
            break;
        }
    }
    ensure!(there()? < hot / 4, "of {hot} pages {} are still there: {acted}", there()?);
    ensure!(acted.contains("acted for") && acted.contains("MiB moved"), "{acted}");
    let ledger = tell("ledger", &["ledger", "--pid", &pid])?;
    ensure!(ledger.contains("homenode"), "{ledger}");
    // One that sets knobs is killed.
    let mut child = setter()?;
    until("knobs that are set", &|| knobs() != scene.knobs)?;
    sleep(Duration::from_millis(300));
    child.kill()?;
    child.wait()?;
    ensure!(knobs() != scene.knobs, "nothing was left behind");
    let (code, refused) = shown(&["act", "--pid", &pid, "--for", "1s"])?;
    ensure!(code == Some(3) && refused.contains("homenode restore"), "{code:?}: {refused}");
    let restored = tell("restore", &["restore"])?;
    scene.holds(&restored)?;
    told.insert("refused".to_owned(), Value::from(refused));
    Ok(json!({"shown": told}))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_screen_shows_what_was_written_last() {
        let clear = "\r\u{1b}[2K\u{1b}[1B".repeat(2);
        let text = format!("kept\r\none\r\ntwo\r\n\u{1b}[2A{clear}\u{1b}[2Athree\r\nfour\r\n");
        assert_eq!(super::screen(&text), "kept\nthree\nfour\n");
    }
}
