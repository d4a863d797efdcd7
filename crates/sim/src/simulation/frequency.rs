//! The clocks of the CPUs, as data.
//!
//! Source: specs/frequency.md#simulated.

use homenode_core::costs::{Cost, Prices};
use homenode_core::kernel::KernelVersion;
use homenode_core::sched::frequency::{Clocks, Governor, IowaitBoost};
use homenode_core::topology::Hardware;

/// What is known of a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here {
    pub(crate) clocks: Clocks,
    /// What it asks for.
    pub(crate) request: u32,
    /// When the last look was, and how long it had been busy until then.
    pub(crate) last: u64,
    pub(crate) busy: u64,
    /// What schedutil adds for tasks that wait for I/O.
    pub(crate) boost: IowaitBoost,
    /// Place of its domain, and its core.
    pub(crate) domain: usize,
    pub(crate) core: usize,
}

/// What the kernel's work costs at each CPU's clock.
///
/// Source: specs/frequency.md#costs.
#[derive(Clone, Debug)]
pub(crate) struct PricesByClock {
    /// At the nominal clock.
    nominal: Prices,
    /// By CPU; none where nobody chooses clocks.
    cpus: Vec<Prices>,
}

impl PricesByClock {
    /// All clocks are the nominal ones, and stay so.
    pub(crate) fn fixed(nominal: Prices) -> Self {
        Self { nominal, cpus: Vec::new() }
    }
    /// The clocks of so many CPUs are chosen from now on.
    pub(crate) fn follow(&mut self, cpus: usize) {
        self.cpus = vec![self.nominal; cpus];
    }
    /// The clock of a CPU is another, where they are chosen.
    pub(crate) fn set(&mut self, cpu: usize, prices: Prices) {
        self.cpus[cpu] = prices;
    }
    /// Those of a CPU.
    #[inline]
    pub(crate) fn of(&self, cpu: usize) -> &Prices {
        self.cpus.get(cpu).unwrap_or(&self.nominal)
    }
    /// Whether they differ from CPU to CPU.
    #[inline]
    pub(crate) fn differ(&self) -> bool {
        !self.cpus.is_empty()
    }
}

/// The clocks of all CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Frequency {
    pub(crate) governor: Governor,
    pub(crate) window: u64,
    pub(crate) threshold: u32,
    /// Loads that the scheduler tracks grow with the clock.
    pub(crate) invariant: bool,
    /// When the next look is.
    pub(crate) next: u64,
    pub(crate) cpus: Vec<Here>,
    /// By domain: the highest clock that one of its CPUs asks for, and that one asks for which was passed over.
    pub(crate) domains: Vec<(u32, u32)>,
    /// By core: whether it is busy.
    pub(crate) cores: Vec<bool>,
    /// The package of each core: turbo hangs on how many of it are active.
    pub(crate) packages: Vec<usize>,
    pub(crate) active: Vec<usize>,
}

impl Frequency {
    /// Nobody looks.
    pub(crate) fn none() -> Self {
        Self {
            governor: Governor::Nominal,
            window: 0,
            threshold: 0,
            invariant: false,
            next: u64::MAX,
            cpus: Vec::new(),
            domains: Vec::new(),
            cores: Vec::new(),
            packages: Vec::new(),
            active: Vec::new(),
        }
    }
    /// As the machine's file and the model say; an error says what is missing.
    pub(crate) fn new(
        machine: &Hardware,
        governor: Governor,
        version: KernelVersion,
    ) -> Result<Self, String> {
        let Some(window) = governor.window() else { return Ok(Self::none()) };
        let costs = &machine.costs;
        let shared = costs.get(Cost::ClockShared) == 1;
        let place = |all: &mut Vec<u32>, number: u32| {
            all.iter().position(|n| *n == number).unwrap_or_else(|| {
                all.push(number);
                all.len() - 1
            })
        };
        let (mut cores, mut llcs) = (Vec::new(), Vec::new());
        let mut packages = Vec::new();
        let mut cpus = Vec::new();
        for cpu in &machine.cpus {
            let clocks = cpu.mhz.and_then(|mhz| Clocks::of(costs, mhz)).ok_or_else(|| {
                format!(
                    "the model's clocks are \"{}\", but the machine's file lacks them: it takes clock_min and the \
                     mhz of each CPU",
                    governor.name()
                )
            })?;
            let (core, llc) = (place(&mut cores, cpu.core), place(&mut llcs, cpu.llc));
            packages.resize(cores.len(), llc);
            let domain = if shared { llc } else { core };
            let boost = IowaitBoost::default();
            cpus.push(Here { clocks, request: clocks.min, last: 0, busy: 0, boost, domain, core });
        }
        let domains = if shared { llcs.len() } else { cores.len() };
        Ok(Self {
            governor,
            window: window.0,
            threshold: costs.get(Cost::ClockThreshold) as u32,
            // x86 knows the mean clock since 5.7.
            invariant: version >= KernelVersion::V5_18,
            // The first look sets the clocks with which the CPUs come.
            next: 0,
            cpus,
            domains: vec![(0, 0); domains],
            cores: vec![false; cores.len()],
            active: vec![0; llcs.len()],
            packages,
        })
    }
}
