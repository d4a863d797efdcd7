//! Who looks on: checkers are told what happens, and can't change it.

/// Who wakes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Its timer.
    Timer,
    /// Another task, by number.
    Task(usize),
    /// The kernel: memory runs low, there is work for a daemon.
    Kernel,
    /// Somebody outside of virtual time.
    Outside,
}

/// How a task leaves its CPU by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// Into interruptible sleep.
    Sleeps,
    /// Into uninterruptible sleep.
    Blocks {
        /// For I/O.
        iowait: bool,
    },
    /// For good.
    Ends,
}

/// Told of the kernel's actions. Node arguments are places.
pub trait Watch: Send {
    /// A promotion has been admitted and its pages taken: `free` and `high` are those of
    /// the target zone afterwards.
    fn promoted(&mut self, node: usize, pages: u64, free: u64, high: u64) {
        let _ = (node, pages, free, high);
    }
    /// Pages moved between nodes, for whatever reason.
    fn moved(&mut self, item: u32, from: usize, to: usize, pages: u64) {
        let _ = (item, from, to, pages);
    }
    /// Pages moved inside a node: memory goes offline that no other node can take over.
    fn moved_within(&mut self, node: usize, pages: u64) {
        let _ = (node, pages);
    }
    /// A memory block of a node goes offline (`going`), has done so (`gone` as well), or
    /// stays after all (neither).
    fn block(&mut self, node: usize, block: usize, going: bool, gone: bool) {
        let _ = (node, block, going, gone);
    }
    /// A promotion of `pages` was refused at the target's marks; whether kswapd has been
    /// woken or runs.
    fn refused(&mut self, node: usize, pages: u64, demotion_signalled: bool) {
        let _ = (node, pages, demotion_signalled);
    }
    /// A task was woken at `now` and may run from `begins` on (picoseconds): later only
    /// where its CPU is still busy with an act that can't be interrupted, or has to leave an
    /// idle state.
    fn woken(&mut self, pid: u32, by: By, now: u64, begins: u64) {
        let _ = (pid, by, now, begins);
    }
    /// A task that slept, or is new, waits on a CPU's queue from `now` on (picoseconds), to run on
    /// one of that set of CPUs, a number of the scheduler's; or waits no more, since it has ended.
    fn queued(&mut self, task: usize, waits: Option<u32>, now: u64) {
        let _ = (task, waits, now);
    }
    /// A CPU has chosen a task at `now`, which runs there from its clock `clock` on
    /// (picoseconds), later than `now` where the CPU has to get there; it has run for `ran` before.
    fn runs(&mut self, cpu: usize, task: usize, now: u64, clock: u64, ran: u64) {
        let _ = (cpu, task, now, clock, ran);
    }
    /// A task does not run on a CPU any more, since its clock `clock`, and has run for `ran` in
    /// all. Where `waits` has a set of CPUs, it waits for one of them; else it sleeps or has
    /// ended. `now` is when that is known.
    fn stops(
        &mut self,
        cpu: usize,
        task: usize,
        now: u64,
        clock: u64,
        ran: u64,
        waits: Option<u32>,
    ) {
        let _ = (cpu, task, now, clock, ran, waits);
    }
    /// A task is about to stop by itself, so: [`Watch::stops`] comes next.
    fn leaves(&mut self, task: usize, how: Leaves) {
        let _ = (task, how);
    }
    /// A CPU has nothing to do from `from` on (picoseconds), later than its last task stopped where
    /// the kernel had something to do between.
    fn rests(&mut self, cpu: usize, from: u64) {
        let _ = (cpu, from);
    }
    /// An idle CPU is on its way out of its state from `now` on (picoseconds), called for a task that is on no queue
    /// yet; or it has come out and found nobody to run.
    fn comes_out(&mut self, cpu: usize, is: bool, now: u64) {
        let _ = (cpu, is, now);
    }
    /// A task has done something that nobody can interrupt, which takes so long (picoseconds).
    fn acted(&mut self, lasts: u64) {
        let _ = lasts;
    }
    /// Time has come so far (picoseconds).
    fn time(&mut self, now: u64) {
        let _ = now;
    }
}
