//! The kernel's own merging, for whoever holds it: one at a time on a machine,
//! and with every knob as it was when they are done, also after a panic.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const FOLDER: &str = "/sys/kernel/mm/ksm";

/// Knobs that are kept, in the order in which they can be written: an advisor
/// forbids `pages_to_scan`, so it comes last; `run` is apart.
const KNOBS: [&str; 11] = [
    "pages_to_scan",
    "sleep_millisecs",
    "max_page_sharing",
    "merge_across_nodes",
    "stable_node_chains_prune_millisecs",
    "use_zero_pages",
    "smart_scan",
    "advisor_max_cpu",
    "advisor_max_pages_to_scan",
    "advisor_min_pages_to_scan",
    "advisor_target_scan_time",
];

/// The kernel's merging, ours alone until dropped.
pub(crate) struct Ksm {
    saved: Vec<(&'static str, String)>,
    advisor: Option<String>,
    run: String,
    _lock: File,
}

fn read(name: &str) -> Option<String> {
    fs::read_to_string(Path::new(FOLDER).join(name)).ok().map(|t| t.trim().to_owned())
}

fn write(name: &str, value: &str) -> bool {
    fs::write(Path::new(FOLDER).join(name), value).is_ok()
}

impl Ksm {
    /// Waits for the lock; `Err` says why there is nothing to be had: no KSM, no
    /// root, or it is at work for others.
    pub(crate) fn take() -> Result<Self, String> {
        let run = read("run").ok_or("no KSM")?;
        if !write("run", &run) {
            return Err("no KSM: its knobs can't be written (not root)".to_owned());
        }
        // SAFETY: asks whether this process is merged as a whole; takes no pointer.
        if unsafe { libc::prctl(68, 0, 0, 0, 0) } < 0 {
            return Err("no KSM for processes as a whole (Linux 6.4 has it)".to_owned());
        }
        let path = std::env::temp_dir().join("homenode-ksm.lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| format!("no lock for KSM: {}: {e}", path.display()))?;
        // SAFETY: the descriptor is open; the lock goes with it.
        while unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) } != 0 {
            thread::sleep(Duration::from_millis(10));
        }
        // Read only now: the one before has restored them.
        let run = read("run").ok_or("no KSM")?;
        if run == "1" || read("pages_shared").is_none_or(|n| n != "0") {
            return Err("no KSM to be had: it is at work for others".to_owned());
        }
        let saved = KNOBS.iter().filter_map(|name| Some((*name, read(name)?))).collect();
        let advisor = read("advisor_mode").and_then(|text| {
            let from = text.find('[')? + 1;
            Some(text[from..text.find(']')?].to_owned())
        });
        let ksm = Self { saved, advisor, run, _lock: lock };
        if ksm.advisor.is_some() {
            write("advisor_mode", "none");
        }
        write("run", "2");
        Ok(ksm)
    }

    /// Sets a knob.
    pub(crate) fn set(&self, name: &str, value: u64) {
        assert!(write(name, &value.to_string()), "{name} can't be set to {value}");
    }

    /// As fast as it goes, every page in every pass.
    pub(crate) fn full_speed(&self) {
        self.set("pages_to_scan", 100_000);
        self.set("sleep_millisecs", 0);
        self.set("merge_across_nodes", 1);
        // Not in older kernels.
        for name in ["smart_scan", "use_zero_pages"] {
            write(name, "0");
        }
    }

    /// A counter; 0 where the kernel has none of that name.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        read(name).and_then(|v| v.parse().ok()).unwrap_or(0)
    }

    /// Lets it run until shared and sharing pages stay as they are over a pass, at
    /// least three passes; how long that took until they were first so.
    pub(crate) fn settle(&self) -> Duration {
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

impl Drop for Ksm {
    fn drop(&mut self) {
        // Limits can be changed only while nothing is merged.
        write("run", "2");
        for (name, value) in &self.saved {
            if read(name).as_ref() != Some(value) && !write(name, value) {
                eprintln!("{FOLDER}/{name} could not be set back to {value}");
            }
        }
        if let Some(advisor) = &self.advisor {
            write("advisor_mode", advisor);
        }
        // Switching the advisor off and on sets the speed anew.
        if let Some((name, value)) = self.saved.iter().find(|(n, _)| *n == "pages_to_scan") {
            write(name, value);
        }
        write("run", &self.run);
    }
}
