//! The journal of DAMON's slot, and what takes it down after a crash.
//!
//! ```text
//! homenode damon 1
//! boot 4c1f7a52-5f5d-4a8e-9a5e-0d6f0c1b2a39
//! owner 4711 184467
//! slot 0
//! end 8f0d51c3a1b2c3d4
//! ```
//!
//! It is on disk before the slot is made. The slot itself carries a mark: its first target
//! is the process that made it.
//!
//! Source: specs/live.md#damon.

use super::error::DamonError;
use super::kernel::Files;
use super::slot;
use crate::journal::{self, Head, Wrong};
use crate::ksm::Place;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const HEAD: &str = "homenode damon ";
const VERSION: &str = "1";
const SLOT: &str = "slot 0";

fn path(place: &Place) -> PathBuf {
    place.run_folder().join("damon.journal")
}

fn to_text(head: &Head) -> String {
    journal::seal(&format!("{}{SLOT}\n", head.to_text(&format!("{HEAD}{VERSION}"))))
}

fn parse(text: &str) -> Result<Head, Wrong> {
    let (head, mut lines) = Head::parse(journal::unseal(text)?, HEAD, VERSION)?;
    match lines.next() {
        Some((_, SLOT)) => {}
        Some((at, _)) => return Err((at, format!("`{SLOT}` is expected here"))),
        None => return Err((4, "it ends too early".to_owned())),
    }
    match lines.next() {
        Some((at, _)) => Err((at, "nothing is expected here".to_owned())),
        None => Ok(head),
    }
}

fn load(path: &Path) -> Result<Option<Head>, DamonError> {
    let failed =
        |source| DamonError::Journal { what: "read the journal", path: path.to_owned(), source };
    let Some(text) = journal::load(path).map_err(failed)? else { return Ok(None) };
    parse(&text).map(Some).map_err(|(line, what)| DamonError::Damaged {
        journal: path.to_owned(),
        line,
        what,
    })
}

fn boot(place: &Place) -> Result<String, DamonError> {
    journal::boot(place).map_err(|(path, source)| DamonError::Read { path, source })
}

fn lock(place: &Place) -> Result<Option<fs::File>, DamonError> {
    journal::lock(place, "damon").map_err(|(what, path, source)| DamonError::Journal {
        what,
        path,
        source,
    })
}

/// Says whose the slot is that may be there, if it is a homenode's.
///
/// # Errors
/// [`DamonError::Driven`] while that homenode lives, [`DamonError::Unfinished`] if it
/// ended without taking its slot down.
pub(super) fn look(place: &Place) -> Result<(), DamonError> {
    let path = path(place);
    let head = match load(&path) {
        Ok(Some(head)) => head,
        // Who may not read it will lack more.
        Err(DamonError::Journal { source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            return Ok(());
        }
        Ok(None) => return Ok(()),
        Err(e) => return Err(e),
    };
    match (head.boot == boot(place)?, journal::lives(place, head.owner)) {
        (false, _) => Ok(()),
        (true, true) => Err(DamonError::Driven { pid: head.owner.0 }),
        (true, false) => Err(DamonError::Unfinished { journal: path, pid: head.owner.0 }),
    }
}

/// The journal while the slot is there.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    _lock: fs::File,
}

impl Kept {
    /// Takes the lock and puts the journal on disk. One of an earlier boot is replaced.
    pub(super) fn begin(place: &Place, me: (u32, u64)) -> Result<Self, DamonError> {
        let Some(lock) = lock(place)? else {
            let pid = load(&path(place)).ok().flatten().map_or(0, |h| h.owner.0);
            return Err(DamonError::Driven { pid });
        };
        // Again, now that nobody else can write it.
        look(place)?;
        let path = path(place);
        let head = Head { boot: boot(place)?, owner: me };
        journal::save(&path, &to_text(&head)).map_err(|source| DamonError::Journal {
            what: "write the journal",
            path: path.clone(),
            source,
        })?;
        Ok(Self { path, _lock: lock })
    }
    /// The slot is down.
    pub(super) fn end(self) -> Result<(), DamonError> {
        remove(&self.path)
    }
}

fn remove(path: &Path) -> Result<(), DamonError> {
    journal::remove(path).map_err(|source| DamonError::Journal {
        what: "remove the journal",
        path: path.to_owned(),
        source,
    })
}

/// What restoring found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// No journal: nothing to do.
    Nothing,
    /// A journal without a slot, of an earlier boot or from before it was made; a sentence.
    Stale(String),
    /// The slot was taken down; a sentence.
    Done(String),
    /// A slot is there, and it is not as a homenode leaves it: it was not touched; a
    /// sentence.
    Left(String),
}

/// As [`super::restore`], for any files.
pub(super) fn restore(place: &Place, files: &impl Files) -> Result<Restored, DamonError> {
    let path = path(place);
    if !path.exists() {
        return Ok(Restored::Nothing);
    }
    let held = lock(place)?;
    let found = load(&path);
    if held.is_none() {
        let pid = found.ok().flatten().map_or(0, |h| h.owner.0);
        return Err(DamonError::Driven { pid });
    }
    let Some(head) = found? else { return Ok(Restored::Nothing) };
    let pid = head.owner.0;
    if head.boot != boot(place)? {
        remove(&path)?;
        return Ok(Restored::Stale(format!(
            "{}: this journal is of an earlier boot, whose slot of DAMON went with it: thrown away",
            path.display()
        )));
    }
    if journal::lives(place, head.owner) && pid != std::process::id() {
        return Err(DamonError::Driven { pid });
    }
    if matches!(slot::count(files), None | Some(0)) {
        remove(&path)?;
        return Ok(Restored::Stale(format!(
            "DAMON has no slot any more that process {pid} left: the journal was thrown away"
        )));
    }
    // While it is being made it has the mark, but is off still.
    if slot::is_of(files, pid) || (slot::is_marked(files, pid) && !slot::is_on(files)?) {
        slot::remove(files)?;
        remove(&path)?;
        return Ok(Restored::Done(format!(
            "DAMON's slot of process {pid}, which ended without doing so, was taken down"
        )));
    }
    remove(&path)?;
    Ok(Restored::Left(format!(
        "DAMON's slots are not as process {pid} left them: somebody else has set them up since, \
         and they were not touched. If nobody uses DAMON: off into \
         /sys/kernel/mm/damon/admin/kdamonds/0/state, 0 into nr_kdamonds"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written_and_not_in_part() {
        let head = Head { boot: "4c1f7a52".to_owned(), owner: (4711, 184_467) };
        let text = to_text(&head);
        assert_eq!(parse(&text), Ok(head));
        for end in 0..text.len() {
            assert!(parse(&text[..end]).is_err(), "{}", &text[..end]);
        }
        let wrong = |body: &str| parse(&journal::seal(body)).unwrap_err();
        let start = "homenode damon 1\nboot x\nowner 1 2\n";
        assert_eq!(wrong(start), (4, "it ends too early".into()));
        assert_eq!(wrong(&format!("{start}slot 1\n")).1, "`slot 0` is expected here");
        assert_eq!(wrong(&format!("{start}slot 0\nrun 1\n")).1, "nothing is expected here");
        assert_eq!(wrong("homenode ksm 1\n").1, "`homenode damon ` is expected here");
    }
}
