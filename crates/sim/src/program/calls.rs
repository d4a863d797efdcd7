//! Calls that a thread does ahead of time.
//!
//! A call is paid for first, and done at the time at which that is over. Many a call changes nothing for
//! others, whenever it is done ([`crate::channel`]): a writer finds room, a reader finds messages, nobody waits. Then the
//! thread goes on to the next one in the same turn. What it has done so is kept, call by call,
//! until its CPU has its turn again; whoever cuts the CPU before takes the later ones back.
//!
//! ```text
//! clock  ├─ paid ─┤ write ├─ paid ─┤ write ├─ paid ─┤ ·      the next turn begins before a call
//!                              ┊ cut: the second write is taken back, and is still paid for
//! ```
//!
//! Source: docs/decisions/0016-cpus.md.

use crate::channel::{Channels, Message};
use crate::simulation::{Loaded, Plain, Simulation};
use homenode_core::costs::Cost;
use homenode_core::scenario::Again;

/// Entries of calls that are done in one turn at most, and calls of one entry.
const MOST: usize = 64;
const MOST_ALIKE: u64 = 1 << 16;
/// Calls of one entry that are at channels side by side: as many as an entry has bits.
const MOST_ACROSS: u32 = 64;

/// A call of a task, with how far it has come.
pub(super) struct Call {
    /// The channels that it is about that are left: the next, and the end.
    pub(super) next: u32,
    pub(super) end: u32,
    /// It has paid for the next one.
    pub(super) paid: bool,
    /// Bytes that are left of the next one.
    pub(super) bytes: u32,
}

/// What a thread keeps of a step.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Of a repeating one: rounds made, and the clock at the last one's end.
    pub(super) rounds: (u64, u64),
    /// The channels that it means, the first and the end, once they have been asked for.
    pub(super) channels: Option<(u32, u32)>,
}

impl Place {
    /// No round has been made.
    pub(super) const NO_ROUND: (u64, u64) = (0, u64::MAX);
}

impl Default for Place {
    fn default() -> Self {
        Self { rounds: Self::NO_ROUND, channels: None }
    }
}

/// A call that was done ahead, or several in a row of one step.
#[derive(Clone, Copy, Debug)]
struct Done {
    /// When the first of them is done.
    time: u64,
    /// Its channel.
    channel: u32,
    /// The step that follows the one that they belong to.
    at: u32,
    /// How often its thread had gone back before, of the calls that are ahead.
    backs: u32,
    /// How many they are.
    times: u32,
    /// Each is at the channel after the one before. Else all are at one, and the thread goes back once after each but, perhaps,
    /// the last.
    across: bool,
    /// It is known at the channel that the time of all of them has come; where each is at another, a bit for each.
    come: u64,
}

/// A call that was begun ahead: the step was gone to, and paid for. What was before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    /// When that is.
    pub(super) time: u64,
    /// The step that came next; `None`: it is a further call of the step before.
    pub(super) at: Option<usize>,
    /// Where it went back, and the rounds of that step.
    pub(super) back: Option<(usize, (u64, u64))>,
}

/// The calls that a thread has done ahead, the first first.
#[derive(Default)]
pub(super) struct CallsAhead {
    done: Vec<Done>,
    /// The step where it went back, its rounds before, and how often it had gone back in all.
    back_at: Option<usize>,
    rounds: (u64, u64),
    returns: u64,
}

/// What a thread is at.
pub(super) struct Thread<'a> {
    pub(super) program: &'a Loaded,
    pub(super) ahead: &'a mut CallsAhead,
    pub(super) at: &'a mut usize,
    pub(super) call: &'a mut Call,
    pub(super) places: &'a mut [Place],
    pub(super) returns: &'a mut u64,
    /// Its number among the threads of all copies.
    pub(super) number: u64,
}

impl CallsAhead {
    pub(super) fn is_empty(&self) -> bool {
        self.done.is_empty()
    }
}

/// Up to which place in the order of all acts a cut leaves what was done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) time: u64,
    /// Whether acts of just that time stand.
    pub(super) stands: bool,
}

impl Order {
    /// Whether something that is done at a time has come.
    #[inline]
    pub(super) fn reaches(self, time: u64) -> bool {
        time < self.time || (time == self.time && self.stands)
    }
}

impl Done {
    /// How many of them have come in an order, where one costs so much.
    #[inline]
    fn came(&self, order: Order, cost: u64) -> u32 {
        if !order.reaches(self.time) {
            return 0;
        }
        if self.times == 1 {
            return 1;
        }
        let past = order.time - self.time;
        let whole = if order.stands { past / cost + 1 } else { past.div_ceil(cost) };
        whole.min(u64::from(self.times)) as u32
    }
    /// How many of them come before the one at a channel, which is known not to have come there; `None`: none is at
    /// that channel, or it has.
    #[inline]
    fn before(&self, channel: u32) -> Option<u32> {
        let place = channel.wrapping_sub(self.channel);
        let here = place < if self.across { self.times } else { 1 };
        (here && self.come >> place & 1 == 0).then_some(place)
    }
    /// The channel of the call that comes after so many of them.
    #[inline]
    fn channel_after(&self, calls: u32) -> u32 {
        if self.across { self.channel + calls } else { self.channel }
    }
}

/// What the two calls cost.
#[derive(Clone, Copy)]
pub(super) struct Prices {
    write: u64,
    read: u64,
}

impl Prices {
    /// On a CPU. They are the same for all that a task has done ahead: a change of the clock cuts it.
    pub(super) fn of(sim: &Simulation, cpu: usize) -> Self {
        let prices = sim.prices.of(cpu);
        Self { write: prices[Cost::PipeWrite], read: prices[Cost::PipeRead] }
    }
    #[inline]
    pub(super) fn price(self, call: Message) -> u64 {
        match call {
            Message::Write(_) => self.write,
            Message::Read(_) => self.read,
        }
    }
}

impl Thread<'_> {
    /// Does calls from its clock on until `until`; the clock at which the next one is done.
    pub(super) fn go(&mut self, sim: &mut Simulation, id: usize, until: u64) -> Option<u64> {
        let task = &sim.tasks[id];
        let (mut clock, cpu, started) = (task.clock, task.cpu, task.started);
        let prices = Prices::of(sim, cpu);
        // A round of calls that cost nothing has no end.
        if prices.write == 0 || prices.read == 0 {
            return None;
        }
        let channels = &mut sim.channels;
        let mut this = self.plain(*self.at - 1)?;
        // What a part has been read of is read on in its turn.
        if self.call.bytes != this.bytes() {
            return None;
        }
        let mut cost = prices.price(this);
        let mut backs = 0;
        self.ahead.back_at = None;
        self.ahead.returns = *self.returns;
        while clock < until && self.ahead.done.len() < MOST {
            let (channel, at) = (self.call.next, *self.at);
            let done = Done {
                time: clock,
                channel,
                at: at as u32,
                backs,
                times: 1,
                across: false,
                come: 0,
            };
            if channel + 1 < self.call.end {
                // All but the last of the step's channels.
                let most = u64::from((self.call.end - 1 - channel).min(MOST_ACROSS));
                let most = most.min((until - clock).div_ceil(cost)) as u32;
                let times = channels.calls_across(channel, cpu, this, most);
                if times > 0 {
                    self.ahead.done.push(Done { times, across: true, ..done });
                    self.call.next += times;
                    clock += u64::from(times) * cost;
                }
                if times < most {
                    break;
                }
                continue;
            }
            // What follows has to be such a call as well: all else is begun when this one has been done.
            let (mut to, mut back) = (at, None);
            if let Some(Plain::Repeat(steps, again)) = self.program.plain.get(at) {
                let (rounds, last) = self.places[at].rounds;
                // How often it goes back, if each round takes as long as this call.
                let more = match again {
                    Again::Times(n) => n.saturating_sub(rounds + 1),
                    Again::Until(t) => t.0.saturating_sub(clock - started).div_ceil(cost),
                };
                if more == 0 || last == clock || self.ahead.back_at.is_some_and(|p| p != at) {
                    break;
                }
                to = at.saturating_sub(*steps as usize);
                back = Some(more);
            }
            let Some(Plain::Call(that)) = self.program.plain.get(to) else { break };
            let that = *that;
            let Some((first, end)) = self.channels_of(channels, to) else { break };
            // The same call over and over.
            let most = match back {
                Some(more) if to + 1 == at && (first, end) == (channel, channel + 1) => {
                    more.min((until - clock).div_ceil(cost)).min(MOST_ALIKE)
                }
                _ => 1,
            };
            let times = channels.calls_ahead(channel, cpu, this, most as u32);
            if times == 0 {
                break;
            }
            self.ahead.done.push(Done { times, ..done });
            let last = clock + u64::from(times - 1) * cost;
            if back.is_some() {
                let rounds = &mut self.places[at].rounds;
                if self.ahead.back_at.is_none() {
                    (self.ahead.back_at, self.ahead.rounds) = (Some(at), *rounds);
                }
                *rounds = (rounds.0 + u64::from(times), last);
                backs += times;
                *self.returns += u64::from(times);
            }
            *self.at = to + 1;
            (self.call.next, self.call.end) = (first, end);
            self.call.bytes = that.bytes();
            this = that;
            cost = prices.price(that);
            clock = last + cost;
        }
        (!self.ahead.done.is_empty()).then_some(clock)
    }
    /// The call that a step is.
    #[inline]
    fn plain(&self, place: usize) -> Option<Message> {
        match self.program.plain.get(place)? {
            Plain::Call(message) => Some(*message),
            Plain::Repeat(..) | Plain::Other => None,
        }
    }
    /// The channels that a step means.
    #[inline]
    fn channels_of(&mut self, channels: &Channels, place: usize) -> Option<(u32, u32)> {
        if let Some(of) = self.places[place].channels {
            return Some(of);
        }
        let name = self.program.things[place]?;
        let (first, n) = channels.meant(name, self.program.which(place)?, self.number);
        self.places[place].channels = Some((first, first + n));
        self.places[place].channels
    }
    /// How many of some calls have come in an order.
    #[inline]
    fn came(&self, done: &Done, order: Order, prices: Prices) -> u32 {
        self.plain(done.at as usize - 1).map_or(0, |call| done.came(order, prices.price(call)))
    }
    /// Takes back the calls that have not come in an order; the clock then. `None`: there are none.
    pub(super) fn back(
        &mut self,
        channels: &mut Channels,
        prices: Prices,
        order: Order,
    ) -> Option<u64> {
        let came = |d: &Done| self.came(d, order, prices);
        let kept = self.ahead.done.iter().take_while(|&d| came(d) == d.times).count();
        let stays = came(self.ahead.done.get(kept)?);
        Some(self.back_to(channels, prices, kept, stays))
    }
    /// Takes back the calls from a place of the list on, of those at this place all but so many; the clock then.
    fn back_to(&mut self, channels: &mut Channels, prices: Prices, kept: usize, stays: u32) -> u64 {
        for i in (kept..self.ahead.done.len()).rev() {
            let Done { channel, at, times, across, .. } = self.ahead.done[i];
            let stays = if i == kept { stays } else { 0 };
            let Some(call) = self.plain(at as usize - 1) else { continue };
            if across {
                (stays..times).for_each(|after| channels.take_back(channel + after, call, 1));
            } else {
                channels.take_back(channel, call, times - stays);
            }
        }
        let Done { mut time, at, mut backs, across, .. } = self.ahead.done[kept];
        let channel = self.ahead.done[kept].channel_after(stays);
        // The last time at which it went back.
        let mut last = None;
        let place = at as usize - 1;
        let call = self.plain(place);
        if let (Some(call), 1..) = (call, stays) {
            time += u64::from(stays) * prices.price(call);
        }
        if let (Some(call), 1.., false) = (call, stays, across) {
            backs += stays;
            last = Some(time - prices.price(call));
        } else if let Some(i) = (1..=kept).rev().find(|&i| {
            let (before, this) = (self.ahead.done[i - 1].backs, self.ahead.done[i].backs);
            this > before
        }) {
            let d = &self.ahead.done[i - 1];
            let cost = self.plain(d.at as usize - 1).map_or(0, |call| prices.price(call));
            last = Some(d.time + u64::from(d.times - 1) * cost);
        }
        *self.at = at as usize;
        let end = self.places[place].channels.map_or(channel + 1, |(_, end)| end);
        let bytes = call.map_or(0, Message::bytes);
        *self.call = Call { next: channel, end, paid: true, bytes };
        *self.returns = self.ahead.returns + u64::from(backs);
        if let Some(place) = self.ahead.back_at {
            self.places[place].rounds = match last {
                Some(last) => (self.ahead.rounds.0 + u64::from(backs), last),
                None => self.ahead.rounds,
            };
        }
        self.ahead.done.truncate(kept + usize::from(stays > 0));
        if stays > 0 {
            self.ahead.done[kept].times = stays;
        }
        time
    }
    /// It is to be known what is at a channel in an order: calls there that have not come, and what follows them, are taken
    /// back; the clock then, if there are any.
    pub(super) fn back_at(
        &mut self,
        channels: &mut Channels,
        prices: Prices,
        channel: u32,
        order: Order,
    ) -> Option<u64> {
        let mut clock = None;
        let mut i = 0;
        while let Some(&d) = self.ahead.done.get(i) {
            if let Some(before) = d.before(channel) {
                let came = self.came(&d, order, prices);
                let (came_here, all_here) = match d.across {
                    true => (u32::from(came > before), 1),
                    false => (came, d.times),
                };
                if came_here < all_here {
                    clock = Some(self.back_to(channels, prices, i, before + came_here));
                }
                if let (Some(call), 1..) = (self.plain(d.at as usize - 1), came_here) {
                    channels.has_come(channel, call, came_here);
                    self.ahead.done[i].come |= 1 << before;
                }
            }
            i += 1;
        }
        clock
    }
    /// The time of all that is ahead has come.
    pub(super) fn settle(&mut self, channels: &mut Channels) {
        for d in &self.ahead.done {
            let Some(Plain::Call(call)) = self.program.plain.get(d.at as usize - 1) else {
                continue;
            };
            if d.across {
                channels.have_come(d.channel, *call, d.times, d.come);
            } else if d.come == 0 {
                channels.has_come(d.channel, *call, d.times);
            }
        }
        self.ahead.done.clear();
    }
}
