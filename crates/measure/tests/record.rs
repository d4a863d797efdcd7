//! Real programs, recorded. Skipped, with the reason printed, where QEMU's user mode
//! or a compiler is not there.

use homenode_core::costs::{Constant, Costs};
use homenode_core::topology::{Cache, Hardware};
use homenode_core::units::Bytes;
use homenode_fixtures::{Folder, program};
use homenode_measure::record::{Mark, Options, Progress, RecordError, Summary, natively, record};
use homenode_trace::waits::{After, Block, Found, Points, Release};
use homenode_trace::{Batch, Ended, Header, Kind, Reader, Row};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

fn compiled(folder: &Folder, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let (c, out) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&c, source).expect("a source file");
    let made = Command::new("cc").args(["-O1", "-o"]).arg(&out).arg(&c).args(flags).output();
    if made.is_ok_and(|o| o.status.success()) {
        return Some(out);
    }
    println!("skipped: no C compiler that makes this kind of program");
    None
}

/// The plugin that the environment names, or one built with the tests' own profile; `None`
/// without QEMU.
fn plugin() -> Option<PathBuf> {
    static PLUGIN: OnceLock<Option<PathBuf>> = OnceLock::new();
    PLUGIN
        .get_or_init(|| {
            if Command::new("qemu-x86_64").arg("--version").output().is_err() {
                println!("skipped: qemu-x86_64 is not in PATH (Debian: qemu-user)");
                return None;
            }
            if let Some(built) = std::env::var_os("HOMENODE_RECORDER") {
                return Some(PathBuf::from(built));
            }
            // Tests lie in deps, the plugin above, in a folder that has its profile's name.
            let own = std::env::current_exe().expect("this test");
            let folder = own.parent()?.parent()?.to_owned();
            let profile = folder.file_name()?.to_str().filter(|name| *name != "debug");
            let built = Command::new(env!("CARGO"))
                .args(["build", "--profile", profile.unwrap_or("dev"), "-p", "homenode-recorder"])
                .arg("--target-dir")
                .arg(folder.parent()?)
                .output()
                .expect("cargo");
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            Some(folder.join("libhomenode_recorder.so"))
        })
        .clone()
}

fn machine() -> Hardware {
    let cache = |level, size, ways| Cache {
        level,
        size: Bytes(size),
        ways,
        line: 64,
        shared_by: 1,
        latency: Constant::assumed(1000, "a test"),
    };
    Hardware {
        name: "a test".to_owned(),
        about: String::new(),
        nodes: Vec::new(),
        cpus: Vec::new(),
        caches: vec![cache(1, 32 << 10, 8), cache(2, 1 << 20, 8), cache(3, 4 << 20, 16)],
        distances: Vec::new(),
        links: Vec::new(),
        idle_states: Vec::new(),
        curves: Vec::new(),
        loaded: Vec::new(),
        defaults: None,
        costs: Costs::default(),
    }
}

fn options(folder: &Folder, plugin: &Path, command: &[&str]) -> Options {
    let command = command.iter().map(OsString::from).collect();
    let mut o = Options::new(command, folder.join("r.parquet"), machine());
    o.plugin = Some(plugin.to_owned());
    o.native_runs = 1;
    o
}

fn rows(path: &Path) -> (Header, Vec<Row>) {
    let reader = Reader::open(path).expect("a recording");
    let mut all = Vec::new();
    let mut batch = Batch::default();
    let mut batches = reader.batches();
    while batches.next_into(&mut batch).expect("rows") {
        all.extend(batch.iter());
    }
    (reader.header().clone(), all)
}

/// What holds for every recording.
fn check(path: &Path, s: &Summary) -> (Header, Vec<Row>) {
    let (h, rows) = rows(path);
    assert_eq!(rows.len() as u64, s.rows);
    assert_eq!(
        (h.complete, &h.ended, h.totals),
        (s.header.complete, &s.header.ended, s.header.totals)
    );
    assert_eq!(fs::metadata(path).expect("the file").len(), s.bytes);
    assert!(!path.with_extension("parquet.partial").exists());
    let mut born = vec![false; h.tasks.len()];
    let mut dead = vec![false; h.tasks.len()];
    born[0] = true;
    let mut insns = vec![0u64; h.tasks.len()];
    for r in &rows {
        let t = r.task as usize;
        assert!(born[t] && !dead[t], "{r:?}");
        insns[t] += r.insns;
        match r.kind {
            Kind::Fork | Kind::Thread => {
                assert_eq!(h.tasks[r.arg as usize].parent, Some(r.task));
                assert_eq!(h.tasks[r.arg as usize].thread, r.kind == Kind::Thread);
                assert!(!std::mem::replace(&mut born[r.arg as usize], true));
            }
            Kind::Exit => dead[t] = true,
            Kind::Wait if r.arg != u64::MAX => assert!(dead[r.arg as usize]),
            Kind::Access => assert!(r.page > 0 && r.page < 1 << 36 && r.pages == 1 && r.arg != 0),
            _ => {}
        }
    }
    assert!(born.iter().all(|&b| b) && dead.iter().all(|&d| d), "{:?}", h.tasks);
    if s.header.slice.skip_insns == 0 && s.header.slice.for_insns.is_none() {
        let accesses = rows.iter().filter(|r| r.kind == Kind::Access);
        let (reads, writes) =
            accesses.fold((0, 0), |a, r| (a.0 + u64::from(r.reads), a.1 + u64::from(r.writes)));
        if h.complete {
            assert_eq!((reads, writes), (h.totals.read_misses, h.totals.write_misses));
            assert_eq!(insns.iter().sum::<u64>(), h.totals.insns);
        }
    }
    (h, rows)
}

fn recorded(o: &Options) -> (Summary, Header, Vec<Row>) {
    let s = record(o, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
    let (h, rows) = check(&o.output, &s);
    (s, h, rows)
}

#[test]
fn a_small_dynamic_program() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let (s, h, rows) = recorded(&options(&folder, &plugin, &["/bin/true"]));
    assert_eq!(
        (s.header.ended, s.header.complete, s.header.tasks.len()),
        (Ended::Exit(0), true, 1)
    );
    assert!((50_000..10_000_000).contains(&h.totals.insns), "{:?}", h.totals);
    assert!(
        rows.iter().any(|r| r.kind == Kind::Map) && rows.iter().any(|r| r.kind == Kind::Protect)
    );
    assert_eq!(h.native.as_ref().map(|n| n.runs), Some(1));
    assert!(h.tasks[0].name.ends_with("true"));
    let distinct: std::collections::BTreeSet<u64> =
        rows.iter().filter(|r| r.kind == Kind::Access).map(|r| r.page).collect();
    assert_eq!(distinct.len() as u64, h.pages_touched);
}

#[test]
fn a_pipeline_with_its_children_and_a_script() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let script = folder.join("work.sh");
    let out = folder.join("out");
    let text =
        format!("#!/bin/sh\nseq 300 | sort -r | uniq > {}\n(exit 7)\nexit 3\n", out.display());
    program::script(&text, &script);
    let (s, h, rows) = recorded(&options(&folder, &plugin, &[script.to_str().expect("a name")]));
    assert_eq!((s.header.ended, s.header.complete), (Ended::Exit(3), true));
    let names: Vec<&str> = h.tasks.iter().filter_map(|t| t.name.rsplit('/').next()).collect();
    for program in ["seq", "sort", "uniq"] {
        assert!(names.contains(&program), "{names:?}");
    }
    assert_eq!(fs::read_to_string(&out).expect("its output").lines().count(), 300);
    let execs = rows.iter().filter(|r| r.kind == Kind::Exec).count();
    let waits: Vec<u64> = rows.iter().filter(|r| r.kind == Kind::Wait).map(|r| r.arg).collect();
    assert!(execs >= 3, "{execs}");
    assert!(waits.len() >= 3 && !waits.contains(&u64::MAX), "{waits:?}");
    assert!(rows.iter().any(|r| r.kind == Kind::Exit && r.arg == 7));
    assert!(rows.iter().any(|r| r.kind == Kind::Exit && r.task == 0 && r.arg == 3));
}

/// Who waited, for whom, by what.
type By = BTreeMap<(u32, u32, &'static str), u32>;

/// Whose waits and ends were ended by whose acts, how often; how all were; and what was waited
/// for time, in nanoseconds.
fn ended(h: &Header, rows: &[Row]) -> (By, Found, Vec<(&'static str, u64)>) {
    let mut points = Points::new(h);
    let is_point = |r: &&Row| points.row(r).expect("an order").is_some();
    let rows: Vec<&Row> = rows.iter().filter(is_point).collect();
    let (after, found) = points.resolve();
    let (mut ended, mut times) = (BTreeMap::new(), Vec::new());
    for (row, after) in rows.iter().zip(after) {
        let what = match row.kind {
            Kind::Block => Block::ALL[row.reads as usize].name(),
            Kind::Release if row.reads == Release::Word as u32 => "word",
            Kind::Exit => "exit",
            _ => continue,
        };
        match after {
            After::Point(p) | After::Turn(p) => {
                *ended.entry((row.task, rows[p as usize].task, what)).or_insert(0) += 1;
            }
            After::Time(ns) => times.push((what, ns)),
            After::Nothing
            | After::Until(..)
            | After::Lock(..)
            | After::Meet(_)
            | After::Post(..)
            | After::Broadcast(..)
            | After::Take(..)
            | After::Due(..) => {}
        }
    }
    (ended, found, times)
}

/// Two threads take turns 200 times; a child sends 200 bytes one by one through a pipe.
const WAITS: &str = r#"
    #include <pthread.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
    static long turn;
    static void work(void) { for (volatile int i = 0; i < 20000; i++); }
    static void *thread(void *me) {
        for (int i = 0; i < 200; i++) {
            pthread_mutex_lock(&m);
            while (turn != (long)me) pthread_cond_wait(&c, &m);
            work();
            turn = 1 - turn;
            pthread_cond_signal(&c);
            pthread_mutex_unlock(&m);
        }
        return 0;
    }
    int main(void) {
        int p[2], n = 0; char x;
        if (pipe(p)) return 1;
        if (fork() == 0) {
            for (int i = 0; i < 200; i++) { work(); if (write(p[1], "x", 1) != 1) return 1; }
            return 0;
        }
        close(p[1]);
        while (read(p[0], &x, 1) == 1) n++;
        wait(0);
        pthread_t t[2];
        for (long i = 0; i < 2; i++) pthread_create(&t[i], 0, thread, (void *)i);
        for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
        return n != 200;
    }"#;

#[test]
fn who_waits_for_whom_is_in_the_recording() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let Some(program) = compiled(&folder, "waits", WAITS, &["-pthread"]) else { return };
    let (s, h, rows) = recorded(&options(&folder, &plugin, &[program.to_str().expect("a name")]));
    assert_eq!((s.header.ended, h.tasks.len()), (Ended::Exit(0), 4));
    let (ended, found, _) = ended(&h, &rows);
    assert_eq!((found.unknown, found.outside), (0, (0, 0)), "{found:?}");
    // Tasks: the program, its child, the two threads.
    assert_eq!(ended.get(&(0, 1, "bytes")), Some(&200), "{ended:?}");
    assert_eq!(ended.get(&(0, 1, "end")), Some(&1), "{ended:?}");
    let times = |key| ended.get(&key).copied().unwrap_or(0);
    let turns = |one, other| times((one, other, "futex"));
    // Who has its turn already when it has got the lock does not wait for it.
    assert!(turns(2, 3) > 20 && turns(3, 2) > 20, "{ended:?}");
    assert!(found.locked >= 400, "{found:?}");
    let joins = |other| times((0, other, "futex")) + times((0, other, "cleared"));
    assert_eq!((joins(2), joins(3)), (1, 1), "{ended:?}");
}

/// A child waits for a signal and its parent for the child's end by one; a second child is
/// killed; then a timer runs for 0.2 s.
const SIGNALS: &str = r#"
    #include <signal.h>
    #include <sys/time.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static volatile sig_atomic_t ended, alarms;
    static void on(int s) { if (s == SIGALRM) alarms++; else ended++; }
    static void work(void) { for (volatile int i = 0; i < 200000; i++); }
    int main(void) {
        struct sigaction a = { .sa_handler = on };
        sigset_t one, held, old;
        int s, n, status;
        sigaction(SIGCHLD, &a, 0);
        sigaction(SIGALRM, &a, 0);
        sigemptyset(&one);
        sigaddset(&one, SIGUSR1);
        held = one;
        sigaddset(&held, SIGCHLD);
        sigaddset(&held, SIGALRM);
        sigprocmask(SIG_BLOCK, &held, &old);
        pid_t first = fork();
        if (first == 0) {
            n = sigwait(&one, &s);
            work();
            return n || s != SIGUSR1;
        }
        work();
        kill(first, SIGUSR1);
        while (!ended) sigsuspend(&old);
        siginfo_t info;
        if (waitid(P_PID, first, &info, WEXITED) || info.si_pid != first || info.si_status) return 1;
        pid_t second = fork();
        if (second == 0) for (;;) pause();
        work();
        kill(second, SIGKILL);
        while (ended < 2) sigsuspend(&old);
        if (waitpid(second, &status, 0) != second || !WIFSIGNALED(status)) return 2;
        struct itimerval t = { .it_value = { 0, 200000 } };
        setitimer(ITIMER_REAL, &t, 0);
        work();
        while (!alarms) sigsuspend(&old);
        return 0;
    }"#;

#[test]
fn signals_release_those_who_wait_for_them() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let Some(program) = compiled(&folder, "signals", SIGNALS, &[]) else { return };
    let (s, h, rows) = recorded(&options(&folder, &plugin, &[program.to_str().expect("a name")]));
    assert_eq!((s.header.ended, h.tasks.len()), (Ended::Exit(0), 3));
    let (ended, found, times) = ended(&h, &rows);
    let expected =
        [((0, 1, "signal"), 1), ((0, 2, "signal"), 1), ((1, 0, "signal"), 1), ((2, 0, "exit"), 1)];
    assert_eq!(ended, expected.into(), "{found:?}");
    assert_eq!((found.unknown, found.outside), (0, (0, 0)), "{found:?}");
    // One child is waited for by `waitid`, the other by `wait4`.
    let waits = rows.iter().filter(|r| r.kind == Kind::Wait).map(|r| (r.task, r.arg));
    assert_eq!(waits.collect::<Vec<_>>(), [(0, 1), (0, 2)]);
    // What the program computes meanwhile takes some of the time.
    let [("alarm", ns)] = times[..] else { panic!("{times:?}") };
    assert!((150_000_000..200_000_000).contains(&ns), "{ns}");
}

/// Two children that find a file locked by their parent, one by `flock` and one by `fcntl`; the
/// parent gives the one back, and closes the other's descriptor. Then a child has locked a
/// file and ends, and its parent, which did not wait for it at the lock, comes after that.
const LOCKS: &str = r#"
    #include <fcntl.h>
    #include <stdlib.h>
    #include <sys/file.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void work(void) { for (volatile int i = 0; i < 200000; i++); }
    static int range(int f, int how) {
        struct flock l = { .l_type = how, .l_start = 10, .l_len = 5 };
        return fcntl(f, F_SETLKW, &l);
    }
    int main(int n, char **v) {
        int p[2]; char c;
        int f = open(v[1], O_RDWR | O_CREAT, 0600), g = open(v[2], O_RDWR | O_CREAT, 0600);
        if (pipe(p) || flock(f, LOCK_EX) || range(g, F_WRLCK)) return 1;
        if (fork() == 0) {
            f = open(v[1], O_RDWR);
            return flock(f, LOCK_EX) || flock(f, LOCK_UN);
        }
        if (fork() == 0) return range(g, F_RDLCK);
        usleep(300000);
        work();
        flock(f, LOCK_UN);
        work();
        close(g);
        wait(0);
        wait(0);
        if (fork() == 0) {
            f = open(v[1], O_RDWR);
            if (flock(f, LOCK_EX) || write(p[1], "x", 1) != 1) return 1;
            work();
            return 0;
        }
        if (read(p[0], &c, 1) != 1) return 1;
        usleep(300000);
        return flock(f, LOCK_EX);
    }"#;

#[test]
fn who_locks_a_file_waits_for_who_had_it() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let Some(program) = compiled(&folder, "locks", LOCKS, &[]) else { return };
    let [f, g] = ["f", "g"].map(|name| folder.join(name));
    let command = [&program, &f, &g].map(|path| path.to_str().expect("a name"));
    let (s, h, rows) = recorded(&options(&folder, &plugin, &command));
    assert_eq!((s.header.ended, h.tasks.len()), (Ended::Exit(0), 4));
    let (ended, found, _) = ended(&h, &rows);
    let locks = |waits: u32, by: u32| ended.get(&(waits, by, "lock")).copied();
    let all = [locks(1, 0), locks(2, 0), locks(0, 3)];
    assert_eq!(all, [Some(1); 3], "{ended:?} {found:?}");
    assert_eq!(found.unknown, 0, "{found:?}");
}

/// A child connects twice, to a local address and to one of the internet, and asks 20 times
/// each; it writes before its parent has accepted.
const SOCKETS: &str = r#"
    #include <netinet/in.h>
    #include <poll.h>
    #include <string.h>
    #include <sys/socket.h>
    #include <sys/un.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void work(void) { for (volatile int i = 0; i < 20000; i++); }
    static int ask(int s) {
        char c = 'x';
        for (int i = 0; i < 20; i++) {
            work();
            if (write(s, &c, 1) != 1 || read(s, &c, 1) != 1) return 1;
        }
        close(s);
        return 0;
    }
    static int answer(int l) {
        struct pollfd p = { l, POLLIN, 0 };
        char c;
        if (poll(&p, 1, -1) != 1) return 1;
        int s = accept(l, 0, 0);
        while (read(s, &c, 1) == 1) { work(); if (write(s, &c, 1) != 1) return 1; }
        return 0;
    }
    int main(int n, char **v) {
        struct sockaddr_un a = { AF_UNIX };
        struct sockaddr_in b = { AF_INET, 0, { htonl(INADDR_LOOPBACK) } };
        socklen_t len = sizeof b;
        int l = socket(AF_UNIX, SOCK_STREAM, 0), m = socket(AF_INET, SOCK_STREAM, 0);
        strcpy(a.sun_path, v[1]);
        unlink(v[1]);
        if (bind(l, (void *)&a, sizeof a) || listen(l, 5)) return 1;
        if (bind(m, (void *)&b, sizeof b) || listen(m, 5)) return 2;
        if (getsockname(m, (void *)&b, &len)) return 3;
        if (fork() == 0) {
            int s = socket(AF_UNIX, SOCK_STREAM, 0);
            work();
            if (connect(s, (void *)&a, sizeof a) || ask(s)) return 1;
            s = socket(AF_INET, SOCK_STREAM, 0);
            return connect(s, (void *)&b, sizeof b) || ask(s);
        }
        usleep(100000);
        if (answer(l) || answer(m)) return 4;
        wait(0);
        return 0;
    }"#;

#[test]
fn sockets_that_connect_are_waited_for_by_who_accepts_them() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let Some(program) = compiled(&folder, "sockets", SOCKETS, &[]) else { return };
    let socket = folder.join("s");
    let command = [&program, &socket].map(|path| path.to_str().expect("a name"));
    let (s, h, rows) = recorded(&options(&folder, &plugin, &command));
    assert_eq!((s.header.ended, h.tasks.len()), (Ended::Exit(0), 2));
    let (ended, found, _) = ended(&h, &rows);
    let expected = [
        ((0, 1, "accept"), 2),
        ((0, 1, "bytes"), 40),
        ((0, 1, "end"), 2),
        ((0, 1, "ready"), 2),
        ((1, 0, "bytes"), 40),
    ];
    assert_eq!(ended, expected.into(), "{found:?}");
    assert_eq!((found.unknown, found.outside), (0, (0, 0)), "{found:?}");
}

/// A child reads slowly from a socket of little room, whose writer waits in its writes first and
/// looks for room by poll then. Another writes bytes that its parent moves on to a third. A
/// fourth connects six times where one may wait to be accepted.
const ROOM: &str = r#"
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <poll.h>
    #include <string.h>
    #include <sys/socket.h>
    #include <sys/un.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void work(void) { for (volatile int i = 0; i < 20000; i++); }
    static char text[1024];
    int main(int n, char **v) {
        int s[2], small = 4096;
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, s)) return 1;
        if (setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small)) return 1;
        if (fork() == 0) {
            close(s[0]);
            while (read(s[1], text, 512) > 0) work();
            return 0;
        }
        close(s[1]);
        for (int i = 0; i < 40; i++) if (write(s[0], text, 1024) != 1024) return 2;
        if (fcntl(s[0], F_SETFL, O_NONBLOCK)) return 3;
        for (int i = 0; i < 40;) {
            struct pollfd p = {s[0], POLLOUT, 0};
            if (write(s[0], text, 1024) > 0) i++;
            else if (poll(&p, 1, -1) != 1) return 4;
        }
        close(s[0]);
        wait(0);

        int a[2], b[2], moved = 0, m;
        if (pipe(a) || pipe(b)) return 5;
        if (fork() == 0) {
            for (int i = 0; i < 20; i++) { work(); if (write(a[1], "x", 1) != 1) return 1; }
            return 0;
        }
        close(a[1]);
        if (fork() == 0) {
            close(b[1]);
            while (read(b[0], text, 1) > 0);
            return 0;
        }
        while ((m = splice(a[0], 0, b[1], 0, 100, 0)) > 0) moved += m;
        if (moved != 20) return 6;
        close(b[1]);
        wait(0); wait(0);

        struct sockaddr_un at = {AF_UNIX, ""};
        strncpy(at.sun_path, v[1], sizeof at.sun_path - 1);
        int l = socket(AF_UNIX, SOCK_STREAM, 0);
        unlink(v[1]);
        if (bind(l, (void *)&at, sizeof at) || listen(l, 0)) return 7;
        if (fork() == 0) {
            for (int i = 0; i < 6; i++)
                if (connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&at, sizeof at)) return 1;
            return 0;
        }
        for (int i = 0; i < 6; i++) { work(); if (accept(l, 0, 0) < 0) return 8; }
        return wait(&m) < 0 || m;
    }"#;

#[test]
fn who_finds_no_room_waits_for_who_makes_some() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let Some(program) = compiled(&folder, "room", ROOM, &[]) else { return };
    let socket = folder.join("s");
    let command = [&program, &socket].map(|path| path.to_str().expect("a name"));
    let (s, h, rows) = recorded(&options(&folder, &plugin, &command));
    assert_eq!((s.header.ended, h.tasks.len()), (Ended::Exit(0), 5));
    let (ended, found, _) = ended(&h, &rows);
    let times = |of| ended.get(&of).copied().unwrap_or(0);
    // A socket of 4,096 bytes holds four of these writes at most, with what the kernel adds.
    assert!(times((0, 1, "writable")) >= 10, "{ended:?} {found:?}");
    assert!((1..=20).contains(&times((0, 2, "bytes"))), "{ended:?}");
    assert_eq!(times((3, 0, "bytes")), 20, "{ended:?}");
    // The first finds room. Who has waited may return before who accepted another.
    assert!((1..=5).contains(&times((4, 0, "queue"))), "{ended:?}");
    assert_eq!((found.unknown, found.outside), (0, (0, 0)), "{found:?}");
}

/// Four children, each of which has the writing end of a pipe that nobody writes to, and computes
/// before that is closed: by its end, by `close_range`, by another program; and one that
/// writes five bytes and is killed while it computes. They compute for long enough that their
/// parent has closed its own end before, be the machine busy.
const CLOSES: &str = r#"
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <signal.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void work(void) { for (volatile int i = 0; i < 1000000; i++); }
    int main(int n, char **v) {
        if (n > 1) { work(); return 0; }
        for (int how = 0; how < 3; how++) {
            int p[2]; char c;
            if (pipe2(p, how == 2 ? O_CLOEXEC : 0)) return 1;
            pid_t child = fork();
            if (child == 0) {
                work();
                if (how == 1 && syscall(SYS_close_range, 3, ~0U, 0)) return 9;
                if (how == 1) work();
                if (how == 2) execl("/proc/self/exe", v[0], "again", (char *)0);
                return 0;
            }
            close(p[1]);
            if (read(p[0], &c, 1)) return 2;
            close(p[0]);
            int status;
            if (waitpid(child, &status, 0) != child || status) return 3;
        }
        int p[2]; char c;
        if (pipe(p)) return 1;
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < 5; i++) { work(); if (write(p[1], "x", 1) != 1) return 1; }
            for (;;) work();
        }
        for (int i = 0; i < 5; i++) if (read(p[0], &c, 1) != 1) return 4;
        kill(child, SIGKILL);
        return waitpid(child, 0, 0) != child;
    }"#;

#[test]
fn who_has_a_pipe_closes_it_without_a_word_too() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let Some(program) = compiled(&folder, "closes", CLOSES, &[]) else { return };
    let (s, h, rows) = recorded(&options(&folder, &plugin, &[program.to_str().expect("a name")]));
    if s.header.ended == Ended::Exit(3) {
        return println!("skipped: this system has no close_range");
    }
    assert_eq!((s.header.ended, h.tasks.len()), (Ended::Exit(0), 5));
    let (ended, found, times) = ended(&h, &rows);
    let expected = [
        ((0, 1, "end"), 1),
        ((0, 2, "end"), 1),
        ((0, 3, "end"), 1),
        ((0, 4, "bytes"), 5),
        ((4, 0, "exit"), 1),
    ];
    assert_eq!(ended, expected.into(), "{found:?} {times:?}");
    assert_eq!((found.unknown, found.outside), (0, (0, 0)), "{found:?}");
    // The second child computes on when it has closed, and the third runs another program.
    let order = |n: usize| rows.iter().filter(move |r| r.task == n as u32 && r.kind == Kind::Exit);
    let end = |n| order(n).next().expect("an end").page;
    let closed = |n: u32| {
        let closes = rows.iter().filter(|r| r.task == n && r.kind == Kind::Release);
        closes.filter(|r| r.reads == Release::Close as u32).map(|r| r.page).min()
    };
    assert!((1..=3).all(|n| closed(n).is_some_and(|c| c < end(n as usize))));
    // Only the end of the killed one has no number.
    assert_eq!([0, 1, 2, 3, 4].map(|n| end(n) > 0), [true, true, true, true, false]);
}

/// A child computes until its parent's signal has come, which the parent sends late.
const HANDLED: &str = r#"
    #include <signal.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static volatile sig_atomic_t come;
    static void on(int s) { come++; }
    static void work(void) { for (volatile int i = 0; i < 1000; i++); }
    int main(void) {
        signal(SIGUSR1, on);
        pid_t child = fork();
        if (child == 0) {
            while (!come) work();
            raise(SIGUSR1);
            return come != 2;
        }
        usleep(100000);
        kill(child, SIGUSR1);
        int status;
        return waitpid(child, &status, 0) != child || status;
    }"#;

#[test]
fn a_handler_that_runs_while_its_task_computes_comes_after_its_signal() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let Some(program) = compiled(&folder, "handled", HANDLED, &[]) else { return };
    let (s, h, rows) = recorded(&options(&folder, &plugin, &[program.to_str().expect("a name")]));
    assert_eq!((s.header.ended, h.tasks.len()), (Ended::Exit(0), 2));
    let (ended, found, _) = ended(&h, &rows);
    // The one that it has sent itself is waited for by nobody.
    assert_eq!(ended, [((1, 0, "handled"), 1)].into(), "{found:?}");
    assert_eq!((found.unknown, found.outside), (0, (0, 0)), "{found:?}");
}

/// The thread waits for the lock once; then it has ended when it is joined, and has given the
/// lock back when the program takes it.
const WITHOUT_WAITING: &str = r#"
    #include <pthread.h>
    #include <unistd.h>
    static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    static void *thread(void *none) {
        pthread_mutex_lock(&m);
        pthread_mutex_unlock(&m);
        return none;
    }
    int main(void) {
        pthread_t t;
        pthread_mutex_lock(&m);
        pthread_create(&t, 0, thread, 0);
        usleep(300000);
        pthread_mutex_unlock(&m);
        usleep(300000);
        pthread_mutex_lock(&m);
        pthread_mutex_unlock(&m);
        pthread_join(t, 0);
        return 0;
    }"#;

#[test]
fn who_does_not_wait_depends_on_the_other_all_the_same() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let Some(program) = compiled(&folder, "w", WITHOUT_WAITING, &["-pthread"]) else { return };
    let (_, h, rows) = recorded(&options(&folder, &plugin, &[program.to_str().expect("a name")]));
    let mut points = Points::new(&h);
    let numbers: Vec<_> = rows.iter().map(|r| points.row(r).expect("an order")).collect();
    let (after, found) = points.resolve();
    let of = |number: u32| rows.iter().zip(&numbers).find(|(_, n)| **n == Some(number));
    let mut taken = Vec::new();
    for (row, number) in rows.iter().zip(&numbers) {
        let Some(number) = number else { continue };
        let what = |kind, of: u32| match kind {
            Kind::Block => Block::ALL[of as usize].name(),
            Kind::Release => Release::ALL[of as usize].name(),
            _ => "exit",
        };
        match after[*number as usize] {
            After::Point(p) | After::Turn(p) if row.task == 0 => {
                let (by, _) = of(p).expect("a point");
                assert_eq!(by.task, 1);
                taken.push((0, what(row.kind, row.reads), what(by.kind, by.reads)));
            }
            After::Lock(lock, until) => {
                assert_eq!((lock, of(until).expect("a point").0.task), (0, row.task));
                taken.push((row.task, what(row.kind, row.reads), "lock"));
            }
            _ => {}
        }
    }
    taken.sort_unstable();
    let all = [(0, "cleared", "exit"), (0, "word", "lock"), (1, "word", "lock")];
    assert_eq!(taken, all, "{found:?}");
    // The time of both is known natively.
    assert!(h.tasks.iter().all(|t| t.native_ns.len() == 1), "{:?}", h.tasks);
}

/// Children, one after another, that end while threads of theirs come out of sleeps.
const ENDS: &str = r#"
    #include <pthread.h>
    #include <sys/wait.h>
    #include <time.h>
    #include <unistd.h>
    static void *sleeper(void *x) {
        for (struct timespec t = { 0, 1 };;) nanosleep(&t, 0);
    }
    int main(void) {
        for (int i = 0; i < 40; i++) {
            pthread_t t;
            if (fork() == 0) {
                for (int k = 0; k < 6; k++) pthread_create(&t, 0, sleeper, 0);
                usleep(1000);
                return 0;
            }
            wait(0);
        }
        return 0;
    }"#;

/// Who ends a process sends what its threads have, and these are not stopped in a call: once
/// both wrote to one frame, and a task's order went back.
#[test]
fn threads_come_out_of_calls_while_their_process_ends() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let Some(program) = compiled(&folder, "ends", ENDS, &["-pthread"]) else { return };
    let mut o = options(&folder, &plugin, &[program.to_str().expect("a name")]);
    o.native_runs = 0;
    let (s, h, rows) = recorded(&o);
    assert_eq!((s.header.ended, s.header.lost_frames), (Ended::Exit(0), 0));
    assert!(h.tasks.len() > 40 * 6, "{}", h.tasks.len());
    // `ended` sees to it that the order of each task is one.
    let (_, found, _) = ended(&h, &rows);
    assert!(found.waits > 40 * 6, "{found:?}");
}

#[test]
fn a_closed_descriptor_does_not_end_the_recording() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let source = r"
        #include <fcntl.h>
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        int main(int c, char **v) {
            for (int i = 3; i < 1024; i++) close(i);
            int f = open(v[1], O_RDWR | O_CREAT, 0600);
            for (int i = 3; i < 1024; i++) if (i != f) dup2(f, i);
            char *p = malloc(8 << 20);
            for (int k = 0; k < 8; k++) memset(p, k, 8 << 20);
            if (fork() == 0) return p[5] != 7;
            return lseek(f, 0, SEEK_END) != 0;
        }";
    let Some(program) = compiled(&folder, "closed", source, &[]) else { return };
    let target = folder.join("target");
    let (s, h, _) = recorded(&options(
        &folder,
        &plugin,
        &[program.to_str().expect("a name"), target.to_str().expect("a name")],
    ));
    assert_eq!((s.header.ended, s.header.lost_frames), (Ended::Exit(0), 0));
    assert_eq!(fs::metadata(&target).expect("its file").len(), 0);
    assert!(h.totals.write_misses > 8 * (8 << 20) / 64 * 9 / 10, "{:?}", h.totals);
}

#[test]
fn python_with_a_thread() {
    let Some(plugin) = plugin() else { return };
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: no python3");
        return;
    }
    let folder = Folder::new();
    let code = "import threading\nr=[]\nt=threading.Thread(target=lambda: r.append(sum(range(20000))))\nt.start();t.join()\nassert r==[199990000]";
    let (s, h, rows) = recorded(&options(&folder, &plugin, &["python3", "-c", code]));
    assert_eq!((s.header.ended, s.header.complete), (Ended::Exit(0), true));
    let thread = h.tasks.iter().position(|t| t.thread).expect("a thread");
    assert!(h.tasks[thread].totals.insns > 100_000, "{:?}", h.tasks[thread]);
    assert!(rows.iter().any(|r| r.kind == Kind::Access && r.task as usize == thread));
}

/// The same function runs before there is a thread, in a thread, and after it; `x` maps something
/// shared first, as the C library does where there is a language.
const AGAIN: &str = r"
    #include <pthread.h>
    #include <sys/mman.h>
    static void *work(void *n) { for (volatile long i = 0; i < (long)n; i++); return 0; }
    int main(int n, char **v) {
        pthread_t t;
        if (n > 1) mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        work((void *)100000);
        if (pthread_create(&t, 0, work, (void *)1000000)) return 1;
        pthread_join(t, 0);
        work((void *)500000);
        return 0;
    }";

#[test]
fn what_ran_before_there_were_threads_counts_in_each_of_them() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let Some(program) = compiled(&folder, "again", AGAIN, &["-pthread"]) else { return };
    let program = program.to_str().expect("a name");
    for command in [&[program][..], &[program, "x"]] {
        let (_, h, _) = recorded(&options(&folder, &plugin, command));
        // Six instructions a round, as the compiler likes.
        let [main, thread] = [0, 1].map(|t| h.tasks[t].totals.insns);
        assert!((3_000_000..9_000_000).contains(&thread), "{command:?}: {main} {thread}");
        assert!((main * 10).abs_diff(thread * 6) < thread, "{command:?}: {main} {thread}");
    }
}

/// A child computes for a tenth of a second by its own clock, and its parent waits for it, or ends
/// at once. So many rounds of a loop would not do: where a processor keeps a variable of the stack
/// in a register, the same rounds take 25 ms in one process and 54 ms in the next.
const LEAVES: &str = r"
    #include <sys/wait.h>
    #include <time.h>
    #include <unistd.h>
    int main(int n, char **v) {
        if (fork() == 0) {
            while (clock() < CLOCKS_PER_SEC / 10);
            return 0;
        }
        if (n > 1) wait(0);
        return 0;
    }";

#[test]
fn children_that_nobody_waits_for_count_in_the_native_run() {
    let folder = Folder::new();
    let Some(program) = compiled(&folder, "leaves", LEAVES, &[]) else { return };
    let took = |arguments: &[&str]| {
        let command = [program.as_os_str()].into_iter().chain(arguments.iter().map(OsStr::new));
        let native = natively(&command.map(OsString::from).collect::<Vec<_>>()).expect("its times");
        (native.user_ns + native.sys_ns, native.wall_ns)
    };
    let ((waited, until_all), (left, until_own)) = (took(&["waits"]), took(&[]));
    for ns in [waited, left] {
        assert!((100_000_000..200_000_000).contains(&ns), "{left} ns, and {waited} if waited for");
    }
    // The program's own end is its end on the clock.
    assert!(until_own < until_all, "{until_own} {until_all}");
}

#[test]
fn who_is_left_behind_and_sleeps_is_ended_with_the_native_run() {
    let folder = Folder::new();
    let pid = folder.join("pid");
    let line = format!("sleep 600 & echo $! > {}", pid.display());
    let began = Instant::now();
    natively(&["sh", "-c", line.as_str()].map(OsString::from)).expect("its times");
    assert!(began.elapsed() < Duration::from_secs(300));
    let pid: i32 = fs::read_to_string(&pid).expect("a file").trim().parse().expect("a number");
    // It would sleep for ten minutes.
    // SAFETY: the signal 0 only asks whether there is such a process.
    assert_eq!(unsafe { libc::kill(pid, 0) }, -1);
}

const STREAM: &str = r"
    #include <stdlib.h>
    #include <sys/mman.h>
    int main(int c, char **v) {
        size_t n = (size_t)atol(v[1]) << 20, rounds = atol(v[2]);
        volatile char *p = mmap(0, n, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0);
        long s = 0;
        for (size_t i = 0; i < n; i += 4096) p[i] = 1;
        for (size_t r = 0; r < rounds; r++) for (size_t i = 0; i < n; i += 8) s += *(volatile long *)(p + i);
        return s == 1;
    }";

#[test]
fn a_static_stream_misses_once_a_line() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let Some(program) = compiled(&folder, "stream", STREAM, &["-static"]) else { return };
    let (s, h, rows) =
        recorded(&options(&folder, &plugin, &[program.to_str().expect("a name"), "64", "1"]));
    assert_eq!((s.header.ended, s.header.complete), (Ended::Exit(0), true));
    // 64 MiB are 1,048,576 lines; the stores before have fetched one of each page.
    let lines = 1 << 20;
    assert!(
        (lines - lines / 50..lines + lines / 50).contains(&h.totals.read_misses),
        "{:?}",
        h.totals
    );
    assert!((16384..17000).contains(&h.totals.write_misses), "{:?}", h.totals);
    assert!((32768..34000).contains(&h.totals.tlb_misses), "{:?}", h.totals);
    assert!((16384..16600).contains(&h.pages_touched), "{}", h.pages_touched);
    // One row for the store to each page, one for its 64 lines.
    let accesses = rows.iter().filter(|r| r.kind == Kind::Access).count();
    assert!((32768..34500).contains(&accesses), "{accesses}");
    let map = rows.iter().find(|r| r.kind == Kind::Map && r.pages == 16384).expect("the mapping");
    assert_eq!(map.arg, 3 | (0x22 << 32));
    let inside =
        rows.iter().filter(|r| r.kind == Kind::Access && r.page.wrapping_sub(map.page) < 16384);
    assert!(inside.count() >= 32768);
}

#[test]
fn what_fits_the_last_level_does_not_miss_again() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let Some(program) = compiled(&folder, "stream", STREAM, &["-static"]) else { return };
    let (_, h, _) =
        recorded(&options(&folder, &plugin, &[program.to_str().expect("a name"), "2", "10"]));
    let lines = (2 << 20) / 64;
    let misses = h.totals.read_misses + h.totals.write_misses;
    assert!((lines..lines + 2000).contains(&misses), "{:?}", h.totals);
    assert!(h.totals.llc_hits() > lines * 8, "{:?}", h.totals);
}

#[test]
fn a_slice_begins_and_ends_where_it_should() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let Some(program) = compiled(&folder, "stream", STREAM, &["-static"]) else { return };
    let mut o = options(&folder, &plugin, &[program.to_str().expect("a name"), "16", "1000"]);
    o.native_runs = 0;
    o.skip = Some(Mark::Insns(30_000_000));
    o.length = Some(Mark::Insns(20_000_000));
    let (s, h, rows) = recorded(&o);
    assert_eq!((s.header.ended, s.header.complete, s.slowdown()), (Ended::SliceFull, true, None));
    assert_eq!((h.slice.skip_insns, h.slice.for_insns), (30_000_000, Some(20_000_000)));
    let insns: u64 = rows.iter().map(|r| r.insns).sum();
    assert!((19_000_000..22_000_000).contains(&insns), "{insns}");
    let pages = rows.iter().filter(|r| r.kind == Kind::Access).count();
    assert!(pages > 4096, "{pages}");
    // Nothing to record after the program's end.
    let mut late = options(&folder, &plugin, &["/bin/true"]);
    late.skip = Some(Mark::Insns(1 << 50));
    late.output = folder.join("late.parquet");
    assert!(matches!(record(&late, &mut |_| {}), Err(RecordError::BeforeSlice { .. })));
    assert!(!late.output.exists());
}

#[test]
fn a_slice_in_native_time() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let Some(program) = compiled(&folder, "stream", STREAM, &["-static"]) else { return };
    let mut o = options(&folder, &plugin, &[program.to_str().expect("a name"), "16", "30"]);
    o.length = Some(Mark::NativeNs(5_000_000));
    let (s, h, _) = recorded(&o);
    let native = h.native.expect("native times");
    let part = 5_000_000.0 / (native.user_ns + native.sys_ns) as f64;
    if part < 0.8 {
        assert_eq!(s.header.ended, Ended::SliceFull);
    }
    assert!(h.slice.for_insns.is_some_and(|n| n > 100_000), "{:?}", h.slice);
    o.native_runs = 0;
    assert!(matches!(record(&o, &mut |_| {}), Err(RecordError::SliceNeedsNative)));
}

#[test]
fn a_crash_is_kept_and_said() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let source = "#include <stdlib.h>\nint main(void) { volatile char *p = malloc(4 << 20); for (int i = 0; i < 4 << 20; i += 64) p[i] = 1; *(volatile int *)8 = 1; return 0; }";
    let Some(program) = compiled(&folder, "crash", source, &[]) else { return };
    let (s, h, rows) = recorded(&options(&folder, &plugin, &[program.to_str().expect("a name")]));
    assert_eq!((s.header.ended, s.header.complete), (Ended::Signal(libc::SIGSEGV), false));
    // 65,536 lines were written. The rows that a fatal signal has caught are there, but for the
    // page that the task was at.
    let writes = rows.iter().filter(|r| r.kind == Kind::Access).map(|r| u64::from(r.writes));
    assert!((65_536 - 2 * 64..66_500).contains(&writes.sum::<u64>()), "{:?}", h.totals);
    assert!(rows.iter().any(|r| r.kind == Kind::Exit && r.arg == 256 + libc::SIGSEGV as u64));
}

#[test]
fn a_program_killed_in_the_middle_is_kept() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let Some(program) = compiled(&folder, "stream", STREAM, &["-static"]) else { return };
    let pid = folder.join("pid");
    let line = format!("echo $$ > {}; exec {} 64 100000", pid.display(), program.display());
    let mut o = options(&folder, &plugin, &["sh", "-c", &line]);
    o.native_runs = 0;
    let mut killed = false;
    let start = Instant::now();
    let s = record(&o, &mut |p| {
        assert!(start.elapsed() < Duration::from_secs(600), "it goes on and on");
        if let (false, Progress::Recording { rows, .. }) = (killed, p) {
            if rows > 20_000 {
                let pid =
                    fs::read_to_string(&pid).expect("its number").trim().parse().expect("a number");
                // SAFETY: a process of this test.
                killed = unsafe { libc::kill(pid, libc::SIGKILL) } == 0;
            }
        }
    })
    .expect("what was recorded");
    let (h, rows) = check(&o.output, &s);
    assert!(killed && !h.complete && h.ended == Ended::Signal(libc::SIGKILL), "{:?}", h.ended);
    assert!(rows.len() > 20_000 && rows.iter().any(|r| r.kind == Kind::Exec));
}

#[test]
fn programs_that_cannot_be_recorded_are_told() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let tell = |command: &[&str]| {
        let o = options(&folder, &plugin, command);
        let e = record(&o, &mut |_| {}).expect_err("an error");
        assert!(!o.output.exists() && !folder.join("r.parquet.partial").exists());
        assert!(!e.is_lack(), "{e}");
        e.to_string()
    };
    assert!(tell(&[]).contains("no program to record"));
    assert!(tell(&["no-such-program-here"]).contains("in PATH"));
    assert!(tell(&["/no/such/program"]).contains("/no/such/program"));
    let file = folder.join("plain");
    let name = file.to_str().expect("a name").to_owned();
    fs::write(&file, "hello").expect("a file");
    assert!(tell(&[&name]).contains("chmod"));
    program::script("hello", &file);
    assert!(tell(&[&name]).contains("neither an ELF program nor a script"));
    fs::write(&file, "#!/no/interpreter\n").expect("a file");
    assert!(tell(&[&name]).contains("/no/interpreter"));
    assert!(tell(&[folder.to_str().expect("a name")]).contains("not executable"));
    let mut elf = fs::read("/bin/true").expect("a program");
    elf[18] = 183;
    fs::write(&file, &elf).expect("a file");
    assert!(tell(&[&name]).contains("64-bit Arm"));
    fs::write(&file, &elf[..10]).expect("a file");
    assert!(tell(&[&name]).contains("neither"));
}

#[test]
fn what_the_system_lacks_is_told() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let mut o = options(&folder, &plugin, &["/bin/true"]);
    o.plugin = Some(folder.join("nothing.so"));
    let e = record(&o, &mut |_| {}).expect_err("no plugin");
    assert!(e.is_lack() && e.to_string().contains("nothing.so"), "{e}");
    o.plugin = Some(plugin);
    o.output = folder.join("no/such/folder/r");
    let e = record(&o, &mut |_| {}).expect_err("no folder");
    assert!(!e.is_lack() && e.to_string().contains("no/such/folder"), "{e}");
    o.output = folder.join("r.parquet");
    o.machine.caches[0].line = 128;
    assert!(record(&o, &mut |_| {}).expect_err("odd lines").to_string().contains("128"));
    o.machine.caches.clear();
    assert!(record(&o, &mut |_| {}).expect_err("no caches").to_string().contains("no caches"));
}

#[test]
fn a_child_that_stays_behind_does_not_hold_the_recording() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let mut o = options(&folder, &plugin, &["sh", "-c", "sleep 600 & exit 0"]);
    o.native_runs = 0;
    let start = Instant::now();
    let s = record(&o, &mut |_| {}).expect("a recording");
    // It would be there for ten minutes.
    assert!(start.elapsed() < Duration::from_secs(300));
    let (h, _) = check(&o.output, &s);
    assert!(!h.complete && h.tasks.len() == 2, "{h:?}");
}

/// A signal is for the whole process, so this test runs itself in another.
#[test]
fn an_interrupt_keeps_what_was_recorded() {
    let Some(plugin) = plugin() else { return };
    let folder = Folder::new();
    let Some(program) = compiled(&folder, "stream", STREAM, &["-static"]) else { return };
    if std::env::var_os("HOMENODE_TEST_INTERRUPTED").is_none() {
        let own = std::env::current_exe().expect("this test");
        let out = Command::new(own)
            .args(["--exact", "an_interrupt_keeps_what_was_recorded", "--nocapture"])
            .env("HOMENODE_TEST_INTERRUPTED", "1")
            .output()
            .expect("this test again");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && text.contains("kept what was recorded"), "{text}");
        return;
    }
    let mut o = options(&folder, &plugin, &[program.to_str().expect("a name"), "64", "100000"]);
    o.native_runs = 0;
    let s = record(&o, &mut |p| {
        if let Progress::Recording { rows, .. } = p {
            if rows > 20_000 {
                // SAFETY: a signal to ourselves, which `record` catches.
                unsafe { libc::raise(libc::SIGTERM) };
            }
        }
    })
    .expect("what was recorded");
    let (h, rows) = check(&o.output, &s);
    assert_eq!((h.ended, h.complete), (Ended::Interrupted, false));
    assert!(rows.len() > 20_000);
    println!("kept what was recorded");
}
