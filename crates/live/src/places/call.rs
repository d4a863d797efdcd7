//! `move_pages`: the one place that calls it, to ask and to move.

use homenode_core::units::NodeId;
use std::io;

/// A status that the kernel did not write: it gave up before it came there.
pub const UNTOLD: i32 = i32::MIN;

// Of the kernel's interface: pages that nobody else maps.
const MPOL_MF_MOVE: libc::c_int = 1 << 1;

/// Asks on which node each address is. A status is a node, or a negative errno: ENOENT
/// for what is not in memory, EFAULT for the zero page and where nothing is mapped.
/// It takes about a third of a microsecond an address.
///
/// * `status` – replaced, as many as addresses; [`UNTOLD`] where the call failed before.
///
/// # Errors
/// ESRCH: the process is gone. EPERM: it may not be asked. ENOSYS: no such call.
pub fn query(pid: u32, addresses: &[usize], status: &mut Vec<i32>) -> io::Result<()> {
    call(pid, addresses, None, status, 0).map(|_| ())
}

/// Moves pages to a node, but for those that several processes map. Reclaims there before
/// it gives up. A status is the node where the page is now, or a negative errno.
///
/// Returns how many were left, as far as the kernel counts them: those that failed, and
/// those behind them, of which it then has told nothing ([`UNTOLD`]).
///
/// # Errors
/// As [`query`]; EACCES: the process' cpuset forbids the node; ENODEV: it is not there;
/// ENOMEM: no room, and nothing is told of the pages of that batch and those behind.
pub fn send(pid: u32, addresses: &[usize], to: NodeId, status: &mut Vec<i32>) -> io::Result<u64> {
    let targets = vec![i32::from(to.0); addresses.len()];
    call(pid, addresses, Some(&targets), status, MPOL_MF_MOVE)
}

fn call(
    pid: u32,
    addresses: &[usize],
    targets: Option<&[i32]>,
    status: &mut Vec<i32>,
    flags: libc::c_int,
) -> io::Result<u64> {
    status.clear();
    status.resize(addresses.len(), UNTOLD);
    // SAFETY: all arrays have as many elements as said and outlive the call; without
    // targets nothing is moved, and moving changes no contents.
    let r = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid as libc::pid_t,
            addresses.len(),
            addresses.as_ptr(),
            targets.map_or(std::ptr::null(), <[i32]>::as_ptr),
            status.as_mut_ptr(),
            flags,
        )
    };
    u64::try_from(r).map_err(|_| io::Error::last_os_error())
}
