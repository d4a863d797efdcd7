//! Run queues recounted from what is known of each task.

use crate::simulation::Simulation;
use homenode_core::hold;

/// What is wrong with them now.
pub(super) fn recount(sim: &Simulation) -> Vec<String> {
    let (queues, fair) = (&sim.sched.q, &sim.sched.q.fair);
    let mut found = Vec::new();
    let mut queued = vec![(0u32, 0u32); sim.cpus.len()];
    let mut homes = queued.clone();
    for (id, task) in sim.tasks.iter().enumerate().filter(|(_, t)| t.lives()) {
        let number = id as u32;
        let (is_queued, delayed) = (fair.is_queued(number), fair.is_delayed(number));
        // Who sleeps while it is ahead stays queued, and is on no queue for anybody else.
        hold!(
            found,
            task.on_queue == (is_queued && !delayed),
            "task {id} is queued: {is_queued}, its sleep is delayed: {delayed}, on a queue: {}",
            task.on_queue
        );
        let cpu = fair.cpu_of(number);
        hold!(found, cpu == task.cpu, "task {id} is on CPU place {cpu}, told {}", task.cpu);
        if is_queued {
            if let Some(home) = queues.preferred(id) {
                homes[cpu].0 += 1;
                homes[cpu].1 += u32::from(queues.homes.node_of(cpu) == home);
            }
            // Who is throttled with its group counts for nobody.
            let counts = u32::from(!fair.is_throttled(number));
            queued[cpu].0 += counts;
            queued[cpu].1 += counts * u32::from(delayed);
            let may = queues.may_run(id, cpu) || task.leaves_to.is_some() || delayed;
            hold!(found, may, "task {id} is on CPU place {cpu}, where it may not run");
        }
    }
    let figures = queues.facts().figures;
    for (cpu, &(numa, at_home)) in homes.iter().enumerate() {
        let counted = (figures[cpu].nr_numa, figures[cpu].nr_preferred);
        hold!(
            found,
            counted == (numa, at_home),
            "CPU place {cpu} counts {counted:?} tasks with a home and at home, recounted {numa}, {at_home}"
        );
    }
    for (cpu, &(all, delayed)) in queued.iter().enumerate() {
        let current = sim.cpus[cpu].current();
        let (runs, waiting) = (fair.current(cpu), fair.nr_running(cpu));
        hold!(
            found,
            current == runs.map(|t| t as usize),
            "CPU place {cpu} runs {current:?}, its queue says {runs:?}"
        );
        hold!(
            found,
            (waiting, fair.h_nr_delayed(cpu)) == (all, delayed),
            "CPU place {cpu} has {waiting} queued, recounted {all} with {delayed} delayed"
        );
        hold!(
            found,
            queues.is_idle(cpu) == (waiting == 0 && !queues.lists.pending(cpu)),
            "CPU place {cpu} has {waiting} queued, and is idle: {}",
            queues.is_idle(cpu)
        );
        hold!(
            found,
            current.is_some() || waiting == 0 || sim.called.out(cpu).is_some(),
            "CPU place {cpu} rests beside {waiting} that wait"
        );
    }
    let ran: u64 = sim.tasks.iter().map(|t| t.ran).sum();
    // An act may last beyond now.
    let ahead = sim.tasks.iter().map(|t| t.clock.saturating_sub(sim.now())).max().unwrap_or(0);
    let busy: u64 = sim.cpu_figures().iter().map(|c| c.busy_ps).sum();
    let most = busy + ahead * sim.cpus.len() as u64;
    hold!(found, ran <= most, "tasks ran for {ran} ps, CPUs were busy for {busy}");
    found
}
