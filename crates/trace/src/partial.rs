//! A Parquet file beside its final place, renamed once it is whole.

use crate::TraceError;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::TypePtr;
use std::fs::{self, File};
use std::io::{self, BufWriter};
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
        let mut new =
            Self { path: path.to_owned(), beside: with_end(path, ".partial"), file: None };
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
