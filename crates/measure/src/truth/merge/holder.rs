//! The other end of the pipe to a process that holds memory.

use super::Word;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What such a process is told. Maps go by number, below [`super::MAPS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
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
    /// `from` + `step` · (`p` modulo `cycle`), stirred. Equal numbers are equal pages.
    Fill {
        /// Which map.
        map: usize,
        /// First page.
        first: u64,
        /// How many.
        pages: u64,
        /// Number of page 0.
        from: Word,
        /// From one page to the next.
        step: u64,
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

impl Order {
    fn text(self) -> String {
        match self {
            Self::MergeAny => "merge_any".to_owned(),
            Self::Map { map, pages, mergeable, read_only, huge, shared } => {
                let flag = |on: bool, bit: u32| u32::from(on) << bit;
                let flags =
                    flag(mergeable, 0) | flag(read_only, 1) | flag(huge, 2) | flag(shared, 3);
                format!("map {map} {pages} {flags}")
            }
            Self::Unmap { map } => format!("unmap {map}"),
            Self::Fill { map, first, pages, from, step, cycle } => {
                format!("fill {map} {first} {pages} {from} {step} {cycle}")
            }
            Self::Zero { map, first, pages } => format!("zero {map} {first} {pages}"),
            Self::Advise { map, mergeable } => format!("advise {map} {}", u8::from(mergeable)),
            Self::Fork => "fork".to_owned(),
            Self::Exit => "exit".to_owned(),
        }
    }
}

/// Which process of a family: the first child of the second child of the first is `[1, 0]`.
/// Children are counted from 0 in the order of their forks, ended ones too.
pub type Held = Vec<usize>;

/// A process that holds memory, with all that it forks. They end when it is dropped.
pub struct Holder {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Holder {
    /// Starts one: `command` comes to [`super::hold`].
    ///
    /// # Errors
    /// As starting a program.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        let answers = answers.ok_or_else(|| io::Error::other("it has no standard output"))?;
        Ok(Self { child, orders, answers: BufReader::new(answers) })
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
    pub fn tell(&mut self, who: &[usize], order: Order) -> io::Result<u32> {
        let mut text: String = who.iter().map(|k| format!(">{k} ")).collect();
        text.push_str(&order.text());
        text.push('\n');
        let gone = || io::Error::new(io::ErrorKind::BrokenPipe, "the process is gone");
        self.orders.as_mut().ok_or_else(gone)?.write_all(text.as_bytes())?;
        let mut answer = String::new();
        if self.answers.read_line(&mut answer)? == 0 {
            return Err(gone());
        }
        let (word, number) = answer.trim().split_once(' ').unwrap_or((answer.trim(), "0"));
        let number: u32 =
            number.parse().map_err(|_| io::Error::other(format!("it answered {answer:?}")))?;
        match word {
            "ok" => {
                if order == Order::Exit && who.is_empty() {
                    self.orders = None;
                    self.child.wait()?;
                }
                Ok(number)
            }
            _ => Err(io::Error::from_raw_os_error(number as i32)),
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Children die with their parents.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
