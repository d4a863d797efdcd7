//! The program by itself, for its times.
//!
//! A process's times hold those of its children that it waited for. Children that nobody waits
//! for become ours when their parent ends (`PR_SET_CHILD_SUBREAPER`), and what they took is added.
//! What is not seen: those that left the program's group, and those whose parent lives on and
//! ignores SIGCHLD, whose times the kernel gives to nobody.

use super::RecordError;
use super::child::{self, LINGER, end_group, reap};
use super::error::failed;
use crate::child::{Group, reap_of_group};
use crate::constants::quantile;
use homenode_live::signals;
use homenode_trace::Native;
use std::fs;
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How many programs run whose orphans are to be ours.
static ADOPTING: Mutex<u32> = Mutex::new(0);

/// Orphans of programs that we start become our children, until the last of these is dropped.
struct Adopts;

impl Adopts {
    fn count() -> MutexGuard<'static, u32> {
        ADOPTING.lock().unwrap_or_else(|e| e.into_inner())
    }
    fn set(on: bool) {
        // SAFETY: it changes a flag of this process. A kernel without it leaves all as it was.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, libc::c_ulong::from(on)) };
    }
    fn begin() -> Self {
        let mut count = Self::count();
        *count += 1;
        Self::set(true);
        Self
    }
}

impl Drop for Adopts {
    fn drop(&mut self) {
        let mut count = Self::count();
        *count -= 1;
        Self::set(*count > 0);
    }
}

/// Runs the command once, to its end. An error where it was interrupted.
pub(super) fn once(command: &mut Command) -> Result<Native, RecordError> {
    let _adopts = Adopts::begin();
    let start = Instant::now();
    let child = command.spawn().map_err(failed("start the program"))?;
    loop {
        let delayed_ns = child::delayed_of_ended(child.id());
        if let Some(done) = reap(&child, false)? {
            let mut native = Native {
                runs: 1,
                user_ns: done.user_ns,
                sys_ns: done.sys_ns,
                wall_ns: u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
                max_rss_bytes: done.max_rss_bytes,
                voluntary_switches: done.voluntary_switches,
                delayed_ns: delayed_ns.unwrap_or(0),
                spread_ns: 0,
            };
            add_orphans(child.id(), &mut native)?;
            return Ok(native);
        }
        if signals::any() {
            end_group(child.id());
            reap(&child, true)?;
            return Err(RecordError::Interrupted);
        }
        // Short programs are timed to a fraction of a millisecond; long ones
        // need no such attention.
        let nap = start.elapsed() / 200;
        std::thread::sleep(nap.clamp(Duration::from_micros(50), Duration::from_millis(20)));
    }
}

/// Waits for what the program has left behind of its group, and adds what that took. Who neither
/// computes nor ends is ended after a while, as where it is recorded.
fn add_orphans(group: u32, native: &mut Native) -> Result<(), RecordError> {
    let (mut heard, mut took) = (Instant::now(), 0);
    loop {
        match reap_of_group(group).map_err(failed("wait for the program's children"))? {
            Group::Gone => return Ok(()),
            Group::Ended(done) => {
                native.user_ns += done.user_ns;
                native.sys_ns += done.sys_ns;
                native.voluntary_switches += done.voluntary_switches;
                native.max_rss_bytes = native.max_rss_bytes.max(done.max_rss_bytes);
                heard = Instant::now();
            }
            Group::Living => {
                let interrupted = signals::any();
                let so_far = ticks_of_group(group);
                if so_far != took {
                    (heard, took) = (Instant::now(), so_far);
                }
                if interrupted || heard.elapsed() > LINGER {
                    end_group(group);
                }
                if interrupted {
                    return Err(RecordError::Interrupted);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Processor time of all processes of a group, in the kernel's ticks.
fn ticks_of_group(group: u32) -> u64 {
    let Ok(all) = fs::read_dir("/proc") else { return 0 };
    let is_process = |name: &str| name.bytes().all(|b| b.is_ascii_digit());
    let of = |entry: fs::DirEntry| -> Option<u64> {
        entry.file_name().to_str().filter(|name| is_process(name))?;
        let text = fs::read_to_string(entry.path().join("stat")).ok()?;
        // Behind the name, which may have blanks: state, parent, group, ..., user, system.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let field = |n: usize| fields.get(n)?.parse::<u64>().ok();
        (field(2)? == u64::from(group)).then_some(field(11)? + field(12)?)
    };
    all.flatten().filter_map(of).sum()
}

/// Half the distance between the quartiles of the runs' CPU time; 0 of a single one.
pub(super) fn spread_ns(runs: &[Native]) -> u64 {
    let times: Vec<f64> = runs.iter().map(|n| (n.user_ns + n.sys_ns) as f64).collect();
    let at = |q| quantile(&times, q).unwrap_or(0.0);
    ((at(0.75) - at(0.25)) / 2.0) as u64
}

/// The run whose CPU time is the median, with the largest resident set of all. On the clock
/// it is the shortest: whatever else this machine does only adds to that.
pub(super) fn median(mut runs: Vec<Native>) -> Option<Native> {
    runs.sort_by_key(|n| n.user_ns + n.sys_ns);
    let rss = runs.iter().map(|n| n.max_rss_bytes).max()?;
    let shortest = runs.iter().min_by_key(|n| n.wall_ns)?;
    let (wall, delayed) = (shortest.wall_ns, shortest.delayed_ns);
    let mut n = runs[runs.len() / 2].clone();
    n.runs = runs.len() as u32;
    n.max_rss_bytes = rss;
    n.spread_ns = spread_ns(&runs);
    (n.wall_ns, n.delayed_ns) = (wall, delayed);
    Some(n)
}
