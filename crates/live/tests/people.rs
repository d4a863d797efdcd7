//! Processes of this machine, and what happens to them while they are looked at.
//!
//! Wherever this machine can't show something, the test says so and why.

use homenode_core::policy::seen::Who;
use homenode_core::topology::Cpu;
use homenode_core::units::NodeId;
use homenode_fixtures::{program, until};
use homenode_live::machine::{People, Person};
use homenode_live::people::{PeopleError, Proc, Targets};
use homenode_live::sysfs::read_topology;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Barrier;
use std::time::Duration;

/// A shell with a process group of its own, which does what it is told and says when it
/// has. All of the group is ended with it.
struct Shell {
    child: Child,
    told: ChildStdin,
    says: BufReader<ChildStdout>,
}

impl Shell {
    fn new() -> Self {
        Self::of(Command::new("sh"))
    }
    fn of(mut command: Command) -> Self {
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let told = child.stdin.take().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Self { child, told, says }
    }
    fn pid(&self) -> u32 {
        self.child.id()
    }
    /// Without waiting for anything.
    fn tell(&mut self, line: &str) {
        writeln!(self.told, "{line}").unwrap();
    }
    /// What the command prints, which has to be one line.
    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.line()
    }
    fn line(&mut self) -> String {
        let mut answer = String::new();
        self.says.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }
    /// Starts something in the background; its number.
    fn start(&mut self, command: &str) -> u32 {
        self.ask(&format!("{command} & echo $!")).parse().unwrap()
    }
}
impl Drop for Shell {
    fn drop(&mut self) {
        let group = -i32::try_from(self.child.id()).unwrap();
        // SAFETY: the group is that of our own child, which is not yet collected.
        unsafe { libc::kill(group, libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

fn cpus() -> Vec<Cpu> {
    read_topology(Path::new("/")).unwrap().cpus
}
fn proc(targets: Targets) -> Proc {
    Proc::new(Path::new("/"), &targets, &cpus()).unwrap()
}
fn pids(proc: &mut Proc) -> Vec<u32> {
    proc.look().unwrap().iter().map(|p| p.who.pid).collect()
}
fn one(proc: &mut Proc) -> Person {
    let mut people = proc.look().unwrap();
    assert_eq!(people.len(), 1, "{people:?}");
    people.remove(0)
}
fn signal(pid: u32, signal: i32) {
    // SAFETY: sends a signal to a process of this test.
    assert_eq!(unsafe { libc::kill(i32::try_from(pid).unwrap(), signal) }, 0);
}
fn skipped(why: &str) {
    println!("skipped: {why}");
}

#[test]
fn a_process_ends_between_looks_and_during_one() {
    let mut shell = Shell::new();
    let mut tree = proc(Targets::Tree(shell.pid()));
    let sleeper = shell.start("sleep 1000");
    let found = pids(&mut tree);
    assert!(found.contains(&shell.pid()) && found.contains(&sleeper), "{found:?}");
    let mut named = proc(Targets::Pids(vec![sleeper]));
    let who = one(&mut named).who;
    assert!(named.lives(who));
    signal(sleeper, libc::SIGKILL);
    until("its end", || pids(&mut named).is_empty().then_some(()));
    assert!(!named.lives(who));
    // Whoever was there and is gone is left out, whatever was read of them by then.
    shell.tell("i=0; while [ $i -lt 300 ]; do /bin/true & i=$((i+1)); done; wait; echo over");
    let all = std::thread::spawn(|| {
        let mut all = proc(Targets::All);
        for _ in 0..50 {
            all.look().unwrap();
        }
    });
    for _ in 0..50 {
        assert!(pids(&mut tree).contains(&shell.pid()));
    }
    all.join().unwrap();
    assert_eq!(shell.line(), "over");
}

#[test]
fn exec_leaves_the_process_and_changes_its_name() {
    let mut shell = Shell::new();
    let mut named = proc(Targets::Pids(vec![shell.pid()]));
    let before = one(&mut named);
    assert_eq!(before.name, "sh");
    shell.tell("exec sleep 1000");
    let after = until("exec", || Some(one(&mut named)).filter(|p| p.name != "sh"));
    assert_eq!((after.who, after.name.as_str()), (before.who, "sleep"));
    assert!(after.ran >= before.ran);
}

#[test]
fn who_is_stopped_is_there_and_who_waits_to_be_collected_is_not() {
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let mut named = proc(Targets::Pids(vec![child.id()]));
    let who = one(&mut named).who;
    signal(who.pid, libc::SIGSTOP);
    until("its stop", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", who.pid)).unwrap();
        stat.contains(") T ").then_some(())
    });
    assert_eq!(one(&mut named).who, who);
    signal(who.pid, libc::SIGKILL);
    // Not collected yet: it has a folder, but no memory.
    until("its end", || pids(&mut named).is_empty().then_some(()));
    assert!(Path::new(&format!("/proc/{}", who.pid)).exists() && !named.lives(who));
    let error = Proc::new(Path::new("/"), &Targets::Pids(vec![who.pid]), &cpus()).unwrap_err();
    assert!(matches!(error, PeopleError::NoMemory { .. }), "{error}");
    child.wait().unwrap();
    let error = Proc::new(Path::new("/"), &Targets::Pids(vec![who.pid]), &cpus()).unwrap_err();
    assert!(matches!(error, PeopleError::NoProcess { .. }), "{error}");
}

/// All of it, threads that ended included: what the kernel says when it is collected.
#[test]
fn processor_time_is_what_the_kernel_counts_for_the_whole_process() {
    let burn = || {
        while cpu_time() < Duration::from_millis(30) {
            std::hint::black_box(0);
        }
    };
    let mut us = proc(Targets::Pids(vec![std::process::id()]));
    let used = || {
        // SAFETY: the kernel writes one usage, which is ours.
        let usage = unsafe {
            let mut usage = std::mem::zeroed::<libc::rusage>();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        let ms = |t: libc::timeval| t.tv_sec * 1000 + t.tv_usec / 1000;
        u64::try_from(ms(usage.ru_utime) + ms(usage.ru_stime)).unwrap()
    };
    let mut last = 0;
    for _ in 0..4 {
        let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(burn)).collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        let before = used();
        let ran = one(&mut us).ran.as_ms();
        let after = used();
        // Two ticks are rounded down.
        assert!(before <= ran + 21 && ran <= after + 1, "{before} {ran} {after}");
        assert!(ran >= last);
        last = ran;
    }
    assert!(last >= 300, "{last}");
}

#[test]
fn a_process_of_another_namespace_is_there_under_its_outer_number() {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "sh"]);
    let mut shell = Shell::of(command);
    if shell.ask("echo $$") != "1" {
        return skipped("no PID namespace can be made here (unshare --pid)");
    }
    let inner = shell.start("sleep 1000");
    let mut tree = proc(Targets::Tree(shell.pid()));
    let sleeper = until("exec, seen from outside", || {
        tree.look().unwrap().into_iter().find(|p| p.name == "sleep")
    });
    let outer = sleeper.who.pid;
    let status = fs::read_to_string(format!("/proc/{outer}/status")).unwrap();
    let numbers = status.lines().find_map(|l| l.strip_prefix("NSpid:")).unwrap();
    assert!(numbers.split_whitespace().eq([outer.to_string(), inner.to_string()]), "{numbers}");
    assert!(tree.lives(sleeper.who));
    // Where /proc is that of the namespace and we are not in it, numbers would be wrong.
    let root = format!("/proc/{outer}/root");
    let error = Proc::new(Path::new(&root), &Targets::All, &[]);
    match error {
        Err(PeopleError::Namespace { .. }) => {}
        other => panic!("{other:?}"),
    }
}

/// Set for a test that runs itself again, in a place made for it: what is there.
const PLACE: &str = "HOMENODE_TEST_PLACE";

/// Runs a test of this file once more by such a command line, `$0` being the program; false
/// if the place can't be made here, which it said.
fn again(test: &str, place: &str, script: &str) -> bool {
    let probe =
        Command::new("sh").args(["-c", &script.replace("\"$0\"", "true")]).output().unwrap();
    if !probe.status.success() {
        let why = String::from_utf8_lossy(&probe.stderr);
        skipped(&format!("{place} can't be made here: {}", why.trim()));
        return false;
    }
    // Where everybody may run it.
    let copy = std::env::temp_dir().join(format!("homenode-{test}-{}", std::process::id()));
    program::copied(&std::env::current_exe().unwrap(), &copy);
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(&copy).args([test, "--exact", "--nocapture"]);
    let output = command.env(PLACE, place).output();
    fs::remove_file(copy).unwrap();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "in {place}: {failed}");
    true
}

/// In a PID namespace, where the next number can be asked for.
#[test]
fn a_number_that_is_used_again_is_another_process() {
    if std::env::var_os(PLACE).is_none() {
        let test = "a_number_that_is_used_again_is_another_process";
        let script = "exec unshare --pid --fork --mount-proc --kill-child \"$0\" \"$@\"";
        again(test, "a PID namespace", script);
        return;
    }
    let (mut shell, mut other) = (Shell::new(), Shell::new());
    let pid = shell.start("sleep 1000");
    let (mut all, mut named) = (proc(Targets::All), proc(Targets::Pids(vec![pid])));
    let mut tree = proc(Targets::Tree(other.pid()));
    let old = one(&mut named).who;
    assert!(all.look().unwrap().iter().any(|p| p.who == old));
    assert_eq!(pids(&mut tree), [other.pid()]);
    let begin = |number: u32, within: &mut Shell| {
        // Two ticks, so that it starts at another one.
        std::thread::sleep(Duration::from_millis(20));
        if let Err(e) = fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string()) {
            skipped(&format!("the next PID can't be chosen here (ns_last_pid: {e})"));
            return false;
        }
        let again = within.start("sleep 1001");
        if again != number {
            skipped(&format!("{again} was started and not {number}: others start processes too"));
        }
        again == number
    };
    assert_eq!(shell.ask(&format!("kill -9 {pid}; wait {pid}; echo over")), "over");
    if !begin(pid, &mut other) {
        return;
    }
    let found = all.look().unwrap();
    let new = found.iter().find(|p| p.who.pid == pid).expect("the new one is there").who;
    assert!(new.start > old.start, "{new} {old}");
    assert!(!all.lives(old) && all.lives(new));
    assert!(named.look().unwrap().is_empty() && named.look().unwrap().is_empty());
    // Who had the number before was a stranger to that tree.
    assert_eq!(pids(&mut tree), [other.pid(), pid]);
    // Their start is that of the system, not of the namespace.
    assert!(Who { pid, start: new.start } == one(&mut proc(Targets::Pids(vec![pid]))).who);
}

/// As nobody: once with a /proc as usual, once with each way of hiding others.
#[test]
fn without_privilege_it_is_seen_what_may_be_seen() {
    let Ok(place) = std::env::var(PLACE) else {
        for hidepid in 0..3 {
            let script = format!(
                "exec unshare --mount sh -c 'mount -t proc -o hidepid={hidepid} proc /proc && exec \
                 setpriv --reuid=65534 --regid=65534 --clear-groups \"$0\" \"$@\"' \"$0\" \"$@\""
            );
            let test = "without_privilege_it_is_seen_what_may_be_seen";
            if !again(test, &format!("hidepid={hidepid}"), &script) {
                return;
            }
        }
        return;
    };
    let mut shell = Shell::new();
    let ours = shell.start("sleep 1000");
    let mut all = proc(Targets::All);
    let found = pids(&mut all);
    assert!(found.contains(&ours) && !found.contains(&std::process::id()));
    let first = Proc::new(Path::new("/"), &Targets::Pids(vec![1]), &cpus());
    println!("{place}: {} seen, {} unseen, process 1: {:?}", found.len(), all.unseen(), first);
    match (place.as_str(), first) {
        ("hidepid=0", Ok(mut first)) => {
            assert!(found.contains(&1) && all.unseen() == 0);
            assert!(one(&mut first).resident.0 > 0);
        }
        ("hidepid=1", Err(error @ PeopleError::Refused { pid: 1, .. })) => {
            assert!(!found.contains(&1) && all.unseen() > 0);
            assert!(error.to_string().contains("run it as root"), "{error}");
        }
        ("hidepid=2", Err(PeopleError::NoProcess { pid: 1 })) => {
            assert!(!found.contains(&1) && all.unseen() == 0);
        }
        (_, first) => panic!("process 1: {first:?}"),
    }
    // Named, it is an error at the start only if it can't be seen at all.
    assert_eq!(pids(&mut proc(Targets::Pids(vec![ours]))), [ours]);
}

#[test]
fn thousands_of_processes_are_all_there() {
    const MANY: usize = 2500;
    let mut shell = Shell::new();
    let (mut all, mut tree) = (proc(Targets::All), proc(Targets::Tree(shell.pid())));
    all.look().unwrap();
    let loop_ = format!("i=0; while [ $i -lt {MANY} ]; do sleep 1000 & i=$((i+1)); done; echo $i");
    if shell.ask(&loop_) != MANY.to_string() {
        return skipped("no more processes may be started here (ulimit -u)");
    }
    let sleepers = |people: &[Person]| people.iter().filter(|p| p.name == "sleep").count();
    // The last ones may still be about to become `sleep`.
    until("exec of all", || (sleepers(&tree.look().unwrap()) == MANY).then_some(()));
    for what in ["first", "second", "third"] {
        let begun = cpu_time();
        let people = all.look().unwrap();
        let took = cpu_time() - begun;
        println!("the {what} look at {}: {took:?} of a CPU", people.len());
        assert!(sleepers(&people) >= MANY);
        assert!(people.windows(2).all(|two| two[0].who < two[1].who));
    }
    drop(shell);
    until("the end of all", || pids(&mut tree).is_empty().then_some(()));
}

/// Of this thread.
fn cpu_time() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or(0))
}

/// A cgroup of our own, where we may make one.
#[test]
fn a_cgroup_is_who_is_in_it_and_below() {
    let Some(top) = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .map(|top| Path::new(top).join(format!("homenode-people-{}", std::process::id())))
        // A folder of cgroups of the first version is none itself.
        .find(|folder| {
            folder.with_file_name("cgroup.procs").exists() && fs::create_dir(folder).is_ok()
        })
    else {
        return skipped("no cgroup can be made below /sys/fs/cgroup");
    };
    let below = top.join("below");
    let result = (|| -> io::Result<()> {
        fs::create_dir(&below)?;
        let mut shell = Shell::new();
        let (a, b) = (shell.start("sleep 1000"), shell.start("sleep 1000"));
        fs::write(top.join("cgroup.procs"), a.to_string())?;
        fs::write(below.join("cgroup.procs"), b.to_string())?;
        let mut name = proc(Targets::Cgroup(Path::new("/").join(top.file_name().unwrap())));
        let mut folder = proc(Targets::Cgroup(top.clone()));
        let mut both = [a, b];
        both.sort_unstable();
        assert_eq!((pids(&mut name), pids(&mut folder)), (both.to_vec(), both.to_vec()));
        signal(a, libc::SIGKILL);
        until("the end of one", || (pids(&mut folder) == [b]).then_some(()));
        drop(shell);
        until("the end of both", || pids(&mut folder).is_empty().then_some(()));
        Ok(())
    })();
    // Only when all who were in it are collected can it go.
    until("the end of the inner one", || {
        (fs::remove_dir(&below).is_ok() || !below.exists()).then_some(())
    });
    until("the end of the outer one", || {
        (fs::remove_dir(&top).is_ok() || !top.exists()).then_some(())
    });
    if let Err(e) = result {
        skipped(&format!("a cgroup of our own can't be used here: {e}"));
    }
}

/// Binds the calling thread to the CPUs of a node.
fn run_on(node: NodeId, cpus: &[Cpu]) -> io::Result<()> {
    // SAFETY: a set of CPUs is plain bits, and the kernel only reads it.
    let done = unsafe {
        let mut set = std::mem::zeroed::<libc::cpu_set_t>();
        for cpu in cpus.iter().filter(|cpu| cpu.node == node) {
            libc::CPU_SET(cpu.id.0 as usize, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[test]
fn the_node_is_where_its_threads_run() {
    let cpus = cpus();
    let nodes: BTreeSet<NodeId> = cpus.iter().map(|cpu| cpu.node).collect();
    let nodes: Vec<NodeId> = nodes.into_iter().collect();
    let mut us = proc(Targets::Pids(vec![std::process::id()]));
    if nodes.len() < 2 {
        assert_eq!(one(&mut us).node, nodes.first().copied());
        return skipped("one node has all CPUs: everybody runs there");
    }
    for &node in &nodes {
        let (mut command, all) = (Command::new("sleep"), cpus.clone());
        command.arg("1000");
        // SAFETY: between fork and exec it makes one system call and takes no lock.
        unsafe { command.pre_exec(move || run_on(node, &all)) };
        let mut child = command.spawn().unwrap();
        let mut named = proc(Targets::Pids(vec![child.id()]));
        let found = until("exec", || Some(one(&mut named)).filter(|p| p.name == "sleep"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.node, Some(node));
    }
    // Two threads of this process on two nodes.
    let (bound, wait) = (Barrier::new(3), Barrier::new(3));
    std::thread::scope(|scope| {
        for &node in &nodes[..2] {
            let (cpus, bound, wait) = (&cpus, &bound, &wait);
            scope.spawn(move || {
                let done = run_on(node, cpus);
                bound.wait();
                wait.wait();
                done.unwrap();
            });
        }
        bound.wait();
        let found = us.look().unwrap();
        wait.wait();
        assert_eq!(found[0].node, None);
    });
}
