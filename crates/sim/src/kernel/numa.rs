//! NUMA balancing in the simulated kernel: ticks, scans, hint faults.

use super::migrate::Entries;
use super::{Cost, Ctx, Fatal, Kernel};
use crate::memory::{BLOCK, FRAME_ITEM, Memory};
use crate::page::{PRESENT, PROTNONE, SHARED, STATE, State, WRITE, Word};
use crate::ring::FaultSeen;
use crate::vmstat::Item;
use homenode_core::hooks::{Arrival, PageAt, SlowFault};
use homenode_core::kernel::KernelVersion;
use homenode_core::numa::faults::{
    AccountedFault, CpuPid, FaultFlags, GroupFaults, Join, JoinFacts, Runtime, TaskFaults,
    is_accounted, join_rule,
};
use homenode_core::numa::filter::{
    HintFault, TargetPolicy, TaskView, Verdict, filter_version, isolate, moves_read_only,
    page_filter,
};
use homenode_core::numa::homing::{Homing, Restart, moves_restart, tasks_follow};
use homenode_core::numa::period::{Limits, Since, adapt, restarts_after_move};
use homenode_core::numa::scan::{
    Birth, MmScan, TaskScan, TickOutcome, WorkFacts, WorkStart, accounted_between, begin_work,
    charge_scan, fork, seed_back_off, tick,
};
use homenode_core::numa::window::{
    PteFacts, PteVerdict, RangeFacts, ScanStep, ScanWork, Scanner, pmd_eligible, pte_eligible,
    uses_access_time,
};
use homenode_core::scenario::{Balancing, Mempolicy};
use homenode_core::tiering::promote::{AccessTime, PromoteKnobs, counts_as_promotion};
use homenode_core::tiering::watermarks::{self, Admission, WakeFacts, ZoneMarks};
use homenode_core::units::{HUGE_PAGES, Pages};

/// What balancing keeps of a task.
#[derive(Clone, Debug)]
pub(crate) struct TaskNuma {
    pub(crate) pid: u32,
    pub(crate) space: usize,
    /// Place of its CPU's node.
    pub(crate) node: usize,
    pub(crate) policy: Mempolicy,
    /// Turns of the task's own policy.
    pub(crate) turn: u64,
    pub(crate) scan: TaskScan,
    pub(crate) faults: TaskFaults,
    /// The group's key in [`Kernel::groups`].
    pub(crate) group: Option<u32>,
    /// Processor time in ns, as of its last turn.
    pub(crate) ran_ns: u64,
    /// Processor time and wall time at the last placement.
    last_placed: Option<(u64, u64)>,
}

impl TaskNuma {
    /// It has a preferred node and runs on another one.
    pub(crate) fn is_away(&self, of: &Memory) -> bool {
        self.faults.preferred.is_some_and(|home| home != of.node_id(self.node))
    }
}

impl TaskNuma {
    pub(crate) fn new(pid: u32, space: usize, node: usize) -> Self {
        Self {
            pid,
            space,
            node,
            policy: Mempolicy::Default,
            turn: 0,
            scan: TaskScan::default(),
            faults: TaskFaults::default(),
            group: None,
            ran_ns: 0,
            last_placed: None,
        }
    }
}

impl Kernel {
    // ── Birth and death ────────────────────────────────────────────────────────

    /// A task of a new process: `of` is the process's first task if this is a
    /// further thread, the `users`-th of the space. The first comes by fork and
    /// exec of a launcher with a space of its own.
    pub(crate) fn numa_born(&mut self, id: usize, of: Option<usize>, users: u32, now: u64) {
        let Some(first) = of else {
            // exec gives a new space; today its gate is unset (specs/numa.md#fork).
            let (launcher, parent) = (&mut MmScan::new(), &TaskScan::default());
            let (slow, delay) = (self.model.slow_start, self.knobs.scan_delay_ms);
            let jiffies = Self::jiffies(now);
            self.numa[id].scan = fork(Birth::Fork, parent, launcher, 1, 0, slow, delay, jiffies);
            let space = self.numa[id].space;
            self.space_mut(space).scan = MmScan::at_exec(slow, jiffies);
            return;
        };
        let users = users.saturating_sub(1).max(1);
        self.numa[id].scan = self.forked(Birth::SharedMm, first, users, now);
    }
    /// The child's state, from the parent's space as it is before the copy.
    pub(crate) fn numa_fork(&mut self, parent: usize, now: u64) -> TaskScan {
        let users = self.space(self.numa[parent].space).users;
        self.forked(Birth::Fork, parent, users, now)
    }
    fn forked(&mut self, birth: Birth, parent: usize, users: u32, now: u64) -> TaskScan {
        let max_ms = self.limits(parent).max_ms;
        let (slow, delay) = (self.model.slow_start, self.knobs.scan_delay_ms);
        let TaskNuma { scan, space, .. } = self.numa[parent];
        let mm = &mut self.space_mut(space).scan;
        fork(birth, &scan, mm, users, max_ms, slow, delay, Self::jiffies(now))
    }
    /// A thread joins a space that runs already.
    pub(crate) fn numa_thread(&mut self, id: usize, of: usize, now: u64) {
        // The rule wants those that were there before; the new one is counted later.
        let users = self.space(self.numa[of].space).users + 1;
        self.numa_born(id, Some(of), users, now);
    }
    /// Another program in the same task: specs/numa.md#fork.
    pub(crate) fn numa_exec(&mut self, id: usize) {
        self.leave_group(id);
        self.numa[id].faults.exec();
    }
    pub(crate) fn leave_group(&mut self, id: usize) {
        let Some(key) = self.numa[id].group.take() else { return };
        let g = self.groups.get_mut(&key).expect("a group lives while it has members");
        g.remove(&self.numa[id].faults);
        if g.refs == 0 {
            self.groups.remove(&key);
        }
    }

    // ── Ticks and scans ────────────────────────────────────────────────────────

    fn limits(&self, id: usize) -> Limits {
        let n = &self.numa[id];
        let rss = self.spaces[n.space].as_ref().map_or(0, |s| s.rss);
        let group = n.group.and_then(|g| self.groups.get(&g)).map(GroupFaults::scale);
        Limits::new(&self.knobs, Pages(rss), group)
    }
    /// The tick of a running task: specs/numa.md#slow-start-seed, specs/numa.md#slow-start-today.
    pub(crate) fn numa_tick(&mut self, ctx: &mut Ctx, id: usize) {
        self.ask_hooks(ctx);
        if !self.knobs.numa_balancing.enabled() {
            return;
        }
        let now = Self::jiffies(ctx.clock);
        let start = self.limits(id).start_ms;
        let n = &mut self.numa[id];
        let mm = &self.spaces[n.space].as_ref().expect("a task's space lives").scan;
        if tick(&mut n.scan, mm, self.model.slow_start, now, n.ran_ns, || start)
            == TickOutcome::QueueWork
        {
            // The work runs when the task returns to user mode: at once.
            self.scan_work(ctx, id);
        }
    }
    /// One scan: specs/numa.md#scan-work.
    fn scan_work(&mut self, ctx: &mut Ctx, id: usize) {
        let now = Self::jiffies(ctx.clock);
        let start = self.limits(id).start_ms;
        let cpu_node = self.memory.node_id(ctx.node);
        let facts =
            WorkFacts { now_jiffies: now, cpu_node, exiting: false, single_allowed_node: false };
        let n = &mut self.numa[id];
        let space = n.space;
        let mm = &mut self.spaces[space].as_mut().expect("a task's space lives").scan;
        let early = self.model.balancing == Balancing::Seed;
        // Before there was a test for a second node, all passed it.
        mm.seen_other_node |= early;
        if begin_work(&mut n.scan, mm, facts, &self.knobs, || start) != WorkStart::Scan {
            return;
        }
        if !early && self.seed_limit[ctx.node].is_over(now, self.knobs.version) {
            return;
        }
        let began = ctx.clock;
        let s = self.spaces[space].as_ref().expect("a task's space lives");
        let who = Scanner { pid: self.numa[id].pid, nr_threads: s.users, now_jiffies: now };
        let mut work = ScanWork::new(&self.knobs, who);
        loop {
            let s = self.spaces[space].as_mut().expect("a task's space lives");
            match work.next(&mut s.scan, &mut s.vmas) {
                ScanStep::Skip { .. } => {}
                ScanStep::Done => break,
                ScanStep::Scan { vma, start_vpn, end_vpn } => {
                    let updates = self.mark_range(ctx, space, vma, start_vpn, end_vpn);
                    // Source: specs/remote-flush.md#marking.
                    if updates > 0 {
                        self.flushes.of(space);
                    }
                    let s = self.spaces[space].as_mut().expect("a task's space lives");
                    work.scanned(&mut s.scan, &mut s.vmas, updates);
                }
            }
        }
        self.space_mut(space).read_until = ctx.clock;
        let accounted = accounted_between(began / 1000, ctx.clock / 1000);
        charge_scan(&mut self.numa[id].scan, accounted, self.knobs.version);
    }
    /// Makes the eligible entries of a range inaccessible; how many (a huge one
    /// counts all its pages).
    fn mark_range(&mut self, ctx: &mut Ctx, space: usize, vma: usize, start: u64, end: u64) -> u64 {
        let s = self.spaces[space].as_ref().expect("a task's space lives");
        let v = &s.vmas[vma];
        let (file, cow, single) = (v.kind.file, !v.kind.shared, s.users == 1);
        let mode = self.knobs.numa_balancing;
        let range = RangeFacts {
            version: self.knobs.version,
            mode,
            cow,
            skip_node: (cow && single).then(|| self.memory.node_id(ctx.node)),
        };
        let now = AccessTime::new(Self::ms(ctx.clock)).bits();
        // What the rule says depends on the zone only, for private 4 KiB pages that
        // are present: asked once per zone, not once per entry.
        let mut by_zone = [PteVerdict::Mark { stamp_time: false }; crate::page::ZONES_MAX];
        for (z, zone) in self.memory.zones.iter().enumerate() {
            by_zone[z] = pte_eligible(&self.pte(zone.node, false, 1), &range);
        }
        let (mut small, mut huge) = (0, 0);
        let mut looked = 0;
        let mut vpn = start;
        while vpn < end {
            let stop = ((vpn / HUGE_PAGES + 1) * HUGE_PAGES).min(end);
            let first = self.space(space).place(vpn, file);
            let n = (stop - vpn) as u32;
            vpn = stop;
            let Some(first) = first else { continue };
            if self.memory.blocks[(first / BLOCK) as usize].huge {
                looked += 1;
                let head = first & !(BLOCK - 1);
                let w = self.memory.word(head);
                let mut facts = self.pte(self.memory.node_of(w.zone()), false, 1);
                facts.protnone = w.state() == State::ProtNone;
                if let PteVerdict::Mark { stamp_time } = pmd_eligible(&facts, false, &range) {
                    huge += 1;
                    let at = head as usize..(head + BLOCK) as usize;
                    for w in &mut self.memory.words[at] {
                        *w = *w & !STATE | PROTNONE;
                    }
                    if stamp_time {
                        self.memory.set_word(head, self.memory.word(head).with_stamp(now));
                    }
                }
                continue;
            }
            looked += u64::from(n);
            for page in first as usize..(first + n) as usize {
                let w = self.memory.words[page];
                if w & STATE != PRESENT || self.memory.is_zero_page(Word(w)) {
                    continue;
                }
                let verdict = if file && w & WRITE != 0 {
                    let item = self.memory.item_of(page as u32);
                    let node = self.memory.node_of(self.memory.word(item).zone());
                    let mappers = self.memory.nr_mappers(item);
                    let facts =
                        PteFacts { dirty_file: true, ..self.pte(node, mappers > 1, mappers) };
                    pte_eligible(&facts, &range)
                } else if w & SHARED == 0 {
                    by_zone[Word(w).zone()]
                } else {
                    let frame = Word(w).frame();
                    let zone = self.memory.word(frame | FRAME_ITEM).zone();
                    let mappers = self.memory.mappers(frame).len() as u32;
                    // A merged page has no task that it belongs to: the scan passes it
                    // over, in all versions. Source: specs/numa.md#pte.
                    let ksm = self.memory.is_merged(frame);
                    let facts = self.pte(self.memory.node_of(zone), true, mappers);
                    pte_eligible(&PteFacts { ksm, ..facts }, &range)
                };
                if let PteVerdict::Mark { stamp_time } = verdict {
                    small += 1;
                    let marked = Word(w).with_state(PROTNONE);
                    if !stamp_time {
                        self.memory.words[page] = marked.0;
                    } else if w & SHARED == 0 {
                        self.memory.words[page] = marked.with_stamp(now).0;
                    } else {
                        self.memory.words[page] = marked.0;
                        let item = Word(w).frame() | FRAME_ITEM;
                        self.memory.set_word(item, self.memory.word(item).with_stamp(now));
                    }
                }
            }
        }
        // Who changes entries can't know whether a batch that was unmapped has been flushed.
        if looked > 0
            && self.knobs.version >= KernelVersion::V4_15
            && std::mem::take(&mut self.space_mut(space).unmapped_in_batch)
        {
            self.flushes.of(space);
        }
        ctx.clock +=
            looked * self.prices[Cost::PteScan] + (small + huge) * self.prices[Cost::PteMark];
        let updates = small + huge * HUGE_PAGES;
        self.count(ctx, Item::NumaPteUpdates, updates);
        self.count(ctx, Item::NumaHugePteUpdates, huge);
        updates
    }
    /// An entry as the scan's rule sees it.
    fn pte(&self, node: usize, shared_entry: bool, mappers: u32) -> PteFacts {
        PteFacts {
            present: true,
            protnone: false,
            zone_device: false,
            ksm: false,
            mapped_shared: shared_entry && mappers > 1,
            pinned: false,
            refcount: mappers,
            dirty_file: false,
            node: self.memory.node_id(node),
            top_tier: self.top[node],
        }
    }

    // ── Hint faults ────────────────────────────────────────────────────────────

    pub(super) fn wake_facts(&self, node: usize) -> WakeFacts {
        WakeFacts {
            tiering: self.knobs.numa_balancing.tiering(),
            can_demote: self.knobs.demotion_enabled && !self.demote_any[node].is_empty(),
        }
    }

    /// An access to an entry that the scan has made inaccessible: specs/numa.md#hint-fault.
    pub(super) fn hint_fault(&mut self, ctx: &mut Ctx, page: u32) -> Result<(), Fatal> {
        let at = self.place(page)?;
        ctx.clock += self.prices[Cost::HintFault];
        self.count(ctx, Item::Pgfault, 1);
        let now = Self::jiffies(ctx.clock);
        let now_ms = Self::ms(ctx.clock);
        let version = self.knobs.version;
        let mode = self.knobs.numa_balancing;
        let item = self.memory.item_of(page);
        let n = self.memory.pages_of(item);
        let w = self.memory.word(item);
        let (src, dst) = (self.memory.node_of(w.zone()), ctx.node);
        let (src_id, dst_id) = (self.memory.node_id(src), self.memory.node_id(dst));
        let pid = self.numa[ctx.task].pid;

        let (writable, shared_vma, file, executable, policy) = {
            let v = &mut self.spaces[at.space].as_mut().expect("placed").vmas[at.vma];
            if let Some(scan) = &mut v.scan {
                scan.note_fault(pid);
            }
            let policy = match &v.kind.policy {
                Mempolicy::Default => &self.numa[ctx.task].policy,
                own => own,
            };
            let policy = match policy {
                // Without the balancing flag it is not scanned; what was marked before it
                // was set is outside of it unless it is there already.
                Mempolicy::Bind { nodes, .. } => {
                    TargetPolicy::Mask { cpu_node_in_mask: nodes.contains(&dst_id) }
                }
                _ => TargetPolicy::Default,
            };
            (v.kind.writable, v.kind.shared, v.kind.file, v.kind.executable, policy)
        };
        let mappers = self.memory.nr_mappers(item);
        self.count(ctx, Item::NumaHintFaults, 1);
        let mut flags = 0;
        if src == dst {
            flags |= FaultFlags::LOCAL;
            self.count(ctx, Item::NumaHintFaultsLocal, 1);
        }
        if !writable {
            flags |= FaultFlags::NO_GROUP;
        }
        if shared_vma && mappers > 1 {
            flags |= FaultFlags::SHARED;
        }
        let timed = uses_access_time(mode, self.top[src], version);
        if let Some(probe) = &mut self.probe {
            // What the folio's field says: when the scan was there, on a slow node.
            let known = timed && w.stamp() != crate::page::STAMP_UNSET;
            let after = known.then(|| AccessTime::from_bits(w.stamp()).latency_ms(now_ms));
            ctx.clock += probe.fault(FaultSeen {
                space: at.space,
                vpn: at.vpn,
                from: dst_id,
                on: src_id,
                after_ms: after,
            });
        }
        let this = CpuPid::new(homenode_core::units::CpuId(ctx.cpu), pid);
        let stored = CpuPid::from_bits(w.stamp());
        let last = if timed { CpuPid::UNSET } else { stored };
        let last_place = if last.is_unset() {
            None
        } else {
            self.cpu_node.get(last.cpu().index()).copied().flatten()
        };
        // Before there was a filter, each page went to whoever used it.
        let early = version == KernelVersion::V3_8 && self.model.balancing == Balancing::Seed;
        let fault = HintFault {
            version: filter_version(version, self.model.hot_page_selection),
            mode,
            src: src_id,
            dst: dst_id,
            dst_has_memory: !self.memory.nodes[dst].zones.is_empty(),
            src_top_tier: self.top[src],
            policy,
            last: Some(if early { this } else { last }),
            last_node: if early {
                Some(dst_id)
            } else {
                last_place.map(|p| self.memory.node_id(p))
            },
            this,
        };
        let view = {
            let t = &self.numa[ctx.task];
            TaskView { pid, preferred: t.faults.preferred, seq: Some(t.scan.seq) }
        };
        let plenty = timed && {
            let zones = self.memory.nodes[dst].zones.iter();
            let present = Pages(zones.map(|&z| self.memory.zones[z].managed).sum());
            watermarks::has_plenty(zones_of(&self.memory, &self.marks, dst), present)
        };
        let group = self.numa[ctx.task].group;
        let hot_pages = self.model.hot_page_selection;
        let before = self.promote[dst].nr_candidates;
        let mut slow = SlowFault {
            page: PageAt { space: at.space as u32, vpn: at.vpn },
            nr_pages: Pages(n),
            // Only rules of tiers ask; it is the one thing here that is read from the lists.
            active: timed && self.is_active(item),
            to: dst_id,
            now_ms,
            field: AccessTime::from_bits(w.stamp()),
            plenty,
            knobs: self.promote_knobs(),
            node: &mut self.promote[dst],
        };
        let (rules, mut accessed) = (&mut self.inside.rules, false);
        let group = group.and_then(|g| self.groups.get(&g));
        let verdict = page_filter(&fault, &view, group, || {
            let said = rules.hint_fault(&mut slow);
            accessed = said.accessed;
            said.verdict
        });
        let time = slow.field;
        if accessed && self.memory.mark_accessed(item) {
            self.stat.add(src, Item::Pgactivate, n);
        }
        let candidates = self.promote[dst].nr_candidates - before;
        self.stat.add(dst, Item::PgpromoteCandidate, candidates);
        let why = match verdict {
            Verdict::Move { why, .. } | Verdict::Stay { why } => Some(why),
            Verdict::Unknown { .. } => None,
        };
        let stamp = match why {
            Some(why) if why.recorded_access() => this.bits(),
            _ if timed && hot_pages => time.bits(),
            _ => w.stamp(),
        };
        self.memory.set_word(item, self.memory.word(item).with_stamp(stamp));

        let promotion = mode.tiering() && !self.top[src] && self.top[dst];
        let (mut moved, mut zone) = (false, None);
        if let Verdict::Move { .. } = verdict {
            let dirty = file && self.memory.is_dirty(item);
            let refused = isolate(
                self,
                executable && file && mappers > 1,
                dirty,
                |kernel| {
                    zone = kernel.room_for(dst, n, promotion);
                    zone.is_some()
                },
                |kernel| kernel.memory.listed(item).is_some(),
            )
            .is_err();
            if let Some(zone) = zone.filter(|_| !refused) {
                if self.move_fails() {
                    self.not_moved(dst, n);
                } else {
                    moved = self.move_here(ctx, item, n, zone, promotion, stamp);
                }
            }
            flags |= if moved { FaultFlags::MIGRATED } else { FaultFlags::FAILED };
        }
        if !moved {
            self.make_accessible(page);
        }
        let now_on = if moved { dst } else { src };
        let failed = promotion && flags & FaultFlags::FAILED != 0;
        if is_accounted(mode, true, self.top[now_on], last_place.is_some(), failed, version) {
            let fault = AccountedFault {
                mem_node: self.memory.node_id(now_on),
                cpu_node: dst_id,
                nr_pages: n,
                flags: FaultFlags(flags),
                private: last.is_private_to(pid),
            };
            self.count_fault(ctx, at.space, last, now, fault);
        }
        Ok(())
    }

    /// What promotion goes by; where its threshold doesn't adapt, no interval of that is ever over.
    fn promote_knobs(&self) -> PromoteKnobs {
        let knobs = PromoteKnobs::of(&self.knobs);
        if self.model.adjust_hot_threshold {
            knobs
        } else {
            PromoteKnobs { scan_period_max_ms: u32::MAX, ..knobs }
        }
    }

    /// The zone that a page may enter by the hooks' admission; a refused promotion wakes
    /// demotion.
    fn room_for(&mut self, dst: usize, n: u64, promotion: bool) -> Option<usize> {
        let (margin, wake) = (self.model.margin, self.wake_facts(dst));
        let arrival = Arrival { nr_pages: Pages(n), promotion, margin, wake };
        let mut zones = zones_of(&self.memory, &self.marks, dst);
        let answer = self.inside.rules.admit(&mut zones, &arrival);
        drop(zones);
        if answer.wakes() {
            self.wake_kswapd_for(dst, n);
        }
        if let Admission::Admit { zone, .. } = answer {
            return Some(self.memory.nodes[dst].zones[zone]);
        }
        if promotion {
            let signalled = self.kswapd[dst].state.running
                || self.woken.contains(&dst)
                || self.kswapd[dst].state.is_hopeless();
            if let Some(watch) = &mut self.watch {
                watch.refused(dst, n, signalled);
            }
        }
        None
    }
    /// Takes the page's room in a zone that admits it and moves it there.
    fn move_here(
        &mut self,
        ctx: &mut Ctx,
        item: u32,
        n: u64,
        zone: usize,
        promotion: bool,
        stamp: u32,
    ) -> bool {
        let (version, now) = (self.knobs.version, Self::jiffies(ctx.clock));
        let dst = self.memory.node_of(zone);
        let early = self.model.balancing == Balancing::Seed;
        if !early && !self.seed_limit[dst].take(now, n, version) {
            return false;
        }
        self.memory.zones[zone].free -= n;
        let w = self.memory.word(item);
        let src = self.memory.node_of(w.zone());
        let (crosses, stamp) = (self.crosses(src, dst), self.stamp_on(src, dst, stamp));
        if let Some(watch) = self.watch.as_mut().filter(|_| promotion) {
            let free = self.memory.zones[zone].free;
            let high = self.marks[zone].high.0 + self.marks[zone].reserve.0;
            watch.promoted(dst, n, free, high);
        }
        let at = self.isolated(item, dst, true);
        let read_only = moves_read_only(version, item & FRAME_ITEM != 0);
        self.move_item(ctx, item, zone, at, stamp, Entries::Accessible { read_only });
        self.count(ctx, Item::NumaPagesMigrated, n);
        if counts_as_promotion(version, promotion, crosses && self.top[dst]) {
            self.stat.add(dst, Item::PgpromoteSuccess, n);
        }
        true
    }
    /// The fault is over without a move: accessible again, and accessed.
    fn make_accessible(&mut self, page: u32) {
        let entries = self.memory.entries(page);
        for w in &mut self.memory.words[entries] {
            *w = Word(*w).with_state(PRESENT).0;
        }
    }

    // ── Accounting and placement ───────────────────────────────────────────────

    fn count_fault(
        &mut self,
        ctx: &Ctx,
        space: usize,
        last: CpuPid,
        now: u64,
        mut fault: AccountedFault,
    ) {
        let id = ctx.task;
        if !fault.private && !fault.flags.has(FaultFlags::NO_GROUP) {
            fault.private = self.group_with(id, space, last, fault.flags);
        }
        // Placement looks at what was before this fault.
        let period = self.numa[id].scan.period_ms;
        if self.numa[id].faults.placement_due(now, period) {
            self.place_task(ctx, id, space);
            if self.numa[id].faults.preferred.is_some() {
                self.placed.push(id);
            }
        }
        let group = self.numa[id].group.and_then(|g| self.groups.get(&g));
        self.numa[id].faults.account(fault, group, self.node_ids);
        let moved = fault.flags.has(FaultFlags::MIGRATED);
        let (max, version) = (self.knobs.scan_period_max_ms, self.knobs.version);
        if self.model.balancing == Balancing::Kernel {
            seed_back_off(&mut self.numa[id].scan, max, moved, version);
        }
    }
    /// A page that another task used last: perhaps their groups become one. Returns
    /// whether the fault counts as private after all.
    fn group_with(&mut self, id: usize, space: usize, last: CpuPid, flags: FaultFlags) -> bool {
        if self.numa[id].group.is_none() {
            let pid = self.numa[id].pid;
            self.groups.insert(pid, GroupFaults::found(pid, &self.numa[id].faults));
            self.numa[id].group = Some(pid);
        }
        let own = self.numa[id].group.expect("founded above");
        let running = self.running.get(last.cpu().index()).copied().flatten();
        let Some((other, other_pid)) = running else { return false };
        let theirs = self.numa[other].group;
        let refs = |k: &Self, g: u32| k.groups.get(&g).map_or(0, |g| g.refs);
        let facts = JoinFacts {
            may_group: true,
            running_matches: last.matches(other_pid) && other != id,
            other_group: theirs.is_some_and(|t| t != own),
            own_refs: refs(self, own),
            other_refs: theirs.map_or(0, |t| refs(self, t)),
            // Addresses of groups: a later one lies higher here.
            own_is_higher: theirs.is_some_and(|t| own > t),
            same_mm: self.numa[other].space == space,
            shared_page: flags.has(FaultFlags::SHARED),
        };
        match join_rule(facts) {
            Join::Stay => false,
            Join::StayPrivate => true,
            Join::Join => {
                self.leave_group(id);
                let t = theirs.expect("a rule that joins has seen a group");
                if let Some(g) = self.groups.get_mut(&t) {
                    g.add(&self.numa[id].faults);
                    self.numa[id].group = Some(t);
                }
                self.regrouped.push(id);
                false
            }
        }
    }
    /// Placement: averages, the preferred node, the next period (specs/numa.md#placement).
    fn place_task(&mut self, ctx: &Ctx, id: usize, space: usize) {
        let seq = self.space(space).scan.seq;
        let wall = ctx.clock / 1000;
        let n = &mut self.numa[id];
        let runtime = match n.last_placed {
            // A task that has been running without a break has a full load sum.
            None => Runtime::first(47_742),
            Some((ran, at)) => {
                Runtime { run_ns: n.ran_ns.saturating_sub(ran), period_ns: wall.saturating_sub(at) }
            }
        };
        let group = n.group.and_then(|g| self.groups.get_mut(&g));
        let Some(found) = n.faults.place(&mut n.scan, seq, runtime, group) else { return };
        n.last_placed = Some((n.ran_ns, wall));
        if let Some(node) = found.max_node {
            let place = self.place_of(node);
            let group = self.numa[id].group.and_then(|g| self.groups.get(&g));
            // A node without CPUs stands for the nearest that has some.
            let home = if self.cpu_node.contains(&Some(place)) {
                node
            } else {
                let near = self.fallback[place].iter().find(|p| self.cpu_node.contains(&Some(**p)));
                near.map_or(node, |&p| self.memory.node_id(p))
            };
            let home = group.map_or(home, |g| self.distances.home_of_group(g, home));
            self.numa[id].faults.preferred = Some(home);
        }
        let limits = self.limits(id);
        let n = &mut self.numa[id];
        n.scan.period_max_ms = limits.max_ms;
        let since = Since {
            local: n.faults.local,
            remote: n.faults.remote,
            failed: n.faults.failed,
            shared: found.fault_types[0],
            private: found.fault_types[1],
        };
        let next = adapt(n.scan.period_ms, limits, since, self.knobs.version);
        n.scan.period_ms = next.period_ms;
        if next.clear_locality {
            (n.faults.local, n.faults.remote, n.faults.failed) = (0, 0, 0);
        }
        if next.push_next_scan {
            let gate = Self::jiffies(ctx.clock)
                + homenode_core::kernel::msecs_to_jiffies(u64::from(next.period_ms));
            self.space_mut(space).scan.next_scan_jiffies = gate;
        }
    }
}

// ── Tasks that follow their memory ─────────────────────────────────────────────

/// What came of tasks that were away from home, as the kernel's tracepoints tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HomingFigures {
    /// `sched_move_numa`: a task went to another node's CPU.
    pub moves: u64,
    /// `sched_swap_numa`: two tasks changed places.
    pub swaps: u64,
    /// `sched_stick_numa`: no place was found.
    pub stays: u64,
}

impl Kernel {
    /// Whether tasks follow their memory, by the rules of this version.
    pub(crate) fn tasks_follow(&self) -> bool {
        tasks_follow(self.knobs.version)
            && self.model.balancing == Balancing::Kernel
            && self.knobs.numa_balancing.enabled()
    }
    /// A task has come to another node, by whomever: its period may start anew.
    ///
    /// Source: specs/numa.md#adaptive-period.
    #[cold]
    pub(crate) fn numa_moved(&mut self, id: usize, node: usize) {
        let (from, to) = (self.memory.node_id(self.numa[id].node), self.memory.node_id(node));
        self.numa[id].node = node;
        let n = &self.numa[id];
        if n.faults.nodes.is_empty() || !self.tasks_follow() || !moves_restart(self.knobs.version) {
            return;
        }
        if restarts_after_move(n.scan.seq, from, to, n.faults.preferred) {
            self.numa[id].scan.period_ms = self.limits(id).start_ms;
        }
    }
    /// What the choice of a CPU has said of a task.
    ///
    /// Source: specs/numa.md#homing.
    pub(crate) fn numa_chosen(&mut self, id: usize, chosen: &Homing) {
        if let Some(node) = chosen.preferred {
            self.numa[id].faults.preferred = Some(node);
        }
        let limits = self.limits(id);
        match chosen.period {
            Restart::No => {}
            Restart::Shortest => self.numa[id].scan.period_ms = limits.min_ms,
            Restart::Start => self.numa[id].scan.period_ms = limits.start_ms,
        }
    }
}

/// Zones of a node with their free pages and marks, for the rules.
pub(super) fn zones_of(
    memory: &Memory,
    marks: &[ZoneMarks],
    node: usize,
) -> impl Iterator<Item = (Pages, ZoneMarks)> {
    let zones = memory.nodes[node].zones.iter();
    zones.map(|&z| (Pages(memory.zones[z].free), marks[z]))
}
