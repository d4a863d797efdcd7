// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A scheduler of sched_ext whose wake-up choice is the shared header.
//
//   wake-up ─▶ select_cpu: view, waker, wakee ─▶ hn_wake_choose ─▶ a CPU and why ─▶ counts
//                                                                     │
//                       claimed while idle ─▶ that CPU's own queue ◀──┘── else ─▶ enqueue:
//                       the queue of the task's node, which its CPUs take from when theirs is empty
//
// Of the kernel's functions it calls only scx_bpf_dsq_insert: others can't be called in some 7.x
// kernels. So it keeps its own set of idle CPUs, from ops.update_idle.
//
// Where CPUs are is worked out in crates/bpf/src/scx.rs and written here before this is loaded.
//
// Source: specs/wake.md#scx.

#include "kernel.h"
#include <bpf/bpf_tracing.h>

#define HN_WAKE_MAX_CPUS 1024
#define HN_WAKE_MAX_DOMAINS 4096
#define HN_WAKE_MAX_MASKS 16384
#include "homenode_wake_bpf.h"

// The kernel's types, as far as they are used.
struct cpumask;

struct sched_ext_entity {
    __u32 weight;
} __attribute__((preserve_access_index));

struct task_struct {
    int pid;
    unsigned int flags;
    unsigned int policy;
    int nr_cpus_allowed;
    const struct cpumask *cpus_ptr;
    struct sched_ext_entity scx;
} __attribute__((preserve_access_index));

struct rq {
    unsigned int nr_running;
} __attribute__((preserve_access_index));

struct scx_init_task_args {
    _Bool fork;
} __attribute__((preserve_access_index));

struct scx_exit_task_args;

enum scx_exit_kind { SCX_EXIT_NONE = 0 };

struct scx_exit_info {
    enum scx_exit_kind kind;
    __s64 exit_code;
    const char *reason;
    char *msg;
} __attribute__((preserve_access_index));

extern void scx_bpf_dsq_insert(struct task_struct *p, __u64 dsq_id, __u64 slice,
                               __u64 enq_flags) __ksym;
extern const struct rq runqueues __ksym;

// The kernel's numbers.
#define POLICY_IDLE 5
#define DSQ_GLOBAL (1ull << 63 | 1)
#define DSQ_LOCAL (1ull << 63 | 2)
#define NS_A_SLICE 20000000ull
#define WEIGHT_MEAN 100

// The next four are written or read in Rust with the same shape: crates/bpf/src/scx.rs.
struct settings {
    hn_u32 nr_cpus;
    hn_u32 recent; // enum hn_wake_recent
    hn_u32 has;
    hn_u32 hz;
    hn_u32 all;
    hn_u32 drill; // each task is kept from running, so that the watchdog has to end it
};

const volatile struct settings settings = {};

struct machine {
    struct hn_wake_place place[HN_WAKE_MAX_CPUS];
    struct hn_wake_domain domain[HN_WAKE_MAX_DOMAINS];
    struct hn_wake_shared shared[HN_WAKE_MAX_DOMAINS];
    hn_u64 masks[HN_WAKE_MAX_MASKS];
    hn_u64 active[HN_WAKE_MAX_WORDS];
};

struct machine machine SEC(".bss.machine");

#define REASONS 32 // a power of two, HN_WAKE_BAD_INPUT is below it

struct counts {
    hn_u64 reason[REASONS]; // in the order of enum hn_wake_reason
    hn_u64 forks;       // of the choices, those for new tasks
    hn_u64 moved;       // another CPU than before
    hn_u64 cross_cache; // … below another last-level cache
    hn_u64 cross_node;  // … of another node
    hn_u64 affine;      // wake_affine chose the waker's CPU
    hn_u64 wide;        // too many partners to be drawn together
    hn_u64 claimed;     // it was idle and got the task at once
    hn_u64 lost;        // it was idle, but somebody else had claimed it meanwhile
    hn_u64 queued;      // went to the queue of a node
    hn_u64 pinned;      // may run on one CPU only
    hn_u64 strangers;   // of the choices, those for or by a task that found no room in `tasks`
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct counts);
} counts SEC(".maps");

struct end {
    hn_s64 code;
    hn_u32 kind; // 0 as long as it runs
    char reason[128];
    char message[892];
};

struct end end SEC(".bss.end");

// What only this program knows.
hn_u64 idle[HN_WAKE_MAX_WORDS];
hn_u64 idle_core[HN_WAKE_MAX_WORDS];
hn_u64 none[HN_WAKE_MAX_WORDS];
hn_u32 nr_running[HN_WAKE_MAX_CPUS];
hn_u32 nothing[HN_WAKE_MAX_CPUS];
hn_u64 load[HN_WAKE_MAX_CPUS];
hn_u64 no_time[HN_WAKE_MAX_CPUS];
hn_u32 capacity[HN_WAKE_MAX_CPUS];

// By PID. All of it is there from the beginning: nothing is allocated while a task is woken, and
// storage of tasks needs an instruction of the CPU (cmpxchg16b) for what it allocates.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 131072);
    __type(key, __u32);
    __type(value, struct hn_wake_task);
} tasks SEC(".maps");

// What a choice needs beside the stack, one for each CPU: select_cpu runs with interrupts off.
struct scratch {
    struct hn_wake_up up;
    struct hn_wake_choice choice;
    struct hn_wake_task idle; // of this CPU's idle task
    struct hn_wake_task stranger;
    hn_u64 allowed[HN_WAKE_MAX_WORDS];
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct scratch);
} scratch SEC(".maps");

static __always_inline struct counts *counted(void)
{
    __u32 zero = 0;

    return bpf_map_lookup_elem(&counts, &zero);
}

static __always_inline hn_u64 bit_of(hn_u32 cpu)
{
    return 1ull << (cpu % 64);
}

static __always_inline hn_u64 *word_of(hn_u64 *set, hn_u32 cpu)
{
    return &set[HN_WAKE_CUT(cpu / 64, HN_WAKE_MAX_WORDS)];
}

static __always_inline void view_of(struct hn_wake_view *v)
{
    v->nr_cpus = settings.nr_cpus;
    v->version = HN_WAKE_V7_3;
    v->recent = settings.recent;
    v->has = settings.has;
    v->hz = settings.hz;
    v->all = settings.all;
    v->capacity_orig_max = 1024;
    v->_pad = 0;
    v->place = machine.place;
    v->domain = machine.domain;
    v->masks = machine.masks;
    v->idle = idle;
    v->idle_core = idle_core;
    v->sched_idle = none;
    v->active = machine.active;
    v->nr_running = nr_running;
    v->nr_delayed = nothing;
    v->load = load;
    v->capacity = capacity;
    v->capacity_orig = capacity;
    v->avg_idle = no_time;
    v->scan_cost = no_time;
    v->shared = machine.shared;
    v->allowed = 0;
}

// Whether all CPUs of a core are idle, for each of them.
static __always_inline void core_changed(hn_u32 cpu)
{
    const struct hn_wake_place *place = &machine.place[HN_WAKE_CUT(cpu, HN_WAKE_MAX_CPUS)];
    hn_u32 i, whole = 1;

    HN_WAKE_FOR(i, HN_WAKE_MAX_SMT) {
        if (i >= place->nr_smt)
            break;
        if (!(*word_of(idle, place->smt[i]) & bit_of(place->smt[i])))
            whole = 0;
    }
    HN_WAKE_FOR(i, HN_WAKE_MAX_SMT) {
        if (i >= place->nr_smt)
            break;
        if (whole)
            __sync_fetch_and_or(word_of(idle_core, place->smt[i]), bit_of(place->smt[i]));
        else
            __sync_fetch_and_and(word_of(idle_core, place->smt[i]), ~bit_of(place->smt[i]));
    }
}

static __always_inline void set_idle(hn_u32 cpu)
{
    struct hn_wake_view view;

    if (cpu >= settings.nr_cpus)
        return;
    __sync_fetch_and_or(word_of(idle, cpu), bit_of(cpu));
    core_changed(cpu);
    view_of(&view);
    hn_wake_enter_idle(&view, cpu);
}

// Whether it was idle.
static __always_inline int clear_idle(hn_u32 cpu)
{
    hn_u64 bit = bit_of(cpu);

    if (!(__sync_fetch_and_and(word_of(idle, cpu), ~bit) & bit))
        return 0;
    core_changed(cpu);
    return 1;
}

// Queues are not in the averages of the fair class: a task weighs what its weight says, and a CPU
// as much as so many mean ones.
static __always_inline void look_at(hn_u32 cpu)
{
    const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);
    hn_u32 n = rq ? rq->nr_running : 0;

    cpu = HN_WAKE_CUT(cpu, HN_WAKE_MAX_CPUS);
    nr_running[cpu] = n;
    load[HN_WAKE_CUT(cpu, HN_WAKE_MAX_CPUS)] = (hn_u64)n * 1024;
    capacity[HN_WAKE_CUT(cpu, HN_WAKE_MAX_CPUS)] = 1024;
}

static __always_inline hn_u64 load_of(const struct task_struct *p)
{
    hn_u64 weight = p->scx.weight;

    return (weight ? weight : WEIGHT_MEAN) * 1024 / WEIGHT_MEAN;
}

// Who weighs more has longer turns in a queue that is first in, first out.
static __always_inline hn_u64 slice_of(const struct task_struct *p)
{
    hn_u64 weight = p->scx.weight, slice = NS_A_SLICE * (weight ? weight : WEIGHT_MEAN) / WEIGHT_MEAN;

    if (slice < NS_A_SLICE / 20)
        return NS_A_SLICE / 20;
    return slice > NS_A_SLICE * 5 ? NS_A_SLICE * 5 : slice;
}

static __always_inline void stranger(struct hn_wake_task *task, hn_u32 cpu)
{
    task->decay_jiffies = bpf_jiffies64();
    task->flips = 0;
    task->last_wakee = HN_WAKE_NO_TASK;
    task->recent = cpu;
    task->_pad = 0;
}

static __always_inline void insert(struct task_struct *p, hn_u64 queue, hn_u64 flags)
{
    if (!settings.drill)
        scx_bpf_dsq_insert(p, queue, slice_of(p), flags);
}

SEC("struct_ops/select_cpu")
__s32 BPF_PROG(hn_select_cpu, struct task_struct *p, __s32 prev_cpu, __u64 wake_flags)
{
    struct task_struct *current = bpf_get_current_task_btf();
    hn_u32 here = bpf_get_smp_processor_id(), zero = 0, cpu, was_idle;
    struct scratch *s = bpf_map_lookup_elem(&scratch, &zero);
    struct counts *n = counted();
    struct hn_wake_task *waker, *wakee;
    const struct hn_wake_place *from, *to;

    if (!s || !n)
        return prev_cpu;
    hn_u32 pid = current->pid;
    waker = pid ? bpf_map_lookup_elem(&tasks, &pid) : &s->idle;
    pid = p->pid;
    wakee = bpf_map_lookup_elem(&tasks, &pid);
    // Those that found no room are without a past each time.
    if (!waker || !wakee) {
        n->strangers++;
        stranger(&s->stranger, prev_cpu);
        if (!wakee) {
            wakee = &s->stranger;
            waker = &s->idle;
        } else {
            waker = &s->stranger;
        }
    }

    bpf_probe_read_kernel(s->allowed, sizeof(s->allowed), p->cpus_ptr);
    look_at(here);
    look_at(prev_cpu);
    struct hn_wake_up *up = &s->up;
    up->waker_cpu = here;
    up->prev = prev_cpu;
    up->task_cpu = prev_cpu;
    up->wakee = p->pid;
    up->nr_allowed = p->nr_cpus_allowed;
    up->flags = 0;
    if ((wake_flags & WF_SYNC) && !(current->flags & PF_EXITING))
        up->flags |= HN_WAKE_SYNC;
    if (wake_flags & WF_CURRENT_CPU)
        up->flags |= HN_WAKE_CURRENT_CPU;
    // An interrupt that comes while such a thread runs can't be told from it.
    if ((current->flags & PF_KTHREAD) && current->nr_cpus_allowed == 1)
        up->flags |= HN_WAKE_KTHREAD;
    if (p->policy == POLICY_IDLE)
        up->flags |= HN_WAKE_IDLE_POLICY;
    up->jiffies = bpf_jiffies64();
    up->waker_load = load_of(current);
    up->wakee_load = load_of(p);
    up->wakee_util = 0;

    struct hn_wake_view view;
    struct hn_wake_choice *choice = &s->choice;
    view_of(&view);
    view.allowed = s->allowed;
    hn_wake_choose(&view, up, waker, wakee, choice);
    n->reason[HN_WAKE_CUT(choice->reason, REASONS)]++;
    if (choice->did & HN_WAKE_DID_AFFINE)
        n->affine++;
    if (choice->did & HN_WAKE_DID_WIDE)
        n->wide++;
    if (wake_flags & WF_FORK)
        n->forks++;
    cpu = choice->cpu;
    if (cpu >= settings.nr_cpus)
        return prev_cpu;
    from = &machine.place[HN_WAKE_CUT(prev_cpu, HN_WAKE_MAX_CPUS)];
    to = &machine.place[HN_WAKE_CUT(cpu, HN_WAKE_MAX_CPUS)];
    if (cpu != (hn_u32)prev_cpu)
        n->moved++;
    if (to->llc_id != from->llc_id)
        n->cross_cache++;
    if (to->node != from->node)
        n->cross_node++;

    was_idle = (*word_of(idle, cpu) & bit_of(cpu)) != 0;
    if (was_idle) {
        if (clear_idle(cpu)) {
            n->claimed++;
            insert(p, DSQ_LOCAL, 0);
        } else {
            n->lost++;
        }
    }
    return cpu;
}

SEC("struct_ops/enqueue")
void BPF_PROG(hn_enqueue, struct task_struct *p, __u64 enq_flags)
{
    struct counts *n = counted();

    if (p->nr_cpus_allowed == 1) {
        if (n)
            n->pinned++;
        insert(p, DSQ_LOCAL, enq_flags);
        return;
    }
    if (n)
        n->queued++;
    insert(p, DSQ_GLOBAL, enq_flags);
}

// The kernel calls this each time before a CPU goes idle. One that was claimed and then got
// nothing, because its task has gone elsewhere, would never be told idle again.
SEC("struct_ops/dispatch")
void BPF_PROG(hn_dispatch, __s32 cpu, struct task_struct *prev)
{
    if (prev && !prev->pid && !(*word_of(idle, cpu) & bit_of(cpu)))
        set_idle(cpu);
}

SEC("struct_ops/running")
void BPF_PROG(hn_running, struct task_struct *p)
{
    hn_u32 cpu = bpf_get_smp_processor_id();

    if (*word_of(idle, cpu) & bit_of(cpu))
        clear_idle(cpu);
}

SEC("struct_ops/update_idle")
void BPF_PROG(hn_update_idle, __s32 cpu, _Bool now)
{
    if (now)
        set_idle(cpu);
    else
        clear_idle(cpu);
}

// A child begins with its parent's partners. specs/wake.md#fork
SEC("struct_ops/init_task")
__s32 BPF_PROG(hn_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
    struct hn_wake_task own = {}, *parents;
    hn_u32 pid = p->pid, parent;

    stranger(&own, bpf_get_smp_processor_id());
    if (args->fork) {
        parent = bpf_get_current_pid_tgid();
        parents = bpf_map_lookup_elem(&tasks, &parent);
        if (parents) {
            own.decay_jiffies = parents->decay_jiffies;
            own.flips = parents->flips;
            own.last_wakee = parents->last_wakee;
        }
    }
    // Without room for it, it is a stranger.
    bpf_map_update_elem(&tasks, &pid, &own, BPF_ANY);
    return 0;
}

SEC("struct_ops/exit_task")
void BPF_PROG(hn_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
    hn_u32 pid = p->pid;

    bpf_map_delete_elem(&tasks, &pid);
}

SEC("struct_ops/exit")
void BPF_PROG(hn_exit, struct scx_exit_info *info)
{
    end.code = info->exit_code;
    bpf_probe_read_kernel_str(end.reason, sizeof(end.reason), info->reason);
    bpf_probe_read_kernel_str(end.message, sizeof(end.message), info->msg);
    end.kind = info->kind;
}

// Members are found by name. `flags` and `timeout_ms` are the first: Rust writes them.
struct sched_ext_ops {
    __u64 flags;
    __u32 timeout_ms;
    void (*select_cpu)(void);
    void (*enqueue)(void);
    void (*dispatch)(void);
    void (*running)(void);
    void (*update_idle)(void);
    void (*init_task)(void);
    void (*exit_task)(void);
    void (*exit)(void);
    char name[128];
};

SEC(".struct_ops.link")
struct sched_ext_ops homenode = {
    .select_cpu = (void (*)(void))hn_select_cpu,
    .enqueue = (void (*)(void))hn_enqueue,
    .dispatch = (void (*)(void))hn_dispatch,
    .running = (void (*)(void))hn_running,
    .update_idle = (void (*)(void))hn_update_idle,
    .init_task = (void (*)(void))hn_init_task,
    .exit_task = (void (*)(void))hn_exit_task,
    .exit = (void (*)(void))hn_exit,
    .name = "homenode",
};

// What the kernel asks for where programs call its functions.
char LICENSE[] SEC("license") = "Dual MIT/GPL";
