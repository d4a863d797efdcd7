// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Watches NUMA hint faults of some processes, in the kernel.
//
//   do_numa_page ─┐
//                 ├─▶ mpol_misplaced(page, …, addr) ◀── hint_fault
//   …huge_pmd… ───┘                                        │ watched? its own memory?
//                                                          ▼
//                                    ring of 16384 records, or one more in `lost`
//
// Where the kernel keeps a page's node and the time of its last scan differs from
// kernel to kernel; crates/live/src/heat/hints/layout.rs finds it in BTF and writes it into
// `settings` before this is loaded, so that the verifier sees constants.
//
// Source: specs/live.md#hint-fault.

#include "kernel.h"

// The kernel's types, as far as they are the same everywhere.
struct mm_struct;

struct vm_area_struct {
    struct mm_struct *vm_mm;
} __attribute__((preserve_access_index));

struct task_struct {
    struct mm_struct *mm;
    struct task_struct *group_leader;
    __u64 start_boottime;
} __attribute__((preserve_access_index));

// The next four are read in Rust with the same shape: crates/live/src/heat/hints/{load,record}.rs.
#define RECORDS 16384
#define RECORD_BYTES 32 // with the ring's own header of 8
#define WATCHED_MAX 16384

struct settings {
    __u32 page_arg; // which argument is the page or folio
    __u32 addr_arg; // which is the address
    __u32 area_arg; // which is the mapping, or what holds it
    __s32 area_at;  // where in that the mapping is; -1: it is the mapping itself
    __u32 flags_at; // where in the page its flags are
    __u32 node_shift;
    __u32 stamp;    // STAMP_*
    __u32 stamp_at; // STAMP_FLAGS: first bit; STAMP_FIELD: where in the page
    __u32 stamp_mask;
    __u32 stamp_scale; // bits by which a stamp is shifted to be in ms
    __u32 hz;
};

enum { STAMP_NONE = 0, STAMP_FLAGS = 1, STAMP_FIELD = 2 };

const volatile struct settings settings = {};

struct record {
    __u64 page; // number of the page
    __u32 tgid;
    __u32 start; // of its leader, in ticks of 10 ms, the lower 32 bits
    __u16 from;
    __u16 on;
    __s32 age_ms; // by the page's stamp; -1: none
};

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, RECORDS *RECORD_BYTES);
} ring SEC(".maps");

// tgid to start, in ticks of 10 ms.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, WATCHED_MAX);
    __type(key, __u32);
    __type(value, __u64);
} watched SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} lost SEC(".maps");

static __always_inline __s32 age_of(const char *page, __u64 flags)
{
    __u32 mask = settings.stamp_mask, stamp = 0;

    if (settings.stamp == STAMP_NONE)
        return -1;
    if (settings.stamp == STAMP_FLAGS)
        stamp = (flags >> (settings.stamp_at & 63)) & mask;
    else if (bpf_probe_read_kernel(&stamp, sizeof(stamp), page + settings.stamp_at))
        return -1;
    stamp &= mask;
    // What a page has that came from another tier and was not scanned since.
    if (stamp == mask)
        return -1;
    // As the kernel makes ms from its ticks: rounded up, 32 bits of it.
    __u32 hz = settings.hz;
    if (!hz)
        return -1;
    __u32 now = (bpf_jiffies64() * 1000 + hz - 1) / hz;
    return (now - (stamp << settings.stamp_scale)) & (mask << settings.stamp_scale) & 0x7fffffff;
}

SEC("fentry")
int hint_fault(__u64 *ctx)
{
    __u32 tgid = bpf_get_current_pid_tgid() >> 32;
    __u64 *start = bpf_map_lookup_elem(&watched, &tgid);
    if (!start)
        return 0;

    // A PID that means another process now.
    struct task_struct *task = (void *)bpf_get_current_task();
    __u64 ticks = BPF_CORE_READ(task, group_leader, start_boottime) / 10000000;
    if (ticks != *start)
        return 0;

    __u64 page = 0, addr = 0, area = 0, flags = 0;
    bpf_get_func_arg(ctx, settings.page_arg, &page);
    bpf_get_func_arg(ctx, settings.addr_arg, &addr);
    bpf_get_func_arg(ctx, settings.area_arg, &area);

    // One process may touch another's memory, by ptrace or process_vm_readv.
    if (settings.area_at >= 0 &&
        bpf_probe_read_kernel(&area, sizeof(area), (const char *)area + settings.area_at))
        return 0;
    struct vm_area_struct *vma = (void *)area;
    if (BPF_CORE_READ(vma, vm_mm) != BPF_CORE_READ(task, mm))
        return 0;

    if (bpf_probe_read_kernel(&flags, sizeof(flags), (const char *)page + settings.flags_at))
        return 0;

    struct record *r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
    if (!r) {
        __u32 zero = 0;
        __u64 *n = bpf_map_lookup_elem(&lost, &zero);
        if (n)
            __sync_fetch_and_add(n, 1);
        return 0;
    }
    r->page = addr >> 12;
    r->tgid = tgid;
    r->start = ticks;
    r->from = bpf_get_numa_node_id();
    r->on = flags >> (settings.node_shift & 63);
    r->age_ms = age_of((const char *)page, flags);

    // Whoever reads is woken when half of it is full, not for each fault.
    __u64 filled = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA);
    bpf_ringbuf_submit(r, filled >= RECORDS * RECORD_BYTES / 2 ? BPF_RB_FORCE_WAKEUP
                                                               : BPF_RB_NO_WAKEUP);
    return 0;
}

// What the kernel asks for where programs read its memory.
char LICENSE[] SEC("license") = "Dual MIT/GPL";
