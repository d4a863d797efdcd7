//! One rule a row: machines that are balanced once, and what comes of it.
//!
//! Letters are tasks: `H` a hog, `F` one that uses its CPU fully, `l` a light one, `R` one of another class.

use super::super::super::domain::Layout;
use super::*;

/// One that uses so little that no group of such is overloaded.
const LIGHT: Task = Task { load: 100, util: 20, runnable: 20, ..HOG };
const FULL: Task = Task { util: 1000, ..HOG };

fn put(bench: &mut Bench, queues: &[(usize, &str)]) {
    for &(cpu, letters) in queues {
        bench.q.others[cpu] += letters.matches('R').count() as u32;
        let tasks = letters.chars().filter_map(|letter| match letter {
            'H' => Some(HOG),
            'F' => Some(FULL),
            'l' => Some(LIGHT),
            'R' => None,
            other => panic!("no task is {other}"),
        });
        bench.q.put(cpu, tasks);
    }
}

fn with(s: Shape, queues: &[(usize, &str)]) -> Bench {
    let mut bench = Bench::new(s);
    put(&mut bench, queues);
    bench
}

/// What a balancing comes to, and where tasks went.
fn told(bench: &mut Bench, cpu: usize, level: usize, idle: IdleType) -> String {
    let places = |q: &Model| -> Vec<Option<usize>> {
        let of = |task: u32| q.queues.iter().position(|queue| queue.contains(&task));
        (0..q.tasks.len() as u32).map(of).collect()
    };
    let before = places(&bench.q);
    let o = bench.balance(cpu, level, idle);
    let after = places(&bench.q);
    let mut text = outcome(&o);
    for (from, to) in before.into_iter().zip(after).filter(|(from, to)| from != to) {
        text += &format!("; {} to {}", from.unwrap_or(99), to.unwrap_or(99));
    }
    bench.q.log.clear();
    text
}

/// The same of a machine that is made for it: CPU 0 balances.
fn of(s: Shape, queues: &[(usize, &str)], level: usize, idle: IdleType) -> String {
    told(&mut with(s, queues), 0, level, idle)
}

fn check(rows: &[(&str, String)], expected: Expect) {
    let text: String = rows.iter().map(|(what, came)| format!("{what}: {came}\n")).collect();
    expected.assert_eq(&text);
}

/// The CPU's own capacity is what is left of it from now on.
fn reduce(bench: &mut Bench, cpu: usize, left: u32) {
    bench.q.left[cpu] = left;
    for level in 0..bench.d.levels(cpu) {
        bench.b.update_capacity(&bench.d, &bench.q, cpu, level, 1000);
    }
}

/// `llcs` caches of so many CPUs on one node: domains MC and PKG.
fn caches(llcs: u32, cpus: u32) -> Shape {
    Shape { llcs, ..shape(1, cpus, 1) }
}

/// Two pairs of nodes of so many CPUs: the top level's groups are NUMA levels, which don't prefer siblings.
fn pairs(cpus: u32) -> Domains {
    all_online(&paired(shape(4, cpus, 1).layout()))
}

fn paired(mut layout: Layout) -> Layout {
    for a in 0..4 {
        for b in 0..4 {
            layout.distances[a][b] = match (a == b, a / 2 == b / 2) {
                (true, _) => 10,
                (false, true) => 16,
                (false, false) => 28,
            };
        }
    }
    layout
}

/// Cores of two threads, where of some cores only the first thread is online.
fn halves(cores: u32, half: &[u32]) -> Domains {
    let off: u64 = half.iter().map(|core| 1 << (2 * core + 1)).sum();
    Domains::new(&shape(1, cores, 2).layout(), &[!off])
}

const IDLE: IdleType = IdleType::Idle;
const BUSY: IdleType = IdleType::Busy;
const NEW: IdleType = IdleType::NewlyIdle;

// specs/sched-balance.md#sibling-imbalance: 2 only where the own group is empty and the other has more than one.
#[test]
fn a_sibling_imbalance_is_raised_to_two() {
    let sib = |nr_b, nr_l, cores_b, cores_l| sibling_imbalance(true, nr_b, nr_l, cores_b, cores_l);
    assert_eq!([sib(2, 0, 8, 1), sib(3, 1, 4, 1), sib(1, 0, 4, 1), sib(0, 0, 4, 1)], [2, 1, 1, 0]);
    assert_eq!([sib(1, 5, 4, 4), sib(2, 9, 4, 2)], [0, 1]);
}

// specs/sched-balance.md#group-type: what makes a group a misfit or an SMT balance.
#[test]
fn types_of_groups() {
    let two = |queues: &[(usize, &str)], left: u32, idle| {
        let mut bench = with(shape(1, 2, 1), queues);
        reduce(&mut bench, 1, left);
        told(&mut bench, 0, 0, idle)
    };
    let mut both = with(caches(2, 2), &[(2, "l"), (3, "l")]);
    (both.q.figures[2].load, both.q.figures[3].load) = (900, 400);
    reduce(&mut both, 2, 500);
    reduce(&mut both, 3, 500);
    let mut own = with(caches(2, 4), &[(1, "l"), (4, "l"), (5, "l"), (6, "ll")]);
    reduce(&mut own, 1, 500);
    let mut pending = Bench::of(pairs(2));
    put(&mut pending, &[(4, "ll"), (5, "l"), (6, "l")]);
    pending.q.pending = 0b1110;
    (1..4).for_each(|cpu| pending.q.refresh(cpu));
    check(
        &[
            ("one task on a reduced CPU", two(&[(1, "l")], 874, IDLE)),
            ("875 of 1024 is the edge", two(&[(1, "l")], 875, IDLE)),
            ("876 is not less by 17 %", two(&[(1, "l")], 876, IDLE)),
            ("this CPU is busy", two(&[(0, "l"), (1, "l")], 500, BUSY)),
            ("two tasks there", two(&[(1, "ll")], 500, IDLE)),
            ("the larger load of two", told(&mut both, 0, 1, IDLE)),
            ("a reduced CPU of the own group", told(&mut own, 0, 1, IDLE)),
            ("a core of two tasks", of(shape(1, 2, 4), &[(4, "l"), (5, "lll")], 1, IDLE)),
            ("a core of one", of(shape(1, 2, 4), &[(4, "l")], 1, IDLE)),
            (
                "the own core has several",
                of(shape(1, 2, 4), &[(1, "l"), (2, "l"), (4, "HHHHH")], 1, IDLE),
            ),
            ("tasks of other classes only", of(caches(2, 2), &[(2, "RR"), (3, "RR")], 1, IDLE)),
            ("empty CPUs with wake-ups pending are not idle", told(&mut pending, 0, 2, IDLE)),
        ],
        expect![[r#"
            one task on a reduced CPU: moved 0, failed, imbalance 100 load, push from 1
            875 of 1024 is the edge: moved 0, failed, imbalance 100 load, push from 1
            876 is not less by 17 %: moved 0, balanced, no busier group
            this CPU is busy: moved 0, balanced, no busier group
            two tasks there: moved 1, imbalance 1 task; 1 to 0
            the larger load of two: moved 0, failed, imbalance 900 load, push from 2
            a reduced CPU of the own group: moved 1, imbalance 1 task; 6 to 0
            a core of two tasks: moved 1, imbalance 1 task; 5 to 0
            a core of one: moved 0, balanced, no busier group
            the own core has several: moved 1, imbalance 1 task; 4 to 0
            tasks of other classes only: moved 0, balanced, no busier group
            empty CPUs with wake-ups pending are not idle: moved 0, balanced, no busier group
        "#]],
    );
}

// specs/sched-balance.md#busiest: CPU 0 is idle; who gives a task tells which group was the busiest.
#[test]
fn which_group_is_the_busiest() {
    let mut flags = with(caches(3, 4), &[(4, "l"), (5, "ll"), (8, "lll")]);
    for cpu in [4, 8] {
        let capacity = flags.d.local(cpu, 1).capacity as usize;
        flags.b.groups[capacity].imbalance = true;
    }
    let mut heavy = with(shape(1, 3, 1), &[(0, "HH"), (1, "HHH"), (2, "HHH")]);
    (heavy.q.figures[1].load, heavy.q.figures[2].load) = (5000, 4500);
    reduce(&mut heavy, 2, 512);
    let mut misfits = with(caches(3, 2), &[(2, "l"), (4, "l")]);
    (misfits.q.figures[2].load, misfits.q.figures[4].load) = (400, 900);
    reduce(&mut misfits, 2, 500);
    reduce(&mut misfits, 4, 500);
    let mut full = with(caches(3, 2), &[(2, "HH"), (4, "HH")]);
    for cpu in [2, 4] {
        full.q.figures[cpu].runnable = 2500;
    }
    let mut single = Bench::of(halves(4, &[2]));
    put(&mut single, &[(4, "ll"), (6, "l")]);
    let mut other = Bench::of(halves(3, &[2]));
    put(&mut other, &[(2, "l"), (3, "R"), (4, "ll")]);
    check(
        &[
            ("the higher type", of(caches(3, 2), &[(2, "HHHH"), (4, "ll")], 1, IDLE)),
            ("whatever the order", of(caches(3, 2), &[(2, "ll"), (4, "HHHH")], 1, IDLE)),
            ("overloaded: load per capacity", told(&mut heavy, 0, 0, BUSY)),
            ("imbalanced: the first", told(&mut flags, 0, 1, IDLE)),
            ("misfit: the larger", told(&mut misfits, 0, 1, IDLE)),
            ("busy: one that is no core gives way", told(&mut full, 0, 1, IDLE)),
            (
                "SMT, some idle: more tasks",
                of(shape(1, 3, 4), &[(4, "l"), (5, "l"), (8, "ll"), (9, "l")], 1, IDLE),
            ),
            (
                "SMT, none idle: the first",
                of(shape(1, 3, 2), &[(2, "ll"), (3, "l"), (4, "ll"), (5, "ll")], 1, IDLE),
            ),
            (
                "spare: fewer idle CPUs",
                of(caches(3, 4), &[(4, "ll"), (5, "ll"), (8, "l"), (9, "l"), (10, "l")], 1, IDLE),
            ),
            (
                "spare: then more tasks",
                of(caches(3, 4), &[(4, "l"), (5, "l"), (8, "ll"), (9, "l")], 1, IDLE),
            ),
            ("a core of one task is no rival", told(&mut single, 0, 1, IDLE)),
            ("of a core and none the later", told(&mut other, 0, 1, IDLE)),
        ],
        expect![[r#"
            the higher type: moved 3, imbalance 2048 util; 2 to 0; 2 to 0; 2 to 0
            whatever the order: moved 3, imbalance 2048 util; 4 to 0; 4 to 0; 4 to 0
            overloaded: load per capacity: moved 2, imbalance 2190 load; 2 to 0; 2 to 0
            imbalanced: the first: moved 1, imbalance 1 task; 5 to 0
            misfit: the larger: moved 0, failed, imbalance 900 load, push from 4
            busy: one that is no core gives way: moved 1, imbalance 1 task; 4 to 0
            SMT, some idle: more tasks: moved 1, imbalance 1 task; 8 to 0
            SMT, none idle: the first: moved 1, imbalance 1 task; 2 to 0
            spare: fewer idle CPUs: moved 0, failed, imbalance 1 task
            spare: then more tasks: moved 1, imbalance 1 task; 8 to 0
            a core of one task is no rival: moved 1, imbalance 1 task; 4 to 0
            of a core and none the later: moved 1, imbalance 1 task; 4 to 0
        "#]],
    );
}

// specs/sched-balance.md#balanced: one row for each question, in their order.
#[test]
fn balanced_or_not() {
    let mut pinned = with(caches(2, 2), &[(1, "l"), (2, "ll")]);
    let capacity = pinned.d.local(2, 1).capacity as usize;
    pinned.b.groups[capacity].imbalance = true;
    // Of three groups the own one is above the average, which the idle third draws down.
    let above = |ours: u64, theirs: u64| {
        let mut bench = with(shape(1, 3, 1), &[(0, "HH"), (1, "HHH")]);
        (bench.q.figures[0].load, bench.q.figures[1].load) = (ours, theirs);
        told(&mut bench, 0, 0, BUSY)
    };
    let numa = |queues: &[(usize, &str)]| {
        let mut bench = Bench::of(pairs(2));
        put(&mut bench, queues);
        let top = bench.d.levels(0) - 1;
        told(&mut bench, 0, top, IDLE)
    };
    let mut half = Bench::of(halves(2, &[0]));
    put(&mut half, &[(2, "l"), (3, "l")]);
    let mut busy_own = with(shape(1, 2, 4), &[(1, "ll"), (2, "l"), (3, "l"), (4, "llllll")]);
    busy_own.q.figures[1].util = 1024;
    busy_own.q.figures[2].util = 1024;
    busy_own.q.figures[3].util = 1024;
    busy_own.q.figures[0].util = 1000;
    check(
        &[
            ("imbalanced: go", told(&mut pinned, 0, 1, IDLE)),
            ("both overloaded, own above the average", above(3000, 4000)),
            ("below it", above(1900, 4000)),
            ("siblings preferred, as many idle but one", of(caches(2, 2), &[(2, "lll")], 1, IDLE)),
            ("by two tasks", of(caches(2, 2), &[(2, "ll")], 1, IDLE)),
            ("by one task", of(caches(2, 2), &[(1, "l"), (2, "ll")], 1, IDLE)),
            ("by one task, a core", of(shape(1, 2, 2), &[(1, "l"), (2, "ll")], 1, IDLE)),
            ("siblings preferred, own group full", told(&mut busy_own, 0, 1, IDLE)),
            ("siblings not preferred, as many idle but one", numa(&[(4, "lll")])),
            ("three more idle", numa(&[(4, "lll"), (5, "l"), (6, "l")])),
            ("busiest overloaded", numa(&[(4, "HHH"), (5, "HH"), (6, "H"), (7, "H")])),
            ("a core beside one of one thread", told(&mut half, 0, 0, IDLE)),
            ("two cores", of(shape(1, 2, 2), &[(1, "l"), (2, "l"), (3, "l")], 1, IDLE)),
            ("busiest of one CPU", of(shape(1, 2, 1), &[(1, "ll")], 0, IDLE)),
            ("with one fair task", of(shape(1, 2, 1), &[(1, "lR")], 0, IDLE)),
        ],
        expect![[r#"
            imbalanced: go: moved 1, imbalance 1 task; 2 to 0
            both overloaded, own above the average: moved 0, balanced, no busier group
            below it: moved 0, failed, imbalance 66 load
            siblings preferred, as many idle but one: moved 1, imbalance 1 task; 2 to 0
            by two tasks: moved 1, imbalance 1 task; 2 to 0
            by one task: moved 0, balanced, no busier group
            by one task, a core: moved 0, balanced, no busier group
            siblings preferred, own group full: moved 0, balanced, no busier group
            siblings not preferred, as many idle but one: moved 0, balanced, no busier group
            three more idle: moved 1, imbalance 1 task; 4 to 0
            busiest overloaded: moved 2, imbalance 4096 util; 4 to 0; 4 to 0
            a core beside one of one thread: moved 0, failed, imbalance 1 task
            two cores: moved 0, balanced, no busier group
            busiest of one CPU: moved 1, imbalance 1 task; 1 to 0
            with one fair task: moved 0, balanced, no busier group
        "#]],
    );
}

// specs/sched-balance.md#imbalance: how much, in what.
#[test]
fn how_much_is_moved() {
    let mut none_free = with(caches(2, 2), &[(1, "l"), (2, "HHH"), (3, "HHH")]);
    (none_free.q.figures[0].util, none_free.q.figures[1].util) = (1024, 1024);
    let mut none_free_busy = with(caches(2, 2), &[(0, "l"), (2, "HHH"), (3, "HHH")]);
    none_free_busy.q.pending = 0b10;
    none_free_busy.q.refresh(1);
    (none_free_busy.q.figures[0].util, none_free_busy.q.figures[1].util) = (1024, 1024);
    let numa = |queues: &[(usize, &str)]| {
        let mut bench = Bench::of(pairs(4));
        put(&mut bench, queues);
        let top = bench.d.levels(0) - 1;
        told(&mut bench, 0, top, IDLE)
    };
    let nodes = |queues: &[(usize, &str)]| {
        let mut bench = with(shape(2, 16, 1), queues);
        told(&mut bench, 0, 1, IDLE)
    };
    // Loads of three single CPUs; the own one has one task and no room left, the busiest two.
    let three = |ours: u64, theirs: u64, third: u64| {
        let mut bench = with(shape(1, 3, 1), &[(0, "F"), (1, "HHH"), (2, "F")]);
        for (cpu, load) in [ours, theirs, third].into_iter().enumerate() {
            bench.q.figures[cpu].load = load;
            bench.q.figures[cpu].runnable = 2000;
        }
        told(&mut bench, 0, 0, BUSY)
    };
    check(
        &[
            ("a core of four tasks", of(shape(1, 2, 2), &[(2, "ll"), (3, "ll")], 1, IDLE)),
            (
                "what is free, no cache shared",
                of(caches(2, 2), &[(1, "l"), (2, "HHH"), (3, "HHH")], 1, IDLE),
            ),
            ("a cache shared", of(shape(1, 2, 1), &[(1, "HHHHH")], 0, IDLE)),
            ("nothing is free", told(&mut none_free, 0, 1, IDLE)),
            ("nothing is free, busy", told(&mut none_free_busy, 0, 1, BUSY)),
            (
                "idle CPUs' difference, halved",
                numa(&[(8, "ll"), (9, "ll"), (10, "l"), (11, "l"), (12, "l")]),
            ),
            (
                "siblings' difference, halved",
                of(caches(2, 4), &[(4, "lll"), (5, "lll"), (6, "l")], 1, IDLE),
            ),
            ("a node may have two more", nodes(&[(1, "l"), (16, "ll"), (17, "l")])),
            ("not where two would run", nodes(&[(1, "l"), (2, "l"), (16, "ll"), (17, "ll")])),
            ("own not overloaded, above the busiest", three(3000, 2000, 9000)),
            ("own above the average", three(1500, 2000, 0)),
            ("what the busiest has above it", three(0, 2000, 1900)),
            ("what the own lacks to it", three(1000, 3000, 0)),
        ],
        expect![[r#"
            a core of four tasks: moved 1, imbalance 1 task; 2 to 0
            what is free, no cache shared: moved 2, imbalance 2028 util; 2 to 0; 2 to 0
            a cache shared: moved 2, imbalance 2 task; 1 to 0; 1 to 0
            nothing is free: moved 1, imbalance 1 task; 2 to 0
            nothing is free, busy: moved 0, balanced, no busier group
            idle CPUs' difference, halved: moved 1, imbalance 2 task; 8 to 0
            siblings' difference, halved: moved 2, imbalance 3 task; 4 to 0; 4 to 0
            a node may have two more: moved 0, balanced, no busier group
            not where two would run: moved 1, imbalance 1 task; 16 to 0
            own not overloaded, above the busiest: moved 0, balanced, no busier group
            own above the average: moved 0, balanced, no busier group
            what the busiest has above it: moved 0, failed, imbalance 700 load
            what the own lacks to it: moved 0, failed, imbalance 333 load
        "#]],
    );
}

// specs/sched-balance.md#busiest-queue: who of the group gives.
#[test]
fn which_queue_is_the_busiest() {
    // Overloaded on both sides: by load.
    let by_load = |queues: &[(usize, &str)], loads: &[(usize, u64)], left: Option<(usize, u32)>| {
        let mut bench = with(caches(2, 2), &[&[(0, "HH"), (1, "HH")], queues].concat());
        if let Some((cpu, left)) = left {
            reduce(&mut bench, cpu, left);
        }
        (bench.q.figures[0].load, bench.q.figures[1].load) = (100, 100);
        for &(cpu, load) in loads {
            bench.q.figures[cpu].load = load;
        }
        told(&mut bench, 0, 1, BUSY)
    };
    // Room here, no cache shared: by utilisation.
    let by_util = |queues: &[(usize, &str)], figures: &[(usize, u32, u32)]| {
        let mut bench = with(caches(2, 4), queues);
        for &(cpu, util, runnable) in figures {
            (bench.q.figures[cpu].util, bench.q.figures[cpu].runnable) = (util, runnable);
        }
        told(&mut bench, 0, 1, IDLE)
    };
    let by_home = |queues: &[(usize, usize, Option<u16>)]| {
        let mut bench = Bench::new(shape(2, 4, 1));
        for &(cpu, n, preferred) in queues {
            bench.q.put(cpu, (0..n).map(|_| Task { preferred, ..LIGHT }));
        }
        told(&mut bench, 0, 1, IDLE)
    };
    check(
        &[
            ("load", by_load(&[(2, "HHH"), (3, "HHHH")], &[(2, 3000), (3, 3001)], None)),
            (
                "equal: the first",
                by_load(&[(2, "HHH"), (3, "HHHH")], &[(2, 3000), (3, 3000)], None),
            ),
            (
                "over capacity",
                by_load(&[(2, "HHHH"), (3, "HHH")], &[(2, 3000), (3, 2900)], Some((3, 900))),
            ),
            ("a lone heavy one", by_load(&[(2, "H"), (3, "HHHH")], &[(2, 9000), (3, 3000)], None)),
            (
                "a lone heavy one, CPU reduced",
                by_load(&[(2, "H"), (3, "HHHH")], &[(2, 9000), (3, 3000)], Some((2, 400))),
            ),
            (
                "utilisation",
                by_util(
                    &[(4, "HHH"), (5, "HHH"), (6, "H"), (7, "H")],
                    &[(4, 900, 900), (5, 1000, 950), (6, 1000, 900), (7, 1000, 900)],
                ),
            ),
            (
                "or runnable",
                by_util(
                    &[(4, "HHH"), (5, "HHH"), (6, "H"), (7, "H")],
                    &[(4, 900, 1020), (5, 1000, 950), (6, 1000, 900), (7, 1000, 900)],
                ),
            ),
            ("equal: the first", by_util(&[(4, "HHH"), (5, "HHH"), (6, "H"), (7, "H")], &[])),
            (
                "of two tasks or more",
                by_util(
                    &[(4, "F"), (5, "HH"), (6, "HH"), (7, "H")],
                    &[(4, 1000, 2000), (5, 600, 900), (6, 500, 800), (7, 400, 1400)],
                ),
            ),
            ("tasks", of(caches(2, 4), &[(4, "ll"), (5, "lll"), (6, "lll")], 1, IDLE)),
            ("some without a home: they first", by_home(&[(4, 4, Some(1)), (5, 3, None)])),
            ("before those away from home", by_home(&[(4, 4, Some(0)), (5, 3, None)])),
            ("some away: they first", by_home(&[(4, 4, Some(1)), (5, 3, Some(0))])),
            ("all at home", by_home(&[(4, 4, Some(1)), (5, 3, Some(1))])),
        ],
        expect![[r#"
            load: moved 2, imbalance 2900 load; 3 to 0; 3 to 0
            equal: the first: moved 2, imbalance 2900 load; 2 to 0; 2 to 0
            over capacity: moved 2, imbalance 2944 load; 3 to 0; 3 to 0
            a lone heavy one: moved 3, imbalance 5900 load; 3 to 0; 3 to 0; 3 to 0
            a lone heavy one, CPU reduced: moved 0, failed, imbalance 6996 load
            utilisation: moved 2, imbalance 4096 util; 5 to 0; 5 to 0
            or runnable: moved 2, imbalance 4096 util; 4 to 0; 4 to 0
            equal: the first: moved 2, imbalance 4096 util; 4 to 0; 4 to 0
            of two tasks or more: moved 1, imbalance 4096 util; 5 to 0
            tasks: moved 2, imbalance 4 task; 5 to 0; 5 to 0
            some without a home: they first: moved 2, imbalance 3 task; 5 to 0; 5 to 0
            before those away from home: moved 2, imbalance 3 task; 5 to 0; 5 to 0
            some away: they first: moved 2, imbalance 3 task; 5 to 0; 5 to 0
            all at home: moved 3, imbalance 3 task; 4 to 0; 4 to 0; 4 to 0
        "#]],
    );
}

// specs/sched-balance.md#capacity: nothing left counts as 1; a CPU that goes idle doesn't look before it is time.
#[test]
fn when_capacity_is_taken() {
    let mut bench = Bench::new(shape(1, 2, 1));
    let mut seen = |left, idle, now_j| {
        bench.q.left[0] = left;
        bench.b.balance(&bench.d, &mut bench.q, 0, 0, idle, now_j);
        bench.b.cpus[0].capacity
    };
    // An interval of 2 ms is one tick.
    assert_eq!(seen(800, IDLE, 100), 800);
    assert_eq!(seen(700, NEW, 100), 800);
    assert_eq!(seen(700, NEW, 101), 700);
    assert_eq!(seen(0, IDLE, 101), 1);
}

// specs/sched-balance.md#idle-scan: who sets the budget, and that it begins with none.
#[test]
fn who_sets_the_budget() {
    let mut bench = Bench::new(caches(2, 4));
    let mut budget = |level, idle| {
        bench.balance(0, level, idle);
        bench.b.llcs[0].nr_idle_scan
    };
    assert_eq!([budget(0, NEW), budget(1, IDLE), budget(0, IDLE)], [0, 0, 4]);
    bench.b.rebuilt(&bench.d, 1000);
    assert_eq!(bench.b.llcs[0].nr_idle_scan, 0);
    // A CPU that balances for those that sleep does it as well.
    for cpu in 0..4 {
        bench.b.tick_stopped(&bench.d, cpu);
    }
    put(&mut bench, &[(4, "ll")]);
    assert_eq!(bench.b.kick(&bench.d, &bench.q.facts(), 4, 1010), Some(0));
    bench.b.kicked(&bench.d, &mut bench.q, 0, 1010);
    assert_eq!(bench.b.llcs[0].nr_idle_scan, 4);
}

// specs/sched-balance.md#elected: only CPUs that arrive at the group are asked, where groups overlap.
#[test]
fn who_balances_where_groups_overlap() {
    let mut layout = shape(4, 1, 1).layout();
    let rows = [[10, 20, 30, 40], [20, 10, 20, 30], [30, 20, 10, 20], [40, 30, 20, 10]];
    layout.distances = rows.iter().map(|r| r.to_vec()).collect();
    layout.reclaim_distance = 40;
    let d = all_online(&layout);
    let mut q = Model::new(&d);
    q.put(0, [HOG]);
    // CPU 1 is in CPU 0's group, and idle, but its own stack has another.
    assert!(elected(&d, &q.facts(), 0, 1, 0, |_| true));
}

// specs/sched-balance.md#level: failures, intervals, and what pinned tasks tell the level above.
#[test]
fn what_a_level_remembers() {
    let mut text = String::new();
    let mut step = |what: &str, bench: &mut Bench, idle| {
        let came = told(bench, 0, 0, idle);
        let level = bench.b.levels[bench.d.slot(0, 0)];
        let above = bench.d.local(0, 1).capacity as usize;
        text += &format!(
            "{what}: {came}; {} failures, {} ms, level above {}\n",
            level.nr_balance_failed,
            level.balance_interval,
            if bench.b.groups[above].imbalance { "imbalanced" } else { "not" }
        );
    };
    let mut bench = Bench::new(caches(2, 2));
    let hot = Task { ran_ago_ns: 0, ..HOG };
    bench.q.put(1, [hot.clone(), hot.clone(), hot.clone()]);
    step("nothing moves", &mut bench, NEW);
    step("nothing moves", &mut bench, IDLE);
    step("nothing moves", &mut bench, IDLE);
    step("something moves", &mut bench, IDLE);
    bench.q.queues[1].clear();
    bench.q.refresh(1);
    step("balanced", &mut bench, BUSY);
    step("balanced", &mut bench, BUSY);
    bench.b.levels[0].nr_balance_failed = 2;
    step("balanced", &mut bench, BUSY);
    let mut bench = Bench::new(caches(2, 2));
    bench.q.put(1, [HOG, HOG, HOG].map(|t| Task { allowed: 1 << 1, ..t }));
    bench.b.levels[0].nr_balance_failed = 1;
    step("all pinned", &mut bench, IDLE);
    step("all pinned", &mut bench, IDLE);
    step("all pinned", &mut bench, IDLE);
    bench.q.queues[1].truncate(1);
    bench.q.refresh(1);
    step("balanced", &mut bench, IDLE);
    bench.q.put(1, [hot.clone(), hot]);
    step("nothing moves", &mut bench, IDLE);
    let mut bench = Bench::new(caches(2, 2));
    bench.q.put(0, [LIGHT]);
    bench.q.put(1, [HOG, HOG, HOG]);
    step("it is not idle any more", &mut bench, NEW);
    bench.q.queues[0].clear();
    bench.q.pending = 1;
    bench.q.refresh(0);
    step("a wake-up is pending", &mut bench, NEW);
    // The running task may not come: the interval doubles as if all were pinned.
    let mut bench = Bench::new(caches(2, 2));
    bench.q.put(1, [Task { allowed: 1 << 1, ..LIGHT }]);
    reduce(&mut bench, 1, 500);
    step("one pinned", &mut bench, IDLE);
    step("one pinned", &mut bench, IDLE);
    step("one pinned", &mut bench, IDLE);
    expect![[r#"
        nothing moves: moved 0, failed, imbalance 1 task; 0 failures, 2 ms, level above not
        nothing moves: moved 0, failed, imbalance 1 task; 1 failures, 2 ms, level above not
        nothing moves: moved 0, failed, imbalance 1 task; 2 failures, 2 ms, level above not
        something moves: moved 1, imbalance 1 task, 1 hot; 1 to 0; 0 failures, 2 ms, level above not
        balanced: moved 0, balanced, no busier group; 0 failures, 4 ms, level above not
        balanced: moved 0, balanced, no busier group; 0 failures, 4 ms, level above not
        balanced: moved 0, balanced, no busier group; 0 failures, 4 ms, level above not
        all pinned: moved 0, balanced, imbalance 1 task; 0 failures, 4 ms, level above imbalanced
        all pinned: moved 0, balanced, imbalance 1 task; 0 failures, 8 ms, level above imbalanced
        all pinned: moved 0, balanced, imbalance 1 task; 0 failures, 16 ms, level above imbalanced
        balanced: moved 0, balanced, no busier group; 0 failures, 16 ms, level above not
        nothing moves: moved 0, failed, imbalance 1 task; 1 failures, 2 ms, level above imbalanced
        it is not idle any more: moved 0, stop, balanced; 0 failures, 2 ms, level above not
        a wake-up is pending: moved 0, stop, balanced; 0 failures, 2 ms, level above not
        one pinned: moved 0, failed, imbalance 100 load; 1 failures, 4 ms, level above not
        one pinned: moved 0, failed, imbalance 100 load; 2 failures, 8 ms, level above not
        one pinned: moved 0, failed, imbalance 100 load; 3 failures, 16 ms, level above not
    "#]]
    .assert_eq(&text);
}

// specs/sched-balance.md#detach: how many are looked at, who is left, and who stays whatever is out of balance.
#[test]
fn how_many_are_looked_at() {
    let two = |tasks: &[Task], nr_migrate, running: bool, own: &str, idle| {
        let mut bench = with(shape(1, 2, 1), &[(0, own)]);
        bench.b.knobs.nr_migrate = nr_migrate;
        bench.q.put(1, tasks.to_vec());
        if !running {
            bench.q.running[1] = None;
        }
        if !own.is_empty() {
            // Both are overloaded, so that load is moved.
            (bench.q.figures[0].load, bench.q.figures[0].runnable) = (100, 2500);
            (bench.q.figures[1].load, bench.q.figures[1].runnable) = (9000, 2500);
        }
        let o = bench.balance(0, 0, idle);
        let text = format!("{}: {}", outcome(&o), bench.q.log.join(", "));
        text.trim_end_matches(": ").to_owned()
    };
    let hot = Task { ran_ago_ns: 0, ..HOG };
    let threads = |idle| {
        let mut bench = Bench::new(shape(1, 2, 2));
        bench.q.put(2, [HOG, Task { allowed: 0b0010, ..HOG }, Task { allowed: 0b0110, ..HOG }]);
        bench.q.put(3, [HOG]);
        told(&mut bench, 0, 1, idle)
    };
    let stays = |task| two(&[HOG, task], 32, true, "", IDLE);
    check(
        &[
            ("two of six", two(&[HOG, HOG, HOG, HOG, hot.clone(), hot.clone()], 2, true, "", IDLE)),
            (
                "three of six",
                two(&[HOG, HOG, HOG, HOG, hot.clone(), hot.clone()], 3, true, "", IDLE),
            ),
            ("one goes around once", two(&[HOG, hot], 32, true, "", IDLE)),
            ("an idle CPU leaves one", two(&[LIGHT, LIGHT], 32, false, "", IDLE)),
            ("a busy one may take all", two(&[LIGHT, LIGHT], 32, false, "ll", BUSY)),
            ("one that goes idle takes one", two(&[HOG, HOG, HOG, HOG, HOG], 32, true, "", NEW)),
            ("its group is throttled", stays(Task { throttled: true, ..HOG })),
            ("it belongs to its CPU", stays(Task { per_cpu_kthread: true, ..HOG })),
            ("to the other thread of the core", threads(IDLE)),
            ("not while going idle", threads(NEW)),
        ],
        expect![[r#"
            two of six: moved 0, failed, imbalance 3 task: task 5 stays: hot, task 4 stays: hot
            three of six: moved 1, imbalance 3 task: task 5 stays: hot, task 4 stays: hot
            one goes around once: moved 0, failed, imbalance 1 task: task 1 stays: hot, task 0 stays: running
            an idle CPU leaves one: moved 1, imbalance 1 task
            a busy one may take all: moved 2, imbalance 4450 load
            one that goes idle takes one: moved 1, imbalance 2 task
            its group is throttled: moved 0, failed, imbalance 1 task: task 1 stays: throttled, task 0 stays: running
            it belongs to its CPU: moved 0, failed, imbalance 1 task: task 1 stays: per-CPU kthread, task 0 stays: running
            to the other thread of the core: moved 2, imbalance 2 task; 2 to 1; 2 to 1
            not while going idle: moved 0, failed, imbalance 2 task
        "#]],
    );
}

// specs/sched-balance.md#active: who asks the stopper.
#[test]
fn when_a_running_task_is_pushed() {
    // CPU 1 has what `queue` says, of which nothing can be pulled.
    let push = |queue: &str, left: [u32; 2], failed, own: &str, idle| {
        let mut bench = with(shape(1, 2, 1), &[(0, own), (1, queue)]);
        for task in &mut bench.q.tasks {
            task.ran_ago_ns = 0;
        }
        (0..2).for_each(|cpu| reduce(&mut bench, cpu, left[cpu]));
        if queue.contains('R') {
            bench.q.figures[1].runnable = 2000;
        }
        if !own.is_empty() {
            (bench.q.figures[0].load, bench.q.figures[0].runnable) = (100, 2500);
        }
        bench.b.levels[0].nr_balance_failed = failed;
        told(&mut bench, 0, 0, idle)
    };
    // All of it would be too much, so that failures are what there is.
    let by_load = |failed| {
        let mut bench = with(shape(1, 2, 1), &[(0, "HH"), (1, "HH")]);
        bench.q.tasks[2..].iter_mut().for_each(|t| (t.load, t.allowed) = (u64::MAX >> 8, 1 << 1));
        bench.q.tasks[2].allowed = 0b11;
        (bench.q.figures[0].load, bench.q.figures[1].load) = (1000, 9000);
        bench.b.levels[0].nr_balance_failed = failed;
        told(&mut bench, 0, 0, BUSY)
    };
    let mut small = shape(1, 2, 1).layout();
    small.cpus[1].capacity = 512;
    let mut small = Bench::of(all_online(&small));
    put(&mut small, &[(1, "HR")]);
    small.q.figures[1].runnable = 2000;
    check(
        &[
            ("one task on a reduced CPU", push("l", [1024, 500], 0, "", IDLE)),
            ("this one is reduced as much", push("l", [500, 500], 0, "", IDLE)),
            ("less reduced than by 17 %", push("l", [580, 500], 0, "", IDLE)),
            ("more", push("l", [590, 500], 0, "", IDLE)),
            ("two fair tasks", push("HH", [1024, 500], 0, "", IDLE)),
            ("one beside another class", push("HR", [1024, 500], 0, "", IDLE)),
            ("the same, this CPU is busy", push("HR", [1024, 500], 0, "ll", BUSY)),
            ("a small CPU is not a reduced one", told(&mut small, 0, 0, IDLE)),
            ("three failures", push("HR", [1024, 1024], 2, "", IDLE)),
            ("four", push("HR", [1024, 1024], 3, "", IDLE)),
            ("by load: never", by_load(50)),
        ],
        expect![[r#"
            one task on a reduced CPU: moved 0, failed, imbalance 100 load, push from 1
            this one is reduced as much: moved 0, failed, imbalance 100 load
            less reduced than by 17 %: moved 0, failed, imbalance 100 load
            more: moved 0, failed, imbalance 100 load, push from 1
            two fair tasks: moved 0, failed, imbalance 1 task
            one beside another class: moved 0, failed, imbalance 1 task, push from 1
            the same, this CPU is busy: moved 0, failed, imbalance 655 load
            a small CPU is not a reduced one: moved 0, failed, imbalance 1 task
            three failures: moved 0, failed, imbalance 1 task
            four: moved 0, failed, imbalance 1 task, push from 1
            by load: never: moved 0, failed, imbalance 4000 load
        "#]],
    );
}

// specs/sched-balance.md#periodic: a softirq at tick 1000, where every level has been due for long.
#[test]
fn at_a_tick() {
    let softirq = |bench: &mut Bench, cpu: usize, idle| {
        bench.b.softirq(&bench.d, &mut bench.q, cpu, idle, 1000);
        bench.q.log.retain(|line| line.starts_with("CPU"));
        let text = bench.q.log.join("; ");
        bench.q.log.clear();
        format!("{text}; next {}, aged {:?}", bench.b.cpus[cpu].next_balance, bench.q.aged)
    };
    let nodes = || Bench::new(shape(2, 2, 2));
    let mut serial = nodes();
    serial.b.serializing = true;
    // CPU 0 is elected; of what CPU 1 visits costs decay, as far as it goes.
    let cost = |each: u64, decayed_at: u64| {
        let mut bench = Bench::of(all_online(&paired(shape(4, 2, 2).layout())));
        for level in &mut bench.b.levels {
            level.max_newidle_lb_cost = each;
            level.last_decay_max_lb_cost = decayed_at;
        }
        bench.b.cpus[1].max_idle_balance_cost = 9_000_000;
        let text = softirq(&mut bench, 1, IDLE);
        let costs = (0..4).map(|l| bench.b.levels[bench.d.slot(1, l)].max_newidle_lb_cost);
        format!(
            "{text}; costs {:?}, {}",
            costs.collect::<Vec<_>>(),
            bench.b.cpus[1].max_idle_balance_cost
        )
    };
    let policy = |idle_policy| {
        let mut bench = nodes();
        bench.q.put(0, [Task { idle_policy, ..LIGHT }]);
        softirq(&mut bench, 0, BUSY)
    };
    let mut pulls = with(caches(2, 2), &[(1, "lll")]);
    let mut just = nodes();
    just.b.levels.iter_mut().for_each(|level| level.last_balance = 999);
    check(
        &[
            ("elected", softirq(&mut nodes(), 0, IDLE)),
            ("not elected", softirq(&mut nodes(), 1, IDLE)),
            ("a tick after the last time", softirq(&mut just, 0, IDLE)),
            ("somebody balances nodes already", softirq(&mut serial, 0, IDLE)),
            ("idle, but it has pulled a task meanwhile", softirq(&mut pulls, 0, IDLE)),
            ("busy", policy(false)),
            ("with tasks of policy IDLE only", policy(true)),
            ("a second ago", cost(256_000, 750)),
            ("more than a second ago", cost(256_000, 749)),
            ("next to nothing, and not less than 0.5 ms", cost(25_600, 749)),
        ],
        expect![[r#"
            elected: CPU 0 level 0 idle: moved 0, balanced, no busier group; CPU 0 level 1 idle: moved 0, balanced, no busier group; CPU 0 level 2 idle: moved 0, balanced, no busier group; next 1001, aged [0]
            not elected: CPU 1 level 0 idle: moved 0, balanced, no busier group; CPU 1 level 1 idle: moved 0, stop, balanced; next 1001, aged [1]
            a tick after the last time: CPU 0 level 0 idle: moved 0, balanced, no busier group; CPU 0 level 1 idle: moved 0, balanced, no busier group; next 1001, aged [0]
            somebody balances nodes already: CPU 0 level 0 idle: moved 0, balanced, no busier group; CPU 0 level 1 idle: moved 0, balanced, no busier group; next 2, aged [0]
            idle, but it has pulled a task meanwhile: CPU 0 level 0 idle: moved 1, imbalance 1 task; CPU 0 level 1 busy: moved 0, balanced, no busier group; next 1007, aged [0]
            busy: CPU 0 level 0 busy: moved 0, balanced, no busier group; CPU 0 level 1 busy: moved 0, stop, balanced; next 1015, aged [0]
            with tasks of policy IDLE only: CPU 0 level 0 busy: moved 0, balanced, no busier group; CPU 0 level 1 busy: moved 0, stop, balanced; next 1001, aged [0]
            a second ago: CPU 1 level 0 idle: moved 0, balanced, no busier group; CPU 1 level 1 idle: moved 0, stop, balanced; next 1001, aged [1]; costs [256000, 256000, 256000, 256000], 9000000
            more than a second ago: CPU 1 level 0 idle: moved 0, balanced, no busier group; CPU 1 level 1 idle: moved 0, stop, balanced; next 1001, aged [1]; costs [253000, 253000, 253000, 253000], 1012000
            next to nothing, and not less than 0.5 ms: CPU 1 level 0 idle: moved 0, balanced, no busier group; CPU 1 level 1 idle: moved 0, stop, balanced; next 1001, aged [1]; costs [25300, 25300, 25300, 25300], 500000
        "#]],
    );
}

// specs/sched-balance.md#periodic: a busy CPU whose levels all wait for more than a minute, as above 600 CPUs, sets
// no time, so it asks again at the next tick.
#[test]
fn who_waits_for_more_than_a_minute_sets_no_time() {
    let next = |cpus: u32| {
        let mut bench = with(shape(1, cpus, 1), &[(0, "H")]);
        for level in &mut bench.b.levels {
            (level.last_balance, level.balance_interval) = (1000, 10_000);
        }
        bench.b.cpus[0].next_balance = 7;
        bench.b.softirq(&bench.d, &mut bench.q, 0, BUSY, 1000);
        (bench.d.levels(0), bench.b.cpus[0].next_balance)
    };
    // 16 times 10 s while it is busy, cut to 0.1 s a CPU.
    assert_eq!(next(560), (1, 15_000));
    assert_eq!(next(640), (1, 7));
}

// specs/sched-balance.md#newly-idle, specs/sched-balance.md#dice, specs/sched-balance.md#cost.
#[test]
fn when_a_cpu_goes_idle() {
    let go = |what: &str, change: &dyn Fn(&mut Bench)| {
        let mut bench = with(shape(2, 2, 1), &[(1, "lll"), (2, "lll")]);
        bench.b.overloaded = true;
        bench.q.step = 20_000;
        bench.b.cpus[0].next_balance = 5000;
        bench.b.levels.iter_mut().for_each(|level| level.last_balance = 995);
        change(&mut bench);
        let found = bench.b.newly_idle(&bench.d, &mut bench.q, 0, 7, 1000);
        let (cpu, level) = (&bench.b.cpus[0], &bench.b.levels[0]);
        let pulled = if found.pulled { "pulled" } else { "nothing" };
        format!(
            "{what}: {pulled}, {} levels in {} ns, aged {:?}; stamp {}, cost {}, next {}; {} of {}\n",
            found.levels,
            found.cost_ns,
            bench.q.aged,
            cpu.idle_stamp,
            cpu.max_idle_balance_cost,
            cpu.next_balance,
            level.newidle_success,
            level.newidle_call
        )
    };
    let empty = |b: &mut Bench| {
        b.q.queues.iter_mut().for_each(Vec::clear);
        (0..4).for_each(|cpu| b.q.refresh(cpu));
    };
    let text: String = [
        go("one task, at the lowest level", &|_| {}),
        go("nothing anywhere", &empty),
        go("nobody is overloaded", &|b| b.b.overloaded = false),
        go("a wake-up is pending", &|b| b.q.pending = 1),
        go("idle for too short", &|b| {
            b.b.cpus[0].avg_idle = 99_999;
            b.b.levels[0].max_newidle_lb_cost = 100_000;
        }),
        go("long enough for one level", &|b| {
            empty(b);
            b.b.cpus[0].avg_idle = 119_999;
            b.b.levels[1].max_newidle_lb_cost = 100_000;
        }),
        go("for two", &|b| {
            empty(b);
            b.b.cpus[0].avg_idle = 120_000;
            b.b.levels[1].max_newidle_lb_cost = 100_000;
        }),
        go("it takes longer than ever", &|b| {
            empty(b);
            b.q.step = 400_000;
        }),
        go("a task came meanwhile", &|b| {
            empty(b);
            b.q.interrupted = Some(0);
        }),
        go("the dice say no", &|b| b.q.roll = 1023),
        go("it was to be sooner", &|b| b.b.cpus[0].next_balance = 900),
    ]
    .concat();
    expect![[r#"
        one task, at the lowest level: pulled, 1 levels in 20000 ns, aged [0]; stamp 0, cost 500000, next 996; 258 of 513
        nothing anywhere: nothing, 2 levels in 40000 ns, aged [0]; stamp 7, cost 500000, next 996; 256 of 513
        nobody is overloaded: nothing, 0 levels in 0 ns, aged []; stamp 7, cost 500000, next 996; 256 of 512
        a wake-up is pending: nothing, 0 levels in 0 ns, aged []; stamp 0, cost 500000, next 5000; 256 of 512
        idle for too short: nothing, 0 levels in 0 ns, aged []; stamp 7, cost 500000, next 996; 256 of 512
        long enough for one level: nothing, 1 levels in 20000 ns, aged [0]; stamp 7, cost 500000, next 996; 256 of 513
        for two: nothing, 2 levels in 40000 ns, aged [0]; stamp 7, cost 500000, next 996; 256 of 513
        it takes longer than ever: nothing, 2 levels in 800000 ns, aged [0]; stamp 7, cost 800000, next 996; 256 of 513
        a task came meanwhile: pulled, 1 levels in 20000 ns, aged [0]; stamp 0, cost 500000, next 996; 256 of 513
        the dice say no: nothing, 0 levels in 0 ns, aged [0]; stamp 7, cost 500000, next 996; 256 of 513
        it was to be sooner: pulled, 1 levels in 20000 ns, aged [0]; stamp 0, cost 500000, next 900; 258 of 513
    "#]].assert_eq(&text);
    // The average is at most twice what going idle has cost.
    let mut bench = Bench::new(shape(1, 2, 1));
    (bench.b.cpus[0].max_idle_balance_cost, bench.b.cpus[0].idle_stamp) = (2_000_000, 1);
    bench.b.woken(0, 9_000_001);
    assert_eq!(bench.b.cpus[0].avg_idle, 2_000_000);
    bench.b.cpus[0].idle_stamp = 1;
    bench.b.woken(0, 90_000_001);
    assert_eq!(bench.b.cpus[0].avg_idle, 4_000_000);
}

// specs/sched-balance.md#nohz: who is sent for, and for what.
#[test]
fn who_kicks_whom() {
    let flags = |flags: u8| {
        [(1, "balance"), (2, "age"), (4, "age before idle"), (8, "next")]
            .iter()
            .filter(|(bit, _)| flags & bit != 0)
            .map(|(_, name)| *name)
            .collect::<Vec<_>>()
            .join("+")
    };
    let asks = |what: &str, queues: &[(usize, &str)], change: &dyn Fn(&mut Bench)| {
        let mut bench = with(caches(2, 2), queues);
        for cpu in 0..4 {
            if bench.q.facts().idle(cpu) {
                bench.b.tick_stopped(&bench.d, cpu);
            }
        }
        // Nothing is left of their going to sleep.
        (bench.b.nohz.needs_update, bench.b.nohz.has_blocked) = (false, false);
        (bench.b.nohz.next_balance, bench.b.nohz.next_blocked) = (1000, 1000);
        change(&mut bench);
        let kicked = bench.b.kick(&bench.d, &bench.q.facts(), 1, 1000);
        let what_for = flags(bench.b.cpus.iter().map(|c| c.kick).fold(0, |all, k| all | k));
        format!("{what}: {kicked:?} {what_for}, next {}\n", bench.b.nohz.next_balance)
    };
    let text: String = [
        asks("one task", &[(1, "l")], &|_| {}),
        asks("two", &[(1, "ll")], &|_| {}),
        asks("two, too early", &[(1, "ll")], &|b| b.b.nohz.next_balance = 1001),
        asks("one beside another class", &[(1, "lR")], &|_| {}),
        asks("one, on a reduced CPU", &[(1, "l")], &|b| reduce(b, 1, 500)),
        asks("none of this class, reduced", &[(1, "R")], &|b| reduce(b, 1, 500)),
        asks("two CPUs of the cache are busy", &[(0, "l"), (1, "l")], &|_| {}),
        asks("one of each cache", &[(1, "l"), (3, "l")], &|_| {}),
        asks("averages are old", &[(1, "l")], &|b| {
            (b.b.nohz.has_blocked, b.b.nohz.next_blocked) = (true, 999);
        }),
        asks("not old enough", &[(1, "l")], &|b| b.b.nohz.has_blocked = true),
        asks("somebody went to sleep", &[(1, "l")], &|b| b.b.nohz.needs_update = true),
        asks("the first sleeper has a wake-up pending", &[(1, "ll")], &|b| {
            b.q.pending = 1;
            b.q.refresh(0);
        }),
        asks("one has been sent for", &[(1, "ll")], &|b| b.b.cpus[0].kick = 1),
        asks("one will age before idle", &[(1, "ll")], &|b| b.b.cpus[0].kick = 4),
        asks("nobody sleeps", &[(0, "l"), (1, "ll"), (2, "l"), (3, "l")], &|_| {}),
    ]
    .concat();
    expect![[r#"
        one task: None , next 1000
        two: Some(0) balance+age, next 1001
        two, too early: None , next 1001
        one beside another class: Some(0) balance+age, next 1001
        one, on a reduced CPU: Some(0) balance+age, next 1001
        none of this class, reduced: None , next 1000
        two CPUs of the cache are busy: Some(2) balance+age, next 1001
        one of each cache: None , next 1000
        averages are old: Some(0) age, next 1000
        not old enough: None , next 1000
        somebody went to sleep: Some(0) next, next 1000
        the first sleeper has a wake-up pending: Some(2) balance+age, next 1001
        one has been sent for: None balance+age, next 1001
        one will age before idle: Some(0) balance+age+age before idle, next 1001
        nobody sleeps: None , next 1000
    "#]]
    .assert_eq(&text);
}

// specs/sched-balance.md#nohz: what a CPU does that was sent for.
#[test]
fn what_a_kicked_cpu_does() {
    let kicked = |what: &str, flags: u8, change: &dyn Fn(&mut Bench)| {
        let mut bench = with(shape(1, 6, 1), &[(3, "lllll")]);
        for cpu in [0, 1, 2, 4] {
            bench.b.tick_stopped(&bench.d, cpu);
            bench.b.cpus[cpu].last_blocked_update = 999;
        }
        bench.b.nohz.has_blocked = false;
        (bench.b.nohz.next_balance, bench.b.nohz.next_blocked) = (900, 900);
        bench.b.cpus[1].kick = flags;
        bench.b.cpus[4].next_balance = 1003;
        change(&mut bench);
        let did = bench.b.kicked(&bench.d, &mut bench.q, 1, 1000);
        bench.q.log.retain(|line| line.starts_with("CPU"));
        let cpus: Vec<&str> = bench.q.log.iter().map(|l| &l[4..5]).collect();
        let n = &bench.b.nohz;
        format!(
            "{what}: {did}, aged {:?}, balanced for {cpus:?}; next {}, aging {} {}, again {}\n",
            bench.q.aged, n.next_balance, n.next_blocked, n.has_blocked, n.needs_update
        )
    };
    let text: String = [
        kicked("balance and age", 3, &|_| {}),
        kicked("age", 2, &|_| {}),
        kicked("when the next is due", 8, &|_| {}),
        kicked("all are due later", 3, &|b| {
            b.b.cpus.iter_mut().enumerate().for_each(|(i, c)| c.next_balance = 1010 + i as u64);
        }),
        kicked("aged in this tick", 3, &|b| b.b.cpus[2].last_blocked_update = 1000),
        kicked("one has woken up", 3, &|b| b.q.put(2, [LIGHT])),
        kicked("it has work itself", 3, &|b| b.q.put(1, [LIGHT])),
        kicked("work comes while it is at it", 3, &|b| b.q.interrupted = Some(1)),
        kicked("nobody has sent for it", 0, &|_| {}),
    ]
    .concat();
    expect![[r#"
        balance and age: true, aged [2, 4, 0, 1], balanced for ["2", "0", "1"]; next 1003, aging 1008 false, again true
        age: true, aged [2, 4, 0, 1], balanced for []; next 0, aging 1008 false, again true
        when the next is due: true, aged [], balanced for []; next 0, aging 900 false, again false
        all are due later: true, aged [2, 4, 0, 1], balanced for []; next 1010, aging 1008 false, again true
        aged in this tick: true, aged [4, 0, 1], balanced for ["2", "0", "1"]; next 1003, aging 1008 true, again true
        one has woken up: true, aged [4, 0, 1], balanced for ["0", "1"]; next 1003, aging 1008 false, again true
        it has work itself: false, aged [], balanced for []; next 900, aging 900 false, again true
        work comes while it is at it: true, aged [2], balanced for ["2"]; next 900, aging 900 true, again true
        nobody has sent for it: false, aged [], balanced for []; next 900, aging 900 false, again true
    "#]].assert_eq(&text);

    // Going idle with nothing found, it ages for the others if it is idle for long.
    let idles = |avg_idle, kick, marked| {
        let mut bench = Bench::new(shape(1, 4, 1));
        (1..4).for_each(|cpu| bench.b.tick_stopped(&bench.d, cpu));
        bench.b.cpus[0].avg_idle = avg_idle;
        bench.b.newly_idle(&bench.d, &mut bench.q, 0, 7, 1000);
        bench.b.cpus[0].kick |= kick;
        bench.q.marked = marked;
        bench.b.before_idle(&bench.d, &mut bench.q, 0, 1000);
        (bench.q.aged, bench.b.cpus[0].kick)
    };
    assert_eq!(idles(500_000, 0, 0), (vec![1, 2, 3], 0));
    assert_eq!(idles(499_999, 0, 0), (vec![], 0));
    assert_eq!(idles(500_000, 1, 0), (vec![], 1), "it is sent for");
    assert_eq!(idles(500_000, 0, 1), (vec![], 0), "it has got work");
}

// specs/sched-balance.md#fork: one row for each rule between groups and between CPUs.
#[test]
fn where_a_new_task_goes() {
    let all = &[u64::MAX];
    let asked = |bench: &Bench, allowed: &[u64], preferred, exits: &[u32], sched_idle: &[u64]| {
        let p = Placed {
            flag: Flags::BALANCE_FORK,
            cpu: 0,
            prev: 0,
            allowed,
            preferred,
            util: 0,
            without: None,
        };
        let i = IdleFacts { exit_latency: exits, sched_idle, blocks: None };
        bench.b.find_dst_cpu(&bench.d, &bench.q.facts(), &i, &p)
    };
    let fork = |s: Shape, queues: &[(usize, &str)], allowed: &[u64]| {
        asked(&with(s, queues), allowed, None, &[1; 64], &[])
    };
    // Two groups of one CPU each and no node between them, or two nodes; all with a task that uses them up.
    let busy = |s: Shape, here: u64, best: u64| {
        let mut bench = with(s, &[(0, "F"), (1, "F"), (2, "F"), (3, "F")]);
        for (cpu, f) in bench.q.figures.iter_mut().enumerate() {
            f.load = if cpu < 2 { here / 2 } else { best / 2 };
            f.runnable = 2000;
        }
        bench.b.find_dst_cpu(
            &bench.d,
            &bench.q.facts(),
            &IdleFacts { exit_latency: &[], sched_idle: &[], blocks: None },
            &Placed {
                flag: Flags::BALANCE_FORK,
                cpu: 0,
                prev: 0,
                allowed: all,
                preferred: None,
                util: 0,
                without: None,
            },
        )
    };
    let (two, nodes) = (caches(2, 2), shape(2, 2, 1));
    // In loads of the group's 2048, that is in doubled loads per capacity.
    let rows = |s| {
        [
            (2000, 2000),
            (2340, 2000),
            (2342, 2000),
            (1300, 1000),
            (1350, 1000),
            (600, 400),
            (800, 400),
        ]
        .map(|(here, best)| busy(s, here, best) >= 2)
    };
    assert_eq!(rows(two), [false, false, true, true, true, true, true]);
    assert_eq!(rows(nodes), [false, false, false, false, true, false, true], "by 174 at least");

    let third = caches(3, 2);
    let spread = |queues: &[(usize, &str)]| fork(third, queues, all);
    assert_eq!(
        spread(&[(0, "HHH"), (1, "HH"), (2, "HHH"), (3, "H"), (4, "ll"), (5, "l")]),
        5,
        "lower type"
    );
    assert_eq!(
        spread(&[(0, "HHHH"), (1, "HHH"), (2, "HHH"), (3, "HH"), (4, "HH"), (5, "HH")]),
        4,
        "less load"
    );
    assert_eq!(spread(&[(0, "l"), (1, "l"), (2, "l")]), 4, "more idle CPUs");
    assert_eq!(spread(&[(0, "l"), (1, "l"), (2, "H"), (4, "l")]), 5, "less utilisation");
    assert_eq!(
        spread(&[(0, "l"), (2, "HHH"), (3, "HH"), (4, "HHH"), (5, "HH")]),
        1,
        "the own is best"
    );
    assert_eq!(
        spread(&[(0, "HHH"), (1, "HH"), (2, "ll"), (3, "l"), (4, "lll"), (5, "l")]),
        3,
        "own type is worse"
    );
    // Of each group only the allowed CPUs count: one idle here, one there.
    assert_eq!(fork(caches(2, 4), &[(0, "l")], &[0b0001_0011]), 1);
    assert_eq!(fork(caches(2, 4), &[(0, "l")], all), 4);

    // Nodes: tasks that the own node may have more, or where the task's memory is.
    let home = |queues: &[(usize, &str)], allowed: &[u64], preferred| {
        asked(&with(shape(2, 16, 1), queues), allowed, preferred, &[1; 64], &[]) / 16
    };
    let (one, two, three): (&[_], &[_], &[_]) =
        (&[(0, "l")], &[(0, "l"), (1, "l")], &[(0, "l"), (1, "l"), (2, "l")]);
    assert_eq!([home(one, all, None), home(two, all, None), home(three, all, None)], [0, 1, 1]);
    assert_eq!(home(three, all, Some(0)), 0, "it is at home");
    assert_eq!(home(one, all, Some(1)), 1, "its home is there");
    assert_eq!(home(one, &[0x1_0001], None), 1, "of what it may use here one CPU is one task's");

    // Of a group of four CPUs.
    let cpu = |queues: &[(usize, &str)],
               stamps: [u64; 4],
               exits: &[u32],
               allowed: u64,
               sched_idle: u64| {
        let mut bench =
            with(caches(2, 4), &[&[(0, "HHH"), (1, "HH"), (2, "HH"), (3, "HH")], queues].concat());
        for (i, stamp) in stamps.into_iter().enumerate() {
            bench.b.cpus[4 + i].idle_stamp = stamp;
        }
        asked(&bench, &[allowed], None, exits, &[sched_idle])
    };
    let exits = [0, 0, 0, 0, 133, 10, 10, 33];
    assert_eq!(
        cpu(&[], [40, 10, 20, 30], &exits, u64::MAX, 0),
        6,
        "shallowest, of equals the latest"
    );
    assert_eq!(cpu(&[], [40, 20, 10, 30], &exits, u64::MAX, 0), 5);
    assert_eq!(cpu(&[], [40, 10, 20, 30], &[], u64::MAX, 0), 4, "no states: the latest");
    let deep = [0, 0, 0, 0, 33, 10, 10, 133];
    assert_eq!(cpu(&[], [40, 10, 20, 30], &deep, 0b1001_1111, 0), 4, "allowed ones only");
    assert_eq!(
        cpu(&[(4, "l"), (5, "l"), (6, "H"), (7, "l")], [0; 4], &exits, u64::MAX, 1 << 6),
        6,
        "tasks of policy IDLE only"
    );
    let full: &[(usize, &str)] = &[(4, "ll"), (5, "l"), (6, "H"), (7, "l")];
    assert_eq!(cpu(full, [0; 4], &exits, u64::MAX, 0), 5, "the least load, the first of equals");
    assert_eq!(
        cpu(&[(4, "l"), (5, "ll"), (6, "l")], [0, 0, 0, 9], &exits, u64::MAX, 0),
        7,
        "idle before busy"
    );
}

// specs/sched-balance.md#fork: a task that execs counts neither in tasks nor in load of its CPU.
#[test]
fn exec_leaves_itself_out() {
    let exec = |queues: &[(usize, &str)], without: Without| {
        place_exec(&with(caches(2, 2), queues), without, &[1; 4])
    };
    let mut w = Without { cpu: 0, load: 1024, util: 400, runnable: 1024, idle: false };
    let both = [(0, "HHHH"), (1, "HHH"), (2, "HHH"), (3, "HHH")];
    w.load = 3 * 1024;
    assert_eq!(exec(&both, w), 0, "as much is left as is there");
    w.load = 5 * 1024;
    assert!(exec(&both, w) >= 2, "more is left than is there");
    // It would be alone with an idle CPU, if no wake-up waits there.
    let w = Without { load: 0, util: 0, runnable: 0, ..w };
    assert_eq!(exec(&[(0, "l"), (1, "l"), (2, "l")], Without { idle: true, ..w }), 0);
    assert_eq!(exec(&[(0, "l"), (1, "l"), (2, "l")], w), 3);
}
