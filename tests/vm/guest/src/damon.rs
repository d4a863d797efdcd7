//! DAMON through `homenode-live`, on a real kernel.
//!
//! ```text
//! this test ──fork──▶ hot    32 MiB, written all the time ┐ the same addresses in both:
//!           ──fork──▶ cold   32 MiB, written once         ┘ only the process tells them apart
//! ```
//!
//! Source: specs/live.md#damon.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::process::Command;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use homenode_core::policy::facts::Lack;
use homenode_core::policy::seen::{Seen, Who};
use homenode_core::units::Picos;
use homenode_live::heat::damon::{Damon, DamonError};
use homenode_live::journal::JournalError;
use homenode_live::machine::{BootClock, Clock, Heat};
use homenode_live::place::Place;
use serde_json::{Value, json};

use crate::asked::Asked;
use crate::commands;
use crate::memory::Forget;
use crate::process::{self, fork, started};
use crate::{TestResult, skip};

const BYTES: usize = 32 << 20;
const PAGE: usize = 4096;
/// How long anything may take; many times what it does.
const PATIENCE: Duration = Duration::from_secs(90);
const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";
const JOURNAL: &str = "/run/homenode/damon.journal";

/// What a child does with its memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    Hot,
    Cold,
    /// Hot until [`SIGNAL`] comes, then another program.
    Changing,
}

/// A file whose being there says that it is time for another program.
const SIGNAL: &str = "/tmp/damon-exec";

/// A process with memory at `at`; killed when dropped.
struct Child {
    pid: i32,
    at: u64,
}

impl Child {
    /// Maps the memory here, so that each child has it at the same place.
    fn with(habit: Habit) -> Result<Self> {
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        ensure!(at != libc::MAP_FAILED, "no memory: {}", io::Error::last_os_error());
        // SAFETY: our own mapping; the advice drops nothing.
        unsafe { libc::madvise(at, BYTES, libc::MADV_NOHUGEPAGE) };
        let base: *mut u8 = at.cast();
        let pid = fork(|| {
            // The child's own, so that the parent's mappings stay as they are.
            let Ok(forget) = Forget::new() else { return };
            loop {
                forget.all();
                for page in 0..BYTES / PAGE {
                    // SAFETY: inside of the mapping, which is this process's alone.
                    unsafe { base.add(page * PAGE).write_volatile(1) };
                }
                if habit == Habit::Changing && fs::exists(SIGNAL).is_ok_and(|there| there) {
                    use std::os::unix::process::CommandExt;
                    let _ = Command::new("/bin/busybox").args(["sleep", "1000"]).exec();
                }
                if habit == Habit::Cold {
                    // SAFETY: waits for a signal, of which none comes but the last.
                    unsafe { libc::pause() };
                }
            }
        });
        // SAFETY: the mapping above, which nothing here refers to any more.
        unsafe { libc::munmap(at, BYTES) };
        Ok(Self { pid: pid?, at: at as u64 })
    }

    fn who(&self) -> Result<Who> {
        Ok(Who { pid: self.pid as u32, start: started(self.pid as u32)? })
    }

    fn end(&self) {
        process::end(self.pid);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// One of DAMON's files; its lock may be taken for a moment.
fn knob(name: &str) -> Result<String> {
    let begun = Instant::now();
    loop {
        match fs::read_to_string(format!("{KDAMONDS}/{name}")) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && begun.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(20));
            }
            read => return Ok(read.with_context(|| name.to_owned())?.trim().to_owned()),
        }
    }
}

fn set(name: &str, value: &str) -> Result<()> {
    fs::write(format!("{KDAMONDS}/{name}"), value).with_context(|| format!("{name} = {value}"))
}

/// `damon_stat`, which has DAMON for itself on new kernels, off until this is dropped.
pub(crate) struct Module(Option<&'static str>);

impl Module {
    pub(crate) fn off() -> Result<Self> {
        const ENABLED: &str = "/sys/module/damon_stat/parameters/enabled";
        match fs::read_to_string(ENABLED).map(|t| t.trim() == "Y") {
            Ok(true) => {
                let refused = Damon::open(&Place::here()).err();
                let Some(DamonError::Lacking { lacks }) = refused else {
                    bail!("with damon_stat on: {refused:?} and not a lack");
                };
                ensure!(lacks.contains(&Lack::ModuleHolds), "with damon_stat on: {lacks:?}");
                fs::write(ENABLED, "N").context("damon_stat off")?;
                Ok(Self(Some(ENABLED)))
            }
            _ => Ok(Self(None)),
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            if let Err(e) = fs::write(path, "Y") {
                eprintln!("damon_stat can't be switched on again: {e}");
            }
        }
    }
}

/// Skips a test where the kernel has not what DAMON needs.
pub(crate) fn needs_it() -> Result<()> {
    match Damon::open(&Place::here()) {
        Err(DamonError::Lacking { lacks })
            if lacks.iter().any(|l| matches!(l, Lack::NotBuilt(_))) =>
        {
            Err(skip(lacks.iter().map(Lack::to_string).collect::<Vec<_>>().join(", ")))
        }
        _ => Ok(()),
    }
}

/// Hundredths of checks that found an access in the mapping at `at`, weighed by pages.
fn heat_of(seen: &[Seen], who: Who, at: u64) -> Option<u64> {
    let (first, last) = (at / PAGE as u64, (at + BYTES as u64) / PAGE as u64);
    let (mut hits, mut checks) = (0u64, 0u64);
    for one in seen {
        if let Seen::Region { who: of, span, accessed, checks: of_checks, .. } = one {
            let pages = span.end.min(last).saturating_sub(span.start.max(first));
            if *of == who {
                hits += pages * u64::from(*accessed);
                checks += pages * u64::from(*of_checks);
            }
        }
    }
    (hits * 100).checked_div(checks)
}

/// A source under observation.
struct Watch {
    damon: Damon,
    clock: BootClock,
    lost: u64,
    stale: u64,
}

impl Watch {
    fn open() -> Result<Self> {
        let damon = Damon::open(&Place::here())?;
        Ok(Self { damon, clock: BootClock::start(), lost: 0, stale: 0 })
    }
    fn take(&mut self) -> Result<Vec<Seen>> {
        let until = self.clock.now() + Picos::from_ms(200);
        self.clock.sleep(until, self.damon.wakes());
        let mut out = Vec::new();
        self.damon.take(self.clock.now(), &mut out).map_err(anyhow::Error::msg)?;
        for one in &out {
            match one {
                Seen::Lost { events } => self.lost += events,
                Seen::Stale { .. } => self.stale += 1,
                _ => {}
            }
        }
        Ok(out)
    }
    /// Until each child has the heat that is wanted, 50 or more of a hundred where hot and
    /// 10 or less where cold; the last ones.
    fn until(&mut self, want: &[(&Child, Habit)]) -> Result<BTreeMap<u32, u64>> {
        let begun = Instant::now();
        let mut last = BTreeMap::new();
        while begun.elapsed() < PATIENCE {
            let seen = self.take()?;
            for (child, _) in want {
                let who = child.who()?;
                if let Some(heat) = heat_of(&seen, who, child.at) {
                    last.insert(who.pid, heat);
                }
            }
            let right = |(child, habit): &(&Child, Habit)| {
                last.get(&(child.pid as u32)).is_some_and(|&heat| match habit {
                    Habit::Hot | Habit::Changing => heat >= 50,
                    Habit::Cold => heat <= 10,
                })
            };
            if want.iter().all(right) {
                return Ok(last);
            }
        }
        bail!("heat by process is {last:?} after {} s", PATIENCE.as_secs())
    }
}

/// Waits until it is so.
fn wait_for(what: &str, is: impl Fn() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is()? {
        ensure!(begun.elapsed() < PATIENCE, "{what}: not after {} s", PATIENCE.as_secs());
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn no_slot() -> Result<()> {
    ensure!(knob("nr_kdamonds")? == "0", "a slot is left");
    ensure!(!fs::exists(JOURNAL)?, "a journal is left");
    Ok(())
}

pub(crate) fn heat(_: &Asked) -> TestResult {
    needs_it()?;
    let _module = Module::off()?;
    let (hot, cold) = (Child::with(Habit::Hot)?, Child::with(Habit::Cold)?);
    ensure!(hot.at == cold.at, "the two have their memory at different places");
    let mut watch = Watch::open()?;
    ensure!(knob("nr_kdamonds")? == "1" && knob("0/state")? == "off", "a slot that is off");
    watch.damon.watch(cold.who()?);
    watch.damon.watch(hot.who()?);
    let two = watch.until(&[(&hot, Habit::Hot), (&cold, Habit::Cold)])?;
    let spent = watch.damon.spent().context("no thread")?;
    ensure!(spent > Picos::ZERO, "DAMON's thread took no time");
    watch.damon.close().map_err(anyhow::Error::msg)?;
    no_slot()?;
    Ok(json!({
        "heat": two, "lost": watch.lost, "stale": watch.stale, "thread_ms": spent.as_ms(),
    }))
}

/// Who is told in the last looks, until all of `want` are, and nobody of `not`.
fn told(watch: &mut Watch, want: &[Who], not: &[Who]) -> Result<()> {
    let begun = Instant::now();
    loop {
        let seen = watch.take()?;
        let has = |w: &Who| seen.iter().any(|s| matches!(s, Seen::Region { who, .. } if who == w));
        if want.iter().all(has) && !not.iter().any(has) {
            return Ok(());
        }
        ensure!(begun.elapsed() < PATIENCE, "{want:?} and not {not:?}: {seen:?}");
    }
}

/// The greatest age among a process's regions, in aggregations.
fn age_of(watch: &mut Watch, child: &Child) -> Result<u64> {
    let (who, begun) = (child.who()?, Instant::now());
    while begun.elapsed() < PATIENCE {
        let ages = watch.take()?.into_iter().filter_map(|s| match s {
            Seen::Region { who: of, age, .. } if of == who => Some(age.as_ms() / 100),
            _ => None,
        });
        if let Some(age) = ages.max() {
            return Ok(age);
        }
    }
    bail!("process {} is not told", child.pid)
}

pub(crate) fn targets(_: &Asked) -> TestResult {
    needs_it()?;
    let _module = Module::off()?;
    let mut watch = Watch::open()?;
    // One after another, each with those before it.
    let first = Child::with(Habit::Cold)?;
    watch.damon.watch(first.who()?);
    watch.until(&[(&first, Habit::Cold)])?;
    let second = Child::with(Habit::Hot)?;
    watch.damon.watch(second.who()?);
    watch.until(&[(&first, Habit::Cold), (&second, Habit::Hot)])?;
    wait_for_age(&mut watch, &first, 10)?;
    let before = age_of(&mut watch, &first)?;
    let third = Child::with(Habit::Hot)?;
    watch.damon.watch(third.who()?);
    let all = [(&first, Habit::Cold), (&second, Habit::Hot), (&third, Habit::Hot)];
    let three = watch.until(&all)?;
    let after = age_of(&mut watch, &first)?;
    ensure!(after >= before, "the ages of who was there fell from {before} to {after}");
    let thread = knob("0/pid")?;

    // One ends, unnoticed by who watches; another takes its place.
    second.end();
    let fourth = Child::with(Habit::Changing)?;
    watch.damon.watch(fourth.who()?);
    let rest = [(&first, Habit::Cold), (&third, Habit::Hot), (&fourth, Habit::Hot)];
    watch.until(&rest)?;
    ensure!(knob("0/pid")? == thread, "DAMON's thread is another one");

    // Another program in the same process, which is watched on.
    let who = fourth.who()?;
    fs::write(SIGNAL, "")?;
    wait_for("exec", || {
        Ok(fs::read_to_string(format!("/proc/{}/comm", who.pid))?.trim() == "busybox")
    })?;
    let begun = Instant::now();
    loop {
        let seen = watch.take()?;
        let there = seen.iter().any(|s| matches!(s, Seen::Region { who: w, .. } if *w == who));
        if there && heat_of(&seen, who, fourth.at).is_none_or(|heat| heat == 0) {
            break;
        }
        ensure!(begun.elapsed() < PATIENCE, "after exec: {seen:?}");
    }
    fs::remove_file(SIGNAL)?;

    // All end: nothing breaks, and whoever comes then is watched.
    let gone = [first.who()?, third.who()?, who];
    for child in [&first, &third, &fourth] {
        child.end();
    }
    for _ in 0..10 {
        watch.take()?;
    }
    ensure!(knob("0/state")? == "off", "DAMON's thread runs for nobody");
    let last = Child::with(Habit::Hot)?;
    watch.damon.watch(last.who()?);
    told(&mut watch, &[last.who()?], &gone)?;
    let (lost, stale) = (watch.lost, watch.stale);
    ensure!(lost == 0, "{lost} lost");
    drop(watch);
    no_slot()?;
    Ok(json!({"heat": three, "age": [before, after], "stale": stale}))
}

fn wait_for_age(watch: &mut Watch, child: &Child, age: u64) -> Result<()> {
    let begun = Instant::now();
    while age_of(watch, child)? < age {
        ensure!(begun.elapsed() < PATIENCE, "nothing becomes old");
    }
    Ok(())
}

/// A homenode that watches until it is killed.
fn homenode(child: &Child) -> Result<Child> {
    let who = child.who()?;
    let pid = fork(|| {
        let mut watch = match Watch::open() {
            Ok(watch) => watch,
            Err(e) => return eprintln!("the watching child: {e:#}"),
        };
        watch.damon.watch(who);
        while watch.take().is_ok() {}
    })?;
    let homenode = Child { pid, at: 0 };
    wait_for("the thread", || Ok(knob("0/state").is_ok_and(|s| s == "on")))?;
    Ok(homenode)
}

fn restore() -> Result<Value> {
    Ok(commands::homenode(&["restore"])?["damon"]["slot"].clone())
}

pub(crate) fn restores(_: &Asked) -> TestResult {
    needs_it()?;
    let _module = Module::off()?;
    let child = Child::with(Habit::Hot)?;
    let first = homenode(&child)?;
    let refused = Damon::open(&Place::here()).err();
    ensure!(
        matches!(
            &refused,
            Some(DamonError::Journal(JournalError::Driven { pid, .. })) if *pid == first.pid as u32
        ),
        "beside another homenode: {refused:?}"
    );
    first.end();
    ensure!(knob("0/state")? == "on", "the slot went with its owner");
    let refused = Damon::open(&Place::here()).err();
    ensure!(
        matches!(refused, Some(DamonError::Journal(JournalError::Unfinished { .. }))),
        "after it: {refused:?}"
    );
    let slot = restore()?;
    ensure!(slot == "taken_down", "restored: {slot}");
    no_slot()?;
    ensure!(restore()?.is_null(), "restored twice");

    // Somebody else has set up a slot in its place.
    homenode(&child)?.end();
    set("0/state", "off")?;
    set("nr_kdamonds", "0")?;
    set("nr_kdamonds", "1")?;
    set("0/contexts/nr_contexts", "1")?;
    let slot = restore()?;
    ensure!(slot == "left", "another's slot: {slot}");
    ensure!(knob("nr_kdamonds")? == "1", "another's slot was taken down");
    set("nr_kdamonds", "0")?;
    no_slot()?;
    // The journal went: one can begin anew.
    drop(Damon::open(&Place::here())?);
    no_slot()?;
    Ok(json!({}))
}

pub(crate) fn others(_: &Asked) -> TestResult {
    needs_it()?;
    let _module = Module::off()?;
    let child = Child::with(Habit::Cold)?;
    set("nr_kdamonds", "1")?;
    set("0/contexts/nr_contexts", "1")?;
    set("0/contexts/0/operations", "vaddr")?;
    set("0/contexts/0/targets/nr_targets", "1")?;
    set("0/contexts/0/targets/0/pid_target", &child.pid.to_string())?;
    for (state, running) in [("off", 0), ("on", 1)] {
        if state == "on" {
            set("0/state", "on")?;
        }
        let thread = knob("0/pid")?;
        let refused = Damon::open(&Place::here()).err();
        let Some(DamonError::Lacking { lacks }) = &refused else {
            bail!("beside a slot that is {state}: {refused:?}");
        };
        ensure!(lacks[..] == [Lack::SlotTaken { slots: 1, running }], "{state}: {lacks:?}");
        ensure!(knob("0/state")? == state && knob("0/pid")? == thread, "it was touched");
        let target = knob("0/contexts/0/targets/0/pid_target")?;
        ensure!(target == child.pid.to_string(), "its target is {target}");
    }
    set("0/state", "off")?;
    set("nr_kdamonds", "0")?;
    no_slot()?;
    Ok(json!({}))
}
