//! What `cargo xtask bench merge-estimate` and `merge-again` measure: looks at a
//! process of known content, beside ksmd and the bare system call.
//!
//! | call | prints |
//! |---|---|
//! | `estimate PAGES LOOKS` | one JSON object: seconds of each estimate as the command makes it and with one job, of each bare `process_vm_readv` of the same pages, and of ksmd until its counters settle, with the CPU time of each; or why there was no ksmd; of each process the percentage of pages whose frame is the next one (0 where frames are hidden) |
//! | `again PAGES LOOKS` | seconds of second looks after 1 % of the pages was written: reading all, and reading what the kernel tells; or why it can't tell |

#[path = "../tests/support/held.rs"]
mod held;
#[allow(dead_code)]
#[path = "../tests/support/ksm.rs"]
mod ksm;

use held::Held;
use homenode_live::ksm::{Place, Watch};
use homenode_live::merge::{Changes, Estimate, Options, Progress, Targets, estimate};
use ksm::Ksm;
use std::os::unix::fs::FileExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Pages of a call, as many as an estimate's.
const BATCH: usize = 256;
const PAGE: usize = 4096;

fn main() -> ExitCode {
    held::hold_if_asked();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<usize>().ok());
    match (args.first().map(String::as_str), number(1), number(2)) {
        (Some("estimate"), Some(pages), Some(looks)) => println!("{}", estimates(pages, looks)),
        (Some("again"), Some(pages), Some(looks)) => println!("{}", agains(pages, looks)),
        _ => {
            eprintln!("usage: merge estimate|again PAGES LOOKS");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn start(plan: &str) -> Held {
    Held::start(Command::new(std::env::current_exe().expect("our own path")), plan)
}

fn list(seconds: &[Duration]) -> String {
    let all: Vec<String> = seconds.iter().map(|s| format!("{:.6}", s.as_secs_f64())).collect();
    format!("[{}]", all.join(", "))
}

fn look(held: &Held, options: &Options, progress: &mut dyn FnMut(Progress)) -> Estimate {
    estimate(&Targets::Pids(held.pids.clone()), options, progress).expect("it can be read")
}

fn estimates(pages: usize, looks: usize) -> String {
    // Two fifths like no others, nine twentieths copies of a tenth as many, zeros.
    let (own, copies) = (pages * 2 / 5, pages * 9 / 20);
    let zero = pages - own - copies;
    let plan = format!("merge own={own} copies={copies}/{} zero={zero}", (copies / 5).max(1));
    let options =
        Options { max_page_sharing: Some(256), use_zero_pages: Some(false), ..Options::default() };
    let one_job = Options { jobs: Some(1), ..options.clone() };
    let (mut ours, mut one, mut bare, mut ksmd) = <(Taken, Taken, Vec<_>, Taken)>::default();
    let mut skipped = String::new();
    let mut scanned = 0;
    let mut bytes = 0;
    let mut in_order: Vec<usize> = Vec::new();
    // A new process for each round of ksmd, which leaves merged pages behind.
    for _ in 0..looks {
        // Before it is registered: what is registered would count as somebody else's.
        let ksm = Ksm::take();
        let held = start(&plan);
        let (runs, next) = present(held.pids[0]);
        in_order.push(next);
        for _ in 0..3 {
            bare.push(read_all(held.pids[0], &runs));
            one.take(own_cpu, || look(&held, &one_job, &mut |_| {}));
            let e = ours.take(own_cpu, || look(&held, &options, &mut |_| {}));
            scanned = e.pages_scanned;
            bytes = e.looks.peak_bytes / e.distinct.max(1);
        }
        match ksm {
            Ok(ksm) => {
                ksm.full_speed();
                ksm.set("max_page_sharing", 256);
                let mut reached = Duration::ZERO;
                ksmd.take(ksmd_cpu, || reached = ksm.settle());
                // It goes on, to show that no more comes, at the same pace.
                ksmd.until(reached);
                ksm.stop();
                drop(held);
            }
            Err(why) => skipped = why,
        }
    }
    format!(
        "{{\"pages\": {scanned}, \"bytes_per_content\": {bytes}, \"in_order\": {in_order:?}, {}, {}, {}, \"bare\": {}, \"skipped\": \"{skipped}\"}}",
        ours.told("ours"),
        one.told("one"),
        ksmd.told("ksmd"),
        list(&bare)
    )
}

/// Times of something, and the CPU time in them.
#[derive(Default)]
struct Taken {
    wall: Vec<Duration>,
    cpu: Vec<Duration>,
}

impl Taken {
    fn take<T>(&mut self, cpu: fn() -> Duration, work: impl FnOnce() -> T) -> T {
        let (began, before) = (Instant::now(), cpu());
        let done = work();
        self.wall.push(began.elapsed());
        self.cpu.push(cpu().saturating_sub(before));
        done
    }

    /// The last one was done earlier: its CPU time up to then.
    fn until(&mut self, reached: Duration) {
        if let (Some(wall), Some(cpu)) = (self.wall.last_mut(), self.cpu.last_mut()) {
            *cpu = cpu.mul_f64(reached.as_secs_f64() / wall.as_secs_f64().max(1e-9));
            *wall = reached;
        }
    }

    fn told(&self, name: &str) -> String {
        format!("\"{name}\": {}, \"{name}_cpu\": {}", list(&self.wall), list(&self.cpu))
    }
}

/// CPU time of this process, with its threads.
fn own_cpu() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local of the right type.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

fn ksmd_cpu() -> Duration {
    let place = Place::here();
    let seen = Watch::new(&place, Vec::new()).and_then(|mut watch| watch.look(&place.files()));
    seen.map_or(Duration::ZERO, |seen| Duration::from_nanos(seen.reading.ksmd_cpu_ns))
}

/// Runs of anonymous pages in memory, address and pages; and the percentage of
/// pages whose frame follows the frame of the page before.
fn present(pid: u32) -> (Vec<(usize, usize)>, usize) {
    const FRAME: u64 = (1 << 55) - 1;
    let (mut pages, mut follow, mut before) = (0, 0, 0);
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it is there");
    let pagemap = std::fs::File::open(format!("/proc/{pid}/pagemap")).expect("it is there");
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for line in maps.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if words.len() < 5
            || !words[1].ends_with('p')
            || words[4] != "0"
            || words.get(5).is_some_and(|w| w.starts_with("[v"))
        {
            continue;
        }
        let (lo, hi) = words[0].split_once('-').expect("a range");
        let address = |text: &str| usize::from_str_radix(text, 16).expect("an address");
        let (lo, hi) = (address(lo), address(hi));
        let mut entries = vec![0; (hi - lo) / PAGE * 8];
        if pagemap.read_exact_at(&mut entries, (lo / PAGE * 8) as u64).is_err() {
            continue;
        }
        // The top bit of an entry's last byte: in memory.
        for (i, e) in entries.chunks_exact(8).enumerate().filter(|(_, e)| e[7] & 0x80 != 0) {
            let frame = e.try_into().map_or(0, u64::from_le_bytes) & FRAME;
            pages += 1;
            follow += usize::from(frame == before + 1);
            before = frame;
            let at = lo + i * PAGE;
            match runs.last_mut() {
                Some((start, n)) if *start + *n * PAGE == at => *n += 1,
                _ => runs.push((at, 1)),
            }
        }
    }
    (runs, follow * 100 / pages.max(1))
}

/// As aligned as an estimate's buffer.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Room([u8; PAGE]);

/// The bare system call over all of them, into a buffer like an estimate's.
fn read_all(pid: u32, runs: &[(usize, usize)]) -> Duration {
    let mut buffer = vec![Room([0; PAGE]); BATCH];
    let began = Instant::now();
    for &(start, n) in runs {
        for first in (0..n).step_by(BATCH) {
            let len = BATCH.min(n - first) * PAGE;
            let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: len };
            let remote =
                libc::iovec { iov_base: (start + first * PAGE) as *mut libc::c_void, iov_len: len };
            // SAFETY: the local vector is our buffer, of at least that length.
            unsafe { libc::process_vm_readv(pid as libc::pid_t, &local, 1, &remote, 1, 0) };
        }
    }
    began.elapsed()
}

fn agains(pages: usize, looks: usize) -> String {
    let mut held = start(&format!("own={pages} watch"));
    let (mut full, mut told) = (Vec::new(), Vec::new());
    let mut spared = 0;
    for _ in 0..looks {
        for (changes, seconds) in [(Changes::Read, &mut full), (Changes::WriteProtect, &mut told)] {
            let again = Some(Duration::ZERO);
            let options = Options { again, changes, jobs: Some(1), ..Options::default() };
            let targets = Targets::Pids(held.pids.clone());
            let e = estimate(&targets, &options, &mut |progress| {
                if matches!(progress, Progress::Waiting { .. }) {
                    held.tell(&format!("write {}", pages / 100));
                }
            })
            .expect("it can be read");
            assert!(e.volatile >= (pages / 100) as u64, "{} were volatile", e.volatile);
            seconds.extend(e.looks.second.map(|(_, took)| took));
            spared = e.looks.pages_spared;
        }
    }
    let skipped = if held.watched { "" } else { "no asynchronous write protection" };
    format!(
        "{{\"pages\": {pages}, \"spared\": {spared}, \"full\": {}, \"again\": {}, \"skipped\": \"{skipped}\"}}",
        list(&full),
        list(&told)
    )
}
