//! One rule after the other, in queues that are set up by hand.

use expect_test::expect;

use super::super::*;
use super::{MS, machine, ms, queued};
use crate::sched::pelt::MIN_DIVIDER;
use crate::sched::weight::Load;

fn asleep(special: bool) -> Dequeue {
    Dequeue::Sleep { special }
}

/// Virtual run time and deadline of a task, ms.
fn times(fair: &Fair, task: u32) -> String {
    let (v, d) = fair.virtual_times(task);
    format!("{} {}", ms(v), ms(d))
}

/// Gives one who waits another virtual run time and deadline.
fn place(fair: &mut Fair, e: u32, v: i64, d: i64) {
    let queue = &mut fair.queues[0];
    let in_line = queue.curr != e;
    if in_line {
        queue.remove(&mut fair.nodes, &fair.entities[e], e);
    }
    let entity = &mut fair.entities[e];
    (entity.vruntime, entity.deadline) = (v, d);
    if in_line {
        queue.insert(&mut fair.nodes, &fair.entities[e], e);
    }
}

/// Specs: specs/sched-fair.md#pick, #yield.
#[test]
fn a_buddy_runs_if_it_is_eligible() {
    // C is not next by its deadline.
    let three = || {
        let mut fair = queued(Knobs::default(), &[(0, 0), (0, 0), (0, 0)]);
        place(&mut fair, 2, 0, 9_000_000);
        assert_eq!(fair.pick(0, 0), Pick::Task(0));
        fair
    };
    let mut fair = three();
    fair.yield_(0, 0);
    assert_eq!(fair.pick(0, 0), Pick::Task(1));
    let mut fair = three();
    assert!(fair.yield_to(0, 2, 0));
    assert_eq!(fair.pick(0, 0), Pick::Task(2));
    // Once only.
    fair.yield_(0, 0);
    assert_eq!(fair.pick(0, 0), Pick::Task(1));
    // One that is ahead of its share is no buddy.
    let mut fair = three();
    place(&mut fair, 2, 5_000_000, 9_000_000);
    assert!(fair.yield_to(0, 2, 0));
    assert_eq!(fair.pick(0, 0), Pick::Task(1));
    // A wake-up doesn't ask for the buddy: who is asked about is the first by its deadline.
    let mut fair = three();
    fair.set_next_buddy(2);
    fair.entities[0].cancel_protection();
    place(&mut fair, 1, 0, 1_000_000);
    assert!(fair.wakeup_preempts(0, 1, 0));
    // Who is not queued is none.
    assert!(!machine(1, &[0, 0], Knobs::default()).yield_to(0, 1, 0));
}

/// Specs: specs/sched-fair.md#yield.
#[test]
fn what_a_yield_gives_up() {
    let mut fair = queued(Knobs::default(), &[(0, 0)]);
    fair.pick(0, 0);
    fair.yield_(0, 0);
    assert_eq!(times(&fair, 0), "0.000000 2.800000", "alone");
    let mut fair = queued(Knobs::default(), &[(0, 0), (1_000_000, 0)]);
    fair.pick(0, 0);
    fair.yield_(0, 0);
    assert_eq!(times(&fair, 0), "2.800000 5.600000");
    // Ahead of its share it gives up nothing but the CPU.
    let mut fair = queued(Knobs::default(), &[(0, 0), (0, 0)]);
    fair.pick(0, 0);
    fair.yield_(0, MS);
    assert_eq!(times(&fair, 0), "1.000000 2.800000");
}

/// Specs: specs/sched-fair.md#preemption.
#[test]
fn policies_of_groups_and_equals() {
    // The current one is ahead and the wakee far behind, so that only its policy holds it.
    let asked = |current: SchedPolicy, wakee: SchedPolicy| {
        let mut fair = machine(1, &[0, 0], Knobs::default());
        fair.set_policy(0, current, 0);
        fair.set_policy(1, wakee, 0);
        fair.enqueue(0, 0, 0, Enqueue::Wakeup);
        fair.pick(0, 0);
        fair.entities[1].vlag = MS as i64;
        fair.enqueue(0, 1, 3 * MS, Enqueue::Wakeup);
        fair.wakeup_preempts(0, 1, 3 * MS)
    };
    let (normal, batch, idle) = (SchedPolicy::Normal, SchedPolicy::Batch, SchedPolicy::Idle);
    let table = [
        (normal, normal, true),
        (normal, batch, false),
        (normal, idle, false),
        (batch, normal, true),
        (batch, batch, false),
        (idle, normal, true),
        (idle, batch, true),
        (idle, idle, false),
    ];
    for (current, wakee, yes) in table {
        assert_eq!(asked(current, wakee), yes, "{current:?}, {wakee:?}");
    }
    // A task of policy normal in a group that is idle.
    let grouped = |idle: bool| {
        let mut fair = Fair::new(1, Knobs::default());
        let group = fair.add_group(GroupId::ROOT, 100);
        fair.set_group_idle(group, idle, 0);
        fair.add_task(0, 0, &Attr::default());
        fair.add_task(1, 0, &Attr { group, ..Attr::default() });
        fair.enqueue(0, 0, 0, Enqueue::Wakeup);
        fair.pick(0, 0);
        let q = fair.groups[group.0].queues[0];
        let owner = fair.queues[q].owner;
        fair.entities[owner].vlag = 1000;
        fair.enqueue(0, 1, 3 * MS, Enqueue::Wakeup);
        fair.wakeup_preempts(0, 1, 3 * MS)
    };
    assert_eq!([grouped(false), grouped(true)], [true, false]);
}

/// Specs: specs/sched-fair.md#preemption.
#[test]
fn a_shorter_slice_breaks_protection_if_its_turn_has_come() {
    // A runs within its first slice; B waits, with an earlier deadline; C comes, with a slice of 1 ms.
    let came = |v: i64, d: i64, slice: u32| {
        let mut fair = queued(Knobs::default(), &[(0, 0), (100_000, 0)]);
        assert_eq!(fair.pick(0, 0), Pick::Task(0));
        place(&mut fair, 1, 90_000, 2_700_000);
        fair.add_task(2, 0, &Attr { slice_ns: Some(slice), ..Attr::default() });
        fair.enqueue(0, 2, 0, Enqueue::Wakeup);
        place(&mut fair, 2, v, d);
        place(&mut fair, 0, 90_000, 2_800_000);
        fair.entities[0].vlag = 2_800_000;
        let yes = fair.wakeup_preempts(0, 2, 0);
        let Pick::Task(next) = fair.pick(0, 0) else { panic!("all are hogs") };
        (yes, next)
    };
    assert_eq!(came(90_000, 1_000_000, 1_000_000), (true, 2));
    assert_eq!(came(90_000, 1_000_000, 2_800_000), (false, 0), "as long");
    assert_eq!(came(90_000, 2_900_000, 1_000_000), (false, 0), "a later deadline");
    assert_eq!(came(900_000, 1_000_000, 1_000_000), (false, 0), "ahead of its share");
}

/// Specs: specs/sched-fair.md#slices.
#[test]
fn a_knob_is_followed_at_the_next_deadline_or_placement() {
    let knobs = Knobs { base_slice_ns: 1_000_000, ..Knobs::default() };
    let mut fair = queued(Knobs::default(), &[(0, 0), (0, 0)]);
    fair.set_slice(1, Some(5_000_000), 0);
    fair.pick(0, 0);
    fair.set_knobs(knobs);
    fair.tick(0, 2 * MS);
    assert_eq!(times(&fair, 0), "2.000000 2.800000", "what it has asked for it gets");
    fair.tick(0, 4 * MS);
    assert_eq!(times(&fair, 0), "4.000000 5.000000");
    // Of its own at a deadline and at a placement; one that comes anew.
    fair.pick(0, 4 * MS);
    fair.tick(0, 9 * MS);
    assert_eq!(times(&fair, 1), "5.000000 10.000000");
    fair.dequeue(1, 9 * MS, asleep(true));
    fair.pick(0, 9 * MS);
    fair.enqueue(0, 1, 9 * MS, Enqueue::Wakeup);
    let (v, d) = fair.virtual_times(1);
    assert_eq!(d - v, 5_000_000);
    fair.dequeue(0, 9 * MS, asleep(true));
    fair.set_knobs(Knobs { base_slice_ns: 2_000_000, ..knobs });
    fair.enqueue(0, 0, 9 * MS, Enqueue::Wakeup);
    let (v, d) = fair.virtual_times(0);
    assert_eq!(d - v, 2_000_000);
}

/// A group of two tasks beside one of the root; the group runs its first one.
fn grouped(slices: [Option<u32>; 2]) -> (Fair, u32) {
    let mut fair = Fair::new(1, Knobs::default());
    let group = fair.add_group(GroupId::ROOT, 100);
    for (task, slice_ns) in (0..).zip(slices) {
        fair.add_task(task, 0, &Attr { group, slice_ns, ..Attr::default() });
        fair.enqueue(0, task, 0, Enqueue::Wakeup);
    }
    fair.add_task(2, 0, &Attr::default());
    fair.enqueue(0, 2, 0, Enqueue::Wakeup);
    let owner = fair.queues[fair.groups[group.0].queues[0]].owner;
    (fair, owner)
}

/// Specs: specs/sched-fair.md#groups.
#[test]
fn a_group_goes_on_when_one_of_it_sleeps() {
    let next = |v: i64| {
        let (mut fair, owner) = grouped([None, None]);
        let beside = fair.entity_of(2);
        place(&mut fair, beside, 0, 20_000_000);
        assert_eq!(fair.pick(0, 0), Pick::Task(0));
        // Its turn is over, and the task beside has the earlier deadline.
        place(&mut fair, owner, v, 5_000_000);
        place(&mut fair, beside, 0, 1_000_000);
        fair.entities[owner].cancel_protection();
        assert_eq!(fair.dequeue(0, 0, asleep(true)), Dequeued::Gone);
        fair.pick(0, 0)
    };
    assert_eq!(next(0), Pick::Task(1), "the buddy");
    assert_eq!(next(1_000_000), Pick::Task(2), "ahead of its share");
}

/// Specs: specs/sched-fair.md#groups.
#[test]
fn a_group_has_the_smallest_slice_inside() {
    let (mut fair, owner) = grouped([Some(3_000_000), Some(1_000_000)]);
    let slice = |fair: &Fair| fair.entities[owner].slice;
    assert_eq!(slice(&fair), 1_000_000);
    fair.dequeue(1, 0, asleep(true));
    assert_eq!(slice(&fair), 3_000_000);
    fair.pick(0, 0);
    fair.enqueue(0, 1, 0, Enqueue::Wakeup);
    assert_eq!(slice(&fair), 1_000_000);
    // The running one counts.
    fair.set_slice(1, Some(9_000_000), 0);
    assert_eq!((fair.current(0), slice(&fair)), (Some(0), 3_000_000));
}

/// Specs: specs/sched-fair.md#delayed, #groups.
#[test]
fn an_empty_group_that_is_ahead_stays_and_keeps_its_weight() {
    let (mut fair, owner) = grouped([None, None]);
    fair.dequeue(1, 0, asleep(true));
    fair.pick(0, 0);
    place(&mut fair, owner, 1_000_000, 2_800_000);
    let weight = fair.entities[owner].load.scaled;
    // It would weigh next to nothing, if it were weighed now.
    let all = fair.entities[owner].my_q;
    let group_of = fair.queues[all].group;
    fair.groups[group_of].load_avg = 1 << 30;
    // The task itself is alone on its queue, so it goes.
    assert_eq!(fair.dequeue(0, 0, asleep(false)), Dequeued::Gone);
    let group = |fair: &Fair| {
        let e = &fair.entities[owner];
        (e.on_rq, e.delayed, e.load.scaled)
    };
    assert_eq!(group(&fair), (true, true, weight));
    assert_eq!((fair.nr_running(0), fair.queues[0].nr), (1, 2));
    assert_eq!(fair.pick(0, 0), Pick::Task(2));
    fair.tick(0, 4 * MS);
    assert_eq!(group(&fair), (true, true, weight));
    fair.tick(0, 8 * MS);
    assert_eq!(fair.pick(0, 8 * MS), Pick::Task(2), "the group was first, and has left");
    assert!(!fair.entities[owner].on_rq);
}

/// Specs: specs/sched-fair.md#reweight.
#[test]
fn a_group_that_weighs_more_keeps_lag_and_request_in_time() {
    // V is 1 ms; the lag of one at 0 is 1 ms, its deadline 1.8 ms from V.
    let told = |v: i64, on: bool| {
        let mut fair = queued(Knobs::default(), &[(0, 0), (0, 0)]);
        place(&mut fair, 0, v, 2_800_000);
        place(&mut fair, 1, 2_000_000 - v, 2_800_000);
        if !on {
            fair.dequeue(0, 0, asleep(true));
            fair.reweight(0, 0, Load::of_scaled(2048 * 1024));
            return ms(fair.vlag(0));
        }
        fair.reweight(0, 0, Load::of_scaled(2048 * 1024));
        times(&fair, 0)
    };
    expect![[r#"
        0.500000 1.900000
        1.250000 1.900000
        -1.800000 1.900000
        0.500000"#]]
    .assert_eq(
        &[told(0, true), told(1_500_000, true), told(-20_000_000, true), told(0, false)].join("\n"),
    );
}

/// Specs: specs/sched-fair.md#groups.
#[test]
fn a_group_hears_of_its_queues_seldom() {
    let mut fair = Fair::new(2, Knobs::default());
    let group = fair.add_group(GroupId::ROOT, 100);
    let mut text = String::new();
    let mut say = |what: &str, fair: &Fair, cpu: usize| {
        let q = fair.groups[group.0].queues[cpu];
        let weight = fair.entities[fair.queues[q].owner].load.scaled;
        let load = fair.queues[q].avg.load_avg;
        text +=
            &format!("{what}: load {load} of {}, weight {weight}\n", fair.groups[group.0].load_avg);
    };
    for task in 0..3 {
        fair.add_task(task, 0, &Attr { group, ..Attr::default() });
    }
    fair.add_task(3, 1, &Attr { group, ..Attr::default() });
    fair.enqueue(0, 0, 0, Enqueue::Fork);
    say("at 0 nothing is told", &fair, 0);
    fair.pick(0, 0);
    fair.enqueue(0, 1, MS, Enqueue::Fork);
    say("a ms later it is", &fair, 0);
    fair.enqueue(0, 2, 3 * MS / 2, Enqueue::Fork);
    say("half a ms later it isn't", &fair, 0);
    fair.tick(0, 3 * MS);
    say("at the tick", &fair, 0);
    fair.enqueue(1, 3, 5 * MS, Enqueue::Fork);
    say("one on the other CPU", &fair, 1);
    fair.tick(0, 6 * MS);
    say("here it is seen at the tick", &fair, 0);
    // What sleeps is in the averages still, and counts, where it is more than the weight.
    fair.dequeue(2, 6 * MS, asleep(true));
    say("two are left here", &fair, 0);
    // And the weight where that is more: nothing ran on the other CPU for long.
    fair.dequeue(3, 7 * MS, asleep(true));
    fair.update_blocked(1, 500 * MS);
    fair.enqueue(1, 3, 500 * MS, Enqueue::Wakeup);
    say("woken after half a second", &fair, 1);
    fair.groups[group.0].load_avg = 1 << 40;
    fair.tick(0, 501 * MS);
    say("never less than 2 of 1048576", &fair, 0);
    expect![[r#"
        at 0 nothing is told: load 1024 of 0, weight 1048576
        a ms later it is: load 2048 of 2048, weight 1048576
        half a ms later it isn't: load 3072 of 2048, weight 1048576
        at the tick: load 3072 of 3072, weight 1048576
        one on the other CPU: load 1024 of 4096, weight 262144
        here it is seen at the tick: load 3072 of 4096, weight 786432
        two are left here: load 3072 of 4096, weight 786432
        woken after half a second: load 0 of 3072, weight 262144
        never less than 2 of 1048576: load 2048 of 1099511626752, weight 2
    "#]]
    .assert_eq(&text);
}

/// Averages as they stand, `load runnable util`, of a task and of the CPU.
fn averages(fair: &Fair, task: u32) -> String {
    let (t, q) = (fair.task_avg(task), &fair.queues[0].avg);
    format!(
        "{} {} {}, CPU {} {} {}",
        t.load_avg, t.runnable_avg, t.util_avg, q.load_avg, q.runnable_avg, q.util_avg
    )
}

/// Specs: specs/sched-fair.md#pelt-inputs.
#[test]
fn who_sleeps_but_stays_weighs_and_is_not_runnable() {
    let mut fair = machine(1, &[0, 0], Knobs::default());
    let mut now = 0;
    for task in 0..2 {
        fair.enqueue(0, task, now, Enqueue::Fork);
    }
    let mut text = String::new();
    fair.pick(0, now);
    let ticks = |fair: &mut Fair, now: &mut u64, ms: u64| {
        for _ in 0..ms {
            *now += MS;
            fair.tick(0, *now);
        }
    };
    ticks(&mut fair, &mut now, 400);
    text += &format!("it waits: {}\n", averages(&fair, 1));
    fair.pick(0, now);
    let curr = fair.current(0).expect("two hogs");
    assert_eq!(curr, 1);
    // It has to be ahead to stay.
    fair.tick(0, now + 500 * MS);
    now += 500 * MS;
    text += &format!("it runs: {}\n", averages(&fair, 1));
    assert_eq!(fair.dequeue(1, now, asleep(false)), Dequeued::Delayed);
    assert_eq!(fair.pick(0, now), Pick::Task(0));
    ticks(&mut fair, &mut now, 32);
    fair.update_load_avg(0, 1, super::super::load::PLAIN);
    text += &format!("32 ms after it has gone to sleep: {}\n", averages(&fair, 1));
    expect![[r#"
        it waits: 1024 256 256, CPU 2048 2048 1024
        it runs: 1024 1024 1023, CPU 2048 2048 1024
        32 ms after it has gone to sleep: 1024 528 528, CPU 2048 1552 1024
    "#]]
    .assert_eq(&text);
}

/// A task is taken off the average and off the estimate, not off the larger of the two.
///
/// Specs: specs/sched-fair.md#util-est.
#[test]
fn what_a_cpu_would_be_used_without_a_task() {
    let mut fair = machine(1, &[0], Knobs::default());
    fair.enqueue(0, 0, 0, Enqueue::Fork);
    fair.pick(0, 0);
    // Of the CPU: average, estimate; of the task; without it.
    for (cpu, task, left) in [
        ((600, 300), (600, 100), 200),
        ((300, 600), (100, 600), 200),
        ((500, 400), (100, 100), 400),
        ((100, 100), (200, 300), 0),
        ((3000, 0), (100, 0), 1024),
    ] {
        let e = fair.entity_of(0);
        (fair.queues[0].avg.util_avg, fair.queues[0].avg.util_est) = cpu;
        (fair.entities[e].avg.util_avg, fair.entities[e].avg.util_est) = task;
        assert_eq!(fair.cpu_util_without(0, 0), left, "{cpu:?} {task:?}");
    }
}

/// Tasks of another class have the CPU: who is queued weighs and wants to run, and nobody runs.
///
/// Specs: specs/sched-fair.md#pelt-inputs.
#[test]
fn a_queue_whose_cpu_another_class_has_does_not_run() {
    let mut fair = machine(1, &[0], Knobs::default());
    fair.enqueue(0, 0, 0, Enqueue::Fork);
    fair.pick(0, 0);
    (1..=400).for_each(|ms| {
        fair.tick(0, ms * MS);
    });
    let before = fair.queues[0].avg;
    fair.put_prev(0, 400 * MS);
    fair.update_blocked(0, 400 * MS + 32 * 1_048_576);
    let q = &fair.queues[0].avg;
    let near = |now: u32, then: u32| now.abs_diff(then) <= 1;
    assert!(before.util_avg > 1000 && near(q.util_avg, before.util_avg / 2), "{q:?}");
    assert!(
        near(q.load_avg as u32, before.load_avg as u32)
            && near(q.runnable_avg, before.runnable_avg),
        "{q:?}"
    );
}

/// Specs: specs/sched-fair.md#util-est.
#[test]
fn who_sleeps_takes_its_estimate_along() {
    let mut fair = queued(Knobs::default(), &[(0, 0), (0, 0)]);
    for (task, est) in [(0, 100), (1, 300)] {
        fair.entities[task].avg.util_est = est;
        fair.queues[0].avg.util_est += est;
    }
    fair.pick(0, 0);
    let est = |fair: &Fair| fair.queues[0].avg.util_est;
    assert_eq!(est(&fair), 400);
    // A change of nice is no sleep: the estimate is not learnt from it.
    fair.entities[0].util_changed = true;
    fair.set_nice(0, 1, 0);
    assert_eq!((est(&fair), fair.entities[0].avg.util_est), (400, 100));
    place(&mut fair, 1, 1_000_000, 2_800_000);
    fair.entities[1].util_changed = false;
    assert_eq!(fair.dequeue(1, 0, asleep(false)), Dequeued::Delayed);
    assert_eq!(est(&fair), 100, "it is still queued");
    assert_eq!(fair.entities[1].avg.util_est, 300, "its averages have not changed");
    fair.enqueue(0, 1, 0, Enqueue::Wakeup);
    assert_eq!(est(&fair), 400);
    fair.entities[1].util_changed = true;
    fair.dequeue(1, 0, asleep(true));
    assert_eq!(
        (est(&fair), fair.entities[1].avg.util_est),
        (100, 225),
        "a quarter of the way to 0"
    );
}

/// Specs: specs/sched-fair.md#pelt-migration.
#[test]
fn who_joins_a_cpu_takes_over_its_place_in_the_period() {
    let mut fair = machine(2, &[0, 5, 0], Knobs::default());
    // The clock of the other one's averages passes half as fast.
    fair.set_speed(1, 0, 512, 1024);
    fair.enqueue(0, 0, 0, Enqueue::Fork);
    fair.enqueue(0, 1, 0, Enqueue::Fork);
    fair.migrate(2, 1, 0);
    fair.enqueue(1, 2, 700_000, Enqueue::Fork);
    fair.pick(0, 0);
    fair.pick(1, 700_000);
    fair.tick(0, 20 * MS);
    fair.tick(1, 20 * MS);
    fair.dequeue(1, 20 * MS, Dequeue::Move);
    // As if its sums had been cut off.
    let avg = &mut fair.entities[1].avg;
    (avg.util_avg, avg.util_sum) = (300, 5);
    let before = *fair.task_avg(1);
    fair.migrate(1, 1, 20 * MS);
    fair.enqueue(1, 1, 20 * MS, Enqueue::Migrated);
    let (avg, there) = (*fair.task_avg(1), fair.queues[1].avg);
    let d = MIN_DIVIDER + u64::from(there.period_contrib);
    assert_ne!(before.period_contrib, avg.period_contrib);
    assert_eq!(
        (avg.last_update_time, avg.period_contrib),
        (there.last_update_time, there.period_contrib)
    );
    assert_eq!((avg.load_avg, avg.util_avg), (before.load_avg, before.util_avg));
    assert_eq!(
        (avg.util_sum, avg.runnable_sum, avg.load_sum),
        (u64::from(avg.util_avg) * d, u64::from(avg.runnable_avg) * d, avg.load_avg * d / 335)
    );
    // Nothing is left of one that slept for long, but its sum is at least 1.
    fair.dequeue(1, 20 * MS, asleep(true));
    fair.entities[1].avg = Default::default();
    fair.migrate(1, 0, 20 * MS);
    fair.enqueue(0, 1, 20 * MS, Enqueue::Wakeup);
    assert_eq!((fair.task_avg(1).load_avg, fair.task_avg(1).load_sum), (0, 1));
}

/// Specs: specs/sched-fair.md#pelt-migration.
#[test]
fn a_sleeper_is_aged_as_its_old_cpu_has_seen_it() {
    // It sleeps beside a hog on CPU 0, or leaves CPU 0 idle, and is woken 32 periods later on CPU 1. CPU 0's averages
    // were brought up to date after so many of these.
    let woken = |hog: bool, updated: u64| {
        let mut fair = machine(2, &[0, 0], Knobs::default());
        fair.enqueue(0, 0, 0, Enqueue::Fork);
        fair.pick(0, 0);
        fair.tick(0, 400 * MS);
        if hog {
            fair.enqueue(0, 1, 400 * MS, Enqueue::Fork);
        }
        fair.dequeue(0, 400 * MS, asleep(true));
        if fair.pick(0, 400 * MS) == Pick::Idle {
            fair.go_idle(0, 400 * MS);
        }
        let at = |periods: u64| 400 * MS + periods * 1_048_576;
        if updated > 0 {
            fair.update_blocked(0, at(updated));
        }
        fair.migrate(0, 1, at(32));
        fair.task_load_avg(0)
    };
    expect!["idle 511 511, busy 1023 724 511"].assert_eq(&format!(
        "idle {} {}, busy {} {} {}",
        woken(false, 0),
        woken(false, 16),
        woken(true, 0),
        woken(true, 16),
        woken(true, 32),
    ));
}

/// Specs: specs/sched-fair.md#pelt-h-load.
#[test]
fn a_tasks_load_for_the_cpu_is_worked_out_once_a_tick() {
    let mut fair = machine(1, &[0, 0], Knobs::default());
    fair.enqueue(0, 0, 0, Enqueue::Fork);
    // 1024 * 1024 / 1025, and not 1024.
    assert_eq!(fair.task_h_load(0, 7), 1023);
    fair.enqueue(0, 1, 0, Enqueue::Fork);
    // The queue's own load is 2048 by now, but its h_load that of before: 1024 * 1024 / 2049.
    assert_eq!(fair.task_h_load(0, 7), 511);
    assert_eq!(fair.task_h_load(0, 8), 1023);
}

/// Specs: specs/sched-fair.md#pelt-queues.
#[test]
fn a_group_hands_up_what_comes_and_goes() {
    let mut fair = Fair::new(2, Knobs::default());
    let group = fair.add_group(GroupId::ROOT, 100);
    for task in 0..3 {
        fair.add_task(task, 0, &Attr { group, ..Attr::default() });
        fair.enqueue(0, task, 0, Enqueue::Fork);
    }
    let q = fair.groups[group.0].queues[0];
    let owner = fair.queues[q].owner;
    let mut text = String::new();
    let mut say = |what: &str, fair: &Fair| {
        let (e, of, root) = (&fair.entities[owner].avg, &fair.queues[q].avg, &fair.queues[0].avg);
        assert_eq!((e.util_avg, e.runnable_avg), (of.util_avg, of.runnable_avg), "{what}");
        text += &format!(
            "{what}: load {}, its entity {}, CPU {}; util {}, CPU {}\n",
            of.load_avg, e.load_avg, root.load_avg, of.util_avg, root.util_avg
        );
    };
    say("three are born", &fair);
    fair.pick(0, 0);
    for tick in 1..=100 {
        if fair.tick(0, tick * 4 * MS) {
            fair.pick(0, tick * 4 * MS);
        }
    }
    say("they have run for 400 ms", &fair);
    let waits = (0..3).find(|t| fair.current(0) != Some(*t)).expect("two wait");
    fair.dequeue(waits, 400 * MS, Dequeue::Move);
    fair.migrate(waits, 1, 400 * MS);
    fair.enqueue(1, waits, 400 * MS, Enqueue::Migrated);
    say("one is moved away", &fair);
    let other = (0..3).find(|t| fair.current(0) != Some(*t) && *t != waits).expect("one waits");
    fair.dequeue(other, 400 * MS, asleep(true));
    say("one sleeps", &fair);
    fair.migrate(other, 1, 401 * MS);
    fair.tick(0, 402 * MS);
    say("and is woken elsewhere", &fair);
    expect![[r#"
        three are born: load 3072, its entity 1024, CPU 1024; util 896, CPU 896
        they have run for 400 ms: load 3072, its entity 1023, CPU 1024; util 1023, CPU 1023
        one is moved away: load 2049, its entity 1023, CPU 1024; util 654, CPU 654
        one sleeps: load 2049, its entity 682, CPU 683; util 654, CPU 654
        and is woken elsewhere: load 1025, its entity 511, CPU 512; util 342, CPU 342
    "#]]
    .assert_eq(&text);
}

/// Who is woken in a group that is throttled takes the CPU from nobody, not even from one of policy idle.
///
/// Specs: specs/sched-fair.md#preemption, #bandwidth.
#[test]
fn a_wakee_whose_group_is_throttled_preempts_nobody() {
    let woken = |throttled: bool| {
        let mut fair = Fair::new(1, Knobs::default());
        let group = fair.add_group(GroupId::ROOT, 100);
        let quota_ns = if throttled { MS } else { 100 * MS };
        fair.set_quota(group, Some(Quota { quota_ns, period_ns: 100 * MS, burst_ns: 0 }), 0);
        let idle = Attr { policy: SchedPolicy::Idle, ..Attr::default() };
        for (task, attr) in [(0, Attr { group, ..Attr::default() }), (1, idle)] {
            fair.add_task(task, 0, &attr);
            fair.enqueue(0, task, 0, Enqueue::Wakeup);
        }
        fair.add_task(2, 0, &Attr { group, ..Attr::default() });
        assert_eq!(fair.pick(0, 0), Pick::Task(0));
        fair.tick(0, 4 * MS);
        if !throttled {
            fair.dequeue(0, 4 * MS, Dequeue::Sleep { special: true });
        }
        assert_eq!(fair.pick(0, 4 * MS), Pick::Task(1));
        fair.enqueue(0, 2, 5 * MS, Enqueue::Wakeup);
        (fair.wakeup_preempts(0, 2, 5 * MS), fair.need_resched(0))
    };
    assert_eq!([woken(false), woken(true)], [(true, true), (false, false)]);
}

/// A group that one of its tasks made the buddy when it fell asleep is none any more when its slice is over before the
/// next pick: the earlier deadline beside it counts then.
///
/// Specs: specs/sched-fair.md#charging, #groups.
#[test]
fn a_buddy_whose_slice_is_over_is_forgotten() {
    let picked = |at: u64| {
        let mut fair = Fair::new(1, Knobs::default());
        let group = fair.add_group(GroupId::ROOT, 100);
        for (task, of) in [(0, group), (1, group), (2, GroupId::ROOT), (3, GroupId::ROOT)] {
            fair.add_task(task, 0, &Attr { group: of, ..Attr::default() });
            fair.enqueue(0, task, 0, Enqueue::Wakeup);
        }
        assert_eq!(fair.pick(0, 0), Pick::Task(0));
        // One of the root waits with a deadline at 6 ms, the other is far ahead: so both the group and the first of
        // them have had no more than their share.
        let [near, far] = [2, 3].map(|task| fair.entity_of(task));
        place(&mut fair, near, 3 * MS as i64, 6 * MS as i64);
        place(&mut fair, far, 50 * MS as i64, 53 * MS as i64);
        fair.dequeue(0, 2 * MS, asleep(true));
        let owner = fair.queues[fair.groups[group.0].queues[0]].owner;
        assert_eq!(fair.queues[0].next, owner, "the group is the buddy");
        fair.pick(0, at)
    };
    // At 2.1 ms the group goes on; at 10 its slice is over, and its next deadline is beyond 6.
    assert_eq!(picked(2_100_000), Pick::Task(1));
    assert_eq!(picked(10 * MS), Pick::Task(2));
}

/// What a group hands up: its load is runnable for as long as it ran at least, whatever is left in it, and what has
/// left from elsewhere leaves it as well.
///
/// Specs: specs/sched-fair.md#pelt-queues, #pelt-migration.
#[test]
fn what_a_group_hands_up() {
    let handed = |load_sum: u64, ran: u64, gone: bool| {
        let mut fair = Fair::new(1, Knobs::default());
        let group = fair.add_group(GroupId::ROOT, 100);
        fair.add_task(0, 0, &Attr { group, ..Attr::default() });
        let q = fair.queue_of(group.0, 0);
        let owner = fair.queues[q].owner;
        let now = fair.queues[q].avg.last_update_time;
        let divider = fair.queues[0].avg.divider();
        // The group has a queue's utilisation already, and so much load.
        let util = (ran / divider) as u32;
        let entity = &mut fair.entities[owner].avg;
        (entity.load_sum, entity.load_avg) = (30_000, 1024 * 30_000 / divider);
        (entity.util_sum, entity.util_avg) = (ran, util);
        fair.queues[0].avg.load_avg = 1024 * 30_000 / divider;
        fair.queues[0].avg.load_sum = 1024 * 30_000;
        let queue = &mut fair.queues[q];
        (queue.avg.load_sum, queue.avg.util_avg) = (load_sum, util);
        if gone {
            queue.removed.nr = 1;
            queue.removed.runnable_avg = 512;
        } else {
            (queue.propagate, queue.prop_runnable_sum) = (true, -1);
        }
        fair.update_queue_avg(q, now);
        fair.update_load_avg(0, owner, super::super::load::PLAIN);
        let entity = &fair.entities[owner].avg;
        format!("{} {}, root {}", entity.load_sum, entity.load_avg, fair.queues[0].avg.load_avg)
    };
    let told = [
        ("nothing is left, and it did not run", handed(0, 0, false)),
        ("nothing is left; it ran for 20,000 units", handed(0, 20_000 << 10, false)),
        ("one left from another CPU", handed(0, 0, true)),
    ]
    .map(|(what, came)| format!("{what}: {came}\n"));
    expect![[r#"
        nothing is left, and it did not run: 0 0, root 0
        nothing is left; it ran for 20,000 units: 20000 438, root 438
        one left from another CPU: 0 0, root 0
    "#]]
    .assert_eq(&told.concat());
}
