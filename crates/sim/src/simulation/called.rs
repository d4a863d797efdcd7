//! CPUs that have been called for a task on their list, and have not taken it yet.

use crate::simulation::Simulation;
use crate::timeline::Event;

/// A CPU that is on its way out of its idle state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Out {
    /// When it is there.
    pub(crate) at: u64,
    /// What is booked as time of who runs there first, and what the switch to it takes.
    pub(crate) booked: u64,
    pub(crate) switch: u64,
}

/// What is known of a CPU that may have been called.
#[derive(Clone, Copy, Debug, Default)]
struct Call {
    /// Its slot in the timeline, once it has been called.
    slot: Option<u32>,
    out: Option<Out>,
}

/// All CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    calls: Vec<Call>,
    /// A bit for each that is on its way out, and how many are.
    out: Vec<u64>,
    nr_out: u64,
}

impl Called {
    pub(crate) fn new(cpus: usize) -> Self {
        let out = vec![0; cpus.div_ceil(64)];
        Self { calls: vec![Call::default(); cpus], out, nr_out: 0 }
    }
    /// How a CPU that was idle when it was called comes out of its state.
    #[inline]
    pub(crate) fn out(&self, cpu: usize) -> Option<Out> {
        // Nearly always it isn't, and the bits lie close together.
        let is_out = self.out[cpu / 64] >> (cpu % 64) & 1 != 0;
        if is_out { self.calls[cpu].out } else { None }
    }
    /// A CPU has come out, or comes out in that way.
    fn set_out(&mut self, cpu: usize, out: Option<Out>) -> Option<Out> {
        let before = std::mem::replace(&mut self.calls[cpu].out, out);
        if before.is_some() != out.is_some() {
            self.out[cpu / 64] ^= 1 << (cpu % 64);
            self.nr_out = self.nr_out + u64::from(out.is_some()) - u64::from(before.is_some());
        }
        before
    }
    pub(crate) fn take_out(&mut self, cpu: usize) -> Option<Out> {
        self.set_out(cpu, None)
    }
    /// CPUs that are on their way out, a bit for each; and how many they are.
    #[inline]
    pub(crate) fn out_words(&self) -> (&[u64], u64) {
        (&self.out, self.nr_out)
    }
}

impl Simulation {
    /// A CPU takes its list at a time; where it is idle, by that way.
    pub(crate) fn set_called(&mut self, cpu: usize, at: u64, out: Option<Out>) {
        let slot = &mut self.called.calls[cpu].slot;
        let slot = *slot.get_or_insert_with(|| self.timeline.slot(Event::Called(cpu)));
        self.called.set_out(cpu, out);
        self.timeline.set(slot, at);
    }
}
