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
//! Only accesses of usual instructions are known; those of others are calls of their own.

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register, UsedMemory,
};

/// General registers that may be changed, by their bits.
type Registers = u32;
const ALL: Registers = u32::MAX;

const LINE_BYTES: i64 = 64;
/// Groups of a block that are looked at for one more access.
const LATEST: usize = 6;

/// The registers of an address, and how far beside them it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address {
    base: Register,
    index: Register,
    scale: u32,
    beside: i64,
}

impl Address {
    /// `None`: it is not told by general registers of 64 bits alone.
    fn of(m: &UsedMemory) -> Option<Self> {
        let plain = |r: Register| r == Register::None || r == Register::RIP || r.is_gpr64();
        let here = !matches!(m.segment(), Register::FS | Register::GS);
        (here && plain(m.base()) && plain(m.index())).then_some(Self {
            base: m.base(),
            index: m.index(),
            scale: m.scale(),
            beside: m.displacement() as i64,
        })
    }
    fn uses(&self, changed: Registers) -> bool {
        [self.base, self.index].into_iter().filter_map(bit).any(|b| changed & b != 0)
    }
}

/// Of a general register, whatever part of it.
fn bit(register: Register) -> Option<Registers> {
    let whole = register.full_register();
    whole.is_gpr64().then(|| 1 << whole.number())
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

    /// What the instruction at an address does.
    fn of(bytes: &[u8], at: u64, infos: &mut InstructionInfoFactory) -> Self {
        let insn = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
        if insn.is_invalid() {
            return Self::UNKNOWN;
        }
        let info = infos.info(&insn);
        let writes = |a: OpAccess| {
            use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
            matches!(a, Write | CondWrite | ReadWrite | ReadCondWrite)
        };
        let mut changed = 0;
        for used in info.used_registers().iter().filter(|r| writes(r.access())) {
            changed |= bit(used.register()).unwrap_or(0);
        }
        let stack = stack_moved(&insn);
        if stack != 0 && insn.op0_register() != Register::RSP || moves_stack(&insn) {
            changed &= !bit(Register::RSP).unwrap_or(0);
        }
        let accesses = |m: &&UsedMemory| m.access() != OpAccess::NoMemAccess;
        let mut all = info.used_memory().iter().filter(accesses);
        let memory = match (all.next(), all.next()) {
            (None, _) => Memory::Nothing,
            (Some(m), None) if is_usual(&insn) => known(m).unwrap_or(Memory::Unknown),
            (Some(_), _) => Memory::Unknown,
        };
        Self { memory, changed, stack }
    }
}

/// Whether QEMU makes one access for each that the instruction has, at its address. Shifts,
/// strings, vectors and the like may have two or none.
fn is_usual(insn: &Instruction) -> bool {
    use Mnemonic::*;
    let usual = matches!(
        insn.mnemonic(),
        Mov | Movzx
            | Movsx
            | Movsxd
            | Add
            | Adc
            | Sub
            | Sbb
            | And
            | Or
            | Xor
            | Cmp
            | Test
            | Inc
            | Dec
            | Neg
            | Not
            | Imul
            | Push
            | Pop
            | Call
            | Ret
            | Jmp
    );
    let by_condition = insn.condition_code() != ConditionCode::None;
    (usual || by_condition) && !insn.has_lock_prefix()
}

fn known(m: &UsedMemory) -> Option<Memory> {
    let does = match m.access() {
        OpAccess::Read => Does::Load,
        OpAccess::Write => Does::Store,
        OpAccess::ReadWrite => Does::Change,
        OpAccess::None
        | OpAccess::CondRead
        | OpAccess::CondWrite
        | OpAccess::ReadCondWrite
        | OpAccess::NoMemAccess => return None,
    };
    let bytes = m.memory_size().size();
    let at = Address::of(m).filter(|_| (1..=8).contains(&bytes))?;
    Some(Memory::Known { at, bytes: bytes as i64, does })
}

/// Whether it does nothing but move the stack pointer by a number that it says.
fn moves_stack(insn: &Instruction) -> bool {
    let by_number = match insn.mnemonic() {
        Mnemonic::Add | Mnemonic::Sub => insn.try_immediate(1).is_ok(),
        Mnemonic::Lea => {
            insn.memory_base() == Register::RSP && insn.memory_index() == Register::None
        }
        _ => false,
    };
    by_number && insn.op0_kind() == OpKind::Register && insn.op0_register() == Register::RSP
}

/// How far the instruction moves the stack pointer, where that is told by itself.
fn stack_moved(insn: &Instruction) -> i64 {
    match insn.mnemonic() {
        Mnemonic::Push | Mnemonic::Pop | Mnemonic::Call | Mnemonic::Ret => {
            i64::from(insn.stack_pointer_increment())
        }
        Mnemonic::Add if moves_stack(insn) => insn.immediate(1) as i64,
        Mnemonic::Sub if moves_stack(insn) => (insn.immediate(1) as i64).wrapping_neg(),
        Mnemonic::Lea if moves_stack(insn) => insn.memory_displacement64() as i64,
        _ => 0,
    }
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
pub(crate) struct Block {
    goes: Vec<Goes>,
    making: Vec<Making>,
    /// How far the stack pointer has been moved.
    stack: i64,
    infos: InstructionInfoFactory,
}

impl Default for Block {
    fn default() -> Self {
        let infos = InstructionInfoFactory::new();
        Self { goes: Vec::new(), making: Vec::new(), stack: 0, infos }
    }
}

impl Block {
    /// The next instruction, which stands at an address.
    pub(crate) fn push(&mut self, insn: &[u8], at: u64) {
        let e = Effect::of(insn, at, &mut self.infos);
        let goes = match e.memory {
            Memory::Nothing => Goes::Nowhere,
            Memory::Unknown => Goes::Alone,
            Memory::Known { mut at, bytes, does } => {
                if at.base == Register::RSP {
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
