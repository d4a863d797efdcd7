//! Programs that a test makes and then runs.
//!
//! Another process writes them. Were it this one, then whatever another test's thread forks
//! in between would hold the file open for writing until its exec, and the kernel would run
//! it for nobody ('Text file busy').

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A copy of a program that everybody may run.
#[allow(dead_code)]
pub(crate) fn copied(program: &Path, to: &Path) {
    let made = Command::new("install").args(["-m", "755", "--"]).arg(program).arg(to).status();
    assert!(made.expect("install runs").success(), "{} is not copied", program.display());
}

/// A script that everybody may run.
#[allow(dead_code)]
pub(crate) fn script(text: &str, to: &Path) {
    let mut shell = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(to)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut told = shell.stdin.take().expect("piped");
    told.write_all(text.as_bytes()).expect("it reads");
    drop(told);
    assert!(shell.wait().expect("it ends").success(), "{} is not written", to.display());
}
