//! The program by itself, for its times.

use super::RecordError;
use super::child::{self, end_group, reap};
use super::error::failed;
use homenode_live::signals;
use homenode_trace::Native;
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs the command once, to its end. An error where it was interrupted.
pub(super) fn once(command: &mut Command) -> Result<Native, RecordError> {
    let start = Instant::now();
    let child = command.spawn().map_err(failed("start the program"))?;
    loop {
        let delayed_ns = child::delayed_of_ended(child.id());
        if let Some(done) = reap(&child, false)? {
            return Ok(Native {
                runs: 1,
                user_ns: done.user_ns,
                sys_ns: done.sys_ns,
                wall_ns: u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
                max_rss_bytes: done.max_rss_bytes,
                voluntary_switches: done.voluntary_switches,
                delayed_ns: delayed_ns.unwrap_or(0),
            });
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
    (n.wall_ns, n.delayed_ns) = (wall, delayed);
    Some(n)
}
