//! Words to who started us, as systemd takes them: that we are ready, alive, and about to end.
//!
//! ```text
//! NOTIFY_SOCKET=/run/systemd/notify ──▶ one datagram a word: READY=1, WATCHDOG=1, STOPPING=1
//! WATCHDOG_USEC=120000000           ──▶ WATCHDOG=1 at least twice in that time
//! ```
//!
//! Where nobody asks for it, or nobody listens, nothing is said. Facts: `sd_notify(3)`.
//!
//! Source: specs/act.md#service.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// Who is told.
#[derive(Debug)]
pub struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// From one sign of life to the next, where these are wanted.
    every: Option<Duration>,
    alive: Option<Instant>,
}

impl Notify {
    /// Who the environment names.
    pub fn from_environment() -> Self {
        let text = |name: &str| std::env::var(name).ok();
        let ours = text("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let every = text("WATCHDOG_USEC").filter(|_| ours).and_then(|us| us.parse::<u64>().ok());
        let to = std::env::var_os("NOTIFY_SOCKET").and_then(|name| socket(name.as_bytes()).ok());
        Self { to, every: every.map(|us| Duration::from_micros(us / 3)), alive: None }
    }

    /// All is set up. `status` is shown to people.
    pub fn ready(&mut self, status: &str) {
        self.say(&format!("READY=1\nSTATUS={}", status.replace('\n', " ")));
        self.alive();
    }
    /// A sign of life, if it is time for one.
    pub fn alive(&mut self) {
        let Some(every) = self.every else { return };
        if self.alive.is_none_or(|at| at.elapsed() >= every) {
            self.alive = Some(Instant::now());
            self.say("WATCHDOG=1");
        }
    }
    /// It is about to end.
    pub fn stopping(&mut self) {
        self.say("STOPPING=1");
    }

    fn say(&mut self, words: &str) {
        if let Some((socket, to)) = &self.to {
            // Who does not listen is not waited for.
            let _ = socket.send_to_addr(words.as_bytes(), to);
        }
    }
}

/// A path, or behind an `@` a name that is no file.
fn socket(name: &[u8]) -> io::Result<(UnixDatagram, SocketAddr)> {
    let to = match name {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_fixtures::Folder;

    fn hear(socket: &UnixDatagram) -> Option<String> {
        let mut bytes = [0u8; 256];
        let n = socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..n]).into_owned())
    }

    #[test]
    fn words_arrive_by_a_path_and_by_a_name() {
        let at = Folder::new();
        let path = at.join("notify");
        let name = format!("homenode-test-{}", std::process::id());
        let abstract_one = SocketAddr::from_abstract_name(&name).unwrap();
        for (ear, called) in [
            (UnixDatagram::bind(&path).unwrap(), path.display().to_string()),
            (UnixDatagram::bind_addr(&abstract_one).unwrap(), format!("@{name}")),
        ] {
            ear.set_nonblocking(true).unwrap();
            let to = socket(called.as_bytes()).ok();
            assert!(to.is_some(), "{called}");
            let mut notify = Notify { to, every: Some(Duration::from_secs(3600)), alive: None };
            notify.ready("moves\nmemory");
            assert_eq!(hear(&ear).as_deref(), Some("READY=1\nSTATUS=moves memory"));
            assert_eq!(hear(&ear).as_deref(), Some("WATCHDOG=1"));
            notify.alive();
            assert_eq!(hear(&ear), None, "it is not time yet");
            notify.stopping();
            assert_eq!(hear(&ear).as_deref(), Some("STOPPING=1"));
        }
        // Nobody listens, or nobody asked.
        std::fs::remove_file(&path).unwrap();
        let to = socket(path.as_os_str().as_bytes()).ok();
        Notify { to, every: None, alive: None }.ready("");
        Notify { to: None, every: None, alive: None }.ready("");
    }
}
