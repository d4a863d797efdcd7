//! Where CPUs are: cores, LLCs, clusters, nodes, and the domains that each one walks up.
//!
//! A layout is checked once, while it is built, and never changes: a CPU that comes or goes
//! makes another one ([`crate::Cpus::rebuild`]). What the choice wants of the domains is
//! worked out here, as the kernel does when it attaches them:
//!
//! ```text
//!   domains of a CPU, upward            what is kept of them
//!   SMT  {0,8}      SHARE_LLC            llc     = the highest with SHARE_LLC: MC
//!   CLS  {0-3,8-11} SHARE_LLC CLUSTER    cluster = the one below it, if it is a cluster: CLS
//!   MC   {0-15}     SHARE_LLC            share   = the lowest cluster, else the LLC
//!   NUMA {0-31}     NUMA                 asym    = the lowest with ASYM_CPUCAPACITY_FULL: none
//! ```
//!
//! Source: specs/wake.md#layout.

use crate::raw::{self, Domain, MAX_LEVELS, MAX_SMT, NO_DOMAIN, Place};
use std::collections::HashMap;
use std::fmt;
use std::ops::BitOr;

/// As many CPUs as a layout may have.
pub const MAX_CPUS: usize = 8192;

/// What a domain has: a set of flags, `|` joins two.
///
/// The names are the kernel's, without `SD_`. Source: specs/wake.md#layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// A woken task may be drawn to the waker's CPU.
    pub const WAKE_AFFINE: Self = Self(0x01);
    /// Its CPUs share the last-level cache.
    pub const SHARE_LLC: Self = Self(0x02);
    /// Its CPUs share a cache below that one, or its tags.
    pub const CLUSTER: Self = Self(0x04);
    /// Its CPUs are one core.
    pub const SHARE_CPUCAPACITY: Self = Self(0x08);
    /// It reaches across nodes.
    pub const NUMA: Self = Self(0x10);
    /// CPUs of each capacity that the machine has are in it, and there are several.
    pub const ASYM_CPUCAPACITY_FULL: Self = Self(0x20);
    /// A wake-up is placed like a fork. No kernel sets it by itself.
    pub const BALANCE_WAKE: Self = Self(0x40);

    /// Whether all of `other` are in it.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A domain of a layout, as [`LayoutBuilder::domain`] numbered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomainId(u16);

/// What the CPUs of an LLC share: `nr_idle_scan` and `has_idle_core`. Since 7.3 a domain of
/// all capacities has one as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SharedId(pub(crate) u16);

impl SharedId {
    /// Its place among [`Layout::nr_shared`].
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Why something is no layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Too many or none.
    #[error("a layout has 1 to {MAX_CPUS} CPUs, not {0}")]
    NrCpus(usize),
    /// A CPU that isn't there.
    #[error("{what} names CPU {cpu}, but there are {nr_cpus}")]
    NoCpu {
        /// Who names it.
        what: &'static str,
        /// The number.
        cpu: usize,
        /// How many there are.
        nr_cpus: usize,
    },
    /// A domain without a CPU.
    #[error("a domain is empty")]
    Empty,
    /// More than the header's numbers hold.
    #[error("more than {0} different domains and nodes")]
    ManyDomains(usize),
    /// Too many levels.
    #[error("CPU {cpu} has {levels} domains; at most {MAX_LEVELS} fit")]
    ManyLevels {
        /// Whose.
        cpu: u32,
        /// How many.
        levels: usize,
    },
    /// Its siblings are not a core.
    #[error(
        "the siblings of CPU {0} have to be 1 to {MAX_SMT} CPUs, ascending, itself among them, and to name each other"
    )]
    Siblings(u32),
    /// A CPU's domain without the CPU.
    #[error("CPU {0} is not in one of its own domains")]
    NotInDomain(u32),
    /// A domain of another builder.
    #[error("CPU {0} has a domain that this layout doesn't have")]
    NoDomain(u32),
    /// Another layout of other CPUs.
    #[error("the new layout has {new} CPUs, the old one {old}")]
    OtherSize {
        /// CPUs of the new one.
        new: usize,
        /// CPUs of the old one.
        old: usize,
    },
}

/// A layout that is being put together.
#[derive(Debug)]
pub struct LayoutBuilder {
    nr_cpus: usize,
    domains: Vec<Domain>,
    masks: Vec<u64>,
    /// Equal domains are kept once.
    known: HashMap<(Vec<u64>, u8, u16), u16>,
    cpus: Vec<Option<Described>>,
}

#[derive(Clone, Debug)]
struct Described {
    siblings: Vec<u32>,
    node: u16,
    domains: Vec<DomainId>,
}

impl LayoutBuilder {
    fn words(&self) -> usize {
        self.nr_cpus.div_ceil(64)
    }

    /// A domain: CPUs that belong together.
    ///
    /// * `span` – a bit per CPU; words that are missing are zero.
    /// * `imbalance_pct` – the kernel's: 117, in a core 110.
    ///
    /// Returns the same for equal ones, so it may be asked for each CPU anew.
    ///
    /// # Errors
    /// If it is empty, names a CPU that isn't there, or if there are too many.
    pub fn domain(
        &mut self,
        span: &[u64],
        flags: Flags,
        imbalance_pct: u16,
    ) -> Result<DomainId, LayoutError> {
        let used = span.iter().rposition(|w| *w != 0).ok_or(LayoutError::Empty)?;
        let first = span.iter().position(|w| *w != 0).unwrap_or(used);
        let top = used * 64 + 63 - span[used].leading_zeros() as usize;
        if self.nr_cpus > MAX_CPUS {
            return Err(LayoutError::NrCpus(self.nr_cpus));
        }
        if top >= self.nr_cpus {
            let nr_cpus = self.nr_cpus;
            return Err(LayoutError::NoCpu { what: "a domain", cpu: top, nr_cpus });
        }
        let key = (span[..=used].to_vec(), flags.0, imbalance_pct);
        if let Some(known) = self.known.get(&key) {
            return Ok(DomainId(*known));
        }
        let many = LayoutError::ManyDomains(usize::from(NO_DOMAIN) - 1);
        // One number stays free for the domain of all CPUs.
        let id = u16::try_from(self.domains.len()).ok().filter(|id| *id < NO_DOMAIN - 1);
        let id = id.ok_or(many.clone())?;
        let weight: u32 = span.iter().map(|w| w.count_ones()).sum();
        self.domains.push(Domain {
            masks: u32::try_from(self.masks.len()).map_err(|_| many)?,
            // Words and CPUs are few enough: MAX_CPUS.
            first_word: first as u16,
            nr_words: (used - first + 1) as u16,
            weight: weight as u16,
            imbalance_pct,
            shared: NO_DOMAIN,
            flags: flags.0,
            _pad: 0,
        });
        self.masks.extend_from_slice(&span[first..=used]);
        self.known.insert(key, id);
        Ok(DomainId(id))
    }

    /// Describes a CPU. One that nobody describes is alone: without siblings, domains, node.
    ///
    /// * `siblings` – the CPUs of its core that are online, ascending, itself among them.
    /// * `node` – its node's number.
    /// * `domains` – those that are left after degeneration, from the smallest on.
    ///
    /// # Errors
    /// If a CPU, a domain or the siblings can't be.
    pub fn cpu(
        &mut self,
        cpu: u32,
        siblings: &[u32],
        node: u16,
        domains: &[DomainId],
    ) -> Result<(), LayoutError> {
        let nr_cpus = self.nr_cpus;
        if nr_cpus > MAX_CPUS {
            return Err(LayoutError::NrCpus(nr_cpus));
        }
        for (what, named) in
            [("a description", cpu)].into_iter().chain(siblings.iter().map(|s| ("a core", *s)))
        {
            if named as usize >= nr_cpus {
                return Err(LayoutError::NoCpu { what, cpu: named as usize, nr_cpus });
            }
        }
        let ascending = siblings.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || siblings.len() > MAX_SMT || !siblings.contains(&cpu) {
            return Err(LayoutError::Siblings(cpu));
        }
        if domains.len() > MAX_LEVELS {
            return Err(LayoutError::ManyLevels { cpu, levels: domains.len() });
        }
        for id in domains {
            let domain = self.domains.get(usize::from(id.0)).ok_or(LayoutError::NoDomain(cpu))?;
            if !spans(domain, &self.masks, cpu) {
                return Err(LayoutError::NotInDomain(cpu));
            }
        }
        let (siblings, domains) = (siblings.to_vec(), domains.to_vec());
        self.cpus[cpu as usize] = Some(Described { siblings, node, domains });
        Ok(())
    }

    /// The layout.
    ///
    /// # Errors
    /// If cores contradict each other, or there are too many CPUs or nodes.
    pub fn build(mut self) -> Result<Layout, LayoutError> {
        if !(1..=MAX_CPUS).contains(&self.nr_cpus) {
            return Err(LayoutError::NrCpus(self.nr_cpus));
        }
        self.check_cores()?;
        let nodes = self.nodes()?;
        let mut every = vec![u64::MAX; self.words()];
        if self.nr_cpus % 64 != 0 {
            every[self.nr_cpus / 64] = (1 << (self.nr_cpus % 64)) - 1;
        }
        let all = self.domain(&every, Flags::NONE, 0)?.0;
        let mut has = 0;
        let mut nr_shared = 0;
        let places: Vec<Place> = (0..self.nr_cpus)
            .map(|cpu| self.place(cpu as u16, &nodes, &mut has, &mut nr_shared))
            .collect();
        let Self { domains, masks, .. } = self;
        Ok(Layout { places, domains, masks, all, has, nr_shared: usize::from(nr_shared) })
    }

    fn check_cores(&self) -> Result<(), LayoutError> {
        for (cpu, described) in self.cpus.iter().enumerate() {
            let Some(described) = described else { continue };
            let agrees = |other: &u32| match &self.cpus[*other as usize] {
                Some(known) => known.siblings == described.siblings,
                None => described.siblings.len() == 1,
            };
            if !described.siblings.iter().all(agrees) {
                return Err(LayoutError::Siblings(cpu as u32));
            }
        }
        Ok(())
    }

    /// A domain without flags for the CPUs of each node.
    fn nodes(&mut self) -> Result<HashMap<u16, u16>, LayoutError> {
        let mut spans: Vec<(u16, Vec<u64>)> = Vec::new();
        for (cpu, described) in self.cpus.iter().enumerate() {
            let Some(described) = described else { continue };
            let known = spans.iter().position(|(node, _)| *node == described.node);
            let at = known.unwrap_or_else(|| {
                spans.push((described.node, vec![0; self.nr_cpus.div_ceil(64)]));
                spans.len() - 1
            });
            spans[at].1[cpu / 64] |= 1 << (cpu % 64);
        }
        spans
            .into_iter()
            .map(|(node, span)| Ok((node, self.domain(&span, Flags::NONE, 0)?.0)))
            .collect()
    }

    fn place(
        &mut self,
        cpu: u16,
        nodes: &HashMap<u16, u16>,
        has: &mut u32,
        nr_shared: &mut u16,
    ) -> Place {
        let mut place = Place {
            llc_id: cpu,
            share_id: cpu,
            node: NO_DOMAIN,
            llc: NO_DOMAIN,
            cluster: NO_DOMAIN,
            asym: NO_DOMAIN,
            nr_smt: 1,
            nr_levels: 0,
            smt: [cpu; MAX_SMT],
            level: [NO_DOMAIN; MAX_LEVELS],
            _pad: 0,
        };
        let Some(described) = self.cpus[usize::from(cpu)].take() else { return place };
        place.node = nodes.get(&described.node).copied().unwrap_or(NO_DOMAIN);
        place.nr_smt = described.siblings.len() as u8;
        for (slot, sibling) in place.smt.iter_mut().zip(&described.siblings) {
            *slot = *sibling as u16;
        }
        if place.nr_smt > 1 {
            *has |= raw::HAS_SMT;
        }
        let ids: Vec<u16> = described.domains.iter().map(|id| id.0).collect();
        place.nr_levels = ids.len() as u8;
        place.level[..ids.len()].copy_from_slice(&ids);
        let flags = |id: &u16| Flags(self.domains[usize::from(*id)].flags);
        let llc = ids.iter().rposition(|id| flags(id).contains(Flags::SHARE_LLC));
        let cluster = ids.iter().position(|id| flags(id).contains(Flags::CLUSTER));
        let asym = ids.iter().position(|id| flags(id).contains(Flags::ASYM_CPUCAPACITY_FULL));
        if let Some(at) = llc {
            place.llc = ids[at];
            place.llc_id = self.first(ids[at]);
            place.share_id = place.llc_id;
            let below = at.checked_sub(1).map(|below| ids[below]);
            if let Some(below) = below.filter(|id| flags(id).contains(Flags::CLUSTER)) {
                place.cluster = below;
            }
        }
        if let Some(at) = cluster {
            place.share_id = self.first(ids[at]);
            *has |= raw::HAS_CLUSTERS;
        }
        let mut asym_shares = false;
        if let Some(at) = asym {
            place.asym = ids[at];
            *has |= raw::HAS_ASYM;
            // Domains across nodes may overlap, so none of them can own it.
            asym_shares = !flags(&ids[at]).contains(Flags::NUMA);
        }
        if place.llc != NO_DOMAIN {
            self.share(place.llc, nr_shared);
        }
        if asym_shares {
            self.share(place.asym, nr_shared);
        }
        place
    }

    fn first(&self, id: u16) -> u16 {
        let domain = &self.domains[usize::from(id)];
        let low = self.masks[domain.masks as usize].trailing_zeros() as u16;
        domain.first_word * 64 + low
    }

    fn share(&mut self, id: u16, nr_shared: &mut u16) {
        let domain = &mut self.domains[usize::from(id)];
        if domain.shared == NO_DOMAIN {
            domain.shared = *nr_shared;
            *nr_shared += 1;
        }
    }
}

fn spans(domain: &Domain, masks: &[u64], cpu: u32) -> bool {
    let word = (cpu / 64) as usize;
    let Some(at) = word.checked_sub(usize::from(domain.first_word)) else { return false };
    at < usize::from(domain.nr_words) && masks[domain.masks as usize + at] >> (cpu % 64) & 1 == 1
}

/// A layout as bytes, in this machine's order: `struct hn_wake_place` and so on of the header.
#[derive(Clone, Debug)]
pub struct Image {
    /// Of each CPU.
    pub place: Vec<u8>,
    /// Of each domain.
    pub domain: Vec<u8>,
    /// Words of all spans.
    pub masks: Vec<u8>,
    /// How many elements `shared` has to have.
    pub nr_shared: usize,
    /// The view's `all`.
    pub all: u32,
    /// The view's `has`.
    pub has: u32,
}

/// # Safety
/// All bytes of a `T` have to be of its fields.
unsafe fn bytes<T>(of: &[T]) -> Vec<u8> {
    // SAFETY: as many bytes as the slice has, all of them initialised as the caller promises.
    unsafe { std::slice::from_raw_parts(of.as_ptr().cast::<u8>(), size_of_val(of)) }.to_vec()
}

/// Where the CPUs of a machine are.
#[derive(Clone)]
pub struct Layout {
    pub(crate) places: Vec<Place>,
    pub(crate) domains: Vec<Domain>,
    pub(crate) masks: Vec<u64>,
    pub(crate) all: u16,
    pub(crate) has: u32,
    pub(crate) nr_shared: usize,
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layout")
            .field("nr_cpus", &self.nr_cpus())
            .field("nr_domains", &self.domains.len())
            .field("nr_shared", &self.nr_shared)
            .finish_non_exhaustive()
    }
}

impl Layout {
    /// Begins one of so many CPUs, 1 to [`MAX_CPUS`]; `build` says if it is another number.
    #[must_use]
    pub fn builder(nr_cpus: usize) -> LayoutBuilder {
        let (domains, masks, known) = (Vec::new(), Vec::new(), HashMap::new());
        let cpus = vec![None; nr_cpus.min(MAX_CPUS)];
        LayoutBuilder { nr_cpus, domains, masks, known, cpus }
    }

    /// CPUs.
    #[must_use]
    pub fn nr_cpus(&self) -> usize {
        self.places.len()
    }

    /// Words of a set of its CPUs.
    #[must_use]
    pub fn nr_words(&self) -> usize {
        self.places.len().div_ceil(64)
    }

    /// How many [`SharedId`]s there are; they are numbered from 0.
    #[must_use]
    pub fn nr_shared(&self) -> usize {
        self.nr_shared
    }

    /// Its arrays as the header wants them, for whoever has the header run elsewhere.
    #[must_use]
    pub fn image(&self) -> Image {
        // SAFETY: arrays of plain numbers whose paddings are fields: `raw` holds their sizes.
        let (place, domain, masks) =
            unsafe { (bytes(&self.places), bytes(&self.domains), bytes(&self.masks)) };
        let nr_shared = self.nr_shared;
        Image { place, domain, masks, nr_shared, all: self.all.into(), has: self.has }
    }

    fn place(&self, cpu: u32) -> &Place {
        &self.places[cpu as usize]
    }

    fn shared_of(&self, domain: u16) -> Option<SharedId> {
        let shared = self.domains.get(usize::from(domain))?.shared;
        (shared != NO_DOMAIN).then_some(SharedId(shared))
    }

    /// What a CPU shares with its LLC; nothing if it is in no such domain.
    ///
    /// # Panics
    /// If there is no such CPU; so do the next four.
    #[must_use]
    pub fn llc(&self, cpu: u32) -> Option<SharedId> {
        self.shared_of(self.place(cpu).llc)
    }

    /// What a CPU shares with its domain of all capacities, if that isn't one across nodes.
    #[must_use]
    pub fn asym(&self, cpu: u32) -> Option<SharedId> {
        self.shared_of(self.place(cpu).asym)
    }

    /// CPUs of its LLC's domain; 1 if it is in none.
    #[must_use]
    pub fn llc_size(&self, cpu: u32) -> u32 {
        self.domains.get(usize::from(self.place(cpu).llc)).map_or(1, |d| u32::from(d.weight))
    }

    /// Whether two CPUs share the last-level cache, as far as domains tell.
    #[must_use]
    pub fn share_cache(&self, a: u32, b: u32) -> bool {
        a == b || self.place(a).llc_id == self.place(b).llc_id
    }

    /// The address of what is known of where a CPU is, for who has it fetched before a choice.
    #[inline]
    #[must_use]
    pub fn address(&self, cpu: u32) -> usize {
        std::ptr::from_ref(self.place(cpu)).addr()
    }

    /// The CPUs of its core, ascending, itself among them.
    #[must_use]
    pub fn siblings(&self, cpu: u32) -> &[u16] {
        let place = self.place(cpu);
        &place.smt[..usize::from(place.nr_smt)]
    }
}
