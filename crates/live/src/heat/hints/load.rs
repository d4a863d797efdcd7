//! The BPF program in the kernel: loaded, attached, read.
//!
//! All of it hangs on descriptors of this process: when they are closed, by whatever end
//! it takes, the program and its maps are gone.
//!
//! Source: specs/live.md#hint-fault.

use super::error::HintsError;
use super::layout::{FUNCTION, Layout};
use super::record::Taken;
use super::wake;
use crate::heat::epoll::Epoll;
use homenode_bpf::{objects, words};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, RingBuffer, RingBufferBuilder,
};
use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::rc::Rc;

/// Places for records in the ring.
pub(super) const RECORDS: usize = 16_384;

/// Names in the object.
const PROGRAM: &str = "hint_fault";
const SETTINGS: &str = ".rodata";

fn refused(step: &'static str) -> impl FnOnce(libbpf_rs::Error) -> HintsError {
    move |source| HintsError::Refused { step, log: words::taken(), source }
}

/// The program at work. Fields are dropped from the first to the last.
pub(super) struct Loaded {
    _link: Link,
    ring: RingBuffer<'static>,
    taken: Rc<RefCell<Taken>>,
    wake: Epoll,
    watched: MapHandle,
    lost: MapHandle,
    /// Losses that were told already.
    told: u64,
    object: Object,
}

impl Loaded {
    /// Loads it and attaches it.
    ///
    /// # Errors
    /// With what the kernel said.
    pub(super) fn load(layout: &Layout) -> Result<Self, HintsError> {
        words::listen();
        let mut builder = ObjectBuilder::default();
        builder.name("hints").map_err(refused("opened"))?;
        let mut open = builder.open_memory(objects::HINTS).map_err(refused("opened"))?;
        let settings = layout.settings();
        for mut map in open.maps_mut() {
            if map.name().to_str().is_some_and(|n| n.ends_with(SETTINGS)) {
                map.set_initial_value(&settings).map_err(refused("told the kernel's layout"))?;
            }
        }
        for mut program in open.progs_mut() {
            program
                .set_attach_target(0, Some(FUNCTION.to_owned()))
                .map_err(refused("pointed at the function of hint faults"))?;
        }
        let object = open.load().map_err(refused("loaded"))?;
        let taken = Rc::new(RefCell::new(Taken::default()));
        let map = |name: &str| {
            let found = object.maps().find(|m| m.name() == name);
            let found = found.ok_or_else(|| absent(name));
            MapHandle::try_from(&found?).map_err(refused("asked for its maps"))
        };
        let (ring, watched, lost) = (map("ring")?, map("watched")?, map("lost")?);
        let wake = wake::on(ring.as_fd())?;
        let mut builder = RingBufferBuilder::new();
        let filled = Rc::clone(&taken);
        let push = move |bytes: &[u8]| {
            filled.borrow_mut().push(bytes);
            0
        };
        builder.add(&ring, push).map_err(refused("given a ring"))?;
        let ring = builder.build().map_err(refused("given a ring"))?;
        let program = object.progs_mut().find(|p| p.name() == PROGRAM);
        let program = program.ok_or_else(|| absent(PROGRAM))?;
        let link = program.attach_trace().map_err(refused("attached"))?;
        Ok(Self { _link: link, ring, taken, wake, watched, lost, told: 0, object })
    }

    /// Whether the process is watched from now on: not if there are too many.
    pub(super) fn watch(&mut self, tgid: u32, start: u64) -> bool {
        let (key, value) = (tgid.to_ne_bytes(), start.to_ne_bytes());
        self.watched.update(&key, &value, MapFlags::ANY).is_ok()
    }
    /// The process is not watched any more.
    pub(super) fn unwatch(&mut self, tgid: u32) {
        // That it is gone already is what was wanted.
        let _ = self.watched.delete(&tgid.to_ne_bytes());
    }

    /// What came since the last time, oldest first; at most twice what the ring holds.
    ///
    /// # Errors
    /// What libbpf said.
    pub(super) fn take(&mut self) -> Result<Taken, HintsError> {
        self.wake.clear();
        let n = self.ring.consume_raw_n(2 * RECORDS);
        if n < 0 {
            return Err(refused("read")(libbpf_rs::Error::from_raw_os_error(-n)));
        }
        Ok(self.taken.take())
    }

    /// Faults that found the ring full since the last time.
    ///
    /// # Errors
    /// What libbpf said.
    pub(super) fn lost(&mut self) -> Result<u64, HintsError> {
        let each = self.lost.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let each = each.map_err(refused("asked for its losses"))?.unwrap_or_default();
        let count = |b: &Vec<u8>| b.first_chunk().map_or(0, |b| u64::from_ne_bytes(*b));
        let all: u64 = each.iter().map(count).sum();
        let new = all.saturating_sub(self.told);
        self.told = all;
        Ok(new)
    }

    pub(super) fn wakes(&self) -> RawFd {
        self.wake.fd()
    }

    /// A number that the kernel shows of the program, such as `run_time_ns`.
    pub(super) fn shown(&self, name: &str) -> Option<u64> {
        let program = self.object.progs_mut().find(|p| p.name() == PROGRAM)?;
        let info = format!("/proc/self/fdinfo/{}", program.as_fd().as_raw_fd());
        let text = std::fs::read_to_string(info).ok()?;
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().parse().ok()
    }
}

fn absent(name: &str) -> HintsError {
    HintsError::Unknown { what: format!("homenode's own BPF object has no `{name}`") }
}
