//! Records made by hand, and the whole way with an event that needs no PMU: page faults,
//! each with its address.

use super::record::read;
use super::*;
use expect_test::{Expect, expect};
use homenode_core::units::PAGE_SIZE;
use homenode_fixtures::Folder;
use perf_event::data::endian::Native;
use perf_event::data::parse::ParseConfig;
use perf_event_open_sys::bindings::perf_event_attr;
use proptest::prelude::*;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

const ONE: Who = Who { pid: 812, start: 4711 };
const TWO: Who = Who { pid: 813, start: 4712 };

fn config() -> ParseConfig<Native> {
    let mut attr = perf_event_attr::default();
    attr.sample_type = crate::probe::SAMPLE.bits();
    attr.into()
}

/// A record: kind, flags, size of the whole, and words.
fn record(kind: u32, flags: u16, words: &[u64]) -> Vec<u8> {
    let size = u16::try_from(8 + 8 * words.len()).unwrap();
    let mut out = kind.to_ne_bytes().to_vec();
    out.extend(flags.to_ne_bytes());
    out.extend(size.to_ne_bytes());
    out.extend(words.iter().flat_map(|w| w.to_ne_bytes()));
    out
}

/// `PERF_RECORD_SAMPLE` of user mode, whose thread is the process' first.
fn sample(who: Who, time: u64, address: u64, period: u64) -> Vec<u8> {
    let pid = u64::from(who.pid);
    record(9, 2, &[pid | pid << 32, time, address, period])
}

/// Reads records one behind the other, as a ring has them.
fn told(bytes: &[u8]) -> Vec<Told> {
    told_as(&config(), bytes)
}

/// The same of events that tell latencies too.
fn told_late(bytes: &[u8]) -> Vec<Told> {
    let mut attr = perf_event_attr::default();
    attr.sample_type = (crate::probe::SAMPLE | crate::probe::LATENCY).bits();
    told_as(&attr.into(), bytes)
}

fn told_as(config: &ParseConfig<Native>, mut bytes: &[u8]) -> Vec<Told> {
    let mut out = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<8>() {
        let kind = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]);
        let flags = u16::from_ne_bytes([head[4], head[5]]);
        let size = usize::from(u16::from_ne_bytes([head[6], head[7]]));
        let body = rest.get(..size.saturating_sub(8)).unwrap_or(rest);
        out.push(read(config, kind, flags, body));
        bytes = &rest[body.len()..];
    }
    out
}

/// Rings of CPUs of nodes 0, 1, … as the engine hears of them.
fn check(rings: &[Vec<Vec<u8>>], gone: &[Who], expected: Expect) {
    let watched: BTreeMap<u32, Who> = [ONE, TWO].map(|w| (w.pid, w)).into();
    let mut taken = Taken::default();
    for (node, records) in (0..).zip(rings) {
        for t in told(&records.concat()) {
            taken.add(NodeId(node), t, &watched);
        }
    }
    let mut seen = Vec::new();
    taken.tell(&watched, |who| !gone.contains(&who), &mut seen);
    let lines = seen.iter().map(|s| match s {
        Seen::Sample { who, vpn, from, period } => {
            format!("{who} page {vpn:x} from node {} for {period}\n", from.0)
        }
        other => format!("{other:?}\n"),
    });
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn samples_of_all_cpus_are_told_by_time() {
    let stranger = Who { pid: 9, start: 1 };
    let rings = [
        vec![
            sample(ONE, 100, 0x7f00_0000_2abc, 10_007),
            sample(stranger, 120, 0x1000, 10_007),
            sample(ONE, 300, 0x7f00_0000_3000, 10_007),
        ],
        vec![sample(TWO, 90, 0x5000, 10_000), sample(ONE, 200, 0x7f00_0000_2000, 10_007)],
    ];
    check(
        &rings,
        &[],
        expect![[r#"
            813@4712 page 5 from node 1 for 10000
            812@4711 page 7f0000002 from node 0 for 10007
            812@4711 page 7f0000002 from node 1 for 10007
            812@4711 page 7f0000003 from node 0 for 10007
        "#]],
    );
    check(
        &rings,
        &[ONE],
        expect![[r#"
            813@4712 page 5 from node 1 for 10000
        "#]],
    );
}

#[test]
fn what_is_no_access_of_a_program_is_left_out() {
    let pid = u64::from(ONE.pid) | u64::from(ONE.pid) << 32;
    check(
        &[vec![
            sample(ONE, 1, 0, 7),
            sample(ONE, 2, 0xffff_8880_0000_1000, 7),
            // In a guest: flags 4 is its kernel, 5 its programs. 1 is our kernel, which
            // accesses for the program.
            record(9, 4, &[pid, 3, 0x1000, 7]),
            record(9, 5, &[pid, 4, 0x2000, 7]),
            record(9, 1, &[pid, 5, 0x3000, 7]),
            // The end of a process, and a kind that is not known yet.
            record(4, 0, &[pid, pid, 6]),
            record(77, 0, &[1, 2, 3]),
            // A period of nothing stands for one.
            sample(ONE, 7, 0x4000, 0),
        ]],
        &[],
        expect![[r#"
            812@4711 page 3 from node 0 for 7
            812@4711 page 4 from node 0 for 1
        "#]],
    );
}

#[test]
fn what_is_lost_is_counted() {
    check(
        &[
            // 40 events found no room.
            vec![record(2, 0, &[5, 40]), sample(ONE, 1, 0x1000, 7)],
            // 3 were lost by the hardware; the CPU was throttled, and let go again.
            vec![record(13, 0, &[3]), record(5, 0, &[1, 2, 3]), record(6, 0, &[1, 2, 3])],
            // A record too short for what it is.
            vec![record(9, 2, &[1])],
        ],
        &[],
        expect![[r#"
            812@4711 page 1 from node 0 for 7
            Lost { events: 45 }
        "#]],
    );
}

proptest! {
    /// Neither odd bytes nor records that were hit by some stop or break the reader.
    #[test]
    fn odd_records_never_panic(
        hits in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..12),
        noise in proptest::collection::vec(any::<u8>(), 0..200),
        kind in 0_u32..24,
        cut in any::<usize>(),
    ) {
        let mut bytes = [
            sample(ONE, 1, 0x1000, 7),
            record(2, 0, &[5, 40]),
            record(kind, 0, &[1, 2, 3, 4, 5, 6, 7, 8, 9]),
            record(13, 0, &[3]),
            sample(TWO, 2, 0x2000, 7),
        ]
        .concat();
        let len = bytes.len();
        for (at, byte) in hits {
            bytes[at % len] = byte;
        }
        bytes.truncate(cut % (len + 1));
        bytes.extend(noise);
        let told = told(&bytes);
        prop_assert!(told.len() <= bytes.len() / 8);
    }
    #[test]
    fn what_a_sample_says_is_read_back(pid: u32, time: u64, addr in 1_u64..1 << 63, period in 1_u64..) {
        let bytes = sample(Who { pid, start: 0 }, time, addr, period);
        let access = Access { time, pid, vpn: addr >> 12, period, answered: None };
        prop_assert_eq!(told(&bytes), vec![Told::Access(access)]);
    }
}

/// Page faults, one by one.
const FAULTS: Event = Event {
    // The kernel's own events, and of these the second.
    kind: 1,
    config: 2,
    config1: 0,
    config2: 0,
    precise: 0,
    user_only: true,
    period: 1,
    aux: false,
};

/// Live tests look at descriptors of this process: one after the other.
static ALONE: Mutex<()> = Mutex::new(());

fn open(bytes: usize) -> Option<Samples> {
    match Samples::with(Path::new("/"), vec![("page-faults".into(), vec![FAULTS])], bytes) {
        Ok(samples) => Some(samples),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

fn me() -> Who {
    let pid = std::process::id();
    Who { pid, start: start_of(&Place::here(), pid).unwrap() }
}

/// Fresh pages, which are not in memory until they are touched.
struct Fresh {
    at: *mut u8,
    pages: u64,
}

impl Fresh {
    fn new(pages: u64) -> Self {
        let (len, flags) = (pages * PAGE_SIZE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a mapping of its own, at an address that the kernel chooses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len as usize, rights, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: that mapping. A kernel without huge pages refuses, and has none.
        unsafe { libc::madvise(at, len as usize, libc::MADV_NOHUGEPAGE) };
        Self { at: at.cast(), pages }
    }
    fn touch(&self) {
        for page in 0..self.pages {
            // SAFETY: within the mapping.
            unsafe { self.at.add((page * PAGE_SIZE) as usize).write_volatile(1) };
        }
    }
    fn vpns(&self) -> std::ops::Range<u64> {
        let first = self.at as u64 / PAGE_SIZE;
        first..first + self.pages
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // SAFETY: that mapping, to which nothing refers any more.
        unsafe { libc::munmap(self.at.cast(), (self.pages * PAGE_SIZE) as usize) };
    }
}

// SAFETY: the test that shares it touches it from one thread at a time.
unsafe impl Sync for Fresh {}

fn take(samples: &mut Samples) -> Vec<Seen> {
    let mut out = Vec::new();
    samples.take(Picos::ZERO, &mut out).unwrap();
    out
}

/// Pages of these that were told, in the order in which they were.
fn told_of(seen: &[Seen], fresh: &Fresh) -> Vec<u64> {
    let mine = seen.iter().filter_map(|s| match s {
        Seen::Sample { who, vpn, period: 1, .. } if *who == me() => Some(*vpn),
        _ => None,
    });
    mine.filter(|vpn| fresh.vpns().contains(vpn)).collect()
}

fn lost(seen: &[Seen]) -> u64 {
    seen.iter().map(|s| if let Seen::Lost { events } = s { *events } else { 0 }).sum()
}

#[test]
fn every_fault_of_a_watched_process_is_told() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // All processes of the machine share the rings.
    let Some(mut samples) = open(4 << 20) else { return };
    let (before, while_watched, by_thread, after) =
        (Fresh::new(50), Fresh::new(700), Fresh::new(300), Fresh::new(50));
    before.touch();
    samples.watch(me());
    while_watched.touch();
    std::thread::scope(|s| _ = s.spawn(|| by_thread.touch()));
    samples.unwatch(me());
    after.touch();
    samples.watch(me());
    let seen = take(&mut samples);
    println!("{} told, {} lost", seen.len(), lost(&seen));
    // Whatever else this process did: these faults once each, in their order.
    assert_eq!(told_of(&seen, &while_watched), while_watched.vpns().collect::<Vec<_>>());
    assert_eq!(told_of(&seen, &by_thread), by_thread.vpns().collect::<Vec<_>>());
    assert!(told_of(&seen, &before).is_empty());
    assert!(told_of(&seen, &after).is_empty());
    let nodes = read_topology(Path::new("/")).unwrap().nodes;
    for s in &seen {
        if let Seen::Sample { from, .. } = s {
            assert!(nodes.iter().any(|n| n.id == *from));
        }
    }
}

// A software event tells each event whatever its period, where samples say their period: that the
// kernel takes the number, and refuses one that can't be, is what it shows.
#[test]
fn the_kernel_takes_another_period_while_it_samples() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut samples) = open(4 << 20) else { return };
    samples.watch(me());
    samples.rings.sample_every(1_259).unwrap();
    samples.rings.sample_every(1_259).unwrap();
    assert!(samples.rings.sample_every(u64::MAX).is_err(), "its highest bit is no period's");
    let fresh = Fresh::new(20);
    fresh.touch();
    assert_eq!(told_of(&take(&mut samples), &fresh).len(), 20, "and it goes on");
}

#[test]
fn what_found_no_room_in_the_ring_is_lost_and_told() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut samples) = open(1) else { return };
    let (much, little) = (Fresh::new(3000), Fresh::new(20));
    samples.watch(me());
    much.touch();
    let first = take(&mut samples);
    // The kernel tells of the loss as soon as there is room again, and something to say: on
    // each of the CPUs on which we ran.
    let mut told = told_of(&first, &much).len() as u64;
    let mut missing = lost(&first);
    let cpus = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    for cpu in crate::sysfs::parse_list(cpus.trim()).unwrap() {
        on_cpu(cpu, || little_by_little(&little));
        let seen = take(&mut samples);
        told += told_of(&seen, &much).len() as u64;
        missing += lost(&seen);
    }
    println!("{told} told, {missing} lost of {}", much.pages);
    assert!(told < 3000 && told + missing >= 3000);
}

/// Faults anew, also if it did so before.
fn little_by_little(fresh: &Fresh) {
    let len = (fresh.pages * PAGE_SIZE) as usize;
    // SAFETY: that mapping, whose contents nobody needs.
    unsafe { libc::madvise(fresh.at.cast(), len, libc::MADV_DONTNEED) };
    fresh.touch();
}

/// Runs it in a thread of that CPU.
fn on_cpu(cpu: u32, f: impl FnOnce() + Send) {
    let bound = move || {
        // SAFETY: all zeros is an empty set, and the set outlives the call for this thread.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu as usize, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
        f();
    };
    std::thread::scope(|s| _ = s.spawn(bound));
}

#[test]
fn half_a_ring_wakes_and_taking_it_lets_sleep_again() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut samples) = open(1 << 20) else { return };
    let fd = samples.wakes().unwrap();
    let wakes = |ms| {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor in an array of one, which outlives the call.
        unsafe { libc::poll(&mut poll, 1, ms) == 1 }
    };
    assert!(!wakes(0));
    samples.watch(me());
    // 40 bytes each. What other programs do on that CPU at the same time adds to them; where it is
    // so much that the ring is full, that is told, and it is tried again.
    for again in 0.. {
        take(&mut samples);
        let half = Fresh::new(14_000);
        on_cpu(0, || half.touch());
        assert!(wakes(10_000));
        let seen = take(&mut samples);
        let told = told_of(&seen, &half).len();
        if told == 14_000 {
            break;
        }
        assert!(lost(&seen) > 0 && again < 20, "{told} told, {} lost", lost(&seen));
    }
    samples.unwatch(me());
    take(&mut samples);
    // Rings of other CPUs may have woken meanwhile, each once.
    assert!((0..10_000).any(|_| !wakes(0)));
}

#[test]
fn who_is_gone_or_another_by_now_is_passed_over() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut samples) = open(RING_BYTES) else { return };
    let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let pid = cat.id();
    let who = Who { pid, start: start_of(&Place::here(), pid).unwrap() };
    samples.watch(Who { start: who.start + 1, ..who });
    assert!(samples.watched.is_empty(), "it is another one");
    samples.watch(who);
    drop(cat.stdin.take());
    cat.wait().unwrap();
    let seen = take(&mut samples);
    assert!(!seen.iter().any(|s| matches!(s, Seen::Sample { who: w, .. } if *w == who)));
    samples.watch(who);
    samples.unwatch(who);
    assert!(samples.watched.is_empty());
}

#[test]
fn nothing_stays_open_behind_it() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let open_events = || {
        let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let names = links.filter_map(|l| fs::read_link(l.path()).ok());
        names.filter(|n| n.to_string_lossy().contains("perf_event")).count()
    };
    let rings = || fs::read_to_string("/proc/self/maps").unwrap().matches("[perf_event]").count();
    let before = (open_events(), rings());
    let Some(mut samples) = open(4096) else { return };
    samples.watch(me());
    let while_open = (open_events(), rings());
    assert!(while_open.0 > before.0 && while_open.1 > before.1);
    samples.close().unwrap();
    assert_eq!((open_events(), rings()), before);
    drop(samples);
    assert_eq!((open_events(), rings()), before);
}

/// `perf_mem_data_src`: what the access was, where it was answered, and that place's number.
fn data_src(op: u64, level: u64, number: u64) -> u64 {
    op | level << 5 | number << 33
}

/// A sample of a load that says how late it was answered: period, cycles, data_src, address.
fn late(address: u64, cycles: u64, src: u64, physical: u64) -> Vec<u8> {
    let pid = u64::from(ONE.pid);
    record(9, 2, &[pid | pid << 32, 100, address, 10_007, cycles, src, physical])
}

// specs/live.md#latencies: as the headers of Linux have it, 2 is a load and 4 a store; 0x82 hits
// RAM of the own node, 0x102 of a remote one, 0x0a the first level, and number 9 is CXL's.
#[test]
fn only_loads_that_memory_answered_say_how_late() {
    let ram = data_src(2, 0x82, 0xd);
    let records = [
        late(0x1000, 500, ram, 0x7000),
        late(0x2000, 600, data_src(2, 0x102, 0), 0x8_0000_0123),
        late(0x3000, 700, data_src(2, 0, 9), 0x9000),
        late(0x4000, 12, data_src(2, 0x0a, 1), 0x9000),
        late(0x5000, 500, data_src(4, 0x82, 0xd), 0x9000),
        late(0x6000, 0, ram, 0x9000),
        late(0x7000, 500, ram, 0),
    ];
    let told = told_late(&records.concat());
    let answered = told.iter().map(|t| match t {
        Told::Access(a) => a.answered.map(|a| (a.frame, a.cycles)),
        other => panic!("{other:?}"),
    });
    let all: Vec<_> = answered.collect();
    let some = [Some((7, 500)), Some((0x80_0000, 600)), Some((9, 700))];
    assert_eq!((&all[..3], &all[3..]), (&some[..], &[None; 4][..]));
    // Without them, as where the kernel refuses to tell, the accesses are there all the same.
    let plain = self::told(&sample(ONE, 100, 0x1000, 10_007));
    assert!(matches!(plain[..], [Told::Access(Access { answered: None, vpn: 1, .. })]));
}

#[test]
fn latencies_become_loads_of_the_nodes_whose_frames_they_are() {
    let text = "processor\t: 0\ncpu MHz\t\t: 2500.000\n";
    let root = Folder::new()
        .with("proc/cpuinfo", text)
        .with("sys/devices/system/node/has_memory", "0-1\n")
        .with("sys/devices/system/memory/block_size_bytes", "8000000\n")
        .with("sys/devices/system/node/node0/memory0/state", "online\n")
        .with("sys/devices/system/node/node1/memory1/state", "online\n");
    let frames = Frames::read(&root, &[0, 1]).unwrap();
    let from = NodeId(0);
    let mut late = Late {
        unloaded: [((from, NodeId(0)), 100_000), ((from, NodeId(1)), 200_000)].into(),
        cycle: cycle(&root),
        ..Late::default()
    };
    assert_eq!(late.cycle, Some(400), "2.5 GHz");
    // 500 cycles are 200 ns: twice what node 0 takes unloaded, and what node 1 does.
    let all = (0..640).map(|i| (from, Answered { frame: (i % 3) << 15, cycles: 500 }));
    late.count(&frames, all);
    let load = |late: &mut Late, node| late.answers.load(Picos::ZERO, NodeId(node));
    assert_eq!((load(&mut late, 0), load(&mut late, 1)), (Some(2000), Some(1000)));
    assert_eq!(load(&mut late, 2), None, "frames that no node claims say nothing");
    // No frequency, no latency.
    let mut blind = Late { cycle: cycle(Path::new("/nowhere")), ..Late::default() };
    blind.count(&frames, std::iter::once((from, Answered { frame: 0, cycles: 500 })));
    assert_eq!(load(&mut blind, 0), None);
}

#[test]
fn events_that_can_not_be_used_say_so() {
    let with = |kinds| Samples::with(Path::new("/"), kinds, 4096).err().unwrap().to_string();
    let spe = ("arm_spe_0//".to_owned(), vec![Event { aux: true, ..FAULTS }]);
    // A kind of PMU that no kernel has.
    let none = ("none//".to_owned(), vec![Event { kind: u32::MAX, ..FAULTS }]);
    let all = [with(vec![]), with(vec![spe]), with(vec![none])];
    expect![[r#"
        no event of this machine's PMUs samples addresses of memory accesses (`homenode doctor` says what was tried); choose another source of heat
        arm_spe_0// writes its samples in a form of its own, which homenode does not read; choose another source of heat
        none// does not open on CPU 0: no PMU here has this event
    "#]]
    .assert_eq(&format!("{}\n", all.join("\n")));
}
