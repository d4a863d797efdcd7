//! Registered processes, with errors that say what driving needs.

use super::KsmError;
use homenode_live::place::Place;
use homenode_live::registered::{self, Scan, ask, describe};
use std::fs;
use std::io;

/// All registered processes, as [`registered::scan`] finds them.
///
/// # Errors
/// [`KsmError::Read`] if /proc can't be listed.
pub(super) fn scan(place: &Place, deep: bool) -> Result<Scan, KsmError> {
    let path = place.path("/proc");
    registered::scan(place, deep).map_err(|source| KsmError::Read { path, source })
}

/// All registered processes or, where `pids` are named, these, registered or not; those that
/// have ended are left out.
///
/// * `first` – a first look takes longer, and whoever is named has to be there.
///
/// # Errors
/// [`KsmError::Unreadable`] if one may not be asked; if `first`, also
/// [`KsmError::NoProcess`] if one is not there.
pub(super) fn all_or_these(place: &Place, pids: &[u32], first: bool) -> Result<Scan, KsmError> {
    if pids.is_empty() {
        return scan(place, first);
    }
    let mut found = Scan::default();
    for &pid in pids {
        let refused = || {
            let comm = place.path(&format!("/proc/{pid}/comm"));
            let name = fs::read_to_string(comm).unwrap_or_default();
            KsmError::Unreadable { pid, name: name.trim().escape_default().to_string() }
        };
        let process = match ask(place, pid, false) {
            Ok((stat, _)) => describe(place, pid, stat),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(refused()),
            Err(_) => None,
        };
        if process.is_none() && first {
            return Err(KsmError::NoProcess { pid });
        }
        found.processes.extend(process);
    }
    found.processes.sort_by_key(|p| p.pid);
    Ok(found)
}
