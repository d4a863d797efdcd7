//! The kernel's ways of reading a number or a truth value.

use super::Errno;

/// A number as the kernel's strict parsers read it: an optional `+`, `0x` for
/// hexadecimal and a leading 0 for octal, one newline at the end; nothing else.
///
/// # Errors
/// EINVAL for anything that is not a number, ERANGE beyond 64 bits.
///
/// Source: specs/knobs.md#debugfs.
pub fn parse_u64_auto(text: &str) -> Result<u64, Errno> {
    let s = strip(text);
    let (digits, base) = split_base(s);
    whole(digits, base)
}

/// A number of 32 bits as sysfs files of MGLRU read it: the base by its prefix.
///
/// # Errors
/// EINVAL for everything else, also for a larger number.
///
/// Source: specs/mglru.md#files.
pub fn parse_u32(text: &str) -> Result<u32, Errno> {
    let v = parse_u64_auto(text).map_err(|_| Errno::Einval)?;
    u32::try_from(v).map_err(|_| Errno::Einval)
}

/// A decimal number as the kernel's strict parsers read it: an optional `+`,
/// leading zeroes, one newline at the end; nothing else.
///
/// # Errors
/// EINVAL for anything that is not a number, ERANGE beyond 64 bits.
///
/// Source: specs/ksm.md#files.
pub fn parse_u64_decimal(text: &str) -> Result<u64, Errno> {
    whole(strip(text), 10)
}

/// Without the one newline and the sign that are allowed.
fn strip(text: &str) -> &str {
    let s = text.strip_suffix('\n').unwrap_or(text);
    s.strip_prefix('+').unwrap_or(s)
}

/// A number and nothing behind it.
fn whole(digits: &str, base: u32) -> Result<u64, Errno> {
    match read_digits(digits, base) {
        (_, 0) => Err(Errno::Einval),
        // A number too large is reported as such even where rubbish follows it.
        (None, _) => Err(Errno::Erange),
        (Some(v), n) if n == digits.len() => Ok(v),
        _ => Err(Errno::Einval),
    }
}

/// An integer as a sysctl reads it: blanks around it, an optional `-`, base by
/// prefix; what follows the first number and a blank is ignored.
///
/// # Errors
/// EINVAL for everything that is not so, also for no text at all.
///
/// Source: specs/knobs.md#sysctl.
pub fn parse_sysctl_int(text: &str) -> Result<i64, Errno> {
    let blank = |c: char| matches!(c, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r');
    let s = text.trim_start_matches(blank);
    let (negative, s) = s.strip_prefix('-').map_or((false, s), |rest| (true, rest));
    let (digits, base) = split_base(s);
    let (value, n) = read_digits(digits, base);
    // A sysctl integer has 32 bits; what can't fit a signed 64 is out in any case.
    let value = value.and_then(|v| i64::try_from(v).ok()).ok_or(Errno::Einval)?;
    if n == 0 || digits[n..].chars().next().is_some_and(|c| !blank(c)) {
        return Err(Errno::Einval);
    }
    Ok(if negative { -value } else { value })
}

/// A truth value by its first letters; `words` also takes e(nable) and
/// d(isable), as 7.3 does.
///
/// # Errors
/// EINVAL for all other text.
///
/// Source: specs/knobs.md#bool.
pub fn parse_bool(text: &str, words: bool) -> Result<bool, Errno> {
    let mut letters = text.bytes().map(|b| b.to_ascii_lowercase());
    match letters.next() {
        Some(b'1' | b'y' | b't') => Ok(true),
        Some(b'0' | b'n' | b'f') => Ok(false),
        Some(b'e') if words => Ok(true),
        Some(b'd') if words => Ok(false),
        Some(b'o') => match letters.next() {
            Some(b'n') => Ok(true),
            Some(b'f') => Ok(false),
            _ => Err(Errno::Einval),
        },
        _ => Err(Errno::Einval),
    }
}

/// Digits and base by prefix. `0x` without a digit after it is octal 0 and rubbish.
fn split_base(s: &str) -> (&str, u32) {
    let b = s.as_bytes();
    if b.len() > 2 && b[0] == b'0' && b[1] | 0x20 == b'x' && b[2].is_ascii_hexdigit() {
        (&s[2..], 16)
    } else if b.first() == Some(&b'0') {
        (s, 8)
    } else {
        (s, 10)
    }
}

/// The value of the leading digits (`None` beyond 64 bits) and how many there are.
fn read_digits(s: &str, base: u32) -> (Option<u64>, usize) {
    let mut value = Some(0u64);
    let mut n = 0;
    for c in s.chars() {
        let Some(d) = c.to_digit(base) else { break };
        value = value
            .and_then(|v| v.checked_mul(u64::from(base)))
            .and_then(|v| v.checked_add(u64::from(d)));
        n += 1;
    }
    (value, n)
}
