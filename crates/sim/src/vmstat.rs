//! Counters with vmstat's names, for the machine and per node.

use homenode_core::kernel::KernelVersion;

/// Makes [`Item`] of rows: description, name, unit, where `/proc/vmstat` has it, and from
/// which versions on it is somewhere else. A further counter is a further row.
macro_rules! counters {
    ($(
        $(#[doc = $about:literal])*
        $Item:ident => $name:literal, $unit:ident, $place:ident $(, $since:ident: $then:ident)*;
    )*) => {
        homenode_core::named! {
            /// A counter of `/proc/vmstat`, in its order as far as it has one.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
            pub enum Item { $($(#[doc = $about])* $Item => $name,)* }
        }
        impl Item {
            /// What is counted: pages, events, entries of page tables, processes.
            pub const fn unit(self) -> &'static str {
                match self { $(Self::$Item => stringify!($unit),)* }
            }
            /// Where the `/proc/vmstat` of a kernel lists it.
            ///
            /// Source: specs/files.md#versions.
            pub fn listed(self, version: KernelVersion) -> Listed {
                let mut listed;
                match self {
                    $(Self::$Item => {
                        listed = Listed::$place;
                        $(if version >= KernelVersion::$since { listed = Listed::$then; })*
                    })*
                }
                listed
            }
        }
    };
}

/// Where `/proc/vmstat` lists a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Among the counters of zones.
    Zones,
    /// Among the counters of nodes.
    Nodes,
    /// Among the events.
    Events,
    /// Not there: that kernel does not count it.
    Nowhere,
}

counters! {
    /// Allocated on the node that was wanted.
    NumaHit => "numa_hit", pages, Zones;
    /// Allocated here though another node was wanted.
    NumaMiss => "numa_miss", pages, Zones;
    /// Wanted here, allocated elsewhere.
    NumaForeign => "numa_foreign", pages, Zones;
    /// Allocated on the node of the CPU that asked.
    NumaLocal => "numa_local", pages, Zones;
    /// Allocated on another node than that of the CPU.
    NumaOther => "numa_other", pages, Zones;
    /// Promoted by tiering's rules.
    PgpromoteSuccess => "pgpromote_success", pages, Nodes;
    /// Passed the hot test of tiering.
    PgpromoteCandidate => "pgpromote_candidate", pages, Nowhere, V6_1: Nodes;
    /// Demoted by kswapd.
    PgdemoteKswapd => "pgdemote_kswapd", pages, Events, V6_12: Nodes;
    /// Demoted by direct reclaim.
    PgdemoteDirect => "pgdemote_direct", pages, Events, V6_12: Nodes;
    /// Demoted by khugepaged.
    PgdemoteKhugepaged => "pgdemote_khugepaged", pages, Nowhere, V6_12: Nodes;
    /// Swapped in.
    Pswpin => "pswpin", pages, Events;
    /// Swapped out.
    Pswpout => "pswpout", pages, Events;
    /// Allocated.
    Pgalloc => "pgalloc", pages, Events;
    /// Allocations that had to reclaim themselves.
    Allocstall => "allocstall", events, Events;
    /// Freed.
    Pgfree => "pgfree", pages, Events;
    /// Moved to the active list.
    Pgactivate => "pgactivate", pages, Events;
    /// Moved to the inactive list.
    Pgdeactivate => "pgdeactivate", pages, Events;
    /// Faults of all kinds.
    Pgfault => "pgfault", events, Events;
    /// Faults that waited for a device.
    Pgmajfault => "pgmajfault", events, Events;
    /// Active pages looked at.
    Pgrefill => "pgrefill", pages, Events;
    /// Reclaimed by kswapd; demoted pages count.
    PgstealKswapd => "pgsteal_kswapd", pages, Events;
    /// Reclaimed by direct reclaim.
    PgstealDirect => "pgsteal_direct", pages, Events;
    /// Reclaimed by khugepaged; demoted pages count.
    PgstealKhugepaged => "pgsteal_khugepaged", pages, Nowhere, V6_12: Events;
    /// Inactive pages that kswapd looked at.
    PgscanKswapd => "pgscan_kswapd", pages, Events;
    /// Inactive pages that direct reclaim looked at.
    PgscanDirect => "pgscan_direct", pages, Events;
    /// Inactive pages that khugepaged looked at.
    PgscanKhugepaged => "pgscan_khugepaged", pages, Nowhere, V6_12: Events;
    /// Rounds of kswapd.
    Pageoutrun => "pageoutrun", events, Events;
    /// Killed for want of memory.
    OomKill => "oom_kill", processes, Events;
    /// Entries made inaccessible by the scan.
    NumaPteUpdates => "numa_pte_updates", entries, Events;
    /// Huge entries made inaccessible by the scan.
    NumaHugePteUpdates => "numa_huge_pte_updates", entries, Events;
    /// Hint faults.
    NumaHintFaults => "numa_hint_faults", events, Events;
    /// Hint faults on a page of the CPU's node.
    NumaHintFaultsLocal => "numa_hint_faults_local", events, Events;
    /// Moved after a hint fault.
    NumaPagesMigrated => "numa_pages_migrated", pages, Events;
    /// Moved, whoever asked.
    PgmigrateSuccess => "pgmigrate_success", pages, Events;
    /// Not moved though somebody tried.
    PgmigrateFail => "pgmigrate_fail", pages, Events;
    /// Huge pages moved as a whole.
    ThpMigrationSuccess => "thp_migration_success", events, Nowhere, V6_1: Events;
    /// Huge pages that could not be moved as a whole.
    ThpMigrationFail => "thp_migration_fail", events, Nowhere, V6_1: Events;
    /// Huge pages split so that their base pages can be moved.
    ThpMigrationSplit => "thp_migration_split", events, Nowhere, V6_1: Events;
    /// Huge pages at first touch.
    ThpFaultAlloc => "thp_fault_alloc", events, Events;
    /// First touches that found no huge page.
    ThpFaultFallback => "thp_fault_fallback", events, Events;
    /// Huge pages that khugepaged allocated.
    ThpCollapseAlloc => "thp_collapse_alloc", events, Events;
    /// Huge pages that khugepaged wanted and did not get.
    ThpCollapseAllocFailed => "thp_collapse_alloc_failed", events, Events;
    /// Huge pages split.
    ThpSplitPage => "thp_split_page", events, Events;
    /// Huge entries split.
    ThpSplitPmd => "thp_split_pmd", events, Nowhere, V4_5: Events;
    /// Huge pages swapped out as a whole.
    ThpSwpout => "thp_swpout", events, Nowhere, V4_15: Events;
    /// Huge pages split since the swap device had no room for the whole.
    ThpSwpoutFallback => "thp_swpout_fallback", events, Nowhere, V4_15: Events;
    /// Flushes of translations that had to ask another CPU. A kernel counts them that was built with
    /// `CONFIG_DEBUG_TLBFLUSH`; Debian's are not.
    NrTlbRemoteFlush => "nr_tlb_remote_flush", events, Nowhere;
    /// CPUs that were asked to flush.
    NrTlbRemoteFlushReceived => "nr_tlb_remote_flush_received", events, Nowhere;
    /// Merged pages read back from the swap device as copies.
    KsmSwpinCopy => "ksm_swpin_copy", pages, Events;
    /// Merged pages copied because somebody wrote to them.
    CowKsm => "cow_ksm", pages, Nowhere, V6_1: Events;
}

const N: usize = Item::ALL.len();

/// The counters of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmStat {
    nodes: Vec<[u64; N]>,
}

impl VmStat {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { nodes: vec![[0; N]; nodes] }
    }
    /// Adds `n` at the node in that place.
    #[inline]
    pub(crate) fn add(&mut self, node: usize, item: Item, n: u64) {
        self.nodes[node][item as usize] += n;
    }
    /// The machine's value.
    pub fn get(&self, item: Item) -> u64 {
        self.nodes.iter().map(|n| n[item as usize]).sum()
    }
    /// The value of the node in that place. Events of tasks count at the node of their CPU.
    pub fn of(&self, node: usize, item: Item) -> u64 {
        self.nodes[node][item as usize]
    }
    /// What has been counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let nodes = self.nodes.iter().zip(&before.nodes);
        Self { nodes: nodes.map(|(a, b)| std::array::from_fn(|i| a[i] - b[i])).collect() }
    }
}
