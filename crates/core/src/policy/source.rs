//! Sources of heat: one data sheet each.
//!
//! A source is known to everybody else by what it [`Shows`] and by what its sheet says. A
//! new one is a variant with a sheet here, a file in the simulator and one among the live
//! sources; who decides, views or prints does not change.
//!
//! Source: specs/sources.md.

use super::facts::{Facts, Known, Lack, NORMAL, Sampling};
use super::matrix::{Cell, Quality, degraded, exact};
use super::order::Evidence;

crate::named! {
    /// Where heat comes from.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Source {
        /// DAMON's regions: heat and age, neither CPU nor node.
        Damon => "damon",
        /// NUMA hint faults: page, CPU's node, page's node, time since it was marked.
        HintFault => "hint-fault",
        /// Samples of a performance-monitoring unit: page, CPU's node.
        Pmu => "pmu",
        /// No heat at all: where pages are.
        Residency => "residency",
    }
}

/// What a source shows of memory accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// Stretches of memory with how often they were accessed ([`super::seen::Seen::Region`]).
    /// They leave nothing out.
    Regions,
    /// Pages as they are touched, with both nodes ([`super::seen::Seen::Fault`]).
    Faults,
    /// Some of the accesses, with the CPU's node ([`super::seen::Seen::Sample`]).
    Samples,
    /// Nothing.
    Nothing,
}

/// What is to be known of a source.
#[derive(Debug)]
pub struct DataSheet {
    /// What it shows.
    pub shows: Shows,
    /// One line for lists of what can be asked for.
    pub about: &'static str,
    /// What is never told with it. Where pages are can be looked up with any.
    pub lacks: &'static [Evidence],
    /// How well it answers, in the order of [`super::matrix::Decision::ALL`], where a machine
    /// offers everything and has several nodes.
    pub decides: [Cell; 7],
    /// Which source is taken where several decide equally well: the lower one.
    pub rank: u8,
    /// What is missing for it on a machine. What could not be seen is missing too.
    pub missing: fn(&Facts) -> Vec<Lack>,
    /// What it changes for others while it is in use.
    pub disturbs: &'static str,
    /// Knobs that it needs in a simulation, with which the kernel moves nothing itself as
    /// far as the source allows.
    pub knobs: &'static [(&'static str, &'static str)],
    /// What homenode sees through it in a simulation, for captions.
    pub simulated: &'static str,
    /// What to keep in mind of what it tells.
    pub caveat: Option<&'static str>,
    /// What the kernel does with it by itself on a running machine.
    pub beside: Option<&'static str>,
}

impl Source {
    /// Those that show heat.
    pub const HEAT: &'static [Self] = &[Self::Damon, Self::HintFault, Self::Pmu];

    /// Its data sheet.
    pub const fn sheet(self) -> &'static DataSheet {
        SHEETS[self as usize]
    }
    /// What it shows.
    pub const fn shows(self) -> Shows {
        self.sheet().shows
    }
}

/// In the order of [`Source::ALL`].
const SHEETS: [&DataSheet; Source::ALL.len()] = [&DAMON, &HINT_FAULT, &PMU, &RESIDENCY];

const NOT: Cell = Cell { quality: Quality::Unavailable, note: "" };
const BY_CPUS: Cell = degraded("node of the process's CPUs, if it is one");
const UNLOADED: Cell = degraded("unloaded latencies of the machine's file");
const OFF: &[(&str, &str)] = &[("numa_balancing", "0")];

// DAMON's cost is bounded by its regions, so it is taken first; a PMU disturbs nothing of
// memory management, and with hint faults the kernel moves pages too.

static DAMON: DataSheet = DataSheet {
    shows: Shows::Regions,
    about: "DAMON's regions: heat and age of stretches of memory",
    lacks: &[Evidence::Cpu],
    decides: [
        exact(""),
        degraded("regions; a lower bound from 25 to 200 accesses a second and page on"),
        exact("within a region"),
        BY_CPUS,
        exact("when asked"),
        exact(""),
        UNLOADED,
    ],
    rank: 0,
    missing: |facts| {
        let d = &facts.damon;
        let mut out = Vec::new();
        out.extend(built(d.sysfs, "CONFIG_DAMON_SYSFS"));
        out.extend(built(d.vaddr, "CONFIG_DAMON_VADDR"));
        if d.may != Known::Yes {
            out.push(Lack::NotAdmin);
        }
        if d.slots > 0 || d.running > 0 {
            out.push(Lack::SlotTaken { slots: d.slots, running: d.running });
        }
        if d.module {
            out.push(Lack::ModuleHolds);
        }
        out
    },
    disturbs: "clears accessed bits of the pages that it samples: reclaim still learns of them \
               through the folio's young flag, MGLRU's walks and idle page tracking may miss them; \
               a kernel thread checks up to 1000 regions every 5 ms for advice \
               and while memory is moved, else within 1 % of a CPU and every 40 ms at the latest",
    knobs: OFF,
    simulated: "homenode sees DAMON's regions (10 to 1000 of them, checked every 5 to 40 ms) and what /proc \
                shows; DAMON tells neither CPU nor place, so the node of a process's CPUs comes \
                from /proc, and places are looked up",
    caveat: Some(
        "DAMON tells at most 200 accesses a second and page (25 where it checks every 40 ms): of \
         hotter memory the savings are a lower bound. The 512 pages of a huge page share one \
         accessed bit: where few of them are used, savings are too high",
    ),
    beside: None,
};

/// Hint faults come from the kernel's own scan, which needs tiering on. A rate limit of 0
/// refuses its promotions; but a fast node with plenty of room (1 GiB or a sixteenth of it
/// above the promo mark) still takes every page that faults, since the kernel asks for room
/// before it asks for the rate (specs/exceptions/numa-hint-source.md).
static HINT_FAULT: DataSheet = DataSheet {
    shows: Shows::Faults,
    about: "The kernel's hint faults, seen as they happen",
    lacks: &[],
    decides: [
        exact(""),
        degraded("what the scan marks; a lower bound from 250 on"),
        degraded("only what several threads use"),
        exact(""),
        exact(""),
        exact(""),
        UNLOADED,
    ],
    rank: 2,
    missing: |facts| {
        let h = &facts.hints;
        let mut out = Vec::new();
        out.extend(built(h.built, "CONFIG_NUMA_BALANCING"));
        match h.mode {
            // On one node no setting of it would help.
            _ if facts.memory_nodes < 2 => out.push(Lack::OneNode),
            _ if h.built == Known::No => {}
            None => out.push(Lack::ModeUnseen),
            Some(0) => out.push(Lack::BalancingOff),
            Some(m) if m & NORMAL == 0 && facts.lower_nodes == 0 => out.push(Lack::NothingSlow),
            Some(_) => {}
        }
        out.extend(built(h.bpf, "CONFIG_BPF_SYSCALL"));
        out.extend(built(h.btf, "CONFIG_DEBUG_INFO_BTF"));
        if h.may != Known::Yes {
            out.push(Lack::NoBpf);
        }
        if h.built != Known::No && h.function == Known::No {
            out.push(Lack::NoFunction);
        }
        out
    },
    disturbs: "nothing that the kernel's balancing doesn't already do: it marks pages \
               inaccessible, takes the faults, and moves pages and threads by its own rules; a BPF \
               program runs at each such fault of every process",
    knobs: &[("numa_balancing", "3"), ("numa_balancing_promote_rate_limit_MBps", "0")],
    simulated: "homenode sees hint faults with page, CPU's node and page's node, and what /proc \
                shows; the scan is the kernel's, and it passes over what a process of one thread \
                has on its own node, so that nothing is known to be cold there; promote_rate_limit 0 leaves promotion to homenode, \
                but where a fast node has 1 GiB or a sixteenth free above its promo mark, the \
                kernel's free-space shortcut still promotes",
    caveat: None,
    beside: Some(
        "hint faults come from the kernel's own scan, and the kernel moves pages at them too: part \
         of what is shown it may have done itself",
    ),
};

static PMU: DataSheet = DataSheet {
    shows: Shows::Samples,
    about: "Samples of memory accesses by hardware counters",
    lacks: &[],
    decides: [
        exact(""),
        degraded("one access in 10,007"),
        degraded("by silence"),
        exact(""),
        exact("when asked"),
        exact(""),
        degraded("where the PMU tells how late memory answered; else unloaded"),
    ],
    rank: 1,
    missing: |facts| {
        let lack = match facts.pmu {
            Sampling::Opens => None,
            Sampling::NoDevice => Some(Lack::NoPmu),
            Sampling::OwnForm => Some(Lack::PmuForm),
            Sampling::Refused => Some(Lack::PerfRefused),
            Sampling::Failed(errno) => Some(Lack::PerfFailed(errno)),
            Sampling::Unseen => Some(Lack::PerfUnseen),
        };
        lack.into_iter().collect()
    },
    disturbs: "nothing of memory management: one counter of each CPU, which other users of perf \
               then share by turns, and an interrupt for every few samples",
    knobs: OFF,
    simulated: "homenode sees one in so many accesses, by count, with page and CPU's node, and what \
                /proc shows; where pages are is looked up",
    caveat: None,
    beside: None,
};

static RESIDENCY: DataSheet = DataSheet {
    shows: Shows::Nothing,
    about: "No heat: where pages are",
    lacks: &[Evidence::Heat, Evidence::Cpu],
    decides: [exact(""), NOT, NOT, BY_CPUS, exact("when asked"), exact(""), NOT],
    rank: u8::MAX,
    missing: |_| Vec::new(),
    disturbs: "nothing: page tables are read, with the process's mmap lock held for reading",
    knobs: OFF,
    simulated: "homenode sees where memory is, and not how hot it is",
    caveat: None,
    beside: None,
};

fn built(is: Known, option: &'static str) -> Option<Lack> {
    match is {
        Known::Yes => None,
        Known::No => Some(Lack::NotBuilt(option)),
        Known::Unseen => Some(Lack::BuiltUnseen(option)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_its_own_sheet() {
        assert!(Source::ALL.iter().enumerate().all(|(i, s)| *s as usize == i));
        let heat: Vec<Source> =
            Source::ALL.into_iter().filter(|s| s.shows() != Shows::Nothing).collect();
        assert_eq!(heat, Source::HEAT);
        // Of a source without heat nothing could be decided that needs some.
        for s in Source::ALL {
            assert_eq!(s.shows() == Shows::Nothing, s.sheet().lacks.contains(&Evidence::Heat));
        }
    }
}
