//! What libbpf says while it loads something, kept for an error instead of printed.

use libbpf_rs::{PrintLevel, set_print};
use std::sync::{Mutex, PoisonError};

/// How many of libbpf's last lines are kept for an error.
const LINES: usize = 8;
/// libbpf knows one listener per process, so its words are kept for all.
static WORDS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn hear(_: PrintLevel, said: String) {
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    words.extend(said.lines().map(str::trim_end).filter(|l| !l.is_empty()).map(str::to_owned));
    let more = words.len().saturating_sub(LINES);
    words.drain(..more);
}

/// Hears libbpf's warnings from now on instead of letting it print them.
pub fn listen() {
    WORDS.lock().unwrap_or_else(PoisonError::into_inner).clear();
    set_print(Some((PrintLevel::Warn, hear)));
}

/// The last lines that libbpf has said, which have the kernel's words too; they are gone then.
#[must_use]
pub fn taken() -> Vec<String> {
    std::mem::take(&mut *WORDS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// These lines, to be put behind an error's sentence; nothing where there are none.
#[must_use]
pub fn behind(log: &[String]) -> String {
    match log {
        [] => String::new(),
        log => format!("; libbpf's last words:\n  {}\n ", log.join("\n  ")),
    }
}

/// Lines of a log that frame what the verifier says.
const FRAMES: [&str; 4] = ["PROG LOAD LOG --", "processed ", "peak_states", "failed to load"];

/// What of a log says why: the verifier's own last lines and libbpf's, without their frames.
fn essence(log: &[String]) -> Vec<String> {
    let says = |l: &&String| !FRAMES.iter().any(|f| l.contains(f));
    log.iter().filter(says).map(|l| l.trim().to_owned()).collect()
}

/// Why something was refused, to be put behind an error's sentence: what it means, and the
/// essence of the log.
#[must_use]
pub fn why(source: &libbpf_rs::Error, log: &[String]) -> String {
    format!("{}{}", hint(source, log), behind(&essence(log)))
}

/// What an error of libbpf's means beyond its words: the verifier has said why, or rights lack.
fn hint(source: &libbpf_rs::Error, log: &[String]) -> &'static str {
    let verified = log.iter().any(|l| l.contains(FRAMES[0]) || l.contains(FRAMES[1]));
    match (source.kind(), verified) {
        (_, true) => ". This kernel's verifier refuses them; please report it with these lines",
        (libbpf_rs::ErrorKind::PermissionDenied, false) => {
            ". It needs root, or CAP_BPF and CAP_PERFMON, and a kernel that is not locked down to \
             `confidentiality`"
        }
        _ => "",
    }
}
