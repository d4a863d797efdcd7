//! Weights of interleaving in the ratio of bandwidths.

/// Largest weight that the kernel takes.
const MOST: u64 = 255;
/// A share that is off by less than one in so many is near enough.
const NEAR: u128 = 20;

/// The smallest weights from 1 to 255 whose ratios are those of the bandwidths, each to
/// a twentieth; where the slowest would need less than 1, it has 1 and the fastest 255.
///
/// * `bandwidths` – one per node, in any unit, each above 0 (0 counts as 1).
///
/// Returns as many weights, in the same order.
///
/// Source: specs/advise.md#interleave.
pub fn weights(bandwidths: &[u64]) -> Vec<u8> {
    let all: Vec<u128> = bandwidths.iter().map(|b| u128::from((*b).max(1))).collect();
    let (Some(&least), Some(&most)) = (all.iter().min(), all.iter().max()) else {
        return Vec::new();
    };
    let narrow = |w: u128| u8::try_from(w.clamp(1, u128::from(MOST))).unwrap_or(u8::MAX);
    for k in 1..=u128::from(MOST) {
        let try_ = |b: &u128| (b * k + least / 2) / least;
        if try_(&most) > u128::from(MOST) {
            break;
        }
        let near = |b: &u128| (try_(b) * least).abs_diff(b * k) * NEAR <= b * k;
        if all.iter().all(near) {
            return all.iter().map(|b| narrow(try_(b))).collect();
        }
    }
    all.iter().map(|b| narrow((b * u128::from(MOST) + most / 2) / most)).collect()
}
