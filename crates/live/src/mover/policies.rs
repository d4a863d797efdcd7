//! What forbids a page of a process to be on a node: its mapping's `MPOL_BIND`, or the
//! task's where the mapping has none, and the task's cpuset.
//!
//! `move_pages` minds the cpuset alone. It is asked for all the same before anything is
//! moved, so that the answer does not depend on what else is in the order.
//!
//! Policies come from numa_maps, which walks all of the process: 1 GiB in small pages takes
//! some 10 ms. So both are used again for a hundred times as long as reading them took, and
//! take a hundredth of the time; a mapping that is bound meanwhile may once be moved against
//! it, and a cpuset that changed is the kernel's own to mind.

use crate::places::{Files, numa_maps};
use crate::sysfs::parse_list;
use homenode_core::policy::seen::Who;
use homenode_core::units::NodeId;
use std::io::{self, BufReader};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// What was read is used again for so many times as long as that took.
const AGAIN: u32 = 100;

/// What holds for the process that was asked for last.
#[derive(Debug, Default)]
pub(super) struct Policies {
    last: Option<Read>,
}

#[derive(Debug)]
struct Read {
    who: Who,
    at: Instant,
    took: Duration,
    bound: Bound,
}

impl Policies {
    /// Those of a process.
    ///
    /// # Errors
    /// As reading its files; a kernel without nodes has no numa_maps, and no policies.
    pub(super) fn of(&mut self, files: &Files, who: Who) -> io::Result<&Bound> {
        let holds = |r: &Read| r.who == who && r.at.elapsed() < r.took * AGAIN;
        let read = match self.last.take().filter(holds) {
            Some(read) => read,
            None => {
                let at = Instant::now();
                let bound = read(files, who)?;
                Read { who, at, took: at.elapsed(), bound }
            }
        };
        Ok(&self.last.insert(read).bound)
    }
}

fn read(files: &Files, who: Who) -> io::Result<Bound> {
    let mut bound = Bound { allowed: mems_allowed(files, who)?, ..Bound::default() };
    let file = match files.open(who, "numa_maps") {
        Err(e) if e.kind() == io::ErrorKind::NotFound && files.lives(who) => return Ok(bound),
        file => file?,
    };
    numa_maps::each(BufReader::new(file), |line| {
        bound.add(line.start, line.bound);
        ControlFlow::Continue(())
    })?;
    Ok(bound)
}

/// Where the memory of a process may be.
#[derive(Debug, Default)]
pub(super) struct Bound {
    /// Its cpuset's nodes; `None`: all.
    allowed: Option<Vec<u32>>,
    /// From a page on to the next entry; by rising page.
    from: Vec<(u64, Option<Vec<u32>>)>,
}

impl Bound {
    fn add(&mut self, start: u64, to: Option<Vec<u32>>) {
        if self.from.last().is_none_or(|(_, last)| *last != to) {
            self.from.push((start, to));
        }
    }
    /// Whether the cpuset lets the process have memory of a node. A kernel without cpusets
    /// forbids nothing.
    pub(super) fn cpuset_allows(&self, on: NodeId) -> bool {
        self.allowed.as_ref().is_none_or(|nodes| nodes.contains(&u32::from(on.0)))
    }
    /// Whether a mapped page may be on that node, as far as its mapping is concerned.
    pub(super) fn allow(&self, page: u64, on: NodeId) -> bool {
        let behind = self.from.partition_point(|(start, _)| *start <= page);
        let Some((_, to)) = behind.checked_sub(1).and_then(|i| self.from.get(i)) else {
            return true;
        };
        to.as_ref().is_none_or(|nodes| nodes.contains(&u32::from(on.0)))
    }
}

/// The nodes of the process's cpuset.
fn mems_allowed(files: &Files, who: Who) -> io::Result<Option<Vec<u32>>> {
    let mut text = Vec::new();
    io::Read::read_to_end(&mut files.open(who, "status")?, &mut text)?;
    Ok(mems(&String::from_utf8_lossy(&text)))
}

fn mems(status: &str) -> Option<Vec<u32>> {
    parse_list(status.lines().find_map(|l| l.strip_prefix("Mems_allowed_list:"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_by_the_mapping_that_holds_it() {
        let mut bound = Bound::default();
        assert!(bound.allow(5, NodeId(1)));
        for (start, to) in [
            (10, None),
            (20, Some(vec![0])),
            (30, Some(vec![0])),
            (40, Some(vec![1, 2])),
            (50, None),
        ] {
            bound.add(start, to);
        }
        assert_eq!(bound.from.len(), 4);
        let on_1 = [5, 10, 19, 20, 35, 39, 40, 49, 50].map(|page| bound.allow(page, NodeId(1)));
        assert_eq!(on_1, [true, true, true, false, false, false, true, true, true]);
    }

    #[test]
    fn a_cpuset_is_read_from_status() {
        let text = "Mems_allowed:\t3\nMems_allowed_list:\t0-1,3\nvoluntary_ctxt_switches:\t1\n";
        let allows = |text: &str, n: u16| {
            Bound { allowed: mems(text), ..Bound::default() }.cpuset_allows(NodeId(n))
        };
        assert_eq!([0, 1, 2, 3].map(|n| allows(text, n)), [true, true, false, true]);
        assert!(allows("", 7));
        assert!(allows("Mems_allowed_list:\tx\n", 7));
    }
}
