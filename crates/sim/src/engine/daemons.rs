//! The kernel's and homenode's own tasks: their turns.

use crate::simulation::{Event, Program, Run, Simulation, Task};

/// How long kswapd naps before it looks again and then sleeps until it is woken.
const RECHECK: u64 = 100_000_000_000;

impl Simulation {
    /// Puts the daemons that were woken on a CPU.
    pub(super) fn wake_daemons(&mut self) {
        for node in std::mem::take(&mut self.kernel.woken) {
            self.kernel.kswapd_start(node);
            let cpu = self.daemon_cpu(node);
            self.task_mut(node).cpu = cpu;
            self.enqueue(node, true);
        }
        self.heed_ksmd();
        if self.agent.is_some() {
            self.heed_rings();
        }
    }
    pub(super) fn run_kswapd(&mut self, node: usize, task: &mut Task, end: u64) {
        let mut ctx = self.ctx_of(usize::MAX, task);
        ctx.clock = task.clock;
        if self.kernel.kswapd_run(&mut ctx, node, end) {
            task.run = Run::Sleeping;
            self.at(ctx.clock + RECHECK, Event::Recheck(node));
        }
        task.clock = ctx.clock;
    }

    pub(super) fn run_helper(&mut self, task: &mut Task, end: u64) {
        let Some(mut agent) = self.agent.take() else {
            task.run = Run::Sleeping;
            return;
        };
        let mut ctx = self.ctx_of(usize::MAX, task);
        ctx.clock = task.clock;
        let sleeps = if let Program::Kdamond = task.program {
            if let Some(next) = agent.heat.turn(&mut self.kernel, &mut ctx) {
                self.at(next, Event::Damon);
            }
            true
        } else {
            agent.work(self, &mut ctx, end)
        };
        if sleeps {
            task.run = Run::Sleeping;
        }
        task.clock = ctx.clock;
        self.speaks |= agent.has_word();
        self.agent = Some(agent);
    }
}
