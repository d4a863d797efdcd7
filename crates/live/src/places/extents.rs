//! All memory of a process in one pass: what is there, and on which node.
//!
//! ```text
//! PAGEMAP_SCAN ─ runs in memory ─▶ frames of pagemap ─▶ nodes ─▶ core's extents
//! ```
//!
//! What no node claims (a device's memory) or two do is left out.
//!
//! Source: specs/live.md#places.

use super::BATCH;
use super::frames::Frames;
use super::present::{self, Piece};
use homenode_core::policy::extents::{Extent, Extents};
use homenode_core::policy::seen::Span;
use homenode_core::units::NodeId;
use std::fs::File;
use std::io;

/// What tells the node of a page.
#[derive(Clone, Copy, Debug)]
pub(super) enum Nodes<'f> {
    /// There is one only.
    Only(NodeId),
    /// Its frame.
    Frames(&'f Frames),
}

/// Takes pages by rising number.
struct Pass<'f> {
    pagemap: &'f File,
    nodes: Nodes<'f>,
    /// Pages whose frames are to be read.
    pieces: Vec<Piece>,
    /// Pages that lie together on one node, not handed on yet.
    run: Option<(Piece, NodeId)>,
    extents: Extents,
}

impl Pass<'_> {
    fn add(&mut self, piece: Piece, on: NodeId) {
        match &mut self.run {
            Some((run, node)) if *node == on && run.page + run.pages == piece.page => {
                run.pages += piece.pages;
            }
            run => {
                if let Some((run, node)) = run.replace((piece, on)) {
                    self.extents.add(run.page, run.pages, node);
                }
            }
        }
    }
    fn look_up(&mut self, frames: &Frames) -> io::Result<()> {
        let pieces = std::mem::take(&mut self.pieces);
        present::frames(self.pagemap, &pieces, |piece, frame| {
            if let Some(node) = frame.and_then(|frame| frames.node(frame)) {
                self.add(piece, node);
            }
        })
    }
    fn done(mut self) -> Vec<Extent> {
        if let Some((run, node)) = self.run.take() {
            self.extents.add(run.page, run.pages, node);
        }
        self.extents.done()
    }
}

/// The extents of the process whose file that is.
///
/// # Errors
/// ENOTTY where the kernel has no PAGEMAP_SCAN, which came with Linux 6.7.
pub(super) fn read(pagemap: &File, nodes: Nodes<'_>) -> io::Result<Vec<Extent>> {
    let mut pass =
        Pass { pagemap, nodes, pieces: Vec::new(), run: None, extents: Extents::default() };
    let mut got = Ok(());
    present::scan(pagemap, Span::WHOLE, |piece| match pass.nodes {
        Nodes::Only(node) => pass.add(piece, node),
        Nodes::Frames(frames) => {
            pass.pieces.push(piece);
            if pass.pieces.len() >= BATCH && got.is_ok() {
                got = pass.look_up(frames);
            }
        }
    })?;
    got?;
    if let Nodes::Frames(frames) = nodes {
        pass.look_up(frames)?;
    }
    Ok(pass.done())
}
