//! Readings over time: the counters, and ksmd's CPU time.

use super::processes::all_or_these;
use super::{Files, Folder, KsmError};
use homenode_core::ksm::files::{FOLDER, File};
use homenode_core::ksm::pace::{Interval, KnobWrite, Reading};
use homenode_core::ksm::plan::Shown;
use homenode_live::people::find::all;
use homenode_live::people::stat::{Stat, tick_ns};
use homenode_live::place::Place;
use homenode_live::registered::Scan;
use homenode_live::text::{field, number};
use std::fs;
use std::time::{Duration, Instant};

/// Looking for registered processes may take this part of the time.
const SHARE_OF_SCANS: u32 = 100;

/// MemAvailable and MemTotal in bytes.
///
/// # Errors
/// [`KsmError::Read`].
pub fn memory(place: &Place) -> Result<(u64, u64), KsmError> {
    let path = place.path("/proc/meminfo");
    let read = |source| KsmError::Read { path: path.clone(), source };
    let text = fs::read_to_string(&path).map_err(read)?;
    let field = |key: &str| number(&text, key)?.checked_mul(1024);
    field("MemAvailable:")
        .zip(field("MemTotal:"))
        .ok_or_else(|| read(std::io::Error::other("it has no MemAvailable and MemTotal")))
}

/// The daemon's number; `None` if it can't be seen from here.
pub fn find_ksmd(place: &Place) -> Option<u32> {
    all(&place.path("/proc")).ok()?.into_iter().map(|(pid, _)| pid).find(|pid| {
        let stat = Stat::read(&place.path(&format!("/proc/{pid}/stat"))).ok().flatten();
        stat.is_some_and(|stat| stat.comm == b"ksmd" && stat.is_kernel())
    })
}

/// Its CPU time in ns: exact where the scheduler tells, else in clock ticks.
fn cpu_ns(place: &Place, ksmd: u32) -> Option<u64> {
    let read = |name| fs::read_to_string(place.path(&format!("/proc/{ksmd}/{name}"))).ok();
    let exact = || read("schedstat")?.split_ascii_whitespace().next()?.parse::<u64>().ok();
    let ticks = || {
        let stat = Stat::read(&place.path(&format!("/proc/{ksmd}/stat"))).ok()??;
        Some(stat.ticks.saturating_mul(tick_ns()))
    };
    exact().filter(|ns| *ns > 0).or_else(ticks)
}

/// CPU time of ksmd by visit since boot, in ns; `None` where it has done too little to tell,
/// or can't be seen.
pub fn visit_ns(place: &Place) -> Option<u64> {
    let reading = Reading {
        pages_scanned: Folder::of(place).shown().get(&File::PagesScanned).copied(),
        ksmd_cpu_ns: cpu_ns(place, find_ksmd(place)?)?,
        ..Reading::default()
    };
    reading.cost_since_boot()
}

/// Whether ksmd sleeps, and how often it has gone to sleep of its own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// It sleeps: it waits neither for a CPU nor for a lock.
    pub now: bool,
    /// `voluntary_ctxt_switches`: waiting for a lock counts too.
    pub times: u64,
}

impl Sleep {
    /// Of the process of that number; `None` if it is gone.
    pub fn of(place: &Place, ksmd: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(place.path(&format!("/proc/{ksmd}/status"))).ok()?)
    }

    /// Of a text as `/proc/PID/status` has it.
    fn parse(status: &str) -> Option<Self> {
        Some(Self {
            now: field(status, "State:")?.starts_with('S'),
            times: field(status, "voluntary_ctxt_switches:")?.parse().ok()?,
        })
    }
}

/// One look.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The files.
    pub shown: Shown,
    /// The counters.
    pub reading: Reading,
    /// Whether ksmd's CPU time is known.
    pub cpu_known: bool,
    /// Since the look before.
    pub interval: Interval,
    /// Since the first look.
    pub whole: Interval,
    /// Registered processes, or those that were asked for.
    pub scan: Scan,
    /// What was ordered upon it, and whether it was done.
    pub order: Option<(KnobWrite, bool)>,
}

/// Looks at the kernel's merging over time.
pub struct Watch {
    place: Place,
    /// These processes only; empty: all that are registered.
    pids: Vec<u32>,
    ksmd: Option<u32>,
    began: Instant,
    first: Option<Reading>,
    last: Reading,
    scan: Scan,
    /// When the next scan may be.
    next_scan: Duration,
}

impl Watch {
    /// From now on; all processes that are registered, or these.
    ///
    /// # Errors
    /// [`KsmError::NoKsm`]; [`KsmError::NoProcess`], [`KsmError::Unreadable`].
    pub fn new(place: &Place, pids: Vec<u32>) -> Result<Self, KsmError> {
        if Folder::of(place).read(File::Run).is_err() {
            return Err(KsmError::NoKsm { folder: place.path(FOLDER) });
        }
        let scan = all_or_these(place, &pids, true)?;
        Ok(Self {
            place: place.clone(),
            pids,
            ksmd: find_ksmd(place),
            began: Instant::now(),
            first: None,
            last: Reading::default(),
            scan,
            next_scan: Duration::ZERO,
        })
    }

    /// Whether ksmd can be seen.
    pub fn sees_ksmd(&self) -> bool {
        self.ksmd.is_some()
    }
    /// Processes as they were last looked at.
    pub fn scan(&self) -> &Scan {
        &self.scan
    }

    /// Looks now. Processes are looked for anew unless that takes too much of the time.
    ///
    /// # Errors
    /// [`KsmError`] if files have gone.
    pub fn look(&mut self, files: &impl Files) -> Result<Seen, KsmError> {
        let at = self.began.elapsed();
        if at >= self.next_scan {
            let begin = Instant::now();
            self.scan = all_or_these(&self.place, &self.pids, false)?;
            self.next_scan = at + begin.elapsed() * SHARE_OF_SCANS;
        }
        let shown = files.shown();
        let count = |f| shown.get(&f).copied();
        let profit = files.read(File::GeneralProfit).ok().and_then(|t| t.trim().parse().ok());
        let cpu = self.ksmd.and_then(|pid| cpu_ns(&self.place, pid));
        let of = |f| count(f).unwrap_or(0);
        let reading = Reading {
            at_ns: u64::try_from(at.as_nanos()).unwrap_or(u64::MAX),
            ksmd_cpu_ns: cpu.unwrap_or(0),
            pages_shared: of(File::PagesShared),
            pages_sharing: of(File::PagesSharing),
            pages_unshared: of(File::PagesUnshared),
            pages_volatile: of(File::PagesVolatile),
            ksm_zero_pages: of(File::KsmZeroPages),
            full_scans: of(File::FullScans),
            pages_scanned: count(File::PagesScanned),
            general_profit: profit,
            offered_pages: self.scan.anon_pages(),
        };
        let first = *self.first.get_or_insert(reading);
        let last = if first == reading { reading } else { self.last };
        self.last = reading;
        Ok(Seen {
            interval: Interval::between(&last, &reading),
            whole: Interval::between(&first, &reading),
            shown,
            reading,
            cpu_known: cpu.is_some(),
            scan: self.scan.clone(),
            order: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ksmd_sleeps_or_works() {
        let text = |state: &str, times: &str| format!("Name:\tksmd\nState:\t{state}\n{times}");
        let times = "voluntary_ctxt_switches:\t25452\nnonvoluntary_ctxt_switches:\t58468\n";
        let now = |state| Sleep::parse(&text(state, times)).map(|s| (s.now, s.times));
        assert_eq!(now("S (sleeping)"), Some((true, 25_452)));
        // Waiting for a lock it is in the middle of its work.
        assert_eq!(now("D (disk sleep)"), Some((false, 25_452)));
        assert_eq!(now("R (running)"), Some((false, 25_452)));
        for text in
            [text("S (sleeping)", ""), text("S", "voluntary_ctxt_switches: x"), String::new()]
        {
            assert_eq!(Sleep::parse(&text), None, "{text}");
        }
    }
}
