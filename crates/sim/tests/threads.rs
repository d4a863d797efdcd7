//! Threads whose memory is on another node, on the simulated machine: they go to it, where that
//! node's CPUs are idle; else it goes to them.

#[path = "support/stage.rs"]
#[allow(dead_code, reason = "conformance.rs takes the rest")]
mod stage;
mod support;

use expect_test::{Expect, expect};
use homenode_core::engine::{Engine, Settings};
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::Policy as _;
use homenode_core::policy::order::{Act, Order, Reason};
use homenode_core::policy::seen::{Seen, Source, Span, Who};
use homenode_core::scenario::{CpuStep, Mempolicy, Pattern, Step};
use homenode_core::units::{Bytes, CpuId, NodeId, Picos};
use homenode_machine::{Advised, ApplyError, Around, Machine, ObserveError, drive};
use homenode_sim::machine::{SimMachine, knobs_for};
use homenode_sim::{Setup, Simulation};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use support::*;

const PAGES: u64 = 4096;

/// Notes where threads are and what is ordered.
struct Noted<M> {
    inner: M,
    nodes: BTreeMap<Who, Vec<Option<NodeId>>>,
    brought: Vec<String>,
}

impl<M: Machine> Around for Noted<M> {
    type Inner = M;
    fn inside(&self) -> &M {
        &self.inner
    }
    fn inside_mut(&mut self) -> &mut M {
        &mut self.inner
    }
    fn on_wait(&mut self, until: Picos, out: &mut Vec<Seen>) -> Result<(), ObserveError> {
        let from = out.len();
        let waited = self.inner.wait(until, out);
        for seen in &out[from..] {
            if let Seen::Task { who, node, .. } = *seen {
                let all = self.nodes.entry(who).or_default();
                if all.last() != Some(&node) {
                    all.push(node);
                }
            }
        }
        waited
    }
    fn on_submit(&mut self, order: &Order) -> Result<(), ApplyError> {
        if let Act::Affine { node, .. } = order.act {
            self.brought.push(format!("to {node}"));
        }
        self.inner.submit(order)
    }
}

/// A task whose memory is on node 0, and that has run on node 1 so far.
///
/// * `busy` – CPUs of node 0 on which others compute; `bound`: it may never leave node 1.
fn scene(source: Source, busy: &[u32], bound: bool) -> (SimMachine, Who, Span) {
    let m = machine(&[dram(16_384, 2), dram(16_384, 2)]);
    let setup = Setup { knobs: knobs_for(source), seed: 5, room: 1 << 19, ..Setup::default() };
    let sim = Simulation::boot(&m, &setup, 0).expect("a machine");
    let mut m = SimMachine::new(sim, source).expect("a source");
    for (i, cpu) in busy.iter().enumerate() {
        let compute = CpuStep::Compute {
            time: Picos::from_secs(1000),
            times: Vec::new(),
            jitter: 0,
            footprint: Bytes(0),
        };
        let steps = vec![Step::Cpu(compute)];
        m.spawn(process(["one", "other"][i], &[*cpu], Vec::new(), steps), None);
    }
    let mut heap = map("heap", PAGES);
    heap.policy = Mempolicy::Preferred(NodeId(0));
    let mut steps = vec![
        touch("heap"),
        Step::Mbind { map: "heap".into(), policy: Mempolicy::Default },
        access("heap", Pattern::Uniform, 0, for_ms(100)),
    ];
    if !bound {
        steps.push(Step::Cpu(CpuStep::Affinity { cpus: (0..4).map(CpuId).collect() }));
    }
    steps.push(access("heap", Pattern::Uniform, 0, for_ms(1_000_000)));
    let (who, spans) = m.spawn(process("away", &[2], vec![heap], steps), None);
    (m, who, spans[0])
}

fn engine(m: &impl Machine) -> Engine {
    let caps = m.caps();
    let version = KernelVersion::default();
    let (source, most) = (caps.source, caps.most_pages);
    Engine::new(Settings::default(), m.topology(), version, source, &caps.lacks, most)
        .bringing_threads(caps.affinity)
}

/// What became of it in 30 s, acted and advised.
fn told(source: Source, busy: &[u32], bound: bool) -> String {
    let mut told = String::new();
    let mut tell = |what: &str, nodes: &[Option<NodeId>], brought: &[String], engine: &Engine| {
        let nodes = nodes.iter().map(|n| n.map_or("-".to_owned(), |n| n.to_string()));
        let nodes = nodes.collect::<Vec<_>>().join(" ");
        let pages = engine.ledger().orders(Reason::NearItsCpus).pages;
        let follow = if pages >= PAGES / 4 * 3 { "pages follow" } else { "no page follows" };
        let brought = if brought.is_empty() { "not brought".into() } else { brought.join(" ") };
        let _ = writeln!(told, "{what}: on node {nodes}; {brought}; {follow}");
        pages
    };
    let end = Picos::from_secs(30);
    let (m, who, span) = scene(source, busy, bound);
    let mut e = engine(&m);
    let mut m = Noted { inner: m, nodes: BTreeMap::new(), brought: Vec::new() };
    drive(&mut m, &mut e, end).expect("it runs");
    tell("acted", &m.nodes[&who], &m.brought, &e);
    let there = m.inner.placed(who, span);
    assert_eq!(there.values().map(|p| p.0).sum::<u64>(), PAGES);
    let follows = e.ledger().orders(Reason::NearItsCpus).pages > 0;
    let home = if follows { NodeId(1) } else { NodeId(0) };
    let on = there.get(&home).map_or(0, |p| p.0);
    println!("{}: {there:?}", source.name());
    assert!(on >= PAGES / 4 * 3, "{there:?}, but {on} pages on node {home}");
    let (m, who, _) = scene(source, busy, bound);
    let mut e = engine(&m);
    let mut m = Noted { inner: Advised::new(m), nodes: BTreeMap::new(), brought: Vec::new() };
    drive(&mut m, &mut e, end).expect("it runs");
    tell("advised", &m.nodes[&who], &m.brought, &e);
    told
}

fn all(busy: &[u32], bound: bool, expected: Expect) {
    let sources = [Source::Damon, Source::Pmu];
    let all = sources.map(|s| format!("{}\n{}", s.name(), told(s, busy, bound)));
    expected.assert_eq(&all.concat());
}

// specs/engine.md#home
#[test]
fn a_thread_goes_to_its_memory_where_cpus_are_idle() {
    all(
        &[],
        false,
        expect![[r#"
        damon
        acted: on node 1 0; to 0; no page follows
        advised: on node 1 0; to 0; no page follows
        pmu
        acted: on node 1 0; to 0; no page follows
        advised: on node 1 0; to 0; no page follows
    "#]],
    );
}

#[test]
fn memory_goes_to_the_thread_where_none_is() {
    all(
        &[0, 1],
        false,
        expect![[r#"
        damon
        acted: on node 1; not brought; pages follow
        advised: on node 1; not brought; pages follow
        pmu
        acted: on node 1; not brought; pages follow
        advised: on node 1; not brought; pages follow
    "#]],
    );
}

// specs/act.md#threads: it is asked for and stays; then its pages come.
#[test]
fn who_is_bound_stays() {
    all(
        &[],
        true,
        expect![[r#"
            damon
            acted: on node 1; to 0; pages follow
            advised: on node 1 0; to 0; no page follows
            pmu
            acted: on node 1; to 0; pages follow
            advised: on node 1 0; to 0; no page follows
        "#]],
    );
}
