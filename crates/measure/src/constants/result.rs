//! From samples to a machine: every constant with value, spread, method, origin.

use super::calls::{Call, LARGE_BYTES, MAPS};
use super::curves;
use super::rounds::{Kernel, LinkSeries, Migration, Samples, Wakes, sweep_point};
use super::stats::{Series, measured, whole, within};
use homenode_core::costs::{Constant, Cost, Costs};
use homenode_core::curve::Walk;
use homenode_core::topology::{
    BANDWIDTH_BOUNDS, Cache, Hardware, LATENCY_BOUNDS, LOCAL_DISTANCE, Link,
};
use homenode_core::units::{NodeId, count};
use homenode_live::sysfs::{CacheShape, Topology};

/// Latency in picoseconds and bandwidth in MB/s that are assumed where not one
/// link could be measured: the order of current servers' local memory.
const LATENCY_ASSUMED: u64 = 100_000;
const BANDWIDTH_ASSUMED: u64 = 15_000;

pub(super) fn machine(topology: &Topology, samples: &Samples) -> Hardware {
    let costs =
        Cost::ALL.iter().map(|&key| (key, within(key.bounds(), cost(key, topology, samples))));
    let costs = costs.collect();
    let mut links = links(topology, samples);
    for link in &mut links {
        for (constant, bounds) in [
            (&mut link.read_latency, LATENCY_BOUNDS),
            (&mut link.write_latency, LATENCY_BOUNDS),
            (&mut link.read_bandwidth, BANDWIDTH_BOUNDS),
            (&mut link.write_bandwidth, BANDWIDTH_BOUNDS),
        ] {
            *constant = within(bounds, constant.clone());
        }
    }
    Hardware {
        name: name(topology),
        about: about(topology, samples),
        nodes: topology.nodes.clone(),
        cpus: topology.cpus.clone(),
        caches: caches(topology, samples),
        distances: topology.distances.clone(),
        links,
        idle_states: Vec::new(),
        curves: [
            (Walk::Chase, &samples.sweep),
            (Walk::Stream, &samples.streams),
            (Walk::Update, &samples.updates),
        ]
        .into_iter()
        .filter_map(|(walk, sizes)| curves::curve(walk, sizes))
        .collect(),
        loaded: Vec::new(),
        defaults: None,
        costs: Costs(costs),
    }
}

/// A short name in lower case without blanks, such as `amd-epyc-2cpu`.
fn name(topology: &Topology) -> String {
    let model = topology.model.as_deref().unwrap_or("machine");
    let mut words: Vec<String> = model
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|w| !w.is_empty() && !matches!(*w, "R" | "TM" | "CPU" | "Processor"))
        .take(4)
        .map(str::to_ascii_lowercase)
        .collect();
    if words.is_empty() {
        words.push("machine".to_owned());
    }
    words.push(format!("{}cpu", topology.cpus.len()));
    if topology.nodes.len() > 1 {
        words.push(format!("{}node", topology.nodes.len()));
    }
    words.join("-")
}

fn about(topology: &Topology, samples: &Samples) -> String {
    let mut s = format!(
        "{}{}, {}, Linux {}; measured by homenode {} in {} s, {}",
        topology.model.as_deref().unwrap_or("unnamed processor"),
        if topology.virtual_machine { " in a virtual machine" } else { "" },
        count(topology.cpus.len() as u64, "CPU", "CPUs"),
        topology.kernel.as_deref().unwrap_or("of unknown release"),
        env!("CARGO_PKG_VERSION"),
        samples.took.as_secs_f64().round(),
        count(samples.rounds as u64, "round", "rounds"),
    );
    for note in topology.notes.iter().chain(&samples.notes) {
        s.push_str("; ");
        s.push_str(note);
    }
    s
}

/// Picoseconds as nanoseconds for a sentence.
fn ns(ps: f64) -> String {
    // The addition turns -0 into 0.
    format!("{:.1} ns", (ps / 100.0).round() / 10.0 + 0.0)
}

/// A size for a sentence.
fn size(bytes: usize) -> String {
    if bytes >= 1 << 20 {
        format!("{} MiB", tenth(bytes as f64 / (1 << 20) as f64))
    } else {
        format!("{} KiB", tenth(bytes as f64 / 1024.0))
    }
}

fn tenth(x: f64) -> String {
    let s = format!("{x:.1}");
    s.strip_suffix(".0").map_or(s.clone(), str::to_owned)
}

/// `a - b`, round by round.
fn difference(a: &Series, b: &Series) -> Series {
    a.pairs(b).map(|(a, b)| a - b).collect()
}

fn home(samples: &Samples) -> Option<&LinkSeries> {
    samples.links.get(&samples.home?)
}

/// An assumed constant: the table's default, because `why`.
fn default_because(key: Cost, why: &str) -> Constant {
    Constant::assumed(key.default_value(), &format!("{}; {why}", key.default_reason()))
}

/// A kernel operation's constant, or the default with what refused it.
fn of_kernel(key: Cost, k: &Kernel, method: &str) -> Constant {
    or_refused(key, k.series.measured(method.to_owned()), &k.refusal)
}

/// What was measured, or the default with what refused it.
fn or_refused(key: Cost, measured: Option<Constant>, refusal: &Option<String>) -> Constant {
    measured.unwrap_or_else(|| {
        let why = refusal.as_deref().unwrap_or("no sample was taken");
        default_because(key, &format!("not measured: {why}"))
    })
}

fn cost(key: Cost, topology: &Topology, s: &Samples) -> Constant {
    let unmeasured = || default_because(key, "not measured: no sample was taken");
    match key {
        Cost::MinorFault => of_kernel(
            key,
            &s.first_touch,
            "first touches of 4 KiB pages over 16 MiB after MADV_DONTNEED, one thread; with zeroing",
        ),
        Cost::HintFault => of_kernel(
            key,
            &s.protect_fault,
            "write faults over 16 MiB after a fork whose child is gone: like a hint fault they only set bits of the entry",
        ),
        Cost::PageCopy => s
            .copy
            .measured("copies of random 4 KiB pages to random pages, caches cold for both".to_owned())
            .unwrap_or_else(unmeasured),
        Cost::MigratePage => migrate_page(s),
        Cost::PteScan => of_kernel(
            key,
            &s.scan,
            &format!("present 4 KiB pages, one after the other, seen by {}", s.scan_method),
        ),
        Cost::PteMark => pte_mark(s),
        Cost::ReclaimPage => of_kernel(
            key,
            &s.age,
            "MADV_COLD on accessed 4 KiB pages: entry found, accessed bit cleared, page moved on its list; a lower bound, as no reverse map is walked",
        ),
        Cost::SwapOut | Cost::SwapIn => {
            default_because(key, "not measured: this program writes to no swap device")
        }
        Cost::PmemLine => {
            default_because(key, "not measured: nothing tells how much the medium reads at once")
        }
        Cost::MemoryParallelism => parallelism(s).unwrap_or_else(unmeasured),
        Cost::UpdateParallelism => {
            let how = "an update of a random word in huge pages, each independent of the others";
            under_way(s, &s.update, how).unwrap_or_else(unmeasured)
        }
        Cost::ToldStoreParallelism => {
            let how = "a load of a random word in huge pages and a store to where its value says, loads independent of one another";
            under_way(s, &s.told, how).unwrap_or_else(unmeasured)
        }
        Cost::StreamParallelism => in_order(s, false).unwrap_or_else(unmeasured),
        Cost::StreamStoreParallelism => in_order(s, true).unwrap_or_else(unmeasured),
        Cost::UpdateL2 => inner_update(topology, s, 2).unwrap_or_else(unmeasured),
        Cost::UpdateLlc => {
            inner_update(topology, s, last_level(topology)).unwrap_or_else(unmeasured)
        }
        Cost::StreamL2 => inner(topology, s, 2).unwrap_or_else(unmeasured),
        Cost::StreamLlc => inner(topology, s, last_level(topology)).unwrap_or_else(unmeasured),
        Cost::LlcReach => llc_reach(topology, s),
        Cost::ReorderWindow => reorder_window(s)
            .unwrap_or_else(|| default_because(key, "not measured: no step in the time of two loads")),
        Cost::TlbEntries => tlb_entries(s),
        Cost::TlbMiss => tlb_miss(s).unwrap_or_else(unmeasured),
        Cost::Instruction => s
            .add
            .measured("additions that wait for one another: one cycle each, the rate of code that overlaps little".to_owned())
            .unwrap_or_else(|| default_because(key, "no instruction chain is known for this processor")),
        Cost::WakeIdle => of_wakes(key, s, wake_time(s.wakes.first_key_value())),
        Cost::WakeDeep => of_wakes(key, s, wake_time(s.wakes.last_key_value())),
        Cost::DeepAfter => of_wakes(key, s, deep_after(s)),
        Cost::WakeCharged => of_wakes(key, s, wake_charged(s)),
        Cost::WakeCall => of_wakes(key, s, wake_call(s)),
        Cost::PageQuery => of_kernel(
            key,
            &s.queries,
            "move_pages without targets, present 4 KiB pages of the caller one after the other",
        ),
        Cost::PageFrame | Cost::PageCount => default_because(key, "not measured: pages of another process, by /proc"),
        Cost::ProcRead => of_kernel(
            key,
            &s.process,
            "stat, schedstat and statm of another process, opened, read and closed",
        ),
        Cost::ZoneinfoRead => {
            of_kernel(key, &s.zones, "/proc/zoneinfo, read and taken apart, by node")
        }
        Cost::KsmChecksum => of_kernel(
            key,
            &s.checksums,
            "XXH64 of 4 KiB pages that the second cache holds: the kernel's checksum, outside of it",
        ),
        Cost::DamonCheck
        | Cost::DamonRegion
        | Cost::HintProbe
        | Cost::PmuSample
        | Cost::EventRead
        | Cost::EngineSeen => default_because(key, "not measured: homenode's own work"),
        Cost::KsmVisit
        | Cost::KsmCompare
        | Cost::KsmMerge
        | Cost::KsmZero
        | Cost::KsmDisplaced => default_because(key, "not measured: ksmd's work"),
        Cost::TlbRemoteFlush => of_flush(
            key,
            s,
            0,
            "mprotect of a page, less the same before there was a second thread",
        ),
        Cost::TlbRemoteFlushReceived => of_flush(
            key,
            s,
            1,
            "what the other CPU's reads of 16 pages lack of their pace, by call",
        ),
        Cost::Syscall => of_call(key, s, Call::Syscall, "getppid"),
        Cost::PipeWrite => of_call(key, s, Call::PipeWrite, "writes of 8 bytes that all fit"),
        Cost::PipeRead => of_call(key, s, Call::PipeRead, "reads of 8 bytes that are there"),
        Cost::SocketSend => {
            of_call(key, s, Call::SocketSend, "writes of 100 bytes to a local stream socket, which all fit")
        }
        Cost::SocketReceive => {
            of_call(key, s, Call::SocketReceive, "reads of 100 bytes that a local stream socket has")
        }
        Cost::SocketSendFar => of_far(key, s, 0, "writes"),
        Cost::SocketReceiveFar => of_far(key, s, 1, "reads"),
        Cost::TcpSend => of_call(key, s, Call::TcpSend, "writes of 1 byte to a connection over loopback, each a segment that nobody waits for"),
        Cost::TcpQueue => of_call(key, s, Call::TcpQueue, "writes of 1 byte to a corked connection over loopback"),
        Cost::TcpReceive => of_call(key, s, Call::TcpReceive, "reads of 1 byte that a connection over loopback has"),
        Cost::UdpSend => of_call(key, s, Call::UdpSend, "datagrams of 1 byte over loopback that nobody waits for"),
        Cost::UdpReceive => of_call(key, s, Call::UdpReceive, "datagrams of 1 byte that are there"),
        Cost::SocketCopy => socket_copy(s).unwrap_or_else(unmeasured),
        Cost::FutexCall => of_call(key, s, Call::Futex, "FUTEX_WAKE where nobody waits"),
        Cost::WakeUp => wake_up(s),
        Cost::ContextSwitch => context_switch(s),
        Cost::Fork => of_kernel(
            key,
            &s.fork,
            "clone in a process that has a copy of this one's memory before there are buffers, until it has the child's number; the entries' copies are in it",
        ),
        Cost::Exec => exec(s),
        Cost::Exit => exit(s),
        Cost::ExitMap => exit_map(s),
        Cost::Tick => s
            .tick
            .measured("gaps of 0.5 to 50 µs in a loop that looks at the clock, their median".to_owned())
            .unwrap_or_else(|| default_because(key, "not measured: hardly anything interrupts a busy loop")),
        Cost::Interrupt
        | Cost::Ipi
        | Cost::QueueWork
        | Cost::IoSubmit
        | Cost::BalanceCpu
        | Cost::BalanceTask => {
            default_because(key, "not measured: no program can have the kernel do it alone")
        }
        Cost::DiskWrite | Cost::DiskFlush => {
            default_because(key, "not measured: this program writes to no disk")
        }
        Cost::ClockMin
        | Cost::ClockTurbo1
        | Cost::ClockTurbo2
        | Cost::ClockTurbo3
        | Cost::ClockTurbo4
        | Cost::ClockTurboAll
        | Cost::ClockShared
        | Cost::ClockThreshold => default_because(key, "not measured: who chooses clocks is not asked"),
        Cost::StatsCount => s
            .statement
            .measured("the update code of a wake-up, a run and a sleep on a block of the same layout, one CPU, caches warm; by statement".to_owned())
            .unwrap_or_else(unmeasured),
        Cost::StatsLine => s
            .line
            .measured("two CPUs by turns on the lines of a queue and a task, with statistics less without, by line of theirs that moves".to_owned())
            .unwrap_or_else(|| {
                let why = s.line_refusal.as_deref().unwrap_or("no sample was taken");
                default_because(key, &format!("not measured: {why}"))
            }),
        Cost::StatsLineFar => {
            default_because(key, "not measured yet: CPUs of two last-level caches")
        }
        Cost::SiblingSpeed => default_because(key, "not measured yet: threads that share a core"),
    }
}

/// Samples of a call; those of one that was never made are none.
fn calls(s: &Samples, call: Call) -> &Kernel {
    static NONE: Kernel = Kernel::none();
    s.calls.get(&call).unwrap_or(&NONE)
}

fn of_call(key: Cost, s: &Samples, call: Call, method: &str) -> Constant {
    of_kernel(key, calls(s, call), &format!("{method}, one CPU, caches warm"))
}

/// What is left of an operation without its parts, round by round, or the default with what refused it.
///
/// * `told` – the method, from the times of the operation and of its parts.
fn left(
    key: Cost,
    of: &Kernel,
    parts: &[&Kernel],
    told: impl FnOnce(&[String]) -> String,
) -> Constant {
    let rest = parts.iter().fold(of.series.clone(), |rest, part| difference(&rest, &part.series));
    let all = || std::iter::once(&of).chain(parts);
    let times: Option<Vec<String>> = all().map(|k| k.series.median().map(ns)).collect();
    times.and_then(|times| rest.measured(told(&times))).unwrap_or_else(|| {
        // Without one of its parts the operation says nothing of what is left.
        let why = all().find_map(|k| k.refusal.as_deref()).unwrap_or("no sample was taken");
        default_because(key, &format!("not measured: {why}"))
    })
}

/// How fast bytes are copied, from what a large write takes longer than one of a byte.
fn socket_copy(s: &Samples) -> Option<Constant> {
    let longer = &calls(s, Call::TcpLarge).series;
    let bytes = LARGE_BYTES as f64 - 1.0;
    let rates: Series = longer.iter().filter(|ps| *ps > 0.0).map(|ps| bytes * 1e6 / ps).collect();
    rates.measured(format!(
        "writes of {LARGE_BYTES} bytes to a connection over loopback, each less one of 1 byte; one CPU, buffers new"
    ))
}

/// What a call takes longer that wakes somebody.
fn wake_up(s: &Samples) -> Constant {
    let [waking, vain] = [Call::Wake, Call::Futex].map(|c| calls(s, c));
    left(Cost::WakeUp, waking, &[vain], |t| {
        format!(
            "FUTEX_WAKE of one waiting thread of the same CPU that preempts nobody: {} a call, less {} where nobody waits",
            t[0], t[1]
        )
    })
}

/// What is left of a turn when both of its calls are taken off.
fn context_switch(s: &Samples) -> Constant {
    let [turn, waking, vain] = [Call::HandOver, Call::Wake, Call::Futex].map(|c| calls(s, c));
    left(Cost::ContextSwitch, turn, &[waking, vain], |t| {
        format!(
            "two processes of one CPU that wake each other by futex and wait: {} a turn, less {} for the wake and {} for the call that waits",
            t[0], t[1], t[2]
        )
    })
}

/// What a child takes longer that runs another program.
fn exec(s: &Samples) -> Constant {
    left(Cost::Exec, &s.fork_and_exec, &[&s.fork_and_end], |t| {
        format!(
            "fork, exec of a static program of two instructions, its end: {}, less {} without the exec",
            t[0], t[1]
        )
    })
}

/// What a child's end takes: what is left of a fork and the end without the fork and the ways to the child and back.
fn exit(s: &Samples) -> Constant {
    let turn = calls(s, Call::HandOver);
    let parts = [&s.fork, turn, turn];
    left(Cost::Exit, &s.fork_and_end, &parts, |t| {
        format!(
            "fork and the child's end: {}, less {} for the fork and twice {} for a hand-over to another process, as to the child and back",
            t[0], t[1], t[2]
        )
    })
}

/// What each of a child's mappings adds to its end: what is left of a fork and the end without the fork, less the same of a
/// process without them.
fn exit_map(s: &Samples) -> Constant {
    let end = |whole: &Kernel, fork: &Kernel| difference(&whole.series, &fork.series);
    let with = end(&s.fork_and_end_of_maps, &s.fork_of_maps);
    let each: Series = difference(&with, &end(&s.fork_and_end, &s.fork))
        .iter()
        .map(|ps| ps / MAPS as f64)
        .collect();
    let of_whole = s.fork_and_end_of_maps.series.median().zip(s.fork_of_maps.series.median());
    let told = of_whole.and_then(|(whole, fork)| {
        each.measured(format!(
            "end of a child with {MAPS} mappings of a file more: {} with the fork, {} the fork; less the same without them; by mapping",
            ns(whole),
            ns(fork)
        ))
    });
    told.unwrap_or_else(|| {
        let all = [&s.fork_and_end_of_maps, &s.fork_of_maps, &s.fork_and_end, &s.fork];
        let why = all.iter().find_map(|k| k.refusal.as_deref()).unwrap_or("no sample was taken");
        default_because(Cost::ExitMap, &format!("not measured: {why}"))
    })
}

/// What a call on a socket takes longer between two CPUs.
fn of_far(key: Cost, s: &Samples, which: usize, what: &str) -> Constant {
    let method = format!(
        "200 messages of 100 bytes to each of 16 sockets, written on one CPU and then read on another, by turns: {what}, less those of 64 messages, both on one CPU"
    );
    or_refused(key, s.far[which].measured(method), &s.far_refusal)
}

/// What a remote flush takes, or the default with what refused it.
fn of_flush(key: Cost, s: &Samples, which: usize, what: &str) -> Constant {
    let method = format!(
        "rights of a page are taken away while a thread of the process runs on another CPU: {what}"
    );
    or_refused(key, s.flush[which].measured(method), &s.flush_refusal)
}

/// A wake-up's constant, or the default with what refused it.
fn of_wakes(key: Cost, s: &Samples, measured: Option<Constant>) -> Constant {
    or_refused(key, measured, &s.wake_refusal)
}

/// How long a CPU was idle, for a sentence.
fn gap(us: u64) -> String {
    if us < 1_000 { format!("{us} µs") } else { format!("{} ms", us / 1_000) }
}

/// The time of a wake-up after one gap.
fn wake_time(wakes: Option<(&u64, &Wakes)>) -> Option<Constant> {
    let (&us, wakes) = wakes?;
    wakes.took.measured(format!(
        "futex wake-ups of a thread on another CPU that was idle for {}, from the call until it runs",
        gap(us)
    ))
}

/// Where a wake-up takes half of the way from that after a short rest to that after a long one.
fn deep_after(s: &Samples) -> Option<Constant> {
    let median = |(&us, w): (&u64, &Wakes)| Some((us as f64, w.took.median()?));
    let points: Vec<(f64, f64)> = s.wakes.iter().filter_map(median).collect();
    let (&(short, near), &(long, far)) = (points.first()?, points.last()?);
    let us = crossing(&points, f64::midpoint(near, far)).filter(|_| far > near)?;
    let took = |ps: f64| format!("{:.1} µs", ps / 1e6);
    let method = format!(
        "wake-ups as for wake_idle: {} when the CPU was idle for {}, {} for {}, half of the way after this time",
        took(near),
        gap(short as u64),
        took(far),
        gap(long as u64)
    );
    Some(measured(us * 1e6, None, method))
}

fn wake_charged(s: &Samples) -> Option<Constant> {
    let (&short, _) = s.wakes.first_key_value()?;
    let (&long, _) = s.wakes.last_key_value()?;
    let all: Series = s.wakes.values().flat_map(|w| w.booked.iter()).collect();
    all.measured(format!(
        "processor time of the woken thread from the call until it runs, over that time, idle for {} to {}",
        gap(short),
        gap(long)
    ))
}

fn wake_call(s: &Samples) -> Option<Constant> {
    let (&short, _) = s.wakes.first_key_value()?;
    let (&long, _) = s.wakes.last_key_value()?;
    let all: Series = s.wakes.values().flat_map(|w| w.call.iter()).collect();
    all.measured(format!(
        "the call of these wake-ups, idle for {} to {}, less one that wakes nobody",
        gap(short),
        gap(long)
    ))
}

fn migrate_page(s: &Samples) -> Constant {
    let Some(whole_move) = s.migrate.series.median() else {
        return of_kernel(Cost::MigratePage, &s.migrate, "");
    };
    let how = match s.migration {
        Some(Migration::Between(a, b)) => {
            format!("move_pages of 4 KiB pages between nodes {a} and {b}")
        }
        Some(Migration::Compaction(path)) => format!(
            "one node only: compaction of fragmented memory ({path}), its CPU time by pgmigrate_success, an upper bound, {}",
            count(s.migrate.series.len() as u64, "compaction", "compactions")
        ),
        None => "page moves".to_owned(),
    };
    let copy = s.copy.median().unwrap_or(0.0);
    let method = format!("{how}: {} a page, less a page's copy of {}", ns(whole_move), ns(copy));
    // A copy with warm caches can be faster than ours: keep a tenth.
    let value = (whole_move - copy).max(whole_move / 10.0);
    measured(value, s.migrate.series.spread(), method)
}

fn pte_mark(s: &Samples) -> Constant {
    let Some(mark) = s.mark.series.median() else { return of_kernel(Cost::PteMark, &s.mark, "") };
    let scan = s.scan.series.median().unwrap_or(0.0);
    let method = format!(
        "mprotect(PROT_NONE) of present 4 KiB pages, flush in it: {} a page, less {} to look at one, a tenth at least",
        ns(mark),
        ns(scan)
    );
    measured((mark - scan).max(mark / 10.0), s.mark.series.spread(), method)
}

/// Saturation of independent walks against one, round by round.
fn parallelism(s: &Samples) -> Option<Constant> {
    let one = s.widths.get(&1)?;
    let (&best, many) = s.widths.iter().filter(|(_, t)| !t.is_empty()).min_by(|a, b| {
        f64::total_cmp(&a.1.median().unwrap_or(0.0), &b.1.median().unwrap_or(0.0))
    })?;
    let ratios: Series = one.pairs(many).map(|(o, m)| (o / m * 1000.0).max(1000.0)).collect();
    ratios.measured(format!(
        "{} a load in {best} interleaved walks of random lines in huge pages, {} in one",
        ns(many.median()?),
        ns(one.median()?)
    ))
}

/// The store's latency over the time of an update.
fn under_way(s: &Samples, times: &Series, how: &str) -> Option<Constant> {
    let latency = write_latency(home(s)?, s)?.value as f64;
    let ratios: Series = times.iter().map(|t| (latency * 1000.0 / t).max(1000.0)).collect();
    ratios.measured(format!("{} {how}, {} a store", ns(times.median()?), ns(latency)))
}

/// The latency over the time of a line when one core goes in order.
fn in_order(s: &Samples, store: bool) -> Option<Constant> {
    let link = home(s)?;
    let (latency, rate, verb) = if store {
        (write_latency(link, s)?, &link.write_one, "stores")
    } else {
        (read_latency(link, s)?, &link.read_one, "reads")
    };
    let latency = latency.value as f64;
    // MB/s times picoseconds are 10^-6 bytes.
    let ratios: Series =
        rate.iter().map(|mbps| (latency * mbps / 64.0 / 1e3).max(1000.0)).collect();
    ratios.measured(format!(
        "one core {verb} {} MB/s in order over {}, at {} a line",
        whole(rate.median()?),
        size(link.streamed),
        ns(latency)
    ))
}

fn last_level(topology: &Topology) -> u8 {
    topology.caches.last().map_or(0, |c| c.level)
}

/// What one core reads in order inside of a cache, in MB/s.
fn inner(topology: &Topology, s: &Samples, level: u8) -> Option<Constant> {
    let (point, times) = curves::nearest(&s.streams, read_point(topology, s, level)?)?;
    let rates: Series = times.iter().filter(|t| *t > 0.0).map(|t| 64.0 * 1e6 / t).collect();
    rates.measured(format!("one core reads {} in order, over and over", size(point)))
}

/// An independent update inside of a cache.
fn inner_update(topology: &Topology, s: &Samples, level: u8) -> Option<Constant> {
    let (point, times) = curves::nearest(&s.updates, read_point(topology, s, level)?)?;
    times.measured(format!("independent updates of random words of {}", size(point)))
}

/// How far the last level reaches for one program, in bytes: from a size that is just outside of the
/// level before, where half of the way to memory's latency is gone. By quantile of the rounds: in the
/// fast ones it reaches further.
struct Reach {
    outside: usize,
    median: f64,
    spread: Option<f64>,
}

fn reach(topology: &Topology, s: &Samples) -> Option<Reach> {
    let shapes = &topology.caches;
    let inner = shapes.iter().rev().nth(1).map_or(0, |c| c.size.0 as usize);
    let first = *s.sweep.iter().find(|(size, t)| **size >= 2 * inner && !t.is_empty())?.0;
    let at = |q: f64| -> Option<f64> {
        let points = s.sweep.range(first..).map(|(&n, t)| Some((n as f64, t.quantile(q)?)));
        let points: Vec<(f64, f64)> = points.collect::<Option<_>>()?;
        let (own, outer) = (points.first()?.1, home(s)?.load_huge.median()?);
        crossing(&points, f64::midpoint(own, outer)).filter(|_| outer > own)
    };
    let spread = at(0.25).zip(at(0.75)).map(|(fast, slow)| (fast - slow).abs() / 2.0);
    Some(Reach { outside: first, median: at(0.5)?, spread })
}

/// Over which size a level's figures are read: [`sweep_point`], and of the last level half of the way, by
/// quotients, from outside of the level before to where it ends for this program. Of one that is shared
/// with other virtual machines a quarter may be more than this one has.
fn read_point(topology: &Topology, s: &Samples, level: u8) -> Option<usize> {
    let point = sweep_point(&topology.caches, level)?;
    if level != last_level(topology) || topology.caches.len() < 2 {
        return Some(point);
    }
    let Some(Reach { outside, median, .. }) = reach(topology, s) else { return Some(point) };
    let middle = (outside as f64 * median.max(outside as f64)).sqrt() as usize;
    let (found, _) = curves::nearest(&s.sweep, middle)?;
    Some(found.min(point).max(outside.min(point)))
}

/// The last level as one program sees it: walks over sizes, until half of the loads go
/// to memory.
fn llc_reach(topology: &Topology, s: &Samples) -> Constant {
    let Some(shape) = topology.caches.last() else {
        return default_because(Cost::LlcReach, "not measured: sysfs shows no cache");
    };
    let nominal = shape.size.0;
    let Some(Reach { median, spread, .. }) = reach(topology, s) else {
        return Constant::assumed(
            nominal,
            "the size by sysfs; not measured: the sweep shows no end of this level",
        );
    };
    let at = size(median as usize);
    if (median as u64) < nominal {
        let method = format!(
            "walks of random lines over growing sizes: half of the way to memory's latency at {at}; sysfs says {}",
            size(nominal as usize)
        );
        return measured(median, spread, method);
    }
    let method = format!(
        "the size by sysfs: walks of random lines are half of the way to memory's latency at {at} only"
    );
    measured(nominal as f64, spread, method)
}

/// Where a rising curve first comes above `height`, on a straight line from the point before.
fn crossing(points: &[(f64, f64)], height: f64) -> Option<f64> {
    let i = points.iter().position(|p| p.1 > height)?;
    let (n1, t1) = points[i];
    let Some(&(n0, t0)) = i.checked_sub(1).and_then(|j| points.get(j)) else { return Some(n1) };
    Some(n0 + (n1 - n0) * (height - t0) / (t1 - t0))
}

/// Where two loads no longer wait together: half way from one latency to two.
fn reorder_window(s: &Samples) -> Option<Constant> {
    let (least, first) = s.turns.first_key_value()?;
    let (most, last) = s.turns.last_key_value()?;
    let (first, last) = (first.median()?, last.median()?);
    if last < first * 1.4 {
        return None;
    }
    let at = |q: f64| -> Option<f64> {
        let points: Option<Vec<(f64, f64)>> =
            s.turns.iter().map(|(&n, t)| Some((n as f64, t.quantile(q)?))).collect();
        crossing(&points?, f64::midpoint(first, last))
    };
    let method = format!(
        "two loads from memory with more and more instructions between them: {} for both with {least}, {} with {most}, half of it at this many; three of four need a register",
        ns(first),
        ns(last)
    );
    let spread = at(0.25).zip(at(0.75)).map(|(fast, slow)| (fast - slow).abs() / 2.0);
    Some(measured(at(0.5)?, spread, method))
}

/// Where the walk over pages becomes slower than the walk over as many lines
/// in huge pages.
struct Knee {
    entries: f64,
    spread: Option<f64>,
    before: f64,
    after: f64,
}

/// Less than this is not told apart from noise, in picoseconds.
const KNEE_MIN: f64 = 1_500.0;

fn knee(s: &Samples) -> Option<Knee> {
    let curve = |q: f64| -> Option<Vec<(f64, f64)>> {
        s.tlb.iter().map(|(&n, t)| Some((n as f64, t.quantile(q)?))).collect()
    };
    let middle = curve(0.5)?;
    let after = middle.last()?.1;
    // The level before the last also costs a little: take the cheapest reach
    // that is far inside any last level.
    let before = middle.iter().filter(|p| p.0 <= 512.0).map(|p| p.1).min_by(f64::total_cmp)?;
    if after - before < KNEE_MIN {
        return None;
    }
    let at = |q: f64| crossing(&curve(q)?, f64::midpoint(before, after));
    let spread = at(0.75).zip(at(0.25)).map(|(slow, fast)| ((fast - slow) / 2.0).abs());
    Some(Knee { entries: at(0.5)?, spread, before, after })
}

fn tlb_entries(s: &Samples) -> Constant {
    let most = s.tlb.keys().max().copied().unwrap_or(0);
    match knee(s) {
        Some(k) => {
            let method = format!(
                "one line a page over 128 to {most} 4 KiB pages against as many in huge pages: the difference rises from {} to {}, half of it at this many pages",
                ns(k.before),
                ns(k.after)
            );
            measured(k.entries, k.spread, method)
        }
        None => default_because(
            Cost::TlbEntries,
            &format!("not measured: no step in the time of a load over up to {most} pages"),
        ),
    }
}

fn tlb_miss(s: &Samples) -> Option<Constant> {
    let link = home(s)?;
    if link.huge {
        let more = difference(&link.load_base, &link.load_huge);
        return more.measured(format!(
            "dependent loads of random lines over {} in 4 KiB pages ({}), less the same in huge pages ({})",
            size(link.walked),
            ns(link.load_base.median()?),
            ns(link.load_huge.median()?)
        ));
    }
    let k = knee(s)?;
    let spread = s.tlb.values().last().and_then(Series::spread);
    let method =
        "no huge pages here: rise of a load's time as one line a page passes the TLB's reach";
    Some(measured(k.after - k.before, spread, method.to_owned()))
}

/// The latency of a walk without what the TLB adds, and how it was found.
fn read_latency(l: &LinkSeries, s: &Samples) -> Option<Constant> {
    let cpu = l.cpu.map_or_else(String::new, |c| format!(" from CPU {c}"));
    if l.huge {
        return l.load_huge.measured(format!(
            "dependent loads of random lines over {} in huge pages{cpu}; in 4 KiB pages {}",
            size(l.walked),
            ns(l.load_base.median()?)
        ));
    }
    let miss = tlb_miss(s).map_or(0.0, |c| c.value as f64);
    let less: Series = l.load_base.iter().map(|t| (t - miss).max(t / 10.0)).collect();
    less.measured(format!(
        "dependent loads of random lines over {} in 4 KiB pages{cpu}, less {} for the TLB's misses, because huge pages were refused",
        size(l.walked),
        ns(miss)
    ))
}

fn write_latency(l: &LinkSeries, s: &Samples) -> Option<Constant> {
    let lock = difference(&s.near_store, &s.near_load).median().unwrap_or(0.0).max(0.0);
    let miss = if l.huge { 0.0 } else { tlb_miss(s).map_or(0.0, |c| c.value as f64) };
    let less: Series = l.store.iter().map(|t| (t - lock - miss).max(t / 10.0)).collect();
    less.measured(format!(
        "dependent atomic additions of 0 to random lines over {}, each owning its line before the next, write-backs in it; less {} that they take more in the first cache{}",
        size(l.walked),
        ns(lock),
        if l.huge { "" } else { ", and less the TLB's misses" }
    ))
}

fn flow(all: &Series, one: &Series, verb: &str, l: &LinkSeries) -> Option<Constant> {
    all.measured(format!(
        "{}, one a CPU, {verb} {} in order; one core alone {} MB/s",
        count(l.threads as u64, "thread", "threads"),
        size(l.streamed),
        one.median().map_or_else(|| "unknown".to_owned(), |m| whole(m).to_string())
    ))
}

fn links(topology: &Topology, s: &Samples) -> Vec<Link> {
    let mut out: Vec<Link> = Vec::new();
    let mut lacking = Vec::new();
    for from in &topology.nodes {
        if !topology.cpus.iter().any(|c| c.node == from.id) {
            continue;
        }
        for to in topology.nodes.iter().filter(|n| !n.zones.is_empty()) {
            match s.links.get(&(from.id, to.id)).and_then(|l| link((from.id, to.id), l, s)) {
                Some(l) => out.push(l),
                None => lacking.push((from.id, to.id)),
            }
        }
    }
    let reference = out.iter().min_by_key(|l| distance(topology, l.from, l.to)).cloned();
    out.extend(lacking.into_iter().map(|p| assumed_link(topology, p, reference.as_ref())));
    out.sort_by_key(|l| (l.from, l.to));
    out
}

fn link((from, to): (NodeId, NodeId), l: &LinkSeries, s: &Samples) -> Option<Link> {
    Some(Link {
        from,
        to,
        read_latency: read_latency(l, s)?,
        write_latency: write_latency(l, s)?,
        read_bandwidth: flow(&l.read, &l.read_one, "reading", l)?,
        write_bandwidth: flow(&l.write, &l.write_one, "storing (bytes stored) over", l)?,
    })
}

fn distance(topology: &Topology, from: NodeId, to: NodeId) -> u32 {
    let at = |id| topology.nodes.iter().position(|n| n.id == id);
    match (at(from), at(to)) {
        (Some(i), Some(j)) => topology.distances[i][j],
        _ => LOCAL_DISTANCE,
    }
}

/// A link that could not be measured: the nearest measured one, scaled by the
/// kernel's distances.
fn assumed_link(topology: &Topology, (from, to): (NodeId, NodeId), by: Option<&Link>) -> Link {
    let d = u64::from(distance(topology, from, to));
    let base = by.map_or(u64::from(LOCAL_DISTANCE), |l| distance(topology, l.from, l.to).into());
    let why = match by {
        Some(l) => format!(
            "link {} to {} times the distances' quotient {d}/{base}; not measured: this process may not run or allocate there",
            l.from, l.to
        ),
        None => "order of current servers' local memory by distance; not measured: this process may not run or allocate there".to_owned(),
    };
    let slower = |v: u64| Constant::assumed((v * d / base).max(1), &why);
    let narrower = |v: u64| Constant::assumed((v * base / d).max(1), &why);
    let value = |get: fn(&Link) -> &Constant, or: u64| by.map_or(or, |l| get(l).value);
    Link {
        from,
        to,
        read_latency: slower(value(|l| &l.read_latency, LATENCY_ASSUMED)),
        write_latency: slower(value(|l| &l.write_latency, LATENCY_ASSUMED)),
        read_bandwidth: narrower(value(|l| &l.read_bandwidth, BANDWIDTH_ASSUMED)),
        write_bandwidth: narrower(value(|l| &l.write_bandwidth, BANDWIDTH_ASSUMED)),
    }
}

/// Latencies in picoseconds that are assumed for levels 1 to 3.
const CACHES_ASSUMED: [u64; 3] = [1_200, 4_000, 20_000];

fn caches(topology: &Topology, s: &Samples) -> Vec<Cache> {
    let latency = |c| within(LATENCY_BOUNDS, cache_latency(topology, c, s));
    topology.caches.iter().map(|c| c.with_latency(latency(c))).collect()
}

fn cache_latency(topology: &Topology, c: &CacheShape, s: &Samples) -> Constant {
    let shapes = &topology.caches;
    let at = |level| {
        let point = read_point(topology, s, level)?;
        Some((point, s.sweep.get(&point)?))
    };
    let measured = at(c.level).and_then(|(point, times)| {
        let own = times.median()?;
        let outer = shapes.iter().find(|o| o.level > c.level).map_or_else(
            || home(s).and_then(|l| l.load_huge.median()),
            |o| at(o.level).and_then(|(_, t)| t.median()),
        );
        let effective = outer.and_then(|outer| effective_size(own, outer, point, s));
        let mut method = format!("dependent loads of random lines over {}", size(point));
        match effective {
            Some(e) => method.push_str(&format!(
                "; over growing sizes half way to the next level's latency at {}",
                size(e)
            )),
            None => method.push_str("; the sweep shows no end of this level"),
        }
        if topology.virtual_machine && c.level == last_level(topology) {
            method.push_str(
                ", the size is what sysfs says, of which a virtual machine may own a part only",
            );
        }
        times.measured(method)
    });
    measured.unwrap_or_else(|| {
        let value = CACHES_ASSUMED[usize::from(c.level.clamp(1, 3)) - 1];
        Constant::assumed(value, "order of current servers; not measured: the buffer was too small")
    })
}

/// The first size, beyond the point where the level's latency was read, at
/// which a load takes more than the mean of this and the next level's latency.
fn effective_size(own: f64, outer: f64, point: usize, s: &Samples) -> Option<usize> {
    let half = f64::midpoint(own, outer);
    if outer <= own {
        return None;
    }
    s.sweep
        .range(point..)
        .find(|(_, t)| t.median().is_some_and(|m| m > half))
        .map(|(&size, _)| size)
}

#[cfg(test)]
mod tests;
