//! Writing a recording, row group by row group.

use crate::checksum::Checksum;
use crate::partial::{Group, Partial, properties};
use crate::sealed::seal;
use crate::{Batch, Header, ROW_GROUP_ROWS, Row, TraceError};
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::schema::parser::parse_message_type;
use std::path::Path;
use std::sync::Arc;

/// The columns of a recording.
pub(crate) const SCHEMA: &str = "message recording {
    required int32 kind (integer(8,false));
    required int32 task (integer(32,false));
    required int64 insns (integer(64,false));
    required int64 page (integer(64,false));
    required int64 pages (integer(64,false));
    required int32 reads (integer(32,false));
    required int32 writes (integer(32,false));
    required int64 arg (integer(64,false));
}";
/// Metadata key of the header as JSON.
pub(crate) const KEY_HEADER: &str = "homenode.recording";

/// Writes a recording beside its final place and renames it when it is whole.
/// A writer that is dropped unfinished removes what it wrote.
pub struct Writer {
    out: Partial,
    rows: Batch,
    pushed: u64,
    sums: Vec<u64>,
}

impl Writer {
    /// Begins a recording that will stand at `path`; until then it is `path` with
    /// `.partial` behind it.
    ///
    /// # Errors
    /// [`TraceError::Create`] where that file cannot be made, or `path` is a directory.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let schema = parse_message_type(SCHEMA).expect("the schema is a constant");
        let out = Partial::create(path.as_ref(), Arc::new(schema), properties())?;
        Ok(Self { out, rows: Batch::default(), pushed: 0, sums: Vec::new() })
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.pushed
    }

    /// Bytes that left for the file so far.
    pub fn bytes_written(&self) -> u64 {
        self.out.file.as_ref().map_or(0, |f| f.bytes_written() as u64)
    }

    /// Adds a row; writes a row group when one is full.
    ///
    /// # Errors
    /// [`TraceError::Write`]; what was written before stays in the unfinished file.
    pub fn push(&mut self, row: Row) -> Result<(), TraceError> {
        self.rows.push(row);
        self.pushed += 1;
        if self.rows.len() >= ROW_GROUP_ROWS { self.flush() } else { Ok(()) }
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
            column::<Int32Type>(group, rows.clone().map(|r| r.task as i32))?;
            column::<Int64Type>(group, rows.clone().map(|r| r.insns as i64))?;
            column::<Int64Type>(group, rows.clone().map(|r| r.page as i64))?;
            column::<Int64Type>(group, rows.clone().map(|r| r.pages as i64))?;
            column::<Int32Type>(group, rows.clone().map(|r| r.reads as i32))?;
            column::<Int32Type>(group, rows.clone().map(|r| r.writes as i32))?;
            column::<Int64Type>(group, rows.map(|r| r.arg as i64))
        });
        self.rows.clear();
        written
    }

    /// Ends the recording with its header and puts it in its place. Returns its size in bytes.
    ///
    /// # Errors
    /// [`TraceError::Write`]; nothing then stands at the final place that was not there before.
    pub fn finish(mut self, header: &Header) -> Result<u64, TraceError> {
        self.flush()?;
        let json = serde_json::to_string(header).map_err(|e| self.out.failed(e))?;
        self.out.finish(seal(KEY_HEADER, json, &self.sums))
    }
}

pub(crate) fn column<T: DataType>(
    group: &mut Group<'_>,
    values: impl Iterator<Item = T::T>,
) -> parquet::errors::Result<()> {
    let values: Vec<T::T> = values.collect();
    let mut column = group.next_column()?.expect("as many columns as the schema has");
    column.typed::<T>().write_batch(&values, None, None)?;
    column.close()
}

/// The checksum of a row group: one running sum per row, so that batches of any
/// size give the same.
pub(crate) fn add_rows(c: &mut Checksum, rows: &[Row]) {
    for r in rows {
        c.word(u64::from(r.task) << 8 | r.kind as u64);
        c.word(r.insns);
        c.word(r.page);
        c.word(r.pages);
        c.word(u64::from(r.reads) << 32 | u64::from(r.writes));
        c.word(r.arg);
    }
}
