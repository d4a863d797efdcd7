//! The specification's own numbers, and the seed's two tasks.

use super::machine::{Machine, Plan, State, tasks};
use crate::{
    Allowed, Choice, Cpus, Flags, Layout, LayoutError, Reason, Recent, Rules, Task, Version,
    WakeError, Wakeup, nr_idle_scan, scan_cost,
};

fn wakeup(waker_cpu: u32, prev: u32, wakee: u32) -> Wakeup<'static> {
    Wakeup {
        waker_cpu,
        prev,
        task_cpu: prev,
        wakee,
        allowed: Allowed::All,
        nr_allowed: 64,
        sync: false,
        current_cpu: false,
        waker_per_cpu_kthread: false,
        wakee_idle_policy: false,
        jiffies: 0,
        waker_load: 0,
        wakee_load: 0,
        wakee_util: 0,
    }
}

/// The face's choice; the kernel is asked the same later on.
fn ask(
    cpus: &mut Cpus,
    tasks: &mut [Task],
    waker: u32,
    w: &Wakeup<'_>,
) -> Result<Choice, WakeError> {
    let (before, tasks_before) = (cpus.clone(), tasks.to_vec());
    let choice = cpus.choose_in(tasks, waker, w);
    if let Ok(choice) = &choice {
        super::bpf::note(&before, &tasks_before, waker, w, cpus, tasks, choice);
    }
    choice
}

/// All of them, for those who want to ask somebody else.
pub(super) fn all() {
    two_cpus_with_a_recent_one_and_all_without();
    a_recent_cpu_is_taken_or_not();
    who_writes_the_recent_cpu();
    the_budget_of_an_llc();
    nobody_is_looked_at_before_the_first_balance();
    a_search_ends_with_its_budget();
    cores_before_threads();
    a_worker_of_this_cpu_gets_its_wakee();
    one_step_after_the_other();
    partners_are_counted_and_forgotten();
    wide_is_both_many_and_uneven();
    the_waker_s_cpu_by_weight();
    the_waker_s_cpu_without_weighing();
    the_oldest_kernel_weighs_alone();
    the_oldest_kernel_wants_whole_cores();
    an_interrupt_near_its_wakee();
    a_far_waker_draws_nobody();
    clusters_come_first();
    a_task_gets_a_cpu_that_is_large_enough();
    the_old_scan_is_paid_with_idle_time();
    a_choice_that_does_not_hold();
    who_counts_as_idle();
    what_is_no_layout();
    what_is_no_wake_up();
}

/// Tasks on CPUs, which wake one another; a CPU without one is idle.
struct Desk {
    cpus: Cpus,
    tasks: Vec<Task>,
    /// Where each task was last, and whether it is there now.
    at: Vec<(u32, bool)>,
}

impl Desk {
    fn new(plan: &Plan, rules: Rules, nr_tasks: usize) -> Self {
        let (machine, capacity) = plan.build();
        Self::of(machine, capacity, rules, nr_tasks)
    }

    fn of(machine: Machine, capacity: Vec<u32>, rules: Rules, nr_tasks: usize) -> Self {
        let mut state = State::new(machine, capacity, rules);
        for cpu in 0..state.machine.nr_cpus() {
            let llc = state.machine.llc(cpu).map(super::machine::name);
            // As if balancing had looked at an idle machine.
            state.nr_idle_scan.extend(llc.map(|l| (l, l.1 as u32)));
        }
        Self { cpus: state.face(), tasks: tasks(nr_tasks), at: vec![(0, false); nr_tasks] }
    }

    fn count(&mut self, cpu: u32) {
        let n = self.at.iter().filter(|at| **at == (cpu, true)).count() as u32;
        self.cpus.set_idle(cpu, n == 0);
        self.cpus.set_running(cpu, n, 0);
        self.cpus.set_load(cpu, u64::from(n) * 1024);
        if n == 0 {
            self.cpus.enter_idle(cpu);
        }
    }

    fn run(&mut self, task: usize, cpu: u32) {
        self.at[task] = (cpu, true);
        self.count(cpu);
    }

    fn sleep(&mut self, task: usize) {
        self.at[task].1 = false;
        self.count(self.at[task].0);
    }

    fn wake_with(
        &mut self,
        waker: usize,
        wakee: usize,
        change: impl Fn(&mut Wakeup<'_>),
    ) -> Choice {
        let mut w = wakeup(self.at[waker].0, self.at[wakee].0, wakee as u32);
        w.waker_load = 1024;
        w.wakee_load = 1024;
        change(&mut w);
        let choice = ask(&mut self.cpus, &mut self.tasks, waker as u32, &w).unwrap();
        self.run(wakee, choice.cpu);
        choice
    }

    fn wake(&mut self, waker: usize, wakee: usize) -> Choice {
        self.wake_with(waker, wakee, |_| {})
    }
}

/// The seed's example. A, on CPU 0, wakes B, whose last CPU is the one that A is on next;
/// B then wakes A from the very CPU that A ran on last, so that A finds itself pushed away.
///
/// A client (A) that is woken by a worker bound to the CPU it ran on last is one:
///
/// ```text
///   A on 0, sleeps ─▶ worker on 0 ─wakes─▶ A: prev = target = 0, busy ─▶ …
/// ```
fn walk(recent: Recent, version: Version, rounds: usize) -> Vec<u32> {
    const A: usize = 0;
    let rules = Rules { recent, ..Rules::of(version) };
    let mut desk = Desk::new(&Plan::llc(4, 1), rules, 5);
    desk.run(A, 0);
    let mut cpus = vec![0];
    for _ in 0..rounds {
        let here = desk.at[A].0;
        // A wakes the worker of its CPU, which is bound to it, and sleeps.
        let worker = 1 + here as usize;
        desk.at[worker].0 = here;
        let mut w = wakeup(here, here, worker as u32);
        let bound = [1 << here];
        (w.allowed, w.nr_allowed) = (Allowed::Words(&bound), 1);
        let choice = ask(&mut desk.cpus, &mut desk.tasks, A as u32, &w).unwrap();
        assert_eq!(choice.cpu, here);
        desk.run(worker, here);
        desk.sleep(A);
        // The worker is still on the CPU when it wakes A.
        desk.wake(worker, A);
        desk.sleep(worker);
        cpus.push(desk.at[A].0);
    }
    cpus
}

/// Test of: specs/wake.md#recent, specs/seeds.md#s3.
#[test]
fn two_cpus_with_a_recent_one_and_all_without() {
    let both = vec![0, 1, 0, 1, 0, 1, 0];
    let all = vec![0, 1, 2, 3, 0, 1, 2];
    for version in [Version::V4_16, Version::V6_12, Version::V7_3] {
        assert_eq!(walk(Recent::None, version, 6), all, "{version:?}");
        assert_eq!(walk(Recent::Waker, version, 6), both, "{version:?}");
        assert_eq!(walk(Recent::Wakee, version, 6), both, "{version:?}");
    }
    for version in [Version::V4_5, Version::V4_15] {
        assert_eq!(walk(Recent::None, version, 6), all, "{version:?}");
        assert_eq!(walk(Recent::Waker, version, 6), both, "{version:?}");
    }
}

/// Four CPUs; A was on 0 and then on 1, where B is now and wakes it.
fn seed_case(recent: u32, change: impl Fn(&mut Desk, &mut Wakeup<'_>)) -> (Choice, u32) {
    seed_case_on(&Plan::llc(4, 1), recent, change)
}

fn seed_case_on(
    plan: &Plan,
    recent: u32,
    change: impl Fn(&mut Desk, &mut Wakeup<'_>),
) -> (Choice, u32) {
    let mut desk = Desk::new(plan, Rules::of(Version::V4_16), 3);
    desk.run(1, 1);
    desk.at[0] = (1, false);
    desk.tasks[0].recent = recent;
    let mut w = wakeup(1, 1, 0);
    change(&mut desk, &mut w);
    let choice = ask(&mut desk.cpus, &mut desk.tasks, 1, &w).unwrap();
    (choice, desk.tasks[0].recent)
}

/// Test of: specs/wake.md#recent, specs/seeds.md#s3.
#[test]
fn a_recent_cpu_is_taken_or_not() {
    // The hit: it is replaced by the CPU that is left.
    let (hit, recent) = seed_case(0, |_, _| {});
    assert_eq!((hit.cpu, hit.reason, recent), (0, Reason::Recent, 1));

    // Busy: the search goes on from the target.
    let (busy, recent) = seed_case(0, |desk, _| desk.run(2, 0));
    assert_eq!((busy.cpu, busy.reason, recent), (2, Reason::IdleCpu, 0));

    // Not allowed.
    let (forbidden, recent) = seed_case(0, |_, w| {
        (w.allowed, w.nr_allowed) = (Allowed::Words(&[0b1110]), 3);
    });
    assert_eq!((forbidden.cpu, forbidden.reason, recent), (2, Reason::IdleCpu, 0));

    // It is prev and target.
    let (same, recent) = seed_case(1, |_, _| {});
    assert_eq!((same.cpu, same.reason, recent), (2, Reason::IdleCpu, 1));

    // In another LLC.
    let far = Plan { llcs_per_node: 2, ..Plan::llc(4, 1) };
    let (far, recent) = seed_case_on(&far, 5, |_, _| {});
    assert_eq!((far.cpu, far.reason, recent), (2, Reason::IdleCpu, 5));
}

/// Today a wakee's recent CPU is written whether it helped or not, but only where a choice
/// comes so far; in the seed's kernel a waker keeps its CPU, if it could have drawn the wakee.
///
/// Test of: specs/wake.md#recent.
#[test]
fn who_writes_the_recent_cpu() {
    let run = |version, nr_allowed| {
        let mut desk = Desk::new(&Plan::llc(4, 1), Rules::of(version), 3);
        desk.run(1, 1);
        desk.run(2, 3);
        desk.at[0] = (1, false);
        desk.tasks[0].recent = 3;
        desk.tasks[1].recent = 2;
        let choice = desk.wake_with(1, 0, |w| {
            w.nr_allowed = nr_allowed;
            w.allowed = if nr_allowed == 1 { Allowed::Words(&[0b0010]) } else { Allowed::All };
        });
        (choice.cpu, desk.tasks[0].recent, desk.tasks[1].recent)
    };
    assert_eq!(run(Version::V6_12, 4), (2, 1, 2));
    assert_eq!(run(Version::V4_16, 4), (2, 3, 1));
    // A worker of one CPU is bound: no selection, nothing is written.
    assert_eq!(run(Version::V6_12, 1), (1, 3, 2));
    assert_eq!(run(Version::V4_16, 1), (1, 3, 2));

    // The target is idle: it is not come so far.
    let mut desk = Desk::new(&Plan::llc(4, 1), Rules::of(Version::V6_12), 2);
    desk.run(1, 1);
    desk.at[0] = (2, false);
    let choice = desk.wake(1, 0);
    assert_eq!((choice.reason, choice.recent_changed), (Reason::TargetIdle, false));
    assert_eq!(desk.tasks[0].recent, 0);
}

/// Test of: specs/wake.md#budget.
#[test]
fn the_budget_of_an_llc() {
    let of_16 = |percent: u64| nr_idle_scan(16 * 1024 * percent / 100, 16, 117);
    let percents = [0, 25, 50, 60, 70, 80, 82, 83, 85, 100, 200];
    assert_eq!(percents.map(of_16), [16, 14, 10, 8, 5, 2, 1, 0, 0, 0, 0]);
    // An LLC that is one core: 110, so nothing from about 91 % on.
    assert_eq!([84, 92].map(|p| nr_idle_scan(2048 * p / 100, 2, 110)), [0, 0]);
    assert_eq!([84, 92].map(|p| nr_idle_scan(8192 * p / 100, 8, 110)), [1, 0]);
    assert_eq!(nr_idle_scan(0, 0, 117), 0);
}

/// Test of: specs/wake.md#budget.
#[test]
fn nobody_is_looked_at_before_the_first_balance() {
    for version in [Version::V6_12, Version::V7_3] {
        let mut desk = Desk::new(&Plan::llc(16, 1), Rules::of(version), 2);
        desk.run(1, 3);
        desk.at[0] = (3, false);
        desk.tasks[0].recent = 3;
        let llc = desk.cpus.layout().llc(3).unwrap();
        assert_eq!(desk.cpus.nr_idle_scan(llc), 16);
        desk.cpus.rebuild(Plan::llc(16, 1).build().0.layout()).unwrap();
        assert_eq!(desk.cpus.nr_idle_scan(llc), 0);
        let w = wakeup(3, 3, 0);
        let choice = ask(&mut desk.cpus, &mut desk.tasks, 1, &w).unwrap();
        assert_eq!((choice.cpu, choice.reason, choice.scanned), (3, Reason::NothingIdle, 0));
    }
}

/// With a budget of n the nth CPU after the target is found, the next one isn't.
///
/// Test of: specs/wake.md#scan.
#[test]
fn a_search_ends_with_its_budget() {
    for (idle, found) in [(8, true), (9, false)] {
        let mut desk = Desk::new(&Plan::llc(16, 1), Rules::of(Version::V6_12), 17);
        for cpu in (0..16).filter(|cpu| *cpu != idle) {
            desk.run(cpu as usize + 1, cpu);
        }
        desk.at[0] = (3, false);
        let llc = desk.cpus.layout().llc(3).unwrap();
        desk.cpus.set_nr_idle_scan(llc, 5);
        let choice = ask(&mut desk.cpus, &mut desk.tasks, 4, &wakeup(3, 3, 0)).unwrap();
        let expected = if found { (8, Reason::IdleCpu) } else { (3, Reason::NothingIdle) };
        assert_eq!((choice.cpu, choice.reason), expected);
        assert_eq!(choice.scanned, 5);
    }
}

/// Two cores of two threads, 0 2 and 1 3. A core is looked for as long as there may be one;
/// after that the sibling of prev is the first to be asked.
///
/// Test of: specs/wake.md#cores.
#[test]
fn cores_before_threads() {
    let mut desk = Desk::new(&Plan::llc(2, 2), Rules::of(Version::V6_12), 5);
    desk.run(1, 0);
    desk.cpus.enter_idle(1);
    let llc = desk.cpus.layout().llc(0).unwrap();
    assert!(desk.cpus.has_idle_core(llc));
    let whole = desk.wake(1, 0);
    assert_eq!((whole.cpu, whole.reason, whole.scanned), (1, Reason::IdleCore, 1));

    // No core is left: that is noticed, and what was seen meanwhile is taken.
    let seen = desk.wake(1, 2);
    assert_eq!((seen.cpu, seen.reason), (3, Reason::IdleSeen));
    assert!(seen.idle_core_cleared && !desk.cpus.has_idle_core(llc));
    desk.sleep(2);
    // CPU 3 turned to its idle task, but CPU 1 is busy.
    assert!(!desk.cpus.has_idle_core(llc));

    // Of prev's core, not of the target's.
    desk.at[3] = (1, false);
    desk.tasks[3].recent = 1;
    let sibling = desk.wake_with(1, 3, |w| w.sync = true);
    assert_eq!((sibling.target, sibling.affine), (0, true));
    assert_eq!((sibling.cpu, sibling.reason), (3, Reason::SmtSibling));
}

/// Test of: specs/wake.md#stacked.
#[test]
fn a_worker_of_this_cpu_gets_its_wakee() {
    let mut desk = Desk::new(&Plan::llc(4, 1), Rules::of(Version::V6_12), 3);
    desk.run(1, 2);
    desk.at[0] = (2, false);
    let choice = desk.wake_with(1, 0, |w| w.waker_per_cpu_kthread = true);
    assert_eq!((choice.cpu, choice.reason, choice.recent_changed), (2, Reason::Stacked, false));
    // Another task is there too, a delayed one even.
    desk.sleep(0);
    desk.cpus.set_running(2, 2, 1);
    let w = Wakeup { waker_per_cpu_kthread: true, ..wakeup(2, 2, 0) };
    let choice = ask(&mut desk.cpus, &mut desk.tasks, 1, &w).unwrap();
    assert_eq!((choice.cpu, choice.reason), (0, Reason::Recent));
}

/// What ends a choice early, and what is left when nothing does.
///
/// Test of: specs/wake.md#entry, specs/wake.md#siblings.
#[test]
fn one_step_after_the_other() {
    // Six CPUs of one LLC; the waker, on CPU 0, is about to sleep, and the wakee was on CPU 4.
    let near = |busy: &[u32], change: &dyn Fn(&mut Desk, &mut Wakeup<'_>)| {
        let mut desk = Desk::new(&Plan::llc(6, 1), Rules::of(Version::V6_12), 8);
        desk.run(1, 0);
        for (task, cpu) in busy.iter().enumerate() {
            desk.run(task + 2, *cpu);
        }
        desk.at[0] = (4, false);
        desk.tasks[0].recent = 5;
        let mut w = Wakeup { sync: true, ..wakeup(0, 4, 0) };
        change(&mut desk, &mut w);
        let choice = ask(&mut desk.cpus, &mut desk.tasks, 1, &w).unwrap();
        (choice.cpu, choice.target, choice.reason, desk.tasks[1].flips)
    };
    let only = |words: &'static [u64]| {
        move |_: &mut Desk, w: &mut Wakeup<'_>| {
            (w.allowed, w.nr_allowed) = (Allowed::Words(words), 2);
        }
    };
    // One that is alone and sleeps is as good as idle, but its CPU is not.
    assert_eq!(near(&[], &|_, _| {}), (4, 0, Reason::PrevIdle, 1));
    assert_eq!(near(&[4], &|_, _| {}), (5, 0, Reason::Recent, 1));
    assert_eq!(near(&[4, 5], &|_, _| {}), (1, 0, Reason::IdleCpu, 1));
    assert_eq!(near(&[4, 5, 1, 2, 3], &|_, _| {}), (0, 0, Reason::NothingIdle, 1));
    // The waker's CPU is asked for: that is all, but the wakee is noted. Not where it isn't allowed.
    assert_eq!(near(&[], &|_, w| w.current_cpu = true), (0, 4, Reason::CurrentCpu, 1));
    assert_eq!(
        near(&[4], &|desk, w| {
            only(&[0b01_1010])(desk, w);
            w.current_cpu = true;
        }),
        (1, 4, Reason::IdleCpu, 1)
    );
    // A waker where the wakee may not run draws nobody: it is looked around prev.
    assert_eq!(near(&[4, 5], &only(&[0b01_1000])), (3, 4, Reason::IdleCpu, 1));
    // It can't move at all.
    let alone = |_: &mut Desk, w: &mut Wakeup<'_>| {
        (w.allowed, w.nr_allowed) = (Allowed::Words(&[0b01_0000]), 1);
    };
    assert_eq!(near(&[4], &alone), (4, 4, Reason::OnlyAllowed, 0));

    // CPUs without an LLC: the target, busy as it is.
    let mut layout = Layout::builder(2);
    let both = layout.domain(&[0b11], Flags::WAKE_AFFINE, 117).unwrap();
    (0..2).for_each(|cpu| layout.cpu(cpu, &[cpu], 0, &[both]).unwrap());
    let mut cpus = Cpus::new(layout.build().unwrap(), Rules::of(Version::V6_12));
    cpus.set_idle(0, false);
    cpus.set_running(0, 1, 0);
    let w = Wakeup { sync: true, ..wakeup(0, 1, 1) };
    let choice = ask(&mut cpus, &mut tasks(2), 0, &w).unwrap();
    assert_eq!((choice.cpu, choice.reason, choice.affine), (0, Reason::NoLlc, true));

    // A domain that balances at wake-ups below the one that is affine: that one ends it. Above: the slow path.
    let slow = |flags: [Flags; 2]| {
        let mut layout = Layout::builder(4);
        let pairs = [0b0011, 0b1100].map(|span| layout.domain(&[span], flags[0], 117).unwrap());
        let all = layout.domain(&[0b1111], flags[1], 117).unwrap();
        for cpu in 0..4 {
            layout.cpu(cpu, &[cpu], 0, &[pairs[cpu as usize / 2], all]).unwrap();
        }
        let mut cpus = Cpus::new(layout.build().unwrap(), Rules::of(Version::V6_12));
        cpus.set_idle(0, false);
        let choice = ask(&mut cpus, &mut tasks(2), 0, &wakeup(0, 2, 1)).unwrap();
        (choice.reason, choice.level)
    };
    let affine = Flags::SHARE_LLC | Flags::WAKE_AFFINE;
    let wake = Flags::SHARE_LLC | Flags::BALANCE_WAKE;
    assert_eq!(slow([wake, affine]).0, Reason::TargetIdle);
    assert_eq!(slow([affine, wake]), (Reason::SlowPath, Some(1)));
    assert_eq!(slow([wake, wake]), (Reason::SlowPath, Some(1)));
    assert_eq!(slow([wake, Flags::SHARE_LLC]), (Reason::SlowPath, Some(0)));

    // Clusters of two: the recent CPU is in the other one, and kept for the end like a prev there.
    let plan =
        Plan { cores_per_cluster: 2, clusters_per_llc: 2, clusters: true, ..Plan::llc(2, 1) };
    let mut desk = Desk::new(&plan, Rules::of(Version::V6_12), 4);
    (desk.at[0], desk.tasks[0].recent) = ((1, false), 2);
    desk.run(1, 1);
    desk.run(2, 0);
    let llc = desk.cpus.layout().llc(0).unwrap();
    desk.cpus.set_nr_idle_scan(llc, 1);
    let choice = desk.wake(1, 0);
    assert_eq!((choice.cpu, choice.reason), (2, Reason::RecentOtherCluster));
}

/// Flips: one for each wakee that isn't the one before; half of them go once a second.
///
/// Test of: specs/wake.md#wide.
#[test]
fn partners_are_counted_and_forgotten() {
    let mut desk = Desk::new(&Plan::llc(4, 1), Rules::of(Version::V6_12), 4);
    desk.run(0, 0);
    let mut flips = |wakee: usize, jiffies: u64| {
        desk.wake_with(0, wakee, |w| w.jiffies = jiffies);
        desk.sleep(wakee);
        desk.tasks[0].flips
    };
    assert_eq!([1, 1, 2, 1, 3].map(|wakee| flips(wakee, 10)), [1, 1, 2, 3, 4]);
    // A second, 250 jiffies, isn't more than a second.
    assert_eq!(flips(3, 250), 4);
    assert_eq!(flips(3, 251), 2);
    // However long the pause: once.
    assert_eq!(flips(1, 100_000), 2);
    assert_eq!(desk.tasks[0].decay_jiffies, 100_000);
    // A child begins with them.
    let child = desk.tasks[0].fork(3);
    assert_eq!((child.flips, child.last_wakee, child.recent), (2, 1, 3));
}

/// Wide with an LLC of 4: the smaller count is 4 or more, the larger one 4 times as much.
///
/// Test of: specs/wake.md#wide.
#[test]
fn wide_is_both_many_and_uneven() {
    let wide = |waker: u32, wakee: u32| {
        let mut desk = Desk::new(&Plan::llc(4, 1), Rules::of(Version::V6_12), 2);
        desk.run(0, 0);
        desk.at[1] = (1, false);
        (desk.tasks[0].flips, desk.tasks[1].flips) = (waker, wakee);
        desk.tasks[0].last_wakee = 1;
        let choice = desk.wake_with(0, 1, |w| w.sync = true);
        assert_eq!(choice.level.is_none(), choice.wide);
        assert_eq!(choice.target, if choice.wide { 1 } else { 0 });
        choice.wide
    };
    assert_eq!(
        [(16, 4), (4, 16), (15, 4), (16, 3), (19, 5), (20, 5)].map(|(a, b)| wide(a, b)),
        [true, true, false, false, false, true]
    );
}

/// One CPU of each of two LLCs; who gets the wakee by load, waker on 0, prev 4.
fn weigh(version: Version, pct: u16, change: impl Fn(&mut Cpus, &mut Wakeup<'_>)) -> bool {
    let mut layout = Layout::builder(8);
    let flags = Flags::SHARE_LLC | Flags::WAKE_AFFINE;
    let llcs = [0x0f, 0xf0].map(|span| layout.domain(&[span], flags, 117).unwrap());
    let top = layout.domain(&[0xff], Flags::WAKE_AFFINE, pct).unwrap();
    for cpu in 0..8 {
        layout.cpu(cpu, &[cpu], 0, &[llcs[cpu as usize / 4], top]).unwrap();
    }
    let mut cpus = Cpus::new(layout.build().unwrap(), Rules::of(version));
    for cpu in [0, 4] {
        cpus.set_idle(cpu, false);
        cpus.set_running(cpu, 2, 0);
        cpus.set_load(cpu, 2000);
    }
    let mut w = Wakeup { wakee_load: 100, waker_load: 1000, ..wakeup(0, 4, 1) };
    change(&mut cpus, &mut w);
    let choice = ask(&mut cpus, &mut tasks(2), 0, &w).unwrap();
    assert_eq!(choice.level, Some(1));
    choice.affine
}

/// Test of: specs/wake.md#affine.
#[test]
fn the_waker_s_cpu_by_weight() {
    let weigh = |load: u64, sync: bool, version| {
        weigh(version, 117, |cpus, w| {
            cpus.set_load(0, load);
            w.sync = sync;
        })
    };
    // T·100 < (P − 100)·108: 1900·108 = 205200, so T = load + 100 up to 2051.
    assert!(weigh(1951, false, Version::V6_12));
    assert!(!weigh(1952, false, Version::V6_12));
    // The waker leaves: its 1000 are taken off.
    assert!(weigh(2951, true, Version::V6_12));
    // At 2952 equal: a waker that sleeps gets it; the oldest kernel always does.
    assert!(weigh(2952, true, Version::V6_12));
    assert!(!weigh(2953, true, Version::V6_12));
    assert!(weigh(1952, false, Version::V4_15));
    assert!(!weigh(1952, false, Version::V4_16));
    assert!(weigh(2952, true, Version::V4_16));
    // A waker that is heavier than its own queue: leaves for sure.
    assert!(weigh(999, true, Version::V6_12));
}

/// Test of: specs/wake.md#affine.
#[test]
fn the_oldest_kernel_weighs_alone() {
    let weigh = |load: u64, change: fn(&mut Cpus, &mut Wakeup<'_>)| {
        weigh(Version::V4_5, 117, |cpus, w| {
            cpus.set_load(0, load);
            change(cpus, w);
        })
    };
    let nothing = |_: &mut Cpus, _: &mut Wakeup<'_>| {};
    // The wakee's load is not taken off where it was: (load + 100)·100 <= 2000·108.
    assert_eq!([2060, 2061].map(|load| weigh(load, nothing)), [true, false]);
    // Idle or not is not asked; without load here only capacities are compared.
    assert!(weigh(0, nothing));
    assert!(!weigh(0, |cpus, _| cpus.set_capacity(0, 900)));
    assert!(!weigh(9000, |cpus, _| cpus.set_idle(0, true)));
    // What the waker leaves with it may leave nothing.
    assert!(weigh(999, |_, w| w.sync = true));
}

/// Four cores of two threads, n and n + 4.
///
/// Test of: specs/wake.md#groups.
#[test]
fn the_oldest_kernel_wants_whole_cores() {
    let after = |busy: &[u32]| {
        let mut desk = Desk::new(&Plan::llc(4, 2), Rules::of(Version::V4_5), 10);
        let own = desk.cpus.layout().siblings(0).to_vec();
        assert_eq!(own.len(), 2);
        desk.run(0, 0);
        for (task, cpu) in (1..).zip(busy) {
            desk.run(task, *cpu);
        }
        desk.at[9] = (0, false);
        let choice = desk.wake(0, 9);
        (choice.cpu, choice.reason)
    };
    let sibling = |cpu: u32| {
        let desk = Desk::new(&Plan::llc(4, 2), Rules::of(Version::V4_5), 1);
        let all = desk.cpus.layout().siblings(cpu).to_vec();
        u32::from(*all.iter().find(|s| u32::from(**s) != cpu).expect("two threads"))
    };
    let firsts: Vec<u32> = (0..8).filter(|c| *c < sibling(*c)).collect();
    assert_eq!(after(&[]), (firsts[1], Reason::IdleCore));
    // One thread of a core is busy: the core is none.
    assert_eq!(after(&[sibling(firsts[1])]), (firsts[2], Reason::IdleCore));
    let halves = [firsts[1], sibling(firsts[2]), firsts[3]];
    assert_eq!(after(&halves), (sibling(0), Reason::SmtSibling), "not a thread of another core");
    assert_eq!(after(&[halves[0], halves[1], halves[2], sibling(0)]), (0, Reason::NothingIdle));
}

/// Test of: specs/wake.md#affine.
#[test]
fn the_waker_s_cpu_without_weighing() {
    let idle = |version, cpu: u32, sync: bool| {
        weigh(version, 117, |cpus, w| {
            cpus.set_idle(cpu, true);
            w.sync = sync;
            cpus.set_load(0, 9000);
        })
    };
    // An interrupt on an idle CPU of another LLC draws nobody, but in the oldest kernel.
    assert!(!idle(Version::V6_12, 0, false));
    assert!(!idle(Version::V4_16, 0, false));
    assert!(idle(Version::V4_15, 0, false));
    // Prev is idle: it stays, though the waker sleeps. The seed's kernel would weigh.
    assert!(!idle(Version::V6_12, 4, true));
    // Delayed tasks are none, today.
    let alone = |version| {
        weigh(version, 117, |cpus, w| {
            cpus.set_running(0, 2, 1);
            cpus.set_load(0, 9000);
            w.sync = true;
        })
    };
    assert!(alone(Version::V6_12));
    assert!(!alone(Version::V4_16));
    // A smaller CPU weighs its load more: 100·(1800 + 100)·1024 against 1900·108·921.
    let smaller = |capacity| {
        weigh(Version::V6_12, 117, |cpus, _| {
            cpus.set_load(0, 1800);
            cpus.set_capacity(0, capacity);
        })
    };
    assert_eq!([1024, 960, 940].map(smaller), [true, true, false]);
    // What prev takes along may leave less than nothing: then it stays.
    assert!(!weigh(Version::V6_12, 117, |cpus, w| {
        cpus.set_load(4, 50);
        w.wakee_load = 100;
    }));
}

/// In one LLC an idle waker's CPU, in an interrupt, gets the task unless prev is idle too.
///
/// Test of: specs/wake.md#affine.
#[test]
fn an_interrupt_near_its_wakee() {
    for (prev_busy, cpu) in [(true, 0), (false, 1)] {
        let mut desk = Desk::new(&Plan::llc(4, 1), Rules::of(Version::V6_12), 3);
        if prev_busy {
            desk.run(2, 1);
        }
        // Task 1 stands for the idle task of CPU 0.
        desk.at[0] = (1, false);
        let choice = desk.wake(1, 0);
        assert_eq!((choice.cpu, choice.reason), (cpu, Reason::TargetIdle));
        assert_eq!(choice.affine, prev_busy);
    }
}

/// Nodes that are too far for drawing: the search stays where the task was.
///
/// Test of: specs/wake.md#entry.
#[test]
fn a_far_waker_draws_nobody() {
    for near in [true, false] {
        let plan = Plan { nodes: 2, near, ..Plan::llc(4, 1) };
        let mut desk = Desk::new(&plan, Rules::of(Version::V6_12), 3);
        desk.run(1, 0);
        desk.run(2, 5);
        desk.at[0] = (5, false);
        let choice = desk.wake_with(1, 0, |w| w.sync = true);
        assert_eq!((choice.level, choice.affine), (near.then_some(1), near));
        assert_eq!((choice.target, choice.cpu), if near { (0, 1) } else { (5, 6) });
    }
}

/// Clusters of two in an LLC of four: those of the target's cluster come first, and a prev in
/// the other one is kept for the end.
///
/// Test of: specs/wake.md#clusters.
#[test]
fn clusters_come_first() {
    let plan =
        Plan { cores_per_cluster: 2, clusters_per_llc: 2, clusters: true, ..Plan::llc(2, 1) };
    let mut desk = Desk::new(&plan, Rules::of(Version::V6_12), 4);
    desk.run(1, 1);
    desk.at[0] = (2, false);
    desk.tasks[0].recent = 2;
    let sync = |w: &mut Wakeup<'_>| w.sync = true;
    // Prev 2 is idle, but 0 is in the target's cluster; it is past 2 and 3, cyclic from 1.
    let choice = desk.wake_with(1, 0, sync);
    assert_eq!((choice.target, choice.cpu, choice.reason), (1, 0, Reason::IdleCpu));
    // No idle CPU within the budget: the prev that was put aside.
    desk.at[2] = (2, false);
    desk.tasks[2].recent = 2;
    let llc = desk.cpus.layout().llc(0).unwrap();
    desk.cpus.set_nr_idle_scan(llc, 1);
    desk.cpus.set_running(1, 1, 0);
    let choice = desk.wake_with(1, 2, sync);
    assert_eq!((choice.cpu, choice.reason), (2, Reason::PrevOtherCluster));
}

/// CPUs of 446 and 1024; what needs 80 % of one doesn't fit.
///
/// Test of: specs/wake.md#capacity.
#[test]
fn a_task_gets_a_cpu_that_is_large_enough() {
    let plan = Plan { capacities: vec![446, 446, 1024, 1024], ..Plan::llc(4, 1) };
    let run = |util: u64, busy: &[u32]| {
        let mut desk = Desk::new(&plan, Rules::of(Version::V6_12), 6);
        for (task, cpu) in busy.iter().enumerate() {
            desk.run(task + 1, *cpu);
        }
        desk.at[0] = (0, false);
        desk.at[5] = (0, false);
        let choice = desk.wake_with(5, 0, |w| w.wakee_util = util);
        (choice.cpu, choice.reason)
    };
    // 356·1280 is less than 446·1024, 357·1280 isn't.
    assert_eq!(run(356, &[]), (0, Reason::TargetIdle));
    assert_eq!(run(357, &[]), (2, Reason::CapacityFits));
    assert_eq!(run(357, &[2]), (3, Reason::CapacityFits));
    assert_eq!(run(357, &[2, 3]), (0, Reason::CapacityBest));
    assert_eq!(run(900, &[]), (2, Reason::CapacityBest));
    assert_eq!(run(900, &[0, 1, 2, 3]), (0, Reason::NothingIdle));
}

/// The seed's LLC scan: q−1 CPUs from the target on, those that aren't allowed included.
///
/// Test of: specs/wake.md#cost-scan.
#[test]
fn the_old_scan_is_paid_with_idle_time() {
    let run = |avg_idle: u64, idle: u32, allowed: u64| {
        let mut desk = Desk::new(&Plan::llc(16, 1), Rules::of(Version::V4_16), 18);
        for cpu in (0..16).filter(|cpu| *cpu != idle) {
            desk.run(cpu as usize + 1, cpu);
        }
        desk.at[0] = (3, false);
        desk.tasks[0].recent = 3;
        desk.cpus.set_avg_idle(3, avg_idle);
        let words = [allowed];
        let w = Wakeup { allowed: Allowed::Words(&words), ..wakeup(3, 3, 0) };
        let choice = ask(&mut desk.cpus, &mut desk.tasks, 4, &w).unwrap();
        (choice.cpu, choice.scanned, choice.scan_timed)
    };
    let all = 0xffff;
    // No idle time: 4, so three looks, at 3, 4 and 5.
    assert_eq!(run(0, 5, all), (5, 3, true));
    assert_eq!(run(0, 6, all), (3, 3, false));
    // That 4 isn't allowed doesn't help.
    assert_eq!(run(0, 6, all & !(1 << 4)), (3, 3, false));
    // 16 CPUs · (512/512) / 1 = 16: fifteen looks, not at CPU 2.
    assert_eq!(run(512, 1, all), (1, 15, true));
    assert_eq!(run(512, 2, all), (3, 15, false));
    assert_eq!(run(1_000_000, 2, all), (2, 16, true));
    // The average of costs.
    assert_eq!(
        [(0, 800), (800, 0), (805, 800), (800, 807)].map(|(a, b)| scan_cost(a, b)),
        [100, 700, 805, 800]
    );
}

/// Test of: specs/wake.md#fall-back.
#[test]
fn a_choice_that_does_not_hold() {
    let plan = Plan { nodes: 2, ..Plan::llc(4, 1) };
    let run = |allowed: u64, active: u64| {
        let mut desk = Desk::new(&plan, Rules::of(Version::V6_12), 2);
        for cpu in 0..8 {
            desk.cpus.set_active(cpu, active >> cpu & 1 == 1);
        }
        desk.at[0] = (5, false);
        desk.at[1] = (5, false);
        let words = [allowed];
        let nr_allowed = allowed.count_ones();
        let w = Wakeup { allowed: Allowed::Words(&words), nr_allowed, ..wakeup(5, 5, 0) };
        let choice = ask(&mut desk.cpus, &mut desk.tasks, 1, &w);
        choice.map(|c| (c.cpu, c.reason))
    };
    assert_eq!(run(0xff, 0xff), Ok((5, Reason::TargetIdle)));
    // Prev is idle, and nobody asks whether it is allowed, until the end.
    assert_eq!(run(0b1100_0011, 0xff), Ok((6, Reason::FallbackNode)));
    assert_eq!(run(0b0000_1100, 0xff), Ok((2, Reason::Fallback)));
    assert_eq!(run(0xff, 0b1001_1111), Ok((4, Reason::FallbackNode)));
    assert_eq!(run(0b0010_0000, 0xff), Ok((5, Reason::OnlyAllowed)));
    assert_eq!(run(0b0110_0000, 0b0001_0010), Ok((1, Reason::AffinityBroken)));
    assert_eq!(run(0xff, 0), Err(WakeError::NoneActive));
}

/// Test of: specs/wake.md#idle.
#[test]
fn who_counts_as_idle() {
    let run = |version, wakee_idle_policy| {
        let mut desk = Desk::new(&Plan::llc(4, 1), Rules::of(version), 2);
        desk.run(1, 1);
        desk.at[0] = (1, false);
        desk.cpus.set_idle(0, false);
        desk.cpus.set_sched_idle(0, true);
        desk.wake_with(1, 0, |w| w.wakee_idle_policy = wakee_idle_policy).cpu
    };
    // The recent CPU 0 has only SCHED_IDLE tasks.
    assert_eq!(run(Version::V6_12, false), 0);
    assert_eq!(run(Version::V6_12, true), 0);
    assert_eq!(run(Version::V7_3, false), 0);
    assert_eq!(run(Version::V7_3, true), 2);
    assert_eq!(run(Version::V4_16, false), 2);
}

/// Test of: specs/wake.md#layout.
#[test]
fn what_is_no_layout() {
    assert_eq!(Layout::builder(0).build().unwrap_err(), LayoutError::NrCpus(0));
    assert_eq!(Layout::builder(8193).build().unwrap_err(), LayoutError::NrCpus(8193));
    assert_eq!(Layout::builder(8193).cpu(0, &[0], 0, &[]), Err(LayoutError::NrCpus(8193)));
    let mut b = Layout::builder(4);
    assert_eq!(b.domain(&[0], Flags::NONE, 117), Err(LayoutError::Empty));
    let far = LayoutError::NoCpu { what: "a domain", cpu: 4, nr_cpus: 4 };
    assert_eq!(b.domain(&[16], Flags::NONE, 117), Err(far));
    assert_eq!(b.cpu(0, &[1], 0, &[]), Err(LayoutError::Siblings(0)));
    assert_eq!(b.cpu(1, &[1, 0], 0, &[]), Err(LayoutError::Siblings(1)));
    let pair = b.domain(&[0b11], Flags::NONE, 117).unwrap();
    assert_eq!(b.domain(&[0b11, 0], Flags::NONE, 117), Ok(pair));
    assert_eq!(b.cpu(2, &[2], 0, &[pair]), Err(LayoutError::NotInDomain(2)));
    let levels = vec![pair; 17];
    assert_eq!(b.cpu(0, &[0], 0, &levels), Err(LayoutError::ManyLevels { cpu: 0, levels: 17 }));
    b.cpu(0, &[0, 1], 0, &[pair]).unwrap();
    assert_eq!(b.build().unwrap_err(), LayoutError::Siblings(0));
    // Nobody described them: alone, and without a cache to share.
    let alone = Layout::builder(2).build().unwrap();
    assert!(!alone.share_cache(0, 1) && alone.llc(0).is_none() && alone.llc_size(0) == 1);
}

/// Test of: specs/wake.md#entry.
#[test]
fn what_is_no_wake_up() {
    let mut desk = Desk::new(&Plan::llc(4, 1), Rules::of(Version::V6_12), 2);
    let mut try_it = |waker: u32, w: &Wakeup<'_>| ask(&mut desk.cpus, &mut desk.tasks, waker, w);
    let far = |waker_cpu, prev| WakeError::NoCpu { nr_cpus: 4, waker_cpu, prev };
    assert_eq!(try_it(0, &wakeup(4, 0, 1)), Err(far(4, 0)));
    assert_eq!(try_it(0, &wakeup(0, u32::MAX, 1)), Err(far(0, u32::MAX)));
    assert_eq!(try_it(1, &wakeup(0, 0, 1)), Err(WakeError::Tasks { waker: 1, wakee: 1 }));
    assert_eq!(try_it(2, &wakeup(0, 0, 1)), Err(WakeError::Tasks { waker: 2, wakee: 1 }));
    let short = Wakeup { allowed: Allowed::Words(&[]), ..wakeup(0, 0, 1) };
    assert_eq!(try_it(0, &short), Err(WakeError::Allowed { words: 0, nr_words: 1 }));
    // A recent CPU of nowhere is none.
    let mut stray = [Task::born(0, 0), Task::born(77, 0)];
    desk.run(0, 0);
    assert!(ask(&mut desk.cpus, &mut stray, 0, &wakeup(0, 0, 1)).is_ok());
}

/// 8,192 CPUs: LLCs of 16 cores, whose second threads are 4,096 further on.
///
/// Test of: specs/wake.md#layout.
#[test]
fn the_largest_machine() {
    let mut layout = Layout::builder(8192);
    for cpu in 0..8192_u32 {
        let (core, llc) = (cpu % 4096, cpu % 4096 / 16);
        let mut span = vec![0_u64; 128];
        for half in [0, 64] {
            span[half + llc as usize / 4] |= 0xffff << (llc % 4 * 16);
        }
        let mut pair = vec![0_u64; 128];
        for thread in [core, core + 4096] {
            pair[thread as usize / 64] |= 1 << (thread % 64);
        }
        let flags = Flags::SHARE_LLC | Flags::WAKE_AFFINE;
        let pair = layout.domain(&pair, flags | Flags::SHARE_CPUCAPACITY, 110).unwrap();
        let span = layout.domain(&span, flags, 117).unwrap();
        layout.cpu(cpu, &[core, core + 4096], (llc / 16) as u16, &[pair, span]).unwrap();
    }
    let mut cpus = Cpus::new(layout.build().unwrap(), Rules::of(Version::V6_12));
    let llc = cpus.layout().llc(8191).unwrap();
    assert_eq!((cpus.layout().nr_shared(), cpus.layout().llc_size(8191)), (256, 32));
    cpus.set_nr_idle_scan(llc, 32);
    for cpu in (4080..4096).chain(8176..8192) {
        cpus.set_idle(cpu, false);
    }
    cpus.set_idle(4081, true);
    // From 8192 on, that is: round by way of 4080.
    let choice = ask(&mut cpus, &mut tasks(2), 0, &wakeup(8191, 8191, 1)).unwrap();
    assert_eq!((choice.cpu, choice.reason, choice.scanned), (4081, Reason::IdleCpu, 2));
}
