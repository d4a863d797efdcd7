//! What `cargo xtask bench observe-cost` looks at: processes that hold memory and use some
//! of it.
//!
//! `herd N BYTES` starts N processes with BYTES each, all of it touched, which write to every
//! 16th page once a second. Each prints its PID when it has its memory. They end when their
//! standard input does, and with them the call.

use std::io::Read;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

const PAGE: usize = 4096;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<Option<usize>> = args.iter().map(|a| a.parse().ok()).collect();
    match numbers[..] {
        [Some(bytes)] => hold(bytes),
        [Some(many), Some(bytes)] => return start(many, bytes),
        _ => {
            eprintln!("usage: herd N BYTES");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn start(many: usize, bytes: usize) -> ExitCode {
    let own = std::env::current_exe().expect("our own path");
    let one = || Command::new(&own).arg(bytes.to_string()).spawn();
    let mut herd: Vec<Child> = Vec::new();
    for _ in 0..many {
        match one() {
            Ok(child) => herd.push(child),
            Err(e) => {
                eprintln!("herd: only {} of {many} processes could be started: {e}", herd.len());
                break;
            }
        }
    }
    let all = herd.len() == many;
    for mut child in herd {
        // One that somebody else ended is as good as ended by us.
        let _ = if all { child.wait().map(drop) } else { child.kill() };
    }
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn hold(bytes: usize) {
    let mut held = vec![1_u8; bytes];
    println!("{}", std::process::id());
    std::thread::spawn(move || {
        loop {
            held.iter_mut().step_by(16 * PAGE).for_each(|byte| *byte = byte.wrapping_add(1));
            std::hint::black_box(&mut held);
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    // Nobody writes to it: it only ends.
    let _ = std::io::stdin().read(&mut [0]);
}
