//! The file: row groups of six columns, and the header.

use super::{Header, Kind, NOBODY, Row, VERSION};
use crate::TraceError;
use crate::checksum::Checksum;
use crate::partial::{Partial, properties};
use crate::sealed::{Sealed, guarded, seal, take};
use crate::write::column;
use parquet::column::reader::ColumnReader;
use parquet::data_type::{Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::reader::FileReader;
use parquet::schema::parser::parse_message_type;
use std::path::Path;
use std::sync::Arc;

const SCHEMA: &str = "message sched {
    required int32 kind (integer(8,false));
    required int32 cpu (integer(32,false));
    required int32 task (integer(32,false));
    required int32 other (integer(32,false));
    required int64 time_ns (integer(64,false));
    required int64 arg (integer(64,false));
}";
/// Key of the metadata that hold the header, as JSON.
const KEY: &str = "homenode.sched";
/// Rows that a writer holds in memory.
const GROUP_ROWS: usize = 256 * 1024;

/// Writes a recording of scheduling.
pub struct Writer {
    out: Partial,
    rows: Vec<Row>,
    pushed: u64,
    sums: Vec<u64>,
}

impl Writer {
    /// Begins a recording that will stand at `path`. Until something is kept there is only `path` with
    /// `.partial` behind it, and a file that is there stays as it is.
    ///
    /// # Errors
    /// [`TraceError::Create`] where that cannot be made, or `path` is a directory.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let schema = parse_message_type(SCHEMA).expect("the schema is a constant");
        let properties = properties().set_offset_index_disabled(true);
        let out = Partial::create(path.as_ref(), Arc::new(schema), properties)?;
        Ok(Self { out, rows: Vec::new(), pushed: 0, sums: Vec::new() })
    }
    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.pushed
    }
    /// Adds a row; writes a row group when one is full.
    ///
    /// # Errors
    /// [`TraceError::Write`]; what was kept before stays.
    pub fn push(&mut self, row: Row) -> Result<(), TraceError> {
        self.rows.push(row);
        self.pushed += 1;
        if self.rows.len() >= GROUP_ROWS { self.flush() } else { Ok(()) }
    }
    fn flush(&mut self) -> Result<(), TraceError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut sum = Checksum::new();
        add_rows(&mut sum, &self.rows);
        self.sums.push(sum.value());
        let rows = self.rows.iter();
        let written = self.out.group(|group| {
            column::<Int32Type>(group, rows.clone().map(|r| r.kind as i32))?;
            column::<Int32Type>(group, rows.clone().map(|r| r.cpu as i32))?;
            column::<Int32Type>(group, rows.clone().map(|r| r.task as i32))?;
            column::<Int32Type>(group, rows.clone().map(|r| r.other as i32))?;
            column::<Int64Type>(group, rows.clone().map(|r| r.time_ns as i64))?;
            column::<Int64Type>(group, rows.map(|r| r.arg as i64))
        });
        self.rows.clear();
        written
    }
    fn about(&self, header: &Header) -> Result<[KeyValue; 3], TraceError> {
        let json = serde_json::to_string(header).map_err(|e| self.out.failed(e))?;
        Ok(seal(KEY, json, &self.sums))
    }
    /// Puts a whole file with all rows so far in its place.
    ///
    /// # Errors
    /// [`TraceError::Write`]; what was kept before stays.
    pub fn keep(&mut self, header: &Header) -> Result<(), TraceError> {
        self.flush()?;
        let about = self.about(header)?;
        self.out.keep(about)
    }
    /// Ends the recording with its header and puts it in its place. Returns its size in bytes.
    ///
    /// # Errors
    /// [`TraceError::Write`]; what was kept before stays.
    pub fn finish(mut self, header: &Header) -> Result<u64, TraceError> {
        self.flush()?;
        let about = self.about(header)?;
        self.out.finish(about)
    }
}

fn add_rows(c: &mut Checksum, rows: &[Row]) {
    for r in rows {
        c.word(u64::from(r.cpu) << 8 | r.kind as u64);
        c.word(u64::from(r.task) << 32 | u64::from(r.other));
        c.word(r.time_ns);
        c.word(r.arg);
    }
}

/// Whether a file is a Parquet file by its first bytes, as recordings are.
pub fn is_one(path: &Path) -> bool {
    use std::io::Read as _;
    let mut first = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut f| f.read_exact(&mut first));
    read.is_ok() && &first == b"PAR1"
}

/// Reads a recording of scheduling: what it says of itself, and its rows by their times.
///
/// # Errors
/// [`TraceError`] where the file is not there, is no whole recording of scheduling, of another version, or
/// damaged.
pub fn load(path: impl AsRef<Path>) -> Result<(Header, Vec<Row>), TraceError> {
    let (sealed, any) = Sealed::open(path.as_ref(), KEY, SCHEMA, VERSION..=VERSION)?;
    let header: Header = sealed.header(any)?;
    let mut rows = Vec::with_capacity(sealed.rows.min(1 << 20) as usize);
    let groups = sealed.sums.len();
    for group in 0..groups {
        let damaged =
            |reason| TraceError::Damaged { path: sealed.path.clone(), group, groups, reason };
        let begun = rows.len();
        guarded(|| fill(&sealed, group, &mut rows)).and_then(|r| r).map_err(damaged)?;
        let tasks = header.tasks.len() as u32;
        for r in &rows[begun..] {
            let known = |task| task < tasks || task == NOBODY;
            let of_task = !matches!(r.kind, Kind::Put | Kind::Get);
            if !known(r.task) || (of_task && !known(r.other)) {
                return Err(damaged(format!(
                    "a row names task {}, but there are {tasks}",
                    if known(r.task) { r.other } else { r.task }
                )));
            }
        }
        let mut sum = Checksum::new();
        add_rows(&mut sum, &rows[begun..]);
        if sum.value() != sealed.sums[group] {
            return Err(damaged("its checksum does not fit".to_owned()));
        }
    }
    rows.sort_by_key(|r: &Row| r.time_ns);
    Ok((header, rows))
}

/// Adds the rows of a group.
fn fill(
    sealed: &Sealed,
    group: usize,
    rows: &mut Vec<Row>,
) -> Result<Result<(), String>, ParquetError> {
    let g = sealed.file.get_row_group(group)?;
    let n = usize::try_from(g.metadata().num_rows()).unwrap_or(0);
    let mut ints: [Vec<i32>; 4] = Default::default();
    let mut longs: [Vec<i64>; 2] = Default::default();
    let odd = || ParquetError::General("a column has another type".to_owned());
    for (i, out) in ints.iter_mut().enumerate() {
        let ColumnReader::Int32ColumnReader(mut r) = g.get_column_reader(i)? else {
            return Err(odd());
        };
        take(&mut r, n, out)?;
    }
    for (i, out) in longs.iter_mut().enumerate() {
        let ColumnReader::Int64ColumnReader(mut r) = g.get_column_reader(4 + i)? else {
            return Err(odd());
        };
        take(&mut r, n, out)?;
    }
    for i in 0..n {
        let [kind, cpu, task, other] = ints.each_ref().map(|v| v[i] as u32);
        let [time_ns, arg] = longs.each_ref().map(|v| v[i] as u64);
        let Some(&kind) = Kind::ALL.get(kind as usize) else {
            return Ok(Err(format!("there is no row of kind {kind}")));
        };
        rows.push(Row { kind, time_ns, cpu, task, other, arg });
    }
    Ok(Ok(()))
}
