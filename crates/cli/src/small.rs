//! What captions say of a machine that stands for a larger one, or that should.

use crate::knobs::Setting;
use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::Knobs;
use homenode_core::scale::Scale;
use homenode_core::scenario::Margin;
use homenode_core::tiering::watermarks::MarkKnobs;
use homenode_core::topology::Hardware;
use homenode_core::units::Bytes;
use homenode_report as report;
use homenode_sim::Setup;

/// What is scaled down, for captions; nothing where the machine stands for itself.
pub(crate) fn scales(scale: Scale) -> Vec<report::Scale> {
    let down = report::Scale { what: "memory and time".into(), factor: scale.factor() };
    if scale.is_as_is() { Vec::new() } else { vec![down] }
}

/// What the machine stands for: `stands for nodes of 16 GiB (dram) and 32 GiB (cxl)`.
pub(crate) fn stands_for(machine: &Hardware, scale: Scale) -> Option<String> {
    if scale.is_as_is() {
        return None;
    }
    let with_memory = machine.nodes.iter().filter(|n| n.managed().0 > 0);
    let whole = |b: Bytes| crate::nodes::size(Bytes(scale.whole(b.0)));
    let all: Vec<String> =
        with_memory.map(|n| format!("{} ({})", whole(n.size()), n.medium.name())).collect();
    let nodes = if all.len() == 1 { "a node" } else { "nodes" };
    Some(format!("stands for {nodes} of {}", all.join(" and ")))
}

/// Knobs that hang on the scale, as the kernel has them after what was written to it.
pub(crate) fn amounts(
    machine: &Hardware,
    scale: Scale,
    version: KernelVersion,
    margin: Margin,
    written: &[Setting],
) -> String {
    let knobs = booted(scale, version, written);
    let reserve = MarkKnobs::new(&knobs, margin, &machine.zones()).min_free_kbytes;
    let mut all = vec![
        ("min_free_kbytes", reserve),
        ("scan_size_mb", knobs.scan_size_mb.into()),
        ("scan_delay_ms", knobs.scan_delay_ms.into()),
        ("scan_period_min_ms", knobs.scan_period_min_ms.into()),
        ("scan_period_max_ms", knobs.scan_period_max_ms.into()),
    ];
    if version >= KernelVersion::V6_1 {
        all.push(("hot_threshold_ms", knobs.hot_threshold_ms.into()));
    }
    let all: Vec<String> = all.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("knobs at 1:{}: {}", scale.factor(), all.join(", "))
}

/// Where the kernel keeps more than a hundredth of a node free: that is so on small machines only.
pub(crate) fn loses(machine: &Hardware, setup: &Setup) -> Option<String> {
    let knobs = booted(setup.scale, setup.version, &setup.knobs);
    let marks = MarkKnobs::new(&knobs, setup.model.margin, &machine.zones());
    let shares = machine.nodes.iter().filter(|n| n.managed().0 > 0).map(|n| {
        let per_mille = marks.kept(&n.zones).0 * 1000 / n.managed().0;
        (per_mille, n.id)
    });
    let (most, node) = shares.max_by_key(|(share, _)| *share)?;
    (most > 10).then(|| {
        format!(
            "the kernel keeps {}.{} % of node {node} free, as on any machine so small; stands_for in \
             the scenario makes it keep what a large one keeps",
            most / 10,
            most % 10
        )
    })
}

/// The knobs of a kernel after what was written to them.
pub(crate) fn booted(scale: Scale, version: KernelVersion, written: &[Setting]) -> Knobs {
    let mut knobs = Knobs::new(version).scaled(scale);
    for (knob, value) in written {
        // Whoever runs it has refused what this kernel does not take.
        let _ = knobs.set(knob, value);
    }
    knobs
}
