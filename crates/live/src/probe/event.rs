//! An event, and opening a group of them: what the probe tries and what sampling uses.

use perf_event::{Builder, Counter, ReadFormat, SampleFlag};
use std::io;

/// An event as `perf_event_open(2)` takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// The PMU's number.
    pub kind: u32,
    /// Which event, as the PMU's format has it.
    pub config: u64,
    /// More of it.
    pub config1: u64,
    /// More of it.
    pub config2: u64,
    /// How exact the address must be, 0 to 3.
    pub precise: u8,
    /// Whether the kernel's own accesses are left out, which some PMUs can't.
    pub user_only: bool,
    /// One access in so many is sampled with its address; 0 is none, it is only counted.
    pub period: u64,
    /// Whether samples go in a form of the PMU's own into an area of their own, which
    /// homenode does not read.
    pub aux: bool,
}

/// Parts of a sample.
pub(crate) const SAMPLE: SampleFlag =
    SampleFlag::TID.union(SampleFlag::TIME).union(SampleFlag::ADDR).union(SampleFlag::PERIOD);

/// How long an access took, who answered it, and at which physical address.
///
/// Source: specs/live.md#latencies.
pub(crate) const LATENCY: SampleFlag =
    SampleFlag::WEIGHT.union(SampleFlag::DATA_SRC).union(SampleFlag::PHYS_ADDR);

impl perf_event::events::Event for Event {
    fn update_attrs(self, attr: &mut perf_event_open_sys::bindings::perf_event_attr) {
        attr.type_ = self.kind;
        attr.config = self.config;
        attr.config1 = self.config1;
        attr.config2 = self.config2;
    }
}

/// Whose events are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// Of all processes, on that CPU.
    Cpu(usize),
    /// Of that thread and of those that it will begin, theirs included, on any CPU; of no other
    /// process. 0 is the calling thread.
    Thread(u32),
}

/// Opens events as one group, the first leading, switched off: for the probe, for sampling and for
/// counting alike. A sample tells thread, time, address and period; the counts of a thread's are
/// read together ([`Counter::read_group`]), those of threads that it began added.
///
/// * `more` – what it tells besides; a kernel that knows no such thing, or shows it to others only,
///   refuses the event.
/// * `wake` – bytes in the ring at which its reader is woken.
pub(crate) fn open_group(
    group: &[Event],
    more: SampleFlag,
    on: On,
    wake: usize,
) -> io::Result<Vec<Counter>> {
    let mut open: Vec<Counter> = Vec::new();
    for event in group {
        let mut builder = Builder::new(*event);
        match on {
            On::Cpu(cpu) => builder.any_pid().one_cpu(cpu),
            On::Thread(tid) => {
                let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
                builder.observe_pid(tid.try_into().unwrap_or(i32::MAX)).any_cpu();
                builder.inherit(true).inherit_thread(true).read_format(times | ReadFormat::GROUP)
            }
        };
        builder.exclude_kernel(event.user_only).exclude_hv(event.user_only);
        // A guest would have to help with exact samples of it.
        builder.exclude_guest(event.precise > 0);
        builder.attrs_mut().set_precise_ip((event.precise & 3).into());
        if event.period > 0 {
            builder.sample_period(event.period).wakeup_watermark(wake).sample(SAMPLE | more);
        }
        let opened = match open.first_mut() {
            None => builder.build()?,
            Some(leader) => builder.build_with_group(leader)?,
        };
        open.push(opened);
    }
    Ok(open)
}

/// What an error of `perf_event_open(2)` means, for people.
pub fn meaning(errno: i32) -> &'static str {
    match errno {
        libc::EACCES | libc::EPERM => "not privileged: see kernel.perf_event_paranoid",
        libc::ENOENT => "no PMU here has this event",
        libc::EOPNOTSUPP => "the CPU or the hypervisor does not offer it",
        libc::ENODEV => "no such PMU on this CPU",
        libc::EBUSY => "somebody else has the PMU for himself",
        libc::EINVAL => "the kernel does not take it in this form",
        libc::ENOSYS => "this kernel has no perf events, or a container's filter hides them",
        libc::EMFILE => "too many files are open",
        _ => "an error that this call does not document",
    }
}
