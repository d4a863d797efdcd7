//! homenode as the simulation keeps it: what its task has to do, what it has seen and not
//! told yet, whom it watches.
//!
//! ```text
//! order ──▶ Job ─┐                                     ┌──▶ out ──▶ deliver
//! timer ──▶ Job ─┴▶ jobs, worked off by `agent`: Seen ─┘
//! ```
//!
//! Here nothing takes time and nothing is looked at; that is `agent`'s.

use crate::heat::HeatSource;
use crate::kernel::flush::Batch;
use homenode_core::costs::{Cost, Prices};
use homenode_core::knobs::Knob;
use homenode_core::policy::extents::Extents;
use homenode_core::policy::order::{Act, Fails, OrderId};
use homenode_core::policy::seen::{Seen, Span, Who};
use homenode_core::topology::Hardware;
use homenode_core::units::{NodeId, Pages, Picos};
use std::collections::{BTreeMap, VecDeque};

/// An order that is being carried out.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) order: OrderId,
    pub(crate) who: Who,
    pub(crate) space: usize,
    pub(crate) errand: Errand,
    /// Processor time so far.
    pub(crate) took: u64,
}

/// What an order asks for, and how far it has come.
#[derive(Clone, Debug)]
pub(crate) enum Errand {
    Watch,
    Unwatch,
    Census {
        /// Mappings; `None` before the first step.
        spans: Option<Vec<Span>>,
        at: usize,
        vpn: u64,
        found: Extents,
        /// What huge pages map, where that is told.
        huge: Vec<Span>,
    },
    Look {
        spans: Vec<Span>,
        at: usize,
        vpn: u64,
        /// Pages of the present span by node.
        found: BTreeMap<u16, u64>,
    },
    Move {
        spans: Vec<Span>,
        from: usize,
        to: usize,
        at: usize,
        vpn: u64,
        tried: u64,
        moved: u64,
        fails: Fails,
        /// Pages that have moved and whose entries are not flushed yet.
        batch: Batch,
    },
    Split {
        spans: Vec<Span>,
        at: usize,
        vpn: u64,
        tried: u64,
        /// Pages of huge pages that are split.
        moved: u64,
        fails: Fails,
    },
    Affine {
        /// The node's place.
        to: usize,
        /// Threads that there were, and those that may run there.
        tried: u64,
        moved: u64,
    },
    SetKnob {
        knob: Knob,
        value: String,
    },
}

/// Threads that may run on one node's CPUs only, for a while.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) until: u64,
    pub(crate) space: usize,
    pub(crate) who: Who,
    /// Each with the set that it had asked for before.
    pub(crate) tasks: Vec<(usize, u32)>,
}

/// How busy CPUs were, as `/proc/stat` tells it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuLook {
    /// When it was looked at last, and how long each CPU had been busy by then.
    pub(crate) before: Option<(u64, Vec<u64>)>,
    /// By node's place: how many CPUs were idle since the look before, in thousandths.
    pub(crate) idle: Vec<Option<u32>>,
}

/// What homenode's task has to do, in order.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    LookAround,
    /// Takes time and then tells something.
    Burn {
        left: u64,
        then: Vec<Seen>,
    },
    Order(Box<Work>),
}

/// homenode on a simulated machine.
pub(crate) struct Agent {
    /// Its task.
    pub(crate) task: usize,
    pub(crate) heat: Box<dyn HeatSource>,
    pub(crate) prices: Prices,
    pub(crate) jobs: VecDeque<Job>,
    /// Seen and not delivered yet.
    pub(crate) out: Vec<Seen>,
    /// The slot of its next look around.
    pub(crate) alarm: u32,
    pub(crate) known: BTreeMap<Who, usize>,
    /// When processes were read last.
    pub(crate) read_at: Option<u64>,
    pub(crate) watched: BTreeMap<usize, Who>,
    /// It reads how much nodes are loaded from counters of memory controllers.
    pub(crate) has_counters: bool,
    /// A census tells what huge pages map.
    pub(crate) tells_huge: bool,
    /// Of what load adds, by place of the node, so many thousandths are told; none: all of it.
    pub(crate) load_shares: Vec<u32>,
    /// Several nodes have CPUs, so that it tells how many of these are idle.
    pub(crate) cpus: Option<CpuLook>,
    pub(crate) held: Vec<Held>,
    /// Its task looks for something to do while there is nothing, in place of sleeping.
    pub(crate) spins: bool,
    /// Further tasks that it keeps busy, whatever there is to do.
    pub(crate) busy: Vec<usize>,
}

impl Agent {
    pub(crate) fn has_word(&self) -> bool {
        !self.out.is_empty()
    }
    /// Orders that are not finished.
    pub(crate) fn waiting(&self) -> usize {
        self.jobs.iter().filter(|j| matches!(j, Job::Order(_))).count()
    }
    /// Whether there is nothing to carry out.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }
    /// Hands over what was seen; thinking about it takes time, before all else.
    pub(crate) fn deliver(&mut self, out: &mut Vec<Seen>) {
        let n = self.out.len() as u64;
        out.append(&mut self.out);
        self.think(Picos(n * self.prices[Cost::EngineSeen]));
    }
    /// Thinking comes before all else.
    pub(crate) fn think(&mut self, time: Picos) {
        if time.0 > 0 {
            self.jobs.push_front(Job::Burn { left: time.0, then: Vec::new() });
        }
    }
    /// Takes an order, which has been checked.
    pub(crate) fn order(&mut self, id: OrderId, act: &Act, space: usize, places: &Hardware) {
        let place = |n: NodeId| places.position(n).expect("checked");
        let first = |spans: &[Span]| spans.first().map_or(0, |s| s.start);
        let (who, errand) = match act {
            Act::Watch { who } => (*who, Errand::Watch),
            Act::Unwatch { who } => (*who, Errand::Unwatch),
            Act::Census { who } => {
                let found = Extents::default();
                (*who, Errand::Census { spans: None, at: 0, vpn: 0, found, huge: Vec::new() })
            }
            Act::Look { who, spans } => (
                *who,
                Errand::Look {
                    vpn: first(spans),
                    spans: spans.clone(),
                    at: 0,
                    found: BTreeMap::new(),
                },
            ),
            Act::Move { who, spans, from, to } => (
                *who,
                Errand::Move {
                    vpn: first(spans),
                    tried: spans.iter().map(|s| s.pages().0).sum(),
                    spans: spans.clone(),
                    from: place(*from),
                    to: place(*to),
                    at: 0,
                    moved: 0,
                    fails: Fails::default(),
                    batch: Batch::default(),
                },
            ),
            Act::Split { who, spans } => (
                *who,
                Errand::Split {
                    vpn: first(spans),
                    tried: spans.iter().map(|s| s.pages().0).sum(),
                    spans: spans.clone(),
                    at: 0,
                    moved: 0,
                    fails: Fails::default(),
                },
            ),
            Act::SetKnob { knob, value } => {
                let nobody = Who { pid: 0, start: 0 };
                (nobody, Errand::SetKnob { knob: *knob, value: value.clone() })
            }
            Act::Affine { who, node } => {
                (*who, Errand::Affine { to: place(*node), tried: 0, moved: 0 })
            }
        };
        let work = Work { order: id, who, space, errand, took: 0 };
        self.jobs.push_back(Job::Order(Box::new(work)));
    }
    /// The machine has stopped: what is still to be carried out finds nobody.
    pub(crate) fn finish(&mut self) {
        for job in std::mem::take(&mut self.jobs) {
            match job {
                Job::Order(mut work) => {
                    work.nobody_left();
                    self.out.push(work.done());
                }
                Job::Burn { then, .. } => self.out.extend(then),
                Job::LookAround => {}
            }
        }
        let gone: Vec<Who> = std::mem::take(&mut self.known).into_keys().collect();
        self.out.extend(gone.into_iter().map(|who| Seen::Gone { who }));
    }
}

impl Work {
    /// The process has ended: what is left of the order finds nobody.
    pub(crate) fn nobody_left(&mut self) {
        if let Errand::Move { spans, at, tried, moved, fails, .. }
        | Errand::Split { spans, at, tried, moved, fails, .. } = &mut self.errand
        {
            fails.gone += Pages(*tried - *moved - fails.all().0);
            *at = spans.len();
        }
    }
    pub(crate) fn done(&self) -> Seen {
        let (tried, moved, fails) = match &self.errand {
            Errand::Move { tried, moved, fails, .. }
            | Errand::Split { tried, moved, fails, .. } => (*tried, *moved, *fails),
            Errand::Census { spans: Some(spans), .. } | Errand::Look { spans, .. } => {
                let all: u64 = spans.iter().map(|s| s.pages().0).sum();
                (all, all, Fails::default())
            }
            Errand::Affine { tried, moved, .. } => {
                let forbidden = Pages(tried - moved);
                (*tried, *moved, Fails { forbidden, ..Fails::default() })
            }
            Errand::Watch
            | Errand::Unwatch
            | Errand::Census { spans: None, .. }
            | Errand::SetKnob { .. } => (0, 0, Fails::default()),
        };
        Seen::Done {
            order: self.order,
            tried: Pages(tried),
            moved: Pages(moved),
            fails,
            took: Picos(self.took),
        }
    }
}
