//! Programs that run programs, by what stands in the files.

use super::*;
use crate::task::tests::arguments;
use homenode_fixtures::Folder;
use homenode_fixtures::program::{copied, script};

/// What is done about an `execve` of this path with these arguments.
fn planned(path: &Path, args: &[&str]) -> String {
    let text = |s: &str| CString::new(s).unwrap();
    let config = Config::parse(&arguments(&Folder::new(), "skip=1")).unwrap();
    let args: Vec<CString> = args.iter().map(|a| text(a)).collect();
    let mut pointers: Vec<*const c_char> = args.iter().map(|a| a.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let path = text(&path.display().to_string());
    let at = (path.as_ptr() as u64, pointers.as_ptr() as u64);
    match plan(&config, c"/bin/itself", None, at.0, at.1) {
        Plan::Run(all) => {
            let words: Vec<&str> = all.iter().map(|w| w.to_str().unwrap()).collect();
            // Behind what the plugin is told, which is as it was told itself.
            assert_eq!((words[0], words[1]), ("/usr/bin/qemu", "-plugin"));
            assert!(words[2].starts_with("/lib/a,,b.so,folder="), "{}", words[2]);
            assert!(words[2].ends_with(",skip=1"), "{}", words[2]);
            words[3..].join(" ")
        }
        Plan::Unrecorded => "unrecorded".to_owned(),
        Plan::Leave => "left to the kernel".to_owned(),
    }
}

#[test]
fn a_program_runs_under_qemu_with_its_own_arguments() {
    let folder = Folder::new();
    let program = folder.join("program");
    copied(Path::new("/bin/true"), &program);
    let shown = program.display();
    assert_eq!(planned(&program, &["name", "a b"]), format!("-0 name {shown} a b"));
    assert_eq!(planned(&program, &[]), format!("-0 {shown} {shown}"));
    // QEMU is not what the program means by itself.
    assert_eq!(planned(Path::new("/proc/self/exe"), &[]), "left to the kernel");
}

#[test]
fn a_script_runs_its_interpreter() {
    let folder = Folder::new();
    let (program, first, second) = (folder.join("sh"), folder.join("a"), folder.join("b"));
    copied(Path::new("/bin/true"), &program);
    script(&format!("#!{} -e x\n", program.display()), &first);
    script(&format!("#!{}\n", first.display()), &second);
    let (sh, a, b) = (program.display(), first.display(), second.display());
    assert_eq!(planned(&first, &["a", "1"]), format!("-0 {sh} {sh} -e x {a} 1"));
    assert_eq!(planned(&second, &["b", "1"]), format!("-0 {sh} {sh} -e x {a} {b} 1"));
}

#[test]
fn what_qemu_can_not_run_is_left_or_told() {
    let folder = Folder::new();
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        script(text, &path);
        path
    };
    let loops = folder.join("loops");
    script(&format!("#!{}\n", loops.display()), &loops);
    for path in [file("data", "hello"), file("gone", "#!/no/such\n"), loops] {
        assert_eq!(planned(&path, &["x"]), "left to the kernel", "{}", path.display());
    }
    let readable = folder.write("readable", "#!/bin/sh\n");
    assert_eq!(planned(&readable, &["x"]), "left to the kernel");
    assert_eq!(planned(&folder, &["x"]), "left to the kernel");
}

#[test]
fn a_bad_pointer_ends_the_copy_and_not_the_program() {
    assert_eq!(string(8), None);
    assert_eq!(strings(8), None);
    assert_eq!(strings(0), Some(vec![]));
    let long = CString::new("x".repeat(1000)).unwrap();
    assert_eq!(string(long.as_ptr() as u64), Some(long));
}
