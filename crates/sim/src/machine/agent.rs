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

use crate::kernel::damon::{CHECKS, Damon, SAMPLE};
use crate::kernel::{Ctx, Kernel, Ordered, TICK};
use crate::memory::{BLOCK, FRAME_ITEM};
use crate::page::Word;
use crate::ring::{PERIOD, Pmu, Probe};
use crate::simulation::{Program, Run, Simulation};
use homenode_core::costs::Cost;
use homenode_core::engine::order::{Act, Fails, OrderId};
use homenode_core::engine::seen::{Seen, Source, Span, Who, ZoneSeen};
use homenode_core::knobs::Knob;
use homenode_core::topology::Machine;
use homenode_core::units::{NodeId, Pages, Picos};
use std::collections::{BTreeMap, VecDeque};

/// Pages looked at in one step of a job: some ten microseconds.
const STEP: u64 = 32;
/// Processes are read anew after this time at the earliest: 100 ms. A timer that only
/// waits for a budget wakes more often than they change.
const PROC_EVERY: u64 = 100_000_000_000;
/// Picoseconds of a clock tick, the unit of a process's start.
const CLOCK_TICK: u64 = 10_000_000_000;

/// What homenode's own work takes, in picoseconds.
#[derive(Clone, Copy, Debug)]
struct Prices {
    query: u64,
    proc_read: u64,
    zoneinfo: u64,
    region: u64,
    event: u64,
    seen: u64,
}

/// An order that is being carried out.
#[derive(Clone, Debug)]
struct Work {
    order: OrderId,
    who: Who,
    space: usize,
    task: Task,
    /// Processor time so far.
    took: u64,
}

#[derive(Clone, Debug)]
enum Task {
    Watch,
    Unwatch,
    Look {
        spans: Vec<Span>,
        at: usize,
        vpn: u64,
        /// Pages of the present span by node.
        found: BTreeMap<u16, u64>,
    },
    Move {
        spans: Vec<Span>,
        from: usize,
        to: usize,
        at: usize,
        vpn: u64,
        tried: u64,
        moved: u64,
        fails: Fails,
    },
    SetKnob {
        knob: Knob,
        value: String,
    },
}

#[derive(Clone, Debug)]
enum Job {
    LookAround,
    /// Takes time and then tells something.
    Burn {
        left: u64,
        then: Vec<Seen>,
    },
    Order(Box<Work>),
}

/// A process as `/proc` shows it.
#[derive(Clone, Debug)]
pub(crate) struct Proc {
    pub(crate) who: Who,
    pub(crate) space: usize,
    ran: u64,
    /// The node of all its tasks; `None` if they run on several.
    pub(crate) node: Option<NodeId>,
    rss: u64,
}

impl Proc {
    /// Processor time of all its threads, in picoseconds.
    pub(crate) fn ran(&self) -> u64 {
        self.ran
    }
}

/// homenode on a simulated machine.
pub(crate) struct Agent {
    /// Its task.
    pub(crate) task: usize,
    /// DAMON's, where that is the source.
    pub(crate) kdamond: Option<usize>,
    source: Source,
    prices: Prices,
    jobs: VecDeque<Job>,
    /// Seen and not delivered yet.
    out: Vec<Seen>,
    /// When it looks around next.
    pub(crate) look_at: Option<u64>,
    known: BTreeMap<Who, usize>,
    /// When processes were read last.
    read_at: Option<u64>,
    watched: BTreeMap<usize, Who>,
    damon: Option<Damon>,
    /// Whether DAMON's timer runs.
    damon_runs: bool,
}

impl Agent {
    /// homenode starts on a machine, with a source of heat.
    pub(super) fn start(sim: &mut Simulation, source: Source, seed: u64) {
        let costs = sim.machine.costs.clone();
        let price = |c| costs.time(c).0;
        let prices = Prices {
            query: price(Cost::PageQuery),
            proc_read: price(Cost::ProcRead),
            zoneinfo: price(Cost::ZoneinfoRead),
            region: price(Cost::DamonRegion),
            event: price(Cost::EventRead),
            seen: price(Cost::EngineSeen),
        };
        let task = sim.helper(Program::Homenode);
        let (mut kdamond, mut damon) = (None, None);
        match source {
            Source::Damon => {
                damon = Some(Damon::new(seed, price(Cost::DamonCheck)));
                kdamond = Some(sim.helper(Program::Kdamond));
            }
            Source::HintFault => {
                sim.kernel.probe = Some(Box::new(Probe::new(price(Cost::HintProbe))));
            }
            Source::Pmu => {
                let cpus = sim.machine.cpus.len();
                sim.pmu = Some(Box::new(Pmu::new(cpus, price(Cost::PmuSample))));
            }
            Source::Residency => {}
        }
        sim.agent = Some(Box::new(Self {
            task,
            kdamond,
            source,
            prices,
            jobs: VecDeque::new(),
            out: Vec::new(),
            look_at: None,
            known: BTreeMap::new(),
            read_at: None,
            watched: BTreeMap::new(),
            damon,
            damon_runs: false,
        }));
    }

    pub(crate) fn has_word(&self) -> bool {
        !self.out.is_empty()
    }
    /// Orders that are not finished.
    pub(super) fn waiting(&self) -> usize {
        self.jobs.iter().filter(|j| matches!(j, Job::Order(_))).count()
    }
    /// Whether there is nothing to carry out.
    pub(super) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }
    /// Hands over what was seen; thinking about it takes time, before all else.
    pub(super) fn deliver(&mut self, out: &mut Vec<Seen>) {
        let n = self.out.len() as u64;
        out.append(&mut self.out);
        if n > 0 && self.prices.seen > 0 {
            self.jobs.push_front(Job::Burn { left: n * self.prices.seen, then: Vec::new() });
        }
    }
    /// Takes an order, which has been checked.
    pub(super) fn order(&mut self, id: OrderId, act: &Act, space: usize, places: &Machine) {
        let place = |n: NodeId| places.position(n).expect("checked");
        let first = |spans: &[Span]| spans.first().map_or(0, |s| s.start);
        let (who, task) = match act {
            Act::Watch { who } => (*who, Task::Watch),
            Act::Unwatch { who } => (*who, Task::Unwatch),
            Act::Look { who, spans } => (
                *who,
                Task::Look {
                    vpn: first(spans),
                    spans: spans.clone(),
                    at: 0,
                    found: BTreeMap::new(),
                },
            ),
            Act::Move { who, spans, from, to } => (
                *who,
                Task::Move {
                    vpn: first(spans),
                    tried: spans.iter().map(|s| s.pages().0).sum(),
                    spans: spans.clone(),
                    from: place(*from),
                    to: place(*to),
                    at: 0,
                    moved: 0,
                    fails: Fails::default(),
                },
            ),
            Act::SetKnob { knob, value } => {
                let nobody = Who { pid: 0, start: 0 };
                (nobody, Task::SetKnob { knob: *knob, value: value.clone() })
            }
            Act::Affine { .. } => unreachable!("refused before"),
        };
        let work = Work { order: id, who, space, task, took: 0 };
        self.jobs.push_back(Job::Order(Box::new(work)));
    }
    /// The machine has stopped: what is still to be carried out finds nobody.
    pub(super) fn finish(&mut self) {
        for job in std::mem::take(&mut self.jobs) {
            match job {
                Job::Order(mut work) => {
                    work.nobody_left();
                    self.out.push(work.done());
                }
                Job::Burn { then, .. } => self.out.extend(then),
                Job::LookAround => {}
            }
        }
        let gone: Vec<Who> = std::mem::take(&mut self.known).into_keys().collect();
        self.out.extend(gone.into_iter().map(|who| Seen::Gone { who }));
    }

    /// Works until the context's clock reaches `end`; true once there is nothing to do.
    pub(crate) fn work(&mut self, sim: &mut Simulation, ctx: &mut Ctx, end: u64) -> bool {
        while ctx.clock < end {
            let Some(mut job) = self.jobs.pop_front() else { return true };
            match &mut job {
                Job::LookAround => {
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

    /// One step of an order; true once it is finished.
    fn carry_out(&mut self, sim: &mut Simulation, ctx: &mut Ctx, work: &mut Work) -> bool {
        if sim.kernel.spaces.get(work.space).is_none_or(Option::is_none)
            && !matches!(work.task, Task::SetKnob { .. } | Task::Unwatch)
        {
            work.nobody_left();
            return true;
        }
        let space = work.space;
        match &mut work.task {
            Task::Watch => {
                ctx.clock += self.prices.proc_read;
                self.watch(sim, space, work.who);
                true
            }
            Task::Unwatch => {
                ctx.clock += self.prices.proc_read;
                self.unwatch(sim, space);
                true
            }
            Task::SetKnob { knob, value } => {
                ctx.clock += self.prices.proc_read;
                // What it says is in the knob afterwards; an order has no better word.
                let _ = sim.set_knob(&knob.name(), value);
                true
            }
            Task::Look { spans, at, vpn, found } => {
                let Some(&span) = spans.get(*at) else { return true };
                if *vpn < span.end {
                    let (next, looked) = count_pages(&sim.kernel, space, *vpn, span.end, found);
                    ctx.clock += looked * self.prices.query;
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
                *at += 1;
                *vpn = spans.get(*at).map_or(0, |s| s.start);
                *at == spans.len()
            }
            Task::Move { spans, from, to, at, vpn, moved, fails, .. } => {
                let Some(&span) = spans.get(*at) else { return true };
                let own = sim.policy_of(space);
                let stop = span.end;
                let nodes = (*from, *to);
                let (n, answer) = sim.kernel.move_ordered(
                    ctx,
                    space,
                    (*vpn, stop),
                    nodes,
                    &own,
                    self.prices.query,
                );
                let pages = Pages(n);
                match answer {
                    Ordered::Moved => *moved += n,
                    Ordered::Absent => fails.absent += pages,
                    Ordered::Busy => fails.busy += pages,
                    Ordered::NoRoom => fails.no_room += pages,
                    Ordered::Forbidden => fails.forbidden += pages,
                }
                *vpn += n;
                if *vpn >= stop {
                    *at += 1;
                    *vpn = spans.get(*at).map_or(0, |s| s.start);
                }
                *at == spans.len()
            }
        }
    }
    fn watch(&mut self, sim: &mut Simulation, space: usize, who: Who) {
        self.watched.insert(space, who);
        if let Some(probe) = &mut sim.kernel.probe {
            probe.watched.insert(space);
        }
        if let Some(pmu) = &mut sim.pmu {
            pmu.watched.insert(space);
        }
        if let (Some(damon), Some(kdamond)) = (&mut self.damon, self.kdamond) {
            damon.add(&sim.kernel, space);
            if !self.damon_runs {
                self.damon_runs = true;
                sim.wake_helper(kdamond);
            }
        }
    }
    fn unwatch(&mut self, sim: &mut Simulation, space: usize) {
        self.watched.remove(&space);
        if let Some(probe) = &mut sim.kernel.probe {
            probe.watched.remove(&space);
        }
        if let Some(pmu) = &mut sim.pmu {
            pmu.watched.remove(&space);
        }
        if let Some(damon) = &mut self.damon {
            damon.remove(space);
        }
    }

    /// DAMON's thread has its turn; when it wants the next, if it does.
    pub(crate) fn damon_look(&mut self, kernel: &mut Kernel, ctx: &mut Ctx) -> Option<u64> {
        let damon = self.damon.as_mut()?;
        damon.look(kernel, ctx);
        self.damon_runs = !damon.idle();
        self.damon_runs.then_some(ctx.clock + SAMPLE)
    }

    /// Who lives, who has ended; what reading it takes.
    fn read_procs(&mut self, sim: &mut Simulation, seen: &mut Vec<Seen>) -> u64 {
        let procs = sim.procs();
        let known = procs.iter().map(|p| (p.who, p.space)).collect();
        let before = std::mem::replace(&mut self.known, known);
        for (who, space) in before {
            if !self.known.contains_key(&who) {
                self.unwatch(sim, space);
                seen.push(Seen::Gone { who });
            }
        }
        for proc in &procs {
            // In nanoseconds, as `schedstat` has it.
            let ran = Picos(proc.ran / 1000 * 1000);
            let (who, node, resident) = (proc.who, proc.node, Pages(proc.rss));
            seen.push(Seen::Task { who, ran, node, resident });
        }
        self.prices.proc_read * procs.len() as u64
    }
    /// Everything that is to be seen now, and what reading it takes.
    fn look(&mut self, sim: &mut Simulation) -> (u64, Vec<Seen>) {
        let p = self.prices;
        let (mut cost, mut seen) = (0, Vec::new());
        if self.read_at.is_none_or(|at| at + PROC_EVERY <= sim.now) {
            self.read_at = Some(sim.now);
            cost += self.read_procs(sim, &mut seen);
        }
        for (place, node) in sim.machine.nodes.iter().enumerate() {
            cost += p.zoneinfo;
            let zones = sim.zones_seen(place);
            seen.push(Seen::Node { node: node.id, zones, load: None });
        }
        match self.source {
            Source::Damon => {
                let told = self.damon.as_mut().map(Damon::take).unwrap_or_default();
                for (space, regions) in told {
                    let Some(&who) = self.watched.get(&space) else { continue };
                    for r in regions {
                        cost += p.region;
                        seen.push(Seen::Region {
                            who,
                            span: Span { start: r.start, end: r.end },
                            accessed: r.accessed,
                            checks: CHECKS,
                            every: Picos(SAMPLE),
                            age: Picos(u64::from(r.age) * u64::from(CHECKS) * SAMPLE),
                        });
                    }
                }
            }
            Source::HintFault => {
                if let Some(probe) = &mut sim.kernel.probe {
                    let (faults, lost) = probe.ring.drain();
                    cost += p.event * faults.len() as u64;
                    if lost > 0 {
                        seen.push(Seen::Lost { events: lost });
                    }
                    for f in faults {
                        let Some(&who) = self.watched.get(&f.space) else { continue };
                        // Both ends were read from a clock that goes by ticks.
                        let after = f.after_ms.map(|ms| Picos(Picos::from_ms(ms.into()).0 + TICK));
                        seen.push(Seen::Fault { who, vpn: f.vpn, from: f.from, on: f.on, after });
                    }
                }
            }
            Source::Pmu => {
                if let Some(pmu) = &mut sim.pmu {
                    let (samples, lost) = pmu.ring.drain();
                    cost += p.event * samples.len() as u64;
                    if lost > 0 {
                        seen.push(Seen::Lost { events: lost });
                    }
                    for s in samples {
                        let Some(&who) = self.watched.get(&s.space) else { continue };
                        seen.push(Seen::Sample { who, vpn: s.vpn, from: s.from, period: PERIOD });
                    }
                }
            }
            Source::Residency => {}
        }
        (cost, seen)
    }
}

impl Work {
    /// The process has ended: what is left of the order finds nobody.
    fn nobody_left(&mut self) {
        if let Task::Move { spans, at, tried, moved, fails, .. } = &mut self.task {
            fails.gone += Pages(*tried - *moved - fails.all().0);
            *at = spans.len();
        }
    }
    fn done(&self) -> Seen {
        let (tried, moved, fails) = match &self.task {
            Task::Move { tried, moved, fails, .. } => (*tried, *moved, *fails),
            Task::Look { spans, .. } => {
                let all: u64 = spans.iter().map(|s| s.pages().0).sum();
                (all, all, Fails::default())
            }
            _ => (0, 0, Fails::default()),
        };
        Seen::Done {
            order: self.order,
            tried: Pages(tried),
            moved: Pages(moved),
            fails,
            took: Picos(self.took),
        }
    }
}

/// Counts pages in memory from `vpn` on by place of their node: where it stopped, and
/// how many it looked at. Stretches that no page table reaches cost nothing.
fn count_pages(
    k: &Kernel,
    space: usize,
    vpn: u64,
    end: u64,
    found: &mut BTreeMap<u16, u64>,
) -> (u64, u64) {
    let s = k.space(space);
    let Some(v) = s.find(vpn).map(|v| &s.vmas[v]) else {
        let next = s.vmas.partition_point(|v| v.end <= vpn);
        return (s.vmas.get(next).map_or(end, |v| v.start.min(end)), 0);
    };
    let step = u64::from(BLOCK);
    let stop = end.min(v.end).min((vpn / step + 1) * step);
    let Some(first) = s.place(vpn, v.kind.file) else { return (stop, 0) };
    let stop = stop.min(vpn + STEP);
    for page in first..first + (stop - vpn) as u32 {
        let w = Word(k.memory.words[page as usize]);
        if w.resident() && !k.memory.is_zero_page(w) {
            let item = if w.shared() { w.frame() | FRAME_ITEM } else { page };
            let place = k.memory.node_of(k.memory.word(item).zone());
            *found.entry(place as u16).or_default() += 1;
        }
    }
    (stop, stop - vpn)
}

impl Simulation {
    /// Living processes in the order of their address spaces.
    pub(crate) fn procs(&self) -> Vec<Proc> {
        let mut all: BTreeMap<usize, Proc> = BTreeMap::new();
        for (id, t) in self.tasks.iter().enumerate() {
            let Some(t) = t.as_deref().filter(|t| t.process != usize::MAX) else { continue };
            if self.kernel.spaces.get(t.space).is_none_or(Option::is_none) {
                continue;
            }
            let node = self.machine.cpus[t.cpu].node;
            let who = Who { pid: self.kernel.numa[id].pid, start: t.started / CLOCK_TICK };
            let rss = self.kernel.space(t.space).rss;
            // The lowest number is that of the thread group.
            let new = Proc { who, space: t.space, ran: 0, node: None, rss };
            let first = !all.contains_key(&t.space);
            let p = all.entry(t.space).or_insert(new);
            p.ran += t.ran;
            if first {
                p.node = Some(node);
            } else if t.run != Run::Ended && p.node != Some(node) {
                p.node = None;
            }
        }
        all.into_values().collect()
    }
    /// The policy of a space's tasks, as `numa_maps` shows it.
    pub(crate) fn policy_of(&self, space: usize) -> homenode_core::scenario::Policy {
        let own = self.tasks.iter().position(|t| t.as_deref().is_some_and(|t| t.space == space));
        own.map(|id| self.kernel.numa[id].policy.clone()).unwrap_or_default()
    }
    /// A ring that is half full wakes its reader, once until it has read.
    pub(crate) fn heed_rings(&mut self) {
        let half = self.kernel.probe.as_ref().is_some_and(|p| p.ring.is_half_full())
            || self.pmu.as_ref().is_some_and(|p| p.ring.is_half_full());
        let Some(agent) = self.agent.as_mut().filter(|_| half) else { return };
        if agent.jobs.iter().any(|j| matches!(j, Job::LookAround)) {
            return;
        }
        agent.jobs.push_back(Job::LookAround);
        let task = agent.task;
        self.wake_helper(task);
    }
    /// homenode's timer has fired.
    pub(crate) fn look_around(&mut self, time: u64) {
        let Some(agent) = self.agent.as_mut().filter(|a| a.look_at == Some(time)) else { return };
        agent.look_at = None;
        agent.jobs.push_back(Job::LookAround);
        let task = agent.task;
        self.wake_helper(task);
    }
    /// DAMON's timer has fired.
    pub(crate) fn wake_damon(&mut self) {
        if let Some(kdamond) = self.agent.as_ref().and_then(|a| a.kdamond) {
            self.wake_helper(kdamond);
        }
    }
    /// A node's zones as `/proc/zoneinfo` shows them.
    pub(super) fn zones_seen(&self, place: usize) -> Vec<ZoneSeen> {
        let zones = &self.kernel.memory.nodes[place].zones;
        let zone = |&z: &usize| ZoneSeen {
            free: Pages(self.kernel.memory.zones[z].free),
            marks: self.kernel.marks[z],
        };
        zones.iter().map(zone).collect()
    }
    pub(super) fn seed(&self) -> u64 {
        self.seed
    }
    /// When the run stops, if not by itself.
    pub(super) fn limit(&self) -> Option<u64> {
        self.duration
    }
    /// Pages of a stretch by node.
    pub(super) fn placed(&self, space: usize, span: Span) -> BTreeMap<NodeId, Pages> {
        let (mut vpn, mut found) = (span.start, BTreeMap::new());
        while vpn < span.end {
            vpn = count_pages(&self.kernel, space, vpn, span.end, &mut found).0;
        }
        let on = |place: u16| self.kernel.memory.node_id(usize::from(place));
        found.into_iter().map(|(place, pages)| (on(place), Pages(pages))).collect()
    }
    /// Processor time of a task, in picoseconds.
    pub(super) fn ran_of(&self, task: usize) -> u64 {
        self.tasks[task].as_ref().map_or(0, |t| t.ran)
    }
    /// Lets homenode look around now.
    pub(super) fn look_now(&mut self) {
        let now = self.now;
        if let Some(agent) = &mut self.agent {
            agent.look_at = Some(now);
        }
        self.look_around(now);
    }
}
