//! The order of lists against plain queues, one per list.

use super::support::{cxl, dram, machine};
use crate::lists::{ListAt, Listed, Lru, Place, Ranks};
use crate::memory::{BLOCK, FRAME_ITEM, Memory};
use crate::page::{PRESENT, Word};
use homenode_core::tiering::mglru::Flags;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

/// Blocks of the columns: the last one is of a file.
const BLOCKS: u32 = 5;

/// Numbers of an active or inactive list.
const NUMBERS: u32 = Ranks::of(ListAt::Lru(0, Lru::InactiveAnon)).numbers;

fn lru_of(at: Listed) -> Lru {
    let Place::Lru(lru) = at.place else { panic!("there are no generations") };
    lru
}

/// Memory beside a queue per list; the front is the list's head.
struct Model {
    memory: Memory,
    queues: BTreeMap<(usize, Lru), VecDeque<(u32, bool)>>,
}

impl Model {
    /// All lists give numbers from `from` on.
    fn new(from: u32) -> Self {
        let m = machine(&[dram(1 << 16, 1), cxl(1 << 16)]);
        let mut memory = Memory::new(&m, u64::from(BLOCKS * BLOCK)).expect("small");
        memory.take_blocks(&[0, 1, 2, 3], 0, false).expect("there is room");
        memory.take_blocks(&[4], 0, true).expect("there is room");
        let mut queues = BTreeMap::new();
        for node in 0..2 {
            for lru in Lru::ALL {
                memory.skip_numbers(node, lru, from);
                queues.insert((node, lru), VecDeque::new());
            }
        }
        Self { memory, queues }
    }
    fn enter(&mut self, item: u32, active: bool, referenced: bool) {
        let node = self.memory.node_of(self.memory.word(item).zone());
        let lru = Lru::of(self.memory.is_file(item), active);
        self.memory.enter_list(item, node, Listed::with(lru, referenced));
        self.queue(node, lru).push_front((item, referenced));
    }
    fn queue(&mut self, node: usize, lru: Lru) -> &mut VecDeque<(u32, bool)> {
        self.queues.get_mut(&(node, lru)).expect("all lists are there")
    }
    /// Takes an item off the model's queue.
    fn forget(&mut self, item: u32) {
        for q in self.queues.values_mut() {
            q.retain(|&(i, _)| i != item);
        }
    }
    fn leave(&mut self, item: u32) {
        assert!(self.memory.leave_list(item).is_some());
        self.forget(item);
    }
    /// What an isolated item does next: free, head of the other list, or here again.
    fn then(&mut self, item: u32, what: u32) {
        let n = self.memory.pages_of(item) as u32;
        match what % 4 {
            0 if item & FRAME_ITEM == 0 => {
                let at = item as usize..(item + n) as usize;
                self.memory.words[at].fill(0);
                self.memory.blocks[(item / BLOCK) as usize].huge = false;
            }
            1 if n == 1 => {
                // As a migration does.
                let w = self.memory.word(item);
                let zone = 1 - w.zone();
                self.memory.set_word(item, w.with_zone(zone));
                self.enter(item, what & 4 != 0, what & 16 != 0);
            }
            _ => self.enter(item, what & 4 != 0, what & 8 != 0),
        }
    }
    fn step(&mut self, op: u32, a: u32, b: u32) {
        let page = a % (BLOCKS * BLOCK);
        let block = page / BLOCK;
        let w = Word(self.memory.words[page as usize]);
        let huge = self.memory.blocks[block as usize].huge;
        match op % 12 {
            // New pages.
            0..=2 => {
                for page in page..(page + b % 40).min(BLOCKS * BLOCK) {
                    let huge = self.memory.blocks[(page / BLOCK) as usize].huge;
                    if self.memory.words[page as usize] == 0 && !huge {
                        self.memory.words[page as usize] = Word::mapped((b & 1) as usize, true).0;
                        self.enter(page, b & 2 != 0, b & 4 != 0);
                    }
                }
            }
            // Somebody leaves from the middle.
            3 | 4 if w.resident() => {
                let item = self.memory.item_of(page);
                self.leave(item);
                self.then(item, b);
            }
            // The oldest are taken.
            5..=7 => {
                let node = (a & 1) as usize;
                let lru = Lru::ALL[(a >> 1) as usize % 4];
                for i in 0..b % 24 {
                    let popped = self.memory.pop_tail(node, lru);
                    let oldest = self.queue(node, lru).pop_back();
                    assert_eq!(popped, oldest, "node {node} {lru:?}");
                    let Some((item, _)) = popped else { break };
                    self.then(item, b >> 3 ^ i);
                }
            }
            8 if w.resident() && !w.shared() && !huge => {
                // The frame has the page's place and its flag.
                let at = self.memory.listed(page).expect("on a list");
                let frame = self.memory.share(page).expect("few frames");
                self.forget(page);
                let node = self.memory.node_of(w.zone());
                self.queue(node, lru_of(at)).push_front((frame | FRAME_ITEM, at.referenced));
                // Another entry maps it too.
                let other = b % (BLOCKS * BLOCK);
                let empty = self.memory.words[other as usize] == 0
                    && !self.memory.blocks[(other / BLOCK) as usize].huge;
                if empty {
                    self.memory.map_frame(frame, other, PRESENT, false);
                }
            }
            9 if w.resident() && w.shared() => {
                let frame = w.frame();
                if b & 1 == 0 || self.memory.mappers(frame).len() > 1 {
                    let last = self.memory.mappers(frame).len() == 1;
                    assert_eq!(self.memory.unmap_frame(frame, page), last);
                    if last {
                        self.forget(frame | FRAME_ITEM);
                    }
                } else {
                    let item = frame | FRAME_ITEM;
                    let at = self.memory.listed(item).expect("on a list");
                    let node = self.memory.node_of(self.memory.word(item).zone());
                    let page = self.memory.unshare(frame);
                    self.forget(item);
                    self.queue(node, lru_of(at)).push_front((page, at.referenced));
                }
            }
            10 if block < BLOCKS - 1 => {
                let at = (block * BLOCK) as usize..((block + 1) * BLOCK) as usize;
                if !huge && self.memory.words[at.clone()].iter().all(|&w| w == 0) {
                    self.memory.words[at].fill(Word::mapped((b & 1) as usize, true).0);
                    self.memory.blocks[block as usize].huge = true;
                    self.enter(block * BLOCK, b & 2 != 0, false);
                }
            }
            11 if huge => {
                let head = block * BLOCK;
                let at = self.memory.listed(head).expect("on a list");
                self.leave(head);
                self.memory.blocks[block as usize].huge = false;
                for page in head..head + BLOCK {
                    self.enter(page, lru_of(at).active(), at.referenced);
                }
            }
            _ => {}
        }
        for ((node, lru), queue) in &self.queues {
            let n = &self.memory.nodes[*node];
            assert_eq!(n.members_on(*lru), queue.len() as u64, "node {node} {lru:?}");
        }
    }
    /// Empties all lists in order.
    fn drain(&mut self) {
        for ((node, lru), mut queue) in std::mem::take(&mut self.queues) {
            while let Some(oldest) = queue.pop_back() {
                assert_eq!(self.memory.pop_tail(node, lru), Some(oldest), "node {node} {lru:?}");
            }
            assert_eq!(self.memory.pop_tail(node, lru), None);
            assert_eq!(self.memory.nodes[node].on(lru), 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_list_is_a_queue(ops in prop::collection::vec(any::<(u32, u32, u32)>(), 1..300)) {
        let mut m = Model::new(0);
        for (op, a, b) in ops {
            m.step(op, a, b);
        }
        m.drain();
    }

    // Numbers run out within the first few entries, and again after each renumbering
    // that `skip` undoes: a few hundred entries need several.
    #[test]
    fn a_list_stays_a_queue_when_its_numbers_run_out(
        left in 0u32..600,
        ops in prop::collection::vec(any::<(u32, u32, u32)>(), 1..300),
    ) {
        let mut m = Model::new(NUMBERS - left);
        for (op, a, b) in ops {
            m.step(op, a, b);
        }
        m.drain();
    }
}

#[test]
fn renumbering_keeps_the_order_also_of_what_was_harvested() {
    let mut m = Model::new(NUMBERS - 100);
    for page in 0..60 {
        m.memory.words[page] = Word::mapped(0, true).0;
        m.enter(page as u32, false, false);
    }
    // A window is open now.
    let tail = Some((0, false));
    assert_eq!(m.memory.pop_tail(0, Lru::InactiveAnon), tail);
    assert_eq!(m.queues.get_mut(&(0, Lru::InactiveAnon)).and_then(VecDeque::pop_back), tail);
    for page in 60..200 {
        m.memory.words[page] = Word::mapped(0, true).0;
        m.enter(page as u32, false, false);
    }
    m.drain();
}

/// Memory of generations beside a queue per list: item, the generation that it belongs to, flags.
struct Generations {
    memory: Memory,
    queues: BTreeMap<(usize, usize), VecDeque<(u32, Listed)>>,
}

impl Generations {
    fn new() -> Self {
        let m = machine(&[dram(1 << 16, 1), cxl(1 << 16)]);
        let mut memory = Memory::new(&m, u64::from(4 * BLOCK)).expect("small");
        memory.take_blocks(&[0, 1, 2, 3], 0, false).expect("there is room");
        assert!(memory.begin_generations().expect("small").is_empty());
        let all = (0..2).flat_map(|zone| (0..4).map(move |i| ((zone, i), VecDeque::new())));
        Self { memory, queues: all.collect() }
    }
    fn enter(&mut self, item: u32, index: usize, flags: u32, tail: bool) {
        let place = Place::Gen(index, false);
        let at = Listed { place, referenced: flags & 1 != 0, workingset: flags & 2 != 0 };
        let zone = self.memory.word(item).zone();
        let queue = self.queues.get_mut(&(zone, index)).expect("all are there");
        if tail {
            self.memory.enter_tail(item, at);
            queue.push_back((item, at));
        } else {
            self.memory.enter_list(item, zone, at);
            queue.push_front((item, at));
        }
    }
    fn step(&mut self, op: u32, a: u32, b: u32) {
        let page = a % (4 * BLOCK);
        let (zone, index) = ((b & 1) as usize, (b >> 1) as usize % 4);
        let w = Word(self.memory.words[page as usize]);
        match op % 6 {
            0 | 1 => {
                for page in page..(page + b % 40).min(4 * BLOCK) {
                    if self.memory.words[page as usize] == 0 {
                        self.memory.words[page as usize] = Word::mapped(zone, true).0;
                        self.enter(page, index, b >> 4, b & 8 != 0);
                    }
                }
            }
            // A walk lifts a page: it stays where it is.
            2 if w.resident() => {
                let mut at = self.memory.listed(page).expect("on a list");
                at.place = Place::Gen(index, false);
                (at.referenced, at.workingset) = (b & 64 != 0, b & 128 != 0);
                let Listed { referenced, workingset, .. } = at;
                self.memory.lift(page, index, Flags { referenced, workingset });
                for item in self.queues.values_mut().flatten().filter(|i| i.0 == page) {
                    item.1 = at;
                }
            }
            3 if w.resident() => {
                assert!(self.memory.leave_list(page).is_some());
                self.queues.values_mut().for_each(|q| q.retain(|i| i.0 != page));
                self.memory.words[page as usize] = 0;
            }
            // The oldest are taken; some come back.
            _ => {
                for i in 0..b % 24 {
                    let popped = self.memory.pop(ListAt::Gen(zone, index, false));
                    let queue = self.queues.get_mut(&(zone, index)).expect("all are there");
                    assert_eq!(popped, queue.pop_back(), "zone {zone} generation {index}");
                    let Some((item, _)) = popped else { break };
                    match (a ^ i) % 3 {
                        0 => self.memory.words[item as usize] = 0,
                        way => self.enter(item, (a >> 3) as usize % 4, i, way == 1),
                    }
                }
            }
        }
    }
    fn check(&self) {
        for zone in 0..2 {
            for index in 0..4 {
                let on = |q: &VecDeque<(u32, Listed)>| q.len() as u64;
                let of = self.memory.of_generation(zone, index, false);
                assert_eq!(of.1, on(&self.queues[&(zone, index)]));
                let mine = self.queues.iter().filter(|q| q.0.0 == zone).flat_map(|q| q.1);
                let belong = mine.filter(|i| i.1.place == Place::Gen(index, false)).count();
                assert_eq!(of.0, belong as u64, "zone {zone} generation {index}");
            }
        }
    }
}

proptest! {
    // A list of a generation is an order too, with entries at its tail.
    #[test]
    fn generations_are_queues(
        steps in proptest::collection::vec((any::<u32>(), any::<u32>(), any::<u32>()), 1..300),
    ) {
        let mut m = Generations::new();
        for (op, a, b) in steps {
            m.step(op, a, b);
        }
        m.check();
        // Lists of before: everybody is on one, in the order of generations.
        let all = m.memory.end_generations();
        let queues = m.queues.values().map(VecDeque::len).sum::<usize>();
        prop_assert_eq!(all.len(), queues);
    }
}
