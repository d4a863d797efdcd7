//! What can go wrong before or while a program is recorded.

use homenode_core::units::count;
use homenode_trace::TraceError;
use std::io;
use std::path::PathBuf;

/// Why nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// No command was given.
    #[error("there is no program to record; give it after `--`")]
    NoCommand,
    /// The program is not there.
    #[error("there is no program `{program}`{}", if *.searched { " in PATH" } else { "" })]
    NoProgram {
        /// As it was given.
        program: String,
        /// Whether `PATH` was searched.
        searched: bool,
    },
    /// The file may not be executed.
    #[error("{} is not executable; `chmod +x` makes it so", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// The file is a program for another machine.
    #[error("{} is a program for {machine}; the recorder runs x86-64 programs", path.display())]
    WrongMachine {
        /// The file.
        path: PathBuf,
        /// What it is for.
        machine: String,
    },
    /// The file is no program.
    #[error("{} is neither an ELF program nor a script that names its interpreter (`#!`)", path.display())]
    NotAProgram {
        /// The file.
        path: PathBuf,
    },
    /// The script's interpreter cannot be used.
    #[error("the script {} wants the interpreter {}, which is not there or not executable", path.display(), interpreter.display())]
    Interpreter {
        /// The script.
        path: PathBuf,
        /// What its first line names.
        interpreter: PathBuf,
    },
    /// A file that has to be read could not be.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// QEMU is not there.
    #[error("qemu-x86_64 is not in PATH; install it with `apt install qemu-user`")]
    NoQemu,
    /// This processor's programs are not what the recorder runs.
    #[error("recording works on x86-64 machines; this one is {0}")]
    WrongHost(&'static str),
    /// The plugin is not there.
    #[error("the recorder's plugin is not at {}; build it with `cargo build --release -p homenode-recorder` or name it in HOMENODE_RECORDER", path.display())]
    NoPlugin {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// QEMU ended before the program began.
    #[error(
        "QEMU could not run {program} with the recorder's plugin (it ended with {status}); its own message is above"
    )]
    NotStarted {
        /// The program.
        program: String,
        /// What QEMU returned.
        status: String,
    },
    /// The machine cannot be modelled.
    #[error("the machine `{machine}` {what}")]
    Machine {
        /// Its name.
        machine: String,
        /// What is wrong with it.
        what: String,
    },
    /// A slice that holds nothing.
    #[error("the slice holds no instruction")]
    EmptySlice,
    /// A slice in time without a native run.
    #[error("a slice given in time needs a native run to relate it to")]
    SliceNeedsNative,
    /// A slice that begins after the program's end.
    #[error(
        "the program ended after {}, before its slice began at {skip}",
        count(*insns, "instruction", "instructions")
    )]
    BeforeSlice {
        /// What it ran.
        insns: u64,
        /// Where the slice was to begin.
        skip: u64,
    },
    /// Interrupted before anything was recorded.
    #[error("interrupted before the recording began")]
    Interrupted,
    /// The system refused something.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The plugin and this program do not understand each other.
    #[error(
        "the plugin sends what this homenode does not understand ({0}); build both from one version"
    )]
    Wire(String),
    /// The recording could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// For `map_err`: what was tried.
pub(super) fn failed(what: &'static str) -> impl Fn(io::Error) -> RecordError + Copy {
    move |source| RecordError::System { what, source }
}

impl RecordError {
    /// Whether the system lacks something (exit code 3), in place of a wrong input (2).
    pub fn is_lack(&self) -> bool {
        matches!(
            self,
            Self::NoQemu | Self::NoPlugin { .. } | Self::WrongHost(_) | Self::System { .. }
        )
    }
}
