//! The kernel's own merging, for tests that let ksmd run: one after another on a
//! machine, and with every knob as it was when they are done, also after a panic.
//!
//! Two locks. The one of `homenode_live::ksm` refuses at once whoever comes second, as
//! commands should, and goes to whoever drives: a test that runs such a command can't
//! hold it. So tests have one more, for which they wait for each other.

use homenode_live::ksm::{Alone, Folder, KsmError, Place, Restore, restore};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

/// This machine's merging, not to be had by any other test until dropped. Nothing is
/// held of it: commands can be run that do.
pub(crate) struct Turn {
    _lock: File,
}

impl Turn {
    /// Waits for the lock; `Err` says why there is nothing to be had: no KSM, no root,
    /// it is at work for others, or a driver has ended without restoring.
    pub(crate) fn take() -> Result<Self, String> {
        let lock = wait()?;
        // Asks for all that a command would ask for. A journal that is there already is
        // not ours: nothing is restored from it.
        hold().map(drop)?;
        Ok(Self { _lock: lock })
    }
}

impl Drop for Turn {
    /// What a command left that a failing test has killed.
    fn drop(&mut self) {
        let place = Place::here();
        match restore(&place, &place.files()) {
            Ok(Restore::Done(done)) => done.sentences().iter().for_each(|s| eprintln!("{s}")),
            Ok(_) => {}
            Err(e) => eprintln!("{e}"),
        }
    }
}

fn wait() -> Result<File, String> {
    // What is shared is the lock too: a file of its own would have to stay behind.
    let path = "/sys/kernel/mm/ksm/run";
    let lock = File::open(path).map_err(|e| format!("no lock for KSM: {path}: {e}"))?;
    // SAFETY: the descriptor is open; the lock goes with it.
    while unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) } != 0 {
        thread::sleep(Duration::from_millis(10));
    }
    Ok(lock)
}

fn hold() -> Result<Alone<Folder>, String> {
    let place = Place::here();
    let began = Instant::now();
    loop {
        match Alone::take(&place, place.files()) {
            Ok((alone, _)) => return Ok(alone),
            // Other tests launch programs that are registered, without letting ksmd run.
            Err(KsmError::Registered { .. }) if began.elapsed() < Duration::from_secs(20) => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(e) => return Err(format!("no KSM to be had: {e}")),
        }
    }
}

/// The kernel's merging, ours alone until dropped.
pub(crate) struct Ksm {
    // Before the lock, which others wait for.
    alone: Alone<Folder>,
    _lock: File,
}

impl Ksm {
    /// Waits for other tests; `Err` says why there is nothing to be had.
    pub(crate) fn take() -> Result<Self, String> {
        // SAFETY: asks whether this process is merged as a whole; takes no pointer.
        if unsafe { libc::prctl(68, 0, 0, 0, 0) } < 0 {
            return Err("no KSM for processes as a whole (Linux 6.4 has it)".to_owned());
        }
        let lock = wait()?;
        Ok(Self { alone: hold()?, _lock: lock })
    }

    /// Sets a knob.
    pub(crate) fn set(&self, name: &str, value: u64) {
        if let Err(e) = self.alone.write(name, &value.to_string()) {
            panic!("{e}: {}", e.source);
        }
    }

    /// As fast as it goes, every page in every pass.
    pub(crate) fn full_speed(&self) {
        self.set("pages_to_scan", 100_000);
        self.set("sleep_millisecs", 0);
        self.set("merge_across_nodes", 1);
        // Not in older kernels.
        for name in ["smart_scan", "use_zero_pages"] {
            let _ = self.alone.write(name, "0");
        }
    }

    /// A counter; 0 where the kernel has none of that name.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.alone.read(name).and_then(|v| v.parse().ok()).unwrap_or(0)
    }

    /// Lets it run until shared and sharing pages stay as they are over a pass, at
    /// least three passes; how long that took until they were first so.
    pub(crate) fn settle(&self) -> Duration {
        self.settle_telling(|| ())
    }

    /// The same; calls `further` whenever it has come further.
    pub(crate) fn settle_telling(&self, mut further: impl FnMut()) -> Duration {
        let state =
            || ["pages_shared", "pages_sharing", "ksm_zero_pages"].map(|name| self.counter(name));
        let began = Instant::now();
        self.set("run", 1);
        let first = self.counter("full_scans");
        let mut passes = first;
        let mut last = state();
        let mut reached = began.elapsed();
        let mut stable = 0;
        // Two minutes are hundreds of passes over what the tests have.
        while (stable < 2 || passes < first + 3) && began.elapsed() < Duration::from_secs(120) {
            thread::sleep(Duration::from_micros(500));
            let now = state();
            if now != last {
                (last, stable, reached) = (now, 0, began.elapsed());
                further();
            }
            let scans = self.counter("full_scans");
            if scans > passes {
                passes = scans;
                stable += 1;
            }
        }
        reached
    }

    /// Stops it where it is.
    pub(crate) fn stop(&self) {
        self.set("run", 0);
    }
}

/// All knobs of this machine, by name.
pub(crate) fn knobs() -> Vec<(String, String)> {
    let folder = "/sys/kernel/mm/ksm";
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let counts = name.starts_with("pages_") && name != "pages_to_scan"
            || ["full_scans", "general_profit", "ksm_zero_pages"].contains(&name.as_str())
            || name.starts_with("stable_node_") && !name.contains("prune");
        if !counts {
            found.push((name, std::fs::read_to_string(entry.path()).unwrap_or_default()));
        }
    }
    found.sort();
    found
}
