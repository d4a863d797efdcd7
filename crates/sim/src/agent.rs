//! homenode's task inside the simulated machine: what it reads, what it carries out,
//! and what both cost there.
//!
//! The engine itself runs outside of virtual time; this task stands for it. It works
//! jobs off in order, each in as many turns as it takes, like any other program:
//!
//! ```text
//! timer ──▶ look around ──▶ burn the time of reading ──▶ what was seen
//! order ──▶ watch, look, move …  page by page        ──▶ Done
//! seen  ──▶ burn the time of thinking about it
//! ```
//!
//! `look` is what it sees. What it has still to do, and to tell, the simulation keeps.

mod look;

use crate::heat;
use crate::kernel::{Ctx, Ordered};
use crate::program::Homenode;
use crate::simulation::Simulation;
use crate::simulation::agent::{Agent, CpuLook, Errand, Held, Job, Work};
use crate::tasks::{Kind, Run};
use crate::timeline::Event;
use crate::watch::By;
use homenode_core::costs::Cost;
use homenode_core::policy::order::Act;
use homenode_core::policy::seen::{Seen, Source, Span};
use homenode_core::units::{Pages, Picos};
use look::{count_pages, each_page, note_huge};
use std::collections::{BTreeMap, VecDeque};

impl Agent {
    /// homenode starts on a machine, with a source of heat.
    pub(crate) fn start(sim: &mut Simulation, source: Source, seed: u64) {
        let task = sim.start_daemon(Kind::Homenode, Box::new(Homenode::default()));
        let heat = heat::start(source, sim, seed);
        let alarm = sim.timeline.slot(Event::LookAround);
        sim.agent = Some(Box::new(Self {
            task,
            heat,
            prices: sim.kernel.prices,
            jobs: VecDeque::new(),
            out: Vec::new(),
            alarm,
            known: BTreeMap::new(),
            read_at: None,
            watched: BTreeMap::new(),
            has_counters: false,
            tells_huge: false,
            load_shares: Vec::new(),
            cpus: sim.several_have_cpus().then(CpuLook::default),
            held: Vec::new(),
            spins: false,
            busy: Vec::new(),
        }));
    }

    /// Works until the context's clock reaches `end`; true once there is nothing to do.
    pub(crate) fn work(&mut self, sim: &mut Simulation, ctx: &mut Ctx, end: u64) -> bool {
        while ctx.clock < end {
            let Some(mut job) = self.jobs.pop_front() else { return true };
            match &mut job {
                Job::LookAround => {
                    self.release(sim);
                    let (left, then) = self.look(sim);
                    job = Job::Burn { left, then };
                }
                Job::Burn { left, then } => {
                    let part = (*left).min(end - ctx.clock);
                    *left -= part;
                    ctx.clock += part;
                    if *left == 0 {
                        self.out.append(then);
                        continue;
                    }
                }
                Job::Order(work) => {
                    let before = ctx.clock;
                    let finished = self.carry_out(sim, ctx, work);
                    work.took += ctx.clock - before;
                    if finished {
                        self.out.push(work.done());
                        continue;
                    }
                }
            }
            self.jobs.push_front(job);
        }
        self.jobs.is_empty()
    }

    /// Those that were kept on a node's CPUs for long enough may run where they might before.
    fn release(&mut self, sim: &mut Simulation) {
        let now = sim.now();
        for held in std::mem::take(&mut self.held) {
            if held.until > now {
                self.held.push(held);
                continue;
            }
            let lives = self.known.get(&held.who) == Some(&held.space);
            for (id, asked) in held.tasks.into_iter().filter(|_| lives) {
                if sim.tasks[id].space == held.space && sim.tasks[id].run != Run::Ended {
                    sim.unconfine(self.task, id, asked);
                }
            }
        }
    }

    /// One step of an order; true once it is finished.
    fn carry_out(&mut self, sim: &mut Simulation, ctx: &mut Ctx, work: &mut Work) -> bool {
        if sim.kernel.spaces.get(work.space).is_none_or(Option::is_none)
            && !matches!(work.errand, Errand::SetKnob { .. } | Errand::Unwatch)
        {
            work.nobody_left();
            return true;
        }
        let space = work.space;
        match &mut work.errand {
            Errand::Watch => {
                ctx.clock += self.prices[Cost::ProcRead];
                self.watch(sim, space, work.who);
                true
            }
            Errand::Unwatch => {
                ctx.clock += self.prices[Cost::ProcRead];
                self.unwatch(sim, space);
                true
            }
            Errand::Affine { to, tried, moved } => {
                let ids: Vec<usize> = (0..sim.tasks.len())
                    .filter(|&t| sim.tasks[t].space == space && sim.tasks[t].run != Run::Ended)
                    .collect();
                *tried = ids.len() as u64;
                // Masks are read, set, and set back later.
                ctx.clock += 3 * *tried * self.prices[Cost::Syscall];
                let tasks: Vec<(usize, u32)> = ids
                    .into_iter()
                    .filter_map(|id| Some((id, sim.confine(self.task, id, *to)?)))
                    .collect();
                *moved = tasks.len() as u64;
                let until = sim.now() + Act::AFFINE_FOR.0;
                self.held.push(Held { until, space, who: work.who, tasks });
                true
            }
            Errand::SetKnob { knob, value } => {
                ctx.clock += self.prices[Cost::ProcRead];
                // What it says is in the knob afterwards; an order has no better word.
                let _ = sim.set_knob(&knob.name(), value);
                true
            }
            Errand::Census { spans, at, vpn, found, huge } => {
                let spans = spans.get_or_insert_with(|| {
                    ctx.clock += self.prices[Cost::ProcRead];
                    let vmas = &sim.kernel.space(space).vmas;
                    vmas.iter().map(|v| Span { start: v.start, end: v.end }).collect()
                });
                let Some(&span) = spans.get(*at) else { return true };
                *vpn = span.start.max(*vpn);
                if *vpn < span.end {
                    let memory = &sim.kernel.memory;
                    let note = |page, on| found.add(page, 1, memory.node_id(usize::from(on)));
                    let (next, looked) = each_page(&sim.kernel, space, *vpn, span.end, note);
                    if self.tells_huge {
                        note_huge(&sim.kernel, space, *vpn, huge);
                    }
                    ctx.clock += looked * self.prices[Cost::PageFrame];
                    *vpn = next;
                    return false;
                }
                *at += 1;
                if *at < spans.len() {
                    return false;
                }
                for (span, nodes) in std::mem::take(found).done() {
                    let report = |(on, pages)| Seen::Resident { who: work.who, span, on, pages };
                    self.out.extend(nodes.into_iter().map(report));
                }
                let all = std::mem::take(huge).into_iter();
                self.out.extend(all.map(|span| Seen::Huge { who: work.who, span }));
                true
            }
            Errand::Look { spans, at, vpn, found } => {
                let Some(&span) = spans.get(*at) else { return true };
                if *vpn < span.end {
                    let (next, looked) = count_pages(&sim.kernel, space, *vpn, span.end, found);
                    ctx.clock += looked * self.prices[Cost::PageFrame];
                    *vpn = next;
                    return false;
                }
                let on = |place: u16| sim.kernel.memory.node_id(usize::from(place));
                let report = |on, pages| Seen::Resident { who: work.who, span, on, pages };
                if found.is_empty() {
                    let first = sim.kernel.memory.zones.first().map_or(0, |z| z.node as u16);
                    self.out.push(report(on(first), Pages(0)));
                }
                for (place, pages) in std::mem::take(found) {
                    self.out.push(report(on(place), Pages(pages)));
                }
                go_on(spans, at, vpn)
            }
            Errand::Move { spans, from, to, at, vpn, moved, fails, batch, .. } => {
                let Some(&span) = spans.get(*at) else { return true };
                let own = sim.policy_of(space);
                let stop = span.end;
                let nodes = (*from, *to);
                // The batch is the order's, not that of the turn in which a page of it moves.
                std::mem::swap(&mut sim.kernel.flushes.batch, batch);
                let (n, answer) = sim.kernel.move_ordered(
                    ctx,
                    space,
                    (*vpn, stop),
                    nodes,
                    &own,
                    self.prices[Cost::PageQuery],
                );
                std::mem::swap(&mut sim.kernel.flushes.batch, batch);
                let pages = Pages(n);
                match answer {
                    Ordered::Moved => {
                        *moved += n;
                        self.heat.moved(Picos(ctx.clock));
                    }
                    Ordered::Absent => fails.absent += pages,
                    Ordered::Busy => fails.busy += pages,
                    Ordered::NoRoom => fails.no_room += pages,
                    Ordered::Forbidden => fails.forbidden += pages,
                }
                *vpn += n;
                let finished = go_on(spans, at, vpn);
                if finished {
                    sim.kernel.flushes.batch = std::mem::take(batch);
                    sim.kernel.end_batch();
                }
                finished
            }
            Errand::Split { spans, at, vpn, moved, fails, .. } => {
                let Some(&span) = spans.get(*at) else { return true };
                let (n, split) = sim.kernel.split_ordered(ctx, space, (*vpn, span.end));
                if split {
                    *moved += n;
                } else {
                    fails.absent += Pages(n);
                }
                *vpn += n;
                go_on(spans, at, vpn)
            }
        }
    }
}

/// A step in the span at `at` has come to `vpn`: where that is its end, the next one is begun. Whether
/// there is none.
fn go_on(spans: &[Span], at: &mut usize, vpn: &mut u64) -> bool {
    if *vpn >= spans[*at].end {
        *at += 1;
        *vpn = spans.get(*at).map_or(0, |s| s.start);
    }
    *at == spans.len()
}

impl Simulation {
    /// Whether CPUs are on more than one node.
    fn several_have_cpus(&self) -> bool {
        (0..self.cpus.len()).any(|cpu| self.cpus[cpu].node != self.cpus[0].node)
    }
    /// A ring that is half full wakes its reader, once until it has read.
    pub(crate) fn heed_rings(&mut self, when: u64) {
        let half = self.kernel.probe.as_ref().is_some_and(|p| p.ring.is_half_full())
            || self.pmu.as_ref().is_some_and(|p| p.ring.is_half_full());
        let Some(agent) = self.agent.as_mut().filter(|_| half) else { return };
        if agent.jobs.iter().any(|j| matches!(j, Job::LookAround)) {
            return;
        }
        agent.jobs.push_back(Job::LookAround);
        let task = agent.task;
        self.wake_at(task, when, By::Kernel);
    }
    /// It is time to look around.
    pub(crate) fn look_around(&mut self) {
        let Some(agent) = &mut self.agent else { return };
        agent.jobs.push_back(Job::LookAround);
        let task = agent.task;
        self.wake(task, By::Timer);
    }
}
