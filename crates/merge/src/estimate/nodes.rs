//! Which node a page is on.

use super::pages::PAGE;
use homenode_live::places::call;

/// Something that knows the nodes of pages.
pub(super) trait NodeSource: Sync {
    /// Nodes of a process' pages, given by their numbers; as many as pages.
    fn nodes(&self, pid: u32, pages: &[u64], out: &mut Vec<u16>);
}

/// A machine whose memory is all on one node.
pub(super) struct OneNode(pub(super) u16);

impl NodeSource for OneNode {
    fn nodes(&self, _: u32, pages: &[u64], out: &mut Vec<u16>) {
        out.clear();
        out.resize(pages.len(), self.0);
    }
}

/// The kernel, asked for each page: about a third of a microsecond.
struct Query {
    /// Where a page is taken to be that went away between.
    first: u16,
}

impl NodeSource for Query {
    fn nodes(&self, pid: u32, pages: &[u64], out: &mut Vec<u16>) {
        let addresses: Vec<usize> = pages.iter().map(|p| *p as usize * PAGE).collect();
        let mut status = Vec::new();
        // A process that is gone is on no node; its reader finds that out.
        let _ = call::query(pid, &addresses, &mut status);
        out.clear();
        out.extend(status.iter().map(|&s| u16::try_from(s).unwrap_or(self.first)));
    }
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
    use homenode_live::places::with_memory;
    use std::path::Path;

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
        // Where there is only one node the kernel is not asked.
        source(&[3]).nodes(std::process::id(), &[own.page(0), own.page(1)], &mut out);
        assert_eq!(out, [3, 3]);
    }
}
