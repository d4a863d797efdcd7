/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The header inside the kernel: a program that is run by hand (BPF_PROG_RUN), once for each
 * choice. `state` is filled and read from outside, with the shape of src/tests/bpf.rs.
 */

#define HN_WAKE_MAX_CPUS 128
#define HN_WAKE_MAX_DOMAINS 256
#define HN_WAKE_MAX_MASKS 1024

#include "../include/homenode_wake_bpf.h"

struct hn_bpf_state {
    struct hn_wake_task waker;
    struct hn_wake_task wakee;
    struct hn_wake_choice choice;
    /* Of the view what is no pointer, in its order. */
    hn_u32 view[8];
    struct hn_wake_up up;
    hn_u64 allowed[HN_WAKE_MAX_WORDS];
    hn_u64 idle[HN_WAKE_MAX_WORDS];
    hn_u64 idle_core[HN_WAKE_MAX_WORDS];
    hn_u64 sched_idle[HN_WAKE_MAX_WORDS];
    hn_u64 active[HN_WAKE_MAX_WORDS];
    hn_u64 load[HN_WAKE_MAX_CPUS];
    hn_u64 avg_idle[HN_WAKE_MAX_CPUS];
    hn_u64 scan_cost[HN_WAKE_MAX_CPUS];
    hn_u32 nr_running[HN_WAKE_MAX_CPUS];
    hn_u32 nr_delayed[HN_WAKE_MAX_CPUS];
    hn_u32 capacity[HN_WAKE_MAX_CPUS];
    hn_u32 capacity_orig[HN_WAKE_MAX_CPUS];
    struct hn_wake_place place[HN_WAKE_MAX_CPUS];
    struct hn_wake_domain domain[HN_WAKE_MAX_DOMAINS];
    struct hn_wake_shared shared[HN_WAKE_MAX_DOMAINS];
    hn_u64 masks[HN_WAKE_MAX_MASKS];
};

struct hn_bpf_state state __attribute__((section(".bss"), used));

__attribute__((section("syscall"), used)) int choose(void *context)
{
    struct hn_wake_view view = {
        .nr_cpus = state.view[0],
        .version = state.view[1],
        .recent = state.view[2],
        .has = state.view[3],
        .hz = state.view[4],
        .all = state.view[5],
        .capacity_orig_max = state.view[6],
        .place = state.place,
        .domain = state.domain,
        .masks = state.masks,
        .idle = state.idle,
        .idle_core = state.idle_core,
        .sched_idle = state.sched_idle,
        .active = state.active,
        .nr_running = state.nr_running,
        .nr_delayed = state.nr_delayed,
        .load = state.load,
        .capacity = state.capacity,
        .capacity_orig = state.capacity_orig,
        .avg_idle = state.avg_idle,
        .scan_cost = state.scan_cost,
        .shared = state.shared,
        .allowed = state.allowed,
    };

    (void)context;
    hn_wake_choose(&view, &state.up, &state.waker, &state.wakee, &state.choice);
    return 0;
}

char terms[] __attribute__((section("license"), used)) = "Dual MIT/GPL";
