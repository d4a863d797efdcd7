//! The switch: off unless somebody turns it on.

use crate::knobs::{Errno, KnobError, WriteAs, parse_sysctl_int};

/// What turning the switch came to.
#[must_use = "when it goes on, stamps of all tasks have to be cleared"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switched {
    /// Nothing changed.
    Same,
    /// It went on: call [`super::TaskStats::clear_stamps`] of every task and group.
    On,
    /// It went off: counters keep their values.
    Off,
}

/// Whether scheduler statistics are kept.
///
/// ```
/// use homenode_core::sched::stats::{Switch, Switched};
/// let mut switch = Switch::default();
/// assert_eq!(switch.boot("1"), Err("Unable to parse schedstats="));
/// assert_eq!(switch.boot("enable"), Ok(Switched::On));
/// assert!(switch.on());
/// ```
///
/// Source: specs/schedstats.md#switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    on: bool,
    warned: bool,
}

impl Switch {
    /// The file of the switch.
    pub const PATH: &'static str = "/proc/sys/kernel/sched_schedstats";
    /// What the kernel says where latencytop turns it on.
    pub const FORCED: &'static str =
        "kernel profiling enabled schedstats, disable via kernel.sched_schedstats.";
    /// What the kernel says once where tracepoints need it.
    pub const NEEDED: &'static str = "Scheduler tracepoints stat_sleep, stat_iowait, stat_blocked \
                                      and stat_runtime require the kernel parameter \
                                      schedstats=enable or kernel.sched_schedstats=1";
    /// What the kernel says of a boot parameter that it doesn't understand.
    pub const UNPARSED: &'static str = "Unable to parse schedstats=";

    /// Whether it is on.
    #[inline]
    pub const fn on(&self) -> bool {
        self.on
    }

    /// Turns it.
    pub fn set(&mut self, on: bool) -> Switched {
        match (std::mem::replace(&mut self.on, on), on) {
            (false, true) => Switched::On,
            (true, false) => Switched::Off,
            (true, true) | (false, false) => Switched::Same,
        }
    }

    /// The boot parameter `schedstats=VALUE`. Of several, each is obeyed in turn.
    ///
    /// # Errors
    /// The kernel's warning, for anything but `enable` and `disable`; nothing changes, and the
    /// kernel hands the option on to the first program.
    pub fn boot(&mut self, value: &str) -> Result<Switched, &'static str> {
        match value {
            "enable" => Ok(self.set(true)),
            "disable" => Ok(self.set(false)),
            _ => Err(Self::UNPARSED),
        }
    }

    /// What reading the file prints, without the newline.
    pub const fn read(&self) -> &'static str {
        if self.on { "1" } else { "0" }
    }

    /// A write to the file. Returns the bytes consumed, which is all of them.
    ///
    /// # Errors
    /// [`KnobError`], and nothing changes: EPERM without CAP_SYS_ADMIN, whatever is written; EINVAL
    /// for what is no number, or neither 0 nor 1.
    ///
    /// Source: specs/knobs.md#sysctl.
    pub fn write(&mut self, text: &str, who: WriteAs) -> Result<(usize, Switched), KnobError> {
        let refuse = |errno, allowed: &str| KnobError {
            knob: Self::PATH.to_owned(),
            given: Some(text.to_owned()),
            errno,
            allowed: allowed.to_owned(),
        };
        if !who.cap_sys_admin {
            return Err(refuse(Errno::Eperm, "writing it needs CAP_SYS_ADMIN"));
        }
        if who.offset != 0 {
            return Ok((text.len(), Switched::Same));
        }
        let on = match parse_sysctl_int(text) {
            Ok(0) => false,
            Ok(1) => true,
            Ok(_) | Err(_) => return Err(refuse(Errno::Einval, "allowed are 0 (off), 1 (on)")),
        };
        Ok((text.len(), self.set(on)))
    }

    /// Somebody has read or written `kernel.latencytop`, which is now `value`: unless that is 0, the
    /// switch goes on, and the kernel says so. `None` where it was on, or stays off.
    pub fn latencytop(&mut self, value: i64) -> Option<(Switched, &'static str)> {
        (value != 0 && !self.on).then(|| (self.set(true), Self::FORCED))
    }

    /// A task is enqueued. Where one of the tracepoints `sched_stat_wait`, `_sleep`, `_iowait`,
    /// `_blocked` and `_runtime` is enabled and the switch is off, the kernel warns, once; the switch
    /// stays off.
    #[inline]
    pub fn tracepoints(&mut self, enabled: bool) -> Option<&'static str> {
        if self.on || !enabled || self.warned {
            return None;
        }
        self.warned = true;
        Some(Self::NEEDED)
    }
}
