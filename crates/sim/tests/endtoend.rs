//! The kernel's own mechanisms on the simulated kernel alone, and on kernels that are
//! broken on purpose: each body must find what it is for. Guests hold the same bodies
//! against real kernels (`tests/vm/guest`).

mod support;

use homenode_core::kernel::KernelVersion;
use homenode_core::scenario::{AdmissionChoice, Model};
use homenode_core::topology::{Hardware, ZoneKind};
use homenode_core::units::{NodeId, Pages, Picos};
use homenode_machine::endtoend::collapse::{self, What, collapses};
use homenode_machine::endtoend::home::{self, comes_home};
use homenode_machine::endtoend::huge;
use homenode_machine::endtoend::pressure::{self, pressed};
use homenode_machine::endtoend::slow_start::{self, s0};
use homenode_machine::endtoend::split::{self, goes_down};
use homenode_machine::endtoend::tiering::{self, s1};
use homenode_machine::endtoend::{
    Figures, Finding, KernelStage, Program, Runs, Started, compare, vmstat,
};
use homenode_sim::twin::Twin;
use support::{dram, machine};

const VERSIONS: [KernelVersion; 3] =
    [KernelVersion::V6_1, KernelVersion::V6_12, KernelVersion::V7_3];
const MIB: u64 = 256;

/// Two nodes with CPUs and memory.
fn two_nodes() -> Hardware {
    machine(&[dram(768 * MIB, 2), dram(768 * MIB, 2)])
}
/// A fast node of 512 MiB in two zones above a slow one, as the guest `small-fast-node`.
fn small_fast_node() -> Hardware {
    let mut fast = dram(0, 2);
    fast.zones = vec![(ZoneKind::Dma, 3840), (ZoneKind::Dma32, 124_000)];
    let mut slow = dram(0, 0);
    slow.zones = vec![(ZoneKind::Dma32, 377_000)];
    (slow.ns, slow.mbps) = (500, 20_000);
    machine(&[fast, slow])
}
fn twin(machine: &Hardware, version: KernelVersion, model: Model) -> Twin {
    let dma = machine.nodes[0].zones.iter().any(|z| z.kind == ZoneKind::Dma);
    let used =
        [(NodeId(0), ZoneKind::Dma, Pages(1000)), (NodeId(0), ZoneKind::Dma32, Pages(20_000))];
    let used = if dma { &used[..] } else { &[] };
    Twin::boot(machine, version, model, used).expect("a machine")
}
fn burst(ms: u64) -> slow_start::Case {
    let burst = Picos::from_ms(ms);
    slow_start::Case { burst, memory: NodeId(0), cpu: NodeId(1), free: false }
}
fn tiers(mode: u8, demotion: bool, huge: bool) -> tiering::Case {
    tiering::Case { mode, demotion, huge, fast: NodeId(0), slow: NodeId(1) }
}
fn all_tiers() -> Vec<tiering::Case> {
    let mut all = Vec::new();
    for huge in [false, true] {
        for mode in 0..4 {
            all.extend([tiers(mode, false, huge), tiers(mode, true, huge)]);
        }
    }
    all
}
fn fine(what: &str, found: Result<Figures, Finding>) -> Figures {
    match found {
        Ok(figures) => {
            println!("{what}: {figures:?}");
            figures
        }
        Err(finding) => panic!("{what}: {finding}"),
    }
}

#[test]
fn a_short_burst_is_never_sampled_and_a_long_one_comes_together() {
    for version in VERSIONS {
        for ms in [500, 3000] {
            let mut stage = twin(&two_nodes(), version, Model::default());
            let case = burst(ms);
            fine(&format!("{version}, {}", case.name()), s0(&mut stage, &case));
        }
    }
}

/// A task away from its memory.
fn away() -> home::Case {
    home::Case { memory: NodeId(1), cpu: NodeId(0) }
}

#[test]
fn a_task_comes_home() {
    for version in VERSIONS {
        let mut stage = twin(&two_nodes(), version, Model::default());
        fine(&version.to_string(), comes_home(&mut stage, &away()));
    }
}

#[test]
fn huge_pages_are_for_whom_the_knob_says() {
    for version in VERSIONS {
        for case in huge::Case::all(NodeId(0)) {
            let mut stage = twin(&two_nodes(), version, Model::default());
            fine(&format!("{version}, {}", case.name()), huge::touched(&mut stage, &case));
        }
    }
}

/// What khugepaged finds; a node that is filled is the slow one.
fn collapse(what: What) -> collapse::Case {
    let node = NodeId(u16::from(what == What::NoRoom));
    collapse::Case { what, node, cpu: NodeId(0) }
}

#[test]
fn khugepaged_makes_huge_pages_as_its_knobs_say() {
    for version in VERSIONS {
        for what in [What::Whole, What::Partly, What::NoRoom] {
            let (mut stage, case) =
                (twin(&small_fast_node(), version, Model::default()), collapse(what));
            let name = format!("{version}, {}", case.name());
            let found = fine(&name, collapses(&mut stage, &case));
            let wakes = ["collapse_first", "collapse_second", "collapse_third"].map(|f| found[f]);
            let expected = match what {
                // Another program's huge page is looked at first; to 7.3 it is one entry.
                What::Whole if version < KernelVersion::V7_3 => [7, 15, 20],
                What::Whole => [8, 16, 20],
                What::Partly => [0, 4, 4],
                What::NoRoom => [0, 0, 0],
            };
            assert_eq!(wakes, expected, "{name}");
        }
    }
}

#[test]
fn huge_pages_go_down_whole_or_in_parts() {
    for version in [KernelVersion::V6_12, KernelVersion::V7_3] {
        for case in split::Case::all(NodeId(0), NodeId(1)) {
            let mut stage = twin(&small_fast_node(), version, Model::default());
            let found = goes_down(&mut stage, &case).map(|f| f.expect("a slower tier"));
            fine(&format!("{version}, {}", case.name()), found);
        }
    }
}

#[test]
fn what_a_node_has_no_room_for_goes_down() {
    for version in [KernelVersion::V6_12, KernelVersion::V7_3] {
        for what in pressure::What::ALL {
            for case in pressure::Case::all(what, NodeId(0), NodeId(1)) {
                let mut stage = twin(&small_fast_node(), version, Model::default());
                let found = pressed(&mut stage, &case).map(|f| f.expect("a slower tier"));
                fine(&format!("{version}, {}", case.name()), found);
            }
        }
    }
}

#[test]
fn a_hot_set_comes_up_where_the_kernel_makes_room() {
    for version in VERSIONS {
        for case in all_tiers() {
            // A kswapd that has failed 16 times leaves its node to others from then on.
            let mut stage = twin(&small_fast_node(), version, Model::default());
            fine(&format!("{version}, {}", case.name()), s1(&mut stage, &case));
        }
    }
}

// ── Kernels that are broken on purpose ─────────────────────────────────────────

/// What is wrong with a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// Samples from a program's first tick on.
    IgnoresTheDelay,
    /// Never samples.
    NeverSamples,
    /// Samples with balancing off.
    AlwaysBalances,
    /// Marks entries twice as often as its counter says.
    MiscountsMarks,
    /// Counts no page that balancing moves.
    ForgetsMoves,
    /// Counts promotions in every mode.
    CountsPromotionsWithoutTiering,
    /// Promotes down to the min mark.
    PromotesWithoutRoom,
    /// Demotes though it is switched off.
    DemotesThoughOff,
    /// Never demotes.
    NeverDemotes,
    /// Lets allocations reclaim.
    Stalls,
    /// Loses a page.
    LosesPages,
    /// Leaves every task where it is.
    NobodyFollows,
    /// Makes huge pages whatever its knob says.
    AlwaysHuge,
    /// Makes none.
    NeverHuge,
    /// Counts a huge page as 512 allocations.
    CountsParts,
    /// khugepaged sleeps on, whatever is written.
    SleepsOn,
    /// khugepaged makes up for any page that is absent.
    IgnoresAbsent,
    /// Counts what is split to be demoted twice.
    CountsSplitsTwice,
}

struct Broken {
    inner: Twin,
    bug: Bug,
}

impl KernelStage for Broken {
    fn version(&self) -> KernelVersion {
        self.inner.version()
    }
    fn read(&mut self, path: &str) -> Result<String, Finding> {
        let text = self.inner.read(path)?;
        if self.bug == Bug::LosesPages && path.ends_with("numa_maps") {
            // One of the first thousand.
            return Ok(text.replacen("N0=", "N0=1", 1).replacen("N1=2", "N1=1", 1));
        }
        if self.bug == Bug::CountsParts && path.ends_with("numastat") {
            let all = vmstat(&self.inner.read("/proc/vmstat")?);
            let parts = 511 * all.get("thp_fault_alloc").copied().unwrap_or(0);
            let line = |l: &str| match l.strip_prefix("numa_hit ") {
                Some(n) => format!("numa_hit {}\n", n.parse::<u64>().expect("a number") + parts),
                None => format!("{l}\n"),
            };
            return Ok(text.lines().map(line).collect());
        }
        if path != "/proc/vmstat" {
            return Ok(text);
        }
        let mut all = vmstat(&text);
        let of = |all: &std::collections::BTreeMap<String, u64>, name: &str| {
            all.get(name).copied().unwrap_or(0)
        };
        match self.bug {
            Bug::MiscountsMarks => {
                let half = of(&all, "numa_pte_updates") / 2;
                all.insert("numa_pte_updates".into(), half);
            }
            Bug::ForgetsMoves => {
                all.insert("numa_pages_migrated".into(), 0);
            }
            Bug::CountsPromotionsWithoutTiering => {
                let faults = of(&all, "numa_hint_faults");
                all.insert("pgpromote_success".into(), faults);
            }
            Bug::CountsSplitsTwice => {
                let twice = 2 * of(&all, "thp_migration_split");
                all.insert("thp_migration_split".into(), twice);
            }
            Bug::Stalls => {
                let stalls = of(&all, "pgfault") / 1000;
                all.insert("allocstall_movable".into(), stalls);
            }
            _ => {}
        }
        Ok(all.iter().map(|(name, n)| format!("{name} {n}\n")).collect())
    }
    fn write(&mut self, path: &str, text: &str) -> Result<(), Finding> {
        let text = match self.bug {
            Bug::IgnoresTheDelay if path.ends_with("/scan_delay_ms") => "1",
            Bug::IgnoresTheDelay if path.ends_with("/scan_period_min_ms") => "100",
            Bug::NeverSamples if path.ends_with("/numa_balancing") => "0",
            Bug::AlwaysBalances if path.ends_with("/numa_balancing") => "3",
            Bug::DemotesThoughOff if path.ends_with("/demotion_enabled") => "true",
            Bug::AlwaysHuge if path.ends_with("/enabled") => "always",
            Bug::NeverHuge if path.ends_with("/enabled") => "never",
            Bug::NeverDemotes if path.ends_with("/demotion_enabled") => "false",
            Bug::SleepsOn if path.ends_with("/scan_sleep_millisecs") => return Ok(()),
            Bug::IgnoresAbsent if path.ends_with("/max_ptes_none") => "511",
            _ => text,
        };
        self.inner.write(path, text)
    }
    fn list(&mut self, folder: &str) -> Result<Vec<String>, Finding> {
        self.inner.list(folder)
    }
    fn start(&mut self, program: &Program) -> Result<Started, Finding> {
        let mut program = program.clone();
        if let (Bug::NobodyFollows, Runs::From(node)) = (self.bug, program.runs) {
            program.runs = Runs::Pinned(node);
        }
        self.inner.start(&program)
    }
    fn walk(&mut self, who: &Started) -> Result<(), Finding> {
        self.inner.walk(who)
    }
    fn ran(&mut self, who: &Started) -> Result<Picos, Finding> {
        self.inner.ran(who)
    }
    fn cpu_node(&mut self, who: &Started) -> Result<NodeId, Finding> {
        self.inner.cpu_node(who)
    }
    fn pass(&mut self) -> Result<(), Finding> {
        self.inner.pass()
    }
    fn end_all(&mut self) {
        self.inner.end_all();
    }
}

fn broken(machine: &Hardware, bug: Bug) -> Broken {
    let mut model = Model::default();
    if bug == Bug::PromotesWithoutRoom {
        model.admission = AdmissionChoice::A;
    }
    Broken { inner: twin(machine, KernelVersion::V6_12, model), bug }
}

/// Each body with the bugs that it is there to find.
#[test]
fn a_broken_kernel_is_found() {
    let bursts = [
        (Bug::IgnoresTheDelay, 500),
        (Bug::NeverSamples, 3000),
        (Bug::MiscountsMarks, 3000),
        (Bug::ForgetsMoves, 3000),
        (Bug::LosesPages, 3000),
    ];
    for (bug, ms) in bursts {
        let found = s0(&mut broken(&two_nodes(), bug), &burst(ms));
        println!("s0, {bug:?}: {}", found.expect_err(&format!("s0 does not find {bug:?}")));
    }
    for (bug, enabled, advice) in [
        (Bug::AlwaysHuge, "never", None),
        (Bug::AlwaysHuge, "madvise", None),
        (Bug::NeverHuge, "always", None),
        (Bug::NeverHuge, "madvise", Some(true)),
        (Bug::CountsParts, "always", None),
    ] {
        let case = huge::Case { enabled, advice, node: NodeId(0) };
        let found = huge::touched(&mut broken(&two_nodes(), bug), &case);
        println!("huge, {bug:?}: {}", found.expect_err(&format!("huge does not find {bug:?}")));
    }
    for (bug, what) in [
        (Bug::SleepsOn, What::Whole),
        (Bug::SleepsOn, What::NoRoom),
        (Bug::IgnoresAbsent, What::Partly),
        (Bug::NeverHuge, What::Whole),
    ] {
        let found = collapses(&mut broken(&small_fast_node(), bug), &collapse(what));
        println!("{what:?}, {bug:?}: {}", found.expect_err(&format!("it does not find {bug:?}")));
    }
    let all = split::Case::all(NodeId(0), NodeId(1));
    for (bug, case) in [
        (Bug::NeverDemotes, all[0]),
        (Bug::NeverDemotes, all[3]),
        (Bug::NeverHuge, all[1]),
        (Bug::CountsSplitsTwice, all[2]),
    ] {
        let found = goes_down(&mut broken(&small_fast_node(), bug), &case);
        let finding = found.expect_err(&format!("{} does not find {bug:?}", case.name()));
        println!("split, {}, {bug:?}: {finding}", case.name());
    }
    for what in pressure::What::ALL {
        let case = pressure::Case::all(what, NodeId(0), NodeId(1))[0];
        let found = pressed(&mut broken(&small_fast_node(), Bug::NeverDemotes), &case);
        let finding = found.expect_err(&format!("{} does not find it", case.name()));
        println!("{}: {finding}", case.name());
    }
    for bug in [Bug::NobodyFollows, Bug::NeverSamples] {
        let found = comes_home(&mut broken(&two_nodes(), bug), &away());
        println!("home, {bug:?}: {}", found.expect_err(&format!("home does not find {bug:?}")));
    }
    let cases = [
        (Bug::AlwaysBalances, tiers(0, false, false)),
        (Bug::NeverSamples, tiers(1, false, false)),
        (Bug::NeverSamples, tiers(2, true, false)),
        (Bug::MiscountsMarks, tiers(2, false, false)),
        (Bug::ForgetsMoves, tiers(2, true, false)),
        (Bug::CountsPromotionsWithoutTiering, tiers(1, false, false)),
        (Bug::PromotesWithoutRoom, tiers(2, false, false)),
        (Bug::DemotesThoughOff, tiers(2, false, false)),
        (Bug::DemotesThoughOff, tiers(0, false, true)),
        (Bug::NeverDemotes, tiers(0, true, false)),
        (Bug::NeverDemotes, tiers(2, true, true)),
        (Bug::Stalls, tiers(0, false, false)),
    ];
    for (bug, case) in cases {
        let found = s1(&mut broken(&small_fast_node(), bug), &case);
        let finding = found.expect_err(&format!("{} does not find {bug:?}", case.name()));
        println!("s1, {}, {bug:?}: {finding}", case.name());
    }
}

/// What one kernel alone can't show: a figure that another kernel doesn't have.
#[test]
fn kernels_that_differ_are_told_apart() {
    let figures =
        |version, case| s1(&mut twin(&small_fast_node(), version, Model::default()), case);
    // Linux 6.1 takes no tiers from firmware: nothing comes up or goes down.
    let case = tiers(2, true, false);
    let old = fine("6.1", figures(KernelVersion::V6_1, &case));
    let new = fine("6.12", figures(KernelVersion::V6_12, &case));
    let names: Vec<&str> = compare(&new, &old, &[]).iter().map(|d| d.figure).collect();
    for figure in ["hot_fast", "promoted", "pte_updates"] {
        assert!(names.contains(&figure), "{figure} is not among {names:?}");
    }
    assert_eq!(compare(&new, &fine("again", figures(KernelVersion::V6_12, &case)), &[]), []);
}
