//! What is about CPUs: `[[channel]]`, `[[device]]`, and the steps of a process that compute, wait
//! and hand work on.
//!
//! ```text
//! do = "write"        says which other keys there are
//! channel = "ping"    one of the scenario's channels
//! to = "own"          which of them: "own", "group", or a number
//! bytes = 100
//! ```

use crate::ConfigError;
use crate::tree::{Cur, Fields, Kind, suggestion};
use homenode_core::scenario::{
    Channel, ChannelKind, Command, Completion, CpuStep, Device, DeviceTime, Group, NICE, Process,
    REST, Step, Which,
};
use homenode_core::topology::MAX_CPUS;
use homenode_core::units::{Bytes, CpuId, Picos};

/// Channels of one name at most: each costs memory.
const MOST_CHANNELS: u64 = 1_000_000;

/// What the steps of a scenario's processes may name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Named<'a> {
    pub(crate) channels: &'a [Channel],
    pub(crate) devices: &'a [Device],
    pub(crate) groups: &'a [Group],
}

impl Named<'_> {
    /// The group that somebody names.
    pub(crate) fn group(&self, c: &Cur<'_>) -> Result<String, ConfigError> {
        let name = c.text()?;
        if self.groups.iter().any(|g| g.name == name) {
            return Ok(name.to_owned());
        }
        let all: Vec<&str> = self.groups.iter().map(|g| g.name.as_str()).collect();
        Err(c.error(missing("group", name, &all)))
    }
}

pub(crate) fn channel(c: &Cur<'_>) -> Result<Channel, ConfigError> {
    let t = c.table(&["name", "kind", "count", "group", "nodelay"])?;
    let count = t.opt("count").map_or(Ok(1), |n| n.int(1, MOST_CHANNELS))? as u32;
    let group = t.opt("group").map_or(Ok(count.into()), |n| n.int(1, count.into()))? as u32;
    if count % group != 0 {
        let c = t.get("group")?;
        return Err(c.error(format!("{count} channels don't fall into groups of {group}")));
    }
    let kind = t.get("kind")?.word(&ChannelKind::ALL.map(|k| (k.name(), k)))?;
    let nodelay = t.opt("nodelay");
    if let Some(c) = nodelay.as_ref().filter(|_| kind != ChannelKind::Tcp) {
        return Err(c.error(format!("only a tcp has this; here is a {}", kind.name())));
    }
    let nodelay = nodelay.map_or(Ok(false), |c| c.bool())?;
    Ok(Channel { name: t.get("name")?.text()?.to_owned(), kind, count, group, nodelay })
}

pub(crate) fn device(c: &Cur<'_>) -> Result<Device, ConfigError> {
    let t = c.table(&["name", "time", "commands", "gathers", "interrupts"])?;
    let time = match (t.opt("time"), t.opt("commands")) {
        (Some(time), None) => DeviceTime::Fixed(time.positive_time()?),
        (None, Some(list)) => {
            let names = Command::ALL.map(|c| (c.name(), c));
            let all: Vec<Command> =
                list.list()?.iter().map(|c| c.word(&names)).collect::<Result<_, _>>()?;
            if all.is_empty() {
                return Err(list.error("empty; a request is one command or several"));
            }
            DeviceTime::Commands(all)
        }
        (Some(_), Some(c)) => {
            return Err(c.error(
                "a device takes a \"time\", or as long as \"commands\" of the machine's disk, not both",
            ));
        }
        (None, None) => {
            return Err(t.error(
                "a device says how long it takes: \"time\", or \"commands\" of the machine's disk",
            ));
        }
    };
    Ok(Device {
        name: t.get("name")?.text()?.to_owned(),
        time,
        gathers: t.opt("gathers").map_or(Ok(false), |c| c.bool())?,
        interrupts: match t.get("interrupts")? {
            c if matches!(c.val.kind, Kind::Text(_)) => c.word(&[("submitter", None)])?,
            c => Some(CpuId(c.int(0, u64::from(MAX_CPUS) - 1)? as u32)),
        },
    })
}

/// A list of things that have names, each name once.
pub(crate) fn unique<T>(
    c: Option<Cur<'_>>,
    what: &str,
    read: impl Fn(&Cur<'_>) -> Result<T, ConfigError>,
    name: impl Fn(&T) -> &str,
) -> Result<Vec<T>, ConfigError> {
    let mut all: Vec<T> = Vec::new();
    for c in c.map_or(Ok(vec![]), |l| l.list())? {
        let one = read(&c)?;
        if all.iter().any(|other| name(other) == name(&one)) {
            return Err(c
                .any_table()?
                .get("name")?
                .error(format!("the {what} \"{}\" stands twice; names are unique", name(&one))));
        }
        all.push(one);
    }
    Ok(all)
}

/// The words of steps about CPUs.
pub(crate) const STEPS: [&str; 13] = [
    "compute",
    "write",
    "read",
    "futex_wait",
    "futex_wake",
    "lock",
    "unlock",
    "work",
    "io",
    "yield",
    "exec",
    "affinity",
    "nice",
];

/// The step of that word, if it is about CPUs.
pub(crate) fn step(
    c: &Cur<'_>,
    word: &str,
    named: Named<'_>,
) -> Result<Option<CpuStep>, ConfigError> {
    let step = match word {
        "compute" => {
            let t = c.table(&["do", "time", "jitter", "footprint"])?;
            let c = t.get("time")?;
            let times: Vec<Picos> = match &c.val.kind {
                Kind::List(_) => {
                    c.list()?.iter().map(|c| c.positive_time()).collect::<Result<_, _>>()?
                }
                _ => Vec::new(),
            };
            let time = match (&c.val.kind, times.first()) {
                (_, Some(&first)) => first,
                (Kind::List(_), None) => {
                    return Err(
                        c.error("empty; it computes as long as the next of these each time")
                    );
                }
                _ => c.positive_time()?,
            };
            CpuStep::Compute {
                time,
                times,
                jitter: t.opt("jitter").map_or(Ok(0), |j| j.thousandths(0, 1000))?,
                footprint: t.opt("footprint").map_or(Ok(Bytes(0)), |c| c.size())?,
            }
        }
        "write" => {
            let t = c.table(&["do", "channel", "to", "bytes"])?;
            let (channel, to) = (on(&t, named)?, which(&t, "to")?);
            let (bytes, sizes) = sizes(&t)?;
            CpuStep::Write { channel, to, bytes, sizes }
        }
        "read" => {
            let t = c.table(&["do", "channel", "from", "bytes"])?;
            let (channel, from) = (on(&t, named)?, which(&t, "from")?);
            let bytes = match t.opt("bytes") {
                Some(c) if matches!(c.val.kind, Kind::Text(_)) => c.word(&[("message", REST)])?,
                Some(c) => bytes(&c)?,
                None => 1,
            };
            CpuStep::Read { channel, from, bytes }
        }
        "futex_wait" => {
            let t = c.table(&["do", "channel", "which"])?;
            CpuStep::FutexWait { channel: on(&t, named)?, which: which(&t, "which")? }
        }
        "futex_wake" => {
            let t = c.table(&["do", "channel", "which", "count"])?;
            let count = t.opt("count").map_or(Ok(1), |n| n.int(1, u32::MAX.into()))? as u32;
            CpuStep::FutexWake { channel: on(&t, named)?, which: which(&t, "which")?, count }
        }
        "lock" => {
            let t = c.table(&["do", "channel", "which"])?;
            CpuStep::Lock { channel: on(&t, named)?, which: which(&t, "which")? }
        }
        "unlock" => {
            let t = c.table(&["do", "channel", "which"])?;
            CpuStep::Unlock { channel: on(&t, named)?, which: which(&t, "which")? }
        }
        "work" => {
            let t = c.table(&["do", "time", "wait", "high"])?;
            let flag = |key| t.opt(key).map_or(Ok(false), |c| c.bool());
            CpuStep::Work {
                time: t.get("time")?.positive_time()?,
                wait: flag("wait")?,
                high: flag("high")?,
            }
        }
        "io" => {
            let t = c.table(&["do", "device", "worker", "high", "iowait"])?;
            let c = t.get("device")?;
            let name = c.text()?;
            if !named.devices.iter().any(|d| d.name == name) {
                let all: Vec<&str> = named.devices.iter().map(|d| d.name.as_str()).collect();
                return Err(c.error(missing("device", name, &all)));
            }
            let worker = t.opt("worker").map(|w| w.positive_time()).transpose()?;
            let high = t.opt("high").map(|c| Ok((c.bool()?, c))).transpose()?;
            let completion = match (worker, high) {
                (Some(time), high) => Completion::Worker { time, high: high.is_some_and(|h| h.0) },
                (None, None | Some((false, _))) => Completion::Interrupt,
                (None, Some((true, c))) => {
                    return Err(c.error(
                        "only a \"worker\" has priority; here the interrupt wakes the task",
                    ));
                }
            };
            CpuStep::Io {
                device: name.to_owned(),
                completion,
                iowait: t.opt("iowait").map_or(Ok(true), |c| c.bool())?,
            }
        }
        "yield" => c.table(&["do"]).map(|_| CpuStep::Yield)?,
        "exec" => c.table(&["do"]).map(|_| CpuStep::Exec)?,
        "affinity" => {
            let cpus = c.table(&["do", "cpus"])?.get("cpus")?.numbers(MAX_CPUS - 1)?;
            CpuStep::Affinity { cpus: cpus.into_iter().map(CpuId).collect() }
        }
        "nice" => CpuStep::Nice { nice: nice(&c.table(&["do", "nice"])?.get("nice")?)? },
        _ => return Ok(None),
    };
    // A pipe is written to, a lock is taken: not the other way round.
    if let Some((name, which)) = step.channel() {
        let channel = named.channels.iter().find(|c| c.name == name).expect("it has been found");
        let c = c.any_table()?.get("channel")?;
        if !step.kinds().contains(&channel.kind) {
            let kinds: Vec<&str> = step.kinds().iter().map(|k| k.name()).collect();
            return Err(c.error(format!(
                "\"{name}\" is a {}; this step is about a {}",
                channel.kind.name(),
                kinds.join(" or a ")
            )));
        }
        if let Which::Number(n) = which {
            if n >= channel.count {
                return Err(c.error(format!(
                    "there is no number {n} of \"{name}\"; its numbers end at {}",
                    channel.count - 1
                )));
            }
        }
    }
    Ok(Some(step))
}

pub(crate) fn nice(c: &Cur<'_>) -> Result<i8, ConfigError> {
    Ok(c.signed(NICE.0.into(), NICE.1.into())? as i8)
}

pub(crate) fn missing(what: &str, name: &str, all: &[&str]) -> String {
    match all {
        [] => format!("the scenario has no {what} \"{name}\", and no other; add a [[{what}]]"),
        _ => format!("the scenario has no {what} \"{name}\"{}", suggestion(name, all)),
    }
}

/// The channel that a step names.
fn on(t: &Fields<'_>, named: Named<'_>) -> Result<String, ConfigError> {
    let c = t.get("channel")?;
    let name = c.text()?;
    if named.channels.iter().any(|channel| channel.name == name) {
        return Ok(name.to_owned());
    }
    let all: Vec<&str> = named.channels.iter().map(|c| c.name.as_str()).collect();
    Err(c.error(missing("channel", name, &all)))
}

fn which(t: &Fields<'_>, key: &str) -> Result<Which, ConfigError> {
    let Some(c) = t.opt(key) else { return Ok(Which::Own) };
    match &c.val.kind {
        Kind::Text(_) => c.word(&[("own", Which::Own), ("group", Which::Group)]),
        _ => Ok(Which::Number(c.int(0, MOST_CHANNELS - 1)? as u32)),
    }
}

fn bytes(c: &Cur<'_>) -> Result<u32, ConfigError> {
    Ok(c.int(1, 65_536)? as u32)
}
/// What is written: so many bytes, or as many as one of a list.
fn sizes(t: &Fields<'_>) -> Result<(u32, Vec<u32>), ConfigError> {
    let Some(c) = t.opt("bytes") else { return Ok((1, Vec::new())) };
    match &c.val.kind {
        Kind::List(_) => {
            let sizes = c.list()?.iter().map(bytes).collect::<Result<Vec<u32>, _>>()?;
            match sizes.first() {
                Some(&first) => Ok((first, sizes)),
                None => Err(c.error("empty; a message has as many bytes as one of these")),
            }
        }
        _ => Ok((bytes(&c)?, Vec::new())),
    }
}

/// Whether each channel has somebody on either side, and each group as many tasks as
/// channels; the channel's place and what is wrong.
pub(crate) fn unused(channels: &[Channel], processes: &[Process]) -> Option<(usize, String)> {
    channels.iter().enumerate().find_map(|(place, channel)| {
        let (mut gives, mut takes) = (false, false);
        let steps = processes.iter().flat_map(|p| &p.steps);
        let about = steps.filter_map(|s| match s {
            Step::Cpu(step) if step.channel()?.0 == channel.name => Some(step),
            _ => None,
        });
        for step in about {
            match step {
                CpuStep::Write { .. } | CpuStep::FutexWake { .. } | CpuStep::Unlock { .. } => {
                    gives = true;
                }
                CpuStep::Read { .. } | CpuStep::FutexWait { .. } | CpuStep::Lock { .. } => {
                    takes = true;
                }
                CpuStep::Compute { .. }
                | CpuStep::Work { .. }
                | CpuStep::Io { .. }
                | CpuStep::Yield
                | CpuStep::Exec
                | CpuStep::Affinity { .. }
                | CpuStep::Nice { .. } => {}
            }
        }
        let (name, kind) = (&channel.name, channel.kind);
        let lacks =
            |what: &str| Some((place, format!("nobody {what} the {} \"{name}\"", kind.name())));
        match (gives, takes) {
            (true, true) => None,
            (false, false) => lacks("uses"),
            (true, false) => lacks(match kind {
                ChannelKind::Pipe | ChannelKind::Socket | ChannelKind::Tcp | ChannelKind::Udp => {
                    "reads from"
                }
                ChannelKind::Futex => "waits for",
                ChannelKind::Mutex => "takes",
            }),
            (false, true) => lacks(match kind {
                ChannelKind::Pipe | ChannelKind::Socket | ChannelKind::Tcp | ChannelKind::Udp => {
                    "writes to"
                }
                ChannelKind::Futex => "wakes",
                ChannelKind::Mutex => "gives back",
            }),
        }
    })
}
