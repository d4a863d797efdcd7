//! DAMON's regions, by a kernel thread of its own. Source: specs/sources.md.

use super::{HeatSource, Watched};
use crate::kernel::damon::Damon;
use crate::kernel::{Ctx, Kernel};
use crate::program::Kdamond;
use crate::simulation::Simulation;
use crate::tasks::Kind;
use crate::watch::By;
use homenode_core::costs::Cost;
use homenode_core::policy::checks::{CHECKS, aggregation};
use homenode_core::policy::seen::{Seen, Span};
use homenode_core::units::Picos;

pub(super) struct DamonRegions {
    damon: Damon,
    thread: usize,
    /// Whether its timer runs.
    runs: bool,
}

impl DamonRegions {
    pub(super) fn start(sim: &mut Simulation, seed: u64) -> Self {
        let damon = Damon::new(seed, sim.machine.costs.time(Cost::DamonCheck).0);
        let thread = sim.start_daemon(Kind::Kdamond, Box::new(Kdamond));
        Self { damon, thread, runs: false }
    }
}

impl HeatSource for DamonRegions {
    fn watch(&mut self, sim: &mut Simulation, space: usize, on: bool) {
        if !on {
            return self.damon.remove(space);
        }
        self.damon.add(&sim.kernel, space);
        if !self.runs {
            self.runs = true;
            sim.wake(self.thread, By::Kernel);
        }
    }
    fn tell(&mut self, sim: &mut Simulation, watched: &Watched, out: &mut Vec<Seen>) -> u64 {
        let before = out.len();
        let (told, every) = self.damon.take();
        for (space, regions) in told {
            let Some(&who) = watched.get(&space) else { continue };
            out.extend(regions.into_iter().map(|r| Seen::Region {
                who,
                span: Span { start: r.start, end: r.end },
                accessed: r.accessed,
                checks: CHECKS,
                every,
                age: Picos(u64::from(r.age) * aggregation(every).0),
            }));
        }
        sim.kernel.prices[Cost::DamonRegion] * (out.len() - before) as u64
    }
    fn moved(&mut self, now: Picos) {
        self.damon.moved(now);
    }
    fn thread(&self) -> Option<usize> {
        Some(self.thread)
    }
    fn turn(&mut self, kernel: &mut Kernel, ctx: &mut Ctx) -> Option<u64> {
        self.damon.look(kernel, ctx);
        self.runs = !self.damon.idle();
        self.runs.then_some(ctx.clock + self.damon.every().0)
    }
}
