//! The checker's silence means something: what is broken here, it finds.

use super::host::{World, content};
use crate::kernel::KernelVersion;
use crate::ksm::memory::MmId;
use crate::ksm::stable::Place;
use crate::ksm::tree::{Links, Root};
use crate::ksm::{Ksm, Rules};

/// Three contents merged on each of two nodes, one chain, some unshared items
/// in the middle of a pass.
fn world() -> World {
    let mut w = World::new(Rules::of(KernelVersion::V6_12), 2);
    w.knob("merge_across_nodes", "0");
    w.knob("max_page_sharing", "3");
    w.proc(MmId(0), "xxxxxxyyzzabc", 0);
    w.proc(MmId(1), "xxyyzzdef", 1);
    w.pass();
    w.pass();
    for _ in 0..12 {
        w.ksm.step(&mut w.host, &w.now);
    }
    assert_eq!(w.counts(), "7,9,6,0;1,2");
    assert_eq!(w.ksm.faults(&w.host), Vec::<String>::new());
    assert_eq!(w.ksm.unstable_disorder(&w.host), 0);
    w
}

fn found(break_it: impl FnOnce(&mut World), what: &str) {
    let mut w = world();
    break_it(&mut w);
    let faults = w.ksm.faults(&w.host);
    assert!(faults.iter().any(|f| f.contains(what)), "{what:?} is not in {faults:#?}");
}

/// The node of z on node 0: the last one of its tree, and no chain.
fn some_node(ksm: &Ksm) -> u32 {
    ksm.stable.roots[0].elements(&ksm.stable.nodes).last().unwrap()
}

#[test]
fn counters() {
    found(|w| w.ksm.counters.pages_sharing += 1, "pages_sharing is 10, counted 9");
    found(|w| w.ksm.counters.pages_shared += 1, "pages_shared is 8, counted 7");
    found(|w| w.ksm.counters.pages_unshared -= 1, "pages_volatile is 1, counted 0");
    found(|w| w.ksm.counters.rmap_items += 1, "items is 23, counted 22");
    found(|w| w.ksm.stable.nr_dups += 1, "stable_node_dups is 3, counted 2");
    found(|w| w.ksm.stable.nr_chains -= 1, "stable_node_chains is 0, counted 1");
    found(|w| w.ksm.mms[1].stat.merging_pages += 1, "address space 1");
}

#[test]
fn memberships() {
    found(|w| w.ksm.mms[0].prev = 1, "bad place in the list");
    found(
        |w| {
            let n = some_node(&w.ksm);
            w.ksm.stable.get_mut(n).place = Place::Migrate;
        },
        "in tree 0 believes",
    );
    found(
        |w| {
            let n = some_node(&w.ksm);
            w.ksm.stable.get_mut(n).tree = 1;
        },
        "in tree 0 believes",
    );
    found(
        |w| {
            let n = some_node(&w.ksm);
            w.ksm.stable.attach(n, 0);
        },
        "lists",
    );
    found(|w| w.ksm.seq += 1, "in unstable tree");
    found(|w| w.ksm.unstable[0] = Root::EMPTY, "is in no unstable tree");
    found(|w| w.ksm.items.get_mut(0).set_detached(), "item");
}

#[test]
fn order() {
    found(
        |w| {
            let n = some_node(&w.ksm);
            let page = w.ksm.stable.get(n).page();
            w.host.frame_mut(page.0 as usize).bytes = content('a');
        },
        "stable tree 0",
    );
    let mut w = world();
    let f = w.host.frame_at(MmId(0), 10).unwrap();
    w.host.frame_mut(f).bytes = content('~');
    assert_eq!(w.ksm.unstable_disorder(&w.host), 1);
}

// specs/seeds.md#s4: tree pairs = possible node ids, from the first switch on.
#[test]
fn pairs_of_trees() {
    let mut w = World::new(Rules::of(KernelVersion::V6_12), 8);
    let pairs = |w: &World| (w.ksm.stable.roots.len(), w.ksm.unstable.len());
    assert_eq!(pairs(&w), (1, 1));
    w.knob("merge_across_nodes", "0");
    assert_eq!(pairs(&w), (8, 8));
    w.knob("merge_across_nodes", "1");
    assert_eq!(pairs(&w), (8, 8));
}

// A page that carries a node which is not its own is an ordinary page: a
// machine that forgot to clear it gets no panic.
#[test]
fn pages_that_lie() {
    let mut w = world();
    let merged = w.host.frame_at(MmId(0), 0).unwrap();
    let id = w.host.frame(merged).merged;
    let f = w.host.frame_at(MmId(1), 6).unwrap();
    w.host.frame_mut(f).merged = id;
    w.pass();
    w.pass();
    assert_eq!(w.ksm.faults(&w.host), Vec::<String>::new());
    let chain = w.ksm.stable.roots[0]
        .elements(&w.ksm.stable.nodes)
        .find(|&n| w.ksm.stable.get(n).is_chain());
    let chain = crate::ksm::memory::StableId(chain.unwrap());
    w.host.frame_mut(f).merged = Some(Some(chain));
    w.pass();
    assert_eq!(w.ksm.faults(&w.host), Vec::<String>::new());
    assert!(w.ksm.items.link(0).next() != 0);
}
