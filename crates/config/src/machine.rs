//! Reading a machine's file.

use crate::ConfigError;
use crate::quantity::{Decimal, stored};
use crate::tree::{Cur, Doc, Fields, Kind, Seg};
use homenode_core::costs::{Constant, Cost, Costs, Origin, Shown, Unit};
use homenode_core::curve::{Curve, Point, TIME_BOUNDS, Walk, Wrong};
use homenode_core::loaded::{self, Loaded};
use homenode_core::topology::{
    BANDWIDTH_BOUNDS, Cache, Cpu, Hardware, IDLE_BOUNDS, IdleCosts, Impossible, LATENCY_BOUNDS,
    Link, List, MAX_CPUS, MAX_NODES, MHZ_BOUNDS, Medium, Node, Place, SCHED_CAPACITY_SCALE,
    WokenBy, Zone, ZoneKind,
};
use homenode_core::units::{CpuId, NodeId, PAGE_SIZE, Pages, count};
use std::collections::BTreeMap;
use std::path::Path;

/// Reads a machine's file.
///
/// # Errors
/// The first thing that is wrong with it, with file, line and key.
pub fn read_machine(path: &Path) -> Result<Hardware, ConfigError> {
    from_doc(&Doc::read(path)?)
}

/// Reads a machine from a text; `name` is the file's name in errors.
///
/// # Errors
/// As [`read_machine`].
pub fn parse_machine(name: &str, text: &str) -> Result<Hardware, ConfigError> {
    from_doc(&Doc::parse(name, text)?)
}

fn from_doc(doc: &Doc) -> Result<Hardware, ConfigError> {
    let top = doc.root().table(&[
        "name",
        "about",
        "distances",
        "node",
        "cpus",
        "cache",
        "link",
        "idle_state",
        "curve",
        "loaded",
        "defaults",
        "cost",
    ])?;
    let name = top.get("name")?.text()?.to_owned();
    let about = top.get("about")?.text()?.to_owned();
    let distances = distances(&top.get("distances")?)?;
    let nodes = top.get("node")?.list()?.iter().map(node).collect::<Result<_, _>>()?;
    let mut cpus = Vec::new();
    let mut groups = BTreeMap::new();
    for (i, group) in top.get("cpus")?.list()?.iter().enumerate() {
        for cpu in cpu_group(group)? {
            groups.insert(cpu.id, i);
            cpus.push(cpu);
        }
    }
    cpus.sort_by_key(|c| c.id);
    let caches = match top.opt("cache") {
        Some(list) => list.list()?.iter().map(cache).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    let links = top.get("link")?.list()?.iter().map(link).collect::<Result<_, _>>()?;
    let idle_states = match top.opt("idle_state") {
        Some(list) => list.list()?.iter().map(idle_state).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    let curves = match top.opt("curve") {
        Some(list) => list.list()?.iter().map(curve).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    let loaded = match top.opt("loaded") {
        Some(list) => list.list()?.iter().map(loaded).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    let defaults = top.opt("defaults").map(|why| sentence(&why)).transpose()?;
    let mut costs = Costs::default();
    if let Some(table) = top.opt("cost") {
        let names: Vec<&str> = Cost::ALL.iter().map(|c| c.name()).collect();
        let fields = table.table(&names)?;
        for &cost in Cost::ALL {
            if let Some(c) = fields.opt(cost.name()) {
                costs.0.insert(cost, constant(&c, cost.unit(), cost.bounds())?);
            }
        }
    }
    let machine = Hardware {
        name,
        about,
        nodes,
        cpus,
        caches,
        distances,
        links,
        idle_states,
        curves,
        loaded,
        defaults,
        costs,
    };
    machine.check().map_err(|e| {
        let path = place(&machine, &groups, &e);
        doc.error_at(&path, e.to_string())
    })?;
    Ok(machine)
}

/// Why what the file leaves out is homenode's on purpose.
fn sentence(c: &Cur<'_>) -> Result<String, ConfigError> {
    let text = c.text()?.trim();
    if text.is_empty() {
        return Err(
            c.error("empty; say why costs that the file leaves out are as homenode assumes them")
        );
    }
    Ok(text.to_owned())
}

/// Where in the file an impossible machine's offender stands.
fn place(machine: &Hardware, groups: &BTreeMap<CpuId, usize>, e: &Impossible) -> Vec<Seg> {
    use Seg::{At, Key};
    let index = |id: &NodeId| At(machine.nodes.iter().rposition(|n| n.id == *id).unwrap_or(0));
    match e {
        Impossible::Nothing(_) => vec![],
        Impossible::Order(List::Nodes, i, _) => vec![Key("node"), At(*i), Key("id")],
        Impossible::Order(List::Cpus, i, _) => {
            vec![Key("cpus"), At(groups[&machine.cpus[*i].id]), Key("ids")]
        }
        Impossible::Order(List::Caches, i, _) => vec![Key("cache"), At(*i), Key("level")],
        Impossible::Cpu(cpu, _) => vec![Key("cpus"), At(groups[cpu])],
        Impossible::Zones(node, z, _) | Impossible::Size(node, z, _) => {
            vec![Key("node"), index(node), Key("zones"), At(*z)]
        }
        Impossible::Shape(None, _) => vec![Key("distances")],
        Impossible::Shape(Some(row), _) => vec![Key("distances"), At(*row)],
        Impossible::Distance(from, to, ..) => vec![Key("distances"), index(from), index(to)],
        Impossible::Link(from, to, _) => {
            match machine.links.iter().rposition(|l| l.from == *from && l.to == *to) {
                Some(i) => vec![Key("link"), At(i)],
                None => vec![Key("link")],
            }
        }
        Impossible::Cache(i, _) | Impossible::Bounds(Place::Cache(i), _) => {
            vec![Key("cache"), At(*i)]
        }
        Impossible::Idle(i, key, _) | Impossible::Bounds(Place::Idle(i, key), _) => {
            vec![Key("idle_state"), At(*i), Key(key)]
        }
        Impossible::Curve(i, wrong) => of_curve("curve", *i, wrong),
        Impossible::Loaded(i, wrong) => of_curve("loaded", *i, wrong),
        Impossible::Bounds(Place::Link(i, key), _) => vec![Key("link"), At(*i), Key(key)],
        Impossible::Bounds(Place::Cost(cost), _) => vec![Key("cost"), Key(cost.name())],
    }
}

/// Where what is wrong with a curve of a list stands.
fn of_curve(list: &'static str, i: usize, wrong: &Wrong) -> Vec<Seg> {
    use Seg::{At, Key};
    match wrong.point {
        None => vec![Key(list), At(i), Key(wrong.key)],
        Some(p) => vec![Key(list), At(i), Key("points"), At(p), Key(wrong.key)],
    }
}

fn distances(c: &Cur<'_>) -> Result<Vec<Vec<u32>>, ConfigError> {
    let number = |d: &Cur<'_>| d.int(0, u32::MAX.into()).map(|v| v as u32);
    c.list()?.iter().map(|row| row.list()?.iter().map(number).collect()).collect()
}

fn node(c: &Cur<'_>) -> Result<Node, ConfigError> {
    let t = c.table(&["id", "medium", "size", "zones"])?;
    let zones = match (t.opt("zones"), t.opt("size")) {
        (Some(_), Some(size)) => {
            return Err(size.error("a node has either a size or zones, whose sum is its size"));
        }
        (Some(zones), None) => zones.list()?.iter().map(zone).collect::<Result<_, _>>()?,
        (None, Some(size)) => vec![Zone { kind: ZoneKind::Normal, managed: pages(&size)? }],
        (None, None) => vec![],
    };
    Ok(Node {
        id: node_id(&t.get("id")?)?,
        medium: t.opt("medium").map_or(Ok(Medium::Dram), |m| m.word(&media()))?,
        zones,
    })
}

fn media() -> [(&'static str, Medium); 3] {
    Medium::ALL.map(|m| (m.name(), m))
}

fn zone(c: &Cur<'_>) -> Result<Zone, ConfigError> {
    let t = c.table(&["kind", "size"])?;
    Ok(Zone {
        kind: t.get("kind")?.word(&ZoneKind::ALL.map(|k| (k.name(), k)))?,
        managed: pages(&t.get("size")?)?,
    })
}

fn pages(c: &Cur<'_>) -> Result<Pages, ConfigError> {
    let size = c.size()?;
    if size.0 % PAGE_SIZE != 0 {
        return Err(c.error(format!(
            "{} no whole number of pages of {PAGE_SIZE} bytes",
            count(size.0, "byte is", "bytes are")
        )));
    }
    Ok(Pages::holding(size))
}

pub(crate) fn node_id(c: &Cur<'_>) -> Result<NodeId, ConfigError> {
    Ok(NodeId(c.int(0, u64::from(MAX_NODES) - 1)? as u16))
}

fn cpu_group(c: &Cur<'_>) -> Result<Vec<Cpu>, ConfigError> {
    let t = c.table(&["ids", "node", "cores", "llc", "capacity", "mhz"])?;
    let ids = t.get("ids")?.numbers(MAX_CPUS - 1)?;
    let node = node_id(&t.get("node")?)?;
    let cores = match t.opt("cores") {
        Some(list) => {
            let cores = list.numbers(u32::MAX)?;
            if cores.len() != ids.len() {
                return Err(list.error(format!(
                    "{} for {}; there is one per CPU, in the order of \"ids\"",
                    count(cores.len() as u64, "core", "cores"),
                    count(ids.len() as u64, "CPU", "CPUs")
                )));
            }
            cores
        }
        None => ids.clone(),
    };
    let llc = t.get("llc")?.int(0, u32::MAX.into())? as u32;
    let full = SCHED_CAPACITY_SCALE;
    let capacity = t.opt("capacity").map_or(Ok(full.into()), |c| c.int(1, full.into()))? as u32;
    let (low, high) = MHZ_BOUNDS;
    let mhz = t.opt("mhz").map(|c| c.int(low.into(), high.into())).transpose()?;
    let mhz = mhz.map(|mhz| mhz as u32);
    let cpu = |(&id, core)| Cpu { id: CpuId(id), node, core, llc, capacity, mhz };
    Ok(ids.iter().zip(cores).map(cpu).collect())
}

fn cache(c: &Cur<'_>) -> Result<Cache, ConfigError> {
    let t = c.table(&["level", "size", "ways", "line", "shared_by", "latency"])?;
    Ok(Cache {
        level: t.get("level")?.int(1, 9)? as u8,
        size: t.get("size")?.size()?,
        ways: t.get("ways")?.int(1, u32::MAX.into())? as u32,
        line: t.get("line")?.int(1, PAGE_SIZE)? as u32,
        shared_by: t.get("shared_by")?.int(1, MAX_CPUS.into())? as u32,
        latency: constant(&t.get("latency")?, Unit::Nanoseconds, LATENCY_BOUNDS)?,
    })
}

fn curve(c: &Cur<'_>) -> Result<Curve, ConfigError> {
    let t = c.table(&["walk", "unit", "method", "points"])?;
    let unit = t.get("unit")?;
    if unit.text()? != Unit::Nanoseconds.name() {
        return Err(unit.error(format!("\"{}\" does not fit; a curve is in ns", unit.text()?)));
    }
    let method = t.get("method")?;
    if method.text()?.trim().is_empty() {
        return Err(method.error("empty; say how it was measured"));
    }
    let point = |c: &Cur<'_>| -> Result<Point, ConfigError> {
        let t = c.table(&["size", "low", "time", "high"])?;
        let time = |key| amount(&t.get(key)?, Unit::Nanoseconds, TIME_BOUNDS);
        let (low, median, high) = (time("low")?, time("time")?, time("high")?);
        Ok(Point { size: t.get("size")?.size()?, low, time: median, high })
    };
    Ok(Curve {
        walk: t.get("walk")?.word(&Walk::ALL.map(|w| (w.name(), w)))?,
        method: method.text()?.to_owned(),
        points: t.get("points")?.list()?.iter().map(point).collect::<Result<_, _>>()?,
    })
}

fn loaded(c: &Cur<'_>) -> Result<Loaded, ConfigError> {
    let t = c.table(&["path", "duplex", "method", "source", "points"])?;
    let method = t.get("method")?;
    if method.text()?.trim().is_empty() {
        return Err(method.error("empty; say how it was measured, or who published it"));
    }
    let point = |c: &Cur<'_>| -> Result<loaded::Point, ConfigError> {
        let t = c.table(&["share", "times"])?;
        let ratio = |key, bounds| amount(&t.get(key)?, Unit::Ratio, bounds);
        let share = ratio("share", loaded::SHARE_BOUNDS)? as u32;
        Ok(loaded::Point { share, times: ratio("times", loaded::TIMES_BOUNDS)? as u32 })
    };
    Ok(Loaded {
        path: t.get("path")?.word(&loaded::Path::ALL.map(|p| (p.name(), p)))?,
        duplex: t.opt("duplex").map_or(Ok(false), |c| c.bool())?,
        method: method.text()?.to_owned(),
        origin: t.get("source")?.word(&Origin::ALL.map(|o| (o.name(), o)))?,
        points: t.get("points")?.list()?.iter().map(point).collect::<Result<_, _>>()?,
    })
}

fn idle_state(c: &Cur<'_>) -> Result<IdleCosts, ConfigError> {
    let t = c.table(&[
        "name",
        "polls",
        "woken_by",
        "exit_latency",
        "target_residency",
        "wake_latency",
    ])?;
    let polls = t.opt("polls").map_or(Ok(false), |c| c.bool())?;
    let time = |c: Cur<'_>| constant(&c, Unit::Nanoseconds, IDLE_BOUNDS);
    // Who polls sees a store; of all others the file says it.
    let woken_by = match (t.opt("woken_by"), polls) {
        (Some(c), _) => c.word(&WokenBy::ALL.map(|w| (w.name(), w)))?,
        (None, true) => WokenBy::Store,
        (None, false) => WokenBy::default(),
    };
    Ok(IdleCosts {
        name: t.get("name")?.text()?.to_owned(),
        polls,
        woken_by,
        exit_latency: time(t.get("exit_latency")?)?,
        target_residency: time(t.get("target_residency")?)?,
        wake_latency: t.opt("wake_latency").map(time).transpose()?,
    })
}

fn link(c: &Cur<'_>) -> Result<Link, ConfigError> {
    let t = c.table(&[
        "from",
        "to",
        "read_latency",
        "write_latency",
        "read_bandwidth",
        "write_bandwidth",
    ])?;
    Ok(Link {
        from: node_id(&t.get("from")?)?,
        to: node_id(&t.get("to")?)?,
        read_latency: latency(&t, "read_latency")?,
        write_latency: latency(&t, "write_latency")?,
        read_bandwidth: bandwidth(&t, "read_bandwidth")?,
        write_bandwidth: bandwidth(&t, "write_bandwidth")?,
    })
}

pub(crate) fn latency(t: &Fields<'_>, key: &str) -> Result<Constant, ConfigError> {
    constant(&t.get(key)?, Unit::Nanoseconds, LATENCY_BOUNDS)
}

pub(crate) fn bandwidth(t: &Fields<'_>, key: &str) -> Result<Constant, ConfigError> {
    constant(&t.get(key)?, Unit::MBps, BANDWIDTH_BOUNDS)
}

fn constant(c: &Cur<'_>, unit: Unit, bounds: (u64, u64)) -> Result<Constant, ConfigError> {
    let t = c.table(&["value", "unit", "spread", "method", "source"])?;
    let found = t.get("unit")?;
    if found.text()? != unit.name() {
        return Err(found.error(format!(
            "\"{}\" does not fit; this constant is in {}",
            found.text()?,
            unit.name()
        )));
    }
    let origin = t.get("source")?.word(&Origin::ALL.map(|o| (o.name(), o)))?;
    let method = t.get("method")?;
    if method.text()?.trim().is_empty() {
        return Err(
            method.error("empty; say how it was found, who published it, or why this value")
        );
    }
    Ok(Constant {
        value: amount(&t.get("value")?, unit, bounds)?,
        spread: t.opt("spread").map(|s| amount(&s, unit, (0, bounds.1))).transpose()?,
        method: method.text()?.to_owned(),
        origin,
    })
}

fn amount(c: &Cur<'_>, unit: Unit, (low, high): (u64, u64)) -> Result<u64, ConfigError> {
    let allowed =
        format!("allowed are {} to {} {}", Shown(low, unit), Shown(high, unit), unit.name());
    let Kind::Number(raw) = &c.val.kind else {
        return Err(c.error(format!("expected a number; {allowed}")));
    };
    match stored(raw, unit.scale()) {
        Ok(v) if (low..=high).contains(&v) => Ok(v),
        Ok(_) | Err(Decimal::TooLarge) => Err(c.error(format!("{raw} is out of range; {allowed}"))),
        Err(Decimal::Negative) => Err(c.error(format!("{raw} is negative; {allowed}"))),
        Err(Decimal::NotPlain) => Err(c.error(format!("{raw} is no plain number; {allowed}"))),
        Err(Decimal::TooFine) if unit.scale() == 1 => {
            Err(c.error(format!("{raw} is not whole; {allowed}, without decimals")))
        }
        Err(Decimal::TooFine) => {
            Err(c.error(format!("{raw} is too fine; {allowed}, with three decimals at most")))
        }
    }
}

/// What a part's file says: see [`crate::Part`].
pub(crate) struct PartFile {
    pub(crate) medium: Medium,
    pub(crate) distance: u32,
    pub(crate) read_latency: Constant,
    pub(crate) write_latency: Constant,
    pub(crate) read_bandwidth: Constant,
    pub(crate) write_bandwidth: Constant,
    pub(crate) least_added_latency: Constant,
}

pub(crate) fn parse_part(name: &str, text: &str) -> Result<PartFile, ConfigError> {
    let doc = Doc::parse(name, text)?;
    let t = doc.root().table(&[
        "name",
        "about",
        "medium",
        "distance",
        "read_latency",
        "write_latency",
        "read_bandwidth",
        "write_bandwidth",
        "least_added_latency",
    ])?;
    t.get("name")?.text()?;
    t.get("about")?.text()?;
    Ok(PartFile {
        medium: t.get("medium")?.word(&media())?,
        distance: t.get("distance")?.int(11, 254)? as u32,
        read_latency: latency(&t, "read_latency")?,
        write_latency: latency(&t, "write_latency")?,
        read_bandwidth: bandwidth(&t, "read_bandwidth")?,
        write_bandwidth: bandwidth(&t, "write_bandwidth")?,
        least_added_latency: latency(&t, "least_added_latency")?,
    })
}
