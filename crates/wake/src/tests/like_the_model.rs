//! Random machines, random things going on, and the face has to choose as the model does.
//!
//! Test of: specs/wake.md.

use super::machine::{Plan, Set, State, VERSIONS, name, tasks, words};
use super::model::{self, Told, Wake};
use super::random::Random;
use crate::{Allowed, Choice, Cpus, Recent, Rules, Task, Version, Wakeup};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A machine, its tasks, and what is going on: the same for the model and for others.
pub(super) struct World {
    pub(super) state: State,
    pub(super) cpus: Cpus,
    pub(super) tasks: Vec<Task>,
    r: Random,
    busy_bp: u32,
    jiffies: u64,
}

impl World {
    pub(super) fn new(seed: u64, cpus_max: u32) -> Self {
        let mut r = Random(seed);
        let plan = Plan::random(&mut r, cpus_max);
        let (machine, capacity) = plan.build();
        let version = *r.of(&VERSIONS);
        let mut rules = Rules::of(version);
        if r.one_in(3) {
            rules.recent = *r.of(&[Recent::None, Recent::Waker, Recent::Wakee]);
        }
        let mut state = State::new(machine, capacity, rules);
        for cpu in 0..state.machine.nr_cpus() {
            let llc = state.machine.llc(cpu).into_iter();
            let levels: Vec<_> = llc.chain(state.machine.asym(cpu)).map(name).collect();
            for level in levels {
                let n = *r.of(&[0, 1, 2, 3, 5, 8, 16, 130]);
                state.nr_idle_scan.entry(level).or_insert(n);
            }
        }
        let mut cpus = state.face();
        let busy_bp = *r.of(&[0, 50, 80, 90, 98, 100]);
        for cpu in 0..state.machine.nr_cpus() {
            state.shuffle(cpu, busy_bp, &mut r, &mut cpus);
        }
        Self { state, cpus, tasks: tasks(4), r, busy_bp, jiffies: 1000 }
    }

    /// Something changes, and a task wakes another one.
    pub(super) fn next(&mut self) -> Wake {
        let n = self.state.machine.nr_cpus();
        let r = &mut self.r;
        for _ in 0..r.below(4) {
            let cpu = r.below(n);
            self.state.shuffle(cpu, self.busy_bp, r, &mut self.cpus);
        }
        if r.one_in(20) {
            let cpu = r.below(n);
            // One stays: somebody has to run the waker.
            if !self.state.active.remove(&cpu) || self.state.active.is_empty() {
                self.state.active.insert(cpu);
            }
            self.state.tell(cpu, &mut self.cpus);
        }
        self.jiffies += *r.of(&[0_u64, 0, 1, 100, 250, 251]);
        let waker = r.below(self.tasks.len() as u32) as usize;
        let wakee = (waker + 1 + r.below(self.tasks.len() as u32 - 1) as usize) % self.tasks.len();
        let waker_cpu = r.below(n);
        let prev = match r.below(4) {
            0 => waker_cpu,
            1 => r.below(n),
            _ => {
                let llc = self.state.machine.llc(waker_cpu).map(|l| l.span.clone());
                let near: Vec<u32> = llc.unwrap_or_default().into_iter().collect();
                if near.is_empty() { waker_cpu } else { *r.of(&near) }
            }
        };
        if r.one_in(3) {
            self.tasks[wakee].recent = r.below(n);
        }
        if r.one_in(10) {
            self.tasks[wakee].flips = r.below(40);
            self.tasks[waker].flips = r.below(400);
        }
        let allowed: Set = match r.below(8) {
            0 => [r.below(n)].into(),
            1 => (0..n).filter(|_| r.one_in(2)).collect(),
            2 => (0..n).filter(|_| r.one_in(8)).collect(),
            _ => self.state.machine.all(),
        };
        Wake {
            waker_cpu,
            prev,
            task_cpu: if r.one_in(20) { r.below(n) } else { prev },
            waker,
            wakee,
            allowed,
            sync: r.one_in(2),
            current_cpu: r.one_in(30),
            kthread: r.one_in(4),
            idle_policy: r.one_in(6),
            jiffies: self.jiffies,
            waker_load: u64::from(r.below(2000)),
            wakee_load: u64::from(r.below(2000)),
            wakee_util: u64::from(r.below(900)),
        }
    }

    /// The face's choice. All CPUs are said in two ways.
    pub(super) fn choose(&mut self, w: &Wake) -> Choice {
        let set = words(&w.allowed, self.cpus.layout().nr_words());
        let all = w.allowed.len() == self.cpus.layout().nr_cpus() && self.r.one_in(2);
        let allowed = if all { Allowed::All } else { Allowed::Words(&set) };
        let wakeup = wakeup(w, allowed);
        self.cpus.choose_in(&mut self.tasks, w.waker as u32, &wakeup).unwrap()
    }
}

pub(super) fn wakeup<'a>(w: &Wake, allowed: Allowed<'a>) -> Wakeup<'a> {
    Wakeup {
        waker_cpu: w.waker_cpu,
        prev: w.prev,
        task_cpu: w.task_cpu,
        wakee: w.wakee as u32,
        allowed,
        nr_allowed: w.allowed.len() as u32,
        sync: w.sync,
        current_cpu: w.current_cpu,
        waker_per_cpu_kthread: w.kthread,
        wakee_idle_policy: w.idle_policy,
        jiffies: w.jiffies,
        waker_load: w.waker_load,
        wakee_load: w.wakee_load,
        wakee_util: w.wakee_util,
    }
}

fn told(choice: &Choice) -> Told {
    Told {
        cpu: choice.cpu,
        reason: Some(choice.reason),
        target: choice.target,
        level: choice.level,
        affine: choice.affine,
        wide: choice.wide,
        scanned: choice.scanned,
        cleared: choice.idle_core_cleared,
        timed: choice.scan_timed,
    }
}

/// Wakes so many and counts what was chosen for which reason.
fn run(seed: u64, cpus_max: u32, wakes: u32, seen: &mut BTreeMap<(Version, crate::Reason), u32>) {
    let mut world = World::new(seed, cpus_max);
    for at in 0..wakes {
        let w = world.next();
        let mut tasks = world.tasks.clone();
        let before = world.tasks.clone();
        let mut state = world.state.clone();
        let expected = model::choose(&mut state, &mut tasks, &w);
        let choice = world.choose(&w);
        let what = || format!("seed {seed}, wake-up {at}: {w:?}, {:?}", world.state);
        assert_eq!(told(&choice), expected, "{}", what());
        assert_eq!(world.tasks, tasks, "{}", what());
        let changed = |a: usize| before[a] != tasks[a];
        assert!(!changed(w.wakee) || choice.recent_changed, "{}", what());
        assert!(
            !changed(w.waker) || choice.flips_changed || choice.waker_recent_changed,
            "{}",
            what()
        );
        world.state = state;
        let what = || format!("seed {seed}, wake-up {at}: {w:?}, then {:?}", world.state);
        for cpu in 0..world.state.machine.nr_cpus() {
            for (level, id) in world.state.shared(cpu, &world.cpus) {
                let expected = world.state.has_idle_core.contains(&name(level));
                assert_eq!(world.cpus.has_idle_core(id), expected, "{}", what());
            }
            let core = &world.state.machine.core[cpu as usize];
            assert_eq!(
                world.cpus.is_core_idle(cpu),
                core.is_subset(&world.state.idle),
                "{}",
                what()
            );
        }
        if choice.scan_timed {
            let took = u64::from(choice.scanned) * 40;
            let cost = &mut world.state.scan_cost[w.waker_cpu as usize];
            *cost = (*cost as i64 + (took as i64 - *cost as i64) / 8) as u64;
            world.cpus.note_scan_cost(w.waker_cpu, took);
        }
        *seen.entry((world.state.rules.version, choice.reason)).or_default() += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn any_wake_up_goes_where_the_model_says(seed: u64, cpus_max in 1_u32..=130) {
        run(seed, cpus_max, 40, &mut BTreeMap::new());
    }
}

/// A comparison of what never happens would say nothing: each reason that a version can have
/// is had by these seeds, and no other one.
#[test]
fn every_reason_of_every_version_is_met() {
    use crate::Reason::*;
    let mut seen = BTreeMap::new();
    for seed in 0..2000 {
        run(seed, 130, 40, &mut seen);
    }
    let today = [CurrentCpu, Stacked, CapacityFits, CapacityBest, IdleSeen];
    let today = today.iter().chain(&[PrevOtherCluster, RecentOtherCluster]);
    let today: Vec<_> = today.copied().collect();
    for version in VERSIONS {
        for reason in crate::Reason::ALL {
            let can = version >= Version::V6_12 || !today.contains(&reason);
            let n = seen.get(&(version, reason)).copied().unwrap_or(0);
            assert_eq!(n > 0, can, "{version:?} {reason:?}: {n} times");
        }
    }
}

#[test]
fn twice_the_same() {
    for seed in 0..20 {
        let choices = |_| {
            let mut world = World::new(seed, 130);
            (0..50)
                .map(|_| {
                    let w = world.next();
                    world.choose(&w)
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(choices(0), choices(1));
    }
}
