//! Lists of numbers as the kernel prints them: `0-3,8,10-11`.

pub use homenode_core::list::in_order as write_list;
use homenode_core::list::ranges;

/// Numbers in one list; twice the CPUs that a kernel can have.
const MOST: u64 = 16_384;

/// The numbers of a list, in the order written; each from 0 to `high`, 16,384 at most.
///
/// Unlike the kernel's bitmaps, order counts, so that one list can name the
/// cores that belong to another list's CPUs.
///
/// # Errors
/// A sentence that says what is allowed.
pub fn parse_list(s: &str, high: u32) -> Result<Vec<u32>, String> {
    let bad =
        || format!("\"{s}\" is no list; write one such as \"0-3,8\" with numbers up to {high}");
    let mut out = Vec::new();
    for (from, to) in ranges(s).ok_or_else(bad)? {
        if to > high || out.len() as u64 + u64::from(to - from) >= MOST {
            return Err(bad());
        }
        out.extend(from..=to);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_the_kernels() {
        assert_eq!(parse_list("0-3,8", 63), Ok(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_list("5", 63), Ok(vec![5]));
        assert_eq!(write_list(&[0, 1, 2, 3, 8, 1]), "0-3,8,1");
        for bad in ["", "3-1", "0-64", "-1", "1-", "a", "0-4294967295", "1 2", "+1"] {
            assert!(parse_list(bad, 63).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn lists_come_back(l in proptest::collection::vec(0u32..8192, 1..60)) {
            prop_assert_eq!(parse_list(&write_list(&l), 8191), Ok(l));
        }
        #[test]
        fn garbage_never_panics(s in "[0-9,\\- a]*") {
            let _ = parse_list(&s, 8191);
        }
    }
}
