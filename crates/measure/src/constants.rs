//! Measuring this machine: its constants, each with method and spread.
//!
//! Every quantity is taken once in each of several rounds, so that a noisy
//! neighbour disturbs all of them alike; a round's figure is the median over
//! short batches, and the constant is the median over rounds. Its spread is
//! half the distance between the rounds' quartiles.
//!
//! | constant | how |
//! |---|---|
//! | latency of a link | a walk along a random cycle of lines in huge pages, far larger than the caches |
//! | `tlb_miss` | the same walk in 4 KiB pages, less the walk in huge pages |
//! | `tlb_entries` | one line a page over more and more pages: where the walk becomes slower |
//! | caches | walks over growing sizes |
//! | `memory_parallelism` | up to 48 walks interleaved, against one |
//! | `update_parallelism` | independent updates of random words, against an owning walk |
//! | `told_store_parallelism` | the same, each stored to where the loaded word says |
//! | `stream_parallelism`, `stream_store_parallelism` | one core in order, against the latency |
//! | curves | walks, streams and updates over some twenty footprints, each round at another place |
//! | `update_l2`, `update_llc` | the curve of updates, well inside of each cache |
//! | `stream_l2`, `stream_llc` | the curve of streams, likewise |
//! | `llc_reach` | walks over sizes about the last level |
//! | `reorder_window` | two walks with more and more instructions between their steps |
//! | bandwidth | all CPUs of the initiator's node, each on its part of a buffer |
//! | `minor_fault` | first touches after MADV_DONTNEED |
//! | `hint_fault` | write faults after a fork whose child is gone: they only set bits |
//! | `page_copy` | random pages to random pages |
//! | `pte_scan`, `pte_mark` | PAGEMAP_SCAN; mprotect of many pages |
//! | `reclaim_page` | MADV_COLD |
//! | `migrate_page` | move_pages between nodes; on one node compaction |
//! | `wake_idle`, `wake_deep`, `deep_after`, `wake_charged`, `wake_call` | futex wake-ups of a thread on another CPU, after longer and longer rests |
//! | `syscall`, `pipe_*`, `socket_*`, `futex_call` | calls for which nobody waits |
//! | `wake_up` | a futex call that wakes a task of its CPU, less one that wakes nobody |
//! | `context_switch` | two processes of one CPU wake each other by turns, less the calls |
//! | `socket_*_far` | the same calls, sender and receiver on two CPUs by turns |
//! | `tlb_remote_flush`, `tlb_remote_flush_received` | mprotect of a page while a thread on another CPU reads, less the same while it doesn't; what that thread's pace lacks |
//! | `fork`, `exec` | a copy of this process before its buffers are there; a program of two instructions |
//! | `exit`, `exit_map` | fork and the child's end; the same with many mappings more |
//! | `tick` | what is missing of a busy loop's time |
//! | `page_query`, `proc_read`, `zoneinfo_read` | homenode's own looks: move_pages without targets, files below /proc |
//! | `ksm_checksum` | XXH64 of pages that the cache holds |
//! | `stats_count`, `stats_line` | the update code of scheduler statistics on a block of the same layout; on two CPUs by turns |
//!
//! Worked example: on a machine where 256 MiB in huge pages answer in 105 ns and
//! in 4 KiB pages in 125 ns, the link's read latency is 105 ns and `tlb_miss`
//! 20 ns. What this machine cannot measure is *assumed*, and `method` says why.
//! Nothing is left behind: memory is unmapped, the affinity restored, no file
//! and no setting is written but the switch that starts compaction.

mod calls;
pub(crate) mod chase;
pub(crate) mod cpus;
mod curves;
mod flush;
mod kernel;
mod lines;
mod looks;
mod overlap;
pub(crate) mod region;
mod result;
mod rounds;
pub mod short;
mod stats;
mod stream;
mod wake;

use homenode_core::topology::Hardware;
use homenode_core::units::Bytes;
pub(crate) use kernel::available_bytes;
pub use rounds::sizes_used;
pub use stats::quantile;

use homenode_live::sysfs::{self, TopologyError};
use std::io;
use std::path::Path;
use std::time::Duration;

/// How long and how large to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time for the whole run, roughly; beyond one and a half times this no new
    /// round begins.
    pub budget: Duration,
    /// How often each quantity is taken, at least 1. Fewer than 5 make poor
    /// spreads.
    pub rounds: u32,
    /// Largest buffer. By default four times the last-level cache is wanted,
    /// 256 MiB at least; a smaller buffer measures caches instead of memory.
    pub buffer_max: Bytes,
}

impl Default for Options {
    /// Nine rounds in about 32 seconds, and what filling buffers takes. The largest buffer stays below the 1 GiB that the
    /// truth check registers.
    fn default() -> Self {
        Self { budget: Duration::from_secs(32), rounds: 9, buffer_max: Bytes(960 << 20) }
    }
}

impl Options {
    /// Two rounds in about two seconds on buffers that fit into caches: for
    /// tests of the machinery, not for figures.
    pub fn tiny() -> Self {
        Self { budget: Duration::from_secs(2), rounds: 2, buffer_max: Bytes(16 << 20) }
    }
}

/// How far the run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Share of the work that is done, 0 to 1000; never falls.
    pub done_permille: u16,
    /// What is being measured now.
    pub what: &'static str,
}

/// Why nothing could be measured. The command answers with exit code 3: the
/// system lacks something.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The topology could not be read.
    #[error("cannot learn this machine's topology")]
    Topology(#[source] TopologyError),
    /// Not even the smallest buffer could be had.
    #[error(
        "cannot get {bytes} bytes of memory to measure on; free some, or raise the limit (ulimit -v, memory.max)"
    )]
    Memory {
        /// Smallest size tried.
        bytes: usize,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The affinity mask holds no CPU that sysfs knows.
    #[error(
        "this process may run on none of the CPUs that sysfs shows; change its affinity (taskset)"
    )]
    NoCpu,
}

/// Measures this machine: every [`homenode_core::costs::Cost`], every link's
/// and every cache's constants. Takes about [`Options::budget`].
///
/// `progress` is called before each step. Must not run beside other
/// measurements of the same machine; needs no privilege, but only root gets
/// compaction's time per page.
///
/// # Errors
///
/// [`MeasureError`] where nothing can be measured. What single measurements
/// lack gives assumed constants instead.
pub fn measure(
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Hardware, MeasureError> {
    let topology = sysfs::read_topology(Path::new("/")).map_err(MeasureError::Topology)?;
    let _affinity = cpus::KeepAffinity::new();
    let samples = rounds::run(options, &topology, progress)?;
    let machine = result::machine(&topology, &samples);
    progress(Progress { done_permille: 1000, what: "done" });
    Ok(machine)
}
