//! On which node a frame is.
//!
//! ```text
//! memory blocks   sys/devices/system/node/nodeN/memoryK, of block_size_bytes   preferred
//! zones           start_pfn and spanned of /proc/zoneinfo                      without them
//! ```
//!
//! A block or a stretch that two nodes claim is nobody's: its pages have to be asked for
//! otherwise. Who has not CAP_SYS_ADMIN sees no frames in `pagemap`.
//!
//! Source: specs/live.md#places.

use super::{sees_frames, with_memory};
use crate::text::field;
use homenode_core::units::NodeId;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Frames of one node: the first, one past the last, the node.
type Range = (u64, u64, NodeId);

/// Which frames are whose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frames(Vec<Range>);

impl Frames {
    /// As the kernel tells it; `None` where it does not.
    ///
    /// * `nodes` – those with memory.
    pub(crate) fn read(root: &Path, nodes: &[u16]) -> Option<Self> {
        let found = blocks(root, nodes)
            .or_else(|| Some(zones(&fs::read_to_string(root.join("proc/zoneinfo")).ok()?)));
        found.map(Self::new).filter(|f| !f.0.is_empty())
    }

    /// What is claimed by several nodes is left out.
    fn new(all: Vec<Range>) -> Self {
        // Where a claim begins and where one ends.
        let mut turns: Vec<(u64, NodeId, bool)> = Vec::new();
        for (start, end, node) in all {
            turns.extend([(start, node, true), (end, node, false)]);
        }
        turns.sort_unstable();
        let mut claims: BTreeMap<NodeId, u32> = BTreeMap::new();
        let (mut out, mut from): (Vec<Range>, u64) = (Vec::new(), 0);
        for (at, node, begins) in turns {
            if let (1, Some((&whose, _)), true) =
                (claims.len(), claims.first_key_value(), at > from)
            {
                match out.last_mut() {
                    Some(last) if last.1 == from && last.2 == whose => last.1 = at,
                    _ => out.push((from, at, whose)),
                }
            }
            from = at;
            let n = claims.entry(node).or_default();
            *n = if begins { *n + 1 } else { n.saturating_sub(1) };
            if *n == 0 {
                claims.remove(&node);
            }
        }
        Self(out)
    }

    /// The node of a frame, if it is known.
    pub(crate) fn node(&self, frame: u64) -> Option<NodeId> {
        let behind = self.0.partition_point(|r| r.0 <= frame);
        let &(_, end, node) = self.0.get(behind.checked_sub(1)?)?;
        (frame < end).then_some(node)
    }
}

/// Which frames are whose, read anew where nodes have come or gone.
#[derive(Debug, Default)]
pub(crate) struct Known(Option<(Vec<u16>, Option<Frames>)>);

impl Known {
    /// As the kernel tells it now; `None` where frames may not be seen.
    pub(crate) fn now(&mut self, root: &Path) -> Option<&Frames> {
        let nodes = with_memory(root);
        if self.0.as_ref().is_none_or(|(was, _)| *was != nodes) {
            let frames = sees_frames(root).then(|| Frames::read(root, &nodes)).flatten();
            self.0 = Some((nodes, frames));
        }
        self.0.as_ref().and_then(|(_, frames)| frames.as_ref())
    }
}

fn blocks(root: &Path, nodes: &[u16]) -> Option<Vec<Range>> {
    let size = fs::read_to_string(root.join("sys/devices/system/memory/block_size_bytes")).ok()?;
    let frames = u64::from_str_radix(size.trim(), 16).ok()? >> 12;
    let mut out = Vec::new();
    for &node in nodes {
        let folder = root.join(format!("sys/devices/system/node/node{node}"));
        for entry in fs::read_dir(folder).ok()?.flatten() {
            let name = entry.file_name();
            let Some(block) = name.to_str().and_then(|n| n.strip_prefix("memory")) else {
                continue;
            };
            let Ok(block) = block.parse::<u64>() else { continue };
            let start = block.checked_mul(frames)?;
            out.push((start, start.checked_add(frames)?, NodeId(node)));
        }
    }
    (!out.is_empty()).then_some(out)
}

/// Of a text as `/proc/zoneinfo` has it.
fn zones(text: &str) -> Vec<Range> {
    let mut out = Vec::new();
    for zone in text.split("\nNode ") {
        let node = zone.trim_start_matches("Node ").split(',').next();
        let Some(node) = node.and_then(|n| n.trim().parse().ok()) else { continue };
        let lines: Vec<&str> = zone.lines().map(str::trim_start).collect();
        let number = |key| {
            let line = lines.iter().find_map(|l| field(l, key))?;
            line.parse::<u64>().ok()
        };
        let (Some(start), Some(spanned)) = (number("start_pfn:"), number("spanned")) else {
            continue;
        };
        if let Some(end) = start.checked_add(spanned).filter(|end| *end > start) {
            out.push((start, end, NodeId(node)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_fixtures::Folder;
    use proptest::prelude::*;

    fn ranges(f: &Frames) -> Vec<(u64, u64, u16)> {
        f.0.iter().map(|r| (r.0, r.1, r.2.0)).collect()
    }

    // specs/live.md#places
    #[test]
    fn blocks_are_taken_before_zones() {
        let folder = Folder::new();
        let root: &Path = &folder;
        let node = |n: u16| root.join(format!("sys/devices/system/node/node{n}"));
        fs::create_dir_all(root.join("sys/devices/system/memory")).unwrap();
        fs::create_dir_all(root.join("proc")).unwrap();
        fs::write(
            root.join("proc/zoneinfo"),
            "Node 0, zone    DMA32\n  pages free     7\n        spanned  90\n  start_pfn:           10\n\
             Node 1, zone   Normal\n        spanned  50\n  start_pfn:           100\n\
             Node 1, zone  Movable\n        spanned  0\n  start_pfn:           0\n",
        )
        .unwrap();
        let by_zones = Frames::read(root, &[0, 1]).unwrap();
        assert_eq!(ranges(&by_zones), [(10, 100, 0), (100, 150, 1)]);
        assert_eq!(
            [9, 10, 99, 100, 149, 150].map(|f| by_zones.node(f).map(|n| n.0)),
            [None, Some(0), Some(0), Some(1), Some(1), None]
        );
        // Blocks of 128 MiB; the third is claimed by both.
        fs::write(root.join("sys/devices/system/memory/block_size_bytes"), "8000000\n").unwrap();
        for (n, blocks) in [(0, [0, 1, 2]), (1, [2, 3, 4])] {
            for block in blocks {
                fs::create_dir_all(node(n).join(format!("memory{block}"))).unwrap();
            }
        }
        let by_blocks = Frames::read(root, &[0, 1]).unwrap();
        assert_eq!(ranges(&by_blocks), [(0, 65_536, 0), (98_304, 163_840, 1)]);
        assert_eq!(by_blocks.node(70_000), None, "two nodes claim it");
    }

    proptest! {
        // Against the plain rule: a frame is whose range names it, if that is one node's only.
        #[test]
        fn a_frame_is_whose_range_alone_names_it(
            all in proptest::collection::vec((0u64..40, 1u64..12, 0u16..3), 0..6)
        ) {
            let all: Vec<Range> = all.into_iter().map(|(s, n, on)| (s, s + n, NodeId(on))).collect();
            let frames = Frames::new(all.clone());
            for frame in 0..60 {
                let mut names: Vec<NodeId> =
                    all.iter().filter(|r| r.0 <= frame && frame < r.1).map(|r| r.2).collect();
                names.sort_unstable();
                names.dedup();
                let alone = names.first().copied().filter(|_| names.len() == 1);
                prop_assert_eq!(frames.node(frame), alone);
            }
        }
        #[test]
        fn odd_text_is_no_reason_to_panic(text in "[ -~\n]{0,200}") {
            zones(&text);
        }
    }
}
