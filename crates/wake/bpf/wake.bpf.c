/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The header inside the kernel: a program that is run by hand (BPF_PROG_RUN), once for each
 * choice. `state` is filled and read from outside, with the shape of src/tests/bpf.rs.
 */

/* Whatever the compiler knows of an index, the verifier gets to see its bound. */
#define HN_WAKE_CUT(index, power)                              \
    ({                                                         \
        hn_u64 cut_index = (index);                            \
        __asm__ volatile("" : "+r"(cut_index));                \
        cut_index & ((hn_u64)(power) - 1);                     \
    })
/* The kernel's iterator of numbers (6.4 and later). With plain loops the verifier follows each
 * round of each loop from each place that calls it, and gives up at a million instructions. */
#define HN_WAKE_FOR(i, n)                                                            \
    for (struct bpf_iter_num it __attribute__((cleanup(hn_bpf_end))),               \
         *begun = (bpf_iter_num_new(&it, 0, (n)), &it);                              \
         hn_bpf_next(begun, (n), &(i));)
#define HN_WAKE_FAR static __attribute__((noinline))
#define HN_WAKE_MAX_CPUS 128
#define HN_WAKE_MAX_DOMAINS 256
#define HN_WAKE_MAX_MASKS 1024

struct bpf_iter_num {
    unsigned long long opaque[1];
} __attribute__((aligned(8)));

#define HN_BPF_KERNEL __attribute__((section(".ksyms")))
extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) HN_BPF_KERNEL;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) HN_BPF_KERNEL;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) HN_BPF_KERNEL;

static inline __attribute__((always_inline)) void hn_bpf_end(struct bpf_iter_num *it)
{
    bpf_iter_num_destroy(it);
}

static inline __attribute__((always_inline)) int hn_bpf_next(struct bpf_iter_num *it,
                                                             unsigned int end, unsigned int *i)
{
    int *next = bpf_iter_num_next(it);

    if (!next)
        return 0;
    *i = (unsigned int)*next;
    /* The verifier forgets what it was told of the end. */
    return *i < end;
}

#include "../include/homenode_wake.h"

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
