//! What can go wrong while the kernel's merging is driven.

use homenode_core::knobs::KnobError;
use homenode_core::ksm::plan::Unmerging;
use homenode_core::units;
use homenode_live::journal::JournalError;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

/// Why merging is not driven, or could not be restored.
#[derive(Debug, thiserror::Error)]
pub enum KsmError {
    /// No files.
    #[error(
        "this kernel has no same-page merging: {} is not there (it needs CONFIG_KSM)",
        folder.display()
    )]
    NoKsm {
        /// Where they would be.
        folder: PathBuf,
    },
    /// The knobs may not be written.
    #[error(
        "the knobs in {} can't be written, nothing was changed: it needs root, and /sys not \
         mounted read-only (as in most containers)",
        folder.display()
    )]
    Denied {
        /// Where they are.
        folder: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The kernel can't merge a process as a whole.
    #[error(
        "this kernel ({release}) can't merge a program as a whole: prctl(PR_SET_MEMORY_MERGE) came \
         with Linux 6.4; nothing was changed. Programs that ask for themselves by \
         madvise(MADV_MERGEABLE), as QEMU does, are driven by --act --registered"
    )]
    NoPrctl {
        /// The kernel's release.
        release: String,
    },
    /// ksmd can't be seen.
    #[error(
        "ksmd is not among the processes in {}: its CPU time can't be seen (another PID \
         namespace?), so no budget could be kept; nothing was changed",
        proc.display()
    )]
    NoKsmd {
        /// Where it was looked for.
        proc: PathBuf,
    },
    /// The advisor is not there.
    #[error("this kernel has no advisor (Linux 6.8 has it); leave --advisor out")]
    NoAdvisor,
    /// The advisor can't keep so small a budget.
    #[error(
        "the kernel's advisor lets ksmd use {least} % of a CPU at least, whatever its limit says: \
         --cpu-budget {asked} can't be kept with --advisor; nothing was changed"
    )]
    SmallBudget {
        /// Asked for, in percent.
        asked: u32,
        /// The advisor's least.
        least: u32,
    },
    /// The program is not there.
    #[error("there is no program `{program}`{}; nothing was changed", if *.searched { " in PATH" } else { "" })]
    NoProgram {
        /// As it was given.
        program: String,
        /// Whether `PATH` was searched.
        searched: bool,
    },
    /// The program could not be started.
    #[error("`{program}` could not be started; the knobs are as they were")]
    Launch {
        /// As it was given.
        program: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Nobody is registered.
    #[error(
        "no process is registered for merging, so there is nothing to drive; nothing was changed. \
         Launch one: homenode merge drive --act -- CMD"
    )]
    Nobody,
    /// Several users' pages would meet.
    #[error("{}", users_sentence(users, *launched))]
    Users {
        /// The users.
        users: BTreeSet<u32>,
        /// The user of what was to be launched.
        launched: Option<u32>,
    },
    /// Who is registered can't be seen.
    #[error(
        "{} can't be asked about being registered for merging (it needs CAP_SYS_PTRACE): whose \
         pages would meet is not known; nothing was changed. --across-users takes the risk",
        units::count(*count as u64, "process", "processes")
    )]
    Unseen {
        /// How many.
        count: usize,
    },
    /// It works for others.
    #[error(
        "KSM is at work for others (run {run}, pages_shared {pages_shared}), whose pages would \
         count among ours; nothing was changed"
    )]
    Busy {
        /// The knob.
        run: u64,
        /// The counter.
        pages_shared: u64,
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
    /// The journal; among others, that another driver is at work, or has ended without
    /// restoring.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The kernel would refuse.
    #[error("{0}; nothing was changed")]
    Refused(KnobError),
    /// The kernel would block.
    #[error(
        "memory is going offline (run has bit 2): a write to {name} would block until that is over; \
         nothing was changed, try again later"
    )]
    Offline {
        /// The knob.
        name: &'static str,
    },
    /// A knob could not be written.
    #[error("can't write {value} to {name}")]
    Write {
        /// The knob.
        name: &'static str,
        /// The value.
        value: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Not enough memory to unmerge.
    #[error(
        "switching merge_across_nodes unmerges everything: {} come back, and {} are to stay in \
         reserve, but only {} are available; nothing was changed",
        mib(.0.back_bytes), mib(.0.reserve_bytes), mib(.0.available_bytes)
    )]
    NoRoom(Unmerging),
    /// Unmerging failed.
    #[error(
        "unmerging everything (run = 2) failed after {} of {} were back; the kernel has stopped \
         ksmd, and what is still merged stays so",
        mib(.needed.back_bytes.saturating_sub(*.still)), mib(.needed.back_bytes)
    )]
    Unmerge {
        /// What was expected.
        needed: Unmerging,
        /// Bytes that are still saved.
        still: u64,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file of /proc or of merging can't be read.
    #[error("can't read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A named process is not there.
    #[error("there is no process {pid}")]
    NoProcess {
        /// Its number.
        pid: u32,
    },
    /// A named process can't be asked.
    #[error(
        "what merging does to process {pid} ({name}) can't be seen, nothing was read: it needs \
         root (CAP_SYS_PTRACE) or the same user"
    )]
    Unreadable {
        /// Its number.
        pid: u32,
        /// Its name.
        name: String,
    },
}

/// Bytes for sentences.
fn mib(bytes: u64) -> String {
    format!("{}.{} MiB", bytes >> 20, ((bytes % (1 << 20)) * 10) >> 20)
}

fn users_sentence(users: &BTreeSet<u32>, launched: Option<u32>) -> String {
    let mark = |user| if launched == Some(user) { " is to launch" } else { "" };
    let all: Vec<String> = users.iter().map(|&user| format!("{user}{}", mark(user))).collect();
    format!(
        "ksmd merges all registered processes with each other, and they belong to different users \
         ({}): each could find out by timing which pages the others have. Nothing was changed. \
         --across-users takes that risk (homenode-merge(1), WHAT MERGING LEAKS)",
        all.join(", ")
    )
}

impl KsmError {
    /// Whether the system lacks something, rather than the request being wrong.
    pub fn is_lack(&self) -> bool {
        !matches!(
            self,
            Self::NoProgram { .. }
                | Self::Launch { .. }
                | Self::SmallBudget { .. }
                | Self::Users { .. }
                | Self::Nobody
                | Self::NoProcess { .. }
        )
    }
}
