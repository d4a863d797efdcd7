//! Who is left alone, on a real kernel with cgroups.
//!
//! Source: specs/act.md#limits.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use homenode_core::units::NodeId;
use homenode_live::belongs::Belongs;
use homenode_machine::Belongings as _;
use serde_json::json;

use super::slow_node;
use crate::advise::by_node;
use crate::asked::Asked;
use crate::damon::Module;
use crate::observe::{Busy, Still, offers};
use crate::{TestResult, skip};

/// A cgroup with this process in it; gone when dropped.
pub(super) struct Group(&'static str);

impl Group {
    pub(super) fn with(name: &'static str, pid: u32) -> Result<Self> {
        const TOP: &str = "/sys/fs/cgroup";
        let on = fs::write(format!("{TOP}/cgroup.subtree_control"), "+memory");
        on.map_err(|e| skip(format!("this kernel has no cgroups with memory: {e}")))?;
        fs::create_dir_all(format!("{TOP}{name}")).context(name)?;
        let group = Self(name);
        group.put(pid)?;
        Ok(group)
    }
    fn put(&self, pid: u32) -> Result<()> {
        let procs = format!("/sys/fs/cgroup{}/cgroup.procs", self.0);
        fs::write(&procs, pid.to_string()).context(procs)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(format!("/sys/fs/cgroup{}", self.0));
    }
}

/// Who is excluded is neither advised nor moved; the kernel's count of a cgroup is what its
/// process has.
pub(crate) fn limits(asked: &Asked) -> TestResult {
    const NAME: &str = "/left-alone";
    let slow = slow_node(asked)?;
    let _still = Still::now()?;
    let module = Module::off()?;
    let group = Group::with(NAME, std::process::id())?;
    // A process is counted for where its memory came to be.
    let busy = Busy::on(slow);
    fs::write("/sys/fs/cgroup/cgroup.procs", std::process::id().to_string()).context("back")?;
    let busy = busy?;
    let pid = busy.pid().to_string();
    let config = "/tmp/limits.toml";
    let run = |what: &str, text: &str| -> Result<(bool, String)> {
        fs::write(config, text).context(config)?;
        let line = [what, "--pid", &pid, "--config", config, "--for", "10s", "--json"];
        let output = Command::new("/bin/homenode").args(line).output()?;
        let words =
            [output.stderr, output.stdout].map(|s| String::from_utf8_lossy(&s).into_owned());
        Ok((output.status.success(), words.concat()))
    };
    let there = by_node(busy.pid())?.get(slow).copied().unwrap_or(0);
    let on = [NodeId(slow as u16)].into();
    let counted = Belongs::at(Path::new("/")).pages(NAME, &on).context("memory.numa_stat")?.0;
    // Pages that it maps and others have brought are not its cgroup's.
    ensure!(counted.abs_diff(there) <= there / 10, "{there} pages there, {counted} counted");
    let (fine, words) = run("advise", "[[cgroup]]\npath = \"left-alone\"\nfloor = \"8 gigs\"\n")?;
    ensure!(!fine && words.contains("limits.toml:3:9: cgroup[0].floor"), "{words}");
    if !offers("damon")? {
        return Ok(json!({"counted": counted, "without heat": "nothing to be kept from"}));
    }
    let mut told = Vec::new();
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).context("its command")?;
    let beginning = &comm.trim()[..3];
    for rule in [
        "cgroup = [\"/left-alone\"]".to_owned(),
        format!("command = [\"{beginning}*\"]"),
        "user = [0]".to_owned(),
    ] {
        for what in ["advise", "act"] {
            let (fine, words) = run(what, &format!("[exclude]\n{rule}\n"))?;
            ensure!(fine && words.contains("1 process left alone: "), "{what}, {rule}: {words}");
        }
        told.push(rule);
    }
    let now = by_node(busy.pid())?.get(slow).copied().unwrap_or(0);
    ensure!(now + 8 >= there, "of {there} pages {now} are there: it was not left alone");
    drop((busy, module, group));
    Ok(json!({"counted": [there, counted], "left alone by": told}))
}
