/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What homenode_wake.h needs to pass the kernel's verifier; a BPF program includes this one
 * in its place, after HN_WAKE_MAX_* where it wants others than the header's.
 */
#ifndef HOMENODE_WAKE_BPF_H
#define HOMENODE_WAKE_BPF_H

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

#include "homenode_wake.h"

#endif /* HOMENODE_WAKE_BPF_H */
