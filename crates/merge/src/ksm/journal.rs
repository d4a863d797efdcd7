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

use homenode_core::kernel::KernelVersion;
use homenode_core::ksm::files::File;
use homenode_core::ksm::plan::{Kept, Ours};
use homenode_live::journal::{self, Head, JournalError, Kind, Wrong};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// The journal of the one driver.
pub(super) static KIND: Kind = Kind {
    name: "ksm",
    version: "1",
    remedy: "and old values are not guessed. Nothing was changed. Look at \
             `grep . /sys/kernel/mm/ksm/*` (the kernel's defaults are run 0, pages_to_scan 100, \
             sleep_millisecs 20, merge_across_nodes 1, advisor_mode none), set by hand what is \
             wrong, and remove the journal",
    who: |pid| if pid == 0 { "another process".to_owned() } else { format!("process {pid}") },
    at_work: "is driving the kernel's merging already (`homenode merge drive --act` and \
              `homenode truth merge` do, one at a time)",
    left: "drove the kernel's merging and ended without putting the knobs back",
};
/// Every value is ours.
const ANY: &str = "any";

/// What a journal says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Journal {
    /// The boot, and the driver.
    pub(super) head: Head,
    /// The knobs.
    pub(super) kept: BTreeMap<File, Kept>,
}

impl Journal {
    fn to_text(&self) -> String {
        let mut text = String::new();
        for k in self.kept.values() {
            let ours: String = match &k.ours {
                Ours::These(values) => values.iter().map(|v| format!(" {v}")).collect(),
                Ours::Any => format!(" {ANY}"),
            };
            let _ = writeln!(text, "{} {}{ours}", k.file.name(), k.old);
        }
        KIND.to_text(&self.head, &text)
    }

    fn parse(text: &str) -> Result<Self, Wrong> {
        let (head, lines) = KIND.parse(text)?;
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
        Ok(Self { head, kept })
    }

    /// Reads one; `None` where there is none.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] if it is not what was written.
    pub(super) fn load(path: &Path) -> Result<Option<Self>, JournalError> {
        KIND.load(path, Self::parse)
    }

    /// Puts it on disk, in place of the one before, and waits until it is there.
    pub(super) fn save(&self, path: &Path) -> Result<(), JournalError> {
        journal::save(path, &self.to_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> Journal {
        let kept = |file, old, ours: &[u64]| {
            (file, Kept { file, old, ours: ours.iter().copied().collect() })
        };
        Journal {
            head: Head {
                boot: "4c1f7a52-5f5d-4a8e-9a5e-0d6f0c1b2a39".into(),
                owner: (4711, 184_467),
            },
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
        let sealed = journal::seal;
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
