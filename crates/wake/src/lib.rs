//! Which CPU a woken task gets: Linux's choice for tasks of the fair class.
//!
//! The rules stand in one C header, `include/homenode_wake.h`, so that the simulator and a
//! BPF program run the same text. This is its safe face.
//!
//! ```text
//!   who runs the queues                       who wakes
//!   set_idle, set_load, … ──▶ Cpus ──choose──▶ Choice: a CPU, why, what to count
//!                              │
//!                    Layout: cores, LLCs, domains        Task: flips, recent
//! ```
//!
//! An example: four CPUs share a cache. Task 1 on CPU 1 wakes task 0, which ran there last and
//! was on CPU 0 before. CPU 1 is busy with the waker, so the target isn't idle; CPU 0 is, and
//! the task used it recently.
//!
//! ```
//! use homenode_wake::{Allowed, Cpus, Flags, Layout, Reason, Rules, Task, Version, Wakeup};
//!
//! let mut layout = Layout::builder(4);
//! let llc = layout.domain(&[0b1111], Flags::SHARE_LLC | Flags::WAKE_AFFINE, 117)?;
//! for cpu in 0..4 {
//!     layout.cpu(cpu, &[cpu], 0, &[llc])?;
//! }
//! let mut cpus = Cpus::new(layout.build()?, Rules::of(Version::V6_12));
//! cpus.set_idle(1, false);
//! cpus.set_running(1, 1, 0);
//! let mut tasks = [Task::born(0, 0), Task::born(1, 0)];
//! let wakeup = Wakeup {
//!     waker_cpu: 1, prev: 1, task_cpu: 1, wakee: 0,
//!     allowed: Allowed::All, nr_allowed: 4,
//!     sync: false, current_cpu: false, waker_per_cpu_kthread: false, wakee_idle_policy: false,
//!     jiffies: 0, waker_load: 0, wakee_load: 0, wakee_util: 0,
//! };
//! let choice = cpus.choose_in(&mut tasks, 1, &wakeup)?;
//! assert_eq!((choice.cpu, choice.reason), (0, Reason::Recent));
//! assert_eq!(tasks[0].recent, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Source: specs/wake.md.

mod choice;
mod cpus;
mod domains;
mod layout;
mod raw;
#[cfg(test)]
mod tests;

pub use choice::{Allowed, Choice, Reason, Wakeup};
pub use cpus::{Cpus, Recent, Rules, Version, WakeError, nr_idle_scan, scan_cost};
pub use layout::{DomainId, Flags, Image, Layout, LayoutBuilder, LayoutError, MAX_CPUS, SharedId};
pub use raw::Task;
