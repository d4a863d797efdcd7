//! Sockets that find each other by connect and accept.
//!
//! Which two are peers is known when a socket is accepted. Of a local one the kernel is asked
//! for the inode of the other (sock_diag(7)). Where that is gone already, and with internet
//! addresses, both ends have a name in common: the address that was connected to, or both
//! addresses.
//!
//! Source: specs/waits.md#sockets

use super::*;
use std::mem::size_of;

/// Salt of a local address that is a name.
const LOCAL: u64 = 1;

/// `sock_diag`'s numbers: the family of messages, the request by family, and of a local socket
/// what is shown and the attribute that has the peer.
const BY_FAMILY: u16 = 20;
const SHOW_PEER: u32 = 4;
const PEER: u16 = 2;
const HEAD_BYTES: usize = 16;

/// A request for one local socket.
#[repr(C)]
struct Ask {
    len: u32,
    kind: u16,
    flags: u16,
    sequence: u32,
    port: u32,
    family: u8,
    protocol: u8,
    pad: u16,
    states: u32,
    inode: u32,
    show: u32,
    cookie: [u32; 2],
}

/// The inode of a local socket's peer, if it has one that is not closed.
fn peer(inode: u32) -> Option<u32> {
    let ask = Ask {
        len: size_of::<Ask>() as u32,
        kind: BY_FAMILY,
        flags: libc::NLM_F_REQUEST as u16,
        sequence: 1,
        port: 0,
        family: libc::AF_UNIX as u8,
        protocol: 0,
        pad: 0,
        states: u32::MAX,
        inode,
        show: SHOW_PEER,
        cookie: [u32::MAX; 2],
    };
    let mut answer = [0u8; 512];
    // SAFETY: plain calls on buffers of ours; the descriptor is ours and closed at once.
    let n = unsafe {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        let fd = libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG);
        if fd < 0 {
            return None;
        }
        let sent = libc::send(fd, (&raw const ask).cast(), size_of::<Ask>(), libc::MSG_DONTWAIT);
        let n = if sent > 0 {
            libc::recv(fd, answer.as_mut_ptr().cast(), answer.len(), libc::MSG_DONTWAIT)
        } else {
            -1
        };
        libc::close(fd);
        usize::try_from(n).ok()?
    };
    peer_in(answer.get(..n)?)
}

/// The peer that an answer tells of.
fn peer_in(answer: &[u8]) -> Option<u32> {
    let half = |at: usize| Some(u16::from_le_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_le_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    if half(4)? != BY_FAMILY {
        return None;
    }
    // The socket's own part of 16 bytes, then attributes: length, kind, value.
    let mut at = 2 * HEAD_BYTES;
    loop {
        let (len, kind) = (usize::from(half(at)?), half(at + 2)?);
        if kind == PEER {
            return word(at + 4).filter(|&inode| inode != 0);
        }
        at += len.max(4).next_multiple_of(4);
    }
}

/// An address as the kernel writes it; `None`: none, or not of a kind that is known here.
struct Address([u8; 128], usize);

impl Address {
    fn of(fd: i32, get: unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut u32) -> i32) -> Self {
        let mut new = Self([0; 128], 0);
        let mut len = new.0.len() as u32;
        // SAFETY: a buffer of ours of that length.
        if unsafe { get(fd, new.0.as_mut_ptr().cast(), &mut len) } == 0 {
            new.1 = (len as usize).min(new.0.len());
        }
        new
    }
    fn family(&self) -> i32 {
        if self.1 < 2 {
            libc::AF_UNSPEC
        } else {
            i32::from(u16::from_ne_bytes([self.0[0], self.0[1]]))
        }
    }
    /// A number for a local address: its bytes, without those behind a path.
    fn local(&self) -> Option<u64> {
        let path = self.0.get(2..self.1).filter(|p| !p.is_empty())?;
        let end = path.iter().skip(1).position(|&b| b == 0).filter(|_| path[0] != 0);
        let path = &path[..end.map_or(path.len(), |end| end + 1)];
        Some(path.iter().fold(LOCAL, |all, &b| mix(all ^ u64::from(b))))
    }
    /// A number for an internet address, the same for IPv4 in both notations.
    fn internet(&self) -> Option<u64> {
        let a = &self.0;
        let port = u64::from(u16::from_be_bytes([a[2], a[3]]));
        let word =
            |at: usize| u64::from(u32::from_be_bytes([a[at], a[at + 1], a[at + 2], a[at + 3]]));
        let address = match self.family() {
            libc::AF_INET => word(4),
            libc::AF_INET6 if (word(8), word(12), word(16)) == (0, 0, 0xffff) => word(20),
            libc::AF_INET6 => [8, 12, 16, 20].iter().fold(1, |all, &at| mix(all ^ word(at))),
            _ => return None,
        };
        Some(mix(address) ^ port)
    }
}

/// What both ends of a connection have in common, whichever end asks.
///
/// * `accepted` – it is the end that has the address which was connected to.
fn name(fd: i32, accepted: bool) -> Option<u64> {
    let own = Address::of(fd, libc::getsockname);
    let other = Address::of(fd, libc::getpeername);
    let name = match own.family() {
        libc::AF_UNIX if accepted => own.local()?,
        libc::AF_UNIX => other.local()?,
        _ => mix(own.internet()?).wrapping_add(mix(other.internet()?)),
    };
    Some(name | SHARED)
}

/// What listen(2) is given at most takes effect.
const MOST_WAIT: &str = "/proc/sys/net/core/somaxconn";

impl Task {
    /// A socket can be connected to. Of a local one it is known who waits for whom where as many
    /// as it says, and one more, have connected and are not accepted.
    pub(crate) fn listens(&mut self, fd: i32, backlog: u64) {
        if Address::of(fd, libc::getsockname).family() != libc::AF_UNIX {
            return;
        }
        let most = fs::read_to_string(MOST_WAIT).ok().and_then(|s| s.trim().parse().ok());
        let backlog = u64::from(backlog as u32).min(most.unwrap_or(u64::MAX));
        if let Object::Stream(o) = object(fd) {
            let order = self.number();
            self.release(Release::Listen, o, backlog, order);
        }
    }
    pub(super) fn connected(&mut self, fd: i32, order: u64) {
        if let (Object::Stream(o), Some(name)) = (object(fd), name(fd, false)) {
            self.release(Release::Connect, o, name, order);
            if Address::of(fd, libc::getsockname).family() == libc::AF_UNIX {
                self.wait(Block::Queue, o, 0);
            }
        }
    }
    /// A socket has been accepted from another.
    pub(super) fn accepted(&mut self, from: i32, fd: i32, entered: Entered) {
        let (Object::Stream(listener), Object::Stream(new)) = (object(from), object(fd)) else {
            return;
        };
        // At once: who waits for room among those who connect is let go on by now.
        let [first, second, third] = [(); 3].map(|()| self.number());
        match inode(fd).and_then(|(device, inode)| Some(mixed(device, u64::from(peer(inode)?)))) {
            Some(other) => self.release(Release::Pair, new, other, first),
            None => {
                if let Some(name) = name(fd, true) {
                    self.release(Release::Named, new, name, first);
                }
            }
        }
        self.release(Release::Accepted, new, listener, second);
        let us = if self.is_kept() { ((clock() - entered.at) / 1000).max(1) } else { 0 };
        self.point(Kind::Block, Block::Accept as u16, new, us, third);
    }
}

/// A local socket's device and inode.
fn inode(fd: i32) -> Option<(u64, u32)> {
    if Address::of(fd, libc::getsockname).family() != libc::AF_UNIX {
        return None;
    }
    let st = stat(fd)?;
    Some((st.st_dev, u32::try_from(st.st_ino).ok()?))
}
