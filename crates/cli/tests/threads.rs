//! Programs with threads: recorded, and replayed as they ran. Skipped, with the reason printed,
//! where QEMU's user mode or a compiler is not there.

use homenode_fixtures::Folder;
use homenode_trace::Reader;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Two threads that compute equally much: by turns where there is an argument, else at once.
const PROGRAM: &str = r#"
    #include <pthread.h>
    static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
    static long turn, by_turns;
    static void work(void) { for (volatile int i = 0; i < 100000; i++); }
    static void *thread(void *me) {
        for (int i = 0; i < 300; i++) {
            if (by_turns) {
                pthread_mutex_lock(&m);
                while (turn != (long)me) pthread_cond_wait(&c, &m);
            }
            work();
            if (by_turns) {
                turn = 1 - turn;
                pthread_cond_signal(&c);
                pthread_mutex_unlock(&m);
            }
        }
        return 0;
    }
    int main(int n, char **v) {
        pthread_t t[2];
        by_turns = n > 1;
        for (long i = 0; i < 2; i++) pthread_create(&t[i], 0, thread, (void *)i);
        for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
        return 0;
    }"#;

fn homenode(folder: &Path, line: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    command.args(line).current_dir(folder).output().expect("homenode runs")
}

/// Time of the first round for each second of processor time that the program took natively.
fn replayed(folder: &Folder, more: &[&str]) -> f64 {
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/small.toml");
    // How busy this machine was when the program ran natively is not what is asked here.
    let line = ["replay", "r.parquet", "--machine", machine, "--columns", "off"];
    let rest = ["--for", "1ms", "--json", "--force"];
    let out = homenode(folder, &[&line[..], &rest, more].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let json: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let first = json["runs"][0]["round_ends_s"][0].as_f64().expect("the end of a round");
    let reader = Reader::open(folder.join("r.parquet")).expect("a recording");
    let native = reader.header().native.as_ref().expect("native times");
    first * 1e9 / (native.user_ns + native.sys_ns) as f64
}

/// The share in the processor time of all that is left if the two tasks that ran longest natively run
/// at once: the longer of them, and who begins them; a half where it is not known of each.
fn at_once(folder: &Path) -> f64 {
    let reader = Reader::open(folder.join("r.parquet")).expect("a recording");
    let mut each: Vec<u64> =
        reader.header().tasks.iter().map(|t| t.native_ns.iter().sum()).collect();
    each.sort_unstable();
    let all = each.iter().sum::<u64>();
    match each[..] {
        [.., second, _] if all > 0 => 1.0 - second as f64 / all as f64,
        _ => 0.5,
    }
}

#[test]
fn threads_that_take_turns_take_them_in_a_replay_too() {
    let folder = Folder::new();
    fs::write(folder.join("p.c"), PROGRAM).expect("a source file");
    let line = ["-O1", "-pthread", "-o", "p", "p.c"];
    let made = Command::new("cc").args(line).current_dir(&*folder).output();
    if !made.is_ok_and(|o| o.status.success()) {
        return println!("skipped: no C compiler");
    }
    for by_turns in [true, false] {
        let program = if by_turns { &["./p", "turns"][..] } else { &["./p"] };
        let line = ["record", "mem", "-o", "r.parquet", "--"];
        let out = homenode(&folder, &[&line, program].concat());
        let said = String::from_utf8_lossy(&out.stderr);
        if out.status.code() == Some(3) {
            return println!("skipped: {said}");
        }
        assert!(out.status.success(), "{said}");
        let all = replayed(&folder, &[]);
        // At once it takes as long as who begins them and the longer of them: half of all where they are
        // alike, but a busy machine may measure one of them longer natively.
        let at_once = at_once(&folder);
        let (least, most) = if by_turns { (0.95, 1.1) } else { (at_once - 0.05, at_once + 0.1) };
        assert!((least..most).contains(&all), "by turns: {by_turns}, on all CPUs {all}");
        let one = replayed(&folder, &["--cpus", "2"]);
        assert!((0.95..1.1).contains(&one), "by turns: {by_turns}, on one CPU {one}");
    }
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/small.toml");
    let line = ["replay", "r.parquet", "--machine", machine, "--force", "--cpus", "2-7"];
    let out = homenode(&folder, &line);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("has no CPU 4; it has 0-3"), "{said}");
}
