use super::*;
use crate::numa::period::Limits;
use crate::units::Pages;
use KernelVersion::{V3_8, V6_12};

/// A CPU-bound task on an otherwise idle machine; the wall clock goes with its
/// CPU time. Tick 0 is its start, at jiffy `BOOT`.
struct Burner {
    knobs: Knobs,
    task: TaskScan,
    mm: MmScan,
    slow_start: SlowStart,
    triggers: Vec<u64>,
    spent: Vec<u64>,
    scans: Vec<u64>,
    node: NodeId,
}

const BOOT: u64 = 1000;

impl Burner {
    fn new(version: KernelVersion, birth: Birth, exec: bool) -> Self {
        let knobs = Knobs::new(version);
        Self::with(knobs, birth, exec)
    }
    fn with(knobs: Knobs, birth: Birth, exec: bool) -> Self {
        let slow_start = if knobs.version == V3_8 { SlowStart::Seed } else { SlowStart::Today };
        // The parent has been scanned before.
        let parent =
            TaskScan { stamp_ns: 9_000_000_000, period_ms: 1000, seq: 7, ..Default::default() };
        let mut parent_mm =
            MmScan { next_scan_jiffies: BOOT - 5, seq: 7, offset_vpn: 99, ..Default::default() };
        let max = knobs.scan_period_max_ms;
        let task =
            fork(birth, &parent, &mut parent_mm, 1, max, slow_start, knobs.scan_delay_ms, BOOT);
        let mm = if exec { MmScan::new() } else { parent_mm.inherited() };
        Self {
            knobs,
            task,
            mm,
            slow_start,
            triggers: vec![],
            spent: vec![],
            scans: vec![],
            node: NodeId(0),
        }
    }
    fn run_ms(mut self, ms: u64) -> Self {
        for tick_no in 1..=ms / 4 {
            let (now, cpu_ns) = (BOOT + tick_no, tick_no * TICK_NSEC);
            let start = Limits::new(&self.knobs, Pages(100), None).start_ms;
            match tick(&mut self.task, &self.mm, self.slow_start, now, cpu_ns, || start) {
                TickOutcome::Nothing => continue,
                TickOutcome::TriggerSpentAtClosedGate => self.spent.push(tick_no * 4),
                TickOutcome::QueueWork => {
                    let facts = WorkFacts {
                        now_jiffies: now,
                        cpu_node: self.node,
                        exiting: false,
                        single_allowed_node: false,
                    };
                    if begin_work(&mut self.task, &mut self.mm, facts, &self.knobs, || start)
                        == WorkStart::Scan
                    {
                        self.scans.push(tick_no * 4);
                    }
                }
            }
            self.triggers.push(tick_no * 4);
        }
        self
    }
}

// specs/numa.md#slow-start-seed: CPU-bound, HZ 250: triggers at 1004, 1108, 1212 ms.
// specs/seeds.md#s0: R <= 1000 ms nothing, the first tick above exactly one trigger;
// the period starts as the delay and becomes the minimum at the first trigger.
#[test]
fn seed_triggers() {
    let b = Burner::new(V3_8, Birth::Fork, false).run_ms(1300);
    assert_eq!(b.triggers, [1004, 1108, 1212]);
    assert_eq!(b.task.period_ms, 100);
    // (a): nothing is marked while all scan work has run on one node.
    assert!(b.scans.is_empty());
    let before = Burner::new(V3_8, Birth::Fork, false).run_ms(1000);
    assert_eq!((before.triggers.len(), before.task.period_ms), (0, 1000));
}

// specs/numa.md#slow-start-seed: each thread waits anew; delay 0 triggers at the first tick.
#[test]
fn seed_threads_and_delay_zero() {
    assert_eq!(Burner::new(V3_8, Birth::SharedMm, false).run_ms(1100).triggers, [1004]);
    let mut k = Knobs::new(V3_8);
    k.scan_delay_ms = 0;
    assert_eq!(Burner::with(k, Birth::Fork, false).run_ms(100).triggers, [4]);
}

// specs/numa.md#slow-start-seed: a later change of the knob does not alter tasks that exist.
#[test]
fn seed_delay_is_taken_at_fork() {
    let mut b = Burner::new(V3_8, Birth::Fork, false);
    b.knobs.scan_delay_ms = 10;
    assert_eq!(b.run_ms(1100).triggers, [1004]);
}

// specs/numa.md#slow-start-seed, a: marks once scan work has run on another node than its first.
#[test]
fn seed_marks_after_second_node() {
    let (mut t, mut mm, k) = (TaskScan::default(), MmScan::new(), Knobs::new(V3_8));
    let mut work = |node, now_jiffies| {
        let f = WorkFacts {
            now_jiffies,
            cpu_node: NodeId(node),
            exiting: false,
            single_allowed_node: false,
        };
        begin_work(&mut t, &mut mm, f, &k, || 100)
    };
    assert_eq!(work(0, 300), WorkStart::SingleNode);
    assert_eq!(work(0, 400), WorkStart::SingleNode);
    assert_eq!(work(1, 500), WorkStart::Scan);
    assert_eq!(work(1, 501), WorkStart::GateClosed);
    assert_eq!(work(0, 600), WorkStart::Scan);
}

// specs/numa.md#slow-start-seed, c, d and e.
#[test]
fn seed_back_off_reset_and_throttle() {
    let mut t = TaskScan { period_ms: 100, ..Default::default() };
    seed_back_off(&mut t, 5000, false, KernelVersion::V3_8);
    assert_eq!(t.period_ms, 140);
    t.period_ms = 4990;
    seed_back_off(&mut t, 5000, false, KernelVersion::V3_8);
    assert_eq!(t.period_ms, 5000);

    let k = Knobs::new(V3_8);
    let mut mm = MmScan::new();
    for (now, node) in [(10, 0), (20, 1), (20 + 15000, 0)] {
        let f = WorkFacts {
            now_jiffies: now,
            cpu_node: NodeId(node),
            exiting: false,
            single_allowed_node: false,
        };
        begin_work(&mut t, &mut mm, f, &k, || 100);
        assert_eq!(t.period_ms, 5000);
    }
    let f = WorkFacts {
        now_jiffies: 20 + 15001,
        cpu_node: NodeId(0),
        exiting: false,
        single_allowed_node: false,
    };
    begin_work(&mut t, &mut mm, f, &k, || 100);
    assert_eq!(t.period_ms, 100);

    let mut limit = SeedRateLimit::default();
    let old = KernelVersion::V3_8;
    assert!(limit.take(1, SeedRateLimit::PAGES - 1, old) && limit.take(2, 1, old));
    assert!(!limit.take(3, 1, old) && limit.is_over(26, old));
    assert!(!limit.is_over(26, KernelVersion::V5_18) && limit.take(26, 1, KernelVersion::V5_18));
    assert!(!limit.is_over(27, old) && limit.take(27, 1, old));
}

// specs/numa.md#slow-start-today: after fork, fork and exec, posix_spawn.
// specs/seeds.md#s0: one scan per period after the delay.
#[test]
fn first_scans_today() {
    for v in [KernelVersion::V6_1, V6_12, KernelVersion::V7_3] {
        assert_eq!(Burner::new(v, Birth::Fork, false).run_ms(3100).scans, [1004, 2012, 3020]);
        assert_eq!(Burner::new(v, Birth::Fork, true).run_ms(3100).scans, [2004, 3012]);
        assert_eq!(Burner::new(v, Birth::SharedMm, true).run_ms(3100).scans, [2012, 3020]);
    }
}

// specs/seeds.md#open: the seed's slow start on a later kernel has no gate after exec either.
#[test]
fn seed_start_on_a_later_kernel() {
    let mut b = Burner::new(V6_12, Birth::Fork, true);
    b.slow_start = SlowStart::Seed;
    b.mm = MmScan::at_exec(SlowStart::Seed, BOOT);
    assert_eq!(b.run_ms(2100).scans.first(), Some(&1004));
    assert_eq!(MmScan::at_exec(SlowStart::Today, BOOT), MmScan::new());
}

// specs/seeds.md#s0: tasks of less than a second are never scanned.
#[test]
fn short_tasks_pay_nothing() {
    for exec in [false, true] {
        assert!(Burner::new(V6_12, Birth::Fork, exec).run_ms(1000).triggers.is_empty());
    }
}

// specs/numa.md#slow-start-today: a trigger at a closed gate is spent, the next needs another
// period of CPU.
#[test]
fn closed_gate_spends_the_trigger() {
    let mut b = Burner::new(V6_12, Birth::Fork, false);
    b.mm.next_scan_jiffies = BOOT + 300;
    let b = b.run_ms(2100);
    assert_eq!((b.spent.as_slice(), b.scans.as_slice()), (&[1004][..], &[2004][..]));
}

// specs/numa.md#slow-start-today: stamp += period, so a task that is behind catches up on
// successive ticks.
#[test]
fn catches_up() {
    let mm = MmScan { next_scan_jiffies: u64::MAX, ..Default::default() };
    let mut t = TaskScan { stamp_ns: 1, period_ms: 1000, ..Default::default() };
    let cpu = 3_500_000_000;
    for stamp in [1_000_000_001u64, 2_000_000_001, 3_000_000_001] {
        let o = tick(&mut t, &mm, SlowStart::Today, 5, cpu, || unreachable!());
        assert_eq!((o, t.stamp_ns), (TickOutcome::TriggerSpentAtClosedGate, stamp));
    }
    assert_eq!(tick(&mut t, &mm, SlowStart::Today, 5, cpu, || 0), TickOutcome::Nothing);
}

// specs/numa.md#fork: the single user's gate and sequence are pushed by each fork and by the
// first thread.
#[test]
fn fork_touches_the_parents_mm() {
    let p = TaskScan { period_ms: 1000, ..Default::default() };
    let seen = MmScan { next_scan_jiffies: 77, seq: 5, offset_vpn: 42, ..Default::default() };
    for birth in [Birth::Fork, Birth::SharedMm] {
        let mut mm = seen;
        let child = fork(birth, &p, &mut mm, 1, 60000, SlowStart::Today, 1000, BOOT);
        assert_eq!((mm.next_scan_jiffies, mm.seq, mm.offset_vpn), (BOOT + 250, 0, 42));
        assert_eq!((child.seq, child.period_ms), (0, 1000));
        let mut mm = seen;
        assert_eq!(fork(birth, &p, &mut mm, 2, 60000, SlowStart::Today, 1000, BOOT).seq, 5);
        assert_eq!(mm, seen);
    }
}

// specs/numa.md#fork: a thread's stamp is two ticks and 60 µs at most; its period stays the delay.
#[test]
fn thread_stamp() {
    let p = TaskScan { period_ms: 1000, ..Default::default() };
    for (users, max, stamp) in [(1, 60000, 8_060_000), (3, 60000, 8_060_000), (0, 60000, 8_000_000)]
    {
        let mut mm = MmScan::new();
        let t = fork(Birth::SharedMm, &p, &mut mm, users, max, SlowStart::Today, 1000, BOOT);
        assert_eq!(t.stamp_ns, stamp);
    }
    let b = Burner::new(V6_12, Birth::SharedMm, false).run_ms(1100);
    assert_eq!((b.triggers.as_slice(), b.task.period_ms), (&[1012][..], 1000));
}

// specs/numa.md#scan-work, steps 1 to 4.
#[test]
fn begin() {
    let k = Knobs::new(V6_12);
    let facts = WorkFacts {
        now_jiffies: 1000,
        cpu_node: NodeId(0),
        exiting: false,
        single_allowed_node: false,
    };
    let (mut t, mut mm) = (TaskScan { work_pending: true, ..Default::default() }, MmScan::new());
    let exiting = WorkFacts { exiting: true, ..facts };
    assert_eq!(begin_work(&mut t, &mut mm, exiting, &k, || 1), WorkStart::Exiting);
    assert!(!t.work_pending);
    let single = WorkFacts { single_allowed_node: true, ..facts };
    let k73 = Knobs::new(KernelVersion::V7_3);
    assert_eq!(begin_work(&mut t, &mut mm, single, &k73, || 1), WorkStart::SingleAllowedNode);
    assert_eq!(begin_work(&mut t, &mut mm, single, &k, || 1), WorkStart::Armed);
    assert_eq!((mm.next_scan_jiffies, t.stamp_ns), (1250, 0));
    assert_eq!(begin_work(&mut t, &mut mm, facts, &k, || 1), WorkStart::GateClosed);
    let open = WorkFacts { now_jiffies: 1250, ..facts };
    assert_eq!(begin_work(&mut t, &mut mm, open, &k, || 400), WorkStart::Scan);
    assert_eq!((t.period_ms, mm.next_scan_jiffies, t.stamp_ns), (400, 1350, 8_000_000));
    charge_scan(&mut t, 1_000_000, V3_8);
    assert_eq!(t.stamp_ns, 8_000_000);
    charge_scan(&mut t, 1_000_000, V6_12);
    assert_eq!(t.stamp_ns, 40_000_000);
    let mut k = k;
    k.scan_size_mb = 0;
    let open = WorkFacts { now_jiffies: 1350, ..facts };
    assert_eq!(begin_work(&mut t, &mut mm, open, &k, || 1), WorkStart::NoBudget);
}

// specs/numa.md#scan-work: a scan that no tick falls into is not charged; one that takes two
// and a half ticks from a tick on is charged for two.
#[test]
fn ticks_account() {
    let tick = 4_000_000;
    assert_eq!(accounted_between(0, tick - 1), 0);
    assert_eq!(accounted_between(7 * tick, 7 * tick + 5 * tick / 2), 2 * tick);
    assert_eq!(accounted_between(tick - 1, tick), tick);
}

// specs/numa.md#scan-work: without a delay an unarmed gate doesn't cost a turn.
#[test]
fn no_delay_no_arming() {
    let mut k = Knobs::new(V6_12);
    k.scan_delay_ms = 0;
    let (mut t, mut mm) = (TaskScan::default(), MmScan::new());
    let facts = WorkFacts {
        now_jiffies: 1000,
        cpu_node: NodeId(0),
        exiting: false,
        single_allowed_node: false,
    };
    assert_eq!(begin_work(&mut t, &mut mm, facts, &k, || 400), WorkStart::Scan);
    assert_eq!((t.period_ms, mm.next_scan_jiffies), (400, 1100));
}

proptest::proptest! {
    // Under both rules, a CPU-bound task triggers at most once in a period, however long.
    #[test]
    fn at_most_one_trigger_a_period(delay in 0u32..3000, min in 1u32..2000, seed: bool) {
        let mut k = Knobs::new(if seed { V3_8 } else { V6_12 });
        (k.scan_delay_ms, k.scan_period_min_ms) = (delay, min);
        let b = Burner::with(k, Birth::Fork, false).run_ms(6000);
        let first = b.triggers.first().copied().unwrap_or(u64::MAX);
        proptest::prop_assert!(first > u64::from(delay));
        // The floor of specs/numa.md#periods lifts today's period to at least 100 ms.
        let period = if seed { u64::from(min) } else { u64::from(min.max(100)) };
        let bound = if seed { period } else { period.saturating_sub(4) };
        for w in b.triggers.windows(2) {
            proptest::prop_assert!(w[1] - w[0] > bound.saturating_sub(4));
        }
    }
}
