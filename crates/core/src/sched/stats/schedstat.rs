//! `/proc/schedstat` and `/proc/PID/schedstat` as text and back.
//!
//! A mask has as many hexadecimal digits as all CPUs that the machine could have need, in words of
//! 32 CPUs with commas between, the highest first: CPUs 0 to 3 of at most 40 are `00,0000000f`.

use super::Version;
use super::counter::Counter;
use super::cpu::{CpuStats, DomainStats, IdleType, LbStats};
use super::scan::{self, StatsError, shown};
use super::task::SchedInfo;
use std::fmt::Write as _;

/// What the kernel's tick counter begins with at boot, 300 s before its lower 32 bits are full.
pub const INITIAL_JIFFIES: u64 = (1 << 32) - 300 * crate::units::HZ;

/// `/proc/schedstat`.
///
/// Source: specs/schedstats.md#schedstat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedstat {
    /// Its version.
    pub version: Version,
    /// The kernel's tick counter, which begins at [`INITIAL_JIFFIES`].
    pub timestamp: u64,
    /// CPUs that its masks have room for, in whole digits, so a multiple of 4; 0 without domains.
    pub mask_bits: u32,
    /// Online CPUs, in rising order.
    pub cpus: Vec<SchedstatCpu>,
}

/// A CPU in `/proc/schedstat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedstatCpu {
    /// Its number.
    pub cpu: u32,
    /// What is counted of it.
    pub stats: CpuStats,
    /// Its domains, the lowest first; none for an isolated CPU, and on a machine with one.
    pub domains: Vec<SchedstatDomain>,
}

/// A domain of a CPU in `/proc/schedstat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedstatDomain {
    /// Its name, such as `SMT`, `MC`, `PKG`, `NUMA`; empty before version 17.
    pub name: String,
    /// Its CPUs, 64 a word, the lowest first.
    pub span: Vec<u64>,
    /// What is counted of it from this CPU.
    pub stats: DomainStats,
}

impl SchedstatDomain {
    /// Its CPUs, in rising order.
    pub fn cpus(&self) -> Vec<u32> {
        cpus_of(&self.span)
    }
}

/// `/proc/PID/schedstat`.
///
/// Source: specs/schedstats.md#schedstat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskSchedstat {
    /// Time that it ran, in ns.
    pub run_ns: u64,
    /// Time that it waited to run, in ns.
    pub wait_ns: u64,
    /// How often it began to run.
    pub slices: u64,
}

/// Writes the two lines at the top of `/proc/schedstat`.
pub fn write_header(out: &mut String, version: Version, timestamp: u64) {
    let _ = write!(out, "version {}\ntimestamp {timestamp}\n", version.name());
}

/// Writes the line of a CPU. Counts are cut to 32 bits, as the kernel keeps them.
pub fn write_cpu(out: &mut String, cpu: u32, stats: &CpuStats) {
    let _ = write!(out, "cpu{cpu}");
    for (i, (counter, value)) in CpuStats::COUNTERS.iter().zip(stats.values()).enumerate() {
        let _ = write!(out, " {}", cut(counter, value));
        // A counter of a scheduler long gone.
        if i == 0 {
            out.push_str(" 0");
        }
    }
    out.push('\n');
}

/// Writes the line of a domain. Counts are cut to 32 bits, as the kernel keeps them.
///
/// * `level` – its number, from 0 on for each CPU.
/// * `name` – printed from version 17 on.
/// * `span` – its CPUs, 64 a word, the lowest first.
/// * `nr_cpu_ids` – one more than the highest number that a CPU of the machine could have.
pub fn write_domain(
    out: &mut String,
    version: Version,
    level: usize,
    name: &str,
    span: &[u64],
    nr_cpu_ids: u32,
    stats: &DomainStats,
) {
    let _ = write!(out, "domain{level} ");
    if version >= Version::V17 {
        let _ = write!(out, "{name} ");
    }
    write_mask(out, span, nr_cpu_ids);
    for idle in IdleType::printed(version) {
        let values = stats.lb[idle as usize].values();
        for (counter, value) in LbStats::COUNTERS.iter().zip(values) {
            if counter.printed_in(version) {
                let _ = write!(out, " {}", cut(counter, value));
            }
        }
    }
    for (counter, value) in DomainStats::COUNTERS.iter().zip(stats.values()) {
        let _ = write!(out, " {}", cut(counter, value));
    }
    out.push('\n');
}

/// Writes `/proc/PID/schedstat`.
///
/// * `run_ns` – runtime of the task, `se.sum_exec_runtime`.
pub fn write_task_schedstat(out: &mut String, run_ns: u64, info: &SchedInfo) {
    let _ = writeln!(out, "{run_ns} {} {}", info.run_delay, info.pcount);
}

fn cut(counter: &Counter, value: u64) -> u64 {
    if counter.bits == 32 { value & u64::from(u32::MAX) } else { value }
}

/// The 32 CPUs of a mask from this one on.
fn word_of(span: &[u64], first: u32) -> u32 {
    let word = span.get(first as usize / 64).copied().unwrap_or_default();
    (word >> (first % 64)) as u32
}

fn write_mask(out: &mut String, span: &[u64], bits: u32) {
    for first in (0..bits).step_by(32).rev() {
        let room = (bits - first).min(32);
        let word = word_of(span, first) & (u32::MAX >> (32 - room));
        let _ = write!(out, "{word:0digits$x}", digits = room.div_ceil(4) as usize);
        if first > 0 {
            out.push(',');
        }
    }
}

/// A mask and how many CPUs it has room for.
fn read_mask(word: &str) -> Result<(Vec<u64>, u32), String> {
    let words: Vec<&str> = word.split(',').collect();
    let hex = |w: &str| w.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let first = words[0].len();
    let whole = words[1..].iter().all(|w| w.len() == 8);
    if !(1..=8).contains(&first) || !whole || !words.iter().all(|w| hex(w)) {
        return Err(format!(
            "{} is not a mask of CPUs: words of eight hexadecimal digits with commas between, the \
             first one may be shorter",
            shown(word)
        ));
    }
    let bits = (words.len() - 1) * 32 + first * 4;
    let mut span = vec![0u64; bits.div_ceil(64)];
    for (i, w) in words.iter().rev().enumerate() {
        let value = u64::from(u32::from_str_radix(w, 16).unwrap_or_default());
        span[i / 2] |= value << (i % 2 * 32);
    }
    let bits = u32::try_from(bits).map_err(|_| "a mask too long for any machine".to_owned())?;
    Ok((span, bits))
}

pub(super) fn cpus_of(span: &[u64]) -> Vec<u32> {
    let bit = |cpu: u32| span[cpu as usize / 64] >> (cpu % 64) & 1 == 1;
    (0..span.len() as u32 * 64).filter(|cpu| bit(*cpu)).collect()
}

fn holds(span: &[u64], cpu: u32) -> bool {
    span.get(cpu as usize / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
}

impl Schedstat {
    /// The file, as the kernel prints it.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        write_header(&mut out, self.version, self.timestamp);
        for cpu in &self.cpus {
            write_cpu(&mut out, cpu.cpu, &cpu.stats);
            for (level, d) in cpu.domains.iter().enumerate() {
                let SchedstatDomain { name, span, stats } = d;
                write_domain(&mut out, self.version, level, name, span, self.mask_bits, stats);
            }
        }
        out
    }

    /// Reads the file. Takes exactly what a kernel of a known version prints; what is taken is
    /// written out the same.
    ///
    /// # Errors
    /// [`StatsError`] with the line: a version that is not known, a line that is cut off, a number
    /// that is none or too large, CPUs or domains that are out of order, a mask with CPUs that have
    /// no line, and other things that no kernel prints.
    ///
    /// Source: specs/schedstats.md#strict.
    pub fn parse(text: &str) -> Result<Self, StatsError> {
        let mut rest = scan::numbered(text)?;
        let first = rest.next().map_or("", |(_, line)| line);
        let version = read_version(first).map_err(|what| StatsError::new(1, what))?;
        let (n, line) = rest
            .next()
            .ok_or_else(|| StatsError::new(1, "the text is cut off behind the version"))?;
        let timestamp = line
            .strip_prefix("timestamp ")
            .ok_or_else(|| format!("{} is not `timestamp N`", shown(line)))
            .and_then(|word| scan::number(word, 64))
            .map_err(|what| StatsError::new(n, what))?;
        let mut out = Self { version, timestamp, mask_bits: 0, cpus: Vec::new() };
        // Where the domains stand, for what only shows once all CPUs are known.
        let mut places: Vec<(usize, usize, usize)> = Vec::new();
        for (n, line) in rest {
            if line.starts_with("cpu") {
                out.read_cpu(line).map_err(|what| StatsError::new(n, what))?;
            } else {
                out.read_domain(line).map_err(|what| StatsError::new(n, what))?;
                let cpu = out.cpus.len() - 1;
                places.push((n, cpu, out.cpus[cpu].domains.len() - 1));
            }
        }
        if out.cpus.is_empty() {
            return Err(StatsError::new(n, "there is no CPU; the text is cut off here"));
        }
        out.check_spans(&places)?;
        Ok(out)
    }

    fn read_cpu(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let cpu = scan::number(name.strip_prefix("cpu").unwrap_or_default(), 31)? as u32;
        if let Some(before) = self.cpus.last().filter(|c| c.cpu >= cpu) {
            return Err(format!("cpu{cpu} comes behind cpu{}", before.cpu));
        }
        let words: Vec<&str> = words.collect();
        let expected = CpuStats::COUNTERS.len() + 1;
        if words.len() != expected {
            return Err(format!(
                "cpu{cpu} has {} numbers in place of {expected}; the line is cut off, or not the \
                 kernel's",
                words.len()
            ));
        }
        if words[1] != "0" {
            return Err(format!(
                "the second number of cpu{cpu} is {}, where all kernels print 0",
                shown(words[1])
            ));
        }
        let mut values = [0; CpuStats::COUNTERS.len()];
        let printed = words.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, w)| w);
        for ((value, counter), word) in values.iter_mut().zip(CpuStats::COUNTERS).zip(printed) {
            *value = scan::number(word, counter.bits)
                .map_err(|what| format!("{} of cpu{cpu}: {what}", counter.name))?;
        }
        let mut stats = CpuStats::default();
        stats.set_values(values);
        self.cpus.push(SchedstatCpu { cpu, stats, domains: Vec::new() });
        Ok(())
    }

    fn read_domain(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split(' ');
        let first = words.next().unwrap_or_default();
        let level = first
            .strip_prefix("domain")
            .ok_or_else(|| format!("{} is neither `cpuN …` nor `domainN …`", shown(line)))
            .and_then(|word| scan::number(word, 31))? as usize;
        let version = self.version;
        let cpu = self.cpus.last_mut().ok_or_else(|| format!("domain{level} before any CPU"))?;
        if level != cpu.domains.len() {
            return Err(format!(
                "domain{level} of cpu{} is in the place of domain{}",
                cpu.cpu,
                cpu.domains.len()
            ));
        }
        let cut = || format!("domain{level} has no mask; the line is cut off");
        let name = match version {
            Version::V15 | Version::V16 => "",
            Version::V17 => words.next().ok_or_else(cut)?,
        };
        if version == Version::V17 && (name.is_empty() || name.contains(char::is_control)) {
            return Err(format!("domain{level} has no name, which version 17 prints"));
        }
        let (span, bits) = read_mask(words.next().ok_or_else(cut)?)?;
        if self.mask_bits != 0 && self.mask_bits != bits {
            return Err(format!(
                "a mask for {bits} CPUs, where those before are for {}",
                self.mask_bits
            ));
        }
        if !holds(&span, cpu.cpu) {
            return Err(format!("the mask of domain{level} leaves out its own cpu{}", cpu.cpu));
        }
        if let Some(below) = cpu.domains.last() {
            if below.span.iter().zip(&span).any(|(below, this)| below & !this != 0) {
                return Err(format!(
                    "the mask of domain{level} leaves out CPUs of domain{}",
                    level - 1
                ));
            }
        }
        let words: Vec<&str> = words.collect();
        let lb: Vec<usize> = (0..LbStats::COUNTERS.len())
            .filter(|i| LbStats::COUNTERS[*i].printed_in(version))
            .collect();
        let expected = 3 * lb.len() + DomainStats::COUNTERS.len();
        if words.len() != expected {
            return Err(format!(
                "domain{level} has {} numbers in place of the {expected} of version {}; the line is \
                 cut off, or of another version",
                words.len(),
                version.name()
            ));
        }
        let read = |counter: &Counter, word: &str| {
            scan::number(word, counter.bits)
                .map_err(|what| format!("{} of domain{level}: {what}", counter.name))
        };
        let mut stats = DomainStats::default();
        let mut words = words.into_iter();
        for idle in IdleType::printed(version) {
            let mut values = [0; LbStats::COUNTERS.len()];
            for (i, word) in lb.iter().zip(words.by_ref()) {
                values[*i] = read(&LbStats::COUNTERS[*i], word)?;
            }
            let of = stats.lb(idle);
            of.set_values(values);
            if version >= Version::V17 {
                of.lb_imbalance = of.lb_imbalance_load
                    + of.lb_imbalance_util
                    + of.lb_imbalance_task
                    + of.lb_imbalance_misfit;
            }
        }
        let mut values = [0; DomainStats::COUNTERS.len()];
        for ((value, counter), word) in values.iter_mut().zip(DomainStats::COUNTERS).zip(words) {
            *value = read(counter, word)?;
        }
        stats.set_values(values);
        self.mask_bits = bits;
        cpu.domains.push(SchedstatDomain { name: name.to_owned(), span, stats });
        Ok(())
    }

    /// Masks name CPUs that have lines, and CPUs that share a domain both say so: else lines are
    /// missing.
    fn check_spans(&self, places: &[(usize, usize, usize)]) -> Result<(), StatsError> {
        let again = "the text is cut off, or CPUs came or went while it was read";
        for &(n, cpu, level) in places {
            let own = self.cpus[cpu].cpu;
            for other in self.cpus[cpu].domains[level].cpus() {
                let Ok(at) = self.cpus.binary_search_by_key(&other, |c| c.cpu) else {
                    let what = format!(
                        "the mask of domain{level} has CPU {other}, and there is no line cpu{other}; \
                         {again}"
                    );
                    return Err(StatsError::new(n, what));
                };
                if !self.cpus[at].domains.last().is_some_and(|d| holds(&d.span, own)) {
                    let what = format!(
                        "domain{level} of cpu{own} reaches CPU {other}, whose own domains don't \
                         reach back; {again}"
                    );
                    return Err(StatsError::new(n, what));
                }
            }
        }
        Ok(())
    }
}

fn read_version(line: &str) -> Result<Version, String> {
    let known = "homenode reads 15 (Linux 6.1), 16 (6.12) and 17 (7.3)";
    let word = line
        .strip_prefix("version ")
        .ok_or_else(|| format!("{} is not `version N`; {known}", shown(line)))?;
    let known_as = Version::ALL.into_iter().find(|v| v.name() == word);
    known_as.ok_or_else(|| format!("version {} is not known; {known}", shown(word)))
}

impl TaskSchedstat {
    /// The file, as the kernel prints it.
    pub fn to_text(&self) -> String {
        format!("{} {} {}\n", self.run_ns, self.wait_ns, self.slices)
    }

    /// Reads the file.
    ///
    /// # Errors
    /// [`StatsError`] for anything but three numbers on one line.
    pub fn parse(text: &str) -> Result<Self, StatsError> {
        let lines = scan::lines(text)?;
        if let Some((n, line)) = lines.get(1) {
            let what = format!("{} stands below the three numbers", shown(line));
            return Err(StatsError::new(*n, what));
        }
        let words: Vec<&str> = lines[0].1.split(' ').collect();
        let [run, wait, slices] = words[..] else {
            let what = format!("{} numbers in place of 3: run, wait, slices", words.len());
            return Err(StatsError::new(1, what));
        };
        let number = |word| scan::number(word, 64).map_err(|what| StatsError::new(1, what));
        Ok(Self { run_ns: number(run)?, wait_ns: number(wait)?, slices: number(slices)? })
    }
}
