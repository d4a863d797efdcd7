//! What is found on other machines, from their files, and on this one.
//!
//! A fixture is one text: `== PATH` begins a file below the root, and the lines up to the
//! next one are what it holds. The calls' answers are given by the test.

use expect_test::{Expect, expect};
use homenode_core::policy::choice::{choose, lacks};
use homenode_core::policy::facts::{Known, Lack, Sampling};
use homenode_core::policy::seen::Source;
use homenode_fixtures::Folder;
use homenode_fixtures::folder::unpack;
use homenode_live::probe::{Calls, Event, FilesOnly, LoadEvents, Probe, ThisKernel, look};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn machine(name: &str) -> Folder {
    Folder::unpacked(&archive(name))
}
fn archive(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/probe").join(name)
}

/// Answers every call alike, and keeps what perf was asked.
#[derive(Default)]
struct Answers {
    /// By the PMU's number; others have no such event.
    perf: BTreeMap<u32, Result<(), i32>>,
    asked: RefCell<Vec<Vec<Event>>>,
}

impl Calls for Answers {
    fn perf_open(&self, group: &[Event]) -> Option<Result<(), i32>> {
        self.asked.borrow_mut().push(group.to_vec());
        let last = group.last()?;
        Some(self.perf.get(&last.kind).copied().unwrap_or(Err(libc::ENOENT)))
    }
    fn pagemap_scan(&self) -> Option<Result<(), i32>> {
        Some(Ok(()))
    }
    fn soft_dirty(&self) -> Option<bool> {
        None
    }
    fn page_query(&self) -> Option<Result<(), i32>> {
        Some(Ok(()))
    }
    fn memlock(&self) -> Option<(u64, u64)> {
        Some((8 << 20, u64::MAX))
    }
}

/// The facts that matter, the choice, and what the others lack.
fn summary(p: &Probe) -> String {
    let facts = p.facts();
    let mut out = format!(
        "nodes {} with memory, {} slow, {} with CPUs\n",
        facts.memory_nodes, facts.slow_nodes, facts.cpu_nodes
    );
    out += &format!("{}\n", choose(&facts));
    for source in Source::ALL {
        let lacks: Vec<_> = lacks(source, &facts).iter().map(ToString::to_string).collect();
        let lacks = if lacks.is_empty() { "offered".to_owned() } else { lacks.join("; ") };
        out += &format!("{}: {lacks}\n", source.name());
    }
    out
}

fn check(tree: &Folder, calls: &dyn Calls, expected: Expect) -> Probe {
    let probe = look(tree, calls);
    expected.assert_eq(&summary(&probe));
    probe
}

#[test]
fn one_node_whose_damon_is_taken_has_residency_only() {
    let tree = machine("one-node-6.18.txt");
    let calls = Answers::default();
    let p = check(
        &tree,
        &calls,
        expect![[r#"
        nodes 1 with memory, 0 slow, 1 with CPUs
        residency only: no source of heat is offered here
        damon: the kernel is built without CONFIG_DAMON_VADDR; DAMON belongs to somebody else: 1 kdamond slot, 1 running
        hint-fault: only one node has memory: hint faults tell too little
        pmu: no PMU here samples addresses of memory accesses
        residency: offered
    "#]],
    );
    assert_eq!((p.damon.vaddr, p.damon.paddr), (Known::No, Known::Yes));
    assert_eq!((p.damon.slots[0].on, p.damon.slots[0].pid), (Some(true), Some(77)));
    assert_eq!((p.damon.slots[0].operations.as_deref(), p.damon.running()), (Some("paddr"), 1));
    assert_eq!((p.hints.tracefs.as_deref(), p.pages.soft_dirty), (None, Known::No));
    assert_eq!((p.ksm.run, p.demotion_enabled), (Some(0), Some(false)));
    assert_eq!(p.interleave.map(|i| (i.weights, i.auto)), Some(([(0, 1)].into(), Some(true))));
    assert_eq!(p.rights.container, ["/.dockerenv"]);
    assert_eq!(p.unseen, [""; 0]);
    // Only cycles were tried: no PMU tells addresses.
    assert_eq!((calls.asked.borrow().len(), p.pmu.cycles), (1, Some(Err(libc::ENOENT))));
    assert_eq!(p.pmu.loads, LoadEvents::NoPmu);
}

#[test]
fn two_sockets_use_samples_and_without_them_hint_faults() {
    let tree = machine("two-sockets-6.1.txt");
    let calls = Answers { perf: [(4, Ok(())), (0, Ok(()))].into(), ..Answers::default() };
    let p = check(
        &tree,
        &calls,
        expect![[r#"
        nodes 2 with memory, 0 slow, 2 with CPUs
        pmu: several nodes have CPUs, and of equals (10 points) it costs or disturbs least
        damon: the kernel is built without CONFIG_DAMON_SYSFS; the kernel is built without CONFIG_DAMON_VADDR
        hint-fault: offered
        pmu: offered
        residency: offered
    "#]],
    );
    // Event 0xcd, mask 1, latencies from 3 on, exact addresses.
    let loads = calls.asked.borrow()[1].clone();
    assert_eq!(loads.len(), 1);
    assert_eq!((loads[0].kind, loads[0].config, loads[0].config1), (4, 0x1cd, 3));
    assert_eq!((loads[0].precise, loads[0].period), (2, 10_007));
    assert_eq!(p.hints.tracepoints, ["migrate/mm_migrate_pages", "sched/sched_move_numa"]);
    assert_eq!(p.hints.functions, ["mpol_misplaced"]);
    assert_eq!((p.damon.sysfs, p.damon.vaddr), (Known::No, Known::No));
    let (pid, name, stat) = &p.ksm.registered[0];
    assert_eq!((*pid, name.as_str(), stat.merging_pages), (812, "qemu-system-x86", 90_112));
    assert_eq!(p.interleave, None);
    assert_eq!(p.rights.lockdown.as_deref(), Some("none"));

    // Cycles in the kernel too, then Ice Lake's events of the program alone, in one group.
    let LoadEvents::Opens(group) = p.pmu.loads else { panic!("{:?}", p.pmu.loads) };
    assert_eq!(calls.asked.borrow().last(), Some(&group));
    let kinds: Vec<_> = group.iter().map(|e| (e.kind, e.config, e.user_only, e.period)).collect();
    let cpu = |config| (4, config, true, 0);
    assert_eq!(kinds, [(0, 0, false, 0), cpu(0x0148), cpu(0x0100_0148), cpu(0x08d1)]);
    // Of files alone it can't be told.
    assert_eq!(look(&tree, &FilesOnly).pmu.loads, LoadEvents::Untried(group));

    let refused = Answers { perf: [(4, Err(libc::EACCES))].into(), ..Answers::default() };
    let p = check(
        &tree,
        &refused,
        expect![[r#"
        nodes 2 with memory, 0 slow, 2 with CPUs
        hint-fault: the only source of heat that is offered here
        damon: the kernel is built without CONFIG_DAMON_SYSFS; the kernel is built without CONFIG_DAMON_VADDR
        hint-fault: offered
        pmu: perf refuses samples of memory accesses
        residency: offered
    "#]],
    );
    assert_eq!(p.pmu.loads, LoadEvents::Failed(libc::EACCES));
    let said = "not counted (error 13: not privileged: see kernel.perf_event_paranoid)";
    assert_eq!(p.pmu.loads.to_string(), said);
}

#[test]
fn an_auxiliary_event_leads_the_loads() {
    let tree = machine("two-sockets-6.1.txt")
        .with("sys/bus/event_source/devices/cpu/events/mem-loads-aux", "event=0x03,umask=0x82\n");
    let calls = Answers { perf: [(4, Ok(()))].into(), ..Answers::default() };
    assert_eq!(look(&tree, &calls).pmu.sampling, Sampling::Opens);
    let group = calls.asked.borrow()[1].clone();
    let shape: Vec<_> = group.iter().map(|e| (e.config, e.period, e.precise)).collect();
    assert_eq!(shape, [(0x8203, 0, 0), (0x1cd, 10_007, 2)]);
}

#[test]
fn a_slow_node_uses_damon() {
    let tree = machine("slow-node-6.12.txt");
    let calls = Answers { perf: [(11, Ok(()))].into(), ..Answers::default() };
    let p = check(
        &tree,
        &calls,
        expect![[r#"
        nodes 2 with memory, 1 slow, 1 with CPUs
        damon: there is a slow node, and it decides most (10 points, the next one 9)
        damon: offered
        hint-fault: offered
        pmu: offered
        residency: offered
    "#]],
    );
    assert_eq!(calls.asked.borrow()[1][0].config, 1 << 19);
    assert_eq!(p.tiers, [(4, vec![0]), (84, vec![1])].into());
    assert_eq!(p.hints.tracefs.as_deref(), Some("/sys/kernel/debug/tracing"));
    assert_eq!(p.pages.lru_gen.as_deref(), Some("0x0007"));
    drop(p);

    // A module takes DAMON; samples remain.
    let tree = tree.with("sys/module/damon_reclaim/parameters/enabled", "Y\n");
    let p = look(&tree, &calls);
    assert_eq!(choose(&p.facts()).source, Source::Pmu);
    // Its thread is not somebody else's as well.
    let tree = tree.with("proc/56/comm", "kdamond.0\n");
    assert_eq!(lacks(Source::Damon, &look(&tree, &calls).facts()), [Lack::ModuleHolds]);
    // Without a configuration the kernel's functions tell of virtual address spaces.
    let tree = tree.without("boot");
    assert_eq!(look(&tree, &calls).damon.vaddr, Known::Yes);
    let tree = tree.without("proc/kallsyms");
    assert_eq!(look(&tree, &calls).damon.vaddr, Known::Unseen);
    // A service may not see them (ProtectKernelTunables=), but its types.
    let btf = "sys/kernel/btf/vmlinux";
    let told =
        tree.with(btf, "\u{9f}\0vfs_read\0mpol_misplaced\0damon_va_prepare_access_checks\0x\0");
    let p = look(&told, &calls);
    assert_eq!((p.damon.vaddr, p.hints.functions), (Known::Yes, vec!["mpol_misplaced"]));
    let told = told.with(btf, "\u{9f}\0vfs_read\0x\0");
    assert_eq!(look(&told, &calls).damon.vaddr, Known::No);
    let told = told.with(btf, "types without functions\0");
    assert_eq!(look(&told, &calls).damon.vaddr, Known::Unseen);
}

#[test]
fn a_node_without_cpus_is_slow_whatever_its_tier() {
    let tiers = "sys/devices/virtual/memory_tiering";
    let tree = machine("slow-node-6.12.txt")
        .with(format!("{tiers}/memory_tier4/nodelist"), "0-1\n")
        .without(format!("{tiers}/memory_tier84"));
    let facts = look(&tree, &FilesOnly).facts();
    assert_eq!((facts.slow_nodes, facts.lower_nodes), (1, 0));
    assert!(lacks(Source::HintFault, &facts).contains(&Lack::NothingSlow));
    let facts = look(&tree.without(tiers), &FilesOnly).facts();
    assert_eq!((facts.slow_nodes, facts.lower_nodes), (1, 1));
}

#[test]
fn a_container_may_not_even_if_its_user_is_root() {
    let tree = machine("slow-node-6.12.txt")
        .with("proc/self/uid_map", "0 100000 65536\n")
        .without("proc/2");
    let p = check(
        &tree,
        &FilesOnly,
        expect![[r#"
        nodes 2 with memory, 1 slow, 1 with CPUs
        residency only: no source of heat is offered here
        damon: DAMON's files may not be written
        hint-fault: BPF programs may not be loaded
        pmu: samples of memory accesses were not tried
        residency: offered
    "#]],
    );
    assert_eq!((p.rights.first_userns, p.rights.sees_kthreads), (Some(false), false));
}

#[test]
fn an_empty_folder_tells_nothing_and_is_no_error() {
    let p = check(
        &Folder::new(),
        &FilesOnly,
        expect![[r#"
        nodes 1 with memory, 0 slow, 1 with CPUs
        residency only: no source of heat is offered here
        damon: can't see whether the kernel is built with CONFIG_DAMON_SYSFS; can't see whether the kernel is built with CONFIG_DAMON_VADDR; DAMON's files may not be written
        hint-fault: can't see whether the kernel is built with CONFIG_NUMA_BALANCING; only one node has memory: hint faults tell too little; can't see whether the kernel is built with CONFIG_BPF_SYSCALL; can't see whether the kernel is built with CONFIG_DEBUG_INFO_BTF; BPF programs may not be loaded
        pmu: no PMU here samples addresses of memory accesses
        residency: offered
    "#]],
    );
    assert!(p.topology.is_err());
}

#[test]
fn this_machine_is_looked_at_and_left_as_it_is() {
    let knobs = || -> Vec<_> {
        [
            "/proc/sys/kernel/numa_balancing",
            "/proc/sys/kernel/perf_event_paranoid",
            "/sys/kernel/mm/numa/demotion_enabled",
            "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds",
            "/sys/kernel/mm/mempolicy/weighted_interleave/node0",
        ]
        .map(|path| fs::read_to_string(path).ok())
        .into()
    };
    let before = knobs();
    let p = look(Path::new("/"), &ThisKernel);
    assert_eq!(knobs(), before);
    assert!(p.kernel.is_some() && p.topology.is_ok());
    assert!(p.facts().memory_nodes >= 1);
    assert!(p.rights.euid.is_some() && p.rights.memlock.is_some());
    assert!(p.pages.page_query.is_some() && p.pmu.cycles.is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Any file of a machine may hold anything.
    #[test]
    fn odd_files_never_panic(
        which in 0_usize..3,
        at in any::<proptest::sample::Index>(),
        bytes in prop_oneof![
            any::<Vec<u8>>(),
            "[0-9,:=x \\[\\]\n-]{0,30}".prop_map(String::into_bytes),
        ],
    ) {
        let name = ["one-node-6.18.txt", "two-sockets-6.1.txt", "slow-node-6.12.txt"][which];
        let all = unpack(&archive(name));
        let (path, _) = &all[at.index(all.len())];
        let tree = machine(name).with(path, bytes);
        let p = look(&tree, &FilesOnly);
        let _ = (summary(&p), p.damon.running());
    }
    /// A packed configuration may be cut or damaged.
    #[test]
    fn odd_packed_configurations_never_panic(cut in 0_usize..200, flip in any::<u8>()) {
        use std::io::Write as _;
        let mut pack = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        pack.write_all(b"CONFIG_DAMON_VADDR=y\n# CONFIG_NUMA is not set\n").unwrap();
        let whole = pack.finish().unwrap();
        let tree = Folder::new().with("proc/config.gz", &whole);
        let p = look(&tree, &FilesOnly);
        prop_assert_eq!(p.config.has("CONFIG_DAMON_VADDR"), Known::Yes);
        let mut bytes = whole[..cut.min(whole.len())].to_vec();
        let at = usize::from(flip) % bytes.len().max(1);
        if let Some(b) = bytes.get_mut(at) {
            *b ^= flip;
        }
        let tree = tree.with("proc/config.gz", &bytes);
        let _ = look(&tree, &FilesOnly);
    }
}
