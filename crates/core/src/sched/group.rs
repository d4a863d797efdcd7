//! Files of a group of tasks (`/sys/fs/cgroup/NAME/…`): what may be written to them, and what they show.
//!
//! ```text
//! cpu.max   "50000 100000"   50 ms of run time in each 100 ms, on all CPUs together
//!           "max"            as much as there is; the period stays
//! cpu.max.burst  "20000"     what a period has left may be used later, up to 20 ms
//! ```
//!
//! Source: specs/sched-groups.md.

use crate::knobs::{Errno, parse_u64_auto};
use crate::sched::fair::Quota;
use crate::sched::weight;

/// `cpu.weight` may be from here to there.
pub const WEIGHT: std::ops::RangeInclusive<u64> = 1..=10_000;
/// `cpu.weight` of a group for which nobody says one.
pub const DEFAULT_WEIGHT: u32 = 100;

/// The shortest quota and period, µs.
const LEAST_US: u64 = 1_000;
/// The longest period, µs.
const LONGEST_US: u64 = 1_000_000;
/// The largest quota, µs: the kernel's shares of a CPU have 44 bits.
const MOST_US: u64 = (1 << 44) - 1;

/// `cpu.max`: run time in a period, on all CPUs together.
///
/// ```
/// use homenode_core::sched::group::Max;
/// let max = Max::default().write("50000 100000\n").unwrap();
/// assert_eq!(max.to_string(), "50000 100000");
/// assert_eq!(max.write("max").unwrap().to_string(), "max 100000");
/// ```
///
/// Source: specs/sched-groups.md#max.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Max {
    /// µs; `None`: no limit.
    pub quota_us: Option<u64>,
    /// µs.
    pub period_us: u64,
    /// `cpu.max.burst`: so much that was left may be used beside a later quota, µs.
    pub burst_us: u64,
}

impl Default for Max {
    fn default() -> Self {
        Self { quota_us: None, period_us: 100_000, burst_us: 0 }
    }
}

impl std::fmt::Display for Max {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.quota_us {
            Some(quota) => write!(f, "{quota} {}", self.period_us),
            None => write!(f, "max {}", self.period_us),
        }
    }
}

impl Max {
    /// What it is after this text has been written to the file. A period that isn't there, or is no
    /// number, stays what it was.
    ///
    /// # Errors
    /// EINVAL: neither a number nor `max`; a quota or a period under 1 ms; a period above 1 s; a quota
    /// that needs more than 44 bits, alone or with the burst; a quota below the burst.
    ///
    /// Source: specs/sched-groups.md#max.
    pub fn write(self, text: &str) -> Result<Self, Errno> {
        let mut words = text.split_ascii_whitespace();
        let quota = words.next().ok_or(Errno::Einval)?;
        let period_us = words.next().and_then(leading).unwrap_or(self.period_us);
        let quota_us = match leading(quota) {
            Some(quota) => Some(quota),
            None if quota == "max" => None,
            None => return Err(Errno::Einval),
        };
        Self { quota_us, period_us, ..self }.checked()
    }
    /// The same of `cpu.max.burst`.
    ///
    /// # Errors
    /// EINVAL: no number; more than the quota, where there is one; more than 44 bits with it. ERANGE: a number
    /// of more than 64 bits.
    ///
    /// ```
    /// use homenode_core::sched::group::Max;
    /// let max = Max::default().write("50000 100000").unwrap();
    /// assert_eq!(max.write_burst("20000\n").unwrap().burst_us, 20_000);
    /// assert!(max.write_burst("50001").is_err());
    /// ```
    ///
    /// Source: specs/sched-groups.md#burst.
    pub fn write_burst(self, text: &str) -> Result<Self, Errno> {
        Self { burst_us: parse_u64_auto(text.trim())?, ..self }.checked()
    }
    fn checked(self) -> Result<Self, Errno> {
        let burst = self.burst_us;
        let fits = self.quota_us.is_none_or(|quota| {
            (LEAST_US..=MOST_US).contains(&quota) && burst <= quota && quota + burst <= MOST_US
        }) && (LEAST_US..=LONGEST_US).contains(&self.period_us)
            && burst <= u64::MAX / 1000;
        if fits { Ok(self) } else { Err(Errno::Einval) }
    }
    /// The same for the fair class.
    pub fn quota(self) -> Option<Quota> {
        let quota_ns = self.quota_us? * 1000;
        Some(Quota { quota_ns, period_ns: self.period_us * 1000, burst_ns: self.burst_us * 1000 })
    }
}

/// The number that a word begins with.
fn leading(word: &str) -> Option<u64> {
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    word[..end].parse().ok()
}

/// What is written to `cpu.weight`.
///
/// # Errors
/// EINVAL for what is no number, ERANGE beyond [`WEIGHT`].
///
/// Source: specs/sched-groups.md#weight.
pub fn parse_weight(text: &str) -> Result<u32, Errno> {
    let weight = parse_u64_auto(text)?;
    if WEIGHT.contains(&weight) { Ok(weight as u32) } else { Err(Errno::Erange) }
}

/// What is written to `cpu.weight.nice`.
///
/// # Errors
/// EINVAL for what is no number, ERANGE beyond −20..=19.
///
/// Source: specs/sched-groups.md#weight.
pub fn parse_nice(text: &str) -> Result<i8, Errno> {
    match signed(text)? {
        nice @ -20..=19 => Ok(nice as i8),
        _ => Err(Errno::Erange),
    }
}

/// What is written to `cpu.idle`.
///
/// # Errors
/// EINVAL for anything but 0 and 1.
///
/// Source: specs/sched-groups.md#idle.
pub fn parse_idle(text: &str) -> Result<bool, Errno> {
    match signed(text)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::Einval),
    }
}

fn signed(text: &str) -> Result<i64, Errno> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let value = i64::try_from(parse_u64_auto(digits)?).map_err(|_| Errno::Erange)?;
    Ok(sign * value)
}

/// What `cpu.weight` shows of a group that weighs `w` (1024 at nice 0).
///
/// Source: specs/sched-groups.md#weight.
pub const fn shown_weight(w: u32) -> u32 {
    (w * 100 + 512) / 1024
}

/// What `cpu.weight.nice` shows: the nice level that weighs most nearly as much.
///
/// Source: specs/sched-groups.md#weight.
pub fn shown_nice(w: u32) -> i8 {
    let mut nearest = u32::MAX;
    let past = weight::NICE.iter().position(|n| {
        let distance = n.abs_diff(w);
        let farther = distance >= nearest;
        nearest = distance;
        farther
    });
    past.unwrap_or(weight::NICE.len()) as i8 - 21
}

/// What is written to `cpuset.cpus`: numbers and ranges with commas; nothing: no restriction.
///
/// * `highest` – the highest CPU that is possible.
///
/// # Errors
/// ERANGE for a CPU beyond the highest, EINVAL for what is no list.
///
/// Source: specs/sched-groups.md#cpuset.
pub fn parse_cpus(text: &str, highest: u32) -> Result<Vec<u32>, Errno> {
    let text = text.trim();
    let mut all = Vec::new();
    if text.is_empty() {
        return Ok(all);
    }
    let number = |word: &str| match word.parse::<u64>() {
        _ if !word.bytes().all(|b| b.is_ascii_digit()) || word.is_empty() => Err(Errno::Einval),
        Ok(n) if n <= u64::from(highest) => Ok(n as u32),
        Ok(_) | Err(_) => Err(Errno::Erange),
    };
    for range in text.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (number(from)?, number(to)?);
        if from > to {
            return Err(Errno::Einval);
        }
        all.extend(from..=to);
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Specs: specs/sched-groups.md#max.
    #[test]
    fn what_cpu_max_takes() {
        let before = Max { quota_us: Some(7_000), period_us: 20_000, burst_us: 0 };
        let told = |text: &str| match before.write(text) {
            Ok(max) => max.to_string(),
            Err(e) => e.name().to_owned(),
        };
        for (text, shown) in [
            ("50000 100000\n", "50000 100000"),
            ("50000", "50000 20000"),
            ("max", "max 20000"),
            ("max 1000", "max 1000"),
            ("1000 1000", "1000 1000"),
            ("999 100000", "EINVAL"),
            ("1000 999", "EINVAL"),
            ("1000 1000001", "EINVAL"),
            ("17592186044415 1000000", "17592186044415 1000000"),
            ("17592186044416 1000000", "EINVAL"),
            ("", "EINVAL"),
            ("most", "EINVAL"),
            ("-1", "EINVAL"),
            // The kernel reads a number as far as it goes.
            ("5000x 10000y", "5000 10000"),
            ("5000 y", "5000 20000"),
        ] {
            assert_eq!(told(text), shown, "{text:?}");
        }
    }

    /// Specs: specs/sched-groups.md#burst.
    #[test]
    fn what_a_burst_takes() {
        let before = Max { quota_us: Some(7_000), period_us: 20_000, burst_us: 1_000 };
        let told = |max: Result<Max, Errno>| match max {
            Ok(max) => format!("{max}, {}", max.burst_us),
            Err(e) => e.name().to_owned(),
        };
        for (text, shown) in [
            ("0", "7000 20000, 0"),
            ("7000\n", "7000 20000, 7000"),
            ("0x10", "7000 20000, 16"),
            ("7001", "EINVAL"),
            ("", "EINVAL"),
            ("max", "EINVAL"),
            ("-1", "EINVAL"),
            ("18446744073709551616", "ERANGE"),
        ] {
            assert_eq!(told(before.write_burst(text)), shown, "{text:?}");
        }
        // A quota has to have room for the burst that is there; without one there is no bound but the kernel's ns.
        assert_eq!(told(before.write("1000")), "1000 20000, 1000");
        let two = before.write_burst("2000").expect("it is below the quota");
        assert_eq!(told(two.write("1999")), "EINVAL");
        assert_eq!(told(two.write("17592186042415")), "17592186042415 20000, 2000");
        assert_eq!(told(two.write("17592186042416")), "EINVAL");
        let free = before.write("max").expect("no limit");
        assert_eq!(told(free.write_burst("18446744073709551")), "max 20000, 18446744073709551");
        assert_eq!(told(free.write_burst("18446744073709552")), "EINVAL");
        assert_eq!(two.quota().map(|q| q.burst_ns), Some(2_000_000));
    }

    /// Specs: specs/sched-groups.md#weight, specs/sched-groups.md#idle.
    #[test]
    fn what_weights_take_and_show() {
        let weights = ["1", "10000\n", "0", "10001", "x", ""].map(parse_weight);
        let (einval, erange) = (Errno::Einval, Errno::Erange);
        assert_eq!(
            weights,
            [Ok(1), Ok(10_000), Err(erange), Err(erange), Err(einval), Err(einval)]
        );
        let nices = ["-20", "19", "-21", "20", "-"].map(parse_nice);
        assert_eq!(nices, [Ok(-20), Ok(19), Err(erange), Err(erange), Err(einval)]);
        let idles = ["0", "1\n", "2", "-1"].map(parse_idle);
        assert_eq!(idles, [Ok(false), Ok(true), Err(einval), Err(einval)]);
        // A weight comes back as it was written, however the kernel keeps it.
        for w in 1..=10_000 {
            assert_eq!(shown_weight(weight::of_cpu_weight(w)), w);
        }
        for nice in -20..=19 {
            assert_eq!(shown_nice(weight::of_nice(nice)), nice);
        }
        assert_eq!([3, 1024, 3072].map(shown_nice), [19, 0, -5]);
        assert_eq!(shown_weight(weight::IDLE), 0);
    }

    /// Specs: specs/sched-groups.md#cpuset.
    #[test]
    fn what_a_cpuset_takes() {
        assert_eq!(parse_cpus("0-2,5,1\n", 7), Ok(vec![0, 1, 2, 5]));
        assert_eq!(parse_cpus("\n", 7), Ok(vec![]));
        assert_eq!(parse_cpus("0-8", 7), Err(Errno::Erange));
        for bad in ["a", "3-1", "1-", "-1", "1,,2", "1 2"] {
            assert_eq!(parse_cpus(bad, 7), Err(Errno::Einval), "{bad}");
        }
    }
}
