//! Reading a recording, batch by batch.

use crate::checksum::Checksum;
use crate::sealed::{Sealed, guarded, take};
use crate::write::{KEY_HEADER, SCHEMA, add_rows};
use crate::{BATCH_ROWS, Batch, FORMAT_VERSION, Header, Kind, Row, TraceError};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::File;
use std::path::{Path, PathBuf};

/// An open recording. Its rows can be read several times.
pub struct Reader {
    path: PathBuf,
    file: SerializedFileReader<File>,
    header: Header,
    sums: Vec<u64>,
    rows: u64,
}

impl Reader {
    /// Opens a recording and reads its header.
    ///
    /// # Errors
    /// [`TraceError`] where the file is not there, is no whole recording, or of
    /// another version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let (sealed, any) = Sealed::open(path.as_ref(), KEY_HEADER, SCHEMA, 1..=FORMAT_VERSION)?;
        let header = sealed.header(any)?;
        let Sealed { path, file, sums, rows } = sealed;
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
