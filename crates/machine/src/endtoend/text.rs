//! The kernel's files as both machines show them: `vmstat`, `zoneinfo`, `numa_maps`, lists
//! of nodes. Lines that make no sense are left out; what is then missing a body notices.
//!
//! Source: specs/files.md#vmstat, specs/files.md#zoneinfo, specs/files.md#numa_maps.

use homenode_core::list::ranges;
use homenode_core::units::{NodeId, Pages};
use std::collections::BTreeMap;

/// Place of the movable zone in a zone's line `protection`: what the zone keeps from
/// memory that could lie in any zone, as programs' memory can.
const MOVABLE: usize = 3;

/// A zone as `/proc/zoneinfo` has it, in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneNow {
    /// Its node.
    pub node: NodeId,
    /// `DMA32` and the like.
    pub name: String,
    /// Free pages, without those that CPUs keep.
    pub free: u64,
    /// Free pages that CPUs keep.
    pub kept: u64,
    /// Direct reclaim below.
    pub min: u64,
    /// kswapd wakes below.
    pub low: u64,
    /// Promotions stop here.
    pub high: u64,
    /// kswapd stops here while tiering is on; 0 where the kernel doesn't tell.
    pub promo: u64,
    /// What the zone has in all.
    pub managed: u64,
    /// Kept from memory that could also have come from a higher zone.
    pub reserve: u64,
}

impl ZoneNow {
    /// Pages above a mark and the reserve.
    pub fn above(&self, mark: u64) -> u64 {
        self.free.saturating_sub(mark.saturating_add(self.reserve))
    }
}

/// All counters of a `vmstat` file.
pub fn vmstat(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// The zones of `/proc/zoneinfo` that have memory.
pub fn zones(text: &str) -> Vec<ZoneNow> {
    let mut all: Vec<ZoneNow> = Vec::new();
    for line in text.lines() {
        if let Some(zone) = header(line) {
            all.push(zone);
            continue;
        }
        let Some(zone) = all.last_mut() else { continue };
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| text.parse().unwrap_or(0);
        match words[..] {
            ["pages", "free", n] => zone.free = number(n),
            ["count:", n] => zone.kept += number(n),
            ["min", n] => zone.min = number(n),
            ["low", n] => zone.low = number(n),
            ["high", n] => zone.high = number(n),
            ["promo", n] => zone.promo = number(n),
            ["managed", n] => zone.managed = number(n),
            ["protection:", ref kept @ ..] => {
                let kept = kept.get(MOVABLE).map(|n| n.trim_matches(['(', ')', ',']));
                zone.reserve = kept.map_or(0, number);
            }
            _ => {}
        }
    }
    all.retain(|z| z.managed > 0);
    all
}

/// `Node 0, zone    DMA32`
fn header(line: &str) -> Option<ZoneNow> {
    let (node, name) = line.strip_prefix("Node ")?.split_once(", zone")?;
    let node = NodeId(node.parse().ok()?);
    Some(ZoneNow { node, name: name.trim().to_owned(), ..ZoneNow::default() })
}

/// Pages by node of the mapping at this address in a `numa_maps` file; `None` if there is
/// no such mapping.
pub fn on_nodes(text: &str, at: u64) -> Option<BTreeMap<NodeId, Pages>> {
    let starts = |line: &&str| {
        let address = line.split(' ').next().unwrap_or_default();
        u64::from_str_radix(address, 16) == Ok(at)
    };
    let line = text.lines().find(starts)?;
    let node = |word: &str| {
        let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
        Some((NodeId(node.parse().ok()?), Pages(pages.parse().ok()?)))
    };
    Some(line.split(' ').filter_map(node).collect())
}

/// Nodes of a list such as `0-1,3`; `None` if it is none.
fn nodes(list: &str) -> Option<Vec<NodeId>> {
    let nodes = ranges(list.trim())?.into_iter().flat_map(|(first, last)| first..=last);
    nodes.map(|n| Some(NodeId(n.try_into().ok()?))).collect()
}

/// A node's tier: its number, smaller for faster ones. From the folders of
/// `/sys/devices/virtual/memory_tiering` with the text of their `nodelist`.
pub fn tiers_of(folders: &[(String, String)]) -> BTreeMap<NodeId, u32> {
    let mut all = BTreeMap::new();
    for (name, list) in folders {
        let Some(Ok(tier)) = name.strip_prefix("memory_tier").map(str::parse) else { continue };
        all.extend(nodes(list).unwrap_or_default().into_iter().map(|node| (node, tier)));
    }
    all
}

/// What is chosen in a knob's text: the word in brackets, where it has some.
pub(super) fn chosen(text: &str) -> &str {
    let text = text.trim();
    let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or(text, |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ZONEINFO: &str = "\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 13
  pages free     2817
        boost    0
        min      124
        low      155
        high     186
        promo    217
        spanned  4095
        present  3998
        managed  3840
        protection: (0, 487, 487, 487, 487)
  pagesets
    cpu: 0
              count: 75
              high:  252
    cpu: 1
              count: 138
      nr_free_pages 2817
Node 0, zone   Normal
  pages free     0
        managed  0
        protection: (0, 0, 0, 0, 0)
Node 1, zone    DMA32
  pages free     376421
        min      12174
        managed  377208
        protection: (0, 0, 0, 0, 0)
";

    #[test]
    fn zones_are_read_with_their_marks() {
        let all = zones(ZONEINFO);
        assert_eq!(all.len(), 2, "zones without memory are none: {all:?}");
        let dma = &all[0];
        assert_eq!((dma.free, dma.min, dma.low, dma.high), (2817, 124, 155, 186));
        assert_eq!((dma.managed, dma.reserve, dma.kept), (3840, 487, 213));
        assert_eq!(dma.above(dma.high), 2817 - 186 - 487);
        assert_eq!((all[1].node, all[1].free), (NodeId(1), 376_421));
    }

    #[test]
    fn a_mapping_is_found_by_its_address() {
        let text = "7f00 default anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4\n\
                    8f00 bind:0 anon=1 N0=1\n9f00 default\n";
        let found = on_nodes(text, 0x7f00);
        assert_eq!(found, Some(BTreeMap::from([(NodeId(0), Pages(1)), (NodeId(1), Pages(2))])));
        assert_eq!(on_nodes(text, 0x9f00), Some(BTreeMap::new()));
        assert_eq!(on_nodes(text, 0x7f01), None);
    }

    #[test]
    fn tiers_are_read_from_their_lists() {
        let folders = [("memory_tier4", "0-1\n"), ("memory_tier112", "3\n"), ("power", "")]
            .map(|(name, list)| (name.to_owned(), list.to_owned()));
        let tiers = tiers_of(&folders);
        assert_eq!(tiers, BTreeMap::from([(NodeId(0), 4), (NodeId(1), 4), (NodeId(3), 112)]));
        assert_eq!(chosen("always [madvise] never\n"), "madvise");
        assert_eq!(chosen("true\n"), "true");
    }

    proptest! {
        #[test]
        fn odd_texts_are_no_panic(text in "(Node [0-9]{1,6}, zone [A-Z]*\n|[a-z:]{1,9} [(0-9,) ]*\n|.*\n)*") {
            zones(&text);
            vmstat(&text);
            on_nodes(&text, 0x7f00);
            chosen(&text);
            tiers_of(&[("memory_tier4".to_owned(), text)]);
        }
        #[test]
        fn counters_are_read_back(all in proptest::collection::btree_map("[a-z_]{1,12}", any::<u64>(), 0..20)) {
            let text: String = all.iter().map(|(name, n)| format!("{name} {n}\n")).collect();
            prop_assert_eq!(vmstat(&text), all);
        }
    }
}
