//! Recorded lives on a simulated machine.
//!
//! Source: specs/record-sched.md#replay.

use homenode_core::sched::course::{Course, Life, Step, Wait};
use homenode_core::topology::Hardware;
use homenode_core::units::CpuId;
use homenode_fixtures::machine::{dram, machine};
use homenode_sim::Setup;
use homenode_sim::play::{Acting, Play};
use std::sync::Arc;

const MS: u64 = 1_000_000;

fn two_cpus() -> Hardware {
    machine(&[dram(4096, 2)])
}

fn life(starter: Option<u32>, steps: Vec<Step>) -> Life {
    Life { name: "t".into(), starter, steps, ..Life::default() }
}

/// Plays lives to their ends; what came of it and the milliseconds that each lived.
fn play(lives: Vec<Life>, acting: &Acting) -> (Result<(), String>, Play, Vec<f64>) {
    let wakes = 4;
    let course = Arc::new(Course { lives, wakes, objects: 2 });
    let mut play = Play::new(&two_cpus(), &Setup::default(), &course, acting).expect("it boots");
    let came = play.run(60_000_000_000_000, &mut |_| {});
    let of = play.simulation().processes();
    let times = of.iter().filter(|p| p.name == "t").map(|p| p.time_ps as f64 / 1e9).collect();
    (came, play, times)
}

#[test]
fn who_comes_to_a_wait_that_is_over_goes_on() {
    let on = Wait::default();
    for (first, second) in [(1, 30), (30, 1)] {
        let waits = vec![Step::Run(first * MS), Step::Await { wake: 0, on }, Step::Run(5 * MS)];
        let wakes = vec![Step::Run(second * MS), Step::Wake { wake: 0, sync: false }];
        let (came, _, times) = play(vec![life(None, waits), life(None, wakes)], &Acting::default());
        assert_eq!(came, Ok(()));
        // The other's way, or the own one, and 5 ms.
        assert!((34.9..36.0).contains(&times[0]), "{times:?}");
    }
}

#[test]
fn bytes_are_there_or_are_waited_for() {
    for (giver, taker) in [(1, 30), (30, 1)] {
        let gives = vec![Step::Run(giver * MS), Step::Put { object: 1, bytes: 8 }];
        let takes = vec![
            Step::Run(taker * MS),
            Step::Get { object: 1, bytes: 3, by: 1 },
            Step::Get { object: 1, bytes: 5, by: 1 },
            Step::Run(5 * MS),
        ];
        let (came, play, times) =
            play(vec![life(None, takes), life(None, gives)], &Acting::default());
        assert_eq!((came, play.opened()), (Ok(()), 0));
        assert!((34.9..36.0).contains(&times[0]), "{times:?}");
    }
}

#[test]
fn forks_joins_and_rests_take_their_time() {
    let rest = Step::Rest {
        ns: 20 * MS,
        on: Wait { iowait: true, uninterruptible: true, ..Wait::default() },
    };
    let parent =
        vec![Step::Run(2 * MS), Step::Fork(1), Step::Run(MS), Step::Join(1), Step::Run(MS)];
    let child =
        vec![Step::Nice(5), Step::Run(3 * MS), rest, Step::Allow(vec![CpuId(1)]), Step::Run(MS)];
    let lives = vec![life(None, parent), life(Some(0), child)];
    let (came, play, times) = play(lives, &Acting::default());
    assert_eq!(came, Ok(()));
    assert!((27.0..28.5).contains(&times[0]) && (24.0..25.5).contains(&times[1]), "{times:?}");
    let child = play.task(1).expect("it has begun");
    let who = play.simulation().who_ran();
    assert_eq!(who[child].1, "t");
    let blocked = play.simulation().processes().last().unwrap().tasks.block_ns;
    assert!(blocked.abs_diff(20 * MS) < MS, "{blocked}");
}

#[test]
fn fewer_cpus_hogs_and_nice_values_are_felt() {
    let all = || (0..2).map(|_| life(None, vec![Step::Run(100 * MS)])).collect::<Vec<_>>();
    let longest = |acting: &Acting| {
        let (came, _, times) = play(all(), acting);
        assert_eq!(came, Ok(()));
        times.into_iter().fold(0.0, f64::max)
    };
    let free = longest(&Acting::default());
    let one = longest(&Acting { cpus: vec![CpuId(1)], ..Acting::default() });
    let hogs = longest(&Acting { hogs: 2, ..Acting::default() });
    let nice = longest(&Acting { hogs: 2, nice: Some(10), ..Acting::default() });
    assert!((100.0..102.0).contains(&free), "{free}");
    assert!((199.0..204.0).contains(&one), "{one}");
    // Two on each CPU, or three on one for a while.
    assert!((150.0..310.0).contains(&hogs), "{hogs}");
    // Weight 110 beside 1024: a tenth of a CPU, but for when a CPU is their own.
    assert!(nice > 2.0 * hogs && nice < 2000.0, "{hogs} {nice}");
}

#[test]
fn what_never_comes_is_named_or_opened() {
    let waits = vec![Step::Run(MS), Step::Await { wake: 3, on: Wait::default() }];
    let (came, ..) = play(vec![life(None, waits)], &Acting::default());
    let said = came.unwrap_err();
    assert!(said.contains("t (PID ") && said.ends_with("wait for what never comes"), "{said}");
    // Bytes that were lost: it goes on all the same, and says so.
    let takes = vec![Step::Get { object: 0, bytes: 1, by: 0 }, Step::Run(MS)];
    let (came, play, _) = play(vec![life(None, takes)], &Acting::default());
    assert_eq!((came, play.opened()), (Ok(()), 1));
}
