//! Writing a recording, row group by row group.

use crate::checksum::Checksum;
use crate::{Batch, Header, ROW_GROUP_ROWS, Row, TraceError};
use parquet::basic::Compression;
use parquet::data_type::{Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
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
/// Metadata keys: the header as JSON, its checksum, and one checksum per row group.
pub(crate) const KEY_HEADER: &str = "homenode.recording";
pub(crate) const KEY_CHECKSUM: &str = "homenode.checksum";
pub(crate) const KEY_GROUPS: &str = "homenode.row_group_checksums";

/// Writes a recording beside its final place and renames it when it is whole.
/// A writer that is dropped unfinished removes what it wrote.
pub struct Writer {
    path: PathBuf,
    partial: PathBuf,
    file: Option<SerializedFileWriter<BufWriter<File>>>,
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
        let path = path.as_ref().to_owned();
        let mut partial = path.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let create = |source| TraceError::Create { path: path.clone(), source };
        if path.is_dir() {
            return Err(create(std::io::Error::from(std::io::ErrorKind::IsADirectory)));
        }
        let out = File::create(&partial).map_err(create)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_created_by("homenode".to_owned())
            .build();
        let schema = parse_message_type(SCHEMA).expect("the schema is a constant");
        let file =
            SerializedFileWriter::new(BufWriter::new(out), Arc::new(schema), Arc::new(properties));
        let file = match file {
            Ok(f) => f,
            Err(e) => {
                let _ = fs::remove_file(&partial);
                return Err(TraceError::Write { path, reason: e.to_string() });
            }
        };
        Ok(Self {
            path,
            partial,
            file: Some(file),
            rows: Batch::default(),
            pushed: 0,
            sums: Vec::new(),
        })
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.pushed
    }

    /// Bytes that left for the file so far.
    pub fn bytes_written(&self) -> u64 {
        self.file.as_ref().map_or(0, |f| f.bytes_written() as u64)
    }

    /// Adds a row; writes a row group when one is full.
    ///
    /// # Errors
    /// [`TraceError::Write`]; what was written before stays in the unfinished file.
    pub fn push(&mut self, row: Row) -> Result<(), TraceError> {
        let b = &mut self.rows;
        b.kind.push(row.kind);
        b.task.push(row.task);
        b.insns.push(row.insns);
        b.page.push(row.page);
        b.pages.push(row.pages);
        b.reads.push(row.reads);
        b.writes.push(row.writes);
        b.arg.push(row.arg);
        self.pushed += 1;
        if b.len() >= ROW_GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), TraceError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let Some(file) = self.file.as_mut() else { return Ok(()) };
        self.sums.push(sum(&self.rows));
        let written = (|| {
            let mut group = file.next_row_group()?;
            let b = &self.rows;
            ints(&mut group, b.kind.iter().map(|&k| k as i32))?;
            ints(&mut group, b.task.iter().map(|&v| v as i32))?;
            longs(&mut group, &b.insns)?;
            longs(&mut group, &b.page)?;
            longs(&mut group, &b.pages)?;
            ints(&mut group, b.reads.iter().map(|&v| v as i32))?;
            ints(&mut group, b.writes.iter().map(|&v| v as i32))?;
            longs(&mut group, &b.arg)?;
            group.close()?;
            Ok::<(), parquet::errors::ParquetError>(())
        })();
        clear(&mut self.rows);
        written.map_err(|e| TraceError::Write { path: self.path.clone(), reason: e.to_string() })
    }

    /// Ends the recording with its header and puts it in its place. Returns its size in bytes.
    ///
    /// # Errors
    /// [`TraceError::Write`]; nothing then stands at the final place that was not there before.
    pub fn finish(mut self, header: &Header) -> Result<u64, TraceError> {
        self.flush()?;
        let failed = |reason: String| TraceError::Write { path: self.path.clone(), reason };
        let mut file = self.file.take().expect("finish consumes the writer");
        let json = serde_json::to_string(header).map_err(|e| failed(e.to_string()))?;
        let mut c = Checksum::new();
        c.bytes(json.as_bytes());
        let groups: Vec<String> = self.sums.iter().map(|s| format!("{s:016x}")).collect();
        let groups = groups.join(" ");
        c.bytes(groups.as_bytes());
        file.append_key_value_metadata(KeyValue::new(KEY_HEADER.to_owned(), json));
        file.append_key_value_metadata(KeyValue::new(KEY_GROUPS.to_owned(), groups));
        file.append_key_value_metadata(KeyValue::new(
            KEY_CHECKSUM.to_owned(),
            format!("{:016x}", c.value()),
        ));
        let out = file.into_inner().map_err(|e| failed(e.to_string()))?;
        let out = out.into_inner().map_err(|e| failed(e.to_string()))?;
        out.sync_all().map_err(|e| failed(e.to_string()))?;
        let bytes = out.metadata().map_err(|e| failed(e.to_string()))?.len();
        fs::rename(&self.partial, &self.path).map_err(|e| failed(e.to_string()))?;
        Ok(bytes)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // After `finish` the file has its final name, and there is nothing to remove.
        let _ = fs::remove_file(&self.partial);
    }
}

fn clear(b: &mut Batch) {
    b.kind.clear();
    b.task.clear();
    b.insns.clear();
    b.page.clear();
    b.pages.clear();
    b.reads.clear();
    b.writes.clear();
    b.arg.clear();
}

type Group<'a> = SerializedRowGroupWriter<'a, BufWriter<File>>;

fn ints(group: &mut Group<'_>, values: impl Iterator<Item = i32>) -> parquet::errors::Result<()> {
    let values: Vec<i32> = values.collect();
    let mut column = group.next_column()?.expect("as many columns as the schema has");
    column.typed::<Int32Type>().write_batch(&values, None, None)?;
    column.close()
}

fn longs(group: &mut Group<'_>, values: &[u64]) -> parquet::errors::Result<()> {
    let values: Vec<i64> = values.iter().map(|&v| v as i64).collect();
    let mut column = group.next_column()?.expect("as many columns as the schema has");
    column.typed::<Int64Type>().write_batch(&values, None, None)?;
    column.close()
}

/// The checksum of a row group: one running sum per row, so that batches of any
/// size give the same.
pub(crate) fn add_rows(c: &mut Checksum, b: &Batch) {
    for i in 0..b.len() {
        c.word(u64::from(b.task[i]) << 8 | b.kind[i] as u64);
        c.word(b.insns[i]);
        c.word(b.page[i]);
        c.word(b.pages[i]);
        c.word(u64::from(b.reads[i]) << 32 | u64::from(b.writes[i]));
        c.word(b.arg[i]);
    }
}

fn sum(b: &Batch) -> u64 {
    let mut c = Checksum::new();
    add_rows(&mut c, b);
    c.value()
}
