use super::*;
use crate::sched::look::{Histogram, TaskCounts};
use crate::sched::stats::{SchedstatCpu, TaskStats};

/// What the kernel says of a task.
fn sched(pid: u32, wakeups: u64, sleep: u64, sleep_start: u64) -> TaskSched {
    let mut task = TaskSched::new("a", pid, 1);
    for line in [TaskLine::SumExecRuntime, TaskLine::NrMigrations, TaskLine::NrSwitches] {
        task.set(line, 0);
    }
    for line in [TaskLine::NrVoluntarySwitches, TaskLine::NrInvoluntarySwitches] {
        task.set(line, 0);
    }
    let stats = TaskStats {
        nr_wakeups: wakeups,
        sum_sleep_runtime: sleep,
        sleep_start,
        ..TaskStats::default()
    };
    task.set_stats(Version::V16, &stats);
    task
}

fn reading(tasks: &[TaskSched], timeslices: u64) -> Reading {
    let stats = CpuStats { pcount: timeslices, ..CpuStats::default() };
    let cpus = vec![SchedstatCpu { cpu: 0, stats, domains: Vec::new() }];
    Reading {
        cpus: Schedstat { version: Version::V16, timestamp: 1, mask_bits: 0, cpus },
        tasks: tasks.iter().map(|t| (t.pid, t.clone())).collect(),
    }
}

/// What homenode says of one.
fn own(pid: u32, start_ns: u64, counts: TaskCounts) -> TaskLook {
    TaskLook {
        pid,
        tgid: pid,
        parent: 1,
        start_ns,
        comm: "a".into(),
        cgroup: 1,
        tasks: 1,
        doing: Doing::Sleeps,
        doing_ns: 7,
        counts,
        latency: Histogram::default(),
        why: None,
    }
}

fn look(tasks: Vec<TaskLook>) -> Look {
    Look { ns: 1000, tasks, ..Look::default() }
}

fn of(task: &TaskCompared, figure: TaskFigure) -> Option<Pair> {
    task.pairs[figure as usize]
}

// specs/schedstats.md#beside
#[test]
fn the_kernels_figure_lies_between_its_readings() {
    let readings = Readings {
        before: [reading(&[sched(1, 100, 50, 0)], 10), reading(&[sched(1, 100, 50, 0)], 12)],
        after: [reading(&[sched(1, 140, 90, 3)], 20), reading(&[sched(1, 141, 95, 0)], 21)],
        begun_ns: 1000,
    };
    for (wakeups, difference) in [(40, 0), (41, 0), (43, 2), (38, -2)] {
        // 15 of the sleep had begun before, and was not counted by the kernel.
        let counts = TaskCounts {
            nr_wakeups: wakeups,
            sleep_ns: 55,
            before_sleep_ns: 15,
            ..TaskCounts::default()
        };
        let compared = Compared::of(&look(vec![own(1, 5, counts)]), &readings, false);
        let pair = of(&compared.tasks[0], TaskFigure::Wakeups).unwrap();
        assert_eq!((pair.kernel, pair.difference()), ([40, 41], difference));
        let sleep = of(&compared.tasks[0], TaskFigure::Sleep).unwrap();
        assert_eq!((sleep.kernel, sleep.own, sleep.difference()), ([40, 45], 40, 0));
        assert!(compared.cpus.is_empty(), "CPUs count others' too");
    }
}

// specs/schedstats.md#beside
#[test]
fn who_began_later_had_nothing_and_who_can_not_be_compared_is_counted() {
    // 1 sleeps since before, by its stamp; 2 is another task than the 2 that was read; 3 came
    // into the cgroup; 4 is over, and 5 had its counters set to 0.
    let before = [sched(1, 9, 9, 77), sched(2, 500, 500, 0), sched(5, 60, 60, 0)];
    let after = [sched(1, 12, 900, 0), sched(2, 3, 4, 0), sched(3, 8, 8, 0), sched(5, 2, 70, 0)];
    let readings = Readings {
        before: [reading(&before, 10), reading(&before, 10)],
        after: [reading(&after, 15), reading(&after, 15)],
        begun_ns: 1000,
    };
    let counts = TaskCounts { nr_wakeups: 3, sleep_ns: 4, ..TaskCounts::default() };
    let tasks = [(1, 5), (2, 1001), (3, 6), (4, 1002), (5, 7)];
    let mut look = look(tasks.into_iter().map(|(pid, start)| own(pid, start, counts)).collect());
    // One that is over, whose number the new 2 has.
    look.tasks.push(TaskLook { doing: Doing::Ended, ..own(2, 8, counts) });
    let compared = Compared::of(&look, &readings, true);
    assert_eq!(compared.tasks.iter().map(|t| t.pid).collect::<Vec<_>>(), [1, 2, 5]);
    assert_eq!((compared.late, compared.over), (1, 2));
    assert_eq!(of(&compared.tasks[0], TaskFigure::Sleep), None);
    assert_eq!(of(&compared.tasks[0], TaskFigure::Wakeups).unwrap().difference(), 0);
    assert_eq!(of(&compared.tasks[1], TaskFigure::Wakeups).unwrap().kernel, [3, 3]);
    assert_eq!(of(&compared.tasks[2], TaskFigure::Wakeups), None);
    assert_eq!(compared.incomplete(), 2);
    let all = compared.all_tasks()[TaskFigure::Wakeups as usize].unwrap();
    assert_eq!((all.kernel, all.own), ([6, 6], 6));
    assert!(compared.cpus.is_empty(), "homenode has seen none");
}
