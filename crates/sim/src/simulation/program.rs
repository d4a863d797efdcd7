//! What a task runs, as the simulation sees it, and what it keeps for those that do.
//!
//! Source: docs/decisions/0014-time-and-tasks.md.

use super::{Devices, Simulation};
use crate::channel::{Channels, Message};
use crate::watch::By;
use homenode_core::scenario::{Again, ChannelKind, CpuStep, Process, Step, Which};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How far a task has run ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// Its clock now; the task's own is still where it began.
    pub(crate) clock: u64,
    /// Whether it has stopped before an act.
    pub(crate) act: bool,
    /// It may have come further than it was asked to: to the end of what it computes, since
    /// that is the same work wherever it is cut.
    pub(crate) far: bool,
}

/// What a task runs.
///
/// The task is at its place while its program has a turn; the program is not.
pub(crate) trait Program: Send {
    /// Runs from the task's clock until `until`, or further ([`Ahead::far`]), what nobody else can
    /// notice, and stops before what others can. It changes nothing but itself and the young bits of pages.
    fn ahead(&mut self, sim: &mut Simulation, id: usize, until: u64) -> Ahead {
        let _ = until;
        Ahead { clock: sim.tasks[id].clock, act: true, far: false }
    }
    /// Takes back what it has run ahead beyond `to`; its clock then.
    fn back(&mut self, sim: &mut Simulation, id: usize, to: u64) -> u64 {
        let _ = to;
        sim.tasks[id].clock
    }
    /// What it has run ahead stands, and has been paid for: it is counted.
    fn settle(&mut self, sim: &mut Simulation, id: usize) {
        let _ = (sim, id);
    }
    /// Does the act that it has stopped before, if there still is one, and goes on until
    /// `until` if nothing it does is private. What that takes it charges the task.
    fn act(&mut self, sim: &mut Simulation, id: usize, until: u64);
    /// Does calls ahead, the one that it has begun first, as long as it is certain that they disturb nobody; the clock
    /// at which the next one is done. `None`: not even the first.
    fn calls_ahead(&mut self, sim: &mut Simulation, id: usize, until: u64) -> Option<u64> {
        let _ = (sim, id, until);
        None
    }
    /// After an act that lasts until the task's clock: begins a call that follows, which nobody can notice, as it will do
    /// then; the clock at which it is done. `None`: it begins nothing.
    fn begin_ahead(&mut self, sim: &Simulation, id: usize) -> Option<u64> {
        let _ = (sim, id);
        None
    }
    /// It is to be known what is at a channel now: takes back what it has done ahead there and comes later, with what
    /// follows; its clock then, if there is any.
    fn back_at(&mut self, sim: &mut Simulation, id: usize, channel: u32) -> Option<u64> {
        let _ = (sim, id, channel);
        None
    }
    /// Whether it has begun an act that it does at its task's clock, and runs nothing ahead before.
    fn is_in_act(&self) -> bool {
        false
    }
    /// The address of the operations that it has next, to be fetched before its turn.
    fn next_ops(&self) -> usize {
        0
    }
    /// Has what it begins a turn with fetched.
    fn fetch(&self) {}
    /// The same of what that points to, when it has come.
    fn fetch_further(&self) {}
    /// Has the words of the pages fetched that it goes to first.
    fn fetch_pages(&self, words: &[u32]) {
        let _ = words;
    }
    /// Whether one of its steps can end another's wait for a channel: for something to come, or
    /// for room.
    fn ends_wait(&self, channels: &Channels, channel: u32, takes: bool) -> bool {
        let _ = (channels, channel, takes);
        false
    }
    /// The task's timer has come.
    fn timer(&mut self, sim: &mut Simulation, id: usize) {
        sim.wake(id, By::Timer);
    }
}

/// What a step is, as far as calls are done ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plain {
    /// A call of a pipe.
    Call(Message),
    /// Back by so many steps.
    Repeat(u32, Again),
    /// Anything else.
    Other,
}

impl Plain {
    fn of(step: &Step, thing: Option<usize>, channels: &Channels) -> Self {
        let pipe = || thing.is_some_and(|name| channels.kind(name) == ChannelKind::Pipe);
        match step {
            Step::Cpu(CpuStep::Write { bytes, sizes, .. }) if pipe() && sizes.is_empty() => {
                Self::Call(Message::Write(*bytes))
            }
            Step::Cpu(CpuStep::Read { bytes, .. }) if pipe() => Self::Call(Message::Read(*bytes)),
            Step::Repeat { steps, until } => Self::Repeat(*steps, *until),
            _ => Self::Other,
        }
    }
}

/// A program of a scenario as all its threads and copies have it, loaded once.
pub(crate) struct Loaded {
    pub(crate) steps: Vec<Step>,
    /// The same, as far as calls are done ahead.
    pub(crate) plain: Vec<Plain>,
    /// By step: the place among the process's mappings of the one that it names.
    pub(crate) maps: Vec<Option<usize>>,
    /// By step: the place of the channels or of the device that it names.
    pub(crate) things: Vec<Option<usize>>,
    pub(crate) threads: u64,
}

impl Loaded {
    pub(crate) fn new(process: &Process, channels: &Channels, devices: &Devices) -> Arc<Self> {
        let threads = process.thread_count() as u64;
        let thing = |step: &Step| match step {
            Step::Cpu(CpuStep::Io { device, .. }) => devices.named(device),
            Step::Cpu(step) => channels.named(step.channel()?.0),
            _ => None,
        };
        let number = |step: &Step| step.map().and_then(|name| process.map_number(name));
        let things: Vec<Option<usize>> = process.steps.iter().map(thing).collect();
        let plain = |(step, &thing): (&Step, &Option<usize>)| Plain::of(step, thing, channels);
        Arc::new(Self {
            plain: process.steps.iter().zip(&things).map(plain).collect(),
            steps: process.steps.clone(),
            maps: process.steps.iter().map(number).collect(),
            things,
            threads,
        })
    }
    /// Which of the channels of a name a step means.
    pub(crate) fn which(&self, place: usize) -> Option<Which> {
        match &self.steps[place] {
            Step::Cpu(step) => Some(step.channel()?.1),
            _ => None,
        }
    }
}

/// Where ksmd is.
pub(crate) struct KsmdState {
    pub(crate) task: usize,
    /// It sleeps between two batches, instead of waiting for work.
    pub(crate) naps: bool,
    /// Lines that it has read since the last tick, by the last-level cache of its CPU.
    pub(crate) read: BTreeMap<u32, u64>,
}
