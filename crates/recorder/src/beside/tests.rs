use super::*;
use proptest::prelude::*;

/// How the instructions of a block go, one a line: `first 3..19, 8..16 stored` is the bytes of
/// a group from its first access, and those that are stored.
fn shown(block: &[&[u8]]) -> Vec<String> {
    let (mut made, mut at) = (Block::default(), 0x40_1000);
    for insn in block {
        made.push(insn, at);
        at += insn.len() as u64;
    }
    let (goes, with) = made.done();
    let count = |g: &Goes| if let Goes::With(n) = g { u64::from(*n) } else { 0 };
    assert_eq!(with, goes.iter().map(count).sum::<u64>());
    goes.into_iter()
        .map(|goes| match goes {
            Goes::Nowhere => "-".to_owned(),
            Goes::Alone => "alone".to_owned(),
            Goes::With(n) => format!("with {n}"),
            Goes::First(g) => {
                let byte = |i: u32| i64::from((g.0 >> (8 * i)) as u8);
                let low = -byte(0);
                let stored = match g.load() {
                    0 => format!(", {}..{} stored", low + byte(2), low + byte(3) + 1),
                    _ => String::new(),
                };
                format!("first {low}..{}{stored}", low + byte(1) + 1)
            }
        })
        .collect()
}

#[test]
fn a_functions_beginning_is_one_group_beside_the_stack_pointer() {
    let block: [&[u8]; 6] = [
        &[0x41, 0x57],                   // push %r15
        &[0x55],                         // push %rbp
        &[0x48, 0x83, 0xec, 0x18],       // sub $0x18, %rsp
        &[0x48, 0x89, 0x7c, 0x24, 0x08], // mov %rdi, 8(%rsp)
        &[0x48, 0x8b, 0x44, 0x24, 0x10], // mov 0x10(%rsp), %rax
        &[0xe8, 0x00, 0x00, 0x00, 0x00], // call
    ];
    // From the first push on: -8 the second, then 24 bytes further down, then the call's.
    assert_eq!(
        shown(&block),
        ["first -40..8, -40..8 stored", "with 1", "-", "with 1", "with 1", "with 1"]
    );
}

#[test]
fn fields_of_an_object_are_a_group_until_its_register_changes() {
    let block: [&[u8]; 7] = [
        &[0x48, 0x8b, 0x43, 0x10],       // mov 0x10(%rbx), %rax
        &[0x48, 0x85, 0xc0],             // test %rax, %rax
        &[0x48, 0x83, 0x43, 0x18, 0x01], // addq $1, 0x18(%rbx)
        &[0x48, 0x8b, 0x53, 0x50],       // mov 0x50(%rbx), %rdx: beyond a line's length
        &[0x0f, 0xb6, 0x43, 0x08],       // movzbl 8(%rbx), %eax
        &[0x48, 0x8b, 0x5b, 0x20],       // mov 0x20(%rbx), %rbx
        &[0x48, 0x8b, 0x43, 0x10],       // mov 0x10(%rbx), %rax: of another object
    ];
    assert_eq!(
        shown(&block),
        [
            "first -8..24, 8..16 stored",
            "-",
            "with 2",
            "first 0..8",
            "with 1",
            "with 1",
            "first 0..8"
        ]
    );
}

#[test]
fn what_is_unusual_goes_alone_and_what_is_none_changes_all_registers() {
    let load: &[u8] = &[0x48, 0x8b, 0x43, 0x10]; // mov 0x10(%rbx), %rax
    for (unknown, goes, next) in [
        (&[0xf0, 0xff, 0x03][..], "alone", "with 1"), // lock incl (%rbx)
        (&[0x0f, 0xa2], "-", "first 0..8"),           // cpuid
        (&[0x48, 0x87, 0x5b, 0x10], "alone", "first 0..8"), // xchg %rbx, 0x10(%rbx)
        (&[0xf3, 0x48, 0xa5], "alone", "with 1"),     // rep movsq
        (&[0x67, 0x8b, 0x03], "alone", "with 1"),     // mov (%ebx), %eax
        (&[0x48, 0xd3, 0x63, 0x10], "alone", "with 1"), // shlq %cl, 0x10(%rbx)
        (&[], "alone", "first 0..8"),
        (&[0x48], "alone", "first 0..8"),
        (&[0x06], "alone", "first 0..8"),
        (&[0x48, 0x8b, 0x43], "alone", "first 0..8"), // cut off
    ] {
        assert_eq!(shown(&[load, unknown, load]), ["first 0..8", goes, next], "{unknown:x?}");
    }
}

#[test]
fn vectors_and_thread_pointers_go_alone_and_change_nothing_else() {
    let load: &[u8] = &[0x48, 0x8b, 0x43, 0x10]; // mov 0x10(%rbx), %rax
    for alone in [
        &[0x0f, 0x11, 0x43, 0x20][..], // movups %xmm0, 0x20(%rbx)
        &[0x66, 0x0f, 0x6f, 0x03],     // movdqa (%rbx), %xmm0
        &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0], // mov %fs:0x28, %rax
        &[0xf7, 0x33],                 // divl (%rbx)
    ] {
        assert_eq!(shown(&[load, alone, load]), ["first 0..8", "alone", "with 1"], "{alone:x?}");
    }
}

#[test]
fn addresses_of_all_forms_are_told_apart() {
    let same: [(&[u8], &[u8]); 4] = [
        // mov (%rax,%rcx,8), %edx; mov 4(%rax,%rcx,8), %edx
        (&[0x8b, 0x14, 0xc8], &[0x8b, 0x54, 0xc8, 0x04]),
        // mov (%r12), %edx; mov 4(%r12), %edx: it needs a byte more, as the stack pointer
        (&[0x41, 0x8b, 0x14, 0x24], &[0x41, 0x8b, 0x54, 0x24, 0x04]),
        // mov 0x100(%rip), %edx; mov 0x100(%rip), %edx: 6 bytes further on
        (&[0x8b, 0x15, 0, 1, 0, 0], &[0x8b, 0x15, 0, 1, 0, 0]),
        // mov 0x1000(,%rcx,4), %edx; mov 0x1004(,%rcx,4), %edx
        (&[0x8b, 0x14, 0x8d, 0, 0x10, 0, 0], &[0x8b, 0x14, 0x8d, 4, 0x10, 0, 0]),
    ];
    let other: [(&[u8], &[u8]); 3] = [
        // mov (%rax,%rcx,8), %edx; mov (%rax,%rcx,4), %edx
        (&[0x8b, 0x14, 0xc8], &[0x8b, 0x14, 0x88]),
        // mov (%rax), %edx; mov (%r8), %edx
        (&[0x8b, 0x10], &[0x41, 0x8b, 0x10]),
        // mov (%rsp), %edx; mov (%rsp,%r12), %edx
        (&[0x8b, 0x14, 0x24], &[0x42, 0x8b, 0x14, 0x24]),
    ];
    for (a, b) in same {
        assert_eq!(shown(&[a, b])[1], "with 1", "{a:x?} {b:x?}");
    }
    for (a, b) in other {
        assert_eq!(shown(&[a, b])[1], "first 0..4", "{a:x?} {b:x?}");
    }
}

#[test]
fn a_bytes_register_may_be_a_part_of_another() {
    let load: &[u8] = &[0x8b, 0x50, 0x10]; // mov 0x10(%rax), %edx
    let ah: &[u8] = &[0x8a, 0x61, 0x01]; // mov 1(%rcx), %ah
    assert_eq!(shown(&[load, ah, load]), ["first 0..4", "first 0..1", "first 0..4"]);
    let spl: &[u8] = &[0x40, 0x8a, 0x61, 0x01]; // mov 1(%rcx), %spl
    assert_eq!(shown(&[load, spl, load]), ["first 0..4", "first 0..1", "with 1"]);
}

proptest! {
    /// Of any accesses beside a register, a group's looks are at the lines that these are in,
    /// and what is stored to is stored to.
    #[test]
    fn a_group_looks_at_the_lines_of_its_accesses(
        accesses in prop::collection::vec((-90i8..90, any::<bool>()), 1..12),
        base in 0x1_0000u64..0x1_0080,
    ) {
        let mut block = Block::default();
        for &(beside, store) in &accesses {
            // mov beside(%rbx), %rax; mov %rax, beside(%rbx)
            let op = if store { 0x89 } else { 0x8b };
            block.push(&[0x48, op, 0x43, beside as u8], 0);
        }
        let mut want = std::collections::BTreeMap::new();
        for &(beside, store) in &accesses {
            let at = base.wrapping_add_signed(i64::from(beside));
            for line in [at / 64, (at + 7) / 64] {
                *want.entry(line).or_insert(false) |= store;
            }
        }
        let mut got = std::collections::BTreeMap::new();
        let (goes, _) = block.done();
        for (goes, (beside, _)) in goes.iter().zip(accesses) {
            let Goes::First(g) = goes else { continue };
            let low = g.lowest(base.wrapping_add_signed(i64::from(beside)));
            if low % 64 + g.last() < 64 {
                *got.entry(low / 64).or_insert(false) |= g.load() == 0;
            } else {
                let (first, second) = g.stores(64 - low % 64);
                *got.entry(low / 64).or_insert(false) |= first;
                *got.entry(low / 64 + 1).or_insert(false) |= second;
            }
        }
        prop_assert_eq!(got, want);
    }

    /// No bytes are too odd.
    #[test]
    fn any_bytes_are_an_instruction(
        block in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..16), 0..20),
    ) {
        let insns: Vec<&[u8]> = block.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(shown(&insns).len(), insns.len());
    }
}
