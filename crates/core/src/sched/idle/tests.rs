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
    ] {
        assert_eq!(after(intervals).typical_interval_us(), typical, "{intervals:?}");
    }
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
    // No longer than to the timer.
    assert_eq!(learnt(40 * US, 1, stay), 40);
    // A kept tick hides how long it would have been; so does POLL's limit.
    assert_eq!(learnt(60 * MS, 1, Stay { by_tick: true, ..stay }), 45_000);
    assert_eq!(learnt(3 * MS, 1, Stay { by_tick: true, ..stay }), 98);
    assert_eq!(learnt(3 * MS, 0, Stay { poll_limit: true, ..stay }), 3000);
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
