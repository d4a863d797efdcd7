//! Reading a recording, batch by batch.

use crate::checksum::Checksum;
use crate::write::{KEY_CHECKSUM, KEY_GROUPS, KEY_HEADER, SCHEMA, add_rows};
use crate::{BATCH_ROWS, Batch, FORMAT_VERSION, Header, Kind, Row, TraceError};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::parser::parse_message_type;
use std::cell::Cell;
use std::fs::File;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::path::{Path, PathBuf};
use std::sync::Once;

/// An open recording. Its rows can be read several times.
pub struct Reader {
    path: PathBuf,
    file: SerializedFileReader<File>,
    header: Header,
    sums: Vec<u64>,
    rows: u64,
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
fn guarded<T>(f: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, String> {
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

impl Reader {
    /// Opens a recording and reads its header.
    ///
    /// # Errors
    /// [`TraceError`] where the file is not there, is no whole recording, or of
    /// another version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref().to_owned();
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
        let (json, groups, sum) = (value(KEY_HEADER)?, value(KEY_GROUPS)?, value(KEY_CHECKSUM)?);
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
        if !(1..=u64::from(FORMAT_VERSION)).contains(&found) {
            let found = u32::try_from(found).unwrap_or(u32::MAX);
            return Err(TraceError::Version { path, found, known: FORMAT_VERSION });
        }
        let header: Header = serde_json::from_value(any).map_err(|e| foreign(e.to_string()))?;
        let ours = parse_message_type(SCHEMA).expect("the schema is a constant");
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
        Ok(Self { path, header, sums, rows, file })
    }

    /// What the recording says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Rows in all.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// All rows from the first on. Each call begins anew.
    pub fn batches(&self) -> Batches<'_> {
        Batches {
            reader: self,
            group: 0,
            left: 0,
            columns: None,
            sum: Checksum::new(),
            ints: Default::default(),
            longs: Default::default(),
        }
    }
}

struct Columns {
    ints: [ColumnReaderImpl<Int32Type>; 4],
    longs: [ColumnReaderImpl<Int64Type>; 4],
}

/// A pass over a recording's rows.
pub struct Batches<'a> {
    reader: &'a Reader,
    /// The next row group to open.
    group: usize,
    /// Rows left in the open one.
    left: usize,
    columns: Option<Columns>,
    sum: Checksum,
    ints: [Vec<i32>; 4],
    longs: [Vec<i64>; 4],
}

impl Batches<'_> {
    /// Fills `batch` with the next rows, at most [`BATCH_ROWS`]; returns false,
    /// and leaves it empty, after the last.
    ///
    /// # Errors
    /// [`TraceError::Damaged`]; the pass is over then.
    pub fn next_into(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        let read = guarded(|| self.fill(batch));
        let failed = match read {
            Ok(Ok(more)) => return Ok(more),
            Ok(Err(reason)) => reason,
            Err(reason) => reason,
        };
        let groups = self.reader.sums.len();
        let group = self.group.saturating_sub(1);
        self.group = groups;
        self.left = 0;
        self.columns = None;
        *batch = Batch::default();
        Err(TraceError::Damaged { path: self.reader.path.clone(), group, groups, reason: failed })
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<Result<bool, String>, ParquetError> {
        while self.left == 0 {
            if self.group >= self.reader.sums.len() {
                batch.clear();
                return Ok(Ok(false));
            }
            let group = self.group;
            self.group += 1;
            self.open(group)?;
        }
        let n = self.left.min(BATCH_ROWS);
        let Some(columns) = self.columns.as_mut() else {
            return Ok(Err("a row group is gone".to_owned()));
        };
        for (column, out) in columns.ints.iter_mut().zip(&mut self.ints) {
            take(column, n, out)?;
        }
        for (column, out) in columns.longs.iter_mut().zip(&mut self.longs) {
            take(column, n, out)?;
        }
        batch.clear();
        for i in 0..n {
            let [kind, task, reads, writes] = self.ints.each_ref().map(|values| values[i]);
            let [insns, page, pages, arg] = self.longs.each_ref().map(|values| values[i] as u64);
            let Some(kind) = u8::try_from(kind).ok().and_then(Kind::from_number) else {
                return Ok(Err(format!("there is no row of kind {kind}")));
            };
            let [task, reads, writes] = [task, reads, writes].map(|v| v as u32);
            batch.push(Row { kind, task, insns, page, pages, reads, writes, arg });
        }
        let tasks = self.reader.header.tasks.len() as u64;
        if let Some(t) = batch.iter().map(|r| r.task).find(|&t| u64::from(t) >= tasks) {
            return Ok(Err(format!("a row names task {t}, but there are {tasks}")));
        }
        add_rows(&mut self.sum, batch);
        self.left -= n;
        if self.left == 0 && self.sum.value() != self.reader.sums[self.group - 1] {
            return Ok(Err("its checksum does not fit".to_owned()));
        }
        Ok(Ok(true))
    }

    fn open(&mut self, group: usize) -> Result<(), ParquetError> {
        let g = self.reader.file.get_row_group(group)?;
        self.left = usize::try_from(g.metadata().num_rows()).unwrap_or(0);
        self.sum = Checksum::new();
        let int = |i| match g.get_column_reader(i)? {
            ColumnReader::Int32ColumnReader(r) => Ok(r),
            _ => Err(ParquetError::General("a column has another type".to_owned())),
        };
        let long = |i| match g.get_column_reader(i)? {
            ColumnReader::Int64ColumnReader(r) => Ok(r),
            _ => Err(ParquetError::General("a column has another type".to_owned())),
        };
        self.columns = Some(Columns {
            ints: [int(0)?, int(1)?, int(5)?, int(6)?],
            longs: [long(2)?, long(3)?, long(4)?, long(7)?],
        });
        Ok(())
    }
}

/// Reads exactly `n` values.
fn take<T: DataType>(
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
