//! Events that count loads that missed the first level while they are under way: which a CPU has.
//!
//! ```text
//! four counters of one group        cycles      while the thread runs, in the kernel too
//!                                   under way   of the program: misses under way, cycle by cycle
//!                                   busy        cycles in which at least one was
//!                                   loads       that missed
//! ```
//!
//! Worked example: of 1000 cycles 400 had eight misses under way and 600 none. Then 3200 are
//! counted under way, and 400 busy: 8 at once.
//!
//! Source: specs/live.md#loads.

use super::calls::Calls;
use super::event::{Event, meaning};
use super::root::Root;
use std::fmt;

/// perf's number for the CPU's own events, and where an x86 CPU's are told in them.
const RAW: u32 = 4;
const fn raw(event: u64, mask: u64, at_least: u64) -> u64 {
    event | mask << 8 | at_least << 24
}

/// Events that count loads, or why there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LoadEvents {
    /// The CPU has them, but no PMU is shown.
    #[default]
    NoPmu,
    /// None are known for this CPU.
    Unknown,
    /// These, in the order above; they were not tried.
    Untried(Vec<Event>),
    /// These did not open: the error number.
    Failed(i32),
    /// These open.
    Opens(Vec<Event>),
}

impl fmt::Display for LoadEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opens(_) => f.write_str("counted"),
            Self::NoPmu => f.write_str("not counted (no PMU)"),
            Self::Unknown => f.write_str("not counted (no events for it are known of this CPU)"),
            Self::Untried(_) => f.write_str("not tried"),
            Self::Failed(e) => write!(f, "not counted (error {e}: {})", meaning(*e)),
        }
    }
}

/// Who made a CPU, and which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cpu<'a> {
    vendor: &'a str,
    family: u32,
    model: u32,
}

impl<'a> Cpu<'a> {
    /// The first one of a `/proc/cpuinfo`.
    fn parse(text: &'a str) -> Option<Self> {
        let field = |name| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
        };
        let number = |name| field(name)?.parse().ok();
        Some(Self {
            vendor: field("vendor_id")?,
            family: number("cpu family")?,
            model: number("model")?,
        })
    }

    /// The events under way, busy, and loads, as numbers of the CPU's own.
    fn events(self) -> Option<[u64; 3]> {
        let Self { vendor, family, model } = self;
        match (vendor, family) {
            // Skylake to Granite Rapids whose cores are all of one kind. Before, only one of a
            // core's counters could count the first two.
            ("GenuineIntel", 6) => {
                let known = matches!(
                    model,
                    0x4e | 0x5e | 0x8e | 0x9e | 0xa5 | 0xa6 // Skylake and what is like it
                    | 0x55 // Skylake, Cascade Lake, Cooper Lake for servers
                    | 0x7d | 0x7e | 0x6a | 0x6c | 0x8c | 0x8d | 0xa7 // Ice, Tiger, Rocket Lake
                    | 0x8f | 0xcf | 0xad | 0xae // Sapphire, Emerald, Granite Rapids
                );
                known.then_some([raw(0x48, 1, 0), raw(0x48, 1, 1), raw(0xd1, 8, 0)])
            }
            // Zen 4 and 5. Zen 3 counts the first in fours, Zen 1 and 2 have none.
            ("AuthenticAMD", 0x19) if matches!(model, 0x10..=0x1f | 0x60..=0xaf) => Some(AMD),
            ("AuthenticAMD", 0x1a) if matches!(model, 0..=0x2f | 0x40..=0x4f | 0x60..=0x7f) => {
                Some(AMD)
            }
            _ => None,
        }
    }
}

const AMD: [u64; 3] = [raw(0x5f, 0, 0), raw(0x5f, 0, 1), raw(0x43, 0xff, 0)];

/// Finds the CPU's events, and tries them.
pub(super) fn look(root: &Root, devices: &[String], calls: &dyn Calls) -> LoadEvents {
    let text = root.text("proc/cpuinfo").unwrap_or_default();
    let Some(events) = Cpu::parse(&text).and_then(Cpu::events) else {
        return LoadEvents::Unknown;
    };
    if !devices.iter().any(|d| d == "cpu") {
        return LoadEvents::NoPmu;
    }
    let counted = |config| Event { kind: RAW, config, user_only: true, ..Event::default() };
    // perf's number for cycles is 0 of hardware's, which are 0. The time in which events count is
    // that of the kernel too, so the cycles are.
    let group: Vec<Event> = [Event::default()].into_iter().chain(events.map(counted)).collect();
    match calls.perf_open(&group) {
        None => LoadEvents::Untried(group),
        Some(Ok(())) => LoadEvents::Opens(group),
        Some(Err(errno)) => LoadEvents::Failed(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(vendor: &str, family: u32, model: u32) -> Option<[u64; 3]> {
        Cpu { vendor, family, model }.events()
    }

    // The encodings of perf's own tables, Linux 6.12, tools/perf/pmu-events/arch/x86.
    #[test]
    fn each_cpu_has_the_events_that_perf_lists_for_it() {
        let intel = Some([0x0148, 0x0100_0148, 0x08d1]);
        // mapfile.csv: skylake, skylakex and cascadelakex, icelake(x), tigerlake, rocketlake,
        // sapphirerapids, emeraldrapids, graniterapids.
        for model in [
            0x4e, 0x5e, 0x8e, 0x9e, 0xa5, 0xa6, 0x55, 0x7d, 0x7e, 0x6a, 0x6c, 0x8c, 0x8d, 0xa7,
            0x8f, 0xcf, 0xad, 0xae,
        ] {
            assert_eq!(events("GenuineIntel", 6, model), intel, "{model:#x}");
        }
        // Sandy Bridge to Broadwell (one counter for both); Alder, Meteor, Lunar Lake (several
        // kinds of cores); Sierra Forest, Grand Ridge, Silvermont, Knights Landing (none); unknown.
        for model in [
            0x2a, 0x2d, 0x3a, 0x3e, 0x3c, 0x3f, 0x45, 0x46, 0x3d, 0x47, 0x4f, 0x56, 0x97, 0x9a,
            0xb7, 0xba, 0xbf, 0xaa, 0xac, 0xbd, 0xaf, 0xb6, 0x37, 0x57, 0xff,
        ] {
            assert_eq!(events("GenuineIntel", 6, model), None, "{model:#x}");
        }
        assert_eq!(events("GenuineIntel", 15, 0x55), None);
        let amd = Some([0x5f, 0x0100_005f, 0xff43]);
        // Zen 4: 25 with models 1x, 6x, 7x, Ax; Zen 5: 26.
        for (family, model) in
            [(25, 0x11), (25, 0x18), (25, 0x61), (25, 0x74), (25, 0xa0), (26, 0x02), (26, 0x44)]
        {
            assert_eq!(events("AuthenticAMD", family, model), amd, "{family} {model:#x}");
        }
        // Zen 3; Zen 1 and 2; unknown.
        for (family, model) in [
            (25, 0x01),
            (25, 0x21),
            (25, 0x44),
            (25, 0x50),
            (23, 0x01),
            (23, 0x31),
            (26, 0x50),
            (27, 1),
        ] {
            assert_eq!(events("AuthenticAMD", family, model), None, "{family} {model:#x}");
        }
        assert_eq!(events("HygonGenuine", 24, 1), None);
    }

    #[test]
    fn the_first_cpu_of_the_list_is_asked() {
        let text = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\n\
                    model name\t: Some: CPU\n\nprocessor\t: 1\nmodel\t\t: 1\n";
        let cpu = Cpu { vendor: "GenuineIntel", family: 6, model: 106 };
        assert_eq!(Cpu::parse(text), Some(cpu));
        assert_eq!(Cpu::parse("CPU implementer\t: 0x41\n"), None);
        assert_eq!(Cpu::parse("vendor_id: x\ncpu family: 6\nmodel: y\n"), None);
    }
}
