//! The programs that end-to-end tests start: this program again, as
//! `homenode-guest --program …`.
//!
//! ```text
//! parent ── words ──▶ child: CPU, memory where it is to be ──▶ prints its addresses
//!                            │
//!                            └─ reads the hot pages for its processor time, then sleeps
//! ```

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::ptr;

use anyhow::{Context, Result, ensure};
use homenode_core::units::{NodeId, Picos};
use homenode_machine::endtoend::{At, Program, Reads};

use crate::memory::{PAGE, bind_range, task_policy_default};

/// A huge page.
const HUGE: usize = 2 << 20;

/// A child; ended when dropped.
pub(crate) struct Load {
    child: Child,
    output: BufReader<ChildStdout>,
    pub(crate) hot: Option<u64>,
    pub(crate) cold: Option<u64>,
}

impl Load {
    /// Starts one and waits until its memory has been touched. `first` are the CPUs on
    /// which it begins, `later` those on which it may run then.
    pub(crate) fn start(program: &Program, first: &[u32], later: &[u32]) -> Result<Self> {
        let list = |cpus: &[u32]| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let on = match program.on {
            At::Anywhere => "anywhere".to_owned(),
            At::First(node) => format!("first:{node}"),
            At::Bound(node) => format!("bound:{node}"),
        };
        let reads = match program.reads {
            Reads::For(busy) => format!("for:{}", busy.as_ns()),
            Reads::Walks(times) => format!("walks:{times}"),
        };
        let words = [
            program.hot.to_string(),
            program.cold.to_string(),
            on,
            u8::from(program.huge).to_string(),
            reads,
            list(first),
            list(later),
        ];
        let mut command = Command::new("/proc/self/exe");
        command.arg("--program").args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("a load can't be started")?;
        let output = child.stdout.take().context("a load without output")?;
        let mut load = Self { child, output: BufReader::new(output), hot: None, cold: None };
        let mut line = String::new();
        load.output.read_line(&mut line)?;
        let mut words = line.split_whitespace();
        ensure!(words.next() == Some("ready"), "{}: it told {line:?}", program.name);
        let mut address = || -> Result<Option<u64>> {
            let word = words.next().context("too few words")?;
            let at = u64::from_str_radix(word, 16).with_context(|| format!("address {word:?}"))?;
            Ok((at != 0).then_some(at))
        };
        load.hot = address()?;
        load.cold = address()?;
        Ok(load)
    }

    /// One walk through the hot pages, from end to end.
    pub(crate) fn walk(&mut self) -> Result<()> {
        let input = self.child.stdin.as_mut().context("a load without input")?;
        writeln!(input, "walk").context("it has walked as often as it was to")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(line.trim() == "walked", "it told {line:?}");
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended already. Once it is waited for its memory is free.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the child does; comes back on errors only.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let [hot, cold, on, huge, reads, first, later] = *words else {
        anyhow::bail!("--program takes seven words, not {}", words.len());
    };
    let number = |word: &str| word.parse::<u64>().with_context(|| format!("{word:?}"));
    let (hot, cold) = (number(hot)? as usize, number(cold)? as usize);
    let node = |node| Ok::<_, anyhow::Error>(NodeId(number(node)? as u16));
    let on = match on.split_once(':') {
        Some(("first", id)) => At::First(node(id)?),
        Some(("bound", id)) => At::Bound(node(id)?),
        _ => At::Anywhere,
    };
    let reads = match reads.split_once(':') {
        Some(("for", ns)) => Reads::For(Picos::from_ns(number(ns)?)),
        Some(("walks", times)) => Reads::Walks(number(times)? as u32),
        _ => anyhow::bail!("how long is {reads:?}?"),
    };
    let huge = huge == "1";
    // SAFETY: no memory is involved: a parent that ends takes us along.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // The parent has a policy of its own, to be left alone by balancing.
    task_policy_default().context("set_mempolicy")?;
    run_on(first)?;
    let hot = stretch(hot, on, huge).context("the hot stretch")?;
    let cold = stretch(cold, on, huge).context("the cold stretch")?;
    run_on(later)?;
    let at = |range: &Option<(usize, usize)>| range.map_or(0, |(start, _)| start);
    let mut out = io::stdout();
    writeln!(out, "ready {:x} {:x}", at(&hot), at(&cold))?;
    out.flush()?;
    let (start, pages) = hot.unwrap_or_default();
    let walk = || {
        for page in 0..pages {
            let word = (start + page * PAGE) as *const u64;
            // SAFETY: inside of our own mapping, which nobody gives back.
            unsafe { ptr::read_volatile(word) };
        }
    };
    match reads {
        Reads::For(busy) => {
            while pages > 0 && ran() < busy {
                walk();
            }
        }
        Reads::Walks(times) => {
            let mut asked = io::stdin().lines();
            for _ in 0..times {
                asked.next().context("nobody asks any more")??;
                forget_translations()?;
                walk();
                writeln!(out, "walked")?;
                out.flush()?;
            }
        }
    }
    loop {
        // SAFETY: it waits for a signal and involves no memory.
        unsafe { libc::pause() };
    }
}

/// Makes this CPU forget its translations of our memory. The kernel clears accessed bits
/// without that, and a processor that still has a translation does not set the bit again;
/// an emulated one keeps very many. Giving back more than a few dozen pages at once makes
/// the kernel flush them all.
fn forget_translations() -> Result<()> {
    const PAGES: usize = 64;
    let (rights, private) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new private mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(ptr::null_mut(), PAGES * PAGE, rights, private, -1, 0) };
    ensure!(at != libc::MAP_FAILED, "no memory: {}", io::Error::last_os_error());
    for page in 0..PAGES {
        // SAFETY: inside of the mapping that was just made.
        unsafe { ptr::write_volatile((at as usize + page * PAGE) as *mut u64, 1) };
    }
    // SAFETY: the mapping that was just made, which nothing else uses.
    let r = unsafe { libc::munmap(at, PAGES * PAGE) };
    ensure!(r == 0, "munmap: {}", io::Error::last_os_error());
    Ok(())
}

/// Processor time of this thread.
fn ran() -> Picos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one structure that outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Picos::from_ns(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

fn run_on(cpus: &str) -> Result<()> {
    // SAFETY: all zeroes is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus.split(',') {
        let cpu: usize = cpu.parse().with_context(|| format!("CPUs {cpus:?}"))?;
        ensure!(cpu < libc::CPU_SETSIZE as usize, "CPU {cpu}");
        // SAFETY: just checked to be inside of the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: one set of its own size.
    let r = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    ensure!(r == 0, "sched_setaffinity to {cpus}: {}", io::Error::last_os_error());
    Ok(())
}

/// So many pages, touched where they are to be; address and pages. Around it lies memory that
/// nobody may access, so that the kernel joins it with no other mapping.
fn stretch(pages: usize, on: At, huge: bool) -> Result<Option<(usize, usize)>> {
    if pages == 0 {
        return Ok(None);
    }
    let bytes = pages * PAGE;
    let (none, private) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new private mapping at an address of the kernel's choice.
    let all = unsafe { libc::mmap(ptr::null_mut(), bytes + 2 * HUGE, none, private, -1, 0) };
    ensure!(all != libc::MAP_FAILED, "no memory: {}", io::Error::last_os_error());
    // Past its beginning by one byte at least.
    let start = (all as usize + 1).next_multiple_of(HUGE);
    let at = start as *mut libc::c_void;
    let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: inside of the mapping that was just made, which nothing else uses.
    let r = unsafe {
        libc::mprotect(at, bytes, libc::PROT_READ | libc::PROT_WRITE)
            | libc::madvise(at, bytes, advice)
    };
    ensure!(r == 0, "it can't be set up: {}", io::Error::last_os_error());
    if let At::First(node) | At::Bound(node) = on {
        bind_range(start, bytes, Some(node.index())).context("mbind")?;
    }
    for page in 0..pages {
        // SAFETY: as above, and aligned.
        unsafe { ptr::write_volatile((start + page * PAGE) as *mut u64, page as u64) };
    }
    if let At::First(_) = on {
        bind_range(start, bytes, None).context("mbind back")?;
    }
    Ok(Some((start, pages)))
}
