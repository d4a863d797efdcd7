//! What it takes to look at others, as homenode does, and to read a page as ksmd does.
//!
//! Each function does one batch and says how long it took and how many things were done;
//! a reason where the system does not let it. Nothing is changed by any of them.

use super::kernel::{Batch, because};
use super::region::{OURS, Region};
use super::stats::timed;
use homenode_live::machine::Memory;
use homenode_live::memory::Zoneinfo;
use homenode_live::people::stat::Stat;
use homenode_live::places::call;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use twox_hash::XxHash64;

/// Addresses in one call of `move_pages`, as homenode hands them over.
const QUERIES: usize = 4096;
/// Looks in one batch: few, so that most batches see no other task's time slice.
const LOOKS: u64 = 8;
/// Pages in one batch of checksums; together they fit into the second cache.
const PAGES: u64 = 32;

/// Where pages of the region are: `move_pages` without targets.
pub(super) fn queries(region: &Region) -> Batch {
    let pages = region.pages().min(QUERIES);
    let list: Vec<usize> = (0..pages).map(|i| region.page(i) as usize).collect();
    let mut status = Vec::with_capacity(pages);
    let mut asked = Ok(());
    let took = timed(1, || asked = call::query(OURS, &list, &mut status)).0;
    asked.map_err(because("move_pages"))?;
    match status.iter().filter(|&&s| s >= 0).count() {
        there if there * 10 >= pages * 9 => Ok((took, pages as u64)),
        there => Err(format!("move_pages found {there} of {pages} pages")),
    }
}

/// The three files of a process that homenode reads at each look: our parent's, which is
/// another process.
pub(super) fn process() -> Batch {
    // SAFETY: asks for a number.
    let folder = Path::new("/proc").join(unsafe { libc::getppid() }.to_string());
    let look = || -> std::io::Result<()> {
        black_box(Stat::read(&folder.join("stat"))?);
        for file in ["schedstat", "statm"] {
            black_box(fs::read(folder.join(file))?);
        }
        Ok(())
    };
    look().map_err(because("the files of another process below /proc"))?;
    let mut seen = Ok(());
    let done = timed(LOOKS, || (0..LOOKS).for_each(|_| seen = look()));
    seen.map_err(because("the files of another process below /proc")).map(|()| done)
}

/// `/proc/zoneinfo`, read and understood; by node.
pub(super) fn zones() -> Batch {
    let mut zoneinfo = Zoneinfo::new(Path::new("/"));
    let nodes = zoneinfo.look().map_err(because("/proc/zoneinfo"))?.len() as u64;
    if nodes == 0 {
        return Err("/proc/zoneinfo has no zone".to_owned());
    }
    let (took, looks) = timed(LOOKS, || {
        (0..LOOKS).for_each(|_| drop(black_box(zoneinfo.look())));
    });
    Ok((took, looks * nodes))
}

/// The checksum that ksmd makes of a page, of pages that the second cache holds.
pub(super) fn checksums(region: &Region) -> Batch {
    let pages = PAGES.min(region.pages() as u64);
    let all = || {
        (0..pages as usize).for_each(|i| {
            // SAFETY: `page` checks that it lies in the region, which is touched and
            // which nobody writes to now.
            let page = unsafe { std::slice::from_raw_parts(region.page(i), 4096) };
            black_box(XxHash64::oneshot(0, page));
        });
    };
    all();
    Ok(timed(pages, all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::region::PageKind;

    #[test]
    fn each_look_takes_time_and_says_how_many_it_was() {
        let region = Region::map(2 << 20, PageKind::Base, None, false).unwrap();
        region.touch(region.pages());
        for (batch, n) in [
            (queries(&region), 512),
            (process(), LOOKS),
            (zones(), LOOKS),
            (checksums(&region), PAGES),
        ] {
            let (took, done) = batch.unwrap();
            assert!(!took.is_zero() && done >= n && done % n == 0, "{took:?} for {done}");
        }
    }

    #[test]
    fn pages_that_are_not_there_are_no_figure() {
        let region = Region::map(2 << 20, PageKind::Base, None, false).unwrap();
        let why = queries(&region).unwrap_err();
        assert_eq!(why, "move_pages found 0 of 512 pages");
    }
}
