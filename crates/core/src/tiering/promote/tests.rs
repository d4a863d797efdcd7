use super::*;
use crate::kernel::KernelVersion;

const K: PromoteKnobs =
    PromoteKnobs { hot_threshold_ms: 1000, scan_period_max_ms: 60000, rate_limit_mbps: 65536 };
const TO: NodeId = NodeId(0);

fn hit(node: &mut PromoteNode, now: u32, latency: u32, n: u64, k: PromoteKnobs) -> Verdict {
    let mut page = AccessTime::new(now.wrapping_sub(latency));
    let v = node.decide(TO, now, false, &mut page, Pages(n), k);
    assert_eq!(page, AccessTime::new(now), "the stored time becomes now");
    v
}
const HOT: Verdict = Verdict::Move { to: TO, why: Why::Hot };
const COLD: Verdict = Verdict::Stay { why: Why::Cold };
const LIMITED: Verdict = Verdict::Stay { why: Why::RateLimited };

// specs/tiering.md#access-time: ms modulo 2^21; after 2097 s an old page looks new.
#[test]
fn access_time() {
    let t = AccessTime::new(5);
    assert_eq!(AccessTime::BITS, 21);
    assert_eq!((t.latency_ms(1005), t.latency_ms(5 + (1 << 21) + 7)), (1000, 7));
    assert_eq!(AccessTime::new(u32::MAX).latency_ms(9), 10);
    // Crossing tiers sets all ones, which from here on is merely a time.
    assert_eq!(AccessTime::from_bits(u32::MAX).bits(), (1 << 21) - 1);
}

// specs/tiering.md#promotion, step 1: plenty of room promotes without looking at the time.
#[test]
fn room() {
    let mut node = PromoteNode { threshold_ms: 500, ..Default::default() };
    let mut page = AccessTime::new(7);
    let v = node.decide(TO, 1_000_000, true, &mut page, Pages(3), K);
    assert_eq!(v, Verdict::Move { to: TO, why: Why::FastNodeHasRoom });
    assert_eq!((page, node.threshold_ms, node.nr_candidates), (AccessTime::new(7), 0, 0));
    assert_eq!(node.nr_candidates_unlimited, 3);
    assert_eq!(plenty(Pages(1)), Pages(262_144));
    assert_eq!(plenty(Pages(16 << 20)), Pages(1 << 20));
}

// specs/tiering.md#promotion, step 3: latency >= threshold is cold.
#[test]
fn latency() {
    let mut node = PromoteNode { threshold_start_ms: 5000, ..Default::default() };
    assert_eq!(hit(&mut node, 5000, 999, 1, K), HOT);
    assert_eq!(hit(&mut node, 5000, 1000, 1, K), COLD);
    assert_eq!(node.nr_candidates, 1, "cold pages are no candidates");
}

// specs/tiering.md#threshold: by default 125 ms steps, 8 of them up to 2000.
#[test]
fn threshold_climbs() {
    let mut node = PromoteNode::default();
    let mut seen = vec![];
    for i in 1..=10 {
        hit(&mut node, i * 60001, 1, 1, K);
        seen.push(node.threshold_ms);
    }
    assert_eq!(seen, [1125, 1250, 1375, 1500, 1625, 1750, 1875, 2000, 2000, 2000]);
    // Not before more than scan_period_max_ms have passed.
    let mut node = PromoteNode::default();
    hit(&mut node, 60000, 1, 1, K);
    assert_eq!(node.threshold_ms, 0);
}

// specs/tiering.md#threshold: more than 1.1 of the reference lowers, at least to one step.
#[test]
fn threshold_falls() {
    let k = PromoteKnobs { rate_limit_mbps: 1, ..K }; // 256 pages/s, 15360 a period
    let mut node = PromoteNode::default();
    let mut seen = vec![];
    for i in 1..=9 {
        node.nr_candidates += 15360 * 11 / 10 + 1;
        node.adjust(i * 60001, k);
        seen.push(node.threshold_ms);
    }
    assert_eq!(seen, [875, 750, 625, 500, 375, 250, 125, 125, 125]);
    for (candidates, th) in [(16896, 1000), (13824, 1000), (16897, 875), (13823, 1125)] {
        let mut node = PromoteNode { nr_candidates: candidates, ..Default::default() };
        node.adjust(60001, k);
        assert_eq!(node.threshold_ms, th, "{candidates}");
        assert_eq!(node.threshold_base, candidates);
    }
}

// specs/tiering.md#rate: candidates count even if refused; a window's first folio is free; rate 0
// refuses all.
#[test]
fn rate() {
    let k = PromoteKnobs { rate_limit_mbps: 1, ..K };
    let mut node = PromoteNode { rate_start_ms: 0, threshold_start_ms: 1001, ..Default::default() };
    assert_eq!(hit(&mut node, 1001, 1, 512, k), HOT, "the first is free, however large");
    assert_eq!(hit(&mut node, 1001, 1, 255, k), HOT);
    assert_eq!(hit(&mut node, 1500, 1, 1, k), LIMITED);
    assert_eq!(hit(&mut node, 2001, 1, 1, k), LIMITED, "1000 ms are not more than 1000 ms");
    assert_eq!(node.nr_candidates, 769);
    assert_eq!(hit(&mut node, 2002, 1, 1, k), HOT);
    let none = PromoteKnobs { rate_limit_mbps: 0, ..K };
    assert_eq!(hit(&mut node, 9000, 1, 1, none), LIMITED);
}

// specs/tiering.md#rate: 32-bit shift: 16777216 MB/s is 0 pages, ...17 is 256.
#[test]
fn rate_wraps() {
    let rate = |mbps| PromoteKnobs { rate_limit_mbps: mbps, ..K }.rate_pages();
    assert_eq!([rate(65536), rate(16_777_215)], [16_777_216, 4_294_967_040]);
    assert_eq!([rate(16_777_216), rate(16_777_217)], [0, 256]);
}

// specs/tiering.md#bits: switching tiering on resets threshold, base and start.
#[test]
fn reset() {
    let mut node = PromoteNode {
        threshold_ms: 9,
        nr_candidates: 77,
        threshold_start_ms: 1,
        ..Default::default()
    };
    node.reset(5);
    assert_eq!((node.threshold_ms, node.threshold_base, node.threshold_start_ms), (0, 77, 5));
    assert_eq!(PromoteKnobs::of(&Knobs::new(KernelVersion::V6_12)), K);
}

proptest::proptest! {
    // The threshold stays in [unit, 2·hot] whatever comes.
    #[test]
    fn threshold_stays(
        hot in 8u32..100_000, rate in 0u32..20, period in 1u32..2000,
        steps in proptest::collection::vec((0u32..200_000, 0u32..5000, 1u64..100_000), 1..60),
    ) {
        let k = PromoteKnobs { hot_threshold_ms: hot, scan_period_max_ms: period, rate_limit_mbps: rate };
        let (mut node, mut now) = (PromoteNode::default(), 0u32);
        let unit = 2 * hot / 16;
        for (dt, latency, n) in steps {
            now = now.wrapping_add(dt);
            hit(&mut node, now, latency, n, k);
            let th = node.threshold(k);
            proptest::prop_assert!((unit..=2 * hot).contains(&th), "{th}");
        }
    }

    // Beyond its first folio, no window of a second promotes more than the rate.
    #[test]
    fn rate_holds(rate in 1u32..50, sizes in proptest::collection::vec((0u32..40, 1u64..600), 1..300)) {
        let k = PromoteKnobs { rate_limit_mbps: rate, ..K };
        let mut node = PromoteNode { rate_start_ms: 10_000, threshold_start_ms: 10_000, ..Default::default() };
        let (mut now, mut window, mut promoted, mut first) = (10_000u32, 10_000u32, 0u64, 0u64);
        for (dt, n) in sizes {
            now += dt;
            let moved = hit(&mut node, now, 0, n, k) == HOT;
            if node.rate_start_ms != window {
                (window, promoted, first) = (node.rate_start_ms, 0, n);
            }
            if moved {
                promoted += n;
            }
            proptest::prop_assert!(promoted < first + k.rate_pages().max(1));
        }
    }
}
