//! How stacks are built: every level of every CPU, rings of groups, then what adds nothing is dropped,
//! and at last what is equal is stored once.
//!
//! Source: specs/sched-balance.md#levels, specs/sched-balance.md#groups.

use std::collections::{BTreeMap, BTreeSet};

use super::span::Interner;
use super::{Cpu, Domain, Domains, Flags, Group, Kind, Layout, NO_LEVEL, Site, SpanId};
use crate::topology::LOCAL_DISTANCE;

/// A level of the topology, bottom up.
struct Level {
    kind: Kind,
    /// What the topology says of it.
    flags: Flags,
    /// Distance of a NUMA level.
    distance: u32,
    /// By CPU: the online CPUs that share it.
    mask: Vec<SpanId>,
}

/// A domain of one CPU before anything is dropped or shared.
struct Built {
    level: usize,
    flags: Flags,
    span: SpanId,
    imb_numa_nr: u32,
    /// Groups, in the order of the ring, and which of them is the CPU's own.
    ring: Vec<usize>,
    own: usize,
}

/// A group before equal ones are stored once.
#[derive(Clone, Copy)]
struct Sketch {
    span: SpanId,
    flags: Flags,
    balance: SpanId,
    /// The level and the CPU that its capacity belongs to.
    capacity: (usize, usize),
}

fn bit(bitmap: &[u64], cpu: usize) -> bool {
    bitmap[cpu / 64] >> (cpu % 64) & 1 != 0
}

fn set(bitmap: &mut [u64], cpu: usize) {
    bitmap[cpu / 64] |= 1 << (cpu % 64);
}

fn is_subset(a: &[u64], b: &[u64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a & !b == 0)
}

/// The first CPU of `span` from `from` on, once round, that is not `covered`.
fn next_uncovered(span: &[u64], covered: &[u64], from: usize) -> Option<usize> {
    let words = span.len();
    let start = from / 64;
    for k in 0..=words {
        let w = (start + k) % words;
        let mut left = span[w] & !covered[w];
        if k == 0 {
            left &= u64::MAX << (from % 64);
        } else if k == words {
            left &= !(u64::MAX << (from % 64));
        }
        if left != 0 {
            return Some(w * 64 + left.trailing_zeros() as usize);
        }
    }
    None
}

struct Builder<'a> {
    layout: &'a Layout,
    words: usize,
    online: Vec<u64>,
    online_cpus: Vec<usize>,
    spans: Interner,
    online_span: SpanId,
    /// By CPU: it alone.
    single: Vec<SpanId>,
}

impl Builder<'_> {
    /// Masks of a level by a key that CPUs share.
    fn by_key<K: Ord>(&mut self, key: impl Fn(&Site) -> K) -> Vec<SpanId> {
        let mut sets: BTreeMap<K, Vec<u64>> = BTreeMap::new();
        for &cpu in &self.online_cpus {
            let of = sets.entry(key(&self.layout.cpus[cpu])).or_insert_with(|| vec![0; self.words]);
            set(of, cpu);
        }
        let ids: BTreeMap<K, SpanId> =
            sets.into_iter().map(|(k, of)| (k, self.spans.intern(&of))).collect();
        let empty = self.spans.intern(&vec![0; self.words]);
        let cpus = self.layout.cpus.iter().enumerate();
        cpus.map(|(cpu, site)| if bit(&self.online, cpu) { ids[&key(site)] } else { empty })
            .collect()
    }

    fn levels(&mut self) -> Vec<Level> {
        let llc = Flags::SHARE_LLC;
        let level = |kind, flags, mask| Level { kind, flags, distance: 0, mask };
        let smt = self.by_key(|s| (s.node, s.core));
        // A core without a cluster is its own.
        let cls = self.by_key(|s| match s.cluster {
            Some(cluster) => (s.node, true, cluster),
            None => (s.node, false, s.core),
        });
        let mc = self.by_key(|s| (s.node, s.llc));
        let mut levels = vec![
            level(Kind::Smt, Flags::SHARE_CPUCAPACITY | llc, smt),
            level(Kind::Cls, Flags::CLUSTER | llc, cls),
            level(Kind::Mc, llc, mc),
        ];
        if !self.layout.numa_in_package() {
            let mask = self.by_key(|s| s.node);
            levels.push(level(Kind::Pkg, Flags::NONE, mask));
        }
        let nodes: BTreeSet<u16> =
            self.online_cpus.iter().map(|&cpu| self.layout.cpus[cpu].node).collect();
        let between = |a: u16, b: u16| self.layout.distances[usize::from(a)][usize::from(b)];
        let mut distances: BTreeSet<u32> = nodes
            .iter()
            .flat_map(|&a| nodes.iter().map(move |&b| (a, b)))
            .map(|(a, b)| between(a, b))
            .collect();
        distances.insert(LOCAL_DISTANCE);
        let mut masks = Vec::new();
        for (i, &distance) in distances.iter().enumerate() {
            let mut of_node = BTreeMap::new();
            for &a in &nodes {
                let mut of = vec![0; self.words];
                for &cpu in &self.online_cpus {
                    if between(a, self.layout.cpus[cpu].node) <= distance {
                        set(&mut of, cpu);
                    }
                }
                of_node.insert(a, of);
            }
            masks.push((i, distance, of_node));
        }
        let empty = self.spans.intern(&vec![0; self.words]);
        for (i, distance, of_node) in masks {
            let ids: BTreeMap<u16, SpanId> =
                of_node.into_iter().map(|(n, of)| (n, self.spans.intern(&of))).collect();
            let cpus = self.layout.cpus.iter().enumerate();
            let mask = cpus
                .map(|(cpu, s)| if bit(&self.online, cpu) { ids[&s.node] } else { empty })
                .collect();
            let (kind, flags) = match i {
                0 => (Kind::Node, Flags::NONE),
                1.. => (Kind::Numa, Flags::NUMA | Flags::OVERLAP),
            };
            levels.push(Level { kind, flags, distance, mask });
        }
        levels
    }

    fn bitmap(&self, span: SpanId) -> Vec<u64> {
        self.spans.spans().get(span).to_bitmap(self.words)
    }

    /// What the capacities of a span's CPUs make of a domain.
    fn asym(&self, span: SpanId, all: &BTreeSet<u32>) -> Flags {
        if all.len() < 2 {
            return Flags::NONE;
        }
        let members = self.spans.spans().members(span);
        let here: BTreeSet<u32> =
            members.iter().map(|&cpu| self.layout.cpus[usize::from(cpu)].capacity).collect();
        match here.len() {
            0 | 1 => Flags::NONE,
            n if n < all.len() => Flags::ASYM_CPUCAPACITY,
            _ => Flags::ASYM_CPUCAPACITY | Flags::ASYM_CPUCAPACITY_FULL,
        }
    }
}

/// The flags of a level's domain but for capacities.
fn flags_of(level: &Level, layout: &Layout) -> Flags {
    let common = Flags::BALANCE_NEWIDLE
        | Flags::BALANCE_EXEC
        | Flags::BALANCE_FORK
        | Flags::WAKE_AFFINE
        | Flags::PREFER_SIBLING
        | level.flags;
    if !level.flags.has(Flags::NUMA) {
        return common;
    }
    let near = common.without(Flags::PREFER_SIBLING) | Flags::SERIALIZE;
    if level.distance <= layout.reclaim_distance {
        return near;
    }
    near.without(Flags::BALANCE_EXEC | Flags::BALANCE_FORK | Flags::WAKE_AFFINE)
}

/// Percent and tries of a domain.
fn tuning(flags: Flags) -> (u32, u32) {
    if flags.has(Flags::SHARE_CPUCAPACITY) {
        (110, 0)
    } else if flags.has(Flags::NUMA) {
        (117, 2)
    } else {
        (117, 1)
    }
}

pub(super) fn build(layout: &Layout, online: &[u64]) -> Domains {
    let nr = layout.cpus.len();
    let words = nr.div_ceil(64).max(1);
    let mut on = vec![0; words];
    let online_cpus: Vec<usize> = Span::all(online).filter(|&cpu| cpu < nr).collect();
    for &cpu in &online_cpus {
        set(&mut on, cpu);
    }
    let mut spans = Interner::default();
    let online_span = spans.intern(&on);
    let alone = |cpu| {
        let mut one = vec![0; words];
        set(&mut one, cpu);
        spans.intern(&one)
    };
    let single = (0..nr).map(alone).collect();
    let mut b = Builder { layout, words, online: on, online_cpus, spans, online_span, single };
    let levels = b.levels();
    let stacks = stacks(&mut b, &levels);
    finish(b, &levels, stacks)
}

/// Bits of a bitmap of any length.
struct Span;
impl Span {
    fn all(bitmap: &[u64]) -> impl Iterator<Item = usize> + '_ {
        super::Span::of(bitmap).iter()
    }
}

/// The stack of each CPU before anything is shared, and all groups.
struct Stacks {
    of: Vec<Vec<Built>>,
    groups: Vec<Sketch>,
}

fn stacks(b: &mut Builder<'_>, levels: &[Level]) -> Stacks {
    let nr = b.layout.cpus.len();
    let all: BTreeSet<u32> = b.online_cpus.iter().map(|&c| b.layout.cpus[c].capacity).collect();
    let mut asym: BTreeMap<SpanId, Flags> = BTreeMap::new();
    let mut of: Vec<Vec<Built>> = (0..nr).map(|_| Vec::new()).collect();
    for &cpu in &b.online_cpus.clone() {
        for (l, level) in levels.iter().enumerate() {
            let mut span = level.mask[cpu];
            if let Some(child) = of[cpu].last() {
                // A level is at least as wide as the one below, whatever the topology says.
                let (inner, outer) = (b.bitmap(child.span), b.bitmap(span));
                if child.span != span && !is_subset(&inner, &outer) {
                    let both: Vec<u64> = inner.iter().zip(&outer).map(|(a, b)| a | b).collect();
                    span = b.spans.intern(&both);
                }
            }
            let capacities = *asym.entry(span).or_insert_with(|| b.asym(span, &all));
            let flags = flags_of(level, b.layout) | capacities;
            if let Some(child) = of[cpu].last_mut().filter(|_| flags.has(Flags::ASYM_CPUCAPACITY)) {
                // Tasks are not spread over CPUs of different capacities.
                child.flags = child.flags.without(Flags::PREFER_SIBLING);
            }
            of[cpu].push(Built { level: l, flags, span, imb_numa_nr: 0, ring: Vec::new(), own: 0 });
            if span == b.online_span {
                break;
            }
        }
    }
    let mut stacks = Stacks { of, groups: Vec::new() };
    plain_rings(b, levels, &mut stacks);
    overlapping_rings(b, levels, &mut stacks);
    for cpu in 0..nr {
        imbalances(b, &mut stacks.of[cpu]);
        degenerate(b, cpu, &mut stacks);
    }
    stacks
}

/// Rings of levels whose groups don't overlap. The CPUs of a span share one; the order is that
/// in which the highest-numbered of them finds the groups, since each CPU that is set up links anew.
fn plain_rings(b: &Builder<'_>, levels: &[Level], stacks: &mut Stacks) {
    let nr = b.layout.cpus.len();
    for (l, _) in levels.iter().enumerate().filter(|(_, l)| !l.flags.has(Flags::OVERLAP)) {
        let mut rings: BTreeMap<SpanId, Vec<usize>> = BTreeMap::new();
        let mut group_of = vec![usize::MAX; nr];
        for &cpu in b.online_cpus.iter().rev() {
            let Some(built) = stacks.of[cpu].get(l) else { continue };
            let span = built.span;
            if rings.contains_key(&span) {
                continue;
            }
            let members = b.bitmap(span);
            let mut covered = vec![0; b.words];
            let mut ring = Vec::new();
            while let Some(i) = next_uncovered(&members, &covered, cpu) {
                let (inner, flags) = match l.checked_sub(1) {
                    Some(below) => (stacks.of[i][below].span, stacks.of[i][below].flags),
                    None => (b.single[i], Flags::NONE),
                };
                let group = stacks.groups.len();
                let cpus = b.spans.spans().members(inner);
                for &member in cpus {
                    set(&mut covered, usize::from(member));
                    group_of[usize::from(member)] = group;
                }
                ring.push(group);
                let capacity = (l, usize::from(cpus[0]));
                stacks.groups.push(Sketch { span: inner, flags, balance: inner, capacity });
            }
            rings.insert(span, ring);
        }
        for &cpu in &b.online_cpus {
            let Some(built) = stacks.of[cpu].get_mut(l) else { continue };
            built.ring.clone_from(&rings[&built.span]);
            built.own = built.ring.iter().position(|&g| g == group_of[cpu]).unwrap_or(0);
        }
    }
}

/// Rings of levels whose groups may overlap: each CPU has its own, of just enough groups to cover
/// the span.
fn overlapping_rings(b: &mut Builder<'_>, levels: &[Level], stacks: &mut Stacks) {
    // By level and span of a group: which CPUs arrive at it.
    let mut masks: BTreeMap<(usize, SpanId), SpanId> = BTreeMap::new();
    for cpu in b.online_cpus.clone() {
        let overlapping = |&l: &usize| levels[l].flags.has(Flags::OVERLAP);
        for l in (0..stacks.of[cpu].len()).filter(overlapping) {
            let span = b.bitmap(stacks.of[cpu][l].span);
            let mut covered = vec![0; b.words];
            let mut ring = Vec::new();
            while let Some(i) = next_uncovered(&span, &covered, cpu) {
                if stacks.of[i].len() <= l {
                    // Its stack ended below, where one level spanned all.
                    set(&mut covered, i);
                    continue;
                }
                let at = descend(b, &stacks.of[i], l, &span);
                let (inner, flags) = match at.checked_sub(1) {
                    Some(below) => (stacks.of[i][below].span, stacks.of[i][below].flags),
                    None => (stacks.of[i][at].span, Flags::NONE),
                };
                for &member in b.spans.spans().members(inner) {
                    set(&mut covered, usize::from(member));
                }
                let balance = match masks.get(&(at, inner)) {
                    Some(&mask) => mask,
                    None => {
                        let mask = arriving(b, stacks, at, inner);
                        masks.insert((at, inner), mask);
                        mask
                    }
                };
                let first = usize::from(b.spans.spans().members(balance)[0]);
                ring.push(stacks.groups.len());
                stacks.groups.push(Sketch { span: inner, flags, balance, capacity: (at, first) });
            }
            (stacks.of[cpu][l].ring, stacks.of[cpu][l].own) = (ring, 0);
        }
    }
}

/// The level of a CPU's stack whose child makes a group within `span`: `level` itself, unless its
/// child reaches beyond.
fn descend(b: &Builder<'_>, stack: &[Built], level: usize, span: &[u64]) -> usize {
    let within = |l: usize| is_subset(&b.bitmap(stack[l].span), span);
    let mut at = level;
    if at == 0 || within(at - 1) {
        return at;
    }
    while at > 0 && !within(at - 1) {
        at -= 1;
    }
    // Levels as wide as the one below will vanish.
    while at > 0 && stack[at - 1].span == stack[at].span {
        at -= 1;
    }
    at
}

/// The CPUs of a group whose own child at that level is the group.
fn arriving(b: &mut Builder<'_>, stacks: &Stacks, at: usize, group: SpanId) -> SpanId {
    let mut mask = vec![0; b.words];
    for &cpu in b.spans.spans().members(group) {
        let stack = &stacks.of[usize::from(cpu)];
        if at > 0 && stack.len() > at && stack[at - 1].span == group {
            set(&mut mask, usize::from(cpu));
        }
    }
    // Where nobody arrives, the kernel warns; all may balance then.
    if mask.iter().all(|&w| w == 0) { group } else { b.spans.intern(&mask) }
}

/// How many tasks one node may have more than another.
///
/// Source: specs/sched-balance.md#imb-numa-nr.
fn imbalances(b: &Builder<'_>, stack: &mut [Built]) {
    let weight = |d: &Built| b.spans.spans().weight(d.span);
    let (mut allowed, mut first_span) = (0, 1);
    for l in 0..stack.len() {
        let shares = stack[l].flags.has(Flags::SHARE_LLC);
        let nr = weight(&stack[l]);
        if l > 0 && !shares && stack[l - 1].flags.has(Flags::SHARE_LLC) {
            let llcs = nr / weight(&stack[l - 1]);
            allowed = if llcs == 1 { nr >> 3 } else { llcs }.max(1);
            stack[l].imb_numa_nr = allowed;
            let numa = stack[l + 1..].iter().find(|d| d.flags.has(Flags::NUMA));
            first_span = numa.map_or(nr, weight);
        } else {
            stack[l].imb_numa_nr = allowed * (nr / first_span).max(1);
        }
    }
}

/// Whether a domain does nothing.
fn useless(b: &Builder<'_>, d: &Built) -> bool {
    let several = d.ring.len() > 1 && d.flags.has(Flags::NEED_GROUPS);
    b.spans.spans().weight(d.span) == 1 || !several && !d.flags.has(Flags::WAKE_AFFINE)
}

/// Whether a domain adds nothing to the one below.
fn adds_nothing(b: &Builder<'_>, child: &Built, parent: &Built) -> bool {
    if useless(b, parent) {
        return true;
    }
    let flags =
        if parent.ring.len() > 1 { parent.flags } else { parent.flags & Flags::WAKE_AFFINE };
    child.span == parent.span && flags.without(child.flags) == Flags::NONE
}

/// Drops what does nothing. A dropped level passes its preference for spreading down.
///
/// Source: specs/sched-balance.md#degenerate.
fn degenerate(b: &Builder<'_>, cpu: usize, stacks: &mut Stacks) {
    let (stack, groups) = (&mut stacks.of[cpu], &mut stacks.groups);
    let mut at = 0;
    while at + 1 < stack.len() {
        if !adds_nothing(b, &stack[at], &stack[at + 1]) {
            at += 1;
            continue;
        }
        let parent = stack.remove(at + 1);
        if let Some(above) = stack.get(at + 1) {
            groups[above.ring[above.own]].flags = stack[at].flags;
        }
        let passed = parent.flags & Flags::PREFER_SIBLING;
        stack[at].flags = stack[at].flags | passed;
    }
    if stack.first().is_some_and(|lowest| useless(b, lowest)) {
        stack.remove(0);
        if let Some(above) = stack.first() {
            groups[above.ring[above.own]].flags = Flags::NONE;
        }
    }
}

/// Stores what is equal once.
fn finish(b: Builder<'_>, levels: &[Level], stacks: Stacks) -> Domains {
    let nr = b.layout.cpus.len();
    let spans = b.spans.spans();
    let smt = &levels[0].mask;
    let mut capacities: BTreeMap<(usize, usize), u32> = BTreeMap::new();
    let mut known_groups: BTreeMap<Group, u32> = BTreeMap::new();
    let mut known_domains: BTreeMap<(usize, Flags, SpanId, u32, Vec<u32>), u32> = BTreeMap::new();
    let mut known_llcs: BTreeMap<SpanId, u32> = BTreeMap::new();
    let (mut groups, mut domains, mut rings, mut llcs) = (vec![], vec![], vec![], vec![]);
    let (mut of_slot, mut base, mut cpus) = (vec![], vec![0], vec![]);
    let mut cores_of: BTreeMap<SpanId, u32> = BTreeMap::new();
    // A group stands in the rings of many CPUs, and is looked for once.
    let mut number_of: Vec<Option<u32>> = vec![None; stacks.groups.len()];
    for cpu in 0..nr {
        let stack = &stacks.of[cpu];
        for d in stack {
            let mut ring = Vec::with_capacity(d.ring.len());
            for &g in &d.ring {
                if let Some(known) = number_of[g] {
                    ring.push(known);
                    continue;
                }
                let sketch = stacks.groups[g];
                let next = capacities.len() as u32;
                let capacity = *capacities.entry(sketch.capacity).or_insert(next);
                let members = spans.members(sketch.span);
                let cores = *cores_of.entry(sketch.span).or_insert_with(|| {
                    let cores: BTreeSet<SpanId> =
                        members.iter().map(|&m| smt[usize::from(m)]).collect();
                    cores.len() as u32
                });
                let group = Group {
                    weight: members.len() as u32,
                    cores,
                    flags: sketch.flags,
                    capacity,
                    span: sketch.span,
                    balance: sketch.balance,
                    members: spans.place(sketch.span),
                };
                let number = *known_groups.entry(group).or_insert_with_key(|group| {
                    groups.push(group.clone());
                    groups.len() as u32 - 1
                });
                number_of[g] = Some(number);
                ring.push(number);
            }
            let key = (d.level, d.flags, d.span, d.imb_numa_nr, ring);
            let id =
                *known_domains.entry(key).or_insert_with_key(|(level, flags, span, imb, ring)| {
                    let (imbalance_pct, cache_nice_tries) = tuning(*flags);
                    domains.push(Domain {
                        kind: levels[*level].kind,
                        level: *level as u8,
                        flags: *flags,
                        weight: spans.weight(*span),
                        imbalance_pct,
                        cache_nice_tries,
                        imb_numa_nr: *imb,
                        span: *span,
                        ring: (rings.len() as u32, ring.len() as u32),
                    });
                    rings.extend_from_slice(ring);
                    domains.len() as u32 - 1
                });
            of_slot.push((id, d.own as u32));
        }
        base.push(of_slot.len() as u32);
        let has = |flag| move |d: &&Built| d.flags.has(flag);
        let lowest =
            |flag| stack.iter().position(|d| d.flags.has(flag)).map_or(NO_LEVEL, |l| l as u8);
        let shares = stack.iter().take_while(has(Flags::SHARE_LLC)).count();
        let mut llc = 0;
        let mut share_id = cpu as u16;
        if let Some(top) = shares.checked_sub(1).map(|l| &stack[l]) {
            llc = *known_llcs.entry(top.span).or_insert_with(|| {
                llcs.push(top.span);
                llcs.len() as u32 - 1
            });
            let near = stack.iter().find(has(Flags::CLUSTER)).unwrap_or(top);
            share_id = spans.members(near.span)[0];
        }
        let site = &b.layout.cpus[cpu];
        cpus.push(Cpu {
            siblings: if bit(&b.online, cpu) { smt[cpu] } else { b.single[cpu] },
            node: site.node,
            original: site.capacity,
            share_id,
            llc,
            llc_level: shares.checked_sub(1).map_or(NO_LEVEL, |l| l as u8),
            numa_level: lowest(Flags::NUMA),
            asym_level: lowest(Flags::ASYM_CPUCAPACITY_FULL),
        });
    }
    let smt_active = b.online_cpus.iter().any(|&cpu| spans.weight(smt[cpu]) > 1);
    let asym = domains.iter().any(|d| d.flags.has(Flags::ASYM_CPUCAPACITY));
    groups.shrink_to_fit();
    domains.shrink_to_fit();
    rings.shrink_to_fit();
    of_slot.shrink_to_fit();
    Domains {
        nr_online: b.online_cpus.len() as u32,
        smt_active,
        asym,
        online: b.online_span,
        domains,
        groups,
        rings,
        stacks: of_slot,
        base,
        cpus,
        nr_capacities: capacities.len() as u32,
        llcs,
        spans: b.spans.finish(),
    }
}
