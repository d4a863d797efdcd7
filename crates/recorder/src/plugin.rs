//! What QEMU calls. Two names are exported for it.
#![allow(unreachable_pub)]

use crate::beside::{Block, Goes, Group};
use crate::calls::{Side, makes_thread};
use crate::exec::{self, Plan};
use crate::insn::{is_atomic, repeats};
use crate::order::signals;
use homenode_trace::model::{LINE_BITS, Look};

use crate::qemu::*;
use crate::spins::may_spin;
use crate::task::{Config, Process, Task};
use crate::words::WORDS;
use homenode_trace::wire;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{addr_of, addr_of_mut, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicI8, AtomicI64, AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// The version of the interface that this plugin is written for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: c_int = 1;

/// More threads than that run unrecorded; QEMU gives out the lowest numbers first.
const MOST_TASKS: usize = 1 << 15;

static PROCESS: OnceLock<Process> = OnceLock::new();
static PROGRAM: OnceLock<CString> = OnceLock::new();
/// By QEMU's number of the virtual CPU, which is a thread here. A thread only
/// uses its own entry, but at the end of the process.
static TASKS: [AtomicPtr<Task>; MOST_TASKS] = [const { AtomicPtr::new(null_mut()) }; MOST_TASKS];
/// Likewise: whether somebody is at the task because of a call, be it the thread itself, which
/// enters or leaves it, or another one, which ends the process. QEMU stops threads that compute
/// before it ends a process, and not those that come out of a call.
static HELD: [AtomicBool; MOST_TASKS] = [const { AtomicBool::new(false) }; MOST_TASKS];
/// Likewise: whether the thread is between a call's entry and its return.
static IN_CALL: [AtomicBool; MOST_TASKS] = [const { AtomicBool::new(false) }; MOST_TASKS];
/// Whether all that this process ever tells has been sent.
static OVER: AtomicBool = AtomicBool::new(false);
/// Whether there was ever a second thread. Everything is translated anew then.
static THREADED: AtomicBool = AtomicBool::new(false);
/// Whether the first image has said hello.
static GREETED: AtomicBool = AtomicBool::new(false);
/// What the program gave to `exit_group`; negative before.
static STATUS: AtomicI64 = AtomicI64::new(-1);

/// Whether the second thread has its task, and with it what translated code has counted since.
static SECOND: AtomicBool = AtomicBool::new(false);

/// Instructions while there is one thread: translated code adds to it. Those of the second one until
/// all is translated anew: it may run, be it for milliseconds, before the first comes to that.
static mut INLINE: u64 = 0;
/// Likewise accesses that are counted only.
static mut INLINE_ACCESSES: u64 = 0;
/// The first task, for translated code that runs while it is the only one.
static mut LONE: *mut Task = null_mut();
/// What tasks look at in their place later.
static ZERO: u64 = 0;

/// QEMU calls this once, before the program is loaded. Arguments are `key=value`:
/// `folder`, `qemu`, `plugin`, `l1`, `l2`, `llc` (bytes:ways), `tlb`, and optionally
/// `skip`, `until` (instructions), `count`. Returns 0 where all is well.
///
/// # Safety
/// `argv` holds `argc` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    _info: *const c_void,
    argc: c_int,
    argv: *mut *mut c_char,
) -> c_int {
    let raw: Vec<String> = (0..usize::try_from(argc).unwrap_or(0))
        // SAFETY: the caller's promise.
        .map(|i| unsafe { CStr::from_ptr(*argv.add(i)) }.to_string_lossy().into_owned())
        .collect();
    let Some(process) = Config::parse(&raw).and_then(Process::new) else {
        eprintln!("homenode-recorder: this plugin is started by `homenode record`, not by hand");
        return 1;
    };
    if PROCESS.set(process).is_err() {
        return 1;
    }
    register(id);
    0
}

/// Says what QEMU is to call.
extern "C" fn register(id: u64) {
    // SAFETY: the callbacks have the types that QEMU expects.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
        qemu_plugin_register_vcpu_syscall_cb(id, on_call);
        qemu_plugin_register_vcpu_syscall_ret_cb(id, on_return);
        qemu_plugin_register_atexit_cb(id, on_exit, null_mut());
    }
}

extern "C" fn on_translate(_id: u64, tb: *mut Tb) {
    let Some(process) = PROCESS.get() else { return };
    if !GREETED.swap(true, Relaxed) {
        greet();
    }
    // SAFETY: `tb` is valid during this call, and so are its instructions.
    unsafe {
        let threaded = THREADED.load(Relaxed);
        let count = qemu_plugin_tb_n_insns(tb);
        // A repeated string instruction runs once per element, each time in a block
        // of its own after the first: it counts as one instruction, as it does natively.
        let n =
            if count == 1 && repeats(bytes_of(qemu_plugin_tb_get_insn(tb, 0))) { 0 } else { count };
        if n == 0 {
        } else if threaded {
            qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, CB_NO_REGS, n as *mut c_void);
        } else {
            let at = addr_of_mut!(INLINE).cast();
            qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD_U64, at, n as u64);
        }
        if process.config.count_only {
            return;
        }
        let at = qemu_plugin_tb_vaddr(tb);
        if signals::handled_at(at) != 0 {
            qemu_plugin_register_vcpu_tb_exec_cb(tb, on_handler, CB_NO_REGS, at as *mut c_void);
        }
        if threaded {
            let all = (0..count).map(|i| {
                let insn = qemu_plugin_tb_get_insn(tb, i);
                (bytes_of(insn), qemu_plugin_insn_vaddr(insn))
            });
            let looks = may_spin(all);
            for i in 0..count {
                let insn = qemu_plugin_tb_get_insn(tb, i);
                let call: MemCb = match (is_atomic(bytes_of(insn)), looks) {
                    (true, true) => on_try,
                    (true, false) => on_atomic,
                    (false, true) => on_look,
                    (false, false) => on_access,
                };
                qemu_plugin_register_vcpu_mem_cb(insn, call, CB_NO_REGS, MEM_RW, null_mut());
            }
            return;
        }
        let mut block = Block::default();
        for i in 0..count {
            let insn = qemu_plugin_tb_get_insn(tb, i);
            block.push(bytes_of(insn), qemu_plugin_insn_vaddr(insn));
        }
        let (goes, with) = block.done();
        if with > 0 {
            let at = addr_of_mut!(INLINE_ACCESSES).cast();
            qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD_U64, at, with);
        }
        for (i, goes) in goes.into_iter().enumerate() {
            let insn = qemu_plugin_tb_get_insn(tb, i);
            let (call, data): (MemCb, _) = match goes {
                Goes::Nowhere | Goes::With(_) => continue,
                Goes::First(group) => (on_group, group.0 as *mut c_void),
                Goes::Alone if is_atomic(bytes_of(insn)) => (on_atomic, null_mut()),
                Goes::Alone => (on_lone_access, null_mut()),
            };
            qemu_plugin_register_vcpu_mem_cb(insn, call, CB_NO_REGS, MEM_RW, data);
        }
    }
}

/// An instruction's bytes.
///
/// # Safety
/// `insn` belongs to the block that is being translated; the bytes are gone after it.
unsafe fn bytes_of<'a>(insn: *const Insn) -> &'a [u8] {
    // SAFETY: QEMU gives the instruction's bytes, as many as it says.
    unsafe {
        let (at, n) = (qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn));
        if at.is_null() { &[] } else { std::slice::from_raw_parts(at, n) }
    }
}

/// The first block of the program is being translated: now its name is known.
fn greet() {
    // SAFETY: QEMU returns a string of its own, or null.
    let path = unsafe {
        let p = qemu_plugin_path_to_binary();
        if p.is_null() { c"?".to_owned() } else { CStr::from_ptr(p).to_owned() }
    };
    let path = PROGRAM.get_or_init(|| path);
    if let Some(t) = task(0) {
        // SAFETY: there is one thread, and nothing is translated yet that reads it.
        unsafe { LONE = t };
        t.hello(path.to_bytes());
    }
}

/// The calling thread's task, made where it is new.
#[inline(always)]
fn task(vcpu: u32) -> Option<&'static mut Task> {
    let t = TASKS.get(vcpu as usize)?.load(Relaxed);
    if t.is_null() {
        return new_task(vcpu);
    }
    // SAFETY: made in `new_task`, used by this thread only until it is freed.
    Some(unsafe { &mut *t })
}

#[cold]
fn new_task(vcpu: u32) -> Option<&'static mut Task> {
    let process = PROCESS.get()?;
    let tid = tid();
    let counted = [addr_of!(INLINE), addr_of!(INLINE_ACCESSES)];
    let task = if THREADED.load(Relaxed) {
        let starter = process.starter.load(Relaxed);
        let inline = if SECOND.swap(true, Relaxed) { [addr_of!(ZERO); 2] } else { counted };
        Task::new(process, inline, tid, wire::FLAG_THREAD, starter)
    } else {
        Task::new(process, counted, tid, wire::FLAG_IMAGE, 0)
    };
    let t = Box::into_raw(Box::new(task));
    TASKS[vcpu as usize].store(t, Relaxed);
    // SAFETY: just made.
    Some(unsafe { &mut *t })
}

/// A task that nobody else is at because of a call, until this is dropped.
struct Held(usize);

impl Held {
    /// Waits for who is at it now. `None`: the process is over, or there are too many threads.
    fn wait(vcpu: u32) -> Option<Self> {
        let at = vcpu as usize;
        HELD.get(at)?;
        loop {
            if let Some(held) = Self::at_once(at) {
                return (!OVER.load(Relaxed)).then_some(held);
            }
            std::thread::yield_now();
        }
    }
    /// `None`: somebody is at it.
    fn at_once(at: usize) -> Option<Self> {
        let taken = HELD[at].compare_exchange(false, true, Acquire, Relaxed);
        taken.is_ok().then_some(Self(at))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD[self.0].store(false, Release);
    }
}

fn drop_task(vcpu: u32) {
    IN_CALL[vcpu as usize].store(false, Relaxed);
    let t = TASKS[vcpu as usize].swap(null_mut(), Relaxed);
    if !t.is_null() {
        // SAFETY: made by `Box::into_raw`; its thread is the caller, which ends.
        drop(unsafe { Box::from_raw(t) });
    }
}

extern "C" fn on_block(vcpu: u32, insns: *mut c_void) {
    if let Some(t) = task(vcpu) {
        t.insns += insns as u64;
    }
}

/// The block at an address runs, where a signal's handler begins.
extern "C" fn on_handler(vcpu: u32, at: *mut c_void) {
    if let Some(t) = task(vcpu) {
        t.handler_begins(signals::handled_at(at as u64));
    }
}

/// What QEMU's description of an access says, by its low bits: asking QEMU is two
/// calls, and a program has only a few kinds. A kind is the largest place in a
/// line, times two, at which the access still ends in it, plus one for a load.
static KINDS: [AtomicI8; 1 << 18] = [const { AtomicI8::new(KIND_UNKNOWN) }; 1 << 18];
const LINE_BYTES: u64 = 1 << LINE_BITS;
/// Below every place: an access of a kind that was not asked for is unusual.
const KIND_UNKNOWN: i8 = -1;
const KIND_LOAD: i8 = 1;

#[cold]
fn ask_kind(info: u32) -> i8 {
    // SAFETY: `info` comes from QEMU.
    let (store, shift) =
        unsafe { (qemu_plugin_mem_is_store(info), qemu_plugin_mem_size_shift(info)) };
    let room = LINE_BYTES as i8 - (1 << shift.min(5));
    let k = room << 1 | if store { 0 } else { KIND_LOAD };
    if let Some(slot) = KINDS.get(info as usize) {
        slot.store(k, Relaxed);
    }
    k
}

/// Most of a recording's time goes here: what is rare is behind tail calls, so
/// that the common path saves no registers.
extern "C" fn on_access(vcpu: u32, info: u32, at: u64, _: *mut c_void) {
    let (Some(t), Some(kind)) = (TASKS.get(vcpu as usize), KINDS.get(info as usize)) else {
        return unusual(vcpu, info, at);
    };
    let (t, kind) = (t.load(Relaxed), kind.load(Relaxed));
    let place = (at % LINE_BYTES) as i32;
    if t.is_null() || place << 1 > i32::from(kind) {
        return unusual(vcpu, info, at);
    }
    // SAFETY: made in `new_task`, used by this thread only until it is freed.
    let t = unsafe { &mut *t };
    match t.core.look(at >> LINE_BITS, (kind & KIND_LOAD) as u8) {
        Look::Done if kind & KIND_LOAD == 0 && WORDS.is_spun() => stored(t, at),
        Look::Done => {}
        Look::Further => further(t, at, kind),
        Look::RoundOver => round_over(t, at, kind),
    }
}

/// A store, where a task has looked at a word in a loop: it may be to that.
#[inline(never)]
extern "C" fn stored(t: &mut Task, at: u64) {
    // SAFETY: the program has just accessed it.
    unsafe { t.changed(at) };
}

/// An access of a block that may be a loop's in which a task waits for a word to change.
extern "C" fn on_look(vcpu: u32, info: u32, at: u64, data: *mut c_void) {
    on_access(vcpu, info, at, data);
    looked_at(vcpu, info, at, false);
}

/// The same of an atomic instruction, by which the task tries to change the word.
extern "C" fn on_try(vcpu: u32, info: u32, at: u64, data: *mut c_void) {
    on_atomic(vcpu, info, at, data);
    looked_at(vcpu, info, at, true);
}

#[inline]
fn looked_at(vcpu: u32, info: u32, at: u64, is_atomic: bool) {
    if let (Some(t), Some(kind)) = (task(vcpu), KINDS.get(info as usize)) {
        let bytes = LINE_BYTES as u32 - (kind.load(Relaxed) >> 1) as u32;
        // SAFETY: the program has just accessed it.
        unsafe { t.looks_at(at, bytes, is_atomic) };
    }
}

/// [`on_access`] while there is one thread: which task it is needs no look, and no other
/// thread's end can have cleared a word.
extern "C" fn on_lone_access(vcpu: u32, info: u32, at: u64, data: *mut c_void) {
    if vcpu != 0 {
        return on_access(vcpu, info, at, data);
    }
    let Some(kind) = KINDS.get(info as usize) else {
        return unusual(vcpu, info, at);
    };
    let kind = kind.load(Relaxed);
    let place = (at % LINE_BYTES) as i32;
    if place << 1 > i32::from(kind) {
        return unusual(vcpu, info, at);
    }
    // SAFETY: made in `greet`, before any block runs; the first thread is here.
    let t = unsafe { &mut *LONE };
    match t.core.look(at >> LINE_BITS, (kind & KIND_LOAD) as u8) {
        Look::Done => {}
        Look::Further => lone_further(t, at >> LINE_BITS, (kind & KIND_LOAD) as u8),
        Look::RoundOver => round_over(t, at, kind),
    }
}

/// The first of accesses that lie beside one another; the others are counted with their block.
extern "C" fn on_group(vcpu: u32, _info: u32, at: u64, group: *mut c_void) {
    let group = Group(group as u64);
    let lowest = group.lowest(at);
    if vcpu != 0 || lowest % LINE_BYTES + group.last() >= LINE_BYTES {
        return on_group_elsewhere(vcpu, lowest, group);
    }
    // SAFETY: as in `on_lone_access`.
    let t = unsafe { &mut *LONE };
    let line = lowest >> LINE_BITS;
    match t.core.look(line, group.load()) {
        Look::Done => {}
        Look::Further => lone_further(t, line, group.load()),
        Look::RoundOver => lone_round_over(t, line, group.load()),
    }
}

/// A group of which some lie in a line and some in the next, or one of the second thread, until
/// all is translated anew.
#[cold]
#[inline(never)]
extern "C" fn on_group_elsewhere(vcpu: u32, lowest: u64, group: Group) {
    let Some(t) = task(vcpu) else { return };
    t.core.count();
    let line = lowest >> LINE_BITS;
    let bytes = LINE_BYTES - lowest % LINE_BYTES;
    if group.last() < bytes {
        return t.access(line, group.load() == 0);
    }
    let (first, second) = group.stores(bytes);
    t.access(line, first);
    t.access(line + 1, second);
}

#[cold]
#[inline(never)]
extern "C" fn lone_round_over(t: &mut Task, line: u64, load: u8) {
    t.core.count_round();
    t.access(line, load == 0);
}

/// Its line is not the latest of its set: that it is the second is mostly so.
#[inline(never)]
extern "C" fn lone_further(t: &mut Task, line: u64, load: u8) {
    if !t.core.look_second(line, load) {
        t.access(line, load == 0);
    }
}

/// An access of an instruction that others can't come between.
extern "C" fn on_atomic(vcpu: u32, info: u32, at: u64, data: *mut c_void) {
    on_access(vcpu, info, at, data);
    if let Some(t) = task(vcpu) {
        // SAFETY: the program has just accessed it.
        unsafe { t.changed(at) };
    }
}

#[cold]
#[inline(never)]
extern "C" fn round_over(t: &mut Task, at: u64, kind: i8) {
    t.core.count_round();
    further(t, at, kind);
}

/// With C's calling convention, so that it can be a tail call of its caller.
#[inline(never)]
extern "C" fn further(t: &mut Task, at: u64, kind: i8) {
    let (line, write) = (at >> LINE_BITS, kind & KIND_LOAD == 0);
    // SAFETY: the program has just accessed it.
    unsafe { t.looked(at) };
    if write && WORDS.is_spun() {
        stored(t, at);
    }
    t.access(line, write);
    if (at % LINE_BYTES) as i8 > kind >> 1 {
        t.access(line + 1, write);
    }
}

/// A thread's first access, one of a kind that was not seen before, or one that
/// crosses a line.
#[cold]
#[inline(never)]
extern "C" fn unusual(vcpu: u32, info: u32, at: u64) {
    let Some(t) = task(vcpu) else { return };
    t.core.count();
    further(t, at, ask_kind(info));
}

extern "C" fn on_call(
    id: u64,
    vcpu: u32,
    number: i64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    a5: u64,
    a6: u64,
    _: u64,
    _: u64,
) {
    let Some(_held) = Held::wait(vcpu) else { return };
    let (Some(t), Some(process)) = (task(vcpu), PROCESS.get()) else { return };
    t.called(number, [a1, a2, a3, a4, a5, a6]);
    IN_CALL[vcpu as usize].store(true, Relaxed);
    match number {
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => {
            if makes_thread(number, a1) {
                if !THREADED.swap(true, Relaxed) {
                    t.leave_inline(&ZERO);
                    // SAFETY: there is one thread, and it runs no translated code now.
                    unsafe { (INLINE, INLINE_ACCESSES) = (0, 0) };
                    // What was translated before counts for one thread. QEMU itself forgets it
                    // now only if the program has mapped nothing shared yet: else it has done
                    // so then.
                    // SAFETY: it is done when no thread runs translated code, at the latest
                    // before this one does again.
                    unsafe { qemu_plugin_reset(id, register) };
                }
                process.starter.store(tid(), Relaxed);
            }
            t.flush();
        }
        libc::SYS_execve => execute(t, process, None, a1, a2, a3),
        libc::SYS_execveat => execute(t, process, Some(a1 as i32), a2, a3, a4),
        libc::SYS_exit => {
            let last = TASKS.iter().filter(|t| !t.load(Relaxed).is_null()).count() <= 1;
            if last {
                t.closes_at_end();
            }
            t.exits(a1 & 255);
            t.flush();
            t.over();
            if !last {
                drop_task(vcpu);
            }
        }
        libc::SYS_exit_group => {
            t.closes_at_end();
            t.ends_all = true;
            STATUS.store(a1 as i64 & 255, Relaxed);
        }
        _ => {}
    }
}

fn tid() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

fn execute(t: &mut Task, process: &Process, dir: Option<i32>, path: u64, argv: u64, env: u64) {
    let own = PROGRAM.get().map_or(c"", |p| p.as_c_str());
    match exec::plan(&process.config, own, dir, path, argv) {
        Plan::Run(all) => {
            t.closes_at_exec();
            flush_calling(t);
            exec::run(&all, env);
        }
        Plan::Unrecorded => {
            t.row(wire::UNRECORDED, 0, 0, 0);
            flush_calling(t);
        }
        Plan::Leave => {}
    }
}

/// Sends what the calling task has, and other threads that are in a call. Those that compute
/// write to what they have meanwhile: whoever records takes it when they are gone.
fn flush_calling(own: &mut Task) {
    let own_at: *mut Task = own;
    for (i, t) in TASKS.iter().enumerate() {
        let t = t.load(Relaxed);
        if t.is_null() || t == own_at || !IN_CALL[i].load(Relaxed) {
            continue;
        }
        // Who is at it now may wait for us.
        let Some(_held) = Held::at_once(i) else { continue };
        if IN_CALL[i].load(Relaxed) {
            // SAFETY: made in `new_task`; its thread waits for us before it goes on.
            unsafe { &mut *t }.flush();
        }
    }
    own.flush();
}

extern "C" fn on_return(_id: u64, vcpu: u32, number: i64, result: i64) {
    let Some(_held) = Held::wait(vcpu) else { return };
    IN_CALL[vcpu as usize].store(false, Relaxed);
    let Some(t) = task(vcpu) else { return };
    if t.returned(number, result) == Side::Child {
        begin_child(t, vcpu);
    }
}

/// The calling thread is the one thread of a forked process.
fn begin_child(t: &mut Task, vcpu: u32) {
    for (i, other) in TASKS.iter().enumerate() {
        if i != vcpu as usize {
            // Their buffers belong to the parent's threads; freeing them gains nothing. New
            // threads get their numbers.
            other.store(null_mut(), Relaxed);
            HELD[i].store(false, Relaxed);
            IN_CALL[i].store(false, Relaxed);
        }
    }
    // SAFETY: no preconditions.
    let pid = unsafe { libc::getpid() } as u32;
    if let Some(p) = PROCESS.get() {
        p.pid.store(pid, Relaxed);
    }
    t.become_child(pid);
}

extern "C" fn on_exit(_id: u64, _: *mut c_void) {
    let status = STATUS.load(Relaxed);
    // From here on nobody enters or leaves a call, but for those who are about to.
    if OVER.swap(true, Relaxed) {
        return;
    }
    for (i, t) in TASKS.iter().enumerate() {
        if t.load(Relaxed).is_null() {
            continue;
        }
        let _held = loop {
            match Held::at_once(i) {
                Some(held) => break held,
                None => std::thread::yield_now(),
            }
        };
        let t = t.load(Relaxed);
        if !t.is_null() {
            // SAFETY: made in `new_task`; QEMU has stopped threads that compute, and those that
            // are in a call find that it is over.
            let t = unsafe { &mut *t };
            if let Ok(status) = u64::try_from(status) {
                t.exits(status);
            }
            t.flush();
            t.over();
        }
    }
}

/// Keeps the type of the shared counter in one place with its user.
const _: () = assert!(std::mem::size_of::<AtomicU64>() <= wire::SHARED_BYTES);
