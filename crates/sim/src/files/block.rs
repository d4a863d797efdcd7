//! Blocks of memory: `/sys/devices/system/memory`, and what a write there asks for.
//!
//! A write of `offline` is answered when the block is offline or will not be: it is a
//! [`Job`], at which somebody works for as long as it takes (`action` says who).
//!
//! Source: specs/files.md#blocks.

use crate::kernel::Ctx;
use crate::kernel::hotplug::BlockState;
use crate::simulation::{FileError, Job, Simulation};
use homenode_core::knobs::{Errno, parse_bool};
use homenode_core::units::PAGE_SIZE;

homenode_core::named! {
    /// A file in a block's folder.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum BlockView {
        /// 0 or 1.
        Online => "online",
        PhysIndex => "phys_index",
        Removable => "removable",
        State => "state",
        ValidZones => "valid_zones",
    }
}

impl BlockView {
    pub(super) const fn is_writable(self) -> bool {
        matches!(self, Self::Online | Self::State)
    }
}

impl Job {
    /// What a text asks of a block.
    pub(super) fn parse(
        path: &str,
        block: usize,
        view: BlockView,
        text: &str,
    ) -> Result<Self, FileError> {
        let word = text.strip_suffix('\n').unwrap_or(text);
        let online = match (view, word) {
            (BlockView::Online, _) => parse_bool(word, false).map_err(|_| "0 or 1 is allowed"),
            (_, "online") => Ok(true),
            (_, "offline") => Ok(false),
            // The zones of a simulated node are the machine's.
            (_, "online_kernel" | "online_movable") => {
                Err("the simulated kernel gives a block back to the zone that it came from: online")
            }
            _ => Err("online or offline is allowed"),
        };
        let online = online.map_err(|allowed| {
            FileError::new(path, Errno::Einval, &format!("{word:?} is refused; {allowed}"))
        })?;
        let lenient = view == BlockView::Online;
        Ok(Self { path: path.to_owned(), block, online, lenient, outcome: None })
    }
    fn failed(&self, errno: Errno) -> FileError {
        let why = match errno {
            Errno::Ebusy => {
                "the kernel itself lies in the machine's lowest block, which can't be moved"
            }
            Errno::Eintr => {
                "its pages find no room on other nodes, or can't be moved; the kernel would go on \
                 trying, so the writer was stopped"
            }
            _ if self.online => "the block is online",
            _ => "the block is offline",
        };
        FileError::new(&self.path, errno, why)
    }
}

impl Simulation {
    pub(super) fn block_text(&self, block: usize, view: BlockView) -> String {
        let b = &self.kernel.hotplug.blocks[block];
        match view {
            BlockView::Online => format!("{}\n", u8::from(b.state != BlockState::Offline)),
            BlockView::PhysIndex => format!("{block:08x}\n"),
            BlockView::Removable => "1\n".to_owned(),
            BlockView::State => match b.state {
                BlockState::Online => "online\n".to_owned(),
                BlockState::GoingOffline => "going-offline\n".to_owned(),
                BlockState::Offline => "offline\n".to_owned(),
            },
            BlockView::ValidZones => {
                self.kernel.memory.zones[b.zone].kind.in_kernel().to_owned() + "\n"
            }
        }
    }
    pub(super) fn block_size_text(&self) -> String {
        format!("{:x}\n", self.kernel.hotplug.block_pages * PAGE_SIZE)
    }

    /// Works on the first job until `end`; what came of it, once it is done.
    pub(super) fn work_on(&mut self, ctx: &mut Ctx, end: u64) -> Option<Result<(), FileError>> {
        let job = self.writing.jobs.front()?.clone();
        let answer = if self.writing.begun {
            self.kernel.offline_run(ctx, &mut self.machine, end)?
        } else {
            let state = self.kernel.hotplug.blocks[job.block].state;
            let is_so = (state == BlockState::Online) == job.online;
            match job.online {
                _ if is_so && job.lenient => Ok(()),
                true => self.kernel.online(ctx, &mut self.machine, job.block),
                false => match self.kernel.offline_begin(ctx, job.block) {
                    Ok(()) => {
                        self.writing.begun = true;
                        return None;
                    }
                    Err(errno) => Err(errno),
                },
            }
        };
        self.writing.begun = false;
        self.writing.jobs.pop_front();
        let result = answer.map_err(|errno| job.failed(errno));
        if let Some(outcome) = job.outcome {
            self.planned[outcome].result = Some(result.clone().map(|()| String::new()));
        }
        Some(result)
    }
}
