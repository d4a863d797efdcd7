//! Journals: what was there before something is changed, on disk before it is.
//!
//! ```text
//! homenode WHAT 1
//! boot 4c1f7a52-5f5d-4a8e-9a5e-0d6f0c1b2a39
//! owner 4711 184467
//! ...                            lines of its own
//! end 8f0d51c3a1b2c3d4
//! ```
//!
//! Here is what journals have in common: this boot, whose it is by number and start
//! time, a checksum of all before it, and that it is written beside and renamed, for its
//! owner only. One lock beside each journal says that its owner lives; it goes with the
//! process.

use crate::ksm::{Place, start_of};
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What is wrong with a journal: the line, from 1, and what.
pub(crate) type Wrong = (usize, String);

/// FNV-1a of 64 bits: enough to tell a file that was cut or edited.
fn checksum(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The text with its last line. It must end with a line's end.
pub(crate) fn seal(body: &str) -> String {
    format!("{body}end {:016x}\n", checksum(body))
}

/// The text before its last line, if that is right.
pub(crate) fn unseal(text: &str) -> Result<&str, Wrong> {
    let cut = || (text.lines().count().max(1), "it ends too early".to_owned());
    let body_end = text.rfind("end ").filter(|at| *at == 0 || text.as_bytes()[at - 1] == b'\n');
    let (body, end) = text.split_at(body_end.ok_or_else(cut)?);
    let sum = end.strip_prefix("end ").and_then(|e| e.strip_suffix('\n')).ok_or_else(cut)?;
    if sum.len() != 16 || u64::from_str_radix(sum, 16) != Ok(checksum(body)) {
        return Err((text.lines().count(), "its checksum is wrong".to_owned()));
    }
    Ok(body)
}

/// What all of them begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The boot's id.
    pub(crate) boot: String,
    /// Whose it is and when that process was started, in clock ticks since boot.
    pub(crate) owner: (u32, u64),
}

impl Head {
    /// `first` is the first line: what the journal is of, and its version.
    pub(crate) fn to_text(&self, first: &str) -> String {
        format!("{first}\nboot {}\nowner {} {}\n", self.boot, self.owner.0, self.owner.1)
    }

    /// Reads it; the lines that follow come back with their numbers.
    pub(crate) fn parse<'t>(
        body: &'t str,
        what: &str,
        version: &str,
    ) -> Result<(Self, impl Iterator<Item = (usize, &'t str)>), Wrong> {
        let mut lines = body.lines().enumerate().map(|(i, l)| (i + 1, l));
        let mut next = |what: &str| {
            let (at, line) = lines
                .next()
                .ok_or_else(|| (body.lines().count() + 1, "it ends too early".to_owned()))?;
            match line.strip_prefix(what) {
                Some(rest) => Ok((at, rest)),
                None => Err((at, format!("`{what}` is expected here"))),
            }
        };
        let (at, rest) = next(what)?;
        if rest != version {
            return Err((at, "another version of homenode wrote it".to_owned()));
        }
        let boot = next("boot ")?.1.to_owned();
        let (at, owner) = next("owner ")?;
        let owner = owner
            .split_once(' ')
            .and_then(|(pid, start)| Some((pid.parse().ok()?, start.parse().ok()?)))
            .ok_or_else(|| (at, "two numbers are expected".to_owned()))?;
        Ok((Self { boot, owner }, lines))
    }
}

/// Its text, odd bytes as marks; `None` where there is none.
pub(crate) fn load(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Puts it on disk, in place of the one before, and waits until it is there.
pub(crate) fn save(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file =
        fs::File::options().create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    sync_folder(path)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    fs::File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Removes it; one that is not there is no error.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.and_then(|()| sync_folder(path)),
    }
}

/// The lock of the one owner, `NAME.lock` in the folder of journals; `None` while
/// somebody else has it. It goes with the file.
///
/// # Errors
/// What was tried, with which file, and what the system said.
pub(crate) fn lock(
    place: &Place,
    name: &str,
) -> Result<Option<fs::File>, (&'static str, PathBuf, io::Error)> {
    let folder = place.run_folder();
    let path = folder.join(format!("{name}.lock"));
    let failed = |e: io::Error| {
        let what = match e.kind() {
            io::ErrorKind::PermissionDenied => "take the lock (it needs root)",
            _ => "take the lock",
        };
        (what, path.clone(), e)
    };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
    let file = fs::File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    // SAFETY: the descriptor is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(Some(file));
    }
    let e = io::Error::last_os_error();
    if e.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(failed(e)) }
}

/// This boot's id.
///
/// # Errors
/// The file, and what the system said.
pub(crate) fn boot(place: &Place) -> Result<String, (PathBuf, io::Error)> {
    let path = place.path("/proc/sys/kernel/random/boot_id");
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(e) => Err((path, e)),
    }
}

/// Whether the process is there, under that start.
pub(crate) fn lives(place: &Place, owner: (u32, u64)) -> bool {
    start_of(place, owner.0) == Some(owner.1)
}
