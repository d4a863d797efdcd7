//! Generations in the simulated kernel: the vectors of specs/mglru.md#example, switching, walks.

use super::bench::{Bench, kind};
use super::support::{cxl, dram, machine};
use crate::lists::Lru;
use crate::page::YOUNG;
use crate::vmstat::Item;
use homenode_core::scenario::Rights;
use homenode_core::tiering::mglru::Generations;
use homenode_core::units::Pages;

/// The vectors' node: 8192 pages of a program; marks of 1000 and 1200, 800 free.
fn full() -> (Bench, u32) {
    let m = machine(&[dram(8992, 1), cxl(32768)]);
    let knobs = [
        ("lru_gen", "y"),
        ("demotion_enabled", "1"),
        ("numa_balancing", "2"),
        ("min_free_kbytes", "64"),
    ];
    let mut b = Bench::new(&m, &knobs);
    set_marks(&mut b);
    let first = b.map(8192, kind());
    assert_eq!(b.fill(first, 8192), [8192, 0]);
    assert_eq!(b.free(0), 800);
    (b, first)
}

/// Each write of a knob computes them anew.
fn set_marks(b: &mut Bench) {
    for mark in &mut b.sim.kernel.marks {
        (mark.min, mark.low) = (Pages(600), Pages(790));
        (mark.high, mark.promo) = (Pages(1000), Pages(1200));
    }
}

/// What kswapd does, with `before` called before each of its passes.
fn rounds(b: &mut Bench, mut before: impl FnMut(&mut Bench, u32)) -> String {
    b.sim.kernel.wake_kswapd(0);
    let k = &mut b.sim.kernel;
    k.woken.clear();
    k.kswapd_start(0);
    let mut passes = 0;
    before(b, passes);
    let mut ctx = b.ctx;
    loop {
        // A picosecond at a time: one batch or one stretch of a walk.
        let end = ctx.clock + 1;
        let pass = b.sim.kernel.kswapd[0].is_between_passes();
        if pass && passes > 0 {
            // Its task has run meanwhile.
            let space = b.space;
            b.sim.kernel.spaces_ran[space] = u64::MAX;
            before(b, passes);
        }
        passes += u32::from(pass);
        if b.sim.kernel.kswapd_run(&mut ctx, 0, end) {
            break;
        }
    }
    b.check();
    let g: &Generations = &b.sim.kernel.kswapd[0].generations;
    let sizes = b.sim.kernel.memory.sizes(0);
    let of = |i: Item| b.stat(i);
    let gens: Vec<String> = (g.min[0]..=g.max)
        .map(|seq| format!("{seq}: {}", sizes[Generations::index(seq)][0]))
        .collect();
    format!(
        "free {}, scan {} steal {} demote {} refill {} activate {}; {}",
        b.free(0),
        of(Item::PgscanKswapd),
        of(Item::PgstealKswapd),
        of(Item::PgdemoteKswapd),
        of(Item::Pgrefill),
        of(Item::Pgactivate),
        gens.join(", ")
    )
}

// specs/mglru.md#example
#[test]
fn nothing_is_used_again() {
    let (mut b, _) = full();
    let all = |b: &Bench| b.sim.kernel.on(0, Lru::ActiveAnon);
    assert_eq!(all(&b), 8192, "new pages are in the newest generation");
    assert_eq!(
        rounds(&mut b, |_, _| {}),
        "free 1312, scan 512 steal 512 demote 512 refill 0 activate 0; 3: 7680, 4: 0, 5: 0"
    );
    // What went down is in the second newest of its node.
    let slow = b.sim.kernel.memory.sizes(1);
    assert_eq!(slow[Generations::index(2)][0], 512);
}

// specs/mglru.md#example
#[test]
fn even_pages_are_used_before_every_pass() {
    let (mut b, first) = full();
    let seen = rounds(&mut b, |b, _| {
        for page in (first..first + 8192).step_by(2) {
            if b.node(page) == 0 {
                b.sim.kernel.memory.words[page as usize] |= YOUNG;
            }
        }
    });
    assert_eq!(
        seen,
        "free 1312, scan 512 steal 512 demote 512 refill 512 activate 0; 3: 3584, 4: 4096, 5: 0"
    );
}

// specs/mglru.md#example
#[test]
fn pages_that_came_first_are_used_before_the_last_pass() {
    let (mut b, first) = full();
    let seen = rounds(&mut b, |b, pass| {
        if pass == 3 {
            for page in first..first + 128 {
                b.sim.kernel.memory.words[page as usize] |= YOUNG;
            }
        }
    });
    assert_eq!(
        seen,
        "free 1312, scan 640 steal 512 demote 512 refill 0 activate 0; 3: 7552, 4: 0, 5: 128"
    );
}

// specs/mglru.md#switch
#[test]
fn switching_moves_pages_and_keeps_their_order() {
    let (mut b, first) = full();
    let path = "/sys/kernel/mm/lru_gen/enabled";
    assert_eq!(b.sim.read_file(path).unwrap(), "0x0007\n");
    rounds(&mut b, |_, _| {});
    let on = |b: &Bench| Lru::ALL.map(|lru| b.sim.kernel.on(0, lru));
    assert_eq!(on(&b), [7680, 0, 0, 0]);
    b.sim.write_file(path, "n\n", Rights::Root).unwrap();
    b.check();
    assert_eq!(on(&b), [7680, 0, 0, 0]);
    let oldest = b.sim.kernel.memory.pop_tail(0, Lru::InactiveAnon).unwrap().0;
    assert_eq!(b.node(oldest), 0);
    let at = b.sim.kernel.arrival(false, 0, homenode_core::tiering::mglru::Arrives::Fault, None);
    b.sim.kernel.memory.enter_list(oldest, 0, at);
    // Some become active, and are the newest when it is on again.
    for page in first + 4096..first + 4196 {
        assert!(!b.sim.kernel.memory.mark_accessed(page));
        assert!(b.sim.kernel.memory.mark_accessed(page));
    }
    b.sim.write_file(path, "1\n", Rights::Root).unwrap();
    b.check();
    assert_eq!(b.sim.read_file(path).unwrap(), "0x0001\n");
    let g = b.sim.kernel.kswapd[0].generations.clone();
    let sizes = b.sim.kernel.memory.sizes(0);
    assert_eq!(g.max, 5, "numbers survive");
    assert_eq!(sizes[Generations::index(5)][0], 100);
    assert_eq!(sizes[Generations::index(4)][0], 7580);
}

// specs/mglru.md#aging: without walks aging only renumbers, and eviction finds who was used.
#[test]
fn without_walks_eviction_looks_around() {
    let (mut b, first) = full();
    b.sim.write_file("/sys/kernel/mm/lru_gen/enabled", "1", Rights::Root).unwrap();
    set_marks(&mut b);
    for page in first..first + 128 {
        b.sim.kernel.memory.words[page as usize] |= YOUNG;
    }
    let seen = rounds(&mut b, |b, pass| {
        if pass == 1 {
            for page in first..first + 8192 {
                b.sim.kernel.memory.words[page as usize] &= !YOUNG;
            }
            for page in first..first + 128 {
                b.sim.kernel.memory.words[page as usize] |= YOUNG;
            }
        }
    });
    assert!(seen.contains("scan 640 steal 512"), "{seen}");
}
