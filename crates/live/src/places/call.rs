//! `move_pages`: the one place that calls it.

use std::io;

/// A status that the kernel did not write: it gave up before it came there.
pub(crate) const UNTOLD: i32 = i32::MIN;

/// Asks on which node each address is. A status is a node, or a negative errno: ENOENT
/// for what is not in memory, EFAULT for the zero page and where nothing is mapped.
/// It takes about a third of a microsecond an address.
///
/// * `status` – replaced, as many as addresses; [`UNTOLD`] where the call failed before.
///
/// # Errors
/// ESRCH: the process is gone. EPERM: it may not be asked. ENOSYS: no such call.
pub(crate) fn query(pid: u32, addresses: &[usize], status: &mut Vec<i32>) -> io::Result<()> {
    call(pid, addresses, None, status, 0).map(|_| ())
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
