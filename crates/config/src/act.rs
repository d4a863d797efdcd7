//! What `homenode act` may do, and to whom; `homenode advise` goes by the same file.
//!
//! ```text
//! [budget]
//! cpu_permille = 10          of one CPU
//! moved_mbps = 100           10^6 bytes a second, for moves that have not paid yet
//! most_mbps = 1000           for all moves; `moved_mbps` where only that is given
//! stall = "1ms"              for which a call may hold a process up
//! horizon = "10s"            within which a move has to pay
//! start_delay = "1s"         CPU time before a process is looked at
//! interval = "1s"            between two decisions where regions or faults are what is seen
//!
//! [aim]
//! most_at_once = 1           loads under way that count; more: to who waits, not who accesses
//!
//! [exclude]
//! command = ["sshd", "qemu-system-*"]
//! cgroup = ["/system.slice/ssh.service"]
//! user = ["postgres", 1000]
//!
//! [[cgroup]]
//! path = "/system.slice/db.service"
//! floor = "8 GiB"            of fast memory: below it none of its pages is sent down
//! priority = 10              lower ones give way first; 0 where nothing is said
//!
//! [tiers]
//! fast = "0-1"               nodes; the others with memory are slow, whatever firmware says
//! ```
//!
//! What is not there is as it is without a file.
//!
//! Source: specs/act.md#config.

use crate::ConfigError;
use crate::tree::{Cur, Doc, Fields, Kind};
use homenode_core::engine::{SettingKind, Settings};
use homenode_core::limits::{Excluded, Group, Limits};
use homenode_core::units::{MBps, NodeId, PAGE_SIZE, Pages, Picos};
use std::collections::BTreeSet;
use std::path::Path;

/// Most that may be moved a second, in 10^6 bytes: as the kernel's own limit.
const MOST_MBPS: u64 = 65_536;
/// The shortest interval: no source of regions tells more often.
const SHORTEST_INTERVAL: Picos = Picos::from_ms(10);
/// Most that a priority is away from 0.
const MOST_PRIORITY: i64 = 1000;
/// The highest node that can be named.
const MOST_NODE: u32 = 1023;

/// A file for `act`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActFile {
    /// The engine's settings, with the budgets and the aim of the file.
    pub settings: Settings,
    /// Who is left alone, floors and priorities.
    pub limits: Limits,
    /// Fast nodes, where the file says so.
    pub fast: Option<FastNodes>,
}

/// Fast nodes, and where a file names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastNodes {
    /// The nodes.
    pub nodes: BTreeSet<NodeId>,
    file: String,
    at: Option<(usize, usize)>,
    key: String,
}

impl FastNodes {
    /// That a machine can't have these.
    pub fn error(&self, what: impl Into<String>) -> ConfigError {
        let (file, at, key) = (self.file.clone(), self.at, self.key.clone());
        ConfigError { file, at, key, what: what.into(), source: None }
    }
}

/// The number of a user, by name.
pub type Users<'a> = &'a dyn Fn(&str) -> Option<u32>;

/// Reads a file: what it says, and its text.
///
/// # Errors
/// [`ConfigError`], with the place.
pub fn read_act(path: &Path, users: Users<'_>) -> Result<(ActFile, String), ConfigError> {
    let doc = Doc::read(path)?;
    Ok((act(&doc, users)?, doc.text))
}

/// Reads a text; `file` is its name in errors.
///
/// # Errors
/// [`ConfigError`], with the place.
pub fn parse_act(file: &str, text: &str, users: Users<'_>) -> Result<ActFile, ConfigError> {
    act(&Doc::parse(file, text)?, users)
}

fn act(doc: &Doc, users: Users<'_>) -> Result<ActFile, ConfigError> {
    let root = doc.root().table(&["budget", "aim", "exclude", "cgroup", "tiers"])?;
    let mut out = ActFile::default();
    if let Some(c) = root.opt("budget") {
        out.settings = budget(&c)?;
    }
    if let Some(c) = root.opt("aim") {
        const MOST_AT_ONCE: &str = "most_at_once";
        let t = c.table(&[MOST_AT_ONCE])?;
        // What may be written is what the engine takes.
        if let Some((c, kind)) = t.opt(MOST_AT_ONCE).zip(SettingKind::find(MOST_AT_ONCE)) {
            let [least, most] = kind.range();
            let value = c.int(least, most)?;
            kind.set(&mut out.settings, value).unwrap_or_else(|_| unreachable!("it is in range"));
        }
    }
    if let Some(c) = root.opt("exclude") {
        out.limits.excluded = exclude(&c, users)?;
    }
    for c in list(&root, "cgroup")? {
        let group = group(&c)?;
        if out.limits.groups.iter().any(|g| g.path == group.path) {
            return Err(c.error(format!("{} is there twice", group.path)));
        }
        out.limits.groups.push(group);
    }
    if let Some(c) = root.opt("tiers") {
        let fast = c.table(&["fast"])?.get("fast")?;
        let nodes = fast.numbers(MOST_NODE)?.into_iter().filter_map(|n| u16::try_from(n).ok());
        let nodes: BTreeSet<NodeId> = nodes.map(NodeId).collect();
        // Only for its place: what a machine has is known later.
        let ConfigError { file, at, key, .. } = fast.error("");
        out.fast = Some(FastNodes { nodes, file, at, key });
    }
    Ok(out)
}

fn list<'a>(fields: &Fields<'a>, key: &str) -> Result<Vec<Cur<'a>>, ConfigError> {
    fields.opt(key).map_or(Ok(Vec::new()), |c| c.list())
}

fn budget(c: &Cur<'_>) -> Result<Settings, ConfigError> {
    let mut settings = Settings::default();
    let t = c.table(&[
        "cpu_permille",
        "moved_mbps",
        "most_mbps",
        "stall",
        "horizon",
        "start_delay",
        "interval",
    ])?;
    if let Some(c) = t.opt("cpu_permille") {
        settings.cpu_permille = c.thousandths(1, 1000)?;
    }
    if let Some(c) = t.opt("moved_mbps") {
        settings.moved_mbps = MBps(c.int(1, MOST_MBPS)?);
        // Who names one bound means that nothing goes beyond it.
        settings.most_mbps = settings.moved_mbps;
    }
    if let Some(c) = t.opt("most_mbps") {
        settings.most_mbps = MBps(c.int(1, MOST_MBPS)?);
        if settings.most_mbps < settings.moved_mbps {
            let moved = settings.moved_mbps.0;
            return Err(c.error(format!("less than moved_mbps, which is {moved}")));
        }
    }
    if let Some(c) = t.opt("stall") {
        settings.stall = c.positive_time()?;
        if settings.stall > Picos::from_secs(1) {
            return Err(c.error("a stall of more than 1s: that is a pause, not a budget"));
        }
    }
    if let Some(c) = t.opt("horizon") {
        settings.horizon = c.positive_time()?;
    }
    if let Some(c) = t.opt("start_delay") {
        settings.start_delay = c.time()?;
    }
    if let Some(c) = t.opt("interval") {
        settings.interval = c.positive_time()?;
        if settings.interval < SHORTEST_INTERVAL || settings.interval > Picos::from_secs(60) {
            return Err(c.error("from \"10ms\" to \"60s\" is allowed"));
        }
    }
    Ok(settings)
}

fn exclude(c: &Cur<'_>, users: Users<'_>) -> Result<Vec<Excluded>, ConfigError> {
    let t = c.table(&["command", "cgroup", "user"])?;
    let mut out = Vec::new();
    for c in list(&t, "command")? {
        let name = c.text()?;
        if name.trim_end_matches('*').is_empty() {
            return Err(c.error("a command's name is empty: name one, such as \"sshd\""));
        }
        out.push(Excluded::Command(name.to_owned()));
    }
    for c in list(&t, "cgroup")? {
        out.push(Excluded::Cgroup(path(&c)?));
    }
    for c in list(&t, "user")? {
        out.push(Excluded::User(match c.val.kind {
            Kind::Text(ref name) => users(name).ok_or_else(|| {
                c.error(format!("there is no user \"{name}\" in /etc/passwd; give its number"))
            })?,
            _ => u32::try_from(c.int(0, u32::MAX.into())?).unwrap_or(u32::MAX),
        }));
    }
    Ok(out)
}

fn group(c: &Cur<'_>) -> Result<Group, ConfigError> {
    let t = c.table(&["path", "floor", "priority"])?;
    let (floor, priority) = (t.opt("floor"), t.opt("priority"));
    if floor.is_none() && priority.is_none() {
        return Err(t.error("neither a \"floor\" nor a \"priority\": this says nothing"));
    }
    let at = t.get("path")?;
    let path = path(&at)?;
    let priority = priority.map_or(Ok(0), |c| c.signed(-MOST_PRIORITY, MOST_PRIORITY))?;
    let floor =
        floor.map_or(Ok(Pages::ZERO), |c| c.size().map(|b| Pages(b.0.div_ceil(PAGE_SIZE))))?;
    Ok(Group { path, floor, priority })
}

/// A cgroup from the root of the hierarchy, with a slash before and none behind.
fn path(c: &Cur<'_>) -> Result<String, ConfigError> {
    let text = c.text()?.trim_matches('/');
    if text.is_empty() {
        return Err(c.error("the root is no cgroup of its own: name one below it"));
    }
    if text.starts_with("sys/fs/cgroup") || text.split('/').any(|part| part == ".." || part == ".")
    {
        return Err(
            c.error("write it as from the root of the hierarchy, such as \"/system.slice\"")
        );
    }
    Ok(format!("/{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ActFile, String> {
        let users = |name: &str| (name == "postgres").then_some(114);
        parse_act("act.toml", text, &users).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_not_there_is_the_default() {
        assert_eq!(read(""), Ok(ActFile::default()));
        let s = read("[budget]\nmoved_mbps = 20\nstall = \"500us\"\ncpu_permille = 5\n");
        let s = s.unwrap().settings;
        let often = read("[budget]\ninterval = \"100ms\"\n").unwrap().settings;
        assert_eq!(often, Settings { interval: Picos::from_ms(100), ..Settings::default() });
        assert_eq!((s.moved_mbps, s.stall.as_ns(), s.cpu_permille), (MBps(20), 500_000, 5));
        assert_eq!(s.horizon, Settings::default().horizon);
        let waits = read("[aim]\nmost_at_once = 64\n").unwrap().settings;
        assert_eq!(waits, Settings { most_at_once: 64, ..Settings::default() });
        // One bound that is named is one for all moves; both may be.
        assert_eq!(s.most_mbps, MBps(20));
        let both = read("[budget]\nmost_mbps = 500\nmoved_mbps = 20\n").unwrap().settings;
        assert_eq!((both.moved_mbps, both.most_mbps), (MBps(20), MBps(500)));
    }

    #[test]
    fn limits_and_tiers_are_read() {
        let told = read(
            "[exclude]\ncommand = [\"sshd\", \"qemu-*\"]\ncgroup = [\"a.slice/\"]\n\
             user = [\"postgres\", 1000]\n\
             [[cgroup]]\npath = \"/db\"\nfloor = \"8 GiB\"\n\
             [[cgroup]]\npath = \"batch\"\npriority = -5\n\
             [tiers]\nfast = \"0-1,3\"\n",
        );
        let told = told.unwrap();
        let shown: Vec<String> = told.limits.excluded.iter().map(ToString::to_string).collect();
        let due = ["command sshd", "command qemu-*", "cgroup /a.slice", "user 114", "user 1000"];
        assert_eq!(shown, due);
        let group = |path: &str, floor, priority| Group {
            path: path.to_owned(),
            floor: Pages(floor),
            priority,
        };
        assert_eq!(told.limits.groups, [group("/db", 2 << 20, 0), group("/batch", 0, -5)]);
        let fast = told.fast.unwrap();
        assert_eq!(fast.nodes, [0, 1, 3].map(NodeId).into());
        assert_eq!(fast.error("no").to_string(), "act.toml:12:8: tiers.fast: no");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, told) in [
            (
                "[aim]\nmost_at_once = 65\n",
                "act.toml:2:16: aim.most_at_once: 65 is out of range; a whole number from 1 to 64 is allowed",
            ),
            (
                "[aim]\nmost_at_onec = 2\n",
                "act.toml:2:1: aim.most_at_onec: unknown key; did you mean \"most_at_once\"?",
            ),
            (
                "[budget]\nstal = \"1ms\"\n",
                "act.toml:2:1: budget.stal: unknown key; did you mean \"stall\"?",
            ),
            (
                "[budget]\nstall = 1\n",
                "act.toml:2:9: budget.stall: expected a time with its unit, such as \"10us\" or \"1s\", found a number",
            ),
            (
                "[budget]\nstall = \"2s\"\n",
                "act.toml:2:9: budget.stall: a stall of more than 1s: that is a pause, not a budget",
            ),
            (
                "[budget]\nmoved_mbps = 0\n",
                "act.toml:2:14: budget.moved_mbps: 0 is out of range; a whole number from 1 to 65536 is allowed",
            ),
            (
                "[budget]\nmost_mbps = 99\n",
                "act.toml:2:13: budget.most_mbps: less than moved_mbps, which is 100",
            ),
            (
                "[budget]\ninterval = \"90s\"\n",
                "act.toml:2:12: budget.interval: from \"10ms\" to \"60s\" is allowed",
            ),
            (
                "[exclude]\nuser = [\"nobody-of-ours\"]\n",
                "act.toml:2:9: exclude.user[0]: there is no user \"nobody-of-ours\" in /etc/passwd; give its number",
            ),
            (
                "[exclude]\ncommand = [\"*\"]\n",
                "act.toml:2:12: exclude.command[0]: a command's name is empty: name one, such as \"sshd\"",
            ),
            (
                "[exclude]\ncgroup = [\"/\"]\n",
                "act.toml:2:11: exclude.cgroup[0]: the root is no cgroup of its own: name one below it",
            ),
            (
                "[[cgroup]]\npath = \"/sys/fs/cgroup/db\"\nfloor = \"1 GiB\"\n",
                "act.toml:2:8: cgroup[0].path: write it as from the root of the hierarchy, such as \"/system.slice\"",
            ),
            (
                "[[cgroup]]\npath = \"/db\"\n",
                "act.toml:1:1: cgroup[0]: neither a \"floor\" nor a \"priority\": this says nothing",
            ),
            (
                "[[cgroup]]\npath = \"/db\"\npriority = 1001\n",
                "act.toml:3:12: cgroup[0].priority: 1001 is out of range; a whole number from -1000 to 1000 is allowed",
            ),
            (
                "[[cgroup]]\npath = \"/db\"\nfloor = \"8 gib\"\n",
                "act.toml:3:9: cgroup[0].floor: \"8 gib\" is no size; write it with B, KiB, MiB, GiB or TiB, such as \"512 MiB\"",
            ),
            (
                "[[cgroup]]\npath = \"/db\"\nfloor = 1\n[[cgroup]]\npath = \"db\"\nfloor = 2\n",
                "act.toml:4:1: cgroup[1]: /db is there twice",
            ),
            (
                "[tiers]\nfast = [0]\n",
                "act.toml:2:8: tiers.fast: expected a text in quotes, found a list",
            ),
        ] {
            let e = read(text).unwrap_err();
            assert_eq!(e, told);
        }
    }
}
