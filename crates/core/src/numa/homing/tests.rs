use super::*;
use crate::numa::weights::tests::faults;
use KernelVersion::{V3_8, V4_5, V4_15, V6_1, V6_12, V7_3};
use proptest::prelude::*;

/// Something that runs on a CPU.
#[derive(Clone, Debug)]
struct Runs {
    task: u32,
    faults: TaskFaults,
    group: Option<GroupFaults>,
    may_come: bool,
    of_program: bool,
    h_load: u64,
}

/// Two nodes of as many CPUs as the case says; task 0 runs on CPU 0 of node 0.
#[derive(Clone, Debug)]
struct Machine {
    nodes: Vec<Vec<u16>>,
    figures: Vec<CpuFigures>,
    runs: Vec<Option<Runs>>,
    forbidden: Vec<u16>,
    claimed: Vec<u16>,
}

impl Machine {
    fn new(per_node: u16, nodes: u16) -> Self {
        let figures = CpuFigures { capacity: 1024, ..CpuFigures::default() };
        let nr = usize::from(per_node * nodes);
        let of = |n: u16| (n * per_node..(n + 1) * per_node).collect();
        Self {
            nodes: (0..nodes).map(of).collect(),
            figures: vec![figures; nr],
            runs: vec![None; nr],
            forbidden: Vec::new(),
            claimed: Vec::new(),
        }
    }
    /// A task runs alone on a CPU.
    fn run(&mut self, cpu: u16, runs: Runs) {
        let f = &mut self.figures[usize::from(cpu)];
        let load = runs.h_load;
        *f = CpuFigures { load, runnable: 1024, util: 1024, nr_queued: 1, ..*f };
        self.runs[usize::from(cpu)] = Some(runs);
    }
}

impl Seen for Machine {
    fn cpus(&self, node: NodeId) -> &[u16] {
        &self.nodes[node.index()]
    }
    fn figures(&self, cpu: u16) -> CpuFigures {
        self.figures[usize::from(cpu)]
    }
    fn is_idle(&self, cpu: u16) -> bool {
        self.figures[usize::from(cpu)].nr_queued == 0
    }
    fn is_core_idle(&self, cpu: u16) -> bool {
        // Two threads a core.
        let other = self.figures.get(usize::from(cpu ^ 1));
        self.is_idle(cpu) && other.is_none_or(|f| f.nr_queued == 0)
    }
    fn is_claimed(&self, cpu: u16) -> bool {
        self.claimed.contains(&cpu)
    }
    fn may_run(&self, cpu: u16) -> bool {
        !self.forbidden.contains(&cpu)
    }
    fn current(&self, cpu: u16) -> Option<Partner<'_>> {
        self.runs[usize::from(cpu)].as_ref().map(|r| Partner {
            task: r.task,
            may_come: r.may_come,
            of_program: r.of_program,
            faults: &r.faults,
            group: r.group.as_ref(),
            h_load: r.h_load,
        })
    }
    fn idle_near(&self, cpu: u16) -> u16 {
        let node = self.nodes.iter().find(|n| n.contains(&cpu)).expect("a CPU of a node");
        node.iter().copied().find(|&c| self.is_idle(c)).unwrap_or(cpu)
    }
}

fn task(task: u32, by_node: &[u64], preferred: Option<u16>) -> Runs {
    let faults = TaskFaults { preferred: preferred.map(NodeId), ..faults(by_node) };
    Runs { task, faults, group: None, may_come: true, of_program: true, h_load: 1024 }
}

fn in_group(mut r: Runs, id: u32, by_node: &[u64], active: u32) -> Runs {
    let mut g = GroupFaults::found(id, &faults(by_node));
    g.active_nodes = active;
    r.group = Some(g);
    r
}

fn even(nodes: u16) -> Distances {
    let row = |i| (0..nodes).map(|j| if i == j { 10 } else { 21 }).collect();
    let rows: Vec<Vec<u32>> = (0..nodes).map(row).collect();
    let ids: Vec<NodeId> = (0..nodes).map(NodeId).collect();
    Distances::new(&ids, &rows, &ids)
}

fn mover(who: &Runs) -> Mover<'_> {
    Mover {
        task: who.task,
        cpu: 0,
        node: NodeId(0),
        faults: &who.faults,
        group: who.group.as_ref(),
        h_load: who.h_load,
        level: Some((117, 2)),
    }
}

fn ask(m: &Machine, who: &Runs, version: KernelVersion) -> Homing {
    choose(&even(m.nodes.len() as u16), m, &mover(who), version)
}

/// Task 0, at home on node 1, runs on CPU 0.
fn away() -> Runs {
    task(0, &[50, 950], Some(1))
}

fn machine(per_node: u16) -> Machine {
    let mut m = Machine::new(per_node, 2);
    m.run(0, away());
    m
}

// specs/numa.md#node-class: 8 CPUs of 1024, pct 108.
#[test]
fn classes() {
    let class = |nr_running, util, runnable| {
        NodeStats { nr_running, util, runnable, capacity: 8192, weight: 8, load: 0 }.class(108)
    };
    assert_eq!(class(9, 7000, 8000), NodeClass::Spare);
    assert_eq!(class(9, 7700, 8000), NodeClass::Overloaded);
    assert_eq!(class(8, 7000, 8000), NodeClass::Spare);
    assert_eq!(class(8, 7700, 8000), NodeClass::Busy);
    assert_eq!(class(8, 7000, 9000), NodeClass::Busy);
    assert_eq!(class(7, 8192, 9000), NodeClass::Spare, "fewer tasks than CPUs");
}

// specs/numa.md#homing: equal capacities, a load of 1024 that moves.
#[test]
fn balance() {
    let of = |load| NodeStats { load, capacity: 8192, ..NodeStats::default() };
    let worse = |s, d| worse_balanced(&of(s), &of(d), 1024);
    assert_eq!([worse(4096, 3072), worse(4096, 3584), worse(4096, 2048)], [false, true, false]);
    // Twice the capacity may hold twice the load.
    let large = NodeStats { load: 6000, capacity: 16384, ..NodeStats::default() };
    assert!(!worse_balanced(&of(4096), &large, 1024));
    // Up to 4.15 what stays within 112 % doesn't matter.
    let before = |s, d| worse_balanced_before(&of(s), &of(d), 1024, 112);
    assert_eq!([before(41_000, 39_000), before(4096, 3584)], [false, true]);
}

// specs/numa.md#homing-before: cores, from capacity and threads.
#[test]
fn cores_before() {
    let cores = |weight, capacity| NodeStats { weight, capacity, ..NodeStats::default() }.cores();
    assert_eq!((cores(8, 8192), cores(8, 8 * 589), cores(8, 0)), (8, 4, 0));
    assert_eq!(cores(4, 3 * 1024), 2, "4 threads of 768: two a core");
}

// specs/numa.md#homing: an idle CPU at home is taken at once, of an idle core first.
#[test]
fn goes_home() {
    let mut m = machine(4);
    let stays = Homing { way: Way::Stay, preferred: None, period: Restart::No };
    let to = |cpu| Homing { way: Way::Move { cpu }, ..stays };
    for version in [V6_1, V6_12, V7_3] {
        assert_eq!(ask(&m, &away(), version), to(4));
    }
    m.run(5, task(7, &[0, 1000], Some(1)));
    assert_eq!(ask(&m, &away(), V6_12), to(6), "CPU 4's core has a busy thread");
    m.forbidden = vec![6, 7];
    assert_eq!(ask(&m, &away(), V6_12), to(4));
    m.forbidden = vec![4, 5, 6, 7];
    assert_eq!(ask(&m, &away(), V6_12), stays, "it may not run at home");
    m.forbidden = Vec::new();
    m.claimed = vec![6];
    assert_eq!(ask(&m, &away(), V6_12), to(7), "somebody else goes to 6");
    assert_eq!(ask(&m, &task(0, &[0, 1], None), V6_12), stays, "no preferred node");
}

// specs/numa.md#homing: no level spans nodes, as where a cpuset holds it back: it is at home where it is.
#[test]
fn trapped() {
    let (m, who) = (machine(2), away());
    let mover = Mover { level: None, ..mover(&who) };
    let found = choose(&even(2), &m, &mover, V6_12);
    assert_eq!((found.way, found.preferred), (Way::Stay, Some(NodeId(0))));
}

// specs/numa.md#homing: a spare node that would hold too many more than the one that is left takes nobody, even
// with an idle CPU; within the allowed imbalance it does.
#[test]
fn imbalance_holds() {
    let mut m = machine(8);
    let busy = |m: &mut Machine, n: u16| {
        for cpu in 8..8 + n {
            m.run(cpu, task(u32::from(cpu), &[0, 1000], Some(1)));
            m.runs[usize::from(cpu)].as_mut().expect("it runs").may_come = false;
        }
    };
    busy(&mut m, 1);
    assert_eq!(ask(&m, &away(), V6_12).way, Way::Move { cpu: 10 }, "2 against 0: allowed");
    busy(&mut m, 2);
    assert_eq!(ask(&m, &away(), V6_12).way, Way::Stay, "3 against 0, of which 2 are allowed");
    // As many more where it is: the move brings balance.
    for cpu in 1..4 {
        m.run(cpu, task(u32::from(cpu), &[1000, 0], Some(0)));
    }
    assert_eq!(ask(&m, &away(), V6_12).way, Way::Move { cpu: 10 }, "3 on each");
}

// specs/numa.md#swap: two tasks that are at home where the other is change places; both gain.
#[test]
fn two_swap() {
    let mut m = machine(1);
    m.run(1, task(7, &[700, 200, 100], Some(0)));
    // Both nodes are full: a move would overload one of them.
    for version in [V4_5, V4_15, V6_1, V6_12, V7_3] {
        assert_eq!(ask(&m, &away(), version).way, Way::Swap { cpu: 1, with: 7 }, "{version}");
    }
    m.runs[1].as_mut().expect("it runs").may_come = false;
    for version in [V4_5, V4_15, V6_12] {
        assert_eq!(ask(&m, &away(), version).way, Way::Stay, "{version}: the other is pinned");
    }
}

// specs/numa.md#swap: a kernel thread is a partner up to 6.12. For 7.3 its CPU is as good as idle.
#[test]
fn kernel_threads() {
    let mut m = machine(1);
    let mut daemon = task(7, &[700, 200], Some(0));
    daemon.of_program = false;
    m.run(1, daemon);
    assert_eq!(ask(&m, &away(), V6_12).way, Way::Swap { cpu: 1, with: 7 });
    assert_eq!(ask(&m, &away(), V7_3).way, Way::Stay);
}

// specs/numa.md#swap: the vectors, of tasks in one group, in none, and in two.
#[test]
fn worth_of_a_swap() {
    let worth = |who: &Runs, partner: &Runs| {
        let mut m = machine(1);
        m.run(1, partner.clone());
        let d = even(2);
        let mover = mover(who);
        let mut s = Search::new(&d, &m, &mover, V6_12, (117, 0), NodeId(1));
        s.look_at(NodeId(1));
        let gain = |of: &dyn Fn(NodeId) -> i64| of(NodeId(1)) - of(NodeId(0));
        let task = gain(&|n| d.task_weight(&who.faults, n, 21));
        let group = gain(&|n| d.group_weight(who.group.as_ref(), n, 21));
        s.compare(1, (task, group), false);
        s.best.with.map(|_| s.best.gain)
    };
    // Neither is in a group: 400 and 100, and an eighth more since the partner comes home.
    let who = task(0, &[300, 700], Some(1));
    assert_eq!(worth(&who, &task(7, &[550, 450], Some(0))), Some(562));
    // In one group: 400 − 100, less a sixteenth, and another since the partner is at home.
    let mine = in_group(task(0, &[300, 700], Some(1)), 5, &[500, 500], 1);
    let theirs = in_group(task(7, &[450, 550], Some(1)), 5, &[500, 500], 1);
    assert_eq!(worth(&mine, &theirs), Some(265));
    // In two groups: what the groups gain, 200 and 400.
    let mine = in_group(task(0, &[300, 700], Some(1)), 5, &[400, 600], 1);
    let theirs = in_group(task(7, &[450, 550], None), 6, &[700, 300], 1);
    assert_eq!(worth(&mine, &theirs), Some(600));
    // 40 − 12 = 28: too little for the trouble.
    let who = task(0, &[480, 520], Some(1));
    assert_eq!(worth(&who, &task(7, &[494, 506], None)), None);
}

// specs/numa.md#swap: a partner that goes home is taken instead of one that doesn't, whatever both gain, and ends the search.
#[test]
fn who_goes_home_comes_first() {
    let mut m = machine(2);
    m.run(1, task(9, &[1000, 0], Some(0)));
    m.run(2, task(7, &[900, 100], None));
    m.run(3, task(8, &[400, 600], Some(0)));
    assert_eq!(ask(&m, &away(), V6_12).way, Way::Swap { cpu: 3, with: 8 });
    m.run(3, task(8, &[400, 600], None));
    assert_eq!(ask(&m, &away(), V6_12).way, Way::Swap { cpu: 2, with: 7 });
}

// specs/numa.md#swap: tasks of one group, or of none, don't swap where the node has room.
#[test]
fn no_swap_beside_room() {
    let mut m = machine(2);
    m.run(2, task(7, &[900, 100], Some(0)));
    m.claimed = vec![3];
    m.forbidden = vec![3];
    assert_eq!(ask(&m, &away(), V6_12).way, Way::Stay, "7 would pay for it");
    let apart = in_group(task(7, &[900, 100], Some(0)), 6, &[900, 100], 1);
    m.run(2, apart);
    let mine = in_group(away(), 5, &[50, 950], 1);
    assert_eq!(ask(&m, &mine, V6_12).way, Way::Swap { cpu: 2, with: 7 });
}

// specs/numa.md#homing: without room at home, other nodes where task or group gains, or loses nothing: a task
// without a group has a group's gain of 0 everywhere, and may come to a node that is worse.
#[test]
fn second_choice() {
    let mut m = Machine::new(1, 3);
    let who = task(0, &[50, 900, 50], Some(1));
    m.run(0, who.clone());
    let mut pinned = task(7, &[0, 1000, 0], Some(1));
    pinned.may_come = false;
    m.run(1, pinned);
    assert_eq!(ask(&m, &who, V6_12).way, Way::Move { cpu: 2 });
    let worse = task(0, &[300, 700, 0], Some(1));
    assert_eq!(ask(&m, &worse, V6_12).way, Way::Move { cpu: 2 }, "a kernel's surprise");
    // In a group that loses too, it stays; the group then takes it for at home where it is.
    let mine = in_group(worse, 5, &[300, 700, 0], 1);
    let found = ask(&m, &mine, V6_12);
    assert_eq!((found.way, found.preferred), (Way::Stay, Some(NodeId(0))));
    // One that gains nothing there but loses nothing either goes, and its home goes with it.
    let mine = in_group(task(0, &[50, 900, 50], Some(1)), 5, &[300, 400, 300], 1);
    let found = ask(&m, &mine, V6_12);
    assert_eq!((found.way, found.preferred), (Way::Move { cpu: 2 }, Some(NodeId(2))));
}

// specs/numa.md#homing-before: up to 4.15 a busier node sends nobody to one that is as busy, and the choice itself
// starts the period anew: the shortest one, from 4.14 on the one that sampling starts with.
#[test]
fn before() {
    let mut m = machine(2);
    let period = |version| ask(&m, &away(), version).period;
    assert_eq!((period(V4_5), period(V4_15)), (Restart::Shortest, Restart::Start));
    assert_eq!(period(V6_12), Restart::No);
    assert_eq!(ask(&m, &away(), V4_15).way, Way::Move { cpu: 2 });
    assert!(!tasks_follow(V3_8) && tasks_follow(V4_5) && !moves_restart(V4_15));
    // Its node has room and home has none.
    for cpu in 2..4 {
        m.run(cpu, task(u32::from(cpu), &[1000, 0], Some(0)));
    }
    assert_eq!(ask(&m, &away(), V4_15).way, Way::Stay);
    assert!(matches!(ask(&m, &away(), V6_12).way, Way::Swap { .. }));
}

proptest! {
    // Whatever is seen: nobody is sent where it may not run, swaps are with who may come, one CPU that is not
    // its own, and the same is said twice.
    #[test]
    fn stays_within_bounds(
        cpus in prop::collection::vec((0u8..4, 0u64..1000, 0u64..1000, any::<bool>(), 0u64..3000), 8),
        own in (0u64..1000, 0u64..1000),
        forbidden in prop::collection::vec(any::<bool>(), 8),
        grouped in any::<bool>(),
        version in prop::sample::select(vec![V4_5, V4_15, V6_1, V6_12, V7_3]),
    ) {
        let mut m = Machine::new(4, 2);
        let mut who = task(0, &[own.0, own.1], Some(1));
        if grouped {
            who = in_group(who, 5, &[own.1, own.0], 2);
        }
        for (cpu, &(kind, near, far, may_come, load)) in cpus.iter().enumerate() {
            if kind > 0 {
                let preferred = [None, Some(0), Some(1)][usize::from(kind - 1)];
                let mut other = task(cpu as u32 + 1, &[near, far], preferred);
                (other.may_come, other.h_load) = (may_come, load);
                m.run(cpu as u16, other);
            }
        }
        m.run(0, who.clone());
        m.forbidden = (0..8).filter(|&c| forbidden[usize::from(c)]).collect();
        let found = ask(&m, &who, version);
        prop_assert_eq!(found, ask(&m, &who, version));
        match found.way {
            Way::Stay => {}
            Way::Move { cpu } => prop_assert!(cpu >= 4 && (m.may_run(cpu) || version < V6_1)),
            Way::Swap { cpu, with } => {
                let other = m.runs[usize::from(cpu)].as_ref().expect("somebody runs there");
                prop_assert!(cpu >= 4 && m.may_run(cpu) && other.may_come && other.task == with);
            }
        }
    }
}
