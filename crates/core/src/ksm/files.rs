//! The files of `/sys/kernel/mm/ksm/` and `/proc/PID/ksm_stat`.
//!
//! ```
//! # use homenode_core::{kernel::KernelVersion, ksm::{Ksm, files::File}};
//! let ksm = Ksm::new(KernelVersion::V6_12, 2);
//! assert_eq!(ksm.read("advisor_mode").unwrap(), "[none] scan-time");
//! assert_eq!(File::find("smart_scan", KernelVersion::V6_1), None);
//! ```
//!
//! Source: specs/ksm.md#files.

use super::advisor::AdvisorMode;
use super::memory::{Memory, MmId};
use super::tree::Root;
use super::{Ksm, register};
use crate::kernel::KernelVersion;
use crate::knobs::{Errno, KnobError, parse_bool, parse_u64_decimal};

/// The folder of the files.
pub const FOLDER: &str = "/sys/kernel/mm/ksm/";

crate::named! {
    /// A file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum File {
        /// 0 stop, 1 merge, 2 unmerge everything; 4 and 5 are read while memory goes offline.
        Run => "run",
        /// Pages of a batch.
        PagesToScan => "pages_to_scan",
        /// Sleep between batches, ms.
        SleepMillisecs => "sleep_millisecs",
        /// Whether pages of different nodes merge.
        MergeAcrossNodes => "merge_across_nodes",
        /// Items at a merged page.
        MaxPageSharing => "max_page_sharing",
        /// Time between two prunes of a chain, ms.
        StableNodeChainsPruneMillisecs => "stable_node_chains_prune_millisecs",
        /// Whether pages of zeroes are mapped to the shared one.
        UseZeroPages => "use_zero_pages",
        /// Whether pages that did not merge are visited less often.
        SmartScan => "smart_scan",
        /// Whether `pages_to_scan` follows the time of a pass.
        AdvisorMode => "advisor_mode",
        /// Most CPU time of ksmd, percent.
        AdvisorMaxCpu => "advisor_max_cpu",
        /// Where the advisor starts.
        AdvisorMinPagesToScan => "advisor_min_pages_to_scan",
        /// Most pages of a batch.
        AdvisorMaxPagesToScan => "advisor_max_pages_to_scan",
        /// How long a pass is to take, s.
        AdvisorTargetScanTime => "advisor_target_scan_time",
        /// Merged pages.
        PagesShared => "pages_shared",
        /// Further mappings of them.
        PagesSharing => "pages_sharing",
        /// Items in the unstable trees.
        PagesUnshared => "pages_unshared",
        /// Items that hang nowhere.
        PagesVolatile => "pages_volatile",
        /// Visits of a page.
        PagesScanned => "pages_scanned",
        /// Visits saved by smart scan.
        PagesSkipped => "pages_skipped",
        /// Passes over all memory that may merge.
        FullScans => "full_scans",
        /// Mappings of the page of zeroes.
        KsmZeroPages => "ksm_zero_pages",
        /// Chains of merged pages of one content.
        StableNodeChains => "stable_node_chains",
        /// Duplicates in them.
        StableNodeDups => "stable_node_dups",
        /// Bytes saved less bytes of items.
        GeneralProfit => "general_profit",
    }
}

impl File {
    /// Whether it only counts (mode 0444).
    pub const fn is_counter(self) -> bool {
        self as u8 >= Self::PagesShared as u8
    }

    /// Whether `version` has it.
    ///
    /// Source: specs/ksm.md#versions.
    pub fn exists(self, version: KernelVersion) -> bool {
        let since = match self {
            Self::SmartScan
            | Self::AdvisorMode
            | Self::AdvisorMaxCpu
            | Self::AdvisorMinPagesToScan
            | Self::AdvisorMaxPagesToScan
            | Self::AdvisorTargetScanTime
            | Self::PagesScanned
            | Self::PagesSkipped
            | Self::KsmZeroPages
            | Self::GeneralProfit => KernelVersion::V6_12,
            Self::MaxPageSharing
            | Self::StableNodeChainsPruneMillisecs
            | Self::UseZeroPages
            | Self::StableNodeChains
            | Self::StableNodeDups => KernelVersion::V4_15,
            _ => KernelVersion::V3_8,
        };
        version >= since
    }

    /// The file of that name or path in `version`.
    pub fn find(name_or_path: &str, version: KernelVersion) -> Option<Self> {
        let name = name_or_path.strip_prefix(FOLDER).unwrap_or(name_or_path);
        Self::ALL.into_iter().find(|f| f.name() == name && f.exists(version))
    }

    /// That a write was answered so.
    pub(super) fn refused(self, name: &str, text: &str, errno: Errno) -> KnobError {
        let allowed = match errno {
            Errno::Ebusy => "pages are merged; write 2 to run first, which unmerges everything",
            Errno::Enomem => "there is not enough memory for it; free some and try again",
            Errno::Eintr => "a signal came; ksmd is stopped (run is 0), try again",
            _ => self.allowed(),
        };
        let (knob, given) = (name.to_owned(), Some(text.to_owned()));
        KnobError { knob, given, errno, allowed: allowed.to_owned() }
    }

    /// What may be written, in words.
    fn allowed(self) -> &'static str {
        match self {
            Self::Run => "allowed are 0 (stop), 1 (merge), 2 (unmerge everything)",
            Self::MergeAcrossNodes => "allowed are 0 (per node) and 1 (across)",
            Self::MaxPageSharing => "allowed are 2 to 2147483647",
            Self::UseZeroPages | Self::SmartScan => "allowed are 1, y, t, on and 0, n, f, off",
            Self::AdvisorMode => "allowed are none and scan-time",
            Self::AdvisorTargetScanTime => "allowed are seconds from 1 on",
            Self::PagesToScan => "allowed are 0 to 4294967295, decimal, while advisor_mode is none",
            Self::SleepMillisecs | Self::StableNodeChainsPruneMillisecs => {
                "allowed are 0 to 4294967295 ms, decimal"
            }
            Self::AdvisorMaxCpu | Self::AdvisorMinPagesToScan | Self::AdvisorMaxPagesToScan => {
                "allowed are decimal numbers"
            }
            _ => "it is a counter and can only be read",
        }
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Done.
    Done {
        /// Whether ksmd's sleep ends by it.
        wakes: bool,
    },
    /// Memory is going offline: the writer waits, uninterruptibly, and writes
    /// again once that is over.
    Waits,
}

impl Ksm {
    /// What reading a file prints, without the newline.
    ///
    /// # Errors
    /// ENOENT where this kernel has no such file.
    ///
    /// Source: specs/ksm.md#files, specs/ksm.md#counters.
    pub fn read(&self, name_or_path: &str) -> Result<String, KnobError> {
        let file = self.file(name_or_path, None)?;
        let (s, c, a) = (&self.settings, &self.counters, &self.advisor);
        let number = match file {
            File::AdvisorMode => {
                return Ok(match a.mode {
                    AdvisorMode::None => "[none] scan-time",
                    AdvisorMode::ScanTime => "none [scan-time]",
                }
                .to_owned());
            }
            File::GeneralProfit => return Ok(self.general_profit().to_string()),
            File::KsmZeroPages => return Ok(c.ksm_zero_pages.to_string()),
            File::Run => u64::from(s.run),
            File::PagesToScan => u64::from(s.pages_to_scan),
            File::SleepMillisecs => u64::from(s.sleep_millisecs),
            File::MergeAcrossNodes => u64::from(s.merge_across_nodes),
            File::MaxPageSharing => u64::from(s.max_page_sharing),
            File::StableNodeChainsPruneMillisecs => u64::from(s.chains_prune_millisecs),
            File::UseZeroPages => u64::from(s.use_zero_pages),
            File::SmartScan => u64::from(s.smart_scan),
            File::AdvisorMaxCpu => u64::from(a.max_cpu),
            File::AdvisorMinPagesToScan => a.min_pages_to_scan,
            File::AdvisorMaxPagesToScan => a.max_pages_to_scan,
            File::AdvisorTargetScanTime => a.target_scan_time,
            File::PagesShared => c.pages_shared,
            File::PagesSharing => c.pages_sharing,
            File::PagesUnshared => c.pages_unshared,
            File::PagesVolatile => self.pages_volatile(),
            File::PagesScanned => c.pages_scanned,
            File::PagesSkipped => c.pages_skipped,
            File::FullScans => c.full_scans,
            File::StableNodeChains => self.stable_node_chains(),
            File::StableNodeDups => self.stable_node_dups(),
        };
        Ok(number.to_string())
    }

    /// Write `text` to a file as root.
    ///
    /// # Errors
    /// [`KnobError`] with what the kernel's file answers. After a failed `run` = 2
    /// `run` is 0 and a part is unmerged; otherwise nothing has changed.
    ///
    /// Source: specs/ksm.md#files, specs/ksm.md#switch.
    pub fn write<M: Memory>(
        &mut self,
        mem: &mut M,
        name_or_path: &str,
        text: &str,
    ) -> Result<Written, KnobError> {
        let file = self.file(name_or_path, Some(text))?;
        let done = self.store(Some(mem), file, text);
        done.map_err(|errno| file.refused(name_or_path, text, errno))
    }

    /// The same; without memory behind it nothing is merged but what the counters say.
    pub(super) fn store(
        &mut self,
        mut mem: Option<&mut dyn Memory>,
        file: File,
        text: &str,
    ) -> Result<Written, Errno> {
        let mut wakes = false;
        let letters = self.rules.version >= KernelVersion::V7_3;
        let s = &mut self.settings;
        match file {
            File::Run => {
                let value = number(text, 2)? as u8;
                if self.is_offlining() {
                    return Ok(Written::Waits);
                }
                self.set_run(mem, value)?;
                wakes = value == 1;
            }
            File::PagesToScan => {
                if self.advisor.mode != AdvisorMode::None {
                    return Err(Errno::Einval);
                }
                s.pages_to_scan = number(text, u32::MAX)?;
            }
            File::SleepMillisecs => {
                let value = number(text, u32::MAX)?;
                wakes = value != s.sleep_millisecs;
                s.sleep_millisecs = value;
            }
            File::MergeAcrossNodes => {
                // Of this file and the next an overflow is told apart.
                let value = parse_u64_decimal(text)?;
                if value > 1 {
                    return Err(Errno::Einval);
                }
                if self.is_offlining() {
                    return Ok(Written::Waits);
                }
                self.switch_across(&mut mem, value == 1)?;
            }
            File::MaxPageSharing => {
                let value = signed(text)?;
                if value < 2 {
                    return Err(Errno::Einval);
                }
                if value == s.max_page_sharing {
                    return Ok(Written::Done { wakes });
                }
                if self.is_offlining() {
                    return Ok(Written::Waits);
                }
                if self.is_sharing(&mut mem) {
                    return Err(Errno::Ebusy);
                }
                self.settings.max_page_sharing = value;
            }
            File::StableNodeChainsPruneMillisecs => {
                s.chains_prune_millisecs = number(text, u32::MAX)?;
            }
            File::UseZeroPages => s.use_zero_pages = parse_bool(text, letters)?,
            File::SmartScan => s.smart_scan = parse_bool(text, letters)?,
            File::AdvisorMode => {
                let mode = match text.strip_suffix('\n').unwrap_or(text) {
                    "none" => AdvisorMode::None,
                    "scan-time" => AdvisorMode::ScanTime,
                    _ => return Err(Errno::Einval),
                };
                if let Some(pages) = self.advisor.switch(mode) {
                    s.pages_to_scan = pages;
                }
            }
            // Kept in 32 bits without a word.
            File::AdvisorMaxCpu => self.advisor.max_cpu = long(text)? as u32,
            File::AdvisorMinPagesToScan => self.advisor.min_pages_to_scan = long(text)?,
            File::AdvisorMaxPagesToScan => self.advisor.max_pages_to_scan = long(text)?,
            File::AdvisorTargetScanTime => match long(text)? {
                0 => return Err(Errno::Einval),
                value => self.advisor.target_scan_time = value,
            },
            _ => return Err(Errno::Eacces),
        }
        Ok(Written::Done { wakes })
    }

    /// Source: specs/ksm.md#unmerge.
    fn set_run(&mut self, mem: Option<&mut dyn Memory>, value: u8) -> Result<(), Errno> {
        if self.settings.run == value {
            return Ok(());
        }
        self.settings.run = value;
        if let (2, Some(mem)) = (value, mem) {
            self.unmerge_all(mem).map_err(|e| {
                self.settings.run = 0;
                e.errno()
            })?;
        }
        Ok(())
    }

    /// Whether something is shared; if not, all stable nodes are removed.
    fn is_sharing(&mut self, mem: &mut Option<&mut dyn Memory>) -> bool {
        self.counters.pages_shared > 0
            || mem.as_mut().is_some_and(|mem| !self.remove_stable_nodes(*mem))
    }

    /// Equality first, then sharing, then memory for the trees.
    ///
    /// Source: specs/ksm.md#switch.
    fn switch_across(
        &mut self,
        mem: &mut Option<&mut dyn Memory>,
        across: bool,
    ) -> Result<(), Errno> {
        if self.settings.merge_across_nodes == across {
            return Ok(());
        }
        if self.is_sharing(mem) {
            return Err(Errno::Ebusy);
        }
        if self.stable.roots.len() < self.nr_nodes {
            if mem.as_mut().is_some_and(|mem| !mem.grant_trees(self.nr_nodes)) {
                return Err(Errno::Enomem);
            }
            self.stable.roots.resize(self.nr_nodes, Root::EMPTY);
            self.unstable.resize(self.nr_nodes, Root::EMPTY);
        }
        self.settings.merge_across_nodes = across;
        Ok(())
    }

    fn file(&self, name: &str, given: Option<&str>) -> Result<File, KnobError> {
        let version = self.rules.version;
        File::find(name, version).ok_or_else(|| {
            let elsewhere = KernelVersion::ALL.into_iter().find(|v| File::find(name, *v).is_some());
            let knobs = File::ALL.into_iter().filter(|f| f.exists(version) && !f.is_counter());
            let names: Vec<_> = knobs.map(File::name).collect();
            KnobError {
                knob: name.to_owned(),
                given: given.map(str::to_owned),
                errno: Errno::Enoent,
                allowed: match elsewhere {
                    Some(v) => format!("Linux {version} does not have it; {v} does"),
                    None => format!("{FOLDER} of Linux {version} has {}", names.join(", ")),
                },
            }
        })
    }

    /// What `/proc/PID/ksm_stat` prints.
    ///
    /// * `merge_any` – whether the process has set `PR_SET_MEMORY_MERGE`.
    /// * `mergeable` – whether it has a mergeable mapping.
    ///
    /// Returns `None` where this kernel has no such file.
    ///
    /// Source: specs/ksm.md#counters.
    pub fn ksm_stat(&self, mm: MmId, merge_any: bool, mergeable: bool) -> Option<String> {
        let version = self.rules.version;
        if version < KernelVersion::V6_1 {
            return None;
        }
        let stat = self.mm_stat(mm);
        let mut text = format!("ksm_rmap_items {}\n", stat.rmap_items);
        if register::has_merge_any(version) {
            text += &format!(
                "ksm_zero_pages {}\nksm_merging_pages {}\nksm_process_profit {}\n",
                stat.zero_pages,
                stat.merging_pages,
                stat.profit()
            );
        }
        if version >= KernelVersion::V7_3 {
            let word = |on| if on { "yes" } else { "no" };
            text += &format!(
                "ksm_merge_any: {}\nksm_mergeable: {}\n",
                word(merge_any),
                word(mergeable)
            );
        }
        Some(text)
    }
}

/// A number of 64 bits; every error is EINVAL.
fn long(text: &str) -> Result<u64, Errno> {
    parse_u64_decimal(text).map_err(|_| Errno::Einval)
}

/// A number up to `max`; every error is EINVAL.
fn number(text: &str, max: u32) -> Result<u32, Errno> {
    let value = long(text)?;
    u32::try_from(value).ok().filter(|v| *v <= max).ok_or(Errno::Einval)
}

/// A signed number of 32 bits that must not be negative: overflow is told apart.
fn signed(text: &str) -> Result<u32, Errno> {
    match text.strip_prefix('-') {
        Some(rest) => match parse_u64_decimal(rest)? {
            0..=0x8000_0000 => Err(Errno::Einval),
            _ => Err(Errno::Erange),
        },
        None => match parse_u64_decimal(text)? {
            v @ 0..=0x7fff_ffff => Ok(v as u32),
            _ => Err(Errno::Erange),
        },
    }
}
