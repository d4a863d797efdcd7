//! Same-page merging's files: `/sys/kernel/mm/ksm/*`, and what `/proc` says of a process.
//!
//! What a file takes and shows is the core's; here is who may open it, and on whose
//! behalf the kernel works meanwhile: a write of 2 to `run` copies every merged page,
//! and that takes its time.
//!
//! Source: specs/files.md#ksm.

use super::process::Id;
use crate::simulation::{FileError, Job, Simulation};
use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::Errno;
use homenode_core::ksm::files::{FOLDER, File, Written};
use homenode_core::ksm::memory::MmId;
use homenode_core::units::Picos;

/// What became of a write.
#[derive(Clone, Debug)]
pub(super) enum Wrote {
    /// Done, after so much of the writer's time.
    Done(Picos),
    /// Memory is going offline: the writer sleeps until that is over.
    Waits,
    /// It takes the kernel time.
    Begins(Job),
}

/// The files that `version` has, by path.
pub(super) fn all(version: KernelVersion) -> impl Iterator<Item = (String, File)> {
    let there = File::ALL.into_iter().filter(move |f| f.exists(version));
    there.map(|f| (format!("{FOLDER}{}", f.name()), f))
}

/// Where another version has the file that was asked for; `None` if none has it.
pub(super) fn elsewhere(path: &str) -> Option<Vec<KernelVersion>> {
    path.strip_prefix(FOLDER)?;
    let with = |v: &KernelVersion| File::find(path, *v).is_some();
    let all: Vec<KernelVersion> = KernelVersion::ALL.into_iter().filter(with).collect();
    (!all.is_empty()).then_some(all)
}

homenode_core::named! {
    /// What a process's folder has of merging.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum ProcessView {
        MergingPages => "ksm_merging_pages",
        Stat => "ksm_stat",
    }
}

impl ProcessView {
    /// Both came between 5.18 and 6.1.
    pub(super) fn exists(self, version: KernelVersion) -> bool {
        version >= KernelVersion::V6_1
    }
}

impl Simulation {
    pub(super) fn ksm_text(&self, file: File) -> String {
        self.kernel.ksm().read(file.name()).unwrap_or_default() + "\n"
    }

    /// Source: specs/files.md#ksm-process.
    pub(super) fn ksm_process_text(&self, id: Id, view: ProcessView) -> String {
        // A kernel thread has no memory to tell of.
        let Id::Space(number) = id else { return String::new() };
        let Some(space) = self.kernel.spaces[number].as_ref() else { return String::new() };
        // One that never asked for merging has a number that nobody has, and noughts.
        let mm = MmId(space.mm);
        let ksm = self.kernel.ksm();
        match view {
            ProcessView::MergingPages => format!("{}\n", ksm.mm_stat(mm).merging_pages),
            ProcessView::Stat => {
                let mergeable = space.vmas.iter().any(|v| v.kind.mergeable);
                ksm.ksm_stat(mm, space.merge_any, mergeable).unwrap_or_default()
            }
        }
    }

    /// Writes to a file of the folder, as who may open it for that.
    ///
    /// Source: specs/files.md#ksm.
    pub(super) fn write_ksm(
        &mut self,
        path: &str,
        file: File,
        text: &str,
    ) -> Result<Wrote, FileError> {
        let mut ctx = self.outside();
        let done = self.kernel.write_ksm(&mut ctx, file.name(), text);
        if let Some(trouble) = self.kernel.merging.trouble.take() {
            self.memory_error.get_or_insert(trouble);
        }
        match done.map_err(|e| FileError::of_knob(path, e))? {
            Written::Done { .. } => Ok(Wrote::Done(Picos(ctx.clock - self.now()))),
            Written::Waits => Ok(Wrote::Waits),
        }
    }
}

/// What somebody gets who can't wait.
pub(super) fn would_wait(path: &str) -> FileError {
    let why = "memory is going offline: a writer sleeps until that is over; write again then";
    FileError::new(path, Errno::Eagain, why)
}
