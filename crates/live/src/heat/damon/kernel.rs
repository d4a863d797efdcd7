//! The kernel as DAMON's user meets it: files, a stream of regions, processes.

use super::error::DamonError;
use super::record::{Format, Record};
use crate::machine;
use crate::people::stat::start_of;
use crate::place::Place;
use homenode_core::units::Picos;
use perf_event::events::Tracepoint;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;

/// DAMON's own part of sysfs.
pub(super) const FOLDER: &str = "/sys/kernel/mm/damon/admin/kdamonds";
/// Where the tracepoint describes itself, wherever tracefs is mounted.
const FORMATS: [&str; 2] = [
    "/sys/kernel/tracing/events/damon/damon_aggregated/format",
    "/sys/kernel/debug/tracing/events/damon/damon_aggregated/format",
];
/// Bytes of the ring between DAMON's thread and us. A record takes some 80: a thousand
/// regions ten times a second fill half of it in 0.7 s, and then we are woken.
const RING: usize = 1 << 20;

/// Files below `kdamonds`.
pub(super) trait Files {
    /// The text of one, without blanks at its ends.
    fn read(&self, name: &str) -> io::Result<String>;
    /// Writes one.
    fn write(&self, name: &str, text: &str) -> io::Result<()>;
}

/// What is asked of a kernel.
pub(super) trait Kernel: Files {
    /// When a process was started, in clock ticks since boot; `None` if it is gone.
    fn start_of(&self, pid: u32) -> Option<u64>;
    /// Processor time of a thread; `None` if it is gone.
    fn ran(&self, pid: u32) -> Option<Picos>;
    /// What DAMON's thread of that number tells from now on.
    fn tap(&self, thread: u32) -> io::Result<Box<dyn Tap>>;
    /// `CLOCK_MONOTONIC` in nanoseconds.
    fn now_ns(&self) -> u64;
}

/// What comes from DAMON's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// A region.
    Region(Record),
    /// So many regions are missing here.
    Lost(u64),
}

/// The stream of what DAMON's thread tells.
pub(super) trait Tap {
    /// Takes all there is, oldest first.
    fn drain(&mut self, out: &mut Vec<Told>);
    /// A descriptor that can be read when there is much.
    fn fd(&self) -> Option<RawFd>;
}

/// The files of a machine.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn at(place: &Place) -> Self {
        Self(place.path(FOLDER))
    }
}

impl Files for Folder {
    fn read(&self, name: &str) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(self.0.join(name))?).trim().to_owned())
    }
    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        // In one call: the kernel takes each as a whole value.
        fs::File::options().write(true).open(self.0.join(name))?.write_all(text.as_bytes())
    }
}

/// The kernel that runs us.
#[derive(Debug)]
pub(super) struct Real {
    place: Place,
    files: Folder,
    format: Format,
}

impl Real {
    /// Finds the tracepoint, and tries whether it is passed on.
    pub(super) fn find(place: &Place) -> Result<Self, DamonError> {
        let paths = FORMATS.map(|f| place.path(f));
        let path = paths.iter().find(|p| p.exists()).unwrap_or(&paths[0]);
        let text = fs::read_to_string(path)
            .map_err(|source| DamonError::NoTrace { path: path.clone(), source })?;
        let format = Format::parse(&text)
            .map_err(|what| DamonError::OddTrace { path: path.clone(), what })?;
        let real = Self { place: place.clone(), files: Folder::at(place), format };
        // For ourselves, where it never happens.
        real.open(std::process::id()).map_err(DamonError::Perf)?;
        Ok(real)
    }
    fn open(&self, thread: u32) -> io::Result<Sampler> {
        let thread = i32::try_from(thread).map_err(io::Error::other)?;
        Builder::new(Tracepoint::with_id(self.format.id))
            .observe_pid(thread)
            .any_cpu()
            .include_kernel()
            .include_hv()
            .sample_period(1)
            .sample(SampleFlag::TIME | SampleFlag::RAW)
            // perf takes only clocks that an NMI may read: CLOCK_BOOTTIME is EINVAL.
            .clockid(Clock::MONOTONIC)
            .wakeup_watermark(RING / 2)
            .build()?
            .sampled(RING)
    }
}

impl Files for Real {
    fn read(&self, name: &str) -> io::Result<String> {
        self.files.read(name)
    }
    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        self.files.write(name, text)
    }
}

impl Kernel for Real {
    fn start_of(&self, pid: u32) -> Option<u64> {
        start_of(&self.place, pid)
    }
    fn ran(&self, pid: u32) -> Option<Picos> {
        let path = self.place.path(&format!("/proc/{pid}/schedstat"));
        let text = fs::read_to_string(path).ok()?;
        let ns: u64 = text.split_ascii_whitespace().next()?.parse().ok()?;
        Some(Picos(ns.saturating_mul(1000)))
    }
    fn tap(&self, thread: u32) -> io::Result<Box<dyn Tap>> {
        let mut ring = self.open(thread)?;
        ring.enable()?;
        Ok(Box::new(Ring { ring, format: self.format }))
    }
    fn now_ns(&self) -> u64 {
        machine::time_of(libc::CLOCK_MONOTONIC).as_nanos() as u64
    }
}

struct Ring {
    ring: Sampler,
    format: Format,
}

impl Tap for Ring {
    fn drain(&mut self, out: &mut Vec<Told>) {
        // What is written meanwhile is for the next time: this ends.
        for _ in 0..RING / 8 {
            let Some(record) = self.ring.next_record() else { break };
            match record.parse_record() {
                Ok(perf_event::data::Record::Sample(sample)) => {
                    let region = sample.raw().and_then(|raw| self.format.record(raw));
                    out.push(match (region, sample.time()) {
                        (Some(region), Some(at)) => Told::Region(Record { at, ..region }),
                        _ => Told::Lost(1),
                    });
                }
                Ok(perf_event::data::Record::Lost(gap)) => out.push(Told::Lost(gap.lost)),
                // Such as that it was throttled, which a tracepoint isn't.
                _ => {}
            }
        }
    }
    fn fd(&self) -> Option<RawFd> {
        Some(self.ring.as_raw_fd())
    }
}
