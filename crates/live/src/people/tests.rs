//! Who is found below a `/proc` that the test lays out.

use super::*;
use crate::machine::People;
use homenode_core::units::CpuId;
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
        let root = std::env::temp_dir().join(name);
        fs::create_dir_all(root.join("proc")).unwrap();
        Self(root)
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
        let cpu =
            |(id, node): (u32, &u16)| Cpu { id: CpuId(id), node: NodeId(*node), core: id, llc: 0 };
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
