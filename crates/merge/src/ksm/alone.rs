//! All of the kernel's merging for oneself: what is merged meanwhile is one's own,
//! and every knob may be written at any time, also with what the kernel refuses.
//!
//! All knobs go into the journal once, at the beginning, each with its old value and
//! the word that any other is ours. No write after that costs more than itself.
//!
//! Source: specs/merge-drive.md#alone.

use super::hold::{Hold, Restored, refused, unmerge};
use super::reading::find_ksmd;
use super::{Files, KsmError, check_files, scan};
use homenode_core::ksm::files::{FOLDER, File};
use homenode_core::ksm::plan::Kept;
use homenode_live::place::Place;
use std::io;

/// A write that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("{FOLDER}{name}: {value:?} was refused")]
pub struct WriteError {
    /// The file.
    pub name: String,
    /// What was written.
    pub value: String,
    /// What the kernel said.
    #[source]
    pub source: io::Error,
}

/// The kernel's merging, ours alone until dropped. ksmd is stopped, nothing is merged,
/// and no advisor is on, as long as nobody writes.
#[derive(Debug)]
pub struct Alone<F: Files> {
    pub(super) hold: Hold<F>,
}

impl<F: Files> Alone<F> {
    /// Takes it, at once or not at all. Returns sentences too, as [`Hold::take`] does.
    ///
    /// # Errors
    /// [`KsmError`]: with nothing changed if merging is not there, held by another
    /// driver, left by one that ended without restoring, or at work for others.
    pub fn take(place: &Place, files: F) -> Result<(Self, Vec<String>), KsmError> {
        check_files(place, &files)?;
        let (mut hold, notes) = Hold::take(place, files)?;
        check_others(place, hold.files())?;
        hold.claim()?;
        let alone = Self { hold };
        alone.quiet()?;
        Ok((alone, notes))
    }

    /// Unmerges everything, and switches an advisor off.
    fn quiet(&self) -> Result<(), KsmError> {
        if self.hold.is_claimed(File::AdvisorMode) {
            self.hold.write(File::AdvisorMode, 0)?;
        }
        unmerge(self.hold.files()).map_err(|source| refused(File::Run, 2, source))
    }

    /// A file's text without its end; `None` where this kernel has none of that name.
    pub fn read(&self, name: &str) -> Option<String> {
        let file = File::ALL.into_iter().find(|f| f.name() == name)?;
        self.hold.files().read(file).ok().map(|text| text.trim().to_owned())
    }

    /// Writes a knob, whatever the kernel may say to it.
    ///
    /// # Errors
    /// What the kernel answered. A knob whose old value could not be read, hence not
    /// be noted either, is not written.
    pub fn write(&self, name: &str, value: &str) -> Result<(), WriteError> {
        let named = File::ALL.into_iter().find(|f| f.name() == name);
        let done = match named.filter(|f| self.hold.files().read(*f).is_ok()) {
            None => Err(io::Error::from_raw_os_error(libc::ENOENT)),
            Some(file) if !file.is_counter() && !self.hold.is_claimed(file) => {
                Err(io::Error::other("what it was is not known, so it could not be put back"))
            }
            Some(file) => self.hold.files().write(file, value),
        };
        let (name, value) = (name.to_owned(), value.to_owned());
        done.map_err(|source| WriteError { name, value, source })
    }

    /// Puts the knobs back that were there, but for `run` and the advisor, and unmerges
    /// everything: as after [`Alone::take`].
    ///
    /// # Errors
    /// [`KsmError::Write`] if a knob refused; the others are set all the same.
    pub fn reset(&self) -> Result<(), KsmError> {
        // Limits can be changed only while nothing is merged, the speed only without an
        // advisor.
        let mut result = self.quiet();
        for &Kept { file, old, .. } in self.hold.kept() {
            let is_old = self.hold.files().value(file) == Some(old);
            if !is_old && !matches!(file, File::Run | File::AdvisorMode) {
                result = result.and(self.hold.write(file, old));
            }
        }
        result
    }

    /// Unmerges everything and puts all knobs back, as dropping it does.
    pub fn restore(self) -> Restored {
        self.hold.restore()
    }
}

/// Whether merging works for nobody.
fn check_others(place: &Place, files: &impl Files) -> Result<(), KsmError> {
    let value = |file| files.value(file).unwrap_or(0);
    let (run, pages_shared) = (value(File::Run), value(File::PagesShared));
    if run & 4 != 0 {
        return Err(KsmError::Offline { name: File::Run.name() });
    }
    if run == 1 {
        return Err(KsmError::Busy { run, pages_shared });
    }
    let found = scan(place, true)?;
    if let Some((first, others)) = found.processes.split_first() {
        let (pid, name) = (first.pid, first.name.clone());
        return Err(KsmError::Registered { pid, name, others: others.len() });
    }
    // While ksmd is stopped, merged pages outlive the processes that had them. Those may
    // be unmerged; but whose they are is known only where every process can be asked.
    let asks_all = found.unseen == 0
        && find_ksmd(place).is_some()
        && place.path(&format!("/proc/{}/ksm_stat", std::process::id())).exists();
    if pages_shared != 0 && !asks_all {
        return Err(KsmError::Busy { run, pages_shared });
    }
    Ok(())
}
