//! The kernel's paths on small machines: faults, allocation, reclaim, fork, policies.

use super::bench::{Bench, LISTS, kind};
use super::support::{cxl, dram, machine, pmem};
use crate::build::Setup;
use crate::kernel::Fatal;
use crate::lists::Lru;
use crate::memory::FRAME_ITEM;
use crate::page::State;
use crate::space::Kind;
use crate::vmstat::Item;
use homenode_core::costs::Cost;
use homenode_core::kernel::KernelVersion;
use homenode_core::scenario::{Margin, Mempolicy, Model, Swap};
use homenode_core::topology::{Hardware, ZoneKind};
use homenode_core::units::{NodeId, Pages};

/// Marks stay small and free of huge pages' share of memory.
const NO_THP: (&str, &str) = ("transparent_hugepage", "never");

fn swap(machine: &Hardware, pages: u64, knobs: &[(&str, &str)]) -> Bench {
    let model = Model { swap: Swap::Device(Pages(pages)), ..Model::default() };
    let knobs = super::support::knobs(knobs);
    Bench::with(machine, Setup { model, knobs, ..Setup::default() })
}

// ── First touch and allocation (specs/tiering.md#allocation) ───────────────────

#[test]
fn first_touch_falls_back_by_distance() {
    // Node 1 is nearer to node 0 than node 2.
    let m = machine(&[dram(1024, 1), cxl(1024), pmem(1024)]);
    let mut b = Bench::new(&m, &[NO_THP]);
    let first = b.map(3000, kind());
    let low = |b: &Bench, zone: usize| b.sim.kernel.marks[zone].low.0;
    let on = b.fill(first, 1900);
    assert_eq!(on[0], 1024 - low(&b, 0), "down to low");
    assert_eq!(on[1], 1900 - on[0], "then the next");
    assert_eq!(on[2], 0);
    // A full fast node spills without waking its kswapd (specs/tiering.md#allocation).
    assert!(b.sim.kernel.woken.is_empty());
    assert_eq!(b.stat(Item::NumaHit), on[0]);
    assert_eq!(b.stat(Item::NumaMiss), on[1]);
    b.check();
    let on = b.fill(first + 1900, 900);
    assert!(on[2] > 0);
    b.check();
}

#[test]
fn kswapds_are_woken_at_low_when_all_nodes_are_there() {
    let m = machine(&[dram(1024, 1), cxl(1024)]);
    let mut b = Bench::new(&m, &[NO_THP]);
    let first = b.map(2048, kind());
    let lows: u64 = b.sim.kernel.marks.iter().map(|m| m.low.0).sum();
    b.fill(first, (2048 - lows) as u32);
    assert!(b.sim.kernel.woken.is_empty());
    b.fill(first + 2048 - lows as u32, 1);
    assert_eq!(b.sim.kernel.woken, [0, 1]);
    // The page came from below low, as the mark min allows.
    assert_eq!(b.free(0), b.sim.kernel.marks[0].low.0 - 1);
    assert_eq!(b.stat(Item::Allocstall), 0);
    b.check();
}

#[test]
fn below_min_the_task_reclaims_itself() {
    let m = machine(&[dram(1024, 1)]);
    let mut b = swap(&m, 2048, &[NO_THP]);
    let first = b.map(2000, kind());
    let min = b.sim.kernel.marks[0].min.0;
    b.fill(first, (1024 - min) as u32);
    assert_eq!((b.free(0), b.stat(Item::Allocstall)), (min, 0));
    b.fill(first + 1024 - min as u32, 1);
    assert_eq!(b.stat(Item::Allocstall), 1);
    assert!(b.stat(Item::PgstealDirect) >= 32, "a batch at least");
    assert_eq!(b.stat(Item::Pswpout), b.stat(Item::PgstealDirect));
    b.check();
}

#[test]
fn without_swap_and_lower_tier_memory_runs_out() {
    let m = machine(&[dram(1024, 1)]);
    let mut b = Bench::new(&m, &[NO_THP]);
    let first = b.map(2000, kind());
    let min = b.sim.kernel.marks[0].min.0;
    b.fill(first, (1024 - min) as u32);
    assert_eq!(b.touch(first + 1999, true), Err(Fatal::Oom));
    b.check();
}

// specs/tiering.md#rounds, #shares: before it gives up, an allocation has looked at all
// pages, whatever anonymous ones have cost, and one round in vain is not the end.
#[test]
fn a_stalled_allocation_finds_what_can_be_demoted() {
    let mut fast = dram(100_000, 1);
    // Its reserve keeps more free than the sum of the high marks, so that anonymous pages
    // get a share of the scan only.
    fast.zones.insert(0, (ZoneKind::Dma32, 2_000));
    let m = machine(&[fast, cxl(10_000)]);
    let knobs = [NO_THP, ("demotion_enabled", "true"), ("min_free_kbytes", "132")];
    let mut b = Bench::new(&m, &knobs);
    let bound = Mempolicy::Bind { nodes: vec![NodeId(0)], balancing: false };
    let first = b.map(104_000, Kind { policy: bound, ..kind() });
    let keep: u64 = b.sim.kernel.marks.iter().take(2).map(|m| m.min.0 + m.reserve.0).sum();
    let full = 102_000 - keep;
    b.fill(first, full as u32);
    assert_eq!((b.free(0), b.stat(Item::Allocstall)), (keep, 0));
    let high: u64 = b.sim.kernel.marks.iter().take(2).map(|m| m.high.0).sum();
    assert!(keep > high, "{keep} {high}");
    // Every page was just accessed, and scanning them has been in vain so far.
    b.sim.kernel.kswapd[0].costs.anon = 20_000;
    assert!(b.touch(first + full as u32, true).is_ok());
    assert_eq!(b.stat(Item::Allocstall), 1);
    assert!(b.stat(Item::PgdemoteDirect) >= 1);
    b.check();
}

#[test]
fn kswapd_stops_at_promo_with_tiering_and_at_high_without() {
    for (mode, promo) in [("2", true), ("1", false), ("0", false)] {
        let m = machine(&[dram(4096, 1), cxl(8192)]);
        let knobs = [NO_THP, LISTS, ("numa_balancing", mode), ("demotion_enabled", "true")];
        let mut b = Bench::new(&m, &knobs);
        let first = b.map(4096, kind());
        b.fill(first, 4090);
        // Bring the node below low by a bound mapping, which wakes its kswapd.
        let bound = Mempolicy::Bind { nodes: vec![NodeId(0)], balancing: false };
        let more = b.map(64, Kind { policy: bound, ..kind() });
        b.fill(more, 8);
        // The young pages need a second look before they go.
        b.kswapd(0);
        let marks = b.sim.kernel.marks[0];
        let (free, high, promo_mark) = (b.free(0), marks.high.0, marks.promo.0);
        if promo {
            assert!(free > promo_mark && free <= promo_mark + 64, "{free} {marks:?}");
        } else {
            assert!(free > high && free <= high + 64, "{free} {marks:?}");
            assert!(free <= promo_mark, "{free} {marks:?}");
        }
        assert!(b.stat(Item::PgdemoteKswapd) > 0);
        b.check();
    }
}

// specs/seeds.md#s1: kswapd aims a little above high, "e.g." high/4.
#[test]
fn kswapd_aims_as_far_above_high_as_the_margin_says() {
    for margin in [Margin::Kernel, Margin::SeedQuarter, Margin::PostedQuarter] {
        let m = machine(&[dram(16384, 1), cxl(16384)]);
        let on = [NO_THP, ("numa_balancing", "2"), ("demotion_enabled", "true")];
        let model = Model { margin, ..Model::default() };
        let knobs = super::support::knobs(&on);
        let mut b = Bench::with(&m, Setup { model, knobs, ..Setup::default() });
        let marks = b.sim.kernel.marks[0];
        let (high, d) = (marks.high.0, marks.high.0 - marks.low.0);
        let aim = high
            + match margin {
                Margin::Kernel => d,
                Margin::SeedQuarter => high / 4,
                // 10 MiB.
                Margin::PostedQuarter => 2560,
            };
        let bound = Mempolicy::Bind { nodes: vec![NodeId(0)], balancing: false };
        let first = b.map(16384, Kind { policy: bound, ..kind() });
        b.fill(first, (16384 - marks.low.0 + 1) as u32);
        b.kswapd(0);
        let free = b.free(0);
        // A pass over the lists is finished also where its first batches were enough.
        assert!(free > aim && free <= aim + 256, "{margin:?}: {free}, aim {aim}");
        b.check();
    }
}

// specs/seeds.md#s1: a CPU with fast memory, and slow memory that is a node without CPU.
#[test]
fn slow_memory_is_a_node_without_cpu_below_the_top_tier() {
    let b = Bench::new(&machine(&[dram(1024, 1), cxl(1024), dram(1024, 0), pmem(1024)]), &[]);
    // DRAM without CPUs is of the top tier (specs/tiering.md#tiers).
    assert_eq!(b.sim.kernel.top, [true, false, true, false]);
}

#[test]
fn demotion_goes_to_the_preferred_target_then_anywhere_lower() {
    let m = machine(&[dram(1024, 1), cxl(256), pmem(2048)]);
    let mut b = Bench::new(&m, &[NO_THP, ("demotion_enabled", "true")]);
    let bound = Mempolicy::Bind { nodes: vec![NodeId(0)], balancing: false };
    let first = b.map(4096, Kind { policy: bound, ..kind() });
    b.fill(first, 1100);
    assert!(b.sim.kernel.moved[0][1] > 0);
    assert_eq!(b.sim.kernel.moved[0][2], 0, "node 1 is the next lower tier and has room");
    b.fill(first + 1100, 500);
    assert!(b.sim.kernel.moved[0][2] > 0, "node 1 is at its min");
    assert_eq!(b.stat(Item::Pswpout), 0);
    b.check();
}

#[test]
fn no_demotion_when_disabled() {
    let m = machine(&[dram(1024, 1), cxl(2048)]);
    let mut b = Bench::new(&m, &[NO_THP]);
    let bound = Mempolicy::Bind { nodes: vec![NodeId(0)], balancing: false };
    let first = b.map(2048, Kind { policy: bound, ..kind() });
    let min = b.sim.kernel.marks[0].min.0;
    b.fill(first, (1024 - min) as u32);
    assert_eq!(b.touch(first + 2000, true), Err(Fatal::Oom));
    assert_eq!(b.sim.kernel.moved[0][1], 0);
    b.check();
}

#[test]
fn below_the_last_tier_pages_are_swapped_and_come_back() {
    let m = machine(&[dram(512, 1), cxl(512)]);
    let mut b = swap(&m, 4096, &[NO_THP, ("demotion_enabled", "true")]);
    let first = b.map(2000, kind());
    b.fill(first, 2000);
    assert!(b.stat(Item::Pswpout) > 900);
    b.check();
    let gone = (first..first + 2000).find(|&p| b.word(p).state() == State::Swapped);
    let gone = gone.expect("some page is out");
    let out = b.sim.kernel.swap_free;
    let before = b.ctx.clock;
    b.touch(gone, false).expect("it comes back");
    assert_eq!((b.stat(Item::Pswpin), b.stat(Item::Pgmajfault)), (1, 1));
    assert!(b.sim.kernel.swap_free <= out + 1);
    assert!(b.ctx.clock - before >= b.sim.kernel.prices[Cost::SwapIn]);
    b.check();
}

#[test]
fn clean_file_pages_are_dropped_without_swap() {
    let m = machine(&[dram(1024, 1)]);
    let mut b = Bench::new(&m, &[NO_THP]);
    let file = Kind { file: true, writable: false, ..kind() };
    let first = b.map(3000, file);
    for page in first..first + 3000 {
        b.touch(page, false).expect("file pages make room for each other");
    }
    assert!(b.stat(Item::PgstealDirect) + b.stat(Item::PgstealKswapd) > 0);
    assert_eq!(b.stat(Item::Pswpout), 0);
    b.check();
}

// ── Fork, copy on write, shared memory ─────────────────────────────────────────

/// The same page in the parent and in its child.
fn forked(b: &mut Bench, page: u32, file: bool) -> (usize, u32) {
    let at = b.sim.kernel.memory.blocks[(page / 512) as usize];
    let vpn = at.step * 512 + u64::from(page % 512);
    let child = b.fork();
    (child, b.sim.kernel.space(child).place(vpn, file).expect("the child has a place for it"))
}

#[test]
fn after_fork_both_share_a_frame_until_one_writes() {
    let mut b = Bench::new(&machine(&[dram(4096, 1)]), &[NO_THP]);
    let page = b.map(16, kind());
    b.fill(page, 16);
    let used = b.free(0);
    let (child, copy) = forked(&mut b, page, false);
    b.check();
    assert_eq!(b.free(0), used, "fork takes no page");
    assert!(b.word(page).shared() && b.word(copy).shared());
    assert_eq!(b.word(page).frame(), b.word(copy).frame());
    assert!(!b.word(page).writable() && !b.word(copy).writable());
    // Reading changes nothing.
    b.touch(copy, false).expect("mapped");
    assert_eq!(b.word(page).frame(), b.word(copy).frame());
    // The child's write copies: one page more.
    b.touch(copy, true).expect("writable mapping");
    assert!(!b.word(copy).shared() && b.word(copy).writable());
    assert_eq!(b.free(0), used - 1);
    b.check();
    // The parent is the last owner: its write reuses the page.
    let before = b.stat(Item::Pgalloc);
    b.touch(page, true).expect("writable mapping");
    assert!(!b.word(page).shared() && b.word(page).writable());
    assert_eq!(b.stat(Item::Pgalloc), before);
    b.check();
    // The child goes: its own page and its shares are given up.
    let mut ctx = b.ctx;
    b.sim.kernel.drop_space(&mut ctx, child);
    assert_eq!(b.free(0), used);
    b.check();
}

#[test]
fn map_shared_stays_one_frame_when_written() {
    let mut b = Bench::new(&machine(&[dram(4096, 1)]), &[NO_THP]);
    let page = b.map(16, Kind { shared: true, ..kind() });
    b.fill(page, 16);
    let (_, copy) = forked(&mut b, page, false);
    let before = b.stat(Item::Pgalloc);
    b.touch(page, true).expect("writable");
    b.touch(copy, true).expect("writable");
    assert_eq!(b.word(page).frame(), b.word(copy).frame());
    assert_eq!(b.stat(Item::Pgalloc), before);
    b.check();
}

#[test]
fn a_fork_of_a_swapped_page_keeps_it() {
    let m = machine(&[dram(512, 1)]);
    for device in [4096, 0] {
        let mut b = swap(&m, 4096, &[NO_THP]);
        let first = b.map(1000, kind());
        b.fill(first, 1000);
        let out = (first..first + 1000).find(|&p| b.word(p).state() == State::Swapped);
        let out = out.expect("some are out");
        // As if the device were full: then both entries hold one slot.
        let taken = if device == 0 { std::mem::take(&mut b.sim.kernel.swap_free) } else { 0 };
        let (child, copy) = forked(&mut b, out, false);
        b.sim.kernel.swap_free += taken;
        assert_eq!(b.word(copy).state(), State::Swapped);
        b.check();
        let (ins, free) = (b.stat(Item::Pswpin), b.sim.kernel.swap_free);
        b.touch(copy, false).expect("the child reads it from the device");
        assert_eq!(b.stat(Item::Pswpin), ins + 1);
        assert_eq!(b.word(out).state(), State::Swapped, "the parent's is still there");
        let _ = free;
        b.check();
        let mut ctx = b.ctx;
        b.sim.kernel.drop_space(&mut ctx, child);
        b.check();
        let (start, end) = b.last();
        let space = b.space;
        b.sim.kernel.unmap(&mut ctx, space, start, end);
        assert_eq!((b.sim.kernel.swap_free, b.sim.kernel.swap_shared), (4096, 0));
        b.check();
    }
}

#[test]
fn reclaim_of_a_shared_frame_takes_it_from_all() {
    let m = machine(&[dram(1024, 1)]);
    let mut b = swap(&m, 8192, &[NO_THP]);
    let page = b.map(2048, kind());
    b.fill(page, 400);
    let (_, copy) = forked(&mut b, page, false);
    b.fill(page + 400, 1600);
    assert_eq!(b.word(page).state(), State::Swapped);
    assert_eq!(b.word(copy).state(), State::Swapped);
    b.check();
}

#[test]
fn a_shared_file_page_is_dirty_once_any_mapper_has_written() {
    let mut b = Bench::new(&machine(&[dram(4096, 1)]), &[NO_THP]);
    let page = b.map(4, Kind { file: true, shared: true, ..kind() });
    b.touch(page, false).expect("readable");
    let (_, copy) = forked(&mut b, page, true);
    let item = b.sim.kernel.memory.item_of(page);
    assert!(!b.sim.kernel.memory.is_dirty(item));
    b.touch(copy, true).expect("writable");
    assert_eq!(b.sim.kernel.memory.item_of(page), item);
    assert!(b.sim.kernel.memory.is_dirty(item));
    b.check();
}

// ── Mappings ───────────────────────────────────────────────────────────────────

#[test]
fn two_mappings_in_one_block_go_together() {
    let mut b = Bench::new(&machine(&[dram(4096, 1)]), &[NO_THP]);
    let first = b.map_at(1 << 20, 100, kind());
    let second = b.map_at((1 << 20) + 100, 100, Kind { readable: true, ..kind() });
    assert_eq!(second, first + 100);
    b.fill(first, 200);
    let (space, mut ctx) = (b.space, b.ctx);
    b.sim.kernel.unmap(&mut ctx, space, 1 << 20, (1 << 20) + 200);
    assert_eq!(b.free(0), 4096);
    b.check();
}

#[test]
fn remap_takes_both_mappings_of_a_block_along() {
    let mut b = Bench::new(&machine(&[dram(4096, 1)]), &[NO_THP]);
    let first = b.map_at(1 << 20, 100, kind());
    b.map_at((1 << 20) + 100, 100, kind());
    b.fill(first, 200);
    b.fork();
    b.fill(first, 50);
    let (space, mut ctx) = (b.space, b.ctx);
    b.sim.kernel.remap(&mut ctx, space, 1 << 20, 200, (1 << 21) + 7).expect("there is room");
    assert_eq!(b.sim.kernel.space(space).rss, 200);
    let to = b.sim.kernel.space(space).place((1 << 21) + 7, false).expect("moved");
    assert!((to..to + 200).all(|p| b.word(p).resident()));
    b.check();
}

#[test]
fn a_discarded_page_is_touched_anew() {
    let mut b = Bench::new(&machine(&[dram(4096, 1)]), &[NO_THP]);
    let first = b.map(100, kind());
    b.fill(first, 100);
    let (start, _) = b.last();
    let (space, mut ctx) = (b.space, b.ctx);
    b.sim.kernel.discard(&mut ctx, space, start + 10, start + 20);
    assert_eq!(b.free(0), 4096 - 90);
    b.check();
    b.fill(first, 100);
    assert_eq!(b.free(0), 4096 - 100);
    b.check();
}

#[test]
fn writes_to_read_only_memory_kill() {
    let mut b = Bench::new(&machine(&[dram(4096, 1)]), &[NO_THP]);
    let first = b.map(4, Kind { writable: false, ..kind() });
    assert_eq!(b.touch(first, true), Err(Fatal::Segv));
    b.touch(first, false).expect("readable");
    assert_eq!(b.touch(first, true), Err(Fatal::Segv));
    let (start, end) = b.last();
    let (space, mut ctx) = (b.space, b.ctx);
    b.sim.kernel.protect(&mut ctx, space, start, end, true, true, false);
    b.touch(first, true).expect("writable now");
    b.check();
}

// ── Policies ───────────────────────────────────────────────────────────────────

#[test]
fn weighted_interleave_deals_pages_by_weight() {
    let m = machine(&[dram(8192, 1), cxl(8192)]);
    let mut b = Bench::new(&m, &[NO_THP]);
    let policy = Mempolicy::WeightedInterleave(vec![(NodeId(0), 5), (NodeId(1), 3)]);
    let first = b.map(800, Kind { policy, ..kind() });
    assert_eq!(b.fill(first, 800), [500, 300]);
    b.check();
}

#[test]
fn weighted_interleave_deals_huge_pages_by_weight() {
    let m = machine(&[dram(16384, 1), cxl(16384)]);
    let mut b = Bench::new(&m, &[]);
    let policy = Mempolicy::WeightedInterleave(vec![(NodeId(0), 3), (NodeId(1), 1)]);
    let first = b.map(8 * 512, Kind { policy, huge: Some(true), ..kind() });
    assert_eq!(b.fill(first, 8 * 512), [6 * 512, 2 * 512]);
    assert_eq!(b.stat(Item::ThpFaultAlloc), 8);
    b.check();
}

#[test]
fn bind_refuses_other_nodes() {
    let m = machine(&[dram(1024, 1), cxl(1024)]);
    let mut b = Bench::new(&m, &[NO_THP]);
    let bound = Mempolicy::Bind { nodes: vec![NodeId(1)], balancing: false };
    let first = b.map(2000, Kind { policy: bound, ..kind() });
    let min = b.sim.kernel.marks[1].min.0;
    assert_eq!(b.fill(first, (1024 - min) as u32)[0], 0);
    assert_eq!(b.touch(first + 1999, true), Err(Fatal::Oom), "node 0 is empty, but not allowed");
    assert_eq!(b.free(0), 1024);
    b.check();
}

#[test]
fn preferred_falls_back() {
    let m = machine(&[dram(1024, 1), cxl(1024)]);
    let mut b = Bench::new(&m, &[NO_THP]);
    let first = b.map(1500, Kind { policy: Mempolicy::Preferred(NodeId(1)), ..kind() });
    let on = b.fill(first, 1500);
    assert!(on[1] > 900 && on[0] > 0, "{on:?}");
    b.check();
}

#[test]
fn move_pages_moves_what_fits() {
    let m = machine(&[dram(1024, 1), cxl(256)]);
    let mut b = Bench::new(&m, &[NO_THP]);
    b.by_hand();
    let first = b.map(500, kind());
    b.fill(first, 500);
    let mut ctx = b.ctx;
    let moved =
        (first..first + 500).filter(|&p| b.sim.kernel.move_page_to(&mut ctx, p, 1)).count() as u64;
    assert!(moved > 200 && moved < 256, "{moved}");
    assert_eq!(b.free(1), 256 - moved);
    assert_eq!(b.stat(Item::PgmigrateSuccess), moved);
    assert_eq!(b.stat(Item::PgmigrateFail), 500 - moved);
    assert!(b.free(1) >= b.sim.kernel.marks[1].min.0);
    b.check();
}

// ── Huge pages ─────────────────────────────────────────────────────────────────

#[test]
fn a_huge_page_is_one_fault_and_one_member() {
    let m = machine(&[dram(8192, 1)]);
    let mut b = Bench::new(&m, &[LISTS]);
    let first = b.map(1024 + 100, Kind { huge: Some(true), ..kind() });
    b.touch(first + 700, true).expect("there is room");
    assert_eq!(b.stat(Item::Pgfault), 1);
    assert_eq!(b.free(0), 8192 - 512);
    assert_eq!(b.sim.kernel.memory.nodes[0].members_on(Lru::InactiveAnon), 1);
    b.fill(first + 512, 512);
    assert_eq!(b.stat(Item::Pgfault), 1, "the whole block is mapped");
    // The end of the mapping has no room for a huge page.
    b.fill(first + 1024, 100);
    assert_eq!(b.free(0), 8192 - 612);
    b.check();
}

#[test]
fn a_huge_page_is_freed_whole_and_split_where_only_a_part_goes() {
    let m = machine(&[dram(8192, 1)]);
    let mut b = Bench::new(&m, &[]);
    let first = b.map(1024, Kind { huge: Some(true), ..kind() });
    b.fill(first, 1024);
    let (start, _) = b.last();
    let (space, mut ctx) = (b.space, b.ctx);
    b.sim.kernel.unmap(&mut ctx, space, start, start + 512);
    assert_eq!((b.free(0), b.stat(Item::ThpSplitPmd)), (8192 - 512, 0));
    b.check();
    b.sim.kernel.unmap(&mut ctx, space, start + 512, start + 600);
    assert_eq!((b.free(0), b.stat(Item::ThpSplitPmd)), (8192 - 512 + 88, 1));
    assert_eq!(b.stat(Item::ThpSplitPage), 0, "only its entry is counted");
    b.check();
}

#[test]
fn fork_splits_huge_pages() {
    let m = machine(&[dram(8192, 1)]);
    let mut b = Bench::new(&m, &[]);
    let first = b.map(512, Kind { huge: Some(true), ..kind() });
    b.fill(first, 512);
    let (_, copy) = forked(&mut b, first, false);
    assert_eq!(b.word(first + 5).frame(), b.word(copy + 5).frame());
    b.check();
    b.fill(copy, 512);
    b.check();
    assert_eq!(b.free(0), 8192 - 1024);
}

#[test]
fn a_huge_page_without_room_below_is_reclaimed_page_by_page() {
    let m = machine(&[dram(2048, 1)]);
    let mut b = swap(&m, 4096, &[]);
    let first = b.map(4096, Kind { huge: Some(true), ..kind() });
    b.fill(first, 3000);
    // Whatever was stolen has been written: no page was counted that is still there.
    let stolen = b.stat(Item::PgstealDirect) + b.stat(Item::PgstealKswapd);
    assert_eq!(stolen, b.stat(Item::Pswpout));
    b.check();
}

// ── Failing migrations ─────────────────────────────────────────────────────────

#[test]
fn migrations_that_fail_leave_everything_in_place() {
    let m = machine(&[dram(1024, 1), cxl(2048)]);
    let knobs = super::support::knobs(&[NO_THP, ("demotion_enabled", "true")]);
    let model = Model { swap: Swap::Device(Pages(4096)), ..Model::default() };
    let setup = Setup { fail_moves: 1000, model, knobs, ..Setup::default() };
    let mut b = Bench::with(&m, setup);
    let bound = Mempolicy::Bind { nodes: vec![NodeId(0)], balancing: false };
    let first = b.map(2048, Kind { policy: bound, ..kind() });
    b.fill(first, 1500);
    let mut ctx = b.ctx;
    assert!(!b.sim.kernel.move_page_to(&mut ctx, first + 1499, 1));
    assert_eq!(b.stat(Item::PgmigrateSuccess), 0);
    assert!(b.stat(Item::PgmigrateFail) > 0);
    assert!(b.stat(Item::Pswpout) > 0, "what can't be demoted is swapped");
    b.check();
}

#[test]
fn a_shared_frame_moves_for_all_its_mappers() {
    let m = machine(&[dram(1024, 1), cxl(1024)]);
    let mut b = Bench::new(&m, &[NO_THP]);
    b.by_hand();
    let page = b.map(8, kind());
    b.fill(page, 8);
    let (_, copy) = forked(&mut b, page, false);
    let mut ctx = b.ctx;
    assert!(b.sim.kernel.move_page_to(&mut ctx, page, 1));
    assert_eq!((b.node(page), b.node(copy)), (1, 1));
    assert_eq!(b.word(copy).frame() | FRAME_ITEM, b.sim.kernel.memory.item_of(page));
    b.check();
}

// ── Versions ───────────────────────────────────────────────────────────────────

// specs/tiering.md#allocation [7.3]: the first try skips nodes whose kswapd is running.
#[test]
fn a_node_under_reclaim_is_skipped_by_7_3_only() {
    for (version, place) in [(KernelVersion::V6_12, 0), (KernelVersion::V7_3, 1)] {
        let m = machine(&[dram(1024, 1), cxl(1024)]);
        let mut b = Bench::with(&m, Setup { version, ..Setup::default() });
        let page = b.map(1, kind());
        b.sim.kernel.kswapd_start(0);
        b.fill(page, 1);
        assert_eq!(b.node(page), place, "{version:?}");
        b.check();
    }
}

// specs/tiering.md#demotion [7.3]: turning demotion on clears "kswapd hopeless".
#[test]
fn demotion_switched_on_gives_hope_in_7_3_only() {
    for (version, hopeless) in [(KernelVersion::V6_12, true), (KernelVersion::V7_3, false)] {
        let m = machine(&[dram(1024, 1), cxl(1024)]);
        let mut b = Bench::with(&m, Setup { version, ..Setup::default() });
        b.sim.kernel.kswapd[0].state.failures = 16;
        b.sim.set_knob("demotion_enabled", "true").expect("a legal value");
        assert_eq!(b.sim.kernel.kswapd[0].state.is_hopeless(), hopeless);
    }
}

// specs/tiering.md#demotion: a demotion takes its target down to min, as any allocation does.
#[test]
fn demotion_fills_its_target_to_min() {
    let m = machine(&[dram(1024, 1), cxl(256)]);
    let mut b = swap(&m, 4096, &[NO_THP, ("demotion_enabled", "true")]);
    let bound = Mempolicy::Bind { nodes: vec![NodeId(0)], balancing: false };
    let first = b.map(2048, Kind { policy: bound, ..kind() });
    b.fill(first, 2000);
    assert_eq!(b.free(1), b.sim.kernel.marks[1].min.0);
    b.check();
}
