//! Knobs that are held: written by the rules, journaled before, put back after.

use super::journal::{Journal, KIND};
use super::{Files, KsmError, memory};
use homenode_core::knobs::Errno;
use homenode_core::ksm::PAGES_TO_SCAN;
use homenode_core::ksm::files::{FOLDER, File, Written};
use homenode_core::ksm::plan::{self, Kept, Left, Ours, Shown, Unmerging, text_of};
use homenode_live::journal::{self, Head};
use homenode_live::people::stat::start_of;
use homenode_live::place::Place;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// What became of setting a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// It has the value.
    Done,
    /// Somebody else has set it to this since we did: it was left alone.
    Theirs {
        /// Its value.
        now: u64,
    },
}

/// A knob that could not be set back.
#[derive(Debug)]
pub struct Failed {
    /// Which.
    pub file: File,
    /// To what.
    pub value: u64,
    /// What the system said.
    pub error: io::Error,
}

/// How knobs were put back.
#[derive(Debug, Default)]
pub struct Restored {
    /// Knobs written, in this order.
    pub set: Vec<(File, u64)>,
    /// Knobs left as they are.
    pub left: Vec<(File, Left)>,
    /// Knobs that refused.
    pub failed: Vec<Failed>,
    /// The journal, where something in it is to be tried again.
    pub journal: Option<PathBuf>,
}

impl Restored {
    /// Sentences on what is not as it was.
    pub fn sentences(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (file, left) in &self.left {
            let name = file.name();
            lines.push(match left {
                Left::Theirs { now } => {
                    format!("{name} is {} now, which we did not write: left", text_of(*file, *now))
                }
                Left::TheirAdvisor => {
                    format!("{name} is chosen by an advisor that we did not switch on: left")
                }
                Left::NoRoom => format!(
                    "{name} stays: setting it back unmerges everything, for which there is not enough memory now"
                ),
                Left::Gone => format!("{name} is gone"),
            });
        }
        for f in &self.failed {
            let (name, value) = (f.file.name(), text_of(f.file, f.value));
            lines.push(format!("{name} could not be set back to {value}: {}", f.error));
        }
        if let Some(journal) = &self.journal {
            lines.push(format!(
                "what is missing stays in {}; `homenode restore` tries again",
                journal.display()
            ));
        }
        lines
    }
}

/// The knobs, held by this process until it is dropped.
#[derive(Debug)]
pub struct Hold<F: Files> {
    files: F,
    place: Place,
    path: PathBuf,
    pub(super) journal: Journal,
    over: bool,
    /// Whether all that is merged is ours.
    alone: bool,
    pub(super) _lock: journal::Lock,
}

impl<F: Files> Hold<F> {
    /// Takes the lock; nothing is written yet. Returns sentences too, such as that
    /// the journal of an earlier boot was thrown away.
    ///
    /// # Errors
    /// [`KsmError`] if another driver lives, or one ended without restoring.
    pub fn take(place: &Place, files: F) -> Result<(Self, Vec<String>), KsmError> {
        let path = KIND.path(place);
        let lock = KIND.lock(place)?;
        let mut notes = Vec::new();
        if let Some(old) = Journal::load(&path)? {
            KIND.check(place, &old.head)?;
            journal::remove(&path)?;
            notes.push(stale(&path));
        }
        let pid = std::process::id();
        let head = Head::new(place, (pid, start_of(place, pid).unwrap_or(0)))?;
        let journal = Journal { head, kept: BTreeMap::new() };
        let place = place.clone();
        let hold = Self { files, place, path, journal, over: false, alone: false, _lock: lock };
        Ok((hold, notes))
    }

    /// The files.
    pub fn files(&self) -> &F {
        &self.files
    }

    /// Notes that a knob may be one of `values` by our doing. On disk when this returns.
    fn expect(&mut self, file: File, values: &[u64]) -> Result<(), KsmError> {
        let now = self.files.value(file);
        let kept = &mut self.journal.kept;
        if let Some(old) = now {
            let none = || Ours::These([].into());
            let entry = kept.entry(file).or_insert_with(|| Kept { file, old, ours: none() });
            entry.ours.add(values);
        }
        Ok(self.journal.save(&self.path)?)
    }

    /// Notes that every knob that there is may show anything by our doing. On disk
    /// when this returns; nothing is noted again for any later write. From then on
    /// everything that is merged is ours, too, and unmerged at the end.
    pub(super) fn claim(&mut self) -> Result<(), KsmError> {
        for (file, old) in self.files.shown().into_iter().filter(|(f, _)| !f.is_counter()) {
            let kept = Kept { file, old, ours: Ours::Any };
            self.journal.kept.entry(file).or_insert(kept).ours = Ours::Any;
        }
        self.journal.save(&self.path)?;
        self.alone = true;
        Ok(())
    }
    /// Whether a knob is noted, whatever is written to it.
    pub(super) fn is_claimed(&self, file: File) -> bool {
        self.journal.kept.get(&file).is_some_and(|k| k.ours == Ours::Any)
    }
    /// What is noted.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Kept> {
        self.journal.kept.values()
    }

    /// From now on it is this value that is ours.
    fn settle(&mut self, file: File, value: u64) {
        if let Some(kept) = self.journal.kept.get_mut(&file) {
            kept.ours.only(value);
        }
    }

    /// Sets a knob. A knob that has the value already is not touched.
    ///
    /// # Errors
    /// [`KsmError`]; what the kernel would refuse is not tried.
    pub fn set(&mut self, file: File, value: u64) -> Result<Set, KsmError> {
        let shown = self.files.shown();
        let now = shown.get(&file).copied();
        if let (Some(kept), Some(now)) = (self.journal.kept.get(&file), now) {
            if !kept.ours.contains(now) && kept.ours != Ours::These([].into()) {
                return Ok(Set::Theirs { now });
            }
        }
        if now == Some(value) {
            return Ok(Set::Done);
        }
        allowed(&shown, file, value)?;
        if file == File::AdvisorMode {
            // Switching sets it too.
            let after: &[u64] = if value == 0 { &[PAGES_TO_SCAN as u64] } else { &[] };
            self.expect(File::PagesToScan, after)?;
        }
        self.expect(file, &[value])?;
        if let Err(e) = self.write(file, value) {
            // It has what it had, by our doing or before.
            let unchanged = now.filter(|now| self.files.value(file) == Some(*now));
            if let (Some(kept), Some(now)) = (self.journal.kept.get_mut(&file), unchanged) {
                kept.ours.add(&[now]);
            }
            return Err(e);
        }
        self.settle(file, value);
        if file == File::AdvisorMode && value == 0 {
            self.settle(File::PagesToScan, PAGES_TO_SCAN.into());
        }
        Ok(Set::Done)
    }

    /// Writes a knob, as it stands.
    pub(super) fn write(&self, file: File, value: u64) -> Result<(), KsmError> {
        let done = self.files.write(file, &text_of(file, value));
        done.map_err(|source| refused(file, value, source))
    }

    /// What [`Hold::switch`] would take.
    ///
    /// # Errors
    /// [`KsmError::Read`] if the kernel does not tell its memory.
    pub fn unmerging(&self) -> Result<Unmerging, KsmError> {
        let (available, total) = memory(&self.place)?;
        Ok(Unmerging::of(&self.files.shown(), available, total))
    }

    /// Switches `merge_across_nodes`; where pages are merged, everything is
    /// unmerged first. `run` is left at 2 then, for the caller to set.
    ///
    /// # Errors
    /// [`KsmError::NoRoom`] with nothing changed; [`KsmError::Unmerge`] if
    /// unmerging failed on its way: dropping this sets `run` back.
    pub fn switch(&mut self, across: bool) -> Result<(), KsmError> {
        let value = u64::from(across);
        let shown = self.files.shown();
        if shown.get(&File::MergeAcrossNodes) == Some(&value) {
            return Ok(());
        }
        match allowed(&shown, File::MergeAcrossNodes, value) {
            Ok(()) => match self.set(File::MergeAcrossNodes, value) {
                // A merged page whose processes have gone may be in the way still.
                Err(KsmError::Write { source, .. }) if is_busy(&source) => {}
                done => return done.map(drop),
            },
            Err(KsmError::Refused(e)) if e.errno == Errno::Ebusy => {}
            Err(e) => return Err(e),
        }
        let needed = self.unmerging()?;
        if !needed.fits() {
            return Err(KsmError::NoRoom(needed));
        }
        self.expect(File::MergeAcrossNodes, &[value])?;
        // A failure to unmerge leaves run at 0.
        self.expect(File::Run, &[0, 2])?;
        unmerge(&self.files).map_err(|source| KsmError::Unmerge {
            needed,
            still: Unmerging::of(&self.files.shown(), 0, 0).back_bytes,
            source,
        })?;
        self.write(File::MergeAcrossNodes, value)?;
        self.settle(File::MergeAcrossNodes, value);
        Ok(())
    }

    /// Puts everything back.
    pub fn restore(mut self) -> Restored {
        self.put_back()
    }

    fn put_back(&mut self) -> Restored {
        self.over = true;
        if self.alone {
            // A failure is told by the knobs that can't be put back then.
            let _ = unmerge(&self.files);
        }
        put_back(&self.place, &self.files, &mut self.journal, &self.path)
    }
}

impl<F: Files> Drop for Hold<F> {
    fn drop(&mut self) {
        if !self.over {
            for line in self.put_back().sentences() {
                eprintln!("homenode: {line}");
            }
        }
    }
}

/// Whether the kernel would take a value at once.
pub(super) fn allowed(shown: &Shown, file: File, value: u64) -> Result<(), KsmError> {
    match plan::predict(shown, file, value).map_err(KsmError::Refused)? {
        Written::Waits => Err(KsmError::Offline { name: file.name() }),
        Written::Done { .. } => Ok(()),
    }
}

/// That a knob could not be written.
pub(super) fn refused(file: File, value: u64, source: io::Error) -> KsmError {
    KsmError::Write { name: file.name(), value: text_of(file, value), source }
}

/// Unmerges everything, also where `run` is 2 already and something has merged since.
pub(super) fn unmerge(files: &impl Files) -> io::Result<()> {
    if files.value(File::Run) == Some(2) {
        files.write(File::Run, "0")?;
    }
    files.write(File::Run, "2")
}

fn is_busy(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::EBUSY)
}

fn put_back(
    place: &Place,
    files: &impl Files,
    journal: &mut Journal,
    path: &std::path::Path,
) -> Restored {
    if journal.kept.is_empty() {
        return Restored::default();
    }
    let kept: Vec<Kept> = journal.kept.values().cloned().collect();
    let room =
        || memory(place).is_ok_and(|(free, all)| Unmerging::of(&files.shown(), free, all).fits());
    let plan = plan::undo(&kept, &files.shown(), room());
    let mut done = Restored { left: plan.left, ..Restored::default() };
    let is_limit = |f| matches!(f, File::MergeAcrossNodes | File::MaxPageSharing);
    let run = files.value(File::Run);
    let mut unmerged = None;
    for (i, (file, value)) in plan.writes.iter().copied().enumerate() {
        if is_limit(file) && unmerged == Some(false) {
            done.left.push((file, Left::NoRoom));
            continue;
        }
        let mut result = files.write(file, &text_of(file, value));
        if is_limit(file) && result.as_ref().is_err_and(is_busy) && room() {
            // Pages whose processes have gone are in the way, though none counts.
            result = unmerge(files).and_then(|()| files.write(file, &text_of(file, value)));
            let later = plan.writes[i + 1..].iter().any(|(f, _)| *f == File::Run);
            let earlier = plan.writes[..i].iter().rev().find(|(f, _)| *f == File::Run);
            if let (false, Some(value)) = (later, earlier.map(|(_, v)| *v).or(run)) {
                let _ = files.write(File::Run, &text_of(File::Run, value));
            }
        }
        if (file, value) == (File::Run, 2) {
            unmerged = Some(result.is_ok());
        }
        match result {
            Ok(()) => done.set.push((file, value)),
            Err(error) => done.failed.push(Failed { file, value, error }),
        }
    }
    // `run` may have failed on its way to another knob, and be right at the end.
    done.failed.retain(|f| f.file != File::Run || files.value(File::Run) != Some(f.value));
    let again = |file: &File| {
        done.left.iter().any(|(f, why)| f == file && why.again())
            || done.failed.iter().any(|f| f.file == *file)
    };
    journal.kept.retain(|file, _| again(file));
    let saved = if journal.kept.is_empty() { journal::remove(path) } else { journal.save(path) };
    if saved.is_err() || !journal.kept.is_empty() {
        done.journal = Some(path.to_owned());
    }
    done
}

fn stale(path: &std::path::Path) -> String {
    format!(
        "{}: this journal is of an earlier boot, since when the knobs are the kernel's own again: thrown away",
        path.display()
    )
}

/// What [`restore`] found.
#[derive(Debug)]
pub enum Restore {
    /// No journal: nothing to do.
    Nothing,
    /// One of an earlier boot, now thrown away.
    Stale(String),
    /// Knobs were put back.
    Done(Restored),
}

/// Puts back what a driver that ended without doing so has changed.
///
/// Doing it again does nothing.
///
/// # Errors
/// [`KsmError`] while that driver lives, or if the journal is damaged.
pub fn restore(place: &Place, files: &impl Files) -> Result<Restore, KsmError> {
    let path = KIND.path(place);
    if !path.exists() && !place.run_folder().exists() {
        return Ok(Restore::Nothing);
    }
    let _lock = KIND.lock(place)?;
    let Some(mut journal) = Journal::load(&path)? else { return Ok(Restore::Nothing) };
    if KIND.is_stale(place, &journal.head)? {
        journal::remove(&path)?;
        return Ok(Restore::Stale(stale(&path)));
    }
    files.writable().map_err(|source| KsmError::Denied { folder: place.path(FOLDER), source })?;
    Ok(Restore::Done(put_back(place, files, &mut journal, &path)))
}
