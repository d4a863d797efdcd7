//! What looking at processes costs: `homenode observe`, beside memtierd, which tracks the
//! same processes as often.
//!
//! ```text
//! herd: N processes, 1 GiB in all ◀── looked at every 5 s ── homenode observe | memtierd
//!                                                                  │
//!           /proc/PID/stat, status of the tool, of kdamonds that it starts ──▶ CPU, peak memory
//! ```
//!
//! memtierd reads each process' pagemap and clears its soft-dirty bits, by which it sees what
//! is written; where the kernel has none of these bits (CONFIG_MEM_SOFT_DIRTY) it does so in
//! vain, at no less cost. damo drives DAMON for virtual address spaces and has nothing to
//! look with where the kernel lacks that (CONFIG_DAMON_VADDR).
//!
//! On the machine it was written on (two cores of a shared virtual machine, one node, Linux
//! 6.18), residency only:
//!
//! | processes | homenode | memtierd |
//! |---|---|---|
//! | 100 of 10 MiB | 0.23 %, 8.7 MiB | 0.97 %, 11.7 MiB |
//! | 1,000 of 1 MiB | 1.25 %, 10.7 MiB | 4.52 %, 28.2 MiB |
//!
//! That is 60 µs a process and look: `stat`, `status` and a row of JSON. With 10,000 the first
//! look took 1.3 s of one CPU, since every name is read then, and each further one 0.5 s.
//!
//! The processor time is the scheduler's own sum, in ticks of 10 ms, of all that was begun in
//! the measured time, the tool's own start included.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::peers::Memtierd;
use super::{Samples, Setting, Verdict};
use crate::workspace::{not_run, typed};

/// Memory of all processes together.
const HELD: u64 = 1 << 30;
/// Linux counts processor time in hundredths of a second, whatever its own clock does.
const TICKS: f64 = 100.0;
/// How often the tool's own use is read.
const READ_EVERY: Duration = Duration::from_millis(50);

/// Processes that hold memory; they end when this is dropped.
struct Herd {
    child: Child,
    stdin: Option<ChildStdin>,
    pids: Vec<u32>,
}

impl Herd {
    fn start(setting: &Setting<'_>, many: u64, bytes: u64) -> Result<Self> {
        let mut command = Command::new(setting.example("homenode-live", "herd")?);
        command.args([(many).to_string(), (bytes / many).to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| not_run(&command, e))?;
        let stdin = child.stdin.take();
        let out = child.stdout.take().context("the herd's output is piped")?;
        let mut herd = Self { child, stdin, pids: Vec::new() };
        for line in BufReader::new(out).lines().take(many as usize) {
            let line = line.context("can't read from the herd")?;
            let pid = line.parse().with_context(|| format!("the herd printed `{line}`"))?;
            herd.pids.push(pid);
        }
        if herd.pids.len() as u64 != many {
            bail!("only {} of {many} processes started", herd.pids.len());
        }
        Ok(herd)
    }
}

impl Drop for Herd {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It waits for its own.
        let _ = self.child.wait();
    }
}

/// What a tool used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Used {
    /// Seconds of one CPU.
    cpu: f64,
    /// Most memory, in MiB.
    mib: f64,
}

/// Ticks of a process in /proc/PID/stat: its own and those of children that it waited for.
fn ticks_of(stat: &str) -> Option<u64> {
    // The name is in brackets and may hold anything; what follows are fields 3 and on.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    fields.get(11..15)?.iter().map(|f| f.parse::<u64>().ok()).sum()
}

/// Most memory in MiB, in /proc/PID/status.
fn peak_of(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

/// Ticks of each kernel thread that monitors for DAMON.
fn kdamonds() -> Vec<(u32, u64)> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.contains(" (kdamond.").then_some((pid, ticks_of(&stat)?))
    })
    .collect()
}

/// Runs a tool for that long, and ends it if it doesn't by itself.
fn measured(command: &mut Command, length: Duration) -> Result<Used> {
    let before: Vec<u32> = kdamonds().into_iter().map(|(pid, _)| pid).collect();
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| not_run(command, e))?;
    let own = Path::new("/proc").join(child.id().to_string());
    let begun = Instant::now();
    let (mut used, mut threads, mut kernel_at) = (Used::default(), 0_u64, Instant::now());
    let mut ended = None;
    while begun.elapsed() < length {
        thread::sleep(READ_EVERY);
        if let Some(status) = child.try_wait().context("can't wait for the tool")? {
            ended = Some(status);
            break;
        }
        let text = |name: &str| fs::read_to_string(own.join(name)).unwrap_or_default();
        // One that has just ended has no memory any more, but its time.
        used.cpu = used.cpu.max(ticks_of(&text("stat")).unwrap_or(0) as f64 / TICKS);
        used.mib = used.mib.max(peak_of(&text("status")).unwrap_or(0.0));
        if kernel_at.elapsed() >= Duration::from_secs(1) {
            let ours = kdamonds().into_iter().filter(|(pid, _)| !before.contains(pid));
            threads = threads.max(ours.map(|(_, ticks)| ticks).sum());
            kernel_at = Instant::now();
        }
    }
    // It may have ended by itself; then there is nothing to end.
    let _ = child.kill();
    child.wait().context("can't wait for the tool")?;
    let took = begun.elapsed();
    // Nothing of it may be taken for cheap that only failed.
    if ended.is_some_and(|s| !s.success()) || took + Duration::from_secs(1) < length {
        let words = child.stderr.take().and_then(|stderr| io::read_to_string(stderr).ok());
        let words = words.unwrap_or_default().lines().next().unwrap_or_default().to_owned();
        bail!("`{}` ended after {took:.1?}: {words}", shortened(&typed(command)));
    }
    used.cpu += threads as f64 / TICKS;
    Ok(used)
}

/// The first words of a command that names many processes.
fn shortened(command: &str) -> String {
    match command.char_indices().nth(100) {
        Some((at, _)) => format!("{} …", &command[..at]),
        None => command.to_owned(),
    }
}

/// One kind of run: shares of a CPU in percent, and most memory in MiB.
#[derive(Default)]
struct Spent {
    percent: Samples,
    mib: Samples,
}

impl Spent {
    fn add(&mut self, used: Used, length: Duration) {
        self.percent.push(used.cpu / length.as_secs_f64() * 100.0);
        self.mib.push(used.mib);
    }
    fn shown(&self) -> String {
        format!("{} % of a CPU, at most {:.1} MiB", self.percent.shown(2), self.mib.median())
    }
}

/// Whether the kernel was built with an option, if it shows that.
fn built_with(option: &str) -> Option<bool> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let plain = fs::read_to_string(format!("/boot/config-{}", release.trim())).ok();
    let config = plain.or_else(|| {
        let zipped = Command::new("gzip").args(["-dc", "/proc/config.gz"]).output().ok()?;
        zipped.status.success().then(|| String::from_utf8_lossy(&zipped.stdout).into_owned())
    })?;
    Some(config.lines().any(|l| l == format!("{option}=y")))
}

pub(super) fn run(setting: &Setting<'_>) -> Result<Verdict> {
    let homenode = setting.ws.homenode(setting.profile)?;
    let (length, period) = setting.pick((60, 5), (3, 1));
    let memtierd = match Memtierd::build(setting.ws) {
        Ok(memtierd) => Some(memtierd),
        Err(e) => {
            println!("  memtierd is not run: {e:#}");
            None
        }
    };
    let length = Duration::from_secs(length);
    let mut judged: Option<(Spent, Spent)> = None;
    let rows: &[(u64, usize)] = setting.pick(&[(100, 2), (1000, 1)], &[(10, 1)]);
    for &(many, rounds) in rows {
        let held = setting.pick(HELD, HELD / 64);
        let herd = Herd::start(setting, many, held)?;
        let pids: Vec<String> = herd.pids.iter().map(u32::to_string).collect();
        let (mut ours, mut peer) = (Spent::default(), Spent::default());
        for _ in 0..rounds {
            let mut observe = Command::new(&homenode);
            // It would end by itself: a little later, so that it ends none of the rows.
            let longer = format!("{}s", length.as_secs() + 60);
            observe.args(["observe", "--json", "--period", &format!("{period}s"), "--for"]);
            observe.arg(longer).arg("--pid").args(&pids);
            ours.add(measured(&mut observe, length)?, length);
            if let Some(memtierd) = &memtierd {
                let folder = setting.ws.folder("bench")?;
                let mut command = memtierd.tracking(&folder, &herd.pids, period * 1000)?;
                peer.add(measured(&mut command, length)?, length);
            }
        }
        println!(
            "  {many} processes, {} MiB in all, every {period} s for {} s",
            held >> 20,
            length.as_secs()
        );
        println!("  homenode observe    {}", ours.shown());
        if memtierd.is_some() {
            println!("  memtierd            {}", peer.shown());
            let ratio = peer.percent.median() / ours.percent.median().max(f64::MIN_POSITIVE);
            println!("  memtierd's time / ours {ratio:.1}");
        }
        judged.get_or_insert((ours, peer));
    }
    say_what_is_missing(memtierd.is_some());
    let (ours, peer) = judged.context("nothing was measured")?;
    let (percent, mib) = (ours.percent.median(), ours.mib.median());
    let dearest = if setting.tiny { percent } else { with_heat(setting, percent)? };
    Ok(Verdict {
        ours: percent,
        peer: peer.percent.median(),
        unit: "% of a CPU",
        ratio: if percent > 0.0 { peer.percent.median() / percent } else { 0.0 },
        goal: "<= 1 % of a CPU, with each source of heat too, and <= 64 MiB with 100 processes",
        pass: percent.max(dearest) <= 1.0 && mib <= 64.0,
    })
}

/// The same with sources of heat, in a guest, since few machines at hand have any. An emulated
/// CPU takes many times as long: residency, which is measured above too, says how many. Returns what
/// the dearest source would take on this machine, in percent of a CPU, by that.
///
/// * `percent` – what residency takes here.
fn with_heat(setting: &Setting<'_>, percent: f64) -> Result<f64> {
    let told = crate::vm::seen(setting.ws, "observe-heat", "acting-full", &[])?;
    println!("  in an emulated guest, 100 processes of 1 MiB, every 5 s");
    let alone = told["residency"]["homenode"].as_f64().context("residency of the guest")?;
    let mut dearest = percent;
    for source in ["residency", "damon", "hint-fault"] {
        let of = |name: &str| told[source][name].as_f64();
        let Some((own, kdamond)) = of("homenode").zip(of("kdamond")) else {
            println!("  {source:<12} not offered there");
            continue;
        };
        let times = (own + kdamond) / alone.max(f64::MIN_POSITIVE);
        dearest = dearest.max(times * percent);
        println!(
            "  {source:<12} homenode {own:>5.2} %, its kdamond {kdamond:>5.2} % of an emulated CPU, \
             {times:>4.1} times residency: {:.2} % here",
            times * percent
        );
    }
    Ok(dearest)
}

fn say_what_is_missing(memtierd: bool) {
    if memtierd && built_with("CONFIG_MEM_SOFT_DIRTY") == Some(false) {
        println!("  (memtierd sees no access: the kernel has no CONFIG_MEM_SOFT_DIRTY)");
    }
    match built_with("CONFIG_DAMON_VADDR") {
        Some(false) => println!("  (damo can't look here: the kernel has no CONFIG_DAMON_VADDR)"),
        _ => println!("  (damo is not run: it would take the only DAMON that homenode uses here)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_peaks_are_read() {
        let stat = "812 (a) b) S 1 2 3 0 -1 4194560 10 11 12 13 14 15 16 17 20 0 1 0 99 4096 2";
        assert_eq!(ticks_of(stat), Some(14 + 15 + 16 + 17));
        assert_eq!(ticks_of("812 (a) S 1 2"), None);
        assert_eq!(peak_of("Name:\ta\nVmHWM:\t   11860 kB\n"), Some(11860.0 / 1024.0));
        assert_eq!(peak_of("Name:\tkdamond.0\n"), None);
    }

    #[test]
    fn what_ends_early_is_no_figure() {
        let error = measured(Command::new("false").arg("x"), Duration::from_secs(5));
        assert!(error.unwrap_err().to_string().contains("`false x` ended after"));
    }
}
