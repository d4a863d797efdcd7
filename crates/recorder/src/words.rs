//! Words that tasks meet at: those that a futex call has named, and those that a thread's end
//! clears.
//!
//! A task that finds a lock free, or a thread ended, makes no call, though what it does next
//! depends on who gave the lock back. So atomic changes of such words are told as well, and
//! that a word was seen cleared.
//!
//! ```text
//! task 0   futex wait 0x7f10 ─▶ watched        ... xchg 0x7f10 ─▶ row: it is 0 now
//! task 1                              ... cmpxchg 0x7f10 ─▶ row: it is 1 now
//! ```
//!
//! A word that a task looks at again and again is watched too ([`crate::spins`]). Who gives such a
//! word stores to it plainly as a rule, so once there is one, stores of all threads are looked at.
//!
//! A table with one place for each of 4,096 remainders: of two words that share one, the later
//! is watched. So changes may be missed, but none is made up.
//!
//! Source: specs/waits.md#words

use homenode_trace::waits::SHARED;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

const PLACES: usize = 1 << 12;

/// One watched word; address 0: none.
struct Place {
    at: AtomicU64,
    /// What the kernel knows it by.
    object: AtomicU64,
    /// What it was when it was looked at last.
    value: AtomicU32,
    /// How many of its bytes count: 1, 2 or 4.
    bytes: AtomicU32,
    /// Whether a task spins on it; else a change that is seen is no news.
    spun: AtomicBool,
}

impl Place {
    const fn none() -> Self {
        Self {
            at: AtomicU64::new(0),
            object: AtomicU64::new(0),
            value: AtomicU32::new(0),
            bytes: AtomicU32::new(WHOLE),
            spun: AtomicBool::new(false),
        }
    }
}

/// Bytes of a futex's word.
const WHOLE: u32 = 4;

/// What stands at an address.
///
/// # Safety
/// So many bytes can be read there.
unsafe fn read(at: u64, bytes: u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            1 => u32::from((at as *const u8).read_volatile()),
            2 => u32::from((at as *const u16).read_volatile()),
            _ => (at as *const u32).read_volatile(),
        }
    }
}

/// Those of this process.
pub(crate) static WORDS: Words = Words::new();

/// A change of a watched word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) object: u64,
    pub(crate) now: u32,
    /// What this process knew of it.
    pub(crate) before: u32,
}

/// The watched words of a process.
pub(crate) struct Words {
    places: [Place; PLACES],
    /// Whether there is any, so that a program without costs one look.
    any: AtomicBool,
    /// Whether a task has spun on one.
    spun: AtomicBool,
    /// A bit for each place whose word a thread's end clears: as many as a look at each access
    /// beyond the caches' latest lines may cost.
    cleared: [AtomicU64; PLACES / 64],
}

impl Words {
    pub(crate) const fn new() -> Self {
        Self {
            places: [const { Place::none() }; PLACES],
            any: AtomicBool::new(false),
            spun: AtomicBool::new(false),
            cleared: [const { AtomicU64::new(0) }; PLACES / 64],
        }
    }
    fn place(at: u64) -> usize {
        ((at >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize
    }
    #[inline]
    fn known(&self, at: u64) -> Option<&Place> {
        let place = &self.places[Self::place(at)];
        (place.at.load(Relaxed) == at && at != 0).then_some(place)
    }
    fn bit(place: usize) -> (usize, u64) {
        (place / 64, 1 << (place % 64))
    }

    /// Watches a word that a futex call names.
    ///
    /// # Safety
    /// The word can be read.
    pub(crate) unsafe fn watch(&self, at: u64, object: impl FnOnce() -> u64) {
        if self.known(at).is_some() {
            return;
        }
        // SAFETY: the caller's promise.
        let value = unsafe { read(at, WHOLE) };
        self.set(at, object(), value, WHOLE);
    }
    /// Watches a word that a task spins on, of 1 to 8 bytes; of 8 the low four.
    ///
    /// # Safety
    /// The word can be read.
    pub(crate) unsafe fn watch_spun(&self, at: u64, bytes: u32, object: impl FnOnce() -> u64) {
        if self.known(at).is_none() {
            let bytes = bytes.min(WHOLE);
            // SAFETY: the caller's promise.
            let value = unsafe { read(at, bytes) };
            self.set(at, object(), value, bytes);
        }
        if let Some(place) = self.known(at) {
            place.spun.store(true, Relaxed);
        }
        self.spun.store(true, Relaxed);
    }
    /// Whether plain stores have to be looked at.
    #[inline]
    pub(crate) fn is_spun(&self) -> bool {
        self.spun.load(Relaxed)
    }
    /// What a word is known by that a task spins on.
    #[inline]
    pub(crate) fn object(&self, at: u64) -> Option<u64> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let place = self.known(at).filter(|place| place.spun.load(Relaxed))?;
        Some(place.object.load(Relaxed))
    }
    /// Whether a watched word's last change has been told: it is what it was told to be.
    ///
    /// # Safety
    /// The word can be read.
    pub(crate) unsafe fn is_told(&self, at: u64) -> bool {
        self.known(at).is_none_or(|place| {
            // SAFETY: the caller's promise.
            let now = unsafe { read(at, place.bytes.load(Relaxed)) };
            now == place.value.load(Relaxed)
        })
    }
    /// Watches a word that a thread's end clears.
    pub(crate) fn clears(&self, at: u64) {
        self.set(at, at, u32::MAX, WHOLE);
        let (i, bit) = Self::bit(Self::place(at));
        self.cleared[i].fetch_or(bit, Relaxed);
    }
    fn set(&self, at: u64, object: u64, value: u32, bytes: u32) {
        let place = Self::place(at);
        let (i, bit) = Self::bit(place);
        self.cleared[i].fetch_and(!bit, Relaxed);
        let place = &self.places[place];
        place.at.store(0, Relaxed);
        place.object.store(object, Relaxed);
        place.value.store(value, Relaxed);
        place.bytes.store(bytes, Relaxed);
        place.spun.store(false, Relaxed);
        place.at.store(at, Relaxed);
        self.any.store(true, Relaxed);
    }

    /// An atomic instruction, or a store, has been at a word: its change, if it is watched and may have
    /// changed. Of words that other processes share nobody knows here what they were before.
    ///
    /// # Safety
    /// The program has just accessed the word.
    #[inline]
    pub(crate) unsafe fn changed(&self, at: u64) -> Option<Change> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let place = self.known(at)?;
        // SAFETY: the caller's promise.
        let now = unsafe { read(at, place.bytes.load(Relaxed)) };
        let before = place.value.swap(now, Relaxed);
        let object = place.object.load(Relaxed);
        (now != before || object & SHARED != 0).then_some(Change { object, now, before })
    }
    /// A word has been accessed: whether a thread's end has cleared it since it was told last.
    ///
    /// # Safety
    /// The program has just accessed the word.
    #[inline]
    pub(crate) unsafe fn seen_cleared(&self, at: u64) -> bool {
        let (i, bit) = Self::bit(Self::place(at));
        if self.cleared[i].load(Relaxed) & bit == 0 || self.known(at).is_none() {
            return false;
        }
        // SAFETY: the caller's promise.
        let clear = unsafe { read(at, WHOLE) } == 0;
        clear && self.cleared[i].fetch_and(!bit, Relaxed) & bit != 0
    }
    /// Memory is gone, and with it the words in it.
    pub(crate) fn forget(&self, from: u64, bytes: u64) {
        if !self.any.load(Relaxed) {
            return;
        }
        for place in &self.places {
            let at = place.at.load(Relaxed);
            if at != 0 && at.wrapping_sub(from) < bytes {
                place.at.store(0, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests;
