//! Huge pages as the knob says: who gets them, what a full node does, khugepaged.
//!
//! Source: specs/huge-pages.md.

use super::bench::{Bench, LISTS, kind};
use super::support::{access, cxl, dram, for_ms, knobs, machine, map, process, scenario, touch};
use crate::build::Setup;
use crate::simulation::Simulation;
use crate::space::Kind;
use crate::vmstat::Item;
use homenode_core::knobs::Errno;
use homenode_core::scenario::{Map, Mempolicy, Model, Pattern, Rights, Step, Swap};
use homenode_core::units::{NodeId, Pages};

/// What a first touch of 2 MiB brings under a knob and an advice.
fn touched(enabled: &str, advice: Option<bool>) -> (u64, u64) {
    let m = machine(&[dram(8192, 1)]);
    let mut b = Bench::new(&m, &[("transparent_hugepage", enabled)]);
    let first = b.map(512, Kind { huge: advice, ..kind() });
    b.touch(first, true).expect("there is room");
    b.check();
    (8192 - b.free(0), b.stat(Item::ThpFaultAlloc))
}

#[test]
fn who_gets_huge_pages_is_the_knob_s_and_the_program_s_to_say() {
    let [huge, base] = [(512, 1), (1, 0)];
    for (enabled, none, asked, forbidden) in
        [("always", huge, huge, base), ("madvise", base, huge, base), ("never", base, base, base)]
    {
        assert_eq!(touched(enabled, None), none, "{enabled}, nothing asked");
        assert_eq!(touched(enabled, Some(true)), asked, "{enabled}, MADV_HUGEPAGE");
        assert_eq!(touched(enabled, Some(false)), forbidden, "{enabled}, MADV_NOHUGEPAGE");
    }
}

#[test]
fn what_does_not_fit_stays_in_base_pages() {
    let m = machine(&[dram(8192, 1)]);
    let mut b = Bench::new(&m, &[]);
    let free = |kind: Kind| Kind { huge: None, ..kind };
    // Files, shared memory, and less than 2 MiB.
    for (pages, kind) in [
        (512, free(Kind { file: true, ..kind() })),
        (512, free(Kind { shared: true, ..kind() })),
        (511, free(kind())),
    ] {
        let first = b.map(pages, kind);
        b.touch(first, true).expect("there is room");
    }
    assert_eq!((b.stat(Item::ThpFaultAlloc), b.stat(Item::ThpFaultFallback)), (0, 0));
    assert_eq!(b.free(0), 8192 - 3);
    b.check();
}

// Unadvised, a full node means base pages, never a huge page elsewhere; advised, the other
// node serves.
#[test]
fn a_full_node_gives_base_pages_unless_huge_ones_were_asked_for() {
    let m = machine(&[dram(4096, 1), cxl(8192)]);
    let run = |advice: Option<bool>, defrag: &str| {
        let set = [("min_free_kbytes", "1024"), ("transparent_hugepage_defrag", defrag)];
        let mut b = Bench::new(&m, &set);
        // As little as lets no huge page in.
        let hog = b.map(3700, kind());
        b.fill(hog, 3700);
        let first = b.map(512, Kind { huge: advice, ..kind() });
        b.touch(first, true).expect("there is room");
        b.check();
        let far = 8192 - b.free(1);
        (b.stat(Item::ThpFaultAlloc), b.stat(Item::ThpFaultFallback), far)
    };
    assert_eq!(run(None, "madvise"), (0, 1, 0));
    assert_eq!(run(Some(true), "madvise"), (1, 0, 512));
    assert_eq!(run(Some(true), "never"), (0, 1, 0));
    assert_eq!(run(None, "always"), (1, 0, 512));
}

// A fault that fell back made a page table: no later fault heals it, khugepaged does.
#[test]
fn after_a_fallback_only_khugepaged_helps() {
    let m = machine(&[dram(4096, 1), cxl(8192)]);
    let mut b = Bench::new(&m, &[("min_free_kbytes", "1024")]);
    let hog = b.map(3700, kind());
    b.fill(hog, 3700);
    let first = b.map(512, Kind { huge: None, ..kind() });
    b.touch(first, true).expect("there is room");
    // The hog goes, and what was touched is given up: still no huge page.
    let (space, mut ctx) = (b.space, b.ctx);
    let vmas: Vec<(u64, u64)> =
        b.sim.kernel.space(space).vmas.iter().map(|v| (v.start, v.end)).collect();
    b.sim.kernel.unmap(&mut ctx, space, vmas[0].0, vmas[0].1);
    b.sim.kernel.discard(&mut ctx, space, vmas[1].0, vmas[1].1);
    b.touch(first, true).expect("there is room");
    assert_eq!((b.stat(Item::ThpFaultAlloc), b.stat(Item::ThpFaultFallback)), (0, 1));
    assert_eq!(b.free(0), 4095);
    b.sim.kernel.khugepaged_run(&mut ctx, u64::MAX);
    assert_eq!((b.stat(Item::ThpCollapseAlloc), b.free(0)), (1, 4096 - 512));
    assert_eq!(b.sim.kernel.khugepaged.pages_collapsed, 1);
    b.check();
}

#[test]
fn khugepaged_leaves_what_nobody_uses_or_others_map() {
    let m = machine(&[dram(16384, 1)]);
    let mut b =
        Bench::new(&m, &[("transparent_hugepage", "never"), ("khugepaged/max_ptes_none", "100")]);
    let first = b.map(4 * 512, Kind { huge: None, ..kind() });
    // Used; too few; read-only by the scan's mark; not used since somebody looked.
    for (block, pages) in [(0, 512), (1, 411), (2, 512), (3, 512)] {
        b.fill(first + block * 512, pages);
    }
    for page in first + 1024..first + 1536 {
        let w = b.word(page).with_state(crate::page::PROTNONE);
        b.sim.kernel.memory.words[page as usize] = w.0;
    }
    for page in first + 1536..first + 2048 {
        b.sim.kernel.memory.clear_entry_young(page);
    }
    b.sim.set_knob("transparent_hugepage", "always").expect("a legal value");
    // The fault in a fifth mapping lets the space in.
    let other = b.map(512, Kind { huge: None, ..kind() });
    b.touch(other, true).expect("there is room");
    let (mut ctx, before) = (b.ctx, b.ctx.clock);
    let rest = b.sim.kernel.khugepaged_run(&mut ctx, u64::MAX);
    assert_eq!(rest, crate::kernel::khugepaged::Rest::Naps(10_000));
    assert_eq!(b.stat(Item::ThpCollapseAlloc), 1, "the first block alone");
    assert!(b.sim.kernel.memory.blocks[first as usize / 512].huge);
    assert!(ctx.clock > before, "looking and copying take time");
    b.check();
}

// specs/huge-pages.md#khugepaged: 4096 units a wake, of which a stretch takes 512.
#[test]
fn khugepaged_makes_eight_huge_pages_a_wake() {
    let m = machine(&[dram(32768, 1)]);
    let mut b = Bench::new(&m, &[("transparent_hugepage", "never")]);
    let first = b.map(20 * 512, Kind { huge: None, ..kind() });
    b.fill(first, 20 * 512);
    b.sim.set_knob("transparent_hugepage", "always").expect("a legal value");
    let mut ctx = b.ctx;
    let mut wake = |b: &mut Bench| {
        b.sim.kernel.khugepaged_run(&mut ctx, u64::MAX);
        b.stat(Item::ThpCollapseAlloc)
    };
    // A space that maps and faults no more is met by nobody.
    assert_eq!(wake(&mut b), 0);
    b.map(512, Kind { huge: None, ..kind() });
    let made: Vec<u64> = (0..4).map(|_| wake(&mut b)).collect();
    assert_eq!(made, [8, 16, 20, 20]);
    b.check();
}

#[test]
fn a_run_collapses_what_fell_back_once_there_is_room() {
    let m = machine(&[dram(16384, 2), cxl(16384)]);
    let hog = map("hog", 12_000);
    let heap = Map { huge: None, ..map("heap", 12 * 512) };
    let gone = Step::Unmap { map: "hog".into() };
    let all = vec![
        touch("hog"),
        touch("heap"),
        gone,
        access("heap", Pattern::Uniform, 300, for_ms(45_000)),
    ];
    let mut s = scenario(vec![process("p", &[0], vec![hog, heap], all)]);
    s.knobs = knobs(&[("numa_balancing", "0"), ("min_free_kbytes", "1024")]);
    let mut sim = Simulation::new(&m, &s, &Setup::of(&s)).expect("it boots");
    sim.run();
    let of = |item| sim.vmstat().get(item);
    let (alloc, fell) = (of(Item::ThpFaultAlloc), of(Item::ThpFaultFallback));
    assert!(alloc > 0 && fell > 0 && alloc + fell == 12, "{alloc} and {fell}");
    // Where most of a stretch is: what fell back went to the other node, mostly.
    assert!(sim.kernel.stat.of(1, Item::Pgalloc) > 512 * (fell - 1), "on the slow node");
    assert_eq!(of(Item::ThpCollapseAlloc), fell, "khugepaged heals each of them");
    let file = |name: &str| {
        let path = format!("/sys/kernel/mm/transparent_hugepage/khugepaged/{name}");
        sim.read_file(&path).expect("it is there").trim().parse::<u64>().expect("a number")
    };
    assert_eq!(file("pages_collapsed"), fell);
    assert!(file("full_scans") > 0);
    assert!(sim.error().is_none());
}

// Demoting one huge page: all counters grow by 512, the page stays whole. With room for base
// pages only it is split, and they go.
#[test]
fn a_huge_page_that_can_not_go_whole_goes_in_parts() {
    for lists in [true, false] {
        let m = machine(&[dram(2048, 1), cxl(1200)]);
        let mut set = vec![("demotion_enabled", "true"), ("min_free_kbytes", "64")];
        set.extend(lists.then_some(LISTS));
        let mut b = Bench::new(&m, &set);
        let local = Mempolicy::Bind { nodes: vec![NodeId(0)], balancing: false };
        let far = Mempolicy::Bind { nodes: vec![NodeId(1)], balancing: false };
        // The slow node has room for one huge page and some base pages.
        let filled = b.map(400, Kind { policy: far, ..kind() });
        b.fill(filled, 400);
        let first = b.map(3 * 512, Kind { huge: Some(true), policy: local.clone(), ..kind() });
        for block in 0..3 {
            b.touch(first + block * 512, true).expect("there is room");
            b.sim.kernel.memory.clear_entry_young(first + block * 512);
        }
        let more = b.map(1040, Kind { policy: local, ..kind() });
        b.fill(more, 1040);
        b.check();
        let of = |item| b.stat(item);
        assert!(of(Item::ThpMigrationSuccess) > 0, "lists {lists}: one goes whole");
        assert_eq!(of(Item::ThpMigrationSplit), of(Item::ThpMigrationFail), "lists {lists}");
        assert!(of(Item::ThpMigrationSplit) > 0, "lists {lists}: one goes in parts");
        assert_eq!(of(Item::ThpMigrationSplit), of(Item::ThpSplitPage), "lists {lists}");
        let whole = 512 * of(Item::ThpMigrationSuccess);
        assert!(of(Item::PgmigrateSuccess) > whole, "lists {lists}: base pages moved too");
    }
}

#[test]
fn a_huge_page_is_swapped_out_whole_where_the_device_has_room() {
    for (slots, whole) in [(4096, true), (300, false)] {
        let m = machine(&[dram(2048, 1)]);
        let model = Model { swap: Swap::Device(Pages(slots)), ..Model::default() };
        let set = knobs(&[("min_free_kbytes", "64")]);
        let mut b = Bench::with(&m, Setup { model, knobs: set, ..Setup::default() });
        let first = b.map(3 * 512, Kind { huge: Some(true), ..kind() });
        for block in 0..3 {
            b.touch(first + block * 512, true).expect("there is room");
            b.sim.kernel.memory.clear_entry_young(first + block * 512);
        }
        let more = b.map(600, kind());
        b.fill(more, 600);
        b.check();
        let (out, split) = (b.stat(Item::ThpSwpout), b.stat(Item::ThpSwpoutFallback));
        assert_eq!((out > 0, split > 0), (whole, !whole), "{slots} slots");
    }
}

// What Linux answers: only words of its list, decimal numbers within bounds.
#[test]
fn bad_values_are_refused_as_by_the_kernel() {
    let mut sim =
        Simulation::boot(&machine(&[dram(8192, 1)]), &Setup::default(), 0).expect("it boots");
    let thp = "/sys/kernel/mm/transparent_hugepage";
    for (file, good, bad) in [
        ("defrag", "defer+madvise\n", "perhaps"),
        ("khugepaged/defrag", "0", "2"),
        ("khugepaged/pages_to_scan", "+512\n", "0"),
        ("khugepaged/scan_sleep_millisecs", "0", "0x10"),
        ("khugepaged/alloc_sleep_millisecs", "4294967295", "4294967296"),
        ("khugepaged/max_ptes_none", "511", "512"),
        ("khugepaged/max_ptes_swap", "0", "-1"),
        ("khugepaged/max_ptes_shared", "256", ""),
    ] {
        let path = format!("{thp}/{file}");
        sim.write_file(&path, good, Rights::Root).expect("a legal value");
        let errno = sim.write_file(&path, bad, Rights::Root).expect_err("refused").errno;
        assert_eq!(errno, Errno::Einval, "{file} = {bad:?}");
    }
    let defrag = sim.read_file(&format!("{thp}/defrag")).expect("it is there");
    assert_eq!(defrag, "always defer [defer+madvise] madvise never\n");
    for counter in ["pages_collapsed", "full_scans"] {
        let path = format!("{thp}/khugepaged/{counter}");
        let errno = sim.write_file(&path, "0", Rights::Root).expect_err("refused").errno;
        assert_eq!(errno, Errno::Eacces);
    }
}
