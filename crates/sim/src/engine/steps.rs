//! Tasks that are made of operations on pages: their turn, and the steps of a scenario
//! that make the operations.

use crate::hot::{self, Counts, KINDS, OP_PAGE, OP_WRITE};
use crate::kernel::Kernel;
use crate::memory::BLOCK;
use crate::program::Access;
use crate::random::Stream;
use crate::simulation::{Event, Filling, Program, Run, Simulation, Task};
use crate::space::Holds;
use homenode_core::scenario::{Again, Step, Until};

/// What a round of repeated steps takes that would take no time at all.
const EMPTY_ROUND: u64 = 1_000_000;

impl Simulation {
    /// Runs a task's operations until its clock reaches `end` or it stops being runnable.
    pub(super) fn run_ops(&mut self, id: usize, task: &mut Task, end: u64) {
        let lent = match &task.program {
            Program::Ids { ids, .. } => Some(ids.clone()),
            _ => None,
        };
        let mut counts = Counts::default();
        let mut cost = [0; KINDS];
        let node = self.cpus[task.cpu].node;
        let kinds = self.zones_used * 2;
        let mut clock = task.clock;
        let mut end = end;
        self.cost_table(node, task.compute, &mut cost);
        while clock < end && task.run == Run::Runnable {
            let ops: &[u32] = match (&lent, &task.program) {
                (Some(ids), Program::Ids { at, .. }) => &ids[*at..],
                _ => &task.ops[task.at..],
            };
            if ops.is_empty() || clock >= task.deadline {
                task.clock = clock;
                // A copy, so that the loop's own counts need no address.
                let mut sum = std::mem::take(&mut counts);
                self.advance(id, task, &mut sum);
                counts = sum;
                clock = task.clock;
                self.cost_table(node, task.compute, &mut cost);
                continue;
            }
            let limit = end.min(task.deadline);
            let words = &mut self.kernel.memory.words[..];
            // What is written at a filling step is seen page by page.
            let mut done = match task.filling {
                Some(_) => 0,
                None => hot::run(ops, words, &cost, kinds, &mut counts, &mut clock, limit),
            };
            if clock < limit && done < ops.len() {
                let op = ops[done];
                let mut ctx = self.ctx_of(id, task);
                ctx.clock = clock;
                match self.serve(&mut ctx, task.process, op & OP_PAGE, op & OP_WRITE != 0) {
                    Ok(zone) => {
                        if let Some(f) = task.filling {
                            let page = op & OP_PAGE;
                            let vpn = f.vpn + u64::from(page - f.first);
                            self.kernel.fill(page, f.holds.at(vpn));
                        }
                        let kind = zone * 2 + (op >> 31) as usize;
                        clock = ctx.clock + cost[kind];
                        counts.add(kind);
                        done += 1;
                    }
                    Err(why) => {
                        clock = ctx.clock;
                        self.kill(task, why);
                    }
                }
                // Somebody was woken: the quantum ends here, so that they start now.
                if !self.kernel.woken.is_empty() {
                    end = end.min(clock);
                }
            }
            if let Some(pmu) = self.pmu.as_deref_mut() {
                let ops: &[u32] = match (&lent, &task.program) {
                    (Some(ids), Program::Ids { at, .. }) => &ids[*at..],
                    _ => &task.ops[task.at..],
                };
                let from = self.machine.nodes[node].id;
                let blocks = &self.kernel.memory.blocks;
                clock += pmu.burst((task.cpu, from), task.space, &ops[..done], blocks);
            }
            match &mut task.program {
                Program::Ids { ids, at } => {
                    *at += done;
                    if *at >= ids.len() {
                        *at = 0;
                    }
                }
                _ => task.at += done,
            }
        }
        task.clock = clock;
        self.account(task, &mut counts);
    }
    /// What a first touch of some pages of a mapping writes where huge pages may be: one
    /// fault brings many pages, and each of them is yet to get its content from the program.
    /// `None` where a fault does that for each page, or where they have been touched.
    fn first_filling(
        &self,
        space: usize,
        (start, first): (u64, u32),
        share: std::ops::Range<u32>,
    ) -> Option<Filling> {
        self.kernel.memory.contents.as_ref()?;
        let space = self.kernel.space(space);
        let kind = &space.vmas[space.find(start)?].kind;
        if !kind.huge || kind.holds == Holds::Own {
            return None;
        }
        // Another thread may have touched the block that its share ends in.
        let aligned = share.start.next_multiple_of(BLOCK);
        let from = if aligned < share.end { aligned } else { share.start };
        let words = &self.kernel.memory.words[from as usize..share.end as usize];
        let untouched = words.iter().all(|&w| w == 0);
        untouched.then_some(Filling { holds: kind.holds, first, vpn: start })
    }
    /// Makes the next operations of a task, or does its next step.
    fn advance(&mut self, id: usize, task: &mut Task, counts: &mut Counts) {
        let late = task.clock >= task.deadline;
        let Program::Steps(steps) = &mut task.program else { return };
        if let Some(access) = steps.access.as_mut().filter(|_| !late) {
            access.fill(task.clock, &mut task.ops);
            task.at = 0;
            if !task.ops.is_empty() {
                return;
            }
        }
        if steps.access.take().is_some() {
            let place = steps.at - 1;
            let others_wait = matches!(steps.steps[place], Step::Initialize { .. });
            task.ops.clear();
            task.at = 0;
            task.deadline = u64::MAX;
            task.filling = None;
            task.compute = 0;
            self.account(task, counts);
            task.end_phase();
            if others_wait {
                self.arrive(id, task, place);
                return;
            }
        }
        let Program::Steps(steps) = &mut task.program else { return };
        match steps.steps.get(steps.at).cloned() {
            Some(step) => {
                steps.at += 1;
                self.step(id, task, step);
            }
            None => task.run = Run::Ended,
        }
    }
    /// Does the step before the one that the task is at.
    fn step(&mut self, id: usize, task: &mut Task, step: Step) {
        let Program::Steps(steps) = &task.program else { return };
        let place = steps.at - 1;
        let (thread, threads) = (steps.thread, steps.threads);
        let mut label = format!("{}/{}", steps.label, steps.at);
        if steps.returns > 0 {
            label += &format!("/r{}", steps.returns);
        }
        let random = Stream::new(self.seed, &label);
        let space = task.space;
        let find = |k: &Kernel, name: &str| {
            let v = k.space(space).named(name)?;
            let (start, pages, file) = (v.start, v.pages(), v.kind.file);
            Some((start, pages, k.space(space).place(start, file)?))
        };
        let mut ctx = self.ctx_of(id, task);
        ctx.clock = task.clock;
        match step {
            Step::Madvise { map, mergeable } => {
                if let Some((start, pages, _)) = find(&self.kernel, &map) {
                    // EAGAIN for want of memory: the program leaves it at that.
                    let range = (start, start + pages);
                    let _ = self.kernel.madvise_merge(&mut ctx, space, range, mergeable);
                }
            }
            Step::Touch { ref map } | Step::Fill { ref map, .. } => {
                if let Some((start, pages, first)) = find(&self.kernel, map) {
                    let (a, b) = (pages * thread / threads, pages * (thread + 1) / threads);
                    let kept = self.kernel.memory.contents.is_some();
                    task.filling = match &step {
                        Step::Fill { content, .. } => {
                            let holds = self.kernel.holds(content, start, pages);
                            kept.then_some(Filling { holds, first, vpn: start })
                        }
                        _ => {
                            let share = first + a as u32..first + b as u32;
                            self.first_filling(space, (start, first), share)
                        }
                    };
                    let Program::Steps(steps) = &mut task.program else { return };
                    if b == a {
                        task.filling = None;
                    } else {
                        steps.access = Some(Access::touch(first + a as u32, b - a, random));
                        task.begin_phase(place);
                    }
                }
            }
            Step::Initialize { map, order } => {
                let found = find(&self.kernel, &map).filter(|_| thread == 0);
                if let Some((start, pages, first)) = found {
                    let share = first..first + pages as u32;
                    task.filling = self.first_filling(space, (start, first), share);
                }
                let Program::Steps(steps) = &mut task.program else { return };
                match found {
                    Some((_, pages, first)) => {
                        let all = Access::initialize(first, pages, order, random);
                        steps.access = Some(all);
                        task.begin_phase(place);
                    }
                    None => self.arrive(id, task, place),
                }
                return;
            }
            Step::Barrier => {
                self.arrive(id, task, place);
                return;
            }
            Step::Map { map } => {
                if find(&self.kernel, &map).is_none() {
                    let maps = &self.processes[task.process].maps;
                    if let Some(m) = maps.iter().find(|m| m.name == map).cloned() {
                        let own = self.kernel.numa[id].policy.clone();
                        self.map(&mut ctx, space, &m, &own);
                    }
                }
            }
            Step::Repeat { steps: back, until } => {
                let Program::Steps(steps) = &mut task.program else { return };
                let (rounds, last) = steps.rounds.get(&place).copied().unwrap_or((0, u64::MAX));
                let more = match until {
                    Again::Times(n) => rounds + 1 < n,
                    Again::Until(t) => task.clock - task.started < t.0,
                };
                if more {
                    // A round in which nothing takes time would never come to an end.
                    ctx.clock += if last == task.clock { EMPTY_ROUND } else { 0 };
                    steps.rounds.insert(place, (rounds + 1, ctx.clock));
                    steps.returns += 1;
                    steps.at = place.saturating_sub(back as usize);
                } else {
                    steps.rounds.remove(&place);
                }
            }
            Step::Access { map, pattern, write, compute, until } => {
                if let Some((_, pages, first)) = find(&self.kernel, &map) {
                    let a = Access::new(first, pages, pattern, write, until, task.clock, random);
                    let Program::Steps(steps) = &mut task.program else { return };
                    steps.access = Some(a);
                    task.begin_phase(place);
                    task.compute = compute.0;
                    if let Until::Time(t) = until {
                        task.deadline = task.clock + t.0;
                    }
                }
            }
            Step::Sleep(t) => {
                task.run = Run::Sleeping;
                self.at(task.clock + t.0, Event::Wake(id));
            }
            Step::Wait => {
                if task.children > 0 {
                    task.run = Run::Waiting;
                }
            }
            Step::Fork => {
                task.clock = ctx.clock;
                self.fork(id, task);
                return;
            }
            Step::Unmap { map } => {
                if let Some((start, pages, _)) = find(&self.kernel, &map) {
                    self.kernel.unmap(&mut ctx, space, start, start + pages);
                }
            }
            Step::Mbind { map, policy } => {
                if let Some((start, pages, _)) = find(&self.kernel, &map) {
                    let own = self.kernel.numa[id].policy.clone();
                    self.kernel.mbind(&mut ctx, space, start, start + pages, &policy, &own);
                }
            }
            Step::MovePages { map, to } => {
                if let Some((_, pages, first)) = find(&self.kernel, &map) {
                    let node = self.kernel.place_of(to);
                    for page in first..first + pages as u32 {
                        self.kernel.move_page_to(&mut ctx, page, node);
                    }
                }
            }
        }
        task.clock = ctx.clock;
    }

    /// A thread comes to a step at which all threads of its process meet. The last one
    /// to come goes on at once, the others from the time of its coming.
    fn arrive(&mut self, id: usize, task: &mut Task, place: usize) {
        let Program::Steps(steps) = &task.program else { return };
        let waiting = self.barriers.entry((task.space, place)).or_default();
        if waiting.len() as u64 + 1 < steps.threads {
            waiting.push(id);
            task.run = Run::Barrier;
            return;
        }
        for other in std::mem::take(waiting) {
            let t = self.task_mut(other);
            t.clock = t.clock.max(task.clock);
            self.enqueue(other, false);
        }
    }

    /// A child with a copy of the space that does the parent's remaining steps.
    fn fork(&mut self, id: usize, task: &mut Task) {
        let Program::Steps(steps) = &task.program else { return };
        let mut child_steps = steps.clone();
        child_steps.label = format!("{}/fork{}", steps.label, task.children);
        child_steps.rounds.clear();
        child_steps.thread = 0;
        child_steps.threads = 1;
        let Some(child) = self.fork_task(id, task, Program::Steps(child_steps)) else { return };
        self.enqueue(child, false);
    }
}
