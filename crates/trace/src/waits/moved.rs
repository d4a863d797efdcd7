//! Bytes that the kernel moves from one object to another: splice(2), tee(2).
//!
//! The call takes its number when it returns, since it may have waited for what it moves. Who
//! reads that at the other end may have a smaller number: the bytes were there before the call
//! returned. So such a call gets the place right behind what brought its bytes, between two
//! numbers, and not before it was entered.
//!
//! ```text
//! task 0   write to 7, order 4
//! task 1   splice from 7 to 8 begins at order 3, returns at 6: it belongs behind 4
//! task 2   read from 8, order 5 ◀── ended by the splice
//! ```
//!
//! Source: specs/waits.md#who-ends-what

use super::*;

/// Moves that are behind one another at most, as those of a chain of such programs.
const CHAIN: usize = 7;

/// A call that moves bytes.
struct Move {
    /// Where it waits for them, and where it gives them on.
    wait: u32,
    release: u32,
    /// The order of the task's last point before, and of its entry.
    from: u64,
    /// What brought the bytes.
    by: u32,
}

impl Points {
    /// Gives places to what moves bytes; whether there is any.
    pub(super) fn place_moved(&mut self, by_order: &[u32], sockets: &Sockets) -> bool {
        let mut moves = self.moves(by_order, sockets);
        moves.sort_by_key(|m| self.all[m.wait as usize].order);
        let returned: Vec<u64> = moves.iter().map(|m| self.all[m.wait as usize].order).collect();
        for _ in 0..CHAIN {
            let mut changed = false;
            for (m, returned) in moves.iter().zip(&returned) {
                let order = m.from.max(self.all[m.by as usize].order);
                if order + 2 < *returned {
                    changed |= self.all[m.release as usize].order != order + 2;
                    self.all[m.wait as usize].order = order + 1;
                    self.all[m.release as usize].order = order + 2;
                }
            }
            if !changed {
                break;
            }
        }
        !moves.is_empty()
    }

    /// All of which it is known what brought their bytes.
    fn moves(&self, by_order: &[u32], sockets: &Sockets) -> Vec<Move> {
        // By the wait that stands before: the move, and where the task was before both.
        let mut pairs: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
        // By task: the point before, and the order of the one before that.
        let mut latest: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
        for (n, point) in (0..).zip(&self.all) {
            let before = latest.get(&point.task).copied();
            if let (What::Release(Release::Moved, _, arg), Some((wait, from))) =
                (point.what, before)
            {
                let began = point.order.saturating_sub((arg >> 32).saturating_mul(SPREAD));
                pairs.insert(wait, (n, from.max(began)));
            }
            let order = before.map_or(0, |(n, _)| self.all[n as usize].order);
            latest.insert(point.task, (n, order));
        }
        if pairs.is_empty() {
            return Vec::new();
        }
        let (mut written, mut read) = (BTreeMap::new(), BTreeMap::new());
        let other_end = |o| sockets.peers.get(&o).copied().unwrap_or(o);
        let few = |arg: u64| arg & u64::from(u32::MAX);
        // Moves count where they were entered: mostly nobody else writes there.
        let mut writes: Vec<(u64, u64, u64, u32)> = Vec::new();
        for (n, point) in (0..).zip(&self.all) {
            match point.what {
                What::Release(Release::Bytes, (_, object), bytes) => {
                    writes.push((point.order, other_end(object), bytes, n));
                }
                What::Release(Release::Moved, (_, object), arg) => {
                    let began = point.order.saturating_sub((arg >> 32).saturating_mul(SPREAD));
                    writes.push((began, other_end(object), few(arg), n));
                }
                What::Release(..) | What::Block(..) | What::Exec | What::Exit => {}
            }
        }
        writes.sort_unstable();
        for (_, object, bytes, n) in writes {
            let all: &mut Vec<(u64, u32)> = written.entry(object).or_default();
            all.push((Stream::so_far(all).saturating_add(bytes), n));
        }
        let mut moves = Vec::new();
        for &wait in by_order {
            let What::Block(of, (_, object), arg) = self.all[wait as usize].what else { continue };
            let so_far = read.entry(object).or_insert(0u64);
            let last = match of {
                Block::Bytes => {
                    *so_far = so_far.saturating_add(few(arg));
                    so_far.saturating_sub(1)
                }
                // What is copied stays there.
                Block::Ready => *so_far,
                _ => continue,
            };
            let by = written.get(&object).and_then(|all| Stream::beyond(all, last));
            if let (Some(&(release, from)), Some(by)) = (pairs.get(&wait), by) {
                moves.push(Move { wait, release, from, by });
            }
        }
        moves
    }
}
