//! A share of a recording's groups of tasks: what a program with half as many of them would do.
//!
//! A group are tasks that wake one another, directly or through others. Who starts others belongs to none, and stays: of
//! what it did, that falls away which it did for those who are left out, and what it ran just before.
//!
//! Source: specs/record-sched.md#groups.

use anyhow::{Result, bail};
use homenode_core::sched::course::{Course, Life, Step};
use homenode_core::units::count;
use std::collections::{BTreeMap, BTreeSet};

/// So many wake-ups, or bytes taken so often, between two tasks make them belong together: fewer come from a lock that all share.
const TOGETHER: u32 = 3;

/// Reads `N/M`.
pub(super) fn share(text: &str) -> Result<(u32, u32), String> {
    let odd = || "write a share such as 1/2".to_owned();
    let (n, m) = text.split_once('/').ok_or_else(odd)?;
    let (n, m) = (n.parse().map_err(|_| odd())?, m.parse().map_err(|_| odd())?);
    if n == 0 || n > m {
        return Err(format!("{text} is no share that leaves something; {}", odd()));
    }
    Ok((n, m))
}

/// The group of each life, by its first life; `None`: it starts others.
fn groups(course: &Course) -> Vec<Option<usize>> {
    let lives = &course.lives;
    let mut starts = vec![false; lives.len()];
    for life in lives {
        if let Some(by) = life.starter {
            starts[by as usize] = true;
        }
    }
    let who = wakers(course);
    let mut pairs: BTreeMap<(usize, usize), u32> = BTreeMap::new();
    for (task, life) in lives.iter().enumerate() {
        for step in &life.steps {
            let by = match step {
                Step::Await { wake, .. } => who[*wake as usize],
                Step::Get { by, .. } => Some(*by as usize),
                Step::Run(_)
                | Step::Rest { .. }
                | Step::Wake { .. }
                | Step::Put { .. }
                | Step::Join(_)
                | Step::Fork(_)
                | Step::Exec
                | Step::Nice(_)
                | Step::Allow(_) => None,
            };
            if let Some(by) = by.filter(|&by| !starts[by] && !starts[task] && by != task) {
                *pairs.entry((by.min(task), by.max(task))).or_default() += 1;
            }
        }
    }
    let mut of: Vec<usize> = (0..lives.len()).collect();
    fn first(of: &mut [usize], mut at: usize) -> usize {
        while of[at] != at {
            of[at] = of[of[at]];
            at = of[at];
        }
        at
    }
    for ((a, b), n) in pairs {
        if n >= TOGETHER {
            let (a, b) = (first(&mut of, a), first(&mut of, b));
            of[a.max(b)] = a.min(b);
        }
    }
    (0..lives.len()).map(|at| (!starts[at]).then(|| first(&mut of, at))).collect()
}

/// By wake-up: who wakes.
fn wakers(course: &Course) -> Vec<Option<usize>> {
    let mut who = vec![None; course.wakes as usize];
    for (task, life) in course.lives.iter().enumerate() {
        for step in &life.steps {
            if let Step::Wake { wake, .. } = step {
                who[*wake as usize] = Some(task);
            }
        }
    }
    who
}

/// Keeps a share of the groups, the first of them; what that means, in a sentence.
pub(crate) fn keep(course: &Course, (n, m): (u32, u32)) -> Result<(Course, String)> {
    let groups = groups(course);
    let mut all: Vec<usize> = groups.iter().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    if all.len() < 2 {
        bail!(
            "--keep-groups: the recording has {} of tasks that wake one another beside those who start them",
            count(all.len() as u64, "group", "groups")
        );
    }
    let kept = (all.len() * n as usize).div_ceil(m as usize);
    let stays: Vec<bool> =
        groups.iter().map(|g| g.is_none_or(|g| all[..kept].contains(&g))).collect();
    let who = wakers(course);
    let mut awaits = vec![None; course.wakes as usize];
    for (task, life) in course.lives.iter().enumerate() {
        for step in &life.steps {
            if let Step::Await { wake, .. } = step {
                awaits[*wake as usize] = Some(task);
            }
        }
    }
    // By pipe or socket: who takes.
    let mut takers: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
    for (task, life) in course.lives.iter().enumerate() {
        for step in &life.steps {
            if let Step::Get { object, .. } = step {
                takers.entry(*object).or_default().insert(task);
            }
        }
    }
    // One of those that are left out, where all are.
    let only = |object: u32| {
        let them = takers.get(&object)?;
        if them.iter().any(|&t| stays[t]) { None } else { them.first().copied() }
    };
    let is_left_out = |step: &Step| {
        let other = match step {
            Step::Await { wake, .. } => who[*wake as usize],
            Step::Wake { wake, .. } => awaits[*wake as usize],
            Step::Fork(child) => Some(*child as usize),
            Step::Join(child) => Some(*child as usize),
            Step::Get { by, .. } => Some(*by as usize),
            Step::Put { object, .. } => only(*object),
            Step::Run(_) | Step::Rest { .. } | Step::Exec | Step::Nice(_) | Step::Allow(_) => None,
        };
        other.is_some_and(|other| !stays[other])
    };
    let life = |(task, life): (usize, &Life)| {
        if !stays[task] {
            // Nobody starts it.
            return Life { steps: Vec::new(), starter: life.starter.or(Some(0)), ..life.clone() };
        }
        let mut steps: Vec<Step> = Vec::new();
        for step in &life.steps {
            if is_left_out(step) {
                if let Some(Step::Run(_)) = steps.last() {
                    steps.pop();
                }
            } else {
                steps.push(step.clone());
            }
        }
        Life { steps, ..life.clone() }
    };
    let lives = course.lives.iter().enumerate().map(life).collect();
    let tasks = stays.iter().filter(|s| **s).count();
    let told = format!(
        "asked: {kept} of {} groups of tasks that wake one another, {} in all",
        all.len(),
        count(tasks as u64, "task", "tasks")
    );
    Ok((Course { lives, wakes: course.wakes, objects: course.objects }, told))
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::sched::course::Wait;

    /// One that starts two pairs and waits for each of the four; in a pair each wakes the other three times.
    fn pairs() -> Course {
        let mut course = Course::default();
        course.lives.resize_with(5, Life::default);
        let mut wakes = 0;
        let mut wake = |course: &mut Course, by: usize, task: usize| {
            course.lives[by].steps.extend([Step::Run(5), Step::Wake { wake: wakes, sync: false }]);
            let on = Wait::default();
            course.lives[task].steps.extend([Step::Run(7), Step::Await { wake: wakes, on }]);
            wakes += 1;
        };
        for child in 1..5u32 {
            course.lives[0].steps.extend([Step::Run(100 + u64::from(child)), Step::Fork(child)]);
            course.lives[child as usize].starter = Some(0);
        }
        for (a, b) in [(1, 2), (3, 4)] {
            for _ in 0..3 {
                wake(&mut course, a, b);
                wake(&mut course, b, a);
            }
        }
        // A lock that all share.
        wake(&mut course, 2, 3);
        for child in 1..5 {
            wake(&mut course, child, 0);
        }
        course.lives[0].steps.push(Step::Run(1000));
        course.wakes = wakes;
        course
    }

    #[test]
    fn half_of_the_groups_is_half_of_the_work() {
        let course = pairs();
        assert_eq!(groups(&course), [None, Some(1), Some(1), Some(3), Some(3)]);
        let (half, told) = keep(&course, (1, 2)).expect("two groups");
        assert_eq!(told, "asked: 1 of 2 groups of tasks that wake one another, 3 tasks in all");
        let text: Vec<String> = half.lives[0].steps.iter().map(|s| format!("{s:?}")).collect();
        let on = Wait::default();
        let steps = [
            Step::Run(101),
            Step::Fork(1),
            Step::Run(102),
            Step::Fork(2),
            Step::Run(7),
            Step::Await { wake: 13, on },
            Step::Run(7),
            Step::Await { wake: 14, on },
            Step::Run(1000),
        ];
        assert_eq!(half.lives[0].steps, steps, "{text:?}");
        assert!(half.lives[3].steps.is_empty() && half.lives[4].steps.is_empty());
        let to_nobody = Step::Wake { wake: 12, sync: false };
        assert!(!half.lives[2].steps.contains(&to_nobody), "whoever is left out is not woken");
        assert_eq!(keep(&course, (2, 2)).unwrap().0, course);
        let one = Course { lives: vec![Life::default()], ..Course::default() };
        assert!(keep(&one, (1, 2)).unwrap_err().to_string().contains("has 1 group"));
        assert!(share("0/2").is_err() && share("3/2").is_err() && share("x").is_err());
        assert_eq!(share("2/3"), Ok((2, 3)));
    }
}
