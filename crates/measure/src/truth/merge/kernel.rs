//! The kernel's own merging for a truth check: ours alone, with every knob as it was
//! when it is done, also after a signal. How it is held is in [`homenode_merge::ksm`].

use homenode_live::place::Place;
use homenode_live::registered::scan;
use homenode_live::signals::{self, Signals};
use homenode_merge::ksm::{Alone, Folder, KsmError, Sleep, find_ksmd};

/// Processes that have registered memory for merging, by number and name, as far as the
/// kernel shows it (`ksm_stat`).
pub fn registered() -> Vec<(u32, String)> {
    let found = scan(&Place::here(), false).unwrap_or_default();
    found.processes.into_iter().map(|p| (p.pid, p.name)).collect()
}

/// The kernel's merging, ours alone until dropped. ksmd is stopped, nothing is merged, and
/// no advisor is on, as long as nobody writes.
pub struct Kernel {
    /// The knobs. Before the signals, so that none ends this process while they are put back.
    pub alone: Alone<Folder>,
    _signals: Signals,
    ksmd: Option<u32>,
}

impl Kernel {
    /// Takes it, at once or not at all. From then on SIGINT, SIGTERM and SIGHUP only set
    /// [`Kernel::is_interrupted`], so that all is put back. Returns sentences too, such as
    /// that the journal of an earlier boot was thrown away.
    ///
    /// # Errors
    /// [`KsmError`], with nothing changed.
    pub fn take() -> Result<(Self, Vec<String>), KsmError> {
        let place = Place::here();
        let signals = Signals::catch();
        let (alone, notes) = Alone::take(&place, Folder::of(&place))?;
        let ksmd = find_ksmd(&place);
        Ok((Self { alone, _signals: signals, ksmd }, notes))
    }

    /// Whether ksmd sleeps; `None` where it can't be seen, as in another PID namespace.
    pub fn sleep(&self) -> Option<Sleep> {
        Sleep::of(&Place::here(), self.ksmd?)
    }

    /// Whether a signal asked to end.
    pub fn is_interrupted(&self) -> bool {
        signals::any()
    }
}
