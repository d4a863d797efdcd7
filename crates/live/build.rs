//! Compiles the BPF programs with clang: `bpf/hints.bpf.c` into `$OUT_DIR/hints.bpf.o`.
//!
//! Clang's `-target bpf` knows nothing of this machine's own headers; the ones needed
//! come with libbpf-sys.

use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};

const SOURCE: &str = "bpf/hints.bpf.c";

/// Those tried first to last; Debian has the number in the name where several are installed.
const CLANGS: [&str; 9] = [
    "clang", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15",
    "clang-14",
];

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(variable("OUT_DIR")).join("hints.bpf.o");
    let include = variable("DEP_BPF_INCLUDE");
    let clang = clang();
    let done = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"])
        // No path of the machine that builds goes into the object.
        .arg("-fdebug-compilation-dir=.")
        .arg(format!("-ffile-prefix-map={include}=libbpf"))
        .arg(format!("-I{include}"))
        .args(["-c", SOURCE, "-o"])
        .arg(&out)
        .status();
    match done {
        Ok(status) if status.success() => {}
        Ok(status) => lack(&format!("clang could not compile {SOURCE} ({status}); see above")),
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
    eprintln!("homenode-live: {what}");
    exit(1)
}
