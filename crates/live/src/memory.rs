//! Nodes' memory: /proc/zoneinfo.
//!
//! ```text
//! Node 0, zone   Normal
//!   per-node stats               in a node's first zone with memory; passed over
//!   pages free     219432
//!         boost    0
//!         min      11271         the marks, boost included
//!         low      14088
//!         high     16905
//!         promo    19722         Linux 6.12; before: as far above high as high above low
//!         present  3145728
//!         managed  2999876
//!         protection: (0, 0, 0, 1986, 1986)     by the zone that was asked for
//!       nr_free_pages 219432
//! ```
//!
//! The file is read whole, since the kernel counts nothing for it: it has the counters.
//!
//! Source: specs/live.md#memory.

#[cfg(test)]
mod tests;

use crate::machine::Memory;
use homenode_core::policy::seen::ZoneSeen;
use homenode_core::tiering::watermarks::ZoneMarks;
use homenode_core::topology::ZoneKind;
use homenode_core::units::{NodeId, PAGE_SIZE, Pages};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The zones of all nodes that are there.
#[derive(Clone, Debug)]
pub struct Zoneinfo {
    file: PathBuf,
    /// 4 KiB pages in one of the system's.
    page: u64,
}

impl Zoneinfo {
    /// Reads `proc/zoneinfo` below `root`: `/` for this machine.
    pub fn new(root: &Path) -> Self {
        // SAFETY: asks for a constant.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1).unsigned_abs();
        Self { file: root.join("proc/zoneinfo"), page: page.div_ceil(PAGE_SIZE) }
    }
}

impl Memory for Zoneinfo {
    fn look(&mut self) -> io::Result<Vec<(NodeId, Vec<ZoneSeen>)>> {
        let text = fs::read(&self.file)?;
        let views = parse(&String::from_utf8_lossy(&text)).ok_or_else(|| {
            let path = self.file.display();
            io::Error::new(io::ErrorKind::InvalidData, format!("{path} is no list of zones"))
        })?;
        let mut nodes: BTreeMap<NodeId, Vec<ZoneSeen>> = BTreeMap::new();
        for view in views {
            // A node without memory has zones too, all of them empty.
            let zones = nodes.entry(view.node).or_default();
            zones.extend(view.seen(self.page));
        }
        let mut nodes: Vec<_> = nodes.into_iter().collect();
        // Highest zone first, as allocation takes them.
        nodes
            .iter_mut()
            .for_each(|(_, zones)| zones.sort_by_key(|z| std::cmp::Reverse(z.marks.kind)));
        Ok(nodes)
    }
}

/// What one zone of `/proc/zoneinfo` says, in the system's pages. What is not said is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ZoneView {
    pub(crate) node: NodeId,
    /// `None` for memory that is not for allocation, such as devices'.
    pub(crate) kind: Option<ZoneKind>,
    pub(crate) free: u64,
    pub(crate) min: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) promo: Option<u64>,
    pub(crate) present: u64,
    pub(crate) managed: u64,
    /// Pages kept from allocations that could also use any higher zone.
    pub(crate) reserve: u64,
}

impl ZoneView {
    /// `None` for a zone that has nothing to be allocated.
    fn seen(&self, page: u64) -> Option<ZoneSeen> {
        let pages = |n: u64| Pages(n.saturating_mul(page));
        // So far above high is promo in every kernel that has it, shown or not.
        let step = self.high.saturating_sub(self.low);
        let promo = self.promo.unwrap_or(self.high.saturating_add(step));
        let marks = ZoneMarks {
            kind: self.kind?,
            managed: pages(self.managed),
            min: pages(self.min),
            low: pages(self.low),
            high: pages(self.high),
            promo: pages(promo),
            reserve: pages(self.reserve),
        };
        (self.managed > 0).then_some(ZoneSeen { free: pages(self.free), marks })
    }
}

/// All zones of a zoneinfo, in its order; `None` if it is none.
pub(crate) fn parse(text: &str) -> Option<Vec<ZoneView>> {
    let mut views: Vec<ZoneView> = Vec::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("Node ") {
            views.push(heading(head)?);
            continue;
        }
        let Some(view) = views.last_mut() else { continue };
        let line = line.trim_start();
        if let Some(kept) = line.strip_prefix("protection:") {
            // One for each kind of zone that can have been asked for; the last one is
            // what those find who could have had any.
            let last = kept.trim().trim_end_matches(')').rsplit([',', '(']).next();
            view.reserve = last?.trim().parse().ok()?;
            continue;
        }
        let words = line.strip_prefix("pages ").unwrap_or(line);
        let Some((word, value)) = words.split_once(' ') else { continue };
        let place = match word {
            "free" => &mut view.free,
            "min" => &mut view.min,
            "low" => &mut view.low,
            "high" => &mut view.high,
            "promo" => view.promo.insert(0),
            "present" => &mut view.present,
            "managed" => &mut view.managed,
            _ => continue,
        };
        *place = value.trim().parse().ok()?;
    }
    (!views.is_empty()).then_some(views)
}

/// `0, zone   Normal`
fn heading(text: &str) -> Option<ZoneView> {
    let (node, zone) = text.split_once(',')?;
    let kind = match zone.trim().strip_prefix("zone")?.trim() {
        "DMA" => Some(ZoneKind::Dma),
        "DMA32" => Some(ZoneKind::Dma32),
        "Normal" | "HighMem" => Some(ZoneKind::Normal),
        "Movable" => Some(ZoneKind::Movable),
        _ => None,
    };
    Some(ZoneView {
        node: NodeId(node.trim().parse().ok()?),
        kind,
        free: 0,
        min: 0,
        low: 0,
        high: 0,
        promo: None,
        present: 0,
        managed: 0,
        reserve: 0,
    })
}
