//! `homenode doctor` as its users meet it, and that it changes nothing: every system call
//! of it is looked at.

use homenode_fixtures::{Folder, program};
use serde_json::Value;
use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::process::Command;

const HOMENODE: &str = env!("CARGO_BIN_EXE_homenode");

/// Another machine's files, laid out from the fixtures of `live`.
fn machine(name: &str) -> Folder {
    let archives = concat!(env!("CARGO_MANIFEST_DIR"), "/../live/tests/fixtures/probe");
    Folder::unpacked(&Path::new(archives).join(name))
}

fn doctor(args: &[&str]) -> String {
    let out = Command::new(HOMENODE).arg("doctor").args(args).output().expect("it runs");
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&doctor(&[&["--json"], args].concat())).expect("one JSON object")
}

#[test]
fn topo_shows_the_kernels_own_tiers() {
    let root = machine("slow-node-6.12.txt");
    let run = |more: &[&str]| {
        let root = root.to_str().expect("a plain path");
        let args = [&["topo", "--root", root], more].concat();
        let out = Command::new(HOMENODE).args(args).output().expect("it runs");
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text")
    };
    let json: Value = serde_json::from_str(&run(&["--json"])).expect("one JSON object");
    let tiers: Vec<_> =
        json["nodes"].as_array().expect("nodes").iter().map(|n| &n["tier"]).collect();
    expect_test::expect!["[Number(4), Number(84)]"].assert_eq(&format!("{tiers:?}"));
    let text = run(&[]);
    let nodes: Vec<&str> =
        text.lines().filter(|l| l.starts_with("node") || l.starts_with("memory_tier")).collect();
    expect_test::expect![[r#"
        node 0   dram    32.4 GiB  tier 4, top    CPUs 0-7
        node 1   dram    61.0 GiB  tier 84        CPUs none
        memory_tier4: nodes 0
        memory_tier84: nodes 1
        node 0 demotes to node 1"#]]
    .assert_eq(&nodes.join("\n"));
}

#[test]
fn a_machine_without_heat_is_told_so_and_what_to_get() {
    let root = machine("one-node-6.18.txt");
    let text = doctor(&["--root", root.to_str().expect("a plain path")]);
    let expected = expect_test::expect![[r#"
        Linux 6.18.44

        machine
          processor           Intel(R) Xeon(R) Processor in a virtual machine
          node 0              23.3 GiB, CPUs 0-1, tier 4, distances 10
                              sysfs shows no caches

        heat
          homenode would use  residency only: no source of heat is offered here
          damon               not offered: the kernel is built without CONFIG_DAMON_VADDR; DAMON belongs to
                              somebody else: 1 kdamond slot, 1 running
                              in use: clears accessed bits of the pages that it samples: reclaim still
                              learns of them through the folio's young flag, MGLRU's walks and idle page
                              tracking may miss them; a kernel thread checks up to 1000 regions every 5 ms
                              for advice and while memory is moved, else within 1 % of a CPU and every 40 ms
                              at the latest
          hint-fault          not offered: only one node has memory: hint faults tell too little
                              in use: nothing that the kernel's balancing doesn't already do: it marks pages
                              inaccessible, takes the faults, and moves pages and threads by its own rules;
                              a BPF program runs at each such fault of every process
          pmu                 not offered: no PMU here samples addresses of memory accesses
                              in use: nothing of memory management: one counter of each CPU, which other
                              users of perf then share by turns, and an interrupt for every few samples
          residency           offered: where pages are, without heat
                              in use: nothing: page tables are read, with the process's mmap lock held for
                              reading

        what could be decided here
          damon               nothing: it is not offered
          hint-fault          nothing: it is not offered
          pmu                 nothing: it is not offered
          residency           begin to sample a process (its CPU time, /proc): exact
                              how hot memory is: unavailable
                              what is cold on a fast node: unavailable
                              which node accesses it: exact since one node has all CPUs
                              where it is (move_pages asked, Look): exact since one node has all memory
                              whether a node has room (/proc/zoneinfo): exact
                              benefit against cost: unavailable

        what the kernel has for it
          DAMON               sysfs yes, virtual address spaces no, physical memory yes
                              kdamond 0 of somebody else runs on paddr, PID 77
          hint faults         built yes, kernel.numa_balancing 0, promotion limit 65536 MB/s
                              functions to watch: mpol_misplaced
          tracepoints         unseen, as tracefs is not mounted or not readable
          BTF                 /sys/kernel/btf/vmlinux, 4 bytes; BPF built yes
          PMU                 breakpoint, msr, software, tracepoint, uprobe
                              hardware cycles: not tried
                              loads at once: not counted (no PMU); each is taken to be waited for alone
          pages               PAGEMAP_SCAN not tried; move_pages as a question not tried; numa_maps yes
                              soft-dirty bits no
                              clear_refs yes: it clears accessed bits, which misleads reclaim; idle page
                              bitmap no; MGLRU not built
          configuration       /boot/config-6.18.44

        the kernel's own placement
          demotion            off
          weighted interleave node 0: 1, made by the kernel
          sched_ext           not built: `homenode sched` needs Linux 6.13 or newer with
                              CONFIG_SCHED_CLASS_EXT
          KSM                 run 0, merge_across_nodes 1, pages_sharing 0, 0 processes registered

        scheduler statistics
          live                homenode stats --system can count
          the kernel's own    this kernel has none

        rights
          user                effective UID 0
          capabilities        CAP_DAC_OVERRIDE, CAP_IPC_LOCK, CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_SYS_NICE,
                              CAP_SYS_RESOURCE, CAP_PERFMON, CAP_BPF
          limits              perf_event_paranoid 2, kptr_restrict 0, unprivileged_bpf_disabled 2, Yama's
                              ptrace_scope none, lockdown none
          RLIMIT_MEMLOCK      not asked
          surroundings        the machine's own user namespace, kernel threads seen, /sys writable, signs of
                              a container: /.dockerenv

        what is missing, and how to get it
          damon               the kernel is built without CONFIG_DAMON_VADDR: boot a kernel with
                              CONFIG_DAMON_VADDR=y; stock Debian 6.12 and newer have it
                              DAMON belongs to somebody else: 1 kdamond slot, 1 running: end the other user
                              of DAMON (damo stop; 0 into /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds):
                              homenode never stops one that it didn't start
          hint-fault          only one node has memory: hint faults tell too little: nothing to get: there
                              is no other node
          pmu                 no PMU here samples addresses of memory accesses: run on bare metal, or let
                              the hypervisor pass a PMU with PEBS or IBS through (libvirt: cpu mode
                              host-passthrough, pmu state on)
          besides             tracefs is not to be seen: tracepoints of migration can't be listed: as root:
                              mount -t tracefs tracefs /sys/kernel/tracing
    "#]];
    expected.assert_eq(&text);
    assert!(text.lines().all(|l| l.chars().count() <= 100));
}

#[test]
fn json_has_the_choice_its_row_and_what_is_missing() {
    let root = machine("slow-node-6.12.txt");
    let v = json(&["--root", root.to_str().expect("a plain path")]);
    assert_eq!(v["choice"]["source"], "damon");
    assert_eq!(v["choice"]["why"]["name"], "best");
    assert_eq!(v["nodes"]["list"][1]["tier"], 84);
    assert_eq!(v["sources"][0]["offered"], true);
    assert_eq!(v["sources"][0]["decides"]["heat"]["quality"], "degraded");
    assert_eq!(v["sources"][1]["decides"]["cold"]["quality"], "unavailable");
    assert_eq!(v["sources"][2]["lacks"][0]["name"], "perf_unseen");
    assert_eq!(v["weighted_interleave"]["weights"]["0"], 3);
    assert_eq!(v["pages"]["pagemap_scan"], Value::Null);
    let advice = v["advice"].as_array().expect("a list");
    assert!(advice.iter().any(|a| a["how"].as_str().is_some_and(|h| h.contains("demotion"))));
}

#[test]
fn an_empty_folder_is_looked_at_too() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doctor-empty");
    fs::create_dir_all(&root).expect("a folder");
    let text = doctor(&["--root", root.to_str().expect("a plain path")]);
    assert!(text.contains("residency only"), "{text}");
}

/// As another user, the same machine with fewer rights.
#[test]
fn without_privilege_it_says_what_it_could_not_see() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        println!("not root: the other tests are this one");
        return;
    }
    // The build's folder may be closed to others: a copy that everybody can run.
    let folder = Folder::new();
    let copy = folder.join("homenode");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("open to everybody");
    program::copied(Path::new(HOMENODE), &copy);
    let out = Command::new(&copy)
        .args(["doctor", "--json"])
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .output()
        .expect("it runs");
    let _ = fs::remove_dir_all(&folder);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let v: Value = serde_json::from_slice(&out.stdout).expect("one JSON object");
    assert_eq!(v["rights"]["euid"], 65_534);
    assert_eq!(v["rights"]["capabilities"]["CAP_SYS_ADMIN"], false);
    assert!(v["advice"][0]["what"].as_str().is_some_and(|w| w.contains("other users")), "{v}");
    let names = |i: usize| -> Vec<&str> {
        let lacks = v["sources"][i]["lacks"].as_array().expect("a list");
        lacks.iter().filter_map(|l| l["name"].as_str()).collect()
    };
    assert!(names(0).contains(&"not_admin") && names(1).contains(&"no_bpf"), "{v}");
    // DAMON's files are for root only, where there are any.
    if Path::new("/sys/kernel/mm/damon/admin/kdamonds/0").exists() {
        let unseen = v["unseen"].to_string();
        assert!(unseen.contains("/kdamonds/0/state"), "{unseen}");
    }
}

// ── Every system call ──────────────────────────────────────────────────────────

/// A system call at its beginning.
struct Call {
    nr: i64,
    args: [u64; 6],
    /// The second argument as a path, for openat.
    path: String,
}

/// A text of the traced process.
fn text_at(pid: i32, address: u64) -> String {
    use std::os::unix::fs::FileExt as _;
    let mut bytes = [0_u8; 256];
    let read = fs::File::open(format!("/proc/{pid}/mem"))
        .and_then(|f| f.read_at(&mut bytes, address))
        .unwrap_or(0);
    let end = bytes[..read].iter().position(|b| *b == 0).unwrap_or(read);
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Runs a command and tells of each system call after its exec, in all of its threads.
fn trace(args: &[&str], mut each: impl FnMut(&Call)) {
    let words: Vec<CString> = args.iter().map(|a| CString::new(*a).expect("no zero")).collect();
    let mut pointers: Vec<*const libc::c_char> = words.iter().map(|w| w.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let null = CString::new("/dev/null").expect("no zero");
    // SAFETY: the child makes system calls only, with what was allocated before.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: as above; the pointers are to texts that end in zero.
        unsafe {
            libc::dup2(libc::open(null.as_ptr(), libc::O_WRONLY), 1);
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
            libc::execv(pointers[0], pointers.as_ptr());
            libc::_exit(127);
        }
    }
    let mut status = 0;
    // SAFETY: our child; the status is a local.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    let options =
        libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC;
    let options = options | libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_EXITKILL;
    // SAFETY: a stopped child that asked to be traced.
    unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, child, 0, options) };
    // SAFETY: as above.
    unsafe { libc::ptrace(libc::PTRACE_SYSCALL, child, 0, 0) };
    let mut begun = false;
    loop {
        // SAFETY: any child or thread of the trace; tests of this file fork nothing else
        // while it runs, since it waits for this one's thread group.
        let pid = unsafe { libc::waitpid(child, &mut status, libc::__WALL) };
        assert!(pid > 0, "the trace has ended without its process");
        if libc::WIFEXITED(status) {
            assert_eq!(libc::WEXITSTATUS(status), 0, "the command failed under the trace");
            assert!(begun, "it was never executed");
            return;
        }
        assert!(libc::WIFSTOPPED(status), "ended by a signal");
        let event = status >> 16;
        assert!(
            event == 0 || event == libc::PTRACE_EVENT_EXEC,
            "it starts threads or processes, which this trace does not follow"
        );
        begun |= event == libc::PTRACE_EVENT_EXEC;
        if begun && libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80 {
            // SAFETY: all zeros is a valid structure, which the call fills.
            let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
            let size = size_of::<libc::ptrace_syscall_info>();
            // SAFETY: a stopped tracee and a local of the size that is told.
            let told = unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, pid, size, &mut info) };
            assert!(told > 0, "Linux 5.3 tells of system calls");
            if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
                // SAFETY: `op` says that this part is meant.
                let entry = unsafe { info.u.entry };
                let nr = entry.nr as i64;
                let path = match nr {
                    libc::SYS_openat => text_at(pid, entry.args[1]),
                    _ => String::new(),
                };
                each(&Call { nr, args: entry.args, path });
            }
        }
        let signal = match libc::WSTOPSIG(status) {
            s if s == libc::SIGTRAP | 0x80 || s == libc::SIGTRAP || s == libc::SIGSTOP => 0,
            s => s,
        };
        // SAFETY: a stopped tracee.
        unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, signal) };
    }
}

/// Why a call could change something outside of the process; `None` if it can't.
fn changes(call: &Call) -> Option<String> {
    let a = &call.args;
    let name = |n: &str| Some(format!("{n}({a:x?})"));
    let writes = |flags: u64| {
        let flags = flags as i32;
        let creates = libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND;
        flags & libc::O_ACCMODE != libc::O_RDONLY || flags & creates != 0
    };
    match call.nr {
        libc::SYS_openat if writes(a[2]) => Some(format!("openat({}, {:#x})", call.path, a[2])),
        // Standard output and error only.
        libc::SYS_write | libc::SYS_writev if a[0] > 2 => name("write"),
        // With nodes pages would move.
        libc::SYS_move_pages if a[3] != 0 => name("move_pages"),
        // PAGEMAP_SCAN reads (its flags are not set), the others ask a terminal.
        libc::SYS_ioctl if !matches!(a[1] as u32, 0xc060_6610 | 0x5401 | 0x5413) => name("ioctl"),
        libc::SYS_prlimit64 if a[2] != 0 => name("prlimit64"),
        libc::SYS_prctl if a[0] != libc::PR_SET_NAME as u64 => name("prctl"),
        // The address of a structure, whose bit 0 of flags says that it is off: perf.rs.
        libc::SYS_perf_event_open if a[1] != 0 => name("perf_event_open"),
        libc::SYS_bpf => name("bpf"),
        libc::SYS_setrlimit | libc::SYS_pwrite64 | libc::SYS_sendto => name("a write"),
        libc::SYS_mount | libc::SYS_umount2 | libc::SYS_unshare | libc::SYS_setns => name("mount"),
        libc::SYS_mkdirat | libc::SYS_unlinkat | libc::SYS_renameat2 | libc::SYS_linkat => {
            name("a change of folders")
        }
        libc::SYS_fchmodat | libc::SYS_fchownat | libc::SYS_ftruncate | libc::SYS_utimensat => {
            name("a change of files")
        }
        libc::SYS_kill | libc::SYS_tgkill | libc::SYS_tkill | libc::SYS_ptrace => name("a signal"),
        libc::SYS_mbind | libc::SYS_set_mempolicy | libc::SYS_migrate_pages => name("a policy"),
        libc::SYS_process_madvise | libc::SYS_process_vm_writev => name("others' memory"),
        libc::SYS_sched_setaffinity | libc::SYS_setpriority => name("a priority"),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open if writes(a[1]) => name("open"),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat | libc::SYS_unlink | libc::SYS_rename | libc::SYS_mkdir => {
            name("a change of folders")
        }
        _ => None,
    }
}

#[test]
fn no_system_call_changes_anything() {
    let mut opened = 0;
    let mut perf = 0;
    let mut bad = Vec::new();
    trace(&[HOMENODE, "doctor"], |call| {
        opened += usize::from(call.nr == libc::SYS_openat);
        perf += usize::from(call.nr == libc::SYS_perf_event_open);
        bad.extend(changes(call));
    });
    assert_eq!(bad, [""; 0]);
    // It was looked at indeed.
    assert!(opened > 20 && perf >= 1, "{opened} files, {perf} events");
}

/// The check is no blind one: a command that writes is found out.
#[test]
fn a_command_that_writes_is_found_out() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doctor-written");
    let script = format!("echo 1 > {}", out.display());
    let mut bad = Vec::new();
    trace(&["/bin/sh", "-c", &script], |call| bad.extend(changes(call)));
    assert!(bad.iter().any(|b| b.contains("doctor-written")), "{bad:?}");
}
