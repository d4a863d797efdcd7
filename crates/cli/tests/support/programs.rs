//! Small programs in C that tests record and replay.

use homenode_fixtures::Folder;
use homenode_trace::{Header, Reader};
use serde_json::Value;
use std::fs::{self, File};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longer than any of this takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// The command; it ends, or the test fails.
pub(crate) fn homenode(folder: &Folder, line: &[&str]) -> Output {
    // Into files: a program that lives on would hold a pipe open.
    let [out, err] = ["out", "err"].map(|name| folder.join(name));
    let file = |path| File::create(path).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    command.args(line).current_dir(&**folder).stdout(file(&out)).stderr(file(&err));
    let mut child = command.spawn().expect("homenode runs");
    let began = Instant::now();
    let status = loop {
        match child.try_wait().expect("its state") {
            Some(status) => break status,
            None if began.elapsed() < LIMIT => sleep(Duration::from_millis(5)),
            None => {
                let _ = child.kill();
                panic!("{} hangs: {}", line.join(" "), folder.read("err"));
            }
        }
    };
    let read = |path| fs::read(path).expect("what it said");
    Output { status, stdout: read(&out), stderr: read(&err) }
}

/// Compiles the program and records the command, which may run it as `./p`; its header and
/// exit code. `None` where that can't be done here.
pub(crate) fn recorded(folder: &Folder, source: &str, command: &[&str]) -> Option<(Header, i32)> {
    fs::write(folder.join("p.c"), source).expect("a source file");
    let line = ["-O1", "-pthread", "-o", "p", "p.c"];
    let made = Command::new("cc").args(line).current_dir(&**folder).output();
    if !made.is_ok_and(|o| o.status.success()) {
        println!("skipped: no C compiler");
        return None;
    }
    let line = ["record", "mem", "-o", "r.parquet", "--"];
    let out = homenode(folder, &[&line, command].concat());
    let said = String::from_utf8_lossy(&out.stderr);
    let reader = Reader::open(folder.join("r.parquet"));
    if out.status.code() == Some(3) && reader.is_err() {
        println!("skipped: {said}");
        return None;
    }
    let header = reader.unwrap_or_else(|e| panic!("{e}: {said}")).header().clone();
    Some((header, out.status.code().expect("it exits")))
}

/// Replays two rounds, with these options; the time of the first one in seconds.
pub(crate) fn replayed(folder: &Folder, more: &[&str]) -> f64 {
    let json = played(folder, more);
    json["runs"][0]["round_ends_s"][0].as_f64().expect("the end of a round")
}

/// The same; all that is said of it.
pub(crate) fn played(folder: &Folder, more: &[&str]) -> Value {
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/small.toml");
    let line = ["replay", "r.parquet", "--machine", machine, "--columns", "off"];
    let rest = ["--for", "1ms", "--json", "--force"];
    let out = homenode(folder, &[&line[..], &rest, more].concat());
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && !said.contains("panicked"), "{said}");
    serde_json::from_slice(&out.stdout).expect("JSON")
}
