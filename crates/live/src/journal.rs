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
//! process. A `Kind` says how a journal differs from others: KSM's and DAMON's are two.

use crate::people::stat::start_of;
use crate::place::Place;
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Why a journal can't be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It is not what was written.
    #[error("{}:{line}: {what}: this journal is damaged, {remedy}", path.display())]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
        /// What that means, and what to do about it.
        remedy: &'static str,
    },
    /// The journal, its lock, or this boot's id could not be read or written.
    #[error("can't {what} {}", path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its owner is at work.
    #[error("{who} {at_work}; nothing was changed")]
    Driven {
        /// The owner's number; 0 if not known.
        pid: u32,
        /// The owner.
        who: String,
        /// What it does.
        at_work: &'static str,
    },
    /// Its owner has ended without putting back what it changed.
    #[error(
        "{}: process {pid} {left}; `homenode restore` does that. Nothing was changed",
        journal.display()
    )]
    Unfinished {
        /// The journal.
        journal: PathBuf,
        /// Whose it is.
        pid: u32,
        /// What it did, and left undone.
        left: &'static str,
    },
}

impl JournalError {
    /// For `map_err`: what was tried, with which file.
    fn of(what: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { what, path: path.to_owned(), source }
    }
}

/// What is wrong with a journal: the line, from 1, and what.
pub type Wrong = (usize, String);

/// What tells one kind of journal from the others.
#[derive(Debug)]
pub struct Kind {
    /// A word, for its first line and for its files: `NAME.journal` and `NAME.lock`.
    pub name: &'static str,
    /// Of the lines of its own.
    pub version: &'static str,
    /// What is said of a damaged one after a comma: what it means, and what to do.
    pub remedy: &'static str,
    /// Who another owner is, by its number, which is 0 if that is not known.
    pub who: fn(u32) -> String,
    /// What is said of that one while it lives: what it does.
    pub at_work: &'static str,
    /// What is said of one that has ended without removing its journal.
    pub left: &'static str,
}

/// What all of them begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The boot's id.
    pub boot: String,
    /// Whose it is and when that process was started, in clock ticks since boot.
    pub owner: (u32, u64),
}

impl Head {
    /// Of this boot.
    ///
    /// * `owner` – the process, and when it was started.
    pub fn new(place: &Place, owner: (u32, u64)) -> Result<Self, JournalError> {
        Ok(Self { boot: boot(place)?, owner })
    }
    /// Whether it is of an earlier boot: what the journal tells of went with that.
    fn is_stale(&self, place: &Place) -> Result<bool, JournalError> {
        Ok(self.boot != boot(place)?)
    }
    /// Whether the owner is there, under that start.
    fn owner_lives(&self, place: &Place) -> bool {
        let (pid, start) = self.owner;
        start_of(place, pid) == Some(start)
    }
}

impl Kind {
    /// Where it is.
    pub fn path(&self, place: &Place) -> PathBuf {
        place.run_folder().join(format!("{}.journal", self.name))
    }

    /// Its text; `lines` are those of its own.
    pub fn to_text(&self, head: &Head, lines: &str) -> String {
        let (pid, start) = head.owner;
        let (first, version, boot) = (self.first(), self.version, &head.boot);
        seal(&format!("{first}{version}\nboot {boot}\nowner {pid} {start}\n{lines}"))
    }

    /// What its first line is, before the version.
    fn first(&self) -> String {
        format!("homenode {} ", self.name)
    }

    /// Reads the text as far as all of them are alike; the lines that follow come with
    /// their numbers.
    pub fn parse<'t>(
        &self,
        text: &'t str,
    ) -> Result<(Head, impl Iterator<Item = (usize, &'t str)> + use<'t>), Wrong> {
        let body = unseal(text)?;
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
        let (at, version) = next(&self.first())?;
        if version != self.version {
            return Err((at, "another version of homenode wrote it".to_owned()));
        }
        let boot = next("boot ")?.1.to_owned();
        let (at, owner) = next("owner ")?;
        let owner = owner
            .split_once(' ')
            .and_then(|(pid, start)| Some((pid.parse().ok()?, start.parse().ok()?)))
            .ok_or_else(|| (at, "two numbers are expected".to_owned()))?;
        Ok((Head { boot, owner }, lines))
    }

    /// Reads one; `None` where there is none.
    ///
    /// * `parse` – reads all of its text, in which odd bytes are marks.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] if it is not what was written.
    pub fn load<T>(
        &self,
        path: &Path,
        parse: impl FnOnce(&str) -> Result<T, Wrong>,
    ) -> Result<Option<T>, JournalError> {
        let bytes = match fs::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(JournalError::of("read the journal", path))?,
        };
        parse(&String::from_utf8_lossy(&bytes)).map(Some).map_err(|(line, what)| {
            JournalError::Damaged { path: path.to_owned(), line, what, remedy: self.remedy }
        })
    }

    /// That this process is at work.
    fn driven(&self, pid: u32) -> JournalError {
        JournalError::Driven { pid, who: (self.who)(pid), at_work: self.at_work }
    }

    /// Whether a journal of that head may be replaced: it is of an earlier boot.
    ///
    /// # Errors
    /// [`JournalError::Driven`] while its owner lives, [`JournalError::Unfinished`] if that
    /// one ended without removing it.
    pub fn check(&self, place: &Place, head: &Head) -> Result<(), JournalError> {
        let pid = head.owner.0;
        if head.is_stale(place)? {
            return Ok(());
        }
        if head.owner_lives(place) {
            return Err(self.driven(pid));
        }
        Err(JournalError::Unfinished { journal: self.path(place), pid, left: self.left })
    }

    /// Whether a journal of that head is of an earlier boot, so that nothing is left to be
    /// put back.
    ///
    /// # Errors
    /// [`JournalError::Driven`] while its owner lives, and is another process than this.
    pub fn is_stale(&self, place: &Place, head: &Head) -> Result<bool, JournalError> {
        let stale = head.is_stale(place)?;
        let pid = head.owner.0;
        if !stale && pid != std::process::id() && head.owner_lives(place) {
            return Err(self.driven(pid));
        }
        Ok(stale)
    }

    /// The lock of the one owner.
    ///
    /// # Errors
    /// [`JournalError::Driven`] while somebody else has it.
    pub fn lock(&self, place: &Place) -> Result<Lock, JournalError> {
        let folder = place.run_folder();
        let path = folder.join(format!("{}.lock", self.name));
        let failed = |e: io::Error| {
            let what = match e.kind() {
                io::ErrorKind::PermissionDenied => "take the lock (it needs root)",
                _ => "take the lock",
            };
            JournalError::of(what, &path)(e)
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
        let mut options = fs::File::options();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(&path).map_err(failed)?;
        // SAFETY: the descriptor is open.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(Lock(file));
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::WouldBlock {
            return Err(failed(e));
        }
        let owner = |text: &str| self.parse(text).map(|(head, _)| head.owner.0);
        let pid = self.load(&self.path(place), owner).ok().flatten();
        Err(self.driven(pid.unwrap_or(0)))
    }
}

/// The lock of the one owner, for as long as this is there.
///
/// It is given back by a call, not by closing the file: a process that this one has forked and
/// that has not called exec yet has the file open too, and would keep it.
#[derive(Debug)]
pub struct Lock(fs::File);

#[cfg(test)]
impl Lock {
    /// The file once more, as a forked process has it.
    pub(crate) fn again(&self) -> fs::File {
        self.0.try_clone().unwrap()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // SAFETY: the descriptor is open.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// Puts it on disk, in place of the one before, and waits until it is there.
pub fn save(path: &Path, text: &str) -> Result<(), JournalError> {
    let beside = path.with_extension("new");
    let put = || {
        let mut options = fs::File::options();
        let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        sync_folder(path)
    };
    put().map_err(JournalError::of("write the journal", path))
}

/// Removes it; one that is not there is no error.
pub fn remove(path: &Path) -> Result<(), JournalError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done
            .and_then(|()| sync_folder(path))
            .map_err(JournalError::of("remove the journal", path)),
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    fs::File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// This boot's id.
fn boot(place: &Place) -> Result<String, JournalError> {
    let path = place.path("/proc/sys/kernel/random/boot_id");
    let text = fs::read_to_string(&path).map_err(JournalError::of("read", &path))?;
    Ok(text.trim().to_owned())
}

/// FNV-1a of 64 bits: enough to tell a file that was cut or edited.
fn checksum(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The text with its last line. It must end with a line's end.
pub fn seal(body: &str) -> String {
    format!("{body}end {:016x}\n", checksum(body))
}

/// The text before its last line, if that is right.
fn unseal(text: &str) -> Result<&str, Wrong> {
    let cut = || (text.lines().count().max(1), "it ends too early".to_owned());
    let body_end = text.rfind("end ").filter(|at| *at == 0 || text.as_bytes()[at - 1] == b'\n');
    let (body, end) = text.split_at(body_end.ok_or_else(cut)?);
    let sum = end.strip_prefix("end ").and_then(|e| e.strip_suffix('\n')).ok_or_else(cut)?;
    if sum.len() != 16 || u64::from_str_radix(sum, 16) != Ok(checksum(body)) {
        return Err((text.lines().count(), "its checksum is wrong".to_owned()));
    }
    Ok(body)
}
