//! What several files of `/proc` have in common.

pub use homenode_bpf::able::capabilities;

/// What stands behind a key, which includes its colon, at the head of a line.
pub fn field<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|l| l.strip_prefix(key)).map(str::trim)
}

/// The number behind a key, without the unit behind it: KiB as a rule.
pub fn number(text: &str, key: &str) -> Option<u64> {
    field(text, key)?.split_ascii_whitespace().next()?.parse().ok()
}

/// `LO-HI` in hexadecimal at the head of a line, as `maps` and `smaps` have it: the first
/// address of a mapping and the one behind its last.
pub fn addresses(line: &str) -> Option<(u64, u64)> {
    let (lo, hi) = line.split(' ').next()?.split_once('-')?;
    Some((u64::from_str_radix(lo, 16).ok()?, u64::from_str_radix(hi, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_by_its_keys() {
        let status = "Name:\ta b\nVmRSSx:\t9 kB\nVmRSS:\t 400 kB\nCapEff:\t0000000000080000\n";
        assert_eq!(field(status, "Name:"), Some("a b"));
        assert_eq!(number(status, "VmRSS:"), Some(400));
        assert_eq!(capabilities(status), Some(1 << 19));
        assert_eq!((number(status, "Name:"), capabilities("")), (None, None));
    }

    #[test]
    fn a_mapping_begins_with_its_addresses() {
        assert_eq!(addresses("1000-ffff3000 r--p 0 fe:00 131 /a-b"), Some((0x1000, 0xffff_3000)));
        for other in ["", "Size: 4-8 kB", "VmFlags: rd", "x-y r--p"] {
            assert_eq!(addresses(other), None, "{other}");
        }
    }
}
