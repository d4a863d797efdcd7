//! CFS: vectors, traces, and a plain model of one queue in which everything is found by looking at all tasks.

use expect_test::expect;
use proptest::prelude::*;

use super::super::*;
use super::plain::{plain_weight, policies};
use super::{MS, hogs_of, machine, recount};

fn knobs(rules: Rules) -> Knobs {
    Knobs { rules, ..Knobs::default() }
}

const CFS: [Rules; 3] = [Rules::Cfs4_5, Rules::Cfs4_15, Rules::Cfs6_1];

/// A queue with tasks of these virtual run times, in ns, and nice levels.
fn at(knobs: Knobs, tasks: &[(i64, i8)]) -> Fair {
    let nices: Vec<i8> = tasks.iter().map(|t| t.1).collect();
    let mut fair = machine(1, &nices, knobs);
    for (task, &(v, _)) in (0..).zip(tasks) {
        fair.entities[task].vruntime = v;
        fair.enqueue(0, task, 0, Enqueue::Wakeup);
    }
    fair
}

/// Specs: specs/sched-cfs.md#knobs.
#[test]
fn granularities_grow_with_the_cpus() {
    let of = |cpus| {
        let cfs = Cfs::scaled(cpus, weight::Scaling::Log);
        [cfs.latency_ns, cfs.min_granularity_ns, cfs.wakeup_granularity_ns, cfs.nr_latency()]
    };
    assert_eq!(of(1), [6_000_000, 750_000, 1_000_000, 8]);
    assert_eq!(of(4), [18_000_000, 2_250_000, 3_000_000, 8]);
    assert_eq!(of(64), [24_000_000, 3_000_000, 4_000_000, 8]);
}

/// Specs: specs/sched-cfs.md#slice.
#[test]
fn slices_are_shares_of_a_period() {
    let slices = |nices: &[i8]| {
        let tasks: Vec<(i64, i8)> = nices.iter().map(|&n| (0, n)).collect();
        CFS.map(|rules| {
            let fair = at(knobs(rules), &tasks);
            let last = nices.len() as u32 - 1;
            [fair.sched_slice(0, 0), fair.sched_slice(0, last)]
        })
    };
    assert_eq!(slices(&[0, 0]), [[11_999_994; 2]; 3]);
    assert_eq!(slices(&[0, 5]), [[18_083_885, 5_916_114]; 3]);
    // 6.1 gives nobody less than the granularity.
    let old = [2_999_994; 2];
    assert_eq!(slices(&[0; 9]), [old, old, [3_000_000; 2]]);
}

/// Specs: specs/sched-cfs.md#placement.
#[test]
fn placement_vectors() {
    for rules in CFS {
        let woken = |from: i64, features| {
            let mut fair = at(Knobs { features, ..knobs(rules) }, &[(100 * MS as i64, 0)]);
            fair.pick(0, 0);
            fair.update_min_vruntime(0);
            fair.add_task(1, 0, &Attr::default());
            fair.entities[1].vruntime = from * MS as i64;
            fair.enqueue(0, 1, 0, Enqueue::Wakeup);
            fair.virtual_times(1).0
        };
        let plain = Features::default();
        assert_eq!([95, 50].map(|v| woken(v, plain)), [95_000_000, 88_000_000], "{rules:?}");
        let whole = Features { gentle_fair_sleepers: false, ..plain };
        assert_eq!(woken(50, whole), 76_000_000, "{rules:?}");

        // A child, and what a task gets that nobody has made.
        let child = |parent: bool, features| {
            let mut fair = at(Knobs { features, ..knobs(rules) }, &[(100 * MS as i64, 0)]);
            fair.pick(0, 0);
            fair.update_min_vruntime(0);
            fair.add_task(1, 0, &Attr::default());
            if parent {
                fair.forked(1, 0, 0);
            }
            fair.enqueue(0, 1, 0, Enqueue::Fork);
            fair.virtual_times(1).0 - 100 * MS as i64
        };
        assert_eq!([true, false].map(|p| child(p, plain)), [11_999_994; 2], "{rules:?}");
        let free = Features { start_debit: false, ..plain };
        assert_eq!(child(true, free), 0, "{rules:?}");
    }
}

/// A child is placed where its parent is and takes its distance along to another CPU.
///
/// Specs: specs/sched-cfs.md#placement.
#[test]
fn a_child_goes_to_another_cpu() {
    for rules in CFS {
        let mut fair = Fair::new(2, knobs(rules));
        for task in 0..3 {
            fair.add_task(task, usize::from(task == 1), &Attr::default());
        }
        for (task, v) in [(0, 100), (1, 700)] {
            fair.entities[task].vruntime = v * MS as i64;
            fair.enqueue(task as usize, task, 0, Enqueue::Wakeup);
            fair.pick(task as usize, 0);
            fair.update_min_vruntime(task);
        }
        fair.forked(2, 0, 5 * MS);
        fair.enqueue(1, 2, 5 * MS, Enqueue::Fork);
        // 12 ms behind the floor of the parent's CPU, then behind that of its own, which 4.5 takes as it was
        // charged last.
        let floor = if rules == Rules::Cfs4_5 { 700 } else { 705 };
        assert_eq!(fair.virtual_times(2).0, floor * MS as i64 + 11_999_994, "{rules:?}");
    }
}

/// Specs: specs/sched-cfs.md#preemption.
#[test]
fn who_is_far_enough_behind_preempts() {
    let preempts = |rules, v: i64, nice| {
        let tasks = [(100 * MS as i64, 0), (v * MS as i64, nice)];
        let mut fair = at(knobs(rules), &tasks[..1]);
        fair.pick(0, 0);
        fair.add_task(1, 0, &Attr { nice, ..Attr::default() });
        fair.entities[1].vruntime = tasks[1].0;
        fair.enqueue(0, 1, 0, Enqueue::Wakeup);
        fair.wakeup_preempts(0, 1, 0)
    };
    for rules in CFS {
        let got = [preempts(rules, 88, 0), preempts(rules, 88, 5), preempts(rules, 97, 0)];
        assert_eq!(got, [true, false, false], "{rules:?}");
    }
}

/// Specs: specs/sched-cfs.md#pick.
#[test]
fn buddies_run_if_it_is_fair() {
    for rules in CFS {
        let ms = MS as i64;
        let pick = |fair: &Fair| fair.entities[fair.pick_cfs(0)].task;
        let mut fair = at(knobs(rules), &[(10 * ms, 0), (12 * ms, 0), (14 * ms, 0), (20 * ms, 0)]);
        assert_eq!(pick(&fair), 0, "the earliest");
        fair.queues[0].skip = 0;
        assert_eq!(pick(&fair), 1, "the second instead of who yields");
        fair.queues[0].last = 2;
        assert_eq!(pick(&fair), 2, "who was preempted");
        fair.queues[0].next = 1;
        assert_eq!(pick(&fair), 1, "who preempts comes before");
        fair.queues[0].next = 3;
        assert_eq!(pick(&fair), 2, "10 ms ahead would be unfair");
    }
}

/// With eight or more who was preempted runs next; who yields stands back once.
///
/// Specs: specs/sched-cfs.md#preemption, specs/sched-cfs.md#yield.
#[test]
fn crowds_make_buddies() {
    for rules in CFS {
        let ms = MS as i64;
        let tasks: Vec<(i64, i8)> = (0..8).map(|_| (100 * ms, 0)).collect();
        let mut fair = at(knobs(rules), &tasks);
        assert_eq!(fair.pick(0, 0), Pick::Task(0));
        fair.add_task(8, 0, &Attr::default());
        fair.enqueue(0, 8, 0, Enqueue::Wakeup);
        assert!(fair.wakeup_preempts(0, 8, 0));
        assert!(fair.is_next_buddy(0) && fair.is_next_buddy(8), "both are hot for balancing");
        assert_eq!(fair.pick(0, 0), Pick::Task(8));
        // It goes to sleep: the preempted one goes on, though it stands behind all its equals.
        fair.dequeue(8, 0, Dequeue::Sleep { special: false });
        assert_eq!(fair.pick(0, 0), Pick::Task(0), "{rules:?}");
        fair.yield_(0, 0);
        assert_eq!(fair.pick(0, 0), Pick::Task(1), "{rules:?}");
    }
}

/// Specs: specs/sched-cfs.md#tick.
#[test]
fn hog_traces() {
    let four: [&[i8]; 3] = [&[0, 0], &[0, 5], &[0, 0, 0, 0]];
    for rules in CFS {
        let traces = four.map(|nices| hogs_of(nices, 250, 14, knobs(rules)));
        expect![[r#"
            A3 B3 A3 B3 A2
            A5 B2 A5 B2
            A2 B2 C2 D2 A2 B2 C2
        "#]]
        .assert_eq(&(traces.join("\n") + "\n"));
    }
}

/// A queue's load without its sleepers, which is what old wake-ups compare.
///
/// Specs: specs/sched-cfs.md#load.
#[test]
fn sleepers_weigh_nothing_on_the_queue() {
    for rules in [Rules::Cfs4_5, Rules::Cfs4_15] {
        let mut fair = at(knobs(rules), &[(0, 0), (0, 0)]);
        fair.pick(0, 0);
        for tick in 1..=50 {
            fair.tick(0, tick * 4 * MS);
        }
        let with_both = fair.runnable_load_avg(0);
        assert!(with_both.abs_diff(fair.load_avg(0)) <= 2, "all are queued: {with_both}");
        fair.dequeue(0, 200 * MS, Dequeue::Sleep { special: false });
        let (left, all) = (fair.runnable_load_avg(0), fair.load_avg(0));
        assert!(left.abs_diff(fair.task_load_avg(1)) <= 2 && all > 3 * left / 2, "{left} of {all}");
        fair.pick(0, 200 * MS);
        // 32 ms later what the sleeper left has halved; the queued ones' load is still theirs.
        fair.tick(0, 232 * MS);
        let (left, all) = (fair.runnable_load_avg(0), fair.load_avg(0));
        assert!(left.abs_diff(fair.task_load_avg(1)) <= 4, "{left}");
        assert!((left + 400..left + 600).contains(&all), "{left} of {all}");
        // Moved away asleep, it leaves the whole and not the queued part.
        fair.enqueue(0, 0, 240 * MS, Enqueue::Wakeup);
        assert!(fair.runnable_load_avg(0).abs_diff(fair.load_avg(0)) <= 4);
    }
}

/// In 4.15 the floor doesn't follow a task that goes to sleep until the queue is charged again.
///
/// Specs: specs/sched-cfs.md#floor.
#[test]
fn the_floor_of_4_15_stays_behind_who_sleeps() {
    let floor_after = |rules| {
        let ms = MS as i64;
        let mut fair = at(knobs(rules), &[(100 * ms, 0), (110 * ms, 0)]);
        fair.pick(0, 0);
        fair.dequeue(0, 0, Dequeue::Sleep { special: false });
        fair.min_vruntime(0) / ms
    };
    // 4.5 counts who has just gone to sleep, until another is picked; in 4.15 it is what it was at boot.
    assert_eq!(CFS.map(floor_after), [100, -1, 110]);
}

#[derive(Clone, Debug)]
struct PlainTask {
    nice: i8,
    policy: SchedPolicy,
    v: i128,
    on: bool,
    relative: bool,
    came: u64,
    ran: i128,
    before: i128,
}

impl PlainTask {
    fn w(&self) -> i128 {
        plain_weight(self.nice, self.policy)
    }
    /// The kernel's fixed point has vectors of its own; here it is asked.
    fn vd(&self, t: i128) -> i128 {
        let load = weight::Load::of_task(self.nice, self.policy == SchedPolicy::Idle);
        i128::from(load.vd(t as u64))
    }
}

/// One queue, in numbers that don't overflow.
struct Plain {
    rules: Rules,
    tasks: Vec<PlainTask>,
    floor: i128,
    now: i128,
    since: i128,
    curr: Option<usize>,
    marked: bool,
    came: u64,
    next: Option<usize>,
    last: Option<usize>,
    skip: Option<usize>,
}

const LATENCY: i128 = 24_000_000;
const MIN_GRAN: i128 = 3_000_000;
const WAKEUP_GRAN: i128 = 4_000_000;

impl Plain {
    fn nr(&self) -> i128 {
        self.tasks.iter().filter(|t| t.on).count() as i128
    }
    fn waiting(&self) -> Vec<usize> {
        let mut all: Vec<usize> =
            (0..self.tasks.len()).filter(|&t| self.tasks[t].on && self.curr != Some(t)).collect();
        all.sort_by_key(|&t| (self.tasks[t].v, self.tasks[t].came));
        all
    }
    fn follow(&mut self) {
        let counts = |&c: &usize| self.tasks[c].on || self.rules == Rules::Cfs4_5;
        let curr = self.curr.filter(counts);
        let earliest = curr.into_iter().chain(self.waiting()).map(|t| self.tasks[t].v).min();
        self.floor = self.floor.max(earliest.unwrap_or(self.floor));
    }
    fn slice(&self, t: usize) -> i128 {
        let coming = i128::from(!self.tasks[t].on);
        let nr = self.nr() + coming;
        let period = if nr > 8 { nr * MIN_GRAN } else { LATENCY };
        let sum: i128 = self.tasks.iter().filter(|t| t.on).map(PlainTask::w).sum();
        let sum = sum + coming * self.tasks[t].w();
        let share =
            i128::from(weight::calc_delta(period as u64, self.tasks[t].w() as u32, sum as u32));
        if self.rules != Rules::Cfs6_1 {
            return share;
        }
        let others = self.tasks.iter().any(|t| t.on && t.policy != SchedPolicy::Idle);
        let idle = self.tasks[t].policy == SchedPolicy::Idle && others;
        share.max(if idle { 750_000 } else { MIN_GRAN })
    }
    fn charge(&mut self) {
        let Some(c) = self.curr else { return };
        let ran = self.now - self.since;
        if ran <= 0 {
            return;
        }
        self.since = self.now;
        let task = &mut self.tasks[c];
        task.ran += ran;
        task.v += task.vd(ran);
        self.follow();
    }
    fn forget(&mut self, t: usize) {
        for buddy in [&mut self.next, &mut self.last, &mut self.skip] {
            if *buddy == Some(t) {
                *buddy = None;
            }
        }
    }
    fn unfair(&self, a: usize, b: usize) -> bool {
        let ahead = self.tasks[a].v - self.tasks[b].v;
        ahead > 0 && ahead > self.tasks[b].vd(WAKEUP_GRAN)
    }
    fn best(&self) -> usize {
        // In the order, who runs stands before those who are not earlier.
        let mut order = self.waiting();
        if let Some(c) = self.curr.filter(|&c| self.tasks[c].on) {
            let place = order.partition_point(|&t| self.tasks[t].v <= self.tasks[c].v);
            order.insert(place, c);
        }
        let first = order[0];
        let fair = |&t: &usize| !self.unfair(t, first);
        if let Some(buddy) = [self.next, self.last].into_iter().flatten().find(fair) {
            return buddy;
        }
        match order.get(1) {
            Some(second) if self.skip == Some(first) && fair(second) => *second,
            _ => first,
        }
    }
    fn pick(&mut self) -> Pick {
        self.marked = false;
        if self.nr() == 0 {
            self.curr = None;
            return Pick::Idle;
        }
        if self.curr.is_some_and(|c| self.tasks[c].on) {
            self.charge();
        }
        let best = self.best();
        if self.rules != Rules::Cfs6_1 || self.curr != Some(best) {
            self.forget(best);
        }
        if self.curr != Some(best) {
            if let Some(c) = self.curr.filter(|&c| self.tasks[c].on) {
                self.enter(c);
            }
            self.start(best);
        }
        Pick::Task(best as u32)
    }
    fn start(&mut self, t: usize) {
        self.forget(t);
        self.curr = Some(t);
        self.since = self.now;
        self.tasks[t].before = self.tasks[t].ran;
    }
    fn enter(&mut self, t: usize) {
        self.came += 1;
        self.tasks[t].came = self.came;
    }
    fn join(&mut self, t: usize, wakes: bool) {
        let early = self.rules == Rules::Cfs4_5 || self.curr == Some(t);
        if early {
            self.rebase(t);
        }
        self.charge();
        self.rebase(t);
        if wakes {
            let of_idle = self.rules == Rules::Cfs6_1 && self.tasks[t].policy == SchedPolicy::Idle;
            let credit = if of_idle { MIN_GRAN } else { LATENCY } / 2;
            self.tasks[t].v = self.tasks[t].v.max(self.floor - credit);
        }
        self.enter(t);
        self.tasks[t].on = true;
    }
    fn rebase(&mut self, t: usize) {
        if std::mem::take(&mut self.tasks[t].relative) {
            self.tasks[t].v += self.floor;
        }
    }
    fn leave(&mut self, t: usize, sleeps: bool, moves: bool) {
        self.charge();
        self.forget(t);
        self.tasks[t].on = false;
        if !sleeps {
            self.tasks[t].v -= self.floor;
            self.tasks[t].relative = true;
        }
        let back = !sleeps && !moves;
        match self.rules {
            Rules::Cfs4_15 if !back => {}
            Rules::Cfs6_1 if back => {}
            Rules::Cfs4_5 | Rules::Cfs4_15 | Rules::Cfs6_1 | Rules::Eevdf => self.follow(),
        }
    }
    fn preempt(&mut self, t: usize) {
        let Some(c) = self.curr else {
            self.marked = true;
            return;
        };
        if self.marked || c == t {
            return;
        }
        let crowded = self.nr() >= 8;
        let idle = |t: usize| self.tasks[t].policy == SchedPolicy::Idle;
        let by_policy = idle(c) && !idle(t);
        if !by_policy {
            if self.tasks[t].policy != SchedPolicy::Normal {
                return;
            }
            self.charge();
            if !self.unfair(c, t) {
                return;
            }
            self.next = Some(t);
        }
        self.marked = true;
        if crowded && self.tasks[c].on && self.tasks[c].policy != SchedPolicy::Idle {
            self.last = Some(c);
        }
    }
    fn tick(&mut self) {
        self.charge();
        let Some(c) = self.curr else { return };
        if self.nr() < 2 {
            return;
        }
        let (slice, task) = (self.slice(c), &self.tasks[c]);
        let ran = task.ran - task.before;
        if ran > slice {
            self.marked = true;
            self.forget(c);
        } else if ran >= MIN_GRAN {
            let first = self.waiting()[0];
            self.marked |= self.tasks[c].v - self.tasks[first].v > slice;
        }
    }
    fn change(&mut self, t: usize, moves: bool, change: impl FnOnce(&mut PlainTask)) {
        let (on, running) = (self.tasks[t].on, self.curr == Some(t));
        if on {
            self.leave(t, false, moves);
        }
        if running {
            self.curr = None;
        }
        change(&mut self.tasks[t]);
        if on {
            self.join(t, false);
        }
        if running {
            self.start(t);
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Wake(usize),
    Sleep,
    Tick,
    Pick,
    Yield,
    Nice(usize, i8),
    Policy(usize, SchedPolicy),
    Moved(usize),
}

fn ops(tasks: usize) -> impl Strategy<Value = Vec<(u64, Op)>> {
    let task = 0..tasks;
    let op = prop_oneof![
        6 => task.clone().prop_map(Op::Wake),
        3 => Just(Op::Sleep),
        6 => Just(Op::Tick),
        3 => Just(Op::Pick),
        1 => Just(Op::Yield),
        1 => (task.clone(), -20_i8..20).prop_map(|(t, n)| Op::Nice(t, n)),
        1 => (task.clone(), policies()).prop_map(|(t, p)| Op::Policy(t, p)),
        1 => task.prop_map(Op::Moved),
    ];
    prop::collection::vec((0_u64..9_000_000, op), 1..300)
}

fn picks(fair: &mut Fair, plain: &mut Plain) {
    let now = plain.now as u64;
    let real = fair.pick(0, now);
    assert_eq!(real, plain.pick(), "picked at {now}");
    if real == Pick::Idle {
        fair.go_idle(0, now);
    }
}

/// Does the same to both, and compares all that a task has.
fn compare(rules: Rules, nices: &[i8], ops: &[(u64, Op)]) {
    let mut fair = machine(1, nices, knobs(rules));
    let task = |&nice: &i8| PlainTask {
        nice,
        policy: SchedPolicy::Normal,
        v: 0,
        on: false,
        relative: false,
        came: 0,
        ran: 0,
        before: 0,
    };
    let mut plain = Plain {
        rules,
        tasks: nices.iter().map(task).collect(),
        floor: -(1 << 20),
        now: 0,
        since: 0,
        curr: None,
        marked: false,
        came: 0,
        next: None,
        last: None,
        skip: None,
    };
    let mut born = vec![false; nices.len()];
    for (pass, op) in ops {
        plain.now += i128::from(*pass);
        let now = plain.now as u64;
        match *op {
            Op::Wake(t) => {
                if plain.tasks[t].on {
                    continue;
                }
                let fork = !std::mem::replace(&mut born[t], true);
                if fork {
                    // Every second one has a parent: who runs.
                    let parent = plain.curr.filter(|_| t % 2 == 0);
                    plain.charge();
                    let from = parent.map_or(plain.floor, |p| plain.tasks[p].v);
                    let debit = plain.tasks[t].vd(plain.slice(t));
                    plain.tasks[t].v = from.max(plain.floor + debit);
                    if let Some(p) = parent {
                        fair.forked(t as u32, p as u32, now);
                    }
                    fair.enqueue(0, t as u32, now, Enqueue::Fork);
                } else {
                    fair.enqueue(0, t as u32, now, Enqueue::Wakeup);
                }
                fair.wakeup_preempts(0, t as u32, now);
                plain.join(t, !fork);
                plain.preempt(t);
            }
            Op::Sleep => {
                let Some(c) = plain.curr else { continue };
                fair.dequeue(c as u32, now, Dequeue::Sleep { special: false });
                plain.leave(c, true, false);
                picks(&mut fair, &mut plain);
            }
            Op::Tick => {
                fair.tick(0, now);
                plain.tick();
            }
            Op::Pick => picks(&mut fair, &mut plain),
            Op::Yield => {
                let Some(c) = plain.curr else { continue };
                fair.yield_(0, now);
                if plain.nr() > 1 {
                    plain.forget(c);
                    if plain.tasks[c].policy != SchedPolicy::Batch {
                        plain.charge();
                    }
                    plain.skip = Some(c);
                }
                picks(&mut fair, &mut plain);
            }
            Op::Nice(t, nice) => {
                let old = plain.tasks[t].nice;
                fair.set_nice(t as u32, nice, now);
                if old == nice {
                    continue;
                }
                plain.change(t, false, |task| task.nice = nice);
                if plain.tasks[t].on && plain.nr() > 1 {
                    if plain.curr == Some(t) {
                        plain.marked |= nice > old;
                    } else {
                        plain.preempt(t);
                    }
                }
            }
            Op::Policy(t, policy) => {
                fair.set_policy(t as u32, policy, now);
                plain.change(t, false, |task| task.policy = policy);
            }
            Op::Moved(t) => {
                if plain.curr == Some(t) || !plain.tasks[t].on {
                    continue;
                }
                fair.dequeue(t as u32, now, Dequeue::Move);
                fair.enqueue(0, t as u32, now, Enqueue::Migrated);
                plain.change(t, true, |_| {});
            }
        }
        recount::check(&fair);
        assert_eq!(i128::from(fair.min_vruntime(0)), plain.floor, "floor after {op:?}");
        assert_eq!(fair.need_resched(0), plain.marked, "mark after {op:?}");
        assert_eq!(fair.current(0).map(|t| t as usize), plain.curr, "current after {op:?}");
        for (t, task) in plain.tasks.iter().enumerate() {
            let t = t as u32;
            assert_eq!(
                (fair.is_queued(t), i128::from(fair.sum_exec_runtime(t))),
                (task.on, task.ran),
                "task {t} after {op:?}"
            );
            if born[t as usize] {
                let v = i128::from(fair.virtual_times(t).0);
                assert_eq!(v, task.v, "{t} after {op:?}");
            }
        }
    }
}

fn rules() -> impl Strategy<Value = Rules> {
    (0..CFS.len()).prop_map(|i| CFS[i])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// Specs: specs/sched-cfs.md#floor, #slice, #placement, #tick, #preemption, #pick, #yield.
    #[test]
    fn a_queue_is_the_plain_model(
        rules in rules(),
        nices in prop::collection::vec(-20_i8..20, 6),
        ops in ops(6),
    ) {
        compare(rules, &nices, &ops);
    }

    /// So many that the queue is a tree for part of the time.
    #[test]
    fn a_long_queue_is_the_plain_model(
        rules in rules(),
        nices in prop::collection::vec(-20_i8..20, 60),
        ops in ops(60),
        wake in prop::collection::vec(0..60_usize, 60),
    ) {
        let first = wake.into_iter().map(|t| (10_000, Op::Wake(t)));
        let all: Vec<(u64, Op)> = first.chain(ops.into_iter().take(60)).collect();
        compare(rules, &nices, &all);
    }

    /// Hogs get what they weigh: nobody is ever further from its share than two periods, so nobody starves.
    ///
    /// Specs: specs/sched-cfs.md#slice.
    #[test]
    fn hogs_get_their_share(rules in rules(), nices in prop::collection::vec(-20_i8..20, 2..12)) {
        let mut fair = machine(1, &nices, knobs(rules));
        for t in 0..nices.len() as u32 {
            fair.enqueue(0, t, 0, Enqueue::Wakeup);
        }
        fair.pick(0, 0);
        let total: u64 = nices.iter().map(|&n| u64::from(weight::of_nice(n))).sum();
        // A tick more than a slice, or a granularity; one may wait for all others.
        let limit = (nices.len() as u64 + 2) * (24 + 4) * MS;
        for tick in 1..2000 {
            let now = tick * 4 * MS;
            if fair.tick(0, now) {
                fair.pick(0, now);
            }
            let mut sum = 0;
            for (t, &nice) in (0..).zip(&nices) {
                let ran = fair.sum_exec_runtime(t);
                let due = now * u64::from(weight::of_nice(nice)) / total;
                prop_assert!(ran.abs_diff(due) <= limit, "{t} of {nices:?}: {ran} of {due} at {now}");
                sum += ran;
            }
            prop_assert_eq!(sum, now, "all time is charged, once");
        }
    }
}
