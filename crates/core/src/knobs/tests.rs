use super::*;
use KernelVersion::{V3_8, V5_18, V6_1, V6_12, V7_3};

fn errno(k: &mut Knobs, name: &str, text: &str) -> Errno {
    let before = k.clone();
    let e = k.set(name, text).unwrap_err();
    assert_eq!(*k, before, "a refused write changes nothing");
    e.errno
}

// specs/knobs.md#table, specs/knobs.md#versions: names, defaults, locations.
#[test]
fn defaults_and_paths() {
    let mut rows = String::new();
    for v in [V3_8, V6_12] {
        let k = Knobs::new(v);
        for knob in Knob::ALL {
            let (Some(path), Ok(value)) = (knob.path(v), k.get(&knob.name())) else { continue };
            rows += &format!("{v} {path} = {value}\n");
        }
    }
    let expected = "\
3.8 /proc/sys/kernel/numa_balancing_scan_delay_ms = 1000
3.8 /proc/sys/kernel/numa_balancing_scan_period_min_ms = 100
3.8 /proc/sys/kernel/numa_balancing_scan_period_max_ms = 5000
3.8 /proc/sys/kernel/numa_balancing_scan_period_reset = 60000
3.8 /proc/sys/kernel/numa_balancing_scan_size_mb = 256
3.8 /proc/sys/vm/min_free_kbytes = auto
3.8 /proc/sys/vm/swappiness = 60
3.8 /sys/kernel/mm/transparent_hugepage/enabled = [always] madvise never
3.8 /sys/kernel/mm/transparent_hugepage/defrag = [always] madvise never
3.8 /sys/kernel/mm/transparent_hugepage/khugepaged/defrag = 1
3.8 /sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan = 4096
3.8 /sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs = 10000
3.8 /sys/kernel/mm/transparent_hugepage/khugepaged/alloc_sleep_millisecs = 60000
3.8 /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none = 511
6.12 /proc/sys/kernel/numa_balancing = 1
6.12 /sys/kernel/debug/sched/numa_balancing/scan_delay_ms = 1000
6.12 /sys/kernel/debug/sched/numa_balancing/scan_period_min_ms = 1000
6.12 /sys/kernel/debug/sched/numa_balancing/scan_period_max_ms = 60000
6.12 /sys/kernel/debug/sched/numa_balancing/scan_size_mb = 256
6.12 /sys/kernel/debug/sched/numa_balancing/hot_threshold_ms = 1000
6.12 /proc/sys/kernel/numa_balancing_promote_rate_limit_MBps = 65536
6.12 /sys/kernel/mm/numa/demotion_enabled = false
6.12 /proc/sys/vm/min_free_kbytes = auto
6.12 /proc/sys/vm/watermark_scale_factor = 10
6.12 /proc/sys/vm/swappiness = 60
6.12 /sys/kernel/mm/transparent_hugepage/enabled = [always] madvise never
6.12 /sys/kernel/mm/transparent_hugepage/defrag = always defer defer+madvise [madvise] never
6.12 /sys/kernel/mm/transparent_hugepage/khugepaged/defrag = 1
6.12 /sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan = 4096
6.12 /sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs = 10000
6.12 /sys/kernel/mm/transparent_hugepage/khugepaged/alloc_sleep_millisecs = 60000
6.12 /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none = 511
6.12 /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_swap = 64
6.12 /sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_shared = 256
6.12 /sys/kernel/mm/lru_gen/enabled = 0x0007
6.12 /sys/kernel/mm/lru_gen/min_ttl_ms = 0
6.12 /proc/sys/kernel/sched_schedstats = 0
6.12 /sys/kernel/debug/sched/base_slice_ns = auto
6.12 /sys/kernel/debug/sched/migration_cost_ns = 500000
6.12 /sys/kernel/debug/sched/nr_migrate = 32
";
    assert_eq!(rows, expected);
}

// specs/seeds.md#s0: a file in /proc/sys/kernel, in ms, 1000 at first, and the alias.
#[test]
fn seed_knob_and_its_alias() {
    let mut old = Knobs::new(V3_8);
    old.set("/proc/sys/kernel/numa_balancing_scan_delay_ms", "250\n").unwrap();
    assert_eq!(old.scan_delay_ms, 250);
    let mut new = Knobs::new(V6_12);
    new.set("numa_balancing_scan_delay_ms", "250").unwrap();
    new.set("kernel.numa_balancing_scan_delay_ms", "251").unwrap();
    assert_eq!(new.scan_delay_ms, 251);
    let e = new.set("/proc/sys/kernel/numa_balancing_scan_delay_ms", "1").unwrap_err();
    assert_eq!(e.errno, Errno::Enoent);
    assert_eq!(
        old.set("/sys/kernel/debug/sched/numa_balancing/scan_delay_ms", "7")
            .unwrap_err()
            .to_string(),
        "knob /sys/kernel/debug/sched/numa_balancing/scan_delay_ms: \"7\" is refused (ENOENT); \
         Linux 3.8 has it as /proc/sys/kernel/numa_balancing_scan_delay_ms"
    );
}

// specs/knobs.md#debugfs: automatic base, garbage EINVAL, beyond u64 ERANGE, silently
// truncated to u32.
#[test]
fn debugfs_numbers() {
    let mut k = Knobs::new(V6_12);
    for (text, v) in
        [("0x10", 16), ("010", 8), ("+7\n", 7), ("4294967297", 1), ("0", 0), ("0X1f\n", 31)]
    {
        k.set("scan_delay_ms", text).unwrap();
        assert_eq!(k.scan_delay_ms, v, "{text:?}");
    }
    for text in ["", "\n", "abc", "12 ", " 12", "-1", "0x", "08", "1\n\n", "+", "1e3", "٣"] {
        assert_eq!(errno(&mut k, "scan_delay_ms", text), Errno::Einval, "{text:?}");
    }
    for text in ["18446744073709551616", "0xffffffffffffffffff"] {
        assert_eq!(errno(&mut k, "scan_delay_ms", text), Errno::Erange);
    }
    k.set("scan_delay_ms", "18446744073709551615").unwrap();
    assert_eq!(k.scan_delay_ms, u32::MAX);
}

// specs/knobs.md#sysctl [3.8]: no limits, negative accepted into an unsigned.
#[test]
fn seed_sysctls_take_anything() {
    let mut k = Knobs::new(V3_8);
    k.set("scan_period_max_ms", " -1 rest").unwrap();
    assert_eq!(k.scan_period_max_ms, u32::MAX);
    assert_eq!(k.get("scan_period_max_ms").unwrap(), "-1");
    assert_eq!(errno(&mut k, "scan_period_max_ms", "x"), Errno::Einval);
}

// specs/knobs.md#sysctl: what a write takes; specs/seeds.md#s1: bits compatible with the old
// truth value; specs/exceptions/numa-balancing-4.md.
#[test]
fn bit_field() {
    let mut k = Knobs::new(V6_12);
    for (text, v) in [("0", 0), (" 1 \n", 1), ("0x2\n", 2), ("3 and more", 3), ("02", 2)] {
        k.set("/proc/sys/kernel/numa_balancing", text).unwrap();
        assert_eq!(k.numa_balancing.raw(), v);
        assert_eq!(k.get("kernel.numa_balancing").unwrap(), v.to_string());
    }
    for text in ["", " ", "two", "-1", "5", "2x", "4"] {
        assert_eq!(errno(&mut k, "numa_balancing", text), Errno::Einval, "{text:?}");
    }
    assert_eq!(
        k.set("numa_balancing", "4\n").unwrap_err().to_string(),
        "knob numa_balancing: \"4\" is refused (EINVAL); \
         allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)"
    );
    let user = WriteAs { cap_sys_admin: false, offset: 0 };
    assert_eq!(k.write("numa_balancing", "1", user).unwrap_err().errno, Errno::Eperm);
    let late = WriteAs { cap_sys_admin: true, offset: 1 };
    assert_eq!(k.write("numa_balancing", "1", late), Ok(1));
    assert_eq!(k.numa_balancing.raw(), 2, "a write at an offset is consumed, not heeded");
    k.emulate_quirks = true;
    k.set("numa_balancing", "4").unwrap();
    assert!(k.numa_balancing.enabled() && !k.numa_balancing.tiering());
}

// specs/exceptions/scan-size-zero.md.
#[test]
fn scan_size_zero() {
    let mut k = Knobs::new(V6_12);
    assert_eq!(errno(&mut k, "scan_size_mb", "0"), Errno::Einval);
    // 2^32 is 0 after the truncation to 32 bits.
    assert_eq!(errno(&mut k, "scan_size_mb", "4294967296"), Errno::Einval);
    assert_eq!(errno(&mut Knobs::new(V3_8), "scan_size_mb", "0"), Errno::Einval);
    k.emulate_quirks = true;
    k.set("scan_size_mb", "0").unwrap();
    assert_eq!(k.scan_size_mb, 0);
}

// specs/knobs.md#bool: syntax by first letters; 7.3 also e and d.
#[test]
fn demotion_enabled() {
    let mut k = Knobs::new(V6_12);
    for (text, v) in [
        ("1", true),
        ("n", false),
        ("Yes", true),
        ("of", false),
        ("on\n", true),
        ("F", false),
        ("true", true),
        ("0x1", false),
    ] {
        k.set("/sys/kernel/mm/numa/demotion_enabled", text).unwrap();
        assert_eq!(k.get("demotion_enabled").unwrap(), v.to_string(), "{text:?}");
    }
    for text in ["", "2", "o", "enable", "disable", " 1"] {
        assert_eq!(errno(&mut k, "demotion_enabled", text), Errno::Einval, "{text:?}");
    }
    let mut k = Knobs::new(V7_3);
    k.set("demotion_enabled", "enable").unwrap();
    assert!(k.demotion_enabled);
    k.set("demotion_enabled", "d").unwrap();
    assert!(!k.demotion_enabled);
}

// specs/knobs.md#table: bounds.
#[test]
fn bounds() {
    let mut k = Knobs::new(V6_1);
    for (name, good, bad) in [
        ("vm.watermark_scale_factor", "1", "0"),
        ("/proc/sys/vm/watermark_scale_factor", "3000", "3001"),
        ("promote_rate_limit_MBps", "2147483647", "2147483648"),
        ("numa_balancing_promote_rate_limit_MBps", "0", "-1"),
        ("swappiness", "200", "201"),
        ("min_free_kbytes", "67584", "99999999999999999999"),
    ] {
        k.set(name, good).unwrap();
        assert_eq!(k.get(name).unwrap(), good);
        assert_eq!(errno(&mut k, name, bad), Errno::Einval, "{name}");
    }
    assert_eq!(errno(&mut Knobs::new(V3_8), "swappiness", "101"), Errno::Einval);
}

#[test]
fn versions_without_a_knob() {
    for (v, name) in [
        (V3_8, "hot_threshold_ms"),
        (V5_18, "numa_balancing_promote_rate_limit_MBps"),
        (V6_12, "scan_period_reset_ms"),
        (V3_8, "demotion_enabled"),
        (V6_1, "weighted_interleave/node0"),
        (V6_12, "no_such_knob"),
        (V6_12, "/proc/sys/kernel/scan_delay_ms"),
        (V6_12, "weighted_interleave/node-1"),
        (V6_12, "weighted_interleave/node01"),
    ] {
        assert_eq!(errno(&mut Knobs::new(v), name, "1"), Errno::Enoent, "{v} {name}");
        assert_eq!(Knobs::new(v).get(name).unwrap_err().errno, Errno::Enoent);
    }
    let text = Knobs::new(V3_8).get("hot_threshold_ms").unwrap_err().to_string();
    assert!(text.ends_with("Linux 3.8 does not have it; 6.1, 6.12, 7.3 do"), "{text}");
}

// specs/knobs.md#words: a weight.
#[test]
fn interleave_weights() {
    let mut k = Knobs::new(V6_12);
    let path = "/sys/kernel/mm/mempolicy/weighted_interleave/node2";
    assert_eq!(k.get(path).unwrap(), "1");
    k.set(path, "0xff\n").unwrap();
    assert_eq!(k.interleave_weight(NodeId(2)), 255);
    for text in ["0", "256", "x", "-1"] {
        assert_eq!(errno(&mut k, path, text), Errno::Einval);
    }
    k.set("weighted_interleave/node2", "\n").unwrap();
    assert_eq!(k.interleave_weight(NodeId(2)), 1);
}

// specs/huge-pages.md#who, #fault: knob and advice; what a fault does for a huge page.
#[test]
fn huge_pages_are_for_whom_the_knob_says() {
    let advice = [None, Some(true), Some(false)];
    let allows = |k: HugePages| advice.map(|a| k.allow(a));
    assert_eq!(allows(HugePages::Always), [true, true, false]);
    assert_eq!(allows(HugePages::Madvise), [false, true, false]);
    assert_eq!(allows(HugePages::Never), [false; 3]);
    let does = |word: &str| {
        let mut k = Knobs::new(V6_12);
        k.set("transparent_hugepage/defrag", word).unwrap();
        let d = k.transparent_hugepage_defrag;
        [false, true].map(|advised| (d.reclaims(advised), d.wakes_kswapd(advised)))
    };
    assert_eq!(does("always"), [(true, false), (true, false)]);
    assert_eq!(does("defer"), [(false, true), (false, true)]);
    assert_eq!(does("defer+madvise"), [(false, true), (true, false)]);
    assert_eq!(does("madvise"), [(false, false), (true, false)]);
    assert_eq!(does("never"), [(false, false), (false, false)]);
    // Before there was deferring.
    let mut old = Knobs::new(V3_8);
    assert_eq!(errno(&mut old, "transparent_hugepage/defrag", "defer"), Errno::Einval);
    old.set("transparent_hugepage/defrag", "madvise").unwrap();
    assert_eq!(old.get("transparent_hugepage/defrag").unwrap(), "always [madvise] never");
    assert_eq!(errno(&mut old, "khugepaged/max_ptes_swap", "1"), Errno::Enoent);
}

// specs/knobs.md#khugepaged: decimal within bounds, everything else is EINVAL.
#[test]
fn khugepaged_s_numbers() {
    let mut k = Knobs::new(V6_12);
    k.set("khugepaged/pages_to_scan", "+0512\n").unwrap();
    assert_eq!(k.khugepaged.pages_to_scan, 512);
    for text in ["0", "0x10", "-1", "4294967296", "99999999999999999999", ""] {
        assert_eq!(errno(&mut k, "khugepaged_pages_to_scan", text), Errno::Einval, "{text:?}");
    }
    assert_eq!(errno(&mut k, "khugepaged/max_ptes_none", "512"), Errno::Einval);
    k.set("khugepaged/defrag", "0").unwrap();
    assert_eq!(errno(&mut k, "khugepaged/defrag", "2"), Errno::Einval);
    assert_eq!(errno(&mut k, "khugepaged/defrag", "99999999999999999999"), Errno::Erange);
}

// specs/knobs.md#words: a word.
#[test]
fn words() {
    let mut k = Knobs::new(V6_12);
    k.set("transparent_hugepage", "never\n").unwrap();
    assert_eq!(k.get("transparent_hugepage").unwrap(), "always madvise [never]");
    for text in ["", "nev", "never ", "[never]"] {
        assert_eq!(errno(&mut k, "transparent_hugepage", text), Errno::Einval);
    }
}

proptest::proptest! {
    // Whatever is written, nothing panics and a refusal changes nothing.
    #[test]
    fn any_text(text in "\\PC{0,24}|[ \\t]?[-+]?(0x)?[0-9a-f]{1,24}[ \\n]?.{0,3}", which in 0usize..13, v in 0usize..5) {
        let mut k = Knobs::new(KernelVersion::ALL[v]);
        let before = k.clone();
        if k.set(&Knob::ALL[which].name(), &text).is_err() {
            proptest::prop_assert_eq!(before, k);
        }
    }
}

// specs/mglru.md#files: first letters, numbers with their base, other bits ignored.
#[test]
fn bits_of_generations() {
    let mut k = Knobs::new(V6_12);
    for (text, shown) in [
        ("y", "0x0007"),
        ("nothing", "0x0000"),
        ("Y\n", "0x0007"),
        ("0x5\n", "0x0005"),
        ("010", "0x0000"),
        ("15", "0x0007"),
        ("1", "0x0001"),
    ] {
        k.set("/sys/kernel/mm/lru_gen/enabled", text).unwrap();
        assert_eq!(k.get("lru_gen").unwrap(), shown, "{text:?}");
    }
    for text in ["", "on", "-1", "1 ", "4294967296", "18446744073709551616"] {
        assert_eq!(errno(&mut k, "lru_gen", text), Errno::Einval, "{text:?}");
    }
    // It is kept in ticks.
    k.set("lru_gen_min_ttl_ms", "5").unwrap();
    assert_eq!(k.get("/sys/kernel/mm/lru_gen/min_ttl_ms").unwrap(), "8");
    assert_eq!(
        Knobs::new(V5_18).set("lru_gen", "y").unwrap_err().to_string(),
        "knob lru_gen: \"y\" is refused (ENOENT); Linux 5.18 does not have it; \
         6.1, 6.12, 7.3 do"
    );
}
