//! What people call a process.

/// A guest's domain, or the command's name; safe to print.
///
/// * `cmdline` – the words of `/proc/PID/cmdline`, each with a zero behind it.
pub fn name_of(cmdline: &[u8], comm: &[u8]) -> String {
    let words: Vec<&[u8]> = cmdline.split(|b| *b == 0).collect();
    let name = guest_name(&words);
    printable(&name.unwrap_or_else(|| String::from_utf8_lossy(comm).trim_end().to_owned()))
}

/// A name that does nothing to a terminal.
pub fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Whether the program is one that runs guests.
///
/// * `cmdline` – as above; empty where it may not be read.
pub fn runs_guests(cmdline: &[u8], comm: &[u8]) -> bool {
    let first = cmdline.split(|b| *b == 0).next().unwrap_or_default();
    let program = first.rsplit(|b| *b == b'/').next().unwrap_or_default();
    [program, comm].iter().any(|name| MONITORS.iter().any(|m| name.starts_with(m.as_bytes())))
}

/// How the names of programs begin that run guests; the kernel keeps 15 letters of them.
const MONITORS: [&str; 5] = ["qemu", "kvm", "cloud-hyperviso", "firecracker", "crosvm"];

/// The name of a QEMU guest: `-name guest=web,debug-threads=on` or `-name web`,
/// with commas in it doubled. libvirt writes the domain's name there.
fn guest_name(words: &[&[u8]]) -> Option<String> {
    let program = String::from_utf8_lossy(words.first()?).into_owned();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    if !["qemu", "kvm"].iter().any(|p| program.starts_with(p)) {
        return None;
    }
    let at = words.iter().position(|w| *w == b"-name" || *w == b"--name")?;
    let value = String::from_utf8_lossy(words.get(at + 1)?).into_owned();
    // Doubled commas are commas; no name holds the stand-in.
    let value = value.replace(",,", "\u{1}");
    let mut parts = value.split(',');
    let first = parts.next()?;
    let name = match first.split_once('=') {
        None => first,
        Some(("guest", name)) => name,
        Some(_) => parts.find_map(|p| p.strip_prefix("guest="))?,
    };
    Some(name.replace('\u{1}', ",")).filter(|n| !n.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_named_by_their_domains() {
        let name = |line: &str| guest_name(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        let qemu = "/usr/bin/qemu-system-x86_64";
        let check = |line: &str, expected: Option<&str>| {
            assert_eq!(name(line).as_deref(), expected, "{line}");
        };
        check(&format!("{qemu} -name guest=web-1,debug-threads=on -m 1G"), Some("web-1"));
        check(&format!("{qemu} -m 1G -name plain"), Some("plain"));
        check(&format!("{qemu} -name debug-threads=on,guest=x"), Some("x"));
        check(&format!("{qemu} -name a,,b,process=p"), Some("a,b"));
        check("kvm -name guest=k", Some("k"));
        check(&format!("{qemu} -m 1G -name"), None);
        check(&format!("{qemu} -name debug-threads=on"), None);
        check("find / -name guest=x", None);
        check("", None);
    }

    #[test]
    fn programs_that_run_guests() {
        assert!(runs_guests(b"/usr/bin/qemu-system-x86_64\0-m\0", b"web"));
        assert!(runs_guests(b"", b"cloud-hyperviso"));
        assert!(!runs_guests(b"/usr/bin/server\0qemu\0", b"server"));
        assert!(!runs_guests(b"", b""));
    }

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb"), "a?[2Jb");
    }
}
