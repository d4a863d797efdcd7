use super::*;
use expect_test::expect;
use homenode_core::sched::look::Doing;

fn task(pid: u32, comm: &str, counts: TaskCounts) -> TaskLook {
    let mut latency = Histogram::default();
    latency.0[Histogram::bucket_of(5_000)] = counts.latencies;
    let mut why = Reasons { from_last_node: 1, ..Default::default() };
    why.by[Reason::PreviousIdle as usize] = counts.nr_wakeups;
    why.node[1] = counts.nr_wakeups;
    TaskLook {
        pid,
        tgid: pid,
        parent: 1,
        start_ns: 1,
        comm: comm.into(),
        cgroup: u64::from(pid % 2),
        tasks: 1,
        doing: Doing::Sleeps,
        doing_ns: 40_000_000,
        counts,
        latency,
        why: Some(why),
    }
}

fn report() -> LookReport {
    let counts = |run_ns| TaskCounts {
        run_ns,
        wait_ns: 1_500_000,
        sleep_ns: 50_000_000,
        nr_wakeups: 4,
        latencies: 4,
        latency_ns_max: 5_100,
        nr_voluntary: 4,
        ..Default::default()
    };
    let cpu = |cpu: u32, node| {
        let mut latency = Histogram::default();
        latency.0[Histogram::bucket_of(5_000)] = 4;
        CpuLook {
            cpu,
            llc: node,
            node,
            came: false,
            moved_in: 2,
            moved_in_llc: 1,
            moved_in_node: 1,
            counts: CpuCounts {
                run_ns: 1_000_000,
                nr_switches: 12,
                latency_ns_max: 5_100,
                lost_tasks: u64::from(cpu),
                lost_events: 7 * u64::from(cpu),
                events_switch: 12,
                ..Default::default()
            },
            latency,
        }
    };
    LookReport {
        look: Look {
            ns: 100_000_000,
            tasks: vec![
                task(10, "idle", counts(0)),
                task(11, "busy", counts(9_000_000)),
                task(13, "busier", counts(9_500_000)),
            ],
            cpus: vec![cpu(0, 0), cpu(1, 1)],
            bytes: 3 << 20,
            slots: 64,
        },
        cgroups: [(1, "/a".to_owned())].into(),
        memory: [(11, [(0, 90), (1, 10)].into())].into(),
        why: true,
        top: 2,
        compared: None,
        notes: Vec::new(),
    }
}

// specs/schedstats.md#live
#[test]
fn a_look_as_tables() {
    expect![[r#"
        0.100 s, 3 tasks with an event, 2 CPUs

                        run   wait    sleep  block   switches        in-  wake-  migra-   latency
                       [ms]   [ms]     [ms]   [ms]  voluntary  voluntary    ups   tions  p50 [us]  p99 [us]  max [us]
        busier (13)   9.500  1.500   90.000  0.000          4          0      4       0       5.1       5.1       5.1
        busy (11)     9.000  1.500   90.000  0.000          4          0      4       0       5.1       5.1       5.1
        1 other       0.000  1.500   90.000  0.000          4          0      4       0       5.1       5.1       5.1
        all          18.500  4.500  270.000  0.000         12          0     12       0       5.1       5.1       5.1

                     run   wait    sleep  block   switches        in-  wake-  migra-   latency
                    [ms]   [ms]     [ms]   [ms]  voluntary  voluntary    ups   tions  p50 [us]  p99 [us]  max [us]
        cgroup 0   0.000  1.500   90.000  0.000          4          0      4       0       5.1       5.1       5.1
        /a        18.500  3.000  180.000  0.000          8          0      8       0       5.1       5.1       5.1

                         run   wait   time-  switches    to  woken   same  same  other  moved   latency
                        [ms]   [ms]  slices    of all  idle   here  cache  node   node   here  p50 [us]  p99 [us]
        cpu0           1.000  0.000       0        12     0      0      0     0      0      2       5.1       5.1
        cpu1           1.000  0.000       0        12     0      0      0     0      0      2       5.1       5.1
        cache of cpu0  1.000  0.000       0        12     0      0      0     0      0      2       5.1       5.1
        cache of cpu1  1.000  0.000       0        12     0      0      0     0      0      2       5.1       5.1
        node0          1.000  0.000       0        12     0      0      0     0      0      2       5.1       5.1
        node1          1.000  0.000       0        12     0      0      0     0      0      2       5.1       5.1
        all            2.000  0.000       0        24     0      0      0     0      0      4       5.1       5.1

        from wake-up to running [us]: p50 5.1, p90 5.1, p99 5.1, p99.9 5.1, max 5.1
                 4.1            8 ########################################

        wake-ups by where the task was put
          its previous CPU, idle                              12 (100.0 %)
          to another cache than its previous CPU's             0 (  0.0 %)
          to another node than its previous CPU's              3 ( 25.0 %)
          to another cache than its waker's                    0 (  0.0 %)
          to another node than its waker's                     0 (  0.0 %)
        busy (11): 100 % of its wake-ups on node 1, 90 % of its memory on node 0

        note: for 1 task there was no place, and 7 events of theirs went uncounted: the figures are too low.
          --tasks N makes more places
        24 events counted, 7 lost; 3.0 MiB of the kernel's memory, places for 64 tasks
    "#]].assert_eq(&report().to_text(168));
}

#[test]
fn a_look_as_json_has_every_task_and_every_count() {
    let json: Value = serde_json::from_str(&report().to_json()).expect("JSON");
    let tasks = json["tasks"].as_array().expect("tasks");
    assert_eq!(tasks.len(), 3);
    for (name, _) in TaskCounts::FIELDS {
        assert!(tasks[0][name].is_u64(), "{name}");
    }
    assert_eq!(json["lost_events"], 7);
    assert_eq!(tasks[0]["sleep_ns"], 90_000_000);
    assert_eq!(tasks[1]["memory_pages_by_node"]["0"], 90);
    assert_eq!(json["nodes"].as_array().map(Vec::len), Some(2));
}

// specs/schedstats.md#beside
#[test]
fn the_kernels_own_beside_it() {
    use homenode_core::sched::compared::{
        Compared, CpuCompared, CpuFigure, Pair, TaskCompared, TaskFigure,
    };
    use homenode_core::sched::stats::Version;
    let pair = |kernel, own| Some(Pair { kernel, own });
    let task = |pid: u32, comm: &str, run: u64, sleep: Option<Pair>| {
        let mut pairs = [pair([0, 0], 0); TaskFigure::ALL.len()];
        pairs[TaskFigure::Run as usize] = pair([run, run + 2_000], run + 9_000);
        pairs[TaskFigure::Sleep as usize] = sleep;
        pairs[TaskFigure::Wakeups as usize] = pair([40, 41], 38);
        TaskCompared { pid, comm: comm.into(), pairs, delayed_ns: 3_000_000, delayed: 2 }
    };
    let mut cpu = [pair([7, 9], 8); CpuFigure::ALL.len()];
    cpu[CpuFigure::Run as usize] = pair([5_000_000, 5_000_000], 4_000_000);
    cpu[CpuFigure::Wait as usize] = None;
    let compared = Compared {
        version: Version::V16,
        tasks: vec![
            task(11, "busy", 9_000_000, pair([50_000_000, 51_000_000], 50_500_000)),
            task(13, "busier", 9_500_000, None),
        ],
        cpus: vec![CpuCompared { cpu: 0, pairs: cpu }],
        over: 3,
        late: 1,
    };
    let report = LookReport { compared: Some(compared), ..report() };
    let text = report.to_text(120);
    let begins = text.find("beside what").expect("it is told");
    expect![[r#"
        beside what the kernel counted itself (version 16), 2 tasks

                              kernel  homenode  more by
        run [ms]              18.504    18.518   +0.014
        wait [ms]              0.000     0.000        0
        waits                      0         0        0
        sleep [ms]            50.500    50.500        0
        block [ms]             0.000     0.000        0
          of it for I/O [ms]   0.000     0.000        0
        wake-ups                  80        76       -4
          on the waker's CPU       0         0        0
          on another CPU           0         0        0
          changed its CPU          0         0        0
        migrations                 0         0        0
        voluntary switches         0         0        0
        involuntary switches       0         0        0

                     run [ms]                     wait [ms]                     wake-ups
                       kernel  homenode  more by     kernel  homenode  more by    kernel  homenode  more by
        busier (13)     9.502     9.509   +0.007      0.000     0.000        0        40        38       -2
        busy (11)       9.002     9.009   +0.007      0.000     0.000        0        40        38       -2

              run [ms]                     wait [ms]                      woken
                kernel  homenode  more by     kernel  homenode  more by  kernel  homenode  more by
        cpu0     5.000     4.000   -1.000          -         -        -       8         8        0
        all      5.000     4.000   -1.000          -         -        -       8         8        0

        note: 3 tasks are over: what the kernel counted of a task goes with it, so there is nothing to
          compare
        note: 1 task was not read from the kernel before, and not compared
        note: of 1 task some figures are left out: the kernel has in them what was before the look, or they
          went back
        note: 4 sleeps of 6.000 ms began with a delayed dequeue; the kernel has some of it as a wait
        note: for 1 task there was no place, and 7 events of theirs went uncounted: the figures are too low.
          --tasks N makes more places
        24 events counted, 7 lost; 3.0 MiB of the kernel's memory, places for 64 tasks
    "#]].assert_eq(&text[begins..]);
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
    let told = &json["compared"];
    assert_eq!(told["tasks"][0]["nr_wakeups"]["kernel"], json!([40, 41]));
    assert_eq!(told["tasks"][0]["nr_wakeups"]["more_by"], -2);
    assert_eq!(told["all_tasks"]["nr_wakeups"]["homenode"], 76);
    assert_eq!(told["tasks"][1]["sleep_ns"], serde_json::Value::Null);
    assert_eq!((&told["over"], &told["version"]), (&json!(3), &json!(16)));
}
