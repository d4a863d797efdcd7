//! Numbers with units: `89.3` ns, `"64 GiB"`, `"10us"`, without floating point.

use homenode_core::topology::{BANDWIDTH_BOUNDS, MAX_SIZE};
use homenode_core::units::{Bytes, Picos};

/// Why a decimal can't be stored exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decimal {
    /// `nan`, `inf`, an exponent, or no number at all.
    NotPlain,
    Negative,
    /// More decimals than the unit has.
    TooFine,
    TooLarge,
}

/// A plain decimal times `scale`, which must come out whole.
pub(crate) fn stored(raw: &str, scale: u64) -> Result<u64, Decimal> {
    let (negative, digits) = match raw.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, raw.strip_prefix('+').unwrap_or(raw)),
    };
    if negative && matches!(digits.as_bytes().first(), Some(b'0'..=b'9')) {
        return Err(Decimal::Negative);
    }
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |s: &str| s.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    if negative || whole.is_empty() || !plain(whole) || !plain(rest) {
        return Err(Decimal::NotPlain);
    }
    let bare = |s: &str| s.replace('_', "");
    let number = |s: &str| {
        s.bytes().try_fold(0u64, |v, b| v.checked_mul(10)?.checked_add(u64::from(b - b'0')))
    };
    let value = number(&bare(whole)).and_then(|v| v.checked_mul(scale));
    let value = value.ok_or(Decimal::TooLarge)?;
    let rest = bare(rest.trim_end_matches(['0', '_']));
    // The numerator over 10^decimals, so that 1.5 of 1024 is whole.
    let numerator = number(&rest).ok_or(Decimal::TooFine)?;
    let digits = u32::try_from(rest.len()).unwrap_or(u32::MAX);
    let denominator = u128::from(10u64.checked_pow(digits).ok_or(Decimal::TooFine)?);
    let product = u128::from(numerator) * u128::from(scale);
    if product % denominator != 0 {
        return Err(Decimal::TooFine);
    }
    let part = u64::try_from(product / denominator).map_err(|_| Decimal::TooLarge)?;
    value.checked_add(part).ok_or(Decimal::TooLarge)
}

const SIZES: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Bytes of a text such as `64 GiB`, `1.5MiB` or `4096`.
///
/// # Errors
/// A sentence that says what is allowed: 1 to 2^52 bytes, in B, KiB, MiB, GiB
/// or TiB.
pub fn parse_size(s: &str) -> Result<Bytes, String> {
    let (number, unit) = split(s);
    let known = SIZES.iter().chain(&[("", 1)]).find(|(name, _)| *name == unit);
    let Some((_, scale)) = known else {
        return Err(format!(
            "\"{s}\" is no size; write it with B, KiB, MiB, GiB or TiB, such as \"512 MiB\""
        ));
    };
    const RANGE: &str = "a size lies between 1 and 2^52 bytes";
    match stored(number, *scale) {
        Ok(0) => Err(format!("a size of 0; {RANGE}")),
        Ok(v) if v > MAX_SIZE => Err(format!("{s} is beyond 2^52 bytes; {RANGE}")),
        Ok(v) => Ok(Bytes(v)),
        Err(Decimal::TooLarge) => Err(format!("{s} is beyond 2^52 bytes; {RANGE}")),
        Err(Decimal::Negative) => Err(format!("{s} is negative; {RANGE}")),
        Err(Decimal::TooFine) => Err(format!("{s} is no whole number of bytes")),
        Err(Decimal::NotPlain) => {
            Err(format!("\"{s}\" is no size; write one such as \"512 MiB\" or 4096"))
        }
    }
}

/// A size in its largest whole unit: `64 GiB`, `2880492 KiB`.
pub fn write_size(b: Bytes) -> String {
    let (name, scale) =
        SIZES.iter().find(|(_, scale)| b.0 >= *scale && b.0 % scale == 0).unwrap_or(&SIZES[4]);
    format!("{} {name}", b.0 / scale)
}

const RATES: [(&str, u64); 2] = [("GB/s", 1000), ("MB/s", 1)];

const TIMES: [(&str, u64); 5] =
    [("s", 1_000_000_000_000), ("ms", 1_000_000_000), ("us", 1_000_000), ("ns", 1_000), ("ps", 1)];

/// Virtual time of a text such as `10us`, `1 s` or `2.5ms`; `0s` is allowed.
///
/// # Errors
/// A sentence that says what is allowed: ps, ns, us, ms or s, up to 1,000,000 s.
pub fn parse_time(s: &str) -> Result<Picos, String> {
    const MOST: u64 = 1_000_000 * 1_000_000_000_000;
    let (number, unit) = split(s);
    let Some((_, scale)) = TIMES.iter().find(|(name, _)| *name == unit) else {
        return Err(format!(
            "\"{s}\" is no time; write it with ps, ns, us, ms or s, such as \"10us\""
        ));
    };
    match stored(number, *scale) {
        Ok(v) if v <= MOST => Ok(Picos(v)),
        Ok(_) | Err(Decimal::TooLarge) => {
            Err(format!("{s} is too long; a time is at most 1000000s"))
        }
        Err(Decimal::Negative) => Err(format!("{s} is negative; a time is 0s or more")),
        Err(Decimal::TooFine) => Err(format!("{s} is finer than a picosecond")),
        Err(Decimal::NotPlain) => {
            Err(format!("\"{s}\" is no time; write one such as \"10us\" or \"1s\""))
        }
    }
}

/// A time in its largest whole unit: `10us`.
pub fn write_time(t: Picos) -> String {
    if t.0 == 0 {
        return "0s".into();
    }
    let (name, scale) = TIMES.iter().find(|(_, scale)| t.0 % scale == 0).unwrap_or(&TIMES[4]);
    format!("{}{name}", t.0 / scale)
}

/// Megabytes (10^6 bytes) a second of a text such as `12 GB/s` or `500MB/s`; `0 GB/s` is allowed.
///
/// # Errors
/// A sentence that says what is allowed: MB/s or GB/s, up to a petabyte a second.
pub fn parse_rate(s: &str) -> Result<u64, String> {
    let (number, unit) = split(s);
    let Some((_, scale)) = RATES.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("\"{s}\" is no rate; write it with MB/s or GB/s, such as \"12 GB/s\""));
    };
    match stored(number, *scale) {
        Ok(v) if v <= BANDWIDTH_BOUNDS.1 => Ok(v),
        Ok(_) | Err(Decimal::TooLarge) => {
            Err(format!("{s} is too much; a rate is at most 1000000 GB/s"))
        }
        Err(Decimal::Negative) => Err(format!("{s} is negative; a rate is 0 GB/s or more")),
        Err(Decimal::TooFine) => Err(format!("{s} is finer than a megabyte a second")),
        Err(Decimal::NotPlain) => {
            Err(format!("\"{s}\" is no rate; write one such as \"12 GB/s\" or \"500MB/s\""))
        }
    }
}

/// A rate in its largest whole unit: `12 GB/s`.
pub fn write_rate(mbps: u64) -> String {
    let (name, scale) = RATES.iter().find(|(_, scale)| mbps % scale == 0).unwrap_or(&RATES[1]);
    format!("{} {name}", mbps / scale)
}

fn split(s: &str) -> (&str, &str) {
    let s = s.trim();
    let end = s.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(s.len());
    (s[..end].trim_end(), &s[end..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decimals_are_exact() {
        assert_eq!(stored("89.3", 1000), Ok(89_300));
        assert_eq!(stored("0.001", 1000), Ok(1));
        assert_eq!(stored("4503599627370495.999", 1000), Ok(4_503_599_627_370_495_999));
        assert_eq!(stored("1_000.500", 1000), Ok(1_000_500));
        assert_eq!(stored("1.0005", 1000), Err(Decimal::TooFine));
        assert_eq!(stored("1.5", 1), Err(Decimal::TooFine));
        assert_eq!(stored("-1", 1000), Err(Decimal::Negative));
        assert_eq!(stored("99999999999999999999", 1), Err(Decimal::TooLarge));
        for not in ["nan", "inf", "-inf", "1e3", "", ".", "0x10", "-"] {
            assert_eq!(stored(not, 1000), Err(Decimal::NotPlain), "{not}");
        }
    }

    #[test]
    fn sizes_and_times_are_read_with_their_units() {
        assert_eq!(parse_size("64 GiB"), Ok(Bytes(64 << 30)));
        assert_eq!(parse_size("1.5KiB"), Ok(Bytes(1536)));
        assert_eq!(parse_size("4096"), Ok(Bytes(4096)));
        assert_eq!(parse_size("4096 TiB"), Ok(Bytes(1 << 52)));
        for bad in ["0", "0 GiB", "4097 TiB", "64 GB", "-1 MiB", "GiB", "", "nan", "0.1 B"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_time("10us"), Ok(Picos::from_us(10)));
        assert_eq!(parse_time("2.5 ms"), Ok(Picos::from_us(2500)));
        assert_eq!(parse_time("0s"), Ok(Picos::ZERO));
        for bad in ["10", "10 min", "-1s", "1000001s", "0.1ps", "s"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_rate("12.5 GB/s"), Ok(12_500));
        assert_eq!(parse_rate("500MB/s"), Ok(500));
        assert_eq!(parse_rate("0 GB/s"), Ok(0));
        for bad in ["12", "12 GB", "12 GiB/s", "-1 GB/s", "0.5 MB/s", "1000001 GB/s", "GB/s"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn sizes_and_times_come_back(size in 1u64..=1 << 52, time in 0u64..1_000_000_000_000_000_000) {
            prop_assert_eq!(parse_size(&write_size(Bytes(size))), Ok(Bytes(size)));
            prop_assert_eq!(parse_time(&write_time(Picos(time))), Ok(Picos(time)));
            let rate = size % 1_000_000_000;
            prop_assert_eq!(parse_rate(&write_rate(rate)), Ok(rate));
        }

        #[test]
        fn garbage_never_panics(s in "\\PC*") {
            let _ = (parse_size(&s), parse_time(&s), parse_rate(&s), stored(&s, 1000));
        }
    }
}
