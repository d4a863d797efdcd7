//! Programs: what tasks run. The steps of a scenario, a recording, and every daemon are
//! programs; the executive gives them turns and knows none of them.
//!
//! | program | private | acts |
//! |---|---|---|
//! | [`steps`], [`ids`] | accesses to pages that are there | faults, the other steps |
//! | [`crate::replay`] | rows of accesses, computing | faults, system calls |
//! | [`scripted`] | computing | the acts of a script of scheduling |
//! | [`worker`] | computing | the beginning and the end of each work |
//! | [`daemons`] | – | everything they do |
//!
//! Source: docs/decisions/0014-time-and-tasks.md.

mod compute;
mod daemons;
mod ids;
mod scripted;
mod steps;
mod stretch;
mod worker;

pub(crate) use daemons::{Homenode, Kdamond, KsmdState, Kswapd, Writer};
pub(crate) use ids::Ids;
pub(crate) use scripted::{Crew, Scripted};
pub(crate) use steps::{Loaded, Steps};
pub(crate) use worker::Worker;

use crate::simulation::Simulation;
use crate::watch::By;

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
    /// The address of the operations that it has next, to be fetched before its turn.
    fn next_ops(&self) -> usize {
        0
    }
    /// Has what it begins a turn with fetched.
    fn fetch(&self) {}
    /// Has the words of the pages fetched that it goes to first.
    fn fetch_pages(&self, words: &[u32]) {
        let _ = words;
    }
    /// The task's timer has come.
    fn timer(&mut self, sim: &mut Simulation, id: usize) {
        sim.wake(id, By::Timer);
    }
}
