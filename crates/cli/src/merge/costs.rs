//! What merging costs the users of pages, from latencies that are measured, given
//! or assumed.

use anyhow::Result;
use homenode_core::costs::{Cost, Costs};
use homenode_core::ksm::pace::{COST_NS, first_merge_ns};
use homenode_core::topology::{Hardware, LOCAL_DISTANCE};
use homenode_core::units::NodeId;
use homenode_live::place::Place;
use homenode_live::sysfs;
use homenode_merge::estimate::{Estimate, Flow};
use homenode_merge::ksm::visit_ns;
use homenode_report::{MergeCosts, MergeEstimate};
use std::path::Path;

/// Local latency that is assumed where no machine is given, in nanoseconds: the
/// order of current servers' memory.
const LOCAL_NS: f64 = 90.0;

/// Nanoseconds of a read that misses the caches, by the reader's and the page's node.
type Latencies = Vec<(u16, u16, f64)>;

/// The costs of an estimate; without a machine by this one's distances.
pub(super) fn costs(e: &Estimate, machine: Option<&Hardware>) -> Result<MergeCosts> {
    let (latencies, costs, source) = match machine {
        Some(m) => (of_machine(m), m.costs.clone(), format!("latencies of machine `{}`", m.name)),
        None => {
            let t = sysfs::read_topology(Path::new("/"))?;
            let ids: Vec<NodeId> = t.nodes.iter().map(|n| n.id).collect();
            let with_cpus = |id: NodeId| t.cpus.iter().any(|c| c.node == id);
            let source = format!(
                "latencies assumed: {LOCAL_NS} ns to the own node, others by sysfs' distances, \
                 faults and copies of current servers; --machine gives measured ones"
            );
            (by_distance(&ids, &t.distances, with_cpus), Costs::default(), source)
        }
    };
    let ns = |cost: Cost| costs.time(cost).0 as f64 / 1e3;
    let visit = visit_ns(&Place::here());
    let (remote_pages, remote_extra_ns) = remote(&e.flows, &latencies);
    Ok(MergeCosts {
        remote_pages,
        remote_extra_ns,
        // A page is made and filled: a first touch, and a copy in place of zeros.
        copy_on_write_ns: ns(Cost::MinorFault) + ns(Cost::PageCopy),
        volatile_per_second: e
            .looks
            .second
            .map(|(between, _)| e.volatile as f64 / between.as_secs_f64().max(1e-3)),
        item_bytes: MergeEstimate::item_bytes(e.pages_scanned),
        ksmd_cpu_seconds: first_merge_ns(e.pages_scanned, visit.unwrap_or(COST_NS)) as f64 / 1e9,
        ksmd_measured: visit.is_some(),
        source,
    })
}

fn of_machine(m: &Hardware) -> Latencies {
    m.links.iter().map(|l| (l.from.0, l.to.0, l.read_latency.value as f64 / 1e3)).collect()
}

fn by_distance(
    ids: &[NodeId],
    distances: &[Vec<u32>],
    with_cpus: impl Fn(NodeId) -> bool,
) -> Latencies {
    let mut out = Vec::new();
    for (from, row) in ids.iter().zip(distances).filter(|(from, _)| with_cpus(**from)) {
        for (to, distance) in ids.iter().zip(row) {
            let ns = LOCAL_NS * f64::from(*distance) / f64::from(LOCAL_DISTANCE);
            out.push((from.0, to.0, ns));
        }
    }
    out
}

/// Pages that become remote, and what a miss there takes longer, on average.
///
/// A page's users are taken to be where it is read fastest now.
fn remote(flows: &[Flow], latencies: &Latencies) -> (u64, Option<f64>) {
    let of = |from: u16, to: u16| {
        latencies.iter().find(|(f, t, _)| (*f, *t) == (from, to)).map(|(_, _, ns)| *ns)
    };
    let (mut pages, mut known, mut extra) = (0, 0, 0.0);
    for flow in flows {
        pages += flow.pages;
        let there = latencies.iter().filter(|(_, to, _)| *to == flow.from);
        let here = there.min_by(|a, b| a.2.total_cmp(&b.2));
        if let Some((user, _, now)) = here {
            if let Some(then) = of(*user, flow.to) {
                known += flow.pages;
                extra += (then - now) * flow.pages as f64;
            }
        }
    }
    (pages, (known > 0).then(|| extra / known as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_pages_cost_the_difference_of_latencies() {
        let ids = [NodeId(0), NodeId(1), NodeId(2)];
        let rows = [vec![10, 20, 30], vec![20, 10, 40], vec![30, 40, 10]];
        // Node 2 has no CPUs: its users are on node 0, the nearest one.
        let latencies = by_distance(&ids, &rows, |n| n.0 < 2);
        assert_eq!(latencies.len(), 6);
        let flow = |from, to, pages| Flow { from, to, pages };
        assert_eq!(remote(&[], &latencies), (0, None));
        assert_eq!(remote(&[flow(0, 1, 10)], &latencies), (10, Some(90.0)));
        assert_eq!(remote(&[flow(0, 1, 10), flow(0, 2, 30)], &latencies), (40, Some(157.5)));
        assert_eq!(remote(&[flow(2, 0, 4)], &latencies), (4, Some(-180.0)));
        assert_eq!(remote(&[flow(7, 0, 4)], &latencies), (4, None));
    }
}
