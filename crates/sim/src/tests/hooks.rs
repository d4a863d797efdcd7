//! Rules of one's own inside the kernel, each place alone: docs/decisions/0013-hooks.md.

use super::bench::{Bench, LISTS, kind};
use super::support::{access, cxl, dram, for_ms, machine, map, process, scenario, touch};
use crate::build::Setup;
use crate::lists::Lru;
use crate::page::{OnList, PROTNONE};
use crate::simulation::Simulation;
use crate::space::Kind;
use crate::vmstat::Item;
use homenode_core::hooks::{
    Hooks, InactivePage, MakeHooks, NewPage, PageAt, SampledAccess, SlowFault, SlowVerdict,
};
use homenode_core::numa::filter::{Verdict, Why};
use homenode_core::offcore::Offcore;
use homenode_core::scenario::{Margin, Mempolicy, Pattern, Step};
use homenode_core::tiering::reclaim::Reference;
use homenode_core::tiering::watermarks::{WakeFacts, ZoneMarks};
use homenode_core::units::{NodeId, Pages, Picos};

/// What these rules decide is what lists ask them.
const TIERED: [(&str, &str); 4] = [
    ("transparent_hugepage", "never"),
    ("numa_balancing", "2"),
    ("demotion_enabled", "true"),
    LISTS,
];

fn bench(hooks: MakeHooks) -> Bench {
    let knobs = super::support::knobs(&TIERED);
    let setup = Setup { hooks: Some(hooks), knobs, ..Setup::default() };
    Bench::with(&machine(&[dram(4096, 1), cxl(4096)]), setup)
}

#[test]
fn a_page_goes_up_at_the_third_fault_where_the_lists_decide() {
    struct ByList;
    impl Hooks for ByList {
        fn hint_fault(&mut self, f: &mut SlowFault<'_>) -> SlowVerdict {
            let verdict = match f.active {
                true => Verdict::Move { to: f.to, why: Why::Hot },
                false => Verdict::Stay { why: Why::Cold },
            };
            SlowVerdict { verdict, accessed: !f.active }
        }
    }
    let mut b = bench(|_, _| Box::new(ByList));
    let bound = Mempolicy::Bind { nodes: vec![NodeId(1)], balancing: false };
    let page = b.map(8, Kind { policy: bound, ..kind() });
    b.fill(page, 8);
    let vma = b.sim.kernel.spaces[b.space].as_mut().expect("it lives").vmas.last_mut();
    vma.expect("a mapping").kind.policy = Mempolicy::Default;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let word = b.word(page).with_state(PROTNONE);
        b.sim.kernel.memory.set_word(page, word);
        b.touch(page, false).expect("mapped");
        seen.push((b.word(page).on_list() == OnList::Active, b.node(page)));
    }
    assert_eq!(seen, [(false, 1), (true, 1), (true, 0)]);
    assert_eq!((b.stat(Item::Pgactivate), b.stat(Item::PgpromoteSuccess)), (1, 1));
    b.check();
}

#[test]
fn kswapd_frees_what_the_rule_aims_at_and_is_woken_by_an_allocation() {
    struct Half;
    impl Hooks for Half {
        fn aim(&self, marks: &ZoneMarks, _: Margin, _: WakeFacts) -> Pages {
            Pages(marks.managed.0 / 2)
        }
        fn wakes_kswapd(&mut self, free: Pages, marks: &ZoneMarks, can_demote: bool) -> bool {
            can_demote && free.0 <= marks.managed.0 / 2
        }
    }
    let mut b = bench(|_, _| Box::new(Half));
    let page = b.map(3000, kind());
    b.fill(page, 2047);
    assert_eq!(b.sim.kernel.woken, [0; 0], "more than half is free");
    b.fill(page + 2047, 953);
    assert_eq!(b.sim.kernel.woken, [0], "and of the slow node nobody is woken");
    b.kswapd(0);
    assert!(b.free(0) > 2048 && b.stat(Item::PgdemoteKswapd) > 900);
    b.check();
}

#[test]
fn new_pages_and_cold_ones_go_where_the_rules_say() {
    struct DownAndOut;
    impl Hooks for DownAndOut {
        fn new_page(&mut self, p: &NewPage) -> NodeId {
            if p.page.vpn % 2 == 0 { p.below.expect("a slow node") } else { p.local }
        }
        fn inactive(&mut self, p: &InactivePage) -> Reference {
            if p.page.vpn % 4 == 1 { Reference::Activate } else { Reference::Drop }
        }
    }
    let mut b = bench(|_, _| Box::new(DownAndOut));
    let page = b.map(3500, Kind { file: true, ..kind() });
    assert_eq!(b.fill(page, 3500), [1750, 1750]);
    // A policy that names nodes is not asked about.
    let bound = Mempolicy::Bind { nodes: vec![NodeId(0)], balancing: false };
    let anon = b.map(2300, Kind { policy: bound, ..kind() });
    b.fill(anon, 2300);
    b.kswapd(0);
    assert_eq!(b.stat(Item::PgdemoteKswapd), 0, "what is dropped is not demoted first");
    assert!(b.sim.kernel.memory.nodes[0].on(Lru::ActiveFile) > 0);
    b.check();
}

#[test]
fn samples_reach_the_rules_and_what_they_name_is_split() {
    /// Splits each huge page that is sampled in its first half.
    #[derive(Default)]
    struct FirstHalf(Vec<PageAt>);
    impl Hooks for FirstHalf {
        fn samples(&self) -> bool {
            true
        }
        fn sampled(&mut self, s: &SampledAccess) {
            assert_eq!(s.on, NodeId(0));
            if s.huge && s.page.vpn % 512 < 256 {
                self.0.push(s.page);
            }
        }
        fn next_split(&mut self) -> Option<PageAt> {
            self.0.pop()
        }
    }
    let run = |hooks: Option<MakeHooks>| {
        let m = machine(&[dram(16384, 1)]);
        let mut one = map("m", 4 * 512);
        one.huge = Some(true);
        let steps = vec![touch("m"), access("m", Pattern::Uniform, 0, for_ms(200))];
        let s = scenario(vec![process("p", &[0], vec![one], steps)]);
        let mut sim = Simulation::new(&m, &s, &Setup { hooks, ..Setup::of(&s) }).expect("it runs");
        sim.run();
        let of = |item| sim.kernel.stat.get(item);
        // khugepaged may make a huge page again of one that was split.
        let split = of(Item::ThpSplitPage) - sim.kernel.khugepaged.pages_collapsed;
        (of(Item::ThpFaultAlloc), split, sim.processes()[0].accesses[0][0])
    };
    let (huge, split, sampled) = run(Some(|_, _| Box::new(FirstHalf::default())));
    assert_eq!((huge, split), (4, 4), "each page once, though it is sampled again");
    let (_, none, free) = run(None);
    assert_eq!(none, 0);
    assert!(sampled < free, "samples and splits take the program's time");
}

#[test]
fn counters_tell_how_long_loads_take_and_how_long_they_are_waited_for() {
    /// Reads them, and looks whether they go back.
    #[derive(Default)]
    struct Reads(Offcore);
    impl Hooks for Reads {
        fn counts(&self) -> bool {
            true
        }
        fn counted(&mut self, c: &Offcore, _: u32) {
            let more = c.since(&self.0);
            assert!(more.busy <= more.under_way);
            self.0 = *c;
        }
    }
    struct ReadsNot;
    impl Hooks for ReadsNot {
        fn counted(&mut self, _: &Offcore, _: u32) {
            unreachable!("nobody has asked for them");
        }
    }
    // 200 ns, of which five lines can be under way.
    let m = machine(&[super::support::Spec { ns: 200, ..dram(16384, 1) }]);
    let run = |hooks: MakeHooks, mlp, write, compute| {
        let mut step = access("m", Pattern::Uniform, write, for_ms(200));
        if let Step::Access { mlp: at_once, compute: between, .. } = &mut step {
            (*at_once, *between) = (mlp, Picos::from_ns(compute));
        }
        let s = scenario(vec![process("p", &[0], vec![map("m", 2048)], vec![touch("m"), step])]);
        let hooks = Some(hooks);
        let mut sim = Simulation::new(&m, &s, &Setup { hooks, ..Setup::of(&s) }).expect("it runs");
        sim.run();
        let accesses = sim.processes()[0].accesses[0];
        (sim.kernel.inside.offcore, accesses)
    };
    let read: MakeHooks = |_, _| Box::new(Reads::default());
    for (mlp, write, compute, amortized) in [
        (1, 0, 0, 200),
        (4, 0, 0, 50),
        // Five are under way, not eight.
        (8, 0, 0, 40),
        // One waits for the other, and is not under way while something is computed.
        (1, 0, 100, 200),
        // A store is no load: alone nothing is under way; beside loads one of them mostly is.
        (1, 500, 0, 200),
        (4, 500, 0, 100),
    ] {
        let (counted, accesses) = run(read, mlp, write, compute);
        let c = counted.expect("they are read");
        let near = |found: Option<Picos>, ns: u64| {
            let found = found.expect("there were loads").as_ns();
            assert!(found.abs_diff(ns) * 50 <= ns, "{mlp} {write} {compute}: {found} for {ns}");
        };
        near(c.latency(), 200);
        near(c.amortized(), amortized);
        assert!(accesses[0].abs_diff(c.reads) * 100 < c.reads, "{} of {accesses:?}", c.reads);
        let (none, same) = run(|_, _| Box::new(ReadsNot), mlp, write, compute);
        assert_eq!((none, same), (None, accesses), "who counts changes nothing");
    }
}
