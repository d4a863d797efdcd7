mod vectors;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::super::domain::shapes::{Shape, all_online, layouts, shape};
use super::super::domain::{Domains, Flags, Span};
use super::group::*;
use super::interval::*;
use super::place::*;
use super::pull::*;
use super::*;

/// A task of the tests' queues.
#[derive(Clone, Debug)]
struct Task {
    load: u64,
    util: u64,
    allowed: u128,
    ran_ago_ns: i64,
    preferred: Option<u16>,
    runnable: u64,
    idle_policy: bool,
    per_cpu_kthread: bool,
    throttled: bool,
}

/// A task that uses a whole CPU, may run everywhere and ran long ago.
const HOG: Task = Task {
    load: 1024,
    util: 400,
    allowed: u128::MAX,
    ran_ago_ns: 1_000_000_000,
    preferred: None,
    runnable: 1024,
    idle_policy: false,
    per_cpu_kthread: false,
    throttled: false,
};

/// Whether a set has a CPU. Beyond 128 none is in any.
fn has(set: u128, cpu: usize) -> bool {
    cpu < 128 && set >> cpu & 1 != 0
}

/// Queues: tasks of each CPU from the hot end, the first one that may is running.
struct Model {
    tasks: Vec<Task>,
    queues: Vec<Vec<u32>>,
    running: Vec<Option<u32>>,
    figures: Vec<Figures>,
    idle: Vec<u64>,
    clock: u64,
    step: u64,
    roll: u32,
    log: Vec<String>,
    pushes: Vec<(usize, usize)>,
    left: Vec<u32>,
    nodes: Vec<u16>,
    /// Tasks of other classes.
    others: Vec<u32>,
    /// CPUs with a wake-up that waits, with a mark for reschedule.
    pending: u128,
    marked: u128,
    /// Whose averages were aged.
    aged: Vec<usize>,
    /// A CPU that gets work as soon as somebody's averages are aged.
    interrupted: Option<usize>,
    /// The sums of blocks, if they are kept.
    blocks: Option<Blocks>,
}

impl Model {
    fn new(d: &Domains) -> Self {
        let nr = d.nr_cpus();
        let mut model = Self {
            tasks: Vec::new(),
            queues: vec![Vec::new(); nr],
            running: vec![None; nr],
            figures: vec![Figures::default(); nr],
            idle: vec![0; nr.div_ceil(64)],
            clock: 1_000_000,
            step: 0,
            roll: 0,
            log: Vec::new(),
            pushes: Vec::new(),
            left: (0..nr).map(|cpu| d.original(cpu)).collect(),
            nodes: (0..nr).map(|cpu| d.node(cpu)).collect(),
            others: vec![0; nr],
            pending: 0,
            marked: 0,
            aged: Vec::new(),
            interrupted: None,
            blocks: None,
        };
        for cpu in 0..nr {
            model.refresh(cpu);
        }
        model
    }
    /// Puts tasks on a CPU; the first of its tasks runs.
    fn put(&mut self, cpu: usize, tasks: impl IntoIterator<Item = Task>) {
        for task in tasks {
            self.queues[cpu].push(self.tasks.len() as u32);
            self.tasks.push(task);
        }
        self.running[cpu] = self.queues[cpu].first().copied();
        self.refresh(cpu);
    }
    fn refresh(&mut self, cpu: usize) {
        let q = &self.queues[cpu];
        let of = |f: fn(&Task) -> u64| q.iter().map(|&t| f(&self.tasks[t as usize])).sum::<u64>();
        let nr = q.len() as u32;
        let all = nr + self.others[cpu];
        let home = |t: &&u32| self.tasks[**t as usize].preferred == Some(self.nodes[cpu]);
        self.figures[cpu] = Figures {
            load: of(|t| t.load),
            util: of(|t| t.util).min(1024) as u32,
            runnable: of(|t| t.runnable) as u32,
            nr_running: all,
            h_nr_queued: nr,
            nr_numa: q.iter().filter(|&&t| self.tasks[t as usize].preferred.is_some()).count()
                as u32,
            nr_preferred: q.iter().filter(home).count() as u32,
        };
        let (word, bit) = (cpu / 64, 1 << (cpu % 64));
        if nr == 0 {
            self.running[cpu] = None;
        }
        if all == 0 && !has(self.pending, cpu) {
            self.idle[word] |= bit;
        } else {
            self.idle[word] &= !bit;
        }
    }
    fn nr(&self) -> Vec<usize> {
        self.queues.iter().map(Vec::len).collect()
    }
}

impl Queues for Model {
    fn facts(&self) -> Facts<'_> {
        Facts { figures: &self.figures, idle: &self.idle, misfit: &[] }
    }
    fn blocks(&self) -> Option<&Blocks> {
        self.blocks.as_ref()
    }
    fn capacity_left(&self, cpu: usize) -> u32 {
        self.left[cpu]
    }
    fn update(&mut self, _: usize) {}
    fn update_blocked(&mut self, cpu: usize) -> bool {
        self.aged.push(cpu);
        if let Some(cpu) = self.interrupted.take() {
            self.put(cpu, [HOG]);
            self.marked |= 1 << cpu;
        }
        false
    }
    fn coldest(&self, cpu: usize) -> Option<u32> {
        self.queues[cpu].last().copied()
    }
    fn warmer(&self, cpu: usize, task: u32) -> Option<u32> {
        let at = self.queues[cpu].iter().position(|&t| t == task)?;
        at.checked_sub(1).map(|at| self.queues[cpu][at])
    }
    fn to_hot_end(&mut self, cpu: usize, task: u32) {
        self.queues[cpu].retain(|&t| t != task);
        self.queues[cpu].insert(0, task);
    }
    fn candidate(&mut self, task: u32, from: usize, to: usize, numa: bool) -> Candidate {
        let t = &self.tasks[task as usize];
        let facts = NumaFacts {
            src: self.nodes[from],
            dst: self.nodes[to],
            preferred: t.preferred,
            others_away: self.figures[from].nr_running > self.figures[from].nr_preferred,
            weights: (500, 500),
        };
        Candidate {
            throttled: t.throttled,
            per_cpu_kthread: t.per_cpu_kthread,
            idle_policy: t.idle_policy,
            allowed: t.allowed >> to & 1 != 0,
            running: self.running[from] == Some(task),
            ran_ago_ns: t.ran_ago_ns,
            load: t.load,
            util: t.util,
            locality: if numa && t.preferred.is_some() {
                locality(&facts, false)
            } else {
                Locality::Any
            },
            ..Candidate::default()
        }
    }
    fn allowed(&self, task: u32, cpu: usize) -> bool {
        self.tasks[task as usize].allowed >> cpu & 1 != 0
    }
    fn current_allowed(&self, cpu: usize, to: usize) -> bool {
        self.running[cpu].is_none_or(|t| self.allowed(t, to))
    }
    fn detach(&mut self, task: u32, from: usize, _: usize) {
        self.queues[from].retain(|&t| t != task);
        self.refresh(from);
    }
    fn attach(&mut self, task: u32, to: usize) {
        self.queues[to].insert(0, task);
        self.running[to] = self.running[to].or(Some(task));
        self.refresh(to);
    }
    fn pending(&self, cpu: usize) -> bool {
        has(self.pending, cpu)
    }
    fn sched_idle(&self, cpu: usize) -> bool {
        let q = &self.queues[cpu];
        !q.is_empty() && q.iter().all(|&t| self.tasks[t as usize].idle_policy)
    }
    fn need_resched(&self, cpu: usize) -> bool {
        has(self.marked, cpu)
    }
    fn clock(&mut self, _: usize, _: u32) -> u64 {
        self.clock += self.step;
        self.clock
    }
    fn roll(&mut self, _: usize) -> u32 {
        self.roll
    }
    fn refused(&mut self, task: u32, why: Refusal) {
        self.log.push(format!("task {task} stays: {}", why.name()));
    }
    fn forced(&mut self, task: u32) {
        self.log.push(format!("task {task} is hot and goes"));
    }
    fn balanced(&mut self, cpu: usize, level: usize, idle: IdleType, o: &Outcome) {
        self.log.push(format!("CPU {cpu} level {level} {}: {}", idle.name(), outcome(o)));
    }
    fn push(&mut self, from: usize, to: usize) {
        self.pushes.push((from, to));
    }
}

fn outcome(o: &Outcome) -> String {
    let mut text = format!("moved {}", o.moved);
    for (is, what) in [
        (o.stop, "stop"),
        (o.balanced, "balanced"),
        (o.failed, "failed"),
        (o.nobusyg, "no busier group"),
        (o.nobusyq, "no busier queue"),
    ] {
        if is {
            text += &format!(", {what}");
        }
    }
    for (sum, what) in o.imbalance.iter().zip(Migration::ALL) {
        if *sum > 0 {
            text += &format!(", imbalance {sum} {}", what.name());
        }
    }
    if o.hot_gained > 0 {
        text += &format!(", {} hot", o.hot_gained);
    }
    if let Some(from) = o.active {
        text += &format!(", push from {from}");
    }
    text
}

/// A machine, its balancing, and queues.
struct Bench {
    d: Domains,
    b: Balance,
    q: Model,
}

impl Bench {
    fn new(s: Shape) -> Self {
        Self::of(s.domains())
    }
    fn of(d: Domains) -> Self {
        let b = Balance::new(&d, Knobs::default(), 0);
        let q = Model::new(&d);
        Self { d, b, q }
    }
    fn balance(&mut self, cpu: usize, level: usize, idle: IdleType) -> Outcome {
        self.b.balance(&self.d, &mut self.q, cpu, level, idle, 1000)
    }
    fn check(&mut self, cpu: usize, level: usize, idle: IdleType, expected: Expect) {
        let o = self.balance(cpu, level, idle);
        let mut text = format!("{}\n", outcome(&o));
        for line in std::mem::take(&mut self.q.log) {
            text += &format!("{line}\n");
        }
        text += &format!("{:?}\n", self.q.nr());
        expected.assert_eq(&text);
    }
}

// specs/sched-balance.md#intervals: the vectors, idle and busy, in ticks.
#[test]
fn intervals() {
    for (span, idle, busy) in [(2, 1, 7), (4, 1, 15), (16, 4, 63), (64, 16, 255)] {
        assert_eq!((interval(span, false, 64), interval(span, true, 64)), (idle, busy));
    }
    // Between a tick and a tenth of a second for each CPU.
    assert_eq!((interval(0, true, 1), interval(10_000, false, 2)), (1, 50));
    assert_eq!(interval(u32::MAX, true, 8192), 204_800);
}

// specs/sched-balance.md#group-type: four CPUs of capacity 4096, pct 117.
#[test]
fn group_types() {
    let kind = |nr_running, util, runnable| {
        let s = GroupStats {
            nr_running,
            util,
            runnable,
            capacity: 4096,
            weight: 4,
            ..GroupStats::default()
        };
        s.classify(117, false)
    };
    assert_eq!(kind(3, 4000, 3000), GroupType::HasSpare);
    assert_eq!(kind(4, 4000, 3000), GroupType::FullyBusy);
    assert_eq!(kind(4, 3000, 3000), GroupType::HasSpare);
    assert_eq!(kind(5, 3600, 4600), GroupType::Overloaded);
    assert_eq!(kind(5, 3000, 4600), GroupType::HasSpare);
    assert_eq!(kind(5, 3000, 4800), GroupType::Overloaded);
    let s = GroupStats {
        weight: 4,
        capacity: 4096,
        smt_balance: true,
        misfit: 1,
        ..GroupStats::default()
    };
    assert_eq!(s.classify(117, true), GroupType::Imbalanced);
    assert_eq!(s.classify(117, false), GroupType::SmtBalance);
    assert_eq!(GroupStats { smt_balance: false, ..s }.classify(117, false), GroupType::MisfitTask);
}

// specs/sched-balance.md#sibling-imbalance, specs/sched-balance.md#adjust: the vectors.
#[test]
fn tasks_out_of_balance() {
    for (nr_b, nr_l, cores_b, cores_l, tasks) in
        [(3, 1, 4, 4, 2), (5, 0, 8, 4, 4), (6, 2, 4, 2, 2), (2, 0, 2, 4, 3)]
    {
        assert_eq!(sibling_imbalance(true, nr_b, nr_l, cores_b, cores_l), tasks);
        assert_eq!(sibling_imbalance(false, nr_b, nr_l, cores_b, cores_l), 0);
    }
    // An empty group takes one of two.
    assert_eq!(sibling_imbalance(true, 2, 0, 8, 1), 2);
    assert_eq!(adjust_numa_imbalance(2, 2, 4), 0);
    assert_eq!(adjust_numa_imbalance(2, 5, 4), 2);
    assert_eq!(adjust_numa_imbalance(3, 2, 4), 3);
}

// specs/sched-balance.md#idle-scan: sixteen CPUs, by percent used; a core of two threads is zero from 91 on.
#[test]
fn idle_scan() {
    let scan = |percent: u64| nr_idle_scan(16 * 1024 * percent / 100, 16, 117);
    let vector =
        [(0, 16), (25, 14), (50, 10), (60, 8), (70, 5), (80, 2), (82, 1), (83, 0), (100, 0)];
    for (percent, n) in vector {
        assert_eq!(scan(percent), n, "{percent} %");
    }
    // Of a thousand CPUs, where the share left is not cut to whole CPUs.
    let of_core = |percent: u64| nr_idle_scan(1000 * 1024 * percent / 100, 1000, 110);
    assert!(of_core(90) > 0);
    assert_eq!(of_core(91), 0);
}

// specs/sched-balance.md#avg-idle, specs/sched-balance.md#cost, specs/sched-balance.md#dice: the vectors.
#[test]
fn going_idle_is_learnt_from() {
    assert_eq!(avg_idle(1_000_000, 100_000, 500_000), 887_500);
    assert_eq!(avg_idle(1_000_000, 10_000_000, 500_000), 1_000_000);
    let mut bench = Bench::new(shape(1, 4, 1));
    assert_eq!(bench.b.cpus[0].avg_idle, 1_000_000);
    bench.b.newly_idle(&bench.d, &mut bench.q, 0, 5_000, 0);
    bench.b.woken(0, 105_000);
    assert_eq!((bench.b.cpus[0].avg_idle, bench.b.cpus[0].idle_stamp), (887_500, 0));
    bench.b.woken(0, 900_000);
    assert_eq!(bench.b.cpus[0].avg_idle, 887_500, "it had not gone idle again");

    let level = &mut bench.b.levels[0];
    assert_eq!((level.newidle_call, level.newidle_success, level.newidle_ratio), (512, 256, 512));
    assert_eq!((level.admits(513), level.admits(514)), (Some(2), None));
    level.max_newidle_lb_cost = 100_000;
    let decays: Vec<u64> = (0..1000).filter(|&j| level.cost(0, 0, j)).collect();
    assert_eq!((decays, level.max_newidle_lb_cost), (vec![251, 502, 753], 96_524));
    for _ in 0..512 {
        level.newidle(0);
    }
    assert_eq!((level.newidle_call, level.newidle_success, level.newidle_ratio), (512, 128, 256));
    assert_eq!(level.admits(0), Some(4));
}

// specs/sched-balance.md#imbalance: two overloaded groups of four CPUs.
#[test]
fn load_between_overloaded_groups() {
    let s = Shape { llcs: 2, ..shape(1, 4, 1) };
    for (theirs, ours, moved) in [(6144, 4608, Some(768)), (5120, 4608, None)] {
        let mut bench = Bench::new(s);
        for cpu in 0..8 {
            let load = if cpu < 4 { ours } else { theirs } / 8;
            bench.q.put(cpu, [0, 1].map(|_| Task { load, util: 600, ..HOG }));
        }
        let o = bench.balance(0, 1, IdleType::Busy);
        match moved {
            Some(load) => assert_eq!((o.imbalance, o.moved), ([load, 0, 0, 0], 1)),
            None => assert!(o.nobusyg && o.balanced && o.moved == 0),
        }
    }
}

// specs/sched-balance.md#level: the primer's example, then what is left, then nothing.
#[test]
fn an_idle_cpu_pulls_from_a_loaded_one() {
    let mut bench = Bench::new(shape(1, 4, 1));
    bench.q.put(2, [HOG, HOG, HOG]);
    bench.check(
        0,
        0,
        IdleType::Idle,
        expect![[r#"
        moved 1, imbalance 1 task
        [1, 0, 2, 0]
    "#]],
    );
    bench.check(
        1,
        0,
        IdleType::Idle,
        expect![[r#"
        moved 1, imbalance 1 task
        [1, 1, 1, 0]
    "#]],
    );
    bench.check(
        3,
        0,
        IdleType::Idle,
        expect![[r#"
        moved 0, balanced, no busier group
        [1, 1, 1, 0]
    "#]],
    );
    bench.check(
        0,
        0,
        IdleType::Busy,
        expect![[r#"
        moved 0, balanced, no busier group
        [1, 1, 1, 0]
    "#]],
    );
}

// specs/sched-balance.md#detach: why tasks stay.
#[test]
fn tasks_that_stay() {
    let mut bench = Bench::new(shape(1, 4, 1));
    let pinned = Task { allowed: 1 << 2, ..HOG };
    let hot = Task { ran_ago_ns: 499_999, ..HOG };
    bench.q.put(2, [HOG, hot.clone(), pinned.clone()]);
    bench.check(
        0,
        0,
        IdleType::Idle,
        expect![[r#"
        moved 0, failed, imbalance 1 task
        task 2 stays: affine
        task 1 stays: hot
        task 0 stays: running
        [0, 0, 3, 0]
    "#]],
    );
    // A task that may run on the other thread of the core only is brought there instead.
    let mut bench = Bench::new(shape(1, 2, 2));
    bench.q.put(2, [HOG, Task { allowed: 0b0010, ..HOG }, Task { allowed: 0b0110, ..HOG }]);
    bench.q.put(3, [HOG]);
    bench.check(
        0,
        1,
        IdleType::Idle,
        expect![[r#"
        moved 2, imbalance 2 task
        task 2 stays: affine
        task 1 stays: affine
        task 0 stays: running
        [0, 2, 1, 1]
    "#]],
    );
    // Cache-hot tasks go after as many failures as the level allows.
    let mut bench = Bench::new(shape(1, 4, 1));
    bench.q.put(2, [HOG, hot.clone(), hot.clone()]);
    bench.check(
        0,
        0,
        IdleType::Idle,
        expect![[r#"
        moved 0, failed, imbalance 1 task
        task 2 stays: hot
        task 1 stays: hot
        task 0 stays: running
        [0, 0, 3, 0]
    "#]],
    );
    bench.check(
        0,
        0,
        IdleType::Idle,
        expect![[r#"
        moved 0, failed, imbalance 1 task
        task 2 stays: hot
        task 1 stays: hot
        task 0 stays: running
        [0, 0, 3, 0]
    "#]],
    );
    bench.check(
        0,
        0,
        IdleType::Idle,
        expect![[r#"
        moved 1, imbalance 1 task, 1 hot
        task 2 is hot and goes
        [1, 0, 2, 0]
    "#]],
    );
    // All tasks are pinned: the interval doubles beyond its maximum, but not while going idle.
    let mut bench = Bench::new(shape(1, 4, 1));
    bench.q.put(2, [pinned.clone(), pinned]);
    bench.check(
        0,
        0,
        IdleType::NewlyIdle,
        expect![[r#"
        moved 0, balanced, no busier group, imbalance 1 task
        task 1 stays: affine
        task 0 stays: affine
        [0, 0, 2, 0]
    "#]],
    );
    assert_eq!(bench.b.levels[0].balance_interval, 4);
    for interval in [8, 16, 32, 64, 128, 256, 512, 512] {
        bench.balance(0, 0, IdleType::Idle);
        assert_eq!(bench.b.levels[0].balance_interval, interval);
    }
}

// specs/sched-balance.md#detach: load and utilisation, and that failures relax them.
#[test]
fn verdicts() {
    let knobs = Knobs::default();
    let cold = Candidate {
        allowed: true,
        ran_ago_ns: 500_000,
        load: 1024,
        util: 300,
        ..Candidate::default()
    };
    let pull = |migration, imbalance, failed| Pull {
        migration,
        imbalance,
        failed,
        cache_nice_tries: 1,
        share_cpucapacity: false,
        dst_has_tasks: false,
    };
    let ok = |left, forced| Ok(Take { left, forced });
    assert_eq!(verdict(&cold, &pull(Migration::Load, 1024, 0), &knobs), ok(0, false));
    assert_eq!(verdict(&cold, &pull(Migration::Load, 1023, 0), &knobs), Err(Refusal::TooMuch));
    assert_eq!(verdict(&cold, &pull(Migration::Load, 512, 1), &knobs), ok(-512, false));
    assert_eq!(verdict(&cold, &pull(Migration::Util, 299, 0), &knobs), Err(Refusal::TooMuch));
    assert_eq!(verdict(&cold, &pull(Migration::Util, 300, 0), &knobs), ok(0, false));
    assert_eq!(verdict(&cold, &pull(Migration::Task, 3, 0), &knobs), ok(2, false));
    let weightless = Candidate { load: 0, ..cold };
    assert_eq!(verdict(&weightless, &pull(Migration::Load, 5, 0), &knobs), ok(4, false));
    let hot = Candidate { ran_ago_ns: 499_999, ..cold };
    assert_eq!(verdict(&hot, &pull(Migration::Task, 1, 1), &knobs), Err(Refusal::Hot));
    assert_eq!(verdict(&hot, &pull(Migration::Task, 1, 2), &knobs), ok(0, true));
    assert_eq!(verdict(&hot, &pull(Migration::Load, 10, 2), &knobs), Err(Refusal::TooMuchAndHot));
    let of_core = Pull { share_cpucapacity: true, ..pull(Migration::Task, 1, 0) };
    assert_eq!(verdict(&hot, &of_core, &knobs), ok(0, false));
    assert_eq!(
        verdict(&Candidate { idle_policy: true, ..hot }, &pull(Migration::Task, 1, 0), &knobs),
        ok(0, false)
    );
    let buddy = Candidate { next_buddy: true, ..cold };
    let busy = Pull { dst_has_tasks: true, ..pull(Migration::Task, 1, 0) };
    assert_eq!(verdict(&buddy, &busy, &knobs), Err(Refusal::Hot));
    assert_eq!(verdict(&buddy, &pull(Migration::Task, 1, 0), &knobs), ok(0, false));
    for (cost, is) in [(-1, true), (0, false)] {
        let knobs = Knobs { migration_cost_ns: cost, ..knobs };
        assert_eq!(is_hot(&hot, &pull(Migration::Task, 1, 0), &knobs), is);
    }
    let misfit = Candidate { fits: false, ..cold };
    assert_eq!(verdict(&misfit, &pull(Migration::Misfit, 1, 0), &knobs), ok(0, false));
    assert_eq!(
        verdict(&Candidate { fits: true, ..cold }, &pull(Migration::Misfit, 1, 0), &knobs),
        Err(Refusal::TooMuch)
    );
    let small = Knobs { lb_min: true, ..knobs };
    assert_eq!(verdict(&weightless, &pull(Migration::Load, 5, 0), &small), Err(Refusal::TooMuch));
    assert_eq!(verdict(&weightless, &pull(Migration::Load, 5, 1), &small), ok(4, false));
}

// specs/sched-balance.md#hot: what NUMA balancing thinks.
#[test]
fn localities() {
    let facts = |preferred, others_away, weights| NumaFacts {
        src: 0,
        dst: 1,
        preferred,
        others_away,
        weights,
    };
    assert_eq!(locality(&facts(Some(0), true, (9, 1)), false), Locality::Worse);
    assert_eq!(locality(&facts(Some(0), false, (9, 1)), false), Locality::Any);
    assert_eq!(locality(&facts(Some(1), true, (9, 1)), false), Locality::Better);
    assert_eq!(locality(&facts(Some(2), true, (9, 1)), false), Locality::Worse);
    assert_eq!(locality(&facts(None, true, (1, 1)), false), Locality::Better);
    assert_eq!(locality(&facts(None, true, (9, 1)), true), Locality::Any);
    assert_eq!(
        locality(&NumaFacts { dst: 0, ..facts(Some(0), true, (9, 1)) }, false),
        Locality::Any
    );
}

// specs/sched-balance.md#elected: an idle core before an idle thread before the group's first CPU.
#[test]
fn who_balances() {
    let d = shape(2, 2, 2).domains();
    let who = |busy: &[usize], cpu: usize, level: usize| {
        let mut q = Model::new(&d);
        for &cpu in busy {
            q.put(cpu, [HOG]);
        }
        let group = d.balance_mask(d.local(cpu, level));
        let all = group.iter().map(|&c| usize::from(c));
        all.filter(|&c| elected(&d, &q.facts(), c, level, c, |_| true)).collect::<Vec<_>>()
    };
    assert_eq!(who(&[], 0, 2), [0]);
    assert_eq!(who(&[0], 0, 2), [2], "CPU 1's core is busy");
    assert_eq!(who(&[0, 2], 0, 2), [1]);
    assert_eq!(who(&[0, 1, 2, 3], 0, 2), [0]);
    assert_eq!(who(&[0], 0, 1), [1]);
    assert_eq!(who(&[1], 1, 0), [1], "a thread is a group of its own");
}

// specs/sched-balance.md#busiest: between nodes two tasks may stay together; then one goes.
#[test]
fn nodes_may_differ_by_two_tasks() {
    let mut bench = Bench::new(shape(2, 16, 1));
    for cpu in 0..2 {
        bench.q.put(cpu, [Task { util: 100, ..HOG }]);
    }
    bench.check(16, 1, IdleType::Idle, expect![[r#"
        moved 0, balanced, no busier group
        [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    "#]]);
    bench.q.put(2, [HOG, HOG]);
    bench.check(16, 1, IdleType::Idle, expect![[r#"
        moved 1, imbalance 2 task
        [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    "#]]);
}

// specs/sched-balance.md#active: the only task of a core's second thread is pushed to an idle core.
#[test]
fn a_running_task_is_pushed() {
    let mut bench = Bench::new(shape(1, 2, 2));
    bench.q.put(0, [HOG]);
    bench.q.put(1, [HOG]);
    let mut text = String::new();
    for _ in 0..6 {
        let o = bench.balance(2, 1, IdleType::Idle);
        text += &format!(
            "{}, {} failures\n",
            outcome(&o),
            bench.b.levels[bench.d.slot(2, 1)].nr_balance_failed
        );
    }
    expect![[r#"
        moved 0, failed, imbalance 1 task, 1 failures
        moved 0, failed, imbalance 1 task, 2 failures
        moved 0, failed, imbalance 1 task, 3 failures
        moved 0, failed, imbalance 1 task, push from 0, 4 failures
        moved 0, failed, imbalance 1 task, 5 failures
        moved 0, failed, imbalance 1 task, 6 failures
    "#]]
    .assert_eq(&text);
    let pushes = std::mem::take(&mut bench.q.pushes);
    let (from, to) = pushes[0];
    // The stopper has taken the CPU.
    bench.q.running[from] = None;
    let pushed = bench.b.active_push(&bench.d, &mut bench.q, from);
    let task = bench.q.queues[to].first().copied();
    assert_eq!(pushed, Some(Pushed { to: 2, level: Some(1), task }));
    assert!(task.is_some());
    assert_eq!(bench.b.levels[bench.d.slot(2, 1)].nr_balance_failed, 0);
    assert_eq!(bench.b.active_push(&bench.d, &mut bench.q, from), None);
    // A task that may not run there is not pushed, and nobody else is asked twice.
    let mut bench = Bench::new(shape(1, 2, 2));
    bench.q.put(0, [Task { allowed: 0b11, ..HOG }]);
    bench.q.put(1, [Task { allowed: 0b11, ..HOG }]);
    for _ in 0..8 {
        assert_eq!(bench.balance(2, 1, IdleType::Idle).active, None);
    }
}

// specs/sched-balance.md#group-type: a task on a CPU that others take time from is moved to a free one.
#[test]
fn reduced_capacity() {
    let mut bench = Bench::new(shape(1, 2, 1));
    bench.q.put(1, [HOG]);
    bench.q.left[1] = 500;
    assert!(bench.balance(0, 0, IdleType::Idle).nobusyg, "nobody has noticed yet");
    bench.balance(1, 0, IdleType::Busy);
    assert_eq!(bench.b.cpus[1].capacity, 500);
    let o = bench.balance(0, 0, IdleType::Idle);
    assert_eq!((o.imbalance, o.active), ([1024, 0, 0, 0], Some(1)));
}

// specs/sched-balance.md#periodic: levels fall due, stop where another CPU is elected, and wait longer.
#[test]
fn forty_ticks() {
    let mut bench = Bench::new(shape(2, 2, 2));
    bench.q.put(0, [HOG, HOG]);
    let mut text = String::new();
    let mut nothing_busier = 0;
    for now_j in 1..=40 {
        for cpu in [0, 4] {
            if bench.b.due(&bench.d, cpu, now_j) {
                let idle = if bench.q.facts().idle(cpu) { IdleType::Idle } else { IdleType::Busy };
                bench.b.softirq(&bench.d, &mut bench.q, cpu, idle, now_j);
                for line in bench.q.log.drain(..) {
                    if line.starts_with("CPU 4") && line.contains("no busier group") {
                        nothing_busier += 1;
                    } else {
                        text += &format!("{now_j}: {line}\n");
                    }
                }
            }
        }
    }
    // Each tick the core's threads, each second one the node, each fourth one the machine.
    assert_eq!(nothing_busier, 40 + 20 + 10);
    expect![[r#"
        7: CPU 0 level 0 busy: moved 0, balanced, no busier group
        15: CPU 0 level 1 busy: moved 0, stop, balanced
        22: CPU 0 level 0 busy: moved 0, balanced, no busier group
        31: CPU 0 level 2 busy: moved 0, stop, balanced
        37: CPU 0 level 0 busy: moved 0, balanced, no busier group
    "#]]
    .assert_eq(&text);
    assert!(bench.b.overloaded || bench.q.nr().iter().all(|&n| n < 2));
}

// specs/sched-balance.md#newly-idle: nobody overloaded: no look; then the dice, the cost and one task.
#[test]
fn going_idle() {
    let mut bench = Bench::new(shape(2, 2, 2));
    bench.q.put(4, [HOG, HOG, HOG]);
    let go = |bench: &mut Bench, now_j| bench.b.newly_idle(&bench.d, &mut bench.q, 0, 7, now_j);
    let nothing = NewlyIdle::default();
    assert_eq!(go(&mut bench, 1), nothing);
    // A balancing of the top level finds out.
    bench.balance(0, 2, IdleType::NewlyIdle);
    assert!(bench.b.overloaded);
    bench.q.queues[0].drain(..).for_each(drop);
    bench.q.refresh(0);
    bench.q.roll = 1000;
    assert_eq!(go(&mut bench, 1), nothing, "the dice say no at each level");
    assert_eq!(bench.b.levels[0].newidle_call, 513);
    bench.q.roll = 0;
    bench.q.step = 20_000;
    bench.q.log.clear();
    bench.q.put(4, [HOG, HOG]);
    let found = go(&mut bench, 1);
    assert_eq!(found, NewlyIdle { pulled: true, cost_ns: 60_000, levels: 3 });
    assert_eq!(bench.b.cpus[0].idle_stamp, 0);
    expect![[r#"
        CPU 0 level 0 newly idle: moved 0, balanced, no busier group
        CPU 0 level 1 newly idle: moved 0, balanced, no busier group
        CPU 0 level 2 newly idle: moved 1, imbalance 2 task"#]]
    .assert_eq(&bench.q.log.join("\n"));
    // Costs that are beyond the average idle time: it doesn't even begin.
    bench.q.queues[0].clear();
    bench.q.refresh(0);
    bench.b.cpus[0].avg_idle = 19_999;
    assert_eq!(go(&mut bench, 1), nothing);
    bench.b.cpus[0].avg_idle = 40_000;
    assert_eq!(go(&mut bench, 1).levels, 2);
}

// specs/sched-balance.md#nohz: a busy CPU kicks the first sleeper, which balances for all, itself last.
#[test]
fn sleepers_are_balanced_for() {
    let mut bench = Bench::new(shape(1, 4, 1));
    bench.q.put(2, [HOG, HOG, HOG, HOG]);
    let (d, b) = (&bench.d, &mut bench.b);
    assert_eq!(b.kick(d, &bench.q.facts(), 2, 5), None, "nobody sleeps");
    for cpu in [0, 1, 3] {
        b.tick_stopped(d, cpu);
        b.tick_stopped(d, cpu);
    }
    assert_eq!((b.nohz.idle_cpus(), b.llcs[0].nr_busy), (&[0b1011][..], 1));
    assert_eq!(b.kick(d, &bench.q.facts(), 0, 5), None, "it is idle itself");
    assert_eq!(b.kick(d, &bench.q.facts(), 2, 5), Some(0));
    assert_eq!(b.kick(d, &bench.q.facts(), 2, 6), None, "the IPI is under way");
    assert!(b.kicked(d, &mut bench.q, 0, 6));
    expect![[r#"
        CPU 1 level 0 idle: moved 2, imbalance 2 task
        task 2 stays: running
        CPU 3 level 0 idle: moved 1, imbalance 1 task
        CPU 0 level 0 idle: moved 1, imbalance 1 task"#]]
    .assert_eq(&bench.q.log.join("\n"));
    assert_eq!(bench.q.nr(), [1, 1, 1, 1]);
    assert!(!b.kicked(d, &mut bench.q, 0, 7));
    b.busy_tick(d, 0);
    assert_eq!((b.nohz.idle_cpus(), b.llcs[0].nr_busy), (&[0b1010][..], 2));
    // Domains built anew count all CPUs as busy until they go to sleep again, as the kernel's do.
    b.rebuilt(d, 8);
    assert_eq!(b.llcs[0].nr_busy, 4);
    b.busy_tick(d, 1);
    assert_eq!(b.llcs[0].nr_busy, 4);
}

fn place(bench: &Bench, cpu: usize, allowed: &[u64], exit_latency: &[u32]) -> usize {
    let p = Placed {
        flag: Flags::BALANCE_FORK,
        cpu,
        prev: cpu,
        allowed,
        preferred: None,
        util: 0,
        without: None,
    };
    let i = IdleFacts { exit_latency, sched_idle: &[], blocks: None };
    bench.b.find_dst_cpu(&bench.d, &bench.q.facts(), &i, &p)
}

// specs/sched-balance.md#fork: children of one parent that all go on running, one after another.
#[test]
fn forks_spread() {
    let mut bench = Bench::new(shape(2, 2, 2));
    bench.q.put(0, [HOG]);
    let sleepers = &mut bench.b.cpus[1..];
    sleepers.iter_mut().enumerate().for_each(|(i, cpu)| cpu.idle_stamp = 100 + i as u64);
    let mut chosen = Vec::new();
    for _ in 0..8 {
        let cpu = place(&bench, 0, &[u64::MAX], &[]);
        bench.q.put(cpu, [HOG]);
        chosen.push(cpu);
    }
    expect!["[7, 3, 5, 1, 6, 2, 4, 0]"].assert_eq(&format!("{chosen:?}"));
}

// specs/sched-balance.md#fork: allowed CPUs only; the shallowest idle state, then the latest to sleep.
#[test]
fn fork_chooses_a_cpu() {
    let mut bench = Bench::new(shape(1, 4, 1));
    bench.q.put(0, [HOG]);
    for cpu in 1..4 {
        bench.b.cpus[cpu].idle_stamp = [0, 10, 30, 20][cpu];
    }
    assert_eq!(
        place(&bench, 0, &[u64::MAX], &[]),
        1,
        "a single CPU is a group: the first of equals"
    );
    assert_eq!(place(&bench, 0, &[0b1000], &[]), 3);
    assert_eq!(place(&bench, 0, &[0b0001], &[]), 0);
    assert_eq!(place(&bench, 0, &[1 << 7], &[]), 0, "nothing is allowed: where it is");
    // Groups of several CPUs: the CPU is chosen within.
    let mut bench = Bench::new(Shape { llcs: 2, ..shape(1, 4, 1) });
    bench.q.put(0, [HOG]);
    for cpu in 4..8 {
        bench.b.cpus[cpu].idle_stamp = [10, 30, 20, 5][cpu - 4];
    }
    assert_eq!(place(&bench, 0, &[u64::MAX], &[]), 5, "the latest");
    assert_eq!(place(&bench, 0, &[u64::MAX], &[2, 2, 2, 2, 133, 133, 10, 33]), 6, "the shallowest");
}

/// Where a task of CPU 0 that execs goes.
fn place_exec(bench: &Bench, without: Without, exit_latency: &[u32]) -> usize {
    let p = Placed {
        flag: Flags::BALANCE_EXEC,
        cpu: 0,
        prev: 0,
        allowed: &[u64::MAX],
        preferred: None,
        util: 0,
        without: Some(without),
    };
    let idle = IdleFacts { exit_latency, sched_idle: &[], blocks: None };
    bench.b.find_dst_cpu(&bench.d, &bench.q.facts(), &idle, &p)
}

// specs/sched-balance.md#fork: exec leaves a CPU that it shares, and stays where it is alone.
#[test]
fn exec() {
    let exec = |bench: &Bench, without| place_exec(bench, without, &[]);
    let mut bench = Bench::new(shape(2, 2, 1));
    bench.q.put(0, [HOG]);
    let alone = Without { cpu: 0, load: 0, util: 0, runnable: 0, idle: true };
    assert_eq!(exec(&bench, alone), 0);
    bench.q.put(0, [HOG]);
    assert_eq!(
        exec(&bench, Without { load: 1024, util: 400, runnable: 1024, idle: false, ..alone }),
        1
    );
}

/// A load for each CPU: how many tasks, how heavy, how busy.
fn loads() -> impl Strategy<Value = Vec<(u8, u16, u16)>> {
    prop::collection::vec((0u8..4, 1u16..2048, 0u16..1024), 96)
}

fn loaded(d: Domains, loads: &[(u8, u16, u16)]) -> Bench {
    let mut bench = Bench::of(d);
    for cpu in bench.d.online().iter().collect::<Vec<_>>() {
        let (nr, load, util) = loads[cpu];
        let task = Task { load: load.into(), util: util.into(), ..HOG };
        bench.q.put(cpu, vec![task; usize::from(nr)]);
    }
    bench
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    // Of the CPUs that share a group exactly one is elected, if they may balance for it at all.
    #[test]
    fn one_is_elected(layout in layouts(), loads in loads()) {
        let bench = loaded(all_online(&layout), &loads);
        let d = &bench.d;
        for cpu in 0..d.nr_cpus() {
            for level in 0..d.levels(cpu) {
                let group = d.local(cpu, level);
                let elected: Vec<u16> = d
                    .balance_mask(group)
                    .iter()
                    .copied()
                    .filter(|&c| elected(d, &bench.q.facts(), cpu, level, c.into(), |_| true))
                    .collect();
                prop_assert_eq!(elected.len(), 1);
            }
        }
    }

    // The busiest group is one that a plain search finds: nothing that is pulled comes from a group of a
    // lower type than another one's.
    #[test]
    fn busiest_by_brute_force(layout in layouts(), loads in loads()) {
        let mut bench = loaded(all_online(&layout), &loads);
        let (d, mut b) = (&bench.d, bench.b.clone());
        if d.asym() {
            return Ok(());
        }
        for cpu in 0..d.nr_cpus() {
            for level in 0..d.levels(cpu) {
                let (found, kinds, most) = brute_force(d, &b, &bench.q, cpu, level);
                let seen = group::tests_sums(d, &mut b, &mut bench.q, cpu, level, IdleType::Busy);
                prop_assert_eq!(seen.is_some(), found);
                if let Some(busiest) = seen {
                    prop_assert_eq!(Some(&busiest.kind), kinds.iter().max());
                    if busiest.kind == GroupType::Overloaded {
                        prop_assert_eq!(Some(busiest.avg_load), most);
                    }
                }
            }
        }
    }

    // Blocks of CPUs without a task that are passed over leave everything that is seen of a domain as it is.
    #[test]
    fn empty_blocks_are_passed_over(
        cores in 128u32..200, threads in 1u32..3, cpu in any::<prop::sample::Index>(), others in any::<bool>(),
        busy in prop::collection::vec((any::<prop::sample::Index>(), 0usize..4, 0u64..5000), 0..12),
    ) {
        let d = shape(1, cores, threads).domains();
        let mut q = Model::new(&d);
        for cpu in 0..d.nr_cpus() {
            // What its tasks have left behind.
            q.figures[cpu].load = cpu as u64 * 7 % 13;
            q.figures[cpu].util = cpu as u32 * 5 % 11;
        }
        for (at, nr, load) in &busy {
            let cpu = at.index(d.nr_cpus());
            q.others[cpu] = u32::from(others);
            q.put(cpu, vec![Task { load: *load, ..HOG }; *nr]);
        }
        let f = q.facts();
        let mut blocks = Blocks::new(d.nr_cpus());
        blocks.sum_up(&f);
        let cpu = cpu.index(d.nr_cpus());
        for level in 0..d.levels(cpu) {
            for idle in [IdleType::Idle, IdleType::Busy, IdleType::NewlyIdle] {
                q.blocks = None;
                let mut b = Balance::new(&d, Knobs::default(), 0);
                let each = group::tests_seen(&d, &mut b.clone(), &mut q, cpu, level, idle);
                q.blocks = Some(blocks.clone());
                prop_assert_eq!(each, group::tests_seen(&d, &mut b, &mut q, cpu, level, idle));
            }
        }
    }

    // A set of CPUs sums up to the same by blocks as one by one, wherever blocks and wide sums are cut, and also
    // after some of them have changed.
    #[test]
    fn blocks_sum_up_to_their_cpus(nr in prop::collection::vec((0u32..4, 0u64..5000), 1..1000),
        changed in prop::collection::vec((any::<prop::sample::Index>(), 0u32..4, 0u64..5000), 0..20),
        set in prop::collection::vec(
            prop_oneof![1 => Just(0u16), 20 => Just(u16::MAX), 1 => any::<u16>()], 63)) {
        let cpus = nr.len();
        let of = |(nr, load): (u32, u64)| Figures {
            load, util: load as u32 / 5, runnable: load as u32 / 3, nr_running: nr, h_nr_queued: nr,
            nr_numa: nr / 2, nr_preferred: nr / 3,
        };
        let mut figures: Vec<Figures> = nr.iter().copied().map(of).collect();
        // Some that have no task are not idle: another class has them.
        let idle: Vec<u64> = (0..16u64).map(|w| 0x5555_1234_ffff_0000 >> w).collect();
        let mut blocks = Blocks::new(cpus);
        blocks.sum_up(&Facts { figures: &figures, idle: &idle, misfit: &[] });
        for (cpu, nr, load) in changed {
            let cpu = cpu.index(cpus);
            figures[cpu] = of((nr, load));
            blocks.change(cpu);
        }
        let f = Facts { figures: &figures, idle: &idle, misfit: &[] };
        blocks.sum_up(&f);
        let has = |cpu: usize| cpu < cpus && set[cpu / 16] >> (cpu % 16) & 1 != 0;
        let mut words = vec![0u64; 16];
        let mut one_by_one = Sum::default();
        for cpu in (0..cpus).filter(|&cpu| has(cpu)) {
            words[cpu / 64] |= 1 << (cpu % 64);
            one_by_one.add_cpu(&f, cpu);
        }
        let mut by_blocks = Sum::default();
        blocks.sum_of_span(Span::of(&words), &f, &mut by_blocks);
        prop_assert_eq!(by_blocks, one_by_one);
    }

    // A fork or an exec finds the same CPU by sums of blocks as by looking at each CPU.
    #[test]
    fn forks_find_the_same_cpu_by_blocks(layout in layouts(), loads in loads(), allowed in
        prop_oneof![Just([u64::MAX; 2]), any::<[u64; 2]>()], from in any::<usize>(), alone in any::<bool>()) {
        let bench = loaded(all_online(&layout), &loads);
        let f = bench.q.facts();
        let cpus = bench.d.nr_cpus();
        let mut blocks = Blocks::new(cpus);
        blocks.sum_up(&f);
        let cpu = from % cpus;
        let c = &f.figures[cpu];
        let without = Without {
            cpu, load: c.load / 2, util: c.util / 3, runnable: c.runnable / 2, idle: alone && c.nr_running == 1,
        };
        for (flag, without) in [(Flags::BALANCE_FORK, None), (Flags::BALANCE_EXEC, Some(without))] {
            let p = Placed { flag, cpu, prev: cpu, allowed: &allowed, preferred: None, util: 100, without };
            let found = |blocks| {
                let i = IdleFacts { exit_latency: &[], sched_idle: &[], blocks };
                bench.b.find_dst_cpu(&bench.d, &f, &i, &p)
            };
            prop_assert_eq!(found(Some(&blocks)), found(None));
        }
    }

    // Whatever the queues look like: no task is lost or doubled, none comes where it may not run, a running
    // one never moves, intervals stay within their bounds, and the same happens again.
    #[test]
    fn balancing_keeps_the_tasks(layout in layouts(), loads in loads(), seed in any::<u64>()) {
        let run = || {
            let mut random = crate::splitmix::SplitMix::new(seed);
            let mut bench = loaded(all_online(&layout), &loads);
            for task in &mut bench.q.tasks {
                task.ran_ago_ns = random.below(1_000_000) as i64;
                if random.below(4) == 0 {
                    task.allowed = u128::from(random.next()) << 64 | u128::from(random.next());
                }
            }
            let nr = bench.d.nr_cpus() as u64;
            let before: Vec<usize> = where_is(&bench.q);
            let running = bench.q.running.clone();
            for now_j in 1..40 {
                let cpu = random.below(nr) as usize;
                let idle = if bench.q.facts().idle(cpu) { IdleType::Idle } else { IdleType::Busy };
                match random.below(5) {
                    0 if idle == IdleType::Idle => {
                        bench.b.newly_idle(&bench.d, &mut bench.q, cpu, now_j * 4_000_000, now_j);
                    }
                    1 if idle == IdleType::Idle => bench.b.tick_stopped(&bench.d, cpu),
                    2 => {
                        if let Some(ilb) = bench.b.kick(&bench.d, &bench.q.facts(), cpu, now_j) {
                            bench.b.kicked(&bench.d, &mut bench.q, ilb, now_j);
                        }
                    }
                    _ => bench.b.softirq(&bench.d, &mut bench.q, cpu, idle, now_j),
                }
                for cpu in 0..bench.d.nr_cpus() {
                    for level in 0..bench.d.levels(cpu) {
                        let state = &bench.b.levels[bench.d.slot(cpu, level)];
                        let min = bench.d.at(cpu, level).min_interval();
                        assert!((min..=(2 * min).max(1023)).contains(&state.balance_interval));
                        assert!(state.newidle_call < 1024 && state.newidle_ratio <= 1024);
                    }
                }
            }
            let after = where_is(&bench.q);
            for (task, (&from, &to)) in before.iter().zip(&after).enumerate() {
                assert!(from == to || bench.q.allowed(task as u32, to));
                assert!(from == to || running[from] != Some(task as u32));
            }
            (after, bench.q.log)
        };
        prop_assert_eq!(run(), run());
    }

    // fork never chooses a CPU that is not allowed, unless none is.
    #[test]
    fn fork_is_allowed(layout in layouts(), loads in loads(), allowed in any::<u64>(), cpu in any::<u16>()) {
        let bench = loaded(all_online(&layout), &loads);
        let cpu = usize::from(cpu) % bench.d.nr_cpus();
        let chosen = place(&bench, cpu, &[allowed, 0], &[]);
        let any = bench.d.online().intersects(&[allowed, 0]);
        if bench.d.levels(cpu) > 0 && any && chosen != cpu {
            prop_assert!(chosen < 64 && allowed >> chosen & 1 != 0);
        }
    }
}

/// The CPU of each task; each is on one.
fn where_is(q: &Model) -> Vec<usize> {
    let mut cpus = vec![usize::MAX; q.tasks.len()];
    for (cpu, queue) in q.queues.iter().enumerate() {
        for &task in queue {
            assert_eq!(cpus[task as usize], usize::MAX, "a task is on two queues");
            cpus[task as usize] = cpu;
        }
    }
    assert!(!cpus.contains(&usize::MAX), "a task is lost");
    cpus
}

/// All groups but the own ones with something to pull, added up plainly: whether there is one, their types
/// and the highest load of an overloaded one.
fn brute_force(
    d: &Domains,
    b: &Balance,
    q: &Model,
    cpu: usize,
    level: usize,
) -> (bool, Vec<GroupType>, Option<u64>) {
    let pct = u64::from(d.at(cpu, level).imbalance_pct);
    let (mut kinds, mut most) = (Vec::new(), None);
    for group in d.groups(cpu, level) {
        let cpus: Vec<usize> = d.group_span(group).iter().collect();
        if cpus.contains(&cpu) {
            continue;
        }
        let sum = |f: fn(&Figures) -> u64| cpus.iter().map(|&c| f(&q.figures[c])).sum::<u64>();
        let (nr, util, runnable) =
            (sum(|c| c.nr_running.into()), sum(|c| c.util.into()), sum(|c| c.runnable.into()));
        let cap: u64 = cpus.iter().map(|&c| u64::from(b.cpus[c].capacity)).sum();
        if nr == 0 {
            continue;
        }
        let weight = cpus.len() as u64;
        kinds.push(if nr > weight && (100 * cap < pct * util || pct * cap < 100 * runnable) {
            let load = sum(|c| c.load) * 1024 / cap;
            most = most.max(Some(load));
            GroupType::Overloaded
        } else if nr < weight || pct * cap >= 100 * runnable && 100 * cap > pct * util {
            GroupType::HasSpare
        } else {
            GroupType::FullyBusy
        });
    }
    (!kinds.is_empty(), kinds, most)
}
