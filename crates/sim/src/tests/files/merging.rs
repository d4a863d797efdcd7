//! Same-page merging's files (specs/files.md#ksm).

use super::*;
use crate::content::Content as Holds;
use crate::hot::KINDS;
use crate::kernel::Ctx;
use homenode_core::ksm::Step as KsmStep;

/// Guests on two nodes: `contents` says what each of their pages holds, 0 zeroes.
fn merging_bench(version: KernelVersion, contents: &[&[u64]]) -> Bench {
    let knobs = support::knobs(&[NO_THP]);
    let setup = Setup { version, knobs, contents: true, ..Setup::default() };
    let mut b = Bench::with(&machine(&[dram(8192, 1), dram(8192, 1)]), setup);
    b.by_hand();
    for (node, contents) in contents.iter().enumerate() {
        let policy = Mempolicy::Bind { nodes: vec![NodeId(node as u16)], balancing: false };
        let pages = contents.len() as u64;
        let first = b.map(pages, Kind { policy, mergeable: true, ..kind() });
        for (page, &what) in (first..).zip(*contents) {
            b.touch(page, true).expect("memory is left");
            let content = if what == 0 { Holds::ZERO } else { Holds::image(0, what) };
            b.sim.kernel.fill(page, content);
        }
    }
    b
}
fn passes(b: &mut Bench, n: u32) {
    let mut ctx = Ctx { task: usize::MAX, ..b.ctx };
    for _ in 0..n {
        while b.sim.kernel.ksmd_step(&mut ctx, &[0; KINDS], 0) != KsmStep::PassEnded {}
        b.check();
    }
}

#[test]
fn merging_as_it_boots() {
    let mut out = String::new();
    for version in KernelVersion::ALL {
        let all = merging(&boot(&two(), version)).concat();
        let _ = writeln!(out, "{version}: {}", all.trim_end().replace('\n', " "));
    }
    expect![[r#"
        3.8: full_scans=0 merge_across_nodes=1 pages_shared=0 pages_sharing=0 pages_to_scan=100 pages_unshared=0 pages_volatile=0 run=0 sleep_millisecs=20
        4.5: full_scans=0 merge_across_nodes=1 pages_shared=0 pages_sharing=0 pages_to_scan=100 pages_unshared=0 pages_volatile=0 run=0 sleep_millisecs=20
        4.15: full_scans=0 max_page_sharing=256 merge_across_nodes=1 pages_shared=0 pages_sharing=0 pages_to_scan=100 pages_unshared=0 pages_volatile=0 run=0 sleep_millisecs=20 stable_node_chains=0 stable_node_chains_prune_millisecs=2000 stable_node_dups=0 use_zero_pages=0
        5.18: full_scans=0 max_page_sharing=256 merge_across_nodes=1 pages_shared=0 pages_sharing=0 pages_to_scan=100 pages_unshared=0 pages_volatile=0 run=0 sleep_millisecs=20 stable_node_chains=0 stable_node_chains_prune_millisecs=2000 stable_node_dups=0 use_zero_pages=0
        6.1: full_scans=0 max_page_sharing=256 merge_across_nodes=1 pages_shared=0 pages_sharing=0 pages_to_scan=100 pages_unshared=0 pages_volatile=0 run=0 sleep_millisecs=20 stable_node_chains=0 stable_node_chains_prune_millisecs=2000 stable_node_dups=0 use_zero_pages=0
        6.12: advisor_max_cpu=70 advisor_max_pages_to_scan=30000 advisor_min_pages_to_scan=500 advisor_mode=[none] scan-time advisor_target_scan_time=200 full_scans=0 general_profit=0 ksm_zero_pages=0 max_page_sharing=256 merge_across_nodes=1 pages_scanned=0 pages_shared=0 pages_sharing=0 pages_skipped=0 pages_to_scan=100 pages_unshared=0 pages_volatile=0 run=0 sleep_millisecs=20 smart_scan=1 stable_node_chains=0 stable_node_chains_prune_millisecs=2000 stable_node_dups=0 use_zero_pages=0
        7.3: advisor_max_cpu=70 advisor_max_pages_to_scan=30000 advisor_min_pages_to_scan=500 advisor_mode=[none] scan-time advisor_target_scan_time=200 full_scans=0 general_profit=0 ksm_zero_pages=0 max_page_sharing=256 merge_across_nodes=1 pages_scanned=0 pages_shared=0 pages_sharing=0 pages_skipped=0 pages_to_scan=100 pages_unshared=0 pages_volatile=0 run=0 sleep_millisecs=20 smart_scan=1 stable_node_chains=0 stable_node_chains_prune_millisecs=2000 stable_node_dups=0 use_zero_pages=0
    "#]].assert_eq(&out);
}

#[test]
fn what_mergings_files_take() {
    let lines: String = "
        read run
        write run = 3
        write run = 4
        write run = -1
        write run = junk
        write run = 1
        read run
        write run = 1\\n
        write run = 2
        read run
        write run = 2
        write run = 0
        write pages_to_scan = 4294967295
        write pages_to_scan = 4294967296
        write pages_to_scan = 0x10
        write pages_to_scan = +0100\\n
        read pages_to_scan
        write sleep_millisecs = 0
        write sleep_millisecs = 4294967296
        write sleep_millisecs = 20\\n\\n
        write merge_across_nodes = 2
        write merge_across_nodes = yes
        write merge_across_nodes = 18446744073709551615
        write merge_across_nodes = 18446744073709551616
        write merge_across_nodes = 0
        read merge_across_nodes
        write run = 1
        write merge_across_nodes = 1
        write run = 0
        write max_page_sharing = 1
        write max_page_sharing = 2147483648
        write max_page_sharing = 2
        write max_page_sharing =
        write stable_node_chains_prune_millisecs = 4294967296
        write stable_node_chains_prune_millisecs = 0
        write use_zero_pages = enable
        write use_zero_pages = on
        read use_zero_pages
        write smart_scan = 2
        write smart_scan = n
        read smart_scan
        write advisor_mode = scan_time
        write advisor_mode = scan-time
        read advisor_mode
        read pages_to_scan
        write pages_to_scan = 100
        write advisor_mode = none
        read pages_to_scan
        write advisor_max_cpu = 4294967297
        read advisor_max_cpu
        write advisor_min_pages_to_scan = 18446744073709551615
        write advisor_min_pages_to_scan = 18446744073709551616
        write advisor_max_pages_to_scan = 1e3
        write advisor_target_scan_time = 0
        write advisor_target_scan_time = 10
        write pages_shared = 0
        write full_scans = 0
        write general_profit = 0
        nobody: read pages_sharing
        nobody: write run = 0
        nobody: write pages_shared = 0
        uncapped: write run = 0
        uncapped: write pages_shared = 0
        read nonsense
        write nonsense = 1
        "
    .lines()
    .map(|l| {
        l.replace("write ", "write /sys/kernel/mm/ksm/")
            .replace("read ", "read /sys/kernel/mm/ksm/")
            + "\n"
    })
    .collect();
    check(
        &mut boot(&two(), KernelVersion::V6_12),
        &lines,
        expect![[r#"
        read /sys/kernel/mm/ksm/run -> 0
        write /sys/kernel/mm/ksm/run = 3 -> 22 EINVAL: "3" is refused; allowed are 0 (stop), 1 (merge), 2 (unmerge everything)
        write /sys/kernel/mm/ksm/run = 4 -> 22 EINVAL: "4" is refused; allowed are 0 (stop), 1 (merge), 2 (unmerge everything)
        write /sys/kernel/mm/ksm/run = -1 -> 22 EINVAL: "-1" is refused; allowed are 0 (stop), 1 (merge), 2 (unmerge everything)
        write /sys/kernel/mm/ksm/run = junk -> 22 EINVAL: "junk" is refused; allowed are 0 (stop), 1 (merge), 2 (unmerge everything)
        write /sys/kernel/mm/ksm/run = 1 -> ok
        read /sys/kernel/mm/ksm/run -> 1
        write /sys/kernel/mm/ksm/run = 1\n -> ok
        write /sys/kernel/mm/ksm/run = 2 -> ok
        read /sys/kernel/mm/ksm/run -> 2
        write /sys/kernel/mm/ksm/run = 2 -> ok
        write /sys/kernel/mm/ksm/run = 0 -> ok
        write /sys/kernel/mm/ksm/pages_to_scan = 4294967295 -> ok
        write /sys/kernel/mm/ksm/pages_to_scan = 4294967296 -> 22 EINVAL: "4294967296" is refused; allowed are 0 to 4294967295, decimal, while advisor_mode is none
        write /sys/kernel/mm/ksm/pages_to_scan = 0x10 -> 22 EINVAL: "0x10" is refused; allowed are 0 to 4294967295, decimal, while advisor_mode is none
        write /sys/kernel/mm/ksm/pages_to_scan = +0100\n -> ok
        read /sys/kernel/mm/ksm/pages_to_scan -> 100
        write /sys/kernel/mm/ksm/sleep_millisecs = 0 -> ok
        write /sys/kernel/mm/ksm/sleep_millisecs = 4294967296 -> 22 EINVAL: "4294967296" is refused; allowed are 0 to 4294967295 ms, decimal
        write /sys/kernel/mm/ksm/sleep_millisecs = 20\n\n -> 22 EINVAL: "20" is refused; allowed are 0 to 4294967295 ms, decimal
        write /sys/kernel/mm/ksm/merge_across_nodes = 2 -> 22 EINVAL: "2" is refused; allowed are 0 (per node) and 1 (across)
        write /sys/kernel/mm/ksm/merge_across_nodes = yes -> 22 EINVAL: "yes" is refused; allowed are 0 (per node) and 1 (across)
        write /sys/kernel/mm/ksm/merge_across_nodes = 18446744073709551615 -> 22 EINVAL: "18446744073709551615" is refused; allowed are 0 (per node) and 1 (across)
        write /sys/kernel/mm/ksm/merge_across_nodes = 18446744073709551616 -> 34 ERANGE: "18446744073709551616" is refused; allowed are 0 (per node) and 1 (across)
        write /sys/kernel/mm/ksm/merge_across_nodes = 0 -> ok
        read /sys/kernel/mm/ksm/merge_across_nodes -> 0
        write /sys/kernel/mm/ksm/run = 1 -> ok
        write /sys/kernel/mm/ksm/merge_across_nodes = 1 -> ok
        write /sys/kernel/mm/ksm/run = 0 -> ok
        write /sys/kernel/mm/ksm/max_page_sharing = 1 -> 22 EINVAL: "1" is refused; allowed are 2 to 2147483647
        write /sys/kernel/mm/ksm/max_page_sharing = 2147483648 -> 34 ERANGE: "2147483648" is refused; allowed are 2 to 2147483647
        write /sys/kernel/mm/ksm/max_page_sharing = 2 -> ok
        write /sys/kernel/mm/ksm/max_page_sharing = -> 22 EINVAL: "" is refused; allowed are 2 to 2147483647
        write /sys/kernel/mm/ksm/stable_node_chains_prune_millisecs = 4294967296 -> 22 EINVAL: "4294967296" is refused; allowed are 0 to 4294967295 ms, decimal
        write /sys/kernel/mm/ksm/stable_node_chains_prune_millisecs = 0 -> ok
        write /sys/kernel/mm/ksm/use_zero_pages = enable -> 22 EINVAL: "enable" is refused; allowed are 1, y, t, on and 0, n, f, off
        write /sys/kernel/mm/ksm/use_zero_pages = on -> ok
        read /sys/kernel/mm/ksm/use_zero_pages -> 1
        write /sys/kernel/mm/ksm/smart_scan = 2 -> 22 EINVAL: "2" is refused; allowed are 1, y, t, on and 0, n, f, off
        write /sys/kernel/mm/ksm/smart_scan = n -> ok
        read /sys/kernel/mm/ksm/smart_scan -> 0
        write /sys/kernel/mm/ksm/advisor_mode = scan_time -> 22 EINVAL: "scan_time" is refused; allowed are none and scan-time
        write /sys/kernel/mm/ksm/advisor_mode = scan-time -> ok
        read /sys/kernel/mm/ksm/advisor_mode -> none [scan-time]
        read /sys/kernel/mm/ksm/pages_to_scan -> 500
        write /sys/kernel/mm/ksm/pages_to_scan = 100 -> 22 EINVAL: "100" is refused; allowed are 0 to 4294967295, decimal, while advisor_mode is none
        write /sys/kernel/mm/ksm/advisor_mode = none -> ok
        read /sys/kernel/mm/ksm/pages_to_scan -> 100
        write /sys/kernel/mm/ksm/advisor_max_cpu = 4294967297 -> ok
        read /sys/kernel/mm/ksm/advisor_max_cpu -> 1
        write /sys/kernel/mm/ksm/advisor_min_pages_to_scan = 18446744073709551615 -> ok
        write /sys/kernel/mm/ksm/advisor_min_pages_to_scan = 18446744073709551616 -> 22 EINVAL: "18446744073709551616" is refused; allowed are decimal numbers
        write /sys/kernel/mm/ksm/advisor_max_pages_to_scan = 1e3 -> 22 EINVAL: "1e3" is refused; allowed are decimal numbers
        write /sys/kernel/mm/ksm/advisor_target_scan_time = 0 -> 22 EINVAL: "0" is refused; allowed are seconds from 1 on
        write /sys/kernel/mm/ksm/advisor_target_scan_time = 10 -> ok
        write /sys/kernel/mm/ksm/pages_shared = 0 -> 13 EACCES: this file is for reading only
        write /sys/kernel/mm/ksm/full_scans = 0 -> 13 EACCES: this file is for reading only
        write /sys/kernel/mm/ksm/general_profit = 0 -> 13 EACCES: this file is for reading only
        nobody: read /sys/kernel/mm/ksm/pages_sharing -> 0
        nobody: write /sys/kernel/mm/ksm/run = 0 -> 13 EACCES: its mode is 0644: only root may write to it
        nobody: write /sys/kernel/mm/ksm/pages_shared = 0 -> 13 EACCES: this file is for reading only
        uncapped: write /sys/kernel/mm/ksm/run = 0 -> ok
        uncapped: write /sys/kernel/mm/ksm/pages_shared = 0 -> 13 EACCES: this file is for reading only
        read /sys/kernel/mm/ksm/nonsense -> 2 ENOENT: the simulated kernel has no such file; in /sys/kernel/mm/ksm there are advisor_max_cpu, advisor_max_pages_to_scan, advisor_min_pages_to_scan, advisor_mode, advisor_target_scan_time, full_scans, general_profit, ksm_zero_pages, max_page_sharing, merge_across_nodes, pages_scanned, pages_shared, pages_sharing, pages_skipped, pages_to_scan, pages_unshared, pages_volatile, run, sleep_millisecs, smart_scan, stable_node_chains, stable_node_chains_prune_millisecs, stable_node_dups, use_zero_pages
        write /sys/kernel/mm/ksm/nonsense = 1 -> 2 ENOENT: the simulated kernel has no such file; in /sys/kernel/mm/ksm there are advisor_max_cpu, advisor_max_pages_to_scan, advisor_min_pages_to_scan, advisor_mode, advisor_target_scan_time, full_scans, general_profit, ksm_zero_pages, max_page_sharing, merge_across_nodes, pages_scanned, pages_shared, pages_sharing, pages_skipped, pages_to_scan, pages_unshared, pages_volatile, run, sleep_millisecs, smart_scan, stable_node_chains, stable_node_chains_prune_millisecs, stable_node_dups, use_zero_pages
    "#]],
    );
}

#[test]
fn mergings_files_of_older_kernels() {
    check(
        &mut boot(&two(), KernelVersion::V6_1),
        "
        read /sys/kernel/mm/ksm/smart_scan
        write /sys/kernel/mm/ksm/advisor_mode = none
        read /sys/kernel/mm/ksm/pages_scanned
        write /sys/kernel/mm/ksm/use_zero_pages = t
        ",
        expect![[r#"
            read /sys/kernel/mm/ksm/smart_scan -> 2 ENOENT: Linux 6.1 does not have it; 6.12, 7.3 do
            write /sys/kernel/mm/ksm/advisor_mode = none -> 2 ENOENT: Linux 6.1 does not have it; 6.12, 7.3 do
            read /sys/kernel/mm/ksm/pages_scanned -> 2 ENOENT: Linux 6.1 does not have it; 6.12, 7.3 do
            write /sys/kernel/mm/ksm/use_zero_pages = t -> ok
        "#]],
    );
    check(
        &mut boot(&two(), KernelVersion::V3_8),
        "
        read /sys/kernel/mm/ksm/max_page_sharing
        read /proc/1000/ksm_stat
        write /sys/kernel/mm/ksm/merge_across_nodes = 0
        ",
        expect![[r#"
            read /sys/kernel/mm/ksm/max_page_sharing -> 2 ENOENT: Linux 3.8 does not have it; 4.15, 5.18, 6.1, 6.12, 7.3 do
            read /proc/1000/ksm_stat -> 2 ENOENT: the simulated kernel has no such file; in /proc/1000 there are numa_maps, sched, schedstat, status
            write /sys/kernel/mm/ksm/merge_across_nodes = 0 -> ok
        "#]],
    );
}

#[test]
fn what_is_merged_forbids_a_switch() {
    // Three pages of one content and a zero page here, the same content there.
    let mut b = merging_bench(KernelVersion::V6_12, &[&[7, 7, 7, 0], &[7]]);
    b.sim.write_file("/sys/kernel/mm/ksm/use_zero_pages", "1", Rights::Root).expect("a bool");
    b.sim.write_file("/sys/kernel/mm/ksm/smart_scan", "0", Rights::Root).expect("a bool");
    b.sim.write_file("/sys/kernel/mm/ksm/run", "1", Rights::Root).expect("a mode");
    passes(&mut b, 2);
    let pid = b.sim.kernel.numa[b.ctx.task].pid;
    let lines =
        |lines: &str| lines.replace("KSM/", "/sys/kernel/mm/ksm/").replace("PID", &pid.to_string());
    check(
        &mut b.sim,
        &lines(
            "
            read KSM/pages_shared
            read KSM/pages_sharing
            read KSM/pages_volatile
            read KSM/ksm_zero_pages
            read KSM/general_profit
            read KSM/full_scans
            read /proc/PID/ksm_merging_pages
            read /proc/PID/ksm_stat
            nobody: read /proc/PID/ksm_stat
            nobody: read /proc/PID/ksm_merging_pages
            write /proc/PID/ksm_stat = 0
            uncapped: write /proc/PID/ksm_stat = 0
            read /proc/1000/ksm_stat
            write KSM/merge_across_nodes = 1
            write KSM/merge_across_nodes = 0
            write KSM/max_page_sharing = 256
            write KSM/max_page_sharing = 128
            write KSM/run = 2
            read KSM/pages_shared
            read KSM/full_scans
            read /proc/PID/ksm_stat
            write KSM/merge_across_nodes = 0
            write KSM/max_page_sharing = 128
            ",
        ),
        expect![[r#"
            read /sys/kernel/mm/ksm/pages_shared -> 1
            read /sys/kernel/mm/ksm/pages_sharing -> 3
            read /sys/kernel/mm/ksm/pages_volatile -> 1
            read /sys/kernel/mm/ksm/ksm_zero_pages -> 1
            read /sys/kernel/mm/ksm/general_profit -> 16064
            read /sys/kernel/mm/ksm/full_scans -> 2
            read /proc/1002/ksm_merging_pages -> 4
            read /proc/1002/ksm_stat -> ksm_rmap_items 5
            ksm_zero_pages 1
            ksm_merging_pages 4
            ksm_process_profit 20160
            nobody: read /proc/1002/ksm_stat -> 13 EACCES: its mode is 0400: only the owner may read it
            nobody: read /proc/1002/ksm_merging_pages -> 13 EACCES: its mode is 0400: only the owner may read it
            write /proc/1002/ksm_stat = 0 -> 22 EINVAL: this file is for reading only
            uncapped: write /proc/1002/ksm_stat = 0 -> 13 EACCES: this file is for reading only
            read /proc/1000/ksm_stat -> nothing
            write /sys/kernel/mm/ksm/merge_across_nodes = 1 -> ok
            write /sys/kernel/mm/ksm/merge_across_nodes = 0 -> 16 EBUSY: "0" is refused; pages are merged; write 2 to run first, which unmerges everything
            write /sys/kernel/mm/ksm/max_page_sharing = 256 -> ok
            write /sys/kernel/mm/ksm/max_page_sharing = 128 -> 16 EBUSY: "128" is refused; pages are merged; write 2 to run first, which unmerges everything
            write /sys/kernel/mm/ksm/run = 2 -> ok
            read /sys/kernel/mm/ksm/pages_shared -> 0
            read /sys/kernel/mm/ksm/full_scans -> 0
            read /proc/1002/ksm_stat -> ksm_rmap_items 0
            ksm_zero_pages 0
            ksm_merging_pages 0
            ksm_process_profit 0
            write /sys/kernel/mm/ksm/merge_across_nodes = 0 -> ok
            write /sys/kernel/mm/ksm/max_page_sharing = 128 -> ok
        "#]],
    );
    b.check();
    // The registration is still there: trees per node now.
    b.sim.write_file("/sys/kernel/mm/ksm/run", "1", Rights::Root).expect("a mode");
    passes(&mut b, 2);
    assert_eq!(b.sim.read_file("/sys/kernel/mm/ksm/pages_shared").expect("a counter"), "1\n");
    assert_eq!(b.sim.read_file("/sys/kernel/mm/ksm/pages_sharing").expect("a counter"), "2\n");
}

#[test]
fn a_process_by_version() {
    let mut out = String::new();
    for version in [KernelVersion::V6_1, KernelVersion::V6_12, KernelVersion::V7_3] {
        let mut b = merging_bench(version, &[&[7, 7], &[7, 9]]);
        b.sim.write_file("/sys/kernel/mm/ksm/run", "1", Rights::Root).expect("a mode");
        passes(&mut b, 3);
        let pid = b.sim.kernel.numa[b.ctx.task].pid;
        for name in ["ksm_merging_pages", "ksm_stat"] {
            let text = b.sim.read_file(&format!("/proc/{pid}/{name}")).expect("it is there");
            let _ = write!(out, "{version} {name}:\n{text}");
        }
        let first =
            b.sim.kernel.space(b.space).place(b.sim.kernel.space(b.space).vmas[0].start, false);
        b.touch(first.expect("it is mapped"), true).expect("memory is left");
        let vmstat = b.sim.read_file("/proc/vmstat").expect("it is there");
        for line in vmstat.lines().filter(|l| l.contains("ksm")) {
            let _ = writeln!(out, "{version} {line}");
        }
    }
    expect![[r#"
        6.1 ksm_merging_pages:
        3
        6.1 ksm_stat:
        ksm_rmap_items 4
        6.1 ksm_swpin_copy 0
        6.1 cow_ksm 1
        6.12 ksm_merging_pages:
        3
        6.12 ksm_stat:
        ksm_rmap_items 4
        ksm_zero_pages 0
        ksm_merging_pages 3
        ksm_process_profit 12032
        6.12 ksm_swpin_copy 0
        6.12 cow_ksm 1
        7.3 ksm_merging_pages:
        3
        7.3 ksm_stat:
        ksm_rmap_items 4
        ksm_zero_pages 0
        ksm_merging_pages 3
        ksm_process_profit 12032
        ksm_merge_any: no
        ksm_mergeable: yes
        7.3 ksm_swpin_copy 0
        7.3 cow_ksm 1
    "#]]
    .assert_eq(&out);
}

#[test]
fn an_unmerge_takes_its_writers_time() {
    let action = |file: &str, text: &str| Action {
        at: Picos::ZERO,
        who: Rights::Root,
        what: write(&format!("/sys/kernel/mm/ksm/{file}"), text),
        expect: None,
    };
    let took = |pages: usize| {
        let all = vec![7; pages];
        let mut b = merging_bench(KernelVersion::V6_12, &[&all]);
        b.sim.write_file("/sys/kernel/mm/ksm/run", "1", Rights::Root).expect("a mode");
        passes(&mut b, 2);
        b.sim.plan(&[action("run", "2"), action("run", "0")]);
        b.sim.act_on_file(0);
        b.sim.act_on_file(1);
        let [two, zero] = b.sim.outcomes() else { panic!("two were planned") };
        assert_eq!((two.missed(), zero.missed(), zero.took), (None, None, Picos::ZERO));
        two.took
    };
    let (few, many) = (took(10), took(100));
    assert!(few > Picos::ZERO);
    assert_eq!(many.0, few.0 * 10, "a copy a page");
}

/// Two guests of 300 pages each: 200 of an image, 100 of their own.
fn two_guests(actions: Vec<Action>) -> Scenario {
    let image = Content::Image { name: "i".into(), distinct: None };
    let guest = |name: &str, cpu: u32| {
        let common = Map { content: image.clone(), mergeable: true, ..map("common", 200) };
        let own = Map { mergeable: true, ..map("own", 100) };
        let steps = vec![touch("common"), touch("own"), Step::Sleep(Picos::from_secs(60))];
        process(name, &[cpu], vec![common, own], steps)
    };
    let m = vec![guest("a", 0), guest("b", 1)];
    Scenario { knobs: support::knobs(&[NO_THP]), actions, ..scenario(m) }
}

/// What an action's file said.
fn answers(scenario: &Scenario, ms: u64) -> Vec<String> {
    let setup = Setup { duration: Some(ms * 1_000_000_000), ..Setup::of(scenario) };
    let mut sim = Simulation::new(&machine(&[dram(4096, 2)]), scenario, &setup).expect("it fits");
    sim.run();
    let text = |o: &Outcome| match &o.result {
        Some(Ok(text)) => text.trim_end().to_owned(),
        other => panic!("{}: {other:?}", o.path),
    };
    sim.outcomes().iter().map(text).collect()
}

#[test]
fn a_shorter_sleep_wakes_ksmd() {
    let ksm = |file: &str| format!("/sys/kernel/mm/ksm/{file}");
    let run = |shorter: bool| {
        let mut actions = vec![
            at(10, write(&ksm("sleep_millisecs"), "1000000"), None),
            at(10, write(&ksm("pages_to_scan"), "50"), None),
            at(20, write(&ksm("run"), "1"), None),
            // The first batch is done, the next one is a quarter of an hour away.
            at(1000, read(&ksm("pages_scanned")), None),
            at(5000, read(&ksm("pages_scanned")), None),
            at(9000, read(&ksm("pages_sharing")), None),
        ];
        if shorter {
            actions.insert(4, at(2000, write(&ksm("sleep_millisecs"), "20"), None));
        } else {
            actions.insert(4, at(2000, write(&ksm("sleep_millisecs"), "1000000"), None));
        }
        answers(&two_guests(actions), 9_001)[3..].join(" ")
    };
    // The same value again wakes nobody.
    assert_eq!(run(false), "50  50 0");
    // 150 batches of 50 in three seconds; the last of a pass is empty, as 600 are 12 full ones.
    assert_eq!(run(true), "50  6900 200");
}

#[test]
fn files_change_in_the_middle_of_a_run() {
    let ksm = |file: &str| format!("/sys/kernel/mm/ksm/{file}");
    let actions = vec![
        at(100, write(&ksm("pages_to_scan"), "1000"), None),
        at(100, write(&ksm("run"), "1"), None),
        at(1000, read(&ksm("pages_shared")), None),
        at(1000, read(&ksm("pages_sharing")), None),
        at(1000, read("/proc/{a}/ksm_merging_pages"), None),
        at(1000, write(&ksm("merge_across_nodes"), "0"), Some(Errno::Ebusy)),
        at(1000, write(&ksm("pages_shared"), "0"), Some(Errno::Eacces)),
        at(1100, write(&ksm("run"), "2"), None),
        at(1100, read(&ksm("pages_shared")), None),
        at(1100, write(&ksm("merge_across_nodes"), "0"), None),
        // The advisor chooses from here on, at the end of each pass.
        at(1200, write(&ksm("advisor_mode"), "scan-time"), None),
        at(1200, write(&ksm("advisor_target_scan_time"), "1"), None),
        at(1200, write(&ksm("run"), "1"), None),
        at(1210, read(&ksm("pages_to_scan")), None),
        at(1220, write(&ksm("pages_to_scan"), "100"), Some(Errno::Einval)),
        at(9000, read(&ksm("pages_to_scan")), None),
        at(9000, read(&ksm("pages_sharing")), None),
        at(9000, read("/proc/{b}/ksm_stat"), None),
    ];
    let s = two_guests(actions);
    let setup = Setup { duration: Some(9_001_000_000_000), ..Setup::of(&s) };
    let mut sim = Simulation::new(&machine(&[dram(4096, 2)]), &s, &setup).expect("it fits");
    sim.run();
    expect![[r#"
        100 ms /sys/kernel/mm/ksm/pages_to_scan: ""; fine
        100 ms /sys/kernel/mm/ksm/run: ""; fine
        1000 ms /sys/kernel/mm/ksm/pages_shared: "200"; fine
        1000 ms /sys/kernel/mm/ksm/pages_sharing: "200"; fine
        1000 ms /proc/1001/ksm_merging_pages: "200"; fine
        1000 ms /sys/kernel/mm/ksm/merge_across_nodes: EBUSY; fine
        1000 ms /sys/kernel/mm/ksm/pages_shared: EACCES; fine
        1100 ms /sys/kernel/mm/ksm/run: ""; fine
        1100 ms /sys/kernel/mm/ksm/pages_shared: "0"; fine
        1100 ms /sys/kernel/mm/ksm/merge_across_nodes: ""; fine
        1200 ms /sys/kernel/mm/ksm/advisor_mode: ""; fine
        1200 ms /sys/kernel/mm/ksm/advisor_target_scan_time: ""; fine
        1200 ms /sys/kernel/mm/ksm/run: ""; fine
        1210 ms /sys/kernel/mm/ksm/pages_to_scan: "500"; fine
        1220 ms /sys/kernel/mm/ksm/pages_to_scan: EINVAL; fine
        9000 ms /sys/kernel/mm/ksm/pages_to_scan: "30000"; fine
        9000 ms /sys/kernel/mm/ksm/pages_sharing: "200"; fine
        9000 ms /proc/1002/ksm_stat: "ksm_rmap_items 300"; fine
    "#]]
    .assert_eq(&told(sim.outcomes()));
    let took: Vec<Picos> = sim.outcomes().iter().map(|o| o.took).collect();
    assert!(took[7] > Picos::ZERO && took[7].0 % 400 == 0, "400 copies: {:?}", took[7]);
    assert_eq!(took.iter().filter(|t| **t > Picos::ZERO).count(), 1);
}

#[test]
fn writers_wait_while_memory_goes_offline() {
    let mut sim = boot(&two(), KernelVersion::V6_12);
    sim.kernel.ksm_mut().going_offline();
    check(
        &mut sim,
        "
        read /sys/kernel/mm/ksm/run
        write /sys/kernel/mm/ksm/run = 1
        write /sys/kernel/mm/ksm/run = 3
        write /sys/kernel/mm/ksm/merge_across_nodes = 1
        write /sys/kernel/mm/ksm/max_page_sharing = 256
        write /sys/kernel/mm/ksm/max_page_sharing = 255
        write /sys/kernel/mm/ksm/pages_to_scan = 7
        ",
        expect![[r#"
            read /sys/kernel/mm/ksm/run -> 4
            write /sys/kernel/mm/ksm/run = 1 -> 11 EAGAIN: memory is going offline: a writer sleeps until that is over; write again then
            write /sys/kernel/mm/ksm/run = 3 -> 22 EINVAL: "3" is refused; allowed are 0 (stop), 1 (merge), 2 (unmerge everything)
            write /sys/kernel/mm/ksm/merge_across_nodes = 1 -> 11 EAGAIN: memory is going offline: a writer sleeps until that is over; write again then
            write /sys/kernel/mm/ksm/max_page_sharing = 256 -> ok
            write /sys/kernel/mm/ksm/max_page_sharing = 255 -> 11 EAGAIN: memory is going offline: a writer sleeps until that is over; write again then
            write /sys/kernel/mm/ksm/pages_to_scan = 7 -> ok
        "#]],
    );
    let run = Action {
        at: Picos::ZERO,
        who: Rights::Root,
        what: write("/sys/kernel/mm/ksm/run", "1"),
        expect: None,
    };
    sim.plan(std::slice::from_ref(&run));
    sim.act_on_file(0);
    assert_eq!(sim.outcomes()[0].result, None);
    assert!(sim.outcomes()[0].missed().expect("it waits").contains("before memory was offline"));
    sim.act_again();
    assert!(sim.outcomes()[0].waits, "it is still on its way out");
    sim.kernel.ksm_mut().offline_cancelled();
    sim.act_again();
    assert_eq!((sim.outcomes()[0].missed(), sim.outcomes()[0].waits), (None, false));
    assert_eq!(sim.read_file("/sys/kernel/mm/ksm/run").expect("a knob"), "1\n");
}
