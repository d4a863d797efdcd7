//! What a choice takes on this machine, in ns: `cargo run --release -p homenode-wake --example ns`.

use homenode_wake::{
    Allowed, Choice, Cpus, Flags, Layout, LayoutError, Reason, Rules, Task, Version, Wakeup,
};
use std::hint::black_box;
use std::time::Instant;

/// CPUs that share one LLC, `smt` to a core; thread t of core c is CPU t * cores + c.
fn llc(cpus: u32, smt: u32) -> Result<Layout, LayoutError> {
    let mut layout = Layout::builder(cpus as usize);
    let cores = cpus / smt;
    let flags = Flags::SHARE_LLC | Flags::WAKE_AFFINE;
    let words = |members: &[u32]| {
        let mut words = vec![0_u64; cpus.div_ceil(64) as usize];
        members.iter().for_each(|cpu| words[(cpu / 64) as usize] |= 1 << (cpu % 64));
        words
    };
    let all = layout.domain(&words(&(0..cpus).collect::<Vec<_>>()), flags, 117)?;
    for cpu in 0..cpus {
        let core: Vec<u32> = (0..smt).map(|t| t * cores + cpu % cores).collect();
        if smt == 1 {
            layout.cpu(cpu, &core, 0, &[all])?;
        } else {
            let pair = layout.domain(&words(&core), flags | Flags::SHARE_CPUCAPACITY, 110)?;
            layout.cpu(cpu, &core, 0, &[pair, all])?;
        }
    }
    layout.build()
}

struct Case {
    name: &'static str,
    cpus: u32,
    smt: u32,
    /// Idle CPUs; all others are busy.
    idle: &'static [u32],
    prev: u32,
    reason: Reason,
}

const CASES: [Case; 7] = [
    Case { name: "target idle", cpus: 64, smt: 1, idle: &[9], prev: 9, reason: Reason::TargetIdle },
    Case { name: "recent hit", cpus: 64, smt: 1, idle: &[3], prev: 9, reason: Reason::Recent },
    Case {
        name: "scan, next CPU",
        cpus: 64,
        smt: 1,
        idle: &[10],
        prev: 9,
        reason: Reason::IdleCpu,
    },
    Case { name: "scan, 63rd CPU", cpus: 64, smt: 1, idle: &[8], prev: 9, reason: Reason::IdleCpu },
    Case { name: "all 64 busy", cpus: 64, smt: 1, idle: &[], prev: 9, reason: Reason::NothingIdle },
    Case {
        name: "all 256 busy, SMT",
        cpus: 256,
        smt: 2,
        idle: &[],
        prev: 9,
        reason: Reason::NothingIdle,
    },
    Case {
        name: "all 4096 busy, SMT",
        cpus: 4096,
        smt: 2,
        idle: &[],
        prev: 9,
        reason: Reason::NothingIdle,
    },
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:<22} {:>8}  {:>6}", "", "ns", "looked");
    for case in CASES {
        let mut cpus = Cpus::new(llc(case.cpus, case.smt)?, Rules::of(Version::V6_12));
        for cpu in 0..case.cpus {
            let idle = case.idle.contains(&cpu);
            cpus.set_idle(cpu, idle);
            cpus.set_running(cpu, u32::from(!idle), 0);
            cpus.set_load(cpu, 1024);
        }
        let shared = cpus.layout().llc(0).ok_or("no LLC")?;
        cpus.set_nr_idle_scan(shared, case.cpus);
        let wakeup = Wakeup {
            waker_cpu: 0,
            prev: case.prev,
            task_cpu: case.prev,
            wakee: 1,
            allowed: Allowed::All,
            nr_allowed: case.cpus,
            sync: false,
            current_cpu: false,
            waker_per_cpu_kthread: false,
            wakee_idle_policy: false,
            jiffies: 0,
            waker_load: 1024,
            wakee_load: 1024,
            wakee_util: 0,
        };
        let mut tasks = [Task::born(0, 0), Task::born(3, 0)];
        let mut once = |cpus: &mut Cpus| -> Result<Choice, homenode_wake::WakeError> {
            tasks[1].recent = 3;
            cpus.choose_in(black_box(&mut tasks), 0, black_box(&wakeup))
        };
        let choice = once(&mut cpus)?;
        if choice.reason != case.reason {
            return Err(format!("{}: {choice:?}", case.name).into());
        }
        let mut best = f64::INFINITY;
        // Short enough to lie within a time slice where others run too.
        for _ in 0..1000 {
            const N: u32 = 2_000;
            let begin = Instant::now();
            for _ in 0..N {
                black_box(once(&mut cpus)?);
            }
            best = best.min(begin.elapsed().as_nanos() as f64 / f64::from(N));
        }
        println!("{:<22} {best:>8.1}  {:>6}", case.name, choice.scanned);
    }
    let mut cpus = Cpus::new(llc(64, 2)?, Rules::of(Version::V6_12));
    let mut best = f64::INFINITY;
    for _ in 0..1000 {
        let begin = Instant::now();
        for turn in 0..2_048_u32 {
            cpus.set_idle(black_box(turn % 64), turn & 64 == 0);
        }
        best = best.min(begin.elapsed().as_nanos() as f64 / 2048.0);
    }
    println!("{:<22} {best:>8.1}", "set_idle, SMT");
    Ok(())
}
