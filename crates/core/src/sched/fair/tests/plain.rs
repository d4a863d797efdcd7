//! A plain model of one queue: everything is found by looking at all tasks, in numbers that don't overflow.
//!
//! And machines with groups, quotas and several CPUs at random, which nothing is held against but
//! [`recount`](super::recount) and themselves.

use proptest::prelude::*;

use super::super::*;
use super::{MS, machine, recount};

const INV_NICE: [i128; 40] = [
    48388, 59856, 76040, 92818, 118348, 147320, 184698, 229616, 287308, 360437, 449829, 563644,
    704093, 875809, 1099582, 1376151, 1717300, 2157191, 2708050, 3363326, 4194304, 5237765,
    6557202, 8165337, 10153587, 12820798, 15790321, 19976592, 24970740, 31350126, 39045157,
    49367440, 61356676, 76695844, 95443717, 119304647, 148102320, 186737708, 238609294, 286331153,
];

/// What a task weighs, by the kernel's table.
pub(super) fn plain_weight(nice: i8, policy: SchedPolicy) -> i128 {
    match policy {
        SchedPolicy::Idle => 3,
        SchedPolicy::Normal | SchedPolicy::Batch => i128::from(weight::NICE[(nice + 20) as usize]),
    }
}

#[derive(Clone, Debug)]
struct PlainTask {
    nice: i8,
    policy: SchedPolicy,
    slice: Option<i128>,
    /// The slice it has asked for at its last deadline.
    asked: i128,
    v: i128,
    d: i128,
    lag: i128,
    on: bool,
    delayed: bool,
    relative: bool,
    protected: Option<i128>,
    came: u64,
    ran: i128,
}

struct Plain {
    tasks: Vec<PlainTask>,
    base: i128,
    tick: i128,
    now: i128,
    since: i128,
    curr: Option<usize>,
    marked: bool,
    idle_v: i128,
    came: u64,
}

impl PlainTask {
    fn w(&self) -> i128 {
        plain_weight(self.nice, self.policy)
    }

    fn vd(&self, t: i128) -> i128 {
        if self.w() == 1024 {
            return t;
        }
        let inv = if self.policy == SchedPolicy::Idle {
            1431655765
        } else {
            INV_NICE[(self.nice + 20) as usize]
        };
        let (mut f, mut shift) = (1024 * inv, 32);
        while f >= 1 << 32 {
            f /= 2;
            shift -= 1;
        }
        (t * f) >> shift
    }
}

impl Plain {
    fn on(&self) -> impl Iterator<Item = &PlainTask> {
        self.tasks.iter().filter(|t| t.on)
    }

    fn nr(&self) -> usize {
        self.on().count()
    }

    fn mean(&self) -> i128 {
        if self.nr() == 0 {
            return self.idle_v;
        }
        let weight: i128 = self.on().map(PlainTask::w).sum();
        self.on().map(|t| t.v * t.w()).sum::<i128>().div_euclid(weight)
    }

    fn eligible(&self, t: usize) -> bool {
        self.on().map(|o| o.w() * (o.v - self.tasks[t].v)).sum::<i128>() >= 0
    }

    fn charge(&mut self) {
        let Some(c) = self.curr else { return };
        let ran = self.now - self.since;
        if ran <= 0 {
            return;
        }
        self.since = self.now;
        let base = self.base;
        let task = &mut self.tasks[c];
        task.ran += ran;
        task.v += task.vd(ran);
        let expired = task.v >= task.d;
        if expired {
            task.asked = task.slice.unwrap_or(base);
            task.d = task.v + task.vd(task.asked);
        }
        let protected = task.protected == Some(task.d);
        if self.nr() > 1 && (expired || (!protected && !self.eligible(c))) {
            self.marked = true;
        }
    }

    fn keep_lag(&mut self, t: usize) {
        let v = self.mean();
        self.idle_v = v;
        let task = &mut self.tasks[t];
        let limit = task.vd((2 * task.asked).max(self.tick));
        task.lag = (v - task.v).clamp(-limit, limit);
    }

    fn place(&mut self, t: usize, fork: bool) {
        let v = self.mean();
        let weight: i128 = self.on().map(PlainTask::w).sum();
        let base = self.base;
        let task = &mut self.tasks[t];
        task.asked = task.slice.unwrap_or(base);
        let lag = if weight > 0 { task.lag * (weight + task.w()) / weight } else { 0 };
        task.v = v - lag;
        if task.relative {
            task.d += task.v;
            task.relative = false;
        } else {
            task.d = task.v + task.vd(task.asked) / if fork { 2 } else { 1 };
        }
        self.enter(t);
    }

    fn enter(&mut self, t: usize) {
        self.came += 1;
        self.tasks[t].came = self.came;
        self.tasks[t].on = true;
    }

    fn best(&self) -> usize {
        if self.nr() == 1 {
            return self.tasks.iter().position(|t| t.on).expect("one");
        }
        let curr = self.curr.filter(|&c| self.tasks[c].on && self.eligible(c));
        if let Some(c) = curr {
            if self.tasks[c].protected == Some(self.tasks[c].d) {
                return c;
            }
        }
        let waiting = (0..self.tasks.len())
            .filter(|&t| self.tasks[t].on && Some(t) != self.curr && self.eligible(t))
            .min_by_key(|&t| (self.tasks[t].d, self.tasks[t].came));
        match (curr, waiting) {
            (Some(c), Some(b)) if self.tasks[b].d <= self.tasks[c].d => b,
            (Some(c), _) => c,
            (None, b) => b.expect("the least is eligible"),
        }
    }

    fn leave(&mut self, t: usize) {
        self.keep_lag(t);
        self.tasks[t].on = false;
    }

    fn pick(&mut self) -> Pick {
        if self.curr.is_some_and(|c| self.tasks[c].on) {
            self.charge();
        }
        if self.nr() == 0 {
            self.curr = None;
            self.marked = false;
            return Pick::Idle;
        }
        let best = self.best();
        if self.tasks[best].delayed {
            self.leave(best);
            let task = &mut self.tasks[best];
            task.delayed = false;
            task.lag = task.lag.min(0);
            return Pick::LeftDelayed(best as u32);
        }
        self.marked = false;
        if self.curr != Some(best) {
            if let Some(c) = self.curr.filter(|&c| self.tasks[c].on) {
                self.enter(c);
            }
            self.start(best);
        }
        Pick::Task(best as u32)
    }

    fn start(&mut self, t: usize) {
        self.tasks[t].protected = Some(self.tasks[t].d);
        self.curr = Some(t);
        self.since = self.now;
    }

    fn wake(&mut self, t: usize, fork: bool) {
        if self.tasks[t].delayed {
            self.keep_lag(t);
            if self.tasks[t].lag > 0 {
                self.tasks[t].on = false;
                self.tasks[t].lag = 0;
                self.place(t, false);
            }
            self.tasks[t].delayed = false;
        } else {
            self.charge();
            self.place(t, fork);
        }
        self.preempt(t);
    }

    fn preempt(&mut self, t: usize) {
        let Some(c) = self.curr else {
            self.marked = true;
            return;
        };
        if self.marked || c == t {
            return;
        }
        let idle = |t: usize| self.tasks[t].policy == SchedPolicy::Idle;
        if idle(c) && !idle(t) {
            self.tasks[c].protected = None;
            self.marked = true;
            return;
        }
        if idle(c) != idle(t) || self.tasks[t].policy != SchedPolicy::Normal {
            return;
        }
        self.charge();
        if self.tasks[t].asked < self.tasks[c].asked
            && self.eligible(t)
            && (self.tasks[t].d < self.tasks[c].d || !self.eligible(c))
        {
            self.tasks[c].protected = None;
        }
        if self.best() == t {
            self.marked = true;
        }
    }

    fn sleep(&mut self, special: bool) -> Dequeued {
        let c = self.curr.expect("somebody runs");
        self.charge();
        if !special && !self.eligible(c) {
            self.tasks[c].delayed = true;
            return Dequeued::Delayed;
        }
        self.leave(c);
        Dequeued::Gone
    }

    /// Off the queue, changed, and back.
    fn change(&mut self, t: usize, change: impl FnOnce(&mut PlainTask)) {
        let (on, running) = (self.tasks[t].on, self.curr == Some(t));
        if on {
            self.charge();
            self.leave(t);
            let task = &mut self.tasks[t];
            task.d -= task.v;
            task.relative = true;
        }
        if running {
            self.curr = None;
        }
        let task = &mut self.tasks[t];
        let old = task.w();
        change(task);
        task.lag = task.lag * old / task.w();
        if on {
            self.charge();
            self.place(t, false);
        }
        if running {
            self.start(t);
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Wake(usize),
    Sleep { special: bool },
    Tick,
    Pick,
    Yield,
    Nice(usize, i8),
    Policy(usize, SchedPolicy),
    Slice(usize, Option<u32>),
    Moved(usize),
}

pub(super) fn policies() -> impl Strategy<Value = SchedPolicy> {
    prop_oneof![4 => Just(SchedPolicy::Normal), 1 => Just(SchedPolicy::Batch), 1 => Just(SchedPolicy::Idle)]
}

fn slices() -> impl Strategy<Value = Option<u32>> {
    prop::option::weighted(0.3, 100_000_u32..20_000_000)
}

fn ops(tasks: usize) -> impl Strategy<Value = Vec<(u64, Op)>> {
    let task = 0..tasks;
    let op = prop_oneof![
        6 => task.clone().prop_map(Op::Wake),
        4 => prop::bool::weighted(0.1).prop_map(|special| Op::Sleep { special }),
        6 => Just(Op::Tick),
        3 => Just(Op::Pick),
        1 => Just(Op::Yield),
        1 => (task.clone(), -20_i8..20).prop_map(|(t, n)| Op::Nice(t, n)),
        1 => (task.clone(), policies()).prop_map(|(t, p)| Op::Policy(t, p)),
        1 => (task.clone(), slices()).prop_map(|(t, s)| Op::Slice(t, s)),
        1 => task.prop_map(Op::Moved),
    ];
    prop::collection::vec((0_u64..5_000_000, op), 1..300)
}

fn picks(fair: &mut Fair, plain: &mut Plain) {
    let now = plain.now as u64;
    loop {
        let (real, model) = (fair.pick(0, now), plain.pick());
        assert_eq!(real, model, "picked at {now}");
        match real {
            Pick::Task(_) => return,
            Pick::LeftDelayed(_) => {}
            Pick::Idle => return fair.go_idle(0, now),
        }
    }
}

/// Does the same to both, and compares all that a task has.
fn compare(nices: &[i8], ops: &[(u64, Op)]) {
    let knobs = Knobs::default();
    let mut fair = machine(1, nices, knobs);
    let mut plain = Plain {
        tasks: nices
            .iter()
            .map(|&nice| PlainTask {
                nice,
                policy: SchedPolicy::Normal,
                slice: None,
                asked: i128::from(knobs.base_slice_ns),
                v: 0,
                d: 0,
                lag: 0,
                on: false,
                delayed: false,
                relative: false,
                protected: None,
                came: 0,
                ran: 0,
            })
            .collect(),
        base: i128::from(knobs.base_slice_ns),
        tick: i128::from(knobs.tick_ns),
        now: 0,
        since: 0,
        curr: None,
        marked: false,
        idle_v: -(1 << 20),
        came: 0,
    };
    let mut born = vec![false; nices.len()];
    for (pass, op) in ops {
        plain.now += i128::from(*pass);
        let now = plain.now as u64;
        match *op {
            Op::Wake(t) => {
                let task = &plain.tasks[t];
                if task.on && !task.delayed {
                    continue;
                }
                let fork = !std::mem::replace(&mut born[t], true);
                let how = if fork { Enqueue::Fork } else { Enqueue::Wakeup };
                fair.enqueue(0, t as u32, now, how);
                fair.wakeup_preempts(0, t as u32, now);
                plain.wake(t, fork);
            }
            Op::Sleep { special } => {
                let Some(c) = plain.curr else { continue };
                let real = fair.dequeue(c as u32, now, Dequeue::Sleep { special });
                assert_eq!(real, plain.sleep(special));
                picks(&mut fair, &mut plain);
            }
            Op::Tick => {
                fair.tick(0, now);
                plain.charge();
            }
            Op::Pick => picks(&mut fair, &mut plain),
            Op::Yield => {
                let Some(c) = plain.curr else { continue };
                fair.yield_(0, now);
                if plain.nr() > 1 {
                    plain.charge();
                    if plain.eligible(c) {
                        let base = plain.base;
                        let task = &mut plain.tasks[c];
                        task.v = task.d;
                        task.asked = task.slice.unwrap_or(base);
                        task.d = task.v + task.vd(task.asked);
                    }
                }
                picks(&mut fair, &mut plain);
            }
            Op::Nice(t, nice) => {
                let old = plain.tasks[t].nice;
                fair.set_nice(t as u32, nice, now);
                if old == nice {
                    continue;
                }
                plain.change(t, |task| task.nice = nice);
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
                plain.change(t, |task| task.policy = policy);
            }
            Op::Slice(t, slice) => {
                fair.set_slice(t as u32, slice, now);
                let base = plain.base;
                plain.change(t, |task| {
                    task.slice = slice.map(i128::from);
                    task.asked = task.slice.unwrap_or(base);
                });
            }
            Op::Moved(t) => {
                if plain.curr == Some(t) || !plain.tasks[t].on {
                    continue;
                }
                fair.dequeue(t as u32, now, Dequeue::Move);
                fair.enqueue(0, t as u32, now, Enqueue::Migrated);
                plain.change(t, |_| {});
            }
        }
        recount::check(&fair);
        assert_eq!(fair.need_resched(0), plain.marked, "mark after {op:?}");
        assert_eq!(fair.current(0).map(|t| t as usize), plain.curr, "current after {op:?}");
        for (t, task) in plain.tasks.iter().enumerate() {
            let t = t as u32;
            assert_eq!(
                (fair.is_queued(t), fair.is_delayed(t), i128::from(fair.sum_exec_runtime(t))),
                (task.on, task.delayed, task.ran),
                "task {t} after {op:?}"
            );
            if task.on {
                let (v, d) = fair.virtual_times(t);
                assert_eq!((i128::from(v), i128::from(d)), (task.v, task.d), "{t} after {op:?}");
            } else {
                assert_eq!(i128::from(fair.vlag(t)), task.lag, "lag of {t} after {op:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Specs: specs/sched-fair.md#queue, #pick, #preemption, #placement, #delayed, #yield, #changes.
    #[test]
    fn a_queue_is_the_plain_model(
        nices in prop::collection::vec(-20_i8..20, 6),
        ops in ops(6),
    ) {
        compare(&nices, &ops);
    }

    /// So many that the queue is a tree for part of the time.
    #[test]
    fn a_long_queue_is_the_plain_model(
        nices in prop::collection::vec(-20_i8..20, 60),
        ops in ops(60),
        wake in prop::collection::vec(0..60_usize, 60),
    ) {
        let first = wake.into_iter().map(|t| (10_000, Op::Wake(t)));
        let all: Vec<(u64, Op)> = first.chain(ops.into_iter().take(60)).collect();
        compare(&nices, &all);
    }

    /// Hogs get what they weigh: nobody is ever further from its share than four slices, so nobody starves.
    ///
    /// Specs: specs/sched-fair.md#queue.
    #[test]
    fn hogs_get_their_share(nices in prop::collection::vec(-20_i8..20, 2..12), hz in 0..3) {
        let tick_ns = [1, 4, 10][hz as usize] * MS;
        let knobs = Knobs { tick_ns, ..Knobs::default() };
        let mut fair = machine(1, &nices, knobs);
        for t in 0..nices.len() as u32 {
            fair.enqueue(0, t, 0, Enqueue::Wakeup);
        }
        fair.pick(0, 0);
        let total: u64 = nices.iter().map(|&n| u64::from(weight::of_nice(n))).sum();
        // What somebody gets at a time is a slice, or what a tick makes of it; one may wait for all others.
        let limit = (nices.len() as u64 + 2) * u64::from(knobs.base_slice_ns).max(tick_ns);
        for tick in 1..1000 {
            let now = tick * tick_ns;
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

/// A draw that repeats.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// What has run, on a machine of 3 CPUs where anything happens: in groups of groups, with quotas.
fn anything(seed: u64, steps: usize, rules: Rules) -> Vec<u64> {
    const CPUS: usize = 3;
    const TASKS: u64 = 14;
    let mut draw = Draw(seed);
    let mut fair = Fair::new(CPUS, Knobs { rules, ..Knobs::default() });
    let mut groups = vec![GroupId::ROOT];
    for _ in 0..4 {
        let parent = groups[draw.below(groups.len() as u64) as usize];
        groups.push(fair.add_group(parent, 1 + draw.below(400) as u32));
    }
    let mut now = 0;
    let mut busy = [0_u64; CPUS];
    let mut charged_to = [0_u64; CPUS];
    let mut log = vec![];
    let mut woken = vec![];
    let mut gone_ran = 0;
    for task in 0..TASKS as u32 {
        let group = groups[draw.below(5) as usize];
        fair.add_task(task, draw.below(3) as usize, &Attr { group, ..Attr::default() });
        fair.enqueue(fair.cpu_of(task), task, now, Enqueue::Fork);
        let cpu = fair.cpu_of(task);
        fair.wakeup_preempts(cpu, task, now);
    }
    for _ in 0..steps {
        now += draw.below(3_000_000);
        while let Some((at, g)) = fair.next_timer().filter(|t| t.0 <= now) {
            fair.refill(
                g,
                at.max(charged_to.iter().copied().max().unwrap_or(0)).min(now),
                &mut woken,
            );
        }
        let task = draw.below(TASKS) as u32;
        let (cpu, home) = (draw.below(3) as usize, fair.cpu_of(task));
        let runs = fair.current(home) == Some(task);
        let group = groups[draw.below(groups.len() as u64) as usize];
        match draw.below(20) {
            0..=4 if !fair.is_queued(task) || fair.is_delayed(task) => {
                let at = if fair.is_delayed(task) { home } else { cpu };
                fair.enqueue(at, task, now, Enqueue::Wakeup);
                fair.wakeup_preempts(at, task, now);
            }
            5..=7 if runs => {
                let special = draw.below(8) == 0;
                fair.dequeue(task, now, Dequeue::Sleep { special });
                fair.set_need_resched(home);
            }
            8 | 9 if fair.is_queued(task) && !runs => {
                fair.dequeue(task, now, Dequeue::Move);
                fair.migrate(task, cpu, now);
                fair.enqueue(cpu, task, now, Enqueue::Migrated);
                fair.wakeup_preempts(cpu, task, now);
            }
            10 => {
                fair.set_nice(task, draw.below(40) as i8 - 20, now);
            }
            11 => {
                fair.set_group(task, group, now);
            }
            12 => {
                let policy = [SchedPolicy::Normal, SchedPolicy::Batch, SchedPolicy::Idle]
                    [draw.below(3) as usize];
                fair.set_policy(task, policy, now);
                fair.set_slice(task, (draw.below(2) == 0).then_some(3_000_000), now);
            }
            13 if fair.current(cpu).is_some() => {
                fair.yield_to(cpu, task, now);
                fair.set_need_resched(cpu);
            }
            14 => fair.set_group_weight(group, 1 + draw.below(1000) as u32, now),
            15 => {
                let quota = Quota {
                    quota_ns: 1_000_000 + draw.below(30_000_000),
                    period_ns: 10_000_000 + draw.below(90_000_000),
                    burst_ns: draw.below(2) * 5_000_000,
                };
                fair.set_quota(group, (draw.below(3) > 0).then_some(quota), now);
                for cpu in 0..CPUS {
                    if fair.is_idle(cpu) && fair.nr_running(cpu) > 0 {
                        fair.set_need_resched(cpu);
                    }
                }
            }
            16 => {
                fair.update_blocked(cpu, now);
                log.push(fair.task_h_load(task, now / 4_000_000));
            }
            17 if !runs => {
                gone_ran += fair.sum_exec_runtime(task);
                fair.remove_task(task, now);
                fair.add_task(task, cpu, &Attr { group, ..Attr::default() });
                if let Some(parent) = fair.current(cpu).filter(|_| seed % 2 == 0) {
                    fair.forked(task, parent, now);
                }
                fair.enqueue(cpu, task, now, Enqueue::Fork);
                fair.wakeup_preempts(cpu, task, now);
            }
            18 if draw.below(2) == 0 => fair.set_group_idle(group, draw.below(2) == 0, now),
            18 => {
                let new = fair.add_group(group, 100);
                assert!(fair.remove_group(new, now));
            }
            _ => {
                for cpu in 0..CPUS {
                    fair.tick(cpu, now);
                }
            }
        }
        for cpu in 0..CPUS {
            let ran = fair.current(cpu).is_some();
            if !fair.need_resched(cpu) {
                fair.update(cpu, now);
            }
            while fair.need_resched(cpu) {
                match fair.pick(cpu, now) {
                    Pick::Task(t) => log.push(u64::from(t)),
                    Pick::LeftDelayed(t) => log.push(u64::from(t) << 32),
                    Pick::Idle => fair.go_idle(cpu, now),
                }
            }
            if ran {
                busy[cpu] += now - charged_to[cpu];
            }
            charged_to[cpu] = now;
        }
        recount::check(&fair);
    }
    // What was charged is the time in which somebody ran.
    let ran: u64 = (0..TASKS as u32).map(|t| fair.sum_exec_runtime(t)).sum::<u64>() + gone_ran;
    assert_eq!(ran, busy.iter().sum::<u64>(), "seed {seed}");
    log.extend((0..CPUS).flat_map(|c| [fair.load_avg(c), fair.util_avg(c), fair.runnable_avg(c)]));
    log
}

#[test]
fn anything_may_happen_and_happens_again() {
    for rules in Rules::ALL {
        for seed in 0..1000 {
            assert_eq!(anything(seed, 200, rules), anything(seed, 200, rules));
        }
    }
}
