//! Rings that the kernel fills, one per CPU.

use super::record::{self, Told};
use super::{Kind, SamplesError};
use crate::heat::epoll::Epoll;
use crate::probe::{LATENCY, On, open_group};
use homenode_core::units::{NodeId, PAGE_SIZE};
use perf_event::data::endian::Native;
use perf_event::data::parse::ParseConfig;
use perf_event::{Counter, SampleFlag, Sampler};
use perf_event_open_sys::bindings as sys;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// The least size of a record.
const RECORD_LEAST: usize = 8;

/// A CPU's event and its ring. Both are closed when it is dropped.
struct Ring {
    node: NodeId,
    sampler: Sampler,
    /// What leads its group, if it isn't alone.
    leader: Option<Counter>,
    config: ParseConfig<Native>,
    on: bool,
}

impl Ring {
    fn switch(&mut self, on: bool) -> io::Result<()> {
        if self.on != on {
            match (&mut self.leader, on) {
                (Some(leader), true) => leader.enable_group()?,
                (Some(leader), false) => leader.disable_group()?,
                (None, true) => self.sampler.enable()?,
                (None, false) => self.sampler.disable()?,
            }
            self.on = on;
        }
        Ok(())
    }

    /// Samples one in `period` from now on. IBS takes whole sixteens only.
    fn sample_every(&self, period: u64) -> io::Result<()> {
        let set = |mut period: u64| {
            // SAFETY: the kernel reads a number of 64 bits that outlives the call.
            let r =
                unsafe { libc::ioctl(self.sampler.as_raw_fd(), sys::PERIOD as _, &raw mut period) };
            if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        };
        set(period).or_else(|_| set(period & !15))
    }
}

/// All rings, and what wakes when one of them is half full.
pub(super) struct Rings {
    rings: BTreeMap<u32, Ring>,
    bytes: usize,
    epoll: Epoll,
    /// One in how many is sampled, where it is not what the event was opened with.
    period: Option<u64>,
}

impl Rings {
    /// Rings of so many bytes, rounded up to a power of two of pages.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.next_power_of_two().max(PAGE_SIZE as usize);
        Ok(Self { rings: BTreeMap::new(), bytes, epoll: Epoll::new()?, period: None })
    }
    pub(super) fn is_empty(&self) -> bool {
        self.rings.is_empty()
    }
    pub(super) fn has(&self, cpu: u32) -> bool {
        self.rings.contains_key(&cpu)
    }
    /// Closes the rings of all other CPUs.
    pub(super) fn keep(&mut self, cpus: impl Fn(u32) -> bool) {
        // What is closed leaves the epoll by itself.
        self.rings.retain(|&cpu, _| cpus(cpu));
    }
    pub(super) fn wakes(&self) -> RawFd {
        self.epoll.fd()
    }

    /// Opens the first kind of event that the CPU has, switched off: with latencies where the
    /// kernel gives them.
    pub(super) fn open(
        &mut self,
        cpu: u32,
        node: NodeId,
        kinds: &[Kind],
    ) -> Result<(), SamplesError> {
        let mut failed = SamplesError::NoEvent;
        for (name, group) in kinds {
            let open = |more| open_group(group, more, On::Cpu(cpu as usize), self.bytes / 2);
            match open(LATENCY).or_else(|_| open(SampleFlag::empty())) {
                Ok(counters) => {
                    let bytes = self.bytes;
                    let ring = |source| SamplesError::Ring { bytes, cpu, source };
                    return self.add(cpu, node, counters).map_err(ring);
                }
                Err(source) => failed = cause(name, cpu, source),
            }
        }
        Err(failed)
    }
    /// The last of a group is the one that samples.
    fn add(&mut self, cpu: u32, node: NodeId, mut group: Vec<Counter>) -> io::Result<()> {
        let Some(counter) = group.pop() else { return Ok(()) };
        let config = counter.config().clone();
        let sampler = counter.sampled(self.bytes)?;
        self.epoll.add(sampler.as_raw_fd(), 0)?;
        let leader = group.into_iter().next();
        let ring = Ring { node, sampler, leader, config, on: false };
        if let Some(period) = self.period {
            // As it was opened, if that is refused: each sample says what it stands for.
            let _ = ring.sample_every(period);
        }
        self.rings.insert(cpu, ring);
        Ok(())
    }

    /// Switches those on or off that are not so yet.
    pub(super) fn switch(&mut self, on: bool) -> io::Result<()> {
        self.rings.values_mut().try_for_each(|ring| ring.switch(on))
    }

    /// Samples one in `period` from now on, on CPUs that come later too.
    ///
    /// # Errors
    /// A kernel that refuses; there it stays as it was, and each sample says what it stands for.
    pub(super) fn sample_every(&mut self, period: u64) -> io::Result<()> {
        if self.period == Some(period) {
            return Ok(());
        }
        self.period = Some(period);
        let mut all = Ok(());
        // One that refuses keeps none of the others from it.
        for ring in self.rings.values() {
            all = all.and(ring.sample_every(period));
        }
        all
    }

    /// Empties the rings, CPU by CPU. Of each no more than it can hold: the kernel may write
    /// as fast as we read.
    pub(super) fn drain(&mut self, mut each: impl FnMut(NodeId, Told)) {
        for ring in self.rings.values_mut() {
            for _ in 0..self.bytes / RECORD_LEAST {
                let Some(record) = ring.sampler.next_record() else { break };
                let body = record.to_contiguous();
                each(ring.node, record::read(&ring.config, record.ty(), record.misc(), &body));
            }
        }
    }
}

fn cause(name: &str, cpu: u32, source: io::Error) -> SamplesError {
    let name = name.to_owned();
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => SamplesError::Refused { name, cpu, source },
        _ => SamplesError::Open { name, cpu, source },
    }
}
