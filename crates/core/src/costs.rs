//! What things cost on one machine, each constant with where it comes from.
//!
//! A machine's file names a constant, its value and unit, how it was found, how
//! far repeated measurements lay apart, and one of *measured*, *quoted*,
//! *assumed*. No constant is fitted to a table that homenode reproduces.
//!
//! Values are integers in the unit's stored form, so that a run is the same on
//! every machine:
//!
//! | unit in the file | stored as      | example        |
//! |------------------|----------------|----------------|
//! | `ns`             | picoseconds    | 89.3 → 89 300  |
//! | `MB/s`           | 10^6 bytes/s   | 16 800         |
//! | `bytes`, `count` | as they are    | 3 072          |
//! | `MHz`            | as it is       | 3 900          |
//! | `ratio`          | thousandths    | 5.25 → 5 250   |

use crate::units::Picos;
use std::collections::BTreeMap;
use std::fmt;

crate::named! {
    /// Where a constant comes from.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Origin {
        /// On this machine, by `homenode measure`.
        Measured => "measured",
        /// From a publication that `method` names.
        Quoted => "quoted",
        /// Neither; `method` says why this value.
        Assumed => "assumed",
    }
}

crate::named! {
    /// The unit that a constant has in a machine's file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Unit {
        /// Nanoseconds; stored as picoseconds.
        Nanoseconds => "ns",
        /// 10^6 bytes a second; stored as it is.
        MBps => "MB/s",
        /// Bytes; stored as it is.
        Bytes => "bytes",
        /// A plain number; stored as it is.
        Count => "count",
        /// A quotient; stored in thousandths.
        Ratio => "ratio",
        /// 10^6 clocks a second; stored as it is.
        MHz => "MHz",
    }
}

impl Unit {
    /// How many stored units make one of the file's unit.
    pub const fn scale(self) -> u64 {
        match self {
            Self::Nanoseconds | Self::Ratio => 1_000,
            Self::MBps | Self::Bytes | Self::Count | Self::MHz => 1,
        }
    }
}

/// A stored value as a machine's file writes it: 89 300 in picoseconds is `89.3`.
#[derive(Clone, Copy, Debug)]
pub struct Shown(pub u64, pub Unit);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scale = self.1.scale();
        let (whole, rest) = (self.0 / scale, self.0 % scale);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let decimals = format!("{rest:03}");
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

/// One constant of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// In the stored form of its unit.
    pub value: u64,
    /// Half the distance between the quartiles of repeated measurements, in the
    /// same form; `None` where nothing was repeated.
    pub spread: Option<u64>,
    /// How it was found, or who published it; one sentence.
    pub method: String,
    /// Measured, quoted or assumed.
    pub origin: Origin,
}

impl Constant {
    /// An assumed constant, with the reason for its value.
    pub fn assumed(value: u64, why: &str) -> Self {
        Self { value, spread: None, method: why.to_owned(), origin: Origin::Assumed }
    }
}

/// What a cost does when the clock of the CPU that pays it is not the nominal one.
///
/// Source: specs/frequency.md#costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paced {
    /// Instructions of the CPU, with data in its own caches: at half of the clock they take twice as long.
    Core,
    /// As long at any clock, or no time at all: memory, lines that other cores have, interrupts under way, exits from
    /// idle states, disks.
    Apart,
}

macro_rules! cost_keys {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $unit:ident, $pace:ident, $low:literal ..= $high:literal,
       default $default:literal, $why:literal;)*) => {
        /// A cost that belongs to the machine as a whole (latency and bandwidth
        /// belong to pairs of nodes: see [`crate::topology::Link`]).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Cost { $($(#[$doc])* $variant,)* }

        impl Cost {
            /// All of them, in the order of a machine's file.
            pub const ALL: &'static [Cost] = &[$(Cost::$variant,)*];
            /// The key in a machine's file.
            pub const fn name(self) -> &'static str { match self { $(Self::$variant => $name,)* } }
            /// Its unit.
            pub const fn unit(self) -> Unit { match self { $(Self::$variant => Unit::$unit,)* } }
            /// Whether its time is one of instructions, which gets shorter as the clock rises.
            pub const fn paced(self) -> Paced { match self { $(Self::$variant => Paced::$pace,)* } }
            /// Smallest and largest legal value, in stored form.
            pub const fn bounds(self) -> (u64, u64) { match self { $(Self::$variant => ($low, $high),)* } }
            /// What is taken where a machine's file is silent, in stored form.
            pub const fn default_value(self) -> u64 { match self { $(Self::$variant => $default,)* } }
            /// Why that value.
            pub const fn default_reason(self) -> &'static str { match self { $(Self::$variant => $why,)* } }
        }
    };
}

cost_keys! {
    /// Time of a first touch of anonymous memory, with zeroing the page.
    MinorFault = "minor_fault", Nanoseconds, Core, 1..=1_000_000_000, default 500_000, "order of published minor faults";
    /// Time of a fault that only changes bits of the entry (a hint fault without migration).
    HintFault = "hint_fault", Nanoseconds, Core, 1..=1_000_000_000, default 800_000, "a write fault that only sets bits, x86 virtual machine";
    /// Time of copying one base page, both in the cache of neither.
    PageCopy = "page_copy", Nanoseconds, Apart, 1..=1_000_000_000, default 300_000, "4 KiB at about 13 GB/s";
    /// Time of moving one base page in all, without the copy: isolate, unmap, flush, remap.
    MigratePage = "migrate_page", Nanoseconds, Core, 1..=1_000_000_000, default 2_400_000, "compaction's time per page less the copy";
    /// Time to look at one page-table entry in a scan.
    PteScan = "pte_scan", Nanoseconds, Core, 1..=1_000_000, default 10_000, "order of pagemap walks";
    /// Time of the extra work to mark one entry in a scan (change, flush share).
    PteMark = "pte_mark", Nanoseconds, Core, 0..=1_000_000, default 25_000, "order of mprotect per page";
    /// Time reclaim takes to look at one page (reverse map, accessed bits).
    ReclaimPage = "reclaim_page", Nanoseconds, Apart, 1..=1_000_000_000, default 300_000, "order of one reverse-map walk";
    /// Time to write one base page to swap, without waiting.
    SwapOut = "swap_out", Nanoseconds, Apart, 1..=1_000_000_000_000, default 10_000_000, "NVMe, batched writes";
    /// Time to read one base page from swap, with waiting.
    SwapIn = "swap_in", Nanoseconds, Apart, 1..=1_000_000_000_000, default 90_000_000, "NVMe random read";
    /// How many independent misses one core overlaps, against dependent ones.
    MemoryParallelism = "memory_parallelism", Ratio, Apart, 1_000..=1_000_000, default 5_000, "order of published values";
    /// The same for independent updates (a load and a store) of lines in no order: the
    /// store's latency over the time of one.
    UpdateParallelism = "update_parallelism", Ratio, Apart, 1_000..=1_000_000, default 4_000, "order of memory_parallelism, less for lines written back";
    /// The same for independent loads each of which is followed by a store to an address that the loaded
    /// value tells. As many as of other updates where a core lets loads pass stores whose address isn't
    /// known yet (speculative store bypass), 1 where it doesn't. Source: specs/load.md#told.
    ToldStoreParallelism = "told_store_parallelism", Ratio, Apart, 1_000..=1_000_000, default 4_000, "as update_parallelism: of a machine that doesn't say, loads are taken to pass such stores";
    /// Time of an independent update of a word where the second level has its line.
    UpdateL2 = "update_l2", Nanoseconds, Apart, 1..=1_000_000, default 1_500, "order of current cores";
    /// The same where the last level has it.
    UpdateLlc = "update_llc", Nanoseconds, Apart, 1..=1_000_000, default 2_500, "order of current cores";
    /// Lines under way when one core reads in order, prefetchers included: the latency
    /// over the time of a line.
    StreamParallelism = "stream_parallelism", Ratio, Apart, 1_000..=1_000_000, default 15_000, "10 GB/s a core at 100 ns";
    /// The same when one core stores in order.
    StreamStoreParallelism = "stream_store_parallelism", Ratio, Apart, 1_000..=1_000_000, default 10_000, "6 GB/s a core at 100 ns";
    /// What one core reads in order from its second level.
    StreamL2 = "stream_l2", MBps, Apart, 1..=10_000_000, default 60_000, "order of current cores";
    /// What one core reads in order from the last level.
    StreamLlc = "stream_llc", MBps, Apart, 1..=10_000_000, default 25_000, "order of current cores";
    /// How much of the last level one program gets, where others share it.
    LlcReach = "llc_reach", Bytes, Apart, 65_536..=17_179_869_184, default 33_554_432, "order of current servers";
    /// Instructions that a core takes up while the oldest of them waits for memory.
    ReorderWindow = "reorder_window", Count, Apart, 1..=100_000, default 224, "order of recent x86 cores";
    /// Entries that the last TLB level holds for base pages.
    TlbEntries = "tlb_entries", Count, Apart, 1..=1_000_000, default 2_048, "recent x86";
    /// Extra time of an access beyond the TLB's reach.
    TlbMiss = "tlb_miss", Nanoseconds, Apart, 0..=1_000_000, default 7_000, "a walk that hits the caches";
    /// Bytes that persistent memory reads or writes at once; other media take a
    /// cache line of 64. Source: specs/load.md#granularity.
    PmemLine = "pmem_line", Bytes, Apart, 64..=4096, default 256, "Optane's internal access size, arXiv 1903.05714";
    /// Time of one instruction at full rate, where a recording does not say.
    Instruction = "instruction", Nanoseconds, Core, 1..=1_000_000, default 250, "4 GHz, one a cycle";
    /// Time to ask where one page is: `move_pages` without a target.
    PageQuery = "page_query", Nanoseconds, Core, 1..=1_000_000_000, default 317_000, "83 ms for 1 GiB of 4 KiB pages of another process, on a two-CPU virtual machine";
    /// Time to read where one page is from `pagemap`, which tells its frame.
    PageFrame = "page_frame", Nanoseconds, Core, 1..=1_000_000_000, default 39_000, "10.1 ms for 1 GiB of 4 KiB pages, on a two-CPU virtual machine";
    /// Time to count one page by its node in `numa_maps`.
    PageCount = "page_count", Nanoseconds, Core, 1..=1_000_000_000, default 47_000, "12.3 ms for 1 GiB of 4 KiB pages, on a two-CPU virtual machine";
    /// Time to read one process's `stat`, `schedstat` and `statm`.
    ProcRead = "proc_read", Nanoseconds, Core, 0..=1_000_000_000, default 12_000_000, "three files, opened, read and closed at about 4 µs each";
    /// Time to read `/proc/zoneinfo`, for each node.
    ZoneinfoRead = "zoneinfo_read", Nanoseconds, Core, 0..=1_000_000_000, default 25_000_000, "order of formatting and parsing some hundred lines a node";
    /// Time in which DAMON makes one page old and later looks at it.
    DamonCheck = "damon_check", Nanoseconds, Apart, 0..=1_000_000_000, default 500_000, "two walks of a page table whose entries are in no cache";
    /// Time to take over one region that DAMON tells.
    DamonRegion = "damon_region", Nanoseconds, Core, 0..=1_000_000_000, default 300_000, "one record of a trace ring, copied and decoded";
    /// What an observer of hint faults adds to a fault.
    HintProbe = "hint_probe", Nanoseconds, Core, 0..=1_000_000_000, default 200_000, "order of a BPF program at a kernel function that fills a ring";
    /// What one sample of the performance-monitoring unit takes from the sampled task.
    PmuSample = "pmu_sample", Nanoseconds, Core, 0..=1_000_000_000, default 1_000_000, "order of a record with its share of the interrupt";
    /// Time to take over one fault or sample from its ring.
    EventRead = "event_read", Nanoseconds, Core, 0..=1_000_000_000, default 100_000, "a record of some 40 bytes, copied and decoded";
    /// Time in which the engine takes in one thing that was seen.
    EngineSeen = "engine_seen", Nanoseconds, Core, 0..=1_000_000_000, default 200_000, "a few look-ups in ordered maps";
    /// Time in which ksmd finds its next page, also one that it passes over: a walk of the
    /// page table, a reference, its item. Source: specs/ksm.md#cost.
    KsmVisit = "ksm_visit", Nanoseconds, Core, 0..=1_000_000_000, default 300_000, "order of one page-table walk with its locks";
    /// Time to checksum a page that the cache holds; reading it from memory is longer on
    /// most machines and then counts instead. Source: specs/ksm.md#cost.
    KsmChecksum = "ksm_checksum", Nanoseconds, Core, 1..=1_000_000_000, default 300_000, "XXH64 at about 13 GB/s";
    /// Time of one comparison of two pages beside reading their lines: the other's address
    /// is looked up, the two are mapped, the first difference is found.
    KsmCompare = "ksm_compare", Nanoseconds, Core, 0..=1_000_000_000, default 100_000, "order of a page-table walk in cached tables";
    /// Time to make one entry an entry of a merged page: protect it, flush, compare, replace.
    KsmMerge = "ksm_merge", Nanoseconds, Core, 1..=1_000_000_000, default 2_400_000, "as migrate_page: the same steps without the copy";
    /// Time to make one entry an entry of the page of zeroes.
    KsmZero = "ksm_zero", Nanoseconds, Core, 1..=1_000_000_000, default 2_400_000, "as ksm_merge";
    /// Time from a waker's call until the woken task runs on another CPU, which is idle since
    /// shortly before. Source: specs/waits.md#replay.
    WakeIdle = "wake_idle", Nanoseconds, Apart, 0..=1_000_000_000, default 3_000_000, "order of published ping-pong between cores in their first idle state";
    /// The same where that CPU has been idle for longer than `deep_after`.
    WakeDeep = "wake_deep", Nanoseconds, Apart, 0..=10_000_000_000, default 40_000_000, "order of measured exits from the idle states in which a core's caches are off";
    /// How long a CPU has been idle when it is in a deep idle state.
    DeepAfter = "deep_after", Nanoseconds, Apart, 0..=1_000_000_000_000, default 600_000_000, "the target residency of that state on many servers";
    /// Share of these times that the kernel books as the woken task's processor time.
    WakeCharged = "wake_charged", Ratio, Apart, 0..=1_000, default 0, "a CPU leaves its idle state before the kernel looks at the clock for the task";
    /// What the call takes of a task that wakes another on a CPU which is idle and not its own:
    /// that one may have to be sent an interrupt. Source: specs/waits.md#replay.
    WakeCall = "wake_call", Nanoseconds, Core, 0..=1_000_000_000, default 500_000, "as wake_up: of a machine that doesn't say, nothing more is assumed";
    /// Time from one task to the next on a CPU: `schedule` and what it displaces. Source:
    /// specs/workloads.md#costs, as for all that follow up to `balance_cpu`.
    ContextSwitch = "context_switch", Nanoseconds, Core, 0..=1_000_000_000, default 1_000_000, "order of lmbench's lat_ctx between two processes of one CPU";
    /// What waking a task takes of whoever wakes it, on the own CPU or on a busy one.
    WakeUp = "wake_up", Nanoseconds, Core, 0..=1_000_000_000, default 500_000, "order of published costs of try_to_wake_up with a remote queue";
    /// What the tick takes of a busy CPU.
    Tick = "tick", Nanoseconds, Core, 0..=1_000_000_000, default 1_000_000, "order of published costs of the scheduler's tick";
    /// What a device's interrupt takes of its CPU, its softirq included.
    Interrupt = "interrupt", Nanoseconds, Core, 0..=1_000_000_000, default 2_000_000, "order of a block device's completion";
    /// Time from sending another CPU an interrupt until that has taken it: an idle CPU that no
    /// store wakes begins to leave its state so much later, of a busy one it takes so much. Source:
    /// specs/idle.md#wake.
    Ipi = "ipi", Nanoseconds, Apart, 0..=1_000_000_000, default 0, "in wake_idle where that is measured; nothing more is assumed of a machine that doesn't say";
    /// What a remote flush of TLBs takes of who asks for it: to send, and to wait for the slowest of the CPUs that run the
    /// address space. Source: specs/remote-flush.md#cost, as for the next.
    TlbRemoteFlush = "tlb_remote_flush", Nanoseconds, Apart, 0..=1_000_000_000, default 1_000_000, "a page given back and touched again takes 1.57 us beside three busy threads (Linux commit 3db6d5a5ecaf), less a minor fault and a call";
    /// What it takes of each CPU that is asked, the entries that it reads anew included.
    TlbRemoteFlushReceived = "tlb_remote_flush_received", Nanoseconds, Core, 0..=1_000_000_000, default 500_000, "half of tlb_remote_flush: the interrupt's way there and the answer's back are in that, and reading entries anew in this";
    /// Time of a short system call that does little.
    Syscall = "syscall", Nanoseconds, Core, 0..=1_000_000_000, default 100_000, "order of getppid with mitigations";
    /// Time of a write to a pipe that wakes nobody.
    PipeWrite = "pipe_write", Nanoseconds, Core, 0..=1_000_000_000, default 300_000, "order of a write of some bytes";
    /// Time of a read from a pipe that has something.
    PipeRead = "pipe_read", Nanoseconds, Core, 0..=1_000_000_000, default 300_000, "as pipe_write";
    /// Time of sending to a socket of this machine, waking nobody.
    SocketSend = "socket_send", Nanoseconds, Core, 0..=1_000_000_000, default 900_000, "three times a pipe's: a buffer is made for each message";
    /// Time of receiving from a socket that has something.
    SocketReceive = "socket_receive", Nanoseconds, Core, 0..=1_000_000_000, default 700_000, "order of half of a round trip that doesn't sleep";
    /// What sending to such a socket takes longer where its messages are read on another CPU: the lines of the socket and of
    /// its buffers are there. Source: specs/workloads.md#far, as for the next.
    SocketSendFar = "socket_send_far", Nanoseconds, Apart, 0..=1_000_000_000, default 0, "the socket's lines are taken to be where they are used: nothing more is assumed of a machine that doesn't say";
    /// What receiving a message takes longer that another CPU has sent.
    SocketReceiveFar = "socket_receive_far", Nanoseconds, Apart, 0..=1_000_000_000, default 0, "as socket_send_far";
    /// Time of sending a segment to a TCP socket of this machine over loopback, beside the copy of its bytes: the call,
    /// IP, and what the receiving side does with it in softirq, on the sender's CPU. Source:
    /// specs/workloads.md#network, as for the next five.
    TcpSend = "tcp_send", Nanoseconds, Core, 0..=1_000_000_000, default 2_500_000, "order of half of a round trip over loopback that doesn't sleep";
    /// Time of a call that only puts bytes behind others which are not acknowledged yet, beside their copy.
    TcpQueue = "tcp_queue", Nanoseconds, Core, 0..=1_000_000_000, default 500_000, "order of a system call that takes the socket's lock and fills a buffer";
    /// Time of receiving from a TCP socket that has something, beside the copy.
    TcpReceive = "tcp_receive", Nanoseconds, Core, 0..=1_000_000_000, default 500_000, "as tcp_queue";
    /// Time of sending a datagram over loopback, with what the receiving side does in softirq, beside the copy.
    UdpSend = "udp_send", Nanoseconds, Core, 0..=1_000_000_000, default 1_500_000, "order of published costs of a small datagram over loopback, less than tcp_send";
    /// Time of receiving a datagram that is there, beside the copy.
    UdpReceive = "udp_receive", Nanoseconds, Core, 0..=1_000_000_000, default 500_000, "as tcp_receive";
    /// How fast a call copies to the buffers of such a socket, or from them.
    SocketCopy = "socket_copy", MBps, Apart, 1..=10_000_000, default 5_000, "order of copies to and from user memory beyond the first caches, with the allocation of pages";
    /// Time of a futex call that neither waits nor wakes.
    FutexCall = "futex_call", Nanoseconds, Core, 0..=1_000_000_000, default 250_000, "order of a system call that takes a bucket's lock";
    /// Time of handing work to a kernel worker, waking nobody.
    QueueWork = "queue_work", Nanoseconds, Core, 0..=1_000_000_000, default 200_000, "order of queue_work on the own CPU";
    /// Time of submitting a request to a block device.
    IoSubmit = "io_submit", Nanoseconds, Core, 0..=1_000_000_000, default 3_000_000, "order of the block layer's share of a small request";
    /// Time of making a task with an address space of its own, beside the copy of its entries
    /// (`pte_scan` each) and the wake-up of the new task.
    Fork = "fork", Nanoseconds, Core, 0..=1_000_000_000, default 50_000_000, "half of lmbench's lat_proc fork, which the child's end and its parent's wait are in too";
    /// Time of running another program, beside the unmapping of the old one.
    Exec = "exec", Nanoseconds, Core, 0..=10_000_000_000, default 250_000_000, "order of lmbench's lat_proc exec less fork, of a small static program";
    /// Time of the end of a process that a parent has made, beside what freeing its pages takes (`pte_scan`
    /// each) and the wake-up of its parent.
    Exit = "exit", Nanoseconds, Core, 0..=1_000_000_000, default 40_000_000, "the other half of lmbench's lat_proc fork, less two switches and a wake-up";
    /// The same for each mapping that such a process has at its end. Source: specs/workloads.md#costs.
    ExitMap = "exit_map", Nanoseconds, Core, 0..=1_000_000_000, default 0, "in exit: of a machine that doesn't say, nothing more is assumed";
    /// Time in which balancing looks at one CPU.
    BalanceCpu = "balance_cpu", Nanoseconds, Apart, 0..=1_000_000_000, default 40_000, "a line of another CPU's queue";
    /// Time in which balancing takes one task off a queue and puts it on another.
    BalanceTask = "balance_task", Nanoseconds, Apart, 0..=1_000_000_000, default 500_000, "two changes of queues, each with its lock, of tasks in no cache; as wake_up, which makes one";
    /// Time of one statement of scheduler statistics, an update or a test of a counter, where the CPU
    /// has the line. Source: specs/schedstats.md#cost, as for the next two.
    StatsCount = "stats_count", Nanoseconds, Core, 0..=1_000_000, default 600, "26 statements are some 60 instructions, one a cycle at 4 GHz";
    /// What a line of a task's statistics takes that another core of the same last-level cache has changed: it comes beside
    /// others that the wake-up or the switch has to wait for in any case.
    StatsLine = "stats_line", Nanoseconds, Apart, 0..=1_000_000, default 15_000, "75 ns, the middle of 50 to 100 ns for a dirty line on a server, a fifth of it: independent misses overlap so (memory_parallelism)";
    /// The same where that core is of another last-level cache.
    StatsLineFar = "stats_line_far", Nanoseconds, Apart, 0..=1_000_000, default 40_000, "200 ns, the middle of 150 to 250 ns for a dirty line of another socket, a fifth of it as for stats_line";
    /// How fast a CPU computes while a sibling of its core is busy; 1: as fast as alone. Source:
    /// specs/workloads.md#speed.
    SiblingSpeed = "sibling_speed", Ratio, Apart, 1..=1_000, default 1_000, "siblings slow nobody unless the machine's file says so";
    /// Time of one write command of the disk that scenarios wait for, from the submission to the interrupt. Source:
    /// specs/workloads.md#devices, as for the next.
    DiskWrite = "disk_write", Nanoseconds, Apart, 1..=1_000_000_000_000, default 65_000_000, "Intel's specification of the SSD DC S3700: 65 us, typical, of a sequential write";
    /// Time of one command that has a disk write its cache back.
    DiskFlush = "disk_flush", Nanoseconds, Apart, 1..=1_000_000_000_000, default 65_000_000, "as disk_write: the drive's cache is safe from power loss, so the command has nothing to do but come and go";
    /// The lowest clock of the CPUs. 0: the file doesn't say, and all have the nominal one. Source:
    /// specs/frequency.md#machine, as for the next six.
    ClockMin = "clock_min", MHz, Apart, 0..=100_000, default 0, "the file says nothing of other clocks";
    /// The highest clock while one core is active.
    ClockTurbo1 = "clock_turbo_1", MHz, Apart, 0..=100_000, default 0, "the nominal one, where the file doesn't say";
    /// The same with two cores.
    ClockTurbo2 = "clock_turbo_2", MHz, Apart, 0..=100_000, default 0, "as with one core";
    /// The same with three.
    ClockTurbo3 = "clock_turbo_3", MHz, Apart, 0..=100_000, default 0, "as with two cores";
    /// The same with four.
    ClockTurbo4 = "clock_turbo_4", MHz, Apart, 0..=100_000, default 0, "as with three cores";
    /// The same with more.
    ClockTurboAll = "clock_turbo_all", MHz, Apart, 0..=100_000, default 0, "as with four cores";
    /// 1: the cores of a last-level cache have one clock, the highest that one of them asks for. 0: each its own.
    ClockShared = "clock_shared", Count, Apart, 0..=1, default 0, "each core has a clock of its own, as on servers";
    /// Share of a window from which on the rule `hwp-threshold` goes up.
    ClockThreshold = "clock_threshold", Ratio, Apart, 1..=1_000, default 500, "half: the preference of energy that most firmware sets is half of its scale";
    /// Share of the lines that ksmd displaces from the last-level cache which others read
    /// again; 0: none. Source: specs/ksm.md#cost.
    KsmDisplaced = "ksm_displaced", Ratio, Apart, 0..=1_000, default 100, "a tenth of a shared cache's lines are used again before they go anyway";
}

/// The costs of one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs(pub BTreeMap<Cost, Constant>);

impl Costs {
    /// The value of `key` in stored form; the table's default where the file is silent.
    pub fn get(&self, key: Cost) -> u64 {
        self.0.get(&key).map_or(key.default_value(), |c| c.value)
    }
    /// A cost in nanoseconds as virtual time. For keys of [`Unit::Nanoseconds`].
    pub fn time(&self, key: Cost) -> Picos {
        debug_assert_eq!(key.unit(), Unit::Nanoseconds);
        Picos(self.get(key))
    }
    /// All values side by side.
    pub fn prices(&self) -> Prices {
        let mut all = [0; Cost::ALL.len()];
        Cost::ALL.iter().for_each(|&key| all[key as usize] = self.get(key));
        Prices(all)
    }
    /// All values as a CPU pays them at a clock; the file's are those at the nominal one. To the nearest picosecond,
    /// and a cost that is not 0 stays so. Clocks in MHz; 0 counts as 1.
    ///
    /// Source: specs/frequency.md#costs.
    pub fn prices_at(&self, mhz: u32, nominal: u32) -> Prices {
        let mut prices = self.prices();
        let (mhz, nominal) = (u128::from(mhz.max(1)), u128::from(nominal.max(1)));
        for &key in Cost::ALL.iter().filter(|key| key.paced() == Paced::Core) {
            let value = &mut prices.0[key as usize];
            let stretched = (u128::from(*value) * nominal + mhz / 2) / mhz;
            *value = u64::try_from(stretched).unwrap_or(u64::MAX).max((*value).min(1));
        }
        prices
    }
    /// The constant of `key` with its origin, also where the file is silent.
    pub fn constant(&self, key: Cost) -> Constant {
        self.0
            .get(&key)
            .cloned()
            .unwrap_or_else(|| Constant::assumed(key.default_value(), key.default_reason()))
    }
}

/// The values of a machine's costs in stored form, for who asks often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices([u64; Cost::ALL.len()]);

impl std::ops::Index<Cost> for Prices {
    type Output = u64;
    #[inline]
    fn index(&self, key: Cost) -> &u64 {
        &self.0[key as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_half_of_the_clock_instructions_take_twice_as_long_and_all_else_as_long() {
        let mut costs = Costs::default();
        costs.0.insert(Cost::PipeRead, Constant::assumed(1, "a test"));
        costs.0.insert(Cost::Tick, Constant::assumed(0, "a test"));
        let (full, half) = (costs.prices(), costs.prices_at(1150, 2300));
        for &key in Cost::ALL {
            let factor = if key.paced() == Paced::Core { 2 } else { 1 };
            assert_eq!(half[key], full[key] * factor, "{}", key.name());
        }
        assert_eq!(costs.prices_at(2300, 2300), full);
        let (turbo, slow) = (costs.prices_at(3100, 2300), costs.prices_at(800, 3500));
        assert_eq!(turbo[Cost::ContextSwitch], 741_935, "23 31sts of 1 us");
        assert_eq!(turbo[Cost::PipeRead], 1, "not for nothing");
        assert_eq!(slow[Cost::ContextSwitch], 4_375_000);
        assert_eq!(costs.prices_at(0, 0), full);
    }

    #[test]
    fn only_times_hang_on_the_clock() {
        let paced = Cost::ALL.iter().filter(|c| c.paced() == Paced::Core);
        assert!(paced.clone().all(|c| c.unit() == Unit::Nanoseconds));
        let of = |c: Cost| c.paced();
        use Cost::*;
        for key in [
            ContextSwitch,
            WakeUp,
            PipeWrite,
            Tick,
            StatsCount,
            Interrupt,
            TcpSend,
            Fork,
            TlbRemoteFlushReceived,
        ] {
            assert_eq!(of(key), Paced::Core, "{}", key.name());
        }
        for key in [
            Ipi,
            TlbRemoteFlush,
            WakeIdle,
            StatsLine,
            BalanceCpu,
            BalanceTask,
            PageCopy,
            DiskWrite,
            SwapIn,
        ] {
            assert_eq!(of(key), Paced::Apart, "{}", key.name());
        }
    }
}
