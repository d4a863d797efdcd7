//! What the BPF program tells of one fault.
//!
//! ```text
//! byte  0      8      12      16     18    20        24
//!       │ page │ tgid │ start │ from │ on  │ age_ms  │
//! ```
//!
//! In the byte order of the machine. The same shape as `struct record` in
//! `crates/bpf/bpf/hints.bpf.c`.
//!
//! Source: specs/live.md#hint-fault.

/// Its length; with the 8 bytes that the ring adds, half a line of cache.
pub(super) const BYTES: usize = 24;

/// One hint fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Number of the page; of a huge page the first.
    pub(super) page: u64,
    /// The process.
    pub(super) tgid: u32,
    /// Its start in ticks of 10 ms, the lower 32 bits of it.
    pub(super) start: u32,
    /// Node of the CPU.
    pub(super) from: u16,
    /// Node of the page.
    pub(super) on: u16,
    /// Time since the stamp that the page carries; -1 without one. A stamp is a time only
    /// where tiering put it there.
    pub(super) age_ms: i32,
}

impl Record {
    /// `None` if it has another length.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let (page, rest) = bytes.split_first_chunk()?;
        let (tgid, rest) = rest.split_first_chunk()?;
        let (start, rest) = rest.split_first_chunk()?;
        let (from, rest) = rest.split_first_chunk()?;
        let (on, rest) = rest.split_first_chunk()?;
        Some(Self {
            page: u64::from_ne_bytes(*page),
            tgid: u32::from_ne_bytes(*tgid),
            start: u32::from_ne_bytes(*start),
            from: u16::from_ne_bytes(*from),
            on: u16::from_ne_bytes(*on),
            age_ms: i32::from_ne_bytes(rest.try_into().ok()?),
        })
    }
}

/// What was read from the ring and not told yet.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) records: Vec<Record>,
    /// Those that were no records.
    pub(super) odd: u64,
}

impl Taken {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        match Record::parse(bytes) {
            Some(record) => self.records.push(record),
            None => self.odd += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(r: &Record) -> Vec<u8> {
        let mut out = r.page.to_ne_bytes().to_vec();
        out.extend(r.tgid.to_ne_bytes());
        out.extend(r.start.to_ne_bytes());
        out.extend(r.from.to_ne_bytes());
        out.extend(r.on.to_ne_bytes());
        out.extend(r.age_ms.to_ne_bytes());
        out
    }

    #[test]
    fn what_is_no_record_is_counted_and_the_next_one_is_read() {
        let record = Record { page: 7, tgid: 1, start: 2, from: 0, on: 1, age_ms: -1 };
        let mut taken = Taken::default();
        taken.push(&[]);
        taken.push(&[0; BYTES + 1]);
        taken.push(&bytes(&record));
        assert_eq!((taken.records, taken.odd), (vec![record], 2));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            page: u64, tgid: u32, start: u32, from: u16, on: u16, age_ms: i32
        ) {
            let record = Record { page, tgid, start, from, on, age_ms };
            prop_assert_eq!(Record::parse(&bytes(&record)), Some(record));
        }

        #[test]
        fn odd_bytes_never_panic_and_none_is_overlooked(
            all in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20)
        ) {
            let mut taken = Taken::default();
            all.iter().for_each(|bytes| taken.push(bytes));
            prop_assert_eq!(taken.records.len() as u64 + taken.odd, all.len() as u64);
        }
    }
}
