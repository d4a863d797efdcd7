//! How many misses of one core are under way at once.
//!
//! A core takes up the instructions of a *window* while the oldest of them waits for
//! memory, and can have so many lines under way. So the misses of code whose loads do
//! not wait for one another take, each,
//!
//! ```text
//! the largest of   latency now · distance / window      distance: instructions from one
//!                  unloaded latency / lines under way    miss to the next, at most the window
//! ```
//!
//! and computing goes on behind them: up to a window's worth behind a miss, all of it
//! behind a stream, whose lines prefetchers bring ahead of their use.
//!
//! Worked example: latency 100 ns, a window of 250 instructions, 20 lines under way, a
//! miss every 25 instructions of 0.2 ns each: the window takes 100 · 25 / 250 = 10 ns a
//! miss, the lines 100 / 20 = 5 ns, computing 5 ns; a miss takes 10 ns, and the 5 ns of
//! computing are hidden behind it.
//!
//! What one core gets alone was measured under the load that it makes itself. That load
//! is in the second line already; others' load lengthens it: see [`Floor`].

use crate::hot::{CostTable, KINDS};
use crate::load::Load;
use crate::page::ZONES_MAX;
use homenode_core::costs::Cost;
use homenode_core::topology::Hardware;

/// What overlaps on one core. The second of each pair is for stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Instructions that a core holds; 0: every miss waits for the one before.
    pub window: u64,
    /// Lines under way, in thousandths, where they lie in no order.
    pub random: [u64; 2],
    /// The same where they follow one another.
    pub stream: [u64; 2],
}

impl Overlap {
    /// That of a machine's cores, for code whose loads do not wait for one another.
    pub fn of(machine: &Hardware) -> Self {
        let get = |key| machine.costs.get(key).max(1000);
        Self {
            window: machine.costs.get(Cost::ReorderWindow).max(1),
            random: [get(Cost::MemoryParallelism), get(Cost::UpdateParallelism)],
            stream: [get(Cost::StreamParallelism), get(Cost::StreamStoreParallelism)],
        }
    }
    /// The same for code of which so many loads at most don't wait for one another. Lines that follow
    /// one another are brought by prefetchers, which wait for no load.
    #[must_use]
    pub fn at_most(self, lines: u32) -> Self {
        let most = u64::from(lines.max(1)) * 1000;
        Self { random: self.random.map(|n| n.min(most)), ..self }
    }
    /// None: each address depends on the line before it.
    pub const fn chain() -> Self {
        Self { window: 0, random: [1000; 2], stream: [1000; 2] }
    }
    /// Picoseconds that `misses` of one kind take in a row of `insns` instructions, and what decides that.
    pub(crate) fn time(
        &self,
        misses: u64,
        all: u64,
        insns: u64,
        now: u64,
        floor: u64,
    ) -> (u64, Decides) {
        if self.window == 0 {
            return (misses * now, Decides::Latency);
        }
        // now · min(1, insns / all / window), for all misses of the row alike.
        let most = all * self.window;
        let wait = (u128::from(now) * u128::from(insns.min(most)) / u128::from(most)) as u64;
        let decides = match (floor >= wait, insns < most) {
            (true, _) => Decides::Lines,
            (false, true) => Decides::Window,
            (false, false) => Decides::Latency,
        };
        (misses * floor.max(wait), decides)
    }
    /// The least time of a line at an unloaded latency, as many being under way as can be.
    pub(crate) fn alone(&self, latency: u64, write: bool, stream: bool) -> u64 {
        let under_way = if stream { self.stream } else { self.random };
        latency * 1000 / under_way[usize::from(write)].max(1000)
    }
    /// How much of `compute` picoseconds goes on behind misses; `attos` is the time of
    /// an instruction.
    pub(crate) fn hidden(&self, compute: u64, attos: u64, stream: bool) -> u64 {
        if stream && self.window > 0 {
            return compute;
        }
        let most = u128::from(self.window) * u128::from(attos) / 1_000_000;
        u64::try_from(most).map_or(compute, |m| compute.min(m))
    }
}

/// What a miss's time is proportional to beside the latency, or inversely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decides {
    /// Inversely to the lines under way.
    Lines,
    /// Inversely to the window.
    Window,
    /// Neither: the whole latency.
    Latency,
}

/// What misses took that no computing hid, by what that hangs on, in picoseconds: each figure is how much
/// longer everything takes if that constant makes its misses twice as long, for changes that are small.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissTime {
    /// By the latency that CPUs of a node, by place, see in the memory of another: `links[from][to]`.
    pub links: Vec<Vec<u64>>,
    /// By the lines in no order that are under way, of loads and of stores: [`Overlap::random`].
    pub random: [u64; 2],
    /// Likewise where they follow one another: [`Overlap::stream`].
    pub stream: [u64; 2],
    /// By the window; computing that it hides is in it too.
    pub window: u64,
    /// By what an instruction takes, misses apart: computing that misses hide, which is to be taken off all
    /// computing.
    pub hidden: u64,
    /// Of misses in no order that overlap with others or with computing: what they took, or that computing if it
    /// took longer.
    pub overlapped: u64,
    /// What the same would have taken if each had waited for the one before: whole latencies.
    pub alone: u64,
}

/// The same of a task since its last look, by zone of the memory.
#[derive(Clone, Default)]
pub(crate) struct Missed {
    pub(crate) zones: [u64; ZONES_MAX],
    random: [u64; 2],
    stream: [u64; 2],
    window: u64,
    hidden: u64,
    overlapped: u64,
    alone: u64,
}

impl Missed {
    /// Adds the misses of a row: what its loads and its stores took, each with what decided it.
    ///
    /// * `hidden` – computing that went on behind them, and whether the window is what bounds it.
    /// * `latencies` – what all of them would take, each for itself.
    #[inline]
    pub(crate) fn row(
        &mut self,
        zone: usize,
        took: [(u64, Decides); 2],
        stream: bool,
        (hidden, bounded): (u64, bool),
        latencies: u64,
    ) {
        let least = (took[0].0 + took[1].0).max(hidden);
        if !stream && latencies > least {
            self.overlapped += least;
            self.alone += latencies;
        }
        // What computing hides as a whole changes nothing.
        if took[0].0 + took[1].0 <= hidden {
            return;
        }
        self.zones[zone] += took[0].0 + took[1].0;
        self.hidden += hidden;
        if bounded {
            self.window += hidden;
        }
        let lines = if stream { &mut self.stream } else { &mut self.random };
        for (lines, (time, decides)) in lines.iter_mut().zip(took) {
            match decides {
                Decides::Lines => *lines += time,
                Decides::Window => self.window += time,
                Decides::Latency => {}
            }
        }
    }
}

impl MissTime {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { links: vec![vec![0; nodes]; nodes], ..Self::default() }
    }
    /// Takes over what a task on a CPU of `from` missed; `node_of` says whose a zone is.
    pub(crate) fn add(&mut self, from: usize, missed: &Missed, node_of: impl Fn(usize) -> usize) {
        for (zone, &time) in missed.zones.iter().enumerate().filter(|z| *z.1 > 0) {
            self.links[from][node_of(zone)] += time;
        }
        let Missed { zones: _, random, stream, window, hidden, overlapped, alone } = missed;
        for i in 0..2 {
            self.random[i] += random[i];
            self.stream[i] += stream[i];
        }
        self.window += window;
        self.hidden += hidden;
        self.overlapped += overlapped;
        self.alone += alone;
    }
}

/// Least time of a line by kind: random, then streamed.
pub(crate) type Floor = [CostTable; 2];

/// The least time of a line, now.
///
/// Alone, it is the unloaded latency over the lines under way. The factor that this rate
/// itself would put on latencies is in that measured figure; where the node's load is
/// above it, the rest of the load counts.
pub(crate) fn floor<'l>(
    o: &Overlap,
    base: &CostTable,
    now: &CostTable,
    kinds: usize,
    load: impl Fn(usize) -> &'l Load,
) -> Floor {
    let mut out = [[0; KINDS]; 2];
    for (table, (under_way, stream)) in out.iter_mut().zip([(o.random, false), (o.stream, true)]) {
        for k in 0..kinds {
            let alone = o.alone(base[k], k & 1 == 1, stream);
            let loaded = u128::from(now[k]) * 1000 / u128::from(under_way[k & 1].max(1000));
            let own = load(k).alone(alone, k & 1 == 1, !stream);
            table[k] = alone.max(((loaded << 16) / u128::from(own)) as u64);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::loaded::{Loaded, Path};

    const O: Overlap = Overlap { window: 250, random: [20_000, 10_000], stream: [40_000, 20_000] };

    #[test]
    fn the_worked_example() {
        assert_eq!(O.time(1, 1, 25, 100_000, 5_000), (10_000, Decides::Window));
        assert_eq!(O.hidden(5_000, 200_000_000, false), 5_000);
        // So near to one another that the lines under way are the limit.
        assert_eq!(O.time(1, 1, 5, 100_000, 5_000), (5_000, Decides::Lines));
        // Further apart than the window: a whole latency, less what the window holds.
        assert_eq!(O.time(1, 1, 5_000, 100_000, 5_000), (100_000, Decides::Latency));
        assert_eq!(O.hidden(1_000_000, 200_000_000, false), 50_000);
        assert_eq!(O.hidden(1_000_000, 200_000_000, true), 1_000_000);
        assert_eq!(Overlap::chain().time(3, 4, 5, 100_000, 1), (300_000, Decides::Latency));
        assert_eq!(Overlap::chain().hidden(1_000_000, 200_000_000, true), 0);
    }

    #[test]
    fn what_misses_hang_on_is_told_apart_and_hidden_ones_count_nowhere() {
        let mut m = Missed::default();
        let (lines, window) = ((3_000, Decides::Lines), (500, Decides::Window));
        m.row(1, [lines, window], false, (1_000, true), 20_000);
        m.row(0, [lines, (0, Decides::Latency)], true, (3_000, false), 20_000);
        m.row(0, [lines, (0, Decides::Latency)], true, (0, false), 20_000);
        let mut all = MissTime::new(2);
        all.add(1, &m, |zone| 1 - zone);
        all.add(1, &m, |zone| 1 - zone);
        assert_eq!(all.links, [[0, 0], [7_000, 6_000]]);
        assert_eq!((all.random, all.stream), ([6_000, 0], [6_000, 0]));
        assert_eq!((all.window, all.hidden), (2 * 1_500, 2 * 1_000));
        assert_eq!(
            (all.overlapped, all.alone),
            (2 * 3_500, 2 * 20_000),
            "streams wait for nothing"
        );
        // Behind computing, and a whole latency in any case.
        let mut m = Missed::default();
        m.row(0, [(3_000, Decides::Window), (0, Decides::Latency)], false, (5_000, true), 20_000);
        m.row(0, [(9_000, Decides::Latency), (0, Decides::Latency)], false, (0, false), 9_000);
        assert_eq!((m.overlapped, m.alone), (5_000, 20_000));
    }

    #[test]
    fn a_chain_waits_for_each_line_and_a_stream_for_none() {
        let chain = O.at_most(1);
        assert_eq!((chain.random, chain.stream, chain.window), ([1000; 2], O.stream, O.window));
        assert_eq!(O.at_most(12).random, [12_000, 10_000]);
        assert_eq!(O.at_most(64), O);
    }

    #[test]
    fn ones_own_load_is_counted_once() {
        let mut load = Load::new(20_000, 20_000, 64, &Loaded::published(Path::Dram));
        let mut base = [0; KINDS];
        (base[0], base[1]) = (100_000, 100_000);
        let alone = floor(&O, &base, &base, 2, |_| &load);
        assert_eq!((alone[0][0], alone[0][1]), (5_000, 10_000));
        assert_eq!((alone[1][0], alone[1][1]), (2_500, 5_000));
        // 64 bytes each 5 ns are 12.8 of 20 GB/s: the factor that is in the figure already.
        for _ in 0..64 {
            load.read = 1_280_000;
            load.close(100_000_000);
        }
        let mut now = base;
        now.iter_mut().for_each(|l| *l = load.apply(*l));
        let same = floor(&O, &base, &now, 1, |_| &load);
        assert!((5_000..5_030).contains(&same[0][0]), "{}", same[0][0]);
        // A neighbour takes the rest: everything is slower.
        for _ in 0..64 {
            load.read = 1_900_000;
            load.close(100_000_000);
        }
        now.clone_from(&base);
        now.iter_mut().for_each(|l| *l = load.apply(*l));
        let busy = floor(&O, &base, &now, 1, |_| &load);
        // 2.18 at 0.95 of the bandwidth, of which 1.30 at 0.64 was in it.
        assert!((8_300..8_450).contains(&busy[0][0]), "{}", busy[0][0]);
    }
}
