//! Writing a machine's file.

use crate::ConfigError;
use crate::{parse_machine, write_list, write_size};
use homenode_core::costs::{Constant, Cost, Shown, Unit};
use homenode_core::topology::{Hardware, Link, Node, SCHED_CAPACITY_SCALE};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

/// A machine as the text of its file, which [`crate::parse_machine`] reads back to
/// an equal value, if [`Hardware::check`] passes.
pub fn write_machine(m: &Hardware) -> String {
    let mut out = String::new();
    push(&mut out, m).expect("a String takes all");
    out
}

const HEAD: &str = "\
# A machine for homenode. Each constant has its unit, how it was found (method),
# the half distance between the quartiles where it was repeated (spread), and where
# it comes from (source): measured here, quoted from a publication, or assumed.
";
const NODES: &str = "\
# Nodes with what the kernel manages of them, by zone; an empty node has none.
";
const CPUS: &str = "\
# CPUs by node and last-level cache; CPUs with one number in \"cores\" are siblings.
";
const IDLE: &str = "\
# What CPUs without a task do, the shallowest first; see specs/idle.md#states.
";
const CURVES: &str = "\
# What an access takes that goes over so many bytes, over and over: the median over the rounds (time), and
# the tenth and ninetieth percentile beside it (low, high).
";
const LOADED: &str = "\
# How much later memory answers (times) at a share of its bandwidth; what has no such curve grows as published.
";
const COST: &str = "\
# What belongs to no pair of nodes. Where a key is left out, homenode assumes a value.
[cost]
";

fn push(out: &mut String, m: &Hardware) -> std::fmt::Result {
    out.push_str(HEAD);
    writeln!(out, "name = {}", text(&m.name))?;
    writeln!(out, "about = {}", text(&m.about))?;
    if let Some(why) = &m.defaults {
        writeln!(out, "defaults = {}", text(why))?;
    }
    let ids: Vec<String> = m.nodes.iter().map(|n| n.id.to_string()).collect();
    writeln!(out, "\n# The kernel's table: a row from each node to nodes {}.", ids.join(", "))?;
    writeln!(out, "distances = [")?;
    for row in &m.distances {
        let row: Vec<String> = row.iter().map(u32::to_string).collect();
        writeln!(out, "    [{}],", row.join(", "))?;
    }
    writeln!(out, "]\n")?;
    out.push_str(NODES);
    for n in &m.nodes {
        writeln!(out, "[[node]]")?;
        writeln!(out, "id = {}", n.id)?;
        writeln!(out, "medium = \"{}\"", n.medium.name())?;
        writeln!(out, "zones = [{}]\n", zones(n))?;
    }
    out.push_str(CPUS);
    let mut groups: Vec<(_, Vec<u32>, Vec<u32>)> = Vec::new();
    for c in &m.cpus {
        let alike = (c.node, c.llc, c.capacity, c.mhz);
        match groups.iter_mut().find(|g| g.0 == alike) {
            Some(g) => {
                g.1.push(c.id.0);
                g.2.push(c.core);
            }
            None => groups.push((alike, vec![c.id.0], vec![c.core])),
        }
    }
    for ((node, llc, capacity, mhz), ids, cores) in groups {
        writeln!(out, "[[cpus]]")?;
        writeln!(out, "ids = \"{}\"", write_list(&ids))?;
        writeln!(out, "node = {node}")?;
        writeln!(out, "cores = \"{}\"", write_list(&cores))?;
        writeln!(out, "llc = {llc}")?;
        if capacity != SCHED_CAPACITY_SCALE {
            writeln!(out, "capacity = {capacity}")?;
        }
        if let Some(mhz) = mhz {
            writeln!(out, "mhz = {mhz}")?;
        }
        writeln!(out)?;
    }
    for c in &m.caches {
        writeln!(out, "[[cache]]")?;
        writeln!(out, "level = {}", c.level)?;
        writeln!(out, "size = \"{}\"", write_size(c.size))?;
        writeln!(out, "ways = {}", c.ways)?;
        writeln!(out, "line = {}", c.line)?;
        writeln!(out, "shared_by = {}", c.shared_by)?;
        writeln!(out, "latency = {}\n", constant(&c.latency, Unit::Nanoseconds))?;
    }
    writeln!(out, "# What the CPUs of one node see in the memory of another, unloaded.")?;
    for Link { from, to, read_latency, write_latency, read_bandwidth, write_bandwidth } in &m.links
    {
        writeln!(out, "[[link]]")?;
        writeln!(out, "from = {from}")?;
        writeln!(out, "to = {to}")?;
        writeln!(out, "read_latency = {}", constant(read_latency, Unit::Nanoseconds))?;
        writeln!(out, "write_latency = {}", constant(write_latency, Unit::Nanoseconds))?;
        writeln!(out, "read_bandwidth = {}", constant(read_bandwidth, Unit::MBps))?;
        writeln!(out, "write_bandwidth = {}\n", constant(write_bandwidth, Unit::MBps))?;
    }
    if !m.idle_states.is_empty() {
        out.push_str(IDLE);
    }
    for s in &m.idle_states {
        writeln!(out, "[[idle_state]]")?;
        writeln!(out, "name = {}", text(&s.name))?;
        if s.polls {
            writeln!(out, "polls = true")?;
        } else {
            writeln!(out, "woken_by = \"{}\"", s.woken_by.name())?;
        }
        writeln!(out, "exit_latency = {}", constant(&s.exit_latency, Unit::Nanoseconds))?;
        writeln!(out, "target_residency = {}", constant(&s.target_residency, Unit::Nanoseconds))?;
        if let Some(wake) = &s.wake_latency {
            writeln!(out, "wake_latency = {}", constant(wake, Unit::Nanoseconds))?;
        }
        writeln!(out)?;
    }
    if !m.curves.is_empty() {
        out.push_str(CURVES);
    }
    for c in &m.curves {
        writeln!(out, "[[curve]]")?;
        writeln!(out, "walk = \"{}\"", c.walk.name())?;
        writeln!(out, "unit = \"{}\"", Unit::Nanoseconds.name())?;
        writeln!(out, "method = {}", text(&c.method))?;
        writeln!(out, "points = [")?;
        for p in &c.points {
            let [low, time, high] =
                [p.low, p.time, p.high].map(|ps| Shown(ps, Unit::Nanoseconds).to_string());
            let size = write_size(p.size);
            writeln!(
                out,
                "    {{ size = \"{size}\", low = {low}, time = {time}, high = {high} }},"
            )?;
        }
        writeln!(out, "]\n")?;
    }
    if !m.loaded.is_empty() {
        out.push_str(LOADED);
    }
    for l in &m.loaded {
        writeln!(out, "[[loaded]]")?;
        writeln!(out, "path = \"{}\"", l.path.name())?;
        writeln!(out, "duplex = {}", l.duplex)?;
        writeln!(out, "method = {}", text(&l.method))?;
        writeln!(out, "source = \"{}\"", l.origin.name())?;
        writeln!(out, "points = [")?;
        for p in &l.points {
            let [share, times] = [p.share, p.times].map(|v| Shown(v.into(), Unit::Ratio));
            writeln!(out, "    {{ share = {share}, times = {times} }},")?;
        }
        writeln!(out, "]\n")?;
    }
    out.push_str(COST);
    for &cost in Cost::ALL {
        if let Some(c) = m.costs.0.get(&cost) {
            writeln!(out, "{} = {}", cost.name(), constant(c, cost.unit()))?;
        }
    }
    Ok(())
}

fn zones(n: &Node) -> String {
    let zones = n.zones.iter().map(|z| (z.kind.name(), write_size(z.managed.bytes())));
    let zones = zones.map(|(kind, size)| format!("{{ kind = \"{kind}\", size = \"{size}\" }}"));
    zones.collect::<Vec<_>>().join(", ")
}

fn constant(c: &Constant, unit: Unit) -> String {
    let spread = c.spread.map_or(String::new(), |s| format!(", spread = {}", Shown(s, unit)));
    format!(
        "{{ value = {}, unit = \"{}\"{spread}, method = {}, source = \"{}\" }}",
        Shown(c.value, unit),
        unit.name(),
        text(&c.method),
        c.origin.name()
    )
}

/// A basic string on one line, also where the text has line ends or quotes.
fn text(s: &str) -> String {
    let mut out = String::from("\"");
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                write!(out, "\\u{:04X}", c as u32).expect("a String takes all");
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Writes a machine's file: beside it first, synced, then renamed over it, so that
/// the file has either the old content or all of the new.
///
/// # Errors
/// Where the machine is impossible (nothing is written then) or the file can't be
/// written (what was there stays, and nothing is left beside it).
pub fn write_machine_file(path: &Path, m: &Hardware) -> Result<(), ConfigError> {
    let file = path.display().to_string();
    let content = write_machine(m);
    match parse_machine(&file, &content) {
        Ok(back) if back == *m => {}
        Ok(_) => {
            let what = "not written: the machine does not come back equal from its file";
            return Err(ConfigError::new(&file, None, what));
        }
        Err(e) => {
            return Err(ConfigError { at: None, what: format!("not written: {}", e.what), ..e });
        }
    }
    let cannot = |e| ConfigError::file(&file, "cannot be written", e);
    let Some(name) = path.file_name() else {
        return Err(cannot(std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "the path names no file",
        )));
    };
    let mut beside_name = std::ffi::OsString::from(".");
    beside_name.push(name);
    beside_name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(beside_name);
    let written = (|| {
        let mut f = std::fs::File::create(&beside)?;
        f.write_all(content.as_bytes())?;
        f.sync_all()?;
        std::fs::rename(&beside, path)
    })();
    written.map_err(|e| {
        // Best effort: the error to report is the first one.
        let _ = std::fs::remove_file(&beside);
        cannot(e)
    })
}
