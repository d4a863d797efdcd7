use crate::engine::{Simulation, Task};
pub(crate) struct Player;
pub(crate) fn run(_s: &mut Simulation, _id: usize, _t: &mut Task, _end: u64) {}
