//! How much of the heat a fast node should serve where load makes it slow.
//!
//! ```text
//! p  share of the heat that the fast node serves        0 ───low══════p══════high─── 1
//! the fast node answers sooner: low mark up to p, aim half way to the high one
//!               later: high mark down to p, aim half way to the low one
//!               alike (by less than an eighth): nothing moves between the two
//! ```
//!
//! Worked example: p is 0.8, the fast node answers after 500 ns, the slow one after 300. The high
//! mark falls to 0.8 and the aim is 0.4. At 0.4 it answers after 150 ns: the low mark rises to
//! 0.4, the aim is 0.6. As long as the fast node never was the slower one there is no high mark, and
//! nothing is bounded.
//!
//! What load does to latencies changes with what others do. So a mark that p has crossed, or that p
//! is at, says nothing any more: it is set beyond p by a sixty-fourth, then twice that, and so on.
//! So what has been learnt is given up slowly, and not at all by one wrong word.
//!
//! Source: specs/engine.md#under-load.

/// All of the heat.
pub(super) const ONE: u64 = 1 << 16;
/// Marks that are nearer than this have met.
const NEAR: u64 = ONE / 64;

/// What to do about a fast node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// As much may go up as gains by it.
    Free,
    /// No more than up to this share.
    UpTo(u64),
    /// Nothing moves.
    Stay,
    /// The hottest goes down, to this share.
    DownTo(u64),
}

/// What was learnt of one fast node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Level {
    /// The fast node was the faster one at this share.
    low: u64,
    /// And the slower one at this.
    high: Option<u64>,
    /// How far a mark was set beyond p last, and whether upwards; 0: none was.
    step: u64,
    up: bool,
}

/// Whether `a` is more than `b` by an eighth.
pub(super) fn is_more(a: u64, b: u64) -> bool {
    a > b.saturating_add(b / 8)
}

impl Level {
    /// * `p` – the fast node's share now, of [`ONE`].
    /// * `fast`, `slow` – how long both take to answer.
    pub(super) fn aim(&mut self, p: u64, fast: u64, slow: u64) -> Aim {
        let p = p.min(ONE);
        if is_more(slow, fast) {
            let Some(mut high) = self.high else { return Aim::Free };
            self.low = p;
            if high < p.saturating_add(NEAR) || self.opens(true) {
                high = high.max(p + self.wider(true));
            }
            if high > ONE {
                *self = Self::default();
                return Aim::Free;
            }
            self.high = Some(high);
            return Aim::UpTo(p + (high - p) / 2);
        }
        if is_more(fast, slow) {
            self.high = Some(p);
            if self.low.saturating_add(NEAR) > p || self.opens(false) {
                self.low = self.low.min(p.saturating_sub(self.wider(false)));
            }
            return Aim::DownTo(self.low + (p - self.low) / 2);
        }
        self.step = 0;
        match self.high {
            Some(_) => Aim::Stay,
            None => Aim::Free,
        }
    }

    /// Whether the last mark was set anew in that direction.
    fn opens(&self, up: bool) -> bool {
        self.step > 0 && self.up == up
    }
    fn wider(&mut self, up: bool) -> u64 {
        let before = if self.opens(up) { self.step } else { 0 };
        self.step = before.saturating_mul(2).clamp(NEAR, ONE);
        self.up = up;
        self.step
    }

    /// Whether the fast node was the slower one, as far as it still counts.
    pub(super) fn was_slower(&self) -> bool {
        self.high.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splitmix::SplitMix;
    use proptest::prelude::*;

    // The module's example, and what follows.
    #[test]
    fn marks_close_in_on_the_share_at_which_both_answer_alike() {
        let part = |of: u64| ONE * of / 100;
        let mut level = Level::default();
        assert_eq!(level.aim(part(50), 110, 300), Aim::Free, "as long as it is the faster one");
        assert_eq!(level.aim(part(80), 500, 300), Aim::DownTo(part(80) / 2));
        let Aim::UpTo(up) = level.aim(part(40), 150, 300) else { panic!("it is faster again") };
        assert!(up.abs_diff(part(60)) <= 1);
        assert_eq!(level.aim(part(60), 310, 300), Aim::Stay, "near enough");
        // The others have gone: it is given up step by step.
        let (mut p, mut steps) = (part(60), 0);
        while let Aim::UpTo(to) = level.aim(p, 110, 300) {
            assert!(to > p);
            (p, steps) = (to, steps + 1);
        }
        assert!((3..=12).contains(&steps) && !level.was_slower(), "{steps}");
    }

    /// Two nodes of which one answers later the more it serves, the other the less it does.
    struct Nodes {
        fast: u64,
        slow: u64,
        steep: u64,
        back: u64,
    }

    impl Nodes {
        fn takes(&self, p: u64) -> (u64, u64) {
            let fast = self.fast + self.steep * p * p / (ONE * ONE);
            (fast, self.slow + self.back * (ONE - p) / ONE)
        }
        /// So many decisions, each by words that are off by up to a thirtieth, of whose aims a part
        /// is reached: where p is then, and how much moved in the second half of them.
        fn course(&self, mut p: u64, reached: u64, noise: &[(u64, u64)]) -> (u64, u64) {
            let (mut level, mut moved) = (Level::default(), 0);
            for (i, (a, b)) in noise.iter().enumerate() {
                let (f, s) = self.takes(p);
                let to = match level.aim(p, f * a / 1000, s * b / 1000) {
                    Aim::Free => ONE,
                    Aim::Stay => p,
                    Aim::UpTo(to) => {
                        assert!(to >= p);
                        to
                    }
                    Aim::DownTo(to) => {
                        assert!(to <= p);
                        to
                    }
                };
                let step = p.abs_diff(to) * reached / 100;
                p = if to > p { p + step } else { p - step };
                if i >= noise.len() / 2 {
                    moved += step;
                }
            }
            (p, moved)
        }
        /// Whether both answer about alike, or all is where it is answered sooner.
        fn is_at_rest(&self, p: u64) -> bool {
            let (f, s) = self.takes(p);
            let at_an_end = p < NEAR && f >= s || p > ONE - NEAR && f <= s;
            at_an_end || f.abs_diff(s) <= f.min(s) * 2 / 5
        }
    }

    // specs/engine.md#under-load: a mark that noise has set wrong opens slowly, so a few are still on
    // their way after 120 decisions.
    #[test]
    fn it_comes_to_rest() {
        let mut random = SplitMix::new(32);
        let mut between = |from: u64, to: u64| from + random.below(to - from + 1);
        let mut at_rest = 0;
        for _ in 0..2000 {
            let (fast, slow) = (between(50, 199), between(100, 399));
            let nodes = Nodes { fast, slow, steep: between(0, 2999), back: between(0, 599) };
            let (starts, reached) = (between(0, ONE), between(30, 100));
            let noise: Vec<_> =
                (0..120).map(|_| (between(967, 1033), between(967, 1033))).collect();
            let (p, _) = nodes.course(starts, reached, &noise);
            at_rest += u32::from(nodes.is_at_rest(p));
        }
        assert!(at_rest >= 1980, "{at_rest} of 2000");
    }

    proptest! {
        // specs/engine.md#under-load
        #[test]
        fn it_does_not_swing(
            (fast, slow) in (50u64..200, 100u64..400),
            (steep, back) in (0u64..3000, 0u64..600),
            starts in 0..=ONE,
            reached in 30u64..=100,
            noise in prop::collection::vec((967u64..=1033, 967u64..=1033), 120),
        ) {
            let (_, moved) = Nodes { fast, slow, steep, back }.course(starts, reached, &noise);
            // In sixty decisions, each misled by noise, less than two times all of the heat in sum.
            prop_assert!(moved <= 2 * ONE, "{moved} of {ONE}");
        }
    }
}
