//! How what was observed fades: halved once per half-life, linear between two halvings.
//!
//! Source: specs/engine.md#averages.

use crate::units::Picos;

pub(super) fn narrow(v: u128) -> u64 {
    u64::try_from(v).unwrap_or(u64::MAX)
}

/// `v` after `dt`, halved once per `half`; linear between two halvings.
pub(super) fn decay(v: u64, dt: Picos, half: Picos) -> u64 {
    if v == 0 || dt.0 == 0 {
        return v;
    }
    let half = half.0.max(1);
    let Some(v) = u32::try_from(dt.0 / half).ok().and_then(|k| v.checked_shr(k)) else { return 0 };
    v - narrow(u128::from(v) * u128::from(dt.0 % half) / (2 * u128::from(half)))
}

/// Time scales of a map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scales {
    /// Half-lives.
    pub(super) short: Picos,
    pub(super) long: Picos,
    /// For how long silence does not yet mean cold.
    pub(super) hold: Picos,
}

impl Scales {
    /// The short half-life, or the long one.
    pub(super) fn half(&self, which: usize) -> Picos {
        [self.short, self.long][which]
    }
}
