//! `homenode merge estimate` over the processes of a case.
//!
//! Before anything is merged it looks at processes of its own that have done the same:
//! reading them may part what a fork had left shared. Once all is merged it looks at
//! those that ksmd has merged. Only memory that is registered for merging counts: that
//! is what ksmd looks at.

use super::real::Real;
use super::side::Side;
use anyhow::{Context, Result, anyhow};
use homenode_config::{MergeCase, MergeLook};
use homenode_measure::truth::merge::Kernel;
use homenode_merge::estimate::{self, Estimate, Options, Progress, Targets};
use std::time::Duration;

/// What the estimate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) pages_shared: u64,
    pub(super) pages_sharing: u64,
    pub(super) zero: u64,
    pub(super) volatile: u64,
}

impl From<&Estimate> for Look {
    fn from(e: &Estimate) -> Self {
        let (saving, zero, volatile) = (e.across, e.zero, e.volatile);
        let (pages_shared, pages_sharing) = (saving.pages_shared, saving.pages_sharing);
        Self { pages_shared, pages_sharing, zero, volatile }
    }
}

/// The kernel's knobs as the case has them, and as they are without it.
fn options(case: &MergeCase) -> Options {
    let knob = |name: &str| {
        let found = case.scenario.ksm.iter().rev().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    };
    Options {
        registered: true,
        max_page_sharing: Some(
            knob("max_page_sharing").and_then(|v| v.parse().ok()).unwrap_or(256),
        ),
        use_zero_pages: Some(matches!(knob("use_zero_pages"), Some("1" | "true"))),
        ..Options::default()
    }
}

/// Looks before anything is merged.
pub(super) fn early(kernel: &Kernel, case: &MergeCase, look: MergeLook) -> Result<Look> {
    let mut side = Real::new(kernel, case);
    let first = look.at - u32::from(look.again);
    (0..=first).try_for_each(|slot| side.act(slot))?;
    let targets = Targets::Pids(side.pids());
    let mut options = options(case);
    options.again = look.again.then_some(Duration::from_millis(20));
    let mut failed = None;
    let mut between = look.again;
    let estimate = estimate::estimate(&targets, &options, &mut |progress| {
        if matches!(progress, Progress::Waiting { .. }) && std::mem::take(&mut between) {
            failed = side.act(look.at).err();
        }
    })
    .context("estimating")?;
    match failed {
        Some(e) => Err(e),
        None => Ok(Look::from(&estimate)),
    }
}

/// Looks at what has been merged.
pub(super) fn late(side: &Real<'_>, case: &MergeCase) -> Result<Look> {
    let pids = side.pids();
    if pids.is_empty() {
        return Err(anyhow!("all processes of the case have ended before the estimate looks"));
    }
    let estimate = estimate::estimate(&Targets::Pids(pids), &options(case), &mut |_| {});
    Ok(Look::from(&estimate.context("estimating")?))
}
