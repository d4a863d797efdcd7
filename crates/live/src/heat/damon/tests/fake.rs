//! A kernel that is played: DAMON's files in memory, with what 6.12 and 7.3 answer.

use super::super::kernel::{Files, Kernel, Tap, Told};
use super::super::record::Record;
use homenode_core::policy::seen::Who;
use homenode_core::units::Picos;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;

const MS: u64 = 1_000_000;
const CONTEXT: &str = "0/contexts/0";

/// What a commit does that names a process which is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commit {
    /// 6.12: says nothing, and the thread ends.
    Ends,
    /// 7.3: EINVAL, and the thread goes on.
    Refuses,
}

/// A target of the thread.
#[derive(Clone, Copy)]
struct Target {
    who: Who,
    /// Whose memory its regions are fitted to: those of a place stay until the update.
    fitted: Option<u32>,
}

pub(super) struct State {
    pub(super) files: BTreeMap<String, String>,
    /// Every write that was taken.
    pub(super) log: Vec<String>,
    /// Starts by PID.
    pub(super) living: BTreeMap<u32, u64>,
    /// The last one who had a PID, also if he is dead.
    last: BTreeMap<u32, u64>,
    pub(super) hot: BTreeSet<u32>,
    /// A file that refuses.
    pub(super) refuses: Option<(&'static str, i32)>,
    /// So often its lock is found taken before it is free: then that begins anew.
    pub(super) busy: u32,
    /// Somebody makes a slot at the moment in which one is asked for.
    pub(super) quicker: bool,
    tried: Cell<u32>,
    commit: Commit,
    now: u64,
    thread: u32,
    targets: Vec<Target>,
    update_at: u64,
    told: Vec<Told>,
    /// An aggregation as the running thread was told.
    aggregation: u64,
    /// Processor time of the running thread.
    pub(super) ran: Picos,
}

#[derive(Clone)]
pub(super) struct Fake(pub(super) Rc<RefCell<State>>);

impl Fake {
    pub(super) fn new(commit: Commit) -> Self {
        Self(Rc::new(RefCell::new(State {
            files: [("nr_kdamonds".to_owned(), "0".to_owned())].into(),
            log: Vec::new(),
            living: [(std::process::id(), 7)].into(),
            last: BTreeMap::new(),
            hot: BTreeSet::new(),
            refuses: None,
            busy: 0,
            quicker: false,
            tried: Cell::new(0),
            commit,
            now: 1000 * MS,
            thread: 900,
            targets: Vec::new(),
            update_at: 0,
            told: Vec::new(),
            aggregation: 100 * MS,
            ran: Picos::from_ms(3),
        })))
    }
    /// Who lives under that PID, if need be another than those who died.
    pub(super) fn born(&self, pid: u32, hot: bool) -> Who {
        let mut s = self.0.borrow_mut();
        let next = s.last.get(&pid).map_or(7, |start| start + 1);
        let start = *s.living.entry(pid).or_insert(next);
        s.last.insert(pid, start);
        if hot {
            s.hot.insert(pid);
        }
        Who { pid, start }
    }
    pub(super) fn dies(&self, pid: u32) {
        self.0.borrow_mut().living.remove(&pid);
    }
    pub(super) fn log(&self) -> String {
        let me = std::process::id().to_string();
        let log = std::mem::take(&mut self.0.borrow_mut().log);
        log.into_iter().map(|l| l.replace(&me, "ME") + "\n").collect()
    }
    pub(super) fn passes(&self, ms: u64) {
        self.0.borrow_mut().now += ms * MS;
    }
    pub(super) fn loses(&self, n: u64) {
        self.0.borrow_mut().told.push(Told::Lost(n));
    }
    /// So many aggregations, each a tenth longer than asked for: 110 ms at first.
    pub(super) fn aggregates(&self, n: u32) {
        for _ in 0..n {
            self.0.borrow_mut().aggregate();
        }
    }
    /// First page of a process's memory.
    pub(super) fn page_of(pid: u32) -> u64 {
        u64::from(pid) << 8
    }
}

impl State {
    fn on(&self) -> bool {
        self.files.get("0/state").is_some_and(|s| s == "on")
    }
    fn put(&mut self, name: &str, value: &str) {
        self.files.insert(name.to_owned(), value.to_owned());
    }
    fn off(&mut self) {
        self.put("0/state", "off");
        self.put("0/pid", "-1");
        self.targets.clear();
    }
    fn named(&self) -> Vec<u32> {
        (0..)
            .map_while(|i| self.files.get(&format!("{CONTEXT}/targets/{i}/pid_target")))
            .map(|t| t.parse().expect("a number"))
            .collect()
    }
    fn aggregate(&mut self) {
        self.now += self.aggregation / 10 * 11;
        if !self.on() {
            return;
        }
        let update = self.now >= self.update_at;
        if update {
            self.update_at = self.now + 1000 * MS;
        }
        for (i, target) in self.targets.iter_mut().enumerate() {
            let Who { pid, start } = target.who;
            if update && self.living.get(&pid) == Some(&start) {
                target.fitted = Some(pid);
            }
            let Some(of) = target.fitted else { continue };
            let hot = self.hot.contains(&pid) && pid == of;
            for (from, to, accesses) in [(0, 16, if hot { 20 } else { 0 }), (16, 20, 0)] {
                let page = Fake::page_of(of);
                self.told.push(Told::Region(Record {
                    at: self.now,
                    target: i as u64,
                    regions: 2,
                    start: (page + from) * 4096,
                    end: (page + to) * 4096,
                    accesses,
                    age: 3,
                }));
            }
        }
    }
    fn write(&mut self, name: &str, text: &str) -> Result<(), i32> {
        if let Some((_, errno)) = self.refuses.filter(|(n, _)| name.ends_with(n)) {
            return Err(errno);
        }
        let below = |folder: &str| format!("{folder}/");
        match name {
            "nr_kdamonds" => {
                if std::mem::take(&mut self.quicker) {
                    self.put("nr_kdamonds", "1");
                    return Err(libc::EBUSY);
                }
                if self.on() {
                    return Err(libc::EBUSY);
                }
                self.files.retain(|n, _| n == "nr_kdamonds");
                if text != "0" {
                    self.put("0/state", "off");
                    self.put("0/pid", "-1");
                    self.put("0/contexts/nr_contexts", "0");
                }
            }
            "0/contexts/nr_contexts" => {
                for (file, value) in [
                    ("operations", "vaddr"),
                    ("monitoring_attrs/intervals/sample_us", "5000"),
                    ("monitoring_attrs/intervals/aggr_us", "100000"),
                    ("monitoring_attrs/intervals/update_us", "60000000"),
                    ("monitoring_attrs/nr_regions/min", "10"),
                    ("monitoring_attrs/nr_regions/max", "1000"),
                    ("targets/nr_targets", "0"),
                ] {
                    self.put(&format!("{CONTEXT}/{file}"), value);
                }
            }
            "0/contexts/0/targets/nr_targets" => {
                let folder = below("0/contexts/0/targets");
                self.files.retain(|n, _| !n.starts_with(&folder));
                for i in 0..text.parse().map_err(|_| libc::EINVAL)? {
                    self.put(&format!("{CONTEXT}/targets/{i}/pid_target"), "0");
                }
            }
            "0/state" => return self.command(text),
            _ if !self.files.contains_key(name) => return Err(libc::ENOENT),
            _ => {}
        }
        self.put(name, text);
        Ok(())
    }
    fn command(&mut self, word: &str) -> Result<(), i32> {
        let us = &self.files[&format!("{CONTEXT}/monitoring_attrs/intervals/aggr_us")];
        self.aggregation = us.parse::<u64>().map_err(|_| libc::EINVAL)? * 1000;
        let named = self.named();
        let living = |pid: &u32| Some(Who { pid: *pid, start: *self.living.get(pid)? });
        let found: Vec<Who> = named.iter().filter_map(living).collect();
        let all = found.len() == named.len();
        match (word, self.on()) {
            ("on", true) => return Err(libc::EBUSY),
            ("on", false) if !all => return Err(libc::EINVAL),
            ("on", false) => {
                self.thread += 1;
                let thread = self.thread.to_string();
                self.put("0/state", "on");
                self.put("0/pid", &thread);
                self.update_at = self.now + 1000 * MS;
                let fit = |who: Who| Target { who, fitted: Some(who.pid) };
                self.targets = found.into_iter().map(fit).collect();
            }
            ("off", true) => self.off(),
            ("commit", true) if all => {
                self.update_at = self.now + 1000 * MS;
                let old = std::mem::take(&mut self.targets);
                let fitted = |i: usize| old.get(i).and_then(|t| t.fitted);
                let seat = |(i, who)| Target { who, fitted: fitted(i) };
                self.targets = found.into_iter().enumerate().map(seat).collect();
            }
            ("commit", true) if self.commit == Commit::Ends => self.off(),
            _ => return Err(libc::EINVAL),
        }
        Ok(())
    }
    /// Whether the lock of such a file is taken now.
    fn is_locked(&self, name: &str) -> bool {
        let tried = self.tried.get();
        let locked = tried < self.busy && ["0/state", "0/pid"].contains(&name);
        self.tried.set(if locked { tried + 1 } else { 0 });
        locked
    }
}

impl Files for Fake {
    fn read(&self, name: &str) -> io::Result<String> {
        if self.0.borrow().is_locked(name) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        let found = self.0.borrow().files.get(name).cloned();
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }
    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let mut s = self.0.borrow_mut();
        if s.is_locked(name) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        s.write(name, text).map_err(io::Error::from_raw_os_error)?;
        s.log.push(format!("{name} = {text}"));
        Ok(())
    }
}

impl Kernel for Fake {
    fn start_of(&self, pid: u32) -> Option<u64> {
        self.0.borrow().living.get(&pid).copied()
    }
    fn ran(&self, pid: u32) -> Option<Picos> {
        let s = self.0.borrow();
        (s.on() && s.thread == pid).then_some(s.ran)
    }
    fn tap(&self, thread: u32) -> io::Result<Box<dyn Tap>> {
        let mut s = self.0.borrow_mut();
        if !s.on() || s.thread != thread {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        s.told.clear();
        Ok(Box::new(self.clone()))
    }
    fn now_ns(&self) -> u64 {
        self.0.borrow().now
    }
}

impl Tap for Fake {
    fn drain(&mut self, out: &mut Vec<Told>) {
        out.append(&mut self.0.borrow_mut().told);
    }
    fn fd(&self) -> Option<RawFd> {
        None
    }
}
