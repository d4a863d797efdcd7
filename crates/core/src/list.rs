//! Lists of numbers as the kernel writes them: `0-3,8,10-11`.

use std::fmt::Write as _;

/// Numbers as the kernel lists them: `0-1,4`.
pub fn sorted(numbers: &[u32]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    in_order(&sorted)
}

/// The shortest list of these numbers, in their order.
pub fn in_order(numbers: &[u32]) -> String {
    let mut out = String::new();
    let mut rest = numbers;
    while let Some(first) = rest.first() {
        let run = rest.iter().zip(*first..).take_while(|(n, expected)| **n == *expected).count();
        let comma = if out.is_empty() { "" } else { "," };
        let _ = match run {
            1 => write!(out, "{comma}{first}"),
            _ => write!(out, "{comma}{first}-{}", rest[run - 1]),
        };
        rest = &rest[run..];
    }
    out
}

/// The ranges of a list, first and last number of each, in the order written; `None` if
/// something of it is no number, or a range that ends before it begins.
pub fn ranges(list: &str) -> Option<Vec<(u32, u32)>> {
    // No sign: `parse` alone would take one.
    let number = |s: &str| s.parse().ok().filter(|_| s.bytes().all(|b| b.is_ascii_digit()));
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first.trim())?, number(last.trim())?);
        (first <= last).then_some((first, last))
    };
    list.split(',').map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_written_and_read() {
        assert_eq!(sorted(&[8, 1, 0, 2, 1]), "0-2,8");
        assert_eq!(in_order(&[0, 1, 2, 8, 1]), "0-2,8,1");
        assert_eq!(ranges("0-2,8, 1"), Some(vec![(0, 2), (8, 8), (1, 1)]));
        for bad in ["", "3-1", "-1", "1-", "a", "1 2", "+1", "1,", "0-4294967296"] {
            assert_eq!(ranges(bad), None, "{bad}");
        }
    }
}
