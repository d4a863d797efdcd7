//! Whether a hint fault moves the page: the filter, step by step.
//!
//! The first faults of a task move their pages at once; later a page moves only
//! if the same node touched it twice in a row (the *second stage*), and pages
//! that a group shares go where the group's faults are.
//!
//! Each verdict names the step that decided ([`Why`]). Where a live source can't
//! show what a step needs, the verdict is [`Verdict::Unknown`], never a guess.

use super::faults::{CpuPid, GroupFaults};
use crate::kernel::KernelVersion;
use crate::tiering::mode::Mode;
use crate::units::NodeId;

/// A decision about a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To that node.
    Move {
        /// Target.
        to: NodeId,
        /// Which step said so.
        why: Why,
    },
    /// It stays.
    Stay {
        /// Which step said so.
        why: Why,
    },
    /// The rule needs what was not observed.
    Unknown {
        /// What is missing.
        lacks: Evidence,
    },
}

/// Something a rule needs and a source may not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// The last accessor of the page.
    LastAccess,
    /// The task's scan sequence.
    ScanSeq,
    /// The node of the recorded CPU.
    NodeOfLastCpu,
    /// When the page was scanned.
    ScanTime,
}

crate::named! {
    /// The step of a rule that decided.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Why {
        /// Step 0: the page is on the faulting CPU's node.
        AlreadyLocal => "already_local",
        /// Step 0: the policy does not allow the CPU's node.
        OutsidePolicy => "outside_policy",
        /// Step 1: the destination has no memory.
        NoMemory => "no_memory",
        /// Step 2: the fast node has plenty of free memory.
        FastNodeHasRoom => "fast_node_has_room",
        /// Step 2: accessed soon enough after the scan, within the rate.
        Hot => "hot",
        /// Step 2: accessed too late after the scan.
        Cold => "cold",
        /// Step 2: hot, but the node's promotion rate is used up.
        RateLimited => "rate_limited",
        /// Step 4: a slow page whose field holds a time left from tiering.
        StaleTime => "stale_time",
        /// Step 5: early in the task's life.
        FirstStage => "first_stage",
        /// Step 6: the last access came from another node.
        SecondStage => "second_stage",
        /// Step 7: only this task uses it.
        Private => "private",
        /// Step 8: the task has no group.
        NoGroup => "no_group",
        /// Step 9: the group runs mostly on the destination.
        GroupRunsThere => "group_runs_there",
        /// Step 10: the group's faults weigh for the destination.
        GroupBalance => "group_balance",
        /// Step 10: they weigh against it.
        GroupAgainst => "group_against",
        /// 3.8: the last hint fault came from the same node.
        SameNodeTwice => "same_node_twice",
        /// The filter agreed, but the page is there already (bind with balancing).
        AlreadyThere => "already_there",
    }
}

impl Why {
    /// Whether step 3 was reached: the page's field now holds the present
    /// accessor ([`HintFault::this`]). In steps 0 to 2 it is left alone.
    #[inline]
    pub const fn recorded_access(self) -> bool {
        !matches!(
            self,
            Self::AlreadyLocal
                | Self::OutsidePolicy
                | Self::NoMemory
                | Self::FastNodeHasRoom
                | Self::Hot
                | Self::Cold
                | Self::RateLimited
        )
    }
}

/// The policy as far as the filter tells policies apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetPolicy {
    /// The default: a local page stops the filter.
    Default,
    /// Bind or preferred-many with the balancing flag.
    Mask {
        /// Whether the faulting CPU's node is in the mask.
        cpu_node_in_mask: bool,
    },
}

/// A hint fault as the filter sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintFault {
    /// Whose rules.
    pub version: KernelVersion,
    /// The bit field.
    pub mode: Mode,
    /// The page's node.
    pub src: NodeId,
    /// The faulting CPU's node: the destination.
    pub dst: NodeId,
    /// Whether the destination has memory.
    pub dst_has_memory: bool,
    /// Whether the page's node is top tier.
    pub src_top_tier: bool,
    /// The policy.
    pub policy: TargetPolicy,
    /// The page's field before this fault; `None`: not observed.
    pub last: Option<CpuPid>,
    /// Node of the CPU in `last`; `None` if that CPU can't exist (or is not known).
    pub last_node: Option<NodeId>,
    /// The present accessor.
    pub this: CpuPid,
}

/// What the filter needs to know about the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskView {
    /// Its PID.
    pub pid: u32,
    /// Its preferred node.
    pub preferred: Option<NodeId>,
    /// Its copy of the scan sequence; `None`: not observed.
    pub seq: Option<i32>,
}

/// Scan sequences in which the first stage holds.
pub const FIRST_STAGE_SEQS: i32 = 4;

/// The page filter.
///
/// * `tier` – step 2: asked for pages of slow nodes under tiering (6.1 and
///   later), see [`crate::tiering::promote::PromoteNode::decide`].
///
/// Source: specs/numa.md#page-filter; 3.8: specs/numa.md#slow-start-seed, g.
#[inline]
pub fn page_filter(
    f: &HintFault,
    t: &TaskView,
    group: Option<&GroupFaults>,
    tier: impl FnOnce() -> Verdict,
) -> Verdict {
    let stay = |why| Verdict::Stay { why };
    // 0
    match f.policy {
        TargetPolicy::Default if f.src == f.dst => return stay(Why::AlreadyLocal),
        TargetPolicy::Mask { cpu_node_in_mask: false } => return stay(Why::OutsidePolicy),
        _ => {}
    }
    // 1
    if f.version >= KernelVersion::V6_12 && !f.dst_has_memory {
        return stay(Why::NoMemory);
    }
    // 2
    if super::window::uses_access_time(f.mode, f.src_top_tier, f.version) {
        return match tier() {
            Verdict::Move { to, .. } if to == f.src => stay(Why::AlreadyLocal),
            v => v,
        };
    }
    match ordinary(f, t, group) {
        Verdict::Move { to, .. } if to == f.src => stay(Why::AlreadyThere),
        v => v,
    }
}

#[inline]
fn ordinary(f: &HintFault, t: &TaskView, group: Option<&GroupFaults>) -> Verdict {
    let go = |why| Verdict::Move { to: f.dst, why };
    let stay = |why| Verdict::Stay { why };
    // 3: the caller stores `f.this` wherever `Why::recorded_access` says so.
    let Some(last) = f.last else { return Verdict::Unknown { lacks: Evidence::LastAccess } };
    if f.version == KernelVersion::V3_8 {
        return if f.last_node == Some(f.dst) && !last.is_unset() {
            go(Why::SameNodeTwice)
        } else {
            stay(Why::SecondStage)
        };
    }
    // 4
    if f.version >= KernelVersion::V6_1
        && !f.mode.tiering()
        && !f.src_top_tier
        && f.last_node.is_none()
    {
        return stay(Why::StaleTime);
    }
    let private = last.matches(t.pid);
    // 5
    let Some(seq) = t.seq else { return Verdict::Unknown { lacks: Evidence::ScanSeq } };
    if (t.preferred.is_none() || seq <= FIRST_STAGE_SEQS) && (last.is_pid_unset() || private) {
        return go(Why::FirstStage);
    }
    // 6
    if !last.is_pid_unset() {
        match f.last_node {
            None => return Verdict::Unknown { lacks: Evidence::NodeOfLastCpu },
            Some(node) if node != f.dst => return stay(Why::SecondStage),
            Some(_) => {}
        }
    }
    // 7
    if private {
        return go(Why::Private);
    }
    // 8
    let Some(g) = group else { return go(Why::NoGroup) };
    // 9
    let (cpu_dst, cpu_src) = (u128::from(g.cpu(f.dst)), u128::from(g.cpu(f.src)));
    if cpu_dst > 3 * cpu_src {
        return go(Why::GroupRunsThere);
    }
    // 10
    if cpu_dst * u128::from(g.mem(f.src)) * 3 > cpu_src * u128::from(g.mem(f.dst)) * 4 {
        go(Why::GroupBalance)
    } else {
        stay(Why::GroupAgainst)
    }
}

/// Whose filter slow pages pass: without hot-page selection 5.18's, which has none.
///
/// Source: specs/tiering.md#bits.
pub fn filter_version(version: KernelVersion, hot_page_selection: bool) -> KernelVersion {
    if hot_page_selection { version } else { version.min(KernelVersion::V5_18) }
}

/// Whether a page that a hint fault moved is mapped read-only, so that its next write is a
/// fault: private pages from 6.12 on, huge ones too.
///
/// Source: specs/numa.md#hint-fault.
pub fn moves_read_only(version: KernelVersion, shared: bool) -> bool {
    version >= KernelVersion::V6_12 && !shared
}

/// Why a page that should move can't be taken off its list, in the order of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IsolateRefusal {
    /// An executable page of a file, mapped by several.
    SharedExecutable,
    /// A dirty page of a file.
    DirtyFile,
    /// No zone of the target has room above its high mark.
    NoRoom,
    /// Not on a list of reclaim.
    NotOnLru,
}

/// Isolation of a page that is to move.
///
/// * `machine` – what the two questions are asked of.
/// * `room` – asked third: whether [`crate::tiering::watermarks::admit_node`] admits.
/// * `on_lru` – asked last: most pages that are refused are refused for want of room, and
///   the lists are a place of memory that nobody has looked at.
///
/// Source: specs/numa.md#isolation.
#[inline]
pub fn isolate<M>(
    machine: &mut M,
    shared_executable_file: bool,
    dirty_file: bool,
    room: impl FnOnce(&mut M) -> bool,
    on_lru: impl FnOnce(&M) -> bool,
) -> Result<(), IsolateRefusal> {
    if shared_executable_file {
        Err(IsolateRefusal::SharedExecutable)
    } else if dirty_file {
        Err(IsolateRefusal::DirtyFile)
    } else if !room(machine) {
        Err(IsolateRefusal::NoRoom)
    } else if !on_lru(machine) {
        Err(IsolateRefusal::NotOnLru)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
