//! Vectors and stories; `tests/plain.rs` beside has a slow model of one queue, `recount` counts everything anew.

mod cfs;

mod plain;

mod recount;

mod vectors;

use std::fmt::Write;

use expect_test::{Expect, expect};

use super::*;
use crate::sched::weight::base_slice_ns;

const MS: u64 = 1_000_000;

fn ms(x: i64) -> String {
    format!("{}.{:06}", x / 1_000_000, (x % 1_000_000).abs())
}

/// One CPU, or more, with tasks of these nice levels at home on the first, none queued.
fn machine(cpus: usize, nices: &[i8], knobs: Knobs) -> Fair {
    let mut fair = Fair::new(cpus, knobs);
    for (task, &nice) in (0..).zip(nices) {
        fair.add_task(task, 0, &Attr { nice, ..Attr::default() });
    }
    fair
}

/// Puts tasks on the queue with virtual run times that a test wants, in ns.
fn queued(knobs: Knobs, tasks: &[(i64, i8)]) -> Fair {
    let nices: Vec<i8> = tasks.iter().map(|t| t.1).collect();
    let mut fair = machine(1, &nices, knobs);
    for (task, &(v, _)) in (0..).zip(tasks) {
        put(&mut fair, task, v);
    }
    fair
}

/// Puts a task there, with a whole slice.
fn put(fair: &mut Fair, task: u32, v: i64) {
    let now = fair.rqs[0].clock.task;
    fair.enqueue(0, task, now, Enqueue::Wakeup);
    let e = fair.entity_of(task);
    let queue = &mut fair.queues[0];
    queue.remove(&mut fair.nodes, &fair.entities[e], e);
    let entity = &mut fair.entities[e];
    entity.vruntime = v;
    entity.deadline = v + entity.load.vd(u64::from(entity.slice)) as i64;
    queue.insert(&mut fair.nodes, &fair.entities[e], e);
}

fn v_of(fair: &mut Fair) -> i64 {
    fair.queues[0].virtual_time(&fair.entities)
}

/// Specs: specs/sched-fair.md#queue.
#[test]
fn the_mean_is_exact() {
    let mut fair = queued(Knobs::default(), &[(1_000_000, 0), (4_000_000, 5)]);
    assert_eq!(v_of(&mut fair), 1_739_514);
    let mut fair = queued(Knobs::default(), &[(0, 0), (-3, 0), (-4, 0)]);
    assert_eq!(v_of(&mut fair), -3);
    // Eligible: 3 * -3 <= -7, but not 3 * -2.
    let eligible = |v| fair.queues[0].eligible(&fair.entities, v);
    assert_eq!([-4, -3, -2].map(eligible), [true, true, false]);
    let mut fair = queued(Knobs::default(), &[(77, 0)]);
    assert_eq!(v_of(&mut fair), 77);
}

/// Specs: specs/sched-fair.md#queue.
#[test]
fn lag_is_limited() {
    let limit = |base_slice_ns, nice| {
        let fair = machine(1, &[nice], Knobs { base_slice_ns, ..Knobs::default() });
        let entity = &fair.entities[0];
        assert_eq!(entity.lag(i64::MIN / 2, 4 * MS), -entity.lag(i64::MAX / 2, 4 * MS));
        entity.lag(i64::MAX / 2, 4 * MS)
    };
    assert_eq!(limit(2_800_000, 0), 5_600_000);
    assert_eq!(limit(2_800_000, 5), 17_117_612);
    assert_eq!(limit(700_000, 0), 4_000_000);
}

/// Where a task of a lag, ms * 10, lands beside hogs, ms.
fn placed(hogs: &[i64], lag: i64, nice: i8, how: Enqueue) -> String {
    let mut tasks: Vec<(i64, i8)> = hogs.iter().map(|&h| (h * 1_000_000, 0)).collect();
    tasks.push((0, nice));
    let nices: Vec<i8> = tasks.iter().map(|t| t.1).collect();
    let mut fair = machine(1, &nices, Knobs::default());
    for (task, &hog) in (0..).zip(hogs) {
        put(&mut fair, task, hog * 1_000_000);
    }
    let new = hogs.len() as u32;
    fair.entities[new].vlag = lag;
    fair.enqueue(0, new, 0, how);
    let (v, d) = fair.virtual_times(new);
    format!("{} {}", ms(v), ms(d))
}

/// Specs: specs/sched-fair.md#placement.
#[test]
fn placement_vectors() {
    let got = [
        placed(&[10], 1_000_000, 0, Enqueue::Wakeup),
        placed(&[10], -1_000_000, 0, Enqueue::Wakeup),
        placed(&[10, 12, 14], 5_600_000, 0, Enqueue::Wakeup),
        placed(&[10], 0, 0, Enqueue::Fork),
        placed(&[10], 0, 5, Enqueue::Fork),
    ];
    expect![[r#"
        8.000000 10.800000
        12.000000 14.800000
        4.533334 7.333334
        10.000000 11.400000
        10.000000 14.279403
    "#]]
    .assert_eq(&(got.join("\n") + "\n"));
}

/// Which tasks run how many ticks in a row.
fn hogs(nices: &[i8], hz: u64, ticks: u64) -> String {
    hogs_of(nices, hz, ticks, Knobs::default())
}

fn hogs_of(nices: &[i8], hz: u64, ticks: u64, knobs: Knobs) -> String {
    let tick_ns = 1_000_000_000 / hz;
    let mut fair = machine(1, nices, Knobs { tick_ns, ..knobs });
    for task in 0..nices.len() as u32 {
        fair.enqueue(0, task, 0, Enqueue::Wakeup);
    }
    let mut runs: Vec<(u32, u64)> = Vec::new();
    let Pick::Task(mut current) = fair.pick(0, 0) else { panic!("somebody is queued") };
    for tick in 1..=ticks {
        match runs.last_mut() {
            Some((task, n)) if *task == current => *n += 1,
            _ => runs.push((current, 1)),
        }
        if fair.tick(0, tick * tick_ns) {
            let Pick::Task(next) = fair.pick(0, tick * tick_ns) else { panic!("all are hogs") };
            current = next;
        }
    }
    runs.iter()
        .map(|&(t, n)| format!("{}{n}", char::from(b'A' + t as u8)))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Specs: specs/sched-fair.md#traces.
#[test]
fn hog_traces() {
    let traces = [
        hogs(&[0, 0], 250, 8),
        hogs(&[0, 0], 1000, 18),
        hogs(&[0, 5], 250, 13),
        hogs(&[0, 5], 1000, 50),
    ];
    expect![[r#"
        A1 B1 A1 B1 A1 B1 A1 B1
        A3 B3 A3 B3 A3 B3
        A1 B1 A3 B1 A3 B1 A3
        A3 B3 A7 B3 A9 B3 A9 B3 A9 B1
    "#]]
    .assert_eq(&(traces.join("\n") + "\n"));
}

/// Two tasks; B sleeps at 0.4 ms ahead of A, woken with A at another place.
fn delayed(woken_with_a_at: i64) -> String {
    let mut fair = queued(Knobs::default(), &[(10_000_000, 0), (10_400_000, 0)]);
    assert_eq!(fair.dequeue(1, 0, Dequeue::Sleep { special: false }), Dequeued::Delayed);
    assert_eq!((fair.nr_running(0), fair.h_nr_delayed(0), fair.is_queued(1)), (2, 1, true));
    let queue = &mut fair.queues[0];
    queue.remove(&mut fair.nodes, &fair.entities[0], 0);
    fair.entities[0].vruntime = woken_with_a_at;
    queue.insert(&mut fair.nodes, &fair.entities[0], 0);
    let how = fair.enqueue(0, 1, 0, Enqueue::Wakeup);
    let (v, d) = fair.virtual_times(1);
    assert_eq!((fair.nr_running(0), fair.h_nr_delayed(0)), (2, 0));
    format!("{how:?}: {} {}", ms(v), ms(d))
}

/// Specs: specs/sched-fair.md#delayed.
#[test]
fn who_sleeps_ahead_stays() {
    let got = [10_200_000, 10_600_000].map(delayed);
    expect![[r#"
        RequeuedKept: 10.400000 13.200000
        RequeuedPlaced: 10.600000 13.400000
    "#]]
    .assert_eq(&(got.join("\n") + "\n"));
}

#[test]
fn who_sleeps_behind_or_specially_or_alone_goes() {
    let asleep = Dequeue::Sleep { special: false };
    let mut fair = queued(Knobs::default(), &[(10, 0), (20, 0)]);
    assert_eq!(fair.dequeue(0, 0, asleep), Dequeued::Gone);
    assert_eq!(fair.dequeue(1, 0, asleep), Dequeued::Gone, "alone on the queue");
    assert_eq!(fair.pick(0, 0), Pick::Idle);
    let mut fair = queued(Knobs::default(), &[(10, 0), (20, 0)]);
    assert_eq!(fair.dequeue(1, 0, Dequeue::Sleep { special: true }), Dequeued::Gone);
    let features = Features { delay_dequeue: false, ..Features::default() };
    let mut fair = queued(Knobs { features, ..Knobs::default() }, &[(10, 0), (20, 0)]);
    assert_eq!(fair.dequeue(1, 0, asleep), Dequeued::Gone);
    assert_eq!(fair.vlag(1), -5, "and keeps what it owes");
}

/// What happens on one CPU: a script of who does what, in ms, and what comes of it.
///
/// Each line: time, task (a letter) and what it does: `fork`, `wake`, `sleep`; or `tick`.
fn story(knobs: Knobs, attrs: &[Attr], script: &str, expected: Expect) {
    let mut fair = Fair::new(1, knobs);
    for (task, attr) in (0..).zip(attrs) {
        fair.add_task(task, 0, attr);
    }
    let mut out = String::new();
    let name = |t: u32| char::from(b'A' + t as u8);
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let now = (words[0].parse::<f64>().expect("a time") * 1e6) as u64;
        let task = || u32::from(words[1].as_bytes()[0] - b'A');
        write!(out, "{line}:").expect("text");
        match words[words.len() - 1] {
            how @ ("fork" | "wake") => {
                let how = if how == "fork" { Enqueue::Fork } else { Enqueue::Wakeup };
                let came = fair.enqueue(0, task(), now, how);
                if came != Enqueued::New {
                    write!(out, " {came:?}").expect("text");
                }
                if fair.current(0) != Some(task()) {
                    fair.wakeup_preempts(0, task(), now);
                }
            }
            "sleep" => {
                assert_eq!(fair.current(0), Some(task()), "who sleeps runs: {line}");
                let went = fair.dequeue(task(), now, Dequeue::Sleep { special: false });
                if went == Dequeued::Delayed {
                    write!(out, " {went:?}").expect("text");
                }
                fair.set_need_resched(0);
            }
            "yield" => {
                fair.yield_(0, now);
                fair.set_need_resched(0);
            }
            "tick" => {
                fair.tick(0, now);
            }
            other => panic!("what is {other}?"),
        }
        if fair.need_resched(0) {
            loop {
                match fair.pick(0, now) {
                    Pick::Task(t) => write!(out, " {} runs", name(t)).expect("text"),
                    Pick::LeftDelayed(t) => {
                        write!(out, " {} has left,", name(t)).expect("text");
                        continue;
                    }
                    Pick::Idle => {
                        fair.go_idle(0, now);
                        write!(out, " idle").expect("text");
                    }
                }
                break;
            }
        }
        out.push('\n');
    }
    expected.assert_eq(&out);
}

/// Specs: specs/sched-fair.md#preemption.
#[test]
fn an_equal_does_not_preempt_a_first_slice() {
    let attr = Attr::default();
    story(
        Knobs::default(),
        &[attr, attr],
        "0 A wake
         1 B wake
         4 tick
         5 B sleep
         6 B wake
         8 tick
         12 tick",
        expect![[r#"
            0 A wake: A runs
            1 B wake:
            4 tick: B runs
            5 B sleep: A runs
            6 B wake: B runs
            8 tick:
            12 tick: A runs
        "#]],
    );
}

/// Specs: specs/sched-fair.md#preemption.
#[test]
fn policies_and_slices_decide_who_preempts() {
    let attr = Attr::default();
    let idle = Attr { policy: SchedPolicy::Idle, ..attr };
    let batch = Attr { policy: SchedPolicy::Batch, ..attr };
    let short = Attr { slice_ns: Some(100_000), ..attr };
    story(
        Knobs::default(),
        &[idle, attr, short, batch, idle],
        "0 A wake
         1 B wake
         1.5 E wake
         2 D wake
         2.5 C wake
         2.7 C sleep
         4 tick",
        expect![[r#"
            0 A wake: A runs
            1 B wake: B runs
            1.5 E wake:
            2 D wake:
            2.5 C wake: C runs
            2.7 C sleep: Delayed D runs
            4 tick:
        "#]],
    );
}

/// Specs: specs/sched-fair.md#yield.
#[test]
fn yielding_gives_up_the_slice() {
    let attr = Attr::default();
    story(
        Knobs::default(),
        &[attr, attr],
        "0 A wake
         0.1 A yield
         0.2 B wake
         0.3 A yield
         0.4 B yield
         0.5 A yield",
        expect![[r#"
            0 A wake: A runs
            0.1 A yield: A runs
            0.2 B wake:
            0.3 A yield: B runs
            0.4 B yield: A runs
            0.5 A yield: A runs
        "#]],
    );
}

/// Specs: specs/sched-fair.md#delayed.
#[test]
fn a_delayed_task_leaves_when_it_is_picked() {
    let attr = Attr::default();
    story(
        Knobs::default(),
        &[attr, attr],
        "0 A wake
         0 B wake
         2 A sleep
         3 A wake
         4 tick
         5 B sleep
         7 A sleep
         9 B wake",
        expect![[r#"
            0 A wake: A runs
            0 B wake:
            2 A sleep: Delayed B runs
            3 A wake: RequeuedKept
            4 tick:
            5 B sleep: Delayed A runs
            7 A sleep: Delayed B has left, A has left, idle
            9 B wake: B runs
        "#]],
    );
}

/// A task is woken, preempted, sleeps and is woken again; who counts waits sees these.
///
/// Specs: specs/sched-fair.md#traces.
#[test]
fn a_switch_tells_what_was_charged() {
    let mut fair = machine(1, &[0, 0], Knobs::default());
    fair.enqueue(0, 1, 0, Enqueue::Wakeup);
    assert_eq!(fair.pick(0, 0), Pick::Task(1));
    fair.enqueue(0, 0, 0, Enqueue::Wakeup);
    assert!(!fair.wakeup_preempts(0, 0, 0));
    assert!(fair.tick(0, 4 * MS));
    assert_eq!(fair.pick(0, 4 * MS), Pick::Task(0));
    assert!(fair.tick(0, 8 * MS));
    assert_eq!(fair.pick(0, 10 * MS), Pick::Task(1));
    assert_eq!((fair.sum_exec_runtime(0), fair.sum_exec_runtime(1)), (6 * MS, 4 * MS));
    assert!(fair.tick(0, 14 * MS));
    assert_eq!(fair.pick(0, 14 * MS), Pick::Task(0));
    assert_eq!((fair.last_run_ns(0), fair.is_light(0)), (6 * MS, true));
    assert_eq!(fair.dequeue(0, 20 * MS, Dequeue::Sleep { special: false }), Dequeued::Delayed);
    assert_eq!(fair.pick(0, 20 * MS), Pick::Task(1));
    assert_eq!(fair.last_run_ns(1), 4 * MS, "the last time, not all of them");
    assert!(fair.tick(0, 26 * MS), "B has had its slice: A, asleep, is next");
    assert_eq!(fair.pick(0, 26 * MS), Pick::LeftDelayed(0));
    assert_eq!(fair.pick(0, 26 * MS), Pick::Task(1));
    assert_eq!((fair.sum_exec_runtime(0), fair.sum_exec_runtime(1)), (12 * MS, 14 * MS));
}

/// Specs: specs/sched-fair.md#changes.
#[test]
fn a_change_of_nice_keeps_the_lag_in_time() {
    let mut fair = queued(Knobs::default(), &[(10_000_000, 0), (12_000_000, 0)]);
    // V 11 ms: task 0 is 1 ms behind. At nice 5 that is 1024/335 as much virtual time.
    assert!(fair.set_nice(0, 5, 0) || !fair.need_resched(0));
    fair.dequeue(0, 0, Dequeue::Move);
    assert!(fair.vlag(0).abs_diff(1_000_000 * 1024 / 335) <= 2, "{}", fair.vlag(0));
}

/// Specs: specs/sched-fair.md#slices.
#[test]
fn slices_are_cut_and_kept() {
    let mut fair = machine(1, &[0, 0], Knobs::default());
    fair.set_slice(0, Some(1), 0);
    assert_eq!(fair.entities[0].slice, 100_000);
    fair.set_slice(0, Some(u32::MAX), 0);
    assert_eq!(fair.entities[0].slice, 100_000_000);
    fair.enqueue(0, 0, 0, Enqueue::Wakeup);
    assert_eq!(fair.entities[0].slice, 100_000_000);
    fair.set_slice(0, None, 0);
    assert_eq!(fair.entities[0].slice, base_slice_ns(8, weight::Scaling::Log));
}

/// Specs: specs/sched-fair.md#pelt-new.
#[test]
fn new_tasks_halve_what_is_left() {
    let mut fair = machine(1, &[0; 5], Knobs::default());
    let mut utils = Vec::new();
    for task in 0..5 {
        fair.enqueue(0, task, 0, Enqueue::Fork);
        utils.push(fair.task_util(task));
    }
    // On an empty queue 512; then as the others' mean, at most a half of what is left.
    expect![[r#"
        [
            512,
            256,
            128,
            64,
            32,
        ]
    "#]]
    .assert_debug_eq(&utils);
    assert_eq!(fair.util_avg(0), utils.iter().sum::<u64>());
    assert_eq!(fair.load_avg(0), 5 * 1024);
}

/// Runs one task for so long, in ticks.
fn run(fair: &mut Fair, cpu: usize, from: &mut u64, ms: u64) {
    for _ in 0..ms {
        *from += MS;
        if fair.tick(cpu, *from) {
            fair.pick(cpu, *from);
        }
    }
}

/// Specs: specs/sched-fair.md#pelt-migration.
#[test]
fn averages_go_with_the_task() {
    let mut fair = machine(2, &[0, 0], Knobs::default());
    let mut now = 0;
    fair.enqueue(0, 0, 0, Enqueue::Fork);
    fair.enqueue(0, 1, 0, Enqueue::Fork);
    fair.pick(0, 0);
    run(&mut fair, 0, &mut now, 200);
    // Whoever runs at the moment is the one that stays.
    let stays = fair.current(0).expect("two hogs");
    let goes = 1 - stays;
    let (load, util, task) = (fair.load_avg(0), fair.util_avg(0), *fair.task_avg(goes));
    assert!(load > 2000 && util > 950, "{load} {util}");
    // Balancing: leaves and joins at once.
    fair.dequeue(goes, now, Dequeue::Move);
    assert!(fair.load_avg(0).abs_diff(load - task.load_avg) <= 2);
    fair.migrate(goes, 1, now);
    fair.enqueue(1, goes, now, Enqueue::Migrated);
    assert_eq!(fair.exec_start(goes), 0, "nothing of it is hot here");
    assert!(fair.load_avg(1).abs_diff(task.load_avg) <= 2);
    // A wake-up elsewhere: subtracted at the old CPU's next update, there at enqueue.
    assert!(fair.wakeup_preempts(1, goes, now));
    assert_eq!(fair.pick(1, now), Pick::Task(goes));
    assert_eq!(fair.dequeue(stays, now, Dequeue::Sleep { special: true }), Dequeued::Gone);
    assert_eq!(fair.pick(0, now), Pick::Idle);
    fair.go_idle(0, now);
    let asleep = fair.load_avg(0);
    assert!(asleep > 900, "a sleeper stays in its CPU's averages: {asleep}");
    now += 32 * 1_048_576;
    fair.migrate(stays, 1, now);
    let aged = fair.task_load_avg(stays);
    assert!(aged.abs_diff(asleep / 2) < 20, "aged by what the idle CPU has not seen: {aged}");
    assert_eq!(fair.load_avg(0), asleep);
    fair.update_blocked(0, now);
    assert!(fair.load_avg(0) <= 1, "but for what rounding leaves");
    let before = fair.load_avg(1);
    fair.enqueue(1, stays, now, Enqueue::Wakeup);
    assert!(fair.load_avg(1) >= before + aged - 30);
}

/// A share of the time, per mille, of tasks in groups.
fn shares(cpu_weights: &[u32], tasks: &[(usize, i8)]) -> Vec<u64> {
    let mut fair = Fair::new(1, Knobs::default());
    let groups: Vec<GroupId> =
        cpu_weights.iter().map(|&w| fair.add_group(GroupId::ROOT, w)).collect();
    for (task, &(group, nice)) in (0..).zip(tasks) {
        let group = if group == 0 { GroupId::ROOT } else { groups[group - 1] };
        fair.add_task(task, 0, &Attr { group, nice, ..Attr::default() });
        fair.enqueue(0, task, 0, Enqueue::Fork);
    }
    fair.pick(0, 0);
    let mut now = 0;
    run(&mut fair, 0, &mut now, 10_000);
    recount::check(&fair);
    (0..tasks.len() as u32).map(|t| (fair.sum_exec_runtime(t) + 5 * MS) / (10 * MS)).collect()
}

/// Specs: specs/sched-fair.md#groups.
#[test]
fn groups_share_as_they_weigh() {
    assert_eq!(shares(&[100, 100], &[(1, 0), (2, 0), (2, 0)]), [500, 250, 250]);
    assert_eq!(shares(&[100, 300], &[(1, 0), (2, 0)]), [250, 750]);
    assert_eq!(shares(&[100], &[(0, 0), (1, 0), (1, 0)]), [500, 250, 250]);
    assert_eq!(shares(&[100], &[(0, 0), (1, 0), (1, 5)]), [500, 377, 123]);
}

/// Specs: specs/sched-fair.md#groups.
#[test]
fn an_idle_group_gives_way() {
    let mut fair = Fair::new(1, Knobs::default());
    let idle = fair.add_group(GroupId::ROOT, 100);
    let below = fair.add_group(idle, 100);
    for (task, group) in [(0, below), (1, idle), (2, GroupId::ROOT)] {
        fair.add_task(task, 0, &Attr { group, ..Attr::default() });
    }
    fair.set_group_idle(idle, true, 0);
    for task in 0..2 {
        fair.enqueue(0, task, 0, Enqueue::Fork);
        recount::check(&fair);
    }
    assert!(fair.idle_only(0));
    fair.pick(0, 0);
    // It takes the CPU from all of it at once, whatever slice that has.
    fair.enqueue(0, 2, 1000, Enqueue::Fork);
    assert!(!fair.idle_only(0));
    assert!(fair.wakeup_preempts(0, 2, 1000));
    assert_eq!(fair.pick(0, 1000), Pick::Task(2));
    let mut now = 0;
    run(&mut fair, 0, &mut now, 10_000);
    // 3 of 1027.
    let ran = (fair.sum_exec_runtime(0) + fair.sum_exec_runtime(1)) / MS;
    assert!((20..=45).contains(&ran), "{ran} ms of 10 s");
    assert_eq!(fair.group_weight(idle), 3);
    // Its weight can't be changed, and is a nice 0 task's afterwards.
    fair.set_group_weight(idle, 300, now);
    assert_eq!(fair.group_weight(idle), 3);
    fair.set_group_idle(idle, false, now);
    recount::check(&fair);
    assert_eq!(fair.group_weight(idle), 1024);
    for task in 0..3 {
        fair.dequeue(task, now, Dequeue::End);
        recount::check(&fair);
    }
}

/// Specs: specs/sched-fair.md#groups.
#[test]
fn a_group_weighs_on_each_cpu_what_it_has_there() {
    let mut fair = Fair::new(2, Knobs::default());
    let group = fair.add_group(GroupId::ROOT, 100);
    for task in 0..4 {
        let cpu = usize::from(task == 3);
        fair.add_task(task, cpu, &Attr { group, ..Attr::default() });
        fair.enqueue(cpu, task, 0, Enqueue::Fork);
        fair.pick(cpu, 0);
    }
    let (mut a, mut b) = (0, 0);
    for _ in 0..100 {
        run(&mut fair, 0, &mut a, 4);
        run(&mut fair, 1, &mut b, 4);
    }
    // Three tasks here and one there: about 768 and 256, each a little more since the sum is slow.
    let weights = [0, 1].map(|cpu| {
        let q = fair.groups[group.0].queues[cpu];
        fair.entities[fair.queues[q].owner].load.w
    });
    assert!((740..=800).contains(&weights[0]) && (245..=300).contains(&weights[1]), "{weights:?}");
    // Seen by the whole CPU a task's load is its share of that.
    let h_load = fair.task_h_load(0, 1);
    assert!(h_load.abs_diff(u64::from(weights[0]) / 3) < 30, "{h_load}");
    recount::check(&fair);
}

/// Specs: specs/sched-fair.md#groups.
#[test]
fn whose_group_was_left_within_its_slice_goes_on() {
    let mut fair = Fair::new(1, Knobs::default());
    let a = fair.add_group(GroupId::ROOT, 100);
    for (task, group) in [(0, a), (1, a), (2, GroupId::ROOT)] {
        fair.add_task(task, 0, &Attr { group, ..Attr::default() });
        fair.enqueue(0, task, 0, Enqueue::Wakeup);
    }
    assert_eq!(fair.pick(0, 0), Pick::Task(0));
    // Its group is still eligible where it is, at 0: the other of its group runs, not the task beside.
    assert_eq!(fair.dequeue(0, 0, Dequeue::Sleep { special: false }), Dequeued::Gone);
    assert_eq!(fair.pick(0, 0), Pick::Task(1));
}

/// Ticks of a CPU where a group of one hog has a quota, ms: when it ran.
///
/// Specs: specs/sched-fair.md#bandwidth.
#[test]
fn a_quota_is_kept() {
    let mut fair = Fair::new(2, Knobs::default());
    let group = fair.add_group(GroupId::ROOT, 100);
    let quota = Quota { quota_ns: 20 * MS, period_ns: 100 * MS, burst_ns: 0 };
    fair.set_quota(group, Some(quota), 0);
    for cpu in 0..2 {
        fair.add_task(cpu, cpu as usize, &Attr { group, ..Attr::default() });
        fair.enqueue(cpu as usize, cpu, 0, Enqueue::Fork);
        assert_eq!(fair.pick(cpu as usize, 0), Pick::Task(cpu));
    }
    let mut woken = Vec::new();
    let mut ran = Vec::new();
    for t in 1..=1000 {
        let now = t * MS;
        if let Some((at, g)) = fair.next_timer() {
            if at <= now {
                fair.refill(g, at, &mut woken);
            }
        }
        for cpu in 0..2 {
            if fair.current(cpu).is_some() {
                fair.tick(cpu, now);
            }
            if fair.need_resched(cpu) && fair.pick(cpu, now) == Pick::Idle {
                fair.go_idle(cpu, now);
            }
        }
        recount::check(&fair);
        if t % 100 == 0 {
            ran.push((fair.sum_exec_runtime(0) + fair.sum_exec_runtime(1)) / MS);
        }
        assert_eq!(fair.nr_running(0) == 0, fair.is_throttled(0), "at {t} ms");
    }
    // Two CPUs use 20 ms in 10; the last ms of each is over the quota by a tick, and paid later.
    expect![[r#"
        [
            21,
            41,
            61,
            81,
            101,
            121,
            141,
            161,
            181,
            201,
        ]
    "#]]
    .assert_debug_eq(&ran);
    let stat = fair.cpu_stat(group);
    assert_eq!((stat.nr_periods, stat.nr_throttled), (10, 10), "{stat:?}");
    assert!(!woken.is_empty());
    // Lifted, it runs as it likes.
    fair.set_quota(group, None, 1000 * MS);
    assert_eq!((fair.nr_running(0), fair.is_throttled(0), fair.next_timer()), (1, false, None));
}

/// What each of eight periods ran, ms, of one that wants 2 ms in the first three of them and then all there is; what
/// `cpu.stat` says of it.
fn with_burst(burst_ns: u64) -> String {
    let mut fair = Fair::new(1, Knobs::default());
    let group = fair.add_group(GroupId::ROOT, 100);
    let quota = Quota { quota_ns: 10 * MS, period_ns: 100 * MS, burst_ns };
    fair.set_quota(group, Some(quota), 0);
    fair.add_task(0, 0, &Attr { group, ..Attr::default() });
    fair.enqueue(0, 0, 0, Enqueue::Fork);
    assert_eq!(fair.pick(0, 0), Pick::Task(0));
    let (mut ran, mut before) = (Vec::new(), 0);
    for t in 1..=800 {
        let now = t * MS;
        if let Some((at, g)) = fair.next_timer().filter(|&(at, _)| at <= now) {
            fair.refill(g, at, &mut Vec::new());
        }
        if fair.current(0).is_some() {
            fair.tick(0, now);
            if t < 300 && t % 100 == 2 {
                fair.dequeue(0, now, Dequeue::Sleep { special: false });
                fair.set_need_resched(0);
            }
        }
        if t <= 300 && t % 100 == 0 {
            fair.enqueue(0, 0, now, Enqueue::Wakeup);
            fair.set_need_resched(0);
        }
        if fair.need_resched(0) && fair.pick(0, now) == Pick::Idle {
            fair.go_idle(0, now);
        }
        if t % 100 == 0 {
            ran.push((fair.sum_exec_runtime(0) - before) / MS);
            before = fair.sum_exec_runtime(0);
        }
    }
    let stat = fair.cpu_stat(group);
    format!("{ran:?}, {} bursts of {} ms", stat.nr_bursts, stat.burst_ns / MS)
}

/// Specs: specs/sched-fair.md#bandwidth.
#[test]
fn what_is_left_of_a_quota_is_used_later_as_far_as_its_burst() {
    let told = [0, 5, 10].map(|ms| with_burst(ms * MS)).join("\n");
    // A ms each is the tick in which the end is noticed, which the next period pays.
    expect![[r#"
        [2, 2, 2, 11, 10, 10, 10, 10], 0 bursts of 0 ms
        [2, 2, 2, 16, 10, 10, 10, 10], 1 bursts of 5 ms
        [2, 2, 2, 21, 10, 10, 10, 10], 1 bursts of 10 ms"#]]
    .assert_eq(&told);
}

/// What is left stays when the quota is written anew, and is lost to a smaller burst.
///
/// Specs: specs/sched-fair.md#bandwidth.
#[test]
fn a_quota_that_is_written_anew_keeps_what_is_left() {
    // Left after the second write, ms: a period's quota each time, up to quota and burst.
    for (burst, left) in [(0, 10), (5, 15), (10, 20)] {
        for lifted in [false, true] {
            let mut fair = Fair::new(1, Knobs::default());
            let group = fair.add_group(GroupId::ROOT, 100);
            let quota = Quota { quota_ns: 10 * MS, period_ns: 100 * MS, burst_ns: burst * MS };
            fair.set_quota(group, Some(quota), 0);
            if lifted {
                fair.set_quota(group, None, 0);
            }
            fair.set_quota(group, Some(quota), 0);
            fair.add_task(0, 0, &Attr { group, ..Attr::default() });
            fair.enqueue(0, 0, 0, Enqueue::Fork);
            assert_eq!(fair.pick(0, 0), Pick::Task(0));
            let ran = (1..100).find(|t| {
                fair.tick(0, t * MS);
                fair.need_resched(0)
            });
            // 1 ns is the queue's own, so it notices a tick later.
            assert_eq!(ran, Some(left + 1), "burst {burst}, lifted {lifted}");
        }
    }
}

/// Specs: specs/sched-fair.md#order.
#[test]
fn the_balancer_begins_with_the_coldest() {
    let mut fair = machine(1, &[0; 3], Knobs::default());
    for task in 0..3 {
        fair.enqueue(0, task, 0, Enqueue::Wakeup);
    }
    let order = |fair: &Fair| {
        let mut all = vec![];
        let mut next = fair.coldest(0);
        while let Some(t) = next {
            all.push(t);
            next = fair.warmer(t);
        }
        all
    };
    assert_eq!(order(&fair), [0, 1, 2], "who came first is coldest");
    assert_eq!(fair.pick(0, 0), Pick::Task(0));
    assert_eq!(order(&fair), [1, 2, 0], "who runs is warmest");
    fair.to_front(1);
    assert_eq!(order(&fair), [2, 0, 1], "looked at and skipped");
    fair.dequeue(2, 0, Dequeue::Move);
    assert_eq!(order(&fair), [0, 1]);
    assert_eq!(fair.coldest(0), Some(0));
}
