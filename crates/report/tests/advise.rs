//! What `homenode advise` prints.

use expect_test::expect;
use homenode_core::policy::order::Evidence;
use homenode_core::policy::{Verdict, Why};
use homenode_report::{
    Advice, AdviceConstant, AdviceKnob, AdviceLeft, AdviceMove, AdviceRest, Glyphs, verdict_text,
};

fn rest(verdict: Verdict, bytes: u64) -> AdviceRest {
    let (verdict, text) = verdict_text(verdict).expect("no move");
    AdviceRest { verdict, bytes, text: text.into() }
}

fn advice() -> Advice {
    let mut a = Advice {
        machine: "two: DRAM beside an expander".into(),
        source: "damon".into(),
        source_notes: vec!["damon: it was asked for".into()],
        looked_seconds: 30.0,
        horizon_seconds: 10.0,
        warnings: vec![
            "latencies are assumed, not measured: every saving below is as good as they are. \
             homenode measure makes a file with this machine's own"
                .into(),
        ],
        moves: vec![
            AdviceMove {
                pid: 77,
                name: "idle\u{1b}[2J".into(),
                from: 0,
                to: 1,
                why: "make_room".into(),
                orders: 4,
                pages: 1311,
                bytes: 1311 * 4096,
                heat: 0.0,
                saves: 0.0012,
                costs: 0.0035,
            },
            AdviceMove {
                pid: 1234,
                name: "database".into(),
                from: 1,
                to: 0,
                why: "hot".into(),
                orders: 5,
                pages: 1500,
                bytes: 1500 * 4096,
                heat: 61.25,
                saves: 0.14,
                costs: 0.004,
            },
        ],
        rest: vec![
            rest(Verdict::Stay { why: Why::Home }, 5 << 20),
            rest(Verdict::Unknown { lacks: Evidence::Cpu }, 7 << 30),
        ],
        knobs: vec![AdviceKnob {
            knob: "kernel.numa_balancing".into(),
            now: "1".into(),
            then: "3".into(),
            why: "5.8 MiB in use on slow nodes would pay for going to fast ones".into(),
            when_not: "programs are bound to nodes already, or every request's latency counts: \
                       the kernel marks pages and takes faults on them"
                .into(),
            to_do: vec!["echo 3 > /proc/sys/kernel/numa_balancing".into()],
            to_undo: vec!["echo 1 > /proc/sys/kernel/numa_balancing".into()],
        }],
        left: vec![AdviceLeft {
            knob: "demotion_enabled".into(),
            now: "true".into(),
            why: "cold memory goes down when a fast node fills up".into(),
        }],
        constants: vec![AdviceConstant {
            name: "latency, node 0 to node 1".into(),
            value: "250 ns".into(),
            origin: "assumed".into(),
            method: "firmware tells nothing".into(),
        }],
        notes: vec!["nothing was moved or set".into()],
        ..Advice::default()
    };
    a.sort();
    a
}

#[test]
fn the_page() {
    expect![[r#"
        machine: two: DRAM beside an expander
        looked for 30 s; heat from damon
          damon: it was asked for
        WARNING: latencies are assumed, not measured: every saving below is as good as they are. homenode
          measure makes a file with this machine's own

        what homenode would move (it was not moved)
              PID name               nodes       size   heat/s   saves/s   in 10 s     costs       net  why
             1234 database             1>0    5.9 MiB     61.2   14.0 ms  140.0 ms    4.0 ms  136.0 ms  in use on a slow node
               77 idle?[2J             0>1    5.1 MiB      0.0  120.0 us    1.2 ms    3.5 ms   -2.3 ms  colder, makes room
                  sum                        11.0 MiB            14.1 ms  141.2 ms    7.5 ms  133.7 ms  all of it

        what it would leave where it is, in a decision on average
             7.0 GiB  unknown_cpu    unknown: nothing told which node's CPUs access it
             5.0 MiB  home           it is where it should be

        knobs of the kernel that one would set otherwise (they were not set)
          kernel.numa_balancing: 1 -> 3
            why: 5.8 MiB in use on slow nodes would pay for going to fast ones
            not if: programs are bound to nodes already, or every request's latency counts: the kernel marks
              pages and takes faults on them
            do    echo 3 > /proc/sys/kernel/numa_balancing
            undo  echo 1 > /proc/sys/kernel/numa_balancing

        knobs of the kernel that are left
          demotion_enabled = true: cold memory goes down when a fast node fills up

        constants
          latency, node 0 to node 1: 250 ns, assumed: firmware tells nothing

        note: nothing was moved or set
    "#]].assert_eq(&advice().to_text(100, Glyphs::Ascii));
}

#[test]
fn nothing_to_move_is_said_and_why() {
    let a = Advice {
        machine: "one".into(),
        source: "residency".into(),
        nothing: Some("one node has memory".into()),
        ..Advice::default()
    };
    expect![[r#"
        machine: one
        looked for 0 s; heat from residency

        what homenode would move (it was not moved)
          nothing: one node has memory
    "#]]
    .assert_eq(&a.to_text(60, Glyphs::Ascii));
}

#[test]
fn json_has_the_sum() {
    let v: serde_json::Value = serde_json::from_str(&advice().to_json()).expect("JSON");
    assert_eq!(v["sum"]["pages"], 2811);
    assert_eq!(v["moves"][0]["pid"], 1234, "best net first");
    assert_eq!(v["rest"][0]["verdict"], "unknown_cpu");
    let net = v["sum"]["net"].as_f64().expect("a number");
    assert!((net - 0.1337).abs() < 1e-9, "{net}");
}
