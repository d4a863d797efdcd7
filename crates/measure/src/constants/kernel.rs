//! What the kernel takes for a page: faults, scans, reclaim, migration.
//!
//! Each function does one batch on a region given to it and says how long it
//! took and for how many pages; a reason where the system does not let it.

use super::region::{OURS, Region};
use super::stats::{Series, whole};
use crate::child;
use homenode_core::units::NodeId;
use homenode_live::pagemap::{self, PRESENT, Query};
use homenode_live::places::call;
use homenode_live::text::number;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

/// Pages done and the time they took, or why not.
pub(super) type Batch = Result<(Duration, u64), String>;

pub(super) fn because(what: &'static str) -> impl FnOnce(io::Error) -> String {
    move |e| format!("{what}: {e}")
}

/// Minor faults of this thread so far.
fn minor_faults() -> u64 {
    child::usage(libc::RUSAGE_THREAD).ru_minflt as u64
}

/// Pages between two looks at the clock in a row of faults: few, so that most
/// rows see no other task's time slice.
const ROW: usize = 64;

/// Touches every page and checks that each took its own fault. The time is the
/// median row's, for all rows.
fn touch_with_faults(region: &Region) -> Batch {
    let pages = region.pages() as u64;
    let before = minor_faults();
    let rows: Series = (0..region.pages())
        .step_by(ROW)
        .map(|first| {
            let began = Instant::now();
            region.touch_range(first..(first + ROW).min(region.pages()));
            began.elapsed().as_nanos() as f64
        })
        .collect();
    let row = Duration::from_nanos(whole(rows.median().unwrap_or(0.0)));
    let faults = minor_faults().saturating_sub(before);
    if faults < pages * 9 / 10 {
        return Err(format!("{pages} pages took only {faults} faults"));
    }
    Ok((row, pages.min(ROW as u64)))
}

/// First touches of anonymous pages, which the kernel zeroes.
pub(super) fn first_touch(region: &Region) -> Batch {
    region.advise(libc::MADV_DONTNEED).map_err(because("madvise"))?;
    touch_with_faults(region)
}

/// Write faults that only set bits: a fork write-protected the pages, but the
/// child is gone, so that they are ours alone again.
///
/// The region must be mapped for inheritance.
pub(super) fn write_protect_fault(region: &Region) -> Batch {
    region.touch(region.pages());
    let child = fork_and(|| ()).map_err(because("fork"))?;
    wait_for(child, None).map_err(because("wait4"))?;
    touch_with_faults(region)
}

/// Forks; the child does `work` and exits. `work` may only make system calls:
/// another thread may hold the allocator's lock at the moment of the fork.
pub(super) fn fork_and(work: impl FnOnce()) -> io::Result<libc::pid_t> {
    // SAFETY: the child calls `work`, which its contract restricts to system
    // calls, and `_exit`, which runs no handlers.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            work();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) }
        }
        pid => Ok(pid),
    }
}

/// Waits for a child of ours; with a limit, kills it when that has passed.
/// Returns the CPU time that it took, mostly in the kernel here.
pub(super) fn wait_for(pid: libc::pid_t, limit: Option<Duration>) -> io::Result<Duration> {
    let began = Instant::now();
    let mut killed = false;
    loop {
        let waiting = !killed && limit.is_some();
        if let Some(done) = child::reap(pid, !waiting)? {
            return Ok(Duration::from_nanos(done.user_ns + done.sys_ns));
        }
        if limit.is_some_and(|l| began.elapsed() > l) {
            // SAFETY: the child has not been waited for, so the number is its.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            killed = true;
        } else {
            thread::sleep(Duration::from_micros(300));
        }
    }
}

/// How page-table entries are read.
pub(super) struct Scanner {
    pagemap: File,
    by_ioctl: bool,
}

impl Scanner {
    /// Opens pagemap and tries the scan on `region`.
    pub(super) fn open(region: &Region) -> Result<Self, String> {
        let pagemap = File::open("/proc/self/pagemap").map_err(because("/proc/self/pagemap"))?;
        let by_ioctl = scan_present(pagemap.as_raw_fd(), region).is_ok();
        Ok(Self { pagemap, by_ioctl })
    }

    pub(super) fn method(&self) -> &'static str {
        if self.by_ioctl { "the PAGEMAP_SCAN ioctl" } else { "reading /proc/self/pagemap" }
    }

    /// Looks at every entry of the region, whose pages are all present.
    pub(super) fn scan(&self, region: &Region) -> Batch {
        let pages = region.pages() as u64;
        let began = Instant::now();
        let seen = if self.by_ioctl {
            scan_present(self.pagemap.as_raw_fd(), region).map_err(because("PAGEMAP_SCAN"))?
        } else {
            self.read_present(region).map_err(because("/proc/self/pagemap"))?
        };
        let took = began.elapsed();
        if seen < pages * 9 / 10 {
            return Err(format!("only {seen} of {pages} pages were present"));
        }
        Ok((took, pages))
    }

    fn read_present(&self, region: &Region) -> io::Result<u64> {
        let mut entries = [0u8; 4096];
        let mut at = region.start() as u64 / 4096 * 8;
        let end = at + region.pages() as u64 * 8;
        let mut present = 0;
        while at < end {
            let want = entries.len().min((end - at) as usize);
            self.pagemap.read_exact_at(&mut entries[..want], at)?;
            // The top bit of an entry's last byte: the page is in memory.
            present += entries[..want].chunks_exact(8).filter(|e| e[7] & 0x80 != 0).count() as u64;
            at += want as u64;
        }
        Ok(present)
    }
}

/// Present pages of the region, counted by the kernel.
fn scan_present(pagemap: RawFd, region: &Region) -> io::Result<u64> {
    let start = region.start() as u64;
    let mut present = 0;
    let query = Query { mask: PRESENT, want: PRESENT, ..Query::default() };
    pagemap::scan(pagemap, start..start + region.len() as u64, query, |found| {
        present += (found.end - found.start) / 4096;
    })?;
    Ok(present)
}

/// Marks every entry inaccessible, as a balancing scan does, and undoes it
/// afterwards, outside the time.
pub(super) fn mark(region: &Region) -> Batch {
    region.touch(region.pages());
    let began = Instant::now();
    region.protect(libc::PROT_NONE).map_err(because("mprotect"))?;
    let took = began.elapsed();
    region.protect(libc::PROT_READ | libc::PROT_WRITE).map_err(because("mprotect back"))?;
    Ok((took, region.pages() as u64))
}

/// Ages every page: the walk finds its entry, clears the accessed bit and moves
/// the page to the inactive end.
pub(super) fn age(region: &Region) -> Batch {
    region.touch(region.pages());
    let began = Instant::now();
    region.advise(libc::MADV_COLD).map_err(because("madvise(MADV_COLD)"))?;
    Ok((began.elapsed(), region.pages() as u64))
}

/// Moves the region's pages to `to`, all of which are on another node.
pub(super) fn migrate(region: &Region, pages: usize, to: NodeId) -> Batch {
    let list: Vec<usize> =
        (0..pages.min(region.pages())).map(|i| region.page(i) as usize).collect();
    let mut status = Vec::new();
    let began = Instant::now();
    call::send(OURS, &list, to, &mut status).map_err(because("move_pages"))?;
    let took = began.elapsed();
    let moved = status.iter().filter(|&&s| s == i32::from(to.0)).count();
    if moved * 10 < list.len() * 9 {
        return Err(format!("only {moved} of {} pages moved to node {to}", list.len()));
    }
    Ok((took, moved as u64))
}

/// A switch that makes the kernel compact its memory.
pub(super) struct Compactor {
    switch: File,
    /// Where the switch is.
    pub(super) path: &'static str,
}

/// Fewer pages than this say nothing about the time of one.
const COMPACTED_PAGES_MIN: u64 = 2_000;

impl Compactor {
    /// Opens the switch for writing, which needs root.
    pub(super) fn open() -> Result<Self, String> {
        let mut why = String::new();
        for path in ["/proc/sys/vm/compact_memory", "/sys/devices/system/node/node0/compact"] {
            match OpenOptions::new().write(true).open(path) {
                Ok(switch) => return Ok(Self { switch, path }),
                Err(e) if why.is_empty() => why = format!("{path}: {e}"),
                Err(_) => {}
            }
        }
        Err(why)
    }

    /// Fragments memory, lets the kernel compact it, and takes the time by the
    /// pages that it moved. All the compaction's work is in the figure, also
    /// its look at pages that did not move: an upper bound.
    ///
    /// Compaction carries pages from low addresses to free ones in partly used
    /// blocks at high addresses:
    ///
    /// ```text
    /// before   low [A A A A A A A A]   high [A . . . A . . .]
    /// after        [. . . . . . . .]        [A A A A A A A A]
    /// ```
    ///
    /// So of the region's pages the lower half by physical address stays, and
    /// of the upper half every fourth. `filler` is freed after those: each CPU
    /// keeps freed pages for itself up to a limit, where compaction does not
    /// see them, and gives the oldest back to the blocks when more come.
    ///
    /// A child asks the kernel, because a large machine could be at it for
    /// minutes: after `limit` it is killed, and what was done by then counts.
    pub(super) fn compact(
        &self,
        region: &Region,
        filler: Option<&Region>,
        limit: Duration,
    ) -> Batch {
        region.touch(region.pages());
        let upper = upper_half(region);
        if let Some(filler) = filler {
            filler.touch(filler.pages());
        }
        for (i, page) in upper.into_iter().enumerate() {
            if i % 4 != 0 {
                region
                    .advise_part(page * 4096, 4096, libc::MADV_DONTNEED)
                    .map_err(because("madvise"))?;
            }
        }
        if let Some(filler) = filler {
            filler.advise(libc::MADV_DONTNEED).map_err(because("madvise"))?;
        }
        let before = migrated_pages()?;
        let fd = self.switch.as_raw_fd();
        let child = fork_and(|| {
            // SAFETY: writes one byte of static memory to an open file.
            unsafe { libc::write(fd, b"1".as_ptr().cast(), 1) };
        })
        .map_err(because("fork"))?;
        let took = wait_for(child, Some(limit)).map_err(because("wait4"))?;
        let moved = migrated_pages()?.saturating_sub(before);
        let _ = region.advise(libc::MADV_DONTNEED);
        if moved < COMPACTED_PAGES_MIN {
            return Err(format!("compaction moved only {moved} pages"));
        }
        Ok((took, moved))
    }
}

/// The half of the region's pages with the highest physical addresses, highest
/// first; every second page where the kernel hides addresses.
fn upper_half(region: &Region) -> Vec<usize> {
    let frames = frame_numbers(region).unwrap_or_default();
    if frames.iter().all(|&f| f == 0) {
        return (0..region.pages()).step_by(2).collect();
    }
    let mut pages: Vec<usize> = (0..frames.len()).collect();
    pages.sort_by_key(|&i| std::cmp::Reverse(frames[i]));
    pages.truncate(frames.len() / 2);
    pages
}

/// Physical page numbers of the region, 0 where they are hidden.
fn frame_numbers(region: &Region) -> io::Result<Vec<u64>> {
    let mut entries = vec![0u8; region.pages() * 8];
    let pagemap = File::open("/proc/self/pagemap")?;
    pagemap.read_exact_at(&mut entries, region.start() as u64 / 4096 * 8)?;
    // The low 55 bits of an entry are the page's number.
    let number = |e: &[u8]| e.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)) & ((1 << 55) - 1);
    Ok(entries.chunks_exact(8).map(number).collect())
}

/// Bytes of freed pages that a CPU may keep for itself, from `/proc/zoneinfo`.
pub(super) fn kept_by_cpu() -> u64 {
    let text = fs::read_to_string("/proc/zoneinfo").unwrap_or_default();
    most_kept(&text) * 4096
}

/// The largest limit of the CPUs' own lists, in pages. Since Linux 6.7 lists
/// grow up to `high_max`; before, `high` is the limit.
fn most_kept(zoneinfo: &str) -> u64 {
    let limit = |l: &str| {
        let l = l.trim_start();
        let v = l.strip_prefix("high_max:").or_else(|| l.strip_prefix("high:"))?;
        v.trim().parse().ok()
    };
    zoneinfo.lines().filter_map(limit).max().unwrap_or(0)
}

/// `pgmigrate_success` of `/proc/vmstat`.
fn migrated_pages() -> Result<u64, String> {
    let text = fs::read_to_string("/proc/vmstat").map_err(because("/proc/vmstat"))?;
    number(&text, "pgmigrate_success ")
        .ok_or_else(|| "/proc/vmstat has no pgmigrate_success".to_owned())
}

/// Bytes that this process may still take: `MemAvailable`, what the memory
/// limits of its control groups leave, and what its address space may grow by.
pub(crate) fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = number(&text, "MemAvailable:")?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let left = groups.lines().filter_map(group_left).min().unwrap_or(u64::MAX);
    Some((kib * 1024).min(left).min(address_space_left()))
}

/// What RLIMIT_AS leaves.
fn address_space_left() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills a local of the right type.
    if unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } != 0 {
        return u64::MAX;
    }
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let used: u64 = statm.split(' ').next().and_then(|p| p.parse().ok()).unwrap_or(0);
    limit.rlim_cur.saturating_sub(used * 4096)
}

/// What the memory limits on the path of one line of `/proc/self/cgroup` leave.
fn group_left(line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (base, limit, usage) = if controllers.is_empty() {
        ("/sys/fs/cgroup", "memory.max", "memory.current")
    } else if controllers.split(',').any(|c| c == "memory") {
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
    } else {
        return None;
    };
    let number = |dir: &str, name: &str| -> Option<u64> {
        fs::read_to_string(format!("{base}{dir}/{name}")).ok()?.trim().parse().ok()
    };
    let mut dir = path.trim_end_matches('/');
    let mut left = u64::MAX;
    loop {
        if let (Some(l), Some(u)) = (number(dir, limit), number(dir, usage)) {
            left = left.min(l.saturating_sub(u));
        }
        match dir.rsplit_once('/') {
            Some((parent, _)) => dir = parent,
            None => return Some(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::region::PageKind;
    use super::*;

    fn region(inherit: bool) -> Region {
        Region::map(2 << 20, PageKind::Base, None, inherit).unwrap()
    }

    #[test]
    fn first_touches_fault_once_a_page() {
        let r = region(false);
        assert_eq!(first_touch(&r).unwrap().1, 64);
        // Already touched: no faults, and that is noticed.
        assert!(touch_with_faults(&r).unwrap_err().contains("faults"));
        assert!(first_touch(&r).is_ok());
    }

    #[test]
    fn after_fork_and_exit_every_page_faults_again() {
        assert_eq!(write_protect_fault(&region(true)).unwrap().1, 64);
        // A region that children do not inherit is not write-protected.
        assert!(write_protect_fault(&region(false)).is_err());
    }

    #[test]
    fn both_ways_to_scan_see_what_is_present() {
        let r = region(false);
        r.touch(512);
        let Ok(mut scanner) = Scanner::open(&r) else { return };
        assert_eq!(scanner.scan(&r).unwrap().1, 512, "{}", scanner.method());
        scanner.by_ioctl = false;
        assert_eq!(scanner.scan(&r).unwrap().1, 512, "{}", scanner.method());
        r.advise(libc::MADV_DONTNEED).unwrap();
        assert!(scanner.scan(&r).unwrap_err().contains("present"));
    }

    #[test]
    fn marking_leaves_the_region_usable() {
        let r = region(false);
        assert_eq!(mark(&r).unwrap().1, 512);
        r.touch(512);
    }

    #[test]
    fn a_child_that_hangs_is_killed_and_waited_for() {
        let child = fork_and(|| {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        })
        .unwrap();
        // Without the signal this would wait for ever.
        wait_for(child, Some(Duration::from_millis(5))).unwrap();
        let gone = wait_for(child, None).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ECHILD), "nothing is left to wait for");
        let child = fork_and(|| ()).unwrap();
        assert!(wait_for(child, Some(Duration::from_secs(60))).is_ok());
    }

    #[test]
    fn the_limit_of_a_cpus_own_pages_is_found() {
        let text =
            "    high        90\n  cpu: 0\n    count: 5\n    high:  15638\n    high_max: 79872\n";
        assert_eq!(most_kept(text), 79_872);
        assert_eq!(most_kept("    high:  378\n"), 378);
        assert_eq!(most_kept(""), 0);
    }

    #[test]
    fn half_of_the_pages_are_the_upper_half() {
        let r = region(false);
        r.touch(512);
        let mut upper = upper_half(&r);
        assert_eq!(upper.len(), 256);
        upper.sort_unstable();
        upper.dedup();
        assert_eq!((upper.len(), upper.iter().all(|&p| p < 512)), (256, true));
    }

    #[test]
    fn limits_of_groups_bound_what_is_available() {
        assert!(available_bytes().unwrap() > 0);
        assert_eq!(group_left("3:cpu:/x"), None);
        assert_eq!(group_left("nonsense"), None);
    }
}
