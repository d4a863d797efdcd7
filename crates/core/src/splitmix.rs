//! SplitMix64 (Steele, Lea and Flood, 2014): numbers that look random and are the same
//! each time.

/// A stream of them.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "it never ends, and is no `Option`")]
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
    /// The next number below `n`, which is not 0: the high bits of a product.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
    /// Puts the items into random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// The stream's last step: a bijection, in which every bit of the result hangs on every
/// bit, so that equal numbers stay equal and neighbours part.
#[inline]
pub const fn mix(v: u64) -> u64 {
    let v = (v ^ v >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let v = (v ^ v >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    v ^ v >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        let mut s = SplitMix::new(1_234_567);
        let first =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([s.next(), s.next(), s.next()], first);
        assert!((0..1000).all(|_| s.below(3) < 3));
    }
}
