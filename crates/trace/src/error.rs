//! What can be wrong with a recording.

use std::io;
use std::path::PathBuf;

/// Why a recording could not be read or written. Each is one sentence that
/// names the file.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be opened.
    #[error("cannot open the recording {}: {source}", path.display())]
    Open {
        /// The recording.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file could not be created beside its final place.
    #[error("cannot create {}: {source}", path.display())]
    Create {
        /// The file that was to be written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Writing failed, for instance because the disk is full.
    #[error("cannot write the recording {}: {reason}", path.display())]
    Write {
        /// The file that was being written.
        path: PathBuf,
        /// What the system or the encoder said.
        reason: String,
    },
    /// The file ends too early or is no Parquet file.
    #[error("{} is not a whole recording: {reason}; record it again", path.display())]
    NotARecording {
        /// The recording.
        path: PathBuf,
        /// What the decoder said.
        reason: String,
    },
    /// It is a Parquet file, but of another kind.
    #[error("{} is a Parquet file but no recording of homenode: {reason}", path.display())]
    Foreign {
        /// The recording.
        path: PathBuf,
        /// What is missing or different.
        reason: String,
    },
    /// A recording of a format that this version does not read.
    #[error("{} has format version {found}; this homenode reads version {known}", path.display())]
    Version {
        /// The recording.
        path: PathBuf,
        /// The version in the file.
        found: u32,
        /// The version that is read.
        known: u32,
    },
    /// Its contents are damaged.
    #[error("the recording {} is damaged in row group {group} (of {groups}): {reason}", path.display())]
    Damaged {
        /// The recording.
        path: PathBuf,
        /// Counted from 0.
        group: usize,
        /// How many there are.
        groups: usize,
        /// What is wrong.
        reason: String,
    },
    /// A line of it makes no sense.
    #[error("{}, line {line}: {reason}", path.display())]
    Line {
        /// The recording.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
}
