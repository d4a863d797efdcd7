//! One run of the experiment: from a point of the plan to its figures.

use crate::reproduce::experiment;
use crate::reproduce::tiering::scaled;
use crate::reproduce::vary::{Vary, latencies};
use anyhow::{Result, bail};
use homenode_core::costs::Constant;
use homenode_core::kernel::KernelVersion;
use homenode_core::scenario::{
    Action, Again, FileOp, Mempolicy, Pattern, Process, Rights, Scenario, Step, UnmergeTarget,
    Until,
};
use homenode_core::topology::{Hardware, Link};
use homenode_core::units::{Bytes, NodeId, PAGE_SIZE, Pages, Picos};
use homenode_report::stats;
use homenode_sim::random::Stream;
use homenode_sim::{Setup, Simulation};
use std::collections::BTreeMap;

/// Guests on each node, each on a CPU of its own.
pub(super) const GUESTS: usize = 2;
/// Guests in all where their number is the same on each machine.
pub(super) const IN_ALL: usize = 16;
/// A guest's memory at full size.
pub(super) const MEMORY: Bytes = Bytes(4 << 30);
/// From one guest's start to the next one's.
const BOOT: Picos = Picos(100_000_000_000);
/// Passes that are waited for in all: a batch may take longer than the usual.
const SETTLED: u64 = PASSES + 1;
/// Passes of ksmd until merging has come to rest: items are made in the first, pages
/// merged in the second, and the third finds nothing left to do.
const PASSES: u64 = 3;
/// ksmd's defaults: pages of a batch, and the time from one to the next, which is its
/// sleep of 20 ms and the work of 100 visits, up to the next tick.
const BATCH: (u64, Picos) = (100, Picos(24_000_000_000));

/// The simulated kernel's file that starts and stops ksmd.
const RUN: &str = "/sys/kernel/mm/ksm/run";

homenode_core::named! {
    /// How merged pages come apart again, and for whom their copies are allocated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(super) enum Unmerge {
        /// 2 is written to `run` on node 0; guests are bound by their process's policy.
        Run => "run=2, bound process",
        /// The same; guests' mappings have a policy of their own.
        RunMbind => "run=2, bound mappings",
        /// As `Run`, allocated as if the guest had asked.
        RunHome => "run=2, copies at the guest's home",
        /// The guests write to their pages.
        Write => "the guest writes, bound process",
    }
}

homenode_core::named! {
    /// How far apart a machine's nodes are.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(super) enum Hops {
        /// All pairs of as many hops alike: the machines of the table.
        Alike => "alike",
        /// Each pair as published of one machine.
        Measured => "as measured",
        /// The same machine with each pair as the mean of all of its distance.
        ByDistance => "by distance",
    }
}

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    /// Original sizes over ours.
    pub(super) factor: u64,
    /// How far apart nodes are: which machine.
    pub(super) hops: Hops,
    /// Nodes of the machine.
    pub(super) nodes: usize,
    /// Guests on each of them.
    pub(super) guests: usize,
    /// Share of a guest's pages that are the image's, in thousandths.
    pub(super) share: u64,
    /// `merge_across_nodes`.
    pub(super) across: bool,
    /// A constant that is moved.
    pub(super) vary: Option<Vary>,
    /// After merging everything is unmerged, and only the image's pages are read.
    pub(super) unmerge: Option<Unmerge>,
    pub(super) seed: u64,
}

/// What a run gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GuestFigures {
    /// Mean time of an access of each guest, in ns.
    pub(super) times: Vec<f64>,
    /// Memory of all guests, in pages.
    pub(super) pages: u64,
    /// Pages that merging saves.
    pub(super) saved: u64,
    /// Searches of ksmd's trees, the stable and the unstable ones, and comparisons in
    /// them, until merging came to rest.
    pub(super) searches: [u64; 2],
    pub(super) comparisons: [u64; 2],
    /// ksmd's share of one CPU while access times were taken, in thousandths.
    pub(super) ksmd: f64,
    /// Share of what is read at the end on the guest's own node, and on node 0, in
    /// thousandths.
    pub(super) at_home: f64,
    pub(super) at_first: f64,
}

impl GuestFigures {
    /// Population standard deviation of the guests' access times, in per cent of
    /// their average.
    pub(super) fn deviation(&self) -> f64 {
        stats::population_percent(&self.times)
    }
    pub(super) fn saved_percent(&self) -> f64 {
        self.saved as f64 / self.pages.max(1) as f64 * 100.0
    }
    /// Comparisons of one search.
    pub(super) fn each_search(&self) -> f64 {
        let sum = |x: &[u64; 2]| x[0] + x[1];
        sum(&self.comparisons) as f64 / sum(&self.searches).max(1) as f64
    }
    /// The same of the stable trees (0) or the unstable ones (1).
    pub(super) fn each_search_of(&self, kind: usize) -> f64 {
        self.comparisons[kind] as f64 / self.searches[kind].max(1) as f64
    }
}

/// What all runs have in common.
pub(super) struct Bench {
    /// By number of nodes, all of them alike.
    pub(super) machines: BTreeMap<usize, Hardware>,
    /// By number of nodes, each pair of nodes as published.
    pub(super) unequal: BTreeMap<usize, Hardware>,
    pub(super) scenario: Scenario,
}

/// In how many bursts guests read during one pass of ksmd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bursts {
    /// As many as the registered scenario says.
    Registered,
    /// So many: a burst takes as long as before, so times are means of fewer accesses.
    Few(u64),
}

/// How many bursts there are: the last repetition is the one around them.
fn bursts_of(steps: &mut [Step]) -> Option<&mut u64> {
    steps.iter_mut().rev().find_map(|s| match s {
        Step::Repeat { until: Again::Times(n), .. } => Some(n),
        _ => None,
    })
}

impl Bench {
    /// The registered experiment.
    ///
    /// # Errors
    /// A file that can't be read.
    pub(super) fn new(bursts: Bursts) -> Result<Self> {
        let files = [
            ("machines/xeon-e7-2.toml", include_str!("../../../../../machines/xeon-e7-2.toml")),
            ("machines/xeon-e7-4.toml", include_str!("../../../../../machines/xeon-e7-4.toml")),
            ("machines/xeon-e7-8.toml", include_str!("../../../../../machines/xeon-e7-8.toml")),
        ];
        let unequal = [
            (
                "machines/epyc-genoa-4.toml",
                include_str!("../../../../../machines/epyc-genoa-4.toml"),
            ),
            (
                "machines/sapphire-rapids-8.toml",
                include_str!("../../../../../machines/sapphire-rapids-8.toml"),
            ),
        ];
        let by_nodes = |files: &[(&str, &str)]| -> Result<BTreeMap<usize, Hardware>> {
            let read = |&(name, text): &(&str, &str)| {
                let machine = homenode_config::parse_machine(name, text)?;
                Ok((machine.nodes.len(), machine))
            };
            files.iter().map(read).collect()
        };
        let mut scenario = homenode_config::parse_scenario(
            "scenarios/reproduce/ksm.toml",
            include_str!("../../../../../scenarios/reproduce/ksm.toml"),
        )?
        .scenario;
        if let Bursts::Few(few) = bursts {
            if let Some(n) = bursts_of(&mut scenario.processes[0].steps) {
                *n = few;
            }
        }
        let (machines, unequal) = (by_nodes(&files)?, by_nodes(&unequal)?);
        Ok(Self { machines, unequal, scenario })
    }
    /// The machine of a point.
    pub(super) fn machine(&self, p: &Point) -> Hardware {
        match p.hops {
            Hops::Alike => self.machines[&p.nodes].clone(),
            Hops::Measured => self.unequal[&p.nodes].clone(),
            Hops::ByDistance => by_distance(&self.unequal[&p.nodes]),
        }
    }
    /// The machine with most nodes, which has every kind of link.
    pub(super) fn largest(&self) -> &Hardware {
        self.machines.values().next_back().expect("there are three")
    }

    /// The guests of a machine in the order of their start.
    fn guests(&self, p: &Point, machine: &Hardware, pass: Picos) -> Vec<Process> {
        let pages = (MEMORY.0 / PAGE_SIZE / p.factor).max(2);
        // Both parts have a page at least: maps of nothing can't be made.
        let image = (pages * p.share).div_ceil(1000).clamp(1, pages - 1);
        let mut guests = Vec::new();
        for (i, node) in machine.nodes.iter().enumerate() {
            for cpu in machine.cpus_of(node.id).take(p.guests) {
                let mut guest = self.scenario.processes[0].clone();
                guest.name = format!("guest{}", guests.len());
                guest.cpus = vec![cpu];
                guest.policy = bind(NodeId(i as u16));
                guests.push(guest);
            }
        }
        let mut stream = Stream::new(p.seed, "order of the guests' start");
        for i in (1..guests.len()).rev() {
            guests.swap(i, stream.below(i as u64 + 1) as usize);
        }
        let last = BOOT.0 * (guests.len() as u64 - 1);
        let own = pages - image;
        for (i, guest) in guests.iter_mut().enumerate() {
            guest.start = Picos(BOOT.0 * i as u64);
            for map in &mut guest.maps {
                let size = if map.name == "image" { image } else { own };
                map.size = Pages(size).bytes();
            }
            // All of them begin to read at the same moment, about.
            let rest = Picos(SETTLED * pass.0 + last - guest.start.0);
            if let Some(unmerge) = p.unmerge {
                guest.steps = after_unmerging(unmerge, rest, image);
                if unmerge == Unmerge::RunMbind {
                    for map in &mut guest.maps {
                        map.policy = guest.policy.clone();
                    }
                    guest.policy = Mempolicy::Default;
                }
                continue;
            }
            let bursts = bursts_of(&mut guest.steps).copied();
            // As long as ksmd's period, so that each burst sees one of its batches.
            let read = pages * latencies(machine).first().copied().unwrap_or(1);
            let rounds = BATCH.1.0.div_ceil(read.max(1));
            let mut sleeps = [rest, Picos(pass.0 / bursts.unwrap_or(1))].into_iter();
            for step in &mut guest.steps {
                match step {
                    Step::Access { map, until: Until::Accesses(n), .. } => {
                        *n = if map == "image" { image } else { own };
                    }
                    // The inner one of the two.
                    Step::Repeat { steps: 2, until: Again::Times(n) } => *n = rounds,
                    Step::Sleep(t) => *t = sleeps.next().unwrap_or(*t),
                    _ => {}
                }
            }
        }
        guests
    }

    /// Hardware, scenario and setup of a point, and when merging is at rest.
    fn prepare(&self, p: &Point) -> (Hardware, Scenario, Setup, Picos) {
        let mut machine = self.machine(p);
        let mut scenario = self.scenario.clone();
        if let Some(vary) = p.vary {
            vary.apply(&mut machine, &mut scenario);
        }
        let pages = (MEMORY.0 / PAGE_SIZE / p.factor) * (p.guests * p.nodes) as u64;
        let pass = Picos((pages / BATCH.0 + 1) * BATCH.1.0);
        scenario.processes = self.guests(p, &machine, pass);
        let across = if p.across { "1" } else { "0" };
        scenario.ksm = [("merge_across_nodes", across), ("run", "1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
        let mut setup = Setup::of(&scenario);
        setup.version = KernelVersion::V3_8;
        setup.seed = p.seed;
        let last = BOOT.0 * (scenario.processes.len() as u64 - 1);
        let rest = Picos(SETTLED * pass.0 + last);
        match p.unmerge {
            None | Some(Unmerge::Write) => {}
            Some(unmerge) => {
                let what = FileOp::Write { path: RUN.into(), text: "2".into() };
                // A moment after what is counted at rest.
                let at = Picos(rest.0 + BATCH.1.0 / 2);
                scenario.actions = vec![Action { at, who: Rights::Root, what, expect: None }];
                if unmerge == Unmerge::RunHome {
                    setup.model.unmerge_target = UnmergeTarget::Home;
                }
            }
        }
        (scaled::machine(&machine, p.factor), scenario, setup, rest)
    }
}

impl experiment::Bench for Bench {
    const NAME: &'static str = "ksm";
    type Point = Point;
    type Answer = GuestFigures;
    fn length(p: &Point) -> (u64, u64) {
        (p.factor, u64::MAX - p.nodes as u64)
    }
    fn label(p: &Point) -> String {
        let hops = match p.hops {
            Hops::Alike => String::new(),
            Hops::Measured | Hops::ByDistance => format!(", hops {}", p.hops.name()),
        };
        format!("{} nodes{hops}, {} guests, seed {}", p.nodes, p.nodes * p.guests, p.seed)
    }
    fn run(&self, p: &Point) -> Result<GuestFigures> {
        let (machine, scenario, setup, rest) = self.prepare(p);
        let mut sim = Simulation::new(&machine, &scenario, &setup)?;
        sim.run_until(rest.0);
        let Some(before) = sim.merging() else { bail!("nothing may be merged") };
        if before.counters.full_scans < PASSES {
            bail!(
                "ksmd has made {} passes where {PASSES} were to be over before access times are \
                 taken",
                before.counters.full_scans
            );
        }
        let mut sim_end = sim.now();
        let all = loop {
            sim.run_until(sim_end);
            let all = experiment::processes(&sim)?;
            if all.iter().all(|p| p.ended) || sim.idle() {
                break all;
            }
            sim_end += 100_000_000_000;
        };
        let after = sim.merging().unwrap_or(before);
        let times = all
            .iter()
            .map(|guest| {
                // Of what is read after unmerging only the last counts: the copies are made
                // in what comes before.
                let from =
                    if p.unmerge.is_some() { guest.phases.len().saturating_sub(1) } else { 0 };
                let timed = guest.phases[from..].iter().filter(|f| !f.first_touch);
                let (time, count) = timed.fold((0, 0), |(t, n), f| (t + f.time_ps, n + f.count()));
                time as f64 / count.max(1) as f64 / 1000.0
            })
            .collect();
        // What is read last: by place of the node, which is its number here.
        let (mut home, mut first, mut read) = (0, 0, 0);
        for (guest, figures) in scenario.processes.iter().zip(&all) {
            let node = machine.cpus.iter().find(|c| guest.cpus.contains(&c.id)).map(|c| c.node);
            let Some(phase) = figures.phases.last() else { continue };
            let on = |n: usize| phase.accesses.get(n).map_or(0, |a| a[0] + a[1]);
            home += node.map_or(0, |n| on(n.index()));
            first += on(0);
            read += phase.count();
        }
        let share = |n: u64| n as f64 / read.max(1) as f64 * 1000.0;
        let measured = sim.now().saturating_sub(rest.0).max(1);
        Ok(GuestFigures {
            times,
            pages: all.len() as u64 * (MEMORY.0 / PAGE_SIZE / p.factor),
            saved: before.saved_bytes / PAGE_SIZE,
            searches: [before.effort.stable_searches, before.effort.unstable_searches],
            comparisons: [before.effort.stable_comparisons, before.effort.unstable_comparisons],
            ksmd: (after.ksmd_ran_ps - before.ksmd_ran_ps) as f64 / measured as f64 * 1000.0,
            at_home: share(home),
            at_first: share(first),
        })
    }
}

/// The guest fills its memory, waits until merging has come to rest and everything is
/// unmerged, and reads the image once.
fn after_unmerging(unmerge: Unmerge, rest: Picos, image: u64) -> Vec<Step> {
    let map = |name: &str| name.to_owned();
    let access = |write| Step::Access {
        map: map("image"),
        pattern: Pattern::Sequential,
        write,
        compute: Picos(0),
        mlp: 1,
        until: Until::Accesses(image),
    };
    let mut steps = vec![
        Step::Touch { map: map("image") },
        Step::Touch { map: map("own") },
        Step::Sleep(Picos(rest.0 + BATCH.1.0)),
    ];
    if unmerge == Unmerge::Write {
        steps.push(access(1000));
    }
    steps.push(access(0));
    steps
}

/// A machine whose pairs of nodes of the same distance are alike: each constant of a link is the
/// mean of theirs.
fn by_distance(machine: &Hardware) -> Hardware {
    let mut out = machine.clone();
    for link in &mut out.links {
        let distance = machine.distance(link.from, link.to);
        let same = || machine.links.iter().filter(|l| machine.distance(l.from, l.to) == distance);
        let why = "the mean of all pairs of this distance";
        let mean = |of: fn(&Link) -> &Constant| {
            let sum: u64 = same().map(|l| of(l).value).sum();
            Constant::assumed(sum / same().count().max(1) as u64, why)
        };
        link.read_latency = mean(|l| &l.read_latency);
        link.write_latency = mean(|l| &l.write_latency);
        link.read_bandwidth = mean(|l| &l.read_bandwidth);
        link.write_bandwidth = mean(|l| &l.write_bandwidth);
    }
    out
}

/// Memory of one node and of no other.
fn bind(node: NodeId) -> Mempolicy {
    Mempolicy::Bind { nodes: vec![node], balancing: false }
}
