//! How far a prediction may be off by what was measured: the spread of the constants that it rests on.
//!
//! Each constant goes alone to the end of its own 80 % interval; by how much that changes the time, as a
//! logarithm, is a part, and parts add by squares: constants are measured apart.
//!
//! Worked example: of 10 s, 4 hang on the memory's latency, which is ±2 % (80 %), and 3 on the lines under
//! way, ±4 %: √((0.4 · 2)² + (0.3 · 4)²) = 1.4 %, so 9.86 to 10.14 s.

use homenode_core::costs::{Constant, Cost};
use homenode_core::topology::Hardware;
use homenode_measure::constants::quantile;
use homenode_sim::MissTime;

/// The normal distribution's ninetieth percentile, in standard deviations: an 80 % interval on both sides.
pub(crate) const Z80: f64 = 1.2816;
/// Half the distance between the quartiles, in standard deviations.
const QUARTILE: f64 = 0.6745;

/// A predicted time with its 80 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Predicted {
    pub(crate) low: f64,
    pub(crate) time: f64,
    pub(crate) high: f64,
}

impl Predicted {
    /// With parts of an interval that are independent, as logarithms downwards and upwards.
    pub(crate) fn of(time: f64, parts: &[(f64, f64)]) -> Self {
        let down = parts.iter().map(|p| p.0 * p.0).sum::<f64>().sqrt();
        let up = parts.iter().map(|p| p.1 * p.1).sum::<f64>().sqrt();
        Self { low: time * (-down).exp(), time, high: time * up.exp() }
    }
    /// The median of samples, and their tenth and ninetieth percentile.
    pub(crate) fn of_samples(samples: &[f64]) -> Self {
        let at = |q| quantile(samples, q).unwrap_or(0.0);
        Self { low: at(0.1), time: at(0.5), high: at(0.9) }
    }
    pub(crate) fn scaled(self, by: f64) -> Self {
        Self { low: self.low * by, time: self.time * by, high: self.high * by }
    }
}

/// How far the end of an 80 % interval is from the middle, as a share of it.
///
/// * `spread` – half the distance between the quartiles.
pub(crate) fn end(value: f64, spread: f64) -> f64 {
    if value > 0.0 { spread / QUARTILE * Z80 / value } else { 0.0 }
}

fn end_of(c: &Constant) -> f64 {
    end(c.value as f64, c.spread.unwrap_or(0) as f64)
}

/// Moves a constant to the upper end of its 80 % interval; one without a spread stays.
pub(crate) fn raise(c: &mut Constant) {
    c.value += (c.value as f64 * end_of(c)) as u64;
}

/// A constant that the time of misses rests on, or two that are one: reads and writes of a link go to the
/// same memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rests {
    /// The link at this place of the machine's list.
    Link(usize),
    /// This one, with which times fall.
    Cost(Cost),
}

/// Costs by which misses overlap.
const OVERLAP: [Cost; 5] = [
    Cost::MemoryParallelism,
    Cost::UpdateParallelism,
    Cost::StreamParallelism,
    Cost::StreamStoreParallelism,
    Cost::ReorderWindow,
];

impl Rests {
    /// Those of a machine that have a spread.
    pub(crate) fn of(machine: &Hardware) -> Vec<Self> {
        let links = (0..machine.links.len()).map(Self::Link);
        let costs = OVERLAP.into_iter().map(Self::Cost);
        links.chain(costs).filter(|it| it.end(machine) > 0.0).collect()
    }
    /// How far the upper end of its 80 % interval is, as a share.
    pub(crate) fn end(self, machine: &Hardware) -> f64 {
        match self {
            Self::Link(i) => machine
                .links
                .get(i)
                .map_or(0.0, |l| end_of(&l.read_latency).max(end_of(&l.write_latency))),
            Self::Cost(cost) => machine.costs.0.get(&cost).map_or(0.0, end_of),
        }
    }
    /// Moves it there.
    pub(crate) fn raise(self, machine: &mut Hardware) {
        match self {
            Self::Link(i) => {
                if let Some(l) = machine.links.get_mut(i) {
                    raise(&mut l.read_latency);
                    raise(&mut l.write_latency);
                }
            }
            Self::Cost(cost) => machine.costs.0.get_mut(&cost).into_iter().for_each(raise),
        }
    }
    /// What a run would take longer, in picoseconds, over the share by which this rises: as it was counted,
    /// without another run.
    pub(crate) fn weight(self, machine: &Hardware, missed: &MissTime) -> f64 {
        let time = match self {
            Self::Link(i) => {
                let Some(l) = machine.links.get(i) else { return 0.0 };
                let (from, to) = (machine.position(l.from), machine.position(l.to));
                let of = |from, to| missed.links.get::<usize>(from)?.get::<usize>(to).copied();
                return from.zip(to).and_then(|(from, to)| of(from, to)).unwrap_or(0) as f64;
            }
            Self::Cost(Cost::MemoryParallelism) => missed.random[0],
            Self::Cost(Cost::UpdateParallelism) => missed.random[1],
            Self::Cost(Cost::StreamParallelism) => missed.stream[0],
            Self::Cost(Cost::StreamStoreParallelism) => missed.stream[1],
            Self::Cost(Cost::ReorderWindow) => missed.window,
            Self::Cost(_) => 0,
        };
        -(time as f64)
    }
}

/// What a run of a recording took, for its interval. Of one round, in picoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Processor time.
    pub(crate) ran: f64,
    /// Of it, computing: instructions by what each takes.
    pub(crate) computing: f64,
    /// Of all rounds.
    pub(crate) missed: MissTime,
    pub(crate) rounds: f64,
}

impl Run {
    fn weight(&self, of: Rests, machine: &Hardware) -> f64 {
        of.weight(machine, &self.missed) / self.rounds.max(1.0)
    }
    /// What hangs on the time of an instruction: computing that is not hidden behind misses.
    pub(crate) fn seen(&self) -> f64 {
        (self.computing - self.missed.hidden as f64 / self.rounds.max(1.0)).max(0.0)
    }
    /// How much instructions of this run take less, where on the unmodified machine they take less by 1.
    ///
    /// * `before` – a round on the unmodified machine.
    pub(crate) fn share(&self, before: &Self) -> f64 {
        let seen = before.seen();
        if seen > before.computing * SEEN { self.seen() / seen } else { 0.0 }
    }
    /// What so many picoseconds more are of a round, as a logarithm.
    pub(crate) fn part(&self, more: f64) -> f64 {
        (more / self.ran.max(1.0)).max(-0.99).ln_1p()
    }
}

/// Less of its computing than this, and a run's native time says nothing of what an instruction takes.
const SEEN: f64 = 0.01;

/// Parts of a run's interval, as logarithms. One for each constant, and the last for the native time.
///
/// Instructions are charged so that the unmodified machine takes the native time, whatever the constants
/// are: what one of them changes there, instructions take less.
///
/// * `before` – a round on the unmodified machine.
/// * `native` – how far the end of the native time's own interval is, as a share.
pub(crate) fn parts(
    machine: &Hardware,
    rests: &[Rests],
    run: &Run,
    before: &Run,
    native: f64,
) -> Vec<f64> {
    let share = run.share(before);
    let of = |&rests: &Rests| {
        let more = run.weight(rests, machine) - before.weight(rests, machine) * share;
        run.part(more * rests.end(machine))
    };
    let native = before.ran * share * native;
    rests.iter().map(of).chain([run.part(native)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_config::parse_machine;
    use homenode_sim::replay::{Charge, Op, Recording, Rounds};
    use homenode_sim::{Overlap, Setup, Simulation};
    use std::sync::Arc;

    #[test]
    fn parts_of_an_interval_add_by_squares() {
        let p = Predicted::of(10.0, &[(0.03, 0.3), (0.04, 0.4)]);
        assert!((p.low - 10.0 * (-0.05f64).exp()).abs() < 1e-9);
        assert!((p.high - 10.0 * 0.5f64.exp()).abs() < 1e-9);
        assert_eq!(p.scaled(2.0).high, 2.0 * p.high);
        // The worked example.
        let p = Predicted::of(10.0, &[(0.008, 0.008), (0.012, 0.012)]);
        assert!((p.high - 10.145).abs() < 0.002, "{p:?}");
    }

    /// A machine that was measured, each constant with a spread of one fiftieth.
    ///
    /// * `bandwidth` – so many times as much as it has.
    fn machine(bandwidth: u64) -> Hardware {
        let text = include_str!("../../../machines/small-cxl.toml");
        let mut m = parse_machine("small-cxl.toml", text).expect("it is shipped");
        let spread = |value: u64| Constant {
            spread: Some(value / 50),
            ..Constant::assumed(value, "a test")
        };
        for l in &mut m.links {
            for c in [&mut l.read_latency, &mut l.write_latency] {
                *c = spread(c.value);
            }
            for c in [&mut l.read_bandwidth, &mut l.write_bandwidth] {
                c.value *= bandwidth;
            }
        }
        for (cost, value) in OVERLAP.into_iter().zip([12_000, 9_000, 25_000, 20_000, 300]) {
            m.costs.0.insert(cost, spread(value));
        }
        m
    }

    /// Loads and stores in no order, near to one another and far apart, and streams.
    fn recording() -> Arc<Recording> {
        let mut r = Recording::new(1);
        r.push(
            0,
            0,
            Op::Map {
                page: 16,
                pages: 2048,
                prot: [true, true, false],
                file: false,
                shared: false,
            },
        );
        for i in 0..60_000u64 {
            let page = 16 + i.wrapping_mul(0x9e37_79b9) % 2048;
            let (insns, reads, writes, stream) = match i % 5 {
                0 => (20, 4, 0, false),
                1 => (500, 1, 0, false),
                2 => (150, 1, 1, false),
                3 => (20, 0, 3, false),
                _ => (64, 40, 24, true),
            };
            r.push(0, insns, Op::Access { page, reads, writes, write: true, stream });
        }
        r.push(0, 0, Op::Exit);
        Arc::new(r)
    }

    const ATTOS: u64 = 250_000_000;

    fn run(machine: &Hardware, recording: &Arc<Recording>, attos: u64) -> Run {
        let charge = Charge {
            as_per_insn: attos,
            own_as_per_insn: Arc::default(),
            rounds: Rounds::Count(2),
            policy: Default::default(),
            overlap: Some(Overlap::of(machine)),
            cpus: Vec::new(),
        };
        let setup =
            Setup { knobs: vec![("numa_balancing".into(), "0".into())], ..Setup::default() };
        let mut sim =
            Simulation::replay(machine, &setup, recording, "a test", &charge).expect("it fits");
        sim.run();
        assert!(sim.error().is_none());
        Run {
            ran: sim.processes().iter().map(|p| p.ran_ps).sum::<u64>() as f64 / 2.0,
            computing: recording.insns() as f64 * attos as f64 / 1e6,
            missed: sim.missed().clone(),
            rounds: 2.0,
        }
    }

    /// What counting says of each constant is what another run with that constant shows.
    #[test]
    fn counted_parts_are_those_of_a_run_with_the_constant_moved() {
        let narrow = machine(1);
        let (machine, recording) = (machine(20), recording());
        let middle = run(&machine, &recording, ATTOS);
        let rests = Rests::of(&machine);
        assert_eq!(rests.len(), machine.links.len() + OVERLAP.len());
        let mut moved = 0;
        for it in rests {
            let mut changed = machine.clone();
            it.raise(&mut changed);
            let again = run(&changed, &recording, ATTOS).ran / middle.ran - 1.0;
            let counted = middle.weight(it, &machine) * it.end(&machine) / middle.ran;
            assert!(
                (again - counted).abs() < 0.1 * again.abs() + 2e-4,
                "{it:?}: {again} {counted}"
            );
            moved += usize::from(again.abs() > 1e-3);
        }
        // All but the expander's link, where nothing lies.
        assert_eq!(moved, 1 + OVERLAP.len());
        // An instruction that takes a tenth longer.
        let slower = run(&machine, &recording, ATTOS / 10 * 11).ran - middle.ran;
        assert!((slower / (middle.seen() / 10.0) - 1.0).abs() < 0.05, "{slower} {}", middle.seen());
        // Under load, memory that answers later is asked less and answers sooner for it: counting, by which loads
        // stay, says more than is.
        let loaded = run(&narrow, &recording, ATTOS);
        let (it, mut changed) = (Rests::Link(0), narrow.clone());
        it.raise(&mut changed);
        let again = run(&changed, &recording, ATTOS).ran - loaded.ran;
        let over = loaded.weight(it, &narrow) * it.end(&narrow) / again;
        assert!((1.0..1.6).contains(&over), "{over}");
    }

    /// On the machine of the recording a program takes its native time, whatever the memory is like.
    #[test]
    fn a_run_as_recorded_is_as_sure_as_its_native_time() {
        let (machine, recording) = (machine(20), recording());
        let before = run(&machine, &recording, ATTOS);
        let rests = Rests::of(&machine);
        let same = parts(&machine, &rests, &before, &before, 0.03);
        assert!(same[..rests.len()].iter().all(|p| p.abs() < 1e-9), "{same:?}");
        assert!((same[rests.len()] - 0.03f64.ln_1p()).abs() < 1e-9);
        // With memory that takes three times as long, what that is off by counts.
        let mut slow = machine.clone();
        for l in &mut slow.links {
            for c in [&mut l.read_latency, &mut l.write_latency] {
                (c.value, c.spread) = (3 * c.value, c.spread.map(|s| 3 * s));
            }
        }
        let far = parts(&slow, &rests, &run(&slow, &recording, ATTOS), &before, 0.0);
        assert!(far.iter().any(|p| p.abs() > 0.005), "{far:?}");
    }

    #[test]
    fn constants_without_a_spread_are_in_no_interval() {
        let text = include_str!("../../../machines/small-cxl.toml");
        let bare = parse_machine("small-cxl.toml", text).expect("it is shipped");
        assert_eq!(Rests::of(&bare), []);
    }
}
