//! The kernel's and homenode's own tasks: who wakes them, where, and their turns.

use super::{Event, Program, Run, Simulation, Task};

/// How long kswapd naps before it looks again and then sleeps until it is woken.
const RECHECK: u64 = 100_000_000_000;

impl Simulation {
    /// The CPU that a daemon of a node runs on: an idle one of the node, else the
    /// one with the fewest tasks; a node without CPUs borrows from all.
    pub(super) fn daemon_cpu(&self, node: usize) -> usize {
        let own = self.least_loaded(|c| c.node == node);
        own.or_else(|| self.least_loaded(|_| true)).unwrap_or(0)
    }
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

    /// Homenode's task or DAMON's begins; it sleeps at first.
    pub(crate) fn helper(&mut self, program: Program) -> usize {
        let id = self.new_task(usize::MAX, usize::MAX, 0, program, self.now);
        self.task_mut(id).run = Run::Sleeping;
        id
    }
    /// Wakes a helper on the least loaded CPU, unless it is awake.
    pub(crate) fn wake_helper(&mut self, id: usize) {
        if self.task(id).run == Run::Sleeping {
            self.spread(id, true);
        }
    }
    pub(crate) fn at_look_around(&mut self, time: u64) {
        self.at(time, Event::LookAround);
    }
    pub(super) fn run_helper(&mut self, task: &mut Task, end: u64) {
        let Some(mut agent) = self.agent.take() else {
            task.run = Run::Sleeping;
            return;
        };
        let mut ctx = self.ctx_of(usize::MAX, task);
        ctx.clock = task.clock;
        let sleeps = if let Program::Kdamond = task.program {
            if let Some(next) = agent.damon_look(&mut self.kernel, &mut ctx) {
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
