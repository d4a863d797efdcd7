//! The other end of the pipe to a process that holds memory.

use super::Word;
use super::hold::{
    ADVISE, CHILD_BITS, EXIT, FILL, FORK, MAP, MERGE_ANY, TAKE_OUT, UNMAP, Words, ZERO,
};
use homenode_live::text::addresses;
use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What such a process is told. Maps go by number, below [`super::MAPS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// `PR_SET_MEMORY_MERGE`, for what is mapped from then on.
    MergeAny,
    /// Map so many pages.
    Map {
        /// Which.
        map: usize,
        /// How large.
        pages: u64,
        /// `MADV_MERGEABLE` at once.
        mergeable: bool,
        /// Without `PROT_WRITE`.
        read_only: bool,
        /// `MADV_HUGEPAGE`; else `MADV_NOHUGEPAGE`.
        huge: bool,
        /// `MAP_SHARED`.
        shared: bool,
    },
    /// Give a map back.
    Unmap {
        /// Which.
        map: usize,
    },
    /// Write all of each of some pages: page `p` gets the word of
    /// `from` + (`p` modulo `cycle`), stirred. Equal numbers are equal pages.
    Fill {
        /// Which map.
        map: usize,
        /// First page.
        first: u64,
        /// How many.
        pages: u64,
        /// Number of page 0.
        from: Word,
        /// After how many pages it begins again, at least 1.
        cycle: u64,
    },
    /// Write zeroes to some pages.
    Zero {
        /// Which map.
        map: usize,
        /// First page.
        first: u64,
        /// How many.
        pages: u64,
    },
    /// `MADV_MERGEABLE` or `MADV_UNMERGEABLE` of a map.
    Advise {
        /// Which.
        map: usize,
        /// Which of the two.
        mergeable: bool,
    },
    /// Fork a child that is told by [`Holder::tell`] too.
    Fork,
    /// End. The answer comes when it has ended.
    Exit,
}

impl Request {
    /// As it goes down the pipe, by a path.
    fn words(self, path: u64) -> Words {
        match self {
            Self::MergeAny => [path, MERGE_ANY, 0, 0, 0, 0, 0],
            Self::Map { map, pages, mergeable, read_only, huge, shared } => {
                let flag = |on: bool, bit: u32| u64::from(on) << bit;
                let flags =
                    flag(mergeable, 0) | flag(read_only, 1) | flag(huge, 2) | flag(shared, 3);
                [path, MAP, map as u64, pages, flags, 0, 0]
            }
            Self::Unmap { map } => [path, UNMAP, map as u64, 0, 0, 0, 0],
            Self::Fill { map, first, pages, from, cycle } => {
                [path, FILL, map as u64, first, pages, from, cycle]
            }
            Self::Zero { map, first, pages } => [path, ZERO, map as u64, first, pages, 0, 0],
            Self::Advise { map, mergeable } => {
                [path, ADVISE, map as u64, mergeable.into(), 0, 0, 0]
            }
            Self::Fork => [path, FORK, 0, 0, 0, 0, 0],
            Self::Exit => [path, EXIT, 0, 0, 0, 0, 0],
        }
    }
}

/// Which process of a family: the first child of the second child of the first is `[1, 0]`.
/// Children are counted from 0 in the order of their forks, ended ones too.
pub type Held = Vec<usize>;

/// A process that holds memory, with all that it forks. They end when it is dropped.
pub struct Holder {
    child: Child,
    requests: Option<ChildStdin>,
    answers: ChildStdout,
}

impl Holder {
    /// Starts one: `command` comes to [`super::hold`].
    ///
    /// # Errors
    /// As starting a program.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (requests, answers) = (child.stdin.take(), child.stdout.take());
        let answers = answers.ok_or_else(|| io::Error::other("it has no standard output"))?;
        Ok(Self { child, requests, answers })
    }

    /// The process' number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has one of the family do something, and waits until it is done. The number of a
    /// forked child, else 0.
    ///
    /// # Errors
    /// What the kernel answered there; `BrokenPipe` where the process is gone.
    pub fn tell(&mut self, who: &[usize], request: Request) -> io::Result<u32> {
        let path = who.iter().rev().fold(0, |path, k| path << CHILD_BITS | (*k as u64 + 1));
        let answer = self.send(request.words(path))?;
        if request == Request::MergeAny {
            self.take_out(path)?;
        }
        if request == Request::Exit && who.is_empty() {
            self.requests = None;
            self.child.wait()?;
        }
        Ok(answer)
    }

    /// Takes out of merging what the program itself has, so that only what it maps from now
    /// on may be merged.
    fn take_out(&mut self, path: u64) -> io::Result<()> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id()))?;
        for (low, high) in maps.lines().filter_map(addresses) {
            self.send([path, TAKE_OUT, low, high.saturating_sub(low), 0, 0, 0])?;
        }
        Ok(())
    }

    fn send(&mut self, words: Words) -> io::Result<u32> {
        let told: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        let gone = || io::Error::new(io::ErrorKind::BrokenPipe, "the process is gone");
        self.requests.as_mut().ok_or_else(gone)?.write_all(&told)?;
        let mut answer = [0; 8];
        self.answers.read_exact(&mut answer).map_err(|_| gone())?;
        let answer = i64::from_ne_bytes(answer);
        if answer < 0 {
            return Err(io::Error::from_raw_os_error(-answer as i32));
        }
        Ok(answer as u32)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Children die with their parents.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
