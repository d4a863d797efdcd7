//! Counters with vmstat's names, for the machine and per node.

homenode_core::named! {
    /// A counter of `/proc/vmstat`, in its order as far as it has one. Pages unless its
    /// description says otherwise.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Item {
        /// Allocated on the node that was wanted.
        NumaHit => "numa_hit",
        /// Allocated here though another node was wanted.
        NumaMiss => "numa_miss",
        /// Wanted here, allocated elsewhere.
        NumaForeign => "numa_foreign",
        /// Allocated on the node of the CPU that asked.
        NumaLocal => "numa_local",
        /// Allocated on another node than that of the CPU.
        NumaOther => "numa_other",
        /// Tiering: promotions.
        PgpromoteSuccess => "pgpromote_success",
        /// Tiering: pages that passed the hot test.
        PgpromoteCandidate => "pgpromote_candidate",
        /// Demoted by kswapd.
        PgdemoteKswapd => "pgdemote_kswapd",
        /// Demoted by direct reclaim.
        PgdemoteDirect => "pgdemote_direct",
        /// Swapped in.
        Pswpin => "pswpin",
        /// Swapped out.
        Pswpout => "pswpout",
        /// Allocated.
        Pgalloc => "pgalloc",
        /// Allocations that had to reclaim themselves (events).
        Allocstall => "allocstall",
        /// Freed.
        Pgfree => "pgfree",
        /// Moved to the active list.
        Pgactivate => "pgactivate",
        /// Moved to the inactive list.
        Pgdeactivate => "pgdeactivate",
        /// Faults of all kinds (events).
        Pgfault => "pgfault",
        /// Faults that waited for a device (events).
        Pgmajfault => "pgmajfault",
        /// Active pages looked at.
        Pgrefill => "pgrefill",
        /// Reclaimed by kswapd; demoted pages count.
        PgstealKswapd => "pgsteal_kswapd",
        /// Reclaimed by direct reclaim.
        PgstealDirect => "pgsteal_direct",
        /// Inactive pages that kswapd looked at.
        PgscanKswapd => "pgscan_kswapd",
        /// Inactive pages that direct reclaim looked at.
        PgscanDirect => "pgscan_direct",
        /// Rounds of kswapd (events).
        Pageoutrun => "pageoutrun",
        /// Killed for want of memory (processes).
        OomKill => "oom_kill",
        /// Entries made inaccessible by the scan.
        NumaPteUpdates => "numa_pte_updates",
        /// Huge entries made inaccessible by the scan (entries).
        NumaHugePteUpdates => "numa_huge_pte_updates",
        /// Hint faults (events).
        NumaHintFaults => "numa_hint_faults",
        /// Hint faults on a page of the CPU's node (events).
        NumaHintFaultsLocal => "numa_hint_faults_local",
        /// Moved after a hint fault.
        NumaPagesMigrated => "numa_pages_migrated",
        /// Moved, whoever asked.
        PgmigrateSuccess => "pgmigrate_success",
        /// Not moved though somebody tried.
        PgmigrateFail => "pgmigrate_fail",
        /// Huge pages at first touch (events).
        ThpFaultAlloc => "thp_fault_alloc",
        /// Huge pages split (events).
        ThpSplitPage => "thp_split_page",
        /// Merged pages read back from the swap device as copies.
        KsmSwpinCopy => "ksm_swpin_copy",
        /// Merged pages copied because somebody wrote to them.
        CowKsm => "cow_ksm",
    }
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
