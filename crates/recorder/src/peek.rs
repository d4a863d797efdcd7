//! Looks into the recorded program's memory, by addresses that the program gives.

use std::ffi::CString;

/// Bytes of the recorded program's memory, or as many as can be read. A bad
/// pointer ends the copy and not the program.
pub(crate) fn peek(at: u64, out: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    let remote = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: out.len() };
    // SAFETY: `local` is a buffer of ours; the kernel checks `remote`.
    let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    usize::try_from(n).unwrap_or(0)
}

/// A string of the recorded program, at most 128 KiB (the kernel's limit).
pub(crate) fn string(mut at: u64) -> Option<CString> {
    let mut s = Vec::new();
    let mut part = [0u8; 256];
    while s.len() < 128 << 10 {
        // Up to the next multiple, so that no copy crosses into an unmapped page.
        let want = 256 - (at as usize & 255);
        let n = peek(at, &mut part[..want]);
        if let Some(end) = part[..n].iter().position(|&b| b == 0) {
            s.extend_from_slice(&part[..end]);
            return CString::new(s).ok();
        }
        if n < want {
            return None;
        }
        s.extend_from_slice(&part[..n]);
        at += n as u64;
    }
    None
}

/// A list of strings of the recorded program that ends with a null pointer.
pub(crate) fn strings(mut at: u64) -> Option<Vec<CString>> {
    let mut list = Vec::new();
    while at != 0 {
        let mut word = [0; 8];
        if peek(at, &mut word) != 8 {
            return None;
        }
        let p = u64::from_le_bytes(word);
        if p == 0 {
            break;
        }
        list.push(string(p)?);
        at += 8;
    }
    Some(list)
}
