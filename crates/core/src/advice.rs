//! Which of the kernel's knobs one would set otherwise, and why. Advice, not action.
//!
//! ```text
//!  nodes, knobs now ─┐
//!                    ├─▶ a rule per knob ─▶ set it: now, then, why, when not, do, undo
//!  what was found ───┘                  └─▶ leave it, and why
//! ```
//!
//! A rule follows what the engine found: where it would move nothing, the kernel's own
//! mover is not recommended either. What the kernel's documentation warns of stands
//! beside each suggestion. Nothing is said on a guess: a bandwidth that was only assumed
//! counts as unknown.
//!
//! Worked example: DRAM at 100 GB/s beside an expander at 30. Weights 3:1 are off by a
//! tenth, 7:2 by a twentieth, which is near enough: node 0 gets 7, node 1 gets 2.
//!
//! Source: specs/advise.md#knobs.

mod weights;

#[cfg(test)]
mod tests;

pub use weights::weights;

use crate::units::{Bytes, NodeId, PAGE_SIZE, Pages};
use std::fmt;

/// What is known of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its number.
    pub id: NodeId,
    /// Whether it has CPUs.
    pub cpus: bool,
    /// Whether it has memory.
    pub memory: bool,
    /// Whether its memory is slow: below the top tier.
    pub slow: bool,
    /// What CPUs can read and write there, the less of the two, in 10^6 bytes a second, as
    /// the nearest of them sees it; `None` where it was assumed.
    pub bandwidth: Option<u64>,
    /// The same, of writes alone.
    pub write_bandwidth: Option<u64>,
    /// Its weight in weighted interleaving; `None` on kernels without.
    pub weight: Option<u32>,
}

/// What an engine would do, as far as it looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Whether a source told heat at all.
    pub heat: bool,
    /// Pages that would go from slow nodes to fast ones, since they are hot.
    pub up: Pages,
    /// Pages that would leave fast nodes to make room for those.
    pub room: Pages,
    /// Pages that would gain on a fast node and found no room, in a decision on average.
    pub no_room: Pages,
    /// Pages that would go to the node whose CPUs use them, between fast nodes.
    pub near: Pages,
}

/// A machine's nodes, its knobs as they are, and what was found on it. A knob that the
/// kernel lacks is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Nodes in rising order.
    pub nodes: Vec<NodeFacts>,
    /// `kernel.numa_balancing`: 1 between nodes with CPUs, 2 between tiers, or both.
    pub balancing: Option<u32>,
    /// `demotion_enabled`.
    pub demotion: Option<bool>,
    /// `kernel.numa_balancing_promote_rate_limit_MBps`.
    pub promote_limit: Option<u32>,
    /// Whether the kernel makes the weights of interleaving.
    pub auto_weights: Option<bool>,
    /// `vm.zone_reclaim_mode`.
    pub zone_reclaim: Option<u32>,
    /// What was found.
    pub found: Found,
}

impl Facts {
    fn memory(&self) -> impl Iterator<Item = &NodeFacts> {
        self.nodes.iter().filter(|n| n.memory)
    }
    fn slow(&self) -> impl Iterator<Item = &NodeFacts> {
        self.memory().filter(|n| n.slow)
    }
    fn cpu_nodes(&self) -> usize {
        self.nodes.iter().filter(|n| n.cpus).count()
    }
}

/// A file of the kernel with what it holds and what it would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Its path.
    pub file: String,
    /// Its text now.
    pub now: String,
    /// The text to write.
    pub then: String,
}

/// A knob that one would set otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// Its name.
    pub knob: &'static str,
    /// Value now, for people.
    pub now: String,
    /// Value suggested.
    pub then: String,
    /// Reason, with what was found.
    pub why: String,
    /// Risk: when to leave it as it is.
    pub when_not: &'static str,
    /// What to write, in this order; to be undone in the reverse one.
    pub writes: Vec<Write>,
}

impl Suggestion {
    /// Lines for a shell that do it.
    pub fn to_do(&self) -> Vec<String> {
        self.writes.iter().map(|w| format!("echo {} > {}", w.then, w.file)).collect()
    }
    /// Lines for a shell that put back what is there now.
    pub fn to_undo(&self) -> Vec<String> {
        self.writes.iter().rev().map(|w| format!("echo {} > {}", w.now, w.file)).collect()
    }
}

/// A knob that is left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its name.
    pub knob: &'static str,
    /// Its value.
    pub now: String,
    /// Why.
    pub why: String,
}

/// What is thought of a knob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opinion {
    /// One would set it otherwise.
    Set(Suggestion),
    /// One would leave it.
    Leave(Left),
}

impl Opinion {
    fn leave(knob: &'static str, now: impl fmt::Display, why: impl Into<String>) -> Option<Self> {
        Some(Self::Leave(Left { knob, now: now.to_string(), why: why.into() }))
    }
}

/// All opinions, one per knob that this kernel has and this machine has a use for.
///
/// Source: specs/advise.md#knobs.
pub fn consider(facts: &Facts) -> Vec<Opinion> {
    [balancing(facts), demotion(facts), promote_limit(facts), interleave(facts), reclaim(facts)]
        .into_iter()
        .flatten()
        .collect()
}

/// The suggestions alone.
pub fn advise(facts: &Facts) -> Vec<Suggestion> {
    consider(facts)
        .into_iter()
        .filter_map(|o| match o {
            Opinion::Set(s) => Some(s),
            Opinion::Leave(_) => None,
        })
        .collect()
}

const BALANCING: &str = "kernel.numa_balancing";
const BALANCING_FILE: &str = "/proc/sys/kernel/numa_balancing";
/// Bit of balancing between nodes with CPUs.
const NORMAL: u32 = 1;
/// Bit of tiering.
const TIERING: u32 = 2;

fn one(
    knob: &'static str,
    file: &str,
    (now, then): (impl fmt::Display, impl fmt::Display),
    why: String,
    when_not: &'static str,
) -> Option<Opinion> {
    let (now, then) = (now.to_string(), then.to_string());
    let writes = vec![Write { file: file.to_owned(), now: now.clone(), then: then.clone() }];
    Some(Opinion::Set(Suggestion { knob, now, then, why, when_not, writes }))
}

/// The mode that one would set, if another than now.
fn mode_wanted(facts: &Facts, now: u32) -> u32 {
    let f = &facts.found;
    let tiering = if facts.slow().next().is_some() && f.up.0 > 0 { TIERING } else { 0 };
    let normal = if facts.cpu_nodes() > 1 && f.near.0 > 0 { NORMAL } else { 0 };
    now & (NORMAL | TIERING) | tiering | normal
}

/// Source: specs/advise.md#balancing.
fn balancing(facts: &Facts) -> Option<Opinion> {
    let now = facts.balancing?;
    if facts.memory().count() < 2 {
        return match now {
            0 => Opinion::leave(BALANCING, now, "one node has memory: there is nowhere to move to"),
            _ => one(
                BALANCING,
                BALANCING_FILE,
                (now, 0),
                "one node has memory: there is nowhere to move to, and each page that is marked \
                 costs a fault"
                    .to_owned(),
                "another node's memory is to come online soon",
            ),
        };
    }
    let f = &facts.found;
    if !f.heat {
        let why = "what is accessed, and from where, is not known";
        return Opinion::leave(BALANCING, now, why);
    }
    let then = mode_wanted(facts, now);
    let new = then & !now;
    if new == 0 && f.up.0 + f.near.0 == 0 {
        let why = match now {
            0 => "nothing that was seen in use would gain on another node",
            _ => {
                "nothing that was seen in use would gain on another node; programs that were not \
                 looked at still may, and switching it off has cost up to 20 % on AMD"
            }
        };
        return Opinion::leave(BALANCING, now, why);
    }
    if new == 0 && f.up.0 > 0 && facts.slow().next().is_none() {
        let why = "homenode would move pages from nodes that this kernel counts to its fastest \
                   tier, where it looks for no hot pages";
        return Opinion::leave(BALANCING, now, why);
    }
    if new == 0 {
        return Opinion::leave(BALANCING, now, "the kernel looks for such pages already");
    }
    let mut why = Vec::new();
    if new & TIERING != 0 {
        why.push(format!(
            "{} in use on slow nodes would pay for going to fast ones; 2 has the kernel look for \
             such pages and move them up",
            size(f.up)
        ));
    }
    if new & NORMAL != 0 {
        why.push(format!(
            "{} would pay for going to the node whose CPUs use it; 1 has the kernel look for such \
             pages, and for tasks away from their memory",
            size(f.near)
        ));
    }
    one(
        BALANCING,
        BALANCING_FILE,
        (now, then),
        why.join("; "),
        "programs are bound to nodes already, or every request's latency counts: the kernel marks \
         pages and takes faults on them, and marking has been seen to stall a task for up to 31 \
         ms. Where it is on already, switching it off has cost up to 20 % on AMD: it is for each \
         machine to be measured",
    )
}

const DEMOTION: &str = "demotion_enabled";

/// Source: specs/advise.md#demotion.
fn demotion(facts: &Facts) -> Option<Opinion> {
    let now = facts.demotion?;
    facts.slow().next()?;
    let f = &facts.found;
    if now {
        return Opinion::leave(DEMOTION, now, "cold memory goes down when a fast node fills up");
    }
    if !f.heat {
        return Opinion::leave(DEMOTION, now, "what is hot and what is cold is not known");
    }
    if f.room.0 + f.no_room.0 == 0 {
        return Opinion::leave(DEMOTION, now, "fast nodes have room for all that was seen hot");
    }
    let mut why = "fast nodes are full:".to_owned();
    if f.room.0 > 0 {
        why += &format!(
            " {} of them would have to go down for {} that is hotter;",
            size(f.room),
            size(f.up)
        );
    }
    if f.no_room.0 > 0 {
        why += &format!(" {} that is hot finds no room;", size(f.no_room));
    }
    why += " without demotion the kernel makes room by dropping files and by swapping only";
    one(
        DEMOTION,
        "/sys/kernel/mm/numa/demotion_enabled",
        (now, true),
        why,
        "a program must stay within its cpuset's nodes: demotion may put its pages, or shared \
         ones, outside. Or memory that is seldom used has to answer fast all the same",
    )
}

const LIMIT: &str = "kernel.numa_balancing_promote_rate_limit_MBps";

/// Source: specs/advise.md#promote-limit.
fn promote_limit(facts: &Facts) -> Option<Opinion> {
    let now = facts.promote_limit?;
    facts.slow().next()?;
    if mode_wanted(facts, facts.balancing?) & TIERING == 0 {
        return None;
    }
    let known: Option<Vec<u64>> = facts.slow().map(|n| n.write_bandwidth).collect();
    let Some(least) = known.and_then(|all| all.into_iter().min()) else {
        let why = "a tenth of the slow nodes' write bandwidth is the kernel's rule of thumb, and \
                   that bandwidth is not known or only assumed; a file by homenode measure has it";
        return Opinion::leave(LIMIT, now, why);
    };
    let tenth = u32::try_from(least / 10).unwrap_or(u32::MAX).max(1);
    if now > 0 && now <= tenth {
        return Opinion::leave(LIMIT, now, "at most a tenth of the slow nodes' write bandwidth");
    }
    let why = match now {
        0 => format!(
            "0 refuses every promotion where a fast node is nearly full; a tenth of the slowest \
             node's write bandwidth of {least} MB/s is the kernel's rule of thumb"
        ),
        _ => format!(
            "it does not bound what moving takes from programs; a tenth of the slowest node's \
             write bandwidth of {least} MB/s is the kernel's rule of thumb"
        ),
    };
    one(
        LIMIT,
        "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps",
        (now, tenth),
        why,
        "what is hot changes faster than that rate can follow, or homenode itself moves pages and \
         holds the kernel back with 0",
    )
}

const INTERLEAVE: &str = "weighted_interleave";
const INTERLEAVE_FOLDER: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";

/// Source: specs/advise.md#interleave.
fn interleave(facts: &Facts) -> Option<Opinion> {
    let nodes: Vec<&NodeFacts> = facts.memory().collect();
    let now: Vec<u32> = nodes.iter().map(|n| n.weight).collect::<Option<_>>()?;
    if nodes.len() < 2 {
        return None;
    }
    let show = |all: &[u32]| {
        let all = nodes.iter().zip(all).map(|(n, w)| format!("node {}: {w}", n.id));
        all.collect::<Vec<_>>().join(", ")
    };
    let known: Option<Vec<u64>> = nodes.iter().map(|n| n.bandwidth.filter(|b| *b > 0)).collect();
    let Some(known) = known else {
        let why = "weights follow bandwidths, which are not known or only assumed; a file by \
                   homenode measure has them";
        return Opinion::leave(INTERLEAVE, show(&now), why);
    };
    let then: Vec<u32> = weights(&known).into_iter().map(u32::from).collect();
    let in_ratio = |a: &[u32], b: &[u32]| {
        let same =
            |i: usize| u64::from(a[i]) * u64::from(b[0]) == u64::from(a[0]) * u64::from(b[i]);
        (0..a.len()).all(same)
    };
    if in_ratio(&now, &then) {
        return Opinion::leave(INTERLEAVE, show(&now), "the weights are as the bandwidths are");
    }
    let mut writes: Vec<Write> = Vec::new();
    if facts.auto_weights == Some(true) {
        // A weight that is written ends it anyway; so the undoing switches it on at last.
        let (file, now) = (format!("{INTERLEAVE_FOLDER}/auto"), "true".to_owned());
        writes.push(Write { file, now, then: "false".to_owned() });
    }
    writes.extend(nodes.iter().zip(now.iter().zip(&then)).map(|(n, (now, then))| Write {
        file: format!("{INTERLEAVE_FOLDER}/node{}", n.id),
        now: now.to_string(),
        then: then.to_string(),
    }));
    let all: Vec<String> =
        nodes.iter().zip(&known).map(|(n, b)| format!("node {} {b} MB/s", n.id)).collect();
    Some(Opinion::Set(Suggestion {
        knob: INTERLEAVE,
        now: show(&now),
        then: show(&then),
        why: format!(
            "bandwidths are {}: pages spread in that ratio use all of them at once",
            all.join(", ")
        ),
        when_not: "nothing is short of bandwidth: then a share of the pages is only slower. It \
                   holds for programs that ask for it (numactl --weighted-interleave), and for \
                   what they allocate from then on",
        writes,
    }))
}

/// Source: specs/advise.md#zone-reclaim.
fn reclaim(facts: &Facts) -> Option<Opinion> {
    let now = facts.zone_reclaim.filter(|m| *m != 0)?;
    if facts.memory().count() < 2 {
        return None;
    }
    one(
        "vm.zone_reclaim_mode",
        "/proc/sys/vm/zone_reclaim_mode",
        (now, 0),
        "a full node's pages are reclaimed before another node's free memory is used: files are \
         read again that need not have been dropped"
            .to_owned(),
        "programs are laid out so that each fits into its node, and remote memory costs them more \
         than reading files again",
    )
}

/// A size for people, rounded down to a tenth.
fn size(pages: Pages) -> String {
    let bytes = Bytes(pages.0.saturating_mul(PAGE_SIZE));
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes.0 >= *unit) {
        None => format!("{} bytes", bytes.0),
        Some((unit, name)) => {
            let tenth = u128::from(bytes.0) * 10 / u128::from(unit);
            format!("{}.{} {name}", tenth / 10, tenth % 10)
        }
    }
}
