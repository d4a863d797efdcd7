//! Swarm of scenarios about CPUs: a seed chooses a machine, programs that wait for one another,
//! knobs and choices of the model; checkers recount all along, and each seed runs twice with the
//! same end: once with calls that are done ahead of time, once with each act in a turn of its own.
//!
//! A seed makes a scenario's text, as `homenode sim` reads it: a failure prints that, with its machine.
//! `HOMENODE_SWARM_SEEDS=from..to` runs others.

#[path = "support/kit.rs"]
mod kit;
mod support;

use homenode_config::{ScenarioFile, parse_machine, parse_scenario, write_machine};
use homenode_core::costs::{Constant, Cost};
use homenode_core::sched::idle::Table;
use homenode_core::topology::{Cache, Hardware, IdleCosts, SCHED_CAPACITY_SCALE, WokenBy};
use homenode_core::units::Bytes;
use homenode_sim::check::Checker;
use homenode_sim::random::Stream;
use homenode_sim::{Setup, Simulation};
use kit::*;
use std::fmt::Write as _;
use support::*;

/// What a seed stands for: the texts of two files.
struct World {
    machine: String,
    scenario: String,
}

impl World {
    fn read(&self) -> Result<(Hardware, ScenarioFile), String> {
        let machine = parse_machine("machine", &self.machine).map_err(|e| e.to_string())?;
        let file = parse_scenario("scenario", &self.scenario).map_err(|e| e.to_string())?;
        file.check(&machine).map_err(|e| e.to_string())?;
        Ok((machine, file))
    }
}

fn draw_machine(d: &mut Draw) -> Hardware {
    let nodes = d.of(&[1, 1, 2, 2, 3, 4]);
    let threads = d.of(&[1, 1, 2]) as u32;
    let cores = d.of(&[1, 2, 2, 3, 4, 4, 8, 16]) as u32;
    // Cores that share a last-level cache.
    let llc = d.of(&[cores, cores, cores.div_ceil(2), 1]);
    let specs: Vec<Spec> = (0..nodes).map(|_| dram(2048, cores * threads)).collect();
    let mut m = machine(&specs);
    let same = d.one_in(2);
    let slow = d.of(&[SCHED_CAPACITY_SCALE, SCHED_CAPACITY_SCALE, 512, 700, 160]);
    let mut before = (u16::MAX, 0);
    for c in &mut m.cpus {
        // A node's CPUs: its cores first, then their siblings, as Linux numbers them; or in turn.
        let place = if c.node.0 == before.0 { before.1 + 1 } else { 0 };
        before = (c.node.0, place);
        let core = if same { place / threads } else { place % cores };
        c.core = u32::from(c.node.0) * cores + core;
        c.llc = u32::from(c.node.0) * cores + core / llc;
        c.capacity = if core % 2 == 1 { slow } else { SCHED_CAPACITY_SCALE };
    }
    // Tests' machines have the scheduler's work for nothing; others haven't.
    if !d.one_in(4) {
        for (cost, most) in [
            (Cost::WakeIdle, 5_000_000),
            (Cost::WakeDeep, 90_000_000),
            (Cost::ContextSwitch, 3_000_000),
            (Cost::WakeUp, 2_000_000),
            (Cost::Tick, 4_000_000),
            (Cost::BalanceCpu, 300_000),
            (Cost::BalanceTask, 2_000_000),
            (Cost::Ipi, 2_000_000),
            (Cost::Interrupt, 3_000_000),
            (Cost::TlbRemoteFlush, 9_000_000),
            (Cost::TlbRemoteFlushReceived, 6_000_000),
            (Cost::StatsCount, 3_000),
            (Cost::StatsLine, 100_000),
            (Cost::StatsLineFar, 300_000),
        ] {
            let drawn = Constant::assumed(d.between(0, most), "drawn");
            m.costs.0.insert(cost, drawn);
        }
    }
    // Half of them have idle states, and half slow siblings down.
    if d.one_in(2) {
        let table = d.of(&Table::ALL);
        m.idle_states = IdleCosts::of_table(table, d.of(&WokenBy::ALL));
    }
    if d.one_in(2) {
        let drawn = Constant::assumed(d.between(300, 1000), "drawn");
        m.costs.0.insert(Cost::SiblingSpeed, drawn);
    }
    if d.one_in(2) {
        let cache = |level, size| Cache {
            level,
            size: Bytes(size),
            ways: 8,
            line: 64,
            shared_by: 1,
            latency: Constant::assumed(20_000, "drawn"),
        };
        m.caches = vec![cache(2, 1 << 20), cache(3, 1 << 24)];
    }
    m.check().expect("a machine that is possible");
    m
}

/// A scenario's text as it is put together.
struct Text<'a> {
    d: &'a mut Draw,
    m: &'a Hardware,
    /// Tables before the processes, and the processes.
    channels: String,
    processes: String,
    names: u32,
    tasks: u64,
    /// How many groups there are: `g0`, `g1`, …
    groups: u64,
}

impl Text<'_> {
    fn name(&mut self, of: &str) -> String {
        self.names += 1;
        format!("{of}{}", self.names)
    }
    fn cpus(&mut self) -> String {
        let n = self.m.cpus.len() as u64;
        let all: Vec<String> =
            (0..self.d.between(1, n.min(4))).map(|_| self.d.below(n).to_string()).collect();
        let mut all: Vec<u64> = all.iter().filter_map(|c| c.parse().ok()).collect();
        all.sort_unstable();
        all.dedup();
        let all: Vec<String> = all.iter().map(u64::to_string).collect();
        all.join(",")
    }
    fn process(&mut self, name: &str, threads: u64, more: &str) {
        let _ =
            writeln!(self.processes, "\n[[process]]\nname = \"{name}\"\nthreads = {threads}{more}");
        self.tasks += threads;
    }
    /// What processes have that may be any: affinity, nice, policy, start.
    fn manners(&mut self) -> String {
        let mut text = String::new();
        if self.d.one_in(6) {
            let cpus = self.cpus();
            let _ = write!(text, "\ncpus = \"{cpus}\"");
        }
        if self.groups > 0 && !self.d.one_in(3) {
            let _ = write!(text, "\ngroup = \"g{}\"", self.d.below(self.groups));
        }
        if self.d.one_in(3) {
            let nice = self.d.of(&[-20, -5, -1, 1, 5, 10, 19]);
            let _ = write!(text, "\nnice = {nice}");
        }
        if self.d.one_in(5) {
            let policy = self.d.of(&["batch", "idle", "normal"]);
            let _ = write!(text, "\nsched_policy = \"{policy}\"");
        }
        if self.d.one_in(3) {
            let _ = write!(text, "\nstart = \"{}us\"", self.d.below(20_000));
        }
        text
    }
    fn step(&mut self, keys: &str) {
        self.processes.push_str("\n[[process.step]]\n");
        let _ = writeln!(self.processes, "{}", keys.replace("; ", "\n"));
    }
    fn repeat(&mut self, steps: u64, times: u64) {
        self.step(&format!("do = \"repeat\"; steps = {steps}; times = {times}"));
    }
    fn compute(&mut self, most_us: u64) {
        let time = self.d.between(1, most_us);
        let jitter = self.d.of(&[0, 0, 100, 500, 1000]);
        let kib = self.d.of(&[0, 0, 0, 64, 2000, 100_000]);
        let footprint =
            if kib > 0 { format!("; footprint = \"{kib} KiB\"") } else { String::new() };
        self.step(&format!("do = \"compute\"; time = \"{time}us\"; jitter = {jitter}{footprint}"));
    }
    /// Steps that nobody else has a part in; how many.
    fn noise(&mut self, most: u64) -> u64 {
        let n = self.d.below(most + 1);
        for _ in 0..n {
            match self.d.below(12) {
                0..=3 => self.compute(600),
                4 | 5 => {
                    let time = self.d.between(1, 3000);
                    self.step(&format!("do = \"sleep\"; time = \"{time}us\""));
                }
                6 => self.step("do = \"yield\""),
                7 => {
                    let nice = self.d.between(0, 39) as i64 - 20;
                    self.step(&format!("do = \"nice\"; nice = {nice}"));
                }
                8 => {
                    let cpus = self.cpus();
                    self.step(&format!("do = \"affinity\"; cpus = \"{cpus}\""));
                }
                9 => {
                    let (wait, high) = (self.d.one_in(2), self.d.one_in(3));
                    let time = self.d.between(1, 300);
                    let keys =
                        format!("do = \"work\"; time = \"{time}us\"; wait = {wait}; high = {high}");
                    self.step(&keys);
                }
                10 => {
                    let worker = if self.d.one_in(2) { "; worker = \"20us\"" } else { "" };
                    let iowait = self.d.one_in(2);
                    self.step(&format!(
                        "do = \"io\"; device = \"disk\"; iowait = {iowait}{worker}"
                    ));
                }
                _ => self.compute(30),
            }
        }
        n
    }
    /// One kind of programs.
    fn workload(&mut self) {
        let manners = self.manners();
        let times = self.d.between(2, 40);
        let threads = self.d.of(&[1, 1, 2, 3, 4, 6, 9, 16]);
        match self.d.below(12) {
            0 | 1 => {
                // Those that compute, with pauses or not.
                let name = self.name("hog");
                self.process(&name, threads, &manners);
                self.compute(4000);
                let n = self.noise(2);
                self.repeat(n + 1, times);
            }
            2 => {
                let name = self.name("pinned");
                let cpus = self.cpus();
                let _ =
                    writeln!(self.processes, "\n[[process]]\nname = \"{name}\"\ncpus = \"{cpus}\"");
                self.tasks += 4;
                self.compute(3000);
                let n = self.noise(2);
                self.repeat(n + 1, times);
            }
            3 | 4 => {
                // Groups of senders and receivers, as many of the ones as of the others.
                let (pairs, kind) = (self.d.between(1, 6), self.d.of(&["pipe", "socket"]));
                let wire = self.name("wire");
                let _ = writeln!(
                    self.channels,
                    "\n[[channel]]\nname = \"{wire}\"\nkind = \"{kind}\"\ncount = {pairs}"
                );
                let (group, bytes) = (self.d.one_in(2), self.d.of(&[1, 100, 4096]));
                let receiver = self.name("receiver");
                self.process(&receiver, pairs, &manners);
                self.step(&format!("do = \"read\"; channel = \"{wire}\"; bytes = {bytes}"));
                let n = self.noise(1);
                self.repeat(n + 1, times * if group { pairs } else { 1 });
                let (sender, manners) = (self.name("sender"), self.manners());
                self.process(&sender, pairs, &manners);
                let to = if group { "; to = \"group\"" } else { "" };
                self.step(&format!("do = \"write\"; channel = \"{wire}\"; bytes = {bytes}{to}"));
                let n = self.noise(1);
                self.repeat(n + 1, times);
            }
            5 | 6 => {
                // Ping-pong: each waits for the other in turn.
                let pairs = self.d.between(1, 5);
                let (go, done) = (self.name("go"), self.name("done"));
                for name in [&go, &done] {
                    let _ = writeln!(
                        self.channels,
                        "\n[[channel]]\nname = \"{name}\"\nkind = \"futex\"\ncount = {pairs}"
                    );
                }
                for (name, first, second) in [("ping", &go, &done), ("pong", &done, &go)] {
                    let (name, manners) = (self.name(name), self.manners());
                    self.process(&name, pairs, &manners);
                    let waits = format!("do = \"futex_wait\"; channel = \"{second}\"");
                    let wakes = format!("do = \"futex_wake\"; channel = \"{first}\"");
                    let begins = first == &go;
                    self.step(if begins { &wakes } else { &waits });
                    let n = self.noise(2);
                    self.step(if begins { &waits } else { &wakes });
                    self.repeat(n + 2, times);
                }
            }
            7 => {
                let lock = self.name("lock");
                let _ =
                    writeln!(self.channels, "\n[[channel]]\nname = \"{lock}\"\nkind = \"mutex\"");
                let name = self.name("locker");
                self.process(&name, threads, &manners);
                self.step(&format!("do = \"lock\"; channel = \"{lock}\""));
                self.compute(200);
                self.step(&format!("do = \"unlock\"; channel = \"{lock}\""));
                let n = self.noise(2);
                self.repeat(n + 3, times);
            }
            8 => {
                let name = self.name("step");
                self.process(&name, threads, &manners);
                self.compute(900);
                self.step("do = \"barrier\"");
                let n = self.noise(1);
                self.repeat(n + 2, times);
            }
            9 => {
                let name = self.name("parent");
                self.process(&name, threads.min(4), &manners);
                for _ in 0..self.d.between(1, 3) {
                    self.noise(2);
                    self.step("do = \"fork\"");
                }
                self.tasks += threads.min(4) * 7;
                self.compute(2000);
                self.noise(2);
                self.step("do = \"wait\"");
            }
            10 => {
                let name = self.name("reader");
                self.process(&name, threads, &manners);
                self.step("do = \"io\"; device = \"disk\"");
                let n = self.noise(2);
                self.repeat(n + 1, times);
            }
            _ => {
                let name = self.name("heap");
                self.process(&name, threads, &manners);
                let pages = self.d.between(1, 200);
                let _ = writeln!(
                    self.processes,
                    "\n[[process.map]]\nname = \"m\"\nsize = \"{} KiB\"",
                    4 * pages
                );
                self.step("do = \"touch\"; map = \"m\"");
                let accesses = self.d.between(1, 9000);
                self.step(&format!(
                    "do = \"access\"; map = \"m\"; pattern = \"uniform\"; write = 300; accesses = {accesses}"
                ));
                let n = self.noise(2);
                self.repeat(n + 1, 3);
            }
        }
    }
}

fn world(seed: u64) -> World {
    let mut d = Draw(Stream::new(seed, "cpus"));
    let m = draw_machine(&mut d);
    let n = m.cpus.len() as u64;
    let most = d.of(&[n / 2 + 1, n + 1, 2 * n + 1, 4 * n]).clamp(2, 60);
    let groups = if d.one_in(3) { d.between(1, 4) } else { 0 };
    let (channels, processes) = (String::new(), String::new());
    let mut text = Text { d: &mut d, m: &m, channels, processes, names: 0, tasks: 0, groups };
    while text.tasks < most {
        text.workload();
    }
    let Text { channels, processes, .. } = text;
    let mut s = format!(
        "name = \"seed-{seed}\"\nabout = \"a seed of the swarm\"\nmachine = \"seed-{seed}-machine.toml\"\n\
         seed = {seed}\nduration = \"{}ms\"\n",
        d.between(10, 120)
    );
    let kernel = d.of(&["6.12", "6.12", "6.12", "6.1", "4.15", "4.15", "4.5"]);
    let _ = writeln!(s, "kernel = \"{kernel}\"");
    let knob = |d: &mut Draw| -> (&str, u64) {
        match d.below(4) {
            // CFS has no such slice.
            0 if kernel != "6.12" => ("nr_migrate", d.of(&[1, 4, 16])),
            0 => ("base_slice_ns", d.of(&[100_000, 700_000, 3_000_000, 10_000_000])),
            1 => ("migration_cost_ns", d.of(&[0, 50_000, 500_000, 5_000_000])),
            2 => ("nr_migrate", d.of(&[1, 2, 8, 32])),
            _ => ("sched_schedstats", d.below(2)),
        }
    };
    s.push_str("\n[knobs]\n");
    let mut known = std::collections::BTreeMap::new();
    known.insert("numa_balancing", d.below(2));
    for _ in 0..d.below(4) {
        let (name, value) = knob(&mut d);
        known.insert(name, value);
    }
    for (name, value) in known {
        let _ = writeln!(s, "{name} = {value}");
    }
    s.push_str("\n[model]\n");
    let _ =
        writeln!(s, "recent_cpu = \"{}\"", d.of(&["none", "seed", "kernel", "kernel", "today"]));
    let _ = writeln!(s, "wakeups = \"{}\"", d.of(&["seed", "kernel", "kernel", "today"]));
    let _ = writeln!(s, "order = \"{}\"", d.of(&["strict", "1us", "10us", "10us"]));
    let features: Vec<&str> = homenode_core::sched::fair::Features::NAMES.to_vec();
    if d.one_in(3) {
        let not = if d.one_in(4) { "" } else { "NO_" };
        let _ = writeln!(s, "features = \"{not}{}\"", d.of(&features));
    }
    if processes.contains("\"disk\"") {
        let _ = writeln!(
            s,
            "\n[[device]]\nname = \"disk\"\ntime = \"{}us\"\ninterrupts = {}",
            d.between(5, 2000),
            d.below(n)
        );
    }
    for g in 0..groups {
        let _ = writeln!(s, "\n[[group]]\nname = \"g{g}\"");
        if g > 0 && d.one_in(2) {
            let _ = writeln!(s, "parent = \"g{}\"", d.below(g));
        }
        match d.below(6) {
            0 => s.push_str("cpu.idle = true\n"),
            n => {
                let weight = d.of(&[1, 30, 100, 100, 300, 10_000]);
                let _ = writeln!(s, "cpu.weight = {weight}");
                if n < 3 {
                    let quota = d.of(&[1000, 5000, 20_000, 150_000]);
                    let _ = writeln!(s, "cpu.max = \"{quota} {}\"", d.of(&[10_000, 100_000]));
                }
            }
        }
    }
    s.push_str(&channels);
    s.push_str(&processes);
    for _ in 0..d.below(4) {
        let (name, value) = knob(&mut d);
        let file = match name {
            "sched_schedstats" => format!("/proc/sys/kernel/{name}"),
            _ if kernel.starts_with('4') => format!("/proc/sys/kernel/sched_{name}"),
            _ => format!("/sys/kernel/debug/sched/{name}"),
        };
        let _ = writeln!(
            s,
            "\n[[at]]\ntime = \"{}us\"\nwrite = \"{file}\"\nvalue = {value}",
            d.below(90_000)
        );
    }
    let mut at = |d: &mut Draw, path: String, value: String| {
        let time = d.below(90_000);
        let _ =
            writeln!(s, "\n[[at]]\ntime = \"{time}us\"\nwrite = \"{path}\"\nvalue = \"{value}\"");
    };
    if n > 1 && d.one_in(3) {
        for _ in 0..d.between(1, 8) {
            let path = format!("/sys/devices/system/cpu/cpu{}/online", d.between(1, n - 1));
            let online = d.below(2).to_string();
            at(&mut d, path, online);
        }
    }
    for _ in 0..d.below(5).min(groups * 5) {
        let (file, value) = match d.below(5) {
            0 => ("cpu.weight", d.of(&["1", "50", "700"])),
            1 | 2 => ("cpu.max", d.of(&["max", "2000 10000", "3000 5000", "200000 100000"])),
            3 => ("cpu.idle", d.of(&["0", "1"])),
            _ => ("cpuset.cpus", d.of(&["", "0", "0-1", "1-3,5"])),
        };
        let group = d.below(groups);
        at(&mut d, format!("/sys/fs/cgroup/g{group}/{file}"), value.to_owned());
    }
    World { machine: write_machine(&m), scenario: s }
}

/// What came of a run.
#[derive(Debug, PartialEq, Eq)]
struct Reached {
    hash: u64,
    deadlock: bool,
    wasted_ps: u64,
    wakeups: u64,
    migrations: u64,
    involuntary: u64,
}

fn simulate(machine: &Hardware, file: &ScenarioFile, one_by_one: bool) -> Result<Reached, String> {
    let s = &file.scenario;
    let setup = Setup::of(s);
    let mut sim = Simulation::new(machine, s, &setup).map_err(|e| e.to_string())?;
    if one_by_one {
        sim.act_one_by_one();
    }
    let checker = Checker::watch(&mut sim);
    checker.run(&mut sim, s.duration.map_or(u64::MAX, |d| d.0), 1_370_000_000)?;
    if let Some(e) = sim.error() {
        return Err(format!("memory: {e}"));
    }
    // A group may lie in another, an idle one takes no weight, a set may name no CPU.
    let refused =
        sim.outcomes().iter().filter_map(|o| Some((o, o.result.as_ref()?.as_ref().err()?)));
    for (o, e) in refused {
        if !o.action.what.path().starts_with("/sys/fs/cgroup/") {
            return Err(format!("{:?} was refused: {e:?}", o.action));
        }
    }
    let figures = sim.processes();
    let sum =
        |of: fn(&homenode_sim::TaskFigures) -> u64| figures.iter().map(|p| of(&p.tasks)).sum();
    Ok(Reached {
        hash: sim.hash(),
        deadlock: sim.deadlock().is_some(),
        wasted_ps: sim.wasted_ps(),
        wakeups: sum(|t| t.wakeups),
        migrations: sum(|t| t.migrations),
        involuntary: sum(|t| t.involuntary),
    })
}

fn run_seed(seed: u64) -> Result<Reached, String> {
    let w = world(seed);
    let told = |e: String| {
        format!(
            "{e}\n# seed-{seed}.toml, for homenode sim\n{}\n# seed-{seed}-machine.toml\n{}",
            w.scenario, w.machine
        )
    };
    let (machine, file) = w.read().map_err(told)?;
    let once = |one_by_one| {
        let run = std::panic::AssertUnwindSafe(|| simulate(&machine, &file, one_by_one));
        std::panic::catch_unwind(run).unwrap_or_else(|p| Err(said(&*p))).map_err(told)
    };
    let (first, second) = (once(false)?, once(true)?);
    if first != second {
        return Err(told(format!("not the same one by one: {first:?}, {second:?}")));
    }
    if first.deadlock {
        return Err(told("a deadlock, which no seed is made for".into()));
    }
    Ok(first)
}

#[test]
fn every_seed_keeps_what_must_hold() {
    let all = seeds(0..2000);
    let enough = all.end - all.start >= 200;
    let reached = swarm("seeds", all, run_seed);
    let sum = |of: fn(&Reached) -> u64| reached.iter().map(of).sum::<u64>();
    // Silence means something only if the swarm gets everywhere.
    let reached =
        [sum(|r| r.wasted_ps), sum(|r| r.wakeups), sum(|r| r.migrations), sum(|r| r.involuntary)];
    assert!(!enough || reached.iter().all(|&n| n > 10_000), "{reached:?}");
}
