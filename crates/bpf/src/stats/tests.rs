use super::*;
use homenode_core::sched::look::{Reason, TaskCounts};
use std::sync::{Mutex, PoisonError};

/// libbpf's words are kept for the whole process, so that who listens is alone.
static ALONE: Mutex<()> = Mutex::new(());

/// CPUs of this machine, as if each had a cache of its own node 0.
fn wanted(who: Who) -> Option<Wanted> {
    if crate::able::lack(Path::new("/")).is_some() {
        eprintln!("skipped: BPF programs need root and a kernel with BTF");
        return None;
    }
    let n = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let cpus = (0..n).map(|cpu| Cpu { cpu, llc: 0, node: 0, sibling: cpu }).collect();
    Some(Wanted { who, slots: 1024, pids: 4 << 20, why: true, cpus })
}

fn of(look: &Look, pid: u32) -> TaskCounts {
    let mut all = TaskCounts::default();
    for task in look.tasks.iter().filter(|t| t.tgid == pid) {
        let mut task = task.clone();
        task.settle();
        all.add(&task.counts);
    }
    all
}

// specs/schedstats.md#live
#[test]
fn a_sleeper_is_seen_to_sleep_and_all_time_is_accounted_for() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(wanted) = wanted(Who::Tree) else { return };
    let mut stats = Stats::open(wanted).expect("this kernel has all that is needed");
    stats.begin().expect("it begins");
    stats.mother(std::process::id()).expect("a mother");
    let mut child = std::process::Command::new("sh")
        .args(["-c", "sleep 0.2 || exit 9; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"])
        .spawn()
        .expect("a shell");
    let pid = child.id();
    stats.mother(0).expect("no mother");
    let ended = child.wait().expect("it ends");
    assert!(ended.success(), "the shell's sleep was cut short from outside: {ended}");
    let look = stats.end().expect("it was counted");
    let sleep = look.tasks.iter().find(|t| t.comm == "sleep").expect("a child's child is seen");
    assert!(sleep.counts.sleep_ns >= 200_000_000, "{sleep:?}");
    assert!(sleep.counts.sleeps >= 1 && sleep.counts.nr_wakeups >= 1, "{sleep:?}");
    let shell = of(&look, pid);
    assert!(shell.run_ns > 0 && shell.sleep_ns >= 190_000_000, "{shell:?}");
    let why = sleep.why.expect("reasons were asked for");
    assert_eq!(why.all(), sleep.counts.nr_wakeups, "{why:?} {sleep:?}");
    assert!(why.by[Reason::StillQueued as usize] <= sleep.counts.nr_wakeups_queued + 1);
    assert_eq!(look.all_cpus().0.lost_tasks, 0);
    assert!(look.bytes > 1 << 20, "{}", look.bytes);
}

// specs/schedstats.md#live
#[test]
fn what_the_verifier_says_is_told_and_no_more() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if wanted(Who::All).is_none() {
        return;
    }
    words::listen();
    let open = ObjectBuilder::default().open_memory(objects::REFUSED).expect("it is an object");
    let source = open.load().expect_err("no kernel takes it");
    let error = StatsError::Refused { step: "loaded", log: words::taken(), source };
    let text = error.to_string();
    assert!(text.contains("R0 invalid mem access 'map_value_or_null'"), "{text}");
    assert!(text.contains("verifier refuses them") && !text.contains("CAP_BPF"), "{text}");
    assert!(!text.contains("PROG LOAD LOG") && error.is_lack(), "{text}");
}
