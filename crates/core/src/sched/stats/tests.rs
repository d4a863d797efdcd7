//! Scheduler statistics: what updates them, what the files look like, what is no such file.

use super::*;
use crate::knobs::{Errno, WriteAs};
use expect_test::{Expect, expect};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

// ── What updates them ──────────────────────────────────────────────────────────

/// A task's counters and those of its CPU, driven as a scheduler does it. Time begins at 1 s:
/// a stamp of 0 means that there is none.
#[derive(Default)]
struct Task {
    stats: TaskStats,
    info: SchedInfo,
    cpu: CpuStats,
    voluntary: u64,
    involuntary: u64,
}

impl Task {
    fn at(ms: u64) -> u64 {
        1_000_000_000 + ms * MS
    }
    fn woken(&mut self, ms: u64) {
        self.stats.wait_start(Self::at(ms));
        let _ = self.stats.wake_enqueue(Self::at(ms), false);
        self.info.enqueue(Self::at(ms));
    }
    fn runs(&mut self, ms: u64) {
        let _ = self.stats.wait_end(Self::at(ms));
        self.info.arrive(Self::at(ms), &mut self.cpu);
    }
    fn preempted(&mut self, ms: u64) {
        self.stats.wait_start(Self::at(ms));
        self.info.depart(Self::at(ms), &mut self.cpu, true);
        self.involuntary += 1;
    }
    fn sleeps(&mut self, ms: u64) {
        self.info.dequeue(Self::at(ms), &mut self.cpu);
        self.stats.dequeue_sleep(Self::at(ms), Sleep::Interruptible);
        self.info.depart(Self::at(ms), &mut self.cpu, false);
        self.voluntary += 1;
    }
    /// Falls asleep, and stays queued as it has negative lag.
    fn sleeps_delayed(&mut self, ms: u64) {
        self.info.dequeue(Self::at(ms), &mut self.cpu);
        self.stats.wait_start(Self::at(ms));
        self.info.depart(Self::at(ms), &mut self.cpu, false);
        self.voluntary += 1;
    }
    /// Is picked, and taken from the queue instead.
    fn picked_out(&mut self, ms: u64) {
        let _ = self.stats.wait_end(Self::at(ms));
        self.stats.dequeue_sleep(Self::at(ms), Sleep::Interruptible);
    }
    fn check(&self, expected: Expect) {
        let (s, ms) = (&self.stats, |ns: u64| ns / MS);
        expected.assert_eq(&format!(
            "wait_sum {} count {} max {}; run_delay {} slices {}; voluntary {} involuntary {}; \
             sum_sleep {}; ran {}\n",
            ms(s.wait_sum),
            s.wait_count,
            ms(s.wait_max),
            ms(self.info.run_delay),
            self.info.pcount,
            self.voluntary,
            self.involuntary,
            ms(s.sum_sleep_runtime),
            ms(self.cpu.rq_cpu_time),
        ));
        assert_eq!((self.cpu.run_delay, self.cpu.pcount), (self.info.run_delay, self.info.pcount));
    }
}

// specs/schedstats.md#vector
#[test]
fn a_task_that_is_woken_preempted_and_sleeps() {
    let mut t = Task::default();
    t.woken(0);
    t.runs(4);
    t.preempted(10);
    t.runs(14);
    t.sleeps(20);
    t.woken(50);
    t.runs(50);
    t.check(expect![[r#"
        wait_sum 8 count 3 max 4; run_delay 8 slices 3; voluntary 1 involuntary 1; sum_sleep 30; ran 12
    "#]]);
}

// specs/schedstats.md#vector
#[test]
fn a_task_whose_dequeue_is_delayed_waits_but_has_no_run_delay() {
    let mut t = Task::default();
    t.woken(0);
    t.runs(4);
    t.preempted(10);
    t.runs(14);
    t.sleeps_delayed(20);
    t.picked_out(26);
    t.woken(50);
    t.runs(50);
    t.check(expect![[r#"
        wait_sum 14 count 4 max 6; run_delay 8 slices 3; voluntary 1 involuntary 1; sum_sleep 24; ran 12
    "#]]);
}

// specs/schedstats.md#delayed
#[test]
fn a_task_woken_while_its_dequeue_is_delayed_leaves_no_sleep() {
    let mut t = Task::default();
    t.woken(0);
    t.runs(0);
    t.sleeps_delayed(10);
    // Woken at 15: still queued, so only the always-live stamp begins. It runs at 17.
    t.info.enqueue(Task::at(15));
    t.runs(17);
    t.check(expect![[r#"
        wait_sum 7 count 2 max 7; run_delay 2 slices 2; voluntary 1 involuntary 0; sum_sleep 0; ran 10
    "#]]);
}

// specs/schedstats.md#wait
#[test]
fn waits_add_up_over_a_move_between_clocks() {
    let mut t = TaskStats::default();
    // 5 ms on a CPU whose clock says 100 to 105, then 2 ms on one whose clock says 900 to 902.
    t.wait_start(100 * MS);
    t.wait_migrate(105 * MS);
    assert_eq!((t.wait_start, t.wait_count), (5 * MS, 0), "no wait has ended");
    t.wait_start(900 * MS);
    assert_eq!(t.wait_end(902 * MS), Some(7 * MS));
    assert_eq!((t.wait_sum, t.wait_count, t.wait_max, t.wait_start), (7 * MS, 1, 7 * MS, 0));
    // A group is never moved; what is left in the stamp is overwritten.
    t.group_wait_start(1000 * MS);
    t.group_wait_start(1001 * MS);
    assert_eq!(t.wait_end(1003 * MS), Some(2 * MS));
    // Nothing began, nothing ends; and nothing is moved.
    let before = t;
    assert_eq!(t.wait_end(2000 * MS), None);
    t.wait_migrate(2000 * MS);
    assert_eq!(t, before);
}

// specs/schedstats.md#sleep
#[test]
fn sleeps_and_blocks() {
    let mut t = TaskStats::default();
    t.dequeue_sleep(10 * MS, Sleep::Interruptible);
    assert_eq!(t.wake_enqueue(13 * MS, true), Slept { sleep: Some(3 * MS), block: None });
    assert_eq!((t.iowait_count, t.sum_block_runtime), (0, 0), "no block, whatever in_iowait says");
    t.dequeue_sleep(20 * MS, Sleep::Uninterruptible);
    assert_eq!(t.wake_enqueue(25 * MS, false), Slept { sleep: None, block: Some(5 * MS) });
    t.dequeue_sleep(30 * MS, Sleep::Uninterruptible);
    assert_eq!(t.wake_enqueue(34 * MS, true), Slept { sleep: None, block: Some(4 * MS) });
    t.dequeue_sleep(40 * MS, Sleep::Other);
    assert_eq!(t.wake_enqueue(90 * MS, false), Slept::default());
    // Woken on a CPU whose clock is behind.
    t.dequeue_sleep(100 * MS, Sleep::Interruptible);
    assert_eq!(t.wake_enqueue(99 * MS, false), Slept { sleep: Some(0), block: None });
    let expected = TaskStats {
        sum_sleep_runtime: 12 * MS,
        sum_block_runtime: 9 * MS,
        sleep_max: 3 * MS,
        block_max: 5 * MS,
        iowait_sum: 4 * MS,
        iowait_count: 1,
        ..TaskStats::default()
    };
    assert_eq!(t, expected);
}

// specs/schedstats.md#maxima
#[test]
fn maxima_of_runs() {
    let mut t = TaskStats::default();
    for delta in [3, 9, 4] {
        t.exec(delta);
    }
    assert_eq!(t.exec_max, 9);
    t.picked(700, 2047, 1024);
    assert_eq!(t.slice_max, 0, "only lesser ones beside it");
    t.picked(500, 2048, 1024);
    t.picked(300, 9999, 1024);
    assert_eq!(t.slice_max, 500);
}

// specs/schedstats.md#wakeups
#[test]
fn wakeups_are_counted_where_the_waker_runs() {
    let (mut t, mut cpu, mut domain) =
        (TaskStats::default(), CpuStats::default(), DomainStats::default());
    let w = |local, sync, migrated| Wakeup { local, sync, migrated };
    t.wakeup(w(true, false, false), &mut cpu, None);
    t.wakeup(w(false, true, true), &mut cpu, Some(&mut domain));
    t.wakeup(w(false, false, false), &mut cpu, None);
    t.affine_attempt();
    t.affine_attempt();
    t.affine(&mut domain);
    let kinds = [
        t.nr_wakeups,
        t.nr_wakeups_sync,
        t.nr_wakeups_migrate,
        t.nr_wakeups_local,
        t.nr_wakeups_remote,
        t.nr_wakeups_affine,
        t.nr_wakeups_affine_attempts,
    ];
    assert_eq!(kinds, [3, 1, 1, 1, 2, 1, 2]);
    assert_eq!((cpu.ttwu_count, cpu.ttwu_local), (3, 1));
    assert_eq!((domain.ttwu_wake_remote, domain.ttwu_move_affine), (1, 1));
}

// specs/schedstats.md#domains
#[test]
fn balancing_is_counted_by_what_the_cpu_does() {
    let (mut t, mut d) = (TaskStats::default(), DomainStats::default());
    d.lb(IdleType::NewlyIdle).imbalance(Migration::Task, 1);
    d.lb(IdleType::NewlyIdle).imbalance(Migration::Load, 700);
    for why in [Refused::Affine, Refused::Running, Refused::Hot, Refused::Hot] {
        t.failed_migration(why);
    }
    t.forced_migration(&mut d, IdleType::Busy);
    let lb = d.lb[IdleType::NewlyIdle as usize];
    assert_eq!((lb.lb_imbalance, lb.lb_imbalance_task, lb.lb_imbalance_load), (701, 1, 700));
    assert_eq!(d.lb[0].lb_hot_gained, 1);
    let refused = [
        t.nr_failed_migrations_affine,
        t.nr_failed_migrations_running,
        t.nr_failed_migrations_hot,
        t.nr_forced_migrations,
    ];
    assert_eq!(refused, [1, 1, 2, 1]);
}

#[test]
fn every_counter_has_its_sentence() {
    let tables = [TaskStats::counters(), CpuStats::counters(), DomainStats::counters()];
    let all: Vec<Counter> = tables.concat();
    assert_eq!(all.len(), 28 + 8 + 3 * 12 + 12);
    for c in all.iter().chain(TaskLine::ALL.map(TaskLine::counter)) {
        assert!(c.about.ends_with('.'), "{}: {}", c.name, c.about);
    }
}

// ── The switch ─────────────────────────────────────────────────────────────────

// specs/schedstats.md#switch, specs/seeds.md#s2
#[test]
fn the_switch_is_off_until_somebody_turns_it() {
    let mut out = String::new();
    let mut s = Switch::default();
    let mut say = |what: &str, s: &Switch, answer: String| {
        out.push_str(&format!("{what}: {answer}; {}\n", s.read()));
    };
    for value in ["1", "", "enabled", "enable", "enable", "disable"] {
        let answer = format!("{:?}", s.boot(value));
        say(&format!("schedstats={value}"), &s, answer);
    }
    let root = WriteAs::default();
    let uncapped = WriteAs { cap_sys_admin: false, ..root };
    let behind = WriteAs { offset: 1, ..root };
    let writes = [
        ("1\n", root),
        ("1", root),
        (" 0x0 rest", root),
        ("2", root),
        ("-1", root),
        ("on", root),
        ("", root),
        ("1", uncapped),
        ("rubbish", uncapped),
        ("1", behind),
    ];
    for (text, who) in writes {
        let answer = match s.write(text, who) {
            Ok(done) => format!("{done:?}"),
            Err(e) => e.to_string(),
        };
        say(&format!("write {text:?}"), &s, answer);
    }
    expect![[r#"
        schedstats=1: Err("Unable to parse schedstats="); 0
        schedstats=: Err("Unable to parse schedstats="); 0
        schedstats=enabled: Err("Unable to parse schedstats="); 0
        schedstats=enable: Ok(On); 1
        schedstats=enable: Ok(Same); 1
        schedstats=disable: Ok(Off); 0
        write "1\n": (2, On); 1
        write "1": (1, Same); 1
        write " 0x0 rest": (9, Off); 0
        write "2": knob /proc/sys/kernel/sched_schedstats: "2" is refused (EINVAL); allowed are 0 (off), 1 (on); 0
        write "-1": knob /proc/sys/kernel/sched_schedstats: "-1" is refused (EINVAL); allowed are 0 (off), 1 (on); 0
        write "on": knob /proc/sys/kernel/sched_schedstats: "on" is refused (EINVAL); allowed are 0 (off), 1 (on); 0
        write "": knob /proc/sys/kernel/sched_schedstats: "" is refused (EINVAL); allowed are 0 (off), 1 (on); 0
        write "1": knob /proc/sys/kernel/sched_schedstats: "1" is refused (EPERM); writing it needs CAP_SYS_ADMIN; 0
        write "rubbish": knob /proc/sys/kernel/sched_schedstats: "rubbish" is refused (EPERM); writing it needs CAP_SYS_ADMIN; 0
        write "1": (1, Same); 0
    "#]]
    .assert_eq(&out);
    assert_eq!(s.write("7", root).map_err(|e| e.errno), Err(Errno::Einval));
}

// specs/schedstats.md#switch, specs/seeds.md#s2
#[test]
fn latencytop_turns_it_on_and_tracepoints_only_warn() {
    let mut s = Switch::default();
    assert_eq!(s.latencytop(0), None);
    assert_eq!(s.latencytop(1), Some((Switched::On, Switch::FORCED)));
    assert_eq!(s.latencytop(1), None, "it is on already");
    assert_eq!(s.set(false), Switched::Off);
    // An admin may turn it off; the next reading of latencytop turns it on again.
    assert_eq!(s.latencytop(-3), Some((Switched::On, Switch::FORCED)));

    assert_eq!(s.tracepoints(true), None, "on: nothing to warn of");
    assert_eq!(s.set(false), Switched::Off);
    assert_eq!(s.tracepoints(false), None);
    assert_eq!(s.tracepoints(true), Some(Switch::NEEDED));
    assert!(!s.on(), "a warning, no activation");
    assert_eq!(s.tracepoints(true), None, "once");
    let _ = s.set(true);
    let _ = s.set(false);
    assert_eq!(s.tracepoints(true), None, "once for ever");
}

// specs/exceptions/schedstats-stamps.md
#[test]
fn stamps_from_before_off_give_no_sample() {
    let mut t = TaskStats::default();
    let mut s = Switch::default();
    let _ = s.set(true);
    t.wait_start(1000 * MS);
    t.dequeue_sleep(1000 * MS, Sleep::Uninterruptible);
    let _ = s.set(false);
    // 6 s off; it was picked and queued again without anybody counting.
    if s.set(true) == Switched::On {
        t.clear_stamps();
    }
    assert_eq!(t.wait_end(7050 * MS), None);
    assert_eq!(t.wake_enqueue(7050 * MS, true), Slept::default());
    assert_eq!(t, TaskStats::default());
}

// ── Text ───────────────────────────────────────────────────────────────────────

/// Two CPUs with two domains each; every counter has another value.
fn sample(version: Version) -> Schedstat {
    let mut n = 0;
    let mut next = || {
        n += 1;
        n
    };
    let cpus = (0..2).map(|cpu| {
        let mut stats = CpuStats::default();
        stats.set_values(CpuStats::default().values().map(|_| next()));
        let domains = ["SMT", "PKG"].map(|name| {
            let mut stats = DomainStats::default();
            for lb in &mut stats.lb {
                lb.set_values(lb.values().map(|_| next()));
                let parts = [
                    &mut lb.lb_imbalance_load,
                    &mut lb.lb_imbalance_util,
                    &mut lb.lb_imbalance_task,
                    &mut lb.lb_imbalance_misfit,
                ];
                if version == Version::V17 {
                    lb.lb_imbalance = parts.into_iter().map(|p| *p).sum();
                } else {
                    parts.into_iter().for_each(|p| *p = 0);
                }
            }
            stats.set_values(stats.values().map(|_| next()));
            let name = if version == Version::V17 { name } else { "" };
            SchedstatDomain { name: name.to_owned(), span: vec![3], stats }
        });
        SchedstatCpu { cpu, stats, domains: domains.to_vec() }
    });
    Schedstat { version, timestamp: INITIAL_JIFFIES + 250, mask_bits: 4, cpus: cpus.collect() }
}

// specs/schedstats.md#schedstat
#[test]
fn three_versions_of_the_file() {
    let text = |version| {
        let text = sample(version).to_text();
        text.lines().take(4).map(|l| format!("{l}\n")).collect::<String>()
    };
    // Idle first; in each group calls, balanced, failed, imbalance, gained, hot, queue, group.
    expect![[r#"
        version 15
        timestamp 4294892546
        cpu0 1 0 2 3 4 5 6 7 8
        domain0 3 21 22 23 24 29 30 31 32 9 10 11 12 17 18 19 20 33 34 35 36 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56
    "#]]
    .assert_eq(&text(Version::V15));
    // Busy first.
    expect![[r#"
        version 16
        timestamp 4294892546
        cpu0 1 0 2 3 4 5 6 7 8
        domain0 3 9 10 11 12 17 18 19 20 21 22 23 24 29 30 31 32 33 34 35 36 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56
    "#]]
    .assert_eq(&text(Version::V16));
    // A name, and four imbalances in place of one.
    expect![[r#"
        version 17
        timestamp 4294892546
        cpu0 1 0 2 3 4 5 6 7 8
        domain0 SMT 3 9 10 11 13 14 15 16 17 18 19 20 21 22 23 25 26 27 28 29 30 31 32 33 34 35 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56
    "#]]
    .assert_eq(&text(Version::V17));
    for version in Version::ALL {
        let file = sample(version);
        assert_eq!(Schedstat::parse(&file.to_text()), Ok(file));
    }
}

// specs/schedstats.md#schedstat
#[test]
fn versions_by_kernel() {
    let of: Vec<String> =
        KernelVersion::ALL.iter().map(|k| format!("{k}: {}", Version::of(*k).name())).collect();
    assert_eq!(of.join(", "), "3.8: 15, 4.5: 15, 4.15: 15, 5.18: 15, 6.1: 15, 6.12: 16, 7.3: 17");
}

// specs/schedstats.md#masks
#[test]
fn masks_have_a_digit_for_every_four_cpus_there_could_be() {
    let mask = |span: &[u64], nr_cpu_ids| {
        let mut out = String::new();
        let stats = DomainStats::default();
        write_domain(&mut out, Version::V16, 0, "", span, nr_cpu_ids, &stats);
        out.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(mask(&[0b11], 2), "3");
    assert_eq!(mask(&[0b11], 5), "03");
    assert_eq!(mask(&[0xf], 40), "00,0000000f");
    assert_eq!(mask(&[1 << 33, 1], 65), "1,00000002,00000000");
    assert_eq!(mask(&[u64::MAX; 2], 128), "ffffffff,ffffffff,ffffffff,ffffffff");
    // What a machine can't have is not printed.
    assert_eq!(mask(&[u64::MAX], 6), "3f");
}

// specs/schedstats.md#schedstat
#[test]
fn counts_have_32_bits_and_times_64() {
    let mut out = String::new();
    let stats = CpuStats {
        sched_count: (1 << 32) + 5,
        rq_cpu_time: (1 << 32) + 6,
        pcount: (1 << 32) + 7,
        ..CpuStats::default()
    };
    write_cpu(&mut out, 12, &stats);
    assert_eq!(out, "cpu12 0 0 5 0 0 0 4294967302 0 4294967303\n");
    let info = SchedInfo { run_delay: 21, pcount: 3, ..SchedInfo::default() };
    let mut out = String::new();
    write_task_schedstat(&mut out, 1234, &info);
    assert_eq!(out, "1234 21 3\n");
    let read = TaskSchedstat { run_ns: 1234, wait_ns: 21, slices: 3 };
    assert_eq!(TaskSchedstat::parse(&out), Ok(read));
    assert_eq!(read.to_text(), out);
}

/// A task as a kernel of this version shows it, while the switch is on.
fn shown(version: Version) -> TaskSched {
    let mut t = TaskSched::new("kworker/u8:1 (x)", 4711, 3);
    for (i, line) in TaskLine::ALL.into_iter().enumerate() {
        let of_deadline = matches!(line, TaskLine::DlRuntime | TaskLine::DlDeadline);
        if line.printed(version) && !of_deadline && !TaskStats::LINES.contains(&line) {
            t.set(line, i as i64 * 1_000_003);
        }
    }
    t.set(TaskLine::NumaPreferredNid, -1);
    t.set(TaskLine::Vruntime, -5_000_123);
    t.set(TaskLine::SumExecRuntime, 60 * MS as i64);
    t.set(TaskLine::NrSwitches, 8);
    t.set(TaskLine::NrMigrations, 0);
    let mut stats = TaskStats::default();
    stats.set_values(std::array::from_fn(|i| (i as u64 + 1) * 1_500_000));
    if version == Version::V17 {
        stats.nr_migrations_cold = 0;
        stats.nr_wakeups_passive = 0;
        stats.nr_wakeups_idle = 0;
    }
    t.set_stats(version, &stats);
    let faults = (0..2).map(|node| NumaFaultsShown {
        node,
        task_private: 7,
        task_shared: 8,
        group_private: 9,
        group_shared: 10,
    });
    t.numa = Some(NumaShown { current_node: 1, numa_group_id: 0, faults: faults.collect() });
    t
}

// specs/schedstats.md#sched
#[test]
fn a_task_as_6_12_shows_it() {
    let t = shown(Version::V16);
    expect![[r#"
        kworker/u8:1 (x) (4711, #threads: 3)
        -------------------------------------------------------------------
        se.exec_start                                :             0.000000
        se.vruntime                                  :            -5.000123
        se.sum_exec_runtime                          :            60.000000
        se.nr_migrations                             :                    0
        sum_sleep_runtime                            :             1.500000
        sum_block_runtime                            :             3.000000
        wait_start                                   :             4.500000
        sleep_start                                  :             6.000000
        block_start                                  :             7.500000
        sleep_max                                    :             9.000000
        block_max                                    :            10.500000
        exec_max                                     :            12.000000
        slice_max                                    :            13.500000
        wait_max                                     :            15.000000
        wait_sum                                     :            16.500000
        wait_count                                   :             18000000
        iowait_sum                                   :            19.500000
        iowait_count                                 :             21000000
        nr_migrations_cold                           :             22500000
        nr_failed_migrations_affine                  :             24000000
        nr_failed_migrations_running                 :             25500000
        nr_failed_migrations_hot                     :             27000000
        nr_forced_migrations                         :             28500000
        nr_wakeups                                   :             30000000
        nr_wakeups_sync                              :             31500000
        nr_wakeups_migrate                           :             33000000
        nr_wakeups_local                             :             34500000
        nr_wakeups_remote                            :             36000000
        nr_wakeups_affine                            :             37500000
        nr_wakeups_affine_attempts                   :             39000000
        nr_wakeups_passive                           :             40500000
        nr_wakeups_idle                              :             42000000
        avg_atom                                     :             7.500000
        avg_per_cpu                                  :             0.000001
        nr_switches                                  :                    8
        nr_voluntary_switches                        :             36000108
        nr_involuntary_switches                      :             37000111
        se.load.weight                               :             38000114
        se.avg.load_sum                              :             39000117
        se.avg.runnable_sum                          :             40000120
        se.avg.util_sum                              :             41000123
        se.avg.load_avg                              :             42000126
        se.avg.runnable_avg                          :             43000129
        se.avg.util_avg                              :             44000132
        se.avg.last_update_time                      :             45000135
        se.avg.util_est                              :             48000144
        policy                                       :             53000159
        prio                                         :             54000162
        se.slice                                     :             57000171
        clock-delta                                  :             59000177
        mm->numa_scan_seq                            :             60000180
        numa_pages_migrated                          :             61000183
        numa_preferred_nid                           :                   -1
        total_numa_faults                            :             63000189
        current_node=1, numa_group_id=0
        numa_faults node=0 task_private=7 task_shared=8 group_private=9 group_shared=10
        numa_faults node=1 task_private=7 task_shared=8 group_private=9 group_shared=10
    "#]]
    .assert_eq(&t.to_text());
}

/// What a text reads as, with the average of nothing as the kernel prints it.
fn as_read(mut t: TaskSched) -> TaskSched {
    for line in [TaskLine::AvgAtom, TaskLine::AvgPerCpu] {
        if t.get(line) == Some(-1) {
            t.set(line, 1);
        }
    }
    t
}

// specs/schedstats.md#sched
#[test]
fn tasks_of_all_versions_are_read_back() {
    for version in Version::ALL {
        let t = shown(version);
        assert_eq!(TaskSched::parse(&t.to_text()), Ok(as_read(t)));
    }
    let text = |version| shown(version).to_text();
    let has = |version, name: &str| text(version).contains(&format!("\n{name:<45}:"));
    let versions = |name| Version::ALL.map(|v| has(v, name));
    assert_eq!(versions("nr_migrations_cold"), [true, true, false]);
    assert_eq!(versions("nr_wakeups_passive"), [true, true, false]);
    assert_eq!(versions("nr_wakeups_idle"), [true, true, false]);
    assert_eq!(versions("se.avg.util_est.ewma"), [true, false, false]);
    assert_eq!(versions("se.avg.util_est"), [false, true, true]);
    assert_eq!(versions("se.slice"), [false, true, true]);
}

// specs/schedstats.md#sched
#[test]
fn off_omits_the_lines() {
    let mut on = shown(Version::V16);
    assert!(on.stats().is_some());
    let mut off = TaskSched::new(&on.comm, on.pid, on.threads);
    off.numa = on.numa.take();
    for line in TaskLine::ALL {
        if let Some(v) = on.get(line).filter(|_| !line.group().is_of_switch()) {
            off.set(line, v);
        }
    }
    assert_eq!(off.stats(), None);
    let text = off.to_text();
    assert!(!text.contains("wait_sum") && !text.contains("avg_atom"), "{text}");
    assert_eq!(TaskSched::parse(&text), Ok(off));
}

#[test]
fn a_name_may_have_anything() {
    for comm in ["", "a (1, #threads: 2)", "x\ny", " (", "日本", "-------------------"] {
        let mut t = shown(Version::V17);
        t.comm = comm.to_owned();
        assert_eq!(TaskSched::parse(&t.to_text()), Ok(as_read(t)), "{comm:?}");
    }
}

// ── Files of real kernels ──────────────────────────────────────────────────────

macro_rules! real {
    ($name:literal) => {
        include_str!(concat!("../../../../fixtures/schedstats/", $name))
    };
}

// specs/schedstats.md#schedstat
#[test]
fn real_kernels_files_are_read_and_written_the_same() {
    let mut out = String::new();
    for (kernel, idle, busy) in [
        ("6.1", real!("6.1.schedstat.idle"), real!("6.1.schedstat.busy")),
        ("6.12", real!("6.12.schedstat.idle"), real!("6.12.schedstat.busy")),
        ("7.3", real!("7.3.schedstat.idle"), real!("7.3.schedstat.busy")),
    ] {
        let read = |text| Schedstat::parse(text).expect("a kernel printed it");
        let (idle, busy) = (read(idle), read(busy));
        assert_eq!(
            idle.to_text().lines().count(),
            idle.cpus.iter().map(|c| c.domains.len() + 1).sum::<usize>() + 2
        );
        let change = busy.since(&idle).expect("one boot");
        assert!(change.notes.is_empty(), "{:?}", change.notes);
        let ran: u64 = change.cpus.iter().filter_map(|c| c.stats.get(|s| s.rq_cpu_time)).sum();
        let ticks = change.ticks.expect("of two");
        // Each CPU ran at most all the time, 4 ms a tick.
        assert!(ran > 0 && ran <= 8 * (ticks + 1) * 4 * MS, "{ran} ns in {ticks} ticks");
        let top = busy.cpus[0].domains.last().expect("several CPUs");
        let lb = |idle: IdleType| top.stats.lb[idle as usize].lb_count;
        out.push_str(&format!(
            "{kernel}: version {}, {} CPUs, {} domains each, {:?} {:?}, balanced busy {} idle {} newly idle {}\n",
            busy.version.name(),
            busy.cpus.len(),
            busy.cpus[0].domains.len(),
            top.name,
            top.cpus(),
            lb(IdleType::Busy),
            lb(IdleType::Idle),
            lb(IdleType::NewlyIdle),
        ));
        for file in [(&idle, true), (&busy, false)] {
            let text = file.0.to_text();
            assert_eq!(Schedstat::parse(&text).as_ref(), Ok(file.0));
        }
    }
    for text in
        [real!("6.1.schedstat.busy"), real!("6.12.schedstat.busy"), real!("7.3.schedstat.busy")]
    {
        assert_eq!(Schedstat::parse(text).map(|f| f.to_text()).as_deref(), Ok(text));
    }
    expect![[r#"
        6.1: version 15, 8 CPUs, 2 domains each, "" [0, 1, 2, 3, 4, 5, 6, 7], balanced busy 31 idle 8 newly idle 0
        6.12: version 16, 8 CPUs, 3 domains each, "" [0, 1, 2, 3, 4, 5, 6, 7], balanced busy 31 idle 91 newly idle 21
        7.3: version 17, 8 CPUs, 3 domains each, "NUMA" [0, 1, 2, 3, 4, 5, 6, 7], balanced busy 31 idle 5 newly idle 0
    "#]].assert_eq(&out);
}

// specs/schedstats.md#sched
#[test]
fn real_tasks_are_read_and_written_the_same() {
    let mut out = String::new();
    for (version, on, off, three) in [
        (Version::V15, real!("6.1.sched.on"), real!("6.1.sched.off"), real!("6.1.task")),
        (Version::V16, real!("6.12.sched.on"), real!("6.12.sched.off"), real!("6.12.task")),
        (Version::V17, real!("7.3.sched.on"), real!("7.3.sched.off"), real!("7.3.task")),
    ] {
        let t = TaskSched::parse(on).expect("a kernel printed it");
        assert_eq!(t.to_text(), on);
        // The lines are those of the table, but for the class of deadline tasks.
        for line in TaskLine::ALL.into_iter().filter(|l| l.group() != super::line::Group::Deadline)
        {
            assert_eq!(t.get(line).is_some(), line.printed(version), "{}", line.name());
        }
        // Set anew from its counters it is the same: also the averages.
        let stats = t.stats().expect("on");
        let mut again = t.clone();
        again.set_stats(version, &stats);
        assert_eq!(as_read(again), t);
        let quiet = TaskSched::parse(off).expect("a kernel printed it");
        assert_eq!((quiet.stats(), quiet.to_text().as_str()), (None, off));
        let three = TaskSchedstat::parse(three).expect("a kernel printed it");
        assert!(three.slices > 0);
        out.push_str(&format!(
            "{}: {} waited {} times, {} ms; slept {} ms; woken {} times\n",
            version.name(),
            t.comm,
            stats.wait_count,
            stats.wait_sum / MS,
            stats.sum_sleep_runtime / MS,
            stats.nr_wakeups,
        ));
    }
    expect![[r#"
        15: sh waited 185 times, 142 ms; slept 8162 ms; woken 176 times
        16: sh waited 120 times, 1075 ms; slept 6943 ms; woken 78 times
        17: sh waited 124 times, 792 ms; slept 7138 ms; woken 83 times
    "#]]
    .assert_eq(&out);
}

// ── What is no such file ───────────────────────────────────────────────────────

fn refused(cases: &[(&str, String)], expected: Expect) {
    let say = |(what, text): &(&str, String)| match StatsFile::parse(text) {
        Ok(_) => panic!("{what} was taken"),
        Err(e) => format!("{what}: {e}\n"),
    };
    expected.assert_eq(&cases.iter().map(say).collect::<String>());
}

// specs/schedstats.md#strict
#[test]
fn schedstat_with_something_wrong() {
    let good = sample(Version::V16).to_text();
    let with = |old: &str, new: &str| {
        assert!(good.contains(old), "{old}");
        good.replacen(old, new, 1)
    };
    let lines = |n: usize| good.lines().take(n).map(|l| format!("{l}\n")).collect::<String>();
    refused(
        &[
            ("empty", String::new()),
            ("something else", "MemTotal: 4 kB\n".into()),
            ("old", with("version 16", "version 14")),
            ("future", with("version 16", "version 18")),
            ("odd version", with("version 16", "version")),
            ("version only", lines(1)),
            ("header only", lines(2)),
            ("cut in a number", good[..good.len() - 2].to_owned()),
            ("cut in a line", with(" 51 52 53", "")),
            ("cut behind a CPU", lines(5)),
            ("cut behind a domain", lines(6)),
            ("v16 with names", with("domain0 3", "domain0 SMT 3")),
            ("v17 without names", with("version 16", "version 17")),
            ("CPU short", with("cpu0 1 0 2", "cpu0 1 0")),
            ("second not 0", with("cpu0 1 0 2", "cpu0 1 1 2")),
            ("not a number", with("cpu0 1 0 2", "cpu0 1 0 two")),
            ("negative", with("cpu0 1 0 2", "cpu0 1 0 -2")),
            ("two blanks", with("cpu0 1 0 2", "cpu0  0 2")),
            ("leading zero", with("cpu0 1 0 2", "cpu0 1 0 02")),
            ("33 bits", with("cpu0 1 0 2", "cpu0 1 0 4294967296")),
            ("65 bits", with(" 6 7 8\n", " 18446744073709551616 7 8\n")),
            ("CPU twice", good.replacen("cpu1", "cpu0", 1)),
            ("CPU without number", with("cpu1", "cpu")),
            ("timestamp", with("timestamp ", "timestamp -")),
            ("domains swapped", with("domain0", "domain1")),
            ("domain before CPUs", with("cpu0 1 0 2 3 4 5 6 7 8\n", "")),
            ("mask too wide", with("domain0 3", "domain0 7")),
            ("mask of others", with("domain0 3", "domain0 2")),
            ("mask shrinks", with("domain1 3", "domain1 1")),
            ("mask grows", with("domain1 3", "domain1 00000000,00000003")),
            ("no mask", with("domain0 3", "domain0 x")),
            ("odd mask", with("domain0 3", "domain0 3,3")),
            ("line between", with("cpu1", "\ncpu1")),
            ("windows", good.replace('\n', "\r\n")),
        ],
        expect![[r#"
            empty: line 1: the text is empty
            something else: line 1: neither /proc/schedstat, which begins with `version`, nor /proc/PID/sched, which begins with the task's name, nor the three numbers of /proc/PID/schedstat
            old: line 1: version "14" is not known; homenode reads 15 (Linux 6.1), 16 (6.12) and 17 (7.3)
            future: line 1: version "18" is not known; homenode reads 15 (Linux 6.1), 16 (6.12) and 17 (7.3)
            odd version: line 1: "version" is not `version N`; homenode reads 15 (Linux 6.1), 16 (6.12) and 17 (7.3)
            version only: line 1: the text is cut off behind the version
            header only: line 2: there is no CPU; the text is cut off here
            cut in a number: line 8: the text ends without a newline, so it is cut off here
            cut in a line: line 4: domain0 has 33 numbers in place of the 36 of version 16; the line is cut off, or of another version
            cut behind a CPU: line 4: the mask of domain0 has CPU 1, and there is no line cpu1; the text is cut off, or CPUs came or went while it was read
            cut behind a domain: line 4: domain0 of cpu0 reaches CPU 1, whose own domains don't reach back; the text is cut off, or CPUs came or went while it was read
            v16 with names: line 4: "SMT" is not a mask of CPUs: words of eight hexadecimal digits with commas between, the first one may be shorter
            v17 without names: line 4: domain0 has 35 numbers in place of the 45 of version 17; the line is cut off, or of another version
            CPU short: line 3: cpu0 has 8 numbers in place of 9; the line is cut off, or not the kernel's
            second not 0: line 3: the second number of cpu0 is "1", where all kernels print 0
            not a number: line 3: sched_count of cpu0: "two" is not a number
            negative: line 3: sched_count of cpu0: "-2" is not a number
            two blanks: line 3: yld_count of cpu0: "" is not a number
            leading zero: line 3: sched_count of cpu0: "02" begins with 0, which the kernel prints of no number
            33 bits: line 3: sched_count of cpu0: "4294967296" does not fit into the 32 bits of this counter
            65 bits: line 3: rq_cpu_time of cpu0: "18446744073709551616" does not fit into the 64 bits of this counter
            CPU twice: line 6: cpu0 comes behind cpu0
            CPU without number: line 6: "" is not a number
            timestamp: line 2: "-4294892546" is not a number
            domains swapped: line 4: domain1 of cpu0 is in the place of domain0
            domain before CPUs: line 3: domain0 before any CPU
            mask too wide: line 5: the mask of domain1 leaves out CPUs of domain0
            mask of others: line 4: the mask of domain0 leaves out its own cpu0
            mask shrinks: line 5: the mask of domain1 leaves out CPUs of domain0
            mask grows: line 5: a mask for 64 CPUs, where those before are for 4
            no mask: line 4: "x" is not a mask of CPUs: words of eight hexadecimal digits with commas between, the first one may be shorter
            odd mask: line 4: "3,3" is not a mask of CPUs: words of eight hexadecimal digits with commas between, the first one may be shorter
            line between: line 6: "" is neither `cpuN …` nor `domainN …`
            windows: line 1: this line ends in CR LF, as on Windows, where the kernel prints LF alone; the text was changed on its way (dos2unix undoes that)
        "#]],
    );
}

// specs/schedstats.md#strict
#[test]
fn task_files_with_something_wrong() {
    let good = shown(Version::V16).to_text();
    let with = |old: &str, new: &str| {
        assert!(good.contains(old), "{old}");
        good.replacen(old, new, 1)
    };
    let without = |name: &str| {
        let keep = |l: &&str| !l.starts_with(name);
        good.lines().filter(keep).map(|l| format!("{l}\n")).collect::<String>()
    };
    let lines = |n: usize| good.lines().take(n).map(|l| format!("{l}\n")).collect::<String>();
    let swapped = {
        let mut l: Vec<&str> = good.lines().collect();
        l.swap(5, 6);
        l.join("\n") + "\n"
    };
    refused(
        &[
            ("no rule", with("------", "")),
            ("rule only", good.split_once('\n').map(|(_, r)| r.to_owned()).unwrap_or_default()),
            ("no PID", with(" (4711, ", " (")),
            ("PID", with("4711", "4711x")),
            ("header only", lines(2)),
            ("cut behind wait_sum", lines(17)),
            ("cut behind prio", lines(48)),
            ("cut in the end", good[..good.len() - 1].to_owned()),
            ("one missing", without("wait_count")),
            ("a must missing", without("policy")),
            ("half an average", without("se.avg.util_sum")),
            ("no estimate", without("se.avg.util_est")),
            (
                "no nodes",
                without("current_node")
                    .lines()
                    .filter(|l| !l.starts_with("numa_faults"))
                    .map(|l| format!("{l}\n"))
                    .collect(),
            ),
            ("faults without node", without("current_node")),
            ("node without faults", without("numa_faults")),
            ("swapped", swapped),
            ("unknown", with("wait_count ", "wait_counts")),
            ("before 5.16", with("wait_sum                ", "se.statistics.wait_sum  ")),
            ("columns", with("wait_count      ", "wait_count     ")),
            ("wide", with(":             18000000", ":              18000000")),
            ("digits", with("16.500000", "16.50000 ")),
            ("no digits", with("16.500000", "       16")),
            ("minus nothing", with(" 16.500000", "-0.500000").replace("-0.500000", " -0.500000")),
            ("number", with("18000000", "18000o00")),
            ("overflow", with("             18000000", "  9223372036854775808")),
            ("nodes fall", with("node=1 task", "node=0 task")),
            ("faults", with("task_shared=8", "task_shared=")),
            ("more behind", format!("{good}more\n")),
            ("more numbers", "1 2 3 4\n".into()),
            ("fewer numbers", "1 2\n".into()),
            ("more lines", "1 2 3\n4 5 6\n".into()),
            ("too large", "1 2 18446744073709551616\n".into()),
        ],
        expect![[r#"
            no rule: line 2: there is no line of 67 dashes below the name, so this is no whole /proc/PID/sched
            rule only: line 2: there is no line of 67 dashes below the name, so this is no whole /proc/PID/sched
            no PID: line 1: "kworker/u8:1 (x) (#threads: 3)" is not `NAME (PID, #threads: N)`
            PID: line 1: "4711x" is not a number
            header only: line 2: the line se.exec_start is missing
            cut behind wait_sum: line 17: the line nr_switches is missing
            cut behind prio: line 48: the line policy is missing
            cut in the end: line 59: the text ends without a newline, so it is cut off here
            one missing: line 58: the line wait_count is missing
            a must missing: line 58: the line policy is missing
            half an average: line 58: the line se.avg.util_sum is missing
            no estimate: line 58: one of se.avg.util_est and se.avg.util_est.ewma has to be there
            no nodes: line 56: of the lines numa_pages_migrated to numa_group_id some are missing
            faults without node: line 57: "numa_faults node=0 task_private=7 task_shared=8 group_private=9 group_shared=10" is not `NAME :NUMBER` in the kernel's columns
            node without faults: line 57: the lines numa_faults are missing
            swapped: line 7: se.nr_migrations comes behind sum_sleep_runtime
            unknown: line 18: no line "wait_counts" is known; those of Linux 6.1, 6.12 and 7.3 are
            before 5.16: line 17: no line "se.statistics.wait_sum" is known; those of Linux 6.1, 6.12 and 7.3 are
            columns: line 18: "wait_count                                  :             18000000" is not `NAME :NUMBER` in the kernel's columns
            wide: line 18: "wait_count                                   :              18000000" is not `NAME :NUMBER` in the kernel's columns
            digits: line 17: "16.50000 " is not a time in ms with six digits behind the point
            no digits: line 17: "16" is not a time in ms with six digits behind the point
            minus nothing: line 17: "wait_sum                                     :            -0.500000" is not `NAME :NUMBER` in the kernel's columns
            number: line 18: "18000o00" is not a number
            overflow: line 18: "9223372036854775808" does not fit into the 64 bits of wait_count
            nodes fall: line 59: node 0 is not in rising order
            faults: line 58: "" is not a number
            more behind: line 60: "more" is not `numa_faults node=N task_private=N task_shared=N group_private=N group_shared=N`
            more numbers: line 1: 4 numbers in place of 3: run, wait, slices
            fewer numbers: line 1: 2 numbers in place of 3: run, wait, slices
            more lines: line 2: "4 5 6" stands below the three numbers
            too large: line 1: "18446744073709551616" does not fit into the 64 bits of this counter
        "#]],
    );
}

// ── What lies between ──────────────────────────────────────────────────────────

#[test]
fn differences_and_counters_that_went_back() {
    let old = sample(Version::V16);
    let mut new = old.clone();
    new.timestamp += 100;
    new.cpus[0].stats.sched_count += 7;
    new.cpus[0].stats.ttwu_count = 0;
    new.cpus[1].domains[1].stats.lb(IdleType::Idle).lb_gained += 2;
    new.cpus[1].domains[0].stats.alb_count = 1;
    let change = new.since(&old).expect("one boot");
    assert_eq!(change.ticks, Some(100));
    let cpu0 = &change.cpus[0];
    assert_eq!(cpu0.stats.get(|s| s.sched_count), Some(7));
    assert_eq!(cpu0.stats.get(|s| s.ttwu_count), None);
    assert_eq!(cpu0.stats.get(|s| s.ttwu_local), Some(0));
    let domain = &change.cpus[1].domains[1].stats;
    assert_eq!(domain.get(|d| d.lb.iter().map(|l| l.lb_gained).sum()), Some(2));
    expect![[r#"
        cpu0: went back, so its difference is not known: ttwu_count
        domain0 of cpu1: went back, so its difference is not known: alb_count"#]]
    .assert_eq(&change.notes.join("\n"));
    assert!(old.since(&new).expect_err("the wrong way").contains("timestamp"));
    let other = sample(Version::V17);
    assert!(other.since(&old).expect_err("two kernels").contains("version 16"));
    // Rebuilt domains, and a CPU that came.
    let mut fewer = old.clone();
    for cpu in &mut fewer.cpus {
        cpu.domains.pop();
    }
    fewer.cpus.push(SchedstatCpu { cpu: 9, stats: CpuStats::default(), domains: Vec::new() });
    let change = fewer.since(&old).expect("one boot");
    assert!(change.cpus.iter().all(|c| c.domains.is_empty()) && change.cpus.len() == 2);
    expect![[r#"
        domains of cpu0 were rebuilt in between, so they are left out
        domains of cpu1 were rebuilt in between, so they are left out
        cpu9 is in the second file only, and left out"#]]
    .assert_eq(&change.notes.join("\n"));
    let change = old.since(&fewer).expect("one boot");
    assert!(change.notes.iter().any(|n| n == "cpu9 is in the first file only, and left out"));
}

#[test]
fn differences_of_a_task() {
    let old = shown(Version::V16);
    let mut stats = old.stats().expect("on");
    stats.wait_sum += 5;
    stats.wait_max += 2;
    stats.nr_wakeups -= 1;
    stats.wait_start = 1;
    let mut new = old.clone();
    new.set(TaskLine::NrSwitches, 18);
    new.set(TaskLine::Prio, 139);
    new.set_stats(Version::V16, &stats);
    let change = new.since(&old).expect("one task");
    let s = change.stats.expect("on in both");
    assert_eq!(s.get(|s| s.wait_sum), Some(5));
    assert_eq!(s.get(|s| s.wait_max), Some(old.stats().expect("on").wait_max + 2));
    assert_eq!(s.get(|s| s.wait_start), Some(1), "a stamp, as it is now");
    assert_eq!(s.get(|s| s.nr_wakeups), None);
    assert_eq!(change.get(TaskLine::NrSwitches), Some(10));
    assert_eq!(change.get(TaskLine::Prio), Some(139));
    assert_eq!(change.get(TaskLine::NrWakeups), None);
    expect!["task 4711: went back, so its difference is not known: nr_wakeups"]
        .assert_eq(&change.notes.join("\n"));
    let mut other = new.clone();
    other.pid = 1;
    assert!(other.since(&new).is_err());
}

// ── Properties ─────────────────────────────────────────────────────────────────

/// A value for a counter: all sizes are as likely.
fn value(bits: u32) -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..=bits).prop_map(move |(v, used)| if used == 0 { 0 } else { v >> (64 - used) })
}

fn domain(version: Version, name: usize) -> impl Strategy<Value = (String, DomainStats)> {
    let n = DomainStats::counters().len();
    proptest::collection::vec(value(32), n).prop_map(move |mut values| {
        let mut stats = DomainStats::default();
        for (v, c) in values.iter_mut().zip(DomainStats::counters()) {
            if !c.printed_in(version) {
                *v = 0;
            }
        }
        stats.set_each(&values);
        if version == Version::V17 {
            for lb in &mut stats.lb {
                lb.lb_imbalance = lb.lb_imbalance_load
                    + lb.lb_imbalance_util
                    + lb.lb_imbalance_task
                    + lb.lb_imbalance_misfit;
            }
        }
        let name = if version == Version::V17 { ["SMT", "MC", "NUMA"][name] } else { "" };
        (name.to_owned(), stats)
    })
}

/// A machine: up to 80 CPUs with gaps, and nested domains over all of them.
fn file() -> impl Strategy<Value = Schedstat> {
    let version = prop_oneof![Just(Version::V15), Just(Version::V16), Just(Version::V17)];
    let cpus = proptest::collection::btree_set(0u32..80, 1..7);
    (version, cpus, 0u32..4, any::<u64>()).prop_flat_map(|(version, cpus, more, timestamp)| {
        let highest = *cpus.iter().next_back().expect("one at least");
        let mask_bits = (highest / 4 + 1 + more) * 4;
        let mut all = vec![0u64; mask_bits.div_ceil(64) as usize];
        for cpu in &cpus {
            all[*cpu as usize / 64] |= 1 << (cpu % 64);
        }
        let each: Vec<_> = cpus
            .into_iter()
            .map(|cpu| {
                let stats = [value(32), value(32), value(32), value(32), value(32)];
                let times = [value(64), value(64), value(64)];
                (Just(cpu), stats, times, domain(version, 0), domain(version, 2))
            })
            .collect();
        each.prop_map(move |each| Schedstat {
            version,
            timestamp,
            mask_bits,
            cpus: each
                .into_iter()
                .map(|(cpu, counts, times, below, above)| {
                    let mut own = vec![0u64; all.len()];
                    own[cpu as usize / 64] |= 1 << (cpu % 64);
                    let mut stats = CpuStats::default();
                    stats.set_each(&[&counts[..], &times[..]].concat());
                    let domains = [(own, below), (all.clone(), above)];
                    let domains =
                        domains.map(|(span, (name, stats))| SchedstatDomain { name, span, stats });
                    SchedstatCpu { cpu, stats, domains: domains.to_vec() }
                })
                .collect(),
        })
    })
}

fn task() -> impl Strategy<Value = TaskSched> {
    let version = prop_oneof![Just(Version::V15), Just(Version::V16), Just(Version::V17)];
    let values = proptest::collection::vec((value(63), any::<bool>()), TaskLine::ALL.len());
    (version, values, any::<[bool; 4]>(), ".{0,5}", 0u32..1 << 22, 1u32..999).prop_map(
        |(version, values, [on, smp, mm, numa], comm, pid, threads)| {
            let mut t = TaskSched::new(&comm, pid, threads);
            for (line, (v, negative)) in TaskLine::ALL.into_iter().zip(values) {
                let group = line.group();
                use super::line::Group::*;
                let there = match group {
                    Must | Fair => true,
                    Stats | Unused => on,
                    Smp | TwoEstimates | OneEstimate => smp,
                    Uclamp | Ext => mm,
                    Core | Deadline => false,
                    Mm => mm && numa,
                    Numa => numa,
                };
                if there && line.printed(version) {
                    // Between −1 ms and 0 the kernel loses the sign.
                    let v = v as i64;
                    t.set(line, if negative && v >= 1_000_000 { -v } else { v });
                }
            }
            let faults = vec![NumaFaultsShown { node: 3, ..NumaFaultsShown::default() }];
            t.numa =
                numa.then_some(NumaShown { current_node: -1, numa_group_id: pid as i32, faults });
            t
        },
    )
}

proptest! {
    // specs/schedstats.md#schedstat
    #[test]
    fn what_is_written_is_read(file in file()) {
        prop_assert_eq!(Schedstat::parse(&file.to_text()), Ok(file));
    }

    // specs/schedstats.md#sched
    #[test]
    fn a_task_that_is_written_is_read(task in task()) {
        prop_assert_eq!(TaskSched::parse(&task.to_text()), Ok(task));
    }

    // specs/schedstats.md#strict
    // What is taken is what a kernel prints: written out it is the same, and a byte that is lost or
    // changed is either told or another file.
    #[test]
    fn damage_is_told_or_kept(file in file(), task in task(), at in any::<prop::sample::Index>(), to in any::<u8>(), cut in any::<bool>()) {
        for text in [file.to_text(), task.to_text()] {
            let mut bytes = text.clone().into_bytes();
            let at = at.index(bytes.len());
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] = to;
            }
            let damaged = String::from_utf8_lossy(&bytes).into_owned();
            match StatsFile::parse(&damaged) {
                Ok(StatsFile::Schedstat(f)) => prop_assert_eq!(f.to_text(), damaged),
                Ok(StatsFile::TaskSched(t)) => prop_assert_eq!(t.to_text(), damaged),
                Ok(StatsFile::TaskSchedstat(t)) => prop_assert_eq!(t.to_text(), damaged),
                Err(e) => prop_assert!(e.line >= 1 && !e.what.is_empty()),
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), head in 0usize..5) {
        let head = ["", "version 16\ntimestamp 1\ncpu0 ", "version 17\ntimestamp 1\ncpu0 1 0 1 1 1 1 1 1 1\ndomain0 ", "x (1, #threads: 1)\n-------------------------------------------------------------------\n", "1 2 "][head];
        let text = format!("{head}{}", String::from_utf8_lossy(&bytes));
        let _ = StatsFile::parse(&text);
        let _ = Schedstat::parse(&text);
        let _ = TaskSched::parse(&text);
        let _ = TaskSchedstat::parse(&text);
    }

    // Waits add up to what the clock says, whatever happens in between.
    #[test]
    fn waits_add_up(steps in proptest::collection::vec((1u64..1000, 0u8..3), 1..40)) {
        let (mut t, mut now, mut waiting, mut sum) = (TaskStats::default(), 1, false, 0);
        for (passed, what) in steps {
            now += passed;
            sum += if waiting { passed } else { 0 };
            match (waiting, what) {
                (false, _) => t.wait_start(now),
                (true, 0) => {
                    // Moved to a CPU with the same clock.
                    t.wait_migrate(now);
                    t.wait_start(now);
                    continue;
                }
                (true, _) => prop_assert!(t.wait_end(now).is_some()),
            }
            waiting = !waiting;
        }
        if waiting {
            let _ = t.wait_end(now);
        }
        prop_assert_eq!(t.wait_sum, sum);
        prop_assert!(t.wait_max <= t.wait_sum && t.wait_start == 0);
    }
}
