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

use anyhow::{Context, Result, ensure};
use homenode_core::units::{HUGE_PAGES, NodeId, Picos};
use homenode_machine::endtoend::{At, Program, Reads};

use crate::memory::{Forget, Memory, task_policy_default};
use crate::process::{cpu_time, pin};

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
            At::Tied(node) => format!("tied:{node}"),
        };
        let reads = match program.reads {
            Reads::For(busy) => format!("for:{}", busy.as_ns()),
            Reads::Walks(times) => format!("walks:{times}"),
        };
        let words = [
            program.hot.to_string(),
            program.cold.to_string(),
            on,
            match program.huge {
                None => "-",
                Some(true) => "1",
                Some(false) => "0",
            }
            .to_owned(),
            program.later.map_or("-".to_owned(), |kept| kept.to_string()),
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
    let [hot, cold, on, huge, kept, reads, first, later] = *words else {
        anyhow::bail!("--program takes eight words, not {}", words.len());
    };
    let number = |word: &str| word.parse::<u64>().with_context(|| format!("{word:?}"));
    let (hot, cold) = (number(hot)? as usize, number(cold)? as usize);
    let node = |node| Ok::<_, anyhow::Error>(NodeId(number(node)? as u16));
    let on = match on.split_once(':') {
        Some(("first", id)) => At::First(node(id)?),
        Some(("bound", id)) => At::Bound(node(id)?),
        Some(("tied", id)) => At::Tied(node(id)?),
        _ => At::Anywhere,
    };
    let reads = match reads.split_once(':') {
        Some(("for", ns)) => Reads::For(Picos::from_ns(number(ns)?)),
        Some(("walks", times)) => Reads::Walks(number(times)? as u32),
        _ => anyhow::bail!("how long is {reads:?}?"),
    };
    let huge = match huge {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    };
    let kept = match kept {
        "-" => None,
        word => Some(number(word)? as usize),
    };
    // SAFETY: no memory is involved: a parent that ends takes us along.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // The parent has a policy of its own, to be left alone by balancing.
    task_policy_default().context("set_mempolicy")?;
    run_on(first)?;
    let (pages, cold_pages) = (hot, cold);
    let hot = stretch(pages, on, huge).context("the hot stretch")?;
    let cold = stretch(cold, on, huge).context("the cold stretch")?;
    for (memory, pages) in [(&hot, pages), (&cold, cold_pages)] {
        if let (Some(memory), Some(kept)) = (memory, kept) {
            ask_late(memory, pages, kept)?;
        }
    }
    run_on(later)?;
    let at = |memory: &Option<Memory>| memory.as_ref().map_or(0, |m| m.address(0));
    let mut out = io::stdout();
    writeln!(out, "ready {:x} {:x}", at(&hot), at(&cold))?;
    out.flush()?;
    let walk = || {
        if let Some(memory) = &hot {
            (0..pages).for_each(|page| memory.read(page));
        }
    };
    match reads {
        Reads::For(busy) => {
            while pages > 0 && cpu_time() < busy {
                walk();
            }
        }
        Reads::Walks(times) => {
            let (mut asked, forget) = (io::stdin().lines(), Forget::new()?);
            for _ in 0..times {
                asked.next().context("nobody asks any more")??;
                forget.all();
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

fn run_on(cpus: &str) -> Result<()> {
    let numbers = cpus.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>();
    let numbers = numbers.with_context(|| format!("CPUs {cpus:?}"))?;
    pin(0, &numbers).with_context(|| format!("sched_setaffinity to {cpus}"))
}

/// Gives all but some pages of each 2 MiB back and asks for huge pages.
fn ask_late(memory: &Memory, pages: usize, kept: usize) -> Result<()> {
    const HUGE: usize = HUGE_PAGES as usize;
    for first in (0..pages).step_by(HUGE) {
        let rest = first + kept..(first + HUGE).min(pages);
        if !rest.is_empty() {
            memory.give_back(rest).context("MADV_DONTNEED")?;
        }
    }
    memory.advise(libc::MADV_HUGEPAGE).context("MADV_HUGEPAGE")
}

/// So many pages, touched where they are to be.
fn stretch(pages: usize, on: At, huge: Option<bool>) -> Result<Option<Memory>> {
    if pages == 0 {
        return Ok(None);
    }
    let memory = Memory::reserve(pages).context("no memory")?;
    if let Some(huge) = huge {
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        memory.advise(advice).context("madvise")?;
    }
    let touch = |page| memory.write_one(page, page as u64);
    if let At::First(node) = on {
        memory.bound(node.index(), touch)?;
        return Ok(Some(memory));
    }
    if let At::Bound(node) = on {
        memory.bind(0..pages, node.index()).context("mbind")?;
    }
    if let At::Tied(node) = on {
        memory.tie(0..pages, node.index()).context("mbind with MPOL_F_NUMA_BALANCING")?;
    }
    (0..pages).for_each(touch);
    Ok(Some(memory))
}
