use super::*;
use crate::kernel::KernelVersion;
use crate::knobs::{HugePages, Knobs};
use crate::scale::Scale;
use crate::tiering::reclaim::Kswapd;
use AdmissionChoice::{A, B};

fn zone(kind: ZoneKind, managed: u64) -> Zone {
    Zone { kind, managed: Pages(managed) }
}

fn marks(min_free_kbytes: u64, margin: Margin) -> ZoneMarks {
    let z = zone(ZoneKind::Normal, 1_048_576);
    let k = MarkKnobs { min_free_kbytes, scale_factor: 10, lowmem: z.managed, margin };
    k.node(&[z])[0]
}

fn figures(m: ZoneMarks) -> [u64; 4] {
    [m.min.0, m.low.0, m.high.0, m.promo.0]
}

const ON: WakeFacts = WakeFacts { tiering: true, can_demote: true };
const OFF: WakeFacts = WakeFacts { tiering: false, can_demote: true };

// specs/tiering.md#watermarks: min/low/high/promo of one zone of 1048576 pages.
#[test]
fn vectors() {
    assert_eq!(figures(marks(8192, Margin::Kernel)), [2048, 3096, 4144, 5192]);
    assert_eq!(figures(marks(67584, Margin::Kernel)), [16896, 21120, 25344, 29568]);
}

// specs/tiering.md#watermarks; specs/seeds.md#s1: kswapd aims a little above high. The margins;
// 10 MiB = 2560 pages.
#[test]
fn margins() {
    assert_eq!(marks(8192, Margin::SeedQuarter).promo, Pages(4144 + 1036));
    assert_eq!(marks(8192, Margin::PostedQuarter).promo, Pages(4144 + 2560));
    assert_eq!(marks(67584, Margin::PostedQuarter).promo, Pages(25344 + 6336));
}

// specs/tiering.md#watermarks: isqrt(16·lowmem kB) in 128..262144, raised for huge pages.
#[test]
fn min_free() {
    assert_eq!(min_free_kbytes(Pages(1_048_576)), 8192);
    assert_eq!(min_free_kbytes(Pages(10)), 128);
    assert_eq!(min_free_kbytes(Pages(1 << 38)), 262_144);
    assert_eq!(huge_page_min_free_kbytes(3, Pages(1_048_576)), 67584);
    assert_eq!(huge_page_min_free_kbytes(3, Pages(20_000)), 4000);
    let zones = [
        zone(ZoneKind::Dma, 4_000),
        zone(ZoneKind::Dma32, 500_000),
        zone(ZoneKind::Normal, 544_576),
        zone(ZoneKind::Movable, 1 << 30),
    ];
    let mut k = Knobs::new(KernelVersion::V6_12);
    let kb = |k: &Knobs| MarkKnobs::new(k, Margin::Kernel, &zones).min_free_kbytes;
    assert_eq!(kb(&k), 67584);
    k.transparent_hugepage = HugePages::Never;
    assert_eq!(kb(&k), 8192);
    k.min_free_kbytes = Some(5000);
    k.transparent_hugepage = HugePages::Always;
    assert_eq!(kb(&k), 5000);
}

// A small machine keeps the share that the large one keeps, of which it is a part, and not a page less
// or more than a part of what the large one computes.
#[test]
fn a_part_of_a_machine_keeps_a_part() {
    let kb = |scale: u64, zones: &[Zone], thp: HugePages| {
        let scale = Scale::new(scale).expect("a scale");
        let mut k = Knobs::new(KernelVersion::V6_12).scaled(scale);
        k.transparent_hugepage = thp;
        MarkKnobs::new(&k, Margin::Kernel, zones)
    };
    let gib = |n: u64| n * 262_144;
    let full = [zone(ZoneKind::Dma32, gib(2)), zone(ZoneKind::Normal, gib(94))];
    for thp in [HugePages::Always, HugePages::Never] {
        let own = kb(1, &full, thp);
        for factor in [2, 16, 64, 256, 1024, 4096] {
            let small = full.map(|z| Zone { managed: Pages(z.managed.0 / factor), ..z });
            let part = kb(factor, &small, thp);
            assert_eq!(part.min_free_kbytes, own.min_free_kbytes / factor, "1:{factor}");
            let of_thousand = |m: &MarkKnobs, zones: &[Zone]| {
                let all: u64 = zones.iter().map(|z| z.managed.0).sum();
                m.kept(zones).0 * 1000 / all
            };
            let (a, b) = (of_thousand(&own, &full), of_thousand(&part, &small));
            assert!(a.abs_diff(b) <= 1, "1:{factor}: {a} and {b} thousandths");
        }
    }
    // Without a scale 256 MiB lose a tenth.
    let own = kb(1, &[zone(ZoneKind::Normal, 65_536)], HugePages::Always);
    assert_eq!(own.min_free_kbytes, 13_104);
    assert_eq!(own.kept(&[zone(ZoneKind::Normal, 65_536)]), Pages(5_733));
    // What is written is taken as it is.
    let mut k = Knobs::new(KernelVersion::V6_12).scaled(Scale::new(64).expect("a scale"));
    assert_eq!((k.scan_delay_ms, k.scan_period_min_ms, k.scan_period_max_ms), (15, 15, 937));
    assert_eq!((k.scan_size_mb, k.hot_threshold_ms), (10, 15));
    k.set("min_free_kbytes", "9000").expect("allowed");
    assert_eq!(MarkKnobs::new(&k, Margin::Kernel, &full).min_free_kbytes, 9000);
    // Times of a kernel without the knob are its own.
    let old = Knobs::new(KernelVersion::V5_18).scaled(Scale::new(64).expect("a scale"));
    assert_eq!((old.hot_threshold_ms, old.scan_period_min_ms), (1000, 15));
}

// specs/tiering.md#watermarks, reserve: the node's higher zones /256 for DMA and DMA32, /32 for
// NORMAL.
#[test]
fn reserves() {
    let zones = [
        zone(ZoneKind::Dma, 4096),
        zone(ZoneKind::Dma32, 512_000),
        zone(ZoneKind::Normal, 1_024_000),
        zone(ZoneKind::Movable, 64_000),
    ];
    let k = MarkKnobs {
        min_free_kbytes: 8192,
        scale_factor: 10,
        lowmem: Pages(1_540_096),
        margin: Margin::Kernel,
    };
    let r: Vec<u64> = k.node(&zones).iter().map(|m| m.reserve.0).collect();
    assert_eq!(r, [1_600_000 / 256, 1_088_000 / 256, 64_000 / 32, 0]);
    // A movable zone keeps a token amount, yet its distance is that of its share.
    let m = k.node(&zones)[3];
    assert_eq!((m.min.0, m.low.0 - m.min.0), (62, 64));
}

// A machine of movable zones only: marks follow the scale factor alone.
#[test]
fn movable_only() {
    let zones = [zone(ZoneKind::Movable, 1_000_000)];
    let k = MarkKnobs::new(&Knobs::new(KernelVersion::V6_12), Margin::Kernel, &zones);
    assert_eq!(figures(k.node(&zones)[0]), [128, 1128, 2128, 3128]);
}

// Admission of `n` pages to a zone with `free` pages.
//
// * Choice *b*: more than high must remain. Refused, kswapd is woken if tiering
//   is on (the posted margin: only where it can demote).
// * Choice *a*: the marks are ignored down to min.
//
// Source: specs/tiering.md#admission; specs/seeds.md#s1: choices a and b.
fn admit(
    free: Pages,
    marks: &ZoneMarks,
    n: Pages,
    choice: AdmissionChoice,
    margin: Margin,
    wake: WakeFacts,
) -> Admission {
    admit_node([(free, *marks)], n, choice, margin, wake)
}

// specs/tiering.md#admission, strict; specs/seeds.md#s1: the old mode stops at the high mark, (b)
// is taken over (a).
#[test]
fn admission() {
    let m = marks(8192, Margin::Kernel);
    let a = |free, n, choice, w| admit(Pages(free), &m, Pages(n), choice, Margin::Kernel, w);
    let wake = |wake_demotion| Admission::Refuse { wake_demotion };
    assert_eq!(a(4146, 1, B, ON), Admission::Admit { zone: 0, wake_demotion: false });
    assert_eq!(a(4145, 1, B, ON), wake(true));
    assert_eq!(a(4145, 1, B, OFF), wake(false), "no tiering, no wake-up");
    assert_eq!(a(4144 + 513, 512, B, ON), Admission::Admit { zone: 0, wake_demotion: false });
    assert_eq!(a(4144 + 512, 512, B, ON), wake(true));
    // (a) goes down to min, and wakes kswapd below low as an allocation does.
    assert_eq!(a(4145, 1, A, ON), Admission::Admit { zone: 0, wake_demotion: false });
    assert_eq!(a(3097, 1, A, ON), Admission::Admit { zone: 0, wake_demotion: true });
    assert_eq!(a(2050, 1, A, ON), Admission::Admit { zone: 0, wake_demotion: true });
    assert_eq!(a(2049, 1, A, ON), wake(true));
}

// specs/tiering.md#admission: some zone is enough; a zone's reserve counts.
#[test]
fn admission_to_a_node() {
    let m = marks(8192, Margin::Kernel);
    let low = ZoneMarks { reserve: Pages(1000), ..m };
    let a = |x, y| {
        admit_node([(Pages(x), low), (Pages(y), m)], Pages(1), B, Margin::Kernel, ON).is_admitted()
    };
    assert!(!a(5145, 4145) && a(5146, 0) && a(0, 4146));
    assert!(!admit_node([], Pages(1), B, Margin::Kernel, ON).is_admitted());
}

// specs/tiering.md#kswapd: balanced above promo with tiering on, above high otherwise; the posted
// mail only where the node can demote; MGLRU's abort asks all zones.
#[test]
fn balance() {
    let m = marks(8192, Margin::Kernel);
    let b =
        |free, margin, w| is_balanced([(Pages(free), m)], Pages(1), |m| balance_mark(m, margin, w));
    assert!(!b(5192, Margin::Kernel, ON) && b(5193, Margin::Kernel, ON));
    assert!(!b(4144, Margin::Kernel, OFF) && b(4145, Margin::Kernel, OFF));
    let stuck = WakeFacts { tiering: true, can_demote: false };
    assert!(!b(5192, Margin::Kernel, stuck) && b(4145, Margin::PostedQuarter, stuck));
    let abort = |x, y| mglru_aborts([(Pages(x), m), (Pages(y), m)], Margin::Kernel, ON);
    assert!(abort(5257, 5257) && !abort(5257, 5256));
    assert!(is_balanced([], Pages(1), |m| balance_mark(m, Margin::Kernel, ON)));
    // For a huge page 511 more.
    let huge =
        |free| is_balanced([(Pages(free), m)], Pages(512), |m| balance_mark(m, Margin::Kernel, ON));
    assert!(!huge(5192 + 511) && huge(5193 + 511));
}

// specs/tiering.md#promotion, step 1: more than promo and max(1 GiB, present/16) free.
#[test]
fn plenty_of_room() {
    let m = marks(8192, Margin::Kernel);
    let p = |free| has_plenty([(Pages(free), m)], Pages(1_048_576));
    assert!(!p(5192 + 262_144) && p(5193 + 262_144));
}

// specs/seeds.md#s1: woken on need, demotes what is cold: refusal, wake, demotion, success.
#[test]
fn blocked_promotion_succeeds_later() {
    let m = marks(8192, Margin::Kernel);
    let mut free = Pages(4100);
    let refused = admit(free, &m, Pages(1), B, Margin::Kernel, ON);
    assert_eq!(refused, Admission::Refuse { wake_demotion: true });
    let balanced =
        |free| is_balanced([(free, m)], Pages(1), |m| balance_mark(m, Margin::Kernel, ON));
    assert!(Kswapd::default().heeds_wakeup(balanced(free)));
    while !balanced(free) {
        free += Pages(32);
    }
    assert!(free > m.promo);
    assert!(admit(free, &m, Pages(1), B, Margin::Kernel, ON).is_admitted());
}

// specs/seeds.md#s1: under pressure promotion stops first: where an allocation still is
// above low (and min), a promotion is refused already.
#[test]
fn promotion_stops_before_allocation() {
    let m = marks(8192, Margin::Kernel);
    for free in (m.min.0..m.promo.0).map(Pages) {
        let promoted = admit(free, &m, Pages(1), B, Margin::Kernel, ON).is_admitted();
        assert!(!promoted || m.is_above(free, m.low + Pages(1)));
        assert_eq!(promoted, free > m.high + Pages(1));
    }
    // Under (a) promotions reach the region of direct reclaim.
    let last = Pages(m.min.0 + 2);
    assert!(admit(last, &m, Pages(1), A, Margin::Kernel, ON).is_admitted());
    assert!(!m.is_above(last, m.low));
}

proptest::proptest! {
    // min <= low <= high <= promo, whatever the machine and the knobs.
    #[test]
    fn marks_are_ordered(
        kb in 0u64..1 << 31, factor in 1u32..=3000, managed in 0u64..1 << 40, other in 0u64..1 << 40,
        kind in 0usize..4, margin in 0usize..3,
    ) {
        let kind = [ZoneKind::Dma, ZoneKind::Dma32, ZoneKind::Normal, ZoneKind::Movable][kind];
        let margin = [Margin::Kernel, Margin::SeedQuarter, Margin::PostedQuarter][margin];
        let k = MarkKnobs { min_free_kbytes: kb, scale_factor: factor, lowmem: Pages(managed + other), margin };
        let m = k.node(&[zone(kind, managed)])[0];
        proptest::prop_assert!(m.min <= m.low && m.low <= m.high && m.high <= m.promo);
    }

    // Under (b) an admitted promotion never leaves the zone at or below high, and a
    // refusal always wakes demotion while tiering is on.
    #[test]
    fn b_keeps_high(kb in 0u64..1 << 22, above in -600i64..1200, n in 1u64..=512) {
        let m = marks(kb, Margin::Kernel);
        let free = m.high.0.saturating_add_signed(above);
        match admit(Pages(free), &m, Pages(n), B, Margin::Kernel, ON) {
            Admission::Admit { .. } => proptest::prop_assert!(free - n > m.high.0),
            r => proptest::prop_assert!(r.wakes()),
        }
    }
}
