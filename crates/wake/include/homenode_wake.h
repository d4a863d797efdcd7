/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Which CPU a woken task gets: the choice that Linux makes for tasks of the fair class,
 * as one function over bitmaps and small arrays.
 *
 *   waker, wakee ─▶ record ─▶ wide? ─▶ walk of domains ─▶ waker's CPU or prev = target
 *                                                                   │
 *          chosen ◀─ allowed? ◀─ target, prev, stacked, recent, capacity, core, LLC, sibling
 *
 * The same text is compiled for this machine (native/wake.c, behind a safe face in Rust)
 * and for the kernel's BPF verifier (bpf/wake.bpf.c). So: no library, no kernel type, no
 * recursion, no memory of its own; each loop ends at a constant, and each index is cut to
 * one when HN_WAKE_CUT says so. The caller owns all arrays.
 *
 * A set of CPUs is an array of 64-bit words, CPU n being bit n % 64 of word n / 64. A search
 * "cyclic from n" takes the bits from n upward, then those below n. It costs a few
 * instructions a word, not a CPU, because nobody has to ask an idle CPU anything.
 *
 * Source: specs/wake.md.
 */
#ifndef HOMENODE_WAKE_H
#define HOMENODE_WAKE_H

typedef __UINT8_TYPE__ hn_u8;
typedef __UINT16_TYPE__ hn_u16;
typedef __UINT32_TYPE__ hn_u32;
typedef __UINT64_TYPE__ hn_u64;
typedef __INT64_TYPE__ hn_s64;

#ifndef HN_WAKE_MAX_CPUS
#define HN_WAKE_MAX_CPUS 8192 /* a power of two from 64 on */
#endif
#define HN_WAKE_MAX_WORDS (HN_WAKE_MAX_CPUS / 64)
#ifndef HN_WAKE_MAX_DOMAINS
#define HN_WAKE_MAX_DOMAINS 32768 /* a power of two */
#endif
#ifndef HN_WAKE_MAX_MASKS
#define HN_WAKE_MAX_MASKS 0x1000000 /* words of all spans; a power of two */
#endif
#define HN_WAKE_MAX_SMT 8
#define HN_WAKE_MAX_LEVELS 16

/* An index below a constant, a power of two. The verifier wants to see that; whoever is
 * sure of the arrays (the Rust face checks them when they are built) saves the step. */
#ifndef HN_WAKE_CUT
#define HN_WAKE_CUT(index, power) (index)
#endif
#ifndef HN_WAKE_FN
#define HN_WAKE_FN static inline __attribute__((always_inline))
#endif
/* For what is needed seldom or in several places: the verifier allows 512 bytes of stack. */
#ifndef HN_WAKE_FAR
#define HN_WAKE_FAR static __attribute__((unused))
#endif
/* i from 0 to below n. A BPF program may take the kernel's own iterator, of which the verifier
 * follows two or three rounds instead of all. */
#ifndef HN_WAKE_FOR
#define HN_WAKE_FOR(i, n) for ((i) = 0; (i) < (n); (i)++)
#endif

/* No CPU, no domain, no level. */
#define HN_WAKE_NO_CPU 0xffffffffu
#define HN_WAKE_NO_DOMAIN 0xffffu
#define HN_WAKE_NO_LEVEL 0xffu
#define HN_WAKE_NO_TASK 0xffffffffu

/* Kernels whose rules differ, oldest first. specs/wake.md#versions */
enum hn_wake_version {
    HN_WAKE_V4_5,
    HN_WAKE_V4_15,
    HN_WAKE_V4_16, /* the kernel of the seed */
    HN_WAKE_V6_12,
    HN_WAKE_V7_3,
};

/* Who keeps a recently used CPU. specs/wake.md#recent */
enum hn_wake_recent {
    HN_WAKE_RECENT_NONE,
    HN_WAKE_RECENT_WAKER, /* the seed's */
    HN_WAKE_RECENT_WAKEE, /* today's */
};

/* What a domain has. */
#define HN_WAKE_AFFINE 0x01
#define HN_WAKE_SHARE_LLC 0x02
#define HN_WAKE_CLUSTER 0x04
#define HN_WAKE_SHARE_CPUCAPACITY 0x08
#define HN_WAKE_NUMA 0x10
#define HN_WAKE_ASYM_FULL 0x20
#define HN_WAKE_BALANCE_WAKE 0x40

/* What a machine has. */
#define HN_WAKE_HAS_SMT 0x1
#define HN_WAKE_HAS_CLUSTERS 0x2
#define HN_WAKE_HAS_ASYM 0x4

/* What a wake-up is. */
#define HN_WAKE_SYNC 0x1          /* the waker is about to sleep, and doesn't exit */
#define HN_WAKE_CURRENT_CPU 0x2   /* the caller asks for the waker's CPU */
#define HN_WAKE_KTHREAD 0x4       /* the waker is a kernel thread of one CPU, in task context */
#define HN_WAKE_IDLE_POLICY 0x8   /* the wakee is SCHED_IDLE */

/* Why a CPU was chosen. specs/wake.md#reasons */
enum hn_wake_reason {
    HN_WAKE_ONLY_ALLOWED,
    HN_WAKE_CURRENT,
    HN_WAKE_TARGET_IDLE,
    HN_WAKE_PREV_IDLE,
    HN_WAKE_STACKED,
    HN_WAKE_RECENT,
    HN_WAKE_CAPACITY_FITS,
    HN_WAKE_CAPACITY_BEST,
    HN_WAKE_IDLE_CORE,
    HN_WAKE_IDLE_CPU,
    HN_WAKE_IDLE_SEEN,
    HN_WAKE_SMT_SIBLING,
    HN_WAKE_PREV_OTHER_CLUSTER,
    HN_WAKE_RECENT_OTHER_CLUSTER,
    HN_WAKE_NOTHING_IDLE,
    HN_WAKE_NO_LLC,
    HN_WAKE_SLOW_PATH,
    HN_WAKE_FALLBACK_NODE,
    HN_WAKE_FALLBACK,
    HN_WAKE_AFFINITY_BROKEN,
    HN_WAKE_BAD_INPUT,
};

/* What a choice did besides. */
#define HN_WAKE_DID_AFFINE 0x01       /* wake_affine chose the waker's CPU */
#define HN_WAKE_DID_RECENT 0x02       /* the wakee's recent CPU was written */
#define HN_WAKE_DID_WAKER_RECENT 0x04 /* the waker's was */
#define HN_WAKE_DID_FLIPS 0x08        /* the waker's flips were halved or counted */
#define HN_WAKE_DID_CLEAR_CORE 0x10   /* has_idle_core was cleared */
#define HN_WAKE_DID_TIME_SCAN 0x20    /* old kernels: the scan counts into its average cost */
#define HN_WAKE_DID_WIDE 0x40         /* waker and wakee have too many partners */

/* A set of CPUs that belong together: words of it that aren't zero, from `first_word` on. */
struct hn_wake_domain {
    hn_u32 masks; /* where they begin in `masks` of the view */
    hn_u16 first_word;
    hn_u16 nr_words;
    hn_u16 weight; /* CPUs in it */
    hn_u16 imbalance_pct;
    hn_u16 shared; /* of an LLC, or of all capacities: place in `shared` of the view */
    hn_u8 flags;
    hn_u8 _pad;
};

/* Where a CPU is: one cache line. Domains are places in `domain` of the view. */
struct hn_wake_place {
    hn_u16 llc_id;   /* first CPU of its LLC; itself if it has none */
    hn_u16 share_id; /* first CPU of its cluster; if none, llc_id */
    hn_u16 node;     /* its node's CPUs */
    hn_u16 llc;      /* highest domain with SHARE_LLC */
    hn_u16 cluster;  /* the domain below that one, if it is a cluster */
    hn_u16 asym;     /* lowest domain with ASYM_FULL */
    hn_u8 nr_smt;
    hn_u8 nr_levels;
    hn_u16 smt[HN_WAKE_MAX_SMT];      /* CPUs of its core, itself included, ascending */
    hn_u16 level[HN_WAKE_MAX_LEVELS]; /* its domains, from the smallest on */
    hn_u16 _pad;
};

/* What the CPUs of an LLC know together. */
struct hn_wake_shared {
    hn_u32 nr_idle_scan;
    hn_u32 has_idle_core;
};

/* What wake-ups leave in a task. A CPU's idle task has one too. */
struct hn_wake_task {
    hn_u64 decay_jiffies; /* when flips were halved last */
    hn_u32 flips;         /* how often it woke another one than before */
    hn_u32 last_wakee;
    hn_u32 recent; /* a CPU that it used recently */
    hn_u32 _pad;
};

/* All that a choice looks at; of it only `shared` is written. */
struct hn_wake_view {
    hn_u32 nr_cpus;
    hn_u32 version; /* enum hn_wake_version */
    hn_u32 recent;  /* enum hn_wake_recent */
    hn_u32 has;     /* HN_WAKE_HAS_* */
    hn_u32 hz;
    hn_u32 all; /* the domain of all CPUs */
    hn_u32 capacity_orig_max;
    hn_u32 _pad;
    const struct hn_wake_place *place;   /* per CPU */
    const struct hn_wake_domain *domain;
    const hn_u64 *masks;
    const hn_u64 *idle;       /* CPUs that are available idle */
    const hn_u64 *idle_core;  /* those whose whole core is */
    const hn_u64 *sched_idle; /* those with nothing but SCHED_IDLE tasks */
    const hn_u64 *active;     /* those that may get tasks */
    const hn_u32 *nr_running; /* per CPU, all classes, delayed ones too */
    const hn_u32 *nr_delayed;
    const hn_u64 *load;
    const hn_u32 *capacity;
    const hn_u32 *capacity_orig;
    const hn_u64 *avg_idle;  /* ns; up to 4.16 */
    const hn_u64 *scan_cost; /* ns; up to 4.16 */
    struct hn_wake_shared *shared;
    const hn_u64 *allowed; /* CPUs that the wakee may run on; null: all */
};

struct hn_wake_up {
    hn_u32 waker_cpu;
    hn_u32 prev;     /* where the wakee ran last */
    hn_u32 task_cpu; /* whose node a fall-back begins with: prev, but for a NUMA swap */
    hn_u32 wakee;    /* its number */
    hn_u32 nr_allowed;
    hn_u32 flags;
    hn_u64 jiffies;
    hn_u64 waker_load;
    hn_u64 wakee_load;
    hn_u64 wakee_util;
};

struct hn_wake_choice {
    hn_u32 cpu;
    hn_u32 target;
    hn_u32 scanned; /* CPUs that a search went past, the chosen one included */
    hn_u8 reason;
    hn_u8 level; /* of the waker's CPU, where wake_affine was tried or the slow path begins */
    hn_u8 did;
    hn_u8 _pad;
};

_Static_assert(sizeof(struct hn_wake_domain) == 16, "as in src/raw.rs");
_Static_assert(sizeof(struct hn_wake_place) == 64, "as in src/raw.rs");
_Static_assert(sizeof(struct hn_wake_shared) == 8, "as in src/raw.rs");
_Static_assert(sizeof(struct hn_wake_task) == 24, "as in src/raw.rs");
_Static_assert(sizeof(struct hn_wake_choice) == 16, "as in src/raw.rs");
_Static_assert(sizeof(struct hn_wake_view) == 32 + 16 * sizeof(void *), "as in src/raw.rs");
_Static_assert(sizeof(struct hn_wake_up) == 56, "as in src/raw.rs");

/* ---- words and bits ---- */

HN_WAKE_FN hn_u32 hn_wake_count(hn_u64 word)
{
    /* Pairs, nibbles, bytes, then the sum of the bytes in the highest one. BPF has no
     * instruction for it, and x86 not always. */
    word -= (word >> 1) & 0x5555555555555555ull;
    word = (word & 0x3333333333333333ull) + ((word >> 2) & 0x3333333333333333ull);
    word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0full;
    return (hn_u32)((word * 0x0101010101010101ull) >> 56);
}

/* A number of CPUs and some more of them; all of them at most, as the verifier sees. */
HN_WAKE_FN hn_u32 hn_wake_more(hn_u32 count, hn_u64 word)
{
    return (hn_u32)HN_WAKE_CUT(count + hn_wake_count(word), 2 * HN_WAKE_MAX_CPUS);
}

/* The lowest bit of a word that isn't zero. */
HN_WAKE_FN hn_u32 hn_wake_lowest(hn_u64 word)
{
#ifdef __bpf__
    return hn_wake_count((word & (0 - word)) - 1);
#else
    return (hn_u32)__builtin_ctzll(word);
#endif
}

HN_WAKE_FN const struct hn_wake_place *hn_wake_place(const struct hn_wake_view *v, hn_u32 cpu)
{
    return &v->place[HN_WAKE_CUT(cpu, HN_WAKE_MAX_CPUS)];
}

HN_WAKE_FN const struct hn_wake_domain *hn_wake_domain(const struct hn_wake_view *v, hn_u32 domain)
{
    return &v->domain[HN_WAKE_CUT(domain, HN_WAKE_MAX_DOMAINS)];
}

HN_WAKE_FN hn_u64 hn_wake_word(const hn_u64 *set, hn_u32 word)
{
    return set[HN_WAKE_CUT(word, HN_WAKE_MAX_WORDS)];
}

HN_WAKE_FN int hn_wake_bit(const hn_u64 *set, hn_u32 cpu)
{
    return (int)(hn_wake_word(set, cpu / 64) >> (cpu % 64) & 1);
}

HN_WAKE_FN hn_u64 hn_wake_allowed_word(const struct hn_wake_view *v, hn_u32 word)
{
    return v->allowed ? hn_wake_word(v->allowed, word) : ~0ull;
}

HN_WAKE_FN int hn_wake_allowed(const struct hn_wake_view *v, hn_u32 cpu)
{
    return (int)(hn_wake_allowed_word(v, cpu / 64) >> (cpu % 64) & 1);
}

/* A domain's CPUs of one word of all CPUs. */
HN_WAKE_FN hn_u64 hn_wake_span_word(const struct hn_wake_view *v, const struct hn_wake_domain *d,
                                    hn_u32 word)
{
    hn_u32 at = word - d->first_word;

    /* Below the first one it has wrapped round and is large. */
    if (at >= d->nr_words)
        return 0;
    return v->masks[HN_WAKE_CUT(d->masks + at, HN_WAKE_MAX_MASKS)];
}

HN_WAKE_FN int hn_wake_spans(const struct hn_wake_view *v, const struct hn_wake_domain *d,
                             hn_u32 cpu)
{
    return (int)(hn_wake_span_word(v, d, cpu / 64) >> (cpu % 64) & 1);
}

/* ---- what is idle, what shares ---- */

HN_WAKE_FN int hn_wake_available(const struct hn_wake_view *v, hn_u32 cpu)
{
    return hn_wake_bit(v->idle, cpu);
}

/* Whether CPUs with nothing but SCHED_IDLE tasks count as idle for this wakee. */
HN_WAKE_FN hn_u64 hn_wake_sched_idle_counts(const struct hn_wake_view *v,
                                            const struct hn_wake_up *up)
{
    if (v->version < HN_WAKE_V6_12)
        return 0;
    if (v->version >= HN_WAKE_V7_3 && (up->flags & HN_WAKE_IDLE_POLICY))
        return 0;
    return ~0ull;
}

HN_WAKE_FN hn_u64 hn_wake_idle_word(const struct hn_wake_view *v, hn_u64 counts, hn_u32 word)
{
    return hn_wake_word(v->idle, word) | (hn_wake_word(v->sched_idle, word) & counts);
}

HN_WAKE_FN int hn_wake_idle(const struct hn_wake_view *v, hn_u64 counts, hn_u32 cpu)
{
    return (int)(hn_wake_idle_word(v, counts, cpu / 64) >> (cpu % 64) & 1);
}

HN_WAKE_FN int hn_wake_share_cache(const struct hn_wake_view *v, hn_u32 a, hn_u32 b)
{
    return a == b || hn_wake_place(v, a)->llc_id == hn_wake_place(v, b)->llc_id;
}

/* A cluster, if the machine has any. */
HN_WAKE_FN int hn_wake_share_resources(const struct hn_wake_view *v, hn_u32 a, hn_u32 b)
{
    return !(v->has & HN_WAKE_HAS_CLUSTERS) || a == b ||
           hn_wake_place(v, a)->share_id == hn_wake_place(v, b)->share_id;
}

/* Whether the other CPUs of its core are available idle. */
HN_WAKE_FAR int hn_wake_others_idle(const struct hn_wake_view *v, hn_u32 cpu)
{
    const struct hn_wake_place *place = hn_wake_place(v, cpu);
    hn_u32 i;

    HN_WAKE_FOR(i, HN_WAKE_MAX_SMT) {
        if (i >= place->nr_smt)
            break;
        if (place->smt[i] != cpu && !hn_wake_available(v, place->smt[i]))
            return 0;
    }
    return 1;
}

/* Where has_idle_core of a CPU is kept: with its LLC; since 7.3 with its domain of all
 * capacities, where that one isn't a NUMA level. HN_WAKE_NO_DOMAIN: nowhere. */
HN_WAKE_FN hn_u32 hn_wake_core_flag(const struct hn_wake_view *v, hn_u32 cpu)
{
    const struct hn_wake_place *place = hn_wake_place(v, cpu);

    if (v->version >= HN_WAKE_V7_3 && place->asym != HN_WAKE_NO_DOMAIN) {
        hn_u32 shared = hn_wake_domain(v, place->asym)->shared;

        if (shared != HN_WAKE_NO_DOMAIN)
            return shared;
    }
    if (place->llc == HN_WAKE_NO_DOMAIN)
        return HN_WAKE_NO_DOMAIN;
    return hn_wake_domain(v, place->llc)->shared;
}

HN_WAKE_FN struct hn_wake_shared *hn_wake_shared(const struct hn_wake_view *v, hn_u32 at)
{
    return &v->shared[HN_WAKE_CUT(at, HN_WAKE_MAX_DOMAINS)];
}

HN_WAKE_FN int hn_wake_has_idle_core(const struct hn_wake_view *v, hn_u32 cpu)
{
    hn_u32 flag = hn_wake_core_flag(v, cpu);

    return flag != HN_WAKE_NO_DOMAIN && hn_wake_shared(v, flag)->has_idle_core;
}

HN_WAKE_FN void hn_wake_clear_core(const struct hn_wake_view *v, hn_u32 cpu,
                                   struct hn_wake_choice *c)
{
    hn_u32 flag = hn_wake_core_flag(v, cpu);

    if (flag != HN_WAKE_NO_DOMAIN) {
        hn_wake_shared(v, flag)->has_idle_core = 0;
        c->did |= HN_WAKE_DID_CLEAR_CORE;
    }
}

/* The CPU turns to its idle task: an idle core is there if its other CPUs are idle already.
 * Source: specs/wake.md#cores. */
HN_WAKE_FN void hn_wake_enter_idle(const struct hn_wake_view *v, hn_u32 cpu)
{
    hn_u32 flag;

    if (!(v->has & HN_WAKE_HAS_SMT) || cpu >= v->nr_cpus)
        return;
    flag = hn_wake_core_flag(v, cpu);
    if (flag != HN_WAKE_NO_DOMAIN && !hn_wake_shared(v, flag)->has_idle_core &&
        hn_wake_others_idle(v, cpu))
        hn_wake_shared(v, flag)->has_idle_core = 1;
}

/* ---- searches ---- */

/* What a search is for, beside being allowed. */
enum hn_wake_want {
    HN_WAKE_WANT_IDLE, /* available or, where that counts, SCHED_IDLE only */
    HN_WAKE_WANT_CORE, /* a whole idle core */
    HN_WAKE_WANT_ACTIVE,
    HN_WAKE_WANT_ANY,
};

struct hn_wake_search {
    hn_u32 in;      /* domain */
    hn_u32 without; /* domain, or HN_WAKE_NO_DOMAIN */
    hn_u32 from;    /* cyclic from this CPU */
    hn_u32 want;
    hn_u32 limit;  /* CPUs that may be looked at */
    hn_u32 looked; /* CPUs that were */
    hn_u32 all;    /* 1: those that aren't allowed are looked at in vain; 2: they count */
    hn_u32 cut;    /* the limit ended it */
    hn_u64 counts; /* hn_wake_sched_idle_counts */
};

/* The `step`th word of a domain, cyclic from a CPU, which part of it to take, and which
 * word of all CPUs it is. The word of `from` comes twice: its upper bits at first, its
 * lower ones at last. 0 beyond the end. */
struct hn_wake_step {
    hn_u32 word;
    hn_u32 more;
    hn_u64 bits;
};

HN_WAKE_FN struct hn_wake_step hn_wake_step(const struct hn_wake_view *v,
                                            const struct hn_wake_domain *d, hn_u32 from,
                                            hn_u32 step)
{
    struct hn_wake_step s = { 0, 0, 0 };
    hn_u32 at = from / 64 - d->first_word;
    hn_u64 upper = ~0ull << (from % 64);
    hn_u32 n = d->nr_words;

    /* Beyond the domain's words on either side: from its first one on. */
    if (at >= n) {
        at = 0;
        upper = ~0ull;
    }
    if (!n || step > n)
        return s;
    s.more = 1;
    at += step;
    if (at >= n)
        at -= n;
    s.word = d->first_word + at;
    s.bits = v->masks[HN_WAKE_CUT(d->masks + at, HN_WAKE_MAX_MASKS)];
    if (step == 0)
        s.bits &= upper;
    else if (step == n)
        s.bits &= ~upper;
    return s;
}

HN_WAKE_FAR hn_u32 hn_wake_find(const struct hn_wake_view *v, struct hn_wake_search *f)
{
    const struct hn_wake_domain *d = hn_wake_domain(v, f->in);
    hn_u32 step;

    HN_WAKE_FOR(step, HN_WAKE_MAX_WORDS + 1) {
        struct hn_wake_step s = hn_wake_step(v, d, f->from, step);
        hn_u64 may, hits;

        if (!s.more)
            break;
        if (!s.bits)
            continue;
        if (f->without != HN_WAKE_NO_DOMAIN)
            s.bits &= ~hn_wake_span_word(v, hn_wake_domain(v, f->without), s.word);
        may = f->all == 1 ? s.bits : s.bits & hn_wake_allowed_word(v, s.word);
        /* `all` 2 is the oldest way: a CPU that isn't allowed is a look all the same. */
        hits = may;
        if (f->all != 2)
            s.bits = may;
        if (f->want == HN_WAKE_WANT_IDLE)
            hits &= hn_wake_idle_word(v, f->counts, s.word);
        else if (f->want == HN_WAKE_WANT_CORE)
            hits &= hn_wake_word(v->idle_core, s.word);
        else if (f->want == HN_WAKE_WANT_ACTIVE)
            hits &= hn_wake_word(v->active, s.word);
        if (hits) {
            /* All bits up to the lowest hit. */
            f->looked = hn_wake_more(f->looked, s.bits & (hits ^ (hits - 1)));
            if (f->looked > f->limit)
                break;
            return s.word * 64 + hn_wake_lowest(hits);
        }
        f->looked = hn_wake_more(f->looked, s.bits);
        if (f->looked > f->limit)
            break;
    }
    if (f->looked > f->limit) {
        f->looked = f->limit;
        f->cut = 1;
    }
    return HN_WAKE_NO_CPU;
}

/* The first CPU of a set without any limit; `all` 1 asks nobody whether it is allowed. */
HN_WAKE_FAR hn_u32 hn_wake_first(const struct hn_wake_view *v, hn_u32 in, hn_u32 want,
                                 hn_u32 all)
{
    struct hn_wake_search f = {
        .in = in, .without = HN_WAKE_NO_DOMAIN, .want = want, .limit = ~0u, .all = all,
    };

    return hn_wake_find(v, &f);
}

/* The lowest CPU of a core that is idle, allowed, in a domain and not `but`. */
HN_WAKE_FN hn_u32 hn_wake_idle_of_core(const struct hn_wake_view *v,
                                       const struct hn_wake_domain *in, hn_u64 counts, hn_u32 core,
                                       hn_u32 but)
{
    const struct hn_wake_place *place = hn_wake_place(v, core);
    hn_u32 i;

    HN_WAKE_FOR(i, HN_WAKE_MAX_SMT) {
        hn_u32 cpu = place->smt[i];

        if (i >= place->nr_smt)
            break;
        if (cpu != but && hn_wake_idle(v, counts, cpu) && hn_wake_allowed(v, cpu) &&
            hn_wake_spans(v, in, cpu))
            return cpu;
    }
    return HN_WAKE_NO_CPU;
}

/* What a search for a core, which found none, has seen: the first core with an idle CPU,
 * cyclic, and the lowest such CPU in it. Needed once each time that the last idle core of
 * an LLC has gone, so it may ask one core after the other. */
HN_WAKE_FAR hn_u32 hn_wake_seen(const struct hn_wake_view *v, struct hn_wake_search *f)
{
    const struct hn_wake_domain *d = hn_wake_domain(v, f->in);
    hn_u32 step, n;

    HN_WAKE_FOR(step, HN_WAKE_MAX_WORDS + 1) {
        struct hn_wake_step s = hn_wake_step(v, d, f->from, step);
        hn_u64 may;

        if (!s.more)
            break;
        may = s.bits & hn_wake_allowed_word(v, s.word);
        if (f->without != HN_WAKE_NO_DOMAIN)
            may &= ~hn_wake_span_word(v, hn_wake_domain(v, f->without), s.word);
        HN_WAKE_FOR(n, 64) {
            hn_u32 cpu;

            if (!may)
                break;
            cpu = s.word * 64 + hn_wake_lowest(may);
            may &= may - 1;
            cpu = hn_wake_idle_of_core(v, d, f->counts, cpu, HN_WAKE_NO_CPU);
            if (cpu != HN_WAKE_NO_CPU)
                return cpu;
        }
    }
    return HN_WAKE_NO_CPU;
}

/* ---- wake_affine: specs/wake.md#affine ---- */

HN_WAKE_FN int hn_wake_affine(const struct hn_wake_view *v, const struct hn_wake_up *up,
                              hn_u32 imbalance_pct)
{
    hn_u32 here = HN_WAKE_CUT(up->waker_cpu, HN_WAKE_MAX_CPUS);
    hn_u32 prev = HN_WAKE_CUT(up->prev, HN_WAKE_MAX_CPUS);
    hn_u32 sync = up->flags & HN_WAKE_SYNC;
    hn_u64 load_here, load_prev;

    if (v->version == HN_WAKE_V4_5) {
        hn_s64 mine = (hn_s64)(v->load[here] - (sync ? up->waker_load : 0));

        load_here = 100 * (hn_u64)v->capacity[prev];
        load_prev = (hn_u64)(100 + (imbalance_pct - 100) / 2) * v->capacity[here];
        /* Without load here only the capacities are compared. */
        if (mine > 0) {
            load_here *= (hn_u64)mine + up->wakee_load;
            load_prev *= v->load[prev];
        }
        return (hn_s64)load_here <= (hn_s64)load_prev;
    }
    if (hn_wake_available(v, here)) {
        if (v->version == HN_WAKE_V4_15)
            return 1;
        if (hn_wake_share_cache(v, here, prev))
            return !hn_wake_available(v, prev);
    }
    if (sync) {
        hn_u32 delayed = v->version >= HN_WAKE_V6_12 ? v->nr_delayed[here] : 0;

        if (v->nr_running[here] - delayed == 1)
            return 1;
    }
    if (v->version >= HN_WAKE_V6_12 && hn_wake_available(v, prev))
        return 0;

    /* Differences may be negative: words wrap, and the comparison takes them as signed. */
    load_here = v->load[here];
    if (sync) {
        if (up->waker_load > load_here)
            return 1;
        load_here -= up->waker_load;
    }
    load_here = (load_here + up->wakee_load) * 100 * v->capacity[prev];
    load_prev = v->load[prev] - up->wakee_load;
    load_prev *= 100 + (imbalance_pct - 100) / 2;
    load_prev *= v->capacity[here];
    if (v->version == HN_WAKE_V4_15)
        return (hn_s64)load_here <= (hn_s64)load_prev;
    /* Of equals a waker that is about to sleep gets it. */
    return (hn_s64)load_here < (hn_s64)(load_prev + (sync ? 1 : 0));
}

/* ---- the LLC and what is around it: specs/wake.md#siblings ---- */

/* Whether a task fits a CPU: 80 % of its capacity have to be more. */
HN_WAKE_FN int hn_wake_fits_capacity(const struct hn_wake_view *v, const struct hn_wake_up *up,
                                     hn_u32 cpu)
{
    return up->wakee_util * 1280 <
           (hn_u64)v->capacity[HN_WAKE_CUT(cpu, HN_WAKE_MAX_CPUS)] * 1024;
}

/* The same for what is tried before any search. */
HN_WAKE_FN int hn_wake_fits(const struct hn_wake_view *v, const struct hn_wake_up *up, hn_u32 cpu)
{
    if (v->version < HN_WAKE_V6_12 || !(v->has & HN_WAKE_HAS_ASYM))
        return 1;
    if (v->version >= HN_WAKE_V7_3 && (v->has & HN_WAKE_HAS_SMT) && !hn_wake_others_idle(v, cpu))
        return 0;
    return hn_wake_fits_capacity(v, up, cpu);
}

/* The search on a machine of unequal CPUs: specs/wake.md#capacity. */
HN_WAKE_FAR hn_u32 hn_wake_by_capacity(const struct hn_wake_view *v, const struct hn_wake_up *up,
                                       hn_u32 target, struct hn_wake_choice *c)
{
    const struct hn_wake_domain *d = hn_wake_domain(v, hn_wake_place(v, target)->asym);
    hn_u64 counts = hn_wake_sched_idle_counts(v, up);
    hn_u32 newest = v->version >= HN_WAKE_V7_3;
    hn_u32 want_core = newest && (v->has & HN_WAKE_HAS_SMT) && hn_wake_has_idle_core(v, target);
    hn_u32 limit = ~0u, best = HN_WAKE_NO_CPU, best_cap = 0, step, n;
    /* Ranks of what doesn't fit at once, the higher the better: an idle core, a CPU that
     * fits beside a busy sibling, any other one. */
    hn_u32 best_rank = 0;

    c->reason = HN_WAKE_CAPACITY_BEST;
    if (newest && d->shared != HN_WAKE_NO_DOMAIN) {
        limit = hn_wake_shared(v, d->shared)->nr_idle_scan;
        if (!limit)
            goto none;
        if (want_core)
            limit = ~0u;
    }
    HN_WAKE_FOR(step, HN_WAKE_MAX_WORDS + 1) {
        struct hn_wake_step s = hn_wake_step(v, d, target, step);
        hn_u64 hits;

        if (!s.more)
            break;
        s.bits &= hn_wake_allowed_word(v, s.word);
        hits = s.bits & hn_wake_idle_word(v, counts, s.word);
        HN_WAKE_FOR(n, 64) {
            hn_u64 upto;
            hn_u32 cpu, cap, core, rank;

            if (!hits)
                break;
            upto = hits ^ (hits - 1);
            if (c->scanned + hn_wake_count(s.bits & upto) > limit)
                break;
            cpu = s.word * 64 + hn_wake_lowest(hits);
            hits &= hits - 1;
            cap = v->capacity[HN_WAKE_CUT(cpu, HN_WAKE_MAX_CPUS)];
            core = !want_core || hn_wake_others_idle(v, cpu);
            rank = core && want_core ? 2 : 0;
            if (hn_wake_fits_capacity(v, up, cpu)) {
                if (core) {
                    c->scanned += hn_wake_count(s.bits & upto);
                    c->reason = HN_WAKE_CAPACITY_FITS;
                    return cpu;
                }
                rank = 1;
            }
            if (rank > best_rank || (rank == best_rank && cap > best_cap)) {
                best_rank = rank;
                best_cap = cap;
                best = cpu;
            }
        }
        c->scanned += hn_wake_count(s.bits);
        if (c->scanned > limit) {
            c->scanned = limit;
            break;
        }
    }
    if (want_core && best_rank < 2)
        hn_wake_clear_core(v, target, c);
    if (best != HN_WAKE_NO_CPU)
        return best;
none:
    c->reason = HN_WAKE_NOTHING_IDLE;
    return target;
}

/* The search through an LLC since 6.12. */
HN_WAKE_FN hn_u32 hn_wake_scan(const struct hn_wake_view *v, const struct hn_wake_up *up,
                               hn_u32 target, hn_u32 core, struct hn_wake_choice *c)
{
    const struct hn_wake_place *place = hn_wake_place(v, target);
    struct hn_wake_search f = {
        .in = place->llc,
        .without = HN_WAKE_NO_DOMAIN,
        .from = target + 1,
        .want = core ? HN_WAKE_WANT_CORE : HN_WAKE_WANT_IDLE,
        .counts = hn_wake_sched_idle_counts(v, up),
    };
    hn_u32 cluster = v->has & HN_WAKE_HAS_CLUSTERS ? place->cluster : HN_WAKE_NO_DOMAIN;
    hn_u32 cpu = HN_WAKE_NO_CPU, llc = place->llc;

    f.limit = hn_wake_shared(v, hn_wake_domain(v, llc)->shared)->nr_idle_scan;
    if (!f.limit)
        return HN_WAKE_NO_CPU;
    if (core)
        f.limit = ~0u;
    if (cluster != HN_WAKE_NO_DOMAIN) {
        f.in = cluster;
        cpu = hn_wake_find(v, &f);
        f.in = llc;
        f.without = cluster;
    }
    if (cpu == HN_WAKE_NO_CPU && !f.cut)
        cpu = hn_wake_find(v, &f);
    c->scanned = f.looked;
    c->reason = core ? HN_WAKE_IDLE_CORE : HN_WAKE_IDLE_CPU;
    if (cpu != HN_WAKE_NO_CPU || !core)
        return cpu;
    /* 7.3 leaves before anything if none of them is allowed. */
    if (v->version >= HN_WAKE_V7_3 && !f.looked)
        return cpu;
    c->reason = HN_WAKE_IDLE_SEEN;
    hn_wake_clear_core(v, target, c);
    if (cluster != HN_WAKE_NO_DOMAIN) {
        f.in = cluster;
        f.without = HN_WAKE_NO_DOMAIN;
        cpu = hn_wake_seen(v, &f);
        f.in = llc;
        f.without = cluster;
    }
    return cpu == HN_WAKE_NO_CPU ? hn_wake_seen(v, &f) : cpu;
}

/* In 4.5: the first core, in the order of their first CPUs, that is idle as a whole; then the
 * first idle thread beside the target. Source: specs/wake.md#groups. */
HN_WAKE_FAR hn_u32 hn_wake_by_groups(const struct hn_wake_view *v, hn_u32 target,
                                     struct hn_wake_choice *c)
{
    const struct hn_wake_place *place = hn_wake_place(v, target);
    const struct hn_wake_domain *d = hn_wake_domain(v, place->llc);
    hn_u32 from = target, before = HN_WAKE_NO_CPU, after = HN_WAKE_NO_CPU;
    hn_u32 step, n, i;

    /* Siblings ascend: the first of the domain is the core's first CPU there. */
    HN_WAKE_FOR(i, HN_WAKE_MAX_SMT) {
        if (i >= place->nr_smt)
            break;
        if (hn_wake_spans(v, d, place->smt[i])) {
            from = place->smt[i];
            break;
        }
    }
    c->reason = v->has & HN_WAKE_HAS_SMT ? HN_WAKE_IDLE_CORE : HN_WAKE_IDLE_CPU;
    HN_WAKE_FOR(step, HN_WAKE_MAX_WORDS + 1) {
        struct hn_wake_step s = hn_wake_step(v, d, from, step);
        hn_u64 hits;

        if (!s.more)
            break;
        hits = s.bits & hn_wake_word(v->idle_core, s.word);
        HN_WAKE_FOR(n, 64) {
            const struct hn_wake_place *core;
            hn_u32 cpu, first = 1;

            if (!hits)
                break;
            cpu = s.word * 64 + hn_wake_lowest(hits);
            hits &= hits - 1;
            core = hn_wake_place(v, cpu);
            HN_WAKE_FOR(i, HN_WAKE_MAX_SMT) {
                if (i >= core->nr_smt || core->smt[i] >= cpu)
                    break;
                if (hn_wake_spans(v, d, core->smt[i]))
                    first = 0;
            }
            if (!first || cpu == from)
                continue;
            cpu = hn_wake_idle_of_core(v, d, 0, cpu, HN_WAKE_NO_CPU);
            if (cpu != HN_WAKE_NO_CPU)
                return cpu;
        }
    }
    HN_WAKE_FOR(i, HN_WAKE_MAX_SMT) {
        hn_u32 cpu = place->smt[i];

        if (i >= place->nr_smt)
            break;
        if (cpu == target || !hn_wake_available(v, cpu) || !hn_wake_allowed(v, cpu) ||
            !hn_wake_spans(v, d, cpu))
            continue;
        if (cpu > target && after == HN_WAKE_NO_CPU)
            after = cpu;
        if (cpu < target && before == HN_WAKE_NO_CPU)
            before = cpu;
    }
    c->reason = HN_WAKE_SMT_SIBLING;
    return after != HN_WAKE_NO_CPU ? after : before;
}

/* The same in 4.15 and 4.16: a core, then as many CPUs as their idle time pays for, then a
 * sibling. Source: specs/wake.md#cost-scan. */
HN_WAKE_FAR hn_u32 hn_wake_scan_old(const struct hn_wake_view *v, const struct hn_wake_up *up,
                                    hn_u32 target, struct hn_wake_choice *c)
{
    hn_u32 here = HN_WAKE_CUT(up->waker_cpu, HN_WAKE_MAX_CPUS);
    struct hn_wake_search f = {
        .in = hn_wake_place(v, target)->llc,
        .without = HN_WAKE_NO_DOMAIN,
        .from = target,
        .want = HN_WAKE_WANT_CORE,
        .limit = ~0u,
    };
    hn_u32 cpu;

    if ((v->has & HN_WAKE_HAS_SMT) && hn_wake_has_idle_core(v, target)) {
        cpu = hn_wake_find(v, &f);
        c->scanned = f.looked;
        c->reason = HN_WAKE_IDLE_CORE;
        if (cpu != HN_WAKE_NO_CPU)
            return cpu;
        hn_wake_clear_core(v, target, c);
    }
    if (hn_wake_place(v, here)->llc != HN_WAKE_NO_DOMAIN) {
        hn_u64 pays = hn_wake_domain(v, f.in)->weight * (v->avg_idle[here] / 512);
        hn_u64 cost = v->scan_cost[here] + 1;
        hn_u64 looks = pays > 4 * cost ? pays / cost : 4;

        f.want = HN_WAKE_WANT_IDLE;
        f.looked = 0;
        f.all = 2;
        f.limit = looks > 0x7fffffff ? 0x7fffffff : (hn_u32)looks - 1;
        cpu = hn_wake_find(v, &f);
        c->scanned += f.looked;
        c->reason = HN_WAKE_IDLE_CPU;
        if (!f.cut)
            c->did |= HN_WAKE_DID_TIME_SCAN;
        if (cpu != HN_WAKE_NO_CPU)
            return cpu;
    }
    if (!(v->has & HN_WAKE_HAS_SMT))
        return HN_WAKE_NO_CPU;
    c->reason = HN_WAKE_SMT_SIBLING;
    return hn_wake_idle_of_core(v, hn_wake_domain(v, v->all), 0, target, HN_WAKE_NO_CPU);
}

HN_WAKE_FN hn_u32 hn_wake_sibling(const struct hn_wake_view *v, const struct hn_wake_up *up,
                                  struct hn_wake_task *wakee, hn_u32 target,
                                  struct hn_wake_choice *c)
{
    hn_u64 counts = hn_wake_sched_idle_counts(v, up);
    hn_u32 prev = HN_WAKE_CUT(up->prev, HN_WAKE_MAX_CPUS);
    hn_u32 here = HN_WAKE_CUT(up->waker_cpu, HN_WAKE_MAX_CPUS);
    hn_u32 far_prev = HN_WAKE_NO_CPU, far_recent = HN_WAKE_NO_CPU;
    hn_u32 core = 0, cpu;

    if (hn_wake_idle(v, counts, target) && hn_wake_fits(v, up, target)) {
        c->reason = HN_WAKE_TARGET_IDLE;
        return target;
    }
    if (prev != target && hn_wake_share_cache(v, prev, target) && hn_wake_idle(v, counts, prev) &&
        hn_wake_fits(v, up, prev)) {
        if (v->version < HN_WAKE_V6_12 || hn_wake_share_resources(v, prev, target)) {
            c->reason = HN_WAKE_PREV_IDLE;
            return prev;
        }
        far_prev = prev;
    }
    if (v->version >= HN_WAKE_V6_12 && (up->flags & HN_WAKE_KTHREAD) && prev == here &&
        v->nr_running[here] <= 1 && hn_wake_fits(v, up, prev)) {
        c->reason = HN_WAKE_STACKED;
        return prev;
    }
    if (v->recent != HN_WAKE_RECENT_NONE) {
        hn_u32 recent = wakee->recent;

        if (v->recent == HN_WAKE_RECENT_WAKEE) {
            wakee->recent = prev;
            c->did |= HN_WAKE_DID_RECENT;
        }
        if (recent < v->nr_cpus && recent != prev && recent != target &&
            hn_wake_share_cache(v, recent, target) && hn_wake_idle(v, counts, recent) &&
            hn_wake_allowed(v, recent) && hn_wake_fits(v, up, recent)) {
            if (v->version < HN_WAKE_V6_12 || hn_wake_share_resources(v, recent, target)) {
                if (v->recent == HN_WAKE_RECENT_WAKER) {
                    wakee->recent = prev;
                    c->did |= HN_WAKE_DID_RECENT;
                }
                c->reason = HN_WAKE_RECENT;
                return recent;
            }
            far_recent = recent;
        }
    }
    if (v->version >= HN_WAKE_V6_12 && (v->has & HN_WAKE_HAS_ASYM) &&
        hn_wake_place(v, target)->asym != HN_WAKE_NO_DOMAIN)
        return hn_wake_by_capacity(v, up, target, c);
    if (hn_wake_place(v, target)->llc == HN_WAKE_NO_DOMAIN) {
        c->reason = HN_WAKE_NO_LLC;
        return target;
    }
    if (v->version == HN_WAKE_V4_5) {
        cpu = hn_wake_by_groups(v, target, c);
    } else if (v->version < HN_WAKE_V6_12) {
        cpu = hn_wake_scan_old(v, up, target, c);
    } else {
        if (v->has & HN_WAKE_HAS_SMT) {
            core = (hn_u32)hn_wake_has_idle_core(v, target);
            if (!core && hn_wake_share_cache(v, prev, target)) {
                const struct hn_wake_domain *llc =
                    hn_wake_domain(v, hn_wake_place(v, target)->llc);

                cpu = hn_wake_idle_of_core(v, llc, counts, prev, prev);
                if (cpu != HN_WAKE_NO_CPU) {
                    c->reason = HN_WAKE_SMT_SIBLING;
                    return cpu;
                }
            }
        }
        cpu = hn_wake_scan(v, up, target, core, c);
    }
    if (cpu != HN_WAKE_NO_CPU)
        return cpu;
    if (far_prev != HN_WAKE_NO_CPU) {
        c->reason = HN_WAKE_PREV_OTHER_CLUSTER;
        return far_prev;
    }
    if (far_recent != HN_WAKE_NO_CPU) {
        c->reason = HN_WAKE_RECENT_OTHER_CLUSTER;
        return far_recent;
    }
    c->reason = HN_WAKE_NOTHING_IDLE;
    return target;
}

/* ---- the whole choice: specs/wake.md#entry ---- */

/* The waker notes whom it wakes. */
HN_WAKE_FN void hn_wake_record(const struct hn_wake_view *v, const struct hn_wake_up *up,
                               struct hn_wake_task *waker, struct hn_wake_choice *c)
{
    if ((hn_s64)(waker->decay_jiffies + v->hz - up->jiffies) < 0) {
        waker->flips >>= 1;
        waker->decay_jiffies = up->jiffies;
        c->did |= HN_WAKE_DID_FLIPS;
    }
    if (waker->last_wakee != up->wakee) {
        waker->last_wakee = up->wakee;
        waker->flips++;
        c->did |= HN_WAKE_DID_FLIPS;
    }
}

/* Many partners on both sides: to pull each of them here would help nobody. */
HN_WAKE_FN int hn_wake_wide(const struct hn_wake_view *v, hn_u32 a, hn_u32 b, hn_u32 here)
{
    hn_u32 llc = hn_wake_place(v, here)->llc;
    hn_u32 size = llc == HN_WAKE_NO_DOMAIN ? 1 : hn_wake_domain(v, llc)->weight;
    hn_u32 most = a > b ? a : b, least = a > b ? b : a;

    /* The product is one of 32 bits, as in the kernel. */
    return least >= size && most >= (hn_u32)(least * size);
}

/* 4.15, 4.16: the smaller of two unequal CPUs is too small for the task. */
HN_WAKE_FN int hn_wake_too_small(const struct hn_wake_view *v, const struct hn_wake_up *up)
{
    hn_u32 a = v->capacity_orig[HN_WAKE_CUT(up->prev, HN_WAKE_MAX_CPUS)];
    hn_u32 b = v->capacity_orig[HN_WAKE_CUT(up->waker_cpu, HN_WAKE_MAX_CPUS)];
    hn_u64 least = a < b ? a : b;
    hn_u64 most = v->capacity_orig_max;

    /* The largest may just have shrunk. */
    if (least + (most >> 3) > most)
        return 0;
    return least * 1024 < up->wakee_util * 1280;
}

HN_WAKE_FN hn_u32 hn_wake_fair(const struct hn_wake_view *v, const struct hn_wake_up *up,
                               struct hn_wake_task *waker, struct hn_wake_task *wakee,
                               struct hn_wake_choice *c)
{
    hn_u32 here = HN_WAKE_CUT(up->waker_cpu, HN_WAKE_MAX_CPUS);
    hn_u32 target = HN_WAKE_CUT(up->prev, HN_WAKE_MAX_CPUS);
    const struct hn_wake_place *place = hn_wake_place(v, here);
    hn_u32 affine, i, cpu;

    hn_wake_record(v, up, waker, c);
    if (v->version >= HN_WAKE_V6_12 && (up->flags & HN_WAKE_CURRENT_CPU) &&
        hn_wake_allowed(v, here)) {
        c->reason = HN_WAKE_CURRENT;
        return here;
    }
    affine = 1;
    if (hn_wake_wide(v, waker->flips, wakee->flips, here)) {
        c->did |= HN_WAKE_DID_WIDE;
        affine = 0;
    }
    if (!hn_wake_allowed(v, here) || (v->version < HN_WAKE_V6_12 && v->version > HN_WAKE_V4_5 &&
                                      hn_wake_too_small(v, up)))
        affine = 0;

    HN_WAKE_FOR(i, HN_WAKE_MAX_LEVELS) {
        const struct hn_wake_domain *d;

        if (i >= place->nr_levels)
            break;
        d = hn_wake_domain(v, place->level[i]);
        if (affine && (d->flags & HN_WAKE_AFFINE) && hn_wake_spans(v, d, target)) {
            c->level = HN_WAKE_NO_LEVEL;
            c->reason = 0;
            if (here != target) {
                c->level = (hn_u8)i;
                if (hn_wake_affine(v, up, d->imbalance_pct)) {
                    c->did |= HN_WAKE_DID_AFFINE;
                    target = here;
                }
            }
            break;
        }
        if (d->flags & HN_WAKE_BALANCE_WAKE) {
            c->level = (hn_u8)i;
            c->reason = HN_WAKE_SLOW_PATH;
        } else if (!affine) {
            break;
        }
    }
    c->target = target;
    if (c->reason == HN_WAKE_SLOW_PATH)
        return target;
    cpu = hn_wake_sibling(v, up, wakee, target, c);
    if (v->recent == HN_WAKE_RECENT_WAKER && affine) {
        waker->recent = here;
        c->did |= HN_WAKE_DID_WAKER_RECENT;
    }
    return cpu;
}

/* The choice doesn't hold: a CPU of the node that the task was on, else any, else any that
 * runs, whatever the task allows. Source: specs/wake.md#fall-back. */
HN_WAKE_FAR void hn_wake_fall_back(const struct hn_wake_view *v, const struct hn_wake_up *up,
                                   struct hn_wake_choice *c)
{
    hn_u32 node = hn_wake_place(v, up->task_cpu)->node;

    c->cpu = HN_WAKE_NO_CPU;
    if (node != HN_WAKE_NO_DOMAIN) {
        c->reason = HN_WAKE_FALLBACK_NODE;
        c->cpu = hn_wake_first(v, node, HN_WAKE_WANT_ACTIVE, 0);
    }
    if (c->cpu == HN_WAKE_NO_CPU) {
        c->reason = HN_WAKE_FALLBACK;
        c->cpu = hn_wake_first(v, v->all, HN_WAKE_WANT_ACTIVE, 0);
    }
    if (c->cpu == HN_WAKE_NO_CPU) {
        c->reason = HN_WAKE_AFFINITY_BROKEN;
        c->cpu = hn_wake_first(v, v->all, HN_WAKE_WANT_ACTIVE, 1);
    }
    if (c->cpu == HN_WAKE_NO_CPU)
        c->reason = HN_WAKE_BAD_INPUT;
}

/* Chooses a CPU for a wakee. Both tasks and has_idle_core are brought up to date. */
HN_WAKE_FN void hn_wake_choose(const struct hn_wake_view *v, const struct hn_wake_up *up,
                               struct hn_wake_task *waker, struct hn_wake_task *wakee,
                               struct hn_wake_choice *c)
{
    c->cpu = HN_WAKE_NO_CPU;
    c->target = HN_WAKE_NO_CPU;
    c->scanned = 0;
    c->reason = HN_WAKE_BAD_INPUT;
    c->level = HN_WAKE_NO_LEVEL;
    c->did = 0;
    c->_pad = 0;
    if (up->waker_cpu >= v->nr_cpus || up->prev >= v->nr_cpus || up->task_cpu >= v->nr_cpus)
        return;
    c->target = up->prev;
    if (up->nr_allowed > 1) {
        c->reason = 0;
        c->cpu = hn_wake_fair(v, up, waker, wakee, c);
        if (c->reason == HN_WAKE_SLOW_PATH)
            return;
    } else {
        c->reason = HN_WAKE_ONLY_ALLOWED;
        c->cpu = hn_wake_first(v, v->all, HN_WAKE_WANT_ANY, 0);
    }
    if (c->cpu == HN_WAKE_NO_CPU || !hn_wake_allowed(v, c->cpu) ||
        !hn_wake_bit(v->active, c->cpu))
        hn_wake_fall_back(v, up, c);
}

/* How many CPUs of an LLC may be looked at, by how busy they are.
 * Source: specs/wake.md#budget. */
HN_WAKE_FN hn_u32 hn_wake_nr_idle_scan(hn_u64 sum_util, hn_u32 llc_size, hn_u32 imbalance_pct)
{
    hn_u64 mean, busy;

    if (!llc_size)
        return 0;
    mean = sum_util / llc_size;
    busy = mean * mean * imbalance_pct * imbalance_pct / (10000 * 1024);
    if (busy > 1024)
        busy = 1024;
    return (hn_u32)((1024 - busy) * llc_size / 1024);
}

#endif /* HOMENODE_WAKE_H */
