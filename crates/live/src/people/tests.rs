//! Who is found below a `/proc` that the test lays out.

use super::*;
use crate::machine::People;
use homenode_core::units::CpuId;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder with a `proc` in it.
struct Fake(PathBuf);

/// A process as it is laid out.
#[derive(Clone)]
struct Line {
    comm: &'static str,
    state: char,
    parent: u32,
    group: u32,
    session: u32,
    flags: u64,
    user: u64,
    threads: u64,
    start: u64,
    vsize: u64,
    rss: i64,
    cpu: u32,
}

const LINE: Line = Line {
    comm: "a b) (c",
    state: 'S',
    parent: 1,
    group: 1,
    session: 1,
    flags: 0x0040_0000,
    user: 0,
    threads: 1,
    start: 100,
    vsize: 8 << 20,
    rss: 7,
    cpu: 0,
};

impl Line {
    fn text(&self, pid: u32) -> String {
        let Self { comm, state, parent, group, session, flags, .. } = self;
        let Self { user, threads, start, vsize, rss, cpu, .. } = self;
        format!(
            "{pid} ({comm}) {state} {parent} {group} {session} 0 -1 {flags} 1 2 3 4 {user} 5 6 7 \
             20 0 {threads} 0 {start} {vsize} {rss} 18446744073709551615 1 2 3 0 0 0 0 0 0 0 0 0 \
             17 {cpu} 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        )
    }
}

impl Fake {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("homenode-people-{}-{number}", std::process::id());
        // In memory where there is such a folder: a disk may take long for thousands.
        let make = |base: PathBuf| {
            let root = base.join(&name);
            fs::create_dir_all(root.join("proc")).map(|()| Self(root))
        };
        make("/dev/shm".into()).or_else(|_| make(std::env::temp_dir())).unwrap()
    }
    fn write(&self, name: &str, text: &str) {
        let path = self.0.join("proc").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fn put(&self, pid: u32, line: &Line) {
        self.write(&format!("{pid}/stat"), &line.text(pid));
    }
    fn end(&self, pid: u32) {
        fs::remove_dir_all(self.0.join("proc").join(pid.to_string())).unwrap();
    }
    fn proc(&self, targets: Targets) -> Proc {
        self.with(targets, &[0, 0]).unwrap()
    }
    /// Of a machine whose CPUs are on these nodes.
    fn with(&self, targets: Targets, nodes: &[u16]) -> Result<Proc, PeopleError> {
        let cpu = |(id, node): (u32, &u16)| Cpu {
            id: CpuId(id),
            node: NodeId(*node),
            core: id,
            llc: 0,
            capacity: 1024,
            mhz: None,
        };
        let cpus: Vec<Cpu> = (0..).zip(nodes).map(cpu).collect();
        Proc::new(&self.0, &targets, &cpus)
    }
}
impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// PIDs and names of those who are there.
fn names(proc: &mut Proc) -> String {
    let person = |p: Person| format!("{} {}", p.who, p.name);
    proc.look().unwrap().into_iter().map(person).collect::<Vec<_>>().join(", ")
}

#[test]
fn everybody_with_memory_is_there_under_their_names() {
    let fake = Fake::new();
    fake.put(2, &Line { comm: "kthreadd", flags: 0x0020_8040, vsize: 0, rss: 0, ..LINE });
    fake.put(12, &LINE);
    fake.put(7, &Line { comm: "qemu-system-x86", start: 3, ..LINE });
    fake.write("7/cmdline", "/usr/bin/qemu-system-x86_64\0-name\0guest=web\x1b,x=y\0");
    fake.put(30, &Line { state: 'Z', vsize: 0, rss: 0, ..LINE });
    fake.put(31, &Line { state: 'T', comm: "stopped", ..LINE });
    fake.write("meminfo", "MemTotal: 1 kB\n");
    let mut all = fake.proc(Targets::All);
    assert_eq!(names(&mut all), "7@3 web?, 12@100 a b) (c, 31@100 stopped");
    assert_eq!(all.unseen(), 0);
    let lives = |pid, start| all.lives(Who { pid, start });
    assert!(lives(7, 3) && lives(31, 100) && !lives(7, 4) && !lives(30, 100) && !lives(8, 3));
    // Looked at again, nothing but stat is read: the file that named it may go.
    fs::remove_file(fake.0.join("proc/7/cmdline")).unwrap();
    assert_eq!(names(&mut all), "7@3 web?, 12@100 a b) (c, 31@100 stopped");
    fake.end(12);
    assert_eq!(names(&mut all), "7@3 web?, 31@100 stopped");
}

#[test]
fn a_program_that_becomes_another_one_is_the_same_process() {
    let fake = Fake::new();
    fake.put(12, &Line { comm: "sh", ..LINE });
    fake.write("12/cmdline", "sh\0-c\0exec kvm\0");
    let mut all = fake.proc(Targets::Pids(vec![12]));
    assert_eq!(names(&mut all), "12@100 sh");
    fake.put(12, &Line { comm: "kvm", ..LINE });
    fake.write("12/cmdline", "/usr/bin/kvm\0-name\0guest=db\0");
    assert_eq!(names(&mut all), "12@100 db");
}

#[test]
fn a_number_that_is_used_again_is_somebody_else() {
    let fake = Fake::new();
    fake.put(12, &Line { user: 900, ..LINE });
    let (mut all, mut named) = (fake.proc(Targets::All), fake.proc(Targets::Pids(vec![12])));
    let ran = |p: &mut Proc| p.look().unwrap().iter().map(|p| p.ran.as_ms()).collect::<Vec<_>>();
    assert_eq!((ran(&mut all), ran(&mut named)), (vec![9050], vec![9050]));
    fake.put(12, &Line { comm: "new", start: 101, user: 1, ..LINE });
    let old = Who { pid: 12, start: 100 };
    assert_eq!(names(&mut all), "12@101 new");
    assert_eq!(ran(&mut all), [60]);
    assert!(!all.lives(old) && all.lives(Who { start: 101, ..old }));
    // Who was named by its number is gone, and the number is not meant again.
    assert_eq!(names(&mut named), "");
    fake.put(12, &LINE);
    assert_eq!(names(&mut named), "");
}

#[test]
fn who_ends_is_left_out_and_who_is_not_there_at_the_start_is_an_error() {
    let fake = Fake::new();
    for pid in [12, 13] {
        fake.put(pid, &LINE);
    }
    let mut named = fake.proc(Targets::Pids(vec![13, 12, 13]));
    assert_eq!(names(&mut named), "12@100 a b) (c, 13@100 a b) (c");
    fake.end(12);
    fake.put(13, &Line { state: 'Z', vsize: 0, rss: 0, ..LINE });
    assert_eq!(names(&mut named), "");
    fake.put(14, &Line { comm: "ksmd", flags: 0x0020_8040, vsize: 0, ..LINE });
    fake.put(15, &LINE);
    fake.write("15/status", "Name:\tx\nTgid:\t11\nPid:\t15\n");
    fake.write("16/stat", "rubbish");
    let why = |targets| fake.with(targets, &[0]).unwrap_err().to_string();
    assert!(why(Targets::Pids(vec![12])).starts_with("there is no process 12, or /proc hides it"));
    assert!(why(Targets::Tree(16)).starts_with("there is no process 16"));
    assert!(why(Targets::Pids(vec![13])).starts_with("process 13 (a b) (c) has no memory"));
    assert!(why(Targets::Pids(vec![14])).starts_with("process 14 (ksmd) has no memory to look at"));
    assert_eq!(
        why(Targets::Pids(vec![15])),
        "15 is not a process but a thread of process 11: give 11"
    );
    assert!(why(Targets::Cgroup("/no/such".into())).starts_with("/no/such: no cgroup"));
}

#[test]
fn a_proc_of_somebody_else_is_an_error() {
    let fake = Fake::new();
    let link = fake.0.join("proc/self");
    std::os::unix::fs::symlink(std::process::id().to_string(), &link).unwrap();
    // It is ours: then we and what we started are not among all.
    let ours = std::process::id();
    fake.put(ours, &LINE);
    fake.put(12, &Line { parent: ours, ..LINE });
    fake.put(13, &LINE);
    assert_eq!(names(&mut fake.proc(Targets::All)), "13@100 a b) (c");
    assert_eq!(names(&mut fake.proc(Targets::Pids(vec![12]))), "12@100 a b) (c");
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("1", &link).unwrap();
    let error = fake.with(Targets::All, &[0]).unwrap_err();
    assert!(error.to_string().contains("another PID namespace"), "{error}");
    assert!(error.to_string().contains("unshare --mount-proc homenode"), "{error}");
    fs::remove_dir_all(fake.0.join("proc")).unwrap();
    let error = fake.with(Targets::All, &[0]).unwrap_err().to_string();
    assert!(error.ends_with("proc: processes can't be listed: is /proc mounted?"), "{error}");
}

#[test]
fn processor_time_before_the_first_look_is_a_day_at_most() {
    let fake = Fake::new();
    let hz = 1_000_000_000 / stat::tick_ns();
    let day = 24 * 3600 * hz;
    fake.put(12, &Line { user: 1000 * day, ..LINE });
    fake.put(13, &Line { user: day / 2 - 5, ..LINE });
    let mut all = fake.proc(Targets::All);
    let mut ran = || all.look().unwrap().iter().map(|p| p.ran.as_ms() / 1000).collect::<Vec<_>>();
    assert_eq!(ran(), [24 * 3600, 12 * 3600]);
    fake.put(12, &Line { user: 1000 * day + 7 * hz, ..LINE });
    fake.put(13, &Line { user: 5 * day - 5, ..LINE });
    assert_eq!(ran(), [24 * 3600 + 7, 5 * 24 * 3600]);
    fake.put(12, &Line { user: u64::MAX, ..LINE });
    fake.put(13, &Line { user: 0, ..LINE });
    assert_eq!(ran(), [u64::MAX / 1_000_000_000_000, 12 * 3600]);
}

#[test]
fn the_node_is_that_of_all_its_threads_if_it_is_one() {
    let fake = Fake::new();
    fake.put(12, &Line { cpu: 1, ..LINE });
    fake.put(13, &Line { threads: 2, ..LINE });
    fake.put(14, &Line { cpu: 9, ..LINE });
    let cpus = |at: [u32; 2]| {
        for (tid, cpu) in (13..).zip(at) {
            fake.write(&format!("13/task/{tid}/stat"), &Line { cpu, ..LINE }.text(tid));
        }
    };
    let mut all = fake.with(Targets::All, &[0, 1, 1]).unwrap();
    let mut nodes = || {
        let people = all.look().unwrap();
        people.iter().map(|p| p.node.map(|n| n.0)).collect::<Vec<_>>()
    };
    cpus([1, 2]);
    assert_eq!(nodes(), [Some(1), Some(1), None], "CPU 9 is on no node that is known");
    cpus([0, 2]);
    assert_eq!(nodes(), [Some(1), None, None]);
    // Those two are asked first, whoever else is there; and all, once they are together.
    fake.write("13/task/15/stat", "rubbish");
    assert_eq!(nodes(), [Some(1), None, None]);
    cpus([2, 1]);
    assert_eq!(nodes(), [Some(1), Some(1), None]);
    cpus([0, 2]);
    assert_eq!(nodes(), [Some(1), None, None]);
    // A thread that ended says nothing more.
    let over = Line { state: 'X', cpu: 1, vsize: 0, ..LINE };
    fake.write("13/task/14/stat", &over.text(14));
    assert_eq!(nodes(), [Some(1), Some(0), None]);
    // One node has all CPUs: there is nothing to be asked.
    let mut one = fake.with(Targets::All, &[3, 3]).unwrap();
    assert!(one.look().unwrap().iter().all(|p| p.node == Some(NodeId(3))));
}

// specs/live.md#people
#[test]
fn a_guest_is_where_its_vcpus_are() {
    let fake = Fake::new();
    let put = |threads: [(u32, &'static str, u32); 4]| {
        fake.put(20, &Line { comm: "qemu-system-x86", threads: 4, ..LINE });
        for (tid, comm, cpu) in threads {
            fake.write(&format!("20/task/{tid}/stat"), &Line { comm, cpu, ..LINE }.text(tid));
        }
    };
    let mut all = fake.with(Targets::All, &[0, 1, 1]).unwrap();
    let mut node = || all.look().unwrap()[0].node.map(|n| n.0);
    let emulator = (20, "qemu-system-x86", 0);
    put([emulator, (21, "CPU 0/KVM", 1), (22, "CPU 1/KVM", 2), (23, "worker", 0)]);
    assert_eq!(node(), Some(1), "the emulator's threads do not count");
    put([emulator, (21, "CPU 0/KVM", 0), (22, "CPU 1/KVM", 2), (23, "worker", 0)]);
    assert_eq!(node(), None);
    assert_eq!(node(), None, "by the two that are asked first");
    put([emulator, (21, "CPU 0/KVM", 1), (22, "CPU 1/KVM", 1), (23, "vhost-20", 0)]);
    assert_eq!(node(), Some(1));
    // Without names it is a process like any other.
    put([emulator, (21, "qemu-system-x86", 1), (22, "qemu-system-x86", 1), (23, "x", 0)]);
    assert_eq!(node(), None);
}

#[test]
fn a_leader_that_ended_before_its_threads_is_alive() {
    let fake = Fake::new();
    let [leader, thread] =
        [corpus::corpus!("stat.leader-ended")[2], corpus::corpus!("stat.thread")[2]];
    let text = |line: &[u8]| String::from_utf8(line.to_vec()).unwrap();
    fake.write("124/stat", &text(leader));
    fake.write("124/task/124/stat", &text(leader));
    fake.write("124/task/126/stat", &text(thread));
    let mut named = fake.with(Targets::Pids(vec![124]), &[0, 1, 2]).unwrap();
    let people = named.look().unwrap();
    let who = Who { pid: 124, start: 557 };
    assert_eq!((people[0].who, people[0].resident), (who, Pages(128)));
    assert_eq!((people[0].node, people[0].name.as_str()), (Some(NodeId(2)), "init"));
    assert!(named.lives(who));
    fs::remove_dir_all(fake.0.join("proc/124/task/126")).unwrap();
    assert!(!named.lives(who));
    assert_eq!(named.look().unwrap(), []);
}

/// ```text
/// 20 ─▶ 21 ─▶ 22     23 adopted by 1, in 20's group     24 adopted, in 20's session
/// ```
#[test]
fn a_tree_is_all_that_came_of_its_root() {
    let fake = Fake::new();
    let of = |parent| Line { comm: "x", parent, start: 200, ..LINE };
    fake.put(9, &Line { comm: "other", ..LINE });
    fake.put(20, &Line { comm: "root", group: 20, session: 20, ..LINE });
    fake.put(21, &of(20));
    fake.put(22, &of(21));
    fake.put(23, &Line { group: 20, ..of(1) });
    fake.put(24, &Line { group: 24, session: 20, ..of(1) });
    let mut tree = fake.proc(Targets::Tree(20));
    assert_eq!(names(&mut tree), "20@100 root, 21@200 x, 22@200 x, 23@200 x, 24@200 x");
    // Orphaned, but known; and what it starts then.
    fake.end(21);
    fake.put(22, &of(1));
    fake.put(25, &of(22));
    // As old as the tree, and none of it.
    fake.put(26, &of(9));
    assert_eq!(names(&mut tree), "20@100 root, 22@200 x, 23@200 x, 24@200 x, 25@200 x");
    // The root ends: what it started does not. Its number is another's, whose group is
    // nobody's of ours.
    for pid in [20, 23, 24] {
        fake.end(pid);
    }
    fake.put(20, &Line { comm: "new", start: 300, group: 20, session: 20, ..LINE });
    fake.put(27, &Line { start: 301, group: 20, session: 20, ..of(20) });
    assert_eq!(names(&mut tree), "22@200 x, 25@200 x");
}

#[test]
fn what_was_a_stranger_is_not_read_again_until_its_folder_is_another() {
    let fake = Fake::new();
    fake.put(2, &Line { comm: "kthreadd", flags: 0x0020_8040, vsize: 0, rss: 0, ..LINE });
    fake.put(12, &LINE);
    let mut all = fake.proc(Targets::All);
    assert_eq!(names(&mut all), "12@100 a b) (c");
    let moved = fake.0.join("proc/moved");
    fake.write("moved/stat", &Line { comm: "new", start: 300, ..LINE }.text(2));
    fake.put(2, &Line { comm: "unread", ..LINE });
    assert_eq!(names(&mut all), "12@100 a b) (c");
    fake.end(2);
    fs::rename(moved, fake.0.join("proc/2")).unwrap();
    assert_eq!(names(&mut all), "2@300 new, 12@100 a b) (c");
}

#[test]
fn what_is_odd_is_counted_and_the_others_are_there() {
    let fake = Fake::new();
    fake.put(12, &LINE);
    fake.write("13/stat", "");
    fake.write("14/stat", "14 (x) S what");
    fake.write("15/stat/x", "a folder");
    fake.write("16", "a file");
    fake.write("17/stat", &"7 ".repeat(5000));
    fs::create_dir_all(fake.0.join("proc/18")).unwrap();
    let mut all = fake.proc(Targets::All);
    assert_eq!((names(&mut all).as_str(), all.unseen()), ("12@100 a b) (c", 4));
    for pid in 13..19 {
        assert!(!all.lives(Who { pid, start: 100 }));
    }
}

#[test]
fn a_cgroups_processes_come_and_go_with_it() {
    let fake = Fake::new();
    let folder = fake.0.join("sys/fs/cgroup/web.slice");
    fs::create_dir_all(folder.join("a")).unwrap();
    fs::write(folder.join("cgroup.procs"), "12\n0\n").unwrap();
    fs::write(folder.join("a/cgroup.procs"), "14\n99\n").unwrap();
    for pid in [12, 13, 14] {
        fake.put(pid, &Line { comm: "x", ..LINE });
    }
    let mut cgroup = fake.proc(Targets::Cgroup("/web.slice".into()));
    assert_eq!(names(&mut cgroup), "12@100 x, 14@100 x");
    assert_eq!(cgroup.unseen(), 0, "99 ended after it was listed");
    fs::write(folder.join("cgroup.procs"), "13\n").unwrap();
    assert_eq!(names(&mut cgroup), "13@100 x, 14@100 x");
    fs::remove_dir_all(folder).unwrap();
    assert_eq!(names(&mut cgroup), "");
}

#[test]
fn ten_thousand_are_ten_thousand() {
    let fake = Fake::new();
    for pid in 1..=10_000 {
        fake.put(pid, &Line { comm: "x", user: u64::from(pid), ..LINE });
    }
    let mut all = fake.proc(Targets::All);
    for _ in 0..2 {
        let people = all.look().unwrap();
        assert_eq!((people.len(), all.unseen()), (10_000, 0));
        assert!(people.windows(2).all(|two| two[0].who < two[1].who));
    }
    fake.end(5000);
    assert_eq!(all.look().unwrap().len(), 9999);
}

#[test]
fn whose_thread_it_is_stands_in_every_kernels_status() {
    for status in corpus::corpus!("status") {
        let status = String::from_utf8_lossy(status);
        let pid = status.lines().find_map(|l| l.strip_prefix("Pid:")).unwrap();
        assert_eq!(process_of(&status).map(|p| p.to_string()).as_deref(), Some(pid.trim()));
    }
    assert_eq!(process_of("Tgid:\t-1\n"), None);
    assert_eq!(process_of("Name:\tTgid: 4\n"), None);
}

static TEXTS: [&[u8]; 9] = {
    let [a, b, c] = corpus::corpus!("status");
    let [d, e, f] = corpus::corpus!("cgroup.procs");
    let [g, h, i] = corpus::corpus!("schedstat");
    [a, b, c, d, e, f, g, h, i]
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever stands in these files, a look neither fails nor panics.
    #[test]
    fn damaged_files_never_panic(text in corpus::damaged(&TEXTS)) {
        let fake = Fake::new();
        let text = String::from_utf8_lossy(&text);
        let _ = process_of(&text);
        fake.put(12, &Line { threads: 2, ..LINE });
        fake.write("12/cmdline", &text);
        fake.write("12/task/12/stat", &text);
        fake.write("13/stat", &text);
        fs::create_dir_all(fake.0.join("group")).unwrap();
        fs::write(fake.0.join("group/cgroup.procs"), text.as_bytes()).unwrap();
        let group = fake.0.join("group");
        for targets in [Targets::All, Targets::Cgroup(group), Targets::Pids(vec![12]), Targets::Tree(12)] {
            let mut proc = fake.with(targets, &[0, 1]).unwrap();
            prop_assert!(proc.look().unwrap().len() <= 1);
        }
    }
    #[test]
    fn any_command_line_has_a_name(
        words in prop::collection::vec(any::<u8>(), 0..80),
        comm in prop::collection::vec(any::<u8>(), 0..16),
    ) {
        let guest = [b"/usr/bin/qemu-x\0-name\0".to_vec(), words.clone()].concat();
        for words in [words, guest] {
            prop_assert!(!name::name_of(&words, &comm).chars().any(char::is_control));
        }
    }
}
