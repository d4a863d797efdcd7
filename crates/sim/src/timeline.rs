//! The timeline: what time it is, and what is set down to happen.
//!
//! Whatever can happen has one slot. Setting a slot again replaces its time, so there is
//! never more than one time for one thing, and nothing that is out of date.
//!
//! ```text
//! slot   event          time
//!  0     Tick           4.0 ms   ◀── the next
//!  1     Window         4.1 ms
//!  2     Timer(task 0)  –
//!  3     Timer(task 1)  7.3 ms
//! ```

use crate::table::prefetch_at;

/// Children of an entry: fewer levels than with two, and the entries lie side by side.
const WIDE: usize = 4;
/// The place of a slot that is not in the heap.
const NOWHERE: u32 = u32::MAX;

/// Bits of an entry that are its slot's number.
const SLOT_BITS: u32 = 24;

/// A heap with at most one entry for each slot, the least key first; of equal keys the
/// lower slot.
///
/// Key and slot are one number, so that comparing two entries takes two instructions and no
/// branch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heap {
    /// Keys with their slots in the lowest bits.
    entries: Vec<u128>,
    /// Slot → place in `entries`.
    places: Vec<u32>,
}

#[inline]
fn entry_of(key: u128, slot: u32) -> u128 {
    key << SLOT_BITS | u128::from(slot)
}
#[inline]
fn slot_of(entry: u128) -> u32 {
    entry as u32 & ((1 << SLOT_BITS) - 1)
}
#[inline]
fn split(entry: u128) -> (u128, u32) {
    (entry >> SLOT_BITS, slot_of(entry))
}

impl Heap {
    /// One more slot, without an entry.
    pub(crate) fn slot(&mut self) -> u32 {
        let slot = self.places.len() as u32;
        assert!(slot < 1 << SLOT_BITS, "no more than 16 million tasks");
        self.places.push(NOWHERE);
        slot
    }
    /// The least key and its slot.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u128, u32)> {
        self.entries.first().map(|&e| split(e))
    }
    /// Slots of the entries of which one is the second.
    #[inline]
    fn after_first(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().skip(1).take(WIDE).map(|&entry| slot_of(entry))
    }
    /// A slot's key, if it has one.
    pub(crate) fn key(&self, slot: u32) -> Option<u128> {
        self.entries.get(self.places[slot as usize] as usize).map(|&e| split(e).0)
    }
    /// Gives a slot a key of at most 104 bits, in the place of the one that it had.
    #[inline]
    pub(crate) fn set(&mut self, slot: u32, key: u128) {
        debug_assert!(key >> (128 - SLOT_BITS) == 0, "a key that fits");
        let entry = entry_of(key, slot);
        let at = self.places[slot as usize];
        if at == NOWHERE {
            self.entries.push(entry);
            self.up(self.entries.len() - 1, entry);
            return;
        }
        let at = at as usize;
        let before = self.entries[at];
        if entry > before {
            self.down(at, entry);
        } else if entry < before {
            self.up(at, entry);
        }
    }
    /// Takes a slot's key away; whether it had one.
    #[inline]
    pub(crate) fn clear(&mut self, slot: u32) -> bool {
        let at = std::mem::replace(&mut self.places[slot as usize], NOWHERE);
        if at != NOWHERE {
            self.remove(at as usize);
        }
        at != NOWHERE
    }
    fn remove(&mut self, at: usize) {
        let last = self.entries.pop().expect("the slot had an entry");
        if at < self.entries.len() {
            if at > 0 && last < self.entries[(at - 1) / WIDE] {
                self.up(at, last);
            } else {
                self.down(at, last);
            }
        }
    }
    /// Puts an entry in at a place or above it.
    fn up(&mut self, mut at: usize, entry: u128) {
        while at > 0 {
            let parent = (at - 1) / WIDE;
            if self.entries[parent] < entry {
                break;
            }
            self.put(at, self.entries[parent]);
            at = parent;
        }
        self.put(at, entry);
    }
    /// Puts an entry in at a place or below it.
    #[inline]
    fn down(&mut self, mut at: usize, entry: u128) {
        loop {
            let first = at * WIDE + 1;
            let end = self.entries.len().min(first + WIDE);
            let Some(children) = self.entries.get(first..end) else { break };
            // Without a branch: which one is the least can't be guessed.
            let mut least = (entry, at);
            for (i, &child) in children.iter().enumerate() {
                least = if child < least.0 { (child, first + i) } else { least };
            }
            if least.1 == at {
                break;
            }
            self.put(at, least.0);
            at = least.1;
        }
        self.put(at, entry);
    }
    #[inline]
    fn put(&mut self, at: usize, entry: u128) {
        self.entries[at] = entry;
        self.places[slot_of(entry) as usize] = at as u32;
    }
}

/// The least key of a fixed number of slots, some of which have none.
///
/// A knock-out of eight at a time: each place knows the least of the eight below it, which are one line of the host's
/// cache. Changing a key is at most as many steps as there are rounds, and who meets whom is no branch that could be guessed
/// wrong. Key and slot are one number of 64 bits, so of equal keys the lower slot is the lesser; for that, keys count
/// from a base. One that is so far beyond it that it has no room is as far as there is room; when such a one has won, or
/// a key before the base is set, there is another base, and all meet anew.
#[derive(Clone, Debug)]
pub(crate) struct KnockOut {
    /// The winner of all.
    first: u64,
    /// The key that counts as 0.
    base: u64,
    /// Bits of an entry that are its slot.
    bits: u32,
    /// The final first, then round by round down to the slots. Who comes to place `p` wins among eight `8p + 8` and on.
    rounds: Vec<Eight>,
    /// The place of slot 0.
    slots: usize,
    /// By slot: its key, [`NO_KEY`] without one.
    keys: Vec<u64>,
}

/// Eight that meet.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Eight([u64; 8]);

/// The key of a slot without one.
const NO_KEY: u64 = u64::MAX;
/// Nobody: more than any entry.
const NOBODY: u64 = u64::MAX;

impl KnockOut {
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots < 1 << SLOT_BITS, "no more than 16 million CPUs");
        let (mut eights, mut wide) = (0, 1);
        while wide * 8 < slots {
            (eights, wide) = (eights + wide, wide * 8);
        }
        Self {
            first: NOBODY,
            base: 0,
            bits: slots.next_power_of_two().trailing_zeros(),
            rounds: vec![Eight([NOBODY; 8]); eights + wide],
            slots: eights * 8,
            keys: vec![NO_KEY; slots],
        }
    }
    /// The offset from the base of a key that has no room, and more than any other.
    #[inline]
    fn far(&self) -> u64 {
        // One less than there is room for: an entry is never [`NOBODY`].
        (NOBODY >> self.bits) - 1
    }
    #[inline]
    fn slot_of(&self, entry: u64) -> u32 {
        entry as u32 & ((1 << self.bits) - 1)
    }
    /// The least key and its slot.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u64, u32)> {
        let first = self.first;
        (first != NOBODY).then(|| (self.base + (first >> self.bits), self.slot_of(first)))
    }
    /// The slot that most likely comes after the first: the last two rounds are asked, and so one in 64 is
    /// another.
    #[inline]
    pub(crate) fn second(&self) -> Option<u32> {
        let first = self.first;
        let least = |of: &Eight| {
            of.0.iter()
                .fold(NOBODY, |least, &key| least.min(if key == first { NOBODY } else { key }))
        };
        let last = &self.rounds[0];
        let from = last.0.iter().position(|&key| key == first)?;
        let before = self.rounds.get(1 + from).map_or(NOBODY, least);
        let second = least(last).min(before);
        (second != NOBODY).then(|| self.slot_of(second))
    }
    /// Has the first round of a slot fetched.
    #[inline]
    pub(crate) fn fetch(&self, slot: u32) {
        prefetch_at(self.rounds.as_ptr().wrapping_add((self.slots + slot as usize) / 8));
    }
    /// The slots that meet in the last round: others that come soon.
    #[inline]
    pub(crate) fn last_round(&self) -> [u32; 8] {
        self.rounds[0].0.map(|entry| self.slot_of(entry))
    }
    /// Gives a slot a key, in the place of the one that it had. The greatest number is none.
    #[inline]
    pub(crate) fn set(&mut self, slot: u32, key: u64) {
        self.keys[slot as usize] = key;
        if key < self.base {
            return self.rebase(key);
        }
        let entry = self.entry(slot, key);
        self.put(slot, entry);
    }
    /// Takes a slot's key away, if it has one.
    #[inline]
    pub(crate) fn clear(&mut self, slot: u32) {
        self.keys[slot as usize] = NO_KEY;
        self.put(slot, NOBODY);
    }
    /// What stands for a slot's key, which is not before the base.
    #[inline]
    fn entry(&self, slot: u32, key: u64) -> u64 {
        if key == NO_KEY {
            return NOBODY;
        }
        (key - self.base).min(self.far()) << self.bits | u64::from(slot)
    }
    #[inline]
    fn put(&mut self, slot: u32, entry: u64) {
        let (mut at, mut least) = (self.slots + slot as usize, entry);
        loop {
            let Eight(eight) = &mut self.rounds[at / 8];
            eight[at % 8] = least;
            least = least_of(eight);
            if at < 8 {
                break;
            }
            at = at / 8 - 1;
            // Whoever comes from here came from here before: nothing above changes.
            if self.rounds[at / 8].0[at % 8] == least {
                return;
            }
        }
        self.first = least;
        if least != NOBODY && least >> self.bits == self.far() {
            // Whoever has won is too far to be told from others that are.
            let first = self.keys.iter().copied().min().unwrap_or(NO_KEY);
            self.rebase(first);
        }
    }
    /// Keys count from another one, and all meet anew.
    #[cold]
    #[inline(never)]
    fn rebase(&mut self, base: u64) {
        self.base = base;
        for slot in 0..self.keys.len() {
            let entry = self.entry(slot as u32, self.keys[slot]);
            let at = self.slots + slot;
            self.rounds[at / 8].0[at % 8] = entry;
        }
        for of in (1..self.rounds.len()).rev() {
            let at = of - 1;
            self.rounds[at / 8].0[at % 8] = least_of(&self.rounds[of].0);
        }
        self.first = least_of(&self.rounds[0].0);
    }
}

/// The least of eight, two by two, so that no more than three comparisons wait for one another.
#[inline]
fn least_of(of: &[u64; 8]) -> u64 {
    let [a, b, c, d, e, f, g, h] = *of;
    (a.min(b).min(c.min(d))).min(e.min(f).min(g.min(h)))
}

/// What happens at a time of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The tick of all CPUs.
    Tick,
    /// Loads are measured.
    Window,
    /// A program of the scenario starts.
    Start(usize),
    /// A task's timer.
    Timer(usize),
    /// A CPU takes the tasks on its list.
    Called(usize),
    /// homenode looks around.
    LookAround,
    /// A file of the kernel is read or written.
    File(usize),
    /// The account of a group's quota is filled.
    Quota,
}

/// Bits of a key that say when it was set down.
const STAMP_BITS: u32 = 40;

/// Virtual time, and what is set down to happen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    now: u64,
    /// Keys are times, and of one time the number of when it was set down.
    heap: Heap,
    events: Vec<Event>,
    stamp: u64,
    /// When the next event happens, if there is one: each turn asks.
    next: Option<u64>,
}

impl Timeline {
    /// Virtual time in picoseconds.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now
    }
    /// Time goes on. It never goes back.
    #[inline]
    pub(crate) fn reach(&mut self, time: u64) {
        self.now = self.now.max(time);
    }
    /// A slot for an event, which is not set down yet.
    pub(crate) fn slot(&mut self, event: Event) -> u32 {
        self.events.push(event);
        self.heap.slot()
    }
    /// Sets an event down for a time, in the place of the one that it had. Of several at
    /// one time the first that was set down comes first.
    pub(crate) fn set(&mut self, slot: u32, time: u64) {
        self.stamp += 1;
        debug_assert!(self.stamp < 1 << STAMP_BITS, "a million million events");
        self.heap.set(slot, u128::from(time) << STAMP_BITS | u128::from(self.stamp));
        self.look();
    }
    fn look(&mut self) {
        self.next = self.heap.first().map(|(key, _)| (key >> STAMP_BITS) as u64);
    }
    /// When an event is set down for.
    pub(crate) fn time_of(&self, slot: u32) -> Option<u64> {
        self.heap.key(slot).map(|key| (key >> STAMP_BITS) as u64)
    }
    /// It is not to happen.
    pub(crate) fn clear(&mut self, slot: u32) {
        if self.heap.clear(slot) {
            self.look();
        }
    }
    /// When the next event happens; `u64::MAX`: none is set down.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next.unwrap_or(u64::MAX)
    }
    /// What happens next.
    #[inline]
    pub(crate) fn coming(&self) -> Option<Event> {
        self.heap.first().map(|(_, slot)| self.events[slot as usize])
    }
    /// Takes the next event out, with its time and its slot.
    pub(crate) fn take(&mut self) -> Option<(u64, Event, u32)> {
        let (key, slot) = self.heap.first()?;
        self.heap.clear(slot);
        self.look();
        // One of these is the next but one.
        for slot in self.heap.after_first() {
            prefetch_at(&raw const self.events[slot as usize]);
        }
        Some(((key >> STAMP_BITS) as u64, self.events[slot as usize], slot))
    }
}

/// The timer of all quotas of groups.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QuotaTimer {
    /// Its slot, where there are groups.
    pub(crate) slot: Option<u32>,
    /// When it is set to go off, in the rules' time.
    pub(crate) at: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;
    use std::collections::BTreeMap;

    #[test]
    fn a_heap_and_a_knock_out_are_ordered_maps_whose_keys_change() {
        for seed in 0..20 {
            let mut random = Stream::new(seed, "heap");
            let (mut heap, mut truth) = (Heap::default(), BTreeMap::new());
            let slots = 1 + random.below(50) as u32;
            let mut knock_out = KnockOut::new(slots as usize);
            for _ in 0..slots {
                heap.slot();
            }
            for _ in 0..2000 {
                let slot = random.below(slots.into()) as u32;
                if random.below(3) == 0 {
                    heap.clear(slot);
                    knock_out.clear(slot);
                    truth.remove(&slot);
                } else {
                    let key = random.below(100);
                    heap.set(slot, key.into());
                    knock_out.set(slot, key);
                    truth.insert(slot, key);
                }
                let least = truth.iter().map(|(&s, &k)| (k, s)).min();
                let of_heap = heap.first().map(|(key, slot)| (key as u64, slot));
                assert_eq!((of_heap, knock_out.first()), (least, least));
                // Two rounds are all there are for so few, and so the second is certain.
                if slots <= 64 {
                    let mut all: Vec<_> = truth.iter().map(|(&s, &k)| (k, s)).collect();
                    all.sort_unstable();
                    assert_eq!(knock_out.second(), all.get(1).map(|&(_, slot)| slot));
                }
            }
        }
    }

    /// Keys that are too far from one another to be told apart in an entry, and keys that go back, are in order nevertheless.
    #[test]
    fn a_knock_out_orders_keys_however_far_they_are_from_one_another() {
        for seed in 0..50 {
            let mut random = Stream::new(seed, "knock-out");
            let slots = 1 + random.below(200) as usize;
            let mut knock_out = KnockOut::new(slots);
            let mut truth = vec![None; slots];
            for _ in 0..2000 {
                let slot = random.below(slots as u64) as usize;
                truth[slot] = match random.below(4) {
                    0 => None,
                    1 => Some(random.below(100)),
                    2 => Some(u64::MAX - 2 - random.below(3)),
                    _ => Some(1 << random.below(63)),
                };
                match truth[slot] {
                    Some(key) => knock_out.set(slot as u32, key),
                    None => knock_out.clear(slot as u32),
                }
                let all = truth.iter().enumerate().filter_map(|(s, k)| Some(((*k)?, s as u32)));
                assert_eq!(knock_out.first(), all.min(), "{seed}");
            }
        }
    }
    #[test]
    fn an_event_that_is_set_down_again_happens_once() {
        let mut t = Timeline::default();
        let (a, b) = (t.slot(Event::Timer(7)), t.slot(Event::Tick));
        t.set(a, 50);
        t.set(b, 30);
        // Woken early, it sleeps again: the first timer is gone.
        t.set(a, 90);
        assert_eq!(t.next(), 30);
        assert_eq!(t.take(), Some((30, Event::Tick, b)));
        assert_eq!(t.take(), Some((90, Event::Timer(7), a)));
        assert_eq!((t.take(), t.next()), (None, u64::MAX));
        // Of one time the first that was set down comes first.
        t.set(b, 100);
        t.set(a, 100);
        assert_eq!(t.take().map(|e| e.1), Some(Event::Tick));
        t.clear(a);
        assert_eq!(t.take(), None);
    }
}
