//! From a command line to the ELF program that QEMU can run.

use super::RecordError;
use homenode_trace::program::{HEAD_BYTES, Program, classify, machine_name};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What QEMU runs.
pub(super) struct Resolved {
    /// The ELF program.
    pub(super) path: PathBuf,
    /// Its arguments, the zeroth first.
    pub(super) args: Vec<OsString>,
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Finds `name` in `PATH`.
pub(super) fn in_path(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|d| d.join(name)).find(|p| is_executable(p))
}

/// Finds the program of a command, through scripts to their interpreters.
pub(super) fn resolve(command: &[OsString]) -> Result<Resolved, RecordError> {
    let name = command.first().filter(|n| !n.is_empty()).ok_or(RecordError::NoCommand)?;
    let searched = !name.as_bytes().contains(&b'/');
    let missing =
        || RecordError::NoProgram { program: name.to_string_lossy().into_owned(), searched };
    let mut path = if searched { in_path(name).ok_or_else(missing)? } else { PathBuf::from(name) };
    let mut args = command.to_vec();
    let mut script: Option<PathBuf> = None;
    // The kernel follows scripts of scripts four times.
    for _ in 0..5 {
        if !is_executable(&path) {
            return Err(match script {
                Some(script) => RecordError::Interpreter { path: script, interpreter: path },
                None if !path.exists() => missing(),
                None => RecordError::NotExecutable { path },
            });
        }
        let mut head = Vec::new();
        File::open(&path)
            .and_then(|f| f.take(HEAD_BYTES as u64).read_to_end(&mut head))
            .map_err(|source| RecordError::Read { path: path.clone(), source })?;
        match classify(&head) {
            Program::Native => return Ok(Resolved { path, args }),
            Program::OtherMachine { machine, bits } => {
                return Err(RecordError::WrongMachine {
                    path,
                    machine: machine_name(machine, bits),
                });
            }
            Program::NotExecutable | Program::Unknown => {
                return Err(RecordError::NotAProgram { path });
            }
            Program::Script { interpreter, argument } => {
                let interpreter = OsString::from_vec(interpreter);
                let mut new = vec![interpreter.clone()];
                new.extend(argument.map(OsString::from_vec));
                new.push(path.clone().into_os_string());
                new.extend(args.into_iter().skip(1));
                args = new;
                script = Some(std::mem::replace(&mut path, PathBuf::from(interpreter)));
            }
        }
    }
    Err(RecordError::NotAProgram { path })
}
