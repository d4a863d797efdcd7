//! Contenders: what the columns of a table are, as data.
//!
//! ```text
//! mode2@6.1+scan_size_mb=512 ──parse──▶ Contender ──setup──▶ Setup ──▶ a run
//! homenode:pmu ────────────────▶          │ and, where a policy drives, drive
//! ```
//!
//! The table of names is [`Candidate`]; a program with a policy of its own adds a row
//! (`homenode_cli::run_with`). Source: docs/decisions/0012-contenders.md.

use crate::knobs::{self, Setting};
use crate::replay::target;
use anyhow::{Context as _, Result, anyhow, bail};
use busy::Busy;
use homenode_core::engine::{Engine, SETTINGS, SettingKind, SettingUnit, Settings};
use homenode_core::hooks::MakeHooks;
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::seen::Source;
use homenode_core::policy::{Policy, period};
use homenode_core::scenario::{Mempolicy, Model, Scenario};
use homenode_core::topology::Hardware;
use homenode_core::units::Picos;
use homenode_machine::Caps;
use homenode_sim::Setup;
use homenode_sim::machine::knobs_for;
pub(crate) use knowledge::Knowledge;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;

mod alto;
mod arms;
mod busy;
mod chunks;
mod colloid;
mod damos;
mod hemem;
mod hybridtier;
mod knowledge;
mod memtis;
mod pages;
mod tpp;

/// A name that a column can have: a row of the table of contenders.
#[derive(Clone, Copy)]
pub struct Candidate {
    /// What people write: `mode2`. Letters, digits and `_`.
    pub name: &'static str,
    /// Other words for it.
    pub aliases: &'static [&'static str],
    /// The column's name; two header rows at the first `-`.
    pub column: &'static str,
    /// One sentence for lists.
    pub about: &'static str,
    /// Who places memory.
    pub placement: Placement,
    /// Rules that stand inside the kernel in place of Linux's.
    pub hooks: Option<MakeHooks>,
}

impl Candidate {
    /// The kernel under some knobs; to be filled up with what is said of it.
    ///
    /// * `column` – its name above a column; two header rows at the first `-`.
    pub const fn kernel(
        name: &'static str,
        column: &'static str,
        knobs: &'static [(&'static str, &'static str)],
    ) -> Self {
        let placement = Placement::Kernel(knobs);
        Self { name, aliases: &[], column, about: "", placement, hooks: None }
    }
}

/// Who places memory.
#[derive(Clone, Copy)]
pub enum Placement {
    /// The kernel, under these knobs.
    Kernel(&'static [(&'static str, &'static str)]),
    /// Nobody after the first touch: all tasks interleave, weighted by bandwidth.
    Interleave,
    /// homenode's engine, which sees what a policy may see.
    Engine,
    /// A policy that drives the machine. The knobs are those that its source of heat
    /// needs, and with them the kernel moves nothing itself, as far as the source allows.
    Policy {
        /// Sources of heat that it can use; the first where nobody asks for another.
        sees: &'static [Source],
        /// Makes it.
        make: Make,
    },
}

/// Makes a policy for a machine.
///
/// * the machine – nodes, CPUs, links and costs.
/// * the version – whose rules make the tiers.
/// * the caps – the source of heat, what it never tells, the largest order.
pub type Make = fn(&Hardware, KernelVersion, &Caps) -> Box<dyn Policy>;

const DEMOTION: (&str, &str) = ("demotion_enabled", "true");

/// The contenders that everybody has.
const BUILT_IN: &[Candidate] = &[
    Candidate {
        about: "the knobs that the scenario sets, or the kernel's defaults",
        ..Candidate::kernel("scenario", "scenario", &[])
    },
    Candidate {
        aliases: &["0"],
        about: "numa_balancing 0: memory stays where it was first put",
        ..Candidate::kernel("off", "off", &[("numa_balancing", "0")])
    },
    Candidate {
        aliases: &["1"],
        about: "numa_balancing 1: between sockets",
        ..Candidate::kernel("mode1", "mode-1", &[("numa_balancing", "1")])
    },
    // Tiering comes with demotion, which makes the room on fast nodes that hot pages
    // move into.
    Candidate {
        aliases: &["2"],
        about: "numa_balancing 2: between tiers, with demotion",
        ..Candidate::kernel("mode2", "mode-2", &[("numa_balancing", "2"), DEMOTION])
    },
    Candidate {
        aliases: &["3"],
        about: "numa_balancing 3: both, with demotion",
        ..Candidate::kernel("mode3", "mode-3", &[("numa_balancing", "3"), DEMOTION])
    },
    Candidate {
        about: "weighted interleaving by bandwidth, numa_balancing 0",
        placement: Placement::Interleave,
        ..Candidate::kernel("interleave", "weighted-interleave", &[])
    },
    Candidate {
        about: "homenode's engine, which pays for itself",
        placement: Placement::Engine,
        ..Candidate::kernel("homenode", "homenode", &[])
    },
    Candidate {
        about: "TPP as published: mode 2, but pages of the active lists go up, and kswapd keeps a \
                fiftieth of a fast node free",
        hooks: Some(tpp::rules),
        ..Candidate::kernel("tpp", "tpp", &[("numa_balancing", "2"), DEMOTION])
    },
    Candidate {
        about: "TPP behind Alto's gate as published: fewer pages go up the less a load is waited for",
        hooks: Some(alto::rules),
        ..Candidate::kernel("alto", "alto", &[("numa_balancing", "2"), DEMOTION])
    },
    Candidate {
        about: "HeMem as published: 2 MiB pages of eight samples up, against the longest cold",
        placement: Placement::Policy { sees: &[Source::Pmu], make: hemem::make },
        ..Candidate::kernel("hemem", "hemem", &[])
    },
    Candidate {
        about: "Colloid as published, on HeMem's counts: as much up as makes both tiers answer alike",
        placement: Placement::Policy { sees: &[Source::Pmu], make: colloid::make },
        ..Candidate::kernel("colloid", "colloid", &[])
    },
    Candidate {
        about: "ARMS as published: the hottest 2 MiB pages that fit, where a pair of moves pays",
        placement: Placement::Policy { sees: &[Source::Pmu], make: arms::make },
        ..Candidate::kernel("arms", "arms", &[])
    },
    Candidate {
        about: "MEMTIS as published: pages up from the heat at which as much as fits is hot, skewed huge ones split",
        placement: Placement::Policy { sees: &[Source::Pmu], make: memtis::make },
        ..Candidate::kernel("memtis", "memtis", &[])
    },
    Candidate {
        about: "HybridTier as published: base pages up that are sampled often, or often lately",
        placement: Placement::Policy { sees: &[Source::Pmu], make: hybridtier::make },
        ..Candidate::kernel("hybridtier", "hybridtier", &[])
    },
    Candidate {
        about: "DAMOS as the kernel's samples set it up: hot regions up, cold ones down, by quotas with goals",
        placement: Placement::Policy { sees: &[Source::Damon], make: damos::make },
        ..Candidate::kernel("damos", "damos", &[])
    },
];

/// Makes the policy of a column.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Maker {
    /// homenode's engine, with these settings.
    Engine(Settings),
    /// Another one.
    Policy(Make),
}

impl Maker {
    pub(crate) fn make(
        self,
        machine: &Hardware,
        version: KernelVersion,
        caps: &Caps,
    ) -> Box<dyn Policy> {
        match self {
            Self::Engine(settings) => {
                let (source, most) = (caps.source, caps.most_pages);
                let engine = Engine::new(settings, machine, version, source, &caps.lacks, most);
                Box::new(engine.bringing_threads(caps.affinity))
            }
            Self::Policy(make) => make(machine, version, caps),
        }
    }
}

/// What every command says about `--columns`.
pub(crate) const HELP: &str = "Columns of the table, the baseline first: off, mode1, mode2, mode3 \
(or 1, 2, 3: numa_balancing, with demotion in 2 and 3), interleave (weighted by bandwidth), scenario \
(its own knobs), homenode (its engine, paying for itself), tpp and alto (TPP as published, in the \
kernel's place, and behind Alto's gate), hemem, colloid, arms, memtis and hybridtier (as published, by \
samples), damos (DAMON's schemes as published, by its regions). Behind a name @VERSION is another \
kernel (mode2@6.1), :SOURCE what homenode sees (homenode:damon, :hint-fault, :pmu), +KEY=VALUE a \
knob or a choice of the model (mode2+scan_size_mb=512), or a setting of homenode's engine \
(homenode:pmu+horizon=20s; homenode list settings). +busy=y has the threads run that a policy's published \
code keeps busy, +busy=N so many, and +spare=N leaves N CPUs beside those that programs may use \
(hemem+busy=y+spare=0)";

/// The column of a replay that has DRAM for all of the program's memory.
pub(crate) const ALL_DRAM: &str = "all-dram";

/// Refuses an option's list that names something twice.
pub(crate) fn once(option: &str, mut names: impl Iterator<Item = String>) -> Result<()> {
    let mut seen = BTreeSet::new();
    match names.find(|name| !seen.insert(name.clone())) {
        Some(name) => bail!("{option} names {name} twice"),
        None => Ok(()),
    }
}

/// The names that columns can have.
#[derive(Clone)]
pub(crate) struct Contenders(Vec<Candidate>);

impl Contenders {
    /// Those that everybody has, and further ones.
    pub(crate) fn with(more: &[Candidate]) -> Self {
        Self(BUILT_IN.iter().chain(more).copied().collect())
    }

    /// The columns that a list of texts asks for.
    pub(crate) fn parse(&self, texts: &[String]) -> Result<Vec<Contender>> {
        let one = |text: &String| self.one(text).with_context(|| format!("--columns {text}"));
        let out = texts.iter().map(one).collect::<Result<Vec<_>>>()?;
        once("--columns", out.iter().map(Contender::title))?;
        Ok(out)
    }

    /// The column that a text asks for.
    pub(crate) fn one(&self, text: &str) -> Result<Contender> {
        let mut parts = text.split('+');
        let head = parts.next().unwrap_or_default();
        let (head, source) = head.split_once(':').map_or((head, None), |(h, s)| (h, Some(s)));
        let (name, version) = head.split_once('@').map_or((head, None), |(h, v)| (h, Some(v)));
        let found = self.0.iter().find(|c| c.name == name || c.aliases.contains(&name));
        let Some(found) = found else {
            let names: Vec<&str> = self.0.iter().map(|c| c.name).collect();
            let close = homenode_config::suggestion(name, &names);
            bail!("there is no contender {name:?}{close}; there are\n{}", self.list());
        };
        let version = version.map(|v| {
            KernelVersion::parse(v).ok_or_else(|| {
                let all = KernelVersion::ALL.map(KernelVersion::name).join(", ");
                anyhow!("the rules of Linux {v:?} are not known; those of {all} are")
            })
        });
        let version = version.transpose()?;
        let mut it = Contender::kernel(found.column, Vec::new());
        let driver = match found.placement {
            Placement::Kernel(set) => {
                it.knobs = set.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
                None
            }
            Placement::Interleave => {
                it.knobs = vec![("numa_balancing".into(), "0".into())];
                it.interleaves = true;
                None
            }
            Placement::Engine => Some((Source::HEAT, Maker::Engine(Settings::default()))),
            Placement::Policy { sees, make } => Some((sees, Maker::Policy(make))),
        };
        if let Some((sees, make)) = driver {
            let known = || sees.iter().map(|s| s.name()).collect::<Vec<_>>().join(", ");
            let asked = |s: &&Source| source.is_none_or(|name| s.name() == name);
            let source = *sees
                .iter()
                .find(asked)
                .ok_or_else(|| anyhow!("sources of heat are {}", known()))?;
            let column = format!("{}-{}", found.column, source.name());
            it = Contender::kernel(&column, knobs_for(source));
            it.drives = Some(Drives { name: found.column, source, make });
        }
        it.inside = found.hooks.map(|make| (make, found.about));
        if let (Some(source), None) = (source, it.drives) {
            bail!("{name} is the kernel's own, which sees by itself: leave :{source} out");
        }
        if let Some(version) = version {
            it.name += &format!("@{version}");
            it.version = Some(version);
        }
        for part in parts {
            let (key, value) = knobs::parse(part).map_err(|e| anyhow!("+{part}: {e}"))?;
            it.name += &format!("+{part}");
            if key == busy::BUSY {
                if it.drives.is_none() {
                    bail!(
                        "+{part}: {name} is the kernel's own, and no policy has threads there; leave +busy out"
                    );
                }
                it.busy = Some(Busy::parse(&value).map_err(|e| anyhow!("+{part}: {e}"))?);
                continue;
            }
            if key == busy::SPARE {
                it.spare = Some(busy::parse_spare(&value).map_err(|e| anyhow!("+{part}: {e}"))?);
                continue;
            }
            if let Some(Drives { make: Maker::Engine(settings), .. }) = &mut it.drives {
                if let Some(kind) = SettingKind::find(&key) {
                    set(kind, settings, &value).map_err(|e| anyhow!("+{part}: {e}"))?;
                    continue;
                }
                let close = SETTINGS.iter().map(|s| s.name).collect::<Vec<_>>();
                let close = homenode_config::suggestion(&key, &close);
                if !close.is_empty() && !knobs::is_known(&key) {
                    bail!("+{part}: homenode's engine has no setting {key:?}{close}");
                }
            }
            let mut tried = Model::default();
            match homenode_config::set_choice(&mut tried, &key, &value) {
                None => it.knobs.push((key, value)),
                Some(Ok(())) => it.model.push((key, value)),
                Some(Err(e)) => bail!("+{part}: {e}"),
            }
        }
        Ok(it)
    }

    /// All of them, a line each.
    pub(crate) fn list(&self) -> String {
        let width = self.0.iter().map(|c| c.name.len()).max().unwrap_or(0);
        let row = |c: &Candidate| format!("  {:width$}  {}", c.name, c.about);
        self.0.iter().map(row).collect::<Vec<_>>().join("\n")
    }

    /// The same as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let one = |c: &Candidate| json!({"name": c.name, "aliases": c.aliases, "about": c.about});
        self.0.iter().map(one).collect()
    }
}

/// A column: which kernel under which settings, and who places memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contender {
    /// Its name; two header rows at the first `-`.
    pub(crate) name: String,
    /// The kernel's version, where it is not that of the others.
    pub(crate) version: Option<KernelVersion>,
    /// Its own knobs.
    pub(crate) knobs: Vec<Setting>,
    /// Its own choices of the model.
    pub(crate) model: Vec<Setting>,
    /// Memory policy of all tasks.
    pub(crate) mempolicy: Mempolicy,
    /// Whether that is to be weighted interleaving: the weights follow from the machine.
    pub(crate) interleaves: bool,
    /// Whether it has DRAM for all of a recorded program's memory.
    pub(crate) fits: bool,
    /// The policy that drives; none where the kernel's rules are all.
    pub(crate) drives: Option<Drives>,
    /// Which of the policy's busy threads run; `None`: none.
    pub(crate) busy: Option<Busy>,
    /// CPUs that are left beside those of programs; `None`: all that the machine has.
    pub(crate) spare: Option<u32>,
    /// What makes its rules inside the kernel, and what they are.
    pub(crate) inside: Option<(MakeHooks, &'static str)>,
}

/// A policy that drives a column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drives {
    /// Its name, for headings and captions.
    pub(crate) name: &'static str,
    /// What it sees of memory accesses.
    pub(crate) source: Source,
    pub(crate) make: Maker,
}

/// Changes a setting of the engine by what somebody wrote.
fn set(kind: &SettingKind, settings: &mut Settings, value: &str) -> Result<(), String> {
    let number = match kind.unit {
        SettingUnit::Time => homenode_config::parse_time(value)?.0,
        SettingUnit::MBps | SettingUnit::Number => value
            .parse()
            .map_err(|_| format!("{value:?} is no whole number; write one such as 100"))?,
    };
    kind.set(settings, number).map_err(|range| {
        let [least, most] = range.map(|v| written(kind.unit, v));
        format!("{value} is not allowed; it is {least} to {most}")
    })
}

/// A setting's value as people write it.
pub(crate) fn written(unit: SettingUnit, value: u64) -> String {
    match unit {
        SettingUnit::Time => homenode_config::write_time(Picos(value)),
        SettingUnit::MBps | SettingUnit::Number => value.to_string(),
    }
}

impl Contender {
    /// The kernel's rules under these knobs.
    pub(crate) fn kernel(name: &str, knobs: Vec<Setting>) -> Self {
        Self { name: name.to_owned(), knobs, ..Self::default() }
    }

    /// What could be gained by placing memory: all of it lies in DRAM, and nothing moves.
    pub(crate) fn all_dram() -> Self {
        let off = vec![("numa_balancing".into(), "0".into())];
        Self { fits: true, ..Self::kernel(ALL_DRAM, off) }
    }

    /// The same on this machine, by whose bandwidths one may interleave.
    pub(crate) fn on(mut self, machine: &Hardware) -> Result<Self> {
        if self.interleaves {
            self.mempolicy = target::interleave(machine).ok_or_else(|| {
                anyhow!(
                    "the machine \"{}\" has one memory node, and nothing to interleave between; add one with --add-node, or leave interleave out of --columns",
                    machine.name
                )
            })?;
        }
        Ok(self)
    }

    /// Its name above a column; the scenario as it is goes by the scenario's name.
    pub(crate) fn column<'a>(&'a self, scenario: &'a str) -> &'a str {
        if self.name == "scenario" { scenario } else { &self.name }
    }

    /// Its name in one line.
    pub(crate) fn title(&self) -> String {
        self.name.replacen('-', " ", 1)
    }

    /// Whether it says itself how the kernel balances.
    pub(crate) fn balances(&self) -> bool {
        self.knobs.iter().any(|(name, _)| name == "numa_balancing")
    }

    /// The setting of a run: what all columns share, this column's own, and what the
    /// command line sets for all. Who drives keeps its own against the command line,
    /// so that it and the kernel don't both move pages.
    pub(crate) fn setup(&self, shared: &Setup, set: &[Setting]) -> Result<Setup> {
        let mut setup = shared.clone();
        setup.version = self.version.unwrap_or(setup.version);
        for (key, value) in &self.model {
            if let Some(Err(e)) = homenode_config::set_choice(&mut setup.model, key, value) {
                bail!("column {}: {key}={value}: {e}", self.title());
            }
        }
        if self.inside.is_some() && setup.model.admission != Model::default().admission {
            bail!(
                "column {}: it has an admission of its own inside the kernel; leave admission=a out",
                self.title()
            );
        }
        setup.hooks = self.inside.map(|(make, _)| make);
        setup.spare = self.spare;
        let (own, all) = (self.knobs.iter().cloned(), set.iter().cloned());
        if self.drives.is_some() {
            setup.knobs.extend(all.chain(own));
        } else {
            setup.knobs.extend(own.chain(all));
        }
        knobs::check_all(&setup.knobs, setup.version)
            .with_context(|| format!("column {}", self.title()))?;
        Ok(setup)
    }

    /// A scenario as this column runs it: under its memory policy, but where a process
    /// asks for one itself.
    pub(crate) fn scenario<'a>(&self, scenario: &'a Scenario) -> Cow<'a, Scenario> {
        let mut scenario = Cow::Borrowed(scenario);
        if self.mempolicy != Mempolicy::Default {
            let all = scenario.to_mut().processes.iter_mut();
            for p in all.filter(|p| p.policy == Mempolicy::Default) {
                p.policy = self.mempolicy.clone();
            }
        }
        scenario
    }

    /// Sentences for captions about who decides, where that is not Linux.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = self.drives.as_ref().map_or(Vec::new(), about_policy);
        let inside = |about| format!("{}, inside the simulated kernel: {about}", self.title());
        notes.extend(self.inside.map(|(_, about)| inside(about)));
        notes.extend(busy::note(&self.title(), self.busy, self.spare));
        notes
    }

    /// What it sets, for captions.
    pub(crate) fn settings(&self) -> String {
        let set = self.knobs.iter().chain(&self.model).map(|(k, v)| format!("{k}={v}"));
        let mut text = set.collect::<Vec<_>>().join(" ");
        if let Mempolicy::WeightedInterleave(weights) = &self.mempolicy {
            let all: Vec<String> = weights.iter().map(|(n, w)| format!("node {n} {w}")).collect();
            text += ", all tasks under MPOL_WEIGHTED_INTERLEAVE with weights by bandwidth: ";
            text += &all.join(", ");
        }
        text
    }
}

/// What homenode's engine may use, for a caption.
pub(crate) fn budgets(s: &Settings) -> String {
    format!(
        "homenode's budgets: {:.1} % of one CPU to look and decide, as much for moves until they \
         have paid; {} MB/s moved until they have, counted over {}, and {} in a second at most; {} \
         for an order; it samples a process after {} of its CPU time",
        f64::from(s.cpu_permille) / 10.0,
        s.moved_mbps.0.min(s.most_mbps.0),
        homenode_config::write_time(s.horizon),
        s.most_mbps.0,
        homenode_config::write_time(s.stall),
        homenode_config::write_time(s.start_delay),
    )
}

/// Sentences for the caption about a policy of this name.
fn about_policy(drives: &Drives) -> Vec<String> {
    let Drives { name: who, source, make } = drives;
    let counted = "moves count as promoted and demoted pages, but not in pgpromote and pgdemote, \
                   which move_pages does not touch";
    let second = if let Maker::Engine(settings) = make {
        // What its period of samples is bounded by.
        let samples = if *source == Source::Pmu {
            format!(
                "; {} samples a second at most of new memory and while moves pay for them, {} else",
                period::MOST,
                period::AT_REST
            )
        } else {
            String::new()
        };
        format!("{}{samples}; its {counted}", budgets(settings))
    } else {
        // Two choose how often they sample; of the others it is one in 10,007.
        let period = match *who {
            "memtis" => {
                " and samples one in 199 accesses, fewer where reading takes more than 3.5 % of a CPU"
            }
            "hybridtier" => " and samples 100001 accesses a second of a CPU",
            _ => "",
        };
        format!("{who} is no part of homenode{period}; its {counted}")
    };
    // Nobody but homenode says of itself what it sees; all see the same.
    vec![source.sheet().simulated.replace("homenode", who), second]
}

#[cfg(test)]
mod sanity;
#[cfg(test)]
mod tests;
