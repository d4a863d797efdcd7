//! Recording a sort and a Python program, against native, beside lackey.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::hotloop::Figures;
use super::{Samples, Setting, Verdict, peers};
use crate::workspace::{must_run, text_of, typed};

/// A program of people's own, that only computes.
const PYTHON: &str = "\
import sys
words = {}
x = 1
for i in range(int(sys.argv[1])):
    x = x * 1103515245 + 12345 & 0x7fffffff
    words[x % 50021] = words.get(x % 50021, 0) + i
assert len(sorted(words.items(), key=lambda item: item[1])) > 0
";

pub(super) fn run(setting: &Setting<'_>) -> Result<Verdict> {
    let folder = setting.ws.folder("bench")?;
    let homenode = setting.ws.homenode(setting.profile)?;
    let machine = folder.join("machine.toml");
    quiet(Command::new(&homenode).arg("measure").arg("-o").arg(&machine))?;

    let lines = folder.join(setting.pick("lines.txt", "lines-tiny.txt"));
    write_lines(&lines, setting.pick(1_000_000, 20_000))?;
    // A wrapper script that picks a Python would be measured too: ask it which.
    let python =
        text_of(Command::new("python3").args(["-c", "import sys; print(sys.executable)"]))?;
    let mut sort = Command::new("sort");
    sort.args(["--parallel=1", "-S", "512M", "-o", "/dev/null"]).arg(&lines).env("LC_ALL", "C");
    let mut script = Command::new(python.trim());
    script.args(["-I", "-S", "-c", PYTHON, setting.pick("1000000", "20000")]);

    println!("  wall time as multiples of the native one, medians (lowest to highest)");
    let mut worst: Option<Program> = None;
    for (name, mut program, most) in [("sort", sort, 15.0), ("python", script, 20.0)] {
        let instructions = peers::instructions(&program, &folder)? as f64;
        let recording = folder.join("slowdown.parquet");
        let (mut native, mut recorded, mut lackey) =
            (Samples::default(), Samples::default(), Samples::default());
        for _ in 0..setting.pick(5, 1) {
            let plain = seconds(&mut program)?;
            native.push(plain);
            let mut record = Command::new(&homenode);
            record.args(["record", "mem", "--json", "--native-runs", "1", "-o"]).arg(&recording);
            record.arg("--machine").arg(&machine);
            peers::under(record.arg("--"), &program);
            record.stderr(Stdio::null());
            let figures = Figures::by(&mut record)?;
            recorded.push(figures.number("recorded_wall_ns")? / 1e9);
            let slice = Duration::from_secs(setting.pick(5, 1));
            let per_second = peers::lackey_slice(&program, slice)?;
            // How much slower it goes through instructions than the native run.
            lackey.push(instructions / plain / per_second);
        }
        let mut slowdown = Samples::default();
        for taken in &recorded.0 {
            slowdown.push(taken / native.median());
        }
        println!(
            "  {name:<8} native {:.2} s, recorded {} (goal {most}), lackey {} (a slice of its start)",
            native.median(),
            slowdown.shown(1),
            lackey.shown(0)
        );
        let this = Program { ours: slowdown.median(), peer: lackey.median(), most };
        if worst.as_ref().is_none_or(|w| this.ours / this.most > w.ours / w.most) {
            worst = Some(this);
        }
    }
    println!("  recorded: from the program's start under the recorder to the end of the file");
    let Program { ours, peer, most } = worst.context("no program was recorded")?;
    Ok(Verdict {
        ours,
        peer,
        unit: "times native, the program nearest to its goal or furthest beyond",
        ratio: peer / ours,
        goal: "sort <= 15, python <= 20",
        pass: ours <= most,
    })
}

/// How many times as long as natively a program takes: recorded, under the peer, and at most.
struct Program {
    ours: f64,
    peer: f64,
    most: f64,
}

/// Wall time of a run whose output is of no use.
fn seconds(command: &mut Command) -> Result<f64> {
    let begun = Instant::now();
    quiet(command)?;
    let took = begun.elapsed().as_secs_f64();
    if took <= 0.0 {
        bail!("`{}` took no time", typed(command));
    }
    Ok(took)
}

fn quiet(command: &mut Command) -> Result<()> {
    must_run(command.stdout(Stdio::null()))
}

/// Lines of 16 digits in no order, the same on every machine.
fn write_lines(path: &Path, n: u64) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let partial = path.with_extension("partial");
    let file =
        fs::File::create(&partial).with_context(|| format!("can't write {}", partial.display()))?;
    let mut out = BufWriter::new(file);
    // Marsaglia's xorshift64; any odd start will do.
    let mut x: u64 = 0x9e37_79b9_7f4a_7c15;
    for _ in 0..n {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        writeln!(out, "{x:016x}")?;
    }
    out.into_inner().context("can't write the lines to sort")?.sync_all()?;
    fs::rename(&partial, path).with_context(|| format!("can't rename {}", partial.display()))
}
