//! The command as its users meet it: arguments and files in, text and exit code out.
//!
//! A case is one command line; `check` runs it in a folder of its own, with `DIR` for
//! that folder in what it prints.

#[path = "support/recording.rs"]
mod recording;

use expect_test::{Expect, expect};
use homenode_fixtures::{Folder, until};
use homenode_trace::{Header, Kind, Native, Row, Slice, Task, Writer};
use recording::{PAGES, recording};
use std::fs;
use std::process::{Command, Output};

/// A folder in which commands are run.
struct Here(Folder);

impl Here {
    fn new() -> Self {
        Self(Folder::new())
    }
    fn write(&self, name: &str, text: &str) {
        self.0.write(name, text);
    }
    fn run(&self, line: &str) -> Output {
        let args = line.split_whitespace().map(|w| w.replace("MACHINES", &repository("machines")));
        Command::new(env!("CARGO_BIN_EXE_homenode"))
            .args(args.map(|w| w.replace("SCENARIOS", &repository("scenarios"))))
            .current_dir(&*self.0)
            .env("LC_ALL", "C.UTF-8")
            .output()
            .expect("the command runs")
    }
    /// Exit code and everything that it prints.
    fn check(&self, line: &str, expected: Expect) {
        let out = self.run(line);
        let text = format!(
            "exit {}\n{}{}",
            out.status.code().expect("no signal"),
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
        let text = text
            .replace(&repository("machines"), "MACHINES")
            .replace(&repository("scenarios"), "SCENARIOS")
            .replace(&self.0.display().to_string(), "DIR");
        expected.assert_eq(&text);
    }
    fn json(&self, line: &str) -> serde_json::Value {
        let out = self.run(line);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).expect("one JSON object")
    }
}

fn repository(folder: &str) -> String {
    format!("{}/../../{folder}", env!("CARGO_MANIFEST_DIR"))
}

fn with_recording() -> Here {
    let f = Here::new();
    recording(&f.0.join("toy.parquet"), |_| {});
    f
}

// ── Bad input ──────────────────────────────────────────────────────────────────

#[test]
fn files_that_are_not_there() {
    let f = Here::new();
    f.check(
        "sim nowhere.toml",
        expect![[r#"
        exit 2
        homenode: nowhere.toml: cannot be read: No such file or directory (os error 2)
    "#]],
    );
    f.check(
        "sim SCENARIOS/zipf.toml --machine nowhere.toml",
        expect![[r#"
        exit 2
        homenode: nowhere.toml: cannot be read: No such file or directory (os error 2)
    "#]],
    );
    f.check("replay nowhere.parquet --machine MACHINES/small.toml", expect![[r#"
        exit 2
        homenode: can't replay nowhere.parquet: cannot open the recording nowhere.parquet: No such file or directory (os error 2)
    "#]]);
    f.check(
        "replay nowhere.parquet --machine nowhere.toml",
        expect![[r#"
        exit 2
        homenode: nowhere.toml: cannot be read: No such file or directory (os error 2)
    "#]],
    );
    f.check(
        "topo --machine nowhere.toml",
        expect![[r#"
        exit 2
        homenode: nowhere.toml: cannot be read: No such file or directory (os error 2)
    "#]],
    );
    f.check("measure -o nowhere/this.toml", expect![[r#"
        exit 2
        homenode: nowhere/this.toml: its folder nowhere can't be used: No such file or directory (os error 2)
    "#]]);
    f.check(
        "measure -o .",
        expect![[r#"
        exit 2
        homenode: .: this is a folder; -o names the file to write
    "#]],
    );
    f.check("record mem -o nowhere/a.parquet -- true", expect![[r#"
        exit 2
        homenode: nowhere/a.parquet: its folder nowhere can't be used: No such file or directory (os error 2)
    "#]]);
    f.check(
        "record mem -o a.parquet --machine nowhere.toml -- true",
        expect![[r#"
        exit 2
        homenode: nowhere.toml: cannot be read: No such file or directory (os error 2)
    "#]],
    );
}

#[test]
fn files_that_are_something_else() {
    let f = with_recording();
    let good = fs::read(f.0.join("toy.parquet")).expect("the recording");
    fs::write(f.0.join("cut.parquet"), &good[..good.len() / 2]).expect("a file");
    f.check("replay cut.parquet --machine MACHINES/small.toml", expect![[r#"
        exit 2
        homenode: can't replay cut.parquet: cut.parquet is not a whole recording: Parquet error: Invalid Parquet file. Corrupt footer; record it again
    "#]]);
    // In the rows, which begin after the first four bytes.
    let mut flipped = good.clone();
    flipped[good.len() / 3] ^= 0x55;
    fs::write(f.0.join("flipped.parquet"), &flipped).expect("a file");
    let out = f.run("replay flipped.parquet --machine MACHINES/small.toml");
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("flipped.parquet is damaged in row group"), "{said}");
    assert!(out.stdout.is_empty());
    f.write("text.parquet", "not a recording\n");
    f.check("replay text.parquet --machine MACHINES/small.toml", expect![[r#"
        exit 2
        homenode: can't replay text.parquet: text.parquet is not a whole recording: Parquet error: Invalid Parquet file. Corrupt footer; record it again
    "#]]);
    f.check(
        "replay MACHINES/small.toml --machine toy.parquet",
        expect![[r#"
        exit 2
        homenode: toy.parquet:1:37: not UTF-8 text; machines and scenarios are TOML files
    "#]],
    );
    f.check("sim MACHINES/small.toml", expect![[r#"
        exit 2
        homenode: MACHINES/small.toml:4:1: defaults: unknown key; allowed are name, about, machine, stands_for, kernel, duration, seed, knobs, ksm, model, process, guest, at, channel, device, group, command_line
    "#]]);
}

#[test]
fn machines_and_scenarios_that_are_wrong() {
    let f = with_recording();
    let small = fs::read_to_string(repository("machines") + "/small.toml").expect("a machine");
    f.write("distance.toml", &small.replace("[10],", "[11],"));
    f.check("topo --machine distance.toml", expect![[r#"
        exit 2
        homenode: distance.toml:6:6: distances[0][0]: distance 11 from node 0 to node 0: the distance of a node to itself is 10
    "#]]);
    f.write("negative.toml", &small.replacen("value = 90,", "value = -90,", 1));
    f.check("replay toy.parquet --machine negative.toml", expect![[r#"
        exit 2
        homenode: negative.toml:47:26: link[0].read_latency.value: -90 is negative; allowed are 0.001 to 1000000 ns
    "#]]);
    f.write("key.toml", &small.replacen("medium =", "mediun =", 1));
    f.check(
        "replay toy.parquet --machine key.toml",
        expect![[r#"
        exit 2
        homenode: key.toml:11:1: node[0].mediun: unknown key; did you mean "medium"?
    "#]],
    );
    let zipf = fs::read_to_string(repository("scenarios") + "/zipf.toml").expect("a scenario");
    let zipf = zipf.replace("../machines", &repository("machines"));
    f.write("cpu.toml", &zipf.replace("cpus = \"0-1\"", "cpus = \"0-9\""));
    f.check("sim cpu.toml", expect![[r#"
        exit 2
        homenode: cpu.toml:14:8: process[0].cpus: CPU 4 is not in the machine; the machine "small-cxl" has CPUs 0-3
    "#]]);
    f.write("knob.toml", &zipf.replace("numa_balancing = 2", "numa_balancing = 7"));
    f.check("sim knob.toml", expect![[r#"
        exit 2
        homenode: knob.toml: knobs.numa_balancing: knob numa_balancing: "7" is refused (EINVAL); allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)
    "#]]);
}

#[test]
fn knobs_that_no_kernel_takes() {
    let f = with_recording();
    f.check("sim SCENARIOS/zipf.toml --set numa_balancing=9", expect![[r#"
        exit 2
        homenode: --set numa_balancing=9: knob numa_balancing: "9" is refused (EINVAL); allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)
    "#]]);
    f.check("sim SCENARIOS/zipf.toml --set numa_balance=1", expect![[r#"
        exit 2
        homenode: --set numa_balance=1: Linux 6.12 has no knob "numa_balance"; did you mean "numa_balancing"?
    "#]]);
    f.check("sim SCENARIOS/zipf.toml --set numa_balancing", expect![[r#"
        exit 2
        error: invalid value 'numa_balancing' for '--set <KNOB=VALUE>': write knob=value, such as numa_balancing=2; knobs are numa_balancing, scan_delay_ms, scan_period_min_ms, scan_period_max_ms, scan_size_mb, hot_threshold_ms, numa_balancing_promote_rate_limit_MBps, demotion_enabled, min_free_kbytes, watermark_scale_factor, swappiness, transparent_hugepage, transparent_hugepage_defrag, khugepaged_defrag, khugepaged_pages_to_scan, khugepaged_scan_sleep_millisecs, khugepaged_alloc_sleep_millisecs, khugepaged_max_ptes_none, khugepaged_max_ptes_swap, khugepaged_max_ptes_shared, lru_gen, lru_gen_min_ttl_ms, sched_schedstats, base_slice_ns, migration_cost_ns, nr_migrate, weighted_interleave/nodeN

        For more information, try '--help'.
    "#]]);
    f.check("sim SCENARIOS/zipf.toml --set scan_size_mb=0", expect![[r#"
        exit 2
        homenode: --set scan_size_mb=0: knob scan_size_mb: "0" is refused (EINVAL); allowed are 1 to 4294967295 MB; 0 makes the kernel divide by zero
    "#]]);
    f.check("replay toy.parquet --machine MACHINES/small.toml --set swappiness=500", expect![[r#"
        exit 2
        homenode: --set swappiness=500: knob swappiness: "500" is refused (EINVAL); allowed are 0 to 200
    "#]]);
    f.check("replay toy.parquet --machine MACHINES/small.toml --set vm.frob=1", expect![[r#"
        exit 2
        homenode: --set vm.frob=1: Linux 6.12 has no knob "vm.frob"; allowed are numa_balancing, scan_delay_ms, scan_period_min_ms, scan_period_max_ms, scan_size_mb, hot_threshold_ms, numa_balancing_promote_rate_limit_MBps, demotion_enabled, min_free_kbytes, watermark_scale_factor, swappiness, transparent_hugepage, transparent_hugepage_defrag, khugepaged_defrag, khugepaged_pages_to_scan, khugepaged_scan_sleep_millisecs, khugepaged_alloc_sleep_millisecs, khugepaged_max_ptes_none, khugepaged_max_ptes_swap, khugepaged_max_ptes_shared, lru_gen, lru_gen_min_ttl_ms, sched_schedstats, base_slice_ns, migration_cost_ns, nr_migrate, weighted_interleave/nodeN
    "#]]);
    f.check(
        "replay toy.parquet --machine MACHINES/small.toml --set kernel.numa_balancing=1",
        expect![[r#"
            exit 2
            homenode: --set kernel.numa_balancing=1: the table's columns set this knob; --columns says which there are
        "#]],
    );
}

#[test]
fn arguments_that_make_no_sense() {
    let f = with_recording();
    f.check(
        "sim SCENARIOS/zipf.toml --seeds 0",
        expect![[r#"
        exit 2
        error: invalid value '0' for '--seeds <N>': number would be zero for non-zero type

        For more information, try '--help'.
    "#]],
    );
    f.check("replay toy.parquet --machine MACHINES/small.toml --add-node dimm:half", expect![[r#"
        exit 2
        error: invalid value 'dimm:half' for '--add-node <PART:SIZE>': "dimm:half" adds no node: no part is named "dimm"; there are cxl and pmem; write PART:SIZE such as cxl:half, cxl:16GiB or pmem:64GiB

        For more information, try '--help'.
    "#]]);
    f.check("replay toy.parquet --machine MACHINES/small.toml --add-node cxl", expect![[r#"
        exit 2
        error: invalid value 'cxl' for '--add-node <PART:SIZE>': "cxl" adds no node: the size is missing; write PART:SIZE such as cxl:half, cxl:16GiB or pmem:64GiB

        For more information, try '--help'.
    "#]]);
    f.check("replay toy.parquet --machine MACHINES/small.toml --for 10", expect![[r#"
        exit 2
        error: invalid value '10' for '--for <TIME>': "10" is no time; write it with ps, ns, us, ms or s, such as "10us"

        For more information, try '--help'.
    "#]]);
    f.check(
        "replay toy.parquet --machine MACHINES/small.toml --columns off,5",
        expect![[r#"
            exit 2
            homenode: --columns 5: there is no contender "5"; allowed are scenario, off, mode1, mode2, mode3, interleave, homenode, tpp, alto, hemem, colloid, arms, memtis, hybridtier, damos; there are
              scenario    the knobs that the scenario sets, or the kernel's defaults
              off         numa_balancing 0: memory stays where it was first put
              mode1       numa_balancing 1: between sockets
              mode2       numa_balancing 2: between tiers, with demotion
              mode3       numa_balancing 3: both, with demotion
              interleave  weighted interleaving by bandwidth, numa_balancing 0
              homenode    homenode's engine, which pays for itself
              tpp         TPP as published: mode 2, but pages of the active lists go up, and kswapd keeps a fiftieth of a fast node free
              alto        TPP behind Alto's gate as published: fewer pages go up the less a load is waited for
              hemem       HeMem as published: 2 MiB pages of eight samples up, against the longest cold
              colloid     Colloid as published, on HeMem's counts: as much up as makes both tiers answer alike
              arms        ARMS as published: the hottest 2 MiB pages that fit, where a pair of moves pays
              memtis      MEMTIS as published: pages up from the heat at which as much as fits is hot, skewed huge ones split
              hybridtier  HybridTier as published: base pages up that are sampled often, or often lately
              damos       DAMOS as the kernel's samples set it up: hot regions up, cold ones down, by quotas with goals
        "#]],
    );
    f.check(
        "replay toy.parquet --machine MACHINES/small.toml --columns off,off",
        expect![[r#"
            exit 2
            homenode: --columns names off twice
        "#]],
    );
    f.check("replay toy.parquet --machine MACHINES/small.toml --mlp 1,0", expect![[r#"
        exit 2
        error: invalid value '0' for '--mlp <LIST>': "0" is no number of misses under way; 1 to 64 or measured is allowed

        For more information, try '--help'.
    "#]]);
    f.check(
        "replay toy.parquet --machine MACHINES/small.toml --mlp 1,8,1",
        expect![[r#"
        exit 2
        homenode: --mlp names 1 twice
    "#]],
    );
    f.check("replay toy.parquet --machine MACHINES/small.toml --mlp 1", expect![[r#"
        exit 2
        homenode: --mlp 1: the machine "small" does not say how many instructions a core holds (reorder_window); measure it anew
    "#]]);
    f.check("replay toy.parquet --machine MACHINES/small.toml --columns interleave", expect![[r#"
        exit 2
        homenode: reading the recording
        homenode: one round on the unmodified machine
        homenode: the machine "small" has one memory node, and nothing to interleave between; add one with --add-node, or leave interleave out of --columns
    "#]]);
    f.check("replay toy.parquet --machine MACHINES/small.toml --dram 1TiB", expect![[r#"
        exit 2
        homenode: reading the recording
        homenode: one round on the unmodified machine
        homenode: --dram: DRAM of 1099511627776 bytes: the machine "small" has 268435456 bytes of it, in 1 DRAM node, each of which keeps at least one page
    "#]]);
    f.check(
        "replay toy.parquet --machine MACHINES/small.toml --columns off --add-node cxl:4MiB --dram 4MiB --for 1s",
        expect![[r#"
            exit 2
            homenode: reading the recording
            homenode: one round on the unmodified machine
            homenode: replaying: off
            homenode: column off: the machine "small+cxl" killed the program in round 1: out of memory; a larger machine or --add-node with a size gives it room
        "#]],
    );
    f.check(
        "record mem -o a.parquet",
        expect![[r#"
        exit 2
        error: the following required arguments were not provided:
          <CMD>...

        Usage: homenode record mem --output <FILE> -- <CMD>...

        For more information, try '--help'.
    "#]],
    );
    f.check("record mem -o a.parquet --skip 3parsecs -- true", expect![[r#"
        exit 2
        error: invalid value '3parsecs' for '--skip <MARK>': write instructions such as 500M or 2G, or native CPU time such as 10s or 250ms

        For more information, try '--help'.
    "#]]);
}

#[test]
fn programs_that_cannot_be_recorded() {
    let f = Here::new();
    f.write("a.parquet", "kept\n");
    f.write("plain.txt", "no program\n");
    f.check(
        "record mem -o a.parquet --machine MACHINES/small.toml -- no-such-program",
        expect![[r#"
            exit 2
            homenode: there is no program `no-such-program` in PATH
        "#]],
    );
    f.check(
        "record mem -o a.parquet --machine MACHINES/small.toml -- ./plain.txt",
        expect![[r#"
        exit 2
        homenode: ./plain.txt is not executable; `chmod +x` makes it so
    "#]],
    );
    assert_eq!(fs::read_to_string(f.0.join("a.parquet")).expect("still there"), "kept\n");
    assert_eq!(fs::read_dir(&f.0).expect("a folder").count(), 2, "nothing half-written is left");
}

#[test]
fn a_system_that_lacks_something() {
    let f = Here::new();
    f.write("a.parquet", "kept\n");
    let out = Command::new(env!("CARGO_BIN_EXE_homenode"))
        .args(["record", "mem", "-o", "a.parquet", "--machine"])
        .arg(repository("machines") + "/small.toml")
        .args(["--", "/bin/true"])
        .current_dir(&f.0)
        .env("PATH", &*f.0)
        .output()
        .expect("the command runs");
    assert_eq!(out.status.code(), Some(3));
    expect![[r#"
        homenode: qemu-x86_64 is not in PATH; install it with `apt install qemu-user`
    "#]]
    .assert_eq(&String::from_utf8_lossy(&out.stderr));
    assert_eq!(fs::read_to_string(f.0.join("a.parquet")).expect("still there"), "kept\n");
}

// ── What it is for ─────────────────────────────────────────────────────────────

#[test]
fn a_scenario_is_the_same_whatever_the_jobs() {
    let f = Here::new();
    let one = f.run("sim SCENARIOS/fork-cow.toml --seeds 3 --json --jobs 1");
    let many = f.run("sim SCENARIOS/fork-cow.toml --seeds 3 --json --jobs 3");
    assert!(one.status.success() && !one.stdout.is_empty());
    assert_eq!(one.stdout, many.stdout);
    let json = f.json("sim SCENARIOS/fork-cow.toml --seeds 3 --json");
    let runs = json["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 3);
    assert_ne!(runs[0]["hash"], runs[1]["hash"], "seeds differ");
    f.check(
        "sim SCENARIOS/fork-cow.toml",
        expect![[r#"
            exit 0
                                                              fork
                                                               cow
            time [s]                             0.0724 (   0.00%)
            accesses [M/s]                        5.807 (   0.00%)
            accesses in node 0 (dram) [%]        100.00 (   0.00%)
            pages promoted                            0
            pages demoted                             0
            moved [MB]                              0.0
            spent on moving [MB/s]                  0.0
            vmstat
            numa_hit                              34689
            numa_local                            34689
            pgalloc                               34689
            pgfree                                34689
            pgfault                               48358

            machine: small: one node of 256 MiB and four CPUs; small enough for tests
            workload: fork-cow: a parent of 64 MiB forks, and both write what they share
            kernel: Linux 6.12's rules; MGLRU, not active and inactive lists
            scaled down: memory and time 1:64
            seed: 1
            note: stands for a node of 16 GiB (dram)
            note: knobs at 1:64: min_free_kbytes=352, scan_size_mb=10, scan_delay_ms=15, scan_period_min_ms=15,
              scan_period_max_ms=937, hot_threshold_ms=15
            note: knobs: transparent_hugepage=madvise, numa_balancing=0
            hash of seed 1: 39aa7d8ec7e12621
        "#]],
    );
}

#[test]
fn a_scenario_beside_itself_in_each_mode() {
    let f = Here::new();
    let scenario = format!("{}/tiering-gauss.toml", repository("scenarios"));
    let text = fs::read_to_string(scenario).expect("a scenario");
    let text = text.replace("../machines", &repository("machines"));
    f.write("short.toml", &text.replace("time = \"12s\"", "time = \"3s\""));
    let json = f.json("sim short.toml --columns off,2 --set scan_delay_ms=100 --json");
    assert_eq!(json["table"]["columns"], serde_json::json!(["off", "mode-2"]));
    let notes = json["caption"]["notes"].to_string();
    for note in [
        "knobs, off: transparent_hugepage=madvise, demotion_enabled=true, numa_balancing=0, scan_delay_ms=100",
        "knobs, mode 2: transparent_hugepage=madvise, numa_balancing=2, demotion_enabled=true, scan_delay_ms=100",
    ] {
        assert!(notes.contains(note), "{note} in {notes}");
    }
    // The column is the scenario with that mode set by hand.
    let by_hand = f.json("sim short.toml --set numa_balancing=0 --set scan_delay_ms=100 --json");
    assert_eq!(json["runs"][0]["hash"], by_hand["runs"][0]["hash"]);
    assert_ne!(json["runs"][0]["hash"], json["runs"][1]["hash"]);

    f.check("sim short.toml --columns off,2 --set numa_balancing=1", expect![[r#"
        exit 2
        homenode: --set numa_balancing=1: the table's columns set this knob; --columns says which there are
    "#]]);
    f.check(
        "sim short.toml --columns off,2,off",
        expect![[r#"
        exit 2
        homenode: --columns names off twice
    "#]],
    );
    let out = f.run("sim short.toml --columns off,homenode:none");
    assert_eq!(out.status.code(), Some(2), "there is no such source");
}

/// Guests on two nodes, and what `--set` makes of their merging.
fn with_guests(f: &Here) {
    let text = r#"
name = "pair"
about = "a test's"
machine = "MACHINES/small-two-sockets.toml"
duration = "2s"

[ksm]
pages_to_scan = 1000
run = 1

[[process]]
name = "shm"
cpus = "1"

[[process.map]]
name = "shared"
size = "64 KiB"
shared = true
mergeable = true

[[process.step]]
do = "touch"
map = "shared"

[[guest]]
name = "vm"
count = 2
cpus = ["0", "2"]
node = [0, 1]
memory = "4 MiB"
huge = false
image = { name = "debian", share = 500 }
do = "benchmark"
settle = "1s"
rounds = 3
time = "2s"

[[at]]
time = "1500ms"
read = "/proc/{vm-1}/ksm_merging_pages"

[[at]]
time = "1900ms"
write = "/sys/kernel/mm/ksm/run"
value = 2
"#;
    f.write("pair.toml", &text.replace("MACHINES", &repository("machines")));
}

#[test]
fn guests_are_merged_and_files_say_so() {
    let f = Here::new();
    with_guests(&f);
    f.check(
        "sim pair.toml",
        expect![[r#"
            exit 0
                                                                    pair
            time [s]                                   2.0000 (   0.00%)
            accesses [M/s]                              0.004 (   0.00%)
            accesses in node 0 (dram) [%]               31.38 (   0.00%)
            accesses in node 1 (dram) [%]               68.62
            pages promoted                                  0
            pages demoted                                   0
            moved [MB]                                    0.0
            spent on moving [MB/s]                        0.0
            processes
            shm: time [s]                              0.0000 (   0.00%)
            shm: accesses in node 0 (dram) [%]         100.00
            vm-0: time [s]                             2.0000 (   0.00%)
            vm-0: accesses in node 0 (dram) [%]         62.50
            vm-0: accesses [1/s]                      8251891 (   0.00%)
            vm-1: time [s]                             2.0000 (   0.00%)
            vm-1: accesses in node 0 (dram) [%]          0.00
            vm-1: accesses [1/s]                     10991856 (   0.00%)
            merge
            saved [MiB]                                   0.0 (   0.00%)
            pages_scanned                               53248
            pages_skipped                               32768
            checksums                                   12288 (   0.00%)
            comparisons                                179327 (   0.00%)
            comparisons in a stable search               8.23 (   0.00%)
            comparisons in an unstable search            8.82 (   0.00%)
            ksmd: processor time [s]                 0.078046 (   0.00%)
            ksmd: read [MiB]                             77.8 (   0.00%)
            vmstat
            numa_hit                                     3088
            numa_local                                   2576
            numa_other                                    512
            pgalloc                                      3088
            pgfree                                       1040
            pgfault                                      2064
            cow_ksm                                      1024

            machine: small-two-sockets: two nodes of 256 MiB with two CPUs each; small enough for tests
            workload: pair: a test's
            kernel: Linux 6.12's rules; MGLRU, not active and inactive lists
            seed: 1
            note: the kernel keeps 8.7 % of node 1 free, as on any machine so small; stands_for in the scenario
              makes it keep what a large one keeps
            note: /sys/kernel/mm/ksm: pages_to_scan=1000, run=1
            note: the map shared of shm is shared: MADV_MERGEABLE succeeds there and has no effect
            hash of seed 1: f9a20232d48c7b7a

            at 1500ms: read /proc/1004/ksm_merging_pages
            512

            at 1900ms: write "2" to /sys/kernel/mm/ksm/run: done, in 0.8192 ms of the writer's time
        "#]],
    );
    let json = f.json("sim pair.toml --json");
    let run = &json["runs"][0];
    // The unmerge at the end took a copy a page that was merged.
    assert_eq!(run["merge"]["pages_shared"], 0);
    assert!(run["files"][1]["took_ns"].as_u64().expect("a time") > 0);
    assert_eq!(run["files"][0]["text"], "512\n");
    let json = f.json("sim pair.toml --json --set merge_across_nodes=0");
    assert_eq!(json["runs"][0]["files"][0]["text"], "0\n", "they are on two nodes");
    f.check("sim pair.toml --set run=7", expect![[r#"
        exit 2
        homenode: pair.toml: knob run: "7" is refused (EINVAL); allowed are 0 (stop), 1 (merge), 2 (unmerge everything)
    "#]]);
    f.check("sim pair.toml --set sleep_milisecs=7", expect![[r#"
        exit 2
        homenode: --set sleep_milisecs=7: Linux 6.12 has no knob "sleep_milisecs"; did you mean "sleep_millisecs"?
    "#]]);
}

/// A small run that reads and writes the kernel's files; `more` goes below it.
fn with_files(f: &Here, more: &str) {
    let text = r#"
name = "looked-at"
about = "a test's"
machine = "MACHINES/small-cxl.toml"

[[process]]
name = "heap"
cpus = "0"

[[process.map]]
name = "heap"
size = "1 MiB"

[[process.step]]
do = "touch"
map = "heap"

[[process.step]]
do = "sleep"
time = "20ms"

[[at]]
time = "10ms"
read = "/proc/{heap}/numa_maps"

[[at]]
time = "10ms"
write = "/proc/sys/kernel/numa_balancing"
value = 4
expect = "EINVAL"

[[at]]
time = "10ms"
write = "/sys/kernel/mm/numa/demotion_enabled"
value = true
"#;
    f.write("s.toml", &(text.replace("MACHINES", &repository("machines")) + more));
}

/// What a run prints from its hash on.
fn below_the_table(f: &Here, line: &str) -> String {
    let out = f.run(line);
    let text = String::from_utf8_lossy(&out.stdout);
    let at = text.find("hash of seed").expect("a hash");
    let files = text[at..].split_once("\n\n").map_or("", |(_, files)| files);
    let code = out.status.code().expect("no signal");
    format!("exit {code}\n{files}{}", String::from_utf8_lossy(&out.stderr))
}

#[test]
fn what_the_kernels_files_answer_is_printed() {
    let f = Here::new();
    with_files(&f, "");
    expect![[r#"
        exit 0
        at 10ms: read /proc/1002/numa_maps
        100200000 default anon=256 dirty=256 active=0 N0=256 kernelpagesize_kB=4

        at 10ms: write "4" to /proc/sys/kernel/numa_balancing: EINVAL, as expected

        at 10ms: write "true" to /sys/kernel/mm/numa/demotion_enabled: done
    "#]]
    .assert_eq(&below_the_table(&f, "sim s.toml"));
    with_files(&f, "\n[[at]]\ntime = \"15ms\"\nread = \"/sys/kernel/mm/numa/demotion_enabled\"\n");
    expect![[r#"
        exit 0
        at 10ms with seed 1: read /proc/1002/numa_maps
        100200000 default anon=256 dirty=256 active=0 N0=256 kernelpagesize_kB=4

        at 10ms with seed 1: write "4" to /proc/sys/kernel/numa_balancing: EINVAL, as expected

        at 10ms with seed 1: write "true" to /sys/kernel/mm/numa/demotion_enabled: done

        at 15ms with seed 1: read /sys/kernel/mm/numa/demotion_enabled
        true

        at 10ms with seed 2: read /proc/1002/numa_maps
        100200000 default anon=256 dirty=256 active=0 N0=256 kernelpagesize_kB=4

        at 10ms with seed 2: write "4" to /proc/sys/kernel/numa_balancing: EINVAL, as expected

        at 10ms with seed 2: write "true" to /sys/kernel/mm/numa/demotion_enabled: done

        at 15ms with seed 2: read /sys/kernel/mm/numa/demotion_enabled
        true
    "#]]
    .assert_eq(&below_the_table(&f, "sim s.toml --seeds 2"));
    let json = f.json("sim s.toml --json");
    let files = serde_json::to_string_pretty(&json["runs"][0]["files"]).expect("JSON");
    expect![[r#"
        [
          {
            "as": "root",
            "errno": null,
            "expected": null,
            "missed": null,
            "op": "read",
            "path": "/proc/1002/numa_maps",
            "text": "100200000 default anon=256 dirty=256 active=0 N0=256 kernelpagesize_kB=4\n",
            "time_ns": 10000000
          },
          {
            "as": "root",
            "errno": "EINVAL",
            "expected": "EINVAL",
            "missed": null,
            "op": "write",
            "path": "/proc/sys/kernel/numa_balancing",
            "time_ns": 10000000,
            "took_ns": 0,
            "value": "4"
          },
          {
            "as": "root",
            "errno": null,
            "expected": null,
            "missed": null,
            "op": "write",
            "path": "/sys/kernel/mm/numa/demotion_enabled",
            "time_ns": 10000000,
            "took_ns": 0,
            "value": "true"
          },
          {
            "as": "root",
            "errno": null,
            "expected": null,
            "missed": null,
            "op": "read",
            "path": "/sys/kernel/mm/numa/demotion_enabled",
            "text": "true\n",
            "time_ns": 15000000
          }
        ]"#]]
    .assert_eq(&files);
}

#[test]
fn a_missed_expectation_ends_with_1() {
    let f = Here::new();
    with_files(
        &f,
        r#"
[[at]]
time = "11ms"
write = "/proc/sys/kernel/numa_balancing"
value = 5

[[at]]
time = "11ms"
write = "/proc/sys/kernel/numa_balancing"
value = 2
expect = "EPERM"

[[at]]
time = "11ms"
read = "/sys/kernel/mm/zswap/run"
expect = "EACCES"

[[at]]
time = "1s"
read = "/proc/vmstat"
"#,
    );
    expect![[r#"
        exit 1
        at 10ms: read /proc/1002/numa_maps
        100200000 default anon=256 dirty=256 active=0 N0=256 kernelpagesize_kB=4

        at 10ms: write "4" to /proc/sys/kernel/numa_balancing: EINVAL, as expected

        at 10ms: write "true" to /sys/kernel/mm/numa/demotion_enabled: done

        at 11ms: write "5" to /proc/sys/kernel/numa_balancing: it failed: EINVAL: "5" is refused; allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)

        at 11ms: write "2" to /proc/sys/kernel/numa_balancing: EPERM was expected, but it succeeded

        at 11ms: read /sys/kernel/mm/zswap/run: EACCES was expected, but ENOENT: the simulated kernel has no such file; in /sys/kernel/mm there are ksm, lru_gen, mempolicy, numa, transparent_hugepage

        at 1s: read /proc/vmstat: the run was over before it
        homenode: s.toml: not as the scenario expects:
          at 11ms: write "5" to /proc/sys/kernel/numa_balancing: it failed: EINVAL: "5" is refused; allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)
          at 11ms: write "2" to /proc/sys/kernel/numa_balancing: EPERM was expected, but it succeeded
          at 11ms: read /sys/kernel/mm/zswap/run: EACCES was expected, but ENOENT: the simulated kernel has no such file; in /sys/kernel/mm there are ksm, lru_gen, mempolicy, numa, transparent_hugepage
          at 1s: read /proc/vmstat: the run was over before it
    "#]].assert_eq(&below_the_table(&f, "sim s.toml"));
    let out = f.run("sim s.toml --json");
    assert_eq!(out.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON all the same");
    let files = json["runs"][0]["files"].as_array().expect("files");
    let missed = files.iter().filter(|f| !f["missed"].is_null()).count();
    assert_eq!((files.len(), missed), (7, 4));
}

#[test]
fn the_scenario_that_switches_tiering_on() {
    let f = Here::new();
    let json = f.json("sim SCENARIOS/switched-on.toml --json");
    let files = json["runs"][0]["files"].as_array().expect("files");
    let promoted = |i: usize| {
        let text = files[i]["text"].as_str().expect("vmstat");
        let line = text.lines().find_map(|l| l.strip_prefix("pgpromote_success "));
        line.and_then(|n| n.parse::<u64>().ok()).expect("a number")
    };
    assert_eq!(promoted(6), 0);
    assert!(promoted(7) > 10_000, "{}", promoted(7));
    assert!(files.iter().all(|f| f["missed"].is_null()));
}

#[test]
fn the_calibrated_machine_takes_the_native_time() {
    let f = with_recording();
    let json =
        f.json("replay toy.parquet --machine MACHINES/small.toml --columns off --for 1ms --json");
    let seconds = json["runs"][0]["round_ends_s"][0].as_f64().expect("a time");
    assert!((seconds / 0.4 - 1.0).abs() < 0.01, "{seconds} s against 0.4 s natively");
}

/// Two tasks on one CPU while three are idle: wasted is what they may have and don't.
#[test]
fn time_that_is_idle_beside_those_who_wait_is_told() {
    let f = Here::new();
    let wasted = |name: &str, step: &str| {
        let compute = "[[process.step]]\ndo = \"compute\"\ntime = \"10ms\"\n";
        f.write(
            name,
            &format!(
                "name = \"{name}\"\nabout = \"x\"\nmachine = \"{}/small.toml\"\n\
                 [[process]]\nname = \"two\"\nthreads = 2\ncpus = \"0\"\n{step}{compute}",
                repository("machines")
            ),
        );
        let json = f.json(&format!("sim {name} --figures wasted --json"));
        let figure = &json["table"]["groups"][0]["figures"][0];
        assert_eq!((&figure["name"], &figure["unit"]), (&"all: wasted".into(), &"ms".into()));
        figure["mean"][0].as_f64().expect("a number")
    };
    // Who may run nowhere else can't use another CPU.
    assert_eq!(wasted("pinned", ""), 0.0);
    // Who may, and is not moved at once, could have had three.
    let free = "[[process.step]]\ndo = \"affinity\"\ncpus = \"0-3\"\n";
    let ms = wasted("free", free);
    assert!(ms > 0.0 && ms <= 3.0 * 20.0, "{ms} ms");
}

#[test]
fn a_replay_with_half_of_the_memory_on_an_expander() {
    let f = with_recording();
    let line = "replay toy.parquet --machine MACHINES/small.toml --add-node cxl:half --for 5s";
    let one = f.run(&format!("{line} --json --jobs 1"));
    let many = f.run(&format!("{line} --json --jobs 2"));
    assert!(one.status.success(), "{}", String::from_utf8_lossy(&one.stderr));
    assert_eq!(one.stdout, many.stdout);
    let json: serde_json::Value = serde_json::from_slice(&one.stdout).expect("JSON");
    let mean = |name: &str| -> Vec<f64> {
        let groups = json["table"]["groups"].as_array().expect("groups");
        let mut figures = groups.iter().flat_map(|g| g["figures"].as_array().expect("figures"));
        let figure = figures.find(|f| f["name"] == name).expect(name);
        let means = figure["mean"].as_array().expect("means").iter();
        means.map(|v| v.as_f64().expect("a number")).collect()
    };
    // The hot eighth was touched last, when DRAM was full: only tiering brings it up.
    let last = mean("time of the last round");
    assert!(last[2] < last[0] * 0.98, "mode 2 ends faster than off: {last:?}");
    assert_eq!(mean("pages promoted")[0], 0.0);
    assert!(mean("pages promoted")[2] >= (PAGES / 16) as f64);
    let end = json["picture"].as_array().expect("a picture").last().expect("a snapshot");
    assert_eq!(end["label"], "mode 2, end");
    let resident: u64 = end["columns"]
        .as_array()
        .expect("columns")
        .iter()
        .map(|c| c["resident"].as_u64().expect("a count"))
        .sum();
    assert_eq!(resident, PAGES, "every page is in the picture once");
    f.check(line, expect![[r#"
        exit 0
                                                           off                     mode                     mode                     mode                 weighted
                                                                                      1                        2                        3               interleave
        time [s]                             5.3234 (   0.00%)        5.3267 (  -0.06%)        4.2952 (  19.31%)        4.2952 (  19.31%)        4.4533 (  16.34%)
        time of a round, mean [s]            0.5915 (   0.00%)        0.5919 (  -0.06%)        0.4772 (  19.31%)        0.4772 (  19.31%)        0.4948 (  16.34%)
        time of the first round [s]          0.5938 (   0.00%)        0.5938 (   0.00%)        0.5938 (   0.00%)        0.5938 (   0.00%)        0.4959 (  16.49%)
        time of the last round [s]           0.5912 (   0.00%)        0.5912 (   0.00%)        0.4020 (  32.00%)        0.4020 (  32.00%)        0.4947 (  16.33%)
        accesses [M/s]                        8.975 (   0.00%)         8.969 (  -0.06%)        11.123 (  23.94%)        11.123 (  23.94%)        10.728 (  19.54%)
        accesses in node 0 (dram) [%]          0.63 (   0.00%)          0.63 (   0.00%)         60.56 (9581.49%)         60.56 (9581.49%)         50.00 (7892.68%)
        accesses in node 1 (cxl) [%]          99.37                    99.37                    39.44                    39.44                    50.00
        pages promoted                            0                        0                     3856                     3856                        0
        pages demoted                             0                        0                     4096                     4096                        0
        moved [MB]                              0.0                      0.0                     32.6                     32.6                      0.0
        spent on moving [MB/s]                  0.0                      0.0                      7.6                      7.6                      0.0
        vmstat
        numa_hit                                 63                       63                       63                       63                       16
        numa_miss                              4041                     4041                     4041                     4041                        0
        numa_foreign                           4041                     4041                     4041                     4041                        0
        numa_local                               63                       63                       63                       63                        8
        numa_other                             4041                     4041                     4041                     4041                        8
        pgpromote_success                         0                        0                     3856                     3856                        0
        pgpromote_candidate                       0                        0                     4076                     4076                        0
        pgdemote_kswapd                           0                        0                     4096                     4096                        0
        pgalloc                                8192                     8192                     8192                     8192                     8192
        pgfree                                 8192                     8192                     8192                     8192                     8192
        pgfault                                4104                     8153                    12036                    12041                       16
        pgrefill                                  0                        0                     2854                     2854                        0
        pgsteal_kswapd                            0                        0                     4096                     4096                        0
        pgscan_kswapd                             0                        0                     5337                     5337                        0
        pageoutrun                                0                        0                        8                        8                        0
        numa_pte_updates                          0                     8137                     8357                    12453                        0
        numa_huge_pte_updates                     0                        8                        8                       16                        0
        numa_hint_faults                          0                     4049                     4076                     4081                        0
        numa_hint_faults_local                    0                        8                        0                        5                        0
        numa_pages_migrated                       0                        0                     3856                     3856                        0
        pgmigrate_success                         0                        0                     7952                     7952                        0
        thp_migration_success                     0                        0                        8                        8                        0
        thp_fault_alloc                           8                        8                        8                        8                       16
        thp_fault_fallback                        8                        8                        8                        8                        0
        nr_tlb_remote_flush                       0                        0                       10                       10                        0
        nr_tlb_remote_flush_received              0                        0                       10                       10                        0

        off, start    heat │▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▇▇█▇▇█▇█▇█│
                      fast │████████████████████████████████████████▆▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁│
        off, end      heat │▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▇▇█▇▇█▇█▇█│
                      fast │████████████████████████████████████████▆▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁│
        mode 2, start heat │▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▇▇█▇▇█▇█▇█│
                      fast │████████████████████████████████████████▆▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁│
        mode 2, end   heat │▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▇▇█▇▇█▇█▇█│
                      fast │▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁█████▄▇████▇███▇████▇▆████▆████████████│
        heat: accesses to equal ranges, █ most, half at each step to ▁, blank none
        fast: share of a range in the fast tier, ▁ none to █ all, · not resident

        so: mode 2 pays: the program is faster than with off by 23.9 %; about as good: mode 3 (+23.9 %). On
          Linux: numa_balancing=2 demotion_enabled=true

        machine: small+cxl: one node of 256 MiB and four CPUs; small enough for tests
        workload: toy --size=32MiB; 0.66 G instructions, 5.31 M lines from memory a round
        kernel: Linux 6.12's rules; MGLRU, not active and inactive lists
        looped: 9 times
        seed: 1
        note: the program's memory: 32 MiB resident at its peak
        note: DRAM shrunk to 17.3 MiB: half of the program's memory, 16 MiB, and the 1.3 MiB that the kernel
          keeps free (its high marks)
        note: node 1 added: 28 MiB of cxl: the other half, and half as much again, so that nothing runs out
          of memory, read latency 275 ns (middle of the 140 to 410 ns measured over four expanders and five
          CPU platforms, Liu et al., Systematic CXL Memory Characterization and Performance Analysis at
          Scale, ASPLOS 2025, doi 10.1145/3676641.3715987, abstract), bandwidth 20000 MB/s (limited to what
          these CPUs reach in node 0's memory; the part alone: 24000 MB/s)
        note: native CPU time 0.400 s, of which modelled misses and faults take 0.100 s, and the rest is
          0.452 ns an instruction: the unmodified machine is right by construction, and what a slower node
          changes is the prediction
        note: on the unmodified machine the first round takes 0.400 s and the second, which has its memory
          already, 0.399 s
        note: the recording is looped to 5s of virtual time at least with off, and as often in the other
          columns; from the second round on the program has its memory already, as a server has
        note: kernel default knobs except off: numa_balancing=0; mode 1: numa_balancing=1; mode 2:
          numa_balancing=2 demotion_enabled=true; mode 3: numa_balancing=3 demotion_enabled=true; weighted
          interleave: numa_balancing=0, all tasks under MPOL_WEIGHTED_INTERLEAVE with weights by bandwidth:
          node 0 1, node 1 1; demotion is on with tiering, since Linux leaves it off by default and nothing
          else makes room in DRAM
        homenode: reading the recording
        homenode: one round on the unmodified machine
        homenode: replaying: off
        homenode: replaying 9 rounds: mode 1, mode 2, mode 3, weighted interleave
    "#]]);
}

/// What could be gained stands beside what is, and below it what to do.
#[test]
fn a_replay_says_what_to_do_and_what_dram_for_all_would_bring() {
    let f = with_recording();
    let line = "replay toy.parquet --machine MACHINES/small.toml --add-node cxl:half --for 5s";
    let line = format!("{line} --columns off,mode2,homenode:pmu,all-dram");
    let json = f.json(&format!("{line} --figures accesses-in,time-of-a-round-mean --json"));
    let figures = json["table"]["groups"][0]["figures"].as_array().expect("figures");
    let of = |start: &str, column: usize| {
        let name =
            |f: &&serde_json::Value| f["name"].as_str().is_some_and(|n| n.starts_with(start));
        let figure = figures.iter().find(name).expect("a figure");
        figure["mean"][column].as_f64().expect("a number")
    };
    assert_eq!(of("accesses in node 0", 3), 100.0, "{json}");
    let time = |column| of("time of a round, mean", column);
    assert!(time(3) < time(2) && time(2) < time(0), "{json}");
    let said = json["conclusion"].as_str().expect("it pays").to_owned();
    assert!(said.starts_with("mode 2 pays: ") || said.starts_with("homenode pmu pays: "), "{said}");
    assert!(said.contains("; with DRAM for all of its memory it would be faster by "), "{said}");

    let out = f.run(&format!("{line} --brief"));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(out.status.success() && flat.ends_with(&said), "{text}");
    assert!(text.contains("homenode pmu, end") && !text.contains("\nmachine: "), "{text}");

    for (columns, why) in [
        ("all-dram,off", "--columns all-dram: it is no baseline; name another column first"),
        ("off,all-dram,all-dram", "--columns names all dram twice"),
        ("off,all-dra", "--columns all-dra: there is no contender \"all-dra\""),
    ] {
        let out =
            f.run(&format!("replay toy.parquet --machine MACHINES/small.toml --columns {columns}"));
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains(why), "{columns}: {said}");
    }
}

#[test]
fn recordings_without_a_usable_native_time_say_so() {
    let f = Here::new();
    let path = f.0.join("toy.parquet");
    let warnings = |f: &Here| {
        let json = f.json(
            "replay toy.parquet --machine MACHINES/small.toml --columns off --for 1ms --json",
        );
        json["caption"]["warnings"].to_string()
    };
    recording(&path, |h| h.native = None);
    let said = warnings(&f);
    assert!(said.contains("the recording has no native time: an instruction is taken"), "{said}");
    recording(&path, |h| {
        h.slice = Slice { skip_insns: 0, for_insns: Some(1) };
        h.ended = homenode_trace::Ended::SliceFull;
    });
    let said = warnings(&f);
    assert!(said.contains("the recording ends before the program does"), "{said}");
    recording(&path, |h| h.native = Some(Native { user_ns: 1, ..Native::default() }));
    let said = warnings(&f);
    assert!(said.contains("more than the native 0.000 s"), "{said}");
}

/// A machine that was measured has spreads; what they make of a time is told beside it.
#[test]
fn a_replay_has_intervals_where_the_machine_was_measured() {
    let f = Here::new();
    recording(&f.0.join("toy.parquet"), |h| {
        h.native.as_mut().expect("it has one").spread_ns = 4_000_000;
    });
    let small =
        std::fs::read_to_string(repository("machines") + "/small.toml").expect("it is shipped");
    let line =
        "replay toy.parquet --machine m.toml --add-node cxl:half --columns off,mode2 --for 1ms";
    let interval = |json: &serde_json::Value, run: usize, of: &str| -> [f64; 2] {
        let ends = &json["runs"][run]["interval_80"][of];
        [0, 1].map(|i| ends[i].as_f64().unwrap_or_else(|| panic!("{of}: {json}")))
    };
    let spread =
        small.replace("value = 90, unit = \"ns\"", "value = 90, spread = 3, unit = \"ns\"");
    let window = "reorder_window = { value = 300, unit = \"count\", method = \"a test\", source = \"measured\" }";
    let silent: Vec<&str> = spread.lines().filter(|l| !l.starts_with("defaults")).collect();
    f.write("m.toml", &format!("{}\n{window}\n", silent.join("\n")));
    let json = f.json(&format!("{line} --json"));
    let time = |run: usize| {
        let ends = json["runs"][run]["round_ends_s"].as_array().expect("rounds");
        ends.last().and_then(serde_json::Value::as_f64).expect("a time") / ends.len() as f64
    };
    for run in [0, 1] {
        let [low, high] = interval(&json, run, "round_s");
        assert!(low < time(run) && time(run) < high, "{json}");
        let [low, high] = interval(&json, run, "processor_s");
        // 400 ms of native time are ±7.6 ms: that much at least, and no multiple of it.
        assert!((1.01..1.2).contains(&(high / low)), "{json}");
    }
    assert_eq!(interval(&json, 0, "gain_percent"), [0.0, 0.0]);
    let notes = json["caption"]["notes"].to_string();
    assert!(notes.contains("80 % interval of a round's time"), "{notes}");
    assert!(notes.contains("latencies, the native time, each alone"), "{notes}");
    assert!(notes.contains("defaults, not this machine's: 88 costs"), "{notes}");
    // As it is shipped it has none, and says why costs are left out.
    f.write("m.toml", &small);
    let json = f.json(&format!("{line} --json"));
    assert!(json["runs"][0]["interval_80"].is_null(), "{json}");
    let notes = json["caption"]["notes"].to_string();
    assert!(!notes.contains("80 % interval") && !notes.contains("defaults, not"), "{notes}");
}

/// Bytes are flipped all over a recording, and it is cut short everywhere.
#[test]
fn a_damaged_recording_is_an_error_and_never_a_panic() {
    let f = Here::new();
    let path = f.0.join("whole.parquet");
    let mut w = Writer::create(&path).expect("a recording");
    let start = 0x7_0000;
    for i in 0..600u64 {
        let page = start + i * i % 64;
        let (reads, writes) = ((i % 9) as u32, (i % 2) as u32);
        let (kind, arg) = (Kind::Access, 3);
        let row = Row { kind, task: 0, insns: i * 77 % 1000, page, pages: 1, reads, writes, arg };
        w.push(row).expect("a row");
    }
    let tasks = vec![Task { name: "toy".into(), ..Task::default() }];
    let header = Header { command: vec!["toy".into()], complete: true, tasks, ..Header::default() };
    w.finish(&header).expect("a whole recording");
    let good = fs::read(&path).expect("the recording");
    let replay = "replay RECORDING --machine MACHINES/small.toml --columns off --for 1us";
    let advise = "advise --recording RECORDING --machine MACHINES/small.toml --for 1us";
    let whole = f.run(&replay.replace("RECORDING", "whole.parquet"));
    assert!(whole.status.success(), "{}", String::from_utf8_lossy(&whole.stderr));

    let n = good.len();
    let flipped = (0..n).step_by(n / 300).map(|at| {
        let mut bad = good.clone();
        bad[at] ^= if at % 2 == 0 { 0xff } else { 1 << (at % 8) };
        (at, bad)
    });
    let cut = (0..n).step_by(n / 40).map(|at| (at, good[..at].to_vec()));
    let (mut refused, mut harmless) = (0, 0);
    for (i, (at, bad)) in flipped.chain(cut).enumerate() {
        fs::write(f.0.join("bad.parquet"), &bad).expect("a file");
        // They read alike: a few of them are enough for the second.
        for line in [Some(replay), Some(advise).filter(|_| i % 8 == 0)].into_iter().flatten() {
            let out = f.run(&line.replace("RECORDING", "bad.parquet"));
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(!said.contains("panicked"), "byte {at}: {said}");
            match out.status.code() {
                Some(2) => {
                    assert!(said.contains("bad.parquet") && out.stdout.is_empty(), "{at}: {said}");
                    refused += 1;
                }
                // Some bytes of the format mean nothing; then all is as it was.
                Some(0) if line == replay => {
                    assert_eq!(out.stdout, whole.stdout, "byte {at}");
                    harmless += 1;
                }
                Some(0) => harmless += 1,
                code => panic!("byte {at}: exit {code:?}: {said}"),
            }
        }
    }
    assert!(refused > 300 && harmless < 60, "{refused} refused, {harmless} harmless");
}

/// Makes the toy start a task that has no rows: a thread, or a child.
fn with_a_second_task(thread: bool) -> impl FnOnce(&mut Header) {
    move |h| {
        h.tasks[0] = Task { pid: 7, tid: 7, name: "/opt/toy".into(), ..h.tasks[0].clone() };
        let pid = if thread { 7 } else { 8 };
        h.tasks.push(Task { pid, tid: 8, thread, parent: Some(0), ..h.tasks[0].clone() });
    }
}

#[test]
fn threads_without_their_waits_are_replayed_only_where_wrong_figures_are_asked_for() {
    let f = Here::new();
    let path = f.0.join("toy.parquet");
    let line = "replay toy.parquet --machine MACHINES/small.toml --columns off --for 1ms";
    let of_version_1 =
        |thread| move |h: &mut Header| (with_a_second_task(thread)(h), h.version = 1).1;
    recording(&path, of_version_1(false));
    let child = f.run(&format!("{line} --force"));
    assert_eq!(child.status.code(), Some(0), "a child is no thread");
    assert!(!String::from_utf8_lossy(&child.stdout).contains("WRONG"));

    recording(&path, of_version_1(true));
    f.check(line, expect![[r#"
        exit 3
        homenode: can't replay toy.parquet: toy ran 2 threads, and the recording is of a version that does not say when threads wait for one another, so that all times would be wrong. Record the program anew, or see the wrong figures with --force
    "#]]);
    f.check("advise --recording toy.parquet --machine MACHINES/small.toml", expect![[r#"
        exit 3
        homenode: can't replay toy.parquet: toy ran 2 threads, and the recording is of a version that does not say when threads wait for one another, so that all times would be wrong. Record the program anew, or see the wrong figures with --force
    "#]]);

    let out = f.run(&format!("{line} --force"));
    assert_eq!(out.status.code(), Some(0));
    let (text, said) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(said.contains("toy.parquet: WRONG: toy ran 2 threads"), "{said}");
    assert!(text.contains("\nWRONG: toy ran 2 threads") && !text.contains("is right by"), "{text}");
    // The name that the option had first is still taken.
    let json = f.json(&format!("{line} --threads-anyway --json"));
    let why = json["caption"]["wrong"].as_str().expect("why it is wrong");
    assert!(why.contains("all times are wrong"), "{why}");
    // What has no threads is right, and says so, whatever was asked for.
    recording(&path, |_| {});
    let whole = f.run(line);
    assert_eq!(f.run(&format!("{line} --force")).stdout, whole.stdout);
    assert!(String::from_utf8_lossy(&whole.stdout).contains("is right by construction"));
    assert!(f.json(&format!("{line} --json"))["caption"].get("wrong").is_none());
    let line =
        "advise --recording toy.parquet --machine MACHINES/small-cxl.toml --for 100ms --json";
    recording(&path, of_version_1(true));
    let json = f.json(&format!("{line} --force"));
    assert!(json["effects"][0]["caption"]["wrong"].is_string(), "{json}");
}

/// What a recording can't say: how many of its misses are under way at once.
#[test]
fn a_replay_tells_both_ends_of_what_no_recording_shows() {
    let f = with_recording();
    let machines = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/small.toml");
    let small = std::fs::read_to_string(machines).expect("a machine");
    let window = "[cost]\nreorder_window = { value = 250, unit = \"count\", method = \"a test\", \
                  source = \"assumed\" }";
    let known = small.replacen("[cost]", window, 1);
    assert_ne!(known, small);
    std::fs::write(f.0.join("known.toml"), known).expect("a file");
    let line = "replay toy.parquet --machine known.toml --add-node cxl:half --for 100ms \
                --columns off,mode2";
    let plain = f.json(&format!("{line} --json"));
    let both = f.json(&format!("{line} --json --mlp 1,measured"));
    let both = both["mlp"].as_array().expect("one for each");
    let rounds = |of: &serde_json::Value| -> Vec<f64> {
        let runs = of["runs"].as_array().expect("runs").iter();
        let last = runs.map(|run| run["round_ends_s"].as_array().expect("ends")[0].as_f64());
        last.map(|s| s.expect("seconds")).collect()
    };
    assert_eq!(both[1]["runs"], plain["runs"], "measured is what it is without");
    assert_eq!((&both[0]["mlp"], &both[1]["mlp"]), (&"1".into(), &"measured".into()));
    // What far memory costs more is paid in full where each miss waits for the one before it.
    let (chain, measured) = (rounds(&both[0]), rounds(&both[1]));
    let unmodified = |of: &serde_json::Value| of["unmodified_round_s"].as_f64().expect("seconds");
    let slower = |times: &[f64], of| times[0] / unmodified(of);
    let (one, other) = (slower(&chain, &both[0]), slower(&measured, &both[1]));
    assert!(one > other, "by pointers {one} times as long on far memory, else {other}");
    assert!(
        both[0]["caption"]["notes"].to_string().contains("(--mlp 1)"),
        "{}",
        both[0]["caption"]
    );
    let text = f.run(&format!("{line} --mlp 1,8,measured"));
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let last: Vec<&str> = text.lines().rev().take(4).collect();
    assert!(last[3].starts_with("misses under way") && last[3].ends_with("measured"), "{text}");
    assert!(last[1].starts_with("mode 2") && last[1].matches('%').count() == 3, "{text}");
}

#[test]
fn a_replay_that_takes_another_time_than_the_program_is_not_believed() {
    let f = Here::new();
    let path = f.0.join("toy.parquet");
    let line = "replay toy.parquet --machine MACHINES/small.toml --columns off --for 1ms";
    let slow = |h: &mut Header, times: u64| {
        let n = h.native.as_mut().expect("native times");
        n.wall_ns = (n.user_ns + n.sys_ns) * times;
    };
    let refused = || {
        let out = f.run(line);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains("can't replay it as it ran") && said.contains("--force"), "{said}");
        let said = f.json(&format!("{line} --force --json"))["caption"]["warnings"].to_string();
        assert!(said.contains("s on the clock, and the first round"), "{said}");
    };
    // One task waited for what no recording has, or two did.
    recording(&path, |h| slow(h, 10));
    refused();
    recording(&path, |h| (with_a_second_task(true)(h), slow(h, 10)).1);
    refused();
    // One task had no CPU meanwhile: that is no matter of the recording.
    recording(&path, |h| {
        slow(h, 10);
        let n = h.native.as_mut().expect("native times");
        n.delayed_ns = (n.user_ns + n.sys_ns) * 9;
    });
    assert!(f.run(line).status.success());
    // A task that lives longer natively, or runs longer, is told of, and warned of; where it
    // is by more than half of the program's time, the program is not believed.
    for (more, ran, code) in [(1.3, 1.0, 0), (2.0, 1.0, 1), (1.0, 0.7, 0), (1.0, 0.2, 1)] {
        recording(&path, |h| {
            with_a_second_task(true)(h);
            slow(h, 1);
            let n = h.native.clone().expect("native times");
            let times = |by: f64| (n.wall_ns as f64 * by) as u64;
            h.tasks[0].native_span_ns = Some((0, times(more)));
            // Too little is known to give each a speed of its own.
            h.tasks[0].native_ns = vec![times(ran)];
            h.tasks[1].native_ns = Vec::new();
        });
        let said = f.json(&format!("{line} --force --json"))["caption"].to_string();
        let task = "each task natively and in the first round: task 0 (toy)";
        assert!(said.contains(task), "{said}");
        assert!(said.contains("1 task lives or runs longer or shorter"), "{more} {ran}: {said}");
        let out = f.run(line);
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{more} {ran}: {text}");
        assert_eq!(text.contains("can't replay it as it ran: 1 task"), code == 1, "{text}");
    }
}

#[test]
fn a_slice_has_its_share_of_the_native_time() {
    let f = Here::new();
    // As `record` makes them: rows hold the slice's instructions, totals the whole run's.
    recording(&f.0.join("toy.parquet"), |h| {
        h.slice.skip_insns = h.totals.insns;
        h.totals.insns *= 2;
    });
    let json =
        f.json("replay toy.parquet --machine MACHINES/small.toml --columns off --for 1ms --json");
    let notes = json["caption"]["notes"].to_string();
    assert!(notes.contains("the slice has 50.0 % of the program's instructions"), "{notes}");
    let workload = json["caption"]["workload"].as_str().expect("text");
    assert!(workload.contains("to the end; 0.66 G instructions"), "{workload}");
}

#[test]
fn homenode_is_a_column_of_sim_and_of_replay() {
    let f = with_recording();
    let json = f.json(
        "sim SCENARIOS/tiering-gauss.toml --columns scenario,homenode:pmu --set scan_delay_ms=100 --json",
    );
    assert_eq!(json["table"]["columns"], serde_json::json!(["tiering-gauss", "homenode-pmu"]));
    let groups = json["table"]["groups"].as_array().expect("groups");
    let own = groups.iter().find(|g| g["title"] == "homenode").expect("homenode's own figures");
    let of = |name: &str| {
        let all = own["figures"].as_array().expect("figures");
        let row = all.iter().find(|r| r["name"] == name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(row["samples"][0], serde_json::json!([]), "the kernel has no {name}");
        row["samples"][1][0].as_f64().expect("one sample")
    };
    assert!(of("its own CPU time") > 0.0 && of("programs' time for being sampled") > 0.0);
    assert_eq!(of("CPU time of DAMON's thread"), 0.0);
    assert!(of("orders: slow_start_over") == 1.0 && of("pages moved") > 0.0);
    let fails: f64 = own["figures"]
        .as_array()
        .expect("figures")
        .iter()
        .filter(|r| r["name"].as_str().is_some_and(|n| n.starts_with("not moved")))
        .map(|r| r["samples"][1][0].as_f64().expect("one sample"))
        .sum();
    assert_eq!(of("pages tried"), of("pages moved") + fails);
    let notes = json["caption"]["notes"].to_string();
    assert!(notes.contains("one in so many accesses") && notes.contains("budgets"), "{notes}");
    assert_eq!(json["runs"][1]["column"], "homenode-pmu");

    let line = "replay toy.parquet --machine MACHINES/small.toml --add-node cxl:half --for 5ms \
                --columns off,homenode --json";
    let json = f.json(line);
    assert_eq!(json["table"]["columns"], serde_json::json!(["off", "homenode-damon"]));
    let out = f.run("sim SCENARIOS/tiering-gauss.toml --columns off:pmu");
    assert_eq!(out.status.code(), Some(2), "a source without a policy that sees it");
}

#[test]
fn every_command_has_help_with_an_example_and_json() {
    let f = Here::new();
    for command in ["doctor", "list", "measure", "record mem", "replay", "sim", "stats", "topo"] {
        let out = f.run(&format!("{command} --help"));
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && text.contains("--json"), "{command}: {text}");
        assert!(text.contains(&format!("Example:\n  homenode {command}")), "{command}: {text}");
    }
}

#[test]
fn a_machine_is_shown() {
    let f = Here::new();
    f.check("topo --machine MACHINES/small-cxl.toml", expect![[r#"
        exit 0
        small-cxl: one node of 256 MiB and four CPUs beside an expander of 512 MiB; small enough for tests

        node 0   dram     256 MiB  tier 4, top    CPUs 0-3
        node 1   cxl      512 MiB  tier 13        CPUs none

        distances
                 0    1
            0   10   14
            1   14   10

        read latency and bandwidth
        node 0 to node 0:       90 ns    20000 MB/s
        node 0 to node 1:      275 ns    20000 MB/s

        tiers and demotion as in Linux 6.12
        memory_tier4: nodes 0
        memory_tier13: nodes 1
        node 0 demotes to node 1
    "#]]);
    f.check("topo --machine MACHINES/small-cxl.toml --json", expect![[r#"
        exit 0
        {"about":"one node of 256 MiB and four CPUs beside an expander of 512 MiB; small enough for tests","distances":[[10,14],[14,10]],"name":"small-cxl","nodes":[{"bytes":268435456,"capacities":[1024,1024,1024,1024],"cpus":[0,1,2,3],"demotes_to":[1],"id":0,"medium":"dram","tier":4,"top":true},{"bytes":536870912,"capacities":[],"cpus":[],"demotes_to":[],"id":1,"medium":"cxl","tier":13,"top":false}]}
    "#]]);
}

#[test]
fn this_machine_is_measured_into_a_file_that_can_be_read() {
    let f = Here::new();
    f.write("this.toml", "what was there before\n");
    let json = f.json("measure -o this.toml --json --tiny");
    let count = json["constants"].as_array().expect("constants").len();
    assert!(count >= 15, "{count} constants");
    assert!(homenode_config::read_machine(&f.0.join("this.toml")).is_ok());
    assert!(f.run("topo --machine this.toml").status.success());
}

/// Plumbing only: sizes are tiny and nobody judges the figures.
#[test]
fn the_truth_check_measures_predicts_runs_and_says_what_missed() {
    let f = Here::new();
    let out = f.run("measure -o this.toml --tiny");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let out = f.run("truth mem --tiny --json --machine this.toml");
    let code = out.status.code().expect("no signal");
    assert!(code < 2, "{}", String::from_utf8_lossy(&out.stderr));
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).expect("one JSON object");
    assert_eq!(said["pass"], code == 0);
    let rows = said["rows"].as_array().expect("rows");
    let warnings = said["warnings"].as_array().expect("warnings");
    let left_out = |w: &&serde_json::Value| w.as_str().is_some_and(|w| w.contains("is left out"));
    let without = warnings.iter().filter(left_out).count();
    assert_eq!(rows.len(), 6 + 2 - without, "{said}");
    for row in rows {
        for key in ["predicted", "measured", "low", "high", "error_percent", "bound_percent"] {
            assert!(row[key].is_number(), "{key} in {row}");
        }
    }

    // Measured curves give intervals, each of which holds what was measured or doesn't. Where the
    // machine was so busy that each footprint was taken once, there is no spread, and no curve.
    let text = fs::read_to_string(f.0.join("this.toml")).expect("the machine");
    let curves = text.contains("[[curve]]");
    for row in rows {
        let (low, high) = (row["predicted_low"].as_f64(), row["predicted_high"].as_f64());
        assert_eq!((low.is_some(), high.is_some()), (curves, curves), "{row}");
        let Some((low, high)) = low.zip(high) else { continue };
        let within = |key: &str| (low..=high).contains(&row[key].as_f64().expect(key));
        assert!(within("predicted"), "{row}");
        assert_eq!(row["inside"], within("measured"), "{row}");
    }
    assert_eq!(said["inside_percent"].is_number(), curves);

    // A machine whose caches answer in a hundred microseconds is not this one. Its file is of before there
    // were curves.
    let before = text.split("[[curve]]").next().expect("a text");
    let (before, after) = match curves {
        true => (before, text.split_once("[cost]").expect("costs").1),
        false => text.split_once("[cost]").expect("costs"),
    };
    let slow: Vec<String> = format!("{before}[cost]{after}")
        .lines()
        .map(|l| match l.strip_prefix("latency = { value = ") {
            Some(rest) => {
                format!("latency = {{ value = 100000{}", &rest[rest.find(',').unwrap()..])
            }
            None => l.to_owned(),
        })
        .collect();
    f.write("slow.toml", &slow.join("\n"));
    let out = f.run("truth mem --tiny --machine slow.toml");
    assert_eq!(out.status.code(), Some(1), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("MISSED") && text.contains("bound 15 %"), "{text}");
    assert!(text.contains("has no curves") && !text.contains("80 % interval:"), "{text}");
}

#[test]
fn a_truth_check_with_another_machines_file_is_refused() {
    let f = Here::new();
    f.check("truth mem --machine MACHINES/small.toml", expect![[r#"
        exit 2
        homenode: MACHINES/small.toml: its latencies are not measured, so that nothing here can be compared with it; make one with: homenode measure -o FILE
    "#]]);
    f.check("workload sort --rows 64", expect![[r#"
        exit 2
        error: invalid value 'sort' for '<PROGRAM>': there are only hash-join and breadth-first-search

        For more information, try '--help'.
    "#]]);
    f.check(
        "workload hash-join --rows 65",
        expect![[r#"
        exit 2
        homenode: hash-join --rows 65: 65 is no size; write a power of two from 64 to 268435456
    "#]],
    );
}

// ── Merging ────────────────────────────────────────────────────────────────────

#[test]
fn merge_estimates_name_what_is_missing() {
    let f = Here::new();
    f.check(
        "merge estimate --pid 1073741824",
        expect![[r#"
        exit 2
        homenode: there is no process 1073741824 with memory of its own (kernel threads have none)
    "#]],
    );
    f.check("merge estimate --cgroup no/such/group", expect![[r#"
        exit 2
        homenode: no/such/group: no version 2 cgroup: neither this folder nor the one of this name below /sys/fs/cgroup has a cgroup.procs
    "#]]);
    f.check(
        "merge estimate --all --machine nowhere.toml",
        expect![[r#"
        exit 2
        homenode: nowhere.toml: cannot be read: No such file or directory (os error 2)
    "#]],
    );
    for line in ["merge estimate", "merge estimate --all --pid 1", "merge estimate --pid 0"] {
        assert_eq!(f.run(line).status.code(), Some(2), "{line}");
    }
}

#[test]
fn merge_estimates_have_the_promised_json() {
    let f = Here::new();
    let mut sleeper =
        Command::new("sleep").arg("100").spawn().expect("something to look at, of ours");
    // It may not have become `sleep` yet.
    let comm = format!("/proc/{}/comm", sleeper.id());
    let is = || fs::read_to_string(&comm).is_ok_and(|c| c == "sleep\n");
    until("exec of sleep", || is().then_some(()));
    let line = format!(
        "merge estimate --pid {} --json --again 0.1 --machine MACHINES/small-two-sockets.toml",
        sleeper.id()
    );
    let e = f.json(&line);
    let text = f.run(&format!("merge estimate --pid {}", sleeper.id()));
    let unregistered = f.run(&format!("merge estimate --registered --pid {}", sleeper.id()));
    sleeper.kill().and_then(|()| sleeper.wait()).expect("it ends");
    for key in ["pages_scanned", "distinct", "zero", "volatile"] {
        assert!(e[key].is_u64(), "{key} in {e}");
    }
    for tree in ["across", "per_node"] {
        for key in ["pages_shared", "pages_sharing", "saved_bytes"] {
            assert!(e[tree][key].is_u64(), "{tree}.{key} in {e}");
        }
    }
    assert!(e["pages_scanned"].as_u64() > Some(10), "{e}");
    assert_eq!(e["processes"][0]["name"], "sleep");
    assert!(e["advice"].as_str().is_some_and(|a| a.starts_with("Leave merging off")), "{e}");
    // The file's faults: 0.5 µs and 0.3 µs by default.
    assert_eq!(e["costs"]["copy_on_write_ns"], 800.0);
    assert!(e["costs"]["ksmd_cpu_seconds"].as_f64() > Some(0.0), "{e}");
    assert_eq!(e["costs"]["source"], "latencies of machine `small-two-sockets`");
    let text = String::from_utf8(text.stdout).expect("text");
    assert!(text.contains("Leave merging off") && text.contains("latencies assumed"), "{text}");
    let text = String::from_utf8(unregistered.stdout).expect("text");
    assert!(text.contains("none of these processes has memory that is registered"), "{text}");
}

#[test]
fn merge_estimates_without_privilege_say_so_before_reading() {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    command.args(["merge", "estimate", "--pid", "1"]);
    let root = fs::metadata("/proc/self").is_ok_and(|m| {
        use std::os::unix::fs::MetadataExt;
        m.uid() == 0
    });
    if root {
        // Nobody, by convention.
        command.uid(65534).gid(65534);
    }
    let Ok(out) = command.output() else {
        println!("skipped: another user can't run the command from this folder");
        return;
    };
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{text}");
    assert!(text.contains("is refused, nothing was read: it needs CAP_SYS_PTRACE"), "{text}");
    assert!(out.stdout.is_empty());
}

/// One that yields to nobody, on a machine where that costs nothing.
#[test]
fn a_program_that_goes_round_without_taking_time_is_named() {
    let f = Here::new();
    let machine = fs::read_to_string(repository("machines") + "/small.toml").expect("a machine");
    let free =
        "syscall = { value = 0, unit = \"ns\", method = \"a test\", source = \"assumed\" }\n";
    f.write("free.toml", &(machine + free));
    f.write(
        "talk.toml",
        "name = \"talk\"\nabout = \"a test\"\nmachine = \"free.toml\"\nseed = 1\n\
         [[process]]\nname = \"talker\"\nthreads = 1\n\
         [[process.step]]\ndo = \"yield\"\n\
         [[process.step]]\ndo = \"repeat\"\nsteps = 1\nuntil = \"1ms\"\n",
    );
    let out = f.run("sim talk.toml");
    assert_eq!(out.status.code(), Some(0));
    let all = [out.stdout, out.stderr].concat();
    let all = String::from_utf8_lossy(&all);
    let named = "the process talker goes round 1000 times without taking any time";
    assert!(all.contains(named), "{all}");
    // Where the call costs something it is a program as any other.
    let out = f.run("sim talk.toml --machine MACHINES/small.toml");
    let all = [out.stdout, out.stderr].concat();
    assert!(!String::from_utf8_lossy(&all).contains("without taking any time"));
}

#[test]
fn truth_cpu_says_how_to_get_perf() {
    let f = Here::new();
    let out = Command::new(env!("CARGO_BIN_EXE_homenode"))
        .args(["truth", "cpu"])
        .current_dir(&*f.0)
        .env("PATH", &*f.0)
        .output()
        .expect("the command runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("`apt install linux-perf` brings it"), "{said}");
}
