//! A machine that is files only.

use std::fs;
use std::path::Path;

/// Another machine's files: a socket and an expander, as firmware tells them, and one
/// process, which has what a real one has in its `stat`.
pub(crate) fn two_nodes(at: &Path, pid: u32) {
    let put = |name: &str, text: &str| {
        let path = at.join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    let node = "sys/devices/system/node";
    put(&format!("{node}/online"), "0-1\n");
    put("sys/devices/system/cpu/online", "0-3\n");
    put("proc/sys/kernel/random/boot_id", "4c1f7a52\n");
    let mut zones = String::new();
    for (id, tier, cpus, distance, ns, mbps) in
        [(0, 4, "0-3", "10 20", 90, 100_000), (1, 22, "", "20 10", 250, 30_000)]
    {
        put(&format!("{node}/node{id}/cpulist"), &format!("{cpus}\n"));
        put(&format!("{node}/node{id}/distance"), &format!("{distance}\n"));
        let access = format!("{node}/node{id}/access1/initiators");
        put(&format!("{access}/node0/uevent"), "");
        for way in ["read", "write"] {
            put(&format!("{access}/{way}_latency"), &format!("{ns}\n"));
            put(&format!("{access}/{way}_bandwidth"), &format!("{mbps}\n"));
        }
        put(&format!("sys/kernel/mm/mempolicy/weighted_interleave/node{id}"), "1\n");
        let tiers = "sys/devices/virtual/memory_tiering";
        put(&format!("{tiers}/memory_tier{tier}/nodelist"), &format!("{id}\n"));
        zones += &format!("Node {id}, zone   Normal\n  pages free     50000\n");
        for (name, pages) in [("boost", 0), ("min", 1000), ("low", 1250), ("high", 1500)] {
            zones += &format!("        {name:<8} {pages}\n");
        }
        for (name, pages) in [("promo", 1750), ("spanned", 262_144), ("present", 262_144)] {
            zones += &format!("        {name:<8} {pages}\n");
        }
        zones += "        managed  262144\n        protection: (0, 0, 0, 0)\n";
    }
    put("proc/zoneinfo", &zones);
    put("proc/sys/kernel/osrelease", "6.12.9-two\n");
    put("proc/sys/kernel/numa_balancing", "1\n");
    put("proc/sys/vm/zone_reclaim_mode", "1\n");
    put("sys/kernel/mm/numa/demotion_enabled", "false\n");
    for name in ["stat", "cmdline", "comm", "status"] {
        let text = fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        put(&format!("proc/{pid}/{name}"), &text);
    }
}
