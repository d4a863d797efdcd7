use super::*;
use KernelVersion::{V6_1, V6_12};

// specs/numa.md#cpupid: 8 low pid bits and the CPU; private if unset or the bits match.
#[test]
fn cpupid() {
    let c = CpuPid::new(CpuId(8190), 0x1234);
    assert_eq!((c.cpu(), c.pid_bits(), c.bits() >> 21), (CpuId(8190), 0x34, 0));
    assert_eq!(CpuPid::from_bits(c.bits()), c);
    assert!(c.is_private_to(0x34) && c.is_private_to(0x5634) && !c.is_private_to(0x35));
    assert!(CpuPid::UNSET.is_unset() && CpuPid::UNSET.is_private_to(7));
    assert_eq!(CpuPid::UNSET.bits(), (1 << 21) - 1);
    // PIDs of 255 modulo 256 look unset to the filter, not here.
    let odd = CpuPid::new(CpuId(3), 511);
    assert!(odd.is_pid_unset() && !odd.is_unset() && !odd.is_private_to(1));
    assert!(c.has_valid_cpu(8191) && !c.has_valid_cpu(8190) && !CpuPid::UNSET.has_valid_cpu(4096));
}

// specs/numa.md#hint-fault: one stranger in 256 looks like the task itself.
#[test]
fn collisions() {
    let c = CpuPid::new(CpuId(0), 1000);
    assert_eq!((1001..1001 + 2560).filter(|p| c.is_private_to(*p)).count(), 10);
}

// specs/numa.md#accounting. A slow page counts only with tiering off and a recorded CPU.
#[test]
fn accounted() {
    let n = Mode::NORMAL;
    let t = Mode::TIERING;
    assert!(is_accounted(n, true, true, true, false, V6_12));
    assert!(is_accounted(n, true, false, true, false, V6_12));
    assert!(!is_accounted(n, true, false, false, false, V6_12));
    assert!(is_accounted(n, true, true, false, false, V6_12));
    assert!(!is_accounted(Mode::OFF, true, true, true, false, V6_12));
    assert!(!is_accounted(n, false, true, true, false, V6_12));
    assert!(is_accounted(t, true, true, true, false, V6_12));
    assert!(!is_accounted(t, true, false, true, false, V6_12));
    assert!(is_accounted(t, true, true, false, false, V6_12));
    assert!(!is_accounted(t, true, false, true, true, V6_12), "a failed promotion stays slow");
    assert!(is_accounted(n, true, true, true, true, V6_1));
}

fn fault(mem: u16, cpu: u16, nr_pages: u64, private: bool, flags: u8) -> AccountedFault {
    AccountedFault {
        mem_node: NodeId(mem),
        cpu_node: NodeId(cpu),
        nr_pages,
        flags: FaultFlags(flags),
        private,
    }
}

fn place(t: &mut TaskFaults, s: &mut TaskScan, seq: i32) -> Option<Placement> {
    t.place(s, seq, Runtime::first(47742), None)
}

// specs/numa.md#placement: avg := buf + (avg - avg/2); a residue of 1 never decays to 0.
#[test]
fn decay() {
    let (mut t, mut s) = (TaskFaults::default(), TaskScan::default());
    t.account(fault(0, 1, 5, true, FaultFlags::LOCAL), None, 2);
    let mut seen = vec![];
    for seq in 1..=6 {
        place(&mut t, &mut s, seq);
        seen.push(t.nodes[0].mem[PRIVATE]);
    }
    assert_eq!(seen, [5, 3, 2, 1, 1, 1]);
    assert_eq!(place(&mut t, &mut s, 6), None, "once per sequence");
    assert_eq!((t.local, t.remote, t.total), (5, 0, 1));
}

// specs/numa.md#placement: strictly most memory faults, ties to the lowest id, all zero: none.
#[test]
fn preferred_node() {
    let (mut t, mut s) = (TaskFaults::default(), TaskScan::default());
    assert_eq!(place(&mut t, &mut s, 1).unwrap().max_node, None);
    t.account(fault(2, 0, 4, true, 0), None, 3);
    t.account(fault(1, 0, 4, false, 0), None, 3);
    let p = place(&mut t, &mut s, 2).unwrap();
    assert_eq!((p.max_node, p.fault_types), (Some(NodeId(1)), [4, 4]));
    t.account(fault(2, 0, 1, false, 0), None, 3);
    assert_eq!(place(&mut t, &mut s, 3).unwrap().max_node, Some(NodeId(2)));
}

// specs/numa.md#placement: cpu averages: (runtime·2^16/(period+1))·buf/(total+1).
#[test]
fn cpu_weight() {
    let (mut t, mut s) = (TaskFaults::default(), TaskScan::default());
    t.account(fault(0, 1, 99, true, 0), None, 2);
    t.place(&mut s, 1, Runtime { run_ns: 500, period_ns: 999 }, None);
    assert_eq!(t.nodes[1].cpu[PRIVATE], (500 * 65536 / 1000) * 99 / 100);
    assert_eq!(t.nodes[0].cpu[PRIVATE], 0);
}

// specs/numa.md#placement: migrate_retry := J + min(HZ, J(period)/16).
#[test]
fn retry() {
    let mut t = TaskFaults::default();
    assert!(t.placement_due(1000, 1000));
    assert_eq!(t.migrate_retry_jiffies, 1015);
    assert!(!t.placement_due(1015, 1000) && t.placement_due(1016, 60000));
    assert_eq!(t.migrate_retry_jiffies, 1016 + 250);
}

// specs/numa.md#accounting: flags, and faults between active nodes of a group count as local.
#[test]
fn locality() {
    let mut t = TaskFaults::default();
    t.account(fault(0, 1, 2, false, FaultFlags::MIGRATED), None, 2);
    t.account(fault(0, 1, 3, false, FaultFlags::FAILED), None, 2);
    t.account(fault(1, 1, 4, false, FaultFlags::LOCAL), None, 2);
    assert_eq!((t.local, t.remote, t.failed, t.nr_migrated), (4, 5, 3, 2));
    let cpu = |n| NodeFaults { cpu: [n, 0], ..Default::default() };
    let mut g =
        GroupFaults { id: 1, refs: 2, nodes: vec![cpu(30), cpu(11)], active_nodes: 0, max_cpu: 0 };
    g.count_active();
    // 11·3 > 30, so both are active.
    assert_eq!((g.active_nodes, g.max_cpu), (2, 30));
    t.account(fault(0, 1, 10, false, 0), Some(&g), 2);
    t.account(fault(0, 1, 100, true, 0), Some(&g), 2);
    assert_eq!((t.local, t.remote), (14, 105));
    g.nodes[1] = cpu(10);
    g.count_active();
    assert_eq!((g.active_nodes, g.is_active(NodeId(1))), (1, false));
}

// specs/numa.md#fork: exec drops averages, keeps buffers, counters and the preferred node.
#[test]
fn exec() {
    let (mut t, mut s) = (TaskFaults::default(), TaskScan::default());
    t.account(fault(0, 0, 5, true, FaultFlags::LOCAL), None, 1);
    place(&mut t, &mut s, 1);
    t.account(fault(0, 0, 7, true, FaultFlags::LOCAL), None, 1);
    t.preferred = Some(NodeId(0));
    t.exec();
    let n = t.nodes[0];
    assert_eq!((n.mem, n.cpu, n.mem_buf, t.total, t.local), ([0; 2], [0; 2], [0, 7], 0, 12));
    assert_eq!(t.preferred, Some(NodeId(0)));
}

// specs/numa.md#groups: sums follow their members through placement, joining and leaving.
#[test]
fn group_sums() {
    let mut tasks = [TaskFaults::default(), TaskFaults::default()];
    let mut scans = [TaskScan::default(); 2];
    tasks[0].account(fault(0, 0, 8, false, 0), None, 2);
    place(&mut tasks[0], &mut scans[0], 1);
    let mut g = GroupFaults::found(100, &tasks[0]);
    g.add(&tasks[1]);
    tasks[1].account(fault(1, 1, 20, false, 0), Some(&g), 2);
    let p = tasks[1].place(&mut scans[1], 1, Runtime::first(47742), Some(&mut g)).unwrap();
    assert_eq!((p.max_node, g.mem(NodeId(0)), g.mem(NodeId(1))), (Some(NodeId(1)), 8, 20));
    assert_eq!(g.scale(), crate::numa::period::GroupScale { refs: 2, shared: 28, private: 0 });
    g.remove(&tasks[1]);
    assert_eq!((g.refs, g.mem(NodeId(1)), g.cpu(NodeId(1))), (1, 0, 0));
}

// specs/numa.md#groups: the rule of joining.
#[test]
fn join() {
    let f = JoinFacts {
        may_group: true,
        running_matches: true,
        other_group: true,
        own_refs: 1,
        other_refs: 1,
        own_is_higher: false,
        same_mm: true,
        shared_page: false,
    };
    assert_eq!(join_rule(f), Join::Join);
    assert_eq!(join_rule(JoinFacts { own_is_higher: true, ..f }), Join::Stay);
    assert_eq!(join_rule(JoinFacts { own_is_higher: true, other_refs: 2, ..f }), Join::Join);
    assert_eq!(join_rule(JoinFacts { own_refs: 2, ..f }), Join::Stay);
    assert_eq!(join_rule(JoinFacts { running_matches: false, ..f }), Join::Stay);
    assert_eq!(join_rule(JoinFacts { may_group: false, ..f }), Join::Stay);
    assert_eq!(join_rule(JoinFacts { same_mm: false, ..f }), Join::StayPrivate);
    assert_eq!(join_rule(JoinFacts { same_mm: false, shared_page: true, ..f }), Join::Join);
}

proptest::proptest! {
    // Averages never exceed twice the largest buffer, and nothing is counted twice.
    #[test]
    fn averages_are_bounded(pages in proptest::collection::vec(0u64..1000, 1..40)) {
        let (mut t, mut s) = (TaskFaults::default(), TaskScan::default());
        for (i, n) in pages.iter().enumerate() {
            t.account(fault(0, 0, *n, true, FaultFlags::LOCAL), None, 1);
            place(&mut t, &mut s, i as i32 + 1);
            proptest::prop_assert!(t.total <= 2 * 1000);
            proptest::prop_assert_eq!(t.nodes[0].mem_buf, [0, 0]);
        }
        proptest::prop_assert_eq!(t.local, pages.iter().sum::<u64>());
    }
}
