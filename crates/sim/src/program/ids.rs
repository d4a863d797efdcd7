//! Operations made beforehand on one mapping, over and over: the benchmarks' way in.

use super::stretch::Stretch;
use super::{Ahead, Program};
use crate::hot;
use crate::simulation::Simulation;
use crate::table::prefetch_at;
use std::sync::Arc;

/// A task that works through operations made beforehand.
pub(crate) struct Ids {
    ids: Arc<[u32]>,
    stretch: Stretch,
}

impl Ids {
    pub(crate) fn new(ids: Arc<[u32]>) -> Self {
        Self { ids, stretch: Stretch::default() }
    }
}

impl Program for Ids {
    fn ahead(&mut self, sim: &mut Simulation, id: usize, until: u64) -> Ahead {
        self.stretch.ahead(sim, id, &self.ids, until)
    }
    fn back(&mut self, sim: &mut Simulation, id: usize, to: u64) -> u64 {
        self.stretch.back(sim, id, &self.ids, to)
    }
    fn next_ops(&self) -> usize {
        self.ids.as_ptr().wrapping_add(self.stretch.at).addr()
    }
    fn fetch(&self) {
        prefetch_at(&raw const self.ids);
        self.stretch.fetch();
    }
    fn fetch_pages(&self, words: &[u32]) {
        hot::fetch_first(&self.ids[self.stretch.at..], words);
    }
    fn settle(&mut self, sim: &mut Simulation, id: usize) {
        self.stretch.settle(sim, id, &self.ids);
    }
    fn act(&mut self, sim: &mut Simulation, id: usize, _until: u64) {
        if self.stretch.at < self.ids.len() {
            self.stretch.serve(sim, id, &self.ids);
        } else if !self.stretch.sample(sim, id, &self.ids) {
            self.stretch.rewind();
        }
    }
}
