//! Machines for the tests of domains and balancing.

use proptest::prelude::*;

use super::{Domains, Layout, Site};

/// A machine of equal parts.
#[derive(Clone, Copy, Debug)]
pub(in crate::sched) struct Shape {
    pub(in crate::sched) nodes: u32,
    pub(in crate::sched) llcs: u32,
    pub(in crate::sched) clusters: u32,
    pub(in crate::sched) cores: u32,
    pub(in crate::sched) threads: u32,
    /// Whether sibling threads have neighbouring numbers; otherwise all first threads come first.
    pub(in crate::sched) siblings_adjacent: bool,
}

/// `nodes` nodes of one LLC of `cores` cores of `threads` threads.
pub(in crate::sched) fn shape(nodes: u32, cores: u32, threads: u32) -> Shape {
    Shape { nodes, llcs: 1, clusters: 0, cores, threads, siblings_adjacent: true }
}

impl Shape {
    /// The CPUs, nodes 20 apart.
    pub(in crate::sched) fn layout(self) -> Layout {
        let per_llc = self.clusters.max(1) * self.cores;
        let cores = self.nodes * self.llcs * per_llc;
        let site = |core: u32| Site {
            node: (core / (self.llcs * per_llc)) as u16,
            package: core / (self.llcs * per_llc),
            llc: core / per_llc,
            cluster: (self.clusters > 0).then_some(core / self.cores),
            core,
            capacity: 1024,
        };
        let cpus = if self.siblings_adjacent {
            (0..cores * self.threads).map(|cpu| site(cpu / self.threads)).collect()
        } else {
            (0..cores * self.threads).map(|cpu| site(cpu % cores)).collect()
        };
        let n = self.nodes as usize;
        let distances =
            (0..n).map(|a| (0..n).map(|b| if a == b { 10 } else { 20 }).collect()).collect();
        Layout { cpus, distances, reclaim_distance: 30 }
    }
    /// Its domains, all CPUs online.
    pub(in crate::sched) fn domains(self) -> Domains {
        all_online(&self.layout())
    }
}

/// The domains of a layout with all CPUs online.
pub(in crate::sched) fn all_online(layout: &Layout) -> Domains {
    Domains::new(layout, &vec![u64::MAX; layout.cpus.len().div_ceil(64)])
}

/// Any small machine: parts of any number, distances of any kind, numbers dealt at random.
pub(in crate::sched) fn layouts() -> impl Strategy<Value = Layout> {
    let parts = (1u32..5, 1u32..3, 0u32..3, 1u32..3, 1u32..4, any::<bool>(), any::<bool>());
    (parts, any::<u64>()).prop_map(
        |((nodes, llcs, clusters, cores, threads, adjacent, asym), seed)| {
            let s = Shape { nodes, llcs, clusters, cores, threads, siblings_adjacent: adjacent };
            let mut layout = s.layout();
            let mut random = crate::splitmix::SplitMix::new(seed);
            if random.below(3) == 0 {
                random.shuffle(&mut layout.cpus);
            }
            if threads == 1 && asym {
                for site in &mut layout.cpus {
                    site.capacity = [1024, 1024, 512, 400][random.below(4) as usize];
                }
            }
            let n = nodes as usize;
            for a in 0..n {
                for b in 0..a {
                    let d = [20, 20, 28, 32][random.below(4) as usize];
                    (layout.distances[a][b], layout.distances[b][a]) = (d, d);
                }
            }
            layout
        },
    )
}
