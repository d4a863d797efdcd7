//! What `homenode act` may do.
//!
//! ```text
//! [budget]
//! cpu_permille = 10          of one CPU
//! moved_mbps = 100           10^6 bytes a second
//! stall = "1ms"              for which a call may hold a process up
//! horizon = "10s"            within which a move has to pay
//! start_delay = "1s"         CPU time before a process is looked at
//! ```
//!
//! What is not there is as it is without a file.
//!
//! Source: specs/act.md#config.

use crate::ConfigError;
use crate::tree::Doc;
use homenode_core::engine::Settings;
use homenode_core::units::{MBps, Picos};
use std::path::Path;

/// Most that may be moved a second, in 10^6 bytes: as the kernel's own limit.
const MOST_MBPS: u64 = 65_536;

/// A file for `act`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActFile {
    /// The engine's settings, with the budgets of the file.
    pub settings: Settings,
}

/// Reads a file.
///
/// # Errors
/// [`ConfigError`], with the place.
pub fn read_act(path: &Path) -> Result<ActFile, ConfigError> {
    act(&Doc::read(path)?)
}

/// Reads a text; `file` is its name in errors.
///
/// # Errors
/// [`ConfigError`], with the place.
pub fn parse_act(file: &str, text: &str) -> Result<ActFile, ConfigError> {
    act(&Doc::parse(file, text)?)
}

fn act(doc: &Doc) -> Result<ActFile, ConfigError> {
    let root = doc.root().table(&["budget"])?;
    let mut settings = Settings::default();
    if let Some(c) = root.opt("budget") {
        let t = c.table(&["cpu_permille", "moved_mbps", "stall", "horizon", "start_delay"])?;
        if let Some(c) = t.opt("cpu_permille") {
            settings.cpu_permille = c.thousandths(1, 1000)?;
        }
        if let Some(c) = t.opt("moved_mbps") {
            settings.moved_mbps = MBps(c.int(1, MOST_MBPS)?);
        }
        if let Some(c) = t.opt("stall") {
            settings.stall = c.positive_time()?;
            if settings.stall > Picos::from_secs(1) {
                return Err(c.error("a stall of more than 1s: that is a pause, not a budget"));
            }
        }
        if let Some(c) = t.opt("horizon") {
            settings.horizon = c.positive_time()?;
        }
        if let Some(c) = t.opt("start_delay") {
            settings.start_delay = c.time()?;
        }
    }
    Ok(ActFile { settings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_the_default() {
        let read = |text| parse_act("act.toml", text).unwrap().settings;
        assert_eq!(read(""), Settings::default());
        let s = read("[budget]\nmoved_mbps = 20\nstall = \"500us\"\ncpu_permille = 5\n");
        assert_eq!((s.moved_mbps, s.stall.as_ns(), s.cpu_permille), (MBps(20), 500_000, 5));
        assert_eq!(s.horizon, Settings::default().horizon);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, told) in [
            (
                "[budget]\nstal = \"1ms\"\n",
                "act.toml:2:1: budget.stal: unknown key; did you mean \"stall\"?",
            ),
            (
                "[budget]\nstall = 1\n",
                "act.toml:2:9: budget.stall: expected a time with its unit, such as \"10us\" or \"1s\", found a number",
            ),
            (
                "[budget]\nstall = \"2s\"\n",
                "act.toml:2:9: budget.stall: a stall of more than 1s: that is a pause, not a budget",
            ),
            (
                "[budget]\nmoved_mbps = 0\n",
                "act.toml:2:14: budget.moved_mbps: 0 is out of range; a whole number from 1 to 65536 is allowed",
            ),
        ] {
            let e = parse_act("act.toml", text).unwrap_err().to_string();
            assert!(e.starts_with(&told[..told.find(": ").unwrap()]), "{e}");
            assert_eq!(e, told);
        }
    }
}
