//! The script, made for a machine's shape: the same scenes everywhere, between the pairs of
//! CPUs that the machine has.
//!
//! | pair | waker's CPU and wakee's |
//! |---|---|
//! | `same` | one CPU |
//! | `sibling` | two threads of a core |
//! | `near` | two cores below one last-level cache |
//! | `far` | two last-level caches |
//!
//! Three tasks, `a`, `b` and `c`, may run anywhere; there is a worker for each CPU that stays
//! there (`w0`, `w1`, …). Who is in a scene is first put on its CPU by a step of its own, so
//! that a scene doesn't hang on the one before. CPU 0, where a real kernel has most of its
//! own work, is left alone as far as the machine has others.

use super::{Act, By, Name, Part, Script, Start, Step, Task};
use homenode_core::units::Picos;

/// A CPU and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub cpu: u32,
    /// Its core, unique in the machine.
    pub core: u32,
    /// Its last-level cache, unique in the machine.
    pub llc: u32,
}

/// A machine's CPUs in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape(Vec<Place>);

/// Workers' names: as many CPUs can a shape have.
const WORKERS: [Name; 8] = ["w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7"];

/// Rounds of who wakes whom before the script: each halves what a task is remembered for. A
/// process that has booted a machine has woken hundreds.
const ROUNDS: usize = 12;
/// How long such a round lasts: partners are halved once a second.
const ROUND: Picos = Picos::from_ms(1200);

/// How long a step lasts: the longest keeps its tasks busy for less than a third of it, and
/// what PELT remembers of a task is halved every 32 ms.
const LASTS: Picos = Picos::from_ms(300);

impl Shape {
    /// A machine of these CPUs.
    ///
    /// # Errors
    /// Where it has fewer than two or more than eight.
    pub fn new(places: Vec<Place>) -> Result<Self, String> {
        let n = places.len();
        hold!((2..=WORKERS.len()).contains(&n), "the script is for 2 to 8 CPUs, not {n}");
        let numbered = places.iter().zip(0..).all(|(place, i)| place.cpu == i);
        hold!(numbered, "CPUs are not numbered from 0 on");
        Ok(Self(places))
    }

    /// The CPUs in the order of their numbers.
    pub fn places(&self) -> &[Place] {
        &self.0
    }

    fn all(&self) -> Vec<u32> {
        self.0.iter().map(|place| place.cpu).collect()
    }

    /// Where wakers are: the first CPU of the last core.
    fn waker(&self) -> Place {
        let core = self.0.last().map_or(0, |place| place.core);
        self.0.iter().copied().find(|place| place.core == core).unwrap_or(self.0[0])
    }

    /// The pairs that there are: name, and the wakee's CPU.
    fn pairs(&self) -> Vec<(&'static str, u32)> {
        let x = self.waker();
        let last = |fits: &dyn Fn(&Place) -> bool| self.0.iter().rev().find(|p| fits(p)).copied();
        let found = [
            ("same", Some(x)),
            ("sibling", last(&|p| p.core == x.core && p.cpu != x.cpu)),
            ("near", last(&|p| p.llc == x.llc && p.core != x.core)),
            ("far", last(&|p| p.llc != x.llc)),
        ];
        found.into_iter().filter_map(|(name, place)| Some((name, place?.cpu))).collect()
    }

    fn of_llc(&self, llc: u32) -> Vec<u32> {
        self.0.iter().filter(|place| place.llc == llc).map(|place| place.cpu).collect()
    }
}

const fn ms(n: u64) -> Picos {
    Picos::from_ms(n)
}

const fn run(n: u64) -> Act {
    Act::Run(ms(n))
}

fn part(who: Name, start: Start, acts: Vec<Act>) -> Part {
    Part { who, start, acts }
}

fn at(who: Name, when: Picos, acts: Vec<Act>) -> Part {
    part(who, Start::At(when), acts)
}

fn woken(who: Name, by: By, acts: Vec<Act>) -> Part {
    part(who, Start::Woken(by), acts)
}

const fn by_name(by: By) -> &'static str {
    match by {
        By::Pipe => "a pipe",
        By::Futex => "a futex",
    }
}

/// The acts over and over.
fn times(n: usize, acts: &[Act]) -> Vec<Act> {
    (0..n).flat_map(|_| acts.to_vec()).collect()
}

struct Writer<'a> {
    shape: &'a Shape,
    script: Script,
}

impl Writer<'_> {
    fn step(&mut self, about: impl Into<String>, parts: Vec<Part>) {
        let step = Step { about: about.into(), lasts: LASTS, prepares: false, parts };
        self.script.steps.push(step);
    }

    /// Each of these tasks goes to a CPU and may then run anywhere.
    fn place(&mut self, where_to: &[(Name, u32)]) {
        let all = self.shape.all();
        let parts = where_to.iter().zip(0..).map(|(&(who, cpu), i)| {
            let acts = vec![Act::Allow(who, vec![cpu]), Act::Allow(who, all.clone())];
            at(who, ms(3 * i), acts)
        });
        let parts = parts.collect();
        let told: Vec<String> =
            where_to.iter().map(|(who, cpu)| format!("{who} to {cpu}")).collect();
        let about = told.join(", ");
        self.script.steps.push(Step { about, lasts: LASTS, prepares: true, parts });
    }

    /// Workers on these CPUs, for so long.
    fn busy(&self, cpus: &[u32], long: Picos) -> Vec<Part> {
        cpus.iter().map(|&cpu| at(WORKERS[cpu as usize], ms(0), vec![Act::Run(long)])).collect()
    }

    /// A beginning that is the same whatever was before. In each cache a core was busy for long
    /// enough to have balanced: before that, wake-ups look for no idle CPU (specs/wake.md#budget).
    /// Nobody is remembered for waking many (specs/wake.md#wide): who has not waked another
    /// one than the time before for so many seconds has no partners.
    fn beginning(&mut self) {
        let mut llcs: Vec<u32> = self.shape.0.iter().map(|place| place.llc).collect();
        llcs.dedup();
        for llc in llcs {
            let last = self.shape.0.iter().rev().find(|place| place.llc == llc);
            let core = last.map_or(0, |place| place.core);
            let of_core = self.shape.0.iter().filter(|place| place.core == core);
            let cpus: Vec<u32> = of_core.map(|place| place.cpu).collect();
            let parts = self.busy(&cpus, ms(200));
            let about = format!("core {core} is busy");
            self.script.steps.push(Step { about, lasts: ms(900), prepares: true, parts });
        }
        let by = By::Futex;
        for round in 0..ROUNDS {
            let parts = vec![
                at("a", ms(0), vec![Act::Wake("b", by), Act::Await(by)]),
                woken("b", by, vec![Act::Wake("c", by)]),
                woken("c", by, vec![Act::Wake("a", by)]),
            ];
            let about = format!("round {round}: a wakes b, b wakes c, c wakes a");
            self.script.steps.push(Step { about, lasts: ROUND, prepares: true, parts });
        }
    }

    /// One wake-up between each pair of CPUs, of which each is idle.
    fn wake_ups(&mut self) {
        let x = self.shape.waker().cpu;
        for (pair, y) in self.shape.pairs() {
            for by in [By::Pipe, By::Futex] {
                self.place(&[("b", y), ("a", x)]);
                let parts =
                    vec![at("a", ms(0), vec![Act::Wake("b", by)]), woken("b", by, vec![run(1)])];
                self.step(format!("{pair}: a wakes b by {} and sleeps", by_name(by)), parts);
            }
            self.place(&[("b", y), ("a", x)]);
            let by = By::Pipe;
            let parts = vec![
                at("a", ms(0), vec![run(2), Act::Wake("b", by), run(6)]),
                woken("b", by, vec![run(3)]),
            ];
            self.step(format!("{pair}: a wakes b by a pipe and runs on"), parts);
        }
    }

    /// One that wakes two, and one that wakes one that wakes one.
    fn three(&mut self) {
        let x = self.shape.waker().cpu;
        for (pair, y) in self.shape.pairs() {
            let (by, answers) = (By::Futex, |who| woken(who, By::Futex, vec![run(1)]));
            self.place(&[("c", y), ("b", y), ("a", x)]);
            let both = vec![Act::Wake("b", by), Act::Wake("c", by)];
            let parts = vec![at("a", ms(0), both), answers("b"), answers("c")];
            self.step(format!("{pair}: a wakes b and c, who were on one CPU"), parts);
            self.place(&[("c", x), ("b", y), ("a", x)]);
            let parts = vec![
                at("a", ms(0), vec![Act::Wake("b", By::Pipe), run(2)]),
                woken("b", By::Pipe, vec![run(1), Act::Wake("c", By::Pipe)]),
                woken("c", By::Pipe, vec![run(1)]),
            ];
            self.step(format!("{pair}: a wakes b, which wakes c, who was on a's CPU"), parts);
        }
    }

    /// The wakee's last CPU is busy, or its whole cache, or the machine.
    fn busy_ones(&mut self) {
        let x = self.shape.waker();
        for (pair, y) in self.shape.pairs() {
            if pair == "same" {
                continue;
            }
            for by in [By::Pipe, By::Futex] {
                self.place(&[("b", y), ("a", x.cpu)]);
                let mut parts = self.busy(&[y], ms(20));
                parts.push(at("a", ms(5), vec![Act::Wake("b", by)]));
                parts.push(woken("b", by, vec![run(1)]));
                self.step(
                    format!("{pair}: a wakes b by {}, whose CPU is busy", by_name(by)),
                    parts,
                );
            }
        }
        let pairs = self.shape.pairs();
        for (pair, y) in [pairs.first(), pairs.last()].into_iter().flatten().copied() {
            let llc = self.shape.0[y as usize].llc;
            let mut cpus = self.shape.of_llc(llc);
            let own = llc == x.llc;
            // Its own CPU a leaves to the wake-up.
            cpus.retain(|&cpu| cpu != x.cpu);
            self.place(&[("b", y), ("a", x.cpu)]);
            let mut parts = self.busy(&cpus, ms(20));
            parts.push(at("a", ms(5), vec![Act::Wake("b", By::Futex), run(2)]));
            parts.push(woken("b", By::Futex, vec![run(1)]));
            let which = if own { "but for a's CPU their cache" } else { "b's cache" };
            self.step(format!("{pair}: a wakes b by a futex, {which} is busy"), parts);
        }
        let y = pairs.last().map_or(x.cpu, |pair| pair.1);
        self.place(&[("b", y), ("a", x.cpu)]);
        let mut parts = self.busy(&self.shape.all(), ms(20));
        parts.push(at("a", ms(5), vec![Act::Wake("b", By::Pipe)]));
        parts.push(woken("b", By::Pipe, vec![run(1)]));
        self.step("a wakes b by a pipe, all CPUs are busy", parts);
    }

    /// Two tasks that wake each other, and the CPU that a wakee has used before.
    fn the_two(&mut self) {
        let x = self.shape.waker().cpu;
        for (pair, y) in self.shape.pairs() {
            for by in [By::Pipe, By::Futex] {
                if (pair, by) == ("same", By::Futex) {
                    continue;
                }
                self.place(&[("b", y), ("a", x)]);
                let rounds = times(20, &[Act::Wake("b", by), Act::Await(by)]);
                let mut back = times(19, &[Act::Wake("a", by), Act::Await(by)]);
                back.push(Act::Wake("a", by));
                let parts = vec![at("a", ms(0), rounds), woken("b", by, back)];
                self.step(
                    format!("{pair}: a and b wake each other 20 times by {}", by_name(by)),
                    parts,
                );
            }
        }
        // A's first CPU is busy whenever b wakes it.
        let pairs = self.shape.pairs();
        let y = pairs.iter().find(|pair| ["near", "sibling"].contains(&pair.0)).map_or(x, |p| p.1);
        self.place(&[("b", y), ("a", x)]);
        for round in 0..2 {
            let parts = vec![
                at("a", ms(1), vec![Act::Wake("b", By::Pipe), Act::Await(By::Pipe), run(1)]),
                woken("b", By::Pipe, vec![run(6), Act::Wake("a", By::Pipe), run(4)]),
                at(WORKERS[x as usize], ms(3), vec![run(20)]),
            ];
            self.step(format!("round {round}: b wakes a while it runs, CPU {x} is busy"), parts);
        }
        for (busy, why) in [(false, "is idle"), (true, "is busy")] {
            // b was on y, then on x: y is what it remembers when x is busy.
            self.place(&[("b", y), ("c", 0)]);
            self.place(&[("b", x)]);
            let mut cpus = vec![x];
            if busy {
                cpus.push(y);
            }
            let mut parts = self.busy(&cpus, ms(20));
            parts.push(at("c", ms(5), vec![Act::Wake("b", By::Futex)]));
            parts.push(woken("b", By::Futex, vec![run(1)]));
            self.step(format!("c wakes b, whose last CPU is busy and the one before {why}"), parts);
        }
    }

    /// The seed's two: a task is woken by the worker of the CPU on which it sleeps, while that
    /// one runs on. With a CPU that is remembered it goes to and fro between two
    /// (specs/wake.md#recent); without one, on to the next.
    fn recent(&mut self) {
        let llc = self.shape.waker().llc;
        let of_llc: Vec<Place> =
            self.shape.0.iter().copied().filter(|place| place.llc == llc).collect();
        let mut firsts = of_llc.clone();
        firsts.dedup_by_key(|place| place.core);
        let [.., x, y] = firsts[..] else { return };
        self.place(&[("a", x.cpu)]);
        for round in 0..4 {
            let cpu = if round % 2 == 0 { x.cpu } else { y.cpu };
            let acts = vec![Act::Wake("a", By::Futex), run(4)];
            let parts =
                vec![at(WORKERS[cpu as usize], ms(0), acts), woken("a", By::Futex, vec![run(1)])];
            self.step(format!("round {round}: CPU {cpu}'s worker wakes a and runs on"), parts);
        }
    }

    fn affinity(&mut self) {
        let x = self.shape.waker().cpu;
        let all = self.shape.all();
        let y = self.shape.pairs().last().map_or(x, |pair| pair.1);
        let but = |cpu: u32| all.iter().copied().filter(|c| *c != cpu).collect::<Vec<_>>();
        self.place(&[("b", y), ("a", x)]);
        let parts = vec![
            at("a", ms(0), vec![Act::Allow("b", but(y)), Act::Wake("b", By::Futex)]),
            woken("b", By::Futex, vec![run(1)]),
        ];
        self.step("a takes b's last CPU from it and wakes it", parts);
        let parts = vec![
            at("a", ms(0), vec![Act::Allow("b", vec![x]), Act::Wake("b", By::Pipe), run(1)]),
            woken("b", By::Pipe, vec![run(1)]),
        ];
        self.step("a leaves its own CPU only to b, wakes it and runs on", parts);
        self.place(&[("b", y), ("a", x)]);
        let acts = vec![run(3), Act::Allow("a", vec![y]), run(3), Act::Allow("a", all.clone())];
        self.step("a leaves its CPU while it runs", vec![at("a", ms(0), acts)]);
        self.place(&[("b", y), ("a", x)]);
        let parts = vec![
            at("b", ms(0), vec![run(12)]),
            at("a", ms(5), vec![Act::Allow("b", but(y)), Act::Allow("b", all.clone())]),
        ];
        self.step("a takes from b the CPU on which it runs", parts);
        self.place(&[("b", y), ("a", x)]);
        let parts = vec![
            at("b", ms(0), vec![run(12)]),
            at("a", ms(5), vec![Act::Allow("b", vec![y]), Act::Allow("b", all.clone())]),
        ];
        self.step("a leaves b the CPU on which it runs", parts);
    }

    fn forks(&mut self) {
        let x = self.shape.waker().cpu;
        let all = self.shape.all();
        let child = |who: Name, long: u64| part(who, Start::Forked, vec![run(long), Act::Exit]);
        self.place(&[("a", x)]);
        let parts = vec![at("a", ms(0), vec![Act::Fork("f")]), child("f", 2)];
        self.step("a forks f and sleeps; f ends", parts);
        let parts = vec![at("a", ms(0), vec![run(2), Act::Fork("g"), run(8)]), child("g", 5)];
        self.step("a forks g and runs on", parts);
        let acts = ["h", "i", "j"].map(Act::Fork).to_vec();
        let parts = vec![at("a", ms(0), acts), child("h", 6), child("i", 6), child("j", 6)];
        self.step("a forks three", parts);
        self.place(&[("a", x)]);
        let mut acts = vec![Act::Allow("a", vec![x]), Act::Fork("k"), run(2)];
        acts.push(Act::Allow("a", all.clone()));
        let parts = vec![at("a", ms(0), acts), child("k", 2)];
        self.step("a may run on one CPU only and forks k", parts);
        self.place(&[("a", x)]);
        // One CPU stays idle: the last but a's.
        let free = all.iter().rev().copied().find(|cpu| *cpu != x).unwrap_or(x);
        let busy: Vec<u32> = all.iter().copied().filter(|cpu| ![free, x].contains(cpu)).collect();
        let mut parts = self.busy(&busy, ms(30));
        parts.push(at("a", ms(10), vec![Act::Fork("l"), run(3)]));
        parts.push(child("l", 3));
        self.step(format!("a forks l where only CPU {free} is idle"), parts);
        self.place(&[("a", x)]);
        let parts = vec![
            at("a", ms(0), vec![Act::Fork("m"), Act::Wake("m", By::Pipe), run(4)]),
            part("m", Start::Forked, vec![Act::Await(By::Pipe), run(2)]),
        ];
        self.step("a forks m, which waits, and wakes it", parts);
        let parts = vec![
            at("a", ms(0), vec![Act::Wake("m", By::Futex)]),
            woken("m", By::Futex, vec![run(1), Act::Exit]),
        ];
        self.step("a wakes m, which ends", parts);
    }

    fn on_one_cpu(&mut self) {
        let x = self.shape.waker().cpu;
        let all = self.shape.all();
        let only = |who: Name, start: Picos, mut acts: Vec<Act>| {
            acts.insert(0, Act::Allow(who, vec![x]));
            acts.push(Act::Allow(who, all.clone()));
            at(who, start, acts)
        };
        self.place(&[("b", x), ("a", x)]);
        let parts = vec![only("a", ms(0), vec![run(14)]), only("b", ms(1), vec![run(14)])];
        self.step("a and b share a CPU", parts);
        let parts = vec![
            only("a", ms(0), vec![run(16)]),
            only("b", ms(1), times(5, &[Act::Sleep(ms(2)), Act::Run(Picos::from_us(200))])),
        ];
        self.step("b wakes up five times beside a, which computes", parts);
        let parts = vec![
            only("a", ms(0), vec![run(10)]),
            only("b", ms(1), times(3, &[run(1), Act::Yield])),
        ];
        self.step("b yields three times beside a, which computes", parts);
        let parts = vec![at("a", ms(0), times(5, &[Act::Yield]))];
        self.step("a yields five times, alone", parts);
        let parts = vec![at("a", ms(0), times(5, &[Act::Sleep(ms(3))]))];
        self.step("a sleeps five times for 3 ms", parts);
    }

    /// What the balancer does with what is too much.
    fn balance(&mut self) {
        let x = self.shape.waker().cpu;
        self.place(&[("b", x), ("a", x)]);
        let parts = vec![at("a", ms(0), vec![run(30)]), at("b", ms(0), vec![run(30)])];
        self.step("a and b wake up on one CPU and compute", parts);
        let all = self.shape.all();
        let only = |who: Name| {
            at(
                who,
                ms(0),
                vec![Act::Allow(who, vec![x]), run(6), Act::Allow(who, all.clone()), run(30)],
            )
        };
        self.place(&[("c", x), ("b", x), ("a", x)]);
        self.step("three share a CPU, then may leave it", vec![only("a"), only("b"), only("c")]);
        // c as well: where the step before leaves it differs from boot to boot.
        self.place(&[("c", x), ("b", x), ("a", x)]);
        let acts = times(
            12,
            &[
                Act::Wake("b", By::Futex),
                Act::Sleep(ms(1)),
                Act::Wake("c", By::Futex),
                Act::Sleep(ms(1)),
            ],
        );
        let answer = |who: Name| {
            let mut acts = times(11, &[Act::Await(By::Futex)]);
            acts.push(Act::Run(Picos::from_us(100)));
            woken(who, By::Futex, acts)
        };
        let parts = vec![at("a", ms(0), acts), answer("b"), answer("c")];
        self.step("a wakes b and c in turn, twelve times", parts);
    }
}

/// The script for a machine of this shape.
pub fn script(shape: &Shape) -> Script {
    let all = shape.all();
    let free = ["a", "b", "c"].map(|name| Task { name, cpus: all.clone() });
    let workers = WORKERS.iter().zip(&all).map(|(&name, &cpu)| Task { name, cpus: vec![cpu] });
    let tasks = free.into_iter().chain(workers).collect();
    // CPU 0 has the kernel's own tasks, and its worker's switches are theirs.
    let untold = vec![WORKERS[0]];
    let mut writer = Writer { shape, script: Script { tasks, steps: Vec::new(), untold } };
    writer.beginning();
    writer.wake_ups();
    writer.three();
    writer.busy_ones();
    writer.the_two();
    writer.recent();
    writer.affinity();
    writer.forks();
    writer.on_one_cpu();
    writer.balance();
    writer.script
}
