//! Which accesses of a block lie beside one another.
//!
//! A function keeps its variables beside the stack pointer and an object's fields beside the
//! register that points to it. So of a block's accesses, all of which run when it runs, many lie
//! within a line of 64 bytes, or in two that follow each other. One call does for all of them.
//!
//! ```text
//! mov 0x10(%rbx), %rax   ─▶ a call: 16 bytes from here on, the last 8 of them stored
//! test %rax, %rax
//! mov %rcx, 0x18(%rbx)      counted with its block
//! mov 0x10(%rax), %rdx   ─▶ a call: rax is not what it was
//! ```
//!
//! Only the usual instructions are known. Where one is not, all registers are taken to be
//! changed by it, and its accesses are calls of their own.

/// A register that may be changed, by its bit.
type Registers = u32;
const ALL: Registers = u32::MAX;
const RAX: u8 = 0;
const RDX: u8 = 2;
const RSP: u8 = 4;
/// In an address: no register, and the instruction pointer.
const NONE: u8 = 16;
const RIP: u8 = 17;

const LINE_BYTES: i64 = 64;
/// Groups of a block that are looked at for one more access.
const LATEST: usize = 6;

/// The registers of an address, and how far beside them it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address {
    base: u8,
    index: u8,
    scale: u8,
    beside: i64,
}

impl Address {
    const fn stack(beside: i64) -> Self {
        Self { base: RSP, index: NONE, scale: 0, beside }
    }
    fn uses(&self, changed: Registers) -> bool {
        [self.base, self.index].iter().any(|&r| r < NONE && changed & (1 << r) != 0)
    }
}

/// What an instruction does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Nothing,
    Known { at: Address, bytes: i64, does: Does },
    Unknown,
}

/// How it does that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Load,
    Store,
    /// Both, as two accesses.
    Change,
}

/// What an instruction does, as far as it is of interest here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Effect {
    memory: Memory,
    changed: Registers,
    /// How much the stack pointer is moved, behind the access.
    stack: i64,
}

impl Effect {
    const UNKNOWN: Self = Self { memory: Memory::Unknown, changed: ALL, stack: 0 };
    const NOTHING: Self = Self { memory: Memory::Nothing, changed: 0, stack: 0 };
    fn changing(register: u8) -> Self {
        Self { changed: 1 << register, ..Self::NOTHING }
    }
    fn also(self, register: u8) -> Self {
        Self { changed: self.changed | 1 << register, ..self }
    }
    fn stack(beside: i64, does: Does, by: i64) -> Self {
        let memory = Memory::Known { at: Address::stack(beside), bytes: 8, does };
        Self { memory, changed: 0, stack: by }
    }
}

/// The second operand of many instructions.
#[derive(Clone, Copy)]
enum Operand {
    Register(u8),
    At(Address),
}

impl Operand {
    fn does(self, does: Does, bytes: i64) -> Effect {
        match self {
            Self::Register(_) if does == Does::Load => Effect::NOTHING,
            Self::Register(r) => Effect::changing(r),
            Self::At(at) => {
                Effect { memory: Memory::Known { at, bytes, does }, changed: 0, stack: 0 }
            }
        }
    }
    /// Where it is memory, accesses that are not told apart.
    fn somehow(self) -> Effect {
        match self {
            Self::Register(_) => Effect::NOTHING,
            Self::At(_) => Effect { memory: Memory::Unknown, changed: 0, stack: 0 },
        }
    }
}

/// What precedes the operation.
#[derive(Clone, Copy, Default)]
struct Prefixes {
    short: bool,
    segment: bool,
    rex: u8,
}

/// The byte behind the operation and what belongs to it. Returns how long that is, the
/// register that it names, what of the operation it is (the same bits), and the operand.
fn operands(rest: &[u8], rex: u8) -> Option<(usize, u8, u8, Operand)> {
    let m = *rest.first()?;
    let part = m >> 3 & 7;
    let register = part | (rex & 4) << 1;
    let number = |at: usize, bytes: usize| -> Option<i64> {
        let b = rest.get(at..at + bytes)?;
        Some(match b {
            [b] => i64::from(*b as i8),
            b => i64::from(i32::from_le_bytes(b.try_into().ok()?)),
        })
    };
    let low = m & 7 | (rex & 1) << 3;
    if m >> 6 == 3 {
        return Some((1, register, part, Operand::Register(low)));
    }
    let (mut len, mut base, mut index, mut scale) = (1, low, NONE, 0);
    let mut no_base = m >> 6 == 0 && m & 7 == 5;
    if no_base {
        base = RIP;
    }
    if m & 7 == 4 {
        let s = *rest.get(1)?;
        len = 2;
        base = s & 7 | (rex & 1) << 3;
        (index, scale) = (s >> 3 & 7 | (rex & 2) << 2, s >> 6);
        if index == RSP {
            (index, scale) = (NONE, 0);
        }
        no_base = m >> 6 == 0 && s & 7 == 5;
        if no_base {
            base = NONE;
        }
    }
    let wide = match m >> 6 {
        _ if no_base => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    let beside = if wide == 0 { 0 } else { number(len, wide)? };
    Some((len + wide, register, part, Operand::At(Address { base, index, scale, beside })))
}

/// What the instruction at an address does.
fn effect(insn: &[u8], at: u64) -> Effect {
    let mut p = Prefixes::default();
    let mut rest = insn;
    while let [b, behind @ ..] = rest {
        match b {
            0x66 => p.short = true,
            0xf2 | 0xf3 => {}
            0x64 | 0x65 => p.segment = true,
            _ => break,
        }
        rest = behind;
    }
    if let [b @ 0x40..=0x4f, behind @ ..] = rest {
        (p.rex, rest) = (*b, behind);
    }
    let e = plain(rest, p).unwrap_or(Effect::UNKNOWN);
    match e.memory {
        Memory::Known { .. } if p.segment => Effect { memory: Memory::Unknown, ..e },
        Memory::Known { at: mut a, bytes, does } if a.base == RIP => {
            a.beside = a.beside.wrapping_add(at as i64).wrapping_add(insn.len() as i64);
            Effect { memory: Memory::Known { at: a, bytes, does }, ..e }
        }
        Memory::Known { .. } | Memory::Nothing | Memory::Unknown => e,
    }
}

/// `None`: not one of the usual.
fn plain(insn: &[u8], p: Prefixes) -> Option<Effect> {
    use Does::{Change, Load, Store};
    let (&op, rest) = insn.split_first()?;
    let low = op & 7 | (p.rex & 1) << 3;
    let wide = match p {
        _ if p.rex & 8 != 0 => 8,
        _ if p.short => 2,
        _ => 4,
    };
    let bytes = if op & 1 == 0 { 1 } else { wide };
    // A byte's register without a REX prefix may be the second byte of another: changed is
    // then that one, whose number has bit 2.
    let byte_too = |register: u8| match op & 1 {
        0 if p.rex == 0 => Effect::changing(register).also(register & 3),
        _ => Effect::changing(register),
    };
    let with = |e: Effect, register: u8| Effect { changed: e.changed | 1 << register, ..e };
    Some(match op {
        0x50..=0x57 if !p.short => Effect::stack(-8, Store, -8),
        0x58..=0x5f if !p.short => Effect::stack(0, Load, 8).also(low),
        0x68 | 0x6a if !p.short => Effect::stack(-8, Store, -8),
        0xe8 if !p.short => Effect::stack(-8, Store, -8),
        0xc3 => Effect::stack(0, Load, 8),
        0x70..=0x7f | 0xe9 | 0xeb => Effect::NOTHING,
        0x90 if p.rex & 1 == 0 => Effect::NOTHING,
        0xa8 | 0xa9 => Effect::NOTHING,
        0xb0..=0xb7 => with(byte_too(low), low & 3),
        0xb8..=0xbf => Effect::changing(low),
        0x98 => Effect::changing(RAX),
        0x99 => Effect::changing(RDX),
        // Arithmetic of two operands.
        0x00..=0x3f if op & 7 < 4 => {
            let (_, register, _, other) = operands(rest, p.rex)?;
            match (op & 2 == 0, op >> 3 == 7) {
                (_, true) => other.does(Load, bytes),
                (true, false) => match other {
                    Operand::Register(r) => byte_too(r),
                    Operand::At(_) => other.does(Change, bytes),
                },
                (false, false) => {
                    let e = other.does(Load, bytes);
                    Effect { changed: e.changed | byte_too(register).changed, ..e }
                }
            }
        }
        0x3c | 0x3d => Effect::NOTHING,
        0x00..=0x3f if op & 7 < 6 => Effect::changing(RAX),
        // Arithmetic with a number.
        0x80 | 0x81 | 0x83 => {
            let (len, _, part, other) = operands(rest, p.rex)?;
            match other {
                Operand::Register(RSP) if p.rex & 8 != 0 && (part == 0 || part == 5) => {
                    let n = rest.get(len..)?;
                    let n = match (op, n) {
                        (0x83, [n]) => i64::from(*n as i8),
                        (0x81, n) => i64::from(i32::from_le_bytes(n.try_into().ok()?)),
                        _ => return None,
                    };
                    Effect { stack: if part == 0 { n } else { -n }, ..Effect::NOTHING }
                }
                _ if part == 7 => other.does(Load, bytes),
                Operand::Register(r) => byte_too(r),
                Operand::At(_) => other.does(Change, bytes),
            }
        }
        0x84 | 0x85 => operands(rest, p.rex)?.3.does(Load, bytes),
        0x88 | 0x89 => match operands(rest, p.rex)?.3 {
            Operand::Register(r) => byte_too(r),
            other @ Operand::At(_) => other.does(Store, bytes),
        },
        0x8a | 0x8b => {
            let (_, register, _, other) = operands(rest, p.rex)?;
            let e = other.does(Load, bytes);
            Effect { changed: e.changed | byte_too(register).changed, ..e }
        }
        0xc6 | 0xc7 => match operands(rest, p.rex)? {
            (_, _, 0, Operand::Register(r)) => byte_too(r),
            (_, _, 0, other) => other.does(Store, bytes),
            _ => return None,
        },
        0x8d => match operands(rest, p.rex)? {
            (_, RSP, _, Operand::At(Address { base: RSP, index: NONE, beside, .. }))
                if p.rex & 8 != 0 =>
            {
                Effect { stack: beside, ..Effect::NOTHING }
            }
            (_, register, _, Operand::At(_)) => Effect::changing(register),
            _ => return None,
        },
        0x63 => {
            let (_, register, _, other) = operands(rest, p.rex)?;
            with(other.does(Load, 4), register)
        }
        0x69 | 0x6b => {
            let (_, register, _, other) = operands(rest, p.rex)?;
            with(other.does(Load, wide), register)
        }
        // Shifts: of memory they are rare.
        0xc0 | 0xc1 | 0xd0..=0xd3 => match operands(rest, p.rex)?.3 {
            Operand::Register(r) => byte_too(r),
            Operand::At(_) => return None,
        },
        0xf6 | 0xf7 => match operands(rest, p.rex)? {
            (_, _, 0 | 1, other) => other.does(Load, bytes),
            (_, _, 2 | 3, Operand::Register(r)) => byte_too(r),
            (_, _, 2 | 3, other) => other.does(Change, bytes),
            (_, _, _, other) => with(with(other.somehow(), RAX), RDX),
        },
        0xfe | 0xff => match operands(rest, p.rex)? {
            (_, _, 0 | 1, Operand::Register(r)) => byte_too(r),
            (_, _, 0 | 1, other) => other.does(Change, bytes),
            (_, _, 4, other) if op == 0xff => other.does(Load, 8),
            _ => return None,
        },
        0x0f => after_0f(rest, p, wide)?,
        _ => return None,
    })
}

/// Operations of two bytes.
fn after_0f(insn: &[u8], p: Prefixes, wide: i64) -> Option<Effect> {
    let (&op, rest) = insn.split_first()?;
    let loads = |bytes: i64| {
        let (_, register, _, other) = operands(rest, p.rex)?;
        let e = other.does(Does::Load, bytes);
        Some(Effect { changed: e.changed | 1 << register, ..e })
    };
    Some(match op {
        // Nothing, at any length, and marks of where jumps may go.
        0x1f => Effect::NOTHING,
        0x1e if rest == [0xfa] => Effect::NOTHING,
        0x80..=0x8f => Effect::NOTHING,
        0x40..=0x4f | 0xaf => loads(wide)?,
        0xb6 | 0xbe => loads(1)?,
        0xb7 | 0xbf => loads(2)?,
        0x90..=0x9f => match operands(rest, p.rex)?.3 {
            Operand::Register(r) => Effect::changing(r).also(r & 3),
            other @ Operand::At(_) => other.does(Does::Store, 1),
        },
        // Vectors: no other registers, and one access or two, as QEMU likes.
        0x10..=0x17 | 0x28 | 0x29 | 0x2a | 0x2e | 0x2f => operands(rest, p.rex)?.3.somehow(),
        0x51..=0x70 | 0x74..=0x76 | 0x7f | 0xc6 | 0xd4..=0xd6 | 0xd8..=0xe6 | 0xe8..=0xf6 => {
            operands(rest, p.rex)?.3.somehow()
        }
        0xf8..=0xfe => operands(rest, p.rex)?.3.somehow(),
        0x7e => match operands(rest, p.rex)?.3 {
            Operand::Register(r) => Effect::changing(r),
            other @ Operand::At(_) => other.somehow(),
        },
        _ => return None,
    })
}

/// How the accesses of an instruction go through the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goes {
    /// It has none.
    Nowhere,
    /// By themselves, each as QEMU tells.
    Alone,
    /// With those of later instructions.
    First(Group),
    /// With those of an earlier one: so many are counted.
    With(u8),
}

/// Accesses that lie beside one another, as the first of them sees them: bytes of a number.
///
/// ```text
/// byte 0  how far the first access is behind the lowest byte
///      1  the last byte, from the lowest
///      2  the first that is stored, from the lowest
///      3  the last of these
///      4  1 where nothing is stored
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Group(pub(crate) u64);

impl Group {
    /// The lowest byte, where the first access is at `at`.
    #[inline(always)]
    pub(crate) fn lowest(self, at: u64) -> u64 {
        at.wrapping_sub(self.0 & 0xff)
    }
    /// The last byte, from the lowest.
    #[inline(always)]
    pub(crate) fn last(self) -> u64 {
        self.0 >> 8 & 0xff
    }
    /// 1 where nothing is stored.
    #[inline(always)]
    pub(crate) fn load(self) -> u8 {
        (self.0 >> 32) as u8
    }
    /// Whether something is stored in the first `bytes` of it, and in the others.
    pub(crate) fn stores(self, bytes: u64) -> (bool, bool) {
        let (first, last) = (self.0 >> 16 & 0xff, self.0 >> 24 & 0xff);
        let any = self.load() == 0;
        (any && first < bytes, any && last >= bytes)
    }
}

/// One in the making.
struct Making {
    /// Of the first access.
    at: Address,
    leader: usize,
    /// From there: the bytes, and those that are stored.
    bytes: (i64, i64),
    stored: Option<(i64, i64)>,
    over: bool,
}

impl Making {
    /// The bytes with one more access; `None`: it lies elsewhere.
    fn with(&self, at: &Address, bytes: i64) -> Option<(i64, i64)> {
        let same = (at.base, at.index, at.scale) == (self.at.base, self.at.index, self.at.scale);
        let from = at.beside.wrapping_sub(self.at.beside);
        let to = from.saturating_add(bytes);
        let all = (self.bytes.0.min(from), self.bytes.1.max(to));
        let fits = same && !self.over && all.1.saturating_sub(all.0) <= LINE_BYTES;
        fits.then_some(all)
    }
    fn take(&mut self, at: &Address, bytes: i64, does: Does, all: (i64, i64)) {
        self.bytes = all;
        if does != Does::Load {
            let from = at.beside.wrapping_sub(self.at.beside);
            let (low, high) = self.stored.unwrap_or((from, from + bytes));
            self.stored = Some((low.min(from), high.max(from + bytes)));
        }
    }
    fn made(&self) -> Group {
        let (low, high) = self.bytes;
        let (first, behind) = self.stored.unwrap_or((low, low + 1));
        let byte = |n: i64| n as u64 & 0xff;
        let load = u64::from(self.stored.is_none());
        Group(
            byte(-low)
                | byte(high - low - 1) << 8
                | byte(first - low) << 16
                | byte(behind - low - 1) << 24
                | load << 32,
        )
    }
}

/// A block while it is being translated.
#[derive(Default)]
pub(crate) struct Block {
    goes: Vec<Goes>,
    making: Vec<Making>,
    /// How far the stack pointer has been moved.
    stack: i64,
}

impl Block {
    /// The next instruction, which stands at an address.
    pub(crate) fn push(&mut self, insn: &[u8], at: u64) {
        let e = effect(insn, at);
        let goes = match e.memory {
            Memory::Nothing => Goes::Nowhere,
            Memory::Unknown => Goes::Alone,
            Memory::Known { mut at, bytes, does } => {
                if at.base == RSP {
                    at.beside = at.beside.wrapping_add(self.stack);
                }
                // Of several groups the one that stays the shortest: it is in one line most.
                let latest = self.making.iter_mut().rev().take(LATEST);
                let fits = latest.filter_map(|m| m.with(&at, bytes).map(|all| (m, all)));
                if let Some((group, all)) = fits.min_by_key(|(_, all)| all.1 - all.0) {
                    group.take(&at, bytes, does, all);
                    Goes::With(if does == Does::Change { 2 } else { 1 })
                } else {
                    let stored = (does != Does::Load).then_some((0, bytes));
                    let leader = self.goes.len();
                    self.making.push(Making { at, leader, bytes: (0, bytes), stored, over: false });
                    Goes::First(Group(0))
                }
            }
        };
        self.goes.push(goes);
        self.stack = self.stack.wrapping_add(e.stack);
        if e.changed != 0 {
            for m in self.making.iter_mut().filter(|m| m.at.uses(e.changed)) {
                m.over = true;
            }
        }
    }
    /// How each instruction's accesses go, in order, and how many go with others.
    pub(crate) fn done(mut self) -> (Vec<Goes>, u64) {
        for m in &self.making {
            self.goes[m.leader] = Goes::First(m.made());
        }
        let count = |g: &Goes| match g {
            Goes::With(n) => u64::from(*n),
            Goes::Nowhere | Goes::Alone | Goes::First(_) => 0,
        };
        let with = self.goes.iter().map(count).sum();
        (self.goes, with)
    }
}

#[cfg(test)]
mod tests;
