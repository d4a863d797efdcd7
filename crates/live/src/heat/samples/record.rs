//! What a record of perf's ring says, as far as it matters here.
//!
//! A record is a header of 8 bytes (kind, flags, size of the whole) and what its kind has.
//! A sample as it is asked for: PID and thread (4 bytes each), time, address, period (8
//! each); and where the kernel gives them how long it took, who answered, and the physical address.
//! perf-event-data reads them; what is too short for its kind, or odd in another
//! way, is as good as lost.

use homenode_core::units::PAGE_SIZE;
use perf_event::data::endian::Native;
use perf_event::data::parse::{ParseConfig, Parser};
use perf_event::data::{
    Lost, LostSamples, MemLevel, MemOp, RecordMetadata, Sample, Throttle, Visitor,
};
use perf_event_open_sys::bindings::{
    PERF_RECORD_MISC_CPUMODE_MASK, PERF_RECORD_MISC_GUEST_KERNEL, PERF_RECORD_MISC_GUEST_USER,
    perf_event_header,
};

/// A memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    /// perf's clock, in ns; it is the same on all CPUs but for what they differ.
    pub(super) time: u64,
    /// Whose.
    pub(super) pid: u32,
    /// The page.
    pub(super) vpn: u64,
    /// For how many accesses it stands.
    pub(super) period: u64,
    /// What answered it, if that was memory and is told.
    pub(super) answered: Option<Answered>,
}

/// A load that memory answered, and no cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    /// The frame.
    pub(super) frame: u64,
    /// How long it took, in cycles of the core.
    pub(super) cycles: u64,
}

/// Numbers of `mem_lvl_num` that mean memory: CXL's, RAM, and persistent one's.
const MEMORY: [u64; 3] = [0x09, 0x0d, 0x0e];

/// Source: specs/live.md#latencies.
fn answered(sample: &Sample<'_>) -> Option<Answered> {
    let (cycles, address) = (sample.weight()?, sample.phys_addr()?);
    let from = sample.data_src()?;
    let memory = MemLevel::LOC_RAM | MemLevel::REM_RAM1 | MemLevel::REM_RAM2;
    let by_memory =
        from.mem_lvl().intersects(memory) || MEMORY.contains(&u64::from(from.mem_lvl_num().0));
    let load = from.mem_op().contains(MemOp::LOAD);
    let told = load && by_memory && cycles > 0 && address > 0;
    told.then_some(Answered { frame: address / PAGE_SIZE, cycles })
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// An access.
    Access(Access),
    /// So many events at least are missing.
    Lost(u64),
    /// Nothing of interest.
    Nothing,
}

struct Reader;

impl<'a> Visitor<'a> for Reader {
    type Output = Told;

    fn visit_unimplemented(self, _: RecordMetadata) -> Told {
        Told::Nothing
    }
    fn visit_lost(self, record: Lost, _: RecordMetadata) -> Told {
        Told::Lost(record.lost)
    }
    fn visit_lost_samples(self, record: LostSamples, _: RecordMetadata) -> Told {
        Told::Lost(record.lost)
    }
    /// How many are left out until the CPU is let go again, nobody counts.
    fn visit_throttle(self, _: Throttle, _: RecordMetadata) -> Told {
        Told::Lost(1)
    }
    fn visit_sample(self, sample: Sample<'a>, about: RecordMetadata) -> Told {
        let mode = u32::from(about.misc()) & PERF_RECORD_MISC_CPUMODE_MASK;
        let guest = [PERF_RECORD_MISC_GUEST_KERNEL, PERF_RECORD_MISC_GUEST_USER].contains(&mode);
        match (sample.pid(), sample.time(), sample.addr(), sample.period()) {
            // The upper half is the kernel's, on all machines that we know.
            (Some(pid), Some(time), Some(addr), period)
                if addr != 0 && addr >> 63 == 0 && !guest =>
            {
                let period = period.unwrap_or(1).max(1);
                let answered = answered(&sample);
                Told::Access(Access { time, pid, vpn: addr / PAGE_SIZE, period, answered })
            }
            _ => Told::Nothing,
        }
    }
}

/// Reads a record: its kind, its flags, and what follows the header.
pub(super) fn read(config: &ParseConfig<Native>, kind: u32, flags: u16, body: &[u8]) -> Told {
    let Ok(size) = u16::try_from(size_of::<perf_event_header>() + body.len()) else {
        return Told::Lost(1);
    };
    let header = perf_event_header { type_: kind, misc: flags, size };
    let mut parser = Parser::new(body, config.clone());
    parser.parse_record_with_header(Reader, header).unwrap_or(Told::Lost(1))
}
