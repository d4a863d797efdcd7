//! Sockets that find each other: who accepts waits for who connects.
//!
//! ```text
//! task 0   connect socket 7 to N, order 3
//! task 1   accepted 9 from 5, 9's peer is 7 (or its name is N), accept returned, order 6
//! ```
//!
//! Source: specs/waits.md#sockets

use super::*;

/// What is known of sockets before anything goes through them.
#[derive(Default)]
pub(super) struct Sockets {
    /// Who reads what is written to a socket.
    pub(super) peers: BTreeMap<u64, u64>,
    /// By connected socket: the connect.
    connects: BTreeMap<u64, u32>,
    /// By socket that others connect to: those accepted from it, in their order.
    accepted: BTreeMap<u64, Vec<(u64, u64)>>,
    /// By accepted socket: the socket that it is from, and how many were accepted before.
    place: BTreeMap<u64, (u64, usize)>,
    /// By socket that others connect to: how many may wait to be accepted, without one.
    listens: BTreeMap<u64, u64>,
    /// By accepted socket: where it was.
    accepts: BTreeMap<u64, u32>,
}

impl Sockets {
    pub(super) fn new(points: &[Point], by_order: &[u32]) -> Self {
        let mut new = Self::default();
        // By name: who has connected by it and has no peer yet.
        let mut waiting: BTreeMap<u64, VecDeque<u64>> = BTreeMap::new();
        let mut named: Vec<(u64, u64)> = Vec::new();
        for &n in by_order {
            let Point { order, what, .. } = points[n as usize];
            let (of, object, arg) = match what {
                What::Release(of, (_, object), arg) => (of, object, arg),
                What::Block(Block::Accept, (_, object), _) => {
                    new.accepts.insert(object, n);
                    continue;
                }
                What::Block(..) | What::Exec | What::Exit => continue,
            };
            match of {
                Release::Pair => new.pair(object, arg),
                Release::Connect => {
                    new.connects.insert(object, n);
                    waiting.entry(arg).or_default().push_back(object);
                }
                Release::Named => named.push((object, arg)),
                Release::Accepted => {
                    let all = new.accepted.entry(arg).or_default();
                    new.place.insert(object, (arg, all.len()));
                    all.push((order, object));
                }
                Release::Listen => drop(new.listens.insert(object, arg)),
                Release::Futex
                | Release::Requeue
                | Release::Bytes
                | Release::Close
                | Release::ClearTid
                | Release::Word
                | Release::Signal
                | Release::Timer
                | Release::Unlock
                | Release::Deadline
                | Release::Bits
                | Release::Moved => {}
            }
        }
        // Accepted in the order in which they have connected, but for those whose peer is known.
        for (socket, name) in named {
            let Some(waiting) = waiting.get_mut(&name) else { continue };
            let free = |c: &u64| !new.peers.contains_key(c);
            while let Some(other) = waiting.pop_front() {
                if free(&other) {
                    new.pair(socket, other);
                    break;
                }
            }
        }
        new
    }
    fn pair(&mut self, one: u64, other: u64) {
        self.peers.insert(one, other);
        self.peers.insert(other, one);
    }
    fn connect(&self, accepted: u64) -> Option<u32> {
        self.connects.get(self.peers.get(&accepted)?).copied()
    }
    /// Whether others are accepted from it.
    pub(super) fn is_listener(&self, socket: u64) -> bool {
        self.accepted.contains_key(&socket)
    }
    /// Of a connected socket: where that was accepted which had to be before this found room
    /// among those who wait.
    fn room(&self, connected: u64) -> Option<u32> {
        let (listener, place) = *self.place.get(self.peers.get(&connected)?)?;
        let holds = usize::try_from(*self.listens.get(&listener)?).ok()?.checked_add(1)?;
        let (_, before) = self.accepted.get(&listener)?.get(place.checked_sub(holds)?)?;
        self.accepts.get(before).copied()
    }
    /// The connect that makes a socket ready, of which those accepted so far are gone.
    fn first(&self, listener: u64, order: u64) -> Option<u32> {
        let all = self.accepted.get(&listener)?;
        let (_, next) = all.get(all.partition_point(|a| a.0 < order))?;
        self.connect(*next)
    }
}

impl Resolver<'_> {
    /// Who accepts, and who waits for somebody to accept.
    pub(super) fn accepts(&mut self, sockets: &Sockets) {
        for (n, &Point { order, what, .. }) in (0..).zip(self.points) {
            match what {
                What::Block(Block::Accept, (_, new), us) => match sockets.connect(new) {
                    Some(by) => self.ends(n, Some(by)),
                    None => self.after[n as usize] = After::Time(us.saturating_mul(1000)),
                },
                What::Block(Block::Ready, (_, object), arg) if !self.known[n as usize] => {
                    match sockets.first(object, order) {
                        Some(by) => self.ends(n, Some(by)),
                        None if sockets.is_listener(object) => self.lasts(n, arg >> 32),
                        None => {}
                    }
                }
                What::Block(Block::Queue, (_, object), _) => {
                    self.known[n as usize] = true;
                    self.ends(n, sockets.room(object));
                }
                What::Release(..) | What::Block(..) | What::Exec | What::Exit => {}
            }
        }
    }
}
