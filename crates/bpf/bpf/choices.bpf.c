// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Watches the fair class choose a CPU for a woken task: what it looked at, and what came out.
//
//   select_task_rq_fair(p, prev, flags) ── fentry: a look ── … ── fexit: a look, the CPU ──▶ ring
//
// Two looks, so that who reads them can leave out those between which something changed. Members
// of queues have other names in other kernels; each is asked for (CO-RE) before it is read.
//
// Source: specs/wake.md#parity.

#include "kernel.h"
#include <bpf/bpf_tracing.h>

#define CPUS 8

struct cpumask;

struct sched_avg {
    unsigned long load_avg;
} __attribute__((preserve_access_index));

struct sched_entity {
    struct sched_avg avg;
} __attribute__((preserve_access_index));

struct task_struct {
    int pid;
    unsigned int flags;
    unsigned int policy;
    int nr_cpus_allowed;
    const struct cpumask *cpus_ptr;
    unsigned int wakee_flips;
    unsigned long wakee_flip_decay_ts;
    struct task_struct *last_wakee;
    int recent_used_cpu;
    struct sched_entity se;
} __attribute__((preserve_access_index));

struct cfs_rq {
    struct sched_avg avg;
    unsigned long h_load;
    __u64 last_h_load_update;
} __attribute__((preserve_access_index));

// Up to 6.12: tasks that are SCHED_IDLE; in some of them delayed ones.
struct cfs_rq___old {
    unsigned int idle_h_nr_running;
    unsigned int h_nr_delayed;
} __attribute__((preserve_access_index));

// Later.
struct cfs_rq___new {
    unsigned int h_nr_queued;
    unsigned int h_nr_runnable;
    unsigned int h_nr_idle;
} __attribute__((preserve_access_index));

struct rq {
    unsigned int nr_running;
    unsigned int ttwu_pending;
    unsigned long cpu_capacity;
    struct task_struct *curr;
    struct task_struct *idle;
    struct cfs_rq cfs;
} __attribute__((preserve_access_index));

struct sched_domain_shared {
    int has_idle_cores;
    int nr_idle_scan;
} __attribute__((preserve_access_index));

extern const struct rq runqueues __ksym;
extern struct sched_domain_shared *const sd_llc_shared __ksym;

// The next four are read in Rust with the same shape: crates/bpf/src/choices.rs.
struct seen_cpu {
    __u64 load;
    __u32 nr_running;
    __u32 nr_delayed;
    __u32 capacity;
    __u32 is; // CPU_*
    __u32 has_idle_core;
    __u32 nr_idle_scan;
};

enum { CPU_IDLE = 1, CPU_SCHED_IDLE = 2 };

struct seen_task {
    __u64 decay_jiffies;
    __u64 load; // by the weight of its groups
    __u32 flips;
    __u32 last_wakee;
    __u32 recent;
    __u32 flags;
};

struct look {
    struct seen_cpu cpu[CPUS];
    struct seen_task waker;
    struct seen_task wakee;
};

struct record {
    __u64 jiffies;
    __u64 allowed;
    __u32 here;
    __u32 prev;
    __u32 wake_flags;
    __u32 chosen;
    __u32 wakee; // its number, as in last_wakee
    __u32 nr_allowed;
    __u32 waker_nr_allowed;
    __u32 wakee_policy;
    struct look before;
    struct look after;
};

struct settings {
    __u32 nr_cpus;
};

const volatile struct settings settings = {};

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 24);
} ring SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct record);
} begun SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} lost SEC(".maps");

static __always_inline __u32 number_of(const void *task)
{
    __u64 number = (__u64)task;

    // A pointer that the verifier knows must become a number first.
    bpf_probe_read_kernel(&number, sizeof(number), &task);
    return number >> 6;
}

// task_h_load() of a task of the root group.
static __always_inline __u64 load_of(const struct task_struct *task, __u32 cpu)
{
    const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);
    __u64 own = BPF_CORE_READ(task, se.avg.load_avg), all, h_load;

    if (!rq)
        return 0;
    all = BPF_CORE_READ(rq, cfs.avg.load_avg);
    h_load = BPF_CORE_READ(rq, cfs.h_load);
    // It is brought up to date once a jiffy.
    if (BPF_CORE_READ(rq, cfs.last_h_load_update) != bpf_jiffies64())
        h_load = all;
    return own * h_load / (all + 1);
}

static __always_inline void look_at_task(struct seen_task *seen, const struct task_struct *task,
                                         __u32 cpu)
{
    seen->decay_jiffies = BPF_CORE_READ(task, wakee_flip_decay_ts);
    seen->load = load_of(task, cpu);
    seen->flips = BPF_CORE_READ(task, wakee_flips);
    seen->last_wakee = number_of(BPF_CORE_READ(task, last_wakee));
    seen->recent = BPF_CORE_READ(task, recent_used_cpu);
    seen->flags = BPF_CORE_READ(task, flags);
}

static __always_inline void look_at_cpu(struct seen_cpu *seen, __u32 cpu)
{
    const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);
    struct sched_domain_shared *const *at = bpf_per_cpu_ptr(&sd_llc_shared, cpu);
    struct sched_domain_shared *shared = at ? *at : 0;
    const struct cfs_rq *cfs;
    __u32 idlers = 0, delayed = 0;

    if (!rq)
        return;
    cfs = &rq->cfs;
    const struct cfs_rq___old *old = (const void *)cfs;
    const struct cfs_rq___new *new = (const void *)cfs;
    if (bpf_core_field_exists(old->idle_h_nr_running))
        idlers = BPF_CORE_READ(old, idle_h_nr_running);
    else if (bpf_core_field_exists(new->h_nr_idle))
        idlers = BPF_CORE_READ(new, h_nr_idle);
    if (bpf_core_field_exists(old->h_nr_delayed))
        delayed = BPF_CORE_READ(old, h_nr_delayed);
    else if (bpf_core_field_exists(new->h_nr_runnable))
        delayed = BPF_CORE_READ(new, h_nr_queued) - BPF_CORE_READ(new, h_nr_runnable);
    seen->load = BPF_CORE_READ(rq, cfs.avg.load_avg);
    seen->nr_running = BPF_CORE_READ(rq, nr_running);
    seen->nr_delayed = delayed;
    seen->capacity = BPF_CORE_READ(rq, cpu_capacity);
    seen->is = 0;
    if (BPF_CORE_READ(rq, curr) == BPF_CORE_READ(rq, idle) && !seen->nr_running &&
        !BPF_CORE_READ(rq, ttwu_pending))
        seen->is |= CPU_IDLE;
    if (seen->nr_running && seen->nr_running == idlers)
        seen->is |= CPU_SCHED_IDLE;
    seen->has_idle_core = shared ? BPF_CORE_READ(shared, has_idle_cores) : 0;
    seen->nr_idle_scan = shared ? BPF_CORE_READ(shared, nr_idle_scan) : 0;
}

static __always_inline void look(struct look *seen, const struct task_struct *wakee, __u32 here,
                                 __u32 prev)
{
    const struct task_struct *waker = (void *)bpf_get_current_task();

#pragma unroll
    for (int cpu = 0; cpu < CPUS; cpu++)
        if (cpu < settings.nr_cpus)
            look_at_cpu(&seen->cpu[cpu], cpu);
    look_at_task(&seen->waker, waker, here);
    look_at_task(&seen->wakee, wakee, prev);
}

SEC("fentry/select_task_rq_fair")
int BPF_PROG(hn_choice_begins, struct task_struct *p, int prev, int wake_flags)
{
    const struct task_struct *waker = (void *)bpf_get_current_task();
    __u32 zero = 0;
    struct record *r = bpf_map_lookup_elem(&begun, &zero);

    if (!r)
        return 0;
    r->wakee = 0;
    if (!(wake_flags & WF_TTWU))
        return 0;
    r->jiffies = bpf_jiffies64();
    r->allowed = 0;
    bpf_probe_read_kernel(&r->allowed, sizeof(r->allowed), BPF_CORE_READ(p, cpus_ptr));
    r->here = bpf_get_smp_processor_id();
    r->prev = prev;
    r->wake_flags = wake_flags;
    r->nr_allowed = BPF_CORE_READ(p, nr_cpus_allowed);
    r->waker_nr_allowed = BPF_CORE_READ(waker, nr_cpus_allowed);
    r->wakee_policy = BPF_CORE_READ(p, policy);
    look(&r->before, p, r->here, prev);
    r->wakee = number_of(p);
    return 0;
}

SEC("fexit/select_task_rq_fair")
int BPF_PROG(hn_choice_ends, struct task_struct *p, int prev, int wake_flags, int chosen)
{
    __u32 zero = 0;
    struct record *r = bpf_map_lookup_elem(&begun, &zero);

    // One that began before this was attached, or that an interrupt came between.
    if (!r || r->wakee != number_of(p))
        return 0;
    look(&r->after, p, r->here, prev);
    r->chosen = chosen;
    if (bpf_ringbuf_output(&ring, r, sizeof(*r), BPF_RB_NO_WAKEUP)) {
        __u64 *n = bpf_map_lookup_elem(&lost, &zero);
        if (n)
            *n += 1;
    }
    r->wakee = 0;
    return 0;
}

// What the kernel asks for where programs read its memory.
char LICENSE[] SEC("license") = "Dual MIT/GPL";
