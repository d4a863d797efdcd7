//! What zoneinfo says, and what becomes of it when it is damaged.

use super::*;
use crate::people::corpus::{corpus, damaged};
use expect_test::{Expect, expect};
use homenode_fixtures::Folder;
use proptest::prelude::*;
use std::fmt::Write;

const MOVABLE: &[u8] = include_bytes!("../../tests/fixtures/proc/7.3/zoneinfo.movable");
static TEXTS: [&[u8]; 4] = {
    let [a, b, c] = corpus!("zoneinfo");
    [a, b, c, MOVABLE]
};

/// A line for each node.
fn told(text: &[u8]) -> String {
    let root = root(text);
    let nodes = Zoneinfo::new(&root).look();
    let mut out = String::new();
    for (node, zones) in nodes.unwrap() {
        write!(out, "node {node}").unwrap();
        for ZoneSeen { free, marks: m } in zones {
            let marks = [m.min, m.low, m.high, m.promo].map(|p| p.0.to_string()).join(" ");
            let (kind, free, managed, reserve) = (m.kind, free.0, m.managed.0, m.reserve.0);
            write!(out, " | {kind:?} {free} of {managed}: {marks}, reserve {reserve}").unwrap();
        }
        out.push('\n');
    }
    out
}

fn root(text: &[u8]) -> Folder {
    Folder::new().with("proc/zoneinfo", text)
}

fn check(text: &[u8], expected: Expect) {
    expected.assert_eq(&told(text));
}

/// Three nodes with memory, one of them without CPUs, and one with a CPU only.
#[test]
fn each_kernel_tells_its_nodes() {
    let [k6_1, k6_12, k7_3] = corpus!("zoneinfo");
    check(
        k6_1,
        expect![[r#"
        node 0 | Dma32 118376 of 124819: 6147 7683 9219 10755, reserve 0 | Dma 3776 of 3840: 189 236 283 330, reserve 487
        node 1 | Dma32 90215 of 96663: 4760 5950 7140 8330, reserve 0
        node 2
        node 3 | Dma32 51674 of 55970: 2756 3445 4134 4823, reserve 0
    "#]],
    );
    check(
        k6_12,
        expect![[r#"
        node 0 | Dma32 108452 of 115402: 5688 7110 8532 9954, reserve 0 | Dma 3776 of 3840: 189 236 283 330, reserve 443
        node 1 | Dma32 91154 of 96659: 4764 5955 7146 8337, reserve 0
        node 2
        node 3 | Dma32 57951 of 64062: 3157 3946 4735 5524, reserve 0
    "#]],
    );
    check(
        k7_3,
        expect![[r#"
        node 0 | Dma32 118423 of 124817: 6151 7688 9225 10762, reserve 0 | Dma 3776 of 3840: 189 236 283 330, reserve 487
        node 1 | Dma32 77241 of 85750: 4226 5282 6338 7394, reserve 0
        node 2
        node 3 | Dma32 59665 of 64064: 3157 3946 4735 5524, reserve 0
    "#]],
    );
}

/// What a zone keeps is for those who could have taken a higher one, movable memory
/// included.
#[test]
fn movable_memory_stands_above_the_others() {
    check(
        MOVABLE,
        expect![[r#"
        node 0 | Movable 242861 of 245649: 128 1335 2542 3749, reserve 0 | Normal 255147 of 262144: 5156 6445 7734 9023, reserve 7676 | Dma32 503044 of 503776: 9908 12385 14862 17339, reserve 1983 | Dma 3584 of 3840: 75 93 111 129, reserve 3951
        node 1 | Normal 363444 of 375598: 7387 9233 11079 12925, reserve 0
    "#]],
    );
}

/// What the simulated kernel shows, once as 7.3 and once as 3.8.
#[test]
fn the_simulated_kernels_file_is_one() {
    let new = "Node 0, zone    DMA32\n  per-node stats\n      nr_inactive_anon 3000\n  pages free     \
               2048\n        boost    0\n        min      52\n        low      65\n        high     78\n        \
               promo    91\n        spanned  2048\n        present  2048\n        managed  2048\n        \
               cma      0\n        protection: (0, 0, 16, 20, 20)\n      nr_free_pages 2048\n";
    let old = "Node 0, zone    DMA32\n  pages free     2048\n        min      52\n        low      65\n        \
               high     78\n        spanned  2048\n        present  2048\n        managed  2048\n        \
               protection: (0, 0, 16, 20)\n      nr_free_pages 2048\n";
    let line = "node 0 | Dma32 2048 of 2048: 52 65 78 91, reserve 20\n";
    assert_eq!((told(new.as_bytes()).as_str(), told(old.as_bytes()).as_str()), (line, line));
}

#[test]
fn a_node_that_went_offline_is_told_no_more() {
    let text = String::from_utf8_lossy(MOVABLE);
    let second = text.find("Node 1").unwrap();
    assert!(!told(&text.as_bytes()[..second]).contains("node 1"));
}

#[test]
fn this_machine_has_zones() {
    let nodes = Zoneinfo::new(Path::new("/")).look().unwrap();
    let zones: Vec<_> = nodes.iter().flat_map(|(_, zones)| zones).collect();
    assert!(!zones.is_empty());
    for z in zones {
        let m = &z.marks;
        assert!(m.min <= m.low && m.low <= m.high && m.high <= m.promo, "{z:?}");
    }
}

#[test]
fn what_is_no_list_of_zones_is_an_error() {
    for text in ["", "MemTotal: 1 kB\n", "Node x, zone DMA\n", "Node 0, zone DMA\n  min x\n"] {
        assert_eq!(parse(text), None, "{text:?}");
        let root = root(text.as_bytes());
        let error = Zoneinfo::new(&root).look().unwrap_err().to_string();
        assert!(error.contains("proc/zoneinfo is no list of zones"), "{error}");
    }
    let error = Zoneinfo::new(Path::new("/no/such/root")).look().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

fn zone() -> impl Strategy<Value = ZoneView> {
    let kind = prop::sample::select(vec![
        Some(ZoneKind::Dma),
        Some(ZoneKind::Dma32),
        Some(ZoneKind::Normal),
        Some(ZoneKind::Movable),
        None,
    ]);
    let numbers = (any::<[u64; 7]>(), any::<Option<u64>>());
    (any::<u16>(), kind, numbers).prop_map(|(node, kind, (n, promo))| ZoneView {
        node: NodeId(node),
        kind,
        free: n[0],
        min: n[1],
        low: n[2],
        high: n[3],
        promo,
        present: n[4],
        managed: n[5],
        reserve: n[6],
    })
}

/// As the kernel writes it, with what is not read between.
fn written(v: &ZoneView) -> String {
    let name = match v.kind {
        Some(ZoneKind::Dma) => "DMA",
        Some(ZoneKind::Dma32) => "DMA32",
        Some(ZoneKind::Normal) => "Normal",
        Some(ZoneKind::Movable) => "Movable",
        None => "Device",
    };
    let ZoneView { node, free, min, low, high, present, managed, reserve, .. } = v;
    let promo = v.promo.map(|p| format!("        promo    {p}\n")).unwrap_or_default();
    format!(
        "Node {node}, zone {name:>8}\n  per-node stats\n      nr_dirty     3\n  pages free     {free}\n        \
         boost    0\n        min      {min}\n        low      {low}\n        high     {high}\n\
         {promo}        spanned  9\n        present  {present}\n        managed  {managed}\n        \
         protection: (0, 77, {reserve})\n  pagesets\n    cpu: 0\n              high:     5\n"
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(zones in prop::collection::vec(zone(), 1..6)) {
        let text: String = zones.iter().map(written).collect();
        prop_assert_eq!(parse(&text), Some(zones.clone()));
        for zone in &zones {
            let seen = zone.seen(16);
            prop_assert_eq!(seen.is_some(), zone.managed > 0 && zone.kind.is_some());
        }
    }
    #[test]
    fn damaged_lists_never_panic(text in damaged(&TEXTS)) {
        if let Some(views) = parse(&String::from_utf8_lossy(&text)) {
            assert!(views.iter().filter_map(|view| view.seen(1)).count() <= views.len());
        }
    }
}
