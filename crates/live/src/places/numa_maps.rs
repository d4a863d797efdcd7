//! `/proc/PID/numa_maps`: pages of each mapping by node, and its memory policy.
//!
//! ```text
//! 7f0000000000 bind:0-1 anon=5 dirty=5 active=0 N0=3 N1=2 kernelpagesize_kB=4
//! │            └ policy                         └ pages   └ of this size
//! └ first address
//! ```
//!
//! The kernel walks the page tables to answer, so a line costs as much as the mapping has
//! pages in memory; holes cost nothing. Blanks in a file's name are escaped, so that no
//! name looks like a count. The policy is the mapping's, or else the task's.

use crate::sysfs::parse_list;
use homenode_core::units::{NodeId, Pages};
use std::io::{self, BufRead};
use std::ops::ControlFlow;

/// Longest line that is read: names end at 4096 bytes, each written as up to four.
const LINE_MAX: usize = 1 << 16;

/// A mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// Number of its first page.
    pub(crate) start: u64,
    /// The nodes to which `MPOL_BIND` ties it; `None` under another policy.
    pub(crate) bound: Option<Vec<u32>>,
    /// Pages of 4 KiB by node, those that have some.
    pub(crate) nodes: Vec<(NodeId, Pages)>,
}

impl Line {
    /// `None` for what is no such line.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let start = u64::from_str_radix(words.next()?, 16).ok()? >> 12;
        let bound = bound(words.next()?);
        let (mut nodes, mut kib) = (Vec::new(), 4u64);
        for (key, value) in words.filter_map(|w| w.split_once('=')) {
            let number = || value.parse::<u64>().ok();
            if key == "kernelpagesize_kB" {
                kib = number()?;
            } else if let Some(id) = key.strip_prefix('N').and_then(|id| id.parse().ok()) {
                nodes.push((NodeId(id), number()?));
            }
        }
        // Counts are in pages of that size, which is 4 KiB for all but hugetlb.
        let pages = |n: u64| Pages(n.saturating_mul(kib) / 4);
        let nodes = nodes.into_iter().map(|(id, n)| (id, pages(n))).collect();
        Some(Self { start, bound, nodes })
    }
}

/// `bind:0-1`, `bind=static:2`: the nodes. A list that can't be read ties it to none,
/// so that it stays where it is.
fn bound(policy: &str) -> Option<Vec<u32>> {
    let rest = policy.strip_prefix("bind")?;
    if !rest.is_empty() && !rest.starts_with([':', '=']) {
        return None;
    }
    let list = rest.rsplit_once(':').map_or("", |(_, list)| list);
    Some(parse_list(list).unwrap_or_default())
}

/// Reads the lines, one at a time, until `each` has enough. What is no such line is passed
/// over.
///
/// # Errors
/// As reading the file.
pub(crate) fn each(
    mut from: impl BufRead,
    mut each: impl FnMut(Line) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut part = io::Read::take(&mut from, LINE_MAX as u64);
        if part.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if let Some(found) = Line::parse(&String::from_utf8_lossy(&line)) {
            if each(found).is_break() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nodes(text: &str) -> Vec<(u16, u64)> {
        Line::parse(text).unwrap().nodes.iter().map(|(n, p)| (n.0, p.0)).collect()
    }

    #[test]
    fn pages_are_counted_by_node_in_units_of_4_kib() {
        let plain = "7f0000000000 default anon=5 dirty=5 N0=3 N1=2 kernelpagesize_kB=4";
        assert_eq!(nodes(plain), [(0, 3), (1, 2)]);
        assert_eq!(Line::parse(plain).unwrap().start, 0x7f0000000);
        let huge = "7f0000200000 default file=/anon_hugepage\\040(deleted) huge anon=2 dirty=2 \
                    N2=2 kernelpagesize_kB=2048";
        assert_eq!(nodes(huge), [(2, 1024)]);
        assert!(nodes("7ffe00000000 default").is_empty());
        // A name that tries to be a count.
        assert!(nodes("1000 default file=/tmp/N0=7").is_empty());
        assert_eq!(nodes("1000 weighted interleave:0-1 anon=1 N1=1 kernelpagesize_kB=4"), [(1, 1)]);
    }

    #[test]
    fn policies_that_bind_are_told_from_those_that_prefer() {
        let of = |policy: &str| Line::parse(&format!("1000 {policy} anon=1 N0=1")).unwrap().bound;
        for free in ["default", "prefer:1", "prefer (many):0-1", "interleave:0-1", "local", "bindx"]
        {
            assert_eq!(of(free), None, "{free}");
        }
        assert_eq!(of("bind:0,2-3"), Some(vec![0, 2, 3]));
        assert_eq!(of("bind=static:1"), Some(vec![1]));
        assert_eq!(of("bind=relative|balancing:0"), Some(vec![0]));
        // Odd text holds pages where they are.
        assert_eq!(of("bind:?"), Some(vec![]));
    }

    #[test]
    fn what_is_no_line_is_passed_over() {
        let text = "nonsense\n\nxyz default N0=1\n2000 default N0=many\n3000 default N1=4\n\
                    4000 default N1=5";
        let mut starts = Vec::new();
        each(text.as_bytes(), |l| {
            starts.push((l.start, l.nodes.len()));
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(starts, [(3, 1), (4, 1)]);
        let mut count = 0;
        each(text.as_bytes(), |_| {
            count += 1;
            ControlFlow::Break(())
        })
        .unwrap();
        assert_eq!(count, 1);
    }

    proptest! {
        #[test]
        fn odd_text_is_no_reason_to_panic(text in "[ -~\n]{0,200}") {
            each(text.as_bytes(), |_| ControlFlow::Continue(())).unwrap();
        }
        #[test]
        fn bytes_that_are_no_text_neither(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            each(bytes.as_slice(), |_| ControlFlow::Continue(())).unwrap();
        }
        #[test]
        fn what_is_written_is_read_back(
            start in 0u64..1 << 44,
            bind in proptest::option::of(proptest::collection::btree_set(0u32..1024, 1..4)),
            counts in proptest::collection::btree_map(0u16..1024, 1u64..1 << 40, 0..4),
        ) {
            let bound = bind.map(|b| b.into_iter().collect::<Vec<_>>());
            let policy = bound.as_ref().map_or("default".to_owned(), |b| {
                let list: Vec<String> = b.iter().map(u32::to_string).collect();
                format!("bind:{}", list.join(","))
            });
            let mut text = format!("{:x} {policy} anon=1", start << 12);
            for (node, n) in &counts {
                text += &format!(" N{node}={n}");
            }
            text += " kernelpagesize_kB=4\n";
            let nodes = counts.into_iter().map(|(n, p)| (NodeId(n), Pages(p))).collect();
            prop_assert_eq!(Line::parse(&text), Some(Line { start, bound, nodes }));
        }
    }
}
