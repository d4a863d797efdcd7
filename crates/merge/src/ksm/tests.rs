//! Holding and restoring, against files that follow the kernel's rules and can be
//! made to fail. What the kernel itself does is in `crates/cli/tests/drive.rs`.

use super::*;
use homenode_core::kernel::KernelVersion;
use homenode_core::ksm::Ksm;
use homenode_core::ksm::plan::{Left, predict, text_of};
use homenode_fixtures::Folder;
use homenode_live::journal::JournalError;
use std::cell::{Cell, RefCell};

/// Files as a kernel has them.
#[derive(Debug)]
struct Fake {
    shown: RefCell<Shown>,
    /// What is written, in order.
    log: RefCell<Vec<String>>,
    /// A knob that refuses, and how.
    refuses: Cell<Option<(File, i32)>>,
    /// A knob whose text nobody understands.
    garbled: Cell<Option<File>>,
    /// Unmerging ends with ENOMEM when half is done.
    no_memory: Cell<bool>,
    /// A merged page of processes that have gone, which no counter tells.
    ghost: Cell<bool>,
}

impl Fake {
    fn new() -> Self {
        let ksm = Ksm::new(KernelVersion::V6_12, 1);
        let number = |f: File| (f, value_of(f, &ksm.read(f.name()).unwrap()).unwrap());
        Self {
            shown: RefCell::new(File::ALL.into_iter().map(number).collect()),
            log: RefCell::default(),
            refuses: Cell::default(),
            garbled: Cell::default(),
            no_memory: Cell::default(),
            ghost: Cell::default(),
        }
    }
    fn put(&self, values: &[(File, u64)]) -> &Self {
        self.shown.borrow_mut().extend(values.iter().copied());
        self
    }
    fn get(&self, file: File) -> u64 {
        self.shown.borrow()[&file]
    }
    fn log(&self) -> String {
        std::mem::take(&mut *self.log.borrow_mut()).join(", ")
    }
}

impl Files for &Fake {
    fn read(&self, file: File) -> io::Result<String> {
        (**self).read(file)
    }
    fn write(&self, file: File, text: &str) -> io::Result<()> {
        (**self).write(file, text)
    }
    fn writable(&self) -> io::Result<()> {
        (**self).writable()
    }
}

impl Files for Fake {
    fn read(&self, file: File) -> io::Result<String> {
        let shown = self.shown.borrow();
        let value = shown.get(&file).ok_or(io::Error::from_raw_os_error(libc::ENOENT))?;
        Ok(match (file, value) {
            _ if self.garbled.get() == Some(file) => "?\n".to_owned(),
            (File::AdvisorMode, 0) => "[none] scan-time\n".to_owned(),
            (File::AdvisorMode, _) => "none [scan-time]\n".to_owned(),
            _ => format!("{value}\n"),
        })
    }
    fn write(&self, file: File, text: &str) -> io::Result<()> {
        self.log.borrow_mut().push(format!("{}={text}", file.name()));
        let error = |n| Err(io::Error::from_raw_os_error(n));
        if let Some((_, errno)) = self.refuses.get().filter(|(f, _)| *f == file) {
            return error(errno);
        }
        let value = match file {
            File::AdvisorMode => u64::from(text == "scan-time"),
            _ => text.parse().expect("a number"),
        };
        if let Err(e) = predict(&self.shown.borrow(), file, value) {
            return error(e.errno.number());
        }
        let limit = matches!(file, File::MergeAcrossNodes | File::MaxPageSharing);
        if limit && self.ghost.get() {
            return error(libc::EBUSY);
        }
        if (file, value) == (File::Run, 2) && self.get(File::Run) != 2 {
            let sharing = self.get(File::PagesSharing);
            if self.no_memory.get() {
                self.put(&[(File::Run, 0), (File::PagesSharing, sharing / 2)]);
                return error(libc::ENOMEM);
            }
            self.ghost.set(false);
            self.put(&[(File::PagesShared, 0), (File::PagesSharing, 0), (File::KsmZeroPages, 0)]);
        }
        if file == File::AdvisorMode && value != self.get(file) {
            self.put(&[(File::PagesToScan, if value == 0 { 100 } else { 500 })]);
        }
        self.put(&[(file, value)]);
        Ok(())
    }
    fn writable(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A machine in a folder: its memory and its boot.
struct Host(Folder);

impl Host {
    fn new() -> Self {
        let folder = Self(Folder::new());
        folder.memory(4 << 20, 8 << 20);
        folder.boot("4c1f7a52-5f5d-4a8e-9a5e-0d6f0c1b2a39");
        folder
    }
    fn place(&self) -> Place {
        Place::at(&self.0)
    }
    fn memory(&self, available_kib: u64, total_kib: u64) {
        let text = format!("MemTotal: {total_kib} kB\nMemAvailable: {available_kib} kB\n");
        self.0.write("proc/meminfo", text);
    }
    fn boot(&self, id: &str) {
        self.0.write("proc/sys/kernel/random/boot_id", format!("{id}\n"));
    }
    fn journal(&self) -> PathBuf {
        self.0.join("run/homenode/ksm.journal")
    }
    fn text(&self) -> String {
        fs::read_to_string(self.journal()).unwrap_or_default()
    }
    /// A process of this number that was started then.
    fn process(&self, pid: u32, start: u64) {
        let zeros = "0 ".repeat(17);
        self.0.write(format!("proc/{pid}/stat"), format!("{pid} (x) S 1 {zeros}{start} {zeros}\n"));
    }
}

/// All knobs, by name.
fn knobs(files: &Fake) -> Vec<(File, u64)> {
    files.shown().into_iter().filter(|(f, _)| !f.is_counter()).collect()
}

#[test]
fn one_who_is_alone_notes_all_knobs_once_and_writes_what_he_likes() {
    let (folder, files) = (Host::new(), Fake::new());
    files.put(&[(File::AdvisorMode, 1), (File::PagesToScan, 812), (File::SleepMillisecs, 33)]);
    let before = knobs(&files);
    let (alone, notes) = Alone::take(&folder.place(), &files).unwrap();
    assert!(notes.is_empty());
    assert_eq!(files.log(), "advisor_mode=none, run=2");
    let journal = folder.text();
    for (file, old) in &before {
        assert!(journal.contains(&format!("\n{} {old} any\n", file.name())), "{journal}");
    }
    // What the kernel refuses reaches it, and nothing is noted for it.
    files.put(&[(File::PagesShared, 5), (File::PagesSharing, 9)]);
    let error = alone.write("merge_across_nodes", "0").unwrap_err();
    assert_eq!(error.source.raw_os_error(), Some(libc::EBUSY));
    assert_eq!(error.to_string(), "/sys/kernel/mm/ksm/merge_across_nodes: \"0\" was refused");
    assert_eq!(files.log(), "merge_across_nodes=0");
    alone.write("no_such", "0").unwrap_err();
    alone.write("run", "1").unwrap();
    alone.write("pages_to_scan", "4711").unwrap();
    assert_eq!((folder.text(), alone.read("pages_to_scan").as_deref()), (journal, Some("4711")));
    // Between two cases: as after the beginning.
    files.log();
    alone.reset().unwrap();
    assert_eq!(files.log(), "advisor_mode=none, run=2, pages_to_scan=812");
    alone.write("max_page_sharing", "3").unwrap();
    alone.write("advisor_mode", "scan-time").unwrap();
    alone.write("run", "1").unwrap();
    files.put(&[(File::PagesShared, 5), (File::PagesSharing, 9)]);
    let restored = alone.restore();
    assert!(restored.sentences().is_empty() && !folder.journal().exists());
    files.put(&[(File::PagesToScan, 812)]);
    assert_eq!((knobs(&files), files.get(File::PagesShared)), (before, 0));
}

#[test]
fn a_knob_that_can_t_be_noted_is_not_written() {
    let (folder, files) = (Host::new(), Fake::new());
    files.garbled.set(Some(File::SmartScan));
    let (alone, _) = Alone::take(&folder.place(), &files).unwrap();
    files.log();
    let error = alone.write("smart_scan", "0").unwrap_err();
    assert!(error.source.to_string().contains("not known"), "{error}");
    assert_eq!(files.log(), "");
    // A reset that fails says so, and sets the rest.
    alone.write("pages_to_scan", "7").unwrap();
    alone.write("sleep_millisecs", "0").unwrap();
    files.refuses.set(Some((File::PagesToScan, libc::EIO)));
    let error = alone.reset().unwrap_err();
    assert!(matches!(error, KsmError::Write { name: "pages_to_scan", .. }), "{error}");
    assert_eq!(files.get(File::SleepMillisecs), 20);
    files.refuses.set(None);
}

#[test]
fn one_who_was_alone_and_was_killed_is_restored() {
    let (folder, files) = (Host::new(), Fake::new());
    let (place, before) = (folder.place(), knobs(&files));
    let (alone, _) = Alone::take(&place, &files).unwrap();
    let error = Hold::take(&place, &files).unwrap_err();
    assert!(error.to_string().contains("is driving the kernel's merging already"), "{error}");
    for (name, value) in [("pages_to_scan", "4711"), ("max_page_sharing", "3"), ("run", "1")] {
        alone.write(name, value).unwrap();
    }
    files.put(&[(File::PagesShared, 5), (File::PagesSharing, 9)]);
    kill(alone.hold);
    files.log();
    for error in [Alone::take(&place, &files).err(), Hold::take(&place, &files).err()] {
        let text = error.expect("a journal is there").to_string();
        assert!(text.contains("`homenode restore` does that. Nothing was changed"), "{text}");
    }
    assert_eq!(files.log(), "");
    let Restore::Done(restored) = restore(&place, &files).unwrap() else { panic!("no journal") };
    assert!(restored.sentences().is_empty());
    assert_eq!((knobs(&files), folder.journal().exists()), (before, false));
}

#[test]
fn nobody_is_alone_beside_others() {
    let (folder, files) = (Host::new(), Fake::new());
    let refused = |expected: &str| {
        let Err(error) = Alone::take(&folder.place(), &files) else { panic!("not refused") };
        assert!(error.to_string().contains(expected) && error.is_lack(), "{error}");
        assert_eq!((files.log().as_str(), folder.journal().exists()), ("", false));
    };
    files.put(&[(File::Run, 5)]);
    refused("memory is going offline");
    files.put(&[(File::Run, 1)]);
    refused("KSM is at work for others (run 1, pages_shared 0)");
    files.put(&[(File::Run, 0), (File::PagesShared, 3)]);
    refused("(run 0, pages_shared 3)");
    // Where all can be asked, and nobody is registered, these are of the dead.
    folder.process(std::process::id(), 5);
    fs::write(folder.0.join(format!("proc/{}/ksm_stat", std::process::id())), "").unwrap();
    refused("(run 0, pages_shared 3)");
    fs::create_dir_all(folder.0.join("proc/37")).unwrap();
    let ksmd = format!("37 (ksmd) S 2 0 0 0 -1 2097216 {}\n", "0 ".repeat(40));
    fs::write(folder.0.join("proc/37/stat"), ksmd).unwrap();
    drop(Alone::take(&folder.place(), &files).unwrap());
    assert_eq!((files.get(File::PagesShared), files.get(File::Run)), (0, 0));
    files.log();
    folder.process(4711, 1000);
    fs::write(folder.0.join("proc/4711/status"), "Uid:\t0\t0\t0\t0\n").unwrap();
    fs::write(folder.0.join("proc/4711/comm"), "guest\n").unwrap();
    fs::write(folder.0.join("proc/4711/ksm_stat"), "ksm_rmap_items 7\n").unwrap();
    refused("process 4711 (guest) registered memory for merging");
}

/// Ends without restoring, as SIGKILL would have it.
fn kill<F: Files>(hold: Hold<F>) {
    // The lock goes with the process; nothing else of it is worth a destructor.
    let mut hold = std::mem::ManuallyDrop::new(hold);
    // SAFETY: it is dropped once, and what holds it is not used again.
    unsafe { std::ptr::drop_in_place(&raw mut hold._lock) };
}

#[test]
fn the_journal_is_there_before_the_knob_changes() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, files) = (Host::new(), Fake::new());
    let (mut hold, notes) = Hold::take(&folder.place(), &files).unwrap();
    assert!(notes.is_empty() && !folder.journal().exists());
    files.refuses.set(Some((File::PagesToScan, libc::EIO)));
    let error = hold.set(File::PagesToScan, 526).unwrap_err();
    assert!(matches!(error, KsmError::Write { .. }), "{error}");
    assert!(folder.text().contains("\npages_to_scan 100 526\n"), "{}", folder.text());
    assert_eq!(folder.journal().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    files.refuses.set(None);
    assert_eq!(hold.set(File::PagesToScan, 526).unwrap(), Set::Done);
    assert_eq!(hold.set(File::PagesToScan, 263).unwrap(), Set::Done);
    assert!(folder.text().contains("\npages_to_scan 100 263 526\n"), "{}", folder.text());
    assert_eq!(hold.set(File::Run, 1).unwrap(), Set::Done);
    // What has the value already is not touched, hence not kept.
    assert_eq!(hold.set(File::SleepMillisecs, 20).unwrap(), Set::Done);
    files.log();
    let restored = hold.restore();
    assert_eq!(files.log(), "run=0, pages_to_scan=100");
    assert!(restored.sentences().is_empty() && !folder.journal().exists());
}

#[test]
fn what_the_kernel_would_refuse_is_not_tried() {
    let (folder, files) = (Host::new(), Fake::new());
    let (mut hold, _) = Hold::take(&folder.place(), &files).unwrap();
    files.put(&[(File::AdvisorMode, 1)]);
    assert!(matches!(hold.set(File::PagesToScan, 526), Err(KsmError::Refused(_))));
    files.put(&[(File::Run, 5)]);
    assert!(matches!(hold.set(File::Run, 1), Err(KsmError::Offline { name: "run" })));
    assert!(files.log().is_empty() && !folder.journal().exists());
}

#[test]
fn it_is_put_back_on_panic_too() {
    let (folder, files) = (Host::new(), Fake::new());
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let (mut hold, _) = Hold::take(&folder.place(), &files).unwrap();
        hold.set(File::Run, 1).unwrap();
        panic!("as a bug would");
    }));
    assert!(result.is_err());
    assert_eq!((files.get(File::Run), folder.journal().exists()), (0, false));
}

/// Who drives already, if that is why it was refused.
fn driver(error: &KsmError) -> Option<u32> {
    match error {
        KsmError::Journal(JournalError::Driven { pid, .. }) => Some(*pid),
        _ => None,
    }
}

#[test]
fn a_crash_is_restored_once() {
    let (folder, files) = (Host::new(), Fake::new());
    let place = folder.place();
    assert!(matches!(restore(&place, &files), Ok(Restore::Nothing)));
    let (mut hold, _) = Hold::take(&place, &files).unwrap();
    hold.set(File::PagesToScan, 526).unwrap();
    hold.set(File::Run, 1).unwrap();
    // While it lives, by its lock.
    let error = restore(&place, &files).unwrap_err();
    assert_eq!(driver(&error), Some(std::process::id()), "{error}");
    let error = Hold::take(&place, &files).unwrap_err();
    assert_eq!(driver(&error), Some(std::process::id()), "{error}");
    kill(hold);
    let error = Hold::take(&place, &files).unwrap_err();
    assert!(error.to_string().contains("`homenode restore` does that"), "{error}");
    files.log();
    let Restore::Done(restored) = restore(&place, &files).unwrap() else { panic!("no journal") };
    assert_eq!(restored.set, [(File::Run, 0), (File::PagesToScan, 100)]);
    assert_eq!(files.log(), "run=0, pages_to_scan=100");
    assert!(matches!(restore(&place, &files), Ok(Restore::Nothing)));
    assert!(files.log().is_empty());
}

/// A journal that somebody else has left.
fn leave(folder: &Host, files: &Fake, owner: (u32, u64)) {
    let (mut hold, _) = Hold::take(&folder.place(), files).unwrap();
    hold.journal.head.owner = owner;
    hold.set(File::Run, 1).unwrap();
    kill(hold);
}

#[test]
fn an_owner_is_known_by_number_and_start() {
    let (folder, files) = (Host::new(), Fake::new());
    leave(&folder, &files, (4711, 1000));
    folder.process(4711, 1000);
    let error = restore(&folder.place(), &files).unwrap_err();
    assert_eq!(driver(&error), Some(4711), "{error}");
    assert_eq!(files.get(File::Run), 1);
    // Another process has its number now.
    folder.process(4711, 2000);
    assert!(matches!(restore(&folder.place(), &files), Ok(Restore::Done(_))));
    assert_eq!(files.get(File::Run), 0);
}

#[test]
fn a_journal_of_an_earlier_boot_is_thrown_away() {
    let (folder, files) = (Host::new(), Fake::new());
    leave(&folder, &files, (4711, 1000));
    folder.boot("another");
    files.put(&[(File::Run, 1)]).log();
    let Restore::Stale(why) = restore(&folder.place(), &files).unwrap() else { panic!("believed") };
    assert!(why.contains("earlier boot"), "{why}");
    assert_eq!((files.get(File::Run), files.log().as_str()), (1, ""));
    files.put(&[(File::Run, 0)]);
    leave(&folder, &files, (4711, 1000));
    folder.boot("a third");
    let (_hold, notes) = Hold::take(&folder.place(), &files).unwrap();
    assert!(notes[0].contains("thrown away"), "{notes:?}");
}

#[test]
fn a_damaged_journal_is_not_believed() {
    let (folder, files) = (Host::new(), Fake::new());
    files.put(&[(File::Run, 2)]);
    leave(&folder, &files, (4711, 1000));
    let whole = folder.text();
    for text in [&whole[..whole.len() / 2], "", "rubbish\n", &whole.replace("run 2", "run 1")] {
        fs::write(folder.journal(), text).unwrap();
        files.log();
        for error in [
            restore(&folder.place(), &files).unwrap_err(),
            Hold::take(&folder.place(), &files).unwrap_err(),
        ] {
            let KsmError::Journal(JournalError::Damaged { line, what, .. }) = &error else {
                panic!("{error}")
            };
            let told = format!(
                "{}:{line}: {what}: this journal is damaged, and old values are not guessed. \
                 Nothing was changed. Look at `grep . /sys/kernel/mm/ksm/*` (the kernel's \
                 defaults are run 0, pages_to_scan 100, sleep_millisecs 20, merge_across_nodes \
                 1, advisor_mode none), set by hand what is wrong, and remove the journal",
                folder.journal().display()
            );
            assert_eq!(error.to_string(), told);
        }
        assert_eq!((files.log().as_str(), folder.text().as_str()), ("", text));
    }
}

#[test]
fn what_somebody_else_has_set_stays() {
    let (folder, files) = (Host::new(), Fake::new());
    let (mut hold, _) = Hold::take(&folder.place(), &files).unwrap();
    hold.set(File::PagesToScan, 526).unwrap();
    hold.set(File::Run, 1).unwrap();
    files.put(&[(File::PagesToScan, 4000)]);
    assert_eq!(hold.set(File::PagesToScan, 263).unwrap(), Set::Theirs { now: 4000 });
    let restored = hold.restore();
    assert_eq!(files.get(File::PagesToScan), 4000);
    assert_eq!(restored.sentences(), ["pages_to_scan is 4000 now, which we did not write: left"]);
    assert!(!folder.journal().exists());
}

#[test]
fn an_advisor_goes_off_and_on_again() {
    let (folder, files) = (Host::new(), Fake::new());
    files.put(&[(File::AdvisorMode, 1), (File::PagesToScan, 812), (File::Run, 1)]);
    let (mut hold, _) = Hold::take(&folder.place(), &files).unwrap();
    hold.set(File::AdvisorMode, 0).unwrap();
    assert_eq!(hold.set(File::PagesToScan, 526).unwrap(), Set::Done);
    files.log();
    assert!(hold.restore().sentences().is_empty());
    assert_eq!(files.log(), "advisor_mode=scan-time");
    // Ours on, and off again: the speed is as it was.
    files.put(&[(File::AdvisorMode, 0), (File::PagesToScan, 300)]);
    let (mut hold, _) = Hold::take(&folder.place(), &files).unwrap();
    hold.set(File::AdvisorMode, 1).unwrap();
    files.put(&[(File::PagesToScan, 9000)]);
    assert!(hold.restore().sentences().is_empty());
    assert_eq!((files.get(File::AdvisorMode), files.get(File::PagesToScan)), (0, 300));
}

#[test]
fn a_switch_needs_memory_for_what_comes_back() {
    let (folder, files) = (Host::new(), Fake::new());
    let merged = [(File::PagesShared, 10), (File::PagesSharing, 1 << 18), (File::Run, 1)];
    files.put(&merged);
    let (mut hold, _) = Hold::take(&folder.place(), &files).unwrap();
    // 1 GiB comes back, a sixteenth of 8 GiB is reserve.
    folder.memory((1536 << 10) - 1, 8 << 20);
    let error = hold.switch(false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "switching merge_across_nodes unmerges everything: 1024.0 MiB come back, and 512.0 MiB \
         are to stay in reserve, but only 1535.9 MiB are available; nothing was changed"
    );
    assert!(files.log().is_empty() && !folder.journal().exists());
    folder.memory(1536 << 10, 8 << 20);
    hold.switch(false).unwrap();
    assert_eq!(files.log(), "run=2, merge_across_nodes=0");
    hold.set(File::Run, 1).unwrap();
    assert!(folder.text().contains("\nrun 1 0 1 2\n"), "{}", folder.text());
    // Merged again meanwhile; no room to go back, then room.
    files.put(&merged);
    folder.memory(1 << 20, 8 << 20);
    files.log();
    let restored = hold.restore();
    assert_eq!(restored.left, [(File::MergeAcrossNodes, Left::NoRoom)]);
    assert!(restored.sentences()[1].contains("`homenode restore` tries again"));
    assert_eq!((files.log().as_str(), files.get(File::Run)), ("", 1));
    folder.memory(4 << 20, 8 << 20);
    let Restore::Done(restored) = restore(&folder.place(), &files).unwrap() else { panic!("none") };
    assert!(restored.sentences().is_empty());
    assert_eq!(files.log(), "run=2, merge_across_nodes=1, run=1");
    assert!(!folder.journal().exists());
}

#[test]
fn unmerging_that_fails_is_told_and_undone() {
    let (folder, files) = (Host::new(), Fake::new());
    files.put(&[(File::PagesShared, 10), (File::PagesSharing, 2560), (File::Run, 1)]);
    files.no_memory.set(true);
    let (mut hold, _) = Hold::take(&folder.place(), &files).unwrap();
    let error = hold.switch(false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "unmerging everything (run = 2) failed after 5.0 MiB of 10.0 MiB were back; the kernel has \
         stopped ksmd, and what is still merged stays so"
    );
    assert_eq!(files.get(File::Run), 0, "by the kernel");
    drop(hold);
    assert_eq!((files.get(File::Run), files.get(File::MergeAcrossNodes)), (1, 1));
    assert!(!folder.journal().exists());
}

#[test]
fn pages_of_the_dead_are_no_reason_to_stay() {
    let (folder, files) = (Host::new(), Fake::new());
    let (mut hold, _) = Hold::take(&folder.place(), &files).unwrap();
    files.ghost.set(true);
    hold.switch(false).unwrap();
    assert_eq!(files.log(), "merge_across_nodes=0, run=2, merge_across_nodes=0");
    hold.set(File::Run, 1).unwrap();
    files.ghost.set(true);
    files.log();
    assert!(hold.restore().sentences().is_empty());
    assert_eq!((files.get(File::Run), files.get(File::MergeAcrossNodes)), (0, 1));
}

#[test]
fn a_knob_that_refuses_stays_in_the_journal() {
    let (folder, files) = (Host::new(), Fake::new());
    let (mut hold, _) = Hold::take(&folder.place(), &files).unwrap();
    hold.set(File::PagesToScan, 526).unwrap();
    hold.set(File::Run, 1).unwrap();
    files.refuses.set(Some((File::PagesToScan, libc::EIO)));
    let restored = hold.restore();
    assert_eq!(files.get(File::Run), 0, "what can be set back is");
    let sentences = restored.sentences();
    assert!(
        sentences[0].starts_with("pages_to_scan could not be set back to 100"),
        "{sentences:?}"
    );
    assert!(sentences[1].contains("`homenode restore` tries again"), "{sentences:?}");
    files.refuses.set(None);
    assert!(matches!(restore(&folder.place(), &files), Ok(Restore::Done(_))));
    assert_eq!(files.get(File::PagesToScan), 100);
}

#[test]
fn nothing_is_believed_of_a_kernel_without_merging() {
    let folder = Host::new();
    let options = Act {
        command: vec!["true".into()],
        goal: Default::default(),
        across: None,
        across_users: false,
        interval: std::time::Duration::from_secs(1),
        length: None,
    };
    let place = folder.place();
    let error = act(&place, super::Folder::of(&place), &options, &mut |_| {}).unwrap_err();
    assert!(matches!(error, KsmError::NoKsm { .. }) && error.is_lack(), "{error}");
    let error = Watch::new(&place, vec![]).err().expect("nothing to watch");
    assert!(error.to_string().contains("it needs CONFIG_KSM"), "{error}");
    assert!(!folder.0.join("run").exists());
}

#[test]
fn every_number_has_its_text() {
    let files = Fake::new();
    for (file, value) in files.shown() {
        assert_eq!(value_of(file, &files.read(file).unwrap()), Some(value), "{file:?}");
        if file != File::AdvisorMode {
            assert_eq!(text_of(file, value), value.to_string());
        }
    }
}
