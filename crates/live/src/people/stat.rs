//! One line of `/proc/PID/stat`: who a process is, what it used, where it ran.
//!
//! ```text
//! 25898 (a) b) S 25885 25885 21945 … 1203 77 … 12 0 3459294 3133440 399 … 1 …
//!        └┬─┘  │ parent group session │    │   │     start   vsize   rss   CPU
//!       name state                 user  system threads            (pages)
//! ```
//!
//! The name may hold blanks, brackets and line ends: fields are counted from the last
//! bracket on. We read these few of 52 fields ourselves, since the line is read for every
//! process at every look; that they are what they are is checked against the `procfs`
//! crate.
//!
//! Source: specs/live.md#people.

#[cfg(test)]
mod tests;

use crate::place::Place;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Longer than any: 52 numbers, and names of at most 64 bytes.
const LINE: usize = 2048;
/// The flag of kernel threads in field 9.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// What is used of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The command's name, as the kernel has it: any bytes.
    pub comm: Vec<u8>,
    /// `R`, `S`, `Z`, …
    pub state: u8,
    /// Its parent; 0 is none that can be seen from here.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// Its session.
    pub session: u32,
    /// The kernel's flags.
    pub flags: u64,
    /// Processor time in clock ticks: of the whole process, threads that ended included, if
    /// it is the process' line; of the thread, if it is a thread's.
    pub ticks: u64,
    /// Threads that are not yet gone.
    pub threads: u64,
    /// Its start in clock ticks after boot.
    pub start: u64,
    /// Mapped bytes; 0 as soon as it has no memory any more.
    pub vsize: u64,
    /// Resident pages of the system's size, somewhat behind the truth.
    pub rss: u64,
    /// The CPU on which the thread of that number ran last.
    pub cpu: u32,
}

impl Stat {
    /// Reads a line; `None` if it isn't one.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let (open, close) =
            (line.iter().position(|b| *b == b'(')?, line.iter().rposition(|b| *b == b')')?);
        let comm = line.get(open + 1..close)?.to_vec();
        let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let mut field = 3;
        // Those that are passed over are not looked at: an address may be anything.
        let mut to = |wanted: usize| {
            let text = fields.nth(wanted - field - 1)?;
            field = wanted;
            Some(text)
        };
        // -1 is nobody.
        let pid = |text: &str| text.parse::<i64>().ok().map(|v| u32::try_from(v).unwrap_or(0));
        let number = |text: &str| text.parse::<u64>().ok();
        Some(Self {
            comm,
            state,
            parent: pid(to(4)?)?,
            group: pid(to(5)?)?,
            session: pid(to(6)?)?,
            flags: number(to(9)?)?,
            ticks: number(to(14)?)?.saturating_add(number(to(15)?)?),
            threads: number(to(20)?)?,
            start: number(to(22)?)?,
            vsize: number(to(23)?)?,
            // Counters of several CPUs may add up to less than nothing.
            rss: to(24)?.parse::<i64>().ok()?.max(0).unsigned_abs(),
            cpu: to(39)?.parse().ok()?,
        })
    }

    /// Reads the file; `Ok(None)` if what is in it is no such line.
    ///
    /// # Errors
    /// What the system says: `NotFound` or ESRCH if there is no such process.
    pub fn read(file: &Path) -> io::Result<Option<Self>> {
        let mut line = [0; LINE];
        let mut file = File::open(file)?;
        // The kernel hands out the line whole.
        let read = loop {
            match file.read(&mut line) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        Ok(Self::parse(&line[..read]))
    }

    /// Whether it is a thread of the kernel's own.
    pub fn is_kernel(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }
    /// Whether it has memory.
    pub fn has_memory(&self) -> bool {
        self.vsize > 0
    }
    /// Whether it ended, but for what its parent has yet to collect.
    pub fn is_over(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// Whether that is what the system says of a process that has gone.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(libc::ESRCH)
}

/// Processor time of clock ticks in nanoseconds.
pub fn tick_ns() -> u64 {
    // SAFETY: asks for a constant.
    1_000_000_000 / unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1).unsigned_abs()
}

/// When a process was started, in clock ticks since boot; `None` if it is gone.
pub fn start_of(place: &Place, pid: u32) -> Option<u64> {
    Some(Stat::read(&place.path(&format!("/proc/{pid}/stat"))).ok()??.start)
}
