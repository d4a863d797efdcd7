//! From data to a simulation: a machine, a scenario, knobs.

use crate::channel::Channels;
use crate::kernel::{Ctx, Kernel, Mapping};
use crate::memory::MemoryError;
use crate::program::{Ids, Kswapd};
use crate::replay::{Charge, Player, Recording};
use crate::sched::Terms;
use crate::simulation::{Frequency, Simulation};
use crate::space::Kind;
use crate::spare::{every, used, with_spare};
use crate::tasks::Kind as TaskKind;
use crate::watch::Watch;
use homenode_core::hooks::MakeHooks;
use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::{KnobError, Knobs, WriteAs};
use homenode_core::ksm::register::has_merge_any;
use homenode_core::scale::Scale;
use homenode_core::scenario::{Content, CpuOrder, Map, Mempolicy, Model, Process, Scenario, Step};
use homenode_core::sched::frequency::Governor;
use homenode_core::tiering::mode::Mode;
use homenode_core::topology::{Hardware, Impossible};
use homenode_core::units::{CpuId, HUGE_PAGES, Pages, count};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a run needs beside the machine and the programs.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The kernel's rules and defaults.
    pub version: KernelVersion,
    /// Knobs by name, written in this order before anything starts.
    pub knobs: Vec<(String, String)>,
    /// Choices that are no knob.
    pub model: Model,
    /// Seed of all random streams.
    pub seed: u64,
    /// Virtual time after which the run stops, in picoseconds.
    pub duration: Option<u64>,
    /// Room for address space in pages beside what the scenario maps at its start.
    pub room: u64,
    /// Injected failures of migrations, in thousandths.
    pub fail_moves: u32,
    /// Leaves the tick's hook of balancing out, to measure what it costs.
    pub without_balancing: bool,
    /// Keeps what pages hold, so that ksmd can merge equal ones. A scenario that may
    /// merge has it without being asked.
    pub contents: bool,
    /// What decides inside the kernel in place of Linux's rules and of `model.admission`.
    pub hooks: Option<MakeHooks>,
    /// Files of `/sys/kernel/mm/ksm` by name with what is written to them, in this order,
    /// before anything starts.
    pub ksm: Vec<(String, String)>,
    /// The kernel's command line: `schedstats=enable` or nothing.
    pub command_line: String,
    /// What the machine stands for: the kernel's own amounts are a part of the large one's.
    pub scale: Scale,
    /// So many CPUs are there beside those that programs may use, the first of them; the machine's
    /// others are not. `None`: all are there.
    pub spare: Option<u32>,
}

/// Why nothing can be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A knob's or a file's name or value.
    #[error("{0}")]
    Knob(KnobError),
    /// Memory that cannot be modelled or had.
    #[error("{0}")]
    Memory(#[source] MemoryError),
    /// The machine contradicts itself.
    #[error("the machine is impossible: {0:?}")]
    Hardware(Impossible),
    /// The scenario names what is not there.
    #[error("{0}")]
    Scenario(String),
}

impl Simulation {
    /// A booted machine without programs.
    ///
    /// # Errors
    /// [`SimError`], if a knob is refused or the memory cannot be modelled.
    pub fn boot(machine: &Hardware, setup: &Setup, pages: u64) -> Result<Self, SimError> {
        Self::boot_with(machine, setup, pages, setup.contents)
    }
    /// The same, with contents or without them.
    fn boot_with(
        machine: &Hardware,
        setup: &Setup,
        pages: u64,
        contents: bool,
    ) -> Result<Self, SimError> {
        let mut knobs = Knobs::new(setup.version).scaled(setup.scale);
        // With nothing to balance between, the kernel leaves it off at boot
        // (specs/knobs.md#table).
        if machine.nodes.len() < 2 {
            knobs.numa_balancing = Mode::OFF;
        }
        let (stats, said) = crate::switch::boot(&setup.command_line).map_err(SimError::Scenario)?;
        knobs.sched_schedstats |= stats;
        let model = setup.model.clone();
        let order = model.order;
        let pages = pages + setup.room;
        let mut kernel =
            Kernel::new(machine, knobs, model, pages, setup.seed).map_err(SimError::Memory)?;
        kernel.fail_moves = setup.fail_moves;
        for (name, value) in &setup.knobs {
            kernel.set_knob(name, value, WriteAs::default(), 0).map_err(SimError::Knob)?;
        }
        kernel.match_generations().map_err(SimError::Memory)?;
        if contents {
            kernel.memory.keep_contents().map_err(SimError::Memory)?;
        }
        let mut ctx = Ctx::nobody(0);
        for (name, value) in &setup.ksm {
            kernel.write_ksm(&mut ctx, name, value).map_err(SimError::Knob)?;
        }
        if let CpuOrder::Quantum(q) = order {
            if q.0 == 0 || q.0 > 10_000_000 {
                return Err(SimError::Scenario("a quantum is above 0 and at most 10 µs".into()));
            }
        }
        let pmu = setup.hooks.and_then(|make| kernel.put_in(make, machine));
        let clocks = Frequency::new(machine, setup.model.clocks, setup.version);
        let mut s = Self::empty(machine, kernel, order, setup.seed, setup.duration);
        s.frequency = clocks.map_err(SimError::Scenario)?;
        if s.frequency.governor != Governor::Nominal {
            s.prices.follow(machine.cpus.len());
        }
        for node in 0..s.machine.nodes.len() {
            s.start_daemon(TaskKind::Kswapd(node), Box::new(Kswapd(node)));
        }
        s.pmu = pmu;
        for what in said {
            s.say(what.to_owned());
        }
        s.sched.set_knobs(&s.kernel.knobs);
        if contents {
            s.start_ksmd();
        }
        s.without_balancing = setup.without_balancing;
        Ok(s)
    }

    /// A scenario on a machine. `setup` holds the scenario's own knobs, model, seed
    /// and duration, changed as the caller wishes: see [`Setup::of`].
    ///
    /// # Errors
    /// [`SimError`], if a knob is refused, the memory cannot be modelled, the
    /// scenario names a CPU, node or mapping that is not there, or fewer CPUs are spare than
    /// [`Setup::spare`] asks for.
    pub fn new(machine: &Hardware, scenario: &Scenario, setup: &Setup) -> Result<Self, SimError> {
        check(machine, scenario)?;
        let machine = match setup.spare {
            Some(spare) => &left(machine, &used(machine, scenario), spare)?,
            None => machine,
        };
        // Each mapping may begin in the middle of a block and leave one open; each
        // fork may copy all of a process.
        let pages_of = |p: &Process| {
            let forks = p.steps.iter().filter(|s| matches!(s, Step::Fork)).count() as u64;
            // What is mapped again may find its old place taken by another's.
            let again = |m: &Map| {
                let same = |s: &Step| matches!(s, Step::Map { map } if *map == m.name);
                1 + u64::from(p.steps.iter().any(same))
            };
            let pages = |m: &Map| (Pages::holding(m.size).0 + 2 * HUGE_PAGES) * again(m);
            let maps: u64 = p.maps.iter().map(pages).fold(0, u64::saturating_add);
            // Every thread forks, and a child does the remaining steps, forks included.
            let children = ((1u64 << forks.min(20)) - 1).saturating_mul(p.thread_count() as u64);
            // Holes that children leave need not fit the next one's mappings.
            let slack = if forks > 1 { 2 } else { 1 };
            let one = maps.saturating_mul(1 + children.saturating_mul(slack));
            one.saturating_mul(p.copy_count().into())
        };
        // Programs run later ones, so from the last on: what one of a program needs with all that it runs.
        let mut needs: Vec<u64> = scenario.processes.iter().map(pages_of).collect();
        for place in (0..needs.len()).rev() {
            let own = needs[place];
            for (names, at_most) in scenario.processes[place].spawns() {
                let named = (place + 1..needs.len())
                    .filter(|&n| names.contains(&scenario.processes[n].name))
                    .map(|n| needs[n]);
                // A child has a copy of its parent's until it runs its own; and there are holes, as above.
                let child = named.max().unwrap_or(0).saturating_mul(2).saturating_add(own);
                needs[place] = needs[place].saturating_add(child.saturating_mul(at_most.into()));
            }
        }
        let alone = scenario.processes.iter().zip(&needs).filter(|(p, _)| !p.spawned);
        let pages = alone.map(|(_, n)| *n).fold(0u64, u64::saturating_add);
        let contents = setup.contents || scenario.may_merge();
        let mut s = Self::boot_with(machine, setup, pages, contents)?;
        s.add_groups(&scenario.groups).map_err(SimError::Scenario)?;
        s.channels = Channels::new(&scenario.channels, s.kernel.knobs.version);
        s.add_devices(&scenario.devices);
        for p in &scenario.processes {
            if let Some(name) = guest_group_twice(p, &s) {
                return Err(SimError::Scenario(format!(
                    "guest '{name}' has a group of its own name, and there is one already"
                )));
            }
            if p.memory_merge && !has_merge_any(setup.version) {
                return Err(SimError::Scenario(format!(
                    "process '{}' has memory_merge, but Linux {} has no PR_SET_MEMORY_MERGE: \
                     give its maps mergeable = true",
                    p.name,
                    setup.version.name()
                )));
            }
            for image in images(p) {
                s.kernel.image(image);
            }
            s.add_process(p.clone());
        }
        s.plan(&scenario.actions);
        Ok(s)
    }

    /// A recording on a machine: its tasks may run on [`Charge::cpus`].
    ///
    /// # Errors
    /// [`SimError`], if a knob is refused, the memory cannot be modelled, or fewer CPUs are spare
    /// than [`Setup::spare`] asks for.
    pub fn replay(
        machine: &Hardware,
        setup: &Setup,
        recording: &Arc<Recording>,
        name: &str,
        charge: &Charge,
    ) -> Result<Self, SimError> {
        let machine = match setup.spare {
            // Without a list it may run anywhere.
            Some(spare) if !charge.cpus.is_empty() => {
                &left(machine, &charge.cpus.iter().copied().collect(), spare)?
            }
            Some(spare) => &left(machine, &every(machine), spare)?,
            None => machine,
        };
        let mut s = Self::boot(machine, setup, recording.room())?;
        let places: Vec<usize> = charge.cpus.iter().map(|&c| s.cpus.place(c)).collect();
        let set = s.sched.q.set(&places);
        let terms = Terms { set, ..Terms::default() };
        let cpu = s.sched.q.sets[set as usize].first();
        let process = s.add_program(name);
        let space = s.kernel.new_space();
        let player = Player::new(recording.clone(), 0, Arc::new(charge.clone()));
        let id = s.new_task(TaskKind::Replayed, process, space, cpu, &terms, Box::new(player));
        s.kernel.numa[id].policy = charge.policy.clone();
        s.kernel.space_mut(space).users = 1;
        s.kernel.numa_born(id, None, 1, 0);
        s.replayed.insert(0, id);
        s.enqueue(id);
        Ok(s)
    }

    /// One process that runs operations made beforehand (page numbers from 0, the
    /// direction in the top bit) over and over on `pages` pages: the benchmark's
    /// way in. One thread per entry of `ids`, on the CPUs `cpus`.
    ///
    /// # Errors
    /// [`SimError`], as for [`Simulation::new`].
    pub fn with_ids(
        machine: &Hardware,
        setup: &Setup,
        pages: u64,
        cpus: &[CpuId],
        ids: &[Arc<[u32]>],
    ) -> Result<Self, SimError> {
        let mut s = Self::boot(machine, setup, pages + HUGE_PAGES)?;
        let process = s.add_program("ids");
        let space = s.kernel.new_space();
        let mut tasks = Vec::new();
        for (&cpu, ids) in cpus.iter().zip(ids) {
            let cpu = s.cpus.place(cpu);
            let program = Box::new(Ids::new(ids.clone()));
            let set = s.sched.q.set(&[cpu]);
            let terms = Terms { set, ..Terms::default() };
            tasks.push(s.new_task(TaskKind::Thread, process, space, cpu, &terms, program));
        }
        s.kernel.spaces[space].as_mut().expect("just made").users = tasks.len() as u32;
        let mut ctx = Ctx { task: tasks[0], node: 0, cpu: 0, clock: 0 };
        // Pages are numbered from the first block, so that an id is its own place.
        let kind = Kind { readable: true, writable: true, ..Kind::default() };
        let m = Mapping { start: 0, pages, kind, name: "ids".into() };
        s.kernel.map(&mut ctx, space, m, &Mempolicy::Default).map_err(SimError::Memory)?;
        for (i, &id) in tasks.iter().enumerate() {
            s.kernel.numa_born(id, (i > 0).then_some(tasks[0]), i as u32 + 1, 0);
        }
        for id in tasks {
            s.enqueue(id);
        }
        Ok(s)
    }

    /// Gives a thread of [`Simulation::with_ids`] other operations.
    pub fn replace_ids(&mut self, thread: usize, ids: Arc<[u32]>) {
        let daemons = self.machine.nodes.len();
        self.programs[daemons + thread] = Some(Box::new(Ids::new(ids)));
    }

    /// Lets somebody look on.
    pub fn watch(&mut self, watch: Box<dyn Watch>) {
        self.kernel.watch = Some(watch);
    }
    /// Takes the onlooker back.
    pub fn unwatch(&mut self) -> Option<Box<dyn Watch>> {
        self.kernel.watch.take()
    }
}

impl Setup {
    /// What the scenario itself asks for.
    pub fn of(scenario: &Scenario) -> Self {
        Self {
            version: scenario.kernel,
            knobs: scenario.knobs.clone(),
            model: scenario.model.clone(),
            seed: scenario.seed,
            ksm: scenario.ksm.clone(),
            contents: scenario.may_merge(),
            duration: scenario.duration.map(|d| d.0),
            command_line: scenario.command_line.clone(),
            scale: scenario.scale,
            ..Self::default()
        }
    }
}

/// The images of a process in the order in which they appear.
fn images(p: &Process) -> impl Iterator<Item = &str> {
    let fills = p.steps.iter().filter_map(|s| match s {
        Step::Fill { content, .. } => Some(content),
        _ => None,
    });
    p.maps.iter().map(|m| &m.content).chain(fills).filter_map(|c| match c {
        Content::Image { name, .. } => Some(name.as_str()),
        Content::Own | Content::Zero => None,
    })
}

/// The name of a guest's group that is there already.
fn guest_group_twice(p: &Process, s: &Simulation) -> Option<String> {
    let names = (0..p.copy_count()).map(|copy| match p.copy_count() {
        1 => p.name.clone(),
        _ => format!("{}-{copy}", p.name),
    });
    names.into_iter().find(|name| p.guest && s.sched.q.groups.number(name).is_some())
}

/// The machine without CPUs that nobody is to have.
fn left(machine: &Hardware, used: &BTreeSet<CpuId>, spare: u32) -> Result<Hardware, SimError> {
    with_spare(machine, used, spare).map_err(SimError::Scenario)
}

/// What a scenario says of the machine must be there.
fn check(machine: &Hardware, scenario: &Scenario) -> Result<(), SimError> {
    let no = |text: String| Err(SimError::Scenario(text));
    let node = |n| machine.nodes.iter().any(|x| x.id == n && x.managed().0 > 0);
    let policy = |p: &Mempolicy| match p {
        Mempolicy::Default | Mempolicy::Local => true,
        Mempolicy::Bind { nodes, .. } | Mempolicy::Interleave(nodes) => {
            !nodes.is_empty() && nodes.iter().all(|&n| node(n))
        }
        Mempolicy::Preferred(n) => node(*n),
        Mempolicy::WeightedInterleave(w) => {
            !w.is_empty() && w.iter().all(|&(n, weight)| node(n) && weight > 0)
        }
    };
    if let Some((place, _, why)) = scenario.spawns_wrong() {
        return no(format!("process '{}': {why}", scenario.processes[place].name));
    }
    for p in &scenario.processes {
        let there = |name: &String| scenario.groups.iter().any(|g| g.name == *name);
        if let Some(group) = p.group.as_ref().filter(|name| !there(name)) {
            return no(format!("process '{}' is in group '{group}', which is not there", p.name));
        }
        for c in &p.cpus {
            if !machine.cpus.iter().any(|x| x.id == *c) {
                return no(format!(
                    "process '{}' runs on CPU {c}, which the machine lacks",
                    p.name
                ));
            }
        }
        let bad = |what: &str| {
            format!(
                "process '{}': {what} names a node that the machine lacks or that is empty",
                p.name
            )
        };
        if !policy(&p.policy) {
            return no(bad("its policy"));
        }
        if let Some(m) = p.maps.iter().find(|m| !policy(&m.policy)) {
            return no(bad(&format!("the policy of map '{}'", m.name)));
        }
        for (i, step) in p.steps.iter().enumerate() {
            if let Step::Repeat { steps, .. } = step {
                let back = i.checked_sub(*steps as usize).filter(|_| *steps > 0);
                let Some(back) = back else {
                    return no(format!(
                        "process '{}': step {i} repeats {}; {} before it",
                        p.name,
                        count(u64::from(*steps), "step", "steps"),
                        count(i as u64, "step is", "steps are")
                    ));
                };
                if p.steps[back..i].contains(&Step::Fork) {
                    return no(format!("process '{}': step {i} repeats a fork", p.name));
                }
            }
            if let Some(m) = step.map().filter(|m| p.map_number(m).is_none()) {
                return no(format!("process '{}' has no map named '{m}'", p.name));
            }
            match step {
                Step::Mbind { policy: new, .. } if !policy(new) => return no(bad("mbind")),
                Step::MovePages { to, .. } if !node(*to) => return no(bad("move_pages")),
                _ => {}
            }
        }
    }
    Ok(())
}
