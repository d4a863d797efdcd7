//! Real kernels on emulated machines of several nodes.
//!
//! ```text
//! tests/vm/topologies/*.toml ──▶ topology ──▶ QEMU's arguments ─┐
//! tests/vm/kernels.toml ──▶ kernels ──▶ vmlinuz (cached) ───────┼─▶ guest ──▶ table
//! homenode, homenode-guest, busybox ──▶ initramfs ──────────────┘
//! ```
//!
//! The whole matrix of topologies and tests runs on one kernel, and on the others
//! the topology that is marked `smoke`, what `also` names and the scripts of scheduling of `scripts`. What a
//! topology says is there `on_request` runs where it or the test is named. One guest takes one of this machine's CPUs,
//! so as many run side by side as there are CPUs.

mod guest;
mod initramfs;
mod kernels;
mod medians;
mod record;
mod topology;

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::workspace::{Profile, Workspace, cache_folder, files, made, not_run, text_of};
use crate::{Ending, Lacks, Misused, abreast};
use guest::{Told, Verdict};
use initramfs::Archive;
use kernels::{Cached, Kernel, Matrix};
use topology::Topology;

/// What has to end badly for the apparatus to be believed.
const CANARIES: [&str; 2] = ["canary-fails", "canary-hangs"];

/// How often what failed is booted again. Each boot of a script of scheduling is a draw: a worker of
/// the kernel's may come between two of its steps, and did so in two boots of three, in other steps each.
const LATER_BOOTS: usize = 2;

/// Measurements of minutes: only where they are named.
const MEASURED: [&str; 3] = ["live-peers", "move-throughput", "observe-heat"];

/// Built with CI's profile, so that nothing is built twice there.
const PROFILE: Profile = Profile::Ci;

#[derive(Debug, PartialEq, Eq, clap::Subcommand)]
pub(crate) enum Options {
    /// Topologies, kernels and tests of the guests
    List,
    /// Download kernels anew, all or these
    Fetch {
        #[arg(value_name = "KERNEL")]
        kernels: Vec<String>,
    },
    /// A guest with a shell on this terminal
    Boot {
        topology: String,
        /// Another than the one that everything runs on
        #[arg(long)]
        kernel: Option<String>,
    },
    /// Tests in guests: all, or these
    Test(Tests),
    /// Boot tests beside the simulated kernel several times: medians of both, and how far apart
    Medians(medians::Options),
    /// Record what kernels do in the script of scheduling: nine boots each
    Record(record::Options),
}

#[derive(Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct Tests {
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Only on this kernel, there all of them
    #[arg(long)]
    kernel: Option<String>,
    /// Only on this machine
    #[arg(long)]
    topology: Option<String>,
    /// Guests side by side; one for each CPU unless told
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Each result as one JSON line, and nothing else
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(ws: &Workspace, options: &Options) -> Result<Ending> {
    let all = All::load(ws)?;
    match options {
        Options::List => list(ws, &all),
        Options::Fetch { kernels } => fetch(&all, kernels),
        Options::Boot { topology, kernel } => boot(ws, &all, topology, kernel.as_deref()),
        Options::Test(tests) => test(ws, &all, tests),
        Options::Medians(options) => medians::run(ws, &all, options),
        Options::Record(options) => record::run(ws, &all, options),
    }
}

/// What there is in the tree, and where downloads are.
struct All {
    topologies: Vec<Topology>,
    kernels: Vec<Kernel>,
    cache: PathBuf,
}

impl All {
    fn load(ws: &Workspace) -> Result<Self> {
        let paths = files(&ws.root.join("tests/vm/topologies"), "toml")?;
        let topologies = paths.iter().map(|p| Topology::read(p)).collect::<Result<_>>()?;
        let kernels = kernels::table(&ws.root)?;
        let cache = made(cache_folder()?.join("vm"))?;
        Ok(Self { topologies, kernels, cache })
    }

    fn topology(&self, name: &str) -> Result<&Topology> {
        let found = self.topologies.iter().find(|topology| topology.name == name);
        found.ok_or_else(|| unknown("topology", name, &names(&self.topologies, |t| &t.name)))
    }

    fn kernel(&self, name: &str) -> Result<&Kernel> {
        let found = self.kernels.iter().find(|kernel| kernel.name == name);
        found.ok_or_else(|| unknown("kernel", name, &names(&self.kernels, |k| &k.name)))
    }

    /// The kernel that everything runs on.
    fn main_kernel(&self) -> Result<&Kernel> {
        self.kernels
            .iter()
            .find(|k| k.matrix == Matrix::All)
            .context("no kernel has matrix = \"all\"")
    }
}

fn unknown(what: &str, name: &str, there: &str) -> anyhow::Error {
    anyhow::Error::new(Misused(format!("there is no {what} `{name}`; there are {there}")))
}

fn names<T>(of: &[T], name: impl Fn(&T) -> &String) -> String {
    of.iter().map(|one| name(one).as_str()).collect::<Vec<_>>().join(", ")
}

fn list(ws: &Workspace, all: &All) -> Result<Ending> {
    println!("topologies");
    for t in &all.topologies {
        println!("  {:<16} {:>5} MiB  {}", t.name, t.memory_mib(), t.about);
    }
    println!("kernels");
    for k in &all.kernels {
        let there = match kernels::cached(&all.cache, k) {
            Some(cached) => format!("{} from {}, cached", cached.version, cached.suite),
            None => format!("not downloaded yet; looked for in {}", k.suites.join(", ")),
        };
        let matrix = match k.matrix {
            Matrix::All => "all tests",
            Matrix::Smoke => "smoke test",
        };
        println!("  {:<16} {matrix:<10} {there}", k.name);
    }
    println!("tests");
    for (name, about) in tests_of(&guest_program(ws)?)? {
        println!("  {name:<16} {about}");
    }
    Ok(Ending::Done)
}

fn fetch(all: &All, wanted: &[String]) -> Result<Ending> {
    let chosen: Vec<&Kernel> = if wanted.is_empty() {
        all.kernels.iter().collect()
    } else {
        wanted.iter().map(|name| all.kernel(name)).collect::<Result<_>>()?
    };
    for kernel in chosen {
        match kernels::fetch(&all.cache, kernel) {
            Ok(_) => {}
            Err(why) if kernel.may_lack => println!("{why:#}"),
            Err(why) => return Err(why),
        }
    }
    Ok(Ending::Done)
}

fn boot(ws: &Workspace, all: &All, topology: &str, kernel: Option<&str>) -> Result<Ending> {
    let topology = all.topology(topology)?;
    let kernel = kernel.map_or_else(|| all.main_kernel(), |name| all.kernel(name))?;
    let busybox = busybox()?;
    let cached = kernels::have(&all.cache, kernel)?;
    let base = base(ws, &busybox)?;
    let folder = ws.folder("vm")?.join(format!("boot.{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let image = initramfs(&base, topology, &[], None, &folder)?;
    println!("{}, {}: Ctrl-A X ends it at once", topology.about, cached.version);
    let mut command = guest::qemu(topology, kernel, &cached.image, &image, 0, "homenode.shell");
    command.args(["-serial", "mon:stdio"]);
    let ended = command.status().map_err(|e| not_run(&command, e));
    fs::remove_dir_all(&folder)?;
    if ended?.success() { Ok(Ending::Done) } else { Ok(Ending::Failed) }
}

/// The busybox of guests, where all programs that must be here already are.
fn busybox() -> Result<PathBuf> {
    let mut missing = Vec::new();
    let on_path = |name: &str| {
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())
    };
    if !cfg!(target_arch = "x86_64") {
        bail!(Lacks("guests are x86-64 machines that run programs of this one".to_owned()));
    }
    if on_path(guest::QEMU).is_none() {
        missing.push("qemu-system-x86");
    }
    let busybox = on_path("busybox");
    if busybox.is_none() {
        missing.push("busybox-static");
    }
    match (busybox, missing.is_empty()) {
        (Some(busybox), true) => Ok(busybox),
        _ => bail!(Lacks(format!(
            "guests need the packages {}: `make vm-deps` installs them",
            missing.join(", ")
        ))),
    }
}

fn guest_program(ws: &Workspace) -> Result<PathBuf> {
    ws.build(PROFILE)?;
    Ok(ws.built(PROFILE, "homenode-guest"))
}

/// Names and descriptions of the tests, as the guest's program knows them.
fn tests_of(program: &Path) -> Result<Vec<(String, String)>> {
    let text = text_of(Command::new(program).arg("--list"))?;
    let row = |line: &str| line.split_once('\t').map(|(a, b)| (a.to_owned(), b.to_owned()));
    text.lines().map(row).collect::<Option<_>>().context("homenode-guest --list printed no table")
}

/// What all guests have in common.
fn base(ws: &Workspace, busybox: &Path) -> Result<Vec<u8>> {
    let program = guest_program(ws)?;
    let mut archive = Archive::default();
    for folder in ["/proc", "/sys", "/tmp", "/etc"] {
        archive.folder(folder);
    }
    archive.console();
    archive.program("/init", &program)?;
    archive.link("/bin/homenode-guest", "/init");
    archive.program("/bin/homenode", &ws.homenode(PROFILE)?)?;
    archive.program("/bin/busybox", busybox)?;
    // Every command of busybox by its name, as scripts and people expect.
    for applet in text_of(Command::new(busybox).arg("--list"))?.lines() {
        if applet != "busybox" {
            archive.link(&format!("/bin/{applet}"), "busybox");
        }
    }
    Ok(archive.finish())
}

/// Programs of this machine that a test is about, if they are here; it says so itself if not.
const ABOUT: [(&str, &[&str]); 1] = [("act-service", &["/lib/systemd/systemd", "/bin/systemctl"])];

/// The base and, after it, what differs: the topology that was asked for, what the script of
/// scheduling is expected to come to, and programs that a test is about.
fn initramfs(
    base: &[u8],
    topology: &Topology,
    tests: &[String],
    expected: Option<&str>,
    folder: &Path,
) -> Result<PathBuf> {
    let mut own = Archive::default();
    let wanted = ABOUT.iter().filter(|(test, _)| tests.iter().any(|t| t == test));
    for program in wanted.flat_map(|(_, programs)| *programs).map(Path::new) {
        if program.exists() {
            own.program(&program.to_string_lossy(), program)?;
        }
    }
    own.file("/topology.json", format!("{}\n", topology.to_json()).as_bytes());
    if let Some(text) = expected {
        own.file("/expected.txt", text.as_bytes());
    }
    let path = folder.join("initramfs");
    fs::write(&path, [base, &own.finish()].concat())
        .with_context(|| format!("can't write {}", path.display()))?;
    Ok(path)
}

/// One guest to be run.
#[derive(Clone)]
struct GuestRun<'a> {
    kernel: &'a Kernel,
    image: PathBuf,
    topology: &'a Topology,
    tests: Vec<String>,
    /// What the script of scheduling came to before, if it was recorded.
    expected: Option<String>,
    /// Which boot of it: the first, or another for what has failed in that.
    boot: usize,
}

impl GuestRun<'_> {
    /// Another boot for those tests that failed; `None` where none did. Canaries live once.
    ///
    /// * `boot` – which it is: the first was 0.
    fn again(&self, rows: &[Told], boot: usize) -> Option<Self> {
        let failed = |told: &&Told| matches!(told.verdict, Verdict::Failed(_));
        let tests: Vec<String> = rows.iter().filter(failed).map(|told| told.test.clone()).collect();
        (!tests.is_empty() && self.tests != CANARIES).then(|| Self { tests, boot, ..self.clone() })
    }
}

/// Of these tests those that run on a topology: its own, where it has some, and else all
/// that no topology has for itself.
fn tests_on(topologies: &[Topology], topology: &Topology, tests: &[String]) -> Vec<String> {
    let runs = |test: &&String| {
        if topology.tests.is_empty() {
            !topologies.iter().any(|other| other.tests.contains(test))
        } else {
            topology.tests.contains(test)
        }
    };
    tests.iter().filter(runs).cloned().collect()
}

/// Which guests: every topology on the kernel that has the whole matrix or is asked
/// for by name, elsewhere those marked `smoke`, those of its `also` and those of its `scripts` where the script of
/// scheduling was recorded; one that names its kernel is for that one. None where no test is left for it.
fn matrix<'a>(
    root: &Path,
    all: &'a All,
    options: &Tests,
    kernels: &[(&'a Kernel, Cached)],
    tests: &[String],
) -> Result<Vec<GuestRun<'a>>> {
    let mut plans = Vec::new();
    for (kernel, cached) in kernels {
        let whole = kernel.matrix == Matrix::All;
        let every = whole || options.kernel.is_some() || options.topology.is_some();
        let wanted = |t: &&Topology| options.topology.as_ref().is_none_or(|name| *name == t.name);
        for topology in all.topologies.iter().filter(wanted) {
            let expected = record::recorded(root, kernel, topology)?;
            let wanted = match &topology.kernel {
                Some(name) => *name == kernel.name,
                None => {
                    let scripts = kernel.scripts.as_ref();
                    let is_one = scripts.is_none_or(|names| names.contains(&topology.name));
                    every || topology.smoke || expected.is_some() && is_one
                }
            };
            // Of those that are named, where some are.
            let is_meant = |test: &&String| options.names.is_empty() || tests.contains(test);
            let also = kernel.also.get(&topology.name).into_iter().flatten();
            let also: Vec<String> = also.filter(is_meant).cloned().collect();
            let plan = |tests: Vec<String>| GuestRun {
                kernel,
                image: cached.image.clone(),
                topology,
                tests,
                expected: expected.clone(),
                boot: 0,
            };
            let tests = if wanted { tests } else { &also };
            let mut here = tests_on(&all.topologies, topology, tests);
            if options.names.is_empty() && options.topology.is_none() {
                here.retain(|test| !topology.on_request.contains(test));
            }
            if !here.is_empty() {
                plans.push(plan(here));
            }
            // In a guest of their own, which they take with them.
            if whole && topology.smoke && options.names.is_empty() {
                plans.push(plan(CANARIES.map(str::to_owned).to_vec()));
            }
        }
    }
    Ok(plans)
}

fn test(ws: &Workspace, all: &All, options: &Tests) -> Result<Ending> {
    let busybox = busybox()?;
    let known: Vec<String> =
        tests_of(&guest_program(ws)?)?.into_iter().map(|(name, _)| name).collect();
    if let Some(name) = options.names.iter().find(|name| !known.contains(name)) {
        return Err(unknown("test", name, &known.join(", ")));
    }
    for topology in &all.topologies {
        let mut names = topology.tests.iter().chain(&topology.on_request);
        if let Some(name) = names.find(|name| !known.contains(name)) {
            return Err(unknown("test", name, &known.join(", ")).context(topology.name.clone()));
        }
    }
    let tests: Vec<String> = if options.names.is_empty() {
        let left_out =
            |name: &String| CANARIES.contains(&name.as_str()) || MEASURED.contains(&name.as_str());
        known.into_iter().filter(|name| !left_out(name)).collect()
    } else {
        options.names.clone()
    };
    if let Some(name) = &options.topology {
        all.topology(name)?;
    }
    let chosen: Vec<&Kernel> = match &options.kernel {
        Some(name) => vec![all.kernel(name)?],
        None => all.kernels.iter().collect(),
    };
    let mut kernels = Vec::new();
    let mut lacking = Vec::new();
    for kernel in chosen {
        match kernels::have(&all.cache, kernel) {
            Ok(cached) => kernels.push((kernel, cached)),
            Err(why) if kernel.may_lack => lacking.push(format!("skipped: {why:#}")),
            Err(why) => return Err(why),
        }
    }
    if kernels.is_empty() {
        bail!(Lacks(format!("no kernel to run on; {}", lacking.join("; "))));
    }
    let plans = matrix(&ws.root, all, options, &kernels, &tests)?;
    let base = base(ws, &busybox)?;
    let folder = ws.folder("vm")?;
    let jobs = options.jobs.map_or_else(abreast::cpus, NonZeroUsize::get);
    let run = |plan: &GuestRun<'_>| run_guest(plan, &base, &folder, options.json);
    let mut guests: Vec<Vec<Told>> =
        abreast::each(jobs, &plans, run).into_iter().collect::<Result<_>>()?;
    for line in &lacking {
        eprintln!("{line}");
    }
    let say = |line: &str| if options.json { eprintln!("{line}") } else { println!("{line}") };
    let mut later = Vec::new();
    for boot in 1..=LATER_BOOTS {
        later.extend(later_boot(&plans, &mut guests, boot, |plan| {
            say("what failed is booted once more, with nothing beside it:");
            run(plan)
        })?);
    }
    let [mut passed, mut failed, mut skipped] = [0, 0, lacking.len()];
    for row in guests.iter().flatten() {
        match row.verdict {
            Verdict::Passed => passed += 1,
            Verdict::Failed(_) => failed += 1,
            Verdict::Skipped(_) => skipped += 1,
        }
    }
    let sum = format!("{passed} passed, {failed} failed, {skipped} skipped");
    for one in &later {
        say(&format!("in a later boot only: {one}"));
    }
    say(&sum);
    Ok(if failed == 0 { Ending::Done } else { Ending::Failed })
}

/// Boots guests again for what has failed in them, one after the other, and puts what came of it
/// in its place. Returns a line for each test that passed only then. Where more guests than a few
/// have failures it is no chance, and nothing is booted.
fn later_boot(
    plans: &[GuestRun<'_>],
    guests: &mut [Vec<Told>],
    boot: usize,
    mut run: impl FnMut(&GuestRun<'_>) -> Result<Vec<Told>>,
) -> Result<Vec<String>> {
    const GUESTS: usize = 3;
    let again: Vec<(usize, GuestRun<'_>)> = plans
        .iter()
        .zip(&*guests)
        .enumerate()
        .filter_map(|(at, (plan, rows))| Some((at, plan.again(rows, boot)?)))
        .collect();
    if again.len() > GUESTS {
        return Ok(Vec::new());
    }
    let mut twice = Vec::new();
    for (at, plan) in again {
        for told in run(&plan)? {
            let Some(row) = guests[at].iter_mut().find(|row| row.test == told.test) else {
                continue;
            };
            if let (Verdict::Failed(why), Verdict::Passed) = (&row.verdict, &told.verdict) {
                let (kernel, topology) = (&plan.kernel.name, &plan.topology.name);
                twice.push(format!("{kernel}, {topology}: {}; in the first: {why}", row.test));
            }
            *row = told;
        }
    }
    Ok(twice)
}

/// What one test sees in a guest of the kernel on which everything runs.
///
/// * `beside` – programs that are not ours, with where they are in the guest.
///
/// # Errors
/// It failed, or this machine can boot no guest.
pub(crate) fn seen(
    ws: &Workspace,
    test: &str,
    topology: &str,
    beside: &[(&str, &Path)],
) -> Result<Value> {
    let (busybox, all) = (busybox()?, All::load(ws)?);
    let (kernel, topology) = (all.main_kernel()?, all.topology(topology)?);
    let plan = GuestRun {
        kernel,
        image: kernels::have(&all.cache, kernel)?.image,
        topology,
        tests: vec![test.to_owned()],
        expected: None,
        boot: 0,
    };
    let mut more = Archive::default();
    for (at, from) in beside {
        more.program(at, from)?;
    }
    let base = [base(ws, &busybox)?, more.finish()].concat();
    let left = boot_guest(&plan, &base, &ws.folder("vm")?)?;
    match rows(&plan, &left).pop() {
        Some(Told { verdict: Verdict::Passed, facts, .. }) => Ok(facts),
        Some(Told { verdict: Verdict::Failed(why) | Verdict::Skipped(why), .. }) => {
            bail!("{test} on {}: {why}", plan.topology.name)
        }
        None => bail!("{test} on {}: nothing was told", plan.topology.name),
    }
}

/// One guest from its start to its end.
fn boot_guest(plan: &GuestRun<'_>, base: &[u8], folder: &Path) -> Result<guest::Left> {
    let canaries = plan.tests == CANARIES;
    let name = format!(
        "{}.{}{}{}",
        plan.kernel.name,
        plan.topology.name,
        if canaries { ".canaries" } else { "" },
        if plan.boot > 0 { ".again" } else { "" }
    );
    let folder = made(folder.join(name))?;
    let image = initramfs(base, plan.topology, &plan.tests, plan.expected.as_deref(), &folder)?;
    let (tests, boot) = (&plan.tests, plan.boot);
    guest::run(plan.topology, plan.kernel, &plan.image, &image, boot, tests, &folder)
}

/// Runs one guest and prints its part of the table at once.
fn run_guest(plan: &GuestRun<'_>, base: &[u8], folder: &Path, json: bool) -> Result<Vec<Told>> {
    let canaries = plan.tests == CANARIES;
    let left = boot_guest(plan, base, folder)?;
    let rows = if canaries { canary_rows(&left.told, &left.ending) } else { rows(plan, &left) };
    let release = left.release.as_deref().unwrap_or("came to nothing");
    let mut text = String::new();
    if json {
        for row in &rows {
            text.push_str(&json_line(plan, left.release.as_deref(), row));
        }
    } else {
        let (kernel, topology) = (&plan.kernel.name, &plan.topology.name);
        let seconds = left.took.as_secs_f64();
        text.push_str(&format!("{kernel} ({release}), {topology}: {seconds:.0} s\n"));
        rows.iter().for_each(|row| text.push_str(&line(row)));
    }
    if !canaries && left.ending != guest::Ending::Done {
        eprint!("{}", tail(&left.console));
    }
    // One piece, so that guests side by side don't mix their lines.
    print!("{text}");
    Ok(rows)
}

/// What was told, and a failure for each test that was to come.
fn rows(plan: &GuestRun<'_>, left: &guest::Left) -> Vec<Told> {
    let told = |test: &String| left.told.iter().find(|told| told.test == *test);
    plan.tests
        .iter()
        .map(|test| match told(test) {
            Some(told) => told.clone(),
            None => {
                let why = match &left.ending {
                    guest::Ending::Hung { during } if during.as_ref() == Some(test) => {
                        "the guest hung in it and was ended"
                    }
                    guest::Ending::Died { during } if during.as_ref() == Some(test) => {
                        "the guest ended in it"
                    }
                    guest::Ending::Hung { .. } => "the guest hung before it and was ended",
                    guest::Ending::Died { .. } => "the guest ended before it",
                    guest::Ending::Done => "the guest told nothing about it",
                };
                Told {
                    test: test.clone(),
                    verdict: Verdict::Failed(why.to_owned()),
                    facts: Value::Null,
                    seconds: None,
                }
            }
        })
        .collect()
}

/// Canaries have to fail and to hang; anything else is a failure of ours.
fn canary_rows(told: &[Told], ending: &guest::Ending) -> Vec<Told> {
    let [fails, hangs] = CANARIES;
    let failed = matches!(told, [Told { test, verdict: Verdict::Failed(_), .. }] if test == fails);
    let hung = matches!(ending, guest::Ending::Hung { during: Some(test) } if test == hangs);
    let row = |name: &str, well: bool, facts: &str, why: String| Told {
        test: name.to_owned(),
        verdict: if well { Verdict::Passed } else { Verdict::Failed(why) },
        facts: if well { json!(facts) } else { Value::Null },
        seconds: None,
    };
    vec![
        row(fails, failed, "failed, as it has to", format!("it didn't fail: {told:?}")),
        row(hangs, hung, "hung and was ended, as it has to", format!("it didn't hang: {ending:?}")),
    ]
}

fn json_line(plan: &GuestRun<'_>, release: Option<&str>, row: &Told) -> String {
    let (verdict, why) = match &row.verdict {
        Verdict::Passed => ("passed", None),
        Verdict::Failed(why) => ("failed", Some(why)),
        Verdict::Skipped(why) => ("skipped", Some(why)),
    };
    let value = json!({
        "kernel": plan.kernel.name,
        "release": release,
        "topology": plan.topology.name,
        "boot": plan.boot,
        "test": row.test,
        "verdict": verdict,
        "why": why,
        "seconds": row.seconds,
        "facts": row.facts,
    });
    format!("{value}\n")
}

fn line(row: &Told) -> String {
    let facts = match &row.facts {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let (verdict, text) = match &row.verdict {
        Verdict::Passed => ("passed", &facts),
        Verdict::Failed(why) => ("FAILED", why),
        Verdict::Skipped(why) => ("skipped", why),
    };
    let seconds = row.seconds.map_or(String::new(), |s| format!("{s:.1} s"));
    format!("  {:<16} {verdict:<8}{seconds:>8}  {text}\n", row.test)
}

/// The end of a console, for people.
fn tail(console: &Path) -> String {
    const LINES: usize = 40;
    let text = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(LINES)..];
    let mut out = format!("  its console ends ({}):\n", console.display());
    for line in shown {
        out.push_str(&format!("  | {}\n", line.trim_end()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(test: &str, verdict: Verdict) -> Told {
        Told { test: test.to_owned(), verdict, facts: json!(null), seconds: None }
    }

    fn two_nodes() -> (Vec<Kernel>, Topology) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let topology = Topology::read(&root.join("tests/vm/topologies/two-nodes.toml")).unwrap();
        (kernels::table(&root).unwrap(), topology)
    }

    /// The first boot of a guest for these tests.
    fn plan<'a>(kernel: &'a Kernel, topology: &'a Topology, tests: &[&str]) -> GuestRun<'a> {
        GuestRun {
            kernel,
            image: PathBuf::new(),
            topology,
            tests: tests.iter().map(|&name| name.to_owned()).collect(),
            expected: None,
            boot: 0,
        }
    }

    #[test]
    fn a_canary_that_lives_is_a_failure() {
        let hung = guest::Ending::Hung { during: Some("canary-hangs".to_owned()) };
        let failed = told("canary-fails", Verdict::Failed("always".to_owned()));
        let verdicts = |told: &[Told], ending: &guest::Ending| -> Vec<bool> {
            let rows = canary_rows(told, ending);
            rows.iter().map(|row| row.verdict == Verdict::Passed).collect()
        };
        assert_eq!(verdicts(std::slice::from_ref(&failed), &hung), [true, true]);
        assert_eq!(verdicts(&[told("canary-fails", Verdict::Passed)], &hung), [false, true]);
        assert_eq!(verdicts(&[failed], &guest::Ending::Done), [true, false]);
        assert_eq!(verdicts(&[], &guest::Ending::Hung { during: None }), [false, false]);
    }

    #[test]
    fn what_fails_is_booted_once_more_and_has_to_fail_there_too() {
        let (kernels, topology) = two_nodes();
        let plan = |tests: &[&str]| plan(&kernels[0], &topology, tests);
        let failed = |why: &str| Verdict::Failed(why.to_owned());
        let first =
            || vec![told("a", Verdict::Passed), told("b", failed("x")), told("c", failed("y"))];
        let plans = [plan(&["a", "b", "c"]), plan(&CANARIES), plan(&["a"])];
        let canaries = vec![told(CANARIES[0], failed("it didn't fail"))];
        let mut guests = [first(), canaries.clone(), vec![told("a", Verdict::Passed)]];
        let mut booted = Vec::new();
        let twice = later_boot(&plans, &mut guests, 1, |plan| {
            booted.push((plan.tests.clone(), plan.boot));
            Ok(vec![told("b", Verdict::Passed), told("c", failed("z"))])
        });
        assert_eq!(booted, [(vec!["b".to_owned(), "c".to_owned()], 1)]);
        let name = &kernels[0].name;
        assert_eq!(twice.unwrap(), [format!("{name}, two-nodes: b; in the first: x")]);
        let verdicts: Vec<&Verdict> = guests[0].iter().map(|row| &row.verdict).collect();
        assert_eq!(verdicts, [&Verdict::Passed, &Verdict::Passed, &failed("z")]);
        assert_eq!(guests[1], canaries);
        // Four guests that fail are no chance.
        let plans = [(); 4].map(|()| plan(&["a", "b", "c"]));
        let mut guests = [(); 4].map(|()| first());
        let none = later_boot(&plans, &mut guests, 1, |_| panic!("it boots nothing"));
        assert_eq!(none.unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_test_that_nobody_told_about_has_failed() {
        let (kernels, topology) = two_nodes();
        let plan = plan(&kernels[0], &topology, &["a", "b", "c"]);
        let left = guest::Left {
            release: None,
            told: vec![told("a", Verdict::Passed)],
            ending: guest::Ending::Died { during: Some("b".to_owned()) },
            took: std::time::Duration::ZERO,
            console: PathBuf::new(),
        };
        let rows = rows(&plan, &left);
        assert_eq!(rows[0].verdict, Verdict::Passed);
        assert_eq!(rows[1].verdict, Verdict::Failed("the guest ended in it".to_owned()));
        assert_eq!(rows[2].verdict, Verdict::Failed("the guest ended before it".to_owned()));
    }

    /// Specs: specs/end-to-end.md#late.
    #[test]
    fn a_kernel_that_waits_unsaid_boots_on_one_cpu_where_time_is_instructions() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let words = |clock| -> Vec<String> {
            let kernels = kernels::table(&root).unwrap();
            kernels.iter().map(|k| format!("{} {}", k.name, k.words(clock))).collect()
        };
        assert_eq!(words(topology::Clock::Host), ["6.12 ", "6.1 ", "newest "]);
        assert_eq!(words(topology::Clock::Instructions), ["6.12 ", "6.1 maxcpus=1", "newest "]);
    }

    #[test]
    fn the_matrix_is_whole_on_one_kernel_and_has_what_was_recorded_elsewhere() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let folder = root.join("tests/vm/topologies");
        let read = |name: &str| Topology::read(&folder.join(format!("{name}.toml"))).unwrap();
        let names = ["two-nodes", "four-nodes", "script-smt", "sched-ext"];
        let all = All {
            topologies: names.map(read).into(),
            kernels: kernels::table(&root).unwrap(),
            cache: PathBuf::new(),
        };
        let cached =
            || Cached { image: PathBuf::new(), version: String::new(), suite: String::new() };
        let kernels: Vec<(&Kernel, Cached)> = all.kernels.iter().map(|k| (k, cached())).collect();
        let shown = |options: &Tests| -> Vec<String> {
            let tests = ["topology", "damon-others", "sched-script", "sched-switch", "scx-ends"];
            let tests = tests.map(str::to_owned);
            matrix(&root, &all, options, &kernels, &tests)
                .unwrap()
                .iter()
                .map(|p| format!("{} {} {}", p.kernel.name, p.topology.name, p.tests.join(",")))
                .collect()
        };
        assert_eq!(
            shown(&Tests::default()),
            [
                "6.12 two-nodes topology,damon-others",
                "6.12 two-nodes canary-fails,canary-hangs",
                "6.12 four-nodes topology",
                "6.12 script-smt sched-script,sched-switch",
                "6.1 two-nodes topology,damon-others",
                "newest two-nodes topology,damon-others",
                "newest sched-ext scx-ends",
            ]
        );
        let of_it = Tests { kernel: Some("newest".into()), ..Tests::default() };
        assert!(shown(&of_it).contains(&"newest script-smt sched-script,sched-switch".to_owned()));
        let one = Tests { topology: Some("four-nodes".into()), ..Tests::default() };
        assert_eq!(shown(&one).len(), 3);
    }
}
