//! Programs of others that we are measured beside.

use std::fs;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::hotloop::{Figures, path_text};
use crate::workspace::{Workspace, cache_folder, made, not_run, text_of, typed};

/// libCacheSim's LRU, in a Python environment of its own in the cache folder.
pub(super) struct LibCacheSim {
    python: PathBuf,
    script: PathBuf,
}

impl LibCacheSim {
    /// Installs it unless this very list was installed before.
    pub(super) fn install(ws: &Workspace) -> Result<Self> {
        let folder = ws.root.join("bench/peers");
        let python = environment(
            "libcachesim",
            &folder.join("requirements.txt"),
            &["--only-binary", ":all:"],
        )
        .context(
            "libcachesim could not be installed (it comes for 64-bit x86 and Python 3.10 to 3.13): is there network?",
        )?;
        Ok(Self { python, script: folder.join("libcachesim_lru.py") })
    }

    /// Its millions of requests a second, and its miss ratio. Its hash table has
    /// 2^24 slots unless told otherwise; fewer fit the caches better.
    pub(super) fn lru(&self, ids: &Path, pages: u64, hashpower: u32) -> Result<(f64, f64)> {
        let mut command = Command::new(&self.python);
        command.arg(&self.script).args(["--ids", path_text(ids)?]);
        command.args(["--cache-pages", &pages.to_string(), "--hashpower", &hashpower.to_string()]);
        let figures = Figures::by(&mut command)?;
        Ok((figures.rate("requests")?, figures.number("miss_ratio")?))
    }
}

/// SimSo, a simulator of real-time schedulers, in a Python environment of its own.
pub(super) struct SimSo {
    python: PathBuf,
    script: PathBuf,
}

impl SimSo {
    /// Installs it unless this very list was installed before.
    pub(super) fn install(ws: &Workspace) -> Result<Self> {
        let folder = ws.root.join("bench/peers");
        let python = environment("simso", &folder.join("simso.txt"), &[])
            .context("SimSo could not be installed: is there network?")?;
        Ok(Self { python, script: folder.join("simso_edf.py") })
    }

    /// Its millions of wake-ups and switches a second.
    pub(super) fn edf(&self, tasks: u64, cpus: u64, milliseconds: u64) -> Result<f64> {
        let mut command = Command::new(&self.python);
        command.arg(&self.script).args(["--tasks", &tasks.to_string()]);
        command.args(["--cpus", &cpus.to_string(), "--milliseconds", &milliseconds.to_string()]);
        Figures::by(&mut command)?.rate("events")
    }
}

/// The Python of an environment in the cache folder that has what a list asks for: made unless
/// this very list was installed there before.
fn environment(name: &str, list: &Path, how: &[&str]) -> Result<PathBuf> {
    let wanted = fs::read(list).with_context(|| format!("can't read {}", list.display()))?;
    let version = text_of(
        Command::new("python3").args(["-c", "import sys; print('%d.%d' % sys.version_info[:2])"]),
    )?;
    let environment = cache_folder()?.join(format!("{name}-python{}", version.trim()));
    let python = environment.join("bin/python");
    // Written last, so that an interrupted installation is made anew.
    let installed = environment.join("installed.txt");
    if fs::read(&installed).ok().as_deref() != Some(&wanted[..]) {
        println!("  installing {name} into {}", environment.display());
        text_of(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
        text_of(
            Command::new(&python)
                .args(["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"])
                .args(how)
                .arg("-r")
                .arg(list),
        )?;
        fs::write(&installed, &wanted)
            .with_context(|| format!("can't write {}", installed.display()))?;
    }
    Ok(python)
}

/// memtierd, built in the cache folder by the versions and hashes of `bench/peers/memtierd`.
pub(super) struct Memtierd(PathBuf);

impl Memtierd {
    /// Builds it unless these very files were built before.
    pub(super) fn build(ws: &Workspace) -> Result<Self> {
        let from = ws.root.join("bench/peers/memtierd");
        let folder = made(cache_folder()?.join("memtierd"))?;
        let program = folder.join("memtierd");
        let names = ["go.mod", "go.sum", "memtierd.go"];
        let same = |name: &&str| {
            let (ours, built) = (fs::read(from.join(name)), fs::read(folder.join(name)));
            ours.is_ok_and(|ours| built.is_ok_and(|built| built == ours))
        };
        if !program.exists() || !names.iter().all(same) {
            println!("  building memtierd in {}", folder.display());
            // Removed first, so that an interrupted build is made anew.
            let _ = fs::remove_file(&program);
            for name in names {
                fs::copy(from.join(name), folder.join(name))
                    .with_context(|| format!("can't copy {name} to {}", folder.display()))?;
            }
            let mut go = Command::new("go");
            go.current_dir(&folder).args(["build", "-mod=readonly", "-o", "memtierd"]);
            text_of(go.arg("github.com/intel/memtierd/cmd/memtierd"))
                .context("memtierd could not be built: is there network, and Go 1.22 or newer?")?;
        }
        Ok(Self(program))
    }

    /// Where it is.
    pub(super) fn program(&self) -> &Path {
        &self.0
    }

    /// Tracks what these processes write, and moves nothing. It ends with its input.
    pub(super) fn tracking(&self, folder: &Path, pids: &[u32], every_ms: u64) -> Result<Command> {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        // Its own defaults, but for how often.
        let text = format!(
            "policy:\n  name: age\n  config: |\n    intervalms: {every_ms}\n    pidwatcher:\n      \
             name: pidlist\n      config: |\n        pids: [{}]\n    tracker:\n      \
             name: softdirty\n      config: |\n        pagesinregion: 512\n        \
             maxcountperregion: 1\n        scanintervalms: {every_ms}\n        \
             regionsupdatems: 10000\n",
            pids.join(", ")
        );
        let file = folder.join("memtierd.yaml");
        fs::write(&file, text).with_context(|| format!("can't write {}", file.display()))?;
        let mut command = Command::new(&self.0);
        command.args(["-config", path_text(&file)?, "-prompt"]);
        Ok(command)
    }
}

/// Pipes for a debugger would stay behind in the temporary folder where valgrind is killed,
/// or where its program is.
const NO_PIPES: &str = "--vgdb=no";

/// Instructions of a whole run, counted by valgrind's callgrind.
pub(super) fn instructions(command: &Command, folder: &Path) -> Result<u64> {
    let out = folder.join("callgrind.out");
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--quiet", NO_PIPES, "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", out.display()));
    under(&mut valgrind, command);
    text_of(&mut valgrind)?;
    let text = fs::read_to_string(&out).with_context(|| format!("can't read {}", out.display()))?;
    total_of(&text).with_context(|| format!("{} has no total", out.display()))
}

fn total_of(callgrind: &str) -> Option<u64> {
    let line = callgrind.lines().find_map(|line| line.strip_prefix("totals:"))?;
    line.trim().parse().ok()
}

/// Instructions a second under valgrind's lackey, which writes a line for each
/// instruction and each access; we read them and drop them.
///
/// Only the first `at_most` of the run is looked at, from its first line on, and
/// then it is ended: the whole would take hours.
pub(super) fn lackey_slice(command: &Command, at_most: Duration) -> Result<f64> {
    let mut valgrind = Command::new("valgrind");
    // Its log goes to stderr; the program's own output is of no use here.
    valgrind.args(["--quiet", NO_PIPES, "--tool=lackey", "--trace-mem=yes"]);
    under(&mut valgrind, command);
    valgrind.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = valgrind.spawn().map_err(|e| not_run(&valgrind, e))?;
    let log = child.stderr.take().context("lackey's log is piped")?;
    let counted = count_instructions(BufReader::new(log), at_most);
    // It may have ended by itself; then there is nothing to end.
    let _ = child.kill();
    child.wait().context("can't wait for valgrind")?;
    let (instructions, took) = counted?;
    if instructions == 0 || took.is_zero() {
        bail!("`{}` wrote no instruction", typed(&valgrind));
    }
    Ok(instructions as f64 / took.as_secs_f64())
}

/// Lines that begin with `I`, and the time from the first bytes to the last.
fn count_instructions(mut log: impl Read, at_most: Duration) -> Result<(u64, Duration)> {
    let mut buffer = vec![0; 1 << 16];
    let mut at_line_start = true;
    let mut instructions = 0;
    let mut begun: Option<Instant> = None;
    loop {
        let n = log.read(&mut buffer).context("can't read lackey's log")?;
        let begun = *begun.get_or_insert_with(Instant::now);
        for &byte in &buffer[..n] {
            instructions += u64::from(at_line_start && byte == b'I');
            at_line_start = byte == b'\n';
        }
        let took = begun.elapsed();
        if n == 0 || took >= at_most {
            return Ok((instructions, took));
        }
    }
}

/// Appends the command, with its environment, to one that runs others.
pub(super) fn under(runner: &mut Command, command: &Command) {
    runner.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => runner.env(name, value),
            None => runner.env_remove(name),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_instruction_lines_count() {
        let log = "I  0023C790,2\nI  0023C792,5\n S BE80199C,4\nI  0025242B,3\n L BE801950,4\n";
        let (n, _) = count_instructions(log.as_bytes(), Duration::from_secs(9)).unwrap();
        assert_eq!(n, 3);
    }

    #[test]
    fn callgrinds_total_is_read() {
        assert_eq!(total_of("events: Ir\nfn=(0)\n0 17\ntotals: 123456\n"), Some(123_456));
        assert_eq!(total_of("events: Ir\n"), None);
    }
}
