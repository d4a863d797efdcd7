//! What of BPF a process holds, for tests that look whether it is there and gone.

use std::fs;

/// The kernel's numbers of the programs that a process holds a link of.
pub(crate) fn programs_of(pid: u32) -> Vec<u32> {
    let folder = format!("/proc/{pid}/fdinfo");
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let texts = files.filter_map(|f| fs::read_to_string(f.path()).ok());
    let links = texts.filter(|t| t.lines().any(|l| l.starts_with("link_type:")));
    links
        .filter_map(|t| {
            let id = t.lines().find_map(|l| l.strip_prefix("prog_id:"))?;
            id.trim().parse().ok()
        })
        .collect()
}

/// Whether BPF programs may be loaded here; says why not.
pub(crate) fn may_look() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let held = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let held = held.and_then(|h| u64::from_str_radix(h.trim(), 16).ok()).unwrap_or(0);
    let able = held >> 21 & 1 == 1 && fs::metadata("/sys/kernel/btf/vmlinux").is_ok();
    if !able {
        eprintln!("skipped: looking at the scheduler needs root and a kernel with BTF");
    }
    able
}
