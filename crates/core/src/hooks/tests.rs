use super::*;
use crate::numa::filter::Why;
use crate::topology::ZoneKind;

fn marks() -> ZoneMarks {
    ZoneMarks {
        kind: ZoneKind::Normal,
        managed: Pages(100_000),
        min: Pages(100),
        low: Pages(200),
        high: Pages(300),
        promo: Pages(400),
        reserve: Pages(0),
    }
}

// specs/tiering.md#promotion: without a rule of one's own, the time since the scan decides.
#[test]
fn without_an_own_rule_linux_decides() {
    let knobs = PromoteKnobs::of(&crate::knobs::Knobs::new(KernelVersion::V6_12));
    let verdict = |after_ms: u32, plenty: bool| {
        let mut node = PromoteNode { threshold_start_ms: 10_000, ..PromoteNode::default() };
        let said = LinuxRules.hint_fault(&mut SlowFault {
            page: PageAt { space: 0, vpn: 7 },
            nr_pages: Pages(1),
            active: true,
            to: NodeId(0),
            now_ms: 10_000,
            field: AccessTime::new(10_000 - after_ms),
            plenty,
            knobs,
            node: &mut node,
        });
        assert!(!said.accessed, "Linux leaves the lists alone");
        said.verdict
    };
    let up = |why| Verdict::Move { to: NodeId(0), why };
    assert_eq!(verdict(999, false), up(Why::Hot));
    assert_eq!(verdict(1000, false), Verdict::Stay { why: Why::Cold });
    assert_eq!(verdict(1000, true), up(Why::FastNodeHasRoom));
    let page = |nr_accessed, referenced| InactivePage {
        page: PageAt { space: 0, vpn: 7 },
        file: false,
        nr_pages: Pages(1),
        nr_accessed,
        referenced,
        executable_file: false,
    };
    let inactive = |nr_accessed, referenced| LinuxRules.inactive(&page(nr_accessed, referenced));
    assert_eq!(inactive(0, true), Reference::Cold);
    assert_eq!(inactive(1, false), Reference::Keep);
    assert_eq!(inactive(1, true), Reference::Activate);
    assert!(!LinuxRules.wakes_kswapd(Pages(0), &marks(), true));
    assert_eq!(LinuxRules.next_split(), None);
}

// specs/seeds.md#s1, choice a: promotions go down to min; other moves stop above high.
#[test]
fn choice_a_lets_promotions_alone_below_high() {
    let entry = |promotion| Arrival {
        nr_pages: Pages(1),
        promotion,
        margin: Margin::Kernel,
        wake: WakeFacts { tiering: true, can_demote: true },
    };
    let asked = |choice: AdmissionChoice, free, promotion| {
        choice.hooks().admit(&mut [(Pages(free), marks())].into_iter(), &entry(promotion))
    };
    let (a, b) = (AdmissionChoice::A, AdmissionChoice::B);
    let refused = Admission::Refuse { wake_demotion: true };
    assert_eq!(asked(a, 250, true), Admission::Admit { zone: 0, wake_demotion: false });
    assert_eq!(asked(a, 250, false), refused);
    assert_eq!(asked(b, 250, true), refused);
    // The first zone that has room is named.
    let zones = [(Pages(90), marks()), (Pages(350), marks())];
    let found = b.hooks().admit(&mut zones.into_iter(), &entry(true));
    assert_eq!(found, Admission::Admit { zone: 1, wake_demotion: false });
}
