//! Who is registered for same-page merging, and what it does to them: /proc/PID/ksm_stat.

use crate::people::find::all;
use crate::people::name::printable;
use crate::people::stat::start_of;
use crate::place::Place;
use crate::text::{field, number};
use homenode_core::ksm::plan::Users;
use std::fs;
use std::io;

/// What the kernel says about a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KsmStat {
    /// `ksm_rmap_items`: pages that ksmd knows.
    pub rmap_items: u64,
    /// `ksm_zero_pages`, where the kernel has it.
    pub zero_pages: Option<u64>,
    /// `ksm_merging_pages`: its mappings of merged pages.
    pub merging_pages: u64,
    /// `ksm_process_profit` in bytes, where the kernel has it.
    pub profit: Option<i64>,
    /// Whether it is registered as a whole, where the kernel says so.
    pub merge_any: Option<bool>,
    /// Whether it has registered memory, where the kernel says so.
    pub mergeable: Option<bool>,
}

impl KsmStat {
    fn parse(text: &str) -> Self {
        let mut stat = Self::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(' ') else { continue };
            let (key, value) = (key.trim_end_matches(':'), value.trim());
            match key {
                "ksm_rmap_items" => stat.rmap_items = value.parse().unwrap_or(0),
                "ksm_zero_pages" => {
                    stat.zero_pages = value.parse::<i64>().ok().map(|v| v.max(0).unsigned_abs());
                }
                "ksm_merging_pages" => stat.merging_pages = value.parse().unwrap_or(0),
                "ksm_process_profit" => stat.profit = value.parse().ok(),
                "ksm_merge_any" => stat.merge_any = Some(value == "yes"),
                "ksm_mergeable" => stat.mergeable = Some(value == "yes"),
                _ => {}
            }
        }
        stat
    }
    /// Whether pages of it can meet those of others.
    pub fn is_registered(&self) -> bool {
        self.merge_any == Some(true)
            || self.mergeable == Some(true)
            || self.rmap_items > 0
            || self.merging_pages > 0
    }
}

/// A process, and what merging does to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its number.
    pub pid: u32,
    /// When it was started, in clock ticks since boot.
    pub start: u64,
    /// Its effective user.
    pub uid: u32,
    /// The command's name.
    pub name: String,
    /// Anonymous pages in memory.
    pub anon_pages: u64,
    /// What the kernel says.
    pub stat: KsmStat,
}

/// Registered processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// By rising number.
    pub processes: Vec<Registered>,
    /// How many processes could not be asked.
    pub unseen: usize,
}

impl Scan {
    /// Their users.
    pub fn users(&self) -> Users {
        let mut users = Users::new();
        for p in &self.processes {
            users.entry(p.uid).or_default().push(p.pid);
        }
        users
    }
    /// Anonymous pages of all of them.
    pub fn anon_pages(&self) -> u64 {
        self.processes.iter().map(|p| p.anon_pages).sum()
    }
}

/// What of a process is told beside it; `None` if it is gone.
pub fn describe(place: &Place, pid: u32, stat: KsmStat) -> Option<Registered> {
    let text = |name: &str| {
        let bytes = fs::read(place.path(&format!("/proc/{pid}/{name}"))).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let status = text("status")?;
    let comm = text("comm").unwrap_or_default();
    Some(Registered {
        pid,
        start: start_of(place, pid)?,
        uid: field(&status, "Uid:")?.split_ascii_whitespace().nth(1)?.parse().ok()?,
        name: printable(comm.trim_end()),
        anon_pages: number(&status, "RssAnon:").unwrap_or(0) / 4,
        stat,
    })
}

/// What is known of one process.
///
/// Kernels before 6.10 or so don't say that memory is registered which ksmd has not
/// met yet. `deep` then looks for the flag `mg` in smaps, which takes long where a
/// process has much memory.
///
/// # Errors
/// What the system says of a process that may not be asked, or is gone.
pub fn ask(place: &Place, pid: u32, deep: bool) -> io::Result<(KsmStat, bool)> {
    let read = |name: &str| fs::read_to_string(place.path(&format!("/proc/{pid}/{name}")));
    let mut stat = match read("ksm_stat") {
        Ok(text) => KsmStat::parse(&text),
        // Older kernels have less.
        Err(e) if e.kind() == io::ErrorKind::NotFound => KsmStat::default(),
        Err(e) => return Err(e),
    };
    if stat.zero_pages.is_none() {
        // ksm_stat of 6.1 has items only.
        if let Ok(text) = read("ksm_merging_pages") {
            stat.merging_pages = text.trim().parse().unwrap_or(0);
        }
    }
    let mut registered = stat.is_registered();
    if !registered && deep && stat.merge_any.is_none() {
        registered = read("smaps").is_ok_and(|text| {
            text.lines()
                .filter_map(|l| l.strip_prefix("VmFlags:"))
                .any(|flags| flags.split_ascii_whitespace().any(|f| f == "mg"))
        });
    }
    Ok((stat, registered))
}

/// All registered processes. One that ends meanwhile is no error.
///
/// * `deep` – also asks smaps where ksm_stat does not tell: for a first look.
///
/// # Errors
/// What the system says if /proc can't be listed.
pub fn scan(place: &Place, deep: bool) -> io::Result<Scan> {
    let mut found = Scan::default();
    for (pid, _) in all(&place.path("/proc"))? {
        match ask(place, pid, deep) {
            Ok((stat, true)) => found.processes.extend(describe(place, pid, stat)),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => found.unseen += 1,
            Err(_) => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_of_each_kernel_is_read() {
        let old = KsmStat::parse("ksm_rmap_items 7\n");
        assert_eq!((old.rmap_items, old.zero_pages, old.merge_any), (7, None, None));
        assert!(old.is_registered());
        let new = KsmStat::parse(
            "ksm_rmap_items 0\nksm_zero_pages -1\nksm_merging_pages 0\nksm_process_profit -64\n\
             ksm_merge_any: yes\nksm_mergeable: no\n",
        );
        assert_eq!((new.zero_pages, new.profit), (Some(0), Some(-64)));
        assert_eq!((new.merge_any, new.mergeable), (Some(true), Some(false)));
        assert!(new.is_registered());
        assert!(!KsmStat::parse("ksm_merge_any: no\nksm_mergeable: no\nrubbish\n").is_registered());
    }
}
