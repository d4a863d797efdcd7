/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What every program here needs before libbpf's own headers: the kernel's names for numbers,
 * and of the kernel's interface (bpf(2)) what is used. There is no vmlinux.h: each program
 * declares the members of the kernel's structures that it reads (docs/decisions/0008-bpf.md).
 */
#ifndef HOMENODE_BPF_KERNEL_H
#define HOMENODE_BPF_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

/* bpf_helpers.h wants the kinds of maps before it is included. */
enum {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_PERCPU_HASH = 5,
    BPF_MAP_TYPE_PERCPU_ARRAY = 6,
    BPF_MAP_TYPE_QUEUE = 22,
    BPF_MAP_TYPE_RINGBUF = 27,
    BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum {
    BPF_ANY = 0,
    BPF_NOEXIST = 1,
};
enum {
    BPF_F_NO_PREALLOC = 1,
};
enum {
    BPF_RB_NO_WAKEUP = 1,
    BPF_RB_FORCE_WAKEUP = 2,
    BPF_RB_AVAIL_DATA = 0,
};

/* States of a task; its flags; why it is put on a CPU. */
#define TASK_INTERRUPTIBLE 0x01
#define TASK_UNINTERRUPTIBLE 0x02
#define TASK_DEAD 0x80
#define PF_EXITING 0x00000004
#define PF_KTHREAD 0x00200000
#define WF_FORK 0x04
#define WF_TTWU 0x08
#define WF_SYNC 0x10
#define WF_CURRENT_CPU 0x40

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#endif
