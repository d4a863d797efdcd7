//! Driving a kernel that does the merging itself: what may be written, what a
//! switch costs, how everything is set back, and whose pages would meet.
//!
//! Terms. A knob is *kept* when its old value is known and some values are
//! *ours*: those that we have written or were about to write. Knobs are numbers
//! here; of `advisor_mode` 0 is none and 1 scan-time.
//!
//! Example: `pages_to_scan` was 100, ours are 526 and 263. If it shows 263 it is
//! set back to 100; if it shows 1000 somebody else has set it, and it stays; if
//! it shows 100 there is nothing to do. Of one who has merging to himself *any*
//! value is ours: 1000 is set back to 100 then, too.
//!
//! Source: specs/merge-drive.md.

use super::advisor::AdvisorMode;
use super::files::{File, Written};
use super::{Ksm, NODES_MAX};
use crate::kernel::KernelVersion;
use crate::knobs::KnobError;
use crate::units::PAGE_SIZE;
use std::collections::{BTreeMap, BTreeSet};

/// A file's text as a number: `advisor_mode` by the word in brackets, counters
/// that are below 0 as 0.
pub fn value_of(file: File, text: &str) -> Option<u64> {
    let text = text.trim();
    if file == File::AdvisorMode {
        let word = text.split_once('[').and_then(|(_, t)| t.split_once(']')).map_or(text, |t| t.0);
        return match word {
            "none" => Some(0),
            "scan-time" => Some(1),
            _ => None,
        };
    }
    text.parse().ok().or_else(|| text.parse::<i64>().ok().map(|v| v.max(0).unsigned_abs()))
}

/// A number as it is written to a file.
pub fn text_of(file: File, value: u64) -> String {
    match (file, value) {
        (File::AdvisorMode, 0) => "none".to_owned(),
        (File::AdvisorMode, _) => "scan-time".to_owned(),
        _ => value.to_string(),
    }
}

/// The values that the kernel's files show now.
pub type Shown = BTreeMap<File, u64>;

/// Whose files these are, by what there is: the newest release that the rules know
/// and that added one of them.
pub fn version_of(shown: &Shown) -> KernelVersion {
    let new =
        |v: KernelVersion, old: KernelVersion| shown.keys().any(|f| f.exists(v) && !f.exists(old));
    if new(KernelVersion::V6_12, KernelVersion::V6_1) {
        KernelVersion::V6_12
    } else if new(KernelVersion::V4_15, KernelVersion::V4_5) {
        KernelVersion::V6_1
    } else {
        KernelVersion::V3_8
    }
}

/// What writing `value` would come to, by the kernel's rules.
///
/// [`Written::Waits`] means that the writer would be blocked, while memory goes
/// offline.
///
/// # Errors
/// [`KnobError`] with what the kernel would answer and what to do.
///
/// Source: specs/merge-drive.md#predict, specs/ksm.md#files.
pub fn predict(shown: &Shown, file: File, value: u64) -> Result<Written, KnobError> {
    let version = version_of(shown);
    let mut ksm = Ksm::new(version, NODES_MAX);
    let get = |f| shown.get(&f).copied();
    if get(file).is_none() {
        return Err(KnobError {
            knob: file.name().to_owned(),
            given: Some(text_of(file, value)),
            errno: crate::knobs::Errno::Enoent,
            allowed: "this kernel does not have it".to_owned(),
        });
    }
    // The state that the rules look at, without any memory behind it.
    ksm.settings.run = get(File::Run).unwrap_or(0) as u8;
    ksm.settings.merge_across_nodes = get(File::MergeAcrossNodes) != Some(0);
    ksm.settings.max_page_sharing = get(File::MaxPageSharing).unwrap_or(256) as u32;
    if get(File::AdvisorMode) == Some(1) {
        ksm.advisor.mode = AdvisorMode::ScanTime;
    }
    ksm.counters.pages_shared = get(File::PagesShared).unwrap_or(0);
    let text = text_of(file, value);
    ksm.store(None, file, &text).map_err(|errno| file.refused(file.name(), &text, errno))
}

/// What unmerging everything takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unmerging {
    /// Bytes that come back: each merged page its own copy.
    pub back_bytes: u64,
    /// MemAvailable.
    pub available_bytes: u64,
    /// What has to be left of it.
    pub reserve_bytes: u64,
}

impl Unmerging {
    /// From the counters and MemTotal.
    ///
    /// Source: specs/merge-drive.md#switch.
    pub fn of(shown: &Shown, available_bytes: u64, total_bytes: u64) -> Self {
        let count = |f| shown.get(&f).copied().unwrap_or(0);
        let pages = count(File::PagesSharing).saturating_add(count(File::KsmZeroPages));
        Self {
            back_bytes: pages.saturating_mul(PAGE_SIZE),
            available_bytes,
            reserve_bytes: (total_bytes / 16).max(64 << 20),
        }
    }
    /// Whether memory covers it. Nothing merged needs nothing.
    pub const fn fits(&self) -> bool {
        self.back_bytes == 0
            || self.available_bytes >= self.back_bytes.saturating_add(self.reserve_bytes)
    }
}

/// Which values of a knob are ours.
///
/// Source: specs/merge-drive.md#alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ours {
    /// These.
    These(BTreeSet<u64>),
    /// Whatever it shows: nobody else was to write it.
    Any,
}

impl Ours {
    /// Whether this value is.
    pub fn contains(&self, value: u64) -> bool {
        match self {
            Self::These(values) => values.contains(&value),
            Self::Any => true,
        }
    }
    /// These are, too.
    pub fn add(&mut self, values: &[u64]) {
        match self {
            Self::These(ours) => ours.extend(values),
            Self::Any => {}
        }
    }
    /// From now on only this one is, unless any is.
    pub fn only(&mut self, value: u64) {
        if let Self::These(ours) = self {
            *ours = [value].into();
        }
    }
}

impl FromIterator<u64> for Ours {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Self {
        Self::These(values.into_iter().collect())
    }
}

/// A knob that is to be set back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Which.
    pub file: File,
    /// What it was.
    pub old: u64,
    /// What it is if nobody else wrote it.
    pub ours: Ours,
}

/// Why a knob is not set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It shows a value that is not ours.
    Theirs {
        /// The value.
        now: u64,
    },
    /// An advisor that is not ours chooses it.
    TheirAdvisor,
    /// Everything would have to be unmerged, for which memory does not suffice.
    NoRoom,
    /// The file is gone.
    Gone,
}

impl Left {
    /// Whether it is to be tried again.
    pub const fn again(self) -> bool {
        matches!(self, Self::NoRoom)
    }
}

/// How everything is set back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undo {
    /// What to write, in this order. A `run` of 2 unmerges everything.
    pub writes: Vec<(File, u64)>,
    /// What stays.
    pub left: Vec<(File, Left)>,
}

/// How kept knobs are set back, by what the files show now.
///
/// * `room` – whether memory covers unmerging everything.
///
/// Source: specs/merge-drive.md#undo.
pub fn undo(kept: &[Kept], shown: &Shown, room: bool) -> Undo {
    let mut plan = Undo::default();
    let find = |file| kept.iter().find(|k| k.file == file);
    let is_ours = |k: &Kept| shown.get(&k.file).is_some_and(|now| k.ours.contains(*now));
    let advisor_now = shown.get(&File::AdvisorMode).copied().unwrap_or(0);
    let advisor = find(File::AdvisorMode);
    // An advisor of ours has moved pages_to_scan, and ends with it at its default.
    let our_advisor = advisor.is_some_and(|k| advisor_now == 1 && k.old == 0 && is_ours(k));
    let advisor_after = match advisor {
        Some(k) if is_ours(k) => k.old,
        _ => advisor_now,
    };
    let mut wanted: BTreeMap<File, u64> = BTreeMap::new();
    for k in kept {
        let now = shown.get(&k.file).copied();
        let scan = k.file == File::PagesToScan;
        match now {
            None => plan.left.push((k.file, Left::Gone)),
            Some(_) if scan && advisor_after == 1 => {
                // Under the old advisor there is no old value to return to.
                if advisor.is_none_or(|a| a.old != 1) {
                    plan.left.push((k.file, Left::TheirAdvisor));
                }
            }
            Some(_) if scan && our_advisor => {
                wanted.insert(k.file, k.old);
            }
            Some(now) if now == k.old => {}
            Some(now) if !k.ours.contains(now) => plan.left.push((k.file, Left::Theirs { now })),
            Some(_) => {
                wanted.insert(k.file, k.old);
            }
        }
    }

    let mut run = wanted.remove(&File::Run);
    let run_now = shown.get(&File::Run).copied().unwrap_or(0);
    if run == Some(2) && !room {
        plan.left.push((File::Run, Left::NoRoom));
        run = Some(0);
    }
    let limits = [File::MergeAcrossNodes, File::MaxPageSharing];
    let mut unmerged = false;
    let sharing = shown.get(&File::PagesShared).copied().unwrap_or(0) > 0;
    if sharing && limits.iter().any(|f| wanted.contains_key(f)) {
        if room {
            if run_now == 2 {
                // Writing the value that is there does nothing.
                plan.writes.push((File::Run, 0));
            }
            plan.writes.push((File::Run, 2));
            unmerged = true;
        } else {
            for file in limits {
                if wanted.remove(&file).is_some() {
                    plan.left.push((file, Left::NoRoom));
                }
            }
        }
    }
    if !unmerged && run == Some(0) {
        // Stopped before anything else, so that no failure leaves it running.
        plan.writes.push((File::Run, 0));
        run = None;
    }
    for file in limits {
        plan.writes.extend(wanted.remove_entry(&file));
    }
    let mode = wanted.remove(&File::AdvisorMode);
    if mode == Some(0) {
        plan.writes.push((File::AdvisorMode, 0));
    }
    plan.writes.extend(wanted);
    if mode == Some(1) {
        plan.writes.push((File::AdvisorMode, 1));
    }
    let after = match (run, unmerged) {
        (Some(value), _) => Some(value),
        (None, true) => Some(run_now),
        (None, false) => None,
    };
    if let Some(value) = after.filter(|v| !(unmerged && *v == 2)) {
        plan.writes.push((File::Run, value));
    }
    plan
}

/// A user, and processes of theirs that are registered.
pub type Users = BTreeMap<u32, Vec<u32>>;

/// The users whose pages would meet: all if there is more than one, else none.
///
/// * `registered` – users of registered processes.
/// * `launched` – the user of what is to be launched.
///
/// Source: specs/merge-drive.md#users.
pub fn crossing(registered: &Users, launched: Option<u32>) -> BTreeSet<u32> {
    let mut users: BTreeSet<u32> = registered.keys().copied().collect();
    users.extend(launched);
    if users.len() > 1 { users } else { BTreeSet::new() }
}

#[cfg(test)]
mod tests;
