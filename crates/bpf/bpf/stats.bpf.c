// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Counts what the scheduler does with tasks, in the kernel, while somebody looks.
//
//   sched_waking ──▶ the waker's side: counted, stamped
//   sched_wakeup ──▶ sleep or block ends, waiting begins ┐
//   sched_switch ──▶ waiting ends, running ends,         ├─▶ the task's slot, the CPU's counts
//                    sleep or block begins               ┘
//
// A task's slot is found by two looks into arrays: its number leads to the number of its
// slot. A task that is not looked at has a mark there instead, so that it costs one look.
// All memory is taken before anything is attached. A task for which no slot is left is
// counted in `lost_tasks`, and each of its events in `lost_events`.
//
// What a task did before its first event is known: every event of it makes a slot, so it
// has been in the same state since looking began.
//
// Source: specs/schedstats.md#live.

#include "kernel.h"

// The kernel's types, as far as they are read.
struct thread_info {
    __u32 cpu;
} __attribute__((preserve_access_index));

struct kernfs_node {
    __u64 id;
} __attribute__((preserve_access_index));

struct cgroup;

struct cgroup_subsys_state {
    struct cgroup *cgroup;
    struct cgroup_subsys_state *parent;
} __attribute__((preserve_access_index));

struct cgroup {
    struct cgroup_subsys_state self;
    struct kernfs_node *kn;
} __attribute__((preserve_access_index));

struct css_set {
    struct cgroup_subsys_state *subsys[16];
    struct cgroup *dfl_cgrp;
} __attribute__((preserve_access_index));

struct sched_entity {
    unsigned char sched_delayed;
} __attribute__((preserve_access_index));

struct task_struct {
    struct thread_info thread_info;
    struct sched_entity se;
    unsigned int __state;
    // Signed in older kernels, bytes in 7.3: libbpf takes another width of unsigned ones only.
    unsigned int on_cpu;
    unsigned int on_rq;
    int recent_used_cpu;
    int nr_cpus_allowed;
    int pid;
    int tgid;
    struct task_struct *real_parent;
    unsigned in_iowait : 1;
    __u64 start_boottime;
    char comm[16];
    struct css_set *cgroups;
} __attribute__((preserve_access_index));

struct bpf_iter__task {
    void *meta;
    struct task_struct *task;
} __attribute__((preserve_access_index));

// ── What is shared with Rust: crates/bpf/src/stats/layout.rs has the same ─────────────

enum { WHO_ALL = 0, WHO_PROCESSES = 1, WHO_TREE = 2, WHO_CGROUP = 3 };

struct settings {
    __u32 who;      // WHO_*
    __s32 subsys;   // index of the cgroup hierarchy's controller; -1: the unified one
    __u64 cgroup;   // WHO_CGROUP: its number
    __u32 slots;    // how many there are
    __u32 why;      // whether reasons of wake-ups are wanted
};

const volatile struct settings settings = {};

// What whoever looks changes while it runs.
struct control {
    __u64 begin;  // since when is looked; 0: not yet, or no more
    __u32 mother; // children of this process are looked at (WHO_TREE)
    __u32 unused;
};

struct control control SEC(".data.control") = {};

// When somebody was last moved between cgroups; 0: nobody was.
__u64 changed = 0;
__u32 generation = 0;
// Slots that were ever taken.
__u32 taken = 0;

enum { ON_CPU = 1, QUEUED = 2, SLEEPING = 3, BLOCKED = 4, OTHERWISE = 5, OVER = 6 };

#define HISTOGRAM 128
#define NODES 16
#define REASONS 11

struct task_counts {
    __u64 run_ns, run_ns_max, timeslices;
    __u64 wait_ns, wait_ns_max, waits;
    __u64 sleep_ns, sleep_ns_max, sleeps;
    __u64 block_ns, block_ns_max, blocks;
    __u64 iowait_ns, iowaits;
    __u64 delayed_ns, delayed;
    __u64 nr_voluntary, nr_involuntary;
    __u64 nr_wakeups, nr_wakeups_local, nr_wakeups_remote, nr_wakeups_migrate, nr_wakeups_queued;
    __u64 nr_migrations, nr_migrations_llc, nr_migrations_node;
    __u64 latency_ns, latency_ns_max, latencies;
    __u64 before_wait_ns, before_sleep_ns, before_block_ns;
};

struct slot {
    __u64 task; // where its task_struct is, which tells it from others
    __u64 since;
    __u64 woken; // when it was woken and has not run since; 0: not
    __u32 state;
    __u32 cpu;   // where it is
    __u32 was;   // where it was when it was woken
    __u32 waker; // where it was woken from
    __u32 delayed;
    __u32 generation;
    __u32 chosen; // whether the kernel chose a CPU at this wake-up
    __u32 recent; // its recently used CPU before it did
    struct task_counts c;
    __u32 pid, tgid;
    __u32 parent; // the process that started it, or whose thread it is
    __u32 unused;
    __u64 start;
    __u64 cgroup;
    char comm[16];
    __u32 latency[HISTOGRAM];
};

struct cpu_counts {
    __u64 run_ns, wait_ns, timeslices;
    __u64 nr_switches, nr_idle;
    __u64 nr_wakeups, nr_wakeups_local, nr_wakeups_llc, nr_wakeups_node, nr_wakeups_far;
    __u64 latency_ns, latency_ns_max, latencies;
    __u64 events_switch, events_waking, events_wakeup, events_migrate, events_other;
    __u64 lost_tasks, lost_events;
    __u64 latency[HISTOGRAM];
};

// Where a CPU is, and what moved there.
struct cpu_place {
    __u32 llc, node;
    __u32 sibling; // the next CPU of its core, round and round
    __u32 idle;    // 0: busy, 1: idle, 2: not known yet
    __u64 moved_in, moved_in_llc, moved_in_node;
};

struct reasons {
    __u64 by[REASONS];
    __u64 node[NODES];
    __u64 from_last_llc, from_last_node;   // the chosen CPU against the task's previous one
    __u64 from_waker_llc, from_waker_node; // and against its waker's
};

enum {
    STILL_QUEUED = 0,
    ONLY_CPU = 1,
    PREVIOUS_AND_WAKER = 2,
    PREVIOUS_IDLE = 3,
    PREVIOUS_BUSY = 4,
    WAKER = 5,
    RECENT = 6,
    IDLE_CORE = 7,
    IDLE_CPU = 8,
    IDLE_ELSEWHERE = 9,
    BUSY = 10,
};

// ── Maps; Rust sets the sizes before they are made ────────────────────────────────────

// A task's number to its slot's number + 1, or one of the marks.
#define MARK 0x80000000u
#define LOST 0xffffffffu

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} by_pid SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct slot);
} slots SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct reasons);
} why SEC(".maps");

// Slots whose task is over, to be read; and those that were read, to be taken again.
struct {
    __uint(type, BPF_MAP_TYPE_QUEUE);
    __uint(max_entries, 1);
    __type(value, __u32);
} over SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_QUEUE);
    __uint(max_entries, 1);
    __type(value, __u32);
} spare SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct cpu_counts);
} cpus SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct cpu_place);
} places SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096);
    __type(key, __u32);
    __type(value, __u32);
} processes SEC(".maps");

// ── Small things ──────────────────────────────────────────────────────────────────────

static __always_inline struct cpu_counts *this_cpu(void)
{
    __u32 zero = 0;
    return bpf_map_lookup_elem(&cpus, &zero);
}

// The same, while somebody looks.
static __always_inline struct cpu_counts *looked_at(void)
{
    return control.begin ? this_cpu() : 0;
}

static __always_inline struct cpu_place *place_of(__u32 cpu)
{
    return bpf_map_lookup_elem(&places, &cpu);
}

// Four buckets for each doubling, from 64 ns on; the first has all below, the last all above.
static __always_inline __u32 bucket_of(__u64 ns)
{
    __u64 v = ns >> 6;
    __u32 log = 0;

    if (!v)
        return 0;
    if (v >> 32)
        return HISTOGRAM - 1;
    if (v >> 16) {
        log += 16;
        v >>= 16;
    }
    if (v >> 8) {
        log += 8;
        v >>= 8;
    }
    if (v >> 4) {
        log += 4;
        v >>= 4;
    }
    if (v >> 2) {
        log += 2;
        v >>= 2;
    }
    if (v >> 1)
        log += 1;
    // The two bits below the highest one.
    __u32 quarter = (ns >> (log + 4)) & 3;
    __u32 at = 1 + 4 * log + quarter;
    return at < HISTOGRAM ? at : HISTOGRAM - 1;
}

static __always_inline void most(__u64 *max, __u64 ns)
{
    if (ns > *max)
        *max = ns;
}

// A clock of one CPU may be a little behind another's.
static __always_inline __u64 between(__u64 from, __u64 to)
{
    return to > from ? to - from : 0;
}

static __always_inline __u32 kind_of(__u32 state)
{
    if (state & TASK_INTERRUPTIBLE)
        return SLEEPING;
    if (state & TASK_UNINTERRUPTIBLE)
        return BLOCKED;
    return OTHERWISE;
}

static __always_inline __u32 cpu_of(struct task_struct *t)
{
    if (bpf_core_field_exists(t->thread_info.cpu))
        return t->thread_info.cpu;
    return bpf_get_smp_processor_id();
}

static __always_inline struct cgroup *cgroup_of(struct task_struct *t)
{
    if (settings.subsys < 0)
        return BPF_CORE_READ(t, cgroups, dfl_cgrp);
    struct css_set *set = BPF_CORE_READ(t, cgroups);
    struct cgroup_subsys_state *css = 0;
    __u32 at = settings.subsys & 15;
    const char *all = (const char *)set + bpf_core_field_offset(struct css_set, subsys);
    if (bpf_probe_read_kernel(&css, sizeof(css), all + at * sizeof(css)))
        return 0;
    return BPF_CORE_READ(css, cgroup);
}

// Whether the task is one of those that are looked at, but for the children of a tree.
static __noinline int is_meant(struct task_struct *t)
{
    if (settings.who == WHO_ALL)
        return 1;
    if (settings.who == WHO_CGROUP) {
        struct cgroup *c = cgroup_of(t);
        for (int depth = 0; depth < 32; depth++) {
            if (!c)
                return 0;
            if (BPF_CORE_READ(c, kn, id) == settings.cgroup)
                return 1;
            c = BPF_CORE_READ(c, self.parent, cgroup);
        }
        return 0;
    }
    __u32 tgid = t->tgid;
    return bpf_map_lookup_elem(&processes, &tgid) != 0;
}

static __always_inline struct slot *slot_at(__u32 held)
{
    __u32 at = held - 1;
    return bpf_map_lookup_elem(&slots, &at);
}

static __always_inline __u32 mark(void)
{
    return MARK | (generation & 0x3fffffff);
}

// The slot's task is over, or somebody else's by now: whoever reads may have it.
static __noinline int give_up(__u32 held)
{
    struct slot *s = slot_at(held);
    __u32 at = held - 1;

    if (!s || s->state == OVER)
        return 0;
    s->state = OVER;
    s->task = 0;
    bpf_map_push_elem(&over, &at, 0);
    return 0;
}

// A slot for a task that has none.
static __noinline int take(struct task_struct *t, __u32 state, __u64 since, int certain)
{
    struct cpu_counts *cpu = this_cpu();
    __u32 pid = t->pid, at = 0;
    __u32 *held = bpf_map_lookup_elem(&by_pid, &pid);

    if (!held || !cpu) {
        if (cpu)
            cpu->lost_tasks += 1;
        return 0;
    }
    __u32 before = *held;
    if (!certain && !is_meant(t)) {
        *held = mark();
        return 0;
    }
    if (taken < settings.slots)
        at = __sync_fetch_and_add(&taken, 1);
    else
        at = settings.slots;
    if (at >= settings.slots && bpf_map_pop_elem(&spare, &at)) {
        *held = LOST;
        cpu->lost_tasks += 1;
        return 0;
    }
    struct slot *s = bpf_map_lookup_elem(&slots, &at);
    if (!s)
        return 0;
    s->since = since;
    s->state = state;
    s->cpu = cpu_of(t);
    s->generation = generation;
    s->pid = pid;
    s->tgid = t->tgid;
    s->parent = pid == t->tgid ? BPF_CORE_READ(t, real_parent, tgid) : t->tgid;
    s->start = t->start_boottime;
    bpf_probe_read_kernel_str(s->comm, sizeof(s->comm), t->comm);
    struct cgroup *c = cgroup_of(t);
    s->cgroup = BPF_CORE_READ(c, kn, id);
    s->task = (__u64)t;
    // Two CPUs may see the first events of one task at once.
    if (__sync_val_compare_and_swap(held, before, at + 1) != before) {
        s->task = 0;
        s->state = OVER;
        bpf_map_push_elem(&over, &at, 0);
    }
    return 0;
}

// The slot of a task; made if there is none, with the state in which it was until now.
static __always_inline struct slot *slot_of(struct task_struct *t, __u32 state)
{
    __u32 pid = t->pid;
    __u32 *held = bpf_map_lookup_elem(&by_pid, &pid);

    if (!held)
        goto lost;
    __u32 h = *held;
    if (h & MARK) {
        if (h == LOST)
            goto lost;
        if (h == mark())
            return 0;
    } else if (h) {
        struct slot *s = slot_at(h);
        if (s && s->task == (__u64)t) {
            if (settings.who != WHO_CGROUP || s->generation == generation)
                return s;
            // Somebody was moved since; was it this one?
            s->generation = generation;
            if (is_meant(t))
                return s;
            *held = mark();
            give_up(h);
            return 0;
        }
        give_up(h);
    }
    take(t, state, changed ? changed : control.begin, 0);
    h = *held;
    if (!h || h & MARK)
        return 0;
    struct slot *s = slot_at(h);
    return s && s->task == (__u64)t ? s : 0;
lost:;
    struct cpu_counts *cpu = this_cpu();
    if (cpu)
        cpu->lost_events += 1;
    return 0;
}

// ── Events ────────────────────────────────────────────────────────────────────────────

static __always_inline void leaves_cpu(struct task_struct *t, struct cpu_counts *cpu, __u64 now,
                                       int preempted, __u32 state)
{
    struct slot *s;

    if (state & TASK_DEAD) {
        // Its number may be another's already.
        __u32 pid = t->pid;
        __u32 *held = bpf_map_lookup_elem(&by_pid, &pid);
        __u32 h = held ? *held : 0;
        if (!h || h & MARK)
            return;
        s = slot_at(h);
        if (!s || s->task != (__u64)t)
            return;
        if (s->state == ON_CPU) {
            __u64 ran = between(s->since, now);
            s->c.run_ns += ran;
            most(&s->c.run_ns_max, ran);
            s->c.nr_voluntary += 1;
            cpu->run_ns += ran;
        }
        *held = 0;
        give_up(h);
        return;
    }
    s = slot_of(t, ON_CPU);
    if (!s)
        return;
    if (s->state == ON_CPU) {
        __u64 ran = between(s->since, now);
        s->c.run_ns += ran;
        most(&s->c.run_ns_max, ran);
        cpu->run_ns += ran;
    }
    s->since = now;
    if (preempted || !state) {
        s->c.nr_involuntary += 1;
        s->state = QUEUED;
    } else {
        s->c.nr_voluntary += 1;
        s->state = kind_of(state);
        if (bpf_core_field_exists(t->se.sched_delayed))
            s->delayed = t->se.sched_delayed;
    }
}

static __always_inline void gets_cpu(struct task_struct *t, struct cpu_counts *cpu, __u64 now,
                                     __u32 id)
{
    struct slot *s = slot_of(t, QUEUED);

    if (!s)
        return;
    // Also one that was about to sleep and had a signal to look at: it never left its queue.
    if (s->state != ON_CPU) {
        __u64 waited = between(s->since, now);
        s->c.wait_ns += waited;
        most(&s->c.wait_ns_max, waited);
        s->c.waits += 1;
        if (s->since == control.begin)
            s->c.before_wait_ns += waited;
        cpu->wait_ns += waited;
    }
    if (s->woken) {
        __u64 latency = between(s->woken, now);
        __u32 at = bucket_of(latency) & (HISTOGRAM - 1);
        s->c.latency_ns += latency;
        most(&s->c.latency_ns_max, latency);
        s->c.latencies += 1;
        s->latency[at] += 1;
        cpu->latency_ns += latency;
        most(&cpu->latency_ns_max, latency);
        cpu->latencies += 1;
        cpu->latency[at] += 1;
        s->woken = 0;
    }
    s->state = ON_CPU;
    s->since = now;
    s->cpu = id;
    s->c.timeslices += 1;
    cpu->timeslices += 1;
}

SEC("tp_btf/sched_switch")
int stats_switch(__u64 *ctx)
{
    struct cpu_counts *cpu = looked_at();
    if (!cpu)
        return 0;
    struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
    __u64 now = bpf_ktime_get_ns();
    __u32 id = bpf_get_smp_processor_id();

    cpu->events_switch += 1;
    cpu->nr_switches += 1;
    if (prev->pid)
        leaves_cpu(prev, cpu, now, ctx[0] & 1, (__u32)ctx[3]);
    if (next->pid)
        gets_cpu(next, cpu, now, id);
    else
        cpu->nr_idle += 1;
    if (settings.why) {
        struct cpu_place *p = place_of(id);
        if (p)
            p->idle = next->pid == 0;
    }
    return 0;
}

SEC("tp_btf/sched_waking")
int stats_waking(__u64 *ctx)
{
    struct task_struct *t = (void *)ctx[0];
    struct cpu_counts *cpu = looked_at();
    if (!cpu)
        return 0;
    cpu->events_waking += 1;
    struct slot *s = slot_of(t, kind_of(t->__state));
    if (!s)
        return 0;
    s->woken = bpf_ktime_get_ns();
    s->waker = bpf_get_smp_processor_id();
    s->was = s->cpu;
    s->c.nr_wakeups += 1;
    cpu->nr_wakeups += 1;
    if (settings.why) {
        s->chosen = !t->on_rq;
        s->recent = t->recent_used_cpu;
    }
    return 0;
}

static __always_inline int core_is_idle(__u32 cpu)
{
    __u32 at = cpu;

    for (int i = 0; i < 8; i++) {
        struct cpu_place *p = place_of(at);
        if (!p || p->idle != 1)
            return 0;
        at = p->sibling;
        if (at == cpu)
            return i > 0;
    }
    return 0;
}

static __noinline int reason_of(struct slot *s, struct task_struct *t)
{
    __u32 held = 0, pid = t->pid, cpu = s->cpu, was = s->was, waker = s->waker, by;
    __u32 *of = bpf_map_lookup_elem(&by_pid, &pid);

    if (!of || !*of || *of & MARK)
        return 0;
    held = *of - 1;
    struct reasons *r = bpf_map_lookup_elem(&why, &held);
    struct cpu_place *here = place_of(cpu), *before = place_of(was), *from = place_of(waker);
    if (!r || !here || !before || !from)
        return 0;
    if (!s->chosen)
        by = STILL_QUEUED;
    else if (t->nr_cpus_allowed == 1)
        by = ONLY_CPU;
    else if (cpu == was && cpu == waker)
        by = PREVIOUS_AND_WAKER;
    else if (cpu == was)
        by = here->idle == 1 ? PREVIOUS_IDLE : PREVIOUS_BUSY;
    else if (cpu == waker)
        by = WAKER;
    else if (here->idle != 1)
        by = BUSY;
    else if (cpu == s->recent)
        by = RECENT;
    else if (here->llc != before->llc && here->llc != from->llc)
        by = IDLE_ELSEWHERE;
    else
        by = core_is_idle(cpu) ? IDLE_CORE : IDLE_CPU;
    r->by[by] += 1;
    r->node[here->node < NODES ? here->node : NODES - 1] += 1;
    r->from_last_llc += here->llc != before->llc;
    r->from_last_node += here->node != before->node;
    r->from_waker_llc += here->llc != from->llc;
    r->from_waker_node += here->node != from->node;
    return 0;
}

SEC("tp_btf/sched_wakeup")
int stats_wakeup(__u64 *ctx)
{
    struct task_struct *t = (void *)ctx[0];
    struct cpu_counts *cpu = looked_at();
    if (!cpu)
        return 0;
    cpu->events_wakeup += 1;
    struct slot *s = slot_of(t, OTHERWISE);
    if (!s)
        return 0;
    __u32 state = s->state;
    if (state == ON_CPU || state == QUEUED) {
        // It was about to sleep, or woke itself: nothing ends.
        s->woken = 0;
        s->chosen = 0;
        s->c.nr_wakeups_queued += 1;
    } else {
        __u64 now = bpf_ktime_get_ns();
        __u64 slept = between(s->since, now);
        if (state == SLEEPING) {
            s->c.sleep_ns += slept;
            most(&s->c.sleep_ns_max, slept);
            s->c.sleeps += 1;
            if (s->since == control.begin)
                s->c.before_sleep_ns += slept;
        } else if (state == BLOCKED) {
            s->c.block_ns += slept;
            most(&s->c.block_ns_max, slept);
            s->c.blocks += 1;
            if (s->since == control.begin)
                s->c.before_block_ns += slept;
            if (BPF_CORE_READ_BITFIELD_PROBED(t, in_iowait)) {
                s->c.iowait_ns += slept;
                s->c.iowaits += 1;
            }
        }
        if (s->delayed) {
            s->c.delayed_ns += slept;
            s->c.delayed += 1;
            s->delayed = 0;
        }
        s->state = QUEUED;
        s->since = now;
    }
    struct cpu_place *here = place_of(s->cpu), *from = place_of(s->waker);
    if (s->cpu == s->waker) {
        s->c.nr_wakeups_local += 1;
        cpu->nr_wakeups_local += 1;
    } else {
        s->c.nr_wakeups_remote += 1;
        if (!here || !from || here->node != from->node)
            cpu->nr_wakeups_far += 1;
        else if (here->llc != from->llc)
            cpu->nr_wakeups_node += 1;
        else
            cpu->nr_wakeups_llc += 1;
    }
    if (s->cpu != s->was)
        s->c.nr_wakeups_migrate += 1;
    if (settings.why)
        reason_of(s, t);
    return 0;
}

SEC("tp_btf/sched_wakeup_new")
int stats_wakeup_new(__u64 *ctx)
{
    struct task_struct *t = (void *)ctx[0];
    struct cpu_counts *cpu = looked_at();
    if (!cpu)
        return 0;
    cpu->events_other += 1;
    struct slot *s = slot_of(t, OTHERWISE);
    if (!s)
        return 0;
    s->state = QUEUED;
    s->since = bpf_ktime_get_ns();
    s->woken = 0;
    return 0;
}

SEC("tp_btf/sched_migrate_task")
int stats_migrate(__u64 *ctx)
{
    struct task_struct *t = (void *)ctx[0];
    __u32 to = (__u32)ctx[1];
    struct cpu_counts *cpu = looked_at();
    if (!cpu)
        return 0;
    cpu->events_migrate += 1;
    struct slot *s = slot_of(t, t->on_rq ? QUEUED : kind_of(t->__state));
    if (!s)
        return 0;
    struct cpu_place *there = place_of(to), *from = place_of(s->cpu);
    s->cpu = to;
    s->c.nr_migrations += 1;
    if (!there || !from)
        return 0;
    __sync_fetch_and_add(&there->moved_in, 1);
    if (there->node != from->node) {
        s->c.nr_migrations_node += 1;
        __sync_fetch_and_add(&there->moved_in_node, 1);
    }
    if (there->llc != from->llc) {
        s->c.nr_migrations_llc += 1;
        __sync_fetch_and_add(&there->moved_in_llc, 1);
    }
    return 0;
}

SEC("tp_btf/sched_process_fork")
int stats_fork(__u64 *ctx)
{
    struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];
    struct cpu_counts *cpu = looked_at();
    if (!cpu)
        return 0;
    cpu->events_other += 1;
    __u32 pid = child->pid;
    __u32 *held = bpf_map_lookup_elem(&by_pid, &pid);
    if (!held)
        return 0; // Counted at its first event.
    // Whatever the number meant before, it is this task's now.
    __u32 h = *held;
    *held = 0;
    if (h && !(h & MARK))
        give_up(h);
    if (settings.who == WHO_TREE) {
        __u32 ppid = parent->pid;
        __u32 *of = bpf_map_lookup_elem(&by_pid, &ppid);
        h = of ? *of : 0;
        int meant = h == LOST || (h && !(h & MARK)) ||
                    (control.mother && control.mother == parent->tgid);
        if (meant)
            take(child, OTHERWISE, bpf_ktime_get_ns(), 1);
        else
            *held = mark();
    } else {
        take(child, OTHERWISE, bpf_ktime_get_ns(), 0);
    }
    return 0;
}

SEC("tp_btf/sched_process_exec")
int stats_exec(__u64 *ctx)
{
    struct task_struct *t = (void *)ctx[0];
    __u32 old = (__u32)ctx[1], pid = t->pid;
    struct cpu_counts *cpu = looked_at();
    if (!cpu)
        return 0;
    cpu->events_other += 1;
    if (old != pid) {
        // A thread that is not its process's first has taken that one's number.
        __u32 *of = bpf_map_lookup_elem(&by_pid, &old);
        __u32 *held = bpf_map_lookup_elem(&by_pid, &pid);
        if (of && held) {
            __u32 h = *held;
            *held = *of;
            *of = 0;
            if (h && !(h & MARK))
                give_up(h);
        }
    }
    struct slot *s = slot_of(t, ON_CPU);
    if (!s)
        return 0;
    s->pid = pid;
    bpf_probe_read_kernel_str(s->comm, sizeof(s->comm), t->comm);
    return 0;
}

// Attached for a cgroup only: who was left out may be in it now, and the other way round.
SEC("tp_btf/cgroup_attach_task")
int stats_moved(__u64 *ctx)
{
    if (!control.begin)
        return 0;
    changed = bpf_ktime_get_ns();
    __sync_fetch_and_add(&generation, 1);
    return 0;
}

// At the end, once for each task: who ran or waited all the time has had no event.
SEC("iter/task")
int stats_silent(struct bpf_iter__task *ctx)
{
    struct task_struct *t = ctx->task;
    if (!t || !control.begin || !t->pid)
        return 0;
    if (t->on_cpu)
        slot_of(t, ON_CPU);
    else if (t->on_rq && settings.who != WHO_ALL)
        slot_of(t, QUEUED);
    return 0;
}

// What the kernel asks for where programs read its memory.
char LICENSE[] SEC("license") = "Dual MIT/GPL";
