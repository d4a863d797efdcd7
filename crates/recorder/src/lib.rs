//! The QEMU plugin that records a program's memory accesses.
//!
//! QEMU's user mode translates the program block by block and calls this
//! plugin at each load and store. An access goes through the model of one
//! machine's caches and TLB ([`homenode_trace::model`]); what reaches memory becomes a row,
//! rows become frames, frames go into a pipe (`homenode_trace::wire`) whose
//! other end `homenode record` holds.
//!
//! What the model leaves out: instruction fetch, hardware prefetch, page-table
//! walks, write-backs (the store that missed counts for both), and the kernel's
//! own accesses apart from the buffers of read and write calls. L1, L2 and TLB
//! belong to a thread, as if it had a core to itself; the last level belongs
//! to a process.
//!
//! Threads share the last level without locks: a lost update makes one line's
//! age wrong, and a lock would cost more than the model.
//!
//! `plugin` is the seam: what QEMU calls, and the tasks of this process. What is made of
//! it (`task`, `calls`, `order`, `words`, `spins`, `exec`, `insn`, `beside`) knows nothing of QEMU, and tests run it
//! without.

mod beside;
mod calls;
mod exec;
mod insn;
mod order;
mod peek;
// The C functions exist only inside of QEMU.
#[cfg(not(test))]
mod plugin;
#[cfg(not(test))]
mod qemu;
mod spins;
mod task;
mod words;
