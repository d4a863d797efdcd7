//! `--set knob=value`, with the kernel's names.

use anyhow::{Result, anyhow};
use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::{Knob, Knobs};
use homenode_core::ksm::files::File;

/// A knob and its value, not yet checked.
pub(crate) type Setting = (String, String);

/// Refuses a `--set` of the knob by which columns say how the kernel balances.
pub(crate) fn check_columns(settings: &[Setting], version: KernelVersion) -> Result<()> {
    let own = |s: &&Setting| Knob::find(&s.0, version) == Some(Knob::NumaBalancing);
    match settings.iter().find(own) {
        None => Ok(()),
        Some((name, value)) => Err(anyhow!(
            "--set {name}={value}: the table's columns set this knob; --columns says which there are"
        )),
    }
}

/// Whether a kernel takes all of these, wherever they come from.
pub(crate) fn check_all(settings: &[Setting], version: KernelVersion) -> Result<()> {
    try_all(settings, version).map_err(|(name, value, e)| anyhow!("{name}={value}: {e}"))
}

/// What every command says about `--set`.
pub(crate) const HELP: &str = "A knob of the simulated kernel, by the kernel's name or path, such \
as numa_balancing=2, scan_size_mb=512 or vm.swappiness=10; may be given several times";

/// What `sim` says of it.
pub(crate) const HELP_SIM: &str = "A knob of the simulated kernel, by the kernel's name or path, \
such as numa_balancing=2, scan_size_mb=512 or vm.swappiness=10, or a file of same-page merging, \
such as merge_across_nodes=0; may be given several times";

/// Files of same-page merging, which are no knobs of the table, and the other settings.
pub(crate) fn split(settings: &[Setting], version: KernelVersion) -> (Vec<Setting>, Vec<Setting>) {
    let of_merging = |s: &Setting| File::find(&s.0, version).is_some_and(|f| !f.is_counter());
    settings.iter().cloned().partition(of_merging)
}

/// Splits `knob=value`.
pub(crate) fn parse(text: &str) -> Result<Setting, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!(
            "write knob=value, such as numa_balancing=2; knobs are {}",
            names().join(", ")
        )),
    }
}

/// Whether a kernel takes these values; the error names the knob, the value and what
/// is allowed. `others` are the names that `--set` takes beside knobs.
pub(crate) fn check(settings: &[Setting], others: &[&str], version: KernelVersion) -> Result<()> {
    let mut knobs = Knobs::new(version);
    for (name, value) in settings {
        if Knob::find(name, version).is_none() {
            let (known, mut all) = (names(), others.to_vec());
            all.extend(known.iter().map(String::as_str));
            return Err(anyhow!(
                "--set {name}={value}: Linux {version} has no knob {name:?}{}",
                homenode_config::suggestion(name, &all)
            ));
        }
        knobs.set(name, value).map_err(|e| anyhow!("--set {name}={value}: {e}"))?;
    }
    Ok(())
}

/// Whether some kernel has a knob of that name.
pub(crate) fn is_known(name: &str) -> bool {
    KernelVersion::ALL
        .into_iter()
        .any(|v| Knob::find(name, v).is_some() || File::find(name, v).is_some())
}

/// The names of merging's files that can be written.
pub(crate) fn files_of_merging(version: KernelVersion) -> Vec<&'static str> {
    let writable = |f: &File| f.exists(version) && !f.is_counter();
    File::ALL.into_iter().filter(writable).map(File::name).collect()
}

fn names() -> Vec<String> {
    let known = Knob::ALL.into_iter().filter(|k| k.handler(KernelVersion::default()).is_some());
    let mut all: Vec<String> = known.map(Knob::name).collect();
    all.push("weighted_interleave/nodeN".into());
    all
}

/// The same for the knobs of a scenario's file.
pub(crate) fn check_file(
    file: &std::path::Path,
    settings: &[Setting],
    version: KernelVersion,
) -> Result<()> {
    let at = file.display();
    try_all(settings, version).map_err(|(name, _, e)| anyhow!("{at}: knobs.{name}: {e}"))
}

/// Sets all in turn, up to the first setting that this kernel refuses: which, and why.
fn try_all(
    settings: &[Setting],
    version: KernelVersion,
) -> Result<(), (&str, &str, homenode_core::knobs::KnobError)> {
    let mut knobs = Knobs::new(version);
    settings.iter().try_for_each(|(k, v)| knobs.set(k, v).map_err(|e| (k.as_str(), v.as_str(), e)))
}
