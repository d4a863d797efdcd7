//! CPUs that go offline and come back (`/sys/devices/system/cpu/cpuN/online`).
//!
//! ```text
//!  write 0 ─▶ no longer active ─▶ domains anew ─▶ its tasks go elsewhere ─▶ idle, without a tick
//!  write 1 ─▶ active ───────────▶ domains anew ─▶ kernel threads bound to it come back
//! ```
//!
//! A task in the middle of an act leaves when that is over. What the kernel needs for all this takes no time.
//!
//! Source: specs/sched-groups.md#hotplug.

use crate::sched::ALL;
use crate::simulation::{FileError, Simulation};
use crate::tasks::Run;
use homenode_core::knobs::parse_bool;

homenode_core::named! {
    /// A list of CPUs in `/sys/devices/system/cpu`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum CpuList {
        /// Those that run tasks.
        Online => "online",
        /// The others.
        Offline => "offline",
        /// Those that could ever be there.
        Possible => "possible",
        /// Those that are there.
        Present => "present",
    }
}

impl Simulation {
    /// What a list of CPUs shows.
    pub(crate) fn cpus_text(&self, list: CpuList) -> String {
        let online = &self.sched.q.online().words;
        let words: Vec<u64> = match list {
            CpuList::Online => online.to_vec(),
            CpuList::Offline => {
                let all = self.sched.q.everywhere();
                all.words.iter().zip(online).map(|(all, on)| all & !on).collect()
            }
            CpuList::Possible | CpuList::Present => self.sched.q.everywhere().words.to_vec(),
        };
        self.words_list(&words) + "\n"
    }
    /// What `online` of a CPU shows.
    pub(crate) fn online_text(&self, place: usize) -> String {
        format!("{}\n", u8::from(self.sched.q.is_online(place)))
    }
    /// Root writes to `online` of a CPU. The boot CPU has no such file, so one always stays.
    pub(crate) fn write_online(
        &mut self,
        path: &str,
        place: usize,
        text: &str,
    ) -> Result<(), FileError> {
        let online = parse_bool(text, false).map_err(|errno| {
            let text = text.trim_end_matches('\n');
            FileError::new(path, errno, &format!("{text:?} is refused; allowed are 0 and 1"))
        })?;
        if online != self.sched.q.is_online(place) {
            self.sched.at(self.now());
            match online {
                true => self.cpu_comes(place),
                false => self.cpu_goes(place),
            }
        }
        Ok(())
    }
    fn cpu_goes(&mut self, place: usize) {
        self.sched.set_online(&self.machine, place, false);
        self.count_wasted();
        for id in 0..self.tasks.len() {
            if self.tasks[id].run != Run::Ended {
                self.refit(id);
            }
        }
        let number = self.cpus[place].number;
        self.say(format!("smpboot: CPU {number} is now offline"));
    }
    fn cpu_comes(&mut self, place: usize) {
        self.sched.set_online(&self.machine, place, true);
        self.count_wasted();
        for id in 0..self.tasks.len() {
            if self.tasks[id].run == Run::Ended {
                continue;
            }
            // The kernel's own threads are bound again to where they belong.
            let wanted = self.sched.q.tasks[id].terms.set;
            let own = self.tasks[id].space == usize::MAX && self.sched.q.tasks[id].asked == ALL;
            if own && self.sched.q.sets[wanted as usize].has(place) {
                self.sched.q.tasks[id].asked = wanted;
            }
            self.refit(id);
        }
    }
}
