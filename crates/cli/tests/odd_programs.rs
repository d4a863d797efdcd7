//! Programs with threads and children that end oddly: recorded, and replayed, and neither
//! hangs. Skipped, with the reason printed, where QEMU's user mode or a compiler is not there.

mod support {
    pub(crate) mod programs;
}

use homenode_fixtures::Folder;
use homenode_trace::{Batch, Ended, Header, Kind, Reader, Writer};
use std::fs;
use support::programs::{played, recorded, replayed};

/// Children that nobody waits for.
const FORKS: &str = r#"
    #include <unistd.h>
    int main(void) {
        for (int i = 0; i < 200; i++)
            if (fork() == 0) {
                for (volatile int j = 0; j < 1000; j++);
                _exit(0);
            }
        return 0;
    }"#;

/// Threads that still wait when `main` returns.
const WAITERS: &str = r#"
    #include <pthread.h>
    #include <unistd.h>
    static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
    static int waiting;
    static void *thread(void *x) {
        pthread_mutex_lock(&m);
        for (waiting++;;) pthread_cond_wait(&c, &m);
    }
    int main(void) {
        pthread_t t[3];
        for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, thread, 0);
        for (int all = 0; all < 3;) {
            usleep(1000);
            pthread_mutex_lock(&m);
            all = waiting;
            pthread_mutex_unlock(&m);
        }
        return 0;
    }"#;

/// A thread that computes and a main one that sleeps, both for ever.
const ENDLESS: &str = r#"
    #include <pthread.h>
    #include <unistd.h>
    static void *thread(void *x) { for (volatile long i = 0;; i++); }
    int main(void) {
        pthread_t t;
        pthread_create(&t, 0, thread, 0);
        for (;;) pause();
    }"#;

/// Another program while one thread waits for bytes that never come, and one computes.
const EXECS: &str = r#"
    #include <pthread.h>
    #include <unistd.h>
    static int p[2];
    static void *reader(void *x) { char c; return (void *)read(p[0], &c, 1); }
    static void *thread(void *x) { for (volatile long i = 0;; i++); }
    int main(int n, char **v) {
        if (n > 1) return 7;
        pthread_t t[2];
        if (pipe(p)) return 1;
        pthread_create(&t[0], 0, reader, 0);
        pthread_create(&t[1], 0, thread, 0);
        usleep(20000);
        execl("/proc/self/exe", v[0], "again", (char *)0);
        return 1;
    }"#;

/// A hundred turns of two threads, each of which waits for the other one's.
const TURNS: &str = r#"
    #include <pthread.h>
    static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
    static long turn;
    static void *thread(void *me) {
        for (int i = 0; i < 100; i++) {
            pthread_mutex_lock(&m);
            while (turn != (long)me) pthread_cond_wait(&c, &m);
            for (volatile int j = 0; j < 10000; j++);
            turn = 1 - turn;
            pthread_cond_signal(&c);
            pthread_mutex_unlock(&m);
        }
        return 0;
    }
    int main(void) {
        pthread_t t[2];
        for (long i = 0; i < 2; i++) pthread_create(&t[i], 0, thread, (void *)i);
        for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
        return 0;
    }"#;

/// A thread, or a child, that sleeps for ever, while the first one computes; then its process
/// ends, or it is killed.
const HELPED: &str = r#"
    #include <pthread.h>
    #include <signal.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void *sleeper(void *x) { for (;;) usleep(1000); }
    int main(int n, char **v) {
        pthread_t t;
        pid_t child = n > 1 ? fork() : 1;
        if (child == 0) sleeper(0);
        if (n == 1) pthread_create(&t, 0, sleeper, 0);
        for (volatile long i = 0; i < 40000000; i++);
        if (n > 1) kill(child, SIGTERM), wait(0);
        return 0;
    }"#;

/// Children without bound, none of which is waited for.
const BOMB: &str = r#"
    #include <unistd.h>
    int main(void) {
        for (;; usleep(2000))
            if (fork() == 0) {
                for (volatile int j = 0; j < 1000; j++);
                _exit(0);
            }
    }"#;

#[test]
fn children_that_nobody_waits_for() {
    let folder = Folder::new();
    let Some((header, code)) = recorded(&folder, FORKS, &["./p"]) else { return };
    assert_eq!((header.ended, header.complete, code), (Ended::Exit(0), true, 0));
    assert_eq!(header.tasks.len(), 201);
    assert!(header.tasks[1..].iter().all(|t| t.parent == Some(0) && t.totals.insns > 0));
    let time = replayed(&folder, &[]);
    assert!((0.0001..0.5).contains(&time), "{time}");
}

#[test]
fn threads_that_wait_when_main_returns() {
    let folder = Folder::new();
    let Some((header, code)) = recorded(&folder, WAITERS, &["./p"]) else { return };
    assert_eq!((header.ended, header.complete, code), (Ended::Exit(0), true, 0));
    assert_eq!(header.tasks.len(), 4);
    let time = replayed(&folder, &[]);
    assert!((0.001..0.5).contains(&time), "{time}");
}

#[test]
fn a_program_that_is_killed() {
    let folder = Folder::new();
    let shell = "./p & sleep 0.3; kill -9 $!; wait $!; exit $((${?} - 100))";
    let Some((header, code)) = recorded(&folder, ENDLESS, &["sh", "-c", shell]) else { return };
    assert_eq!((header.ended, header.complete, code), (Ended::Exit(37), true, 37));
    let time = replayed(&folder, &[]);
    assert!((0.3..1.0).contains(&time), "{time}");
    // The first process itself: the recording ends with it.
    let Some((header, code)) = recorded(&folder, ENDLESS, &["sh", "-c", "kill -9 $$"]) else {
        return;
    };
    assert_eq!((header.ended, code), (Ended::Signal(9), 137));
    let time = replayed(&folder, &[]);
    assert!(time < 0.5, "{time}");
}

/// The emulator is some ten times as slow, so who sleeps meanwhile does so ten times as often in
/// the recording. It ends when the other one ends it all the same.
#[test]
fn helpers_end_with_the_process_and_by_a_signal() {
    let folder = Folder::new();
    for command in [&["./p"][..], &["./p", "forks"]] {
        let Some((header, code)) = recorded(&folder, HELPED, command) else { return };
        assert_eq!((header.ended, code, header.tasks.len()), (Ended::Exit(0), 0, 2));
        let native = header.native.expect("native times");
        let computing = (native.user_ns + native.sys_ns) as f64 / 1e9;
        let time = replayed(&folder, &[]);
        assert!((0.5..3.0).contains(&(time / computing)), "{command:?}: {time}, {computing}");
    }
}

#[test]
fn children_without_bound_until_it_is_killed() {
    let folder = Folder::new();
    let shell = "./p & sleep 0.3; kill -9 $!; wait $!; exit $((${?} - 100))";
    let Some((header, code)) = recorded(&folder, BOMB, &["sh", "-c", shell]) else { return };
    assert_eq!((header.ended, code), (Ended::Exit(37), 37));
    assert!(header.tasks.len() > 10, "{}", header.tasks.len());
    let time = replayed(&folder, &[]);
    assert!((0.3..1.0).contains(&time), "{time}");
}

#[test]
fn another_program_while_threads_live() {
    let folder = Folder::new();
    let Some((header, code)) = recorded(&folder, EXECS, &["./p"]) else { return };
    assert_eq!((header.ended, header.complete, code), (Ended::Exit(7), true, 7));
    let time = replayed(&folder, &[]);
    assert!((0.02..0.5).contains(&time), "{time}");
}

/// Nobody ends the waits then; they last no time, or the replay says who is stuck.
#[test]
fn waits_without_what_ended_them() {
    let folder = Folder::new();
    if recorded(&folder, TURNS, &["./p"]).is_none() {
        return;
    }
    assert!(replayed(&folder, &[]) > 0.0);
    let path = folder.join("r.parquet");
    let reader = Reader::open(&path).expect("a recording");
    let mut w = Writer::create(folder.join("less.parquet")).expect("a recording");
    let (mut batch, mut waits, mut releases) = (Batch::new(), 0, 0);
    let mut batches = reader.batches();
    while batches.next_into(&mut batch).expect("rows") {
        for row in &batch {
            waits += u32::from(row.kind == Kind::Block);
            releases += u32::from(row.kind == Kind::Release);
            if row.kind != Kind::Release {
                w.push(*row).expect("a row");
            }
        }
    }
    assert!(waits > 100 && releases > 100, "{waits} waits, {releases} releases");
    w.finish(reader.header()).expect("a whole recording");
    fs::rename(folder.join("less.parquet"), &path).expect("in its place");
    let said = played(&folder, &[]);
    let notes = said["caption"]["notes"].to_string();
    assert!(notes.contains("that nobody is known to have ended, which last no time"), "{notes}");
    assert!(said["runs"][0]["round_ends_s"][0].as_f64().is_some_and(|end| end > 0.0));
}

/// What was to come after the cut nobody waits for: each task ends where its rows do.
#[test]
fn a_recording_cut_in_the_middle() {
    let folder = Folder::new();
    if recorded(&folder, TURNS, &["./p"]).is_none() {
        return;
    }
    let whole = replayed(&folder, &[]);
    fs::rename(folder.join("r.parquet"), folder.join("whole.parquet")).expect("another name");
    let reader = Reader::open(folder.join("whole.parquet")).expect("a recording");
    let header = Header { ended: Ended::Unknown, complete: false, ..reader.header().clone() };
    let mut last = 0.0;
    for quarter in 1..4 {
        let mut w = Writer::create(folder.join("r.parquet")).expect("a recording");
        let (mut batch, mut left) = (Batch::new(), reader.rows() * quarter / 4);
        let mut batches = reader.batches();
        while batches.next_into(&mut batch).expect("rows") {
            for row in batch.iter().take(usize::try_from(left).expect("few rows")) {
                w.push(*row).expect("a row");
            }
            left = left.saturating_sub(batch.len() as u64);
        }
        w.finish(&header).expect("a recording");
        let said = played(&folder, &[]);
        let text = said.to_string();
        assert!(text.contains("the recording ends before the program does"), "{text}");
        let time = said["runs"][0]["round_ends_s"][0].as_f64().expect("the end of a round");
        assert!((last..whole * 3.0).contains(&time) && time > 0.0, "{quarter}: {time}, {whole}");
        last = time / 2.0;
    }
}
