//! The `homenode` command: `homenode_cli` with nothing added.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    homenode_cli::run_with(&[])
}
