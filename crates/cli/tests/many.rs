//! A machine with 100,000 tasks, looked at and recorded: in a test program of its own, so that no other test
//! runs beside them.
//!
//! ```text
//! herd × 8: 12,500 threads each, asleep ─▶ homenode attached ─▶ all are woken ─▶ SIGINT ─▶ what was told
//! ```
//!
//! Source: specs/schedstats.md#live, specs/record-sched.md#kernel.

#[path = "support/attached.rs"]
mod attached;

use attached::{may_look, programs_of};
use homenode_fixtures::{Folder, Leashed, until};
use homenode_trace::sched::load;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const TASKS: u64 = 100_000;
/// Processes that they are in: a process may have 65,530 mappings, and a thread takes four.
const PROCESSES: u64 = 8;
/// The kernel's and our memory for a task that sleeps, in KiB, with room to spare.
const KIB_EACH: u64 = 48;
/// The variable that makes a herd of this program; how many threads.
const HERD: &str = "HOMENODE_HERD";

// ── The herd ───────────────────────────────────────────────────────────────────

/// Changes when all are woken.
static WORD: AtomicU32 = AtomicU32::new(0);

fn futex(op: i32, value: u32) -> i64 {
    let none = std::ptr::null::<libc::timespec>();
    let op = op | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a word that lives as long as the program.
    unsafe { libc::syscall(libc::SYS_futex, WORD.as_ptr(), op, value, none) }
}

/// Not a test of its own: the threads, each of which sleeps until all are woken, and then again.
#[test]
fn herd() {
    let Ok(n) = std::env::var(HERD) else { return };
    let n: u64 = n.parse().expect("a number");
    // SAFETY: asks to die with the parent, so that nothing is left behind.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let sleeper = || {
        let mut seen = 0;
        loop {
            futex(libc::FUTEX_WAIT, seen);
            seen = WORD.load(Ordering::SeqCst);
        }
    };
    let one = || std::thread::Builder::new().stack_size(16 << 10).spawn(sleeper);
    let made = (0..n).take_while(|_| one().is_ok()).count();
    println!("\nmade {made}");
    for byte in std::io::stdin().lock().bytes() {
        byte.expect("its input");
        WORD.fetch_add(1, Ordering::SeqCst);
        println!("woke {}", futex(libc::FUTEX_WAKE, i32::MAX as u32));
    }
    std::process::exit(0);
}

/// A process with many threads; it is killed when this is dropped.
struct Herd {
    child: Leashed,
    output: BufReader<std::process::ChildStdout>,
    /// How many there came to be.
    made: u64,
}

impl Herd {
    fn start(n: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["herd", "--exact", "--nocapture"]).env(HERD, n.to_string());
        let mut child = Leashed::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut herd = Self { child, output, made: 0 };
        herd.made = herd.number("made ");
        herd
    }
    fn number(&mut self, word: &str) -> u64 {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).expect("its words") > 0, "a herd ended");
            if let Some(n) = line.strip_prefix(word) {
                return n.trim().parse().expect("a number");
            }
        }
    }
    fn wake(&mut self) -> u64 {
        self.child.stdin.as_mut().expect("piped").write_all(b"w").expect("it listens");
        self.number("woke ")
    }
}

/// A knob's old value, which comes back.
struct Knob(&'static str, String);

impl Knob {
    /// At least that; `None` if it may not be set.
    fn at_least(path: &'static str, value: u64) -> Option<Self> {
        let old = fs::read_to_string(path).ok()?;
        if old.trim().parse::<u64>().ok()? < value {
            fs::write(path, value.to_string()).ok()?;
        }
        Some(Self(path, old))
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        fs::write(self.0, self.1.trim()).expect("what it was is put back");
    }
}

fn available_kib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

// ── Looks ──────────────────────────────────────────────────────────────────────

/// Runs homenode while all are woken twice, ends it as Ctrl-C does, and gives what it printed.
fn while_woken(herds: &mut [Herd], folder: &Folder, args: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    command.args(args).current_dir(folder).stdin(Stdio::null());
    let child = Leashed::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let pid = child.id();
    until("programs that are attached", || (programs_of(pid).len() >= 6).then_some(()));
    // From attached to counting is a moment.
    std::thread::sleep(Duration::from_secs(1));
    for _ in 0..2 {
        let made: u64 = herds.iter().map(|h| h.made).sum();
        let woken: u64 = herds.iter_mut().map(Herd::wake).sum();
        // One that is still on its way to sleep has seen it anyway.
        assert!(woken * 10 >= made * 9, "{woken} of {made} are woken");
        std::thread::sleep(Duration::from_secs(1));
    }
    // SAFETY: signals a child that was not waited for.
    unsafe { libc::kill(pid as i32, libc::SIGINT) };
    let out = child.output();
    let words = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{args:?}: {}: {words}", out.status);
    let text = String::from_utf8_lossy(&out.stdout);
    serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
}

/// The most memory that a child has had that was waited for, in MiB.
fn most_mib() -> i64 {
    // SAFETY: a structure of numbers, which the kernel fills.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage.ru_maxrss >> 10
    }
}

#[test]
fn a_machine_with_100_000_tasks_is_looked_at_and_recorded() {
    if !may_look() {
        return;
    }
    let wanted = TASKS.min(available_kib() / 2 / KIB_EACH);
    let knobs = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"];
    let knobs: Option<Vec<Knob>> =
        knobs.into_iter().map(|knob| Knob::at_least(knob, 2 * TASKS)).collect();
    if knobs.is_none() {
        return println!("skipped: kernel.pid_max and kernel.threads-max may not be set here");
    }
    let each = wanted / PROCESSES;
    let mut herds: Vec<Herd> = (0..PROCESSES).map(|_| Herd::start(each)).collect();
    let made: u64 = herds.iter().map(|h| h.made).sum();
    if made < 20_000 {
        return println!("skipped: there is room for {made} tasks only, of {TASKS}");
    }
    let folder = Folder::new();
    let number = |of: &Value, key: &str| of[key].as_u64().unwrap_or_else(|| panic!("no {key}"));
    let pids: Vec<u64> = herds.iter().map(|h| h.child.id().into()).collect();
    // How many of them are told, and their wake-ups.
    let ours = |look: &Value| -> (u64, u64) {
        let all = look["tasks"].as_array().expect("tasks");
        let mine = all.iter().filter(|t| pids.contains(&number(t, "tgid")));
        mine.fold((0, 0), |(n, woken), t| (n + 1, woken + number(t, "nr_wakeups")))
    };

    // More than there are places for: who found none is counted, and no more memory is taken.
    let look = while_woken(&mut herds, &folder, &["stats", "--system", "--json"]);
    let (places, lost) = (number(&look, "places"), number(&look, "lost_tasks"));
    let (told, _) = ours(&look);
    assert!(told <= places && told + lost >= made, "{told} told, {lost} lost, of {made}");
    assert!(number(&look, "lost_events") >= 2 * (made - places), "{}", look["lost_events"]);
    assert!(look["notes"].to_string().contains("there was no place"), "{}", look["notes"]);
    let kernel = number(&look, "kernel_bytes");
    // Four bytes for each number that a task can have, and some 800 for each place.
    assert!(kernel < 4 * 4_194_304 + 1024 * places + (4 << 20), "{kernel} bytes");

    // With as many places all are told, to the last wake-up.
    let args = ["stats", "--system", "--json", "--tasks", "131072"];
    let look = while_woken(&mut herds, &folder, &args);
    assert_eq!((number(&look, "lost_tasks"), number(&look, "lost_events")), (0, 0));
    let (told, woken) = ours(&look);
    assert!(told >= made && woken * 10 >= made * 18, "{told} tasks, {woken} wake-ups of {made}");

    // A recording has places for them, and a ring that its reader keeps up with.
    let args = ["record", "sched", "--system", "--for", "600s", "--json", "-o", "a.parquet"];
    let said = while_woken(&mut herds, &folder, &args);
    assert_eq!(number(&said, "untold_tasks"), 0);
    let (header, rows) = load(folder.join("a.parquet")).expect("a whole recording");
    let (lost, rows) = (header.lost, rows.len() as u64);
    assert_eq!(lost, number(&said, "lost"));
    assert!(header.tasks.len() as u64 >= made, "{} tasks of {made}", header.tasks.len());
    // Of each: a wake-up, a run, a stop, twice.
    assert!(rows + lost >= 5 * made, "{rows} rows, {lost} lost");

    let most = most_mib();
    println!(
        "{made} tasks: {kernel} bytes of the kernel's for {places} places, {most} MiB of our own"
    );
    assert!(most < 1500, "homenode took {most} MiB");
}
