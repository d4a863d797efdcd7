//! The files of the simulated `/proc` and `/sys`: operations in, text out.

use super::bench::{Bench, kind};
use super::support::{self, cxl, dram, for_ms, machine, map, pmem, process, scenario, touch};
use crate::build::Setup;
use crate::files::Outcome;
use crate::program::Ids;
use crate::sched::Terms;
use crate::simulation::Simulation;
use crate::space::Kind;
use crate::tasks::Kind as TaskKind;
use crate::vmstat::{Item, Listed};
use expect_test::{Expect, expect};
use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::Errno;
use homenode_core::scenario::*;
use homenode_core::topology::{Hardware, ZoneKind};
use homenode_core::units::{NodeId, Pages, Picos};
use proptest::prelude::*;
use std::fmt::Write as _;

mod merging;

const NO_THP: (&str, &str) = ("transparent_hugepage", "never");

fn boot(machine: &Hardware, version: KernelVersion) -> Simulation {
    let setup = Setup { version, ..Setup::default() };
    Simulation::boot(machine, &setup, 1 << 14).expect("it boots")
}
fn two() -> Hardware {
    machine(&[dram(4096, 2), cxl(4096)])
}
fn on(machine: &Hardware, version: KernelVersion) -> Bench {
    let knobs = support::knobs(&[NO_THP]);
    Bench::with(machine, Setup { version, knobs, ..Setup::default() })
}

/// All files below a folder.
fn tree(sim: &Simulation, folder: &str, out: &mut Vec<String>) {
    for name in sim.list(folder).unwrap_or_else(|e| panic!("{e}")) {
        let path = format!("{}/{name}", folder.trim_end_matches('/'));
        match sim.list(&path) {
            Ok(_) => tree(sim, &path, out),
            Err(e) => {
                assert_eq!(e.errno, Errno::Enotdir, "{e}");
                out.push(path);
            }
        }
    }
}
fn all_files(sim: &Simulation) -> Vec<String> {
    let mut out = Vec::new();
    tree(sim, "/", &mut out);
    out
}

/// All that merging's files show.
fn merging(sim: &Simulation) -> Vec<String> {
    let folder = "/sys/kernel/mm/ksm";
    let read = |name: &String| {
        format!("{name}={}", sim.read_file(&format!("{folder}/{name}")).expect("a counter or knob"))
    };
    sim.list(folder).expect("every kernel has it").iter().map(read).collect()
}

/// Runs lines such as `nobody: write /proc/x = 2` or `read /proc/x` and adds what
/// came of each: `ok`, the text, or the error.
fn check(sim: &mut Simulation, lines: &str, expected: Expect) {
    let mut out = String::new();
    for line in lines.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (who, op) = match line.split_once(": ") {
            Some(("nobody", op)) => (Rights::Nobody, op),
            Some(("uncapped", op)) => (Rights::RootWithoutCaps, op),
            _ => (Rights::Root, line),
        };
        let answer = if let Some(path) = op.strip_prefix("read ") {
            sim.read_file_as(path, who)
        } else {
            let (path, text) = op
                .strip_prefix("write ")
                .and_then(|o| o.split_once(" = ").or_else(|| o.strip_suffix(" =").map(|p| (p, ""))))
                .expect("a read or a write");
            let text = text.replace("\\n", "\n").replace("\\t", "\t").replace("\\s", " ");
            let before = (sim.kernel.knobs.clone(), merging(sim));
            let done = sim.write_file(path, &text, who).map(|()| "ok\n".to_owned());
            if done.is_err() {
                let after = (sim.kernel.knobs.clone(), merging(sim));
                assert_eq!(before, after, "{line}: refused, yet changed");
            }
            done
        };
        match answer {
            Ok(text) if text.is_empty() => writeln!(out, "{line} -> nothing"),
            Ok(text) if text == "\n" => writeln!(out, "{line} -> an empty line"),
            Ok(text) => write!(out, "{line} -> {text}"),
            Err(e) => writeln!(out, "{line} -> {} {}: {}", e.errno.number(), e.errno.name(), e.why),
        }
        .expect("a String takes all");
    }
    expected.assert_eq(&out);
}

// ── Paths (specs/files.md#paths, specs/files.md#versions) ──────────────────────

#[test]
fn what_each_version_has() {
    let m = machine(&[dram(4096, 1), cxl(4096)]);
    let mut out = String::new();
    let mut before: Vec<String> = Vec::new();
    for version in KernelVersion::ALL {
        let now = all_files(&boot(&m, version));
        let _ = writeln!(out, "{version}: {} files", now.len());
        for gone in before.iter().filter(|p| !now.contains(p)) {
            let _ = writeln!(out, "  - {gone}");
        }
        for new in now.iter().filter(|p| !before.contains(p)) {
            let _ = writeln!(out, "  + {new}");
        }
        before = now;
    }
    expect![[r#"
        3.8: 102 files
          + /proc/1000/numa_maps
          + /proc/1000/sched
          + /proc/1000/schedstat
          + /proc/1000/status
          + /proc/1001/numa_maps
          + /proc/1001/sched
          + /proc/1001/schedstat
          + /proc/1001/status
          + /proc/schedstat
          + /proc/sys/kernel/latencytop
          + /proc/sys/kernel/numa_balancing_scan_delay_ms
          + /proc/sys/kernel/numa_balancing_scan_period_max_ms
          + /proc/sys/kernel/numa_balancing_scan_period_min_ms
          + /proc/sys/kernel/numa_balancing_scan_period_reset
          + /proc/sys/kernel/numa_balancing_scan_size_mb
          + /proc/sys/vm/min_free_kbytes
          + /proc/sys/vm/swappiness
          + /proc/vmstat
          + /proc/zoneinfo
          + /sys/devices/system/cpu/offline
          + /sys/devices/system/cpu/online
          + /sys/devices/system/cpu/possible
          + /sys/devices/system/cpu/present
          + /sys/devices/system/memory/block_size_bytes
          + /sys/devices/system/memory/memory0/online
          + /sys/devices/system/memory/memory0/phys_index
          + /sys/devices/system/memory/memory0/removable
          + /sys/devices/system/memory/memory0/state
          + /sys/devices/system/memory/memory0/valid_zones
          + /sys/devices/system/memory/memory1/online
          + /sys/devices/system/memory/memory1/phys_index
          + /sys/devices/system/memory/memory1/removable
          + /sys/devices/system/memory/memory1/state
          + /sys/devices/system/memory/memory1/valid_zones
          + /sys/devices/system/memory/memory2/online
          + /sys/devices/system/memory/memory2/phys_index
          + /sys/devices/system/memory/memory2/removable
          + /sys/devices/system/memory/memory2/state
          + /sys/devices/system/memory/memory2/valid_zones
          + /sys/devices/system/memory/memory3/online
          + /sys/devices/system/memory/memory3/phys_index
          + /sys/devices/system/memory/memory3/removable
          + /sys/devices/system/memory/memory3/state
          + /sys/devices/system/memory/memory3/valid_zones
          + /sys/devices/system/memory/memory4/online
          + /sys/devices/system/memory/memory4/phys_index
          + /sys/devices/system/memory/memory4/removable
          + /sys/devices/system/memory/memory4/state
          + /sys/devices/system/memory/memory4/valid_zones
          + /sys/devices/system/memory/memory5/online
          + /sys/devices/system/memory/memory5/phys_index
          + /sys/devices/system/memory/memory5/removable
          + /sys/devices/system/memory/memory5/state
          + /sys/devices/system/memory/memory5/valid_zones
          + /sys/devices/system/memory/memory6/online
          + /sys/devices/system/memory/memory6/phys_index
          + /sys/devices/system/memory/memory6/removable
          + /sys/devices/system/memory/memory6/state
          + /sys/devices/system/memory/memory6/valid_zones
          + /sys/devices/system/memory/memory7/online
          + /sys/devices/system/memory/memory7/phys_index
          + /sys/devices/system/memory/memory7/removable
          + /sys/devices/system/memory/memory7/state
          + /sys/devices/system/memory/memory7/valid_zones
          + /sys/devices/system/node/has_cpu
          + /sys/devices/system/node/has_memory
          + /sys/devices/system/node/has_normal_memory
          + /sys/devices/system/node/node0/cpulist
          + /sys/devices/system/node/node0/distance
          + /sys/devices/system/node/node0/meminfo
          + /sys/devices/system/node/node0/numastat
          + /sys/devices/system/node/node0/vmstat
          + /sys/devices/system/node/node1/cpulist
          + /sys/devices/system/node/node1/distance
          + /sys/devices/system/node/node1/meminfo
          + /sys/devices/system/node/node1/numastat
          + /sys/devices/system/node/node1/vmstat
          + /sys/devices/system/node/online
          + /sys/devices/system/node/possible
          + /sys/kernel/mm/ksm/full_scans
          + /sys/kernel/mm/ksm/merge_across_nodes
          + /sys/kernel/mm/ksm/pages_shared
          + /sys/kernel/mm/ksm/pages_sharing
          + /sys/kernel/mm/ksm/pages_to_scan
          + /sys/kernel/mm/ksm/pages_unshared
          + /sys/kernel/mm/ksm/pages_volatile
          + /sys/kernel/mm/ksm/run
          + /sys/kernel/mm/ksm/sleep_millisecs
          + /sys/kernel/mm/transparent_hugepage/defrag
          + /sys/kernel/mm/transparent_hugepage/enabled
          + /sys/kernel/mm/transparent_hugepage/khugepaged/alloc_sleep_millisecs
          + /sys/kernel/mm/transparent_hugepage/khugepaged/defrag
          + /sys/kernel/mm/transparent_hugepage/khugepaged/full_scans
          + /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none
          + /sys/kernel/mm/transparent_hugepage/khugepaged/pages_collapsed
          + /sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan
          + /sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs
          + /sys/kernel/tracing/events/sched/sched_stat_blocked/enable
          + /sys/kernel/tracing/events/sched/sched_stat_iowait/enable
          + /sys/kernel/tracing/events/sched/sched_stat_runtime/enable
          + /sys/kernel/tracing/events/sched/sched_stat_sleep/enable
          + /sys/kernel/tracing/events/sched/sched_stat_wait/enable
        4.5: 105 files
          - /proc/sys/kernel/numa_balancing_scan_period_reset
          + /proc/sys/kernel/numa_balancing
          + /proc/sys/kernel/sched_migration_cost_ns
          + /proc/sys/kernel/sched_nr_migrate
          + /proc/sys/kernel/sched_schedstats
        4.15: 112 files
          + /proc/sys/vm/watermark_scale_factor
          + /sys/kernel/mm/ksm/max_page_sharing
          + /sys/kernel/mm/ksm/stable_node_chains
          + /sys/kernel/mm/ksm/stable_node_chains_prune_millisecs
          + /sys/kernel/mm/ksm/stable_node_dups
          + /sys/kernel/mm/ksm/use_zero_pages
          + /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_swap
        5.18: 114 files
          - /proc/sys/kernel/numa_balancing_scan_delay_ms
          - /proc/sys/kernel/numa_balancing_scan_period_max_ms
          - /proc/sys/kernel/numa_balancing_scan_period_min_ms
          - /proc/sys/kernel/numa_balancing_scan_size_mb
          - /proc/sys/kernel/sched_migration_cost_ns
          - /proc/sys/kernel/sched_nr_migrate
          + /sys/kernel/debug/sched/migration_cost_ns
          + /sys/kernel/debug/sched/nr_migrate
          + /sys/kernel/debug/sched/numa_balancing/scan_delay_ms
          + /sys/kernel/debug/sched/numa_balancing/scan_period_max_ms
          + /sys/kernel/debug/sched/numa_balancing/scan_period_min_ms
          + /sys/kernel/debug/sched/numa_balancing/scan_size_mb
          + /sys/kernel/mm/numa/demotion_enabled
          + /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_shared
        6.1: 124 files
          + /proc/1000/ksm_merging_pages
          + /proc/1000/ksm_stat
          + /proc/1001/ksm_merging_pages
          + /proc/1001/ksm_stat
          + /proc/sys/kernel/numa_balancing_promote_rate_limit_MBps
          + /sys/devices/virtual/memory_tiering/memory_tier22/nodelist
          + /sys/devices/virtual/memory_tiering/memory_tier4/nodelist
          + /sys/kernel/debug/sched/numa_balancing/hot_threshold_ms
          + /sys/kernel/mm/lru_gen/enabled
          + /sys/kernel/mm/lru_gen/min_ttl_ms
        6.12: 137 files
          - /sys/devices/virtual/memory_tiering/memory_tier22/nodelist
          + /sys/devices/virtual/memory_tiering/memory_tier37/nodelist
          + /sys/kernel/debug/sched/base_slice_ns
          + /sys/kernel/mm/ksm/advisor_max_cpu
          + /sys/kernel/mm/ksm/advisor_max_pages_to_scan
          + /sys/kernel/mm/ksm/advisor_min_pages_to_scan
          + /sys/kernel/mm/ksm/advisor_mode
          + /sys/kernel/mm/ksm/advisor_target_scan_time
          + /sys/kernel/mm/ksm/general_profit
          + /sys/kernel/mm/ksm/ksm_zero_pages
          + /sys/kernel/mm/ksm/pages_scanned
          + /sys/kernel/mm/ksm/pages_skipped
          + /sys/kernel/mm/ksm/smart_scan
          + /sys/kernel/mm/mempolicy/weighted_interleave/node0
          + /sys/kernel/mm/mempolicy/weighted_interleave/node1
        7.3: 137 files
    "#]]
    .assert_eq(&out);
}

#[test]
fn every_file_can_be_read_and_ends_its_last_line() {
    for version in KernelVersion::ALL {
        let sim = boot(&two(), version);
        for path in all_files(&sim) {
            let text = sim.read_file(&path).unwrap_or_else(|e| panic!("{e}"));
            assert!(text.is_empty() || text.ends_with('\n'), "{version} {path}: {text:?}");
            // A kernel thread has no memory.
            let of_memory = path.ends_with("numa_maps") || path.contains("/ksm_");
            let of_memory = of_memory && path.starts_with("/proc/");
            assert_eq!(text.is_empty(), of_memory, "{version} {path}");
        }
    }
}

#[test]
fn paths_are_walked_as_the_kernel_walks_them() {
    check(
        &mut boot(&two(), KernelVersion::V6_12),
        "
        read //proc/./sys/../sys/kernel//numa_balancing
        read /../proc/sys/kernel/numa_balancing
        read /proc/sys/kernel/numa_balancing/
        read /proc/vmstat/x
        read /proc/vmstat/../vmstat
        read /proc/sys
        read /
        read numa_balancing
        write /proc/sys/kernel = 1
        write /proc/sys/kernel/ = 1
        read /proc/sys/kernel/numa_balancing_scan_delay_ms
        read /sys/devices/system/node/node7/vmstat
        read /sys/kernel/mm/mempolicy/weighted_interleave/node7
        write /proc/4711/numa_maps = 1
        read /nonsense
        ",
        expect![[r#"
            read //proc/./sys/../sys/kernel//numa_balancing -> 1
            read /../proc/sys/kernel/numa_balancing -> 1
            read /proc/sys/kernel/numa_balancing/ -> 20 ENOTDIR: /proc/sys/kernel/numa_balancing is a file
            read /proc/vmstat/x -> 20 ENOTDIR: /proc/vmstat is a file
            read /proc/vmstat/../vmstat -> 20 ENOTDIR: /proc/vmstat is a file
            read /proc/sys -> 21 EISDIR: this is a folder
            read / -> 21 EISDIR: this is a folder
            read numa_balancing -> 2 ENOENT: a path begins with a slash
            write /proc/sys/kernel = 1 -> 21 EISDIR: this is a folder
            write /proc/sys/kernel/ = 1 -> 21 EISDIR: this is a folder
            read /proc/sys/kernel/numa_balancing_scan_delay_ms -> 2 ENOENT: Linux 6.12 has it as /sys/kernel/debug/sched/numa_balancing/scan_delay_ms
            read /sys/devices/system/node/node7/vmstat -> 2 ENOENT: the simulated kernel has no such file; in /sys/devices/system/node there are has_cpu, has_memory, has_normal_memory, node0, node1, online, possible
            read /sys/kernel/mm/mempolicy/weighted_interleave/node7 -> 2 ENOENT: the simulated kernel has no such file; in /sys/kernel/mm/mempolicy/weighted_interleave there are node0, node1
            write /proc/4711/numa_maps = 1 -> 2 ENOENT: the simulated kernel has no such file; in /proc there are 1000, 1001, schedstat, sys, vmstat, zoneinfo
            read /nonsense -> 2 ENOENT: the simulated kernel has no such file; in / there are proc, sys
        "#]],
    );
}

// ── Rights (specs/files.md#rights) ─────────────────────────────────────────────

#[test]
fn who_may_do_what() {
    check(
        &mut boot(&two(), KernelVersion::V6_12),
        "
        nobody: read /proc/sys/kernel/numa_balancing
        nobody: write /proc/sys/kernel/numa_balancing = 1
        uncapped: write /proc/sys/kernel/numa_balancing = 1
        uncapped: write /proc/sys/kernel/numa_balancing_promote_rate_limit_MBps = 1
        uncapped: write /proc/sys/vm/swappiness = 10
        nobody: write /proc/sys/vm/swappiness = 10
        uncapped: write /sys/kernel/mm/numa/demotion_enabled = 1
        nobody: write /sys/kernel/mm/numa/demotion_enabled = 1
        uncapped: write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = 1
        nobody: read /sys/kernel/debug/sched/numa_balancing/scan_delay_ms
        nobody: write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = 1
        nobody: read /sys/kernel/debug/no_such_file
        write /proc/vmstat = 0
        uncapped: write /proc/vmstat = 0
        nobody: write /proc/vmstat = 0
        write /proc/zoneinfo = 0
        write /sys/devices/system/node/node0/vmstat = 0
        write /sys/devices/system/node/online = 0
        write /sys/devices/virtual/memory_tiering/memory_tier4/nodelist = 1
        write /proc/1000/numa_maps = 0
        write /proc/1000/status = 0
        nobody: read /proc/1000/numa_maps
        nobody: read /sys/devices/system/node/online
        ",
        expect![[r#"
            nobody: read /proc/sys/kernel/numa_balancing -> 1
            nobody: write /proc/sys/kernel/numa_balancing = 1 -> 13 EACCES: its mode is 0644: only root may write to it
            uncapped: write /proc/sys/kernel/numa_balancing = 1 -> 1 EPERM: "1" is refused; writing it needs CAP_SYS_ADMIN
            uncapped: write /proc/sys/kernel/numa_balancing_promote_rate_limit_MBps = 1 -> ok
            uncapped: write /proc/sys/vm/swappiness = 10 -> ok
            nobody: write /proc/sys/vm/swappiness = 10 -> 13 EACCES: its mode is 0644: only root may write to it
            uncapped: write /sys/kernel/mm/numa/demotion_enabled = 1 -> ok
            nobody: write /sys/kernel/mm/numa/demotion_enabled = 1 -> 13 EACCES: its mode is 0644: only root may write to it
            uncapped: write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = 1 -> ok
            nobody: read /sys/kernel/debug/sched/numa_balancing/scan_delay_ms -> 13 EACCES: only root may enter /sys/kernel/debug
            nobody: write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = 1 -> 13 EACCES: only root may enter /sys/kernel/debug
            nobody: read /sys/kernel/debug/no_such_file -> 13 EACCES: only root may enter /sys/kernel/debug
            write /proc/vmstat = 0 -> 5 EIO: this file is for reading only
            uncapped: write /proc/vmstat = 0 -> 13 EACCES: this file is for reading only
            nobody: write /proc/vmstat = 0 -> 13 EACCES: this file is for reading only
            write /proc/zoneinfo = 0 -> 5 EIO: this file is for reading only
            write /sys/devices/system/node/node0/vmstat = 0 -> 13 EACCES: this file is for reading only
            write /sys/devices/system/node/online = 0 -> 13 EACCES: this file is for reading only
            write /sys/devices/virtual/memory_tiering/memory_tier4/nodelist = 1 -> 13 EACCES: this file is for reading only
            write /proc/1000/numa_maps = 0 -> 22 EINVAL: this file is for reading only
            write /proc/1000/status = 0 -> 22 EINVAL: this file is for reading only
            nobody: read /proc/1000/numa_maps -> 13 EACCES: the process is another user's
            nobody: read /sys/devices/system/node/online -> 0-1
        "#]],
    );
}

// ── Values (specs/knobs.md) ────────────────────────────────────────────────────

#[test]
fn the_bit_field() {
    let lines: String =
        ["0", "\\s1\\s\\n", "0x2\\n", "3 and more", "02", "2\\t", "", "\\s", "two", "-1"]
            .iter()
            .chain(&["5", "2x", "4", "4\\n", "0x4", "99999999999999999999", "1.5", "+1"])
            .map(|v| format!("write /proc/sys/kernel/numa_balancing = {v}\n"))
            .collect();
    let sim = &mut boot(&two(), KernelVersion::V6_12);
    check(
        sim,
        &lines,
        expect![[r#"
            write /proc/sys/kernel/numa_balancing = 0 -> ok
            write /proc/sys/kernel/numa_balancing = \s1\s\n -> ok
            write /proc/sys/kernel/numa_balancing = 0x2\n -> ok
            write /proc/sys/kernel/numa_balancing = 3 and more -> ok
            write /proc/sys/kernel/numa_balancing = 02 -> ok
            write /proc/sys/kernel/numa_balancing = 2\t -> ok
            write /proc/sys/kernel/numa_balancing = -> 22 EINVAL: "" is refused; allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)
            write /proc/sys/kernel/numa_balancing = \s -> 22 EINVAL: " " is refused; allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)
            write /proc/sys/kernel/numa_balancing = two -> 22 EINVAL: "two" is refused; allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)
            write /proc/sys/kernel/numa_balancing = -1 -> 22 EINVAL: "-1" is refused; allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)
            write /proc/sys/kernel/numa_balancing = 5 -> 22 EINVAL: "5" is refused; allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)
            write /proc/sys/kernel/numa_balancing = 2x -> 22 EINVAL: "2x" is refused; allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)
            write /proc/sys/kernel/numa_balancing = 4 -> 22 EINVAL: "4" is refused; allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)
            write /proc/sys/kernel/numa_balancing = 4\n -> 22 EINVAL: "4" is refused; allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)
            write /proc/sys/kernel/numa_balancing = 0x4 -> 22 EINVAL: "0x4" is refused; allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)
            write /proc/sys/kernel/numa_balancing = 99999999999999999999 -> 22 EINVAL: "99999999999999999999" is refused; allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)
            write /proc/sys/kernel/numa_balancing = 1.5 -> 22 EINVAL: "1.5" is refused; allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)
            write /proc/sys/kernel/numa_balancing = +1 -> 22 EINVAL: "+1" is refused; allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)
        "#]],
    );
    check(
        sim,
        "read /proc/sys/kernel/numa_balancing",
        expect![[r#"
        read /proc/sys/kernel/numa_balancing -> 2
    "#]],
    );
    // The quirk is there for who asks for it; specs/exceptions/numa-balancing-4.md.
    sim.kernel.knobs.emulate_quirks = true;
    check(
        sim,
        "write /proc/sys/kernel/numa_balancing = 4
         read /proc/sys/kernel/numa_balancing",
        expect![[r#"
            write /proc/sys/kernel/numa_balancing = 4 -> ok
            read /proc/sys/kernel/numa_balancing -> 4
        "#]],
    );
}

#[test]
fn numbers_in_debugfs() {
    const DIR: &str = "/sys/kernel/debug/sched/numa_balancing";
    let sim = &mut boot(&two(), KernelVersion::V6_12);
    let lines: String =
        ["0x10", "010", "+7\\n", "4294967297", "18446744073709551615", "18446744073709551616"]
            .iter()
            .chain(&["", "abc", "-1", "12\\s", "\\s12", "08", "0x", "1\\n\\n"])
            .map(|v| format!("write {DIR}/scan_delay_ms = {v}\nread {DIR}/scan_delay_ms\n"))
            .collect();
    check(
        sim,
        &lines,
        expect![[r#"
            write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = 0x10 -> ok
            read /sys/kernel/debug/sched/numa_balancing/scan_delay_ms -> 16
            write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = 010 -> ok
            read /sys/kernel/debug/sched/numa_balancing/scan_delay_ms -> 8
            write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = +7\n -> ok
            read /sys/kernel/debug/sched/numa_balancing/scan_delay_ms -> 7
            write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = 4294967297 -> ok
            read /sys/kernel/debug/sched/numa_balancing/scan_delay_ms -> 1
            write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = 18446744073709551615 -> ok
            read /sys/kernel/debug/sched/numa_balancing/scan_delay_ms -> 4294967295
            write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = 18446744073709551616 -> 34 ERANGE: "18446744073709551616" is refused; allowed is a number from 0 to 4294967295, decimal, 0x hexadecimal or 0 octal
            read /sys/kernel/debug/sched/numa_balancing/scan_delay_ms -> 4294967295
            write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = -> 22 EINVAL: "" is refused; allowed is a number from 0 to 4294967295, decimal, 0x hexadecimal or 0 octal
            read /sys/kernel/debug/sched/numa_balancing/scan_delay_ms -> 4294967295
            write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = abc -> 22 EINVAL: "abc" is refused; allowed is a number from 0 to 4294967295, decimal, 0x hexadecimal or 0 octal
            read /sys/kernel/debug/sched/numa_balancing/scan_delay_ms -> 4294967295
            write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = -1 -> 22 EINVAL: "-1" is refused; allowed is a number from 0 to 4294967295, decimal, 0x hexadecimal or 0 octal
            read /sys/kernel/debug/sched/numa_balancing/scan_delay_ms -> 4294967295
            write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = 12\s -> 22 EINVAL: "12 " is refused; allowed is a number from 0 to 4294967295, decimal, 0x hexadecimal or 0 octal
            read /sys/kernel/debug/sched/numa_balancing/scan_delay_ms -> 4294967295
            write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = \s12 -> 22 EINVAL: " 12" is refused; allowed is a number from 0 to 4294967295, decimal, 0x hexadecimal or 0 octal
            read /sys/kernel/debug/sched/numa_balancing/scan_delay_ms -> 4294967295
            write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = 08 -> 22 EINVAL: "08" is refused; allowed is a number from 0 to 4294967295, decimal, 0x hexadecimal or 0 octal
            read /sys/kernel/debug/sched/numa_balancing/scan_delay_ms -> 4294967295
            write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = 0x -> 22 EINVAL: "0x" is refused; allowed is a number from 0 to 4294967295, decimal, 0x hexadecimal or 0 octal
            read /sys/kernel/debug/sched/numa_balancing/scan_delay_ms -> 4294967295
            write /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = 1\n\n -> 22 EINVAL: "1" is refused; allowed is a number from 0 to 4294967295, decimal, 0x hexadecimal or 0 octal
            read /sys/kernel/debug/sched/numa_balancing/scan_delay_ms -> 4294967295
        "#]],
    );
    check(
        sim,
        &format!(
            "write {DIR}/scan_size_mb = 0
             write {DIR}/scan_size_mb = 4294967296
             write {DIR}/scan_size_mb = 1
             write {DIR}/scan_period_min_ms = 0
             write {DIR}/scan_period_max_ms = 99999999999999999999
             write {DIR}/hot_threshold_ms = x
             read {DIR}/scan_size_mb"
        ),
        expect![[r#"
            write /sys/kernel/debug/sched/numa_balancing/scan_size_mb = 0 -> 22 EINVAL: "0" is refused; allowed are 1 to 4294967295 MB; 0 makes the kernel divide by zero
            write /sys/kernel/debug/sched/numa_balancing/scan_size_mb = 4294967296 -> 22 EINVAL: "4294967296" is refused; allowed are 1 to 4294967295 MB; 0 makes the kernel divide by zero
            write /sys/kernel/debug/sched/numa_balancing/scan_size_mb = 1 -> ok
            write /sys/kernel/debug/sched/numa_balancing/scan_period_min_ms = 0 -> ok
            write /sys/kernel/debug/sched/numa_balancing/scan_period_max_ms = 99999999999999999999 -> 34 ERANGE: "99999999999999999999" is refused; allowed is a number from 0 to 4294967295, decimal, 0x hexadecimal or 0 octal
            write /sys/kernel/debug/sched/numa_balancing/hot_threshold_ms = x -> 22 EINVAL: "x" is refused; allowed is a number from 0 to 4294967295, decimal, 0x hexadecimal or 0 octal
            read /sys/kernel/debug/sched/numa_balancing/scan_size_mb -> 1
        "#]],
    );
}

#[test]
fn the_other_knobs() {
    check(
        &mut boot(&two(), KernelVersion::V6_12),
        "
        write /proc/sys/kernel/numa_balancing_promote_rate_limit_MBps = 2147483647
        write /proc/sys/kernel/numa_balancing_promote_rate_limit_MBps = 2147483648
        write /proc/sys/kernel/numa_balancing_promote_rate_limit_MBps = -1
        read /proc/sys/kernel/numa_balancing_promote_rate_limit_MBps
        write /sys/kernel/mm/numa/demotion_enabled = Yes
        read /sys/kernel/mm/numa/demotion_enabled
        write /sys/kernel/mm/numa/demotion_enabled = of
        read /sys/kernel/mm/numa/demotion_enabled
        write /sys/kernel/mm/numa/demotion_enabled = enable
        write /sys/kernel/mm/numa/demotion_enabled = 2
        write /sys/kernel/mm/numa/demotion_enabled = o
        write /sys/kernel/mm/numa/demotion_enabled =
        write /proc/sys/vm/watermark_scale_factor = 0
        write /proc/sys/vm/watermark_scale_factor = 3001
        write /proc/sys/vm/swappiness = 201
        read /proc/sys/vm/min_free_kbytes
        write /sys/kernel/mm/transparent_hugepage/enabled = nev
        write /sys/kernel/mm/transparent_hugepage/enabled = never\\n
        read /sys/kernel/mm/transparent_hugepage/enabled
        read /proc/sys/vm/min_free_kbytes
        write /proc/sys/vm/min_free_kbytes = 512
        read /proc/sys/vm/min_free_kbytes
        write /sys/kernel/mm/mempolicy/weighted_interleave/node1 = 3
        write /sys/kernel/mm/mempolicy/weighted_interleave/node1 = 0
        read /sys/kernel/mm/mempolicy/weighted_interleave/node1
        ",
        expect![[r#"
            write /proc/sys/kernel/numa_balancing_promote_rate_limit_MBps = 2147483647 -> ok
            write /proc/sys/kernel/numa_balancing_promote_rate_limit_MBps = 2147483648 -> 22 EINVAL: "2147483648" is refused; allowed are 0 to 2147483647
            write /proc/sys/kernel/numa_balancing_promote_rate_limit_MBps = -1 -> 22 EINVAL: "-1" is refused; allowed are 0 to 2147483647
            read /proc/sys/kernel/numa_balancing_promote_rate_limit_MBps -> 2147483647
            write /sys/kernel/mm/numa/demotion_enabled = Yes -> ok
            read /sys/kernel/mm/numa/demotion_enabled -> true
            write /sys/kernel/mm/numa/demotion_enabled = of -> ok
            read /sys/kernel/mm/numa/demotion_enabled -> false
            write /sys/kernel/mm/numa/demotion_enabled = enable -> 22 EINVAL: "enable" is refused; allowed are 1, y, t, on and 0, n, f, off
            write /sys/kernel/mm/numa/demotion_enabled = 2 -> 22 EINVAL: "2" is refused; allowed are 1, y, t, on and 0, n, f, off
            write /sys/kernel/mm/numa/demotion_enabled = o -> 22 EINVAL: "o" is refused; allowed are 1, y, t, on and 0, n, f, off
            write /sys/kernel/mm/numa/demotion_enabled = -> 22 EINVAL: "" is refused; allowed are 1, y, t, on and 0, n, f, off
            write /proc/sys/vm/watermark_scale_factor = 0 -> 22 EINVAL: "0" is refused; allowed are 1 to 3000
            write /proc/sys/vm/watermark_scale_factor = 3001 -> 22 EINVAL: "3001" is refused; allowed are 1 to 3000
            write /proc/sys/vm/swappiness = 201 -> 22 EINVAL: "201" is refused; allowed are 0 to 200
            read /proc/sys/vm/min_free_kbytes -> 816
            write /sys/kernel/mm/transparent_hugepage/enabled = nev -> 22 EINVAL: "nev" is refused; allowed are always, madvise, never
            write /sys/kernel/mm/transparent_hugepage/enabled = never\n -> ok
            read /sys/kernel/mm/transparent_hugepage/enabled -> always madvise [never]
            read /proc/sys/vm/min_free_kbytes -> 512
            write /proc/sys/vm/min_free_kbytes = 512 -> ok
            read /proc/sys/vm/min_free_kbytes -> 512
            write /sys/kernel/mm/mempolicy/weighted_interleave/node1 = 3 -> ok
            write /sys/kernel/mm/mempolicy/weighted_interleave/node1 = 0 -> 22 EINVAL: "0" is refused; allowed are 1 to 255, or nothing for the default
            read /sys/kernel/mm/mempolicy/weighted_interleave/node1 -> 3
        "#]],
    );
    check(
        &mut boot(&two(), KernelVersion::V7_3),
        "
        write /sys/kernel/mm/numa/demotion_enabled = enable
        read /sys/kernel/mm/numa/demotion_enabled
        ",
        expect![[r#"
            write /sys/kernel/mm/numa/demotion_enabled = enable -> ok
            read /sys/kernel/mm/numa/demotion_enabled -> true
        "#]],
    );
    // specs/knobs.md#sysctl [3.8]: sysctls without limits, negative into an unsigned.
    check(
        &mut boot(&two(), KernelVersion::V3_8),
        "
        read /proc/sys/kernel/numa_balancing_scan_delay_ms
        write /proc/sys/kernel/numa_balancing_scan_delay_ms = -1
        read /proc/sys/kernel/numa_balancing_scan_delay_ms
        write /proc/sys/kernel/numa_balancing_scan_size_mb = 0
        nobody: write /proc/sys/kernel/numa_balancing_scan_delay_ms = 5
        read /proc/sys/kernel/numa_balancing
        read /sys/kernel/mm/numa/demotion_enabled
        ",
        expect![[r#"
            read /proc/sys/kernel/numa_balancing_scan_delay_ms -> 1000
            write /proc/sys/kernel/numa_balancing_scan_delay_ms = -1 -> ok
            read /proc/sys/kernel/numa_balancing_scan_delay_ms -> -1
            write /proc/sys/kernel/numa_balancing_scan_size_mb = 0 -> 22 EINVAL: "0" is refused; allowed are 1 to 4294967295 MB; 0 makes the kernel divide by zero
            nobody: write /proc/sys/kernel/numa_balancing_scan_delay_ms = 5 -> 13 EACCES: its mode is 0644: only root may write to it
            read /proc/sys/kernel/numa_balancing -> 2 ENOENT: Linux 3.8 does not have it; 4.5, 4.15, 5.18, 6.1, 6.12, 7.3 do
            read /sys/kernel/mm/numa/demotion_enabled -> 2 ENOENT: Linux 3.8 does not have it; 5.18, 6.1, 6.12, 7.3 do
        "#]],
    );
}

// specs/knobs.md#table: on by default only where there is something to balance between.
#[test]
fn one_node_boots_with_balancing_off() {
    for (nodes, text) in [(vec![dram(4096, 1)], "0\n"), (vec![dram(4096, 1), dram(4096, 1)], "1\n")]
    {
        let sim = boot(&machine(&nodes), KernelVersion::V6_12);
        assert_eq!(sim.read_file("/proc/sys/kernel/numa_balancing").as_deref(), Ok(text));
    }
}

// ── Views ──────────────────────────────────────────────────────────────────────

#[test]
fn counters_by_version() {
    let mut before: Vec<String> = Vec::new();
    let mut out = String::new();
    for version in KernelVersion::ALL {
        let text = boot(&two(), version).read_file("/proc/vmstat").expect("it is there");
        let now: Vec<String> =
            text.lines().filter_map(|l| Some(l.split_once(' ')?.0.to_owned())).collect();
        let _ = writeln!(out, "{version}:");
        match before.is_empty() {
            true => now.iter().for_each(|n| out.push_str(&format!("  {n}\n"))),
            false => {
                let gone = before.iter().filter(|n| !now.contains(n));
                gone.for_each(|n| out.push_str(&format!("  - {n}\n")));
                for (i, n) in now.iter().enumerate().filter(|(_, n)| !before.contains(n)) {
                    let _ = writeln!(out, "  + {n} after {}", now[i.max(1) - 1]);
                }
            }
        }
        before = now;
    }
    expect![[r#"
        3.8:
          nr_free_pages
          nr_zone_inactive_anon
          nr_zone_active_anon
          nr_zone_inactive_file
          nr_zone_active_file
          nr_zone_unevictable
          numa_hit
          numa_miss
          numa_foreign
          numa_local
          numa_other
          nr_inactive_anon
          nr_active_anon
          nr_inactive_file
          nr_active_file
          nr_unevictable
          nr_anon_transparent_hugepages
          pgpromote_success
          pswpin
          pswpout
          pgalloc_dma
          pgalloc_dma32
          pgalloc_normal
          pgalloc_movable
          allocstall_dma
          allocstall_dma32
          allocstall_normal
          allocstall_movable
          pgfree
          pgactivate
          pgdeactivate
          pgfault
          pgmajfault
          pgrefill
          pgsteal_kswapd
          pgsteal_direct
          pgdemote_kswapd
          pgdemote_direct
          pgscan_kswapd
          pgscan_direct
          pageoutrun
          oom_kill
          numa_pte_updates
          numa_huge_pte_updates
          numa_hint_faults
          numa_hint_faults_local
          numa_pages_migrated
          pgmigrate_success
          pgmigrate_fail
          thp_fault_alloc
          thp_fault_fallback
          thp_collapse_alloc
          thp_collapse_alloc_failed
          thp_split_page
          ksm_swpin_copy
        4.5:
          + thp_split_pmd after thp_split_page
        4.15:
          + thp_swpout after thp_split_pmd
          + thp_swpout_fallback after thp_swpout
        5.18:
        6.1:
          + pgpromote_candidate after pgpromote_success
          + thp_migration_success after pgmigrate_fail
          + thp_migration_fail after thp_migration_success
          + thp_migration_split after thp_migration_fail
          + cow_ksm after ksm_swpin_copy
        6.12:
          + pgdemote_khugepaged after pgdemote_direct
          + pgsteal_khugepaged after pgsteal_direct
          + pgscan_khugepaged after pgscan_direct
        7.3:
          + pgdemote_proactive after pgdemote_khugepaged
    "#]]
    .assert_eq(&out);
}

// specs/tiering.md#watermarks: the example of one zone of 1048576 pages, and [6.12]'s line of
// the mark.
#[test]
fn zones_and_their_marks() {
    let m = machine(&[dram(1 << 20, 1)]);
    let zone = |version| {
        let mut sim = boot(&m, version);
        sim.write_file("/proc/sys/vm/min_free_kbytes", "67584", Rights::Root).expect("legal");
        let text = sim.read_file("/proc/zoneinfo").expect("it is there");
        let own = text.lines().skip_while(|l| !l.contains("pages free")).skip(1);
        own.map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut out = String::new();
    for version in KernelVersion::ALL {
        let _ = writeln!(out, "{version}: {}", zone(version));
    }
    expect![[r#"
        3.8: boost 0, min 16896, low 21120, high 25344, spanned 1048576, present 1048576, managed 1048576, cma 0, protection: (0, 0, 0, 0, 0), nr_free_pages 1048576
        4.5: boost 0, min 16896, low 21120, high 25344, spanned 1048576, present 1048576, managed 1048576, cma 0, protection: (0, 0, 0, 0, 0), nr_free_pages 1048576
        4.15: boost 0, min 16896, low 21120, high 25344, spanned 1048576, present 1048576, managed 1048576, cma 0, protection: (0, 0, 0, 0, 0), nr_free_pages 1048576
        5.18: boost 0, min 16896, low 21120, high 25344, spanned 1048576, present 1048576, managed 1048576, cma 0, protection: (0, 0, 0, 0, 0), nr_free_pages 1048576
        6.1: boost 0, min 16896, low 21120, high 25344, spanned 1048576, present 1048576, managed 1048576, cma 0, protection: (0, 0, 0, 0, 0), nr_free_pages 1048576
        6.12: boost 0, min 16896, low 21120, high 25344, promo 29568, spanned 1048576, present 1048576, managed 1048576, cma 0, protection: (0, 0, 0, 0, 0), nr_free_pages 1048576
        7.3: boost 0, min 16896, low 21120, high 25344, promo 29568, spanned 1048576, present 1048576, managed 1048576, cma 0, protection: (0, 0, 0, 0, 0), nr_free_pages 1048576
    "#]].assert_eq(&out);
}

#[test]
fn a_machine_in_views() {
    use ZoneKind::{Dma32, Movable, Normal};
    let mut first = dram(0, 3);
    first.zones = vec![(Dma32, 2048), (Normal, 4096), (Movable, 1024)];
    let mut empty = dram(0, 1);
    empty.zones.clear();
    let mut b = on(&machine(&[first, cxl(8192), empty]), KernelVersion::V6_12);
    let anon = b.map(4096, kind());
    b.fill(anon, 3000);
    let file = b.map(100, Kind { file: true, ..kind() });
    b.fill(file, 100);
    let folder = "/sys/devices/system/node";
    check(
        &mut b.sim,
        &format!(
            "read /proc/zoneinfo
             read {folder}/online
             read {folder}/possible
             read {folder}/has_cpu
             read {folder}/has_memory
             read {folder}/has_normal_memory
             read {folder}/node0/cpulist
             read {folder}/node1/cpulist
             read {folder}/node0/distance
             read {folder}/node0/meminfo
             read {folder}/node1/meminfo
             read {folder}/node2/meminfo
             read {folder}/node0/numastat
             read {folder}/node1/vmstat"
        ),
        expect![[r#"
            read /proc/zoneinfo -> Node 0, zone    DMA32
              per-node stats
                  nr_inactive_anon 0
                  nr_active_anon 3000
                  nr_inactive_file 0
                  nr_active_file 100
                  nr_unevictable 0
                  nr_anon_transparent_hugepages 0
                  pgpromote_success 0
                  pgpromote_candidate 0
                  pgdemote_kswapd 0
                  pgdemote_direct 0
                  pgdemote_khugepaged 0
              pages free     2048
                    boost    0
                    min      52
                    low      65
                    high     78
                    promo    91
                    spanned  2048
                    present  2048
                    managed  2048
                    cma      0
                    protection: (0, 0, 16, 20, 20)
                  nr_free_pages 2048
            Node 0, zone   Normal
              pages free     1982
                    boost    0
                    min      104
                    low      130
                    high     156
                    promo    182
                    spanned  4096
                    present  4096
                    managed  4096
                    cma      0
                    protection: (0, 0, 0, 32, 32)
                  nr_free_pages 1982
            Node 0, zone  Movable
              pages free     38
                    boost    0
                    min      32
                    low      38
                    high     44
                    promo    50
                    spanned  1024
                    present  1024
                    managed  1024
                    cma      0
                    protection: (0, 0, 0, 0, 0)
                  nr_free_pages 38
            Node 1, zone  Movable
              per-node stats
                  nr_inactive_anon 0
                  nr_active_anon 0
                  nr_inactive_file 0
                  nr_active_file 0
                  nr_unevictable 0
                  nr_anon_transparent_hugepages 0
                  pgpromote_success 0
                  pgpromote_candidate 0
                  pgdemote_kswapd 0
                  pgdemote_direct 0
                  pgdemote_khugepaged 0
              pages free     8192
                    boost    0
                    min      32
                    low      84
                    high     136
                    promo    188
                    spanned  8192
                    present  8192
                    managed  8192
                    cma      0
                    protection: (0, 0, 0, 0, 0)
                  nr_free_pages 8192
            read /sys/devices/system/node/online -> 0-2
            read /sys/devices/system/node/possible -> 0-2
            read /sys/devices/system/node/has_cpu -> 0,2
            read /sys/devices/system/node/has_memory -> 0-1
            read /sys/devices/system/node/has_normal_memory -> 0
            read /sys/devices/system/node/node0/cpulist -> 0-2
            read /sys/devices/system/node/node1/cpulist -> an empty line
            read /sys/devices/system/node/node0/distance -> 10 17 21
            read /sys/devices/system/node/node0/meminfo -> Node 0 MemTotal:          28672 kB
            Node 0 MemFree:           16272 kB
            Node 0 MemUsed:           12400 kB
            Node 0 Active:            12400 kB
            Node 0 Inactive:              0 kB
            Node 0 Active(anon):      12000 kB
            Node 0 Inactive(anon):        0 kB
            Node 0 Active(file):        400 kB
            Node 0 Inactive(file):        0 kB
            Node 0 Unevictable:           0 kB
            Node 0 AnonHugePages:         0 kB
            read /sys/devices/system/node/node1/meminfo -> Node 1 MemTotal:          32768 kB
            Node 1 MemFree:           32768 kB
            Node 1 MemUsed:               0 kB
            Node 1 Active:                0 kB
            Node 1 Inactive:              0 kB
            Node 1 Active(anon):          0 kB
            Node 1 Inactive(anon):        0 kB
            Node 1 Active(file):          0 kB
            Node 1 Inactive(file):        0 kB
            Node 1 Unevictable:           0 kB
            Node 1 AnonHugePages:         0 kB
            read /sys/devices/system/node/node2/meminfo -> Node 2 MemTotal:              0 kB
            Node 2 MemFree:               0 kB
            Node 2 MemUsed:               0 kB
            Node 2 Active:                0 kB
            Node 2 Inactive:              0 kB
            Node 2 Active(anon):          0 kB
            Node 2 Inactive(anon):        0 kB
            Node 2 Active(file):          0 kB
            Node 2 Inactive(file):        0 kB
            Node 2 Unevictable:           0 kB
            Node 2 AnonHugePages:         0 kB
            read /sys/devices/system/node/node0/numastat -> numa_hit 3100
            numa_miss 0
            numa_foreign 0
            local_node 3100
            other_node 0
            read /sys/devices/system/node/node1/vmstat -> nr_free_pages 8192
            nr_zone_inactive_anon 0
            nr_zone_active_anon 0
            nr_zone_inactive_file 0
            nr_zone_active_file 0
            nr_zone_unevictable 0
            numa_hit 0
            numa_miss 0
            numa_foreign 0
            numa_local 0
            numa_other 0
            nr_inactive_anon 0
            nr_active_anon 0
            nr_inactive_file 0
            nr_active_file 0
            nr_unevictable 0
            nr_anon_transparent_hugepages 0
            pgpromote_success 0
            pgpromote_candidate 0
            pgdemote_kswapd 0
            pgdemote_direct 0
            pgdemote_khugepaged 0
        "#]],
    );
}

// specs/tiering.md#tiers: 5.18 has no files of tiers, 6.1 ignores the HMAT, 6.12 heeds it.
#[test]
fn tiers_by_version() {
    let m = machine(&[dram(4096, 1), dram(4096, 1), cxl(4096), pmem(4096)]);
    let mut out = String::new();
    for version in KernelVersion::ALL {
        let sim = boot(&m, version);
        let folder = "/sys/devices/virtual/memory_tiering";
        let _ = write!(out, "{version}:");
        match sim.list(folder) {
            Err(e) => assert_eq!(e.errno, Errno::Enoent),
            Ok(tiers) => {
                for tier in tiers {
                    let nodes = sim.read_file(&format!("{folder}/{tier}/nodelist"));
                    let _ = write!(out, " {tier}={}", nodes.expect("it is there").trim_end());
                }
            }
        }
        out.push('\n');
    }
    expect![[r#"
        3.8:
        4.5:
        4.15:
        5.18:
        6.1: memory_tier22=2-3 memory_tier4=0-1
        6.12: memory_tier180=3 memory_tier37=2 memory_tier4=0-1
        7.3: memory_tier180=3 memory_tier37=2 memory_tier4=0-1
    "#]]
    .assert_eq(&out);
}

#[test]
fn mappings_and_their_nodes() {
    let m = machine(&[dram(4096, 1), cxl(4096)]);
    let setup = Setup {
        model: Model { swap: Swap::Device(Pages(64)), ..Model::default() },
        ..Setup::default()
    };
    let mut b = Bench::with(&m, setup);
    let policies = [
        Mempolicy::Default,
        Mempolicy::Local,
        Mempolicy::Preferred(NodeId(1)),
        Mempolicy::Bind { nodes: vec![NodeId(0), NodeId(1)], balancing: false },
        Mempolicy::Bind { nodes: vec![NodeId(1)], balancing: true },
        Mempolicy::Interleave(vec![NodeId(0), NodeId(1)]),
        Mempolicy::WeightedInterleave(vec![(NodeId(1), 3), (NodeId(0), 1)]),
    ];
    for policy in policies {
        let page = b.map(8, Kind { policy, ..kind() });
        b.fill(page, 6);
    }
    // A mapping that nobody has touched, huge pages, a file, shared memory.
    b.map(8, kind());
    let huge = b.map(1024, Kind { huge: Some(true), ..kind() });
    b.fill(huge, 1);
    let start = b.sim.kernel.space(b.space).above();
    let file = Kind { file: true, ..kind() };
    let m = crate::kernel::Mapping { start, pages: 8, kind: file, name: "my data=1".into() };
    b.sim.kernel.map(&mut b.ctx, b.space, m, &Mempolicy::Default).expect("room");
    let page = b.sim.kernel.space(b.space).place(start, true).expect("just mapped");
    b.touch(page, false).expect("memory is left");
    b.touch(page + 1, true).expect("memory is left");
    let shared = b.map(8, Kind { shared: true, ..kind() });
    b.fill(shared, 2);
    check(
        &mut b.sim,
        "read /proc/1002/numa_maps
         read /proc/1002/status
         read /proc/1001/status
         read /proc/1001/numa_maps",
        expect![[r#"
            read /proc/1002/numa_maps -> 100200000 default anon=6 dirty=6 active=0 N0=6 kernelpagesize_kB=4
            100600000 local anon=6 dirty=6 active=0 N0=6 kernelpagesize_kB=4
            100a00000 prefer:1 anon=6 dirty=6 active=0 N1=6 kernelpagesize_kB=4
            100e00000 bind:0-1 anon=6 dirty=6 active=0 N0=6 kernelpagesize_kB=4
            101200000 bind=balancing:1 anon=6 dirty=6 active=0 N1=6 kernelpagesize_kB=4
            101600000 interleave:0-1 anon=6 dirty=6 active=0 N0=3 N1=3 kernelpagesize_kB=4
            101a00000 weighted interleave:0-1 anon=6 dirty=6 active=0 N0=1 N1=5 kernelpagesize_kB=4
            101e00000 default
            102200000 default anon=512 dirty=512 active=0 N0=512 kernelpagesize_kB=4
            102800000 default file=my\040data\0751 dirty=1 mapped=2 active=0 N0=2 kernelpagesize_kB=4
            102c00000 default file=/dev/zero\040(deleted) dirty=2 active=0 N0=2 kernelpagesize_kB=4
            read /proc/1002/status -> Name:	bench
            State:	R (running)
            Tgid:	1002
            Ngid:	0
            Pid:	1002
            PPid:	1
            VmSize:	    4416 kB
            VmRSS:	    2232 kB
            RssAnon:	    2216 kB
            RssFile:	       8 kB
            RssShmem:	       8 kB
            VmSwap:	       0 kB
            Threads:	1
            read /proc/1001/status -> Name:	kswapd1
            State:	S (sleeping)
            Tgid:	1001
            Ngid:	0
            Pid:	1001
            PPid:	2
            Threads:	1
            read /proc/1001/numa_maps -> nothing
        "#]],
    );
    b.check();
}

#[test]
fn a_fork_shares_pages() {
    let mut b = Bench::new(&two(), &[NO_THP]);
    let page = b.map(64, kind());
    b.fill(page, 64);
    let child = b.fork();
    let process = b.sim.add_program("child");
    let task = b.sim.new_task(
        TaskKind::Thread,
        process,
        child,
        0,
        &Terms::default(),
        Box::new(Ids::new([].into())),
    );
    b.sim.tasks[task].parent = Some(2);
    b.fill(page, 3);
    check(
        &mut b.sim,
        "read /proc/1002/numa_maps
         read /proc/1003/numa_maps
         read /proc/1003/status",
        expect![[r#"
            read /proc/1002/numa_maps -> 100200000 default anon=64 dirty=64 mapmax=2 active=0 N0=64 kernelpagesize_kB=4
            read /proc/1003/numa_maps -> 100200000 default anon=64 dirty=64 mapmax=2 active=0 N0=64 kernelpagesize_kB=4
            read /proc/1003/status -> Name:	child
            State:	R (running)
            Tgid:	1003
            Ngid:	0
            Pid:	1003
            PPid:	1002
            VmSize:	     256 kB
            VmRSS:	     256 kB
            RssAnon:	     256 kB
            RssFile:	       0 kB
            RssShmem:	       0 kB
            VmSwap:	       0 kB
            Threads:	1
        "#]],
    );
}

/// A number of a view's line.
fn value(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|l| l.split_whitespace().next() == Some(name));
    let number = line.and_then(|l| l.split_whitespace().nth(1)).expect("a line of that name");
    number.parse().expect("a number")
}

/// Whatever runs, the views say what the counters, the columns and the marks say.
fn agrees(sim: &Simulation) {
    let vmstat = sim.read_file("/proc/vmstat").expect("it is there");
    let version = sim.kernel.knobs.version;
    for item in Item::ALL.into_iter().filter(|i| i.listed(version) != Listed::Nowhere) {
        let shown = match item {
            Item::Pgalloc => ["dma", "dma32", "normal", "movable"]
                .iter()
                .map(|k| value(&vmstat, &format!("pgalloc_{k}")))
                .sum(),
            Item::Allocstall => value(&vmstat, "allocstall_movable"),
            _ => value(&vmstat, item.name()),
        };
        assert_eq!(shown, sim.vmstat().get(item), "{}", item.name());
    }
    let free = sim.free();
    assert_eq!(value(&vmstat, "nr_free_pages"), free.iter().sum::<u64>());
    let zoneinfo = sim.read_file("/proc/zoneinfo").expect("it is there");
    let shown: Vec<u64> = zoneinfo
        .lines()
        .filter_map(|l| l.strip_prefix("  pages free"))
        .map(|n| n.trim().parse().expect("a number"))
        .collect();
    let zones: Vec<u64> = sim.kernel.memory.zones.iter().map(|z| z.free).collect();
    assert_eq!(shown, zones);
    for (place, free) in free.iter().enumerate() {
        let folder = format!("/sys/devices/system/node/node{place}");
        let node = sim.read_file(&format!("{folder}/vmstat")).expect("it is there");
        assert_eq!(value(&node, "nr_free_pages"), *free);
        for item in [Item::NumaHit, Item::PgpromoteSuccess, Item::PgdemoteKswapd] {
            assert_eq!(value(&node, item.name()), sim.vmstat().of(place, item), "{item:?}");
        }
        let meminfo = sim.read_file(&format!("{folder}/meminfo")).expect("it is there");
        let kb = meminfo.lines().nth(1).and_then(|l| l.split_whitespace().nth(3));
        assert_eq!(kb, Some((free * 4).to_string().as_str()));
    }
    let mut rss = 0;
    for pid in sim.list("/proc").expect("it is there") {
        let Ok(maps) = sim.read_file(&format!("/proc/{pid}/numa_maps")) else { continue };
        let on_nodes: u64 = maps
            .split_whitespace()
            .filter_map(|w| w.strip_prefix('N')?.split_once('=')?.1.parse::<u64>().ok())
            .sum();
        let status = sim.read_file(&format!("/proc/{pid}/status")).expect("beside it");
        let shown = match status.contains("VmRSS") {
            true => value(&status, "VmRSS:") / 4,
            false => 0,
        };
        assert_eq!(on_nodes, shown, "{pid}");
        rss += shown;
    }
    let spaces = sim.kernel.spaces.iter().flatten();
    assert_eq!(rss, spaces.map(|s| s.rss).sum::<u64>());
}

fn busy() -> (Hardware, Scenario) {
    let m = machine(&[dram(4096, 2), cxl(4096)]);
    let mut huge = map("huge", 2048);
    huge.huge = Some(true);
    let access =
        |name: &str, ms| support::access(name, Pattern::Gauss { sd: 200 }, 300, for_ms(ms));
    let a = process(
        "a",
        &[0, 1],
        vec![map("heap", 3000), huge],
        vec![touch("huge"), touch("heap"), access("heap", 40), Step::Fork, access("heap", 40)],
    );
    let mut b = process("b", &[1], vec![map("late", 500)], vec![touch("late"), access("late", 20)]);
    b.start = Picos::from_ms(30);
    let mut s = scenario(vec![a, b]);
    s.knobs = support::knobs(&[
        ("numa_balancing", "2"),
        ("demotion_enabled", "1"),
        ("scan_delay_ms", "1"),
        ("scan_period_min_ms", "5"),
        ("min_free_kbytes", "512"),
    ]);
    (m, s)
}

#[test]
fn views_agree_with_what_is() {
    let (m, s) = busy();
    let mut sim = Simulation::new(&m, &s, &Setup::of(&s)).expect("it boots");
    let mut seen = Vec::new();
    while !sim.idle() && sim.now() < 300_000_000_000 {
        sim.run_until(sim.now() + 7_000_000_000);
        assert!(sim.error().is_none());
        agrees(&sim);
        seen.push(sim.list("/proc").expect("it is there").len());
    }
    // vmstat, zoneinfo, schedstat, sys, two kswapds, khugepaged; up to four programs, in the
    // end none.
    assert_eq!((seen.iter().max(), seen.last()), (Some(&11), Some(&7)), "{seen:?}");
    assert!(sim.vmstat().get(Item::PgpromoteSuccess) > 0);
}

// ── At given times (specs/files.md#actions) ────────────────────────────────────

fn at(ms: u64, what: FileOp, expect: Option<Errno>) -> Action {
    Action { at: Picos::from_ms(ms), who: Rights::Root, what, expect }
}
fn read(path: &str) -> FileOp {
    FileOp::Read { path: path.into() }
}
fn write(path: &str, text: &str) -> FileOp {
    FileOp::Write { path: path.into(), text: text.into() }
}
const MODE: &str = "/proc/sys/kernel/numa_balancing";

fn told(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    for o in outcomes {
        let came = match &o.result {
            None => "nothing".to_owned(),
            Some(Ok(text)) => format!("{:?}", text.lines().next().unwrap_or("")),
            Some(Err(e)) => e.errno.name().to_owned(),
        };
        let missed = o.missed().unwrap_or_else(|| "fine".into());
        let _ = writeln!(out, "{} ms {}: {came}; {missed}", o.action.at.as_ms(), o.path);
    }
    out
}

#[test]
fn what_came_of_each() {
    let (m, mut s) = busy();
    s.actions = vec![
        at(50, write(MODE, "0"), None),
        at(10, read(MODE), None),
        at(60, read(MODE), None),
        at(60, write(MODE, "4"), Some(Errno::Einval)),
        at(60, write(MODE, "4"), Some(Errno::Eperm)),
        at(60, write(MODE, "4"), None),
        at(60, write(MODE, "2"), Some(Errno::Einval)),
        Action { who: Rights::Nobody, ..at(60, write(MODE, "1"), Some(Errno::Eacces)) },
        Action { who: Rights::RootWithoutCaps, ..at(60, write(MODE, "1"), Some(Errno::Eperm)) },
        at(0, read("/proc/{a}/status"), None),
        at(29, read("/proc/{b}/status"), Some(Errno::Enoent)),
        at(30, read("/proc/{b}/status"), None),
        at(80, read("/proc/{b}/status"), None),
        at(80, read("/proc/{c}/status"), None),
        at(5000, read("/proc/vmstat"), Some(Errno::Enoent)),
    ];
    let mut sim = Simulation::new(&m, &s, &Setup::of(&s)).expect("it boots");
    sim.run();
    expect![[r#"
        50 ms /proc/sys/kernel/numa_balancing: ""; fine
        10 ms /proc/sys/kernel/numa_balancing: "2"; fine
        60 ms /proc/sys/kernel/numa_balancing: "0"; fine
        60 ms /proc/sys/kernel/numa_balancing: EINVAL; fine
        60 ms /proc/sys/kernel/numa_balancing: EINVAL; EPERM was expected, but EINVAL: "4" is refused; allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)
        60 ms /proc/sys/kernel/numa_balancing: EINVAL; it failed: EINVAL: "4" is refused; allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)
        60 ms /proc/sys/kernel/numa_balancing: ""; EINVAL was expected, but it succeeded
        60 ms /proc/sys/kernel/numa_balancing: EACCES; fine
        60 ms /proc/sys/kernel/numa_balancing: EPERM; fine
        0 ms /proc/1002/status: "Name:\ta"; fine
        29 ms /proc/{b}/status: ENOENT; fine
        30 ms /proc/1004/status: "Name:\tb"; fine
        80 ms /proc/1004/status: "Name:\tb"; fine
        80 ms /proc/{c}/status: ENOENT; it failed: ENOENT: no process named "c" has started yet
        5000 ms /proc/vmstat: nothing; the run was over before it
    "#]].assert_eq(&told(sim.outcomes()));
}

#[test]
fn a_write_takes_effect_when_it_says() {
    // Off until 40 ms: no hint fault before, some after, whatever the order of CPUs.
    for order in [CpuOrder::Strict, CpuOrder::Quantum(Picos::from_us(10))] {
        let (m, mut s) = busy();
        s.model.order = order;
        s.knobs[0].1 = "0".into();
        s.actions = vec![
            at(40, read("/proc/vmstat"), None),
            at(40, write(MODE, "2"), None),
            at(75, read("/proc/vmstat"), None),
        ];
        let run = || {
            let mut sim = Simulation::new(&m, &s, &Setup::of(&s)).expect("it boots");
            sim.run();
            sim
        };
        let sim = run();
        let text = |i: usize| match &sim.outcomes()[i].result {
            Some(Ok(text)) => text.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(value(&text(0), "numa_pte_updates"), 0);
        assert!(value(&text(2), "numa_pte_updates") > 0);
        assert_eq!(run().hash(), sim.hash(), "twice the same");
    }
}

#[test]
fn looking_changes_nothing_but_the_hash_of_what_was_seen() {
    let (m, mut s) = busy();
    let figures = |s: &Scenario| {
        let mut sim = Simulation::new(&m, s, &Setup::of(s)).expect("it boots");
        sim.run();
        (sim.vmstat().clone(), sim.hash())
    };
    let (plain, hash) = figures(&s);
    s.duration = None;
    // On a tick, where a quantum ends in any case.
    s.actions = vec![at(40, read("/proc/zoneinfo"), None)];
    let (seen, other) = figures(&s);
    assert_eq!(plain, seen);
    assert_ne!(hash, other);
}

// ── Any bytes to any path ──────────────────────────────────────────────────────

fn any_path() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        MODE,
        "/proc/sys/vm/min_free_kbytes",
        "/proc/sys/vm/swappiness",
        "/proc/sys/kernel/numa_balancing_scan_size_mb",
        "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps",
        "/sys/kernel/debug/sched/numa_balancing/scan_size_mb",
        "/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms",
        "/sys/kernel/mm/numa/demotion_enabled",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/kernel/mm/mempolicy/weighted_interleave/node1",
        "/proc/vmstat",
        "/proc/1000/numa_maps",
        "/sys/devices/system/node/node0/vmstat",
    ]);
    prop_oneof![
        4 => known.prop_map(str::to_owned),
        1 => "(/(proc|sys|\\.\\.|kernel|vm|1002|node0|devices|[^/]{0,3})){0,6}/?",
        1 => prop::collection::vec(any::<u8>(), 0..40)
            .prop_map(|b| String::from_utf8_lossy(&b).into_owned()),
    ]
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[ \\t]?[-+]?(0x)?[0-9]{1,4}[ \\n]?.{0,3}",
        1 => "(always|never|madvise|[yntfode1]{1,3})\\n?",
        1 => prop::collection::vec(any::<u8>(), 0..40)
            .prop_map(|b| String::from_utf8_lossy(&b).into_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_bytes_to_any_path(
        writes in prop::collection::vec((any_path(), any_text(), 0usize..3), 1..12),
        v in 0..KernelVersion::ALL.len(),
    ) {
        let mut sim = boot(&two(), KernelVersion::ALL[v]);
        for (path, text, who) in writes {
            let who = [Rights::Root, Rights::RootWithoutCaps, Rights::Nobody][who];
            let before = sim.kernel.knobs.clone();
            let views = sim.read_file("/proc/zoneinfo").expect("it is there");
            match sim.write_file(&path, &text, who) {
                Ok(()) => prop_assert!(sim.read_file(&path).is_ok()),
                Err(e) => {
                    prop_assert_eq!(&before, &sim.kernel.knobs);
                    prop_assert_eq!(views, sim.read_file("/proc/zoneinfo").expect("still"));
                    prop_assert_eq!(&e.path, &path);
                    prop_assert!(!e.why.is_empty());
                }
            }
            let _ = sim.list(&path);
            let read = sim.read_file_as(&path, who);
            // A folder is no file, a file no folder.
            prop_assert!(read.is_err() || sim.list(&path).is_err());
        }
    }
}
