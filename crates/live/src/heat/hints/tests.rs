//! Hint faults as far as this machine shows them.
//!
//! A machine of one node marks pages too if balancing is switched on, as long as several
//! threads run in the process: private memory of one thread is passed over on its own
//! node. So the program, its filter and the ring are tried here; that nodes are told
//! right only a machine with several shows (`tests/vm/guest/src/hints.rs`).

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The knob, put back when this is dropped.
struct Held(String);

impl Held {
    fn set(value: &str) -> Result<Self, String> {
        let path = Path::new("/").join(KNOB);
        let before = fs::read_to_string(&path).map_err(|e| format!("no {KNOB}: {e}"))?;
        fs::write(&path, value).map_err(|e| format!("{KNOB} can't be written: {e}"))?;
        Ok(Self(before))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Err(e) = fs::write(Path::new("/").join(KNOB), self.0.trim()) {
            eprintln!("{KNOB} is not {} again: {e}", self.0.trim());
        }
    }
}

/// Ourselves.
fn own() -> Who {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let after = stat.rsplit_once(") ").unwrap().1;
    let start = after.split(' ').nth(19).unwrap().parse().unwrap();
    Who { pid: std::process::id(), start }
}

/// Two threads write to the pages until enough was seen.
fn run(pages: &mut [[u64; 512]], mut enough: impl FnMut() -> bool) {
    let stop = AtomicBool::new(false);
    let (left, right) = pages.split_at_mut(pages.len() / 2);
    std::thread::scope(|scope| {
        for half in [left, right] {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    half.iter_mut().for_each(|page| page[0] = std::hint::black_box(page[0] + 1));
                }
            });
        }
        let begun = Instant::now();
        while !enough() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn faults_of_who_is_watched_come_and_nobody_elses() {
    let held = match Held::set("1") {
        Ok(held) => held,
        Err(why) => return println!("skipped: {why}"),
    };
    let mut hints = match Hints::open() {
        Ok(hints) => hints,
        Err(error) => return println!("skipped: {}", crate::sentence(&error)),
    };
    let me = own();
    let mut pages = vec![[1u64; 512]; 4096];
    let first = pages.as_ptr() as u64 >> 12;
    let span = first..first + 4097;
    let mut seen = Vec::new();

    // Another start under the same PID is another process.
    hints.watch(Who { pid: me.pid, start: me.start + 1 });
    let begun = Instant::now();
    run(&mut pages, || begun.elapsed() > Duration::from_secs(4));
    hints.take(Picos::ZERO, &mut seen).unwrap();
    assert_eq!(seen, [], "nobody who lives is watched");

    hints.unwatch(Who { pid: me.pid, start: me.start + 1 });
    hints.watch(me);
    run(&mut pages, || {
        hints.take(Picos::ZERO, &mut seen).unwrap();
        seen.len() > 1000
    });
    println!("{} seen", seen.len());
    let mut inside = 0;
    for one in &seen {
        let Seen::Fault { who, vpn, from, on, after } = one else { panic!("{one:?}") };
        assert_eq!((*who, after), (me, &None));
        assert!(hints.nodes.contains(&u32::from(from.0)), "{one:?}");
        assert!(hints.nodes.contains(&u32::from(on.0)), "{one:?}");
        inside += usize::from(span.contains(vpn));
    }
    println!("{inside} inside");
    assert!(inside > 100, "{inside} of {} are of the pages that were used", seen.len());
    drop(held);
}
