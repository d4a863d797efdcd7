//! Programs that wake each other a lot: this one, executed once more.
//!
//! ```text
//! homenode-guest --crowd KIND N
//!
//! messaging   2 groups of 4 senders and 4 receivers, N bytes from each to each
//! pipe        two tasks that hand a byte to and fro, N times
//! workers     2 messengers with 3 workers each, N requests a worker
//! build       N jobs, 4 at a time, each of them three short processes in a row
//! walk        one that is woken by the worker of the CPU that it sleeps on, N times;
//!             prints the CPUs that it ran on
//! walk-asleep the same, but it surely sleeps when it is woken
//! walk-busy   and the CPU before is still busy then
//! turns       two tasks, on CPUs 1 and 2, that hand a byte to and fro, N times, and compute
//!             before they give: prints both numbers, waits for a byte, does it, says so, and
//!             waits for the end of its input
//! herd        N tasks that sleep until its input ends; says how many came to be
//! ```

use std::hint::{black_box, spin_loop};
use std::io;

use anyhow::{Context, Result, bail, ensure};

use crate::process::{fork, pin, wait};

/// Its kinds that are loads, and how many turns each takes in a test.
pub(crate) const LOADS: [(&str, &str); 4] =
    [("messaging", "300"), ("pipe", "1500"), ("workers", "150"), ("build", "60")];

/// Those that leave CPUs idle for who is woken to be put on.
pub(crate) const WALKS: [(&str, &str); 2] = [("walk-asleep", "260"), ("walk-busy", "400")];

pub(crate) fn run(args: &[&str]) -> Result<()> {
    let (kind, n) = match args {
        [kind, n] => (*kind, n.parse::<usize>().context("--crowd KIND N")?),
        _ => bail!("--crowd KIND N"),
    };
    match kind {
        "messaging" => messaging(n),
        "pipe" => pipe(n),
        "workers" => workers(n),
        "build" => build(n),
        "walk" => walk(n, Pace { walker: 1200, worker: 400, asleep: false }),
        "walk-asleep" => walk(n, Pace { walker: 1200, worker: 400, asleep: true }),
        "walk-busy" => walk(n, Pace { walker: 50, worker: 600, asleep: true }),
        "turns" => turns(n),
        "herd" => herd(n),
        _ => bail!("no such crowd: {kind}"),
    }
}

/// Both ends of a pipe: to read from, to write to.
#[derive(Clone, Copy)]
struct Pipe([i32; 2]);

impl Pipe {
    fn new() -> Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: an array of two, which outlives the call.
        let r = unsafe { libc::pipe(ends.as_mut_ptr()) };
        ensure!(r == 0, "pipe: {}", io::Error::last_os_error());
        Ok(Self(ends))
    }
    /// Waits for so many bytes.
    fn take(self, n: usize) -> Result<()> {
        let mut bytes = [0_u8; 64];
        let mut left = n;
        while left > 0 {
            let most = left.min(bytes.len());
            // SAFETY: a buffer of at least that many bytes.
            let n = unsafe { libc::read(self.0[0], bytes.as_mut_ptr().cast(), most) };
            ensure!(n > 0, "a pipe's end: {}", io::Error::last_os_error());
            left -= n as usize;
        }
        Ok(())
    }
    fn give(self) -> Result<()> {
        // SAFETY: one byte that outlives the call.
        let n = unsafe { libc::write(self.0[1], [0_u8].as_ptr().cast(), 1) };
        ensure!(n == 1, "pipe: {}", io::Error::last_os_error());
        Ok(())
    }
}

/// Some thousand instructions, with turns for an emulator's other CPUs.
fn compute(rounds: u32) {
    for _ in 0..rounds {
        (0..200).for_each(|i| {
            black_box(i);
        });
        spin_loop();
    }
}

/// A process that does this and is waited for later.
fn task(f: impl FnOnce() -> Result<()>) -> Result<i32> {
    fork(|| {
        // SAFETY: no memory is involved: who made it takes it along.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        if let Err(error) = f() {
            eprintln!("a crowd's task: {error:#}");
            // SAFETY: ends the child, without what a parent does at its end.
            unsafe { libc::_exit(1) }
        }
    })
}

fn all(tasks: &[i32]) {
    tasks.iter().for_each(|task| wait(*task));
}

fn messaging(n: usize) -> Result<()> {
    const GROUPS: usize = 2;
    const SIDE: usize = 4;
    let mut tasks = Vec::new();
    for _ in 0..GROUPS {
        let pipes: Vec<Pipe> = (0..SIDE).map(|_| Pipe::new()).collect::<Result<_>>()?;
        for pipe in &pipes {
            tasks.push(task(|| pipe.take(SIDE * n))?);
        }
        for _ in 0..SIDE {
            tasks.push(task(|| {
                for _ in 0..n {
                    pipes.iter().try_for_each(|pipe| pipe.give())?;
                    // So long that receivers have read it and sleep again.
                    compute(20);
                }
                Ok(())
            })?);
        }
    }
    all(&tasks);
    Ok(())
}

fn pipe(n: usize) -> Result<()> {
    let (to, fro) = (Pipe::new()?, Pipe::new()?);
    let other = task(|| {
        (0..n).try_for_each(|_| {
            to.take(1)?;
            fro.give()
        })
    })?;
    for _ in 0..n {
        to.give()?;
        fro.take(1)?;
    }
    wait(other);
    Ok(())
}

/// Both of them sleep before and after their turns.
fn turns(n: usize) -> Result<()> {
    let (to, fro, end) = (Pipe::new()?, Pipe::new()?, Pipe::new()?);
    // So long that the other one sleeps by then.
    let long = || compute(100);
    let other = task(|| {
        pin(0, &[2]).context("sched_setaffinity")?;
        for _ in 0..n {
            to.take(1)?;
            long();
            fro.give()?;
        }
        end.take(1)
    })?;
    pin(0, &[1]).context("sched_setaffinity")?;
    println!("{} {other}", std::process::id());
    let input = Pipe([0, 1]);
    input.take(1)?;
    for _ in 0..n {
        to.give()?;
        fro.take(1)?;
        long();
    }
    println!("done");
    let over = input.take(1);
    end.give()?;
    wait(other);
    // Its input has ended, or somebody wrote: both are an end.
    drop(over);
    Ok(())
}

/// As many threads as memory has room for, up to so many.
fn herd(n: usize) -> Result<()> {
    let one = || {
        std::thread::Builder::new().stack_size(16 << 10).spawn(|| {
            loop {
                std::thread::park();
            }
        })
    };
    let made = (0..n).take_while(|_| one().is_ok()).count();
    println!("{made}");
    // They end with this process.
    let _ = Pipe([0, 1]).take(1);
    Ok(())
}

fn workers(n: usize) -> Result<()> {
    const MESSENGERS: usize = 2;
    const WORKERS: usize = 3;
    let mut tasks = Vec::new();
    for _ in 0..MESSENGERS {
        tasks.push(task(|| {
            let done = Pipe::new()?;
            let asked: Vec<Pipe> = (0..WORKERS).map(|_| Pipe::new()).collect::<Result<_>>()?;
            let mut workers = Vec::new();
            for pipe in &asked {
                workers.push(task(|| {
                    (0..n).try_for_each(|_| {
                        pipe.take(1)?;
                        compute(20);
                        done.give()
                    })
                })?);
            }
            for _ in 0..n {
                asked.iter().try_for_each(|pipe| pipe.give())?;
                done.take(WORKERS)?;
            }
            all(&workers);
            Ok(())
        })?);
    }
    all(&tasks);
    Ok(())
}

fn build(n: usize) -> Result<()> {
    const AT_ONCE: usize = 4;
    // As many bytes as jobs may run.
    let tokens = Pipe::new()?;
    (0..AT_ONCE).try_for_each(|_| tokens.give())?;
    let mut jobs = Vec::new();
    for _ in 0..n {
        tokens.take(1)?;
        jobs.push(task(|| {
            for part in 1..=3 {
                let one = task(|| {
                    compute(60 * part);
                    Ok(())
                })?;
                wait(one);
            }
            tokens.give()
        })?);
    }
    all(&jobs);
    Ok(())
}

/// How long they compute.
#[derive(Clone, Copy)]
struct Pace {
    /// Before it has itself woken: so that the worker of before sleeps, or not.
    walker: u32,
    /// After it has woken the other one: so that its CPU is busy when that is placed and begins.
    worker: u32,
    /// Whether the other one surely sleeps when it is woken: the worker rests before. Else it may
    /// have been preempted where it was about to sleep, and no CPU is chosen.
    asleep: bool,
}

fn walk(n: usize, pace: Pace) -> Result<()> {
    // SAFETY: asks for a number.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize;
    let done = Pipe::new()?;
    let asked: Vec<Pipe> = (0..cpus).map(|_| Pipe::new()).collect::<Result<_>>()?;
    for (cpu, pipe) in asked.iter().enumerate() {
        task(|| {
            pin(0, &[cpu as u32]).context("sched_setaffinity")?;
            loop {
                pipe.take(1)?;
                if pace.asleep {
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
                done.give()?;
                compute(pace.worker);
            }
        })?;
    }
    // All of them are asleep on their CPUs by then.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let mut seen = Vec::new();
    for _ in 0..n {
        // SAFETY: asks for a number.
        let cpu = unsafe { libc::sched_getcpu() } as usize;
        seen.push(cpu.to_string());
        compute(pace.walker);
        asked[cpu].give()?;
        done.take(1)?;
    }
    println!("{}", seen.join(","));
    // The workers end with this process.
    Ok(())
}
