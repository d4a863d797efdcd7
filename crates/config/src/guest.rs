//! `[[guest]]`: a virtual machine with a declared mix of pages, written out as a process.
//!
//! ```text
//! [[guest]]                      process "vm-0": map "zero", 256 pages
//! name = "vm"                                    map "image-debian", 512 pages
//! count = 2                                      map "own", 256 pages
//! cpus = ["0", "4"]        ──▶                   touch each, sleep until the end
//! node = [0, 1]                  process "vm-1": the same on CPU 4 and node 1
//! memory = "4 MiB"
//! zero = 250
//! image = { name = "debian", share = 500 }
//! do = "idle"
//! ```
//!
//! Nothing behind this file knows of guests: what they do is told in the words that
//! all processes have.
//!
//! Source: specs/guests.md.

use crate::ConfigError;
use crate::machine::node_id;
use crate::map::distinct;
use crate::policy::policy_of;
use crate::tree::{Cur, Fields, Kind, Seg};
use homenode_core::scenario::{Again, Content, Map, Mempolicy, Pattern, Process, Step, Until};
use homenode_core::topology::MAX_CPUS;
use homenode_core::units::{Bytes, CpuId, NodeId, Pages, Picos, count};

/// Guests of one entry. More than any host of today runs; a slip of the finger is told.
const MAX_COUNT: u64 = 4096;

/// Thousandths of the whole.
const WHOLE: u64 = 1000;

/// A process and where in the file its CPUs and its node stand.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(crate) process: Process,
    pub(crate) cpus: Vec<Seg>,
    pub(crate) policy: Vec<Seg>,
}

/// A part of a guest's memory.
struct Part {
    name: String,
    share: u64,
    content: Content,
}

/// How a guest has its memory merged.
#[derive(Clone, Copy)]
enum Merge {
    None,
    Madvise,
    Prctl,
}

/// The guests of one entry, the `at`-th of the file.
///
/// * `duration` – the scenario's: an idle guest needs no other end.
///
/// Source: specs/guests.md#keys.
pub(crate) fn guests(
    c: &Cur<'_>,
    at: usize,
    duration: Option<Picos>,
) -> Result<Vec<Guest>, ConfigError> {
    let t = c.table(&[
        "name", "count", "cpus", "node", "policy", "memory", "huge", "merge", "zero", "image",
        "own", "volatile", "start", "apart", "do", "time", "settle", "rounds", "pause", "write",
    ])?;
    let name = t.get("name")?.text()?;
    let count = t.opt("count").map(|n| n.int(1, MAX_COUNT)).transpose()?;
    let cpus = places(&t.get("cpus")?, |c| c.numbers(MAX_CPUS - 1))?;
    let home = home(&t)?;
    let merge = t.opt("merge").map_or(Ok(Merge::Madvise), |c| {
        c.word(&[("madvise", Merge::Madvise), ("prctl", Merge::Prctl), ("none", Merge::None)])
    })?;
    let huge = t.opt("huge").map(|c| c.bool()).transpose()?;
    let (parts, every) = mix(&t)?;
    let maps: Vec<Map> = sized(&t, parts)?
        .into_iter()
        .map(|(part, pages)| Map {
            name: part.name,
            size: pages.bytes(),
            huge,
            content: part.content,
            mergeable: matches!(merge, Merge::Madvise),
            ..Map::default()
        })
        .collect();
    let steps = steps(&t, &maps, every, duration)?;
    let start = t.opt("start").map_or(Ok(Picos::ZERO), |s| s.time())?;
    let apart = t.opt("apart").map_or(Ok(Picos::ZERO), |s| s.time())?;
    (0..count.unwrap_or(1))
        .map(|i| {
            let segs = |key: &'static str, place: Option<usize>| {
                let mut path = vec![Seg::Key("guest"), Seg::At(at), Seg::Key(key)];
                path.extend(place.map(Seg::At));
                path
            };
            let turn = |n: usize| (i % n as u64) as usize;
            let (cpu_at, ids) = &cpus[turn(cpus.len())];
            // QEMU binds a guest's memory itself (mbind), so that whoever makes a page there,
            // also the kernel while it unmerges, makes it at home.
            let (key, node_at, task, bound) = match &home {
                Home::Mempolicy(policy) => ("policy", None, policy.clone(), Mempolicy::Default),
                Home::Nodes(nodes) => {
                    let (node_at, node) = nodes[turn(nodes.len())];
                    let bound = Mempolicy::Bind { nodes: vec![node], balancing: false };
                    ("node", node_at, Mempolicy::Default, bound)
                }
            };
            let mut maps = maps.clone();
            for map in &mut maps {
                map.policy = bound.clone();
            }
            let start = apart.0.checked_mul(i).and_then(|a| start.0.checked_add(a));
            let start = start.ok_or_else(|| {
                t.error(format!("guest {i} would start later than any time that can be told"))
            })?;
            let process = Process {
                // One guest without a count keeps its name.
                name: count.map_or_else(|| name.to_owned(), |_| format!("{name}-{i}")),
                cpus: ids.iter().copied().map(CpuId).collect(),
                start: Picos(start),
                policy: task,
                memory_merge: matches!(merge, Merge::Prctl),
                maps,
                steps: steps.clone(),
                ..Process::default()
            };
            Ok(Guest { process, cpus: segs("cpus", *cpu_at), policy: segs(key, node_at) })
        })
        .collect()
}

/// Where the memory of guests is to lie.
enum Home {
    /// Bound to a node, guest by guest in turn, each with its place in a list.
    Nodes(Vec<(Option<usize>, NodeId)>),
    Mempolicy(Mempolicy),
}

fn home(t: &Fields<'_>) -> Result<Home, ConfigError> {
    match (t.opt("node"), t.opt("policy")) {
        (Some(_), Some(policy)) => {
            Err(policy.error("\"node\" already binds the guest's memory; give one of the two"))
        }
        (Some(node), None) => Ok(Home::Nodes(places(&node, node_id)?)),
        (None, _) => Ok(Home::Mempolicy(policy_of(t)?)),
    }
}

/// One value for all guests, or a list of which each takes the next, over and over.
fn places<T>(
    c: &Cur<'_>,
    read: impl Fn(&Cur<'_>) -> Result<T, ConfigError>,
) -> Result<Vec<(Option<usize>, T)>, ConfigError> {
    if !matches!(c.val.kind, Kind::List(_)) {
        return Ok(vec![(None, read(c)?)]);
    }
    let all = c.list()?;
    if all.is_empty() {
        return Err(c.error("empty; the guests take its entries in turn, so it has at least one"));
    }
    all.iter().enumerate().map(|(i, c)| Ok((Some(i), read(c)?))).collect()
}

/// What memory holds, in the order of addresses, and how often the volatile part is
/// written anew.
///
/// Source: specs/guests.md#mix.
fn mix(t: &Fields<'_>) -> Result<(Vec<Part>, Option<Picos>), ConfigError> {
    let share = |c: &Cur<'_>| c.thousandths(0, WHOLE).map(u64::from);
    let part = |name: &str, share, content| Part { name: name.to_owned(), share, content };
    let mut parts = Vec::new();
    if let Some(c) = t.opt("zero") {
        parts.push(part("zero", share(&c)?, Content::Zero));
    }
    let images = match t.opt("image") {
        None => Vec::new(),
        Some(c) if matches!(c.val.kind, Kind::List(_)) => c.list()?,
        Some(c) => vec![c],
    };
    for c in &images {
        let t = c.table(&["name", "share", "distinct"])?;
        let image = t.get("name")?.text()?;
        let name = format!("image-{image}");
        if parts.iter().any(|p| p.name == name) {
            return Err(t.get("name")?.error(format!(
                "the image \"{image}\" stands twice; give one entry with both shares"
            )));
        }
        let content = Content::Image { name: image.to_owned(), distinct: distinct(&t)? };
        parts.push(part(&name, share(&t.get("share")?)?, content));
    }
    let (mut rewritten, mut every) = (0, None);
    if let Some(c) = t.opt("volatile") {
        let t = c.table(&["share", "every"])?;
        rewritten = share(&t.get("share")?)?;
        every = Some(t.get("every")?.positive_time()?);
    }
    let declared: u64 = parts.iter().map(|p| p.share).sum::<u64>() + rewritten;
    let own = match t.opt("own") {
        Some(c) => {
            let own = share(&c)?;
            if declared + own != WHOLE {
                return Err(c.error(format!(
                    "zero, image, own and volatile make {}; they make 1000 together, \
                     or \"own\" is left out and takes the rest",
                    count(declared + own, "thousandth", "thousandths")
                )));
            }
            own
        }
        None => WHOLE.checked_sub(declared).ok_or_else(|| {
            t.error(format!(
                "zero, image and volatile make {declared} thousandths; at most 1000 are there, \
                 and \"own\" takes the rest"
            ))
        })?,
    };
    parts.push(part("own", own, Content::Own));
    parts.push(part(VOLATILE, rewritten, Content::Own));
    parts.retain(|p| p.share > 0);
    Ok((parts, every.filter(|_| rewritten > 0)))
}

/// The map that is written anew.
const VOLATILE: &str = "volatile";

/// Divides the memory by the shares; what rounding leaves goes on to the next part, so
/// that the sum is exact.
fn sized(t: &Fields<'_>, parts: Vec<Part>) -> Result<Vec<(Part, Pages)>, ConfigError> {
    let c = t.get("memory")?;
    let memory: Bytes = c.size()?;
    let pages = Pages::holding(memory).0;
    let (mut sum, mut before, mut all) = (0, 0, Vec::new());
    for part in parts {
        sum += part.share;
        // At most 2^40 pages of 2^52 bytes.
        let end = pages * sum / WHOLE;
        if end == before {
            return Err(c.error(format!(
                "too small: {} of 1000 for \"{}\" is less than one of its {}",
                part.share,
                part.name,
                count(pages, "page", "pages")
            )));
        }
        all.push((part, Pages(end - before)));
        before = end;
    }
    Ok(all)
}

/// What the guest does.
///
/// Source: specs/guests.md#steps.
fn steps(
    t: &Fields<'_>,
    maps: &[Map],
    every: Option<Picos>,
    duration: Option<Picos>,
) -> Result<Vec<Step>, ConfigError> {
    let benchmark = t.get("do")?.word(&[("idle", false), ("benchmark", true)])?;
    let time = t.opt("time").map(|c| c.positive_time()).transpose()?;
    let mut steps: Vec<Step> = maps.iter().map(|m| Step::Touch { map: m.name.clone() }).collect();
    if !benchmark {
        for key in ["settle", "rounds", "pause", "write"] {
            if let Some(c) = t.opt(key) {
                return Err(
                    c.error("an idle guest has no such key; one with do = \"benchmark\" has")
                );
            }
        }
        let time = time.or(duration).ok_or_else(|| {
            t.error("an idle guest needs an end: its \"time\" or the scenario's \"duration\" is missing")
        })?;
        rest(&mut steps, time, every);
        return Ok(steps);
    }
    if let Some(c) = t.opt("settle") {
        rest(&mut steps, c.positive_time()?, every);
    }
    let rounds = t.opt("rounds").map_or(Ok(1), |c| c.int(1, i64::MAX as u64))?;
    let write = t.opt("write").map_or(Ok(0), |c| c.thousandths(0, WHOLE))?;
    let pause = t.opt("pause").map(|c| c.positive_time()).transpose()?;
    let begin = steps.len();
    steps.push(Step::Barrier);
    if every.is_some() {
        steps.push(Step::Touch { map: VOLATILE.to_owned() });
    }
    for map in maps {
        steps.push(Step::Access {
            map: map.name.clone(),
            pattern: Pattern::Sequential,
            write,
            compute: Picos::ZERO,
            mlp: 1,
            until: Until::Accesses(Pages::holding(map.size).0),
        });
    }
    steps.extend(pause.map(Step::Sleep));
    if rounds > 1 {
        let body = (steps.len() - begin) as u32;
        steps.push(Step::Repeat { steps: body, until: Again::Times(rounds) });
    }
    if let Some(time) = time {
        rest(&mut steps, time, every);
    }
    Ok(steps)
}

/// Sleeps for `time`, and writes the volatile part anew whenever `every` has passed.
fn rest(steps: &mut Vec<Step>, time: Picos, every: Option<Picos>) {
    let times = every.map_or(0, |e| time.0 / e.0);
    if let Some(every) = every.filter(|_| times > 0) {
        steps.push(Step::Sleep(every));
        steps.push(Step::Touch { map: VOLATILE.to_owned() });
        if times > 1 {
            steps.push(Step::Repeat { steps: 2, until: Again::Times(times) });
        }
    }
    match every.filter(|_| times > 0).map_or(time.0, |e| time.0 % e.0) {
        0 => {}
        left => steps.push(Step::Sleep(Picos(left))),
    }
}
