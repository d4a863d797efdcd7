//! The kernel's own same-page merging: its files, its daemon, who is registered,
//! and a driver that puts everything back.
//!
//! ```text
//!  core::ksm::pace ◀── readings ── files, ksmd's CPU time, /proc/PID/ksm_stat
//!        │ orders
//!        ▼
//!  hold: rules first (core::ksm::plan), then the journal, then the knob
//!        └─▶ at the end, after a panic, or by `restore`: back, but for what
//!            somebody else has set since
//! ```
//!
//! A driver holds one lock for the machine. Its journal is on disk before a knob
//! is first written, so that also after SIGKILL [`restore`] knows what was there.
//! [`Hold`] is how `merge drive` holds them; [`Alone`] is a hold by which all of
//! merging is one's own, for truth checks and tests, and may be written at will.
//! Nothing of any process' contents is read here.
//!
//! Source: specs/merge-drive.md.

mod act;
mod alone;
mod error;
mod hold;
mod journal;
mod launch;
mod processes;
mod reading;

pub use act::{Act, DriveEnd, Event, act, look};
pub use alone::{Alone, WriteError};
pub use error::KsmError;
pub use hold::{Failed, Hold, Restore, Restored, Set, restore};

pub use launch::merging_others;
use processes::scan;
pub use reading::{Seen, Sleep, Watch, find_ksmd, memory, visit_ns};

use homenode_core::ksm::files::{FOLDER, File};
use homenode_core::ksm::plan::{Shown, value_of};
use homenode_live::place::Place;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

/// The files of merging: the kernel's, or those of a test.
pub trait Files {
    /// The text of a file.
    ///
    /// # Errors
    /// What the system says.
    fn read(&self, file: File) -> io::Result<String>;
    /// Write a text.
    ///
    /// # Errors
    /// What the system says.
    fn write(&self, file: File, text: &str) -> io::Result<()>;
    /// Whether knobs may be written; writes nothing.
    ///
    /// # Errors
    /// What the system says.
    fn writable(&self) -> io::Result<()>;
    /// The numbers of all files that there are.
    fn shown(&self) -> Shown {
        File::ALL.into_iter().filter_map(|f| Some((f, value_of(f, &self.read(f).ok()?)?))).collect()
    }
    /// A file's number now.
    fn value(&self, file: File) -> Option<u64> {
        value_of(file, &self.read(file).ok()?)
    }
}

/// Whether merging is there, and its knobs may be written.
fn check_files(place: &Place, files: &impl Files) -> Result<(), KsmError> {
    if files.read(File::Run).is_err() {
        return Err(KsmError::NoKsm { folder: place.path(FOLDER) });
    }
    files.writable().map_err(|source| KsmError::Denied { folder: place.path(FOLDER), source })
}

/// A folder with the files.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The kernel's own.
    pub fn of(place: &Place) -> Self {
        Self(place.path(FOLDER))
    }
}

impl Files for Folder {
    fn read(&self, file: File) -> io::Result<String> {
        fs::read_to_string(self.0.join(file.name()))
    }
    fn write(&self, file: File, text: &str) -> io::Result<()> {
        // In one call: the kernel takes each as a whole value.
        let mut out =
            fs::File::options().write(true).truncate(true).open(self.0.join(file.name()))?;
        out.write_all(text.as_bytes())
    }
    fn writable(&self) -> io::Result<()> {
        fs::File::options().write(true).open(self.0.join(File::Run.name())).map(drop)
    }
}

#[cfg(test)]
mod tests;
