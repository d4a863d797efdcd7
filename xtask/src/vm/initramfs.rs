//! What a guest boots from: an archive in memory, written here (the format that
//! `cpio -H newc` writes), of busybox, the `homenode` command and the guest's own
//! program, each with the shared libraries that `ldd` names.
//!
//! The very binaries that were built for this machine go in: a second, static
//! build of everything would cost minutes and would test something else than
//! what users run (`docs/decisions/0007-guests.md`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::workspace::not_run;

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
/// A character device that root alone uses.
const DEVICE: u32 = 0o020_600;

/// An archive being written. Folders come before what is in them.
#[derive(Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    /// Folders and libraries that are in already.
    there: BTreeSet<PathBuf>,
    inode: u32,
}

impl Archive {
    /// Adds a file at an absolute path of the guest.
    pub(crate) fn file(&mut self, at: &str, contents: &[u8]) {
        self.parents(at);
        self.entry(at, PROGRAM, (0, 0), contents);
    }

    /// Adds a program from this machine with its libraries, which stay at their paths.
    pub(crate) fn program(&mut self, at: &str, from: &Path) -> Result<()> {
        let read =
            |path: &Path| fs::read(path).with_context(|| format!("can't read {}", path.display()));
        self.file(at, &read(from)?);
        for library in libraries(from)? {
            let path = library.to_string_lossy().into_owned();
            if self.there.insert(library.clone()) {
                self.file(&path, &read(&library)?);
            }
        }
        Ok(())
    }

    pub(crate) fn link(&mut self, at: &str, to: &str) {
        self.parents(at);
        self.entry(at, LINK, (0, 0), to.as_bytes());
    }

    pub(crate) fn folder(&mut self, at: &str) {
        self.parents(&format!("{at}/x"));
    }

    /// Adds `/dev/console`, without which the first program has no output.
    pub(crate) fn console(&mut self) {
        self.parents("/dev/console");
        self.entry("/dev/console", DEVICE, (5, 1), &[]);
    }

    fn parents(&mut self, at: &str) {
        let mut parents: Vec<&Path> = Path::new(at).ancestors().skip(1).collect();
        parents.reverse();
        for parent in parents.into_iter().filter(|p| p.parent().is_some()) {
            if self.there.insert(parent.to_path_buf()) {
                self.entry(&parent.to_string_lossy(), FOLDER, (0, 0), &[]);
            }
        }
    }

    /// Header, name, contents, each padded to four bytes. Times are zero, so that
    /// equal contents give equal bytes.
    fn entry(&mut self, at: &str, mode: u32, device: (u32, u32), contents: &[u8]) {
        let name = at.trim_start_matches('/');
        self.inode += 1;
        let links = if mode == FOLDER { 2 } else { 1 };
        let (size, name_size) = (contents.len() as u32, name.len() as u32 + 1);
        let fields =
            [self.inode, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad(4);
        self.bytes.extend_from_slice(contents);
        self.pad(4);
    }

    fn pad(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    /// The archive, ended. The kernel takes several in one file, one after another.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.inode = 0;
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.pad(512);
        self.bytes
    }
}

/// Shared libraries that a program of this machine loads, its loader included.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let mut command = Command::new("ldd");
    // A static program is an error to ldd, and to us one without libraries.
    command.arg(program).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().map_err(|e| not_run(&command, e))?;
    Ok(libraries_in(&String::from_utf8_lossy(&output.stdout)))
}

fn libraries_in(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| {
            let path = line.split_once("=>").map_or(line, |(_, path)| path);
            path.split_whitespace().next().filter(|word| word.starts_with('/'))
        })
        // `ldd` begins with the program's own name where it has several to tell about.
        .filter(|word| !word.ends_with(':'))
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_what_ldd_prints() {
        let text = "\tlinux-vdso.so.1 (0x00007f37)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f36)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f37)\n";
        let want = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(libraries_in(text), want.map(PathBuf::from));
        assert!(libraries_in("\tnot a dynamic executable\n").is_empty());
    }

    /// Headers are 110 bytes: a magic word and thirteen numbers of eight digits.
    #[test]
    fn an_archive_has_folders_first_and_everything_aligned() {
        let mut archive = Archive::default();
        archive.file("/a/b/c", b"12345");
        archive.file("/a/d", b"");
        archive.link("/e", "a/d");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 512, 0);
        let mut names = Vec::new();
        let mut at = 0;
        loop {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let number = |i: usize| {
                let digits = &bytes[at + 6 + 8 * i..at + 14 + 8 * i];
                usize::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
            };
            let (size, name_size, mode) = (number(6), number(11), number(1) as u32);
            let name = String::from_utf8(bytes[at + 110..at + 109 + name_size].to_vec()).unwrap();
            let contents = (at + 110 + name_size).next_multiple_of(4);
            if name == "a/b/c" {
                assert_eq!((&bytes[contents..contents + size], mode), (&b"12345"[..], PROGRAM));
            }
            at = (contents + size).next_multiple_of(4);
            let end = name == "TRAILER!!!";
            names.push(name);
            if end {
                break;
            }
        }
        assert_eq!(names, ["a", "a/b", "a/b/c", "a/d", "e", "TRAILER!!!"]);
    }
}
