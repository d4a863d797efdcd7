//! What tasks wait for one another with: pipes, sockets, connections over loopback, futexes, locks.
//!
//! ```text
//!  write ──▶ ▓▓▓▓░░░░ ──▶ read         who finds it full or empty is put on a queue,
//!            writers, readers           and tries again when it has been woken
//! ```
//!
//! Each call says whether it was done and who is to be woken. It wakes nobody itself.
//!
//! Source: specs/workloads.md#channels.

use homenode_core::kernel::KernelVersion;
use homenode_core::scenario::{Channel as Declared, ChannelKind, Which};
use std::collections::VecDeque;

mod net;
mod pipe;

pub use net::NetFigures;
use net::{Net, Rules};
use pipe::Pipe;

/// Bytes that may be under way in a socket (`net.core.wmem_default`).
const SNDBUF: u32 = 212_992;
/// What a message takes beside its bytes: the end of its buffer, and its head.
const SKB_END: u32 = 320;
const SKB_HEAD: u32 = 256;

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// Done.
    Done,
    /// Not: the task is on a queue now, and tries again when it is woken.
    Waits,
}

/// A call that is about one message, of so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Write it.
    Write(u32),
    /// Read it.
    Read(u32),
}

impl Message {
    /// Its bytes.
    pub(crate) const fn bytes(self) -> u32 {
        match self {
            Self::Write(bytes) | Self::Read(bytes) => bytes,
        }
    }
}

/// A message in a socket.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// Bytes that nobody has read.
    left: u32,
    /// What it takes of the buffer.
    size: u32,
    /// Where it was sent.
    cpu: u32,
}

/// Messages, and what they take of the buffer in all.
#[derive(Clone, Debug, Default)]
struct Socket {
    messages: VecDeque<Sent>,
    taken: u32,
    /// Where the last was read.
    reader: Option<u32>,
}

/// The state of one channel.
#[derive(Clone, Debug)]
enum State {
    Pipe(Pipe),
    Socket(Socket),
    /// One direction over loopback.
    Net(Net),
    /// Wakes that nobody has taken yet.
    Futex(u64),
    /// Who has it.
    Mutex(Option<usize>),
}

/// One channel, and who waits at its two ends.
#[derive(Clone, Debug)]
struct Channel {
    state: State,
    /// Who waits for something to come: readers, waiters of a futex or a lock.
    takers: VecDeque<usize>,
    /// Who waits for room.
    givers: VecDeque<usize>,
}

/// The channels of one name.
#[derive(Clone, Debug)]
struct Name {
    name: String,
    kind: ChannelKind,
    first: u32,
    count: u32,
    group: u32,
}

/// All channels of a scenario.
#[derive(Clone, Debug, Default)]
pub(crate) struct Channels {
    names: Vec<Name>,
    all: Vec<Channel>,
    /// Readers and writers of a pipe wait in one queue, and all of them are woken.
    one_queue: bool,
    /// Segments beyond what its price has in it that the last read over loopback had to take on.
    segments: u32,
    /// Messages that the last read of a socket has taken out and another CPU had sent.
    far: u32,
}

impl Channels {
    pub(crate) fn new(declared: &[Declared], version: KernelVersion) -> Self {
        // The two queues came with 5.5.
        let mut it = Self { one_queue: version < KernelVersion::V5_18, ..Self::default() };
        for d in declared {
            let first = it.all.len() as u32;
            it.names.push(Name {
                name: d.name.clone(),
                kind: d.kind,
                first,
                count: d.count,
                group: d.group.max(1),
            });
            let state = match d.kind {
                ChannelKind::Pipe => State::Pipe(Pipe::default()),
                ChannelKind::Socket => State::Socket(Socket::default()),
                ChannelKind::Tcp if d.nodelay => State::Net(Net::new(Rules::Stream)),
                ChannelKind::Tcp => State::Net(Net::new(Rules::Nagle)),
                ChannelKind::Udp => State::Net(Net::new(Rules::Datagrams)),
                ChannelKind::Futex => State::Futex(0),
                ChannelKind::Mutex => State::Mutex(None),
            };
            let one = Channel { state, takers: VecDeque::new(), givers: VecDeque::new() };
            it.all.resize(it.all.len() + d.count as usize, one);
        }
        it
    }
    /// The place of the channels of a name among all names.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|n| n.name == name)
    }
    /// Of which kind the channels of a name are.
    pub(crate) fn kind(&self, name: usize) -> ChannelKind {
        self.names[name].kind
    }
    /// The channels that a step of a task means: the first, and how many there are of them.
    pub(crate) fn meant(&self, name: usize, which: Which, task: u64) -> (u32, u32) {
        let n = &self.names[name];
        match which {
            Which::Own => (n.first + (task % u64::from(n.count)) as u32, 1),
            Which::Group => {
                let groups = u64::from(n.count / n.group);
                let group = (task / u64::from(n.group)) % groups.max(1);
                (n.first + group as u32 * n.group, n.group)
            }
            Which::Number(number) => (n.first + number, 1),
        }
    }
    /// What people call a channel.
    pub(crate) fn told(&self, channel: u32) -> String {
        let found = self.names.iter().find(|n| (n.first..n.first + n.count).contains(&channel));
        match found {
            Some(n) if n.count == 1 => format!("the {} \"{}\"", n.kind.name(), n.name),
            Some(n) => {
                format!("number {} of the {} \"{}\"", channel - n.first, n.kind.name(), n.name)
            }
            None => String::new(),
        }
    }
    /// Who has a lock.
    pub(crate) fn owner(&self, channel: u32) -> Option<usize> {
        match self.all[channel as usize].state {
            State::Mutex(owner) => owner,
            State::Pipe(_) | State::Socket(_) | State::Net(_) | State::Futex(_) => None,
        }
    }

    // ── Ahead of time ──────────────────────────────────────────────────────────

    /// The pipe of that number, if it is one where a call wakes nobody, and whether somebody waits for room there. Who does is
    /// told when a page has been read to its end, so other calls may be done ahead beside them.
    #[inline]
    fn quiet_pipe(&mut self, channel: u32, call: Message) -> Option<(&mut Pipe, bool)> {
        let c = &mut self.all[channel as usize];
        let State::Pipe(pipe) = &mut c.state else { return None };
        let crowded = !c.givers.is_empty();
        let quiet = match call {
            _ if !c.takers.is_empty() => false,
            Message::Write(_) => !crowded,
            Message::Read(bytes) => !crowded || pipe.stays_in_page(bytes),
        };
        quiet.then_some((pipe, crowded))
    }
    /// Whether [`Channels::calls_ahead`] may be certain of a call: most of those that it can't be are told here.
    #[inline]
    pub(crate) fn may_be_ahead(&mut self, channel: u32, call: Message) -> bool {
        let pipe = self.quiet_pipe(channel, call);
        pipe.is_some_and(|(pipe, _)| match call {
            Message::Write(_) => pipe.certain() > 0,
            Message::Read(bytes) => pipe.certain() > bytes,
        })
    }
    /// A task writes to a pipe, or reads, at a time that may still come, if it is certain already that it need
    /// not wait and wakes nobody, whatever others do until then; and so up to `most` times, one after the other. How often
    /// that is certain. `cpu` is where it runs.
    #[inline]
    pub(crate) fn calls_ahead(
        &mut self,
        channel: u32,
        cpu: usize,
        call: Message,
        most: u32,
    ) -> u32 {
        let Some((pipe, crowded)) = self.quiet_pipe(channel, call) else { return 0 };
        match call {
            Message::Write(bytes) => {
                let mut times = 0;
                while times < most && pipe.write_ahead(bytes, cpu) {
                    times += 1;
                }
                times
            }
            Message::Read(bytes) => pipe.read_ahead(bytes, cpu, most, crowded),
        }
    }
    /// The same once at each of up to `most` channels side by side, in their order: how many of them that is certain for.
    #[inline]
    pub(crate) fn calls_across(&mut self, first: u32, cpu: usize, call: Message, most: u32) -> u32 {
        match call {
            Message::Write(bytes) => {
                let certain = |c: &mut Channel| {
                    let State::Pipe(pipe) = &mut c.state else { return false };
                    c.takers.is_empty() && c.givers.is_empty() && pipe.write_ahead(bytes, cpu)
                };
                let some = &mut self.all[first as usize..(first + most) as usize];
                some.iter_mut().position(|c| !certain(c)).map_or(most, |n| n as u32)
            }
            Message::Read(_) => {
                let mut all = first..first + most;
                let end = all.find(|&channel| self.calls_ahead(channel, cpu, call, 1) == 0);
                end.map_or(most, |channel| channel - first)
            }
        }
    }
    /// Takes back what [`Channels::calls_ahead`] has done, so many times.
    pub(crate) fn take_back(&mut self, channel: u32, call: Message, times: u32) {
        if let State::Pipe(pipe) = &mut self.all[channel as usize].state {
            match call {
                Message::Write(bytes) => (0..times).for_each(|_| pipe.unwrite(bytes)),
                Message::Read(bytes) => pipe.unread(bytes, times),
            }
        }
    }
    /// The time of what [`Channels::calls_ahead`] has done has come, so many times.
    #[inline]
    pub(crate) fn has_come(&mut self, channel: u32, call: Message, times: u32) {
        if let State::Pipe(pipe) = &mut self.all[channel as usize].state {
            match call {
                Message::Write(_) => pipe.written(times),
                Message::Read(_) => pipe.read(times),
            }
        }
    }
    /// The same of what [`Channels::calls_across`] has done at so many channels. `known`: a bit for each, where that is known
    /// already.
    #[inline]
    pub(crate) fn have_come(&mut self, first: u32, call: Message, times: u32, known: u64) {
        let some = &mut self.all[first as usize..(first + times) as usize];
        for (place, c) in some.iter_mut().enumerate() {
            if let (State::Pipe(pipe), 0) = (&mut c.state, known >> place & 1) {
                match call {
                    Message::Write(_) => pipe.written(1),
                    Message::Read(_) => pipe.read(1),
                }
            }
        }
    }
    /// A task writes to a pipe, or reads, now. `Some(true)`: that is done, and wakes nobody. `Some(false)`: it has
    /// to be known first what is there now, of what others have done ahead of time.
    #[inline]
    pub(crate) fn call_beside(&mut self, channel: u32, call: Message) -> Option<bool> {
        let State::Pipe(pipe) = &self.all[channel as usize].state else { return None };
        if !pipe.is_ahead() {
            return None;
        }
        Some(self.quiet_pipe(channel, call).is_some_and(|(pipe, _)| match call {
            Message::Write(bytes) => pipe.write_beside(bytes),
            Message::Read(bytes) => pipe.read_beside(bytes),
        }))
    }
    /// The CPUs whose tasks may be ahead at a channel: a bit for each, of the number modulo 64.
    pub(crate) fn ahead_at(&self, channel: u32) -> u64 {
        match &self.all[channel as usize].state {
            State::Pipe(pipe) => pipe.cpus(),
            State::Socket(_) | State::Net(_) | State::Futex(_) | State::Mutex(_) => 0,
        }
    }

    /// Whether a task that waits for a channel does so for something to come; else for room.
    pub(crate) fn takes(&self, channel: u32, task: usize) -> bool {
        self.all[channel as usize].takers.contains(&task)
    }

    /// Whether what is sent to a socket from a CPU is read on another: where the last message was read.
    pub(crate) fn is_read_far(&self, channel: u32, cpu: usize) -> bool {
        match &self.all[channel as usize].state {
            State::Socket(socket) => socket.reader.is_some_and(|reader| reader != cpu as u32),
            State::Pipe(_) | State::Net(_) | State::Futex(_) | State::Mutex(_) => false,
        }
    }
    /// Messages of other CPUs that the last read of a socket has taken out: they are taken with this.
    pub(crate) fn sent_far(&mut self) -> u32 {
        std::mem::take(&mut self.far)
    }

    /// A task writes a message, on a CPU. Whoever is to be woken is appended to `wakes`.
    pub(crate) fn write(
        &mut self,
        channel: u32,
        (task, cpu): (usize, usize),
        bytes: u32,
        wakes: &mut Vec<usize>,
    ) -> Tried {
        let cpu = cpu as u32;
        let c = &mut self.all[channel as usize];
        let done = match &mut c.state {
            State::Pipe(pipe) => {
                let was_empty = pipe.is_empty();
                if !pipe.put(bytes) {
                    // What those found who waited before counts while one of them still does.
                    let before = pipe.too_little && !c.givers.is_empty();
                    pipe.too_little = before || !pipe.is_full();
                    c.givers.push_back(task);
                    return Tried::Waits;
                }
                if self.one_queue {
                    wakes.extend(c.takers.drain(..).chain(c.givers.drain(..)));
                    return Tried::Done;
                }
                // Only who finds it empty has somebody to wake.
                was_empty
            }
            State::Socket(socket) => {
                if socket.taken >= SNDBUF {
                    c.givers.push_back(task);
                    return Tried::Waits;
                }
                let size = (bytes + SKB_END).next_power_of_two() + SKB_HEAD;
                socket.messages.push_back(Sent { left: bytes, size, cpu });
                socket.taken += size;
                true
            }
            State::Net(net) => {
                let Some(comes) = net.write(bytes) else {
                    c.givers.push_back(task);
                    return Tried::Waits;
                };
                comes
            }
            State::Futex(_) | State::Mutex(_) => true,
        };
        if done {
            wakes.extend(c.takers.pop_front());
        }
        // Room that is left is for the next who waits for it.
        if let State::Pipe(pipe) = &c.state {
            if !pipe.is_full() {
                wakes.extend(c.givers.pop_front());
            }
        }
        Tried::Done
    }
    /// Whether a write of so many bytes is only put behind others that have not been acknowledged.
    pub(crate) fn queues(&mut self, channel: u32, bytes: u32) -> bool {
        match &mut self.all[channel as usize].state {
            State::Net(net) => net.queues(bytes),
            State::Pipe(_) | State::Socket(_) | State::Futex(_) | State::Mutex(_) => false,
        }
    }
    /// A task is about to read: if nothing has come over loopback, it waits for that from now on.
    pub(crate) fn waits_for(&mut self, channel: u32, task: usize) -> bool {
        let c = &mut self.all[channel as usize];
        let waits = matches!(&c.state, State::Net(net) if net.is_empty());
        if waits {
            c.takers.push_back(task);
        }
        waits
    }
    /// Whether a write that is about to be done has to pay for a segment first.
    pub(crate) fn owes(&mut self, channel: u32) -> bool {
        match &mut self.all[channel as usize].state {
            State::Net(net) => net.owes(),
            State::Pipe(_) | State::Socket(_) | State::Futex(_) | State::Mutex(_) => false,
        }
    }
    /// Segments that the last read over loopback had to take on beyond its price: they are taken with this.
    pub(crate) fn segments(&mut self) -> u32 {
        std::mem::take(&mut self.segments)
    }
    /// What has gone through the connections of each name, in the scenario's order.
    pub(crate) fn net_figures(&self) -> Vec<NetFigures> {
        let of = |n: &Name| {
            let all = &self.all[n.first as usize..(n.first + n.count) as usize];
            let nets = all.iter().filter_map(|c| match &c.state {
                State::Net(net) => Some(net),
                State::Pipe(_) | State::Socket(_) | State::Futex(_) | State::Mutex(_) => None,
            });
            NetFigures::of(&n.name, nets)
        };
        let nets = |n: &&Name| matches!(n.kind, ChannelKind::Tcp | ChannelKind::Udp);
        self.names.iter().filter(nets).map(of).collect()
    }

    /// A task reads up to `bytes` on a CPU, or of 0 what is left of a message; how many of them it has got. If that is less, it waits
    /// for the rest, but for a datagram, which comes whole.
    pub(crate) fn read(
        &mut self,
        channel: u32,
        (task, cpu): (usize, usize),
        bytes: u32,
        wakes: &mut Vec<usize>,
    ) -> u32 {
        let cpu = cpu as u32;
        let c = &mut self.all[channel as usize];
        let mut got = 0;
        match &mut c.state {
            State::Pipe(pipe) => {
                let (before, was_full) = (pipe.len(), pipe.is_full());
                got = pipe.take(bytes);
                if self.one_queue {
                    if pipe.len() < before {
                        wakes.extend(c.givers.drain(..).chain(c.takers.drain(..)));
                    }
                    if got < bytes {
                        c.takers.push_back(task);
                    }
                    return got;
                }
                // A writer is told of room where there was none, or too little.
                if pipe.len() < before && (was_full || std::mem::take(&mut pipe.too_little)) {
                    wakes.extend(c.givers.pop_front());
                }
                if got > 0 && !pipe.is_empty() {
                    wakes.extend(c.takers.pop_front());
                }
            }
            State::Socket(socket) => {
                while got < bytes {
                    let Some(sent) = socket.messages.front_mut() else { break };
                    let part = (bytes - got).min(sent.left);
                    sent.left -= part;
                    got += part;
                    if sent.left == 0 {
                        self.far += u32::from(sent.cpu != cpu);
                        socket.taken -= sent.size;
                        socket.messages.pop_front();
                    }
                }
                if got > 0 {
                    socket.reader = Some(cpu);
                }
                // Writers are told when three quarters are free again.
                if got > 0 && socket.taken * 4 <= SNDBUF {
                    wakes.extend(c.givers.drain(..));
                }
            }
            State::Net(net) => {
                let read = net.read(bytes);
                got = read.bytes;
                self.segments = read.segments;
                if read.room {
                    wakes.extend(c.givers.drain(..));
                }
            }
            State::Futex(_) | State::Mutex(_) => {}
        }
        if got < bytes.max(1) && !(got > 0 && matches!(&c.state, State::Net(net) if net.is_whole()))
        {
            c.takers.push_back(task);
        }
        got
    }
    /// A task waits for a wake, unless there is one already.
    pub(crate) fn futex_wait(&mut self, channel: u32, task: usize) -> Tried {
        let c = &mut self.all[channel as usize];
        match &mut c.state {
            State::Futex(woken) if *woken > 0 => {
                *woken -= 1;
                Tried::Done
            }
            _ => {
                c.takers.push_back(task);
                Tried::Waits
            }
        }
    }
    /// Wakes so many; what nobody waits for is kept.
    pub(crate) fn futex_wake(&mut self, channel: u32, count: u32, wakes: &mut Vec<usize>) {
        let c = &mut self.all[channel as usize];
        let n = c.takers.len().min(count as usize);
        wakes.extend(c.takers.drain(..n));
        if let State::Futex(woken) = &mut c.state {
            // A waiter that is woken finds its wake there when it looks again.
            *woken += u64::from(count);
        }
    }
    /// A task takes a lock, or waits for it.
    pub(crate) fn lock(&mut self, channel: u32, task: usize) -> Tried {
        let c = &mut self.all[channel as usize];
        match &mut c.state {
            State::Mutex(owner) if owner.is_none() => {
                *owner = Some(task);
                Tried::Done
            }
            _ => {
                c.takers.push_back(task);
                Tried::Waits
            }
        }
    }
    /// A task gives a lock back; false: it hasn't got it. Who comes first takes it, the one
    /// that is woken or another.
    pub(crate) fn unlock(&mut self, channel: u32, task: usize, wakes: &mut Vec<usize>) -> bool {
        let c = &mut self.all[channel as usize];
        match &mut c.state {
            State::Mutex(owner) if *owner == Some(task) => {
                *owner = None;
                wakes.extend(c.takers.pop_front());
                true
            }
            _ => false,
        }
    }
    /// A task that waited for a channel has been killed.
    pub(crate) fn forget(&mut self, channel: u32, task: usize) {
        let c = &mut self.all[channel as usize];
        c.takers.retain(|&t| t != task);
        c.givers.retain(|&t| t != task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    fn of(kind: ChannelKind, count: u32, group: u32) -> Channels {
        let declared = Declared { name: "c".into(), kind, count, group, nodelay: false };
        Channels::new(&[declared], KernelVersion::V6_12)
    }
    fn woken(f: impl FnOnce(&mut Vec<usize>)) -> Vec<usize> {
        let mut wakes = Vec::new();
        f(&mut wakes);
        wakes
    }

    #[test]
    fn a_pipe_holds_640_messages_of_100_bytes() {
        let mut c = of(ChannelKind::Pipe, 1, 1);
        let mut wakes = Vec::new();
        let n = (0..).take_while(|_| c.write(0, (7, 0), 100, &mut wakes) == Tried::Done).count();
        assert_eq!((n, wakes.len()), (640, 0));
        // A page has to be read whole before there is room; the writer is woken then.
        for i in 1..=40 {
            let wakes = woken(|w| assert_eq!(c.read(0, (8, 0), 100, w), 100));
            assert_eq!(wakes, if i == 40 { vec![7] } else { vec![] }, "{i}");
        }
        assert_eq!(c.write(0, (7, 0), 100, &mut wakes), Tried::Done);
    }

    #[test]
    fn only_who_finds_a_pipe_empty_wakes_a_reader() {
        let mut c = of(ChannelKind::Pipe, 1, 1);
        assert_eq!(woken(|w| assert_eq!(c.read(0, (1, 0), 4, w), 0)), []);
        assert_eq!(woken(|w| assert_eq!(c.read(0, (2, 0), 4, w), 0)), []);
        assert_eq!(woken(|w| assert_eq!(c.write(0, (9, 0), 4, w), Tried::Done)), [1]);
        assert_eq!(woken(|w| assert_eq!(c.write(0, (9, 0), 4, w), Tried::Done)), []);
        // Who has read and leaves something wakes the next.
        assert_eq!(woken(|w| assert_eq!(c.read(0, (1, 0), 4, w), 4)), [2]);
        assert_eq!(woken(|w| assert_eq!(c.read(0, (2, 0), 8, w), 4)), []);
        // And who has got a part waits for the rest.
        assert_eq!(woken(|w| assert_eq!(c.write(0, (9, 0), 4, w), Tried::Done)), [2]);
    }

    /// Up to 5.4 whoever waits at a pipe looks again after each write, and after each page that is read.
    #[test]
    fn readers_and_writers_once_waited_in_one_queue() {
        let declared = Declared {
            name: "c".into(),
            kind: ChannelKind::Pipe,
            count: 1,
            group: 1,
            nodelay: false,
        };
        let mut c = Channels::new(&[declared], KernelVersion::V4_5);
        assert_eq!(woken(|w| assert_eq!(c.read(0, (1, 0), 4, w), 0)), []);
        assert_eq!(woken(|w| assert_eq!(c.read(0, (2, 0), 4, w), 0)), []);
        assert_eq!(woken(|w| assert_eq!(c.write(0, (9, 0), 4, w), Tried::Done)), [1, 2]);
        assert_eq!(woken(|w| assert_eq!(c.read(0, (1, 0), 4, w), 4)), []);
        let mut wakes = Vec::new();
        while c.write(0, (7, 0), 1000, &mut wakes) == Tried::Done {}
        assert_eq!(c.write(0, (8, 0), 1000, &mut wakes), Tried::Waits);
        for message in 1..=4 {
            let wakes = woken(|w| assert_eq!(c.read(0, (1, 0), 1000, w), 1000));
            assert_eq!(wakes, if message == 4 { vec![7, 8] } else { vec![] }, "{message}");
        }
    }

    #[test]
    fn who_waits_for_two_pages_looks_again_at_each_that_is_free() {
        let mut c = of(ChannelKind::Pipe, 1, 1);
        let mut wakes = Vec::new();
        while c.write(0, (7, 0), 1000, &mut wakes) == Tried::Done {}
        c.forget(0, 7);
        assert_eq!(c.write(0, (9, 0), 5000, &mut wakes), Tried::Waits);
        // A page has four such messages.
        for page in 1..=2 {
            for message in 1..=4 {
                let wakes = woken(|w| assert_eq!(c.read(0, (8, 0), 1000, w), 1000));
                assert_eq!(wakes, if message == 4 { vec![9] } else { vec![] }, "{page} {message}");
            }
            let tried = if page == 1 { Tried::Waits } else { Tried::Done };
            assert_eq!(c.write(0, (9, 0), 5000, &mut wakes), tried);
        }
    }

    /// What a writer found that waits no more says nothing of those that wait now: who waits for a full pipe is
    /// woken when it was full, once.
    #[test]
    fn what_others_found_before_wakes_nobody_later() {
        let mut pipe = of(ChannelKind::Pipe, 1, 1);
        for _ in 0..15 {
            assert_eq!(pipe.write(0, (1, 0), 4096, &mut Vec::new()), Tried::Done);
        }
        // One page is too little for the first, which is killed.
        assert_eq!(pipe.write(0, (1, 0), 8192, &mut Vec::new()), Tried::Waits);
        pipe.forget(0, 1);
        assert_eq!(pipe.write(0, (2, 0), 4096, &mut Vec::new()), Tried::Done);
        for writer in [3, 4] {
            assert_eq!(pipe.write(0, (writer, 0), 4096, &mut Vec::new()), Tried::Waits);
        }
        let read = |pipe: &mut Channels| {
            woken(|wakes| assert_eq!(pipe.read(0, (9, 0), 4096, wakes), 4096))
        };
        assert_eq!(read(&mut pipe), [3]);
        assert_eq!(read(&mut pipe), [] as [usize; 0]);
    }
    #[test]
    fn a_socket_holds_278_messages_of_100_bytes() {
        let mut c = of(ChannelKind::Socket, 1, 1);
        let mut wakes = Vec::new();
        let n = (0..).take_while(|_| c.write(0, (7, 0), 100, &mut wakes) == Tried::Done).count();
        assert_eq!((n, wakes.len()), (278, 0));
        let reads =
            (1..).find(|_| !woken(|w| assert_eq!(c.read(0, (8, 0), 100, w), 100)).is_empty());
        // 69 of 768 bytes are a quarter of the buffer.
        assert_eq!(reads, Some(278 - 69));
    }

    #[test]
    fn a_wake_is_not_lost_and_a_lock_is_whose_comes_first() {
        let mut c = of(ChannelKind::Futex, 1, 1);
        c.futex_wake(0, 2, &mut Vec::new());
        let tried: Vec<Tried> = (0..3).map(|t| c.futex_wait(0, t)).collect();
        assert_eq!(tried, [Tried::Done, Tried::Done, Tried::Waits]);
        assert_eq!(woken(|w| c.futex_wake(0, 1, w)), [2]);
        assert_eq!(c.futex_wait(0, 2), Tried::Done);

        let mut c = of(ChannelKind::Mutex, 1, 1);
        assert_eq!((c.lock(0, 1), c.lock(0, 2)), (Tried::Done, Tried::Waits));
        assert!(!c.unlock(0, 2, &mut Vec::new()));
        assert_eq!(woken(|w| assert!(c.unlock(0, 1, w))), [2]);
        // Somebody else was faster.
        assert_eq!((c.lock(0, 3), c.lock(0, 2)), (Tried::Done, Tried::Waits));
        assert_eq!((c.owner(0), c.told(0)), (Some(3), "the mutex \"c\"".to_owned()));
    }

    #[test]
    fn tasks_have_channels_of_their_own_or_their_groups() {
        let c = of(ChannelKind::Pipe, 6, 3);
        let mut text = String::new();
        for task in [0, 2, 3, 5, 7] {
            let (own, group) = (c.meant(0, Which::Own, task), c.meant(0, Which::Group, task));
            let _ = writeln!(
                text,
                "{task}: {own:?} {group:?} {:?}",
                c.meant(0, Which::Number(4), task)
            );
        }
        expect_test::expect![[r#"
            0: (0, 1) (0, 3) (4, 1)
            2: (2, 1) (0, 3) (4, 1)
            3: (3, 1) (3, 3) (4, 1)
            5: (5, 1) (3, 3) (4, 1)
            7: (1, 1) (0, 3) (4, 1)
        "#]]
        .assert_eq(&text);
        assert_eq!(c.told(4), "number 4 of the pipe \"c\"");
    }
}
