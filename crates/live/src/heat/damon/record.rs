//! What the tracepoint `damon_aggregated` says, and how it says where it says it.
//!
//! A tracepoint describes its bytes in a file `format` of tracefs:
//!
//! ```text
//! ID: 734
//!         field:unsigned long start; offset:24; size:8; signed:0;
//! ```
//!
//! Nothing but names is relied on; sizes are 4 or 8 bytes.
//!
//! Source: specs/live.md#damon.

/// A region at the end of an aggregation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// When, `CLOCK_MONOTONIC` in nanoseconds.
    pub(super) at: u64,
    /// Its target's place among the context's, from 0.
    pub(super) target: u64,
    /// How many regions the target has.
    pub(super) regions: u64,
    /// First byte.
    pub(super) start: u64,
    /// One past the last byte.
    pub(super) end: u64,
    /// Checks that found an access.
    pub(super) accesses: u64,
    /// For how many aggregations it has been so.
    pub(super) age: u64,
}

/// Where a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    offset: usize,
    /// 4 or 8.
    size: usize,
}

impl Field {
    fn of(&self, raw: &[u8]) -> Option<u64> {
        let bytes = raw.get(self.offset..self.offset.checked_add(self.size)?)?;
        match self.size {
            4 => Some(u32::from_ne_bytes(bytes.try_into().ok()?).into()),
            8 => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
            _ => None,
        }
    }
}

/// Where everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// The tracepoint's number.
    pub(super) id: u64,
    /// In the order of [`NAMES`].
    fields: [Field; 6],
}

const NAMES: [&str; 6] = ["target_id", "nr_regions", "start", "end", "nr_accesses", "age"];

impl Format {
    /// Reads a `format`; what is missing, if it is another one.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let id = text.lines().find_map(|l| l.strip_prefix("ID:")?.trim().parse().ok());
        let id = id.ok_or("there is no ID")?;
        let mut fields = [Field { offset: 0, size: 0 }; 6];
        for (field, name) in fields.iter_mut().zip(NAMES) {
            let found = text.lines().find_map(|line| parse_field(line, name));
            *field = found.ok_or_else(|| format!("there is no {name} of 4 or 8 bytes"))?;
        }
        Ok(Self { id, fields })
    }

    /// A region, without its time; `None` if there are too few bytes, or it is none.
    pub(super) fn record(&self, raw: &[u8]) -> Option<Record> {
        let mut n = [0; 6];
        for (value, field) in n.iter_mut().zip(&self.fields) {
            *value = field.of(raw)?;
        }
        let [target, regions, start, end, accesses, age] = n;
        (start < end).then_some(Record { at: 0, target, regions, start, end, accesses, age })
    }
}

/// `field:TYPE NAME; offset:N; size:N; signed:N;`
fn parse_field(line: &str, name: &str) -> Option<Field> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
    if parts.next()?.rsplit(' ').next()? != name {
        return None;
    }
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
    let (offset, size) = (number("offset:")?, number("size:")?);
    // An event is a few pages at most.
    ([4, 8].contains(&size) && offset <= 1 << 16).then_some(Field { offset, size })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As Debian's 6.12 and 7.3 have it.
    pub(crate) const FORMAT: &str = "name: damon_aggregated\nID: 734\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long end;\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int age;\toffset:44;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"target_id=%lu nr_regions=%u %lu-%lu: %u %u\", REC->target_id\n";

    fn written(r: &Record) -> Vec<u8> {
        let mut raw = vec![0; 52];
        raw[8..16].copy_from_slice(&r.target.to_ne_bytes());
        raw[16..20].copy_from_slice(&(r.regions as u32).to_ne_bytes());
        raw[24..32].copy_from_slice(&r.start.to_ne_bytes());
        raw[32..40].copy_from_slice(&r.end.to_ne_bytes());
        raw[40..44].copy_from_slice(&(r.accesses as u32).to_ne_bytes());
        raw[44..48].copy_from_slice(&(r.age as u32).to_ne_bytes());
        raw
    }

    #[test]
    fn a_description_without_a_number_is_refused_by_its_name() {
        assert_eq!(Format::parse(FORMAT).unwrap().id, 734);
        for name in NAMES {
            let text = FORMAT.replace(&format!(" {name};"), " other;");
            assert_eq!(
                Format::parse(&text).unwrap_err(),
                format!("there is no {name} of 4 or 8 bytes")
            );
        }
        let text = FORMAT.replace("offset:44;\tsize:4", "offset:44;\tsize:2");
        assert_eq!(Format::parse(&text).unwrap_err(), "there is no age of 4 or 8 bytes");
        assert_eq!(Format::parse(&FORMAT.replace("ID: ", "")).unwrap_err(), "there is no ID");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            target in 0u64..500,
            regions in 1u64..2000,
            start in 0u64..1 << 47,
            pages in 1u64..1 << 20,
            accesses in 0u64..=20,
            age in 0u64..1 << 32,
        ) {
            let end = start + pages * 4096;
            let r = Record { at: 0, target, regions, start, end, accesses, age };
            prop_assert_eq!(Format::parse(FORMAT).unwrap().record(&written(&r)), Some(r));
        }

        #[test]
        fn nothing_makes_it_panic(
            cut in 0usize..FORMAT.len(),
            at in 0usize..FORMAT.len(),
            odd in "[0-9:;\\t a-z]{0,24}",
            raw in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let edited = format!("{}{odd}{}", &FORMAT[..at.min(cut)], &FORMAT[cut..]);
            for text in [&FORMAT[..cut], &edited, &odd] {
                if let Ok(format) = Format::parse(text) {
                    let _ = format.record(&raw);
                }
            }
        }
    }
}
