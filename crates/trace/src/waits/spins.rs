//! Spinning: a task looks at a word until another has changed it.
//!
//! ```text
//! task 0   ... Release word 0x7f10, 1 ...                         the flag is set
//! task 1   ... Block   spin 0x7f10, 3000 instructions ...         ◀── ended by that
//! ```
//!
//! The last change by another task since it began has ended it. Where the task takes the word as a
//! lock next, it waits there instead, where it takes it, and who comes first has it.
//!
//! Source: specs/waits.md#spinning

use super::*;

/// What of a recording's points is spinning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spins {
    /// Waits of tasks that spun.
    pub waits: u64,
    /// By point: the last of the instructions before it in which the task spun for what is known
    /// to have ended that. In a replay it spins for as long as that takes there.
    pub left_out: BTreeMap<u32, u64>,
    /// Points in front of which a task computes for as long as it waits, and whether it gives its
    /// CPU to others meanwhile.
    pub busy: BTreeMap<u32, bool>,
}

/// What a word is that is a lock: 0 while it is free. Of one that is 1 then, and less while a
/// task has it, as `pthread_spin_lock`'s, that is turned round.
pub(super) fn turned(value: u32) -> u32 {
    1i64.saturating_sub(i64::from(value as i32)).max(0) as u32
}

/// Whether a word is 1 while nobody has it. One that is below 0 is lowered by who wants it. Of
/// another, who has it can be seen both ways, but for the first change or the last.
pub(super) fn is_turned(as_it_is: &Habit, turned: &Habit) -> bool {
    as_it_is.below || turned.own > as_it_is.own + 1
}

impl Resolver<'_> {
    /// Words that tasks have spun at.
    pub(super) fn spun_words(&self) -> BTreeSet<Object> {
        let word = |point: &Point| match point.what {
            What::Block(Block::Spin, word, _) => Some(word),
            What::Release(..) | What::Block(..) | What::Exec | What::Exit => None,
        };
        self.points.iter().filter_map(word).collect()
    }

    /// Who ended each task's spinning.
    ///
    /// * `held` – when locks were taken and given back.
    pub(super) fn spins(&mut self, by_order: &[u32], held: &Held) -> Spins {
        let mut spins = Spins::default();
        let words = self.spun_words();
        // By word: who has changed it so far.
        let mut changes: BTreeMap<Object, Vec<u32>> = BTreeMap::new();
        // Words at which somebody has slept, and those at which somebody gave his CPU away.
        let (mut slept, mut yielded) = (BTreeSet::new(), BTreeSet::new());
        for &n in by_order {
            let Point { task, order, what, .. } = self.points[n as usize];
            let (word, spin) = match what {
                What::Release(Release::Word, word, _) if words.contains(&word) => {
                    changes.entry(word).or_default().push(n);
                    continue;
                }
                What::Block(Block::Futex | Block::FutexTimeout, word, _) => {
                    slept.insert(word);
                    continue;
                }
                What::Block(Block::Spin, word, arg) => (word, Spin::from(arg)),
                What::Release(..) | What::Block(..) | What::Exec | What::Exit => continue,
            };
            if spin.yields {
                yielded.insert(word);
            }
            let began = order.saturating_sub(spin.ago.saturating_mul(SPREAD));
            let is_others = |&&by: &&u32| self.points[by as usize].task != task;
            let last = changes.get(&word).and_then(|all| all.iter().rev().find(is_others));
            let by = last.copied().filter(|&by| self.order(by) >= began && self.order(by) < order);
            if self.is_for_lock(n, word, held) {
                self.for_locks.insert(n);
                self.known[n as usize] = true;
            } else if by.is_some() {
                self.ends(n, by);
                spins.busy.insert(n, spin.yields);
            } else {
                continue;
            }
            spins.waits += 1;
            if spin.insns > 0 {
                spins.left_out.insert(n, spin.insns);
            }
        }
        // Who wants such a lock spins, be it that it was free when it was recorded.
        for (&(word, _), own) in held {
            if words.contains(&word) && !slept.contains(&word) {
                let taken = own.iter().filter(|&&(_, taken)| taken);
                spins.busy.extend(taken.map(|&(n, _)| (n, yielded.contains(&word))));
            }
        }
        spins
    }
}
