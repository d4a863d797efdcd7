//! Bad files in, one sentence out.

use expect_test::{Expect, expect};
use homenode_config::{notes, parse_machine, parse_scenario, read_machine, write_machine_file};
use homenode_core::units::Bytes;
use homenode_fixtures::Folder;

const MACHINE: &str = include_str!("good-machine.toml");
const SCENARIO: &str = include_str!("good-scenario.toml");
const GUESTS: &str = include_str!("good-guests.toml");
/// In place of the good file's access step.
const STREAM: (&str, &str) = (
    "do = \"access\"\nmap = \"heap\"\npattern = \"gauss\"\nsd = 125\nwrite = 300\ncompute = \"20ns\"",
    "do = \"stream\"\nmap = \"heap\"\nrate = \"1 GB/s\"",
);
const TASKS: &str = include_str!("good-tasks.toml");
const GROUPS: &str = include_str!("good-groups.toml");

/// The good file with each pair's left side replaced by its right side once.
fn changed(good: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(good.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "the good file has {from}");
        text.replacen(from, to, 1)
    })
}

fn machines(cases: &[&[(&str, &str)]], expected: Expect) {
    let mut out = String::new();
    for case in cases {
        let e = parse_machine("box.toml", &changed(MACHINE, case)).expect_err("it was wrong");
        out += &format!("{e}\n");
    }
    expected.assert_eq(&out);
}

fn scenarios(cases: &[&[(&str, &str)]], expected: Expect) {
    changed_scenarios(SCENARIO, cases, expected);
}

fn changed_scenarios(good: &str, cases: &[&[(&str, &str)]], expected: Expect) {
    let mut out = String::new();
    for case in cases {
        let text = changed(good, case);
        let machine = parse_machine("box.toml", MACHINE).expect("it is good");
        let e = parse_scenario("run.toml", &text).and_then(|s| s.check(&machine));
        out += &format!("{}\n", e.expect_err("it was wrong"));
    }
    expected.assert_eq(&out);
}

#[test]
fn idle_states_and_clocks_that_cannot_be_are_refused() {
    machines(
        &[
            &[("name = \"C1\"", "name = \"POLL\"")],
            &[("name = \"C1\"", "name = \"\"")],
            &[("name = \"C1\"", "name = \"C1\"\npolls = true")],
            &[("polls = true", "polls = true\nwoken_by = \"interrupt\"")],
            &[("\"store\"", "\"a kiss\"")],
            &[("woken_by", "woken")],
            &[("target_residency = { value = 0", "target_residency = { value = 9000")],
            &[("value = 2000, unit = \"ns\"", "value = 2, unit = \"us\"")],
            &[("value = 2000, unit", "value = 2000000000, unit")],
            &[("ids = \"2-3\"", "ids = \"2-3\"\nmhz = 0")],
            &[("value = 0.65", "value = 1.3")],
        ],
        expect![[r#"
            box.toml:87:8: idle_state[1].name: idle state "POLL": it stands twice; names are unique
            box.toml:87:8: idle_state[1].name: idle state "": its name is a word, such as C1
            box.toml:88:9: idle_state[1].polls: idle state "C1": only the first state may poll
            box.toml:83:12: idle_state[0].woken_by: idle state "POLL": a CPU that polls sees a store; it needs no interrupt
            box.toml:88:12: idle_state[1].woken_by: "a kiss" is not known; allowed are store, interrupt
            box.toml:88:1: idle_state[1].woken: unknown key; allowed are name, polls, woken_by, exit_latency, target_residency, wake_latency
            box.toml:90:20: idle_state[1].target_residency: idle state "C1": states come in the order of their residencies
            box.toml:89:36: idle_state[1].exit_latency.unit: "us" does not fit; this constant is in ns
            box.toml:89:26: idle_state[1].exit_latency.value: 2000000000 is out of range; allowed are 0 to 1000000000 ns
            box.toml:24:7: cpus[1].mhz: 0 is out of range; a whole number from 1 to 100000 is allowed
            box.toml:78:27: cost.sibling_speed.value: 1.3 is out of range; allowed are 0.001 to 1 ratio
        "#]],
    );
}

#[test]
fn what_a_scenario_stands_for() {
    let machine = parse_machine("box.toml", MACHINE).unwrap_or_else(|e| panic!("{e}"));
    let read = |value: &str| {
        let text = changed(SCENARIO, &[("seed = 7", &format!("seed = 7\nstands_for = {value}"))]);
        let file = parse_scenario("run.toml", &text)?;
        file.check_on_its_own(&machine)?;
        Ok::<_, homenode_config::ConfigError>(file.scenario.scale.factor())
    };
    let size = machine.nodes[0].size().0 + machine.nodes[1].size().0;
    let good = format!("\"1:64 of {}\"", homenode_config::write_size(Bytes(64 * size)));
    assert_eq!(read(&good).unwrap_or_else(|e| panic!("{e}")), 64);
    assert_eq!(read("\"as_is\"").unwrap_or_else(|e| panic!("{e}")), 1);
    let bad = [
        "\"1:0 of 16 GiB\"",
        "\"1:-4 of 16 GiB\"",
        "\"1:1 of 16 GiB\"",
        "\"1:2.5 of 16 GiB\"",
        "\"1:5000 of 16 GiB\"",
        "\"64:1 of 16 GiB\"",
        "\"1:64\"",
        "\"16 GiB\"",
        "\"1:64 of\"",
        "\"1:64 of much\"",
        "\"1:64 of 0 B\"",
        "\"1:64 of 16 MiB\"",
        "\"1:64 of 96 GiB\"",
        "\"as_is, 1:64 of 16 GiB\"",
        "\"as is\"",
        "64",
        "true",
    ];
    let told: String =
        bad.iter().map(|v| format!("{}\n", read(v).expect_err("it was wrong"))).collect();
    expect![[r#"
        run.toml:6:14: stands_for: 1:0 is out of range; a whole number from 2 to 4096 is allowed, and "as_is"
        run.toml:6:14: stands_for: 1:-4 is out of range; a whole number from 2 to 4096 is allowed, and "as_is"
        run.toml:6:14: stands_for: 1:1 is out of range; a whole number from 2 to 4096 is allowed, and "as_is"
        run.toml:6:14: stands_for: 1:2.5 is out of range; a whole number from 2 to 4096 is allowed, and "as_is"
        run.toml:6:14: stands_for: 1:5000 is out of range; a whole number from 2 to 4096 is allowed, and "as_is"
        run.toml:6:14: stands_for: "64:1 of 16 GiB" does not begin with 1: a machine stands for a larger one; write "1:64 of 16 GiB", where 16 GiB is the memory of the nodes with CPUs of what it stands for, or "as_is"
        run.toml:6:14: stands_for: "1:64" is no scale; write "1:64 of 16 GiB", where 16 GiB is the memory of the nodes with CPUs of what it stands for, or "as_is"
        run.toml:6:14: stands_for: "16 GiB" is no scale; write "1:64 of 16 GiB", where 16 GiB is the memory of the nodes with CPUs of what it stands for, or "as_is"
        run.toml:6:14: stands_for: "1:64 of" is no scale; write "1:64 of 16 GiB", where 16 GiB is the memory of the nodes with CPUs of what it stands for, or "as_is"
        run.toml:6:14: stands_for: "much" is no size; write it with B, KiB, MiB, GiB or TiB, such as "512 MiB"
        run.toml:6:14: stands_for: a size of 0; a size lies between 1 and 2^52 bytes
        run.toml:6:14: stands_for: the nodes with CPUs of the machine "box" have 327684 KiB, more than the 16 MiB that they stand for
        run.toml:6:14: stands_for: the nodes with CPUs of the machine "box" have 327684 KiB: 64 times that are 20971776 KiB, not 96 GiB
        run.toml:6:14: stands_for: "as_is, 1:64 of 16 GiB": as_is stands alone; write "1:64 of 16 GiB", where 16 GiB is the memory of the nodes with CPUs of what it stands for, or "as_is"
        run.toml:6:14: stands_for: "as is" is no scale; write "1:64 of 16 GiB", where 16 GiB is the memory of the nodes with CPUs of what it stands for, or "as_is"
        run.toml:6:14: stands_for: expected a text in quotes, found a number
        run.toml:6:14: stands_for: expected a text in quotes, found true or false
    "#]].assert_eq(&told);
    // On another machine the factor holds, and the size is what comes of it.
    let text = changed(SCENARIO, &[("seed = 7", "seed = 7\nstands_for = \"1:64 of 96 GiB\"")]);
    let file = parse_scenario("run.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    file.check(&machine).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn the_good_files_are_good() {
    let machine = parse_machine("box.toml", MACHINE).unwrap_or_else(|e| panic!("{e}"));
    for text in [SCENARIO, GUESTS, TASKS, GROUPS] {
        let file = parse_scenario("run.toml", text).unwrap_or_else(|e| panic!("{e}"));
        file.check(&machine).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn impossible_topologies() {
    machines(
        &[
            &[("[10, 21]", "[11, 21]")],
            &[("[10, 21]", "[10, 10]")],
            &[("[10, 21]", "[10, 300]")],
            &[("[10, 21]", "[10]")],
            &[("[10, 21],", "")],
            &[("ids = \"2-3\"", "ids = \"1-3\"\ncores = \"1-3\"")],
            &[("ids = \"2-3\"", "ids = \"2-3\"\ncores = \"0-1\"")],
            &[("ids = \"2-3\"", "ids = \"2-3\"\ncores = \"0\"")],
            &[("ids = \"2-3\"", "ids = \"2-3\"\ncapacity = 2048")],
            &[("ids = \"2-3\"", "ids = \"3-2\"")],
            &[("ids = \"2-3\"\nnode = 1", "ids = \"2-3\"\nnode = 9")],
            &[("id = 1", "id = 0")],
            &[("id = 1", "id = 5000")],
            &[("to = 1", "to = 0")],
            &[("to = 1", "to = 7")],
            &[("level = 2", "level = 1")],
        ],
        expect![[r#"
            box.toml:4:6: distances[0][0]: distance 11 from node 0 to node 0: the distance of a node to itself is 10
            box.toml:4:10: distances[0][1]: distance 10 from node 0 to node 1: the distance to another node lies between 11 and 254
            box.toml:4:10: distances[0][1]: distance 300 from node 0 to node 1: the distance to another node lies between 11 and 254
            box.toml:4:5: distances[0]: 1 distance from node 0 for 2 nodes; there is one per node
            box.toml:3:13: distances: 1 row of distances for 2 nodes; there is one row per node
            box.toml:22:1: cpus[1]: CPU 1 is in two nodes, 0 and 1; it has one
            box.toml:22:1: cpus[1]: CPU 2 is on node 1, but its core 0 has CPUs of node 0; a core is in one node
            box.toml:24:9: cpus[1].cores: 1 core for 2 CPUs; there is one per CPU, in the order of "ids"
            box.toml:24:12: cpus[1].capacity: 2048 is out of range; a whole number from 1 to 1024 is allowed
            box.toml:23:7: cpus[1].ids: "3-2" is no list; write one such as "0-3,8" with numbers up to 8191
            box.toml:22:1: cpus[1]: CPU 2 is on node 9, which is not in the machine
            box.toml:14:6: node[1].id: node 0 occurs twice; numbers are unique
            box.toml:14:6: node[1].id: 5000 is out of range; a whole number from 0 to 1023 is allowed
            box.toml:51:1: link[1]: link from node 0 to node 0: a link stands once only
            box.toml:51:1: link[1]: link from node 0 to node 7: a link ends at a node with memory
            box.toml:36:9: cache[1].level: cache level 1 occurs twice; numbers are unique
        "#]],
    );
}

#[test]
fn sizes() {
    machines(
        &[
            &[("\"256 MiB\"", "0")],
            &[("\"256 MiB\"", "\"4097 TiB\"")],
            &[("\"256 MiB\"", "4_503_599_627_370_497")],
            &[("\"256 MiB\"", "-4096")],
            &[("\"256 MiB\"", "5000")],
            &[("\"256 MiB\"", "\"256 MB\"")],
            &[("\"256 MiB\"", "true")],
            &[("zones = [", "size = \"1 GiB\"\nzones = [")],
            &[("\"256 MiB\" }", "\"256 MiB\" }, { kind = \"dma\", size = \"16 MiB\" }")],
        ],
        expect![[r#"
            box.toml:11:36: node[0].zones[0].size: a size of 0; a size lies between 1 and 2^52 bytes
            box.toml:11:36: node[0].zones[0].size: 4097 TiB is beyond 2^52 bytes; a size lies between 1 and 2^52 bytes
            box.toml:11:36: node[0].zones[0].size: 4503599627370497 is beyond 2^52 bytes; a size lies between 1 and 2^52 bytes
            box.toml:11:36: node[0].zones[0].size: -4096 is negative; a size lies between 1 and 2^52 bytes
            box.toml:11:36: node[0].zones[0].size: 5000 bytes are no whole number of pages of 4096 bytes
            box.toml:11:36: node[0].zones[0].size: "256 MB" is no size; write it with B, KiB, MiB, GiB or TiB, such as "512 MiB"
            box.toml:11:36: node[0].zones[0].size: expected a size such as "512 MiB" or a number of bytes, found true or false
            box.toml:11:8: node[0].size: a node has either a size or zones, whose sum is its size
            box.toml:11:49: node[0].zones[1]: node 0: a node has one zone of a kind at most, in the order dma, dma32, normal, movable
        "#]],
    );
}

#[test]
fn constants() {
    machines(
        &[
            &[("value = 89.3", "value = nan")],
            &[("value = 89.3", "value = inf")],
            &[("value = 89.3", "value = -3")],
            &[("value = 89.3", "value = 0")],
            &[("value = 89.3", "value = 1e3")],
            &[("value = 89.3", "value = 89.3001")],
            &[("value = 89.3", "value = \"89.3\"")],
            &[("unit = \"ns\", spread", "unit = \"us\", spread")],
            &[("spread = 1.2", "spread = -1")],
            &[("source = \"quoted\"", "source = \"qouted\"")],
            &[("method = \"a test\"", "method = \" \"")],
            &[("method = \"a test\", ", "")],
            &[("value = 20000", "value = 20000.5")],
            &[("value = 700", "value = 99999999999")],
        ],
        expect![[r#"
            box.toml:46:26: link[0].read_latency.value: nan is no plain number; allowed are 0.001 to 1000000 ns
            box.toml:46:26: link[0].read_latency.value: inf is no plain number; allowed are 0.001 to 1000000 ns
            box.toml:46:26: link[0].read_latency.value: -3 is negative; allowed are 0.001 to 1000000 ns
            box.toml:46:26: link[0].read_latency.value: 0 is out of range; allowed are 0.001 to 1000000 ns
            box.toml:46:26: link[0].read_latency.value: 1e3 is no plain number; allowed are 0.001 to 1000000 ns
            box.toml:46:26: link[0].read_latency.value: 89.3001 is too fine; allowed are 0.001 to 1000000 ns, with three decimals at most
            box.toml:46:26: link[0].read_latency.value: expected a number; allowed are 0.001 to 1000000 ns
            box.toml:46:39: link[0].read_latency.unit: "us" does not fit; this constant is in ns
            box.toml:46:54: link[0].read_latency.spread: -1 is negative; allowed are 0 to 1000000 ns
            box.toml:46:87: link[0].read_latency.source: "qouted" is not known; did you mean "quoted"?
            box.toml:33:48: cache[0].latency.method: empty; say how it was found, who published it, or why this value
            box.toml:33:11: cache[0].latency: the key "method" is missing
            box.toml:48:28: link[0].read_bandwidth.value: 20000.5 is not whole; allowed are 1 to 1000000000 MB/s, without decimals
            box.toml:76:25: cost.minor_fault.value: 99999999999 is out of range; allowed are 0.001 to 1000000 ns
        "#]],
    );
}

/// A curve at the end of the file: `points` are its lines, the first of which is line 92.
fn curves(points: &[&str]) -> String {
    let mut out = String::new();
    for points in points {
        let text = format!(
            "{MACHINE}\n[[curve]]\nwalk = \"chase\"\nunit = \"ns\"\nmethod = \"a test\"\npoints = [\n{points}\n]\n"
        );
        let e = parse_machine("box.toml", &text).expect_err(points);
        out.push_str(&format!("{e}\n"));
    }
    out
}

/// A loaded latency at the end of the file: `points` are its lines, the first of which is line 93.
fn loaded(head: &str, points: &[&str]) -> String {
    let told = points.iter().map(|points| {
        let text = format!("{MACHINE}\n[[loaded]]\n{head}\npoints = [\n{points}\n]\n");
        parse_machine("box.toml", &text).expect_err(points).to_string()
    });
    told.collect::<Vec<_>>().join("\n")
}

#[test]
fn loaded_latencies_that_cannot_be() {
    let told = loaded(
        "path = \"cxl\"\nmethod = \"a test\"\nsource = \"assumed\"",
        &[
            "    { share = 0.5, times = 2 }",
            "{ share = 0.5, times = 2 },\n{ share = 0.9, times = 1.5 }",
            "{ share = 0.5, times = 2 },\n{ share = 0.4, times = 3 }",
            "{ share = 0, times = 2 }",
            "{ share = 0.5, times = 0.9 }",
            "{ share = 1.5, times = 2 }",
            "{ share = 0.5 }",
        ],
    );
    expect![[r#"
        box.toml:97:10: loaded[0].points: the loaded latency of "cxl" has 1 points; 2 to 256 are allowed
        box.toml:99:24: loaded[0].points[1].times: the loaded latency of "cxl" falls from 2 to 1.5; under more load an access takes as long at least
        box.toml:99:11: loaded[0].points[1].share: shares rise from point to point; this one does not
        box.toml:98:11: loaded[0].points[0].share: 0 is out of range; allowed are 0.001 to 1 ratio
        box.toml:98:24: loaded[0].points[0].times: 0.9 is out of range; allowed are 1 to 100 ratio
        box.toml:98:11: loaded[0].points[0].share: 1.5 is out of range; allowed are 0.001 to 1 ratio
        box.toml:98:1: loaded[0].points[0]: the key "times" is missing"#]].assert_eq(&told);
    let told: Vec<String> = [
        "path = \"hbm\"\nmethod = \"m\"\nsource = \"assumed\"",
        "path = \"cxl\"\nmethod = \" \"\nsource = \"assumed\"",
        "path = \"cxl\"\nmethod = \"m\"\nsource = \"heard\"",
    ]
    .iter()
    .map(|head| loaded(head, &["{ share = 0.5, times = 2 }"]))
    .collect();
    expect![[r#"
        box.toml:94:8: loaded[0].path: "hbm" is not known; allowed are dram, cxl, pmem, socket
        box.toml:95:10: loaded[0].method: empty; say how it was measured, or who published it
        box.toml:96:10: loaded[0].source: "heard" is not known; allowed are measured, quoted, assumed"#]].assert_eq(&told.join("\n"));
}

#[test]
fn a_machine_that_does_not_say_why_it_leaves_costs_out() {
    let name = "name = \"box\"";
    let with = |text: &str| format!("{name}\n{text}");
    machines(
        &[
            &[(name, &with("defaults = \" \""))],
            &[(name, &with("defaults = true"))],
            &[(name, &with("default = \"a test\""))],
        ],
        expect![[r#"
            box.toml:2:12: defaults: empty; say why costs that the file leaves out are as homenode assumes them
            box.toml:2:12: defaults: expected a text in quotes, found true or false
            box.toml:2:1: default: unknown key; did you mean "defaults"?
        "#]],
    );
}

#[test]
fn curves_that_cannot_be() {
    let good = "{ size = \"1 MiB\", low = 3.9, time = 4, high = 4.2 },\n";
    let told = curves(&[
        "{ size = \"1 MiB\", low = 3.9, time = 4, high = 4.2 }",
        &format!("{good}{{ size = \"2 MiB\", low = 3.9, time = 3.95, high = 4.2 }}"),
        &format!("{good}{{ size = \"2 MiB\", low = 3.9, time = 4 }}"),
        &format!("{good}{{ size = \"2 MiB\", low = -1, time = 4, high = 5 }}"),
        &format!("{good}{{ size = \"2 MiB\", low = 5, time = 4, high = 5 }}"),
        &format!("{good}{{ size = \"2 MiB\", low = 4, time = 4.1, high = 4.05 }}"),
        &format!("{good}{{ size = \"1 MiB\", low = 4, time = 4.1, high = 5 }}"),
        &format!("{good}{{ size = \"2 MiB\", low = 4, time = nan, high = 5 }}"),
        &format!("{good}{{ size = \"2 MiB\", low = 4, mean = 4, high = 5 }}"),
    ]);
    expect![[r#"
        box.toml:97:10: curve[0].points: the curve "chase" has 1 points; 2 to 256 are allowed
        box.toml:99:37: curve[0].points[1].time: the curve "chase" falls from 4 ns to 3.95 ns; over more bytes an access takes as long at least
        box.toml:99:1: curve[0].points[1]: the key "high" is missing
        box.toml:99:25: curve[0].points[1].low: -1 is negative; allowed are 0.001 to 1000000 ns
        box.toml:99:25: curve[0].points[1].low: low is 5 ns, more than time, 4 ns; it is the tenth percentile of what time is the median of
        box.toml:99:47: curve[0].points[1].high: high is 4.05 ns, less than time, 4.1 ns; it is the ninetieth percentile of what time is the median of
        box.toml:99:10: curve[0].points[1].size: sizes rise from point to point; this one does not
        box.toml:99:35: curve[0].points[1].time: nan is no plain number; allowed are 0.001 to 1000000 ns
        box.toml:99:28: curve[0].points[1].mean: unknown key; allowed are size, low, time, high
    "#]].assert_eq(&told);
    machines(
        &[
            &[(
                "[cost]",
                "[[curve]]\nwalk = \"jump\"\nunit = \"ns\"\nmethod = \"m\"\npoints = []\n\n[cost]",
            )],
            &[(
                "[cost]",
                "[[curve]]\nwalk = \"chase\"\nunit = \"us\"\nmethod = \"m\"\npoints = []\n\n[cost]",
            )],
            &[(
                "[cost]",
                "[[curve]]\nwalk = \"chase\"\nunit = \"ns\"\nmethod = \"\"\npoints = []\n\n[cost]",
            )],
        ],
        expect![[r#"
            box.toml:76:8: curve[0].walk: "jump" is not known; allowed are chase, stream, update
            box.toml:77:8: curve[0].unit: "us" does not fit; a curve is in ns
            box.toml:78:10: curve[0].method: empty; say how it was measured
        "#]],
    );
}

#[test]
fn keys_and_syntax() {
    machines(
        &[
            &[("medium =", "meduim =")],
            &[("minor_fault", "minor_faults")],
            &[("name = \"box\"", "name = \"box\"\nzzz = 1")],
            &[("name = \"box\"", "")],
            &[("name = \"box\"", "name = \"box\"\nname = \"box\"")],
            &[("name = \"box\"", "name = \"box")],
            &[("name = \"box\"", "name = 3")],
            &[("medium = \"dram\"", "medium = \"dran\"")],
            &[("id = 0", "id = 99999999999999999999")],
            &[("[[node]]", "[node]")],
        ],
        expect![[r#"
            box.toml:10:1: node[0].meduim: unknown key; did you mean "medium"?
            box.toml:76:1: cost.minor_faults: unknown key; did you mean "minor_fault"?
            box.toml:2:1: zzz: unknown key; allowed are name, about, distances, node, cpus, cache, link, idle_state, curve, loaded, defaults, cost
            box.toml:1:1: the key "name" is missing
            box.toml:2:1: not TOML: duplicate key `name` in document root
            box.toml:1:12: not TOML: invalid basic string
            box.toml:1:8: name: expected a text in quotes, found a number
            box.toml:10:10: node[0].medium: "dran" is not known; did you mean "dram"?
            box.toml:9:6: not TOML: number too large to fit in target type
            box.toml:13:1: not TOML: invalid table header; duplicate key `node` in document root
        "#]],
    );
    expect!["box.toml:1:1: the key \"name\" is missing"]
        .assert_eq(&parse_machine("box.toml", "").expect_err("it is empty").to_string());
}

#[test]
fn scenario_keys_and_values() {
    scenarios(
        &[
            &[("map = \"heap\"\npattern", "map = \"haep\"\npattern")],
            &[("cpus = \"0-1\"", "cpus = \"0-8\"")],
            &[("cpus = \"0-1\"", "cpus = \"\"")],
            &[("node = 0 }", "node = 6 }")],
            &[("order = \"10us\"", "order = \"11us\"")],
            &[("order = \"10us\"", "order = \"0us\"")],
            &[("order = \"10us\"", "order = 10")],
            &[("sd = 125", "sd = 1001")],
            &[("sd = 125", "theta = 990")],
            &[("sd = 125", "sd = 125\ntheta = 990")],
            &[("write = 300", "write = 1001")],
            &[("write = 300", "mlp = 0")],
            &[("write = 300", "mlp = 65")],
            &[("write = 300", "mlp = 1.5")],
            &[STREAM, ("rate = \"1 GB/s\"", "rate = \"200.001 GB/s\"")],
            &[STREAM, ("rate = \"1 GB/s\"", "rate = \"1 GiB/s\"")],
            &[STREAM, ("rate = \"1 GB/s\"", "rate = \"-1 GB/s\"")],
            &[STREAM, ("rate = \"1 GB/s\"", "rate = 1")],
            &[STREAM, ("rate = \"1 GB/s\"", "")],
            &[STREAM, ("rate = \"1 GB/s\"", "rate = \"1 GB/s\"\nmlp = 2")],
            &[("time = \"2s\"", "time = \"2s\"\naccesses = 5")],
            &[("time = \"2s\"", "")],
            &[("time = \"2s\"", "time = \"2 min\"")],
            &[("time = \"2s\"", "time = \"0s\"")],
            &[("pattern = \"gauss\"", "pattern = \"guass\"")],
            &[("do = \"touch\"", "do = \"tuoch\"")],
            &[("do = \"touch\"", "do = \"touch\"\nwrite = 1")],
            &[("[1, 1]", "[1, 256]")],
            &[("[1, 1]", "[0, 1]")],
            &[("[1, 1]", "[1]")],
            &[("[1, 1]", "[7, 1]")],
            &[("size = \"64 MiB\"", "size = \"0 MiB\"")],
            &[("to = 1", "to = 3")],
            &[("admission = \"b\"", "admission = \"c\"")],
            &[("numa_balancing = 2", "numa_balancing = [2]")],
            &[("seed = 7", "seed = -7")],
        ],
        expect![[r#"
            run.toml:41:7: process[0].step[1].map: the process has no map "haep"; did you mean "heap"?
            run.toml:21:8: process[0].cpus: CPU 4 is not in the machine; the machine "box" has CPUs 0-3
            run.toml:21:8: process[0].cpus: "" is no list; write one such as "0-3,8" with numbers up to 8191
            run.toml:28:10: process[0].map[0].policy: node 6 is not in the machine or has no memory; the machine "box" has memory on nodes 0-1
            run.toml:17:9: model.order: 11us is out of range; allowed are "strict" or a quantum above 0s, up to "10us"
            run.toml:17:9: model.order: 0s is out of range; allowed are "strict" or a quantum above 0s, up to "10us"
            run.toml:17:9: model.order: expected a text in quotes, found a number
            run.toml:43:6: process[0].step[1].sd: 1001 is out of range; a whole number from 1 to 1000 is allowed, in thousandths
            run.toml:39:1: process[0].step[1]: the key "sd" is missing
            run.toml:44:9: process[0].step[1].theta: this pattern has no such key
            run.toml:44:9: process[0].step[1].write: 1001 is out of range; a whole number from 0 to 1000 is allowed, in thousandths
            run.toml:44:7: process[0].step[1].mlp: 0 is out of range; a whole number from 1 to 64 is allowed
            run.toml:44:7: process[0].step[1].mlp: 65 is out of range; a whole number from 1 to 64 is allowed
            run.toml:44:7: process[0].step[1].mlp: 1.5 is no whole number; a whole number from 1 to 64 is allowed
            run.toml:42:8: process[0].step[1].rate: 200001 MB/s is more than 10 times what node 0 reads (20 GB/s); ask for 200 GB/s at most
            run.toml:42:8: process[0].step[1].rate: "1 GiB/s" is no rate; write it with MB/s or GB/s, such as "12 GB/s"
            run.toml:42:8: process[0].step[1].rate: -1 GB/s is negative; a rate is 0 GB/s or more
            run.toml:42:8: process[0].step[1].rate: expected bytes a second with their unit, such as "12 GB/s", found a number
            run.toml:39:1: process[0].step[1]: the key "rate" is missing
            run.toml:43:1: process[0].step[1].mlp: unknown key; did you mean "map"?
            run.toml:46:8: process[0].step[1].time: an access step ends after "accesses" or after "time", not both
            run.toml:39:1: process[0].step[1]: an access step says when it ends: "accesses" or "time" is missing
            run.toml:46:8: process[0].step[1].time: "2 min" is no time; write it with ps, ns, us, ms or s, such as "10us"
            run.toml:46:8: process[0].step[1].time: 0 is no span of time; write one such as "1s"
            run.toml:42:11: process[0].step[1].pattern: "guass" is not known; did you mean "gauss"?
            run.toml:36:6: process[0].step[0].do: "tuoch" is not known; did you mean "touch"?
            run.toml:37:1: process[0].step[0].write: unknown key; allowed are do, map
            run.toml:33:65: process[0].map[1].policy.weights[1][1]: 256 is out of range; a whole number from 1 to 255 is allowed
            run.toml:33:61: process[0].map[1].policy.weights[1]: node 0 has two weights; it has one
            run.toml:33:61: process[0].map[1].policy.weights[1]: a weight is a pair: [node, weight from 1 to 255]
            run.toml:33:10: process[0].map[1].policy: node 7 is not in the machine or has no memory; the machine "box" has memory on nodes 0-1
            run.toml:27:8: process[0].map[0].size: a size of 0; a size lies between 1 and 2^52 bytes
            run.toml:55:6: process[0].step[3].to: node 3 is not in the machine or has no memory; the machine "box" has memory on nodes 0-1
            run.toml:12:13: model.admission: "c" is not known; allowed are a, b
            run.toml:8:18: knobs.numa_balancing: a knob's value is a number, a text or true or false
            run.toml:5:8: seed: -7 is negative; a whole number from 0 to 9223372036854775807 is allowed
        "#]],
    );
}

#[test]
fn reads_and_writes_at_a_time() {
    let write = "write = \"/proc/sys/kernel/numa_balancing\"";
    let read = "read = \"/proc/{a}/numa_maps\"";
    scenarios(
        &[
            &[("time = \"1s\"\n", "")],
            &[("time = \"1s\"", "time = 1")],
            &[("time = \"1s\"", "time = \"-1s\"")],
            &[("[[at]]", "[at]"), ("\n[[at]]\ntime = \"1500ms\"", "")],
            &[(write, "")],
            &[(write, "write = \"/a\"\nread = \"/b\"")],
            &[(write, "write = 7")],
            &[(write, "write = \"numa_balancing\"")],
            &[(write, "write = \"/proc/{b}/x\"")],
            &[("value = 4\n", "")],
            &[("value = 4", "value = [4]")],
            &[(read, "read = \"/proc/vmstat\"\nvalue = 1")],
            &[("as = \"nobody\"", "as = \"somebody\"")],
            &[("expect = \"EACCES\"", "expect = \"EACCESS\"")],
            &[("expect = \"EACCES\"", "expects = \"EACCES\"")],
        ],
        expect![[r#"
            run.toml:62:1: at[0]: the key "time" is missing
            run.toml:63:8: at[0].time: expected a time with its unit, such as "10us" or "1s", found a number
            run.toml:63:8: at[0].time: -1s is negative; a time is 0s or more
            run.toml:62:1: at: expected a list, found a table
            run.toml:62:1: at[0]: an entry says what happens then: "read" or "write" is missing
            run.toml:64:9: at[0].write: one entry is a "read" or a "write", not both
            run.toml:64:9: at[0].write: expected a text in quotes, found a number
            run.toml:64:9: at[0].write: "numa_balancing" is no path of the kernel's; write one such as "/proc/vmstat"
            run.toml:64:9: at[0].write: no process is named "b"; allowed are a
            run.toml:62:1: at[0]: the key "value" is missing
            run.toml:65:9: at[0].value: a knob's value is a number, a text or true or false
            run.toml:72:9: at[1].value: a read has no value; "write" has one
            run.toml:66:6: at[0].as: "somebody" is not known; allowed are root, root-without-caps, nobody
            run.toml:67:10: at[0].expect: "EACCESS" is not known; did you mean "EACCES"?
            run.toml:67:1: at[0].expects: unknown key; did you mean "expect"?
        "#]],
    );
}

#[test]
fn contents_and_merging() {
    const HEAP: &str = "size = \"64 MiB\"";
    const TOUCH: &str = "do = \"touch\"\nmap = \"heap\"";
    let with = |line: &str| format!("{HEAP}\n{line}");
    let model = |lines: &str| format!("{lines}\n[model]");
    let maps = [
        "content = \"zeroes\"",
        "content = 0",
        "content = { image = \"a\", distinct = 0 }",
        "content = { image = \"a\", distinct = 4294967296 }",
        "content = { distinct = 4 }",
        "content = { image = \"a\", distinkt = 4 }",
        "mergeable = 1",
        "mergable = true",
    ]
    .map(with);
    let files = [
        "[ksm]\nmerge_accross_nodes = 0",
        "[ksm]\npages_shared = 0",
        "[ksm]\nrun = [1]",
        "ksm = 1",
    ]
    .map(model);
    let mut cases: Vec<[(&str, &str); 1]> = maps.iter().map(|m| [(HEAP, m.as_str())]).collect();
    cases.extend(files[..3].iter().map(|f| [("[model]", f.as_str())]));
    cases.push([("seed = 7", "seed = 7\nksm = 1")]);
    cases.push([(
        "policy = { mode = \"bind\"",
        "memory_merge = \"yes\"\npolicy = { mode = \"bind\"",
    )]);
    cases.push([(TOUCH, "do = \"fill\"\nmap = \"heap\"")]);
    cases.push([(TOUCH, "do = \"fill\"\nmap = \"haep\"\ncontent = \"zero\"")]);
    cases.push([(TOUCH, "do = \"madvise\"\nmap = \"heap\"\nadvice = \"merge\"")]);
    cases.push([(TOUCH, "do = \"madvise\"\nmap = \"heap\"")]);
    let cases: Vec<&[(&str, &str)]> = cases.iter().map(|c| &c[..]).collect();
    scenarios(
        &cases,
        expect![[r#"
            run.toml:28:11: process[0].map[0].content: "zeroes" is not known; allowed are own, zero
            run.toml:28:11: process[0].map[0].content: expected a table, found a number
            run.toml:28:37: process[0].map[0].content.distinct: 0 is out of range; a whole number from 1 to 4294967295 is allowed
            run.toml:28:37: process[0].map[0].content.distinct: 4294967296 is out of range; a whole number from 1 to 4294967295 is allowed
            run.toml:28:11: process[0].map[0].content: the key "image" is missing
            run.toml:28:26: process[0].map[0].content.distinkt: unknown key; did you mean "distinct"?
            run.toml:28:13: process[0].map[0].mergeable: expected true or false, found a number
            run.toml:28:1: process[0].map[0].mergable: unknown key; did you mean "mergeable"?
            run.toml:12:1: ksm.merge_accross_nodes: /sys/kernel/mm/ksm/ has no such file; did you mean "merge_across_nodes"?
            run.toml:12:1: ksm.pages_shared: the kernel counts there; nothing can be written to it (read it with [[at]])
            run.toml:12:7: ksm.run: a knob's value is a number, a text or true or false
            run.toml:6:7: ksm: expected a table, found a number
            run.toml:23:16: process[0].memory_merge: expected true or false, found a text
            run.toml:35:1: process[0].step[0]: the key "content" is missing
            run.toml:37:7: process[0].step[0].map: the process has no map "haep"; did you mean "heap"?
            run.toml:38:10: process[0].step[0].advice: "merge" is not known; allowed are mergeable, unmergeable
            run.toml:35:1: process[0].step[0]: the key "advice" is missing
        "#]],
    );
}

#[test]
fn what_has_no_effect_is_told() {
    let asks = "content = \"zero\"\nmergeable = true";
    let with = |more: &str| format!("size = \"64 MiB\"\n{more}\n");
    let mut out = String::new();
    for more in [
        asks.to_owned(),
        format!("shared = true\n{asks}"),
        format!("file = true\n{asks}"),
        "file = true\nshared = true\nmergeable = true".to_owned(),
        "file = true\ncontent = { image = \"a\" }".to_owned(),
        "shared = true".to_owned(),
    ] {
        let text = changed(SCENARIO, &[("size = \"64 MiB\"", with(&more).as_str())]);
        let file = parse_scenario("run.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        out += &format!("{:?}: {:?}\n", more.replace('\n', ", "), notes(&file.scenario));
    }
    let step = "do = \"madvise\"\nmap = \"heap\"\nadvice = \"mergeable\"";
    let text = changed(
        SCENARIO,
        &[
            ("size = \"64 MiB\"", "size = \"64 MiB\"\nshared = true"),
            ("do = \"touch\"\nmap = \"heap\"", step),
        ],
    );
    let file = parse_scenario("run.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    out += &format!("by a step: {:?}\n", notes(&file.scenario));
    expect![[r#"
        "content = \"zero\", mergeable = true": []
        "shared = true, content = \"zero\", mergeable = true": ["the map heap of a is shared: MADV_MERGEABLE succeeds there and has no effect, and nobody looks at what its pages hold"]
        "file = true, content = \"zero\", mergeable = true": ["the map heap of a is a file's: its private pages count as the file's here, so that none is merged, and nobody looks at what its pages hold"]
        "file = true, shared = true, mergeable = true": ["the map heap of a is shared: MADV_MERGEABLE succeeds there and has no effect"]
        "file = true, content = { image = \"a\" }": ["the map heap of a is a file's: nobody looks at what its pages hold"]
        "shared = true": []
        by a step: ["the map heap of a is shared: MADV_MERGEABLE succeeds there and has no effect"]
    "#]].assert_eq(&out);
}

#[test]
fn guests() {
    const OWN: &str = "own = 367\n";
    const MEMORY: &str = "memory = \"4 MiB\"";
    const IDLE: &str = "do = \"idle\"";
    changed_scenarios(
        GUESTS,
        &[
            &[("count = 3", "count = 0")],
            &[("count = 3", "count = 4097")],
            &[("cpus = [\"0-1\", \"2\"]", "cpus = []")],
            &[("cpus = [\"0-1\", \"2\"]", "cpus = [\"0-1\", \"9\"]")],
            &[("cpus = \"3\"", "cpus = \"7\"")],
            &[("node = [0, 1]", "node = [0, 7]")],
            &[("node = [0, 1]", "node = [0, 7000]")],
            &[("node = [0, 1]", "node = \"0\"")],
            &[("node = [0, 1]", "node = [0, 1]\npolicy = \"local\"")],
            &[("preferred\", node = 1", "preferred\", node = 2")],
            &[(MEMORY, "")],
            &[(MEMORY, "memory = \"4 MB\"")],
            &[(MEMORY, "memory = \"16 KiB\"")],
            &[("zero = 100", "zero = 101")],
            &[("zero = 100", "zero = 1001")],
            &[("zero = 100", "zero = 0.1")],
            &[("zero = 100", "zero = 500"), (OWN, "")],
            &[("share = 333, ", "")],
            &[("distinct = 64", "distinct = 0")],
            &[(", every = \"300ms\"", "")],
            &[("every = \"300ms\"", "every = \"0ms\"")],
            &[("name = \"data\"", "name = \"debian\"")],
            &[("merge = \"prctl\"", "merge = \"on\"")],
            &[("duration = \"10s\"\n", "")],
            &[(IDLE, "do = \"idle\"\nrounds = 2")],
            &[(IDLE, "do = \"bench\"")],
            &[(IDLE, "")],
            &[("rounds = 20", "rounds = 0")],
            &[("write = 5", "write = 1001")],
            &[("name = \"measured\"", "name = \"vm-1\"")],
            &[("name = \"measured\"", "name = \"host\"")],
            &[("{vm-2}", "{vm-3}")],
            &[("{vm-2}", "{vm}")],
            &[("apart = \"500ms\"", "apart = \"1000000s\""), ("count = 3", "count = 30")],
            &[("huge = true", "hugh = true")],
        ],
        expect![[r#"
            run.toml:24:9: guest[0].count: 0 is out of range; a whole number from 1 to 4096 is allowed
            run.toml:24:9: guest[0].count: 4097 is out of range; a whole number from 1 to 4096 is allowed
            run.toml:25:8: guest[0].cpus: empty; the guests take its entries in turn, so it has at least one
            run.toml:25:16: guest[0].cpus[1]: CPU 9 is not in the machine; the machine "box" has CPUs 0-3
            run.toml:38:8: guest[1].cpus: CPU 7 is not in the machine; the machine "box" has CPUs 0-3
            run.toml:26:12: guest[0].node[1]: node 7 is not in the machine or has no memory; the machine "box" has memory on nodes 0-1
            run.toml:26:12: guest[0].node[1]: 7000 is out of range; a whole number from 0 to 1023 is allowed
            run.toml:26:8: guest[0].node: expected a whole number, found a text
            run.toml:27:10: guest[0].policy: "node" already binds the guest's memory; give one of the two
            run.toml:39:10: guest[1].policy: node 2 is not in the machine or has no memory; the machine "box" has memory on nodes 0-1
            run.toml:22:1: guest[0]: the key "memory" is missing
            run.toml:27:10: guest[0].memory: "4 MB" is no size; write it with B, KiB, MiB, GiB or TiB, such as "512 MiB"
            run.toml:27:10: guest[0].memory: too small: 100 of 1000 for "zero" is less than one of its 4 pages
            run.toml:30:7: guest[0].own: zero, image, own and volatile make 1001 thousandths; they make 1000 together, or "own" is left out and takes the rest
            run.toml:28:8: guest[0].zero: 1001 is out of range; a whole number from 0 to 1000 is allowed, in thousandths
            run.toml:28:8: guest[0].zero: 0.1 is no whole number; a whole number from 0 to 1000 is allowed, in thousandths
            run.toml:22:1: guest[0]: zero, image and volatile make 1033 thousandths; at most 1000 are there, and "own" takes the rest
            run.toml:29:9: guest[0].image: the key "share" is missing
            run.toml:29:52: guest[0].image.distinct: 0 is out of range; a whole number from 1 to 4294967295 is allowed
            run.toml:31:12: guest[0].volatile: the key "every" is missing
            run.toml:31:35: guest[0].volatile.every: 0 is no span of time; write one such as "1s"
            run.toml:43:53: guest[1].image[1].name: the image "debian" stands twice; give one entry with both shares
            run.toml:42:9: guest[1].merge: "on" is not known; allowed are madvise, prctl, none
            run.toml:21:1: guest[0]: an idle guest needs an end: its "time" or the scenario's "duration" is missing
            run.toml:35:10: guest[0].rounds: an idle guest has no such key; one with do = "benchmark" has
            run.toml:34:6: guest[0].do: "bench" is not known; allowed are idle, benchmark
            run.toml:22:1: guest[0]: the key "do" is missing
            run.toml:46:10: guest[1].rounds: 0 is out of range; a whole number from 1 to 9223372036854775807 is allowed
            run.toml:48:9: guest[1].write: 1001 is out of range; a whole number from 0 to 1000 is allowed, in thousandths
            run.toml:37:8: guest[1].name: a process or guest is named "vm-1" already; names of guests are unique
            run.toml:37:8: guest[1].name: a process or guest is named "host" already; names of guests are unique
            run.toml:53:8: at[0].read: no process is named "vm-3"; did you mean "vm-0"?
            run.toml:53:8: at[0].read: no process is named "vm"; allowed are host, vm-0, vm-1, vm-2, measured
            run.toml:22:1: guest[0]: guest 19 would start later than any time that can be told
            run.toml:41:1: guest[1].hugh: unknown key; did you mean "huge"?
        "#]],
    );
}

#[test]
fn pmbenchs_patterns_and_steps() {
    const GAUSS: &str = "pattern = \"gauss\"\nsd = 125";
    const TOUCH: &str = "do = \"touch\"\nmap = \"heap\"";
    scenarios(
        &[
            &[(GAUSS, "pattern = \"normal\"\nsd = 1")],
            &[(GAUSS, "pattern = \"normal\"\ndeviation = 0")],
            &[(GAUSS, "pattern = \"normal_ih\"\ndeviation = 1")],
            &[(GAUSS, "pattern = \"normal-ih\"")],
            &[(GAUSS, "pattern = \"pareto\"\nalpha = 10001")],
            &[(GAUSS, "pattern = \"linear\"\nstride = 0")],
            &[(GAUSS, "pattern = \"breadth-first-search\"")],
            &[(TOUCH, "do = \"initialize\"\nmap = \"heap\"\norder = \"random\"")],
            &[(TOUCH, "do = \"initialize\"\nmap = \"haep\"")],
            &[(TOUCH, "do = \"barrier\"\nmap = \"heap\"")],
            &[(TOUCH, "do = \"map\"\nmap = \"haep\"")],
            &[(TOUCH, "do = \"repeat\"\nsteps = 1\ntimes = 2")],
            &[(
                TOUCH,
                "do = \"touch\"\nmap = \"heap\"\n[[process.step]]\ndo = \"repeat\"\nsteps = 2\ntimes = 2",
            )],
            &[(
                TOUCH,
                "do = \"touch\"\nmap = \"heap\"\n[[process.step]]\ndo = \"repeat\"\nsteps = 0\ntimes = 2",
            )],
            &[(TOUCH, "do = \"fork\"\n[[process.step]]\ndo = \"repeat\"\nsteps = 1\ntimes = 2")],
            &[(TOUCH, "do = \"wait\"\n[[process.step]]\ndo = \"repeat\"\nsteps = 1\ntimes = 0")],
            &[(
                TOUCH,
                "do = \"wait\"\n[[process.step]]\ndo = \"repeat\"\nsteps = 1\ntimes = 2\nuntil = \"1s\"",
            )],
            &[(TOUCH, "do = \"wait\"\n[[process.step]]\ndo = \"repeat\"\nsteps = 1")],
        ],
        expect![[r#"
            run.toml:43:6: process[0].step[1].sd: this pattern has no such key
            run.toml:43:13: process[0].step[1].deviation: 0 is out of range; a whole number from 1 to 2147483648 is allowed
            run.toml:43:13: process[0].step[1].deviation: this pattern has no such key
            run.toml:42:11: process[0].step[1].pattern: "normal-ih" is not known; did you mean "normal_ih"?
            run.toml:43:9: process[0].step[1].alpha: 10001 is out of range; a whole number from 1 to 10000 is allowed
            run.toml:43:10: process[0].step[1].stride: 0 is out of range; a whole number from 1 to 2147483648 is allowed
            run.toml:43:9: process[0].step[1].write: a search writes what it finds; leave write out
            run.toml:38:9: process[0].step[0].order: "random" is not known; allowed are linear, middle-first, scattered
            run.toml:37:7: process[0].step[0].map: the process has no map "haep"; did you mean "heap"?
            run.toml:37:1: process[0].step[0].map: unknown key; allowed are do
            run.toml:37:7: process[0].step[0].map: the process has no map "haep"; did you mean "heap"?
            run.toml:37:9: process[0].step[0].steps: there is no step before it to repeat
            run.toml:40:9: process[0].step[1].steps: 2 is out of range; 1 step stands before this one
            run.toml:40:9: process[0].step[1].steps: 0 is out of range; a whole number from 1 to 4294967295 is allowed
            run.toml:37:1: process[0].step[1]: a fork can't be repeated; put it before or after the loop
            run.toml:40:9: process[0].step[1].times: 0 is out of range; a whole number from 1 to 9223372036854775807 is allowed
            run.toml:41:9: process[0].step[1].until: steps are repeated so many "times" or "until" a time, not both
            run.toml:37:1: process[0].step[1]: a repeating step says how long: "times" or "until" (since the process's start) is missing
        "#]],
    );
}

#[test]
fn files_that_are_not_there_or_not_text() {
    let folder = Folder::new();
    let e = read_machine(&folder.join("none.toml")).expect_err("it is not there");
    assert!(e.to_string().ends_with("none.toml: cannot be read"), "{e}");
    assert!(std::error::Error::source(&e).is_some());
    let binary = folder.write("binary.toml", b"name = \"x\"\nabout = \"\xff\"");
    let e = read_machine(&binary).expect_err("it is not text");
    assert!(e.to_string().contains("binary.toml:2:10: not UTF-8 text"), "{e}");
}

#[test]
fn writing_replaces_all_or_nothing() {
    let folder = Folder::new();
    let path = folder.join("this.toml");
    let good = parse_machine("box.toml", MACHINE).expect("it is good");
    write_machine_file(&path, &good).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(read_machine(&path).unwrap_or_else(|e| panic!("{e}")), good);

    let mut bad = good.clone();
    bad.distances[0][0] = 11;
    let e = write_machine_file(&path, &bad).expect_err("it is impossible");
    assert!(e.to_string().contains("not written"), "{e}");
    assert_eq!(read_machine(&path).unwrap_or_else(|e| panic!("{e}")), good);
    assert!(write_machine_file(&folder.join("no/this.toml"), &good).is_err());
    let left = folder.read_dir().expect("it is there").count();
    assert_eq!(left, 1, "nothing is left beside it");
}

#[test]
fn deep_nesting_is_refused_without_a_crash() {
    for (open, close) in [("[", "]"), ("{a=", "}")] {
        let text = format!("a = {}{}", open.repeat(100_000), close.repeat(100_000));
        assert!(parse_machine("deep.toml", &text).is_err());
    }
    let dotted = vec!["a"; 100_000].join(".");
    for text in [format!("{dotted} = 1"), format!("[{dotted}]"), format!("[[{dotted}]]")] {
        let e = parse_machine("deep.toml", &text).expect_err("it is too deep");
        assert!(e.to_string().len() < 1000, "{}", e.to_string().len());
    }
}

/// Specs: specs/sched-groups.md#scenario.
#[test]
fn impossible_groups() {
    changed_scenarios(
        GROUPS,
        &[
            &[("parent = \"guests\"", "parent = \"gests\"")],
            &[("name = \"guests\"", "name = \"guests\"\nparent = \"one\"")],
            &[("name = \"batch\"", "name = \"batch\"\nparent = \"batch\"")],
            &[("name = \"batch\"", "name = \"one\"")],
            &[("name = \"batch\"", "name = \"a/b\"")],
            &[("cpu.weight = 300", "cpu.weight = 0")],
            &[("cpu.weight = 300", "cpu.weight = 10001")],
            &[("cpu.idle = true", "cpu.idle = 2")],
            &[("cpu.idle = true", "cpu.idle = true\ncpu.weight = 100")],
            &[("cpu.idle", "cpu.shares")],
            &[("50000 100000", "999 100000")],
            &[("50000 100000", "50000 2000000")],
            &[("50000 100000", "half")],
            &[("\"50000 100000\"", "\"50000 100000\"\ncpu.\"max.burst\" = 50001")],
            &[("\"50000 100000\"", "\"50000 100000\"\ncpu.\"max.burst\" = -1")],
            &[("\"50000 100000\"", "\"50000 100000\"\ncpu.\"max.burst\" = \"20ms\"")],
            &[("\"0-2\"", "\"0-4\"")],
            &[("\"0-2\"", "\"0\""), ("cpus = \"0-1\"", "cpus = \"0\"")],
            &[("group = \"one\"", "group = \"on\"")],
            &[("cpus = \"2-3\"", "cpus = \"3\"")],
            &[("cpus = \"1\"", "cpus = \"0\"")],
            &[("cpus = \"0-1\"", "cpus = \"0-3\"")],
        ],
        expect![[r#"
            run.toml:17:10: group[2].parent: the scenario has no group "gests"; did you mean "guests"?
            run.toml:7:10: group[0].parent: the group is in itself: guests in one in guests
            run.toml:13:10: group[1].parent: the group is in itself: batch in batch
            run.toml:16:8: group[2].name: the group "one" stands twice; names are unique
            run.toml:12:8: group[1].name: "a/b" is no name of a group: it is a folder in /sys/fs/cgroup, not empty, without a slash, a dot at its beginning, or the letters "cpu", with which files begin
            run.toml:7:14: group[0].cpu.weight: 0 is out of range; a whole number from 1 to 10000 is allowed
            run.toml:7:14: group[0].cpu.weight: 10001 is out of range; a whole number from 1 to 10000 is allowed
            run.toml:13:12: group[1].cpu.idle: 2 is out of range; a whole number from 0 to 1 is allowed
            run.toml:14:14: group[1].cpu.weight: a group that is idle weighs 3, whatever is said here (EINVAL)
            run.toml:13:5: group[1].cpu.shares: unknown key; allowed are weight, max, max.burst, idle
            run.toml:8:11: group[0].cpu.max: "999 100000" is refused (EINVAL); write "max", or a quota and a period in µs such as "50000 100000": the quota at least 1000, the period 1000 to 1000000
            run.toml:8:11: group[0].cpu.max: "50000 2000000" is refused (EINVAL); write "max", or a quota and a period in µs such as "50000 100000": the quota at least 1000, the period 1000 to 1000000
            run.toml:8:11: group[0].cpu.max: "half" is refused (EINVAL); write "max", or a quota and a period in µs such as "50000 100000": the quota at least 1000, the period 1000 to 1000000
            run.toml:9:19: group[0].cpu.max.burst: 50001 is refused (EINVAL); it is µs, and at most the quota, of which "50000 100000" gives 50000
            run.toml:9:19: group[0].cpu.max.burst: -1 is negative; a whole number from 0 to 18446744073709551 is allowed
            run.toml:9:19: group[0].cpu.max.burst: expected a whole number, found a text
            run.toml:9:15: group[0].cpuset.cpus: CPU 4 is not in the machine; the machine "box" has CPUs 0-3
            run.toml:18:15: group[2].cpuset.cpus: none of these CPUs is allowed by the group "guests" that it is in
            run.toml:22:9: process[0].group: the scenario has no group "on"; did you mean "one"?
            run.toml:24:8: process[0].cpus: the group "one" allows CPUs 1-2 only (EINVAL)
            run.toml:32:8: process[0].step[1].cpus: the group "one" allows CPUs 1-2 only (EINVAL)
            run.toml:37:8: process[1].cpus: the group "guests" allows CPUs 0-2 only (EINVAL)
        "#]],
    );
}

#[test]
fn impossible_tasks() {
    changed_scenarios(
        TASKS,
        &[
            &[("nice = -5", "nice = -21")],
            &[("nice = -5", "nice = 1.5")],
            &[("\"batch\"", "\"fifo\"")],
            &[("nice = -5", "sched_runtime = \"99us\"")],
            &[("nice = -5", "sched_runtime = \"101ms\"")],
            &[("nice = -5", "sched_runtime = 3")],
            &[("nice = -5", "slice = \"3ms\"")],
            &[("threads = 2", "threads = 0")],
            &[("copies = 2", "copies = 30000")],
            &[("threads = 2\ncopies = 2\ncpus = \"0-2\"", "copies = 2")],
            &[("cpus = \"1\"", "cpus = \"4\"")],
            &[("interrupts = 3", "interrupts = 7")],
            &[("group = 2", "group = 3")],
            &[("count = 4", "count = 0")],
            &[("kind = \"pipe\"", "kind = \"fifo\"")],
            &[("name = \"word\"", "name = \"ping\"")],
            &[("do = \"read\"\nchannel = \"ping\"\nfrom = 3", "do = \"yield\"")],
            &[("do = \"futex_wake\"\nchannel = \"word\"", "do = \"yield\"")],
            &[("from = 3", "from = 4")],
            &[("from = 3", "from = \"all\"")],
            &[("do = \"read\"\nchannel = \"ping\"", "do = \"read\"\nchannel = \"word\"")],
            &[("do = \"read\"\nchannel = \"ping\"", "do = \"read\"\nchannel = \"pong\"")],
            &[("device = \"disk\"", "device = \"tape\"")],
            &[("bytes = 100", "bytes = 0")],
            &[("jitter = 100", "jitter = 1001")],
            &[("time = \"20us\"", "time = \"0us\"")],
            &[("time = \"20us\"", "time = [\"20us\", \"0us\"]")],
            &[("time = \"20us\"", "time = []")],
            &[("worker = \"10us\"", "high = true")],
            &[("time = \"150us\"", "time = \"150us\"\ncommands = [\"write\"]")],
            &[("time = \"150us\"", "commands = [\"write\", \"trim\"]")],
            &[("time = \"150us\"", "commands = []")],
            &[("time = \"150us\"", "gathers = true")],
            &[("interrupts = 3", "interrupts = \"anywhere\"")],
        ],
        expect![[r#"
            run.toml:25:8: process[0].nice: -21 is out of range; a whole number from -20 to 19 is allowed
            run.toml:25:8: process[0].nice: 1.5 is no whole number; a whole number from -20 to 19 is allowed
            run.toml:26:16: process[0].sched_policy: "fifo" is not known; allowed are normal, batch, idle
            run.toml:25:17: process[0].sched_runtime: a slice is a whole number of ns from 100 µs to 100 ms; kernels cut others to that
            run.toml:25:17: process[0].sched_runtime: a slice is a whole number of ns from 100 µs to 100 ms; kernels cut others to that
            run.toml:25:17: process[0].sched_runtime: expected a time with its unit, such as "10us" or "1s", found a number
            run.toml:25:1: process[0].slice: unknown key; allowed are name, cpus, threads, vcpus, copies, nice, sched_policy, sched_runtime, group, start, exits, policy, memory_merge, map, step
            run.toml:22:11: process[0].threads: 0 is out of range; a whole number from 1 to 32768 is allowed
            run.toml:23:10: process[0].copies: 30000 copies of 2 threads are more than 32768 tasks
            run.toml:20:1: process[0]: the key "cpus" or "threads" is missing: "threads" says how many run, on whatever CPU they get; "cpus" alone names the one of each
            run.toml:50:8: process[0].step[4].cpus: CPU 4 is not in the machine; the machine "box" has CPUs 0-3
            run.toml:18:14: device[0].interrupts: CPU 7 is not in the machine; the machine "box" has CPUs 0-3
            run.toml:9:9: channel[0].group: 4 channels don't fall into groups of 3
            run.toml:8:9: channel[0].count: 0 is out of range; a whole number from 1 to 1000000 is allowed
            run.toml:7:8: channel[0].kind: "fifo" is not known; allowed are pipe, socket, tcp, udp, futex, mutex
            run.toml:12:8: channel[1].name: the channel "ping" stands twice; names are unique
            run.toml:5:1: channel[0]: nobody reads from the pipe "ping"
            run.toml:11:1: channel[1]: nobody wakes the futex "word"
            run.toml:58:11: process[1].step[0].channel: there is no number 4 of "ping"; its numbers end at 3
            run.toml:59:8: process[1].step[0].from: "all" is not known; allowed are own, group
            run.toml:58:11: process[1].step[0].channel: "word" is a futex; this step is about a pipe or a socket or a tcp or a udp
            run.toml:58:11: process[1].step[0].channel: the scenario has no channel "pong"; did you mean "ping"?
            run.toml:41:10: process[0].step[2].device: the scenario has no device "tape"; allowed are disk
            run.toml:37:9: process[0].step[1].bytes: 0 is out of range; a whole number from 1 to 65536 is allowed
            run.toml:31:10: process[0].step[0].jitter: 1001 is out of range; a whole number from 0 to 1000 is allowed, in thousandths
            run.toml:30:8: process[0].step[0].time: 0 is no span of time; write one such as "1s"
            run.toml:30:17: process[0].step[0].time[1]: 0 is no span of time; write one such as "1s"
            run.toml:30:8: process[0].step[0].time: empty; it computes as long as the next of these each time
            run.toml:42:8: process[0].step[2].high: only a "worker" has priority; here the interrupt wakes the task
            run.toml:18:12: device[0].commands: a device takes a "time", or as long as "commands" of the machine's disk, not both
            run.toml:17:22: device[0].commands[1]: "trim" is not known; allowed are write, flush
            run.toml:17:12: device[0].commands: empty; a request is one command or several
            run.toml:15:1: device[0]: a device says how long it takes: "time", or "commands" of the machine's disk
            run.toml:18:14: device[0].interrupts: "anywhere" is not known; allowed are submitter
        "#]],
    );
}

#[test]
fn programs_that_others_run() {
    const GOOD: &str = "name = \"b\"\nabout = \"c\"\nmachine = \"box.toml\"\n[[process]]\nname = \"make\"\nthreads = 1\n[[process.step]]\ndo = \"spawn\"\nprograms = [\"cc\"]\nat_most = 2\n[[process]]\nname = \"cc\"\nthreads = 1\nstart = \"spawn\"\n[[process.step]]\ndo = \"compute\"\ntime = \"1ms\"\n";
    let machine = parse_machine("box.toml", MACHINE).expect("it is good");
    let good = parse_scenario("run.toml", GOOD).expect("it is good");
    good.check(&machine).expect("it fits");
    changed_scenarios(
        GOOD,
        &[
            &[("[\"cc\"]", "[\"dd\"]")],
            &[("[\"cc\"]", "[]")],
            &[("[\"cc\"]", "[\"make\"]")],
            &[("at_most = 2\n", "")],
            &[("at_most = 2", "at_most = 0")],
            &[("start = \"spawn\"\n", "")],
            &[("start = \"spawn\"", "start = \"spwan\"")],
            &[("threads = 1\nstart", "threads = 1\ncopies = 2\nstart")],
            &[("do = \"spawn\"\nprograms = [\"cc\"]\nat_most = 2", "do = \"wait\"")],
            &[(
                "do = \"compute\"\ntime = \"1ms\"",
                "do = \"spawn\"\nprograms = [\"cc\"]\nat_most = 1",
            )],
        ],
        expect![[r#"
            run.toml:7:1: process[0].step[0]: there is no process "dd" to run
            run.toml:9:12: process[0].step[0].programs: it runs one of these; name at least one
            run.toml:7:1: process[0].step[0]: "make" starts by itself; give it start = "spawn"
            run.toml:7:1: process[0].step[0]: the key "at_most" is missing
            run.toml:10:11: process[0].step[0].at_most: 0 is out of range; a whole number from 1 to 32768 is allowed
            run.toml:7:1: process[0].step[0]: "cc" starts by itself; give it start = "spawn"
            run.toml:14:9: process[1].start: "spwan" is no time; write it with ps, ns, us, ms or s, such as "10us"
            run.toml:15:9: process[1].start: who is run by others has one thread, no copies, and the CPUs of who runs it: threads = 1
            run.toml:12:9: process[1].start: no step runs "cc", which doesn't start by itself
            run.toml:15:1: process[1].step[0]: "cc" stands before it; a program runs only later ones
        "#]],
    );
}
