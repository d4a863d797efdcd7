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
use crate::journal::{self, Head, JournalError, Kind, Wrong};
use crate::place::Place;
use std::io;
use std::path::{Path, PathBuf};

static KIND: Kind = Kind {
    name: "damon",
    version: "1",
    remedy: "and whose slot there is can't be told. Nothing was changed. Look at \
             `grep -r . /sys/kernel/mm/damon/admin`; if nobody uses DAMON, write off into \
             kdamonds/0/state and 0 into kdamonds/nr_kdamonds, and remove the journal",
    who: |pid| match pid {
        0 => "another homenode".to_owned(),
        pid => format!("homenode, process {pid},"),
    },
    at_work: "uses DAMON already (one homenode at a time can)",
    left: "used DAMON and ended without taking its slot down",
};
const SLOT: &str = "slot 0";

fn to_text(head: &Head) -> String {
    KIND.to_text(head, &format!("{SLOT}\n"))
}

fn parse(text: &str) -> Result<Head, Wrong> {
    let (head, mut lines) = KIND.parse(text)?;
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

fn load(path: &Path) -> Result<Option<Head>, JournalError> {
    KIND.load(path, parse)
}

/// Says whose the slot is that may be there, if it is a homenode's.
///
/// # Errors
/// As [`Kind::check`].
pub(super) fn look(place: &Place) -> Result<(), DamonError> {
    match load(&KIND.path(place)) {
        Ok(Some(head)) => Ok(KIND.check(place, &head)?),
        Ok(None) => Ok(()),
        // Who may not read it will lack more.
        Err(JournalError::System { source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            Ok(())
        }
        Err(e) => Err(e.into()),
    }
}

/// The journal while the slot is there.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    _lock: journal::Lock,
}

impl Kept {
    /// Takes the lock and puts the journal on disk. One of an earlier boot is replaced.
    pub(super) fn begin(place: &Place, me: (u32, u64)) -> Result<Self, DamonError> {
        let lock = KIND.lock(place)?;
        // Again, now that nobody else can write it.
        look(place)?;
        let path = KIND.path(place);
        journal::save(&path, &to_text(&Head::new(place, me)?))?;
        Ok(Self { path, _lock: lock })
    }
    /// The slot is down.
    pub(super) fn end(self) -> Result<(), DamonError> {
        Ok(journal::remove(&self.path)?)
    }
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
    let path = KIND.path(place);
    if !path.exists() {
        return Ok(Restored::Nothing);
    }
    let _lock = KIND.lock(place)?;
    let Some(head) = load(&path)? else { return Ok(Restored::Nothing) };
    let pid = head.owner.0;
    let restored = if KIND.is_stale(place, &head)? {
        Restored::Stale(format!(
            "{}: this journal is of an earlier boot, whose slot of DAMON went with it: thrown away",
            path.display()
        ))
    } else if matches!(slot::count(files), None | Some(0)) {
        Restored::Stale(format!(
            "DAMON has no slot any more that process {pid} left: the journal was thrown away"
        ))
    // While it is being made it has the mark, but is off still.
    } else if slot::is_of(files, pid) || (slot::is_marked(files, pid) && !slot::is_on(files)?) {
        slot::remove(files)?;
        Restored::Done(format!(
            "DAMON's slot of process {pid}, which ended without doing so, was taken down"
        ))
    } else {
        Restored::Left(format!(
            "DAMON's slots are not as process {pid} left them: somebody else has set them up \
             since, and they were not touched. If nobody uses DAMON: off into \
             /sys/kernel/mm/damon/admin/kdamonds/0/state, 0 into nr_kdamonds"
        ))
    };
    journal::remove(&path)?;
    Ok(restored)
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
