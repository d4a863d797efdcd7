//! Groups of tasks at work: their quotas' timer, their files, what they used.
//!
//! ```text
//!  fair class ─next_timer─▶ Event::Quota ─▶ refill ─▶ CPUs that have got work begin
//!  [[at]] write cpu.max ──▶ write_group ──▶ fair class, sets of CPUs
//! ```
//!
//! Source: specs/sched-groups.md.

use crate::sched::{BOOT, ns};
use crate::simulation::{FileError, Simulation};
use crate::tasks::Run;
use crate::timeline::Event;
use homenode_core::knobs::Errno;
use homenode_core::scenario::{Group, Process};
use homenode_core::sched::group::{self, parse_cpus, parse_idle, parse_nice, parse_weight};

homenode_core::named! {
    /// A file of a group.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum GroupFile {
        /// Its weight among its siblings.
        Weight => "cpu.weight",
        /// The same as a nice level.
        Nice => "cpu.weight.nice",
        /// Its quota and period.
        Max => "cpu.max",
        /// How much of what it had left it may use beside that.
        Burst => "cpu.max.burst",
        /// Whether it is idle.
        Idle => "cpu.idle",
        /// What it used, and how often it was throttled.
        Stat => "cpu.stat",
        /// The CPUs that it is restricted to.
        Cpus => "cpuset.cpus",
        /// Those of them that it may use now.
        Effective => "cpuset.cpus.effective",
    }
}

impl GroupFile {
    /// Whether something can be written to it.
    pub(crate) const fn is_writable(self) -> bool {
        match self {
            Self::Weight | Self::Nice | Self::Max | Self::Burst | Self::Idle | Self::Cpus => true,
            Self::Stat | Self::Effective => false,
        }
    }
    /// Whether the root has it.
    pub(crate) const fn is_of_root(self) -> bool {
        match self {
            Self::Stat | Self::Effective => true,
            Self::Weight | Self::Nice | Self::Max | Self::Burst | Self::Idle | Self::Cpus => false,
        }
    }
}

/// What the tasks of a group and of those in it used, and how it was throttled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupFigures {
    /// Its folder below `/sys/fs/cgroup`.
    pub path: String,
    /// Processor time in picoseconds.
    pub usage_ps: u64,
    /// Of that, in the kernel.
    pub system_ps: u64,
    /// Of the rest, of tasks with a nice value above 0.
    pub nice_ps: u64,
    /// Periods of its quota that have ended while somebody ran.
    pub nr_periods: u64,
    /// Of those: in which one of its queues was throttled.
    pub nr_throttled: u64,
    /// How long its queues were throttled with tasks on them, in nanoseconds, added up.
    pub throttled_ns: u64,
}

/// A vCPU of a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vcpu {
    /// The place of its virtual machine among the processes.
    pub process: usize,
    /// Its number there.
    pub number: usize,
    /// How long it ran, in picoseconds.
    pub ran_ps: u64,
    /// Its steal time in nanoseconds: how long it could have run and did not, until it ran last.
    pub steal_ns: u64,
}

impl Simulation {
    /// Makes the groups of a scenario.
    pub(crate) fn add_groups(&mut self, groups: &[Group]) -> Result<(), String> {
        if groups.is_empty() {
            return Ok(());
        }
        self.quotas.slot = Some(self.timeline.slot(Event::Quota));
        let mut left: Vec<&Group> = groups.iter().collect();
        while !left.is_empty() {
            let before = left.len();
            let mut later = Vec::new();
            for g in left {
                let parent = match &g.parent {
                    None => Some(0),
                    Some(name) => self.sched.q.groups.number(name),
                };
                let Some(parent) = parent else {
                    later.push(g);
                    continue;
                };
                self.add_group(g, parent)?;
            }
            if later.len() == before {
                let g = later[0];
                let parent = g.parent.as_deref().unwrap_or_default();
                return Err(format!("group '{}' is in '{parent}', which is not there", g.name));
            }
            left = later;
        }
        Ok(())
    }
    /// Makes the group of a virtual machine, in the one that its process names; its own name.
    ///
    /// Source: specs/workloads.md#vcpus.
    pub(crate) fn guest_group(&mut self, process: &Process) -> String {
        if self.quotas.slot.is_none() {
            self.quotas.slot = Some(self.timeline.slot(Event::Quota));
        }
        let groups = &self.sched.q.groups;
        let parent = process.group.as_ref().and_then(|name| groups.number(name)).unwrap_or(0);
        self.sched.q.add_group(&process.name, parent, group::DEFAULT_WEIGHT);
        process.name.clone()
    }
    fn add_group(&mut self, g: &Group, parent: u32) -> Result<(), String> {
        let mut places = Vec::new();
        for c in &g.cpus {
            let place = self.cpus.find(*c);
            let lacks = || format!("group '{}' has CPU {c}, which the machine lacks", g.name);
            places.push(place.ok_or_else(lacks)?);
        }
        let q = &mut self.sched.q;
        let number = q.add_group(&g.name, parent, g.weight);
        if !places.is_empty() {
            let set = q.set(&places);
            q.groups.all[number as usize - 1].cpus = Some(set);
        }
        q.set_max(number, g.max);
        q.fair.set_group_idle(q.groups.id(number), g.idle, q.now);
        Ok(())
    }

    // ── Quotas ─────────────────────────────────────────────────────────────────

    /// The timer of quotas follows the fair class, where there are groups.
    #[inline]
    pub(crate) fn follow_quotas(&mut self) {
        if let Some(slot) = self.quotas.slot {
            self.set_quota_timer(slot);
        }
    }
    fn set_quota_timer(&mut self, slot: u32) {
        let next = self.sched.q.fair.next_timer().map(|(at, _)| at);
        if next == self.quotas.at {
            return;
        }
        self.quotas.at = next;
        match next {
            Some(at) => {
                let at = at.saturating_sub(BOOT).saturating_mul(1000);
                self.timeline.set(slot, at.max(self.now()));
            }
            None => self.timeline.clear(slot),
        }
    }
    /// The timer has gone off: accounts are filled, who was throttled comes back.
    pub(crate) fn refill_quotas(&mut self) {
        let time = self.now();
        self.sched.at(time);
        self.quotas.at = None;
        let mut woken = Vec::new();
        let fair = &mut self.sched.q.fair;
        while let Some((at, group)) = fair.next_timer() {
            if at > ns(time) {
                break;
            }
            fair.refill(group, ns(time), &mut woken);
        }
        self.rouse_all();
        self.follow_quotas();
    }
    /// Queues may have got tasks that can run: idle CPUs begin, marked ones stop.
    pub(crate) fn rouse_all(&mut self) {
        for cpu in 0..self.cpus.len() {
            self.sched.q.follow(cpu);
            if self.cpus[cpu].current().is_some() || !self.sched.q.is_idle(cpu) {
                // The timer is the CPU's own.
                self.grown(cpu, cpu);
            }
        }
    }

    // ── Files ──────────────────────────────────────────────────────────────────

    /// What a file of a group shows; group 0 is the root.
    pub(crate) fn group_text(&self, number: u32, file: GroupFile) -> String {
        let q = &self.sched.q;
        let id = q.groups.id(number);
        let list = |set: u32| self.cpu_list(set) + "\n";
        match file {
            GroupFile::Weight => format!("{}\n", group::shown_weight(q.fair.group_weight(id))),
            GroupFile::Nice => format!("{}\n", group::shown_nice(q.fair.group_weight(id))),
            GroupFile::Max => format!("{}\n", q.groups.all[number as usize - 1].max),
            GroupFile::Burst => format!("{}\n", q.groups.all[number as usize - 1].max.burst_us),
            GroupFile::Idle => format!("{}\n", u8::from(q.fair.group_is_idle(id))),
            GroupFile::Cpus => {
                q.groups.all[number as usize - 1].cpus.map_or_else(|| "\n".to_owned(), list)
            }
            GroupFile::Effective => {
                let mut words = q.online().words.to_vec();
                q.effective_words(number, &mut words);
                self.words_list(&words) + "\n"
            }
            GroupFile::Stat => self.cpu_stat_text(number),
        }
    }
    /// Source: specs/sched-groups.md#stat.
    fn cpu_stat_text(&self, number: u32) -> String {
        let f = self.group_figures_of(number);
        let us = |ps: u64| ps / 1_000_000;
        let mut text = format!(
            "usage_usec {}\nuser_usec {}\nsystem_usec {}\nnice_usec {}\n",
            us(f.usage_ps),
            us(f.usage_ps - f.system_ps),
            us(f.system_ps),
            us(f.nice_ps)
        );
        if number > 0 {
            let stat = self.sched.q.fair.cpu_stat(self.sched.q.groups.id(number));
            text += &format!(
                "nr_periods {}\nnr_throttled {}\nthrottled_usec {}\nnr_bursts {}\nburst_usec {}\n",
                stat.nr_periods,
                stat.nr_throttled,
                stat.throttled_ns / 1000,
                stat.nr_bursts,
                stat.burst_ns / 1000
            );
        }
        text
    }
    /// Somebody with the right to writes to a file of a group.
    pub(crate) fn write_group(
        &mut self,
        path: &str,
        number: u32,
        file: GroupFile,
        text: &str,
    ) -> Result<(), FileError> {
        let now = self.now();
        self.sched.at(now);
        let refused = |errno: Errno| {
            let what = match file {
                GroupFile::Weight => "allowed are 1 to 10000, and nothing while the group is idle",
                GroupFile::Nice => "allowed are -20 to 19, and nothing while the group is idle",
                GroupFile::Max => {
                    "allowed are \"max\" or a quota from 1000 µs on, and a period from 1000 to \
                     1000000 µs"
                }
                GroupFile::Burst => "allowed is a number of µs, at most the quota",
                GroupFile::Idle => "allowed are 0 and 1",
                GroupFile::Cpus => "allowed is a list such as 0-3,8 of CPUs that are possible",
                GroupFile::Stat | GroupFile::Effective => "this file is for reading only",
            };
            let text = text.trim_end_matches('\n');
            FileError::new(path, errno, &format!("{text:?} is refused; {what}"))
        };
        let q = &mut self.sched.q;
        let id = q.groups.id(number);
        match file {
            GroupFile::Weight => {
                let weight = parse_weight(text).map_err(refused)?;
                if q.fair.group_is_idle(id) {
                    return Err(refused(Errno::Einval));
                }
                q.fair.set_group_weight(id, weight, q.now);
            }
            GroupFile::Nice => {
                let nice = parse_nice(text).map_err(refused)?;
                if q.fair.group_is_idle(id) {
                    return Err(refused(Errno::Einval));
                }
                q.fair.set_group_nice(id, nice, q.now);
            }
            GroupFile::Max | GroupFile::Burst => {
                let old = q.groups.all[number as usize - 1].max;
                let of_burst = file == GroupFile::Burst;
                let max = if of_burst { old.write_burst(text) } else { old.write(text) };
                let max = max.map_err(refused)?;
                q.set_max(number, max);
                // Whoever has a quota now may be throttled, and waits for no CPU then.
                for id in self.in_group(number) {
                    self.waits_elsewhere(id);
                }
                self.rouse_all();
                self.follow_quotas();
            }
            GroupFile::Idle => {
                let idle = parse_idle(text).map_err(refused)?;
                q.fair.set_group_idle(id, idle, q.now);
                for cpu in 0..q.cpus() {
                    q.follow(cpu);
                }
            }
            GroupFile::Cpus => {
                let highest = self.machine.cpus.iter().map(|c| c.id.0).max().unwrap_or(0);
                let cpus = parse_cpus(text, highest).map_err(refused)?;
                let places: Option<Vec<usize>> =
                    cpus.iter().map(|&c| self.cpus.find(homenode_core::units::CpuId(c))).collect();
                let places = places.ok_or_else(|| refused(Errno::Einval))?;
                let set = (!places.is_empty()).then(|| self.sched.q.set(&places));
                self.sched.q.groups.all[number as usize - 1].cpus = set;
                self.refit_group(number);
            }
            GroupFile::Stat | GroupFile::Effective => return Err(refused(Errno::Eacces)),
        }
        Ok(())
    }
    /// The tasks of a group may run elsewhere than before.
    fn refit_group(&mut self, number: u32) {
        for id in self.in_group(number) {
            self.refit(id);
        }
    }
    /// The tasks of a group, and of those in it, that have not ended.
    fn in_group(&self, number: u32) -> Vec<usize> {
        let is_in = |&id: &usize| {
            let group = self.sched.q.tasks[id].terms.group;
            self.tasks[id].run != Run::Ended && self.sched.q.groups.is_in(group, number)
        };
        (0..self.tasks.len()).filter(is_in).collect()
    }
    /// A list of the CPUs of a set, by their numbers.
    fn cpu_list(&self, set: u32) -> String {
        self.words_list(&self.sched.q.sets[set as usize].words)
    }
    pub(crate) fn words_list(&self, words: &[u64]) -> String {
        let has = |place: &usize| words[place / 64] >> (place % 64) & 1 != 0;
        let numbers: Vec<u32> =
            (0..self.cpus.len()).filter(has).map(|p| self.cpus[p].number.0).collect();
        homenode_core::list::sorted(&numbers)
    }

    // ── Figures ────────────────────────────────────────────────────────────────

    /// What each vCPU of the scenario's virtual machines had of CPUs so far.
    pub fn vcpus(&self) -> Vec<Vcpu> {
        let mut all: Vec<Vcpu> = Vec::new();
        for (id, task) in self.tasks.iter().enumerate() {
            if !self.processes.get(task.process).is_some_and(|p| p.guest) {
                continue;
            }
            let number = all.iter().filter(|v| v.process == task.process).count();
            let steal_ns = self.sched.q.counters.info(id).run_delay;
            let ran_ps = self.ran_until_now(id);
            all.push(Vcpu { process: task.process, number, ran_ps, steal_ns });
        }
        all
    }
    /// What each group used so far, in the order in which they were made.
    pub fn group_figures(&self) -> Vec<GroupFigures> {
        (1..=self.sched.q.groups.all.len() as u32).map(|g| self.group_figures_of(g)).collect()
    }
    fn group_figures_of(&self, number: u32) -> GroupFigures {
        let q = &self.sched.q;
        let stat = q.fair.cpu_stat(q.groups.id(number));
        let path = number.checked_sub(1).map(|g| q.groups.all[g as usize].path.clone());
        let mut f = GroupFigures {
            path: path.unwrap_or_default(),
            nr_periods: stat.nr_periods,
            nr_throttled: stat.nr_throttled,
            throttled_ns: stat.throttled_ns,
            ..GroupFigures::default()
        };
        for (id, (task, sched)) in self.tasks.iter().zip(&q.tasks).enumerate() {
            if !q.groups.is_in(sched.terms.group, number) {
                continue;
            }
            let ran = self.ran_until_now(id);
            f.usage_ps += ran;
            f.system_ps += task.system;
            f.nice_ps += if sched.terms.nice > 0 { ran - task.system } else { 0 };
        }
        f
    }
}

impl crate::sched::Queues {
    /// `cpuset.cpus.effective` of a group, without keeping it; `words` are the CPUs that are online.
    fn effective_words(&self, group: u32, words: &mut [u64]) {
        if group == 0 {
            return;
        }
        let g = &self.groups.all[group as usize - 1];
        self.effective_words(g.parent, words);
        if let Some(cpus) = g.cpus {
            let mine: Vec<u64> =
                words.iter().zip(&*self.sets[cpus as usize].words).map(|(a, b)| a & b).collect();
            if mine.iter().any(|w| *w != 0) {
                words.copy_from_slice(&mine);
            }
        }
    }
}
