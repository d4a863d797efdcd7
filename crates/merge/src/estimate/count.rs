//! From contents to figures: what merging would make of them.
//!
//! N equal mappings with a limit of M a page (`max_page_sharing`), with q and r
//! the quotient and remainder of N / M:
//!
//! ```text
//! pages_shared  = q + 1 if r ≥ 2, else q      KSM pages
//! unmerged      = 1 if r = 1, else 0          the odd one out stays what it is
//! pages_sharing = N - pages_shared - unmerged
//! ```
//!
//! 300 mappings with a limit of 7: q = 42, r = 6, so 43 shared and 257 sharing.
//!
//! What it saves is frames: those that hold the content now less those that will.
//! Without forks and earlier merging that is `pages_sharing`. A frame that only
//! forked processes map is not merged with itself.
//!
//! Source: specs/ksm.md#chains; specs/ksm.md#one-page, step 4, for forked pages.

use super::table::{Entry, Table};
use super::{Flow, NodeSaving, Saving};
use std::collections::BTreeMap;

/// The kernel's settings that an estimate depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// Most mappings of a KSM page, at least 2.
    pub(super) max_page_sharing: u32,
    /// Pages of zeros become the shared page of zeros instead of KSM pages.
    pub(super) use_zero_pages: bool,
}

/// How a content is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) mappings: u64,
    pub(super) frames: u64,
    pub(super) merged: bool,
    pub(super) zero: bool,
}

impl Group {
    fn of(entry: &Entry, zero: u128) -> Self {
        Self {
            mappings: entry.mappings.into(),
            frames: entry.frames().into(),
            merged: entry.merged(),
            zero: entry.key().content() == zero,
        }
    }
    fn with(self, other: Self) -> Self {
        Self {
            mappings: self.mappings + other.mappings,
            frames: self.frames + other.frames,
            merged: self.merged || other.merged,
            zero: self.zero || other.zero,
        }
    }
}

/// What merging makes of one content.
pub(super) fn saving(group: Group, rules: Rules) -> Saving {
    const PAGE: u64 = super::pages::PAGE as u64;
    let Group { mappings, frames, merged, zero } = group;
    if mappings == 0 {
        return Saving::default();
    }
    if zero && rules.use_zero_pages {
        return Saving { saved_bytes: frames * PAGE, ..Saving::default() };
    }
    if !merged && frames < 2 {
        return Saving::default();
    }
    if merged && frames == 1 {
        // A KSM page as it is, also the last mapping of one. Forks map it beyond the
        // limit, and nothing changes that.
        return Saving { pages_shared: 1, pages_sharing: mappings - 1, saved_bytes: 0 };
    }
    let limit = u64::from(rules.max_page_sharing.max(2));
    let (q, r) = (mappings / limit, mappings % limit);
    let pages_shared = q + u64::from(r >= 2);
    let unmerged = u64::from(r == 1);
    Saving {
        pages_shared,
        pages_sharing: mappings - pages_shared - unmerged,
        saved_bytes: frames.saturating_sub(pages_shared + unmerged) * PAGE,
    }
}

/// All contents together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) distinct: u64,
    pub(super) zero: u64,
    pub(super) across: Saving,
    pub(super) per_node: Saving,
    pub(super) nodes: Vec<NodeSaving>,
    pub(super) flows: Vec<Flow>,
}

/// Adds up a table; `zero` is the content of a page of zeros.
pub(super) fn sums(table: &Table, zero: u128, rules: Rules) -> Sums {
    let mut sums = Sums::default();
    let mut nodes: BTreeMap<u16, NodeSaving> = BTreeMap::new();
    for entry in table.entries().filter(|e| e.mappings > 0) {
        let here = saving(Group::of(entry, zero), rules);
        let node = nodes.entry(entry.key().node()).or_default();
        node.node = entry.key().node();
        node.pages_scanned += u64::from(entry.mappings);
        node.saving += here;
        sums.per_node += here;
        if entry.key().content() == zero {
            sums.zero += u64::from(entry.mappings);
        }
    }
    // In 2^-32 pages: whole numbers add up to the same in whatever order threads met
    // the contents.
    let mut flows: BTreeMap<(u16, u16), u128> = BTreeMap::new();
    let single = nodes.len() < 2;
    for entry in table.entries().filter(|e| e.mappings > 0) {
        if single {
            sums.distinct += 1;
            sums.across += saving(Group::of(entry, zero), rules);
            continue;
        }
        let parts = on_all_nodes(table, entry);
        // Each content once: with its entry on the lowest node.
        if parts.iter().any(|(node, _)| *node < entry.key().node()) {
            continue;
        }
        sums.distinct += 1;
        let whole = whole(&parts, zero);
        let merged = saving(whole, rules);
        sums.across += merged;
        if merged.pages_sharing > 0 {
            // The page scanned later gives its frame: each one is as likely.
            for (to, on) in &parts {
                for (from, of) in parts.iter().filter(|(from, _)| from != to) {
                    let pairs = u128::from(of.mappings) * u128::from(on.mappings);
                    *flows.entry((*from, *to)).or_default() +=
                        (pairs << 32) / u128::from(whole.mappings);
                }
            }
        }
    }
    sums.nodes = nodes.into_values().collect();
    // Rounded to whole pages.
    let flow = |((from, to), pages)| Flow { from, to, pages: ((pages + (1 << 31)) >> 32) as u64 };
    sums.flows = flows.into_iter().map(flow).collect();
    sums
}

/// Entries of an entry's content, with their nodes.
fn on_all_nodes<'t>(table: &'t Table, entry: &Entry) -> Vec<(u16, &'t Entry)> {
    let mut parts = Vec::new();
    table.on_all_nodes(entry.key(), |id| {
        let part = table.entry(id);
        if part.mappings > 0 {
            parts.push((part.key().node(), part));
        }
    });
    parts.sort_by_key(|(node, _)| *node);
    parts
}

fn whole(parts: &[(u16, &Entry)], zero: u128) -> Group {
    parts.iter().map(|(_, e)| Group::of(e, zero)).fold(Group::default(), Group::with)
}

/// A process' part of what is saved, merged across nodes: of each content's saving
/// as large a part as it has of its mappings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    pub(super) zero: u64,
    /// Pages that would become or are KSM pages or the page of zeros.
    pub(super) mergeable: u64,
    /// In 2^-20 bytes.
    saved: u128,
}

impl Share {
    /// Adds so many of its pages of one content.
    ///
    /// * `nodes` – number of nodes that pages were found on.
    pub(super) fn add(
        &mut self,
        table: &Table,
        (id, pages): (u32, u32),
        zero: u128,
        rules: Rules,
        nodes: usize,
    ) {
        let entry = table.entry(id);
        let pages = u64::from(pages);
        let group = if nodes < 2 {
            Group::of(entry, zero)
        } else {
            whole(&on_all_nodes(table, entry), zero)
        };
        let merged = saving(group, rules);
        self.zero += u64::from(group.zero) * pages;
        let gone = group.zero && rules.use_zero_pages;
        self.mergeable += u64::from(gone || merged.pages_shared > 0) * pages;
        let saved = u128::from(merged.saved_bytes) << 20;
        self.saved += saved * u128::from(pages) / u128::from(group.mappings.max(1));
    }
}

/// Whole bytes of each share, so that they add up to `total`: what rounding has
/// lost goes to the largest.
pub(super) fn whole_bytes(shares: &[Share], total: u64) -> Vec<u64> {
    let mut bytes: Vec<u64> = shares.iter().map(|s| (s.saved >> 20) as u64).collect();
    let lost = total.saturating_sub(bytes.iter().sum());
    if let Some(largest) = bytes.iter_mut().max() {
        *largest += lost;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::table::{Frame, Key};
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    const ZERO: u128 = 0xabc << 64;

    fn rules(max_page_sharing: u32, use_zero_pages: bool) -> Rules {
        Rules { max_page_sharing, use_zero_pages }
    }

    /// `CONTENT:NODE:MAPPINGS[/FRAMES][m]`, separated by blanks; content 0 is zeros,
    /// m a KSM page.
    fn table(text: &str) -> Table {
        let mut table = Table::new();
        for word in text.split_ascii_whitespace() {
            let merged = word.ends_with('m');
            let numbers: Vec<u64> =
                word.trim_end_matches('m').split([':', '/']).map(|n| n.parse().unwrap()).collect();
            let frames = numbers.get(3).copied().unwrap_or(numbers[2]);
            let content = if numbers[0] == 0 { ZERO } else { u128::from(numbers[0]) << 70 };
            let id = table.find_or_insert(Key::new(content, numbers[1] as u16)).unwrap();
            for i in 0..numbers[2] {
                let frame = if i < frames { Frame::New } else { Frame::Seen };
                table.entry_mut(id).count(frame, merged);
            }
        }
        table
    }

    fn check(text: &str, rules: Rules, expected: Expect) {
        let s = sums(&table(text), ZERO, rules);
        let line = |s: Saving| {
            format!(
                "{} shared, {} sharing, {} frames saved",
                s.pages_shared,
                s.pages_sharing,
                s.saved_bytes / 4096
            )
        };
        let mut out = format!(
            "{} distinct, {} zero\nacross   {}\nper node {}\n",
            s.distinct,
            s.zero,
            line(s.across),
            line(s.per_node)
        );
        for n in &s.nodes {
            out += &format!("  node {}: {} pages, {}\n", n.node, n.pages_scanned, line(n.saving));
        }
        for f in &s.flows {
            out += &format!("  {} pages of node {} on node {}\n", f.pages, f.from, f.to);
        }
        expected.assert_eq(&out);
    }

    #[test]
    fn chains_follow_the_limit() {
        // Vectors of specs/ksm.md#chains: N identical, limit M, shared, sharing, unmerged.
        for (n, m, shared, sharing, unmerged) in [
            (3, 2, 1, 1, 1),
            (4, 2, 2, 2, 0),
            (6, 3, 2, 4, 0),
            (258, 256, 2, 256, 0),
            (300, 7, 43, 257, 0),
            (256, 256, 1, 255, 0),
            (257, 256, 1, 255, 1),
            (2, 256, 1, 1, 0),
            (1, 256, 0, 0, 1),
        ] {
            let group = Group { mappings: n, frames: n, ..Group::default() };
            let s = saving(group, rules(m, false));
            assert_eq!((s.pages_shared, s.pages_sharing), (shared, sharing), "{n} {m}");
            assert_eq!(n - s.pages_shared - s.pages_sharing, unmerged, "{n} {m}");
            assert_eq!(s.saved_bytes, sharing * 4096, "{n} {m}");
        }
    }

    #[test]
    fn one_node() {
        check(
            "0:0:10 1:0:3 2:0:1",
            rules(256, false),
            expect![[r#"
            3 distinct, 10 zero
            across   2 shared, 11 sharing, 11 frames saved
            per node 2 shared, 11 sharing, 11 frames saved
              node 0: 14 pages, 2 shared, 11 sharing, 11 frames saved
        "#]],
        );
    }

    #[test]
    fn pages_of_zeros_may_all_go() {
        check(
            "0:0:10 1:0:3",
            rules(256, true),
            expect![[r#"
            2 distinct, 10 zero
            across   1 shared, 2 sharing, 12 frames saved
            per node 1 shared, 2 sharing, 12 frames saved
              node 0: 13 pages, 1 shared, 2 sharing, 12 frames saved
        "#]],
        );
    }

    #[test]
    fn a_merged_page_that_forks_map_beyond_the_limit_stays_one() {
        check(
            "1:0:10/1m 2:0:7",
            rules(5, false),
            expect![[r#"
                2 distinct, 0 zero
                across   3 shared, 14 sharing, 5 frames saved
                per node 3 shared, 14 sharing, 5 frames saved
                  node 0: 17 pages, 3 shared, 14 sharing, 5 frames saved
            "#]],
        );
    }

    #[test]
    fn forked_pages_are_not_merged_with_themselves_but_with_others() {
        check(
            "1:0:5/1 2:0:5/2 3:0:4/1m",
            rules(256, false),
            expect![[r#"
            3 distinct, 0 zero
            across   2 shared, 7 sharing, 1 frames saved
            per node 2 shared, 7 sharing, 1 frames saved
              node 0: 14 pages, 2 shared, 7 sharing, 1 frames saved
        "#]],
        );
    }

    #[test]
    fn what_only_merging_across_nodes_saves() {
        check(
            "1:0:3 1:1:1 2:0:1 2:1:1 3:1:2",
            rules(256, false),
            expect![[r#"
            3 distinct, 0 zero
            across   3 shared, 5 sharing, 5 frames saved
            per node 2 shared, 3 sharing, 3 frames saved
              node 0: 4 pages, 1 shared, 2 sharing, 2 frames saved
              node 1: 4 pages, 1 shared, 1 sharing, 1 frames saved
              1 pages of node 0 on node 1
              1 pages of node 1 on node 0
        "#]],
        );
    }

    proptest! {
        /// Threads put contents into the table in any order.
        #[test]
        fn sums_do_not_depend_on_the_order_of_contents(
            groups in prop::collection::vec((0u64..30, 0u16..3, 1u64..20, 1u64..20), 1..40),
        ) {
            let mut words: Vec<String> =
                groups.iter().map(|(c, n, m, f)| format!("{c}:{n}:{m}/{}", f.min(m))).collect();
            let one = sums(&table(&words.join(" ")), ZERO, rules(256, false));
            words.reverse();
            prop_assert_eq!(sums(&table(&words.join(" ")), ZERO, rules(256, false)), one);
        }

        #[test]
        fn saving_never_exceeds_duplicates_and_sums_add_up(
            groups in prop::collection::vec((0u64..30, 0u16..3, 1u64..20, 1u64..20), 1..40),
            limit in 2u32..20,
            zero in any::<bool>(),
        ) {
            let text: Vec<String> =
                groups.iter().map(|(c, n, m, f)| format!("{c}:{n}:{m}/{}", f.min(m))).collect();
            let t = table(&text.join(" "));
            let rules = rules(limit, zero);
            let s = sums(&t, ZERO, rules);
            let scanned: u64 = groups.iter().map(|g| g.2).sum();
            prop_assert_eq!(s.nodes.iter().map(|n| n.pages_scanned).sum::<u64>(), scanned);
            let zeros = if zero { s.zero } else { 0 };
            for saving in [s.across, s.per_node] {
                prop_assert!(saving.pages_shared + saving.pages_sharing + zeros <= scanned);
                prop_assert!(saving.saved_bytes / 4096 <= saving.pages_sharing + zeros);
            }
            let distinct_frames: u64 = t.entries().map(|e| u64::from(e.frames())).sum();
            // One frame of each content stays, but for zeros.
            let kept = s.distinct - u64::from(zero && s.zero > 0);
            prop_assert!(s.across.saved_bytes / 4096 <= distinct_frames - kept);
            let mut nodes = Saving::default();
            s.nodes.iter().for_each(|n| nodes += n.saving);
            prop_assert_eq!(nodes, s.per_node);
            // Every page is somebody's: with shares for all, nothing is lost.
            let mut shares = [Share::default(), Share::default()];
            for id in 0..t.len() as u32 {
                for i in 0..t.entry(id).mappings {
                    shares[(i % 2) as usize].add(&t, (id, 1), ZERO, rules, s.nodes.len());
                }
            }
            let bytes = whole_bytes(&shares, s.across.saved_bytes);
            prop_assert_eq!(bytes.iter().sum::<u64>(), s.across.saved_bytes);
            prop_assert_eq!(shares.iter().map(|s| s.zero).sum::<u64>(), s.zero);
        }
    }
}
