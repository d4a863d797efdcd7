//! System calls and what they leave in the recording.

use super::*;
use crate::task::tests::{ANONYMOUS, Rig};
use expect_test::{Expect, expect};

const FROM: u64 = 0x7000_0000;

/// Makes calls, each with its first arguments and the kernel's answer.
fn check(calls: &[(i64, &[u64], i64)], expected: Expect) {
    let mut r = Rig::new();
    for (number, args, result) in calls {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        r.run(10);
        r.task.called(*number, all);
        assert_eq!(r.task.returned(*number, *result), Side::Caller);
    }
    r.task.flush();
    expected.assert_eq(&r.told());
}

#[test]
fn mappings_come_change_and_go() {
    let ro = libc::PROT_READ as u64;
    check(
        &[
            // Half a page is a page.
            (libc::SYS_mmap, &[0, 0x1800, 3, 0x22], FROM as i64),
            (libc::SYS_mprotect, &[FROM, 0x1000, ro], 0),
            (libc::SYS_madvise, &[FROM, 0x2000, libc::MADV_DONTNEED as u64], 0),
            // Other advice changes nothing that a recording has.
            (libc::SYS_madvise, &[FROM, 0x2000, libc::MADV_HUGEPAGE as u64], 0),
            (libc::SYS_munmap, &[FROM, 0x2000], 0),
        ],
        expect![[r#"
            100/100 frame 0: image, 50 instructions, 0 accesses, 0 missed
              after  10  Map 0x70000 +2 0x2200000003
              after  10  Protect 0x70000 +1 0x1
              after  10  Discard 0x70000 +2 0x4
              after  20  Unmap 0x70000 +2 0x0
              after   0  compute 0
        "#]],
    );
}

#[test]
fn a_mapping_that_grows_or_moves_is_told_as_both() {
    let to = FROM + 0x10_0000;
    check(
        &[
            (libc::SYS_mremap, &[FROM, 0x2000, 0x3000], FROM as i64),
            (libc::SYS_mremap, &[FROM, 0x3000, 0x3000], to as i64),
            (libc::SYS_mremap, &[to, 0x3000, 0x1000], to as i64),
        ],
        expect![[r#"
            100/100 frame 0: image, 30 instructions, 0 accesses, 0 missed
              after  10  Map 0x70002 +1 0x2200000003
              after  10  Remap 0x70000 +3 0x70100
              after  10  Unmap 0x70101 +2 0x0
              after   0  compute 0
        "#]],
    );
}

#[test]
fn the_heap_is_known_from_its_second_end_on() {
    let ends = [0x5000, 0x5000, 0x8800, 0x6000];
    let calls = ends.map(|end| (libc::SYS_brk, &[] as &[u64], end));
    check(
        &calls,
        expect![[r#"
        100/100 frame 0: image, 40 instructions, 0 accesses, 0 missed
          after  30  Map 0x5 +4 0x2200000003
          after  10  Unmap 0x6 +3 0x0
          after   0  compute 0
    "#]],
    );
}

#[test]
fn what_the_kernel_refuses_has_not_happened() {
    let mut r = Rig::new();
    r.task.called(libc::SYS_munmap, [FROM, 0x1000, 0, 0, 0, 0]);
    r.task.returned(libc::SYS_munmap, -i64::from(libc::EINVAL));
    // An answer to another call, as after a signal's handler.
    r.task.called(libc::SYS_munmap, [FROM, 0x1000, 0, 0, 0, 0]);
    r.task.returned(libc::SYS_mprotect, 0);
    r.task.flush();
    assert!(!r.told().contains("Unmap") && !r.told().contains("Protect"));
}

#[test]
fn the_kernels_copies_are_accesses() {
    let mut r = Rig::new();
    // 100 bytes were asked for, and 10 came; both ends are in one line.
    // No such descriptor: what a task waits for at one is told elsewhere.
    r.task.called(libc::SYS_read, [u64::MAX, FROM, 100, 0, 0, 0]);
    r.task.returned(libc::SYS_read, 10);
    // All that is to be written is read, whatever the answer is.
    r.task.called(libc::SYS_write, [1, FROM + 0x1000, 100, 0, 0, 0]);
    r.task.returned(libc::SYS_write, -i64::from(libc::EPIPE));
    r.task.flush();
    expect![[r#"
        100/100 frame 0: image, 0 instructions, 3 accesses, 3 missed
          after   0  access 0x70000: 0 read, 1 written
          after   0  access 0x70001: 2 read, 0 written
          after   0  compute 0
    "#]]
    .assert_eq(&r.told());
}

#[test]
fn tasks_begin_and_are_waited_for() {
    let threads = (libc::CLONE_VM | libc::CLONE_THREAD) as u64;
    let vfork = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;
    let status: u32 = 0x300;
    let at = &raw const status as u64;
    let told = |code: i32, pid, status| {
        let mut info = [0u32; 32];
        (info[2], info[4], info[6]) = (code as u32, pid, status);
        info
    };
    let killed = told(libc::CLD_KILLED, 104, libc::SIGKILL as u32);
    let stopped = told(libc::CLD_STOPPED, 105, libc::SIGSTOP as u32);
    check(
        &[
            (libc::SYS_clone, &[threads], 101),
            (libc::SYS_clone, &[vfork], 102),
            (libc::SYS_fork, &[], 103),
            (libc::SYS_wait4, &[103, at], 103),
            (libc::SYS_wait4, &[102, 0], 102),
            (libc::SYS_waitid, &[0, 0, killed.as_ptr() as u64, 4], 0),
            (libc::SYS_waitid, &[0, 0, stopped.as_ptr() as u64, 4], 0),
            // Nobody has ended yet.
            (libc::SYS_wait4, &[u64::MAX, at, 1], 0),
        ],
        expect![[r#"
            100/100 frame 0: image, 10 instructions, 0 accesses, 0 missed
              after  10  Thread 0x0 +0 0x65
              after   0  compute 0
            100/100 frame 1: 20 instructions, 0 accesses, 0 missed
              after  10  Fork 0x0 +0 0x66
              after   0  compute 0
            100/100 frame 2: 30 instructions, 0 accesses, 0 missed
              after   0  Block 0x3 +0 0x66
              after  10  Fork 0x0 +0 0x67
              after   0  compute 0
            100/100 frame 3: 40 instructions, 0 accesses, 0 missed
              after  10  Wait 0x0 +1 0x30000000067
              after   0  compute 0
            100/100 frame 4: 50 instructions, 0 accesses, 0 missed
              after  10  Wait 0x0 +0 0x66
              after   0  compute 0
            100/100 frame 5: 60 instructions, 0 accesses, 0 missed
              after  10  Wait 0x0 +1 0x900000068
              after   0  compute 0
            100/100 frame 6: 80 instructions, 0 accesses, 0 missed
              after  20  compute 0
        "#]],
    );
    assert!(makes_thread(libc::SYS_clone, threads));
    assert!(!makes_thread(libc::SYS_clone, vfork) && !makes_thread(libc::SYS_fork, threads));
}

#[test]
fn on_the_childs_side_nothing_is_told() {
    let mut r = Rig::new();
    r.task.called(libc::SYS_fork, [0; 6]);
    assert_eq!(r.task.returned(libc::SYS_fork, 0), Side::Child);
    assert!(r.frames().is_empty());
    assert_eq!(HEAP, ANONYMOUS);
}
