//! Where the workspace stands, what is in it, and how its commands are run.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::Lacks;

/// Which of the workspace's profiles something is built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// What users run and what figures are taken from.
    Release,
    /// What `ci` builds everything with.
    Ci,
}

impl Profile {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Profile::Release => "release",
            Profile::Ci => "ci",
        }
    }
}

/// The workspace, as `cargo metadata` describes it.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// Cargo's target folder.
    pub(crate) target: PathBuf,
    /// Packages, resolved dependencies included, for this host only: other
    /// platforms' crates need not be downloaded to check ours.
    pub(crate) metadata: Value,
}

impl Workspace {
    pub(crate) fn load() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().context("xtask has no parent folder")?.to_path_buf();
        let rustc = text_of(Command::new("rustc").arg("-vV"))?;
        let host = rustc
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .context("`rustc -vV` names no host")?;
        let text = text_of(Command::new(cargo()).current_dir(&root).args([
            "metadata",
            "--locked",
            "--format-version=1",
            "--filter-platform",
            host,
        ]))?;
        let metadata: Value =
            serde_json::from_str(&text).context("`cargo metadata` printed no JSON")?;
        let target = metadata["target_directory"].as_str().context("no target_directory")?;
        Ok(Self { target: PathBuf::from(target), root, metadata })
    }

    /// Packages of the workspace itself.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Value> {
        self.packages().filter(|package| package["source"].is_null())
    }

    /// Every package that a build on this host can use.
    pub(crate) fn packages(&self) -> impl Iterator<Item = &Value> {
        self.metadata["packages"].as_array().into_iter().flatten()
    }

    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new(cargo());
        command.current_dir(&self.root);
        command
    }

    /// Builds what users run, the recorder's shared library too; for CI every room. What users run has its debug
    /// lines beside it.
    ///
    /// With which features cargo compiles a dependency depends on all that it builds at once, so
    /// each other choice of packages, or one without what tests use, compiles some of them anew,
    /// and the rooms above. For CI it is always the choice of `cargo test --workspace`.
    pub(crate) fn build(&self, profile: Profile) -> Result<()> {
        let mut command = self.cargo();
        command.args(["build", "--locked", "--profile", profile.name()]);
        match profile {
            // Who wants to run it does not wait for what tests need.
            Profile::Release => command.args(["-p", "homenode-cli", "-p", "homenode-recorder"]),
            Profile::Ci => command.args(["--workspace", "--lib", "--bins", "--examples"]),
        };
        must_run(&mut command)?;
        if profile == Profile::Release {
            for name in ["homenode", "libhomenode_recorder.so"] {
                split_debug_lines(&self.target.join(profile.name()), name)?;
            }
        }
        Ok(())
    }

    /// The `homenode` command, built.
    pub(crate) fn homenode(&self, profile: Profile) -> Result<PathBuf> {
        self.build(profile)?;
        Ok(self.built(profile, "homenode"))
    }

    /// Where a program or a library is that was built.
    pub(crate) fn built(&self, profile: Profile, name: &str) -> PathBuf {
        self.target.join(profile.name()).join(name)
    }

    /// An empty or kept folder below the target folder, for what chores make.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf> {
        made(self.target.join(name))
    }
}

/// Moves a program's debug lines into `NAME.debug` beside it, to which it keeps a link:
/// debuggers, perf and the backtraces of panics follow it where the file is there, and have
/// the names of functions where it isn't.
///
/// Cargo can't do this by a profile: its split debug info keeps the lines in the program
/// where they are all that there is, and stripping drops them.
fn split_debug_lines(folder: &Path, name: &str) -> Result<()> {
    let program = folder.join(name);
    // Cargo puts the whole program there again at each build, or leaves it as it is.
    if !text_of(Command::new("readelf").arg("-SW").arg(&program))?.contains(" .debug_line ") {
        return Ok(());
    }
    let lines = format!("{name}.debug");
    must_run(
        Command::new("objcopy")
            .current_dir(folder)
            .args(["--only-keep-debug", "--compress-debug-sections", name])
            .arg(&lines),
    )?;
    // A new file in place of the old one, which is cargo's own too and may be running.
    let stripped = format!("{name}.stripped");
    must_run(
        Command::new("objcopy")
            .current_dir(folder)
            .arg("--strip-debug")
            .arg(format!("--add-gnu-debuglink={lines}"))
            .args([name, &stripped]),
    )?;
    fs::rename(folder.join(&stripped), &program)
        .with_context(|| format!("can't put {} in its place", program.display()))
}

/// The cargo that runs us, so that one build is never made by two.
fn cargo() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// Where downloads are kept between checkouts.
pub(crate) fn cache_folder() -> Result<PathBuf> {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = named("XDG_CACHE_HOME")
        .or_else(|| named("HOME").map(|home| home.join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME says where downloads are kept")?;
    made(base.join("homenode"))
}

/// A folder that is there, also where it was not.
pub(crate) fn made(folder: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&folder).with_context(|| format!("can't make {}", folder.display()))?;
    Ok(folder)
}

/// The files of a folder whose names end with a dot and `end`, in the order of their names.
pub(crate) fn files(folder: &Path, end: &str) -> Result<Vec<PathBuf>> {
    let unread = || format!("can't read {}", folder.display());
    let entries = fs::read_dir(folder).with_context(unread)?.map(|entry| Ok(entry?.path()));
    let mut paths: Vec<PathBuf> = entries.collect::<Result<_>>().with_context(unread)?;
    paths.retain(|path| path.extension().is_some_and(|ext| ext == end));
    paths.sort();
    Ok(paths)
}

/// The command as a user would type it; `cargo` without the folder it is in.
pub(crate) fn typed(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program =
        if program.ends_with("cargo") { OsStr::new("cargo") } else { program.as_os_str() };
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| quote(&word.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Runs a command with our own output; an error names it.
pub(crate) fn must_run(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().map_err(|e| not_run(command, e))?;
    if !status.success() {
        bail!("`{}` failed: {status}", typed(command));
    }
    Ok(())
}

/// Runs a command and returns what it printed; its errors are in ours.
pub(crate) fn text_of(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| not_run(command, e))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed: {}\n{}", typed(command), output.status, last_lines(&words, 20));
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` printed no UTF-8", typed(command)))
}

/// A program that isn't there is something the system lacks.
pub(crate) fn not_run(command: &Command, error: std::io::Error) -> anyhow::Error {
    let program = command.get_program().to_string_lossy();
    if error.kind() == std::io::ErrorKind::NotFound {
        anyhow::Error::new(Lacks(format!(
            "`{program}` is not here: `make install-deps` installs it"
        )))
    } else {
        anyhow::Error::new(error).context(format!("can't run `{program}`"))
    }
}

fn last_lines(text: &str, n: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(n)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_so_that_a_shell_takes_them() {
        let mut command = Command::new("sqlite3");
        command.args(["-batch", ":memory:", ".read a b.sql", "it's"]);
        assert_eq!(typed(&command), r"sqlite3 -batch :memory: '.read a b.sql' 'it'\''s'");
        assert_eq!(typed(Command::new("/opt/bin/cargo").arg("fmt")), "cargo fmt");
    }

    /// On a program of C that this system's compiler makes.
    #[test]
    fn debug_lines_go_beside_the_program() {
        let folder = env::temp_dir().join(format!("xtask-split-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("p.c"), "int main(void) { return 7; }\n").unwrap();
        must_run(Command::new("cc").current_dir(&folder).args(["-g", "-o", "p", "p.c"])).unwrap();
        let sections = |name: &str| {
            text_of(Command::new("readelf").current_dir(&folder).args(["-SW", name])).unwrap()
        };
        assert!(sections("p").contains(" .debug_line "));
        let mut seen = Vec::new();
        // The second time there is nothing to be done, and nothing is spoiled.
        for _ in 0..2 {
            split_debug_lines(&folder, "p").unwrap();
            let both = [sections("p"), sections("p.debug")];
            seen.push(
                both.map(|s| {
                    [".debug_line ", ".gnu_debuglink ", ".symtab "].map(|w| s.contains(w))
                }),
            );
        }
        let code = Command::new(folder.join("p")).status().unwrap().code();
        let left = fs::read_dir(&folder).unwrap().count();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(seen, [[[false, true, true], [true, false, true]]; 2]);
        assert_eq!((code, left), (Some(7), 3));
    }

    #[test]
    fn a_missing_program_is_something_the_system_lacks() {
        let error = must_run(&mut Command::new("no-such-program-anywhere")).unwrap_err();
        assert!(error.is::<Lacks>(), "{error:#}");
    }
}
