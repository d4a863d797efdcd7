//! The clocks of the CPUs: when somebody looks, and what changes then.
//!
//! ```text
//!  busy or idle, tick ──window over?──▶ request of each CPU ──▶ clock of its domain ──▶ other speed
//! ```
//!
//! All CPUs are looked at together, at the first change or tick after a window is over. On a machine whose file
//! has no clocks, or under a model that leaves them alone, that time never comes.
//!
//! Source: specs/frequency.md#simulated.

use crate::kernel::TICK;
use crate::simulation::{Frequency, Simulation};
use homenode_core::costs::Cost;
use homenode_core::sched::frequency::{self, Governor, Look};
use homenode_core::topology::SCHED_CAPACITY_SCALE;

impl Simulation {
    /// A CPU has become busy or idle, or there is a tick: if a window is over, the clocks are chosen anew.
    #[inline]
    pub(crate) fn heed_clocks(&mut self) {
        if self.frequency.next <= self.now() {
            self.choose_clocks();
        }
    }
    /// A CPU puts a woken task on its own queue: if that has waited for I/O, schedutil is asked for a higher clock.
    /// It doesn't hear what another CPU enqueues.
    #[inline]
    pub(crate) fn ask_for_boost(&mut self, cpu: usize, iowait: bool) {
        if self.frequency.governor == Governor::Schedutil {
            let now = self.now();
            self.frequency.cpus[cpu].boost.enqueued(now, iowait, TICK);
        }
    }
    fn choose_clocks(&mut self) {
        let now = self.now();
        let mut f = std::mem::replace(&mut self.frequency, Frequency::none());
        f.next = (now / f.window + 1) * f.window;
        f.cores.fill(false);
        f.domains.fill((0, 0));
        for (cpu, here) in f.cpus.iter_mut().enumerate() {
            let busy = self.cpus[cpu].busy_until(now);
            let running = self.cpus[cpu].current().is_some();
            f.cores[here.core] |= running;
            let (asked, idle) = &mut f.domains[here.domain];
            if f.governor.passes_idle() && busy <= here.busy {
                *idle = here.request.max(*idle);
                continue;
            }
            let time = now - here.last;
            here.last = now;
            let util = self.sched.q.fair.cpu_util(cpu);
            let look = Look {
                busy: busy - here.busy.min(busy),
                time,
                window: f.window,
                mhz: self.cpus[cpu].mhz(),
                // Only schedutil looks at it.
                util: here.boost.apply(util),
                invariant: f.invariant,
                was_idle: !running || busy - here.busy.min(busy) < time,
            };
            here.busy = busy;
            let (governor, threshold) = (f.governor, f.threshold);
            here.request =
                frequency::request(governor, &here.clocks, here.request, &look, threshold);
            *asked = here.request.max(*asked);
        }
        f.active.fill(0);
        for (core, &busy) in f.cores.iter().enumerate() {
            f.active[f.packages[core]] += usize::from(busy);
        }
        for (cpu, here) in f.cpus.iter().enumerate() {
            let most = here.clocks.most(f.active[f.packages[here.core]]);
            let (asked, idle) = f.domains[here.domain];
            let mhz = if asked > 0 { asked } else { idle }.min(most);
            if self.cpus[cpu].mhz() == mhz {
                continue;
            }
            // What it has computed until now stands, the rest is done at the other speed.
            self.cut(cpu, now);
            self.settle(cpu);
            self.cpus.set_mhz(cpu, mhz, now);
            let nominal = self.cpus[cpu].nominal_mhz();
            self.prices.set(cpu, self.machine.costs.prices_at(mhz, nominal));
            if f.invariant {
                let of = (mhz * SCHED_CAPACITY_SCALE).div_ceil(here.clocks.most(1).max(1));
                let capacity = self.cpus[cpu].capacity();
                self.sched.q.fair.set_speed(cpu, now / 1000, capacity, of);
            }
        }
        self.frequency = f;
        self.pays_as(self.turn_of);
    }
    /// What the kernel does from now on it does on this CPU, at its clock.
    ///
    /// Source: specs/frequency.md#costs.
    #[inline]
    pub(crate) fn pays_as(&mut self, cpu: usize) {
        if self.prices.differ() {
            let prices = self.prices.of(cpu);
            self.kernel.prices = *prices;
            self.sched.q.counters.set_price(prices);
        }
    }
    /// What something costs on a CPU, at its clock.
    #[inline]
    pub(crate) fn price(&self, cpu: usize, cost: Cost) -> u64 {
        self.prices.of(cpu)[cost]
    }
}
