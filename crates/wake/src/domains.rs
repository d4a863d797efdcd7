//! The domains that the kernel builds (`homenode_core::sched::domain`), as wake-ups look at them.

use crate::layout::{DomainId, Flags, Layout};
use homenode_core::sched::domain::{Domains, Flags as Of};

impl Layout {
    /// Where a machine's CPUs are; one that is offline is alone.
    ///
    /// # Panics
    /// With more CPUs than [`crate::MAX_CPUS`], which no machine's file can have.
    #[must_use]
    pub fn of_domains(domains: &Domains) -> Self {
        let cpus = domains.nr_cpus();
        let mut builder = Self::builder(cpus);
        // One that nobody describes is offline.
        for cpu in (0..cpus).filter(|&cpu| domains.online().contains(cpu)) {
            let stack: Vec<DomainId> = (0..domains.levels(cpu))
                .map(|level| {
                    let d = domains.at(cpu, level);
                    let span = domains.span(d).to_bitmap(cpus.div_ceil(64));
                    builder
                        .domain(&span, flags(d.flags), d.imbalance_pct as u16)
                        .expect("spans are the machine's")
                })
                .collect();
            let siblings: Vec<u32> = domains.siblings(cpu).iter().map(|&s| u32::from(s)).collect();
            builder.cpu(cpu as u32, &siblings, domains.node(cpu), &stack).expect("domains nest");
        }
        builder.build().expect("each CPU has been told")
    }
}

fn flags(flags: Of) -> Flags {
    let both = [
        (Of::WAKE_AFFINE, Flags::WAKE_AFFINE),
        (Of::SHARE_LLC, Flags::SHARE_LLC),
        (Of::CLUSTER, Flags::CLUSTER),
        (Of::SHARE_CPUCAPACITY, Flags::SHARE_CPUCAPACITY),
        (Of::NUMA, Flags::NUMA),
        (Of::ASYM_CPUCAPACITY_FULL, Flags::ASYM_CPUCAPACITY_FULL),
    ];
    let set = both.into_iter().filter(|(of, _)| flags.has(*of));
    set.fold(Flags::NONE, |all, (_, flag)| all | flag)
}
