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
/// A knock-out of four at a time: each place knows the least of the four below it, which are one line of the host's
/// cache. Changing a key is as many steps as there are rounds, and none of them is a branch that could be guessed
/// wrong. Key and slot are one number, so of equal keys the lower slot is the lesser.
#[derive(Clone, Debug)]
pub(crate) struct KnockOut {
    /// The winner of all.
    first: u128,
    /// The final first, then round by round down to the slots. Who comes to place `p` wins among four `4p + 4` and on.
    rounds: Vec<Four>,
    /// The place of slot 0.
    slots: usize,
}

/// Four that meet.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Four([u128; 4]);

/// The key of a slot without one.
const NO_KEY: u64 = u64::MAX;
/// Nobody: more than any key with its slot.
const NOBODY: u128 = u128::MAX;

impl KnockOut {
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots < 1 << SLOT_BITS, "no more than 16 million CPUs");
        let (mut fours, mut wide) = (0, 1);
        while wide * 4 < slots {
            (fours, wide) = (fours + wide, wide * 4);
        }
        Self { first: NOBODY, rounds: vec![Four([NOBODY; 4]); fours + wide], slots: fours * 4 }
    }
    /// The least key and its slot.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u64, u32)> {
        let key = (self.first >> 64) as u64;
        (key != NO_KEY).then_some((key, self.first as u32))
    }
    /// The slot that most likely comes after the first: the last two rounds are asked, and so one in sixteen is
    /// another.
    #[inline]
    pub(crate) fn second(&self) -> Option<u32> {
        let first = self.first;
        let least = |of: &Four| {
            let key = |i: usize| if of.0[i] == first { NOBODY } else { of.0[i] };
            key(0).min(key(1)).min(key(2).min(key(3)))
        };
        let last = self.rounds[0];
        let from = last.0.iter().position(|&key| key == first)?;
        let before = self.rounds.get(1 + from).map_or(NOBODY, least);
        let second = least(&last).min(before);
        (second != NOBODY).then_some(second as u32)
    }
    /// Has the first round of a slot fetched.
    #[inline]
    pub(crate) fn fetch(&self, slot: u32) {
        prefetch_at(self.rounds.as_ptr().wrapping_add((self.slots + slot as usize) / 4));
    }
    /// The slots that meet in the last round: others that come soon.
    #[inline]
    pub(crate) fn last_round(&self) -> [u32; 4] {
        self.rounds[0].0.map(|key| key as u32)
    }
    /// Gives a slot a key, in the place of the one that it had. The greatest number is none.
    #[inline]
    pub(crate) fn set(&mut self, slot: u32, key: u64) {
        self.put(slot, u128::from(key) << 64 | u128::from(slot));
    }
    /// Takes a slot's key away, if it has one.
    #[inline]
    pub(crate) fn clear(&mut self, slot: u32) {
        self.put(slot, NOBODY);
    }
    #[inline]
    fn put(&mut self, slot: u32, key: u128) {
        let (mut at, mut least) = (self.slots + slot as usize, key);
        loop {
            // The others are looked at where they lie, so that no round waits for what the one before has written.
            let Four(four) = &mut self.rounds[at / 4];
            let [a, b, c] = [1, 2, 3].map(|i| four[(at + i) % 4]);
            four[at % 4] = least;
            least = least.min(a.min(b).min(c));
            if at < 4 {
                break;
            }
            at = at / 4 - 1;
        }
        self.first = least;
    }
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
                if slots <= 16 {
                    let mut all: Vec<_> = truth.iter().map(|(&s, &k)| (k, s)).collect();
                    all.sort_unstable();
                    assert_eq!(knock_out.second(), all.get(1).map(|&(_, slot)| slot));
                }
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
