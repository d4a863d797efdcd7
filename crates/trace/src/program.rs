//! What kind of program a file is, by its first bytes.
//!
//! Both sides of the recorder need it: the parent before it starts a command,
//! the plugin when the recorded program runs another.

/// How many bytes of a file are enough for [`classify`].
pub const HEAD_BYTES: usize = 256;

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// An x86-64 ELF executable: the recorder can run it.
    Native,
    /// An ELF executable for another machine; its `e_machine`, and whether it is 32-bit.
    OtherMachine {
        /// The number in the ELF header.
        machine: u16,
        /// 32 or 64.
        bits: u8,
    },
    /// An ELF file that is no executable: an object file or a core.
    NotExecutable,
    /// A script: its interpreter and the one argument that the kernel passes on.
    Script {
        /// The interpreter's path.
        interpreter: Vec<u8>,
        /// All that follows it on the line.
        argument: Option<Vec<u8>>,
    },
    /// Nothing that the kernel would run.
    Unknown,
}

const EM_X86_64: u16 = 62;

/// Tells a file from its first bytes ([`HEAD_BYTES`] are enough).
pub fn classify(head: &[u8]) -> Program {
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = &line[..line.iter().position(|&b| b == b'\n').unwrap_or(line.len())];
        let line = line.trim_ascii();
        let end = line.iter().position(|b| b" \t".contains(b)).unwrap_or(line.len());
        let (interpreter, rest) = (&line[..end], line[end..].trim_ascii());
        if interpreter.is_empty() {
            return Program::Unknown;
        }
        let argument = (!rest.is_empty()).then(|| rest.to_vec());
        return Program::Script { interpreter: interpreter.to_vec(), argument };
    }
    if head.len() < 20 || !head.starts_with(b"\x7fELF") {
        return Program::Unknown;
    }
    let big = head[5] == 2;
    let half = |at: usize| {
        let b = [head[at], head[at + 1]];
        if big { u16::from_be_bytes(b) } else { u16::from_le_bytes(b) }
    };
    let (kind, machine) = (half(16), half(18));
    let bits = if head[4] == 2 { 64 } else { 32 };
    if machine != EM_X86_64 || bits != 64 || big {
        Program::OtherMachine { machine, bits }
    } else if kind == 2 || kind == 3 {
        Program::Native
    } else {
        Program::NotExecutable
    }
}

/// A name for an ELF machine number, for people.
pub fn machine_name(machine: u16, bits: u8) -> String {
    match (machine, bits) {
        (3, _) => "32-bit x86".to_owned(),
        (EM_X86_64, 32) => "x32".to_owned(),
        (8, _) => "MIPS".to_owned(),
        (20, _) => "32-bit PowerPC".to_owned(),
        (21, _) => "PowerPC".to_owned(),
        (22, _) => "S/390".to_owned(),
        (40, _) => "32-bit Arm".to_owned(),
        (183, _) => "64-bit Arm".to_owned(),
        (243, _) => "RISC-V".to_owned(),
        (258, _) => "LoongArch".to_owned(),
        (n, b) => format!("ELF machine {n}, {b}-bit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(class: u8, data: u8, kind: u8, machine: u8) -> Vec<u8> {
        let mut b = vec![0; 64];
        b[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, data]);
        let at = usize::from(data == 2);
        b[16 + at] = kind;
        b[18 + at] = machine;
        b
    }

    #[test]
    fn programs_are_told_apart() {
        assert_eq!(classify(&elf(2, 1, 2, 62)), Program::Native);
        assert_eq!(classify(&elf(2, 1, 3, 62)), Program::Native);
        assert_eq!(classify(&elf(2, 1, 1, 62)), Program::NotExecutable);
        assert_eq!(classify(&elf(1, 1, 2, 3)), Program::OtherMachine { machine: 3, bits: 32 });
        assert_eq!(classify(&elf(2, 2, 2, 22)), Program::OtherMachine { machine: 22, bits: 64 });
        assert_eq!(classify(&elf(2, 1, 2, 62)[..19]), Program::Unknown);
        assert_eq!(classify(b""), Program::Unknown);
        assert_eq!(classify(b"#!"), Program::Unknown);
        assert_eq!(classify(b"#! \n/bin/sh"), Program::Unknown);
    }

    #[test]
    fn scripts_name_their_interpreter_and_one_argument() {
        let script = |i: &[u8], a: Option<&[u8]>| Program::Script {
            interpreter: i.to_vec(),
            argument: a.map(<[u8]>::to_vec),
        };
        assert_eq!(classify(b"#!/bin/sh\necho"), script(b"/bin/sh", None));
        assert_eq!(
            classify(b"#! /usr/bin/env  -S a b \n"),
            script(b"/usr/bin/env", Some(b"-S a b"))
        );
        assert_eq!(classify(b"#!/bin/sh"), script(b"/bin/sh", None));
    }
}
