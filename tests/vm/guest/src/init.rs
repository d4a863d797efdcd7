//! The first program of a guest: mounts what programs expect, runs what the
//! kernel's command line asks for, and powers off.
//!
//! | word of the command line | what happens |
//! |---|---|
//! | `homenode.tests=a,b` | each test in a process of its own, results to [`PORT`] |
//! | `homenode.shell` | a shell on the console |

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::act;
use crate::memory::{task_policy_default, task_policy_local};
use crate::{TESTS, Test};

/// File systems: what, where, type.
const MOUNTS: &[(&str, &str, &str)] = &[
    ("proc", "/proc", "proc"),
    ("sysfs", "/sys", "sysfs"),
    ("devtmpfs", "/dev", "devtmpfs"),
    ("devpts", "/dev/pts", "devpts"),
    ("tmpfs", "/tmp", "tmpfs"),
    ("debugfs", "/sys/kernel/debug", "debugfs"),
    ("tracefs", "/sys/kernel/tracing", "tracefs"),
    ("cgroup2", "/sys/fs/cgroup", "cgroup2"),
];

/// Where results go: the second serial line, whose driver is part of every kernel
/// image (that of virtio ports is a module in 6.1).
const PORT: &str = "/dev/ttyS1";

/// Does everything; never comes back to the kernel, which would panic.
pub(crate) fn run() -> ! {
    for (what, at, kind) in MOUNTS {
        if let Err(error) = mount(what, at, kind) {
            // A kernel without one of the later ones is still of use.
            eprintln!("can't mount {kind} at {at}: {error}");
        }
    }
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let mut words = line.split_whitespace();
    if words.clone().any(|word| word.starts_with("maxcpus=")) {
        if let Err(error) = bring_up(Path::new("/sys/devices/system/cpu")) {
            eprintln!("CPUs can't be brought up: {error}");
        }
    }
    if words.clone().any(|word| word == "homenode.shell") {
        shell();
    } else if let Some(names) = words.find_map(|word| word.strip_prefix("homenode.tests=")) {
        if act::is_first(names) {
            // SAFETY: this process has one thread.
            let tests = unsafe { libc::fork() } == 0;
            if let Some(Err(error)) = (!tests).then(act::become_systemd) {
                eprintln!("systemd can't be the first program: {error:#}");
                power_off();
            }
        }
        if let Err(error) = tests(names) {
            eprintln!("results can't be told: {error}");
        }
    } else {
        eprintln!("the kernel's command line has neither homenode.tests= nor homenode.shell");
    }
    power_off()
}

fn mount(what: &str, at: &str, kind: &str) -> io::Result<()> {
    fs::create_dir_all(at)?;
    let text = |word: &str| CString::new(word).map_err(io::Error::other);
    let (what, at, kind) = (text(what)?, text(at)?, text(kind)?);
    // SAFETY: three strings that outlive the call, and no data.
    let r = unsafe { libc::mount(what.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Brings up all CPUs of the machine that are not, by their numbers; how many there were.
fn bring_up(cpus: &Path) -> io::Result<usize> {
    let mut down = Vec::new();
    for entry in fs::read_dir(cpus)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("cpu"));
        let Some(Ok(number)) = number.map(str::parse::<u32>) else { continue };
        let file = entry.path().join("online");
        // One that can't go, such as the first, has no such file.
        if fs::read_to_string(&file).is_ok_and(|state| state.trim() == "0") {
            down.push((number, file));
        }
    }
    down.sort();
    for (_, file) in &down {
        fs::write(file, "1")?;
    }
    Ok(down.len())
}

fn power_off() -> ! {
    // SAFETY: no memory is involved; nothing is left to be written to any disk.
    unsafe {
        libc::sync();
        libc::reboot(libc::LINUX_REBOOT_CMD_POWER_OFF);
    }
    // A machine that can't: the kernel then panics, which ends the guest as well.
    std::process::exit(1)
}

fn shell() {
    println!("homenode's guest: `homenode --help`, `homenode-guest --list`; `exit` powers off");
    let mut command = Command::new("/bin/busybox");
    // A session with the console as its terminal, so that Ctrl-C reaches programs.
    command.args(["setsid", "-c", "/bin/sh", "-l"]);
    command.env("HOME", "/").env("PATH", "/bin").env("TERM", "linux").env("PS1", "guest:\\w# ");
    if let Err(error) = command.status() {
        eprintln!("no shell: {error}");
    }
}

/// Runs the named tests and tells [`PORT`] about each.
fn tests(names: &str) -> io::Result<()> {
    // Balancing leaves a task with a policy of its own alone: what the kernel counts is
    // then the tests' and not ours.
    task_policy_local()?;
    let mut port = OpenOptions::new().write(true).open(PORT)?;
    let mut tell = |value: Value| {
        port.write_all(format!("{value}\n").as_bytes())?;
        // What is still in the line's buffer would be lost with the power.
        // SAFETY: a descriptor that is open.
        let r = unsafe { libc::tcdrain(port.as_raw_fd()) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    tell(json!({"guest": release.trim()}))?;
    for name in names.split(',').filter(|name| !name.is_empty()) {
        let Some(test) = TESTS.iter().find(|test| test.name == name) else {
            tell(json!({"test": name, "verdict": "failed", "why": "there is no such test"}))?;
            continue;
        };
        tell(json!({"begin": name, "limit_s": test.limit.as_secs()}))?;
        if test.hangs {
            // As a stuck kernel would: nobody in here notices.
            eprintln!("{name}: this line is the last thing on the console");
            thread::sleep(Duration::from_secs(86_400));
        }
        let begun = Instant::now();
        let mut result = in_process(test);
        result["test"] = json!(name);
        result["ms"] = json!(begun.elapsed().as_millis() as u64);
        tell(result)?;
    }
    tell(json!({"end": true}))
}

/// A test in a process of its own: a crash or a hang is that test's alone.
fn in_process(test: &Test) -> Value {
    let failed = |why: String| json!({"verdict": "failed", "why": why});
    let mut command = Command::new("/proc/self/exe");
    command.args(["--test", test.name]).stdin(Stdio::null()).stdout(Stdio::piped());
    command.env("PATH", "/bin").env("HOME", "/").process_group(0);
    // SAFETY: one system call in the new process, which is safe there.
    unsafe { command.pre_exec(task_policy_default) };
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return failed(format!("it can't be started: {error}")),
    };
    let output = child.stdout.take();
    let (told, tells) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut output) = output {
            let _ = output.read_to_string(&mut text);
        }
        let _ = told.send(text);
    });
    let begun = Instant::now();
    // Asleep until it is done: a test that counts what CPUs do has them for itself.
    let text = tells.recv_timeout(test.limit).unwrap_or_default();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begun.elapsed() >= test.limit => {
                // SAFETY: a signal to the group that the child leads.
                unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
                let _ = child.wait();
                return failed(format!("not done after {} s: ended", test.limit.as_secs()));
            }
            Ok(None) => thread::sleep(Duration::from_millis(20)),
            Err(error) => return failed(format!("it can't be waited for: {error}")),
        }
    };
    match (status.signal(), serde_json::from_str(text.trim())) {
        (Some(signal), _) => failed(format!("ended by signal {signal}")),
        (None, Ok(result)) => result,
        (None, Err(_)) => failed(format!("it told nothing ({status})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_are_down_are_brought_up() {
        let cpus = std::env::temp_dir().join(format!("homenode-cpus-{}", std::process::id()));
        // CPU 0 has no switch; what else is in the folder is no CPU.
        for (name, online) in
            [("cpu0", None), ("cpu1", Some("1\n")), ("cpu2", Some("0\n")), ("cpu10", Some("0\n"))]
        {
            fs::create_dir_all(cpus.join(name)).unwrap();
            if let Some(text) = online {
                fs::write(cpus.join(name).join("online"), text).unwrap();
            }
        }
        fs::create_dir_all(cpus.join("cpuidle")).unwrap();
        fs::write(cpus.join("online"), "0-1\n").unwrap();
        assert_eq!(bring_up(&cpus).unwrap(), 2);
        for name in ["cpu1", "cpu2", "cpu10"] {
            assert_eq!(fs::read_to_string(cpus.join(name).join("online")).unwrap().trim(), "1");
        }
        assert_eq!(fs::read_to_string(cpus.join("online")).unwrap(), "0-1\n");
        assert_eq!(bring_up(&cpus).unwrap(), 0);
        fs::remove_dir_all(&cpus).unwrap();
        assert!(bring_up(&cpus).is_err());
    }
}
