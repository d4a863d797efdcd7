//! Everything that is kept up to date, counted anew.

use super::super::*;
use crate::sched::weight::scale_down;

/// Whether a task is idle to a queue that it is below: by its policy, or by a group between the two.
fn is_idle_to(fair: &Fair, q: u32, e: u32) -> bool {
    let mut idle = fair.entities[e].policy == SchedPolicy::Idle;
    let mut at = fair.entities[e].queue;
    while at != q {
        idle |= fair.groups[fair.queues[at].group].idle;
        at = fair.entities[fair.queues[at].owner].queue;
    }
    idle
}

/// Panics where something that is kept differs from what is there.
pub(super) fn check(fair: &Fair) {
    let entities: Vec<u32> =
        (0..fair.entities.0.len() as u32).filter(|e| !fair.free.contains(e)).collect();
    for q in (0..fair.queues.0.len() as u32).filter(|q| !fair.free_queues.contains(q)) {
        let queue = &fair.queues[q];
        let mine: Vec<u32> = entities
            .iter()
            .copied()
            .filter(|&e| fair.entities[e].queue == q && fair.entities[e].on_rq)
            .collect();
        assert_eq!(queue.nr as usize, mine.len(), "entities of queue {q}");
        let weight: u64 = mine.iter().map(|&e| u64::from(fair.entities[e].load.scaled)).sum();
        assert_eq!(queue.weight, weight, "weight of queue {q}");

        let line: Vec<u32> = mine.iter().copied().filter(|&e| queue.curr != e).collect();
        let mut kept = queue.line.entities(&fair.nodes);
        assert!(
            kept.windows(2).all(|w| {
                fair.entities[w[0]].deadline.wrapping_sub(fair.entities[w[1]].deadline) <= 0
            }),
            "order of queue {q}"
        );
        for buddy in [queue.next, queue.last, queue.skip] {
            assert!(buddy == NONE || mine.contains(&buddy), "a buddy is queued: queue {q}");
        }
        if fair.knobs.rules.is_cfs() {
            let keyed = |&e: &u32| fair.entities[e].deadline == fair.entities[e].vruntime;
            assert!(line.iter().all(keyed), "keys of queue {q}");
        }
        kept.sort_unstable();
        assert_eq!(kept, line, "who waits on queue {q}");
        let slice = line.iter().map(|&e| fair.entities[e].slice).min();
        assert_eq!(queue.line.min_slice(&fair.nodes), slice, "smallest slice of queue {q}");
        let key = |e: u32| i128::from(fair.entities[e].vruntime.wrapping_sub(queue.zero));
        let sum: i128 = line.iter().map(|&e| key(e) * i128::from(fair.entities[e].load.w)).sum();
        let line_weight: u64 = line.iter().map(|&e| u64::from(fair.entities[e].load.w)).sum();
        assert_eq!((queue.sum, queue.line_weight), (sum, line_weight), "sums of queue {q}");

        // The lags of all add up to nothing: what is missing is what V is rounded by.
        let all: i128 = mine.iter().map(|&e| i128::from(fair.entities[e].load.w)).sum();
        if all > 0 {
            let weighted: i128 =
                mine.iter().map(|&e| key(e) * i128::from(fair.entities[e].load.w)).sum();
            let v = weighted.div_euclid(all);
            let lags: i128 =
                mine.iter().map(|&e| (v - key(e)) * i128::from(fair.entities[e].load.w)).sum();
            assert!((-all..=0).contains(&lags), "lags of queue {q}: {lags} of {all}");
        }

        // Tasks here and below, but not below who is throttled.
        let tasks = tasks_below(fair, q, &entities);
        let delayed = tasks.iter().filter(|&&e| fair.entities[e].delayed).count();
        let idle = tasks.iter().filter(|&&e| is_idle_to(fair, q, e)).count();
        assert_eq!(
            (queue.h_nr as usize, queue.h_nr_delayed as usize, queue.idle_h_nr as usize),
            (tasks.len(), delayed, idle),
            "tasks below queue {q}"
        );

        // A group's entity is queued exactly while it has somebody, unless it waits to leave or is throttled.
        if queue.owner != NONE {
            let owner = &fair.entities[queue.owner];
            if owner.on_rq {
                assert!(queue.nr > 0 || owner.delayed, "group entity of empty queue {q}");
                assert!(!queue.limited.throttled, "throttled queue {q} is queued above");
            } else {
                assert!(queue.nr == 0 || queue.limited.throttled, "queue {q} is nowhere queued");
            }
            // Not held against what the group weighs now: an empty one keeps what it had.
            assert!(owner.load.scaled >= 2, "weight of the group of queue {q}");
            assert_eq!(u64::from(owner.load.w), scale_down(u64::from(owner.load.scaled)));
        }
        // Averages stay within what they can be.
        assert!(queue.avg.period_contrib < 1024);
    }
    for (g, group) in fair.groups.0.iter().enumerate().skip(1) {
        let sum: u64 =
            group.queues.iter().filter(|&&q| q != NONE).map(|&q| fair.queues[q].contribution).sum();
        assert_eq!(group.load_avg, sum, "load of group {g}");
    }
    for cpu in 0..fair.rqs.0.len() as u32 {
        // The current task is the current one of each queue above it, and of no other.
        let mut on_path = vec![];
        let mut e = fair.rqs[cpu].curr;
        while e != NONE {
            on_path.push((fair.entities[e].queue, e));
            e = fair.queues[fair.entities[e].queue].owner;
        }
        for q in (0..fair.queues.0.len() as u32).filter(|q| !fair.free_queues.contains(q)) {
            let queue = &fair.queues[q];
            if queue.cpu == cpu {
                let expected = on_path.iter().find(|p| p.0 == q).map_or(NONE, |p| p.1);
                assert_eq!(queue.curr, expected, "current of queue {q}");
            }
        }
        // The balancer's list has all queued tasks once, from both ends.
        let mut listed = vec![];
        let mut next = fair.coldest(cpu as usize);
        while let Some(t) = next {
            listed.push(fair.entity_of(t));
            next = fair.warmer(t);
        }
        let mut back = vec![];
        let mut e = fair.rqs[cpu].newest;
        while e != NONE {
            back.push(e);
            e = fair.entities[e].older;
        }
        back.reverse();
        assert_eq!(listed, back);
        listed.sort_unstable();
        let queued: Vec<u32> = entities
            .iter()
            .copied()
            .filter(|&e| {
                let entity = &fair.entities[e];
                entity.is_task() && entity.on_rq && entity.cpu == cpu
            })
            .collect();
        assert_eq!(listed, queued, "list of CPU {cpu}");
    }
}

fn tasks_below(fair: &Fair, q: u32, entities: &[u32]) -> Vec<u32> {
    let mut tasks = vec![];
    for &e in entities {
        let entity = &fair.entities[e];
        if entity.queue != q {
            continue;
        }
        if entity.is_task() {
            if entity.on_rq {
                tasks.push(e);
            }
        } else if !fair.queues[entity.my_q].limited.throttled {
            tasks.extend(tasks_below(fair, entity.my_q, entities));
        }
    }
    tasks
}
