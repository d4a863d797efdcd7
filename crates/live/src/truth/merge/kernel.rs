//! The kernel's own merging, for whoever holds it: one at a time on a machine, and with
//! every knob as it was when they are done.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const FOLDER: &str = "/sys/kernel/mm/ksm";

/// Knobs that are kept, in the order in which they can be written: an advisor forbids
/// `pages_to_scan`; `run` and the advisor are apart.
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

/// Why the kernel's merging can't be had.
#[derive(Debug, thiserror::Error)]
pub enum KsmError {
    /// The kernel was built without it.
    #[error("skipped: no KSM: this kernel has no {FOLDER}")]
    None,
    /// Its knobs can't be written.
    #[error("skipped: no KSM: its knobs can't be written (they need root)")]
    Refused(#[source] io::Error),
    /// It is at work.
    #[error(
        "KSM is at work for others (run {run}, pages_shared {pages_shared}), whose pages would \
         count among ours; nothing was changed"
    )]
    Busy {
        /// The knob.
        run: String,
        /// The counter.
        pages_shared: String,
    },
    /// Others have registered memory for merging.
    #[error(
        "process {pid} ({name}){} registered memory for merging, which would count among ours; \
         nothing was changed",
        if *others > 0 { format!(" and {others} more") } else { String::new() }
    )]
    Registered {
        /// The first of them.
        pid: u32,
        /// Its name.
        name: String,
        /// How many more.
        others: usize,
    },
    /// Another test or check holds it.
    #[error("another check holds KSM ({}) since {} s; try again later", path.display(), after.as_secs())]
    Held {
        /// The lock.
        path: PathBuf,
        /// How long it was waited for.
        after: Duration,
    },
    /// The lock can't be made.
    #[error("{}: no lock for KSM", path.display())]
    Lock {
        /// The lock.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A write that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("{FOLDER}/{name}: {value:?} was refused")]
pub struct WriteError {
    /// The file.
    pub name: String,
    /// What was written.
    pub value: String,
    /// What the kernel said.
    #[source]
    pub source: io::Error,
}

/// Set by SIGINT and SIGTERM while the knobs are held.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupted(_: i32) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

const SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

fn read(name: &str) -> io::Result<String> {
    fs::read_to_string(Path::new(FOLDER).join(name)).map(|t| t.trim().to_owned())
}

fn write(name: &str, value: &str) -> io::Result<()> {
    fs::write(Path::new(FOLDER).join(name), value)
}

/// Processes that have registered memory for merging, by number and name, as far as the
/// kernel shows it (`ksm_stat`).
pub fn registered() -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("ksm_stat")) else { continue };
        let is_in = stat.lines().any(|l| {
            let (key, value) = l.split_once(' ').unwrap_or((l, ""));
            match key.trim_end_matches(':') {
                "ksm_rmap_items" | "ksm_merging_pages" => value != "0",
                "ksm_merge_any" | "ksm_mergeable" => value == "yes",
                _ => false,
            }
        });
        if is_in {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push((pid, name.trim().to_owned()));
        }
    }
    found.sort();
    found
}

/// The kernel's merging, ours alone until dropped. ksmd is stopped, nothing is merged, and
/// no advisor is on, as long as nobody writes.
pub struct Kernel {
    saved: Vec<(&'static str, String)>,
    advisor: Option<String>,
    run: String,
    handlers: Vec<(i32, libc::sighandler_t)>,
    _lock: File,
}

impl Kernel {
    /// Takes it once nobody else has it, waiting at most so long. From then on SIGINT,
    /// SIGTERM and SIGHUP only set [`Kernel::is_interrupted`], so that all is put back.
    ///
    /// # Errors
    /// [`KsmError`], with nothing changed.
    pub fn take(wait: Duration) -> Result<Self, KsmError> {
        let run = read("run").map_err(|_| KsmError::None)?;
        // What is there already changes nothing.
        write("run", &run).map_err(KsmError::Refused)?;
        let lock = lock(wait)?;
        // Read only now: the one before has put them back.
        let value = |name| read(name).unwrap_or_default();
        let (run, pages_shared) = (value("run"), value("pages_shared"));
        if run == "1" || pages_shared != "0" {
            return Err(KsmError::Busy { run, pages_shared });
        }
        if let Some(((pid, name), others)) = registered().split_first() {
            let (pid, name) = (*pid, name.clone());
            return Err(KsmError::Registered { pid, name, others: others.len() });
        }
        let saved = KNOBS.iter().filter_map(|name| Some((*name, read(name).ok()?))).collect();
        let advisor = read("advisor_mode").ok().and_then(|text| {
            let from = text.find('[')? + 1;
            Some(text[from..text.find(']')?].to_owned())
        });
        INTERRUPTED.store(false, Ordering::Relaxed);
        let handler = interrupted as extern "C" fn(i32) as libc::sighandler_t;
        // SAFETY: the handler only sets a flag.
        let handlers = SIGNALS.map(|s| (s, unsafe { libc::signal(s, handler) })).to_vec();
        let kernel = Self { saved, advisor, run, handlers, _lock: lock };
        if kernel.advisor.is_some() {
            let _ = write("advisor_mode", "none");
        }
        let _ = write("run", "2");
        Ok(kernel)
    }

    /// A file's text without its end; `None` where this kernel has none of that name.
    pub fn read(&self, name: &str) -> Option<String> {
        read(name).ok()
    }

    /// Writes a knob.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn write(&self, name: &str, value: &str) -> Result<(), WriteError> {
        write(name, value).map_err(|source| {
            let (name, value) = (name.to_owned(), value.to_owned());
            WriteError { name, value, source }
        })
    }

    /// Puts the knobs back that were there, but for `run` (0), and unmerges everything:
    /// as after [`Kernel::take`].
    pub fn reset(&self) {
        // Limits can be changed only while nothing is merged.
        let _ = write("run", "2");
        if self.advisor.is_some() {
            let _ = write("advisor_mode", "none");
        }
        self.restore();
    }

    fn restore(&self) {
        for (name, value) in &self.saved {
            if read(name).ok().as_ref() != Some(value) && write(name, value).is_err() {
                eprintln!("homenode: {FOLDER}/{name} could not be set back to {value}");
            }
        }
    }

    /// Whether a signal asked to end.
    pub fn is_interrupted(&self) -> bool {
        INTERRUPTED.load(Ordering::Relaxed)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.reset();
        if let Some(advisor) = self.advisor.as_ref().filter(|a| *a != "none") {
            let _ = write("advisor_mode", advisor);
            // Switching it on sets the speed anew, and then only it may.
        }
        if write("run", &self.run).is_err() {
            eprintln!("homenode: {FOLDER}/run could not be set back to {}", self.run);
        }
        for &(signal, handler) in &self.handlers {
            // SAFETY: what was there before.
            unsafe { libc::signal(signal, handler) };
        }
    }
}

/// The lock that tests and checks of merging take, one for the machine.
fn lock(wait: Duration) -> Result<File, KsmError> {
    let path = std::env::temp_dir().join("homenode-ksm.lock");
    let lock = match File::options().create(true).truncate(false).write(true).open(&path) {
        Ok(lock) => lock,
        Err(source) => return Err(KsmError::Lock { path, source }),
    };
    let began = Instant::now();
    // SAFETY: the descriptor is open; the lock goes with it.
    while unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        if began.elapsed() >= wait {
            return Err(KsmError::Held { path, after: wait });
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(lock)
}
