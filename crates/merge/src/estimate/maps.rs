//! Mappings of a process: which of them can hold pages that KSM would merge.
//!
//! KSM takes anonymous pages of private mappings: memory that nobody shares by
//! agreement. `maps` is read, not `smaps`, which looks at every page and takes a
//! tenth of the time that reading all of them does. A private mapping without a
//! file can be marked neither io nor pf: those are made by drivers, which have a
//! file, or by the kernel itself, which names them (`[vvar]`). Private mappings
//! of files are looked at page by page: see [`super::pages`].
//!
//! Source: specs/ksm.md#registration.

use homenode_live::text::addresses;
use std::io;

/// A private mapping, in page numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// First page.
    pub(super) first: u64,
    /// One beyond its last page.
    pub(super) end: u64,
    /// No file and no driver is behind it: what is in memory and no file's is
    /// anonymous.
    pub(super) plain: bool,
}

/// Private mappings of a process that can hold anonymous pages, by rising
/// address. `Ok(vec![])` for kernel threads.
///
/// `careful` reads the flags of mappings with a file from `smaps`: needed where
/// the kernel does not show what a frame is.
///
/// # Errors
/// As reading the file; a process that is gone gives `NotFound` or `ESRCH`.
pub(super) fn mappings(pid: u32, careful: bool) -> io::Result<Vec<Mapping>> {
    let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}"));
    let text = read("maps")?;
    let mut found = parse_maps(&String::from_utf8_lossy(&text));
    if careful && found.iter().any(|m| !m.plain) {
        let text = read("smaps")?;
        let unfit = unfit(&String::from_utf8_lossy(&text));
        found.retain(|m| {
            m.plain || !unfit.iter().any(|&(first, end)| first < m.end && m.first < end)
        });
    }
    Ok(found)
}

/// Those of a process that are registered for merging, by rising address.
///
/// # Errors
/// As [`mappings`].
pub(super) fn registered(pid: u32) -> io::Result<Vec<Mapping>> {
    let text = std::fs::read(format!("/proc/{pid}/smaps"))?;
    let text = String::from_utf8_lossy(&text);
    let registered = flagged(&text, |flags| flags.contains(&"mg"));
    let mut found = parse_maps(&text);
    found.retain(|m| registered.contains(&(m.first, m.end)));
    Ok(found)
}

/// `LO-HI rw-p OFFSET DEVICE INODE   NAME` of a line; its pages, modes, inode and name.
fn line(text: &str) -> Option<(u64, u64, &str, &str, &str)> {
    let mut rest = text;
    let mut word = || {
        let trimmed = rest.trim_start();
        let end = trimmed.find(' ').unwrap_or(trimmed.len());
        let (w, r) = trimmed.split_at(end);
        rest = r;
        w
    };
    let (range, modes, _, _, inode) = (word(), word(), word(), word(), word());
    let (lo, hi) = addresses(range)?;
    (lo < hi && modes.len() == 4).then_some((lo >> 12, hi >> 12, modes, inode, rest.trim()))
}

/// Private mappings of a text as `/proc/PID/maps` has it.
fn parse_maps(text: &str) -> Vec<Mapping> {
    text.lines()
        .filter_map(|l| {
            let (first, end, modes, inode, name) = line(l)?;
            // The half of the address space that is the kernel's has no pages of theirs.
            if !modes.ends_with('p') || end > 1 << 51 {
                return None;
            }
            let anonymous = ["[heap]", "[stack]"].contains(&name) || name.starts_with("[anon:");
            if name.starts_with('[') && !anonymous {
                return None;
            }
            Some(Mapping { first, end, plain: inode == "0" && (name.is_empty() || anonymous) })
        })
        .collect()
}

/// Page ranges of mappings that KSM ignores, by their flags in a text as
/// `/proc/PID/smaps` has it: io, pf, mixed, no-expand, hugetlb, droppable, shared.
fn unfit(text: &str) -> Vec<(u64, u64)> {
    const IGNORED: [&str; 8] = ["io", "pf", "mm", "de", "ht", "dp", "sh", "ms"];
    flagged(text, |flags| flags.iter().any(|f| IGNORED.contains(f)))
}

/// Page ranges of the mappings of such a text whose flags are fit.
fn flagged(text: &str, fit: impl Fn(&[&str]) -> bool) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut now = None;
    for l in text.lines() {
        if let Some(flags) = l.strip_prefix("VmFlags:") {
            let flags: Vec<&str> = flags.split_ascii_whitespace().collect();
            found.extend(now.filter(|_| fit(&flags)));
        } else if let Some((first, end, ..)) = line(l) {
            now = Some((first, end));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
5593c4a00000-5593c4a02000 r--p 00000000 fe:00 131 /usr/bin/cat
5593c4b00000-5593c4b21000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
7f0000100000-7f0000200000 rw-s 00000000 00:01 77 /dev/zero (deleted)
7f0000200000-7f0000300000 rw-p 00000000 00:05 9  /dev/some driver
7f0000300000-7f0000301000 rw-p 00000000 00:00 0  [anon:a b]
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0  [stack]
7ffd00100000-7ffd00104000 r--p 00000000 00:00 0  [vvar]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
";

    #[test]
    fn private_mappings_without_a_file_are_plain() {
        let found: Vec<(u64, u64, bool)> =
            parse_maps(MAPS).iter().map(|m| (m.first, m.end - m.first, m.plain)).collect();
        let expected = [
            (0x5593c4a00, 2, false),
            (0x5593c4b00, 0x21, true),
            (0x7f0000000, 0x100, true),
            (0x7f0000200, 0x100, false),
            (0x7f0000300, 1, true),
            (0x7ffd00000, 0x21, true),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn flags_of_drivers_mappings_are_seen() {
        let text = "1000-3000 rw-p 0 00:05 9 /dev/x\nRss: 4 kB\nVmFlags: rd wr pf io de\n\
                    5000-6000 rw-p 0 fe:00 9 /lib/x\nVmFlags: rd wr mr mw me ac\n";
        assert_eq!(unfit(text), [(1, 3)]);
    }

    #[test]
    fn what_is_no_line_is_passed_over() {
        assert!(parse_maps("\nnonsense\n3000-1000 rw-p 0 0 0\nxx-yy rw-p 0 0 0 0\n").is_empty());
    }

    #[test]
    fn our_own_stack_is_there_and_nobody_has_pid_zero() {
        assert!(!mappings(std::process::id(), true).unwrap().is_empty());
        let local = 1u8;
        let page = &raw const local as u64 >> 12;
        let all = mappings(std::process::id(), false).unwrap();
        assert!(all.iter().any(|m| (m.first..m.end).contains(&page)), "{page:x}");
        assert!(mappings(0, false).is_err());
    }
}
