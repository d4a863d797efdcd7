use super::super::faults::{GroupFaults, NodeFaults, SHARED};
use super::*;
use crate::units::CpuId;
use KernelVersion::{V3_8, V5_18, V6_1, V6_12};

const ME: u32 = 1000;

fn fault() -> HintFault {
    HintFault {
        version: V6_12,
        mode: Mode::NORMAL,
        src: NodeId(0),
        dst: NodeId(1),
        dst_has_memory: true,
        src_top_tier: true,
        policy: TargetPolicy::Default,
        last: Some(CpuPid::new(CpuId(9), 7)),
        last_node: Some(NodeId(1)),
        this: CpuPid::new(CpuId(9), ME),
    }
}

const TASK: TaskView = TaskView { pid: ME, preferred: Some(NodeId(1)), seq: Some(9) };

fn decide(f: HintFault, t: TaskView, g: Option<&GroupFaults>) -> Verdict {
    page_filter(&f, &t, g, || Verdict::Stay { why: Why::Cold })
}
fn go(why: Why) -> Verdict {
    Verdict::Move { to: NodeId(1), why }
}
fn stay(why: Why) -> Verdict {
    Verdict::Stay { why }
}

// specs/numa.md#page-filter, steps 0 to 3: only remote faults reach the exchange of cpupid.
#[test]
fn first_steps() {
    let local = HintFault { src: NodeId(1), ..fault() };
    assert_eq!(decide(local, TASK, None), stay(Why::AlreadyLocal));
    assert!(!Why::AlreadyLocal.recorded_access());
    let outside = HintFault { policy: TargetPolicy::Mask { cpu_node_in_mask: false }, ..fault() };
    assert_eq!(decide(outside, TASK, None), stay(Why::OutsidePolicy));
    // Bind with balancing: local faults go on and are recorded.
    let inside = HintFault { policy: TargetPolicy::Mask { cpu_node_in_mask: true }, ..local };
    assert_eq!(decide(inside, TASK, None), stay(Why::AlreadyThere));
    assert!(Why::AlreadyThere.recorded_access());
    let memoryless = HintFault { dst_has_memory: false, ..fault() };
    assert_eq!(decide(memoryless, TASK, None), stay(Why::NoMemory));
    assert_eq!(decide(HintFault { version: V6_1, ..memoryless }, TASK, None), go(Why::NoGroup));
}

// specs/numa.md#page-filter, step 2; specs/tiering.md#bits [5.18]: slow pages ask the tier
// logic from 6.1 on.
#[test]
fn tier_step() {
    let slow = HintFault { src_top_tier: false, mode: Mode::TIERING, ..fault() };
    assert_eq!(decide(slow, TASK, None), stay(Why::Cold));
    assert_eq!(
        decide(HintFault { mode: Mode::from_raw(3).unwrap(), ..slow }, TASK, None),
        stay(Why::Cold)
    );
    assert_eq!(decide(HintFault { version: V5_18, ..slow }, TASK, None), go(Why::NoGroup));
    // Step 4: a leftover time after tiering was switched off.
    let off = HintFault { mode: Mode::NORMAL, last_node: None, ..slow };
    assert_eq!(decide(off, TASK, None), stay(Why::StaleTime));
    let unset = HintFault { last: Some(CpuPid::UNSET), ..off };
    assert_eq!(decide(unset, TASK, None), stay(Why::StaleTime), "unset is invalid in step 4");
}

// specs/numa.md#page-filter, steps 5 to 8.
#[test]
fn stages() {
    let unset = HintFault { last: Some(CpuPid::UNSET), last_node: None, ..fault() };
    let young = TaskView { seq: Some(4), ..TASK };
    let homeless = TaskView { preferred: None, ..TASK };
    assert_eq!(decide(unset, young, None), go(Why::FirstStage));
    assert_eq!(decide(unset, homeless, None), go(Why::FirstStage));
    assert_eq!(decide(unset, TaskView { seq: Some(5), ..TASK }, None), go(Why::NoGroup));
    // A stranger's page, early: the second stage holds all the same.
    let elsewhere = HintFault { last_node: Some(NodeId(0)), ..fault() };
    assert_eq!(decide(elsewhere, young, None), stay(Why::SecondStage));
    assert_eq!(decide(fault(), young, None), go(Why::NoGroup));
    // Private: from this node yes, from another not yet.
    let mine = HintFault { last: Some(CpuPid::new(CpuId(9), ME)), ..fault() };
    assert_eq!(decide(mine, TASK, None), go(Why::Private));
    let moved = HintFault { last_node: Some(NodeId(0)), ..mine };
    assert_eq!(decide(moved, TASK, None), stay(Why::SecondStage));
    assert_eq!(decide(moved, young, None), go(Why::FirstStage));
    // A PID of 255 modulo 256 looks unset: no second stage.
    let odd =
        HintFault { last: Some(CpuPid::new(CpuId(0), 255)), last_node: Some(NodeId(0)), ..fault() };
    assert_eq!(decide(odd, TASK, None), go(Why::NoGroup));
}

fn group(cpu: [u64; 2], mem: [u64; 2]) -> GroupFaults {
    let node = |i: usize| {
        let mut n = NodeFaults::default();
        (n.cpu[SHARED], n.mem[SHARED]) = (cpu[i], mem[i]);
        n
    };
    GroupFaults { id: 1, refs: 2, nodes: vec![node(0), node(1)], active_nodes: 2, max_cpu: 0 }
}

// specs/numa.md#page-filter, steps 9 and 10: strict comparisons, src 0, dst 1.
#[test]
fn groups() {
    let d = |cpu, mem| decide(fault(), TASK, Some(&group(cpu, mem)));
    assert_eq!(d([10, 31], [0, 0]), go(Why::GroupRunsThere));
    assert_eq!(d([10, 30], [0, 0]), stay(Why::GroupAgainst));
    assert_eq!(d([10, 10], [5, 3]), go(Why::GroupBalance));
    assert_eq!(d([10, 10], [4, 3]), stay(Why::GroupAgainst));
}

// specs/numa.md#slow-start-seed, g: 3.8 moves on the second fault from the same
// node, never on the first.
#[test]
fn seed() {
    let f = HintFault { version: V3_8, ..fault() };
    assert_eq!(decide(f, TASK, None), go(Why::SameNodeTwice));
    let other = HintFault { last_node: Some(NodeId(0)), ..f };
    assert_eq!(decide(other, TASK, None), stay(Why::SecondStage));
    let first = HintFault { last: Some(CpuPid::UNSET), last_node: None, ..f };
    assert_eq!(decide(first, TASK, None), stay(Why::SecondStage));
    assert!(Why::SecondStage.recorded_access());
}

// specs/numa.md#page-filter, end: missing evidence is Unknown, never a guess.
#[test]
fn unknown() {
    let lacks = |e| Verdict::Unknown { lacks: e };
    let blind = HintFault { last: None, ..fault() };
    assert_eq!(decide(blind, TASK, None), lacks(Evidence::LastAccess));
    let no_seq = TaskView { seq: None, ..TASK };
    assert_eq!(decide(fault(), no_seq, None), lacks(Evidence::ScanSeq));
    let no_node = HintFault { last_node: None, ..fault() };
    assert_eq!(decide(no_node, TASK, None), lacks(Evidence::NodeOfLastCpu));
    // What decides before needs no evidence.
    let local = HintFault { src: NodeId(1), ..blind };
    assert_eq!(decide(local, no_seq, None), stay(Why::AlreadyLocal));
}

// specs/numa.md#isolation: order of refusals.
#[test]
fn isolation() {
    use IsolateRefusal as R;
    assert_eq!(isolate(&mut (), true, true, |()| false, |()| false), Err(R::SharedExecutable));
    assert_eq!(isolate(&mut (), false, true, |()| false, |()| false), Err(R::DirtyFile));
    assert_eq!(isolate(&mut (), false, false, |()| false, |()| false), Err(R::NoRoom));
    assert_eq!(isolate(&mut (), false, false, |()| true, |()| false), Err(R::NotOnLru));
    assert_eq!(isolate(&mut (), false, false, |()| true, |()| true), Ok(()));
}
