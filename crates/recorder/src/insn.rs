//! What of an instruction's bytes decides how it is counted.

/// Whether it is a string instruction with a repeat prefix.
pub(crate) fn repeats(bytes: &[u8]) -> bool {
    let (prefixes, rest) = parted(bytes);
    prefixes.iter().any(|b| matches!(b, 0xf2 | 0xf3))
        && matches!(rest.first(), Some(0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf))
}

/// Whether it changes memory atomically: with a lock prefix, or an exchange with memory.
pub(crate) fn is_atomic(bytes: &[u8]) -> bool {
    let (prefixes, rest) = parted(bytes);
    // The high two bits of the byte after the opcode say that both operands are registers.
    prefixes.contains(&LOCK) || matches!(rest, [0x86 | 0x87, operands, ..] if operands >> 6 != 3)
}

const LOCK: u8 = 0xf0;

/// Prefixes, and what they precede.
fn parted(bytes: &[u8]) -> (&[u8], &[u8]) {
    let prefix = |&&b: &&u8| {
        matches!(
            b,
            0x40..=0x4f
                | 0x66
                | 0x67
                | LOCK
                | 0xf2
                | 0xf3
                | 0x2e
                | 0x36
                | 0x3e
                | 0x26
                | 0x64
                | 0x65
        )
    };
    bytes.split_at(bytes.iter().take_while(prefix).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_instruction_repeats_only_with_its_prefix() {
        let repeated: [&[u8]; 4] = [
            &[0xf3, 0xaa],             // rep stosb
            &[0xf3, 0x48, 0xa5],       // rep movsq
            &[0x66, 0xf2, 0xaf],       // repne scasw
            &[0x67, 0xf3, 0x48, 0xa7], // repe cmpsq with short addresses
        ];
        let once: [&[u8]; 5] = [
            &[],
            &[0xaa],             // stosb
            &[0xf3, 0xc3],       // repz ret
            &[0xf3, 0x0f, 0x10], // movss: the prefix is part of its name
            &[0xf3],
        ];
        assert!(repeated.into_iter().all(repeats));
        assert!(!once.into_iter().any(repeats));
    }

    #[test]
    fn locked_instructions_and_exchanges_with_memory_are_atomic() {
        let atomic: [&[u8]; 5] = [
            &[0xf0, 0x0f, 0xb1, 0x17],       // lock cmpxchg %edx, (%rdi)
            &[0x87, 0x07],                   // xchg %eax, (%rdi)
            &[0x48, 0x87, 0x47, 0x08],       // xchg %rax, 8(%rdi)
            &[0xf0, 0x48, 0x0f, 0xc1, 0x06], // lock xadd %rax, (%rsi)
            &[0x66, 0xf0, 0xff, 0x0f],       // lock decw (%rdi)
        ];
        let other: [&[u8]; 5] = [
            &[],
            &[0x48, 0x87, 0xc3],       // xchg %rax, %rbx
            &[0x66, 0x90],             // nop
            &[0x48, 0x89, 0x45, 0xf8], // mov %rax, -8(%rbp)
            &[0x0f, 0x87, 0, 0, 0, 0], // ja
        ];
        assert!(atomic.into_iter().all(is_atomic));
        assert!(!other.into_iter().any(is_atomic));
    }
}
