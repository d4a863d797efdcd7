use expect_test::expect;
use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn ask(timer_ns: u64) -> Ask {
    Ask {
        sleep_length_ns: timer_ns,
        to_tick_ns: timer_ns.min(TICK_NSEC),
        tick_stopped: false,
        latency_limit_ns: u64::MAX,
        iowaiters: 0,
    }
}

fn after(intervals: [u32; 8]) -> Menu {
    let mut menu = Menu::new();
    for us in intervals {
        menu.remember(us);
    }
    menu
}

// specs/idle.md#typical: the vectors.
#[test]
fn typical_intervals() {
    for (intervals, typical) in [
        ([0; 8], None),
        ([10, 10, 10, 10, 10, 10, 10, 1000], Some(10)),
        ([50, 60, 55, 52, 58, 400, 500, 900], None),
        ([200, 220, 210, 190, 205, 195, 800, 3000], Some(203)),
        ([1, 2, 3, 4, 5, 6, 7, 8], Some(4)),
        ([30, 60, 30, 60, 30, 60, 30, 60], Some(45)),
        // A refused state is beyond the first threshold.
        ([10, 10, 10, 10, 10, 10, u32::MAX, u32::MAX], Some(10)),
        ([u32::MAX; 8], None),
        // The mean is above six times the deviation, or not.
        ([900, 1100, 900, 1100, 900, 1100, 900, 1100], Some(1000)),
        ([60, 70, 80, 90, 110, 120, 130, 140], None),
        // Three equal ones go at once: five are too few for that.
        ([1000, 1050, 950, 1020, 980, 9000, 9000, 9000], None),
        // Only the largest goes.
        ([215, 215, 215, 215, 215, 215, 314, 315], Some(229)),
    ] {
        assert_eq!(after(intervals).typical_interval_us(), typical, "{intervals:?}");
    }
}

// specs/idle.md#early: eight equal intervals, next timer in 10 ms.
#[test]
fn selections_before_4_17() {
    let tables = [Table::HaswellEp, Table::SkylakeClient];
    let mut text = String::new();
    for p in [0, 1, 8, 50, 150, 300, 500, 1000] {
        text += &format!("{p:<5}");
        for table in tables {
            let states = table.states();
            let usage = vec![Usage::default(); states.len()];
            let mut menu = after([p; 8]);
            let chosen = menu.select_early(&states, &usage, &ask(10 * MS));
            assert!(chosen.stop_tick);
            text += &format!(" {:>4}", states[chosen.state].name);
            // While a task waits for I/O the state has to be left eleven times as fast.
            let waited = Ask { iowaiters: 1, ..ask(10 * MS) };
            let chosen = after([p; 8]).select_early(&states, &usage, &waited);
            text += &format!(" {:>4}", states[chosen.state].name);
            // A timer that is near: POLL, as nothing that sleeps is worth it.
            let chosen = menu.select_early(&states, &usage, &ask(20_000));
            assert_eq!(states[chosen.state].polls, p < 2, "{p}");
        }
        text += "\n";
    }
    expect![[r#"
        0       C1   C1   C1   C1
        1       C1   C1   C1   C1
        8       C1   C1   C1   C1
        50     C1E   C1  C1E   C1
        150     C3  C1E   C3  C1E
        300     C3  C1E   C6  C1E
        500     C6   C3   C6  C1E
        1000    C6   C3   C8   C6
    "#]]
    .assert_eq(&text);
    // A state that takes longer to leave than is allowed ends the search; one that is off is passed over.
    let states = Table::HaswellEp.states();
    let mut usage = vec![Usage::default(); states.len()];
    let tight = Ask { latency_limit_ns: 9_999, ..ask(10 * MS) };
    assert_eq!(after([500; 8]).select_early(&states, &usage, &tight).state, 1);
    usage[1].disabled = true;
    assert_eq!(after([1; 8]).select_early(&states, &usage, &ask(10 * MS)).state, 0);
    assert_eq!(after([50; 8]).select_early(&states, &usage, &ask(10 * MS)).state, 2);
}

// specs/idle.md#select: eight equal intervals, next timer in 3 ms.
#[test]
fn selections() {
    let tables =
        [Table::HaswellEp, Table::SkylakeSp, Table::Zen, Table::IvyBridge, Table::IceLakeSp];
    let mut text = format!("{:<5}", "µs");
    for table in tables {
        text += &format!(" {:>12}", table.name());
    }
    for p in [1, 8, 50, 150, 300, 500, 1000] {
        text += &format!("\n{p:<5}");
        for table in tables {
            let states = table.states();
            let usage = vec![Usage::default(); states.len()];
            let chosen = after([p; 8]).select(&states, &usage, &ask(3 * MS));
            assert!(!chosen.stop_tick, "less than a tick is predicted");
            text += &format!(" {:>12}", states[chosen.state].name);
        }
    }
    expect![[r#"
        µs      haswell-ep   skylake-sp          zen   ivy-bridge  ice-lake-sp
        1             POLL         POLL           C1           C1           C1
        8               C1           C1           C1           C1          C1E
        50             C1E          C1E           C1          C1E          C1E
        150             C3          C1E           C1          C1E          C1E
        300             C3          C1E           C1           C7          C1E
        500             C6          C1E           C1           C7          C1E
        1000            C6           C6           C2           C7           C6"#]]
    .assert_eq(&text);
}

// specs/idle.md#select: after boot with a timer in 10 ms the deepest state; so with a stopped tick, 50 µs
// predicted and a timer in 50 ms.
#[test]
fn the_deepest_state() {
    for table in Table::ALL {
        let states = table.states();
        let usage = vec![Usage::default(); states.len()];
        let chosen = Menu::new().select(&states, &usage, &ask(10 * MS));
        assert_eq!((chosen.state, chosen.stop_tick), (states.len() - 1, true), "{table:?}");
        let stopped = Ask { tick_stopped: true, ..ask(50 * MS) };
        let chosen = after([50; 8]).select(&states, &usage, &stopped);
        assert_eq!((chosen.state, chosen.stop_tick), (states.len() - 1, true), "{table:?}");
    }
}

/// States of such names, exits and residencies in µs, after POLL.
fn table(sleeping: &[(&str, u64, u64)]) -> Vec<IdleState> {
    let state = |name: &str, exit: u64, stay: u64, polls| IdleState {
        name: name.to_string(),
        exit_latency_ns: exit * US,
        target_residency_ns: stay * US,
        polls,
    };
    std::iter::once(state("POLL", 0, 0, true))
        .chain(sleeping.iter().map(|&(name, exit, stay)| state(name, exit, stay, false)))
        .collect()
}

// specs/idle.md#select: one row for each step.
#[test]
fn steps_of_a_selection() {
    let hsw = Table::HaswellEp.states();
    let skl = Table::SkylakeClient.states();
    let choose = |states: &[IdleState], off: &[usize], typical: u32, a: Ask| {
        let mut usage = vec![Usage::default(); states.len()];
        off.iter().for_each(|&i| usage[i].disabled = true);
        let chosen = after([typical; 8]).select(states, &usage, &a);
        let tick = if chosen.stop_tick { "stopped" } else { "kept" };
        format!("{}, tick {tick}", states[chosen.state].name)
    };
    let tick = |ns| Ask { to_tick_ns: TICK_NSEC, ..ask(ns) };
    let stopped = |ns| Ask { to_tick_ns: ns, tick_stopped: true, ..ask(ns) };
    let rows = [
        ("typical 15, timer in 1: it isn't read", choose(&hsw, &[], 15, ask(US))),
        ("typical 16: it is", choose(&hsw, &[], 16, ask(US))),
        (
            "typical 8, tick in 1: half a tick is taken",
            choose(&hsw, &[], 8, Ask { to_tick_ns: US, ..ask(3 * MS) }),
        ),
        ("timer in 19.6: rounded", choose(&hsw, &[], 0, tick(19_600))),
        ("timer in 19.4", choose(&hsw, &[], 0, tick(19_400))),
        ("timer in 1.6, below the residency of C1", choose(&hsw, &[], 0, tick(1_600))),
        (
            "a limit of 0, POLL is off",
            choose(&hsw, &[0], 0, Ask { latency_limit_ns: 0, ..ask(10 * MS) }),
        ),
        ("no timer soon, all but POLL are off", choose(&hsw, &[1, 2, 3, 4], 0, ask(10 * MS))),
        (
            "typical 8, the next state needs 14",
            choose(&table(&[("A", 5, 14)]), &[], 8, ask(3 * MS)),
        ),
        ("15", choose(&table(&[("A", 5, 15)]), &[], 8, ask(3 * MS))),
        ("exit above what is predicted", choose(&table(&[("A", 9, 14)]), &[], 8, ask(3 * MS))),
        (
            "timer in 11, the next that is on needs 12",
            choose(&table(&[("A", 1, 2), ("B", 1, 12)]), &[1], 0, tick(11 * US)),
        ),
        (
            "12 and a timer in 12",
            choose(&table(&[("A", 1, 2), ("B", 1, 12)]), &[1], 0, tick(12 * US)),
        ),
        ("timer in 4500, the next state needs 5000", choose(&skl, &[], 0, ask(4_500 * US))),
        ("5000", choose(&skl, &[], 0, ask(5_000 * US))),
        ("tick stopped, typical 8", choose(&hsw, &[], 8, stopped(50 * MS))),
        ("tick stopped, timer in 50", choose(&hsw, &[], 8, stopped(50 * US))),
        (
            "and the tick later",
            choose(&hsw, &[], 8, Ask { to_tick_ns: TICK_NSEC, ..stopped(50 * US) }),
        ),
        ("tick stopped, timer in 4500", choose(&skl, &[], 0, stopped(4_500 * US))),
        (
            "the timer is said to be later",
            choose(&skl, &[], 0, Ask { to_tick_ns: 5 * MS, ..stopped(4_500 * US) }),
        ),
        (
            "but the candidate is deep enough",
            choose(
                &table(&[("A", 1, 4_200), ("B", 1, 4_800)]),
                &[],
                0,
                Ask { to_tick_ns: 5 * MS, ..stopped(4_500 * US) },
            ),
        ),
    ];
    let text: String = rows.iter().map(|(what, came)| format!("{what}: {came}\n")).collect();
    expect![[r#"
        typical 15, timer in 1: it isn't read: C1, tick kept
        typical 16: it is: POLL, tick kept
        typical 8, tick in 1: half a tick is taken: C1, tick kept
        timer in 19.6: rounded: C1E, tick kept
        timer in 19.4: C1, tick kept
        timer in 1.6, below the residency of C1: POLL, tick kept
        a limit of 0, POLL is off: POLL, tick kept
        no timer soon, all but POLL are off: POLL, tick kept
        typical 8, the next state needs 14: A, tick kept
        15: POLL, tick kept
        exit above what is predicted: POLL, tick kept
        timer in 11, the next that is on needs 12: POLL, tick kept
        12 and a timer in 12: B, tick kept
        timer in 4500, the next state needs 5000: C8, tick kept
        5000: C10, tick stopped
        tick stopped, typical 8: C6, tick stopped
        tick stopped, timer in 50: C1E, tick stopped
        and the tick later: C1E, tick stopped
        tick stopped, timer in 4500: C8, tick stopped
        the timer is said to be later: C9, tick stopped
        but the candidate is deep enough: A, tick stopped
    "#]]
    .assert_eq(&text);
}

// specs/idle.md#learn: time to the timer 4000 µs, idle for 500.
#[test]
fn factors() {
    let states = Table::HaswellEp.states();
    let usage = vec![Usage::default(); states.len()];
    let mut menu = Menu::new();
    let mut factors = Vec::new();
    for _ in 0..4 {
        let chosen = menu.select(&states, &usage, &ask(4 * MS));
        factors.push(menu.factors()[3]);
        let exit = states[chosen.state].exit_latency_ns;
        let residency_ns = 500 * US + exit;
        menu.reflect(chosen.state, Stay { residency_ns, by_tick: false, poll_limit: false });
    }
    assert_eq!(factors, [8192, 7296, 6512, 5826]);
}

// specs/idle.md#learn: what ends a stay decides what is learnt.
#[test]
fn measured() {
    let states = Table::HaswellEp.states();
    let usage = vec![Usage::default(); states.len()];
    let stay = Stay { residency_ns: 100 * US, by_tick: false, poll_limit: false };
    let learnt = |timer_ns, state, stay| {
        let mut menu = Menu::new();
        menu.select(&states, &usage, &ask(timer_ns));
        menu.reflect(state, stay);
        menu.select(&states, &usage, &ask(timer_ns));
        menu.intervals_us[0]
    };
    // Exit latency is taken off; a stay of at most twice of it is halved.
    assert_eq!(learnt(3 * MS, 3, stay), 67);
    assert_eq!(learnt(3 * MS, 4, stay), 50);
    let of_c3 = |us: u64| learnt(3 * MS, 3, Stay { residency_ns: us * US, ..stay });
    assert_eq!([60, 66, 67].map(of_c3), [30, 33, 34]);
    // No longer than to the timer.
    assert_eq!(learnt(40 * US, 1, stay), 40);
    // A kept tick hides how long it would have been; so does POLL's limit.
    assert_eq!(learnt(60 * MS, 1, Stay { by_tick: true, ..stay }), 45_000);
    assert_eq!(learnt(3 * MS, 1, Stay { by_tick: true, ..stay }), 98);
    assert_eq!(learnt(3 * MS, 0, Stay { poll_limit: true, ..stay }), 3000);
    // 50 ms and more are as good as what was predicted.
    for (ms, factor) in [(49, 8192 - 1024 + 1024 * 49 / 200), (50, 8192), (60, 8192)] {
        let mut menu = Menu::new();
        menu.select(&states, &usage, &ask(200 * MS));
        menu.reflect(0, Stay { residency_ns: ms * MS, ..stay });
        menu.select(&states, &usage, &ask(200 * MS));
        assert_eq!(u64::from(menu.factors()[5]), factor, "{ms}");
    }
    let mut menu = Menu::new();
    menu.refused();
    assert_eq!(menu.intervals_us[0], u32::MAX);
}

// specs/idle.md#select: limits of latency, states that are off, a tick that comes too early.
#[test]
fn limits() {
    let states = Table::HaswellEp.states();
    let mut usage = vec![Usage::default(); states.len()];
    let limited = |us: u64| Ask { latency_limit_ns: us * US, ..ask(10 * MS) };
    let state = |usage: &[Usage], menu: &mut Menu, a: &Ask| menu.select(&states, usage, a).state;
    assert_eq!(state(&usage, &mut Menu::new(), &limited(0)), 0);
    assert_eq!(state(&usage, &mut Menu::new(), &limited(1)), 0);
    assert_eq!(state(&usage, &mut Menu::new(), &limited(33)), 3);
    assert_eq!(state(&usage, &mut Menu::new(), &limited(32)), 2);
    // The tick that is kept comes in 50 µs: nothing deeper than C1E pays.
    let soon = Ask { to_tick_ns: 50 * US, ..ask(3 * MS) };
    assert_eq!(state(&usage, &mut after([500; 8]), &soon), 2);
    usage[2].disabled = true;
    assert_eq!(state(&usage, &mut after([500; 8]), &soon), 1);
    assert_eq!(state(&usage, &mut after([50; 8]), &ask(3 * MS)), 1);
    usage[0].disabled = true;
    assert_eq!(state(&usage, &mut after([1; 8]), &ask(3 * MS)), 1);
}

// specs/idle.md#poll: the table's limits.
#[test]
fn poll_limits() {
    let limit = |table: Table| {
        let states = table.states();
        poll_limit_ns(&states, &vec![Usage::default(); states.len()]) / US
    };
    assert_eq!(limit(Table::HaswellEp), 20);
    assert_eq!(limit(Table::SkylakeClient), 20);
    assert_eq!(limit(Table::SkylakeSp), 20);
    assert_eq!(limit(Table::IceLakeSp), 250);
    assert_eq!(limit(Table::Zen), 250);
    // One that is off doesn't count; one that is below 10 neither.
    let states = Table::HaswellEp.states();
    let mut usage = vec![Usage::default(); states.len()];
    usage[2].disabled = true;
    assert_eq!(poll_limit_ns(&states, &usage), 100 * US);
    let states = table(&[("A", 1, 9), ("B", 1, 10), ("C", 1, 900)]);
    let mut usage = vec![Usage::default(); states.len()];
    assert_eq!(poll_limit_ns(&states, &usage), 10 * US);
    usage[2].disabled = true;
    assert_eq!(poll_limit_ns(&states, &usage), 250 * US);
}

// specs/idle.md#counters: too deep, too shallow, and neither.
#[test]
fn counters() {
    let states = Table::HaswellEp.states();
    let mut usage = vec![Usage::default(); states.len()];
    for (state, us) in [(4, 399), (4, 400), (2, 109), (2, 110), (1, 5), (0, 1), (0, 2)] {
        left(&states, &mut usage, state, us * US);
    }
    let text: Vec<String> = usage
        .iter()
        .zip(&states)
        .map(|(u, s)| {
            format!(
                "{} usage {} time {} above {} below {}",
                s.name, u.usage, u.time_ns, u.above, u.below
            )
        })
        .collect();
    expect![[r#"
        POLL usage 2 time 3000 above 0 below 1
        C1 usage 1 time 5000 above 0 below 0
        C1E usage 2 time 219000 above 0 below 1
        C3 usage 0 time 0 above 0 below 0
        C6 usage 2 time 799000 above 1 below 0"#]]
    .assert_eq(&text.join("\n"));
}

// specs/idle.md#counters: states that are off are neither shallower nor deeper.
#[test]
fn counters_of_states_that_are_off() {
    let states = Table::HaswellEp.states();
    let counted = |off: &[usize], state: usize, us: u64| {
        let mut usage = vec![Usage::default(); states.len()];
        off.iter().for_each(|&i| usage[i].disabled = true);
        left(&states, &mut usage, state, us * US);
        (usage[state].above, usage[state].below)
    };
    assert_eq!(
        [counted(&[], 2, 19), counted(&[0], 2, 19), counted(&[0, 1], 2, 19)],
        [(1, 0), (1, 0), (0, 0)]
    );
    assert_eq!(
        [counted(&[], 1, 60), counted(&[2], 1, 60), counted(&[2], 1, 102)],
        [(0, 1), (0, 0), (0, 1)]
    );
    assert_eq!(counted(&[], 4, 99_999), (0, 0), "nothing is deeper");
}

fn stays() -> impl Strategy<Value = Vec<(u64, u64, u8, bool)>> {
    let one = (0u64..200_000_000, 0u64..200_000_000, 0u8..4, any::<bool>());
    prop::collection::vec(one, 1..60)
}

proptest! {
    // Whatever happens, factors stay between one and the whole, the state is one that is on, and two runs
    // agree.
    #[test]
    fn bounded(stays in stays(), table in 0usize..Table::ALL.len(), off in any::<u8>()) {
        let states = Table::ALL[table].states();
        let usage: Vec<Usage> = (0..states.len())
            .map(|i| Usage { disabled: off >> (i % 8) & 1 != 0, ..Usage::default() })
            .collect();
        let run = || {
            let mut menu = Menu::new();
            let mut chosen = Vec::new();
            for &(timer, residency_ns, how, tick_stopped) in &stays {
                let a = Ask { tick_stopped, ..ask(timer) };
                let c = menu.select(&states, &usage, &a);
                chosen.push(c);
                assert!(c.state < states.len());
                assert!(!usage[c.state].disabled || c.state == 0);
                assert!(menu.factors().iter().all(|f| (1..=8192).contains(f)));
                let stay = Stay { residency_ns, by_tick: how == 1, poll_limit: how == 2 };
                menu.reflect(c.state, stay);
            }
            (menu, chosen)
        };
        prop_assert_eq!(run(), run());
    }

    // A typical interval lies between the shortest and the longest.
    #[test]
    fn typical_is_between(intervals in prop::array::uniform8(0u32..100_000)) {
        if let Some(us) = after(intervals).typical_interval_us() {
            let (min, max) = (intervals.iter().min().unwrap(), intervals.iter().max().unwrap());
            prop_assert!((min..=max).contains(&&us));
        }
    }
}
