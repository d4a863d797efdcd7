//! Which node a page is on.

use super::pages::PAGE;
use crate::sysfs;
use std::path::Path;

/// Something that knows the nodes of pages.
pub(super) trait NodeSource: Sync {
    /// The node, if there is only one.
    fn only(&self) -> Option<u16>;
    /// Nodes of a process' pages, given by their numbers; as many as pages.
    fn nodes(&self, pid: u32, pages: &[u64], out: &mut Vec<u16>);
}

/// A machine whose memory is all on one node.
pub(super) struct OneNode(pub(super) u16);

impl NodeSource for OneNode {
    fn only(&self) -> Option<u16> {
        Some(self.0)
    }
    fn nodes(&self, _: u32, pages: &[u64], out: &mut Vec<u16>) {
        out.clear();
        out.resize(pages.len(), self.0);
    }
}

/// `move_pages` without a target: a query. It takes about a third of a
/// microsecond a page.
struct Query {
    /// Where a page is taken to be that went away between.
    first: u16,
}

impl NodeSource for Query {
    fn only(&self) -> Option<u16> {
        None
    }
    fn nodes(&self, pid: u32, pages: &[u64], out: &mut Vec<u16>) {
        let addresses: Vec<usize> = pages.iter().map(|p| *p as usize * PAGE).collect();
        let mut status = vec![-1i32; pages.len()];
        // SAFETY: both arrays have as many elements as said and outlive the call;
        // without target nodes nothing is moved.
        unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                pid as libc::pid_t,
                pages.len(),
                addresses.as_ptr(),
                std::ptr::null::<i32>(),
                status.as_mut_ptr(),
                0,
            )
        };
        out.clear();
        out.extend(status.iter().map(|&s| u16::try_from(s).unwrap_or(self.first)));
    }
}

/// Nodes with memory, as `sys/devices/system/node/has_memory` below a root lists
/// them; node 0 where it lists none.
pub(super) fn with_memory(root: &Path) -> Vec<u16> {
    std::fs::read_to_string(root.join("sys/devices/system/node/has_memory"))
        .ok()
        .and_then(|text| sysfs::parse_list(&text))
        .map(|list| list.into_iter().filter_map(|n| u16::try_from(n).ok()).collect::<Vec<_>>())
        .filter(|list| !list.is_empty())
        .unwrap_or_else(|| vec![0])
}

/// How this machine tells nodes.
pub(super) fn source(nodes: &[u16]) -> Box<dyn NodeSource> {
    match nodes {
        [] => Box::new(OneNode(0)),
        [one] => Box::new(OneNode(*one)),
        [first, ..] => Box::new(Query { first: *first }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::pages::Own;
    use super::*;

    #[test]
    fn the_kernel_answers_for_our_own_pages() {
        let here = with_memory(Path::new("/"));
        let own = Own::map(2).unwrap();
        own.write(0, 1);
        let mut out = Vec::new();
        // The second page was never touched and is on no node: 7 stands in.
        Query { first: 7 }.nodes(std::process::id(), &[own.page(0), own.page(1)], &mut out);
        assert_eq!((out.len(), out[1]), (2, 7));
        assert!(here.contains(&out[0]) || out[0] == 7, "{out:?}");
        assert!(source(&[0, 1]).only().is_none());
        assert_eq!(source(&[3]).only(), Some(3));
        assert_eq!(with_memory(Path::new("/nowhere")), [0]);
    }
}
