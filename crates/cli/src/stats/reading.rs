//! A file of statistics from wherever it comes: a pipe that nobody writes, a device without an end,
//! a text that is none. Nothing of it takes memory without bound or waits without a word.
//!
//! ```text
//! bytes ─▶ line by line: too long? a NUL? ─▶ UTF-8, or a task's odd name ─▶ StatsFile
//!   └─ nothing for two seconds: what is waited for is said, once
//! ```
//!
//! Source: specs/schedstats.md#strict.

use super::is_input;
use anyhow::{Context, Result, anyhow, bail};
use homenode_core::sched::stats::StatsFile;
use std::fs::{File, FileType};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Bytes of a line, at most. The longest that a kernel prints is a domain's: a mask of 8,192 CPUs
/// with 2,303 characters, a name, and 45 numbers of up to 10 digits.
const MOST_LINE: usize = 16 << 10;
/// Bytes of `/proc/schedstat`, at most: 8,192 CPUs with six domains each have 140 MB.
const MOST_FILE: usize = 256 << 20;
/// Bytes of the two files of a task, at most: 1,024 nodes have less than 200 KB.
const MOST_TASK: usize = 1 << 20;
/// How long nothing comes before it is said.
const PATIENCE: Duration = Duration::from_secs(2);

/// Reads a file; `-` is standard input.
pub(super) fn read(path: &Path) -> Result<StatsFile> {
    let input = is_input(path);
    let name = if input { "standard input".to_owned() } else { path.display().to_string() };
    let (own, shown) = (path.to_owned(), name.clone());
    patiently(path, &name, move || {
        let bytes = if input {
            bounded(std::io::stdin().lock(), &shown)
        } else {
            let file = File::open(&own).with_context(|| format!("{shown}: cannot be read"))?;
            bounded(file, &shown)
        }?;
        let text = text_of(bytes, &shown)?;
        StatsFile::parse(&text).map_err(|e| anyhow!("{shown}:{}: {}", e.line, e.what))
    })
}

/// Runs something that reads a file, and says so where that takes long because nobody has written.
pub(super) fn patiently<T: Send + 'static>(
    path: &Path,
    name: &str,
    read: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (tell, told) = channel();
    let reader = std::thread::spawn(move || {
        // Nobody listens only where the other side panicked.
        let _ = tell.send(());
        let read = read();
        let _ = tell.send(());
        read
    });
    // It has begun; now it may take its time.
    let _ = told.recv();
    if told.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        if let Some(what) = waited_for(path) {
            eprintln!("homenode: {name}: waiting for {what}; Ctrl-C ends");
        }
    }
    reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What a read of it may wait for; `None` of a file that has all it will have.
fn waited_for(path: &Path) -> Option<&'static str> {
    if is_input(path) {
        return Some("its end, which a terminal tells with Ctrl-D");
    }
    let of = |t: FileType| {
        if t.is_fifo() {
            Some("somebody who writes into this FIFO and closes it")
        } else if t.is_char_device() {
            Some("the end of this device")
        } else {
            None
        }
    };
    std::fs::metadata(path).ok().and_then(|m| of(m.file_type()))
}

/// All bytes, as long as they may be a text of the kernel's.
fn bounded(mut from: impl Read, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 64 << 10];
    let (mut line, mut length) = (1, 0);
    loop {
        let n = match from.read(&mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(n) => n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e).with_context(|| format!("{name}: cannot be read")),
        };
        for byte in &chunk[..n] {
            match byte {
                b'\n' => (line, length) = (line + 1, 0),
                0 => bail!(
                    "{name}:{line}: a NUL byte, which no text has (one of 16 bits a character has \
                     many); the kernel's files are ASCII"
                ),
                _ => length += 1,
            }
            if length > MOST_LINE {
                bail!(
                    "{name}:{line}: longer than {MOST_LINE} bytes, which no line of the kernel's is"
                );
            }
        }
        bytes.extend_from_slice(&chunk[..n]);
        let (most, what) = if bytes.starts_with(b"version ") {
            (MOST_FILE, "/proc/schedstat of the largest machine")
        } else {
            (
                MOST_TASK,
                "a task's file, and it doesn't begin with `version` as /proc/schedstat does",
            )
        };
        if bytes.len() > most {
            bail!("{name}:{line}: longer than {} MiB, so it is not {what}", most >> 20);
        }
    }
}

/// A task's name may be anything; everything else is ASCII.
fn text_of(bytes: Vec<u8>, name: &str) -> Result<String> {
    String::from_utf8(bytes).or_else(|e| {
        if e.as_bytes().len() <= MOST_TASK {
            return Ok(String::from_utf8_lossy(e.as_bytes()).into_owned());
        }
        let good = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|b| **b == b'\n').count();
        bail!("{name}:{line}: bytes that are no text; the kernel's files are ASCII")
    })
}
