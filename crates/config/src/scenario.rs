//! Reading a scenario's file: the whole, of parts that have a room each.
//!
//! ```text
//! [[process]] ──────────▶ process ─▶ map, step, policy ─┐
//! [[channel]] [[device]] ▶ cpu ──────────────────────────┤
//! [[group]] ────────────▶ group ────────────────────────┤
//! [[guest]] ────────────▶ guest ───▶ map, policy ───────┼─▶ ScenarioFile ─▶ fit ◀─ machine
//! [knobs] [ksm] [[at]] ─▶ files ────────────────────────┤
//! stands_for ───────────▶ scale ────────────────────────┘
//! ```
//!
//! None of the parts knows the whole; a truth check reads processes and actions with
//! them too.

use crate::ConfigError;
use crate::cpu::{Named, channel, device, unique, unused};
use crate::files::{action, knobs, ksm};
use crate::fit::check;
use crate::group::groups;
use crate::guest::{self, Guest};
use crate::process::process;
use crate::scale::{self, scale};
use crate::tree::{Cur, Doc, Kind, Seg};
use homenode_core::kernel::KernelVersion;
use homenode_core::scale::Scale;
use homenode_core::scenario::{
    AdmissionChoice, Balancing, CpuOrder, Governor, Margin, Model, Process, RecentCpu, Scenario,
    SlowStart, Swap, UnmergeTarget, Wakeups,
};
use homenode_core::sched::fair::Features;
use homenode_core::topology::Hardware;
use homenode_core::units::{Bytes, Pages, Picos};
use std::path::{Path, PathBuf};

/// A scenario with the file that it was read from, for errors that need its machine.
#[derive(Clone, Debug)]
pub struct ScenarioFile {
    /// What the file says, guests written out as processes behind the other ones.
    pub scenario: Scenario,
    /// The memory beside CPUs of the machine that the file's own stands for.
    stands_for: Option<Bytes>,
    doc: Doc,
    guests: Vec<Guest>,
}

impl ScenarioFile {
    /// [`check`] with the place in the file.
    ///
    /// # Errors
    /// The first CPU or node of the scenario that the machine hasn't.
    pub fn check(&self, machine: &Hardware) -> Result<(), ConfigError> {
        check(&self.scenario, machine).map_err(|e| self.doc.error_at(self.place(&e.path), e.what))
    }

    /// The same for the machine that the file names: what it stands for is as large as the file
    /// says. (On another machine the factor goes on to hold, and the size is another one.)
    ///
    /// # Errors
    /// As [`ScenarioFile::check`].
    pub fn check_on_its_own(&self, machine: &Hardware) -> Result<(), ConfigError> {
        self.check(machine)?;
        let Some(size) = self.stands_for else { return Ok(()) };
        let factor = self.scenario.scale.factor();
        let wrong = scale::size_wrong(size, factor, machine);
        wrong.map_or(Ok(()), |what| Err(self.doc.error_at(&[Seg::Key(scale::KEY)], what)))
    }

    /// Where in the file the thing at a path of the scenario stands.
    fn place<'a>(&'a self, path: &'a [Seg]) -> &'a [Seg] {
        let written = self.scenario.processes.len() - self.guests.len();
        let [Seg::Key("process"), Seg::At(p), Seg::Key(key), ..] = path else { return path };
        match (p.checked_sub(written).and_then(|g| self.guests.get(g)), *key) {
            (Some(guest), "cpus") => &guest.cpus,
            (Some(guest), _) => &guest.policy,
            (None, _) => path,
        }
    }

    /// The machine's file: relative to the scenario's own, unless absolute.
    pub fn machine_path(&self) -> PathBuf {
        let folder = Path::new(&self.doc.file).parent().unwrap_or(Path::new(""));
        folder.join(&self.scenario.machine)
    }
}

/// Reads a scenario's file.
///
/// # Errors
/// The first thing that is wrong with it, with file, line and key.
pub fn read_scenario(path: &Path) -> Result<ScenarioFile, ConfigError> {
    from_doc(Doc::read(path)?)
}

/// Reads a scenario from a text; `name` is the file's name in errors.
///
/// # Errors
/// As [`read_scenario`].
pub fn parse_scenario(name: &str, text: &str) -> Result<ScenarioFile, ConfigError> {
    from_doc(Doc::parse(name, text)?)
}

/// Reads a scenario and the machine that it names, and checks that they fit.
///
/// # Errors
/// The first thing that is wrong with either.
pub fn read_scenario_and_machine(path: &Path) -> Result<(Scenario, Hardware), ConfigError> {
    let file = read_scenario(path)?;
    let machine = crate::read_machine(&file.machine_path())?;
    file.check_on_its_own(&machine)?;
    Ok((file.scenario, machine))
}

fn from_doc(doc: Doc) -> Result<ScenarioFile, ConfigError> {
    let t = doc.root().table(&[
        "name",
        "about",
        "machine",
        scale::KEY,
        "kernel",
        "duration",
        "seed",
        "knobs",
        "ksm",
        "model",
        "process",
        "guest",
        "at",
        "channel",
        "device",
        "group",
        "command_line",
    ])?;
    let channels = unique(t.opt("channel"), "channel", channel, |c| &c.name)?;
    let devices = unique(t.opt("device"), "device", device, |d| &d.name)?;
    let groups = groups(t.opt("group"))?;
    let named = Named { channels: &channels, devices: &devices, groups: &groups };
    let duration = t.opt("duration").map(|d| d.positive_time()).transpose()?;
    let mut processes: Vec<Process> = match t.opt("process") {
        None if t.opt("guest").is_some() => Vec::new(),
        _ => {
            t.get("process")?.list()?.iter().map(|c| process(c, named)).collect::<Result<_, _>>()?
        }
    };
    let mut guests: Vec<Guest> = Vec::new();
    for (at, c) in t.opt("guest").map_or(Ok(vec![]), |g| g.list())?.iter().enumerate() {
        for guest in guest::guests(c, at, duration)? {
            let name = &guest.process.name;
            if processes.iter().any(|p| p.name == *name) {
                return Err(c.any_table()?.get("name")?.error(format!(
                    "a process or guest is named \"{name}\" already; names of guests are unique"
                )));
            }
            processes.push(guest.process.clone());
            guests.push(guest);
        }
    }
    if processes.is_empty() {
        return Err(t.get("process")?.error("a scenario has at least one process or guest"));
    }
    if let Some((place, what)) = unused(&channels, &processes) {
        return Err(t.get("channel")?.list()?[place].error(what));
    }
    let actions = match t.opt("at") {
        None => Vec::new(),
        Some(at) => at.list()?.iter().map(|a| action(a, &processes)).collect::<Result<_, _>>()?,
    };
    let (scale, stands_for) = t.opt(scale::KEY).map_or(Ok((Scale::AS_IS, None)), |c| scale(&c))?;
    let scenario = Scenario {
        name: t.get("name")?.text()?.to_owned(),
        about: t.get("about")?.text()?.to_owned(),
        machine: t.get("machine")?.text()?.to_owned(),
        scale,
        kernel: t.opt("kernel").map_or(Ok(KernelVersion::default()), |k| {
            k.word(&KernelVersion::ALL.map(|v| (v.name(), v)))
        })?,
        knobs: t.opt("knobs").map_or(Ok(vec![]), |k| knobs(&k))?,
        ksm: t.opt("ksm").map_or(Ok(vec![]), |k| ksm(&k))?,
        model: t.opt("model").map_or(Ok(Model::default()), |m| choices(&m, Model::default()))?,
        groups,
        command_line: t.opt("command_line").map_or(Ok(String::new()), |c| command_line(&c))?,
        duration,
        seed: t.opt("seed").map_or(Ok(1), |s| s.int(0, i64::MAX as u64))?,
        processes,
        channels,
        devices,
        actions,
    };
    if let Some((place, step, why)) = scenario.spawns_wrong() {
        // Guests stand behind all processes and run nothing.
        let processes = doc.root().any_table()?.get("process")?.list()?;
        let process = &processes[place];
        return Err(match step {
            Some(step) => process.any_table()?.get("step")?.list()?[step].error(why),
            None => process.any_table()?.get("start")?.error(why),
        });
    }
    Ok(ScenarioFile { scenario, stands_for, doc, guests })
}

/// What the kernel is booted with.
///
/// Source: specs/schedstats.md#switch.
fn command_line(c: &Cur<'_>) -> Result<String, ConfigError> {
    let text = c.text()?;
    match text.split_whitespace().find(|word| !word.starts_with("schedstats=")) {
        None => Ok(text.to_owned()),
        Some(word) => Err(c.error(format!(
            "the simulated kernel does not know the parameter \"{word}\"; it knows \
             schedstats=enable and schedstats=disable"
        ))),
    }
}

/// Choices of the model, as a scenario's `[model]` names them.
const CHOICES: &[&str] = &[
    "admission",
    "margin",
    "slow_start",
    "balancing",
    "hot_page_selection",
    "adjust_hot_threshold",
    "swap",
    "order",
    "unmerge_target",
    "recent_cpu",
    "wakeups",
    "features",
    "clocks",
];

/// Makes one choice, given as a word, as `[model]` would; `None`, if there is no choice
/// of that name. An error says what is allowed, and leaves `model` as it was.
pub fn set_choice(model: &mut Model, name: &str, value: &str) -> Option<Result<(), String>> {
    CHOICES.contains(&name).then(|| {
        let text = match value {
            "true" | "false" => format!("{name} = {value}"),
            _ => format!("{name} = {value:?}"),
        };
        let doc = Doc::parse("", &text).map_err(|e| e.what)?;
        *model = choices(&doc.root(), model.clone()).map_err(|e| e.what)?;
        Ok(())
    })
}

/// What a table chooses, and the rest as in `m`.
fn choices(c: &Cur<'_>, mut m: Model) -> Result<Model, ConfigError> {
    let t = c.table(CHOICES)?;
    if let Some(c) = t.opt("admission") {
        m.admission = c.word(&[("a", AdmissionChoice::A), ("b", AdmissionChoice::B)])?;
    }
    if let Some(c) = t.opt("margin") {
        m.margin = c.word(&[
            ("seed-quarter", Margin::SeedQuarter),
            ("posted-quarter", Margin::PostedQuarter),
            ("kernel", Margin::Kernel),
        ])?;
    }
    if let Some(c) = t.opt("unmerge_target") {
        m.unmerge_target =
            c.word(&[("caller", UnmergeTarget::Caller), ("home", UnmergeTarget::Home)])?;
    }
    if let Some(c) = t.opt("recent_cpu") {
        m.recent_cpu = c.word(&RecentCpu::ALL.map(|r| (r.name(), r)))?;
    }
    if let Some(c) = t.opt("wakeups") {
        m.wakeups = c.word(&Wakeups::ALL.map(|w| (w.name(), w)))?;
    }
    if let Some(c) = t.opt("features") {
        m.features = Features::parse(c.text()?).map_err(|e| c.error(e))?;
    }
    if let Some(c) = t.opt("clocks") {
        m.clocks = c.word(&Governor::ALL.map(|g| (g.name(), g)))?;
    }
    if let Some(c) = t.opt("slow_start") {
        m.slow_start = c.word(&[("seed", SlowStart::Seed), ("today", SlowStart::Today)])?;
    }
    if let Some(c) = t.opt("balancing") {
        m.balancing = c.word(&Balancing::ALL.map(|b| (b.name(), b)))?;
    }
    if let Some(c) = t.opt("hot_page_selection") {
        m.hot_page_selection = c.bool()?;
    }
    if let Some(c) = t.opt("adjust_hot_threshold") {
        m.adjust_hot_threshold = c.bool()?;
    }
    if let Some(c) = t.opt("swap") {
        m.swap = match &c.val.kind {
            Kind::Text(s) if s == "none" => Swap::None,
            _ => Swap::Device(Pages::holding(c.size()?)),
        };
    }
    if let Some(c) = t.opt("order") {
        m.order = match c.text()? {
            "strict" => CpuOrder::Strict,
            _ => match c.time()? {
                q if q > Picos::from_us(10) || q == Picos::ZERO => {
                    return Err(c.error(format!(
                        "{} is out of range; allowed are \"strict\" or a quantum above 0s, \
                         up to \"10us\"",
                        crate::write_time(q)
                    )));
                }
                q => CpuOrder::Quantum(q),
            },
        };
    }
    Ok(m)
}
