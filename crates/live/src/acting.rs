//! Who acts on this machine, and the knobs that it has changed.
//!
//! ```text
//! homenode act 1
//! boot 4c1f7a52-5f5d-4a8e-9a5e-0d6f0c1b2a39
//! owner 4711 184467
//! kernel 6.12.9-amd64
//! knob /proc/sys/kernel/numa_balancing 0 2
//! end 8f0d51c3a1b2c3d4
//! ```
//!
//! A knob by line: its path, its old value, ours. The journal is on disk before the knob is
//! written, and is there while somebody acts, also where no knob is changed: it says who
//! has the lock.
//!
//! One that looks at statistics of the kernel's own changes a knob too: a `Purpose` of its own.
//!
//! A knob that shows neither value is somebody else's since then, and is left alone.
//!
//! Source: specs/act.md#knobs.

use crate::journal::{self, Head, JournalError, Kind, Wrong};
use crate::people::stat::start_of;
use crate::place::Place;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What knobs are changed for: each purpose has a journal and a lock of its own.
#[derive(Debug)]
pub struct Purpose {
    pub(crate) kind: Kind,
    /// All knobs that are ever changed for it. Each value is one word.
    pub knobs: &'static [&'static str],
}

impl Purpose {
    /// A word, by which its journal is called.
    pub const fn name(&self) -> &'static str {
        self.kind.name
    }
}

/// Who it is that has a journal, by its number.
pub(crate) fn who(pid: u32) -> String {
    match pid {
        0 => "another homenode".to_owned(),
        pid => format!("homenode, process {pid},"),
    }
}

/// To act: to move memory, or have the kernel move it.
pub static ACTING: Purpose = Purpose {
    kind: Kind {
        name: "act",
        version: "1",
        remedy: "and old values are not guessed. Nothing was changed. Look at \
                 /proc/sys/kernel/numa_balancing, numa_balancing_promote_rate_limit_MBps beside it \
                 and /sys/kernel/mm/numa/demotion_enabled, set by hand what is wrong, and remove the \
                 journal",
        who,
        at_work: "acts on this machine already (one at a time can)",
        left: "acted on this machine and ended without putting the knobs back",
    },
    knobs: &[BALANCING, PROMOTE_LIMIT, DEMOTION],
};

/// Why nothing can be changed, or could not be.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// The journal or the lock.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A knob could not be read or written.
    #[error("{path}: can't {what}")]
    Knob {
        /// Which.
        path: String,
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

/// A knob that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its path, as on any machine.
    pub path: String,
    /// What it was.
    pub old: String,
    /// What it was set to.
    pub new: String,
}

/// What a journal says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Journal {
    head: Head,
    kernel: String,
    knobs: Vec<Changed>,
}

impl Journal {
    fn to_text(&self, purpose: &Purpose) -> String {
        let mut text = format!("kernel {}\n", self.kernel);
        for k in &self.knobs {
            let _ = writeln!(text, "knob {} {} {}", k.path, k.old, k.new);
        }
        purpose.kind.to_text(&self.head, &text)
    }

    fn parse(purpose: &Purpose, text: &str) -> Result<Self, Wrong> {
        let (head, mut lines) = purpose.kind.parse(text)?;
        let kernel = match lines.next() {
            Some((at, line)) => {
                let rest = line.strip_prefix("kernel ");
                rest.ok_or_else(|| (at, "`kernel ` is expected here".to_owned()))?
            }
            None => return Err((4, "it ends too early".to_owned())),
        };
        let knobs = lines.map(|(at, line)| match line.split(' ').collect::<Vec<_>>()[..] {
            ["knob", path, old, new]
                if purpose.knobs.contains(&path) && !old.is_empty() && !new.is_empty() =>
            {
                Ok(Changed { path: path.into(), old: old.into(), new: new.into() })
            }
            _ => Err((at, "a knob that homenode sets, with two values, is expected".to_owned())),
        });
        let knobs = knobs.collect::<Result<_, _>>()?;
        Ok(Self { head, kernel: kernel.to_owned(), knobs })
    }
}

/// The kernel's balancing: a bit field, 1 between nodes with CPUs, 2 to faster memory.
pub const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
/// Most that it moves up, in MB/s.
pub const PROMOTE_LIMIT: &str = "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps";
/// Whether reclaim sends pages down.
pub const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";

/// What a knob shows; `None` if this kernel doesn't have it.
pub fn shown(place: &Place, path: &str) -> Option<String> {
    fs::read_to_string(place.path(path)).ok().map(|text| text.trim().to_owned())
}

fn write(place: &Place, path: &str, value: &str) -> io::Result<()> {
    // Neither made nor cut: these files are the kernel's.
    let mut file = fs::File::options().write(true).open(place.path(path))?;
    io::Write::write_all(&mut file, format!("{value}\n").as_bytes())
}

/// That this process acts, or what else it changes knobs for, until it is dropped.
#[derive(Debug)]
pub struct Actor {
    purpose: &'static Purpose,
    place: Place,
    path: PathBuf,
    journal: Journal,
    over: bool,
    _lock: journal::Lock,
}

/// How knobs were put back.
#[derive(Debug, Default)]
pub struct PutBack {
    /// Set back to what they were, in this order.
    pub set: Vec<Changed>,
    /// Left, since somebody else has set them: what they show.
    pub left: Vec<(Changed, String)>,
    /// Those that refused, and what the system said.
    pub failed: Vec<(Changed, io::Error)>,
    /// The journal, where something in it is to be tried again.
    pub journal: Option<PathBuf>,
}

impl PutBack {
    /// Sentences on what is not as it was.
    pub fn sentences(&self) -> Vec<String> {
        let mut out = Vec::new();
        for (k, now) in &self.left {
            out.push(format!("{} is {now} now, which homenode did not write: left", k.path));
        }
        for (k, e) in &self.failed {
            out.push(format!("{} could not be set back to {}: {e}", k.path, k.old));
        }
        if let Some(journal) = &self.journal {
            out.push(format!(
                "what is missing stays in {}; `homenode restore` tries again",
                journal.display()
            ));
        }
        out
    }
}

impl Actor {
    /// Takes the lock, and puts a journal without knobs on disk. Returns a sentence if one
    /// of an earlier boot was thrown away.
    ///
    /// # Errors
    /// [`JournalError`]: somebody acts, or has ended without putting knobs back; or the
    /// journal can't be written. Nothing is changed then.
    pub fn begin(
        purpose: &'static Purpose,
        place: &Place,
    ) -> Result<(Self, Option<String>), ActError> {
        let kind = &purpose.kind;
        let path = kind.path(place);
        let lock = kind.lock(place)?;
        let mut note = None;
        if let Some(old) = kind.load(&path, |text| Journal::parse(purpose, text))? {
            match kind.check(place, &old.head) {
                Ok(()) => {
                    journal::remove(&path)?;
                    note = Some(stale(&path));
                }
                // Whoever had it ended before anything was changed.
                Err(JournalError::Unfinished { .. }) if old.knobs.is_empty() => {}
                Err(e) => return Err(e.into()),
            }
        }
        let pid = std::process::id();
        let head = Head::new(place, (pid, start_of(place, pid).unwrap_or(0)))?;
        let kernel = shown(place, "/proc/sys/kernel/osrelease").unwrap_or_default();
        let journal = Journal { head, kernel, knobs: Vec::new() };
        journal::save(&path, &journal.to_text(purpose))?;
        let place = place.clone();
        Ok((Self { purpose, place, path, journal, over: false, _lock: lock }, note))
    }

    /// Sets a knob; one that has the value already is not touched. Returns whether it was.
    ///
    /// # Errors
    /// [`ActError`]: a journal or a knob that can't be written. The knob is as it was.
    ///
    /// # Panics
    /// For a path that is no knob of the purpose: `restore` would call the journal damaged.
    pub fn set(&mut self, path: &str, value: &str) -> Result<bool, ActError> {
        assert!(self.purpose.knobs.contains(&path), "{path} is no knob that a journal can hold");
        let failed = |what: String, source| ActError::Knob { path: path.to_owned(), what, source };
        let old = fs::read_to_string(self.place.path(path))
            .map_err(|e| failed("read it".to_owned(), e))?;
        let (path, old) = (path.to_owned(), old.trim().to_owned());
        if old == value {
            return Ok(false);
        }
        self.journal.knobs.push(Changed { path: path.clone(), old, new: value.to_owned() });
        if let Err(e) = journal::save(&self.path, &self.journal.to_text(self.purpose)) {
            self.journal.knobs.pop();
            return Err(e.into());
        }
        if let Err(e) = write(&self.place, &path, value) {
            // What is in the journal beyond that is a knob that shows its old value.
            self.journal.knobs.pop();
            return Err(failed(format!("write {value}"), e));
        }
        Ok(true)
    }

    /// Knobs that were changed.
    pub fn changed(&self) -> &[Changed] {
        &self.journal.knobs
    }

    /// Knobs of ours that show something else now, with what: somebody else has set them.
    pub fn theirs(&self) -> Vec<(Changed, String)> {
        let now = |k: &Changed| shown(&self.place, &k.path).filter(|now| *now != k.new);
        self.journal.knobs.iter().filter_map(|k| Some((k.clone(), now(k)?))).collect()
    }

    /// Puts the knobs back and goes on acting, with none changed.
    ///
    /// # Errors
    /// [`JournalError`]: the journal that says who acts can't be written; the knobs are back.
    pub fn rest(&mut self) -> Result<PutBack, ActError> {
        let back = put_back(self.purpose, &self.place, &mut self.journal, &self.path);
        if back.journal.is_none() {
            journal::save(&self.path, &self.journal.to_text(self.purpose))?;
        }
        Ok(back)
    }

    /// Puts the knobs back and ends.
    pub fn end(mut self) -> PutBack {
        self.over = true;
        put_back(self.purpose, &self.place, &mut self.journal, &self.path)
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        if !self.over {
            for line in
                put_back(self.purpose, &self.place, &mut self.journal, &self.path).sentences()
            {
                eprintln!("homenode: {line}");
            }
        }
    }
}

/// The last one that was changed comes first.
fn put_back(purpose: &Purpose, place: &Place, journal: &mut Journal, path: &Path) -> PutBack {
    let mut done = PutBack::default();
    for k in std::mem::take(&mut journal.knobs).into_iter().rev() {
        match shown(place, &k.path) {
            // Gone with what it was a knob of.
            None => {}
            Some(now) if now == k.old => {}
            Some(now) if now != k.new => done.left.push((k, now)),
            Some(_) => match write(place, &k.path, &k.old) {
                Ok(()) => done.set.push(k),
                Err(e) => done.failed.push((k, e)),
            },
        }
    }
    journal.knobs = done.failed.iter().rev().map(|(k, _)| k.clone()).collect();
    let saved = match journal.knobs.is_empty() {
        true => journal::remove(path),
        false => journal::save(path, &journal.to_text(purpose)),
    };
    if saved.is_err() || !journal.knobs.is_empty() {
        done.journal = Some(path.to_owned());
    }
    done
}

fn stale(path: &Path) -> String {
    format!(
        "{}: this journal is of an earlier boot, since when the knobs are the kernel's own again: \
         thrown away",
        path.display()
    )
}

/// What restoring found.
#[derive(Debug)]
pub enum Restored {
    /// No journal: nothing to do.
    Nothing,
    /// One of an earlier boot, or without knobs, now thrown away; a sentence.
    Stale(String),
    /// Knobs were put back.
    Done(PutBack),
}

/// Puts back what a homenode that ended without doing so has changed. Doing it again does
/// nothing.
///
/// # Errors
/// [`JournalError`] while that one lives, or if the journal is damaged.
pub fn restore(purpose: &'static Purpose, place: &Place) -> Result<Restored, ActError> {
    let kind = &purpose.kind;
    let path = kind.path(place);
    if !path.exists() {
        return Ok(Restored::Nothing);
    }
    let _lock = kind.lock(place)?;
    let Some(mut journal) = kind.load(&path, |text| Journal::parse(purpose, text))? else {
        return Ok(Restored::Nothing);
    };
    if kind.is_stale(place, &journal.head)? {
        journal::remove(&path)?;
        return Ok(Restored::Stale(stale(&path)));
    }
    if journal.knobs.is_empty() {
        journal::remove(&path)?;
        let pid = journal.head.owner.0;
        let note = format!("process {pid}, which was killed, had changed no knob");
        return Ok(Restored::Stale(note));
    }
    Ok(Restored::Done(put_back(purpose, place, &mut journal, &path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_fixtures::Folder;

    /// A machine whose knobs are files.
    fn machine() -> (Folder, Place) {
        let at = Folder::new();
        let place = Place::at(&at);
        for (path, text) in [
            ("/proc/sys/kernel/random/boot_id", "4c1f7a52\n"),
            ("/proc/sys/kernel/osrelease", "6.12.9-two\n"),
            (BALANCING, "1\n"),
            (PROMOTE_LIMIT, "65536\n"),
            (DEMOTION, "false\n"),
        ] {
            let path = place.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        (at, place)
    }
    fn knobs(place: &Place) -> Vec<String> {
        ACTING.knobs.iter().map(|k| shown(place, k).unwrap()).collect()
    }
    /// As SIGKILL leaves it: journal and knobs stay, the lock goes, the owner is dead.
    fn kill(acting: Actor) {
        let dead = Journal {
            head: Head { owner: (u32::MAX, 1), ..acting.journal.head.clone() },
            ..acting.journal.clone()
        };
        journal::save(&acting.path, &dead.to_text(&ACTING)).unwrap();
        let mut acting = std::mem::ManuallyDrop::new(acting);
        // SAFETY: the lock's file is closed once, and what holds it is not used again.
        unsafe { std::ptr::drop_in_place(&raw mut acting._lock) };
    }

    #[test]
    fn knobs_come_back_at_the_end_and_after_a_crash() {
        let (_at, place) = machine();
        let before = knobs(&place);
        let (mut acting, note) = Actor::begin(&ACTING, &place).unwrap();
        assert_eq!(note, None);
        assert!(acting.set(BALANCING, "2").unwrap());
        assert!(acting.set(DEMOTION, "true").unwrap());
        assert!(!acting.set(PROMOTE_LIMIT, "65536").unwrap(), "it has the value");
        let text = fs::read_to_string(ACTING.kind.path(&place)).unwrap();
        assert!(text.contains("kernel 6.12.9-two\nknob /proc/sys/kernel/numa_balancing 1 2\n"));
        assert_eq!(knobs(&place), ["2", "65536", "true"]);
        let back = acting.end();
        assert_eq!(
            back.set.iter().map(|k| k.path.as_str()).collect::<Vec<_>>(),
            [DEMOTION, BALANCING]
        );
        assert_eq!(knobs(&place), before);
        assert!(!ACTING.kind.path(&place).exists());

        let (mut acting, _) = Actor::begin(&ACTING, &place).unwrap();
        acting.set(BALANCING, "3").unwrap();
        kill(acting);
        // The second start offers it, and changes nothing.
        let told = Actor::begin(&ACTING, &place).unwrap_err().to_string();
        assert!(told.contains("`homenode restore` does that"), "{told}");
        assert_eq!(knobs(&place)[0], "3");
        let Restored::Done(back) = restore(&ACTING, &place).unwrap() else {
            panic!("there is a journal")
        };
        assert_eq!((back.set.len(), back.sentences().len()), (1, 0));
        assert_eq!(knobs(&place), before);
        assert!(matches!(restore(&ACTING, &place), Ok(Restored::Nothing)));
    }

    #[test]
    fn the_second_is_told_who_acts() {
        let (_at, place) = machine();
        let (acting, _) = Actor::begin(&ACTING, &place).unwrap();
        let me = std::process::id();
        for told in
            [Actor::begin(&ACTING, &place).unwrap_err(), restore(&ACTING, &place).unwrap_err()]
        {
            let due = format!("homenode, process {me}, acts on this machine already");
            assert!(told.to_string().contains(&due), "{told}");
        }
        // A process that is being forked has all files open until it calls exec.
        let forked = acting._lock.again();
        drop(acting);
        assert!(Actor::begin(&ACTING, &place).is_ok());
        drop(forked);
    }

    #[test]
    fn a_knob_that_somebody_else_has_set_is_theirs() {
        let (_at, place) = machine();
        let (mut acting, _) = Actor::begin(&ACTING, &place).unwrap();
        acting.set(BALANCING, "2").unwrap();
        acting.set(DEMOTION, "true").unwrap();
        assert_eq!(acting.theirs(), []);
        fs::write(place.path(BALANCING), "0\n").unwrap();
        let theirs = acting.theirs();
        assert_eq!((theirs.len(), theirs[0].1.as_str()), (1, "0"));
        let back = acting.end();
        assert_eq!(
            back.sentences(),
            ["/proc/sys/kernel/numa_balancing is 0 now, which homenode did not write: left"]
        );
        assert_eq!(knobs(&place), ["0", "65536", "false"]);
        assert!(!ACTING.kind.path(&place).exists(), "nothing is to be tried again");
    }

    #[test]
    fn a_journal_of_another_boot_is_thrown_away_and_that_is_said() {
        let (_at, place) = machine();
        let (mut acting, _) = Actor::begin(&ACTING, &place).unwrap();
        acting.set(BALANCING, "2").unwrap();
        kill(acting);
        fs::write(place.path("/proc/sys/kernel/random/boot_id"), "another\n").unwrap();
        let text = fs::read_to_string(ACTING.kind.path(&place)).unwrap();
        let Restored::Stale(note) = restore(&ACTING, &place).unwrap() else {
            panic!("it is stale")
        };
        assert!(note.contains("of an earlier boot"), "{note}");
        assert_eq!(knobs(&place)[0], "2", "what the kernel booted with is not ours");
        fs::write(ACTING.kind.path(&place), text).unwrap();
        let (_acting, note) = Actor::begin(&ACTING, &place).unwrap();
        assert!(note.is_some_and(|n| n.contains("of an earlier boot")));
    }

    #[test]
    fn no_journal_no_change() {
        let (_at, place) = machine();
        let (mut acting, _) = Actor::begin(&ACTING, &place).unwrap();
        // A disk that is full: what is written beside the journal goes nowhere.
        std::os::unix::fs::symlink("/dev/full", acting.path.with_extension("new")).unwrap();
        let told = crate::sentence(&acting.set(BALANCING, "2").unwrap_err());
        assert!(
            told.contains("can't write the journal") && told.contains("No space left"),
            "{told}"
        );
        assert_eq!(knobs(&place)[0], "1");
        assert_eq!(acting.changed(), []);
    }

    #[test]
    fn no_part_of_a_journal_and_no_other_knob_is_believed() {
        let knob = |path: &str| Changed { path: path.into(), old: "0".into(), new: "1".into() };
        let head = Head { boot: "4c1f7a52".into(), owner: (4711, 184_467) };
        let journal = Journal { head, kernel: "6.12".into(), knobs: vec![knob(BALANCING)] };
        let text = journal.to_text(&ACTING);
        assert_eq!(Journal::parse(&ACTING, &text).as_ref(), Ok(&journal));
        for end in 0..text.len() {
            assert!(Journal::parse(&ACTING, &text[..end]).is_err(), "{}", &text[..end]);
        }
        let other = Journal { knobs: vec![knob("/etc/passwd")], ..journal };
        assert_eq!(Journal::parse(&ACTING, &other.to_text(&ACTING)).unwrap_err().0, 5);
    }
}
