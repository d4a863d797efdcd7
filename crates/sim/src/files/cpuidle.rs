//! What the kernel says of the idle states of each CPU: `/sys/devices/system/cpu/cpuN/cpuidle`.
//!
//! Source: specs/files.md#cpuidle.

use super::{File, FileError};
use crate::simulation::Simulation;
use homenode_core::knobs::Errno;
use homenode_core::scenario::Rights;
use std::collections::BTreeMap;

const CPUS: &str = "/sys/devices/system/cpu";

homenode_core::named! {
    /// A file in a state's folder.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum IdleView {
        Above => "above",
        Below => "below",
        Disable => "disable",
        Latency => "latency",
        Name => "name",
        Residency => "residency",
        Time => "time",
        Usage => "usage",
    }
}

impl Simulation {
    /// All of them by path; none where the machine's file has no idle states.
    pub(super) fn idle_files(&self, all: &mut BTreeMap<String, File>) {
        let states = self.sched.idle.states().len();
        for cpu in 0..self.cpus.len() {
            for state in 0..states {
                let folder = format!("{CPUS}/cpu{}/cpuidle/state{state}", self.cpus[cpu].number);
                for view in IdleView::ALL {
                    let path = format!("{folder}/{}", view.name());
                    all.insert(path, File::CpuIdle(cpu, state, view));
                }
            }
        }
    }
    pub(super) fn idle_text(&self, cpu: usize, state: usize, view: IdleView) -> String {
        let idle = &self.sched.idle;
        let of = &idle.states()[state];
        let usage = idle.usage(cpu, self.now())[state];
        let text = match view {
            IdleView::Above => usage.above.to_string(),
            IdleView::Below => usage.below.to_string(),
            IdleView::Disable => u8::from(usage.disabled).to_string(),
            IdleView::Latency => (of.exit_latency_ns / 1000).to_string(),
            IdleView::Name => of.name.clone(),
            IdleView::Residency => (of.target_residency_ns / 1000).to_string(),
            IdleView::Time => (usage.time_ns / 1000).to_string(),
            IdleView::Usage => usage.usage.to_string(),
        };
        text + "\n"
    }
    /// A write to `disable`: any number but 0 switches the state off for this CPU.
    pub(super) fn disable_idle(
        &mut self,
        path: &str,
        (cpu, state): (usize, usize),
        text: &str,
        who: Rights,
    ) -> Result<(), FileError> {
        if who != Rights::Root {
            return Err(FileError::new(path, Errno::Eperm, "this takes CAP_SYS_ADMIN"));
        }
        let number: u32 = text
            .trim()
            .parse()
            .map_err(|_| FileError::new(path, Errno::Einval, "it takes 0 or 1"))?;
        let now = self.now();
        self.sched.idle.lapse(cpu, now);
        self.sched.idle.disable(cpu, state, number != 0);
        Ok(())
    }
}
