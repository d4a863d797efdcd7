//! Busy threads of policies, and CPUs for them: `+busy=y`, `+busy=N` and `+spare=N` of a column.
//!
//! ```text
//! hemem                  its threads don't run: what it thinks costs no time
//! hemem+busy=y           they run, on CPUs that are idle where there are any
//! hemem+busy=y+spare=2   the machine has two CPUs beside those that programs may use
//! hemem+busy=y+spare=0   it has none: they take turns with the programs
//! ```
//!
//! Source: specs/compare.md#busy.

use homenode_core::policy::Policy;
use homenode_core::topology::MAX_CPUS;
use homenode_core::units::count;

/// The settings' names.
pub(super) const BUSY: &str = "busy";
pub(super) const SPARE: &str = "spare";

/// Most threads that a column may keep busy.
const MOST: u32 = 64;

/// Which busy threads of a policy run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// As many as its published code has.
    Own,
    /// So many.
    Number(u32),
}

impl Busy {
    /// Reads what stands behind `busy=`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let number = |n: &u32| *n <= MOST;
        match (text, text.parse().ok().filter(number)) {
            ("y", _) => Ok(Self::Own),
            ("n", _) => Ok(Self::Number(0)),
            (_, Some(n)) => Ok(Self::Number(n)),
            _ => Err(format!(
                "busy is y (as many threads as the policy's published code keeps busy), n, or a number \
                 from 0 to {MOST}"
            )),
        }
    }
    /// How many that is of a policy.
    pub(crate) fn threads(self, policy: &dyn Policy) -> u32 {
        match self {
            Self::Own => policy.busy_threads(),
            Self::Number(n) => n,
        }
    }
}

/// Reads what stands behind `spare=`.
pub(super) fn parse_spare(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|n| *n < MAX_CPUS).ok_or_else(|| {
        let most = MAX_CPUS - 1;
        format!("spare is the number of CPUs beside those that programs may use, from 0 to {most}")
    })
}

/// A sentence for captions.
pub(super) fn note(title: &str, busy: Option<Busy>, spare: Option<u32>) -> Option<String> {
    let threads = match busy {
        Some(Busy::Own) => Some("it keeps as many threads busy as its published code".to_owned()),
        Some(Busy::Number(n)) if n > 0 => {
            Some(format!("it keeps {} busy", count(n.into(), "thread", "threads")))
        }
        Some(Busy::Number(_)) | None => None,
    };
    let cpus = spare.map(|n| match n {
        0 => "the machine has no CPU beside those that programs may use".to_owned(),
        n => format!(
            "the machine has {} beside those that programs may use",
            count(n.into(), "CPU", "CPUs")
        ),
    });
    let both: Vec<String> = threads.into_iter().chain(cpus).collect();
    (!both.is_empty()).then(|| format!("{title}: {}", both.join(", and ")))
}
