//! Lines that are kept: in files below a state folder, cut off by their size.
//!
//! ```text
//! add ─▶ ledger.jsonl ─ is large ─▶ ledger.1.jsonl ─▶ … ─▶ ledger.8.jsonl ─▶ gone
//! ```
//!
//! What a line says is not known here. A line goes to the file in one call, so that a
//! crash costs one line at most: one that was cut is ended by the next to write, and is
//! passed over by who reads.
//!
//! Source: specs/act.md#ledger.

use crate::place::Place;
use std::fs;
use std::io::{self, BufRead, Read as _, Seek, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Files before the one that is written.
const KEPT: usize = 8;
/// Size at which a file is put aside.
pub const LARGE: u64 = 16 << 20;

/// Why lines can't be kept or read.
#[derive(Debug, thiserror::Error)]
#[error("the ledger: can't {what} {}", path.display())]
pub struct LedgerError {
    /// What was tried.
    what: &'static str,
    /// With which file.
    path: PathBuf,
    /// What the system said.
    source: io::Error,
}

impl LedgerError {
    /// For `map_err`.
    fn of(what: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self { what, path: path.to_owned(), source }
    }
}

/// Where it is.
fn path(place: &Place, before: usize) -> PathBuf {
    let name = match before {
        0 => "ledger.jsonl".to_owned(),
        n => format!("ledger.{n}.jsonl"),
    };
    place.state_folder().join(name)
}

/// The file that is written.
#[derive(Debug)]
pub struct Writer {
    place: Place,
    file: fs::File,
    bytes: u64,
    large: u64,
}

impl Writer {
    /// Opens the file, and makes its folder.
    ///
    /// * `large` – the size at which a file is put aside: [`LARGE`].
    ///
    /// # Errors
    /// A folder or file that can't be made or written.
    pub fn open(place: &Place, large: u64) -> Result<Self, LedgerError> {
        let folder = place.state_folder();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&folder)
            .map_err(LedgerError::of("make the folder", &folder))?;
        let (file, bytes) = begin(&path(place, 0))?;
        Ok(Self { place: place.clone(), file, bytes, large })
    }

    /// Where lines go.
    pub fn path(&self) -> PathBuf {
        path(&self.place, 0)
    }

    /// Adds lines; each without its end.
    ///
    /// # Errors
    /// Lines that could not be written, such as on a full disk.
    pub fn add<'l>(&mut self, lines: impl IntoIterator<Item = &'l str>) -> Result<(), LedgerError> {
        let mut text = String::new();
        for line in lines {
            text += line;
            text.push('\n');
        }
        if text.is_empty() {
            return Ok(());
        }
        if self.bytes > 0 && self.bytes + text.len() as u64 > self.large {
            self.put_aside()?;
        }
        self.file
            .write_all(text.as_bytes())
            .map_err(LedgerError::of("write", &path(&self.place, 0)))?;
        self.bytes += text.len() as u64;
        Ok(())
    }

    fn put_aside(&mut self) -> Result<(), LedgerError> {
        for n in (0..KEPT).rev() {
            let (from, to) = (path(&self.place, n), path(&self.place, n + 1));
            match fs::rename(&from, &to) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                done => done.map_err(LedgerError::of("put aside", &from))?,
            }
        }
        (self.file, self.bytes) = begin(&path(&self.place, 0))?;
        Ok(())
    }
}

/// Opens a file to be added to. A line that was cut gets its end.
fn begin(path: &Path) -> Result<(fs::File, u64), LedgerError> {
    let failed = LedgerError::of("open", path);
    let mut options = fs::File::options();
    let mut file =
        options.create(true).read(true).append(true).mode(0o644).open(path).map_err(&failed)?;
    let mut bytes = file.metadata().map_err(&failed)?.len();
    if bytes > 0 {
        let mut last = [0];
        file.seek(io::SeekFrom::End(-1)).map_err(&failed)?;
        file.read_exact(&mut last).map_err(&failed)?;
        if last != *b"\n" {
            file.write_all(b"\n").map_err(LedgerError::of("write", path))?;
            bytes += 1;
        }
    }
    Ok((file, bytes))
}

/// Hands out all lines, oldest first. Returns whether there was a file.
///
/// # Errors
/// A file that can't be read; one that is not there is none.
pub fn read(place: &Place, take: &mut dyn FnMut(&str)) -> Result<bool, LedgerError> {
    let mut any = false;
    for n in (0..=KEPT).rev() {
        let path = path(place, n);
        let failed = LedgerError::of("read", &path);
        let file = match fs::File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            file => file.map_err(&failed)?,
        };
        any = true;
        let (mut file, mut line) = (io::BufReader::new(file), Vec::new());
        while file.read_until(b'\n', &mut line).map_err(&failed)? > 0 {
            take(String::from_utf8_lossy(&line).trim_end_matches('\n'));
            line.clear();
        }
    }
    Ok(any)
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_fixtures::Folder;

    fn lines(place: &Place) -> Vec<String> {
        let mut out = Vec::new();
        read(place, &mut |line| out.push(line.to_owned())).unwrap();
        out
    }

    #[test]
    fn lines_come_back_in_their_order_over_all_files() {
        let at = Folder::new();
        let place = Place::at(&at);
        assert!(!read(&place, &mut |_| {}).unwrap(), "there is none");
        let all: Vec<String> = (0..30).map(|i| format!("line {i:02}")).collect();
        let mut writer = Writer::open(&place, 40).unwrap();
        for line in &all {
            writer.add([line.as_str()]).unwrap();
        }
        // Five lines of eight bytes a file, and nine files: all of them fit.
        assert_eq!(lines(&place), all);
        // The oldest go.
        for line in &all {
            writer.add([line.as_str()]).unwrap();
        }
        let left = lines(&place);
        assert_eq!(left.len(), 45);
        assert_eq!(left[..15], all[15..]);
    }

    #[test]
    fn a_line_that_was_cut_is_ended_by_the_next_to_write() {
        let at = Folder::new();
        let place = Place::at(&at);
        let mut writer = Writer::open(&place, LARGE).unwrap();
        writer.add(["one", "two"]).unwrap();
        let path = writer.path();
        drop(writer);
        fs::write(&path, "one\ntw").unwrap();
        let mut writer = Writer::open(&place, LARGE).unwrap();
        writer.add(["three"]).unwrap();
        assert_eq!(lines(&place), ["one", "tw", "three"]);
    }

    #[test]
    fn a_full_disk_is_told_with_the_file() {
        let at = Folder::new();
        let place = Place::at(&at);
        fs::create_dir_all(place.state_folder()).unwrap();
        std::os::unix::fs::symlink("/dev/full", path(&place, 0)).unwrap();
        let mut writer = Writer::open(&place, LARGE).unwrap();
        let told = crate::sentence(&writer.add(["line"]).unwrap_err());
        assert!(told.contains("ledger.jsonl") && told.contains("No space left"), "{told}");
    }
}
