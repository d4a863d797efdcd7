use super::*;
use KernelVersion::{V3_8, V6_1, V6_12, V7_3};

#[derive(Clone, Debug)]
struct Vma {
    facts: VmaFacts,
    state: Option<VmaScan>,
    /// Entries in the VMA that would change, per page; all or none keeps it simple.
    marks: bool,
}

impl ScannedVma for Vma {
    fn facts(&self) -> VmaFacts {
        self.facts
    }
    fn scan_state(&mut self) -> &mut Option<VmaScan> {
        &mut self.state
    }
}

fn anon(start_vpn: u64, pages: u64) -> Vma {
    let facts = VmaFacts {
        start_vpn,
        end_vpn: start_vpn + pages,
        migratable: true,
        policy_migrates: true,
        file: false,
        read: true,
        write: true,
        exec: false,
    };
    Vma { facts, state: None, marks: true }
}

fn knobs(version: KernelVersion, size_mb: u32) -> Knobs {
    Knobs { scan_size_mb: size_mb, ..Knobs::new(version) }
}

const WHO: Scanner = Scanner { pid: 1000, nr_threads: 1, now_jiffies: 10_000 };

/// Runs one scan; the log has a line per step, with the budget left.
fn run(k: &Knobs, who: Scanner, mm: &mut MmScan, vmas: &mut [Vma]) -> String {
    let mut log = String::new();
    let mut work = ScanWork::new(k, who);
    loop {
        match work.next(mm, vmas) {
            ScanStep::Skip { vma, reason } => log += &format!("{vma} {}\n", reason.name()),
            ScanStep::Scan { vma, start_vpn, end_vpn } => {
                let n = if vmas[vma].marks { end_vpn - start_vpn } else { 0 };
                work.scanned(mm, vmas, n);
                let forced = if work.forced { " forced" } else { "" };
                log += &format!("{vma} scan {start_vpn}..{end_vpn} left {}{forced}\n", work.pages);
            }
            ScanStep::Done => return log + &format!("seq {} offset {}", mm.seq, mm.offset_vpn),
        }
    }
}

// specs/numa.md#skip-order: order of the reasons and the tracepoint's words.
#[test]
fn skip_order() {
    let f = anon(0, 600).facts;
    let mut vmas: Vec<Vma> = vec![
        Vma { facts: VmaFacts { migratable: false, file: true, write: false, ..f }, ..anon(0, 1) },
        Vma {
            facts: VmaFacts { policy_migrates: false, read: false, write: false, ..f },
            ..anon(0, 1)
        },
        Vma { facts: VmaFacts { file: true, write: false, ..f }, ..anon(0, 1) },
        Vma { facts: VmaFacts { read: false, write: false, ..f }, ..anon(0, 1) },
        anon(0, 1),
    ];
    for (i, v) in vmas.iter_mut().enumerate() {
        (v.facts.start_vpn, v.facts.end_vpn) = (i as u64 * 1000, i as u64 * 1000 + 600);
    }
    let mut mm = MmScan { seq: 3, ..Default::default() };
    assert_eq!(
        run(&knobs(V6_12, 256), WHO, &mut mm, &mut vmas),
        "0 unsuitable\n1 unsuitable\n2 shared_ro\n3 inaccessible\n4 scan_delay\nseq 4 offset 0"
    );
    // The new VMA got its state: start at 3, delay 250 ticks, window of 4 delays.
    let state = vmas[4].state.unwrap();
    assert_eq!(
        (state.start_seq, state.prev_seq, state.next_scan_jiffies, state.pids_reset_jiffies),
        (3, 2, 10_250, 11_250)
    );
    // At sequence 0 new VMAs are not delayed.
    let mut mm = MmScan::new();
    assert_eq!(
        run(&knobs(V6_12, 256), WHO, &mut mm, &mut [anon(5, 10)]),
        "0 scan 5..15 left 65526\nseq 1 offset 0"
    );
    // 6.1 knows the first three reasons only.
    let mut mm = MmScan { seq: 3, ..Default::default() };
    assert!(run(&knobs(V6_1, 256), WHO, &mut mm, &mut vmas).contains("4 scan 4000..4600"));
}

// specs/numa.md#scan-work, steps 5, 6, 9: ranges end at 2 MiB, the offset goes on, wraps, seq + 1.
// specs/seeds.md#s0: volume = size per period, offset wraps, seq + 1.
#[test]
fn offset_and_sequence() {
    let k = knobs(V6_12, 4); // 1024 pages
    let mut vmas = [anon(100, 1500), anon(5000, 700)];
    let mut mm = MmScan::new();
    assert_eq!(run(&k, WHO, &mut mm, &mut vmas), "0 scan 100..1536 left -412\nseq 0 offset 1536");
    assert_eq!(
        run(&k, WHO, &mut mm, &mut vmas),
        "0 scan 1536..1600 left 960\n1 scan 5000..5700 left 260\nseq 1 offset 0"
    );
    // Past the last VMA: the sequence ends and the run goes on from the start.
    mm = MmScan { seq: 0, offset_vpn: 9000, ..Default::default() };
    let mut fresh = [anon(100, 1500)];
    assert_eq!(run(&k, WHO, &mut mm, &mut fresh), "0 scan_delay\nseq 2 offset 0");
}

// specs/numa.md#scan-work, steps 4 and 6: ranges without changes cost only the eightfold budget.
#[test]
fn virtual_budget() {
    let k = knobs(V6_12, 2); // 512 pages, 4096 virtual
    let mut vmas = [Vma { marks: false, ..anon(0, 1 << 20) }];
    let mut mm = MmScan::new();
    let log = run(&k, WHO, &mut mm, &mut vmas);
    assert_eq!(log.lines().count(), 9);
    assert!(log.ends_with("seq 0 offset 4096"), "{log}");
}

// specs/numa.md#slow-start-seed, b, f: 3.8 skips small VMAs, pays for changes only, has no cap.
#[test]
fn seed_budget() {
    let k = knobs(V3_8, 2);
    let mut vmas = [anon(0, 511), Vma { marks: false, ..anon(1024, 1 << 14) }, anon(1 << 20, 2048)];
    let mut mm = MmScan::new();
    let log = run(&k, WHO, &mut mm, &mut vmas);
    assert!(log.starts_with("0 too_small\n1 scan 1024..1536 left 512"), "{log}");
    assert!(log.ends_with("2 scan 1048576..1049088 left 0\nseq 0 offset 1049088"), "{log}");
}

// specs/numa.md#skip-order: seq_completed moves the offset past the VMA.
#[test]
fn completed() {
    let mut mm = MmScan { seq: 0, ..Default::default() };
    let done = VmaScan { prev_seq: 0, ..VmaScan::new(0, 0, 0) };
    let mut vmas = [Vma { state: Some(done), ..anon(0, 10) }, anon(100, 2000)];
    assert_eq!(
        run(&knobs(V6_12, 2), WHO, &mut mm, &mut vmas),
        "0 seq_completed\n1 scan 100..1024 left -412\nseq 0 offset 1024"
    );
}

// specs/numa.md#accessed: a VMA that this task does not use is left, then forced, one a scan
// (specs/numa.md#scan-work, steps 7 and 8).
#[test]
fn inactive_then_forced() {
    let old = VmaScan { start_seq: 0, prev_seq: 9, ..VmaScan::new(0, 0, 0) };
    let mut vmas =
        [Vma { state: Some(old), ..anon(0, 10) }, Vma { state: Some(old), ..anon(100, 10) }];
    let mut mm = MmScan { seq: 10, ..Default::default() };
    let k = knobs(V6_12, 256);
    assert_eq!(
        run(&k, WHO, &mut mm, &mut vmas),
        "0 pid_inactive\n1 pid_inactive\n0 scan 0..10 left 65526 forced\nseq 10 offset 10"
    );
    assert_eq!(vmas[0].state.unwrap().prev_seq, 10);
    // 6.1 has neither.
    let mut mm = MmScan { seq: 10, ..Default::default() };
    assert!(!run(&knobs(V6_1, 256), WHO, &mut mm, &mut vmas).contains("inactive"));
}

// specs/numa.md#accessed: pid 1000 hashes to 61, and each of the four ways to count as a user.
#[test]
fn accessed() {
    assert_eq!(pid_hash(1000), 61);
    let mm = MmScan { seq: 10, ..Default::default() };
    let base = VmaScan { start_seq: 0, prev_seq: 9, ..VmaScan::new(0, 0, 0) };
    let yes = |s: VmaScan, mm: &MmScan, threads| s.accessed(mm, 50, 1000, threads);
    assert!(!yes(base, &mm, 1));
    assert!(yes(VmaScan { start_seq: 9, ..base }, &mm, 1));
    assert!(!yes(VmaScan { start_seq: 8, ..base }, &mm, 1));
    assert!(yes(VmaScan { start_seq: i32::MAX, ..base }, &MmScan { seq: i32::MIN, ..mm }, 1));
    let mut s = base;
    s.note_fault(1000);
    assert_eq!(s.pids, [0, 1 << 61]);
    assert!(yes(s, &mm, 1) && yes(VmaScan { pids: [1 << 61, 0], ..base }, &mm, 1));
    assert!(yes(base, &MmScan { offset_vpn: 51, ..mm }, 1));
    assert!(!yes(base, &MmScan { offset_vpn: 50, ..mm }, 1));
    assert!(yes(VmaScan { prev_seq: 8, ..base }, &mm, 1));
    assert!(!yes(VmaScan { prev_seq: 8, ..base }, &mm, 2));
}

// specs/numa.md#skip-order: the windows of PIDs shift every four delays, one shift per visit.
#[test]
fn pid_windows_shift() {
    let mut mm = MmScan { seq: 10, ..Default::default() };
    let state = VmaScan { pids: [1, 1 << 61], prev_seq: 0, ..VmaScan::new(0, 0, 1000) };
    let mut vmas = [Vma { state: Some(state), ..anon(0, 10) }];
    run(&knobs(V6_12, 256), Scanner { now_jiffies: 1250, ..WHO }, &mut mm, &mut vmas);
    assert_eq!(vmas[0].state.unwrap().pids, [1, 1 << 61], "not at the time itself");
    run(&knobs(V6_12, 256), Scanner { now_jiffies: 1251, ..WHO }, &mut mm, &mut vmas);
    let s = vmas[0].state.unwrap();
    assert_eq!((s.pids, s.pids_reset_jiffies), ([1 << 61, 0], 2250));
}

// specs/numa.md#skip-order: which policies migrate on fault.
#[test]
fn policies() {
    use PolicyKind as P;
    for (v, many) in [(V6_1, false), (V6_12, true), (V7_3, true)] {
        assert!(policy_migrates(P::Default, v) && policy_migrates(P::BindBalancing, v));
        assert!(!policy_migrates(P::Explicit, v));
        assert_eq!(policy_migrates(P::PreferredManyBalancing, v), many);
    }
}

// specs/numa.md#pte, in its order; specs/seeds.md#s1: 2 alone never samples a fast node.
#[test]
fn pte() {
    use PteReason as R;
    let page = PteFacts {
        present: true,
        protnone: false,
        zone_device: false,
        ksm: false,
        mapped_shared: false,
        pinned: false,
        refcount: 1,
        dirty_file: false,
        node: NodeId(0),
        top_tier: true,
    };
    let range = RangeFacts { version: V6_12, mode: Mode::NORMAL, cow: true, skip_node: None };
    let leave = |p: PteFacts, r: RangeFacts| match pte_eligible(&p, &r) {
        PteVerdict::Leave(why) => Some(why),
        PteVerdict::Mark { .. } => None,
    };
    assert_eq!(leave(page, range), None);
    for (p, why) in [
        (PteFacts { present: false, ..page }, R::NotPresent),
        (PteFacts { protnone: true, ..page }, R::Protnone),
        (PteFacts { zone_device: true, ..page }, R::ZoneDevice),
        (PteFacts { ksm: true, ..page }, R::Ksm),
        (PteFacts { mapped_shared: true, ..page }, R::SharedOrPinned),
        (PteFacts { pinned: true, dirty_file: true, ..page }, R::SharedOrPinned),
        (PteFacts { dirty_file: true, ..page }, R::DirtyFile),
    ] {
        assert_eq!(leave(p, range), Some(why));
    }
    // Shared mappings: 6.12 takes pinned pages, 7.3 does not.
    let pinned = PteFacts { pinned: true, ..page };
    let shared = RangeFacts { cow: false, ..range };
    assert_eq!(leave(pinned, shared), None);
    assert_eq!(leave(pinned, RangeFacts { version: V7_3, ..shared }), Some(R::SharedOrPinned));
    // 6.1 goes by the reference count.
    let old = RangeFacts { version: V6_1, ..range };
    assert_eq!(leave(PteFacts { mapped_shared: true, ..page }, old), None);
    assert_eq!(leave(PteFacts { refcount: 2, ..page }, old), Some(R::SharedOrPinned));
    // A single user's private page on the scanning CPU's node.
    let here = RangeFacts { skip_node: Some(NodeId(0)), ..range };
    let seed = RangeFacts { version: V3_8, ..here };
    assert_eq!(pte_eligible(&page, &seed), PteVerdict::Mark { stamp_time: false });
    assert_eq!(leave(page, here), Some(R::AlreadyLocal));
    // Tiers.
    let slow = PteFacts { top_tier: false, ..page };
    for (mode, fast_marked, stamp) in [
        (Mode::NORMAL, true, false),
        (Mode::TIERING, false, true),
        (Mode::from_raw(3).unwrap(), true, true),
        (Mode::from_raw(4).unwrap(), false, false),
    ] {
        let r = RangeFacts { mode, ..range };
        assert_eq!(leave(page, r).is_none(), fast_marked, "{mode:?}");
        assert_eq!(pte_eligible(&slow, &r), PteVerdict::Mark { stamp_time: stamp });
        assert_eq!(pmd_eligible(&slow, false, &r), PteVerdict::Mark { stamp_time: stamp });
    }
    // Huge pages: fewer tests up to 6.12.
    let ksm = PteFacts { ksm: true, ..page };
    assert_eq!(pmd_eligible(&ksm, false, &range), PteVerdict::Mark { stamp_time: false });
    let r73 = RangeFacts { version: V7_3, ..range };
    assert_eq!(pmd_eligible(&ksm, false, &r73), PteVerdict::Leave(R::Ksm));
    assert_eq!(pmd_eligible(&page, true, &range), PteVerdict::Leave(R::NotPresent));
}

proptest::proptest! {
    // Scan work ends, respects its budgets, and leaves the offset in a sane place,
    // whatever the address space, its state and the changes.
    #[test]
    fn ends_within_budget(
        shape in proptest::collection::vec((1u64..5000, 1u64..9000, 0u8..8, -3i32..6), 0..12),
        size in 1u32..8, offset in 0u64..50_000, seq in 0i32..6, version in 0usize..5,
        changes: bool,
    ) {
        let k = knobs(KernelVersion::ALL[version], size);
        let mut at = 0;
        let mut vmas: Vec<Vma> = shape.iter().map(|&(gap, len, kind, prev)| {
            let mut v = anon(at + gap, len);
            at += gap + len;
            v.marks = changes && kind & 1 == 0;
            v.facts.file = kind & 6 == 6;
            v.facts.write = kind & 6 != 6;
            if kind & 2 != 0 {
                v.state = Some(VmaScan { prev_seq: prev, start_seq: prev, ..VmaScan::new(0, 0, 0) });
            }
            v
        }).collect();
        let mut mm = MmScan { seq, offset_vpn: offset, ..Default::default() };
        let mut work = ScanWork::new(&k, WHO);
        let (mut steps, mut seen, mut marked) = (0, 0, 0);
        loop {
            steps += 1;
            proptest::prop_assert!(steps < 20_000);
            match work.next(&mut mm, &mut vmas) {
                ScanStep::Done => break,
                ScanStep::Skip { .. } => {}
                ScanStep::Scan { vma, start_vpn, end_vpn } => {
                    let f = vmas[vma].facts;
                    proptest::prop_assert!(f.start_vpn <= start_vpn && start_vpn < end_vpn && end_vpn <= f.end_vpn);
                    let n = if vmas[vma].marks { end_vpn - start_vpn } else { 0 };
                    (seen, marked) = (seen + end_vpn - start_vpn, marked + n);
                    work.scanned(&mut mm, &mut vmas, n);
                }
            }
        }
        let pages = u64::from(size) << 8;
        proptest::prop_assert!(marked < pages + 512);
        if version > 0 {
            proptest::prop_assert!(seen < 8 * pages + pages + 512);
        }
        proptest::prop_assert!(mm.offset_vpn <= at);
        proptest::prop_assert!((0..=2).contains(&(mm.seq - seq)));
    }
}
