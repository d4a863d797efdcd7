//! Where the memory of a program that is started goes first: its memory policy, set before its first
//! instruction.
//!
//! ```text
//! fork ─▶ set_mempolicy ─▶ exec CMD ─▶ all that it starts inherits it
//! ```
//!
//! None of these binds: where a node is full the kernel takes another one, and pages may be moved
//! anywhere. It ends with the programs, so that nothing has to be put back.
//!
//! Source: specs/act.md#begins; set_mempolicy(2).

use homenode_core::units::NodeId;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// `MPOL_INTERLEAVE`, `MPOL_PREFERRED_MANY` (from 5.15), `MPOL_WEIGHTED_INTERLEAVE` (from 6.9) of
/// `include/uapi/linux/mempolicy.h`; the `libc` crate lacks the last one.
const INTERLEAVE: libc::c_long = 3;
const PREFERRED_MANY: libc::c_long = 5;
const WEIGHTED_INTERLEAVE: libc::c_long = 6;

/// How pages are given to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To these nodes as long as they have room.
    Prefer,
    /// To these nodes in turns: by their weights where the kernel has such.
    Interleave,
}

/// Where memory goes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begins {
    /// How.
    pub way: Way,
    /// Where; at least one.
    pub nodes: BTreeSet<NodeId>,
}

impl fmt::Display for Begins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<String> = self.nodes.iter().map(ToString::to_string).collect();
        let how = match self.way {
            Way::Prefer => "goes first to",
            Way::Interleave => "goes in turns to",
        };
        let word = if nodes.len() == 1 { "node" } else { "nodes" };
        write!(f, "{how} {word} {}", nodes.join(", "))
    }
}

impl Begins {
    /// The policies that say it, the first of which a kernel knows.
    fn modes(&self) -> &'static [libc::c_long] {
        match self.way {
            Way::Prefer => &[PREFERRED_MANY],
            Way::Interleave => &[WEIGHTED_INTERLEAVE, INTERLEAVE],
        }
    }

    /// Has a command begin so.
    ///
    /// It can't be spawned then where the kernel knows no such policy, or where its cpuset has none
    /// of the nodes: `EINVAL`.
    pub fn on<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let (mask, modes) = (mask(&self.nodes), self.modes());
        // SAFETY: the child makes system calls on memory that was laid out before the fork.
        unsafe {
            command.pre_exec(move || {
                let mut why = io::Error::from_raw_os_error(libc::EINVAL);
                for &mode in modes {
                    // One bit more than the nodes: the kernel takes the last one for itself.
                    let bits = mask.len() * libc::c_ulong::BITS as usize + 1;
                    match libc::syscall(libc::SYS_set_mempolicy, mode, mask.as_ptr(), bits) {
                        0 => return Ok(()),
                        _ => why = io::Error::last_os_error(),
                    }
                }
                Err(why)
            })
        }
    }
}

/// A bit a node.
fn mask(nodes: &BTreeSet<NodeId>) -> Vec<libc::c_ulong> {
    let bits = libc::c_ulong::BITS as usize;
    let last = nodes.last().map_or(0, |n| usize::from(n.0));
    let mut mask = vec![0; last / bits + 1];
    for node in nodes {
        mask[usize::from(node.0) / bits] |= 1 << (usize::from(node.0) % bits);
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(way: Way, nodes: &[u16]) -> Begins {
        Begins { way, nodes: nodes.iter().map(|n| NodeId(*n)).collect() }
    }

    #[test]
    fn it_is_said_in_words() {
        assert_eq!(of(Way::Prefer, &[2]).to_string(), "goes first to node 2");
        assert_eq!(of(Way::Interleave, &[0, 2]).to_string(), "goes in turns to nodes 0, 2");
    }

    #[test]
    fn a_bit_stands_for_a_node() {
        let nodes = |all: &[u16]| all.iter().map(|n| NodeId(*n)).collect();
        assert_eq!(mask(&nodes(&[0])), [1]);
        assert_eq!(mask(&nodes(&[1, 3, 64])), [0b1010, 1]);
    }

    // Node 0 is on every machine, and the policy stands in its own numa_maps, inherited by a shell's
    // child. A kernel without NUMA has neither.
    #[test]
    fn a_program_and_what_it_starts_begin_so() {
        if !std::path::Path::new("/proc/self/numa_maps").exists() {
            println!("skipped: this kernel has no NUMA");
            return;
        }
        for (way, word) in [(Way::Prefer, "prefer (many):0"), (Way::Interleave, "interleave:0")] {
            let mut command = Command::new("sh");
            command.args(["-c", "cat /proc/self/numa_maps; true"]);
            let out = of(way, &[0]).on(&mut command).output().expect("a shell");
            let text = String::from_utf8_lossy(&out.stdout);
            assert!(text.lines().next().is_some_and(|l| l.contains(word)), "{word}: {text}");
        }
        let mut nowhere = Command::new("true");
        let told = of(Way::Prefer, &[900]).on(&mut nowhere).spawn().map(drop);
        assert_eq!(told.expect_err("no such node").raw_os_error(), Some(libc::EINVAL));
    }
}
