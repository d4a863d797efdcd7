//! The real side: processes of this machine and the kernel's ksmd.

use super::side::Side;
use anyhow::{Context, Result, anyhow, bail};
use homenode_config::MergeCase;
use homenode_core::knobs::Errno;
use homenode_core::scenario::{Again, Content, Process, Step, Until};
use homenode_core::units::Pages;
use homenode_measure::truth::merge::{Holder, Kernel, Request, registered};
use homenode_merge::ksm::Sleep;
use std::process::Command;
use std::time::Duration;

/// A program of a case, or a child of one.
struct Program<'c> {
    process: &'c Process,
    name: String,
    /// Its next step, and the rounds of each loop before.
    at: usize,
    rounds: Vec<u64>,
    /// Before which pass it goes on.
    wakes: u32,
    state: State,
    /// Where its holder is among the holders, and its place in the holder's family.
    holder: usize,
    who: Vec<usize>,
    pid: u32,
    /// Which pages of each map have been touched; `None`: not mapped.
    touched: Vec<Option<Vec<bool>>>,
    /// Numbers of its children among the programs.
    children: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    ToStart,
    Runs,
    Ended,
}

/// The programs of a case as processes, and the kernel.
pub(super) struct Real<'c> {
    kernel: &'c Kernel,
    holders: Vec<Option<Holder>>,
    programs: Vec<Program<'c>>,
    contents: Contents<'c>,
}

impl<'c> Real<'c> {
    pub(super) fn new(kernel: &'c Kernel, case: &'c MergeCase) -> Self {
        let processes = &case.scenario.processes;
        let mut programs = Vec::new();
        for (holder, process) in processes.iter().enumerate() {
            programs.push(Program {
                process,
                name: process.name.clone(),
                at: 0,
                rounds: vec![0; process.steps.len()],
                wakes: MergeCase::passes_in(process.start),
                state: State::ToStart,
                holder,
                who: Vec::new(),
                pid: 0,
                touched: vec![None; process.maps.len()],
                children: Vec::new(),
            });
        }
        let holders = processes.iter().map(|_| None).collect();
        Self { kernel, holders, programs, contents: Contents::new(processes) }
    }

    /// The processes that live.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.programs.iter().filter(|p| p.state == State::Runs).map(|p| p.pid).collect()
    }

    fn tell(&mut self, p: usize, request: Request) -> Result<u32> {
        let program = &self.programs[p];
        let holder = self.holders[program.holder].as_mut();
        let holder = holder.ok_or_else(|| anyhow!("{} has not started", program.name))?;
        if self.kernel.is_interrupted() {
            bail!("interrupted");
        }
        holder
            .tell(&program.who, request)
            .with_context(|| format!("process \"{}\": {request:?}", program.name))
    }

    fn start(&mut self, p: usize) -> Result<()> {
        let path = std::env::current_exe().context("this command's own path")?;
        let mut command = Command::new(path);
        command.arg(super::HOLD);
        let holder = Holder::start(command).context("this command can't run itself")?;
        let program = &mut self.programs[p];
        (program.pid, program.state) = (holder.pid(), State::Runs);
        let process = program.process;
        let at = program.holder;
        self.holders[at] = Some(holder);
        if process.memory_merge {
            self.tell(p, Request::MergeAny)?;
        }
        (0..process.maps.len()).try_for_each(|map| self.map(p, map))
    }

    fn map(&mut self, p: usize, map: usize) -> Result<()> {
        let process = self.programs[p].process;
        let of = &process.maps[map];
        let pages = Pages::holding(of.size).0;
        self.tell(
            p,
            Request::Map {
                map,
                pages,
                mergeable: of.mergeable,
                read_only: of.read_only,
                huge: of.huge == Some(true),
                shared: of.shared,
            },
        )?;
        self.programs[p].touched[map] = Some(vec![false; pages as usize]);
        Ok(())
    }

    /// Writes to the first pages of a map: a first touch gives the map's content, or
    /// `given`; any other write one of its own, or `given`.
    fn write_pages(&mut self, p: usize, map: usize, n: u64, given: Option<&Content>) -> Result<()> {
        let process = self.programs[p].process;
        let Some(touched) = &mut self.programs[p].touched[map] else {
            bail!("{}: the map \"{}\" was given back", process.name, process.maps[map].name)
        };
        let n = n.min(touched.len() as u64);
        let all = touched.len() as u64;
        let were = touched[..n as usize].to_vec();
        touched[..n as usize].fill(true);
        // Runs of pages that get the same.
        let mut first = 0;
        while first < n {
            let was = were[first as usize];
            let len = were[first as usize..].iter().take_while(|t| **t == was).count() as u64;
            let own = Content::Own;
            let content = given.unwrap_or(if was { &own } else { &process.maps[map].content });
            let request = self.contents.request(content, map, first, len, all);
            self.tell(p, request)?;
            first += len;
        }
        Ok(())
    }

    fn fork(&mut self, p: usize) -> Result<()> {
        let pid = self.tell(p, Request::Fork)?;
        let of = &self.programs[p];
        let mut who = of.who.clone();
        who.push(of.children.len());
        let family = self.programs.iter().filter(|p| p.holder == of.holder).count();
        let child = Program {
            process: of.process,
            name: format!("{}.{family}", of.process.name),
            at: of.at + 1,
            rounds: of.rounds.clone(),
            wakes: of.wakes,
            state: State::Runs,
            holder: of.holder,
            who,
            pid,
            touched: of.touched.clone(),
            children: Vec::new(),
        };
        let number = self.programs.len();
        self.programs.push(child);
        self.programs[p].children.push(number);
        Ok(())
    }

    /// Whether a child of it lives.
    fn has_children(&self, p: usize) -> bool {
        self.programs[p].children.iter().any(|c| self.programs[*c].state != State::Ended)
    }

    fn end(&mut self, p: usize) -> Result<()> {
        // A real parent that ends takes its children along here (they are told through it),
        // so it ends last; nothing of it is left when it has nothing mapped.
        if self.has_children(p) {
            bail!("{} ends before its children; let it wait", self.programs[p].name);
        }
        self.tell(p, Request::Exit)?;
        self.programs[p].state = State::Ended;
        Ok(())
    }

    /// Lets a program do what it does before a pass; whether it did anything.
    fn go(&mut self, p: usize, slot: u32) -> Result<bool> {
        if self.programs[p].state == State::Ended || self.programs[p].wakes > slot {
            return Ok(false);
        }
        if self.programs[p].state == State::ToStart {
            self.start(p)?;
        }
        let mut went = false;
        loop {
            let program = &self.programs[p];
            let (at, process) = (program.at, program.process);
            let Some(step) = process.steps.get(at) else {
                self.end(p)?;
                return Ok(true);
            };
            let mut next = at + 1;
            let maps = &process.maps;
            let map_of = |name: &str| {
                maps.iter().position(|m| m.name == name).ok_or_else(|| anyhow!("no map {name}"))
            };
            match step {
                Step::Wait if self.has_children(p) => return Ok(went),
                Step::Wait | Step::Sleep(_) => {}
                Step::Fork => self.fork(p)?,
                Step::Touch { map } => self.write_pages(p, map_of(map)?, u64::MAX, None)?,
                Step::Fill { map, content } => {
                    self.write_pages(p, map_of(map)?, u64::MAX, Some(content))?;
                }
                Step::Access { map, until: Until::Accesses(n), .. } => {
                    self.write_pages(p, map_of(map)?, *n, None)?;
                }
                Step::Madvise { map, mergeable } => {
                    self.tell(p, Request::Advise { map: map_of(map)?, mergeable: *mergeable })?;
                }
                Step::Map { map } => {
                    let map = map_of(map)?;
                    if self.programs[p].touched[map].is_none() {
                        self.map(p, map)?;
                    }
                }
                Step::Unmap { map } => {
                    let map = map_of(map)?;
                    self.tell(p, Request::Unmap { map })?;
                    self.programs[p].touched[map] = None;
                }
                Step::Repeat { steps, until: Again::Times(n) } => {
                    let rounds = &mut self.programs[p].rounds[at];
                    *rounds += 1;
                    if *rounds < *n {
                        next = at.saturating_sub(*steps as usize);
                    } else {
                        *rounds = 0;
                    }
                }
                other => bail!("real processes don't do {other:?}"),
            }
            self.programs[p].at = next;
            if let Step::Sleep(time) = step {
                self.programs[p].wakes = slot + MergeCase::passes_in(*time);
                return Ok(true);
            }
            went = true;
        }
    }
}

impl Drop for Real<'_> {
    /// Waits until all have ended: children do so after their parents, and what they have
    /// registered must not count in what comes next.
    fn drop(&mut self) {
        let pids = self.pids();
        self.holders.clear();
        for _ in 0..5000 {
            if registered().iter().all(|(pid, _)| !pids.contains(pid)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Side for Real<'_> {
    fn act(&mut self, slot: u32) -> Result<()> {
        // Who waits for a child goes on once it has ended.
        loop {
            let (mut went, mut p) = (false, 0);
            while p < self.programs.len() {
                went |= self.go(p, slot)?;
                p += 1;
            }
            if !went {
                return Ok(());
            }
        }
    }
    fn write(&mut self, file: &str, value: &str) -> Result<Option<String>> {
        if self.kernel.is_interrupted() {
            bail!("interrupted");
        }
        let Err(e) = self.kernel.alone.write(file, value) else { return Ok(None) };
        let number = e.source.raw_os_error().unwrap_or(0);
        let known = Errno::ALL.into_iter().find(|e| e.number() == number);
        Ok(Some(known.map_or_else(|| e.source.to_string(), |e| e.name().to_owned())))
    }
    fn read(&mut self, file: &str) -> Result<Option<String>> {
        Ok(self.kernel.alone.read(file))
    }
    fn vmstat(&mut self) -> Result<String> {
        std::fs::read_to_string("/proc/vmstat").context("/proc/vmstat")
    }
    fn stats(&mut self) -> Result<Vec<(String, String)>> {
        let mut all = Vec::new();
        for p in self.programs.iter().filter(|p| p.state == State::Runs) {
            let path = format!("/proc/{}/ksm_stat", p.pid);
            if let Ok(text) = std::fs::read_to_string(&path) {
                all.push((p.name.clone(), text));
            }
        }
        Ok(all)
    }
    fn wait(&mut self) -> Result<()> {
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    }
    fn sleep(&mut self) -> Option<Sleep> {
        self.kernel.sleep()
    }
}

/// Bytes for contents. They are ordered as the simulated kernel orders its own: zeroes,
/// images by their first appearance, and what is like nothing else by its appearance, each
/// stirred in the same way.
struct Contents<'c> {
    images: Vec<&'c str>,
    /// How many pages of their own there were.
    own: u64,
}

impl<'c> Contents<'c> {
    fn new(processes: &'c [Process]) -> Self {
        let mut images: Vec<&str> = Vec::new();
        for process in processes {
            let of_maps = process.maps.iter().map(|m| &m.content);
            let of_steps = process.steps.iter().filter_map(|s| match s {
                Step::Fill { content, .. } => Some(content),
                _ => None,
            });
            for content in of_maps.chain(of_steps) {
                if let Content::Image { name, .. } = content {
                    if !images.contains(&name.as_str()) {
                        images.push(name);
                    }
                }
            }
        }
        Self { images, own: 0 }
    }

    fn request(
        &mut self,
        content: &Content,
        map: usize,
        first: u64,
        pages: u64,
        all: u64,
    ) -> Request {
        match content {
            Content::Zero => Request::Zero { map, first, pages },
            Content::Own => {
                let from = (1u64 << 61 | self.own).wrapping_sub(first);
                self.own += pages;
                Request::Fill { map, first, pages, from, cycle: u64::MAX }
            }
            Content::Image { name, distinct } => {
                let image = self.images.iter().position(|i| i == name).unwrap_or(0) as u64;
                let from = ((image + 1) << 36) - 1;
                let cycle = distinct.map_or(all, |d| d.0).max(1);
                Request::Fill { map, first, pages, from, cycle }
            }
        }
    }
}
