//! The tree of processes that a command starts, with what each of them used: a build's job graph.
//!
//! ```text
//!  make ──▶ sh ──▶ gcc ──▶ cc1      each: who started it, what it ran, processor time,
//!               │      └─▶ as       first touches, most memory, memory that it came back to
//!               └─▶ fixdep
//! ```
//!
//! The command runs under `ptrace`, which stops a process only where it forks, runs another
//! program or ends, so that its own times stay what they are. Beside that a thread looks now and
//! then which memory a process has used within [`WINDOW`] of its processor time.
//!
//! Source: specs/workloads.md#build.

mod shape;

pub use shape::{Class, Form, Shape};

use homenode_live::held::traced;
use homenode_live::text::number;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Processor time between two looks at the memory that a process uses: the shortest scan period of
/// the kernel in which slow start came.
pub const WINDOW: Duration = Duration::from_millis(100);
/// How often the thread looks which processes have run for so long.
const LOOK: Duration = Duration::from_millis(15);

/// A process that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// The place of the process that started it; `None`: the command itself.
    pub parent: Option<usize>,
    /// The name of the program that it ran last, as the kernel has it (15 bytes).
    pub name: String,
    /// Processor time in all, ns.
    pub ran_ns: u64,
    /// Of that, before it ran another program; 0 where it never did.
    pub before_exec_ns: u64,
    /// Minor faults.
    pub minor_faults: u64,
    /// Processor time by the kernel's books, in ticks of 10 ms: user and system.
    pub ticks: [u64; 2],
    /// Most bytes that it had in memory.
    pub max_rss_bytes: u64,
    /// By window: bytes of its anonymous memory that it used, and that it had.
    pub used: Vec<(u64, u64)>,
}

/// What came of it.
#[derive(Debug)]
pub struct Tree {
    /// How the command ended.
    pub status: ExitStatus,
    /// In the order in which they were started, the command first. A process stands behind the
    /// one that started it.
    pub jobs: Vec<Job>,
}

impl Tree {
    /// The exit code that tells how the command ended: its own, or 128 and its signal.
    pub fn code(&self) -> u8 {
        let signal = || self.status.signal().map(|s| 128 + s);
        self.status.code().or_else(signal).and_then(|c| u8::try_from(c).ok()).unwrap_or(1)
    }
}

/// Why there is no tree.
#[derive(Debug, thiserror::Error)]
pub enum JobsError {
    /// The program can't be run.
    #[error("{program} can't be run")]
    Start {
        /// Which.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel lets nobody look on.
    #[error("the kernel lets nobody look on at processes (ptrace): allow it, or run it elsewhere")]
    Trace(#[source] io::Error),
}

impl JobsError {
    /// Whether the system lacks something.
    pub const fn is_lack(&self) -> bool {
        matches!(self, Self::Trace(_))
    }
}

/// Where a process is that has not ended.
#[derive(Debug)]
struct Living {
    place: usize,
    /// It has stopped once, as a new one does.
    begun: bool,
    /// Its processor time at the last look at its memory.
    looked_ns: Option<u64>,
}

/// What both threads work on.
#[derive(Default)]
struct Course {
    living: BTreeMap<libc::pid_t, Living>,
    jobs: Vec<Job>,
}

/// Runs a command to its end, and all that it starts.
///
/// # Errors
/// [`JobsError`]: it can't be run, or not be looked at.
pub fn record(command: &[OsString]) -> Result<Tree, JobsError> {
    let program = command.first().map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
    let mut starts = Command::new(command.first().map_or("".as_ref(), OsString::as_os_str));
    starts.args(command.get(1..).unwrap_or_default()).stdin(Stdio::null());
    let child = traced(&mut starts).spawn().map_err(|source| match source.raw_os_error() {
        Some(libc::EPERM) => JobsError::Trace(source),
        _ => JobsError::Start { program, source },
    })?;
    let root = child.id() as libc::pid_t;
    let course = Mutex::new(Course {
        living: BTreeMap::from([(root, Living { place: 0, begun: true, looked_ns: None })]),
        jobs: vec![Job { name: comm(root), ..Job::default() }],
    });
    let over = AtomicBool::new(false);
    let status = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                thread::sleep(LOOK);
                look(&course);
            }
        });
        let status = follow(root, &course);
        over.store(true, Ordering::Relaxed);
        status
    })?;
    let jobs = course.into_inner().unwrap_or_else(PoisonError::into_inner).jobs;
    Ok(Tree { status, jobs })
}

/// Stops to be told of, and the end of all with the one that looks on.
const OPTIONS: i32 = libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT
    | libc::PTRACE_O_EXITKILL;

/// Goes from stop to stop until nobody is left; how the first ended.
fn follow(root: libc::pid_t, course: &Mutex<Course>) -> Result<ExitStatus, JobsError> {
    let mut ended = None;
    // Who stops before its maker has told of it.
    let mut early = BTreeSet::new();
    let mut set = false;
    loop {
        let mut status = 0;
        // Only those of this thread: others of this process may wait for children of their own.
        // SAFETY: the pointer is to a local.
        let pid = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::__WNOTHREAD) };
        if pid < 0 {
            let e = io::Error::last_os_error();
            match e.raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::ECHILD) => break,
                _ => return Err(JobsError::Trace(e)),
            }
        }
        if !libc::WIFSTOPPED(status) {
            if pid == root {
                ended = Some(ExitStatus::from_raw(status));
            }
            lock(course).living.remove(&pid);
            continue;
        }
        if !set {
            // The command stops where it begins.
            ask(libc::PTRACE_SETOPTIONS, pid, OPTIONS as usize).map_err(JobsError::Trace)?;
            set = true;
            lock(course).jobs[0].name = comm(pid);
            go_on(pid, 0);
            continue;
        }
        let signal = match status >> 16 {
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                if let Some(child) = message(pid) {
                    let begun = early.remove(&child);
                    begins(course, pid, child, begun);
                    if begun {
                        go_on(child, 0);
                    }
                }
                0
            }
            // A thread: its time is its process's, which is asked for all of them.
            libc::PTRACE_EVENT_CLONE => 0,
            libc::PTRACE_EVENT_EXEC => {
                runs(course, pid);
                0
            }
            libc::PTRACE_EVENT_EXIT => {
                ends(course, pid);
                0
            }
            0 => {
                let mut course = lock(course);
                match course.living.get_mut(&pid) {
                    Some(who) if who.begun => libc::WSTOPSIG(status),
                    Some(who) => {
                        who.begun = true;
                        0
                    }
                    // A new thread, or a process that is faster than the news of it.
                    None if is_thread(pid) => 0,
                    None => {
                        early.insert(pid);
                        continue;
                    }
                }
            }
            _ => 0,
        };
        go_on(pid, signal);
    }
    Ok(ended.unwrap_or_default())
}

fn lock(course: &Mutex<Course>) -> std::sync::MutexGuard<'_, Course> {
    course.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ask(what: libc::c_uint, pid: libc::pid_t, data: usize) -> io::Result<()> {
    // SAFETY: requests that take numbers only.
    match unsafe { libc::ptrace(what, pid, 0, data) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Who was killed meanwhile can't go on, and is told of as ended.
fn go_on(pid: libc::pid_t, signal: i32) {
    let _ = ask(libc::PTRACE_CONT, pid, signal as usize);
}

/// The number that an event is about.
fn message(pid: libc::pid_t) -> Option<libc::pid_t> {
    let mut value: libc::c_ulong = 0;
    // SAFETY: the pointer is to a local of the right type.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, 0, &raw mut value) };
    (done == 0).then_some(value as libc::pid_t)
}

fn begins(course: &Mutex<Course>, parent: libc::pid_t, child: libc::pid_t, begun: bool) {
    let mut course = lock(course);
    let parent = course.living.get(&parent).map(|l| l.place);
    let place = course.jobs.len();
    let name = parent.map(|p| course.jobs[p].name.clone()).unwrap_or_default();
    course.jobs.push(Job { parent, name, ..Job::default() });
    course.living.insert(child, Living { place, begun, looked_ns: None });
}

fn runs(course: &Mutex<Course>, pid: libc::pid_t) {
    let (ran, name) = (ran_ns(pid), comm(pid));
    let mut course = lock(course);
    let Some(place) = course.living.get(&pid).map(|l| l.place) else { return };
    let job = &mut course.jobs[place];
    job.name = name;
    if job.before_exec_ns == 0 {
        job.before_exec_ns = ran.unwrap_or(0);
    }
}

fn ends(course: &Mutex<Course>, pid: libc::pid_t) {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let (stat, status, ran) = (read("stat"), read("status"), ran_ns(pid));
    // Behind the name, which may hold anything, the third field comes first.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or(vec![], |(_, rest)| rest.split_whitespace().collect());
    let field = |n: usize| fields.get(n - 3).and_then(|f| f.parse().ok()).unwrap_or(0);
    let mut course = lock(course);
    let Some(place) = course.living.get(&pid).map(|l| l.place) else { return };
    let job = &mut course.jobs[place];
    job.ran_ns = ran.unwrap_or(0);
    job.minor_faults = field(10);
    job.ticks = [field(14), field(15)];
    job.max_rss_bytes = number(&status, "VmHWM:").unwrap_or(0) * 1024;
}

fn is_thread(pid: libc::pid_t) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    number(&status, "Tgid:").is_some_and(|group| group != pid as u64)
}

fn comm(pid: libc::pid_t) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// Processor time of all threads of a process that live.
fn ran_ns(pid: libc::pid_t) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of = |path: std::path::PathBuf| -> Option<u64> {
        let text = fs::read_to_string(path.join("schedstat")).ok()?;
        text.split(' ').next()?.trim().parse().ok()
    };
    Some(threads.flatten().filter_map(|t| of(t.path())).sum())
}

/// Looks at the memory of all that have run for a window since.
fn look(course: &Mutex<Course>) {
    let all: Vec<(libc::pid_t, Option<u64>)> =
        lock(course).living.iter().map(|(&pid, l)| (pid, l.looked_ns)).collect();
    for (pid, looked) in all {
        let Some(ran) = ran_ns(pid) else { continue };
        if looked.is_some_and(|before| ran < before + WINDOW.as_nanos() as u64) {
            continue;
        }
        let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
        // Of a kernel without such marks, or of another user's process, nothing is known.
        if fs::write(format!("/proc/{pid}/clear_refs"), "1").is_err() {
            continue;
        }
        let used = anonymous(&smaps);
        let mut course = lock(course);
        let Some(who) = course.living.get_mut(&pid) else { continue };
        who.looked_ns = Some(ran);
        let place = who.place;
        // Before the first look nobody has cleared the marks.
        if looked.is_some() && used.1 > 0 {
            course.jobs[place].used.push(used);
        }
    }
}

/// Bytes of mappings without a file that were used, and that are there.
fn anonymous(smaps: &str) -> (u64, u64) {
    let (mut used, mut there, mut own) = (0, 0, false);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let (first, rest) = (words.next().unwrap_or(""), words.collect::<Vec<_>>());
        if !first.ends_with(':') {
            // Addresses, rights, offset, device, inode.
            own = rest.get(3) == Some(&"0");
        } else if own {
            let kib = || rest.first().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 1024;
            match first {
                "Rss:" => there += kib(),
                "Referenced:" => used += kib(),
                _ => {}
            }
        }
    }
    (used, there)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Result<Tree, JobsError> {
        record(&["sh".into(), "-c".into(), script.into()])
    }

    #[test]
    fn a_tree_has_everyone_once_behind_who_started_it() {
        let tree = match sh("(sleep 0; sleep 0) & sleep 0; wait; exit 3") {
            Ok(tree) => tree,
            Err(JobsError::Trace(why)) => return println!("skipped: {why}"),
            Err(e) => panic!("{e}"),
        };
        assert_eq!(tree.code(), 3);
        let names: Vec<&str> = tree.jobs.iter().map(|j| j.name.as_str()).collect();
        assert_eq!(names.iter().filter(|n| **n == "sleep").count(), 3, "{names:?}");
        assert_eq!(names[0], "sh");
        assert_eq!(tree.jobs[0].parent, None);
        for (i, job) in tree.jobs.iter().enumerate().skip(1) {
            assert!(job.parent.is_some_and(|p| p < i), "{job:?}");
            assert!(job.ran_ns > 0 && job.minor_faults > 0 && job.max_rss_bytes > 0, "{job:?}");
        }
    }

    #[test]
    fn what_cannot_be_run_is_said() {
        let e = record(&["/nowhere/at-all".into()]).unwrap_err();
        assert_eq!(e.to_string(), "/nowhere/at-all can't be run");
    }

    #[test]
    fn memory_without_a_file_is_told_from_that_of_files() {
        let smaps = "00400000-00401000 r-xp 00000000 08:01 77 /usr/bin/cc1\nRss: 8 kB\nReferenced: 8 kB\n\
             7f00-7f10 rw-p 00000000 00:00 0 [heap]\nRss: 12 kB\nReferenced: 4 kB\nVmFlags: rd wr\n";
        assert_eq!(anonymous(smaps), (4096, 12288));
        assert_eq!(anonymous(""), (0, 0));
    }
}
