//! What the scheduler does with some tasks, told by a BPF program.
//!
//! ```text
//!  record.bpf.c ──▶ ring of 64 MiB ──▶ Recorder::take ──▶ Event by Event
//!      └──▶ lost ───────────────────▶ Recorder::lost
//! ```
//!
//! When it is dropped, or its process ends by whatever end, nothing of it is left in the kernel.
//!
//! Source: specs/record-sched.md#kernel.

mod calls;

use crate::able::{self, Lack};
use crate::{objects, words};
use homenode_core::sched::course::Wait;
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, RingBuffer, RingBufferBuilder,
};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// Bytes of the ring.
pub const RING_BYTES: usize = 64 << 20;
/// In the place of a task's number: none that is recorded.
pub const NOBODY: u32 = u32::MAX;

/// Tasks that are recorded at a time, at most.
const TASKS: u32 = 131_072;

/// How much is kept at a time.
#[derive(Clone, Copy)]
struct Sizes {
    ring_bytes: usize,
    tasks: u32,
}

/// Why nothing is recorded. Nothing was loaded into the kernel, or it is gone again.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Something is missing that is known beforehand.
    #[error("{0}")]
    Lacks(Lack),
    /// The kernel or libbpf refused.
    #[error("the BPF program that records scheduling can't be {step}{}", words::why(source, log))]
    Refused {
        /// What was tried: `loaded`, …
        step: &'static str,
        /// The last lines of libbpf's own log, which has the kernel's words too.
        log: Vec<String>,
        /// What libbpf said.
        source: libbpf_rs::Error,
    },
}

fn refused(step: &'static str) -> impl FnOnce(libbpf_rs::Error) -> RecordError {
    move |source| RecordError::Refused { step, log: words::taken(), source }
}

/// Whose scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Of a task and all that it starts from now on. It has to sleep when recording begins.
    Tree(u32),
    /// Everybody's.
    System,
}

/// How a task left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Another has it.
    Preempted,
    /// It has ended.
    Dead,
    /// It waits.
    Waits(Wait),
}

/// How a task is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Its nice value.
    pub nice: i8,
    /// Its policy, by the kernel's number.
    pub policy: u32,
    /// The CPUs up to 63 that it may use, as bits.
    pub allowed: u64,
}

/// A task as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Its number among threads.
    pub tid: u32,
    /// Its process's.
    pub tgid: u32,
    /// Its name.
    pub name: String,
    /// A thread of the kernel.
    pub kernel: bool,
    /// Its own PID namespace, by the kernel's number.
    pub space: u32,
    /// Its number among threads there.
    pub tid_there: u32,
    /// How it is treated.
    pub terms: Terms,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A CPU went from one task to another; one of them may be nobody's.
    Switch {
        /// Who ran, how it left, and how it is treated.
        from: Option<(u32, Left, Terms)>,
        /// Who runs now.
        to: Option<u32>,
        /// For how many nanoseconds the CPU had been idle; 0: it had not.
        idle_ns: u64,
    },
    /// A task is woken.
    Waking {
        /// Which.
        task: u32,
        /// By whom; [`NOBODY`]: by none that is recorded.
        by: u32,
        /// 0 in a task, 1 in a softirq, 2 in an interrupt.
        context: u8,
    },
    /// A task starts another.
    Fork {
        /// Which.
        task: u32,
        /// The new one.
        child: u32,
    },
    /// A task has given bytes to a pipe or socket, or taken some.
    Moved {
        /// Which.
        task: u32,
        /// It took them.
        takes: bool,
        /// The pipe, or the socket that they come out of: another's once it is gone.
        object: u64,
        /// How many.
        bytes: u32,
        /// When its call began.
        entered_ns: u64,
    },
    /// A task has learned of a child's end.
    Reaped {
        /// Which.
        task: u32,
        /// The child, by its number among threads in the task's own PID namespace.
        tid: u32,
        /// That namespace.
        space: u32,
        /// When its call began.
        entered_ns: u64,
    },
    /// A task is seen for the first time.
    Born(u32, About),
    /// It runs another program.
    Exec(u32, About),
    /// It is about to end.
    Exit(u32, About),
}

/// Something that happened, when and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// By the kernel's monotonic clock, in nanoseconds.
    pub time_ns: u64,
    /// On which CPU.
    pub cpu: u32,
    /// What.
    pub what: What,
}

/// Programs at system calls.
const CALLS: [&str; 2] = ["call_begins", "call_ends"];

/// Bytes of a record, and of one that tells of a task, as the program in C has them.
const RECORD: usize = 48;
const ABOUT: usize = RECORD + 40;

impl Event {
    /// Reads a record; `None` for what the program doesn't write.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let r = bytes.get(..RECORD)?;
        let word = |at: usize| r.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
        let half = |at: usize| r.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let short = |at: usize| r.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes);
        let (task, other) = (half(8)?, half(12)?);
        let (kind, how, call, file) = (r[18], r[19], short(20)?, r[22]);
        let terms = Terms { nice: r[23] as i8, policy: half(40)?, allowed: word(24)? };
        let some = |n: u32| (n != NOBODY).then_some(n);
        let about = || -> Option<About> {
            let a = bytes.get(RECORD..ABOUT)?;
            let number = |at: usize| a.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
            let name = a[24..].split(|&b| b == 0).next().unwrap_or_default();
            Some(About {
                tid: number(0)?,
                tgid: number(4)?,
                kernel: number(8)? != 0,
                space: number(12)?,
                tid_there: number(16)?,
                name: String::from_utf8_lossy(name).into_owned(),
                terms,
            })
        };
        let what = match kind {
            0 => {
                let left = match how & 3 {
                    0 => Left::Preempted,
                    1 => Left::Dead,
                    _ => Left::Waits(Wait {
                        what: calls::blocked(call, file, how & 16 != 0, how & 8 != 0),
                        uninterruptible: how & 4 != 0,
                        iowait: how & 8 != 0,
                    }),
                };
                What::Switch {
                    from: some(task).map(|t| (t, left, terms)),
                    to: some(other),
                    idle_ns: word(32)?,
                }
            }
            1 => What::Waking { task, by: other, context: how },
            2 => What::Fork { task, child: other },
            3 => What::Exec(task, about()?),
            4 => What::Exit(task, about()?),
            5 => What::Born(task, about()?),
            6 => What::Moved {
                task,
                takes: how != 0,
                object: word(24)?,
                bytes: half(40)?,
                entered_ns: word(32)?,
            },
            7 => What::Reaped {
                task,
                tid: other,
                space: u32::try_from(word(24)?).ok()?,
                entered_ns: word(32)?,
            },
            _ => return None,
        };
        Some(Self { time_ns: word(0)?, cpu: short(16)?.into(), what })
    }
}

/// The program at work. Fields are dropped from the first to the last.
pub struct Recorder {
    _links: Vec<Link>,
    ring: RingBuffer<'static>,
    taken: Rc<RefCell<Vec<Event>>>,
    lost: MapHandle,
    spent: MapHandle,
    told: [u64; 2],
    calls: bool,
    _object: Object,
}

impl Recorder {
    /// Loads it and attaches it. Where the kernel has no tracepoints at system calls it goes without them.
    ///
    /// # Errors
    /// What is known to be missing is found before anything is loaded; else what the kernel said.
    pub fn attach(whose: Whose) -> Result<Self, RecordError> {
        if let Some(lack) = able::lack(Path::new("/")) {
            return Err(RecordError::Lacks(lack));
        }
        let sizes = Sizes { ring_bytes: RING_BYTES, tasks: TASKS };
        Self::load(whose, true, sizes).or_else(|_| Self::load(whose, false, sizes))
    }

    /// Whether it tells what calls move.
    #[must_use]
    pub fn tells_calls(&self) -> bool {
        self.calls
    }

    fn load(whose: Whose, calls: bool, sizes: Sizes) -> Result<Self, RecordError> {
        words::listen();
        let mut builder = ObjectBuilder::default();
        builder.name("record").map_err(refused("opened"))?;
        let mut open = builder.open_memory(objects::RECORD).map_err(refused("opened"))?;
        let (root, all) = match whose {
            Whose::Tree(root) => (root, 0),
            Whose::System => (0, 1),
        };
        let regs = u32::from(cfg!(target_arch = "x86_64"));
        let settings = [root, all, regs, sizes.ring_bytes as u32 / 4];
        let settings: Vec<u8> = settings.into_iter().flat_map(u32::to_ne_bytes).collect();
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name.ends_with(".rodata") {
                map.set_initial_value(&settings).map_err(refused("told whom to record"))?;
            }
            let entries = match name.as_str() {
                "ring" => sizes.ring_bytes as u32,
                "tasks" => sizes.tasks,
                _ => continue,
            };
            map.set_max_entries(entries).map_err(refused("given its memory"))?;
        }
        for mut program in open.progs_mut() {
            if CALLS.iter().any(|name| program.name() == *name) {
                program.set_autoload(calls);
            }
        }
        let object = open.load().map_err(refused("loaded"))?;
        let map = |name: &str| {
            let found = object.maps().find(|m| m.name() == name);
            let found = found.ok_or_else(|| {
                refused("asked for its maps")(libbpf_rs::Error::from_raw_os_error(2))
            })?;
            MapHandle::try_from(&found).map_err(refused("asked for its maps"))
        };
        let (ring, lost, spent) = (map("ring")?, map("lost")?, map("spent")?);
        let taken = Rc::new(RefCell::new(Vec::new()));
        let filled = Rc::clone(&taken);
        let push = move |bytes: &[u8]| {
            filled.borrow_mut().extend(Event::parse(bytes));
            0
        };
        let mut builder = RingBufferBuilder::new();
        builder.add(&ring, push).map_err(refused("given a ring"))?;
        let ring = builder.build().map_err(refused("given a ring"))?;
        // Switches last: whoever is switched to has been woken, or started, by somebody who was seen.
        let mut links = Vec::new();
        // Ends first: what was counted as begun has its end counted too.
        let contexts = ["irq_out", "timer_out", "softirq_out", "irq_in", "timer_in", "softirq_in"];
        let all = ["execed", "exited", "forked", "waking", "switched"];
        let of_calls = if calls { &CALLS[..] } else { &[] };
        for name in contexts.into_iter().chain(of_calls.iter().copied()).chain(all) {
            let program = object.progs_mut().find(|p| p.name() == name);
            let program = program.ok_or_else(|| {
                refused("found in its object")(libbpf_rs::Error::from_raw_os_error(2))
            })?;
            links.push(program.attach_trace().map_err(refused("attached"))?);
        }
        Ok(Self { _links: links, ring, taken, lost, spent, told: [0; 2], calls, _object: object })
    }

    /// What has come, waiting for so long at most if there is little; in the order of coming, which
    /// is nearly that of times.
    ///
    /// # Errors
    /// What libbpf said.
    pub fn take(&mut self, wait: Duration) -> Result<Vec<Event>, RecordError> {
        match self.ring.poll(wait) {
            Ok(()) => {}
            // A signal came.
            Err(e) if e.kind() == libbpf_rs::ErrorKind::Interrupted => {}
            Err(e) => return Err(refused("read")(e)),
        }
        self.ring.consume().map_err(refused("read"))?;
        Ok(self.taken.take())
    }

    /// What the program itself took by its own clock, on average: at a switch, at a wake-up, at the end of a call,
    /// in nanoseconds; 0 where there was none.
    ///
    /// # Errors
    /// What libbpf said.
    pub fn own_ns(&self) -> Result<[u64; 3], RecordError> {
        let mut own = [0; 3];
        for (at, own) in (0_u32..).zip(&mut own) {
            let each = self.spent.lookup_percpu(&at.to_ne_bytes(), MapFlags::ANY);
            let each = each.map_err(refused("asked what it took"))?.unwrap_or_default();
            let word = |b: &[u8], i: usize| {
                b.get(i * 8..).and_then(<[u8]>::first_chunk).map_or(0, |b| u64::from_ne_bytes(*b))
            };
            let (ns, times) =
                each.iter().fold((0, 0), |(ns, times), b| (ns + word(b, 0), times + word(b, 1)));
            *own = ns.checked_div(times).unwrap_or(0);
        }
        Ok(own)
    }

    /// Events that found the ring full, and tasks that found no place, since the last time.
    ///
    /// # Errors
    /// What libbpf said.
    pub fn lost(&mut self) -> Result<[u64; 2], RecordError> {
        let mut new = [0; 2];
        for (which, (told, new)) in (0_u32..).zip(self.told.iter_mut().zip(&mut new)) {
            let each = self.lost.lookup_percpu(&which.to_ne_bytes(), MapFlags::ANY);
            let each = each.map_err(refused("asked for its losses"))?.unwrap_or_default();
            let count = |b: &Vec<u8>| b.first_chunk().map_or(0, |b| u64::from_ne_bytes(*b));
            let all: u64 = each.iter().map(count).sum();
            *new = all.saturating_sub(*told);
            *told = all;
        }
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::sched::course::Blocked;

    /// Two sleepers, for as long as nobody takes what is told of them.
    #[test]
    fn what_finds_no_room_is_counted() {
        if able::lack(Path::new("/")).is_some() {
            return println!("skipped: BPF programs need root and a kernel with BTF");
        }
        // A page holds some 70 records, and 16 tasks are fewer than any system has.
        let sizes = Sizes { ring_bytes: 4096, tasks: 16 };
        let mut recorder = Recorder::load(Whose::System, false, sizes).expect("it loads");
        let sleeps = || (0..100).for_each(|_| std::thread::sleep(Duration::from_micros(100)));
        let threads: Vec<_> = (0..30).map(|_| std::thread::spawn(sleeps)).collect();
        threads.into_iter().for_each(|t| t.join().expect("it sleeps"));
        let [events, tasks] = recorder.lost().expect("it tells");
        assert!(events > 100 && tasks > 0, "lost {events} events, {tasks} tasks");
        let told = recorder.take(Duration::ZERO).expect("it tells");
        assert!(!told.is_empty() && told.len() <= 4096 / RECORD, "{} events", told.len());
        // The next have room again, and what was lost is told once.
        let again = recorder.lost().expect("it tells")[0];
        assert!(again < events, "{again} after {events}");
    }

    fn bytes(task: u32, other: u32, kind: u8, how: u8, call: u16, file: u8) -> Vec<u8> {
        let mut b = 7_u64.to_ne_bytes().to_vec();
        b.extend(task.to_ne_bytes());
        b.extend(other.to_ne_bytes());
        b.extend(3_u16.to_ne_bytes());
        b.extend([kind, how]);
        b.extend(call.to_ne_bytes());
        b.extend([file, -5_i8 as u8]);
        b.extend(3_u64.to_ne_bytes());
        b.extend(900_u64.to_ne_bytes());
        b.extend([0; 8]);
        b
    }

    #[test]
    fn records_are_read_as_they_are_written() {
        let terms = Terms { nice: -5, policy: 0, allowed: 3 };
        let on = Wait { what: Blocked::Pipe, uninterruptible: false, iowait: false };
        let switch = Event::parse(&bytes(1, NOBODY, 0, 2, 0, 1)).expect("a switch");
        let from = Some((1, Left::Waits(on), terms));
        assert_eq!(switch.what, What::Switch { from, to: None, idle_ns: 900 });
        assert_eq!((switch.time_ns, switch.cpu), (7, 3));
        let mut born = bytes(4, NOBODY, 5, 0, 0xffff, 0);
        born.extend([77_u32, 70, 1, 9, 2, 0].into_iter().flat_map(u32::to_ne_bytes));
        born.extend(b"kworker/0:1\0\0\0\0\0");
        let name = "kworker/0:1".to_owned();
        let about = About { tid: 77, tgid: 70, name, kernel: true, space: 9, tid_there: 2, terms };
        assert_eq!(Event::parse(&born).expect("a birth").what, What::Born(4, about));
        assert_eq!(Event::parse(&born[..RECORD + 8]), None, "one that is cut");
        assert_eq!(Event::parse(&bytes(0, 0, 9, 0, 0, 0)), None, "one of another kind");
    }
}
