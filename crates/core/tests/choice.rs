//! Which source of heat is used, and what is said to be missing.

use homenode_core::policy::choice::{Because, Choice, cell, choose, lacks};
use homenode_core::policy::facts::{DamonFacts, Facts, HintFacts, Known, Lack, Sampling};
use homenode_core::policy::matrix::{Decision, Quality};
use homenode_core::policy::seen::Source;

/// Two sockets with everything.
fn all() -> Facts {
    let damon = DamonFacts {
        sysfs: Known::Yes,
        vaddr: Known::Yes,
        may: Known::Yes,
        ..DamonFacts::default()
    };
    let hints = HintFacts {
        built: Known::Yes,
        mode: Some(1),
        btf: Known::Yes,
        bpf: Known::Yes,
        may: Known::Yes,
        function: Known::Yes,
    };
    Facts {
        memory_nodes: 2,
        slow_nodes: 0,
        lower_nodes: 0,
        cpu_nodes: 2,
        damon,
        hints,
        pmu: Sampling::Opens,
    }
}

#[test]
fn what_is_open_on_a_machine_decides() {
    // nodes with memory, slow ones, nodes with CPUs; then without a PMU
    let cases = [
        // One node: heat only, and DAMON's cost is bounded.
        ((1, 0, 1), Source::Damon, Source::Damon),
        // Two sockets: who accesses. DAMON doesn't know.
        ((2, 0, 2), Source::Pmu, Source::HintFault),
        // A slow node without CPUs: what is cold.
        ((2, 1, 1), Source::Damon, Source::Damon),
        // Both count alike.
        ((3, 1, 2), Source::Damon, Source::Damon),
    ];
    for ((memory_nodes, slow_nodes, cpu_nodes), with, without) in cases {
        let facts = Facts { memory_nodes, slow_nodes, cpu_nodes, ..all() };
        assert_eq!(choose(&facts).source, with, "{facts:?}");
        let facts = Facts { pmu: Sampling::NoDevice, ..facts };
        assert_eq!(choose(&facts).source, without, "{facts:?}");
    }
}

#[test]
fn nothing_is_chosen_on_a_guess() {
    let none = choose(&Facts::default());
    assert_eq!(none, Choice { source: Source::Residency, why: Because::NoHeat });
    assert!(none.to_string().starts_with("residency only"));
    let unseen = Facts { damon: DamonFacts { vaddr: Known::Unseen, ..all().damon }, ..all() };
    assert_eq!(lacks(Source::Damon, &unseen), [Lack::BuiltUnseen("CONFIG_DAMON_VADDR")]);
    let only = Facts { memory_nodes: 1, pmu: Sampling::Refused, ..all() };
    assert_eq!(choose(&only).why, Because::OnlyOne);
}

#[test]
fn each_lack_is_found() {
    let damon = |change: fn(&mut DamonFacts)| {
        let mut facts = all();
        change(&mut facts.damon);
        lacks(Source::Damon, &facts)
    };
    assert_eq!(damon(|_| ()), []);
    assert_eq!(damon(|d| d.sysfs = Known::No), [Lack::NotBuilt("CONFIG_DAMON_SYSFS")]);
    assert_eq!(damon(|d| d.may = Known::Unseen), [Lack::NotAdmin]);
    assert_eq!(damon(|d| d.slots = 1), [Lack::SlotTaken { slots: 1, running: 0 }]);
    assert_eq!(damon(|d| d.running = 1), [Lack::SlotTaken { slots: 0, running: 1 }]);
    assert_eq!(damon(|d| d.module = true), [Lack::ModuleHolds]);

    let hints = |change: fn(&mut Facts)| {
        let mut facts = all();
        change(&mut facts);
        lacks(Source::HintFault, &facts)
    };
    assert_eq!(hints(|_| ()), []);
    assert_eq!(hints(|f| f.hints.mode = Some(0)), [Lack::BalancingOff]);
    assert_eq!(hints(|f| f.hints.mode = None), [Lack::ModeUnseen]);
    assert_eq!(hints(|f| f.hints.mode = Some(2)), [Lack::NothingSlow]);
    assert_eq!(hints(|f| (f.hints.mode, f.lower_nodes) = (Some(2), 1)), []);
    // Slow, but 6.1 has nodes without CPUs in its top tier.
    let same_tier = hints(|f| (f.hints.mode, f.slow_nodes) = (Some(2), 1));
    assert_eq!(same_tier, [Lack::NothingSlow]);
    assert_eq!(hints(|f| f.memory_nodes = 1), [Lack::OneNode]);
    assert_eq!(hints(|f| f.hints.may = Known::No), [Lack::NoBpf]);
    assert_eq!(hints(|f| f.hints.function = Known::No), [Lack::NoFunction]);
    // Not seen, as where addresses are hidden: BTF resolves it when it is needed.
    assert_eq!(hints(|f| f.hints.function = Known::Unseen), []);
    assert_eq!(hints(|f| f.hints.btf = Known::No), [Lack::NotBuilt("CONFIG_DEBUG_INFO_BTF")]);
    let unbuilt = hints(|f| (f.hints.built, f.hints.mode) = (Known::No, None));
    assert_eq!(unbuilt, [Lack::NotBuilt("CONFIG_NUMA_BALANCING")]);

    for (pmu, lack) in [
        (Sampling::NoDevice, Lack::NoPmu),
        (Sampling::OwnForm, Lack::PmuForm),
        (Sampling::Refused, Lack::PerfRefused),
        (Sampling::Failed(95), Lack::PerfFailed(95)),
        (Sampling::Unseen, Lack::PerfUnseen),
    ] {
        assert_eq!(lacks(Source::Pmu, &Facts { pmu, ..all() }), [lack]);
        assert!(!lack.to_string().is_empty() && !lack.remedy().is_empty());
    }
    assert_eq!(lacks(Source::Residency, &Facts::default()), []);
}

#[test]
fn the_row_is_the_machine_s_own() {
    let of = |d, s, f: Facts| cell(d, s, &f).to_string();
    let one = Facts { cpu_nodes: 1, slow_nodes: 1, lower_nodes: 1, ..all() };
    assert_eq!(of(Decision::Accessor, Source::Damon, one), "exact since one node has all CPUs");
    let slow_only = Facts { hints: HintFacts { mode: Some(2), ..all().hints }, ..one };
    assert_eq!(
        of(Decision::Cold, Source::HintFault, slow_only),
        "unavailable: only lower tiers are scanned"
    );
    let none = Facts { pmu: Sampling::NoDevice, ..all() };
    for d in Decision::ALL {
        assert_eq!(cell(d, Source::Pmu, &none).quality, Quality::Unavailable);
    }
    assert_eq!(of(Decision::Heat, Source::Residency, all()), "unavailable");
}
