//! "What if this machine had a CXL node": adding a node from a published part,
//! and shrinking the DRAM beside it.
//!
//! A part's file (`machines/parts/`) gives the latency that CPUs of the socket it
//! is plugged into see. On a machine whose own DRAM is slower than the published
//! one's (a virtual machine's, say), an expander would come out as near as DRAM;
//! so the latency is at least local DRAM's plus the least addition published.
//!
//! | seen from                   | read latency                                   | bandwidth                      |
//! |-----------------------------|------------------------------------------------|--------------------------------|
//! | the node it is plugged into | max(part's, local DRAM's + least addition)      | min(part's, local DRAM's)      |
//! | another node                | that + (its latency to the plug node − local)   | min(that, its to the plug node)|
//!
//! Example: local DRAM 80.8 ns, the other socket 140.4 ns, part 275 ns, least
//! addition 70 ns: 275 ns from the plug node, 275 + (140.4 − 80.8) = 334.6 ns
//! from the other.

use crate::ConfigError;
use crate::machine::{PartFile, parse_part};
use homenode_core::costs::{Constant, Shown, Unit};
use homenode_core::topology::{
    BANDWIDTH_BOUNDS, Hardware, Impossible, LATENCY_BOUNDS, LOCAL_DISTANCE, Link, MAX_DISTANCE,
    Medium, Node, Zone, ZoneKind,
};
use homenode_core::units::{Bytes, NodeId, PAGE_SIZE, Pages, count};
use thiserror::Error;

homenode_core::named! {
    /// A published part that `--add-node` knows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Part {
        /// A CXL memory expander: `machines/parts/cxl.toml`.
        Cxl => "cxl",
        /// Persistent memory modules: `machines/parts/pmem.toml`.
        Pmem => "pmem",
    }
}

impl Part {
    fn file(self) -> Result<PartFile, ConfigError> {
        match self {
            Self::Cxl => parse_part(
                "machines/parts/cxl.toml",
                include_str!("../../../machines/parts/cxl.toml"),
            ),
            Self::Pmem => parse_part(
                "machines/parts/pmem.toml",
                include_str!("../../../machines/parts/pmem.toml"),
            ),
        }
    }
}

/// How large an added node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Half of the program's memory, which only the recording knows.
    Half,
    /// So many bytes.
    Bytes(Bytes),
}

/// What `--add-node` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddNode {
    /// Which part.
    pub part: Part,
    /// How large.
    pub size: Size,
}

/// Why a machine can't be changed so.
#[derive(Debug, Error)]
pub enum PartError {
    /// The text of `--add-node` is not PART:SIZE.
    #[error(
        "\"{given}\" adds no node: {what}; write PART:SIZE such as cxl:half, cxl:16GiB or pmem:64GiB"
    )]
    Spec {
        /// What was given.
        given: String,
        /// What is wrong with it.
        what: String,
    },
    /// A built-in part's file is broken.
    #[error(transparent)]
    File(#[from] ConfigError),
    /// No node of the machine has both CPUs and memory.
    #[error("the machine \"{0}\" has no node with both CPUs and memory to plug a part into")]
    NoPlug(String),
    /// The DRAM can't have that size.
    #[error(
        "DRAM of {}: the machine \"{machine}\" has {has} bytes of it, in {}, each of which keeps at least one page",
        count(*wanted, "byte", "bytes"),
        count(*nodes as u64, "DRAM node", "DRAM nodes")
    )]
    Dram {
        /// The machine's name.
        machine: String,
        /// What was asked for.
        wanted: u64,
        /// What there is.
        has: u64,
        /// Nodes with DRAM.
        nodes: usize,
    },
    /// The result can't exist.
    #[error("the changed machine is impossible: {0}")]
    Impossible(#[from] Impossible),
}

/// Reads `cxl:half`, `cxl:16GiB`, `pmem:64GiB`.
///
/// # Errors
/// [`PartError::Spec`], which says what is allowed.
pub fn parse_add_node(spec: &str) -> Result<AddNode, PartError> {
    let wrong = |what: String| PartError::Spec { given: spec.to_owned(), what };
    let (part, size) = spec.split_once(':').ok_or_else(|| wrong("the size is missing".into()))?;
    let part = Part::ALL
        .into_iter()
        .find(|p| p.name() == part)
        .ok_or_else(|| wrong(format!("no part is named \"{part}\"; there are cxl and pmem")))?;
    let size = match size {
        "half" => Size::Half,
        _ => Size::Bytes(crate::parse_size(size).map_err(wrong)?),
    };
    Ok(AddNode { part, size })
}

/// The machine with a node of a part beside the first node that has CPUs and
/// memory.
///
/// * `size` – rounded up to pages. The memory is one movable zone, as `daxctl`
///   onlines it.
///
/// # Errors
/// Where there is nothing to plug it into, or the size is 0 or beyond 2^52.
pub fn add_node(machine: &Hardware, part: Part, size: Bytes) -> Result<Hardware, PartError> {
    let file = part.file()?;
    let no_plug = || PartError::NoPlug(machine.name.clone());
    machine.check()?;
    let fits = |n: &&Node| !n.zones.is_empty() && machine.has_cpu(n.id);
    let plug = machine.nodes.iter().find(fits).ok_or_else(no_plug)?.id;
    let local = machine.link(plug, plug).ok_or_else(no_plug)?;
    let id = NodeId(machine.nodes.last().map_or(0, |n| n.id.0.saturating_add(1)));

    let mut m = machine.clone();
    m.name = format!("{}+{}", machine.name, part.name());
    m.nodes.push(Node {
        id,
        medium: file.medium,
        zones: vec![Zone { kind: ZoneKind::Movable, managed: Pages(size.0.div_ceil(PAGE_SIZE)) }],
    });
    let further = file.distance - LOCAL_DISTANCE;
    let mut to_new = Vec::new();
    for (row, node) in m.distances.iter_mut().zip(&machine.nodes) {
        let d = machine.distance(node.id, plug).ok_or_else(no_plug)?;
        let d = (d + further).min(MAX_DISTANCE);
        row.push(d);
        to_new.push(
            (machine.distance(plug, node.id).ok_or_else(no_plug)? + further).min(MAX_DISTANCE),
        );
    }
    to_new.push(LOCAL_DISTANCE);
    m.distances.push(to_new);

    let here = Link {
        from: plug,
        to: id,
        read_latency: latency(&file.read_latency, &local.read_latency, &file, plug),
        write_latency: latency(&file.write_latency, &local.write_latency, &file, plug),
        read_bandwidth: bandwidth(&file.read_bandwidth, &local.read_bandwidth, plug),
        write_bandwidth: bandwidth(&file.write_bandwidth, &local.write_bandwidth, plug),
    };
    for node in machine.nodes.iter().filter(|n| n.id != plug && machine.has_cpu(n.id)) {
        let way = machine.link(node.id, plug).ok_or_else(no_plug)?;
        let past = |get: fn(&Link) -> &Constant| past(get(&here), get(way), get(local), plug);
        m.links.push(Link {
            from: node.id,
            to: id,
            read_latency: past(|l| &l.read_latency),
            write_latency: past(|l| &l.write_latency),
            read_bandwidth: bandwidth(&here.read_bandwidth, &way.read_bandwidth, plug),
            write_bandwidth: bandwidth(&here.write_bandwidth, &way.write_bandwidth, plug),
        });
    }
    m.links.push(here);
    m.check()?;
    Ok(m)
}

/// The part's latency, or local DRAM's plus the least addition where that is more.
fn latency(part: &Constant, local: &Constant, file: &PartFile, plug: NodeId) -> Constant {
    let least = local.value.saturating_add(file.least_added_latency.value).min(LATENCY_BOUNDS.1);
    if part.value >= least {
        return part.clone();
    }
    let method = format!(
        "node {plug}'s own {} ns plus {} ns, since the part's published {} ns would be nearer: {}",
        Shown(local.value, Unit::Nanoseconds),
        Shown(file.least_added_latency.value, Unit::Nanoseconds),
        Shown(part.value, Unit::Nanoseconds),
        file.least_added_latency.method
    );
    Constant::assumed(least, &method)
}

/// Through the plug node, adding what the way there adds.
fn past(here: &Constant, way: &Constant, local: &Constant, plug: NodeId) -> Constant {
    let added = way.value.saturating_sub(local.value);
    let shown = Shown(added, Unit::Nanoseconds);
    let method = format!("what node {plug} sees plus the {shown} ns of the way there");
    Constant::assumed(here.value.saturating_add(added).min(LATENCY_BOUNDS.1), &method)
}

fn bandwidth(part: &Constant, way: &Constant, plug: NodeId) -> Constant {
    if part.value <= way.value {
        return part.clone();
    }
    let method = format!(
        "limited to what these CPUs reach in node {plug}'s memory; the part alone: {} MB/s",
        part.value
    );
    Constant::assumed(way.value.clamp(BANDWIDTH_BOUNDS.0, BANDWIDTH_BOUNDS.1), &method)
}

/// The machine with its DRAM shrunk to `new_size` in all, every DRAM node by the
/// same share, from its highest zone down, as if the memory had never been
/// plugged in.
///
/// * `new_size` – rounded up to pages.
///
/// # Errors
/// [`PartError::Dram`] where that is more than there is, or less than a page a node.
pub fn shrink_dram(machine: &Hardware, new_size: Bytes) -> Result<Hardware, PartError> {
    machine.check()?;
    let is_dram = |n: &Node| n.medium == Medium::Dram && !n.zones.is_empty();
    let has: u64 = machine.nodes.iter().filter(|n| is_dram(n)).map(|n| n.managed().0).sum();
    let nodes = machine.nodes.iter().filter(|n| is_dram(n)).count();
    let wanted = new_size.0.div_ceil(PAGE_SIZE);
    if wanted > has || wanted < nodes as u64 || nodes == 0 {
        return Err(PartError::Dram {
            machine: machine.name.clone(),
            wanted: new_size.0,
            has: has.saturating_mul(PAGE_SIZE),
            nodes,
        });
    }
    let mut m = machine.clone();
    // Shares of the running total, so that the parts add up exactly; a node whose
    // share rounds to nothing takes its page from what is left to the others.
    let (mut seen, mut given, mut left) = (0u128, 0u64, nodes as u64);
    for node in m.nodes.iter_mut().filter(|n| is_dram(n)) {
        let own = node.managed().0;
        seen += u128::from(own);
        left -= 1;
        let due = (u128::from(wanted) * seen / u128::from(has)) as u64;
        let keep = due.saturating_sub(given).max(1).min(wanted - given - left).min(own);
        given += keep;
        let mut room = keep;
        for zone in &mut node.zones {
            zone.managed = Pages(zone.managed.0.min(room));
            room -= zone.managed.0;
        }
        node.zones.retain(|z| z.managed.0 > 0);
    }
    debug_assert_eq!(given, wanted);
    m.check()?;
    Ok(m)
}
