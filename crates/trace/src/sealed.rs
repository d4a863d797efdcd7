//! A Parquet file with a header of ours in its metadata, and a checksum for each row group.

use crate::TraceError;
use crate::checksum::Checksum;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::parser::parse_message_type;
use serde::de::DeserializeOwned;
use std::cell::Cell;
use std::fs::File;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::path::{Path, PathBuf};
use std::sync::Once;

/// Metadata keys beside the header's own: its checksum, and one checksum per row group.
const KEY_CHECKSUM: &str = "homenode.checksum";
const KEY_GROUPS: &str = "homenode.row_group_checksums";

/// What goes into a file's metadata.
///
/// * `key` – of the header.
/// * `json` – the header.
/// * `sums` – one for each row group.
pub(crate) fn seal(key: &str, json: String, sums: &[u64]) -> [KeyValue; 3] {
    let mut c = Checksum::new();
    c.bytes(json.as_bytes());
    let groups: Vec<String> = sums.iter().map(|s| format!("{s:016x}")).collect();
    let groups = groups.join(" ");
    c.bytes(groups.as_bytes());
    [
        KeyValue::new(key.to_owned(), json),
        KeyValue::new(KEY_GROUPS.to_owned(), groups),
        KeyValue::new(KEY_CHECKSUM.to_owned(), format!("{:016x}", c.value())),
    ]
}

thread_local! {
    /// Whether this thread is in [`guarded`].
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// Says nothing of panics that become errors; all others go to the hook that was there.
fn quiet_while_guarded(others: Hook) -> Hook {
    Box::new(move |info| {
        if !GUARDED.get() {
            others(info);
        }
    })
}

/// The decoder is written for well-formed input and can panic on other, for instance where
/// a value's place in its dictionary is beyond that; no check short of decoding finds it.
/// This is the one place where that becomes an error, and without a message of its own:
/// whoever reads it would take a damaged file for a broken program.
pub(crate) fn guarded<T>(f: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| set_hook(quiet_while_guarded(take_hook())));
    GUARDED.set(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    GUARDED.set(false);
    match result {
        Ok(Ok(v)) => Ok(v),
        Ok(Err(e)) => Err(e.to_string()),
        Err(_) => Err("its encoding makes no sense".to_owned()),
    }
}

/// An open file whose header fits its checksum.
pub(crate) struct Sealed {
    pub(crate) path: PathBuf,
    pub(crate) file: SerializedFileReader<File>,
    /// A checksum for each row group.
    pub(crate) sums: Vec<u64>,
    pub(crate) rows: u64,
}

impl Sealed {
    /// Opens a file; what its header says, of a version that is read.
    ///
    /// # Errors
    /// [`TraceError`] where the file is not there, is no whole recording, or of
    /// another version.
    pub(crate) fn open(
        path: &Path,
        key: &str,
        schema: &str,
        versions: RangeInclusive<u32>,
    ) -> Result<(Self, serde_json::Value), TraceError> {
        let path = path.to_owned();
        let open = |source| TraceError::Open { path: path.clone(), source };
        let file = File::open(&path).map_err(open)?;
        if file.metadata().map_err(open)?.is_dir() {
            return Err(open(std::io::Error::from(std::io::ErrorKind::IsADirectory)));
        }
        let file = guarded(|| SerializedFileReader::new(file))
            .map_err(|reason| TraceError::NotARecording { path: path.clone(), reason })?;
        let foreign = |reason: String| TraceError::Foreign { path: path.clone(), reason };
        let meta = file.metadata().file_metadata();
        let value = |key: &str| {
            meta.key_value_metadata()
                .and_then(|kv| kv.iter().find(|kv| kv.key == key))
                .and_then(|kv| kv.value.as_deref())
                .ok_or_else(|| foreign(format!("its metadata have no `{key}`")))
        };
        let (json, groups, sum) = (value(key)?, value(KEY_GROUPS)?, value(KEY_CHECKSUM)?);
        let broken = |reason: &str| TraceError::NotARecording {
            path: path.clone(),
            reason: reason.to_owned(),
        };
        let mut c = Checksum::new();
        c.bytes(json.as_bytes());
        c.bytes(groups.as_bytes());
        if u64::from_str_radix(sum, 16) != Ok(c.value()) {
            return Err(broken("the checksum of its header does not fit"));
        }
        // The version comes first: a later format may have another header.
        let any: serde_json::Value =
            serde_json::from_str(json).map_err(|e| foreign(e.to_string()))?;
        let found = any.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let found = u32::try_from(found).unwrap_or(u32::MAX);
        if !versions.contains(&found) {
            return Err(TraceError::Version { path, found, known: *versions.end() });
        }
        let ours = parse_message_type(schema).expect("the schema is a constant");
        let theirs = meta.schema();
        let same = theirs.is_group()
            && theirs.get_fields().len() == ours.get_fields().len()
            && theirs.get_fields().iter().zip(ours.get_fields()).all(|(a, b)| {
                a.is_primitive()
                    && a.name() == b.name()
                    && a.get_physical_type() == b.get_physical_type()
                    && !a.is_optional()
            });
        if !same {
            return Err(broken("its columns are not those of a recording"));
        }
        let sums: Result<Vec<u64>, _> =
            groups.split_whitespace().map(|s| u64::from_str_radix(s, 16)).collect();
        let sums = sums.map_err(|_| broken("a checksum is no number"))?;
        let metas = file.metadata().row_groups();
        if sums.len() != metas.len() {
            return Err(broken("row groups are missing"));
        }
        let mut rows = 0u64;
        for g in metas {
            let n = u64::try_from(g.num_rows()).ok().filter(|&n| n <= 1 << 32);
            rows += n.ok_or_else(|| broken("a row group has an impossible length"))?;
        }
        Ok((Self { path, sums, rows, file }, any))
    }

    /// The header, as what it is.
    ///
    /// # Errors
    /// [`TraceError::Foreign`] where something of it is missing.
    pub(crate) fn header<H: DeserializeOwned>(
        &self,
        any: serde_json::Value,
    ) -> Result<H, TraceError> {
        serde_json::from_value(any)
            .map_err(|e| TraceError::Foreign { path: self.path.clone(), reason: e.to_string() })
    }
}

/// Reads exactly `n` values.
pub(crate) fn take<T: DataType>(
    column: &mut ColumnReaderImpl<T>,
    n: usize,
    out: &mut Vec<T::T>,
) -> Result<(), ParquetError> {
    out.clear();
    while out.len() < n {
        let (_, values, _) = column.read_records(n - out.len(), None, None, out)?;
        if values == 0 {
            return Err(ParquetError::General("a column ends too early".to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[test]
    fn panics_are_told_but_for_those_that_become_errors() {
        let told = Arc::new(AtomicU32::new(0));
        let count = told.clone();
        let hook = take_hook();
        set_hook(quiet_while_guarded(Box::new(move |_| {
            count.fetch_add(1, Relaxed);
        })));
        let odd = guarded(|| -> Result<(), ParquetError> { panic!("a place beyond the end") });
        let while_guarded = told.load(Relaxed);
        let elsewhere = guarded(|| Ok(std::thread::spawn(|| panic!("our bug")).join().is_err()));
        let beside = told.load(Relaxed);
        let later = std::panic::catch_unwind(|| panic!("our bug, later")).is_err();
        set_hook(hook);
        assert_eq!(odd, Err("its encoding makes no sense".to_owned()));
        assert_eq!((elsewhere, later), (Ok(true), true));
        assert_eq!((while_guarded, beside, told.load(Relaxed)), (0, 1, 2));
    }
}
