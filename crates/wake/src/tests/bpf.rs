//! The same header in the kernel: compiled with clang, loaded past the verifier, run by hand
//! for the same wake-ups. Where a kernel or its rights don't let us, the test says so and ends.
//!
//! Test of: specs/wake.md#bpf.

use super::like_the_model::{World, wakeup};
use super::machine::words;
use crate::raw::{Chosen, Domain, Place, Shared, Task, Up, View};
use crate::{Allowed, Choice, Cpus, Reason, Version, Wakeup};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};
use std::path::PathBuf;
use std::process::Command;

const CPUS: usize = 128;
const DOMAINS: usize = 256;
const MASKS: usize = 1024;

/// `struct hn_bpf_state` of bpf/wake.bpf.c.
#[repr(C)]
#[derive(Clone, Copy)]
struct State {
    waker: Task,
    wakee: Task,
    choice: Chosen,
    view: [u32; 8],
    up: Up,
    allowed: [u64; CPUS / 64],
    idle: [u64; CPUS / 64],
    idle_core: [u64; CPUS / 64],
    sched_idle: [u64; CPUS / 64],
    active: [u64; CPUS / 64],
    load: [u64; CPUS],
    avg_idle: [u64; CPUS],
    scan_cost: [u64; CPUS],
    nr_running: [u32; CPUS],
    nr_delayed: [u32; CPUS],
    capacity: [u32; CPUS],
    capacity_orig: [u32; CPUS],
    place: [Place; CPUS],
    domain: [Domain; DOMAINS],
    shared: [Shared; DOMAINS],
    masks: [u64; MASKS],
}

// What isn't a pointer is copied word by word.
const _: () = assert!(offset_of!(View, place) == 32 && offset_of!(State, allowed) == 152);

fn fill<T: Copy>(to: &mut [T], from: &[T]) {
    to[..from.len()].copy_from_slice(from);
}

impl State {
    fn new(cpus: &Cpus, tasks: &[Task], waker: u32, w: &Wakeup<'_>) -> Box<Self> {
        // SAFETY: all fields are numbers, for which zeroes are values.
        let mut s: Box<Self> = Box::new(unsafe { std::mem::zeroed() });
        (s.waker, s.wakee) = (tasks[waker as usize], tasks[w.wakee as usize]);
        let nr_words = cpus.layout.nr_words();
        s.view = [
            cpus.layout.nr_cpus() as u32,
            cpus.rules.version as u32,
            cpus.rules.recent as u32,
            cpus.layout.has,
            cpus.rules.hz,
            cpus.layout.all.into(),
            cpus.capacity_orig_max,
            0,
        ];
        s.up = w.up();
        match w.allowed {
            Allowed::All => s.allowed.fill(u64::MAX),
            Allowed::Words(words) => fill(&mut s.allowed, &words[..nr_words]),
        }
        fill(&mut s.idle, &cpus.idle);
        fill(&mut s.idle_core, &cpus.idle_core);
        fill(&mut s.sched_idle, &cpus.sched_idle);
        fill(&mut s.active, &cpus.active);
        fill(&mut s.load, &cpus.load);
        fill(&mut s.avg_idle, &cpus.avg_idle);
        fill(&mut s.scan_cost, &cpus.scan_cost);
        fill(&mut s.nr_running, &cpus.nr_running);
        fill(&mut s.nr_delayed, &cpus.nr_delayed);
        fill(&mut s.capacity, &cpus.capacity);
        fill(&mut s.capacity_orig, &cpus.capacity_orig);
        fill(&mut s.place, &cpus.layout.places);
        fill(&mut s.domain, &cpus.layout.domains);
        fill(&mut s.shared, &cpus.shared);
        fill(&mut s.masks, &cpus.layout.masks);
        s
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: a value of plain numbers whose paddings are fields of it.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }

    fn of_bytes(bytes: &[u8]) -> Box<Self> {
        assert!(bytes.len() >= size_of::<Self>(), "{} bytes", bytes.len());
        // SAFETY: there are enough bytes, and any of them are numbers.
        Box::new(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }
}

/// A wake-up that was chosen for here: before it, after it, and what came out.
struct Known {
    before: Box<State>,
    after: Box<State>,
    choice: Choice,
    what: String,
}

thread_local! {
    static NOTED: RefCell<Option<Vec<Known>>> = const { RefCell::new(None) };
}

/// Keeps a wake-up, if this thread keeps them.
pub(super) fn note(
    before: &Cpus,
    tasks_before: &[Task],
    waker: u32,
    w: &Wakeup<'_>,
    after: &Cpus,
    tasks_after: &[Task],
    choice: &Choice,
) {
    NOTED.with_borrow_mut(|noted| {
        let Some(noted) = noted else { return };
        noted.push(Known {
            before: State::new(before, tasks_before, waker, w),
            after: State::new(after, tasks_after, waker, w),
            choice: *choice,
            what: format!("{w:?}"),
        });
    });
}

struct Program {
    object: Object,
    state: MapHandle,
    state_bytes: usize,
}

/// The program in the kernel, or why not.
fn load() -> Result<Program, String> {
    let clangs = ["clang", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17"];
    let named = std::env::var("CLANG").ok();
    let runs = |c: &&str| Command::new(c).arg("--version").output().is_ok();
    let clang = named.as_deref().or(clangs.into_iter().find(runs));
    let clang = clang.ok_or("clang is missing: install the package clang")?;
    let out: PathBuf = std::env::temp_dir().join(format!("wake-{}.bpf.o", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/wake.bpf.c");
    let done = Command::new(clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-c"])
        .args([source, "-o"])
        .arg(&out)
        .status();
    assert!(done.is_ok_and(|s| s.success()), "{clang} could not compile {source}");
    let bytes = std::fs::read(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    let _ = std::fs::remove_file(&out);
    let open = ObjectBuilder::default().open_memory(&bytes).expect("an object that clang wrote");
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        return Err("only root may load BPF programs".to_owned());
    }
    let object = match open.load() {
        Ok(object) => object,
        // Locked down (EPERM), or a kernel without the system call. What the verifier
        // refuses is EACCES, E2BIG and others.
        Err(e)
            if ["(os error 1)", "(os error 38)"].iter().any(|end| e.to_string().ends_with(end)) =>
        {
            return Err(format!("the kernel loads no BPF programs: {e}"));
        }
        Err(e) => panic!("the verifier refused it: {e:#}"),
    };
    let map = object.maps().find(|m| m.name().to_string_lossy().ends_with(".bss"));
    let map = map.expect("the section of `state`");
    let (state, state_bytes) = (MapHandle::try_from(&map).unwrap(), map.value_size() as usize);
    Ok(Program { object, state, state_bytes })
}

impl Program {
    fn run(&self, state: &State) -> Box<State> {
        let mut bytes = state.bytes().to_vec();
        bytes.resize(self.state_bytes, 0);
        let key = 0_u32.to_ne_bytes();
        self.state.update(&key, &bytes, MapFlags::ANY).unwrap();
        let program = self.object.progs_mut().next().unwrap();
        let output = program.test_run(ProgramInput::default()).unwrap();
        assert_eq!(output.return_value, 0);
        State::of_bytes(&self.state.lookup(&key, MapFlags::ANY).unwrap().unwrap())
    }

    fn check(&self, known: &Known) {
        let (there, here, what) = (self.run(&known.before), &known.after, &known.what);
        assert_eq!(crate::cpus::decode(&there.choice), Some(known.choice), "{what}");
        assert_eq!((there.waker, there.wakee), (here.waker, here.wakee), "{what}");
        let flags = |s: &State| s.shared.map(|s| (s.nr_idle_scan, s.has_idle_core));
        assert_eq!(flags(&there), flags(here), "{what}");
    }
}

#[test]
fn the_kernel_chooses_the_same() {
    let program = match load() {
        Ok(program) => program,
        Err(why) => return println!("not run in the kernel: {why}"),
    };
    let info = ProgInfoIter::default().find(|p| p.name.to_string_lossy() == "choose");
    let verified = info.map_or(0, |p| p.verified_insns);
    println!("the verifier went through {verified} instructions");
    // A million is the kernel's end; half of it is left for who includes the header.
    assert!(verified < 600_000, "{verified} instructions");

    NOTED.set(Some(Vec::new()));
    super::vectors::all();
    let vectors = NOTED.take().unwrap_or_default();
    assert!(vectors.len() > 50, "{} vectors", vectors.len());
    for known in &vectors {
        program.check(known);
    }

    let mut seen: BTreeMap<(Version, Reason), u32> = BTreeMap::new();
    for seed in 0..400 {
        let mut world = World::new(seed, CPUS as u32);
        for at in 0..10 {
            let w = world.next();
            let (waker, nr_words) = (w.waker as u32, world.cpus.layout.nr_words());
            let set = words(&w.allowed, nr_words);
            let up = wakeup(&w, Allowed::Words(&set));
            let before = State::new(&world.cpus, &world.tasks, waker, &up);
            let choice = world.choose(&w);
            let after = State::new(&world.cpus, &world.tasks, waker, &up);
            let what = format!("seed {seed}, wake-up {at}: {w:?}");
            program.check(&Known { before, after, choice, what });
            *seen.entry((world.state.rules.version, choice.reason)).or_default() += 1;
        }
    }
    let n: u32 = seen.values().sum();
    println!("{} vectors and {n} random wake-ups as here", vectors.len());
    assert!(seen.len() > 40, "{seen:?}");
}
