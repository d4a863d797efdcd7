//! Counting a process's loads, with events that every kernel has in the place of the CPU's: the
//! time for which threads run for cycles and loads under way, page faults for the others.
//!
//! This file is a program of its own, so that the descriptors that are counted are its own; its
//! tests take turns. Where events can't be opened, they say so.

use homenode_core::offcore::Offcore;
use homenode_core::policy::seen::Who;
use homenode_fixtures::until;
use homenode_live::loads::PerfLoads;
use homenode_live::machine::Loads;
use homenode_live::people::stat::start_of;
use homenode_live::place::Place;
use homenode_live::probe::{Calls, Event, ThisKernel};
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Descriptors enough for all.
const MANY: u64 = 1 << 20;
/// Set for the process that [`workers`] is.
const ROLE: &str = "HOMENODE_TEST_ROLE";
/// Pages that a thread touches at a time.
const PAGES: u64 = 1000;

fn events() -> [Event; 4] {
    // perf's numbers: software events are 1; of them the clock of a task is 1, page faults are 2.
    let event = |config| Event { kind: 1, config, user_only: true, ..Event::default() };
    [event(1), event(1), event(2), event(2)]
}

/// One test at a time, and none where such events don't open.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match ThisKernel.perf_open(&events()) {
        Some(Ok(())) => Some(turn),
        error => {
            println!("skipped: software events don't open here: {error:?}");
            None
        }
    }
}

/// This program again, as one that does what it is told.
struct Workers {
    child: Child,
    told: ChildStdin,
    says: BufReader<ChildStdout>,
}

impl Workers {
    fn new() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "workers", "--nocapture"])
            .env(ROLE, "workers")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let told = child.stdin.take().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        let mut workers = Self { child, told, says };
        workers.tell("hello");
        workers
    }
    /// Begins that thread, lets it touch pages, or ends it.
    fn tell(&mut self, line: &str) {
        writeln!(self.told, "{line}").unwrap();
        let mut said = String::new();
        // What the harness prints is passed over.
        while said.trim() != format!("done {line}") {
            said.clear();
            assert_ne!(self.says.read_line(&mut said).unwrap(), 0, "it ended at {line:?}");
        }
    }
    fn who(&self) -> Who {
        let pid = self.child.id();
        Who { pid, start: start_of(&Place::here(), pid).unwrap() }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Touches fresh pages, each of which is a fault.
fn touch() {
    let bytes = PAGES as usize * 4096;
    // SAFETY: memory of its own, which is given back below.
    let at = unsafe {
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
        libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: it is the mapping; huge pages would be fewer faults.
    unsafe { libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) };
    for page in 0..PAGES as usize {
        // SAFETY: within the mapping.
        unsafe { at.cast::<u8>().add(page * 4096).write_volatile(1) };
    }
    // SAFETY: the mapping, of which nothing is kept.
    unsafe { libc::munmap(at, bytes) };
}

/// What [`Workers`] runs; by itself it does nothing.
#[test]
fn workers() {
    if std::env::var_os(ROLE).is_none() {
        println!("skipped: it is for the other tests");
        return;
    }
    type Worker = (Sender<()>, Receiver<()>, JoinHandle<()>);
    let mut all: HashMap<String, Worker> = HashMap::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        match line.split_once(' ') {
            Some(("begin", name)) => {
                let (tell, told) = channel();
                let (say, said) = channel();
                let work = move || {
                    for () in told {
                        touch();
                        say.send(()).unwrap();
                    }
                };
                all.insert(name.to_owned(), (tell, said, std::thread::spawn(work)));
            }
            Some(("touch", name)) => {
                let (tell, said, _) = &all[name];
                tell.send(()).unwrap();
                said.recv().unwrap();
            }
            Some(("end", name)) => {
                let (tell, _, thread) = all.remove(name).unwrap();
                drop(tell);
                thread.join().unwrap();
            }
            _ => {}
        }
        println!("\ndone {line}");
    }
}

/// How many times all pages were touched, by the faults that were counted; some are of others.
fn touched(counted: Option<Offcore>) -> u64 {
    let faults = counted.unwrap_or_default().reads;
    assert!(faults % PAGES < PAGES / 4, "{faults} faults");
    faults / PAGES
}

/// Events of perf that this process has open.
fn open() -> usize {
    let all = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let names = all.filter_map(|entry| fs::read_link(entry.path()).ok());
    names.filter(|name| name.to_string_lossy().contains("[perf_event]")).count()
}

#[test]
fn threads_that_were_there_come_later_or_end_are_all_counted_once() {
    let Some(_turn) = turn() else { return };
    let mut workers = Workers::new();
    workers.tell("begin a");
    workers.tell("begin b");
    workers.tell("touch a");
    let (who, mut loads) = (workers.who(), PerfLoads::of(&events(), MANY));
    loads.watch(who);
    assert_eq!(touched(loads.take(who)), 0, "from then on");
    workers.tell("touch a");
    // What is watched already stays so.
    loads.watch(who);
    workers.tell("touch b");
    workers.tell("touch b");
    let counted = loads.take(who).unwrap();
    assert_eq!(touched(Some(counted)), 3);
    // The clock stands for cycles and for loads under way: what is told is its time.
    let ns = counted.under_way.as_ns();
    assert!((100_000..60_000_000_000).contains(&ns), "{ns}");
    // Of all threads together a fault is as long as a cycle, which is a nanosecond here.
    let off = counted.busy.0.abs_diff(counted.reads * 1000);
    assert!(off <= counted.reads * 10, "{counted:?}");
    // One that is begun now, and one that ends.
    workers.tell("begin c");
    workers.tell("touch c");
    workers.tell("touch b");
    workers.tell("end b");
    assert_eq!(touched(loads.take(who)), 2);
    workers.tell("touch c");
    workers.tell("end c");
    workers.tell("touch a");
    assert_eq!(touched(loads.take(who)), 2, "what it did before it ended is told");
    assert_eq!(touched(loads.take(who)), 0);
}

#[test]
fn a_process_that_it_begins_is_another() {
    let Some(_turn) = turn() else { return };
    // A shell touches pages, and so does the one that it begins, some more.
    let mut child = Command::new("sh").stdin(Stdio::piped()).spawn().unwrap();
    let who = Who { pid: child.id(), start: start_of(&Place::here(), child.id()).unwrap() };
    let mut loads = PerfLoads::of(&events(), MANY);
    loads.watch(who);
    let mut told = child.stdin.take().unwrap();
    let many =
        "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sh -c 'exit 0'; done";
    writeln!(told, "sh -c \"{many}\"").unwrap();
    drop(told);
    child.wait().unwrap();
    let faults = loads.take(who).map_or(0, |counted| counted.reads);
    // Twenty shells have a hundred faults each and more.
    assert!(faults < 1000, "{faults}");
}

#[test]
fn what_is_no_longer_watched_is_closed() {
    let Some(_turn) = turn() else { return };
    let mut workers = Workers::new();
    workers.tell("begin a");
    let (who, mut loads) = (workers.who(), PerfLoads::of(&events(), MANY));
    assert_eq!(open(), 0);
    loads.watch(who);
    // This program's own main thread, the test's, and the one that was begun: four events each.
    let threads = fs::read_dir(format!("/proc/{}/task", who.pid)).unwrap().count();
    assert_eq!((threads, open()), (3, 12));
    loads.unwatch(who);
    assert_eq!((open(), loads.take(who)), (0, None));
    loads.watch(who);
    drop(loads);
    assert_eq!(open(), 0);
}

#[test]
fn of_many_threads_sixty_four_are_opened_and_fewer_where_descriptors_are_few() {
    let Some(_turn) = turn() else { return };
    let mut workers = Workers::new();
    (0..80).for_each(|n| workers.tell(&format!("begin {n}")));
    let who = workers.who();
    let mut loads = PerfLoads::of(&events(), MANY);
    loads.watch(who);
    assert_eq!(open(), 4 * 64);
    workers.tell("touch 0");
    workers.tell("touch 79");
    assert_eq!(touched(loads.take(who)), 1, "79 is left out");
    // Those that an open one begins are counted, how many there may be.
    workers.tell("begin new");
    workers.tell("touch new");
    assert_eq!(touched(loads.take(who)), 1);
    drop(loads);
    let others = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let mut loads = PerfLoads::of(&events(), 2 * (others + 80));
    loads.watch(who);
    assert!((4 * 8..=4 * 10).contains(&open()), "half of 80: {}", open());
    let before = open();
    workers.tell("touch 0");
    assert_eq!(touched(loads.take(who)), 1);
    // Another one has half of the rest.
    let other = Workers::new();
    loads.watch(other.who());
    assert!((4..4 * 6).contains(&(open() - before)), "{}", open() - before);
}

#[test]
fn a_descriptor_too_few_leaves_those_that_are_there() {
    let Some(_turn) = turn() else { return };
    let mut workers = Workers::new();
    (0..20).for_each(|n| workers.tell(&format!("begin {n}")));
    let who = workers.who();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointers are to locals of the right type.
    let set = |limit: &libc::rlimit| unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) };
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    let highest = fs::read_dir("/proc/self/fd").unwrap().count() as u64 + 30;
    assert_eq!(set(&libc::rlimit { rlim_cur: highest, ..limit }), 0);
    let mut loads = PerfLoads::of(&events(), MANY);
    loads.watch(who);
    let opened = open();
    assert_eq!(set(&limit), 0);
    assert!((4..=30).contains(&opened) && opened % 4 == 0, "{opened}");
    workers.tell("touch 0");
    assert_eq!(touched(loads.take(who)), 1);
}

#[test]
fn a_number_that_changed_hands_is_nobody() {
    let Some(_turn) = turn() else { return };
    let mut workers = Workers::new();
    workers.tell("begin a");
    let mut loads = PerfLoads::of(&events(), MANY);
    let who = workers.who();
    let other = Who { start: who.start + 1, ..who };
    loads.watch(other);
    workers.tell("touch a");
    assert_eq!((open(), loads.take(other), loads.take(who)), (0, None, None));
    // Nor is one that has gone.
    loads.watch(who);
    workers.tell("touch a");
    drop(workers);
    until("it is gone", || (start_of(&Place::here(), who.pid) != Some(who.start)).then_some(()));
    assert_eq!(touched(loads.take(who)), 1, "what it did is told");
    loads.unwatch(who);
    loads.watch(who);
    assert_eq!((open(), loads.take(who)), (0, None));
}
