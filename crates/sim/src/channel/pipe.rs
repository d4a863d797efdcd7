//! The pages of a pipe, and what of them is only certain to be there.
//!
//! Tasks run ahead of one another. A write that finds room and something to read, and a read that leaves
//! something, change nothing for anybody else, in whatever order they come: so they are done
//! ahead of time as long as it is certain that they come to that. Certain is what no call before or
//! beside them can change:
//!
//! ```text
//! in the pipe   ▓▓▓▓▓▓▓▓▒▒▒░░░░░     ▒ written ahead: for a reader it is not there yet
//! pages           4    1  ·          · read ahead: for a writer the page is not free yet
//! ```
//!
//! As long as there is a call ahead, nobody waits at the pipe but for a page to be read to its end; the bytes but those
//! written ahead are at least one; and the pages with those that were read ahead are no more than there can be. A
//! call that would change that comes in its order, after what is ahead there and comes later has been taken back.
//!
//! Source: docs/decisions/0016-cpus.md.

use homenode_core::units::PAGE_SIZE;

/// Pages that a pipe has.
const PAGES: usize = 16;
const PAGE: u32 = PAGE_SIZE as u32;

/// A page of a pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Page {
    /// Bytes that nobody has read.
    left: u16,
    /// Bytes that were written to it in all.
    written: u16,
}

/// The pages of a pipe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pipe {
    /// A ring. Of one that has been read the bytes that were written are kept until it is used again.
    pages: [Page; PAGES],
    /// The oldest page, and how many there are.
    first: u8,
    len: u8,
    /// Pages that were read ahead.
    freed: u8,
    /// Bytes that nobody has read.
    left: u32,
    /// A writer has found pages, and too few for its message: it looks again at each that is free.
    /// (Linux writes what fits, and has it wait with a full pipe.)
    pub(super) too_little: bool,
    /// Messages that were written ahead, and bytes of each; messages that were read ahead.
    writes: u32,
    size: u32,
    reads: u32,
    /// The CPUs where that was done, and perhaps others.
    cpus: u64,
}

impl Pipe {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// How many pages have something that nobody has read.
    #[inline]
    pub(super) fn len(&self) -> u8 {
        self.len
    }
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        usize::from(self.len) == PAGES
    }
    /// Whether something is done ahead of time.
    #[inline]
    pub(super) fn is_ahead(&self) -> bool {
        self.writes | self.reads != 0
    }
    pub(super) fn cpus(&self) -> u64 {
        if self.is_ahead() { self.cpus } else { 0 }
    }
    #[inline]
    fn last(&mut self) -> &mut Page {
        &mut self.pages[usize::from(self.first + self.len - 1) % PAGES]
    }
    #[inline]
    fn fits(&mut self, bytes: u32) -> bool {
        self.len > 0 && u32::from(self.last().written) + bytes <= PAGE
    }
    /// Whether a read of so many bytes leaves some of the oldest page.
    #[inline]
    pub(super) fn stays_in_page(&self, bytes: u32) -> bool {
        bytes < u32::from(self.pages[usize::from(self.first) % PAGES].left)
    }
    /// Puts a message in, if there is room.
    #[inline]
    pub(super) fn put(&mut self, bytes: u32) -> bool {
        if self.fits(bytes) {
            let last = self.last();
            last.left += bytes as u16;
            last.written += bytes as u16;
        } else {
            let wanted = bytes.div_ceil(PAGE);
            if u32::from(self.len + self.freed) + wanted > PAGES as u32 {
                return false;
            }
            for i in 0..wanted {
                let part = (bytes - i * PAGE).min(PAGE) as u16;
                self.len += 1;
                *self.last() = Page { left: part, written: part };
            }
        }
        self.left += bytes;
        true
    }
    /// Takes so many bytes out, or what there is; how many that were.
    #[inline]
    pub(super) fn take(&mut self, bytes: u32) -> u32 {
        let got = bytes.min(self.left);
        let mut wanted = got;
        while wanted > 0 {
            let page = &mut self.pages[usize::from(self.first) % PAGES];
            let part = wanted.min(u32::from(page.left));
            page.left -= part as u16;
            wanted -= part;
            if page.left == 0 {
                self.first = (self.first + 1) % PAGES as u8;
                self.len -= 1;
                self.freed += u8::from(self.reads > 0);
            }
        }
        self.left -= got;
        got
    }

    // ── Ahead of time ──────────────────────────────────────────────────────────

    /// Bytes that are there whatever becomes of what was written ahead.
    #[inline]
    pub(super) fn certain(&self) -> u32 {
        self.left - self.writes * self.size
    }
    /// Writes a message beside what is done ahead, if that is certain to find room, and a byte to be read.
    #[inline]
    pub(super) fn write_beside(&mut self, bytes: u32) -> bool {
        // Messages of one size can come in any order.
        let alike = self.writes == 0 || self.size == bytes;
        alike && bytes <= PAGE && self.certain() > 0 && self.put(bytes)
    }
    /// Reads a message beside what is done ahead, if that is certain to leave something.
    #[inline]
    pub(super) fn read_beside(&mut self, bytes: u32) -> bool {
        if self.certain() <= bytes {
            return false;
        }
        self.take(bytes);
        true
    }
    /// The same ahead of time, on a CPU.
    #[inline]
    pub(super) fn write_ahead(&mut self, bytes: u32, cpu: usize) -> bool {
        if bytes == 0 || !self.write_beside(bytes) {
            return false;
        }
        self.note(cpu);
        self.writes += 1;
        self.size = bytes;
        true
    }
    /// The same ahead of time, on a CPU, up to `most` times: how often. Where somebody waits for room, the oldest page is
    /// not read to its end.
    #[inline]
    pub(super) fn read_ahead(&mut self, bytes: u32, cpu: usize, most: u32, in_page: bool) -> u32 {
        let mut there = self.certain();
        if in_page {
            there = there.min(self.pages[usize::from(self.first) % PAGES].left.into());
        }
        if there <= bytes {
            return 0;
        }
        let times = match most {
            1 => 1,
            _ => most.min((there - 1) / bytes.max(1)),
        };
        self.note(cpu);
        self.reads += times;
        self.take(bytes * times);
        times
    }
    #[inline]
    fn note(&mut self, cpu: usize) {
        let before = if self.is_ahead() { self.cpus } else { 0 };
        self.cpus = before | 1 << (cpu % 64);
    }
    /// Messages were written ahead, and the time of that has come.
    #[inline]
    pub(super) fn written(&mut self, times: u32) {
        self.writes -= times;
    }
    /// Messages were read ahead, and the time of that has come.
    #[inline]
    pub(super) fn read(&mut self, times: u32) {
        self.reads -= times;
        if self.reads == 0 {
            self.freed = 0;
        }
    }
    /// A message was written ahead, and is not written after all: the last one goes, since all are alike.
    pub(super) fn unwrite(&mut self, bytes: u32) {
        self.writes -= 1;
        self.left -= bytes;
        let last = self.last();
        last.left -= bytes as u16;
        last.written -= bytes as u16;
        if last.written == 0 {
            self.len -= 1;
        }
    }
    /// Messages were read ahead, and are not read after all.
    pub(super) fn unread(&mut self, bytes: u32, times: u32) {
        let mut back = bytes * times;
        self.left += back;
        loop {
            let page = &mut self.pages[usize::from(self.first) % PAGES];
            let part = back.min(u32::from(page.written - page.left));
            page.left += part as u16;
            back -= part;
            if back == 0 {
                break;
            }
            self.first = (self.first + PAGES as u8 - 1) % PAGES as u8;
            self.len += 1;
            self.freed -= 1;
        }
        self.read(times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    /// What is seen of a pipe.
    fn seen(pipe: &mut Pipe) -> (Vec<(u16, u16)>, u32) {
        let of = |i| pipe.pages[(usize::from(pipe.first) + i) % PAGES];
        let mut pages: Vec<Page> = (0..usize::from(pipe.len)).map(of).collect();
        let last = pages.len().saturating_sub(1);
        // What was written to a page matters for the last one only.
        pages.iter_mut().take(last).for_each(|page| page.written = 0);
        (pages.iter().map(|page| (page.left, page.written)).collect(), pipe.left)
    }

    /// Calls ahead, of which some come, in any order, and others are taken back, with others beside them: what is in the
    /// pipe then is what is in one where each call was done when its time came, and found what was certain.
    #[test]
    fn what_is_taken_back_has_not_been() {
        let mut reached = [0; 4];
        for seed in 0..3000 {
            let mut random = Stream::new(seed, "pipe");
            let sizes = [1, 100, 1000, 2048, 4096];
            let of = |random: &mut Stream| sizes[random.below(sizes.len() as u64) as usize];
            let (size, mut pipe) = (of(&mut random), Pipe::default());
            for _ in 0..random.below(40) {
                pipe.put(of(&mut random));
            }
            pipe.take(random.below(30_000) as u32);
            let mut plain = pipe.clone();
            let mut comes = |write: bool, bytes: u32| {
                let left = plain.left;
                match write {
                    true => assert!(left > 0 && plain.put(bytes), "{seed}: it finds room"),
                    false => assert!(
                        left > bytes && plain.take(bytes) == bytes,
                        "{seed}: it leaves some"
                    ),
                }
            };
            // Of what is ahead: whether it is a write, and its bytes.
            let mut ahead: Vec<(bool, u32)> = Vec::new();
            for _ in 0..random.below(60) {
                let (write, ahead_of_time) = (random.below(2) == 0, random.below(3) > 0);
                let bytes = if write { size } else { of(&mut random) };
                let times = 1 + random.below(3) as u32;
                let certain = match (write, ahead_of_time) {
                    (true, true) => u32::from(pipe.write_ahead(bytes, 3)),
                    (false, true) => pipe.read_ahead(bytes, 3, times, false),
                    (true, false) => u32::from(pipe.write_beside(bytes)),
                    (false, false) => u32::from(pipe.read_beside(bytes)),
                };
                reached[0] += u32::from(certain == 0);
                for _ in 0..certain {
                    match ahead_of_time {
                        true => ahead.push((write, bytes)),
                        false => comes(write, bytes),
                    }
                }
                while !ahead.is_empty() && random.below(3) == 0 {
                    let one = random.below(ahead.len() as u64) as usize;
                    let (write, bytes) = ahead.swap_remove(one);
                    if random.below(2) == 0 {
                        take_back(&mut pipe, write, bytes);
                        reached[1] += 1;
                    } else {
                        if write {
                            pipe.written(1)
                        } else {
                            pipe.read(1)
                        }
                        comes(write, bytes);
                        reached[2] += 1;
                    }
                }
            }
            for (write, bytes) in ahead {
                take_back(&mut pipe, write, bytes);
                reached[3] += 1;
            }
            assert_eq!(seen(&mut pipe), seen(&mut plain), "{seed}");
            assert!(!pipe.is_ahead() && pipe.freed == 0);
        }
        assert!(reached.iter().all(|&n| n > 1000), "{reached:?}");
    }
    fn take_back(pipe: &mut Pipe, write: bool, bytes: u32) {
        if write { pipe.unwrite(bytes) } else { pipe.unread(bytes, 1) }
    }
}
