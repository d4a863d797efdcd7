//! The part of QEMU's plugin interface (version 1) that the recorder calls,
//! declared from its published description.

use std::ffi::{c_char, c_int, c_void};

/// A translation block while it is being translated.
#[repr(C)]
pub(crate) struct Tb {
    _opaque: [u8; 0],
}
/// An instruction of it.
#[repr(C)]
pub(crate) struct Insn {
    _opaque: [u8; 0],
}

/// The callback reads no registers.
pub(crate) const CB_NO_REGS: c_int = 0;
/// Call at loads and stores. Asked for stores only, version 7.2 calls at loads
/// too, and asked for loads it calls at stores; so ask for both, once.
pub(crate) const MEM_RW: c_int = 3;
/// Add a constant to a u64 in place of a call.
pub(crate) const INLINE_ADD_U64: c_int = 0;

pub(crate) type MemCb = extern "C" fn(vcpu: u32, info: u32, vaddr: u64, data: *mut c_void);
pub(crate) type SyscallCb = extern "C" fn(u64, u32, i64, u64, u64, u64, u64, u64, u64, u64, u64);

unsafe extern "C" {
    pub(crate) fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, cb: extern "C" fn(u64, *mut Tb));
    pub(crate) fn qemu_plugin_tb_vaddr(tb: *const Tb) -> u64;
    pub(crate) fn qemu_plugin_tb_n_insns(tb: *const Tb) -> usize;
    pub(crate) fn qemu_plugin_tb_get_insn(tb: *const Tb, i: usize) -> *mut Insn;
    pub(crate) fn qemu_plugin_insn_data(insn: *const Insn) -> *const u8;
    pub(crate) fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    pub(crate) fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    pub(crate) fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        cb: MemCb,
        flags: c_int,
        rw: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_tb_exec_cb(
        tb: *mut Tb,
        cb: extern "C" fn(u32, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_tb_exec_inline(
        tb: *mut Tb,
        op: c_int,
        ptr: *mut c_void,
        imm: u64,
    );
    pub(crate) fn qemu_plugin_register_vcpu_syscall_cb(id: u64, cb: SyscallCb);
    pub(crate) fn qemu_plugin_register_vcpu_syscall_ret_cb(
        id: u64,
        cb: extern "C" fn(u64, u32, i64, i64),
    );
    /// Forgets all callbacks and all translated code, when no thread runs translated code; then
    /// calls back.
    pub(crate) fn qemu_plugin_reset(id: u64, cb: extern "C" fn(u64));
    pub(crate) fn qemu_plugin_register_atexit_cb(
        id: u64,
        cb: extern "C" fn(u64, *mut c_void),
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_mem_size_shift(info: u32) -> u32;
    pub(crate) fn qemu_plugin_mem_is_store(info: u32) -> bool;
    pub(crate) fn qemu_plugin_path_to_binary() -> *const c_char;
}
