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

/// Children of an entry: fewer levels than with two, and the entries lie side by side.
const WIDE: usize = 4;
/// The place of a slot that is not in the heap.
const NOWHERE: u32 = u32::MAX;

/// A heap with at most one entry for each slot, the least key first; of equal keys the
/// lower slot.
#[derive(Clone, Debug)]
pub(crate) struct Heap<K> {
    entries: Vec<(K, u32)>,
    /// Slot → place in `entries`.
    places: Vec<u32>,
}

impl<K> Default for Heap<K> {
    fn default() -> Self {
        Self { entries: Vec::new(), places: Vec::new() }
    }
}

impl<K: Copy + Ord> Heap<K> {
    /// One more slot, without an entry.
    pub(crate) fn slot(&mut self) -> u32 {
        self.places.push(NOWHERE);
        self.places.len() as u32 - 1
    }
    /// The least key and its slot.
    #[inline]
    pub(crate) fn first(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }
    /// The least key of all slots but this one, and its slot.
    #[inline]
    pub(crate) fn first_but(&self, slot: u32) -> Option<(K, u32)> {
        match self.entries.first() {
            Some(&(_, s)) if s == slot => {
                let end = self.entries.len().min(WIDE + 1);
                self.entries[1..end].iter().min().copied()
            }
            first => first.copied(),
        }
    }
    /// A slot's key, if it has one.
    pub(crate) fn key(&self, slot: u32) -> Option<K> {
        self.entries.get(self.places[slot as usize] as usize).map(|e| e.0)
    }
    /// Gives a slot a key, in the place of the one that it had.
    #[inline]
    pub(crate) fn set(&mut self, slot: u32, key: K) {
        let at = self.places[slot as usize];
        if at == NOWHERE {
            self.entries.push((key, slot));
            self.up(self.entries.len() - 1);
        } else {
            let before = std::mem::replace(&mut self.entries[at as usize].0, key);
            if key < before {
                self.up(at as usize);
            } else {
                self.down(at as usize);
            }
        }
    }
    /// Takes a slot's key away, if it has one.
    pub(crate) fn clear(&mut self, slot: u32) {
        let at = std::mem::replace(&mut self.places[slot as usize], NOWHERE);
        if at == NOWHERE {
            return;
        }
        let at = at as usize;
        let last = self.entries.pop().expect("the slot had an entry");
        if at < self.entries.len() {
            self.entries[at] = last;
            self.up(at);
            self.down(self.places[last.1 as usize] as usize);
        }
    }
    fn up(&mut self, mut at: usize) {
        let entry = self.entries[at];
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
    #[inline]
    fn down(&mut self, mut at: usize) {
        let entry = self.entries[at];
        loop {
            let first = at * WIDE + 1;
            let end = self.entries.len().min(first + WIDE);
            let Some(children) = self.entries.get(first..end) else { break };
            let mut least = (entry, at);
            for (i, &child) in children.iter().enumerate() {
                // Without a branch: which one is the least can't be guessed.
                let less = (child.0 < least.0.0) | ((child.0 == least.0.0) & (child.1 < least.0.1));
                least = if less { (child, first + i) } else { least };
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
    fn put(&mut self, at: usize, entry: (K, u32)) {
        self.entries[at] = entry;
        self.places[entry.1 as usize] = at as u32;
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

/// Virtual time, and what is set down to happen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    now: u64,
    /// Keys are times, and of one time the number of when it was set down.
    heap: Heap<(u64, u64)>,
    events: Vec<Event>,
    stamp: u64,
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
        self.heap.set(slot, (time, self.stamp));
    }
    /// When an event is set down for.
    pub(crate) fn time_of(&self, slot: u32) -> Option<u64> {
        self.heap.key(slot).map(|(time, _)| time)
    }
    /// It is not to happen.
    pub(crate) fn clear(&mut self, slot: u32) {
        self.heap.clear(slot);
    }
    /// When the next event happens; `u64::MAX`: none is set down.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.heap.first().map_or(u64::MAX, |((time, _), _)| time)
    }
    /// Takes the next event out, with its time and its slot.
    pub(crate) fn take(&mut self) -> Option<(u64, Event, u32)> {
        let ((time, _), slot) = self.heap.first()?;
        self.heap.clear(slot);
        Some((time, self.events[slot as usize], slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;
    use std::collections::BTreeMap;

    #[test]
    fn a_heap_is_an_ordered_map_whose_keys_change() {
        for seed in 0..20 {
            let mut random = Stream::new(seed, "heap");
            let (mut heap, mut truth) = (Heap::default(), BTreeMap::new());
            let slots = 1 + random.below(50) as u32;
            for _ in 0..slots {
                heap.slot();
            }
            for _ in 0..2000 {
                let slot = random.below(slots.into()) as u32;
                if random.below(3) == 0 {
                    heap.clear(slot);
                    truth.remove(&slot);
                } else {
                    let key = random.below(100);
                    heap.set(slot, key);
                    truth.insert(slot, key);
                }
                let least = truth.iter().map(|(&s, &k)| (k, s)).min();
                assert_eq!(heap.first(), least);
                let others = truth.iter().filter(|(s, _)| **s != slot).map(|(&s, &k)| (k, s)).min();
                assert_eq!(heap.first_but(slot), others);
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
