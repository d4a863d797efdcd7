//! specs/ksm.md#files: every file, its parsing, its errors.

use super::host::{Host, World, check, check_on_all};
use crate::kernel::KernelVersion::{self, V3_8, V5_18, V6_1, V6_12, V7_3};
use crate::ksm::files::{FOLDER, File, Written};
use crate::ksm::memory::MmId;
use crate::ksm::{Ksm, MmStat, Rules};

fn names(version: KernelVersion) -> String {
    let there = File::ALL.into_iter().filter(|f| f.exists(version));
    there.map(File::name).collect::<Vec<_>>().join(" ")
}

#[test]
fn which_kernel_has_what() {
    let seed = "run pages_to_scan sleep_millisecs merge_across_nodes pages_shared pages_sharing \
                pages_unshared pages_volatile full_scans";
    assert_eq!(names(V3_8), seed);
    let old = "run pages_to_scan sleep_millisecs merge_across_nodes max_page_sharing \
               stable_node_chains_prune_millisecs use_zero_pages pages_shared pages_sharing \
               pages_unshared pages_volatile full_scans stable_node_chains stable_node_dups";
    assert_eq!(names(V5_18), old);
    assert_eq!(names(V6_1), old);
    assert_eq!(names(V6_12).split(' ').count(), File::ALL.len());
    assert_eq!(names(V7_3), names(V6_12));
    let mut ksm = Ksm::new(V6_1, 2);
    let e = ksm.write(&mut Host::default(), "smart_scan", "1").unwrap_err();
    assert_eq!(
        e.to_string(),
        "knob smart_scan: \"1\" is refused (ENOENT); Linux 6.1 does not have it; 6.12 does"
    );
    assert!(ksm.read("nonsense").unwrap_err().to_string().contains("of Linux 6.1 has run, "));
}

#[test]
fn defaults() {
    let ksm = Ksm::new(V6_12, 2);
    let all: Vec<String> = File::ALL
        .into_iter()
        .map(|f| format!("{}={}", f.name(), ksm.read(f.name()).unwrap()))
        .collect();
    assert_eq!(
        all.join("\n"),
        "run=0\npages_to_scan=100\nsleep_millisecs=20\nmerge_across_nodes=1\n\
         max_page_sharing=256\nstable_node_chains_prune_millisecs=2000\nuse_zero_pages=0\n\
         smart_scan=1\nadvisor_mode=[none] scan-time\nadvisor_max_cpu=70\n\
         advisor_min_pages_to_scan=500\nadvisor_max_pages_to_scan=30000\n\
         advisor_target_scan_time=200\npages_shared=0\npages_sharing=0\npages_unshared=0\n\
         pages_volatile=0\npages_scanned=0\npages_skipped=0\nfull_scans=0\nksm_zero_pages=0\n\
         stable_node_chains=0\nstable_node_dups=0\ngeneral_profit=0"
    );
    assert_eq!(ksm.read(&format!("{FOLDER}run")).unwrap(), "0");
}

#[test]
fn writes() {
    // File, text, what it says: a value is read back, a name is the error.
    let table = [
        ("run", "1\n", "1"),
        ("run", "0", "0"),
        ("run", "2", "2"),
        ("run", "3", "EINVAL"),
        ("run", "4", "EINVAL"),
        ("run", "-1", "EINVAL"),
        ("run", "", "EINVAL"),
        ("run", "x", "EINVAL"),
        ("run", "1 ", "EINVAL"),
        ("run", "1\n\n", "EINVAL"),
        ("run", "99999999999999999999", "EINVAL"),
        ("pages_to_scan", "+0100\n", "100"),
        ("pages_to_scan", "0x10", "EINVAL"),
        ("pages_to_scan", "4294967295", "4294967295"),
        ("pages_to_scan", "4294967296", "EINVAL"),
        ("pages_to_scan", "0", "0"),
        ("sleep_millisecs", "007", "7"),
        ("sleep_millisecs", "4294967296", "EINVAL"),
        ("merge_across_nodes", "0", "0"),
        ("merge_across_nodes", "1\n", "1"),
        ("merge_across_nodes", "2", "EINVAL"),
        ("merge_across_nodes", "yes", "EINVAL"),
        ("merge_across_nodes", "-1", "EINVAL"),
        ("merge_across_nodes", "18446744073709551615", "EINVAL"),
        ("merge_across_nodes", "18446744073709551616", "ERANGE"),
        ("max_page_sharing", "2", "2"),
        ("max_page_sharing", "1", "EINVAL"),
        ("max_page_sharing", "0", "EINVAL"),
        ("max_page_sharing", "-5", "EINVAL"),
        ("max_page_sharing", "-2147483648", "EINVAL"),
        ("max_page_sharing", "-2147483649", "ERANGE"),
        ("max_page_sharing", "2147483647", "2147483647"),
        ("max_page_sharing", "2147483648", "ERANGE"),
        ("max_page_sharing", "junk", "EINVAL"),
        ("stable_node_chains_prune_millisecs", "0", "0"),
        ("stable_node_chains_prune_millisecs", "-0", "EINVAL"),
        ("use_zero_pages", "on", "1"),
        ("use_zero_pages", "No", "0"),
        ("use_zero_pages", "2", "EINVAL"),
        ("use_zero_pages", "enable", "EINVAL"),
        ("smart_scan", "off", "0"),
        ("smart_scan", "True", "1"),
        ("advisor_mode", "scan-time\n", "none [scan-time]"),
        ("pages_to_scan", "7", "EINVAL"),
        ("advisor_mode", "scan-time ", "EINVAL"),
        ("advisor_mode", "Scan-Time", "EINVAL"),
        ("advisor_mode", "", "EINVAL"),
        ("advisor_mode", "none", "[none] scan-time"),
        ("advisor_max_cpu", "4294967297", "1"),
        ("advisor_max_cpu", "18446744073709551616", "EINVAL"),
        ("advisor_min_pages_to_scan", "18446744073709551615", "18446744073709551615"),
        ("advisor_max_pages_to_scan", "0", "0"),
        ("advisor_target_scan_time", "0", "EINVAL"),
        ("advisor_target_scan_time", "1", "1"),
        ("advisor_target_scan_time", "-1", "EINVAL"),
    ];
    let (mut ksm, mut host) = (Ksm::new(V6_12, 2), Host::default());
    for (file, text, expected) in table {
        let before = ksm.read(file).unwrap();
        let got = match ksm.write(&mut host, file, text) {
            Ok(_) => ksm.read(file).unwrap(),
            Err(e) => {
                assert_eq!(ksm.read(file).unwrap(), before, "{file} after a refusal");
                e.errno.name().to_owned()
            }
        };
        assert_eq!(got, expected, "{file} {text:?}");
    }
    for f in File::ALL.into_iter().filter(|f| f.is_counter()) {
        let e = ksm.write(&mut host, f.name(), "0").unwrap_err();
        assert_eq!((e.errno.name(), e.errno.number()), ("EACCES", 13), "{}", f.name());
    }
    assert_eq!(File::ALL.into_iter().filter(|f| f.is_counter()).count(), 11);
    // Letters of 7.3.
    let mut ksm = Ksm::new(V7_3, 2);
    ksm.write(&mut host, "use_zero_pages", "enable").unwrap();
    assert_eq!(ksm.read("use_zero_pages").unwrap(), "1");
}

// specs/ksm.md#advisor: switching the advisor resets pages_to_scan to 100 or its minimum.
#[test]
fn advisor_resets() {
    check(
        "show pages_to_scan; knob advisor_min_pages_to_scan 42; knob advisor_mode scan-time
         show pages_to_scan; knob pages_to_scan 7; knob advisor_mode scan-time; show pages_to_scan
         knob advisor_mode none; show pages_to_scan; knob pages_to_scan 7; show pages_to_scan",
        "1000000\n42\nEINVAL\n42\n100\n7",
    );
}

// The advisor works at the end of a pass and uses the pass's own time.
#[test]
fn advisor_at_the_end_of_a_pass() {
    let mut w = World::new(Rules::of(V6_12), 1);
    w.proc(MmId(0), "abcd", 0);
    w.knob("advisor_mode", "scan-time");
    w.now.ns = 100_000_000_000;
    assert!(w.ksm.batch(&mut w.host, &w.now).pass_ended);
    // A pass of no time counts as one second: factor 20000, lifted to 10 units of 500.
    assert_eq!(w.ksm.read("pages_to_scan").unwrap(), "5000");
    assert_eq!(w.host.drains, 1);
}

// specs/ksm.md#pass: a change of sleep_millisecs wakes ksmd, as does run.
#[test]
fn who_wakes() {
    let (mut ksm, mut host) = (Ksm::new(V6_12, 2), Host::default());
    for (file, text, wakes) in [
        ("sleep_millisecs", "20", false),
        ("sleep_millisecs", "21", true),
        ("run", "1", true),
        ("run", "0", false),
        ("pages_to_scan", "5", false),
    ] {
        let got = ksm.write(&mut host, file, text);
        assert_eq!(got, Ok(Written::Done { wakes }), "{file}");
    }
    assert_eq!(ksm.sleep_jiffies(), 6);
}

// specs/ksm.md#counters: ksm_stat by version; the sum of profits exceeds general_profit by
// the shared pages.
#[test]
fn ksm_stat() {
    let mut stats = Vec::new();
    for version in [V5_18, V6_1, V6_12, V7_3] {
        let mut w = World::new(Rules::of(version), 1);
        w.proc(MmId(0), "xxa", 0);
        w.proc(MmId(1), "xb", 0);
        w.pass();
        w.pass();
        stats.push(w.ksm.ksm_stat(MmId(0), true, false));
        let sum: i64 = (0..2).map(|m| w.ksm.mm_stat(MmId(m)).profit()).sum();
        assert_eq!(sum, w.ksm.general_profit() + 4096);
        assert_eq!(w.ksm.mm_stat(MmId(9)), MmStat::default());
    }
    let base = "ksm_rmap_items 3\nksm_zero_pages 0\nksm_merging_pages 2\nksm_process_profit 8000\n";
    assert_eq!(
        stats,
        [
            None,
            Some("ksm_rmap_items 3\n".to_owned()),
            Some(base.to_owned()),
            Some(format!("{base}ksm_merge_any: yes\nksm_mergeable: no\n")),
        ]
    );
}

// What needs no version: the same counters on all of them once all is quiet.
#[test]
fn all_versions_agree_in_the_end() {
    check_on_all("proc A xxyab; proc B xyc; pass 3; counts", "2,3,3,0;0,0");
}

#[test]
fn who_may_merge() {
    use crate::ksm::register::{Mapping, has_merge_any};
    let plain = Mapping::default();
    assert!(plain.may_merge());
    for m in [
        Mapping { shared: true, ..plain },
        Mapping { pfn_or_io: true, ..plain },
        Mapping { dont_expand: true, ..plain },
        Mapping { hugetlb: true, ..plain },
        Mapping { mixed: true, ..plain },
        Mapping { droppable: true, ..plain },
        Mapping { dax: true, ..plain },
    ] {
        assert!(!m.may_merge(), "{m:?}");
    }
    let with: Vec<_> = KernelVersion::ALL.into_iter().filter(|v| has_merge_any(*v)).collect();
    assert_eq!(with, [V6_12, V7_3]);
}
