//! Smart scan: a page that has not merged for a while is looked at less often.
//!
//! Source: specs/ksm.md#smart-scan.

/// Visits that are never skipped.
const YOUNG: u8 = 3;

/// Skips that a page of this age earns when it is looked at again.
///
/// * `age` – earlier visits as an ordinary page, also skipped ones, up to 255.
///
/// Source: specs/ksm.md#smart-scan.
pub const fn skips_granted(age: u8) -> u8 {
    match age {
        0..=3 => 1,
        4..=5 => 2,
        6..=8 => 4,
        _ => 8,
    }
}

/// What a visit does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmartVisit {
    /// The page is passed over.
    pub skip: bool,
    /// Its age from now on.
    pub age: u8,
    /// Skips that are left.
    pub skips: u8,
}

/// Whether a visit at `age` with `skips` left is passed over.
///
/// Source: specs/ksm.md#smart-scan.
pub const fn visit(age: u8, skips: u8) -> SmartVisit {
    let older = age.saturating_add(1);
    if age < YOUNG {
        SmartVisit { skip: false, age: older, skips }
    } else if skips == 0 {
        SmartVisit { skip: false, age: older, skips: skips_granted(age) }
    } else {
        SmartVisit { skip: true, age: older, skips: skips - 1 }
    }
}
