//! The bit field `numa_balancing`.
//!
//! | value | name    | effect                                              |
//! |-------|---------|-----------------------------------------------------|
//! | 0     | off     | nothing is sampled                                  |
//! | 1     | normal  | between sockets, as the old Boolean                 |
//! | 2     | tiering | only pages of slow nodes are sampled, and promoted  |
//! | 3     | both    |                                                     |
//! | 4     | (quirk) | accepted by the kernel: switch on, neither bit set  |

/// A value of `numa_balancing`.
///
/// Source: specs/tiering.md#bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mode(u8);

impl Mode {
    /// Nothing is sampled.
    pub const OFF: Self = Self(0);
    /// Balancing between sockets.
    pub const NORMAL: Self = Self(1);
    /// Promotion from slow nodes.
    pub const TIERING: Self = Self(2);

    /// The mode of a written value; `None` above 4.
    pub const fn from_raw(v: u8) -> Option<Self> {
        if v <= 4 { Some(Self(v)) } else { None }
    }
    /// The value as it reads.
    pub const fn raw(self) -> u8 {
        self.0
    }
    /// Whether the static switch is on: tasks are scanned at all.
    #[inline]
    pub const fn enabled(self) -> bool {
        self.0 != 0
    }
    /// Bit 1: top-tier pages are sampled.
    #[inline]
    pub const fn normal(self) -> bool {
        self.0 & 1 != 0
    }
    /// Bit 2: slow pages are promoted by their heat.
    #[inline]
    pub const fn tiering(self) -> bool {
        self.0 & 2 != 0
    }
    /// The value 4, which the kernel takes though it documents no such bit.
    pub const fn is_quirk(self) -> bool {
        self.0 == 4
    }

    /// What a write that replaces `self` by `new` does beside storing it.
    pub const fn effect_of(self, new: Mode) -> ModeEffect {
        ModeEffect {
            reset_thresholds: !self.tiering() && new.tiering(),
            switch: if self.enabled() == new.enabled() { None } else { Some(new.enabled()) },
        }
    }
}

/// Side effects of a write to `numa_balancing`.
///
/// Entries that are already protected are not restored: later faults on them
/// are still resolved and may migrate, merely not accounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeEffect {
    /// Every node's [`super::promote::PromoteNode::reset`] is due.
    pub reset_thresholds: bool,
    /// The static switch turns on or off; `None`: stays.
    pub switch: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    // specs/tiering.md#bits: 0 off, 1 normal, 2 tiering, 3 both; specs/seeds.md#s1: 1 does what
    // the truth value did.
    #[test]
    fn bits() {
        let bits = |v| {
            let m = Mode::from_raw(v).unwrap();
            (m.enabled(), m.normal(), m.tiering())
        };
        assert_eq!(bits(0), (false, false, false));
        assert_eq!(bits(1), (true, true, false));
        assert_eq!(bits(2), (true, false, true));
        assert_eq!(bits(3), (true, true, true));
        assert_eq!(bits(4), (true, false, false));
        assert_eq!(Mode::from_raw(5), None);
    }

    // specs/tiering.md#bits: of all writes only tiering 0 to 1 resets; 2 to 3 does not.
    #[test]
    fn effect_of_a_write() {
        let e = |a, b| Mode::from_raw(a).unwrap().effect_of(Mode::from_raw(b).unwrap());
        assert_eq!(e(0, 2), ModeEffect { reset_thresholds: true, switch: Some(true) });
        assert_eq!(e(1, 3), ModeEffect { reset_thresholds: true, switch: None });
        assert_eq!(e(2, 3), ModeEffect { reset_thresholds: false, switch: None });
        assert_eq!(e(3, 1), ModeEffect { reset_thresholds: false, switch: None });
        assert_eq!(e(2, 0), ModeEffect { reset_thresholds: false, switch: Some(false) });
        assert_eq!(e(0, 4), ModeEffect { reset_thresholds: false, switch: Some(true) });
    }
}
