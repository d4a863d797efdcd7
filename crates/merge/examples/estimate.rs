//! What `cargo xtask bench merge-estimate` measures: looks at a process of known
//! content, beside ksmd and the bare system call.
//!
//! `merge PAGES LOOKS` prints one JSON object: seconds of each estimate as the command
//! makes it and with one job, of each bare `process_vm_readv` of the same pages, and of
//! ksmd until its counters settle, with the CPU time of each; or why there was no ksmd; of
//! each process the percentage of pages whose frame is the next one (0 where frames are
//! hidden).

use homenode_fixtures::held::{self, Held};
use homenode_fixtures::ksm::Ksm;
use homenode_live::place::Place;
use homenode_live::text::addresses;
use homenode_merge::estimate::{Estimate, Options, Targets, estimate};
use homenode_merge::ksm::{Folder, Watch};
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
    let (Some(pages), Some(looks)) = (number(0), number(1)) else {
        eprintln!("usage: merge PAGES LOOKS");
        return ExitCode::from(2);
    };
    println!("{}", estimates(pages, looks));
    ExitCode::SUCCESS
}

fn start(plan: &str) -> Held {
    Held::start(Command::new(std::env::current_exe().expect("our own path")), plan)
}

fn list(seconds: &[Duration]) -> String {
    let all: Vec<String> = seconds.iter().map(|s| format!("{:.6}", s.as_secs_f64())).collect();
    format!("[{}]", all.join(", "))
}

fn look(held: &Held, options: &Options) -> Estimate {
    estimate(&Targets::Pids(held.pids.clone()), options, &mut |_| {}).expect("it can be read")
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
            one.take(|| look(&held, &one_job));
            let e = ours.take(|| look(&held, &options));
            scanned = e.pages_scanned;
            bytes = e.looks.peak_bytes / e.distinct.max(1);
        }
        match ksm {
            Ok(ksm) => {
                ksm.full_speed();
                ksm.set("max_page_sharing", 256);
                let (mut used, mut cpu) = (ksmd_cpu(), Duration::ZERO);
                // It goes on, to show that no more comes: that counts no longer.
                ksmd.wall.push(ksm.settle_telling(|| cpu = used()));
                ksmd.cpu.push(cpu);
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
    fn take<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (began, before) = (Instant::now(), own_cpu());
        let done = work();
        self.wall.push(began.elapsed());
        self.cpu.push(own_cpu().saturating_sub(before));
        done
    }

    fn told(&self, name: &str) -> String {
        format!("\"{name}\": {}, \"{name}_cpu\": {}", list(&self.wall), list(&self.cpu))
    }
}

/// CPU time of this process, with its threads.
fn own_cpu() -> Duration {
    homenode_live::machine::time_of(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Tells ksmd's CPU time from now on.
fn ksmd_cpu() -> impl FnMut() -> Duration {
    let place = Place::here();
    let mut watch = Watch::new(&place, vec![std::process::id()]).expect("there is KSM");
    let mut used = move || watch.look(&Folder::of(&place)).map_or(0, |seen| seen.whole.cpu_ns);
    used();
    move || Duration::from_nanos(used())
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
        let [_, modes, _, _, "0", name @ ..] = &words[..] else { continue };
        if !modes.ends_with('p') || name.first().is_some_and(|w| w.starts_with("[v")) {
            continue;
        }
        let (lo, hi) = addresses(line).expect("a range");
        let (lo, hi) = (lo as usize, hi as usize);
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
