//! What turns scheduler statistics on, or would like to: the boot parameter, latencytop, tracepoints.
//!
//! Source: specs/schedstats.md#switch.

use crate::sched::BOOT;
use crate::simulation::{FileError, Simulation};
use homenode_core::knobs::{Errno, parse_sysctl_int, parse_u64_decimal};
use homenode_core::sched::stats::{Switch, Switched};

/// Its file.
pub(crate) const LATENCYTOP: &str = "/proc/sys/kernel/latencytop";
/// Where tracepoints of the scheduler are.
pub(crate) const TRACEPOINTS: &str = "/sys/kernel/tracing/events/sched";

homenode_core::named! {
    /// A tracepoint that needs statistics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Tracepoint {
        /// A wait for a CPU is over.
        Wait => "sched_stat_wait",
        /// A sleep is over.
        Sleep => "sched_stat_sleep",
        /// A sleep for I/O is over.
        Iowait => "sched_stat_iowait",
        /// An uninterruptible sleep is over.
        Blocked => "sched_stat_blocked",
        /// Runtime has been accounted.
        Runtime => "sched_stat_runtime",
    }
}

impl Tracepoint {
    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What a kernel's command line says of statistics: whether they are on, and what the kernel says of it.
///
/// # Errors
/// A word that the simulated kernel doesn't know.
pub(crate) fn boot(command_line: &str) -> Result<(bool, Vec<&'static str>), String> {
    let (mut switch, mut said) = (Switch::default(), Vec::new());
    for word in command_line.split_whitespace() {
        let Some(value) = word.strip_prefix("schedstats=") else {
            return Err(format!(
                "the simulated kernel does not know the parameter {word:?}; it knows \
                 schedstats=enable and schedstats=disable"
            ));
        };
        match switch.boot(value) {
            Ok(Switched::On | Switched::Off | Switched::Same) => {}
            Err(what) => said.push(what),
        }
    }
    Ok((switch.on(), said))
}

impl Simulation {
    /// What the kernel has said so far, as `dmesg` prints it: times in picoseconds.
    pub fn messages(&self) -> Vec<(u64, String)> {
        let said = self.sched.q.counters.said.iter();
        let said = said.map(|&(at, text)| ((at - BOOT) * 1000, text.to_owned()));
        let mut all: Vec<(u64, String)> = self.messages.iter().cloned().chain(said).collect();
        all.sort_by_key(|m| m.0);
        all
    }
    /// The kernel says something.
    pub(crate) fn say(&mut self, what: String) {
        self.messages.push((self.now(), what));
    }
    /// Root writes to `kernel.latencytop`.
    pub(crate) fn write_latencytop(&mut self, path: &str, text: &str) -> Result<(), FileError> {
        let refused = |errno| {
            FileError::new(path, errno, &format!("{:?} is no number", text.trim_end_matches('\n')))
        };
        let value = parse_sysctl_int(text).map_err(refused)?;
        let value = i32::try_from(value).map_err(|_| refused(Errno::Einval))?;
        self.sched.q.counters.latencytop = value;
        self.latencytop();
        Ok(())
    }
    /// Somebody has read or written `kernel.latencytop`.
    pub(crate) fn latencytop(&mut self) {
        let value = self.sched.q.counters.latencytop;
        let mut switch = self.sched.q.counters.switch.clone();
        if let Some((Switched::On, what)) = switch.latencytop(value.into()) {
            self.kernel.knobs.sched_schedstats = true;
            self.sched.set_knobs(&self.kernel.knobs);
            self.say(what.to_owned());
        }
    }
    /// Root writes to `enable` of a tracepoint.
    pub(crate) fn write_tracepoint(
        &mut self,
        path: &str,
        tracepoint: Tracepoint,
        text: &str,
    ) -> Result<(), FileError> {
        let refused = |errno| {
            let text = text.trim_end_matches('\n');
            FileError::new(path, errno, &format!("{text:?} is refused; allowed are 0 and 1"))
        };
        let enabled = &mut self.sched.q.counters.tracepoints;
        match parse_u64_decimal(text).map_err(refused)? {
            0 => *enabled &= !tracepoint.bit(),
            1 => *enabled |= tracepoint.bit(),
            _ => return Err(refused(Errno::Einval)),
        }
        Ok(())
    }
    pub(crate) fn tracepoint_text(&self, tracepoint: Tracepoint) -> String {
        let enabled = self.sched.q.counters.tracepoints & tracepoint.bit() != 0;
        format!("{}\n", u8::from(enabled))
    }
}
