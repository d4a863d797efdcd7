//! What the knobs were, on disk before they are changed.
//!
//! ```text
//! homenode ksm 1
//! boot 4c1f7a52-5f5d-4a8e-9a5e-0d6f0c1b2a39
//! owner 4711 184467
//! run 0 1
//! pages_to_scan 100 526 263
//! end 8f0d51c3a1b2c3d4
//! ```
//!
//! By line: this boot, the driver by number and start time, each knob with its old
//! value and those of ours, a checksum of all before. It is written beside and
//! renamed, and can be read by its owner only.
//!
//! `run 0 any` in place of ours means that whatever the knob shows is ours. A
//! homenode that does not know the word calls such a journal damaged and touches
//! nothing; journals without it are as they always were, hence the same version.

use super::{KsmError, Place};
use homenode_core::kernel::KernelVersion;
use homenode_core::ksm::files::File;
use homenode_core::ksm::plan::{Kept, Ours};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const HEAD: &str = "homenode ksm ";
const VERSION: &str = "1";
/// Every value is ours.
const ANY: &str = "any";

/// What a journal says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Journal {
    /// The boot's id.
    pub(super) boot: String,
    /// The driver and when it was started, in clock ticks since boot.
    pub(super) owner: (u32, u64),
    /// The knobs.
    pub(super) kept: BTreeMap<File, Kept>,
}

/// Where it is.
pub(super) fn path(place: &Place) -> PathBuf {
    place.run_folder().join("ksm.journal")
}

/// FNV-1a of 64 bits: enough to tell a file that was cut or edited.
fn checksum(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

impl Journal {
    fn to_text(&self) -> String {
        let mut text = format!(
            "{HEAD}{VERSION}\nboot {}\nowner {} {}\n",
            self.boot, self.owner.0, self.owner.1
        );
        for k in self.kept.values() {
            let _ = write!(text, "{} {}", k.file.name(), k.old);
            match &k.ours {
                Ours::These(values) => values.iter().for_each(|v| {
                    let _ = write!(text, " {v}");
                }),
                Ours::Any => {
                    let _ = write!(text, " {ANY}");
                }
            }
            text.push('\n');
        }
        let sum = checksum(&text);
        let _ = writeln!(text, "end {sum:016x}");
        text
    }

    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let cut = || (text.lines().count().max(1), "it ends too early".to_owned());
        let body_end = text.rfind("end ").filter(|at| *at == 0 || text.as_bytes()[at - 1] == b'\n');
        let (body, end) = text.split_at(body_end.ok_or_else(cut)?);
        let sum = end.strip_prefix("end ").and_then(|e| e.strip_suffix('\n')).ok_or_else(cut)?;
        if sum.len() != 16 || u64::from_str_radix(sum, 16) != Ok(checksum(body)) {
            return Err((text.lines().count(), "its checksum is wrong".to_owned()));
        }
        let mut lines = body.lines().enumerate().map(|(i, l)| (i + 1, l));
        let mut next = |what: &str| {
            let (at, line) = lines.next().ok_or_else(cut)?;
            match line.strip_prefix(what) {
                Some(rest) => Ok((at, rest)),
                None => Err((at, format!("`{what}` is expected here"))),
            }
        };
        let (at, rest) = next(HEAD)?;
        if rest != VERSION {
            return Err((at, "another version of homenode wrote it".to_owned()));
        }
        let boot = next("boot ")?.1.to_owned();
        let (at, owner) = next("owner ")?;
        let owner = owner
            .split_once(' ')
            .and_then(|(pid, start)| Some((pid.parse().ok()?, start.parse().ok()?)))
            .ok_or_else(|| (at, "two numbers are expected".to_owned()))?;
        let mut kept = BTreeMap::new();
        for (at, line) in lines {
            let (line, any) = match line.strip_suffix(ANY).and_then(|l| l.strip_suffix(' ')) {
                Some(rest) => (rest, true),
                None => (line, false),
            };
            let mut words = line.split(' ');
            let name = words.next().unwrap_or_default();
            let file = KernelVersion::ALL
                .into_iter()
                .find_map(|v| File::find(name, v))
                .filter(|f| f.name() == name && !f.is_counter())
                .ok_or_else(|| (at, format!("there is no knob `{name}`")))?;
            let numbers: Option<Vec<u64>> = words.map(|w| w.parse().ok()).collect();
            let numbers = numbers.unwrap_or_default();
            let (old, ours) =
                numbers.split_first().ok_or_else(|| (at, "numbers are expected".to_owned()))?;
            let ours = match (any, ours) {
                (false, ours) => ours.iter().copied().collect(),
                (true, []) => Ours::Any,
                (true, _) => return Err((at, format!("either numbers or `{ANY}`"))),
            };
            kept.insert(file, Kept { file, old: *old, ours });
        }
        Ok(Self { boot, owner, kept })
    }

    /// Reads one; `None` where there is none.
    ///
    /// # Errors
    /// [`KsmError::Damaged`] if it is not what was written.
    pub(super) fn load(path: &Path) -> Result<Option<Self>, KsmError> {
        let text = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                return Err(KsmError::Journal {
                    what: "read the journal",
                    path: path.to_owned(),
                    source,
                });
            }
        };
        Self::parse(&String::from_utf8_lossy(&text))
            .map(Some)
            .map_err(|(line, what)| KsmError::Damaged { journal: path.to_owned(), line, what })
    }

    /// Puts it on disk, in place of the one before, and waits until it is there.
    pub(super) fn save(&self, path: &Path) -> Result<(), KsmError> {
        let beside = path.with_extension("new");
        let write = || -> io::Result<()> {
            let mut file = fs::File::options()
                .create(true)
                .truncate(true)
                .write(true)
                .mode(0o600)
                .open(&beside)?;
            file.write_all(self.to_text().as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, path)?;
            sync_folder(path)
        };
        write().map_err(|source| KsmError::Journal {
            what: "write the journal",
            path: path.to_owned(),
            source,
        })
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    fs::File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Removes it; one that is not there is no error.
pub(super) fn remove(path: &Path) -> Result<(), KsmError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.and_then(|()| sync_folder(path)).map_err(|source| KsmError::Journal {
            what: "remove the journal",
            path: path.to_owned(),
            source,
        }),
    }
}

/// The lock of the one driver; it goes with the file.
pub(super) fn lock(place: &Place) -> Result<Option<fs::File>, KsmError> {
    use std::os::fd::AsRawFd;
    let folder = place.run_folder();
    let path = folder.join("ksm.lock");
    let failed = |source: io::Error| KsmError::Journal {
        what: match source.kind() {
            io::ErrorKind::PermissionDenied => "take the lock (it needs root)",
            _ => "take the lock",
        },
        path: path.clone(),
        source,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> Journal {
        let kept = |file, old, ours: &[u64]| {
            (file, Kept { file, old, ours: ours.iter().copied().collect() })
        };
        Journal {
            boot: "4c1f7a52-5f5d-4a8e-9a5e-0d6f0c1b2a39".into(),
            owner: (4711, 184_467),
            kept: [
                kept(File::Run, 0, &[1]),
                kept(File::PagesToScan, 100, &[526, 263]),
                kept(File::AdvisorMode, 1, &[]),
            ]
            .into(),
        }
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let text = journal().to_text();
        assert_eq!(Journal::parse(&text), Ok(journal()));
        assert!(text.contains("\npages_to_scan 100 263 526\n"), "{text}");
    }

    #[test]
    fn one_of_whom_everything_is_says_so_in_a_word() {
        let mut journal = journal();
        let run = Kept { file: File::Run, old: 2, ours: Ours::Any };
        journal.kept.insert(File::Run, run);
        let text = journal.to_text();
        assert!(text.contains("\nrun 2 any\npages_to_scan 100 263 526\n"), "{text}");
        assert_eq!(Journal::parse(&text), Ok(journal));
    }

    #[test]
    fn journals_from_before_that_word_are_read() {
        let text = "homenode ksm 1\nboot 4c1f7a52-5f5d-4a8e-9a5e-0d6f0c1b2a39\nowner 4711 184467\n\
                    run 0 1\npages_to_scan 100 263 526\nadvisor_mode 1\nend 81e79e8bb1ca9620\n";
        assert_eq!(Journal::parse(text), Ok(journal()));
        assert_eq!(journal().to_text(), text);
    }

    #[test]
    fn no_part_and_no_other_version_of_it_is_believed() {
        let text = journal().to_text();
        for end in 0..text.len() {
            assert!(Journal::parse(&text[..end]).is_err(), "{}", &text[..end]);
        }
        // Any one changed byte.
        for at in 0..text.len() - 1 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'7' { b'8' } else { b'7' };
            let changed = String::from_utf8(bytes).unwrap();
            assert!(Journal::parse(&changed).is_err(), "{changed}");
        }
        let sealed = |body: &str| format!("{body}end {:016x}\n", checksum(body));
        let wrong = |body: &str| Journal::parse(&sealed(body)).unwrap_err();
        assert_eq!(wrong("homenode ksm 2\n").1, "another version of homenode wrote it");
        let head = "homenode ksm 1\nboot x\nowner 1 2\n";
        assert_eq!(
            wrong(&format!("{head}pages_shared 1\n")),
            (4, "there is no knob `pages_shared`".into())
        );
        assert_eq!(wrong(&format!("{head}run\n")), (4, "numbers are expected".into()));
        assert_eq!(wrong(&format!("{head}run 0 x\n")), (4, "numbers are expected".into()));
        assert_eq!(wrong(&format!("{head}run any\n")), (4, "numbers are expected".into()));
        assert_eq!(wrong(&format!("{head}run 0 any 1\n")), (4, "numbers are expected".into()));
        assert_eq!(wrong(&format!("{head}run 0 1 any\n")), (4, "either numbers or `any`".into()));
        assert_eq!(wrong("homenode ksm 1\nowner 1 2\n"), (2, "`boot ` is expected here".into()));
    }
}
