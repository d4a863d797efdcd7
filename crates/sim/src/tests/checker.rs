//! The canary: each kind of damage is found, so that silence means something.

use super::bench::{Bench, LISTS, kind};
use super::support::{access, cxl, dram, for_ms, machine, map, process, scenario, touch};
use crate::build::Setup;
use crate::check::Checker;
use crate::kernel::Fatal;
use crate::lists::{Listed, Lru};
use crate::page::{OnList, SWAPPED, Word, YOUNG};
use crate::sched::ALL;
use crate::simulation::Simulation;
use crate::vmstat::Item;
use homenode_core::scenario::Pattern;
use homenode_core::sched::fair::Knobs;

/// A millisecond.
const MS: u64 = 1_000_000_000;

fn bench() -> (Bench, u32) {
    let mut b = Bench::new(&machine(&[dram(4096, 1), cxl(4096)]), &[LISTS]);
    let first = b.map(64, kind());
    b.fill(first, 32);
    b.check();
    (b, first)
}

#[track_caller]
fn found(b: &Bench, what: &str) {
    let found = b.findings().join("\n");
    assert!(found.contains(what), "'{what}' is not in: {found}");
}

#[test]
fn each_kind_of_damage_is_found() {
    let (mut b, _) = bench();
    b.sim.kernel.memory.zones[0].free += 1;
    found(&b, "zone 0: 32 used + 4065 free + 0 isolated, managed 4096");

    let (mut b, _) = bench();
    b.sim.kernel.memory.zones[0].isolated += 2;
    found(&b, "zone 0: 32 used + 4064 free + 2 isolated");

    let (mut b, _) = bench();
    b.sim.kernel.hotplug.blocks[1].pages -= 1;
    found(&b, "zone 0: its blocks have 4095 pages, managed 4096");

    let (mut b, p) = bench();
    b.sim.kernel.memory.words[p as usize] = 0;
    found(&b, "zone 0: 31 used");
    found(&b, "members: 31");
    found(&b, "31 pages in memory, rss 32");
    found(&b, "32 came, 0 went, 31 used");

    let (mut b, p) = bench();
    let w = b.word(p).with_zone(1);
    b.sim.kernel.memory.words[p as usize] = w.0;
    found(&b, "zone 1: 1 used");

    let (mut b, p) = bench();
    let w = b.word(p).with_zone(9);
    b.sim.kernel.memory.words[p as usize] = w.0;
    found(&b, "lies in zone 9");

    let (mut b, p) = bench();
    let w = b.word(p).with_list(OnList::Isolated);
    b.sim.kernel.memory.words[p as usize] = w.0;
    found(&b, "is on no list");

    let (mut b, p) = bench();
    b.sim.kernel.memory.enter_list(p, 0, Listed::with(Lru::ActiveAnon, false));
    found(&b, "InactiveAnon: OnOne { pages: 31");

    let (mut b, _) = bench();
    let space = b.space;
    b.sim.kernel.space_mut(space).rss -= 1;
    found(&b, "rss 31");

    let (mut b, p) = bench();
    b.fork();
    b.check();
    let frame = b.word(p + 1).frame();
    b.sim.kernel.memory.words[p as usize] = Word::sharing(frame, 1, false, false).0;
    found(&b, "but believes");

    let (mut b, p) = bench();
    b.sim.kernel.memory.words[p as usize + 40] = SWAPPED;
    found(&b, "swap: 1 entries");

    let (mut b, p) = bench();
    b.sim.kernel.memory.words[p as usize + 40] = YOUNG;
    found(&b, "holds nothing but bits");

    let (mut b, p) = bench();
    b.sim.kernel.memory.words[p as usize + 200] = SWAPPED;
    found(&b, "but no mapping");

    let (mut b, _) = bench();
    let (start, end) = b.last();
    let (space, mut ctx) = (b.space, b.ctx);
    b.sim.kernel.unmap(&mut ctx, space, start, end);
    b.check();
    b.sim.kernel.memory.words[3] = YOUNG;
    found(&b, "block 0 is free, but its page 3 is not clear");
}

#[test]
fn broken_counters_are_found() {
    for (item, what) in [
        (Item::Pgalloc, "came"),
        (Item::Pgfree, "went"),
        (Item::PgmigrateSuccess, "pgmigrate_success 1, moved 0"),
        (
            Item::NumaPagesMigrated,
            "0 pages moved, 1 by reclaim, hint faults and hot-remove together",
        ),
        (Item::PgpromoteSuccess, "1 promoted, 0 moved to the top tier"),
        (Item::PgstealKswapd, "pgsteal_kswapd 1 > pgscan_kswapd 0"),
        (Item::PgdemoteDirect, "1 demoted, 0 moved to lower tiers"),
        (Item::NumaHintFaultsLocal, "numa_hint_faults_local 1 > numa_hint_faults 0"),
        (Item::NumaHugePteUpdates, "numa_huge_pte_updates 1, numa_pte_updates 0"),
        (Item::ThpSplitPmd, "0 huge pages came, 0 are there, thp_split_pmd 1"),
        (Item::ThpSplitPage, "thp_split_page 1 > thp_split_pmd 0"),
        (Item::ThpMigrationSplit, "thp_migration_split 1 > thp_migration_fail 0"),
        (Item::ThpMigrationSuccess, "thp_migration_success 1, pgmigrate_success 0"),
        (Item::PgdemoteKhugepaged, "pgdemote_khugepaged 1 > pgsteal_khugepaged 0"),
        (Item::NumaMiss, "numa_miss 1, numa_foreign 0"),
    ] {
        let (mut b, _) = bench();
        b.sim.kernel.stat.add(0, item, 1);
        found(&b, what);
    }
    let (mut b, _) = bench();
    b.sim.kernel.khugepaged.pages_collapsed += 1;
    found(&b, "pages_collapsed 1, thp_collapse_alloc 0");
    let (mut b, _) = bench();
    b.sim.kernel.memory.blocks[0].table = false;
    found(&b, "block 0 has entries and no page table");
    let (mut b, _) = bench();
    b.sim.kernel.hotplug.within += 1;
    found(&b, "0 pages moved inside a node, 1 by hot-remove");
    let (mut b, _) = bench();
    b.sim.kernel.moved[0][1] += 3;
    found(&b, "0 pages moved 0 -> 1, counted 3");
}

#[test]
fn a_witness_tells_of_what_must_not_happen() {
    let (mut b, _) = bench();
    let watch = b.sim.kernel.watch.as_mut().expect("watched");
    watch.promoted(0, 1, 100, 100);
    watch.refused(0, 1, false);
    watch.time(10);
    watch.time(9);
    found(&b, "left node place 0 with 100 free, high is 100");
    found(&b, "was refused and nobody was woken");
    found(&b, "time went back from 10 to 9");
}

#[test]
fn what_nobody_mapped_is_a_segmentation_fault() {
    let (mut b, p) = bench();
    assert_eq!(b.touch(p + 64, false), Err(Fatal::Segv));
    b.check();
}

/// Three that compute all the time on the first of two CPUs, where something is damaged after a
/// time; what is found then.
fn damaged(after_ms: u64, damage: &dyn Fn(&mut Simulation)) -> String {
    let m = machine(&[dram(4096, 2)]);
    let steps = || vec![touch("m"), access("m", Pattern::Uniform, 0, for_ms(900))];
    let all = ["a", "b", "c"].map(|name| process(name, &[0], vec![map("m", 8)], steps()));
    let s = scenario(all.to_vec());
    let mut sim = Simulation::new(&m, &s, &Setup::of(&s)).expect("it fits");
    let checker = Checker::watch(&mut sim);
    checker.run(&mut sim, after_ms * MS, MS).expect("nothing is wrong yet");
    damage(&mut sim);
    checker.findings(&sim).join("\n")
}

/// One of them that does not run. The first task is the kswapd.
fn waits(sim: &Simulation) -> usize {
    (1..4).find(|&t| sim.cpus[0].current() != Some(t)).expect("three")
}

#[test]
fn a_queue_that_lost_a_task_is_found() {
    assert_eq!(damaged(20, &|_| {}), "");
    let lost = damaged(20, &|sim| {
        let task = waits(sim);
        sim.tasks[task].on_queue = false;
    });
    assert!(lost.contains("on a queue: false"), "{lost}");
    let elsewhere = damaged(20, &|sim| {
        let task = waits(sim);
        sim.tasks[task].cpu = 1;
    });
    assert!(elsewhere.contains("told 1"), "{elsewhere}");
    let rests = damaged(20, &|sim| {
        let now = sim.now();
        sim.cpus.rest(0, now);
    });
    assert!(rests.contains("rests beside 3 that wait"), "{rests}");
}

#[test]
fn time_that_no_cpu_had_is_found() {
    let waiting = damaged(20, &|sim| {
        let task = waits(sim);
        sim.tasks[task].ran += 1;
    });
    assert!(waiting.contains("when it stopped, now for"), "{waiting}");
    let running = damaged(20, &|sim| {
        let task = sim.cpus[0].current().expect("three want to run");
        sim.tasks[task].ran += 1;
    });
    assert!(running.contains("has had CPU place 0 for"), "{running}");
    let twice = damaged(20, &|sim| {
        let (now, task) = (sim.now(), waits(sim));
        let watch = sim.kernel.watch.as_mut().expect("watched");
        watch.runs(1, task, now, now, 0);
        watch.runs(1, task, now, now, 0);
    });
    assert!(twice.contains("and on Some(1)"), "{twice}");
    assert!(twice.contains("CPU place 1 runs None, told Some("), "{twice}");
    // It has been idle all the time: a later beginning is less.
    let idle = damaged(20, &|sim| {
        let (now, task) = (sim.now(), waits(sim));
        sim.cpus.run(1, task, now - MS);
        sim.cpus.rest(1, now);
    });
    assert!(idle.contains("CPU place 1 was busy for 1000000000 ps and idle for 20"), "{idle}");
}

#[test]
fn a_cpu_that_idles_beside_a_task_is_found() {
    let counted = damaged(20, &|sim| {
        let sets = sim.sched.q.sets.clone();
        sim.sched.wasted.waits(99, Some(ALL), &sets);
        sim.sched.wasted.from(sim.now() - MS, &sets, (&[1], &[0]), 1);
    });
    assert!(counted.contains("CPUs idled for 0 ps beside tasks, counted 1000000000"), "{counted}");
    let beside = damaged(60, &|sim| {
        let task = waits(sim);
        let watch = sim.kernel.watch.as_mut().expect("watched");
        watch.queued(task, None, 0);
        watch.queued(task, Some(ALL), 0);
    });
    assert!(beside.contains("which shares its last-level cache"), "{beside}");
}

#[test]
fn who_starves_is_found() {
    // A kernel with slices that nobody knows of.
    let slices = |sim: &mut Simulation, base_slice_ns| {
        let knobs = *sim.sched.q.fair.knobs();
        sim.sched.q.fair.set_knobs(Knobs { base_slice_ns, ..knobs });
    };
    let long = damaged(20, &|sim| {
        let known = sim.sched.base_slice_ns();
        slices(sim, 2_000_000_000);
        sim.run_until(sim.now() + 700 * MS);
        slices(sim, known);
    });
    assert!(long.contains("of virtual time behind the mean of 3 tasks; allowed are"), "{long}");
    let waits = damaged(600, &|sim| {
        let task = waits(sim);
        let set = sim.sched.q.tasks[task].set;
        let watch = sim.kernel.watch.as_mut().expect("watched");
        watch.queued(task, None, 0);
        watch.queued(task, Some(set), 0);
    });
    assert!(waits.contains("beside 3 of weight 3072; at most"), "{waits}");
}
