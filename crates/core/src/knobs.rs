//! The one table of knobs: name, path, default, parsing and errors.
//!
//! The simulated `/proc/sys` and `/sys`, `--set`, scenarios and the live driver
//! all read this table. A knob is known by its short name (`scan_delay_ms`), by
//! the sysctl name it once had (`numa_balancing_scan_delay_ms`), by a dotted
//! sysctl name (`kernel.numa_balancing`), and by the path that the chosen kernel
//! has for it.
//!
//! ```
//! use homenode_core::{kernel::KernelVersion, knobs::Knobs};
//! let mut knobs = Knobs::new(KernelVersion::V6_12);
//! knobs.set("/sys/kernel/debug/sched/numa_balancing/scan_size_mb", "0x80").unwrap();
//! assert_eq!(knobs.scan_size_mb, 128);
//! assert_eq!(knobs.get("scan_size_mb").unwrap(), "128");
//! ```
//!
//! Source: specs/knobs.md#table.

mod parse;

use crate::kernel::{KernelVersion, jiffies_to_msecs, msecs_to_jiffies};
use crate::scale::Scale;
use crate::tiering::mglru::Caps;
use crate::tiering::mode::Mode;
use crate::units::{HUGE_PAGES, NodeId};
use std::collections::BTreeMap;
use std::fmt;

pub use parse::{parse_bool, parse_sysctl_int, parse_u32, parse_u64_auto, parse_u64_decimal};

crate::named! {
    /// What the kernel answers to a refused open, read or write: its numbers on Linux.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Errno {
        /// Not privileged, from the handler.
        Eperm = 1 => "EPERM",
        /// No such file in this kernel.
        Enoent = 2 => "ENOENT",
        /// A signal came before it was done.
        Eintr = 4 => "EINTR",
        /// The file can't be written at all, in `/proc`.
        Eio = 5 => "EIO",
        /// Try again.
        Eagain = 11 => "EAGAIN",
        /// No memory for it.
        Enomem = 12 => "ENOMEM",
        /// Not privileged, at open.
        Eacces = 13 => "EACCES",
        /// Something that must not change is in use.
        Ebusy = 16 => "EBUSY",
        /// Something below a file.
        Enotdir = 20 => "ENOTDIR",
        /// A folder, where a file is meant.
        Eisdir = 21 => "EISDIR",
        /// Not a legal value, or nothing that can be written.
        Einval = 22 => "EINVAL",
        /// A number beyond the parser's type.
        Erange = 34 => "ERANGE",
    }
}

impl Errno {
    /// Its number on Linux.
    pub const fn number(self) -> i32 {
        self as i32
    }
}

/// Why a knob could not be set or read; its `Display` is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnobError {
    /// The name or path as it was given.
    pub knob: String,
    /// The text as it was given; `None` for a read.
    pub given: Option<String>,
    /// What the kernel's file would answer.
    pub errno: Errno,
    /// What is allowed, or what to do.
    pub allowed: String,
}

impl fmt::Display for KnobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "knob {}: ", self.knob)?;
        let errno = self.errno.name();
        match &self.given {
            Some(text) => write!(f, "{:?} is refused ({errno})", text.trim_end_matches('\n'))?,
            None => f.write_str(errno)?,
        }
        write!(f, "; {}", self.allowed)
    }
}

impl std::error::Error for KnobError {}

/// Setting of `/sys/kernel/mm/transparent_hugepage/enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Wherever they fit.
    Always,
    /// Where a program asks for them.
    Madvise,
    /// Nowhere; `min_free_kbytes` is then not raised for them.
    Never,
}

/// Setting of `/sys/kernel/mm/transparent_hugepage/defrag`: what a fault does for a huge page
/// where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defrag {
    /// It reclaims and compacts itself.
    Always,
    /// It wakes those who do.
    Defer,
    /// It wakes them; where a program has asked for huge pages it reclaims itself.
    DeferMadvise,
    /// Only where a program has asked for huge pages it reclaims itself.
    Madvise,
    /// Nothing.
    Never,
}

impl Defrag {
    const ALL: [Self; 5] =
        [Self::Always, Self::Defer, Self::DeferMadvise, Self::Madvise, Self::Never];
    const WORDS: [&'static str; 5] = ["always", "defer", "defer+madvise", "madvise", "never"];

    /// Whether a fault may reclaim itself, and then also look on other nodes.
    ///
    /// * `advised` – the program has asked for huge pages there.
    ///
    /// Source: specs/huge-pages.md#fault.
    pub const fn reclaims(self, advised: bool) -> bool {
        match self {
            Self::Always => true,
            Self::DeferMadvise | Self::Madvise => advised,
            Self::Defer | Self::Never => false,
        }
    }
    /// Whether a fault wakes kswapd.
    ///
    /// Source: specs/huge-pages.md#fault.
    pub const fn wakes_kswapd(self, advised: bool) -> bool {
        match self {
            Self::Defer => true,
            Self::DeferMadvise => !advised,
            Self::Always | Self::Madvise | Self::Never => false,
        }
    }
}

impl HugePages {
    /// Whether a mapping may have huge pages.
    ///
    /// * `advice` – what the program has asked for there: `MADV_HUGEPAGE`, `MADV_NOHUGEPAGE`.
    ///
    /// Source: specs/huge-pages.md#who.
    pub const fn allow(self, advice: Option<bool>) -> bool {
        match (self, advice) {
            (Self::Never, _) | (_, Some(false)) | (Self::Madvise, None) => false,
            (Self::Always, _) | (Self::Madvise, Some(true)) => true,
        }
    }
}

/// The knobs of `/sys/kernel/mm/transparent_hugepage/khugepaged/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Khugepaged {
    /// Whether it reclaims where it finds no room.
    pub defrag: bool,
    /// Pages that it looks at before it sleeps.
    pub pages_to_scan: u32,
    /// In ms.
    pub scan_sleep_millisecs: u32,
    /// In ms; how long it sleeps where there was no huge page.
    pub alloc_sleep_millisecs: u32,
    /// Absent pages of 512 that it makes up for.
    pub max_ptes_none: u32,
    /// Pages of 512 that it reads from the swap device.
    pub max_ptes_swap: u32,
    /// Pages of 512 that others map too.
    pub max_ptes_shared: u32,
}

impl Default for Khugepaged {
    fn default() -> Self {
        Self {
            defrag: true,
            pages_to_scan: 4096,
            scan_sleep_millisecs: 10_000,
            alloc_sleep_millisecs: 60_000,
            max_ptes_none: 511,
            max_ptes_swap: 64,
            max_ptes_shared: 256,
        }
    }
}

/// A knob of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Knob {
    /// The bit field that switches balancing and tiering.
    NumaBalancing,
    /// Delay before the first scan.
    ScanDelayMs,
    /// Shortest scan period.
    ScanPeriodMinMs,
    /// Longest scan period.
    ScanPeriodMaxMs,
    /// 3.8: interval after which the period returns to its minimum.
    ScanPeriodResetMs,
    /// Address space scanned in one period.
    ScanSizeMb,
    /// Latency below which a page of a slow node is hot.
    HotThresholdMs,
    /// How much may be promoted to a node.
    PromoteRateLimitMBps,
    /// Whether reclaim demotes.
    DemotionEnabled,
    /// Free memory kept in all zones together.
    MinFreeKbytes,
    /// Distance between the watermarks in ten-thousandths.
    WatermarkScaleFactor,
    /// Readiness to reclaim anonymous pages.
    Swappiness,
    /// Transparent huge pages.
    TransparentHugepage,
    /// What a fault does where there is no huge page.
    TransparentHugepageDefrag,
    /// Whether khugepaged reclaims.
    KhugepagedDefrag,
    /// How much khugepaged looks at before it sleeps.
    KhugepagedPagesToScan,
    /// How long khugepaged sleeps.
    KhugepagedScanSleepMillisecs,
    /// How long khugepaged sleeps where there was no huge page.
    KhugepagedAllocSleepMillisecs,
    /// Absent pages that khugepaged makes up for.
    KhugepagedMaxPtesNone,
    /// Pages that khugepaged reads from the swap device.
    KhugepagedMaxPtesSwap,
    /// Pages mapped by others that khugepaged copies.
    KhugepagedMaxPtesShared,
    /// Generations in the place of active and inactive lists.
    LruGen,
    /// How long the oldest generation has to have lived before it may be reclaimed.
    LruGenMinTtlMs,
    /// Whether scheduler statistics are counted.
    SchedSchedstats,
    /// Slice of a task of the fair class that asks for none.
    BaseSliceNs,
    /// A task that ran more recently is cache-hot to balancing.
    MigrationCostNs,
    /// Tasks of a queue that one balancing looks at.
    NrMigrate,
    /// Share of a node in weighted interleaving.
    InterleaveWeight(NodeId),
}

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// How the kernel reads what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// sysctl integer with bounds; text after the first number and a blank is ignored.
    IntMinMax(i64, i64),
    /// sysctl integer without bounds, kept in 32 unsigned bits (3.8).
    IntPlain,
    /// debugfs number of 64 bits kept in 32.
    DebugU32,
    /// A truth value by its first letters.
    Bool,
    /// One of the words; sysfs allows one newline after it.
    Words(&'static [&'static str]),
    /// A number of 8 bits; 0 refused; empty text restores the default.
    Weight,
    /// MGLRU's bits: a number, or all of them by `y`, none by `n`, first letters.
    Caps,
    /// sysfs number of 32 bits.
    Unsigned,
    /// A decimal number within bounds; whatever else is EINVAL.
    Decimal(u32, u32),
    /// 0 or 1, decimal.
    Flag,
}

/// The knobs but the weights, with [`Knob::short`] and [`Knob::alias`] of each.
const NAMES: [(Knob, &str, Option<&str>); 27] = [
    (Knob::NumaBalancing, "numa_balancing", None),
    (Knob::ScanDelayMs, "scan_delay_ms", Some("numa_balancing_scan_delay_ms")),
    (Knob::ScanPeriodMinMs, "scan_period_min_ms", Some("numa_balancing_scan_period_min_ms")),
    (Knob::ScanPeriodMaxMs, "scan_period_max_ms", Some("numa_balancing_scan_period_max_ms")),
    (Knob::ScanPeriodResetMs, "scan_period_reset_ms", Some("numa_balancing_scan_period_reset")),
    (Knob::ScanSizeMb, "scan_size_mb", Some("numa_balancing_scan_size_mb")),
    (Knob::HotThresholdMs, "hot_threshold_ms", None),
    (
        Knob::PromoteRateLimitMBps,
        "numa_balancing_promote_rate_limit_MBps",
        Some("promote_rate_limit_MBps"),
    ),
    (Knob::DemotionEnabled, "demotion_enabled", None),
    (Knob::MinFreeKbytes, "min_free_kbytes", None),
    (Knob::WatermarkScaleFactor, "watermark_scale_factor", None),
    (Knob::Swappiness, "swappiness", None),
    (Knob::TransparentHugepage, "transparent_hugepage", Some("transparent_hugepage/enabled")),
    (
        Knob::TransparentHugepageDefrag,
        "transparent_hugepage_defrag",
        Some("transparent_hugepage/defrag"),
    ),
    (Knob::KhugepagedDefrag, "khugepaged_defrag", Some("khugepaged/defrag")),
    (Knob::KhugepagedPagesToScan, "khugepaged_pages_to_scan", Some("khugepaged/pages_to_scan")),
    (
        Knob::KhugepagedScanSleepMillisecs,
        "khugepaged_scan_sleep_millisecs",
        Some("khugepaged/scan_sleep_millisecs"),
    ),
    (
        Knob::KhugepagedAllocSleepMillisecs,
        "khugepaged_alloc_sleep_millisecs",
        Some("khugepaged/alloc_sleep_millisecs"),
    ),
    (Knob::KhugepagedMaxPtesNone, "khugepaged_max_ptes_none", Some("khugepaged/max_ptes_none")),
    (Knob::KhugepagedMaxPtesSwap, "khugepaged_max_ptes_swap", Some("khugepaged/max_ptes_swap")),
    (
        Knob::KhugepagedMaxPtesShared,
        "khugepaged_max_ptes_shared",
        Some("khugepaged/max_ptes_shared"),
    ),
    (Knob::LruGen, "lru_gen", Some("lru_gen/enabled")),
    (Knob::LruGenMinTtlMs, "lru_gen_min_ttl_ms", Some("lru_gen/min_ttl_ms")),
    (Knob::SchedSchedstats, "sched_schedstats", None),
    (Knob::BaseSliceNs, "base_slice_ns", None),
    (Knob::MigrationCostNs, "migration_cost_ns", None),
    (Knob::NrMigrate, "nr_migrate", None),
];

impl Knob {
    /// All knobs but the weights, of which there is one per node.
    pub const ALL: [Knob; 27] = {
        let mut all = [Knob::NumaBalancing; 27];
        let mut i = 0;
        while i < all.len() {
            all[i] = NAMES[i].0;
            i += 1;
        }
        all
    };

    /// The short name; of the weights their folder's.
    fn short(self) -> &'static str {
        NAMES.iter().find(|row| row.0 == self).map_or("weighted_interleave", |row| row.1)
    }
    /// The sysctl name without directory, where it has or had one that differs.
    fn alias(self) -> Option<&'static str> {
        NAMES.iter().find(|row| row.0 == self)?.2
    }

    /// The name by which homenode prints it; weights carry their node.
    pub fn name(self) -> String {
        match self {
            Self::InterleaveWeight(n) => format!("weighted_interleave/node{n}"),
            k => k.short().to_owned(),
        }
    }

    /// How `version` parses it; `None` where that kernel has no such knob.
    ///
    /// Source: specs/knobs.md#versions.
    pub const fn handler(self, version: KernelVersion) -> Option<Handler> {
        use KernelVersion::{V3_8, V4_5, V4_15, V5_18, V6_1, V6_12, V7_3};
        const INT_MAX: i64 = i32::MAX as i64;
        Some(match (self, version) {
            // The first balancing kernel switched it as a scheduler feature; the name is
            // offered all the same, with the boolean that it then became.
            (Self::NumaBalancing, V3_8 | V4_5 | V4_15) => Handler::IntMinMax(0, 1),
            (Self::NumaBalancing, _) => Handler::IntMinMax(0, 4),
            (
                Self::ScanDelayMs
                | Self::ScanPeriodMinMs
                | Self::ScanPeriodMaxMs
                | Self::ScanPeriodResetMs
                | Self::ScanSizeMb,
                V3_8,
            ) => Handler::IntPlain,
            (Self::ScanPeriodResetMs, _) => return None,
            (Self::ScanDelayMs | Self::ScanPeriodMinMs | Self::ScanPeriodMaxMs, V4_5 | V4_15) => {
                Handler::IntPlain
            }
            (Self::ScanSizeMb, V4_5 | V4_15) => Handler::IntMinMax(1, INT_MAX),
            (
                Self::ScanDelayMs
                | Self::ScanPeriodMinMs
                | Self::ScanPeriodMaxMs
                | Self::ScanSizeMb,
                _,
            ) => Handler::DebugU32,
            (Self::HotThresholdMs | Self::PromoteRateLimitMBps, V3_8 | V4_5 | V4_15 | V5_18) => {
                return None;
            }
            (Self::HotThresholdMs, _) => Handler::DebugU32,
            (Self::PromoteRateLimitMBps, _) => Handler::IntMinMax(0, INT_MAX),
            (Self::DemotionEnabled, V3_8 | V4_5 | V4_15) => return None,
            (Self::DemotionEnabled, _) => Handler::Bool,
            (Self::MinFreeKbytes, _) => Handler::IntMinMax(0, INT_MAX),
            (Self::WatermarkScaleFactor, V3_8 | V4_5) => return None,
            (Self::WatermarkScaleFactor, V4_15) => Handler::IntMinMax(1, 1000),
            (Self::WatermarkScaleFactor, _) => Handler::IntMinMax(1, 3000),
            (Self::Swappiness, V3_8 | V4_5 | V4_15) => Handler::IntMinMax(0, 100),
            (Self::Swappiness, _) => Handler::IntMinMax(0, 200),
            (Self::TransparentHugepage, _) => Handler::Words(&["always", "madvise", "never"]),
            (Self::TransparentHugepageDefrag, V3_8 | V4_5) => {
                Handler::Words(&["always", "madvise", "never"])
            }
            (Self::TransparentHugepageDefrag, _) => Handler::Words(&Defrag::WORDS),
            (Self::KhugepagedMaxPtesSwap, V3_8 | V4_5)
            | (Self::KhugepagedMaxPtesShared, V3_8 | V4_5 | V4_15) => return None,
            (Self::KhugepagedDefrag, _) => Handler::Flag,
            (Self::KhugepagedPagesToScan, _) => Handler::Decimal(1, u32::MAX),
            (Self::KhugepagedScanSleepMillisecs | Self::KhugepagedAllocSleepMillisecs, _) => {
                Handler::Decimal(0, u32::MAX)
            }
            (
                Self::KhugepagedMaxPtesNone
                | Self::KhugepagedMaxPtesSwap
                | Self::KhugepagedMaxPtesShared,
                _,
            ) => Handler::Decimal(0, HUGE_PAGES as u32 - 1),
            (Self::LruGen | Self::LruGenMinTtlMs, V3_8 | V4_5 | V4_15 | V5_18) => return None,
            (Self::LruGen, _) => Handler::Caps,
            (Self::LruGenMinTtlMs, _) => Handler::Unsigned,
            (Self::SchedSchedstats | Self::MigrationCostNs | Self::NrMigrate, V3_8) => return None,
            (Self::SchedSchedstats, _) => Handler::IntMinMax(0, 1),
            (Self::MigrationCostNs | Self::NrMigrate, V4_5 | V4_15) => Handler::IntPlain,
            (Self::MigrationCostNs | Self::NrMigrate, _) => Handler::DebugU32,
            (Self::BaseSliceNs, V3_8 | V4_5 | V4_15 | V5_18 | V6_1) => return None,
            (Self::BaseSliceNs, V6_12 | V7_3) => Handler::DebugU32,
            (Self::InterleaveWeight(_), V3_8 | V4_5 | V4_15 | V5_18 | V6_1) => return None,
            (Self::InterleaveWeight(_), V6_12 | V7_3) => Handler::Weight,
        })
    }

    /// The file that `version` has for it; `None` where there is no file.
    ///
    /// Source: specs/knobs.md#versions.
    pub fn path(self, version: KernelVersion) -> Option<String> {
        self.handler(version)?;
        Some(match self {
            Self::NumaBalancing if version == KernelVersion::V3_8 => return None,
            Self::NumaBalancing | Self::PromoteRateLimitMBps | Self::SchedSchedstats => {
                format!("/proc/sys/kernel/{}", self.short())
            }
            Self::ScanDelayMs
            | Self::ScanPeriodMinMs
            | Self::ScanPeriodMaxMs
            | Self::ScanPeriodResetMs
            | Self::ScanSizeMb
            | Self::HotThresholdMs => {
                if version < KernelVersion::V5_18 {
                    format!("/proc/sys/kernel/{}", self.alias().unwrap_or(self.short()))
                } else {
                    format!("/sys/kernel/debug/sched/numa_balancing/{}", self.short())
                }
            }
            Self::MigrationCostNs | Self::NrMigrate if version < KernelVersion::V5_18 => {
                format!("/proc/sys/kernel/sched_{}", self.short())
            }
            Self::BaseSliceNs | Self::MigrationCostNs | Self::NrMigrate => {
                format!("/sys/kernel/debug/sched/{}", self.short())
            }
            Self::DemotionEnabled => "/sys/kernel/mm/numa/demotion_enabled".to_owned(),
            Self::MinFreeKbytes | Self::WatermarkScaleFactor | Self::Swappiness => {
                format!("/proc/sys/vm/{}", self.short())
            }
            Self::TransparentHugepage => format!("{THP}/enabled"),
            Self::TransparentHugepageDefrag => format!("{THP}/defrag"),
            Self::KhugepagedDefrag
            | Self::KhugepagedPagesToScan
            | Self::KhugepagedScanSleepMillisecs
            | Self::KhugepagedAllocSleepMillisecs
            | Self::KhugepagedMaxPtesNone
            | Self::KhugepagedMaxPtesSwap
            | Self::KhugepagedMaxPtesShared => {
                format!("{THP}/{}", self.alias().unwrap_or(self.short()))
            }
            Self::LruGen => "/sys/kernel/mm/lru_gen/enabled".to_owned(),
            Self::LruGenMinTtlMs => "/sys/kernel/mm/lru_gen/min_ttl_ms".to_owned(),
            Self::InterleaveWeight(n) => {
                format!("/sys/kernel/mm/mempolicy/weighted_interleave/node{n}")
            }
        })
    }

    /// The knob that `name_or_path` means in `version`: a short name, a sysctl
    /// name (also dotted, as `vm.swappiness`), or the path which that kernel has.
    pub fn find(name_or_path: &str, version: KernelVersion) -> Option<Knob> {
        let by_name = |name: &str| {
            Self::ALL.into_iter().find(|k| k.short() == name || k.alias() == Some(name))
        };
        if name_or_path.starts_with('/') {
            if let Some(node) =
                name_or_path.strip_prefix("/sys/kernel/mm/mempolicy/weighted_interleave/")
            {
                return Self::weight(node);
            }
            return Self::ALL
                .into_iter()
                .find(|k| k.path(version).as_deref() == Some(name_or_path));
        }
        if let Some(node) = name_or_path.strip_prefix("weighted_interleave/") {
            return Self::weight(node);
        }
        let bare = ["kernel.", "vm."].into_iter().find_map(|dir| name_or_path.strip_prefix(dir));
        by_name(bare.unwrap_or(name_or_path))
    }

    fn weight(file: &str) -> Option<Knob> {
        let digits = file.strip_prefix("node")?;
        // The kernel prints node numbers without sign and leading zeros.
        let number: u16 = digits.parse().ok()?;
        (number.to_string() == digits).then_some(Knob::InterleaveWeight(NodeId(number)))
    }
}

/// Circumstances of a write that matter to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteAs {
    /// Position in the file; a sysctl ignores what is not at its start.
    pub offset: u64,
    /// Whether the writer has CAP_SYS_ADMIN, which `numa_balancing` and `sched_schedstats` ask for.
    pub cap_sys_admin: bool,
}

impl Default for WriteAs {
    fn default() -> Self {
        Self { offset: 0, cap_sys_admin: true }
    }
}

/// The values of all knobs of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// Whose knobs these are.
    pub version: KernelVersion,
    /// Accept what the kernel accepts though it never meant to
    /// (`numa_balancing=4`, `scan_size_mb=0`); see `specs/exceptions/`.
    pub emulate_quirks: bool,
    /// Bits 1 and 2; off, normal, tiering or both.
    pub numa_balancing: Mode,
    /// In ms; also the delay of a new VMA.
    pub scan_delay_ms: u32,
    /// In ms.
    pub scan_period_min_ms: u32,
    /// In ms.
    pub scan_period_max_ms: u32,
    /// In ms; 3.8 only.
    pub scan_period_reset_ms: u32,
    /// In 2^20 bytes.
    pub scan_size_mb: u32,
    /// In ms; 6.1 and later.
    pub hot_threshold_ms: u32,
    /// In 2^20 bytes a second; 6.1 and later.
    pub promote_rate_limit_mbps: u32,
    /// Whether reclaim demotes.
    pub demotion_enabled: bool,
    /// In kB; `None` until somebody writes it: computed from the machine.
    pub min_free_kbytes: Option<u32>,
    /// In ten-thousandths of a zone, 1 to 3000.
    pub watermark_scale_factor: u32,
    /// 0 to 200; 60 unless written.
    pub swappiness: u32,
    /// Whether huge pages are used.
    pub transparent_hugepage: HugePages,
    /// What a fault does where there is no huge page.
    pub transparent_hugepage_defrag: Defrag,
    /// khugepaged's.
    pub khugepaged: Khugepaged,
    /// What of MGLRU is switched on.
    pub lru_gen: Caps,
    /// In ms, a whole number of ticks; 0: whatever its age, the oldest generation may go.
    pub lru_gen_min_ttl_ms: u32,
    /// `sched_schedstats`.
    pub sched_schedstats: bool,
    /// `base_slice_ns`; `None`: computed from the number of CPUs.
    pub base_slice_ns: Option<u32>,
    /// `migration_cost_ns`.
    pub migration_cost_ns: u32,
    /// `nr_migrate`.
    pub nr_migrate: u32,
    /// Weights that were written; a node not in here has weight 1.
    pub interleave_weights: BTreeMap<NodeId, u8>,
    /// What the machine stands for: no knob, but what the kernel computes from the machine's size
    /// hangs on it.
    pub scale: Scale,
}

impl Knobs {
    /// The defaults of `version` on a machine with several nodes.
    ///
    /// Source: specs/knobs.md#table.
    pub fn new(version: KernelVersion) -> Self {
        let seed = version == KernelVersion::V3_8;
        Self {
            version,
            emulate_quirks: false,
            numa_balancing: Mode::NORMAL,
            scan_delay_ms: 1000,
            scan_period_min_ms: if seed { 100 } else { 1000 },
            scan_period_max_ms: if seed { 5000 } else { 60000 },
            scan_period_reset_ms: 60000,
            scan_size_mb: 256,
            hot_threshold_ms: 1000,
            promote_rate_limit_mbps: 65536,
            demotion_enabled: false,
            min_free_kbytes: None,
            watermark_scale_factor: 10,
            swappiness: 60,
            transparent_hugepage: HugePages::Always,
            transparent_hugepage_defrag: if version < KernelVersion::V4_15 {
                Defrag::Always
            } else {
                Defrag::Madvise
            },
            khugepaged: Khugepaged::default(),
            lru_gen: Caps::at_boot(version),
            lru_gen_min_ttl_ms: 0,
            sched_schedstats: false,
            base_slice_ns: None,
            migration_cost_ns: 500_000,
            nr_migrate: 32,
            interleave_weights: BTreeMap::new(),
            scale: Scale::AS_IS,
        }
    }

    /// The defaults of a kernel whose machine stands for a larger one: amounts are a part of the
    /// large machine's. What is written later is taken as it is.
    ///
    /// Source: docs/decisions/0028-small-machines.md.
    #[must_use]
    pub fn scaled(mut self, scale: Scale) -> Self {
        self.scale = scale;
        if scale.is_as_is() {
            return self;
        }
        let part = |value: u32| scale.part(value.into()) as u32;
        self.scan_size_mb = Scale::SCAN_SIZE_MB;
        self.scan_delay_ms = part(self.scan_delay_ms);
        self.scan_period_min_ms = part(self.scan_period_min_ms);
        self.scan_period_max_ms = part(self.scan_period_max_ms);
        if self.version >= KernelVersion::V6_1 {
            self.hot_threshold_ms = part(self.hot_threshold_ms);
        }
        self
    }

    /// Write `text` as root, at the file's start.
    ///
    /// # Errors
    /// [`KnobError`] with what the kernel's file would answer; nothing is then changed.
    pub fn set(&mut self, name_or_path: &str, text: &str) -> Result<(), KnobError> {
        self.write(name_or_path, text, WriteAs::default()).map(|_| ())
    }

    /// Write `text` under the given circumstances; returns the bytes consumed,
    /// which is all of them, also where the kernel ignores them.
    ///
    /// # Errors
    /// As [`Knobs::set`].
    pub fn write(
        &mut self,
        name_or_path: &str,
        text: &str,
        who: WriteAs,
    ) -> Result<usize, KnobError> {
        let (knob, handler) = self.lookup(name_or_path, Some(text))?;
        let refuse = |errno: Errno, allowed: String| KnobError {
            knob: name_or_path.to_owned(),
            given: Some(text.to_owned()),
            errno,
            allowed,
        };
        if matches!(knob, Knob::NumaBalancing | Knob::SchedSchedstats) && !who.cap_sys_admin {
            return Err(refuse(Errno::Eperm, "writing it needs CAP_SYS_ADMIN".to_owned()));
        }
        let is_sysctl = matches!(handler, Handler::IntMinMax(..) | Handler::IntPlain);
        if is_sysctl && who.offset != 0 {
            return Ok(text.len());
        }
        let allowed = self.allowed(knob, handler);
        let why = |errno| refuse(errno, allowed.clone());
        let v = match handler {
            Handler::IntMinMax(low, high) => match parse_sysctl_int(text).map_err(why)? {
                v if v < low || v > high => return Err(why(Errno::Einval)),
                v => v as u32,
            },
            // The handler knows no limits: a negative number lands in an unsigned.
            Handler::IntPlain => parse_sysctl_int(text).map_err(why)? as u32,
            Handler::DebugU32 => parse_u64_auto(text).map_err(why)? as u32,
            Handler::Bool => {
                u32::from(parse_bool(text, self.version >= KernelVersion::V7_3).map_err(why)?)
            }
            Handler::Words(words) => {
                let word = text.strip_suffix('\n').unwrap_or(text);
                let place = words.iter().position(|w| *w == word);
                place.ok_or_else(|| why(Errno::Einval))? as u32
            }
            Handler::Caps => match text.bytes().next().map(|b| b.to_ascii_lowercase()) {
                Some(b'n') => 0,
                Some(b'y') => u32::MAX,
                _ => parse_u32(text).map_err(why)?,
            },
            Handler::Unsigned => parse_u32(text).map_err(why)?,
            Handler::Decimal(low, high) => match parse_u64_decimal(text) {
                Ok(v) if (u64::from(low)..=u64::from(high)).contains(&v) => v as u32,
                _ => return Err(why(Errno::Einval)),
            },
            Handler::Flag => match parse_u64_decimal(text).map_err(why)? {
                v @ 0..=1 => v as u32,
                _ => return Err(why(Errno::Einval)),
            },
            Handler::Weight if text.is_empty() || text == "\n" => 0,
            Handler::Weight => match parse_u64_auto(text) {
                Ok(w @ 1..=255) => w as u32,
                _ => return Err(why(Errno::Einval)),
            },
        };
        self.store(knob, v).map_err(why)?;
        Ok(text.len())
    }

    /// What reading the file prints, without the newline. `min_free_kbytes` and `base_slice_ns`
    /// print `auto` while they are computed from the machine.
    ///
    /// # Errors
    /// [`KnobError`] (ENOENT) where this kernel has no such knob.
    pub fn get(&self, name_or_path: &str) -> Result<String, KnobError> {
        let (knob, _) = self.lookup(name_or_path, None)?;
        Ok(match knob {
            Knob::NumaBalancing => self.numa_balancing.raw().to_string(),
            // The plain handler prints the same 32 bits as a signed number.
            Knob::ScanDelayMs => self.number(self.scan_delay_ms),
            Knob::ScanPeriodMinMs => self.number(self.scan_period_min_ms),
            Knob::ScanPeriodMaxMs => self.number(self.scan_period_max_ms),
            Knob::ScanPeriodResetMs => self.number(self.scan_period_reset_ms),
            Knob::ScanSizeMb => self.number(self.scan_size_mb),
            Knob::HotThresholdMs => self.hot_threshold_ms.to_string(),
            Knob::PromoteRateLimitMBps => self.promote_rate_limit_mbps.to_string(),
            Knob::DemotionEnabled => self.demotion_enabled.to_string(),
            Knob::MinFreeKbytes => {
                self.min_free_kbytes.map_or_else(|| "auto".to_owned(), |v| v.to_string())
            }
            Knob::WatermarkScaleFactor => self.watermark_scale_factor.to_string(),
            Knob::Swappiness => self.swappiness.to_string(),
            Knob::TransparentHugepage => match self.transparent_hugepage {
                HugePages::Always => "[always] madvise never",
                HugePages::Madvise => "always [madvise] never",
                HugePages::Never => "always madvise [never]",
            }
            .to_owned(),
            Knob::TransparentHugepageDefrag => {
                let words = if self.version < KernelVersion::V4_15 {
                    &[Defrag::Always, Defrag::Madvise, Defrag::Never][..]
                } else {
                    &Defrag::ALL[..]
                };
                let shown = words.iter().map(|w| {
                    let word = Defrag::WORDS[*w as usize];
                    if *w == self.transparent_hugepage_defrag {
                        format!("[{word}]")
                    } else {
                        word.to_owned()
                    }
                });
                shown.collect::<Vec<_>>().join(" ")
            }
            Knob::KhugepagedDefrag => u32::from(self.khugepaged.defrag).to_string(),
            Knob::KhugepagedPagesToScan => self.khugepaged.pages_to_scan.to_string(),
            Knob::KhugepagedScanSleepMillisecs => self.khugepaged.scan_sleep_millisecs.to_string(),
            Knob::KhugepagedAllocSleepMillisecs => {
                self.khugepaged.alloc_sleep_millisecs.to_string()
            }
            Knob::KhugepagedMaxPtesNone => self.khugepaged.max_ptes_none.to_string(),
            Knob::KhugepagedMaxPtesSwap => self.khugepaged.max_ptes_swap.to_string(),
            Knob::KhugepagedMaxPtesShared => self.khugepaged.max_ptes_shared.to_string(),
            Knob::LruGen => format!("0x{:04x}", self.lru_gen.bits()),
            Knob::LruGenMinTtlMs => self.lru_gen_min_ttl_ms.to_string(),
            Knob::SchedSchedstats => u32::from(self.sched_schedstats).to_string(),
            Knob::BaseSliceNs => {
                self.base_slice_ns.map_or_else(|| "auto".to_owned(), |v| v.to_string())
            }
            Knob::MigrationCostNs => self.migration_cost_ns.to_string(),
            Knob::NrMigrate => self.nr_migrate.to_string(),
            Knob::InterleaveWeight(node) => self.interleave_weight(node).to_string(),
        })
    }

    /// Weight of `node` in weighted interleaving, 1 unless written.
    pub fn interleave_weight(&self, node: NodeId) -> u8 {
        self.interleave_weights.get(&node).copied().unwrap_or(1)
    }

    fn number(&self, v: u32) -> String {
        if self.version < KernelVersion::V5_18 { (v as i32).to_string() } else { v.to_string() }
    }

    fn lookup(&self, name: &str, given: Option<&str>) -> Result<(Knob, Handler), KnobError> {
        let error = |allowed: String| KnobError {
            knob: name.to_owned(),
            given: given.map(str::to_owned),
            errno: Errno::Enoent,
            allowed,
        };
        let Some(knob) = Knob::find(name, self.version) else {
            let elsewhere = KernelVersion::ALL.into_iter().find_map(|v| Knob::find(name, v));
            return Err(error(match elsewhere.and_then(|k| k.path(self.version)) {
                Some(path) => format!("Linux {} has it as {path}", self.version),
                None => {
                    let names: Vec<_> = Knob::ALL
                        .into_iter()
                        .filter(|k| k.handler(self.version).is_some())
                        .map(Knob::name)
                        .collect();
                    format!(
                        "Linux {} has no such knob; there are {}, weighted_interleave/nodeN",
                        self.version,
                        names.join(", ")
                    )
                }
            }));
        };
        match knob.handler(self.version) {
            Some(handler) => Ok((knob, handler)),
            None => {
                let versions: Vec<_> = KernelVersion::ALL
                    .into_iter()
                    .filter(|v| knob.handler(*v).is_some())
                    .map(KernelVersion::name)
                    .collect();
                Err(error(format!(
                    "Linux {} does not have it; {} do",
                    self.version,
                    versions.join(", ")
                )))
            }
        }
    }

    /// What may be written, in words.
    fn allowed(&self, knob: Knob, handler: Handler) -> String {
        match (knob, handler) {
            (Knob::NumaBalancing, Handler::IntMinMax(0, 4)) if !self.emulate_quirks => {
                "allowed are 0 (off), 1 (sockets), 2 (tiers), 3 (both)".to_owned()
            }
            (Knob::ScanSizeMb, _) if !self.emulate_quirks => {
                "allowed are 1 to 4294967295 MB; 0 makes the kernel divide by zero".to_owned()
            }
            (_, Handler::IntMinMax(low, high)) => format!("allowed are {low} to {high}"),
            (_, Handler::IntPlain) => "allowed is an integer".to_owned(),
            (_, Handler::DebugU32) => {
                "allowed is a number from 0 to 4294967295, decimal, 0x hexadecimal or 0 octal"
                    .to_owned()
            }
            (_, Handler::Bool) => "allowed are 1, y, t, on and 0, n, f, off".to_owned(),
            (_, Handler::Words(words)) => format!("allowed are {}", words.join(", ")),
            (_, Handler::Caps) => "allowed are y, n, and a sum of 1 (generations), 2 (aging walks \
                                   page tables), 4 (it passes over unused ones)"
                .to_owned(),
            (_, Handler::Unsigned) => {
                "allowed is a number from 0 to 4294967295, decimal, 0x hexadecimal or 0 octal"
                    .to_owned()
            }
            (_, Handler::Decimal(low, high)) => {
                format!("allowed is a decimal number from {low} to {high}")
            }
            (_, Handler::Flag) => "allowed are 0 and 1".to_owned(),
            (_, Handler::Weight) => "allowed are 1 to 255, or nothing for the default".to_owned(),
        }
    }

    fn store(&mut self, knob: Knob, v: u32) -> Result<(), Errno> {
        match knob {
            Knob::NumaBalancing => {
                let mode = Mode::from_raw(v as u8).ok_or(Errno::Einval)?;
                if mode.is_quirk() && !self.emulate_quirks {
                    return Err(Errno::Einval);
                }
                self.numa_balancing = mode;
            }
            Knob::ScanDelayMs => self.scan_delay_ms = v,
            Knob::ScanPeriodMinMs => self.scan_period_min_ms = v,
            Knob::ScanPeriodMaxMs => self.scan_period_max_ms = v,
            Knob::ScanPeriodResetMs => self.scan_period_reset_ms = v,
            Knob::ScanSizeMb => {
                if v == 0 && !self.emulate_quirks {
                    return Err(Errno::Einval);
                }
                self.scan_size_mb = v;
            }
            Knob::HotThresholdMs => self.hot_threshold_ms = v,
            Knob::PromoteRateLimitMBps => self.promote_rate_limit_mbps = v,
            Knob::DemotionEnabled => self.demotion_enabled = v != 0,
            Knob::MinFreeKbytes => self.min_free_kbytes = Some(v),
            Knob::WatermarkScaleFactor => self.watermark_scale_factor = v,
            Knob::Swappiness => self.swappiness = v,
            Knob::TransparentHugepage => {
                self.transparent_hugepage = match v {
                    0 => HugePages::Always,
                    1 => HugePages::Madvise,
                    _ => HugePages::Never,
                }
            }
            Knob::TransparentHugepageDefrag => {
                self.transparent_hugepage_defrag = match (v, self.version < KernelVersion::V4_15) {
                    (0, _) => Defrag::Always,
                    (1, true) => Defrag::Madvise,
                    (_, true) => Defrag::Never,
                    (v, false) => Defrag::ALL[v as usize],
                }
            }
            Knob::KhugepagedDefrag => self.khugepaged.defrag = v != 0,
            Knob::KhugepagedPagesToScan => self.khugepaged.pages_to_scan = v,
            Knob::KhugepagedScanSleepMillisecs => self.khugepaged.scan_sleep_millisecs = v,
            Knob::KhugepagedAllocSleepMillisecs => self.khugepaged.alloc_sleep_millisecs = v,
            Knob::KhugepagedMaxPtesNone => self.khugepaged.max_ptes_none = v,
            Knob::KhugepagedMaxPtesSwap => self.khugepaged.max_ptes_swap = v,
            Knob::KhugepagedMaxPtesShared => self.khugepaged.max_ptes_shared = v,
            Knob::LruGen => self.lru_gen = Caps::from_bits(v),
            // Kept in ticks, rounded up.
            Knob::LruGenMinTtlMs => {
                self.lru_gen_min_ttl_ms = jiffies_to_msecs(msecs_to_jiffies(v.into()));
            }
            Knob::SchedSchedstats => self.sched_schedstats = v != 0,
            Knob::BaseSliceNs => self.base_slice_ns = Some(v),
            Knob::MigrationCostNs => self.migration_cost_ns = v,
            Knob::NrMigrate => self.nr_migrate = v,
            // What is not set has the default.
            Knob::InterleaveWeight(node) if v == 0 => drop(self.interleave_weights.remove(&node)),
            Knob::InterleaveWeight(node) => drop(self.interleave_weights.insert(node, v as u8)),
        }
        Ok(())
    }
}

impl Default for Knobs {
    fn default() -> Self {
        Self::new(KernelVersion::default())
    }
}

#[cfg(test)]
mod tests;
