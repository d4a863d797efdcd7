//! What a cycle of the fair class costs: one task sleeps, another is picked, the sleeper is woken.
//!
//! `cargo run --release -p homenode-core --example sched_fair`

#![allow(clippy::print_stdout, reason = "it prints what it measures")]

use std::time::Instant;

use homenode_core::sched::fair::{Attr, Dequeue, Enqueue, Fair, GroupId, Knobs, Pick};

/// ns of a cycle on a queue of so many tasks, `depth` groups below the root, and a sum that must not change.
fn cycle(tasks: u32, depth: u32, cycles: u64, pass_ns: u64) -> (u128, u64) {
    let mut fair = Fair::new(1, Knobs::default());
    let mut group = GroupId::ROOT;
    for _ in 0..depth {
        group = fair.add_group(group, 100);
    }
    let attr = Attr { group, ..Attr::default() };
    for task in 0..tasks {
        fair.add_task(task, 0, &attr);
        fair.enqueue(0, task, 0, Enqueue::Fork);
    }
    let (mut now, mut sum) = (0, 0_u64);
    let mut run = |cycles: u64| {
        for _ in 0..cycles {
            now += pass_ns;
            let runs = match fair.pick(0, now) {
                Pick::Task(t) => t,
                // Its wake-up comes at once.
                Pick::LeftDelayed(t) => {
                    fair.enqueue(0, t, now, Enqueue::Wakeup);
                    continue;
                }
                Pick::Idle => {
                    fair.go_idle(0, now);
                    continue;
                }
            };
            now += pass_ns;
            fair.dequeue(runs, now, Dequeue::Sleep { special: false });
            let next = fair.pick(0, now);
            if next == Pick::Idle {
                fair.go_idle(0, now);
            }
            fair.enqueue(0, runs, now + pass_ns, Enqueue::Wakeup);
            fair.wakeup_preempts(0, runs, now + pass_ns);
            sum = sum.wrapping_mul(31).wrapping_add(u64::from(runs));
        }
    };
    run(cycles / 10);
    // The best of many short stretches: a busy machine disturbs some, not all.
    let mut best = u128::MAX;
    for _ in 0..100 {
        let start = Instant::now();
        run(cycles / 100);
        best = best.min(start.elapsed().as_nanos() * 100 / u128::from(cycles));
    }
    (best, sum)
}

fn main() {
    println!("dequeue, two picks, enqueue, preemption test: ns a cycle");
    println!("{:>6} {:>7} {:>10} {:>10} {:>18}", "tasks", "groups", "5 us", "300 us", "hash");
    for tasks in [1, 4, 16, 1000] {
        for depth in [0, 2] {
            let (short, a) = cycle(tasks, depth, 2_000_000, 1_700);
            let (long, b) = cycle(tasks, depth, 2_000_000, 100_000);
            println!("{tasks:>6} {depth:>7} {short:>10} {long:>10} {:>18x}", a ^ b);
        }
    }
}
