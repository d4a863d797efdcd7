// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Records what the scheduler does with some tasks, or with all.
//
//   sched_switch ────────┐
//   sched_waking ────────┤ of the tree? ──▶ ring of records, or one more in `lost`
//   fork, exec, exit ────┘   (tasks)
//   interrupts, timers, softirqs: in and out ──▶ where a wake-up comes from
//
// A task is found by its address, which is another's only after the last switch away from it;
// there its entry is deleted. Its number is given once, so a PID that is used again is another task.
//
// Source: specs/record-sched.md#kernel.

#include "kernel.h"

// The kernel's types, as far as they are read here.
struct cpumask {
    unsigned long bits[1];
} __attribute__((preserve_access_index));

struct inode {
    unsigned short i_mode;
} __attribute__((preserve_access_index));

struct sock_common {
    unsigned short skc_family;
} __attribute__((preserve_access_index));

struct sock {
    struct sock_common __sk_common;
} __attribute__((preserve_access_index));

struct unix_sock {
    struct sock *peer;
} __attribute__((preserve_access_index));

struct socket {
    struct sock *sk;
} __attribute__((preserve_access_index));

struct file {
    struct inode *f_inode;
    void *private_data;
} __attribute__((preserve_access_index));

struct fdtable {
    unsigned int max_fds;
    struct file **fd;
} __attribute__((preserve_access_index));

struct files_struct {
    struct fdtable *fdt;
} __attribute__((preserve_access_index));

struct ns_common {
    unsigned int inum;
} __attribute__((preserve_access_index));

struct pid_namespace {
    struct ns_common ns;
} __attribute__((preserve_access_index));

struct upid {
    int nr;
    struct pid_namespace *ns;
} __attribute__((preserve_access_index));

struct pid {
    unsigned int level;
    struct upid numbers[1];
} __attribute__((preserve_access_index));

struct task_struct {
    int pid;
    int tgid;
    struct pid *thread_pid;
    char comm[16];
    int static_prio;
    unsigned int policy;
    unsigned int flags;
    unsigned in_iowait : 1;
    struct cpumask cpus_mask;
    struct files_struct *files;
} __attribute__((preserve_access_index));

struct pt_regs {
    unsigned long cx;
    unsigned long di;
    unsigned long orig_ax;
    unsigned long ip;
} __attribute__((preserve_access_index));

#define S_IFMT 0170000
#define FIFO 001
#define SOCKET 014
#define AF_UNIX 1

// The next are read in Rust with the same shape: crates/bpf/src/record.rs.
#define NOBODY 0xffffffffu
enum { SWITCH = 0, WAKING = 1, FORK = 2, EXEC = 3, EXIT = 4, BORN = 5, MOVED = 6, REAPED = 7 };
enum { PREEMPTED = 0, DEAD = 1, SLEEPS = 2, UNINTERRUPTIBLE = 4, IOWAIT = 8, FAULTS = 16 };
enum { NO_CALL = 0xffff };

struct settings {
    __u32 root;  // the program's first task
    __u32 all;   // all tasks are recorded
    __u32 regs;  // registers are laid out as on x86-64
    __u32 hurry; // bytes in the ring from which on the reader is woken
};

const volatile struct settings settings = {};

struct record {
    __u64 time;
    __u32 task;  // SWITCH: who runs no more; WAKING: who is woken; else whose it is
    __u32 other; // SWITCH: who runs; WAKING: who woke it; FORK: the new one; REAPED: its number, and the
                 // caller's PID namespace in `allowed`
    __u16 cpu;
    __u8 kind;
    __u8 how;  // SWITCH: of the above; WAKING: 0 in a task, 1 in a softirq, 2 in an interrupt; MOVED: 1 out of it
    __u16 call; // the system call that it is in
    __u8 file;  // the kind of its file, as in its mode
    __s8 nice;
    __u64 allowed; // CPUs up to 63; MOVED: the pipe, or the socket that bytes come out of
    __u64 idle;    // SWITCH: for how many ns the CPU had been idle, 0: not; MOVED, REAPED: when the call began
    __u32 policy;  // MOVED: bytes
    __u32 room;
};

struct about {
    struct record r; // EXEC, EXIT, BORN
    __u32 tid;
    __u32 tgid;
    __u32 kernel;
    __u32 space; // the PID namespace that it is in, and its number there
    __u32 tid_there;
    __u32 room;
    char comm[16];
};

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096); // until it is loaded
} ring SEC(".maps");

struct known {
    __u32 number;
    __u64 entered; // when it began the call that it is in, if that is looked at; 0: none
};

// Tasks that are recorded, by their address. All of it is there from the start, so that
// switches can use it.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1); // until it is loaded
    __type(key, __u64);
    __type(value, struct known);
} tasks SEC(".maps");

// 0: records that found the ring full; 1: tasks that found no place.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u64);
} lost SEC(".maps");

// Since when a CPU is idle; 0: it is not.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} idle_since SEC(".maps");

// What a CPU is in. The kernel's own count of it can't be read by name on every kernel.
struct context {
    __s32 softirqs;
    __s32 interrupts; // of devices and of timers
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct context);
} contexts SEC(".maps");

// What this program itself took, so that it can be taken off: at switches, at wake-ups, at calls.
enum { AT_SWITCH = 0, AT_WAKING = 1, AT_CALL = 2 };
struct spent {
    __u64 ns;
    __u64 times;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 3);
    __type(key, __u32);
    __type(value, struct spent);
} spent SEC(".maps");

__u32 numbers = 0;
__u32 root_seen = 0;

static __always_inline void count_lost(__u32 which)
{
    __u64 *n = bpf_map_lookup_elem(&lost, &which);
    if (n)
        *n += 1;
}

static __always_inline void spend(__u32 at, __u64 began)
{
    struct spent *it = bpf_map_lookup_elem(&spent, &at);
    if (it) {
        it->ns += bpf_ktime_get_ns() - began;
        it->times += 1;
    }
}

// Whoever reads is woken when much has come, not for each record.
static __always_inline void submit(void *r)
{
    __u64 filled = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA);
    bpf_ringbuf_submit(r, filled >= settings.hurry ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

// A record of what happens now; none, and counted, where the ring is full.
static __always_inline struct record *fresh(__u8 kind, __u32 task)
{
    struct record *r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
    if (!r) {
        count_lost(0);
        return 0;
    }
    __builtin_memset(r, 0, sizeof(*r));
    r->time = bpf_ktime_get_ns();
    r->task = task;
    r->other = NOBODY;
    r->cpu = bpf_get_smp_processor_id();
    r->kind = kind;
    r->call = NO_CALL;
    return r;
}

static __always_inline void describe(struct record *r, struct task_struct *p)
{
    r->nice = p->static_prio - 120;
    r->policy = p->policy;
    r->allowed = p->cpus_mask.bits[0];
}

// A task's own PID namespace, and its number there; 0 where the kernel has it otherwise.
static __always_inline __u32 space_of(struct task_struct *p, __u32 *tid)
{
    if (!bpf_core_field_exists(p->thread_pid))
        return 0;
    // Read as a number: 6.1 lets nobody add what it doesn't know to a pointer that it does.
    struct pid *pid = BPF_CORE_READ(p, thread_pid);
    // Its number in each namespace, from the machine's own one on.
    __u64 at = bpf_core_field_offset(struct pid, numbers);
    at += BPF_CORE_READ(pid, level) * bpf_core_type_size(struct upid);
    struct upid *own = (struct upid *)((__u64)pid + at);
    *tid = BPF_CORE_READ(own, nr);
    return BPF_CORE_READ(own, ns, ns.inum);
}

static __always_inline void tell(struct task_struct *p, __u32 number, __u8 kind)
{
    struct about *a = bpf_ringbuf_reserve(&ring, sizeof(*a), 0);
    if (!a) {
        count_lost(0);
        return;
    }
    __builtin_memset(a, 0, sizeof(*a));
    a->r.time = bpf_ktime_get_ns();
    a->r.task = number;
    a->r.other = NOBODY;
    a->r.cpu = bpf_get_smp_processor_id();
    a->r.kind = kind;
    a->r.call = NO_CALL;
    describe(&a->r, p);
    a->tid = p->pid;
    a->tgid = p->tgid;
    a->kernel = (p->flags & PF_KTHREAD) != 0;
    a->tid_there = p->pid;
    a->space = space_of(p, &a->tid_there);
    bpf_probe_read_kernel(a->comm, sizeof(a->comm), &p->comm);
    submit(a);
}

// A task is recorded from now on.
static __always_inline __u32 begin(struct task_struct *p)
{
    __u64 key = (__u64)p;
    struct known it = {.number = __sync_fetch_and_add(&numbers, 1)};
    if (bpf_map_update_elem(&tasks, &key, &it, BPF_ANY)) {
        count_lost(1);
        return NOBODY;
    }
    tell(p, it.number, BORN);
    return it.number;
}

static __always_inline struct known *known(struct task_struct *p)
{
    __u64 key = (__u64)p;
    return bpf_map_lookup_elem(&tasks, &key);
}

static __always_inline __u32 number_of(struct task_struct *p)
{
    struct known *it = known(p);
    if (it)
        return it->number;
    if (settings.all)
        return p->pid ? begin(p) : NOBODY;
    if (!root_seen && p->pid == (int)settings.root) {
        root_seen = 1;
        return begin(p);
    }
    return NOBODY;
}

// A CPU enters one of these, or leaves it.
static __always_inline int passes(int timers, int by)
{
    __u32 zero = 0;
    struct context *in = bpf_map_lookup_elem(&contexts, &zero);
    if (!in)
        return 0;
    __s32 *n = timers ? &in->interrupts : &in->softirqs;
    // Of what had begun before there was anybody to count only the end is seen.
    if (by > 0 || *n > 0)
        *n += by;
    return 0;
}

SEC("tp_btf/irq_handler_entry")
int irq_in(__u64 *ctx) { return passes(1, 1); }

SEC("tp_btf/irq_handler_exit")
int irq_out(__u64 *ctx) { return passes(1, -1); }

SEC("tp_btf/hrtimer_expire_entry")
int timer_in(__u64 *ctx) { return passes(1, 1); }

SEC("tp_btf/hrtimer_expire_exit")
int timer_out(__u64 *ctx) { return passes(1, -1); }

SEC("tp_btf/softirq_entry")
int softirq_in(__u64 *ctx) { return passes(0, 1); }

SEC("tp_btf/softirq_exit")
int softirq_out(__u64 *ctx) { return passes(0, -1); }

// The file that a system call's first argument is the number of.
static __always_inline struct file *file_of(struct task_struct *p, __u64 number)
{
    struct fdtable *fdt = BPF_CORE_READ(p, files, fdt);
    if (!fdt || number >= BPF_CORE_READ(fdt, max_fds))
        return 0;
    struct file **all = BPF_CORE_READ(fdt, fd), *file = 0;
    if (bpf_probe_read_kernel(&file, sizeof(file), all + number))
        return 0;
    return file;
}

static __always_inline __u8 kind_of(struct file *file)
{
    if (!file)
        return 0;
    struct inode *inode = BPF_CORE_READ(file, f_inode);
    return (BPF_CORE_READ(inode, i_mode) & S_IFMT) >> 12;
}

// What a task is in that is about to wait.
static __always_inline void look_at_call(struct record *r, struct task_struct *p)
{
    if (!settings.regs || p->flags & PF_KTHREAD)
        return;
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
    // The instruction that calls the kernel leaves its own address there; a fault does not.
    if (regs->cx != regs->ip) {
        r->how |= FAULTS;
        return;
    }
    r->call = regs->orig_ax;
    r->file = kind_of(file_of(p, regs->di));
}

SEC("tp_btf/sched_switch")
int switched(__u64 *ctx)
{
    struct task_struct *prev = (struct task_struct *)ctx[1];
    struct task_struct *next = (struct task_struct *)ctx[2];
    __u32 state = ctx[3], zero = 0;
    __u64 now = bpf_ktime_get_ns(), idle = 0;

    __u64 *since = bpf_map_lookup_elem(&idle_since, &zero);
    if (!since)
        return 0;
    if (!prev->pid && *since)
        idle = now - *since;
    *since = next->pid ? 0 : now;

    __u32 from = prev->pid ? number_of(prev) : NOBODY;
    __u32 to = next->pid ? number_of(next) : NOBODY;
    if (from == NOBODY && to == NOBODY)
        return 0;
    struct record *r = fresh(SWITCH, from);
    if (r) {
        r->time = now;
        r->other = to;
        r->idle = idle;
        if (from != NOBODY) {
            describe(r, prev);
            if (ctx[0] || !state) {
                r->how = PREEMPTED;
            } else if (state & TASK_DEAD) {
                r->how = DEAD;
            } else {
                r->how = SLEEPS;
                if (state & TASK_UNINTERRUPTIBLE)
                    r->how |= UNINTERRUPTIBLE;
                if (BPF_CORE_READ_BITFIELD_PROBED(prev, in_iowait))
                    r->how |= IOWAIT;
                look_at_call(r, prev);
            }
        }
        submit(r);
    }
    if (state & TASK_DEAD && !ctx[0] && from != NOBODY) {
        __u64 key = (__u64)prev;
        bpf_map_delete_elem(&tasks, &key);
    }
    spend(AT_SWITCH, now);
    return 0;
}

SEC("tp_btf/sched_waking")
int waking(__u64 *ctx)
{
    struct task_struct *woken = (struct task_struct *)ctx[0];
    __u64 began = bpf_ktime_get_ns();
    __u32 number = number_of(woken);
    if (number == NOBODY)
        return 0;
    struct task_struct *by = bpf_get_current_task_btf();
    struct record *r = fresh(WAKING, number);
    if (!r)
        return 0;
    __u32 zero = 0;
    struct context *in = bpf_map_lookup_elem(&contexts, &zero);
    if (by->pid) {
        struct known *waker = known(by);
        if (waker)
            r->other = waker->number;
    }
    if (in)
        r->how = in->interrupts > 0 ? 2 : in->softirqs > 0 ? 1 : 0;
    submit(r);
    spend(AT_WAKING, began);
    return 0;
}

// What calls do with bytes, by their numbers on x86-64: 1 they take some, 2 they give some, 3 they wait
// for a child.
static __always_inline int moves(__u64 call)
{
    switch (call) {
    case 0:  // read
    case 19: // readv
    case 45: // recvfrom
    case 47: // recvmsg
        return 1;
    case 1:  // write
    case 20: // writev
    case 44: // sendto
    case 46: // sendmsg
        return 2;
    case 61: // wait4
        return 3;
    }
    return 0;
}

SEC("tp_btf/sys_enter")
int call_begins(__u64 *ctx)
{
    if (!moves(ctx[1]))
        return 0;
    struct known *it = known(bpf_get_current_task_btf());
    if (it)
        it->entered = bpf_ktime_get_ns();
    return 0;
}

SEC("tp_btf/sys_exit")
int call_ends(__u64 *ctx)
{
    struct pt_regs *regs = (struct pt_regs *)ctx[0];
    struct task_struct *p = bpf_get_current_task_btf();
    long result = ctx[1];
    int how = moves(regs->orig_ax);
    __u64 object = 0;
    __u32 unused;

    if (result <= 0 || !how)
        return 0;
    struct known *it = known(p);
    if (!it || !it->entered)
        return 0;
    __u64 began = bpf_ktime_get_ns();
    if (how != 3) {
        struct file *file = file_of(p, regs->di);
        __u8 kind = kind_of(file);
        if (kind == FIFO) {
            object = (__u64)BPF_CORE_READ(file, f_inode);
        } else if (kind == SOCKET) {
            struct socket *socket = BPF_CORE_READ(file, private_data);
            struct sock *sk = BPF_CORE_READ(socket, sk);
            if (BPF_CORE_READ(sk, __sk_common.skc_family) != AF_UNIX)
                return 0;
            // What is written to one of a pair comes out of the other.
            object = (__u64)(how == 1 ? sk : BPF_CORE_READ((struct unix_sock *)sk, peer));
        }
        if (!object)
            return 0;
    }
    struct record *r = fresh(how == 3 ? REAPED : MOVED, it->number);
    if (!r)
        return 0;
    if (how == 3) {
        // The child's number as the caller sees it.
        r->other = result;
        object = space_of(p, &unused);
    }
    r->how = how == 1;
    r->allowed = object;
    r->idle = it->entered;
    r->policy = result;
    it->entered = 0;
    submit(r);
    spend(AT_CALL, began);
    return 0;
}

SEC("tp_btf/sched_process_fork")
int forked(__u64 *ctx)
{
    struct task_struct *parent = (struct task_struct *)ctx[0];
    struct task_struct *child = (struct task_struct *)ctx[1];
    __u32 from = number_of(parent);
    if (from == NOBODY)
        return 0;
    __u32 to = begin(child);
    if (to == NOBODY)
        return 0;
    struct record *r = fresh(FORK, from);
    if (!r)
        return 0;
    r->other = to;
    submit(r);
    return 0;
}

SEC("tp_btf/sched_process_exec")
int execed(__u64 *ctx)
{
    struct task_struct *p = (struct task_struct *)ctx[0];
    __u32 number = number_of(p);
    if (number != NOBODY)
        tell(p, number, EXEC);
    return 0;
}

SEC("tp_btf/sched_process_exit")
int exited(__u64 *ctx)
{
    struct task_struct *p = (struct task_struct *)ctx[0];
    __u32 number = number_of(p);
    if (number != NOBODY)
        tell(p, number, EXIT);
    return 0;
}

// What the kernel asks for where programs read its memory.
char LICENSE[] SEC("license") = "Dual MIT/GPL";
