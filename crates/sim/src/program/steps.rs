//! The steps of a scenario: what a thread of a program does, one after the other.

use super::calls::{Begun, Call, CallsAhead, Order, Place, Prices, Thread};
use super::compute::Computing;
use super::stretch::{Filling, Pace, Stretch, Wide};
use super::{Ahead, Program};
use crate::channel::{Channels, Message, Tried};
use crate::cpus::parts;
use crate::hot;
use crate::kernel::Kernel;
use crate::load::LINE;
use crate::memory::BLOCK;
use crate::overlap::Overlap;
use crate::patterns::Access;
use crate::random::Stream;
use crate::sched::Waker;
use crate::simulation::{EMPTY_ROUND, Loaded, Plain, Simulation, Work};
use crate::space::Holds;
use crate::table::{prefetch_at, prefetch_value};
use crate::tasks::{On, Run, Why};
use crate::watch::By;
use homenode_core::costs::Cost;
use homenode_core::scenario::{Again, ChannelKind, Completion, CpuStep, REST, Step, Until, Which};
use std::sync::Arc;

/// A thread that does the steps of a scenario. What each step looks at comes first.
#[repr(C, align(64))]
pub(crate) struct Steps {
    /// Not there while it does a step.
    program: Option<Arc<Loaded>>,
    /// The next step.
    at: usize,
    /// What it computes.
    computing: Computing,
    /// The call that it is in.
    call: Option<Call>,
    /// It has called fork and paid for it, and this child is made next.
    forks: Option<Child>,
    ops: Vec<u32>,
    /// What it keeps of each step, by the step's place.
    places: Vec<Place>,
    /// How often it went back in all: a repeated step draws anew.
    returns: u64,
    /// It has called exec, and balancing has chosen its CPU.
    execs: bool,
    /// It was made to run this program, and has not called exec yet.
    runs: bool,
    /// Its program is over, and it has paid for its end.
    exits: bool,
    /// It has begun its call ahead.
    begun: Option<Begun>,
    /// Calls that it has done ahead.
    calls_ahead: CallsAhead,
    /// The accesses of the present step, and those that have been made of them are `ops`.
    access: Option<Box<Access>>,
    /// The label of its last random stream, and how much of it all of them begin with.
    label: String,
    named: usize,
    stretch: Stretch,
    /// The device that it waits for.
    io: Option<(usize, Completion)>,
    /// Its number among the threads of all copies of its program.
    number: u64,
    /// Which of the process's threads this is, and of how many.
    thread: u64,
    threads: u64,
    /// How many children it has had run programs.
    spawned: u64,
    /// Of steps that run programs: the step's place, and the programs that are left of the round.
    left: Vec<(usize, Vec<u32>)>,
}

/// The bytes of a thread that acts look at, whatever the step is.
const HOT: usize = 5 * 64;
const _: () =
    assert!(std::mem::offset_of!(Steps, stretch) < HOT, "where it stands in its operations");

/// Appends a number in decimal. Each step that draws something has it in its label, and formatting takes several times
/// as long.
fn push_number(text: &mut String, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    digits[first..].iter().for_each(|&digit| text.push(char::from(digit)));
}

/// What a child does.
#[derive(Clone, Copy, Debug)]
enum Child {
    /// The remaining steps.
    Same,
    /// The program of a process of that place.
    Program(usize),
}

impl Steps {
    /// The thread of that number of the process of that name, with which the labels of its random
    /// streams begin; `number` is its number among the threads of all copies.
    pub(crate) fn new(program: Arc<Loaded>, name: &str, thread: u64, number: u64) -> Self {
        let label = format!("{name}/{thread}");
        let threads = program.threads;
        Self { number, ..Self::labelled(program, label, 0, (thread, threads), 0) }
    }
    fn labelled(
        program: Arc<Loaded>,
        label: String,
        at: usize,
        (thread, threads): (u64, u64),
        returns: u64,
    ) -> Self {
        Self {
            at,
            thread,
            threads,
            named: label.len(),
            label,
            places: vec![Place::default(); program.steps.len()],
            returns,
            access: None,
            ops: Vec::new(),
            stretch: Stretch::default(),
            number: thread,
            computing: Computing::default(),
            call: None,
            calls_ahead: CallsAhead::default(),
            begun: None,
            io: None,
            execs: false,
            forks: None,
            runs: false,
            exits: false,
            spawned: 0,
            left: Vec::new(),
            program: Some(program),
        }
    }
    /// A child that is going to run a program, the parent's child of that number.
    pub(crate) fn spawned(program: Arc<Loaded>, name: &str, number: u64) -> Self {
        let label = format!("{name}/spawn{number}");
        let threads = program.threads;
        Self { runs: true, ..Self::labelled(program, label, 0, (0, threads), 0) }
    }

    /// What it is at, if that is a call.
    #[inline]
    fn thread(&mut self) -> Option<Thread<'_>> {
        Some(Thread {
            program: self.program.as_deref()?,
            ahead: &mut self.calls_ahead,
            at: &mut self.at,
            call: self.call.as_mut()?,
            places: &mut self.places,
            returns: &mut self.returns,
            number: self.number,
        })
    }

    /// The random numbers of the step before the one that it is at.
    fn random(&mut self, seed: u64) -> Stream {
        self.label.truncate(self.named);
        self.label.push('/');
        push_number(&mut self.label, self.at as u64);
        if self.returns > 0 {
            self.label.push_str("/r");
            push_number(&mut self.label, self.returns);
        }
        Stream::new(seed, &self.label)
    }

    /// Makes the next operations, or does the next step; whether that was a step that took
    /// no time, that called nobody, and after which there is nothing to run ahead.
    fn advance(&mut self, sim: &mut Simulation, id: usize) -> bool {
        // What it has computed is done.
        sim.tasks[id].footprint.bytes = 0;
        // Who is in a call of a pipe has nothing else to do.
        if let Some(message) = self.in_pipe() {
            return self.call_pipe(sim, id, message);
        }
        let clock = sim.tasks[id].clock;
        if self.access.is_some() && !self.stretch.is_late(clock) {
            let most = self.stretch.most(sim, id);
            if let Some(access) = &mut self.access {
                access.fill(clock, most, &mut self.ops);
            }
            self.stretch.rewind();
            if !self.ops.is_empty() {
                return false;
            }
        }
        if std::mem::take(&mut self.execs) {
            sim.exec(id);
            if std::mem::take(&mut self.runs) {
                sim.begin_program(id);
            }
            return false;
        }
        if self.runs {
            sim.balance_exec(id);
            self.execs = true;
            return false;
        }
        let Some(program) = self.program.take() else { return false };
        if let Some(child) = self.forks.take() {
            self.fork(sim, id, &program, child);
            self.program = Some(program);
            return false;
        }
        let quiet = self.advance_in(sim, id, &program, clock);
        self.program = Some(program);
        quiet
    }
    fn advance_in(
        &mut self,
        sim: &mut Simulation,
        id: usize,
        program: &Arc<Loaded>,
        clock: u64,
    ) -> bool {
        if self.call.is_some() {
            return self.go_on(sim, id, program);
        }
        if self.access.take().is_some() {
            let place = self.at - 1;
            self.ops.clear();
            self.stretch = Stretch::default();
            sim.tallies[id].end_phase(clock);
            if let Step::Initialize { .. } = program.steps[place] {
                self.arrive(sim, id, place);
                return false;
            }
        }
        match program.steps.get(self.at) {
            Some(step) => {
                self.at += 1;
                match step {
                    Step::Repeat { steps, until } => self.repeat(sim, id, *steps, *until),
                    Step::Cpu(step) => self.cpu_step(sim, id, step, program),
                    _ => self.step(sim, id, step, program),
                }
                let quiet =
                    self.call.is_some() || step.accesses() || matches!(step, Step::Repeat { .. });
                quiet && sim.tasks[id].clock == clock
            }
            None => {
                if !std::mem::replace(&mut self.exits, true) {
                    sim.exit(id);
                    if sim.tasks[id].clock > clock {
                        return false;
                    }
                }
                sim.tasks[id].run = Run::Ended;
                false
            }
        }
    }
    /// Goes back to the steps before this one, as often as that is to be.
    fn repeat(&mut self, sim: &mut Simulation, id: usize, steps: u32, until: Again) {
        let place = self.at - 1;
        let task = &sim.tasks[id];
        let clock = task.clock;
        let (rounds, last) = self.places[place].rounds;
        let more = match until {
            Again::Times(n) => rounds + 1 < n,
            Again::Until(t) => clock - task.started < t.0,
        };
        if !more {
            self.places[place].rounds = Place::NO_ROUND;
            return;
        }
        // A round in which nothing takes time would never come to an end.
        let empty = if last == clock { EMPTY_ROUND } else { 0 };
        self.places[place].rounds = (rounds + 1, clock + empty);
        self.returns += 1;
        self.at = place.saturating_sub(steps as usize);
        if empty > 0 {
            sim.tallies[id].empty_rounds += 1;
            sim.charge(id, empty, Why::System);
        }
    }
    /// Does the step before the one that it is at.
    fn step(&mut self, sim: &mut Simulation, id: usize, step: &Step, program: &Arc<Loaded>) {
        let place = self.at - 1;
        let space = sim.tasks[id].space;
        let clock = sim.tasks[id].clock;
        let map = program.maps[place];
        let find = |k: &Kernel| {
            let v = k.space(space).mapping(map?)?;
            let (start, pages, file) = (v.start, v.pages(), v.kind.file);
            Some((start, pages, k.space(space).place(start, file)?))
        };
        let mut ctx = sim.ctx(id);
        match step {
            Step::Madvise { mergeable, .. } => {
                if let Some((start, pages, _)) = find(&sim.kernel) {
                    // EAGAIN for want of memory: the program leaves it at that.
                    let range = (start, start + pages);
                    let _ = sim.kernel.madvise_merge(&mut ctx, space, range, *mergeable);
                }
            }
            Step::Touch { .. } | Step::Fill { .. } => {
                if let Some((start, pages, first)) = find(&sim.kernel) {
                    let (a, b) = self.share(pages);
                    let share = first + a as u32..first + b as u32;
                    let filling = match step {
                        Step::Fill { content, .. } => {
                            let holds = sim.kernel.holds(content, start, pages);
                            let kept = sim.kernel.memory.contents.is_some();
                            kept.then_some(Filling { holds, first, vpn: start })
                        }
                        _ => first_filling(&sim.kernel, space, (start, first), share),
                    };
                    let random = self.random(sim.seed);
                    if b > a {
                        self.stretch.filling = filling;
                        let touch = Access::touch(first + a as u32, b - a, random);
                        self.begin(sim, id, touch);
                    }
                }
            }
            Step::Initialize { order, .. } => {
                match find(&sim.kernel).filter(|_| self.thread == 0) {
                    Some((start, pages, first)) => {
                        let share = first..first + pages as u32;
                        self.stretch.filling =
                            first_filling(&sim.kernel, space, (start, first), share);
                        let random = self.random(sim.seed);
                        let all = Access::initialize(first, pages, *order, random);
                        self.begin(sim, id, all);
                    }
                    None => self.arrive(sim, id, place),
                }
            }
            Step::Barrier => self.arrive(sim, id, place),
            Step::Map { .. } => {
                if find(&sim.kernel).is_none() {
                    let maps = &sim.processes[sim.tasks[id].process].maps;
                    if let Some(m) = map.and_then(|number| maps.get(number)).cloned() {
                        let own = sim.kernel.numa[id].policy.clone();
                        sim.map(&mut ctx, space, (map, &m), &own);
                    }
                }
            }
            // Both have been done where steps are told apart.
            Step::Repeat { .. } | Step::Cpu(_) => {}
            Step::Access { pattern, write, compute, mlp, until, .. } => {
                if let Some((_, pages, first)) = find(&sim.kernel) {
                    let random = self.random(sim.seed);
                    let thread = (self.thread, self.threads);
                    let share = (first, pages);
                    let a = Access::new(share, thread, *pattern, *write, *until, clock, random);
                    self.stretch.compute = compute.0;
                    let wide = || Box::new(Wide::new(*mlp, Overlap::of(&sim.machine)));
                    self.stretch.pace = (*mlp > 1).then(|| Pace::Wide(wide()));
                    if let Until::Time(t) = until {
                        self.stretch.deadline = clock + t.0;
                    }
                    self.begin(sim, id, a);
                }
            }
            Step::Stream { rate, write, time, .. } => {
                if let Some((_, pages, first)) = find(&sim.kernel) {
                    let (from, to) = self.share(pages);
                    let random = self.random(sim.seed);
                    let share = (first + from as u32, (to - from).max(1));
                    let a = Access::stream(share, *write, random);
                    let each = LINE * 1_000_000 * self.threads / rate;
                    self.stretch.pace = Some(Pace::Stream(each.max(1)));
                    self.stretch.deadline = clock + time.0;
                    self.begin(sim, id, a);
                }
            }
            Step::Sleep(t) => sim.sleep_until(id, clock + t.0),
            Step::Wait => {
                if sim.tasks[id].children > 0 {
                    sim.block(id, On::Children);
                }
            }
            Step::Fork => {
                ctx.clock += sim.kernel.prices[Cost::Fork];
                self.forks = Some(Child::Same);
            }
            Step::Spawn { programs, at_most } => {
                if sim.tasks[id].children >= *at_most as usize {
                    // It looks again when one of them has ended.
                    self.at = place;
                    sim.block(id, On::Child);
                } else if let Some(program) = self.draw(sim, place, programs) {
                    ctx.clock += sim.kernel.prices[Cost::Fork];
                    self.forks = Some(Child::Program(program));
                }
            }
            Step::Unmap { .. } => {
                if let Some((start, pages, _)) = find(&sim.kernel) {
                    sim.kernel.unmap(&mut ctx, space, start, start + pages);
                }
            }
            Step::Mbind { policy, .. } => {
                if let Some((start, pages, _)) = find(&sim.kernel) {
                    let own = sim.kernel.numa[id].policy.clone();
                    sim.kernel.mbind(&mut ctx, space, start, start + pages, policy, &own);
                }
            }
            Step::MovePages { to, .. } => {
                if let Some((_, pages, first)) = find(&sim.kernel) {
                    let node = sim.kernel.place_of(*to);
                    for page in first..first + pages as u32 {
                        sim.kernel.move_page_to(&mut ctx, page, node);
                    }
                }
            }
        }
        sim.charge(id, ctx.clock - clock, Why::System);
    }
    /// The next of the programs that a step runs: each round all of them, in an order drawn anew.
    fn draw(&mut self, sim: &Simulation, place: usize, programs: &[String]) -> Option<usize> {
        let at = match self.left.iter().position(|(at, _)| *at == place) {
            Some(at) => at,
            None => {
                self.left.push((place, Vec::new()));
                self.left.len() - 1
            }
        };
        if self.left[at].1.is_empty() {
            let mut random = self.random(sim.seed);
            let named = programs.iter().filter_map(|name| sim.names.iter().position(|n| n == name));
            let mut round: Vec<u32> = named.map(|n| n as u32).collect();
            for i in (1..round.len()).rev() {
                round.swap(i, random.below(i as u64 + 1) as usize);
            }
            self.left[at].1 = round;
        }
        self.left[at].1.pop().map(|n| n as usize)
    }
    /// The part of so many pages that is this thread's: its first page, and the first that isn't.
    fn share(&self, pages: u64) -> (u64, u64) {
        let (i, n) = (self.thread, self.threads);
        (pages * i / n, pages * (i + 1) / n)
    }
    /// The accesses of a step begin.
    fn begin(&mut self, sim: &mut Simulation, id: usize, access: Access) {
        self.access = Some(Box::new(access));
        let clock = sim.tasks[id].clock;
        sim.tallies[id].begin_phase(self.at - 1, clock);
    }

    /// It comes to a step at which all threads of its process meet. The last one to come
    /// goes on at once, the others from the time of its coming.
    fn arrive(&mut self, sim: &mut Simulation, id: usize, place: usize) {
        let at = (sim.tasks[id].space, place);
        let waiting = sim.barriers.entry(at).or_default();
        if waiting.len() as u64 + 1 < self.threads {
            waiting.push(id);
            sim.block(id, On::Barrier);
            return;
        }
        let mut all = std::mem::take(waiting);
        for (place, &other) in all.iter().enumerate() {
            if let Some(&later) = all.get(place + 2) {
                sim.fetch_woken(later);
            }
            sim.wake(other, By::Task(id));
        }
        all.clear();
        // The same list again: nothing is allocated at the next meeting.
        sim.barriers.insert(at, all);
    }

    /// A child with a copy of the space does the parent's remaining steps, or runs a program.
    fn fork(&mut self, sim: &mut Simulation, id: usize, program: &Arc<Loaded>, what: Child) {
        let mut ctx = sim.ctx(id);
        let clock = ctx.clock;
        let child = match what {
            Child::Same => {
                let name = &self.label[..self.named];
                let label = format!("{name}/fork{}", sim.tasks[id].children);
                let child = Self::labelled(program.clone(), label, self.at, (0, 1), self.returns);
                sim.fork_task(&mut ctx, id, Box::new(child))
            }
            Child::Program(number) => {
                self.spawned += 1;
                sim.spawn_task(&mut ctx, id, number, self.spawned)
            }
        };
        let Some(child) = child else { return };
        sim.enqueue(child);
        sim.charge(id, ctx.clock - clock, Why::System);
    }

    // ── What is about CPUs ─────────────────────────────────────────────────────

    /// Begins a step that is about CPUs.
    fn cpu_step(&mut self, sim: &mut Simulation, id: usize, step: &CpuStep, program: &Loaded) {
        let place = self.at - 1;
        let prices = &sim.kernel.prices;
        match step {
            CpuStep::Compute { time, times, jitter, footprint } => {
                let time = match times.len() as u64 {
                    0 => time,
                    n => {
                        // The place of a step that repeats nothing has rounds of its own.
                        let round = &mut self.places[place].rounds.0;
                        *round += 1;
                        &times[((*round - 1) % n) as usize]
                    }
                };
                let vary = time.0 / 1000 * u64::from(*jitter);
                let time = match vary {
                    0 => time.0,
                    _ => time.0 - vary + self.random(sim.seed).below(2 * vary + 1),
                };
                self.computing.begin(parts(time));
                sim.set_footprint(id, footprint.0);
            }
            CpuStep::Write { to: which, bytes, sizes, .. } => {
                let bytes = match sizes.len() as u64 {
                    0 => *bytes,
                    n => sizes[self.random(sim.seed).below(n) as usize],
                };
                self.begin_call(sim, *which, bytes, program);
            }
            CpuStep::Read { from: which, bytes, .. } => {
                self.begin_call(sim, *which, *bytes, program);
            }
            CpuStep::FutexWait { which, .. }
            | CpuStep::FutexWake { which, .. }
            | CpuStep::Lock { which, .. }
            | CpuStep::Unlock { which, .. } => self.begin_call(sim, *which, 0, program),
            CpuStep::Work { time, wait, high } => {
                sim.charge(id, prices[Cost::QueueWork], Why::System);
                let cpu = sim.tasks[id].cpu;
                let work = Work { time: time.0, waiter: wait.then_some(id) };
                // It sleeps before the worker can have done it.
                if *wait {
                    sim.block(id, On::Work);
                }
                let waker = Waker { cpu, task: Some(id), sync: false, in_task: true };
                sim.queue_work(cpu, *high, work, waker);
            }
            CpuStep::Io { completion, iowait, .. } => {
                let Some(device) = program.things[place] else { return };
                sim.charge(id, prices[Cost::IoSubmit], Why::System);
                let done = sim.device_end(device, sim.tasks[id].clock);
                self.io = Some((device, *completion));
                sim.block(id, On::Device { iowait: *iowait });
                sim.set_timer(id, done);
            }
            CpuStep::Yield => {
                sim.charge(id, prices[Cost::Syscall], Why::System);
                sim.yield_now(id);
            }
            CpuStep::Exec => {
                sim.balance_exec(id);
                self.execs = true;
            }
            CpuStep::Affinity { cpus } => {
                sim.charge(id, prices[Cost::Syscall], Why::System);
                let places: Vec<usize> = cpus.iter().map(|&c| sim.cpus.place(c)).collect();
                sim.set_affinity(id, id, &places);
            }
            CpuStep::Nice { nice } => {
                sim.charge(id, prices[Cost::Syscall], Why::System);
                sim.set_nice(id, *nice);
            }
        }
    }
    fn begin_call(&mut self, sim: &Simulation, which: Which, bytes: u32, program: &Loaded) {
        let place = self.at - 1;
        let Some(name) = program.things[place] else { return };
        let number = self.number;
        // Asking takes divisions, and the answer is always the same.
        let (next, end) = *self.places[place].channels.get_or_insert_with(|| {
            let (first, n) = sim.channels.meant(name, which, number);
            (first, first + n)
        });
        self.call = Some(Call { next, end, paid: false, bytes });
    }
    /// Goes to the next call of a pipe and pays for it, as it will do at its clock; the clock at which that is over.
    /// `None`: something else is next.
    fn begin_next(&mut self, sim: &Simulation, id: usize) -> Option<u64> {
        if self.access.is_some() || self.execs || self.forks.is_some() || !self.computing.is_done()
        {
            return None;
        }
        let program = self.program.as_deref()?;
        let clock = sim.tasks[id].clock;
        let prices = Prices::of(sim, sim.tasks[id].cpu);
        if let Some(call) = &mut self.call {
            let Plain::Call(message) = program.plain[self.at - 1] else { return None };
            let price = prices.price(message);
            if call.paid || price == 0 {
                return None;
            }
            call.paid = true;
            self.begun = Some(Begun { time: clock, at: None, back: None });
            return Some(clock + price);
        }
        let (mut to, mut back) = (self.at, None);
        if let Some(Plain::Repeat(steps, again)) = program.plain.get(to) {
            let rounds = self.places[to].rounds;
            let more = match again {
                Again::Times(n) => rounds.0 + 1 < *n,
                Again::Until(t) => clock - sim.tasks[id].started < t.0,
            };
            if !more || rounds.1 == clock {
                return None;
            }
            back = Some((to, rounds));
            to = to.saturating_sub(*steps as usize);
        }
        let Some(Plain::Call(message)) = program.plain.get(to) else { return None };
        let (price, bytes) = (prices.price(*message), message.bytes());
        let (next, end) = self.places[to].channels.filter(|_| price > 0)?;
        self.begun = Some(Begun { time: clock, at: Some(self.at), back });
        if let Some((place, rounds)) = back {
            self.places[place].rounds = (rounds.0 + 1, clock);
            self.returns += 1;
        }
        self.at = to + 1;
        self.call = Some(Call { next, end, paid: true, bytes });
        Some(clock + price)
    }
    /// What it has begun ahead it has not begun.
    fn unbegin(&mut self, begun: Begun) {
        let Some(at) = begun.at else {
            if let Some(call) = &mut self.call {
                call.paid = false;
            }
            return;
        };
        (self.at, self.call) = (at, None);
        if let Some((place, rounds)) = begun.back {
            self.places[place].rounds = rounds;
            self.returns -= 1;
        }
    }
    /// The call of a pipe that it is in.
    #[inline]
    fn in_pipe(&self) -> Option<Message> {
        let (Some(_), Some(program)) = (&self.call, self.program.as_deref()) else { return None };
        match program.plain[self.at - 1] {
            Plain::Call(message) => Some(message),
            Plain::Repeat(..) | Plain::Other => None,
        }
    }
    /// Goes on with a call of a pipe, as [`Self::go_on`] does with all others.
    fn call_pipe(&mut self, sim: &mut Simulation, id: usize, message: Message) -> bool {
        let Some(call) = &mut self.call else { return false };
        if !std::mem::replace(&mut call.paid, true) {
            let price = Prices::of(sim, sim.tasks[id].cpu).price(message);
            sim.charge(id, price, Why::System);
            if price > 0 {
                return false;
            }
        }
        let (channel, cpu) = (call.next, sim.tasks[id].cpu);
        // Others may be ahead there.
        let wanted = match message {
            Message::Write(bytes) => Message::Write(bytes),
            Message::Read(_) => Message::Read(call.bytes),
        };
        let beside = sim.channels.call_beside(channel, wanted);
        if beside == Some(false) {
            sim.cut_at(channel);
        }
        let mut wakes = std::mem::take(&mut sim.wakes);
        let tried = match message {
            _ if beside == Some(true) => Tried::Done,
            Message::Write(bytes) => sim.channels.write(channel, (id, cpu), bytes, &mut wakes),
            Message::Read(_) => {
                call.bytes -= sim.channels.read(channel, (id, cpu), call.bytes, &mut wakes);
                if call.bytes == 0 { Tried::Done } else { Tried::Waits }
            }
        };
        match tried {
            Tried::Waits => sim.block(id, On::Channel(channel)),
            Tried::Done if channel + 1 == call.end => self.call = None,
            Tried::Done => {
                let (next, end, bytes) = (channel + 1, call.end, message.bytes());
                *call = Call { next, end, paid: false, bytes };
            }
        }
        let quiet = wakes.is_empty() && tried == Tried::Done;
        if !wakes.is_empty() {
            let waker = Waker { cpu: sim.tasks[id].cpu, task: Some(id), sync: true, in_task: true };
            for other in wakes.drain(..) {
                sim.wake_from(other, By::Task(id), waker);
            }
        }
        // The same list again: nothing is allocated at the next call.
        sim.wakes = wakes;
        quiet
    }
    /// Goes on with a call that is none of a pipe: pays for it, and then does it at the time at which that is over.
    /// Whether it has been done and nobody was called.
    fn go_on(&mut self, sim: &mut Simulation, id: usize, program: &Loaded) -> bool {
        let place = self.at - 1;
        let (Some(call), Step::Cpu(step), Some(name)) =
            (&mut self.call, &program.steps[place], program.things[place])
        else {
            self.call = None;
            return false;
        };
        let kind = sim.channels.kind(name);
        let net = matches!(kind, ChannelKind::Tcp | ChannelKind::Udp);
        // Who finds nothing sleeps at once, and pays for receiving when there is something.
        let reads = net && matches!(step, CpuStep::Read { .. });
        if reads && !call.paid && sim.channels.waits_for(call.next, id) {
            sim.block(id, On::Channel(call.next));
            return false;
        }
        if !std::mem::replace(&mut call.paid, true) {
            let cost = match step {
                CpuStep::Write { .. } => match kind {
                    ChannelKind::Socket => Cost::SocketSend,
                    ChannelKind::Udp => Cost::UdpSend,
                    ChannelKind::Tcp if sim.channels.queues(call.next, call.bytes) => {
                        Cost::TcpQueue
                    }
                    ChannelKind::Tcp => Cost::TcpSend,
                    ChannelKind::Pipe | ChannelKind::Futex | ChannelKind::Mutex => Cost::PipeWrite,
                },
                CpuStep::Read { .. } => match kind {
                    ChannelKind::Socket => Cost::SocketReceive,
                    ChannelKind::Udp => Cost::UdpReceive,
                    ChannelKind::Tcp => Cost::TcpReceive,
                    ChannelKind::Pipe | ChannelKind::Futex | ChannelKind::Mutex => Cost::PipeRead,
                },
                CpuStep::FutexWait { .. }
                | CpuStep::FutexWake { .. }
                | CpuStep::Lock { .. }
                | CpuStep::Unlock { .. }
                | CpuStep::Compute { .. }
                | CpuStep::Work { .. }
                | CpuStep::Io { .. }
                | CpuStep::Yield
                | CpuStep::Exec
                | CpuStep::Affinity { .. }
                | CpuStep::Nice { .. } => Cost::FutexCall,
            };
            let mut price = sim.kernel.prices[cost];
            // What is sent is copied first, what is received when it is there.
            if net && matches!(step, CpuStep::Write { .. }) {
                price += sim.copy_time(call.bytes);
            }
            let cpu = sim.tasks[id].cpu;
            if cost == Cost::SocketSend && sim.channels.is_read_far(call.next, cpu) {
                price += sim.kernel.prices[Cost::SocketSendFar];
            }
            sim.charge(id, price, Why::System);
            if price > 0 {
                return false;
            }
        }
        let (channel, cpu) = (call.next, sim.tasks[id].cpu);
        // What it has put behind others goes now: an ACK has come meanwhile.
        if net && matches!(step, CpuStep::Write { .. }) && sim.channels.owes(channel) {
            sim.charge(id, sim.segment_time(), Why::System);
            if sim.segment_time() > 0 {
                return false;
            }
        }
        let mut wakes = std::mem::take(&mut sim.wakes);
        let mut sync = false;
        let mut copied = 0;
        let tried = match step {
            CpuStep::Write { .. } => {
                sync = true;
                sim.channels.write(channel, (id, cpu), call.bytes, &mut wakes)
            }
            CpuStep::Read { .. } if net => {
                sync = true;
                let got = sim.channels.read(channel, (id, cpu), call.bytes, &mut wakes);
                copied = sim.copy_time(got);
                let whole = got > 0 && (call.bytes == REST || kind == ChannelKind::Udp);
                call.bytes = if whole { 0 } else { call.bytes.saturating_sub(got) };
                if whole || (got > 0 && call.bytes == 0) { Tried::Done } else { Tried::Waits }
            }
            CpuStep::Read { .. } => {
                sync = true;
                call.bytes -= sim.channels.read(channel, (id, cpu), call.bytes, &mut wakes);
                if call.bytes == 0 { Tried::Done } else { Tried::Waits }
            }
            CpuStep::FutexWait { .. } => sim.channels.futex_wait(channel, id),
            CpuStep::FutexWake { count, .. } => {
                sim.channels.futex_wake(channel, *count, &mut wakes);
                Tried::Done
            }
            CpuStep::Lock { .. } => sim.channels.lock(channel, id),
            CpuStep::Unlock { .. } => {
                sim.channels.unlock(channel, id, &mut wakes);
                Tried::Done
            }
            CpuStep::Compute { .. }
            | CpuStep::Work { .. }
            | CpuStep::Io { .. }
            | CpuStep::Yield
            | CpuStep::Exec
            | CpuStep::Affinity { .. }
            | CpuStep::Nice { .. } => Tried::Done,
        };
        match tried {
            Tried::Waits => sim.block(id, On::Channel(channel)),
            Tried::Done => {
                call.next += 1;
                call.paid = false;
                if let CpuStep::Read { bytes, .. } = step {
                    call.bytes = *bytes;
                }
                if call.next == call.end {
                    self.call = None;
                }
            }
        }
        let segments = if net { u64::from(sim.channels.segments()) } else { 0 };
        let far = u64::from(sim.channels.sent_far()) * sim.kernel.prices[Cost::SocketReceiveFar];
        let late = copied + segments * sim.segment_time() + far;
        let quiet = wakes.is_empty() && tried == Tried::Done && late == 0;
        if late > 0 {
            sim.charge(id, late, Why::System);
        }
        if !wakes.is_empty() {
            let waker = Waker { cpu: sim.tasks[id].cpu, task: Some(id), sync, in_task: true };
            for other in wakes.drain(..) {
                sim.wake_from(other, By::Task(id), waker);
            }
        }
        // The same list again: nothing is allocated at the next call.
        sim.wakes = wakes;
        quiet
    }
}

/// What a first touch of some pages of a mapping writes where huge pages may be: one
/// fault brings many pages, and each of them is yet to get its content from the program.
/// `None` where a fault does that for each page, or where they have been touched.
fn first_filling(
    kernel: &Kernel,
    space: usize,
    (start, first): (u64, u32),
    share: std::ops::Range<u32>,
) -> Option<Filling> {
    kernel.memory.contents.as_ref()?;
    let space = kernel.space(space);
    let vma = &space.vmas[space.find(start)?];
    let kind = &vma.kind;
    if !kernel.may_be_huge(vma) || kind.holds == Holds::Own {
        return None;
    }
    // Another thread may have touched the block that its share ends in.
    let aligned = share.start.next_multiple_of(BLOCK);
    let from = if aligned < share.end { aligned } else { share.start };
    let words = &kernel.memory.words[from as usize..share.end as usize];
    let untouched = words.iter().all(|&w| w == 0);
    untouched.then_some(Filling { holds: kind.holds, first, vpn: start })
}

impl Program for Steps {
    fn ahead(&mut self, sim: &mut Simulation, id: usize, until: u64) -> Ahead {
        if !self.computing.is_done() {
            return self.computing.ahead(sim, id);
        }
        if self.stretch.at >= self.ops.len() {
            // What comes next is an act.
            self.stretch.stay();
            return Ahead { clock: sim.tasks[id].clock, act: true, far: false };
        }
        self.stretch.ahead(sim, id, &self.ops, until)
    }
    fn back(&mut self, sim: &mut Simulation, id: usize, to: u64) -> u64 {
        let cpu = sim.tasks[id].cpu;
        let order = Order { time: to, stands: sim.cpus.had_turn(to, cpu) };
        if let Some(begun) = self.begun {
            if order.reaches(begun.time) {
                return sim.cpus[cpu].clock();
            }
            self.begun = None;
            self.unbegin(begun);
            return begun.time;
        }
        if !self.calls_ahead.is_empty() {
            let prices = Prices::of(sim, sim.tasks[id].cpu);
            let clock = self.thread().and_then(|mut t| t.back(&mut sim.channels, prices, order));
            return clock.unwrap_or(sim.cpus[cpu].clock());
        }
        if !self.computing.is_done() {
            return self.computing.back(sim, id, to);
        }
        self.stretch.back(sim, id, &self.ops, to)
    }
    fn calls_ahead(&mut self, sim: &mut Simulation, id: usize, until: u64) -> Option<u64> {
        // Most are asked in vain where tasks wait for each other.
        let (call, program) = (self.call.as_ref()?, self.program.as_deref()?);
        let Plain::Call(message) = program.plain[self.at - 1] else { return None };
        if !call.paid || !sim.channels.may_be_ahead(call.next, message) {
            return None;
        }
        self.thread()?.go(sim, id, until)
    }
    fn back_at(&mut self, sim: &mut Simulation, id: usize, channel: u32) -> Option<u64> {
        let now = sim.now();
        let order = Order { time: now, stands: sim.cpus.had_turn(now, sim.tasks[id].cpu) };
        let prices = Prices::of(sim, sim.tasks[id].cpu);
        self.thread()?.back_at(&mut sim.channels, prices, channel, order)
    }
    fn begin_ahead(&mut self, sim: &Simulation, id: usize) -> Option<u64> {
        self.begin_next(sim, id)
    }
    fn is_in_act(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.paid)
            && self.computing.is_done()
            && self.stretch.at >= self.ops.len()
    }
    fn next_ops(&self) -> usize {
        match self.ops.get(self.stretch.at) {
            Some(op) => std::ptr::from_ref(op).addr(),
            None => 0,
        }
    }
    fn fetch(&self) {
        prefetch_value(std::ptr::from_ref(self).addr(), HOT);
        prefetch_at(&raw const self.io);
    }
    fn fetch_further(&self) {
        prefetch_at(self.label.as_ptr());
        prefetch_at(self.places.as_ptr().wrapping_add(self.at.saturating_sub(1)));
    }
    fn fetch_pages(&self, words: &[u32]) {
        hot::fetch_first(&self.ops[self.stretch.at..], words);
    }
    fn ends_wait(&self, channels: &Channels, channel: u32, takes: bool) -> bool {
        let Some(program) = &self.program else { return false };
        program.steps.iter().zip(&program.things).any(|(step, thing)| {
            let (Step::Cpu(step), &Some(name)) = (step, thing) else { return false };
            let Some((_, which)) = step.channel() else { return false };
            let (first, n) = channels.meant(name, which, self.number);
            let ends = match step {
                CpuStep::Write { .. } | CpuStep::FutexWake { .. } | CpuStep::Unlock { .. } => takes,
                CpuStep::Read { .. } | CpuStep::FutexWait { .. } | CpuStep::Lock { .. } => !takes,
                CpuStep::Compute { .. }
                | CpuStep::Work { .. }
                | CpuStep::Io { .. }
                | CpuStep::Yield
                | CpuStep::Exec
                | CpuStep::Affinity { .. }
                | CpuStep::Nice { .. } => false,
            };
            ends && (first..first + n).contains(&channel)
        })
    }
    fn settle(&mut self, sim: &mut Simulation, id: usize) {
        if self.begun.take().is_some() {
            return;
        }
        if !self.calls_ahead.is_empty() {
            if let Some(mut thread) = self.thread() {
                thread.settle(&mut sim.channels);
            }
            return;
        }
        if !self.computing.is_done() {
            return self.computing.settle(sim, id);
        }
        self.stretch.settle(sim, id, &self.ops);
    }
    fn timer(&mut self, sim: &mut Simulation, id: usize) {
        match self.io.take() {
            Some((device, completion)) => match sim.device_late(id, device) {
                0 => sim.device_done(id, device, completion),
                late => {
                    self.io = Some((device, completion));
                    sim.set_timer(id, sim.now() + late);
                }
            },
            None => sim.wake(id, By::Timer),
        }
    }
    fn act(&mut self, sim: &mut Simulation, id: usize, _until: u64) {
        if !self.computing.is_done() {
            // Somebody else had its turn before the work was done: on with it.
            return;
        }
        if self.stretch.at < self.ops.len() && !self.stretch.is_late(sim.tasks[id].clock) {
            self.stretch.serve(sim, id, &self.ops);
        } else if !self.stretch.sample(sim, id, &self.ops) {
            // Nobody's turn can come between two steps of which nobody notices the first.
            while self.advance(sim, id) && sim.goes_on_now(id) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_appended_as_they_are_formatted() {
        for number in [0, 7, 10, 99, 100, 12_345, u64::from(u32::MAX), u64::MAX] {
            let mut text = "r".to_owned();
            push_number(&mut text, number);
            assert_eq!(text, format!("r{number}"));
        }
    }
}
