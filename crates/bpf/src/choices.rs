//! The fair class's own choices of CPUs, watched: what it looked at, and what came out.
//!
//! ```text
//!  select_task_rq_fair ── fentry, fexit ──▶ ring ──take──▶ Record { before, after, chosen }
//! ```
//!
//! It knows no rule: who wants to know whether the header would have chosen the same asks it.
//!
//! Source: specs/wake.md#parity.

use crate::{objects, words};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, RingBufferBuilder};
use std::cell::RefCell;
use std::rc::Rc;

/// CPUs that are looked at, from 0 on.
pub const CPUS: usize = 8;

/// Why nothing is watched.
#[derive(Debug, thiserror::Error)]
#[error("the kernel's choices can't be watched: {step}{}", words::why(source, log))]
pub struct ChoicesError {
    step: &'static str,
    log: Vec<String>,
    #[source]
    source: libbpf_rs::Error,
}

fn refused(step: &'static str) -> impl FnOnce(libbpf_rs::Error) -> ChoicesError {
    move |source| ChoicesError { step, log: words::taken(), source }
}

/// A CPU, as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenCpu {
    /// `load_avg` of its root queue.
    pub load: u64,
    /// Its tasks.
    pub nr_running: u32,
    /// Those whose dequeue is delayed.
    pub nr_delayed: u32,
    /// Its capacity.
    pub capacity: u32,
    /// Whether it is available idle.
    pub idle: bool,
    /// Whether all its tasks are SCHED_IDLE.
    pub sched_idle: bool,
    /// `has_idle_cores` of its LLC.
    pub has_idle_core: bool,
    /// `nr_idle_scan` of its LLC.
    pub nr_idle_scan: u32,
}

/// A task, as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenTask {
    /// `wakee_flip_decay_ts`.
    pub decay_jiffies: u64,
    /// Its load.
    pub load: u64,
    /// `wakee_flips`.
    pub flips: u32,
    /// The number of `last_wakee`.
    pub last_wakee: u32,
    /// `recent_used_cpu`.
    pub recent: u32,
    /// `PF_*`.
    pub flags: u32,
}

/// All that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// CPUs from 0 on.
    pub cpus: [SeenCpu; CPUS],
    /// The waker.
    pub waker: SeenTask,
    /// The wakee.
    pub wakee: SeenTask,
}

/// A wake-up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Now.
    pub jiffies: u64,
    /// CPUs 0 to 63 that the wakee may run on.
    pub allowed: u64,
    /// The waker's CPU.
    pub here: u32,
    /// The wakee's.
    pub prev: u32,
    /// `WF_*`.
    pub wake_flags: u32,
    /// What the kernel chose.
    pub chosen: u32,
    /// The wakee's number.
    pub wakee_number: u32,
    /// CPUs that the wakee may run on.
    pub nr_allowed: u32,
    /// The same of the waker.
    pub waker_nr_allowed: u32,
    /// The wakee's policy.
    pub wakee_policy: u32,
    /// Before the choice.
    pub before: Look,
    /// After it.
    pub after: Look,
}

/// Numbers out of the program's bytes, one after the other.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*first))
    }
    fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*first))
    }
    fn cpu(&mut self) -> Option<SeenCpu> {
        let (load, nr_running, nr_delayed) = (self.u64()?, self.u32()?, self.u32()?);
        let (capacity, is) = (self.u32()?, self.u32()?);
        Some(SeenCpu {
            load,
            nr_running,
            nr_delayed,
            capacity,
            idle: is & 1 != 0,
            sched_idle: is & 2 != 0,
            has_idle_core: self.u32()? != 0,
            nr_idle_scan: self.u32()?,
        })
    }
    fn task(&mut self) -> Option<SeenTask> {
        Some(SeenTask {
            decay_jiffies: self.u64()?,
            load: self.u64()?,
            flips: self.u32()?,
            last_wakee: self.u32()?,
            recent: self.u32()?,
            flags: self.u32()?,
        })
    }
    fn look(&mut self) -> Option<Look> {
        let mut cpus = [SeenCpu::default(); CPUS];
        for cpu in &mut cpus {
            *cpu = self.cpu()?;
        }
        Some(Look { cpus, waker: self.task()?, wakee: self.task()? })
    }
}

impl Record {
    /// Of `struct record`; nothing of too few bytes.
    fn of(bytes: &[u8]) -> Option<Self> {
        let mut b = Bytes(bytes);
        Some(Self {
            jiffies: b.u64()?,
            allowed: b.u64()?,
            here: b.u32()?,
            prev: b.u32()?,
            wake_flags: b.u32()?,
            chosen: b.u32()?,
            wakee_number: b.u32()?,
            nr_allowed: b.u32()?,
            waker_nr_allowed: b.u32()?,
            wakee_policy: b.u32()?,
            before: b.look()?,
            after: b.look()?,
        })
    }
}

/// Whoever watches. Fields are dropped from the first to the last.
pub struct Watched {
    _links: Vec<Link>,
    ring: libbpf_rs::RingBuffer<'static>,
    taken: Rc<RefCell<Vec<Record>>>,
    lost: MapHandle,
    _object: Object,
}

impl Watched {
    /// Watches from now on.
    ///
    /// * `nr_cpus` – how many CPUs there are, at most [`CPUS`].
    ///
    /// # Errors
    /// With what the kernel said.
    pub fn start(nr_cpus: u32) -> Result<Self, ChoicesError> {
        words::listen();
        let mut builder = ObjectBuilder::default();
        builder.name("choices").map_err(refused("open"))?;
        let mut open = builder.open_memory(objects::CHOICES).map_err(refused("open"))?;
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata") {
                map.set_initial_value(&nr_cpus.to_ne_bytes()).map_err(refused("settings"))?;
            }
        }
        let object = open.load().map_err(refused("load"))?;
        let handle = |name: &str| {
            let found = object.maps().find(|m| m.name() == name);
            let absent = || libbpf_rs::Error::from_raw_os_error(2);
            let found = found.ok_or_else(absent).map_err(refused("its maps"))?;
            MapHandle::try_from(&found).map_err(refused("its maps"))
        };
        let (ring, lost) = (handle("ring")?, handle("lost")?);
        let taken = Rc::new(RefCell::new(Vec::new()));
        let filled = Rc::clone(&taken);
        let mut builder = RingBufferBuilder::new();
        let push = move |bytes: &[u8]| {
            filled.borrow_mut().extend(Record::of(bytes));
            0
        };
        builder.add(&ring, push).map_err(refused("its ring"))?;
        let ring = builder.build().map_err(refused("its ring"))?;
        let links = object.progs_mut().map(|p| p.attach_trace()).collect::<Result<_, _>>();
        let links = links.map_err(refused("attach"))?;
        Ok(Self { _links: links, ring, taken, lost, _object: object })
    }

    /// What came since the last time, oldest first.
    ///
    /// # Errors
    /// What libbpf said.
    pub fn take(&mut self) -> Result<Vec<Record>, ChoicesError> {
        self.ring.consume().map_err(refused("read"))?;
        Ok(self.taken.take())
    }

    /// Wake-ups that found the ring full.
    ///
    /// # Errors
    /// What libbpf said.
    pub fn lost(&self) -> Result<u64, ChoicesError> {
        let each = self.lost.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let each = each.map_err(refused("its losses"))?.unwrap_or_default();
        let count = |b: &Vec<u8>| b.first_chunk().map_or(0, |b| u64::from_ne_bytes(*b));
        Ok(each.iter().map(count).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 48 bytes of numbers, then two looks of 8 CPUs of 32 bytes and two tasks of 32.
    #[test]
    fn a_record_is_read_number_by_number() {
        let mut bytes: Vec<u8> = vec![0; 48 + 2 * (CPUS * 32 + 64)];
        bytes[16..20].copy_from_slice(&3_u32.to_ne_bytes());
        bytes[28..32].copy_from_slice(&2_u32.to_ne_bytes());
        bytes[48..56].copy_from_slice(&700_u64.to_ne_bytes());
        bytes[68..72].copy_from_slice(&1_u32.to_ne_bytes());
        let record = Record::of(&bytes).unwrap();
        assert_eq!((record.here, record.chosen), (3, 2));
        assert_eq!((record.before.cpus[0].load, record.before.cpus[0].idle), (700, true));
        assert_eq!(Record::of(&bytes[1..]), None);
    }

    #[test]
    fn the_object_opens() {
        assert!(ObjectBuilder::default().open_memory(objects::CHOICES).is_ok());
    }
}
