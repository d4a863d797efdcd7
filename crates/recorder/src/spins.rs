//! Looks at words: who looks at one again and again waits for another to change it.
//!
//! ```text
//! 1: pause                  ─▶ while the word is what it was, 64 times: it is watched
//! 2: cmpl $0, (%rdi)        ─▶ it is another: a row, with the instructions since the first look
//!    jne 1b
//! ```
//!
//! Only blocks that may be such a loop's are looked at ([`may_spin`]): short ones with loads, or
//! with one atomic instruction, that store nothing else and end with a conditional jump.
//!
//! Worked example: a flag is 0 at instructions 1000, 1003, … 1999, and 1 at 2002. The looks lie 3
//! apart, so the task has spun for 1002 instructions.
//!
//! Source: specs/waits.md#spinning

use crate::insn::is_atomic;
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess};

/// So many looks that find the same, and somebody may wait there.
const OFTEN: u32 = 64;
/// Instructions between two looks of a loop, at most.
const NEAR: u64 = 256;
/// Instructions of a block that may be a loop's, at most.
const LONGEST: usize = 8;
/// Words that a task looks at, by turns.
const PLACES: usize = 8;

/// Whether a block may be one of a loop in which a task waits for a word to change.
///
/// * `block` – its instructions and their addresses.
pub(crate) fn may_spin<'a>(block: impl ExactSizeIterator<Item = (&'a [u8], u64)>) -> bool {
    if block.len() > LONGEST {
        return false;
    }
    let decoded = |bytes, at| Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
    let all: Vec<(Instruction, bool)> =
        block.map(|(bytes, at)| (decoded(bytes, at), is_atomic(bytes))).collect();
    if !all.last().is_some_and(|(insn, _)| insn.is_jcc_short_or_near()) {
        return false;
    }
    let mut infos = InstructionInfoFactory::new();
    let mut looks = false;
    for (insn, is_atomic) in &all {
        if insn.is_invalid() {
            return false;
        }
        for used in infos.info(insn).used_memory() {
            match used.access() {
                OpAccess::Read | OpAccess::CondRead => {}
                OpAccess::NoMemAccess => continue,
                OpAccess::None
                | OpAccess::Write
                | OpAccess::CondWrite
                | OpAccess::ReadWrite
                | OpAccess::ReadCondWrite => {
                    if !is_atomic {
                        return false;
                    }
                }
            }
            looks = true;
        }
    }
    looks
}

/// What a look at a word has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nothing of interest: the same as before, or a word that was not looked at before.
    Same,
    /// The same so often that the task may wait for it.
    Often,
    /// Another value than at the look before, after so much.
    Changed(Spun),
}

/// How long a task has looked in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spun {
    /// Instructions; 0: it did something else between this look and the one before.
    pub(crate) insns: u64,
    /// Instructions of the task when it began.
    pub(crate) began: u64,
    /// The number of order that was the next one then.
    pub(crate) order: u64,
}

/// The words that a task has looked at last.
#[derive(Default)]
pub(crate) struct Looks([Word; PLACES]);

#[derive(Clone, Copy, Default)]
struct Word {
    at: u64,
    value: u64,
    /// Instructions at the first look that found this value, and at the last one.
    began: u64,
    last: u64,
    order: u64,
    times: u32,
}

impl Word {
    fn spun(&self, now: u64) -> Spun {
        let near = now.wrapping_sub(self.last) <= NEAR;
        let insns = if near { now - self.began } else { 0 };
        Spun { insns, began: self.began, order: self.order }
    }
}

impl Looks {
    fn place(at: u64) -> usize {
        (at >> 2) as usize % PLACES
    }
    /// A task looks at a word.
    ///
    /// * `now` – its instructions so far.
    /// * `yielded` – its instructions when it gave its CPU to others last: who does so between two
    ///   looks waits, however few these are.
    /// * `order` – the number of order that is the next one.
    #[inline]
    pub(crate) fn look(
        &mut self,
        at: u64,
        value: u64,
        now: u64,
        yielded: u64,
        order: impl FnOnce() -> u64,
    ) -> Seen {
        let word = &mut self.0[Self::place(at)];
        if word.at == at && word.value == value && now.wrapping_sub(word.last) <= NEAR {
            let before = word.times;
            word.times += if yielded > word.last { OFTEN } else { 1 };
            word.last = now;
            let is_often = before < OFTEN && word.times >= OFTEN;
            return if is_often { Seen::Often } else { Seen::Same };
        }
        let changed = word.at == at && word.value != value;
        let seen = if changed { Seen::Changed(word.spun(now)) } else { Seen::Same };
        *word = Word { at, value, began: now, last: now, order: order(), times: 0 };
        seen
    }
    /// A task has changed a word by itself that it looks at by trying to change it: how long it
    /// has tried in vain, if it has. The next look is a first one.
    pub(crate) fn over(&mut self, at: u64, now: u64) -> Option<Spun> {
        let word = &mut self.0[Self::place(at)];
        let spun = word.spun(now);
        let tried = word.at == at && word.times >= OFTEN && spun.insns > 0;
        if word.at == at {
            *word = Word::default();
        }
        tried.then_some(spun)
    }
}

#[cfg(test)]
mod tests;
