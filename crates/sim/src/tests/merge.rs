//! Same-page merging on the simulated kernel's own pages: the examples of specs/ksm.md end to
//! end, first step by step and without time, then by ksmd's task.

use super::bench::{Bench, kind};
use super::support::*;
use crate::build::Setup;
use crate::check::Checker;
use crate::content::Content as Held;
use crate::hot::KINDS;
use crate::kernel::Ctx;
use crate::lists::Place;
use crate::memory::BLOCK;
use crate::page::State;
use crate::simulation::Simulation;
use crate::space::{Holds, Kind};
use crate::vmstat::Item;
use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::Errno;
use homenode_core::ksm::Step;
use homenode_core::scenario::{Step as Do, *};
use homenode_core::topology::Hardware;
use homenode_core::units::{NodeId, PAGE_SIZE, Pages, Picos};

const NO_THP: (&str, &str) = ("transparent_hugepage", "never");

pub(super) fn two_nodes() -> Hardware {
    machine(&[dram(8192, 1), dram(8192, 1)])
}
/// Contents are kept, ksmd runs, smart scan is off.
pub(super) fn setup(version: KernelVersion, ksm: &[(&str, &str)]) -> Setup {
    let mut all = vec![("pages_to_scan", "1000000"), ("run", "1")];
    if version >= KernelVersion::V6_12 {
        all.push(("smart_scan", "0"));
    }
    all.extend(ksm);
    Setup {
        version,
        contents: true,
        knobs: knobs(&[NO_THP]),
        ksm: all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..Setup::default()
    }
}
pub(super) fn bench(ksm: &[(&str, &str)]) -> Bench {
    let mut b = Bench::with(&two_nodes(), setup(KernelVersion::V6_12, ksm));
    b.by_hand();
    b
}
/// A mergeable mapping of `pages`, bound to a node.
pub(super) fn guest(b: &mut Bench, pages: u64, node: u16) -> u32 {
    let policy = Mempolicy::Bind { nodes: vec![NodeId(node)], balancing: false };
    b.map(pages, Kind { policy, mergeable: true, ..kind() })
}
/// Writes a content to a page; 0 is zeroes.
pub(super) fn put(b: &mut Bench, page: u32, what: u64) {
    b.touch(page, true).expect("memory is left");
    let content = if what == 0 { Held::ZERO } else { Held::image(0, what) };
    b.sim.kernel.fill(page, content);
}
pub(super) fn guest_of(b: &mut Bench, node: u16, contents: &[u64]) -> u32 {
    let first = guest(b, contents.len() as u64, node);
    for (i, &c) in contents.iter().enumerate() {
        put(b, first + i as u32, c);
    }
    first
}
pub(super) fn step(b: &mut Bench) -> Step {
    let mut ctx = Ctx { task: usize::MAX, ..b.ctx };
    b.sim.kernel.ksmd_step(&mut ctx, &[0; KINDS], 0)
}
pub(super) fn pass(b: &mut Bench, n: u32) {
    for _ in 0..n {
        for _ in 0..100_000 {
            if step(b) == Step::PassEnded {
                break;
            }
        }
        b.check();
    }
}
/// Shared, sharing, unshared, volatile; chains, dups.
pub(super) fn counts(b: &Bench) -> [u64; 6] {
    let k = b.sim.kernel.ksm();
    let c = k.counters();
    [
        c.pages_shared,
        c.pages_sharing,
        c.pages_unshared,
        k.pages_volatile(),
        k.stable_node_chains(),
        k.stable_node_dups(),
    ]
}
pub(super) fn store(b: &mut Bench, name: &str, text: &str) -> Result<(), Errno> {
    let mut ctx = b.ctx;
    b.sim.kernel.write_ksm(&mut ctx, name, text).map(drop).map_err(|e| e.errno)
}
/// The stretch of the space in which a page lies.
fn vpn_of(b: &Bench, page: u32) -> u64 {
    let block = b.sim.kernel.memory.blocks[(page / BLOCK) as usize];
    block.step * u64::from(BLOCK) + u64::from(page % BLOCK)
}

// specs/ksm.md#one-page: two identical pages merge during the second full pass.
#[test]
fn two_equal_pages_merge_in_the_second_pass() {
    let mut b = bench(&[]);
    let used = b.free(0);
    let first = guest_of(&mut b, 0, &[7, 7]);
    pass(&mut b, 1);
    assert_eq!(counts(&b), [0, 0, 0, 2, 0, 0]);
    assert_eq!(b.free(0), used - 2);
    pass(&mut b, 1);
    assert_eq!(counts(&b), [1, 1, 0, 0, 0, 0]);
    assert_eq!(b.free(0), used - 1, "a page is saved");
    assert_eq!(b.word(first).frame(), b.word(first + 1).frame());
    assert!(!b.word(first).writable() && !b.word(first + 1).writable());
    // Both count as in memory, as in the kernel.
    assert_eq!(b.sim.kernel.space(b.space).rss, 2);
}

// specs/ksm.md#one-page: a write to a merged page copies, even for its last mapper; counters follow
// at the item's next visit.
#[test]
fn a_write_to_a_merged_page_copies_also_for_the_last() {
    let mut b = bench(&[]);
    let first = guest_of(&mut b, 0, &[7, 7]);
    pass(&mut b, 2);
    b.touch(first, true).expect("memory is left");
    assert!(!b.word(first).shared() && b.word(first).writable());
    assert_eq!((b.stat(Item::CowKsm), counts(&b)), (1, [1, 1, 0, 0, 0, 0]));
    b.check();
    b.touch(first + 1, true).expect("memory is left");
    assert_eq!(b.stat(Item::CowKsm), 2, "the last one copies too");
    assert!(!b.word(first + 1).shared());
    pass(&mut b, 1);
    assert_eq!(counts(&b), [0, 0, 0, 2, 0, 0]);
    // What was written differs from all: nothing merges any more.
    pass(&mut b, 2);
    assert_eq!(counts(&b)[..3], [0, 0, 2]);
}

// The old content restored in time merges again at once (specs/ksm.md#one-page: 6.12, not 7.3).
#[test]
fn an_old_content_restored_merges_again_at_once() {
    for (version, after) in
        [(KernelVersion::V6_12, [1, 1, 0, 0]), (KernelVersion::V7_3, [0, 0, 0, 2])]
    {
        let mut b = Bench::with(&two_nodes(), setup(version, &[]));
        let first = guest_of(&mut b, 0, &[7, 7]);
        pass(&mut b, 2);
        put(&mut b, first, 7);
        put(&mut b, first + 1, 7);
        assert_eq!(b.stat(Item::CowKsm), 2);
        pass(&mut b, 1);
        assert_eq!(counts(&b)[..4], after, "{version:?}");
    }
}

// A page that was looked at and written since is another one: no write goes unseen.
#[test]
fn a_page_that_changes_between_two_visits_is_volatile() {
    let mut b = bench(&[]);
    let first = guest_of(&mut b, 0, &[7, 7, 8]);
    for _ in 0..4 {
        pass(&mut b, 1);
        // A write of another task, as the hot loop would make it: the word refuses.
        assert!(!b.word(first).writable());
        let before = b.ctx.clock;
        b.touch(first, true).expect("memory is left");
        assert!(b.word(first).writable());
        assert_eq!(b.ctx.clock, before, "the kernel has no fault there");
        assert_eq!(b.stat(Item::Pgfault), 3);
    }
    assert_eq!(counts(&b)[..4], [0, 0, 2, 1]);
}

// specs/ksm.md#chains: (300, 7) → 43, 257, 0; 1 chain, 43 dups; and the others.
#[test]
fn a_limit_makes_chains() {
    for (n, limit, want) in [
        (3, "2", [1, 1, 1, 0, 0, 0]),
        (4, "2", [2, 2, 0, 0, 1, 2]),
        (6, "3", [2, 4, 0, 0, 1, 2]),
        (258, "256", [2, 256, 0, 0, 1, 2]),
        (300, "7", [43, 257, 0, 0, 1, 43]),
    ] {
        let mut b = bench(&[("max_page_sharing", limit)]);
        guest_of(&mut b, 0, &vec![7; n]);
        pass(&mut b, 4);
        assert_eq!(counts(&b), want, "{n} pages, at most {limit}");
    }
}

// specs/ksm.md#one-page, step 1: a fork's child is attached at its first visit, with no gate.
#[test]
fn a_forks_child_is_attached_at_its_first_visit() {
    let mut b = bench(&[]);
    let first = guest_of(&mut b, 0, &[7, 7]);
    pass(&mut b, 2);
    let child = b.fork();
    pass(&mut b, 1);
    assert_eq!(counts(&b), [1, 3, 0, 0, 0, 0]);
    // A CoW page of a fork does not merge with itself, but with a third.
    let third = guest_of(&mut b, 0, &[9]);
    let other = b.fork();
    pass(&mut b, 3);
    assert_eq!(counts(&b)[..2], [1, 5], "two children of two pages each: 6 mappers");
    let vpn = vpn_of(&b, third);
    let copy = b.sim.kernel.space(other).place(vpn, false).expect("a copy of the space");
    assert_eq!(b.word(third).frame(), b.word(copy).frame());
    assert!(!b.sim.kernel.memory.is_merged(b.word(third).frame()));
    guest_of(&mut b, 0, &[9]);
    pass(&mut b, 3);
    assert_eq!(counts(&b)[..2], [2, 7], "both sides of the fork and the third");
    // Everything ends: the dead spaces' items go with ksmd's next visit.
    let mut ctx = b.ctx;
    for space in [child, other] {
        b.sim.kernel.drop_space(&mut ctx, space);
        b.check();
    }
    pass(&mut b, 1);
    assert_eq!(counts(&b)[..2], [2, 2]);
    let mut ctx = b.ctx;
    b.sim.kernel.unmap(&mut ctx, b.space, vpn_of(&b, first), vpn_of(&b, first) + 2);
    pass(&mut b, 1);
    assert_eq!(counts(&b)[..2], [1, 1]);
}

// specs/ksm.md#migration: measured on 6.12.
#[test]
fn pages_that_move_find_their_tree_again() {
    let mut b = bench(&[("merge_across_nodes", "0")]);
    let here = guest_of(&mut b, 0, &[7, 7]);
    guest_of(&mut b, 1, &[7, 7]);
    let counted = |b: &Bench| {
        let [shared, sharing, unshared, _, chains, dups] = counts(b);
        [shared, sharing, unshared, chains, dups]
    };
    pass(&mut b, 3);
    assert_eq!(counted(&b), [2, 2, 0, 0, 0]);
    let mut ctx = b.ctx;
    assert!(b.sim.kernel.move_page_to(&mut ctx, here, 1));
    assert_eq!((b.node(here), b.node(here + 1)), (1, 1), "the frame moves with both");
    pass(&mut b, 3);
    assert_eq!(counted(&b), [2, 2, 0, 1, 2], "node 0's moved to 1");
    // Both across, from the start.
    let mut b = bench(&[("merge_across_nodes", "0")]);
    let here2 = guest_of(&mut b, 0, &[7, 7]);
    let there2 = guest_of(&mut b, 1, &[7, 7]);
    pass(&mut b, 3);
    let mut ctx = b.ctx;
    assert!(b.sim.kernel.move_page_to(&mut ctx, here2, 1));
    assert!(b.sim.kernel.move_page_to(&mut ctx, there2, 0));
    pass(&mut b, 3);
    assert_eq!(counted(&b), [2, 2, 0, 1, 1], "both moved across");
    // With one tree nothing moves.
    let mut b = bench(&[]);
    let all = guest_of(&mut b, 0, &[7, 7]);
    guest_of(&mut b, 1, &[7, 7]);
    pass(&mut b, 3);
    assert_eq!(counted(&b), [1, 3, 0, 0, 0]);
    let mut ctx = b.ctx;
    let to = 1 - b.node(all);
    assert!(b.sim.kernel.move_page_to(&mut ctx, all, to));
    pass(&mut b, 3);
    assert_eq!(counted(&b), [1, 3, 0, 0, 0]);
}

// specs/ksm.md#structures: with a tree per node, pages merge with those of their node only.
#[test]
fn trees_per_node_keep_pages_at_home() {
    let fill = |b: &mut Bench| {
        let a = guest_of(b, 0, &[1, 2, 3, 4]);
        let c = guest_of(b, 1, &[1, 2, 3, 4]);
        let d = guest_of(b, 1, &[1, 2, 5, 6]);
        pass(b, 3);
        [a, c, d]
    };
    let mut b = bench(&[]);
    let _ = fill(&mut b);
    let across = counts(&b);
    assert_eq!(across[..3], [4, 6, 2]);
    let mut b = bench(&[("merge_across_nodes", "0")]);
    let [a, c, d] = fill(&mut b);
    assert_eq!(counts(&b)[..3], [2, 2, 8], "less is saved");
    for i in 0..4 {
        assert_eq!((b.node(a + i), b.node(c + i), b.node(d + i)), (0, 1, 1));
    }
    // A switch is refused while pages are shared, and allowed once all are unmerged.
    assert_eq!(store(&mut b, "merge_across_nodes", "1"), Err(Errno::Ebusy));
    assert_eq!(store(&mut b, "run", "2"), Ok(()));
    b.check();
    assert_eq!(counts(&b), [0; 6]);
    assert_eq!(store(&mut b, "merge_across_nodes", "1"), Ok(()));
    assert_eq!(store(&mut b, "run", "1"), Ok(()));
    pass(&mut b, 2);
    // What was unmerged holds what it did: it merges again. The copies lie where the
    // writer of `run` was, unless a policy binds: the seed's third matter.
    assert_eq!(counts(&b), across);
}

// Where the copies of `run` = 2 land: on the node of whoever wrote it.
#[test]
fn unmerged_pages_land_where_the_writer_runs() {
    let mut b = bench(&[("merge_across_nodes", "0")]);
    let first = b.map(2, Kind { mergeable: true, ..kind() });
    b.ctx.node = 1;
    for page in [first, first + 1] {
        put(&mut b, page, 7);
    }
    assert_eq!(b.node(first), 1);
    pass(&mut b, 2);
    assert_eq!(counts(&b)[..2], [1, 1]);
    b.ctx.node = 0;
    assert_eq!(store(&mut b, "run", "2"), Ok(()));
    assert_eq!((b.node(first), b.node(first + 1)), (0, 0));
    assert_eq!(b.stat(Item::CowKsm), 2);
    b.check();
}

// specs/ksm.md#one-page, step 2, and specs/ksm.md#counters: zero pages.
#[test]
fn pages_of_zeroes_are_mapped_to_one_that_costs_nothing() {
    let mut b = bench(&[("use_zero_pages", "1")]);
    let free = b.free(0);
    let first = guest_of(&mut b, 0, &[0, 0, 7]);
    pass(&mut b, 2);
    assert_eq!(b.free(0), free - 1);
    assert_eq!(b.sim.kernel.ksm().counters().ksm_zero_pages, 2);
    assert_eq!(b.sim.kernel.space(b.space).rss, 1);
    // Reading leaves it, and is served by the node of the kernel's image.
    assert_eq!(b.touch(first, false), Ok(0));
    assert_eq!(b.sim.kernel.ksm().counters().ksm_zero_pages, 2);
    // Fork counts it again, its end takes that back.
    let child = b.fork();
    assert_eq!(b.sim.kernel.ksm().counters().ksm_zero_pages, 4);
    b.check();
    let mut ctx = b.ctx;
    b.sim.kernel.drop_space(&mut ctx, child);
    assert_eq!(b.sim.kernel.ksm().counters().ksm_zero_pages, 2);
    // Neither the scan nor move_pages takes it for a page of the process.
    assert!(!b.sim.kernel.move_page_to(&mut ctx, first, 1));
    // A write gets a page of its own.
    b.touch(first, true).expect("memory is left");
    assert_eq!((b.stat(Item::CowKsm), b.sim.kernel.space(b.space).rss), (0, 2));
    assert_eq!(b.sim.kernel.ksm().counters().ksm_zero_pages, 1);
    b.check();
    // Unmerging does so for the other, which still holds zeroes.
    assert_eq!(store(&mut b, "run", "2"), Ok(()));
    assert_eq!(b.sim.kernel.ksm().counters().ksm_zero_pages, 0);
    assert_eq!(b.sim.kernel.memory.content(first + 1), Held::ZERO);
    assert_eq!(b.free(0), free - 3);
    b.check();
    // Off, they are pages like others.
    let mut b = bench(&[]);
    guest_of(&mut b, 0, &[0, 0, 0]);
    pass(&mut b, 2);
    assert_eq!(counts(&b)[..2], [1, 2]);
}

// specs/ksm.md#cost, departures: a swapped page comes back as a copy of its own, and merges again.
#[test]
fn merged_pages_go_to_the_swap_device_and_come_back_apart() {
    let m = machine(&[dram(2048, 1)]);
    let model = Model { swap: Swap::Device(Pages(4096)), ..Model::default() };
    let mut b = Bench::with(&m, Setup { model, ..setup(KernelVersion::V6_12, &[]) });
    let first = guest_of(&mut b, 0, &[7, 7, 7]);
    pass(&mut b, 2);
    assert_eq!(counts(&b)[..2], [1, 2]);
    // Much is touched once: what was there before goes out.
    let big = b.map(3000, kind());
    let out = |b: &Bench, p: u32| b.word(p).state() == State::Swapped;
    // Nobody has read it for long: with several entries that were accessed it would be put
    // on the active list, alone, and stay.
    let item = b.sim.kernel.memory.item_of(first);
    assert_eq!(b.sim.kernel.memory.test_and_clear_young(item), 3);
    b.fill(big, 3000);
    assert!((first..first + 3).all(|p| out(&b, p)), "all of its entries at once");
    b.check();
    pass(&mut b, 1);
    assert_eq!(counts(&b), [0; 6], "the node is stale, the items have no page");
    for p in first..first + 3 {
        b.touch(p, false).expect("it comes back");
    }
    assert_eq!(b.stat(Item::KsmSwpinCopy), 2, "the first has the page of the swap cache");
    assert!((first..first + 3).all(|p| !b.word(p).shared()));
    b.check();
    pass(&mut b, 2);
    assert_eq!(counts(&b)[..2], [1, 2]);
}

#[test]
fn unmergeable_gives_copies_back_or_says_that_it_cannot() {
    let mut b = bench(&[]);
    let first = guest_of(&mut b, 0, &[7, 7, 7, 7]);
    pass(&mut b, 2);
    let start = vpn_of(&b, first);
    let (space, mut ctx) = (b.space, b.ctx);
    let k = &mut b.sim.kernel;
    assert_eq!(k.madvise_merge(&mut ctx, space, (start, start + 2), false), Ok(()));
    assert!(!b.word(first).shared() && b.word(first + 2).shared());
    b.check();
    pass(&mut b, 1);
    assert_eq!(counts(&b)[..2], [1, 1]);
    assert_eq!(b.sim.kernel.memory.content(first), Held::image(0, 7));
    // No memory is left on the node that the mapping is bound to.
    while b.free(0) > 0 {
        let zone = b.sim.kernel.memory.nodes[0].zones[0];
        let free = b.sim.kernel.memory.zones[zone].free;
        b.sim.kernel.memory.zones[zone].managed -= free;
        b.sim.kernel.memory.zones[zone].free = 0;
    }
    let k = &mut b.sim.kernel;
    let refused = k.madvise_merge(&mut ctx, space, (start + 2, start + 4), false);
    assert_eq!(refused, Err(Errno::Eagain));
    assert!(b.word(first + 2).shared());
    assert!(b.sim.kernel.space(space).vmas.iter().any(|v| v.kind.mergeable), "it stays so");
}

// mremap unmerges what it moves (specs/ksm.md#registration); what it holds goes along.
#[test]
fn mremap_unmerges_what_it_moves() {
    let mut b = bench(&[]);
    let first = guest_of(&mut b, 0, &[7, 7, 8]);
    pass(&mut b, 2);
    let (from, to) = (vpn_of(&b, first), 1 << 22);
    let (space, mut ctx) = (b.space, b.ctx);
    b.sim.kernel.remap(&mut ctx, space, from, 3, to).expect("there is room");
    b.check();
    let moved = b.sim.kernel.space(space).place(to, false).expect("mapped");
    assert!(!b.word(moved).shared());
    for (i, page) in [7, 7, 8].into_iter().enumerate() {
        let held = b.sim.kernel.memory.content(moved + i as u32);
        assert_eq!(held, Held::image(0, page));
    }
    pass(&mut b, 3);
    assert_eq!(counts(&b)[..3], [1, 1, 1]);
}

// specs/ksm.md#one-page, step 5: subpages of a huge page are visited singly, only an attempt
// splits.
#[test]
fn only_an_attempt_splits_a_huge_page() {
    let mut s = setup(KernelVersion::V6_12, &[]);
    s.knobs.clear();
    let mut b = Bench::with(&two_nodes(), s);
    let holds = Holds::Image { image: 0, distinct: 512, base: 0 };
    let huge = b.map(512, Kind { huge: Some(true), mergeable: true, holds, ..kind() });
    b.touch(huge, true).expect("memory is left");
    assert_eq!(b.stat(Item::ThpFaultAlloc), 1);
    pass(&mut b, 2);
    assert_eq!((counts(&b)[..3].to_vec(), b.stat(Item::ThpSplitPage)), (vec![0, 0, 512], 0));
    // A small page with the content of one of the parts.
    let part = b.sim.kernel.memory.content(huge + 5);
    let small = guest(&mut b, 1, 0);
    b.touch(small, true).expect("memory is left");
    b.sim.kernel.fill(small, part);
    pass(&mut b, 2);
    assert_eq!((counts(&b)[..3].to_vec(), b.stat(Item::ThpSplitPage)), (vec![1, 1, 511], 1));
    // Two parts of one huge page fail once, which splits it.
    let holds = Holds::Image { image: 1, distinct: 256, base: 0 };
    let huge = b.map(512, Kind { huge: Some(true), mergeable: true, holds, ..kind() });
    b.touch(huge, true).expect("memory is left");
    pass(&mut b, 2);
    assert_eq!(b.stat(Item::ThpSplitPage), 2);
    pass(&mut b, 2);
    assert_eq!(counts(&b)[..3], [257, 257, 511]);
}

// The scan of NUMA balancing passes merged pages over, and the page of zeroes.
#[test]
fn what_a_mapping_says_its_pages_hold_is_there_after_a_first_touch() {
    let mut b = bench(&[]);
    let vpn = b.sim.kernel.space(b.space).above();
    let holds = Holds::Image { image: 3, distinct: 4, base: vpn };
    let first = b.map(10, Kind { holds, mergeable: true, ..kind() });
    // By a write or a read; another write makes it the process's own.
    for i in 0..10 {
        b.touch(first + i, i % 2 == 0).expect("memory is left");
    }
    let held = |b: &Bench, i: u32| b.sim.kernel.memory.content(first + i);
    for i in 0..10u32 {
        assert_eq!(held(&b, i), Held::image(3, u64::from(i % 4)));
    }
    b.touch(first, true).expect("memory is left");
    assert!(held(&b, 0) != Held::image(3, 0) && held(&b, 0) != held(&b, 4));
    b.check();
    pass(&mut b, 2);
    // 9 pages of 4 kinds: 2, 3, 2, 2; and one of its own.
    assert_eq!(counts(&b)[..3], [4, 5, 1]);
}

// The write bit is seen through arming: fork, mprotect and reclaim find what they would
// without contents.
#[test]
fn arming_changes_nothing_but_what_merging_sees() {
    let mut b = bench(&[]);
    let first = guest_of(&mut b, 0, &[7, 8, 9]);
    assert!(b.sim.kernel.memory.is_dirty(first));
    let (space, mut ctx) = (b.space, b.ctx);
    let start = vpn_of(&b, first);
    // Read-only and back: the next write is a fault that costs.
    b.sim.kernel.protect(&mut ctx, space, start, start + 1, true, false, false);
    assert!(!b.sim.kernel.memory.is_dirty(first));
    b.sim.kernel.protect(&mut ctx, space, start, start + 1, true, true, false);
    let faults = b.stat(Item::Pgfault);
    b.touch(first, true).expect("allowed again");
    assert_eq!(b.stat(Item::Pgfault), faults + 1);
    b.touch(first + 1, true).expect("allowed");
    assert_eq!(b.stat(Item::Pgfault), faults + 1, "an armed page has no fault");
    b.check();
    let at = b.sim.kernel.memory.listed(first + 2);
    assert_eq!(at.map(|at| at.place), Some(Place::Gen(3, false)), "where it was when it was new");
    // Both sides of a fork hold the same, also what nobody has looked at.
    let child = b.fork();
    for i in 0..3 {
        let copy = b.sim.kernel.space(child).place(start + u64::from(i), false).expect("there");
        let (x, y) = (b.word(first + i), b.word(copy));
        assert!(x.shared() && x.frame() == y.frame() && !x.writable() && !y.writable());
        b.touch(copy, true).expect("memory is left");
        let k = &b.sim.kernel.memory;
        assert_ne!(k.content(first + i), k.content(copy));
    }
    b.check();
}

// prctl: all that is mapped, and by children (specs/ksm.md#registration).
#[test]
fn memory_merge_holds_for_all_mappings_and_children() {
    let mut b = bench(&[]);
    let space = b.space;
    b.sim.kernel.set_merge_any(space).expect("room for a number");
    let first = b.map(2, kind());
    for i in 0..2 {
        put(&mut b, first + i, 7);
    }
    let shared = b.map(2, Kind { shared: true, ..kind() });
    b.fill(shared, 2);
    let child = b.fork();
    assert!(b.sim.kernel.space(child).merge_any);
    pass(&mut b, 3);
    assert_eq!(counts(&b)[..2], [1, 3]);
    // Another program in the same process: it is another space to merging.
    let before = b.sim.kernel.mm_of(space);
    let mut ctx = b.ctx;
    b.sim.kernel.exec_space(&mut ctx, space).expect("room for a number");
    assert_ne!(b.sim.kernel.mm_of(space), before);
    let new = b.sim.kernel.mm_of(space).expect("registered again");
    assert!(b.sim.kernel.ksm().knows(new));
    pass(&mut b, 2);
    assert!(!b.sim.kernel.ksm().knows(before.expect("it was registered")));
    assert_eq!(counts(&b)[..2], [1, 1]);
}

// ── With time ──────────────────────────────────────────────────────────────────

pub(super) const MS: u64 = 1_000_000_000;

/// A guest on one CPU whose memory holds an image, some pages of its own and zeroes; it
/// rests after filling it.
pub(super) fn kvm(name: &str, cpu: u32, image: u64, own: u64, zero: u64, rest: u64) -> Process {
    let mergeable = |m: Map, content: Content| Map { content, mergeable: true, ..m };
    let base = Content::Image { name: "base".into(), distinct: None };
    let maps = vec![
        mergeable(map("image", image), base),
        mergeable(map("own", own), Content::Own),
        mergeable(map("zero", zero), Content::Zero),
    ];
    let rest = Do::Sleep(Picos::from_ms(rest));
    process(name, &[cpu], maps, vec![touch("image"), touch("own"), touch("zero"), rest])
}
fn simulate(m: &Hardware, s: &Scenario, setup: &Setup, until: u64) -> Simulation {
    let mut sim = Simulation::new(m, s, setup).expect("it fits");
    let checker = Checker::watch(&mut sim);
    checker.run(&mut sim, until, 50 * MS).expect("nothing is wrong");
    sim
}
pub(super) fn ksm(files: &[(&str, &str)]) -> Vec<(String, String)> {
    files.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}
fn guests(files: &[(&str, &str)]) -> Scenario {
    let guests = vec![kvm("a", 0, 600, 100, 50, 1_000), kvm("b", 1, 600, 100, 50, 1_000)];
    Scenario { ksm: ksm(files), knobs: knobs(&[NO_THP]), ..scenario(guests) }
}

#[test]
fn ksmd_merges_two_guests() {
    let m = two_nodes();
    let s = guests(&[("pages_to_scan", "100"), ("run", "1")]);
    let sim = simulate(&m, &s, &Setup::of(&s), 900 * MS);
    let f = sim.merging().expect("contents are kept");
    let c = f.counters;
    // 600 pages of the image in pairs, 100 pages of zeroes in one, 200 of their own.
    assert_eq!((c.pages_shared, c.pages_sharing), (601, 699));
    assert_eq!(c.rmap_items, 1500);
    assert_eq!(c.pages_unshared + f.pages_volatile, 200);
    assert_eq!(f.saved_bytes, 699 * PAGE_SIZE);
    assert!(c.full_scans >= 2);
    let used: u64 = 2 * 8192 - sim.free().iter().sum::<u64>();
    assert_eq!(used, 1500 - 699);
    // Some 45 batches of 100 pages, and 4 ms at least between two.
    let passes = c.pages_scanned / 1500;
    assert!(passes >= 2 && c.pages_scanned <= 900 / 20 * 100, "{}", c.pages_scanned);
    // Every page costs its visit; a checksum reads it whole.
    assert!(f.ksmd_ran_ps > c.pages_scanned * 300_000, "{}", f.ksmd_ran_ps);
    assert!(f.read_bytes >= f.effort.checksums * PAGE_SIZE);
    assert!(f.ksmd_ran_ps < 100 * MS, "and no more than some microseconds");
    // One guest ends, then the other: all is freed.
    let mut sim = sim;
    sim.run();
    assert!(sim.idle());
    assert_eq!(sim.free().iter().sum::<u64>(), 2 * 8192);
}

#[test]
fn the_same_run_twice_is_the_same() {
    let m = two_nodes();
    let s = guests(&[("pages_to_scan", "300"), ("use_zero_pages", "1"), ("run", "1")]);
    let run = |order: CpuOrder| {
        let mut setup = Setup::of(&s);
        setup.model.order = order;
        let sim = simulate(&m, &s, &setup, 500 * MS);
        (sim.hash(), sim.merging().expect("contents are kept"))
    };
    let quantum = CpuOrder::Quantum(Picos::from_us(10));
    let (first, f) = run(quantum);
    assert_eq!(run(quantum), (first, f));
    assert_eq!((f.counters.pages_shared, f.counters.ksm_zero_pages), (600, 100));
    // The strict order makes the same accesses, so merging finds the same.
    let (_, strict) = run(CpuOrder::Strict);
    assert_eq!(strict.counters.pages_sharing, f.counters.pages_sharing);
}

#[test]
fn a_scenario_without_merging_keeps_no_contents() {
    let mut s = guests(&[]);
    for m in &mut s.processes.iter_mut().flat_map(|p| p.maps.iter_mut()) {
        m.mergeable = false;
    }
    let sim = simulate(&two_nodes(), &s, &Setup::of(&s), 100 * MS);
    assert_eq!(sim.merging(), None);
    assert_eq!(sim.host_bytes().0 % (8 * 512), 0);
    assert!(sim.kernel.memory.contents.is_none());
    // Asked for by the setup, they are kept, and nothing of the run changes.
    let with = Setup { contents: true, ..Setup::of(&s) };
    let kept = simulate(&two_nodes(), &s, &with, 100 * MS);
    assert_eq!(kept.merging().map(|f| f.counters), Some(Default::default()));
    assert_eq!((kept.processes(), kept.vmstat()), (sim.processes(), sim.vmstat()));
}

// Knowing contents takes no virtual time: not the looks, and not the writes after them.
#[test]
fn a_step_fills_with_what_it_says_and_costs_a_touch() {
    let m = two_nodes();
    let image = Content::Image { name: "i".into(), distinct: Some(Pages(3)) };
    let fill = |content: Content| Do::Fill { map: "m".into(), content };
    let maps = vec![Map { mergeable: true, ..map("m", 64) }];
    let rest = || Do::Sleep(Picos::from_ms(100));
    let of = |steps: Vec<Do>, files: &[(&str, &str)]| {
        let p = process("p", &[0], maps.clone(), steps);
        let s = Scenario { ksm: ksm(files), knobs: knobs(&[NO_THP]), ..scenario(vec![p]) };
        simulate(&m, &s, &Setup::of(&s), 350 * MS)
    };
    let run =
        [("pages_to_scan", "64"), ("sleep_millisecs", "4"), ("smart_scan", "0"), ("run", "1")];
    let long = || Do::Sleep(Picos::from_ms(1_000));
    let sim = of(vec![fill(image.clone()), long()], &run);
    let c = sim.merging().expect("kept").counters;
    assert_eq!((c.pages_shared, c.pages_sharing, c.pages_unshared), (3, 61, 0));
    // Written again with something else: 64 copies, then all alike.
    let sim = of(vec![fill(image.clone()), rest(), fill(Content::Zero), long()], &run);
    let c = sim.merging().expect("kept").counters;
    assert_eq!((c.pages_shared, c.pages_sharing, c.pages_unshared), (1, 63, 0));
    assert_eq!(sim.vmstat().get(Item::CowKsm), 64);
    // As long as a touch, and as many accesses.
    let filled = of(vec![fill(image), rest(), fill(Content::Own)], &[]);
    let touched = of(vec![touch("m"), rest(), touch("m")], &[]);
    let (f, t) = (&filled.processes()[0], &touched.processes()[0]);
    assert_eq!((f.ran_ps, &f.accesses), (t.ran_ps, &t.accesses));
}

// One fault brings a huge page; the program gives each of its pages a content all the same.
#[test]
fn a_first_touch_of_huge_pages_gives_each_page_its_content() {
    let m = two_nodes();
    let content = Content::Image { name: "i".into(), distinct: Some(Pages(100)) };
    let maps = vec![Map { mergeable: true, huge: Some(true), content, ..map("m", 1024) }];
    let files =
        [("pages_to_scan", "2000"), ("sleep_millisecs", "4"), ("smart_scan", "0"), ("run", "1")];
    let order = homenode_core::scenario::TouchOrder::Scattered;
    for first in [touch("m"), Do::Initialize { map: "m".into(), order }] {
        let rest = Do::Sleep(Picos::from_ms(1_000));
        let steps = vec![first, rest.clone(), touch("m"), rest];
        let p = process("p", &[0, 1], maps.clone(), steps);
        let s = Scenario { ksm: ksm(&files), ..scenario(vec![p]) };
        let sim = simulate(&m, &s, &Setup::of(&s), 900 * MS);
        assert_eq!(sim.vmstat().get(Item::ThpFaultAlloc), 2);
        let c = sim.merging().expect("kept").counters;
        assert_eq!((c.pages_shared, c.pages_sharing), (100, 924));
        // Touched again they are like no others.
        let sim = simulate(&m, &s, &Setup::of(&s), 1_900 * MS);
        let c = sim.merging().expect("kept").counters;
        assert_eq!((c.pages_shared, c.pages_sharing), (0, 0));
    }
}

#[test]
fn madvise_registers_and_takes_it_back() {
    let m = two_nodes();
    let image = Content::Image { name: "i".into(), distinct: Some(Pages(1)) };
    let maps = vec![Map { content: image, ..map("m", 100) }];
    let advise = |mergeable| Do::Madvise { map: "m".into(), mergeable };
    let rest = || Do::Sleep(Picos::from_ms(200));
    let steps = vec![touch("m"), rest(), advise(true), rest(), advise(false), rest()];
    let s = Scenario {
        ksm: ksm(&[("pages_to_scan", "1000"), ("run", "1")]),
        knobs: knobs(&[NO_THP]),
        ..scenario(vec![process("p", &[0], maps, steps)])
    };
    let mut sim = Simulation::new(&m, &s, &Setup::of(&s)).expect("it fits");
    let checker = Checker::watch(&mut sim);
    let at = |sim: &mut Simulation, ms: u64| {
        checker.run(sim, ms * MS, 10 * MS).expect("nothing is wrong");
        let c = sim.merging().expect("kept").counters;
        (c.pages_shared, c.pages_sharing, sim.free().iter().sum::<u64>())
    };
    assert_eq!(at(&mut sim, 190), (0, 0, 2 * 8192 - 100));
    assert_eq!(at(&mut sim, 390), (1, 99, 2 * 8192 - 1));
    assert_eq!(at(&mut sim, 590), (0, 0, 2 * 8192 - 100));
    assert_eq!(sim.vmstat().get(Item::CowKsm), 100);
}

// ksmd takes an idle CPU, or a quarter of one that it has to share (nice 5), and it
// delays nobody for longer than its slice.
#[test]
fn ksmd_takes_what_its_nice_value_gives_it() {
    let image = Content::Image { name: "i".into(), distinct: None };
    let busy = |cpu: u32| {
        let maps = vec![Map { content: image.clone(), mergeable: true, ..map("m", 2000) }];
        let read = access("m", Pattern::Sequential, 0, Until::Time(Picos::from_ms(800)));
        process(&format!("p{cpu}"), &[cpu], maps, vec![touch("m"), read])
    };
    let run = |cpus: u32, busy_cpus: u32| {
        let m = machine(&[dram(16384, cpus)]);
        let files = ksm(&[("sleep_millisecs", "0"), ("smart_scan", "0"), ("run", "1")]);
        let all = (0..busy_cpus).map(busy).collect();
        let s = Scenario { ksm: files, knobs: knobs(&[NO_THP]), ..scenario(all) };
        let sim = simulate(&m, &s, &Setup::of(&s), 700 * MS);
        let ran: Vec<u64> = sim.processes().iter().map(|p| p.ran_ps).collect();
        (sim.merging().expect("kept").ksmd_ran_ps, ran)
    };
    let (ksmd, tasks) = run(2, 1);
    assert!(ksmd > 690 * MS && tasks[0] > 690 * MS, "an idle CPU: {ksmd} {tasks:?}");
    let (ksmd, tasks) = run(1, 1);
    // 335 of 1359.
    let share = ksmd * 1000 / (ksmd + tasks[0]);
    assert!((235..=260).contains(&share), "{share}");
}

// Pages that ksmd reads take the place of others' in the cache that they share.
#[test]
fn what_ksmd_displaces_is_read_again() {
    let run = |share: u64| {
        let mut m = machine(&[dram(16384, 2)]);
        for c in &mut m.cpus {
            c.llc = 0;
        }
        let c = homenode_core::costs::Constant::assumed(share, "a test's");
        m.costs.0.insert(homenode_core::costs::Cost::KsmDisplaced, c);
        let maps = vec![Map { mergeable: true, ..map("m", 2000) }];
        let n = Until::Accesses(3_000_000);
        let steps = vec![touch("m"), access("m", Pattern::Sequential, 0, n)];
        let files = ksm(&[("pages_to_scan", "2000"), ("smart_scan", "0"), ("run", "1")]);
        let p = process("p", &[0], maps, steps);
        let s = Scenario { ksm: files, knobs: knobs(&[NO_THP]), ..scenario(vec![p]) };
        let sim = simulate(&m, &s, &Setup::of(&s), 60_000 * MS);
        let f = sim.merging().expect("kept");
        (sim.processes()[0].time_ps, f.read_bytes / 64, f.counters.pages_sharing)
    };
    let (off, _, merged) = run(0);
    assert_eq!(merged, 0);
    let (all, lines, _) = run(1000);
    // Each line that ksmd read, once more, at 100 ns of which five overlap.
    let want = lines * 20_000;
    let took = all - off;
    assert!(took > want * 9 / 10 && took < want * 12 / 10, "{took} {want}");
}

#[test]
fn a_wrong_file_or_kernel_is_refused_with_a_sentence() {
    let m = two_nodes();
    let s = guests(&[("pages_to_scan", "many")]);
    let e = Simulation::new(&m, &s, &Setup::of(&s)).err().expect("no number").to_string();
    assert!(e.contains("pages_to_scan") && e.contains("many"), "{e}");
    let mut s = guests(&[]);
    s.processes[0].memory_merge = true;
    let old = Setup { version: KernelVersion::V6_1, ..Setup::of(&s) };
    let e = Simulation::new(&m, &s, &old).err().expect("no prctl").to_string();
    assert!(e.contains("PR_SET_MEMORY_MERGE") && e.contains("6.1") && e.contains("'a'"), "{e}");
}

// Two hundred guests come and go while ksmd works.
#[test]
fn processes_that_come_and_go_leave_nothing() {
    let m = machine(&[dram(32768, 2), dram(32768, 2)]);
    let guests: Vec<Process> = (0..200)
        .map(|i| {
            let p = kvm(&format!("g{i}"), i % 4, 40, 5, 5, u64::from(i % 7) * 10);
            let mut steps = p.steps.clone();
            if i % 3 == 0 {
                steps.insert(3, Do::Fork);
                steps.push(Do::Wait);
            }
            Process { start: Picos::from_ms(u64::from(i) * 2), steps, ..p }
        })
        .collect();
    let files = ksm(&[("sleep_millisecs", "4"), ("use_zero_pages", "1"), ("run", "1")]);
    let s = Scenario { ksm: files, knobs: knobs(&[NO_THP]), ..scenario(guests) };
    let mut setup = Setup::of(&s);
    setup.room = 1 << 18;
    let mut sim = simulate(&m, &s, &setup, 60_000 * MS);
    assert!(sim.idle());
    assert!(sim.merging().expect("kept").counters.pages_scanned > 1000);
    let free: u64 = sim.free().iter().sum();
    assert_eq!(free, 65536);
    // What is left of the dead goes with the next pass.
    let mut ctx = Ctx { task: usize::MAX, node: 0, cpu: 0, clock: sim.now() };
    while sim.kernel.ksmd_step(&mut ctx, &[0; KINDS], 0) != Step::Idle {}
    assert_eq!(sim.merging().expect("kept").counters.rmap_items, 0);
}
