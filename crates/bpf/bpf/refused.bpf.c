// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A program that no kernel takes, for a test of what is then said: it reads what a look into a
// map may not have found.

#include "kernel.h"

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} map SEC(".maps");

SEC("tp_btf/sched_switch")
int refused(__u64 *ctx)
{
    __u32 zero = 0;
    __u64 *value = bpf_map_lookup_elem(&map, &zero);
    return (int)*value;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
