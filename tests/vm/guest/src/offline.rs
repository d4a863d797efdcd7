//! A node whose memory goes while it is looked at.
//!
//! ```text
//! has_memory 0-2 ──▶ census, within, the machine's looks
//!     │ offline > /sys/devices/system/memory/memoryN/state, each block of node 2
//! has_memory 0-1 ──▶ the same: its pages are elsewhere, the node is not told
//!     │ online_movable
//! has_memory 0-2 ──▶ the same again
//! ```
//!
//! Memory that was there at the boot holds tables of the kernel itself and can't go; a
//! DIMM that is plugged can.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use homenode_core::policy::order::{Act, Benefit, Order, OrderId, Reason};
use homenode_core::policy::seen::Seen;
use homenode_core::units::{NodeId, Pages, Picos};
use homenode_live::machine::{NoHeat, Places, WHOLE};
use homenode_live::places::ThisKernel;
use homenode_machine::conformance::{Load, Stage};
use homenode_machine::{ApplyError, Machine};
use serde_json::json;

use crate::asked::Asked;
use crate::places::with_memory;
use crate::stage::LiveStage;
use crate::{TestResult, needs, skip};

const PAGES: u64 = 2000;

/// Puts what went back, also where the test fails.
pub(crate) struct Blocks {
    node: usize,
    gone: Vec<PathBuf>,
}

impl Blocks {
    /// Takes a node's memory off line; `None`, with all of it back, if some can't go.
    pub(crate) fn offline(node: usize) -> Result<Option<Self>> {
        let folder = format!("/sys/devices/system/node/node{node}");
        let mut blocks = Self { node, gone: Vec::new() };
        for entry in fs::read_dir(&folder).context(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.strip_prefix("memory").is_none_or(|n| n.parse::<u32>().is_err()) {
                continue;
            }
            let state = PathBuf::from(format!("/sys/devices/system/memory/{name}/state"));
            // Pages that are just being used make it fail: a few times, then.
            let went = (0..5).any(|_| fs::write(&state, "offline").is_ok());
            if !went {
                return Ok(None);
            }
            blocks.gone.push(state);
        }
        Ok((!blocks.gone.is_empty()).then_some(blocks))
    }
    pub(crate) fn online(&mut self) -> Result<()> {
        for state in self.gone.drain(..) {
            fs::write(&state, "online_movable").with_context(|| state.display().to_string())?;
        }
        let there = with_memory()?;
        ensure!(there.contains(&(self.node as u32)), "node {} is not back: {there:?}", self.node);
        Ok(())
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for state in &self.gone {
            let _ = fs::write(state, "online_movable");
        }
    }
}

pub(crate) fn offline(asked: &Asked) -> TestResult {
    let node = asked.nodes.len() - 1;
    needs(node > 0, "one node: it can't go")?;
    match Blocks::offline(node)? {
        // It can: back, and once more under the eyes of homenode.
        Some(mut blocks) => blocks.online()?,
        None => {
            let why = format!("node {node} has memory that was there at the boot, and can't go");
            return Err(skip(why));
        }
    }
    let id = NodeId(node as u16);
    let mut stage = LiveStage::new(asked, |_| Ok(Box::new(NoHeat)))?;
    let (who, span) = stage.start(Load { pages: PAGES, on: id, busy: Picos::ZERO });
    let mut kernel = ThisKernel::new("/");
    let mut look = |when: &str, stage: &mut LiveStage| -> Result<(u64, bool)> {
        let there = stage.placed(who, span);
        let within = kernel.within(who, span).with_context(|| format!("{when}: no look"))?;
        ensure!(within == there, "{when}: homenode tells {within:?}, it is {there:?}");
        let census = kernel.census(who).with_context(|| format!("{when}: no census"))?;
        let whole = kernel.within(who, WHOLE).with_context(|| format!("{when}: no look at all"))?;
        let on = |found: &BTreeMap<NodeId, Pages>| found.get(&id).map_or(0, |p| p.0);
        ensure!(on(&census) >= on(&there), "{when}: census {census:?}, it is {there:?}");
        ensure!(on(&whole) == on(&census), "{when}: census {census:?}, all of it {whole:?}");
        let all: u64 = within.values().map(|p| p.0).sum();
        ensure!(all == PAGES, "{when}: {all} of {PAGES} pages");
        let mut seen = Vec::new();
        let until = stage.machine().now() + Picos::from_ms(150);
        stage.machine().wait(until, &mut seen).with_context(|| format!("{when}: no look"))?;
        ensure!(
            seen.iter().any(|s| matches!(s, Seen::Task { who: w, .. } if *w == who)),
            "{when}: the program is not seen"
        );
        let told = seen.iter().any(
            |s| matches!(s, Seen::Node { node, zones, .. } if *node == id && !zones.is_empty()),
        );
        Ok((on(&census), told))
    };
    let before = look("before", &mut stage)?;
    ensure!(before == (PAGES, true), "before: pages there and memory {before:?}");
    let Some(mut blocks) = Blocks::offline(node)? else {
        bail!("the memory of node {node} went, and does not with {PAGES} movable pages on it")
    };
    let between = look("while it is gone", &mut stage)?;
    ensure!(between == (0, false), "while it is gone: pages there and memory {between:?}");
    // An order for what is no more ends with a report, or is refused.
    let order = Order {
        id: OrderId(1),
        act: Act::Move { who, spans: vec![span], from: NodeId(0), to: id },
        expect: Benefit::default(),
        why: Reason::SourceNeeds,
    };
    match stage.machine().submit(&order) {
        Err(ApplyError::NoNode) => {}
        Err(e) => bail!("an order for a node that is gone: {e}"),
        Ok(()) => {
            let mut seen = Vec::new();
            stage.machine().wait(Picos::ZERO, &mut seen)?;
            let report = seen.iter().find_map(|s| match s {
                Seen::Done { moved, fails, .. } => Some((*moved, *fails)),
                _ => None,
            });
            let (moved, fails) = report.context("no report of the order")?;
            ensure!(
                moved == Pages::ZERO && fails.no_room + fails.absent == Pages(PAGES),
                "moved to a node that is gone: {moved:?}, {fails:?}"
            );
        }
    }
    blocks.online()?;
    let after = look("when it is back", &mut stage)?;
    ensure!(after == (0, true), "when it is back: pages there and memory {after:?}");
    Ok(json!({"node": node, "pages": PAGES}))
}
