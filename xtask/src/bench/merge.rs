//! The merging estimator, beside ksmd and the bare system call on the same memory.
//!
//! Where an estimate's time goes on the machine it was written on (Zen 4 in a
//! virtual machine, Linux 6.18), in ns a page, by samples of the clock:
//!
//! | part | ns |
//! |---|---|
//! | `process_vm_readv`: the copy | 315 |
//! | `process_vm_readv`: walk, pin, mark as used, unpin | 265 |
//! | hash | 88 |
//! | pagemap: frame, and whether nobody else maps it | 53 |
//! | table of contents, frames | 43 |
//! | new memory of our own | 11 |
//!
//! The bare call took 475 ns a page of a process in which four fifths of the frames
//! follow each other, 560 with 57 to 72 %, and 615 to 660 where frames fall, as on a
//! machine that gave its memory back page by page. ksmd, which waits for its own
//! checksums, took 0.76 to 0.90 s a GiB with all of them. So one job misses the goal of
//! five times here: 4.8 times with frames in order, 3.9 to 4.2 without. With frames out of
//! order the bare call alone would be 5 to 5.7 times as fast as ksmd. That is why two jobs
//! read where nothing else is asked for: what is judged is what the command does then.
//!
//! Reading 64 bytes of each page first, to leave out what is like no other, does not
//! pay: with a range a page the call takes 510 ns, as much as for whole pages.

use std::process::Command;

use anyhow::{Result, bail};

use super::hotloop::Figures;
use super::{Samples, Setting, Verdict};
use crate::Lacks;

fn skipped(found: &Figures, setting: &Setting<'_>) -> Result<bool> {
    match found.text("skipped") {
        "" => Ok(false),
        why if setting.tiny => {
            println!("  skipped: {why}");
            Ok(true)
        }
        why => bail!(Lacks(format!("there is nothing to be held against: {why}"))),
    }
}

pub(super) fn estimate(setting: &Setting<'_>) -> Result<Verdict> {
    let mut command = Command::new(setting.example("homenode-merge", "estimate")?);
    let (pages, looks) = setting.pick((1 << 18, 3), (1 << 12, 1));
    let found = Figures::by(command.args([pages, looks].map(|n: u64| n.to_string())))?;
    let pages = found.number("pages")?;
    println!("  {pages:.0} pages of mixed content; M pages/s, seconds to the answer, of CPU time");
    let row = |what: &str, key: &str| {
        let taken = found.samples(key);
        let rate = Samples(taken.0.iter().map(|s| pages / s / 1e6).collect());
        let cpu = found.samples(&format!("{key}_cpu"));
        let cpu = if cpu.0.is_empty() { String::new() } else { format!("  {}", cpu.shown(3)) };
        println!("  {what:<20}{}  {} s{cpu}", rate.shown(2), taken.shown(3));
        taken
    };
    let ours = row("homenode", "ours");
    let one = row("homenode, one job", "one");
    let bare = row("process_vm_readv", "bare");
    let ksmd = match skipped(&found, setting)? {
        true => Samples(Vec::new()),
        false => row("ksmd, settled", "ksmd"),
    };
    println!("  (the bare call is one thread's, with a buffer like ours: as large, as aligned)");
    println!("  tables: {} bytes a content", found.number("bytes_per_content")?);
    // What the kernel's copy out of memory takes depends on it; ksmd hardly does.
    let in_order = found.samples("in_order").shown(0);
    println!("  pages whose frame is the next one: {in_order} %");
    // One job and the bare call alternate: each pair was taken on the same moment's machine.
    let of_bare = Samples(bare.0.iter().zip(&one.0).map(|(b, o)| b / o).collect());
    println!("  one job of the bare read  {}", of_bare.shown(3));
    let times = |ours: &Samples| ksmd.median() / ours.median();
    println!("  sooner than ksmd: {:.2} times, one job {:.2} times", times(&ours), times(&one));
    let ratio = times(&ours);
    Ok(Verdict {
        ours: ours.median(),
        peer: ksmd.median(),
        unit: "s",
        ratio,
        goal: "ksmd's time / ours >= 5, and one job >= 65 % of bare process_vm_readv",
        pass: ratio >= 5.0 && of_bare.median() >= 0.65,
    })
}
