//! Compiles the BPF programs with clang: each `bpf/NAME.bpf.c` into `$OUT_DIR/NAME.bpf.o`.
//!
//! Clang's `-target bpf` knows nothing of this machine's own headers; the ones needed
//! come with libbpf-sys.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

const SOURCES: &str = "bpf";
/// The shared header of wake-ups, which a scheduler includes.
const WAKE: &str = "../wake/include";

/// Those tried first to last; Debian has the number in the name where several are installed.
const CLANGS: [&str; 9] = [
    "clang", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15",
    "clang-14",
];

fn main() {
    for watched in [SOURCES, WAKE, "build.rs"] {
        println!("cargo:rerun-if-changed={watched}");
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = clang();
    let files = fs::read_dir(SOURCES).unwrap_or_else(|e| lack(&format!("{SOURCES}: {e}")));
    for file in files.flatten() {
        let path = file.path();
        let name = file.file_name();
        if let Some(name) = name.to_str().and_then(|n| n.strip_suffix(".bpf.c")) {
            compile(&clang, &path, name);
        }
    }
}

fn compile(clang: &str, source: &Path, name: &str) {
    let out = PathBuf::from(variable("OUT_DIR")).join(format!("{name}.bpf.o"));
    let include = variable("DEP_BPF_INCLUDE");
    let done = Command::new(clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"])
        // No path of the machine that builds goes into the object.
        .arg("-fdebug-compilation-dir=.")
        .arg(format!("-ffile-prefix-map={include}=libbpf"))
        .arg(format!("-I{include}"))
        .arg(format!("-I{WAKE}"))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&out)
        .status();
    let source = source.display();
    match done {
        Ok(status) if status.success() => {}
        Ok(status) => lack(&format!("clang could not compile {source} ({status}); see above")),
        Err(error) => lack(&format!("{clang} can't be run: {error}; `make build` installs clang")),
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| lack(&format!("cargo has not set {name}")))
}

fn clang() -> String {
    if let Ok(named) = env::var("CLANG") {
        return named;
    }
    let runs = |name: &str| Command::new(name).arg("--version").output().is_ok();
    match CLANGS.into_iter().find(|name| runs(name)) {
        Some(name) => name.to_owned(),
        None => lack(
            "clang is missing, which compiles homenode's BPF programs: install the package \
             clang (apt install clang), or name another one in the variable CLANG",
        ),
    }
}

fn lack(what: &str) -> ! {
    eprintln!("homenode-bpf: {what}");
    exit(1)
}
