//! A Parquet file beside its final place, renamed once it is whole.

use crate::TraceError;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{SchemaDescriptor, TypePtr};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) type Group<'a> = SerializedRowGroupWriter<'a, BufWriter<File>>;

/// What all our files have in common.
pub(crate) fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_created_by("homenode".to_owned())
}

/// A file that is being written: one that is dropped unfinished is removed.
pub(crate) struct Partial {
    /// The final place.
    pub(crate) path: PathBuf,
    /// Where it is until then: the same with `.partial` behind it.
    pub(crate) beside: PathBuf,
    pub(crate) file: Option<SerializedFileWriter<BufWriter<File>>>,
    schema: TypePtr,
}

impl Partial {
    /// Begins a file that will stand at `path`.
    ///
    /// # Errors
    /// [`TraceError::Create`] where it cannot be made, or `path` is a directory.
    pub(crate) fn create(
        path: &Path,
        schema: TypePtr,
        properties: WriterPropertiesBuilder,
    ) -> Result<Self, TraceError> {
        let create = |source| TraceError::Create { path: path.to_owned(), source };
        if path.is_dir() {
            return Err(create(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let beside = with_end(path, ".partial");
        let own = Arc::clone(&schema);
        let mut new = Self { path: path.to_owned(), beside, file: None, schema: own };
        let out = BufWriter::new(File::create(&new.beside).map_err(create)?);
        let file = SerializedFileWriter::new(out, schema, Arc::new(properties.build()));
        new.file = Some(file.map_err(|e| new.failed(e))?);
        Ok(new)
    }

    pub(crate) fn failed(&self, reason: impl ToString) -> TraceError {
        TraceError::Write { path: self.path.clone(), reason: reason.to_string() }
    }

    /// Adds a row group, whose columns `columns` writes.
    ///
    /// # Errors
    /// [`TraceError::Write`]
    pub(crate) fn group(
        &mut self,
        columns: impl FnOnce(&mut Group<'_>) -> Result<(), ParquetError>,
    ) -> Result<(), TraceError> {
        let Some(file) = self.file.as_mut() else { return Ok(()) };
        let written = file.next_row_group().and_then(|mut group| {
            columns(&mut group)?;
            group.close()
        });
        written.map(|_| ()).map_err(|e| self.failed(e))
    }

    /// Puts a whole file with all groups so far in its place, a copy with a footer of its own.
    ///
    /// # Errors
    /// [`TraceError::Write`]; what was kept before stays.
    pub(crate) fn keep(
        &mut self,
        about: impl IntoIterator<Item = KeyValue>,
    ) -> Result<(), TraceError> {
        let Some(file) = self.file.as_mut() else { return Ok(()) };
        if let Err(e) = file.flush() {
            return Err(self.failed(e));
        }
        let groups = file.flushed_row_groups().to_vec();
        let next = with_end(&self.path, ".next");
        let footer = self.footer(groups, about.into_iter().collect());
        let done = copy(&self.beside, &next, footer)
            .and_then(|()| fs::rename(&next, &self.path).map_err(|e| e.to_string()));
        done.map_err(|reason| {
            let _ = fs::remove_file(&next);
            self.failed(reason)
        })
    }

    fn footer(&self, groups: Vec<RowGroupMetaData>, about: Vec<KeyValue>) -> ParquetMetaData {
        let rows = groups.iter().map(RowGroupMetaData::num_rows).sum();
        let schema = Arc::new(SchemaDescriptor::new(Arc::clone(&self.schema)));
        let by = Some("homenode".to_owned());
        ParquetMetaData::new(FileMetaData::new(1, rows, by, Some(about), schema, None), groups)
    }

    /// Ends the file and puts it in its place. Returns its size in bytes.
    ///
    /// # Errors
    /// [`TraceError::Write`]
    pub(crate) fn finish(
        mut self,
        about: impl IntoIterator<Item = KeyValue>,
    ) -> Result<u64, TraceError> {
        let mut file = self.file.take().expect("finish consumes the writer");
        about.into_iter().for_each(|kv| file.append_key_value_metadata(kv));
        let out = file.into_inner().map_err(|e| self.failed(e))?;
        let out = out.into_inner().map_err(|e| self.failed(e))?;
        out.sync_all().map_err(|e| self.failed(e))?;
        let bytes = out.metadata().map_err(|e| self.failed(e))?.len();
        fs::rename(&self.beside, &self.path).map_err(|e| self.failed(e))?;
        Ok(bytes)
    }
}

/// The groups so far, and their footer.
fn copy(from: &Path, to: &Path, footer: ParquetMetaData) -> Result<(), String> {
    let text = |e: io::Error| e.to_string();
    let mut out = File::create(to).map_err(text)?;
    io::copy(&mut File::open(from).map_err(text)?, &mut out).map_err(text)?;
    let mut end = Vec::new();
    ParquetMetaDataWriter::new(&mut end, &footer).finish().map_err(|e| e.to_string())?;
    out.write_all(&end).and_then(|()| out.sync_all()).map_err(text)
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After `finish` the file has its final name, and there is nothing to remove.
        let _ = fs::remove_file(&self.beside);
    }
}

pub(crate) fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(end);
    PathBuf::from(name)
}
