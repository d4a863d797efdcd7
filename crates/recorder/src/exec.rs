//! Running another program: QEMU would hand it to the kernel, unrecorded. So
//! the plugin runs QEMU again, with itself, on that program.

use crate::peek::{string, strings};
use crate::task::Config;
use homenode_trace::program::{self, Program};
use std::ffi::{CStr, CString, OsStr, c_char};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What is to be done about an `execve`.
pub(crate) enum Plan {
    /// Run this: QEMU with its arguments.
    Run(Vec<CString>),
    /// The program cannot be recorded; the kernel may run it.
    Unrecorded,
    /// The kernel will refuse it, or will say better what is wrong.
    Leave,
}

fn executable(path: &CStr) -> Option<Vec<u8>> {
    let p = Path::new(OsStr::from_bytes(path.to_bytes()));
    if !p.metadata().ok()?.is_file() {
        return None;
    }
    // SAFETY: a valid string.
    if unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) } != 0
    {
        return None;
    }
    let mut head = Vec::new();
    File::open(p).ok()?.take(program::HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
    Some(head)
}

/// The path that `execve` or `execveat` means.
fn target(dir: Option<i32>, path: u64, own: &CStr) -> Option<CString> {
    let path = string(path)?;
    let bytes = path.to_bytes();
    // SAFETY: no preconditions.
    let pid = unsafe { libc::getpid() };
    if bytes == b"/proc/self/exe" || bytes == format!("/proc/{pid}/exe").as_bytes() {
        return Some(own.to_owned());
    }
    let Some(dir) = dir.filter(|&d| d != libc::AT_FDCWD && !bytes.starts_with(b"/")) else {
        return Some(path);
    };
    let base = std::fs::read_link(format!("/proc/self/fd/{dir}")).ok()?;
    let full = if bytes.is_empty() { base } else { base.join(OsStr::from_bytes(bytes)) };
    CString::new(full.as_os_str().as_bytes()).ok()
}

/// Plans an `execve` (`dir` is none) or `execveat`.
pub(crate) fn plan(config: &Config, own: &CStr, dir: Option<i32>, path: u64, argv: u64) -> Plan {
    let (Some(mut path), Some(mut args)) = (target(dir, path, own), strings(argv)) else {
        return Plan::Leave;
    };
    // The kernel follows scripts of scripts four times.
    for _ in 0..5 {
        let Some(head) = executable(&path) else { return Plan::Leave };
        match program::classify(&head) {
            Program::Native => {
                let mut all = vec![config.qemu.clone()];
                let mut plugin = config.plugin.replace(',', ",,");
                for a in &config.raw {
                    plugin.push(',');
                    plugin.push_str(&a.replace(',', ",,"));
                }
                let Ok(plugin) = CString::new(plugin) else { return Plan::Leave };
                let first = if args.is_empty() { path.clone() } else { args.remove(0) };
                all.extend([c"-plugin".to_owned(), plugin, c"-0".to_owned(), first, path]);
                all.extend(args);
                return Plan::Run(all);
            }
            Program::Script { interpreter, argument } => {
                let Ok(interpreter) = CString::new(interpreter) else { return Plan::Leave };
                let mut new = vec![interpreter.clone()];
                new.extend(argument.and_then(|a| CString::new(a).ok()));
                new.push(path);
                new.extend(args.into_iter().skip(1));
                args = new;
                path = interpreter;
            }
            Program::OtherMachine { .. } => return Plan::Unrecorded,
            Program::NotExecutable | Program::Unknown => return Plan::Leave,
        }
    }
    Plan::Leave
}

/// Becomes `all[0]`; returns only where the kernel refuses.
#[cfg_attr(test, allow(dead_code, reason = "what QEMU calls is not there in tests"))]
pub(crate) fn run(all: &[CString], environment: u64) {
    let mut argv: Vec<*const c_char> = all.iter().map(|s| s.as_ptr()).collect();
    argv.push(std::ptr::null());
    let empty = [std::ptr::null::<c_char>()];
    let env = if environment == 0 { empty.as_ptr() } else { environment as *const *const c_char };
    // SAFETY: `argv` ends with null; the kernel checks the program's own `env`.
    unsafe {
        libc::syscall(libc::SYS_execve, all[0].as_ptr(), argv.as_ptr(), env);
    }
}

#[cfg(test)]
mod tests;
