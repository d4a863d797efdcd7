//! One direction of a connection over loopback.
//!
//! ```text
//!  send ─▶ copy, IP, softirq of the receiving side: all on the sender's CPU ─▶ queue ─▶ receive
//!    └─▶ behind what is not acknowledged (Nagle) ──▶ sent by the ACK, on the CPU of who read all
//! ```
//!
//! Source: specs/workloads.md#network.

use super::{SKB_END, SKB_HEAD, SNDBUF};
use crate::simulation::Simulation;
use homenode_core::costs::Cost;
use std::collections::VecDeque;

/// Bytes of a segment over loopback: its MTU is 65,536.
const MSS: u32 = 65_483;
/// Bytes under way of a connection: what `tcp_wmem` lets a buffer grow to.
const WINDOW: u64 = 4 << 20;

/// By which rules a connection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rules {
    /// TCP, each message at once.
    Stream,
    /// TCP, small ones wait for the ACK of those before.
    Nagle,
    /// UDP.
    Datagrams,
}

/// One direction.
#[derive(Clone, Debug)]
pub(super) struct Net {
    rules: Rules,
    /// What has come: bytes that nobody has read of each message, and what it takes of the buffer.
    messages: VecDeque<(u32, u32)>,
    taken: u64,
    /// Messages that wait for an ACK, and their bytes.
    held: VecDeque<u32>,
    held_bytes: u64,
    /// Something is sent that is not acknowledged.
    unacked: bool,
    /// A write is under way: its writer holds the socket.
    writes: bool,
    /// It has paid for no segment.
    cheap: bool,
    /// An ACK has come meanwhile, and waits in the socket's backlog for the end of the write.
    backlog: bool,
    read: u64,
    bytes: u64,
    lost: u64,
}

/// What came of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) bytes: u32,
    /// Segments that the reader had to take on: an ACK, and what it let go.
    pub(super) segments: u32,
    /// Who waits for room is to look.
    pub(super) room: bool,
}

impl Net {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            messages: VecDeque::new(),
            taken: 0,
            held: VecDeque::new(),
            held_bytes: 0,
            unacked: false,
            writes: false,
            cheap: false,
            backlog: false,
            read: 0,
            bytes: 0,
            lost: 0,
        }
    }
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
    /// Whether messages are read whole or not at all.
    pub(super) fn is_whole(&self) -> bool {
        self.rules == Rules::Datagrams
    }
    /// Whether a write of so many bytes that begins now only puts them behind others.
    pub(super) fn queues(&mut self, bytes: u32) -> bool {
        let waits = self.held_bytes + u64::from(bytes) < u64::from(MSS);
        self.writes = true;
        self.cheap = self.rules == Rules::Nagle && self.unacked && !self.backlog && waits;
        self.cheap
    }
    /// Whether a write that is about to be done sends a segment that it has not paid for: what came before
    /// is acknowledged by now. It pays, and asks no more.
    pub(super) fn owes(&mut self) -> bool {
        let free = self.backlog || !self.unacked;
        free && std::mem::take(&mut self.cheap)
    }
    fn comes(&mut self, bytes: u32) {
        let size = match self.rules {
            Rules::Stream | Rules::Nagle => bytes,
            Rules::Datagrams => (bytes + SKB_END).next_power_of_two() + SKB_HEAD,
        };
        self.messages.push_back((bytes, size));
        self.taken += u64::from(size);
    }
    /// All that waits for an ACK is sent.
    fn release(&mut self) {
        while let Some(bytes) = self.held.pop_front() {
            self.comes(bytes);
        }
        (self.held_bytes, self.unacked) = (0, true);
    }
    /// A message is written: whether something comes at the other side. `None`: there is no room for it, and it is not.
    pub(super) fn write(&mut self, bytes: u32) -> Option<bool> {
        self.writes = false;
        if std::mem::take(&mut self.backlog) {
            self.unacked = false;
        }
        match self.rules {
            Rules::Datagrams => {
                let size = u64::from((bytes + SKB_END).next_power_of_two() + SKB_HEAD);
                if self.taken + size > u64::from(SNDBUF) {
                    self.lost += 1;
                    return Some(false);
                }
            }
            Rules::Stream | Rules::Nagle if self.taken + self.held_bytes >= WINDOW => return None,
            Rules::Stream => {}
            Rules::Nagle if self.unacked => {
                self.held.push_back(bytes);
                self.held_bytes += u64::from(bytes);
                if self.held_bytes < u64::from(MSS) {
                    return Some(false);
                }
                self.release();
                return Some(true);
            }
            // What waited goes with it.
            Rules::Nagle => self.release(),
        }
        self.comes(bytes);
        Some(true)
    }
    /// Up to so many bytes are read; 0, or a datagram: a whole message.
    pub(super) fn read(&mut self, bytes: u32) -> Got {
        let mut got = Got::default();
        let whole = bytes == 0 || self.is_whole();
        while got.bytes < bytes || whole {
            let Some((left, size)) = self.messages.front_mut() else { break };
            let part = if whole { *left } else { (bytes - got.bytes).min(*left) };
            *left -= part;
            got.bytes += part;
            if *left == 0 {
                self.taken -= u64::from(*size);
                self.read += 1;
                self.messages.pop_front();
            }
            // Who has read all acknowledges it, and what waited for that comes now.
            let acks = self.rules == Rules::Nagle && self.unacked && !self.backlog;
            if self.messages.is_empty() && acks {
                got.segments += 1;
                // Who holds the socket sees to it at the end of its call.
                (self.backlog, self.unacked) = (self.writes, self.writes);
                if !self.writes && !self.held.is_empty() {
                    self.release();
                    got.segments += 1;
                }
            }
            if whole {
                break;
            }
        }
        self.bytes += u64::from(got.bytes);
        got.room = got.bytes > 0 && 3 * (self.taken + self.held_bytes) <= 2 * WINDOW;
        got
    }
}

/// What has gone through the connections of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetFigures {
    /// The name.
    pub name: String,
    /// Bytes that were read.
    pub bytes: u64,
    /// Messages that were read to their end.
    pub messages: u64,
    /// Datagrams that found no room.
    pub lost: u64,
}

impl NetFigures {
    pub(super) fn of<'a>(name: &str, nets: impl Iterator<Item = &'a Net>) -> Self {
        let mut all = Self { name: name.to_owned(), ..Self::default() };
        for net in nets {
            all.bytes += net.bytes;
            all.messages += net.read;
            all.lost += net.lost;
        }
        all
    }
}

impl Simulation {
    /// What has gone through the connections over loopback, by name.
    pub fn connections(&self) -> Vec<NetFigures> {
        self.channels.net_figures()
    }
    /// How long a call copies so many bytes.
    pub(crate) fn copy_time(&self, bytes: u32) -> u64 {
        u64::from(bytes) * 1_000_000 / self.kernel.prices[Cost::SocketCopy]
    }
    /// What a segment takes that a call had not paid for.
    pub(crate) fn segment_time(&self) -> u64 {
        let prices = &self.kernel.prices;
        prices[Cost::TcpSend].saturating_sub(prices[Cost::TcpQueue])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_wait_for_the_ack_and_come_together() {
        let mut net = Net::new(Rules::Nagle);
        assert!(!net.queues(64));
        assert_eq!(net.write(64), Some(true));
        for _ in 0..3 {
            assert!(net.queues(64) && !net.owes());
            assert_eq!(net.write(64), Some(false));
        }
        // The reader has all that came: its ACK brings the three that waited.
        assert_eq!(net.read(64), Got { bytes: 64, segments: 2, room: true });
        assert_eq!(net.read(128), Got { bytes: 128, segments: 0, room: true });
        assert_eq!(net.read(128), Got { bytes: 64, segments: 1, room: true });
        assert_eq!(net.read(1).bytes, 0);
        // A full segment does not wait.
        assert_eq!(net.write(1), Some(true));
        assert!(!net.queues(65_483));
        assert_eq!(net.write(65_483), Some(true));
    }

    #[test]
    fn an_ack_that_finds_the_socket_held_waits_for_the_end_of_the_write() {
        let mut net = Net::new(Rules::Nagle);
        net.write(64);
        assert!(net.queues(64));
        net.write(64);
        // While a third is written, the reader acknowledges the first.
        assert!(net.queues(64));
        assert_eq!(net.read(64), Got { bytes: 64, segments: 1, room: true });
        assert_eq!(net.read(64).bytes, 0, "nothing has come yet");
        // The writer pays for a segment, once, and sends both.
        assert_eq!((net.owes(), net.owes()), (true, false));
        assert_eq!(net.write(64), Some(true));
        assert_eq!(net.read(200), Got { bytes: 128, segments: 1, room: true });
    }

    #[test]
    fn a_stream_is_full_until_a_third_is_free() {
        let mut net = Net::new(Rules::Stream);
        let n = (0..).take_while(|_| net.write(65_536).is_some()).count();
        assert_eq!(n, 64);
        let room = (1..).find(|_| net.read(65_536).room);
        assert_eq!(room, Some(22));
        // What is left of a message, however much that is.
        assert_eq!(net.read(4).bytes, 4);
        assert_eq!(net.read(0).bytes, 65_532);
    }

    #[test]
    fn datagrams_that_find_no_room_are_lost() {
        let mut net = Net::new(Rules::Datagrams);
        (0..300).for_each(|_| assert!(net.write(100).is_some()));
        // 768 bytes each.
        let all = NetFigures::of("d", std::iter::once(&net));
        assert_eq!((all.lost, net.messages.len()), (23, 277));
        // One is read whole, also by who asks for less.
        assert_eq!((net.read(1).bytes, net.read(500).bytes), (100, 100));
        let all = NetFigures::of("d", std::iter::once(&net));
        assert_eq!((all.bytes, all.messages), (200, 2));
    }
}
